"""The GPU: a layer against cuDNN's torch.nn.RNN of the same size and dtype, timed by events.

    python -m cwrnn.bench --device cuda                 the sizes of docs/performance.md
    python -m cwrnn.bench --device cuda sweep           every n, T, B and dtype, against torch.nn.RNN alone

Calls follow each other without a pause, as in training: what the host needs to start them counts only where it takes
longer than they do. float32 is multiplied as torch's switch for recurrent layers says, which is tf32 unless changed.
"""

import warnings
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import nn

from ..layer import ClockworkRNN
from .layers import Size, check, count_multiply_adds
from .timing import forward_of, training_of

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

SIZES = (
    (Size(1024, 8, 1024, 64, 64), "bf16"),
    (Size(1024, 8, 1024, 64, 64), "fp16"),
    (Size(1024, 8, 1024, 64, 64), "fp32"),
    (Size(1024, 8, 8192, 16, 64), "bf16"),
    (Size(256, 8, 1024, 64, 64), "fp32"),
    (Size(2048, 8, 1024, 64, 64), "bf16"),
)

SWEEP = tuple(
    (Size(n, 8, T, B, 64), dtype)
    for n, T, B, dtype in product((256, 512, 1024, 2048), (1024, 8192), (16, 64, 256), DTYPES)
)

LONGEST = 0.15
"""Seconds to spend on one number, about; at least three calls."""

HEAD = (
    "    n   G     T    B    I dtype |  forward ms      RNN  times  peak |  training ms      RNN  times  peak |   error"
)


class Row(NamedTuple):
    """One line: seconds of ours and of torch.nn.RNN's, None where that had not enough memory."""

    size: Size
    dtype: str
    error: float
    forward: float
    forward_rnn: float | None
    training: float
    training_rnn: float | None

    def record(self) -> dict[str, Any]:
        """All of it as plain data, for JSON."""
        return {**self.size._asdict(), **{name: getattr(self, name) for name in self._fields if name != "size"}}

    def line(self, peaks: dict[str, float]) -> str:
        """The row as text, below HEAD; `peak` is the share of a large matrix product's rate."""
        counts = count_multiply_adds(
            ClockworkRNN(1, self.size.n, schedule=self.size.modules, device="meta").schedule,
            self.size.T, self.size.B, self.size.inputs,
        )  # fmt: skip
        parts = [f"{self.size} {self.dtype:>5s}"]
        measured = (self.forward, self.forward_rnn), (self.training, self.training_rnn)
        for (own, other), count in zip(measured, counts, strict=True):
            rival = f"{'memory':>8s} {'':6s}" if other is None else f"{other * 1e3:8.2f} {other / own:6.1f}"
            parts.append(f"{own * 1e3:11.3f} {rival} {count / own / peaks[self.dtype]:5.1%}")
        return " | ".join([*parts, f"{self.error:7.1e}"])


def measure(cases: Any, backend: str, device: torch.device) -> Iterator[Row]:
    """A row for each size and dtype, checked and then timed."""
    for size, name in cases:
        torch.manual_seed(0)
        placed: Any = {"device": device, "dtype": DTYPES[name]}
        rnn = ClockworkRNN(size.inputs, size.n, schedule=size.modules, backend=backend, **placed)
        x = torch.randn(size.T, size.B, size.inputs, **placed)
        error = check(rnn, x)
        gradient = torch.randn(size.T, size.B, size.n, **placed)
        own = (time_on_device(forward_of(rnn, x)), time_on_device(training_of(rnn, x, gradient)))
        rival = nn.RNN(size.inputs, size.n, **placed)
        with warnings.catch_warnings():
            # cuDNN's layers of half precision are compacted at every call: that is torch's way, and is timed
            warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
            forward, training = (
                _if_it_fits(time_on_device, each) for each in (forward_of(rival, x), training_of(rival, x, gradient))
            )
        yield Row(size, name, error, own[0], forward, own[1], training)
        del rnn, rival, x, gradient
        torch.cuda.empty_cache()


def measure_ceilings(device: torch.device) -> tuple[dict[str, float], float]:
    """Multiply-adds per second of a large matrix product in each dtype, and the bytes per second of a copy."""
    rates = {}
    for name, dtype in DTYPES.items():
        left, right = (torch.randn(8192, 8192, device=device).to(dtype) for _ in range(2))
        allowed = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        rates[name] = 8192**3 / time_on_device(lambda left=left, right=right: torch.mm(left, right))  # type: ignore[misc]
        torch.backends.cuda.matmul.allow_tf32 = allowed
    source = torch.randn(2**28, device=device)
    target = torch.empty_like(source)
    return rates, 2 * source.nbytes / time_on_device(lambda: target.copy_(source))


def time_on_device(function: Callable[[], Any]) -> float:
    """The median seconds of one call among several turns of calls that follow each other without a pause."""
    for _ in range(2):
        function()
    once = _seconds(function, 1)
    calls = max(1, min(20, round(LONGEST / 5 / once)))
    turns = 5 if once < LONGEST else 3
    return sorted(_seconds(function, calls) for _ in range(turns))[turns // 2]


def _seconds(function: Callable[[], Any], calls: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(calls):
        function()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / calls


def _if_it_fits(measure: Callable[[Callable[[], Any]], float], function: Callable[[], Any]) -> float | None:
    try:
        return measure(function)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return None
