/* Forward: the recurrences of all modules at once, and the messages between them.
 *
 * A block computes the recurrence of one module, or of a part of its units, for 8 sequences. Its weights stay in
 * registers over all time; the state goes from tick to tick through shared memory, or from part to part through memory.
 * Another block computes the messages of that module to the faster ones, CHUNK rows at a time. Row 0 of a module is its
 * initial state, row n its state after tick n. Flags count the rows that are ready. */

#include "modules.cuh"

struct Call {
    const Module *table;
    int *counter, *flags;
    uint32 *exchange; /* where the parts of a module exchange rows; zeros */
    const uint32 *weight; /* packed */
    const element *h0;    /* (S, B, N), or NULL for zero */
    const float *drive;   /* fragments */
    float *messages;      /* fragments */
    element *states;      /* per module (ticks + 1, B, K) */
    element *final;       /* (S, B, N) */
    const int64 *lengths; /* (S, B), or NULL */
    int64 B, N, G, tiles, parts, message_parts;
    int64 weight_s, h0_s, h0_b, states_s, drive_s, messages_s, flags_s, exchange_s;
};

DEVICE int *message_flag(const Call &call, int64 s, int64 sender, int64 receiver, int64 tile) {
    const int64 number = call.G * call.parts + (sender * call.G + receiver) * call.message_parts;
    return call.flags + s * call.flags_s + (number * call.tiles + tile) * FLAG_STRIDE;
}

/* Waits until all parts of a message have at least `count` rows. */
DEVICE void await_parts(const int *flag, const Call &call, int count, int &ready) {
    int least = count;
    for (int part = 0; part < call.message_parts; part++) {
        int value = 0;
        await_flag(flag + part * call.tiles * FLAG_STRIDE, count, value);
        least = part == 0 || value < least ? value : least;
    }
    ready = least;
}

DEVICE void scan_module(const Call &call, int64 s, int64 j, int64 tile, int part, char *memory) {
    const Module m = call.table[j];
    const int64 B = call.B, K = m.size, row_size = B * K;
    const int n = (int)m.ticks, parts = parts_of(K), blocks = blocks_of(K);
    if (part >= parts) return;
    const int thread = thread_number(), warp = thread / 32, lane = thread % 32, g = lane / 4, c = lane % 4;
    const int group = warp % (WARPS / SPLIT), share = warp / (WARPS / SPLIT);
    const bool owner = SPLIT == 1 || share == 0;
    const int first_block = part * (UNITS / ROWS) + group * TILES;
    element *states = call.states + s * call.states_s + m.states;
    int *flag = scan_flag(call, s, j, tile) + part * FLAG_STRIDE;
#if SPREAD
    uint32 *exchange = call.exchange + s * call.exchange_s +
                       ((m.first_block * call.tiles + tile * blocks) * 2) * (32 * LINES * 4);
#endif

    /* two rows of states, by turns */
    char *before = memory, *after = memory + SEQUENCES * PITCH, *sums_memory = memory + 2 * SEQUENCES * PITCH;
    int *counted = counter_of_rows(memory);
    const bool announced = j > 0;
    if (warp == WARPS) {
        if (announced) run_signaller(flag, counted, n + 1);
        return;
    }

    Weights weights;
    load_weights(weights,
                 call.weight + s * call.weight_s +
                     ((m.packed + m.first_block + first_block) * STEPS + share * OWN_STEPS) * PACKED,
                 STEPS * PACKED, blocks - first_block);
    for (int i = thread; i < 2 * SEQUENCES * PITCH / 4; i += THREADS) ((uint32 *)memory)[i] = 0;
    join_workers();
    for (int64 i = thread; i < SEQUENCES * K; i += THREADS) {
        int64 sequence = i / K, u = i % K, at = tile * SEQUENCES + sequence;
        element value = 0;
        if (call.h0 != nullptr && at < B) value = call.h0[s * call.h0_s + at * call.h0_b + m.first_unit + u];
        *(element *)(before + sequence * PITCH + u * sizeof(element)) = round_operand(value);
        if (at < B && u / UNITS == part) states[at * K + u] = value;
    }
    join_workers();
    if (announced && thread == 0) announce_rows(flag, counted, 1);

    /* row 0 of drives is not used: row n is that of tick n */
    const int64 drive_row = call.tiles * blocks * FRAGMENT;
    const float *drive = call.drive + s * call.drive_s + (m.fragments * call.tiles + tile * blocks + first_block) * FRAGMENT +
                         lane * 4 + drive_row;
#if NESTED
    const bool slower = j + 1 < call.G;
    const Module m2 = call.table[slower ? j + 1 : j];
    const int64 message_row = call.tiles * m2.first_block * FRAGMENT;
    const float *messages2 =
        call.messages + s * call.messages_s +
        (m2.message_fragments * call.tiles + tile * m2.first_block + m.first_block + first_block) * FRAGMENT + lane * 4;
    const int *flag2 = message_flag(call, s, j + 1, j, tile);
    /* the time of the tick that is copied; the row of the next slower module that holds then, and when the next one will */
    int64 time = m.first_tick - 1, next2 = m2.first_tick;
    int row2 = 0, ready = 0;
#else
    for (int64 i = j + 1; i < call.G; i++) {
        int none = 0;
        await_parts(message_flag(call, s, i, j, tile), call, (int)(call.table[i].ticks + 1), none);
    }
#endif

    /* which fragments, units and sequences of this lane there are */
    bool there[TILES], inside[TILES][2];
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        there[i] = owner && first_block + i < blocks;
        for (int low = 0; low < 2; low++) inside[i][low] = there[i] && (FULL || (first_block + i) * ROWS + low * 8 + g < K);
    }
#if !DEFERRED
    const int64 b = tile * SEQUENCES + 2 * c;
    const bool first = b < B, second = b + 1 < B;
#endif

    /* the drives and the messages of the next ticks */
    float4 own[AHEAD][TILES], heard[AHEAD][TILES];
    int issued = 0;
    /* loads those of the next tick that was not loaded */
    auto load_ahead = [&](float4(&drives)[TILES], float4(&sent)[TILES]) {
        issued++;
        if (issued > n || !owner) return;
#if NESTED
        if (slower) {
            if (time >= next2) row2++, next2 += m2.period, messages2 += message_row;
            if (ready <= row2) await_parts(flag2, call, row2 + 1, ready);
            join_warp();
#pragma unroll
            for (int i = 0; i < TILES; i++)
                if (there[i]) sent[i] = load_through((const float4 *)(messages2 + i * FRAGMENT));
            time += m.period;
        }
#else
#pragma unroll
        for (int i = 0; i < TILES; i++) sent[i] = make_float4(0, 0, 0, 0);
        for (int64 k = j + 1; k < call.G; k++) {
            const Module q = call.table[k];
            int64 at = row_at(m.first_tick + (issued - 1) * m.period - 1, q.first_tick, q.period);
            const float *from = call.messages + s * call.messages_s + lane * 4 +
                                (q.message_fragments * call.tiles + (at * call.tiles + tile) * q.first_block + m.first_block +
                                 first_block) *
                                    FRAGMENT;
#pragma unroll
            for (int i = 0; i < TILES; i++)
                if (there[i]) sent[i] = add(sent[i], load_through((const float4 *)(from + i * FRAGMENT)));
        }
#endif
#pragma unroll
        for (int i = 0; i < TILES; i++)
            if (there[i]) drives[i] = load_through((const float4 *)(drive + i * FRAGMENT));
        drive += drive_row;
    };
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
#pragma unroll
        for (int k = 0; k < TILES; k++) own[i][k] = heard[i][k] = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < AHEAD; i++) load_ahead(own[i], heard[i]);

    const int at_row = place_of_lane() + share * OWN_STEPS * 32;
    const int at_unit = 2 * c * PITCH + (first_block * ROWS + g) * (int)sizeof(element);
#if !DEFERRED
    element *to = states + row_size + b * K + first_block * ROWS + g;
#endif
#if DEFERRED
    RowCopies copies;
    plan_copies(copies, states + row_size, K, tile * SEQUENCES, B, K);
#endif
    for (int base = 1; base <= n; base += AHEAD) {
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ahead++) {
            const int row = base + ahead;
            if (row > n) break;
            float sums[TILES][4];
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                const float4 value = add(own[ahead][i], heard[ahead][i]);
                sums[i][0] = value.x, sums[i][1] = value.y, sums[i][2] = value.z, sums[i][3] = value.w;
            }
            multiply_rows(sums, weights, before + at_row);
            load_ahead(own[ahead], heard[ahead]);
#if DEFERRED
            if (row > 1) copy_row(copies, before, row_size);
#endif
            join_sums(sums, sums_memory);
#pragma unroll
            for (int i = 0; i < TILES; i++)
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    float x = sums[i][k];
                    /* NaN stays NaN */
                    x = RECTIFY ? (x < 0 ? 0 : x) : tanh_of<FAST>(x);
                    /* what lies behind the last unit of a module must stay zero */
                    sums[i][k] = FULL || inside[i][k / 2] ? x : 0;
                }
#pragma unroll
            for (int i = 0; i < TILES; i++)
                if (there[i]) {
#if SPREAD
                    if (parts > 1) send_fragment(exchange_place(exchange, blocks, row, first_block + i), sums[i], row);
#endif
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        if (FULL || (first_block + i) * ROWS + k / 2 * 8 + g < K)
                            *(element *)(after + at_unit + k % 2 * PITCH + (i * ROWS + k / 2 * 8) * (int)sizeof(element)) =
                                store_operand(sums[i][k]);
                }
#if !DEFERRED
#pragma unroll
            for (int i = 0; i < TILES; i++)
#pragma unroll
                for (int k = 0; k < 4; k++)
                    if (inside[i][k / 2] && (k % 2 == 0 ? first : second))
                        to[k % 2 * K + i * ROWS + k / 2 * 8] = to_element(sums[i][k]);
            to += row_size;
#endif
#if SPREAD
            if (parts > 1 && row < n)
                receive_fragments(after, exchange, blocks, part * (UNITS / ROWS), min(UNITS / ROWS, blocks - part * (UNITS / ROWS)),
                                  row, K);
#endif
            join_workers();
            /* a row that is copied later is not there yet */
            if (announced && thread == 0 && (row + 1 - DEFERRED) % CHUNK == 0) announce_rows(flag, counted, row + 1 - DEFERRED);
            char *swap = before;
            before = after;
            after = swap;
        }
    }
#if DEFERRED
    if (n > 0) copy_row(copies, before, row_size);
#endif
    join_workers();
    if (announced && thread == 0) announce_rows(flag, counted, n + 1);
    for (int64 i = thread; i < SEQUENCES * K; i += THREADS) {
        int64 at = tile * SEQUENCES + i / K, u = i % K;
        if (at >= B || u / UNITS != part) continue;
        int64 last = call.lengths == nullptr ? n : row_at(call.lengths[s * B + at] - 1, m.first_tick, m.period);
        call.final[(s * B + at) * call.N + m.first_unit + u] = load_through(states + last * row_size + at * K + u);
    }
}

/* The messages of module j to all faster modules. With nested periods they include those that the slower modules send to
 * the same units. */
DEVICE void send_messages(const Call &call, int64 s, int64 j, int64 tile, int part, char *memory) {
    if (thread_number() >= THREADS) return;
    const Module m = call.table[j];
    const int64 B = call.B, K = m.size, n = m.ticks;
    const int thread = thread_number(), warp = thread / 32, lane = thread % 32;
    const bool telescope = NESTED && j + 1 < call.G;
    const Module m2 = call.table[j + 1 < call.G ? j + 1 : j];
    const element *states = call.states + s * call.states_s + m.states;
    const uint32 *weight = call.weight + s * call.weight_s + m.packed * STEPS * PACKED;
    float *own = call.messages + s * call.messages_s + (m.message_fragments * call.tiles + tile * m.first_block) * FRAGMENT;
    const float *theirs =
        call.messages + s * call.messages_s + (m2.message_fragments * call.tiles + tile * m2.first_block) * FRAGMENT;
    const int64 own_row = call.tiles * m.first_block * FRAGMENT, their_row = call.tiles * m2.first_block * FRAGMENT;
    const int parts = parts_of(K);
    int ready = 0;
    for (int64 first = 0; first <= n; first += CHUNK) {
        const int rows = (int)(n + 1 - first < CHUNK ? n + 1 - first : CHUNK);
        await_all(scan_flag(call, s, j, tile), parts, (int)first + rows, ready);
        copy_rows(memory, states + first * B * K, rows * SEQUENCES, B * K, K, tile * SEQUENCES, B, K);
        join_workers();
        /* the rows of the next slower module that hold when these rows begin */
        int held[CHUNK];
#pragma unroll
        for (int i = 0; i < CHUNK; i++)
            held[i] = first + i == 0 ? 0 : (int)row_at(m.first_tick + (first + i - 1) * m.period, m2.first_tick, m2.period);
        /* the nearest faster module first */
        for (int64 r = j - 1; r >= 0; r--) {
            const Module receiver = call.table[r];
            const int blocks = blocks_of(receiver.size);
            if (telescope) {
                int last = 0, none = 0;
#pragma unroll
                for (int i = 0; i < CHUNK; i++)
                    if (i < rows) last = held[i];
                await_flag(message_flag(call, s, j + 1, r, tile) + part * call.tiles * FLAG_STRIDE, last + 1, none);
                join_warp();
            }
            for (int block = (warp * (int)call.message_parts + part) * WIDE; block < blocks;
                 block += WARPS * (int)call.message_parts * WIDE) {
                const int64 where = (receiver.first_block + block) * FRAGMENT + lane * 4;
                float sums[CHUNK][WIDE][4], small[CHUNK][WIDE][4] = {};
#pragma unroll
                for (int i = 0; i < CHUNK; i++)
#pragma unroll
                    for (int k = 0; k < WIDE; k++) {
                        float4 value = make_float4(0, 0, 0, 0);
                        if (telescope && i < rows && block + k < blocks)
                            value = load_through((const float4 *)(theirs + held[i] * their_row + where + k * FRAGMENT));
                        sums[i][k][0] = value.x, sums[i][k][1] = value.y, sums[i][k][2] = value.z, sums[i][k][3] = value.w;
                    }
#pragma unroll 2
                for (int step = 0; step < STEPS; step += 2) {
                    Left left[2][WIDE];
#pragma unroll
                    for (int half = 0; half < 2; half++)
#pragma unroll
                        for (int k = 0; k < WIDE; k++)
                            load_packed(left[half][k],
                                        weight + ((receiver.first_block + block + k) * STEPS + step + half) * PACKED,
                                        block + k < blocks);
#pragma unroll
                    for (int i = 0; i < CHUNK; i++) {
                        uint32 right[4];
                        load_fragments(right, memory + i * SEQUENCES * PITCH + place_of_lane() + step * 32);
#pragma unroll
                        for (int half = 0; half < 2; half++) {
                            const uint32 part[2] = {right[2 * half], right[2 * half + 1]};
#pragma unroll
                            for (int k = 0; k < WIDE; k++) multiply(sums[i][k], small[i][k], left[half][k], part);
                        }
                    }
                }
#pragma unroll
                for (int i = 0; i < CHUNK; i++) {
                    if (i < rows)
#pragma unroll
                        for (int k = 0; k < WIDE; k++) {
                            add_small(sums[i][k], small[i][k]);
                            if (block + k < blocks)
                                *(float4 *)(own + (first + i) * own_row + where + k * FRAGMENT) =
                                    make_float4(sums[i][k][0], sums[i][k][1], sums[i][k][2], sums[i][k][3]);
                        }
                }
            }
            join_workers();
            if (thread == 0) add_to_flag(message_flag(call, s, j, r, tile) + part * call.tiles * FLAG_STRIDE, rows);
        }
    }
}

/* Roles, slowest module first: the recurrence of a module, its messages, the recurrence of the next faster module. */
PROGRAM(ALL_THREADS) scan_forward(CALL(Call, call)) {
    SHARED_MEMORY(memory);
    const int64 scans = call.tiles * call.parts, senders = call.tiles * call.message_parts;
    const int64 of_module = scans + senders, of_replica = call.G * of_module - senders;
    if (thread_number() == 0) *counter_of_rows(memory) = 0;
    const int64 number = take_number_of_block(call.counter, memory);
    const int64 s = number / of_replica, rest = number % of_replica, within = rest % of_module;
    const int64 j = call.G - 1 - rest / of_module;
    if (within < scans)
        scan_module(call, s, j, within / call.parts, (int)(within % call.parts), memory);
    else
        send_messages(call, s, j, (within - scans) / call.message_parts, (int)((within - scans) % call.message_parts), memory);
}
