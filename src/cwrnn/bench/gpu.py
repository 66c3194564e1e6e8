"""The GPU: a layer against cuDNN's layers of the same size and dtype, timed back to back and synchronised.

    cwrnn bench --device cuda                 the sizes of docs/performance.md, against RNN, LSTM and GRU
    cwrnn bench --device cuda --layer LSTM    the same for ClockworkLSTM
    cwrnn bench --device cuda sweep           many sizes, against the layer of torch with the same cell (sweep.py)

gpu_timing.py explains the two ways of timing. float32 is multiplied as torch's switch for recurrent layers says, which
is tf32 unless changed.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from ..backends import select_backend
from ..layer import ClockworkLayer
from ..schedule import Schedule
from .gpu_timing import WAYS, Times, if_it_fits, time_on_device
from .layers import GATES, OUR_LAYERS, SIZE_HEAD, TORCH_LAYERS, Size, check, check_finite, count_multiply_adds
from .ratios import make_key
from .timing import make_forward, make_training

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

OTHERS = ("RNN", "LSTM", "GRU")
"""The layers of torch.nn that a row of the regime `gpu` has."""

SIZES = (
    (Size(1024, 8, 1024, 64, 64), "bf16"),
    (Size(1024, 8, 1024, 64, 64), "fp16"),
    (Size(1024, 8, 1024, 64, 64), "fp32"),
    (Size(1024, 8, 8192, 16, 64), "bf16"),
    (Size(256, 8, 1024, 64, 64), "fp32"),
    (Size(2048, 8, 1024, 64, 64), "bf16"),
    (Size(4096, 8, 1024, 64, 64), "bf16"),
    (Size(4096, 8, 1024, 64, 64), "fp32"),
    (Size(2048, 4, 1024, 64, 64), "bf16"),
    (Size(2048, 4, 1024, 64, 64), "fp32"),
    (Size(64, 8, 1024, 64, 64), "fp32"),
    (Size(102, 6, 100, 32, 13), "fp32"),
    (Size(40, 8, 320, 1, 1), "fp32"),
    (Size(128, 1, 1024, 64, 64), "fp32"),
    (Size(512, 1, 1024, 64, 64), "bf16"),
)

LEGEND = (
    "sync: each call waits for its end; peak: share of the peak above, back to back; RNN, LSTM, GRU: those of\n"
    "torch.nn with as many units, 'memory' where they need more than there is; error: the largest of cwrnn, relative,\n"
    "against float64"
)

Measured = dict[str, Times | None]
"""The times of "cwrnn" and of layers of torch, by name; None where the memory was too small."""


class GpuRow(NamedTuple):
    """The measurements of one size and dtype."""

    size: Size
    layer: str
    dtype: str
    backend: str
    """The backend that computed the layer."""
    error: float | None
    forward: Measured
    training: Measured
    note: str | None = None
    """Why a layer has no times, or None."""

    def record(self) -> dict[str, Any]:
        """The row as plain data, for JSON.

        `forward` and `training` are the seconds of cwrnn back to back, `forward_synchronised` those of synchronised
        calls, and `forward_rnn` and `forward_synchronised_rnn` those of RNN.
        """
        record: dict[str, Any] = {
            **self.size.record(),
            **{name: getattr(self, name) for name in ("layer", "dtype", "backend", "error", "note")},
        }
        for name, measured in (("forward", self.forward), ("training", self.training)):
            for layer, times in measured.items():
                for way in WAYS:
                    record[make_key(name, way, layer)] = None if times is None else getattr(times, way)
        return record


def make_head(others: Sequence[str]) -> str:
    """The head of the table: the size, our times, and how many times faster than the others they are, in both ways.

    >>> print(make_head(["RNN"]).splitlines()[1])
    units modules steps batch inputs dtype  pass             |       ms  sync ms   peak |     RNN |     RNN |   error
    """
    names = " ".join(f"{name:>7s}" for name in others)
    first = f"{'':56s} | {'cwrnn':^24s} | {'times faster':{len(names)}s} | synchronised"
    return (
        f"{first}\n{SIZE_HEAD} dtype  {'pass':16s} | {'ms':>8s} {'sync ms':>8s} {'peak':>6s} | {names} | {names} | "
        f"{'error':>7s}"
    )


def format_row(row: GpuRow, peaks: dict[str, float]) -> str:
    """The row as two lines of text below the head, with the share of the peak of its dtype."""
    size = row.size
    schedule = Schedule.resolve(size.modules, size.units)
    counts = count_multiply_adds(schedule, size.steps, size.batch, size.inputs, GATES[row.layer])
    error = "" if row.error is None else f"{row.error:7.1e}"
    passes = (
        (f"{size} {row.dtype:>5s}", "forward", row.forward, error),
        ("", "forward+backward", row.training, ""),
    )
    lines = []
    for (start, name, measured, end), count in zip(passes, counts, strict=True):
        own = measured["cwrnn"]
        peak = "" if own is None else f"{count / own.back_to_back / peaks[row.dtype]:.1%}"
        shown = " ".join(format_milliseconds(own, way) for way in WAYS)
        others = [times for layer, times in measured.items() if layer != "cwrnn"]
        ratios = " | ".join(" ".join(format_ratio(own, times, way) for times in others) for way in WAYS)
        lines.append(f"{start:38s}  {name:16s} | {shown} {peak:>6s} | {ratios} | {end}".rstrip())
    return "\n".join(lines)


def format_milliseconds(times: Times | None, way: str, missing: str = "memory") -> str:
    """Milliseconds of a call, or `missing` if it was not timed.

    >>> format_milliseconds(Times(0.001, 0.0015), "synchronised")
    '   1.500'
    """
    return f"{missing:>8s}" if times is None else f"{getattr(times, way) * 1e3:8.3f}"


def format_ratio(own: Times | None, other: Times | None, way: str, missing: str = "memory") -> str:
    """How many times faster one layer is than another, or `missing` if one of them was not timed.

    >>> format_ratio(Times(0.001, 0.002), Times(0.003, 0.003), "synchronised")
    '   1.50'
    """
    if own is None or other is None:
        return f"{missing:>7s}"
    return f"{getattr(other, way) / getattr(own, way):7.2f}"


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
        with accept_compaction():
            for name in others:
                if_it_fits(check_finite, layers[name], x, gradient)
            forward = time_on_device([make_forward(layer, x) for layer in layers.values()])
            training = time_on_device([make_training(layer, x, gradient) for layer in layers.values()])
        yield GpuRow(
            size, layer, dtype, name_backend(rnn, x), error,
            dict(zip(layers, forward, strict=True)), dict(zip(layers, training, strict=True)),
        )  # fmt: skip
        del rnn, layers, x, gradient
        torch.cuda.empty_cache()


@contextmanager
def accept_compaction() -> Iterator[None]:
    """Hides a warning: torch compacts cuDNN's layers of half precision at every call, which is part of their time."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
        yield


def name_backend(rnn: ClockworkLayer[Any, Any], x: torch.Tensor) -> str:
    """The name of the backend that computes the layer for x."""
    return select_backend(rnn.backend, x.device, x.dtype, rnn.schedule, rnn.cell, x.shape[1]).name


def measure_ceilings(device: torch.device) -> tuple[dict[str, float], float]:
    """Multiply-adds per second of a large matrix product in each dtype, and the bytes per second of a copy."""
    rates = {}
    for name, dtype in DTYPES.items():
        left, right = (torch.randn(8192, 8192, device=device).to(dtype) for _ in range(2))
        allowed = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        (times,) = time_on_device([lambda left=left, right=right: torch.mm(left, right)])  # type: ignore[misc]
        torch.backends.cuda.matmul.allow_tf32 = allowed
        assert times is not None
        rates[name] = 8192**3 / times.back_to_back
    source = torch.randn(2**28, device=device)
    target = torch.empty_like(source)
    (times,) = time_on_device([lambda: target.copy_(source)])
    assert times is not None
    return rates, 2 * source.nbytes / times.back_to_back
