/* Small networks: what their programs share. `small.py` describes the whole computation and starts them.
 *
 * UNITS is N rounded up to a multiple of 16. GATES is 1 for tanh and relu, 4 for the LSTM (i, f, g, o), and 3 for the GRU
 * (r, z, n). One block computes one sequence. Its first SCAN threads compute the recurrence; HELPERS others prepare the
 * numbers of the next CHUNK steps meanwhile.
 *
 * Four neighbouring threads compute the sums of four rows together: thread q of the four multiplies the columns 16 c + 4 q
 * to 16 c + 4 q + 3, for c = 0, 1, ..., by their weights, which stay in its registers. Its row k is row q ^ k of the four,
 * so that three exchanges add up all rows at once. The rows are four units, or forward in a gated cell the gates of one. */

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

/* The planes of a step of `g_drive`. A GRU has r, z, the reset product before r, and n. */
#define PLANES (GATES == 3 ? 4 : GATES)
/* The parts of a state: an LSTM has h and c. */
#define PARTS (GATES == 4 ? 2 : 1)

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
    const element *peepholes; /* (3 N): those of the gates i, f and o */
    int64 peepholes_s;
    const element *h0;
    int64 h0_s, h0_b;
    const int64 *lengths; /* (S, B) */
    element *final;       /* (S, B, N); of an LSTM h and c side by side: (S, B, 2 N) */
    element *held;        /* (S, T, B, N) */
    element *ticks;       /* the states h of all modules at their ticks, row 0 being the initial one: (rows, B, size) */
    int64 ticks_s;
    element *kept; /* (S, kept_s): see small_gated_forward.cu */
    int64 kept_s, states_size; /* how many numbers the states of all modules have in a replica */
    const element *g_held;
    int64 g_held_s, g_held_t, g_held_b, g_held_n;
    const element *g_ticks; /* as `ticks` */
    const element *g_final; /* as `final` */
    element *g_input, *g_weight_ih, *g_weight_hh, *g_bias, *g_h0, *g_peepholes;
    float *g_drive;  /* (S, T, B, PLANES N): the gradients of the sums that are activated at the ticks; 0 between ticks */
    element *before; /* (S, T, B, N): the states at the step before */
    float *parts; /* (S, part_count, PLANES N, columns + 1): parts of the weights' gradients, and of the bias's behind them */
    float *g_peephole_parts; /* (S, B, 3 N) */
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

#define ROUND_UP(count, multiple) ((count + multiple - 1) / multiple * multiple)
#define SCAN (GATES == 1 ? ROUND_UP(UNITS, 32) : 4 * UNITS)
#define GROUPS (UNITS / 16)

/* Waits for the threads that compute the recurrence. */
DEVICE void join_scan() {
    if (SCAN == 32)
        join_warp();
    else
        join_threads<SCAN>();
}

DEVICE void join_helpers() {
    if (HELPERS == 32)
        join_warp();
    else
        join_others<HELPERS>();
}

/* start + the product of this thread's row with the first COUNT * 4 * WIDE of the `numbers` in shared memory, as far as
 * four threads of WIDE neighbours multiply them. `meanwhile` runs while they are loaded. */
template <int COUNT, int WIDE, class Work>
DEVICE float multiply(float start, const float (&weights)[4][GROUPS][4], const float *numbers, const Work &meanwhile) {
    const float4 *from = (const float4 *)numbers + thread_number() % WIDE;
    float4 values[COUNT];
#pragma unroll
    for (int c = 0; c < COUNT; c++) values[c] = from[WIDE * c];
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

/* The number of thread `which` of these four neighbours. */
DEVICE float shuffle_among_four(float x, int which) { return shuffle(x, thread_number() % 32 / 4 * 4 + which); }

/* The bitwise or of a word of COUNT neighbouring threads. */
template <int COUNT> DEVICE uint32 join_bits(uint32 word) {
#pragma unroll
    for (int mask = 1; mask < COUNT; mask *= 2) word |= bits_of(shuffle_xor(float_of(word), mask));
    return word;
}

#ifdef INPUTS

/* The drive W_ih x + b. Its rows are the gates of the first unit, those of the second unit, ... A helper computes TALL rows
 * and 8 steps of it, INPUTS inputs at a time. */
#define ROWS (GATES * UNITS)
#define DRIVE_WIDTH ROUND_UP(ROWS, 32)

/* A helper's sequence. */
struct Source {
    const element *input, *weight, *bias;
    int64 end; /* the step after the last one that is read */
};

DEVICE Source make_source(const Call &call, int64 s, int64 b) {
    return {
        call.input + s * call.input_s + b * call.input_b,
        call.weight_ih + s * call.weight_ih_s,
        call.bias == nullptr ? nullptr : call.bias + s * call.bias_s,
        min(call.T, length_of(call, s, b)),
    };
}

/* The operands of the drive in shared memory. */
struct Operands {
    float weight[INPUTS][ROWS + 4];
    float input[INPUTS][CHUNK + 4];
};

/* Computes the drive of a chunk that begins at step `first`. */
DEVICE void compute_drive(const Call &call, const Source &source, Operands &operands, float (&drive)[CHUNK][DRIVE_WIDTH],
                          int64 first, int helper) {
    /* how many loads, and products with an input, are in flight: their numbers and the sums must fit into the registers */
    constexpr int loads = TALL == 4 ? 16 : 4, products = TALL == 4 ? 4 : 1;
    const int row = helper % (ROWS / TALL) * TALL, step = helper / (ROWS / TALL) * 8;
    const bool works = step < CHUNK;
    const int64 I = call.I, N = call.N, input_t = call.input_t;
    float sums[TALL][8];
#pragma unroll
    for (int m = 0; m < TALL; m++) {
        const int unit = (row + m) / GATES, gate = (row + m) % GATES;
        const float b = works && source.bias != nullptr && unit < N ? to_float(source.bias[gate * N + unit]) : 0;
#pragma unroll
        for (int k = 0; k < 8; k++) sums[m][k] = b;
    }
    for (int64 from = 0; from < I; from += INPUTS) {
        join_helpers();
        if (first == 0 || I > INPUTS) {
#pragma unroll loads
            for (int e = helper; e < INPUTS * ROWS; e += HELPERS) {
                const int i = e % INPUTS, r = e / INPUTS, unit = r / GATES, gate = r % GATES;
                const bool there = unit < N && from + i < I;
                operands.weight[i][r] = there ? to_float(source.weight[(gate * N + unit) * I + from + i]) : 0;
            }
        }
#pragma unroll loads
        for (int e = helper; e < INPUTS * CHUNK; e += HELPERS) {
            const int i = e % INPUTS, k = e / INPUTS;
            const bool there = from + i < I && first + k < source.end;
            operands.input[i][k] = there ? to_float(source.input[(first + k) * input_t + from + i]) : 0;
        }
        join_helpers();
        if (works) {
#pragma unroll products
            for (int i = 0; i < INPUTS; i++) {
                float left[TALL];
#pragma unroll
                for (int m = 0; m < TALL; m += 4) {
                    const float4 w = *(const float4 *)&operands.weight[i][row + m];
                    left[m] = w.x, left[m + 1] = w.y, left[m + 2] = w.z, left[m + 3] = w.w;
                }
                const float4 x = *(const float4 *)&operands.input[i][step], y = *(const float4 *)&operands.input[i][step + 4];
                const float right[8] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
#pragma unroll
                for (int m = 0; m < TALL; m++)
#pragma unroll
                    for (int k = 0; k < 8; k++) sums[m][k] += left[m] * right[k];
            }
        }
    }
    if (works) {
#pragma unroll
        for (int k = 0; k < 8; k++)
#pragma unroll
            for (int m = 0; m < TALL; m += 4)
                *(float4 *)&drive[step + k][row + m] =
                    make_float4(sums[m][k], sums[m + 1][k], sums[m + 2][k], sums[m + 3][k]);
    }
}

/* The ticks of a unit over one chunk after the other. */
struct Countdown {
    int period, left; /* left < 0: there is no such unit */

    DEVICE Countdown(const Call &call, int unit) : period(1), left(-1) {
        if (unit < call.N) {
            const Module &module = find_module(call, unit);
            period = module.period, left = module.first_tick;
        }
    }

    /* Bit k: the unit ticks at step k of the next chunk. */
    DEVICE uint32 next() {
        uint32 ticks = 0;
        if (left >= 0) {
            for (; left < CHUNK; left += period) ticks |= 1u << left;
            left -= CHUNK;
        }
        return ticks;
    }
};

#endif
#endif
#endif
