"""The backward programs of LSTM and GRU on a GPU, in Triton. `launch.py` starts them and describes the whole computation.

The names are those of the forward programs. `g_messages` holds for every row of a module the gradient of the message
that the row sends to the faster modules and to the module itself. `g_outside` holds the gradient of the state that comes
from outside of the recurrence, and `g_faster` the gradient of the state that comes from the faster modules.
"""

import triton
import triton.language as tl

from .gated_backward import scan_gated_module_backward
from .primitives import (
    BLOCK,
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


@triton.jit(do_not_specialize=["T", "B", "G", "tiles", "held_s", "states_s", "g_outside_s"])
def collect_gradients(
    table, g_held, g_states, g_final, lengths, g_outside,
    T, B, N, G, tiles, held_s, held_t, held_b, states_s, g_outside_s,
    BT: tl.constexpr, BB: tl.constexpr, BN: tl.constexpr,
    HELD: tl.constexpr, STATES: tl.constexpr, FINAL: tl.constexpr, LENGTHS: tl.constexpr,
    PARTS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Add up the gradients of every state that come from outside of the recurrence.

    These are the gradients of the output at all steps that held the state, of the state itself, and of the final state.
    One program adds up one row of one module, for BB sequences and BN units. The slowest modules come first, because
    they have most to add up. PARTS: the final state has h and c, of which h counts here. TILE: the sequences of a tile.
    """
    s = tl.program_id(2).to(tl.int64)
    block = tl.program_id(0)
    blocks = tl.cdiv(B, BB)
    m = module_row(table, G - 1)
    n = tl.load(m + MODULE.value.ticks).to(tl.int32)
    while block >= (n + 1) * blocks:
        block -= (n + 1) * blocks
        m -= len(MODULE.value)
        n = tl.load(m + MODULE.value.ticks).to(tl.int32)
    P, K, start, first, _ = load_module(m)
    row = block // blocks
    b = block % blocks * BB + tl.arange(0, BB)
    u = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (b[:, None] < B) & (u[None, :] < K)
    begin = tl.where(row > 0, first + (row - 1) * P, 0)
    end = tl.minimum(first + row * P, T)
    acc = tl.zeros((BB, BN), dtype=tl.float32)
    if LENGTHS:
        length = tl.load(lengths + s * B + b, mask=b < B, other=0)
    if HELD:
        units = start + b.to(tl.int64)[:, None] * held_b + u[None, :]
        if P >= BT:
            # several steps at a time
            for t0 in range(begin, end, BT):
                t = t0 + tl.arange(0, BT)
                keep = (t < end)[:, None, None] & inside[None, :, :]
                if LENGTHS:
                    keep = keep & (t[:, None] < length[None, :])[:, :, None]
                steps = g_held + s * held_s + (t.to(tl.int64) * held_t)[:, None, None] + units[None, :, :]
                acc += tl.sum(tl.load(steps, mask=keep, other=0).to(tl.float32), axis=0)
        else:
            for t in range(begin, end):
                keep = inside
                if LENGTHS:
                    keep = keep & (t < length)[:, None]
                step = g_held + s * held_s + (t + row * 0).to(tl.int64) * held_t
                acc += tl.load(step + units, mask=keep, other=0).to(tl.float32)
    here = tl.load(m + MODULE.value.states) + s * states_s + row.to(tl.int64) * B * K + b[:, None] * K + u[None, :]
    if STATES:
        acc += tl.load(g_states + here, mask=inside, other=0).to(tl.float32)
    if FINAL:
        last = n + b * 0
        if LENGTHS:
            last = row_at(length.to(tl.int32) - 1, first, P)
        end_state = g_final + (s * B + b[:, None]) * (N * PARTS) + start + u[None, :]
        acc += tl.load(end_state, mask=inside & (last == row)[:, None], other=0).to(tl.float32)
    module = tl.load(m + MODULE.value.states) // B * (tiles * TILE) + s * g_outside_s
    rows = (b // TILE).to(tl.int64) * (n + 1) + row
    here = module + (rows * (K * TILE) + b % TILE)[:, None] + (u * TILE)[None, :]
    inside = (b < tiles * TILE)[:, None] & (u[None, :] < K)
    tl.store(g_outside + here, acc, mask=inside)


@triton.jit
def _gather_message_gradients(
    table, flags, weight, g_faster, g_messages, B, N, G, j, tile, tiles,
    GATES: tl.constexpr, BK: tl.constexpr, BT: tl.constexpr, C: tl.constexpr, BU: tl.constexpr, NESTED: tl.constexpr,
    PRECISION: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Compute the gradients that module j receives from the faster modules.

    The gradients of the faster modules' sums are added up over the steps that held a row: this is the gradient of the
    row's message, and goes to `g_messages`. Its product with the weights of the message goes to `g_faster`. With nested
    periods the sums that the next faster module has in `g_messages` are added up instead.
    """
    m = module_row(table, j)
    P, K, start, first, n = load_module(m)
    K, start = align(K, ALIGN), align(start, ALIGN)
    end = start + K
    rows = tile.to(tl.int64) * (n + 1)
    g_faster += align((tl.load(m + MODULE.value.states) // B * tiles + rows * K) * BT, ALIGN)
    own = g_messages + align((tl.load(m + MODULE.value.g_messages) // B * tiles + rows * end) * (4 * BT), ALIGN)
    k = tl.arange(0, BK)
    c = tl.arange(0, C * BT)
    if not NESTED:
        for i in range(0, j):
            faster = flags + i * tiles + tile
            wait_for_rows(faster, i * 0, tl.load(module_row(table, i) + MODULE.value.ticks).to(tl.int32) + 1)
    ready = j * 0
    for c0 in range(0, n + 1, C):
        # rows n - c0, down to `lowest`
        lowest = tl.maximum(n - c0 - C + 1, 0)
        row = n - c0 - c // BT
        acc = tl.zeros((C * BT, BK), dtype=tl.float32)
        for i in range(tl.where(NESTED, j - 1, 0), j):
            q = module_row(table, i)
            Pq, Kq, startq, firstq, nq = load_module(q)
            Kq, startq = align(Kq, ALIGN), align(startq, ALIGN)
            endq = startq + Kq
            # the rows of module i that began while module j held this row
            low = tl.where(row > 0, row_at(first + (row - 1) * P, firstq, Pq), 0)
            high = tl.where(row < n, row_at(first + row * P, firstq, Pq), nq + 1)
            least = tl.where(lowest > 0, row_at(first + (lowest - 1) * P, firstq, Pq), 0)
            if NESTED:
                ready = wait_for_rows(flags + i * tiles + tile, ready, nq + 1 - least)
                u_begin = startq * 0
                # if both periods are longer than the sequence: at most the initial state and one tick
                most = tl.maximum(P // Pq, tl.minimum(nq, 1) + 1)
            else:
                u_begin = startq
                most = (P + Pq - 1) // Pq + 1
            row_size = align(endq.to(tl.int64) * (4 * BT), ALIGN)
            theirs = align((tl.load(q + MODULE.value.g_messages) // B * tiles) * (4 * BT), ALIGN)
            theirs = g_messages + theirs + (tile.to(tl.int64) * (nq + 1) + least) * row_size
            lineq = (low - least).to(tl.int64) * row_size + c % BT
            line_own = (row - lowest) * (end * (4 * BT)) + c % BT
            for gate in range(0, GATES):
                for v in range(0, endq - u_begin, BU):
                    u = u_begin + v + tl.arange(0, BU)
                    addends = theirs + (gate * endq * BT + lineq)[:, None] + (u * BT)[None, :]
                    to = own + align((lowest + j * 0).to(tl.int64) * (4 * BT) * end, ALIGN) + gate * end * BT
                    to += line_own[:, None] + (u * BT)[None, :]
                    W = weight + start + (gate + j * 0).to(tl.int64) * N * N
                    # also the sequences beyond the last one, which have zeros
                    w_block = tl.load(
                        W + u[:, None] * N + k[None, :], mask=(u < endq)[:, None] & (k[None, :] < K), other=0
                    )
                    keep = (row >= lowest)[:, None] & (u < endq)[None, :]
                    sums = tl.zeros((C * BT, BU), dtype=tl.float32)
                    # most modules are twice as fast as the next one
                    for w in range(0, most, 2):
                        one = tl.load(
                            addends + w * row_size, mask=keep & (low + w < high)[:, None], other=0,
                            cache_modifier=".cg",
                        )  # fmt: skip
                        two = tl.load(
                            addends + (w + 1) * row_size, mask=keep & (low + w + 1 < high)[:, None], other=0,
                            cache_modifier=".cg",
                        )  # fmt: skip
                        sums += one.to(tl.float32) + two.to(tl.float32)
                    gradient = sums.to(weight.dtype.element_ty)
                    tl.store(to, gradient, mask=keep)
                    acc = tl.dot(
                        round_operand(gradient, PRECISION), round_operand(w_block, PRECISION), acc,
                        input_precision=PRECISION,
                    )  # fmt: skip
        to = g_faster + align((lowest + j * 0).to(tl.int64) * BT * K, ALIGN)
        to += ((row - lowest) * (K * BT) + c % BT)[:, None] + (k * BT)[None, :]
        inside = row >= lowest
        tl.store(to, acc, mask=inside[:, None] & (k[None, :] < K))
        signal_rows(flags + (G + j) * tiles + tile, n + 1 - lowest)


@triton.jit(
    do_not_specialize=[
        "B", "G", "tiles", "weight_s", "peephole_s", "states_s", "kept_s", "g_outside_s", "g_messages_s", "flags_s"
    ]
)  # fmt: skip
def run_backward(
    table, turns, flags, weight, peephole, states, kept, g_outside, g_faster, g_messages, g_final, g_h0, g_peephole,
    lengths, B, N, G, tiles, weight_s, peephole_s, states_s, kept_s, g_outside_s, g_messages_s, flags_s,
    CELL: tl.constexpr, BK: tl.constexpr, BT: tl.constexpr, C: tl.constexpr, BU: tl.constexpr, BI: tl.constexpr,
    NESTED: tl.constexpr, PRECISION: tl.constexpr, RESIDENT: tl.constexpr, FAST: tl.constexpr, INITIAL: tl.constexpr,
    FINAL: tl.constexpr, LENGTHS: tl.constexpr, GATES: tl.constexpr, PEEPHOLES: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of all modules at once.

    The roles are, fastest module first: the scan of a module, the gradients that the next slower module receives, the
    scan of that module. So no program waits for one with a higher number.
    """
    s, role, tile = take_turn(turns, tiles)
    role += 1
    weight += align(s * weight_s, ALIGN)
    g_faster += align(s * g_outside_s, ALIGN)
    g_messages += align(s * g_messages_s, ALIGN)
    flags += s * flags_s
    if role % 2 == 1:
        PARTS: tl.constexpr = 2 if CELL == "lstm" else 1
        scan_gated_module_backward(table, flags, weight, peephole + s * peephole_s, kept + align(s * kept_s, ALIGN),
                                   g_outside + align(s * g_outside_s, ALIGN), g_faster, g_messages,
                                   g_final + s * B * (PARTS * N), g_h0 + s * B * (PARTS * N),
                                   g_peephole + s * (tiles * 3) * N, lengths + s * B,
                                   B, N, G, role // 2, tile, tiles, CELL == "lstm", BK, BT, C, BI, PRECISION,
                                   RESIDENT, FAST, INITIAL, FINAL, LENGTHS, PEEPHOLES, ALIGN)  # fmt: skip
    else:
        _gather_message_gradients(table, flags, weight, g_faster, g_messages, B, N, G, role // 2, tile, tiles,
                                  GATES, BK, BT, C, BU, NESTED, PRECISION, ALIGN)  # fmt: skip


@triton.jit(do_not_specialize=["count"])
def add_weight_parts(
    table, blocks, products, sums, g_weight_ih, g_weight_hh, g_bias, N, I, count,
    BM: tl.constexpr, BN: tl.constexpr, IH: tl.constexpr, HH: tl.constexpr, BIAS: tl.constexpr, GATES: tl.constexpr,
):  # fmt: skip
    """Add up the parts of the weights' gradients.

    One program computes one row of the table of blocks (`BlockRow`), for one plane of the gradients.
    """
    s = tl.program_id(1).to(tl.int64)
    block = blocks + tl.program_id(0) * len(BLOCK.value)
    of_input = tl.load(block + BLOCK.value.of_input)
    m = module_row(table, tl.load(block + BLOCK.value.module))
    K = tl.load(m + MODULE.value.size).to(tl.int32)
    start = tl.load(m + MODULE.value.first_unit).to(tl.int32)
    u = tl.load(block + BLOCK.value.receiver) + tl.arange(0, BM)
    v = tl.load(block + BLOCK.value.sender) + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    plane = tl.program_id(2)
    for part in range(tl.load(block + BLOCK.value.first_part), tl.load(block + BLOCK.value.end_part)):
        number = (s * tl.num_programs(2) + plane) * count + part
        acc += tl.load(products + number * BM * BN + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :])
        total += tl.load(sums + number * BM + tl.arange(0, BM))
    inside = u < start + K
    if GATES == 3:
        # the third plane belongs to the product inside the reset gate, the fourth to the drive
        if of_input == 0:
            inside = inside & (plane < 3)
        else:
            plane = tl.where(plane < 2, plane, 5 - plane)
    if of_input == 0:
        if HH:
            to = g_weight_hh + (s * GATES + plane) * N * N + u[:, None] * N + start + v[None, :]
            tl.store(to, acc, mask=inside[:, None] & (v[None, :] < K))
    else:
        if IH:
            to = g_weight_ih + ((s * GATES + plane) * N + u[:, None]) * I + v[None, :]
            tl.store(to, acc, mask=inside[:, None] & (v[None, :] < I) & (plane < GATES))
        if BIAS:
            first = tl.load(block + BLOCK.value.sender) == 0
            tl.store(g_bias + (s * 4 + plane) * N + u, total, mask=inside & first)


@triton.jit
def _multiply_gradient(acc, d, weight, start, k, i, K, I, PRECISION: tl.constexpr):
    """Add to `acc` the product of the gradients d of some units with their weights of the inputs i."""
    w = tl.load(weight + (start + k)[:, None] * I + i[None, :], mask=(k[:, None] < K) & (i[None, :] < I), other=0)
    return tl.dot(round_operand(d, PRECISION), round_operand(w, PRECISION), acc, input_precision=PRECISION)


@triton.jit(do_not_specialize=["B", "G", "tiles", "g_messages_s"])
def compute_input_gradient(
    table, g_messages, weight, lengths, g_input, B, I, N, G, tiles, weight_s, g_messages_s,
    BB: tl.constexpr, BN: tl.constexpr, BI: tl.constexpr, LENGTHS: tl.constexpr, PRECISION: tl.constexpr,
    GATES: tl.constexpr, BT: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of the input. One program computes one step, for BB sequences and BN inputs."""
    s = tl.program_id(2).to(tl.int64)
    blocks = tl.cdiv(B, BB)
    t = tl.program_id(0) // blocks
    b = tl.program_id(0) % blocks * BB + tl.arange(0, BB)
    i = tl.program_id(1) * BN + tl.arange(0, BN)
    weight += s * weight_s
    readable = b < B
    if LENGTHS:
        readable = readable & (t < tl.load(lengths + s * B + b, mask=readable, other=0))
    acc = tl.zeros((BB, BN), dtype=tl.float32)
    for j in range(0, G):
        m = module_row(table, j)
        P, K, start, first, n = load_module(m)
        K, start = align(K, ALIGN), align(start, ALIGN)
        if (t >= first) & ((t - first) % P == 0):
            end = start + K
            module = align(tl.load(m + MODULE.value.g_messages) // B * tiles * (4 * BT), ALIGN)
            rows = (b // BT).to(tl.int64) * (n + 1) + (t - first) // P
            rows = g_messages + align(s * g_messages_s, ALIGN) + module + rows * (4 * BT * end) + b % BT
            for gate in range(0, GATES):
                # the fourth plane of a GRU belongs to the drive
                plane = tl.where((gate == 2) & (GATES == 3), 3, gate)
                for k0 in range(0, K, BI):
                    k = k0 + tl.arange(0, BI)
                    d = tl.load(
                        rows[:, None] + ((plane * end + start + k) * BT)[None, :],
                        mask=(b < tiles * BT)[:, None] & (k[None, :] < K), other=0,
                    )  # fmt: skip
                    acc = _multiply_gradient(acc, d, weight, gate * N + start, k, i, K, I, PRECISION)
    acc = tl.where(readable[:, None], acc, 0.0)
    to = g_input + ((s * (tl.num_programs(0) // blocks) + t) * B + b[:, None]) * I + i[None, :]
    tl.store(to, acc, mask=(b[:, None] < B) & (i[None, :] < I))
