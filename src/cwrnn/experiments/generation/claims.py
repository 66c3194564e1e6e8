"""Findings of sequence generation, the first task."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..networks.build import METHODS
from ..report import statistics as outcomes
from ..report.claims import (
    Claim,
    Rows,
    factor,
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
from ..report.drawing import NAMES, count, short
from ..report.statistics import Row, curve
from ..sweep.run import Dataset, Record
from ..task import GENERATION
from .training import EPOCHS, HOPELESS, LEARNING_RATES
from .weight_coding import CODE, FLOAT, Baseline, Point

PAPER_FACTOR = 5.7


def summary(records: Sequence[Record], rows: Iterable[Row]) -> list[str]:
    """What was run, and what came out, a sentence or two each."""
    if not records:
        return ["There are no runs in this store yet."]
    counts = {
        status: sum(record.status == status for record in records) for status in ("finished", "diverged", "failed")
    }
    methods = [NAMES[method] for method in METHODS if any(record.run.method == method for record in records)]
    names = {record.run.data for record in records}
    epochs = sorted({record.run.settings.epochs for record in records})
    sentences = [
        f"{count(len(records), 'training')} of {listed(methods)} on {count(len(names), 'sequence')}, "
        f"{listed([str(each) for each in epochs])} epochs each: {counts['finished']} finished, {counts['diverged']} "
        f"diverged (their error ceased to be a finite number, or ended above {HOPELESS:g} times that of the target's "
        f"mean), {counts['failed']} failed with an error of the program."
    ]
    known = known_rows(rows)
    size = largest_common(known)
    if size is None:
        return [*sentences, "No run has finished yet, so there is nothing to compare."] if not known else sentences
    order = sorted((row for (_, each), row in known.items() if each == size), key=lambda row: row.median)
    medians = [f"{NAMES[row.method]} {short(row.median)}" for row in order]
    sentences.append(
        f"At {size} parameters the median NMSE is {listed(medians)}; 0 is perfect, 1 is what the mean of the "
        "sequence achieves."
    )
    return sentences + order_of_the_paper(order)


def claims(rows: Iterable[Row]) -> list[Claim]:
    """The paper's statements that these runs can say something about."""
    known = known_rows(rows)
    found = [_figure(known[key], *figures) for key, figures in paper_figures(GENERATION).items() if key in known]
    size = largest_common(known, ("lstm", "cw"))
    if size is not None:
        lstm, cw = known["lstm", size], known["cw", size]
        found.append(
            Claim(
                f"The largest CW-RNN is {PAPER_FACTOR} times better than the largest LSTM.",
                f"At {size} parameters {times(lstm.mean, cw.mean)} by the mean, {times(lstm.median, cw.median)} "
                "by the median.",
                2 * lstm.mean >= PAPER_FACTOR * cw.mean,
            )
        )
    sizes = {method: sorted(each for kind, each in known if kind == method) for method in METHODS}
    if len(sizes["srn"]) > 1:
        small, large = known["srn", sizes["srn"][0]], known["srn", sizes["srn"][-1]]
        found.append(
            Claim(
                "SRNs fail to generate the sequence, and do not improve with their size.",
                f"{_from_to(small, large)}.",
                large.median > 0.3 and large.median > 0.8 * small.median,
            )
        )
    if len(sizes["lstm"]) > 1:
        small, large = known["lstm", sizes["lstm"][0]], known["lstm", sizes["lstm"][-1]]
        found.append(
            Claim("LSTMs improve as they get bigger.", f"{_from_to(small, large)}.", large.median < small.median)
        )
    if len(sizes["lstm"]) > 1 and sizes["cw"]:
        cw, lstm = known["cw", sizes["cw"][0]], known["lstm", sizes["lstm"][-2]]
        found.append(
            Claim(
                "The smallest CW-RNN is roughly on par with the second-biggest LSTM.",
                f"Median NMSE {short(cw.median)} (CW-RNN, {cw.size}) and {short(lstm.median)} (LSTM, {lstm.size}).",
                0.5 <= cw.median / lstm.median <= 2,
            )
        )
    if len(sizes["cw"]) > 1 and (sizes["srn"] or sizes["lstm"]):
        larger = [known["cw", each] for each in sizes["cw"][1:]]
        others = [row for (method, _), row in known.items() if method != "cw"]
        widest, narrowest = max(larger, key=lambda row: row.std), min(others, key=lambda row: row.std)
        found.append(
            Claim(
                "All but the smallest CW-RNN vary less than all other networks.",
                f"The largest deviation of these CW-RNNs is {short(widest.std)} (at {widest.size}), the smallest of "
                f"the others {short(narrowest.std)} ({NAMES[narrowest.method]} at {narrowest.size}).",
                widest.std < narrowest.std,
            )
        )
    return found


def reasons(records: Sequence[Record], rows: Iterable[Row], datasets: Mapping[str, Dataset]) -> list[str]:
    """What may explain why a claim does not hold; empty if all do."""
    rows = list(rows)
    known = known_rows(rows)
    if all(claim.holds for claim in claims(rows)):
        return []
    found = [_other_music(records, known)]
    epochs = sorted({record.run.settings.epochs for record in records})
    if epochs != [EPOCHS]:
        found.append(
            f"The networks were trained for {listed([str(e) for e in epochs])} epochs, the paper's for {EPOCHS}."
        )
    falling = []
    for (method, size), _ in known.items():
        fall = _fall(outcomes.of(records, method, size))
        if size == largest_common(known, (method,)) and fall > 0.05:
            falling.append(f"that of {NAMES[method]} ({size}) by {100 * fall:.0f} %")
    if falling:
        found.append(
            f"Some errors were still falling over the last tenth of the epochs, by the median: {listed(falling)}."
        )
    found += other_rates(records, LEARNING_RATES)
    found += few_runs(rows)
    skewed = []
    for row in known.values():
        if row.mean > 2 * row.median:
            above = sum(r.status == "finished" and r.error > 1 for r in outcomes.of(records, row.method, row.size))
            skewed.append(
                f"{NAMES[row.method]} at {row.size} (mean {short(row.mean)}, median {short(row.median)}"
                + (f", {count(above, 'run')} worse than an NMSE of 1)" if above else ")")
            )
    if skewed:
        found.append(f"A few bad runs make some means, which lie far above their medians: {'; '.join(skewed)}.")
    found += some_diverged(rows, "NMSE")
    return found


def coding(points: Sequence[Point], baselines: Sequence[Baseline]) -> list[str]:
    """What 8 bits per weight cost, and how the codes compare with plain PCM of the same error."""
    found = []
    lost = []
    for method in METHODS:
        size = max((point.size for point in points if point.method == method), default=0)
        medians = {point.bits: point.median for point in points if (point.method, point.size) == (method, size)}
        if medians.keys() >= {FLOAT, CODE}:
            lost.append(f"{NAMES[method]} ({size}) from {short(medians[FLOAT])} to {short(medians[CODE])}")
    if lost:
        found.append(f"With {CODE} bits per weight instead of {FLOAT} the median NMSE goes: {'; '.join(lost)}.")
    # the fewest bits at which PCM is as good
    needed = {
        point: min((each.bits for each in baselines if each.nmse <= point.best), default=math.inf) for point in points
    }
    if needed:
        point = min(points, key=lambda point: point.bits_per_sample / needed[point])
        smaller = point.bits_per_sample < needed[point]
        pcm = f"with {needed[point]}" if math.isfinite(needed[point]) else f"not even with {baselines[-1].bits}"
        found.append(
            ("Some code is smaller than plain PCM" if smaller else "No code here is smaller than plain PCM")
            + f" of the same error. The best by that measure is {NAMES[point.method]} with {point.size} parameters at "
            f"{point.bits} bits each: {point.bits_per_sample:.1f} bits per sample for an NMSE of {short(point.best)}, "
            f"which PCM reaches {pcm}."
        )
    return found


def _figure(row: Row, mean: float, deviation: float) -> Claim:
    if abs(row.mean - mean) <= deviation:
        verdict = "within the paper's deviation"
    elif row.mean > mean:
        verdict = f"{factor(row.mean / mean)} times higher"
    else:
        verdict = f"{factor(mean / row.mean)} times lower"
    finished = row.runs - row.diverged - row.failed
    return Claim(
        f"{NAMES[row.method]}, {row.size} parameters: mean NMSE {row.paper}.",
        f"{short(row.mean)} ± {short(row.std)} ({verdict}), median {short(row.median)}; "
        f"{finished} of {count(row.runs, 'run')} finished.",
        abs(row.mean - mean) <= deviation,
    )


def _other_music(records: Sequence[Record], known: Rows) -> str:
    text = (
        "The sequences are not the paper's: those are from the beginning of Manýrista by Cuprum, which is not free. "
        "How well a network does depends on the music."
    )
    size = largest_common(known, ("cw",)) or largest_common(known)
    method = "cw" if ("cw", size) in known else next((m for m, s in known if s == size), None)
    medians: dict[str, float] = {}
    for name in sorted({record.run.data for record in records}):
        errors = [
            r.error
            for r in records
            if r.status == "finished" and (r.run.data, r.run.method, r.run.size) == (name, method, size)
        ]
        if errors:
            medians[name] = float(np.median(errors))
    if method is None or len(medians) < 2:
        return text
    easy, hard = min(medians, key=lambda name: medians[name]), max(medians, key=lambda name: medians[name])
    return (
        f"{text} Here the median NMSE of {NAMES[method]} at {size} parameters is {short(medians[easy])} on {easy} and "
        f"{short(medians[hard])} on {hard}, {factor(medians[hard] / medians[easy])} times as much."
    )


def _fall(records: Sequence[Record]) -> float:
    """The share by which the median NMSE fell over the last tenth of the epochs."""
    epochs, (_, median, _) = curve(records)
    if len(epochs) < 2 or not median[-1] > 0:
        return 0.0
    before = float(np.interp(0.9 * epochs[-1], epochs, median))
    return 1 - float(median[-1]) / before


def _from_to(small: Row, large: Row) -> str:
    return f"Median NMSE {short(small.median)} at {small.size} parameters, {short(large.median)} at {large.size}"
