"""The networks of the paper's experiments have its sizes, initial weights and outputs."""

import pytest
import torch
from torch import nn

from cwrnn.experiments import paper
from cwrnn.experiments.networks.build import build_network, hidden_for, parameter_count
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
COUNTS = [
    pytest.param(method, hidden_size, *rest, count, id=f"{method}-{hidden_size}-{count}")
    for table, rest in ((TASK_1, (0, 1, 9)), (TASK_2, (13, 25, 7)))
    for method, sizes in table.items()
    for hidden_size, count in sizes.items()
]


@pytest.mark.parametrize(("method", "hidden_size", "input_size", "output_size", "modules", "count"), COUNTS)
def test_parameter_counts_of_the_paper(method, hidden_size, input_size, output_size, modules, count):
    sizes = (method, hidden_size, input_size, output_size)
    assert parameter_count(*sizes, modules=modules, peepholes=False) == count

    network = build_network(*sizes, modules=modules, peepholes=False)
    built = sum(parameter.numel() for parameter in network.parameters())
    if method == "cw":
        # the weights are stored dense; the paper counts the periods, but no forbidden weights
        built += modules - int((~network.layer.schedule.mask()).sum())
    assert built == count


def test_there_are_27_counts():
    assert len(COUNTS) == 27


def test_peepholes_are_three_per_cell():
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


def test_the_forget_bias_of_an_lstm_is_5():
    bias = build_network("lstm", 4).layer.bias
    assert (bias[4:8] == 5).all()
    assert bias[:4].abs().max() < 1
    assert bias[8:].abs().max() < 1
    assert (build_network("lstm", 4, forget_bias=-2.0).layer.bias[4:8] == -2).all()


def test_an_unknown_method_is_refused():
    for function in (build_network, parameter_count):
        with pytest.raises(ValueError, match="method must be one of srn, lstm, cw, got 'gru'"):
            function("gru", 4)


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
    for method in METHODS:
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
    smallest = count(shape.get("modules", 9) if method == "cw" else 1)
    assert count(hidden_for(method, smallest, **shape)) == smallest
    modules = shape.get("modules", 9)
    network = {"srn": "an SRN", "lstm": "an LSTM with peepholes", "cw": f"a CW-RNN of {modules} modules"}[method]
    with pytest.raises(ValueError, match=f"size must be at least {smallest} parameters for {network}, got"):
        hidden_for(method, smallest - 1, **shape)


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
