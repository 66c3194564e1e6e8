"""Training a recogniser: `train_recogniser` trains networks on spoken words and keeps the best learner in one file.

The best learner is the network with the lowest cross entropy on the training words, without noise. The test words only
measure the result: if they chose the network as well, their error would be too low.
"""

import math
import os
import shlex
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from ....environment import environment
from ....extras import require
from ....saved import SavedNetwork
from ....schedule import Schedule
from ....untrusted import escape_controls
from ... import paper
from ...errors import ArgumentError, ExperimentError
from ...file_names import check_new_file, replace_undecodable
from ...limits import LARGEST_SEED
from ...networks.build import hidden_for
from ...networks.methods import METHODS, check_method, find_method
from ...networks.result import TrainingResult
from ...progress import Progress, ProgressCallback
from ...sweep.batches import MOST_RUNS
from ...sweep.interrupts import interrupts
from ...sweep.planning import fit_modules
from ...sweep.run import FINISHED
from ..clips import TEST, TRAIN
from ..corpus import BUNDLE, Corpus, load_corpus, select_words
from ..features import describe_engine
from ..plan import LEARNING_RATES
from ..training import MOST_EPOCHS, WordSettings, check_noise, load_network, train_many
from .model import DEVIATION, KIND, MEAN, Recogniser, check_words

DEFAULT_SIZE = max(paper.WORDS_SIZES)

MOST_MISTAKES = 10
"""Mistakes to print, at most."""


class NothingLearntError(ExperimentError):
    """No run reached a lower cross entropy than its initial weights, or all runs diverged."""


@dataclass(frozen=True)
class Mistake:
    """A test word that was taken for another one."""

    word: str
    taken_for: str
    count: int


@dataclass(frozen=True, eq=False)
class TrainedRecogniser:
    """The result of `train_recogniser`: the recogniser, and how it does in the test."""

    recogniser: Recogniser
    corpus: Corpus
    """The words for training and testing."""
    results: Sequence[TrainingResult]
    """The results of all runs."""
    chosen: int
    """The number of the run whose network was kept, from 0 on."""
    seconds: float
    """The duration of the training."""
    model: Path | None = None
    """The file that it was written to."""
    data: str | None = None
    """The source of the words, if they were loaded from one."""

    @property
    def result(self) -> TrainingResult:
        """The result of the chosen run."""
        return self.results[self.chosen]

    @property
    def cross_entropy(self) -> float:
        """The mean cross entropy of the training words."""
        return lowest_cross_entropy(self.result)

    @property
    def test_error(self) -> float:
        """The share of the test words that are taken for another word."""
        return self.result.error

    @property
    def mistakes(self) -> list[Mistake]:
        """The test words that are taken for another word; the most frequent mistake comes first."""
        decided = np.asarray(self.result.output).argmax(axis=1)
        pairs = ((utterance.word, self.corpus.words[i]) for utterance, i in zip(self.corpus.test, decided, strict=True))
        counts = Counter(pair for pair in pairs if pair[0] != pair[1])
        return [Mistake(word, other, count) for (word, other), count in counts.most_common()]

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        saved = self.recogniser.saved
        return {
            "model": None if self.model is None else replace_undecodable(str(self.model.resolve())),
            "method": saved.method,
            "schedule": saved.schedule.spec,
            "words": list(self.corpus.words),
            "seconds": self.seconds,
            "mistakes": [asdict(mistake) for mistake in self.mistakes],
            **self.recogniser.training,
        }

    def __str__(self) -> str:
        saved, mistakes = self.recogniser.saved, self.mistakes
        method = METHODS[saved.method]
        name = "a Clockwork RNN" if method.name == "cw" else f"{method.article} {method.label}"
        if method.has_clocks:
            name += f" of {saved.schedule.modules} modules"
        lines = [
            f"{len(self.corpus.words)} words ({replace_undecodable(self.corpus.source)}), {name} with "
            f"{saved.schedule.hidden_size} units: trained in {self.seconds:.0f} s, {self.result.best_epoch} epochs"
        ]
        if len(self.results) > 1:
            lines.append(
                f"chosen by the cross entropy of the training words: run {self.chosen + 1} of {len(self.results)}, "
                f"{self.cross_entropy:.2g}"
            )
        wrong = sum(mistake.count for mistake in mistakes)
        lines.append(f"test: {wrong} of {len(self.corpus.test)} taken for another word, {100 * self.test_error:.1f} %")
        for mistake in mistakes[:MOST_MISTAKES]:
            times = f", {mistake.count} times" if mistake.count > 1 else ""
            lines.append(f"  {mistake.word} taken for {mistake.taken_for}{times}")
        if len(mistakes) > MOST_MISTAKES:
            lines.append(f"  and {sum(mistake.count for mistake in mistakes[MOST_MISTAKES:])} more")
        if self.model is not None:
            lines += [f"The model is {self.model}", "To use it:", *(f"  {line}" for line in self._list_commands())]
        return "\n".join(escape_controls(replace_undecodable(line)) for line in lines)

    def _list_commands(self) -> list[str]:
        """Return commands that use the model, with the paths as the caller wrote them."""
        model, commands = str(self.model), []
        recording = self._find_recording()
        if recording is not None:
            commands.append(shlex.join(["cwrnn", "words", "recognise", model, str(recording)]))
        data = [] if self.data in (None, BUNDLE) else ["--data", str(self.data)]
        return [*commands, shlex.join(["cwrnn", "inspect", model, *data])]

    def _find_recording(self) -> Path | None:
        """Return a file of one test word, if the words are a folder of such files."""
        folder = Path(os.path.expanduser((self.data or "").removeprefix("folder:")))
        files = (
            folder / utterance.source
            for utterance in self.corpus.test
            if utterance.source.startswith(f"{utterance.word}/")
        )
        return next((file for file in files if self.data and os.path.isfile(file)), None)


def train_recogniser(
    out: str | Path | None = None,
    *,
    data: str | Corpus = BUNDLE,
    words: Sequence[str] | None = None,
    method: str = "cw",
    size: int | None = None,
    hidden: int | None = None,
    schedule: Schedule | str | None = None,
    runs: int = 1,
    seed: int = 0,
    learning_rate: float | None = None,
    noise: float = WordSettings.noise,
    epochs: int = MOST_EPOCHS,
    force: bool = False,
    progress: ProgressCallback | None = None,
) -> TrainedRecogniser:
    """Train a network to tell spoken words apart, as the paper did (section 4.2), and return it with its test.

    Recordings should be cut tightly around their words, for training and for recognising.

    Args:
        out: the safetensors file to write, with everything that `recognise` needs; None to write none
        data: the words: "bundle" (the paper's 25 words in synthetic speech), "timit:PATH", "nltk-timit:PATH",
            "folder:PATH" with WORD/SPEAKER.wav or a manifest.csv, or a Corpus
        words: only these words of `data`; None for all
        method: "cw" for a Clockwork RNN, "srn" for a simple recurrent network, "lstm", "gru", or "cw-lstm" and "cw-gru"
            for LSTM and GRU cells with clocks
        size: about how many parameters the network has; None for 10000
        hidden: the number of hidden units, in place of `size`
        schedule: the modules, a Schedule or its text such as "1:40,2:30,4:20", in place of `size`; None for 7 modules
            of periods 1, 2, 4, ...
        runs: how many initial weights to try; the network with the lowest cross entropy on the training words is kept
        seed: the seed of the first run; the next ones count from there
        learning_rate: the learning rate; None for the one that `cwrnn reproduce words` has for this method
        noise: the standard deviation of the noise on the inputs in training
        epochs: the number of epochs, at most; training ends when the cross entropy ceases to fall
        force: replace the file `out` if it exists
        progress: called while the words are read and the networks are trained; an exception in it stops the training

    Raises:
        ArgumentError: an argument has a value that cannot be used, or the words cannot be loaded
        NothingLearntError: no run learnt anything

    >>> trained = train_recogniser(words=["making", "subway"], schedule="1:4,2:4", learning_rate=0.003, epochs=3)
    >>> trained.recogniser.words, trained.test_error <= 0.5
    (('making', 'subway'), True)
    """
    path = None if out is None else Path(out)
    if path is not None:
        check_new_file("out", path, force)
    check_method("method", method)
    if learning_rate is None:
        learning_rate = LEARNING_RATES[method]
    if not (learning_rate > 0 and math.isfinite(learning_rate)):
        raise ArgumentError("learning_rate", f"expected a number above 0, got {learning_rate}")
    check_noise(noise)
    if not 0 <= seed <= LARGEST_SEED:
        raise ArgumentError("seed", f"expected a number from 0 to 2^62, got {seed}")
    if not 1 <= runs <= MOST_RUNS:
        raise ArgumentError("runs", f"expected 1 to {MOST_RUNS}, got {runs}")
    if epochs < 1:
        raise ArgumentError("epochs", f"expected at least 1, got {epochs}")
    sizes = [name for name, value in (("size", size), ("hidden", hidden), ("schedule", schedule)) if value is not None]
    if len(sizes) > 1:
        raise ArgumentError(sizes[-1], f"expected only one of {' and '.join(sizes)}")
    if isinstance(data, Corpus):
        corpus = data if words is None else select_words(data, words)
    else:
        corpus = load_corpus(data, words=words, progress=progress)
    settings = WordSettings(
        learning_rate=learning_rate,
        epochs=epochs,
        noise=noise,
        inputs=corpus.settings.channels,
        outputs=len(corpus.words),
    )
    modules = _choose_schedule(method, size, hidden, schedule, settings)
    if path is not None:
        # before time is spent on training
        require("safetensors", extra="experiments", purpose="saving networks")

    def report(done: int) -> None:
        interrupts.check()
        if progress is not None:
            total = max(done, settings.usual_epochs)
            progress(Progress("training", done, total, done / total))

    started = time.monotonic()
    trained = fit_recogniser(corpus, modules, settings, method=method, seeds=range(seed, seed + runs), report=report)
    seconds = time.monotonic() - started
    if path is not None:
        trained.recogniser.save(path)
    return replace(trained, seconds=seconds, model=path, data=None if isinstance(data, Corpus) else data)


def fit_recogniser(
    corpus: Corpus,
    schedule: Schedule,
    settings: WordSettings,
    *,
    method: str = "cw",
    seeds: Sequence[int] = (0,),
    report: Callable[[int], None] | None = None,
) -> TrainedRecogniser:
    """Train one network for each seed, and return the best learner of the training words.

    Args:
        corpus: the words
        schedule: the schedule of the hidden layer; a method without clocks has one module of period 1
        settings: the settings of the training, with the inputs and outputs of the corpus
        method: one of METHODS; "cw" with one module of period 1 is saved as the SRN that it is
        seeds: one seed for each run
        report: called from time to time with the number of epochs; an exception in it stops the training
    """
    # before time is spent on training
    check_words(corpus.words)
    if schedule.periods == (1,):
        method = find_method(METHODS[method].cell, has_clocks=False)
    N = schedule.hidden_size
    if METHODS[method].has_clocks:
        settings = replace(settings, modules=schedule.modules, schedule=schedule.spec)
    data = corpus.normalised(TRAIN), corpus.normalised(TEST)
    results = train_many(method, N, *data, seeds, settings, progress=report)
    losses = [
        lowest_cross_entropy(result) if result.status == FINISHED and result.best_epoch > 0 else math.inf
        for result in results
    ]
    chosen = int(np.argmin(losses))
    if not math.isfinite(losses[chosen]):
        raise NothingLearntError(
            "nothing was learnt: no run reached a lower cross entropy than its initial weights; "
            "try a lower learning rate, less noise, or more epochs"
        )
    result = results[chosen]
    network = load_network(method, N, result.weights, settings).requires_grad_(False)
    about = {
        "words": corpus.words,
        "clusters": dict(corpus.clusters),
        "features": asdict(corpus.settings),
        "training": {
            "corpus": {
                "name": corpus.name,
                "source": replace_undecodable(corpus.source),
                "digest": corpus.digest,
                "synthetic": corpus.synthetic,
                "train": len(corpus.train),
                "test": len(corpus.test),
            },
            "settings": _select_settings(settings),
            "seed": seeds[chosen],
            "runs": len(seeds),
            "epochs": result.best_epoch,
            "cross_entropy": losses[chosen],
            "test_error": result.error,
            "environment": {name: environment()[name] for name in ("cwrnn", "commit", "torch")},
            "features": describe_engine(),
            "finished_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        },
    }
    tensors = {MEAN: corpus.mean, DEVIATION: corpus.deviation}
    recogniser = Recogniser(SavedNetwork(KIND, method, network, tensors, about))
    return TrainedRecogniser(recogniser, corpus, results, chosen, sum(result.seconds for result in results))


def lowest_cross_entropy(result: TrainingResult) -> float:
    """Return the lowest mean cross entropy of the training words, which is that of the weights that are kept."""
    return float(result.curve[:, 1].min()) if len(result.curve) else math.inf


def _choose_schedule(
    method: str, size: int | None, hidden: int | None, schedule: Schedule | str | None, settings: WordSettings
) -> Schedule:
    argument = "schedule" if schedule is not None else "hidden" if hidden is not None else "size"
    try:
        if schedule is not None:
            chosen = Schedule.parse(schedule) if isinstance(schedule, str) else schedule
            if not METHODS[method].has_clocks and chosen.periods != (1,):
                name = f"{METHODS[method].article} {METHODS[method].label}"
                raise ValueError(f"{name} has one module of period 1, got {chosen.spec}")
            return chosen
        if hidden is None:
            settings = fit_modules(method, DEFAULT_SIZE if size is None else size, settings)
            hidden = hidden_for(
                method,
                DEFAULT_SIZE if size is None else size,
                input_size=settings.inputs,
                output_size=settings.outputs,
                modules=settings.modules,
            )
        return Schedule.exponential(hidden, settings.modules if METHODS[method].has_clocks else 1)
    except ValueError as error:
        raise ArgumentError(argument, str(error)) from error


def _select_settings(settings: WordSettings) -> dict[str, Any]:
    """Return the settings that a file of a recogniser stores; the others are the network's own."""
    names = ("learning_rate", "momentum", "noise", "epochs", "patience", "deviation")
    return {name: getattr(settings, name) for name in names}
