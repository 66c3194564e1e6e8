"""The sweep: its parts, its lines, its summary, and the file that grows while it runs. Nothing here is about speed."""

import json
import os
import re
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
import torch

from cwrnn import bench
from cwrnn.bench import command, gpu_command, gpu_timing, record_file, sweep, sweep_file, sweep_summary, timing
from cwrnn.bench.gpu import DTYPES, GpuRow
from cwrnn.bench.gpu_command import GpuOptions
from cwrnn.bench.gpu_timing import Times
from cwrnn.bench.layers import Size
from cwrnn.bench.ratios import compute_ratios
from cwrnn.bench.sweep import CASES, Case, Part

CPU = torch.device("cpu")
SMALL = Case(16, 40, 3, "fp32")


def make_row(modules=2, forward=(2.0, 2.0), training=(2.0, 2.0), note=None, dtype="fp32", layer="RNN"):
    """A row whose ratios are `forward` and `training`, back to back and synchronised; None for a pass without times."""

    def measure(ratios):
        if ratios is None:
            return {"cwrnn": None, layer: None}
        return {"cwrnn": Times(0.001, 0.002), layer: Times(0.001 * ratios[0], 0.002 * ratios[1])}

    size = Size(64, modules, 100, 16, 64)
    return GpuRow(size, layer, dtype, "cuda", 1e-4, measure(forward), measure(training), note)


@pytest.fixture
def clock(monkeypatch):
    """A clock by which every layer of torch takes twice as long as ours."""

    def measure(function, *arguments):
        function()
        cells = dict(zip(function.__code__.co_freevars, function.__closure__, strict=True))
        return 0.002 if isinstance(cells["layer"].cell_contents, torch.nn.RNNBase) else 0.001

    monkeypatch.setattr(gpu_timing, "_time_calls", measure)
    monkeypatch.setattr(gpu_timing, "_time_synchronised", measure)
    monkeypatch.setattr(gpu_timing, "_time_once", lambda function: Times(measure(function), 0.02))
    return measure


def make_options(tmp_path, part=None, seconds=1e9):
    part = part or Part(1, 1)
    return GpuOptions("RNN", "auto", CPU, CASES, part, seconds, False, tmp_path / "new" / "sweep.json")


def list_lines(cases):
    return [(size, case.dtype) for case in cases for size in case.list_sizes()]


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 8, 288])
def test_every_line_is_in_exactly_one_part(parts):
    lines = [line for first in range(1, parts + 1) for line in list_lines(Part(first, parts).select(CASES))]
    assert len(lines) == len(set(lines)) == 8 * 4 * 4 * 3 * 3
    assert set(lines) == set(list_lines(CASES))


def test_the_lines_cover_the_range():
    sizes, dtypes = zip(*list_lines(CASES), strict=True)
    assert {size.units for size in sizes} == {32, 64, 128, 256, 512, 1024, 2048, 4096}
    assert {size.modules for size in sizes} == {1, 2, 4, 8}
    assert {size.batch for size in sizes} == {1, 16, 64, 256}
    assert {size.steps for size in sizes} == {100, 1024, 8192}
    assert set(dtypes) == {"bf16", "fp16", "fp32"}


@pytest.mark.parametrize("parts", [2, 3, 4, 8])
def test_every_part_has_all_kinds_of_sizes(parts):
    for first in range(1, parts + 1):
        cases = Part(first, parts).select(CASES)
        for name, values in (("units", sweep.UNITS), ("steps", sweep.STEPS)):
            counts = [sum(getattr(case, name) == value for case in cases) for value in values]
            assert max(counts) - min(counts) <= 1, (name, counts)
        assert {case.batch for case in cases} == set(sweep.BATCHES)
        assert {case.dtype for case in cases} == set(DTYPES)


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_the_first_cases_of_a_part_have_all_kinds_of_sizes(parts):
    cases = Part(1, parts).select(CASES)[:24]
    assert {case.steps for case in cases} == set(sweep.STEPS)
    assert {case.batch for case in cases} == set(sweep.BATCHES)
    assert len({case.units for case in cases}) >= 6


def test_the_order_is_the_same_in_every_process():
    code = "from cwrnn.bench.sweep import CASES; print(CASES[:3])"
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout.strip() == str(CASES[:3])


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("layer", ["RNN", "LSTM", "GRU"])
def test_the_lines_of_a_case_are_checked_and_timed_beside_one_layer_of_torch(layer, monkeypatch):
    checked = []
    check, check_end = sweep.check, sweep.check_end
    monkeypatch.setattr(sweep, "check", lambda rnn, x: checked.append(x.shape[0]) or check(rnn, x))
    monkeypatch.setattr(sweep, "check_end", lambda rnn, x, steps: checked.append(steps) or check_end(rnn, x, steps))
    rows = sweep.measure_case(SMALL, layer, "torch", CPU)
    # eight modules have a period of 128, so all forty steps are compared at once
    assert checked == [33, 33] * 3 + [40]
    assert [row.size for row in rows] == [Size(16, modules, 40, 3, 64) for modules in (1, 2, 4, 8)]
    for row in rows:
        assert row.note is None
        assert 0 < row.error < 1e-4
        record = row.record()
        assert record["backend"] == "torch"
        for name in ("forward", "forward_synchronised", "training", "training_synchronised"):
            assert (record[name], record[f"{name}_{layer.lower()}"]) == (0.001, 0.002)
        line = sweep.format_line(row)
        assert line.split("|")[1].split() == ["1.000", "1.000", "2.00", "2.00"]
        assert [m.start() for m in re.finditer(r"\|", line)] == [
            m.start() for m in re.finditer(r"\|", sweep.HEAD.splitlines()[1])
        ]


@pytest.mark.usefixtures("clock")
def test_rivals_are_checked_and_timed_beside_the_backend_that_runs(monkeypatch):
    """The CPU has no rivals among the backends of the GPU: the reference stands in for one."""
    monkeypatch.setattr(sweep, "RIVALS", ("cudnn", "torch", "reference"))
    wrong = []
    check_finite = sweep.check_finite
    monkeypatch.setattr(
        sweep, "check_finite", lambda layer, *others: wrong.append(layer) or check_finite(layer, *others)
    )
    rows = sweep.measure_case(Case(8, 20, 2, "fp32"), "RNN", "torch", CPU, rivals=True)
    assert [row.backend for row in rows] == ["torch"] * 4
    assert len(wrong) == 1 + 2 * 4
    for row in rows:
        record = row.record()
        assert record["forward_reference"] == record["training_synchronised_reference"] == 0.001
        assert "forward_cudnn" not in record
        assert "forward_torch" not in record
    wrong_layers = []

    def refuse_reference(rnn, x):
        if rnn.backend == "reference":
            wrong_layers.append(rnn)
            raise AssertionError("it is wrong")
        return 0.0

    monkeypatch.setattr(sweep, "check", refuse_reference)
    for row in sweep.measure_case(Case(8, 20, 2, "fp32"), "RNN", "torch", CPU, rivals=True):
        assert row.note == "reference: AssertionError: it is wrong"
        assert row.record()["forward_reference"] is None
    assert len(wrong_layers) == 4
    assert "forward_reference" not in sweep.measure_case(Case(8, 20, 2, "fp32"), "RNN", "torch", CPU)[0].record()


def test_the_summary_lists_lines_that_a_rival_runs_in_less_time():
    rows = [make_row(modules).record() for modules in (1, 2, 4)]
    for row, forward, training in zip(rows, (0.0009, 0.00097, 0.0005), (0.0008, 0.0011, None), strict=True):
        row |= {"forward_cudnn": forward, "training_cudnn": training}
    lines = sweep_summary.format_summary(rows, 0).splitlines()
    start = lines.index("lines that another backend would run in less time: 2, worst first")
    assert lines[start + 1 : start + 4] == [
        "   0.500  RNN    64 units, 4 modules,  100 steps, batch  16, fp32  cudnn in place of cuda, forward",
        "   0.800  RNN    64 units, 1 modules,  100 steps, batch  16, fp32  cudnn in place of cuda, forward+backward",
        "",
    ]
    assert "another backend" not in sweep_summary.format_summary([make_row().record()], 0)


def test_every_network_is_called_once_before_the_sweep(monkeypatch):
    called, layer = [], sweep.OUR_LAYERS["RNN"]

    class Noted(layer):
        def forward(self, input):
            called.append((tuple(input.shape), self.schedule.modules))
            output, h_n = super().forward(input)
            output.register_hook(lambda gradient: called.append("backward"))
            if self.schedule.modules == 4:
                raise RuntimeError("the sweep will note it")
            return output, h_n

    monkeypatch.setitem(sweep.OUR_LAYERS, "RNN", Noted)
    texts = list(sweep.prepare([SMALL, SMALL._replace(steps=9)], "RNN", "torch", CPU, lambda: True))
    assert texts == [f"compiling: {number} of 4" for number in (1, 2, 3, 4)]
    assert len(list(sweep.prepare(CASES[:9], "RNN", "torch", CPU, lambda: False))) == 1
    called = called[:7]
    assert called.count("backward") == 3
    assert sorted(call for call in called if call != "backward") == [((3, 3, 64), modules) for modules in (1, 2, 4, 8)]


@pytest.mark.usefixtures("clock")
def test_close_lines_are_timed_again(monkeypatch):
    efforts = []
    timed = sweep.time_on_device

    def count(functions, effort, **options):
        efforts.append((len(functions), effort))
        return timed(functions, effort, **options)

    monkeypatch.setattr(sweep, "time_on_device", count)
    sweep.measure_case(SMALL, "RNN", "torch", CPU)
    assert efforts == [(5, gpu_timing.QUICK)] * 2
    efforts.clear()
    monkeypatch.setattr(sweep, "CLOSE", (1.5, 2.5))
    rows = sweep.measure_case(SMALL, "RNN", "torch", CPU)
    assert efforts == [(5, gpu_timing.QUICK)] * 2 + [(5, gpu_timing.THOROUGH)] * 2
    assert all(row.forward["cwrnn"] == Times(0.001, 0.001) for row in rows)


@pytest.mark.usefixtures("clock")
def test_a_wrong_layer_is_noted_and_the_others_are_timed(monkeypatch):
    check = sweep.check

    def refuse_two_modules(rnn, x):
        if rnn.schedule.modules == 2:
            raise AssertionError("backend 'auto' does not equal the specification\nand more")
        return check(rnn, x)

    monkeypatch.setattr(sweep, "check", refuse_two_modules)
    rows = sweep.measure_case(SMALL, "GRU", "torch", CPU)
    notes = [row.note for row in rows]
    assert notes == [None, "cwrnn: AssertionError: backend 'auto' does not equal the specification", None, None]
    assert rows[1].forward["cwrnn"] is None
    assert rows[2].forward["cwrnn"] is not None
    assert sweep.format_line(rows[1]).endswith(notes[1])


@pytest.mark.usefixtures("clock")
def test_a_layer_of_torch_without_memory_for_gradients_is_timed_forward(monkeypatch):
    def need_too_much(layer, x, gradient):
        if isinstance(layer, torch.nn.RNNBase):
            raise torch.OutOfMemoryError

    monkeypatch.setattr(sweep, "check_finite", need_too_much)
    monkeypatch.setattr(torch.nn.RNN, "zero_grad", lambda layer: need_too_much(layer, None, None))
    for row in sweep.measure_case(SMALL, "RNN", "torch", CPU):
        assert row.note == "RNN: memory"
        assert row.forward["RNN"] is not None
        assert row.training["RNN"] is None
        assert row.training["cwrnn"] is not None


def test_a_case_without_memory_for_its_input_is_noted(monkeypatch):
    def need_too_much(*arguments):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(sweep, "_measure_case", need_too_much)
    rows = sweep.measure_case(SMALL, "RNN", "auto", CPU)
    assert [row.note for row in rows] == ["memory"] * 4
    assert sweep.format_line(rows[0]).endswith("memory")
    summary = sweep_summary.format_summary([row.record() for row in rows], 0)
    assert summary.startswith(
        "4 lines: 0 timed, 4 that need more memory than there is (cwrnn does in 0), 0 with an error"
    )


def test_a_broken_device_ends_the_sweep(monkeypatch):
    monkeypatch.setattr(sweep, "measure_case", lambda *arguments: [make_row()])
    monkeypatch.setattr(sweep, "_is_usable", lambda device: False)
    assert len(list(sweep.measure_sweep(CASES, "RNN", "auto", CPU, lambda: True))) == 1


def test_the_record_and_the_summary_of_a_part(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sweep, "measure_case", lambda case, *arguments: [
        make_row(modules)._replace(size=size, dtype=case.dtype) for modules, size in enumerate(case.list_sizes(), 1)
    ])  # fmt: skip
    record = gpu_command.measure_on_gpu(["sweep"], make_options(tmp_path, Part(2, 96)), {"device": "a GPU"})
    assert json.loads((tmp_path / "new" / "sweep.json").read_text()) == record
    assert record["environment"] == {"device": "a GPU", "backend": "auto", "rivals": False}
    assert record["sweep_part"] == {"part": "2/96", "lines": 12, "left_out": 0}
    assert len(record["sweep"]) == 12
    captured = capsys.readouterr()
    assert "12 lines: 12 timed" in captured.out
    assert "lines below 1.0: 0" in captured.out
    assert captured.err == ""


def test_the_sweep_stops_after_its_seconds(tmp_path, monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(gpu_command.time, "monotonic", lambda: now[0])

    def take_a_minute(case, *arguments):
        now[0] += 60
        return [make_row()._replace(size=size, dtype=case.dtype) for size in case.list_sizes()]

    monkeypatch.setattr(sweep, "measure_case", take_a_minute)
    record = gpu_command.measure_on_gpu(["sweep"], make_options(tmp_path, Part(1, 8), seconds=150), {})
    # the third case begins after 120 seconds
    assert record["sweep_part"] == {"part": "1/8", "lines": 144, "left_out": 132}
    assert "144 lines: 12 timed" in (out := capsys.readouterr().out)
    assert "132 left out" in out


def test_the_file_grows_and_stays_when_the_process_is_interrupted(tmp_path, monkeypatch):
    monkeypatch.setattr(record_file, "INTERVAL", 0)
    options = make_options(tmp_path)
    sizes = []

    def measure(case, *arguments):
        sizes.append(len(json.loads(options.json.read_text())["sweep"]) if sizes else 0)
        if len(sizes) == 4:
            raise KeyboardInterrupt
        return [make_row()._replace(size=case.list_sizes()[0], dtype=case.dtype)]

    monkeypatch.setattr(sweep, "measure_case", measure)
    with pytest.raises(KeyboardInterrupt):
        gpu_command.measure_on_gpu(["sweep"], options, {})
    assert sizes == [0, 1, 2, 3]
    record = json.loads(options.json.read_text())
    assert len(record["sweep"]) == 3
    assert record["sweep_part"]["left_out"] == 1152 - 3


def test_the_file_is_written_every_few_seconds(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(record_file.time, "monotonic", lambda: now[0])
    record = {"sweep": []}
    path = tmp_path / "record.json"
    file = record_file.RecordFile(path, record)
    record["sweep"].append(1)
    file.write_if_due()
    assert json.loads(path.read_text()) == {"sweep": []}
    now[0] = record_file.INTERVAL
    file.write_if_due()
    assert json.loads(path.read_text()) == {"sweep": [1]}


def test_a_file_that_cannot_be_written_is_an_error_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "measure_case", lambda *arguments: pytest.fail("measured"))
    (tmp_path / "new" / "sweep.json").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        gpu_command.measure_on_gpu(["sweep"], make_options(tmp_path), {})


def test_progress_is_shown_on_a_terminal_only(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(gpu_command.time, "monotonic", lambda: now[0])
    progress = gpu_command._Progress(100, 1e9)
    progress.show(4)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(timing.sys.stderr, "isatty", lambda: True, raising=False)
    now[0] = 2.0
    progress.show(4)
    assert "line 5 of 100, about 48 s remain" in capsys.readouterr().err


def test_the_summary_lists_slow_lines_worst_first():
    rows = [
        make_row(1, forward=(0.9, 1.5)),
        make_row(2),
        make_row(4, forward=(1.2, 1.1), training=(0.95, 0.5)),
        make_row(8, forward=(3.0, 3.0), training=None, note="cwrnn: memory; RNN: memory"),
        make_row(8, forward=None, training=None, note="cwrnn: RuntimeError: broken", dtype="bf16"),
    ]
    lines = sweep_summary.format_summary([row.record() for row in rows], left_out=7).splitlines()
    assert lines[0] == (
        "12 lines: 3 timed, 1 that need more memory than there is (cwrnn does in 1), 1 with an error, 7 left out"
    )
    assert [line.split() for line in lines[2:5]] == [
        ["lowest", "ratio", "back", "to", "back", "synchronised"],
        ["forward", "0.900", "1.100"],
        ["forward+backward", "0.950", "0.500"],
    ]
    assert lines[6] == "lines with an error: 1"
    assert lines[7].endswith("bf16  cwrnn: RuntimeError: broken")
    assert lines[8] == "lines below 1.0: 2, worst first"
    assert [line.split()[0] for line in lines[9:]] == ["0.500", "0.900"]
    assert "4 modules" in lines[9]
    assert lines[9].endswith("forward+backward, synchronised; 2 of 4 below")


def test_the_help_shows_how_to_run_a_share(capsys):
    with pytest.raises(SystemExit) as caught:
        bench.main(["--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert "sweep --part 1/8 --seconds 300 --json out/part1.json" in out
    assert "sweep --layer GRU" in out
    assert "sweep --layer GRU --again out/gru.json --below 1.0 --json out/again.json" in out
    for option in ("--part K/M", "--steps STEPS,...", "--seconds S", "--again FILE", "--below RATIO", "--resume"):
        assert option in out


def record_row(*arguments, size=(64, 2, 100, 16, 64), **options):
    """A row as plain data, of any size."""
    return make_row(*arguments, **options)._replace(size=Size(*size)).record()


@pytest.mark.parametrize(("below", "modules"), [(0.5, ()), (1.0, (1, 4)), (1.01, (1, 2, 4)), (5.0, (1, 2, 4, 8))])
def test_slow_lines_are_selected_by_their_lowest_ratio(below, modules):
    rows = [
        make_row(8).record(),
        make_row(4, training=(3.0, 0.75)).record(),
        make_row(2, forward=(1.0, 3.0)).record(),
        make_row(1, forward=(0.5, 3.0), training=None, note="cwrnn: memory").record(),
    ]
    cases = sweep.select_slow(rows, "RNN", below)
    assert cases == ([Case(64, 100, 16, "fp32", modules)] if modules else [])


def test_slow_lines_are_those_of_one_layer_with_the_inputs_of_the_sweep():
    rows = [make_row(forward=(0.5, 0.5), layer=layer).record() for layer in ("RNN", "LSTM", "GRU")]
    rows.append(record_row(forward=(0.5, 0.5), layer="GRU", size=(64, 8, 100, 16, 13)))
    assert sweep.select_slow(rows, "GRU", 1.0) == [Case(64, 100, 16, "fp32", (2,))]


def test_lines_without_ratios_or_with_an_error_count_as_slow():
    failed = make_row(1, note="memory")._replace(forward={}, training={}).record()
    rows = [
        failed,
        make_row(2, forward=None, training=None, note="RNN: RuntimeError: broken").record(),
        make_row(3, note="cudnn: AssertionError: wrong").record(),
        make_row(4, training=None, note="RNN: memory").record(),
        make_row(8).record(),
    ]
    assert sweep.select_slow(rows, "RNN", 1.0) == [Case(64, 100, 16, "fp32", (1, 2, 3))]


def test_slow_lines_of_all_sizes_form_cases_in_an_order_of_their_own():
    sizes = [(40, 6, 320, 3, 64), (40, 2, 320, 3, 64), (64, 1, 512, 5, 64), (64, 1, 512, 6, 64), (33, 3, 1, 1, 64)]
    rows = [record_row(forward=(0.5, 0.5), size=size, dtype=dtype) for size in sizes for dtype in ("bf16", "fp16")]
    cases = sweep.select_slow(rows, "RNN", 1.0)
    assert set(cases) == {
        Case(units, steps, batch, dtype, modules)
        for units, steps, batch, modules in (
            (40, 320, 3, (2, 6)),
            (64, 512, 5, (1,)),
            (64, 512, 6, (1,)),
            (33, 1, 1, (3,)),
        )
        for dtype in ("bf16", "fp16")
    }
    assert [(case.units, case.steps) for case in cases] == sorted((case.units, case.steps) for case in cases)
    assert sweep.select_slow(rows[::-1], "RNN", 1.0) == cases
    assert len(list_lines(cases)) == len(rows)


def test_parts_of_slow_lines_have_all_batches():
    """The rows of the file alternate between two batches, and so would every second of them."""
    sizes = [(units, 1, 100, batch, 64) for units in range(32, 52) for batch in (1, 256)]
    cases = sweep.select_slow([record_row(forward=(0.5, 0.5), size=size) for size in sizes], "RNN", 1.0)
    parts = [Part(first, 2).select(cases) for first in (1, 2)]
    assert sorted(parts[0] + parts[1]) == sorted(cases)
    for part in parts:
        assert len(part) == 20
        assert {case.batch for case in part} == {1, 256}


@pytest.mark.usefixtures("clock")
def test_the_lines_of_a_selected_case_share_the_layer_of_torch(monkeypatch):
    counts = []
    timed = sweep.time_on_device
    monkeypatch.setattr(
        sweep,
        "time_on_device",
        lambda functions, *arguments, **options: (
            counts.append(len(functions)) or timed(functions, *arguments, **options)
        ),
    )
    rows = sweep.measure_case(SMALL._replace(modules=(3, 8)), "GRU", "torch", CPU)
    assert counts == [3, 3]
    assert [row.size for row in rows] == [Size(16, modules, 40, 3, 64) for modules in (3, 8)]
    assert all(row.note is None for row in rows)


def test_programs_are_compiled_for_selected_lines_only(monkeypatch):
    called = []
    monkeypatch.setattr(sweep, "_run_once", lambda size, dtype, *arguments: called.append((size.modules, dtype)))
    cases = [SMALL._replace(modules=(2, 8)), SMALL._replace(steps=9, modules=(8,)), SMALL._replace(dtype="bf16")]
    texts = list(sweep.prepare(cases, "RNN", "torch", CPU, lambda: True))
    assert texts[-1] == "compiling: 6 of 6"
    assert sorted(called) == [(1, "bf16"), (2, "bf16"), (2, "fp32"), (4, "bf16"), (8, "bf16"), (8, "fp32")]


def run_again(path, *options):
    """Runs the sweep of GRU with the lines of a file."""
    return bench.main(["--device", "cuda", "sweep", "--layer", "GRU", "--again", str(path), *options])


def write_sweep(path, rows):
    path.write_text(json.dumps({"environment": {}, "sweep": rows}))
    return path


@pytest.fixture
def emulated_gpu(monkeypatch):
    """A command line that takes the CPU for a GPU, and a list of the cases and rivals that it would time."""
    measured = []
    empty, select_backend = torch.empty, command.select_backend

    def measure(case, layer, backend, device, rivals):
        measured.append((case, rivals))
        return [make_row(layer=layer)._replace(size=size, dtype=case.dtype) for size in case.list_sizes()]

    monkeypatch.setattr(torch, "empty", lambda *sizes, device=None, **options: empty(*sizes, **options))
    monkeypatch.setattr(command, "select_backend", lambda name, device, dtype: select_backend(name, CPU, dtype))
    monkeypatch.setattr(command, "describe_machine", lambda device: timing.describe_machine(CPU))
    monkeypatch.setattr(command, "measure_on_gpu", lambda chosen, options, environment: (
        gpu_command.measure_on_gpu(chosen, options._replace(device=CPU), environment)
    ))  # fmt: skip
    monkeypatch.setattr(sweep, "measure_case", measure)
    return measured


SLOW = [
    record_row(forward=(ratio, 2.0), size=(64, modules, 512, batch, 64), layer="GRU")
    for batch in (1, 2, 3)
    for modules, ratio in ((1, 0.9), (2, 1.1), (4, 0.8), (8, 3.0))
]
"""Three cases, each with two lines below 1.0 and one between 1.0 and 1.5."""


@pytest.mark.parametrize(("options", "modules", "cases"), [
    ((), (1, 4), 3),
    (("--below", "1.5"), (1, 2, 4), 3),
    (("--part", "1/2"), (1, 4), 2),
    (("--part", "2/2", "--rivals", "--seconds", "1e9"), (1, 4), 1),
])  # fmt: skip
def test_the_record_and_the_summary_count_selected_lines(options, modules, cases, tmp_path, capsys, emulated_gpu):
    path, out = write_sweep(tmp_path / "before.json", SLOW), tmp_path / "again.json"
    assert run_again(path, *options, "--json", str(out)) == 0
    assert len(emulated_gpu) == cases
    assert {(case.modules, rivals) for case, rivals in emulated_gpu} == {(modules, "--rivals" in options)}
    record, lines = json.loads(out.read_text()), cases * len(modules)
    part = options[1] if "--part" in options else "1/1"
    assert record["sweep_part"] == {"part": part, "lines": lines, "left_out": 0}
    assert {(row["n"], row["T"], row["layer"]) for row in record["sweep"]} == {(64, 512, "GRU")}
    assert len(record["sweep"]) == lines
    assert f"{lines} lines: {lines} timed, 0 that need" in capsys.readouterr().out
    # what a sweep wrote can be read again
    assert sweep_file.read_rows([out]) == record["sweep"]


def test_selected_lines_that_are_not_started_are_counted(tmp_path, monkeypatch, emulated_gpu):
    now = [0.0]
    monkeypatch.setattr(gpu_command.time, "monotonic", lambda: now[0])
    measure = sweep.measure_case

    def take_a_minute(*arguments):
        now[0] += 60
        return measure(*arguments)

    monkeypatch.setattr(sweep, "measure_case", take_a_minute)
    path, out = write_sweep(tmp_path / "before.json", SLOW), tmp_path / "again.json"
    assert run_again(path, "--seconds", "50", "--json", str(out)) == 0
    assert len(emulated_gpu) == 1
    assert json.loads(out.read_text())["sweep_part"] == {"part": "1/1", "lines": 6, "left_out": 4}


@pytest.mark.parametrize("layer", ["RNN", "LSTM", "GRU"])
def test_the_committed_file_has_lines_to_time_again(layer):
    rows = sweep_file.read_rows([Path(__file__).parents[2] / "benchmarks/gpu_backends.json"])
    slow = [row for row in rows if row["layer"] == layer and min(compute_ratios(row).values()) < 1]
    assert slow
    lines = list_lines(sweep.select_slow(rows, layer, 1.0))
    assert set(lines) == {
        (Size(*(row[key] for key in ("n", "modules", "T", "B", "inputs"))), row["dtype"]) for row in slow
    }


def test_a_terminal_obeys_no_text_of_a_file(tmp_path):
    row = SLOW[0] | {"backend": "cu\x1b[31mda", "note": "cwrnn: \x07"}
    (found,) = sweep_file.read_rows([write_sweep(tmp_path / "before.json", [row])])
    assert (found["backend"], found["note"]) == (r"cu\x1b[31mda", r"cwrnn: \x07")


WRONG_ROWS = [
    ("a row", "row 2 of the sweep is not an object"),
    *(
        ({key: value for key, value in SLOW[0].items() if key != field}, f"row 2 of the sweep has no {field}")
        for field in ("layer", "dtype", "n", "modules", "T", "B", "inputs", "backend", "note")
    ),
    *(
        (SLOW[0] | {field: value}, f"has {value!r} as {field}, which must be a whole number above 0")
        for field in ("n", "modules", "T", "B", "inputs")
        for value in (0, -1, 1.5, True, "64", None, [64])
    ),
    *(
        (SLOW[0] | {field: value}, f"has {value!r} as {field}, which must be a number above 0 or null")
        for field in ("forward", "training_synchronised_gru", "training_cudnn")
        for value in (0, -0.5, True, "fast", [1.0])
    ),
    (SLOW[0] | {"dtype": "fp64"}, "has 'fp64' as dtype, which must be one of bf16, fp16, fp32"),
    (SLOW[0] | {"dtype": ["bf16"]}, "has ['bf16'] as dtype"),
    (SLOW[0] | {"layer": "\x1b[31m" + "x" * 99}, "has '\\x1b[31mxxx"),
    (SLOW[0] | {"backend": None}, "has None as backend, which must be a text"),
    (SLOW[0] | {"note": 1}, "has 1 as note, which must be a text or null"),
    (SLOW[0] | {"n": 4, "modules": 8}, "has 8 modules, but 4 units"),
]


@pytest.mark.parametrize(("row", "message"), WRONG_ROWS)
def test_a_file_with_a_wrong_row_is_refused(row, message, tmp_path):
    path = write_sweep(tmp_path / "before.json", [SLOW[0], row])
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        sweep_file.read_rows([path])
    assert str(caught.value).startswith(f"{path}: row 2 of the sweep ")
    assert len(str(caught.value)) < len(str(path)) + 200
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(("content", "options", "message"), [
    (None, (), "{path}: No such file or directory"),
    ("{", (), "{path} cannot be read as JSON: Expecting"),
    ("\xff", (), "{path} cannot be read as JSON: 'utf-8' codec"),
    ('{"sweep": [NaN]}', (), "{path} cannot be read as JSON: NaN is not a finite number"),
    (" " * 2**24 + "{}", (), "{path}: it has 16777218 bytes, but may have 16777216 at most"),
    ("[]", (), "{path} has no rows of a sweep"),
    ('{"gpu": []}', (), "{path} has no rows of a sweep"),
    ('{"sweep": {}}', (), "{path} has no rows of a sweep"),
    ('{"sweep": []}', (), "no line of {path} with 64 inputs is below 1.0 for GRU"),
    (SLOW, ("--below", "0.5"), "no line of {path} with 64 inputs is below 0.5 for GRU"),
    (SLOW, ("--layer", "LSTM"), "no line of {path} with 64 inputs is below 1.0 for LSTM"),
])  # fmt: skip
def test_a_file_without_lines_to_time_is_refused_at_once(content, options, message, tmp_path, capsys):
    """No GPU is needed to see it."""
    path = tmp_path / "before.json"
    if isinstance(content, list):
        write_sweep(path, content)
    elif content is not None:
        path.write_text(content, encoding="latin-1")
    with pytest.raises(SystemExit) as caught:
        run_again(path, *options, "--json", str(tmp_path / "again.json"))
    assert caught.value.code == 2
    assert f"error: --again: {message.format(path=path)}" in capsys.readouterr().err
    assert not (tmp_path / "again.json").exists()


@pytest.mark.parametrize(("options", "message"), [
    (("--part", "4/4"), "--part: 3 cases are selected, so K must be at most 3, got 4/4"),
    (("--steps", "100,8192"), "--steps: no line that --again selects has 100 or 8192 steps"),
])  # fmt: skip
def test_options_that_select_no_line_are_refused_at_once(options, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        run_again(write_sweep(tmp_path / "before.json", SLOW), *options)
    assert caught.value.code == 2
    assert f"error: {message}" in capsys.readouterr().err


def run_sweep(path, *options, layer="GRU"):
    """Runs the sweep of a layer with 1024 steps into a file."""
    return bench.main(["--device", "cuda", "sweep", "--layer", layer, "--steps", "1024", "--json", str(path), *options])


def test_lines_of_some_steps_are_timed(tmp_path, emulated_gpu):
    assert run_sweep(tmp_path / "new.json", "--part", "1/4") == 0
    assert len(emulated_gpu) == 8 * 4 * 3 / 4
    assert {case.steps for case, _ in emulated_gpu} == {1024}


def test_a_sweep_that_was_stopped_is_resumed(tmp_path, monkeypatch, emulated_gpu, capsys):
    now, measure, path = [0.0], sweep.measure_case, tmp_path / "grown.json"
    monkeypatch.setattr(gpu_command.time, "monotonic", lambda: now[0])

    def take_a_minute(*arguments):
        now[0] += 60
        return measure(*arguments)

    monkeypatch.setattr(sweep, "measure_case", take_a_minute)
    for left in (14, 4, 0):
        assert run_sweep(path, "--part", "1/4", "--seconds", "600", "--resume") == 0
        record = json.loads(path.read_text())
        assert record["sweep_part"]["left_out"] == 4 * left
        assert len(record["sweep"]) == 4 * (24 - left)
        printed = capsys.readouterr().out
        assert f"96 lines: {4 * (24 - left)} timed, 0 that need" in printed
        assert f"{4 * left} left out" in printed
    assert len({case for case, _ in emulated_gpu}) == len(emulated_gpu) == 24
    # nothing is left
    assert run_sweep(path, "--part", "1/4", "--resume") == 0
    assert len(emulated_gpu) == 24
    assert json.loads(path.read_text())["sweep"] == record["sweep"]


def test_all_else_in_the_file_stays(tmp_path, emulated_gpu, capsys):
    """Lines of another layer, and what the regime `gpu` measured."""
    path = tmp_path / "both.json"
    assert run_sweep(path, "--part", "1/96", layer="LSTM") == 0
    record = json.loads(path.read_text())
    record |= {"gpu": [{"n": 1024}], "environment": record["environment"] | {"peaks": {"bf16": 3.0}}}
    path.write_text(json.dumps(record))
    capsys.readouterr()
    assert run_sweep(path, "--part", "1/96", "--resume") == 0
    printed = capsys.readouterr().out
    assert f"4 lines of {path} are kept, 4 are left" in printed
    assert "4 lines: 4 timed" in printed
    both = json.loads(path.read_text())
    assert both["sweep"][:4] == record["sweep"]
    assert [row["layer"] for row in both["sweep"][4:]] == ["GRU"] * 4
    assert (both["gpu"], both["environment"]["peaks"]) == ([{"n": 1024}], {"bf16": 3.0})
    assert both["sweep_part"] == {"part": "1/96", "lines": 4, "left_out": 0}


@pytest.mark.parametrize("first", [(), ("--resume",)], ids=["new", "resumed"])
def test_a_sweep_that_is_killed_before_its_first_line_loses_none(first, tmp_path, monkeypatch, emulated_gpu):
    path, kept = tmp_path / "killed.json", 0
    if first:
        assert run_sweep(path, "--part", "1/96", layer="LSTM") == 0
        kept = 4
    measure = sweep.measure_sweep

    def copy_file(*arguments):
        # a process that is killed here leaves this file
        copies.append(path.read_text())
        return measure(*arguments)

    copies = []
    monkeypatch.setattr(sweep, "measure_sweep", copy_file)
    assert run_sweep(path, "--part", "1/96", *first) == 0
    path.write_text(copies[0])
    assert len(json.loads(copies[0])["sweep"]) == kept
    assert run_sweep(path, "--part", "1/96", "--resume") == 0
    assert len(json.loads(path.read_text())["sweep"]) == kept + 4


def fail(monkeypatch, numbers, note="cwrnn: RuntimeError: an illegal access"):
    """Lets the lines with these numbers, counted over all cases, have a note."""
    measure, counted = sweep.measure_case, count()

    def measure_case(*arguments):
        return [row._replace(note=note if next(counted) in numbers else None) for row in measure(*arguments)]

    monkeypatch.setattr(sweep, "measure_case", measure_case)


def read_notes(path):
    return [row["note"] is not None for row in json.loads(path.read_text())["sweep"]]


def test_lines_with_an_error_are_timed_again(tmp_path, monkeypatch, emulated_gpu):
    path = tmp_path / "failed.json"
    with monkeypatch.context() as patch:
        fail(patch, [1])
        assert run_sweep(path, "--part", "1/96") == 0
    assert read_notes(path) == [False, True, False, False]
    with monkeypatch.context() as patch:
        fail(patch, [0], "GRU: memory")
        assert run_sweep(path, "--part", "1/96", "--resume") == 0
    (first, _), (again, _) = emulated_gpu
    assert (first.modules, again) == ((1, 2, 4, 8), first._replace(modules=(2,)))
    # lack of memory is no error
    assert run_sweep(path, "--part", "1/96", "--resume") == 0
    assert len(emulated_gpu) == 2
    assert read_notes(path) == [False, True, False, False]


@pytest.mark.parametrize("options", [
    ["--layer", "LSTM"], ["--steps", "100"], ["--part", "2/96"], ["--seconds", "1e-9"],
], ids=" ".join)  # fmt: skip
def test_a_line_with_an_error_stays_until_it_is_timed_again(options, tmp_path, monkeypatch, emulated_gpu):
    path = tmp_path / "failed.json"
    with monkeypatch.context() as patch:
        fail(patch, [2])
        assert run_sweep(path, "--part", "1/96") == 0
    assert run_sweep(path, "--part", "1/96", "--resume", *options) == 0
    assert read_notes(path)[:4] == [False, False, True, False]


def test_a_line_that_ends_the_sweep_is_timed_again_last(tmp_path, monkeypatch, emulated_gpu):
    """An illegal access of one program makes the device useless for the process."""
    path = tmp_path / "broken.json"
    with monkeypatch.context() as patch:
        fail(patch, range(8, 12))
        patch.setattr(sweep, "_is_usable", lambda device: len(emulated_gpu) < 3)
        assert run_sweep(path, "--part", "1/12") == 0
    assert read_notes(path) == [False] * 8 + [True] * 4
    assert run_sweep(path, "--part", "1/12", "--resume") == 0
    cases = [case for case, _ in emulated_gpu]
    assert len(cases) == 9
    assert cases[-1] == cases[2]
    assert not any(read_notes(path))
    assert len(read_notes(path)) == 32


def test_a_line_that_a_file_has_twice_is_kept_once(tmp_path, emulated_gpu):
    path = tmp_path / "twice.json"
    assert run_sweep(path, "--part", "1/96") == 0
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"sweep": record["sweep"] * 2}))
    assert run_sweep(path, "--part", "1/96", "--resume") == 0
    assert json.loads(path.read_text())["sweep"] == record["sweep"]


def test_lines_that_were_slow_are_resumed_too(tmp_path, emulated_gpu):
    before, path = write_sweep(tmp_path / "before.json", SLOW), tmp_path / "again.json"
    assert run_again(before, "--part", "1/2", "--json", str(path)) == 0
    assert run_again(before, "--resume", "--json", str(path)) == 0
    assert len({case for case, _ in emulated_gpu}) == len(emulated_gpu) == 3


def test_lines_that_are_missing_in_a_case_are_timed():
    rows = [record_row(size=(64, modules, 100, 16, 64), layer="GRU") for modules in (1, 4)]
    cases = [Case(64, 100, 16, "fp32"), Case(64, 100, 16, "bf16")]
    assert sweep.leave_out(cases, rows, "GRU") == [Case(64, 100, 16, "fp32", (2, 8)), cases[1]]
    assert sweep.leave_out(cases, rows, "RNN") == cases


@pytest.mark.parametrize("field", ["device", "torch", "CUDA", "cuDNN", "cwrnn", "backend", "rivals"])
def test_a_sweep_of_another_environment_is_not_resumed(field, tmp_path, capsys, emulated_gpu):
    path = tmp_path / "theirs.json"
    assert run_sweep(path, "--part", "1/96") == 0
    record = json.loads(path.read_text())
    record["environment"][field] = "toast"
    path.write_text(json.dumps(record))
    check_refusal(path, f"{path} was measured with 'toast' as {field}, and this sweep has ", capsys)


@pytest.mark.parametrize(("content", "message"), [
    ("[]", "{path} has no rows of a sweep"),
    ('{"environment": {}}', "{path} has no rows of a sweep"),
    ('{"sweep": [1], "environment": {}}', "{path}: row 1 of the sweep is not an object"),
    ('{"sweep": []}', "{path} does not say where it was measured"),
    ('{"sweep": [], "environment": []}', "{path} does not say where it was measured"),
])  # fmt: skip
def test_a_file_of_anything_else_is_not_resumed(content, message, tmp_path, capsys, emulated_gpu):
    path = tmp_path / "theirs.json"
    path.write_text(content)
    check_refusal(path, message.format(path=path), capsys)


def test_a_folder_is_not_resumed(tmp_path, capsys, emulated_gpu):
    with pytest.raises(SystemExit):
        run_sweep(tmp_path, "--resume")
    assert f"error: --resume: {tmp_path}: Is a directory" in capsys.readouterr().err


def check_refusal(path, message, capsys):
    """The sweep of a file is not resumed, and the file stays as it is."""
    content = path.read_text()
    with pytest.raises(SystemExit) as caught:
        run_sweep(path, "--resume")
    assert caught.value.code == 2
    assert f"error: --resume: {message}" in capsys.readouterr().err
    assert path.read_text() == content


def test_the_benchmark_runs_from_source_without_the_packages_of_commands():
    source = Path(sweep.__file__).parents[2]
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['typer', 'rich', 'jinja2', 'matplotlib', 'scipy']));"
        "from cwrnn.bench import main; main(['--help'])"
    )
    environment = os.environ | {"PYTHONPATH": str(source)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
