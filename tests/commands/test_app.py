"""`cwrnn` itself: its version, and its help."""

import cwrnn
from cwrnn.commands.main import main


def test_version_prints_the_version_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"cwrnn {cwrnn.__version__}\n"


def test_no_command_prints_the_help_and_exits_with_2(capsys):
    assert main([]) == 2
    assert "reproduce" in "".join(capsys.readouterr())
