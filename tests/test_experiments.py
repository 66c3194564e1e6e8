import json
import sys

import numpy as np
import pytest
import torch

from cwrnn.experiments import demo, music, training
from cwrnn.experiments.models import build


def test_snippets():
    assert len(music.names()) == 5
    snippets = [music.load(name) for name in music.names()]
    for snippet in snippets:
        assert snippet.shape == (320,)
        assert snippet.dtype == np.float64
        assert (snippet.min(), snippet.max()) == (-1.0, 1.0)
    assert len({snippet.tobytes() for snippet in snippets}) == 5
    with pytest.raises(ValueError, match="name must be one of .*, got 'nothing'"):
        music.load("nothing")


def test_scaling_is_affine():
    signal = np.random.default_rng(0).normal(3.0, 0.1, size=50)
    values = music.scaled(signal)
    assert (values.min(), values.max()) == (-1.0, 1.0)
    assert np.corrcoef(signal, values)[0, 1] == pytest.approx(1.0)
    for bad in (np.ones(4), np.array([0.0, np.nan])):
        with pytest.raises(ValueError, match="finite and not constant"):
            music.scaled(bad)


def test_demo_writes_its_files(tmp_path, capsys, monkeypatch):
    # how wide the table is must not depend on who runs the test
    monkeypatch.setenv("COLUMNS", "100")
    out = tmp_path / "deep" / "folder"
    assert demo.main(["--epochs", "3", "--snippet", "2", "--seed", "5", "--out", str(out)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for text in (
        "SRN",
        "LSTM",
        "CW-RNN",
        "1024",
        "1021",
        "980",
        "0.46",
        "0.04",
        "0.007",
        "seed 5",
        "2 of 5",
        "3 epochs",
    ):
        assert text in printed
    assert str(out / "demo.png") in printed
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")

    record = json.loads((out / "demo.json").read_text())
    settings = record["settings"]
    assert (settings["snippet"], settings["epochs"], settings["seed"]) == (2, 3, 5)
    assert settings["name"] == music.names()[1]
    target = music.load(settings["name"])
    assert record["target"] == target.tolist()
    assert {run["method"]: run["parameters"] for run in record["runs"]} == {"srn": 1024, "lstm": 1021, "cw": 980}
    for run in record["runs"]:
        assert run["status"] == "finished"
        assert run["epochs"] == 3 == len(run["curve"]) - 1
        untrained = build(run["method"], run["hidden_size"], seed=5)(torch.zeros(320, 1, 0)).detach().numpy()[:, 0, 0]
        assert run["curve"][0] == [0, pytest.approx(training.nmse(untrained, target), rel=1e-5)]
        assert run["nmse"] == pytest.approx(training.nmse(np.array(run["output"]), target))


def test_demo_shows_what_diverged(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(training.LEARNING_RATES, "srn", 1e6)
    assert demo.main(["--epochs", "20", "--out", str(tmp_path)]) == 0
    assert "SRN diverged" in capsys.readouterr().out
    runs = {run["method"]: run for run in json.loads((tmp_path / "demo.json").read_text())["runs"]}
    assert (runs["srn"]["status"], runs["srn"]["nmse"]) == ("diverged", None)
    assert runs["srn"]["epochs"] < 20
    assert runs["cw"]["status"] == "finished"
    assert (tmp_path / "demo.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--snippet", "9"], "--snippet: expected a whole number from 1 to 5, got '9'"),
        (["--snippet", "0"], "--snippet: expected a whole number from 1 to 5, got '0'"),
        (["--epochs", "0"], "--epochs: expected a whole number of at least 1, got '0'"),
        (["--epochs", "many"], "--epochs: expected a whole number of at least 1, got 'many'"),
        (["--seed=-1"], "--seed: expected a whole number from 0 to 9223372036854775807, got '-1'"),
        (["--sneaky"], "unrecognized arguments: --sneaky"),
    ],
)
def test_demo_refuses(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        demo.main(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_demo_refuses_a_folder_that_cannot_be(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("in the way")
    with pytest.raises(SystemExit) as stopped:
        demo.main(["--out", str(file / "out")])
    assert stopped.value.code == 2
    assert "--out: cannot make the folder" in capsys.readouterr().err


def test_demo_help_has_examples(capsys):
    with pytest.raises(SystemExit) as stopped:
        demo.main(["--help"])
    assert stopped.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_demo_names_the_extra_that_is_missing(tmp_path, capsys, monkeypatch):
    # None in sys.modules makes the import fail as if the package were not there
    monkeypatch.setitem(sys.modules, "soundfile", None)
    assert demo.main(["--out", str(tmp_path)]) == 1
    assert "pip install 'cwrnn[experiments]'" in capsys.readouterr().err
