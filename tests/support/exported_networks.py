"""Networks whose C programs must compute the same bits everywhere, and the program that runs them."""

import ctypes
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN, Schedule
from cwrnn.export.c.compilers import LIBRARY, compile_program
from cwrnn.export.c.integer_plan import IntegerPlan
from cwrnn.export.c.plan import plan_network
from cwrnn.export.c.source import render_network, render_program
from cwrnn.export.model import Model, read_model
from cwrnn.network import Network


def make_networks() -> dict[str, Model]:
    """Networks of every cell, with periods that divide each other and with others, in one layer and in several."""
    torch.manual_seed(0)
    networks = {
        "tanh_chain": Network(ClockworkRNN(3, 12, schedule=[1, 2, 4]), 2),
        "tanh_others": ClockworkRNN(2, 11, schedule="3:5,4:2,7:3,11:1", bias=False),
        "tanh_layers": Network(ClockworkRNN(2, 21, 3, schedule="1:9,2:1,6:11"), 5, softmax=True),
        "relu_alone": Network(ClockworkRNN(0, 9, schedule=[1, 3], nonlinearity="relu"), 1),
        "lstm_others": ClockworkLSTM(3, 12, schedule="3:5,7:4,8:3", peepholes=True),
        "lstm_layers": Network(ClockworkLSTM(1, 7, 2, schedule="1:4,2:3", bias=False), 3),
        "lstm_alone": ClockworkLSTM(0, 5, schedule="2:2,3:3", peepholes=True),
        "gru_layers": Network(ClockworkGRU(3, 9, 2, schedule=[1, 2, 4]), 4),
        "gru_others": ClockworkGRU(2, 12, 2, schedule="3:5,4:2,7:5", bias=False),
        "gru_alone": ClockworkGRU(0, 6, schedule="2:4,4:2"),
        "one_module": ClockworkRNN(1, 23, schedule=1),
    }
    generator = np.random.default_rng(0)
    for number in range(4):
        periods = generator.choice(np.arange(1, 14), 4, replace=False).tolist()
        schedule = Schedule(tuple(periods), tuple(generator.integers(1, 6, 4).tolist()))
        kind = (ClockworkRNN, ClockworkLSTM, ClockworkGRU, ClockworkRNN)[number]
        networks[f"random_{number}"] = kind(2, schedule.hidden_size, 1 + number % 2, schedule=schedule)
    for network in networks.values():
        with torch.no_grad():
            for parameter in network.parameters():
                # far enough from zero that a wrong term shows
                parameter.mul_(1.7)
    return {name: read_model(network) for name, network in networks.items()}


WARNINGS = ("-Wall", "-Wextra", "-pedantic", "-Wconversion", "-Werror")
"""Exported programs compile without any of these warnings."""
STEPS = {"tanh_chain": 10_000, "lstm_others": 10_000, "gru_layers": 10_000}
"""How many steps of a network are hashed, unless it is OTHER_STEPS: emulating a processor takes time."""
OTHER_STEPS = 2_000

HASH = """
#include "{name}.c"
uint32_t hash_{name}(uint32_t steps, uint32_t idle);
uint32_t hash_{name}(uint32_t steps, uint32_t idle)
{{
    static {name}_state state;
    float input[{NAME}_INPUTS + 1], output[{NAME}_OUTPUTS];
    uint32_t random = 1, hash = 2166136261u, i;
    {name}_reset(&state);
    while (steps-- > 0) {{
        for (i = 0; i <= {NAME}_INPUTS; i++) {{
            random = random * 1664525u + 1013904223u;
            input[i] = ((float)(random >> 8) - 8388608.0f) / 4194304.0f;
        }}
        for (i = idle ? random >> 30 : 0; i > 0; i--)
            {name}_idle(&state);
        {name}_step(&state, input);
        {name}_output(&state, output);
        for (i = 0; i < {NAME}_OUTPUTS; i++) {{
            union {{
                float number;
                uint32_t bits;
            }} both;
            both.number = output[i];
            hash = (hash ^ both.bits) * 16777619u;
        }}
    }}
    return hash;
}}
"""
"""A function that hashes the bits of all outputs of a network, with or without calls of idle between its steps."""


def write_sources(models: dict[str, Model], folder: Path) -> list[Path]:
    """Write the programs of all models and their hash functions, and return the sources."""
    sources = []
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in models.items():
        texts = render_network(plan_network(model), name)
        # one source for each network, which takes less time to compile than two
        texts[f"hash_{name}.c"] = HASH.format(name=name, NAME=name.upper())
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
        sources.append(folder / f"hash_{name}.c")
    return sources


HASH_INTEGERS = """
#include "{name}.c"
uint32_t hash_{name}(uint32_t steps, uint32_t idle);
uint32_t hash_{name}(uint32_t steps, uint32_t idle)
{{
    static {name}_state state;
    int16_t input[{NAME}_INPUTS + 1];
    int32_t output[{NAME}_OUTPUTS];
    uint32_t random = 1, hash = 2166136261u, i;
    {name}_reset(&state);
    while (steps-- > 0) {{
        for (i = 0; i <= {NAME}_INPUTS; i++) {{
            random = random * 1664525u + 1013904223u;
            input[i] = (int16_t)((int32_t)random >> 16);
        }}
        for (i = idle ? random >> 30 : 0; i > 0; i--)
            {name}_idle(&state);
        {name}_step(&state, input);
        {name}_output(&state, output);
        for (i = 0; i < {NAME}_OUTPUTS; i++)
            hash = (hash ^ (uint32_t)output[i]) * 16777619u;
    }}
    return hash;
}}
"""
"""The same for a network in int8."""


def write_integer_sources(plans: dict[str, IntegerPlan], folder: Path) -> list[Path]:
    """Write the programs of all networks in int8 and their hash functions, and return the sources."""
    for name, plan in plans.items():
        texts = render_program(plan, name) | {f"hash_{name}.c": HASH_INTEGERS.format(name=name, NAME=name.upper())}
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
    return [folder / f"hash_{name}.c" for name in plans]


def compute_hashes(
    compiler: list[str],
    sources: list[Path],
    models: Iterable[str],
    library: Path,
    *options: str,
    steps: int | None = None,
):
    """Compile the sources for this machine, and return the hashes of all networks without and with calls of idle."""
    library.parent.mkdir()
    loaded = ctypes.CDLL(str(compile_program(compiler, sources, library, *LIBRARY, *WARNINGS, *options)))

    def call(name: str, steps: int, idle: int) -> int:
        function = getattr(loaded, f"hash_{name}")
        function.restype = ctypes.c_uint32
        return int(function(steps, idle))

    return collect_hashes(models, call, steps)


def collect_hashes(
    models: Iterable[str], call: Callable[[str, int, int], int], steps: int | None = None
) -> dict[str, tuple[int, int]]:
    """The hashes of all networks without and with calls of idle.

    Args:
        models: the networks, by name
        call: returns the hash of a network by its name, the number of steps, and 1 for calls of idle
        steps: the number of steps; None for STEPS and OTHER_STEPS
    """
    count = {name: steps or STEPS.get(name, OTHER_STEPS) for name in models}
    return {name: (call(name, count[name], 0), call(name, count[name], 1)) for name in models}
