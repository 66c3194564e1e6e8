"""The recurrences of simple cells (tanh, relu) on a GPU, module by module, by the CUDA programs in `cuda/`.

One launch computes all modules at once, forward or backward. A block computes the recurrence of one module for 8
sequences, with its weights in registers; the weights of a large module are spread over several blocks, which exchange
their states through memory. `Layout` says how many warps, units and registers that takes.
"""

from array import array
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ...schedule import Schedule
from . import driver
from .tables import Plan

SEQUENCES = 8
"""Sequences of a tile, which one block computes together."""
ROWS = 16
"""Units of a fragment."""
FRAGMENT = SEQUENCES * ROWS
"""Numbers of a fragment."""
FLAG_STRIDE = 8
"""Numbers between two flags: as in modules.cuh."""
STEP_BYTES = 32
"""Bytes of a state that one product of the matrix unit takes."""
WEIGHT_REGISTERS = 128
"""Registers of a thread that weights may take."""
ELEMENTS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""The numbers of the dtypes in primitives.cuh."""


class Layout(NamedTuple):
    """How the programs cut the modules: the constants of modules.cuh."""

    steps: int
    warps: int
    tiles: int
    split: int
    products: int
    spread: bool

    @property
    def units(self) -> int:
        """Units of a module that one block computes."""
        return self.warps // self.split * self.tiles * ROWS

    @property
    def pitch(self) -> int:
        """Bytes of a row of states in shared memory."""
        return self.steps * STEP_BYTES + 16

    def count_parts(self, size: int, units: int | None = None) -> int:
        """The number of blocks that a module of `size` units is spread over."""
        return -(-size // (units or self.units))

    @property
    def registers(self) -> int:
        """Registers of a thread that have weights."""
        return self.tiles * self.steps // self.split * (8 if self.products == 3 else 4)

    @property
    def ahead(self) -> int:
        """How many ticks are loaded ahead: as many as there are registers for. Large modules have long ticks."""
        if self.registers > WEIGHT_REGISTERS // 2:
            return 1
        return 3

    @property
    def has_signaller(self) -> bool:
        """Whether one warp more announces rows: where a thread of it can have the registers that it needs.

        Forward, the fastest module announces nothing, and the others have time.
        """
        return not self.spread and self.registers <= WEIGHT_REGISTERS // 2

    @property
    def gather_units(self) -> int:
        """Units that one block gathers gradients for."""
        return self.warps * (2 if self.spread else self.tiles) * ROWS

    def choose_chunk(self, wide: int, shared: int) -> int:
        """How many rows of messages a block computes together: as many as registers and shared memory have room for."""
        most = 64 // (4 * wide * (2 if self.products == 3 else 1))
        return max(1, min(8, 1 << most.bit_length() - 1, 1 << (shared // (SEQUENCES * self.pitch)).bit_length() - 1))


@lru_cache(maxsize=1024)
def choose_layout(largest: int, element_size: int, products: int) -> Layout:
    """The layout for modules of at most `largest` units.

    >>> choose_layout(128, 2, 1).units, choose_layout(512, 2, 1).units, choose_layout(512, 4, 1).units
    (128, 128, 64)
    """
    words = 8 if products == 3 else 4
    blocks = -(-largest // ROWS)
    # the programs take two steps at a time
    steps = _round_up(-(-largest * element_size // STEP_BYTES), 2)
    # a block computes the whole module, if its weights fit
    for warps, tiles in ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2)):
        if warps * tiles >= blocks and tiles * steps * words <= WEIGHT_REGISTERS:
            return Layout(steps, warps, tiles, 1, products, False)
    for split in (1, 2, 4, 8):
        steps = _round_up(steps, 2 * split)
        for tiles in (2, 1):
            if tiles * (steps // split) * words <= WEIGHT_REGISTERS:
                return Layout(steps, 8, tiles, split, products, True)
    raise ValueError(f"modules of {largest} units are too large")


def _round_up(number: int, step: int) -> int:
    """The smallest multiple of `step` that is not below `number`."""
    return -(-number // step) * step


class Programs(NamedTuple):
    """The programs for one kind of call, and how they are cut."""

    layout: Layout
    drive: driver.Program
    pack: driver.Program
    forward: driver.Program
    hold: driver.Program
    collect: driver.Program
    pack_transposed: driver.Program
    backward: driver.Program


DRIVE_WARPS, DRIVE_TALL = 4, 4
"""Warps of a block that computes drives, and ticks of a tile that a warp computes."""
PACK_WARPS = 4
"""Warps of a block that packs weights."""
HOLD_WARPS, HOLD_STEPS, SUM_WIDTH = 4, 16, 2
"""Warps of a block that holds states, and its time steps; fragments of a warp that collects gradients."""


@lru_cache(maxsize=1024)
def load_programs(
    schedule: Schedule, cell: str, dtype: torch.dtype, products: int, even_input: bool, index: int, limit: int
) -> Programs:
    """The programs for a schedule and a dtype on a CUDA device, whose blocks have at most `limit` bytes of shared memory."""
    size = dtype.itemsize
    layout = choose_layout(max(schedule.sizes), size, products)
    nested = all(slow % fast == 0 for fast, slow in zip(schedule.periods, schedule.periods[1:], strict=False))
    even = all(units % 2 == 0 for units in schedule.sizes)
    full = all(units % ROWS == 0 for units in schedule.sizes)

    def load(name: str, file: str, threads: int, shared: int, **others: int) -> driver.Program:
        constants = {
            "ELEMENT": ELEMENTS[dtype], "STEPS": layout.steps, "WARPS": layout.warps, "TILES": layout.tiles,
            "SPLIT": layout.split, "PRODUCTS": products, "SPREAD": int(layout.spread), "CHUNK": 1, "AHEAD": 1, "TRANSPOSED": 0,
            "NESTED": int(nested), "RECTIFY": int(cell == "relu"), "EVEN": int(even), "FULL": int(full),
            "VECTOR": int(_is_vector(schedule, size)), "SIGNALLER": 0,
        } | others  # fmt: skip
        return driver.load_program(file, name, tuple(sorted(constants.items())), threads, shared, index)

    def load_scan(name: str, wide: int, signaller: bool) -> driver.Program:
        rows = 2 * SEQUENCES * layout.pitch + (layout.split - 1) * layout.units * SEQUENCES * 4 + 16
        # what a block of messages needs beside its rows is little
        chunk = layout.choose_chunk(wide, limit - 256)
        shared = max(rows, chunk * SEQUENCES * layout.pitch + 8 * chunk)
        threads = 32 * (layout.warps + signaller)
        return load(name, f"{name}.cu", threads, shared, CHUNK=chunk, SIGNALLER=int(signaller), AHEAD=layout.ahead)

    def load_pack(transposed: int) -> driver.Program:
        return load("pack_weights", "pack.cu", 32 * PACK_WARPS, 0, WARPS=PACK_WARPS, TRANSPOSED=transposed)

    return Programs(
        layout,
        load(
            "compute_drive", "drive.cu", 32 * DRIVE_WARPS, 0, EVEN=int(even_input), WARPS=DRIVE_WARPS,
            TILES=2 if size == 4 else 4, SPLIT=1, STEPS=1, PRODUCTS=3 if size == 4 else 1, SPREAD=0,
        ),
        load_pack(0),
        load_scan("scan_forward", min(2, layout.tiles), signaller=False),
        load("hold_states", "hold.cu", 32 * HOLD_WARPS, 0, WARPS=HOLD_WARPS, TILES=1, SPLIT=1, STEPS=1, SPREAD=0),
        load("collect_gradients", "hold.cu", 32 * HOLD_WARPS, 0, WARPS=HOLD_WARPS, TILES=1, SPLIT=1, STEPS=1, SPREAD=0),
        load_pack(1),
        load_scan("scan_backward", 2 if layout.spread else layout.tiles, layout.has_signaller),
    )  # fmt: skip


def forward(
    plan: Plan,
    schedule: Schedule,
    programs: Programs,
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    final: Tensor,
    held: Tensor | None,
    stream: int,
) -> None:
    """Fills `states`, `final` and `held`. The tensors must be dense; a leading axis of S replicas may be there."""
    lead = weight_hh.shape[:-2]
    S, (T, B, I), (N, G) = lead.numel(), input.shape[-3:], (schedule.hidden_size, schedule.modules)
    layout, tiles = programs.layout, -(-B // SEQUENCES)
    drive = torch.empty(S * plan.fragments * tiles * FRAGMENT, dtype=torch.float32, device=input.device)
    messages = torch.empty(
        S * max(plan.message_fragments, 1) * tiles * FRAGMENT, dtype=torch.float32, device=input.device
    )
    parts = layout.count_parts(max(schedule.sizes))
    message_parts = _count_message_parts(layout, max(schedule.sizes))
    counters = (G * parts + G * G * message_parts) * tiles * FLAG_STRIDE
    exchange = _count_exchange(layout, plan, tiles, input.element_size())
    flags = torch.zeros(FLAG_STRIDE + S * (counters + exchange), dtype=torch.int32, device=input.device)
    blocks = _count_drive_blocks(schedule.sizes, plan.ticks, tiles, input.element_size() == 4)
    at_lengths = 0 if lengths is None else lengths.data_ptr()
    if blocks > 0:
        driver.launch(programs.drive, blocks, S, array("q", (
            plan.table.data_ptr(), input.data_ptr(), weight_ih.data_ptr(), 0 if bias is None else bias.data_ptr(),
            at_lengths, drive.data_ptr(), B, I, N, tiles,
            input.stride(0) if lead else 0, input.stride(-3), input.stride(-2), weight_ih.stride(0) if lead else 0,
            bias.stride(0) if lead and bias is not None else 0, plan.fragments * tiles * FRAGMENT,
        )), stream)  # fmt: skip
    packed = _pack(programs.pack, plan.packed, plan, layout, weight_hh, stream)
    count = tiles * (G * parts + (G - 1) * message_parts) * S
    driver.launch(programs.forward, count, 1, array("q", (
        plan.table.data_ptr(), flags.data_ptr(), flags.data_ptr() + 4 * FLAG_STRIDE,
        flags.data_ptr() + 4 * (FLAG_STRIDE + S * counters), packed.data_ptr(),
        0 if h0 is None else h0.data_ptr(), drive.data_ptr(), messages.data_ptr(), states.data_ptr(), final.data_ptr(),
        at_lengths, B, N, G, tiles, parts, message_parts,
        packed.numel() // S, h0.stride(0) if lead and h0 is not None else 0,
        0 if h0 is None else h0.stride(-2), plan.states_size, plan.fragments * tiles * FRAGMENT,
        plan.message_fragments * tiles * FRAGMENT, counters, exchange,
    )), stream)  # fmt: skip
    if held is not None and T > 0:
        hold_fields = _describe_hold(plan, lengths, states, T, B, N, G, tiles)
        hold_fields[3] = held.data_ptr()
        piece = 16 // input.element_size() if _is_vector(schedule, input.element_size()) else 1
        columns = -(-B * (N // piece) // (32 * HOLD_WARPS))
        driver.launch(programs.hold, columns * -(-T // HOLD_STEPS), S, hold_fields, stream)


def backward(
    plan: Plan,
    schedule: Schedule,
    programs: Programs,
    weight_hh: Tensor,
    lengths: Tensor | None,
    T: int,
    B: int,
    states: Tensor,
    g_held: Tensor | None,
    g_states: Tensor | None,
    g_final: Tensor | None,
    g_h0: Tensor | None,
    stream: int,
) -> Tensor:
    """The gradients of the messages of all modules; fills `g_h0`. The tensors must be dense."""
    lead = weight_hh.shape[:-2]
    S, N, G = lead.numel(), schedule.hidden_size, schedule.modules
    layout, tiles = programs.layout, -(-B // SEQUENCES)
    packed = _pack(programs.pack_transposed, plan.transposed, plan, layout, weight_hh, stream)
    g_outside, g_faster = (
        torch.empty(S * plan.fragments * tiles * FRAGMENT, dtype=torch.float32, device=states.device) for _ in range(2)
    )
    g_messages = states.new_empty(S * plan.g_messages_size)
    parts = layout.count_parts(max(schedule.sizes))
    gather_parts = layout.count_parts(max(schedule.sizes), layout.gather_units)
    counters = (G * parts + G * gather_parts) * tiles * FLAG_STRIDE
    exchange = _count_exchange(layout, plan, tiles, states.element_size())
    flags = torch.zeros(FLAG_STRIDE + S * (counters + exchange), dtype=torch.int32, device=states.device)
    fields = _describe_hold(plan, lengths, states, T, B, N, G, tiles)
    for place, tensor in ((4, g_held), (5, g_states), (6, g_final)):
        fields[place] = 0 if tensor is None else tensor.data_ptr()
    fields[7] = g_outside.data_ptr()
    if g_held is not None:
        *_, fields[14], fields[15], fields[16], _ = (0, *g_held.stride()[-4 if lead else -3 :])
    fields[17] = plan.fragments * tiles * FRAGMENT
    blocks = sum(
        (n + 1) * -(-tiles * -(-size // (ROWS * SUM_WIDTH)) // HOLD_WARPS)
        for n, size in zip(plan.ticks, schedule.sizes, strict=True)
    )
    driver.launch(programs.collect, blocks, S, fields, stream)
    count = tiles * (G * parts + (G - 1) * gather_parts) * S
    driver.launch(programs.backward, count, 1, array("q", (
        plan.table.data_ptr(), flags.data_ptr(), flags.data_ptr() + 4 * FLAG_STRIDE,
        flags.data_ptr() + 4 * (FLAG_STRIDE + S * counters), packed.data_ptr(),
        states.data_ptr(), g_outside.data_ptr(), g_faster.data_ptr(), g_messages.data_ptr(),
        0 if g_h0 is None else g_h0.data_ptr(), B, N, G, tiles, parts, gather_parts,
        packed.numel() // S, plan.states_size, plan.fragments * tiles * FRAGMENT, plan.g_messages_size,
        counters, exchange,
    )), stream)  # fmt: skip
    return g_messages


def _pack(
    program: driver.Program, blocks: int, plan: Plan, layout: Layout, weight_hh: Tensor, stream: int
) -> Tensor:
    """The weights as the programs load them, `blocks` times 16 units and all steps of each replica."""
    S, N = weight_hh.shape[:-2].numel(), weight_hh.shape[-1]
    fragments, words = blocks * layout.steps, 8 if layout.products == 3 else 4
    packed = torch.empty(S * fragments * 32 * words, dtype=torch.int32, device=weight_hh.device)
    fields = (
        plan.table.data_ptr(), weight_hh.data_ptr(), packed.data_ptr(), N, fragments,
        weight_hh.stride(0) if weight_hh.dim() > 2 else 0,
    )  # fmt: skip
    driver.launch(program, -(-fragments // PACK_WARPS), S, array("q", fields), stream)
    return packed


def _describe_hold(
    plan: Plan, lengths: Tensor | None, states: Tensor, T: int, B: int, N: int, G: int, tiles: int
) -> "array[int]":
    """The structure `Call` of hold.cu, without the tensors that only one of its programs uses."""
    return array("q", (
        plan.table.data_ptr(), 0 if lengths is None else lengths.data_ptr(), states.data_ptr(), 0, 0, 0, 0, 0,
        T, B, N, G, tiles, plan.states_size, 0, 0, 0, 0,
    ))  # fmt: skip


def _count_drive_blocks(sizes: tuple[int, ...], ticks: tuple[int, ...], tiles: int, wide: bool) -> int:
    """The number of blocks that compute the drive; `wide` elements have 4 bytes."""
    tall = DRIVE_WARPS * DRIVE_TALL
    return sum(
        -(-n * tiles // tall) * -(-(-(-size // ROWS)) // (2 if wide else 4)) for n, size in zip(ticks, sizes, strict=True)
    )


def _count_exchange(layout: Layout, plan: Plan, tiles: int, element_size: int) -> int:
    """How many numbers of 32 bits a replica needs for the exchange of rows between the parts of its modules."""
    return plan.blocks * tiles * 2 * 32 * 4 * (2 if element_size == 4 else 1) if layout.spread else 0


def _count_message_parts(layout: Layout, largest: int) -> int:
    """How many blocks share the messages of a module."""
    return max(1, largest // 256)


def _is_vector(schedule: Schedule, element_size: int) -> bool:
    return all(units * element_size % 16 == 0 for units in schedule.sizes)
