"""Inspection of a network that tells words apart: a run of a store, or a saved recogniser."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...inspection import Array
from ...network import Network
from ...saved import SavedNetwork
from ..inspect.inspected import (
    CROSS_ENTROPY,
    ERROR,
    InspectedNetwork,
    InspectionError,
    InspectionOptions,
    check_finite,
    explain_weights,
    get_layer,
)
from ..networks.methods import METHODS
from ..report.drawing import COLOURS, MUTED, fit_label
from ..sweep.run import Record
from . import training
from .corpus import BUNDLE, Corpus, CorpusError, load_corpus
from .features import FeatureSettings
from .recogniser.model import Recogniser

RIVALS = 3
"""How many wrong words are drawn beside the right one: the most probable."""
RIVAL_STROKES = ((0, (4, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)))
NOT_A_TABLE = "is for networks that read a table, but this one tells words apart"

Normalise = Callable[[NDArray[np.float32]], NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class SpokenWord:
    """The word that a figure shows, among all words that the network tells apart."""

    words: Sequence[str]
    """All words, in the order of the outputs."""
    label: int
    """The number of the word."""
    speaker: str
    scope = "all test words"
    signal = None
    caption = (
        "The top panel shows the probabilities of the right word and of its strongest rivals, as they would be if the "
        "word ended there. The network decides at the last step."
    )

    @property
    def purpose(self) -> str:
        """The number of words."""
        return f"that tells {len(self.words)} words apart"

    def draw(self, panel: Any, time: NDArray[Any], input: NDArray[Any], output: Array | None) -> None:
        """Draw the probabilities of the word and of its rivals."""
        assert output is not None
        probabilities = np.exp(output - np.logaddexp.reduce(output, axis=1, keepdims=True))
        rivals = [i for i in np.argsort(-probabilities.max(axis=0)) if i != self.label][:RIVALS]
        for i, stroke in zip(rivals, RIVAL_STROKES, strict=False):
            name = fit_label(self.words[i], 14)
            panel.plot(time, probabilities[:, i], color=MUTED, linewidth=1.0, linestyle=stroke, label=name)
        word = self.words[self.label]
        panel.plot(time, probabilities[:, self.label], color=COLOURS["cw"], linewidth=1.8,
                   label=fit_label(word, 14))  # fmt: skip
        panel.set_ylim(-0.03, 1.03)
        panel.set_ylabel("probability")
        panel.set_title(fit_label(f"“{word}”, {self.speaker}", 40), loc="left", fontsize=9)


def inspect_record(
    record: Record, trained: Corpus, facts: Mapping[str, str], options: InspectionOptions
) -> InspectedNetwork:
    """Return the network of a run, with the test words of its own corpus or of another source."""
    options.refuse(("inputs", "target", "length"), NOT_A_TABLE)
    assert record.weights is not None
    run = record.run
    assert isinstance(run.settings, training.WordSettings)
    mean, deviation = trained.mean, trained.deviation

    def normalise(features: NDArray[np.float32]) -> NDArray[np.float32]:
        return ((features - mean) / deviation).astype(np.float32)

    with explain_weights(f"{facts['store']}: the weights of the run {record.key[:12]}"):
        network = training.load_network(run.method, run.hidden, record.weights, run.settings)
    corpus = trained if options.data is None else _load_words(options.data, trained.words, trained.settings, options)
    return _inspect_words(run.method, network, trained.words, normalise, corpus, options, facts)


def inspect_saved(saved: SavedNetwork, facts: Mapping[str, str], options: InspectionOptions) -> InspectedNetwork:
    """Return the network of a saved recogniser, with test words; raises a ModelError if it is none."""
    options.refuse(("inputs", "target", "length"), NOT_A_TABLE)
    recogniser = Recogniser(saved)
    corpus = _load_words(options.data or BUNDLE, recogniser.words, recogniser.settings, options)
    trained_on = recogniser.training.get("corpus")
    if isinstance(trained_on, dict) and "source" in trained_on:
        facts = {**facts, "trained on": str(trained_on["source"])}
    return _inspect_words(saved.method, saved.network, recogniser.words, recogniser.normalise, corpus, options, facts)


def _inspect_words(
    method: str,
    network: Network,
    words: Sequence[str],
    normalise: Normalise,
    corpus: Corpus,
    options: InspectionOptions,
    facts: Mapping[str, str],
) -> InspectedNetwork:
    """Return a network that tells the words apart, with the test set of the corpus."""
    utterances, word = corpus.test, options.word
    if word is not None and word not in words:
        raise InspectionError(f"word must be one of {', '.join(words)}, got {word!r}")
    shown = next(i for i, utterance in enumerate(utterances) if word in (None, utterance.word))
    labels = np.array([words.index(utterance.word) for utterance in utterances])

    def measure(outputs: Sequence[Array]) -> dict[str, float]:
        check_finite(outputs, "the outputs of the network")
        # the decision is that of the last time step
        last = np.stack([output[-1] for output in outputs])
        wrong = last.argmax(axis=1) != labels
        likelihood = last[np.arange(len(last)), labels] - np.logaddexp.reduce(last, axis=1)
        return {ERROR: float(wrong.mean()), CROSS_ENTROPY: float(-likelihood.mean())}

    inputs = [normalise(utterance.features) for utterance in utterances]
    check_finite(inputs, "the normalised features")
    return InspectedNetwork(
        task="words",
        name=METHODS[method].label,
        layer=get_layer(network),
        readout=network.readout,
        inputs=inputs,
        measure=measure,
        shown=shown,
        display=SpokenWord(words, int(labels[shown]), utterances[shown].speaker),
        facts={**facts, "looked at with": f"the {len(utterances)} test words of {corpus.name}"},
        step=f" (of {corpus.settings.step:g} ms)",
    )


def _load_words(source: str, words: Sequence[str], settings: FeatureSettings, options: InspectionOptions) -> Corpus:
    """Return the words of a network from another source."""
    try:
        corpus = load_corpus(source, words=words, progress=options.progress)
    except CorpusError as error:
        raise InspectionError(str(error)) from error
    if corpus.settings != settings:
        raise InspectionError(f"{source}: its feature settings are not those that the network was trained with")
    return corpus
