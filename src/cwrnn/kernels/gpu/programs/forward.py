"""The forward programs of the GPU kernel, in Triton. `launch.py` starts them and describes the whole computation.

s is a replica, j a module, m its row in the table of modules (`tables.ModuleRow`), P its period, K its size, `start`
its first unit, `first` its first tick and n the number of its ticks. Row 0 of a module is its initial state, row n its
state after tick n. Names that end in 2 belong to the next slower module. Names that end in _s, _t or _b are strides of
replicas, time steps and sequences.

Constants: BK is the size of the largest module, rounded up to a power of two; BT the sequences of a tile; C the rows
after which a scan signals; BU the units and BI the inner indices of one product. RESIDENT says where the weights stay: 1
in registers, 2 half of them in shared memory, 0 nowhere, so that they are read again at every tick. RECTIFY means relu
instead of tanh, and FAST the approximate tanh.

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
    multiply_add,
    round_operand,
    row_at,
    signal_rows,
    split_rows,
    take_turn,
    tanh,
    wait_for_rows,
)


@triton.jit(do_not_specialize=["B", "tiles", "bias_s", "states_s"])
def compute_drive(
    table, x, weight, bias, lengths, drive,
    B, I, N, tiles, x_s, x_t, x_b, weight_s, bias_s, states_s,
    BM: tl.constexpr, BN: tl.constexpr, BI: tl.constexpr, BIAS: tl.constexpr, LENGTHS: tl.constexpr, PRECISION: tl.constexpr,
    GATES: tl.constexpr, BT: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Compute W_ih x + b at every tick of every module, laid out as the states are, or as a gated cell's scan reads it.

    One program computes BM lines (a tick of one sequence) and BN units of one gate of one module.
    """
    s = tl.program_id(2).to(tl.int64)
    block = tl.program_id(0)
    unit_block = tl.program_id(1)
    gate = unit_block * 0
    if GATES > 1:
        gate = unit_block // (tl.num_programs(1) // GATES)
        unit_block = unit_block % (tl.num_programs(1) // GATES)
        bias += gate * N
    m = table
    n = tl.load(m + MODULE.value.ticks).to(tl.int32)
    lines = B if GATES == 1 else tiles * BT
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
    if GATES == 1:
        b = line % B
        t = first + line // B * P
        inside = line < n * B
        readable = inside
    else:
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
    if GATES == 1:
        to = drive + s * states_s + tl.load(m + MODULE.value.states) + (line + B).to(tl.int64)[:, None] * K + u[None, :]
    else:
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
def _load_tick(
    table, drive, messages, messages2, flag2, ready, t, mask, more, B, G, j, start, first2, P2, row_size2,
    k, b, here, there, NESTED: tl.constexpr,
):  # fmt: skip
    """The drive of the tick at t + 1, the messages of the slower modules, and how many rows of those are ready.

    The caller adds them up later: the sum would wait for both loads.
    """
    own = tl.load(drive + here, mask=mask, other=0)
    incoming = tl.zeros_like(own)
    if j + 1 < G:
        if NESTED:
            at = row_at(t, first2, P2)
            if more:
                ready = wait_for_rows(flag2, ready, at + 1)
            incoming = tl.load(messages2 + at * row_size2 + there, mask=mask, other=0, cache_modifier=".cg")
        else:
            for i in range(j + 1, G):
                m = module_row(table, i)
                period, _, width, begun, _ = load_module(m)
                at = row_at(t, begun, period)
                message = messages + tl.load(m + MODULE.value.messages) + start + at * (B.to(tl.int64) * width)
                incoming += tl.load(message + b[None, :] * width + k[:, None], mask=mask, other=0, cache_modifier=".cg")
    return own, incoming, ready


@triton.jit
def _compute_tick(
    W, W2, h, a, weight, before, K, N, B, k, b,
    BI: tl.constexpr, RECTIFY: tl.constexpr, PRECISION: tl.constexpr, RESIDENT: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """f(a + W h). If the weights are not resident, they are read again from `weight`, and h from `before`."""
    if RESIDENT > 0:
        a = multiply_add(W, W2, h, a, PRECISION)
    else:
        tl.debug_barrier()
        for k0 in range(0, K, BI):
            i = k0 + tl.arange(0, BI)
            w = tl.load(weight + k[:, None] * N + i[None, :], mask=(k[:, None] < K) & (i[None, :] < K), other=0)
            part = tl.load(before + b[None, :] * K + i[:, None], mask=(i[:, None] < K) & (b[None, :] < B), other=0)
            a = tl.dot(round_operand(w, PRECISION), round_operand(part, PRECISION), a, input_precision=PRECISION)
    if RECTIFY:
        a = tl.where(a < 0, 0.0, a)
    else:
        a = tanh(a, FAST)
    return a.to(h.dtype)


@triton.jit
def _scan_module(
    table, flags, weight, h0, drive, messages, states, final, lengths, B, N, G, j, tile, tiles, h0_b,
    BK: tl.constexpr, BT: tl.constexpr, C: tl.constexpr, BI: tl.constexpr, NESTED: tl.constexpr, RECTIFY: tl.constexpr,
    LENGTHS: tl.constexpr, PRECISION: tl.constexpr, RESIDENT: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Compute the recurrence of module j for BT sequences, and its final states."""
    m = module_row(table, j)
    P, K, start, first, n = load_module(m)
    states += tl.load(m + MODULE.value.states)
    drive += tl.load(m + MODULE.value.states)
    m2 = m + tl.where(j + 1 < G, len(MODULE.value), 0)
    P2, _, start2, first2, _ = load_module(m2)
    messages2 = messages + tl.load(m2 + MODULE.value.messages) + start
    flag = flags + j * tiles + tile
    flag2 = flags + (G + (j + 1) * G + j) * tiles + tile

    k = tl.arange(0, BK)
    b = tile * BT + tl.arange(0, BT)
    inside = (k[:, None] < K) & (b[None, :] < B)
    weight += start.to(tl.int64) * (N + 1)
    h = tl.load(h0 + start + b.to(tl.int64)[None, :] * h0_b + k[:, None], mask=inside, other=0)
    part = tl.arange(0, BK // 2 if RESIDENT == 2 else BK)
    W = tl.load(
        weight + k[:, None] * N + part[None, :], mask=(k[:, None] < K) & (part[None, :] < K) & (RESIDENT > 0), other=0
    )
    # times one: a product stays in registers, but the compiler would keep a value that is merely loaded in shared
    # memory and read it again at every tick
    W = round_operand(W, PRECISION) * (G > 0).to(W.dtype)
    here = b[None, :] * K + k[:, None]
    there = b[None, :] * start2 + k[:, None]
    row_size = B.to(tl.int64) * K
    row_size2 = B.to(tl.int64) * start2
    tl.store(states + here, h, mask=inside)
    if j > 0:
        signal_rows(flag, 1)
    if (not NESTED) and (j + 1 < G):
        for i in range(j + 1, G):
            sender = flags + (G + i * G + j) * tiles + tile
            wait_for_rows(sender, i * 0, tl.load(module_row(table, i) + MODULE.value.ticks).to(tl.int32) + 1)

    # the loads for a tick are issued two ticks before it: a, c and d are the drives of the next three ticks, a2, c2 and
    # d2 the messages that they receive
    ready = j * 0
    a, a2, ready = _load_tick(table, drive + row_size, messages, messages2, flag2, ready, first - 1, inside & (n > 0), n > 0,
                              B, G, j, start, first2, P2, row_size2, k, b, here, there, NESTED)  # fmt: skip
    c, c2, ready = _load_tick(table, drive + 2 * row_size, messages, messages2, flag2, ready, first + P - 1, inside & (n > 1), n > 1,
                              B, G, j, start, first2, P2, row_size2, k, b, here, there, NESTED)  # fmt: skip
    d, d2, ready = _load_tick(table, drive + 3 * row_size, messages, messages2, flag2, ready, first + 2 * P - 1, inside & (n > 2), n > 2,
                              B, G, j, start, first2, P2, row_size2, k, b, here, there, NESTED)  # fmt: skip
    # the first tick is computed before the loop: because W is used in two places, it stays in registers
    a += a2
    W1, W2 = W, None
    if RESIDENT == 2:
        # the second half stays in shared memory; W is used first, so that only one half is moved through it at a time
        a = tl.dot(W, split_rows(round_operand(h, PRECISION))[0], a, input_precision=PRECISION)
        part += BK // 2
        W1, W2 = (
            None,
            tl.load(weight + k[:, None] * N + part[None, :], mask=(k[:, None] < K) & (part[None, :] < K), other=0),
        )
    h = _compute_tick(W1, W2, h, a, weight, states, K, N, B, k, b, BI, RECTIFY, PRECISION, RESIDENT, FAST)
    tl.store(states + row_size + here, h, mask=inside & (n > 0))
    if (j > 0) & (n == 1):
        signal_rows(flag, 2)
    a, a2, c, c2 = c, c2, d, d2
    for row in range(2, n + 1):
        d, d2, ready = _load_tick(table, drive + (row + 2) * row_size, messages, messages2, flag2, ready, first + (row + 1) * P - 1,
                                  inside & (row + 1 < n), row + 1 < n,
                                  B, G, j, start, first2, P2, row_size2, k, b, here, there, NESTED)  # fmt: skip
        before = states + (row - 1) * row_size
        h = _compute_tick(W, W2, h, a + a2, weight, before, K, N, B, k, b, BI, RECTIFY, PRECISION, RESIDENT, FAST)
        tl.store(states + row * row_size + here, h, mask=inside)
        if j > 0:
            if ((row + 1) % C == 0) | (row == n):
                signal_rows(flag, row + 1)
        a, a2, c, c2 = c, c2, d, d2

    tl.debug_barrier()
    last = n + b * 0
    if LENGTHS:
        last = row_at(tl.load(lengths + b, mask=b < B, other=0).to(tl.int32) - 1, first, P)
    h = tl.load(states + last.to(tl.int64)[None, :] * row_size + here, mask=inside, other=0)
    tl.store(final + start + b[None, :] * N + k[:, None], h, mask=inside)


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

    With nested periods they include the messages that the slower modules send to the same units. Those of an Elman cell
    are laid out as the states are, those of a gated cell as its scan reads them.
    """
    m = module_row(table, j)
    P, K, start, first, n = load_module(m)
    slower = j + 1 < G
    m2 = m + tl.where(slower, len(MODULE.value), 0)
    P2, _, start2, first2, n2 = load_module(m2)
    K, start, start2 = align(K, ALIGN), align(start, ALIGN), align(start2, ALIGN)
    states += align(tl.load(m + MODULE.value.states), ALIGN)
    own, messages2 = messages + tl.load(m + MODULE.value.messages), messages + tl.load(m2 + MODULE.value.messages)
    if GATES > 1:
        # rows of one unit and one sequence that the modules before have
        before, before2 = tl.load(m + MODULE.value.messages) // B, tl.load(m2 + MODULE.value.messages) // B
        own = messages + (before * tiles + tile.to(tl.int64) * (n + 1) * start) * (BT * GATES)
        messages2 = messages + (before2 * tiles + tile.to(tl.int64) * (n2 + 1) * start2) * (BT * GATES)
    c = tl.arange(0, C * BT)
    b = tile * BT + c % BT
    ready = j * 0
    # the first rows of a gated cell are row 0 alone, which is there from the start
    for c0 in range(0 if GATES == 1 else 1 - C, n + 1, C):
        c1 = tl.minimum(c0 + C, n + 1)
        ready = wait_for_rows(flags + j * tiles + tile, ready, c1)
        row = c0 + c // BT
        inside = (row < c1) & (b < B)
        if GATES > 1:
            inside = inside & (row >= 0)
        line = (row - c0) * B + b
        begin = (c0 + j * 0).to(tl.int64) * B
        # the rows of the next slower module that hold when these rows begin
        at = tl.where(row > 0, row_at(first + (row - 1) * P, first2, P2), 0)
        low = tl.where(c0 > 0, row_at(first + (c0 - 1) * P, first2, P2), 0)
        high = tl.where(c1 > 1, row_at(first + (c1 - 2) * P, first2, P2), 0)
        line2 = ((at - low) * B + b) * start2
        lane = c % BT
        if GATES > 1 and BI == BK:
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
            if GATES == 1:
                while u0 < end:
                    u = u0 + tl.arange(0, BU)
                    keep = inside[:, None] & (u[None, :] < end)
                    acc = tl.zeros((C * BT, BU), dtype=tl.float32)
                    if NESTED and slower:
                        incoming = messages2 + low.to(tl.int64) * B * start2 + line2[:, None] + u[None, :]
                        acc = tl.load(incoming, mask=keep, other=0, cache_modifier=".cg")
                    acc = _multiply_states(
                        acc, weight + start, states + begin * K, u, line, K, N, inside, u < end, BK, BI, PRECISION
                    )
                    tl.store(own + begin * start + line[:, None] * start + u[None, :], acc, mask=keep)
                    u0 += BU
            else:
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
        if GATES == 1:
            _scan_module(table, flags, weight, h0 + s * h0_s, drive + s * states_s, messages, states,
                         final + s * B * N, lengths + s * B, B, N, G, j, tile, tiles, h0_b,
                         BK, BT, C, BI, NESTED, CELL == "relu", LENGTHS, PRECISION, RESIDENT, FAST)  # fmt: skip
        else:
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
