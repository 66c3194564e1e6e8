"""Tasks: what a run is trained by, what with, and how long it takes, looked up by the run's task.

Engine, store and progress know nothing of sequences or words: what they need to know stands here.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .generation import training
from .generation.training import Result
from .sweep.run import Data, Dataset, Run
from .words import training as classification
from .words.clips import TEST, TRAIN
from .words.corpus import Corpus

GENERATION, WORDS = "generation", "words"
SEARCHES = {GENERATION: "search", WORDS: "words search"}
"""The tasks of runs that search the learning rate: they are kept apart, and so are their records."""

CLOCKS = {GENERATION: "clocks generation", WORDS: "clocks words"}
"""The tasks of runs that compare clocks, and of those by which clocks are evolved."""

Progress = Callable[[int], None] | None


@dataclass(frozen=True)
class Task:
    """How the runs of a task are trained."""

    settings: type[training.Settings]
    train: Callable[[Sequence[Run], Sequence[Data], Progress], list[Result]]
    """Of runs that differ in nothing but seed and data, with the data of each."""
    alike: Callable[[Data], Hashable]
    """What the data of runs must have in common to be trained at once."""
    work: Callable[[Run, Data], float]
    """About the seconds that a run takes in a full batch; what is left is told from it, and corrected by what was
    measured."""
    paper: Mapping[tuple[str, int], str]
    """Table 3: mean and deviation of the error over 100 runs of the largest networks, by method and size."""


def of(run: Run) -> Task:
    """The task of a run."""
    return TASKS[run.task]


def _generate(runs: Sequence[Run], data: Sequence[Data], progress: Progress) -> list[Result]:
    targets = np.stack([_sequence(each).samples for each in data])
    first = runs[0]
    seeds = [run.seed for run in runs]
    return training.train_many(first.method, first.hidden, targets, seeds, first.settings, progress=progress)


def _generation_work(run: Run, data: Data) -> float:
    # microseconds per step and epoch, of a network without parameters, and for each of them
    fixed, each = {"srn": (0.3, 1.5e-4), "lstm": (0.13, 2.0e-4), "cw": (0.26, 2.5e-4)}[run.method]
    return 1e-6 * run.settings.epochs * len(_sequence(data).samples) * (fixed + each * run.parameters)


def _classify(runs: Sequence[Run], data: Sequence[Data], progress: Progress) -> list[Result]:
    corpus, first = _corpus(data[0]), runs[0]
    assert isinstance(first.settings, classification.Settings)
    seeds = [run.seed for run in runs]
    sets = corpus.normalised(TRAIN), corpus.normalised(TEST)
    return classification.train_many(first.method, first.hidden, *sets, seeds, first.settings, progress=progress)


def _words_work(run: Run, data: Data) -> float:
    # likewise, a step of training and the look at all that follows every epoch
    fixed, each = {"srn": (0.7, 1.2e-4), "lstm": (0.9, 3.0e-4), "cw": (0.75, 0.8e-4)}[run.method]
    frames = sum(len(utterance.features) for utterance in _corpus(data).train)
    return 1e-6 * run.settings.usual_epochs * frames * (fixed + each * run.parameters)


def _sequence(data: Data) -> Dataset:
    assert isinstance(data, Dataset)
    return data


def _corpus(data: Data) -> Corpus:
    assert isinstance(data, Corpus)
    return data


_GENERATION = Task(
    settings=training.Settings,
    train=_generate,
    alike=lambda data: len(_sequence(data).samples),
    work=_generation_work,
    paper={("srn", 1000): "0.46 ± 0.08", ("lstm", 1000): "0.04 ± 0.01", ("cw", 1000): "0.007 ± 0.004"},
)
_WORDS = Task(
    settings=classification.Settings,
    train=_classify,
    alike=lambda data: data.digest,
    work=_words_work,
    paper={("srn", 10000): "0.668 ± 0.047", ("lstm", 10000): "0.342 ± 0.056", ("cw", 10000): "0.168 ± 0.035"},
)

TASKS: Mapping[str, Task] = {
    GENERATION: _GENERATION,
    SEARCHES[GENERATION]: _GENERATION,
    CLOCKS[GENERATION]: _GENERATION,
    WORDS: _WORDS,
    SEARCHES[WORDS]: _WORDS,
    CLOCKS[WORDS]: _WORDS,
}
