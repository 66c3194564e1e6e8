"""Square waves have the periods that were asked for, with and without their noise."""

import numpy as np
import pytest

from cwrnn.experiments.clocks.square_waves import load_square_waves, make_square_waves, sum_square_waves
from cwrnn.experiments.generation.music import MusicError


def test_waves_switch_at_their_periods():
    waves = sum_square_waves([3, 7], 84)
    assert set(waves.tolist()) == {-2.0, 0.0, 2.0}
    switches = set((np.flatnonzero(np.diff(waves)) + 1).tolist())
    one = {t for t in range(1, 84) if (t % 3 == 0) != (t % 7 == 0)}
    # where both switch, one goes up and the other down, or both go the same way
    both = {t for t in range(1, 84) if t % 21 == 0}
    assert one <= switches <= one | both


def test_the_waves_without_noise_are_known():
    data = make_square_waves((3, 7), steps=210, noise=0.1)
    assert data.periods == (3, 7)
    difference = data.samples - data.clean
    # the waves fill [-2, 2], and the noise with a deviation of 0.1 was scaled with them
    assert difference.std() == pytest.approx(0.1 * np.ptp(data.clean) / 4, rel=0.2)
    assert abs(np.corrcoef(difference, data.clean)[0, 1]) < 0.2
    levels = np.unique(data.clean.round(9))
    assert len(levels) == 3
    np.testing.assert_allclose(np.diff(levels), np.ptp(data.clean) / 2)


def test_sources_name_periods_count_and_first_seed():
    (one,) = load_square_waves("squares:3,7,21")
    three = load_square_waves("squares:3,7,21x3")
    assert len({data.digest for data in three}) == 3
    assert one.digest == three[0].digest
    assert [data.name for data in load_square_waves("squares:3,7,21x2+1")] == [data.name for data in three[1:]]
    assert [data.digest for data in load_square_waves("squares:3,7,21x2+1")] == [data.digest for data in three[1:]]
    assert (one.samples.min(), one.samples.max()) == (-1, 1)
    clean = sum_square_waves([3, 7, 21])
    assert set(np.flatnonzero(np.diff(clean)) + 1) <= {k * p for p in (3, 7, 21) for k in range(1, 71)}
    assert np.corrcoef(clean, one.samples)[0, 1] > 0.99


@pytest.mark.parametrize("text", ["", "3,,7", "0", "3x0", "a", "3x", "3+", "99999"])
def test_bad_sources_are_refused(text):
    with pytest.raises(MusicError, match="squares:"):
        load_square_waves(f"squares:{text}")
