"""Learned clocks are smooth in all parameters, equal the specification when hard, and harden to a ClockworkRNN."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.network_cases import Case, cases, evaluate

from cwrnn import ClockworkRNN, LearnedClockworkRNN, Schedule
from cwrnn.held import SignalPass, states_of
from cwrnn.soft_clocks import (
    connection_probabilities,
    draw_one_hot,
    list_candidates,
    settle_clocks,
    sharp_softmax,
    soft_clockwork,
    tick_probabilities,
)


def set_clocks(rnn: LearnedClockworkRNN, periods, phases=None, sharpness: float = math.inf) -> LearnedClockworkRNN:
    """Gives the modules of `rnn` these clocks, at this sharpness, and returns it."""
    phases = phases or [0] * len(periods)
    pairs = [tuple(pair) for pair in rnn.candidates.tolist()]
    with torch.no_grad():
        rnn.clocks.normal_(std=0.1)
        for module, pair in enumerate(zip(periods, phases, strict=True)):
            rnn.clocks[module, pairs.index(pair)] = 1.0
        rnn.sharpness.fill_(sharpness)
    return rnn


def make(input_size=2, sizes=(2, 1, 3), candidates=6, **options) -> LearnedClockworkRNN:
    return LearnedClockworkRNN(
        input_size, sum(sizes), modules=sizes, candidates=candidates, dtype=torch.float64, **options
    )


def run_sharp(input, weight_ih, weight_hh, bias, h0, schedule, t0, nonlinearity, weight_ch):
    """The learned layer's recurrence with hard clocks, behind the signature of a backend."""
    candidates = torch.tensor(list_candidates(schedule.periods[-1] + 2, phases=False))
    h0 = input.new_zeros(input.shape[1], schedule.hidden_size) if h0 is None else h0
    values = torch.nn.functional.one_hot(torch.tensor(schedule.periods) - 1, len(candidates)).to(h0)
    hard = sharp_softmax(values, torch.tensor(torch.inf, dtype=h0.dtype))
    output = soft_clockwork(input, weight_ih, weight_hh, bias, h0, hard, candidates, schedule.sizes, t0, nonlinearity)
    return SignalPass(t0, len(input), None, states_of(output, h0, schedule, t0))


@settings(max_examples=100)
@given(case=cases(("tanh", "relu")))
def test_hard_clocks_give_the_specification(case, close):
    actual, expected = evaluate(case, run_sharp), evaluate(case)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        close(actual[name], value, msg=lambda text, name=name: f"{name} of {case}: {text}")


def test_a_held_state_is_equal_to_the_bit():
    rnn = set_clocks(make(), [3, 1, 6])
    output, _ = rnn(torch.randn(14, 2, 2, dtype=torch.float64), torch.randn(1, 2, 6, dtype=torch.float64), t0=1)
    for units, period in ((slice(0, 2), 3), (slice(3, 6), 6)):
        for step in range(1, 14):
            held = torch.equal(output[step, :, units], output[step - 1, :, units])
            assert held == ((1 + step) % period != 0)


@settings(max_examples=50)
@given(
    periods=st.lists(st.integers(1, 6), min_size=3, max_size=3),
    phases=st.lists(st.integers(0, 5), min_size=3, max_size=3),
    t0=st.integers(0, 20),
)
def test_hard_clocks_tick_at_their_phase(periods, phases, t0):
    phases = [phase % period for phase, period in zip(phases, periods, strict=True)]
    rnn = set_clocks(make(learn_phases=True), periods, phases)
    actual = tick_probabilities(rnn.probabilities(), rnn.candidates, t0, T=30).tolist()
    expected = [
        [float(t % period == phase) for period, phase in zip(periods, phases, strict=True)] for t in range(t0, t0 + 30)
    ]
    assert actual == expected
    assert rnn.periods == tuple(periods)
    assert rnn.phases == tuple(phases)


@pytest.mark.parametrize("learn_phases", [False, True])
@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_gradients_equal_finite_differences(learn_phases, nonlinearity):
    rnn = make(sizes=(2, 1), candidates=4, learn_phases=learn_phases, nonlinearity=nonlinearity)
    with torch.no_grad():
        rnn.clocks.normal_()
        rnn.sharpness.fill_(1.7)
    names = [name for name, _ in rnn.named_parameters()]
    assert "clocks" in names

    def run(input, hx, *values):
        return torch.func.functional_call(rnn, dict(zip(names, values, strict=True)), (input, hx), {"t0": 3})

    input = torch.randn(9, 2, 2, dtype=torch.float64, requires_grad=True)
    hx = torch.randn(1, 2, 3, dtype=torch.float64, requires_grad=True)
    values = [parameter.detach().clone().requires_grad_() for parameter in rnn.parameters()]
    assert torch.autograd.gradcheck(run, (input, hx, *values))
    if nonlinearity == "tanh":
        assert torch.autograd.gradgradcheck(run, (input, hx, *values))


@pytest.mark.parametrize("sharpness", [1e6, 1e30, math.inf])
def test_gradients_are_finite_at_any_sharpness(sharpness):
    rnn = set_clocks(make(), [3, 1, 6], sharpness=sharpness)
    rnn(torch.randn(14, 2, 2, dtype=torch.float64))[0].square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in rnn.parameters())
    # a hard clock stays as it is
    assert (rnn.clocks.grad == 0).all()


def test_infinite_sharpness_takes_the_first_of_equal_maxima():
    values = torch.tensor([[0.0, 2.0, 2.0, 1.0], [3.0, 3.0, 3.0, 3.0]], requires_grad=True)
    actual = sharp_softmax(values, torch.tensor(math.inf))
    assert actual.tolist() == [[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
    (gradient,) = torch.autograd.grad(actual.square().sum(), values)
    assert torch.equal(gradient, torch.zeros_like(values))


def test_draws_are_one_hot_and_follow_the_distribution():
    values, sharpness = torch.tensor([0.0, 1.0, 0.5]), torch.tensor(1.5)
    noise = -torch.empty(20000, 3).exponential_().log()
    actual = draw_one_hot(values.expand(20000, 3), sharpness, noise)
    assert set(actual.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(actual.sum(1), torch.ones(20000))
    torch.testing.assert_close(actual.mean(0), (sharpness * values).softmax(0), rtol=0, atol=0.02)


def test_a_draw_has_the_gradient_of_the_noisy_softmax():
    values, noise = torch.randn(2, 5, requires_grad=True), torch.randn(2, 5)
    weights, sharpness = torch.randn(2, 5), torch.tensor(3.0)
    (actual,) = torch.autograd.grad((draw_one_hot(values, sharpness, noise) * weights).sum(), values)
    (expected,) = torch.autograd.grad(((sharpness * values + noise).softmax(-1) * weights).sum(), values)
    torch.testing.assert_close(actual, expected)


def test_clocks_are_drawn_in_training_only():
    """In training every call has hard clocks; in evaluation, when hardened and when hard, the layer draws nothing."""
    rnn = make(candidates=4, draw_clocks=True)
    x = torch.randn(20, 2, 2, dtype=torch.float64)
    for _ in range(5):
        output, _ = rnn(x)
        for units in torch.arange(6).split(rnn.sizes):
            steps = [t for t in range(1, 20) if not torch.equal(output[t, :, units], output[t - 1, :, units])]
            assert steps in [list(range(period, 20, period)) for period in (1, 2, 3, 4)]
    assert not torch.equal(rnn(x)[0], rnn(x)[0])
    assert rnn.harden(x)[1].moved == rnn.harden(x)[1].moved
    rnn.eval()
    assert torch.equal(rnn(x)[0], rnn(x)[0])
    rnn.train().sharpen(1.0)
    assert torch.equal(rnn(x)[0], rnn(x)[0])
    assert rnn.harden(x)[1].moved < 1e-18


def jacobian(rnn: LearnedClockworkRNN, t0: int) -> torch.Tensor:
    """The derivative (N, N) of the state after one step by the state before it."""
    x = torch.randn(1, 2, dtype=torch.float64)
    h = torch.randn(1, 6, dtype=torch.float64)
    return torch.autograd.functional.jacobian(lambda h: rnn(x, h, t0=t0)[1], h)[0, :, 0]


@pytest.mark.parametrize("periods", [(1, 2, 4), (2, 1, 4), (4, 2, 1), (2, 2, 1), (6, 6, 6)])
def test_slow_modules_never_read_fast_ones(periods):
    rnn = set_clocks(make(), periods)
    module = torch.arange(3).repeat_interleave(torch.tensor([2, 1, 3]))
    period = torch.tensor(periods)[module]
    derivative = jacobian(rnn, t0=math.lcm(*periods))
    assert torch.equal(derivative != 0, period[None, :] >= period[:, None])


def test_connections_follow_the_periods_while_they_cross():
    """Two modules swap their periods gradually; the connections have the probabilities of the periods all the way."""
    candidates = torch.tensor(list_candidates(4, phases=False))
    for share in torch.linspace(0, 1, 5).tolist():
        probabilities = torch.tensor([[1 - share, 0.0, 0.0, share], [share, 0.0, 0.0, 1 - share]])
        connected = connection_probabilities(probabilities, candidates)
        first, second = probabilities
        expected = sum(first[a] * second[b] * torch.tensor([b >= a, a >= b]) for a in range(4) for b in range(4))
        torch.testing.assert_close(torch.stack((connected[0, 1], connected[1, 0])), expected)
        assert torch.equal(connected.diag(), torch.ones(2))
    # in the end the second reads the first, and the first no longer reads the second
    assert connected.tolist() == [[1.0, 0.0], [1.0, 1.0]]


def test_connections_are_reversed_when_training_swaps_periods():
    """When gradient descent makes a fast module slow, it stops reading the module that is now faster."""
    rnn = set_clocks(make(sizes=(3, 3), candidates=[1, 4]), [1, 4])
    assert jacobian(rnn, t0=4)[3:, :3].abs().max() == 0
    rnn.sharpness.fill_(1.0)
    optimiser = torch.optim.Adam([rnn.clocks], lr=0.1)
    goal = torch.tensor([4.0, 1.0], dtype=torch.float64)
    for _ in range(100):
        optimiser.zero_grad()
        expected = rnn.probabilities() @ rnn.candidates[:, 0].double()
        (expected - goal).square().sum().backward()
        optimiser.step()
    assert rnn.periods == (4, 1)
    rnn.sharpness.fill_(math.inf)
    assert jacobian(rnn, t0=4)[:3, 3:].abs().max() == 0
    assert jacobian(rnn, t0=4)[3:, :3].abs().min() > 0


@settings(max_examples=50)
@given(case=cases(("tanh", "relu")), sizes=st.permutations([1, 2, 3, 4]))
def test_the_hardened_layer_equals_the_sharp_one(case: Case, sizes):
    """The periods come in any order, and some of them are equal."""
    periods = [*case.schedule.periods, 3, 3, 3][:4]
    rnn = make(case.I, sizes, candidates=12, bias=case.bias, nonlinearity=case.cell)
    set_clocks(rnn, [min(period, 12) for period in periods])
    x = torch.randn(case.T, case.B, case.I, dtype=torch.float64)
    hx = torch.randn(1, case.B, 10, dtype=torch.float64)
    hardened, report = rnn.harden(x, hx, t0=case.t0)
    assert type(hardened) is ClockworkRNN
    assert hardened.schedule == Schedule(tuple(periods), tuple(sizes))
    assert sorted(report.units.tolist()) == list(range(10))
    expected, h_n = rnn(x, hx, t0=case.t0)
    actual, final = hardened(x, hx[..., report.units], t0=case.t0)
    torch.testing.assert_close(actual, expected[..., report.units], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(final, h_n[..., report.units], rtol=1e-10, atol=1e-10)
    assert report.largest < 1e-15
    # a constant output has no variance to compare rounding errors with
    constant = bool((expected == expected[:1, :1]).all())
    assert constant or report.moved < 1e-18
    assert report.certainty == 1


@settings(max_examples=50)
@given(shift=st.integers(0, 100), periods=st.lists(st.integers(1, 6), min_size=3, max_size=3), t0=st.integers(0, 9))
def test_harden_turns_phases_into_a_start_of_the_clock(shift, periods, t0):
    rnn = make(learn_phases=True)
    set_clocks(rnn, periods, [-shift % period for period in periods])
    x = torch.randn(40, 2, 2, dtype=torch.float64)
    hardened, report = rnn.harden(x, t0=t0)
    assert all((report.t0 - shift) % period == 0 for period in periods)
    actual, _ = hardened(x, t0=t0 + report.t0)
    torch.testing.assert_close(actual, rnn(x, t0=t0)[0][..., report.units], rtol=1e-10, atol=1e-10)
    assert report.moved < 1e-18


def test_harden_changes_phases_that_never_tick_together():
    """Clocks of periods 2 and 4 never tick together, so the less certain module takes its next best phase."""
    rnn = make(sizes=(2, 2), candidates=[2, 4], learn_phases=True)
    pairs = [tuple(pair) for pair in rnn.candidates.tolist()]
    with torch.no_grad():
        rnn.clocks.zero_()
        rnn.clocks[0, pairs.index((2, 1))] = 9.0
        rnn.clocks[1, pairs.index((4, 0))] = 5.0
        rnn.clocks[1, pairs.index((4, 3))] = 4.0
    assert (rnn.periods, rnn.phases) == ((2, 4), (1, 0))
    hardened, report = rnn.harden()
    assert hardened.schedule.periods == (2, 4)
    assert report.t0 == 1  # at 3 both tick
    assert report.moved > 1e-3
    assert report.certainty == rnn.probabilities()[1, pairs.index((4, 3))].item()
    # in training they change when the clocks become hard, and hardening then changes nothing
    rnn.sharpen(0.4)
    assert rnn.phases == (1, 0)
    rnn.sharpen(0.5)
    assert (rnn.periods, rnn.phases) == ((2, 4), (1, 3))
    assert rnn.harden()[1].moved < 1e-18
    settled = rnn.clocks.clone()
    rnn.sharpen(0.6)
    assert torch.equal(rnn.clocks, settled)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("input_size", [0, 2])
def test_the_report_measures_how_far_outputs_moved(batch_first, input_size):
    rnn = set_clocks(make(input_size, batch_first=batch_first), [3, 1, 6], sharpness=3.0)
    x = torch.randn(5, 40, input_size, dtype=torch.float64)
    if not batch_first:
        x = x.transpose(0, 1)
    hardened, report = rnn.harden(x)
    before, after = rnn(x)[0][..., report.units], hardened(x)[0]
    variation = (before - before.mean((0, 1))).square().sum()
    assert report.moved == pytest.approx(((after - before).square().sum() / variation).item())
    assert report.largest == (after - before).abs().max().item()
    assert report.moved > 1e-3
    assert f"{report.moved:.2g}" in str(report)
    # without an input it compares on noise; sharper clocks differ less
    reports = [set_clocks(rnn, [3, 1, 6], sharpness=s).harden()[1] for s in (3.0, 10.0, 100.0, math.inf)]
    moved = [report.moved for report in reports]
    assert moved[0] > moved[1] > moved[2] >= moved[3]
    assert moved[3] < 1e-18


def test_harden_does_not_change_the_layer():
    rnn = make()
    before = copy.deepcopy(rnn.state_dict())
    hardened, _ = rnn.harden()
    with torch.no_grad():
        for parameter in hardened.parameters():
            parameter.zero_()
    for name, value in rnn.state_dict().items():
        assert torch.equal(value, before[name]), name
    mask = torch.from_numpy(hardened.schedule.mask())
    assert (rnn.harden()[0].weight_hh_l0[~mask] == 0).all()


def test_an_empty_sequence_keeps_the_state():
    rnn = make()
    hx = torch.randn(1, 3, 6, dtype=torch.float64)
    output, h_n = rnn(torch.zeros(0, 3, 2, dtype=torch.float64), hx)
    assert output.shape == (0, 3, 6)
    assert torch.equal(h_n, hx)
    assert rnn.harden(torch.zeros(0, 3, 2, dtype=torch.float64))[1].moved == 0


def test_an_empty_sequence_has_gradients():
    for which in (0, 1):
        rnn = make()
        rnn(torch.zeros(0, 3, 2, dtype=torch.float64))[which].sum().backward()
        for name, parameter in rnn.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.count_nonzero() == 0, name


@pytest.mark.parametrize("learn_phases", [False, True])
def test_chunks_equal_one_call(learn_phases, close):
    rnn = make(learn_phases=learn_phases)
    x = torch.randn(31, 2, 2, dtype=torch.float64)
    whole, h_n = rnn(x)
    parts, h, t = [], None, 0
    for part in x.split([1, 1, 13, 16]):
        output, h = rnn(part, h, t0=t)
        parts.append(output)
        t += len(part)
    close(torch.cat(parts), whole)
    close(h, h_n)


def test_unbatched_and_batch_first_inputs_give_the_same(close):
    rnn = make()
    x = torch.randn(9, 3, 2, dtype=torch.float64)
    hx = torch.randn(1, 3, 6, dtype=torch.float64)
    expected, final = rnn(x, hx)
    output, h_n = rnn(x[:, 1], hx[:, 1])
    close(output, expected[:, 1])
    close(h_n, final[:, 1])
    rnn.batch_first = True
    output, h_n = rnn(x.transpose(0, 1), hx)
    close(output, expected.transpose(0, 1))
    close(h_n, final)


def test_replicas_are_independent(close):
    layers = [make() for _ in range(3)]
    x, h0 = torch.randn(12, 3, 2, 2, dtype=torch.float64), torch.randn(3, 2, 6, dtype=torch.float64)
    names = ("weight_ih_l0", "weight_hh_l0", "bias_l0")
    weights = [torch.stack([getattr(layer, name) for layer in layers]) for name in names]
    probabilities = torch.stack([layer.probabilities() for layer in layers])
    actual = soft_clockwork(x, *weights, h0, probabilities, layers[0].candidates, layers[0].sizes, t0=5)
    for i, layer in enumerate(layers):
        close(actual[:, i], layer(x[:, i], h0[None, i], t0=5)[0])


def test_sharpen_sets_the_sharpness_and_checks_its_arguments():
    rnn = make()
    rnn.sharpen(0.2, soft=0.4, last=100.0)
    assert rnn.sharpness.item() == pytest.approx(10.0)
    rnn.sharpen(0.4, soft=0.4)
    assert rnn.sharpness.item() == math.inf
    assert torch.equal(rnn.probabilities().sum(1), torch.ones(3, dtype=torch.float64))
    assert set(rnn.probabilities().unique().tolist()) == {0.0, 1.0}
    rnn.sharpen(0.0, soft=0.0)
    assert rnn.sharpness.item() == math.inf
    for progress in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="progress must lie between 0 and 1"):
            rnn.sharpen(progress)
    with pytest.raises(ValueError, match="soft must lie between 0 and 1"):
        rnn.sharpen(0.5, soft=2)
    for last in (0.5, math.inf, math.nan):
        with pytest.raises(ValueError, match="last must be a number of at least 1"):
            rnn.sharpen(0.5, last=last)


def test_state_dict_holds_clocks_and_sharpness():
    rnn, other = set_clocks(make(), [3, 1, 6], sharpness=7.0), make()
    other.load_state_dict(rnn.state_dict())
    x = torch.randn(9, 2, 2, dtype=torch.float64)
    assert torch.equal(other(x)[0], rnn(x)[0])
    assert other.sharpness.item() == 7.0
    assert other.periods == (3, 1, 6)
    # the candidates are saved with the clocks
    elsewhere = make(candidates=[2, 4, 6, 8, 10, 12])
    elsewhere.load_state_dict(rnn.state_dict())
    assert elsewhere.periods == (3, 1, 6)
    with pytest.raises(RuntimeError, match="size mismatch for clocks"):
        make(candidates=7).load_state_dict(rnn.state_dict())
    other.reset_parameters()
    assert other.sharpness.item() == 1.0


def test_the_same_seed_gives_the_same_layer():
    outputs = []
    for _ in range(2):
        torch.manual_seed(3)
        rnn = make()
        output = rnn(torch.ones(20, 1, 2, dtype=torch.float64))[0]
        output.square().sum().backward()
        outputs.append((output, rnn.clocks.grad, rnn.harden()[1].moved))
    (first, gradient, moved), (second, again, moved_again) = outputs
    assert torch.equal(first, second)
    assert torch.equal(gradient, again)
    assert moved == moved_again


def test_autocast_keeps_the_precision_of_the_weights():
    rnn = LearnedClockworkRNN(2, 6, modules=3)
    x = torch.randn(20, 2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = rnn(x)
    assert torch.equal(output, rnn(x)[0])


def test_print_shows_the_options():
    text = repr(LearnedClockworkRNN(3, 8, modules=[5, 3], candidates=[1, 5, 9], learn_phases=True))
    assert "3, 8, modules=[5, 3], candidates=3 periods up to 9, learn_phases=True, sharpness=1" in text


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"modules": 9}, ValueError, "9 modules need at least 9 units, got hidden_size=8"),
        ({"modules": 0}, ValueError, "number of modules must be a positive integer"),
        ({"modules": [4, 3]}, ValueError, "the modules have 7 units, but hidden_size=8"),
        ({"modules": [8, 0]}, ValueError, "sizes must be positive integers"),
        ({"candidates": 0}, ValueError, "candidates must be periods, or the longest of them, got 0"),
        ({"candidates": []}, ValueError, "no periods"),
        ({"candidates": [1, -2]}, ValueError, "periods must be positive integers, got -2"),
        ({"candidates": 2.5}, TypeError, "candidates must be an integer or a sequence of integers, got 2.5"),
        ({"candidates": "12"}, TypeError, "candidates must be an integer or a sequence of integers"),
        ({"learn_phases": 1}, TypeError, "learn_phases should be of type bool"),
        ({"draw_clocks": 1}, TypeError, "draw_clocks should be of type bool"),
        ({"nonlinearity": "sine"}, ValueError, "Unknown nonlinearity"),
    ],
)
def test_bad_arguments_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        LearnedClockworkRNN(3, 8, **options)


def test_bad_inputs_are_refused():
    rnn = LearnedClockworkRNN(3, 8)
    x = torch.randn(5, 2, 3)
    with pytest.raises(RuntimeError, match="Expected 3, got 4"):
        rnn(torch.randn(5, 2, 4))
    with pytest.raises(ValueError, match="does not match weight dtype"):
        rnn(x.double())
    with pytest.raises(RuntimeError, match="Expected hidden size"):
        rnn(x, torch.zeros(1, 3, 8))
    with pytest.raises(ValueError, match="t0 must be zero or greater"):
        rnn(x, t0=-1)
    with pytest.raises(TypeError, match="harden the layer first"):
        rnn(torch.nn.utils.rnn.pack_sequence([x[:, 0]]))


def test_momentum_does_not_change_hard_clocks():
    rnn = LearnedClockworkRNN(0, 4, modules=2, candidates=4)
    with torch.no_grad():
        rnn.clocks.copy_(torch.tensor([[0.0, 0.03, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]))
    optimiser = torch.optim.Adam([rnn.clocks], lr=0.01, betas=(0.9, 0.99))
    rnn.clocks.grad = torch.tensor([[-1.0, 1.0, 0.0, 0.0]] * 2)
    optimiser.step()
    rnn.sharpen(1.0)
    periods = rnn.periods
    for _ in range(30):
        rnn.clocks.grad = torch.zeros_like(rnn.clocks)
        optimiser.step()
    assert rnn.periods == periods
    certain = rnn.clocks.detach().topk(2).values
    assert (certain[:, 0] > certain[:, 1]).all()


def test_replicas_settle_as_single_networks_do():
    clocks = torch.randn(3, 2, 5)
    chosen = clocks.argmax(-1)
    chosen[1, 0] = (chosen[1, 0] + 1) % 5
    settled = settle_clocks(clocks, chosen)
    for replica in range(3):
        assert torch.equal(settled[replica], settle_clocks(clocks[replica], chosen[replica]))
    assert torch.equal(settled.argmax(-1), chosen)
    largest = settled.topk(2).values
    assert (largest[..., 0] - largest[..., 1] >= 1 - 1e-6).all()
