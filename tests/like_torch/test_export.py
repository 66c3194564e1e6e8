"""torch.export and torch.compile record one graph for sequences of every length."""

import inspect
import operator
from collections import Counter

import pytest
import torch
from functorch.compile import make_boxed_func
from support.rnn_pairs import CLOCKWORK, join
from torch._dynamo.backends.common import aot_autograd

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN, Readout
from cwrnn.kernels.cpu import loader
from cwrnn.scan import _scan_operator

DEFERRED = "prefer_deferred_runtime_asserts_over_guards"


@pytest.mark.skipif(
    DEFERRED not in inspect.signature(torch.export.export).parameters, reason=f"this torch has no {DEFERRED}"
)
@pytest.mark.parametrize(
    ("kind", "periods"), [("RNN", [1, 2, 4]), ("RNN", [2, 3, 7]), ("LSTM", [1, 2, 4]), ("GRU", [1, 2, 4])], ids=str
)
def test_an_export_with_a_dynamic_time_axis_accepts_any_length(kind, periods, close):
    rnn = CLOCKWORK[kind](2, 9, num_layers=2, schedule=periods).eval()
    # torch.export treats sizes of 0 and 1 as constants, so every module must tick at least twice
    shortest = 2 * periods[-1]
    time = torch.export.Dim("T", min=shortest, max=1 << 20)
    program = torch.export.export(
        rnn, (torch.randn(21, 3, 2),), dynamic_shapes={"input": {0: time}}, **{DEFERRED: True}
    )
    for T in (shortest, shortest + 1, 21, 100, 1001):
        x = torch.randn(T, 3, 2)
        for found, expected in zip(program.module()(x), rnn(x), strict=True):
            close(join(found), join(expected))


KERNEL = loader.current_isa() is not None


@pytest.mark.parametrize(
    ("backend", "operator", "count"), [("torch", "scan", 2 * 8), *([("cpu", "recurrence", 2)] if KERNEL else [])]
)
def test_an_export_has_no_node_per_tick(close, backend, operator, count):
    rnn = ClockworkRNN(2, 9, bidirectional=True, backend=backend)
    x = torch.randn(33, 3, 2)
    program = torch.export.export(rnn, (x,))
    close(program.module()(x)[0], rnn(x)[0])
    # the kernel has one node per direction, the cascade one per direction and module
    nodes = [node for node in program.graph.nodes if node.target is getattr(torch.ops.cwrnn, operator).default]
    assert len(nodes) == count


def test_one_compiled_graph_serves_all_lengths(close):
    rnn, readout = ClockworkRNN(2, 9, schedule=[1, 2, 4]), Readout(9, 1)

    def loss(x):
        return readout(rnn.ticks(x)[0]).square().mean()

    graphs = []

    def count(graph, _):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend=count)
    for T in (20, 21, 22, 23, 64, 333):
        x = torch.randn(T, 3, 2)
        close(compiled(x), loss(x))
    assert len(graphs) == 1


@pytest.fixture
def graphs():
    """The graphs, forward and backward, that `compile_and_keep` has compiled in this test."""
    torch.compiler.reset()
    yield []
    torch.compiler.reset()


def compile_and_keep(function, graphs, **options):
    """`torch.compile` without graph breaks, that runs the graphs of AOTAutograd as they are and appends them."""

    def keep(graph, _):
        graphs.append(graph.graph)
        return make_boxed_func(graph.forward)

    return torch.compile(function, fullgraph=True, backend=aot_autograd(fw_compiler=keep), **options)


def count_operators(graphs):
    """How often each operator of the package occurs in the graphs."""
    targets = [str(node.target) for graph in graphs for node in graph.nodes if node.op == "call_function"]
    return Counter(target for target in targets if target.startswith("cwrnn."))


def make_layer():
    """A layer, and a function that calls it."""
    rnn = ClockworkRNN(2, 9, schedule=[1, 2, 4])
    return rnn, lambda x: rnn(x)[0]


def make_deep_layer():
    """Two layers in both directions, and a function that calls them for sequences of different lengths."""
    rnn, lengths = ClockworkRNN(2, 9, 2, schedule=[1, 2, 4], bidirectional=True), torch.tensor([3, 39, 5])
    return rnn, lambda x: rnn(x, lengths=lengths)[0]


def make_lstm():
    """A layer of LSTM cells with peepholes, and a function that calls it."""
    lstm = ClockworkLSTM(2, 9, schedule=[1, 2, 4], peepholes=True)
    return lstm, lambda x: lstm(x)[0]


def make_gru():
    """A layer of GRU cells, and a function that calls it."""
    gru = ClockworkGRU(2, 9, schedule=[1, 2, 4])
    return gru, lambda x: gru(x)[0]


def make_readout():
    """A layer, and a function that reads its ticks out."""
    rnn, readout = ClockworkRNN(2, 9, schedule=[1, 2, 4]), Readout(9, 3)
    return rnn, lambda x: readout(rnn.ticks(x)[0])


@pytest.mark.skipif(not KERNEL, reason="the kernel was not built")
@pytest.mark.parametrize(
    ("make", "runs", "autocast"),
    [
        (make_layer, 1, False),
        (make_deep_layer, 4, True),
        (make_readout, 1, True),
        (make_lstm, 1, False),
        (make_gru, 1, False),
    ],
)
def test_a_compiled_layer_is_one_operator(make, runs, autocast, graphs, close):
    rnn, call = make()
    compiled = compile_and_keep(call, graphs, dynamic=True)
    for T in (40, 57):
        x = torch.randn(T, 3, 2)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            output, expected = compiled(x), call(x)
        close(output, expected)
        gradients = [torch.autograd.grad(value.sum(), list(rnn.parameters())) for value in (output, expected)]
        for gradient, right in zip(*gradients, strict=True):
            close(gradient / right.abs().max(), right / right.abs().max())
    forward, backward = graphs
    assert count_operators([forward]) == {"cwrnn.recurrence.default": runs}
    assert count_operators([backward]) == {"cwrnn.recurrence_backward.default": runs}
    # no loop over the steps is unrolled
    assert max(len(graph.nodes) for graph in graphs) < 100 + 40 * runs


def list_calls(graph):
    """The calls of a graph that compute or fill something: views and the parts of an operator's output do not."""
    views = operator.getitem, torch.ops.aten.alias.default, torch.ops.aten.detach.default
    return [node for node in graph.nodes if node.op == "call_function" and node.target not in views]


@pytest.mark.skipif(not KERNEL, reason="the kernel was not built")
def test_a_graph_without_gradients_computes_the_output_alone(graphs, close):
    rnn, x = ClockworkRNN(2, 9, schedule=[1, 2, 4]), torch.randn(40, 3, 2)
    compiled = compile_and_keep(rnn, graphs)
    with torch.no_grad():
        for found, expected in zip(compiled(x), rnn(x), strict=True):
            close(found, expected)
    (graph,) = graphs
    # neither zeros for the initial state nor ticks for backward: the final state and the output
    (call,) = list_calls(graph)
    assert call.target is torch.ops.cwrnn.recurrence.default
    assert [tensor.shape for tensor in call.meta["val"]] == [(1, 3, 9), (40, 3, 9)]


@pytest.mark.skipif(not KERNEL, reason="the kernel was not built")
def test_a_graph_with_gradients_computes_the_wanted_ones_alone(graphs):
    rnn, x = ClockworkRNN(2, 9, schedule=[1, 2, 4]), torch.randn(40, 3, 2)
    compile_and_keep(rnn, graphs)(x)[0].sum().backward()
    (forward,), (backward,) = map(list_calls, graphs)
    assert [forward.target, backward.target] == [
        torch.ops.cwrnn.recurrence.default,
        torch.ops.cwrnn.recurrence_backward.default,
    ]
    # nobody wants the gradients of the input and of the initial state, and the ticks have none
    assert [tensor.shape for tensor in backward.meta["val"]] == [(9, 2), (9, 9), (9,)]
    assert len(backward.all_input_nodes) == 7  # input, three parameters, ticks, gradients of output and final state


@pytest.mark.skipif(not KERNEL, reason="the kernel was not built")
def test_a_program_that_was_exported_without_gradients_has_them_all_the_same(close):
    rnn, x = ClockworkRNN(2, 9, schedule=[1, 2, 4], dtype=torch.float64), torch.randn(40, 3, 2, dtype=torch.float64)
    x.requires_grad_()
    with torch.no_grad():
        program = torch.export.export(rnn, (x,)).module()
    gradients = []
    for layer in (program, rnn):
        output, h_n = layer(x)
        leaves = x, *layer.parameters()
        loss = output.sin().sum() + h_n.cos().sum()
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        gradients.append([*first, *torch.autograd.grad(sum(g.square().sum() for g in first), leaves)])
    for found, expected in zip(*gradients, strict=True):
        close(found, expected)


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize("ticks", [0, 1, 6])
def test_the_scan_operator_passes_opcheck(nonlinearity, ticks):
    drive, weight, h0 = (torch.randn(shape, requires_grad=True) for shape in ((ticks, 3, 4), (4, 4), (3, 4)))
    torch.library.opcheck(_scan_operator, (drive, weight, h0, nonlinearity))
