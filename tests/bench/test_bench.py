"""The benchmark refuses what is wrong, and reports what it measured."""

import json

import pytest
import torch

from cwrnn import ClockworkRNN, bench
from cwrnn import backends as recurrence
from cwrnn.backends import BACKENDS, Backend
from cwrnn.bench import command, layers, regimes, timing
from cwrnn.bench.layers import Size
from cwrnn.kernels.cpu import loader as library


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Nothing here is about speed: as little work as shows that all is done."""
    monkeypatch.setattr(timing, "SHORTEST", 0)
    monkeypatch.setattr(command, "measure_peak", lambda *arguments: 1e9)
    monkeypatch.setattr(command, "measure_floor", lambda *arguments: (1e-8, 2e-8))
    monkeypatch.setattr(command, "REPLICAS", 2)
    monkeypatch.setattr(command, "STEP_UNITS", (16,))


def test_table_and_json(tmp_path, capsys):
    file = tmp_path / "new" / "bench.json"
    assert bench.main(["12,3,9,2,2", "8,2,5,1,1", "--repeats", "2", "--threads", "1", "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "threads 1" in lines[0]
    rows = [line.split()[:5] for line in lines if line.split()[:1] in (["12"], ["8"])]
    assert rows == [["12", "3", "9", "2", "2"], ["8", "2", "5", "1", "1"]]
    record = json.loads(file.read_text())
    assert record["environment"]["torch"] == torch.__version__
    for row in record["layers"]:
        assert row["forward_ratio"] == pytest.approx(row["forward"]["RNN"] / row["forward"]["cwrnn"])
        assert row["training_ratio"] == pytest.approx(row["training"]["RNN"] / row["training"]["cwrnn"])
        assert row["error"] < 1e-5
        for seconds in (row["forward"], row["training"]):
            assert seconds.keys() == {"cwrnn", "RNN", "LSTM", "loop"}
            assert min(seconds.values()) > 0


def test_all_regimes_and_the_picture(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(layers, "DEFAULT_SIZES", (Size(8, 2, 5, 1, 1),))
    monkeypatch.setattr(regimes, "LONG", 64)
    monkeypatch.setattr(regimes, "GROWTH", {"units": (8, 16), "steps": (4, 8), "sequences": (1, 2), "modules": (2, 3)})
    file, picture = tmp_path / "bench.json", tmp_path / "new" / "bench.png"
    assert bench.main(["--repeats", "1", "--json", str(file), "--picture", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "training step of 2 replicas" in out
    assert "one step, 16 units" in out
    record = json.loads(file.read_text())
    assert [(point["axis"], point["value"]) for point in record["growth"]] == [
        (axis, value) for axis, values in regimes.GROWTH.items() for value in values
    ]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_growth_is_compared_turn_by_turn(monkeypatch):
    monkeypatch.setattr(regimes, "GROWTH", {"units": (8, 16), "steps": (), "sequences": (), "modules": (1,)})
    monkeypatch.setattr(regimes, "LONG", 16)
    asked = []

    def timed(functions, repeats, device, shortest):
        asked.append(repeats)
        # of each point forward and both; the machine is slower in the second turn, and the third is odd
        return [[1.0, 10.0, 1.0], [2.0, 20.0, 2.0], [3.0, 30.0, 9.0], [8.0, 80.0, 4.0]][: len(functions)]

    monkeypatch.setattr(regimes, "time_turns", timed)
    points = regimes.measure_growth("torch", 2, torch.device("cpu"), torch.float32, report=lambda point: None)
    assert asked[0] == 2 * regimes.MORE_TURNS
    assert [point[:2] for point in points] == [("units", 8), ("units", 16), ("modules", 1)]
    assert [point[3:] for point in points[:2]] == [(1.0, 2.0, None, None), (9.0, 8.0, 3.0, 4.0)]


def test_says_that_there_is_no_kernel(capsys, monkeypatch):
    monkeypatch.setattr(library._Loaded, "isa", None)
    monkeypatch.setattr(library._Loaded, "missing", "its compiled part is missing: no compiler")
    assert bench.main(["8,2,5,1,1", "--repeats", "1"]) == 0
    assert "CPU kernel none: its compiled part is missing: no compiler, backend torch" in capsys.readouterr().out


def test_peak_and_floor(monkeypatch):
    """By a clock that knows what it will show: the load of the machine has no say."""

    def turns(functions, repeats, device):
        for function in functions:
            function()
        return [2.0, 6.0][: len(functions)]

    monkeypatch.setattr(timing, "take_turns", turns)
    device = torch.device("cpu")
    assert timing.measure_peak(device, torch.float32) == 1024**3 / 2
    # 200 steps of the forward pass, and of both
    assert timing.measure_floor("torch", device, torch.float32) == (2 / 200, 6 / 200)


def test_a_wrong_backend_is_not_timed(monkeypatch, capsys):
    def wrong(*arguments):
        input, weight_ih, weight_hh, bias, h0, *rest = arguments
        return BACKENDS["torch"].load()(input, weight_ih, weight_hh * 1.001, bias, h0, *rest)

    monkeypatch.setitem(recurrence.BACKENDS, "wrong", Backend(lambda device, dtype: None, lambda: wrong))
    assert bench.main(["12,3,9,2,2", "--backend", "wrong", "--repeats", "1"]) == 1
    captured = capsys.readouterr()
    assert "backend 'wrong' does not equal the specification" in captured.err
    assert not any(line.split()[:1] == ["12"] for line in captured.out.splitlines())


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
    # each twice to warm up and to see how long it takes; a turn is three calls at least
    assert "".join(calls) == "aabb" + "aaabbb" * 2
    assert len(seconds) == 2


def test_turns_are_cut_into_slices(monkeypatch):
    calls = []

    def took(function, device):
        function()
        return {"a": 0.01, "b": 0.02, "c": 0.2, "d": 1.0}[calls[-1]]

    monkeypatch.setattr(timing, "SHORTEST", 0.15)
    monkeypatch.setattr(timing, "_time", took)
    functions = [lambda name=name: calls.append(name) for name in "abcd"]
    assert bench.take_turns(functions, repeats=1, device=torch.device("cpu")) == [0.01, 0.02, 0.2, 1.0]
    # fifteen calls, eight, three and one: a slice has three of them at least, but for what is slow
    assert "".join(calls[8:]) == "".join(["aaa", "aaa", "aaabbbb", "aaa", "aaabbbbcccd"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["12,3,9,2"], "'12,3,9,2' is not n,modules,T,B,inputs"),
        (["a,b,c,d,e"], "'a,b,c,d,e' is not n,modules,T,B,inputs"),
        (["2,3,9,2,1"], "modules at most n"),
        (["2,1,0,2,1"], "all five must be at least 1"),
        (["step", "12,3,9,2,2"], "name no other regime beside them"),
        (["layers", "--picture", "x.png"], "--picture shows all regimes"),
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
