"""`cwrnn.inspect` makes the page for a model of a user."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from support.html_pages import Page
from torch import nn

import cwrnn
from cwrnn.experiments.inspect import measuring
from cwrnn.experiments.inspect.measuring import choose_remembered
from cwrnn.experiments.inspect.page import TITLES
from cwrnn.network import Network


class Model(nn.Module):
    def __init__(self, layer, width):
        super().__init__()
        self.before, self.layer, self.after = nn.Linear(3, layer.input_size), layer, nn.Linear(width, 2)

    def forward(self, x):
        return self.after(self.layer(self.before(x))[0])


def make_model(kind=cwrnn.ClockworkRNN, **options):
    return Model(kind(4, 12, schedule=[1, 2, 4], **options), 12)


@pytest.mark.parametrize("kind", [cwrnn.ClockworkRNN, cwrnn.ClockworkLSTM, cwrnn.ClockworkGRU])
def test_page_is_complete(kind, tmp_path):
    model, x = make_model(kind), torch.randn(30, 4, 3)
    result = cwrnn.inspect(model, x, tmp_path / "deep" / "page.html")
    page = Page((tmp_path / "deep" / "page.html").read_text(encoding="utf-8"))
    assert page.tags.count("svg") == len(TITLES)
    assert f"{kind.__name__} 'layer' of 12 units in Model" in page.text
    assert "The top panel shows the input of the layer" in page.text
    assert "4 sequences of 30 steps" in page.text
    assert "readout" not in page.text
    for sentence in result.sentences:
        assert sentence in page.text
    assert str(result).splitlines()[-1] == f"The page is {tmp_path / 'deep' / 'page.html'}"
    numbers = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert numbers["intact"] == {"change": 0.0}
    assert [module["period"] for module in numbers["modules"]] == [1, 2, 4]
    assert numbers["modules"][0]["output_weight"] is None


def test_sentences_say_how_much_the_output_changes():
    result = cwrnn.inspect(make_model(), torch.randn(30, 4, 3))
    assert result.page is None
    most = max(result.inspection.modules, key=lambda module: module.silenced.mean["change"])
    text = " ".join(result.sentences)
    assert f"the output changes by {100 * most.silenced.mean['change']:.1f} % of its variance" in text
    assert text.startswith("The layer makes ")
    result = cwrnn.inspect(make_model(), [(torch.randn(30, 4, 3), torch.randn(30, 4, 2))], loss=nn.MSELoss())
    assert " the loss is " in " ".join(result.sentences)


def test_readout_of_a_network_is_shown(tmp_path):
    network = Network(cwrnn.ClockworkRNN(3, 6, schedule=[1, 2]), 2)
    result = cwrnn.inspect(network, np.random.default_rng(0).standard_normal((20, 2, 3)), tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "for the readout only" in page.text
    assert result.inspection.modules[0].output_weight > 0


def test_layer_is_chosen_by_name():
    model = nn.ModuleDict({"a": make_model(), "b": make_model(cwrnn.ClockworkGRU)})
    with pytest.raises(ValueError, match="choose one of 'a.layer', 'b.layer'"):
        cwrnn.inspect(model, lambda model: model["b"](torch.randn(9, 2, 3)))
    result = cwrnn.inspect(model, lambda model: model["b"](torch.randn(9, 2, 3)), layer="b.layer")
    assert result.network.layer is model["b"].layer
    with pytest.raises(ValueError, match=r"the model never called its layer 'a\.layer'"):
        cwrnn.inspect(model, lambda model: model["b"](torch.randn(9, 2, 3)), layer="a.layer")


def test_hostile_names_are_harmless(tmp_path):
    model = nn.ModuleDict({'<script>alert("1")</script>': make_model()})
    cwrnn.inspect(model, lambda model: next(iter(model.values()))(torch.randn(9, 2, 3)), tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "script" not in page.tags
    assert "<script>" in page.text


def test_memory_of_a_large_layer_is_measured_on_less(tmp_path, monkeypatch):
    layer, inputs = cwrnn.ClockworkRNN(4, 12, schedule=[1, 2, 4]), [np.zeros((200, 4))] * 5
    sequences, longest = choose_remembered(layer, inputs)
    assert (len(sequences), longest) == (5, 199)
    work = (4 + 2 + 1) * 12 * 4 * 200 * 200
    monkeypatch.setattr(measuring, "MOST_PRODUCTS", 2.5 * work)
    assert [len(choose_remembered(layer, inputs)[0]), choose_remembered(layer, inputs)[1]] == [2, 199]
    monkeypatch.setattr(measuring, "MOST_PRODUCTS", work / 3)
    assert [len(choose_remembered(layer, inputs)[0]), choose_remembered(layer, inputs)[1]] == [1, 49]
    monkeypatch.setattr(measuring, "MOST_DERIVATIVES", 12 * 4 * 50)
    assert [len(sequence) for sequence in choose_remembered(layer, inputs)[0]] == [50] * 5
    cwrnn.inspect(make_model(), torch.randn(200, 5, 3), tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "in 5 sequences of 50 steps, because the layer is large" in page.text


def test_missing_package_is_named_before_anything_is_measured(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"the page needs matplotlib: pip install 'cwrnn\[experiments\]'"):
        cwrnn.inspect(make_model(), lambda model: pytest.fail("runs"), "page.html")
    # without a page it is not needed
    assert cwrnn.inspect(make_model(), torch.randn(9, 2, 3)).sentences


def test_page_is_not_written_into_a_folder(tmp_path):
    with pytest.raises(ValueError, match="is a folder: name a file"):
        cwrnn.inspect(make_model(), lambda model: pytest.fail("runs"), tmp_path)


def test_the_name_is_there_before_it_is_used():
    code = """
import sys, cwrnn
assert not [name for name in sys.modules if name.startswith("cwrnn.experiments")]
assert callable(cwrnn.inspect)
assert "matplotlib" not in sys.modules and "inspect" in cwrnn.__all__
try:
    cwrnn.nonsense
except AttributeError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "module 'cwrnn' has no attribute 'nonsense'"
