"""Inspection of a network that reads columns: on the test part of its table, or on another table."""

from collections.abc import Mapping, Sequence

import numpy as np

from ...inspection import Array
from ..errors import ArgumentError
from ..generation.training import nmse
from ..inspect.columns import Outputs
from ..inspect.inspected import NMSE, InspectedNetwork, InspectionOptions, check_finite, explain_weights, get_layer
from ..networks.methods import METHODS
from ..report.numbers import format_count
from ..sweep.run import Record
from ..tables import open_table
from . import training
from .columns import Columns, Sequences


def inspect_record(
    record: Record, columns: Columns, facts: Mapping[str, str], options: InspectionOptions
) -> InspectedNetwork:
    """Return the network of a run, with the test part of its own columns or with all rows of another table."""
    options.refuse(("word",), "is for networks that tell words apart, but this one reads a table")
    assert record.weights is not None
    run = record.run
    assert isinstance(run.settings, training.RegressionSettings)
    with explain_weights(f"{facts['store']}: the weights of the run {record.key[:12]}"):
        network = training.load_network(run.method, run.hidden, record.weights, run.settings)
    if options.data is None:
        options.refuse(("inputs", "target", "length"), "is for another table: name it with data")
        sequences, looked_at = columns.parts["test"], "the test part"
    else:
        sequences, looked_at = _read_sequences(columns, options)

    def measure(outputs: Sequence[Array]) -> dict[str, float]:
        check_finite(outputs, "the outputs of the network")
        return {NMSE: nmse(np.stack(outputs)[..., 0], sequences.targets)}

    count = format_count(len(sequences.targets), "sequence")
    return InspectedNetwork(
        task="regression",
        name=METHODS[run.method].label,
        layer=get_layer(network),
        readout=network.readout,
        inputs=list(sequences.inputs),
        measure=measure,
        shown=0,
        display=Outputs(columns.target_column, sequences.targets[0]),
        facts={**facts, "looked at with": f"{looked_at}: {count} of {sequences.targets.shape[1]} rows, normalised"},
    )


def _read_sequences(columns: Columns, options: InspectionOptions) -> tuple[Sequences, str]:
    """Return the sequences of another table, normalised as in training, and the name of the table."""
    assert options.data is not None
    table = open_table(options.data)
    names = list(options.inputs or columns.input_columns)
    if len(names) != len(columns.input_columns):
        raise ArgumentError("inputs", f"expected {len(columns.input_columns)} columns, got {len(names)}")
    target = options.target or columns.target_column
    inputs, values = table.select(names, "inputs"), table.select([target], "target")[:, 0]
    length = columns.length if options.length is None else options.length
    if not 2 <= length <= len(values):
        raise ArgumentError("length", f"expected 2 to {len(values)} rows, as many as the table has, got {length}")
    sequences = columns.normalise(inputs, values, length)
    if not sequences.targets.max() > sequences.targets.min():
        raise ArgumentError("target", f"{table.source}: the column {target!r} is constant")
    return sequences, table.source
