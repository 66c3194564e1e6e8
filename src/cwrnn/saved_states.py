"""Saved states: the state of one or many streams in one safetensors file.

    tensors     h, and c for an LSTM: float64, or float32 for every other dtype
    metadata    `cwrnn`, a JSON object: version; state, the name of its type; dtype; t, a clock or a list of clocks;
                sha256

The file is a tensor file (tensor_files.py): loading executes no code from it, and every change is detected. A
ModelError refuses a file that has another format, is damaged or does not make sense.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .checks import check_clock, check_clocks
from .step import LSTMState, State
from .tensor_files import DTYPES, FormatError, name_problems, read_tensors, write_tensors
from .untrusted import shorten

TYPES: dict[str, Any] = {"State": State, "LSTMState": LSTMState}
"""The types of states by their names in a file."""

FLOATS = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""The dtypes of states by their names in a file."""

CLOCKS = 2**63
"""A clock in a file is less than this."""


def save_state(path: str | os.PathLike[str], state: State | LSTMState) -> None:
    """Writes a state to `path`, completely or not at all; an existing file is replaced. It needs safetensors.

    Raises an OSError if the file cannot be written, and a ValueError if `load_state` would refuse it: if a clock is
    too large, or if the clocks of millions of sequences make its header too long.

    Args:
        path: the file
        state: a State or an LSTMState, batched or not, with one clock or with one for each sequence

    >>> import tempfile
    >>> state = State(torch.ones(1, 2, 8), t=torch.tensor([5, 9]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_state(f"{folder}/streams.safetensors", state)
    ...     loaded = load_state(f"{folder}/streams.safetensors")
    >>> torch.equal(loaded.h, state.h), loaded.t
    (True, tensor([5, 9]))
    """
    kind = next((name for name, kind in TYPES.items() if isinstance(state, kind)), None)
    if kind is None:
        raise TypeError(f"state should be a State or an LSTMState, got: {type(state).__name__}")
    *parts, t = state
    if not all(isinstance(part, Tensor) for part in parts):
        raise TypeError(f"the parts of state should be Tensors, got: {', '.join(type(p).__name__ for p in parts)}")
    dtype = next((name for name, dtype in FLOATS.items() if all(part.dtype == dtype for part in parts)), None)
    if dtype is None:
        found = " and ".join(str(part.dtype) for part in parts)
        raise ValueError(f"state must have one of the dtypes {', '.join(FLOATS)} in all its tensors, got {found}")
    _check_shapes([tuple(part.shape) for part in parts])
    clock = check_clock("state.t", t)
    if isinstance(clock, Tensor):
        check_clocks("state.t", clock, parts[0].shape[1] if parts[0].dim() == 3 else None)
    elif clock >= CLOCKS:
        raise ValueError(f"state.t must be at most 2**63 - 1, which is what a file can hold, got {clock}")
    time = clock.tolist() if isinstance(clock, Tensor) else clock
    stored = "<f8" if dtype == "float64" else "<f4"
    values = [part.detach().to(device="cpu", dtype=torch.float64).numpy() for part in parts]
    arrays = {name: np.ascontiguousarray(value, stored) for name, value in zip("hc", values, strict=False)}
    write_tensors(
        Path(path), {"state": kind, "dtype": dtype, "t": time}, arrays, extra="experiments", purpose="saving states"
    )


def load_state(path: str | os.PathLike[str]) -> Any:
    """The state saved in `path`, on the CPU; raises a ModelError that names the problem if there is one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_state(f"{folder}/stream.safetensors", LSTMState(torch.ones(1, 8), torch.zeros(1, 8), t=5))
    ...     load_state(f"{folder}/stream.safetensors").t
    5
    """
    path = Path(path)
    with name_problems(path):
        return _assemble(*read_tensors(path))


def _assemble(metadata: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> State | LSTMState:
    """The state with this metadata and these arrays, all of which are checked before anything is built."""
    if set(metadata) != {"version", "state", "dtype", "t"}:
        raise FormatError("this is not the state of a stream")
    kind, dtype = metadata["state"], metadata["dtype"]
    for name, value, known in (("state", kind, TYPES), ("dtype", dtype, FLOATS)):
        if not isinstance(value, str) or value not in known:
            raise FormatError(f"{name} must be one of {', '.join(known)}, got {shorten(repr(value))}")
    names = "hc"[: 2 if kind == "LSTMState" else 1]
    if sorted(arrays) != sorted(names):
        raise FormatError(f"expected the tensors {', '.join(names)}, got {shorten(str(sorted(arrays)))}")
    stored = DTYPES["F64" if dtype == "float64" else "F32"]
    if any(array.dtype != stored for array in arrays.values()):
        raise FormatError(f"the tensors of a state of {dtype} must be {stored}")
    try:
        _check_shapes([arrays[name].shape for name in names])
    except ValueError as error:
        raise FormatError(str(error)) from error
    shape = arrays["h"].shape
    t = _check_time(metadata["t"], shape[1] if len(shape) == 3 else None)
    parts = [torch.from_numpy(arrays[name].copy()).to(FLOATS[dtype]) for name in names]
    state: State | LSTMState = TYPES[kind](*parts, t)
    return state


def _check_shapes(shapes: list[tuple[int, ...]]) -> None:
    """Refuses shapes that no state has."""
    if len(shapes[0]) not in (2, 3) or any(shape != shapes[0] for shape in shapes):
        raise ValueError(f"a state has tensors (num_layers, B, N) or (num_layers, N), got {shorten(str(shapes))}")


def _check_time(t: Any, batch: int | None) -> int | Tensor:
    """The clock, or the clocks of a batch, from a file."""
    clocks: list[Any] = t if isinstance(t, list) else [t]
    if not all(type(clock) is int and 0 <= clock < CLOCKS for clock in clocks):
        raise FormatError(f"t must be from 0 to 2**63 - 1, or a list of such numbers, got {shorten(repr(t))}")
    if not isinstance(t, list):
        return int(t)
    if len(clocks) != batch:
        sequences = "one sequence" if batch is None else f"{batch} sequences"
        raise FormatError(f"t has {len(clocks)} clocks for {sequences}")
    return torch.tensor(clocks, dtype=torch.int64)
