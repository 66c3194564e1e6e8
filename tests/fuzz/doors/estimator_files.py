"""Doors for the files of estimators: a classifier and a regressor, with changes in their metadata and tensors."""

import functools
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from cwrnn.estimators import ClockworkClassifier, ClockworkRegressor
from cwrnn.tensor_files import ModelError

from ..door import Door, require
from .model_files import make_case


@functools.cache
def list_estimator_samples(kind: type[Any]) -> tuple[bytes, ...]:
    """Return valid files: one fitted to a table, and one with two layers and directions fitted to sequences."""
    random = np.random.default_rng(0)
    table, y = random.normal(size=(12, 5)), np.arange(12) % 3
    sequences = [random.normal(size=(length, 2)) for length in range(3, 15)]
    options: dict[str, Any] = {"max_epochs": 1, "random_state": 0, "device": "cpu"}
    estimators = [
        kind(hidden_size=4, schedule=[1, 2], **options).fit(table, y),
        kind(hidden_size=3, cell="gru", num_layers=2, bidirectional=True, **options).fit(sequences, y),
    ]
    files = []
    with tempfile.TemporaryDirectory() as folder:
        for estimator in estimators:
            estimator.save(Path(folder, "model"))
            files.append(Path(folder, "model").read_bytes())
    return tuple(files)


def load_estimator(kind: type[Any], case: bytes, folder: Path) -> None:
    """Load the file, predict with the estimator, save it, and load it again."""
    path = folder / "model.safetensors"
    path.write_bytes(case)
    estimator = kind.load(path).set_params(device="cpu")
    # sequences, because the rows of a table may have to be of any length
    sequences = [np.ones((length, estimator.n_channels_)) for length in (1, 4, 40)]
    predicted = estimator.predict(sequences)
    require(len(predicted) == 3, f"{len(predicted)} predictions for 3 sequences")
    if kind is ClockworkClassifier:
        probabilities = estimator.predict_proba(sequences)
        require(np.allclose(probabilities.sum(axis=1), 1), f"not probabilities: {probabilities[:3]}")
    else:
        require(bool(np.isfinite(predicted).all()), f"not finite: {predicted[:3]}")
    estimator.save(folder / "again")
    again = kind.load(folder / "again").set_params(device="cpu").predict(sequences)
    require(np.array_equal(again, predicted), "saved again, it predicts something else")


def make_estimator_case(kind: type[Any], random: Random) -> bytes:
    """Return the file of an estimator with a few changes."""
    return make_case(random, list_estimator_samples(kind))


DOORS = tuple(
    Door(
        name,
        f"{kind.__name__}.load, predict",
        (ModelError, FloatingPointError),
        functools.partial(make_estimator_case, kind),
        functools.partial(load_estimator, kind),
    )
    for name, kind in (("classifier", ClockworkClassifier), ("regressor", ClockworkRegressor))
)
