"""The CPU kernels never read memory that a tensor does not have.

torch makes tensors of zeros without memory in forward-mode AD, and FSDP frees the storage of weights between two uses.
"""

import pytest
import torch
from torch import nn

from cwrnn import ClockworkRNN, State
from cwrnn.kernels import operators, replicas
from cwrnn.kernels.cpu import loader, lstm, readout, sequence
from cwrnn.schedule import Schedule

pytestmark = pytest.mark.skipif(loader.current_isa() is None, reason="the kernel was not built")

T, B, I, N, S = 6, 3, 2, 4, 3
SCHEDULE = Schedule((1, 2), (2, 2))
SETTINGS = SCHEDULE, 1, "tanh"
NOT_ALLOCATED = "non-zero number of elements, but its data is not allocated"
SHAPES = {
    "sequence": {"input": (T, B, I), "weight_ih": (N, I), "weight_hh": (N, N), "bias": (N,), "h0": (B, N)},
    "replicas": {"input": (S, T, I), "weight_ih": (S, N, I), "weight_hh": (S, N, N), "bias": (S, N)},
    "lstm": {
        **{"input": (S, T, I), "weight_ih": (S, 4 * N, I), "weight_hh": (S, 4 * N, N)},
        **{"weight_ch": (S, 3, N), "bias": (S, 4 * N)},
    },
    "readout": {"hidden": (S, T, N), "weight": (S, 2, N), "bias": (S, 2)},
}
NAMES = [(kernel, name) for kernel, shapes in SHAPES.items() for name in shapes]


def make_zeros(*shape):
    zeros = torch._efficientzerotensor(shape)
    assert zeros.data_ptr() == 0
    return zeros


def free(tensor):
    tensor.untyped_storage().resize_(0)
    return tensor


def make_freed_half(*shape):
    """Makes a tensor in the middle of a storage that was freed: its address is not 0."""
    first, second = torch.randn(2, *shape)
    free(first)
    assert second.data_ptr() > 0
    return second


def make_freed_view(*shape):
    """Makes a tensor that must be copied before a kernel can read it, and cannot be."""
    return free(torch.randn(*shape[:-1], 2 * shape[-1])[..., ::2])


FREED = {"whole": lambda *shape: free(torch.randn(shape)), "half": make_freed_half}


def run_kernel(kernel, tensors):
    """Runs a kernel on `tensors`, and returns all that it computes."""
    if kernel == "sequence":
        lengths = torch.tensor([6, 2, 5])
        return sequence.forward(*tensors.values(), lengths, *SETTINGS, True)
    if kernel == "replicas":
        return replicas.run_replicas(*tensors.values(), SCHEDULE)
    return {"lstm": lstm, "readout": readout}[kernel].run(*tensors.values())


def make_tensors(kernel):
    return {name: torch.randn(shape) for name, shape in SHAPES[kernel].items()}


@pytest.mark.parametrize(("kernel", "name"), NAMES)
def test_zeros_without_memory_compute_as_zeros_with_memory(kernel, name):
    tensors = make_tensors(kernel)
    shape = SHAPES[kernel][name]
    actual = run_kernel(kernel, tensors | {name: make_zeros(*shape)})
    torch.testing.assert_close(actual, run_kernel(kernel, tensors | {name: torch.zeros(shape)}), rtol=0, atol=0)


@pytest.mark.parametrize("make", FREED.values(), ids=list(FREED))
@pytest.mark.parametrize(("kernel", "name"), NAMES)
def test_a_freed_tensor_is_an_error_that_names_it(kernel, name, make):
    tensors = make_tensors(kernel)
    # run_replicas makes a view of the input, which torch refuses
    with pytest.raises(RuntimeError, match=f"^{name} has a {NOT_ALLOCATED}|^setStorage"):
        run_kernel(kernel, tensors | {name: make(*SHAPES[kernel][name])})


@pytest.mark.parametrize(("kernel", "name"), NAMES)
def test_a_freed_tensor_is_not_copied(kernel, name):
    """torch itself copies it without a check."""
    with pytest.raises(RuntimeError, match=f"{NOT_ALLOCATED}|^setStorage"):
        run_kernel(kernel, make_tensors(kernel) | {name: make_freed_view(*SHAPES[kernel][name])})


@pytest.mark.parametrize(("kernel", "name"), NAMES)
def test_a_weight_freed_before_backward_is_an_error(kernel, name):
    tensors = {key: value.requires_grad_() for key, value in make_tensors(kernel).items()}
    if kernel == "sequence":
        layer = ClockworkRNN(I, N, schedule=SCHEDULE, backend="cpu")
        for own in (set(tensors) - {"input", "h0"}) & {name}:
            tensors[own] = getattr(layer, f"{own}_l0")
        output, _ = layer(tensors["input"], tensors["h0"][None])
    else:
        output = run_kernel(kernel, tensors)
    # the state is copied into the ticks, and backward does not read the bias
    if name in ("h0", "bias"):
        return
    with torch.no_grad():
        free(tensors[name])
    with pytest.raises(RuntimeError, match=f"{name} has a {NOT_ALLOCATED}"):
        output.sum().backward()


@pytest.mark.parametrize("given", ["output", "h_n", "ticks"])
def test_gradients_without_memory_are_zeros_and_freed_ones_an_error(given):
    layer = ClockworkRNN(I, N, schedule=SCHEDULE, backend="cpu")
    x = torch.randn(T, B, I)
    ticks, h_n = layer.ticks(x)
    (run,) = ticks.passes
    outputs = {"output": layer(x)[0], "h_n": h_n, "ticks": run.ticks}
    output = outputs[given]
    gradients = torch.autograd.grad(output, list(layer.parameters()), make_zeros(*output.shape), retain_graph=True)
    assert all(gradient.count_nonzero() == 0 for gradient in gradients)
    for make in FREED.values():
        with pytest.raises(RuntimeError, match=f"^gradient_of_{given} has a {NOT_ALLOCATED}"):
            torch.autograd.grad(output, list(layer.parameters()), make(*output.shape), retain_graph=True)


@pytest.mark.parametrize("name", ["input", "weight_ih", "weight_hh", "bias", "h0"])
def test_the_operators_check_the_memory_of_their_tensors(name):
    tensors = make_tensors("sequence")
    rest = None, SCHEDULE.periods, SCHEDULE.sizes, 1, "tanh", True
    shape = SHAPES["sequence"][name]
    zeros = tensors | {name: torch.zeros(shape)}
    expected = operators.recurrence(*zeros.values(), *rest)
    actual = operators.recurrence(*(tensors | {name: make_zeros(*shape)}).values(), *rest)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match=NOT_ALLOCATED):
        operators.recurrence(*(tensors | {name: make_freed_half(*shape)}).values(), *rest)


def test_lengths_that_were_freed_are_an_error():
    lengths = free(torch.tensor([6, 2, 5]))
    with pytest.raises(RuntimeError, match=f"^lengths has a {NOT_ALLOCATED}"):
        sequence.forward(*make_tensors("sequence").values(), lengths, *SETTINGS, True)


@torch.no_grad()
@pytest.mark.parametrize("earlier", [0, 1, 2])
@pytest.mark.parametrize("name", ["input", "h"])
def test_a_step_reads_zeros_without_memory_and_refuses_freed_tensors(name, earlier):
    """The steps after the second take the shortest way to the kernel."""
    layer = ClockworkRNN(I, N, schedule=SCHEDULE, backend="cpu")
    plain = ClockworkRNN(I, N, schedule=SCHEDULE, backend="torch")
    plain.load_state_dict(layer.state_dict())

    def step(make, layer):
        state = State(torch.randn(1, B, N, generator=torch.Generator().manual_seed(0)), 3)
        x = torch.ones(B, I)
        for _ in range(earlier):
            _, state = layer.step(x, state)
        if name == "input":
            return layer.step(make(B, I), state)
        if earlier > 0:
            kept, state = state, type(state)(make(1, B, N), state.t)
            # only a state of the kernel has messages
            if layer.backend == "cpu":
                state.__dict__.update(kept.__dict__ | {"joined": state.h})
            return layer.step(x, state)
        return layer.step(x, State(make(1, B, N), 3))

    torch.testing.assert_close(step(make_zeros, layer)[0], step(make_zeros, plain)[0])
    for make in FREED.values():
        with pytest.raises(RuntimeError, match=f"{NOT_ALLOCATED}|setStorage"):
            step(make, layer)


@torch.no_grad()
@pytest.mark.parametrize("earlier", [0, 1, 2])
@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0", "bias_l0"])
def test_a_step_refuses_freed_weights(name, earlier):
    layer, state = ClockworkRNN(I, N, schedule=SCHEDULE, backend="cpu"), None
    for _ in range(earlier):
        _, state = layer.step(torch.ones(B, I), state)
    free(getattr(layer, name))
    with pytest.raises(RuntimeError, match=NOT_ALLOCATED):
        layer.step(torch.ones(B, I), state)


@torch.no_grad()
@pytest.mark.parametrize("make", [make_zeros, lambda *shape: torch._neg_view(torch.randn(shape))], ids=["zero", "neg"])
@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0", "bias_l0"])
def test_layers_read_weights_of_any_kind(name, make):
    """A step with negated weights did not end, because it compared them with their negative."""
    layer = ClockworkRNN(I, N, schedule=SCHEDULE, backend="cpu")
    plain = ClockworkRNN(I, N, schedule=SCHEDULE, backend="torch")
    layer._parameters[name] = nn.Parameter(make(*getattr(layer, name).shape))
    plain._parameters.update(layer._parameters)
    x = torch.randn(T, B, I)
    torch.testing.assert_close(layer(x), plain(x))
    states = [None, None]
    for frame in x:
        (actual, states[0]), (expected, states[1]) = layer.step(frame, states[0]), plain.step(frame, states[1])
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("name", ["input", "weight_ih", "weight_hh", "bias", "h0"])
def test_sparse_tensors_are_refused_by_their_layout(name):
    tensors = make_tensors("sequence")
    with pytest.raises(RuntimeError, match="dense tensors only, got one with the layout torch.sparse_coo"):
        sequence.forward(*(tensors | {name: tensors[name].to_sparse()}).values(), None, *SETTINGS, True)
