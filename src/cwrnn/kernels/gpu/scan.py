"""The recurrences of all cells on a GPU, module by module, by the CUDA programs in `cuda/`.

One launch computes all modules at once, forward or backward. A block computes the recurrence of one module for 8
sequences, with its weights in registers; the weights of a large module are spread over several blocks, which exchange
their states through memory. All blocks of one module and tile wait for each other, so the GPU must run them at once.
Where all tiles together have more blocks than the GPU has multiprocessors, a block computes up to four tiles of 8
sequences by turns. `Layout` says how many warps a block has, how many units it computes, and how many registers the
weights take.
"""

from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...cells import PEEPHOLES
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
FEW_WEIGHT_REGISTERS = 96
"""The same for the spread modules of an LSTM, if all of their blocks still run at once. With 128, a tick of four gates
lacks registers, and moves numbers to memory."""

LARGEST_MODULE = 2048
"""Units of the largest module of any cell. In tf32, 128 blocks compute 16 each; in half precision, 64 compute 32."""
MOST_TURNS = 4
"""Tiles that one block may compute by turns."""
KEPT_PLANES = 5
"""Planes that forward keeps of LSTM and GRU: as in cells.cuh."""


class Layout(NamedTuple):
    """How the programs cut the modules: the constants of modules.cuh."""

    steps: int
    warps: int
    tiles: int
    split: int
    products: int
    spread: bool
    gates: int = 1

    @property
    def units(self) -> int:
        """Units of a module that one block computes."""
        return self.warps // self.split * self.tiles * ROWS

    @property
    def pitch(self) -> int:
        """Bytes of a row of states in shared memory."""
        return self.steps * STEP_BYTES + 16

    @property
    def planes(self) -> int:
        """Planes of the gradients of a tick's sums."""
        return count_planes(self.gates)

    def count_parts(self, size: int, units: int | None = None) -> int:
        """The number of blocks for a module of `size` units, each of which computes `units` of them."""
        return -(-size // (units or self.units))

    def count_row_bytes(self, backward: bool) -> int:
        """Bytes of shared memory that the rows of one tile take."""
        buffers = 1 if self.spread and self.split > 1 else 2
        return buffers * SEQUENCES * ((self.planes if backward else 1) * self.steps * STEP_BYTES + 16)

    def count_other_bytes(self, backward: bool) -> int:
        """Bytes of shared memory that a block of a recurrence needs beside its rows."""
        sums = self.tiles * (1 if backward else self.gates)
        return (self.split - 1) * self.warps // self.split * sums * 32 * 16 + 4 * MOST_TURNS

    @property
    def words(self) -> int:
        """Registers of a thread that have the weights of a fragment and a step."""
        return 8 if self.products == 3 else 4

    @property
    def registers(self) -> int:
        """Registers of a thread that have weights."""
        return self.gates * self.tiles * self.steps // self.split * self.words

    @property
    def ahead(self) -> int:
        """How many ticks are loaded ahead: as many as there are registers for. Large modules have long ticks."""
        if self.registers > WEIGHT_REGISTERS // 2 or (self.spread and self.gates == 4):
            return 1
        return 3 if self.gates == 1 and not self.loads_at_once else 2

    @property
    def loads_at_once(self) -> bool:
        """Whether all ticks that are loaded ahead are loaded at once, into places of their own.

        The compiler counts the loads of all ticks together, so a thread that waits for one of them waits for all, and
        should not wait at every tick. Only simple cells have the registers.
        """
        return self.gates == 1 and not self.spread and self.registers <= WEIGHT_REGISTERS // 2

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

    def choose_gates_at_once(self, chunk: int, shared: int) -> int:
        """For how many gates a block gathers the gradients of a chunk at once: for all, or for one.

        Spread modules and strict float32 leave too few registers for all gates, and large chunks too little shared
        memory.
        """
        fits = self.gates * chunk * SEQUENCES * self.pitch <= shared
        return self.gates if fits and not self.spread and self.products < 3 else 1

    def choose_turns(self, largest: int, tiles: int, busy: int, shared: int, backward: bool) -> int:
        """How many tiles a block of a spread module computes by turns, so that `busy` blocks of it are enough.

        `shared`: bytes of shared memory that a block may have.
        """
        turns, blocks = 1, tiles * self.count_parts(largest)
        most = (shared - self.count_other_bytes(backward)) // self.count_row_bytes(backward)
        while turns < min(MOST_TURNS, most, tiles) and blocks > turns * busy:
            turns += 1
        return turns


def count_planes(gates: int) -> int:
    """Planes of the gradients of a tick's sums: those of the gates, and one more of a GRU."""
    return 4 if gates == 3 else gates


@lru_cache(maxsize=1024)
def choose_layout(
    largest: int, element_size: int, products: int, gates: int = 1, registers: int = WEIGHT_REGISTERS
) -> Layout:
    """The layout for modules of at most `largest` units of a cell with so many gates.

    `registers`: those of a thread that weights may take.

    Raises a ValueError for modules that are too large.

    >>> choose_layout(128, 2, 1).units, choose_layout(512, 2, 1).units, choose_layout(512, 4, 1).units
    (128, 128, 64)
    >>> choose_layout(128, 2, 1, gates=4).units, choose_layout(512, 2, 1, gates=4).units
    (128, 32)
    """
    words = 8 if products == 3 else 4
    blocks = -(-largest // ROWS)
    # the programs take two steps at a time
    steps = round_up(-(-largest * element_size // STEP_BYTES), 2)
    # a block computes the whole module, if its weights fit
    for warps, tiles in ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2)):
        if warps * tiles >= blocks and gates * tiles * steps * words <= registers:
            return Layout(steps, warps, tiles, 1, products, False, gates)
    for split in (1, 2, 4, 8):
        steps = round_up(steps, 2 * split)
        for tiles in (2, 1):
            if gates * tiles * (steps // split) * words <= registers:
                return Layout(steps, 8, tiles, split, products, True, gates)
    raise ValueError(f"modules of {largest} units are too large")


def choose_registers(schedule: Schedule, layout: Layout, element_size: int, S: int, B: int, busy: int) -> Layout:
    """`layout`, or for an LSTM one with fewer registers for weights, if its blocks fit three quarters of the device.

    The other quarter runs the blocks that compute messages.

    S: replicas. B: sequences. busy: the blocks that the device runs at once.
    """
    largest = max(schedule.sizes)
    if not layout.spread or layout.gates < 4:
        return layout
    if largest > find_largest_module(element_size, layout.products, layout.gates, FEW_WEIGHT_REGISTERS):
        return layout
    other = choose_layout(largest, element_size, layout.products, layout.gates, FEW_WEIGHT_REGISTERS)
    blocks = S * -(-B // SEQUENCES) * sum(other.count_parts(size) for size in schedule.sizes)
    return other if 4 * blocks <= 3 * busy else layout


def find_largest_module(element_size: int, products: int, gates: int, registers: int = WEIGHT_REGISTERS) -> int:
    """Units of the largest module that a GPU can hold in so many registers of a thread, of a cell with so many gates.

    >>> [find_largest_module(2, 1, gates) for gates in (1, 3, 4)]
    [2048, 1280, 1024]
    """
    words = 8 if products == 3 else 4
    steps = 8 * (registers // (gates * words) // 2 * 2)
    return min(steps * STEP_BYTES // element_size, LARGEST_MODULE)


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


NEUTRAL = {
    "STEPS": 2, "WARPS": 4, "TILES": 1, "SPLIT": 1, "PRODUCTS": 1, "SPREAD": 0, "CHUNK": 1, "AHEAD": 1, "TRANSPOSED": 0,
    "SIGNALLER": 0, "RECTIFY": 0, "GATES": 1, "TURNS": 1, "PEEPHOLES": 0, "NESTED": 1, "EVEN": 0, "FULL": 0,
    "VECTOR": 0, "AT_ONCE": 1, "LOADED": 1,
}  # fmt: skip
"""All constants of modules.cuh, with the values that programs get for those that make no difference to them."""


class _Loader:
    """Loads the programs for a schedule and a dtype, all at once: to compile one takes seconds."""

    def __init__(
        self, schedule: Schedule, cell: str, dtype: torch.dtype, layout: Layout, index: int, limit: int
    ) -> None:
        self.schedule, self.cell, self.dtype, self.layout = schedule, cell, dtype, layout
        self.index, self.limit = index, limit
        self.asked: list[tuple[Any, ...]] = []

    def ask(self, file: str, name: str, threads: int, shared: int, **constants: int) -> None:
        """Asks for a program with these constants and neutral others."""
        constants = NEUTRAL | {"ELEMENT": driver.ELEMENTS[self.dtype]} | constants
        self.asked.append((file, name, tuple(sorted(constants.items())), threads, shared, self.index))

    def ask_pack(self, transposed: bool) -> None:
        """Asks for the program that packs the weights for the layout."""
        layout = self.layout
        self.ask("pack.cu", "pack_weights", 32 * PACK_WARPS, 0, WARPS=PACK_WARPS, STEPS=layout.steps,
                 PRODUCTS=self.layout.products, GATES=layout.gates, TRANSPOSED=int(transposed))  # fmt: skip

    def ask_hold(self, name: str) -> None:
        """Asks for a program that holds states, or sums their gradients."""
        self.ask("hold.cu", name, 32 * HOLD_WARPS, 0, WARPS=HOLD_WARPS, GATES=self.layout.gates,
                 EVEN=_is_multiple(self.schedule, 2),
                 VECTOR=int(is_vector(self.schedule, self.dtype.itemsize)))  # fmt: skip

    def ask_scan(self, name: str, wide: int, turns: int, peepholes: bool, backward: bool) -> None:
        """Asks for a program that computes `wide` fragments of a message together."""
        layout, schedule = self.layout, self.schedule
        signaller = backward and layout.has_signaller
        rows = turns * layout.count_row_bytes(backward) + layout.count_other_bytes(backward)
        # beside its rows, a block of messages needs little
        chunk = layout.choose_chunk(wide, self.limit - 256)
        at_once = layout.choose_gates_at_once(chunk, self.limit - 256) if backward else 1
        ahead = 1 if turns > 1 else layout.ahead
        shared = max(rows, at_once * chunk * SEQUENCES * layout.pitch + 8 * chunk)
        self.ask(
            f"{name}.cu", name, 32 * (layout.warps + signaller), shared,
            STEPS=layout.steps, WARPS=layout.warps, TILES=layout.tiles, SPLIT=layout.split, PRODUCTS=layout.products,
            SPREAD=int(layout.spread), CHUNK=chunk, AHEAD=ahead, SIGNALLER=int(signaller),
            RECTIFY=int(self.cell == "relu"), GATES=layout.gates, TURNS=turns, PEEPHOLES=int(peepholes),
            NESTED=int(all(slow % fast == 0 for fast, slow in pairwise(schedule.periods))),
            EVEN=_is_multiple(schedule, 2), FULL=_is_multiple(schedule, ROWS), AT_ONCE=at_once,
            LOADED=2 * ahead if layout.loads_at_once else ahead,
            VECTOR=int(is_vector(schedule, self.dtype.itemsize)),
        )  # fmt: skip

    def load(self) -> list[driver.Program]:
        """All programs that were asked for."""
        with ThreadPoolExecutor(len(self.asked)) as threads:
            return list(threads.map(lambda wanted: driver.load_program(*wanted), self.asked))


def _is_multiple(schedule: Schedule, units: int) -> int:
    """1 if the sizes of all modules are multiples of so many units, else 0."""
    return int(all(size % units == 0 for size in schedule.sizes))


@lru_cache(maxsize=1024)
def load_forward(
    schedule: Schedule,
    cell: str,
    dtype: torch.dtype,
    layout: Layout,
    even_input: bool,
    index: int,
    limit: int,
    turns: int,
    peepholes: bool,
) -> ForwardPrograms:
    """The programs for a schedule and a dtype on a CUDA device.

    `layout`: how the modules are cut. `even_input`: the rows of the input and of its weights begin at multiples of two
    elements. `limit`: the most bytes of shared memory that a block may have. `turns`: tiles of sequences that a block
    computes by turns. `peepholes`: the LSTM has them.
    """
    loader = _Loader(schedule, cell, dtype, layout, index, limit)
    wide = dtype.itemsize == 4
    tiles, exact = (2, 3) if wide else (4, 1)
    loader.ask("drive.cu", "compute_drive", 32 * DRIVE_WARPS, 0, WARPS=DRIVE_WARPS, TILES=tiles, PRODUCTS=exact,
               EVEN=int(even_input), GATES=loader.layout.gates)  # fmt: skip
    loader.ask_pack(transposed=False)
    loader.ask_scan("scan_forward", min(2, loader.layout.tiles), turns, peepholes, backward=False)
    loader.ask_hold("hold_states")
    return ForwardPrograms(loader.layout, *loader.load())


@lru_cache(maxsize=1024)
def load_backward(
    schedule: Schedule,
    cell: str,
    dtype: torch.dtype,
    layout: Layout,
    index: int,
    limit: int,
    turns: int,
    peepholes: bool,
) -> BackwardPrograms:
    """The programs for a schedule and a dtype on a CUDA device; the arguments are those of `load_forward`."""
    loader = _Loader(schedule, cell, dtype, layout, index, limit)
    loader.ask_hold("collect_gradients")
    loader.ask_pack(transposed=True)
    loader.ask_scan("scan_backward", 2 if layout.spread else layout.tiles, turns, peepholes, backward=True)
    return BackwardPrograms(layout, *loader.load())


class Sizes(NamedTuple):
    """What a call needs, which follows from its shapes."""

    tiles: int
    parts: int
    """Blocks of a module's recurrence, for each tile."""
    others: int
    """Blocks of a module's messages, or of the gradients that it receives, for each tile."""
    fragments: int
    """Numbers of the fragments of all rows in a replica, of one gate."""
    messages: int
    """Numbers of the fragments of all messages in a replica, of one gate."""
    packed: int
    """Fragments of the packed weights of a replica, of one gate."""
    words: int
    """Numbers of the packed weights of a replica, of one gate."""
    counters: int
    """Numbers of a replica's flags."""
    exchange: int
    """Numbers of a replica's exchange of rows between parts."""
    plane: int
    """Numbers of a plane of what forward keeps."""
    first_blocks: int
    """Blocks of the drive, or of the gradients from outside."""
    pack_blocks: int
    """Blocks that pack the weights of one gate."""
    blocks: int
    """Blocks of the recurrences, and of the messages or gathered gradients."""
    hold_blocks: int
    """Blocks that hold the states of a replica."""
    places: tuple[int, ...]
    """Where the parts of the working memory begin, and how many numbers of 4 bytes it has."""
    cleared: int
    """Numbers of flags and of the exchange of rows, of all replicas."""


def count_sizes(
    schedule: Schedule, plan: Plan, S: int, element_size: int, layout: Layout, turns: int, backward: bool
) -> Sizes:
    """The sizes for S replicas, whose sequences are computed in multiples of `turns` tiles."""
    sizes, G, N, ticks, B = schedule.sizes, schedule.modules, schedule.hidden_size, plan.ticks, plan.B
    tiles, largest = round_up(-(-B // SEQUENCES), turns), max(sizes)
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
    # two places of a fragment, with tags beside the numbers
    exchange = 0
    if layout.spread and turns == 1:
        exchange = sum(blocks) * tiles * 2 * 32 * 4 * (2 if element_size == 4 else 1)
    if backward:
        exchange *= layout.gates
    fragments = sum(n * count for n, count in zip(rows, blocks, strict=True)) * tiles * FRAGMENT
    messages = sum(n * count for n, count in zip(rows, faster, strict=True)) * tiles * FRAGMENT
    packed *= layout.steps
    words, counters = packed * 32 * layout.words, (G * parts + flags) * tiles * FLAG_STRIDE
    cleared = FLAG_STRIDE + S * (counters + exchange)
    # one allocation, every part of which begins at a multiple of 512 bytes
    gates = S * layout.gates
    first, second = (S * fragments, S * fragments) if backward else (gates * fragments, gates * messages)
    piece = 16 // element_size if is_vector(schedule, element_size) else 1
    return Sizes(
        tiles,
        parts,
        others,
        fragments,
        messages,
        packed,
        words,
        counters,
        exchange,
        count_plane(schedule, ticks, B),
        first_blocks,
        -(-packed // PACK_WARPS),
        (tiles // turns * G * parts + tiles * (G - 1) * others) * S,
        -(-B * (N // piece) // (32 * HOLD_WARPS)) * -(-plan.T // HOLD_STEPS),
        _place(first, second, gates * words, cleared),
        cleared,
    )


def count_plane(schedule: Schedule, ticks: Sequence[int], B: int) -> int:
    """How many numbers a plane has of what forward keeps of LSTM and GRU: those of whole fragments."""
    fragments = sum((n + 1) * -(-size // ROWS) for n, size in zip(ticks, schedule.sizes, strict=True))
    return fragments * -(-B // SEQUENCES) * FRAGMENT


def forward(
    plan: Plan,
    schedule: Schedule,
    programs: ForwardPrograms,
    sizes: Sizes,
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor | None,
    lengths: Tensor | None,
    weight_ch: Tensor | None,
    states: Tensor,
    final: Tensor,
    held: Tensor | None,
    kept: Tensor | None,
) -> None:
    """Fills `states`, `final`, `held` and `kept`.

    The tensors must be dense; a leading axis of S replicas may be there.
    """
    lead = weight_hh.dim() > 2
    S = weight_hh.shape[0] if lead else 1
    I, B, N, G, device = input.shape[-1], plan.B, schedule.hidden_size, schedule.modules, input.get_device()
    gates, tiles, fragments = programs.layout.gates, sizes.tiles, sizes.fragments
    drive, messages, packed, flags, end = sizes.places
    memory = torch.empty(end, dtype=torch.int32, device=input.device)
    start = memory.data_ptr()
    drive, messages, packed, flags = start + drive, start + messages, start + packed, start + flags
    table, at_lengths, at_states = plan.table.data_ptr(), pointer(lengths), states.data_ptr()
    if sizes.first_blocks > 0:
        *_, input_t, input_b, _ = input.stride()
        driver.launch_on(device, programs.drive, sizes.first_blocks, S * gates, array("q", (
            table, input.data_ptr(), weight_ih.data_ptr(), pointer(bias), at_lengths, drive, B, I, N, tiles,
            input.stride(0) if lead else 0, input_t, input_b, weight_ih.stride(0) if lead else 0,
            bias.stride(0) if lead and bias is not None else 0, fragments,
        )))  # fmt: skip
    _pack(device, programs.pack, gates, table, weight_hh, packed, flags, sizes, S)
    # a GRU's scan reads the biases inside the reset product where that of an LSTM reads the peepholes
    extra = bias if gates == 3 else weight_ch
    at_extra = 0 if extra is None else extra.data_ptr() + (3 * N * input.element_size() if gates == 3 else 0)
    driver.launch_on(device, programs.scan, sizes.blocks, 1, array("q", (
        table, flags, flags + 4 * FLAG_STRIDE, flags + 4 * (FLAG_STRIDE + S * sizes.counters), packed,
        pointer(h0), at_extra, drive, messages, at_states, pointer(kept), final.data_ptr(), at_lengths,
        B, N, G, tiles, sizes.parts, sizes.others, -(-B // SEQUENCES), sizes.words,
        h0.stride(0) if lead and h0 is not None else 0, 0 if h0 is None else h0.stride(-2),
        extra.stride(0) if lead and extra is not None else 0, plan.states_size, fragments, sizes.messages,
        sizes.plane, sizes.counters, sizes.exchange,
    )))  # fmt: skip
    if held is not None and plan.T > 0:
        driver.launch_on(device, programs.hold, sizes.hold_blocks, S, array("q", (
            table, at_lengths, at_states, held.data_ptr(), 0, 0, 0, 0, plan.T, B, N, G, tiles, plan.states_size,
            0, 0, 0, 0,
        )))  # fmt: skip


def backward(
    plan: Plan,
    schedule: Schedule,
    programs: BackwardPrograms,
    sizes: Sizes,
    weight_hh: Tensor,
    lengths: Tensor | None,
    weight_ch: Tensor | None,
    kept: Tensor | None,
    states: Tensor,
    g_held: Tensor | None,
    g_states: Tensor | None,
    g_final: Tensor | None,
    g_h0: Tensor | None,
    g_weight_ch: Tensor | None,
) -> Tensor:
    """The gradients of the messages of all modules, plane after plane; fills `g_h0` and `g_weight_ch`.

    The tensors must be dense.
    """
    lead = weight_hh.dim() > 2
    S = weight_hh.shape[0] if lead else 1
    B, N, G, device = plan.B, schedule.hidden_size, schedule.modules, states.get_device()
    layout, tiles, fragments = programs.layout, sizes.tiles, sizes.fragments
    g_outside, g_all, packed, flags, end = sizes.places
    memory = torch.empty(end, dtype=torch.int32, device=states.device)
    start = memory.data_ptr()
    g_outside, g_all, packed, flags = start + g_outside, start + g_all, start + packed, start + flags
    g_messages = states.new_empty(S * layout.planes * plan.g_messages_size)
    table, at_states = plan.table.data_ptr(), states.data_ptr()
    at_lengths, at_final = pointer(lengths), pointer(g_final)
    strides = (0, 0, 0) if g_held is None else (0, *g_held.stride()[:-1])[-3:]
    driver.launch_on(device, programs.collect, sizes.first_blocks, S, array("q", (
        table, at_lengths, at_states, 0, pointer(g_held), pointer(g_states), at_final, g_outside,
        plan.T, B, N, G, tiles, plan.states_size, *strides, fragments,
    )))  # fmt: skip
    _pack(device, programs.pack, layout.gates, table, weight_hh, packed, flags, sizes, S)
    # the sums of each tile; of tiles that a block computes by turns, the first one has those of all
    g_peepholes = None
    if g_weight_ch is not None:
        g_peepholes = torch.zeros((S, tiles, PEEPHOLES * N), dtype=torch.float32, device=states.device)
    driver.launch_on(device, programs.scan, sizes.blocks, 1, array("q", (
        table, flags, flags + 4 * FLAG_STRIDE, flags + 4 * (FLAG_STRIDE + S * sizes.counters), packed,
        pointer(weight_ch), at_states, pointer(kept), at_final, at_lengths, g_outside, g_all,
        g_messages.data_ptr(), pointer(g_h0), pointer(g_peepholes), B, N, G, tiles, sizes.parts, sizes.others,
        -(-B // SEQUENCES), sizes.words, weight_ch.stride(0) if lead and weight_ch is not None else 0,
        plan.states_size, sizes.plane, fragments, plan.g_messages_size, sizes.counters, sizes.exchange,
    )))  # fmt: skip
    if g_weight_ch is not None and g_peepholes is not None:
        g_weight_ch.copy_(g_peepholes.sum(1).view(g_weight_ch.shape))
    return g_messages


def _place(*counts: int) -> tuple[int, ...]:
    """Where parts of that many numbers of 4 bytes begin in one piece of memory, and how many numbers it has."""
    places, end = [], 0
    for count in counts:
        places.append(4 * end)
        end += round_up(count, 128)
    return *places, end


def _pack(
    device: int,
    program: driver.Program,
    gates: int,
    table: int,
    weight_hh: Tensor,
    packed: int,
    flags: int,
    sizes: Sizes,
    S: int,
) -> None:
    """Packs the weights as the programs load them, and sets the flags to zero."""
    driver.launch_on(device, program, sizes.pack_blocks, S * gates, array("q", (
        table, weight_hh.data_ptr(), packed, flags, weight_hh.shape[-1], sizes.packed,
        weight_hh.stride(0) if weight_hh.dim() > 2 else 0, sizes.cleared, sizes.pack_blocks,
    )))  # fmt: skip


def _count_message_parts(largest: int) -> int:
    """How many blocks share the messages of a module."""
    return max(1, largest // 256)


def is_vector(schedule: Schedule, element_size: int) -> bool:
    """True if all rows of states begin at multiples of 16 bytes."""
    return all(units * element_size % 16 == 0 for units in schedule.sizes)
