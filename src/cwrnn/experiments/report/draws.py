"""The errors of several draws of the data: their spread, and whether one method is ahead of another.

    between    the deviation of the draws' means: what the choice of the data does
    within     the deviation of the runs of one draw, all draws together: what the initial weights do
    p          paired permutation test over the draws: two methods learn the same draws, so each draw gives a difference

The runs of a draw are no independent evidence about other draws, so the test has one number for each method and draw:
the mean error. Under the null hypothesis the two methods could change places in any draw; the p value is the share of
all such changes whose mean difference is at least as large as the one that was measured.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...extras import require
from ..clocks.rank_test import correct_by_holm
from ..networks.methods import PLACES
from ..sweep.run import FINISHED, Record
from ..text_table import format_table
from .drawing import NAMES
from .numbers import format_count

PERMUTATIONS = 2**16
"""The most permutations of a test: with up to 16 draws these are all of them, with more a random part."""
TIE = 1e-9
"""Mean errors that are no further apart are equal."""
SIGNIFICANT = 0.05
"""A method is called ahead of another if the p value is below this."""


@dataclass(frozen=True)
class DrawRow:
    """The errors of one method and size over the draws. Only runs that finished count."""

    method: str
    """A method, or another name of the networks."""
    size: int
    draws: int
    """The number of draws with a run that finished."""
    runs: int
    """The number of runs that finished, in all draws."""
    mean: float
    """The mean of the draws' means."""
    between: float | None
    """The standard deviation of the draws' means; None for one draw."""
    within: float | None
    """The standard deviation of the runs of a draw around its mean; None if no draw has two runs."""
    means: Mapping[int, float]
    """The mean error of each draw, by the draw's seed."""


@dataclass(frozen=True)
class PairedTest:
    """Two methods of one size, compared over the draws that both have."""

    better: str
    """The method with the lower mean error."""
    worse: str
    size: int
    draws: int
    """The number of draws that both methods have."""
    difference: float
    """The mean over the draws of the errors of `worse` less those of `better`."""
    ahead: int
    """In how many draws `better` has the lower mean error."""
    p: float
    """The two-sided p value of the permutation test, corrected for the number of tests by Holm's method."""

    @property
    def is_ahead(self) -> bool:
        """Whether the difference is significant."""
        return self.p < SIGNIFICANT

    def describe(self) -> str:
        """Returns the result as a sentence."""
        better, worse = name_network(self.better), name_network(self.worse)
        points = f"{100 * self.difference:.1f} points"
        counts = f"{self.ahead} of {format_count(self.draws, 'draw')}, p = {format_p(self.p)}"
        if self.is_ahead:
            return f"{better} is ahead of {worse} by {points} (in {counts})."
        return f"The draws do not tell {better} and {worse} apart: the first is {points} ahead (in {counts})."


@dataclass(frozen=True)
class DrawSummary:
    """The spread of the errors over draws and over initial weights, and the comparison of all methods."""

    seeds: tuple[int, ...]
    """The seeds of the draws."""
    names: Mapping[str, int]
    """The seed of the draw of each data set, by its name."""
    rows: tuple[DrawRow, ...]
    """One for each method and size."""
    tests: tuple[PairedTest, ...]
    """One for each pair of methods, at the largest size that all methods have in at least two draws."""

    def __str__(self) -> str:
        headers = ["method", "size", "draws", "runs", "error %\nmean", "std between\ndraws", "std within\na draw"]
        cells = [
            [
                name_network(row.method),
                *map(str, (row.size, row.draws, row.runs)),
                f"{100 * row.mean:.1f}",
                *("" if spread is None else f"{100 * spread:.1f}" for spread in (row.between, row.within)),
            ]
            for row in self.rows
        ]
        caption = (
            "Between draws: the deviation of the draws' means, which is due to the choice of the speakers. Within a "
            "draw: the deviation of its runs, which is due to their initial weights."
        )
        table = format_table(
            f"Errors over {format_count(len(self.seeds), 'draw')} of the speakers", headers, cells, caption
        )
        return "\n".join([table, "", *self.sentences]) if self.tests else table

    @property
    def sentences(self) -> list[str]:
        """The results of the tests, and what they are."""
        if not self.tests:
            return []
        size = self.tests[0].size
        return [
            f"Paired permutation tests over the draws at {size} parameters (two-sided, corrected by Holm's method):",
            *(test.describe() for test in self.tests),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Returns all numbers, for JSON."""
        return {
            "seeds": list(self.seeds),
            "rows": [
                {**asdict(row), "means": {str(draw): mean for draw, mean in row.means.items()}} for row in self.rows
            ],
            "tests": [asdict(test) for test in self.tests],
        }


def summarise_draws(records: Iterable[Record], draws: Mapping[str, int]) -> DrawSummary | None:
    """Returns the spread of the errors over the draws, or None if there are fewer than two draws.

    Args:
        records: runs with one set of hyper-parameters for each method and size
        draws: the seed of the draw of each data set, by its name
    """
    errors: dict[tuple[str, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    seeds = set()
    for record in records:
        seeds.add(draws[record.run.data])
        if record.status == FINISHED:
            errors[record.run.method, record.run.size][draws[record.run.data]].append(record.error)
    if len(seeds) < 2:
        return None
    rows = [make_row(method, size, by_draw) for (method, size), by_draw in errors.items()]
    rows.sort(key=lambda row: (PLACES.get(row.method, len(PLACES)), row.size))
    return DrawSummary(tuple(sorted(seeds)), dict(draws), tuple(rows), tuple(compare_methods(rows)))


def make_row(method: str, size: int, errors: Mapping[int, Sequence[float]]) -> DrawRow:
    """Returns the row of one method and size, from the errors of the runs of each draw.

    >>> row = make_row("cw", 500, {0: [0.1, 0.3], 1: [0.3, 0.5]})
    >>> f"{row.mean:.2f} {row.between:.2f} {row.within:.2f}"
    '0.30 0.14 0.14'
    """
    means = {draw: float(np.mean(errors[draw])) for draw in sorted(errors)}
    # one degree of freedom less for each mean that is taken from the same numbers
    freedom = sum(len(group) - 1 for group in errors.values())
    squares = math.fsum((error - means[draw]) ** 2 for draw, group in errors.items() for error in group)
    return DrawRow(
        method=method,
        size=size,
        draws=len(means),
        runs=sum(map(len, errors.values())),
        mean=float(np.mean(list(means.values()))) if means else math.nan,
        between=float(np.std(list(means.values()), ddof=1)) if len(means) > 1 else None,
        within=math.sqrt(squares / freedom) if freedom else None,
        means=means,
    )


def compare_methods(rows: Iterable[DrawRow]) -> list[PairedTest]:
    """Returns a test of each pair of methods, at the largest size in which all methods have two draws in common."""
    by_size: dict[int, dict[str, DrawRow]] = defaultdict(dict)
    methods = set()
    for row in rows:
        by_size[row.size][row.method] = row
        methods.add(row.method)
    for size in sorted(by_size, reverse=True):
        here = by_size[size]
        common = sorted(set.intersection(*(set(row.means) for row in here.values())))
        if here.keys() == methods and len(common) > 1:
            break
    else:
        return []
    ordered = sorted(
        here.values(), key=lambda row: (sum(row.means[draw] for draw in common), PLACES.get(row.method, len(PLACES)))
    )
    tests = [_compare_pair(better, worse, common) for better, worse in combinations(ordered, 2)]
    corrected = correct_by_holm([test.p for test in tests])
    return [PairedTest(**{**asdict(test), "p": p}) for test, p in zip(tests, corrected, strict=True)]


def _compare_pair(better: DrawRow, worse: DrawRow, draws: Sequence[int]) -> PairedTest:
    """Compares two methods over these draws; the p value is not corrected."""
    low, high = (np.array([row.means[draw] for draw in draws]) for row in (better, worse))
    return PairedTest(
        better.method,
        worse.method,
        better.size,
        len(draws),
        float((high - low).mean()),
        # equal shares can differ in the last bit of their means
        int((high - low > TIE).sum()),
        permute_pairs(low, high),
    )


def permute_pairs(first: ArrayLike, second: ArrayLike) -> float:
    """Returns the two-sided p value of the paired permutation test of two sequences of equal length.

    >>> permute_pairs([1, 2, 3, 4, 5, 6], [2, 4, 6, 8, 10, 12])
    0.03125
    """
    stats = require("scipy.stats", extra="experiments", purpose="the test over the draws")
    pairs = np.array([first, second], dtype=float)
    if (pairs[0] == pairs[1]).all():
        return 1.0
    result = stats.permutation_test(
        tuple(pairs),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=PERMUTATIONS,
        batch=1024,
        rng=np.random.default_rng(0),
    )
    return float(result.pvalue)


def name_network(method: str) -> str:
    """Returns the name of a method for people to read; other names of networks stay as they are.

    >>> name_network("cw"), name_network("chosen")
    ('CW-RNN', 'chosen')
    """
    return NAMES.get(method, method)


def format_p(p: float) -> str:
    """Returns a p value in two significant digits.

    >>> format_p(0.00195), format_p(0.5), format_p(0.00001)
    ('0.0019', '0.5', 'below 0.0001')
    """
    return "below 0.0001" if p < 1e-4 else f"{p:.2g}"
