"""The operators that torch.compile and torch.export record."""

import pytest
import torch
from support.network_cases import Case

from cwrnn import ClockworkRNN, Schedule, clockwork_reference
from cwrnn.kernels.cpu import loader

pytestmark = pytest.mark.skipif(loader.current_isa() is None, reason="the kernel was not built")


@pytest.mark.parametrize("lengths", [None, torch.tensor([5, 2, 9])])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("hold", [True, False])
# the testing tools of torch warn
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_operator_passes_opcheck(lengths, bias, hold):
    case = Case(Schedule((1, 2, 4), (3, 2, 4)), T=9, B=3, I=2, t0=5, bias=bias)
    arguments = *case.tensors(), lengths, list(case.schedule.periods), list(case.schedule.sizes), 5, "tanh", hold
    torch.library.opcheck(torch.ops.cwrnn.recurrence.default, arguments)


@pytest.mark.parametrize("hold", [True, False])
@pytest.mark.parametrize("keep_ticks", [True, False])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_operator_from_a_state_of_zeros_passes_opcheck(hold, keep_ticks):
    case = Case(Schedule((1, 2, 4), (3, 2, 4)), T=9, B=3, I=2, t0=5)
    *tensors, h0 = case.tensors()
    settings = None, [1, 2, 4], [3, 2, 4], 5, "tanh", hold
    operator = torch.ops.cwrnn.recurrence.default
    torch.library.opcheck(operator, (*tensors, None, *settings, keep_ticks))
    # the arguments of earlier versions, which saved programs have
    final, ticks, *held = operator(*tensors, torch.zeros_like(h0), *settings)
    expected = [final, *([ticks] if keep_ticks else []), *held]
    for found, right in zip(operator(*tensors, None, *settings, keep_ticks), expected, strict=True):
        assert torch.equal(found, right)


GATED = [("lstm", True), ("lstm", False), ("gru", False)]


@pytest.mark.parametrize(("cell", "peepholes", "hold"), [
    ("lstm", True, True), ("lstm", False, False), ("gru", False, True), ("gru", False, False),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_operators_of_gated_cells_pass_opcheck(cell, peepholes, hold):
    case = Case(Schedule((1, 3), (3, 2)), T=4, B=3, I=2, t0=5, cell=cell, peepholes=peepholes)
    lengths = torch.tensor([3, 1, 4])
    settings = [1, 3], [3, 2], 5, cell
    *tensors, h0 = case.tensors()
    weight_ch = case.weight_ch()
    operator = torch.ops.cwrnn.recurrence.default
    # the remaining check compares all outputs, and a part of the last one is never written nor read
    checks = "test_schema", "test_autograd_registration", "test_faketensor"
    torch.library.opcheck(operator, (*tensors, h0, lengths, *settings, hold, True, weight_ch), test_utils=checks)
    torch.library.opcheck(operator, (*tensors, h0, lengths, *settings, hold, False, weight_ch))
    final, ticks, *others = (
        output.detach() for output in operator(*tensors, h0, lengths, *settings, hold, True, weight_ch)
    )
    held, kept = others if hold else (None, *others)
    gradients = [None if output is None else torch.randn_like(output) for output in (final, ticks, held)]
    arguments = *tensors, lengths, ticks, *gradients, *settings, None, weight_ch, kept, h0
    torch.library.opcheck(torch.ops.cwrnn.recurrence_backward.default, arguments)


@pytest.mark.parametrize(("cell", "peepholes"), GATED)
def test_second_derivatives_of_the_operator_equal_the_specification(cell, peepholes, close):
    case = Case(Schedule((1, 2, 3), (2, 1, 2)), T=7, B=2, I=2, t0=5, cell=cell, peepholes=peepholes)

    def evaluate(function):
        leaves = [*case.tensors(), *([case.weight_ch()] if peepholes else [])]
        *tensors, weight_ch = leaves if peepholes else (*leaves, None)
        output, final = function(*tensors, weight_ch)
        first = torch.autograd.grad(output.square().sum() + final.sin().sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(gradient.sin().sum() for gradient in first), leaves)

    def operate(*tensors):
        *tensors, weight_ch = tensors
        settings = list(case.schedule.periods), list(case.schedule.sizes), case.t0, cell, True, True
        final, _, held, _ = torch.ops.cwrnn.recurrence(*tensors, None, *settings, weight_ch)
        return held, final[0]

    def specify(*tensors):
        *tensors, weight_ch = tensors
        states = clockwork_reference(*tensors, case.schedule, case.t0, cell, weight_ch)
        return states[..., : case.schedule.hidden_size], states[-1]

    for found, expected in zip(evaluate(operate), evaluate(specify), strict=True):
        close(found, expected)


def test_operator_of_the_gradients_refuses_missing_gates():
    case = Case(Schedule((1, 2), (3, 2)), T=9, B=3, I=2, t0=5, cell="gru")
    *tensors, h0 = (tensor.detach() for tensor in case.tensors())
    settings = [1, 2], [3, 2], 5, "gru"
    final, ticks, _, kept = torch.ops.cwrnn.recurrence(*tensors, h0, None, *settings, True)
    arguments = *tensors, None, ticks, final, None, None, *settings, None, None
    for wrong, message in (
        (None, "kept must be the last output of recurrence for 'gru'"),
        (kept[1:], "kept must have"),
    ):
        with pytest.raises(ValueError, match=message):
            torch.ops.cwrnn.recurrence_backward(*arguments, wrong)


def test_only_an_lstm_takes_peepholes():
    case = Case(Schedule((1, 2), (3, 2)), T=9, B=3, I=2, t0=5, cell="gru")
    tensors = [tensor.detach() for tensor in case.tensors()]
    with pytest.raises(ValueError, match="only an LSTM has peepholes, got weight_ch for 'gru'"):
        torch.ops.cwrnn.recurrence(*tensors, None, [1, 2], [3, 2], 5, "gru", True, True, torch.zeros(15))


def test_operator_refuses_tensors_that_do_not_fit():
    case = Case(Schedule((1, 2), (3, 2)), T=9, B=3, I=2, t0=5)
    tensors = [tensor.detach() for tensor in case.tensors()]
    settings = [1, 2], [3, 2], 5, "tanh", True
    operator = torch.ops.cwrnn.recurrence
    with pytest.raises(ValueError, match=r"lengths must lie between 1 and the 9 steps of the input, got \[2, 10, 9\]"):
        operator(*tensors, torch.tensor([2, 10, 9]), *settings)
    with pytest.raises(ValueError, match="lengths must be torch.int64"):
        operator(*tensors, torch.tensor([2, 1, 9], dtype=torch.int32), *settings)
    with pytest.raises(ValueError, match=r"weight_ih must have the shape \(5, 2\), got \(5, 1\)"):
        operator(tensors[0], tensors[1][:, :1], *tensors[2:], None, *settings)
    with pytest.raises(RuntimeError, match="it takes float32 and float64 only"):
        operator(*(tensor.half() for tensor in tensors), None, *settings)


def make_backward_arguments(hold=True, bias=True, lengths=None):
    """The arguments of the operator of the gradients, by name."""
    case = Case(Schedule((1, 2, 4), (3, 2, 4)), T=9, B=3, I=2, t0=5, bias=bias)
    *tensors, h0 = (None if tensor is None else tensor.detach() for tensor in case.tensors())
    settings = [1, 2, 4], [3, 2, 4], 5, "tanh"
    outputs = torch.ops.cwrnn.recurrence(*tensors, h0, lengths, *settings, hold)
    gradients = [torch.randn_like(output) for output in outputs]
    g_final, g_ticks, g_held = gradients if hold else (*gradients, None)
    names = "input", "weight_ih", "weight_hh", "bias", "lengths", "ticks", "g_final", "g_ticks", "g_held"
    return dict(zip(names, (*tensors, lengths, outputs[1], g_final, g_ticks, g_held), strict=True)), settings


@pytest.mark.parametrize(("hold", "bias"), [(True, False), (False, True)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_operator_of_the_gradients_passes_opcheck(hold, bias):
    tensors, settings = make_backward_arguments(hold, bias, torch.tensor([5, 2, 9]) if bias else None)
    torch.library.opcheck(torch.ops.cwrnn.recurrence_backward.default, (*tensors.values(), *settings))


@pytest.mark.parametrize("wanted", [[True, False, True, False, False], [False, False, False, True, True]])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_operator_of_the_gradients_computes_the_wanted_ones(wanted):
    tensors, settings = make_backward_arguments()
    operator = torch.ops.cwrnn.recurrence_backward.default
    torch.library.opcheck(operator, (*tensors.values(), *settings, wanted))
    # the arguments of earlier versions give all gradients
    everything = operator(*tensors.values(), *settings)
    expected = [gradient for want, gradient in zip(wanted, everything, strict=True) if want]
    for found, right in zip(operator(*tensors.values(), *settings, wanted), expected, strict=True):
        assert torch.equal(found, right)


@pytest.mark.parametrize("wanted", [[True] * 4, [True] * 5])
def test_operator_of_the_gradients_refuses_other_gradients(wanted):
    tensors, settings = make_backward_arguments(bias=False)
    with pytest.raises(ValueError, match="wanted must have one entry for each of input, weight_ih, weight_hh, bias"):
        torch.ops.cwrnn.recurrence_backward(*tensors.values(), *settings, wanted)


@pytest.mark.parametrize("name", ["ticks", "g_final", "g_ticks", "g_held", "weight_hh", "bias"])
def test_operator_of_the_gradients_refuses_tensors_that_do_not_fit(name):
    tensors, settings = make_backward_arguments()
    operator = torch.ops.cwrnn.recurrence_backward
    for wrong, message in ((tensors[name][:-1], "shape"), (tensors[name].float(), "torch.float64 on cpu")):
        with pytest.raises(ValueError, match=f"{name} must .*{message}"):
            operator(*(tensors | {name: wrong}).values(), *settings)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({8: -1}, "t0 must be zero"),
        ({9: "sine"}, "Unknown cell 'sine'"),
        ({0: torch.zeros(2, 2)}, r"input must have the shape \(T, B, I\)"),
        ({2: torch.zeros(5, 4)}, r"weight_hh must have the shape \(5, 5\)"),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_operator_refuses_wrong_operands_also_where_nothing_is_computed(device, wrong, message):
    case = Case(Schedule((1, 2), (3, 2)), T=9, B=3, I=2, t0=5)
    arguments = [*(tensor.detach() for tensor in case.tensors(torch.float32)), None, [1, 2], [3, 2], 5, "tanh", True]
    for place, value in wrong.items():
        arguments[place] = value
    arguments = [value.to(device) if isinstance(value, torch.Tensor) else value for value in arguments]
    with pytest.raises(ValueError, match=message):
        torch.ops.cwrnn.recurrence(*arguments)


@pytest.fixture
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("fresh_compiler")
def test_operator_checks_lengths_inside_a_graph():
    rnn = ClockworkRNN(2, 8, schedule=3)
    compiled = torch.compile(lambda x, lengths: rnn(x, lengths=lengths)[0], backend="eager")
    x = torch.randn(9, 2, 2)
    with pytest.raises(ValueError, match="lengths must lie between 1 and the 9 steps"):
        compiled(x, torch.tensor([2**33, 3]))


# torch.jit is deprecated, and warns in many ways
@pytest.mark.filterwarnings("ignore")
def test_a_traced_layer_computes_the_same():
    rnn, x = ClockworkRNN(2, 8, schedule=3), torch.randn(9, 2, 2)
    with torch.no_grad():
        traced = torch.jit.trace(rnn, (x,))
        y = torch.randn(9, 2, 2)
        torch.testing.assert_close(traced(y)[0], rnn(y)[0])


def test_fake_tensors_do_not_reach_the_kernel():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        rnn, x = ClockworkRNN(2, 8, schedule=3), torch.empty(9, 2, 2)
    # outside the mode; these tensors have no memory
    assert rnn(x)[0].shape == (9, 2, 8)
    assert rnn.step(x[0])[0].shape == (2, 8)
