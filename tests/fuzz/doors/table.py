"""All doors: the function behind each, and the errors that may leave it."""

from . import (
    columns,
    command_lines,
    corpora,
    estimator_files,
    evaluation,
    forecaster_files,
    layers,
    model_files,
    npz_files,
    onnx_descriptions,
    paths,
    schedules,
    sounds,
    state_files,
    stores,
    tables,
)

FAMILIES = (
    model_files,
    estimator_files,
    forecaster_files,
    state_files,
    tables,
    sounds,
    corpora,
    npz_files,
    onnx_descriptions,
    columns,
    evaluation,
    stores,
    paths,
    schedules,
    layers,
    command_lines,
)
DOORS = {door.name: door for family in FAMILIES for door in family.DOORS}
