"""The statistics over draws: deviations between and within, and the paired permutation test."""

import itertools

import numpy as np
import pytest
from support.made_corpora import make_pool
from support.made_records import make_words_record

from cwrnn.experiments.report.draws import compare_methods, make_row, permute_pairs, summarise_draws
from cwrnn.experiments.words.draws import draw_corpora


def count_permutations(first, second):
    """The definition: the share of all exchanges within pairs whose mean difference is as large."""
    difference = np.array(first) - np.array(second)
    signs = np.array(list(itertools.product((1, -1), repeat=len(difference))))
    means = np.abs((signs * difference).mean(axis=1))
    return float((means >= abs(difference.mean()) - 1e-12).mean())


@pytest.mark.parametrize("seed", range(4))
def test_the_p_value_is_the_share_of_all_permutations(seed):
    random = np.random.default_rng(seed)
    # multiples of 1/42, as the errors of 42 words are: ties and zeros are common
    first, second = (random.integers(4 + 4 * place, 14 + 4 * place, 9) / 42 for place in range(2))
    assert permute_pairs(first, second) == pytest.approx(count_permutations(first, second))


def test_equal_errors_have_the_p_value_1():
    assert permute_pairs([0.1, 0.2, 0.3], [0.1, 0.2, 0.3]) == 1.0


def test_many_draws_have_the_same_p_value_every_time():
    random = np.random.default_rng(0)
    first = random.normal(0, 1, 40)
    second = first + random.normal(0.3, 1, 40)
    assert permute_pairs(first, second) == permute_pairs(first, second)
    assert 0 < permute_pairs(first, second + 5) < 1e-4


def test_a_row_tells_the_spread_between_draws_from_that_within():
    row = make_row("cw", 500, {3: [0.2, 0.4], 1: [0.5, 0.5, 0.5], 7: [0.1]})
    assert (row.draws, row.runs, list(row.means)) == (3, 6, [1, 3, 7])
    assert row.mean == pytest.approx((0.3 + 0.5 + 0.1) / 3)
    assert row.between == pytest.approx(0.2)
    # squares of 2 x 0.1^2 with 1 + 2 + 0 degrees of freedom
    assert row.within == pytest.approx((0.02 / 3) ** 0.5)
    alone = make_row("cw", 500, {0: [0.2]})
    assert (alone.between, alone.within) == (None, None)


def test_methods_are_compared_at_the_largest_size_that_all_have():
    rows = [
        make_row(method, size, {draw: [error + 0.01 * draw] for draw in range(6)})
        for method, error, sizes in (("srn", 0.5, (500, 1000)), ("cw", 0.3, (500,)))
        for size in sizes
    ]
    [test] = compare_methods(rows)
    assert (test.better, test.worse, test.size, test.draws, test.ahead) == ("cw", "srn", 500, 6, 6)
    assert test.difference == pytest.approx(0.2)
    assert test.p == pytest.approx(2 / 2**6)
    assert test.describe() == "CW-RNN is ahead of SRN by 20.0 points (in 6 of 6 draws, p = 0.031)."


def test_only_draws_of_both_methods_are_compared():
    rows = [
        make_row("srn", 500, {draw: [0.5] for draw in (0, 1, 2, 4)}),
        make_row("lstm", 500, {draw: [0.6 if draw else 0.4] for draw in (0, 1, 2, 3)}),
    ]
    [test] = compare_methods(rows)
    assert (test.better, test.draws, test.ahead) == ("srn", 3, 2)
    assert not test.is_ahead
    assert compare_methods([make_row("srn", 500, {0: [0.1]}), make_row("cw", 500, {1: [0.2], 2: [0.3]})]) == []


def test_equal_errors_that_differ_in_their_last_bit_are_a_tie():
    low, high = np.mean([0.1, 0.3, 0.5]), np.nextafter(np.mean([0.1, 0.3, 0.5]), 1)
    assert low < high
    [test] = compare_methods([make_row("srn", 500, {0: [low], 1: [0.1]}), make_row("cw", 500, {0: [high], 1: [0.2]})])
    assert (test.better, test.ahead) == ("srn", 1)


def test_runs_that_did_not_finish_have_no_part():
    corpora = draw_corpora(make_pool(), 3)
    draws = {corpus.name: corpus.draw for corpus in corpora}
    records = [make_words_record(0.3, corpus=corpus, seed=seed) for corpus in corpora[:2] for seed in range(2)]
    records.append(make_words_record(0.9, corpus=corpora[0], seed=5, status="diverged"))
    records.append(make_words_record(0.9, corpus=corpora[2], seed=5, status="failed", traceback="Error"))
    summary = summarise_draws(records, draws)
    assert summary.seeds == (0, 1, 2)
    [row] = summary.rows
    assert (row.draws, row.runs, row.mean) == (2, 4, pytest.approx(0.3))
    assert summary.tests == ()
    assert summarise_draws(records[:2], draws) is None
