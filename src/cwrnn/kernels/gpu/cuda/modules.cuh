/* The table of modules, and the products of weights with their states, for the programs that run modules one by one.
 *
 * A tile is 8 sequences. A fragment is 16 units x 8 sequences of float, in the order in which the matrix unit leaves its
 * sums: lane 4 g + c has sequences 2 c and 2 c + 1 of unit g, then those of unit g + 8. Drives, messages and gradients of
 * states lie in memory as fragments, so that a thread reads and writes its four numbers at once. What there is of every
 * gate lies gate after gate: all fragments of the first gate, then all of the second one.
 *
 * Constants of a program: STEPS products of the matrix unit, an even number, cover the largest module's states; WARPS warps
 * of a block; TILES fragments of a warp; SPLIT warps share the states of one product; PRODUCTS is 3 to multiply float as
 * three products of tf32, else 1; CHUNK rows of a message are computed together. AHEAD ticks are loaded ahead, into LOADED
 * places: one by one into as many, or AHEAD at once into twice as many. The compiler counts all loads together, so a thread that
 * waits for one waits for all, and the second way waits less often. GATES is 1 for tanh and relu, 4 for the LSTM (i, f, g, o), and 3 for the GRU
 * (r, z, n). NESTED: every period divides the next one. RECTIFY: relu instead of tanh. EVEN: all sizes are even. VECTOR: all
 * rows of states begin at multiples of 16 bytes. FULL: all sizes are multiples of 16. SPREAD: a module may have more units
 * than a block computes. TURNS: tiles of such a module that a block computes by turns. SIGNALLER: one warp more announces
 * rows. PEEPHOLES: the LSTM has them. REVERSED is defined by the program that goes back in time. */

#ifndef CWRNN_MODULES
#define CWRNN_MODULES

#include "primitives.cuh"

#define THREADS (32 * WARPS)
#define ALL_THREADS (THREADS + 32 * SIGNALLER)
#define SEQUENCES 8
#define ROWS 16
#define FRAGMENT 128
/* Units that a block computes of a recurrence. */
#define UNITS (WARPS / SPLIT * TILES * ROWS)
#ifndef REVERSED
#define REVERSED 0
#endif
/* The planes of the gradients of a tick's sums: those of the gates. A GRU has r, z, the reset product before r, and n. */
#define PLANES (GATES == 3 ? 4 : GATES)
/* The parts of a state: an LSTM has h and c. */
#define PARTS (GATES == 4 ? 2 : 1)
/* The product of a tick: fragments of sums that a warp computes, and steps that all warps share. Forward, each gate has sums
 * of its own. In reverse, the gradient of a state is the sum over all gates. */
#define SUMS (REVERSED ? TILES : GATES * TILES)
#define ALL_STEPS (REVERSED ? GATES * STEPS : STEPS)
#define OWN_STEPS (ALL_STEPS / SPLIT)
/* Bytes of a row of states in shared memory. Rows do not begin in the same bank. */
#define PITCH (STEPS * 32 + 16)
/* The same of a row that a tick reads: in reverse, it has the gradients of all planes. */
#define PLANE_BYTES (STEPS * 32)
#define ROW_PITCH ((REVERSED ? PLANES : 1) * PLANE_BYTES + 16)
/* Rows of each tile in shared memory. Where warps share a product, they are done with a row before the next one is stored. */
#define BUFFERS (SPREAD && SPLIT > 1 ? 1 : 2)
/* The parts of a module fetch each other's rows as whole rows, which flags announce, if there are other tiles to compute
 * meanwhile. Otherwise they exchange numbers with tags, which takes less time but more work. */
#define FETCHED (TURNS > 1)
/* With more than two tiles, the row of the next tile was announced some time ago. So it is fetched before this tile's product. */
#define EARLY (TURNS > 2)
/* The thread that announces rows. Where warps share a product, its warp waits for the others. */
#define ANNOUNCER (FETCHED ? THREADS - 32 : 0)
#define ROW_BYTES (SEQUENCES * ROW_PITCH)
/* Flags lie apart, because waiting blocks read them over and over. */
#define FLAG_STRIDE 8
/* Sums that do not wait for each other. */
#define CHAINS (SUMS == 1 ? 4 : SUMS == 2 ? 2 : 1)
/* Fragments of a message that a warp computes together. */
#define WIDE (TILES > 1 ? 2 : 1)
#define FAST (ELEMENT != 0 || PRODUCTS == 1)

/* A row of the table, in the order of `ModuleRow` in tables.py. */
struct Module {
    int64 period, size, first_unit, first_tick, ticks, states, g_messages, first_block, fragments,
        message_fragments, packed, transposed;
};

DEVICE void join_workers() { join_threads<THREADS>(); }

DEVICE int blocks_of(int64 units) { return (int)((units + ROWS - 1) / ROWS); }
DEVICE int parts_of(int64 units) { return (int)((units + UNITS - 1) / UNITS); }

/* The row that a module holds at time t. */
DEVICE int row_at(int64 t, int64 first, int64 period) {
    /* 32 bits suffice, and their quotients are quick */
    return t >= first ? (int)((uint32)(t - first) / (uint32)period) + 1 : 0;
}

DEVICE float4 add(float4 x, float4 y) { return make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w); }

/* x as the sum of two operands of tf32. */
DEVICE void split_operand(uint32 x, uint32 &high, uint32 &low) {
    float value = float_of(x), rounded = round_to_tf32(value), rest = value - rounded;
    high = bits_of(rounded);
    low = rest == rest ? bits_of(round_to_tf32(rest)) : 0;
}

/* This lane's part of 32 bytes of a row of an operand: numbers k and on of `row`, which has K of them. Zero where there are
 * none. The lanes with the same g = lane / 4 have the same row. */
DEVICE void load_operand(uint32 (&part)[2], const element *row, int k, int64 K, bool there) {
    int c = thread_number() % 4;
#pragma unroll
    for (int high = 0; high < 2; high++) {
#if ELEMENT == 0
        int64 at = k + 4 * high + c;
        float value = there && at < K ? row[at] : 0;
        part[high] = bits_of(PRODUCTS == 3 ? value : round_to_tf32(value));
#else
        int64 at = k + 8 * high + 2 * c;
#if EVEN
        part[high] = there && at < K ? *(const uint32 *)(row + at) : 0;
#else
        uint32 first = there && at < K ? row[at] : 0, second = there && at + 1 < K ? row[at + 1] : 0;
        part[high] = first | second << 16;
#endif
#endif
    }
}

/* Weights are packed as left operands: a fragment of 16 units and one step has WORDS numbers for every lane. */
#define WORDS (PRODUCTS == 3 ? 8 : 4)
#define PACKED (32 * WORDS)

/* A left operand, and with three products what its rounding leaves. */
struct Left {
    uint32 high[4], low[4];
};

/* This lane's numbers of a packed fragment. */
DEVICE void load_packed(Left &left, const uint32 *fragment, bool there) {
    const uint4 *from = (const uint4 *)(fragment + thread_number() % 32 * WORDS);
    const uint4 none = make_uint4(0, 0, 0, 0), high = there ? from[0] : none;
    left.high[0] = high.x, left.high[1] = high.y, left.high[2] = high.z, left.high[3] = high.w;
#if PRODUCTS == 3
    const uint4 low = there ? from[1] : none;
    left.low[0] = low.x, left.low[1] = low.y, left.low[2] = low.z, left.low[3] = low.w;
#endif
}

/* sums += left right. `small` has the sums of the small products. */
DEVICE void multiply(float (&sums)[4], float (&small)[4], const Left &left, const uint32 (&right)[2]) {
#if PRODUCTS == 3
    uint32 high[2], low[2];
#pragma unroll
    for (int i = 0; i < 2; i++) split_operand(right[i], high[i], low[i]);
    multiply_fragments(small, left.low, high);
    multiply_fragments(small, left.high, low);
    multiply_fragments(sums, left.high, high);
#else
    multiply_fragments(sums, left.high, right);
#endif
}

/* Adds the sums of the small products. They are NaN or infinite where an operand is infinite, and count for nothing there. */
DEVICE void add_small(float (&sums)[4], const float (&small)[4]) {
#if PRODUCTS == 3
#pragma unroll
    for (int i = 0; i < 4; i++) sums[i] += small[i] - small[i] == 0 ? small[i] : 0;
#endif
}

/* Left operands that stay in registers. */
struct Weights {
    Left parts[SUMS][OWN_STEPS];
};

/* Loads the weights of this warp's fragments of units: `packed` has those of the first one; the next one is `stride` numbers
 * behind it, and the next gate `gate` numbers. `share` says which steps are this warp's. */
DEVICE void load_weights(Weights &weights, const uint32 *packed, int64 stride, int64 gate, int share, int count) {
#pragma unroll
    for (int n = 0; n < SUMS; n++)
#pragma unroll
        for (int i = 0; i < OWN_STEPS; i++) {
            const int step = share * OWN_STEPS + i, q = REVERSED ? step / STEPS : n / TILES;
            load_packed(weights.parts[n][i], packed + q * gate + n % TILES * stride + step % STEPS * PACKED, n % TILES < count);
        }
}

/* Where this lane points to for load_fragments, in rows of shared memory. */
DEVICE int place_of_lane(int pitch) {
    int lane = thread_number() % 32;
    return lane % 8 * pitch + lane / 8 * 16;
}

/* The parts of a product's sums that are added last: those of the other chains, and of the small products. */
struct Rest {
    float more[CHAINS][SUMS][4], small[SUMS][4];
};

/* sums and rest += the product of the weights with 8 rows of shared memory. `rows` is this lane's address for
 * load_fragments. Other work between this and add_rest takes no time, because the matrix unit is not done. */
DEVICE void multiply_rows(float (&sums)[SUMS][4], Rest &rest, const Weights &weights, const char *rows) {
#pragma unroll
    for (int step = 0; step < OWN_STEPS; step += 2) {
        uint32 right[4];
        load_fragments(right, rows + step * 32);
#if FETCHED && ELEMENT == 0 && PRODUCTS == 1
#pragma unroll
        for (int i = 0; i < 4; i++) right[i] = bits_of(round_to_tf32(float_of(right[i])));
#endif
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32 half[2] = {right[2 * i], right[2 * i + 1]};
            const int chain = (step + i) % CHAINS;
#pragma unroll
            for (int n = 0; n < SUMS; n++)
                multiply(chain == 0 ? sums[n] : rest.more[chain][n], rest.small[n], weights.parts[n][step + i], half);
        }
    }
}

DEVICE void add_rest(float (&sums)[SUMS][4], const Rest &rest) {
#pragma unroll
    for (int n = 0; n < SUMS; n++) {
#pragma unroll
        for (int chain = 1; chain < CHAINS; chain++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[n][i] += rest.more[chain][n][i];
        add_small(sums[n], rest.small[n]);
    }
}

/* Adds up the sums of the SPLIT warps that share units, in the first of them, through shared memory. */
DEVICE void join_sums(float (&sums)[SUMS][4], char *memory) {
#if SPLIT > 1
    const int owners = WARPS / SPLIT;
    int warp = thread_number() / 32, lane = thread_number() % 32;
    float4 *at = (float4 *)memory;
    if (warp >= owners)
#pragma unroll
        for (int n = 0; n < SUMS; n++)
            at[((warp - owners) * SUMS + n) * 32 + lane] = make_float4(sums[n][0], sums[n][1], sums[n][2], sums[n][3]);
    join_workers();
    if (warp < owners)
#pragma unroll
        for (int n = 0; n < SUMS; n++) {
            float4 parts[SPLIT - 1];
#pragma unroll
            for (int other = 0; other < SPLIT - 1; other++) parts[other] = at[((warp + other * owners) * SUMS + n) * 32 + lane];
#pragma unroll
            for (int other = 0; other < SPLIT - 1; other++)
                sums[n][0] += parts[other].x, sums[n][1] += parts[other].y, sums[n][2] += parts[other].z,
                    sums[n][3] += parts[other].w;
        }
#endif
}

/* A number as an operand in shared memory. */
DEVICE element store_operand(float x) { return PRODUCTS == 3 ? to_element(x) : to_operand(x); }

/* An element as an operand. */
DEVICE element round_operand(element x) { return ELEMENT == 0 && PRODUCTS == 1 ? to_operand(to_float(x)) : x; }

/* Copies `rows` rows of K numbers to shared memory as operands, rows of 0 where there is no sequence, and zeros behind them.
 *
 * Row r belongs to sequence first + r % 8 and line r / 8, at from + r / 8 * line + (first + r % 8) * stride. They were written
 * by other blocks. */
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

static_assert(!FETCHED || CHUNK > 1, "parts announce the first row without waiting for each other");

/* Waits until all parts of a module have announced at least `count` rows.
 *
 * Parts that fetch rows share a flag: from the second row on none of them is more than one row ahead of another, so the sum
 * tells how many rows all have announced. Otherwise each part has a flag, and each lane waits for some of them. */
DEVICE void await_all(const int *flags, int parts, int count, int &ready) {
    if (ready < count) {
#if FETCHED
        int value = 0;
        await_flag(flags, parts * count, value);
        ready = value / parts;
#else
        int least = 0x7fffffff;
        for (int part = thread_number() % 32; part < parts; part += 32) {
            int value = 0;
            await_flag(flags + part * FLAG_STRIDE, count, value);
            least = value < least ? value : least;
        }
        ready = least;
#endif
    }
    join_warp();
}

/* The parts of a module exchange the numbers of a row through memory: each lane sends its four numbers of a fragment in
 * LINES times 16 bytes, in which every 8 bytes have a number, or two of half precision, and a tag. A part that finds the tag
 * of the row knows that the number has come, so no fence is needed. Rows use two places by turns: a
 * part sends a row only when it has received the one before, so nobody still waits for the one before that. */
#define LINES (ELEMENT == 0 ? 2 : 1)

/* Planes of a row that are exchanged. */
#define EXCHANGED (REVERSED ? GATES : 1)

DEVICE uint4 *exchange_place(uint32 *exchange, int64 blocks, int tag, int64 block, int plane) {
    return (uint4 *)exchange + (((tag % 2 * blocks + block) * EXCHANGED + plane) * 32 + thread_number() % 32) * LINES;
}

DEVICE void send_fragment(uint4 *to, const float (&x)[4], uint32 tag) {
#if ELEMENT == 0
    send_words(to, make_uint4(bits_of(x[0]), tag, bits_of(x[1]), tag));
    send_words(to + 1, make_uint4(bits_of(x[2]), tag, bits_of(x[3]), tag));
#else
    send_words(to, make_uint4((uint32)to_element(x[0]) | (uint32)to_element(x[1]) << 16, tag,
                              (uint32)to_element(x[2]) | (uint32)to_element(x[3]) << 16, tag));
#endif
}

/* Fragments that a warp waits for together. */
#define TOGETHER (EXCHANGED > 1 && ELEMENT != 0 ? 8 : 4)

/* Receives the fragments that the other parts sent, into rows of shared memory as operands. The fragments `first` and on are
 * this part's own, and there already. */
DEVICE void receive_fragments(char *rows, uint32 *exchange, int blocks, int first, int count, int tag, int64 K) {
    const int warp = thread_number() / 32, g = thread_number() % 32 / 4, c = thread_number() % 4;
    const int total = (blocks - count) * EXCHANGED;
    for (int begin = warp; begin < total; begin += WARPS * TOGETHER) {
        uint4 words[TOGETHER][LINES];
        bool complete;
        do {
            complete = true;
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) {
                const int number = begin + i * WARPS, other = number / EXCHANGED, block = other < first ? other : other + count;
#pragma unroll
                for (int line = 0; line < LINES; line++)
                    if (number < total)
                        words[i][line] = receive_words(exchange_place(exchange, blocks, tag, block, number % EXCHANGED) + line);
            }
#pragma unroll
            for (int i = 0; i < TOGETHER; i++)
#pragma unroll
                for (int line = 0; line < LINES; line++)
                    if (begin + i * WARPS < total)
                        complete = complete && words[i][line].y == (uint32)tag && words[i][line].w == (uint32)tag;
        } while (!complete);
        join_warp();
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const int number = begin + i * WARPS, other = number / EXCHANGED, block = other < first ? other : other + count;
            if (number >= total) break;
            element x[4];
#if ELEMENT == 0
#pragma unroll
            for (int line = 0; line < LINES; line++)
                x[2 * line] = store_operand(float_of(words[i][line].x)), x[2 * line + 1] = store_operand(float_of(words[i][line].z));
#else
            x[0] = (element)(words[i][0].x & 0xffffu), x[1] = (element)(words[i][0].x >> 16);
            x[2] = (element)(words[i][0].z & 0xffffu), x[3] = (element)(words[i][0].z >> 16);
#endif
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int64 u = block * ROWS + k / 2 * 8 + g;
                if (u < K)
                    *(element *)(rows + (2 * c + k % 2) * ROW_PITCH + number % EXCHANGED * PLANE_BYTES + u * sizeof(element)) = x[k];
            }
        }
    }
}

/* Fetches the units of a row that other parts computed, into rows of shared memory. Plane q of sequence b lies at from + q *
 * plane + b * stride. */
DEVICE void fetch_row(char *rows, const element *from, int64 plane, int64 stride, int part, int64 first, int64 B, int K) {
    const int per = 16 / (int)sizeof(element);
    for (int line = thread_number() / 32; line < SEQUENCES * EXCHANGED; line += WARPS) {
        const int row = line % SEQUENCES, q = line / SEQUENCES;
        const element *source = from + q * plane + (first + row) * stride;
        char *to = rows + row * ROW_PITCH + q * PLANE_BYTES;
        if (first + row < B)
#pragma unroll 4
            for (int u = thread_number() % 32 * per; u < K; u += 32 * per)
                if (u / UNITS != part) copy_later<16>(to + u * sizeof(element), source + u, true);
    }
}

/* Copies that threads make of a row of states of this block, 16 bytes each, from shared memory to memory: fewer and wider
 * than if every thread stored its own sums. The copy of a row follows while the next one is computed. */
#define DEFERRED (ELEMENT != 0 && VECTOR && !SPREAD)
#define COPIED (REVERSED ? PLANES : 1)
#define COPIES ((SEQUENCES * COPIED * STEPS * 2 + THREADS - 1) / THREADS)

struct RowCopies {
    int from[COPIES];
    element *to[COPIES];
    uint4 pieces[COPIES];
};

/* The copies of this thread: plane q of row r of K states goes to to + q * plane + r * stride. */
DEVICE void plan_copies(RowCopies &copies, element *to, int64 stride, int64 plane, int64 first, int64 B, int64 K) {
    const int per = 16 / (int)sizeof(element), pieces = (int)K / per;
#pragma unroll
    for (int i = 0; i < COPIES; i++) {
        const int number = thread_number() + i * THREADS, line = number / pieces, piece = number % pieces;
        const int row = line / COPIED, q = line % COPIED;
        copies.from[i] = row < SEQUENCES && first + row < B ? row * ROW_PITCH + q * PLANE_BYTES + piece * 16 : -1;
        copies.to[i] = to + q * plane + (first + row) * stride + piece * per;
    }
}

/* Reads the pieces of a row from shared memory. They are stored later, because a store would wait for them. */
DEVICE void read_row(RowCopies &copies, const char *from) {
#pragma unroll
    for (int i = 0; i < COPIES; i++)
        if (copies.from[i] >= 0) copies.pieces[i] = *(const uint4 *)(from + copies.from[i]);
}

/* If `is_row`, stores the pieces that were read, and moves on by `step` numbers. */
DEVICE void store_row(RowCopies &copies, bool is_row, int64 step) {
#pragma unroll
    for (int i = 0; i < COPIES; i++) {
        if (is_row && copies.from[i] >= 0) *(uint4 *)copies.to[i] = copies.pieces[i];
        copies.to[i] += is_row ? step : 0;
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

/* Where a block's shared memory has the sums of warps that share a product, behind the rows. */
DEVICE char *place_of_sums(char *memory) { return memory + TURNS * BUFFERS * ROW_BYTES; }

/* Where it has the numbers of rows that were announced, one for each tile. */
DEVICE int *counters_of_rows(char *memory) {
    return (int *)(place_of_sums(memory) + (SPLIT - 1) * (WARPS / SPLIT * SUMS * 32) * 16);
}

/* The flag of the first part of a module's recurrence. Those of its other parts follow, unless they share it. */
template <class Call> DEVICE int *scan_flag(const Call &call, int64 s, int64 j, int64 tile) {
    return call.flags + s * call.flags_s + (j * call.tiles + tile) * call.parts * FLAG_STRIDE;
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
