"""The sweep: its parts, its lines, its summary, and the file that grows while it runs. Nothing here is about speed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cwrnn import bench
from cwrnn.bench import gpu_command, gpu_timing, record_file, sweep, sweep_summary, timing
from cwrnn.bench.gpu import DTYPES, GpuRow
from cwrnn.bench.gpu_command import GpuOptions
from cwrnn.bench.gpu_timing import Times
from cwrnn.bench.layers import Size
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
    return GpuRow(size, layer, dtype, "triton", 1e-4, measure(forward), measure(training), note)


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
    return GpuOptions("RNN", "auto", CPU, part, seconds, tmp_path / "new" / "sweep.json")


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
    assert record["environment"] == {"device": "a GPU", "backend": "auto"}
    assert record["sweep_part"] == {"part": "2/96", "lines": 12, "left_out": 0}
    assert len(record["sweep"]) == 12
    captured = capsys.readouterr()
    assert "12 lines: 12 timed" in captured.out
    assert "lines below 1.0: 0" in captured.out
    assert captured.err == ""


def test_the_sweep_stops_after_its_seconds(tmp_path, monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(gpu_command.time, "monotonic", lambda: now[0])

    def take_a_minute(*arguments):
        now[0] += 60
        return [make_row(modules) for modules in (1, 2, 4, 8)]

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

    def measure(*arguments):
        sizes.append(len(json.loads(options.json.read_text())["sweep"]) if sizes else 0)
        if len(sizes) == 4:
            raise KeyboardInterrupt
        return [make_row()]

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
    for option in ("--part K/M", "--seconds S"):
        assert option in out


def test_the_benchmark_runs_from_source_without_the_packages_of_commands():
    source = Path(sweep.__file__).parents[2]
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['typer', 'rich', 'jinja2', 'matplotlib', 'scipy']));"
        "from cwrnn.bench import main; main(['--help'])"
    )
    environment = os.environ | {"PYTHONPATH": str(source)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
