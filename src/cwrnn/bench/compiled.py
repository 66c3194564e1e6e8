"""Compiled layers: how much longer a small layer takes after torch.compile, and a layer of torch with the same output.

The difference is the same for large layers, where nobody sees it: it is the time of the checks before and the wrappers
around a compiled graph, and of the call of an operator.
"""

import statistics
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..rnn import ClockworkRNN
from .layers import Size, check
from .timing import median_ratio, time_turns

SIZE = Size(units=104, modules=8, steps=200, batch=16, inputs=13)
SHORTEST = 0.1
"""Seconds of a turn: short, so that other jobs disturb both layers of a pair alike."""

HEAD = f"{'':40s} {'eager':>11s} {'compiled':>11s} {'more':>11s}  times"
LEGEND = "more: how much longer the compiled layer takes; times: the median over the turns of the ratio"


class CompiledRow(NamedTuple):
    """Median seconds of one call in eager mode and compiled, and the median over the turns of their ratio."""

    name: str
    eager: float
    compiled: float
    ratio: float

    def record(self) -> dict[str, Any]:
        """The row as plain data, for JSON."""
        return {**self._asdict(), "more": self.compiled - self.eager}

    def __str__(self) -> str:
        seconds = self.eager, self.compiled, self.compiled - self.eager
        return f"{self.name:40s} {' '.join(f'{value * 1e6:8.0f} us' for value in seconds)} {self.ratio:6.2f}"


class _Linear(nn.Linear):
    """A linear layer that returns a tuple, as a recurrent layer does."""

    def forward(self, input: Tensor) -> tuple[Tensor]:  # type: ignore[override]
        """The product with the weights, plus the bias."""
        return (super().forward(input),)


def measure(backend: str, repeats: int, device: torch.device, dtype: torch.dtype) -> Iterator[CompiledRow]:
    """Times ClockworkRNN, torch.nn.Linear and torch.nn.RNN, each in eager mode and compiled, side by side."""
    torch.manual_seed(0)
    placed: Any = {"device": device, "dtype": dtype}
    rnn = ClockworkRNN(SIZE.inputs, SIZE.units, schedule=SIZE.modules, backend=backend, **placed)
    layers = {
        "cwrnn": rnn,
        "Linear": _Linear(SIZE.inputs, SIZE.units, **placed),
        "RNN": nn.RNN(SIZE.inputs, SIZE.units, **placed),
    }
    x = torch.randn(SIZE.steps, SIZE.batch, SIZE.inputs, **placed)
    check(rnn, x)
    for name, layer in layers.items():
        for half in (False, True):
            for training in (False, True):
                # graphs of the rows before would have to be ruled out in every call
                torch.compiler.reset()
                functions = [_make_call(call, layer, x, half, training) for call in (layer, torch.compile(layer))]
                eager, compiled = time_turns(functions, repeats, device, SHORTEST)
                title = f"{name}, {'forward + backward' if training else 'forward'}{', autocast' if half else ''}"
                ratio = median_ratio(compiled, eager)
                yield CompiledRow(title, statistics.median(eager), statistics.median(compiled), ratio)


def _make_call(
    call: Callable[[Tensor], Any], layer: nn.Module, x: Tensor, half: bool, training: bool
) -> Callable[[], None]:
    """A function that calls the layer on x, with gradients if `training`, under autocast to bfloat16 if `half`."""
    dtype = torch.bfloat16 if half else x.dtype
    gradient = torch.randn(SIZE.steps, SIZE.batch, SIZE.units, device=x.device, dtype=dtype)

    def run() -> None:
        # the eager layer drops the gradients of both: a compiled module searches longer for its parameters
        layer.zero_grad()
        with torch.set_grad_enabled(training), torch.autocast(x.device.type, torch.bfloat16, enabled=half):
            output = call(x)[0]
        if training:
            output.backward(gradient)

    return run
