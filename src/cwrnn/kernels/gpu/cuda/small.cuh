/* Small networks: what their programs share. `small.py` describes the whole computation and starts them.
 *
 * UNITS is N rounded up to a multiple of 16. One block computes one sequence. Its first SCAN threads compute the
 * recurrence, one unit each; as many others, the helpers, prepare the numbers of the next CHUNK steps meanwhile.
 *
 * Four neighbouring threads compute the products of their four units together: thread q of the four multiplies the
 * columns 16 c + 4 q to 16 c + 4 q + 3, for c = 0, 1, ..., by their weights, which stay in its registers. Its row k is
 * unit q ^ k of the four, so that three exchanges add up all rows at once. */

#ifndef CWRNN_SMALL
#define CWRNN_SMALL

#include "primitives.cuh"

/* A module over T steps. */
struct Module {
    int period, first_tick; /* the time of the first tick, counted from the start of the sequence */
    int first_unit, size;
    int64 states; /* where its states begin among those of all modules */
};

#define MOST_MODULES 128

/* The arguments of all programs. Names that end in _s, _t, _b and _n are strides of replicas, steps, sequences and units.
 * Tensors that are not there are NULL. */
struct Call {
    int64 T, B, I, N, G;
    const element *input;
    int64 input_s, input_t, input_b;
    const element *weight_ih;
    int64 weight_ih_s;
    const element *weight_hh;
    int64 weight_hh_s;
    const element *bias;
    int64 bias_s;
    const element *h0;
    int64 h0_s, h0_b;
    const int64 *lengths; /* (S, B) */
    element *final;       /* (S, B, N) */
    element *held;        /* (S, T, B, N) */
    element *ticks;
    int64 ticks_s;
    const element *g_held;
    int64 g_held_s, g_held_t, g_held_b, g_held_n;
    const element *g_ticks; /* as `ticks` */
    const element *g_final; /* (S, B, N) */
    element *g_input, *g_weight_ih, *g_weight_hh, *g_bias, *g_h0;
    float *g_drive;  /* (S, T, B, N): the gradients of the sums that are activated at the ticks; 0 between ticks */
    element *before; /* (S, T, B, N): the states at the step before */
    float *parts;    /* (S, part_count, N, columns + 1): parts of the weights' gradients, and of the bias's behind them */
    int64 part_count, part_lines, first_column, columns;
    Module modules[MOST_MODULES];
};

DEVICE const Module &find_module(const Call &call, int unit) {
    int j = 0;
    while (unit >= call.modules[j].first_unit + call.modules[j].size) j++;
    return call.modules[j];
}

/* How many ticks a module has. */
DEVICE int count_ticks(const Module &module, int64 T) {
    return module.first_tick < T ? (int)((T - 1 - module.first_tick) / module.period) + 1 : 0;
}

DEVICE bool ticks_at(const Module &module, int64 t) {
    return t >= module.first_tick && (t - module.first_tick) % module.period == 0;
}

DEVICE int64 length_of(const Call &call, int64 s, int64 b) {
    return call.lengths == nullptr ? call.T : call.lengths[s * call.B + b];
}

#ifdef UNITS

#define SCAN ((UNITS + 31) / 32 * 32)
#define GROUPS (UNITS / 16)

/* Waits for the threads that compute the recurrence. */
DEVICE void join_scan() {
    if (SCAN == 32)
        join_warp();
    else
        join_threads<SCAN>();
}

DEVICE void join_helpers() {
    if (SCAN == 32)
        join_warp();
    else
        join_others<SCAN>();
}

/* start + the product of this thread's unit with the first COUNT * 16 of the `numbers` in shared memory. `meanwhile`
 * runs while they are loaded. */
template <int COUNT, class Work>
DEVICE float multiply(float start, const float (&weights)[4][GROUPS][4], const float *numbers, const Work &meanwhile) {
    const float4 *from = (const float4 *)numbers + thread_number() % 4;
    float4 values[COUNT];
#pragma unroll
    for (int c = 0; c < COUNT; c++) values[c] = from[4 * c];
    meanwhile();
    float sums[4] = {start, 0, 0, 0};
#pragma unroll
    for (int c = 0; c < COUNT; c++) {
#pragma unroll
        for (int k = 0; k < 4; k++) sums[k] += weights[k][c][0] * values[c].x;
#pragma unroll
        for (int k = 0; k < 4; k++) sums[k] += weights[k][c][1] * values[c].y;
#pragma unroll
        for (int k = 0; k < 4; k++) sums[k] += weights[k][c][2] * values[c].z;
#pragma unroll
        for (int k = 0; k < 4; k++) sums[k] += weights[k][c][3] * values[c].w;
    }
    const float one = shuffle_xor(sums[1], 1), two = shuffle_xor(sums[2], 2), three = shuffle_xor(sums[3], 3);
    return (sums[0] + one) + (two + three);
}

/* The bitwise or of a word of COUNT neighbouring threads. */
template <int COUNT> DEVICE uint32 join_bits(uint32 word) {
#pragma unroll
    for (int mask = 1; mask < COUNT; mask *= 2) word |= bits_of(shuffle_xor(float_of(word), mask));
    return word;
}

#endif
#endif
