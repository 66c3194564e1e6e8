"""`cwrnn inspect` writes a complete page, and prints what is on it."""

import json
import re

import numpy as np
import pytest
from support.html_pages import Page
from support.inspected_networks import save_recogniser
from support.made_corpora import make_corpus

from cwrnn.commands.main import main
from cwrnn.experiments.inspect import page
from cwrnn.experiments.inspect.loading import load_network
from cwrnn.experiments.inspect.measuring import measure_network
from cwrnn.experiments.inspect.page import TITLES
from cwrnn.experiments.inspect.sentences import describe_inspection
from cwrnn.experiments.report.svg import VARIABLES


@pytest.fixture
def run(capsys):
    def inspect(*arguments):
        code = main(["inspect", "--quiet", *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return inspect


@pytest.mark.parametrize("kind", ["sequence_store", "word_store"])
def test_page_is_complete_and_safe(kind, run, request, tmp_path):
    store = request.getfixturevalue(kind)
    code, out, err = run(store, "--out", tmp_path / "deep" / "page.html")
    assert (code, err) == (0, "")
    text = (tmp_path / "deep" / "page.html").read_text(encoding="utf-8")
    assert out.splitlines()[-1] == f"The page is {tmp_path / 'deep' / 'page.html'}"
    page = Page(text)
    assert "script" not in page.tags
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in page.links)
    assert len(page.ids) == len(set(page.ids))
    assert "http" not in page.styles
    for name in TITLES:
        assert name in page.ids
    for sentence in out.splitlines()[:-1]:
        assert sentence in page.text
    assert page.tags.count("svg") == len(TITLES)
    for colour in VARIABLES:
        assert colour not in "".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))


@pytest.fixture
def unwritten(monkeypatch):
    """Write no page, because drawing takes long; return the networks and the paths of the pages."""
    pages = []
    monkeypatch.setattr(page, "write_page", lambda network, inspection, path: pages.append((network, path)))
    return pages


def test_page_is_written_beside_the_network(run, unwritten, word_store, tmp_path):
    assert run(word_store)[0] == 0
    assert run(word_store / "runs.sqlite")[0] == 0
    assert run(save_recogniser(tmp_path / "words.safetensors", make_corpus()), "--data", "bundle")[0] == 1
    assert run(save_recogniser(tmp_path / "words.safetensors"), "--word", "making")[0] == 0
    assert [path for _, path in unwritten] == [word_store / "inspect.html"] * 2 + [tmp_path / "inspect.html"]
    display = unwritten[-1][0].display
    assert display.words[display.label] == "making"


def test_json_has_the_measurements(run, unwritten, sequence_store, tmp_path):
    code, out, err = run(sequence_store, "--json", "--out", tmp_path / "page.html")
    assert (code, err) == (0, "")
    numbers = json.loads(out)
    inspected = measure_network(load_network(sequence_store))
    assert numbers["intact"] == dict(inspected.intact)
    assert [each["reach"] for each in numbers["modules"]] == [each.reach for each in inspected.modules]
    assert numbers["sentences"] == describe_inspection(inspected)
    np.testing.assert_array_equal(np.array(numbers["memory"], dtype=float), inspected.memory.norms)
    assert numbers["blocks"][1][0] is None
    assert numbers["page"] == str(tmp_path / "page.html")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere"], 1, "nowhere: cannot be read"),
        ([".."], 1, "there is no store"),
        (["{store}", "--run", "xyz"], 1, "no run with a key that begins with 'xyz'"),
        (["{store}", "--task", "dancing"], 2, "--task"),
        (["{store}", "--out", "{store}"], 2, "is a folder: name a file"),
        ([], 2, "MODEL"),
    ],
)
def test_errors_have_messages_and_exit_codes(run, sequence_store, tmp_path, monkeypatch, arguments, code, message):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    found, out, err = run(*(word.format(store=sequence_store) for word in arguments))
    assert (found, out) == (code, "")
    assert message in " ".join(err.split())


def test_help_has_examples(capsys):
    assert main(["inspect", "--help"]) == 0
    out = capsys.readouterr().out
    for option in ("task", "run", "data", "word", "out", "json"):
        assert f"--{option}" in out
    assert "examples:" in out
