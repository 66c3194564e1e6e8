"""Loading the network that is to be inspected, and the data to inspect it with.

a run of a store      has the weights, and the data that they were trained on
a saved recogniser    a file that `train_recogniser` wrote; it has the words, but no data
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...inspection import Array, Measure
from ...layer import AnyLayer, ClockworkLayer
from ...network import Network
from ...untrusted import escape_controls
from ..errors import ExperimentError
from ..file_names import is_folder, replace_undecodable
from ..generation import training as generation_training
from ..generation.task import GENERATION
from ..networks.methods import CLOCKED, METHODS
from ..progress import ProgressCallback
from ..report.drawing import NAMES
from ..report.statistics import best_record
from ..sweep.run import FINISHED, Dataset, Record
from ..sweep.store import Store
from ..task import all_tasks
from ..words import training as word_training
from ..words.corpus import BUNDLE, Corpus, CorpusError, load_corpus
from ..words.features import FeatureSettings
from ..words.recogniser.model import Recogniser
from ..words.task import WORDS

NMSE, ERROR, CROSS_ENTROPY = "nmse", "error", "cross_entropy"
"""The names of the errors: the first for generated sequences, the others for words."""


class InspectionError(ExperimentError):
    """There is no network that can be inspected. The message says why, and what to do."""


@dataclass(frozen=True, eq=False)
class SpokenWord:
    """The word that a figure shows, among all words that the network tells apart."""

    words: Sequence[str]
    """All words, in the order of the outputs."""
    label: int
    """The number of the word."""
    speaker: str


@dataclass(frozen=True, eq=False)
class InspectedNetwork:
    """A trained network, and the data to inspect it with."""

    task: str
    """"generation" or "words"."""
    method: str
    """One of METHODS."""
    network: Network
    inputs: Sequence[NDArray[Any]]
    """The input sequences, each (T, I)."""
    measure: Measure
    """Computes the errors of the outputs."""
    shown: int
    """The number of the input sequence that a figure shows."""
    target: Dataset | SpokenWord
    """The sequence to generate, or the word to recognise, for the input that is shown."""
    step_duration: str
    """The duration of a time step, with its unit."""
    facts: Mapping[str, str]
    """Where the network and the data come from, for people to read."""

    @property
    def layer(self) -> AnyLayer:
        """The hidden layer."""
        assert isinstance(self.network.layer, ClockworkLayer)
        return self.network.layer

    @property
    def description(self) -> str:
        """The network in one line.

        >>> from cwrnn.experiments.networks.build import build_network
        >>> wave = Dataset("wave", 8000, np.zeros(2), "")
        >>> network = build_network("cw", 40)
        >>> InspectedNetwork("generation", "cw", network, [], lambda outputs: {}, 0, wave, "", {}).description
        'CW-RNN of 40 units that generates wave'
        """
        if isinstance(self.target, Dataset):
            purpose = f"generates {self.target.name}"
        else:
            purpose = f"tells {len(self.target.words)} words apart"
        return f"{NAMES[self.method]} of {self.layer.hidden_size} units that {purpose}"


def load_network(
    path: Path,
    *,
    task: str | None = None,
    run: str | None = None,
    data: str | None = None,
    word: str | None = None,
    progress: ProgressCallback | None = None,
) -> InspectedNetwork:
    """Return the network at `path` with the data to inspect it with.

    Raises the error of the file that could not be read, or an InspectionError.

    Args:
        path: the folder or the file of a store, or a saved recogniser
        task: for a store, "generation" or "words"; needed if it has both and no run is named
        run: for a store, the first digits of a run's key; None for the best Clockwork RNN of the largest size
        data: a source of words, as `load_corpus` takes it; None for those of the store, or the bundled ones
        word: the word that figures show; None for the first
        progress: called while words are read
    """
    if is_folder(path) or path.suffix == ".sqlite":
        return _load_from_store(path, task, run, data, word, progress)
    for name, value in (("task", task), ("run", run)):
        if value is not None:
            raise InspectionError(f"{path}: is not a store but a single network: there is no {name} to choose")
    recogniser = Recogniser.load(path)
    corpus = _load_words(BUNDLE if data is None else data, recogniser.words, recogniser.settings, progress)
    facts = {"model": escape_controls(replace_undecodable(str(path)))}
    trained_on = recogniser.training.get("corpus")
    if isinstance(trained_on, dict) and "source" in trained_on:
        facts["trained on"] = str(trained_on["source"])
    saved = recogniser.saved
    return _with_words(saved.method, saved.network, recogniser.words, recogniser.normalise, corpus, word, facts)


def _load_from_store(
    path: Path, task: str | None, run: str | None, data: str | None, word: str | None, progress: ProgressCallback | None
) -> InspectedNetwork:
    with Store.read(path) as store:
        records = {known.name: [*store.records(known.name), *store.records(known.clocks_name)] for known in all_tasks()}
        if run is not None:
            records |= {known.search_name: store.records(known.search_name) for known in all_tasks()}
        record = _choose_best(store.path, records, task) if run is None else _find_run(store.path, records, run)
        all_data: Mapping[str, Dataset | Corpus] = {**store.datasets(), **store.corpora()}
    if record.run.data not in all_data:
        raise InspectionError(f"{path}: the data set {record.run.data!r} is of a kind that this version does not know")
    trained = all_data[record.run.data]
    facts = {"run": record.key[:12], "store": replace_undecodable(str(store.path)), "data": trained.source}
    if record.status != FINISHED:
        facts["status"] = f"{record.status}: the weights are those of its lowest training loss"
    assert record.weights is not None
    weights = record.run.method, record.run.hidden, record.weights
    if isinstance(trained, Dataset):
        for name, value in (("data", data), ("word", word)):
            if value is not None:
                raise InspectionError(f"{name} is for networks that tell words apart, but this one has no input")
        with _explain_weights(path, record):
            network = generation_training.load_network(*weights, record.run.settings)
        return _with_sequence(record.run.method, network, trained, facts)
    assert isinstance(record.run.settings, word_training.WordSettings)
    mean, deviation = trained.mean, trained.deviation

    def normalise(features: NDArray[np.float32]) -> NDArray[np.float32]:
        return ((features - mean) / deviation).astype(np.float32)

    with _explain_weights(path, record):
        network = word_training.load_network(*weights, record.run.settings)
    corpus = trained if data is None else _load_words(data, trained.words, trained.settings, progress)
    return _with_words(record.run.method, network, trained.words, normalise, corpus, word, facts)


@contextmanager
def _explain_weights(path: Path, record: Record) -> Iterator[None]:
    """Turn the error of weights that do not fit their network into an InspectionError."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError) as error:
        raise InspectionError(f"{path}: the weights of the run {record.key[:12]} do not fit its network") from error


def _find_run(path: Path, records: Mapping[str, Sequence[Record]], run: str) -> Record:
    matching = [record for of_task in records.values() for record in of_task if record.key.startswith(run)]
    if len(matching) != 1:
        count = "no run" if not matching else f"{len(matching)} runs"
        raise InspectionError(f"{path}: {count} with a key that begins with {run!r}")
    [record] = matching
    if record.weights is None:
        raise InspectionError(f"{path}: the run {run} failed: it has no weights")
    return record


def _choose_best(path: Path, records: Mapping[str, Sequence[Record]], task: str | None) -> Record:
    """Return the best network of the largest size: a Clockwork RNN if there is one, else another method.

    Methods with clocks come first.
    """
    tasks = [name for name in records if records[name] and task in (None, name)]
    if not tasks:
        raise InspectionError(f"{path}: there are no runs{'' if task is None else f' of the task {task}'}")
    if len(tasks) > 1:
        raise InspectionError(f"{path}: has networks of two tasks: choose the task {' or '.join(tasks)}")
    for method in dict.fromkeys([*CLOCKED, *METHODS]):
        finished = [record for record in records[tasks[0]] if (record.run.method, record.status) == (method, FINISHED)]
        largest = max((record.run.size for record in finished), default=0)
        best = best_record(record for record in finished if record.run.size == largest)
        if best is not None:
            return best
    raise InspectionError(f"{path}: no network finished")


def _with_sequence(method: str, network: Network, dataset: Dataset, facts: Mapping[str, str]) -> InspectedNetwork:
    """Return a network that generates the sequence."""

    def measure(outputs: Sequence[Array]) -> dict[str, float]:
        _check_finite(outputs, "the outputs of the network")
        return {NMSE: generation_training.nmse(outputs[0][:, 0], dataset.samples)}

    return InspectedNetwork(
        task=GENERATION.name,
        method=method,
        network=network,
        inputs=[np.empty((len(dataset.samples), 0))],
        measure=measure,
        shown=0,
        target=dataset,
        step_duration=f"{1e6 / dataset.rate:.3g} µs",
        facts=facts,
    )


def _with_words(
    method: str,
    network: Network,
    words: Sequence[str],
    normalise: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    corpus: Corpus,
    word: str | None,
    facts: Mapping[str, str],
) -> InspectedNetwork:
    """Return a network that tells the words apart, with the test set of the corpus."""
    utterances = corpus.test
    if word is not None and word not in words:
        raise InspectionError(f"word must be one of {', '.join(words)}, got {word!r}")
    shown = next(i for i, utterance in enumerate(utterances) if word in (None, utterance.word))
    labels = np.array([words.index(utterance.word) for utterance in utterances])

    def measure(outputs: Sequence[Array]) -> dict[str, float]:
        _check_finite(outputs, "the outputs of the network")
        # the decision is that of the last time step
        last = np.stack([output[-1] for output in outputs])
        wrong = last.argmax(axis=1) != labels
        likelihood = last[np.arange(len(last)), labels] - np.logaddexp.reduce(last, axis=1)
        return {ERROR: float(wrong.mean()), CROSS_ENTROPY: float(-likelihood.mean())}

    inputs = [normalise(utterance.features) for utterance in utterances]
    _check_finite(inputs, "the normalised features")
    return InspectedNetwork(
        task=WORDS.name,
        method=method,
        network=network,
        inputs=inputs,
        measure=measure,
        shown=shown,
        target=SpokenWord(words, int(labels[shown]), utterances[shown].speaker),
        step_duration=f"{corpus.settings.step:g} ms",
        facts={**facts, "looked at with": f"the {len(utterances)} test words of {corpus.name}"},
    )


def _check_finite(arrays: Sequence[NDArray[Any]], name: str) -> None:
    """Refuse numbers that overflow: nothing could be said about such a network."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise InspectionError(f"{name} are not finite: the numbers in its file are too large")


def _load_words(
    source: str, words: Sequence[str], settings: FeatureSettings, progress: ProgressCallback | None
) -> Corpus:
    """Return the words of a network from another source."""
    try:
        corpus = load_corpus(source, words=words, progress=progress)
    except CorpusError as error:
        raise InspectionError(str(error)) from error
    if corpus.settings != settings:
        raise InspectionError(f"{source}: its feature settings are not those that the network was trained with")
    return corpus
