"""Small sweeps, and the content of stores as plain values that can be compared."""

import math

import numpy as np

from cwrnn.experiments.generation.task import GENERATION
from cwrnn.experiments.sweep.batches import make_batches
from cwrnn.experiments.sweep.driver import train_missing
from cwrnn.experiments.sweep.run import Dataset
from cwrnn.experiments.sweep.store import Store, StoreError
from cwrnn.experiments.sweep.workers import train_locally

STEPS = 12


def wave(name="wave", phase=0.0, steps=STEPS):
    samples = np.sin(0.7 * np.arange(steps) + phase)
    return Dataset(name, 8000, samples / np.abs(samples).max(), f"a test's {name}")


def plan(datasets, **options):
    """Return the runs of two methods, two sizes and two seeds; `options` replace these."""
    options = {"methods": ["srn", "cw"], "sizes": [100, 250], "runs": 2, "epochs": 3, **options}
    return GENERATION.plan(datasets, **options)


def sweep(path, datasets, runs, train=None, observe=lambda event: None):
    """Train the runs that the store at `path` lacks, in this process or with the engine `train`."""
    with Store.open(path, create=True) as store:
        for dataset in datasets:
            store.add_dataset(dataset)
        train_missing(
            store, make_batches(runs, datasets), train or (lambda batches: train_locally(batches, 1)), observe
        )


def contents(path, task="generation"):
    """Return everything in a store except times: records by key, and data sets by name."""
    with Store.read(path) as store:
        records = {
            record.key: (
                record.run,
                record.parameters,
                record.schedule,
                record.status,
                "NaN" if math.isnan(record.error) else record.error,
                "NaN" if math.isnan(record.best_error) else record.best_error,
                record.best_epoch,
                record.epochs,
                None if record.curve is None else (record.curve.shape, record.curve.tobytes()),
                None if record.output is None else (record.output.shape, record.output.tobytes()),
                record.weights
                and {name: (value.shape, value.tobytes()) for name, value in sorted(record.weights.items())},
                record.traceback,
                dict(record.environment),
            )
            for record in store.records(task)
        }
        datasets = {name: (dataset.rate, dataset.digest, dataset.source) for name, dataset in store.datasets().items()}
    return records, datasets


def times(path):
    """Return when each run was finished, by key. The dictionary is empty if there is no store."""
    try:
        with Store.read(path) as store:
            return {record.key: record.finished_at for record in store.records()}
    except StoreError as error:
        if "there is no store" not in str(error):
            raise
        return {}
