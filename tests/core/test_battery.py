"""Every backend equals the specification: output, final state and every gradient."""

import inspect
from contextlib import contextmanager
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from support.network_cases import Case, cases, evaluate

from cwrnn import Schedule, clockwork_reference
from cwrnn.backends import BACKENDS
from cwrnn.kernels.cpu import loader

DIVISIBLE = Schedule((1, 2, 4, 8), (3, 1, 2, 4))
COPRIME = Schedule((2, 3, 7), (2, 3, 1))


GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


class Place(NamedTuple):
    """A backend on a device; the CPU kernel stands here once for each instruction set of this processor."""

    name: str
    device: str
    isa: str | None = None

    @contextmanager
    def run(self):
        if self.isa is None:
            yield BACKENDS[self.name].run
            return
        usual = loader.current_isa()
        loader.use_isa(self.isa)
        yield BACKENDS[self.name].run
        loader.use_isa(usual)

    @property
    def dtype(self) -> torch.dtype:
        """The most exact dtype that the backend takes here."""
        return torch.float64 if self.takes(torch.float64) else torch.float32

    def takes(self, dtype) -> bool:
        return BACKENDS[self.name].refuse(torch.device(self.device), dtype) is None


PLACES = [
    *(pytest.param(Place("cpu", "cpu", isa), id=f"cpu-{isa}") for isa in loader.executable_isas()),
    *(pytest.param(Place(name, "cpu"), id=name) for name in BACKENDS if name not in ("cpu", "triton")),
    *(pytest.param(Place(name, "cuda"), id=f"{name}-cuda", marks=GPU) for name in BACKENDS if name != "cpu"),
]


@pytest.fixture(params=PLACES)
def place(request):
    return request.param


@pytest.fixture
def run(place):
    with place.run() as run:
        yield run


@pytest.fixture
def device(place):
    return torch.device(place.device)


@pytest.fixture
def dtype(place):
    return place.dtype


def check(case: Case, run, close, dtype, device="cpu") -> None:
    found = evaluate(case, run, dtype, device)
    expected = evaluate(case, None, torch.float64, device)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        near(found[name], value, close, f"{name} of {case}")


def near(found: torch.Tensor, expected: torch.Tensor, close, name: str = "") -> None:
    """Checks equality to the tolerance of the dtype; below float64 the tolerance is relative to the largest number."""
    if found.dtype == torch.float64:
        close(found, expected, msg=lambda text: f"{name}: {text}")
        return
    scale = max(1.0, expected.abs().max().item()) if expected.numel() > 0 else 1.0
    close(found / scale, (expected / scale).to(found.dtype), msg=lambda text: f"{name}: {text}")


@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=150)
@given(case=cases())
def test_any_schedule_and_phase_equal_the_specification(place, case, close):
    with place.run() as run:
        check(case, run, close, place.dtype, place.device)


@pytest.mark.parametrize("schedule", [DIVISIBLE, COPRIME], ids=["divisible", "coprime"])
def test_every_phase_equals_the_specification(run, schedule, close, dtype, device):
    for t0 in range(43):
        check(Case(schedule, T=2 * schedule.periods[-1] + 1, B=2, I=1, t0=t0), run, close, dtype, device)


@pytest.mark.parametrize("T", [0, 1, 2, 3, 7, 8, 9, 40])
@pytest.mark.parametrize("t0", [0, 1, 8, 1_000_003])
def test_short_and_long_sequences_equal_the_specification(run, T, t0, close, dtype, device):
    check(Case(DIVISIBLE, T=T, B=2, I=2, t0=t0), run, close, dtype, device)


@pytest.mark.parametrize("B", [0, 1, 5])
def test_any_batch_size_equals_the_specification(run, B, close, dtype, device):
    check(Case(COPRIME, T=17, B=B, I=2, t0=3), run, close, dtype, device)


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_saturated_units_equal_the_specification(run, nonlinearity, close, dtype, device):
    case = Case(DIVISIBLE, T=19, B=2, I=2, t0=3, scale=30.0, cell=nonlinearity)
    if nonlinearity == "relu":
        # a rectifier does not saturate but grows without bound, so two steps must do
        case = Case(DIVISIBLE, T=2, B=2, I=2, t0=8, scale=30.0, cell=nonlinearity)
    check(case, run, close, dtype, device)


def test_float32_equals_the_specification(run, close, device):
    check(Case(Schedule.exponential(21, 5), T=35, B=3, I=4, t0=5), run, close, torch.float32, device)


@pytest.mark.parametrize(
    ("place", "dtype"),
    [
        pytest.param(*place.values, dtype, id=f"{place.id}-{dtype}", marks=place.marks)
        for place in PLACES
        for dtype in (torch.bfloat16, torch.float16)
        if place.values[0].takes(dtype)
    ],
)
def test_half_precision_is_as_exact_as_the_specification(place, run, dtype, device):
    case = Case(Schedule.exponential(21, 5), T=35, B=3, I=4, t0=5)
    found, expected = evaluate(case, run, dtype, device), evaluate(case, None, dtype, device)
    exact = evaluate(case)
    for name, value in exact.items():
        # as close to the truth as the specification in the same precision, apart from rounding
        allowed = 2 * (expected[name].cpu().double() - value).abs().max() + 1e-2 * value.abs().max()
        assert (found[name].cpu().double() - value).abs().max() <= allowed, name


@pytest.mark.parametrize("place", [place for place in PLACES if place.values[0].name != "triton"])
def test_gradients_pass_gradcheck(run, device):
    case = Case(Schedule((1, 2, 3), (2, 1, 2)), T=7, B=2, I=2, t0=1)

    def states(*tensors):
        done = run(*tensors, case.schedule, case.t0, case.cell, None, False)
        return tuple(module.values for module in done.modules)

    assert torch.autograd.gradcheck(states, case.tensors(device=device))
    assert torch.autograd.gradgradcheck(states, case.tensors(device=device))


def test_second_order_equals_specification(run, close, dtype, device):
    case = Case(COPRIME, T=16, B=2, I=2, t0=5)

    def second_order(function, dtype):
        tensors = case.tensors(dtype, device)
        value = function(*tensors)
        first = torch.autograd.grad(value.square().sum(), tensors, create_graph=True)
        return torch.autograd.grad(sum(gradient.sin().sum() for gradient in first), tensors)

    def hold(*tensors):
        return run(*tensors, case.schedule, case.t0, "tanh").hold()

    found = second_order(hold, dtype)
    expected = second_order(lambda *tensors: clockwork_reference(*tensors, case.schedule, case.t0), torch.float64)
    for value, right in zip(found, expected, strict=True):
        near(value, right, close)


# torch itself scripts its forward-mode formulas, and warns of that
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_forward_mode_equals_specification(run, close, dtype, device):
    case = Case(COPRIME, T=16, B=2, I=2, t0=5)
    tensors = [tensor.detach() for tensor in case.tensors(dtype, device)]
    tangents = [torch.randn_like(tensor) for tensor in tensors]

    def hold(*tensors):
        return run(*tensors, case.schedule, case.t0, "tanh").hold()

    _, found = torch.func.jvp(hold, tuple(tensors), tuple(tangents))
    _, expected = torch.func.jvp(
        lambda *tensors: clockwork_reference(*tensors, case.schedule, case.t0), tuple(tensors), tuple(tangents)
    )
    near(found, expected, close)
    # one argument at a time: the others have no tangent
    for i in range(len(tensors)):
        alone = [tangent if i == j else torch.zeros_like(tangent) for j, tangent in enumerate(tangents)]
        _, found = torch.func.jvp(
            lambda value, i=i: hold(*tensors[:i], value, *tensors[i + 1 :]), (tensors[i],), (tangents[i],)
        )
        _, expected = torch.func.jvp(
            lambda *tensors: clockwork_reference(*tensors, case.schedule, case.t0), tuple(tensors), tuple(alone)
        )
        near(found, expected, close)


def test_forbidden_weights_are_never_read(run, dtype, device):
    case = Case(DIVISIBLE, T=20, B=2, I=1, t0=3)
    input, weight_ih, weight_hh, bias, h0 = (tensor.detach() for tensor in case.tensors(dtype, device))
    mask = torch.from_numpy(DIVISIBLE.mask()).to(device)
    poisoned = weight_hh.masked_fill(~mask, torch.nan).requires_grad_()
    modules = run(input, weight_ih, poisoned, bias, h0, DIVISIBLE, 3, "tanh", None, False).modules
    sum(module.values.square().sum() for module in modules).backward()
    assert all(module.values.isfinite().all() for module in modules)
    assert (poisoned.grad[~mask] == 0).all()
    assert (poisoned.grad[mask] != 0).all()


@pytest.mark.parametrize("hold", [False, True])
def test_a_missing_initial_state_is_zero(run, hold, close, dtype, device):
    case = Case(COPRIME, T=9, B=2, I=1, t0=5)
    *others, _ = (tensor.detach() for tensor in case.tensors(dtype, device))
    found, expected = (run(*others, h0, COPRIME, 5, "tanh", None, hold) for h0 in (None, case.zeros(dtype, device)))
    for one, other in zip(found.modules, expected.modules, strict=True):
        near(one.values, other.values, close)
        assert one[1:] == other[1:]


def test_all_backends_have_the_same_signature():
    signatures = {str(inspect.signature(backend.run)) for backend in BACKENDS.values()}
    assert len(signatures) == 1
