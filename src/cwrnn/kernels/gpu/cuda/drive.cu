/* The drive W_ih x + b at every tick of every module, as fragments that the recurrence reads.
 *
 * A warp computes TILES times 16 units, for TALL ticks of a tile of sequences. Every gate has blocks of its own. Constants
 * as in modules.cuh, where EVEN is about the inputs. */

#include "modules.cuh"

#define TALL 4

struct Call {
    const Module *table;
    const element *input, *weight, *bias; /* weight: (S, GATES N, I); bias: (S, GATES N or more), or NULL */
    const int64 *lengths;                 /* (S, B), or NULL */
    float *drive;
    int64 B, I, N, tiles;
    int64 input_s, input_t, input_b, weight_s, bias_s, drive_s;
};

PROGRAM(THREADS) compute_drive(CALL(Call, call)) {
    const int64 s = block_row() / GATES, gate = block_row() % GATES, I = call.I;
    const int thread = thread_number(), warp = thread / 32, lane = thread % 32, g = lane / 4;
    /* 32 bits suffice, and their quotients are quick */
    const uint32 tiles = (uint32)call.tiles;
    uint32 number = (uint32)block_number();
    const Module *table = call.table;
    uint32 tall, wide;
    for (;; table++) {
        tall = ((uint32)table->ticks * tiles + WARPS * TALL - 1) / (WARPS * TALL);
        wide = (blocks_of(table->size) + TILES - 1) / TILES;
        if (number < tall * wide) break;
        number -= tall * wide;
    }
    const Module m = *table;
    const int blocks = blocks_of(m.size), first_block = (int)(number / tall) * TILES;
    const uint32 first = (number % tall * WARPS + warp) * TALL;
    const element *columns[TALL];
    bool there[TALL];
#pragma unroll
    for (int i = 0; i < TALL; i++) {
        const int64 tick = (first + i) / tiles, b = (first + i) % tiles * SEQUENCES + g, t = m.first_tick + tick * m.period;
        there[i] = tick < m.ticks && b < call.B;
        if (there[i] && call.lengths != nullptr) there[i] = t < call.lengths[s * call.B + b];
        columns[i] = call.input + s * call.input_s + t * call.input_t + b * call.input_b;
    }
    const element *weight = call.weight + s * call.weight_s + gate * call.N * I;
    float sums[TALL][TILES][4] = {}, small[TALL][TILES][4] = {};
    for (int k = 0; k < I; k += INNER) {
        uint32 right[TALL][2];
        Left left[TILES];
#pragma unroll
        for (int i = 0; i < TALL; i++) load_operand(right[i], columns[i], k, I, there[i]);
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int low = 0; low < 2; low++) {
                const int64 u = (first_block + n) * ROWS + low * 8 + g;
                uint32 part[2];
                load_operand(part, weight + (m.first_unit + u) * I, k, I, u < m.size);
#pragma unroll
                for (int high = 0; high < 2; high++) {
#if PRODUCTS == 3
                    split_operand(part[high], left[n].high[low + 2 * high], left[n].low[low + 2 * high]);
#else
                    left[n].high[low + 2 * high] = part[high];
#endif
                }
            }
#pragma unroll
        for (int i = 0; i < TALL; i++)
#pragma unroll
            for (int n = 0; n < TILES; n++) multiply(sums[i][n], small[i][n], left[n], right[i]);
    }
    float bias[TILES][2];
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int low = 0; low < 2; low++) {
            const int64 u = (first_block + n) * ROWS + low * 8 + g;
            bias[n][low] = call.bias != nullptr && u < m.size ? to_float(call.bias[s * call.bias_s + gate * call.N + m.first_unit + u]) : 0;
        }
#pragma unroll
    for (int i = 0; i < TALL; i++) {
        const int64 tick = (first + i) / tiles, tile = (first + i) % tiles;
        if (tick < m.ticks)
#pragma unroll
            for (int n = 0; n < TILES; n++)
                if (first_block + n < blocks) {
                    add_small(sums[i][n], small[i][n]);
                    /* row n is that of tick n, which counts from 1 */
                    int64 at = m.fragments * call.tiles + ((tick + 1) * call.tiles + tile) * blocks + first_block + n;
                    *(float4 *)(call.drive + block_row() * call.drive_s + at * FRAGMENT + lane * 4) =
                        make_float4(sums[i][n][0] + bias[n][0], sums[i][n][1] + bias[n][0], sums[i][n][2] + bias[n][1],
                                    sums[i][n][3] + bias[n][1]);
                }
    }
}
