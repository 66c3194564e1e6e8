/* Weights as left operands of the products with states: rounded, zero where there are none, and in the order in which the
 * lanes of a warp load them. Constants as in modules.cuh; TRANSPOSED: for the gradients of states. */

#include "modules.cuh"

struct Call {
    const Module *table;
    const element *weight; /* (S, GATES N, N) */
    uint32 *packed;        /* (S, GATES, fragments, 32, WORDS) */
    int *flags;            /* the counters and flags of the program that follows, to be set to zero */
    int64 N, fragments, weight_s, flag_count, columns;
};

/* A warp packs one fragment.
 *
 * Forward, module j has a fragment for every 16 units that it sends to, of the fastest module first, and every step of its
 * own units. Transposed, it has a fragment for every 16 units of its own, every module that it sends to, and every step of
 * that module's units. */
PROGRAM(THREADS) pack_weights(CALL(Call, call)) {
    const int64 s = block_row() / GATES, gate = block_row() % GATES;
    const int lane = thread_number() % 32, g = lane / 4, c = lane % 4;
    const int64 number = block_number() * WARPS + thread_number() / 32;
    if (block_row() == 0)
        for (int64 i = block_number() * THREADS + thread_number(); i < call.flag_count; i += call.columns * THREADS)
            call.flags[i] = 0;
    if (number >= call.fragments) return;
    const int block = (int)(number / STEPS), step = (int)(number % STEPS);
    int j = 0, within;
#if TRANSPOSED
    while (block >= call.table[j].transposed + (int64)blocks_of(call.table[j].size) * (j + 1)) j++;
    const Module m = call.table[j];
    within = block - (int)m.transposed;
    const Module q = call.table[within % (j + 1)];
    const int64 row = within / (j + 1) * ROWS + g, rows = m.size, inner = q.size;
#else
    while (block >= call.table[j].packed + call.table[j].first_block + blocks_of(call.table[j].size)) j++;
    const Module m = call.table[j];
    within = block - (int)m.packed;
    int i = 0;
    while (within >= call.table[i].first_block + blocks_of(call.table[i].size)) i++;
    const Module q = call.table[i];
    const int64 row = (within - q.first_block) * ROWS + g, rows = q.size, inner = m.size;
#endif
    const element *weight = call.weight + s * call.weight_s + gate * call.N * call.N;
    auto load = [&](int64 u, int64 k) {
        if (u >= rows || k >= inner) return (element)0;
        const int64 receiver = q.first_unit + (TRANSPOSED ? k : u), sender = m.first_unit + (TRANSPOSED ? u : k);
        return weight[receiver * call.N + sender];
    };
    uint32 *to = call.packed + ((block_row() * call.fragments + number) * 32 + lane) * WORDS;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int64 u = row + i % 2 * 8;
#if ELEMENT == 0
        const uint32 value = bits_of(load(u, step * INNER + i / 2 * 4 + c));
#if PRODUCTS == 3
        split_operand(value, to[i], to[4 + i]);
#else
        to[i] = bits_of(round_to_tf32(float_of(value)));
#endif
#else
        const int64 k = step * INNER + i / 2 * 8 + 2 * c;
        to[i] = (uint32)load(u, k) | (uint32)load(u, k + 1) << 16;
#endif
    }
}
