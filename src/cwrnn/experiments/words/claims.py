"""The paper's claims about spoken words, the second task, and the runs of a store."""

from collections.abc import Iterable, Sequence
from itertools import chain

from .. import paper
from ..report.claims import (
    Claim,
    RowsByNetwork,
    common_sizes,
    compare_order,
    largest_common,
    mention_diverged,
    mention_few_runs,
    mention_other_settings,
    name_scope,
    paper_errors,
    rank_rows,
    select_finished,
    select_paper,
)
from ..report.drawing import NAMES
from ..report.draws import DrawRow, DrawSummary
from ..report.numbers import compare_errors, format_count, format_percent, join_words
from ..report.privacy import hide_folders
from ..report.statistics import SummaryRow, methods_of
from ..sweep.run import STATUSES, Record
from .corpus import Corpus
from .training import WordSettings


def describe_speech(corpus: Corpus) -> str:
    """Returns how many words a corpus has, and whether they are synthetic speech.

    Speech that no person spoke is called synthetic wherever it is mentioned.
    """
    words = format_count(len(corpus.words), "word")
    return f"{words} of synthetic speech" if corpus.synthetic else words


def describe_runs(
    records: Sequence[Record], rows: Iterable[SummaryRow], corpus: Corpus, draws: DrawSummary | None = None
) -> list[str]:
    """Returns sentences about what was run, and what came out; `draws` if the speakers were drawn several times."""
    if not records:
        return ["This store has no runs of this experiment yet."]
    counts = {status: sum(record.status == status for record in records) for status in STATUSES}
    names = [NAMES[method] for method in methods_of(records)]
    epochs = sorted(record.epochs for record in records if record.status == "finished")
    duration = f", after {epochs[0]} to {epochs[-1]} epochs" if epochs else ""
    drawn = "" if draws is None else f", for each of {len(draws.seeds)} draws of the speakers"
    sentences = [
        f"{format_count(len(records), 'network')} ({join_words(names)}) learnt {describe_speech(corpus)} from "
        f"{format_count(len(corpus.train), 'recording')} and were tested with {len(corpus.test)} others{drawn}: "
        f"{counts['finished']} finished{duration}, {counts['diverged']} diverged (their cross entropy was no longer a "
        f"finite number), {counts['failed']} failed with a program error."
    ]
    if corpus.synthetic:
        sentences.append(
            "These words are synthetic: no person spoke them. They are "
            f"{hide_folders(corpus.source.removeprefix('synthetic: '))}. People spoke the paper's words, which are not "
            "free. Errors on synthetic speech say little about errors on human speech."
        )
    finished = select_finished(rows)
    size = largest_common(finished)
    if not finished:
        return [*sentences, "No run has finished yet, so there is nothing to compare."]
    if size is None:
        return sentences
    order = rank_rows(finished, size)
    means = [f"{NAMES[row.method]} {format_percent(row.mean)}" for row in order]
    sentences.append(
        f"At {size} parameters the mean error on the test set is {join_words(means)}; guessing is wrong "
        f"{format_percent(1 - 1 / len(corpus.words))} of the time."
    )
    return sentences + compare_order(order) + ([] if draws is None else _describe_draws(draws))


def _describe_draws(draws: DrawSummary) -> list[str]:
    """Returns how much the errors depend on the speakers and on the initial weights, and which methods are ahead."""
    size = draws.tests[0].size if draws.tests else max((row.size for row in draws.rows), default=0)
    spreads = [
        f"{NAMES[row.method]} {100 * row.between:.1f} and {100 * row.within:.1f}"
        for row in draws.rows
        if row.size == size and row.between is not None and row.within is not None
    ]
    sentences = []
    if spreads:
        sentences.append(
            f"At {size} parameters, the draws' means and the runs within a draw have these standard deviations, in "
            f"points: {join_words(spreads)}."
        )
    return [*sentences, " ".join(draws.sentences)] if draws.tests else sentences


def describe_winner(rows: Iterable[SummaryRow], corpus: Corpus) -> str:
    """Returns a sentence about which method makes the fewest mistakes; empty if no run has finished.

    It compares the paper's methods, or all if there is none of them.
    """
    rows = list(rows)
    finished = select_finished(select_paper(rows) or rows)
    size = largest_common(finished)
    if size is None:
        return ""
    order = rank_rows(finished, size)
    speech = " These words are synthetic speech; the paper's were spoken by people." if corpus.synthetic else ""
    if len(order) == 1:
        only = "only" if (scope := name_scope(rows)) else "Only"
        missed = format_percent(order[0].mean)
        return f"{scope}{only} {NAMES[order[0].method]} was trained: it misses {missed} of the words.{speech}"
    best, second = order[:2]
    text = (
        f"{name_scope(rows)}{NAMES[best.method]} misses the fewest words, {format_percent(best.mean)} of them; "
        f"{NAMES[second.method]} misses {format_percent(second.mean)}."
    )
    if best.method != "cw" and any(row.method == "cw" for row in order):
        text += " In the paper CW-RNN misses the fewest."
    return text + speech


def judge_claims(rows: Iterable[SummaryRow], draws: DrawSummary | None = None) -> list[Claim]:
    """Returns the paper's statements that these runs can confirm or contradict; they are about its methods only.

    With several `draws` of the speakers, each mean has its spread over them, and the order has the tests over them.
    """
    finished = select_finished(select_paper(rows))
    spreads = {} if draws is None else {(row.method, row.size): row for row in draws.rows}
    claims = [
        _judge_mean(finished[key], *errors, spreads.get(key))
        for key, errors in paper_errors("words").items()
        if key in finished
    ]
    size = largest_common(finished, paper.METHODS)
    if size is not None:
        srn, lstm, cw = (finished[method, size] for method in paper.METHODS)
        claims.append(
            Claim(
                "SRNs are the worst, then come LSTMs; CW-RNNs are best.",
                f"At {size} parameters SRN {format_percent(srn.mean)}, LSTM {format_percent(lstm.mean)}, CW-RNN "
                f"{format_percent(cw.mean)}.{_quote_tests(draws, size)}",
                cw.mean < lstm.mean < srn.mean,
            )
        )
    size = largest_common(finished, ("lstm", "cw"))
    if size is not None:
        lstm, cw = finished["lstm", size], finished["cw", size]
        claims.append(
            Claim(
                f"The largest CW-RNN is more than {paper.WORDS_LSTM_OVER_CW:g} times better than the largest LSTM.",
                f"At {size} parameters {compare_errors(lstm.mean, cw.mean)} by the mean, "
                f"{compare_errors(lstm.median, cw.median)} by the median.",
                lstm.mean > paper.WORDS_LSTM_OVER_CW * cw.mean,
            )
        )
    claims += _judge_margin(finished)
    sizes = common_sizes(finished, ("srn", "lstm"))
    if sizes:
        gains = {size: finished["srn", size].mean - finished["lstm", size].mean for size in sizes}
        grows = len(sizes) < 2 or gains[sizes[-1]] > gains[sizes[0]]
        claims.append(
            Claim(
                "LSTMs give substantially better results than SRNs, especially with more parameters.",
                f"The error of LSTMs is {_format_margins(gains)} than that of SRNs.",
                min(gains.values()) > 0 and grows,
            )
        )
    return claims


def compare_clocks(without: SummaryRow, clocked: SummaryRow) -> str:
    """Returns the mean errors of a method without clocks and of the one with clocks, in a few words."""
    points = 100 * abs(without.mean - clocked.mean)
    return (
        f"with clocks the mean error is {format_percent(clocked.mean)} ({NAMES[clocked.method]}), without "
        f"{format_percent(without.mean)} ({NAMES[without.method]}): {points:.1f} points "
        f"{'lower' if clocked.mean <= without.mean else 'higher'}"
    )


def explain_failures(records: Sequence[Record], rows: Iterable[SummaryRow], corpus: Corpus) -> list[str]:
    """Returns sentences that may explain why a claim does not hold; none if all claims hold."""
    rows = select_paper(rows)
    records = [record for record in records if record.run.method in paper.METHODS]
    if all(claim.holds for claim in judge_claims(rows)):
        return []
    reasons = [_mention_other_words(corpus)]
    largest = max((row.size for row in rows), default=0)
    largest_of_paper = max(size for _, size in paper_errors("words"))
    if largest < largest_of_paper:
        reasons.append(f"The largest networks here have {largest} parameters, the paper's {largest_of_paper}.")
    settings = [record.run.settings for record in records if isinstance(record.run.settings, WordSettings)]
    noises = sorted({chosen.noise for chosen in settings})
    if noises != [paper.WORDS_NOISE]:
        reasons.append(
            f"The noise on the inputs had a deviation of {join_words([f'{noise:g}' for noise in noises])}, the paper's "
            f"{paper.WORDS_NOISE:g}."
        )
    reasons += mention_other_settings(records, paper.WORDS_LEARNING_RATES)
    cut = sum(record.status == "finished" and record.epochs == record.run.settings.epochs for record in records)
    if cut:
        most = max(chosen.epochs for chosen in settings)
        reasons.append(
            f"{format_count(cut, 'run')} stopped at the limit of {most} epochs while the cross entropy still fell."
        )
    reasons += mention_few_runs(rows)
    reasons += mention_diverged(rows, "error")
    return reasons


def _quote_tests(draws: DrawSummary | None, size: int) -> str:
    """Returns the tests over the draws of the paper's methods as a text that follows a sentence."""
    tests = [] if draws is None else [test for test in draws.tests if test.size == size]
    quoted = [test.describe() for test in tests if {test.better, test.worse} <= set(paper.METHODS)]
    return f" Paired over the draws: {' '.join(quoted)}" if quoted else ""


def _judge_mean(row: SummaryRow, mean: float, deviation: float, spread: DrawRow | None = None) -> Claim:
    """Compares a mean with the paper's: it holds if it lies within the paper's deviation."""
    holds = abs(row.mean - mean) <= deviation
    if holds:
        verdict = "within the paper's deviation"
    else:
        verdict = f"{100 * abs(row.mean - mean):.1f} points {'higher' if row.mean > mean else 'lower'}"
    finished = row.runs - row.diverged - row.failed
    return Claim(
        f"{NAMES[row.method]}, {row.size} parameters: mean error {100 * mean:.1f} ± {100 * deviation:.1f} %.",
        f"{100 * row.mean:.1f} ± {100 * row.std:.1f} % ({verdict}), median {format_percent(row.median)}; "
        f"{finished} of {format_count(row.runs, 'run')} finished.{_quote_spread(spread)}",
        holds,
    )


def _quote_spread(spread: DrawRow | None) -> str:
    """Returns the spread over draws and initial weights as a text that follows a sentence."""
    if spread is None or spread.between is None or spread.within is None:
        return ""
    return (
        f" The deviation is {100 * spread.between:.1f} points between the means of {spread.draws} draws, and "
        f"{100 * spread.within:.1f} within a draw."
    )


def _judge_margin(finished: RowsByNetwork) -> list[Claim]:
    """Judges whether CW-RNN beats both other methods in all sizes by the paper's margin."""
    sizes = common_sizes(finished, paper.METHODS)
    if not sizes:
        return []
    cw = {size: finished["cw", size].mean for size in sizes}
    over = {method: {size: finished[method, size].mean - cw[size] for size in sizes} for method in ("srn", "lstm")}
    return [
        Claim(
            "CW-RNNs beat both SRNs and LSTMs by a considerable margin of 8 to 20 % on average, irrespective of the "
            "number of parameters.",
            f"The error of CW-RNNs is {_format_margins(over['srn'])} than that of SRNs, and "
            f"{_format_margins(over['lstm'])} than that of LSTMs.",
            min(chain(over["srn"].values(), over["lstm"].values())) >= paper.WORDS_SMALLEST_MARGIN,
        )
    ]


def _format_margins(margins: dict[int, float]) -> str:
    """Returns how much lower an error rate is, by size, in percentage points.

    >>> _format_margins({500: 0.101, 1000: -0.02})
    '10.1 points lower at 500 and 2.0 points higher at 1000'
    """
    return join_words(
        [
            f"{100 * abs(margin):.1f} points {'lower' if margin >= 0 else 'higher'} at {size}"
            for size, margin in margins.items()
        ]
    )


def _mention_other_words(corpus: Corpus) -> str:
    if corpus.synthetic:
        return (
            "The words are synthetic: a few voices of speech programs speak them, and the recordings of one voice "
            "differ only in speed, pitch and noise. The paper's words are from TIMIT, which people spoke and which is "
            "not free."
        )
    if set(corpus.words) == set(chain.from_iterable(paper.WORDS_VOCABULARY)):
        return "The words are the paper's, but the paper does not say which recordings of them it took."
    return (
        "The words are not the paper's, which are from TIMIT and not free. Words that sound more alike are harder to "
        "tell apart."
    )
