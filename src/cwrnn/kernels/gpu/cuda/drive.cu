/* The drive W_ih x + b at every tick of every module, as fragments that the recurrence reads.
 *
 * A warp computes TALL ticks of a tile of sequences and TILES fragments of units. Constants as in modules.cuh, where EVEN
 * is about the inputs. */

#include "modules.cuh"

#define TALL 2

struct Call {
    const Module *table;
    const element *input, *weight, *bias; /* bias: (S, N), or NULL */
    const int64 *lengths;                 /* (S, B), or NULL */
    float *drive;
    int64 B, I, N, tiles;
    int64 input_s, input_t, input_b, weight_s, bias_s, drive_s;
};

PROGRAM(THREADS) compute_drive(CALL(Call, call)) {
    const int64 s = block_row(), I = call.I;
    const int thread = thread_number(), warp = thread / 32, lane = thread % 32, g = lane / 4, c = lane % 4;
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
    const element *rows[TALL][2];
    bool there[TALL][2];
#pragma unroll
    for (int i = 0; i < TALL; i++) {
        const int64 tick = (first + i) / tiles, tile = (first + i) % tiles;
        const int64 t = m.first_tick + tick * m.period;
#pragma unroll
        for (int high = 0; high < 2; high++) {
            const int64 b = tile * SEQUENCES + g + 8 * high;
            there[i][high] = tick < m.ticks && b < call.B;
            if (there[i][high] && call.lengths != nullptr) there[i][high] = t < call.lengths[s * call.B + b];
            rows[i][high] = call.input + s * call.input_s + t * call.input_t + b * call.input_b;
        }
    }
    const element *weight = call.weight + s * call.weight_s;
    float sums[TALL][TILES][4] = {}, small[TALL][TILES][4] = {};
    for (int k = 0; k < I; k += INNER) {
        uint32 high[TILES][2], low[TILES][2], left[TALL][4];
#pragma unroll
        for (int i = 0; i < TALL; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32 pair[2];
                load_right(pair, rows[i][half], k, I, there[i][half]);
                left[i][half] = pair[0], left[i][half + 2] = pair[1];
            }
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            const int64 u = (first_block + n) * 8 + g;
            load_right(high[n], weight + (m.first_unit + u) * I, k, I, u < m.size);
#if PRODUCTS == 3
#pragma unroll
            for (int i = 0; i < 2; i++) split_operand(high[n][i], high[n][i], low[n][i]);
#else
            low[n][0] = low[n][1] = 0;
#endif
        }
#pragma unroll
        for (int i = 0; i < TALL; i++) multiply_step(sums[i], small[i], left[i], high, low);
    }
    float bias[TILES][2];
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int64 u = (first_block + n) * 8 + 2 * c + i;
            bias[n][i] = call.bias != nullptr && u < m.size ? to_float(call.bias[s * call.bias_s + m.first_unit + u]) : 0;
        }
#pragma unroll
    for (int i = 0; i < TALL; i++) {
        const int64 tick = (first + i) / tiles, tile = (first + i) % tiles;
        add_small(sums[i], small[i]);
        if (tick < m.ticks)
#pragma unroll
            for (int n = 0; n < TILES; n++)
                if (first_block + n < blocks) {
                    /* row n is that of tick n, which counts from 1 */
                    int64 at = m.fragments * call.tiles + ((tick + 1) * call.tiles + tile) * blocks + first_block + n;
                    *(float4 *)(call.drive + s * call.drive_s + at * FRAGMENT + lane * 4) =
                        make_float4(sums[i][n][0] + bias[n][0], sums[i][n][1] + bias[n][1], sums[i][n][2] + bias[n][0],
                                    sums[i][n][3] + bias[n][1]);
                }
    }
}
