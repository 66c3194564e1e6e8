"""Linear recurrent units follow the paper's equations, step by step and in the package's implementation."""

import math

import numpy as np
import pytest
import torch
from LRU_pytorch import LRU
from support.model_checks import check_gradients_numerically, check_model_layer, make_input, make_layer

from cwrnn.experiments.networks.models import lru
from cwrnn.experiments.networks.models.lru import LinearRecurrentUnit, run_recurrence


def run_by_hand(layer, input):
    """The states of one sequence (T, I), step by step with complex numbers."""
    weights = {name: value.numpy() for name, value in layer.state_dict().items()}
    u = [weights["weight_ih"] @ x + weights["bias"] for x in input]
    for k in range(2):
        own = {name.removeprefix(f"layers.{k}."): value for name, value in weights.items() if f"layers.{k}." in name}
        factor = np.exp(-np.exp(own["nu"]) + 1j * np.exp(own["theta"]))
        B = np.exp(own["gamma"])[:, None] * (own["B"][:, 0] + 1j * own["B"][:, 1])
        C = own["C"][..., 0] + 1j * own["C"][..., 1]
        N = len(factor)
        s, sums = np.zeros(N, complex), []
        for value in u:
            n = (value - value.mean()) / np.sqrt(value.var() + 1e-5) * own["norm.weight"] + own["norm.bias"]
            s = factor * s + B @ n
            y = (C @ s).real + own["D"] * n
            a = np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in y])
            map = own["glu.weight"] @ a + own["glu.bias"]
            sums.append(value + map[:N] / (1 + np.exp(-map[N:])))
        u = sums
    return np.array(u)


def run_loop(drive, log_modulus, phase):
    """The recurrence of run_recurrence as one loop."""
    factor = torch.exp(torch.complex(log_modulus, phase))
    s, states = torch.zeros_like(drive[0]), []
    for x in drive:
        s = factor * s + x
        states.append(s)
    return torch.stack(states)


def make_drive(*shape):
    return torch.complex(make_input(*shape), make_input(*shape, seed=1))


def test_layer_keeps_the_contract():
    check_model_layer(LinearRecurrentUnit, products=12)


@pytest.mark.parametrize("input_size", [3, 0])
def test_states_follow_the_equations(input_size):
    layer, input = make_layer(LinearRecurrentUnit, input_size, 12), make_input(300, 2, input_size)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.1 * make_input(*parameter.shape)
    states = layer(input)
    for b in range(2):
        torch.testing.assert_close(states[:, b], torch.from_numpy(run_by_hand(layer, input[:, b].numpy())))


def test_recurrence_is_that_of_the_package():
    own = make_layer(LinearRecurrentUnit, 3, 12).float().layers[0]
    # what surrounds the recurrence must not change it
    own.norm = torch.nn.Identity()
    other = LRU(12, 12, 12)
    with torch.no_grad():
        other.nu_log.copy_(own.nu)
        other.theta_log.copy_(own.theta)
        other.gamma_log.copy_(own.gamma)
        other.B.copy_(torch.complex(own.B[:, 0], own.B[:, 1]))
        other.C.copy_(torch.complex(own.C[..., 0], own.C[..., 1]))
        other.D.copy_(own.D.diag())
        input = make_input(80, 2, 12).float()
        # the package wants (B, T, I); it knows float32 only
        y = other(input.transpose(0, 1)).transpose(0, 1)
        expected = torch.nn.functional.glu(own.glu(torch.nn.functional.gelu(y)))
        torch.testing.assert_close(own(input), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("T", [1, 31, 32, 33, 64, 65, 1100])
@pytest.mark.parametrize("wide", [0, 2048])
def test_blocks_give_what_a_loop_gives(T, wide, monkeypatch):
    monkeypatch.setattr(lru, "WIDE", wide)
    drive, log_modulus, phase = make_drive(T, 2, 5), -make_input(5).square(), 7 * make_input(5)
    torch.testing.assert_close(run_recurrence(drive, log_modulus, phase), run_loop(drive, log_modulus, phase))


def test_long_sequences_stay_stable_near_the_unit_circle():
    drive, phase = make_drive(5000, 1, 4), torch.tensor([0.0, 1e-3, 3.0, 6.2], dtype=torch.float64)
    log_modulus = torch.tensor([0.0, -1e-9, -1e-4, -1e-3], dtype=torch.float64)
    expected = run_loop(drive, log_modulus, phase)
    torch.testing.assert_close(run_recurrence(drive, log_modulus, phase), expected)
    single = run_recurrence(drive.to(torch.complex64), log_modulus.float(), phase.float())
    assert (single - expected).abs().max() < 1e-3 * expected.abs().max()


def test_initial_lambda_lies_in_the_ring():
    torch.manual_seed(0)
    layer = LinearRecurrentUnit(3, 1000).layers[0]
    modulus, phase = torch.exp(-torch.exp(layer.nu)), torch.exp(layer.theta)
    assert 0.9 <= modulus.min() < 0.901
    assert 0.998 < modulus.max() <= 0.9991
    assert phase.min() < 0.05
    assert 6.2 < phase.max() <= 2 * math.pi + 1e-5
    # uniform in the area of the ring
    torch.testing.assert_close(modulus.square().mean().item(), (0.81 + 0.998) / 2, rtol=0.01, atol=0)
    torch.testing.assert_close(layer.gamma.exp(), (1 - modulus.square()).sqrt(), rtol=1e-3, atol=0)


def test_gradients_are_those_of_the_states(monkeypatch):
    monkeypatch.setattr(lru, "BLOCK", 3)
    check_gradients_numerically(make_layer(LinearRecurrentUnit, 2, 3), make_input(7, 2, 2))
