"""The readout at tick rate equals Linear on the held output, and keeps far less for backward."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.network_cases import schedules
from support.rnn_pairs import CLOCKWORK, join
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN, Readout
from cwrnn.kernels.cpu import loader


@settings(max_examples=60)
@given(
    schedule=schedules(),
    T=st.integers(0, 30),
    t0=st.integers(0, 30),
    bidirectional=st.booleans(),
    batch_first=st.booleans(),
    bias=st.booleans(),
    ragged=st.booleans(),
    layer=st.sampled_from((ClockworkRNN, ClockworkLSTM, ClockworkGRU)),
    seed=st.integers(0, 1000),
)
def test_readout_of_ticks_equals_linear_of_the_output(
    schedule, T, t0, bidirectional, batch_first, bias, ragged, layer, seed, close
):
    torch.manual_seed(seed)
    rnn = layer(
        2,
        schedule.hidden_size,
        batch_first=batch_first,
        bidirectional=bidirectional,
        dtype=torch.float64,
        schedule=schedule,
    )
    readout = Readout(schedule.hidden_size * rnn.num_directions, 3, bias=bias, dtype=torch.float64)
    x = torch.randn((4, T, 2) if batch_first else (T, 4, 2), dtype=torch.float64, requires_grad=True)
    lengths = [max(1, T - 2 * b) for b in range(4)] if ragged and T > 0 else None
    everything = [x, *rnn.parameters(), *readout.parameters()]

    def gradients(y):
        return torch.autograd.grad(y.sin().sum(), everything, allow_unused=True, materialize_grads=True)

    output, h_expected = rnn(x, t0=t0, lengths=lengths)
    expected = nn.functional.linear(output, readout.weight, readout.bias)
    ticks, h_n = rnn.ticks(x, t0=t0, lengths=lengths)
    found = readout(ticks)
    close(found, expected)
    close(join(h_n), join(h_expected))
    for value, right in zip(gradients(found), gradients(expected), strict=True):
        close(value, right)
    close(readout(output), expected)


@pytest.mark.parametrize("fixed", ["nothing", "layer", "readout"])
def test_double_backward_equals_linear_with_any_part_fixed(fixed, close, kind):
    rnn, readout = CLOCKWORK[kind](2, 7, schedule=3, dtype=torch.float64), Readout(7, 3, dtype=torch.float64)
    if fixed != "nothing":
        (rnn if fixed == "layer" else readout).requires_grad_(False)
    x = torch.randn(9, 2, 2, dtype=torch.float64)
    wanted = [parameter for parameter in (*rnn.parameters(), *readout.parameters()) if parameter.requires_grad]

    def derivatives(y):
        first = torch.autograd.grad(y.sin().sum(), wanted, create_graph=True)
        plain = torch.autograd.grad(y.sin().sum(), wanted, retain_graph=True)
        return *first, *plain, *torch.autograd.grad(sum(each.square().sum() for each in first), wanted)

    ticks, _ = rnn.ticks(x)
    for found, expected in zip(derivatives(readout(ticks)), derivatives(readout(rnn(x)[0])), strict=True):
        close(found, expected)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("mapped", ["vmap", "is_grads_batched", "tangent"])
def test_backward_can_be_mapped_and_carry_tangents(mapped, close):
    rnn, readout = ClockworkRNN(2, 7, schedule=3, dtype=torch.float64), Readout(7, 3, dtype=torch.float64)
    rnn.requires_grad_(False)
    y = readout(rnn.ticks(torch.randn(9, 2, 2, dtype=torch.float64))[0])
    directions = torch.randn(4, *y.shape, dtype=torch.float64)

    def derivatives(gradient, **options):
        return torch.autograd.grad(y, list(readout.parameters()), gradient, retain_graph=True, **options)

    expected = [torch.stack(each) for each in zip(*map(derivatives, directions), strict=True)]
    if mapped == "vmap":
        found = torch.func.vmap(derivatives)(directions)
    elif mapped == "is_grads_batched":
        found = derivatives(directions, is_grads_batched=True)
    else:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(directions[0], directions[1])
            found = [torch.stack(forward_ad.unpack_dual(each)) for each in derivatives(dual)]
        expected = [each[:2] for each in expected]
    for value, wanted in zip(found, expected, strict=True):
        close(value, wanted)


@pytest.mark.skipif(loader.current_isa() is None, reason="the kernel was not built")
def test_fixed_parameters_get_no_gradient():
    rnn, readout = ClockworkRNN(4, 64, schedule=4).requires_grad_(False), Readout(64, 3)
    y = readout(rnn.ticks(torch.randn(200, 64, 4))[0])
    nodes = [y.grad_fn]
    for node in nodes:
        nodes.extend(following for following, _ in node.next_functions if following is not None)
    (products,) = {node for node in nodes if "Products" in node.name()}
    seen = []
    products.register_hook(lambda gradients, _: seen.append([each is None for each in gradients]))
    y.sum().backward()
    assert seen == [[True, False]]


def test_unbatched_and_packed_inputs_equal_linear(close, kind):
    rnn, readout = CLOCKWORK[kind](2, 9, dtype=torch.float64), Readout(9, 3, dtype=torch.float64)
    x = torch.randn(7, 2, dtype=torch.float64)
    close(readout(rnn.ticks(x)[0]), readout(rnn(x)[0]))
    packed = pack_sequence([x[:3], x, x[:5]], enforce_sorted=False)
    found, expected = readout(rnn.ticks(packed)[0]), rnn(packed)[0]
    assert isinstance(found, PackedSequence)
    close(found.data, readout(expected.data))
    assert torch.equal(found.batch_sizes, packed.batch_sizes)
    assert torch.equal(found.unsorted_indices, packed.unsorted_indices)


def test_held_ticks_are_the_output_of_forward(kind):
    rnn = CLOCKWORK[kind](2, 9, num_layers=2)
    x = torch.randn(40, 3, 2)
    ticks, h_n = rnn.ticks(x)
    output, h_expected = rnn(x)
    assert torch.equal(ticks.hold(), output)
    assert torch.equal(join(h_n), join(h_expected))


@pytest.mark.parametrize("bias", [True, False])
def test_autocast_computes_in_its_dtype(close, bias, kind):
    rnn, readout = CLOCKWORK[kind](2, 9), Readout(9, 3, bias=bias)
    x = torch.randn(7, 2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = readout(rnn.ticks(x)[0]), readout(rnn(x)[0])
    assert found.dtype == expected.dtype == torch.bfloat16
    close(found, expected)


def test_the_state_dict_of_a_linear_loads():
    linear, readout = nn.Linear(9, 3), Readout(9, 3)
    readout.load_state_dict(linear.state_dict())
    output = torch.randn(4, 2, 9)
    assert torch.equal(readout(output), linear(output))


@pytest.mark.parametrize("backend", ["auto", "torch", "reference"])
def test_a_weight_on_another_device_is_refused(backend):
    ticks, _ = ClockworkRNN(2, 9, backend=backend).ticks(torch.randn(4, 1, 2))
    with pytest.raises(RuntimeError, match="Ticks and weight are not on the same device: cpu and meta"):
        Readout(9, 3, bias=False, device="meta")(ticks)


def test_a_weight_of_another_width_is_refused():
    ticks, _ = ClockworkRNN(2, 9).ticks(torch.randn(4, 1, 2))
    with pytest.raises(ValueError, match=r"weight must have 9 columns, got shape \(3, 8\)"):
        Readout(8, 3)(ticks)
    with pytest.raises(TypeError, match=r"the Ticks of \(ticks, h_n\) = rnn.ticks\(...\), got: tuple"):
        Readout(9, 3)(ClockworkRNN(2, 9).ticks(torch.randn(4, 1, 2)))


def saved_bytes(function) -> int:
    """The bytes that autograd keeps for backward when `function` runs, each storage counted once."""
    kept, sizes = [], {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        # kept alive, so that no address is used twice
        kept.append(storage)
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function()
    assert result.requires_grad
    return sum(sizes.values())


def test_backward_keeps_a_third_of_the_memory_of_a_dense_network():
    n, modules, T, B, I = 1024, 8, 4096, 8, 32
    x = torch.randn(T, B, I)
    dense, linear = nn.RNN(I, n), nn.Linear(n, 1)
    kept_dense = saved_bytes(lambda: linear(dense(x)[0]))
    rnn, readout = ClockworkRNN(I, n, schedule=modules), Readout(n, 1)
    kept = saved_bytes(lambda: readout(rnn.ticks(x)[0]))
    assert kept <= kept_dense / 3
    # no tensor as large as the held output is kept
    held = T * B * n * x.element_size()
    assert kept < held
