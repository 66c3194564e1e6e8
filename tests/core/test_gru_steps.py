"""A GRU of several modules on the backend "cudnn" where one layer would take longer: tick by tick.

tests/core/test_gru_on_cudnn.py compares the results. An emulation of torch's fused cell runs on the CPU;
tests/kernels/test_cudnn_gpu.py runs the cell itself.
"""

import gc
import weakref

import pytest
import torch
from support import emulated_cudnn
from support.network_cases import Case, evaluate

from cwrnn import Schedule, clockwork_reference, cudnn, cudnn_layer, gru_steps

emulated_cudnn.install()

TWO, COPRIME = Schedule((1, 2), (3, 2)), Schedule((2, 3, 7), (2, 3, 1))


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
