/* Small networks: what their programs share. `small.py` describes the whole computation and starts them.
 *
 * UNITS is N rounded up to a multiple of 16. GATES is 1 for tanh and relu, 4 for the LSTM (i, f, g, o), and 3 for the GRU
 * (r, z, n). One block computes one sequence. Its first SCAN threads compute the recurrence; HELPERS others prepare the
 * numbers of the next CHUNK steps meanwhile.
 *
 * Four neighbouring threads compute the sums of four rows together: thread q of the four multiplies the columns 16 c + 4 q
 * to 16 c + 4 q + 3, for c = 0, 1, ..., by their weights, which stay in its registers. Its row k is row q ^ k of the four,
 * so that three exchanges add up all rows at once. The rows are four units, or forward in a gated cell the gates of one. With
 * WEIGHT_ROWS of 3, as in a large GRU, row k is gate k, and the fourth thread has no sum of its own.
 *
 * With more than 64 units of a gated cell, small_drive.cu computes the drive of all steps before, there are no helpers, and
 * only the weights of the first IN_REGISTERS groups of columns stay in registers, the others in shared memory. */

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
    int64 held_step;      /* B N: from step to step of `held` */
    element *ticks;       /* the states h of all modules at their ticks, row 0 being the initial one: (rows, B, size) */
    int64 ticks_s;
    element *kept; /* (S, kept_s): see small_gated_forward.cu */
    int64 kept_s, states_size; /* how many numbers the states of all modules have in a replica */
    float *drive; /* (S, T, B, ROWS), for LARGE networks: W_ih x + b, the gates of a unit side by side */
    const element *g_held;
    int64 g_held_s, g_held_t, g_held_b, g_held_n;
    const element *g_ticks; /* as `ticks` */
    const element *g_final; /* as `final` */
    element *g_input, *g_weight_ih, *g_weight_hh, *g_bias, *g_h0, *g_peepholes;
    float *g_drive;  /* (S, T, B, PLANES N): the gradients of the sums that are activated at the ticks; 0 between ticks */
    int64 g_drive_step; /* B PLANES N */
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

template <class T> DEVICE void swap(T &one, T &two) {
    const T last = one;
    one = two, two = last;
}

#ifdef UNITS

#define ROUND_UP(count, multiple) ((count + multiple - 1) / multiple * multiple)
#define SCAN (GATES == 1 ? ROUND_UP(UNITS, 32) : 4 * UNITS)
#define GROUPS (UNITS / 16)
/* The rows of the drive W_ih x + b: the gates of the first unit, those of the second unit, ... */
#define ROWS (GATES * UNITS)
#define DRIVE_WIDTH ROUND_UP(ROWS, 32)
/* True if not all weights have room in registers: then threads that prepare the drive have none either. */
#define LARGE (GATES > 1 && UNITS > 64)
/* Groups of columns. A thread multiplies four columns of each. */
#ifndef WEIGHT_GROUPS
#define WEIGHT_GROUPS GROUPS
#endif
#ifndef IN_REGISTERS
#define IN_REGISTERS WEIGHT_GROUPS
#endif

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

/* The rows of which a thread has weights. */
#ifndef WEIGHT_ROWS
#define WEIGHT_ROWS 4
#endif

/* The weights that a thread multiplies: of all its rows, four columns of every group. */
struct Weights {
    float in_registers[WEIGHT_ROWS][IN_REGISTERS][4];
    float4 *in_shared; /* those of the other groups; behind each lie those of the next threads */

    DEVICE void set(int row, int group, const element (&x)[4]) {
        if (group < IN_REGISTERS)
            for (int i = 0; i < 4; i++) in_registers[row][group][i] = to_float(x[i]);
        else
            in_shared[((group - IN_REGISTERS) * WEIGHT_ROWS + row) * SCAN] =
                make_float4(to_float(x[0]), to_float(x[1]), to_float(x[2]), to_float(x[3]));
    }

    DEVICE float4 get(int row, int group) const {
        const float(&x)[4] = in_registers[row][group];
        return make_float4(x[0], x[1], x[2], x[3]);
    }

    DEVICE float4 get_shared(int row, int group) const {
        return in_shared[((group - IN_REGISTERS) * WEIGHT_ROWS + row) * SCAN];
    }
};

/* Calls load(row, group) for all weights. */
template <class Load> DEVICE void for_all_weights(const Load &load) {
#pragma unroll
    for (int c = WEIGHT_GROUPS - 1; c >= 0; c--) {
#pragma unroll
        for (int k = 0; k < WEIGHT_ROWS; k++) load(k, c);
        /* else the compiler loads more weights at once than there are registers */
        if (LARGE && c % 2 == 0) join_block();
    }
}

/* sums += the products of all rows' weights with four numbers. */
DEVICE void add_products(float (&sums)[WEIGHT_ROWS], const float4 (&weights)[WEIGHT_ROWS], const float4 &x) {
#pragma unroll
    for (int k = 0; k < WEIGHT_ROWS; k++) sums[k] += weights[k].x * x.x;
#pragma unroll
    for (int k = 0; k < WEIGHT_ROWS; k++) sums[k] += weights[k].y * x.y;
#pragma unroll
    for (int k = 0; k < WEIGHT_ROWS; k++) sums[k] += weights[k].z * x.z;
#pragma unroll
    for (int k = 0; k < WEIGHT_ROWS; k++) sums[k] += weights[k].w * x.w;
}

/* The sum of this thread's row over the four threads. */
DEVICE float add_up_rows(const float (&sums)[WEIGHT_ROWS]) {
#if WEIGHT_ROWS == 4
    const float one = shuffle_xor(sums[1], 1), two = shuffle_xor(sums[2], 2), three = shuffle_xor(sums[3], 3);
    return (sums[0] + one) + (two + three);
#else
    /* a thread sends its neighbours their rows; nothing that the fourth one gets is used */
    const int own = thread_number() % 4;
    const float first = sums[0], second = sums[1], third = sums[2];
    const float one = shuffle_xor(select(own == 0, second, select(own == 1, first, third)), 1);
    const float two = shuffle_xor(select(own == 2, first, select(own == 3, second, third)), 2);
    const float three = shuffle_xor(select(own == 3, first, select(own == 2, second, third)), 3);
    return (select(own == 0, first, select(own == 1, second, third)) + one) + (two + three);
#endif
}

/* start + the product of this thread's row with numbers in shared memory. Of WIDE neighbouring threads, each multiplies COUNT
 * groups of four numbers, the first of which `own` points to, and the sums of four threads are added. `meanwhile` runs while
 * the numbers are loaded. */
template <int COUNT, int WIDE, class Work>
DEVICE float multiply(float start, const Weights &weights, const float *own, const Work &meanwhile) {
    constexpr int in_registers = COUNT < IN_REGISTERS ? COUNT : IN_REGISTERS;
    const float4 *from = (const float4 *)own;
    float4 values[in_registers];
#pragma unroll
    for (int c = 0; c < in_registers; c++) values[c] = from[WIDE * c];
    meanwhile();
    float sums[WEIGHT_ROWS] = {WEIGHT_ROWS == 4 ? start : 0};
#pragma unroll
    for (int c = 0; c < in_registers; c++) {
        float4 w[WEIGHT_ROWS];
#pragma unroll
        for (int k = 0; k < WEIGHT_ROWS; k++) w[k] = weights.get(k, c);
        add_products(sums, w, values[c]);
    }
#pragma unroll 2
    for (int c = in_registers; c < COUNT; c++) {
        float4 w[WEIGHT_ROWS];
#pragma unroll
        for (int k = 0; k < WEIGHT_ROWS; k++) w[k] = weights.get_shared(k, c);
        add_products(sums, w, from[WIDE * c]);
    }
    const float sum = add_up_rows(sums);
    return WEIGHT_ROWS == 4 ? sum : sum + start;
}

/* The number of thread `which` of these four neighbours. */
DEVICE float shuffle_among_four(float x, int which) { return shuffle(x, thread_number() % 32 / 4 * 4 + which); }

/* The bitwise or of the words of 16 neighbouring threads. */
DEVICE uint32 join_bits_of_group(uint32 word) {
#pragma unroll
    for (int mask = 1; mask < 16; mask *= 2) word |= bits_of(shuffle_xor(float_of(word), mask));
    return word;
}

/* The ticks of a unit over one chunk after the other. */
struct Countdown {
    int period, left; /* how many steps are left before the next tick */
    uint32 pattern;   /* bit k: a unit that ticks at step 0 of a chunk ticks at step k as well; 0: there is no such unit */

    DEVICE Countdown(const Call &call, int unit) : period(1), left(0), pattern(0) {
        if (unit < call.N) {
            const Module &module = find_module(call, unit);
            period = module.period, left = module.first_tick;
            for (int k = 0; k < CHUNK; k += min(period, CHUNK)) pattern |= 1u << k;
        }
    }

    /* Bit k: the unit ticks at step k of the next chunk. */
    DEVICE uint32 next() {
        const uint32 ticks = (uint32)left < CHUNK ? pattern << left & (~0u >> (32 - CHUNK)) : 0;
        left += count_bits(ticks) * period - CHUNK;
        return ticks;
    }
};

#ifdef INPUTS

/* A helper computes TALL rows and 8 steps of the drive, INPUTS inputs at a time. */

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
DEVICE void compute_drive(const Call &call, const Source &source, Operands &operands, float (&drive)[CHUNK + 1][DRIVE_WIDTH],
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

#endif
#endif

#ifdef TILE

/* Products of matrices, of which a block computes TILE x TILE numbers. */
#define DEPTH 16
#define THREADS 256

/* The shared memory: the operands of DEPTH outer products. Its size is SHARED. */
struct Memory {
    float left[DEPTH][TILE + 4];
    float right[DEPTH][TILE + 4];
};

static_assert(sizeof(Memory) == SHARED, "small.py computes another size");

/* sums += the outer products, and total += the left operands. This thread has 4 x 4 of the sums. */
DEVICE void add_products(float (&sums)[4][4], float (&total)[4], const Memory &memory) {
    const int row = thread_number() / 16 * 4, column = thread_number() % 16 * 4;
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        const float4 a = *(const float4 *)&memory.left[k][row], b = *(const float4 *)&memory.right[k][column];
        const float left[4] = {a.x, a.y, a.z, a.w}, right[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            total[i] += left[i];
#pragma unroll
            for (int j = 0; j < 4; j++) sums[i][j] += left[i] * right[j];
        }
    }
}

/* Stores operands in shared memory and multiplies them, while the next ones are loaded: `load(n, left, right)` loads
 * number n of `count`, of which this thread has four of each side, and `place(i, left, right)` says where they belong. */
template <class Load, class Place>
DEVICE void multiply(int64 count, float (&sums)[4][4], float (&total)[4], Memory &memory, const Load &load, const Place &place) {
    float left[4], right[4];
    load(0, left, right);
    for (int64 n = 0; n < count; n++) {
        join_block();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float *one, *two;
            place(i, one, two);
            *one = left[i], *two = right[i];
        }
        join_block();
        if (n + 1 < count) load(n + 1, left, right);
        add_products(sums, total, memory);
    }
}

/* The lines of a replica as steps and sequences. */
struct Lines {
    int64 B, first_step;
    uint32 first_sequence;

    DEVICE Lines(const Call &call, int64 first) : B(call.B), first_step(first / call.B), first_sequence(first % call.B) {}
    DEVICE int64 step(uint32 offset) const { return first_step + (first_sequence + offset) / (uint32)B; }
    DEVICE int64 sequence(uint32 offset) const { return (first_sequence + offset) % (uint32)B; }
};

DEVICE bool ends_before(const Call &call, int64 s, int64 b, int64 t) {
    return call.lengths != nullptr && t >= call.lengths[s * call.B + b];
}

#endif
#endif
