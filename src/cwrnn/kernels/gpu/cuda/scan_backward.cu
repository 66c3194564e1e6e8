/* Backward: the recurrences of all modules at once in reverse, and the gradients of the messages between them.
 *
 * A block computes the recurrence of one module in reverse, or of a part of its units, for 8 sequences. Another block
 * computes what that module receives from the faster ones, CHUNK rows at a time: the gradients of the faster modules' sums
 * are added up over the steps that held a row, which is the gradient of the row's message, and multiplied with the
 * message's weights. Row r of `g_messages` has the gradients of the messages of row r to all faster units, and to the
 * module's own units at its next tick. */

#include "modules.cuh"

/* Fragments of units that a warp gathers for, and the units of all warps. */
#define WIDTH (SPREAD ? 2 : TILES)
#define GATHER_UNITS (WARPS * WIDTH * ROWS)

struct Call {
    const Module *table;
    int *counter, *flags;
    uint32 *exchange; /* where the parts of a module exchange rows; zeros */
    const uint32 *weight;   /* packed, transposed */
    const element *states;  /* per module (ticks + 1, B, K) */
    const float *g_outside; /* fragments: the gradients of the states from outside of the recurrence */
    float *g_all;           /* fragments: the same and those from the faster modules, of all modules but the fastest */
    element *g_messages;    /* per module (ticks + 1, B, first_unit + K) */
    element *g_h0;          /* (S, B, N), or NULL */
    int64 B, N, G, tiles, parts, gather_parts;
    int64 weight_s, states_s, g_outside_s, g_messages_s, flags_s, exchange_s;
};

DEVICE int *gather_flag(const Call &call, int64 s, int64 j, int64 tile) {
    return call.flags + s * call.flags_s + ((call.G * call.parts + j * call.gather_parts) * call.tiles + tile) * FLAG_STRIDE;
}

/* How many parts of module m gather: each computes the gradients of GATHER_UNITS units. */
DEVICE int gather_parts_of(const Module &m) { return (int)((m.size + GATHER_UNITS - 1) / GATHER_UNITS); }

DEVICE void scan_module(const Call &call, int64 s, int64 j, int64 tile, int part, char *memory) {
    const Module m = call.table[j];
    const int64 B = call.B, K = m.size, end = m.first_unit + K;
    const int n = (int)m.ticks, parts = parts_of(K), blocks = blocks_of(K);
    if (part >= parts) return;
    const int thread = thread_number(), warp = thread / 32, lane = thread % 32, g = lane / 4, c = lane % 4;
    const int group = warp % (WARPS / SPLIT), share = warp / (WARPS / SPLIT);
    const bool owner = SPLIT == 1 || share == 0;
    const int first_block = part * (UNITS / ROWS) + group * TILES;
    const int64 b = tile * SEQUENCES + 2 * c;
    int *flag = scan_flag(call, s, j, tile) + part * FLAG_STRIDE;
#if SPREAD
    uint32 *exchange = call.exchange + s * call.exchange_s +
                       ((m.first_block * call.tiles + tile * blocks) * 2) * (32 * LINES * 4);
#endif
    const int *gathered = gather_flag(call, s, j, tile) + part * UNITS / GATHER_UNITS * call.tiles * FLAG_STRIDE;

    /* two rows of gradients of sums, by turns */
    char *before = memory, *after = memory + SEQUENCES * PITCH, *sums_memory = memory + 2 * SEQUENCES * PITCH;
    int *counted = counter_of_rows(memory);
    const bool announced = j + 1 < call.G;
    if (warp == WARPS) {
        if (announced) run_signaller(flag, counted, n + 1);
        return;
    }

    Weights weights;
    load_weights(weights,
                 call.weight + s * call.weight_s +
                     ((m.transposed + first_block * (j + 1) + j) * STEPS + share * OWN_STEPS) * PACKED,
                 (j + 1) * STEPS * PACKED, blocks - first_block);
    for (int i = thread; i < 2 * SEQUENCES * PITCH / 4; i += THREADS) ((uint32 *)memory)[i] = 0;
    join_workers();

    const int64 row_size = call.tiles * blocks * FRAGMENT, state_row = B * K, message_row = B * end;
    const int64 last = s * call.g_outside_s + n * row_size + (m.fragments * call.tiles + tile * blocks + first_block) * FRAGMENT +
                       lane * 4;
    const float *gradients = (j > 0 ? call.g_all : call.g_outside) + last;
    const element *states =
        call.states + s * call.states_s + m.states + n * state_row + b * K + first_block * ROWS + g;
    element *messages = call.g_messages + s * call.g_messages_s + m.g_messages + n * message_row + b * end + m.first_unit +
                        first_block * ROWS + g;
    int ready = 0;

    /* which fragments, units and sequences of this lane there are */
    bool there[TILES], inside[TILES][4];
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        there[i] = owner && first_block + i < blocks;
#pragma unroll
        for (int k = 0; k < 4; k++)
            inside[i][k] = there[i] && (FULL || (first_block + i) * ROWS + k / 2 * 8 + g < K) && b + k % 2 < B;
    }

    /* no tick of the module reads the last row */
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (inside[i][k]) messages[k % 2 * end + i * ROWS + k / 2 * 8] = 0;
    messages -= message_row;

    /* the gradients and the states of the next rows */
    float4 own[AHEAD][TILES];
    element h[AHEAD][TILES][4];
    int issued = n;
    auto load_ahead = [&](float4(&values)[TILES], element(&state)[TILES][4]) {
        if (issued >= 0 && owner) {
            if (j > 0 && ready <= n - issued) await_flag(gathered, n + 1 - issued, ready);
            join_warp();
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                if (there[i]) values[i] = load_through((const float4 *)(gradients + i * FRAGMENT));
#pragma unroll
                for (int k = 0; k < 4; k++)
                    if (inside[i][k]) state[i][k] = states[k % 2 * K + i * ROWS + k / 2 * 8];
            }
            gradients -= row_size, states -= state_row;
        }
        issued--;
    };
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
#pragma unroll
        for (int k = 0; k < TILES; k++) {
            own[i][k] = make_float4(0, 0, 0, 0);
            h[i][k][0] = h[i][k][1] = h[i][k][2] = h[i][k][3] = 0;
        }
        load_ahead(own[i], h[i]);
    }

    const int at_row = place_of_lane() + share * OWN_STEPS * 32;
    const int at_unit = 2 * c * PITCH + (first_block * ROWS + g) * (int)sizeof(element);
#if DEFERRED
    RowCopies copies;
    plan_copies(copies, call.g_messages + s * call.g_messages_s + m.g_messages + (n - 1) * message_row + m.first_unit, end,
                tile * SEQUENCES, B, K);
#endif
    for (int base = n; base >= 0; base -= AHEAD) {
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ahead++) {
            const int row = base - ahead;
            if (row < 0) break;
            float sums[TILES][4];
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                const float4 value = own[ahead][i];
                sums[i][0] = value.x, sums[i][1] = value.y, sums[i][2] = value.z, sums[i][3] = value.w;
            }
            float factors[TILES][4];
#pragma unroll
            for (int i = 0; i < TILES; i++)
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const float state = to_float(h[ahead][i][k]);
                    factors[i][k] = RECTIFY ? state : (1 - state) * (1 + state);
                }
            if (row < n) {
                multiply_rows(sums, weights, before + at_row);
                join_sums(sums, sums_memory);
            }
            load_ahead(own[ahead], h[ahead]);
            const int done = n + 1 - row;
            if (row == 0) {
                if (call.g_h0 != nullptr)
#pragma unroll
                    for (int i = 0; i < TILES; i++) {
                        element *to = call.g_h0 + (s * B + b) * call.N + m.first_unit + first_block * ROWS + g;
#pragma unroll
                        for (int k = 0; k < 4; k++)
                            if (inside[i][k]) to[k % 2 * call.N + i * ROWS + k / 2 * 8] = to_element(sums[i][k]);
                    }
#if DEFERRED
                if (done > 1) copy_row(copies, before, -message_row);
#endif
                break;
            }
#if DEFERRED
            if (done > 1) copy_row(copies, before, -message_row);
#endif
#pragma unroll
            for (int i = 0; i < TILES; i++)
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const float x = RECTIFY ? (factors[i][k] <= 0 ? 0 : sums[i][k]) : sums[i][k] * factors[i][k];
                    /* what lies behind the last unit of a module must stay zero */
                    sums[i][k] = FULL || (there[i] && (first_block + i) * ROWS + k / 2 * 8 + g < K) ? x : 0;
                }
#pragma unroll
            for (int i = 0; i < TILES; i++)
                if (there[i]) {
#if SPREAD
                    if (parts > 1) send_fragment(exchange_place(exchange, blocks, done, first_block + i), sums[i], done);
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
                    if (inside[i][k]) messages[k % 2 * end + i * ROWS + k / 2 * 8] = to_element(sums[i][k]);
            messages -= message_row;
#endif
#if SPREAD
            if (parts > 1)
                receive_fragments(after, exchange, blocks, part * (UNITS / ROWS), min(UNITS / ROWS, blocks - part * (UNITS / ROWS)),
                                  done, K);
#endif
            join_workers();
            /* rows from row on are there, and row - 1, unless it is copied later */
            if (announced && thread == 0 && done % CHUNK == 0) announce_rows(flag, counted, done);
            char *swap = before;
            before = after;
            after = swap;
        }
    }
    join_workers();
    if (announced && thread == 0) announce_rows(flag, counted, n + 1);
}

/* Adds up the gradients of some units of a faster module over the rows that each row of module j was held for: into shared
 * memory as operands, and into the gradients of module j's messages if `store`. Row r of `rows` is row last - r. */
DEVICE void add_windows(const element *theirs, element *own, const int *low, const int *high, int rows, int64 last, int64 begin,
                        int64 there, int64 width, int64 end, int64 first, int64 B, bool store, char *memory) {
#if VECTOR
    const int size = 16 / (int)sizeof(element);
#else
    const int size = 1;
#endif
    const int pieces = STEPS * INNER / size;
#pragma unroll 2
    for (int i = thread_number(); i < CHUNK * SEQUENCES * pieces; i += THREADS) {
        const int line = i / pieces, row = line / SEQUENCES;
        const int64 u = i % pieces * size, b = first + line % SEQUENCES;
        const bool inside = row < rows && b < B && u < there;
        float sums[size] = {};
        if (inside) {
            const element *from = theirs + (low[row] * B + b) * width + begin + u;
            for (int at = low[row]; at < high[row]; at++, from += B * width) {
#if VECTOR
                const uint4 value = load_through((const uint4 *)from);
                const element *values = (const element *)&value;
#else
                const element value = load_through(from), *values = &value;
#endif
#pragma unroll
                for (int k = 0; k < size; k++) sums[k] += to_float(values[k]);
            }
        }
        element rounded[size], operands[size];
#pragma unroll
        for (int k = 0; k < size; k++) {
            rounded[k] = to_element(sums[k]);
            operands[k] = ELEMENT == 0 && PRODUCTS == 1 ? to_operand(sums[k]) : rounded[k];
        }
        char *to = memory + line * PITCH + u * sizeof(element);
        element *to_own = own + ((last - row) * B + b) * end + begin + u;
#if VECTOR
        *(uint4 *)to = *(const uint4 *)operands;
        if (inside && store) *(uint4 *)to_own = *(const uint4 *)rounded;
#else
        *(element *)to = operands[0];
        if (inside && store) *to_own = rounded[0];
#endif
    }
}

/* The gradients that module j receives from the faster modules. */
DEVICE void gather_gradients(const Call &call, int64 s, int64 j, int64 tile, int part, char *memory) {
    const Module m = call.table[j];
    const int64 B = call.B, K = m.size, n = m.ticks, end = m.first_unit + K;
    const int thread = thread_number(), warp = thread / 32, lane = thread % 32;
    const int blocks = blocks_of(K), block = (part * WARPS + warp) * WIDTH;
    if (part >= gather_parts_of(m) || thread >= THREADS) return;
    const uint32 *weight = call.weight + s * call.weight_s + (m.transposed + block * (j + 1)) * STEPS * PACKED;
    element *own = call.g_messages + s * call.g_messages_s + m.g_messages;
    const int64 here = s * call.g_outside_s + (m.fragments * call.tiles + tile * blocks + block) * FRAGMENT + lane * 4;
    /* the rows of a faster module that began while a row of this one was held: from `low` on, below `high` */
    int *low = (int *)(memory + CHUNK * SEQUENCES * PITCH), *high = low + CHUNK;
#if NESTED
    int ready = 0;
#else
    for (int64 i = 0; i < j; i++) {
        int none = 0;
        await_all(scan_flag(call, s, i, tile), parts_of(call.table[i].size), (int)call.table[i].ticks + 1, none);
    }
#endif
    for (int64 last = n; last >= 0; last -= CHUNK) {
        /* rows last, down to last - rows + 1 */
        const int rows = (int)(last + 1 < CHUNK ? last + 1 : CHUNK);
        float sums[CHUNK][WIDTH][4] = {}, small[CHUNK][WIDTH][4] = {};
        for (int64 i = 0; i < j; i++) {
            /* with nested periods, the next faster module has added up the gradients of all faster ones */
            const Module p = call.table[i], q = call.table[NESTED ? j - 1 : i];
            join_workers();
            if (!NESTED || i == 0) {
                if (thread < rows) {
                    const int64 row = last - thread, begin = m.first_tick + (row - 1) * m.period;
                    low[thread] = row > 0 ? row_at(begin, q.first_tick, q.period) : 0;
                    high[thread] = row < n ? row_at(begin + m.period, q.first_tick, q.period) : (int)q.ticks + 1;
                }
                join_workers();
            }
#if NESTED
            await_all(scan_flag(call, s, j - 1, tile), parts_of(q.size), (int)q.ticks + 1 - low[rows - 1], ready);
#endif
            add_windows(call.g_messages + s * call.g_messages_s + q.g_messages, own, low, high, rows, last, p.first_unit, p.size,
                        q.first_unit + q.size, end, tile * SEQUENCES, B, part == 0, memory);
            join_workers();
            if (block < blocks)
                for (int step = 0; step < STEPS && step * INNER < p.size; step += 2) {
                    Left left[2][WIDTH];
#pragma unroll
                    for (int half = 0; half < 2; half++)
#pragma unroll
                        for (int k = 0; k < WIDTH; k++)
                            load_packed(left[half][k], weight + ((k * (j + 1) + i) * STEPS + step + half) * PACKED,
                                        block + k < blocks);
#pragma unroll
                    for (int r = 0; r < CHUNK; r++) {
                        uint32 right[4];
                        load_fragments(right, memory + r * SEQUENCES * PITCH + place_of_lane() + step * 32);
#pragma unroll
                        for (int half = 0; half < 2; half++) {
                            const uint32 column[2] = {right[2 * half], right[2 * half + 1]};
#pragma unroll
                            for (int k = 0; k < WIDTH; k++) multiply(sums[r][k], small[r][k], left[half][k], column);
                        }
                    }
                }
        }
#pragma unroll
        for (int r = 0; r < CHUNK; r++) {
            const int64 at = here + (last - r) * (call.tiles * blocks * FRAGMENT);
#pragma unroll
            for (int k = 0; k < WIDTH; k++)
                if (r < rows && block + k < blocks) {
                    add_small(sums[r][k], small[r][k]);
                    const float4 outside = *(const float4 *)(call.g_outside + at + k * FRAGMENT);
                    *(float4 *)(call.g_all + at + k * FRAGMENT) =
                        add(outside, make_float4(sums[r][k][0], sums[r][k][1], sums[r][k][2], sums[r][k][3]));
                }
        }
        join_workers();
        if (thread == 0) add_to_flag(gather_flag(call, s, j, tile) + part * call.tiles * FLAG_STRIDE, rows);
    }
}

/* Roles, fastest module first: the recurrence of a module, what the next slower one receives, the recurrence of that. */
PROGRAM(ALL_THREADS) scan_backward(CALL(Call, call)) {
    SHARED_MEMORY(memory);
    const int64 scans = call.tiles * call.parts, gatherers = call.tiles * call.gather_parts;
    const int64 of_module = scans + gatherers, of_replica = call.G * of_module - gatherers;
    if (thread_number() == 0) *counter_of_rows(memory) = 0;
    const int64 number = take_number_of_block(call.counter, memory);
    const int64 s = number / of_replica, rest = number % of_replica + gatherers, within = rest % of_module;
    const int64 j = rest / of_module;
    if (within < gatherers)
        gather_gradients(call, s, j, within / call.gather_parts, (int)(within % call.gather_parts), memory);
    else
        scan_module(call, s, j, (within - gatherers) / call.parts, (int)((within - gatherers) % call.parts), memory);
}
