/* Forward: the recurrences of all modules at once, and the messages between them.
 *
 * A block computes the recurrence of one module, or of a part of its units, for 8 sequences. Its weights stay in
 * registers over all time; the state goes from tick to tick through shared memory, or from part to part through memory.
 * Where there are more such blocks than multiprocessors, a block computes TURNS tiles of sequences by turns: while the rows of
 * one tile go from part to part, all parts compute the other tiles. Another block computes the messages of that module to the faster
 * ones, CHUNK rows at a time. Row 0 of a module is its initial state, row n its state after tick n. Flags count the rows that
 * are ready. */

#if GATES > 1
#include "cells.cuh"
#else
#include "modules.cuh"
#endif

struct Call {
    const Module *table;
    int *counter, *flags;
    uint32 *exchange; /* where the parts of a module exchange rows; zeros */
    const uint32 *weight;     /* packed, of every gate */
    const element *h0;        /* (S, B, PARTS N), or NULL for zero */
    const element *peepholes; /* (S, 3 N), or NULL; of a GRU the biases inside the reset product (S, N), or NULL */
    const float *drive;       /* fragments, of every gate */
    float *messages;          /* fragments, of every gate */
    element *states;          /* per module (ticks + 1, B, K) */
    element *kept;            /* fragments, of every plane of cells.cuh; or NULL */
    element *final;           /* (S, B, PARTS N) */
    const int64 *lengths;     /* (S, B), or NULL */
    int64 B, N, G, tiles, parts, message_parts;
    int64 kept_tiles; /* tiles that have a sequence: `tiles` is a multiple of TURNS */
    int64 weight_s, h0_s, h0_b, peepholes_s, states_s, drive_s, messages_s, kept_s, flags_s, exchange_s;
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

/* Computes the recurrence of a part of module j for TURNS tiles from `first_tile` on. */
DEVICE void scan_module(const Call &call, int64 s, int64 j, int64 first_tile, int part, char *memory) {
    const Module m = call.table[j];
    const int64 B = call.B, K = m.size, row_size = B * K;
    const int n = (int)m.ticks, parts = parts_of(K), blocks = blocks_of(K);
    if (part >= parts) return;
    const int thread = thread_number(), warp = thread / 32, lane = thread % 32, g = lane / 4, c = lane % 4;
    const int group = warp % (WARPS / SPLIT), share = warp / (WARPS / SPLIT);
    const bool owner = SPLIT == 1 || share == 0;
    const int first_block = part * (UNITS / ROWS) + group * TILES;
    element *states = call.states + s * call.states_s + m.states;
    int *flag = scan_flag(call, s, j, first_tile) + (FETCHED ? 0 : part * FLAG_STRIDE);
    const int64 next_flag = call.parts * FLAG_STRIDE;
#if SPREAD && !FETCHED
    const int64 exchanged = blocks * (2 * EXCHANGED * 32 * LINES * 4);
    uint32 *exchange = call.exchange + s * call.exchange_s + m.first_block * call.tiles * (2 * EXCHANGED * 32 * LINES * 4) +
                       first_tile * exchanged;
    const int own_blocks = min(UNITS / ROWS, blocks - part * (UNITS / ROWS));
#endif

    /* rows of states: those of a tile by turns, where there are two */
    char *before = memory, *after = memory + (BUFFERS - 1) * ROW_BYTES, *sums_memory = place_of_sums(memory);
    int *counted = counters_of_rows(memory);
    const bool announced = j > 0 || (FETCHED && parts > 1);
    if (warp == WARPS) {
        if (announced) run_signaller(flag, counted, n + 1);
        return;
    }

    Weights weights;
    load_weights(weights, call.weight + s * GATES * call.weight_s + (m.packed + m.first_block + first_block) * STEPS * PACKED,
                 STEPS * PACKED, call.weight_s, share, blocks - first_block);
    for (int i = thread; i < TURNS * BUFFERS * ROW_BYTES / 4; i += THREADS) ((uint32 *)memory)[i] = 0;
    join_workers();
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++)
        for (int64 i = thread; i < SEQUENCES * K; i += THREADS) {
            int64 sequence = i / K, u = i % K, at = (first_tile + turn) * SEQUENCES + sequence;
            element value = 0;
            if (call.h0 != nullptr && at < B) value = call.h0[s * call.h0_s + at * call.h0_b + m.first_unit + u];
            *(element *)(before + turn * BUFFERS * ROW_BYTES + sequence * ROW_PITCH + u * sizeof(element)) = round_operand(value);
            if (at < B && u / UNITS == part) states[at * K + u] = value;
        }
    join_workers();
    if (announced && thread == ANNOUNCER)
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) announce_rows(flag + turn * next_flag, counted + turn, 1);

    /* row 0 of drives is not used: row n is that of tick n */
    const int64 tile_size = blocks * FRAGMENT, drive_row = call.tiles * tile_size;
    const int64 here = m.fragments * call.tiles * FRAGMENT + first_tile * tile_size + first_block * FRAGMENT + lane * 4;
    const float *drive = call.drive + s * GATES * call.drive_s + here;
#if NESTED
    const bool slower = j + 1 < call.G;
    const Module m2 = call.table[slower ? j + 1 : j];
    const int64 tile_size2 = m2.first_block * FRAGMENT, message_row = call.tiles * tile_size2;
    const float *messages2 = call.messages + s * GATES * call.messages_s + m2.message_fragments * call.tiles * FRAGMENT +
                             first_tile * tile_size2 + (m.first_block + first_block) * FRAGMENT + lane * 4;
    const int *flag2 = message_flag(call, s, j + 1, j, first_tile);
    /* the time of the tick that is copied; the row of the next slower module that holds then, and when the next one will */
    const int period = (int)m.period, period2 = (int)m2.period;
    int time = (int)m.first_tick - 1 - period, next2 = (int)m2.first_tick, row2 = 0, ready[TURNS];
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) ready[turn] = 0;
#else
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++)
        for (int64 i = j + 1; i < call.G; i++) {
            int none = 0;
            await_parts(message_flag(call, s, i, j, first_tile + turn), call, (int)(call.table[i].ticks + 1), none);
        }
#endif

    /* which fragments and units of this lane there are */
    bool there[TILES], inside[TILES][2];
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        there[i] = owner && first_block + i < blocks;
        for (int low = 0; low < 2; low++) inside[i][low] = there[i] && (FULL || (first_block + i) * ROWS + low * 8 + g < K);
    }
    const int64 b = first_tile * SEQUENCES + 2 * c;

    /* the drives and the messages of the next ticks */
    float4 own[LOADED][SUMS], heard[LOADED][SUMS];
    int issued = 0;
    /* loads those of the next tick that was not loaded, for one of the tiles */
    auto load_ahead = [&](float4(&drives)[SUMS], float4(&sent)[SUMS], int turn) {
        if (turn == 0) issued++, drive += drive_row;
        const bool is_tick = issued <= n && owner;
#if NESTED
        if (slower) {
            if (turn == 0) {
                time += period;
                const bool moves = time >= next2;
                row2 += moves, next2 += moves ? period2 : 0, messages2 += moves ? message_row : 0;
            }
            if (is_tick && ready[turn] <= row2) await_parts(flag2 + turn * FLAG_STRIDE, call, row2 + 1, ready[turn]);
            join_warp();
#pragma unroll
            for (int i = 0; i < SUMS; i++)
                if (is_tick && there[i % TILES])
                    sent[i] = load_through((const float4 *)(messages2 + i / TILES * call.messages_s + turn * tile_size2 +
                                                            i % TILES * FRAGMENT));
        }
#else
        if (!is_tick) return;
#pragma unroll
        for (int i = 0; i < SUMS; i++) sent[i] = make_float4(0, 0, 0, 0);
        for (int64 k = j + 1; k < call.G; k++) {
            const Module q = call.table[k];
            int64 at = row_at(m.first_tick + (issued - 1) * m.period - 1, q.first_tick, q.period);
            const float *from =
                call.messages + s * GATES * call.messages_s + lane * 4 +
                (q.message_fragments * call.tiles + (at * call.tiles + first_tile + turn) * q.first_block + m.first_block +
                 first_block) *
                    FRAGMENT;
#pragma unroll
            for (int i = 0; i < SUMS; i++)
                if (there[i % TILES])
                    sent[i] = add(sent[i], load_through((const float4 *)(from + i / TILES * call.messages_s + i % TILES * FRAGMENT)));
        }
#endif
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            if (is_tick && there[i % TILES])
                drives[i] = load_through((const float4 *)(drive + i / TILES * call.drive_s + turn * tile_size + i % TILES * FRAGMENT));
    };
#pragma unroll
    for (int i = 0; i < LOADED; i++)
#pragma unroll
        for (int k = 0; k < SUMS; k++) own[i][k] = heard[i][k] = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < AHEAD; i++) load_ahead(own[i], heard[i], 0);

    const int at_row = place_of_lane(ROW_PITCH) + share * OWN_STEPS * 32;
    const int at_unit = 2 * c * ROW_PITCH + (first_block * ROWS + g) * (int)sizeof(element);
#if GATES > 1
    /* c of an LSTM and h of a GRU; the last row of the lane's sequences; and what a tick needs beside the sums */
    float carried[TURNS][TILES][4], extra[TILES][2][3];
    int last[TURNS][2];
    const int64 kept_row = call.kept_tiles * tile_size;
    element *kept = call.kept + s * KEPT_PLANES * call.kept_s + m.fragments * call.kept_tiles * FRAGMENT + first_tile * tile_size +
                    first_block * FRAGMENT + lane * 4;
    /* stores the part of the final state that no row has, for the sequences whose last row this is */
    auto store_final = [&](int row, int turn) {
        if (!LSTM) return;
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int64 at = b + turn * SEQUENCES + k % 2;
                if (row == last[turn][k % 2] && inside[i][k / 2] && at < B)
                    call.final[(s * B + at) * (PARTS * call.N) + call.N + m.first_unit + (first_block + i) * ROWS + k / 2 * 8 + g] =
                        to_element(carried[turn][i][k]);
            }
    };
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int low = 0; low < 2; low++)
#pragma unroll
            for (int p = 0; p < 3; p++) {
                extra[i][low][p] = 0;
                if ((LSTM ? PEEPHOLES : p == 0) && call.peepholes != nullptr && inside[i][low])
                    extra[i][low][p] = to_float(call.peepholes[s * call.peepholes_s + p * call.N + m.first_unit +
                                                               (first_block + i) * ROWS + low * 8 + g]);
            }
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int64 at = b + turn * SEQUENCES + k;
            last[turn][k] =
                call.lengths != nullptr && at < B ? row_at(call.lengths[s * B + at] - 1, m.first_tick, m.period) : n;
        }
#pragma unroll
        for (int i = 0; i < TILES; i++) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int64 at = b + turn * SEQUENCES + k % 2;
                carried[turn][i][k] = 0;
                if (call.h0 != nullptr && inside[i][k / 2] && at < B)
                    carried[turn][i][k] = to_float(call.h0[s * call.h0_s + at * call.h0_b + (LSTM ? call.N : 0) + m.first_unit +
                                                           (first_block + i) * ROWS + k / 2 * 8 + g]);
            }
            if (call.kept != nullptr && there[i] && first_tile + turn < call.kept_tiles)
                store_four(kept + (KEPT_PLANES - 1) * call.kept_s + turn * tile_size + i * FRAGMENT, carried[turn][i]);
        }
        store_final(0, turn);
    }
    kept += kept_row;
#endif
#if !DEFERRED
    element *to = states + row_size + b * K + first_block * ROWS + g;
#else
    RowCopies copies;
    plan_copies(copies, states + row_size, K, 0, first_tile * SEQUENCES, B, K);
#endif
#if FETCHED
    int ready_rows = 0;
    /* looks at the flag of the tile after this one */
    auto glance = [&](int turn) {
        const int next_turn = (turn + 1) % TURNS;
        if (parts > 1) ready_rows = glance_at_flag(flag + next_turn * next_flag);
    };
    /* fetches the row before the tick that is computed next, of the next tile */
    auto fetch_next = [&](int row, int turn) {
        const int next_row = row + (turn == TURNS - 1), next_turn = (turn + 1) % TURNS;
        if (parts > 1 && next_row > 1 && next_row <= n) {
            await_flag(flag + next_turn * next_flag, parts * next_row, ready_rows);
            join_warp();
            fetch_row((turn == TURNS - 1 ? after : before) + next_turn * BUFFERS * ROW_BYTES, states + (next_row - 1) * row_size,
                      0, K, part, (first_tile + next_turn) * SEQUENCES, B, (int)K);
        }
        ready_rows = 0;
        end_copies();
    };
#endif
    for (int base = 1; base <= n; base += LOADED) {
#pragma unroll
        for (int place = 0; place < LOADED; place++) {
            const int row = base + place;
            if (row > n) break;
#pragma unroll
            for (int turn = 0; turn < TURNS; turn++) {
                char *from = before + turn * BUFFERS * ROW_BYTES, *next = after + turn * BUFFERS * ROW_BYTES;
#if FETCHED
                await_copies<0>();
                join_workers();
                if (EARLY) fetch_next(row, turn);
#elif SPREAD
                /* the row before */
                if (parts > 1 && row > 1)
                    receive_fragments(from, exchange + turn * exchanged, blocks, part * (UNITS / ROWS), own_blocks, row - 1, K);
                join_workers();
                if (announced && thread == 0 && row % CHUNK == 0)
                    announce_rows(flag + turn * next_flag, counted + turn, row);
#endif
                float sums[SUMS][4];
#pragma unroll
                for (int i = 0; i < SUMS; i++) {
                    float4 value = add(own[place][i], heard[place][i]);
                    /* the drive of a GRU's last gate is outside of the reset product */
                    if (GATES == 3 && i / TILES == 2) value = heard[place][i];
                    sums[i][0] = value.x, sums[i][1] = value.y, sums[i][2] = value.z, sums[i][3] = value.w;
                }
#if GATES > 1
                float4 outside[TILES];
#pragma unroll
                for (int i = 0; i < TILES; i++) outside[i] = own[place][(GATES - 1) * TILES + i];
#endif
#if DEFERRED
                read_row(copies, before);
#endif
                Rest rest = {};
                multiply_rows(sums, rest, weights, from + at_row);
#if LOADED > AHEAD
                if (place % AHEAD == 0)
#pragma unroll
                    for (int i = 0; i < AHEAD; i++)
                        load_ahead(own[(place + AHEAD + i) % LOADED], heard[(place + AHEAD + i) % LOADED], 0);
#else
                load_ahead(own[place], heard[place], (turn + 1) % TURNS);
#endif
                add_rest(sums, rest);
                join_sums(sums, sums_memory);
#if FETCHED
                /* the row that was computed last */
                const int last_row = row - (turn == 0), last_turn = (turn + TURNS - 1) % TURNS;
                if (announced && thread == ANNOUNCER && last_row > 0)
                    announce_rows(flag + last_turn * next_flag, counted + last_turn, last_row + 1);
                if (EARLY)
                    glance((turn + 1) % TURNS);
                else
                    fetch_next(row, turn);
#endif
                float values[TILES][4];
                if (owner)
#pragma unroll
                    for (int i = 0; i < TILES; i++) {
#if GATES > 1
                        float kept_planes[KEPT_PLANES][4];
                        const float drives[4] = {outside[i].x, outside[i].y, outside[i].z, outside[i].w};
#endif
#pragma unroll
                        for (int k = 0; k < 4; k++) {
#if GATES > 1
                            float own_sums[GATES];
#pragma unroll
                            for (int q = 0; q < GATES; q++) own_sums[q] = sums[q * TILES + i][k];
                            if (!LSTM) own_sums[GATES - 1] += extra[i][k / 2][0];
                            const Tick tick = compute_tick(own_sums, drives[k], carried[turn][i][k], extra[i][k / 2]);
                            carried[turn][i][k] = tick.state;
#pragma unroll
                            for (int q = 0; q < KEPT_PLANES - 1; q++) kept_planes[q][k] = tick.planes[q];
                            kept_planes[KEPT_PLANES - 1][k] = tick.state;
                            float x = tick.h;
#else
                            float x = sums[i][k];
                            /* NaN stays NaN */
                            x = RECTIFY ? (x < 0 ? 0 : x) : tanh_of<FAST>(x);
#endif
                            /* what lies behind the last unit of a module must stay zero */
                            values[i][k] = FULL || inside[i][k / 2] ? x : 0;
                        }
                        if (there[i]) {
#if SPREAD && !FETCHED
                            if (parts > 1)
                                send_fragment(exchange_place(exchange + turn * exchanged, blocks, row, first_block + i, 0), values[i], row);
#endif
#pragma unroll
                            for (int k = 0; k < 4; k++)
                                if (FULL || (first_block + i) * ROWS + k / 2 * 8 + g < K)
                                    *(element *)(next + at_unit + k % 2 * ROW_PITCH + (i * ROWS + k / 2 * 8) * (int)sizeof(element)) =
                                        store_operand(values[i][k]);
#if GATES > 1
                            if (call.kept != nullptr && (TURNS == 1 || first_tile + turn < call.kept_tiles))
#pragma unroll
                                for (int q = 0; q < KEPT_PLANES; q++)
                                    store_four(kept + q * call.kept_s + turn * tile_size + i * FRAGMENT, kept_planes[q]);
#endif
                        }
                    }
#if GATES > 1
                store_final(row, turn);
#endif
#if !DEFERRED
#pragma unroll
                for (int i = 0; i < TILES; i++)
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        if (inside[i][k / 2] && b + turn * SEQUENCES + k % 2 < B)
                            to[(turn * SEQUENCES + k % 2) * K + i * ROWS + k / 2 * 8] = to_element(values[i][k]);
#endif
#if DEFERRED
                store_row(copies, row > 1, row_size);
#endif
#if !SPREAD
                join_workers();
                /* a row that is copied later is not there yet */
                if (announced && thread == 0 && (row + 1 - DEFERRED) % CHUNK == 0)
                    announce_rows(flag, counted, row + 1 - DEFERRED);
#endif
            }
#if !DEFERRED
            to += row_size;
#endif
#if GATES > 1
            kept += kept_row;
#endif
            char *swap = before;
            before = after;
            after = swap;
        }
    }
#if DEFERRED
    read_row(copies, before);
    store_row(copies, n > 0, row_size);
#endif
    join_workers();
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        if (announced && thread == ANNOUNCER) announce_rows(flag + turn * next_flag, counted + turn, n + 1);
        for (int64 i = thread; i < SEQUENCES * K; i += THREADS) {
            int64 at = (first_tile + turn) * SEQUENCES + i / K, u = i % K;
            if (at >= B || u / UNITS != part) continue;
            int64 end = call.lengths == nullptr ? n : row_at(call.lengths[s * B + at] - 1, m.first_tick, m.period);
            call.final[(s * B + at) * (PARTS * call.N) + m.first_unit + u] = load_through(states + end * row_size + at * K + u);
        }
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
    const uint32 *weights = call.weight + s * GATES * call.weight_s + m.packed * STEPS * PACKED;
    float *all = call.messages + s * GATES * call.messages_s + (m.message_fragments * call.tiles + tile * m.first_block) * FRAGMENT;
    const float *theirs =
        call.messages + s * GATES * call.messages_s + (m2.message_fragments * call.tiles + tile * m2.first_block) * FRAGMENT;
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
            const int blocks = blocks_of(receiver.size), groups = (blocks + WIDE - 1) / WIDE;
            if (telescope) {
                int last = 0, none = 0;
#pragma unroll
                for (int i = 0; i < CHUNK; i++)
                    if (i < rows) last = held[i];
                await_flag(message_flag(call, s, j + 1, r, tile) + part * call.tiles * FLAG_STRIDE, last + 1, none);
                join_warp();
            }
            for (int number = warp * (int)call.message_parts + part; number < groups * GATES;
                 number += WARPS * (int)call.message_parts) {
                const int gate = GATES == 1 ? 0 : number / groups, block = (number - gate * groups) * WIDE;
                const int64 where = gate * call.messages_s + (receiver.first_block + block) * FRAGMENT + lane * 4;
                const uint32 *weight = weights + gate * call.weight_s;
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
                        load_fragments(right, memory + i * SEQUENCES * PITCH + place_of_lane(PITCH) + step * 32);
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
                                *(float4 *)(all + (first + i) * own_row + where + k * FRAGMENT) =
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
    const int64 scans = call.tiles / TURNS * call.parts, senders = call.tiles * call.message_parts;
    const int64 of_module = scans + senders, of_replica = call.G * of_module - senders;
    if (thread_number() < TURNS) counters_of_rows(memory)[thread_number()] = 0;
    const int64 number = take_number_of_block(call.counter, memory);
    const int64 s = number / of_replica, rest = number % of_replica, within = rest % of_module;
    const int64 j = call.G - 1 - rest / of_module;
    if (within < scans)
        scan_module(call, s, j, within / call.parts * TURNS, (int)(within % call.parts), memory);
    else
        send_messages(call, s, j, (within - scans) / call.message_parts, (int)((within - scans) % call.message_parts), memory);
}
