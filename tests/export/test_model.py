"""Models are read from files and from memory, with all their numbers."""

import numpy as np
import pytest
import torch
from torch import nn

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN
from cwrnn.export.model import ExportError, read_model
from cwrnn.network import Network
from cwrnn.saved import ModelError, SavedNetwork


def test_a_file_and_the_network_that_it_holds_give_the_same_model(tmp_path):
    network = Network(ClockworkLSTM(3, 12, schedule=[1, 2, 4], peepholes=True), output_size=2, softmax=True)
    SavedNetwork("generation", "cw-lstm", network).save(tmp_path / "net.safetensors")
    models = [
        read_model(source) for source in (network, str(tmp_path / "net.safetensors"), tmp_path / "net.safetensors")
    ]
    for model in models:
        assert (model.inputs, model.outputs, model.softmax, model.labels, model.features) == (3, 2, True, (), None)
        (layer,) = model.layers
        assert (layer.cell, layer.schedule.periods, layer.inputs, layer.units) == ("lstm", (1, 2, 4), 3, 12)
        parameters = {
            name.removesuffix("_l0"): value.detach().numpy() for name, value in network.layer.named_parameters()
        }
        assert set(parameters) == {"weight_ih", "weight_hh", "bias", "weight_ch"}
        for name, value in parameters.items():
            np.testing.assert_array_equal(getattr(layer, name), value)
        np.testing.assert_array_equal(model.readout_weight, network.readout.weight.detach().numpy())
        np.testing.assert_array_equal(model.readout_bias, network.readout.bias.detach().numpy())


def test_every_layer_is_read():
    layer = ClockworkGRU(3, 8, 2, schedule=[1, 3], bias=False, dtype=torch.float64)
    model = read_model(layer)
    assert [part.inputs for part in model.layers] == [3, 8]
    assert all(part.bias is None and part.weight_ch is None for part in model.layers)
    assert model.layers[1].weight_hh.dtype == np.float32
    assert model.outputs == 8
    assert model.readout_weight is None


def test_forbidden_weights_are_zero():
    layer = ClockworkRNN(1, 6, schedule=[1, 2])
    with torch.no_grad():
        layer.weight_hh_l0.fill_(1.0)
    weight = read_model(layer).layers[0].weight_hh
    np.testing.assert_array_equal(weight, layer.schedule.mask().astype(np.float32))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (ClockworkRNN(3, 8, bidirectional=True), "a bidirectional layer"),
        (Network(nn.GRU(3, 8), 2), "only networks of layers with clocks can be exported, got a GRU"),
        (nn.Linear(3, 2), "got a Linear"),
    ],
    ids=["bidirectional", "torch's layer", "linear"],
)
def test_other_models_are_refused(source, message):
    with pytest.raises(ExportError, match=message):
        read_model(source)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
@pytest.mark.parametrize("name", ["bias of layer 0", "weight_hh of layer 1", "weight of the readout"])
def test_numbers_that_are_not_finite_in_float32_are_refused(name, value):
    network = Network(ClockworkRNN(3, 8, 2, schedule=2), 2).double()
    tensors = {
        "bias of layer 0": network.layer.bias_l0,
        "weight_hh of layer 1": network.layer.weight_hh_l1,
        "weight of the readout": network.readout.weight,
    }
    with torch.no_grad():
        # of weight_hh, a weight from a fast module to a slow one, which the mask would set to zero
        tensors[name].view(-1)[-8] = value
    with pytest.raises(ExportError, match=f"the {name} has values that are not finite in float32"):
        read_model(network)


def test_a_layer_without_numbers_is_refused():
    with pytest.raises(ExportError, match="the weight_ih of layer 0 is on the device meta"):
        read_model(ClockworkRNN(3, 8, device="meta"))


def test_extra_tensors_are_not_dropped(tmp_path):
    network = Network(ClockworkRNN(3, 8), 2)
    saved = SavedNetwork("regression", "cw", network, {"input.mean": np.zeros(3), "input.deviation": np.ones(3)})
    with pytest.raises(ExportError, match="'regression' .* must have none, got 'input.mean', 'input.deviation'"):
        read_model(saved)
    saved.save(tmp_path / "net.safetensors")
    with pytest.raises(ExportError, match=r"got 'input\.deviation', 'input\.mean'"):
        read_model(tmp_path / "net.safetensors")
    assert read_model(saved.network).outputs == 2


def test_a_file_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "net.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"net\.safetensors"):
        read_model(tmp_path / "net.safetensors")
