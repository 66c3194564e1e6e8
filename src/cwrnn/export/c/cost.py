"""The cost of an exported network: its multiply-adds, its instructions on a Cortex-M4F, and its memory."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model import Model
from ..rivals import count_parameters
from .compilers import compile_program, find_zig
from .emulator import TARGET, Emulator
from .integer_plan import IntegerPlan, plan_integers
from .integers import quantise_inputs
from .plan import Plan, plan_network
from .source import find_plan, render_program

MOST_STEPS = 1024
"""The most steps that are emulated."""
MOST_MULTIPLY_ADDS = 5_000_000
"""The most multiply-adds that are emulated, which takes some seconds."""

HARNESS = """#include "network.h"
network_state state;
{input} input[NETWORK_INPUTS + 1];
{output} output[NETWORK_OUTPUTS];
void set_countdown(uint64_t steps, uint32_t module);
void set_countdown(uint64_t steps, uint32_t module)
{{
    state.countdown[module] = steps;
}}
void _start(void);
void _start(void)
{{
    set_countdown(0, 0);
    network_reset(&state);
    network_step(&state, input);
    network_idle(&state);
    network_output(&state, output);
}}
"""
"""A program that keeps every function of a network, with a state and its arrays in memory, and sets its clocks."""
HARNESS_FUNCTIONS = ("_start", "set_countdown")


@dataclass(frozen=True)
class Cost:
    """The cost of one network. Work is that of a step, without the readout."""

    network: str
    """Its description."""
    units: int
    """The units of its layers."""
    parameters: int
    """Its weights and biases, those of the readout included."""
    mean_multiply_adds: float
    worst_multiply_adds: int
    mean_instructions: float | None
    """Instructions on a Cortex-M4F, or None if they were not counted."""
    worst_instructions: int | None
    constant_bytes: int
    """Weights, biases and tables."""
    code_bytes: int | None
    """The functions for a Cortex-M4F, or None if they were not compiled."""
    state_bytes: int

    def format(self) -> list[str]:
        """The cells of a row of a table."""
        cells = [self.network, f"{self.units:,}", f"{self.parameters:,}"]
        cells += [f"{self.mean_multiply_adds:,.0f}", f"{self.worst_multiply_adds:,}"]
        if self.mean_instructions is not None and self.worst_instructions is not None:
            cells += [f"{self.mean_instructions:,.0f}", f"{self.worst_instructions:,}"]
        return [*cells, f"{self.constant_bytes + (self.code_bytes or 0):,}", f"{self.state_bytes:,}"]


def measure_cost(model: Model | IntegerPlan, network: str, *, count: bool) -> Cost:
    """The cost of a model.

    Args:
        model: the network, or its plan in integers
        network: its description
        count: whether to count the instructions on an emulated Cortex-M4F, which needs the extra `export`
    """
    program = _plan_without_features(model)
    plan = find_plan(program)
    mean = worst = code = None
    constants = program.constant_bytes
    if count:
        with tempfile.TemporaryDirectory(prefix="cwrnn-") as folder:
            emulator = load_emulator(program, Path(folder))
        counts = count_steps(emulator, program)
        mean, worst = float(np.mean(counts)), max(*counts, *count_worst_steps(emulator, program))
        code = sum({symbol.address: symbol.size for name, symbol in emulator.symbols.items()
                    if symbol.is_function and name not in HARNESS_FUNCTIONS}.values())  # fmt: skip
        # a compiler needs no table of a single module
        constants += emulator.symbols["modules"].size if "modules" in emulator.symbols else 0
    return Cost(
        network=network,
        units=plan.units,
        parameters=count_parameters(plan.model),
        mean_multiply_adds=plan.mean_multiply_adds,
        worst_multiply_adds=plan.worst_multiply_adds,
        mean_instructions=mean,
        worst_instructions=worst,
        constant_bytes=constants,
        code_bytes=code,
        state_bytes=program.state_bytes,
    )


def _plan_without_features(model: Model | IntegerPlan) -> Plan | IntegerPlan:
    """The plan of the network alone: a recogniser has features, and networks that it is compared with have none."""
    if isinstance(model, IntegerPlan):
        return plan_integers(replace(model.quantised, model=replace(model.model, features=None)))
    return plan_network(replace(model, features=None))


def load_emulator(plan: Plan | IntegerPlan, folder: Path, target: Sequence[str] = TARGET) -> Emulator:
    """The program of a network in an emulated processor, compiled in `folder`, which may be removed afterwards."""
    input, output = ("int16_t", "int32_t") if isinstance(plan, IntegerPlan) else ("float", "float")
    harness = HARNESS.format(input=input, output=output)
    for file, text in {**render_program(plan, "network"), "harness.c": harness}.items():
        (folder / file).write_text(text, encoding="utf-8")
    sources = [folder / "harness.c", folder / "network.c"]
    return Emulator(compile_program(find_zig(), sources, folder / "network.elf", *target))


def count_steps(emulator: Emulator, program: Plan | IntegerPlan) -> list[int]:
    """The instructions of every step of a cycle of the clocks, or of as many as can be emulated soon.

    The very first step, at which no module has heard any other, is not among them.
    """
    plan = find_plan(program)
    affordable = max(32, int(MOST_MULTIPLY_ADDS / plan.mean_multiply_adds))
    steps = min(plan.cycle, affordable, MOST_STEPS)
    inputs: NDArray[Any] = np.random.default_rng(0).standard_normal((steps + 1, plan.model.inputs)).astype(np.float32)
    if isinstance(program, IntegerPlan):
        inputs = quantise_inputs(program.quantised, inputs).astype(np.int16)
    state, address = emulator.symbols["state"].address, emulator.symbols["input"].address
    emulator.call("network_reset", state)
    counts = []
    for input in inputs:
        emulator.write("input", input)
        counts.append(emulator.call("network_step", state, address).instructions)
    return counts[1:]


def count_worst_steps(emulator: Emulator, program: Plan | IntegerPlan) -> list[int]:
    """The instructions of the step with the most multiply-adds, and of one at which all modules tick.

    A cycle may be longer than what `count_steps` emulates. Call it after `count_steps`: it sets the clocks of the state
    to those steps, and so breaks the stream.
    """
    plan, state, counts = find_plan(program), emulator.symbols["state"].address, []
    for t in (plan.worst_step, plan.cycle):
        for number, module in enumerate(plan.modules):
            countdown = -t % module.period
            # an argument of 64 bits takes two registers
            emulator.call("set_countdown", countdown % 2**32, countdown // 2**32, number)
        counts.append(emulator.call("network_step", state, emulator.symbols["input"].address).instructions)
    return counts
