"""A GRU of several modules on the backend "cudnn" where one layer would take longer: tick by tick.

An emulation of torch's fused cell runs on the CPU; tests/kernels/test_cudnn_gpu.py runs the cell itself.
"""

import gc
import weakref

import pytest
import torch
from hypothesis import given, settings
from support import emulated_cudnn
from support.network_cases import Case, by_backend, cases, evaluate, evaluate_lengths, specify_lengths

from cwrnn import Schedule, clockwork_reference, cudnn, cudnn_layer, gru_steps

emulated_cudnn.install()

TWO, COPRIME = Schedule((1, 2), (3, 2)), Schedule((2, 3, 7), (2, 3, 1))
SCHEDULES = pytest.mark.parametrize("schedule", [TWO, COPRIME, Schedule((1, 2, 4), (2, 3, 2))], ids=str)


@pytest.fixture(autouse=True, scope="module")
def _tick_by_tick():
    """Let no network run as one layer, which is faster at these sizes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cudnn, "is_layer_faster", lambda *_: False)
        yield


@pytest.fixture
def ticks(monkeypatch):
    """The calls of the fused cell and of its gradient, by their names."""
    calls = []
    for name in ("_tick", "_pull_back"):
        usual = getattr(gru_steps, name)
        monkeypatch.setattr(gru_steps, name, lambda *a, name=name, usual=usual: (calls.append(name), usual(*a))[1])
    return calls


def run(tensors, schedule, t0=1):
    return cudnn.run(*tensors, schedule, t0, "gru")


def specify(tensors, schedule, t0=1):
    return clockwork_reference(*tensors, schedule, t0, "gru")


@settings(max_examples=150)
@given(case=cases(cells=("gru",)))
def test_any_schedule_equals_the_specification(close, case):
    found, expected = evaluate(case, cudnn.run), evaluate(case)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        close(found[name], value, msg=lambda text, name=name: f"{name} of {case}: {text}")


@SCHEDULES
def test_lengths_equal_the_specification(schedule, close):
    case = Case(schedule, T=16, B=4, I=3, t0=1, cell="gru")
    lengths = torch.tensor([16, 1, 9, 4])
    found = evaluate_lengths(case, lengths, True, by_backend(cudnn.run, case))
    expected = evaluate_lengths(case, lengths, True, specify_lengths(case))
    for name, value in expected.items():
        close(found[name], value, msg=lambda text, name=name: f"{name}: {text}")


def test_every_module_but_the_slowest_runs_tick_by_tick(ticks, monkeypatch):
    layers, usual = [], cudnn_layer._compute
    monkeypatch.setattr(cudnn_layer, "_compute", lambda *a, **options: (layers.append(a), usual(*a, **options))[1])
    # from clock 1 on, 10 steps have 5 ticks of period 2, 3 of period 3 and 1 of period 7
    evaluate(Case(COPRIME, T=10, B=2, I=3, t0=1, cell="gru"), cudnn.run)
    assert ticks == ["_tick"] * 8 + ["_pull_back"] * 8
    assert [x.shape for x, *_ in layers] == [(1, 2, 3)]


def test_without_gradients_nothing_is_kept_and_no_argument_is_changed(monkeypatch):
    tensors = [tensor.detach() for tensor in Case(COPRIME, T=20, B=2, I=3, t0=1, cell="gru").tensors()]
    copies = [tensor.clone() for tensor in tensors]
    workspaces, alive, usual = [], [], gru_steps._tick

    def tick(*arguments):
        alive.append(sum(workspace() is not None for workspace in workspaces))
        state, workspace = usual(*arguments)
        workspaces.append(weakref.ref(workspace))
        return state, workspace

    monkeypatch.setattr(gru_steps, "_tick", tick)
    done = run(tensors, COPRIME)
    assert max(alive) == 1
    # from clock 1 on, 20 steps have 10 ticks of period 2 and 6 of period 3
    assert len(alive) == 16
    assert all(map(torch.equal, tensors, copies))
    with_gradients = run([tensor.requires_grad_() for tensor in tensors], COPRIME)
    assert torch.equal(done.hold(), with_gradients.hold())
    assert torch.equal(done.final(), with_gradients.final())


@SCHEDULES
@pytest.mark.parametrize("wanted", range(5))
def test_each_gradient_alone_equals_the_specification(schedule, wanted, close):
    tensors = [tensor.detach() for tensor in Case(schedule, T=16, B=2, I=3, t0=1, cell="gru").tensors()]
    tensors[wanted].requires_grad_()
    results = []
    done, states = run(tensors, schedule), specify(tensors, schedule)
    for output, final in ((done.hold(), done.final()), (states, states[-1])):
        results += torch.autograd.grad(output.square().sum() + final.sin().sum(), tensors[wanted])
    close(*results)


@SCHEDULES
def test_second_derivatives_equal_the_specification(schedule, close):
    """The gradient of a gradient's norm, as in a gradient penalty."""
    tensors = Case(schedule, T=16, B=2, I=3, t0=1, cell="gru").tensors()
    results = []
    for states in (run(tensors, schedule).hold(), specify(tensors, schedule)):
        first = torch.autograd.grad(states.square().sum(), tensors, create_graph=True)
        results.append(torch.autograd.grad(sum(g.square().sum() for g in first) + states.sum(), tensors))
    for found, expected in zip(*results, strict=True):
        close(found, expected)


def test_second_derivatives_of_the_final_state_by_some_arguments_equal_the_specification(close):
    tensors = [tensor.detach() for tensor in Case(TWO, T=7, B=2, I=3, t0=1, cell="gru").tensors()]
    wanted = [tensors[i].requires_grad_() for i in (0, 3)]
    results = []
    for final in (run(tensors, TWO).final(), specify(tensors, TWO)[-1]):
        first = torch.autograd.grad(final.square().sum(), wanted, create_graph=True)
        results.append(torch.autograd.grad(sum(g.square().sum() for g in first), wanted))
    for found, expected in zip(*results, strict=True):
        close(found, expected)


def test_batched_gradients_equal_single_ones(close):
    tensors = Case(TWO, T=5, B=2, I=1, t0=1, cell="gru").tensors()
    output = run(tensors, TWO).hold()
    rows = torch.randn(3, *output.shape, dtype=torch.float64)
    batched = torch.autograd.grad(output, tensors, rows, is_grads_batched=True, retain_graph=True)
    mapped = torch.func.vmap(lambda row: torch.autograd.grad(output, tensors, row, retain_graph=True))(rows)
    for b, row in enumerate(rows):
        single = torch.autograd.grad(output, tensors, row, retain_graph=True)
        for found, other, expected in zip(batched, mapped, single, strict=True):
            close(found[b], expected)
            close(other[b], expected)


def test_backward_can_be_repeated_if_the_graph_is_kept():
    tensors = Case(COPRIME, T=16, B=2, I=3, t0=1, cell="gru").tensors()
    loss = run(tensors, COPRIME).hold().sum()
    results = [torch.autograd.grad(loss, tensors, retain_graph=keep) for keep in (True, True, False)]
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(loss, tensors)


def test_nothing_keeps_the_states_alive():
    tensors = Case(TWO, T=7, B=2, I=3, t0=0, cell="gru").tensors()
    gc.disable()
    try:
        done = run(tensors, TWO)
        output = weakref.ref(done.runs[0].output)
        loss = done.hold().sum()
        loss.backward()
        del done, loss
        assert output() is None
    finally:
        gc.enable()


def test_a_state_that_is_not_heard_spoils_no_gradient():
    schedule = Schedule((2, 3), (3, 2))
    leaves = [tensor.detach() for tensor in Case(schedule, T=4, B=2, I=1, t0=0, cell="gru").tensors()]
    # only the slow module ticks at the last step
    leaves[0][3] = torch.nan
    leaves = [leaf.requires_grad_() for leaf in leaves]
    expected = torch.autograd.grad(specify(leaves, schedule, 0)[..., :3].sum(), leaves)
    found = torch.autograd.grad(run(leaves, schedule, 0).hold()[..., :3].sum(), leaves)
    torch.testing.assert_close(found, expected, equal_nan=True)
    # it spoils those of the slow module
    finite = expected[2].isfinite().view(3, 5, 5)
    assert finite[:, :3].all()
    assert not finite[:, 3:, 3:].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_long_sequences_are_as_exact_as_the_specification_in_half_precision(dtype):
    case = Case(Schedule((1, 2, 4), (40, 30, 30)), T=100, B=4, I=8, t0=1, cell="gru")
    found, rounded, exact = evaluate(case, cudnn.run, dtype), evaluate(case, None, dtype), evaluate(case)
    for name, right in exact.items():
        distances = [(value[name].double() - right).norm() / right.norm() for value in (found, rounded)]
        assert distances[0] < 1.5 * distances[1], (name, distances)
