"""Histories and features: each equals its definition, and one observation at a time gives the bits of all at once."""

import math

import numpy as np
import pytest

from cwrnn.estimators.features import fit_features
from cwrnn.estimators.history import MEDIANS, WEIGHTS, History

SEASONS = [(1,), (4,), (3, 12), (2, 4, 8)]


def make_history(T, season, channels=2, covariates=1, seed=0):
    rng = np.random.default_rng(seed)
    values = 10 + 3 * rng.normal(size=(T, channels))
    known = rng.normal(size=(T, covariates))
    return values, known, History.begin(season, channels, covariates).extend(values, known)


def test_profiles_are_means_and_medians_of_a_phase():
    m, T = 5, 70
    values, _, history = make_history(T, m)
    for t in range(T):
        same_phase = values[t % m : t + 1 : m]
        for i, weight in enumerate(WEIGHTS):
            mean = same_phase[0]
            for n, value in enumerate(same_phase[1:], start=2):
                mean = mean + max(weight, 1 / n) * (value - mean)
            np.testing.assert_allclose(history.profiles[t, :, i], mean, rtol=1e-12)
        for i, count in enumerate(MEDIANS, start=len(WEIGHTS)):
            np.testing.assert_allclose(history.profiles[t, :, i], np.median(same_phase[-count:], axis=0), rtol=1e-12)


@pytest.mark.parametrize("seasons", SEASONS)
def test_one_observation_at_a_time_gives_the_same_bits(seasons):
    T, m = 20 * max(seasons) + 7, seasons[-1]
    values, known, whole = make_history(T, m)
    features = fit_features(values, known, seasons, horizon=m + 2)
    growing = History.begin(m, 2, 1)
    for t in range(T):
        growing = growing.extend(values[t : t + 1], known[t : t + 1]).tail(m + 2)
        assert len(growing.values) <= 10 * m + m + 2
        for compute in (features.compute_inputs, features.compute_base):
            np.testing.assert_array_equal(compute(growing, t, 1), compute(whole, t, 1))
        # the last two need covariates of the future, which the growing history does not have
        found, expected = (features.compute_candidates(history, t, 1)[..., :-2] for history in (growing, whole))
        np.testing.assert_array_equal(found, expected)
    assert growing.start > 0
    np.testing.assert_array_equal(growing.profiles, whole.profiles[growing.start :])


def test_the_tail_suffices_for_all_candidates():
    seasons, horizon = (3, 12), 30
    values, known, whole = make_history(400, 12)
    features = fit_features(values, known, seasons, horizon)
    tail = whole.tail(horizon)
    future = np.random.default_rng(1).normal(size=(horizon, 1))
    whole, tail = whole.foresee(future), tail.foresee(future)
    # those of the last forecasts as well, by which new observations move the intervals
    for t in (399, 399 - horizon):
        np.testing.assert_array_equal(features.compute_candidates(tail, t, 1), features.compute_candidates(whole, t, 1))
    assert tail.start == 400 - 120 - horizon


def test_pairs_of_a_step_and_a_step_ahead_equal_the_whole_table():
    values, known, history = make_history(200, 12)
    features = fit_features(values, known, (3, 12), horizon=20)
    table = features.compute_candidates(history, 0, 180)
    ahead = np.arange(1, 21)
    pairs = features.compute_pairs(history, 170 - ahead, ahead)
    np.testing.assert_array_equal(pairs, table[170 - ahead, ahead - 1])


def test_base_is_the_last_known_value_of_the_phase():
    values, known, history = make_history(100, 12)
    features = fit_features(values, known, (3, 12), horizon=30)
    base = features.compute_base(history, 0, 100)
    for t in range(100):
        for h in range(1, 31):
            step = t + h - 12 * math.ceil(h / 12)
            assert step <= t
            expected = values[step] if step >= 0 else np.full(2, np.nan)
            np.testing.assert_array_equal(base[t, h - 1], expected)


def test_candidates_equal_their_definitions():
    m, s, H = 12, 3, 14
    values, known, history = make_history(200, m)
    features = fit_features(values, known, (s, m), horizon=H)
    candidates = features.compute_candidates(history, 0, 180)
    assert candidates.shape == (180, H, 2, features.candidate_count)
    scale = features.scales

    def change(step):
        return (values[step] - values[step - m]) / scale[step % m]

    for t in (60, 100, 179):
        for h in (1, 3, 4, 12, 13):
            unit = scale[(t + h) % m]
            last = t + h - m * math.ceil(h / m)
            base = values[last]
            day = t + h - s * math.ceil(h / s)
            x, before = (
                (known[step] - features.covariate_mean) / features.covariate_deviation for step in (t + h, last)
            )
            expected = [
                change(day), (values[day] - base) / unit, change(day - s), (values[day - s] - base) / unit,
                change(last), *((history.profiles[last, :, i] - base) / unit for i in range(4)),
                change(t), *((values[t] - history.profiles[t - m, :, i]) / scale[t % m] for i in range(4)),
                np.repeat(x - before, 2), np.repeat((x**2 - before**2) / 2, 2),
            ]  # fmt: skip
            expected = np.clip(np.stack(expected, axis=-1), -6, 6)
            np.testing.assert_allclose(candidates[t, h - 1], expected, rtol=1e-5, atol=1e-6)


def test_candidates_never_look_ahead():
    values, known, history = make_history(200, 12)
    features = fit_features(values, known, (3, 12), horizon=30)
    changed = values.copy()
    changed[120:] += 100
    other = History.begin(12, 2, 1).extend(changed, known)
    for compute in (features.compute_candidates, features.compute_inputs, features.compute_base):
        np.testing.assert_array_equal(compute(history, 0, 120), compute(other, 0, 120))
        assert not np.array_equal(compute(history, 120, 1), compute(other, 120, 1))


def test_scales_follow_the_phases():
    rng = np.random.default_rng(0)
    m = 12
    quiet = np.where(np.arange(m * 200) % m < 6, 0.1, 2.0)
    values = (quiet * rng.normal(size=m * 200))[:, None]
    features = fit_features(values, np.empty((m * 200, 0)), (m,), horizon=3)
    # the mean of |N(0, 1) - N(0, 1)| is 2 / sqrt(pi), times 1.25
    expected = 1.25 * 2 / math.sqrt(math.pi)
    np.testing.assert_allclose(features.scales[2:4, 0], 0.1 * expected, rtol=0.3)
    np.testing.assert_allclose(features.scales[8:10, 0], 2.0 * expected, rtol=0.1)


@pytest.mark.parametrize("T", [5, 13, 40])
def test_features_of_short_and_repeating_series_are_finite(T):
    values = np.tile(np.arange(4.0), 10)[:T, None]
    features = fit_features(values, np.ones((T, 1)), (4,), horizon=6)
    history = History.begin(4, 1, 1).extend(values, np.ones((T, 1)))
    assert (features.scales > 0).all()
    assert np.isfinite(features.compute_inputs(history, 0, T)).all()
    assert np.isfinite(features.compute_candidates(history, 0, T)).all()
    assert features.compute_inputs(history, 0, T).shape == (T, features.input_size)
