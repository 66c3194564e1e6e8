/* The gradients of the weights, the bias and the input, from the gradients of the messages.
 *
 * A line is one row of a module in one sequence. The gradient of a module's weights is the product of the lines of
 * `g_messages` with its states, or with the input at its ticks, for each plane of the cell's sums. A block of threads computes
 * HEIGHT x WIDTH numbers of it, summed over `part_lines` lines; a second program adds up these parts. Other blocks compute the
 * gradient of the input.
 *
 * Constants beside those of modules.cuh: TALL fragments of 16 receiving units of a warp; STAGES of lines that are in shared
 * memory or on their way to it; PIECE and INPUT_PIECE, the bytes that are copied at once, of states and of the input;
 * OUTPUT_PIECE, the numbers of a gradient that a thread adds up; SHARED, the bytes of shared memory. */

#include "modules.cuh"

#define HEIGHT 128
#define WARPS_TALL (HEIGHT / (TALL * ROWS))
/* Fragments of 8 columns of a warp. */
#define ACROSS 4
#define WIDTH (WARPS / WARPS_TALL * ACROSS * 8)
/* Lines of a stage. */
#define DEPTH (2 * INNER)
/* Bytes of a line of `columns` numbers in shared memory, so that no two lanes want the same bank. */
#define PITCH_OF(columns) ((columns) * (int)sizeof(element) + (ELEMENT == 0 ? 32 : 16))
#define LEFT_PITCH PITCH_OF(HEIGHT)
#define RIGHT_PITCH PITCH_OF(WIDTH)
#define STAGE (DEPTH * (LEFT_PITCH + RIGHT_PITCH))
/* Of the input's gradient: sequences and inputs of a block, units of a stage, and bytes of a stage. */
#define TILE 64
#define UNITS_AT_ONCE (4 * INNER)
#define UNIT_PITCH (UNITS_AT_ONCE * (int)sizeof(element) + 16)
#define INPUT_PITCH PITCH_OF(TILE)
#define INPUT_STAGE (TILE * UNIT_PITCH + UNITS_AT_ONCE * INPUT_PITCH)

static_assert(STAGES * (STAGE > INPUT_STAGE ? STAGE : INPUT_STAGE) == SHARED, "gradients.py computes another size");

struct Call {
    const Module *table;
    const element *g_messages; /* of every plane, per module (ticks + 1, B, units of the module and of all faster ones) */
    const element *states;     /* per module (ticks + 1, B, K) */
    const element *input;
    const element *weight; /* (S, GATES N, I) */
    const int64 *lengths;  /* (S, B), or NULL */
    float *products;       /* (S, PLANES, parts, HEIGHT, WIDTH) */
    float *sums;           /* (S, PLANES, parts of the input, HEIGHT), for the bias */
    element *g_input, *g_weight_ih, *g_weight_hh, *g_bias; /* or NULL */
    int64 T, B, I, N, G;
    int64 part_lines, recurrent_parts, parts;
    int64 inputs; /* those of the weights' gradient: I, or 0 if only the bias has one */
    int64 g_messages_s, states_s, input_s, input_t, input_b, weight_s;
};

/* The gate whose input has the gradients of a plane, or -1; and the other way round. The bias of a GRU has four parts, of which
 * the last one belongs to the reset product, and no message has the gradients of its last plane. */
DEVICE int input_gate_of(int plane) { return GATES == 3 && plane >= 2 ? (plane == 3 ? 2 : -1) : plane; }
DEVICE int input_plane_of(int gate) { return GATES == 3 && gate == 2 ? 3 : gate; }
DEVICE int bias_of(int plane) { return GATES == 3 && plane >= 2 ? 5 - plane : plane; }

/* Steps of the matrix unit whose operands are loaded together: of float, more would take registers that there are not. */
const int STEPS_AT_ONCE = ELEMENT == 0 ? 1 : 2;

DEVICE uint32 divide_up(uint32 x, uint32 y) { return (x + y - 1) / y; }

/* The parts of one module's weights: first those of the first lines. */
struct Parts {
    uint32 lines, senders, blocks, count;
};

DEVICE Parts count_parts(const Call &call, const Module &m, bool of_input) {
    Parts parts;
    parts.lines = (uint32)(m.ticks + !of_input) * (uint32)call.B;
    parts.senders = divide_up((uint32)(of_input ? call.inputs : m.size), WIDTH);
    if (parts.senders == 0) parts.senders = 1;
    parts.blocks = parts.senders * divide_up((uint32)(of_input ? m.size : m.first_unit + m.size), HEIGHT);
    parts.count = divide_up(parts.lines, (uint32)call.part_lines);
    return parts;
}

/* Copies SIZE bytes into shared memory, or zeros if not `there`. */
template <int SIZE> DEVICE void copy_piece(char *to, const element *from, bool there) {
    if constexpr (SIZE < 4)
        *(element *)to = there ? *from : (element)0;
    else
        copy_later<SIZE>(to, from, there);
}

/* Left operands: 16 columns and INNER lines of shared memory, which become rows and columns. */
DEVICE void load_left(Left &left, const char *lines, int pitch) {
    const int lane = thread_number() % 32;
#if ELEMENT == 0
    const char *at = lines + lane % 4 * pitch + lane / 4 * 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32 x = *(const uint32 *)(at + i / 2 * 4 * pitch + i % 2 * 32);
#if PRODUCTS == 3
        split_operand(x, left.high[i], left.low[i]);
#else
        left.high[i] = bits_of(round_to_tf32(float_of(x)));
#endif
    }
#else
    load_fragments_transposed(left.high, lines + (lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * 16);
#endif
}

/* Left operands: 16 lines and INNER columns of shared memory. */
DEVICE void load_left_lines(Left &left, const char *lines, int pitch) {
    const int lane = thread_number() % 32;
#if ELEMENT == 0
    const char *at = lines + lane / 4 * pitch + lane % 4 * 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32 x = *(const uint32 *)(at + i % 2 * 8 * pitch + i / 2 * 16);
#if PRODUCTS == 3
        split_operand(x, left.high[i], left.low[i]);
#else
        left.high[i] = bits_of(round_to_tf32(float_of(x)));
#endif
    }
#else
    load_fragments(left.high, lines + lane % 16 * pitch + lane / 16 * 16);
#endif
}

/* Right operands: INNER lines of shared memory and ACROSS times 8 columns. */
DEVICE void load_right(uint32 (&right)[ACROSS][2], const char *lines, int pitch) {
    const int lane = thread_number() % 32;
#if ELEMENT == 0
    const char *at = lines + lane % 4 * pitch + lane / 4 * 4;
#pragma unroll
    for (int n = 0; n < ACROSS; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32 x = *(const uint32 *)(at + i * 4 * pitch + n * 32);
            right[n][i] = PRODUCTS == 3 ? x : bits_of(round_to_tf32(float_of(x)));
        }
#else
    const char *at = lines + (lane / 8 % 2 * 8 + lane % 8) * pitch + lane / 16 * 16;
#pragma unroll
    for (int n = 0; n < ACROSS; n += 2) {
        uint32 both[4];
        load_fragments_transposed(both, at + n * 16);
        right[n][0] = both[0], right[n][1] = both[1], right[n + 1][0] = both[2], right[n + 1][1] = both[3];
    }
#endif
}

/* The product of some lines for one receiving unit u and one sender v, over the lines that the unit hears.
 *
 * The gradient of a message that is not heard is 0, but 0 times a state that is infinite or NaN would be NaN. */
DEVICE float multiply_heard(const Call &call, int64 s, int plane, const Module *module, bool of_input, int64 u, int64 v, uint32 line,
                            uint32 stop) {
    const Module m = *module;
    const Module *receiver = call.table;
    while (u >= receiver->first_unit + receiver->size) receiver++;
    const Module q = *receiver;
    const int64 end = m.first_unit + m.size;
    const element *gradients = call.g_messages + (s * PLANES + plane) * call.g_messages_s + m.g_messages + u;
    const element *states = call.states + s * call.states_s + m.states + v;
    const element *input = call.input + s * call.input_s + v;
    int64 row = line / (uint32)call.B, b = line % (uint32)call.B;
    float sum = 0;
    for (; line < stop; line++) {
        const int64 last = call.lengths == nullptr ? call.T - 1 : call.lengths[s * call.B + b] - 1;
        const int64 next = m.first_tick + row * m.period;
        const float gradient = to_float(gradients[line * end]);
        if (of_input) {
            if (next <= last) sum += gradient * to_float(input[next * call.input_t + b * call.input_b]);
        } else {
            /* a row is heard from the step after its tick on, up to the next tick */
            const int64 after = row > 0 ? next - m.period : -1, until = next < last ? next : last;
            if (row_at(until, q.first_tick, q.period) > row_at(after, q.first_tick, q.period))
                sum += gradient * to_float(states[line * m.size]);
        }
        if (++b == call.B) b = 0, row++;
    }
    return sum;
}

/* Computes a part of the weights' gradients for a plane of the gradients. */
DEVICE void multiply_part(const Call &call, int64 s, int plane, uint32 number, char *memory) {
    const bool of_input = number >= call.recurrent_parts;
    if (!of_input && plane >= GATES) return;
    const int thread = thread_number(), warp = thread / 32, lane = thread % 32;
    uint32 rest = of_input ? number - (uint32)call.recurrent_parts : number;
    const Module *table = call.table;
    Parts parts = count_parts(call, *table, of_input);
    while (rest >= parts.blocks * parts.count) {
        rest -= parts.blocks * parts.count;
        parts = count_parts(call, *++table, of_input);
    }
    const uint32 block = rest % parts.blocks, period = (uint32)table->period, first_tick = (uint32)table->first_tick;
    const int receiver = (int)(block / parts.senders * HEIGHT + (of_input ? table->first_unit : 0));
    const int sender = (int)(block % parts.senders * WIDTH), end = (int)(table->first_unit + table->size);
    const int senders = (int)(of_input ? call.inputs : table->size);
    const uint32 first = rest / parts.blocks * (uint32)call.part_lines;
    const uint32 stop = min(first + (uint32)call.part_lines, parts.lines);
    const element *gradients = call.g_messages + (s * PLANES + plane) * call.g_messages_s + table->g_messages + receiver;
    const element *from = sender + (of_input ? call.input + s * call.input_s : call.states + s * call.states_s + table->states);

    /* copies the lines of stage n */
    auto copy_stage = [&](int n) {
        char *left = memory + n % STAGES * STAGE, *right = left + DEPTH * LEFT_PITCH;
        const uint32 begin = first + n * DEPTH;
        const int per = PIECE / (int)sizeof(element), across = HEIGHT / per;
#pragma unroll 2
        for (int i = thread; i < DEPTH * across; i += THREADS) {
            const int line = i / across, column = i % across * per;
            copy_piece<PIECE>(left + line * LEFT_PITCH + column * (int)sizeof(element),
                              gradients + (int64)(begin + line) * end + column, begin + line < stop && receiver + column < end);
        }
        if (!of_input) {
            const int across = WIDTH / per;
#pragma unroll 2
            for (int i = thread; i < DEPTH * across; i += THREADS) {
                const int line = i / across, column = i % across * per;
                copy_piece<PIECE>(right + line * RIGHT_PITCH + column * (int)sizeof(element),
                                  from + (int64)(begin + line) * senders + column, begin + line < stop && sender + column < senders);
            }
        } else if (senders > 0) {
            const int per = INPUT_PIECE / (int)sizeof(element), across = WIDTH / per;
#pragma unroll 1
            for (int i = thread; i < DEPTH * across; i += THREADS) {
                const int line = i / across, column = i % across * per;
                const uint32 row = (begin + line) / (uint32)call.B, b = begin + line - row * (uint32)call.B;
                const uint32 t = first_tick + row * period;
                bool there = begin + line < stop && sender + column < senders;
                if (there && call.lengths != nullptr) there = t < call.lengths[s * call.B + b];
                copy_piece<INPUT_PIECE>(right + line * RIGHT_PITCH + column * (int)sizeof(element),
                                        from + t * call.input_t + b * call.input_b + column, there);
            }
        }
    };

    const int row = warp % WARPS_TALL * TALL * ROWS, column = warp / WARPS_TALL * ACROSS * 8;
    const bool busy = receiver + row < end && sender + column < senders;
    const bool summing = of_input && sender == 0;
    /* the columns of the gradients that this thread adds up for the bias: 4 bytes of some lines of a stage */
    const int words = HEIGHT * (int)sizeof(element) / 4, groups = THREADS / words;
    const int word = thread % words, group = thread / words;
    float sums[TALL][ACROSS][4] = {}, small[TALL][ACROSS][4] = {}, totals[2] = {};
    const int count = (int)divide_up(stop - first, DEPTH);
#pragma unroll 1
    for (int n = 0; n < STAGES - 1; n++) {
        if (n < count) copy_stage(n);
        end_copies();
    }
    for (int n = 0; n < count; n++) {
        await_copies<STAGES - 2>();
        join_block();
        if (n + STAGES - 1 < count) copy_stage(n + STAGES - 1);
        end_copies();
        const char *left = memory + n % STAGES * STAGE, *right = left + DEPTH * LEFT_PITCH;
        if (busy) {
#pragma unroll STEPS_AT_ONCE
            for (int step = 0; step < DEPTH; step += INNER) {
                uint32 columns[ACROSS][2];
                load_right(columns, right + step * RIGHT_PITCH + column * (int)sizeof(element), RIGHT_PITCH);
#pragma unroll
                for (int k = 0; k < TALL; k++) {
                    Left units;
                    load_left(units, left + step * LEFT_PITCH + (row + k * ROWS) * (int)sizeof(element), LEFT_PITCH);
#pragma unroll
                    for (int i = 0; i < ACROSS; i++) multiply(sums[k][i], small[k][i], units, columns[i]);
                }
            }
        }
        if (summing)
#pragma unroll
            for (int k = 0; k < DEPTH / groups; k++) {
                const uint32 x = *(const uint32 *)(left + (group * (DEPTH / groups) + k) * LEFT_PITCH + word * 4);
#if ELEMENT == 0
                totals[0] += float_of(x);
#else
                totals[0] += to_float((element)(x & 0xffffu)), totals[1] += to_float((element)(x >> 16));
#endif
            }
    }
    if (summing) {
        join_block();
        float *shared = (float *)memory;
        const int per = HEIGHT / words;
#pragma unroll
        for (int i = 0; i < per; i++) shared[group * HEIGHT + word * per + i] = totals[i];
        join_block();
        if (thread < HEIGHT) {
            float total = 0;
            for (int i = 0; i < groups; i++) total += shared[i * HEIGHT + thread];
            call.sums[((s * PLANES + plane) * (call.parts - call.recurrent_parts) + number - call.recurrent_parts) * HEIGHT + thread] =
                total;
        }
    }
    if (!busy) return;
    float *to = call.products + ((s * PLANES + plane) * call.parts + number) * (HEIGHT * WIDTH) + (row + lane / 4) * WIDTH + column + lane % 4 * 2;
    bool right = true;
#pragma unroll
    for (int k = 0; k < TALL; k++)
#pragma unroll
        for (int i = 0; i < ACROSS; i++) {
            add_small(sums[k][i], small[k][i]);
#pragma unroll
            for (int low = 0; low < 2; low++) {
                const float x = sums[k][i][2 * low], y = sums[k][i][2 * low + 1];
                *(float2 *)(to + (k * ROWS + low * 8) * WIDTH + i * 8) = make_float2(x, y);
                right = right && x == x && y == y;
            }
        }
    if (right) return;
    for (int k = 0; k < TALL * 2; k++)
        for (int i = 0; i < ACROSS * 2; i++) {
            float *number = to + k * 8 * WIDTH + i / 2 * 8 + i % 2;
            const int u = receiver + row + lane / 4 + k * 8, v = sender + column + lane % 4 * 2 + i / 2 * 8 + i % 2;
            if (*number != *number && u < end && v < senders)
                *number = multiply_heard(call, s, plane, table, of_input, u, v, first, stop);
        }
}

/* Computes the input's gradient of one step, for TILE sequences and inputs. */
DEVICE void multiply_input(const Call &call, int64 s, uint32 number, char *memory) {
    const int thread = thread_number(), warp = thread / 32, lane = thread % 32;
    const uint32 wide = divide_up((uint32)call.I, TILE), tall = divide_up((uint32)call.B, TILE);
    const int first_input = (int)(number % wide * TILE), first = (int)(number / wide % tall * TILE), I = (int)call.I;
    const uint32 t = number / wide / tall;
    const int64 *lengths = call.lengths == nullptr ? nullptr : call.lengths + s * call.B;
    const element *weight = call.weight + s * call.weight_s + first_input;

    /* the units and the gate that are copied next: those of the modules that tick */
    const Module *module = call.table, *behind = call.table + call.G;
    int unit = 0, gate = 0;
    auto find_units = [&]() {
        for (; module < behind; module++, unit = 0)
            if (unit < module->size && t >= module->first_tick && (t - (uint32)module->first_tick) % (uint32)module->period == 0)
                return true;
        return false;
    };
    auto copy_stage = [&](int n) {
        char *left = memory + n % STAGES * INPUT_STAGE, *right = left + TILE * UNIT_PITCH;
        const int end = (int)(module->first_unit + module->size), begin = (int)module->first_unit + unit, count = end - begin;
        const int64 tick = (t - (uint32)module->first_tick) / (uint32)module->period;
        const element *gradients = call.g_messages + (s * PLANES + input_plane_of(gate)) * call.g_messages_s +
                                   module->g_messages + begin + (tick * call.B + first) * end;
        const element *weights = weight + (gate * call.N + begin) * I;
        const int per = PIECE / (int)sizeof(element), across = UNITS_AT_ONCE / per;
#pragma unroll 2
        for (int i = thread; i < TILE * across; i += THREADS) {
            const int line = i / across, column = i % across * per;
            bool there = first + line < call.B && column < count;
            if (there && lengths != nullptr) there = t < lengths[first + line];
            copy_piece<PIECE>(left + line * UNIT_PITCH + column * (int)sizeof(element), gradients + (int64)line * end + column, there);
        }
        const int per_input = INPUT_PIECE / (int)sizeof(element), across_input = TILE / per_input;
#pragma unroll 2
        for (int i = thread; i < UNITS_AT_ONCE * across_input; i += THREADS) {
            const int line = i / across_input, column = i % across_input * per_input;
            copy_piece<INPUT_PIECE>(right + line * INPUT_PITCH + column * (int)sizeof(element),
                                    weights + (int64)line * I + column, line < count && first_input + column < I);
        }
        if (++gate == GATES) gate = 0, unit += UNITS_AT_ONCE;
    };

    const int row = warp % 4 * ROWS, column = warp / 4 * ACROSS * 8;
    const bool busy = first + row < call.B && first_input + column < I;
    float sums[ACROSS][4] = {}, small[ACROSS][4] = {};
    int count = 0;
#pragma unroll 1
    for (int n = 0; n < STAGES - 1; n++) {
        if (find_units()) copy_stage(count++);
        end_copies();
    }
    for (int n = 0; n < count; n++) {
        await_copies<STAGES - 2>();
        join_block();
        if (find_units()) copy_stage(count++);
        end_copies();
        const char *left = memory + n % STAGES * INPUT_STAGE, *right = left + TILE * UNIT_PITCH;
        if (busy) {
#pragma unroll
            for (int step = 0; step < UNITS_AT_ONCE; step += INNER) {
                Left lines;
                uint32 columns[ACROSS][2];
                load_left_lines(lines, left + row * UNIT_PITCH + step * (int)sizeof(element), UNIT_PITCH);
                load_right(columns, right + step * INPUT_PITCH + column * (int)sizeof(element), INPUT_PITCH);
#pragma unroll
                for (int i = 0; i < ACROSS; i++) multiply(sums[i], small[i], lines, columns[i]);
            }
        }
    }
    if (!busy) return;
#pragma unroll
    for (int low = 0; low < 2; low++) {
        const int b = first + row + lane / 4 + low * 8;
        if (b >= call.B) continue;
        const bool ended = lengths != nullptr && t >= lengths[b];
        element *to = call.g_input + ((s * call.T + t) * call.B + b) * I;
#pragma unroll
        for (int i = 0; i < ACROSS; i++)
#pragma unroll
            for (int k = 0; k < 2; k++) {
                const int at = first_input + column + i * 8 + lane % 4 * 2 + k;
                float rest = small[i][2 * low + k];
                /* the small products of a number that is infinite count for nothing */
                rest = rest - rest == 0 ? rest : 0;
                if (at < I) to[at] = to_element(ended ? 0 : PRODUCTS == 3 ? sums[i][2 * low + k] + rest : sums[i][2 * low + k]);
            }
    }
}

/* The blocks of a replica: those of parts, then those of the input's gradient. */
PROGRAM_BLOCKS(THREADS, 2) multiply_gradients(CALL(Call, call)) {
    SHARED_MEMORY(memory);
    const int64 s = block_row();
    const uint32 number = (uint32)block_number();
    const uint32 parts = (uint32)call.parts * PLANES;
    if (number < parts)
        multiply_part(call, s, (int)(number / (uint32)call.parts), number % (uint32)call.parts, memory);
    else
        multiply_input(call, s, number - parts, memory);
}

struct Piece {
    float x[OUTPUT_PIECE];
};

/* Adds up the parts of some numbers of a block: `part` has the first one, the next one is `stride` numbers behind it. */
DEVICE Piece add_parts(const float *part, int count, int64 stride) {
    Piece sum = {};
#pragma unroll 8
    for (int i = 0; i < count; i++) {
#if OUTPUT_PIECE == 4
        const float4 x = *(const float4 *)(part + i * stride);
        sum.x[0] += x.x, sum.x[1] += x.y, sum.x[2] += x.z, sum.x[3] += x.w;
#else
        sum.x[0] += part[i * stride];
#endif
    }
    return sum;
}

DEVICE void store_piece(element *to, const Piece &piece) {
#if OUTPUT_PIECE == 4 && ELEMENT == 0
    *(float4 *)to = make_float4(piece.x[0], piece.x[1], piece.x[2], piece.x[3]);
#elif OUTPUT_PIECE == 4
    *(uint2 *)to = make_uint2((uint32)to_element(piece.x[0]) | (uint32)to_element(piece.x[1]) << 16,
                              (uint32)to_element(piece.x[2]) | (uint32)to_element(piece.x[3]) << 16);
#else
    *to = to_element(piece.x[0]);
#endif
}

/* Adds up the parts of a plane. A thread computes OUTPUT_PIECE numbers of a row of weight_hh or weight_ih, or a number of the
 * bias. */
PROGRAM(THREADS) add_gradients(CALL(Call, call)) {
    const int64 s = block_row() / PLANES;
    const int plane = (int)(block_row() % PLANES), input_gate = input_gate_of(plane);
    const uint32 N = (uint32)call.N, I = (uint32)call.I;
    const uint32 recurrent = call.g_weight_hh == nullptr ? 0 : N / OUTPUT_PIECE;
    const uint32 inputs = call.g_weight_ih == nullptr ? 0 : I / OUTPUT_PIECE, biases = call.g_bias == nullptr ? 0 : 1;
    const uint32 of_row = recurrent + inputs + biases, number = (uint32)block_number() * THREADS + thread_number();
    const uint32 u = number / of_row;
    uint32 column = number % of_row;
    if (u >= N) return;
    const Module *table = call.table;
    uint32 before = 0;
    const float *products = call.products + block_row() * call.parts * (HEIGHT * WIDTH);
    if (column < recurrent) {
        if (plane >= GATES) return;
        column *= OUTPUT_PIECE;
        element *to = call.g_weight_hh + ((s * GATES + plane) * N + u) * N + column;
        Parts parts = count_parts(call, *table, false);
        while (column >= table->first_unit + table->size) {
            before += parts.blocks * parts.count;
            parts = count_parts(call, *++table, false);
        }
        Piece sum = {};
        if (u < table->first_unit + table->size) {
            const uint32 v = column - (uint32)table->first_unit;
            const int64 part = before + u / HEIGHT * parts.senders + v / WIDTH;
            sum = add_parts(products + part * (HEIGHT * WIDTH) + u % HEIGHT * WIDTH + v % WIDTH, (int)parts.count,
                            (int64)parts.blocks * (HEIGHT * WIDTH));
        }
        store_piece(to, sum);
        return;
    }
    Parts parts = count_parts(call, *table, true);
    while (u >= table->first_unit + table->size) {
        before += parts.blocks * parts.count;
        parts = count_parts(call, *++table, true);
    }
    const uint32 row = u - (uint32)table->first_unit;
    const int64 part = before + row / HEIGHT * parts.senders;
    column -= recurrent;
    if (column < inputs) {
        if (input_gate < 0) return;
        const uint32 v = column * OUTPUT_PIECE;
        store_piece(call.g_weight_ih + ((s * GATES + input_gate) * N + u) * I + v,
                    add_parts(products + (call.recurrent_parts + part + v / WIDTH) * (HEIGHT * WIDTH) + row % HEIGHT * WIDTH +
                                  v % WIDTH,
                              (int)parts.count, (int64)parts.blocks * (HEIGHT * WIDTH)));
    } else {
        const float *sums = call.sums + (block_row() * (call.parts - call.recurrent_parts) + part) * HEIGHT + row % HEIGHT;
        float total = 0;
#pragma unroll 8
        for (uint32 i = 0; i < parts.count; i++) total += sums[i * (int64)parts.blocks * HEIGHT];
        call.g_bias[(s * PLANES + bias_of(plane)) * N + u] = to_element(total);
    }
}
