"""Clocks from data: planted rhythms are found, and noise, trends, gaps and overtones are not taken for rhythms."""

import numpy as np
import pytest

from cwrnn import Schedule
from cwrnn.estimators.clocks import Clock, Clocks, find_cycles, propose_clocks, propose_schedule
from cwrnn.estimators.peaks import find_peaks


def make_waves(T, *periods, noise=0.5, seed=0):
    rng = np.random.default_rng(seed)
    waves = [np.sin(2 * np.pi * np.arange(T) / period + rng.uniform(0, 6)) for period in periods]
    return np.sum(waves, axis=0) + noise * rng.normal(size=T)


def peak_periods(values, known=()):
    values = np.asarray(values, dtype=float)
    return [peak.period for peak in find_peaks([values.reshape(len(values), -1)], known)]


def test_daily_and_weekly_rhythms_become_24_and_168():
    load = make_waves(24 * 7 * 8, 24, 168)
    clocks = propose_clocks(load, "h")
    assert clocks.periods == (1, 3, 6, 12, 24, 168)
    assert clocks.cycles == clocks.rhythms == (24, 168)
    assert all(clock.share > 0.1 for clock in clocks.clocks if clock.cycle)
    # the spectrum alone finds the same
    assert propose_clocks(load).periods == (1, 3, 6, 12, 24, 168)
    assert propose_clocks(load).cycles == ()


def test_the_calendar_counts_without_any_peak():
    noise = np.random.default_rng(0).normal(size=24 * 7 * 8)
    assert propose_clocks(noise, "h").rhythms == (24, 168)
    assert not any(clock.share for clock in propose_clocks(noise, "h").clocks)
    assert propose_clocks(noise).periods == (1, 2, 4, 8, 16, 32, 64, 128)


@pytest.mark.parametrize(
    ("frequency", "cycles"),
    [
        ("h", [24, 168, 8766]),
        ("30min", [48, 336, 17532]),
        ("15min", [4, 96, 672, 35063]),
        ("min", [60, 1440, 10080, 525949]),
        ("s", [60, 3600, 86400, 604800, 31556952]),
        ("D", [7, 365]),
        ("B", [5, 261]),
        ("W-SUN", [52]),
        ("MS", [12]),
        ("ME", [12]),
        ("QS", [4]),
        ("YE", []),
        ("2h", [12, 84, 4383]),
        ("2D", [183]),
        ("100YS", []),
        (None, []),
    ],
)
def test_cycles_of_the_calendar(frequency, cycles):
    assert list(find_cycles(frequency).values()) == cycles


def test_an_unknown_frequency_is_refused():
    with pytest.raises(ValueError, match="a frequency of pandas, such as 'h' or 'D', got 'fortnight'"):
        find_cycles("fortnight")


def test_a_cycle_that_fits_less_than_twice_is_left_out():
    assert propose_clocks(np.zeros(335), "h").rhythms == (24,)
    assert propose_clocks(np.zeros(336), "h").rhythms == (24, 168)
    assert propose_clocks(np.zeros(47), "h").rhythms == ()


@pytest.mark.parametrize("period", [5, 7, 12, 29, 50, 90])
@pytest.mark.parametrize("T", [1000, 4321])
def test_a_planted_wave_is_found_exactly(period, T):
    assert peak_periods(make_waves(T, period)) == [period]


def test_two_waves_are_found_the_stronger_first():
    assert peak_periods(make_waves(3000, 37) + 2 * make_waves(3000, 90)) == [90, 37]


@pytest.mark.parametrize("wave", ["saw", "pulse", "square"])
def test_overtones_are_not_rhythms(wave):
    t = np.arange(3000) % 50
    values = {"saw": t / 50, "pulse": t == 0, "square": t < 20}[wave]
    assert peak_periods(values) == [50]


def test_sidebands_of_a_week_are_not_rhythms():
    t = np.arange(24 * 7 * 20)
    # the daily wave is lower at the weekend, which makes peaks at 28 and 21 hours
    working = (t // 24) % 7 < 5
    values = np.where(working, 1.0, 0.4) * np.sin(2 * np.pi * t / 24) + 0.1 * np.random.default_rng(0).normal(
        size=len(t)
    )
    assert propose_clocks(values, "h").rhythms == (24, 168)
    assert max(propose_clocks(values).rhythms) <= 168


def make_weeks(weeks):
    """Hours with two rush hours a day from Monday to Friday and one wave a day at the weekend; and their noise."""
    t = np.arange(168 * weeks)
    working = (t // 24) % 7 < 5
    rush = np.exp(-0.5 * (t % 24 - 8) ** 2) + np.exp(-0.5 * (t % 24 - 17) ** 2)
    values = np.where(working, rush, 0.5 - 0.5 * np.cos(2 * np.pi * t / 24))
    return values, 0.1 * np.random.default_rng(0).normal(size=len(t))


def test_overtones_of_the_calendar_are_no_clocks():
    # 28 hours are a sixth of a week
    values = make_waves(168 * 30, 24, 28)
    assert propose_clocks(values).rhythms == (24, 28)
    assert propose_clocks(values, "h").rhythms == (24, 168)
    rush, noise = make_weeks(30)
    assert propose_clocks(rush + noise, "h").rhythms == (24, 168)


def test_sidebands_of_the_calendar_are_no_clocks():
    t = np.arange(24 * 350)
    # days change their strength every 23 days, which makes peaks at 23 and 25 hours
    wave = (1 + 0.8 * np.cos(2 * np.pi * t / 552)) * np.sin(2 * np.pi * t / 24)
    values = wave + 0.1 * np.random.default_rng(0).normal(size=len(t))
    assert propose_clocks(values).rhythms[:2] == (23, 24)
    assert propose_clocks(values, "h").rhythms == (24, 168)


@pytest.mark.parametrize("period", [5, 10, 19, 23, 25, 31, 50, 100])
def test_rhythms_beside_the_calendar_have_clocks(period):
    values, noise = make_weeks(30)
    # weaker than the day, as a sideband is
    t = np.arange(len(values))
    wave = np.sin(2 * np.pi * t / 24) + 0.3 * np.sin(2 * np.pi * t / period)
    assert propose_clocks(values + wave + noise, "h").rhythms == tuple(sorted((24, 168, period)))


def test_a_short_series_keeps_a_strong_rhythm_near_an_overtone():
    # 8 weeks hold 8 bins between two overtones of the week, so that many waves lie near one
    values = 0.3 * make_waves(168 * 8, 24) + make_waves(168 * 8, 33)
    assert propose_clocks(values, "h").rhythms == (24, 33, 168)


@pytest.mark.parametrize("T", [300, 3000])
@pytest.mark.parametrize("kind", ["white", "walk", "smooth walk", "AR"])
def test_noise_has_no_rhythm(kind, T):
    found = 0
    for seed in range(25):
        values = np.random.default_rng(seed).normal(size=T)
        if kind == "walk":
            values = values.cumsum()
        elif kind == "smooth walk":
            values = values.cumsum().cumsum()
        elif kind == "AR":
            for t in range(1, T):
                values[t] += 0.9 * values[t - 1]
        found += bool(peak_periods(values))
    assert found <= 2


def test_a_trend_hides_no_rhythm():
    wave = make_waves(2000, 40)
    assert peak_periods(wave + 5 * np.arange(2000)) == [40]
    assert peak_periods(1e6 + wave) == [40]
    assert peak_periods(1e-12 * wave) == [40]


def test_gaps_hide_no_rhythm():
    wave = make_waves(2000, 40)
    wave[100:150] = np.nan
    wave[np.random.default_rng(1).uniform(size=2000) < 0.2] = np.nan
    assert peak_periods(wave) == [40]


def test_leakage_of_a_strong_wave_hides_no_weak_one():
    # 400 steps hold no whole number of cycles of either
    t = np.arange(400)
    values = np.sin(2 * np.pi * t / 37 + 1) + 0.2 * np.sin(2 * np.pi * t / 24)
    found = peak_periods(values + 0.01 * np.random.default_rng(0).normal(size=400))
    assert len(found) == 2
    assert found[0] == 37
    assert found[1] in (23, 24)


def test_channels_are_averaged():
    rng = np.random.default_rng(0)
    channels = np.stack(
        [make_waves(2000, 40), np.full(2000, 3.0), rng.normal(size=2000), np.full(2000, np.nan)], axis=1
    )
    assert peak_periods(channels) == [40]


def test_sequences_of_any_lengths_are_averaged():
    # in one of these sequences alone, the noise hides the wave
    sequences = [make_waves(T, 12, noise=3.0, seed=T) for T in range(100, 160)]
    assert peak_periods(sequences[0]) == []
    assert propose_clocks(sequences).rhythms == (12,)
    even = np.stack([make_waves(120, 12, noise=3.0, seed=seed) for seed in range(700)])[:, :, None]
    assert propose_clocks(even).rhythms == (12,)


@pytest.mark.parametrize("values", [[1.0], np.arange(3.0), np.zeros(100), np.full(50, np.nan), np.ones((40, 2))])
def test_short_and_constant_series_have_the_periods_of_the_paper(values):
    periods = propose_clocks(values).periods
    assert periods == tuple(2**i for i in range(8) if 2**i <= max(1, len(values) // 2))


def test_proposed_schedules_have_all_units():
    load = make_waves(24 * 7 * 8, 24, 168) + make_waves(24 * 7 * 8, 24)
    assert propose_schedule(load, 64, "h") == Schedule((1, 3, 6, 12, 24, 168), (11, 11, 11, 11, 10, 10))
    assert propose_schedule(load, 3, "h").periods == (1, 24, 168)
    assert propose_schedule(load, 2, "h").periods == (1, 24)
    assert propose_schedule(load, 1, "h").periods == (1,)
    assert propose_schedule(load, 64, "h", longest=100).periods == (1, 3, 6, 12, 24)
    assert propose_schedule(load, 64, "h", modules=4).periods == (1, 6, 24, 168)


def test_gaps_between_periods_are_closed():
    assert propose_clocks(np.zeros(4 * 365), "D").periods == (1, 7, 49, 365)
    assert propose_clocks(np.zeros(4 * 1440), "min").periods == (1, 5, 15, 30, 60, 180, 360, 1440)
    assert propose_clocks(np.zeros(120), "MS").periods == (1, 3, 6, 12)
    # 29 is prime
    assert propose_clocks(make_waves(1000, 29)).periods == (1, 5, 29)


def test_clocks_print_their_sources():
    clocks = Clocks((Clock(1), Clock(24, "day", 0.42), Clock(30, "", 0.05), Clock(168, "week")))
    assert str(clocks).splitlines() == [
        "period  source",
        "     1  no rhythm of the data",
        "    24  calendar: day; peak with 42 % of the variance",
        "    30  peak with 5 % of the variance",
        "   168  calendar: week",
    ]
    assert clocks.to_dict()[1] == {"period": 24, "cycle": "day", "share": 0.42}


def test_wrong_arguments_are_refused():
    for values, message in [
        ([], "values must be"),
        (np.zeros((2, 2, 2, 2)), "values must be"),
        ([1.0, np.inf], "values must not have infinity"),
    ]:
        with pytest.raises(ValueError, match=message):
            propose_clocks(values)
    with pytest.raises(ValueError, match="modules must be a positive integer, got 0"):
        propose_clocks([1.0], modules=0)
    with pytest.raises(ValueError, match="longest must be a positive integer or None, got 0"):
        propose_clocks([1.0], longest=0)
    with pytest.raises(ValueError, match="hidden_size must be a positive integer, got 0"):
        propose_schedule([1.0], 0)
