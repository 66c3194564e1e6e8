"""The table of modules that the programs of the GPU kernel read, and the sizes of the memory that they fill.

A table is made once for each shape and phase of the clock, and kept. Its columns are the fields of `ModuleRow`, which
`Module` in cuda/modules.cuh lists in the same order.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ...schedule import Schedule
from .driver import current_stream

MOST_STEPS = 2**29
"""The most steps of a sequence. The programs count in 32 bits, and a period may be three times as long as it."""
FRAGMENT_UNITS = 16
"""Units of a fragment of the CUDA programs."""


class ModuleRow(NamedTuple):
    """A row of the table of modules: one module over T steps, from some phase of the clock.

    A module has `ticks` + 1 rows of states, of messages to the faster modules, and of gradients of the messages that it
    sends to the faster modules and to itself. Row 0 belongs to its initial state, row n to its state after tick n.
    `states` and `g_messages` say at which number the module's rows begin.
    """

    period: int
    size: int
    first_unit: int
    first_tick: int
    """The time of the first tick, counted from the start of the sequence."""
    ticks: int
    states: int
    g_messages: int
    first_block: int
    """The number of fragments (16 units times 8 sequences) that cover the units of all faster modules."""
    fragments: int
    """The number of fragments before those of this module's rows, for each tile of sequences."""
    message_fragments: int
    """The number of fragments before those of this module's messages, for each tile of sequences."""
    packed: int
    """The number of blocks of 16 receiving units that the faster modules' packed weights have."""
    transposed: int
    """The number of blocks of 16 sending units, one for each receiver, that the faster modules' weights have."""


@dataclass(eq=False, slots=True)
class Plan:
    """The modules over T steps of B sequences from some phase of the clock, as the programs read them."""

    T: int
    B: int
    table: Tensor
    """(G, columns of `ModuleRow`), int64."""
    ticks: tuple[int, ...]
    """The number of ticks of each module."""
    states_size: int
    """How many numbers the states of all modules have in one replica."""
    g_messages_size: int
    """How many numbers the gradients of the messages of all modules have in one replica."""
    streams: set[int] = field(default_factory=set)
    """The addresses of the streams that keep the memory of the table until their work has read it."""


def list_first_ticks(schedule: Schedule, t0: int, T: int) -> tuple[int, ...]:
    """The time of each module's first tick, counted from the start of a sequence that starts at `t0`.

    Raises a ValueError for a sequence that is too long for the programs.
    """
    if T > MOST_STEPS:
        raise ValueError(f"the GPU kernel takes at most {MOST_STEPS} steps, and the input has {T}")
    # a module that does not tick has no phase
    return tuple([min(-t0 % period, T) for period in schedule.periods])


def count_blocks(n: int, size: int) -> int:
    """The number of blocks of `size` that cover n."""
    return -(-n // size)


def round_up(n: int, size: int) -> int:
    """The smallest multiple of `size` that is not below n."""
    return count_blocks(n, size) * size


def make_plan(schedule: Schedule, t0: int, T: int, B: int, device: torch.device) -> Plan:
    """The plan for a sequence that starts at `t0`; streams in the same phase of the clock share it."""
    plan = _make_plan(schedule, list_first_ticks(schedule, t0, T), T, B, device)
    _keep_for_stream(plan)
    return plan


@lru_cache(maxsize=4096)
def _make_plan(schedule: Schedule, first_ticks: tuple[int, ...], T: int, B: int, device: torch.device) -> Plan:
    rows = []
    states = g_messages = 0
    first_block = fragments = message_fragments = packed = transposed = 0
    faster = 1
    modules = zip(schedule.periods, schedule.sizes, schedule.slices, first_ticks, strict=True)
    for period, size, units, first_tick in modules:
        # the programs count in 32 bits: a period longer than the sequence becomes a shorter one, which is still longer
        # than the sequence and a multiple of the next faster period
        period = faster = min(period, (T // faster + 2) * faster if faster <= T else faster)
        ticks = (T - 1 - first_tick) // period + 1 if first_tick < T else 0
        rows.append(
            ModuleRow(
                period=period,
                size=size,
                first_unit=units.start,
                first_tick=first_tick,
                ticks=ticks,
                states=states,
                g_messages=g_messages,
                first_block=first_block,
                fragments=fragments,
                message_fragments=message_fragments,
                packed=packed,
                transposed=transposed,
            )
        )
        states += (ticks + 1) * B * size
        g_messages += (ticks + 1) * B * units.stop
        fragments += (ticks + 1) * -(-size // FRAGMENT_UNITS)
        message_fragments += (ticks + 1) * first_block
        first_block += -(-size // FRAGMENT_UNITS)
        packed += first_block
        transposed += -(-size // FRAGMENT_UNITS) * len(rows)
    table = _copy_to_device(rows, torch.int64, device)
    return Plan(T, B, table, tuple(row.ticks for row in rows), states, g_messages)


def _copy_to_device(rows: Sequence[tuple[int, ...]], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A table of those rows on the device, in memory of its own."""
    if device.type == "cpu":
        return torch.tensor(rows, dtype=dtype)
    # in another thread: one that prepares to capture a CUDA graph allocates from a pool that the graph takes back
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(torch.tensor, rows, dtype=dtype, device=device).result()


_captured: list[Tensor] = []


def _keep_for_stream(plan: Plan) -> None:
    """Keep the memory of a plan's table until the current stream has read it, even if the caches drop the plan."""
    table = plan.table
    if not table.is_cuda:
        return
    if torch.cuda.is_current_stream_capturing():
        # a captured graph reads it for as long as it lives, and nothing tells us when it ends
        _captured.append(table)
        return
    stream = current_stream(table.get_device())
    if stream not in plan.streams:
        # when the memory is freed, torch waits for all work of its streams until then, not only for that until now
        table.record_stream(torch.cuda.current_stream(table.device))
        plan.streams.add(stream)
