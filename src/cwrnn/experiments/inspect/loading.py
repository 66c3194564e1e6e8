"""The subject of an inspection: a trained network, the data to look at it with, and what its output is worth on them.

a run of a store      it has the weights, and the data that they were trained on
a saved recogniser    what `cwrnn words train` wrote; it knows its words, and has no data
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...inspection import Array, Measure
from ...layer import ClockworkRNN
from ...network import Network
from ..file_names import replace_undecodable
from ..generation import training
from ..progress import ProgressCallback
from ..report.drawing import NAMES
from ..report.statistics import best_record
from ..sweep.run import FINISHED, Dataset, Record
from ..sweep.store import Store
from ..task import all_tasks
from ..words import corpus as corpora
from ..words import training as classification
from ..words.corpus import Corpus
from ..words.features import FeatureSettings
from ..words.recogniser.model import Recogniser

METHODS = ("srn", "cw")
"""The networks that have clocks, be it a single one."""

NMSE, ERROR, CROSS_ENTROPY = "nmse", "error", "cross_entropy"
"""What outputs are measured by: the first for generated sequences, the others for words."""


class SubjectError(ValueError):
    """There is nothing that can be inspected; the message says why, and what to do."""


@dataclass(frozen=True, eq=False)
class Spoken:
    """A word that is to be told from others."""

    words: Sequence[str]
    """All of them, in the order of the outputs."""
    label: int
    """Which of them it is."""
    speaker: str


@dataclass(frozen=True, eq=False)
class Subject:
    """A network and its data."""

    task: str
    method: str
    network: Network
    inputs: Sequence[NDArray[Any]]
    """(T, I) each."""
    measure: Measure
    shown: int
    """The number of the input that is drawn."""
    scene: Dataset | Spoken
    """What it is: the sequence that is to be generated, or the word."""
    step: str
    """How long a time step is."""
    facts: Mapping[str, str]
    """What else is to be known of network and data."""

    @property
    def layer(self) -> ClockworkRNN:
        """The hidden layer."""
        assert isinstance(self.network.layer, ClockworkRNN)
        return self.network.layer


def load(
    path: Path,
    *,
    task: str | None = None,
    run: str | None = None,
    data: str | None = None,
    word: str | None = None,
    progress: ProgressCallback | None = None,
) -> Subject:
    """The network at `path` and its data, or an error that says what is wrong: that of what was being read, or a
    SubjectError.

    Args:
        path: a store, that is its folder or file, or a saved recogniser
        task: of a store: "generation" or "words"; needed where it has both and no run is named
        run: of a store: the first digits of a run's key; else the best Clockwork RNN of the largest size
        data: a source of words, as `load_corpus` takes it; else those of the store, or the bundled ones
        word: the one that is drawn; else the first
        progress: called with the utterances of the source that are done, and all of them
    """
    if path.is_dir() or path.suffix == ".sqlite":
        return _from_store(path, task, run, data, word, progress)
    for name, value in (("task", task), ("run", run)):
        if value is not None:
            raise SubjectError(f"{path}: is no store: it holds one network, and there is no {name} to choose")
    recogniser = Recogniser.load(path)
    corpus = _corpus(corpora.BUNDLE if data is None else data, recogniser.words, recogniser.settings, progress)
    facts = {"model": replace_undecodable(str(path))}
    told = recogniser.training.get("corpus")
    if isinstance(told, dict) and "source" in told:
        facts["trained on"] = str(told["source"])
    return _words(recogniser.saved.method, recogniser.saved.network, recogniser.words, recogniser.normalise, corpus,
                  word, facts)  # fmt: skip


def _from_store(
    path: Path, task: str | None, run: str | None, data: str | None, word: str | None, progress: ProgressCallback | None
) -> Subject:
    with Store.read(path) as store:
        found = {each.name: [*store.records(each.name), *store.records(each.clocks_name)] for each in all_tasks()}
        if run is not None:
            found |= {task.search_name: store.records(task.search_name) for task in all_tasks()}
        record = _best(store.path, found, task) if run is None else _named(store.path, found, run)
        everything: Mapping[str, Dataset | Corpus] = {**store.datasets(), **store.corpora()}
    trained = everything[record.run.data]
    facts = {"run": record.key[:12], "store": replace_undecodable(str(store.path)), "data": trained.source}
    if record.status != FINISHED:
        facts["status"] = f"{record.status}: the weights are those of its lowest training loss"
    assert record.weights is not None
    what = record.run.method, record.run.hidden, record.weights
    if isinstance(trained, Dataset):
        for name, value in (("data", data), ("word", word)):
            if value is not None:
                raise SubjectError(f"--{name} is for networks that tell words apart: this one has no input")
        return _generation(record.run.method, training.load_network(*what, record.run.settings), trained, facts)
    assert isinstance(record.run.settings, classification.WordSettings)
    mean, deviation = trained.mean, trained.deviation

    def normalised(frames: NDArray[np.float32]) -> NDArray[np.float32]:
        return ((frames - mean) / deviation).astype(np.float32)

    network = classification.load_network(*what, record.run.settings)
    corpus = trained if data is None else _corpus(data, trained.words, trained.settings, progress)
    return _words(record.run.method, network, trained.words, normalised, corpus, word, facts)


def _named(path: Path, found: Mapping[str, Sequence[Record]], run: str) -> Record:
    matching = [record for records in found.values() for record in records if record.key.startswith(run)]
    if len(matching) != 1:
        how = "no run" if not matching else f"{len(matching)} runs"
        raise SubjectError(f"{path}: {how} with a key that begins with {run!r}")
    [record] = matching
    if record.run.method not in METHODS:
        raise SubjectError(f"{path}: the run {run} is an LSTM, which has no clocks: there are no modules to look at")
    if record.weights is None:
        raise SubjectError(f"{path}: the run {run} failed: it has no weights")
    return record


def _best(path: Path, found: Mapping[str, Sequence[Record]], task: str | None) -> Record:
    """The best network of the largest size: a Clockwork RNN if there is one, else an SRN."""
    there = [each for each in found if found[each] and task in (None, each)]
    if not there:
        raise SubjectError(f"{path}: there are no runs{'' if task is None else f' of the task {task}'}")
    if len(there) > 1:
        raise SubjectError(f"{path}: has networks of two tasks: add --task {' or --task '.join(there)}")
    for method in reversed(METHODS):
        mine = [record for record in found[there[0]] if (record.run.method, record.status) == (method, FINISHED)]
        largest = max((record.run.size for record in mine), default=0)
        record = best_record(record for record in mine if record.run.size == largest)
        if record is not None:
            return record
    raise SubjectError(f"{path}: no CW-RNN or SRN finished; an LSTM has no clocks: there are no modules to look at")


def _generation(method: str, network: Network, dataset: Dataset, facts: Mapping[str, str]) -> Subject:
    def measure(outputs: Sequence[Array]) -> dict[str, float]:
        return {NMSE: training.nmse(outputs[0][:, 0], dataset.samples)}

    return Subject(
        task="generation",
        method=method,
        network=network,
        inputs=[np.empty((len(dataset.samples), 0))],
        measure=measure,
        shown=0,
        scene=dataset,
        step=f"{1e6 / dataset.rate:.3g} µs",
        facts=facts,
    )


def _words(
    method: str,
    network: Network,
    words: Sequence[str],
    normalised: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    corpus: Corpus,
    word: str | None,
    facts: Mapping[str, str],
) -> Subject:
    """A network that tells those words apart, and the test set of the corpus."""
    utterances = corpus.test
    if word is not None and word not in words:
        raise SubjectError(f"--word must be one of {', '.join(words)}, got {word!r}")
    shown = next(i for i, each in enumerate(utterances) if word in (None, each.word))
    labels = np.array([words.index(each.word) for each in utterances])

    def measure(outputs: Sequence[Array]) -> dict[str, float]:
        # the decision is that of the last time step
        last = np.stack([each[-1] for each in outputs])
        wrong = last.argmax(axis=1) != labels
        likelihood = last[np.arange(len(last)), labels] - np.logaddexp.reduce(last, axis=1)
        return {ERROR: float(wrong.mean()), CROSS_ENTROPY: float(-likelihood.mean())}

    return Subject(
        task="words",
        method=method,
        network=network,
        inputs=[normalised(each.features) for each in utterances],
        measure=measure,
        shown=shown,
        scene=Spoken(words, int(labels[shown]), utterances[shown].speaker),
        step=f"{corpus.settings.step:g} ms",
        facts={**facts, "looked at with": f"the {len(utterances)} test words of {corpus.name}"},
    )


def _corpus(source: str, words: Sequence[str], settings: FeatureSettings, progress: ProgressCallback | None) -> Corpus:
    """The words of a network, from that source."""
    corpus = corpora.load_corpus(source, words=words, progress=progress)
    if corpus.settings != settings:
        raise SubjectError(f"{source}: its features are not those that the network was trained with")
    return corpus


def describe(subject: Subject) -> str:
    """What it is, in a line.

    >>> from ..networks.build import build_network
    >>> wave = Dataset("wave", 8000, np.zeros(2), "")
    >>> describe(Subject("generation", "cw", build_network("cw", 40), [], lambda outputs: {}, 0, wave, "", {}))
    'CW-RNN of 40 units that generates wave'
    """
    does = (
        f"generates {subject.scene.name}"
        if isinstance(subject.scene, Dataset)
        else (f"tells {len(subject.scene.words)} words apart")
    )
    return f"{NAMES[subject.method]} of {subject.layer.hidden_size} units that {does}"
