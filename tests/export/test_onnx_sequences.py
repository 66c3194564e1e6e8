"""The ONNX model for whole sequences equals the specification: all cells, schedules, lengths, batches and clocks."""

import json
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.network_cases import Case, cases

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from support.onnx_models import draw_state, make_layer, open_export, open_session, run_export, run_network

from cwrnn import ClockworkRNN, Schedule
from cwrnn.cells import CELLS
from cwrnn.export.model import read_model
from cwrnn.export.onnx import operators, sequence
from cwrnn.export.onnx.sequence import build_sequence
from cwrnn.network import Network

NESTED = Schedule((1, 2, 4, 8), (3, 2, 4, 1))
NOT_NESTED = Schedule((2, 3, 7), (3, 1, 2))
ONE = Schedule((1,), (4,))
SLOW = Schedule((6,), (2,))


def check(close, network, session, T, B, t0):
    layer = network.layer if isinstance(network, Network) else network
    shape = (B, T, layer.input_size) if layer.batch_first else (T, B, layer.input_size)
    input, state = torch.randn(shape), draw_state(layer, B)
    for actual, expected in zip(
        run_export(session, input, state, t0), run_network(network, input, state, t0), strict=True
    ):
        close(actual, expected)


@pytest.mark.parametrize(
    "schedule", [NESTED, NOT_NESTED, Schedule((1,), (4,)), Schedule((6,), (2,))], ids=lambda schedule: schedule.spec
)
@pytest.mark.parametrize("cell", CELLS)
def test_all_lengths_batches_and_clocks(close, cell, schedule):
    layer = make_layer(cell, 3, schedule)
    session = open_export(layer)
    for T in (1, 2, 5, 9, 17, 40):
        for B, t0 in ((1, 0), (3, 0), (1, 1), (2, 5), (1, 2**40 + 3)):
            check(close, layer, session, T, B, t0)


@given(case=cases(), small=st.sampled_from([0, 2, 64]))
@settings(max_examples=80)
def test_random_networks(close, case: Case, small):
    options = {"peepholes": True} if case.cell == "lstm" and case.peepholes else {}
    layer = make_layer(case.cell, case.I, case.schedule, bias=case.bias, seed=case.seed, **options)
    with mock.patch.object(operators, "SMALL", small):
        session = open_export(layer)
    check(close, layer, session, max(case.T, 1), max(case.B, 1), case.t0)


@pytest.mark.parametrize("peepholes", [False, True], ids=["no peepholes", "peepholes"])
@pytest.mark.parametrize("small", [0, 2, 64])
@pytest.mark.parametrize("schedule", [NESTED, NOT_NESTED], ids=["nested", "not nested"])
def test_small_and_large_modules_of_an_lstm(close, monkeypatch, schedule, small, peepholes):
    monkeypatch.setattr(operators, "SMALL", small)
    layer = make_layer("lstm", 2, schedule, peepholes=peepholes)
    session = open_export(layer)
    for T, B, t0 in ((1, 1, 0), (1, 2, 1), (5, 3, 3), (20, 2, 9)):
        check(close, layer, session, T, B, t0)


@pytest.mark.parametrize(
    ("cell", "inputs", "expected"),
    [
        ("tanh", 2, ["Scan", "Scan", "Scan"]),
        ("lstm", 2, ["LSTM", "LSTM", "Scan"]),
        ("gru", 2, ["GRU", "Scan", "Scan"]),
        # nothing stands for the input of a module that hears nobody
        ("lstm", 0, ["Scan", "LSTM", "Scan"]),
        ("gru", 0, ["Scan", "Scan", "Scan"]),
    ],
)
def test_small_gated_modules_are_operators(cell, inputs, expected):
    schedule = Schedule((1, 2, 4), (operators.SMALL + 1, operators.SMALL, 1))
    graph = build_sequence(read_model(make_layer(cell, inputs, schedule)), "network", 17).graph
    assert [node.op_type for node in graph.node if node.op_type in ("Scan", "RNN", "LSTM", "GRU")] == expected


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("schedule", [NESTED, NOT_NESTED], ids=["nested", "not nested"])
@pytest.mark.parametrize("cell", CELLS)
def test_layers_and_the_readout(close, cell, schedule, softmax):
    torch.manual_seed(0)
    network = Network(make_layer(cell, 2, schedule, layers=2), 3, softmax=softmax)
    session = open_export(network)
    for T, B, t0 in ((1, 1, 0), (1, 2, 1), (5, 3, 3), (20, 2, 9)):
        check(close, network, session, T, B, t0)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("schedule", [NESTED, NOT_NESTED], ids=["nested", "not nested"])
def test_chunks_of_a_stream_equal_the_whole(close, cell, schedule):
    network = Network(make_layer(cell, 2, schedule, layers=2), 3)
    session = open_export(network)
    input, state = torch.randn(40, 2, 2), draw_state(network.layer, 2)
    whole = run_export(session, input, state, t0=5)
    outputs, t0 = [], 5
    for chunk in input.split([1, 2, 1, 7, 3, 16, 10]):
        output, *state = run_export(session, chunk, state, t0)
        outputs.append(output)
        t0 += len(chunk)
    for actual, expected in zip([torch.cat(outputs), *state], whole, strict=True):
        close(actual, expected)


def test_modules_that_never_tick_keep_their_state_bit_for_bit():
    layer = make_layer("lstm", 2, NOT_NESTED)
    state = draw_state(layer, 2)
    output, h_n, c_n = run_export(open_export(layer), torch.randn(1, 2, 2), state, t0=1)
    assert torch.equal(h_n, state[0])
    assert torch.equal(c_n, state[1])
    assert torch.equal(output, state[0])


@pytest.mark.parametrize("network", [True, False], ids=["readout", "layer"])
def test_batch_first(close, network):
    source = make_layer("gru", 2, NESTED, layers=2, batch_first=True)
    source = Network(source, 3) if network else source
    session = open_export(source)
    assert session.get_inputs()[0].shape == ["batch", "time", 2]
    check(close, source, session, T=11, B=3, t0=2)


@pytest.mark.parametrize("opset", [14, 18, 22])
def test_other_opsets(close, opset):
    network = Network(make_layer("gru", 2, NOT_NESTED), 3, softmax=True)
    model = build_sequence(read_model(network), "network", opset)
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == opset
    check(close, network, open_session(model), T=11, B=2, t0=1)


def test_every_step_of_the_graph_has_standard_operators_and_no_spare_constants():
    model = build_sequence(read_model(Network(make_layer("gru", 2, NOT_NESTED), 3)), "network", 17)
    graphs = [model.graph]
    used = set()
    for graph in graphs:
        for node in graph.node:
            assert node.domain == ""
            used.update(node.input)
            graphs += [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    assert len(graphs) == 1 + 2
    assert {constant.name for constant in model.graph.initializer} <= used


def test_labels_and_clocks_are_metadata(recogniser):
    model = build_sequence(read_model(recogniser), "words", 17)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(metadata["labels"]) == list(recogniser.words)
    assert metadata["schedule"] == recogniser.saved.schedule.spec
    assert metadata["cell"] == "tanh"
    assert model.graph.name == "words"


def test_a_recogniser_computes_what_the_network_does(close, recogniser):
    network = recogniser.saved.network
    state = [torch.zeros(1, 2, network.layer.hidden_size)]
    input = torch.randn(30, 2, network.layer.input_size)
    output, _ = run_export(open_export(recogniser), input, state, 0)
    with torch.no_grad():
        close(output, network(input))


def test_a_model_that_no_file_can_hold_is_refused(monkeypatch):
    monkeypatch.setattr(sequence, "LARGEST", 1000)
    with pytest.raises(sequence.ExportError, match="an ONNX file has at most 1000 bytes, but this network needs"):
        build_sequence(read_model(ClockworkRNN(3, 16, schedule=2)), "network", 17)
