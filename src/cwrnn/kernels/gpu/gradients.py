"""The gradients of the weights, the bias and the input on a GPU, by the CUDA programs in gradients.cu.

All of them follow from the gradients of the messages, which `scan.backward` computes. One launch multiplies these with
states, inputs and weights, in parts; another one adds up the parts, in an order that depends on the shapes alone.
"""

from array import array
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, reduce
from operator import or_
from typing import NamedTuple

import torch
from torch import Tensor

from ...schedule import Schedule
from ..tensors import pointer
from . import driver
from .scan import NEUTRAL, count_planes
from .tables import Plan, count_blocks

WARPS = 8
"""Warps of a block."""
HEIGHT = 128
"""Units of a block of the weights' gradients."""
STAGES = 4
"""Stages of lines that are in shared memory or on their way to it."""
TILE = 64
"""Sequences and inputs of a block of the input's gradient."""
PARTS = 256
"""About how many parts of the weights' gradients, of all planes, keep a large GPU busy."""
FEWEST_LINES, MOST_LINES = 256, 4096
"""Lines (a row of a module in one sequence) of a part: each part begins with a wait, and long sums are less exact."""


class Programs(NamedTuple):
    """The programs for one kind of call."""

    width: int
    """Columns of a block of the weights' gradients."""
    output_piece: int
    """Numbers of a gradient that a thread adds up."""
    multiply: driver.Program
    add: driver.Program


class Launches(NamedTuple):
    """The launches for the gradients that a call wants, and the sizes that they read."""

    programs: Programs
    lines: int
    """Lines of a part."""
    recurrent_parts: int
    """The parts of the gradient of weight_hh."""
    parts: int
    """All parts of the weights' gradients."""
    inputs: int
    """Columns of the gradient of weight_ih."""
    first_sum: int
    """How many numbers of memory come before the sums of the bias."""
    numbers: int
    """How many numbers of memory there are."""
    blocks: int
    """Blocks that multiply."""
    adding_blocks: int
    """Blocks that add up parts."""


@lru_cache(maxsize=1024)
def load_programs(
    schedule: Schedule,
    dtype: torch.dtype,
    gates: int,
    products: int,
    I: int,
    aligned: bool,
    input_piece: int,
    index: int,
) -> Programs:
    """The programs for a schedule and a dtype on a CUDA device.

    `products`: 3 to multiply float32 as three products of tf32, else 1. `aligned`: the states begin at a multiple of 16
    bytes. `input_piece`: the bytes that can be copied at once of the input and its weights.
    """
    size = dtype.itemsize
    piece = _choose_piece(size, *(units * size for units in schedule.sizes)) if aligned else size
    tall = 4 if products == 1 and max(schedule.sizes) > TILE else 2
    width = 128 if tall == 4 else 64
    output_piece = 4 if I % 4 == 0 and all(units % 4 == 0 for units in schedule.sizes) else 1
    # as in gradients.cu, where a line in shared memory has some bytes more
    depth, pad = (16, 32) if size == 4 else (32, 16)
    stage = depth * ((HEIGHT + width) * size + 2 * pad)
    input_stage = TILE * (4 * 32 + 16) + 2 * depth * (TILE * size + pad)
    shared = STAGES * max(stage, input_stage)
    constants = NEUTRAL | {
        "ELEMENT": driver.ELEMENTS[dtype], "PRODUCTS": products, "TALL": tall, "STAGES": STAGES, "PIECE": piece,
        "INPUT_PIECE": input_piece, "OUTPUT_PIECE": output_piece, "WARPS": WARPS, "SHARED": shared, "GATES": gates,
    }  # fmt: skip
    settings = tuple(sorted(constants.items()))

    def load(name: str, shared: int) -> driver.Program:
        return driver.load_program("gradients.cu", name, settings, 32 * WARPS, shared, index)

    # to compile one takes seconds
    with ThreadPoolExecutor(2) as threads:
        loaded = threads.map(load, ("multiply_gradients", "add_gradients"), (shared, 0))
        return Programs(width, output_piece, *loaded)


def compute(
    plan: Plan,
    schedule: Schedule,
    gates: int,
    products: int,
    input: Tensor,
    weight_ih: Tensor,
    lengths: Tensor | None,
    ticks: Tensor,
    g_messages: Tensor,
    g_input: Tensor | None,
    g_weight_ih: Tensor | None,
    g_weight_hh: Tensor | None,
    g_bias: Tensor | None,
) -> None:
    """Fills the gradients that are not None, of a cell with so many gates.

    The tensors must be dense; a leading axis of S replicas may be there.
    """
    if g_input is not None and g_input.numel() == 0:
        g_input = None
    if g_input is None and g_weight_ih is None and g_weight_hh is None and g_bias is None:
        return
    lead, I, size = input.dim() > 3, input.shape[-1], input.element_size()
    S = input.shape[0] if lead else 1
    address, input_address, weight_address = ticks.data_ptr(), input.data_ptr(), weight_ih.data_ptr()
    input_strides = input.stride()[:-1]
    weight_s = weight_ih.stride(0) if lead else 0
    strides = [stride * size for stride in (I, weight_s, *input_strides)]
    input_piece = _choose_piece(size, input_address, weight_address, *strides)
    index = input.get_device()
    launches = _prepare(
        plan, schedule, I, S, input.dtype, gates, products, address % 16 == 0, input_piece, index,
        g_input is not None, g_weight_ih is not None, g_weight_hh is not None, g_bias is not None,
    )  # fmt: skip
    products_and_sums = torch.empty(launches.numbers, dtype=torch.float32, device=input.device)
    at = products_and_sums.data_ptr()
    fields = array("q", (
        plan.table.data_ptr(), g_messages.data_ptr(), address, input_address, weight_address,
        pointer(lengths), at, at + 4 * launches.first_sum,
        pointer(g_input), pointer(g_weight_ih), pointer(g_weight_hh), pointer(g_bias),
        plan.T, plan.B, I, schedule.hidden_size, schedule.modules, launches.lines, launches.recurrent_parts,
        launches.parts, launches.inputs, plan.g_messages_size, plan.states_size,
        input_strides[0] if lead else 0, input_strides[-2], input_strides[-1], weight_s,
    ))  # fmt: skip
    if launches.blocks > 0:
        driver.launch_on(index, launches.programs.multiply, launches.blocks, S, fields)
    if launches.adding_blocks > 0:
        driver.launch_on(index, launches.programs.add, launches.adding_blocks, S * count_planes(gates), fields)


@lru_cache(maxsize=4096)
def _prepare(
    plan: Plan,
    schedule: Schedule,
    I: int,
    S: int,
    dtype: torch.dtype,
    gates: int,
    products: int,
    aligned: bool,
    input_piece: int,
    index: int,
    of_input: bool,
    of_weight_ih: bool,
    of_weight_hh: bool,
    of_bias: bool,
) -> Launches:
    """The launches for S replicas; the last four arguments say which gradients are wanted."""
    programs = load_programs(schedule, dtype, gates, products, I, aligned, input_piece, index)
    planes, N, B = count_planes(gates), schedule.hidden_size, plan.B
    lines, recurrent_parts, input_parts = count_parts(schedule, plan.ticks, B, I, programs.width, planes)
    inputs = I if of_weight_ih else 0
    of_inputs = of_weight_ih or of_bias
    if inputs == 0 and of_inputs:
        _, _, input_parts = count_parts(schedule, plan.ticks, B, 0, programs.width, planes, lines)
    recurrent_parts, input_parts = recurrent_parts * of_weight_hh, input_parts * of_inputs
    parts = recurrent_parts + input_parts
    first_sum = S * planes * parts * HEIGHT * programs.width
    piece = programs.output_piece
    added = N * (of_weight_hh * (N // piece) + of_weight_ih * (I // piece) + of_bias)
    return Launches(
        programs,
        lines,
        recurrent_parts,
        parts,
        inputs,
        first_sum,
        first_sum + S * planes * input_parts * HEIGHT,
        planes * parts + (plan.T * count_blocks(B, TILE) * count_blocks(I, TILE) if of_input else 0),
        count_blocks(added, 32 * WARPS),
    )


def count_parts(
    schedule: Schedule, ticks: tuple[int, ...], B: int, I: int, width: int, planes: int = 1, lines: int | None = None
) -> tuple[int, int, int]:
    """The lines of a part, and the numbers of parts of the gradients of weight_hh and weight_ih."""
    wide = max(count_blocks(I, width), 1)
    modules = [
        (n, count_blocks(units.stop, HEIGHT) * count_blocks(size, width), count_blocks(size, HEIGHT) * wide)
        for n, size, units in zip(ticks, schedule.sizes, schedule.slices, strict=True)
    ]
    if lines is None:
        total = sum((n + 1) * B * recurrent + n * B * inputs for n, recurrent, inputs in modules)
        lines = min(max(count_blocks(total * planes, PARTS * 64) * 64, FEWEST_LINES), MOST_LINES)
    return (
        lines,
        sum(count_blocks((n + 1) * B, lines) * recurrent for n, recurrent, _ in modules),
        sum(count_blocks(n * B, lines) * inputs for n, _, inputs in modules),
    )


def _choose_piece(size: int, *numbers: int) -> int:
    """How many bytes can be copied at once, of elements of `size` bytes that begin at multiples of these numbers."""
    # a power of two divides all of them if it divides the bits of all
    bits = reduce(or_, numbers)
    for piece in (16, 4):
        if bits % piece == 0:
            return piece
    return size
