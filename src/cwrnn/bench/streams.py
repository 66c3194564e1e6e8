"""Many streams: one step of a StreamPool, beside as many calls of `step`, and a cell of torch on the whole batch.

Every stream has its own clock. In the last line of each size only one stream in ten has input. A cell of torch has no
clocks, so all its streams are one batch; it computes every unit at every step.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..cells import CELLS
from ..layer import AnyLayer
from ..streams import StreamPool
from .layers import OUR_LAYERS, check
from .timing import median_ratio, time_turns

SIZES = ((1, 128), (10, 128), (100, 128), (1000, 128), (1000, 1024))
"""Streams and units."""
MODULES, INPUTS = 8, 13
CHECKED_STEPS = 20
SHORTEST = 0.1
"""Seconds of a turn: short, so that other jobs disturb all functions of a line alike."""

TORCH_CELLS: dict[str, type[nn.RNNCellBase]] = {"RNN": nn.RNNCell, "LSTM": nn.LSTMCell, "GRU": nn.GRUCell}
"""The cells of torch.nn, by the names of our layers."""

HEAD = f"{'one step of':35s} {'pool':>12s} {'one by one':>12s} {'times':>7s} {'cell of torch':>14s}  {'times':>6s}"
LEGEND = "times: how many times as long as the pool, the median over the turns"


class StreamsRow(NamedTuple):
    """Median seconds of one step, and the medians over the turns of the ratios to the pool."""

    name: str
    streams: int
    stepped: int
    units: int
    pool: float
    alone: float
    torch: float
    alone_ratio: float
    torch_ratio: float

    def record(self) -> dict[str, Any]:
        """The row as plain data, for JSON."""
        return self._asdict()

    def __str__(self) -> str:
        pool, alone, batch = (f"{seconds * 1e6:9.1f} us" for seconds in (self.pool, self.alone, self.torch))
        return f"{self.name:35s} {pool} {alone} {self.alone_ratio:7.1f} {batch:>14s} {self.torch_ratio:7.1f}"


def measure(layer: str, backend: str, repeats: int, device: torch.device, dtype: torch.dtype) -> Iterator[StreamsRow]:
    """The rows of the table; a pool is timed only if its streams equal the same streams alone."""
    for streams, units in SIZES:
        for stepped in (streams, streams // 10) if streams >= 10 else (streams,):
            yield _measure_row(layer, streams, stepped, units, backend, repeats, device, dtype)


def _measure_row(
    layer: str,
    streams: int,
    stepped: int,
    units: int,
    backend: str,
    repeats: int,
    device: torch.device,
    dtype: torch.dtype,
) -> StreamsRow:
    torch.manual_seed(0)
    placed: Any = {"device": device, "dtype": dtype}
    rnn = OUR_LAYERS[layer](INPUTS, units, schedule=MODULES, backend=backend, **placed).eval()
    cell = TORCH_CELLS[layer](INPUTS, units, **placed)
    x = torch.randn(CHECKED_STEPS, stepped, INPUTS, **placed)
    check(rnn, x[:, :2])
    keys = list(range(streams))[:: streams // stepped][:stepped]
    pool, alone = _make_pool(rnn, streams, placed), _make_alone(rnn, keys, placed)
    for x_t in x:
        torch.testing.assert_close(pool.step(keys, x_t), alone(x_t.split(1)), rtol=1e-3, atol=1e-4)
    zeros = torch.zeros(stepped, units, **placed)
    state: Any = (zeros, zeros) if layer == "LSTM" else zeros

    @torch.no_grad()
    def run_cell() -> None:
        nonlocal state
        state = cell(x[0], state)

    rows = x[0].split(1)
    functions: list[Callable[[], Any]] = [lambda: pool.step(keys, x[0]), lambda: alone(rows), run_cell]
    turns = time_turns(functions, repeats, device, SHORTEST)
    part = "" if stepped == streams else f"{stepped} of "
    name = f"{part}{streams} streams, {units} units"
    ratios = [median_ratio(other, turns[0]) for other in turns[1:]]
    medians = [statistics.median(seconds) for seconds in turns]
    return StreamsRow(name, streams, stepped, units, *medians, *ratios)


def _make_state(rnn: AnyLayer, number: int, batched: bool, placed: Any) -> Any:
    """A state of zeros at a clock that differs from stream to stream."""
    shape = (1, 1, rnn.hidden_size) if batched else (1, rnn.hidden_size)
    parts = [torch.zeros(shape, **placed) for _ in range(CELLS[rnn.cell].parts)]
    return rnn._state_type(*parts, 37 * number % 1000)


def _make_pool(rnn: AnyLayer, streams: int, placed: Any) -> StreamPool:
    pool = StreamPool(rnn, capacity=streams)
    for number in range(streams):
        pool.open(number, _make_state(rnn, number, False, placed))
    return pool


def _make_alone(rnn: AnyLayer, keys: list[int], placed: Any) -> Callable[[Sequence[Tensor]], Tensor]:
    """A function that makes one step of every stream by itself, each from its own input (1, I)."""
    states = [_make_state(rnn, number, True, placed) for number in keys]

    @torch.no_grad()
    def run(rows: Sequence[Tensor]) -> Tensor:
        outputs = []
        for number, row in enumerate(rows):
            y, states[number] = rnn.step(row, states[number])
            outputs.append(y)
        return torch.cat(outputs)

    return run
