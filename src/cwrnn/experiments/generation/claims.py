"""The paper's claims about sequence generation, the first task, and the runs of a store."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from .. import paper
from ..networks.methods import ALL_METHODS
from ..report.claims import (
    Claim,
    RowsByNetwork,
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
from ..report.numbers import compare_errors, divide, format_count, format_error, format_factor, join_words
from ..report.statistics import SummaryRow, methods_of, quartile_curve, select_records
from ..sweep.run import STATUSES, Record
from .names import MUSIC, Wording, readable_name
from .training import HOPELESS
from .weight_coding import CODE, FLOAT, Baseline, Point


def describe_runs(records: Sequence[Record], rows: Iterable[SummaryRow]) -> list[str]:
    """Returns sentences about what was run, and what came out."""
    if not records:
        return ["This store has no runs of this experiment yet."]
    counts = {status: sum(record.status == status for record in records) for status in STATUSES}
    names = [NAMES[method] for method in methods_of(records)]
    sequences = {record.run.data for record in records}
    epochs = sorted({record.run.settings.epochs for record in records})
    sentences = [
        f"{format_count(len(records), 'network')} ({join_words(names)}) learnt "
        f"{format_count(len(sequences), 'sequence')}, for {join_words(list(map(str, epochs)))} epochs each: "
        f"{counts['finished']} finished, {counts['diverged']} diverged (the error was no longer a finite number, or "
        f"ended more than {HOPELESS:g} times above that of a constant), {counts['failed']} failed with a program error."
    ]
    finished = select_finished(rows)
    size = largest_common(finished)
    if not finished:
        return [*sentences, "No run has finished yet, so there is nothing to compare."]
    if size is None:
        return sentences
    order = rank_rows(finished, size, by="median")
    medians = [f"{NAMES[row.method]} {format_error(row.median)}" for row in order]
    sentences.append(
        f"At {size} parameters the median error is {join_words(medians)}. The error is the NMSE, the squared error "
        "divided by the variance of the sequence: 0 is perfect, and 1 is the error of a constant at the mean."
    )
    return sentences + compare_order(order)


def describe_winner(rows: Iterable[SummaryRow], wording: Wording = MUSIC) -> str:
    """Returns a sentence about which method comes closest to the music by the mean; empty if no run has finished.

    It compares the paper's methods, or all if there is none of them.
    """
    rows = list(rows)
    finished = select_finished(select_paper(rows) or rows)
    size = largest_common(finished)
    if size is None:
        return ""
    order = rank_rows(finished, size)
    if len(order) == 1:
        only = "only" if (scope := name_scope(rows)) else "Only"
        return f"{scope}{only} {NAMES[order[0].method]} was trained: its mean error is {format_error(order[0].mean)}."
    best, second = order[:2]
    text = f"{name_scope(rows)}{NAMES[best.method]} comes closest to the {wording.noun}, {_compare_means(second, best)}"
    pair = {best.method, second.method} == {"cw", "lstm"}
    return (
        f"{text} (in the paper CW-RNN is {paper.GENERATION_LSTM_OVER_CW} times better than LSTM)."
        if pair
        else f"{text}."
    )


def judge_claims(rows: Iterable[SummaryRow]) -> list[Claim]:
    """Returns the paper's statements that these runs can confirm or contradict; they are about its methods only."""
    finished = select_finished(select_paper(rows))
    claims = [
        _judge_mean(finished[key], *errors) for key, errors in paper_errors("generation").items() if key in finished
    ]
    size = largest_common(finished, ("lstm", "cw"))
    if size is not None:
        lstm, cw = finished["lstm", size], finished["cw", size]
        claims.append(
            Claim(
                f"The largest CW-RNN is {paper.GENERATION_LSTM_OVER_CW} times better than the largest LSTM.",
                f"At {size} parameters {compare_errors(lstm.mean, cw.mean)} by the mean, "
                f"{compare_errors(lstm.median, cw.median)} by the median.",
                2 * lstm.mean >= paper.GENERATION_LSTM_OVER_CW * cw.mean,
            )
        )
    sizes = {method: sorted(size for kind, size in finished if kind == method) for method in paper.METHODS}
    if len(sizes["srn"]) > 1:
        small, large = finished["srn", sizes["srn"][0]], finished["srn", sizes["srn"][-1]]
        claims.append(
            Claim(
                "SRNs fail to generate the sequence, and do not improve with their size.",
                _compare_sizes(small, large),
                large.median > 0.3 and large.median > 0.8 * small.median,
            )
        )
    if len(sizes["lstm"]) > 1:
        small, large = finished["lstm", sizes["lstm"][0]], finished["lstm", sizes["lstm"][-1]]
        claims.append(
            Claim("LSTMs improve as they get bigger.", _compare_sizes(small, large), large.median < small.median)
        )
    if len(sizes["lstm"]) > 1 and sizes["cw"]:
        cw, lstm = finished["cw", sizes["cw"][0]], finished["lstm", sizes["lstm"][-2]]
        claims.append(
            Claim(
                "The smallest CW-RNN is roughly on par with the second-biggest LSTM.",
                f"Median NMSE {format_error(cw.median)} (CW-RNN, {cw.size} parameters) and "
                f"{format_error(lstm.median)} (LSTM, {lstm.size}).",
                0.5 <= divide(cw.median, lstm.median) <= 2,
            )
        )
    if len(sizes["cw"]) > 1 and (sizes["srn"] or sizes["lstm"]):
        larger = [finished["cw", size] for size in sizes["cw"][1:]]
        others = [row for (method, _), row in finished.items() if method != "cw"]
        widest, narrowest = max(larger, key=lambda row: row.std), min(others, key=lambda row: row.std)
        claims.append(
            Claim(
                "All CW-RNNs except the smallest vary less than all other networks.",
                f"The largest deviation of these CW-RNNs is {format_error(widest.std)} (at {widest.size} parameters), "
                f"the smallest of the others {format_error(narrowest.std)} ({NAMES[narrowest.method]} at "
                f"{narrowest.size}).",
                widest.std < narrowest.std,
            )
        )
    return claims


def compare_clocks(without: SummaryRow, clocked: SummaryRow) -> str:
    """Returns the median errors of a method without clocks and of the one with clocks, in a few words."""
    return (
        f"with clocks the median NMSE is {format_error(clocked.median)} ({NAMES[clocked.method]}), without "
        f"{format_error(without.median)} ({NAMES[without.method]}): {compare_errors(without.median, clocked.median)}"
    )


def explain_failures(records: Sequence[Record], rows: Iterable[SummaryRow], wording: Wording = MUSIC) -> list[str]:
    """Returns sentences that may explain why a claim does not hold; none if all claims hold."""
    rows = select_paper(rows)
    records = [record for record in records if record.run.method in paper.METHODS]
    finished = select_finished(rows)
    if all(claim.holds for claim in judge_claims(rows)):
        return []
    reasons = [_mention_other_music(records, finished, wording)]
    epochs = sorted({record.run.settings.epochs for record in records})
    if epochs != [paper.GENERATION_EPOCHS]:
        reasons.append(
            f"The networks were trained for {join_words([str(number) for number in epochs])} epochs, the paper's for "
            f"{paper.GENERATION_EPOCHS}."
        )
    falling = []
    for method, size in finished:
        fall = _measure_fall(select_records(records, method, size))
        if size == largest_common(finished, (method,)) and fall > 0.05:
            falling.append(f"{NAMES[method]} ({size} parameters) by {100 * fall:.0f} %")
    if falling:
        reasons.append(f"Some median errors still fell over the last tenth of the training: {join_words(falling)}.")
    reasons += mention_other_settings(records, paper.GENERATION_LEARNING_RATES)
    reasons += mention_few_runs(rows)
    skewed = []
    for row in finished.values():
        if row.mean > 2 * row.median:
            above = sum(
                record.status == "finished" and record.error > 1
                for record in select_records(records, row.method, row.size)
            )
            skewed.append(
                f"{NAMES[row.method]} at {row.size} parameters (mean {format_error(row.mean)}, median "
                f"{format_error(row.median)}"
                + (f", {format_count(above, 'run')} worse than a constant)" if above else ")")
            )
    if skewed:
        reasons.append(f"A few bad runs lift some means far above their medians: {'; '.join(skewed)}.")
    reasons += mention_diverged(rows, "NMSE")
    return reasons


def describe_coding(points: Sequence[Point], baselines: Sequence[Baseline]) -> list[str]:
    """Returns sentences about the cost of 8 bits per weight, and about the codes beside plain PCM of the same error."""
    sentences = []
    changes = []
    for method in ALL_METHODS:
        size = max((point.size for point in points if point.method == method), default=0)
        medians = {point.bits: point.median for point in points if (point.method, point.size) == (method, size)}
        if medians.keys() >= {FLOAT, CODE}:
            changes.append(
                f"{NAMES[method]} ({size} parameters) from {format_error(medians[FLOAT])} to "
                f"{format_error(medians[CODE])}"
            )
    if changes:
        sentences.append(
            f"With {CODE} bits per weight instead of {FLOAT} the median NMSE changes: {'; '.join(changes)}."
        )
    # the fewest bits at which PCM is as good
    needed = {
        point: min((pcm.bits for pcm in baselines if pcm.nmse <= point.best), default=math.inf) for point in points
    }
    if needed:
        point = min(points, key=lambda point: point.bits_per_sample / needed[point])
        smaller = point.bits_per_sample < needed[point]
        pcm = f"with {needed[point]}" if math.isfinite(needed[point]) else f"not even with {baselines[-1].bits}"
        sentences.append(
            ("Some codes are smaller than plain PCM" if smaller else "No code here is smaller than plain PCM")
            + f" of the same error. The best one by that measure is {NAMES[point.method]} with {point.size} parameters "
            f"at {point.bits} bits each: {point.bits_per_sample:.1f} bits per sample for an NMSE of "
            f"{format_error(point.best)}, which PCM reaches {pcm}."
        )
    return sentences


def _judge_mean(row: SummaryRow, mean: float, deviation: float) -> Claim:
    """Compares a mean with the paper's: it holds if it lies within the paper's deviation."""
    holds = abs(row.mean - mean) <= deviation
    if holds:
        verdict = "within the paper's deviation"
    elif row.mean > mean:
        verdict = f"{format_factor(row.mean / mean)} times higher"
    else:
        verdict = f"{format_factor(divide(mean, row.mean))} times lower"
    finished = row.runs - row.diverged - row.failed
    return Claim(
        f"{NAMES[row.method]}, {row.size} parameters: mean NMSE {row.paper}.",
        f"{format_error(row.mean)} ± {format_error(row.std)} ({verdict}), median {format_error(row.median)}; "
        f"{finished} of {format_count(row.runs, 'run')} finished.",
        holds,
    )


def _mention_other_music(records: Sequence[Record], finished: RowsByNetwork, wording: Wording) -> str:
    text = (
        f"The {wording.noun} is not the paper's: that is the beginning of Manýrista by Cuprum, which is not free. "
        f"The error of a network depends on the {wording.noun}."
    )
    size = largest_common(finished, ("cw",)) or largest_common(finished)
    method = "cw" if ("cw", size) in finished else next((name for name, row_size in finished if row_size == size), None)
    medians: dict[str, float] = {}
    for name in sorted({record.run.data for record in records}):
        errors = [
            record.error
            for record in records
            if record.status == "finished"
            and (record.run.data, record.run.method, record.run.size) == (name, method, size)
        ]
        if errors:
            medians[name] = float(np.median(errors))
    if method is None or len(medians) < 2:
        return text
    easy, hard = min(medians, key=lambda name: medians[name]), max(medians, key=lambda name: medians[name])
    ratio = format_factor(divide(medians[hard], medians[easy]))
    return (
        f"{text} Here the median NMSE of {NAMES[method]} at {size} parameters is {format_error(medians[easy])} on "
        f"{readable_name(easy)} and {format_error(medians[hard])} on {readable_name(hard)}, {ratio} times as much."
    )


def _measure_fall(records: Sequence[Record]) -> float:
    """Returns the share by which the median NMSE fell over the last tenth of the epochs."""
    epochs, (_, median, _) = quartile_curve(records)
    if len(epochs) < 2 or not median[-1] > 0:
        return 0.0
    before = float(np.interp(0.9 * epochs[-1], epochs, median))
    return 1 - float(median[-1]) / before


def _compare_means(other: SummaryRow, best: SummaryRow) -> str:
    """Returns how much better the best mean is."""
    if best.mean == 0:
        return f"without any error; {NAMES[other.method]} is next with {format_error(other.mean)}"
    ratio = divide(other.mean, best.mean)
    if ratio < 1.05:
        return f"with about the same mean error as {NAMES[other.method]}"
    return f"with a mean error {format_factor(ratio)} times lower than {NAMES[other.method]}"


def _compare_sizes(small: SummaryRow, large: SummaryRow) -> str:
    return (
        f"Median NMSE {format_error(small.median)} at {small.size} parameters, {format_error(large.median)} at "
        f"{large.size}."
    )
