"""The benchmark of exported networks checks what it times, and reports its measurements."""

import json

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from cwrnn.export.onnx import bench


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(bench, "SHORTEST", 0)
    monkeypatch.setattr(bench, "STEP_UNITS", (8,))
    monkeypatch.setattr(bench, "STEPS", 5)


@pytest.mark.parametrize("layer", ["RNN", "LSTM", "GRU"])
def test_sequences_and_steps_are_timed(layer, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench, "SIZES", (bench.Size(12, 3, 9, 2, 2),))
    file = tmp_path / "bench.json"
    assert bench.main(["--layer", layer, "--repeats", "1", "--json", str(file)]) == 0
    out = capsys.readouterr().out
    assert "threads 1, onnxruntime" in out
    record = json.loads(file.read_text())
    ((row,), (step,)) = record["sequences"], record["steps"]
    assert [row[name] for name in ("n", "modules", "T", "B", "inputs", "layer")] == [12, 3, 9, 2, 2, layer]
    assert row["operator_ratio"] == pytest.approx(row["operator"] / row["export"])
    assert row["dense_ratio"] == pytest.approx(row["dense"] / row["export"])
    assert (step["units"], step["layer"]) == (8, layer)
    assert min(step["due"], step["all_modules"], step["dense"]) > 0


def test_a_wrong_result_is_not_timed(capsys, monkeypatch):
    monkeypatch.setattr(bench, "TOLERANCE", 0)
    assert bench.main(["12,3,9,2,2", "--repeats", "1"]) == 1
    assert "onnxruntime differs from torch by" in capsys.readouterr().err


def test_bad_arguments_are_refused(capsys):
    with pytest.raises(SystemExit):
        bench.main(["--repeats", "0"])
    assert "--repeats must be at least 1" in capsys.readouterr().err
