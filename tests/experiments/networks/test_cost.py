"""The multiply-adds of a network are those that a count of all products finds."""

import math
import sys

import pytest

from cwrnn import Schedule
from cwrnn.cells import CELLS
from cwrnn.experiments.networks.cost import count_multiply_adds
from cwrnn.experiments.networks.methods import CLOCKED, METHODS, MODELS
from cwrnn.experiments.networks.models.table import build_layer, find_layer_class


def count_one_cycle(schedule, inputs, outputs, gates):
    """Count the products of every step of one cycle: of ticks, of messages and of the readout of what has changed."""
    cycle = math.lcm(*schedule.periods)
    products = 0
    for t in range(cycle):
        for period, rows in zip(schedule.periods, schedule.slices, strict=True):
            if t % period != 0:
                continue
            for _ in range(rows.start, rows.stop):
                # each unit reads the input, and its message goes to its own module and to all faster ones
                products += gates * inputs
                products += gates * len(range(rows.stop))
                products += outputs
    return products / cycle


@pytest.mark.parametrize("method", CLOCKED)
@pytest.mark.parametrize(
    "schedule", [Schedule((1,), (7,)), Schedule((1, 2, 4), (3, 4, 5)), Schedule((2, 3, 7), (5, 1, 2))]
)
@pytest.mark.parametrize(("inputs", "outputs"), [(0, 1), (3, 10)])
def test_a_network_with_clocks_costs_the_products_of_its_ticks(method, schedule, inputs, outputs):
    found = count_multiply_adds(method, schedule.hidden_size, inputs, outputs, schedule.spec)
    gates = {"cw": 1, "cw-lstm": 4, "cw-gru": 3}[method]
    assert CELLS[METHODS[method].cell].gates == gates
    assert found == pytest.approx(count_one_cycle(schedule, inputs, outputs, gates))


@pytest.mark.parametrize(("method", "gates"), [("srn", 1), ("lstm", 4), ("gru", 3)])
def test_a_network_without_clocks_costs_every_weight_once(method, gates):
    N, inputs, outputs = 9, 4, 3
    assert count_multiply_adds(method, N, inputs, outputs) == gates * N * (N + inputs) + outputs * N


@pytest.mark.parametrize("method", MODELS)
def test_a_model_costs_its_layer_and_its_readout(method):
    for package in find_layer_class(MODELS[method]).packages:
        pytest.importorskip(package)
    layer = build_layer(MODELS[method], 3, 8)
    own = layer.count_multiply_adds(3, 8)
    assert count_multiply_adds(method, 8, 3, 0) == own
    assert count_multiply_adds(method, 8, 3, 5) == own + 5 * layer.hidden_size


@pytest.mark.parametrize("method", MODELS)
def test_a_model_is_counted_without_its_layer_and_packages(method, monkeypatch):
    """A damaged store may ask for more units than fit in memory, and a page may be written without the extra."""
    layer = find_layer_class(MODELS[method])
    for package in layer.packages:
        monkeypatch.setitem(sys.modules, package, None)
    # a layer of so many units would fill the memory
    monkeypatch.setattr(layer, "__init__", None)
    units = 10**9
    assert units < count_multiply_adds(method, units, 3, 2) < count_multiply_adds(method, units + 1, 3, 2)
