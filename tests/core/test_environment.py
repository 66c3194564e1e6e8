"""The environment of a record."""

import subprocess
from pathlib import Path

import pytest

import cwrnn
from cwrnn import environment


@pytest.mark.skipif(not (Path(cwrnn.__file__).parents[2] / ".git").exists(), reason="needs a checkout")
def test_asking_git_for_the_commit_takes_no_lock(monkeypatch):
    """A command that is killed while git holds the lock of its index would leave the lock in the user's checkout."""
    commands = []
    run = subprocess.run
    monkeypatch.setattr(
        subprocess, "run", lambda command, **options: (commands.append(command), run(command, **options))[1]
    )
    environment._commit()
    assert len(commands) == 2
    assert all(command[:2] == ["git", "--no-optional-locks"] for command in commands)
