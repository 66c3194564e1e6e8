"""The programs of the GPU kernel, in Triton. `triton.py` starts them, and says what they compute and how.

`table` has eight numbers for each module: period, size, first unit, first tick (counted from the start of the sequence),
ticks, and the places where its rows begin: in the states, in what it says (`sent`), in what it hears back (`back`). Row 0
of a module is its initial state, row n its state after tick n. s is a replica, j a module, m its line in the table.
Numbers that change from call to call are not specialised on: another T or B compiles nothing again, but for a few
variants by the alignment of strides.
"""

import triton
import triton.language as tl


@triton.jit
def _tanh(x, FAST: tl.constexpr):
    if FAST:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    # an exponential that overflows gives 1, one that underflows -1; near zero, where digits would cancel, the series
    large = 1 - 2 / (tl.exp(2 * x) + 1)
    y = x * x
    small = x + x * y * (-1 / 3 + y * (2 / 15 + y * (-17 / 315 + y * (62 / 2835 - y * (1382 / 155925)))))
    return tl.where(tl.abs(x) < 0.3, small, large)


@triton.jit
def _operand(x, PRECISION: tl.constexpr):
    """x, rounded to what a product of tf32 looks at: the unit that multiplies cuts off the rest."""
    if PRECISION == "tf32":
        bits = x.to(tl.int32, bitcast=True)
        # not a number stays none: with all bits set, as the device makes it, it would become a zero
        x = tl.where(x == x, ((bits + 0x1000) & ~0x1FFF).to(tl.float32, bitcast=True), x)
    return x


@triton.jit
def _row_at(t, first, period):
    """The row that holds at time t."""
    return tl.where(t >= first, (t - first) // period + 1, 0)


@triton.jit
def _module(m):
    """The period, the size, the first unit, the first tick and the ticks of a module, by its line in the table."""
    return (
        tl.load(m).to(tl.int32),
        tl.load(m + 1).to(tl.int32),
        tl.load(m + 2).to(tl.int32),
        tl.load(m + 3).to(tl.int32),
        tl.load(m + 4).to(tl.int32),
    )


@triton.jit
def _turn(turns, tiles):
    """The replica, the role and the tile of a program: programs are numbered as they begin to run, whatever the order in
    which the device starts them. Who waits only for lower numbers waits for one that runs, so that all come to an end."""
    number = tl.atomic_add(turns, 1, sem="relaxed")
    of_replica = number % tl.num_programs(0)
    return (number // tl.num_programs(0)).to(tl.int64), of_replica // tiles, of_replica % tiles


@triton.jit
def _wait(flag, ready, rows):
    """Until `flag` says that so many rows are ready; `ready`: how many were when it was last asked."""
    while ready < rows:
        ready = tl.atomic_add(flag, 0, sem="acquire")
    return ready


@triton.jit
def _signal(flag, rows):
    tl.debug_barrier()
    tl.atomic_xchg(flag, rows, sem="release")


@triton.jit(do_not_specialize=["B", "bias_s", "states_s"])
def drive(
    table, x, weight, bias, lengths, driven,
    B, I, x_s, x_t, x_b, weight_s, bias_s, states_s,
    BM: tl.constexpr, BN: tl.constexpr, BI: tl.constexpr, BIAS: tl.constexpr, LENGTHS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """W_ih x + b at every tick of every module, in the places of the states. A program: BM ticks, BN units."""
    s = tl.program_id(2).to(tl.int64)
    block = tl.program_id(0)
    m = table
    n = tl.load(m + 4).to(tl.int32)
    while block >= tl.cdiv(n * B, BM):
        block -= tl.cdiv(n * B, BM)
        m += 8
        n = tl.load(m + 4).to(tl.int32)
    P = tl.load(m)
    K = tl.load(m + 1).to(tl.int32)
    start = tl.load(m + 2).to(tl.int32)
    first = tl.load(m + 3)
    u = tl.program_id(1) * BN + tl.arange(0, BN)
    line = block * BM + tl.arange(0, BM)
    b = line % B
    t = first + line // B * P
    inside = line < n * B
    known = inside
    if LENGTHS:
        known = inside & (t < tl.load(lengths + s * B + b, mask=inside, other=0))
    rows = x + s * x_s + t * x_t + b.to(tl.int64) * x_b
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for i0 in range(0, I, BI):
        i = i0 + tl.arange(0, BI)
        xs = tl.load(rows[:, None] + i[None, :], mask=known[:, None] & (i[None, :] < I), other=0)
        w = tl.load(
            weight + s * weight_s + (start + u)[None, :] * I + i[:, None],
            mask=(u[None, :] < K) & (i[:, None] < I), other=0,
        )  # fmt: skip
        acc = tl.dot(_operand(xs, PRECISION), _operand(w, PRECISION), acc, input_precision=PRECISION)
    if BIAS:
        acc += tl.load(bias + s * bias_s + start + u, mask=u < K, other=0).to(tl.float32)[None, :]
    to = driven + s * states_s + tl.load(m + 5) + (line + B).to(tl.int64)[:, None] * K + u[None, :]
    tl.store(to, acc, mask=inside[:, None] & (u[None, :] < K))


@triton.jit(do_not_specialize=["N", "weight_s"])
def round_weights(weight, rounded, N, weight_s, BN: tl.constexpr):
    """The weights as operands of tf32. A program: BN of them."""
    s = tl.program_id(1).to(tl.int64)
    size = N.to(tl.int64) * N
    at = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    value = _operand(tl.load(weight + s * weight_s + at, mask=at < size, other=0), "tf32")
    tl.store(rounded + s * size + at, value, mask=at < size)


@triton.jit
def _halves(h):
    """The first rows of h, and the others."""
    return tl.split(tl.permute(tl.reshape(h, (2, h.shape[0] // 2, h.shape[1])), (1, 2, 0)))


@triton.jit
def _times(W, W2, h, a, PRECISION: tl.constexpr):
    """a + W h; the columns of W in one part, or in two, of which None counts as zero."""
    h = _operand(h, PRECISION)
    if W2 is None:
        a = tl.dot(W, h, a, input_precision=PRECISION)
    else:
        first, second = _halves(h)
        if W is not None:
            a = tl.dot(W, first, a, input_precision=PRECISION)
        a = tl.dot(W2, second, a, input_precision=PRECISION)
    return a


# ---- forward ----


@triton.jit
def _heard(
    table, driven, sent, sent2, flag2, ready, t, mask, more, B, G, j, start, first2, P2, row_size2, k, b, here, there,
    NESTED: tl.constexpr,
):  # fmt: skip
    """What a tick at t + 1 reads: its drive, and what slower modules say. Not added up: the sum would wait for both."""
    own = tl.load(driven + here, mask=mask, other=0)
    others = tl.zeros_like(own)
    if j + 1 < G:
        if NESTED:
            at = _row_at(t, first2, P2)
            if more:
                ready = _wait(flag2, ready, at + 1)
            others = tl.load(sent2 + at * row_size2 + there, mask=mask, other=0, cache_modifier=".cg")
        else:
            for i in range(j + 1, G):
                m = table + i * 8
                period, _, width, begun, _ = _module(m)
                at = _row_at(t, begun, period)
                said = sent + tl.load(m + 6) + start + at * (B.to(tl.int64) * width)
                others += tl.load(said + b[None, :] * width + k[:, None], mask=mask, other=0, cache_modifier=".cg")
    return own, others, ready


@triton.jit
def _tick(
    W, W2, h, a, weight, before, K, N, B, k, b,
    BI: tl.constexpr, RECTIFY: tl.constexpr, PRECISION: tl.constexpr, RESIDENT: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """f(a + W h). If W is not resident, it is read again at every tick, and h from memory."""
    if RESIDENT > 0:
        a = _times(W, W2, h, a, PRECISION)
    else:
        tl.debug_barrier()
        for k0 in range(0, K, BI):
            i = k0 + tl.arange(0, BI)
            w = tl.load(weight + k[:, None] * N + i[None, :], mask=(k[:, None] < K) & (i[None, :] < K), other=0)
            part = tl.load(before + b[None, :] * K + i[:, None], mask=(i[:, None] < K) & (b[None, :] < B), other=0)
            a = tl.dot(_operand(w, PRECISION), _operand(part, PRECISION), a, input_precision=PRECISION)
    if RECTIFY:
        a = tl.where(a < 0, 0.0, a)
    else:
        a = _tanh(a, FAST)
    return a.to(h.dtype)


@triton.jit
def _scan(
    table, flags, weight, h0, driven, sent, states, final, lengths, B, N, G, j, tile, tiles, h0_b,
    BK: tl.constexpr, BT: tl.constexpr, C: tl.constexpr, BI: tl.constexpr, NESTED: tl.constexpr, RECTIFY: tl.constexpr,
    LENGTHS: tl.constexpr, PRECISION: tl.constexpr, RESIDENT: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """The recurrence of module j, for BT sequences."""
    m = table + j * 8
    P, K, start, first, n = _module(m)
    states += tl.load(m + 5)
    driven += tl.load(m + 5)
    m2 = m + tl.where(j + 1 < G, 8, 0)
    P2, _, start2, first2, _ = _module(m2)
    sent2 = sent + tl.load(m2 + 6) + start
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
    # times one: the compiler reads again from shared memory, at every tick, what was merely loaded, but not a product
    W = _operand(W, PRECISION) * (G > 0).to(W.dtype)
    here = b[None, :] * K + k[:, None]
    there = b[None, :] * start2 + k[:, None]
    row_size = B.to(tl.int64) * K
    row_size2 = B.to(tl.int64) * start2
    tl.store(states + here, h, mask=inside)
    if j > 0:
        _signal(flag, 1)
    if (not NESTED) and (j + 1 < G):
        for i in range(j + 1, G):
            _wait(flags + (G + i * G + j) * tiles + tile, i * 0, tl.load(table + i * 8 + 4).to(tl.int32) + 1)

    # what a tick reads is loaded two ticks before
    ready = j * 0
    a, a2, ready = _heard(table, driven + row_size, sent, sent2, flag2, ready, first - 1, inside & (n > 0), n > 0,
                          B, G, j, start, first2, P2, row_size2, k, b, here, there, NESTED)  # fmt: skip
    c, c2, ready = _heard(table, driven + 2 * row_size, sent, sent2, flag2, ready, first + P - 1, inside & (n > 1), n > 1,
                          B, G, j, start, first2, P2, row_size2, k, b, here, there, NESTED)  # fmt: skip
    d, d2, ready = _heard(table, driven + 3 * row_size, sent, sent2, flag2, ready, first + 2 * P - 1, inside & (n > 2), n > 2,
                          B, G, j, start, first2, P2, row_size2, k, b, here, there, NESTED)  # fmt: skip
    # the first tick stands before the loop: W, which is used in two places, stays in registers
    a += a2
    W1, W2 = W, None
    if RESIDENT == 2:
        # the other half is merely loaded; W is used before, so that not both go through shared memory at a time
        a = tl.dot(W, _halves(_operand(h, PRECISION))[0], a, input_precision=PRECISION)
        part += BK // 2
        W1, W2 = (
            None,
            tl.load(weight + k[:, None] * N + part[None, :], mask=(k[:, None] < K) & (part[None, :] < K), other=0),
        )
    h = _tick(W1, W2, h, a, weight, states, K, N, B, k, b, BI, RECTIFY, PRECISION, RESIDENT, FAST)
    tl.store(states + row_size + here, h, mask=inside & (n > 0))
    if (j > 0) & (n == 1):
        _signal(flag, 2)
    a, a2, c, c2 = c, c2, d, d2
    for row in range(2, n + 1):
        d, d2, ready = _heard(table, driven + (row + 2) * row_size, sent, sent2, flag2, ready, first + (row + 1) * P - 1,
                              inside & (row + 1 < n), row + 1 < n,
                              B, G, j, start, first2, P2, row_size2, k, b, here, there, NESTED)  # fmt: skip
        before = states + (row - 1) * row_size
        h = _tick(W, W2, h, a + a2, weight, before, K, N, B, k, b, BI, RECTIFY, PRECISION, RESIDENT, FAST)
        tl.store(states + row * row_size + here, h, mask=inside)
        if j > 0:
            if ((row + 1) % C == 0) | (row == n):
                _signal(flag, row + 1)
        a, a2, c, c2 = c, c2, d, d2

    tl.debug_barrier()
    last = n + b * 0
    if LENGTHS:
        last = _row_at(tl.load(lengths + b, mask=b < B, other=0).to(tl.int32) - 1, first, P)
    h = tl.load(states + last.to(tl.int64)[None, :] * row_size + here, mask=inside, other=0)
    tl.store(final + start + b[None, :] * N + k[:, None], h, mask=inside)


@triton.jit
def _send(
    table, flags, weight, sent, states, B, N, G, j, tile, tiles,
    BK: tl.constexpr, BT: tl.constexpr, C: tl.constexpr, BU: tl.constexpr, BI: tl.constexpr, NESTED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """What module j says to all faster ones, C rows at a time; if nested, with what slower modules say to them."""
    m = table + j * 8
    P, K, start, first, n = _module(m)
    states += tl.load(m + 5)
    own = sent + tl.load(m + 6)
    slower = j + 1 < G
    m2 = m + tl.where(slower, 8, 0)
    P2, _, start2, first2, _ = _module(m2)
    sent2 = sent + tl.load(m2 + 6)
    c = tl.arange(0, C * BT)
    b = tile * BT + c % BT
    ready = j * 0
    for c0 in range(0, n + 1, C):
        c1 = tl.minimum(c0 + C, n + 1)
        ready = _wait(flags + j * tiles + tile, ready, c1)
        row = c0 + c // BT
        inside = (row < c1) & (b < B)
        line = (row - c0) * B + b
        begin = (c0 + j * 0).to(tl.int64) * B
        # the rows of the next slower module that are heard together with these
        at = tl.where(row > 0, _row_at(first + (row - 1) * P, first2, P2), 0)
        low = tl.where(c0 > 0, _row_at(first + (c0 - 1) * P, first2, P2), 0)
        high = tl.where(c1 > 1, _row_at(first + (c1 - 2) * P, first2, P2), 0)
        line2 = ((at - low) * B + b) * start2
        # the nearest first
        for q in range(0, j):
            r = j - 1 - q
            flag = flags + (G + j * G + r) * tiles + tile
            if NESTED and slower:
                _wait(flag + G * tiles, q * 0, high + 1)
            u0 = tl.load(table + r * 8 + 2).to(tl.int32)
            end = u0 + tl.load(table + r * 8 + 1).to(tl.int32)
            while u0 < end:
                u = u0 + tl.arange(0, BU)
                keep = inside[:, None] & (u[None, :] < end)
                acc = tl.zeros((C * BT, BU), dtype=tl.float32)
                if NESTED and slower:
                    others = sent2 + low.to(tl.int64) * B * start2 + line2[:, None] + u[None, :]
                    acc = tl.load(others, mask=keep, other=0, cache_modifier=".cg")
                for k0 in tl.static_range(0, BK, BI):
                    k = k0 + tl.arange(0, BI)
                    h = tl.load(
                        states + begin * K + line[:, None] * K + k[None, :],
                        mask=inside[:, None] & (k[None, :] < K), other=0, cache_modifier=".cg",
                    )  # fmt: skip
                    w = tl.load(
                        weight + start + u[None, :] * N + k[:, None],
                        mask=(u[None, :] < end) & (k[:, None] < K), other=0,
                    )  # fmt: skip
                    acc = tl.dot(_operand(h, PRECISION), _operand(w, PRECISION), acc, input_precision=PRECISION)
                tl.store(own + begin * start + line[:, None] * start + u[None, :], acc, mask=keep)
                u0 += BU
            _signal(flag, c1)


@triton.jit(do_not_specialize=["B", "G", "tiles", "weight_s", "h0_s", "states_s", "sent_s", "flags_s"])
def forward(
    table, turns, flags, weight, h0, driven, sent, states, final, lengths,
    B, N, G, tiles, weight_s, h0_s, h0_b, states_s, sent_s, flags_s,
    BK: tl.constexpr, BT: tl.constexpr, C: tl.constexpr, BU: tl.constexpr, BI: tl.constexpr, NESTED: tl.constexpr,
    RECTIFY: tl.constexpr, LENGTHS: tl.constexpr, PRECISION: tl.constexpr, RESIDENT: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """All modules at once, slowest first: the scan of one, what it says, the scan of the next. Nobody waits for a program
    with a higher number."""
    s, role, tile = _turn(turns, tiles)
    j = G - 1 - role // 2
    weight += s * weight_s
    states += s * states_s
    sent += s * sent_s
    flags += s * flags_s
    if role % 2 == 0:
        _scan(table, flags, weight, h0 + s * h0_s, driven + s * states_s, sent, states, final + s * B * N, lengths + s * B,
              B, N, G, j, tile, tiles, h0_b, BK, BT, C, BI, NESTED, RECTIFY, LENGTHS, PRECISION, RESIDENT, FAST)  # fmt: skip
    else:
        _send(table, flags, weight, sent, states, B, N, G, j, tile, tiles, BK, BT, C, BU, BI, NESTED, PRECISION)


@triton.jit(do_not_specialize=["T", "B", "states_s"])
def hold(
    table, states, held, lengths, T, B, N, states_s,
    BT: tl.constexpr, BB: tl.constexpr, BN: tl.constexpr, LENGTHS: tl.constexpr,
):  # fmt: skip
    """The state at every step. A program: BN units of one module, BB sequences, BT steps."""
    s = tl.program_id(2).to(tl.int64)
    block = tl.program_id(1)
    m = table
    K = tl.load(m + 1).to(tl.int32)
    while block >= tl.cdiv(K, BN):
        block -= tl.cdiv(K, BN)
        m += 8
        K = tl.load(m + 1).to(tl.int32)
    P, K, start, first, _ = _module(m)
    b = tl.program_id(0) % tl.cdiv(B, BB) * BB + tl.arange(0, BB)
    u = block * BN + tl.arange(0, BN)
    inside = (b[:, None] < B) & (u[None, :] < K)
    states += tl.load(m + 5) + s * states_s + b[:, None] * K + u[None, :]
    held += s * T * B * N + b[:, None] * N + start + u[None, :]
    row_size = B.to(tl.int64) * K
    if LENGTHS:
        length = tl.load(lengths + s * B + b, mask=b < B, other=0)
    begin = tl.program_id(0) // tl.cdiv(B, BB) * BT
    value = tl.load(states + _row_at(begin, first, P) * row_size, mask=inside, other=0)
    for t in range(begin, tl.minimum(begin + BT, T)):
        if (t >= first) & ((t - first) % P == 0):
            value = tl.load(states + _row_at(t, first, P) * row_size, mask=inside, other=0)
        shown = value
        if LENGTHS:
            shown = tl.where((t < length)[:, None], value, 0)
        tl.store(held + t * (B.to(tl.int64) * N), shown, mask=inside)


# ---- backward ----


@triton.jit(do_not_specialize=["T", "B", "G", "held_s", "states_s"])
def collect(
    table, g_held, g_states, g_final, lengths, g, T, B, N, G, held_s, held_t, held_b, states_s,
    BT: tl.constexpr, BB: tl.constexpr, BN: tl.constexpr,
    HELD: tl.constexpr, STATES: tl.constexpr, FINAL: tl.constexpr, LENGTHS: tl.constexpr,
):  # fmt: skip
    """The gradient of every state from outside: of the steps that it was held, of itself, of the final state.

    A program: one row of one module, BB sequences, BN units. The slowest modules come first: they have most to add up.
    """
    s = tl.program_id(2).to(tl.int64)
    block = tl.program_id(0)
    blocks = tl.cdiv(B, BB)
    m = table + (G - 1) * 8
    n = tl.load(m + 4).to(tl.int32)
    while block >= (n + 1) * blocks:
        block -= (n + 1) * blocks
        m -= 8
        n = tl.load(m + 4).to(tl.int32)
    P, K, start, first, _ = _module(m)
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
    here = tl.load(m + 5) + s * states_s + row.to(tl.int64) * B * K + b[:, None] * K + u[None, :]
    if STATES:
        acc += tl.load(g_states + here, mask=inside, other=0).to(tl.float32)
    if FINAL:
        last = n + b * 0
        if LENGTHS:
            last = _row_at(length.to(tl.int32) - 1, first, P)
        end_state = g_final + (s * B + b[:, None]) * N + start + u[None, :]
        acc += tl.load(end_state, mask=inside & (last == row)[:, None], other=0).to(tl.float32)
    tl.store(g + here, acc, mask=inside)


@triton.jit
def _arriving(g, e, states, flag, ready, row, n, j, row_size, here, inside):
    """What the gradient of a row is made of: from outside, from faster modules; and the state itself."""
    if (j > 0) & (row >= 0):
        ready = _wait(flag, ready, n + 1 - row)
    at = tl.maximum(row, 0) * row_size + here
    keep = inside & (row >= 0)
    outside = tl.load(g + at, mask=keep, other=0)
    others = tl.load(e + at, mask=keep & (j > 0), other=0, cache_modifier=".cg")
    return outside, others, tl.load(states + at, mask=keep, other=0), ready


@triton.jit
def _reverse_tick(
    W, W2, da, a, h, weight, after, K, end, N, B, k, b,
    BI: tl.constexpr, RECTIFY: tl.constexpr, PRECISION: tl.constexpr, RESIDENT: tl.constexpr,
):  # fmt: skip
    """The gradient of a state, and of the sum that it is a function of. da: that of the tick after, also at `after`."""
    if RESIDENT > 0:
        a = _times(W, W2, da, a, PRECISION)
    else:
        tl.debug_barrier()
        for k0 in range(0, K, BI):
            i = k0 + tl.arange(0, BI)
            w = tl.load(weight + i[None, :] * N + k[:, None], mask=(k[:, None] < K) & (i[None, :] < K), other=0)
            part = tl.load(after + b[None, :] * end + i[:, None], mask=(i[:, None] < K) & (b[None, :] < B), other=0)
            a = tl.dot(_operand(w, PRECISION), _operand(part, PRECISION), a, input_precision=PRECISION)
    h = h.to(tl.float32)
    if RECTIFY:
        d = tl.where(h <= 0, 0.0, a)
    else:
        d = a * (1 - h) * (1 + h)
    return a, d.to(da.dtype)


@triton.jit
def _scan_back(
    table, flags, weight, states, g, e, back, g_h0, B, N, G, j, tile, tiles,
    BK: tl.constexpr, BT: tl.constexpr, C: tl.constexpr, BI: tl.constexpr, RECTIFY: tl.constexpr,
    PRECISION: tl.constexpr, RESIDENT: tl.constexpr, INITIAL: tl.constexpr,
):  # fmt: skip
    """The recurrence of module j in reverse. The gradient of tick n + 1 goes to row n of `back`: it has heard that row."""
    m = table + j * 8
    _, K, start, _, n = _module(m)
    end = start + K
    back += tl.load(m + 7) + start
    states += tl.load(m + 5)
    g += tl.load(m + 5)
    e += tl.load(m + 5)
    flag = flags + j * tiles + tile
    heard = flags + (G + j) * tiles + tile
    k = tl.arange(0, BK)
    b = tile * BT + tl.arange(0, BT)
    inside = (k[:, None] < K) & (b[None, :] < B)
    weight += start.to(tl.int64) * (N + 1)
    part = tl.arange(0, BK // 2 if RESIDENT == 2 else BK)
    W = tl.load(
        weight + part[None, :] * N + k[:, None], mask=(k[:, None] < K) & (part[None, :] < K) & (RESIDENT > 0), other=0
    )
    W = _operand(W, PRECISION) * (G > 0).to(W.dtype)
    here = b[None, :] * K + k[:, None]
    there = b[None, :] * end + k[:, None]
    row_size = B.to(tl.int64) * K
    back_size = B.to(tl.int64) * end
    # nothing has heard the last row
    da = tl.zeros((BK, BT), dtype=weight.dtype.element_ty)
    tl.store(back + n * back_size + there, da, mask=inside)

    ready = j * 0
    a, a2, h, ready = _arriving(g, e, states, heard, ready, n, n, j, row_size, here, inside)
    c, c2, hc, ready = _arriving(g, e, states, heard, ready, n - 1, n, j, row_size, here, inside)
    d, d2, hd, ready = _arriving(g, e, states, heard, ready, n - 2, n, j, row_size, here, inside)
    a += a2
    W1, W2 = W, None
    if RESIDENT == 2:
        a = tl.dot(W, _halves(da)[0], a, input_precision=PRECISION)
        part += BK // 2
        W1, W2 = (
            None,
            tl.load(weight + part[None, :] * N + k[:, None], mask=(k[:, None] < K) & (part[None, :] < K), other=0),
        )
    dh, da = _reverse_tick(W1, W2, da, a, h, weight, back + n * back_size, K, end, N, B, k, b,
                           BI, RECTIFY, PRECISION, RESIDENT)  # fmt: skip
    tl.store(back + tl.maximum(n - 1, 0) * back_size + there, da, mask=inside & (n > 0))
    a, a2, h, c, c2, hc = c, c2, hc, d, d2, hd
    for done in range(1, n + 1):
        row = n - done
        d, d2, hd, ready = _arriving(g, e, states, heard, ready, row - 2, n, j, row_size, here, inside)
        dh, da = _reverse_tick(W, W2, da, a + a2, h, weight, back + row * back_size, K, end, N, B, k, b,
                               BI, RECTIFY, PRECISION, RESIDENT)  # fmt: skip
        tl.store(back + tl.maximum(row - 1, 0) * back_size + there, da, mask=inside & (row > 0))
        if j + 1 < G:
            if (done % C == 0) & (row > 0):
                _signal(flag, done + 1)
        a, a2, h, c, c2, hc = c, c2, hc, d, d2, hd
    if INITIAL:
        tl.store(g_h0 + start + b[None, :] * N + k[:, None], dh, mask=inside)
    if j + 1 < G:
        _signal(flag, n + 1)


@triton.jit
def _gather(
    table, flags, weight, e, back, B, N, G, j, tile, tiles,
    BK: tl.constexpr, BT: tl.constexpr, C: tl.constexpr, BU: tl.constexpr, NESTED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """What faster modules send back to module j: the sum of their gradients for as long as a row was held, into `back`,
    and its product with the weights by which they heard it, into e. If nested, the sums of the next faster module serve."""
    m = table + j * 8
    P, K, start, first, n = _module(m)
    end = start + K
    e += tl.load(m + 5)
    own = back + tl.load(m + 7)
    k = tl.arange(0, BK)
    c = tl.arange(0, C * BT)
    b = tile * BT + c % BT
    if not NESTED:
        for i in range(0, j):
            _wait(flags + i * tiles + tile, i * 0, tl.load(table + i * 8 + 4).to(tl.int32) + 1)
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
            q = table + i * 8
            Pq, Kq, startq, firstq, nq = _module(q)
            endq = startq + Kq
            # the rows of module i that began while this one held
            low = tl.where(row > 0, _row_at(first + (row - 1) * P, firstq, Pq), 0)
            high = tl.where(row < n, _row_at(first + row * P, firstq, Pq), nq + 1)
            least = tl.where(lowest > 0, _row_at(first + (lowest - 1) * P, firstq, Pq), 0)
            if NESTED:
                ready = _wait(flags + i * tiles + tile, ready, nq + 1 - least)
                u_begin = startq * 0
                # both longer than the sequence: at most the initial state and one tick
                most = tl.maximum(P // Pq, tl.minimum(nq, 1) + 1)
            else:
                u_begin = startq
                most = (P + Pq - 1) // Pq + 1
            row_size = B.to(tl.int64) * endq
            theirs = back + tl.load(q + 7) + least.to(tl.int64) * B * endq
            lineq = ((low - least).to(tl.int64) * B + b) * endq
            for u0 in range(u_begin, endq, BU):
                u = u0 + tl.arange(0, BU)
                sums = tl.zeros((C * BT, BU), dtype=tl.float32)
                for w in range(0, most):
                    keep = (inside & (low + w < high))[:, None] & (u[None, :] < endq)
                    more = theirs + w * row_size + lineq[:, None] + u[None, :]
                    sums += tl.load(more, mask=keep, other=0, cache_modifier=".cg").to(tl.float32)
                heard = sums.to(weight.dtype.element_ty)
                to = own + begin * end + line[:, None] * end + u[None, :]
                tl.store(to, heard, mask=inside[:, None] & (u[None, :] < endq))
                w_block = tl.load(
                    weight + u[:, None] * N + start + k[None, :], mask=(u[:, None] < endq) & (k[None, :] < K), other=0
                )
                acc = tl.dot(_operand(heard, PRECISION), _operand(w_block, PRECISION), acc, input_precision=PRECISION)
        tl.store(e + begin * K + line[:, None] * K + k[None, :], acc, mask=inside[:, None] & (k[None, :] < K))
        _signal(flags + (G + j) * tiles + tile, n + 1 - lowest)


@triton.jit(do_not_specialize=["B", "G", "tiles", "weight_s", "states_s", "back_s", "flags_s"])
def backward(
    table, turns, flags, weight, states, g, e, back, g_h0,
    B, N, G, tiles, weight_s, states_s, back_s, flags_s,
    BK: tl.constexpr, BT: tl.constexpr, C: tl.constexpr, BU: tl.constexpr, BI: tl.constexpr, NESTED: tl.constexpr,
    RECTIFY: tl.constexpr, PRECISION: tl.constexpr, RESIDENT: tl.constexpr, INITIAL: tl.constexpr,
):  # fmt: skip
    """All modules at once, fastest first: its scan, what it sends back to the next, the scan of that one. As in forward,
    nobody waits for a program with a higher number."""
    s, role, tile = _turn(turns, tiles)
    role += 1
    weight += s * weight_s
    e += s * states_s
    back += s * back_s
    flags += s * flags_s
    if role % 2 == 1:
        _scan_back(table, flags, weight, states + s * states_s, g + s * states_s, e, back, g_h0 + s * B * N,
                   B, N, G, role // 2, tile, tiles, BK, BT, C, BI, RECTIFY, PRECISION, RESIDENT, INITIAL)  # fmt: skip
    else:
        _gather(table, flags, weight, e, back, B, N, G, role // 2, tile, tiles, BK, BT, C, BU, NESTED, PRECISION)


@triton.jit(do_not_specialize=["B", "states_s", "back_s", "x_s"])
def weights(
    table, items, back, states, x, lengths, parts, sums,
    B, I, x_s, x_t, x_b, states_s, back_s,
    BM: tl.constexpr, BN: tl.constexpr, BL: tl.constexpr, LENGTHS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Parts of the weights' gradients: a block of them, over some rows of one module. An item: whether the block is one of
    W_ih, module, first unit that heard, first unit or input that was heard, first line, line after the last."""
    s = tl.program_id(1).to(tl.int64)
    item = items + tl.program_id(0) * 6
    of_input = tl.load(item)
    m = table + tl.load(item + 1) * 8
    P = tl.load(m)
    K = tl.load(m + 1).to(tl.int32)
    start = tl.load(m + 2).to(tl.int32)
    first = tl.load(m + 3)
    end = start + K
    u = tl.load(item + 2) + tl.arange(0, BM)
    v = tl.load(item + 3) + tl.arange(0, BN)
    begin = tl.load(item + 4)
    stop = tl.load(item + 5)
    back += s * back_s + tl.load(m + 7)
    line = tl.arange(0, BL)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    if of_input == 0:
        states += s * states_s + tl.load(m + 5)
        for l in range(begin, stop, BL):
            at = (l + begin * 0).to(tl.int64)
            inside = l + line < stop
            d = tl.load(
                back + at * end + line[:, None] * end + u[None, :], mask=inside[:, None] & (u[None, :] < end), other=0
            )
            h = tl.load(
                states + at * K + line[:, None] * K + v[None, :], mask=inside[:, None] & (v[None, :] < K), other=0
            )
            acc = tl.dot(tl.trans(_operand(d, PRECISION)), _operand(h, PRECISION), acc, input_precision=PRECISION)
    else:
        for l in range(begin, stop, BL):
            at = (l + begin * 0).to(tl.int64)
            inside = l + line < stop
            d = tl.load(
                back + at * end + line[:, None] * end + u[None, :], mask=inside[:, None] & (u[None, :] < end), other=0
            )
            total += tl.sum(d.to(tl.float32), axis=0)
            b = (l + line) % B
            t = first + (l + line) // B * P
            if LENGTHS:
                inside = inside & (t < tl.load(lengths + s * B + b, mask=inside, other=0))
            rows = x + s * x_s + t * x_t + b.to(tl.int64) * x_b
            xs = tl.load(rows[:, None] + v[None, :], mask=inside[:, None] & (v[None, :] < I), other=0)
            acc = tl.dot(tl.trans(_operand(d, PRECISION)), _operand(xs, PRECISION), acc, input_precision=PRECISION)
    number = s * tl.num_programs(0) + tl.program_id(0)
    tl.store(parts + number * BM * BN + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], acc)
    tl.store(sums + number * BM + tl.arange(0, BM), total)


@triton.jit(do_not_specialize=["count"])
def add_up(
    table, blocks, parts, sums, g_weight_ih, g_weight_hh, g_bias, N, I, count,
    BM: tl.constexpr, BN: tl.constexpr, IH: tl.constexpr, HH: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """The weights' gradients of their parts. A block: as in `weights`, then its first item, and that after its last."""
    s = tl.program_id(1).to(tl.int64)
    block = blocks + tl.program_id(0) * 6
    of_input = tl.load(block)
    m = table + tl.load(block + 1) * 8
    K = tl.load(m + 1).to(tl.int32)
    start = tl.load(m + 2).to(tl.int32)
    u = tl.load(block + 2) + tl.arange(0, BM)
    v = tl.load(block + 3) + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    for item in range(tl.load(block + 4), tl.load(block + 5)):
        number = s * count + item
        acc += tl.load(parts + number * BM * BN + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :])
        total += tl.load(sums + number * BM + tl.arange(0, BM))
    known = u < start + K
    if of_input == 0:
        if HH:
            to = g_weight_hh + s * N * N + u[:, None] * N + start + v[None, :]
            tl.store(to, acc, mask=known[:, None] & (v[None, :] < K))
    else:
        if IH:
            tl.store(g_weight_ih + (s * N + u[:, None]) * I + v[None, :], acc, mask=known[:, None] & (v[None, :] < I))
        if BIAS:
            tl.store(g_bias + s * N + u, total, mask=known & (tl.load(block + 3) == 0))


@triton.jit(do_not_specialize=["B", "G", "back_s"])
def inputs(
    table, back, weight, lengths, g_input, B, I, G, weight_s, back_s,
    BB: tl.constexpr, BN: tl.constexpr, BI: tl.constexpr, LENGTHS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of the input. A program: one step, BB sequences, BN inputs."""
    s = tl.program_id(2).to(tl.int64)
    blocks = tl.cdiv(B, BB)
    t = tl.program_id(0) // blocks
    b = tl.program_id(0) % blocks * BB + tl.arange(0, BB)
    i = tl.program_id(1) * BN + tl.arange(0, BN)
    weight += s * weight_s
    known = b < B
    if LENGTHS:
        known = known & (t < tl.load(lengths + s * B + b, mask=known, other=0))
    acc = tl.zeros((BB, BN), dtype=tl.float32)
    for j in range(0, G):
        m = table + j * 8
        P, K, start, first, _ = _module(m)
        if (t >= first) & ((t - first) % P == 0):
            end = start + K
            rows = back + s * back_s + tl.load(m + 7) + ((t - first) // P).to(tl.int64) * B * end + start
            for k0 in range(0, K, BI):
                k = k0 + tl.arange(0, BI)
                d = tl.load(rows + b[:, None] * end + k[None, :], mask=known[:, None] & (k[None, :] < K), other=0)
                w = tl.load(
                    weight + (start + k)[:, None] * I + i[None, :], mask=(k[:, None] < K) & (i[None, :] < I), other=0
                )
                acc = tl.dot(_operand(d, PRECISION), _operand(w, PRECISION), acc, input_precision=PRECISION)
    to = g_input + ((s * (tl.num_programs(0) // blocks) + t) * B + b[:, None]) * I + i[None, :]
    tl.store(to, acc, mask=(b[:, None] < B) & (i[None, :] < I))
