"""The command line of the benchmark, for `python -m cwrnn.bench` and `cwrnn bench`."""

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..backends import BACKENDS, select_backend
from ..writing import write_files
from . import compiled, layers, regimes, streams
from .gpu_command import REGIMES as GPU_REGIMES
from .gpu_command import GpuOptions, describe_choices, measure_on_gpu
from .layers import Size
from .sweep import CASES, INPUTS, STEPS, Case, Part, parse_steps, select_slow
from .sweep_file import read_rows, read_sweep
from .timing import describe_machine, format_load, measure_floor, measure_peak

REGIMES = ("layers", "replicas", "step", "growth")
OTHER_REGIMES = ("compiled", "streams")
"""Regimes that run only if they are named."""
REPLICAS = 100
STEP_UNITS = (128, 1024)
MOST_THREADS = 1024
"""The largest --threads. torch refuses numbers beyond 32 bits with an error of its own."""


def main(arguments: Sequence[str] | None = None, program: str = "python -m cwrnn.bench") -> int:
    """Runs the benchmark and returns its exit code: 0 done, 1 an error, 2 wrong usage, 130 interrupted.

    A backend that computes something wrong is an error, and so is a file that cannot be written. The regime `sweep`
    notes wrong results beside their lines instead, and goes on.

    Args:
        arguments: those of the command line. Default: those of the process
        program: the name of the command in its help
    """
    parser = _make_parser(program)
    options = parser.parse_args(arguments)
    if options.threads < 1 or options.repeats < 1:
        parser.error("--threads and --repeats must be at least 1")
    if options.threads > MOST_THREADS:
        parser.error(f"--threads must be at most {MOST_THREADS}, got {options.threads}")
    sizes = [target for target in options.targets if isinstance(target, Size)]
    chosen = [target for target in options.targets if not isinstance(target, Size)]
    if sizes and chosen not in ([], ["layers"]):
        parser.error("sizes are those of layers: name no other regime beside them")
    on_gpu = options.device.startswith("cuda")
    if options.layer != "RNN" and set(chosen) - {"layers", "streams", *GPU_REGIMES}:
        parser.error("--layer: only the regimes layers, streams, gpu and sweep time other layers than RNN")
    if not on_gpu and set(chosen) & set(GPU_REGIMES):
        parser.error(f"{', '.join(GPU_REGIMES)}: add --device cuda")
    of_sweep = (options.part, options.seconds, options.again, options.steps)
    if (options.rivals or options.resume or any(value is not None for value in of_sweep)) and "sweep" not in chosen:
        parser.error(
            "--part, --steps, --seconds, --rivals, --again and --resume are options of the regime sweep: name it"
        )
    if options.resume and (options.json is None or chosen != ["sweep"]):
        parser.error("--resume continues the sweep in the file of --json: name it, and no other regime")
    if options.below is not None and options.again is None:
        parser.error("--below is an option of --again: name the file of a sweep")
    if options.again and options.json and os.path.realpath(options.again) == os.path.realpath(options.json):
        parser.error("--json would replace the file of --again: name another file")
    if set(chosen) & set(GPU_REGIMES) and not set(chosen) <= set(GPU_REGIMES):
        parser.error(f"{', '.join(GPU_REGIMES)}: name no regime of another kind beside them")
    if options.picture and (sizes or chosen or on_gpu):
        parser.error("--picture shows all regimes: leave out sizes and regimes")
    part = options.part or Part(1, 1)
    try:
        cases = _select_cases(options, part)
    except ValueError as error:
        parser.error(str(error))
    try:
        device, dtype = torch.device(options.device), getattr(torch, options.dtype)
        torch.empty(0, device=device)
        backend = select_backend(options.backend, device, dtype).name
    except (RuntimeError, AssertionError) as error:
        parser.error(str(error).splitlines()[0])
    torch.set_num_threads(options.threads)
    earlier = None
    try:
        if options.resume and options.json.exists():
            choices = describe_choices(describe_machine(device), options.backend, options.rivals)
            earlier = read_sweep(options.json, choices)
    except OSError as error:
        parser.error(f"--resume: {error.filename}: {error.strerror}")
    except ValueError as error:
        parser.error(f"--resume: {error}")
    try:
        record = _measure(
            chosen or _default_regimes(bool(sizes), on_gpu, options.layer),
            sizes or layers.DEFAULT_SIZES,
            options.layer,
            (backend, options.repeats, device, dtype),
            GpuOptions(
                options.layer, options.backend, device, cases, part,
                math.inf if options.seconds is None else options.seconds, options.rivals, options.json,
                earlier,
            ),
        )  # fmt: skip
    except AssertionError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        # the file of a regime of the GPU grows while it runs
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    try:
        if options.json is not None:
            write_files({options.json: (json.dumps(record, indent=2) + "\n").encode()})
            print(f"written to {options.json}")
        if options.picture is not None:
            from .picture import draw_picture

            draw_picture(record, options.picture)
            print(f"drawn to {options.picture}")
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _select_cases(options: argparse.Namespace, part: Part) -> Sequence[Case]:
    """The cases of the sweep that the options select. Raises a ValueError if there are none, or none in the part."""
    cases: Sequence[Case] = CASES
    if options.again is not None:
        below = 1.0 if options.below is None else options.below
        cases = _select_again(options.again, options.layer, below)
    if options.steps is not None:
        cases = [case for case in cases if case.steps in options.steps]
        if not cases:
            raise ValueError(f"--steps: no line that --again selects has {' or '.join(map(str, options.steps))} steps")
    if part.first > len(cases):
        raise ValueError(f"--part: {len(cases)} cases are selected, so K must be at most {len(cases)}, got {part}")
    return cases


def _select_again(path: Path, layer: str, below: float) -> Sequence[Case]:
    """The cases of the slow lines of a file. Raises a ValueError if it cannot be read or has none."""
    try:
        cases = select_slow(read_rows([path]), layer, below)
    except OSError as error:
        raise ValueError(f"--again: {error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"--again: {error}") from None
    if not cases:
        raise ValueError(f"--again: no line of {path} with {INPUTS} inputs is below {below} for {layer}")
    return cases


def _default_regimes(has_sizes: bool, on_gpu: bool, layer: str) -> list[str]:
    if has_sizes:
        return ["layers"]
    if on_gpu:
        return ["gpu"]
    return list(REGIMES) if layer == "RNN" else ["layers"]


def _measure(
    chosen: Sequence[str],
    sizes: Sequence[Size],
    layer: str,
    how: tuple[str, int, torch.device, torch.dtype],
    on_gpu: GpuOptions,
) -> Any:
    """Measures the chosen regimes, prints the numbers as they come, and returns all of them as plain data."""
    backend, _, device, dtype = how
    environment = describe_machine(device)
    shown = {name: value for name, value in environment.items() if name not in ("cores", "load")}
    shown |= {"backend": backend, "layer": f"Clockwork{layer}"}
    print(", ".join(f"{name} {value}" for name, value in shown.items()))
    print(format_load(environment["load"], environment["cores"], environment["threads"]))
    if set(chosen) <= set(GPU_REGIMES):
        return measure_on_gpu(chosen, on_gpu, environment)
    peak = measure_peak(device, dtype)
    floor = measure_floor(backend, device, dtype)
    environment |= {"backend": backend, "peak": peak, "floor_forward": floor[0], "floor_training": floor[1]}
    print(
        f"peak {peak / 1e9:.1f} GMAC/s (billion multiply-adds per second of a matrix product of torch); a step of one "
        f"unit takes\n{floor[0] * 1e9:.0f} ns forward, {floor[1] * 1e9:.0f} ns forward + backward"
    )
    record: dict[str, Any] = {"environment": environment, "unit": "seconds, medians"}
    for regime in chosen:
        rows = record[regime] = []
        if regime == "layers":
            print(f"\n{layers.HEAD}", flush=True)
            for row in layers.measure(sizes, layer, *how):
                rows.append(row.record())
                print(layers.format_row(row, peak), flush=True)
            worst = max(row["error"] for row in rows)
            print(f"{layers.LEGEND}\nlargest relative error of cwrnn against the specification: {worst:.1e}")
        elif regime in OTHER_REGIMES:
            module: Any = {"compiled": compiled, "streams": streams}[regime]
            print(f"\n{module.HEAD}", flush=True)
            for timed in compiled.measure(*how) if regime == "compiled" else streams.measure(layer, *how):
                rows.append(timed.record())
                print(timed, flush=True)
            print(module.LEGEND)
        elif regime == "growth":
            print(f"\n{regimes.GROWTH_HEAD}", flush=True)
            regimes.measure_growth(*how, report=lambda point, rows=rows: _report_point(point, rows))  # type: ignore[misc]
            print("times: how many times as long as the line before, the median over the turns")
        else:
            print(f"\n{'':60s} cwrnn         torch   times faster", flush=True)
            if regime == "replicas":
                comparisons = [regimes.measure_replicas(REPLICAS, *how)]
            else:
                comparisons = [regimes.measure_step(n, *how) for n in STEP_UNITS]
            for comparison in comparisons:
                rows.append(comparison.record())
                print(f"{comparison.name:55s} {comparison.ours * 1e6:8.1f} us {comparison.theirs * 1e6:10.1f} us "
                      f"{comparison.theirs / comparison.ours:8.1f}", flush=True)  # fmt: skip
    return record


def _report_point(point: regimes.GrowthPoint, rows: list[Any]) -> None:
    rows.append(point._asdict())
    parts = [f"{point.axis:10s} {point.value:6d}"]
    for seconds, ratio in ((point.forward, point.forward_ratio), (point.training, point.training_ratio)):
        times = "" if ratio is None else f"{ratio:.2f}"
        parts.append(f"{seconds * 1e3:9.3f} {seconds / point.T * 1e6:8.2f} {times:>6s}")
    print(" | ".join(parts), flush=True)


def _parse_target(text: str) -> Any:
    return text if text in REGIMES + OTHER_REGIMES + GPU_REGIMES else Size.parse(text)


def _parse_positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def _make_parser(program: str) -> argparse.ArgumentParser:
    description = sys.modules[__package__].__doc__
    parser = argparse.ArgumentParser(
        prog=program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "targets", nargs="*", type=_parse_target, metavar="REGIME or UNITS,MODULES,STEPS,BATCH,INPUTS",
        help=f"what to time: {', '.join(REGIMES)}, or sizes of layers; default: all of these regimes. Only if named: "
        f"{OTHER_REGIMES[0]} (layers after torch.compile), {OTHER_REGIMES[1]} (a pool of streams). "
        f"With --device cuda: {GPU_REGIMES[0]} (the default) or "
        f"{GPU_REGIMES[1]} (many sizes)",
    )  # fmt: skip
    parser.add_argument(
        "--layer", default="RNN", choices=tuple(layers.OUR_LAYERS), type=str.upper,
        help="the layer to time, in the regimes layers, streams, gpu and sweep; default: RNN",
    )  # fmt: skip
    parser.add_argument("--backend", default="auto", choices=("auto", *BACKENDS), help="default: auto")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, ...; default: cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64", "bfloat16", "float16"),
                        help="default: float32")  # fmt: skip
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="default: as many as torch uses")
    parser.add_argument(
        "--repeats",
        type=int,
        default=7,
        help="turns to take the median of; growth takes five times as many; default: 7",
    )
    parser.add_argument(
        "--part", type=Part.parse, metavar="K/M",
        help=f"time every M-th case of the sweep ({len(CASES)} cases, or those that --again selects), from the K-th "
        "on; default: 1/1",
    )  # fmt: skip
    parser.add_argument(
        "--steps", type=parse_steps, metavar="STEPS,...",
        help=f"sweep: time only cases with these numbers of steps; default: {','.join(map(str, STEPS))}",
    )  # fmt: skip
    parser.add_argument(
        "--resume", action="store_true",
        help="sweep: keep the lines that the file of --json has from an earlier run with the same device and versions, "
        "and time the others, last of all those with errors. Changes of the code are not noticed",
    )  # fmt: skip
    parser.add_argument(
        "--seconds",
        type=_parse_positive,
        metavar="S",
        help="start no case of the sweep after S seconds; default: no limit",
    )
    parser.add_argument(
        "--rivals",
        action="store_true",
        help="sweep: also time the backends that auto did not choose, and list the lines that they run in less time",
    )
    parser.add_argument(
        "--again", type=Path, metavar="FILE",
        help="sweep: time only the slow lines in FILE, the JSON file of an earlier sweep: those of --layer with "
        f"{INPUTS} inputs whose lowest ratio is below --below, or that have an error or no times",
    )  # fmt: skip
    parser.add_argument(
        "--below", type=_parse_positive, metavar="RATIO",
        help="with --again: a line is slow if one of its ratios, the time of torch's layer divided by ours, is below "
        "this number; default: 1.0",
    )  # fmt: skip
    parser.add_argument(
        "--json", type=Path, help="also write the numbers to this file; on a GPU it grows with them, every few seconds"
    )
    parser.add_argument("--picture", type=Path, help="also draw them into this file (needs the extra 'experiments')")
    return parser
