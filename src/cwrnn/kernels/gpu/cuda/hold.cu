/* The output, which holds every state until its module ticks again; and the gradients of the states from outside of the
 * recurrence, which are sums over the time that a state was held. Constants as in modules.cuh. */

#include "modules.cuh"

#define HOLD_STEPS 16
#define SUM_STEPS 8
#define SUM_WIDTH 2

struct Call {
    const Module *table;
    const int64 *lengths; /* (S, B), or NULL */
    const element *states;/* per module (ticks + 1, B, K) */
    element *held;        /* (S, T, B, N) */
    const element *g_held, *g_states, *g_final; /* or NULL */
    float *g_outside;                           /* fragments, of all rows */
    int64 T, B, N, G, tiles, states_s, g_held_s, g_held_t, g_held_b, g_outside_s;
};

#if VECTOR
typedef uint4 Piece;
#else
typedef element Piece;
#endif
#define PIECE ((int)(sizeof(Piece) / sizeof(element)))

/* Writes HOLD_STEPS steps of a part of (B, N). */
PROGRAM(THREADS) hold_states(CALL(Call, call)) {
    const int64 s = block_row(), B = call.B, N = call.N;
    /* 32 bits suffice, and their quotients are quick */
    const uint32 pieces = (uint32)N / PIECE, columns = ((uint32)B * pieces + THREADS - 1) / THREADS;
    const uint32 number = (uint32)block_number(), at = number % columns * THREADS + thread_number();
    const int64 begin = (int64)(number / columns) * HOLD_STEPS;
    if (at >= B * pieces) return;
    const int64 b = at / pieces, unit = at % pieces * PIECE;
    const Module *table = call.table;
    while (unit >= table->first_unit + table->size) table++;
    const Module m = *table;
    const int64 row_size = B * m.size;
    const Piece *row = (const Piece *)(call.states + s * call.states_s + m.states + row_at(begin, m.first_tick, m.period) * row_size +
                                       b * m.size + unit - m.first_unit);
    Piece *to = (Piece *)(call.held + ((s * call.T + begin) * B + b) * N + unit);
    const int64 end = begin + HOLD_STEPS < call.T ? begin + HOLD_STEPS : call.T;
    const int64 length = call.lengths == nullptr ? call.T : call.lengths[s * B + b];
    int64 next = m.first_tick + row_at(begin, m.first_tick, m.period) * m.period;
    Piece value = *row;
    const Piece none = {};
#pragma unroll 4
    for (int64 t = begin; t < end; t++) {
        if (t == next) {
            row += row_size / PIECE;
            value = *row;
            next += m.period;
        }
        *to = t < length ? value : none;
        to += B * N / PIECE;
    }
}

DEVICE void add_pair(float &x, float &y, const element *from, bool first, bool second) {
#if EVEN && ELEMENT == 0
    if (first) {
        float2 pair = *(const float2 *)from;
        x += pair.x, y += pair.y;
    }
#elif EVEN
    if (first) {
        uint32 pair = *(const uint32 *)from;
        x += to_float((element)(pair & 0xffffu)), y += to_float((element)(pair >> 16));
    }
#else
    if (first) x += to_float(from[0]);
    if (second) y += to_float(from[1]);
#endif
}

/* Adds up the gradients of every state that come from outside. A warp computes SUM_WIDTH fragments of a row: a lane has two
 * neighbouring units of two sequences. The slowest modules, which have most to add up, come first. */
PROGRAM(THREADS) collect_gradients(CALL(Call, call)) {
    const int64 s = block_row(), B = call.B;
    const int thread = thread_number(), lane = thread % 32, pair = lane / 4, c = lane % 4;
    uint32 number = (uint32)block_number();
    const Module *table = call.table + call.G - 1;
    uint32 per_row;
    for (;; table--) {
        per_row = ((uint32)call.tiles * ((blocks_of(table->size) + SUM_WIDTH - 1) / SUM_WIDTH) + WARPS - 1) / WARPS;
        if (number < ((uint32)table->ticks + 1) * per_row) break;
        number -= ((uint32)table->ticks + 1) * per_row;
    }
    const Module m = *table;
    const int64 row = number / per_row, K = m.size;
    const int blocks = blocks_of(K), groups = (blocks + SUM_WIDTH - 1) / SUM_WIDTH;
    const uint32 within = number % per_row * WARPS + thread / 32;
    if (within >= (uint32)call.tiles * groups) return;
    const int64 tile = within / groups, block = within % groups * SUM_WIDTH, u = block * ROWS + 2 * pair;
    const int64 begin = row > 0 ? m.first_tick + (row - 1) * m.period : 0;
    int64 end = m.first_tick + row * m.period;
    if (end > call.T) end = call.T;
    float sums[2][SUM_WIDTH][2] = {};
#pragma unroll
    for (int high = 0; high < 2; high++) {
        const int64 b = tile * SEQUENCES + 2 * c + high;
        bool first[SUM_WIDTH], second[SUM_WIDTH];
#pragma unroll
        for (int i = 0; i < SUM_WIDTH; i++) first[i] = b < B && u + i * ROWS < K, second[i] = b < B && u + i * ROWS + 1 < K;
        const int64 length = call.lengths != nullptr && b < B ? call.lengths[s * B + b] : call.T;
        if (call.g_held != nullptr) {
            const int64 last = end < length ? end : length;
            const element *from = call.g_held + s * call.g_held_s + b * call.g_held_b + m.first_unit + u;
            int64 t = begin;
            for (; t + SUM_STEPS <= last; t += SUM_STEPS) {
                float xs[SUM_STEPS][SUM_WIDTH][2] = {};
#pragma unroll
                for (int k = 0; k < SUM_STEPS; k++)
#pragma unroll
                    for (int i = 0; i < SUM_WIDTH; i++)
                        add_pair(xs[k][i][0], xs[k][i][1], from + (t + k) * call.g_held_t + i * ROWS, first[i], second[i]);
#pragma unroll
                for (int k = 0; k < SUM_STEPS; k++)
#pragma unroll
                    for (int i = 0; i < SUM_WIDTH; i++) sums[high][i][0] += xs[k][i][0], sums[high][i][1] += xs[k][i][1];
            }
            for (; t < last; t++)
#pragma unroll
                for (int i = 0; i < SUM_WIDTH; i++)
                    add_pair(sums[high][i][0], sums[high][i][1], from + t * call.g_held_t + i * ROWS, first[i], second[i]);
        }
        const int64 final_row = call.lengths == nullptr ? m.ticks : row_at(length - 1, m.first_tick, m.period);
#pragma unroll
        for (int i = 0; i < SUM_WIDTH; i++) {
            float &x = sums[high][i][0], &y = sums[high][i][1];
            if (call.g_states != nullptr)
                add_pair(x, y, call.g_states + s * call.states_s + m.states + (row * B + b) * K + u + i * ROWS, first[i],
                         second[i]);
            if (call.g_final != nullptr && row == final_row)
                add_pair(x, y, call.g_final + (s * B + b) * (PARTS * call.N) + m.first_unit + u + i * ROWS, first[i], second[i]);
        }
    }
    const int64 at = (m.fragments * call.tiles + (row * call.tiles + tile) * blocks + block) * FRAGMENT;
    /* the place of the first unit in a fragment; that of the second one is 16 numbers behind it */
    float *to = call.g_outside + s * call.g_outside_s + at + (2 * pair % 8 * 4 + c) * 4 + pair / 4 * 2;
#pragma unroll
    for (int i = 0; i < SUM_WIDTH; i++)
        if (block + i < blocks)
#pragma unroll
            for (int k = 0; k < 2; k++)
                *(float2 *)(to + i * FRAGMENT + k * 16) = make_float2(sums[0][i][k], sums[1][i][k]);
}
