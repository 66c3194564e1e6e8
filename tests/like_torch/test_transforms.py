"""Autocast, second-order and forward-mode derivatives, torch.compile and torch.func work with all layers."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from support.rnn_pairs import (
    CELLS,
    CLOCKWORK,
    FORMS,
    LENGTHS,
    MAKERS,
    PERIODS,
    B,
    I,
    N,
    T,
    arrange_input,
    arrange_state,
    as_hidden,
    call,
    is_lstm,
    join,
    make_pair,
    named_gradients,
    randn,
    run,
    values,
)
from torch.func import functional_call, functionalize, grad, jacfwd, jvp, stack_module_state, vmap
from torch.utils.flop_counter import FlopCounterMode

from cwrnn import ClockworkRNN, LearnedClockworkRNN, LSTMState, Readout, State


@pytest.mark.parametrize("form", FORMS)
def test_autocast_gives_bfloat16_outputs_and_float32_gradients(close, form, kind):
    options = {"batch_first": form == "batch_first", "bidirectional": True, "dtype": torch.float32}
    rnn, ours = make_pair(I, N, 2, kind=kind, **options)
    x = torch.randn(T, B, I, requires_grad=True)
    hx = torch.randn(4, B, N)
    arguments = arrange_input(form, x), arrange_state(form, hx)
    expected, expected_h, expected_loss = run(ours, *arguments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        theirs, theirs_h = call(rnn, *arguments)
        output, h_n, loss = run(ours, *arguments)
    assert values(output).dtype == h_n.dtype == torch.bfloat16
    # torch's GRU, and its LSTM with a packed sequence, ignore autocast on the CPU
    if kind == "RNN" or (kind == "LSTM" and form not in LENGTHS):
        assert values(theirs).dtype == theirs_h.dtype == torch.bfloat16
    close(values(output), values(expected).bfloat16())
    close(h_n, expected_h.bfloat16())
    wanted = named_gradients(ours, expected_loss, {"input": x})
    for name, gradient in named_gradients(ours, loss, {"input": x}).items():
        assert gradient.dtype == torch.float32, name
        close(gradient.bfloat16(), wanted[name].bfloat16())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_autocast_keeps_float64_and_accepts_bfloat16_inputs(make, dtype):
    """Autocast never converts float64, and a bfloat16 input is accepted by float32 weights."""
    layer = make(I, N, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = layer(torch.randn(T, B, I, dtype=dtype))
    assert output.dtype == dtype


@pytest.mark.parametrize(
    ("cell", "periods", "t0"),
    [
        *((cell, *clock) for cell in ("tanh", "relu") for clock in (((1,), 0), ((1, 2), 1), ((2, 3), 5))),
        ("peepholes", (2, 3), 5),
        ("gru", (1, 2), 1),
    ],
    ids=str,
)
def test_second_order_gradients_equal_finite_differences(cell, periods, t0):
    layer = MAKERS[cell](2, 3, schedule=periods, dtype=torch.float64)
    names = [name for name, _ in layer.named_parameters()]
    # finite differences must not move forbidden weights
    mask = torch.from_numpy(layer.schedule.mask()).repeat(len(layer.weight_hh_l0) // 3, 1)

    def compute(x, hx, *parameters):
        parameters = dict(zip(names, parameters, strict=True))
        parameters["weight_hh_l0"] = parameters["weight_hh_l0"] * mask
        output, hidden = functional_call(layer, parameters, (x, as_hidden(layer, hx)), {"t0": t0})
        return output, join(hidden)

    leaves = [randn(4, 2, 2), randn(1, 2, 3), *(p.detach().clone() for p in layer.parameters())]
    fast = layer.cell in ("lstm", "gru")
    assert torch.autograd.gradgradcheck(compute, [leaf.requires_grad_() for leaf in leaves], fast_mode=fast)


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize(("num_layers", "bidirectional"), [(1, False), (2, True)])
def test_second_order_gradients_equal_torchs(close, kind, num_layers, bidirectional):
    rnn, ours = make_pair(I, N, num_layers, kind=kind, bidirectional=bidirectional)
    x = randn(T, B, I, requires_grad=True)
    hx = randn(num_layers * (2 if bidirectional else 1), B, N, requires_grad=True)
    results = []
    for layer in (rnn, ours):
        loss = run(layer, x, hx)[-1]
        # torch's two biases would count twice in the penalty
        leaves = [x, hx, *(p for name, p in layer.named_parameters() if "bias" not in name)]
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        penalty = sum((gradient.square().sum() for gradient in first), start=torch.zeros((), dtype=torch.float64))
        results.append(torch.autograd.grad(penalty, leaves))
    for expected, actual in zip(*results, strict=True):
        assert expected.count_nonzero() > 0
        close(actual, expected)


# torch's own forward mode goes through torch.jit
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", CELLS)
def test_forward_mode_equals_torchs(close, kind):
    rnn, ours = make_pair(I, N, kind=kind)
    primals, tangents = (randn(T, B, I), randn(1, B, N)), (randn(T, B, I), randn(1, B, N))
    weight_tangent = randn(*ours.weight_hh_l0.shape)
    results = []
    for layer in (rnn, ours):

        def compute(x, hx, weight, layer=layer):
            output, hidden = functional_call(layer, {"weight_hh_l0": weight}, (x, as_hidden(layer, hx)))
            return output, join(hidden)

        weight = layer.weight_hh_l0.detach()
        results.append(jvp(compute, (*primals, weight), (*tangents, weight_tangent))[1])
    for expected, actual in zip(*results, strict=True):
        close(actual, expected)


@pytest.fixture
def fresh_compiler():
    """Drop the graphs of other tests, which count towards Dynamo's limit of recompilations."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def check_compiled(close, backend, layer, *arguments, **clock):
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    leaves = [*arguments, *layer.parameters()]
    results = []
    # the compiled call comes first: it must not need anything that an eager call leaves behind
    for each in (compiled, layer):
        *outputs, loss = run(each, *arguments, **clock)
        results.append([*outputs, *torch.autograd.grad(loss, leaves)])
    for actual, expected in zip(*results, strict=True):
        close(actual, expected)


@pytest.mark.usefixtures("fresh_compiler")
# inductor itself imports torch.jit
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
# Dynamo looks at the gradient of the c that is computed from h
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize(
    ("kind", "periods", "backend"),
    [
        *product(["RNN"], PERIODS, ["eager", "aot_eager", "aot_eager_decomp_partition"]),
        ("LSTM", (2, 3, 7), "aot_eager_decomp_partition"),
        ("GRU", (2, 3, 7), "aot_eager_decomp_partition"),
    ],
    ids=str,
)
def test_a_compiled_layer_equals_the_eager_one(close, kind, periods, backend):
    """Dynamo cannot compile the layers of torch into one graph, so this tests ours only.

    The backends are the stages of inductor: the trace, the two graphs of autograd, and their decomposition. Its last
    stage compiles the graphs as C++; it is left out because it takes most of a minute.
    """
    layer = CLOCKWORK[kind](I, 9, 2, schedule=periods, dtype=torch.float64)
    arguments = randn(23, B, I, requires_grad=True), randn(2, B, 9, requires_grad=True)
    check_compiled(close, backend, layer, *arguments, t0=5)


@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_bidirectional_layer_equals_the_eager_one(close):
    layer = ClockworkRNN(I, 9, bidirectional=True, batch_first=True, schedule=(1, 2, 4), dtype=torch.float64)
    check_compiled(close, "aot_eager", layer, randn(B, 23, I, requires_grad=True))


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("kind", ["RNN", "LSTM"])
def test_a_compiled_layer_accepts_chunks_of_any_length(close, kind):
    """Neither the start time nor the length of a chunk is a constant of the graph."""
    layer = CLOCKWORK[kind](I, 9, schedule=(1, 2, 4), dtype=torch.float64)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    x = randn(60, B, I)
    outputs, h, t = [], as_hidden(layer, torch.zeros(1, B, 9, dtype=torch.float64)), 0
    for chunk in x.split((23, 9, 14, 14)):
        with torch.no_grad():
            output, h = compiled(chunk, h, t0=t)
        outputs.append(output)
        t += len(chunk)
    expected, expected_h = call(layer, x)
    close(torch.cat(outputs), expected)
    close(join(h), expected_h)


def make_replicas(periods, kind, backend="auto"):
    """Return three layers, and their stacked parameters. torch's layers have no batching rule, so none is tested."""
    options = {"schedule": periods, "dtype": torch.float64, "backend": backend}
    replicas = [CLOCKWORK[kind](I, 9, 2, **options) for _ in range(3)]
    parameters, _ = stack_module_state(replicas)
    return replicas, parameters


@pytest.mark.parametrize("shared", [False, True], ids=["own input", "shared input"])
@pytest.mark.parametrize("t0", [0, 5])
@pytest.mark.parametrize("periods", PERIODS, ids=str)
@pytest.mark.parametrize(("kind", "backend"), [("RNN", "auto"), ("RNN", "torch"), ("LSTM", "auto"), ("GRU", "auto")])
def test_vmap_over_replicas_equals_a_loop(close, periods, t0, shared, kind, backend):
    """Outputs and gradients are those of the replicas one by one."""
    replicas, parameters = make_replicas(periods, kind, backend)
    x = randn(*(() if shared else (3,)), 23, B, I, requires_grad=True)
    hx = randn(3, 2, B, 9, requires_grad=True)

    def compute(parameters, x, hx):
        output, hidden = functional_call(replicas[0], parameters, (x, as_hidden(replicas[0], hx)), {"t0": t0})
        return output, join(hidden)

    output, h_n = vmap(compute, in_dims=(0, None if shared else 0, 0))(parameters, x, hx)
    weights = randn(23, B, 9), randn(*h_n.shape[1:])
    leaves = [x, hx, *parameters.values()]
    actual = torch.autograd.grad((output.sin() * weights[0]).sum() + (h_n.cos() * weights[1]).sum(), leaves)

    expected = []
    for s, replica in enumerate(replicas):
        own, own_h = call(replica, x if shared else x[s], hx[s], t0=t0)
        close(output[s], own)
        close(h_n[s], own_h)
        loss = (own.sin() * weights[0]).sum() + (own_h.cos() * weights[1]).sum()
        expected.append(torch.autograd.grad(loss, [x, hx, *replica.parameters()]))
    for i, (gradient, *own) in enumerate(zip(actual, *expected, strict=True)):
        # all replicas read the first two leaves, so their gradients add up
        close(gradient, torch.stack(own).sum(0) if i < 2 else torch.stack(own))


@pytest.mark.parametrize("t0", [0, 5])
@pytest.mark.parametrize("periods", PERIODS, ids=str)
def test_grad_inside_vmap_equals_a_loop(close, periods, t0, kind):
    replicas, parameters = make_replicas(periods, kind)
    x, hx = randn(23, B, I), randn(3, 2, B, 9)
    weights = randn(23, B, 9), randn(2, B, 18 if kind == "LSTM" else 9)

    def loss(parameters, x, hx):
        output, hidden = functional_call(replicas[0], parameters, (x, as_hidden(replicas[0], hx)), {"t0": t0})
        h_n = join(hidden)
        return (output.sin() * weights[0]).sum() + (h_n.cos() * weights[1]).sum()

    gradients, x_gradients, hx_gradients = vmap(grad(loss, argnums=(0, 1, 2)), in_dims=(0, None, 0))(parameters, x, hx)
    x = x.requires_grad_()
    hx = hx.requires_grad_()
    for s, replica in enumerate(replicas):
        own = {name: p.detach().requires_grad_() for name, p in replica.named_parameters()}
        expected = torch.autograd.grad(loss(own, x, hx[s]), [x, hx, *own.values()])
        close(x_gradients[s], expected[0])
        close(hx_gradients[s], expected[1][s])
        for name, gradient in zip(own, expected[2:], strict=True):
            close(gradients[name][s], gradient, msg=lambda text, name=name: f"{name}: {text}")


def test_vmap_over_inputs_equals_a_larger_batch(close, kind):
    """All sequences share the parameters, so the mapped axis is one more axis of the batch."""
    layer = CLOCKWORK[kind](I, 9, schedule=(1, 2, 4), dtype=torch.float64)
    x = randn(6, 23, B, I)
    output, h_n = vmap(lambda x: call(layer, x))(x)
    expected, expected_h = call(layer, x.movedim(0, 1).flatten(1, 2))
    close(output.movedim(0, 1).flatten(1, 2), expected)
    close(h_n.movedim(0, 1).flatten(1, 2), expected_h)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("periods", PERIODS, ids=str)
def test_derivatives_inside_a_compiled_function_equal_eager_ones(close, periods):
    """Custom operators have no rule for torch.func: one in the graph would silently drop the tangent."""
    layer = ClockworkRNN(I, 9, schedule=periods, dtype=torch.float64)
    x, tangent = randn(15, B, I), randn(15, B, I)

    def forward_mode(x):
        return jvp(lambda x: layer(x)[0], (x,), (tangent,))[1]

    def reverse_mode(x):
        return grad(lambda x: layer(x)[0].sin().sum())(x)

    for function in (forward_mode, reverse_mode):
        expected = function(x)
        assert expected.count_nonzero() > 0
        close(torch.compile(function, fullgraph=True, backend="eager")(x), expected)


# torch's own forward mode goes through torch.jit
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_the_hessian_equals_that_of_the_specification(close, kind):
    layer = CLOCKWORK[kind](2, 4, schedule=(1, 2), dtype=torch.float64)
    specified = CLOCKWORK[kind](2, 4, schedule=(1, 2), dtype=torch.float64, backend="reference")
    x = randn(5, 1, 2)

    def loss(layer, bias):
        parameters = dict(specified.named_parameters()) | {"bias_l0": bias}
        return functional_call(layer, parameters, (x,))[0].square().sum()

    bias = randn(*layer.bias_l0.shape)
    found, expected = (torch.func.hessian(lambda bias, at=at: loss(at, bias))(bias) for at in (layer, specified))
    close(found, expected)


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("periods", PERIODS, ids=str)
def test_batched_gradients_equal_single_ones(close, periods, backend, kind):
    """torch.autograd.grad maps `is_grads_batched` by other means than torch.func, and so does `vectorize`."""
    layer = CLOCKWORK[kind](I, 9, schedule=periods, dtype=torch.float64, backend=backend)
    wanted = list(layer.parameters())
    for outputs in call(layer, randn(15, B, I), t0=2):
        directions = randn(4, *outputs.shape)
        mapped = torch.autograd.grad(outputs, wanted, directions, retain_graph=True, is_grads_batched=True)
        for s, direction in enumerate(directions):
            single = torch.autograd.grad(outputs, wanted, direction, retain_graph=True)
            for value, expected in zip(mapped, single, strict=True):
                close(value[s], expected)


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_vectorized_jacobians_and_hessians_equal_plain_ones(close, backend, kind):
    layer = CLOCKWORK[kind](2, 4, schedule=(1, 2), dtype=torch.float64, backend=backend).requires_grad_(False)
    x = randn(5, 2, 2)

    def loss(x):
        output, h_n = call(layer, x)
        return output.square().sum() + h_n.sin().sum()

    jacobian, hessian = torch.autograd.functional.jacobian, torch.autograd.functional.hessian
    close(jacobian(lambda x: layer(x)[0], x, vectorize=True), jacobian(lambda x: layer(x)[0], x))
    close(hessian(loss, x, vectorize=True), hessian(loss, x))


@pytest.mark.parametrize(
    ("kind", "backend"),
    [
        *product(["RNN"], ["auto", "torch", "reference"]),
        *product(["LSTM", "GRU"], ["auto", "torch"]),
        ("learned", "auto"),
    ],
)
def test_gradcheck_accepts_batched_gradients(kind, backend):
    """The check covers the output, the readout of the ticks and the final state, with lengths and a state."""
    if kind == "learned":
        layer = LearnedClockworkRNN(2, 3, dtype=torch.float64)

        def compute(x, hx, weight):
            output, h_n = layer(x, hx)
            return F.linear(output, weight), h_n
    else:
        layer = CLOCKWORK[kind](2, 3, schedule=(2, 3), dtype=torch.float64, backend=backend)
        lengths = torch.tensor([4, 2])

        def compute(x, hx, weight):
            output, h_n = call(layer, x, hx, t0=1)
            ticks, shorter_h_n = layer.ticks(x, as_hidden(layer, hx), t0=1, lengths=lengths)
            return output, h_n, ticks.linear(weight), join(shorter_h_n)

    leaves = [randn(*shape, requires_grad=True) for shape in ((4, 2, 2), (1, 2, 3), (2, 3))]
    assert torch.autograd.gradcheck(compute, leaves, check_batched_grad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(compute, leaves, check_batched_grad=True, fast_mode=True)


# torch's own forward mode goes through torch.jit
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    ("kind", "backend"),
    [*product(["RNN"], ["auto", "torch", "reference"]), *product(["LSTM", "GRU"], ["auto", "torch"])],
)
def test_gradcheck_accepts_forward_mode(kind, backend):
    layer = CLOCKWORK[kind](2, 3, schedule=(1, 2), dtype=torch.float64, backend=backend)

    def compute(x, hx, weight):
        hidden = as_hidden(layer, hx)
        ticks, after = layer.ticks(x, hidden, t0=1)
        output, state = layer.step(x[0], LSTMState(*hidden, 1) if is_lstm(layer) else State(hidden, 1))
        return ticks.linear(weight), join(after), output, *state[:-1]

    leaves = [randn(*shape, requires_grad=True) for shape in ((4, 2, 2), (1, 2, 3), (2, 3))]
    options = {"check_forward_ad": True, "check_batched_forward_grad": True, "fast_mode": True}
    assert torch.autograd.gradcheck(compute, leaves, **options)
    assert torch.autograd.gradgradcheck(compute, leaves, check_fwd_over_rev=True, fast_mode=True)


# torch's own forward mode goes through torch.jit
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("cell", MAKERS)
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_forward_mode_twice_equals_that_of_the_specification(close, backend, cell):
    options = {"schedule": (1, 2), "dtype": torch.float64}
    specified = MAKERS[cell](2, 4, **options, backend="reference")
    layer = MAKERS[cell](2, 4, **options, backend=backend)
    layer.load_state_dict(specified.state_dict())
    x, hx = randn(5, 1, 2), randn(1, 1, 4)
    for wanted in (0, 1):

        def differentiate(at, wanted=wanted):
            first = jacfwd(lambda *inputs: call(at, *inputs)[0].sin().sum(), argnums=wanted)
            return jacfwd(first, argnums=wanted)(x, hx)

        found, expected = differentiate(layer), differentiate(specified)
        assert expected.count_nonzero() > 0
        close(found, expected)


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_vmap_under_a_dispatch_mode_equals_vmap(close, backend, kind):
    """The operators have no rule for torch.func, so the call is that of the cascade."""
    layer = CLOCKWORK[kind](I, 9, schedule=(1, 2), dtype=torch.float64, backend=backend)
    x, compute = randn(3, T, B, I), vmap(lambda x: call(layer, x))
    with FlopCounterMode(display=False) as counter:
        output, h_n = compute(x)
    expected, expected_h = compute(x)
    close(output, expected)
    close(h_n, expected_h)
    assert counter.get_total_flops() > 0


@pytest.mark.parametrize("backend", ["auto", "torch", "reference"])
def test_functionalized_calls_equal_plain_ones(close, backend, kind):
    layer = CLOCKWORK[kind](I, 9, schedule=(1, 2), dtype=torch.float64, backend=backend)
    readout = Readout(9, 2, dtype=torch.float64)
    x = randn(3, T, B, I)

    def read(x):
        return readout(layer.ticks(x)[0]).sin().sum()

    calls = lambda x: layer(x[0])[0], lambda x: layer.step(x[0, 0])[0], lambda x: grad(read)(x[0]), vmap(read)
    for compute in calls:
        close(functionalize(compute)(x), compute(x))
    close(vmap(functionalize(read))(x), vmap(read)(x))
