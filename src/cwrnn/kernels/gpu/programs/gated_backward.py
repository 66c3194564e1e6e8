"""The backward scan of LSTM and GRU on a GPU, in Triton, and the parts of the weights' gradients.

`backward.py` has all the rest. The names are those of `forward.py` and `backward.py`. All gradients of states and
messages lie as the drive does in `gated_forward.py`: tile after tile, row after row, plane after plane, unit after
unit, sequence after sequence. A row of `g_messages` has four planes: the gradients of i, f, g, o (LSTM), or of r, z,
the reset product before r, and n (GRU). The last one of a GRU belongs to the drive alone, and only the module's own
units have it.
"""

import triton
import triton.language as tl

from .primitives import (
    MODULE,
    PART,
    align,
    load_module,
    load_planes,
    load_weights,
    module_row,
    round_operand,
    row_at,
    signal_rows,
    store_planes,
    tanh,
    wait_for_rows,
)


@triton.jit
def _load_row(g_outside, g_faster, kept, flag, ready, row, n, j, plane, offsets, mask):
    """A state's gradient from outside, that from faster modules, the row's kept planes, and how many rows are ready."""
    if (j > 0) & (row >= 0):
        ready = wait_for_rows(flag, ready, n + 1 - row)
    at = tl.maximum(row, 0).to(tl.int64) * plane
    outside = tl.load(g_outside + at + offsets, mask=mask & (row >= 0), other=0)
    faster = tl.load(g_faster + at + offsets, mask=mask & (row >= 0) & (j > 0), other=0, cache_modifier=".cg")
    # row 0 has no gates
    gates = load_planes(kept + 5 * at, plane, offsets, mask & (row > 0), 4, "")
    state = tl.load(kept + 5 * at + 4 * plane + offsets, mask=mask & (row >= 0), other=0)
    return outside, faster, gates, state, ready


@triton.jit
def _add_product(
    W, gate: tl.constexpr, da, a, weight, after, K, N, k, BT: tl.constexpr, BI: tl.constexpr, PRECISION: tl.constexpr
):
    """a + W da. If W is None, the weights are read from `weight`, and da from `after`."""
    if W is not None:
        return tl.dot(W[gate], round_operand(da, PRECISION), a, input_precision=PRECISION)
    else:
        for k0 in range(0, K, BI):
            i = k0 + tl.arange(0, BI)
            w = tl.load(weight + i[None, :] * N + k[:, None], mask=(k[:, None] < K) & (i[None, :] < K), other=0)
            part = tl.load(after + i[:, None] * BT + tl.arange(0, BT)[None, :], mask=(i < K)[:, None], other=0)
            a = tl.dot(round_operand(w, PRECISION), round_operand(part, PRECISION), a, input_precision=PRECISION)
        return a


@triton.jit
def _reverse_tick(
    W, da, dc, a, a2, gates, state, state_before, g_end, peepholes, weight, after, plane, K, N, k,
    LSTM: tl.constexpr, PEEPHOLES: tl.constexpr, BT: tl.constexpr, BI: tl.constexpr, PRECISION: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """The gradients of a row's h and c, of the four planes of its tick, and of the state before the tick by itself.

    `da` are the gradients of the next tick's planes, which also lie in memory at `after`. `dc` is the gradient of c that
    the next tick left, or for a GRU that of h. `g_end` is the gradient of the final c where this row is the last one.
    """
    if W is None:
        tl.debug_barrier()
    square = tl.cast(N, tl.int64) * N
    zero = tl.zeros_like(a)
    p0 = _add_product(W, 0, da[0], a + a2, weight, after, K, N, k, BT, BI, PRECISION)
    p1 = _add_product(W, 1, da[1], zero, weight + square, after + plane, K, N, k, BT, BI, PRECISION)
    p2 = _add_product(W, 2, da[2], zero, weight + 2 * square, after + 2 * plane, K, N, k, BT, BI, PRECISION)
    dtype = da[0].dtype
    state, state_before = state.to(tl.float32), state_before.to(tl.float32)
    if LSTM:
        p3 = _add_product(W, 3, da[3], zero, weight + 3 * square, after + 3 * plane, K, N, k, BT, BI, PRECISION)
        dh = (p0 + p1) + (p2 + p3)
        i, f, g, o = gates[0].to(tl.float32), gates[1].to(tl.float32), gates[2].to(tl.float32), gates[3].to(tl.float32)
        y = tanh(state, FAST)
        d_o = dh * y * o * (1 - o)
        dc += dh * o * (1 - y * y) + g_end
        if PEEPHOLES:
            dc += peepholes[2] * d_o
        d_i, d_f, d_g = dc * g * i * (1 - i), dc * state_before * f * (1 - f), dc * i * (1 - g * g)
        before = dc * f
        if PEEPHOLES:
            before += peepholes[0] * d_i + peepholes[1] * d_f
        return dh, dc, (d_i.to(dtype), d_f.to(dtype), d_g.to(dtype), d_o.to(dtype)), before
    else:
        dh = (p0 + p1) + (p2 + dc)
        r, z, n, v = gates[0].to(tl.float32), gates[1].to(tl.float32), gates[2].to(tl.float32), gates[3].to(tl.float32)
        d_z = dh * (state_before - n) * z * (1 - z)
        d_n = dh * (1 - z) * (1 - n * n)
        d_r = d_n * v * r * (1 - r)
        return dh, dh, (d_r.to(dtype), d_z.to(dtype), (d_n * r).to(dtype), d_n.to(dtype)), dh * z


@triton.jit
def scan_gated_module_backward(
    table, flags, weight, peephole, kept, g_outside, g_faster, g_messages, g_final, g_h0, g_peephole, lengths,
    B, N, G, j, tile, tiles,
    LSTM: tl.constexpr, BK: tl.constexpr, BT: tl.constexpr, C: tl.constexpr, BI: tl.constexpr, PRECISION: tl.constexpr,
    RESIDENT: tl.constexpr, FAST: tl.constexpr, INITIAL: tl.constexpr, FINAL: tl.constexpr, LENGTHS: tl.constexpr,
    PEEPHOLES: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Compute the recurrence of module j in reverse.

    Tick n + 1 reads row n, so the gradients of its gates go to row n of `g_messages`, behind those of the faster
    modules. FINAL: there is a gradient of the final state.
    """
    PARTS: tl.constexpr = 2 if LSTM else 1
    m = module_row(table, j)
    P, K, start, first, n = load_module(m)
    K, start = align(K, ALIGN), align(start, ALIGN)
    end = start + K
    plane = K * BT
    g_plane = end * BT
    rows = tile.to(tl.int64) * (n + 1)
    here = align((tl.load(m + MODULE.value.states) // B * tiles + rows * K) * BT, ALIGN)
    g_outside += here
    g_faster += here
    kept += 5 * here
    g_messages += align((tl.load(m + MODULE.value.g_messages) // B * tiles + rows * end) * (4 * BT) + start * BT, ALIGN)
    flag = flags + j * tiles + tile
    gathered = flags + (G + j) * tiles + tile
    k = tl.arange(0, BK)
    b = tile * BT + tl.arange(0, BT)
    inside = (k[:, None] < K) & (b[None, :] < B)
    mask = (k[:, None] < K) & (tl.arange(0, BT)[None, :] < BT)
    offsets = k[:, None] * BT + tl.arange(0, BT)[None, :]
    g_row_size = align(g_plane.to(tl.int64) * 4, ALIGN)

    weight += start.to(tl.int64) * (N + 1)
    one = (G > 0).to(weight.dtype.element_ty)
    square = tl.cast(N, tl.int64) * N
    W = None
    if RESIDENT > 0:
        W0 = load_weights(weight, one, 1, N, k, K, BK, PRECISION, False)
        W1 = load_weights(weight + square, one, 1, N, k, K, BK, PRECISION, False)
        W2 = load_weights(weight + 2 * square, one, 1, N, k, K, BK, PRECISION, RESIDENT == 2)
        if LSTM:
            W3 = load_weights(weight + 3 * square, one, 1, N, k, K, BK, PRECISION, RESIDENT == 2)
            W = (W0, W1, W2, W3)
        else:
            W = (W0, W1, W2)
    peepholes = (k, k, k)
    if LSTM and PEEPHOLES:
        peephole += start
        peepholes = (
            tl.load(peephole + k, mask=k < K, other=0).to(tl.float32)[:, None],
            tl.load(peephole + N + k, mask=k < K, other=0).to(tl.float32)[:, None],
            tl.load(peephole + 2 * N + k, mask=k < K, other=0).to(tl.float32)[:, None],
        )
        sum_i = tl.zeros((BK, BT), dtype=tl.float32)
        sum_f, sum_o = sum_i, sum_i

    dc = tl.zeros((BK, BT), dtype=tl.float32)
    g_end = dc
    last = n + b * 0
    if LSTM and FINAL:
        g_end = tl.load(g_final + N + start + b[None, :] * (PARTS * N) + k[:, None], mask=inside, other=0)
        g_end = g_end.to(tl.float32)
        if LENGTHS:
            last = row_at(tl.load(lengths + b, mask=b < B, other=0).to(tl.int32) - 1, first, P)
        else:
            dc += g_end
            g_end = tl.zeros((BK, BT), dtype=tl.float32)
    # no tick of the module reads the last row
    zero = tl.zeros((BK, BT), dtype=weight.dtype.element_ty)
    da = (zero, zero, zero, zero)
    store_planes(g_messages + n * g_row_size, g_plane, offsets, da, mask)

    # the loads for a row are issued one tick before it
    ready = j * 0
    a, a2, gates, state, ready = _load_row(g_outside, g_faster, kept, gathered, ready, n, n, j, plane, offsets, mask)
    d, d2, next_gates, next_state, ready = _load_row(
        g_outside, g_faster, kept, gathered, ready, n - 1, n, j, plane, offsets, mask
    )
    g_now = g_end
    if LSTM and FINAL and LENGTHS:
        g_now = tl.where((last == n)[None, :], g_end, 0.0)
    dh, dc_now, da, dc = _reverse_tick(W, da, dc, a, a2, gates, state, next_state, g_now, peepholes, weight,
                                       g_messages + n * g_row_size, g_plane, K, N, k,
                                       LSTM, PEEPHOLES, BT, BI, PRECISION, FAST)  # fmt: skip
    if LSTM and PEEPHOLES:
        sum_i += da[0].to(tl.float32) * next_state.to(tl.float32)
        sum_f += da[1].to(tl.float32) * next_state.to(tl.float32)
        sum_o += da[3].to(tl.float32) * state.to(tl.float32)
    store_planes(g_messages + tl.maximum(n - 1, 0) * g_row_size, g_plane, offsets, da, mask & (n > 0))
    a, a2, gates, state = d, d2, next_gates, next_state
    for done in range(1, n + 1):
        row = n - done
        d, d2, next_gates, next_state, ready = _load_row(
            g_outside, g_faster, kept, gathered, ready, row - 1, n, j, plane, offsets, mask
        )
        g_now = g_end
        if LSTM and FINAL and LENGTHS:
            g_now = tl.where((last == row)[None, :], g_end, 0.0)
        dh, dc_now, da, dc = _reverse_tick(W, da, dc, a, a2, gates, state, next_state, g_now, peepholes, weight,
                                           g_messages + row * g_row_size, g_plane, K, N, k,
                                           LSTM, PEEPHOLES, BT, BI, PRECISION, FAST)  # fmt: skip
        if LSTM and PEEPHOLES:
            sum_i += da[0].to(tl.float32) * next_state.to(tl.float32)
            sum_f += da[1].to(tl.float32) * next_state.to(tl.float32)
            sum_o += da[3].to(tl.float32) * state.to(tl.float32)
        store_planes(g_messages + tl.maximum(row - 1, 0) * g_row_size, g_plane, offsets, da, mask & (row > 0))
        if j + 1 < G:
            if (done % C == 0) & (row > 0):
                signal_rows(flag, done + 1)
        a, a2, gates, state = d, d2, next_gates, next_state
    if INITIAL:
        g_h0 += start + b[None, :] * (PARTS * N) + k[:, None]
        tl.store(g_h0, dh, mask=inside)
        if LSTM:
            tl.store(g_h0 + N, dc_now, mask=inside)
    if LSTM and PEEPHOLES:
        g_peephole += tile * 3 * N + start + k
        tl.store(g_peephole, tl.sum(tl.where(inside, sum_i, 0.0), axis=1), mask=k < K)
        tl.store(g_peephole + N, tl.sum(tl.where(inside, sum_f, 0.0), axis=1), mask=k < K)
        tl.store(g_peephole + 2 * N, tl.sum(tl.where(inside, sum_o, 0.0), axis=1), mask=k < K)
    if j + 1 < G:
        signal_rows(flag, n + 1)


@triton.jit
def _load_gradients(g_messages, line, stop, rows, n, end, u, BT: tl.constexpr):
    """The gradients of the units u in some lines (units, lines), and the row and the sequence of every line."""
    row = line // BT % rows
    tile = line // BT // rows
    at = (tile.to(tl.int64) * (n + 1) + row) * (4 * BT * end) + line % BT
    # sequences beyond the last one have zeros
    mask = (line < stop)[None, :] & (u[:, None] < end)
    return tl.load(g_messages + at[None, :] + (u * BT)[:, None], mask=mask, other=0), row, tile * BT + line % BT


@triton.jit(do_not_specialize=["B", "tiles", "states_s", "g_messages_s", "x_s"])
def compute_gated_weight_parts(
    table, parts, g_messages, states, x, lengths, products, sums,
    B, I, tiles, x_s, x_t, x_b, states_s, g_messages_s,
    BM: tl.constexpr, BN: tl.constexpr, BL: tl.constexpr, BT: tl.constexpr, LENGTHS: tl.constexpr,
    PRECISION: tl.constexpr, GATES: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Compute the parts of the weights' gradients, each a block summed over some lines of one module.

    One program computes one row of the table of parts (`tables.PartRow`) for one plane of the gradients. Lines are
    counted tile after tile. The sums of the columns are for the bias.
    """
    s = tl.program_id(1).to(tl.int64)
    plane = tl.program_id(2)
    part = parts + tl.program_id(0) * len(PART.value)
    of_input = tl.load(part + PART.value.of_input)
    m = module_row(table, tl.load(part + PART.value.module))
    P, K, start, first, n = load_module(m)
    K, start = align(K, ALIGN), align(start, ALIGN)
    end = start + K
    u = align(tl.load(part + PART.value.receiver), ALIGN) + tl.arange(0, BM)
    v = align(tl.load(part + PART.value.sender), ALIGN) + tl.arange(0, BN)
    begin = align(tl.load(part + PART.value.first_line), BL)
    stop = align(tl.load(part + PART.value.end_line), BT)
    module = align(tl.load(m + MODULE.value.g_messages) // B * tiles * (4 * BT), ALIGN)
    g_messages += align(s * g_messages_s, ALIGN) + module + plane * (end * BT)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    if of_input == 0:
        states += align(s * states_s + tl.load(m + MODULE.value.states), ALIGN)
        if (GATES == 3) & (plane == 3):
            # no weight of a message has the gradient of the drive alone
            stop = begin
        for l in range(begin, stop, BL):
            line = l + tl.arange(0, BL)
            d, row, b = _load_gradients(g_messages, line, stop, n + 1, n, end, u, BT)
            sent = states + ((row.to(tl.int64) * B + b) * K)[:, None] + v[None, :]
            h = tl.load(sent, mask=((line < stop) & (b < B))[:, None] & (v[None, :] < K), other=0)
            acc = tl.dot(round_operand(d, PRECISION), round_operand(h, PRECISION), acc, input_precision=PRECISION)
    else:
        for l in range(begin, stop, BL):
            line = l + tl.arange(0, BL)
            d, row, b = _load_gradients(g_messages, line, stop, n, n, end, u, BT)
            total += tl.sum(d.to(tl.float32), axis=1)
            t = first + row * P
            inside = (line < stop) & (b < B)
            if LENGTHS:
                inside = inside & (t < tl.load(lengths + s * B + b, mask=inside, other=0))
            read = x + s * x_s + (t.to(tl.int64) * x_t + b.to(tl.int64) * x_b)[:, None] + v[None, :]
            xs = tl.load(read, mask=inside[:, None] & (v[None, :] < I), other=0)
            acc = tl.dot(round_operand(d, PRECISION), round_operand(xs, PRECISION), acc, input_precision=PRECISION)
    number = (s * tl.num_programs(2) + plane) * tl.num_programs(0) + tl.program_id(0)
    tl.store(products + number * BM * BN + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], acc)
    tl.store(sums + number * BM + tl.arange(0, BM), total)
