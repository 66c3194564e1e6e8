"""The GPU: a layer against cuDNN's layers of the same size and dtype, timed by events.

    cwrnn bench --device cuda                 the sizes of docs/performance.md, against RNN, LSTM and GRU
    cwrnn bench --device cuda --layer LSTM    the same for ClockworkLSTM
    cwrnn bench --device cuda sweep           every combination of units, steps, batch and dtype, against RNN

Calls follow each other without a pause, as in training: the time that the host needs to start them counts only where it
is longer than the calls themselves. float32 is multiplied as torch's switch for recurrent layers says, which is tf32
unless changed.
"""

import statistics
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch

from ..schedule import Schedule
from .layers import GATES, OUR_LAYERS, SIZE_HEAD, TORCH_LAYERS, Size, check, check_torch_layer, count_multiply_adds
from .timing import make_forward, make_training

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

OTHERS = ("RNN", "LSTM", "GRU")
"""The layers of torch.nn that a row of the regime `gpu` has; the regime `sweep` has the first one only."""

SIZES = (
    (Size(1024, 8, 1024, 64, 64), "bf16"),
    (Size(1024, 8, 1024, 64, 64), "fp16"),
    (Size(1024, 8, 1024, 64, 64), "fp32"),
    (Size(1024, 8, 8192, 16, 64), "bf16"),
    (Size(256, 8, 1024, 64, 64), "fp32"),
    (Size(2048, 8, 1024, 64, 64), "bf16"),
)

SWEEP = tuple(
    (Size(units, 8, steps, batch, 64), dtype)
    for units, steps, batch, dtype in product((256, 512, 1024, 2048), (1024, 8192), (16, 64, 256), DTYPES)
)

LONGEST = 0.15
"""About how many seconds one number may take. A function that takes longer still has three turns of one call."""

LEGEND = (
    "peak: share of the peak above; RNN, LSTM, GRU: those of torch.nn with as many units, 'memory' where they need\n"
    "more than there is; error: the largest of cwrnn, relative, against float64"
)

Seconds = dict[str, float | None]
"""Median seconds of a call of "cwrnn" and of the layers of torch, by name; None where the memory was too small."""


class GpuRow(NamedTuple):
    """The measurements of one size and dtype."""

    size: Size
    layer: str
    dtype: str
    error: float
    forward: Seconds
    training: Seconds

    def record(self) -> dict[str, Any]:
        """The row as plain data, for JSON: `forward` and `training` are those of cwrnn, `forward_rnn` that of RNN."""
        record: dict[str, Any] = {**self.size.record(), "layer": self.layer, "dtype": self.dtype, "error": self.error}
        for name, seconds in (("forward", self.forward), ("training", self.training)):
            record |= {
                name if layer == "cwrnn" else f"{name}_{layer.lower()}": value for layer, value in seconds.items()
            }
        return record


def make_head(others: Sequence[str]) -> str:
    """The head of the table: the size, our times, and how many times faster than the others they are.

    >>> print(make_head(["RNN"]).splitlines()[1])
    units modules steps batch inputs dtype  pass             |       ms   peak |     RNN |   error
    """
    names = " ".join(f"{name:>7s}" for name in others)
    first = f"{'':56s} | {'cwrnn':^15s} | times faster than"
    return f"{first}\n{SIZE_HEAD} dtype  {'pass':16s} | {'ms':>8s} {'peak':>6s} | {names} | {'error':>7s}"


def format_row(row: GpuRow, peaks: dict[str, float]) -> str:
    """The row as two lines of text below the head, with the share of the peak of its dtype."""
    size = row.size
    schedule = Schedule.resolve(size.modules, size.units)
    counts = count_multiply_adds(schedule, size.steps, size.batch, size.inputs, GATES[row.layer])
    lines = []
    passes = (
        (f"{size} {row.dtype:>5s}", "forward", row.forward, f"{row.error:7.1e}"),
        ("", "forward+backward", row.training, ""),
    )
    for (start, name, seconds, error), count in zip(passes, counts, strict=True):
        own = seconds["cwrnn"]
        times = f"{'memory':>8s} {'':6s}" if own is None else f"{own * 1e3:8.3f} {count / own / peaks[row.dtype]:6.1%}"
        ratios = [
            f"{'memory':>7s}" if other is None or own is None else f"{other / own:7.1f}"
            for layer, other in seconds.items()
            if layer != "cwrnn"
        ]
        lines.append(f"{start:38s}  {name:16s} | {times} | {' '.join(ratios)} | {error}".rstrip())
    return "\n".join(lines)


def measure(cases: Any, layer: str, others: Sequence[str], backend: str, device: torch.device) -> Iterator[GpuRow]:
    """A row for each size and dtype: all layers are checked, and then timed in the same turns."""
    for size, dtype in cases:
        torch.manual_seed(0)
        placed: Any = {"device": device, "dtype": DTYPES[dtype]}
        rnn = OUR_LAYERS[layer](size.inputs, size.units, schedule=size.modules, backend=backend, **placed)
        x = torch.randn(size.steps, size.batch, size.inputs, **placed)
        gradient = torch.randn(size.steps, size.batch, size.units, **placed)
        error = check(rnn, x)
        layers: dict[str, torch.nn.Module] = {"cwrnn": rnn}
        layers |= {name: TORCH_LAYERS[name](size.inputs, size.units, **placed) for name in others}
        with warnings.catch_warnings():
            # torch compacts cuDNN's layers of half precision at every call: that is part of their time
            warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
            for name in others:
                _if_it_fits(check_torch_layer, layers[name], x, gradient)
            forward = time_on_device([make_forward(layer, x) for layer in layers.values()])
            training = time_on_device([make_training(layer, x, gradient) for layer in layers.values()])
        names = list(layers)
        yield GpuRow(
            size, layer, dtype, error, dict(zip(names, forward, strict=True)), dict(zip(names, training, strict=True))
        )
        del rnn, layers, x, gradient
        torch.cuda.empty_cache()


def measure_ceilings(device: torch.device) -> tuple[dict[str, float], float]:
    """Multiply-adds per second of a large matrix product in each dtype, and the bytes per second of a copy."""
    rates = {}
    for name, dtype in DTYPES.items():
        left, right = (torch.randn(8192, 8192, device=device).to(dtype) for _ in range(2))
        allowed = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        (seconds,) = time_on_device([lambda left=left, right=right: torch.mm(left, right)])  # type: ignore[misc]
        torch.backends.cuda.matmul.allow_tf32 = allowed
        assert seconds is not None
        rates[name] = 8192**3 / seconds
    source = torch.randn(2**28, device=device)
    target = torch.empty_like(source)
    (seconds,) = time_on_device([lambda: target.copy_(source)])
    assert seconds is not None
    return rates, 2 * source.nbytes / seconds


def time_on_device(functions: Sequence[Callable[[], Any]]) -> list[float | None]:
    """The median seconds of one call of each function over several turns, which they take side by side.

    In a turn the calls of a function follow each other without a pause. A function that needs more memory than there is
    gets None.
    """
    once: list[float | None] = []
    for function in functions:
        for _ in range(2):
            _if_it_fits(function)
        once.append(_if_it_fits(_time_calls, function, 1))
    turns: list[list[float]] = [[] for _ in functions]
    for turn in range(5):
        for function, seconds, times in zip(functions, once, turns, strict=True):
            # a slow function takes three turns
            if seconds is not None and (turn < 3 or seconds < LONGEST):
                calls = max(1, min(20, round(LONGEST / 5 / seconds)))
                time = _if_it_fits(_time_calls, function, calls)
                times += [] if time is None else [time]
    return [statistics.median(times) if times else None for times in turns]


def _time_calls(function: Callable[[], Any], calls: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(calls):
        function()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / calls


def _if_it_fits(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of the function, or None if it needs more memory than the device has."""
    try:
        return function(*arguments)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return None
