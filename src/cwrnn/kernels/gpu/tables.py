"""The tables that the programs of the GPU kernel read, and the sizes of the memory that they fill.

A table is made once for each shape and phase of the clock, and kept. Its columns are the fields of a row's class. The
Triton programs read them by the numbers in `MODULE`, `PART` and `BLOCK`. For the CUDA programs, `Module` in
cuda/modules.cuh lists the fields of `ModuleRow` in the same order. Only gated cells use the tables of parts and blocks.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ...schedule import Schedule

BLOCK_SIZE = 64
"""Rows and columns of a block of the weights' gradients of a gated cell. In half precision, large modules have larger
ones."""
FRAGMENT_UNITS = 16
"""Units of a fragment of the CUDA programs."""
PART_LINES = 4096
"""Lines (rows of a module, times sequences) that one program multiplies to a part of such a block."""


class ModuleRow(NamedTuple):
    """A row of the table of modules: one module over T steps, from some phase of the clock.

    A module has `ticks` + 1 rows in each of three tensors: its states, its messages to the faster modules, and the
    gradients of the messages that it sends to the faster modules and to itself. Row 0 belongs to its initial state,
    row n to its state after tick n. The columns named after these tensors say at which number the module's rows begin.
    """

    period: int
    size: int
    first_unit: int
    first_tick: int
    """The time of the first tick, counted from the start of the sequence."""
    ticks: int
    states: int
    messages: int
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


class PartRow(NamedTuple):
    """A row of the table of parts: the product over some lines of one module, which is a part of a block."""

    of_input: int
    """1 if the block belongs to the gradient of weight_ih, 0 if it belongs to that of weight_hh."""
    module: int
    receiver: int
    """The block's first row: the unit that receives."""
    sender: int
    """The block's first column: the input, or the unit counted from the module's first one, that sends."""
    first_line: int
    end_line: int
    """The line after the last one."""


class BlockRow(NamedTuple):
    """A row of the table of blocks: a block of the weights' gradients, and the parts that it is the sum of."""

    of_input: int
    module: int
    receiver: int
    sender: int
    first_part: int
    end_part: int
    """The part after the last one."""


MODULE = ModuleRow._make(range(len(ModuleRow._fields)))
"""The number of each column in the table of modules."""
PART = PartRow._make(range(len(PartRow._fields)))
"""The number of each column in the table of parts."""
BLOCK = BlockRow._make(range(len(BlockRow._fields)))
"""The number of each column in the table of blocks."""


class Plan(NamedTuple):
    """The modules over T steps from some phase of the clock, as the programs read them."""

    table: Tensor
    """(G, columns of `ModuleRow`), int64."""
    ticks: tuple[int, ...]
    """The number of ticks of each module."""
    states_size: int
    """How many numbers the states of all modules have in one replica."""
    messages_size: int
    """How many numbers the messages of all modules have in one replica."""
    g_messages_size: int
    """How many numbers the gradients of the messages of all modules have in one replica."""


def count_blocks(n: int, size: int) -> int:
    """The number of blocks of `size` that cover n."""
    return -(-n // size)


def round_up(n: int, size: int) -> int:
    """The smallest multiple of `size` that is not below n."""
    return count_blocks(n, size) * size


def make_plan(schedule: Schedule, t0: int, T: int, B: int, device: torch.device) -> Plan:
    """The plan for a sequence that starts at `t0`; streams in the same phase of the clock share it."""
    # a module that does not tick has no phase
    first_ticks = tuple(min(-t0 % period, T) for period in schedule.periods)
    plan = _make_plan(schedule, first_ticks, T, B, device)
    _keep_for_stream(plan.table)
    return plan


def make_weight_tables(
    schedule: Schedule,
    ticks: tuple[int, ...],
    B: int,
    I: int,
    recurrent: bool,
    inputs: bool,
    device: torch.device,
    block: int = BLOCK_SIZE,
) -> tuple[Tensor, Tensor]:
    """The table of parts and the table of blocks of the weights' gradients, both int32.

    `recurrent`: include the blocks of weight_hh. `inputs`: include those of weight_ih, which also sum up the bias.
    `block`: rows and columns of a block.
    """
    tables = _make_weight_tables(schedule, ticks, B, I, recurrent, inputs, device, block)
    _keep_for_stream(*tables)
    return tables


@lru_cache(maxsize=4096)
def _make_plan(schedule: Schedule, first_ticks: tuple[int, ...], T: int, B: int, device: torch.device) -> Plan:
    rows = []
    states = messages = g_messages = 0
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
                messages=messages,
                g_messages=g_messages,
                first_block=first_block,
                fragments=fragments,
                message_fragments=message_fragments,
                packed=packed,
                transposed=transposed,
            )
        )
        states += (ticks + 1) * B * size
        messages += (ticks + 1) * B * units.start
        g_messages += (ticks + 1) * B * units.stop
        fragments += (ticks + 1) * -(-size // FRAGMENT_UNITS)
        message_fragments += (ticks + 1) * first_block
        first_block += -(-size // FRAGMENT_UNITS)
        packed += first_block
        transposed += -(-size // FRAGMENT_UNITS) * len(rows)
    table = _copy_to_device(rows, torch.int64, device)
    return Plan(table, tuple(row.ticks for row in rows), states, max(messages, 1), g_messages)


@lru_cache(maxsize=4096)
def _make_weight_tables(
    schedule: Schedule,
    ticks: tuple[int, ...],
    B: int,
    I: int,
    recurrent: bool,
    inputs: bool,
    device: torch.device,
    block: int,
) -> tuple[Tensor, Tensor]:
    parts: list[PartRow] = []
    blocks: list[BlockRow] = []

    def add_block(of_input: int, module: int, receiver: int, sender: int, lines: int) -> None:
        where = {"of_input": of_input, "module": module, "receiver": receiver, "sender": sender}
        first_part = len(parts)
        for line in range(0, lines, PART_LINES):
            parts.append(PartRow(**where, first_line=line, end_line=min(line + PART_LINES, lines)))
        blocks.append(BlockRow(**where, first_part=first_part, end_part=len(parts)))

    for j, (n, size, units) in enumerate(zip(ticks, schedule.sizes, schedule.slices, strict=True)):
        if recurrent:
            for receiver in range(0, units.stop, block):
                for sender in range(0, size, block):
                    add_block(0, j, receiver, sender, (n + 1) * B)
        if inputs:
            for receiver in range(units.start, units.stop, block):
                for sender in range(0, max(I, 1), block):
                    add_block(1, j, receiver, sender, n * B)
    return _copy_to_device(parts, torch.int32, device).view(-1, len(PART)), _copy_to_device(blocks, torch.int32, device)


def _copy_to_device(rows: Sequence[tuple[int, ...]], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A table of those rows on the device, in memory of its own."""
    if device.type == "cpu":
        return torch.tensor(rows, dtype=dtype)
    # in another thread: one that prepares to capture a CUDA graph allocates from a pool that the graph takes back
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(torch.tensor, rows, dtype=dtype, device=device).result()


_captured: list[Tensor] = []


def _keep_for_stream(*tables: Tensor) -> None:
    """Keep the memory of `tables` until the work of the current stream has read them, even if the caches drop them."""
    if not tables[0].is_cuda:
        return
    if torch.cuda.is_current_stream_capturing():
        # a captured graph reads them for as long as it lives, and nothing tells us when it ends
        _captured.extend(tables)
        return
    stream = torch.cuda.current_stream(tables[0].device)
    for table in tables:
        table.record_stream(stream)
