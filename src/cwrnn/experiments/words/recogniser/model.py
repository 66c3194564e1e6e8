"""The recogniser: a network that tells spoken words apart, with everything that is needed to use it.

    sound -> features -> normalisation -> hidden layer -> softmax: a probability for each word

The decision is that of the last frame. A recogniser takes a whole recording at once, or a sound that is still arriving,
frame by frame; both give the same decision, to float precision. It knows its words and nothing else, so it takes every
sound for one of them, and it expects words like those it was trained on, without silence before and after.
"""

import reprlib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ....saved import ModelError, SavedNetwork
from ....step import LSTMState, State
from ....untrusted import escape_controls
from ..features import FeatureSettings, FeatureStream, Resampler
from ..sound_files import SoundError, check_samples, extract_features

KIND = "words"
MEAN, DEVIATION = "features.mean", "features.deviation"

SILENCE = 35.0
"""Decibels: sound that is so much quieter than the loudest 10 ms of a recording counts as silence."""
MARGIN = 0.02
"""Seconds of silence that `trim_silence` leaves before and after the word."""

Candidates = list[tuple[str, float]]
"""Words with their probabilities, the most probable first."""


class Decision(NamedTuple):
    """The decision of a recogniser after a frame of a stream."""

    time: float
    """The end of the frame, in seconds from the start of the stream."""
    word: str
    """The most probable word."""
    probability: float
    candidates: Candidates
    """All words with their probabilities, the most probable first."""


class Recogniser:
    """A network and its words. `train_recogniser` makes one, and `load` reads one from a file.

    Args:
        saved: the network, with the normalisation as tensors, and words, clusters and feature settings in `about`;
            raises a ModelError if they do not fit together
    """

    def __init__(self, saved: SavedNetwork) -> None:
        if saved.kind != KIND:
            raise ModelError(f"a network of the kind {saved.kind!r}, expected a recogniser of words")
        self.saved = saved
        self.words = check_words(saved.about.get("words"))
        """The labels, in the order of the network's outputs."""
        self.clusters = _check_clusters(saved.about.get("clusters"), self.words)
        """The cluster of each word; words of one cluster sound alike."""
        self.settings = _check_feature_settings(saved.about.get("features"))
        """The settings of the features."""
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
        """The corpus and the settings that it was trained with, and the errors that it reached."""
        training = self.saved.about.get("training")
        return training if isinstance(training, dict) else {}

    def save(self, path: str | Path) -> None:
        """Write the recogniser to `path`, whole or not at all; an existing file is replaced."""
        self.saved.save(Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "Recogniser":
        """Return the recogniser in a file, or raise a ModelError that says what is wrong with it."""
        saved = SavedNetwork.load(Path(path))
        try:
            return cls(saved)
        except ModelError as error:
            raise ModelError(f"{escape_controls(str(path))}: {error}") from error

    def recognise(self, samples: NDArray[np.floating[Any]], sample_rate: int) -> Candidates:
        """Return all words with their probabilities, the most probable first.

        Raises a SoundError if the sound is silent, too short or too long, has samples or a sample rate that cannot be
        used, or if the network computes a probability that is not finite for it.

        Args:
            samples: (n,), floating point in [-1, 1]
            sample_rate: samples per second
        """
        if not len(samples):
            raise SoundError("has no samples")
        check_samples(samples)
        features = extract_features(np.asarray(samples, dtype=np.float64), sample_rate, self.settings)
        with torch.no_grad():
            _, state = self.saved.layer(torch.from_numpy(self.normalise(features))[:, None], return_state=True)
            return self.rank_words(state.h[0])

    def listen(self, sample_rate: int | None = None) -> "Listener":
        """Return a Listener for a sound that arrives in chunks.

        Args:
            sample_rate: samples per second of the sound; None for that of the features, 16000
        """
        return Listener(self, self.settings.rate if sample_rate is None else sample_rate)

    def normalise(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the features (T, 13) as the network takes them, normalised as in training."""
        # a model file of others may have a normalisation that leads to infinite numbers: `rank_words` refuses those
        with np.errstate(over="ignore"):
            return ((features - self._mean) / self._deviation).astype(np.float32)

    def rank_words(self, hidden: torch.Tensor) -> Candidates:
        """Return all words with their probabilities, the most probable first, for the hidden state (1, N).

        Raises a SoundError if a probability is not finite.
        """
        readout: torch.Tensor = self.saved.network.readout(hidden)
        probabilities = readout.softmax(-1)[0].numpy()
        if not np.isfinite(probabilities).all():
            raise SoundError("the network computes probabilities that are not finite: its numbers are too large")
        # stable: of equally probable words the first comes first, as argmax has it
        order = np.argsort(-probabilities, kind="stable")
        return [(self.words[i], float(probabilities[i])) for i in order]


class Listener:
    """Recognises one sound that arrives in chunks.

    After the whole sound the decision is that of `Recogniser.recognise`, however the sound was cut.
    """

    def __init__(self, recogniser: Recogniser, sample_rate: int) -> None:
        self._recogniser = recogniser
        self._resampler = Resampler(sample_rate, recogniser.settings.rate)
        self._features = FeatureStream(recogniser.settings)
        self._state: State | LSTMState | None = None
        self._accepted = 0
        """The number of samples so far."""
        self.decision: Decision | None = None
        """The last decision; None before the first frame."""

    def accept(self, samples: NDArray[np.floating[Any]]) -> list[Decision]:
        """Return a decision for each frame that ends within `samples`, (n,) in [-1, 1].

        Raises a SoundError if a sample cannot be used, or if a probability is not finite.
        """
        check_samples(samples, self._accepted)
        self._accepted += len(samples)
        return self._decide(self._features.accept(self._resampler.accept(samples)))

    def finish(self) -> list[Decision]:
        """End the sound, and return the decisions for the frames that are left."""
        return self._decide(np.concatenate([self._features.accept(self._resampler.finish()), self._features.finish()]))

    def _decide(self, features: NDArray[np.float32]) -> list[Decision]:
        decisions = []
        settings, layer = self._recogniser.settings, self._recogniser.saved.layer
        with torch.no_grad():
            for frame in torch.from_numpy(self._recogniser.normalise(features))[:, None]:
                hidden, self._state = layer.step(frame, self._state)
                candidates = self._recogniser.rank_words(hidden)
                time = ((int(self._state.t) - 1) * settings.step + settings.window) / 1000
                self.decision = Decision(time, *candidates[0], candidates)
                decisions.append(self.decision)
        return decisions


def trim_silence(samples: NDArray[np.float64], sample_rate: int) -> NDArray[np.float64]:
    """Return `samples`, (n,), without the silence before and after, except for a margin.

    >>> sound = np.concatenate([np.zeros(8000), np.ones(1600), np.zeros(4000)])
    >>> trim_silence(sound, 16000).shape
    (2240,)
    """
    frame = max(1, sample_rate // 100)
    power = np.square(samples[: len(samples) // frame * frame]).reshape(-1, frame).mean(axis=1)
    if not len(power):
        return samples
    loud = np.flatnonzero(power >= power.max() * 10 ** (-SILENCE / 10)) * frame
    margin = round(MARGIN * sample_rate)
    return samples[max(0, loud[0] - margin) : loud[-1] + frame + margin]


def check_words(value: Any) -> tuple[str, ...]:
    """Return the words of a recogniser, or raise a ModelError if they cannot be its labels."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(word, str) and word for word in value):
        raise ModelError(f"the words must be a list of texts, got {reprlib.repr(value)}")
    if len(set(value)) < len(value) or len(value) < 2:
        raise ModelError(f"the words must be two or more different ones, got {reprlib.repr(value)}")
    for word in value:
        categories = set(map(unicodedata.category, word))
        # words are printed, and a terminal obeys control characters
        if "Cc" in categories:
            raise ModelError(f"the word {reprlib.repr(word)} has control characters")
        # words are exported in UTF-8
        if "Cs" in categories:
            raise ModelError(f"the word {reprlib.repr(word)} has half of a surrogate pair, which UTF-8 cannot hold")
    return tuple(value)


def _check_clusters(value: Any, words: Sequence[str]) -> dict[str, int]:
    if (
        not isinstance(value, dict)
        or set(value) != set(words)
        or not all(type(cluster) is int and cluster >= 1 for cluster in value.values())
    ):
        raise ModelError(f"the clusters must be a number from 1 on for each word, got {reprlib.repr(value)}")
    return dict(value)


def _check_feature_settings(value: Any) -> FeatureSettings:
    types = {setting.name: int if setting.type in (int, "int") else float for setting in fields(FeatureSettings)}
    if not isinstance(value, dict) or set(value) != set(types):
        raise ModelError(f"the feature settings must be {', '.join(types)}, got {reprlib.repr(value)}")
    for name, kind in types.items():
        if type(value[name]) not in (kind, int):
            raise ModelError(
                f"the feature setting {name} must be of type {kind.__name__}, got {reprlib.repr(value[name])}"
            )
    try:
        return FeatureSettings(**value)
    except (OverflowError, ValueError) as error:
        raise ModelError(f"the feature settings cannot be used: {error}") from error
