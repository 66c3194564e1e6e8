"""The adding problem: two marked numbers, one in each half, whose sum is the target."""

import pickle

import numpy as np
import pytest
import torch

from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.evaluation.adding import BASELINE, AddingExamples, make_adding
from cwrnn.experiments.evaluation.generated import EPOCH_UPDATES, PART_SEQUENCES


def join_part(examples, part, batch=128):
    """Return the input (T, n, 2) and the target (n,) of a part."""
    batches = list(examples.make_part(part, batch))
    return torch.cat([one.input for one in batches], 1), torch.cat([one.target for one in batches], 1)[0, :, 0]


@pytest.mark.parametrize("length", [4, 5, 50])
def test_target_is_the_sum_of_the_marked_numbers(length):
    examples = make_adding(length)
    for batch in (*examples.make_part("test", 300), next(examples.make_epoch(7, np.random.default_rng(0)))):
        number, marker = batch.input.unbind(-1)
        assert batch.input.dtype == batch.target.dtype == torch.float32
        assert batch.target.shape == (1, batch.input.shape[1], 1)
        assert set(marker.unique().tolist()) == {0.0, 1.0}
        half = length // 2
        torch.testing.assert_close(marker[:half].sum(0), torch.ones(marker.shape[1]))
        torch.testing.assert_close(marker[half:].sum(0), torch.ones(marker.shape[1]))
        torch.testing.assert_close((number * marker).sum(0), batch.target[0, :, 0], rtol=0, atol=0)


def test_markers_reach_every_step_and_numbers_are_uniform():
    input, target = join_part(make_adding(20), "validation")
    number, marker = input.unbind(-1)
    # 1000 markers at 10 places each: 100 +- 9.5
    assert ((marker.sum(1) - 100).abs() < 50).all()
    # 1000 draws miss 0.004 of the 100 pairs of places on average
    pairs = torch.stack((marker[:10].argmax(0), marker[10:].argmax(0)))
    assert len(pairs.unique(dim=1).T) > 95
    quarters = torch.histc(number, 4, 0, 1) / number.numel()
    torch.testing.assert_close(quarters, torch.full((4,), 0.25), rtol=0, atol=0.02)
    # the variance of the sum; the deviation of this mean is 0.006
    assert ((target - 1) ** 2).mean().item() == pytest.approx(BASELINE, abs=0.03)


def test_parts_have_numbers_of_their_own():
    examples = make_adding(20)
    validation, test = join_part(examples, "validation")[0], join_part(examples, "test")[0]
    training = torch.cat([batch.input for batch in examples.make_epoch(20, np.random.default_rng(0))], 1)
    sequences = torch.cat((validation, test, training), 1).transpose(0, 1).flatten(1)
    assert validation.shape[1] == test.shape[1] == PART_SEQUENCES
    assert len(sequences.unique(dim=0)) == len(sequences) == 2 * PART_SEQUENCES + 20 * EPOCH_UPDATES


def test_parts_do_not_depend_on_the_batch():
    examples = make_adding(10)
    assert [one.input.shape[1] for one in examples.make_part("test", 300)] == [300, 300, 300, 100]
    for batch in (1, 7, 1000, 5000):
        torch.testing.assert_close(join_part(examples, "test", batch), join_part(examples, "test"), rtol=0, atol=0)


def test_the_same_seed_makes_the_same_epoch():
    examples = make_adding(10)
    first, again, other = (list(examples.make_epoch(3, np.random.default_rng(seed))) for seed in (1, 1, 2))
    assert len(first) == examples.count_updates(3) == EPOCH_UPDATES
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert not torch.equal(first[0].input, other[0].input)
    assert not torch.equal(first[0].input, first[1].input)


def test_numbers_of_the_test_part_never_change():
    input, target = join_part(make_adding(6), "test")
    number, marker = input[:, 0].unbind(-1)
    expected = torch.tensor([0.610116, 0.918378, 0.820087, 0.509622, 0.986039, 0.683137])
    torch.testing.assert_close(number, expected, rtol=0, atol=1e-6)
    assert marker.tolist() == [0, 1, 0, 0, 1, 0]
    assert target[0].item() == pytest.approx(0.918378 + 0.986039, abs=2e-6)


def test_restored_examples_are_the_same():
    examples = make_adding(12)
    restored = AddingExamples.restore("a", "b", examples.describe(), examples.pack_numbers())
    for other in (restored, pickle.loads(pickle.dumps(examples))):
        assert other.digest == examples.digest
        assert (other.inputs, other.outputs, other.length) == (2, 1, 12)
        torch.testing.assert_close(join_part(other, "test"), join_part(examples, "test"), rtol=0, atol=0)
    assert (restored.name, restored.source) == ("a", "b")
    assert make_adding(13).digest != examples.digest


@pytest.mark.parametrize("length", [3, -1, 10**8, 4.5, "x", None])
def test_lengths_are_checked(length):
    with pytest.raises(ArgumentError, match="^length: expected"):
        make_adding(length)
    with pytest.raises(ArgumentError, match="^length: expected"):
        AddingExamples.restore("a", "b", {"length": length}, b"")


def test_nonsense_is_not_restored():
    with pytest.raises(KeyError):
        AddingExamples.restore("a", "b", {}, b"")
    with pytest.raises(ValueError, match="expected no numbers, got 1 bytes"):
        AddingExamples.restore("a", "b", {"length": 9}, b"x")
    with pytest.raises(ValueError, match="expected an object"):
        AddingExamples.restore("a", "b", [9], b"")


def test_training_is_no_part():
    with pytest.raises(ArgumentError, match="part: expected one of validation, test, got 'training'"):
        make_adding(9).make_part("training", 1)
