"""The recurrences of simple cells (tanh, relu) on a GPU, module by module, by the CUDA programs in `cuda/`.

One launch computes all modules at once, forward or backward. A block computes the recurrence of one module for 8
sequences, with its weights in registers; the weights of a large module are spread over several blocks, which exchange
their states through memory. `Layout` says how many warps, units and registers that takes.
"""

from array import array
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...schedule import Schedule
from ..tensors import pointer
from . import driver
from .tables import Plan, round_up

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
        """The number of blocks for a module of `size` units, each of which computes `units` of them."""
        return -(-size // (units or self.units))

    @property
    def words(self) -> int:
        """Registers of a thread that have the weights of a fragment and a step."""
        return 8 if self.products == 3 else 4

    @property
    def registers(self) -> int:
        """Registers of a thread that have weights."""
        return self.tiles * self.steps // self.split * self.words

    @property
    def ahead(self) -> int:
        """How many ticks are loaded ahead: as many as there are registers for. Large modules have long ticks."""
        if self.registers > WEIGHT_REGISTERS // 2:
            return 1
        return 3

    @property
    def has_signaller(self) -> bool:
        """Whether one warp more announces rows: where a thread of it can have the registers that it needs.

        Forward has none: the fastest module sends no messages, and the slower modules have time to announce their rows.
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
    steps = round_up(-(-largest * element_size // STEP_BYTES), 2)
    # a block computes the whole module, if its weights fit
    for warps, tiles in ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2)):
        if warps * tiles >= blocks and tiles * steps * words <= WEIGHT_REGISTERS:
            return Layout(steps, warps, tiles, 1, products, False)
    for split in (1, 2, 4, 8):
        steps = round_up(steps, 2 * split)
        for tiles in (2, 1):
            if tiles * (steps // split) * words <= WEIGHT_REGISTERS:
                return Layout(steps, 8, tiles, split, products, True)
    raise ValueError(f"modules of {largest} units are too large")


class ForwardPrograms(NamedTuple):
    """The programs of a forward call."""

    layout: Layout
    drive: driver.Program
    pack: driver.Program
    scan: driver.Program
    hold: driver.Program


class BackwardPrograms(NamedTuple):
    """The programs of a backward call."""

    layout: Layout
    collect: driver.Program
    pack: driver.Program
    scan: driver.Program


DRIVE_WARPS, DRIVE_TALL = 4, 4
"""Warps of a block that computes drives, and ticks of a tile that a warp computes."""
PACK_WARPS = 4
"""Warps of a block that packs weights."""
HOLD_WARPS, HOLD_STEPS, SUM_WIDTH = 4, 16, 2
"""Warps and time steps of a block that holds states, and fragments of a warp that collects gradients."""


class _Loader:
    """Loads the programs for a schedule and a dtype, all at once: to compile one takes seconds."""

    def __init__(
        self, schedule: Schedule, cell: str, dtype: torch.dtype, products: int, index: int, limit: int
    ) -> None:
        self.layout = layout = choose_layout(max(schedule.sizes), dtype.itemsize, products)
        self.index, self.limit = index, limit
        self.constants = {
            "ELEMENT": driver.ELEMENTS[dtype], "STEPS": layout.steps, "WARPS": layout.warps, "TILES": layout.tiles,
            "SPLIT": layout.split, "PRODUCTS": products, "SPREAD": int(layout.spread), "CHUNK": 1, "AHEAD": 1,
            "TRANSPOSED": 0, "SIGNALLER": 0, "RECTIFY": int(cell == "relu"),
            "NESTED": int(all(slow % fast == 0 for fast, slow in pairwise(schedule.periods))),
            "EVEN": int(all(size % 2 == 0 for size in schedule.sizes)),
            "FULL": int(all(size % ROWS == 0 for size in schedule.sizes)),
            "VECTOR": int(_is_vector(schedule, dtype.itemsize)),
        }  # fmt: skip
        self.asked: list[tuple[Any, ...]] = []

    def ask(self, file: str, name: str, threads: int, shared: int, **others: int) -> None:
        """Asks for a program, with constants other than the usual ones."""
        constants = tuple(sorted((self.constants | others).items()))
        self.asked.append((file, name, constants, threads, shared, self.index))

    def ask_scan(self, name: str, wide: int, signaller: bool) -> None:
        """Asks for a program that computes `wide` fragments of a message together."""
        layout = self.layout
        rows = 2 * SEQUENCES * layout.pitch + (layout.split - 1) * layout.units * SEQUENCES * 4 + 16
        # beside its rows, a block of messages needs little
        chunk = layout.choose_chunk(wide, self.limit - 256)
        shared = max(rows, chunk * SEQUENCES * layout.pitch + 8 * chunk)
        threads = 32 * (layout.warps + signaller)
        constants = {"CHUNK": chunk, "SIGNALLER": int(signaller), "AHEAD": layout.ahead}
        self.ask(f"{name}.cu", name, threads, shared, **constants)

    def load(self) -> list[driver.Program]:
        """All programs that were asked for."""
        with ThreadPoolExecutor(len(self.asked)) as threads:
            return list(threads.map(lambda wanted: driver.load_program(*wanted), self.asked))


SIMPLE = {"TILES": 1, "SPLIT": 1, "STEPS": 2, "SPREAD": 0}
"""The constants of programs that run no recurrence."""


@lru_cache(maxsize=1024)
def load_forward(
    schedule: Schedule, cell: str, dtype: torch.dtype, products: int, even_input: bool, index: int, limit: int
) -> ForwardPrograms:
    """The programs for a schedule and a dtype on a CUDA device.

    `products`: 3 to multiply float32 as three products of tf32, else 1. `even_input`: the rows of the input and of its
    weights begin at multiples of two elements. `limit`: the most bytes of shared memory that a block may have.
    """
    loader = _Loader(schedule, cell, dtype, products, index, limit)
    wide = dtype.itemsize == 4
    tiles, exact = (2, 3) if wide else (4, 1)
    drive = SIMPLE | {"EVEN": int(even_input), "WARPS": DRIVE_WARPS, "TILES": tiles, "PRODUCTS": exact}
    loader.ask("drive.cu", "compute_drive", 32 * DRIVE_WARPS, 0, **drive)
    loader.ask("pack.cu", "pack_weights", 32 * PACK_WARPS, 0, WARPS=PACK_WARPS)
    loader.ask_scan("scan_forward", min(2, loader.layout.tiles), signaller=False)
    loader.ask("hold.cu", "hold_states", 32 * HOLD_WARPS, 0, WARPS=HOLD_WARPS, **SIMPLE)
    return ForwardPrograms(loader.layout, *loader.load())


@lru_cache(maxsize=1024)
def load_backward(
    schedule: Schedule, cell: str, dtype: torch.dtype, products: int, index: int, limit: int
) -> BackwardPrograms:
    """The programs for a schedule and a dtype on a CUDA device; the arguments are those of `load_forward`."""
    loader = _Loader(schedule, cell, dtype, products, index, limit)
    layout = loader.layout
    loader.ask("hold.cu", "collect_gradients", 32 * HOLD_WARPS, 0, WARPS=HOLD_WARPS, **SIMPLE)
    loader.ask("pack.cu", "pack_weights", 32 * PACK_WARPS, 0, WARPS=PACK_WARPS, TRANSPOSED=1)
    loader.ask_scan("scan_backward", 2 if layout.spread else layout.tiles, layout.has_signaller)
    return BackwardPrograms(layout, *loader.load())


class _Sizes(NamedTuple):
    """What a call needs, which follows from its shapes."""

    tiles: int
    parts: int
    """Blocks of a module's recurrence, for each tile."""
    others: int
    """Blocks of a module's messages, or of the gradients that it receives, for each tile."""
    fragments: int
    """Numbers of the fragments of all rows in a replica."""
    messages: int
    """Numbers of the fragments of all messages in a replica."""
    packed: int
    """Fragments of the packed weights of a replica."""
    counters: int
    """Numbers of a replica's flags."""
    exchange: int
    """Numbers of a replica's exchange of rows between parts."""
    first_blocks: int
    """Blocks of the drive, or of the gradients from outside."""


@lru_cache(maxsize=4096)
def _count_sizes(
    schedule: Schedule, ticks: tuple[int, ...], B: int, element_size: int, layout: Layout, backward: bool
) -> _Sizes:
    """The sizes for a schedule whose modules have that many ticks, and B sequences."""
    sizes, G = schedule.sizes, schedule.modules
    tiles, largest = -(-B // SEQUENCES), max(sizes)
    blocks = [-(-size // ROWS) for size in sizes]
    parts = layout.count_parts(largest)
    rows = [n + 1 for n in ticks]
    if backward:
        others = layout.count_parts(largest, layout.gather_units)
        # the rows of one warp after the other
        groups = [-(-count // SUM_WIDTH) for count in blocks]
        first_blocks = sum(n * -(-tiles * group // HOLD_WARPS) for n, group in zip(rows, groups, strict=True))
        flags = G * others
        packed = sum(count * (j + 1) for j, count in enumerate(blocks))
    else:
        others = _count_message_parts(largest)
        wide = 2 if element_size == 4 else 4
        tall = DRIVE_WARPS * DRIVE_TALL
        first_blocks = sum(-(-n * tiles // tall) * -(-count // wide) for n, count in zip(ticks, blocks, strict=True))
        flags = G * G * others
        packed = sum(sum(blocks[: j + 1]) for j in range(G))
    faster = [sum(blocks[:j]) for j in range(G)]
    exchange = sum(blocks) * tiles * 2 * 32 * 4 * (2 if element_size == 4 else 1) if layout.spread else 0
    return _Sizes(
        tiles,
        parts,
        others,
        sum(n * count for n, count in zip(rows, blocks, strict=True)) * tiles * FRAGMENT,
        sum(n * count for n, count in zip(rows, faster, strict=True)) * tiles * FRAGMENT,
        packed * layout.steps,
        (G * parts + flags) * tiles * FLAG_STRIDE,
        exchange,
        first_blocks,
    )


def forward(
    plan: Plan,
    schedule: Schedule,
    programs: ForwardPrograms,
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
    lead = weight_hh.dim() > 2
    S = weight_hh.shape[0] if lead else 1
    T, B, I = input.shape[-3:]
    N, G, element_size = schedule.hidden_size, schedule.modules, input.element_size()
    sizes = _count_sizes(schedule, plan.ticks, B, element_size, programs.layout, False)
    tiles, words = sizes.tiles, sizes.packed * 32 * programs.layout.words
    # one allocation, every part of which begins at a multiple of 512 bytes
    drive, messages, packed, flags, end = _place(
        S * sizes.fragments, S * sizes.messages, S * words, FLAG_STRIDE + S * (sizes.counters + sizes.exchange)
    )
    memory = torch.empty(end, dtype=torch.int32, device=input.device)
    start = memory.data_ptr()
    drive, messages, packed, flags = start + drive, start + messages, start + packed, start + flags
    table, at_lengths, at_states = plan.table.data_ptr(), pointer(lengths), states.data_ptr()
    if sizes.first_blocks > 0:
        driver.launch(programs.drive, sizes.first_blocks, S, array("q", (
            table, input.data_ptr(), weight_ih.data_ptr(), pointer(bias), at_lengths, drive, B, I, N, tiles,
            input.stride(0) if lead else 0, input.stride(-3), input.stride(-2), weight_ih.stride(0) if lead else 0,
            bias.stride(0) if lead and bias is not None else 0, sizes.fragments,
        )), stream)  # fmt: skip
    _pack(programs.pack, table, weight_hh, packed, flags, sizes, S, stream)
    count = tiles * (G * sizes.parts + (G - 1) * sizes.others) * S
    driver.launch(programs.scan, count, 1, array("q", (
        table, flags, flags + 4 * FLAG_STRIDE, flags + 4 * (FLAG_STRIDE + S * sizes.counters), packed,
        pointer(h0), drive, messages, at_states, final.data_ptr(), at_lengths,
        B, N, G, tiles, sizes.parts, sizes.others, words, h0.stride(0) if lead and h0 is not None else 0,
        0 if h0 is None else h0.stride(-2), plan.states_size, sizes.fragments, sizes.messages,
        sizes.counters, sizes.exchange,
    )), stream)  # fmt: skip
    if held is not None and T > 0:
        piece = 16 // element_size if _is_vector(schedule, element_size) else 1
        columns = -(-B * (N // piece) // (32 * HOLD_WARPS))
        driver.launch(programs.hold, columns * -(-T // HOLD_STEPS), S, array("q", (
            table, at_lengths, at_states, held.data_ptr(), 0, 0, 0, 0, T, B, N, G, tiles, plan.states_size, 0, 0, 0, 0,
        )), stream)  # fmt: skip


def backward(
    plan: Plan,
    schedule: Schedule,
    programs: BackwardPrograms,
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
    S = weight_hh.shape[0] if weight_hh.dim() > 2 else 1
    N, G = schedule.hidden_size, schedule.modules
    sizes = _count_sizes(schedule, plan.ticks, B, states.element_size(), programs.layout, True)
    tiles, words = sizes.tiles, sizes.packed * 32 * programs.layout.words
    g_outside, g_all, packed, flags, end = _place(
        S * sizes.fragments, S * sizes.fragments, S * words, FLAG_STRIDE + S * (sizes.counters + sizes.exchange)
    )
    memory = torch.empty(end, dtype=torch.int32, device=states.device)
    start = memory.data_ptr()
    g_outside, g_all, packed, flags = start + g_outside, start + g_all, start + packed, start + flags
    g_messages = states.new_empty(S * plan.g_messages_size)
    table, at_states = plan.table.data_ptr(), states.data_ptr()
    strides = (0, 0, 0) if g_held is None else (0, *g_held.stride()[:-1])[-3:]
    driver.launch(programs.collect, sizes.first_blocks, S, array("q", (
        table, pointer(lengths), at_states, 0, pointer(g_held), pointer(g_states), pointer(g_final), g_outside,
        T, B, N, G, tiles, plan.states_size, *strides, sizes.fragments,
    )), stream)  # fmt: skip
    _pack(programs.pack, table, weight_hh, packed, flags, sizes, S, stream)
    count = tiles * (G * sizes.parts + (G - 1) * sizes.others) * S
    driver.launch(programs.scan, count, 1, array("q", (
        table, flags, flags + 4 * FLAG_STRIDE, flags + 4 * (FLAG_STRIDE + S * sizes.counters), packed,
        at_states, g_outside, g_all, g_messages.data_ptr(), pointer(g_h0), B, N, G, tiles, sizes.parts, sizes.others,
        words, plan.states_size, sizes.fragments, plan.g_messages_size, sizes.counters, sizes.exchange,
    )), stream)  # fmt: skip
    return g_messages


def _place(*counts: int) -> tuple[int, ...]:
    """Where parts of that many numbers of 4 bytes begin in one piece of memory, and how many numbers it has."""
    places, end = [], 0
    for count in counts:
        places.append(4 * end)
        end += round_up(count, 128)
    return *places, end


def _pack(
    program: driver.Program, table: int, weight_hh: Tensor, packed: int, flags: int, sizes: _Sizes, S: int, stream: int
) -> None:
    """Packs the weights as the programs load them, and sets the flags to zero."""
    columns = -(-sizes.packed // PACK_WARPS)
    driver.launch(program, columns, S, array("q", (
        table, weight_hh.data_ptr(), packed, flags, weight_hh.shape[-1], sizes.packed,
        weight_hh.stride(0) if weight_hh.dim() > 2 else 0, FLAG_STRIDE + S * (sizes.counters + sizes.exchange), columns,
    )), stream)  # fmt: skip


def _count_message_parts(largest: int) -> int:
    """How many blocks share the messages of a module."""
    return max(1, largest // 256)


def _is_vector(schedule: Schedule, element_size: int) -> bool:
    return all(units * element_size % 16 == 0 for units in schedule.sizes)
