"""Layers: one of ours, torch's recurrent layers and the loop of the specification, all of the same size."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..cells import CELLS
from ..layer import ClockworkLayer
from ..network import LAYERS
from ..schedule import Schedule
from .timing import make_forward, make_training, take_turns

TORCH_LAYERS: dict[str, Callable[..., nn.Module]] = {"RNN": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}
"""The layers of torch.nn that are timed, by their names there."""

CELL_NAMES = {"RNN": "tanh", "LSTM": "lstm", "GRU": "gru"}
"""The cells of the layers."""

OUR_LAYERS: dict[str, Callable[..., ClockworkLayer[Any, Any]]] = {
    name: LAYERS[cell] for name, cell in CELL_NAMES.items()
}
"""Our layers, by the names of their counterparts in torch.nn."""

GATES = {name: CELLS[cell].gates for name, cell in CELL_NAMES.items()}
"""The gates of each layer."""

TIMED = ("cwrnn", *TORCH_LAYERS, "loop")
"""The layers of a row: ours, those of torch, and the specification, a loop over time in Python."""


TINY = 1e-30
"""The smallest number that an error is divided by: where zeros are expected, zeros have no error."""


class Size(NamedTuple):
    """The size of a layer and of its input."""

    units: int
    modules: int
    steps: int
    batch: int
    inputs: int

    @classmethod
    def parse(cls, text: str) -> "Size":
        """The size that `text` describes: five whole numbers, separated by commas.

        >>> Size.parse("1024,8,512,32,16")
        Size(units=1024, modules=8, steps=512, batch=32, inputs=16)
        """
        try:
            size = cls(*(int(part) for part in text.split(",")))
        except (TypeError, ValueError):
            raise argparse.ArgumentTypeError(
                f"{text!r} is not units,modules,steps,batch,inputs: five whole numbers such as 1024,8,512,32,32"
            ) from None
        if min(size) < 1 or size.modules > size.units:
            raise argparse.ArgumentTypeError(f"{text!r}: all five must be at least 1, and modules at most units")
        return size

    def __str__(self) -> str:
        return f"{self.units:5d} {self.modules:7d} {self.steps:5d} {self.batch:5d} {self.inputs:6d}"

    def record(self) -> dict[str, int]:
        """The size as plain data, for JSON.

        >>> Size(1024, 8, 512, 32, 16).record()
        {'n': 1024, 'modules': 8, 'T': 512, 'B': 32, 'inputs': 16}
        """
        return {"n": self.units, "modules": self.modules, "T": self.steps, "B": self.batch, "inputs": self.inputs}


SIZE_HEAD = "units modules steps batch inputs"

DEFAULT_SIZES = (
    Size(40, 8, 320, 1, 1),
    Size(102, 6, 100, 32, 13),
    Size(256, 8, 512, 32, 32),
    Size(1024, 8, 512, 32, 32),
    Size(1024, 8, 512, 1, 32),
)


class LayerRow(NamedTuple):
    """The measurements of one size: median seconds of each layer in TIMED."""

    size: Size
    layer: str
    backend: str
    error: float
    multiply_adds: int
    training_multiply_adds: int
    forward: dict[str, float]
    training: dict[str, float]

    def record(self) -> dict[str, Any]:
        """The row as plain data, for JSON; the ratios are those to the layer of torch.nn with the same cell."""
        return {
            **self.size.record(),
            **{name: getattr(self, name) for name in self._fields if name != "size"},
            "forward_ratio": self.forward[self.layer] / self.forward["cwrnn"],
            "training_ratio": self.training[self.layer] / self.training["cwrnn"],
        }


def count_multiply_adds(schedule: Schedule, T: int, B: int, inputs: int, gates: int = 1) -> tuple[int, int]:
    """The multiply-adds of the cascade in T steps from clock 0: forward, and forward + backward for the weights.

    >>> count_multiply_adds(Schedule((1, 2), (3, 3)), T=4, B=1, inputs=0)
    (72, 216)
    """
    recurrent = driven = 0
    for period, size, units in zip(schedule.periods, schedule.sizes, schedule.slices, strict=True):
        ticks = -(-T // period)
        recurrent += ticks * gates * size * units.stop * B
        driven += ticks * gates * size * inputs * B
    # backward multiplies twice by every recurrent weight, for the gradients of the state and of the weight, and once
    # by every input weight, for the gradient of the weight
    return recurrent + driven, 3 * recurrent + 2 * driven


def check(rnn: ClockworkLayer[Any, Any], input: Tensor) -> float:
    """The largest relative error of output and gradients against the specification; raises if it is not small.

    On a GPU, where a loop over time is very slow, the layer is compared with the cascade in float64.

    >>> from cwrnn import ClockworkRNN
    >>> check(ClockworkRNN(3, 8), torch.randn(20, 4, 3)) < 1e-4
    True
    """
    specified = _make_specified(rnn, input)
    # the layer runs on all sequences, as it will be timed; the specification is slow and runs on two of them
    chosen = [0, input.shape[1] - 1]

    def evaluate(layer: ClockworkLayer[Any, Any], x: Tensor, sequences: list[int]) -> list[Tensor]:
        output, state = layer(x)
        output, *last = (value[:, sequences] for value in (output, *(state if isinstance(state, tuple) else (state,))))
        # scaled such that no gradient is too small or too large for half precision
        loss = output.square().sum() / output.shape[0] ** 0.5 + sum(value.square().sum() for value in last)
        return [output, *torch.autograd.grad(loss, list(layer.parameters()))]

    return _compare(rnn, evaluate(rnn, input, chosen), evaluate(specified, input[:, chosen].double(), [0, 1]))


def check_end(rnn: ClockworkLayer[Any, Any], input: Tensor, steps: int) -> float:
    """The largest relative error of the last `steps` outputs against the specification; raises if it is not small.

    The specification starts from the layer's own state before these steps, so the check of a long input is cheap. It
    runs on two sequences.

    >>> from cwrnn import ClockworkLSTM
    >>> check_end(ClockworkLSTM(3, 8), torch.randn(50, 4, 3), steps=9) < 1e-4
    True
    """
    start = input.shape[0] - steps
    chosen = [0, input.shape[1] - 1]
    with torch.no_grad():
        _, state = rnn(input[:start])
        parts = [part[:, chosen].double() for part in (state if isinstance(state, tuple) else (state,))]
        before: Any = tuple(parts) if isinstance(state, tuple) else parts[0]
        expected, _ = _make_specified(rnn, input)(input[start:, chosen].double(), before, t0=start)
        return _compare(rnn, [rnn(input)[0][start:, chosen]], [expected])


def _make_specified(rnn: ClockworkLayer[Any, Any], input: Tensor) -> ClockworkLayer[Any, Any]:
    """A layer with the same weights that computes in float64 what the specification says."""
    specified = type(rnn)(
        rnn.input_size, rnn.hidden_size, device=input.device, dtype=torch.float64,
        schedule=rnn.schedule, backend="torch" if input.is_cuda else "reference",
    )  # fmt: skip
    specified.load_state_dict(rnn.state_dict())
    return specified


def _compare(rnn: ClockworkLayer[Any, Any], actual_values: list[Tensor], expected_values: list[Tensor]) -> float:
    errors = [
        (actual.double() - expected).abs().max() / expected.abs().max().clamp(min=TINY)
        for actual, expected in zip(actual_values, expected_values, strict=True)
        # without an input its weights are empty
        if expected.numel() > 0
    ]
    # the largest of torch is not a number if any error is not, unlike that of Python
    worst = torch.stack(errors).max().item()
    values = actual_values[0]
    tolerance = {torch.float64: 1e-9, torch.float32: 1e-4}.get(values.dtype, 0.03)
    if values.is_cuda and values.dtype == torch.float32 and torch.backends.cudnn.allow_tf32:
        tolerance = 0.01
    if not worst <= tolerance:
        raise AssertionError(
            f"backend {rnn.backend!r} does not equal the specification: relative error {worst:.1e} > {tolerance:.0e}; "
            "it is not timed"
        )
    return worst


def check_finite(layer: nn.Module, input: Tensor, gradient: Tensor) -> None:
    """Raises an AssertionError unless a layer gives finite outputs and gradients, the output as large as `gradient`.

    >>> check_finite(nn.GRU(3, 8), torch.randn(20, 4, 3), torch.randn(20, 4, 8))
    """
    output = layer(input)[0]
    output.backward(gradient)
    values = [output.detach(), *(parameter.grad for parameter in layer.parameters())]
    finite = all(value is not None and _is_finite(value) for value in values)
    layer.zero_grad()
    if output.shape != gradient.shape or not finite:
        name = type(layer).__name__
        name = f"torch.nn.{name}" if isinstance(layer, nn.RNNBase) else name
        raise AssertionError(f"{name} gives wrong or infinite results; it is not timed")


def _is_finite(value: Tensor) -> bool:
    # the extremes are not finite if any element is not; unlike isfinite, they need no memory of the tensor's size
    return value.numel() == 0 or bool(torch.stack(torch.aminmax(value)).isfinite().all())


def measure(
    sizes: Sequence[Size], layer: str, backend: str, repeats: int, device: torch.device, dtype: torch.dtype
) -> list[LayerRow]:
    """The rows of the table: all layers of all sizes are checked, and then timed in the same turns."""
    placed: Any = {"device": device, "dtype": dtype}
    functions: list[Callable[[], None]] = []
    checked = []
    for size in sizes:
        torch.manual_seed(0)
        rnn = OUR_LAYERS[layer](size.inputs, size.units, schedule=size.modules, backend=backend, **placed)
        x = torch.randn(size.steps, size.batch, size.inputs, **placed)
        gradient = torch.randn(size.steps, size.batch, size.units, **placed)
        error = check(rnn, x)
        counts = count_multiply_adds(rnn.schedule, size.steps, size.batch, size.inputs, GATES[layer])
        checked.append((error, *counts))
        loop = OUR_LAYERS[layer](size.inputs, size.units, schedule=size.modules, backend="reference", **placed)
        torch_layers = [make(size.inputs, size.units, **placed) for make in TORCH_LAYERS.values()]
        for torch_layer in torch_layers:
            check_finite(torch_layer, x, gradient)
        timed = [rnn, *torch_layers, loop]
        functions += [make_forward(module, x) for module in timed]
        functions += [make_training(module, x, gradient) for module in timed]
    seconds = iter(take_turns(functions, repeats, device))
    rows = []
    for size, numbers in zip(sizes, checked, strict=True):
        forward, training = ({name: next(seconds) for name in TIMED} for _ in range(2))
        rows.append(LayerRow(size, layer, backend, *numbers, forward, training))
    return rows


HEAD = (
    f"{'':50s} | {'cwrnn':^30s} | times faster than\n"
    f"{SIZE_HEAD}  {'pass':16s} | {'ms':>9s} {'us/step':>7s} {'GMAC/s':>6s} {'peak':>5s} | "
    + " ".join(f"{name:>7s}" for name in TIMED[1:])
)

LEGEND = (
    "peak: share of the peak above; RNN, LSTM, GRU: those of torch.nn with as many units;\n"
    "loop: the specification, a loop over time in Python"
)


def format_row(row: LayerRow, peak: float) -> str:
    """The row as two lines of text below HEAD: times, share of the measured peak, how many times faster than others."""
    lines = []
    passes = (
        (str(row.size), "forward", row.forward, row.multiply_adds),
        ("", "forward+backward", row.training, row.training_multiply_adds),
    )
    for size, name, seconds, count in passes:
        own = seconds["cwrnn"]
        rate = count / own
        times = f"{own * 1e3:9.3f} {own / row.size.steps * 1e6:7.2f} {rate / 1e9:6.1f} {rate / peak:5.0%}"
        ratios = " ".join(f"{seconds[other] / own:7.1f}" for other in TIMED[1:])
        lines.append(f"{size:32s}  {name:16s} | {times} | {ratios}")
    return "\n".join(lines)
