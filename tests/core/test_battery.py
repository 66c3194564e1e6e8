"""Every backend equals the specification: output, final state and every gradient."""

import inspect
from contextlib import contextmanager
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from support import emulated_cudnn
from support.network_cases import Case, cases, evaluate

from cwrnn import Schedule, clockwork_reference
from cwrnn.backends import BACKENDS
from cwrnn.cells import CELLS
from cwrnn.kernels.cpu import loader

emulated_cudnn.install()

DIVISIBLE = Schedule((1, 2, 4, 8), (3, 1, 2, 4))
COPRIME = Schedule((2, 3, 7), (2, 3, 1))


SMOOTH = pytest.mark.parametrize("cell", ["tanh", "lstm", "gru"])

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
        if self.name == "cudnn" and self.device == "cpu":
            return dtype in emulated_cudnn.DTYPES
        return BACKENDS[self.name].refuse(torch.device(self.device), dtype) is None


PLACES = [
    *(pytest.param(Place("cpu", "cpu", isa), id=f"cpu-{isa}") for isa in loader.executable_isas()),
    *(pytest.param(Place(name, "cpu"), id=name) for name in BACKENDS if name not in ("cpu", "cuda")),
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


def check_like_the_specification(case: Case, run, rounding: float, dtype, device) -> None:
    """Checks that results are as close to the truth as those of the specification in the same precision.

    `rounding` is the relative error that is allowed beside twice the specification's own.
    """
    found, expected, exact = evaluate(case, run, dtype, device), evaluate(case, None, dtype, device), evaluate(case)
    for name, value in exact.items():
        allowed = 2 * (expected[name].cpu().double() - value).abs().max() + rounding * value.abs().max()
        assert (found[name].cpu().double() - value).abs().max() <= allowed, name


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


@SMOOTH
@pytest.mark.parametrize("schedule", [DIVISIBLE, COPRIME], ids=["divisible", "coprime"])
def test_every_phase_equals_the_specification(run, cell, schedule, close, dtype, device):
    # all phases of all modules; those of DIVISIBLE begin again after 8 steps
    starts = range(43) if schedule is COPRIME else range(9)
    # every fifth of the 43 starts has every phase of each module, but not every combination
    for t0 in starts[::5] if schedule is COPRIME and cell != "tanh" else starts:
        case = Case(schedule, T=2 * schedule.periods[-1] + 1, B=2, I=1, t0=t0, cell=cell)
        check(case, run, close, dtype, device)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("t0", [0, 1, 8, 1_000_003])
def test_short_and_long_sequences_equal_the_specification(run, cell, t0, close, dtype, device):
    for T in (0, 1, 2, 3, 7, 8, 9, 40):
        check(Case(DIVISIBLE, T=T, B=2, I=2, t0=t0, cell=cell), run, close, dtype, device)


@SMOOTH
@pytest.mark.parametrize("B", [0, 1, 5])
def test_any_batch_size_equals_the_specification(run, cell, B, close, dtype, device):
    check(Case(COPRIME, T=17, B=B, I=2, t0=3, cell=cell), run, close, dtype, device)


@pytest.mark.parametrize("cell", CELLS)
def test_a_single_unit_equals_the_specification(run, cell, close, dtype, device):
    # a size of 1 is a constant to the GPU's compiler
    check(Case(Schedule((1,), (1,)), T=5, B=1, I=1, t0=0, cell=cell, peepholes=True), run, close, dtype, device)
    check(Case(Schedule((3,), (1,)), T=7, B=2, I=0, t0=1, cell=cell), run, close, dtype, device)


@SMOOTH
def test_saturated_units_equal_the_specification(run, cell, close, dtype, device):
    case = Case(DIVISIBLE, T=19, B=2, I=2, t0=3, scale=30.0, cell=cell, peepholes=True)
    if dtype == torch.float64:
        check(case, run, close, dtype, device)
    else:
        # large sums leave few digits to the slopes of saturated units, in the specification too
        check_like_the_specification(case, run, 2e-5, dtype, device)


def test_large_rectified_states_equal_the_specification(run, close, dtype, device):
    # a rectifier does not saturate but grows without bound, so two steps must do
    check(Case(DIVISIBLE, T=2, B=2, I=2, t0=8, scale=30.0, cell="relu"), run, close, dtype, device)


@SMOOTH
def test_float32_equals_the_specification(run, cell, close, device):
    case = Case(Schedule.exponential(21, 5), T=35, B=3, I=4, t0=5, cell=cell, peepholes=True)
    check(case, run, close, torch.float32, device)


@pytest.mark.parametrize(
    ("place", "dtype"),
    [
        pytest.param(*place.values, dtype, id=f"{place.id}-{dtype}", marks=place.marks)
        for place in PLACES
        for dtype in (torch.bfloat16, torch.float16)
        if place.values[0].takes(dtype)
    ],
)
@SMOOTH
def test_half_precision_is_as_exact_as_the_specification(place, run, cell, dtype, device):
    case = Case(Schedule.exponential(21, 5), T=35, B=3, I=4, t0=5, cell=cell)
    check_like_the_specification(case, run, 1e-2, dtype, device)


def specify(case: Case):
    """The output of the specification as a function of all tensors of the case."""
    N = case.schedule.hidden_size

    def output(*tensors):
        tensors, weight_ch = tensors[:5], tensors[5] if len(tensors) > 5 else None
        return clockwork_reference(*tensors, case.schedule, case.t0, case.cell, weight_ch)[..., :N]

    return output


def bind(case: Case, run):
    """The run of a backend as a function of all tensors of the case."""

    def start(*tensors, hold=True):
        tensors, weight_ch = tensors[:5], tensors[5] if len(tensors) > 5 else None
        return run(*tensors, case.schedule, case.t0, case.cell, None, hold, weight_ch)

    return start


def all_tensors(case: Case, dtype=torch.float64, device="cpu") -> list[torch.Tensor]:
    weight_ch = case.weight_ch(dtype, device)
    return case.tensors(dtype, device) + ([] if weight_ch is None else [weight_ch])


@SMOOTH
@pytest.mark.parametrize("place", [place for place in PLACES if place.values[0].name != "cuda"])
def test_gradients_pass_gradcheck(run, cell, device):
    # finite differences take a call per number, and a gated cell has more of them
    sizes = (2, 1, 1) if cell == "tanh" else (1, 1, 1)
    case = Case(Schedule((1, 2, 3), sizes), T=5, B=1, I=1, t0=1, cell=cell, peepholes=True)
    start = bind(case, run)

    def states(*tensors):
        done = start(*tensors, hold=False)
        return *(module.values for module in done.modules), done.final()

    assert torch.autograd.gradcheck(states, all_tensors(case, device=device))
    # every second derivative is compared with the specification below: here their sums with random weights are enough
    assert torch.autograd.gradgradcheck(states, all_tensors(case, device=device), fast_mode=True)


@SMOOTH
def test_second_order_equals_specification(run, cell, close, dtype, device):
    case = Case(COPRIME, T=16, B=2, I=2, t0=5, cell=cell, peepholes=True)
    start = bind(case, run)

    def second_order(function, dtype):
        tensors = all_tensors(case, dtype, device)
        value = function(*tensors)
        first = torch.autograd.grad(value.square().sum(), tensors, create_graph=True)
        return torch.autograd.grad(sum(gradient.sin().sum() for gradient in first), tensors)

    found = second_order(lambda *tensors: start(*tensors).hold(), dtype)
    expected = second_order(specify(case), torch.float64)
    for value, right in zip(found, expected, strict=True):
        near(value, right, close)


# torch itself scripts its forward-mode formulas, and warns of that
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@SMOOTH
def test_forward_mode_equals_specification(run, cell, close, dtype, device):
    case = Case(COPRIME, T=16, B=2, I=2, t0=5, cell=cell, peepholes=True)
    tensors = [tensor.detach() for tensor in all_tensors(case, dtype, device)]
    tangents = [torch.randn_like(tensor) for tensor in tensors]
    start = bind(case, run)

    def hold(*tensors):
        return start(*tensors).hold()

    _, found = torch.func.jvp(hold, tuple(tensors), tuple(tangents))
    _, expected = torch.func.jvp(specify(case), tuple(tensors), tuple(tangents))
    near(found, expected, close)
    # one argument at a time: the others have no tangent
    for i in range(len(tensors)):
        alone = [tangent if i == j else torch.zeros_like(tangent) for j, tangent in enumerate(tangents)]
        _, found = torch.func.jvp(
            lambda value, i=i: hold(*tensors[:i], value, *tensors[i + 1 :]), (tensors[i],), (tangents[i],)
        )
        _, expected = torch.func.jvp(specify(case), tuple(tensors), tuple(alone))
        near(found, expected, close)


@SMOOTH
def test_forbidden_weights_are_never_read(run, cell, dtype, device):
    case = Case(DIVISIBLE, T=20, B=2, I=1, t0=3, cell=cell)
    input, weight_ih, weight_hh, bias, h0 = (tensor.detach() for tensor in case.tensors(dtype, device))
    mask = torch.from_numpy(DIVISIBLE.mask()).to(device).repeat(CELLS[cell].gates, 1)
    poisoned = weight_hh.masked_fill(~mask, torch.nan).requires_grad_()
    modules = run(input, weight_ih, poisoned, bias, h0, DIVISIBLE, 3, cell, None, False).modules
    sum(module.values.square().sum() for module in modules).backward()
    assert all(module.values.isfinite().all() for module in modules)
    assert (poisoned.grad[~mask] == 0).all()
    assert (poisoned.grad[mask] != 0).all()


@SMOOTH
@pytest.mark.parametrize("hold", [False, True])
def test_a_missing_initial_state_is_zero(run, cell, hold, close, dtype, device):
    case = Case(COPRIME, T=9, B=2, I=1, t0=5, cell=cell)
    *others, _ = (tensor.detach() for tensor in case.tensors(dtype, device))
    found, expected = (run(*others, h0, COPRIME, 5, cell, None, hold) for h0 in (None, case.zeros(dtype, device)))
    for one, other in zip(found.modules, expected.modules, strict=True):
        near(one.values, other.values, close)
        assert one[1:] == other[1:]
    near(found.final(), expected.final(), close)


def test_all_backends_have_the_same_signature():
    signatures = {str(inspect.signature(backend.run)) for backend in BACKENDS.values()}
    assert len(signatures) == 1
