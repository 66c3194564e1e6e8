"""The forward scan of LSTM and GRU on a GPU, in Triton. `forward.py` has all the rest.

The names are those of `forward.py`. Drive, messages and kept gates lie in the order in which the scan reads them: tile after tile, in a tile row after row, in a row gate after gate (a *plane*), in a plane unit after unit, in a
unit the BT sequences of the tile. So a thread loads the numbers of several sequences at once, in the layout in which
the product leaves its results. The gates are i, f, g, o (LSTM) or r, z, n (GRU); a GRU's messages to n are those inside
the reset product.

`kept` has five planes: i, f, g, o, c of an LSTM; r, z, n, the reset product before r, and h of a GRU. Row 0 has the last
one alone.
"""

import triton
import triton.language as tl

from .primitives import (
    MODULE,
    align,
    load_module,
    load_planes,
    load_weights,
    module_row,
    round_operand,
    row_at,
    sigmoid,
    signal_rows,
    store_planes,
    tanh,
    wait_for_rows,
)


@triton.jit
def _load_tick(
    table, drive, messages, messages2, flag2, ready, t, mask, more, G, j, start, first2, P2, row_size2, plane, plane2,
    tile, tiles, per_sequence, offsets,
    GATES: tl.constexpr, BT: tl.constexpr, NESTED: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """The drive of the tick at t + 1, the messages of the slower modules, and how many rows of those are ready."""
    own = load_planes(drive, plane, offsets, mask, GATES, "")
    heard = mask & (j + 1 < G)
    if NESTED:
        at = row_at(t, first2, P2)
        if more & (j + 1 < G):
            ready = wait_for_rows(flag2, ready, at + 1)
        incoming = load_planes(messages2 + at * row_size2, plane2, offsets, heard, GATES, ".cg")
    else:
        incoming = load_planes(drive, plane, offsets, mask & (j < 0), GATES, "")
        for i in range(j + 1, G):
            m = module_row(table, i)
            period, _, width, begun, n = load_module(m)
            width = align(width, ALIGN)
            row = tile.to(tl.int64) * (n + 1) + row_at(t, begun, period)
            first_row = messages + tl.load(m + MODULE.value.messages) // per_sequence * (tiles * BT * GATES)
            message = first_row + row * (GATES * BT * width) + start * BT
            more_incoming = load_planes(message, width * BT, offsets, mask, GATES, ".cg")
            if GATES == 3:
                incoming = (
                    incoming[0] + more_incoming[0],
                    incoming[1] + more_incoming[1],
                    incoming[2] + more_incoming[2],
                )
            else:
                incoming = (
                    incoming[0] + more_incoming[0],
                    incoming[1] + more_incoming[1],
                    incoming[2] + more_incoming[2],
                    incoming[3] + more_incoming[3],
                )
    return own, incoming, ready


@triton.jit
def _add_product(W, gate: tl.constexpr, h, a, weight, before, K, N, B, k, b, BI: tl.constexpr, PRECISION: tl.constexpr):
    """a + W h. If W is None, the weights are read from `weight`, and h from `before`."""
    if W is not None:
        return tl.dot(W[gate], h, a, input_precision=PRECISION)
    else:
        for k0 in range(0, K, BI):
            i = k0 + tl.arange(0, BI)
            w = tl.load(weight + k[:, None] * N + i[None, :], mask=(k[:, None] < K) & (i[None, :] < K), other=0)
            part = tl.load(before + b[None, :] * K + i[:, None], mask=(i[:, None] < K) & (b[None, :] < B), other=0)
            a = tl.dot(round_operand(w, PRECISION), round_operand(part, PRECISION), a, input_precision=PRECISION)
        return a


@triton.jit
def _compute_tick(
    W, h, c, own, incoming, peepholes, weight, before, K, N, B, k, b,
    LSTM: tl.constexpr, PEEPHOLES: tl.constexpr, BI: tl.constexpr, PRECISION: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """The next h, in the dtype of `h`; the next c, or h in float32 for a GRU; and the planes that backward needs.

    `peepholes` are the three of an LSTM. Those of a GRU are its biases inside the reset product.
    """
    if W is None:
        tl.debug_barrier()
    operand = round_operand(h, PRECISION)
    gate = tl.cast(N, tl.int64) * N
    if LSTM:
        a_i = _add_product(W, 0, operand, own[0] + incoming[0], weight, before, K, N, B, k, b, BI, PRECISION)
        a_f = _add_product(W, 1, operand, own[1] + incoming[1], weight + gate, before, K, N, B, k, b, BI, PRECISION)
        a_g = _add_product(W, 2, operand, own[2] + incoming[2], weight + 2 * gate, before, K, N, B, k, b, BI, PRECISION)
        a_o = _add_product(W, 3, operand, own[3] + incoming[3], weight + 3 * gate, before, K, N, B, k, b, BI, PRECISION)
        if PEEPHOLES:
            a_i += peepholes[0] * c
            a_f += peepholes[1] * c
        i, f, g = sigmoid(a_i, FAST), sigmoid(a_f, FAST), tanh(a_g, FAST)
        c = f * c + i * g
        if PEEPHOLES:
            a_o += peepholes[2] * c
        o = sigmoid(a_o, FAST)
        return (o * tanh(c, FAST)).to(h.dtype), c, (i, f, g, o, c)
    else:
        a_r = _add_product(W, 0, operand, own[0] + incoming[0], weight, before, K, N, B, k, b, BI, PRECISION)
        a_z = _add_product(W, 1, operand, own[1] + incoming[1], weight + gate, before, K, N, B, k, b, BI, PRECISION)
        v = _add_product(
            W, 2, operand, incoming[2] + peepholes[0], weight + 2 * gate, before, K, N, B, k, b, BI, PRECISION
        )
        r, z = sigmoid(a_r, FAST), sigmoid(a_z, FAST)
        n = tanh(own[2] + r * v, FAST)
        c = n + z * (c - n)
        return c.to(h.dtype), c, (r, z, n, v, c)


@triton.jit
def scan_gated_module(
    table, flags, weight, peephole, h0, drive, messages, states, final, kept, lengths, B, N, G, j, tile, tiles, h0_b,
    LSTM: tl.constexpr, BK: tl.constexpr, BT: tl.constexpr, C: tl.constexpr, BI: tl.constexpr, NESTED: tl.constexpr,
    LENGTHS: tl.constexpr, PRECISION: tl.constexpr, RESIDENT: tl.constexpr, FAST: tl.constexpr,
    PEEPHOLES: tl.constexpr, KEEP: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Compute the recurrence of module j for BT sequences, and its final states.

    `peephole`: the three peepholes of an LSTM, or the bias inside the reset product of a GRU, if PEEPHOLES.
    """
    GATES: tl.constexpr = 4 if LSTM else 3
    PARTS: tl.constexpr = 2 if LSTM else 1
    m = module_row(table, j)
    P, K, start, first, n = load_module(m)
    K, start = align(K, ALIGN), align(start, ALIGN)
    states += align(tl.load(m + MODULE.value.states), ALIGN)
    # rows of one unit and one sequence that the modules before this one have
    before = tl.load(m + MODULE.value.states) // B
    lines = tile.to(tl.int64) * (n + 1)
    plane = K * BT
    drive += align((before * tiles + lines * K) * (BT * GATES), ALIGN)
    kept += align((before * tiles + lines * K) * (BT * 5), ALIGN)
    m2 = m + tl.where(j + 1 < G, len(MODULE.value), 0)
    P2, _, start2, first2, n2 = load_module(m2)
    start2 = align(start2, ALIGN)
    plane2 = start2 * BT
    before2 = tl.load(m2 + MODULE.value.messages) // B
    messages2 = messages + align(
        (before2 * tiles + tile.to(tl.int64) * (n2 + 1) * start2) * (BT * GATES) + start * BT, ALIGN
    )
    flag = flags + j * tiles + tile
    flag2 = flags + (G + (j + 1) * G + j) * tiles + tile

    k = tl.arange(0, BK)
    b = tile * BT + tl.arange(0, BT)
    inside = (k[:, None] < K) & (b[None, :] < B)
    # columns of sequences beyond the last one hold any numbers, and do not touch the others
    mask = (k[:, None] < K) & (tl.arange(0, BT)[None, :] < BT)
    weight += start.to(tl.int64) * (N + 1)
    h0 += start + b.to(tl.int64)[None, :] * h0_b + k[:, None]
    h = tl.load(h0, mask=inside, other=0)
    if LSTM:
        c = tl.load(h0 + N, mask=inside, other=0).to(tl.float32)
    else:
        c = h.to(tl.float32)
    one = (G > 0).to(weight.dtype.element_ty)
    gate = tl.cast(N, tl.int64) * N
    # with RESIDENT = 2, the last gates are in shared memory
    W = None
    if RESIDENT > 0:
        W0 = load_weights(weight, one, N, 1, k, K, BK, PRECISION, False)
        W1 = load_weights(weight + gate, one, N, 1, k, K, BK, PRECISION, False)
        W2 = load_weights(weight + 2 * gate, one, N, 1, k, K, BK, PRECISION, RESIDENT == 2)
        if LSTM:
            W3 = load_weights(weight + 3 * gate, one, N, 1, k, K, BK, PRECISION, RESIDENT == 2)
            W = (W0, W1, W2, W3)
        else:
            W = (W0, W1, W2)
    peephole += start
    p_i = tl.load(peephole + k, mask=(k < K) & PEEPHOLES, other=0).to(tl.float32)[:, None]
    p_f, p_o = p_i, p_i
    if LSTM and PEEPHOLES:
        p_f = tl.load(peephole + N + k, mask=k < K, other=0).to(tl.float32)[:, None]
        p_o = tl.load(peephole + 2 * N + k, mask=k < K, other=0).to(tl.float32)[:, None]
    peepholes = (p_i, p_f, p_o)
    here = b[None, :] * K + k[:, None]
    offsets = k[:, None] * BT + tl.arange(0, BT)[None, :]
    row_size = align(B.to(tl.int64) * K, ALIGN)
    planes_size = align(plane.to(tl.int64) * GATES, ALIGN)
    kept_size = align(plane.to(tl.int64) * 5, ALIGN)
    row_size2 = align(plane2.to(tl.int64) * GATES, ALIGN)
    tl.store(states + here, h, mask=inside)
    if KEEP:
        tl.store(kept + 4 * plane + offsets, c.to(h.dtype), mask=mask)
    if LENGTHS:
        last = row_at(tl.load(lengths + b, mask=b < B, other=0).to(tl.int32) - 1, first, P)
        last_c = c
    if j > 0:
        signal_rows(flag, 1)
    if (not NESTED) and (j + 1 < G):
        for i in range(j + 1, G):
            sender = flags + (G + i * G + j) * tiles + tile
            wait_for_rows(sender, i * 0, tl.load(module_row(table, i) + MODULE.value.ticks).to(tl.int32) + 1)

    # the loads for a tick are issued one tick before it: a and d are the drives of the next two ticks, a2 and d2 the
    # messages that they receive
    ready = j * 0
    a, a2, ready = _load_tick(table, drive + planes_size, messages, messages2, flag2, ready, first - 1, mask & (n > 0), n > 0,
                              G, j, start, first2, P2, row_size2, plane, plane2, tile, tiles, B, offsets, GATES, BT, NESTED, ALIGN)  # fmt: skip
    d, d2, ready = _load_tick(table, drive + 2 * planes_size, messages, messages2, flag2, ready, first + P - 1, mask & (n > 1), n > 1,
                              G, j, start, first2, P2, row_size2, plane, plane2, tile, tiles, B, offsets, GATES, BT, NESTED, ALIGN)  # fmt: skip
    # the first tick is computed before the loop: because W is used in two places, it stays in registers
    next_h, next_c, values = _compute_tick(W, h, c, a, a2, peepholes, weight, states, K, N, B, k, b,
                                           LSTM, PEEPHOLES, BI, PRECISION, FAST)  # fmt: skip
    h, c = tl.where(n > 0, next_h, h), tl.where(n > 0, next_c, c)
    tl.store(states + row_size + here, h, mask=inside & (n > 0))
    if KEEP:
        store_planes(kept + kept_size, plane, offsets, values, mask & (n > 0))
    if LENGTHS:
        last_c = tl.where((last >= 1)[None, :], c, last_c)
    if (j > 0) & (n == 1):
        signal_rows(flag, 2)
    a, a2 = d, d2
    for row in range(2, n + 1):
        d, d2, ready = _load_tick(table, drive + (row + 1) * planes_size, messages, messages2, flag2, ready, first + row * P - 1,
                                  mask & (row < n), row < n,
                                  G, j, start, first2, P2, row_size2, plane, plane2, tile, tiles, B, offsets, GATES, BT, NESTED, ALIGN)  # fmt: skip
        h, c, values = _compute_tick(W, h, c, a, a2, peepholes, weight, states + (row - 1) * row_size, K, N, B, k, b,
                                     LSTM, PEEPHOLES, BI, PRECISION, FAST)  # fmt: skip
        tl.store(states + row * row_size + here, h, mask=inside)
        if KEEP:
            store_planes(kept + row * kept_size, plane, offsets, values, mask)
        if LENGTHS:
            last_c = tl.where((last >= row)[None, :], c, last_c)
        if j > 0:
            if (row % C == 0) | (row == n):
                signal_rows(flag, row + 1)
        a, a2 = d, d2

    final += start + b[None, :] * (PARTS * N) + k[:, None]
    if LENGTHS:
        tl.debug_barrier()
        h = tl.load(states + last.to(tl.int64)[None, :] * row_size + here, mask=inside, other=0)
        c = last_c
    tl.store(final, h, mask=inside)
    if LSTM:
        tl.store(final + N, c.to(h.dtype), mask=inside)
