/* Small networks forward: a whole sequence, from the input to the output, in one block.
 *
 * INPUTS is how many inputs the helpers multiply at a time: I rounded up to 4, 16 or 64. RELU: relu instead of tanh. */

#include "small.cuh"

#define CHUNK 32
#define WIDTH (UNITS + 4)
#define HEIGHT (CHUNK + 4)

/* The shared memory. Its size is SHARED. */
struct Memory {
    float h[2][SCAN];
    float drive[2][CHUNK][SCAN];
    float beyond[SCAN]; /* is read, but not used */
    uint32 ticks[2][SCAN]; /* bit k: the unit ticks at step k of the chunk */
    uint32 any[2][SCAN];   /* bit k: a unit of the same warp ticks */
    int start[SCAN];       /* the first unit that the unit hears */
    float weight[INPUTS][WIDTH];
    float input[INPUTS][HEIGHT];
};

static_assert(sizeof(Memory) == SHARED, "small.py computes another size");

DEVICE float activate(float x) {
#if RELU
    return x <= 0 ? 0 : x;
#else
    return tanh_of<ELEMENT != 0>(x);
#endif
}

/* A helper's sequence. */
struct Source {
    const element *input, *weight, *bias;
    int64 end; /* the step after the last one that is read */
};

/* Computes the drive of a chunk that begins at step `first`: 4 units and 8 steps per helper. */
DEVICE void compute_drive(const Call &call, const Source &source, Memory &memory, int buffer, int64 first, int helper) {
    const int unit = helper % (UNITS / 4) * 4, step = helper / (UNITS / 4) * 8;
    const bool works = helper < UNITS;
    const int64 I = call.I, input_t = call.input_t;
    float sums[4][8];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float b = works && source.bias != nullptr && unit + i < call.N ? to_float(source.bias[unit + i]) : 0;
#pragma unroll
        for (int k = 0; k < 8; k++) sums[i][k] = b;
    }
    for (int64 from = 0; from < I; from += INPUTS) {
        join_helpers();
        if (first == 0 || I > INPUTS) {
#pragma unroll 8
            for (int e = helper; e < INPUTS * UNITS; e += SCAN) {
                const int i = e % INPUTS, u = e / INPUTS;
                memory.weight[i][u] = u < call.N && from + i < I ? to_float(source.weight[u * I + from + i]) : 0;
            }
        }
#pragma unroll 16
        for (int e = helper; e < INPUTS * CHUNK; e += SCAN) {
            const int i = e % INPUTS, k = e / INPUTS;
            const bool there = from + i < I && first + k < source.end;
            memory.input[i][k] = there ? to_float(source.input[(first + k) * input_t + from + i]) : 0;
        }
        join_helpers();
        if (works) {
#pragma unroll 4
            for (int i = 0; i < INPUTS; i++) {
                const float4 w = *(const float4 *)&memory.weight[i][unit];
                const float4 x = *(const float4 *)&memory.input[i][step], y = *(const float4 *)&memory.input[i][step + 4];
                const float left[4] = {w.x, w.y, w.z, w.w}, right[8] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
#pragma unroll
                for (int m = 0; m < 4; m++)
#pragma unroll
                    for (int k = 0; k < 8; k++) sums[m][k] += left[m] * right[k];
            }
        }
    }
    if (works) {
#pragma unroll
        for (int k = 0; k < 8; k++)
            *(float4 *)&memory.drive[buffer][step + k][unit] = make_float4(sums[0][k], sums[1][k], sums[2][k], sums[3][k]);
    }
}

/* Computes the recurrence of one unit; `unit` may be one that the network does not have. */
DEVICE void scan(const Call &call, Memory &memory, int64 s, int64 b, int unit) {
    const int64 T = call.T, N = call.N, B = call.B, length = length_of(call, s, b);
    const bool there = unit < N;
    const element *weight = call.weight_hh + s * call.weight_hh_s;
    const int first_row = unit / 4 * 4, lane = unit % 4;
    float weights[4][GROUPS][4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int row = first_row + (lane ^ k), start = row < N ? memory.start[row] : (int)N;
#pragma unroll
        for (int c = 0; c < GROUPS; c++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int column = 16 * c + 4 * lane + i;
                weights[k][c][i] = column >= start && column < N ? to_float(weight[row * N + column]) : 0;
            }
    }
    float state = there && call.h0 != nullptr ? to_float(call.h0[s * call.h0_s + b * call.h0_b + unit]) : 0;
    memory.h[0][unit] = state;
    element *ticks = nullptr, *held = nullptr, *final = nullptr;
    int64 ticks_step = 0;
    if (there) {
        const Module &module = find_module(call, unit);
        final = call.final + (s * B + b) * N + unit;
        if (call.held != nullptr) held = call.held + (s * T * B + b) * N + unit;
        if (call.ticks != nullptr) {
            ticks_step = B * module.size;
            ticks = call.ticks + s * call.ticks_s + module.states + b * module.size + (unit - module.first_unit);
            *ticks = to_element(state);
        }
    }
    int64 t = 0;
    /* stores the state that was reached before step t */
    const auto store_state = [&]() {
        if (final != nullptr && t == length) *final = to_element(state);
        if (held != nullptr && t > 0) {
            *held = to_element(t <= length ? state : 0);
            held += B * N;
        }
    };
    for (int64 first = 0; first < T; first += CHUNK) {
        join_block();
        const int buffer = first / CHUNK % 2, count = (int)min(T - first, (int64)CHUNK);
        const uint32 mine = memory.ticks[buffer][unit], any = memory.any[buffer][unit];
        const float *drive = &memory.drive[buffer][0][unit];
        float next = *drive;
        for (int k = 0; k < count; k++, t++) {
            const float *h = memory.h[k % 2];
            float sum = next;
            drive += SCAN;
            next = *drive;
            if (any >> k & 1) {
                const float own = sum;
                sum = multiply<GROUPS>(sum, weights, h, store_state);
                if (mine >> k & 1) {
                    if (sum != sum) {
                        /* zero times a state that the unit does not hear may be NaN */
                        sum = own;
                        for (int j = memory.start[unit]; j < N; j++) sum += to_float(weight[unit * N + j]) * h[j];
                    }
                    const element rounded = to_element(activate(sum));
                    state = to_float(rounded);
                    if (ticks != nullptr) {
                        ticks += ticks_step;
                        *ticks = rounded;
                    }
                }
            } else
                store_state();
            memory.h[1 - k % 2][unit] = state;
            join_scan();
        }
    }
    store_state();
}

/* Prepares one chunk after the other. */
DEVICE void help(const Call &call, Memory &memory, int64 s, int64 b, int helper) {
    const int64 T = call.T;
    const Source source = {
        call.input + s * call.input_s + b * call.input_b,
        call.weight_ih + s * call.weight_ih_s,
        call.bias == nullptr ? nullptr : call.bias + s * call.bias_s,
        min(T, length_of(call, s, b)),
    };
    int period = 1, left = -1;
    if (helper < call.N) {
        const Module &module = find_module(call, helper);
        period = module.period, left = module.first_tick;
    }
    for (int64 first = 0; first < T; first += CHUNK) {
        const int buffer = first / CHUNK % 2;
        uint32 ticks = 0;
        if (left >= 0) {
            for (; left < CHUNK; left += period) ticks |= 1u << left;
            left -= CHUNK;
        }
        memory.ticks[buffer][helper] = ticks;
        memory.any[buffer][helper] = join_bits<32>(ticks);
        compute_drive(call, source, memory, buffer, first, helper);
        join_block();
    }
}

PROGRAM(2 * SCAN) run_small_forward(CALL(Call, call)) {
    SHARED_MEMORY(shared);
    Memory &memory = *(Memory *)shared;
    const int thread = thread_number();
    const int64 s = block_number() / call.B, b = block_number() % call.B;
    if (thread < call.N) memory.start[thread] = find_module(call, thread).first_unit;
    join_block();
    if (thread < SCAN)
        scan(call, memory, s, b, thread);
    else
        help(call, memory, s, b, thread - SCAN);
}
