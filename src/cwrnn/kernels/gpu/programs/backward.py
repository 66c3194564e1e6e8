"""The backward programs of the GPU kernel, in Triton. `launch.py` starts them and describes the whole computation.

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
    PART,
    align,
    load_module,
    module_row,
    multiply_add,
    round_operand,
    row_at,
    signal_rows,
    split_rows,
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
    they have most to add up. PARTS: the final state has h and c, of which h counts here. TILE: the sequences of a tile
    of a gated cell, else 0.
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
    if TILE > 0:
        module = tl.load(m + MODULE.value.states) // B * (tiles * TILE) + s * g_outside_s
        rows = (b // TILE).to(tl.int64) * (n + 1) + row
        here = module + (rows * (K * TILE) + b % TILE)[:, None] + (u * TILE)[None, :]
        inside = (b < tiles * TILE)[:, None] & (u[None, :] < K)
    tl.store(g_outside + here, acc, mask=inside)


@triton.jit
def _load_row(g_outside, g_faster, states, flag, ready, row, n, j, row_size, here, inside):
    """A state's gradient from outside, its gradient from faster modules, the state, and how many rows are ready."""
    if (j > 0) & (row >= 0):
        ready = wait_for_rows(flag, ready, n + 1 - row)
    at = tl.maximum(row, 0) * row_size + here
    keep = inside & (row >= 0)
    outside = tl.load(g_outside + at, mask=keep, other=0)
    faster = tl.load(g_faster + at, mask=keep & (j > 0), other=0, cache_modifier=".cg")
    return outside, faster, tl.load(states + at, mask=keep, other=0), ready


@triton.jit
def _reverse_tick(
    W, W2, da, a, h, weight, after, K, end, N, B, k, b,
    BI: tl.constexpr, RECTIFY: tl.constexpr, PRECISION: tl.constexpr, RESIDENT: tl.constexpr,
):  # fmt: skip
    """The gradient of a state, and the gradient of the sum that it is the tanh or relu of.

    `da` is the gradient of the next tick's sum, which also lies in memory at `after`.
    """
    if RESIDENT > 0:
        a = multiply_add(W, W2, da, a, PRECISION)
    else:
        tl.debug_barrier()
        for k0 in range(0, K, BI):
            i = k0 + tl.arange(0, BI)
            w = tl.load(weight + i[None, :] * N + k[:, None], mask=(k[:, None] < K) & (i[None, :] < K), other=0)
            part = tl.load(after + b[None, :] * end + i[:, None], mask=(i[:, None] < K) & (b[None, :] < B), other=0)
            a = tl.dot(round_operand(w, PRECISION), round_operand(part, PRECISION), a, input_precision=PRECISION)
    h = h.to(tl.float32)
    if RECTIFY:
        d = tl.where(h <= 0, 0.0, a)
    else:
        d = a * (1 - h) * (1 + h)
    return a, d.to(da.dtype)


@triton.jit
def _scan_module_backward(
    table, flags, weight, states, g_outside, g_faster, g_messages, g_h0, B, N, G, j, tile, tiles,
    BK: tl.constexpr, BT: tl.constexpr, C: tl.constexpr, BI: tl.constexpr, RECTIFY: tl.constexpr,
    PRECISION: tl.constexpr, RESIDENT: tl.constexpr, INITIAL: tl.constexpr,
):  # fmt: skip
    """Compute the recurrence of module j in reverse.

    Tick n + 1 reads row n, so the gradient of its sum goes to row n of `g_messages`, behind the gradients of the faster
    modules.
    """
    m = module_row(table, j)
    _, K, start, _, n = load_module(m)
    end = start + K
    g_messages += tl.load(m + MODULE.value.g_messages) + start
    states += tl.load(m + MODULE.value.states)
    g_outside += tl.load(m + MODULE.value.states)
    g_faster += tl.load(m + MODULE.value.states)
    flag = flags + j * tiles + tile
    gathered = flags + (G + j) * tiles + tile
    k = tl.arange(0, BK)
    b = tile * BT + tl.arange(0, BT)
    inside = (k[:, None] < K) & (b[None, :] < B)
    weight += start.to(tl.int64) * (N + 1)
    part = tl.arange(0, BK // 2 if RESIDENT == 2 else BK)
    W = tl.load(
        weight + part[None, :] * N + k[:, None], mask=(k[:, None] < K) & (part[None, :] < K) & (RESIDENT > 0), other=0
    )
    W = round_operand(W, PRECISION) * (G > 0).to(W.dtype)
    here = b[None, :] * K + k[:, None]
    there = b[None, :] * end + k[:, None]
    row_size = B.to(tl.int64) * K
    g_row_size = B.to(tl.int64) * end
    # no tick of the module reads the last row
    da = tl.zeros((BK, BT), dtype=weight.dtype.element_ty)
    tl.store(g_messages + n * g_row_size + there, da, mask=inside)

    # the loads for a row are issued two ticks before it: a, c and d are the gradients of the next three rows from outside,
    # a2, c2 and d2 those from faster modules, h, hc and hd the states
    ready = j * 0
    a, a2, h, ready = _load_row(g_outside, g_faster, states, gathered, ready, n, n, j, row_size, here, inside)
    c, c2, hc, ready = _load_row(g_outside, g_faster, states, gathered, ready, n - 1, n, j, row_size, here, inside)
    d, d2, hd, ready = _load_row(g_outside, g_faster, states, gathered, ready, n - 2, n, j, row_size, here, inside)
    a += a2
    W1, W2 = W, None
    if RESIDENT == 2:
        a = tl.dot(W, split_rows(da)[0], a, input_precision=PRECISION)
        part += BK // 2
        W1, W2 = (
            None,
            tl.load(weight + part[None, :] * N + k[:, None], mask=(k[:, None] < K) & (part[None, :] < K), other=0),
        )
    dh, da = _reverse_tick(W1, W2, da, a, h, weight, g_messages + n * g_row_size, K, end, N, B, k, b,
                           BI, RECTIFY, PRECISION, RESIDENT)  # fmt: skip
    tl.store(g_messages + tl.maximum(n - 1, 0) * g_row_size + there, da, mask=inside & (n > 0))
    a, a2, h, c, c2, hc = c, c2, hc, d, d2, hd
    for done in range(1, n + 1):
        row = n - done
        d, d2, hd, ready = _load_row(
            g_outside, g_faster, states, gathered, ready, row - 2, n, j, row_size, here, inside
        )
        dh, da = _reverse_tick(W, W2, da, a + a2, h, weight, g_messages + row * g_row_size, K, end, N, B, k, b,
                               BI, RECTIFY, PRECISION, RESIDENT)  # fmt: skip
        tl.store(g_messages + tl.maximum(row - 1, 0) * g_row_size + there, da, mask=inside & (row > 0))
        if j + 1 < G:
            if (done % C == 0) & (row > 0):
                signal_rows(flag, done + 1)
        a, a2, h, c, c2, hc = c, c2, hc, d, d2, hd
    if INITIAL:
        tl.store(g_h0 + start + b[None, :] * N + k[:, None], dh, mask=inside)
    if j + 1 < G:
        signal_rows(flag, n + 1)


@triton.jit
def _add_gradients(
    acc, addends, row_size, low, high, most, to, weight, u, read, inside, k, K, N,
    BU: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the sums of the rows from `low` to `high`, at most `most` of them; add their product with the weights."""
    sums = tl.zeros((acc.shape[0], BU), dtype=tl.float32)
    for w in range(0, most):
        keep = (inside & (low + w < high))[:, None] & read[None, :]
        sums += tl.load(addends + w * row_size, mask=keep, other=0, cache_modifier=".cg").to(tl.float32)
    gradient = sums.to(weight.dtype.element_ty)
    tl.store(to, gradient, mask=inside[:, None] & read[None, :])
    w_block = tl.load(weight + u[:, None] * N + k[None, :], mask=read[:, None] & (k[None, :] < K), other=0)
    return tl.dot(round_operand(gradient, PRECISION), round_operand(w_block, PRECISION), acc, input_precision=PRECISION)


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
    if GATES == 1:
        g_faster += tl.load(m + MODULE.value.states)
        own = g_messages + tl.load(m + MODULE.value.g_messages)
    else:
        rows = tile.to(tl.int64) * (n + 1)
        g_faster += align((tl.load(m + MODULE.value.states) // B * tiles + rows * K) * BT, ALIGN)
        own = g_messages + align((tl.load(m + MODULE.value.g_messages) // B * tiles + rows * end) * (4 * BT), ALIGN)
    k = tl.arange(0, BK)
    c = tl.arange(0, C * BT)
    b = tile * BT + c % BT
    if not NESTED:
        for i in range(0, j):
            faster = flags + i * tiles + tile
            wait_for_rows(faster, i * 0, tl.load(module_row(table, i) + MODULE.value.ticks).to(tl.int32) + 1)
    ready = j * 0
    for c0 in range(0, n + 1, C):
        # rows n - c0, down to `lowest`
        lowest = tl.maximum(n - c0 - C + 1, 0)
        begin = (lowest + j * 0).to(tl.int64) * B
        row = n - c0 - c // BT
        inside = (row >= lowest) & (b < B)
        line = (row - lowest) * B + b
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
            if GATES == 1:
                row_size = B.to(tl.int64) * endq
                theirs = g_messages + tl.load(q + MODULE.value.g_messages) + least.to(tl.int64) * B * endq
                lineq = ((low - least).to(tl.int64) * B + b) * endq
                for u0 in range(u_begin, endq, BU):
                    u = u0 + tl.arange(0, BU)
                    addends = theirs + lineq[:, None] + u[None, :]
                    to = own + begin * end + line[:, None] * end + u[None, :]
                    acc = _add_gradients(acc, addends, row_size, low, high, most, to, weight + start, u, u < endq, inside,
                                         k, K, N, BU, PRECISION)  # fmt: skip
            else:
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
        if GATES == 1:
            to = g_faster + begin * K + line[:, None] * K + k[None, :]
        else:
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
        if GATES == 1:
            _scan_module_backward(table, flags, weight, states + s * states_s, g_outside + s * g_outside_s, g_faster,
                                  g_messages, g_h0 + s * B * N, B, N, G, role // 2, tile, tiles,
                                  BK, BT, C, BI, CELL == "relu", PRECISION, RESIDENT, INITIAL)  # fmt: skip
        else:
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


@triton.jit
def _multiply_heard(
    table, g_messages, states, lengths, begin, stop, j, u, v, T, B,
    BM: tl.constexpr, BN: tl.constexpr, BL: tl.constexpr, LENGTHS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The product of some lines of module j, for each receiving module over the lines that it hears.

    The gradient of a message that is not heard is 0, but 0 times a state that is infinite or NaN would be NaN.
    """
    P, K, start, first, _ = load_module(module_row(table, j))
    end = start + K
    line = tl.arange(0, BL)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(0, j + 1):
        Pq, Kq, startq, firstq, _ = load_module(module_row(table, i))
        receives = (u >= startq) & (u < startq + Kq)
        if tl.max(receives.to(tl.int32), axis=0) > 0:
            heard_acc = tl.zeros((BM, BN), dtype=tl.float32)
            for l in range(begin, stop, BL):
                at = (l + begin * 0).to(tl.int64)
                row = (l + line) // B
                inside = l + line < stop
                last = T - 1 + line * 0
                if LENGTHS:
                    last = tl.load(lengths + (l + line) % B, mask=inside, other=0).to(tl.int32) - 1
                # a row is heard from the step after its tick on, up to the next tick
                after = tl.where(row > 0, first + (row - 1) * P, -1)
                until = tl.minimum(first + row * P, last)
                heard = inside & (row_at(until, firstq, Pq) > row_at(after, firstq, Pq))
                d = tl.load(
                    g_messages + at * end + line[:, None] * end + u[None, :],
                    mask=heard[:, None] & (u[None, :] < end),
                    other=0,
                )
                h = tl.load(
                    states + at * K + line[:, None] * K + v[None, :], mask=heard[:, None] & (v[None, :] < K), other=0
                )
                heard_acc = tl.dot(
                    tl.trans(round_operand(d, PRECISION)),
                    round_operand(h, PRECISION),
                    heard_acc,
                    input_precision=PRECISION,
                )
            acc = tl.where(receives[:, None], heard_acc, acc)
    return acc


@triton.jit(do_not_specialize=["T", "B", "states_s", "g_messages_s", "x_s"])
def compute_weight_parts(
    table, parts, g_messages, states, x, lengths, products, sums,
    T, B, I, x_s, x_t, x_b, states_s, g_messages_s,
    BM: tl.constexpr, BN: tl.constexpr, BL: tl.constexpr, LENGTHS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute the parts of the weights' gradients, each a block summed over some lines of one module.

    One program computes one row of the table of parts (`tables.PartRow`). The sums of the columns are for the bias.
    """
    s = tl.program_id(1).to(tl.int64)
    part = parts + tl.program_id(0) * len(PART.value)
    of_input = tl.load(part + PART.value.of_input)
    j = tl.load(part + PART.value.module)
    m = module_row(table, j)
    P = tl.load(m + MODULE.value.period)
    K = tl.load(m + MODULE.value.size).to(tl.int32)
    start = tl.load(m + MODULE.value.first_unit).to(tl.int32)
    first = tl.load(m + MODULE.value.first_tick)
    end = start + K
    u = tl.load(part + PART.value.receiver) + tl.arange(0, BM)
    v = tl.load(part + PART.value.sender) + tl.arange(0, BN)
    begin = tl.load(part + PART.value.first_line)
    stop = tl.load(part + PART.value.end_line)
    g_messages += s * g_messages_s + tl.load(m + MODULE.value.g_messages)
    line = tl.arange(0, BL)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    if of_input == 0:
        states += s * states_s + tl.load(m + MODULE.value.states)
        for l in range(begin, stop, BL):
            at = (l + begin * 0).to(tl.int64)
            inside = l + line < stop
            d = tl.load(
                g_messages + at * end + line[:, None] * end + u[None, :],
                mask=inside[:, None] & (u[None, :] < end),
                other=0,
            )
            h = tl.load(
                states + at * K + line[:, None] * K + v[None, :], mask=inside[:, None] & (v[None, :] < K), other=0
            )
            acc = tl.dot(
                tl.trans(round_operand(d, PRECISION)), round_operand(h, PRECISION), acc, input_precision=PRECISION
            )
        if tl.max(tl.max((acc != acc).to(tl.int32), axis=1), axis=0) > 0:
            acc = _multiply_heard(
                table, g_messages, states, lengths + s * B, begin, stop, j, u, v, T, B, BM, BN, BL, LENGTHS, PRECISION
            )
    else:
        for l in range(begin, stop, BL):
            at = (l + begin * 0).to(tl.int64)
            inside = l + line < stop
            d = tl.load(
                g_messages + at * end + line[:, None] * end + u[None, :],
                mask=inside[:, None] & (u[None, :] < end),
                other=0,
            )
            total += tl.sum(d.to(tl.float32), axis=0)
            b = (l + line) % B
            t = first + (l + line) // B * P
            if LENGTHS:
                inside = inside & (t < tl.load(lengths + s * B + b, mask=inside, other=0))
            rows = x + s * x_s + t * x_t + b.to(tl.int64) * x_b
            xs = tl.load(rows[:, None] + v[None, :], mask=inside[:, None] & (v[None, :] < I), other=0)
            acc = tl.dot(
                tl.trans(round_operand(d, PRECISION)), round_operand(xs, PRECISION), acc, input_precision=PRECISION
            )
    number = s * tl.num_programs(0) + tl.program_id(0)
    tl.store(products + number * BM * BN + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], acc)
    tl.store(sums + number * BM + tl.arange(0, BM), total)


@triton.jit(do_not_specialize=["count"])
def add_weight_parts(
    table, blocks, products, sums, g_weight_ih, g_weight_hh, g_bias, N, I, count,
    BM: tl.constexpr, BN: tl.constexpr, IH: tl.constexpr, HH: tl.constexpr, BIAS: tl.constexpr, GATES: tl.constexpr,
):  # fmt: skip
    """Add up the parts of the weights' gradients. One program computes one row of the table of blocks (`BlockRow`).

    For gated cells, one program does this for one plane of the gradients.
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
    plane = 0
    if GATES > 1:
        plane = tl.program_id(2)
    for part in range(tl.load(block + BLOCK.value.first_part), tl.load(block + BLOCK.value.end_part)):
        number = s * count + part
        if GATES > 1:
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
            planes: tl.constexpr = 1 if GATES == 1 else 4
            first = tl.load(block + BLOCK.value.sender) == 0
            tl.store(g_bias + (s * planes + plane) * N + u, total, mask=inside & first)


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
            if GATES == 1:
                rows = (
                    g_messages
                    + s * g_messages_s
                    + tl.load(m + MODULE.value.g_messages)
                    + ((t - first) // P).to(tl.int64) * B * end
                    + start
                )
                for k0 in range(0, K, BI):
                    k = k0 + tl.arange(0, BI)
                    d = tl.load(
                        rows + b[:, None] * end + k[None, :], mask=readable[:, None] & (k[None, :] < K), other=0
                    )
                    acc = _multiply_gradient(acc, d, weight, start, k, i, K, I, PRECISION)
            else:
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
    if GATES > 1:
        acc = tl.where(readable[:, None], acc, 0.0)
    to = g_input + ((s * (tl.num_programs(0) // blocks) + t) * B + b[:, None]) * I + i[None, :]
    tl.store(to, acc, mask=(b[:, None] < B) & (i[None, :] < I))
