"""The weights as a code of the sequence: the number of bits, and the error after decoding."""

import dataclasses

import numpy as np
import pytest
from support.made_records import make_dataset, make_record, make_run, train_runs

from cwrnn.experiments.generation import training, weight_coding
from cwrnn.experiments.generation.weight_coding import baselines, code_bits, decode, encode, measure, quantise


def test_bits_by_hand():
    record = make_record(0.5, method="cw", hidden=4)
    # W_hh: 2 fast units read 4 units each, 2 slow ones 2; 4 biases; a readout of 4 + 1; 2 periods
    parameters = 8 + 4 + 4 + 5 + 2
    assert record.parameters == parameters
    assert code_bits(record, 32) == 32 * parameters
    # recurrent weights, biases, the readout's weights and its bias have an offset and a scale each
    assert code_bits(record, 8) == 8 * parameters + 4 * 64


def test_bits_of_an_lstm():
    record = make_record(0.5, method="lstm", hidden=2)
    # four layers of 2 x 2 and 2 biases, 3 peepholes per cell, readout
    parameters = 4 * (4 + 2) + 6 + 3
    assert code_bits(record, 32) == 32 * parameters
    assert code_bits(record, 8) == 8 * parameters + 5 * 64


@pytest.mark.parametrize("method", ["srn", "lstm", "cw"])
def test_no_weight_is_further_off_than_half_a_step(method):
    record = make_record(0.5, method=method)
    decoded = quantise(record.weights, record.schedule)
    assert decoded.keys() == record.weights.keys()
    for name, weight in record.weights.items():
        assert decoded[name].shape == weight.shape
        assert decoded[name].dtype == np.float32
        if weight.size:
            step = (weight.max() - weight.min()) / 255
            assert np.abs(decoded[name] - weight).max() <= step / 2 * (1 + 1e-5)
    # the weights do change
    assert any(not np.array_equal(decoded[name], weight) for name, weight in record.weights.items())


def test_forbidden_weights_stay_zero_and_do_not_widen_the_scale():
    record = make_record(0.5, method="cw", hidden=4)
    weight = np.random.default_rng(0).uniform(3, 4, (4, 4)).astype(np.float32)
    weight[2:, :2] = 0
    decoded = quantise({"layer.weight_hh_l0": weight}, record.schedule)["layer.weight_hh_l0"]
    assert (decoded[2:, :2] == 0).all()
    assert np.abs(decoded - weight).max() <= 0.5 / 255 * 1.001


def test_codes_use_all_of_the_scale():
    values = np.array([-2.0, 0.0, 3.1], dtype=np.float32)
    codes, offset, scale = encode(values)
    assert codes.dtype == np.uint8
    assert codes.tolist() == [0, 100, 255]
    np.testing.assert_allclose([offset, scale], [-2, 5.1 / 255], rtol=1e-6)
    np.testing.assert_allclose(decode(codes, offset, scale), values, atol=1e-6)


@pytest.mark.parametrize("values", [[], [0.7], [0.7, 0.7, 0.7]])
def test_one_value_needs_no_scale(values):
    values = np.array(values, dtype=np.float32)
    assert np.array_equal(decode(*encode(values)), values)


def test_float_weights_decode_to_what_was_recorded():
    data = make_dataset()
    for record in train_runs(*(make_run(method, data=data) for method in ("srn", "lstm", "cw")), data=data):
        run = record.run
        output = training.generate(run.method, run.hidden, record.weights, len(data.samples), run.settings)
        assert training.nmse(output.astype(float), data.samples) == pytest.approx(record.error, rel=1e-4)
        assert weight_coding.decoded_nmse(record, data, 32) == record.error


def test_eight_bits_decode_by_generating():
    data = make_dataset()
    [record] = train_runs(make_run("cw", data=data), data=data)
    weights = quantise(record.weights, record.schedule)
    output = training.generate("cw", record.run.hidden, weights, len(data.samples), record.run.settings)
    expected = training.nmse(output.astype(float), data.samples)
    assert weight_coding.decoded_nmse(record, data, 8) == expected
    assert expected != record.error
    assert expected == pytest.approx(record.error, rel=0.05)


def test_points_have_medians_and_best_errors():
    first, second = make_dataset("first", seed=1), make_dataset("second", seed=2)
    records = [make_record(nmse, data=first, seed=seed) for seed, nmse in enumerate([0.5, 0.1, 0.2])]
    records += [make_record(nmse, data=second, seed=seed) for seed, nmse in enumerate([0.9, 0.7])]
    records += [
        make_record(0.01, data=first, seed=9, status="diverged"),
        make_record(0.01, data=first, seed=10, status="failed"),
    ]
    records += [make_record(0.3, data=first, method="srn")]
    srn, coded_srn, point, coded = measure(records, {"first": first, "second": second})
    assert (srn.method, srn.bits, coded_srn.bits) == ("srn", 32, 8)
    assert (point.method, point.size, point.bits, point.runs) == ("cw", 100, 32, 5)
    # the best of the two data sets are 0.1 and 0.7
    assert point.best == pytest.approx(0.4)
    assert point.median == 0.5
    assert point.bits_per_sample == 23 * 32 / 48
    assert coded.bits == 8
    assert coded.bits_per_sample == (23 * 8 + 4 * 64) / 48
    errors = [weight_coding.decoded_nmse(r, {"first": first, "second": second}[r.run.data], 8) for r in records[:5]]
    assert coded.median == np.median(errors)
    assert coded.best == np.median([min(errors[:3]), min(errors[3:])])


def test_no_points_without_finished_runs():
    assert (
        measure([make_record(0.1, status="diverged"), make_record(0.1, status="failed")], {"tune": make_dataset()})
        == []
    )


def test_pcm_errors_fall_with_the_bits():
    data = dataclasses.replace(make_dataset(), samples=np.array([-1.0, -0.9, 0.2, 1.0]))
    one, two = baselines([data], bits=[1, 2])
    # one bit: -1 or 1; two: -1, -1/3, 1/3, 1
    variation = np.square(data.samples - data.samples.mean()).sum()
    assert one.nmse == pytest.approx((0.1**2 + 0.8**2) / variation)
    assert two.nmse == pytest.approx((0.1**2 + (1 / 3 - 0.2) ** 2) / variation)
    every = baselines([data])
    assert [each.bits for each in every] == list(range(1, 17))
    assert every[-1].nmse < 1e-8
    assert baselines([]) == []
