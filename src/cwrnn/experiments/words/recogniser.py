"""The recogniser: a network that tells spoken words apart, with all that it needs to be used.

    sound -> features -> normalised -> Clockwork RNN -> softmax: a probability for every word

The decision is that of the last frame. A recogniser hears a whole recording at once, or listens frame by frame to a
sound that is still coming in; both decide the same, to float precision. It knows its words and nothing else: what is
no word of its is taken for one, and it expects words as it was trained on, without silence before and after.
"""

import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ...environment import environment
from ...layer import State
from ...saved import ModelError, SavedNetwork
from ...schedule import Schedule
from ..file_names import replace_undecodable
from ..generation.training import Result
from ..sweep.run import FINISHED
from . import features
from . import training as classification
from .clips import TEST, TRAIN
from .corpus import Corpus
from .features import FeatureSettings, Resampler
from .sound_files import SoundError, extract_features
from .training import Settings

KIND = "words"
MEAN, DEVIATION = "features.mean", "features.deviation"

SILENCE = 35.0
"""Decibels below the loudest 10 ms of a recording, from where on it counts as silent."""
MARGIN = 0.02
"""Seconds of it that are left before and after the word."""


class Decision(NamedTuple):
    """What a recogniser thinks at a time."""

    time: float
    """Seconds: where the last frame ends that was heard."""
    word: str
    """The most probable one."""
    probability: float
    ranked: list[tuple[str, float]]
    """All words with their probabilities, the most probable first."""


class Recogniser:
    """A network and its words.

    Args:
        saved: the network, with the normalisation as tensors, and words, clusters and feature settings in `about`;
            what does not fit together is refused with a ModelError
    """

    def __init__(self, saved: SavedNetwork) -> None:
        if saved.kind != KIND:
            raise ModelError(f"a network of the kind {saved.kind!r}, not a recogniser of words")
        self.saved = saved
        self.words = _words(saved.about.get("words"))
        """The labels, in the order of the network's outputs."""
        self.clusters = _clusters(saved.about.get("clusters"), self.words)
        """Each word's; words of one cluster sound alike."""
        self.settings = _feature_settings(saved.about.get("features"))
        if saved.outputs != len(self.words) or not saved.network.softmax:
            raise ModelError(f"expected a softmax of {len(self.words)} words, the network has {saved.outputs} outputs")
        if saved.inputs != self.settings.channels:
            raise ModelError(f"expected {self.settings.channels} inputs, as the features have, got {saved.inputs}")
        if set(saved.tensors) != {MEAN, DEVIATION}:
            raise ModelError(f"expected the tensors {MEAN} and {DEVIATION}, got {sorted(saved.tensors)}")
        self._mean, self._deviation = saved.tensors[MEAN], saved.tensors[DEVIATION]
        shape = (self.settings.channels,)
        if self._mean.shape != shape or self._deviation.shape != shape or not (self._deviation > 0).all():
            raise ModelError(f"mean and deviation of the features must be {shape}, and the deviation above 0")

    @property
    def training(self) -> Mapping[str, Any]:
        """What it was trained on and how, and what came of it."""
        found = self.saved.about.get("training")
        return found if isinstance(found, dict) else {}

    def save(self, path: Path) -> None:
        """Write it to `path`, whole or not at all; a file that is there is replaced."""
        self.saved.save(path)

    @classmethod
    def load(cls, path: Path) -> "Recogniser":
        """The recogniser in `path`, or a ModelError that says what is wrong with the file."""
        saved = SavedNetwork.load(path)
        try:
            return cls(saved)
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from error

    def recognise(self, samples: NDArray[np.floating[Any]], rate: int) -> list[tuple[str, float]]:
        """All words with their probabilities, the most probable first; a SoundError if there is nothing to hear.

        Args:
            samples: (n,), floating point in [-1, 1]
            rate: samples per second
        """
        if not len(samples):
            raise SoundError("has no samples")
        frames = self.normalised(extract_features(np.asarray(samples, dtype=np.float64), rate, self.settings))
        with torch.no_grad():
            _, h = self.saved.layer(torch.from_numpy(frames)[:, None])
            return self._ranked(self._probabilities(h[0]))

    def listen(self, rate: int | None = None) -> "Listener":
        """Hears a sound as it comes in, at `rate` samples per second, or else at that of the features."""
        return Listener(self, self.settings.rate if rate is None else rate)

    def normalised(self, frames: NDArray[np.float32]) -> NDArray[np.float32]:
        """The features (T, 13) as the network takes them: what is normalised in training is here."""
        return ((frames - self._mean) / self._deviation).astype(np.float32)

    def _probabilities(self, hidden: torch.Tensor) -> NDArray[np.float32]:
        """(words,), from the hidden state (1, N)."""
        readout: torch.Tensor = self.saved.network.readout(hidden)
        return readout.softmax(-1)[0].numpy()

    def _ranked(self, probabilities: NDArray[np.float32]) -> list[tuple[str, float]]:
        # of equally probable ones the first, as argmax has it
        order = np.argsort(-probabilities, kind="stable")
        return [(self.words[i], float(probabilities[i])) for i in order]


class Listener:
    """One sound that is coming in, and what the recogniser thinks of it so far.

    After all of it the decision is that of `Recogniser.recognise`, however it was cut.
    """

    def __init__(self, recogniser: Recogniser, rate: int) -> None:
        self._recogniser = recogniser
        self._resampler = Resampler(rate, recogniser.settings.rate)
        self._features = features.FeatureStream(recogniser.settings)
        self._state: State | None = None
        self.decision: Decision | None = None
        """The last one; None before the first frame."""

    def accept(self, samples: NDArray[np.floating[Any]]) -> list[Decision]:
        """The decisions after each frame that `samples`, (n,) in [-1, 1], complete."""
        return self._hear(self._features.accept(self._resampler.accept(samples)))

    def finish(self) -> list[Decision]:
        """The decisions after those frames that the end completes; then nothing follows."""
        return self._hear(np.concatenate([self._features.accept(self._resampler.finish()), self._features.finish()]))

    def _hear(self, frames: NDArray[np.float32]) -> list[Decision]:
        found = []
        settings, layer = self._recogniser.settings, self._recogniser.saved.layer
        with torch.no_grad():
            for frame in torch.from_numpy(self._recogniser.normalised(frames))[:, None]:
                hidden, self._state = layer.step(frame, self._state)
                ranked = self._recogniser._ranked(self._recogniser._probabilities(hidden))
                time = ((self._state.t - 1) * settings.step + settings.window) / 1000
                self.decision = Decision(time, *ranked[0], ranked)
                found.append(self.decision)
        return found


@dataclass(frozen=True)
class Trained:
    """What a training came to."""

    recogniser: Recogniser
    results: Sequence[Result]
    """Of all runs."""
    chosen: int
    """The number of the run that the recogniser is of."""

    @property
    def result(self) -> Result:
        """Of that run."""
        return self.results[self.chosen]


class NothingLearntError(RuntimeError):
    """No run came below the cross entropy of its initial weights, or all diverged."""


def train(
    corpus: Corpus,
    schedule: Schedule,
    settings: Settings,
    *,
    seeds: Sequence[int] = (0,),
    progress: Callable[[int], None] | None = None,
) -> Trained:
    """A recogniser of the corpus's words: of as many runs as there are seeds the one that has learnt the most.

    That is the one with the lowest cross entropy of the training words, without noise. The words for testing only tell
    what was achieved; if they chose as well, they would tell too much.

    Args:
        corpus: the words
        schedule: of the hidden layer; one module of period 1 is an SRN
        settings: of the training; inputs and outputs are the corpus's
        seeds: one for each run
        progress: called now and then with the epochs made; if it raises, training stops
    """
    # before time is spent on training
    _words(corpus.words)
    method = "srn" if schedule.periods == (1,) else "cw"
    N = schedule.hidden_size
    if method == "cw":
        settings = replace(settings, modules=schedule.modules, schedule=schedule.spec)
    data = corpus.normalised(TRAIN), corpus.normalised(TEST)
    results = classification.train_many(method, N, *data, seeds, settings, progress=progress)
    losses = [
        cross_entropy(result) if result.status == FINISHED and result.best_epoch > 0 else math.inf for result in results
    ]
    chosen = int(np.argmin(losses))
    if not math.isfinite(losses[chosen]):
        raise NothingLearntError(
            "nothing was learnt: no run came below the cross entropy of its initial weights; "
            "try a lower --learning-rate, less --noise, or more --epochs"
        )
    result = results[chosen]
    network = classification.load(method, N, result.weights, settings).requires_grad_(False)
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
            "settings": _told(settings),
            "seed": seeds[chosen],
            "runs": len(seeds),
            "epochs": result.best_epoch,
            "cross_entropy": losses[chosen],
            "test_error": result.error,
            "environment": {name: environment()[name] for name in ("cwrnn", "commit", "torch")},
            "features": features.describe_engine(),
            "finished_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        },
    }
    tensors = {MEAN: corpus.mean, DEVIATION: corpus.deviation}
    return Trained(Recogniser(SavedNetwork(KIND, method, network, tensors, about)), results, chosen)


def cross_entropy(result: Result) -> float:
    """The lowest mean cross entropy of the training words, that of the weights that are kept."""
    return float(result.curve[:, 1].min()) if len(result.curve) else math.inf


def trimmed(samples: NDArray[np.float64], rate: int) -> NDArray[np.float64]:
    """`samples`, (n,), without the silence before and after, but for a margin.

    >>> sound = np.concatenate([np.zeros(8000), np.ones(1600), np.zeros(4000)])
    >>> trimmed(sound, 16000).shape
    (2240,)
    """
    frame = max(1, rate // 100)
    power = np.square(samples[: len(samples) // frame * frame]).reshape(-1, frame).mean(axis=1)
    if not len(power):
        return samples
    loud = np.flatnonzero(power >= power.max() * 10 ** (-SILENCE / 10)) * frame
    margin = round(MARGIN * rate)
    return samples[max(0, loud[0] - margin) : loud[-1] + frame + margin]


def _told(settings: Settings) -> dict[str, Any]:
    """The settings that matter here: the others are the LSTM's, or the network's own."""
    names = ("learning_rate", "momentum", "noise", "epochs", "patience", "deviation")
    return {name: getattr(settings, name) for name in names}


def _words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(word, str) and word for word in value):
        raise ModelError("its words are not a list of texts")
    if len(set(value)) < len(value) or len(value) < 2:
        raise ModelError("its words are not two or more different ones")
    for word in value:
        # they are printed: a terminal would obey
        if any(unicodedata.category(character) == "Cc" for character in word):
            raise ModelError(f"its word {word!r} has control characters")
    return tuple(value)


def _clusters(value: Any, words: Sequence[str]) -> dict[str, int]:
    if (
        not isinstance(value, dict)
        or set(value) != set(words)
        or not all(type(cluster) is int and cluster >= 1 for cluster in value.values())
    ):
        raise ModelError("its clusters are not a number for each of its words")
    return dict(value)


def _feature_settings(value: Any) -> FeatureSettings:
    types = {each.name: int if each.type in (int, "int") else float for each in fields(FeatureSettings)}
    if not isinstance(value, dict) or set(value) != set(types):
        raise ModelError(f"its feature settings must be {', '.join(types)}")
    for name, kind in types.items():
        if type(value[name]) not in (kind, int):
            raise ModelError(f"the feature setting {name} must be of type {kind.__name__}, got {value[name]!r}")
    try:
        return FeatureSettings(**value)
    except (OverflowError, ValueError) as error:
        raise ModelError(f"its feature settings make no sense: {error}") from error
