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
    float drive[2][CHUNK + 1][DRIVE_WIDTH]; /* the last row is read, but not used */
    uint32 ticks[2][SCAN]; /* bit k: the unit ticks at step k of the chunk */
    int start[SCAN];       /* the first unit that the unit hears */
    Operands operands;
};

static_assert(sizeof(Memory) == SHARED, "small.py computes another size");

/* The two parts of the activation, as those of tanh in primitives.cuh. */
DEVICE float begin_activation(float x) { return RELU ? 0 : begin_tanh<ELEMENT != 0>(x); }

DEVICE float end_activation(float x, float begun) { return RELU ? (x <= 0 ? 0 : x) : end_tanh<ELEMENT != 0>(x, begun); }

/* Computes the recurrence of one unit; `unit` may be one that the network does not have. */
DEVICE void scan(const Call &call, Memory &memory, int64 s, int64 b, int unit) {
    const int64 N = call.N, B = call.B;
    const int T = (int)call.T, length = (int)min(call.T, length_of(call, s, b));
    const bool there = unit < N;
    const element *weight = call.weight_hh + s * call.weight_hh_s;
    const int first_row = unit / 4 * 4, lane = unit % 4;
    Weights weights;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int row = first_row + (lane ^ k), start = row < N ? memory.start[row] : (int)N;
#pragma unroll
        for (int c = 0; c < GROUPS; c++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int column = 16 * c + 4 * lane + i;
                weights.in_registers[k][c][i] = column >= start && column < N ? to_float(weight[row * N + column]) : 0;
            }
    }
    float state = there && call.h0 != nullptr ? to_float(call.h0[s * call.h0_s + b * call.h0_b + unit]) : 0;
    memory.h[0][unit] = state;
    /* where the next state is held, and the last row of `ticks` so far */
    element *held = nullptr, *ticks = nullptr;
    int64 row_size = 0;
    if (there) {
        const Module &module = find_module(call, unit);
        if (call.held != nullptr) held = call.held + (s * call.T * B + b) * N + unit;
        if (call.ticks != nullptr) {
            row_size = B * module.size;
            ticks = call.ticks + s * call.ticks_s + module.states + b * module.size + (unit - module.first_unit);
            *ticks = to_element(state);
        }
    }
    /* the first steps at which there is something to store; T + 1: never */
    const int first_held = held == nullptr ? T + 1 : 1, first_stored = ticks == nullptr ? T + 1 : 1;
    float end_state = state; /* at the end of the sequence */
    uint32 has_ticked = 0;
    int t = 0;
    /* stores the results of the step before t, while numbers of this step are loaded */
    const auto store_last = [&]() {
        const bool counts = t <= length;
        if (counts) end_state = state;
        if (t >= first_held) {
            *held = to_element(counts ? state : 0);
            held += call.held_step;
        }
        if (has_ticked && t >= first_stored) {
            ticks += row_size;
            *ticks = to_element(state);
        }
    };
    /* the first states that this thread multiplies, and where its own next one goes; the buffers take turns */
    const float *states = memory.h[0] + 4 * lane, *other_states = memory.h[1] + 4 * lane;
    float *next_state = &memory.h[1][unit], *other_next_state = &memory.h[0][unit];
    for (int left = T; left > 0; left -= CHUNK) {
        join_block();
        const int buffer = t / CHUNK % 2, end = t + min(left, CHUNK);
        uint32 due = memory.ticks[buffer][unit];
        const float *drive = &memory.drive[buffer][0][unit];
        float next = *drive;
        while (true) {
            const float own = next;
            const bool is_due = due & 1;
            drive += DRIVE_WIDTH;
            next = *drive;
            float sum = multiply<GROUPS, 4>(own, weights, states, store_last);
            const bool is_spoilt = is_due && sum != sum;
            float begun = begin_activation(sum);
            if (any_of_warp(is_spoilt)) {
                if (is_spoilt) {
                    /* zero times a state that the unit does not hear may be NaN */
                    sum = own;
                    for (int j = memory.start[unit]; j < N; j++)
                        sum += to_float(weight[unit * N + j]) * states[j - 4 * lane];
                }
                begun = begin_activation(sum);
            }
            const float state_new = to_float(to_element(end_activation(sum, begun)));
            state = is_due ? state_new : state;
            *next_state = state;
            swap(states, other_states);
            swap(next_state, other_next_state);
            has_ticked = due & 1;
            due >>= 1;
            if (++t == end) break;
            join_scan();
        }
    }
    store_last();
    if (there) call.final[(s * B + b) * N + unit] = to_element(end_state);
}

/* Prepares one chunk after the other. */
DEVICE void help(const Call &call, Memory &memory, int64 s, int64 b, int helper) {
    const Source source = make_source(call, s, b);
    Countdown countdown(call, helper);
    for (int64 first = 0; first < call.T; first += CHUNK) {
        const int buffer = first / CHUNK % 2;
        memory.ticks[buffer][helper] = countdown.next();
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
