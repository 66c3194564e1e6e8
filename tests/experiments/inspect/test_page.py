"""The page and its figures show the measurements, of odd networks too."""

import numpy as np
import pytest
import torch
from support.html_pages import Page

from cwrnn import ClockworkLSTM, ClockworkRNN
from cwrnn.experiments.generation.inspected import GeneratedSequence
from cwrnn.experiments.inspect import figures
from cwrnn.experiments.inspect.inspected import InspectedNetwork
from cwrnn.experiments.inspect.loading import load_network
from cwrnn.experiments.inspect.measuring import measure_network
from cwrnn.experiments.inspect.network import inspect_network
from cwrnn.experiments.inspect.page import TITLES, write_page
from cwrnn.experiments.inspect.sentences import describe_inspection
from cwrnn.experiments.report import drawing
from cwrnn.experiments.sweep.run import Dataset
from cwrnn.experiments.words.inspected import SpokenWord
from cwrnn.network import Network


def make_network(layer, display, inputs, outputs=2, facts=None):
    def measure(outputs):
        return {"nmse": float(outputs[0][-1, 0] ** 2)}

    readout = Network(layer, outputs).readout
    return InspectedNetwork("words", "CW-RNN", layer, readout, inputs, measure, 0, display, facts or {}, " (of 10 ms)")


@pytest.mark.parametrize(
    ("schedule", "inputs", "steps"),
    [([1], 0, 2), ([3, 5], 2, 1), ([1, 64], 1, 9)],
)
def test_odd_networks_are_drawn(schedule, inputs, steps, tmp_path):
    layer = ClockworkRNN(inputs, 2 * len(schedule), schedule=schedule)
    display = SpokenWord(["a", "_b"], 1, "$s")
    if inputs == 0:
        display = GeneratedSequence(Dataset("odd", 8000, np.linspace(-1, 1, steps), ""))
    drawn = make_network(layer, display, [np.random.default_rng(0).standard_normal((steps, inputs))])
    write_page(drawn, measure_network(drawn), tmp_path / "page.html")
    assert Page((tmp_path / "page.html").read_text(encoding="utf-8")).tags.count("svg") == len(TITLES)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("layer", "place"), [
    (ClockworkRNN(0, 4, schedule=2), "the tanh of each unit"),
    (ClockworkRNN(0, 4, schedule=2, nonlinearity="relu"), "the relu of each unit"),
    (ClockworkLSTM(0, 4, schedule=2), "each gate of a unit"),
])  # fmt: skip
def test_page_says_where_a_network_without_input_is_disturbed(layer, place, tmp_path):
    display = GeneratedSequence(Dataset("odd", 8000, np.linspace(-1, 1, 9), ""))
    network = make_network(layer, display, [np.empty((9, 0))])
    write_page(network, measure_network(network), tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert f"a number that is added to the argument of {place} that ticks" in " ".join(page.text.split())


def test_constant_network_is_drawn():
    layer = ClockworkRNN(1, 4, schedule=2)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    drawn = make_network(layer, SpokenWord(["a", "b"], 0, "s"), [np.ones((9, 1))])
    inspected = measure_network(drawn)
    assert [each.reach for each in inspected.modules] == [None, None]
    assert "No input reaches a module." in describe_inspection(inspected)
    for draw in (figures.draw_spectra, figures.draw_memories, figures.draw_silences):
        assert drawing.render(draw(inspected), "svg")


def test_figures_show_the_measurements(sequence_store, inspected):
    figure = figures.draw_memories(inspected)
    [panel] = figure.axes
    for i in range(inspected.schedule.modules):
        [line] = [each for each in panel.lines if each.get_gid() == f"memory-{i}"]
        known = np.isfinite(line.get_ydata())
        assert known.any()
        np.testing.assert_array_equal(line.get_ydata()[known], inspected.memory.norms[i][known])
    figure = figures.draw_silences(inspected)
    tops = [bar.get_y() + bar.get_height() for bar in figure.axes[1].patches]
    expected = [each.silenced.mean_readout["nmse"] for each in inspected.modules]
    expected += [each.silenced.mean["nmse"] for each in inspected.modules]
    np.testing.assert_allclose(tops, expected)
    figure = figures.draw_costs(inspected)
    lengths = np.reshape([patch.get_width() for patch in figure.axes[0].patches], (-1, inspected.schedule.modules))
    np.testing.assert_allclose(lengths.sum(axis=0), inspected.cost.total)
    found = load_network(sequence_store)
    image = figures.draw_weights(found).axes[0].images[0].get_array()
    np.testing.assert_array_equal(np.ma.getmaskarray(image), ~inspected.schedule.mask())
    expected = np.abs(found.layer.weight_hh_l0.detach().numpy())[inspected.schedule.mask()]
    np.testing.assert_allclose(image.compressed(), expected)


def test_page_hides_the_folders_of_absolute_paths(tmp_path):
    facts = {"store": "/home/somebody/out/runs.sqlite", "data": "recordings in /home/somebody/words"}
    network = make_network(ClockworkRNN(1, 2, schedule=[1]), SpokenWord(["a", "b"], 0, "s"), [np.ones((3, 1))],
                           facts=facts)  # fmt: skip
    write_page(network, measure_network(network), tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "somebody" not in page.text
    assert "runs.sqlite" in page.text


def test_page_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    network = make_network(ClockworkRNN(1, 2, schedule=[1]), SpokenWord(["a", "b"], 0, "s"), [np.ones((3, 1))])
    page = tmp_path / "page.html"
    page.write_text("old")
    monkeypatch.setattr("os.replace", lambda *paths: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_page(network, measure_network(network), page)
    assert page.read_text() == "old"
    assert list(tmp_path.iterdir()) == [page]


def test_result_prints_its_sentences_and_draws_its_figures(sequence_store, tmp_path):
    result = inspect_network(sequence_store)
    assert str(result).splitlines() == describe_inspection(result.inspection)
    assert result.to_dict()["page"] is None
    paths = result.draw(tmp_path / "figures")
    assert {path.name for path in paths} == {f"{name}.{format}" for name in TITLES for format in ("svg", "png")}
    assert all(path.stat().st_size > 1000 for path in paths)
