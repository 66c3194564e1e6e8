"""The documents are true: their code runs, their commands are understood, their links and names exist."""

import argparse
import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.core

import cwrnn
import cwrnn.experiments
from cwrnn.bench.command import main as bench
from cwrnn.commands.main import main

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", *PAGES]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
QUICK = {"long_memory": ["--epochs", "1", "--seeds", "1"]}
"""Arguments with which a longer example runs in seconds."""

NOT_RUN = "<!-- not run by the tests: "


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, language: str) -> list[str]:
    """The code blocks of a language, except those that say why they cannot run."""
    pattern = rf"^(?P<reason>{NOT_RUN}.+-->\n)?```{language}\n(?P<code>.*?)^```"
    found = re.finditer(pattern, path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [match["code"] for match in found if not match["reason"]]


def read_commands(path: Path) -> list[str]:
    """The lines of shell code, joined where they continue, and the commands inside the text."""
    code = "".join(blocks(path, "sh")).replace("\\\n", " ")
    lines = [line.split("#")[0].strip() for line in code.splitlines()]
    inline = re.findall(r"(?<!`)`(cwrnn [a-z][^`]+|make [a-z]+)`(?!`)", path.read_text())
    return [line for line in lines if line] + [" ".join(text.split()) for text in inline]


COMMANDS = sorted({command for path in DOCUMENTS for command in read_commands(path)})


def test_every_code_block_has_a_known_language():
    """A block in another spelling of its language would escape the tests."""
    for path in DOCUMENTS:
        languages = re.findall(r"^```(\w+)", path.read_text(), flags=re.MULTILINE)
        assert set(languages) <= {"c", "js", "python", "sh"}, path


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if blocks(path, "python")], ids=name)
def test_python_code_runs(path):
    names: dict = {}
    for block in blocks(path, "python"):
        exec(compile(block, str(path), "exec"), names)


def test_the_readme_shows_streams_clocks_and_readouts():
    text = "".join(blocks(ROOT / "README.md", "python"))
    for call in ("rnn.step(", "return_state=True", "Schedule(", "rnn.ticks("):
        assert call in text


def test_the_first_commands_are_demo_and_test():
    assert read_commands(ROOT / "README.md")[:2] == ["make demo", "make test"]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_understood(command, monkeypatch, capsys):
    """The real parsers accept every command; nothing is trained or timed."""
    words = shlex.split(command.split("<")[0])
    if words[0] == "make":
        result = subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
    elif words[:3] == ["python", "-m", "cwrnn.bench"] or words[:2] == ["cwrnn", "bench"]:
        parse = argparse.ArgumentParser.parse_args

        def parse_and_stop(parser, *arguments):
            parse(parser, *arguments)
            raise SystemExit(0)

        monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
        with pytest.raises(SystemExit, match="0"):
            bench(words[3:] if words[0] == "python" else words[2:])
    elif words[0] == "cwrnn":
        # all arguments are parsed and converted before a command is invoked, a group without a command too
        base = next(kind for kind in typer.core.TyperCommand.__mro__ if "invoke" in vars(kind))
        assert issubclass(typer.core.TyperGroup, base)
        parsed = []
        monkeypatch.setattr(base, "invoke", lambda command, context: parsed.append(command.name))
        main(words[1:])
        assert parsed, capsys.readouterr().err
    elif words[:3] == ["PYTHONPATH=tests", "python", "-m"]:
        # --help at the end: the parser reads the options before it, prints its help and stops
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(["tests", os.environ.get("PYTHONPATH", "")])}
        arguments = [sys.executable, *words[2:], "--help"]
        result = subprocess.run(arguments, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
    else:
        assert words[0] == "python"
        assert (ROOT / words[1]).exists()


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_lead_somewhere(path):
    links = re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", path.read_text())
    missing = [link for link in links if not link.startswith("https://") and not (path.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_named_files_exist(path):
    """Every file of this project that a document names in code exists."""
    named = re.findall(r"`((?:src|tests|docs|examples|tools|benchmarks)/[\w./-]+)", path.read_text())
    assert [file for file in named if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_named_functions_exist(path):
    for dotted in set(re.findall(r"`(cwrnn(?:\.\w+)+)", path.read_text())):
        parts = dotted.split(".")
        for length in range(len(parts), 0, -1):
            try:
                value = importlib.import_module(".".join(parts[:length]))
            except ModuleNotFoundError:
                continue
            for attribute in parts[length:]:
                value = getattr(value, attribute)
            break


def test_every_test_that_the_documents_name_exists():
    named = {test for path in DOCUMENTS for test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", path.read_text())}
    assert len(named) > 20
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text(), f"{file} has no {test}"


def test_the_paper_page_names_code_and_tests():
    text = (ROOT / "docs" / "paper.md").read_text()
    assert len(set(re.findall(r"`(cwrnn(?:\.\w+)+)`", text))) > 20
    assert len(set(re.findall(r"`(tests/[\w/]+\.py)", text))) > 15


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed: extra docs")
def test_the_site_builds_without_warnings_and_needs_no_network(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert result.returncode == 0, result.stdout + result.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) >= len(PAGES)
    for page in pages:
        text = page.read_text()
        assert not re.search(r'<(?:script|img|iframe)[^>]+src="?(?:https?:)?//', text), page
        assert not re.search(r'<link[^>]+rel="?(?:stylesheet|preconnect)"?[^>]+href="?(?:https?:)?//', text), page
    assert (tmp_path / "search" / "search_index.js").exists()


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [page for page in PAGES if str(page.relative_to(ROOT / "docs")) not in navigation] == []


def test_every_public_function_has_a_place_in_the_api():
    text = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    experiments = [name for name in cwrnn.experiments.__all__ if name[0].islower() and name != "load_corpus"]
    public = [name for name in cwrnn.__all__ if name != "init"] + experiments
    assert [name for name in public if not re.search(rf"^::: [\w.]+\.{name}$", text, flags=re.MULTILINE)] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_short_and_run(example):
    assert len(example.read_text().splitlines()) <= 90
    command = [sys.executable, "-W", "error", str(example), *QUICK.get(example.stem, [])]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_every_example_is_named_in_a_document():
    text = "".join(path.read_text() for path in DOCUMENTS)
    assert [example.name for example in EXAMPLES if f"examples/{example.name}" not in text] == []


def test_version_is_in_the_changelog():
    assert f"## {cwrnn.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_import_needs_torch_and_numpy_only():
    """`import cwrnn` imports no optional package, and none of the parts that torch itself loads later."""
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
