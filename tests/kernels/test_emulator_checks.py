"""The checks of the emulated CUDA programs: whole calls are clean, and planted faults are reported."""

import os
import re
from contextlib import contextmanager
from typing import NamedTuple

import pytest
import torch
from support import emulated_gpu
from support.network_cases import Case, evaluate
from support.planted_faults import Fault, change_programs, planting
from support.scan_layouts import Cut, cutting

from cwrnn import Schedule
from cwrnn.kernels.backend import KernelBackend
from cwrnn.kernels.gpu import launch, small, stepping

pytestmark = pytest.mark.skipif(not emulated_gpu.has_compiler(), reason="the emulator needs g++ on x86-64")


class Call(NamedTuple):
    """A small call of a network."""

    case: Case
    dtype: torch.dtype = torch.float32
    cut: Cut | None = None
    is_small: bool = False


NESTED, COPRIME = Schedule((1, 2, 4), (16, 3, 20)), Schedule((2, 3, 5), (5, 3, 9))
EVEN = Schedule((1, 2, 4), (16, 8, 24))
CALLS = {
    "scan": Call(Case(NESTED, 11, 9, 3, 1)),
    "scan long": Call(Case(NESTED, 45, 3, 3, 1)),
    "scan coprime": Call(Case(COPRIME, 13, 9, 3, 1, cell="relu"), torch.bfloat16),
    "scan vectors": Call(Case(EVEN, 11, 9, 3, 1), torch.bfloat16),
    "spread": Call(Case(Schedule((1, 2), (20, 40)), 9, 9, 3, 1), cut=Cut(2, 1, 2, 2)),
    "turns": Call(Case(Schedule((1, 2), (16, 40)), 9, 20, 3, 1), torch.bfloat16, Cut(1, 1, 1, 1, 3)),
    "two turns": Call(Case(Schedule((1, 2), (16, 40)), 9, 11, 3, 1), torch.bfloat16, Cut(2, 1, 2, 1, 2)),
    "two turns, three modules": Call(Case(Schedule((1, 2, 8), (36, 36, 36)), 33, 16, 3, 0), cut=Cut(2, 1, 2, 1, 2)),
    "scan lstm": Call(Case(NESTED, 9, 9, 3, 1, cell="lstm", peepholes=True)),
    "spread gru": Call(Case(Schedule((1, 2), (20, 40)), 9, 9, 3, 1, cell="gru"), cut=Cut(2, 1, 2, 2)),
    "small": Call(Case(NESTED, 40, 2, 3, 1), is_small=True),
    "small, many inputs": Call(Case(NESTED, 40, 2, 70, 1), is_small=True),
    "small narrow": Call(Case(COPRIME, 40, 2, 3, 1), is_small=True),
    "small lstm": Call(Case(COPRIME, 40, 2, 3, 1, cell="lstm", peepholes=True), is_small=True),
    "small gru": Call(Case(COPRIME, 40, 2, 3, 1, cell="gru"), is_small=True),
}
QUICK_CALLS = ["scan", "small"]

RACE, SHARED, GLOBAL = "a race: ", "a race: .* of shared memory", "a race: .* of global memory"
NOT_AWAITED, OUTSIDE = "a copy that was not awaited: ", "an access outside of the memory of the launch: "
SCAN, BACK, MODULES, GRADIENTS = "scan_forward.cu", "scan_backward.cu", "modules.cuh", "gradients.cu"
SMALL, DRIVES, PRIMITIVES = "small_forward.cu", "small.cuh", "primitives.cuh"
# the emulator runs other threads while one reads shared memory, but not while it glances
GLANCE = (
    PRIMITIVES, "while (ready < count) ready = read_flag(flag);",
    "while (ready < count) {\n        read_shared((const int *)&ready);\n        ready = glance_at_flag(flag);\n    }",
)  # fmt: skip
FAULTS = [
    # between the threads of a block
    ("scan", Fault("a tick that does not wait for the one before", SHARED,
        ((SCAN, "#if !SPREAD\n                join_workers();", "#if !SPREAD"),))),
    ("scan", Fault("rows of messages that are overwritten while they are read", SHARED,
        ((SCAN, "        join_workers();\n        /* the rows of the next slower module", "        /* the rows"),))),
    ("scan", Fault("gradients that are gathered where others are still read", SHARED,
        ((BACK, "            for (int gate = 0; gate < GATES; gate += AT_ONCE) {\n                join_workers();",
          "            for (int gate = 0; gate < GATES; gate += AT_ONCE) {"),))),
    ("spread", Fault("sums that are read before they are there", SHARED,
        ((MODULES, "    join_workers();\n    if (warp < owners)", "    if (warp < owners)"),))),
    ("scan", Fault("stages that are overwritten while they are read", NOT_AWAITED + "|" + SHARED,
        ((GRADIENTS, "        join_block();\n        if (n", "        if (n"),))),
    ("small", Fault("steps that do not wait for each other", SHARED,
        ((SMALL, "            if (++t == end) break;\n            join_scan();",
          "            if (++t == end) break;"),))),
    ("small narrow", Fault("helpers that do not wait for each other", SHARED,
        ((DRIVES, "        join_helpers();\n        if (works) {", "        if (works) {"),))),
    ("small, many inputs", Fault("inputs that are overwritten while they are read", SHARED,
        ((DRIVES, "from += INPUTS) {\n        join_helpers();", "from += INPUTS) {"),))),
    ("small", Fault("chunks that do not wait for their drives", SHARED,
        ((SMALL, "        compute_drive(call, source, memory.operands, memory.drive[buffer], first, helper);\n"
          "        join_block();", "        join_block();\n"
          "        compute_drive(call, source, memory.operands, memory.drive[buffer], first, helper);"),))),
    # between blocks
    ("scan", Fault("messages that are announced before they are there", GLOBAL,
        ((SCAN, "            join_workers();\n            if (thread == 0) add_to_flag(message_flag",
          "            if (thread == 0) add_to_flag(message_flag"),))),
    ("scan long", Fault("a row that is announced too early", GLOBAL,
        ((SCAN, "thread == 0 && (row + 1 - DEFERRED) % CHUNK", "thread == 0 && (row + 2 - DEFERRED) % CHUNK"),
         (SCAN, "(flag, counted, row + 1 - DEFERRED)", "(flag, counted, row + 2 - DEFERRED)")))),
    # either of the two waits for these gradients is enough
    ("two turns, three modules", Fault("gradients that are read before they are gathered", GLOBAL,
        ((BACK, "if (FETCHED && j > 1)", "if (false && j > 1)"),
         (BACK, "                load_ahead(place, (turn + 1) % TURNS);\n#endif\n", "#endif\n"),
         (BACK, "                if (EARLY)\n                    glance(",
          "                load_ahead(place, (turn + 1) % TURNS);\n                if (EARLY)\n"
          "                    glance(")))),
    ("spread", Fault("a glance of one lane, which says nothing to the others", GLOBAL, (GLANCE,))),
    ("turns", Fault("plain reads behind a glance", GLOBAL,
        (GLANCE, (MODULES, "copy_later<16>(to + u * sizeof(element), source + u, true)",
                  "*(uint4 *)(to + u * sizeof(element)) = *(const uint4 *)(source + u)")))),
    # copies in the background
    ("turns", Fault("copies that are not awaited", NOT_AWAITED + ".* reads .* copies in the background",
        ((SCAN, "                await_copies<0>();\n", ""),))),
    ("turns", Fault("copies that are awaited behind the barrier", NOT_AWAITED + "|" + SHARED,
        ((SCAN, "                await_copies<0>();\n                join_workers();\n",
          "                join_workers();\n                await_copies<0>();\n"),))),
    ("scan long", Fault("stages that are read while they are copied", NOT_AWAITED,
        ((GRADIENTS, "        await_copies<STAGES - 2>();\n        join_block();\n        if (n",
          "        await_copies<STAGES - 1>();\n        join_block();\n        if (n"),))),
    # memory
    ("scan", Fault("steps that the output does not have", OUTSIDE + ".* writes .* behind the end of global memory",
        (("hold.cu", "begin + HOLD_STEPS < call.T ? begin + HOLD_STEPS : call.T;", "begin + HOLD_STEPS;"),))),
    ("scan", Fault("a drive behind those of the last tick", OUTSIDE + ".* reads",
        ((SCAN, "if (is_tick && there[i % TILES])\n                drives[i]",
          "if (owner && there[i % TILES])\n                drives[i]"),))),
    ("scan", Fault("a copy behind the last line", OUTSIDE,
        ((GRADIENTS, "gradients + (int64)(begin + line) * end + column, begin + line < stop && ",
          "gradients + (int64)(begin + line) * end + column, begin + line < stop + 1 && "),))),
    ("small", Fault("a unit that the weights do not have", OUTSIDE + ".* reads",
        ((SMALL, "column >= start && column < N", "column >= start"),))),
    ("scan", Fault("shared memory that the block does not have", OUTSIDE + ".* behind the end of shared memory",
        ((SCAN, "i < TURNS * BUFFERS * ROW_BYTES / 4;", "i < 40 * ROW_BYTES / 4;"),))),
    ("scan vectors", Fault("a vector that is not aligned", "a pointer that is NULL or not aligned: .*modules.cuh",
        ((MODULES, "+ (first + row) * stride + piece * per;", "+ (first + row) * stride + piece * per + 1;"),))),
    ("turns", Fault("a copy from an address that is not aligned", "no multiple of the size: .* reads 16 bytes",
        ((MODULES, "copy_later<16>(to + u * sizeof(element), source + u, true)",
          "copy_later<16>(to + u * sizeof(element), source + u + 1, true)"),))),
    # what C++ does not define
    ("small", Fault("an index behind an array", "an index outside of its array: .*small_forward.cu",
        ((SMALL, "due = memory.ticks[buffer][unit]", "due = memory.ticks[buffer + 2][unit]"),))),
    ("small", Fault("a shift by too many bits", "a shift by too many bits: .*small.cuh",
        ((DRIVES, "pattern << left &", "pattern << (left + 31) &"),))),
]  # fmt: skip
QUICK_FAULTS = [
    "steps that do not wait for each other", "a unit that the weights do not have", "copies that are not awaited",
    "messages that are announced before they are there", "an index behind an array",
]  # fmt: skip
ALL = os.environ.get("CWRNN_CHECK_PROGRAMS") == "1"
"""Whether `make sanitize` runs the tests. Else some of them are enough."""


@contextmanager
def checked(is_small=False):
    """Launches run on the emulator, under its checks; yields the emulator."""
    with (
        emulated_gpu.checking(),
        emulated_gpu.emulating(large=not is_small) as device,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(stepping, "refuse_programs", lambda: None)
        patch.setattr(launch, "_count_multiprocessors", lambda device: 132)
        yield device


def run(call):
    """One call, forward and backward."""
    with checked(call.is_small), cutting(call.cut):
        evaluate(call.case, KernelBackend(small if call.is_small else launch).run, call.dtype)


@pytest.mark.parametrize("name", list(CALLS) if ALL else QUICK_CALLS)
def test_calls_break_no_rule(name):
    run(CALLS[name])


@torch.no_grad()
def test_a_step_breaks_no_rule():
    input, *weights, h = Case(NESTED, 1, 3, 2, 0, cell="lstm").tensors(torch.float32)
    with checked() as device:
        stepping.step(input[0], *weights, h, NESTED, 4, "lstm", None, None)
    assert device.launched


def test_planted_faults_fit_the_programs():
    """The faults that only `make sanitize` plants too."""
    for _, fault in FAULTS:
        change_programs(fault)


@pytest.mark.parametrize(
    ("name", "fault"),
    [pytest.param(name, fault, id=fault.name) for name, fault in FAULTS if ALL or fault.name in QUICK_FAULTS],
)
def test_a_planted_fault_is_reported(tmp_path, name, fault):
    with planting(fault, tmp_path), pytest.raises(AssertionError) as raised:
        run(CALLS[name])
    assert re.search(fault.report, str(raised.value)), raised.value
