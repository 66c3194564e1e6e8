"""A saved network of any kind is inspected on a table of the user."""

import re

import numpy as np
import pytest
import torch
from support.html_pages import Page

from cwrnn import ClockworkRNN
from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.generation import music
from cwrnn.experiments.generation.training import nmse
from cwrnn.experiments.inspect.inspected import InspectionError
from cwrnn.experiments.inspect.loading import load_network
from cwrnn.experiments.inspect.measuring import measure_network
from cwrnn.experiments.inspect.network import inspect_network
from cwrnn.experiments.tables import TableError
from cwrnn.network import Network
from cwrnn.saved import SavedNetwork

VALUES = np.random.default_rng(0).standard_normal((100, 4)).round(3)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a table of four columns and networks of two, one and no inputs."""
    monkeypatch.chdir(tmp_path)
    rows = "\n".join(",".join(map(str, row)) for row in VALUES)
    (tmp_path / "town.csv").write_text(f"a,b,load,flat\n{rows}\n")
    torch.manual_seed(0)
    for name, inputs, outputs in (("net", 2, 1), ("many", 4, 3), ("song", 0, 1)):
        network = Network(ClockworkRNN(inputs, 8, schedule=[1, 2, 4, 8]), outputs)
        SavedNetwork("town", "cw", network).save(tmp_path / f"{name}.safetensors")
    return tmp_path


def test_output_is_compared_with_the_target(folder):
    found = load_network(folder / "net.safetensors", data="town.csv", inputs=["b", "a"], target="load", length=30)
    assert len(found.inputs) == 3
    np.testing.assert_array_equal(found.inputs[1], VALUES[30:60, [1, 0]])
    network = SavedNetwork.load(folder / "net.safetensors").network
    with torch.no_grad():
        output = network(torch.from_numpy(np.stack(found.inputs, axis=1)).float())[..., 0].numpy()
    expected = nmse(output.T, VALUES[:90, 2].reshape(3, 30))
    assert measure_network(found).intact == {"nmse": pytest.approx(expected, rel=1e-5)}
    assert found.description == "CW-RNN of 8 units that predicts load"
    assert found.facts["looked at with"] == "3 sequences of 30 rows of town.csv"


def test_without_a_target_the_output_may_change(folder):
    result = inspect_network("many.safetensors", data="town.csv", out="page.html")
    assert result.inspection.intact == {"change": 0.0}
    assert all(module.silenced.mean["change"] > 0 for module in result.inspection.modules)
    page = Page((folder / "page.html").read_text(encoding="utf-8"))
    assert "The top panel shows the output of the network." in page.text
    assert "1 sequences" not in page.text
    assert result.network.inputs[0].shape == (100, 4)


def test_network_without_input_has_a_column_to_generate(folder):
    found = load_network(folder / "song.safetensors", data="town.csv", target="load", length=50)
    np.testing.assert_array_equal(found.display.dataset.samples, music.scale(VALUES[:50, 2]))
    assert found.description == "CW-RNN of 8 units that generates town load"
    assert list(measure_network(found).intact) == ["nmse"]


def test_arrays_are_tables_too(folder):
    np.save("town.npy", VALUES)
    found = load_network(folder / "net.safetensors", data="town.npy", inputs=["0", "3"], target="2")
    np.testing.assert_array_equal(found.inputs[0], VALUES[:, [0, 3]])


@pytest.mark.parametrize(
    ("model", "options", "error", "message"),
    [
        ("net", {}, InspectionError, "a network of the kind 'town' has no data of its own: name a table with data"),
        ("net", {"data": "bundle"}, InspectionError, "has no data of its own"),
        ("net", {"data": "town.csv"}, ArgumentError, "inputs: expected 2 columns, as many as the network has inputs"),
        ("net", {"data": "town.csv", "inputs": ["a", "c"]}, ArgumentError, "inputs: town.csv has no column 'c'"),
        ("net", {"data": "town.csv", "inputs": ["a", "b"], "target": "c"}, ArgumentError, "target: town.csv has no"),
        ("net", {"data": "town.csv", "inputs": ["a", "b"], "length": 101}, ArgumentError, "at most 100 rows"),
        ("net", {"data": "town.csv", "inputs": ["a", "b"], "length": 1}, ArgumentError, "length: expected at least 2"),
        ("net", {"data": "no.csv", "inputs": ["a", "b"]}, TableError, "no.csv: there is no such file"),
        ("net", {"data": "town.csv", "word": "yes"}, InspectionError, "word is for networks that tell words apart"),
        ("many", {"data": "town.csv", "inputs": ["a", "b", "load", "flat"], "target": "load"}, ArgumentError,
         "target: expected none for a network of 3 outputs"),
        ("song", {"data": "town.csv"}, ArgumentError, "target: town.csv has several columns"),
        ("song", {"data": "town.csv", "inputs": ["a"]}, InspectionError, "inputs is for networks with input"),
        ("song", {}, InspectionError, "has no data of its own"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(folder, model, options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        load_network(folder / f"{model}.safetensors", **options)


def test_constant_target_is_refused(folder):
    (folder / "flat.csv").write_text("a,b,y\n" + "1,2,3\n4,5,3\n" * 10)
    with pytest.raises(ArgumentError, match="target: flat.csv: the column 'y' is constant"):
        load_network(folder / "net.safetensors", data="flat.csv", inputs=["a", "b"], target="y")
