"""The comparison of exported files with the specification, in onnxruntime."""

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...reference import clockwork_reference
from ..model import ExportError, Model
from .graph import require_onnx
from .sequence import list_states
from .stepper import OnnxStepper

TOLERANCE = 1e-3
"""The largest error, relative to the largest number. A wrong graph is off by much more, float32 by much less."""

LONGEST = 300
"""The most steps of a sequence that is compared, whatever the periods are."""


def compare_files(model: Model, folder: str | PathLike[str], name: str) -> float:
    """The largest relative error of the files in `folder` against the specification in float64.

    `onnx.checker` reads every file. Then onnxruntime runs sequences of several lengths, from several times of the clock
    and in several batches, and the same sequences step by step.

    Args:
        model: the model that was exported
        folder: the folder of the files
        name: the name of the network in that folder

    Raises an ExportError if a file is not valid or computes something else.
    """
    onnx = require_onnx()
    for path in sorted(Path(folder).glob(f"{name}*.onnx")):
        try:
            onnx.checker.check_model(str(path), full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            raise ExportError(f"{path} is not a valid ONNX file: {error}") from error
    runtime = require_onnx("onnxruntime")
    path = Path(folder) / f"{name}.onnx"
    try:
        session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:
        # onnxruntime has many errors without a common base
        raise ExportError(f"onnxruntime cannot load {path}: {error}") from error
    worst = 0.0
    generator = np.random.default_rng(0)
    for T, B, t0 in list_cases(model):
        inputs, expected = _draw_case(model, generator, T, B, t0)
        fed = dict(inputs)
        if model.batch_first:
            fed["input"] = fed["input"].swapaxes(0, 1)
        output, *states = session.run(None, fed)
        actual = [output.swapaxes(0, 1) if model.batch_first else output, *states]
        worst = max(worst, _compare(f"{path} with T = {T}, B = {B}, t0 = {t0}", actual, expected))

        stepper = OnnxStepper(folder, name, batch=B)
        stepper.set_state(inputs["h_0"], inputs.get("c_0"), t=t0)
        steps = np.stack([stepper.step(x) for x in inputs["input"]])
        actual = [steps, stepper.h] if stepper.c is None else [steps, stepper.h, stepper.c]
        worst = max(worst, _compare(f"the steps of {path} with T = {T}, B = {B}, t0 = {t0}", actual, expected))
    return worst


def evaluate(
    model: Model, input: NDArray[Any], states: list[NDArray[Any]], t0: int
) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """The output (T, B, O) of a model and its final state, computed by the specification in float64.

    Args:
        model: the model
        input: (T, B, I)
        states: (layers, B, N), the initial state: h, and for an LSTM c
        t0: the clock at the first step
    """

    def convert(array: Any) -> Any:
        return None if array is None else torch.tensor(array, dtype=torch.float64)

    value, finals = convert(input), []
    for number, layer in enumerate(model.layers):
        initial = np.concatenate([state[number] for state in states], axis=-1)
        held = clockwork_reference(
            value,
            convert(layer.weight_ih),
            convert(layer.weight_hh),
            convert(layer.bias),
            convert(initial),
            layer.schedule,
            t0,
            layer.cell,
            convert(layer.weight_ch),
        )
        finals.append(held[-1])
        value = held[..., : layer.units]
    if model.readout_weight is not None:
        value = torch.nn.functional.linear(value, convert(model.readout_weight), convert(model.readout_bias))
    if model.softmax:
        value = value.log_softmax(-1)
    final = torch.stack(finals).numpy()
    return value.numpy(), np.split(final, len(states), axis=-1)


def list_cases(model: Model) -> Iterator[tuple[int, int, int]]:
    """T, B and t0 of the sequences that are compared."""
    longest = model.layers[0].schedule.periods[-1]
    few, many = min(max(longest // 2, 2), LONGEST), min(2 * longest + 3, LONGEST)
    yield from ((1, 1, 0), (1, 2, 1), (few, 1, 3), (many, 3, 0), (many, 1, longest - 1), (few, 2, 1_000_003))


def _draw_case(
    model: Model, generator: np.random.Generator, T: int, B: int, t0: int
) -> tuple[dict[str, NDArray[Any]], list[NDArray[np.float64]]]:
    """Random inputs of the model, and the outputs that it should have."""
    input = generator.standard_normal((T, B, model.inputs)).astype(np.float32)
    shape = len(model.layers), B, model.layers[-1].units
    states = [generator.uniform(-0.5, 0.5, shape).astype(np.float32) for _ in list_states(model)]
    output, final = evaluate(model, input, states, t0)
    names = [f"{state}_0" for state in list_states(model)]
    return {"input": input, **dict(zip(names, states, strict=True)), "t0": np.array(t0)}, [output, *final]


def _compare(what: str, actual: list[NDArray[Any]], expected: list[NDArray[np.float64]]) -> float:
    worst = 0.0
    for one, other in zip(actual, expected, strict=True):
        if one.shape != other.shape:
            raise ExportError(f"{what} has an output of shape {one.shape}, expected {other.shape}")
        error = float(np.abs(one - other).max() / max(1.0, np.abs(other).max()))
        # before the maximum, which drops an error that is NaN
        if not error <= TOLERANCE:
            raise ExportError(
                f"{what} differs from the network: relative error {error:.1e}, expected at most {TOLERANCE:.0e}"
            )
        worst = max(worst, error)
    return worst
