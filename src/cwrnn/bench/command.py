"""The command line of the benchmark."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..backends import BACKENDS, choose
from . import gpu, layers, regimes
from .layers import Size
from .timing import machine, measure_floor, measure_peak

REGIMES = ("layers", "replicas", "step", "growth")
GPU_REGIMES = ("gpu", "sweep")
REPLICAS = 100
STEP_UNITS = (128, 1024)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit code is 1 if a backend is not right, 2 if the arguments are not."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.threads < 1 or options.repeats < 1:
        parser.error("--threads and --repeats must be at least 1")
    sizes = [each for each in options.what if isinstance(each, Size)]
    chosen = [each for each in options.what if not isinstance(each, Size)]
    if sizes and chosen not in ([], ["layers"]):
        parser.error("sizes are those of layers: name no other regime beside them")
    on_gpu = options.device.startswith("cuda")
    if not on_gpu and set(chosen) & set(GPU_REGIMES):
        parser.error(f"{', '.join(GPU_REGIMES)}: add --device cuda")
    if options.picture and (sizes or chosen or on_gpu):
        parser.error("--picture shows all regimes: leave out sizes and regimes")
    try:
        device, dtype = torch.device(options.device), getattr(torch, options.dtype)
        torch.empty(0, device=device)
        backend = choose(options.backend, device, dtype)
    except (RuntimeError, AssertionError) as error:
        parser.error(str(error).splitlines()[0])
    torch.set_num_threads(options.threads)
    try:
        record = _measure(
            ["layers"] if sizes else chosen or (["gpu"] if on_gpu else list(REGIMES)),
            sizes or layers.DEFAULT_SIZES,
            (backend, options.repeats, device, dtype),
        )
    except AssertionError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(record, indent=2) + "\n")
        print(f"written to {options.json}")
    if options.picture is not None:
        from .picture import draw

        draw(record, options.picture)
        print(f"drawn to {options.picture}")
    return 0


def _measure(chosen: Sequence[str], sizes: Sequence[Size], how: tuple[str, int, torch.device, torch.dtype]) -> Any:
    """Measures, prints as it goes, and returns all of it as plain data."""
    backend, _, device, dtype = how
    environment = machine(device)
    print(", ".join(f"{name} {value}" for name, value in environment.items()), f"backend {backend}", sep=", ")
    if set(chosen) <= set(GPU_REGIMES):
        return _measure_gpu(chosen, backend, device, environment)
    peak = measure_peak(device, dtype)
    floor = measure_floor(backend, device, dtype)
    environment |= {"backend": backend, "peak": peak, "floor_forward": floor[0], "floor_training": floor[1]}
    print(
        f"peak {peak / 1e9:.1f} GMAC/s (a matrix product of torch's); a step with nothing to multiply takes "
        f"{floor[0] * 1e9:.0f} ns forward, {floor[1] * 1e9:.0f} ns with backward"
    )
    record: dict[str, Any] = {"environment": environment, "unit": "seconds, medians"}
    for regime in chosen:
        rows = record[regime] = []
        if regime == "layers":
            print(f"\n{layers.HEAD}", flush=True)
            for row in layers.measure(sizes, *how):
                rows.append(row.record())
                print(layers.line(row, peak), flush=True)
            worst = max(row["error"] for row in rows)
            print(f"RNN, LSTM, loop: times faster than torch.nn.RNN, torch.nn.LSTM and the specification's loop\n"
                  f"largest relative error against the specification: {worst:.1e}")  # fmt: skip
        elif regime == "growth":
            print("\nhow time grows            forward ms  us/step  times   training ms  us/step  times", flush=True)
            regimes.measure_growth(*how, report=lambda point, rows=rows: _report(point, rows))  # type: ignore[misc]
            print("times: as long as the line before, the median over the turns")
        else:
            print(f"\n{'':60s} cwrnn         torch   times faster", flush=True)
            if regime == "replicas":
                found = [regimes.measure_replicas(REPLICAS, *how)]
            else:
                found = [regimes.measure_step(n, *how) for n in STEP_UNITS]
            for each in found:
                rows.append(each.record())
                print(f"{each.name:55s} {each.ours * 1e6:8.1f} us {each.theirs * 1e6:10.1f} us "
                      f"{each.theirs / each.ours:8.1f}", flush=True)  # fmt: skip
    return record


def _measure_gpu(chosen: Sequence[str], backend: str, device: torch.device, environment: dict[str, Any]) -> Any:
    rates, bandwidth = gpu.measure_ceilings(device)
    print(
        "peak "
        + ", ".join(f"{name} {rate / 1e12:.0f}" for name, rate in rates.items())
        + f" TMAC/s (a matrix product of torch's); a copy moves {bandwidth / 1e12:.1f} TB/s"
    )
    environment |= {"backend": backend, "peaks": rates, "bandwidth": bandwidth}
    record: dict[str, Any] = {"environment": environment, "unit": "seconds, medians"}
    for regime in chosen:
        rows = record[regime] = []
        print(f"\n{gpu.HEAD}", flush=True)
        for row in gpu.measure(gpu.SIZES if regime == "gpu" else gpu.SWEEP, backend, device):
            rows.append(row.record())
            print(row.line(rates), flush=True)
    print("RNN: milliseconds of torch.nn.RNN; times: how many times faster; error: the largest, against float64")
    return record


def _report(point: regimes.Point, rows: list[Any]) -> None:
    rows.append(point._asdict())
    text = f"{point.axis:10s} {point.value:6d}    "
    for seconds, ratio in ((point.forward, point.forward_ratio), (point.training, point.training_ratio)):
        times = "" if ratio is None else f"{ratio:.2f}"
        text += f"     {seconds * 1e3:9.3f} {seconds / point.T * 1e6:8.2f} {times:>6s}"
    print(text, flush=True)


def _what(text: str) -> Any:
    return text if text in REGIMES + GPU_REGIMES else Size.parse(text)


def _parser() -> argparse.ArgumentParser:
    description = sys.modules[__package__].__doc__
    parser = argparse.ArgumentParser(
        prog="python -m cwrnn.bench", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", nargs="*", type=_what, metavar="regime or n,modules,T,B,inputs",
        help=f"what to time: {', '.join(REGIMES)}, or sizes of layers; default: all of these, and with --device cuda "
        f"gpu; there is also {GPU_REGIMES[1]}",
    )  # fmt: skip
    parser.add_argument("--backend", default="auto", choices=("auto", *BACKENDS), help="default: auto")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, ...; default: cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64", "bfloat16", "float16"),
                        help="default: float32")  # fmt: skip
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="default: torch's")
    parser.add_argument(
        "--repeats",
        type=int,
        default=7,
        help="turns of which the median counts, five times as many for growth; default: 7",
    )
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--picture", type=Path, help="also draw them into this file (needs the extra 'experiments')")
    return parser
