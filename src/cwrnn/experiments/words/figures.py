"""Figures of spoken words, the second task.

    confusions        what the best network of every method takes each word for, by word and by cluster
    learning_curves   how cross entropy and test error fell
    hearing           what every module of a trained Clockwork RNN does while it hears a word

The numbers that are drawn come from the functions without a picture: `confusion`, `by_cluster`, `spoken`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...extras import require
from ...schedule import Schedule
from ..report import statistics as outcomes
from ..report.drawing import (
    COLOURS,
    GRID,
    KEY_OF_STATES,
    MUTED,
    NAMES,
    STROKES,
    count,
    draw_module_map,
    label,
    new_figure,
    paler,
    styled,
)
from ..report.statistics import best, box, curve
from ..sweep.run import FINISHED, Record
from . import training as classification
from .clips import TEST
from .corpus import Corpus
from .features import mel_frequency, mel_spectrogram

CANDIDATES = 5
"""Words whose probabilities are drawn."""


def best_of(records: Sequence[Record], method: str) -> Record | None:
    """The record of that method with the lowest test error, if a run of it finished."""
    return best(record for record in records if (record.run.method, record.status) == (method, FINISHED))


def confusion(record: Record, corpus: Corpus) -> NDArray[np.int64]:
    """(words, words): how often each word of the test set, in rows, was taken for each, in columns."""
    assert record.output is not None
    number = {word: place for place, word in enumerate(corpus.words)}
    found = np.zeros((len(corpus.words), len(corpus.words)), dtype=np.int64)
    for utterance, taken in zip(corpus.test, record.output.argmax(axis=1), strict=True):
        found[number[utterance.word], taken] += 1
    return found


def by_cluster(confusion: NDArray[np.int64], corpus: Corpus) -> NDArray[np.int64]:
    """(clusters, clusters): the same for the clusters of the words."""
    clusters = sorted(set(corpus.clusters.values()))
    member = np.array([[corpus.clusters[word] == cluster for word in corpus.words] for cluster in clusters])
    found: NDArray[np.int64] = member.astype(np.int64) @ confusion @ member.T.astype(np.int64)
    return found


def endings(corpus: Corpus) -> dict[int, str]:
    """What the words of each cluster end in, or the cluster's number if that is nothing."""
    found = {}
    for cluster in sorted(set(corpus.clusters.values())):
        words = [word for word in corpus.words if corpus.clusters[word] == cluster]
        first = words[0] if len(words) > 1 else ""
        common = next((first[at:] for at in range(len(first)) if all(word.endswith(first[at:]) for word in words)), "")
        found[cluster] = f"…{common}" if common else f"cluster {cluster}"
    return found


def spoken(record: Record, corpus: Corpus) -> int:
    """The number in the test set of the longest utterance that the network recognises, or of the longest of all."""
    assert record.output is not None
    taken = record.output.argmax(axis=1)
    right = [corpus.words[taken[place]] == each.word for place, each in enumerate(corpus.test)]
    return max(range(len(corpus.test)), key=lambda place: (right[place], len(corpus.test[place].features), -place))


@styled
def confusions(records: Sequence[Record], corpus: Corpus) -> Any:
    """What the best network of each method takes each word for, above, and each cluster, below: a column per method."""
    found = {method: best_of(records, method) for method in outcomes.methods(records)}
    networks = {method: record for method, record in found.items() if record is not None}
    clusters = [corpus.clusters[word] for word in corpus.words]
    names = endings(corpus)
    borders = [place for place in range(1, len(clusters)) if clusters[place] != clusters[place - 1]]
    room = min(1.0, 12.5 / len(clusters) / 0.5)
    figure = new_figure(1.2 + 3.5 * len(networks), 8.4)
    upper, lower = figure.subplots(2, len(networks), squeeze=False, height_ratios=[3.5, 2.2])
    for place, (method, record) in enumerate(networks.items()):
        counts = confusion(record, corpus)
        above, below = upper[place], lower[place]
        _cells(above, counts, COLOURS[method], f"words-{method}")
        above.hlines([each - 0.5 for each in borders], -0.5, len(counts) - 0.5, color=MUTED, linewidth=0.7)
        above.vlines([each - 0.5 for each in borders], -0.5, len(counts) - 0.5, color=MUTED, linewidth=0.7)
        words = [label(word, 14) for word in corpus.words]
        above.set_xticks(range(len(words)), words, rotation=90, fontsize=6.8 * room, parse_math=False)
        above.set_yticks(range(len(words)), words if place == 0 else [], fontsize=6.8 * room, parse_math=False)
        wrong = len(corpus.test) - int(np.trace(counts))
        above.set_title(f"{NAMES[method]}, {record.run.size} parameters", color=COLOURS[method], fontweight="bold",
                        loc="left", pad=16)  # fmt: skip
        above.annotate(f"{wrong} of {len(corpus.test)} wrong ({100 * record.error:.0f} %)", (0, 1), (0, 4), fontsize=8,
                       xycoords="axes fraction", textcoords="offset points")  # fmt: skip
        grouped = by_cluster(counts, corpus)
        _cells(below, grouped, COLOURS[method], f"clusters-{method}", numbers=True)
        marks = [label(name, 14) for name in names.values()]
        below.set_xticks(range(len(marks)), marks, rotation=90 if len(marks) > 6 else 0, parse_math=False, fontsize=8)
        below.set_yticks(range(len(marks)), marks if place == 0 else [], parse_math=False, fontsize=8)
        inside = int(np.trace(grouped)) - int(np.trace(counts))
        below.set_title(f"{inside} of the {count(wrong, 'error')} within a cluster", loc="left", fontsize=8.5)
    upper[0].set_ylabel("said")
    lower[0].set_ylabel("said, by ending")
    figure.supxlabel("taken for", fontsize=9)
    return figure


@styled
def learning_curves(records: Sequence[Record]) -> Any:
    """How the cross entropy of the training set and the test error fell: median and quartiles, a column per size."""
    methods, sizes = outcomes.methods(records), outcomes.sizes(records)
    figure = new_figure(max(6.0, 1.2 + 2.3 * len(sizes)), 5.0)
    panels = figure.subplots(2, len(sizes), squeeze=False, sharex=True, sharey="row")
    for column, size in enumerate(sizes):
        upper, lower = panels[0, column], panels[1, column]
        lost = []
        for method in methods:
            mine = outcomes.of(records, method, size)
            for panel, number, scale in ((upper, 1, 1.0), (lower, 3, 100.0)):
                epochs, quartiles = curve(mine, number, kept=True)
                below, median, above = scale * quartiles
                name = f"{'test' if number == 3 else 'train'}-{method}-{size}"
                panel.fill_between(epochs, below, above, color=COLOURS[method], alpha=0.2, linewidth=0)
                panel.plot(epochs, median, color=COLOURS[method], label=NAMES[method], gid=name)
                ends = [record.epochs for record in mine if record.status == FINISHED]
                if ends:
                    # where half of the runs are over
                    half = float(np.median(ends))
                    panel.plot(half, np.interp(half, epochs, median), marker="o", markersize=5, color=COLOURS[method])
            here = box(mine)
            for number, what in ((here.diverged, "diverged"), (here.failed, "failed")):
                if number:
                    lost.append((f"{NAMES[method]}: {number} of {len(mine)} {what}", COLOURS[method]))
        for line, (text, colour) in enumerate(reversed(lost)):
            lower.annotate(text, (0, 0), (4, 4 + 10 * line), xycoords="axes fraction", textcoords="offset points",
                           fontsize=7.5, color=colour)  # fmt: skip
        upper.set_title(f"{size} parameters", loc="left")
        lower.margins(x=0)
    panels[0, 0].set_ylim(bottom=0)
    panels[1, 0].set_ylim(0, 103)
    panels[0, 0].set_ylabel("cross entropy\nof the training set")
    panels[1, 0].set_ylabel("test error [%]")
    figure.supxlabel("epochs", fontsize=9)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(methods))
    return figure


@styled
def hearing(record: Record, corpus: Corpus, number: int) -> Any:
    """What a trained Clockwork RNN does during one word.

    The word's spectrogram, the states of the modules from slow to fast, and the probabilities of words as they would
    be if the word ended there.

    Args:
        record: of a Clockwork RNN
        corpus: what it was trained on
        number: of the utterance in the test set
    """
    run = record.run
    if run.method != "cw" or record.weights is None or record.schedule is None:
        raise ValueError(f"record must be that of a trained Clockwork RNN, got a {record.status} run of {run.method}")
    assert isinstance(run.settings, classification.Settings)
    schedule = Schedule.parse(record.schedule)
    utterance = corpus.test[number]
    features, _ = corpus.normalised(TEST)[number]
    states, logarithms = classification.follow(run.method, run.hidden, record.weights, features, run.settings)
    steps, modules = len(features), schedule.modules
    figure = new_figure(8.5, 4.4 + 0.5 * modules)
    top, *panels, bottom = figure.subplots(
        2 + modules, 1, sharex=True, height_ratios=[2.6, *[0.9] * modules, 2.6], gridspec_kw={"hspace": 0.02}
    )
    _spectrogram(top, utterance.features, corpus)
    speaker = f"{'synthetic, ' if corpus.synthetic else ''}said by {label(utterance.speaker, 30)}"
    top.set_title(f"“{label(utterance.word, 20)}”, {speaker}", loc="left", fontsize=9.5, parse_math=False)
    for panel, module in zip(panels, reversed(range(modules)), strict=True):
        draw_module_map(panel, states, schedule, module)
    panels[0].set_title(KEY_OF_STATES, loc="right", fontsize=8, color=MUTED)
    _probabilities(bottom, np.exp(logarithms), corpus, utterance.word)
    top.set_xlim(0, steps)
    bottom.set_xlabel(f"time step (of {corpus.settings.step:g} ms)")
    return figure


def _cells(panel: Any, counts: NDArray[np.int64], colour: str, gid: str, *, numbers: bool = False) -> None:
    """A square for every count that is not zero, as strong as its share of the row is large."""
    patches = require("matplotlib.patches", extra="experiments", purpose="drawing")
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    for row, column in np.argwhere(counts > 0):
        # a number is to be read on it, in light and in dark
        fill = paler(colour, round(0.1 + (0.5 if numbers else 0.9) * float(shares[row, column]), 3))
        panel.add_patch(
            patches.Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=fill, linewidth=0, gid=f"{gid}-{row}-{column}")
        )
        if numbers:
            panel.text(column, row, str(counts[row, column]), ha="center", va="center", fontsize=9)
    size = len(counts)
    panel.set_xlim(-0.5, size - 0.5)
    panel.set_ylim(size - 0.5, -0.5)
    panel.set_aspect("equal")
    panel.grid(False)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(True)


def _spectrogram(panel: Any, features: NDArray[np.float32], corpus: Corpus) -> None:
    spectrum = mel_spectrogram(features, corpus.settings)
    filters = spectrum.shape[1]
    panel.imshow(spectrum.T, origin="lower", aspect="auto", cmap="magma", interpolation="none", clip_on=False,
                 extent=(0, len(spectrum), 0, filters), gid="spectrogram")  # fmt: skip
    centres = mel_frequency(np.arange(filters), corpus.settings)
    marks = [hertz for hertz in (250, 1000, 2000, 4000, 7000) if centres[0] <= hertz <= centres[-1]]
    places = np.interp(marks, centres, np.arange(filters) + 0.5)
    panel.set_yticks(places, [f"{hertz / 1000:g}" for hertz in marks])
    panel.set_ylabel("kHz (mel scale)")
    panel.grid(False)
    panel.tick_params(labelbottom=False)


def _probabilities(panel: Any, probabilities: NDArray[np.float32], corpus: Corpus, said: str) -> None:
    steps = len(probabilities)
    order = sorted(range(len(corpus.words)), key=lambda place: -float(probabilities[:, place].max()))
    said_place = corpus.words.index(said)
    others = [place for place in order if place != said_place][: CANDIDATES - 1]
    for rank, place in enumerate([said_place, *others]):
        panel.plot(np.arange(steps) + 0.5, probabilities[:, place], color=COLOURS["cw"] if rank == 0 else MUTED,
                   linewidth=2.0 if rank == 0 else 1.1, linestyle=STROKES[max(0, rank - 1) % len(STROKES)],
                   zorder=3 - rank / 10, label=label(corpus.words[place], 20),
                   gid=f"probability-{place}")  # fmt: skip
    panel.axhline(1 / len(corpus.words), color=GRID, linewidth=0.9, zorder=0)
    panel.set_ylim(0, 1.02)
    panel.set_ylabel("probability")
    panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.05), handlelength=2.6)
