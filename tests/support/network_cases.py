"""Cases that every implementation must pass: schedules, shapes and start times that hypothesis draws."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from cwrnn import Schedule, clockwork_reference
from cwrnn.backends import BACKENDS
from cwrnn.cells import CELLS

USABLE = [name for name, backend in BACKENDS.items() if backend.refuse(torch.device("cpu"), torch.float64) is None]
"""The backends that run on the CPU of this machine. The kernel is missing if it was not built."""

ARGUMENTS = ("input", "weight_ih", "weight_hh", "bias", "h0")


@dataclass(frozen=True)
class Case:
    schedule: Schedule
    T: int
    B: int
    I: int
    t0: int
    bias: bool = True
    cell: str = "tanh"
    peepholes: bool = False
    contiguous: bool = True
    initial: bool = True
    scale: float = 1.0
    seed: int = 0

    def tensors(self, dtype=torch.float64, device="cpu") -> list[Tensor | None]:
        """Return input, weight_ih, weight_hh, bias and h0, all with gradients; None for those that are left out."""
        N = self.schedule.hidden_size
        gates, biases, parts = CELLS[self.cell]
        generator = torch.Generator().manual_seed(self.seed)
        shapes = [(self.T, self.B, self.I), (gates * N, self.I), (gates * N, N), (biases * N,), (self.B, parts * N)]
        result: list[Tensor | None] = []
        for name, shape in zip(ARGUMENTS, shapes, strict=True):
            if (name == "bias" and not self.bias) or (name == "h0" and not self.initial):
                result.append(None)
                continue
            value = torch.randn(shape, generator=generator, dtype=torch.float64) * self.scale
            if name == "weight_hh":
                value = value / N**0.5
            value = value.to(device, dtype)
            if not self.contiguous:
                value = torch.stack((value, torch.full_like(value, torch.nan)), dim=-1)[..., 0]
            result.append(value.requires_grad_())
        return result

    def weight_ch(self, dtype=torch.float64, device="cpu") -> Tensor | None:
        """Return the peepholes, with a gradient, if the case is an LSTM with peepholes."""
        if not (self.peepholes and self.cell == "lstm"):
            return None
        generator = torch.Generator().manual_seed(self.seed + 2)
        value = torch.randn(3 * self.schedule.hidden_size, generator=generator, dtype=torch.float64) * self.scale
        return value.to(device, dtype).requires_grad_()

    def zeros(self, dtype=torch.float64, device="cpu") -> Tensor:
        """Return the initial state of a case without h0."""
        return torch.zeros(self.B, CELLS[self.cell].parts * self.schedule.hidden_size, dtype=dtype, device=device)


def evaluate(case: Case, run=None, dtype=torch.float64, device="cpu") -> dict[str, Tensor]:
    """Return output, final state and every gradient of `run` (a backend), or of the specification if it is None.

    The loss weighs output and final state by random cotangents, so that no gradient can hide behind another.
    """
    tensors, weight_ch = case.tensors(dtype, device), case.weight_ch(dtype, device)
    if run is None:
        *others, h0 = tensors
        h0 = case.zeros(dtype, device) if h0 is None else h0
        states = clockwork_reference(*others, h0, case.schedule, case.t0, case.cell, weight_ch)
        output, final = states[..., : case.schedule.hidden_size], states[-1] if case.T > 0 else h0
    else:
        done = run(*tensors, case.schedule, case.t0, case.cell, weight_ch=weight_ch)
        output, final = done.hold(), done.final()
    generator = torch.Generator().manual_seed(case.seed + 1)
    # the loss requires a gradient even if no module ticks
    loss = torch.zeros((), dtype=dtype, device=device, requires_grad=True)
    for value in (output, final):
        cotangent = torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value)
        loss = loss + (value * cotangent).sum()
    named = zip((*ARGUMENTS, "weight_ch"), (*tensors, weight_ch), strict=True)
    wanted = {name: tensor for name, tensor in named if tensor is not None}
    gradients = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True, materialize_grads=True)
    found = {f"gradient of {name}": gradient for name, gradient in zip(wanted, gradients, strict=True)}
    return {"output": output.detach(), "final": final.detach(), **found}


def evaluate_lengths(case: Case, lengths, hold: bool, run) -> dict[str, torch.Tensor]:
    """Output, final state and gradients of `run` on a batch of sequences of different lengths."""
    tensors = [*case.tensors(), case.weight_ch()]
    output, final = run(tensors, lengths, hold)
    generator = torch.Generator().manual_seed(case.seed + 1)
    loss = torch.zeros((), dtype=torch.float64, requires_grad=True)
    for value in (output, final):
        loss = loss + (value * torch.randn(value.shape, generator=generator, dtype=torch.float64)).sum()
    wanted = [tensor for tensor in tensors if tensor is not None]
    gradients = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
    return {"output": output, "final": final} | {str(i): gradient for i, gradient in enumerate(gradients)}


def by_backend(run, case: Case):
    """The run of `evaluate_lengths` with the function `run` of a backend."""

    def run_case(tensors, lengths, hold):
        *others, weight_ch = tensors
        done = run(*others, case.schedule, case.t0, case.cell, lengths, hold, weight_ch)
        return done.hold(), done.final()

    return run_case


def specify_lengths(case: Case):
    """The run of `evaluate_lengths` with the specification, sequence by sequence."""

    def run(tensors, lengths, hold):
        input, weight_ih, weight_hh, bias, h0, weight_ch = tensors
        h0 = case.zeros() if h0 is None else h0
        outputs, finals = [], []
        for b, length in enumerate(lengths.tolist()):
            arguments = weight_ih, weight_hh, bias, h0[b : b + 1], case.schedule, case.t0, case.cell, weight_ch
            states = clockwork_reference(input[:length, b : b + 1], *arguments)
            output = states[..., : case.schedule.hidden_size]
            finals.append(states[-1])
            outputs.append(nn.functional.pad(output, (0, 0, 0, 0, 0, case.T - length)))
        return torch.cat(outputs, dim=1), torch.cat(finals)

    return run


@st.composite
def schedules(draw, longest: int = 12, modules: int = 5, size: int = 4) -> Schedule:
    """Draw schedules with any sizes and any periods, nested or not."""
    nested = draw(st.booleans())
    if nested:
        periods = [draw(st.integers(1, 3))]
        while len(periods) < modules and periods[-1] * 2 <= longest and draw(st.booleans()):
            periods.append(periods[-1] * draw(st.integers(2, longest // periods[-1])))
    else:
        periods = draw(st.lists(st.integers(1, longest), min_size=1, max_size=modules, unique=True))
    sizes = draw(st.lists(st.integers(1, size), min_size=len(periods), max_size=len(periods)))
    return Schedule(tuple(periods), tuple(sizes))


@st.composite
def cases(draw, cells: Sequence[str] = tuple(CELLS)) -> Case:
    """Draw cases. Most sequences are longer than twice the longest period; some have few steps or none."""
    schedule = draw(schedules())
    longest = schedule.periods[-1]
    return Case(
        schedule=schedule,
        T=draw(st.one_of(st.integers(2 * longest + 1, 2 * longest + 9), st.integers(0, 2 * longest))),
        B=draw(st.integers(0, 3)),
        I=draw(st.integers(0, 3)),
        t0=draw(st.integers(0, 3 * longest)),
        bias=draw(st.booleans()),
        cell=draw(st.sampled_from(cells)),
        peepholes=draw(st.booleans()),
        contiguous=draw(st.booleans()),
        initial=draw(st.booleans()),
        seed=draw(st.integers(0, 1000)),
    )


def measure_distance(found, right):
    """The largest difference, relative to the largest number, or to 1 if that is less."""
    assert found.shape == right.shape
    if right.numel() == 0:
        return 0.0
    return ((found.double() - right).abs().max() / right.abs().max().clamp(min=1)).item()
