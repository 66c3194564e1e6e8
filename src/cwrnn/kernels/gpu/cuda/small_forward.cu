/* Small networks forward: a whole sequence, from the input to the output, in one block, for the cells tanh and relu.
 *
 * INPUTS is I rounded up to 4, 16 or 64, or 64 if there are more. RELU: relu instead of tanh. A thread computes a unit. */

#define CHUNK 32
#define HELPERS SCAN
#define TALL 4

#include "small.cuh"

/* The shared memory. Its size is SHARED. */
struct Memory {
    float h[2][SCAN];
    float drive[2][CHUNK][DRIVE_WIDTH];
    float beyond[DRIVE_WIDTH]; /* is read, but not used */
    uint32 ticks[2][SCAN]; /* bit k: the unit ticks at step k of the chunk */
    uint32 any[2][SCAN];   /* bit k: a unit of the same warp ticks */
    int start[SCAN];       /* the first unit that the unit hears */
    Operands operands;
};

static_assert(sizeof(Memory) == SHARED, "small.py computes another size");

DEVICE float activate(float x) {
#if RELU
    return x <= 0 ? 0 : x;
#else
    return tanh_of<ELEMENT != 0>(x);
#endif
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
            drive += DRIVE_WIDTH;
            next = *drive;
            if (any >> k & 1) {
                const float own = sum;
                sum = multiply<GROUPS, 4>(sum, weights, h, store_state);
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
    const Source source = make_source(call, s, b);
    Countdown countdown(call, helper);
    for (int64 first = 0; first < call.T; first += CHUNK) {
        const int buffer = first / CHUNK % 2;
        const uint32 ticks = countdown.next();
        memory.ticks[buffer][helper] = ticks;
        memory.any[buffer][helper] = join_bits<32>(ticks);
        compute_drive(call, source, memory.operands, memory.drive[buffer], first, helper);
        join_block();
    }
}

PROGRAM(SCAN + HELPERS) run_small_forward(CALL(Call, call)) {
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
