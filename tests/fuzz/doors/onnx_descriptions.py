"""The JSON beside ONNX models, which OnnxStepper reads before it runs them."""

import functools
import json
import tempfile
from pathlib import Path
from random import Random

import numpy as np
import torch

from cwrnn import ClockworkLSTM
from cwrnn.export import OnnxStepper, to_onnx

from ..door import Door, require
from ..mutation import mutate_json

DESCRIPTION = {"cell": "lstm", "periods": [2, 3], "sizes": [3, 2], "layers": 1, "inputs": 2, "outputs": 5, "labels": []}
"""The description of the models."""


@functools.cache
def list_models() -> dict[str, bytes]:
    """Return the files of an exported network by their names."""
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng():
        torch.manual_seed(0)
        files = to_onnx(ClockworkLSTM(2, 5, schedule=[2, 3]), Path(folder, "out")).files
        return {file.name: file.read_bytes() for file in files}


def make_description_case(random: Random) -> bytes:
    """Return a description with a few changes."""
    return mutate_json(random, json.dumps(DESCRIPTION)).encode("utf-8", "surrogatepass")


def step_models(case: bytes, folder: Path) -> None:
    """Open the models with the description, and make some steps."""
    for name, content in {**list_models(), "network.json": case}.items():
        (folder / name).write_bytes(content)
    stepper = OnnxStepper(folder)
    for _ in range(7):
        output = stepper.step(np.ones((1, 2)))
        require(output.shape == (1, 5), f"an output of the shape {output.shape}")
    require(len(stepper.labels) in (0, 5), f"{len(stepper.labels)} labels for 5 outputs")


DOORS = (Door("onnx-description", "OnnxStepper", (ValueError,), make_description_case, step_models),)
