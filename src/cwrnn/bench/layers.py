"""Layers: one against torch.nn.RNN, torch.nn.LSTM and the loop of the specification, of the same size."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..layer import ClockworkRNN
from ..schedule import Schedule
from .timing import forward_of, take_turns, training_of


class Size(NamedTuple):
    """One line of the table."""

    n: int
    modules: int
    T: int
    B: int
    inputs: int

    @classmethod
    def parse(cls, text: str) -> "Size":
        """The size that `text` names: five whole numbers, separated by commas.

        >>> Size.parse("1024,8,512,32,32")
        Size(n=1024, modules=8, T=512, B=32, inputs=32)
        """
        try:
            size = cls(*(int(part) for part in text.split(",")))
        except (TypeError, ValueError):
            raise argparse.ArgumentTypeError(
                f"{text!r} is not n,modules,T,B,inputs: five whole numbers such as 1024,8,512,32,32"
            ) from None
        if min(size) < 1 or size.modules > size.n:
            raise argparse.ArgumentTypeError(f"{text!r}: all five must be at least 1, and modules at most n")
        return size

    def __str__(self) -> str:
        return f"{self.n:5d} {self.modules:3d} {self.T:5d} {self.B:4d} {self.inputs:4d}"


DEFAULT_SIZES = (
    Size(40, 8, 320, 1, 1),
    Size(102, 6, 100, 32, 13),
    Size(256, 8, 512, 32, 32),
    Size(1024, 8, 512, 32, 32),
    Size(1024, 8, 512, 1, 32),
)

RIVALS = ("cwrnn", "RNN", "LSTM", "loop")
"""This layer; torch.nn.RNN; torch.nn.LSTM; the specification, one loop over time in Python."""


class Row(NamedTuple):
    """What was measured for one size: seconds, medians, of each rival."""

    size: Size
    backend: str
    error: float
    multiply_adds: int
    training_multiply_adds: int
    forward: dict[str, float]
    training: dict[str, float]

    def record(self) -> dict[str, Any]:
        """All of it as plain data, for JSON."""
        return {
            **self.size._asdict(),
            **{name: getattr(self, name) for name in self._fields if name != "size"},
            "forward_ratio": self.forward["RNN"] / self.forward["cwrnn"],
            "training_ratio": self.training["RNN"] / self.training["cwrnn"],
        }


def count_multiply_adds(schedule: Schedule, T: int, B: int, inputs: int) -> tuple[int, int]:
    """What the cascade multiplies in T steps from 0: forward, and with backward for the weights.

    >>> count_multiply_adds(Schedule((1, 2), (3, 3)), T=4, B=1, inputs=0)
    (72, 216)
    """
    recurrent = driven = 0
    for period, size, units in zip(schedule.periods, schedule.sizes, schedule.slices, strict=True):
        ticks = -(-T // period)
        recurrent += ticks * size * units.stop * B
        driven += ticks * size * inputs * B
    # backward multiplies by every weight twice: for the gradient of what came in, and for its own
    return recurrent + driven, 3 * recurrent + 2 * driven


def check(rnn: ClockworkRNN, input: Tensor) -> float:
    """The largest relative error of output and gradients against the specification; raises if it is not small.

    On a GPU, where a loop over time is very slow, against the cascade in float64.
    """
    specified = ClockworkRNN(
        rnn.input_size, rnn.hidden_size, device=input.device, dtype=torch.float64,
        schedule=rnn.schedule, backend="torch" if input.is_cuda else "reference",
    )  # fmt: skip
    specified.load_state_dict(rnn.state_dict())
    # the layer runs as it will be timed, but the specification, which is slow, on two of the sequences only
    chosen = [0, input.shape[1] - 1]

    def evaluate(layer: ClockworkRNN, x: Tensor, sequences: list[int]) -> list[Tensor]:
        output, h_n = (value[:, sequences] for value in layer(x))
        # such that no gradient is too small or too large for half precision
        loss = output.square().sum() / output.shape[0] ** 0.5 + h_n.square().sum()
        return [output, *torch.autograd.grad(loss, list(layer.parameters()))]

    worst = 0.0
    found_values = evaluate(rnn, input, chosen)
    for found, expected in zip(found_values, evaluate(specified, input[:, chosen].double(), [0, 1]), strict=True):
        if expected.numel() == 0:  # the weights of no input
            continue
        error = (found.double() - expected).abs().max() / expected.abs().max()
        worst = max(worst, error.item())
    tolerance = {torch.float64: 1e-9, torch.float32: 1e-4}.get(input.dtype, 0.03)
    if input.is_cuda and input.dtype == torch.float32 and torch.backends.cudnn.allow_tf32:
        tolerance = 0.01
    if not worst <= tolerance:
        raise AssertionError(
            f"backend {rnn.backend!r} does not equal the specification: relative error {worst:.1e} > {tolerance:.0e}; "
            "it is not timed"
        )
    return worst


def measure(sizes: Sequence[Size], backend: str, repeats: int, device: torch.device, dtype: torch.dtype) -> list[Row]:
    """The lines of the table, checked and then timed: all take turns, so that each is spread over the whole time."""
    placed: Any = {"device": device, "dtype": dtype}
    functions: list[Callable[[], None]] = []
    checked = []
    for size in sizes:
        torch.manual_seed(0)
        rnn = ClockworkRNN(size.inputs, size.n, schedule=size.modules, backend=backend, **placed)
        x = torch.randn(size.T, size.B, size.inputs, **placed)
        gradient = torch.randn(size.T, size.B, size.n, **placed)
        checked.append((check(rnn, x), *count_multiply_adds(rnn.schedule, size.T, size.B, size.inputs)))
        loop = ClockworkRNN(size.inputs, size.n, schedule=size.modules, backend="reference", **placed)
        rivals = [rnn, nn.RNN(size.inputs, size.n, **placed), nn.LSTM(size.inputs, size.n, **placed), loop]
        functions += [forward_of(layer, x) for layer in rivals]
        functions += [training_of(layer, x, gradient) for layer in rivals]
    seconds = iter(take_turns(functions, repeats, device))
    rows = []
    for size, found in zip(sizes, checked, strict=True):
        forward, training = ({name: next(seconds) for name in RIVALS} for _ in range(2))
        rows.append(Row(size, backend, *found, forward, training))
    return rows


HEAD = (
    "    n   G     T    B    I |  forward ms   us/step  GMAC/s  peak |   RNN  LSTM  loop "
    "|  training ms  us/step  GMAC/s  peak |   RNN  LSTM  loop"
)


def line(row: Row, peak: float) -> str:
    """The row as text, below HEAD: times, share of the measured peak, how many times faster than each rival."""
    parts = [str(row.size)]
    for seconds, count in ((row.forward, row.multiply_adds), (row.training, row.training_multiply_adds)):
        own = seconds["cwrnn"]
        rate = count / own
        parts.append(f"{own * 1e3:11.3f} {own / row.size.T * 1e6:9.2f} {rate / 1e9:7.1f} {rate / peak:5.0%}")
        parts.append(" ".join(f"{seconds[name] / own:5.1f}" for name in RIVALS[1:]))
    return " | ".join(parts)
