"""The benchmark refuses what is wrong, and reports what it measured."""

import json

import pytest
import torch

from cwrnn import ClockworkRNN, bench, recurrence
from cwrnn.recurrence import BACKENDS, Backend


def test_table_and_json(tmp_path, capsys):
    file = tmp_path / "new" / "bench.json"
    assert bench.main(["12,3,9,2,2", "8,2,5,1,1", "--repeats", "2", "--threads", "1", "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "threads 1" in lines[0]
    assert [line.split()[:5] for line in lines[2:4]] == [["12", "3", "9", "2", "2"], ["8", "2", "5", "1", "1"]]
    record = json.loads(file.read_text())
    assert record["environment"]["torch"] == torch.__version__
    for row in record["rows"]:
        assert row["forward_ratio"] == pytest.approx(row["forward_rnn"] / row["forward"])
        assert row["training_ratio"] == pytest.approx(row["training_rnn"] / row["training"])
        assert min(row["forward"], row["training"]) > 0
        assert row["error"] < 1e-5


def test_a_wrong_backend_is_not_timed(monkeypatch, capsys):
    def wrong(*arguments):
        input, weight_ih, weight_hh, bias, h0, *rest = arguments
        return BACKENDS["torch"].load()(input, weight_ih, weight_hh * 1.001, bias, h0, *rest)

    monkeypatch.setitem(recurrence.BACKENDS, "wrong", Backend(lambda device, dtype: None, lambda: wrong))
    assert bench.main(["12,3,9,2,2", "--backend", "wrong", "--repeats", "1"]) == 1
    captured = capsys.readouterr()
    assert "backend 'wrong' does not equal the specification" in captured.err
    assert len(captured.out.splitlines()) == 2


def test_check_sees_a_wrong_gradient(monkeypatch):
    def wrong(*arguments):
        input, weight_ih, weight_hh, bias, h0, *rest = arguments
        halved = weight_hh.detach() + (weight_hh - weight_hh.detach()) / 2
        return BACKENDS["torch"].load()(input, weight_ih, halved, bias, h0, *rest)

    monkeypatch.setitem(recurrence.BACKENDS, "wrong", Backend(lambda device, dtype: None, lambda: wrong))
    with pytest.raises(AssertionError, match="does not equal the specification"):
        bench.check(ClockworkRNN(2, 8, backend="wrong"), torch.randn(9, 2, 2))


def test_turns_are_taken():
    calls = []
    device = torch.device("cpu")
    seconds = bench.take_turns([lambda: calls.append("a"), lambda: calls.append("b")], repeats=2, device=device)
    assert calls == ["a", "b"] * 3
    assert len(seconds) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["12,3,9,2"], "'12,3,9,2' is not n,modules,T,B,inputs"),
        (["a,b,c,d,e"], "'a,b,c,d,e' is not n,modules,T,B,inputs"),
        (["2,3,9,2,1"], "modules at most n"),
        (["2,1,0,2,1"], "all five must be at least 1"),
        (["--repeats", "0"], "--threads and --repeats must be at least 1"),
        (["--backend", "none"], "invalid choice: 'none'"),
        (["--device", "toaster"], "toaster"),
    ],
)
def test_bad_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        bench.main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
