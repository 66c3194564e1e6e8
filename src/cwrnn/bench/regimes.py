"""Other regimes: many small networks at once, one step of a stream, and how time grows with the size."""

import copy
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from ..readout import Readout
from ..rnn import ClockworkRNN
from . import timing
from .layers import check
from .timing import make_forward, make_training, median_ratio, take_turns, time_turns


class Comparison(NamedTuple):
    """Seconds of cwrnn and of torch for the same work."""

    name: str
    ours: float
    theirs: float

    def record(self) -> dict[str, Any]:
        """The comparison as plain data, for JSON."""
        return {**self._asdict(), "ratio": self.theirs / self.ours}


def measure_replicas(S: int, backend: str, repeats: int, device: torch.device, dtype: torch.dtype) -> Comparison:
    """A training step of S networks of the paper's task 1 in one call, against S networks of torch.nn.RNN in turn."""
    n, modules, T = 40, 8, 320
    torch.manual_seed(0)
    placed: Any = {"device": device, "dtype": dtype}
    target = torch.randn(T, 1, 1, **placed)
    networks = [_Generator(ClockworkRNN(0, n, schedule=modules, backend=backend, **placed), 0, n) for _ in range(S)]
    check(networks[0].rnn, torch.empty(T, 2, 0, **placed))
    parameters, _ = stack_module_state(networks)
    optimizer = torch.optim.SGD(list(parameters.values()), lr=1e-5, momentum=0.95, nesterov=True)
    template = copy.deepcopy(networks[0])

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        output = functional_call(template, parameters, (T,))
        error: Tensor = (output - target).square().sum() / 2
        return error

    def ours() -> None:
        optimizer.zero_grad()
        vmap(loss)(parameters).sum().backward()
        optimizer.step()

    # torch.nn.RNN does not accept an input of size 0: it gets one feature that is zero
    dense = [_Generator(nn.RNN(1, n, **placed), 1, n) for _ in range(S)]
    optimizers = [torch.optim.SGD(network.parameters(), lr=1e-5, momentum=0.95, nesterov=True) for network in dense]

    def theirs() -> None:
        for network, optimizer in zip(dense, optimizers, strict=True):
            optimizer.zero_grad()
            ((network(T) - target).square().sum() / 2).backward()
            optimizer.step()

    name = f"training step of {S} replicas, {n} units, {modules} modules, T = {T}"
    return Comparison(name, *take_turns([ours, theirs], max(1, repeats // 2), device))


class _Generator(nn.Module):
    """A network that generates a sequence: a recurrent layer on an input of zeros, and a linear readout."""

    def __init__(self, rnn: Any, inputs: int, n: int) -> None:
        super().__init__()
        self.rnn = rnn
        weight = rnn.weight_hh_l0
        self.readout = nn.Linear(n, 1, device=weight.device, dtype=weight.dtype)
        self.inputs = inputs

    def forward(self, T: int) -> Tensor:
        """The generated sequence (T, 1, 1)."""
        weight = self.rnn.weight_hh_l0
        output, _ = self.rnn(weight.new_zeros(T, 1, self.inputs))
        value: Tensor = self.readout(output)
        return value


def measure_step(n: int, backend: str, repeats: int, device: torch.device, dtype: torch.dtype) -> Comparison:
    """One step of a stream, averaged over many, against one step of torch.nn.RNNCell."""
    torch.manual_seed(0)
    placed: Any = {"device": device, "dtype": dtype}
    inputs, modules, T = 32, 8, LONG // 4
    rnn = ClockworkRNN(inputs, n, schedule=modules, backend=backend, **placed)
    cell = nn.RNNCell(inputs, n, **placed)
    x = torch.randn(T, 1, inputs, **placed)

    @torch.no_grad()
    def ours(keep: Callable[[Tensor], None] = lambda y: None) -> None:
        state = None
        for x_t in x:
            y, state = rnn.step(x_t, state)
            keep(y)

    @torch.no_grad()
    def theirs() -> None:
        h = x.new_zeros(1, n)
        for x_t in x:
            h = cell(x_t, h)

    check(rnn, x[:, :1].expand(-1, 2, -1))
    outputs: list[Tensor] = []
    ours(outputs.append)
    with torch.no_grad():
        torch.testing.assert_close(torch.stack(outputs), rnn(x)[0], rtol=1e-3, atol=1e-4)
    seconds = take_turns([ours, theirs], repeats, device)
    return Comparison(f"one step, {n} units, {modules} modules", *(total / T for total in seconds))


GROWTH = {
    "units": (64, 128, 256, 512, 1024),
    "steps": (512, 1024, 2048, 4096, 8192),
    "sequences": (1, 2, 4, 8, 16, 32, 64),
    "modules": (4, 8, 16),
}
"""The values of each axis that grows."""

LONG = 16384
"""Steps of a long sequence, in which work that is done once per call does not count."""

MORE_TURNS = 5
"""The turns of growth for each turn of the other regimes. They are half as long, because neighbours on a curve are
compared turn by turn."""


GROWTH_HEAD = (
    f"{'how time grows':17s} | {'forward':^25s} | {'forward + backward':^25s}\n"
    f"{'with':10s} {'to':>6s} | {'ms':>9s} {'us/step':>8s} {'times':>6s} | {'ms':>9s} {'us/step':>8s} {'times':>6s}"
)


class GrowthPoint(NamedTuple):
    """One point of a curve: seconds forward and forward + backward, and their ratios to those of the point before."""

    axis: str
    value: int
    T: int
    forward: float
    training: float
    forward_ratio: float | None
    training_ratio: float | None


def measure_growth(
    backend: str, repeats: int, device: torch.device, dtype: torch.dtype, report: Callable[[GrowthPoint], None]
) -> list[GrowthPoint]:
    """How time grows with the units, the steps, the sequences and the modules, one of them at a time."""
    placed: Any = {"device": device, "dtype": dtype}
    points: list[GrowthPoint] = []

    def curve(axis: str, cases: list[tuple[int, Any, Tensor, Tensor]]) -> None:
        functions = [f for _, model, x, g in cases for f in (make_forward(model, x), make_training(model, x, g))]
        # the points of a curve take turns, so that other jobs disturb all of them. Turns are not cut into slices: the
        # first calls of a slice find the caches full of the outputs of other points, and would decide a short slice
        turns = time_turns(functions, MORE_TURNS * repeats, device, timing.SHORTEST / 2)
        before: list[list[float]] | None = None
        for (value, _, x, _), *both in zip(cases, turns[::2], turns[1::2], strict=True):
            ratios = (None, None) if before is None else tuple(map(median_ratio, both, before))
            points.append(GrowthPoint(axis, value, x.shape[0], *map(statistics.median, both), *ratios))
            report(points[-1])
            before = both

    def case(value: int, n: int, modules: int, T: int, B: int) -> tuple[int, Any, Tensor, Tensor]:
        rnn = ClockworkRNN(32, n, schedule=modules, backend=backend, **placed)
        return value, rnn, torch.randn(T, B, 32, **placed), torch.randn(T, B, n, **placed)

    curve("units", [case(n, n, 8, 512, 16) for n in GROWTH["units"]])
    curve("steps", [case(T, 256, 8, T, 32) for T in GROWTH["steps"]])
    curve("sequences", [case(B, 256, 8, 512, B) for B in GROWTH["sequences"]])
    # with the readout at tick rate, because the held output itself would grow with the modules
    T, B, k = LONG, 8, 64
    x, gradient = torch.randn(T, B, 32, **placed), torch.randn(T, B, 8, **placed)
    networks = {G: ClockworkRNN(32, k * G, schedule=G, backend=backend, **placed) for G in GROWTH["modules"]}
    curve("modules", [(G, _ReadOut(rnn), x, gradient) for G, rnn in networks.items()])
    return points


class _ReadOut(nn.Module):
    """A layer and its readout at tick rate."""

    def __init__(self, rnn: ClockworkRNN) -> None:
        super().__init__()
        self.rnn = rnn
        weight = rnn.weight_hh_l0
        self.readout = Readout(rnn.hidden_size, 8, device=weight.device, dtype=weight.dtype)

    def forward(self, x: Tensor) -> tuple[Any]:
        """The readout at every step; the held output is never built."""
        ticks, _ = self.rnn.ticks(x)
        return (self.readout(ticks),)
