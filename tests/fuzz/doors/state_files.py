"""The files of states: one clock and clocks of many sequences, with changes in their metadata and tensors."""

import functools
import tempfile
from pathlib import Path
from random import Random

import torch

from cwrnn import LSTMState, State, load_state, save_state
from cwrnn.saved import ModelError

from ..door import Door, require
from .model_files import make_case


@functools.cache
def list_state_samples() -> tuple[bytes, ...]:
    """Return valid files: a State of one sequence, an LSTMState of a batch, and states of many clocks."""
    h = torch.arange(12.0).view(2, 2, 3)
    states = [
        State(h[:, 0], 7),
        LSTMState(h, -h, 2**40),
        State(h.double(), torch.tensor([3, 9])),
        LSTMState(h.bfloat16(), h.bfloat16(), torch.tensor([0, 1])),
    ]
    files = []
    with tempfile.TemporaryDirectory() as folder:
        for state in states:
            save_state(Path(folder, "state"), state)
            files.append(Path(folder, "state").read_bytes())
    return tuple(files)


def make_state_case(random: Random) -> bytes:
    """Return the file of a state with a few changes."""
    return make_case(random, list_state_samples())


def read_state(case: bytes, folder: Path) -> None:
    """Load the file, save the state, and load it again."""
    path = folder / "state.safetensors"
    path.write_bytes(case)
    state = load_state(path)
    save_state(folder / "again", state)
    again = load_state(folder / "again")
    require(type(again) is type(state), "saved again, it has another type")
    for one, other in zip(again, state, strict=True):
        same = torch.equal(one.nan_to_num(), other.nan_to_num()) if isinstance(one, torch.Tensor) else one == other
        require(same, "saved again, it is another state")


DOORS = (Door("state", "load_state, save_state", (ModelError,), make_state_case, read_state),)
