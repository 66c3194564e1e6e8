/* The table of modules, and the products of their states with weights, for the programs that run modules one by one.
 *
 * A tile is 16 sequences. A fragment is 16 sequences x 8 units of float, in the order in which the matrix unit leaves its
 * sums: lane 4 g + c has units 2 c and 2 c + 1 of sequence g, then those of sequence g + 8. Drives, messages and gradients
 * of states lie in memory as fragments, so that a thread reads and writes its four numbers at once.
 *
 * Constants of a program: STEPS products of the matrix unit cover the largest module's states; WARPS warps of a block;
 * TILES fragments of a warp; SPLIT warps share the states of one product; PRODUCTS is 3 to multiply float as three
 * products of tf32, else 1; CHUNK rows of a message are computed together; AHEAD ticks are loaded ahead. NESTED: every
 * period divides the next one. RECTIFY: relu instead of tanh. EVEN: all sizes are even. VECTOR: all rows of states begin
 * at multiples of 16 bytes. FULL: all sizes are multiples of 8. SPREAD: a module may have more units than a block computes. */

#ifndef CWRNN_MODULES
#define CWRNN_MODULES

#include "primitives.cuh"

#define THREADS (32 * WARPS)
/* If SIGNALLER, one warp more announces rows. */
#define ALL_THREADS (THREADS + 32 * SIGNALLER)
#define SEQUENCES 16
#define FRAGMENT 128
/* Units that a block computes of a recurrence. */
#define UNITS (WARPS / SPLIT * TILES * 8)
#define OWN_STEPS (STEPS / SPLIT)
/* Bytes of a row of states in shared memory. Rows do not begin in the same bank. */
#define PITCH (STEPS * 32 + 16)
/* Flags lie apart, because waiting blocks read them over and over. */
#define FLAG_STRIDE 8
/* Sums that do not wait for each other. */
#define CHAINS (TILES == 1 ? 4 : TILES == 2 ? 2 : 1)
/* Fragments of a message that a warp computes together. */
#define WIDE (TILES > 2 ? 2 : TILES)
#define FAST (ELEMENT != 0 || PRODUCTS == 1)

/* A row of the table, in the order of `ModuleRow` in tables.py. */
struct Module {
    int64 period, size, first_unit, first_tick, ticks, states, messages, g_messages, first_block, fragments,
        message_fragments, packed, transposed;
};

DEVICE void join_workers() { join_threads<THREADS>(); }

DEVICE int blocks_of(int64 units) { return (int)((units + 7) / 8); }
DEVICE int parts_of(int64 units) { return (int)((units + UNITS - 1) / UNITS); }

/* The row that a module holds at time t. */
DEVICE int64 row_at(int64 t, int64 first, int64 period) { return t >= first ? (t - first) / period + 1 : 0; }

DEVICE float4 add(float4 x, float4 y) { return make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w); }

/* x as the sum of two operands of tf32. */
DEVICE void split_operand(uint32 x, uint32 &high, uint32 &low) {
    float value = float_of(x), rounded = round_to_tf32(value), rest = value - rounded;
    high = bits_of(rounded);
    low = rest == rest ? bits_of(round_to_tf32(rest)) : 0;
}

/* This lane's fragment of a right operand: numbers k and on of `row`, which has K of them. Zero where there are none. */
DEVICE void load_right(uint32 (&right)[2], const element *row, int k, int64 K, bool there) {
    int c = thread_number() % 4;
#pragma unroll
    for (int high = 0; high < 2; high++) {
#if ELEMENT == 0
        int64 at = k + 4 * high + c;
        float value = there && at < K ? row[at] : 0;
        right[high] = bits_of(PRODUCTS == 3 ? value : round_to_tf32(value));
#else
        int64 at = k + 8 * high + 2 * c;
#if EVEN
        right[high] = there && at < K ? *(const uint32 *)(row + at) : 0;
#else
        uint32 first = there && at < K ? row[at] : 0, second = there && at + 1 < K ? row[at + 1] : 0;
        right[high] = first | second << 16;
#endif
#endif
    }
}

/* Weights are packed as right operands: a fragment of 8 units and one step has WORDS numbers for every lane. */
#define WORDS (PRODUCTS == 3 ? 4 : 2)
#define PACKED (32 * WORDS)

/* This lane's numbers of a packed fragment. */
DEVICE void load_packed(uint32 (&high)[2], uint32 (&low)[2], const uint32 *fragment, bool there) {
    const uint32 *from = fragment + thread_number() % 32 * WORDS;
#if PRODUCTS == 3
    const uint4 words = there ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
    high[0] = words.x, high[1] = words.y, low[0] = words.z, low[1] = words.w;
#else
    const uint2 words = there ? *(const uint2 *)from : make_uint2(0, 0);
    high[0] = words.x, high[1] = words.y, low[0] = low[1] = 0;
#endif
}

/* Right operands that stay in registers. */
struct Weights {
    uint32 high[TILES][OWN_STEPS][2], low[TILES][OWN_STEPS][2];
};

/* Loads the weights of this warp's fragments of units: `packed` has those of the first one; the next one is `stride` numbers
 * behind it. */
DEVICE void load_weights(Weights &weights, const uint32 *packed, int64 stride, int count) {
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int step = 0; step < OWN_STEPS; step++)
            load_packed(weights.high[n][step], weights.low[n][step], packed + n * stride + step * PACKED, n < count);
}

/* sums += left right, for one left operand and several right ones. `small` has the sums of the small products. */
template <int COUNT>
DEVICE void multiply_step(float (&sums)[COUNT][4], float (&small)[COUNT][4], const uint32 (&left)[4],
                          const uint32 (&high)[COUNT][2], const uint32 (&low)[COUNT][2]) {
#if PRODUCTS == 3
    uint32 left_high[4], left_low[4];
#pragma unroll
    for (int i = 0; i < 4; i++) split_operand(left[i], left_high[i], left_low[i]);
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        multiply_fragments(small[n], left_low, high[n]);
        multiply_fragments(small[n], left_high, low[n]);
        multiply_fragments(sums[n], left_high, high[n]);
    }
#else
#pragma unroll
    for (int n = 0; n < COUNT; n++) multiply_fragments(sums[n], left, high[n]);
#endif
}

/* Adds the sums of the small products. They are NaN where an operand is infinite, and count for nothing there. */
template <int COUNT> DEVICE void add_small(float (&sums)[COUNT][4], const float (&small)[COUNT][4]) {
#if PRODUCTS == 3
#pragma unroll
    for (int n = 0; n < COUNT; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[n][i] += small[n][i] == small[n][i] ? small[n][i] : 0;
#endif
}

/* sums += the product of 16 rows of shared memory with the weights. `row` is this lane's address for load_fragment. */
DEVICE void multiply_rows(float (&sums)[TILES][4], const Weights &weights, const char *row) {
    float more[CHAINS][TILES][4] = {}, small[TILES][4] = {};
#pragma unroll
    for (int step = 0; step < OWN_STEPS; step++) {
        uint32 left[4], high[TILES][2], low[TILES][2];
        load_fragment(left, row + step * 32);
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) high[n][i] = weights.high[n][step][i], low[n][i] = weights.low[n][step][i];
        if (step % CHAINS == 0)
            multiply_step(sums, small, left, high, low);
        else
            multiply_step(more[step % CHAINS], small, left, high, low);
    }
#pragma unroll
    for (int chain = 1; chain < CHAINS; chain++)
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[n][i] += more[chain][n][i];
    add_small(sums, small);
}

/* Adds up the sums of the SPLIT warps that share units, in the first of them, through shared memory. */
DEVICE void join_sums(float (&sums)[TILES][4], char *memory) {
#if SPLIT > 1
    const int owners = WARPS / SPLIT;
    int warp = thread_number() / 32, lane = thread_number() % 32;
    float4 *at = (float4 *)memory;
    if (warp >= owners)
#pragma unroll
        for (int n = 0; n < TILES; n++)
            at[((warp - owners) * TILES + n) * 32 + lane] = make_float4(sums[n][0], sums[n][1], sums[n][2], sums[n][3]);
    join_workers();
    if (warp < owners)
#pragma unroll
        for (int other = 0; other < SPLIT - 1; other++)
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                float4 part = at[((warp + other * owners) * TILES + n) * 32 + lane];
                sums[n][0] += part.x, sums[n][1] += part.y, sums[n][2] += part.z, sums[n][3] += part.w;
            }
#endif
}

/* Stores two neighbouring units of a sequence in shared memory, as operands. */
DEVICE void store_operands(char *to, float x, float y) {
#if ELEMENT == 0
    *(float2 *)to = PRODUCTS == 3 ? make_float2(x, y) : make_float2(round_to_tf32(x), round_to_tf32(y));
#else
    *(uint32 *)to = (uint32)to_element(x) | (uint32)to_element(y) << 16;
#endif
}

/* Stores two neighbouring units of a sequence in memory, the second one only if it is there. */
DEVICE void store_pair(element *to, float x, float y, bool second) {
#if EVEN && ELEMENT == 0
    *(float2 *)to = make_float2(x, y);
#elif EVEN
    *(uint32 *)to = (uint32)to_element(x) | (uint32)to_element(y) << 16;
#else
    to[0] = to_element(x);
    if (second) to[1] = to_element(y);
#endif
}

/* An element as an operand. */
DEVICE element round_operand(element x) { return ELEMENT == 0 && PRODUCTS == 1 ? to_operand(to_float(x)) : x; }

/* Copies `rows` rows of K numbers to shared memory as operands, rows of 0 where there is no sequence, and zeros behind them.
 *
 * Row r is a line of 16 sequences: sequence first + r % 16, at from + r / 16 * line + (first + r % 16) * stride. They were
 * written by other blocks. */
DEVICE void copy_rows(char *to, const element *from, int rows, int64 line, int64 stride, int64 first, int64 B, int64 K) {
#if VECTOR
    const int pieces = STEPS * 2, per = 16 / (int)sizeof(element), there = (int)K / per;
#pragma unroll 4
    for (int i = thread_number(); i < rows * pieces; i += THREADS) {
        const int row = i / pieces, piece = i % pieces;
        const int64 b = first + row % SEQUENCES;
        uint4 value = make_uint4(0, 0, 0, 0);
        if (b < B && piece < there) value = load_through((const uint4 *)(from + row / SEQUENCES * line + b * stride) + piece);
#if ELEMENT == 0 && PRODUCTS == 1
        value = make_uint4(bits_of(round_to_tf32(float_of(value.x))), bits_of(round_to_tf32(float_of(value.y))),
                           bits_of(round_to_tf32(float_of(value.z))), bits_of(round_to_tf32(float_of(value.w))));
#endif
        *(uint4 *)(to + row * PITCH + piece * 16) = value;
    }
#else
    for (int i = thread_number(); i < rows * STEPS * INNER; i += THREADS) {
        const int row = i / (STEPS * INNER), k = i % (STEPS * INNER);
        const int64 b = first + row % SEQUENCES;
        element value = 0;
        if (b < B && k < K) value = load_through(from + row / SEQUENCES * line + b * stride + k);
        *(element *)(to + row * PITCH + k * sizeof(element)) = round_operand(value);
    }
#endif
}

/* Copies that threads make of a row of states of this block, 16 bytes each, from shared memory to memory: fewer and wider
 * than if every thread stored its own sums. The copy of a row follows while the next one is computed. */
#define DEFERRED (ELEMENT != 0 && VECTOR && !SPREAD)
#define COPIES ((SEQUENCES * STEPS * 2 + THREADS - 1) / THREADS)

struct RowCopies {
    int from[COPIES];
    element *to[COPIES];
};

/* The copies of this thread: row r of K states goes to to + r * stride. */
DEVICE void plan_copies(RowCopies &copies, element *to, int64 stride, int64 first, int64 B, int64 K) {
    const int per = 16 / (int)sizeof(element), pieces = (int)K / per;
#pragma unroll
    for (int i = 0; i < COPIES; i++) {
        const int number = thread_number() + i * THREADS, row = number / pieces, piece = number % pieces;
        copies.from[i] = row < SEQUENCES && first + row < B ? row * PITCH + piece * 16 : -1;
        copies.to[i] = to + (first + row) * stride + piece * per;
    }
}

/* Copies a row, and moves on by `step` numbers. */
DEVICE void copy_row(RowCopies &copies, const char *from, int64 step) {
#pragma unroll
    for (int i = 0; i < COPIES; i++) {
        if (copies.from[i] >= 0) *(uint4 *)copies.to[i] = *(const uint4 *)(from + copies.from[i]);
        copies.to[i] += step;
    }
}

/* The number of this block, in the order in which blocks begin to run.
 *
 * A block waits only for blocks with lower numbers, and for the other parts of its own module and tile, whose numbers are
 * its neighbours. The parts with the lowest numbers that are not done wait for nobody else, so every wait ends if all
 * parts of one module and tile can run at once. */
DEVICE int64 take_number_of_block(int *counter, char *memory) {
    if (thread_number() == 0) *(int *)memory = take_number(counter);
    join_block();
    int64 number = *(int *)memory;
    join_block();
    return number;
}

/* Announces that `count` rows can be read, to those who wait for `flag`. One thread calls this, after a barrier; `counted`
 * has the number of rows that were announced before.
 *
 * A warp that announces waits until everything that the block wrote can be seen. So a warp that does nothing else does this,
 * if there is one. */
DEVICE void announce_rows(int *flag, int *counted, int count) {
    if (SIGNALLER)
        write_shared(counted, count);
    else {
        add_to_flag(flag, count - *counted);
        *counted = count;
    }
}

/* What the warp that announces does, until it has announced all rows. */
DEVICE void run_signaller(int *flag, const int *counted, int total) {
    if (thread_number() != THREADS) return;
    for (int signalled = 0; signalled < total;) {
        int count = read_shared(counted);
        if (count > signalled) {
            add_to_flag(flag, count - signalled);
            signalled = count;
        } else
            pause();
    }
}

#endif
