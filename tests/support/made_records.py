"""Records of untrained and briefly trained networks, for tests of figures and pages."""

import dataclasses
import functools
import math

import numpy as np

from cwrnn.experiments.generation import training
from cwrnn.experiments.generation.task import GENERATION
from cwrnn.experiments.generation.training import GenerationSettings
from cwrnn.experiments.networks.build import build_network
from cwrnn.experiments.sweep.run import Dataset, Record, Run
from cwrnn.experiments.task import find_task
from cwrnn.experiments.words.corpus import Corpus, Utterance
from cwrnn.experiments.words.features import FeatureSettings
from cwrnn.experiments.words.training import WordSettings, build_untrained

ENVIRONMENT = {"cwrnn": "0.1.0", "commit": "0" * 40, "torch": "2.13.0", "python": "3.12", "machine": "a machine",
               "threads": "1", "backend": "cpu"}  # fmt: skip
HIDDEN = {"srn": {100: 3, 200: 4}, "lstm": {100: 2, 200: 3}, "cw": {100: 4, 200: 6}, "gru": {100: 2, 200: 3},
          "cw-lstm": {100: 2, 200: 3}, "cw-gru": {100: 2, 200: 3}}  # fmt: skip


def make_dataset(name: str = "tune", *, steps: int = 48, rate: int = 8000, seed: int = 0) -> Dataset:
    samples = np.random.default_rng(seed).uniform(-1, 1, steps)
    samples[:2] = -1, 1
    return Dataset(name, rate, samples, "made for a test")


def make_run(method="cw", size=100, seed=0, data=None, *, hidden=None, task="generation", **settings) -> Run:
    data = data or make_dataset()
    settings = GenerationSettings(
        **{"learning_rate": GENERATION.learning_rates[method], "epochs": 6, "modules": 2, **settings}
    )
    hidden = HIDDEN[method][size] if hidden is None else hidden
    return Run(task, data.name, data.digest, method, size, hidden, seed, settings)


def train_runs(*runs: Run, data: Dataset) -> list[Record]:
    """Train the runs one by one and return their records."""
    records = []
    for each in runs:
        [result] = training.train_many(each.method, each.hidden, data.samples[None], [each.seed], each.settings)
        values = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
        # the measured time would differ from test to test
        values["seconds"] = 0.5
        records.append(_record(each, traceback=None, **values))
    return records


def make_record(nmse: float, *, status="finished", data=None, traceback=None, **options) -> Record:
    """Return a record with this NMSE. It has initial weights, and the output that they generate."""
    data = data or make_dataset()
    each = make_run(data=data, **options)
    weights, output = _untrained(each.method, each.hidden, each.seed, len(data.samples), each.settings)
    failed = status == "failed"
    epochs = each.settings.epochs
    points = np.linspace(0, epochs, 4)
    curve = np.stack([points, np.linspace(1, nmse if math.isfinite(nmse) else 2, 4)], axis=1).astype(np.float32)
    return _record(
        each, status=status, error=nmse if status == "finished" else math.nan,
        best_error=math.nan if failed else nmse, best_epoch=0 if failed else 2, epochs=0 if failed else epochs,
        curve=None if failed else curve, weights=None if failed else weights,
        output=None if failed else output,
        seconds=0.5, traceback=traceback if failed else None,
    )  # fmt: skip


@functools.cache
def _untrained(method, hidden, seed, steps, settings):
    network = build_network(method, hidden, modules=settings.modules, peepholes=settings.peepholes, seed=seed)
    weights = {name: value.detach().numpy().copy() for name, value in network.named_parameters()}
    return weights, training.generate(method, hidden, weights, steps, settings)


WORDS = {"making": 1, "walking": 1, "subway": 2, "highway": 2, "hallway": 2}


@functools.cache
def make_corpus(name: str = "said", *, synthetic: bool = True, source: str = "made for a test") -> Corpus:
    """Return five words in two clusters, by three speakers each. The last speaker is in the test set."""
    generator = np.random.default_rng(len(name))
    utterances = []
    for level, word in enumerate(WORDS):
        for number, split in enumerate(["train", "train", "test"]):
            frames = generator.normal(level - 2, 1.0, (6 + 3 * number + level, 13)).astype(np.float32)
            utterances.append(Utterance(word, f"speaker {number}", split, frames, f"{word} {number}"))
    return Corpus(name, source, tuple(utterances), FeatureSettings(), synthetic, WORDS)


def make_words_run(method="cw", size=500, seed=0, corpus=None, *, hidden=4, task="words", **settings) -> Run:
    corpus = corpus or make_corpus()
    settings = {"learning_rate": find_task(task).learning_rates[method], "epochs": 4, "modules": 3, **settings}
    settings = WordSettings(outputs=len(corpus.words), **settings)
    return Run(task, corpus.name, corpus.digest, method, size, hidden, seed, settings)


def train_words_runs(*runs: Run, corpus: Corpus) -> list[Record]:
    """Train the runs one by one and return their records."""
    records = []
    for each in runs:
        [result] = find_task(each.task).train([each], [corpus], None)
        values = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
        records.append(_record(each, traceback=None, **{**values, "seconds": 0.5}))
    return records


def make_words_record(
    error: float, *, status="finished", corpus=None, epochs_made=3, cross_entropy=1.0, traceback=None, **options
) -> Record:
    """Return a record with this error. It has initial weights, and answers that are made to fit the error.

    The cross entropy of the training set falls from 3 to `cross_entropy`. The first recordings of the test set are
    mistaken for the next word, as many as the error demands.
    """
    corpus = corpus or make_corpus()
    each = make_words_run(corpus=corpus, **options)
    failed = status == "failed"
    weights = _untrained_words(each.method, each.hidden, each.seed, each.settings)
    epochs = np.arange(epochs_made + 1)
    best = max(0, epochs_made - 1)
    falling = np.linspace(3, cross_entropy, epochs_made + 1)
    curve = np.stack([epochs, falling, falling / 3, np.full(epochs_made + 1, error)], axis=1).astype(np.float32)
    taken = np.array([corpus.words.index(each.word) for each in corpus.test])
    taken[: round(error * len(taken))] += 1
    output = np.log(np.where(np.eye(len(corpus.words))[taken % len(corpus.words)] > 0, 0.8, 0.05))
    return _record(
        each, status=status, error=error if status == "finished" else math.nan,
        best_error=math.nan if failed else error, best_epoch=0 if failed else best, epochs=0 if failed else epochs_made,
        curve=None if failed else curve, weights=None if failed else weights,
        output=None if failed else output.astype(np.float32), seconds=0.5, traceback=traceback if failed else None,
    )  # fmt: skip


@functools.cache
def _untrained_words(method, hidden, seed, settings):
    network = build_untrained(method, hidden, settings, seed)
    return {name: value.detach().numpy().copy() for name, value in network.named_parameters()}


def _record(each: Run, **values) -> Record:
    return Record(run=each, parameters=each.parameters, schedule=each.schedule, environment=ENVIRONMENT,
                  finished_at="2026-01-01T00:00:00+00:00", **values)  # fmt: skip
