"""The statements of the paper as tests; docs/paper.md lists which test holds which statement."""

import pytest
import torch
from support.network_cases import USABLE

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN, Schedule, clockwork_reference, init

TASK_1 = {"input_size": 0, "output_size": 1}
TASK_2 = {"input_size": 13, "output_size": 25}


@pytest.mark.parametrize(
    ("modules", "task", "counts"),
    [
        (9, TASK_1, {11: 100, 19: 249, 27: 469, 40: 980}),
        (7, TASK_2, {10: 480, 19: 980, 40: 2507, 65: 4982, 102: 9956}),
    ],
    ids=["table 1", "table 2"],
)
def test_parameter_counts_of_the_tables(modules, task, counts):
    for hidden_size, count in counts.items():
        schedule = Schedule.exponential(hidden_size, modules)
        assert schedule.parameter_count(**task) == count
        # the same number by counting the weights of a layer and its readout
        rnn = ClockworkRNN(task["input_size"], hidden_size, schedule=modules)
        weights = rnn.weight_ih_l0.numel() + rnn.bias_l0.numel() + int(schedule.mask().sum())
        readout = torch.nn.Linear(hidden_size, task["output_size"])
        assert weights + sum(p.numel() for p in readout.parameters()) + modules == count


@pytest.mark.parametrize(
    ("task", "counts"),
    [
        (TASK_1, {9: 100, 15: 256, 22: 529, 31: 1024}),
        (TASK_2, {10: 515, 18: 1051, 34: 2507, 54: 5047, 84: 10357}),
    ],
    ids=["table 1", "table 2"],
)
def test_an_srn_is_one_module(task, counts):
    for hidden_size, count in counts.items():
        assert Schedule.exponential(hidden_size, 1).parameter_count(**task, count_periods=False) == count


APPENDIX = [(g, k, m) for g in (2, 3, 5, 9, 16) for k in (1, 4, 13, 100) for m in (0, 1, 13, 200)]


@pytest.mark.parametrize(("g", "k", "m"), APPENDIX)
def test_the_counts_and_bounds_of_the_appendix_hold(g, k, m):
    n = g * k
    schedule = Schedule.exponential(n, g)
    # N_H = n^2 / 2 + n k / 2, and its share of an SRN's
    assert schedule.recurrent_parameter_count() == (n * n + n * k) / 2
    assert schedule.recurrent_parameter_count() / n**2 == pytest.approx((g + 1) / (2 * g))
    # O_H = k^2 sum (g - i) / T_i <= 2 n k <= n^2
    O_H = schedule.operations().paper
    assert pytest.approx(k * k * sum((g - i) / 2**i for i in range(g))) == O_H
    assert O_H <= 2 * n * k <= n**2
    # the paper's tighter bound, k^2 (2 g - 2), is missed by exactly k^2 / 2^(g - 1)
    assert pytest.approx(k * k * (2 * g - 2 + 2 ** (1 - g))) == O_H
    # recurrent operations are fewer by a factor of at least g / 2
    assert n * n / O_H >= g / 2
    # O_I <= 2 k m
    O_I = schedule.operations(m).paper - O_H
    assert 2 * k * m + 1e-9 >= O_I
    # the whole speed-up is at least g / 4
    assert (n * n + n * m + n) / (O_H + O_I + 2 * n) >= g / 4


@pytest.mark.parametrize(("g", "k"), [(g, k) for g in (1, 2, 3, 8, 16) for k in (1, 7, 128)])
def test_the_cascade_costs_at_most_four_blocks(g, k):
    operations = Schedule.exponential(g * k, g).operations()
    assert operations.cascade == pytest.approx(k * k * sum((j + 1) / 2**j for j in range(g)))
    assert operations.cascade < 4 * k * k
    assert operations.cascade <= operations.paper <= operations.dense
    # the speed-up over an SRN is g^2 / 4, not g / 4
    assert operations.dense / operations.cascade > g * g / 4


@pytest.fixture(params=USABLE)
def backend(request):
    return request.param


@pytest.fixture
def rnn(backend):
    return ClockworkRNN(3, 10, schedule=5, dtype=torch.float64, backend=backend)


@pytest.fixture(params=[ClockworkRNN, ClockworkLSTM, ClockworkGRU])
def any_layer(request, backend):
    return request.param(3, 10, schedule=5, dtype=torch.float64, backend=backend)


def test_at_time_6_the_modules_of_figure_2_change(rnn):
    """At t = 6 exactly the modules of periods 1 and 2 change, and at t = 0 all modules change."""
    output, _ = rnn(torch.randn(7, 1, 3, dtype=torch.float64), torch.randn(1, 1, 10, dtype=torch.float64))
    changed = (output[6, 0] != output[5, 0]).tolist()
    assert changed == [True] * 4 + [False] * 6
    h = torch.randn(1, 1, 10, dtype=torch.float64)
    _, state = rnn.step(torch.randn(1, 3, dtype=torch.float64), (h, 6))
    assert (state.h != h).flatten().tolist() == changed
    _, state = rnn.step(torch.randn(1, 3, dtype=torch.float64), (h, 0))
    assert (state.h != h).all()


def test_a_held_state_is_equal_to_the_bit(any_layer):
    rnn = any_layer
    output, _ = rnn(torch.randn(40, 2, 3, dtype=torch.float64), t0=5)
    for i, period in enumerate(rnn.schedule.periods):
        module = output[..., rnn.schedule.slices[i]]
        for step in range(1, 40):
            same = torch.equal(module[step], module[step - 1])
            assert same == ((5 + step) % period != 0)


def test_slow_modules_never_read_fast_ones(any_layer):
    """The derivative of a slow module's state by a fast one's is exactly zero; the reverse derivative is not."""
    rnn, x = any_layer, torch.randn(40, 1, 3, dtype=torch.float64)

    def run(h):
        return rnn(x, (h[None], torch.zeros_like(h[None])) if rnn.cell == "lstm" else h[None])[0]

    jacobian = torch.func.jacrev(run)(torch.randn(1, 10, dtype=torch.float64))
    jacobian = jacobian.squeeze(1).squeeze(-2)  # (T, N, N): output unit by initial unit
    forbidden = torch.from_numpy(~rnn.schedule.mask())
    assert (jacobian[:, forbidden] == 0).all()
    assert (jacobian.abs().amax(dim=0)[~forbidden] > 0).all()


@pytest.mark.parametrize("optimiser", [torch.optim.Adam, torch.optim.AdamW])
def test_forbidden_blocks_stay_zero(any_layer, optimiser):
    rnn = any_layer
    forbidden = torch.from_numpy(~rnn.schedule.mask()).repeat(len(rnn.weight_hh_l0) // 10, 1)
    before = rnn.weight_hh_l0.detach().clone()
    optimiser = optimiser(rnn.parameters(), lr=0.1, weight_decay=0.3)
    for _ in range(5):
        optimiser.zero_grad()
        output, _ = rnn(torch.randn(35, 4, 3, dtype=torch.float64))
        output.square().sum().backward()
        optimiser.step()
    assert (rnn.weight_hh_l0[forbidden] == 0).all()
    assert (rnn.weight_hh_l0 != before)[~forbidden].all()


def test_error_is_copied_back_in_time_while_a_module_holds():
    """Section 3: the error of a held module goes back in time unchanged, and the errors of the steps add up."""
    schedule = Schedule((4,), (1,))
    h0 = torch.tensor([[0.3]], dtype=torch.float64, requires_grad=True)
    weights = [torch.empty(1, 0, dtype=torch.float64), torch.tensor([[0.7]], dtype=torch.float64), None]
    # from t0 = 1 the module holds for three steps: three errors of 1 arrive at h0 as 3
    output = clockwork_reference(torch.empty(3, 1, 0, dtype=torch.float64), *weights, h0, schedule, t0=1)
    (gradient,) = torch.autograd.grad(output.sum(), h0)
    assert gradient.item() == 3


def test_equation_1_equals_a_step_worked_out_by_hand(close):
    """One step of an SRN and of a Clockwork RNN of two units each."""
    x, h0 = torch.tensor([[[0.5]]], dtype=torch.float64), torch.tensor([[0.1, -0.2]], dtype=torch.float64)
    weight_ih = torch.tensor([[2.0], [3.0]], dtype=torch.float64)
    weight_hh = torch.tensor([[0.4, 0.5], [9.0, 0.6]], dtype=torch.float64)
    bias = torch.tensor([0.01, 0.02], dtype=torch.float64)
    fast = 2.0 * 0.5 + 0.01 + 0.4 * 0.1 + 0.5 * -0.2
    slow = 3.0 * 0.5 + 0.02 + 0.6 * -0.2
    schedule = Schedule((1, 2), (1, 1))
    output = clockwork_reference(x, weight_ih, weight_hh, bias, h0, schedule, t0=4)
    close(output, torch.tensor([[[fast, slow]]], dtype=torch.float64).tanh())
    output = clockwork_reference(x, weight_ih, weight_hh, bias, h0, schedule, t0=5)
    close(output[0, 0, 0], torch.tensor(fast, dtype=torch.float64).tanh())
    assert output[0, 0, 1] == h0[0, 1]
    dense = slow + 9.0 * 0.1
    output = clockwork_reference(x, weight_ih, weight_hh, bias, h0, Schedule((1,), (2,)), t0=5)
    close(output, torch.tensor([[[fast, dense]]], dtype=torch.float64).tanh())


def test_a_lowest_period_above_one_is_a_low_pass_filter():
    """Section 5: a network whose lowest period is 3 changes its output at every third step only."""
    rnn = ClockworkRNN(1, 6, schedule=[3, 6], dtype=torch.float64)
    output, _ = rnn(torch.randn(31, 1, 1, dtype=torch.float64))
    changes = [t for t in range(1, 31) if not torch.equal(output[t], output[t - 1])]
    assert changes == list(range(3, 31, 3))


@pytest.mark.parametrize("layer", [ClockworkRNN, ClockworkLSTM, ClockworkGRU])
def test_initial_values_are_those_of_the_paper(layer):
    rnn = init.paper_(layer(40, 400, schedule=8), generator=torch.Generator().manual_seed(2))
    allowed = torch.from_numpy(rnn.schedule.mask()).repeat(len(rnn.weight_hh_l0) // 400, 1)
    for value in (rnn.weight_ih_l0, rnn.weight_hh_l0[allowed], rnn.bias_l0):
        assert abs(value.mean().item()) < 0.01
        assert value.std().item() == pytest.approx(0.1, rel=0.1)
    assert (rnn.weight_hh_l0[~allowed] == 0).all()
    again = init.paper_(layer(40, 400, schedule=8), generator=torch.Generator().manual_seed(2))
    assert torch.equal(again.weight_hh_l0, rnn.weight_hh_l0)


@pytest.mark.parametrize(("layer", "gates"), [(ClockworkLSTM, "ifgo"), (ClockworkGRU, "rznd")])
def test_a_forget_bias_makes_gated_cells_hold_their_state(layer, gates):
    rnn = layer(2, 6, 2, bidirectional=True, schedule=2)
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.zero_()
    assert init.forget_bias_(rnn, 30.0) is rnn
    assert rnn.bias_l1_reverse.view(4, 6).sum(-1).tolist() == [180.0 if gate in "fz" else 0.0 for gate in gates]
    state = torch.randn(4, 3, 6)
    hidden = (torch.zeros_like(state), state) if layer is ClockworkLSTM else state
    _, after = rnn(torch.randn(9, 3, 2), hidden)
    torch.testing.assert_close(after[1] if layer is ClockworkLSTM else after, state)
    plain = ClockworkRNN(2, 6)
    before = plain.bias_l0.clone()
    assert torch.equal(init.forget_bias_(plain).bias_l0, before)
