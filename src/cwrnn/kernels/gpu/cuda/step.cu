/* One time step of one layer, in one launch.
 *
 * A warp computes one unit, or UNITS units of one module if the cell has one gate, for SEQUENCES sequences. The lanes share
 * the products: each of them multiplies 16 bytes of every row of weights with the same 16 bytes of every sequence, and goes
 * on 32 * 16 bytes later. Then the sums of all lanes are added up, such that every lane ends with one of them:
 *
 *     lane = ((row * SEQUENCES) + sequence) * SHARERS + ...        SHARERS lanes have the same sum
 *
 * A row is a gate, or a unit. All gates of a unit meet in one lane, which updates the cell. A warp whose module is not due
 * for any of its sequences copies the state. Every sum has one order, whatever UNITS and SEQUENCES are, so a sequence has
 * the same bits alone and in a batch.
 *
 * Constants: ELEMENT, as in primitives.cuh; CELL; UNITS; SEQUENCES; MODULES, the most modules of a schedule. UNITS *
 * SEQUENCES, for gated cells 4 * SEQUENCES, is a power of two of at most 32. */

#include "primitives.cuh"

#define TANH 0
#define RELU 1
#define LSTM 2
#define GRU 3

#define WARPS 4
#define GATED (CELL == LSTM || CELL == GRU)
#define PARTS (CELL == LSTM ? 2 : 1)
/* Rows of weights that a warp multiplies, and sums that it needs for each sequence. Those of a GRU are r, z, the input's
 * part of n, and the hidden part of n, which are not added before the reset gate is known. */
#define WEIGHTS (CELL == LSTM ? 4 : CELL == GRU ? 3 : UNITS)
#define ROWS (GATED ? 4 : UNITS)
#define SUMS (ROWS * SEQUENCES)
#define SHARERS (32 / SUMS)
/* Elements of 16 bytes. */
#define WIDE (16 / (int)sizeof(element))
/* With few sums, more of them are loaded ahead. */
static const int AHEAD = SUMS <= 4 ? 4 : SUMS <= 8 ? 2 : 1;

struct Module {
    int64 first_group; /* of UNITS units: the warps of this module begin here */
    int64 first_unit, period;
};

/* In the order of stepping.py. All tensors are contiguous. */
struct Call {
    int64 B, I, N, groups, modules;
    const element *weight_ih, *weight_hh;
    const element *bias, *weight_ch; /* NULL if there is none */
    const element *input, *h;
    element *next, *output;
    const int64 *clocks; /* (B,), or NULL: then `clock` is that of all sequences */
    int64 clock;
    Module table[MODULES];
};

DEVICE bool is_aligned(const void *address, int64 elements) {
    return ((unsigned long long)address | (unsigned long long)(elements * (int64)sizeof(element))) % 16 == 0;
}

template <int COUNT> DEVICE void load(float (&numbers)[COUNT], const element *from) {
    if (COUNT == 1)
        numbers[0] = to_float(*from);
    else {
        uint4 all = *(const uint4 *)from;
        uint32 words[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
#if ELEMENT == 0
            numbers[i % COUNT] = float_of(words[i]);
#else
            numbers[2 * i % COUNT] = to_float((element)words[i]);
            numbers[(2 * i + 1) % COUNT] = to_float((element)(words[i] >> 16));
#endif
        }
    }
}

/* Without peepholes, a c that is not finite stays out of the gates. */
DEVICE float add_peephole(const Call &call, float a, float weight, float c) {
    return call.weight_ch != nullptr ? fmaf(weight, c, a) : a;
}

/* What a warp multiplies. */
struct Work {
    const element *weight_ih, *weight_hh; /* its first row */
    const element *input, *h;             /* its first sequence */
    int64 input_size, hidden_size;
    int last_row, last_sequence;
};

/* Adds the products of `count` pieces of COUNT columns: the first `inputs` of them are columns of the input from 0 on, the
 * others columns of the state from `first` on. */
template <int COUNT>
DEVICE void add_products(float (&sums)[SUMS], const Work &work, int lane, int inputs, int count, int64 first) {
#pragma unroll AHEAD
    for (int piece = lane; piece < count; piece += 32) {
        const bool of_input = piece < inputs;
        const int64 column = of_input ? (int64)piece * COUNT : first + (int64)(piece - inputs) * COUNT;
        const int64 width = of_input ? work.input_size : work.hidden_size;
        const element *weight = (of_input ? work.weight_ih : work.weight_hh) + column;
        const element *value = (of_input ? work.input : work.h) + column;
        const int64 weight_row = GATED ? width * work.hidden_size : width;
        const int64 value_row = of_input ? width : PARTS * width;
        float weights[WEIGHTS][COUNT];
#pragma unroll
        for (int row = 0; row < WEIGHTS; row++) load<COUNT>(weights[row], weight + min(row, work.last_row) * weight_row);
#pragma unroll
        for (int s = 0; s < SEQUENCES; s++) {
            float values[COUNT];
            load<COUNT>(values, value + min(s, work.last_sequence) * value_row);
#pragma unroll
            for (int row = 0; row < WEIGHTS; row++) {
                /* the reset gate multiplies what a GRU's gate n reads of the state, but not what it reads of the input */
                const bool is_split = CELL == GRU && row == 2;
                const int own = row * SEQUENCES + s, other = (is_split ? 3 : row) * SEQUENCES + s;
#pragma unroll
                for (int i = 0; i < COUNT; i++) {
                    if (!is_split || of_input)
                        sums[own] = fmaf(weights[row][i], values[i], sums[own]);
                    else
                        sums[other] = fmaf(weights[row][i], values[i], sums[other]);
                }
            }
        }
    }
}

/* The sum of all lanes' sums[lane / SHARERS]. Lanes exchange halves of their sums as long as they have more than one. */
template <int COUNT, int MASK> struct Reduction {
    static DEVICE float add(float (&sums)[SUMS], int lane) {
        const bool high = (lane & MASK) != 0;
        if (COUNT > 1) {
#pragma unroll
            for (int i = 0; i < COUNT / 2; i++) {
                const int upper = (i + COUNT / 2) % SUMS;
                const float sent = high ? sums[i] : sums[upper], kept = high ? sums[upper] : sums[i];
                sums[i] = kept + shuffle_xor(sent, MASK);
            }
        } else
            sums[0] = sums[0] + shuffle_xor(sums[0], MASK);
        return Reduction<(COUNT > 1 ? COUNT / 2 : 1), MASK / 2>::add(sums, lane);
    }
};

template <int COUNT> struct Reduction<COUNT, 0> {
    static DEVICE float add(float (&sums)[SUMS], int) { return sums[0]; }
};

PROGRAM(32 * WARPS) compute_step(CALL(Call, call)) {
    const int lane = thread_number() % 32;
    const int64 group = block_row() * WARPS + thread_number() / 32;
    if (group >= call.groups) return;
    int m = 0;
#pragma unroll
    for (int skip = MODULES / 2; skip > 0; skip /= 2)
        if (m + skip < call.modules && call.table[m + skip].first_group <= group) m += skip;
    const int64 N = call.N, I = call.I, period = call.table[m].period, first = call.table[m].first_unit;
    const int64 end = m + 1 < call.modules ? call.table[m + 1].first_unit : N;
    const int64 first_own = first + (group - call.table[m].first_group) * (GATED ? 1 : UNITS);

    /* the unit and the sequence of the sum that this lane will have */
    const int row = lane / SHARERS / SEQUENCES, first_sequence = block_number() * SEQUENCES;
    const int64 own_sequence = first_sequence + lane / SHARERS % SEQUENCES, own_unit = first_own + (GATED ? 0 : row);
    const int64 b = min(own_sequence, call.B - 1), unit = min(own_unit, end - 1);
    const bool due = (call.clocks != nullptr ? call.clocks[b] : call.clock) % period == 0;
    const element before = call.h[b * PARTS * N + unit];
#if CELL == LSTM
    const element c_before = call.h[b * PARTS * N + N + unit];
    element c_after = c_before;
#endif
    element after = before;
    bool any_due = due;
    if (call.clocks != nullptr) {
        float count = due ? 1.f : 0.f;
#pragma unroll
        for (int mask = 16; mask > 0; mask /= 2) count = count + shuffle_xor(count, mask);
        any_due = count > 0;
    }
    if (any_due) {
        const Work work = {call.weight_ih + first_own * I,
                           call.weight_hh + first_own * N,
                           call.input + first_sequence * I,
                           call.h + first_sequence * PARTS * N,
                           I,
                           N,
                           (int)(GATED ? WEIGHTS - 1 : min((int64)UNITS - 1, end - 1 - first_own)),
                           (int)min((int64)SEQUENCES - 1, call.B - 1 - first_sequence)};
        /* loaded before the products, so that nothing waits for them after */
        float biases[GATED ? 4 : 1] = {};
#pragma unroll
        for (int k = 0; k < (GATED ? 4 : 1); k++)
            if (call.bias != nullptr) biases[k] = to_float(call.bias[k * N + unit]);
#if CELL == LSTM
        float peepholes[3] = {};
#pragma unroll
        for (int k = 0; k < 3; k++)
            if (call.weight_ch != nullptr) peepholes[k] = to_float(call.weight_ch[k * N + unit]);
#endif
        float sums[SUMS] = {};
        /* columns before the first multiple of 16 bytes are multiplied one by one; all of them if rows do not begin at one */
        int alone = (int)I, wide = 0;
        if (is_aligned(call.input, I) && is_aligned(call.weight_ih, I)) alone = 0, wide = (int)(I / WIDE);
        int head = (int)(N - first);
        if (is_aligned(call.h, N) && is_aligned(call.weight_hh, N)) head = (int)min((int64)head, (WIDE - first % WIDE) % WIDE);
        const int rest = (int)((N - first - head) / WIDE);
        add_products<1>(sums, work, lane, alone, alone + head, first);
        add_products<WIDE>(sums, work, lane, wide, wide + rest, first + head);
        const float sum = Reduction<SUMS, 16>::add(sums, lane);
#if GATED
        /* the four sums of a unit and a sequence, in the lanes of row 0 */
        const float sum1 = shuffle_xor(sum, 8), sum2 = shuffle_xor(sum, 16), sum3 = shuffle_xor(sum, 24);
        const float a[4] = {sum + biases[0], sum1 + biases[1], sum2 + biases[2], sum3 + biases[3]};
#if CELL == LSTM
        const float c = to_float(c_before);
        const float input_gate = logistic_of(add_peephole(call, a[0], peepholes[0], c));
        const float forget_gate = logistic_of(add_peephole(call, a[1], peepholes[1], c));
        const float c_now = forget_gate * c + input_gate * tanhf(a[2]);
        const float result = logistic_of(add_peephole(call, a[3], peepholes[2], c_now)) * tanhf(c_now);
        if (due) c_after = to_element(c_now);
#else
        const float n = tanhf(a[2] + logistic_of(a[0]) * a[3]), z = logistic_of(a[1]);
        const float result = (1 - z) * n + z * to_float(before);
#endif
#else
        const float a = sum + biases[0];
#if CELL == TANH
        const float result = tanhf(a);
#else
        const float result = a <= 0 ? 0 : a;
#endif
#endif
        if (due) after = to_element(result);
    }
    if (own_sequence < call.B && own_unit < end && lane % SHARERS == 0 && (!GATED || row == 0)) {
        call.next[b * PARTS * N + unit] = after;
#if CELL == LSTM
        call.next[b * PARTS * N + N + unit] = c_after;
#endif
        call.output[b * N + unit] = after;
    }
}
