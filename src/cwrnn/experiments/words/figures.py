"""Figures of spoken words, the second task, each a matplotlib Figure.

    confusions        the answers of the best network of every method, by word and by cluster
    learning_curves   cross entropy and test error over the epochs
    hearing           the states of a trained Clockwork RNN, module by module, while it hears a word

`count_answers`, `group_by_cluster` and `choose_utterance` compute what is drawn.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...extras import require
from ...schedule import Schedule
from ..networks.methods import ALL_METHODS
from ..report.drawing import (
    COLOURS,
    GRID,
    KEY_OF_STATES,
    MUTED,
    NAMES,
    STROKES,
    draw_module_map,
    fit_label,
    make_translucent,
    new_figure,
    styled,
)
from ..report.numbers import format_count
from ..report.statistics import best_record, box, methods_of, quartile_curve, select_records, sizes_of
from ..sweep.run import FINISHED, Record
from . import training
from .clips import TEST
from .corpus import Corpus
from .features import mel_frequency, mel_spectrogram

STRONGEST_WITH_NUMBER = 0.4
"""The largest opacity of a square that has a number on it."""
CANDIDATES = 5
"""How many words have their probabilities drawn."""


def best_finished(records: Sequence[Record], method: str) -> Record | None:
    """Returns the record of the method with the lowest test error, or None if no run of the method finished."""
    return best_record(record for record in records if (record.run.method, record.status) == (method, FINISHED))


def count_answers(record: Record, corpus: Corpus) -> NDArray[np.int64]:
    """Returns how often each word of the test set (rows) got each word as the answer (columns): (words, words)."""
    assert record.output is not None
    number = {word: place for place, word in enumerate(corpus.words)}
    counts = np.zeros((len(corpus.words), len(corpus.words)), dtype=np.int64)
    for utterance, answer in zip(corpus.test, record.output.argmax(axis=1), strict=True):
        counts[number[utterance.word], answer] += 1
    return counts


def group_by_cluster(counts: NDArray[np.int64], corpus: Corpus) -> NDArray[np.int64]:
    """Returns the counts of answers summed over the words of each cluster: (clusters, clusters)."""
    clusters = sorted(set(corpus.clusters.values()))
    member = np.array([[corpus.clusters[word] == cluster for word in corpus.words] for cluster in clusters])
    grouped: NDArray[np.int64] = member.astype(np.int64) @ counts @ member.T.astype(np.int64)
    return grouped


def name_clusters(corpus: Corpus) -> dict[int, str]:
    """Returns the common ending of the words of each cluster, or the cluster's number if they have none."""
    names = {}
    for cluster in sorted(set(corpus.clusters.values())):
        words = [word for word in corpus.words if corpus.clusters[word] == cluster]
        first = words[0] if len(words) > 1 else ""
        common = next((first[at:] for at in range(len(first)) if all(word.endswith(first[at:]) for word in words)), "")
        names[cluster] = f"…{common}" if common else f"cluster {cluster}"
    return names


def choose_utterance(record: Record, corpus: Corpus) -> int:
    """Returns the number in the test set of the longest utterance that the network recognises.

    It is the longest of all if the network recognises none.
    """
    assert record.output is not None
    answers = record.output.argmax(axis=1)
    right = [corpus.words[answers[place]] == utterance.word for place, utterance in enumerate(corpus.test)]
    return max(range(len(corpus.test)), key=lambda place: (right[place], len(corpus.test[place].features), -place))


@styled
def confusions(records: Sequence[Record], corpus: Corpus) -> Any:
    """Returns a figure of the answers of the best network of each method, a column per method.

    Above, a square for each pair of a spoken word and an answer; below, the same by cluster, as counts.
    """
    best = {method: best_finished(records, method) for method in methods_of(records)}
    networks = {method: record for method, record in best.items() if record is not None}
    clusters = [corpus.clusters[word] for word in corpus.words]
    names = name_clusters(corpus)
    borders = [place for place in range(1, len(clusters)) if clusters[place] != clusters[place - 1]]
    room = min(1.0, 12.5 / len(clusters) / 0.5)
    figure = new_figure(1.2 + 3.5 * len(networks), 8.4)
    upper, lower = figure.subplots(2, len(networks), squeeze=False, height_ratios=[3.5, 2.2])
    for place, (method, record) in enumerate(networks.items()):
        counts = count_answers(record, corpus)
        above, below = upper[place], lower[place]
        _cells(above, counts, COLOURS[method], f"words-{method}")
        above.hlines([border - 0.5 for border in borders], -0.5, len(counts) - 0.5, color=MUTED, linewidth=0.7)
        above.vlines([border - 0.5 for border in borders], -0.5, len(counts) - 0.5, color=MUTED, linewidth=0.7)
        words = [fit_label(word, 14) for word in corpus.words]
        above.set_xticks(range(len(words)), words, rotation=90, fontsize=6.8 * room)
        above.set_yticks(range(len(words)), words if place == 0 else [], fontsize=6.8 * room)
        wrong = len(corpus.test) - int(np.trace(counts))
        above.set_title(f"{NAMES[method]}, {record.run.size} parameters", color=COLOURS[method], fontweight="bold",
                        loc="left", pad=16)  # fmt: skip
        above.annotate(f"{wrong} of {len(corpus.test)} wrong ({100 * record.error:.0f} %)", (0, 1), (0, 4), fontsize=8,
                       xycoords="axes fraction", textcoords="offset points")  # fmt: skip
        grouped = group_by_cluster(counts, corpus)
        _cells(below, grouped, COLOURS[method], f"clusters-{method}", numbers=True)
        marks = [fit_label(name, 14) for name in names.values()]
        below.set_xticks(range(len(marks)), marks, rotation=90 if len(marks) > 6 else 0, fontsize=8)
        below.set_yticks(range(len(marks)), marks if place == 0 else [], fontsize=8)
        inside = int(np.trace(grouped)) - int(np.trace(counts))
        below.set_title(f"{inside} of the {format_count(wrong, 'error')} within a cluster", loc="left", fontsize=8.5)
    upper[0].set_ylabel("spoken word")
    lower[0].set_ylabel("spoken word, by ending")
    figure.supxlabel("answer of the network", fontsize=9)
    return figure


@styled
def learning_curves(records: Sequence[Record]) -> Any:
    """Returns a figure of cross entropy and test error over the epochs: median and quartiles, a column per size."""
    methods, sizes = methods_of(records), sizes_of(records)
    figure = new_figure(max(6.0, 1.2 + 2.3 * len(sizes)), 5.0)
    panels = figure.subplots(2, len(sizes), squeeze=False, sharex=True, sharey="row")
    for column, size in enumerate(sizes):
        upper, lower = panels[0, column], panels[1, column]
        lost = []
        for method in methods:
            mine = select_records(records, method, size)
            for panel, number, scale in ((upper, 1, 1.0), (lower, 3, 100.0)):
                epochs, quartiles = quartile_curve(mine, number, kept=True)
                below, median, above = scale * quartiles
                name = f"{'test' if number == 3 else 'train'}-{method}-{size}"
                panel.fill_between(epochs, below, above, color=COLOURS[method], alpha=0.2, linewidth=0)
                panel.plot(epochs, median, color=COLOURS[method], label=NAMES[method], gid=name)
                last = [record.epochs for record in mine if record.status == FINISHED]
                if last:
                    # the dot marks the epoch at which half of the runs have ended
                    half = float(np.median(last))
                    panel.plot(half, np.interp(half, epochs, median), marker="o", markersize=5, color=COLOURS[method])
            here = box(mine)
            for number, status in ((here.diverged, "diverged"), (here.failed, "failed")):
                if number:
                    lost.append((f"{NAMES[method]}: {number} of {len(mine)} {status}", COLOURS[method]))
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
    """Returns a figure of a trained Clockwork RNN that hears one word.

    It shows the spectrogram of the word, the states of the modules from slow to fast, and at each step the
    probabilities of the words if the word ended there.

    Args:
        record: a run of a Clockwork RNN
        corpus: the words that it was trained on
        number: the utterance's number in the test set
    """
    run = record.run
    if not ALL_METHODS[run.method].has_clocks or record.weights is None or record.schedule is None:
        raise ValueError(f"record must have a trained network with clocks, got a {record.status} run of {run.method}")
    assert isinstance(run.settings, training.WordSettings)
    schedule = Schedule.parse(record.schedule)
    utterance = corpus.test[number]
    features, _ = corpus.normalised(TEST)[number]
    states, logarithms = training.follow(run.method, run.hidden, record.weights, features, run.settings)
    steps, modules = len(features), schedule.modules
    figure = new_figure(7.2, 4.2 + 0.42 * modules)
    top, *panels, bottom = figure.subplots(
        2 + modules, 1, sharex=True, height_ratios=[2.6, *[0.9] * modules, 2.6], gridspec_kw={"hspace": 0.02}
    )
    _spectrogram(top, utterance.features, corpus)
    speaker = f"{'synthetic, ' if corpus.synthetic else ''}spoken by {fit_label(utterance.speaker, 30)}"
    top.set_title(f"“{fit_label(utterance.word, 20)}”, {speaker}", loc="left", fontsize=9.5)
    for panel, module in zip(panels, reversed(range(modules)), strict=True):
        draw_module_map(panel, states, schedule, module)
    panels[0].set_title(KEY_OF_STATES, loc="right", fontsize=8, color=MUTED)
    _probabilities(bottom, np.exp(logarithms), corpus, utterance.word)
    top.set_xlim(0, steps)
    bottom.set_xlabel(f"time step (of {corpus.settings.step:g} ms)")
    return figure


def _cells(panel: Any, counts: NDArray[np.int64], colour: str, gid: str, *, numbers: bool = False) -> None:
    """Draws a square for every count above zero; its opacity grows with its share of the row."""
    patches = require("matplotlib.patches", extra="experiments", purpose="drawing")
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    for row, column in np.argwhere(counts > 0):
        # a square with a number stays pale enough to read the number, in light and in dark
        strongest = STRONGEST_WITH_NUMBER if numbers else 1.0
        fill = make_translucent(colour, round(0.1 + (strongest - 0.1) * float(shares[row, column]), 3))
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


def _probabilities(panel: Any, probabilities: NDArray[np.float32], corpus: Corpus, spoken: str) -> None:
    steps = len(probabilities)
    order = sorted(range(len(corpus.words)), key=lambda place: -float(probabilities[:, place].max()))
    spoken_place = corpus.words.index(spoken)
    others = [place for place in order if place != spoken_place][: CANDIDATES - 1]
    for rank, place in enumerate([spoken_place, *others]):
        panel.plot(np.arange(steps) + 0.5, probabilities[:, place], color=COLOURS["cw"] if rank == 0 else MUTED,
                   linewidth=2.0 if rank == 0 else 1.1, linestyle=STROKES[max(0, rank - 1) % len(STROKES)],
                   zorder=3 - rank / 10, label=fit_label(corpus.words[place], 20),
                   gid=f"probability-{place}")  # fmt: skip
    panel.axhline(1 / len(corpus.words), color=GRID, linewidth=0.9, zorder=0)
    panel.set_ylim(0, 1.02)
    panel.set_ylabel("probability")
    panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.05), handlelength=2.6)
