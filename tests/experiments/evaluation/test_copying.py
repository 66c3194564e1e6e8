"""The copy memory task: ten letters, a delay, a marker, and the letters again."""

import math
import pickle

import numpy as np
import pytest
import torch

from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.evaluation.copying import BASELINE, CopyExamples, make_copying
from cwrnn.experiments.evaluation.generated import EPOCH_UPDATES


def join_part(examples, part, batch=128):
    """Return the symbols (T, n) and the target (10, n) of a part."""
    batches = list(examples.make_part(part, batch))
    return torch.cat([one.input.argmax(2) for one in batches], 1), torch.cat([one.target for one in batches], 1)


@pytest.mark.parametrize("delay", [1, 30])
def test_the_letters_return_after_the_delay(delay):
    examples = make_copying(delay)
    for batch in (*examples.make_part("validation", 400), next(examples.make_epoch(5, np.random.default_rng(0)))):
        assert batch.input.dtype == torch.float32
        assert batch.target.dtype == torch.int64
        assert batch.input.shape == (delay + 20, batch.target.shape[1], 10)
        # one-hot
        torch.testing.assert_close(batch.input.sum(2), torch.ones(batch.input.shape[:2]))
        assert set(batch.input.unique().tolist()) == {0.0, 1.0}
        symbols = batch.input.argmax(2)
        torch.testing.assert_close(symbols[:10], batch.target)
        assert (symbols[10 : 10 + delay] == 8).all()
        assert (symbols[10 + delay] == 9).all()
        assert (symbols[11 + delay :] == 8).all()
        assert len(symbols[11 + delay :]) == 9


def test_letters_are_uniform_and_independent():
    _, target = join_part(make_copying(1), "test")
    # 10,000 letters of 8 kinds: 1250 +- 33; 1000 at each place: 125 +- 10.5
    assert ((target.flatten().bincount(minlength=8) - 1250).abs() < 165).all()
    for letters in target:
        assert ((letters.bincount(minlength=8) - 125).abs() < 55).all()
    assert len(target.unique(dim=1).T) == 1000
    assert math.exp(BASELINE) == pytest.approx(8)


def test_parts_and_epochs_differ_and_repeat():
    examples = make_copying(3)
    validation, test = join_part(examples, "validation"), join_part(examples, "test")
    assert not torch.equal(validation[1], test[1])
    torch.testing.assert_close(join_part(examples, "test", 77), test)
    first, again, other = (list(examples.make_epoch(3, np.random.default_rng(seed))) for seed in (1, 1, 2))
    assert len(first) == examples.count_updates(3) == EPOCH_UPDATES
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert not torch.equal(first[0].target, other[0].target)


def test_letters_of_the_test_part_never_change():
    assert join_part(make_copying(5), "test")[1][:, 0].tolist() == [6, 3, 2, 4, 6, 5, 6, 6, 6, 0]


def test_restored_examples_are_the_same():
    examples = make_copying(6)
    restored = CopyExamples.restore("a", "b", examples.describe(), examples.pack_numbers())
    for other in (restored, pickle.loads(pickle.dumps(examples))):
        assert other.digest == examples.digest
        assert (other.inputs, other.outputs, other.length) == (10, 8, 26)
        torch.testing.assert_close(join_part(other, "test"), join_part(examples, "test"))
    assert make_copying(7).digest != examples.digest


@pytest.mark.parametrize("delay", [0, -1, 10**8, 4.5, "x", None])
def test_delays_are_checked(delay):
    with pytest.raises(ArgumentError, match="^delay: expected"):
        make_copying(delay)
    with pytest.raises(ArgumentError, match="^delay: expected"):
        CopyExamples.restore("a", "b", {"delay": delay}, b"")


def test_nonsense_is_not_restored():
    with pytest.raises(KeyError):
        CopyExamples.restore("a", "b", {"length": 9}, b"")
    with pytest.raises(ValueError, match="expected no numbers, got 1 bytes"):
        CopyExamples.restore("a", "b", {"delay": 9}, b"x")
