"""Inspection of a saved network on a table: the columns that it reads and, if known, the one that it should return.

The rows are cut into sequences, which all begin with a state of zero. The columns are read as they are, except the
target of a network without input, which is scaled to [-1, 1] as in its training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...inspection import Array, compute_outputs
from ...inspection.feeding import CHANGE
from ...saved import SavedNetwork
from ..errors import ArgumentError
from ..generation.inspected import GeneratedSequence
from ..generation.music import read_column
from ..generation.training import nmse
from ..limits import LARGEST_LENGTH, check_count
from ..networks.methods import METHODS
from ..paper import GENERATION_SAMPLES
from ..report.drawing import COLOURS, MUTED, TARGET, fit_label
from ..report.numbers import format_count
from ..tables import Table, open_table
from .inspected import NMSE, InspectedNetwork, InspectionError, InspectionOptions, check_finite, get_layer

MOST_OUTPUTS = 5
"""How many outputs are drawn."""
CHANGE_FACT = "the mean square of its difference from the intact network's, divided by the variance of the latter"


@dataclass(frozen=True, eq=False)
class Outputs:
    """The outputs of a network over time, and the column that its first output should be."""

    name: str
    """The name of the target, or of the data if there is none."""
    target: NDArray[np.float64] | None
    """(T,): the target of the sequence that is shown."""
    scope = "all sequences"

    @property
    def purpose(self) -> str:
        """The name of the target or of the data."""
        return f"that predicts {self.name}" if self.target is not None else f"on {self.name}"

    @property
    def caption(self) -> str:
        """What is drawn."""
        if self.target is None:
            return "The top panel shows the output of the network."
        return "The top panel shows the output of the network (solid) and its target (dotted)."

    @property
    def signal(self) -> NDArray[np.float64] | None:
        """(T,): the target."""
        return self.target

    def draw(self, panel: Any, time: NDArray[Any], input: NDArray[Any], output: Array | None) -> None:
        """Draw the target, and the outputs over it."""
        assert output is not None
        if self.target is not None:
            panel.plot(time, self.target, linestyle=(0, (1, 1.1)), linewidth=1.3, color=TARGET, label="target")
        for i in reversed(range(min(MOST_OUTPUTS, output.shape[1]))):
            label = "output" if output.shape[1] == 1 else f"output {i}"
            panel.plot(time, output[:, i], color=COLOURS["cw"] if i == 0 else MUTED, label=label)
        panel.set_title(fit_label(self.name, 40), loc="left", fontsize=9)


def inspect_on_table(saved: SavedNetwork, facts: Mapping[str, str], options: InspectionOptions) -> InspectedNetwork:
    """Return a saved network with the sequences of a table."""
    options.refuse(("word",), "is for networks that tell words apart, but this one is inspected on a table")
    assert options.data is not None
    table = open_table(options.data)
    if saved.inputs == 0:
        return _inspect_generation(saved, table, facts, options)
    inputs, target = _select(saved, table, options)
    length = choose_length(len(inputs), options.length)
    sequences = cut_sequences(inputs, length)
    targets = None if target is None else cut_sequences(target[:, None], length)[..., 0]
    intact: list[NDArray[np.float64]] = []

    def measure(outputs: Sequence[Array]) -> dict[str, float]:
        check_finite(outputs, "the outputs of the network")
        if targets is not None:
            return {NMSE: nmse(np.stack(outputs)[..., 0], targets)}
        if not intact:
            intact.append(np.stack(compute_outputs(get_layer(saved.network), saved.network.readout, list(sequences))))
        if not intact[0].var() > 0:
            raise InspectionError(f"{table.source}: the outputs of the network are constant on it")
        return {CHANGE: float(np.square(np.stack(outputs) - intact[0]).mean() / intact[0].var())}

    looked_at = f"{format_count(len(sequences), 'sequence')} of {length} rows of {table.source}"
    more = {} if targets is not None else {"change of the output": CHANGE_FACT}
    return InspectedNetwork(
        task=saved.kind,
        name=METHODS[saved.method].label,
        layer=get_layer(saved.network),
        readout=saved.network.readout,
        inputs=list(sequences),
        measure=measure,
        shown=0,
        display=Outputs(options.target or table.name, None if targets is None else targets[0]),
        facts={**facts, "looked at with": looked_at, **more},
    )


def choose_length(rows: int, length: int | None) -> int:
    """Return the number of rows of a sequence: `length`, or 320, or all rows if there are fewer."""
    if length is None:
        return min(GENERATION_SAMPLES, rows)
    check_count("length", length, LARGEST_LENGTH, least=2)
    if length > rows:
        raise ArgumentError("length", f"expected at most {rows} rows, as many as the table has, got {length}")
    return length


def cut_sequences(values: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """Return (sequences, length, columns): the rows (rows, columns) cut; those that fill no sequence are left out.

    >>> cut_sequences(np.arange(5.0)[:, None], 2)[..., 0].tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """
    count = len(values) // length
    return values[: count * length].reshape(count, length, values.shape[1])


def _select(
    saved: SavedNetwork, table: Table, options: InspectionOptions
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Return the inputs (rows, I) and the target (rows,) of a network, whose numbers of inputs and outputs must fit."""
    names = options.inputs
    if names is None:
        names = [name for name in table.columns if name != options.target]
    if len(names) != saved.inputs:
        raise ArgumentError(
            "inputs", f"expected {saved.inputs} columns, as many as the network has inputs, got {len(names)}"
        )
    if options.target is not None and saved.outputs != 1:
        raise ArgumentError("target", f"expected none for a network of {saved.outputs} outputs, got {options.target!r}")
    inputs = table.select(names, "inputs")
    if options.target is None:
        return inputs, None
    target = table.select([options.target], "target")[:, 0]
    if not target.max() > target.min():
        raise ArgumentError("target", f"{table.source}: the column {options.target!r} is constant")
    return inputs, target


def _inspect_generation(
    saved: SavedNetwork, table: Table, facts: Mapping[str, str], options: InspectionOptions
) -> InspectedNetwork:
    """Return a saved network without input, with the column that it should generate."""
    options.refuse(("inputs",), "is for networks with input, but this one has none")
    if saved.outputs != 1:
        raise InspectionError(f"{facts['model']}: a network without input must have one output, got {saved.outputs}")
    if options.length is not None:
        check_count("length", options.length, LARGEST_LENGTH, least=2)
    dataset = read_column(table, target=options.target, length=options.length)

    def measure(outputs: Sequence[Array]) -> dict[str, float]:
        check_finite(outputs, "the outputs of the network")
        return {NMSE: nmse(outputs[0][:, 0], dataset.samples)}

    return InspectedNetwork(
        task=saved.kind,
        name=METHODS[saved.method].label,
        layer=get_layer(saved.network),
        readout=saved.network.readout,
        inputs=[np.empty((len(dataset.samples), 0))],
        measure=measure,
        shown=0,
        display=GeneratedSequence(dataset),
        facts={**facts, "looked at with": dataset.source},
    )
