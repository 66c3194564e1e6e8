/* Small networks of more than 64 units, for LSTM and GRU: the drive W_ih x + b of all steps.
 *
 * A line is one step of one sequence. Blocks multiply tiles of 64 x 64 numbers. Steps behind the end of a sequence have no
 * input. */

#define TILE 64

#include "small.cuh"

PROGRAM(THREADS) compute_small_drive(CALL(Call, call)) {
    SHARED_MEMORY(shared);
    Memory &memory = *(Memory *)shared;
    const int64 N = call.N, I = call.I, rows = GATES * ((N + 15) / 16 * 16), lines = call.T * call.B;
    const int64 row_tiles = (rows + TILE - 1) / TILE, blocks = (lines + TILE - 1) / TILE * row_tiles;
    const int64 s = block_number() / blocks, number = block_number() % blocks;
    const int64 first = number / row_tiles * TILE, first_row = number % row_tiles * TILE;
    const int thread = thread_number(), inner = thread / 16, outer = thread % 16;
    const Lines at(call, first);
    const element *inputs[4], *weights[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int line = inner + 16 * i;
        const int64 unit = (first_row + line) / GATES, gate = (first_row + line) % GATES;
        const int64 t = at.step(line), b = at.sequence(line);
        const bool is_read = first + line < lines && !ends_before(call, s, b, t);
        inputs[i] = is_read ? call.input + s * call.input_s + t * call.input_t + b * call.input_b : nullptr;
        weights[i] = unit < N ? call.weight_ih + s * call.weight_ih_s + (gate * N + unit) * I : nullptr;
    }
    const auto load = [&](int64 n, float(&left)[4], float(&right)[4]) {
        const int64 input = n * DEPTH + outer;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            left[i] = inputs[i] != nullptr && input < I ? to_float(inputs[i][input]) : 0;
            right[i] = weights[i] != nullptr && input < I ? to_float(weights[i][input]) : 0;
        }
    };
    const auto place = [&](int i, float *&left, float *&right) {
        left = &memory.left[outer][inner + 16 * i], right = &memory.right[outer][inner + 16 * i];
    };
    float sums[4][4], total[4] = {};
    const int64 row = first_row + outer * 4;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int64 unit = (row + j) / GATES, gate = (row + j) % GATES;
        const bool there = call.bias != nullptr && unit < N;
        const float b = there ? to_float(call.bias[s * call.bias_s + gate * N + unit]) : 0;
#pragma unroll
        for (int i = 0; i < 4; i++) sums[i][j] = b;
    }
    multiply((I + DEPTH - 1) / DEPTH, sums, total, memory, load, place);
    if (row >= rows) return;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int64 line = first + inner * 4 + i;
        if (line < lines)
            *(float4 *)&call.drive[(s * lines + line) * rows + row] =
                make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
    }
}
