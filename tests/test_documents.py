"""The documents are true: their code runs, and what they name exists."""

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import cwrnn

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAPER = (ROOT / "docs" / "paper.md").read_text()
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def test_readme_code_runs():
    found = blocks(README, "python")
    assert len(found) >= 4
    names: dict = {}
    for block in found:
        exec(compile(block, "README.md", "exec"), names)
    assert names["y"].shape == (64, 8, 10)


def commands() -> list[str]:
    lines = [line.split("#")[0].strip() for block in blocks(README, "sh") for line in block.splitlines()]
    return [line for line in lines if line]


def test_the_first_commands_are_demo_and_test():
    assert commands()[:2] == ["make demo", "make test"]


@pytest.mark.parametrize("command", commands())
def test_readme_commands(command):
    words = shlex.split(command)
    if words[0] == "make":
        # what a test can ask of a command that runs the tests: that it is there
        words.insert(1, "-n")
    elif words[0] == "cwrnn":
        # nor does it train: all options must be understood before the help is printed
        words = [sys.executable, "-m", *words, "--help"]
    else:
        assert words[0] == "python"
        words[0] = sys.executable
    result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("text", [README, PAPER], ids=["README.md", "paper.md"])
def test_links_lead_somewhere(text):
    base = ROOT if text is README else ROOT / "docs"
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("http")]
    missing = [link for link in links if not (base / link).exists()]
    assert missing == []


def test_every_counterpart_in_the_paper_exists():
    functions = set(re.findall(r"`(cwrnn(?:\.\w+)+)`", PAPER))
    assert len(functions) > 20
    for name in functions:
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            try:
                found = importlib.import_module(".".join(parts[:length]))
            except ModuleNotFoundError:
                continue
            for attribute in parts[length:]:
                found = getattr(found, attribute)
            break
    tests = set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAPER))
    assert len(tests) > 20
    for file, test in tests:
        text = (ROOT / file).read_text()
        assert not test or f"def {test}(" in text, f"{file} has no {test}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples(example):
    assert len(example.read_text().splitlines()) <= 60
    command = [sys.executable, "-W", "error", str(example)]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_examples_are_there():
    assert [example.stem for example in EXAMPLES] == [
        "learned_clocks",
        "low_pass",
        "own_schedule",
        "quick_start",
        "streaming",
    ]


def test_version_is_in_the_changelog():
    assert f"## {cwrnn.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_import_needs_torch_and_numpy_only():
    """What else is installed must not be imported by `import cwrnn`, nor what torch itself leaves for later."""
    optional = [
        "torch._dynamo",
        "scipy",
        "matplotlib",
        "rich",
        "soundfile",
        "typer",
        "jinja2",
        "distributed",
        "sqlite3",
        "hypothesis",
        "pytest",
    ]
    code = f"import sys, cwrnn; print([name for name in {optional} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
