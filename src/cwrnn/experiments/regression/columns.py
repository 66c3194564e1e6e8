"""Columns: the data of regression, columns of a table that networks read and a column that they return.

    rows of the table   | sequence | sequence | sequence | ... | sequence | sequence |  rest
                        |<-------- training ---------->|<- validation ->|<-- test -->|

The rows are cut into sequences of the same length, in their order; rows that fill no sequence are left out at the end.
The last fifth of the sequences is the test part, and the fifth before it the validation part, which ends the training
and chooses clocks. Every column is normalised by its mean and deviation over the training part.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...untrusted import escape_controls
from ..errors import ArgumentError
from ..inspect.columns import cut_sequences
from ..paper import GENERATION_SAMPLES
from ..tables import Table, TableError

LEAST_SEQUENCES = 3
"""One for training, one for validation and one for the test."""
USUAL_SEQUENCES = 20
"""The least number of sequences, unless the user chooses their length."""
HELD_OUT = 5
"""One sequence in so many belongs to the validation part, and one to the test part."""


class Sequences(NamedTuple):
    """Normalised sequences."""

    inputs: NDArray[np.float32]
    """(n, T, I)"""
    targets: NDArray[np.float64]
    """(n, T)"""


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns that networks read, and the column that they return at every row.

    Raises a ValueError if there is too little to learn, or nothing.
    """

    kind: ClassVar[str] = "columns"
    name: str
    source: str
    """Where the columns come from, for people to read."""
    inputs: NDArray[np.float64]
    """(rows, I)"""
    target: NDArray[np.float64]
    """(rows,)"""
    input_columns: tuple[str, ...]
    """The names of the columns of `inputs`."""
    target_column: str
    length: int
    """The rows of a sequence."""

    def __post_init__(self) -> None:
        if self.inputs.ndim != 2 or self.target.shape != self.inputs.shape[:1] or self.inputs.shape[1] < 1:
            raise ValueError(
                f"inputs must be (rows, I) and the target (rows,), got {self.inputs.shape} and {self.target.shape}"
            )
        if len(self.input_columns) != self.inputs.shape[1]:
            raise ValueError(f"{self.inputs.shape[1]} inputs need as many names, got {len(self.input_columns)}")
        if self.length < 2 or len(self.target) < LEAST_SEQUENCES * self.length:
            raise ValueError(
                f"{LEAST_SEQUENCES} sequences of at least 2 rows are needed, got {len(self.target)} rows for sequences "
                f"of {self.length}"
            )
        if not (np.isfinite(self.inputs).all() and np.isfinite(self.target).all()):
            raise ValueError("all numbers must be finite")
        for name, part in self.parts.items():
            if not part.targets.max() > part.targets.min():
                raise ValueError(f"the column {self.target_column!r} is constant in its {name} part")

    @cached_property
    def digest(self) -> str:
        """The hash of the numbers and of the length of a sequence."""
        numbers = np.ascontiguousarray(np.column_stack((self.inputs, self.target)), dtype="<f8")
        return hashlib.sha256(f"{numbers.shape} {self.length} ".encode() + numbers.tobytes()).hexdigest()

    @property
    def counts(self) -> dict[str, int]:
        """The number of sequences of each part, in the order of the rows.

        >>> columns = Columns("", "", np.ones((70, 1)), np.arange(70.0), ("x",), "y", 10)
        >>> columns.counts
        {'training': 5, 'validation': 1, 'test': 1}
        """
        every = len(self.target) // self.length
        held_out = max(1, every // HELD_OUT)
        return {"training": every - 2 * held_out, "validation": held_out, "test": held_out}

    @cached_property
    def scales(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(I + 1,) each: mean and deviation of the inputs and of the target over the training part."""
        rows = self.counts["training"] * self.length
        numbers = np.column_stack((self.inputs, self.target))[:rows]
        deviation = numbers.std(axis=0)
        # a column that is constant in training tells nothing there
        return numbers.mean(axis=0), np.where(deviation > 0, deviation, 1.0)

    @cached_property
    def parts(self) -> dict[str, Sequences]:
        """The normalised sequences of each part."""
        sequences = self.normalise(self.inputs, self.target)
        found, start = {}, 0
        for name, count in self.counts.items():
            end = start + count
            found[name] = Sequences(sequences.inputs[start:end], sequences.targets[start:end])
            start = end
        return found

    def normalise(
        self, inputs: NDArray[np.float64], target: NDArray[np.float64], length: int | None = None
    ) -> Sequences:
        """Return columns (rows, I) and (rows,) as sequences, normalised as those of the training.

        Args:
            inputs: (rows, I)
            target: (rows,)
            length: the rows of a sequence. Default: those of the training
        """
        mean, deviation = self.scales
        numbers = cut_sequences((np.column_stack((inputs, target)) - mean) / deviation, length or self.length)
        return Sequences(numbers[..., :-1].astype(np.float32), numbers[..., -1])


def read_columns(
    table: Table,
    *,
    inputs: Sequence[str] | None,
    target: str | None,
    offset: float = 0.0,
    length: int | None = None,
) -> Columns:
    """Return columns of a table.

    Args:
        table: the table
        inputs: the names of the columns that networks read
        target: the name of the column that they return
        offset: the first row, counted from 0
        length: rows of a sequence. Default: 320, or fewer, so that there are at least 20 sequences

    >>> rows = np.arange(400.0)
    >>> columns = read_columns(Table.from_columns({"x": rows, "y": rows % 24}, "town"), inputs=["x"], target="y")
    >>> columns.name, columns.length, columns.counts
    ('town y', 20, {'training': 12, 'validation': 4, 'test': 4})
    """
    if not inputs:
        raise ArgumentError("inputs", "expected the names of columns that networks read, got none")
    if target is None:
        raise ArgumentError("target", "expected the name of the column that networks return, got none")
    if target in inputs:
        raise ArgumentError("inputs", f"expected other columns than the target, got {target!r}")
    table.select([target], "target")
    numbers = table.select([*inputs, target], "inputs")
    # a whole number, but possibly too large for an integer
    numbers = numbers[int(min(np.rint(offset), len(numbers))) :]
    if length is None:
        length = max(2, min(GENERATION_SAMPLES, len(numbers) // USUAL_SEQUENCES))
    name = escape_controls(f"{table.name} {target}")
    source = f"{table.source}, columns {', '.join(map(repr, inputs))} and the target {target!r}"
    source += f", from row {offset:.15g} on" if offset else ""
    try:
        return Columns(name, source, numbers[:, :-1], numbers[:, -1], tuple(inputs), target, length)
    except ValueError as error:
        raise TableError(f"{table.source}: {error}") from error
