"""The statistics of a comparison: a rank test over several data sets, and Holm's correction for several tests."""

import math
from collections.abc import Sequence

import numpy as np

from ...extras import require
from ..sweep.run import FINISHED, Record


def compare_ranks(records: Sequence[Record], baseline: Sequence[Record]) -> tuple[float, float]:
    """Return the probability that a run has a lower error than one of `baseline`, and the p value of the difference.

    The test is van Elteren's, two-sided. Ranks are taken within each data set, because one data set may be harder than
    another; a run that did not finish ranks last. The test statistic is the sum of the ranks of `records`, where each
    data set's sum is divided by the number of its runs plus one. With one data set this is the test of Mann and
    Whitney.
    """
    stats = require("scipy.stats", extra="experiments", purpose="the rank test")
    surplus = variance = wins = pairs = 0.0
    for name in dict.fromkeys(record.run.data for record in baseline):
        a, b = (
            np.array([_error(record) for record in group if record.run.data == name]) for group in (records, baseline)
        )
        m, n = len(a), len(b)
        ranks = stats.rankdata(np.concatenate((a, b)))
        surplus += float(ranks[:m].sum() - m * (m + n + 1) / 2) / (m + n + 1)
        # the variance of a sum of m ranks that are drawn without replacement; ties make it smaller
        variance += m * n / (m + n) * float(ranks.var(ddof=1)) / (m + n + 1) ** 2
        wins += float((a[:, None] < b).sum() + 0.5 * (a[:, None] == b).sum())
        pairs += m * n
    p = 2 * float(stats.norm.sf(abs(surplus) / math.sqrt(variance))) if variance > 0 else 1.0
    return wins / pairs, p


def correct_by_holm(probabilities: Sequence[float]) -> list[float]:
    """Return p values, corrected for their number by Holm's method.

    >>> correct_by_holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(probabilities)), key=lambda i: probabilities[i])
    corrected = [0.0] * len(probabilities)
    highest = 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * probabilities[place]))
        corrected[place] = highest
    return corrected


def _error(record: Record) -> float:
    return record.error if record.status == FINISHED and math.isfinite(record.error) else math.inf
