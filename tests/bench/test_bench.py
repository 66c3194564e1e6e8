"""The benchmark refuses wrong backends and arguments, and reports its measurements."""

import json
import re

import pytest
import torch

from cwrnn import ClockworkRNN, backends, bench
from cwrnn.backends import BACKENDS, Backend
from cwrnn.bench import command, compiled, layers, regimes, streams, timing
from cwrnn.bench.layers import Size
from cwrnn.kernels.cpu import loader


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Reduces the work of every regime, because no test here is about speed."""
    monkeypatch.setattr(timing, "SHORTEST", 0)
    monkeypatch.setattr(command, "measure_peak", lambda *arguments: 1e9)
    monkeypatch.setattr(command, "measure_floor", lambda *arguments: (1e-8, 2e-8))
    monkeypatch.setattr(command, "REPLICAS", 2)
    monkeypatch.setattr(command, "STEP_UNITS", (16,))


@pytest.mark.parametrize("layer", ["RNN", "LSTM", "GRU"])
def test_the_table_and_the_json_have_every_layer(layer, tmp_path, capsys):
    file = tmp_path / "new" / "bench.json"
    arguments = ["12,3,9,2,2", "8,2,5,1,1", "--layer", layer.lower(), "--repeats", "2", "--threads", "1"]
    assert bench.main([*arguments, "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "threads 1" in lines[0]
    assert f"layer Clockwork{layer}" in lines[0]
    assert re.match(r"load of the last minute: \d+\.\d on \d+ cores", lines[1])
    assert any(line.startswith("units modules steps batch inputs") for line in lines)
    rows = [line.split()[:5] for line in lines if line.split()[:1] in (["12"], ["8"])]
    assert rows == [["12", "3", "9", "2", "2"], ["8", "2", "5", "1", "1"]]
    record = json.loads(file.read_text())
    assert record["environment"]["torch"] == torch.__version__
    assert record["environment"]["cores"] >= 1
    assert len(record["environment"]["load"]) == 3
    assert [[row[name] for name in ("n", "modules", "T", "B", "inputs")] for row in record["layers"]] == [
        [12, 3, 9, 2, 2],
        [8, 2, 5, 1, 1],
    ]
    for row in record["layers"]:
        assert row["forward_ratio"] == pytest.approx(row["forward"][layer] / row["forward"]["cwrnn"])
        assert row["training_ratio"] == pytest.approx(row["training"][layer] / row["training"]["cwrnn"])
        assert row["error"] < 1e-5
        for seconds in (row["forward"], row["training"]):
            assert seconds.keys() == {"cwrnn", "RNN", "LSTM", "GRU", "loop"}
            assert min(seconds.values()) > 0


def test_all_regimes_and_the_picture_are_written(tmp_path, capsys, monkeypatch):
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


def test_compiled_layers_are_timed_beside_eager_ones(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(compiled, "SIZE", Size(8, 2, 5, 2, 3))
    monkeypatch.setattr(compiled, "SHORTEST", 0)
    layers = []
    # a compiler that leaves layers as they are
    monkeypatch.setattr(torch, "compile", lambda layer: layers.append(layer) or layer.forward)
    file = tmp_path / "bench.json"
    assert bench.main(["compiled", "--repeats", "1", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["compiled"]
    assert [row["name"] for row in rows][:4] == [
        "cwrnn, forward",
        "cwrnn, forward + backward",
        "cwrnn, forward, autocast",
        "cwrnn, forward + backward, autocast",
    ]
    assert len(rows) == len(layers) == 12
    assert all(row["more"] == pytest.approx(row["compiled"] - row["eager"]) for row in rows)
    assert "RNN, forward + backward, autocast" in capsys.readouterr().out


@pytest.mark.parametrize("layer", ["RNN", "LSTM", "GRU"])
def test_streams_are_timed_beside_themselves_alone(layer, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(streams, "SIZES", ((1, 9), (20, 9)))
    monkeypatch.setattr(streams, "SHORTEST", 0)
    file = tmp_path / "bench.json"
    assert bench.main(["streams", "--layer", layer, "--repeats", "1", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["streams"]
    assert [(row["streams"], row["stepped"]) for row in rows] == [(1, 1), (20, 20), (20, 2)]
    for row in rows:
        assert row["alone_ratio"] == pytest.approx(row["alone"] / row["pool"])
        assert row["torch_ratio"] == pytest.approx(row["torch"] / row["pool"])
    assert "2 of 20 streams, 9 units" in capsys.readouterr().out


def test_a_wrong_pool_is_not_timed(capsys, monkeypatch):
    monkeypatch.setattr(streams, "SIZES", ((3, 9),))
    step = streams.StreamPool.step
    monkeypatch.setattr(streams.StreamPool, "step", lambda pool, keys, x: step(pool, keys, x) + 1)
    assert bench.main(["streams", "--repeats", "1"]) == 1
    assert "not close" in capsys.readouterr().err


def test_growth_is_compared_turn_by_turn(monkeypatch):
    monkeypatch.setattr(regimes, "GROWTH", {"units": (8, 16), "steps": (), "sequences": (), "modules": (1,)})
    monkeypatch.setattr(regimes, "LONG", 16)
    asked = []

    def timed(functions, repeats, device, shortest):
        asked.append(repeats)
        # forward and forward + backward of two points; the machine is slower in the second turn, and the third is odd
        return [[1.0, 10.0, 1.0], [2.0, 20.0, 2.0], [3.0, 30.0, 9.0], [8.0, 80.0, 4.0]][: len(functions)]

    monkeypatch.setattr(regimes, "time_turns", timed)
    points = regimes.measure_growth("torch", 2, torch.device("cpu"), torch.float32, report=lambda point: None)
    assert asked[0] == 2 * regimes.MORE_TURNS
    assert [point[:2] for point in points] == [("units", 8), ("units", 16), ("modules", 1)]
    assert [point[3:] for point in points[:2]] == [(1.0, 2.0, None, None), (9.0, 8.0, 3.0, 4.0)]


def test_a_missing_kernel_is_stated(capsys, monkeypatch):
    monkeypatch.setattr(loader._Loaded, "isa", None)
    monkeypatch.setattr(loader._Loaded, "missing", "its compiled part is missing: no compiler")
    assert bench.main(["8,2,5,1,1", "--repeats", "1"]) == 0
    assert "CPU kernel none: its compiled part is missing: no compiler, backend torch" in capsys.readouterr().out


def test_peak_and_floor_are_computed_from_the_times(monkeypatch):
    """A fake clock makes the times known, whatever the load of the machine is."""

    def turns(functions, repeats, device):
        for function in functions:
            function()
        return [2.0, 6.0][: len(functions)]

    monkeypatch.setattr(timing, "take_turns", turns)
    device = torch.device("cpu")
    assert timing.measure_peak(device, torch.float32) == 1024**3 / 2
    # 200 steps forward, and forward + backward
    assert timing.measure_floor("torch", device, torch.float32) == (2 / 200, 6 / 200)


def test_a_wrong_backend_is_not_timed(monkeypatch, capsys):
    def wrong(*arguments):
        input, weight_ih, weight_hh, bias, h0, *rest = arguments
        return BACKENDS["torch"].run(input, weight_ih, weight_hh * 1.001, bias, h0, *rest)

    monkeypatch.setitem(backends.BACKENDS, "wrong", Backend("wrong", lambda device, dtype: None, wrong))
    assert bench.main(["12,3,9,2,2", "--backend", "wrong", "--repeats", "1"]) == 1
    captured = capsys.readouterr()
    assert "backend 'wrong' does not equal the specification" in captured.err
    assert not any(line.split()[:1] == ["12"] for line in captured.out.splitlines())


def test_check_refuses_a_wrong_gradient(monkeypatch):
    def wrong(*arguments):
        input, weight_ih, weight_hh, bias, h0, *rest = arguments
        halved = weight_hh.detach() + (weight_hh - weight_hh.detach()) / 2
        return BACKENDS["torch"].run(input, weight_ih, halved, bias, h0, *rest)

    monkeypatch.setitem(backends.BACKENDS, "wrong", Backend("wrong", lambda device, dtype: None, wrong))
    with pytest.raises(AssertionError, match="does not equal the specification"):
        bench.check(ClockworkRNN(2, 8, backend="wrong"), torch.randn(9, 2, 2))


def test_check_refuses_what_is_not_a_number():
    rnn = ClockworkRNN(2, 8)
    rnn.weight_hh_l0.data.fill_(float("nan"))
    with pytest.raises(AssertionError, match="relative error nan"):
        bench.check(rnn, torch.randn(9, 2, 2))


def test_check_end_refuses_a_wrong_last_output(monkeypatch):
    rnn = ClockworkRNN(2, 8)
    input = torch.randn(40, 3, 2)
    assert layers.check_end(rnn, input, 17) < 1e-5
    forward = ClockworkRNN.forward

    def wrong_at_the_end(layer, x, *arguments, **options):
        output, state = forward(layer, x, *arguments, **options)
        if x.shape[0] == 40:
            output[-1] += 1e-3
        return output, state

    monkeypatch.setattr(ClockworkRNN, "forward", wrong_at_the_end)
    with pytest.raises(AssertionError, match="does not equal the specification"):
        layers.check_end(rnn, input, 17)


def test_functions_take_turns():
    calls = []
    device = torch.device("cpu")
    seconds = bench.take_turns([lambda: calls.append("a"), lambda: calls.append("b")], repeats=2, device=device)
    # two calls of each warm up and show how long a call takes; a turn has at least three calls
    assert "".join(calls) == "aabb" + "aaabbb" * 2
    assert len(seconds) == 2


def test_turns_are_cut_into_slices(monkeypatch):
    calls = []

    def fake_time(function, device):
        function()
        return {"a": 0.01, "b": 0.02, "c": 0.2, "d": 1.0}[calls[-1]]

    monkeypatch.setattr(timing, "SHORTEST", 0.15)
    monkeypatch.setattr(timing, "_time_call", fake_time)
    functions = [lambda name=name: calls.append(name) for name in "abcd"]
    assert bench.take_turns(functions, repeats=1, device=torch.device("cpu")) == [0.01, 0.02, 0.2, 1.0]
    # fifteen calls, eight, three and one: a slice has at least three of them, unless the function is slow
    assert "".join(calls[8:]) == "".join(["aaa", "aaa", "aaabbbb", "aaa", "aaabbbbcccd"])


@pytest.mark.parametrize(
    ("load", "threads", "advice"),
    [
        ([0.2, 0.0, 0.0], 2, ""),
        ([1.5, 0.0, 0.0], 2, "; this machine is busy: use --threads 1"),
        ([1.5, 0.0, 0.0], 1, "; this machine is busy: long calls suffer more than short ones, do not quote this"),
    ],
)
def test_the_load_of_the_machine_is_stated_with_advice(load, threads, advice):
    expected = f"load of the last minute: {load[0]} on 2 cores{advice}"
    assert timing.format_load(load, cores=2, threads=threads) == expected


def test_an_unknown_load_is_stated():
    assert timing.format_load(None, cores=4, threads=2) == "load of the last minute: unknown, on 4 cores"


def test_a_torch_layer_without_finite_results_is_not_timed():
    layer = torch.nn.GRU(2, 4)
    layer.weight_hh_l0.data.fill_(float("nan"))
    with pytest.raises(AssertionError, match=r"torch.nn.GRU gives wrong or infinite results; it is not timed"):
        layers.check_finite(layer, torch.randn(5, 3, 2), torch.randn(5, 3, 4))


def test_cwrnn_bench_forwards_its_arguments(capsys):
    pytest.importorskip("typer")
    from cwrnn.commands.main import main

    assert main(["bench", "12,3,9,2,2", "--repeats", "1", "--threads", "1"]) == 0
    assert "threads 1" in capsys.readouterr().out
    assert main(["bench", "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: cwrnn bench [-h]")
    assert "--picture" in out
    assert main(["bench", "--repeats", "0"]) == 2
    assert "--threads and --repeats must be at least 1" in capsys.readouterr().err
    assert main(["--help"]) == 0
    assert re.search(r"bench +Time the layer against torch.nn.RNN, LSTM and GRU", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["12,3,9,2"], "'12,3,9,2' is not units,modules,steps,batch,inputs"),
        (["a,b,c,d,e"], "'a,b,c,d,e' is not units,modules,steps,batch,inputs"),
        (["2,3,9,2,1"], "modules at most units"),
        (["2,1,0,2,1"], "all five must be at least 1"),
        (["step", "12,3,9,2,2"], "name no other regime beside them"),
        (["layers", "--picture", "x.png"], "--picture shows all regimes"),
        (["step", "--layer", "GRU"], "only the regimes layers, streams, gpu and sweep time other layers than RNN"),
        (["sweep"], "gpu, sweep: add --device cuda"),
        (["sweep", "layers", "--device", "cuda"], "name no regime of another kind beside them"),
        (
            ["layers", "--part", "1/8"],
            "--part, --steps, --seconds, --rivals, --again and --resume are options of the regime sweep: name it",
        ),
        (["--steps", "100"], "--resume are options of the regime sweep: name it"),
        (["gpu", "--device", "cuda", "--json", "x.json", "--resume"], "--resume are options of the regime sweep"),
        (["sweep", "--device", "cuda", "--resume"], "--resume continues the sweep in the file of --json: name it"),
        (["sweep", "gpu", "--device", "cuda", "--json", "x.json", "--resume"], "name it, and no other regime"),
        (["sweep", "--steps", "99"], "argument --steps: '99' is not one or more of 100, 1024, 8192, with commas"),
        (["sweep", "--steps", "100,"], "argument --steps: '100,' is not one or more of"),
        (["gpu", "--device", "cuda", "--seconds", "9"], "options of the regime sweep: name it"),
        (["sweep", "--part", "2"], "argument --part: '2' is not K/M, two whole numbers such as 1/8"),
        (["sweep", "--part", "1/x"], "'1/x' is not K/M"),
        (["sweep", "--part", "0/8"], "'0/8': K must be from 1 to M"),
        (["sweep", "--part", "9/8"], "'9/8': K must be from 1 to M"),
        (["sweep", "--part", "1/1000"], "M at most 288"),
        (["sweep", "--seconds", "0"], "argument --seconds: '0' is not a number above 0"),
        (["sweep", "--seconds", "nan"], "'nan' is not a number above 0"),
        (["--again", "x.json"], "--again and --resume are options of the regime sweep: name it"),
        (["gpu", "--device", "cuda", "--again", "x.json"], "--again and --resume are options of the regime sweep"),
        (["sweep", "--device", "cuda", "--below", "2"], "--below is an option of --again: name the file of a sweep"),
        (["sweep", "--again", "x.json", "--below", "-1"], "argument --below: '-1' is not a number above 0"),
        (["sweep", "--again", "x.json", "--below", "much"], "argument --below: 'much' is not a number above 0"),
        (
            ["sweep", "--device", "cuda", "--again", "x.json", "--json", "out/../x.json"],
            "--json would replace the file of --again: name another file",
        ),
        (["--repeats", "0"], "--threads and --repeats must be at least 1"),
        (["--threads", "4294967296"], "--threads must be at most 1024, got 4294967296"),
        (["--backend", "none"], "invalid choice: 'none'"),
        (["--device", "toaster"], "toaster"),
    ],
)
def test_bad_arguments_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        bench.main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
