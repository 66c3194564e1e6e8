"""Layouts of the GPU kernel's recurrences that tests choose, in place of those that fit a GPU best."""

import contextlib
from typing import NamedTuple

import pytest

from cwrnn.kernels.gpu import launch, scan

from .emulated_gpu import forget_programs


class Cut(NamedTuple):
    """How modules are spread over blocks."""

    warps: int
    """Warps of a block."""
    tiles: int
    """Fragments of a warp."""
    split: int
    """Warps that share a sum."""
    message_parts: int
    """Blocks that share the messages of a module."""
    turns: int = 1
    """Tiles of sequences that a block computes by turns."""


@contextlib.contextmanager
def cutting(cut):
    """Makes the programs cut all modules like that; None leaves the choice to them."""
    with pytest.MonkeyPatch.context() as patch:
        if cut is not None:

            def choose_layout(largest, element_size, products, gates=1, registers=None):
                steps = scan.round_up(-(-largest * element_size // scan.STEP_BYTES), 2 * cut.split)
                return scan.Layout(steps, cut.warps, cut.tiles, cut.split, products, True, gates)

            patch.setattr(scan, "choose_layout", choose_layout)
            patch.setattr(scan, "_count_message_parts", lambda largest: cut.message_parts)
            patch.setattr(launch, "_choose_turns", lambda *_: cut.turns)
        forget_programs()
        yield
        forget_programs()
