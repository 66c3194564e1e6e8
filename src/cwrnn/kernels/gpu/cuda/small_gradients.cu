/* Small networks: the gradients of the weights, the bias and the input, from those of all sums that were activated.
 *
 * A line is one step of one sequence. Blocks multiply tiles of 64 x 64 numbers. Each part of the weights' gradients is a
 * sum over `part_lines` lines; a second program adds up the parts. */

#define TILE 64

#include "small.cuh"

/* Computes a tile of a part of the weights' gradients: the products of some rows, which are planes of units, with some
 * columns, which are the states at the step before, and behind them the inputs. */
DEVICE void multiply_weights(const Call &call, Memory &memory, int64 s, int64 part, int first_row, int64 tile) {
    const int64 B = call.B, N = call.N, rows = PLANES * N, lines = call.T * B, first = part * call.part_lines;
    const int64 count = min(call.part_lines, lines - first);
    const int64 first_column = call.first_column + tile * TILE, end_column = call.first_column + call.columns;
    const Lines at(call, first);
    const float *g_drive = call.g_drive + (s * lines + first) * rows;
    const element *before = call.before + (s * lines + first) * N, *input = call.input + s * call.input_s;
    const int thread = thread_number(), inner = thread / 16, outer = thread % 16;
    const auto load_column = [&](uint32 line, int64 t, int64 b, int64 column) -> float {
        if (column < N) return to_float(before[line * N + column]);
        return to_float(input[t * call.input_t + b * call.input_b + (column - N)]);
    };
    const auto load = [&](int64 n, float(&left)[4], float(&right)[4]) {
        const uint32 line = (uint32)n * DEPTH + inner;
        const bool there = line < count;
        int64 t = 0, b = 0;
        bool readable = there;
        if (there && end_column > N) {
            t = at.step(line), b = at.sequence(line);
            readable = !ends_before(call, s, b, t);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64 row = first_row + outer + 16 * i, column = first_column + outer + 16 * i;
            left[i] = there && row < rows ? g_drive[line * rows + row] : 0;
            right[i] = there && column < end_column && (readable || column < N) ? load_column(line, t, b, column) : 0;
        }
    };
    const auto place = [&](int i, float *&left, float *&right) {
        left = &memory.left[inner][outer + 16 * i], right = &memory.right[inner][outer + 16 * i];
    };
    float sums[4][4] = {}, total[4] = {};
    multiply((count + DEPTH - 1) / DEPTH, sums, total, memory, load, place);
    float *parts = call.parts + (s * call.part_count + part) * rows * (call.columns + 1);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = first_row + inner * 4 + i;
        if (row >= rows) continue;
        const Module &module = find_module(call, row % (int)N);
        float *to = parts + row * (call.columns + 1) - call.first_column;
        if (tile == 0 && outer == 0) to[end_column] = total[i];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int64 column = first_column + outer * 4 + j;
            if (column >= end_column) continue;
            float sum = sums[i][j];
            if (sum != sum && (column >= N || column >= module.first_unit)) {
                /* zero times a number that the unit does not hear may be NaN */
                sum = 0;
                for (uint32 line = 0; line < count; line++) {
                    const int64 t = at.step(line), b = at.sequence(line);
                    if (ticks_at(module, t) && !ends_before(call, s, b, t))
                        sum += g_drive[line * rows + row] * load_column(line, t, b, column);
                }
            }
            to[column] = sum;
        }
    }
}

/* Where the gradient of a row of the drive lies. */
DEVICE int64 of_drive(int64 row, int64 N) { return GATES == 3 && row >= 2 * N ? row + N : row; }

/* Computes the input's gradient for some lines and inputs. */
DEVICE void multiply_input(const Call &call, Memory &memory, int64 s, int64 first, int64 first_input) {
    const int64 B = call.B, N = call.N, I = call.I, rows = PLANES * N, lines = call.T * B;
    const int64 count = min((int64)TILE, lines - first);
    const Lines at(call, first);
    const float *g_drive = call.g_drive + (s * lines + first) * rows;
    const element *weight = call.weight_ih + s * call.weight_ih_s;
    const int thread = thread_number(), inner = thread / 16, outer = thread % 16;
    const auto load = [&](int64 n, float(&left)[4], float(&right)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int line = inner + 16 * i;
            const int64 own = n * DEPTH + outer, row = n * DEPTH + inner, input = first_input + outer + 16 * i;
            left[i] = line < count && own < GATES * N ? g_drive[line * rows + of_drive(own, N)] : 0;
            right[i] = row < GATES * N && input < I ? to_float(weight[row * I + input]) : 0;
        }
    };
    const auto place = [&](int i, float *&left, float *&right) {
        left = &memory.left[outer][inner + 16 * i], right = &memory.right[inner][outer + 16 * i];
    };
    float sums[4][4] = {}, total[4] = {};
    multiply((GATES * N + DEPTH - 1) / DEPTH, sums, total, memory, load, place);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int line = inner * 4 + i;
        if (line >= count) continue;
        const int64 t = at.step(line), b = at.sequence(line);
        const bool ended = ends_before(call, s, b, t);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int64 input = first_input + outer * 4 + j;
            if (input >= I) continue;
            float sum = ended ? 0 : sums[i][j];
            if (sum != sum) {
                /* zero times the weight of a unit that does not tick may be NaN */
                sum = 0;
                for (int row = 0; row < GATES * N; row++)
                    if (ticks_at(find_module(call, row % (int)N), t))
                        sum += g_drive[line * rows + of_drive(row, N)] * to_float(weight[row * I + input]);
            }
            call.g_input[(s * lines + first + line) * I + input] = to_element(sum);
        }
    }
}

PROGRAM(THREADS) multiply_small_gradients(CALL(Call, call)) {
    SHARED_MEMORY(shared);
    Memory &memory = *(Memory *)shared;
    const int64 row_tiles = (PLANES * call.N + TILE - 1) / TILE, tiles = max((call.columns + TILE - 1) / TILE, (int64)1);
    const int64 input_tiles = (call.I + TILE - 1) / TILE;
    const int64 of_weights = call.part_count * row_tiles * tiles;
    const int64 of_input = call.g_input == nullptr ? 0 : (call.T * call.B + TILE - 1) / TILE * input_tiles;
    const int64 s = block_number() / (of_weights + of_input);
    int64 number = block_number() % (of_weights + of_input);
    if (number < of_weights)
        multiply_weights(call, memory, s, number / (row_tiles * tiles), (int)(number % row_tiles) * TILE,
                         number / row_tiles % tiles);
    else {
        number -= of_weights;
        multiply_input(call, memory, s, number / input_tiles * TILE, number % input_tiles * TILE);
    }
}

#define ROWS (THREADS / 32)

/* The sum of `count` numbers that lie `stride` apart, of which one row of threads adds up every ROWS-th. */
DEVICE float add_up(const float *numbers, int64 count, int64 stride, float (&sums)[ROWS][32]) {
    const int row = thread_number() / 32, column = thread_number() % 32;
    float sum = 0;
    if (numbers != nullptr) {
#pragma unroll 8
        for (int64 p = row; p < count; p += ROWS) sum += numbers[p * stride];
    }
    sums[row][column] = sum;
    join_block();
    if (row == 0)
        for (int i = 1; i < ROWS; i++) sum += sums[i][column];
    return sum;
}

/* Adds up the parts: 32 numbers in a block. */
PROGRAM(THREADS) add_small_gradients(CALL(Call, call)) {
    SHARED_MEMORY(shared);
    float(&sums)[ROWS][32] = *(float(*)[ROWS][32])shared;
    const int64 N = call.N, I = call.I, width = call.columns + 1, size = call.part_count > 0 ? PLANES * N * width : 0;
    const int64 blocks = (size + 31) / 32, of_peepholes = call.g_peepholes == nullptr ? 0 : (3 * N + 31) / 32;
    const int64 s = block_number() / (blocks + of_peepholes);
    int64 number = block_number() % (blocks + of_peepholes);
    if (number >= blocks) {
        number = (number - blocks) * 32 + thread_number() % 32;
        const bool there = number < 3 * N;
        const float sum = add_up(there ? call.g_peephole_parts + s * call.B * 3 * N + number : nullptr, call.B, 3 * N, sums);
        if (there && thread_number() < 32) call.g_peepholes[s * 3 * N + number] = to_element(sum);
        return;
    }
    number = number * 32 + thread_number() % 32;
    const float *part = call.parts + s * call.part_count * size + number;
    const float sum = add_up(number < size ? part : nullptr, call.part_count, size, sums);
    if (thread_number() >= 32 || number >= size) return;
    const int plane = (int)(number / width / N), unit = (int)(number / width % N);
    const int64 column = number % width + call.first_column;
    /* of a GRU, the third plane is that of the product inside the reset gate, and the fourth that of the drive */
    const int64 of_input = s * GATES + (GATES == 3 && plane == 3 ? 2 : plane);
    const int64 of_bias = s * PLANES + (GATES == 3 && plane >= 2 ? 5 - plane : plane);
    if (number % width == call.columns) {
        if (call.g_bias != nullptr) call.g_bias[of_bias * N + unit] = to_element(sum);
    } else if (column >= N) {
        if (GATES != 3 || plane != 2) call.g_weight_ih[(of_input * N + unit) * I + column - N] = to_element(sum);
    } else if (plane < GATES)
        call.g_weight_hh[((s * GATES + plane) * N + unit) * N + column] =
            to_element(column >= find_module(call, unit).first_unit ? sum : 0);
}
