"""The networks of the paper's experiments have its sizes, initial weights and outputs."""

import pytest
import torch
from torch import nn

from cwrnn.experiments import paper
from cwrnn.experiments.networks.build import build_network, hidden_for, load_weights, parameter_count
from cwrnn.experiments.networks.methods import METHODS
from cwrnn.experiments.networks.replicas import Replicas

# tables 1 and 2 of the paper: hidden sizes, and the parameters that they make
TASK_1 = {
    "srn": {9: 100, 15: 256, 22: 529, 31: 1024},
    "cw": {11: 100, 19: 249, 27: 469, 40: 980},
    "lstm": {4: 85, 7: 232, 10: 451, 15: 976},
}
TASK_2 = {
    "srn": {10: 515, 18: 1051, 34: 2507, 54: 5047, 84: 10357},
    "cw": {10: 480, 19: 980, 40: 2507, 65: 4982, 102: 9956},
    "lstm": {5: 530, 8: 929, 17: 2558, 26: 4835, 41: 10070},
}
# the methods that the paper does not have, counted by hand:
# gates (N I + recurrent weights) + biases + peepholes + readout + periods, with one unit in each module or more
OWN_TASK_1 = {
    "gru": {5: 3 * 25 + 4 * 5 + 6, 17: 3 * 289 + 4 * 17 + 18},
    "cw-lstm": {9: 4 * 45 + 4 * 9 + 10 + 9, 19: 4 * 201 + 4 * 19 + 20 + 9},
    "cw-gru": {9: 3 * 45 + 4 * 9 + 10 + 9, 23: 3 * 295 + 4 * 23 + 24 + 9},
}
OWN_TASK_2 = {
    "gru": {47: 3 * (47 * 13 + 47 * 47) + 4 * 47 + 25 * 48},
    "cw-lstm": {8: 4 * (8 * 13 + 37) + 4 * 8 + 25 * 9 + 7},
    "cw-gru": {59: 3 * (59 * 13 + 1990) + 4 * 59 + 25 * 60 + 7},
}
COUNTS = [
    pytest.param(method, hidden_size, *rest, count, id=f"{method}-{hidden_size}-{count}")
    for table, rest in ((TASK_1 | OWN_TASK_1, (0, 1, 9)), (TASK_2 | OWN_TASK_2, (13, 25, 7)))
    for method, sizes in table.items()
    for hidden_size, count in sizes.items()
]


@pytest.mark.parametrize(("method", "hidden_size", "input_size", "output_size", "modules", "count"), COUNTS)
def test_parameter_counts_are_exact(method, hidden_size, input_size, output_size, modules, count):
    sizes = (method, hidden_size, input_size, output_size)
    assert parameter_count(*sizes, modules=modules, peepholes=False) == count

    network = build_network(*sizes, modules=modules, peepholes=False)
    built = sum(parameter.numel() for parameter in network.parameters())
    if METHODS[method].has_clocks:
        # the weights are stored dense; the paper counts the periods, but no forbidden weights
        gates = len(network.layer.weight_hh_l0) // hidden_size
        built += modules - gates * int((~network.layer.schedule.mask()).sum())
        assert count == network.layer.count_parameters() + output_size * (hidden_size + 1) + modules
    assert built == count


def test_there_are_27_counts_of_the_paper():
    assert len(COUNTS) == 27 + 9


def test_peepholes_are_three_per_cell():
    assert parameter_count("cw-lstm", 19) == parameter_count("cw-lstm", 19, peepholes=False) + 3 * 19
    assert parameter_count("lstm", 15) == 1021
    assert sum(parameter.numel() for parameter in build_network("lstm", 15).parameters()) == 1021


@pytest.mark.parametrize("method", METHODS)
def test_initial_weights_are_the_papers(method):
    network = build_network(method, 60, seed=3)
    values = torch.cat(
        [value[value != 0].flatten() for name, value in network.named_parameters() if "bias" not in name]
    )
    assert abs(values.mean().item()) < 0.01
    assert abs(values.std().item() - 0.1) < 0.005
    same, other = (dict(build_network(method, 60, seed=seed).named_parameters()) for seed in (3, 4))
    for name, value in network.named_parameters():
        assert torch.equal(value, same[name])
        assert value.numel() == 0 or not torch.equal(value, other[name])


@pytest.mark.parametrize("method", ["lstm", "cw-lstm"])
def test_the_forget_bias_of_an_lstm_is_5(method):
    bias = build_network(method, 4, modules=2).layer.bias_l0
    assert (bias[4:8] == 5).all()
    assert bias[:4].abs().max() < 1
    assert bias[8:].abs().max() < 1
    assert (build_network(method, 4, modules=2, forget_bias=-2.0).layer.bias_l0[4:8] == -2).all()


def test_an_lstm_has_the_initial_weights_of_every_version():
    """The peepholes are drawn before the biases, as when the LSTM had a layer of its own."""
    network, generator = build_network("lstm", 3, 2, 4, seed=8), torch.Generator().manual_seed(8)
    shapes = {"weight_ih_l0": (12, 2), "weight_hh_l0": (12, 3), "weight_ch_l0": (3, 3), "bias_l0": (12,)}
    for name, shape in shapes.items():
        drawn = torch.empty(shape).normal_(0.0, 0.1, generator=generator)
        own = getattr(network.layer, name).detach()
        kept = slice(None) if name != "bias_l0" else [*range(3), *range(6, 12)]
        assert torch.equal(own[kept], drawn.flatten()[kept] if drawn.numel() == own.numel() == 9 else drawn[kept])


def test_weights_of_earlier_versions_are_loaded():
    network = build_network("lstm", 3, 2, 4, seed=1)
    names = {"layer.weight_ih_l0": "layer.weight_ih", "layer.weight_hh_l0": "layer.weight_hh",
             "layer.weight_ch_l0": "layer.weight_ch", "layer.bias_l0": "layer.bias"}  # fmt: skip
    weights = {names.get(name, name): value.detach().numpy() for name, value in network.named_parameters()}
    weights["layer.weight_ch"] = weights["layer.weight_ch"].reshape(3, 3)
    loaded = load_weights(build_network("lstm", 3, 2, 4), weights)
    for name, value in network.named_parameters():
        assert torch.equal(loaded.get_parameter(name), value)


def test_an_unknown_method_is_refused():
    for function in (build_network, parameter_count):
        with pytest.raises(ValueError, match="method must be one of srn, lstm, cw, gru, .*, mingru, got 'rnn'"):
            function("rnn", 4)


@pytest.mark.parametrize(("method", "torchs"), [("lstm", nn.LSTM), ("gru", nn.GRU)])
def test_gated_methods_without_clocks_are_torchs_layers(method, torchs, close):
    network = build_network(method, 6, 3, 2, peepholes=False, seed=1).double()
    layer = {"lstm": "to_lstm", "gru": "to_gru"}[method]
    other = getattr(network.layer, layer)()
    assert isinstance(other, torchs)
    x = torch.randn(20, 4, 3, dtype=torch.float64)
    close(network(x), network.readout(other(x)[0]))


def test_srn_is_an_elman_network(close):
    network = build_network("srn", 6, 3, 2, seed=1).double()
    elman = nn.RNN(3, 6).double()
    with torch.no_grad():
        elman.weight_ih_l0.copy_(network.layer.weight_ih_l0)
        elman.weight_hh_l0.copy_(network.layer.weight_hh_l0)
        elman.bias_ih_l0.copy_(network.layer.bias_l0)
        elman.bias_hh_l0.zero_()
    x = torch.randn(20, 4, 3, dtype=torch.float64)
    close(network(x), network.readout(elman(x)[0]))


def test_hidden_units_are_those_of_table_1():
    for method in paper.METHODS:
        assert tuple(paper.GENERATION_HIDDEN_UNITS[method]) == paper.GENERATION_SIZES
        assert [hidden_for(method, size) for size in paper.GENERATION_SIZES] == list(TASK_1[method])
        # the table's LSTM has this size with and without peepholes
        assert [hidden_for(method, size, peepholes=False) for size in paper.GENERATION_SIZES] == list(TASK_1[method])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [{}, {"input_size": 13, "output_size": 25, "modules": 7}], ids=["task 1", "task 2"])
def test_a_budget_is_filled_and_not_exceeded(method, shape):
    def count(hidden):
        return parameter_count(method, hidden, **shape)

    for size in (*range(997, 1000), 1001, 2000, 12345):
        hidden = hidden_for(method, size, **shape)
        assert count(hidden) <= size < count(hidden + 1)
    modules = shape.get("modules", 9)
    smallest = count(modules if METHODS[method].has_clocks else 1)
    assert count(hidden_for(method, smallest, **shape)) == smallest
    network = {
        "srn": "an SRN",
        "lstm": "an LSTM with peepholes",
        "cw": f"a CW-RNN of {modules} modules",
        "gru": "a GRU",
        "cw-lstm": f"a CW-LSTM of {modules} modules with peepholes",
        "cw-gru": f"a CW-GRU of {modules} modules",
    }[method]
    with pytest.raises(ValueError, match=f"size must be at least {smallest} parameters for {network}, got"):
        hidden_for(method, smallest - 1, **shape)


@pytest.mark.parametrize("method", [method for method in METHODS if method not in paper.METHODS])
@pytest.mark.parametrize(
    ("sizes", "shape"),
    [(paper.GENERATION_SIZES[2:], {}), (paper.WORDS_SIZES[1:], {"input_size": 13, "output_size": 25, "modules": 7})],
    ids=["task 1", "task 2"],
)
def test_other_methods_come_closest_to_the_sizes_of_the_paper(method, sizes, shape):
    for size in sizes:
        hidden = hidden_for(method, size, **shape)
        below, found, above = (parameter_count(method, units, **shape) for units in (hidden - 1, hidden, hidden + 1))
        assert abs(found - size) <= min(size - below, above - size)


def test_hidden_units_depend_on_inputs_modules_and_peepholes():
    # the table's Clockwork RNNs have nine modules
    assert hidden_for("cw", 1000, modules=4) == 38
    assert hidden_for("lstm", 1001, peepholes=False) == 15
    assert hidden_for("lstm", 1001) == 14


def test_the_deviation_of_the_initial_weights_is_an_argument():
    weight = build_network("srn", 80, deviation=0.02).layer.weight_hh_l0
    assert abs(weight.std().item() - 0.02) < 0.001


@pytest.mark.parametrize("method", METHODS)
def test_a_softmax_readout_gives_log_probabilities(method):
    linear, softmax = (build_network(method, 12, 3, 5, seed=1, softmax=each) for each in (False, True))
    x = torch.randn(7, 2, 3)
    torch.testing.assert_close(softmax(x).exp().sum(-1), torch.ones(7, 2))
    torch.testing.assert_close(softmax(x), linear(x).log_softmax(-1))
    # many networks at once give what each gives alone
    replicas = Replicas([softmax, build_network(method, 12, 3, 5, seed=2, softmax=True)])
    torch.testing.assert_close(replicas.outputs(x.transpose(0, 1))[0], softmax(x)[:, 0])
