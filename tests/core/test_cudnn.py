"""The backend "cudnn" beyond the battery: lengths, the ways of a call, its gradients and the dispatch.

An emulation of cuDNN's operators runs on the CPU; tests/kernels/test_cudnn_gpu.py runs cuDNN itself.
"""

import gc
import weakref
from contextlib import contextmanager
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import emulated_cudnn
from support.network_cases import Case, by_backend, evaluate, evaluate_lengths, schedules, specify_lengths
from torch import nn

from cwrnn import (
    ClockworkGRU,
    ClockworkLSTM,
    ClockworkRNN,
    Readout,
    Schedule,
    backends,
    clockwork_reference,
    cudnn,
    cudnn_layer,
)
from cwrnn.backends import BACKENDS, select_backend
from cwrnn.cells import CELLS
from cwrnn.step import clockwork_step

emulated_cudnn.install()

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
ONE, TWO = Schedule((1,), (4,)), Schedule((1, 2), (3, 2))
SMOOTH = pytest.mark.parametrize("cell", ["tanh", "lstm", "gru"])
CONVERSIONS = {
    "tanh": (nn.RNN, ClockworkRNN.from_rnn),
    "lstm": (nn.LSTM, ClockworkLSTM.from_lstm),
    "gru": (nn.GRU, ClockworkGRU.from_gru),
}


@pytest.fixture
def on_cpu(monkeypatch):
    """Let layers run the backend on the CPU."""
    backend = BACKENDS["cudnn"]._replace(refuse=lambda device, dtype: None, step=clockwork_step)
    monkeypatch.setitem(BACKENDS, "cudnn", backend)


@pytest.fixture
def modules(monkeypatch):
    """The arguments of all modules that run by cuDNN's operator."""
    calls, usual = [], cudnn_layer._compute

    def compute(*arguments, train):
        calls.append((*arguments, train))
        return usual(*arguments, train=train)

    monkeypatch.setattr(cudnn_layer, "_compute", compute)
    return calls


def by_cudnn(case: Case):
    """The run of `evaluate_lengths` with the backend."""
    return by_backend(cudnn.run, case)


@pytest.mark.parametrize("cell", CELLS)
@settings(max_examples=60)
@given(data=st.data())
def test_lengths_equal_the_specification(cell, close, data):
    """An LSTM keeps the c of each sequence's own end, whatever its weights let c do beyond it."""
    case = Case(
        data.draw(schedules(longest=9, modules=4)),
        T=data.draw(st.integers(1, 23)),
        B=data.draw(st.integers(1, 5)),
        I=data.draw(st.integers(0, 3)),
        t0=data.draw(st.integers(0, 20)),
        bias=data.draw(st.booleans()),
        cell=cell,
        initial=data.draw(st.booleans()),
        scale=data.draw(st.sampled_from([1.0, 30.0])) if cell == "lstm" else 1.0,
        seed=data.draw(st.integers(0, 100)),
    )
    lengths = torch.tensor(data.draw(st.lists(st.integers(1, case.T), min_size=case.B, max_size=case.B)))
    found, expected = (evaluate_lengths(case, lengths, True, by(case)) for by in (by_cudnn, specify_lengths))
    for name, value in expected.items():
        close(found[name], value, msg=lambda text, name=name: f"{name} of {case}: {text}")


@pytest.mark.parametrize("cell", ["tanh", "lstm"])
@settings(max_examples=60)
@given(data=st.data())
def test_chunks_of_time_equal_the_specification(cell, close, data):
    """Large modules run beside each other on a GPU, in chunks; a chunk may have no tick of a module."""
    case = Case(
        data.draw(schedules(longest=9, modules=4)),
        T=data.draw(st.integers(1, 23)),
        B=data.draw(st.integers(1, 3)),
        I=data.draw(st.integers(1, 2)),
        t0=data.draw(st.integers(0, 20)),
        bias=data.draw(st.booleans()),
        cell=cell,
        initial=data.draw(st.booleans()),
        seed=data.draw(st.integers(0, 100)),
    )
    cuts = sorted({0, case.T, *data.draw(st.lists(st.integers(0, case.T), max_size=4))})
    lengths = torch.full((case.B,), case.T)
    if data.draw(st.booleans()):
        lengths = torch.tensor(data.draw(st.lists(st.integers(1, case.T), min_size=case.B, max_size=case.B)))
    expected = evaluate_lengths(case, lengths, True, specify_lengths(case))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cudnn, "_cut_time", lambda *_: list(pairwise(cuts)))
        patch.setattr(cudnn, "_fork", lambda *_: None)
        found = evaluate_lengths(case, lengths, True, by_cudnn(case))
    for name, value in expected.items():
        close(found[name], value, msg=lambda text, name=name: f"{name} of {case} in {cuts}: {text}")


def test_time_is_cut_for_large_modules_on_a_gpu_only(monkeypatch):
    class Large:
        def __init__(self, T, is_cuda=True):
            self.shape, self.is_cuda = (T, 2, 3), is_cuda

    capturing = False
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    large, small = Schedule((1, 2), (1025, 1025)), Schedule((1, 2), (1024, 1025))
    assert cudnn._cut_time(Large(1000), large, "lstm") == [(125 * i, 125 * (i + 1)) for i in range(8)]
    assert cudnn._cut_time(Large(200), large, "tanh") == [(0, 66), (66, 133), (133, 200)]
    assert cudnn._cut_time(Large(127), large, "tanh") == [(0, 127)]
    assert cudnn._cut_time(Large(1000), small, "tanh") == [(0, 1000)]
    assert cudnn._cut_time(Large(1000), large, "gru") == [(0, 1000)]
    assert cudnn._cut_time(Large(1000), Schedule((1,), (1025,)), "tanh") == [(0, 1000)]
    assert cudnn._cut_time(Large(1000, is_cuda=False), large, "tanh") == [(0, 1000)]
    capturing = True
    assert cudnn._cut_time(Large(1000), large, "tanh") == [(0, 1000)]


def test_chunks_share_packed_weights(monkeypatch, modules):
    monkeypatch.setattr(cudnn, "_cut_time", lambda *_: [(0, 3), (3, 7)])
    monkeypatch.setattr(cudnn, "_fork", lambda *_: None)
    evaluate(Case(TWO, T=7, B=2, I=3, t0=0), cudnn.run)
    packed = [arguments[6] for arguments in modules]
    assert packed[0] is packed[2]
    assert packed[1] is packed[3]


class FakeStream:
    """A stream that knows which work it has done or waits for: (stream, number) for each piece of work."""

    def __init__(self, *_):
        self.work, self.known = 0, set()

    def do(self):
        """Add a piece of work, and return it."""
        self.work += 1
        self.known.add((self, self.work))
        return self, self.work

    def wait_stream(self, other):
        self.known |= other.known


@pytest.mark.parametrize("cell", ["tanh", "lstm"])
def test_streams_wait_for_what_they_read_and_memory_for_its_readers(monkeypatch, cell):
    """The streams are fakes, and the work of one is done when another waits for it."""
    main = FakeStream()
    current, makers, lent, overlaps = [main], {}, set(), []

    @contextmanager
    def enter(stream):
        current.append(stream)
        yield
        current.pop()

    def read(tensor, stream):
        place = tensor.untyped_storage().data_ptr()
        maker, work = makers.get(place, first)
        assert (maker, work) in stream.known, "it is read before it is made"
        assert maker is stream or (place, stream) in lent, "it may be freed before it is read"

    def run_one(features, slower, weights, state, *rest, usual=cudnn._run_one):
        stream, lengths = current[-1], rest[-1]
        given = [features, *weights, *([lengths] if rest[-2] == "lstm" else []), state]
        assert all("signal" in vars(module) for module in slower), "the module that hears it would make it"
        for module in slower:
            place = module.signal.values.untyped_storage().data_ptr()
            makers[place] = makers[module.output.untyped_storage().data_ptr()]
        heard = [tensor for module in slower for tensor in (module.signal.values, module.final)]
        for tensor in filter(lambda tensor: tensor is not None, given + heard):
            read(tensor, stream)
        # the caller's stream has not begun to wait for the work that the slower module does beside it
        overlaps.append(any(maker is main for maker, _ in stream.known - {first}))
        module = usual(features, slower, weights, state, *rest)
        work = stream.do()
        for tensor in (module.output, module.final):
            alive.append(tensor)
            makers[tensor.untyped_storage().data_ptr()] = work
        return module

    def lend(tensor, stream):
        lent.add((tensor.untyped_storage().data_ptr(), stream))

    alive, first = [], main.do()
    cudnn._make_streams.cache_clear()
    monkeypatch.setattr(torch.cuda, "Stream", FakeStream)
    monkeypatch.setattr(torch.cuda, "stream", enter)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: main)
    monkeypatch.setattr(cudnn, "_lend", lend)
    monkeypatch.setattr(cudnn, "_run_one", run_one)
    monkeypatch.setattr(cudnn, "_cut_time", lambda *_: [(0, 5), (5, 9), (9, 14)])
    case = Case(Schedule((1, 2, 3), (2, 3, 1)), T=14, B=2, I=3, t0=4, cell=cell)
    lengths = torch.tensor([14, 9])
    done = cudnn.run(*case.tensors(), case.schedule, 4, cell, lengths)
    cudnn._make_streams.cache_clear()
    assert len({maker for maker, _ in makers.values()}) == 3
    # of the nine pieces of work, only those of the fastest module, on the caller's stream, follow others of that stream
    assert overlaps == [False, False, False, False, False, True, False, False, True]
    for module in done.runs:
        read(module.final, main)
    for tensor in alive:
        read(tensor, main)


@SMOOTH
def test_padding_is_not_read(cell, close):
    case = Case(ONE, T=9, B=3, I=2, t0=1, cell=cell)
    lengths = torch.tensor([9, 1, 4])
    tensors = [tensor.detach() for tensor in case.tensors()]
    results = []
    for filler in (0.0, torch.nan, torch.inf):
        x = tensors[0].clone()
        x[torch.arange(9)[:, None] >= lengths] = filler
        leaves = [x.requires_grad_(), *(tensor.requires_grad_() for tensor in tensors[1:])]
        done = cudnn.run(*leaves, ONE, 1, cell, lengths)
        loss = done.hold().sum() + done.final().sin().sum()
        results.append((done.hold(), done.final(), *torch.autograd.grad(loss, leaves)))
    for result in results[1:]:
        for value, right in zip(result, results[0], strict=True):
            assert torch.equal(value, right)


@pytest.mark.parametrize("schedule", [ONE, Schedule((3,), (4,)), TWO, Schedule((2, 3, 5), (2, 1, 2))], ids=str)
@pytest.mark.parametrize("cell", ["tanh", "relu", "lstm"])
def test_every_module_is_one_call(modules, schedule, cell):
    evaluate(Case(schedule, T=11, B=2, I=3, t0=4, cell=cell), cudnn.run)
    assert len(modules) == schedule.modules
    for (x, weight_ih, weight_hh, *_), size, units in zip(
        reversed(modules), schedule.sizes, schedule.slices, strict=True
    ):
        slower = schedule.hidden_size - units.stop
        assert x.shape[-1] == weight_ih.shape[-1] == 3 + slower
        assert weight_hh.shape == (CELLS[cell].gates * size, size)


def test_a_module_that_does_not_tick_keeps_its_state(modules, close):
    schedule = Schedule((1, 50), (2, 3))
    case = Case(schedule, T=5, B=2, I=1, t0=1, cell="lstm")
    found, expected = evaluate(case, cudnn.run), evaluate(case)
    assert len(modules) == 1
    for name, value in expected.items():
        close(found[name], value)


@pytest.mark.parametrize(
    ("cell", "bias", "expected"),
    [
        ("tanh", [7.0, 8.0], [7, 8, 0, 0]),
        ("gru", [*range(1, 9)], [1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 7, 8]),
        ("lstm", None, [0] * 16),
    ],
)
def test_weights_are_packed_as_torch_orders_them(cell, bias, expected):
    rows = CELLS[cell].gates * 2
    weight_ih, weight_hh = torch.arange(3.0 * rows).view(rows, 3), -torch.arange(2.0 * rows).view(rows, 2)
    packed = cudnn_layer.pack_weights(weight_ih, weight_hh.T.contiguous().T, bias and torch.tensor(bias))
    matrices = [*weight_ih.flatten().tolist(), *weight_hh.flatten().tolist()]
    assert packed.tolist() == [*matrices, *expected]


def test_the_output_of_one_module_is_not_copied(monkeypatch):
    outputs, usual = [], cudnn_layer.run_parts
    for caller in (cudnn, cudnn_layer):
        monkeypatch.setattr(caller, "run_parts", lambda *a: (outputs.append(usual(*a)), outputs[-1])[1])
    tensors = Case(ONE, T=5, B=2, I=3, t0=0).tensors()
    output, final = cudnn.run_plain(*tensors[:4], ONE, 0, "tanh", None)
    assert output is outputs[0][0]
    assert final is outputs[0][1]
    done = cudnn.run(*tensors, ONE, 0, "tanh")
    assert done.hold() is outputs[1][0]
    assert done.h_n() is outputs[1][1]


def test_the_state_of_an_lstm_is_not_copied(monkeypatch, on_cpu):
    ends, usual = [], torch._cudnn_rnn
    monkeypatch.setattr(torch, "_cudnn_rnn", lambda *a: ends.append(usual(*a)) or ends[-1])
    layer = ClockworkLSTM(3, 4, schedule=1, backend="cudnn")
    with torch.no_grad():
        output, (h, c) = layer(torch.randn(5, 2, 3))
    assert output is ends[0][0]
    assert h is ends[0][1]
    assert c is ends[0][2]


@pytest.mark.parametrize("wanted", ["h", "c"])
def test_second_derivatives_of_a_part_of_an_lstms_state_equal_the_specification(on_cpu, wanted, close):
    theirs = nn.LSTM(3, 4, dtype=torch.float64)
    layer = ClockworkLSTM.from_lstm(theirs)
    layer.backend = "cudnn"
    x = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    results = []
    for network in (layer, theirs):
        _, state = network(x)
        (first,) = torch.autograd.grad(state["hc".index(wanted)].sin().sum(), x, create_graph=True)
        results.append((first, *torch.autograd.grad(first.square().sum(), x)))
    for found, expected in zip(*results, strict=True):
        close(found, expected)


def test_gradients_are_prepared_only_if_they_are_wanted(modules):
    tensors = Case(TWO, T=5, B=2, I=3, t0=0).tensors()
    with torch.no_grad():
        cudnn.run(*tensors, TWO, 0, "tanh")
    cudnn.run(*(tensor.detach() for tensor in tensors), TWO, 0, "tanh")
    assert [train for *_, train in modules] == [False] * 4
    cudnn.run(*tensors, TWO, 0, "tanh")
    assert [train for *_, train in modules[4:]] == [True] * 2


@SMOOTH
@pytest.mark.parametrize("wanted", range(5))
def test_each_gradient_alone_equals_the_specification(cell, wanted, close):
    case = Case(ONE, T=7, B=2, I=3, t0=0, cell=cell)
    tensors = [tensor.detach() for tensor in case.tensors()]
    tensors[wanted].requires_grad_()
    done = cudnn.run(*tensors, ONE, 0, cell)
    (found,) = torch.autograd.grad(done.hold().square().sum() + done.final().sin().sum(), tensors[wanted])
    states = clockwork_reference(*tensors, ONE, 0, cell)
    (expected,) = torch.autograd.grad(states[..., :4].square().sum() + states[-1].sin().sum(), tensors[wanted])
    close(found, expected)


@SMOOTH
@pytest.mark.parametrize("schedule", [ONE, TWO], ids=["one module", "two modules"])
def test_gradients_through_the_final_state_or_the_output_alone(cell, schedule, close):
    tensors = Case(schedule, T=7, B=2, I=3, t0=0, cell=cell).tensors()
    done, states = cudnn.run(*tensors, schedule, 0, cell), clockwork_reference(*tensors, schedule, 0, cell)
    for value, right in ((done.final(), states[-1]), (done.hold(), states[..., : schedule.hidden_size])):
        gradients = (torch.autograd.grad(x.sin().sum(), tensors, retain_graph=True) for x in (value, right))
        for found, expected in zip(*gradients, strict=True):
            close(found, expected)


def test_backward_can_be_repeated_if_the_graph_is_kept():
    """cuDNN overwrites what the forward pass kept; without the graph nothing is copied, and torch refuses."""
    tensors = Case(TWO, T=7, B=2, I=3, t0=0).tensors()
    loss = cudnn.run(*tensors, TWO, 0, "tanh").hold().sum()
    first = torch.autograd.grad(loss, tensors, retain_graph=True)
    second = torch.autograd.grad(loss, tensors)
    assert all(map(torch.equal, first, second))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(loss, tensors)


def test_what_the_forward_pass_keeps_is_copied_only_if_the_graph_is_kept(monkeypatch):
    seen = []
    usual = cudnn_layer._differentiate
    monkeypatch.setattr(cudnn_layer, "_differentiate", lambda *a: (seen.append(a[-2]), usual(*a))[1])
    x, *others = Case(ONE, T=7, B=2, I=3, t0=0).tensors()
    kept = cudnn.run(x, *others, ONE, 0, "tanh").hold()
    saved = kept.grad_fn.saved_tensors[6]
    torch.autograd.grad(kept.sum(), x, retain_graph=True)
    assert (saved == emulated_cudnn.KEPT).all()
    torch.autograd.grad(kept.sum(), x)
    assert [reserve.data_ptr() == saved.data_ptr() for reserve in seen] == [False, True]


def test_nothing_keeps_the_states_alive():
    tensors = Case(ONE, T=7, B=2, I=3, t0=0).tensors()
    gc.disable()
    try:
        done = cudnn.run(*tensors, ONE, 0, "tanh")
        output = weakref.ref(done.hold())
        loss = done.hold().sum()
        loss.backward()
        del done, loss
        assert output() is None
    finally:
        gc.enable()


def test_a_changed_weight_is_noticed():
    tensors = Case(ONE, T=7, B=2, I=3, t0=0).tensors()
    loss = cudnn.run(*tensors, ONE, 0, "tanh").hold().sum()
    with torch.no_grad():
        tensors[2].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("schedule", [ONE, TWO], ids=["one module", "two modules"])
@pytest.mark.parametrize("freed", range(4))
def test_a_tensor_without_memory_is_refused(freed, schedule):
    """FSDP frees the storage of a weight between two uses."""
    tensors = Case(schedule, T=7, B=2, I=3, t0=0).tensors()
    tensors[freed].untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="its data is not allocated"):
        cudnn.run(*tensors, schedule, 0, "tanh")


@SMOOTH
def test_second_derivatives_of_one_module_equal_the_specification(cell, close):
    """The gradient of a gradient's norm, as in a gradient penalty."""
    tensors = Case(ONE, T=7, B=2, I=3, t0=0, cell=cell).tensors()
    results = []
    for states in (cudnn.run(*tensors, ONE, 0, cell).hold(), clockwork_reference(*tensors, ONE, 0, cell)[..., :4]):
        (to_input,) = torch.autograd.grad(states.square().sum(), tensors[0], create_graph=True)
        results.append(torch.autograd.grad(to_input.square().sum() + states.sum(), tensors))
    for found, expected in zip(*results, strict=True):
        close(found, expected)


def test_batched_gradients_equal_single_ones(close):
    tensors = Case(TWO, T=5, B=2, I=1, t0=1).tensors()
    output = cudnn.run(*tensors, TWO, 1, "tanh").hold()
    rows = torch.randn(3, *output.shape, dtype=torch.float64)
    batched = torch.autograd.grad(output, tensors, rows, is_grads_batched=True, retain_graph=True)
    mapped = torch.func.vmap(lambda row: torch.autograd.grad(output, tensors, row, retain_graph=True))(rows)
    for b, row in enumerate(rows):
        single = torch.autograd.grad(output, tensors, row, retain_graph=True)
        for found, other, expected in zip(batched, mapped, single, strict=True):
            close(found[b], expected)
            close(other[b], expected)


# of torch's own functions, by torch
@pytest.mark.filterwarnings("ignore")
def test_other_calls_than_plain_ones_run_by_the_cascade(modules):
    tensors = [tensor.detach() for tensor in Case(ONE, T=5, B=2, I=3, t0=0).tensors()]
    lstm = Case(ONE, T=5, B=2, I=3, t0=0, cell="lstm", peepholes=True)

    def hold(*tensors):
        return cudnn.run(*tensors, ONE, 0, "tanh").hold()

    torch.func.grad(lambda *tensors: hold(*tensors).sum())(*tensors)
    torch.func.jvp(hold, tuple(tensors), tuple(tensors))
    torch.func.vmap(hold, in_dims=(0, None, None, None, None))(tensors[0][None], *tensors[1:])
    torch.jit.trace(hold, tuple(tensors), check_trace=False)
    torch.compile(hold, backend="eager", fullgraph=True)(*tensors)
    cudnn.run(*lstm.tensors(), ONE, 0, "lstm", None, True, lstm.weight_ch())
    cudnn.run_plain(*lstm.tensors()[:4], ONE, 0, "lstm", lstm.weight_ch())
    for empty in ({"T": 0}, {"B": 0}, {"I": 0}):
        case = Case(ONE, **{"T": 5, "B": 2, "I": 3, "t0": 0} | empty)
        evaluate(case, cudnn.run)
        cudnn.run_plain(*case.tensors()[:4], ONE, 0, "tanh", None)
    assert modules == []
    hold(*tensors)
    assert len(modules) == 1


def test_an_infinite_state_spoils_no_gradient_of_modules_that_do_not_hear_it():
    schedule, spoilt = Schedule((1, 2, 4), (2, 3, 2)), []
    for step in (8, 10, 11, 12):
        leaves = [tensor.detach().abs() for tensor in Case(schedule, T=13, B=2, I=1, t0=0, seed=step).tensors()]
        leaves[0][step] = torch.inf
        leaves = [leaf.requires_grad_() for leaf in leaves]
        expected = torch.autograd.grad(clockwork_reference(*leaves, schedule, 0, "relu")[:2].sum(), leaves)
        found = torch.autograd.grad(cudnn.run(*leaves, schedule, 0, "relu").hold()[:2].sum(), leaves)
        torch.testing.assert_close(found, expected, equal_nan=True)
        spoilt += [gradient.isfinite().logical_not().float().mean().item() for gradient in found]
    assert any(0 < share < 1 for share in spoilt)


@SMOOTH
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}], ids=str)
def test_a_layer_equals_torchs(on_cpu, cell, options, close):
    make, convert = CONVERSIONS[cell]
    theirs = make(3, 5, dtype=torch.float64, **options)
    layer = convert(theirs)
    layer.backend = "cudnn"
    x = torch.randn(7, 2, 3, dtype=torch.float64, requires_grad=True)
    results = []
    for network in (layer, theirs):
        output, ends = network(x)
        loss = output.square().sum() + sum(end.sin().sum() for end in (ends if cell == "lstm" else [ends]))
        results.append((output, *(ends if cell == "lstm" else [ends]), *torch.autograd.grad(loss, x)))
    for found, expected in zip(*results, strict=True):
        close(found, expected)


@pytest.mark.parametrize("make", [ClockworkRNN, ClockworkLSTM, ClockworkGRU])
def test_a_stream_in_chunks_and_steps_equals_one_call(on_cpu, make, close):
    layer = make(3, 9, schedule=[1, 2, 3], backend="cudnn", dtype=torch.float64)
    x = torch.randn(14, 2, 3, dtype=torch.float64)
    expected, _ = layer(x)
    output, state = layer(x[:5], return_state=True)
    outputs = [output]
    for x_t in x[5:8]:
        output, state = layer.step(x_t, state)
        outputs.append(output[None])
    outputs.append(layer(x[8:], state)[0])
    close(torch.cat(outputs), expected)


@pytest.mark.parametrize("schedule", [(1,), (2,), (1, 3)], ids=str)
@pytest.mark.parametrize("lengths", [None, [14, 3]], ids=["one length", "lengths"])
@pytest.mark.parametrize("make", [ClockworkRNN, ClockworkGRU])
def test_a_readout_equals_its_product_with_the_output(on_cpu, make, schedule, lengths, close):
    layer = make(3, 8, schedule=schedule, backend="cudnn", dtype=torch.float64)
    readout = Readout(8, 2).double()
    ticks, h_n = layer.ticks(torch.randn(14, 2, 3, dtype=torch.float64), lengths=lengths)
    inside = torch.arange(14)[:, None] < torch.tensor(lengths or [14, 14])
    expected = nn.functional.linear(ticks.hold(), readout.weight, readout.bias)
    close(readout(ticks)[inside], expected[inside])
    assert h_n.shape == (1, 2, 8)


def test_states_are_rounded(close):
    case = Case(TWO, T=5, B=2, I=3, t0=1, cell="lstm")
    done = cudnn.run(*(tensor.detach() for tensor in case.tensors()), TWO, 1, "lstm")
    rounded = done.to(torch.float32)
    assert rounded.hold().dtype == rounded.final().dtype == torch.float32
    close(rounded.hold(), done.hold().float())
    close(rounded.final(), done.final().float())


def test_it_refuses_other_devices_and_dtypes(monkeypatch):
    assert cudnn.refuse(CPU, torch.float32) == "it runs on CUDA devices only"
    assert cudnn.refuse(CUDA, torch.int64) == "it takes float32, float64, bfloat16 and float16 only"
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: False)
    assert cudnn.refuse(CUDA, torch.float32) == "this torch has no cuDNN"
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)
    monkeypatch.setattr(cudnn, "_find_capability", lambda index: (7, 5))
    for dtype in (torch.float32, torch.float64, torch.float16):
        assert cudnn.refuse(CUDA, dtype) is None
    assert cudnn.refuse(CUDA, torch.bfloat16) == "bfloat16 needs a device of compute capability 8.0 or above"
    with torch.backends.cudnn.flags(enabled=False):
        assert cudnn.refuse(CUDA, torch.float32) == "torch.backends.cudnn.enabled is False"
    monkeypatch.setattr(torch.version, "hip", "6.0")
    assert cudnn.refuse(CUDA, torch.float32) == "AMD's devices have no cuDNN"


def test_auto_takes_it_where_the_kernel_does_not_run(monkeypatch):
    def anywhere(name, **changes):
        return BACKENDS[name]._replace(refuse=lambda device, dtype: None, **changes)

    def choose(cell, schedule=ONE):
        return select_backend("auto", CPU, torch.float32, schedule, cell, batch=4).name

    for changes in (
        {"advise_against": lambda schedule, dtype, cell, batch: "slow"},
        {"refuse_schedule": lambda schedule, device, dtype, cell: "large"},
    ):
        table = {"cuda": anywhere("cuda", **changes), "cudnn": anywhere("cudnn"), "torch": BACKENDS["torch"]}
        monkeypatch.setattr(backends, "BACKENDS", table)
        assert [choose(cell, schedule) for cell in CELLS for schedule in (ONE, TWO)] == ["cudnn"] * 2 * len(CELLS)
    table["cuda"] = anywhere("cuda")
    assert choose("tanh") == "cuda"


def test_a_compiled_layer_records_no_operator_of_a_kernel(on_cpu):
    layer = ClockworkRNN(3, 4, schedule=1, backend="cudnn")
    x, names = torch.randn(5, 2, 3), set()

    def note(graph, example):
        names.update(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    compiled = torch.compile(layer, backend=note, fullgraph=True)
    torch.testing.assert_close(compiled(x), layer(x))
    assert any("scan" in name for name in names)
    assert not any("recurrence" in name for name in names)
