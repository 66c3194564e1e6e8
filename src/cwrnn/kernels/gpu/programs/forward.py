"""The forward programs of LSTM and GRU on a GPU, in Triton. `launch.py` starts them and describes the whole computation.

s is a replica, j a module, m its row in the table of modules (`tables.ModuleRow`), P its period, K its size, `start`
its first unit, `first` its first tick and n the number of its ticks. Row 0 of a module is its initial state, row n its
state after tick n. Names that end in 2 belong to the next slower module. Names that end in _s, _t or _b are strides of
replicas, time steps and sequences.

Constants: BK is the size of the largest module, rounded up to a power of two; BT the sequences of a tile; C the rows
after which a scan signals; BU the units and BI the inner indices of one product. RESIDENT says where the weights stay: 1
in registers, 2 half of them in shared memory, 0 nowhere, so that they are read again at every tick. FAST means the
approximate tanh. GATES is 4 for an LSTM, and 3 for a GRU. ALIGN is a number that all sizes and strides are multiples of.

Numbers that change from call to call are not specialised on, so that another T or B compiles nothing again, apart from
a few variants by the alignment of strides.
"""

import triton
import triton.language as tl

from .gated_forward import scan_gated_module
from .primitives import (
    MODULE,
    align,
    load_module,
    module_row,
    round_operand,
    row_at,
    signal_rows,
    take_turn,
    wait_for_rows,
)


@triton.jit(do_not_specialize=["B", "tiles", "bias_s", "states_s"])
def compute_drive(
    table, x, weight, bias, lengths, drive,
    B, I, N, tiles, x_s, x_t, x_b, weight_s, bias_s, states_s,
    BM: tl.constexpr, BN: tl.constexpr, BI: tl.constexpr, BIAS: tl.constexpr, LENGTHS: tl.constexpr, PRECISION: tl.constexpr,
    GATES: tl.constexpr, BT: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Compute W_ih x + b at every tick of every module, laid out as the scan reads it.

    One program computes BM lines (a tick of one sequence) and BN units of one gate of one module.
    """
    s = tl.program_id(2).to(tl.int64)
    block = tl.program_id(0)
    unit_block = tl.program_id(1)
    gate = unit_block // (tl.num_programs(1) // GATES)
    unit_block = unit_block % (tl.num_programs(1) // GATES)
    bias += gate * N
    m = table
    n = tl.load(m + MODULE.value.ticks).to(tl.int32)
    lines = tiles * BT
    while block >= tl.cdiv(n * lines, BM):
        block -= tl.cdiv(n * lines, BM)
        m += len(MODULE.value)
        n = tl.load(m + MODULE.value.ticks).to(tl.int32)
    P = tl.load(m + MODULE.value.period)
    K = tl.load(m + MODULE.value.size).to(tl.int32)
    start = tl.load(m + MODULE.value.first_unit).to(tl.int32)
    first = tl.load(m + MODULE.value.first_tick)
    u = unit_block * BN + tl.arange(0, BN)
    line = block * BM + tl.arange(0, BM)
    # tile after tile, in a tile tick after tick, and sequences beyond the last one, which have zeros
    tick = line // BT % n
    b = line // BT // n * BT + line % BT
    t = first + tick * P
    inside = line < n * (tiles * BT)
    readable = inside & (b < B)
    if LENGTHS:
        readable = readable & (t < tl.load(lengths + s * B + b, mask=readable, other=0))
    rows = x + s * x_s + t * x_t + b.to(tl.int64) * x_b
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for i0 in range(0, I, BI):
        i = i0 + tl.arange(0, BI)
        xs = tl.load(rows[:, None] + i[None, :], mask=readable[:, None] & (i[None, :] < I), other=0)
        w = tl.load(
            weight + s * weight_s + (gate * N + start + u)[None, :] * I + i[:, None],
            mask=(u[None, :] < K) & (i[:, None] < I), other=0,
        )  # fmt: skip
        acc = tl.dot(round_operand(xs, PRECISION), round_operand(w, PRECISION), acc, input_precision=PRECISION)
    if BIAS:
        acc += tl.load(bias + s * bias_s + start + u, mask=u < K, other=0).to(tl.float32)[None, :]
    # as many rows of a tile as ticks, and row 0
    row = line // BT + line // BT // n + 1
    module = align(s * states_s, ALIGN) + align(tl.load(m + MODULE.value.states) // B * tiles * (BT * GATES), ALIGN)
    plane = (row.to(tl.int64) * GATES + gate) * (align(K, ALIGN) * BT)
    to = drive + module + (plane + line % BT)[:, None] + (u * BT)[None, :]
    tl.store(to, acc, mask=inside[:, None] & (u[None, :] < K))


@triton.jit(do_not_specialize=["size", "weight_s"])
def round_weights(weight, rounded, size, weight_s, BN: tl.constexpr):
    """Round the weights of a replica, which are `size`, to tf32. One program rounds BN of them."""
    s = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    value = round_operand(tl.load(weight + s * weight_s + at, mask=at < size, other=0), "tf32")
    tl.store(rounded + s * size + at, value, mask=at < size)


@triton.jit
def _multiply_states(
    acc, weight, states, u, line, K, N, inside, read, BK: tl.constexpr, BI: tl.constexpr, PRECISION: tl.constexpr
):
    """Add to `acc` the product of the states in those lines with the weights of the units u."""
    for k0 in tl.static_range(0, BK, BI):
        k = k0 + tl.arange(0, BI)
        h = tl.load(
            states + line[:, None] * K + k[None, :],
            mask=inside[:, None] & (k[None, :] < K), other=0, cache_modifier=".cg",
        )  # fmt: skip
        w = tl.load(weight + u[None, :] * N + k[:, None], mask=read[None, :] & (k[:, None] < K), other=0)
        acc = tl.dot(round_operand(h, PRECISION), round_operand(w, PRECISION), acc, input_precision=PRECISION)
    return acc


@triton.jit
def _compute_messages(
    table, flags, weight, messages, states, B, N, G, j, tile, tiles,
    GATES: tl.constexpr, BK: tl.constexpr, BT: tl.constexpr, C: tl.constexpr, BU: tl.constexpr, BI: tl.constexpr,
    NESTED: tl.constexpr, PRECISION: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Compute the messages of module j to all faster modules, C rows at a time.

    With nested periods they include the messages that the slower modules send to the same units. They are laid out as
    the scan reads them.
    """
    m = module_row(table, j)
    P, K, start, first, n = load_module(m)
    slower = j + 1 < G
    m2 = m + tl.where(slower, len(MODULE.value), 0)
    P2, _, start2, first2, n2 = load_module(m2)
    K, start, start2 = align(K, ALIGN), align(start, ALIGN), align(start2, ALIGN)
    states += align(tl.load(m + MODULE.value.states), ALIGN)
    # rows of one unit and one sequence that the modules before have
    before, before2 = tl.load(m + MODULE.value.messages) // B, tl.load(m2 + MODULE.value.messages) // B
    own = messages + (before * tiles + tile.to(tl.int64) * (n + 1) * start) * (BT * GATES)
    messages2 = messages + (before2 * tiles + tile.to(tl.int64) * (n2 + 1) * start2) * (BT * GATES)
    c = tl.arange(0, C * BT)
    b = tile * BT + c % BT
    ready = j * 0
    # the first rows are row 0 alone, which is there from the start
    for c0 in range(1 - C, n + 1, C):
        c1 = tl.minimum(c0 + C, n + 1)
        ready = wait_for_rows(flags + j * tiles + tile, ready, c1)
        row = c0 + c // BT
        inside = (row < c1) & (b < B)
        inside = inside & (row >= 0)
        line = (row - c0) * B + b
        begin = (c0 + j * 0).to(tl.int64) * B
        # the rows of the next slower module that hold when these rows begin
        at = tl.where(row > 0, row_at(first + (row - 1) * P, first2, P2), 0)
        low = tl.where(c0 > 0, row_at(first + (c0 - 1) * P, first2, P2), 0)
        high = tl.where(c1 > 1, row_at(first + (c1 - 2) * P, first2, P2), 0)
        lane = c % BT
        if BI == BK:
            k = tl.arange(0, BK)
            h = states + begin * K + line[:, None] * K + k[None, :]
            h = tl.load(h, mask=inside[:, None] & (k[None, :] < K), other=0, cache_modifier=".cg")
            h = round_operand(h, PRECISION)
        # the nearest faster module first
        for q in range(0, j):
            r = j - 1 - q
            flag = flags + (G + j * G + r) * tiles + tile
            if NESTED and slower:
                wait_for_rows(flag + G * tiles, q * 0, high + 1)
            u0 = tl.load(module_row(table, r) + MODULE.value.first_unit).to(tl.int32)
            end = u0 + tl.load(module_row(table, r) + MODULE.value.size).to(tl.int32)
            u0, end = align(u0, ALIGN), align(end, ALIGN)
            # also the sequences beyond the last one, which have zeros
            written = (row >= 0) & (row < c1)
            for gate in range(0, GATES):
                W = weight + start + (gate + j * 0).to(tl.int64) * N * N
                to = own + ((c0 + j * 0).to(tl.int64) * GATES + gate) * (start * BT)
                incoming = messages2 + (low.to(tl.int64) * GATES + gate) * (start2 * BT)
                for v in range(0, end - u0, BU):
                    u = u0 + v + tl.arange(0, BU)
                    keep = written[:, None] & (u[None, :] < end)
                    if BI == BK:
                        k = tl.arange(0, BK)
                        read = (u[None, :] < end) & (k[:, None] < K)
                        w = tl.load(W + u[None, :] * N + k[:, None], mask=read, other=0)
                    added = incoming + ((at - low) * (start2 * BT * GATES) + lane)[:, None] + (u * BT)[None, :]
                    added = tl.load(added, mask=keep & (NESTED and slower), other=0, cache_modifier=".cg")
                    acc = tl.zeros((C * BT, BU), dtype=tl.float32)
                    if BI == BK:
                        acc = tl.dot(h, round_operand(w, PRECISION), acc, input_precision=PRECISION)
                    else:
                        acc = _multiply_states(
                            acc, W, states + begin * K, u, line, K, N, inside, u < end, BK, BI, PRECISION
                        )
                    into = to + ((row - c0) * (start * BT * GATES) + lane)[:, None] + (u * BT)[None, :]
                    tl.store(into, acc + added, mask=keep)
            signal_rows(flag, c1)


@triton.jit(
    do_not_specialize=[
        "B", "G", "tiles", "weight_s", "peephole_s", "h0_s", "states_s", "drive_s", "messages_s", "kept_s", "flags_s"
    ]
)  # fmt: skip
def run_forward(
    table, turns, flags, weight, peephole, h0, drive, messages, states, final, kept, lengths,
    B, N, G, tiles, weight_s, peephole_s, h0_s, h0_b, states_s, drive_s, messages_s, kept_s, flags_s,
    CELL: tl.constexpr, BK: tl.constexpr, BT: tl.constexpr, C: tl.constexpr, BU: tl.constexpr, BI: tl.constexpr,
    NESTED: tl.constexpr, LENGTHS: tl.constexpr, PRECISION: tl.constexpr, RESIDENT: tl.constexpr, FAST: tl.constexpr,
    GATES: tl.constexpr, PEEPHOLES: tl.constexpr, KEEP: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Compute all modules at once.

    The roles are, slowest module first: the scan of a module, its messages, the scan of the next faster module. So no
    program waits for one with a higher number.
    """
    s, role, tile = take_turn(turns, tiles)
    j = G - 1 - role // 2
    weight += align(s * weight_s, ALIGN)
    states += align(s * states_s, ALIGN)
    messages += align(s * messages_s, ALIGN)
    flags += s * flags_s
    if role % 2 == 0:
        PARTS: tl.constexpr = 2 if CELL == "lstm" else 1
        scan_gated_module(table, flags, weight, peephole + s * peephole_s, h0 + s * h0_s,
                          drive + align(s * drive_s, ALIGN), messages, states, final + s * B * (PARTS * N),
                          kept + align(s * kept_s, ALIGN), lengths + s * B, B, N, G, j, tile, tiles, h0_b,
                          CELL == "lstm", BK, BT, C, BI, NESTED, LENGTHS, PRECISION, RESIDENT, FAST,
                          PEEPHOLES, KEEP, ALIGN)  # fmt: skip
    else:
        _compute_messages(table, flags, weight, messages, states, B, N, G, j, tile, tiles,
                          GATES, BK, BT, C, BU, BI, NESTED, PRECISION, ALIGN)  # fmt: skip


@triton.jit(do_not_specialize=["T", "B", "states_s"])
def hold_states(
    table, states, held, lengths, T, B, N, states_s,
    BT: tl.constexpr, BB: tl.constexpr, BN: tl.constexpr, LENGTHS: tl.constexpr,
):  # fmt: skip
    """Write the state at every step. One program writes BN units of one module, for BB sequences and BT steps."""
    s = tl.program_id(2).to(tl.int64)
    block = tl.program_id(1)
    m = table
    K = tl.load(m + MODULE.value.size).to(tl.int32)
    while block >= tl.cdiv(K, BN):
        block -= tl.cdiv(K, BN)
        m += len(MODULE.value)
        K = tl.load(m + MODULE.value.size).to(tl.int32)
    P, K, start, first, _ = load_module(m)
    b = tl.program_id(0) % tl.cdiv(B, BB) * BB + tl.arange(0, BB)
    u = block * BN + tl.arange(0, BN)
    inside = (b[:, None] < B) & (u[None, :] < K)
    states += tl.load(m + MODULE.value.states) + s * states_s + b[:, None] * K + u[None, :]
    held += s * T * B * N + b[:, None] * N + start + u[None, :]
    row_size = B.to(tl.int64) * K
    if LENGTHS:
        length = tl.load(lengths + s * B + b, mask=b < B, other=0)
    begin = tl.program_id(0) // tl.cdiv(B, BB) * BT
    value = tl.load(states + row_at(begin, first, P) * row_size, mask=inside, other=0)
    for t in range(begin, tl.minimum(begin + BT, T)):
        if (t >= first) & ((t - first) % P == 0):
            value = tl.load(states + row_at(t, first, P) * row_size, mask=inside, other=0)
        shown = value
        if LENGTHS:
            shown = tl.where((t < length)[:, None], value, 0)
        tl.store(held + t * (B.to(tl.int64) * N), shown, mask=inside)
