"""Stores and files of small networks, for tests of `inspect_network`."""

import dataclasses

from support import small_sweeps
from support.made_corpora import make_corpus

from cwrnn.experiments.networks.build import build_network
from cwrnn.experiments.sweep.batches import make_batches
from cwrnn.experiments.sweep.driver import train_missing
from cwrnn.experiments.sweep.store import Store
from cwrnn.experiments.sweep.workers import train_locally
from cwrnn.experiments.words import plan
from cwrnn.experiments.words.bundle import load_bundled_corpus
from cwrnn.experiments.words.recogniser.model import DEVIATION, MEAN, Recogniser
from cwrnn.saved import SavedNetwork

HOSTILE = '<script>alert("1")</script> & $x_{ {{ 7 * 7 }}'
"""A name that must never be executed."""


def make_sequence_store(path, name="wave", **options):
    """Make a store of networks that generate a sequence."""
    data = small_sweeps.wave(name, steps=40)
    small_sweeps.sweep(path, [data], small_sweeps.plan([data], **options))
    return path


def make_word_store(path, **options):
    """Make a store of networks that tell four words apart."""
    corpus = make_corpus()
    planned = plan.plan(corpus, **{"methods": ["cw"], "sizes": [700], "runs": 1, "epochs": 2, **options})
    with Store.open(path, create=True) as store:
        store.add_dataset(corpus)
        train_missing(
            store, make_batches(planned, [corpus]), lambda batches: train_locally(batches, 1), lambda event: None
        )
    return path


def read_records(path, task="generation"):
    with Store.read(path) as store:
        return store.records(task)


def save_recogniser(path, corpus=None):
    """Save an untrained recogniser of the words of a corpus."""
    corpus = corpus or load_bundled_corpus()
    network = build_network("cw", 8, 13, len(corpus.words), softmax=True, modules=3).float().requires_grad_(False)
    about = {"words": corpus.words, "clusters": dict(corpus.clusters),
             "features": dataclasses.asdict(corpus.settings)}  # fmt: skip
    Recogniser(SavedNetwork("words", "cw", network, {MEAN: corpus.mean, DEVIATION: corpus.deviation}, about)).save(path)
    return path
