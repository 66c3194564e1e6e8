"""Chooses the constants of the echo state network by validation errors, without any test recording.

    with input       the training speakers of the bundled words: each speaker of a word is left out in turn, the readout
                     is fitted to the other speakers, and the share of wrong words among those left out is measured
    without input    sound files that are not the bundled snippets: the readout is fitted to each file, and the NMSE of
                     the generated sequence is measured

Every combination of the values in a grid is measured with the same reservoir seeds. The combination with the lowest
error is chosen, and the first one of several with the same error: with input by the mean over speakers and seeds,
without input by the median over files and seeds. The printed tables have the best combinations and the present one.

Run it as ``python tools/choose_reservoir.py FOLDER_OF_SOUND_FILES``. It takes about three minutes on one core.
"""

import argparse
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cwrnn.experiments.generation.music import load_sequences
from cwrnn.experiments.generation.training import nmse
from cwrnn.experiments.networks.build import build_network, hidden_for
from cwrnn.experiments.networks.least_squares import RIDGES, fit_readout
from cwrnn.experiments.networks.models import echo_state
from cwrnn.experiments.text_table import format_table
from cwrnn.experiments.words.clips import TEST, TRAIN, order_speakers
from cwrnn.experiments.words.corpus import Corpus, load_corpus
from cwrnn.experiments.words.training import Padded

WORDS_SIZE, WORDS_SEEDS = 10_000, 3
"""The parameters of a network with input, and the seeds of each combination."""
FREE_SIZE, FREE_SEEDS = 1000, 20
"""The parameters of a network without input, and the seeds of each combination."""
SHOWN = 10
"""The rows of a table, the best combinations first."""

Constants = Mapping[str, float]
"""Values by the names of the constants of `echo_state.py`."""

WORDS_GRID = {
    "RADIUS": (0.5, 0.8, 0.95, 1.1),
    "LEAK": (0.01, 0.03, 0.1, 0.3),
    "INPUT_SCALING": (0.01, 0.03, 0.1, 0.3),
    "BIAS_SCALING": (0.01, 0.1),
}
FREE_GRID = {
    "FREE_RADIUS": (1.0, 1.05, 1.1, 1.2, 1.5),
    "FREE_BIAS_SCALING": (0.01, 0.03, 0.1, 0.3),
}


def leave_out(corpus: Corpus, place: int) -> Corpus:
    """Return the training speakers of a corpus, of which one of each word takes the place of the test set.

    Args:
        corpus: a corpus; its test speakers are dropped
        place: which speaker of each word is left out, from 0 on in the order of `order_speakers`

    >>> whole = load_corpus()
    >>> part = leave_out(whole, 4)
    >>> len(part.train), len(part.test)
    (100, 25)
    >>> {each.source for each in part.utterances} & {each.source for each in whole.test}
    set()
    """
    left_out = {
        word: order_speakers(word, {each.speaker for each in corpus.train if each.word == word})[place]
        for word in corpus.words
    }
    utterances = tuple(
        replace(each, split=TEST if each.speaker == left_out[each.word] else TRAIN) for each in corpus.train
    )
    return replace(corpus, utterances=utterances)


class WordErrors:
    """Measures the share of wrong words among the speakers that are left out."""

    def __init__(self) -> None:
        corpus = load_corpus()
        speakers = min(sum(each.word == word for each in corpus.train) for word in corpus.words)
        parts = [leave_out(corpus, place) for place in range(speakers)]
        # each part is normalised by its own training frames
        data = Padded([pair for part in parts for split in (TRAIN, TEST) for pair in part.normalised(split)])
        self.input, self.lengths, self.labels = data.input.transpose(0, 1), data.lengths, data.labels
        self.counts = [len(part.train) for part in parts]
        self.shape = corpus.settings.channels, len(corpus.words)

    def __call__(self, seed: int) -> list[float]:
        """Return the errors of one reservoir, one for each speaker that is left out."""
        inputs, classes = self.shape
        units = hidden_for("esn", WORDS_SIZE, input_size=inputs, output_size=classes)
        network = build_network("esn", units, inputs, classes, seed=seed)
        states = network.layer(self.input)[self.lengths - 1, torch.arange(len(self.lengths))]
        errors = []
        size = len(self.labels) // len(self.counts)
        for count, part, labels in zip(self.counts, states.split(size), self.labels.split(size), strict=True):
            fit_readout(network, [(part[:count], labels[:count])], classes=classes)
            decided: Tensor = network.readout(part[count:]).argmax(1)
            errors.append(float((decided != labels[count:]).double().mean()))
        return errors


class FreeErrors:
    """Measures the NMSE of the sequences that a readout generates from states without input."""

    def __init__(self, sources: Sequence[str]) -> None:
        self.targets = [dataset.samples for dataset in load_sequences(sources)]
        bundled = [dataset.samples for dataset in load_sequences()]
        if any(np.array_equal(target, snippet) for target in self.targets for snippet in bundled):
            raise SystemExit("error: expected sound files that are not the bundled snippets, which judge the network")

    def __call__(self, seed: int) -> list[float]:
        """Return the errors of one reservoir, one for each file."""
        network = build_network("esn", hidden_for("esn", FREE_SIZE), seed=seed)
        states = network.layer(torch.zeros(len(self.targets[0]), 1, 0))[:, 0]
        errors = []
        for target in self.targets:
            # the sequence is learned by heart, with the ridge of `generation/training.py`
            fit_readout(network, [(states, torch.from_numpy(target)[:, None])], ridges=RIDGES[:1])
            errors.append(nmse(network.readout(states)[:, 0].numpy(), target))
        return errors


def measure(
    grid: Mapping[str, Sequence[float]], seeds: int, errors_of: Callable[[int], list[float]]
) -> list[tuple[Constants, NDArray[np.float64]]]:
    """Return the errors (seeds, parts) of every combination of the grid, and of the present constants."""
    present = {name: getattr(echo_state, name) for name in grid}
    combinations: list[dict[str, Any]] = [
        dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())
    ]
    if present not in combinations:
        combinations.append(present)
    measured: list[tuple[Constants, NDArray[np.float64]]] = []
    for number, constants in enumerate(combinations, start=1):
        with mock.patch.multiple(echo_state, **constants), torch.no_grad():
            measured.append((constants, np.array([errors_of(seed) for seed in range(seeds)])))
        if sys.stderr.isatty():
            end = "\n" if number == len(combinations) else ""
            print(f"\r{number} of {len(combinations)} combinations", end=end, file=sys.stderr, flush=True)
    return measured


def choose(title: str, measured: list[tuple[Constants, NDArray[np.float64]]], *, by_median: bool) -> Constants:
    """Print the best combinations and the present one, and return the best."""
    average = np.median if by_median else np.mean
    ranked = sorted(measured, key=lambda pair: float(average(pair[1])))
    names = list(ranked[0][0])
    present = {name: getattr(echo_state, name) for name in names}
    rows = []
    for place, (constants, errors) in enumerate(ranked, start=1):
        if place <= SHOWN or constants == present:
            of_seeds = average(errors, axis=1)
            row = [f"{place}", *(f"{constants[name]:g}" for name in names)]
            numbers = (f"{value:.4f}" for value in (average(errors), of_seeds.min(), of_seeds.max()))
            rows.append([*row, *numbers, "present" if constants == present else ""])
    kind = "median NMSE" if by_median else "mean error"
    caption = (
        f"{len(measured)} combinations, {errors.shape[0]} seeds, {errors.shape[1]} "
        f"{'files' if by_median else 'speakers of each word, each left out once'}. Lowest and highest: the {kind} of "
        "the best and of the worst seed."
    )
    print(format_table(title, ["place", *names, kind, "lowest", "highest", ""], rows, caption, left=0), end="\n\n")
    return ranked[0][0]


def main() -> None:
    """Measure both grids, and print the tables and the constants to set."""
    parser = argparse.ArgumentParser(
        description="Choose the constants of the echo state network by validation errors, about 3 minutes on one core.",
        epilog="example: python tools/choose_reservoir.py my-sounds/",
    )
    parser.add_argument(
        "sounds",
        nargs="*",
        help="sound files that are not the bundled snippets, or folders of them, to choose the constants of a network "
        "without input; without any, only the constants with input are chosen",
    )
    parser.add_argument("--seeds", type=int, default=WORDS_SEEDS, help="seeds of a network with input (default: 3)")
    parser.add_argument(
        "--free-seeds", type=int, default=FREE_SEEDS, help="seeds of a network without input (default: 20)"
    )
    asked = parser.parse_args()
    chosen: dict[str, float] = {}
    if asked.sounds:
        measured = measure(FREE_GRID, asked.free_seeds, FreeErrors(asked.sounds))
        chosen |= choose(f"Without input, {FREE_SIZE} parameters", measured, by_median=True)
    measured = measure(WORDS_GRID, asked.seeds, WordErrors())
    chosen |= choose(f"With input, {WORDS_SIZE} parameters", measured, by_median=False)
    print("Chosen:", ", ".join(f"{name} = {value:g}" for name, value in chosen.items()))


if __name__ == "__main__":
    main()
