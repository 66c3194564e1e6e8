/* Backward: the recurrences of all modules at once in reverse, and the gradients of the messages between them.
 *
 * A block computes the recurrence of one module in reverse, or of a part of its units, for 8 sequences. Another block
 * computes what that module receives from the faster ones, CHUNK rows at a time: the gradients of the faster modules' sums
 * are added up over the steps that held a row, which is the gradient of the row's message, and multiplied with the
 * message's weights. Row r of `g_messages` has the gradients of the messages of row r to all faster units, and to the
 * module's own units at its next tick, for every plane of a cell's sums. */

#define REVERSED 1

#if GATES > 1
#include "cells.cuh"
#else
#include "modules.cuh"
#endif

/* Fragments of units that a warp gathers for, and the units of all warps. */
#define WIDTH (SPREAD ? 2 : TILES)
#define GATHER_UNITS (WARPS * WIDTH * ROWS)
/* The bytes that the sums of a chunk take for one gate. A gatherer has those of AT_ONCE gates: of one, or of all. */
#define CHUNK_BYTES (CHUNK * SEQUENCES * PITCH)

struct Call {
    const Module *table;
    int *counter, *flags;
    uint32 *exchange; /* where the parts of a module exchange rows; zeros */
    const uint32 *weight;     /* packed, transposed, of every gate */
    const element *peepholes; /* (S, 3 N), or NULL */
    const element *states;    /* per module (ticks + 1, B, K) */
    const element *kept;      /* of LSTM and GRU, what forward kept */
    const element *g_final;   /* (S, B, PARTS N), or NULL; only an LSTM's is read, and of it only the gradients of c */
    const int64 *lengths;     /* (S, B), or NULL */
    const float *g_outside; /* fragments: the gradients of the states from outside of the recurrence */
    float *g_all;           /* fragments: the same and those from the faster modules, of all modules but the fastest */
    element *g_messages;    /* of every plane, per module (ticks + 1, B, first_unit + K) */
    element *g_h0;          /* (S, B, PARTS N), or NULL */
    float *g_peepholes;     /* (S, tiles, 3 N), or NULL */
    int64 B, N, G, tiles, parts, gather_parts;
    int64 kept_tiles; /* tiles that have a sequence: `tiles` is a multiple of TURNS */
    int64 weight_s, peepholes_s, states_s, kept_s, g_outside_s, g_messages_s, flags_s, exchange_s;
};

DEVICE int *gather_flag(const Call &call, int64 s, int64 j, int64 tile) {
    return call.flags + s * call.flags_s + ((call.G * call.parts + j * call.gather_parts) * call.tiles + tile) * FLAG_STRIDE;
}

/* How many parts of module m gather: each computes the gradients of GATHER_UNITS units. */
DEVICE int gather_parts_of(const Module &m) { return (int)((m.size + GATHER_UNITS - 1) / GATHER_UNITS); }

/* Computes the recurrence of a part of module j in reverse, for TURNS tiles from `first_tile` on. */
DEVICE void scan_module(const Call &call, int64 s, int64 j, int64 first_tile, int part, char *memory) {
    const Module m = call.table[j];
    const int64 B = call.B, K = m.size, end = m.first_unit + K;
    const int n = (int)m.ticks, parts = parts_of(K), blocks = blocks_of(K);
    if (part >= parts) return;
    const int thread = thread_number(), warp = thread / 32, lane = thread % 32, g = lane / 4, c = lane % 4;
    const int group = warp % (WARPS / SPLIT), share = warp / (WARPS / SPLIT);
    const bool owner = SPLIT == 1 || share == 0;
    const int first_block = part * (UNITS / ROWS) + group * TILES;
    const int64 b = first_tile * SEQUENCES + 2 * c;
    int *flag = scan_flag(call, s, j, first_tile) + (FETCHED ? 0 : part * FLAG_STRIDE);
    const int64 next_flag = call.parts * FLAG_STRIDE;
#if SPREAD && !FETCHED
    const int64 exchanged = blocks * (2 * EXCHANGED * 32 * LINES * 4);
    uint32 *exchange = call.exchange + s * call.exchange_s + m.first_block * call.tiles * (2 * EXCHANGED * 32 * LINES * 4) +
                       first_tile * exchanged;
    const int own_blocks = min(UNITS / ROWS, blocks - part * (UNITS / ROWS));
#endif
    const int *gathered = gather_flag(call, s, j, first_tile) + part * UNITS / GATHER_UNITS * call.tiles * FLAG_STRIDE;

    /* rows of gradients of sums: those of a tile by turns, where there are two */
    char *before = memory, *after = memory + (BUFFERS - 1) * ROW_BYTES, *sums_memory = place_of_sums(memory);
    int *counted = counters_of_rows(memory);
    const bool announced = j + 1 < call.G || (FETCHED && parts > 1);
    if (warp == WARPS) {
        if (announced) run_signaller(flag, counted, n + 1);
        return;
    }

    Weights weights;
    load_weights(weights, call.weight + s * GATES * call.weight_s + (m.transposed + first_block * (j + 1) + j) * STEPS * PACKED,
                 (j + 1) * STEPS * PACKED, call.weight_s, share, blocks - first_block);
    for (int i = thread; i < TURNS * BUFFERS * ROW_BYTES / 4; i += THREADS) ((uint32 *)memory)[i] = 0;
    join_workers();

    const int64 tile_size = blocks * FRAGMENT, row_size = call.tiles * tile_size, state_row = B * K, message_row = B * end;
    const int64 last_row = (m.fragments * call.tiles + first_tile * blocks + first_block) * FRAGMENT + lane * 4 + n * row_size;
    const float *gradients = (j > 0 ? call.g_all : call.g_outside) + s * call.g_outside_s + last_row;
    element *messages = call.g_messages + s * PLANES * call.g_messages_s + m.g_messages + n * message_row + b * end +
                        m.first_unit + first_block * ROWS + g;
    int ready[TURNS];

    /* which fragments and units of this lane there are */
    bool there[TILES], inside[TILES][2];
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        there[i] = owner && first_block + i < blocks;
#pragma unroll
        for (int low = 0; low < 2; low++) inside[i][low] = there[i] && (FULL || (first_block + i) * ROWS + low * 8 + g < K);
    }

    /* no tick of the module reads the last row */
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        ready[turn] = 0;
#pragma unroll
        for (int q = 0; q < PLANES; q++)
#pragma unroll
            for (int i = 0; i < TILES; i++)
#pragma unroll
                for (int k = 0; k < 4; k++)
                    if (inside[i][k / 2] && b + turn * SEQUENCES + k % 2 < B)
                        messages[q * call.g_messages_s + (turn * SEQUENCES + k % 2) * end + i * ROWS + k / 2 * 8] = 0;
    }
    messages -= message_row;

    /* the gradients of the next rows, and what else their ticks need: the states, or the planes that forward kept */
    float4 own[LOADED][TILES];
#if GATES > 1
    Four planes[LOADED][TILES][KEPT_PLANES - 1], states[TURNS][TILES], states_before[LOADED][TILES];
    const int64 kept_row = call.kept_tiles * tile_size;
    const element *kept = call.kept + s * KEPT_PLANES * call.kept_s + m.fragments * call.kept_tiles * FRAGMENT +
                          first_tile * tile_size + first_block * FRAGMENT + lane * 4 + n * kept_row;
    /* what the tick after this row leaves: the gradient of c of an LSTM, and of a GRU that of h by itself */
    float later[TURNS][TILES][4] = {}, extra[TILES][2][3], g_peepholes[TILES][2][3] = {};
    int last[TURNS][2];
#else
    /* as words: the compiler would move numbers of 16 bits to other registers, which waits for their loads */
    uint32 h[LOADED][TILES][4];
    const element *states =
        call.states + s * call.states_s + m.states + n * state_row + b * K + first_block * ROWS + g;
#endif
    int issued = n + 1;
    /* loads those of the next row that was not loaded, for one of the tiles */
    auto load_ahead = [&](int place, int turn) {
        if (turn == 0) {
            const bool moves = --issued < n;
            gradients -= moves ? row_size : 0;
#if GATES > 1
            kept -= moves ? kept_row : 0;
#else
            states -= moves ? state_row : 0;
#endif
        }
        const bool is_row = issued >= 0 && owner;
        if (is_row && j > 0 && ready[turn] <= n - issued) await_flag(gathered + turn * FLAG_STRIDE, n + 1 - issued, ready[turn]);
        join_warp();
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const int64 at = turn * tile_size + i * FRAGMENT;
            if (is_row && there[i]) own[place][i] = load_through((const float4 *)(gradients + at));
#if GATES > 1
            if (is_row && there[i] && issued > 0 && (TURNS == 1 || first_tile + turn < call.kept_tiles)) {
#pragma unroll
                for (int q = 0; q < KEPT_PLANES - 1; q++) planes[place][i][q] = load_four(kept + q * call.kept_s + at);
                states_before[place][i] = load_four(kept + (KEPT_PLANES - 1) * call.kept_s + at - kept_row);
            }
#else
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (is_row && inside[i][k / 2] && b + turn * SEQUENCES + k % 2 < B)
                    h[place][i][k] = to_word(states[(turn * SEQUENCES + k % 2) * K + i * ROWS + k / 2 * 8]);
#endif
        }
    };
#if GATES > 1
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
            states[turn][i] = {};
            if (there[i] && first_tile + turn < call.kept_tiles)
                states[turn][i] = load_four(kept + (KEPT_PLANES - 1) * call.kept_s + turn * tile_size + i * FRAGMENT);
        }
    }
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int low = 0; low < 2; low++)
#pragma unroll
            for (int p = 0; p < 3; p++) {
                extra[i][low][p] = 0;
                if (PEEPHOLES && inside[i][low])
                    extra[i][low][p] = to_float(call.peepholes[s * call.peepholes_s + p * call.N + m.first_unit +
                                                               (first_block + i) * ROWS + low * 8 + g]);
            }
#endif
#pragma unroll
    for (int i = 0; i < LOADED; i++) {
#pragma unroll
        for (int k = 0; k < TILES; k++) {
            own[i][k] = make_float4(0, 0, 0, 0);
#if GATES > 1
            states_before[i][k] = {};
#pragma unroll
            for (int q = 0; q < KEPT_PLANES - 1; q++) planes[i][k][q] = {};
#else
            h[i][k][0] = h[i][k][1] = h[i][k][2] = h[i][k][3] = 0;
#endif
        }
        if (i < AHEAD) load_ahead(i, 0);
    }

    const int at_row = place_of_lane(ROW_PITCH) + share * OWN_STEPS * 32;
    const int at_unit = 2 * c * ROW_PITCH + (first_block * ROWS + g) * (int)sizeof(element);
#if DEFERRED
    RowCopies copies;
    plan_copies(copies,
                call.g_messages + s * PLANES * call.g_messages_s + m.g_messages + (n - 1) * message_row + m.first_unit, end,
                call.g_messages_s, first_tile * SEQUENCES, B, K);
#endif
#if FETCHED
    int ready_rows = 0;
    /* looks at the flag of the tile after this one */
    auto glance = [&](int turn) {
        const int next_turn = (turn + 1) % TURNS;
        if (parts > 1) ready_rows = glance_at_flag(flag + next_turn * next_flag);
    };
    /* fetches the gradients of the row that is computed next, of the next tile */
    auto fetch_next = [&](int row, int turn) {
        const int next_row = row - (turn == TURNS - 1), next_turn = (turn + 1) % TURNS;
        if (parts > 1 && next_row < n && next_row >= 0) {
            await_flag(flag + next_turn * next_flag, parts * (n - next_row + 1), ready_rows);
            join_warp();
            fetch_row((turn == TURNS - 1 ? after : before) + next_turn * BUFFERS * ROW_BYTES,
                      call.g_messages + s * PLANES * call.g_messages_s + m.g_messages + next_row * message_row + m.first_unit,
                      call.g_messages_s, end, part, (first_tile + next_turn) * SEQUENCES, B, (int)K);
        }
        ready_rows = 0;
        end_copies();
    };
#endif
    for (int base = n; base >= 0; base -= LOADED) {
#pragma unroll
        for (int place = 0; place < LOADED; place++) {
            const int row = base - place, done = n + 1 - row;
            if (row < 0) break;
#pragma unroll
            for (int turn = 0; turn < TURNS; turn++) {
                char *from = before + turn * BUFFERS * ROW_BYTES, *next = after + turn * BUFFERS * ROW_BYTES;
#if FETCHED
                await_copies<0>();
                join_workers();
                if (EARLY) fetch_next(row, turn);
#elif SPREAD
                /* the gradients of the row after this one */
                if (parts > 1 && row < n)
                    receive_fragments(from, exchange + turn * exchanged, blocks, part * (UNITS / ROWS), own_blocks, done - 1, K);
                join_workers();
                if (announced && thread == 0 && done % CHUNK == 0) announce_rows(flag + turn * next_flag, counted + turn, done);
#endif
                float sums[TILES][4];
#pragma unroll
                for (int i = 0; i < TILES; i++) {
                    const float4 value = own[place][i];
                    sums[i][0] = value.x, sums[i][1] = value.y, sums[i][2] = value.z, sums[i][3] = value.w;
                }
#if GATES > 1
                Four gates[TILES][KEPT_PLANES - 1], state_before[TILES];
#pragma unroll
                for (int i = 0; i < TILES; i++) {
                    state_before[i] = states_before[place][i];
#pragma unroll
                    for (int q = 0; q < KEPT_PLANES - 1; q++) gates[i][q] = planes[place][i][q];
                }
#else
                float factors[TILES][4];
#pragma unroll
                for (int i = 0; i < TILES; i++)
#pragma unroll
                    for (int k = 0; k < 4; k++) {
                        const float state = to_float(to_element_of(h[place][i][k]));
                        factors[i][k] = RECTIFY ? state : (1 - state) * (1 + state);
                    }
#endif
#if DEFERRED
                read_row(copies, before);
#endif
                Rest rest = {};
                if (row < n) multiply_rows(sums, rest, weights, from + at_row);
#if LOADED > AHEAD
                if (place % AHEAD == 0)
#pragma unroll
                    for (int i = 0; i < AHEAD; i++) load_ahead((place + AHEAD + i) % LOADED, 0);
#else
                load_ahead(place, (turn + 1) % TURNS);
#endif
                add_rest(sums, rest);
                join_sums(sums, sums_memory);
#if FETCHED
                /* the row that was computed last */
                const int earlier_row = row + (turn == 0), earlier_turn = (turn + TURNS - 1) % TURNS;
                if (announced && thread == ANNOUNCER && earlier_row > 0 && earlier_row <= n)
                    announce_rows(flag + earlier_turn * next_flag, counted + earlier_turn, n - earlier_row + 2);
                if (EARLY)
                    glance((turn + 1) % TURNS);
                else
                    fetch_next(row, turn);
#endif
#if GATES > 1
                /* of an LSTM the gradient of c from outside, of a GRU the rest of the gradient of h */
#pragma unroll
                for (int i = 0; i < TILES; i++)
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        if (!LSTM)
                            sums[i][k] += later[turn][i][k];
                        else if (row == last[turn][k % 2] && call.g_final != nullptr && inside[i][k / 2] &&
                                 b + turn * SEQUENCES + k % 2 < B)
                            later[turn][i][k] +=
                                to_float(call.g_final[(s * B + b + turn * SEQUENCES + k % 2) * (PARTS * call.N) + call.N +
                                                      m.first_unit + (first_block + i) * ROWS + k / 2 * 8 + g]);
#endif
                if (row == 0) {
                    if (call.g_h0 != nullptr)
#pragma unroll
                        for (int i = 0; i < TILES; i++) {
                            element *to = call.g_h0 + (s * B + b + turn * SEQUENCES) * (PARTS * call.N) + m.first_unit +
                                          first_block * ROWS + g;
#pragma unroll
                            for (int k = 0; k < 4; k++)
                                if (inside[i][k / 2] && b + turn * SEQUENCES + k % 2 < B) {
                                    element *number = to + k % 2 * (PARTS * call.N) + i * ROWS + k / 2 * 8;
                                    *number = to_element(sums[i][k]);
#if GATES > 1
                                    if (LSTM) number[call.N] = to_element(later[turn][i][k]);
#endif
                                }
                        }
#if DEFERRED
                    store_row(copies, done > 1, -message_row);
#endif
                    continue;
                }
                float values[PLANES][TILES][4];
                if (owner)
#pragma unroll
                    for (int i = 0; i < TILES; i++)
#pragma unroll
                        for (int k = 0; k < 4; k++) {
                            /* what lies behind the last unit of a module must stay zero */
                            const bool counts = FULL || inside[i][k / 2];
#if GATES > 1
                            float own_planes[4], gradients_of_sums[4] = {};
#pragma unroll
                            for (int q = 0; q < 4; q++) own_planes[q] = pick(gates[i][q], k);
                            const float state = pick(states[turn][i], k), earlier = pick(state_before[i], k);
                            reverse_tick(gradients_of_sums, later[turn][i][k], sums[i][k], own_planes, state, earlier, extra[i][k / 2]);
#pragma unroll
                            for (int q = 0; q < PLANES; q++) values[q][i][k] = counts ? gradients_of_sums[q] : 0;
                            if (PEEPHOLES && counts && b + turn * SEQUENCES + k % 2 < B) {
                                g_peepholes[i][k / 2][0] += gradients_of_sums[0] * earlier;
                                g_peepholes[i][k / 2][1] += gradients_of_sums[1] * earlier;
                                g_peepholes[i][k / 2][2] += gradients_of_sums[3] * state;
                            }
#else
                            const float x = RECTIFY ? (factors[i][k] <= 0 ? 0 : sums[i][k]) : sums[i][k] * factors[i][k];
                            values[0][i][k] = counts ? x : 0;
#endif
                        }
#if GATES > 1
#pragma unroll
                for (int i = 0; i < TILES; i++) states[turn][i] = state_before[i];
#endif
#pragma unroll
                for (int q = 0; q < PLANES; q++)
#pragma unroll
                    for (int i = 0; i < TILES; i++)
                        if (there[i]) {
#if SPREAD && !FETCHED
                            if (parts > 1 && q < GATES)
                                send_fragment(exchange_place(exchange + turn * exchanged, blocks, done, first_block + i, q),
                                              values[q][i], done);
#endif
                            if (q < GATES || DEFERRED)
#pragma unroll
                                for (int k = 0; k < 4; k++)
                                    if (FULL || (first_block + i) * ROWS + k / 2 * 8 + g < K)
                                        *(element *)(next + at_unit + k % 2 * ROW_PITCH + q * PLANE_BYTES +
                                                     (i * ROWS + k / 2 * 8) * (int)sizeof(element)) = store_operand(values[q][i][k]);
                        }
#if !DEFERRED
#pragma unroll
                for (int q = 0; q < PLANES; q++)
#pragma unroll
                    for (int i = 0; i < TILES; i++)
#pragma unroll
                        for (int k = 0; k < 4; k++)
                            if (inside[i][k / 2] && b + turn * SEQUENCES + k % 2 < B)
                                messages[q * call.g_messages_s + (turn * SEQUENCES + k % 2) * end + i * ROWS + k / 2 * 8] =
                                    to_element(values[q][i][k]);
#endif
#if DEFERRED
                store_row(copies, done > 1, -message_row);
#endif
#if !SPREAD
                join_workers();
                /* rows from row on are there, and row - 1, unless it is copied later */
                if (announced && thread == 0 && done % CHUNK == 0) announce_rows(flag, counted, done);
#endif
            }
#if !DEFERRED
            messages -= message_row;
#endif
            char *swap = before;
            before = after;
            after = swap;
        }
    }
    join_workers();
    if (announced && thread == ANNOUNCER)
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) announce_rows(flag + turn * next_flag, counted + turn, n + 1);
#if GATES > 1
    if (PEEPHOLES && call.g_peepholes != nullptr && owner)
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int low = 0; low < 2; low++)
#pragma unroll
                for (int p = 0; p < 3; p++) {
                    /* the sum over the lanes that have the same unit */
                    float sum = g_peepholes[i][low][p];
                    sum += shuffle_xor(sum, 1);
                    sum += shuffle_xor(sum, 2);
                    if (c == 0 && inside[i][low])
                        call.g_peepholes[(s * call.tiles + first_tile) * (3 * call.N) + p * call.N + m.first_unit +
                                         (first_block + i) * ROWS + low * 8 + g] = sum;
                }
#endif
}

/* Adds up the gradients of some units of a faster module over the rows that each row of module j was held for: into shared
 * memory as operands, and into the gradients of module j's messages if `store`. Row r of `rows` is row last - r. This is done
 * for AT_ONCE gates, the planes of which are `plane` numbers apart. */
DEVICE void add_windows(const element *theirs, element *own, int64 plane, const int *low, const int *high, int rows, int64 last,
                        int64 begin, int64 there, int64 width, int64 end, int64 first, int64 B, bool store, char *memory) {
#if VECTOR
    typedef uint4 piece;
#else
    typedef element piece;
#endif
    const int size = sizeof(piece) / (int)sizeof(element);
    const int pieces = STEPS * INNER / size;
#pragma unroll 2
    for (int i = thread_number(); i < CHUNK * SEQUENCES * pieces; i += THREADS) {
        const int line = i / pieces, row = line / SEQUENCES;
        const int64 u = i % pieces * size, b = first + line % SEQUENCES;
        const bool inside = row < rows && b < B && u < there;
        float sums[AT_ONCE][size] = {};
        if (inside) {
            const element *from = theirs + (low[row] * B + b) * width + begin + u;
            for (int at = low[row]; at < high[row]; at++, from += B * width) {
                piece values[AT_ONCE];
#pragma unroll
                for (int q = 0; q < AT_ONCE; q++) values[q] = load_through((const piece *)(from + q * plane));
#pragma unroll
                for (int q = 0; q < AT_ONCE; q++)
#pragma unroll
                    for (int k = 0; k < size; k++) sums[q][k] += to_float(((const element *)&values[q])[k]);
            }
        }
        char *to = memory + line * PITCH + u * sizeof(element);
        element *to_own = own + ((last - row) * B + b) * end + begin + u;
#pragma unroll
        for (int q = 0; q < AT_ONCE; q++) {
            alignas(16) element rounded[size], operands[size];
#pragma unroll
            for (int k = 0; k < size; k++) {
                rounded[k] = to_element(sums[q][k]);
                operands[k] = ELEMENT == 0 && PRODUCTS == 1 ? to_operand(sums[q][k]) : rounded[k];
            }
            *(piece *)(to + q * CHUNK_BYTES) = *(const piece *)operands;
            if (inside && store) *(piece *)(to_own + q * plane) = *(const piece *)rounded;
        }
    }
}

/* The gradients that module j receives from the faster modules. */
DEVICE void gather_gradients(const Call &call, int64 s, int64 j, int64 tile, int part, char *memory) {
    const Module m = call.table[j];
    const int64 B = call.B, K = m.size, n = m.ticks, end = m.first_unit + K;
    const int thread = thread_number(), warp = thread / 32, lane = thread % 32;
    const int blocks = blocks_of(K), block = (part * WARPS + warp) * WIDTH;
    if (part >= gather_parts_of(m) || thread >= THREADS) return;
    const uint32 *weights = call.weight + s * GATES * call.weight_s + (m.transposed + block * (j + 1)) * STEPS * PACKED;
    element *all = call.g_messages + s * PLANES * call.g_messages_s;
    const int64 here = s * call.g_outside_s + (m.fragments * call.tiles + tile * blocks + block) * FRAGMENT + lane * 4;
    /* the rows of a faster module that began while a row of this one was held: from `low` on, below `high` */
    int *low = (int *)(memory + AT_ONCE * CHUNK_BYTES), *high = low + CHUNK;
#if NESTED
    int ready = 0, gathered = 0;
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
            for (int gate = 0; gate < GATES; gate += AT_ONCE) {
                join_workers();
                if (gate == 0 && (!NESTED || i == 0)) {
                    if (thread < rows) {
                        const int64 row = last - thread, begin = m.first_tick + (row - 1) * m.period;
                        low[thread] = row > 0 ? row_at(begin, q.first_tick, q.period) : 0;
                        high[thread] = row < n ? row_at(begin + m.period, q.first_tick, q.period) : (int)q.ticks + 1;
                    }
                    join_workers();
                }
#if NESTED
                await_all(scan_flag(call, s, j - 1, tile), parts_of(q.size), (int)q.ticks + 1 - low[rows - 1], ready);
                /* Its rows have the gradients of even faster units too, which its first gatherer stores. Without turns, its
                 * recurrence has waited for them. */
                if (FETCHED && j > 1)
                    await_flag(gather_flag(call, s, j - 1, tile), (int)q.ticks + 1 - low[rows - 1], gathered);
                join_warp();
#endif
                element *plane = all + gate * call.g_messages_s;
                add_windows(plane + q.g_messages, plane + m.g_messages, call.g_messages_s, low, high, rows, last, p.first_unit,
                            p.size, q.first_unit + q.size, end, tile * SEQUENCES, B, part == 0, memory);
                join_workers();
                const uint32 *weight = weights + gate * call.weight_s;
                if (block < blocks)
                    for (int step = 0; step < STEPS && step * INNER < p.size; step += 2) {
                        Left left[AT_ONCE][2][WIDTH];
#pragma unroll
                        for (int o = 0; o < AT_ONCE; o++)
#pragma unroll
                            for (int half = 0; half < 2; half++)
#pragma unroll
                                for (int k = 0; k < WIDTH; k++)
                                    load_packed(left[o][half][k],
                                                weight + o * call.weight_s + ((k * (j + 1) + i) * STEPS + step + half) * PACKED,
                                                block + k < blocks);
#pragma unroll
                        for (int o = 0; o < AT_ONCE; o++)
#pragma unroll
                            for (int r = 0; r < CHUNK; r++) {
                                uint32 right[4];
                                const char *row = memory + o * CHUNK_BYTES + r * SEQUENCES * PITCH;
                                load_fragments(right, row + place_of_lane(PITCH) + step * 32);
#pragma unroll
                                for (int half = 0; half < 2; half++) {
                                    const uint32 column[2] = {right[2 * half], right[2 * half + 1]};
#pragma unroll
                                    for (int k = 0; k < WIDTH; k++) multiply(sums[r][k], small[r][k], left[o][half][k], column);
                                }
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
    const int64 scans = call.tiles / TURNS * call.parts, gatherers = call.tiles * call.gather_parts;
    const int64 of_module = scans + gatherers, of_replica = call.G * of_module - gatherers;
    if (thread_number() < TURNS) counters_of_rows(memory)[thread_number()] = 0;
    const int64 number = take_number_of_block(call.counter, memory);
    const int64 s = number / of_replica, rest = number % of_replica + gatherers, within = rest % of_module;
    const int64 j = rest / of_module;
    if (within < gatherers)
        gather_gradients(call, s, j, within / call.gather_parts, (int)(within % call.gather_parts), memory);
    else
        scan_module(call, s, j, (within - gatherers) / call.parts * TURNS, (int)((within - gatherers) % call.parts), memory);
}
