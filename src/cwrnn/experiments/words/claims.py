"""Findings of spoken words, the second task."""

from collections.abc import Iterable, Sequence
from itertools import chain

from ..networks.build import METHODS
from ..report.claims import (
    Claim,
    Rows,
    few_runs,
    known_rows,
    largest_common,
    listed,
    order_of_the_paper,
    other_rates,
    paper_figures,
    some_diverged,
    times,
)
from ..report.drawing import NAMES, count, percent
from ..report.statistics import Row, methods
from ..sweep.run import STATUSES, Record
from ..task import WORDS
from .clips import PAPER_WORDS
from .corpus import Corpus
from .plan import LEARNING_RATES
from .training import Settings

MARGIN = 0.08
"""The paper's lowest: "8-20 % on average irrespective of the number of parameters"."""


def speech(corpus: Corpus) -> str:
    """What kind of words a corpus has, in words.

    A corpus that no human spoke is called synthetic wherever it is named.
    """
    words = f"{count(len(corpus.words), 'word')}"
    return f"{words} of synthetic speech" if corpus.synthetic else words


def summary(records: Sequence[Record], rows: Iterable[Row], corpus: Corpus) -> list[str]:
    """What was run, and what came out, a sentence or two each."""
    if not records:
        return ["There are no runs of this task in this store yet."]
    counts = {status: sum(record.status == status for record in records) for status in STATUSES}
    names = [NAMES[method] for method in methods(records)]
    ended = sorted(record.epochs for record in records if record.status == "finished")
    epochs = f", after {ended[0]} to {ended[-1]} epochs" if ended else ""
    sentences = [
        f"{count(len(records), 'training')} of {listed(names)} on {speech(corpus)}, {len(corpus.train)} utterances to "
        f"learn and {len(corpus.test)} to be tested with: {counts['finished']} finished{epochs}, {counts['diverged']} "
        f"diverged (their cross entropy ceased to be a finite number), {counts['failed']} failed with an error of the "
        "program."
    ]
    if corpus.synthetic:
        sentences.append(
            f"These words are synthetic: no human said them. They are {corpus.source.removeprefix('synthetic: ')}. The "
            "paper's were said by people, and are not free; errors on the one say little about errors on the other."
        )
    known = known_rows(rows)
    size = largest_common(known)
    if size is None:
        return [*sentences, "No run has finished yet, so there is nothing to compare."] if not known else sentences
    order = sorted((row for (_, each), row in known.items() if each == size), key=lambda row: row.mean)
    means = [f"{NAMES[row.method]} {percent(row.mean)}" for row in order]
    sentences.append(
        f"At {size} parameters the mean error on the test set is {listed(means)}; who guesses is wrong in "
        f"{percent(1 - 1 / len(corpus.words))}."
    )
    return sentences + order_of_the_paper(order)


def claims(rows: Iterable[Row]) -> list[Claim]:
    """The paper's statements that these runs can say something about."""
    known = known_rows(rows)
    found = [_figure(known[key], *figures) for key, figures in paper_figures(WORDS).items() if key in known]
    size = largest_common(known, METHODS)
    if size is not None:
        srn, lstm, cw = (known[method, size] for method in METHODS)
        found.append(
            Claim(
                "SRNs are the worst, then come LSTMs; CW-RNNs are best.",
                f"At {size} parameters SRN {percent(srn.mean)}, LSTM {percent(lstm.mean)}, CW-RNN {percent(cw.mean)}.",
                cw.mean < lstm.mean < srn.mean,
            )
        )
    size = largest_common(known, ("lstm", "cw"))
    if size is not None:
        lstm, cw = known["lstm", size], known["cw", size]
        found.append(
            Claim(
                "The largest CW-RNN is more than 2 times better than the largest LSTM.",
                f"At {size} parameters {times(lstm.mean, cw.mean)} by the mean, {times(lstm.median, cw.median)} by the "
                "median.",
                lstm.mean > 2 * cw.mean,
            )
        )
    found += _margin(known)
    sizes = _common(known, ("srn", "lstm"))
    if sizes:
        gains = {size: known["srn", size].mean - known["lstm", size].mean for size in sizes}
        grows = len(sizes) < 2 or gains[sizes[-1]] > gains[sizes[0]]
        found.append(
            Claim(
                "LSTMs give substantially better results than SRNs, especially with more parameters.",
                f"Their error is {_points(gains)} than that of SRNs.",
                min(gains.values()) > 0 and grows,
            )
        )
    return found


def reasons(records: Sequence[Record], rows: Iterable[Row], corpus: Corpus) -> list[str]:
    """What may explain why a claim does not hold; empty if all do."""
    rows = list(rows)
    if all(claim.holds for claim in claims(rows)):
        return []
    found = [_other_words(corpus)]
    largest = max((row.size for row in rows), default=0)
    paper = max(size for _, size in paper_figures(WORDS))
    if largest < paper:
        found.append(f"The largest networks here have {largest} parameters, the paper's {paper}.")
    settings = [record.run.settings for record in records if isinstance(record.run.settings, Settings)]
    noises = sorted({each.noise for each in settings})
    if noises != [Settings.noise]:
        found.append(
            f"The noise on the inputs had a deviation of {listed([f'{each:g}' for each in noises])}, the paper's "
            f"{Settings.noise:g}."
        )
    found += other_rates(records, LEARNING_RATES)
    cut = sum(record.status == "finished" and record.epochs == record.run.settings.epochs for record in records)
    if cut:
        most = max(each.epochs for each in settings)
        found.append(f"{count(cut, 'run')} ended because {most} epochs were over: the cross entropy was still falling.")
    found += few_runs(rows)
    found += some_diverged(rows, "error")
    return found


def _figure(row: Row, mean: float, deviation: float) -> Claim:
    if abs(row.mean - mean) <= deviation:
        verdict = "within the paper's deviation"
    else:
        verdict = f"{100 * abs(row.mean - mean):.1f} points {'higher' if row.mean > mean else 'lower'}"
    finished = row.runs - row.diverged - row.failed
    return Claim(
        f"{NAMES[row.method]}, {row.size} parameters: mean error {100 * mean:.1f} ± {100 * deviation:.1f} %.",
        f"{100 * row.mean:.1f} ± {100 * row.std:.1f} % ({verdict}), median {percent(row.median)}; "
        f"{finished} of {count(row.runs, 'run')} finished.",
        abs(row.mean - mean) <= deviation,
    )


def _margin(known: Rows) -> list[Claim]:
    """Whether CW-RNN is better than both, whatever the size."""
    sizes = _common(known, METHODS)
    if not sizes:
        return []
    cw = {size: known["cw", size].mean for size in sizes}
    over = {method: {size: known[method, size].mean - cw[size] for size in sizes} for method in ("srn", "lstm")}
    return [
        Claim(
            "CW-RNNs beat both SRNs and LSTMs by a considerable margin of 8 to 20 % on average, irrespective of the "
            "number of parameters.",
            f"Their error is {_points(over['srn'])} than that of SRNs, and {_points(over['lstm'])} than that of LSTMs.",
            min(chain(over["srn"].values(), over["lstm"].values())) >= MARGIN,
        )
    ]


def _common(known: Rows, methods: Sequence[str]) -> list[int]:
    """The sizes that all these methods have."""
    return sorted(set.intersection(*({size for kind, size in known if kind == method} for method in methods)))


def _points(margins: dict[int, float]) -> str:
    """By how much means are lower, by size, in percentage points.

    >>> _points({500: 0.101, 1000: -0.02})
    '10.1 points lower at 500 and 2.0 points higher at 1000'
    """
    return listed(
        [f"{100 * abs(m):.1f} points {'lower' if m >= 0 else 'higher'} at {size}" for size, m in margins.items()]
    )


def _other_words(corpus: Corpus) -> str:
    if corpus.synthetic:
        return (
            "The words are synthetic: a few voices of speech programs say them, each always alike but for speed, pitch "
            "and noise. The paper's are TIMIT's, said by people, which is not free."
        )
    if set(corpus.words) == set(chain.from_iterable(PAPER_WORDS)):
        return "The words are the paper's; whose examples of them the paper took, it does not say."
    return (
        "The words are not the paper's, which are TIMIT's and not free. How alike they sound decides how hard they are."
    )
