"""Autocast, second-order and forward-mode derivatives, torch.compile and torch.func work with ClockworkRNN."""

import pytest
import torch
import torch.nn.functional as F
from support.rnn_pairs import (
    FORMS,
    PERIODS,
    B,
    I,
    N,
    T,
    arrange_input,
    arrange_state,
    make_pair,
    named_gradients,
    randn,
    run,
    values,
)
from torch.func import functional_call, functionalize, grad, jacfwd, jvp, stack_module_state, vmap
from torch.utils.flop_counter import FlopCounterMode

from cwrnn import ClockworkRNN, LearnedClockworkRNN, Readout, State


@pytest.mark.parametrize("form", FORMS)
def test_autocast_gives_bfloat16_outputs_and_float32_gradients(close, form):
    rnn, ours = make_pair(I, N, 2, batch_first=form == "batch_first", bidirectional=True, dtype=torch.float32)
    x = torch.randn(T, B, I, requires_grad=True)
    hx = torch.randn(4, B, N)
    arguments = arrange_input(form, x), arrange_state(form, hx)
    expected, expected_h, expected_loss = run(ours, *arguments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        theirs, theirs_h = rnn(*arguments)
        output, h_n, loss = run(ours, *arguments)
    assert values(output).dtype == values(theirs).dtype == torch.bfloat16
    assert h_n.dtype == theirs_h.dtype
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


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize(("periods", "t0"), [((1,), 0), ((1, 2), 1), ((2, 3), 5)], ids=str)
def test_second_order_gradients_equal_finite_differences(nonlinearity, periods, t0):
    layer = ClockworkRNN(2, 3, nonlinearity=nonlinearity, schedule=periods, dtype=torch.float64)
    names = [name for name, _ in layer.named_parameters()]
    # finite differences must not move forbidden weights
    mask = torch.from_numpy(layer.schedule.mask())

    def call(x, hx, *parameters):
        parameters = dict(zip(names, parameters, strict=True))
        parameters["weight_hh_l0"] = parameters["weight_hh_l0"] * mask
        return functional_call(layer, parameters, (x, hx), {"t0": t0})

    leaves = [randn(4, 2, 2), randn(1, 2, 3), *(p.detach().clone() for p in layer.parameters())]
    assert torch.autograd.gradgradcheck(call, [leaf.requires_grad_() for leaf in leaves])


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize(("num_layers", "bidirectional"), [(1, False), (2, True)])
def test_second_order_gradients_equal_torchs(close, nonlinearity, num_layers, bidirectional):
    rnn, ours = make_pair(I, N, num_layers, nonlinearity, bidirectional=bidirectional)
    x = randn(T, B, I, requires_grad=True)
    hx = randn(num_layers * (2 if bidirectional else 1), B, N, requires_grad=True)
    results = []
    for layer in (rnn, ours):
        loss = run(layer, x, hx)[-1]
        leaves = [x, hx, *(p for name, p in layer.named_parameters() if "bias_hh" not in name)]
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        penalty = sum((gradient.square().sum() for gradient in first), start=torch.zeros((), dtype=torch.float64))
        results.append(torch.autograd.grad(penalty, leaves))
    for expected, actual in zip(*results, strict=True):
        assert expected.count_nonzero() > 0
        close(actual, expected)


# torch's own forward mode goes through torch.jit
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_forward_mode_equals_torchs(close, nonlinearity):
    rnn, ours = make_pair(I, N, nonlinearity=nonlinearity)
    primals, tangents = (randn(T, B, I), randn(1, B, N)), (randn(T, B, I), randn(1, B, N))
    weight_tangent = randn(N, N)
    results = []
    for layer in (rnn, ours):

        def call(x, hx, weight, layer=layer):
            return functional_call(layer, {"weight_hh_l0": weight}, (x, hx))

        weight = layer.weight_hh_l0.detach()
        results.append(jvp(call, (*primals, weight), (*tangents, weight_tangent))[1])
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
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "aot_eager_decomp_partition"])
@pytest.mark.parametrize("periods", PERIODS, ids=str)
def test_a_compiled_layer_equals_the_eager_one(close, periods, backend):
    """Dynamo cannot compile torch.nn.RNN into one graph, so this tests ClockworkRNN only.

    The backends are the stages of inductor: the trace, the two graphs of autograd, and their decomposition. Its last
    stage compiles the graphs as C++; it is left out because it takes most of a minute.
    """
    layer = ClockworkRNN(I, 9, 2, schedule=periods, dtype=torch.float64)
    arguments = randn(23, B, I, requires_grad=True), randn(2, B, 9, requires_grad=True)
    check_compiled(close, backend, layer, *arguments, t0=5)


@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_bidirectional_layer_equals_the_eager_one(close):
    layer = ClockworkRNN(I, 9, bidirectional=True, batch_first=True, schedule=(1, 2, 4), dtype=torch.float64)
    check_compiled(close, "aot_eager", layer, randn(B, 23, I, requires_grad=True))


@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_layer_accepts_chunks_of_any_length(close):
    """Neither the start time nor the length of a chunk is a constant of the graph."""
    layer = ClockworkRNN(I, 9, schedule=(1, 2, 4), dtype=torch.float64)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    x = randn(60, B, I)
    outputs, h, t = [], torch.zeros(1, B, 9, dtype=torch.float64), 0
    for chunk in x.split((23, 9, 14, 14)):
        with torch.no_grad():
            output, h = compiled(chunk, h, t0=t)
        outputs.append(output)
        t += len(chunk)
    expected, expected_h = layer(x)
    close(torch.cat(outputs), expected)
    close(h, expected_h)


def make_replicas(periods):
    """Return three layers, and their stacked parameters. torch.nn.RNN has no batching rule, so it is not tested."""
    replicas = [ClockworkRNN(I, 9, 2, schedule=periods, dtype=torch.float64) for _ in range(3)]
    parameters, _ = stack_module_state(replicas)
    return replicas, parameters


@pytest.mark.parametrize("shared", [False, True], ids=["own input", "shared input"])
@pytest.mark.parametrize("t0", [0, 5])
@pytest.mark.parametrize("periods", PERIODS, ids=str)
def test_vmap_over_replicas_equals_a_loop(close, periods, t0, shared):
    """Outputs and gradients are those of the replicas one by one."""
    replicas, parameters = make_replicas(periods)
    x = randn(*(() if shared else (3,)), 23, B, I, requires_grad=True)
    hx = randn(3, 2, B, 9, requires_grad=True)

    def call(parameters, x, hx):
        return functional_call(replicas[0], parameters, (x, hx), {"t0": t0})

    output, h_n = vmap(call, in_dims=(0, None if shared else 0, 0))(parameters, x, hx)
    weights = randn(23, B, 9), randn(2, B, 9)
    leaves = [x, hx, *parameters.values()]
    actual = torch.autograd.grad((output.sin() * weights[0]).sum() + (h_n.cos() * weights[1]).sum(), leaves)

    expected = []
    for s, replica in enumerate(replicas):
        own, own_h = replica(x if shared else x[s], hx[s], t0=t0)
        close(output[s], own)
        close(h_n[s], own_h)
        loss = (own.sin() * weights[0]).sum() + (own_h.cos() * weights[1]).sum()
        expected.append(torch.autograd.grad(loss, [x, hx, *replica.parameters()]))
    for i, (gradient, *own) in enumerate(zip(actual, *expected, strict=True)):
        # all replicas read the first two leaves, so their gradients add up
        close(gradient, torch.stack(own).sum(0) if i < 2 else torch.stack(own))


@pytest.mark.parametrize("t0", [0, 5])
@pytest.mark.parametrize("periods", PERIODS, ids=str)
def test_grad_inside_vmap_equals_a_loop(close, periods, t0):
    replicas, parameters = make_replicas(periods)
    x, hx = randn(23, B, I), randn(3, 2, B, 9)
    weights = randn(23, B, 9), randn(2, B, 9)

    def loss(parameters, x, hx):
        output, h_n = functional_call(replicas[0], parameters, (x, hx), {"t0": t0})
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


def test_vmap_over_inputs_equals_a_larger_batch(close):
    """All sequences share the parameters, so the mapped axis is one more axis of the batch."""
    layer = ClockworkRNN(I, 9, schedule=(1, 2, 4), dtype=torch.float64)
    x = randn(6, 23, B, I)
    output, h_n = vmap(layer)(x)
    expected, expected_h = layer(x.movedim(0, 1).flatten(1, 2))
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
def test_the_hessian_equals_that_of_the_specification(close):
    layer = ClockworkRNN(2, 4, schedule=(1, 2), dtype=torch.float64)
    specified = ClockworkRNN(2, 4, schedule=(1, 2), dtype=torch.float64, backend="reference")
    x = randn(5, 1, 2)

    def loss(layer, bias):
        parameters = dict(specified.named_parameters()) | {"bias_l0": bias}
        return functional_call(layer, parameters, (x,))[0].square().sum()

    bias = randn(4)
    found, expected = (torch.func.hessian(lambda bias, at=at: loss(at, bias))(bias) for at in (layer, specified))
    close(found, expected)


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("periods", PERIODS, ids=str)
def test_batched_gradients_equal_single_ones(close, periods, backend):
    """torch.autograd.grad maps `is_grads_batched` by other means than torch.func, and so does `vectorize`."""
    layer = ClockworkRNN(I, 9, schedule=periods, dtype=torch.float64, backend=backend)
    wanted = list(layer.parameters())
    for outputs in layer(randn(15, B, I), t0=2):
        directions = randn(4, *outputs.shape)
        mapped = torch.autograd.grad(outputs, wanted, directions, retain_graph=True, is_grads_batched=True)
        for s, direction in enumerate(directions):
            single = torch.autograd.grad(outputs, wanted, direction, retain_graph=True)
            for value, expected in zip(mapped, single, strict=True):
                close(value[s], expected)


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_vectorized_jacobians_and_hessians_equal_plain_ones(close, backend):
    layer = ClockworkRNN(2, 4, schedule=(1, 2), dtype=torch.float64, backend=backend).requires_grad_(False)
    x = randn(5, 2, 2)

    def loss(x):
        output, h_n = layer(x)
        return output.square().sum() + h_n.sin().sum()

    jacobian, hessian = torch.autograd.functional.jacobian, torch.autograd.functional.hessian
    close(jacobian(lambda x: layer(x)[0], x, vectorize=True), jacobian(lambda x: layer(x)[0], x))
    close(hessian(loss, x, vectorize=True), hessian(loss, x))


@pytest.mark.parametrize("kind", ["auto", "torch", "reference", "learned"])
def test_gradcheck_accepts_batched_gradients(kind):
    """The check covers the output, the readout of the ticks and the final state, with lengths and a state."""
    if kind == "learned":
        layer = LearnedClockworkRNN(2, 3, dtype=torch.float64)

        def call(x, hx, weight):
            output, h_n = layer(x, hx)
            return F.linear(output, weight), h_n
    else:
        layer = ClockworkRNN(2, 3, schedule=(2, 3), dtype=torch.float64, backend=kind)
        lengths = torch.tensor([4, 2])

        def call(x, hx, weight):
            output, h_n = layer(x, hx, t0=1)
            ticks, shorter_h_n = layer.ticks(x, hx, t0=1, lengths=lengths)
            return output, h_n, ticks.linear(weight), shorter_h_n

    leaves = [randn(*shape, requires_grad=True) for shape in ((4, 2, 2), (1, 2, 3), (2, 3))]
    assert torch.autograd.gradcheck(call, leaves, check_batched_grad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, leaves, check_batched_grad=True, fast_mode=True)


# torch's own forward mode goes through torch.jit
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("backend", ["auto", "torch", "reference"])
def test_gradcheck_accepts_forward_mode(backend):
    layer = ClockworkRNN(2, 3, schedule=(1, 2), dtype=torch.float64, backend=backend)

    def call(x, hx, weight):
        ticks, h_n = layer.ticks(x, hx, t0=1)
        output, state = layer.step(x[0], State(hx, 1))
        return ticks.linear(weight), h_n, output, state.h

    leaves = [randn(*shape, requires_grad=True) for shape in ((4, 2, 2), (1, 2, 3), (2, 3))]
    options = {"check_forward_ad": True, "check_batched_forward_grad": True, "fast_mode": True}
    assert torch.autograd.gradcheck(call, leaves, **options)
    assert torch.autograd.gradgradcheck(call, leaves, check_fwd_over_rev=True, fast_mode=True)


# torch's own forward mode goes through torch.jit
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_forward_mode_twice_equals_that_of_the_specification(close, backend, nonlinearity):
    options = {"schedule": (1, 2), "dtype": torch.float64, "nonlinearity": nonlinearity}
    specified = ClockworkRNN(2, 4, **options, backend="reference")
    layer = ClockworkRNN(2, 4, **options, backend=backend)
    layer.load_state_dict(specified.state_dict())
    x, hx = randn(5, 1, 2), randn(1, 1, 4)
    for wanted in (0, 1):
        found, expected = (
            jacfwd(jacfwd(lambda *inputs, at=at: at(*inputs)[0].sin().sum(), argnums=wanted), argnums=wanted)(x, hx)
            for at in (layer, specified)
        )
        assert expected.count_nonzero() > 0
        close(found, expected)


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_vmap_under_a_dispatch_mode_equals_vmap(close, backend):
    """The operators have no rule for torch.func, so the call is that of the cascade."""
    layer = ClockworkRNN(I, 9, schedule=(1, 2), dtype=torch.float64, backend=backend)
    x = randn(3, T, B, I)
    with FlopCounterMode(display=False) as counter:
        output, h_n = vmap(layer)(x)
    expected, expected_h = vmap(layer)(x)
    close(output, expected)
    close(h_n, expected_h)
    assert counter.get_total_flops() > 0


@pytest.mark.parametrize("backend", ["auto", "torch", "reference"])
def test_functionalized_calls_equal_plain_ones(close, backend):
    layer = ClockworkRNN(I, 9, schedule=(1, 2), dtype=torch.float64, backend=backend)
    readout = Readout(9, 2, dtype=torch.float64)
    x = randn(3, T, B, I)

    def read(x):
        return readout(layer.ticks(x)[0]).sin().sum()

    for call in (lambda x: layer(x[0])[0], lambda x: layer.step(x[0, 0])[0], lambda x: grad(read)(x[0]), vmap(read)):
        close(functionalize(call)(x), call(x))
    close(vmap(functionalize(read))(x), vmap(read)(x))
