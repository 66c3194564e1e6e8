"""The gradients of the weights, the bias and the input of simple cells on a GPU, by the CUDA programs in gradients.cu.

All of them follow from the gradients of the messages, which `scan.backward` computes. One launch multiplies these with
states, inputs and weights, in parts; another one adds up the parts, in an order that depends on the shapes alone.
"""

from array import array
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ...schedule import Schedule
from ..tensors import pointer
from . import driver
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
"""About how many parts of the weights' gradients keep a large GPU busy."""
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


@lru_cache(maxsize=1024)
def load_programs(
    schedule: Schedule, dtype: torch.dtype, products: int, I: int, aligned: bool, input_piece: int, index: int
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
    constants = {
        "ELEMENT": driver.ELEMENTS[dtype], "PRODUCTS": products, "TALL": tall, "STAGES": STAGES, "PIECE": piece,
        "INPUT_PIECE": input_piece, "OUTPUT_PIECE": output_piece, "WARPS": WARPS, "SHARED": shared,
        # the rest is not used
        "STEPS": 2, "TILES": 1, "SPLIT": 1, "SPREAD": 0, "CHUNK": 1, "AHEAD": 1, "NESTED": 1, "RECTIFY": 0, "EVEN": 0,
        "FULL": 0, "VECTOR": 0, "SIGNALLER": 0, "TRANSPOSED": 0,
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
    stream: int,
) -> None:
    """Fills the gradients that are not None. The tensors must be dense; a leading axis of S replicas may be there."""
    if g_input is not None and g_input.numel() == 0:
        g_input = None
    if g_input is None and g_weight_ih is None and g_weight_hh is None and g_bias is None:
        return
    lead, (T, B, I), N, size = ticks.shape[:-1], input.shape[-3:], schedule.hidden_size, input.element_size()
    S = lead.numel()
    address, input_address, weight_address = ticks.data_ptr(), input.data_ptr(), weight_ih.data_ptr()
    input_strides = input.stride()[:-1]
    weight_s = weight_ih.stride(0) if lead else 0
    strides = (stride * size for stride in (I, weight_s, *input_strides))
    input_piece = _choose_piece(size, input_address, weight_address, *strides)
    index = input.device.index or 0
    programs = load_programs(schedule, input.dtype, products, I, address % 16 == 0, input_piece, index)
    recurrent, of_inputs = g_weight_hh is not None, g_weight_ih is not None or g_bias is not None
    lines, recurrent_parts, input_parts = count_parts(schedule, plan.ticks, B, I, programs.width)
    inputs = 0 if g_weight_ih is None else I
    if inputs == 0 and of_inputs:
        _, _, input_parts = count_parts(schedule, plan.ticks, B, 0, programs.width, lines)
    recurrent_parts, input_parts = recurrent_parts * recurrent, input_parts * of_inputs
    parts, block = recurrent_parts + input_parts, HEIGHT * programs.width
    products_and_sums = torch.empty(
        S * (parts * block + input_parts * HEIGHT), dtype=torch.float32, device=input.device
    )
    at = products_and_sums.data_ptr()
    fields = array("q", (
        plan.table.data_ptr(), g_messages.data_ptr(), address, input_address, weight_address,
        pointer(lengths), at, at + 4 * S * parts * block,
        pointer(g_input), pointer(g_weight_ih), pointer(g_weight_hh), pointer(g_bias),
        T, B, I, N, schedule.modules, lines, recurrent_parts, parts, inputs,
        plan.g_messages_size, plan.states_size, input_strides[0] if lead else 0, input_strides[-2], input_strides[-1],
        weight_s,
    ))  # fmt: skip
    blocks = parts if g_input is None else parts + T * -(-B // TILE) * -(-I // TILE)
    if blocks > 0:
        driver.launch(programs.multiply, blocks, S, fields, stream)
    piece = programs.output_piece
    numbers = N * (recurrent * (N // piece) + (g_weight_ih is not None) * (I // piece) + (g_bias is not None))
    if numbers > 0:
        driver.launch(programs.add, -(-numbers // (32 * WARPS)), S, fields, stream)


@lru_cache(maxsize=4096)
def count_parts(
    schedule: Schedule, ticks: tuple[int, ...], B: int, I: int, width: int, lines: int | None = None
) -> tuple[int, int, int]:
    """The lines of a part, and the numbers of parts of the gradients of weight_hh and weight_ih."""
    wide = max(count_blocks(I, width), 1)
    modules = [
        (n, count_blocks(units.stop, HEIGHT) * count_blocks(size, width), count_blocks(size, HEIGHT) * wide)
        for n, size, units in zip(ticks, schedule.sizes, schedule.slices, strict=True)
    ]
    if lines is None:
        total = sum((n + 1) * B * recurrent + n * B * inputs for n, recurrent, inputs in modules)
        lines = min(max(count_blocks(total, PARTS * 64) * 64, FEWEST_LINES), MOST_LINES)
    return (
        lines,
        sum(count_blocks((n + 1) * B, lines) * recurrent for n, recurrent, _ in modules),
        sum(count_blocks(n * B, lines) * inputs for n, _, inputs in modules),
    )


def _choose_piece(size: int, *numbers: int) -> int:
    """How many bytes can be copied at once, of elements of `size` bytes that begin at multiples of these numbers."""
    for piece in (16, 4):
        if all(number % piece == 0 for number in numbers):
            return piece
    return size
