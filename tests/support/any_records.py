"""Strategies that draw made-up records of any outcome, and texts that a page, a figure or a console could misread."""

import dataclasses
import math

import numpy as np
from hypothesis import strategies as st
from support.made_records import make_dataset, make_record, make_words_record

from cwrnn.experiments.networks.methods import METHODS
from cwrnn.experiments.words.corpus import Corpus, Utterance
from cwrnn.experiments.words.features import FeatureSettings

ODD_TEXTS = [
    "$x_", "a$b$", r"\alpha", r"\$", "_hidden", "<script>alert(1)</script>", "{{ 7*7 }}", "{% raw %}", "%s %(a)d",
    "[red]", "[/]", "&amp;", "🙂", "שלום", "lone \udce9", "two\nlines", "tab\there", "x" * 300, "", " ", "nul\0", "a,b",
    "\"quoted'",
]  # fmt: skip
"""Texts of users that some program would take for markup."""

ERRORS = [0.0, 5e-324, 1e-30, 1e-6, 0.25, 0.5, 1.0, 60.0, 1e30]
RATES = [0.0, 0.2, 0.5, 1.0]
"""Errors of runs that finished: NMSEs, and error rates."""
LOST = [math.nan, math.inf, 0.0, 0.5, 1e38]
"""The lowest errors of runs that diverged."""
HIDDEN = {"srn": 3, "lstm": 2, "cw": 4, "gru": 2, "cw-lstm": 3, "cw-gru": 3}


def texts() -> st.SearchStrategy[str]:
    """Draw texts of users, as stores can hold them."""
    return st.sampled_from(ODD_TEXTS).map(lambda text: text.encode("utf-8", "replace").decode())


@st.composite
def generation_records(draw, tasks=("generation", "search")):
    """Draw data sets by name, and records of runs on them: any methods and sizes, any outcomes."""
    names = draw(st.lists(texts(), min_size=1, max_size=2, unique=True))
    datasets = {name: make_dataset(name, seed=place) for place, name in enumerate(names)}
    records = {}
    for method, size, data, seed, task in draw(_networks(sizes=(100, 1000), data=list(datasets.values()), tasks=tasks)):
        status = draw(st.sampled_from(["finished", "finished", "diverged", "failed"]))
        error = draw(st.sampled_from(ERRORS if status == "finished" else LOST))
        settings = {"epochs": draw(st.sampled_from([1, 6, 2000]))}
        if draw(st.booleans()):
            settings["learning_rate"] = draw(st.sampled_from([1e-30, 0.1, 1e30]))
        record = make_record(
            error, status=status, data=data, method=method, size=size, seed=seed, hidden=HIDDEN[method], task=task,
            traceback=draw(texts()), **settings,
        )  # fmt: skip
        record = _change_curve(draw, record)
        if status == "diverged" and draw(st.booleans()):
            broken = np.full_like(record.output, draw(st.sampled_from([math.nan, math.inf, -3e38])))
            record = dataclasses.replace(record, output=broken)
        records[record.key] = record
    return datasets, list(records.values())


@st.composite
def word_records(draw, tasks=("words", "words search")):
    """Draw a corpus of few words, and records of runs on it: any methods and sizes, any outcomes."""
    corpus = draw(corpora())
    records = {}
    for method, size, _, seed, task in draw(_networks(sizes=(500, 10000), data=[corpus], tasks=tasks)):
        status = draw(st.sampled_from(["finished", "finished", "diverged", "failed"]))
        record = make_words_record(
            draw(st.sampled_from(RATES)), status=status, corpus=corpus, method=method, size=size, seed=seed, task=task,
            epochs_made=draw(st.sampled_from([0, 1, 4])), epochs=draw(st.sampled_from([1, 4])), traceback=draw(texts()),
            noise=draw(st.sampled_from([0.0, 0.6])),
        )  # fmt: skip
        records[record.key] = _change_curve(draw, record)
    return corpus, list(records.values())


@st.composite
def corpora(draw):
    """Draw a corpus of two or three words, with one recording for the training and one for the test each."""
    words = sorted(draw(st.lists(texts().filter(str.strip), min_size=2, max_size=3, unique=True)))
    name, source = draw(texts()), draw(texts())
    generator = np.random.default_rng(len(words))
    utterances = [
        Utterance(word, draw(texts()), split, generator.normal(0, 1, (6, 13)).astype(np.float32), f"{place} {split}")
        for place, word in enumerate(words)
        for split in ("train", "test")
    ]
    clusters = {word: draw(st.integers(1, 2)) for word in words}
    return Corpus(name, source, tuple(utterances), FeatureSettings(), draw(st.booleans()), clusters)


def _networks(*, sizes, data, tasks):
    """Draw the networks of some runs; the same network may be drawn with several seeds."""
    network = st.tuples(
        st.sampled_from(sorted(METHODS)),
        st.sampled_from(sizes),
        st.sampled_from(data),
        st.integers(0, 3),
        st.sampled_from(tasks),
    )
    return st.lists(network, min_size=1, max_size=8, unique=True)


def _change_curve(draw, record):
    """Return the record with its curve as it is, all zero, of a single point, or with numbers that are not finite."""
    change = draw(st.sampled_from(["none", "zero", "short", "lost"]))
    if record.curve is None or change == "none" or (change == "lost" and record.status == "finished"):
        return record
    curve = record.curve.copy()
    if change == "short":
        return dataclasses.replace(record, curve=curve[:1], best_epoch=0, epochs=0)
    curve[1:, 1:] = 0.0 if change == "zero" else math.nan
    return dataclasses.replace(record, curve=curve)
