"""The GPU's regime: its layers run on the CPU, and a fake clock stands for the events and the waits of the GPU."""

import re

import pytest
import torch

from cwrnn.bench import gpu, gpu_timing
from cwrnn.bench.gpu_timing import QUICK, THOROUGH, Times
from cwrnn.bench.layers import Size


@pytest.fixture
def calls(monkeypatch):
    """The calls that a fake clock sees: the function, the way, and the number of calls."""
    seen = []

    def measure(function, way, count):
        function()
        seen.append((function.__qualname__, way, count))
        return 0.3 if "training" in function.__qualname__ else 0.001

    monkeypatch.setattr(gpu_timing, "_time_calls", lambda function, count: measure(function, "back to back", count))
    monkeypatch.setattr(gpu_timing, "_time_synchronised", lambda function: 1.5 * measure(function, "synchronised", 1))
    monkeypatch.setattr(
        gpu_timing, "_time_once", lambda function: Times(seconds := measure(function, "once", 1), 1.5 * seconds)
    )
    return seen


def test_rows_have_every_layer_in_both_ways(calls):
    (row,) = gpu.measure([(Size(12, 3, 9, 2, 2), "fp32")], "LSTM", gpu.OTHERS, "torch", torch.device("cpu"))
    record = row.record()
    assert [record[name] for name in ("n", "modules", "T", "B", "inputs", "layer")] == [12, 3, 9, 2, 2, "LSTM"]
    assert record["backend"] == "torch"
    assert record["note"] is None
    for name, seconds in (("forward", 0.001), ("training", 0.3)):
        for layer in ("", "_rnn", "_lstm", "_gru"):
            assert record[f"{name}{layer}"] == seconds
            assert record[f"{name}_synchronised{layer}"] == 1.5 * seconds
    first, second = gpu.format_row(row, {"fp32": 1e12}).splitlines()
    assert first.split()[:7] == ["12", "3", "9", "2", "2", "fp32", "forward"]
    assert first.split("|")[1].split()[:2] == ["1.000", "1.500"]
    for line in (first, second):
        assert line.split("|")[2].split() == line.split("|")[3].split() == ["1.00", "1.00", "1.00"]
    head = gpu.make_head(gpu.OTHERS).splitlines()[1]
    assert [m.start() for m in re.finditer(r"\|", head)] == [m.start() for m in re.finditer(r"\|", first)]


def test_fast_functions_take_turns_of_many_calls(calls):
    gpu_timing.time_on_device([lambda: None, lambda: None], THOROUGH)
    ways = [(way, count) for _, way, count in calls]
    turn = [("back to back", 20)] + [("synchronised", 1)] * 20
    assert ways == [("once", 1)] * 2 + turn * 2 * THOROUGH.turns


@pytest.mark.parametrize(("effort", "expected"), [(THOROUGH, 3), (QUICK, 1)])
def test_slow_functions_are_called_a_few_times(calls, effort, expected):
    def training():
        pass

    assert gpu_timing.time_on_device([training], effort) == [Times(0.3, pytest.approx(0.45))]
    assert [way for _, way, _ in calls] == ["once"] * expected


def test_a_warm_function_is_not_called_before_it_is_timed(calls):
    made = []

    def training():
        made.append(1)

    gpu_timing.time_on_device([training], QUICK, is_warm=True)
    assert len(made) == 1


def test_a_layer_that_needs_too_much_memory_has_no_time():
    row = gpu.GpuRow(
        Size(12, 3, 9, 2, 2), "RNN", "fp32", "torch", 1e-7,
        {"cwrnn": Times(0.002, 0.002), "RNN": None}, {"cwrnn": Times(0.004, 0.005), "RNN": Times(0.008, 0.02)},
    )  # fmt: skip
    record = row.record()
    assert record["forward_rnn"] is record["forward_synchronised_rnn"] is None
    first, second = gpu.format_row(row, {"fp32": 1e12}).splitlines()
    assert first.split("|")[2].split() == first.split("|")[3].split() == ["memory"]
    assert second.split("|")[2].split() == ["2.00"]
    assert second.split("|")[3].split() == ["4.00"]


@pytest.mark.usefixtures("calls")
def test_a_function_without_memory_is_skipped():
    def needs_too_much():
        raise torch.OutOfMemoryError

    assert gpu_timing.time_on_device([lambda: None, needs_too_much]) == [Times(0.001, 0.0015), None]


def test_the_sizes_have_every_dtype_and_small_and_large_layers():
    assert {dtype for _, dtype in gpu.SIZES} == set(gpu.DTYPES)
    assert {size.units for size, _ in gpu.SIZES} >= {40, 64, 102, 128, 512, 4096}
    assert len(set(gpu.SIZES)) == len(gpu.SIZES)
