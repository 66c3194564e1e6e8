"""The experiment with planted periods: same targets, same updates, and what is said of the networks is true."""

import numpy as np
import pytest
import torch

from cwrnn import ClockworkRNN
from cwrnn.experiments import clocks
from cwrnn.experiments.clocks import Settings, explained, train
from cwrnn.experiments.planted import waves as square_waves

SHORT = Settings(planted=(3, 7), steps=42, noise=0.0, hidden=12, modules=4, longest=10, epochs=400, clock_rate=0.03)


def test_square_waves_switch_at_their_periods():
    waves = square_waves([3, 7], 84)
    assert set(waves.tolist()) == {-2.0, 0.0, 2.0}
    switches = set((np.flatnonzero(np.diff(waves)) + 1).tolist())
    one = {t for t in range(1, 84) if (t % 3 == 0) != (t % 7 == 0)}
    # where both switch, one goes up and the other down, or both go the same way
    both = {t for t in range(1, 84) if t % 21 == 0}
    assert one <= switches <= one | both


def test_explained():
    assert explained(21, (7, 8))
    assert explained(3, (1, 2))
    assert not explained(7, (2, 3, 14))


def test_planted_periods_are_found_and_hardening_changes_nothing():
    outcomes = train(SHORT, range(6), learned=True)
    found = [outcome for outcome in outcomes if {3, 7} <= set(outcome.schedule.periods)]
    assert len(found) >= 4
    assert np.median([outcome.hard for outcome in found]) < 0.05
    for outcome in outcomes:
        assert outcome.hard == pytest.approx(outcome.soft, rel=0.01, abs=1e-6)


def test_a_network_is_the_same_alone_and_among_others():
    settings = Settings(steps=30, epochs=5)
    together = train(settings, [0, 1, 2], learned=True)
    alone = train(settings, [1], learned=True)
    assert together[1].soft == pytest.approx(alone[0].soft, rel=1e-3)
    assert together[0].soft != together[1].soft


def test_an_exponential_network_is_a_clockwork_rnn(close):
    rnn, _ = clocks._build(Settings(), seed=0, learned=False)
    hardened, report = rnn.harden()
    assert type(hardened) is ClockworkRNN
    assert hardened.schedule.periods == (1, 2, 4, 8)
    assert report.units.tolist() == list(range(16))
    nothing = torch.zeros(40, 1, 0)
    close(hardened(nothing)[0], rnn(nothing)[0])


def test_command(capsys):
    clocks.main(["--seeds", "2", "--epochs", "2", "--steps", "30", "--planted", "3", "5"])
    text = capsys.readouterr().out
    assert "exponential" in text
    assert "learned" in text
    assert "5 was found by" in text
