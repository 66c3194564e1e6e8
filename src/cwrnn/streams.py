"""StreamPool: many streams through one layer, each with its own clock, and one call per time step for all of them."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import count
from threading import RLock
from typing import Any

import torch
from torch import Tensor

from .backends import make_stream_slots
from .cells import CELLS
from .checks import LATEST, check_clock, check_clocks, check_features, is_autocast_on
from .layer import AnyLayer, ClockworkLayer
from .step import LSTMState, State


class StreamPool:
    """Many streams through one layer: they come and go, and all that have input make a step in one call.

    Every stream has its own clock and gets the output that `layer.step` computes for it alone. On the CPU, in float32
    and float64, the C kernel computes a step: states and messages stay in memory, and only the modules that are due
    are computed, for all streams together. Elsewhere the pool calls `layer.step` with the states of the streams.

    The pool computes without gradients. Changed weights are noticed as `layer.step` notices them. Several
    threads may use a pool: `open`, `close`, `state` and `step` run one after another, each when the one before has
    returned. A pool cannot be pickled or copied, but the states of its streams can.

    Args:
        layer: a ClockworkRNN, ClockworkLSTM or ClockworkGRU, in one direction
        capacity: the number of streams to make room for at first; the pool doubles its memory when it is full

    >>> import cwrnn
    >>> pool = cwrnn.StreamPool(cwrnn.ClockworkRNN(3, 8))
    >>> pool.open("anna"), pool.open("bert")
    ('anna', 'bert')
    >>> y = pool.step(["anna", "bert"], torch.randn(2, 3))
    >>> y = pool.step(["bert"], torch.randn(1, 3))  # the others do not advance
    >>> y.shape, pool.state("anna").t, pool.state("bert").t
    (torch.Size([1, 8]), 1, 2)
    >>> state = pool.close("bert")
    >>> pool.open("bert again", state)  # continues after two steps
    'bert again'
    >>> list(pool)
    ['anna', 'bert again']
    """

    def __init__(self, layer: AnyLayer, capacity: int = 64) -> None:
        if not isinstance(layer, ClockworkLayer):
            raise TypeError(
                f"layer should be a ClockworkRNN, ClockworkLSTM or ClockworkGRU, got: {type(layer).__name__}"
            )
        if layer.bidirectional:
            raise RuntimeError("a bidirectional layer reads a sequence from its end, so it cannot process streams")
        if isinstance(capacity, bool) or not isinstance(capacity, int):
            raise TypeError(f"capacity should be of type int, got: {type(capacity).__name__}")
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self.layer = layer
        weight = layer._parameter("weight_hh_l0")
        self._placed = weight.device, weight.dtype
        self._made_for = layer.schedule, layer.backend, layer.cell
        self._memory = _make_memory(layer)
        self._clocks = torch.zeros(0, dtype=torch.int64, device="cpu")
        self._slots: dict[Hashable, int] = {}
        self._free: list[int] = []
        self._numbers = count()
        # the kernel runs without the interpreter's lock; a finalizer may close a stream in the middle of a call
        self._lock = RLock()
        self._last: tuple[list[Hashable], Tensor] | None = None
        self._grow(capacity)

    @property
    def capacity(self) -> int:
        """The number of streams that the pool has room for before it grows."""
        return self._clocks.shape[0]

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: object) -> bool:
        return key in self._slots

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._slots)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # the kernel knows the memory of the pool by its address, which a copy would not own
        raise TypeError(
            "a StreamPool cannot be pickled or copied: save pool.state(key) of every stream, and open the streams in a "
            "new pool with these states"
        )

    def __repr__(self) -> str:
        return f"StreamPool({self.layer!r}, {len(self)} streams)"

    def open(self, key: Hashable = None, state: Any = None) -> Hashable:
        """Adds a stream, and returns its key.

        Args:
            key: anything hashable that no other stream has; None takes the next free number
            state: the state from which the stream continues: what `close` or `state` returned, or a state of the layer
                for one sequence, batched or not. Default: zeros at clock 0
        """
        if isinstance(key, Tensor):
            # equal tensors have different hashes
            raise TypeError("key should not be a Tensor: pass key.item(), or another hashable value")
        with self._lock:
            if key is None:
                key = next(number for number in self._numbers if number not in self._slots)
            if key in self._slots:
                raise ValueError(f"the stream {key!r} is open already")
            self._check_layer()
            joined, t = self._check_state(state)
            if not self._free:
                self._grow(2 * self.capacity)
            slot = self._free.pop()
            self._memory.write(slot, joined)
            self._clocks[slot] = t
            self._slots[key] = slot
            self._last = None
            return key

    def close(self, key: Hashable) -> Any:
        """Removes a stream, and returns its state."""
        with self._lock:
            state = self.state(key)
            self._free.append(self._slots.pop(key))
            self._last = None
            return state

    def state(self, key: Hashable) -> Any:
        """A copy of the state of a stream, unbatched: a State, or an LSTMState for an LSTM."""
        with self._lock:
            slot = self._find_slot(key)
            joined, t = self._memory.read(slot), int(self._clocks[slot])
        if self.layer._state_type is State:
            return State(joined, t)
        h, c = (part.clone() for part in joined.chunk(2, dim=-1))
        return LSTMState(h, c, t)

    @torch.no_grad()
    def step(self, keys: Sequence[Hashable], input: Tensor) -> Tensor:
        """One time step of the streams `keys`; returns their outputs (n, N). All other streams stay as they are.

        Args:
            keys: n streams, all different
            input: (n, I), the input of each of them
        """
        layer = self.layer
        if layer.training and layer.dropout > 0 and layer.num_layers > 1:
            raise RuntimeError(f"layer is in training mode with dropout={layer.dropout}: call layer.eval() first")
        if isinstance(keys, (str, bytes, Tensor)) or not isinstance(keys, Iterable):
            raise TypeError(f"keys should be a sequence of keys, got: {type(keys).__name__}")
        if not isinstance(input, Tensor):
            raise TypeError(f"input should be a Tensor, got: {type(input).__name__}")
        with self._lock:
            slots = self._find_slots(list(keys))
            if input.dim() != 2 or input.shape[0] != slots.shape[0]:
                raise ValueError(
                    f"input must have one row per key, shape ({slots.shape[0]}, {layer.input_size}), "
                    f"got {tuple(input.shape)}"
                )
            self._check_layer()
            if input.dtype != self._placed[1]:
                # autocast does not apply: the states keep the dtype of the weights
                raise ValueError(f"input must be {self._placed[1]}, as the weights of the layer, got {input.dtype}")
            check_features(input, 2, layer.input_size, layer._parameter("weight_ih_l0"))
            return self._memory.step(input, slots, self._clocks)

    def _find_slot(self, key: Hashable) -> int:
        try:
            return self._slots[key]
        except KeyError:
            raise KeyError(f"there is no stream {key!r} in the pool") from None

    def _find_slots(self, keys: list[Hashable]) -> Tensor:
        """The slots (n,) of n streams; refuses a key that is unknown or occurs twice."""
        # a server often steps the same streams as before: to compare the keys is faster than to find them again
        if self._last is not None and self._last[0] == keys:
            return self._last[1]
        slots = [self._find_slot(key) for key in keys]
        if len(set(slots)) < len(slots):
            twice = next(key for place, key in enumerate(keys) if key in keys[:place])
            raise ValueError(f"keys has {twice!r} twice: a stream makes one step per call")
        found = torch.tensor(slots, dtype=torch.int64, device="cpu")
        self._last = keys, found
        return found

    def _check_layer(self) -> None:
        """Refuses a layer that was converted, or got another schedule, backend or cell, after the pool was made."""
        layer = self.layer
        schedule, backend, cell = self._made_for
        other = layer.schedule is not schedule and layer.schedule != schedule
        if other or layer.backend != backend or layer.cell != cell:
            raise RuntimeError(
                f"the layer now has schedule={layer.schedule.spec!r}, backend={layer.backend!r} and the cell "
                f"{layer.cell!r}, but the pool was made for {schedule.spec!r}, {backend!r} and {cell!r}: make a "
                "new pool, and open its streams with the states of this one"
            )
        weight = layer._parameter("weight_hh_l0")
        if (weight.device, weight.dtype) != self._placed:
            device, dtype = self._placed
            raise RuntimeError(
                f"the weights of the layer are now {weight.dtype} on {weight.device}, but the states of the pool are "
                f"{dtype} on {device}: make a new pool, and open its streams with state.to(...)"
            )

    def _check_state(self, state: Any) -> tuple[Tensor, int]:
        """The joined state (num_layers, parts N) and the clock with which a stream begins."""
        layer = self.layer
        parts, N = CELLS[layer.cell].parts, layer.hidden_size
        device, dtype = self._placed
        if state is None:
            return torch.zeros(layer.num_layers, parts * N, device=device, dtype=dtype), 0
        if not isinstance(state, layer._state_type):
            raise TypeError(f"state should be of type {layer._state_type.__name__}, got: {type(state).__name__}")
        *given, t = state
        if not all(isinstance(part, Tensor) and part.dim() in (2, 3) for part in given):
            raise ValueError("state must have tensors (num_layers, N) or (num_layers, 1, N), those of one sequence")
        hidden = [part.detach() if part.dim() == 3 else part.detach().unsqueeze(1) for part in given]
        for part in hidden:
            if part.shape != (layer.num_layers, 1, N) or (part.device, part.dtype) != self._placed:
                raise ValueError(
                    f"state must have tensors ({layer.num_layers}, {N}) of {dtype} on {device}, as the layer, "
                    f"got {tuple(part.squeeze(1).shape)} of {part.dtype} on {part.device}"
                )
        t = check_clock("state.t", t)
        if isinstance(t, Tensor):
            check_clocks("state.t", t, 1)
            t = int(t[0])
        if t > LATEST:
            raise ValueError(f"state.t must be at most 2**62, got {t}")
        return torch.cat(hidden, dim=-1).squeeze(1), t

    def _grow(self, capacity: int) -> None:
        before = self.capacity
        self._memory.grow(capacity)
        with torch.inference_mode(False):
            clocks = torch.zeros(capacity, dtype=torch.int64, device="cpu")
            clocks[:before] = self._clocks
        self._clocks = clocks
        # the lowest slots are taken first
        self._free += range(capacity - 1, before - 1, -1)


class _KernelMemory:
    """The streams in the slots of a kernel, one set of slots for each layer."""

    def __init__(self, layer: AnyLayer, slots: list[Any]) -> None:
        self._layer = layer
        self._slots = slots

    def grow(self, capacity: int) -> None:
        for slots in self._slots:
            slots.grow(capacity)

    def write(self, slot: int, joined: Tensor) -> None:
        for slots, state in zip(self._slots, joined, strict=True):
            slots.write(slot, state)

    def read(self, slot: int) -> Tensor:
        return torch.stack([slots.read(slot) for slots in self._slots])

    def step(self, x: Tensor, slots: Tensor, clocks: Tensor) -> Tensor:
        # all layers are checked before one of them steps
        for memory, weights in zip(self._slots, _list_weights(self._layer), strict=True):
            memory.prepare(weights)
        for memory in self._slots:
            x = memory.step(x, slots, clocks, advance=memory is self._slots[-1])
        return x


class _PlainMemory:
    """The states of all streams in one tensor, for any backend: a step gathers and scatters them."""

    def __init__(self, layer: AnyLayer) -> None:
        weight = layer._parameter("weight_hh_l0")
        self._layer = layer
        self._states = weight.new_empty((layer.num_layers, 0, CELLS[layer.cell].parts * layer.hidden_size))
        self._states = self._states.detach()

    def grow(self, capacity: int) -> None:
        with torch.inference_mode(False), torch.no_grad():
            L, before, size = self._states.shape
            states = self._states.new_zeros((L, capacity, size))
            states[:, :before] = self._states
        self._states = states

    def write(self, slot: int, joined: Tensor) -> None:
        self._states[:, slot] = joined

    def read(self, slot: int) -> Tensor:
        return self._states[:, slot].clone()

    def step(self, x: Tensor, slots: Tensor, clocks: Tensor) -> Tensor:
        places = slots.to(self._states.device)
        h = self._states.index_select(1, places)
        state = self._layer._state_type(*h.chunk(CELLS[self._layer.cell].parts, dim=-1), clocks[slots])
        if is_autocast_on(x.device):
            with torch.autocast(x.device.type, enabled=False):
                y, after = self._layer.step(x, state)
        else:
            y, after = self._layer.step(x, state)
        self._states.index_copy_(1, places, torch.cat(after[:-1], dim=-1))
        clocks.index_copy_(0, slots, after.t)
        return y


def _make_memory(layer: AnyLayer) -> _KernelMemory | _PlainMemory:
    slots = make_stream_slots(layer.backend, layer.schedule, layer.cell, _list_weights(layer))
    return _PlainMemory(layer) if slots is None else _KernelMemory(layer, slots)


def _list_weights(layer: AnyLayer) -> list[Any]:
    """The weights of every layer."""
    return [layer._weights(f"_l{number}", layer._parameter("weight_hh_l0").dtype) for number in range(layer.num_layers)]
