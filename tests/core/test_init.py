"""Orthogonal initial values: the weights of every module to itself, and nothing else."""

import copy

import pytest
import torch
from torch import nn

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN, Schedule, init

SCHEDULE = Schedule((1, 2, 6), (5, 1, 4))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def own_blocks(layer):
    """The names of all recurrent weights of a layer, with the rows of each module."""
    slices = layer.schedule.slices if isinstance(layer, ClockworkRNN) else (slice(0, layer.hidden_size),)
    return [(name, rows) for name, _ in layer.named_parameters() if name.startswith("weight_hh") for rows in slices]


def check_orthogonal(layer, before, gain=1.0):
    """Check that each module's own block is orthogonal times `gain`, and that all other numbers have their old bits."""
    expected = {name: value.clone() for name, value in before.items()}
    for name, rows in own_blocks(layer):
        own = layer.get_parameter(name)[rows, rows].detach()
        assert not torch.equal(own, before[name][rows, rows])
        torch.testing.assert_close(own @ own.T, gain**2 * torch.eye(len(own)), rtol=0, atol=1e-5 * gain**2)
        expected[name][rows, rows] = own
    for name, value in layer.state_dict().items():
        assert torch.equal(value, expected[name]), name


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2}, {"num_layers": 2, "bidirectional": True}])
def test_every_module_is_orthogonal_to_itself_and_all_else_stays(nonlinearity, options):
    rnn = ClockworkRNN(3, 10, schedule=SCHEDULE, nonlinearity=nonlinearity, **options)
    before = copy.deepcopy(rnn.state_dict())
    assert init.orthogonal_(rnn, generator=seeded()) is rnn
    layers = options.get("num_layers", 1) * (2 if "bidirectional" in options else 1)
    assert len(own_blocks(rnn)) == 3 * layers
    check_orthogonal(rnn, before)
    # no module hears a faster one
    assert (rnn.weight_hh_l0[5:, :5] == 0).all()


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "nonlinearity": "relu"}])
def test_a_simple_layer_of_torch_is_one_module(options):
    class Own(nn.RNN):
        pass

    for make in (nn.RNN, Own):
        rnn = make(3, 6, **options)
        before = copy.deepcopy(rnn.state_dict())
        init.orthogonal_(rnn)
        check_orthogonal(rnn, before)


@pytest.mark.parametrize("make", [ClockworkLSTM, ClockworkGRU, nn.LSTM, nn.GRU, nn.Linear])
def test_other_layers_stay_as_they_are(make):
    layer = make(3, 6)
    before = copy.deepcopy(layer.state_dict())
    init.orthogonal_(layer)
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())


def test_layers_inside_a_model_are_found():
    model = nn.Sequential(nn.Linear(2, 3), ClockworkRNN(3, 10, schedule=SCHEDULE), nn.GRU(10, 4))
    before = [copy.deepcopy(part.state_dict()) for part in model]
    init.orthogonal_(model)
    check_orthogonal(model[1], before[1])
    for place in (0, 2):
        assert all(torch.equal(value, before[place][name]) for name, value in model[place].state_dict().items())


def test_the_gain_is_a_factor():
    first, second = ClockworkRNN(3, 10, schedule=SCHEDULE), ClockworkRNN(3, 10, schedule=SCHEDULE)
    before = copy.deepcopy(second.state_dict())
    init.orthogonal_(first, generator=seeded())
    init.orthogonal_(second, gain=0.5, generator=seeded())
    check_orthogonal(second, before, gain=0.5)
    for rows in SCHEDULE.slices:
        torch.testing.assert_close(second.weight_hh_l0[rows, rows], 0.5 * first.weight_hh_l0[rows, rows])


def test_the_generator_decides_every_bit():
    def draw(generator):
        return init.orthogonal_(ClockworkRNN(3, 10, schedule=SCHEDULE), generator=generator).weight_hh_l0[:5, :5]

    before = torch.random.get_rng_state()
    first = draw(seeded(4))
    torch.manual_seed(12)
    assert torch.equal(draw(seeded(4)), first)
    assert not torch.equal(draw(seeded(5)), first)
    torch.random.set_rng_state(before)
    one = draw(None)
    torch.random.set_rng_state(before)
    assert torch.equal(draw(None), one)


def test_matrices_are_uniform_over_all_orthogonal_ones():
    """QR alone prefers some matrices: with positive diagonals of R, both determinants and signs are as frequent."""
    drawn = torch.stack(
        [init.orthogonal_(nn.RNN(1, 2), generator=seeded(seed)).weight_hh_l0.detach() for seed in range(300)]
    )
    assert abs((torch.linalg.det(drawn) > 0).double().mean() - 0.5) < 0.1
    assert abs((drawn[:, 0, 0] > 0).double().mean() - 0.5) < 0.1
    assert abs((drawn[:, 1, 1] > 0).double().mean() - 0.5) < 0.1


def test_float64_is_drawn_in_float64():
    rnn = init.orthogonal_(ClockworkRNN(1, 8, schedule=1, dtype=torch.float64))
    own = rnn.weight_hh_l0.detach()
    torch.testing.assert_close(own @ own.T, torch.eye(8, dtype=torch.float64), rtol=0, atol=1e-13)
