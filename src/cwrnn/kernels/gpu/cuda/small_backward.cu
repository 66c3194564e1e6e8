/* Small networks backward: the gradients of all sums that were activated, in reverse, in one block per sequence, for the
 * cells tanh and relu.
 *
 * The helpers load the gradients that come from outside and the states, and write the states before each step. RELU: relu
 * instead of tanh. */

#define CHUNK 16
#define HELPERS SCAN

#include "small.cuh"

#define AT_MOST(groups) (GROUPS < groups ? GROUPS : groups)

/* The shared memory. Its size is SHARED. */
struct Memory {
    float g[2][SCAN];
    float outside[2][CHUNK][SCAN];
    float slope[2][CHUNK][SCAN];
    uint32 due[2][SCAN];      /* bit k: the unit ticked at step k of the chunk, and its gradient counts */
    uint32 group_due[SCAN];   /* the words of `due` of 16 units, joined */
    uint32 reach[2][CHUNK];   /* of a step, bit c: a unit of group c of 16 units is due */
    int end[SCAN];            /* beyond the last unit that hears the unit */
};

static_assert(sizeof(Memory) == SHARED, "small.py computes another size");

DEVICE float slope_of(float h) {
#if RELU
    return h <= 0 ? 0 : 1;
#else
    return (1 - h) * (1 + h);
#endif
}

/* Computes the recurrence of one unit in reverse; `unit` may be one that the network does not have. */
DEVICE void scan(const Call &call, Memory &memory, int64 s, int64 b, int unit) {
    const int64 N = call.N, B = call.B;
    const int T = (int)call.T;
    const bool there = unit < (int)N;
    const element *weight = call.weight_hh + s * call.weight_hh_s;
    const int first_row = unit / 4 * 4, lane = unit % 4;
    Weights weights;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int sender = first_row + (lane ^ k), end = sender < N ? memory.end[sender] : 0;
#pragma unroll
        for (int c = 0; c < GROUPS; c++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int receiver = 16 * c + 4 * lane + i;
                weights.in_registers[k][c][i] = receiver < end ? to_float(weight[receiver * N + sender]) : 0;
            }
    }
    float *g_drive = there ? call.g_drive + ((s + 1) * T * B + b) * N + unit : nullptr;
    float carried = 0;
    for (int first = (T - 1) / CHUNK * CHUNK; first >= 0 && T > 0; first -= CHUNK) {
        join_block();
        const int buffer = first / CHUNK % 2, count = min(T - first, CHUNK);
        const uint32 due = memory.due[buffer][unit];
        const float *outside = &memory.outside[buffer][count - 1][unit], *slope = &memory.slope[buffer][count - 1][unit];
        const uint32 *reaches = &memory.reach[buffer][count - 1];
        float g = *outside, factor = *slope;
        /* All threads have the same reach. The compiler knows this only of a result of the whole warp, and then branches without
         * reconverging. */
        uint32 groups = join_bits_of_warp(*reaches), reach = groups;
        for (int k = count - 1; k >= 0; k--) {
            float *numbers = memory.g[k & 1];
            const bool is_due = due >> k & 1;
            const float whole = carried + g;
#if RELU
            const float d = is_due && factor != 0 ? whole : 0;
#else
            const float d = is_due ? whole * factor : 0;
#endif
            numbers[unit] = d;
            carried = is_due ? 0 : whole;
            if (k > 0) {
                g = *(outside -= SCAN), factor = *(slope -= SCAN);
                reach = *--reaches;
            }
            join_scan();
            const auto store_gradient = [&]() {
                if (there) {
                    g_drive -= call.g_drive_step;
                    *g_drive = d;
                }
            };
            const uint32 now = groups;
            groups = join_bits_of_warp(reach); /* of the next step */
            const float *own = numbers + 4 * lane, held = carried;
            if (GROUPS > 4 && now >= 16)
                carried = multiply<GROUPS, 4>(held, weights, own, store_gradient);
            else if (GROUPS > 2 && now >= 4)
                carried = multiply<AT_MOST(4), 4>(held, weights, own, store_gradient);
            else if (now >= 2)
                carried = multiply<AT_MOST(2), 4>(held, weights, own, store_gradient);
            else if (now > 0)
                carried = multiply<1, 4>(held, weights, own, store_gradient);
            else
                store_gradient();
            if (any_of_warp(carried != carried)) {
                /* zero times a number of a unit that does not hear this one, or does not tick, may be NaN */
                if (carried != carried) {
                    carried = held;
                    for (int i = 0; there && i < memory.end[unit]; i++)
                        if (memory.due[buffer][i] >> k & 1) carried += to_float(weight[i * N + unit]) * numbers[i];
                }
            }
        }
    }
    if (there && call.g_h0 != nullptr) {
        if (call.g_ticks != nullptr) {
            const Module &module = find_module(call, unit);
            carried += to_float(
                call.g_ticks[s * call.ticks_s + module.states + b * module.size + (unit - module.first_unit)]);
        }
        if (call.g_final != nullptr && min(length_of(call, s, b), call.T) == 0)
            carried += to_float(call.g_final[(s * B + b) * N + unit]);
        call.g_h0[(s * B + b) * N + unit] = to_element(carried);
    }
}

/* Prepares one chunk after the other, the last one first. */
DEVICE void help(const Call &call, Memory &memory, int64 s, int64 b, int helper) {
    const int64 T = call.T, N = call.N, B = call.B, length = min(T, length_of(call, s, b));
    /* beyond its end a sequence has gradients only if its ticks have some */
    const int64 steps = call.g_ticks == nullptr ? length : T;
    const bool there = helper < N;
    int left = 0, row = 0, period = 1;
    int64 row_size = 0;
    const element *ticks = nullptr, *g_ticks = nullptr, *g_held = nullptr;
    element *before = nullptr;
    float state = 0, g_final = 0;
    if (there) {
        const Module &module = find_module(call, helper);
        period = module.period, row = count_ticks(module, T), row_size = B * module.size;
        if (row > 0) left = (int)((T - 1 - module.first_tick) % period);
        const int64 at = s * call.ticks_s + module.states + row * row_size + b * module.size + (helper - module.first_unit);
        ticks = call.ticks + at;
        state = to_float(*ticks);
        if (call.g_ticks != nullptr) g_ticks = call.g_ticks + at;
        if (call.g_final != nullptr) g_final = to_float(call.g_final[(s * B + b) * N + helper]);
        if (call.g_held != nullptr) g_held = call.g_held + s * call.g_held_s + b * call.g_held_b + helper * call.g_held_n;
        if (call.before != nullptr) before = call.before + (s * T * B + b) * N + helper;
    }
    for (int64 first = (T - 1) / CHUNK * CHUNK; first >= 0 && T > 0; first -= CHUNK) {
        const int buffer = first / CHUNK % 2;
        element outside[CHUNK], of_tick[CHUNK], earlier[CHUNK];
        uint32 ticked = 0;
#pragma unroll
        for (int k = CHUNK - 1; k >= 0; k--) {
            const int64 t = first + k;
            outside[k] = of_tick[k] = earlier[k] = 0;
            if (g_held != nullptr && t < length) outside[k] = g_held[t * call.g_held_t];
            if (t < T && row > 0 && left-- == 0) {
                left = period - 1;
                ticked |= 1u << k;
                if (g_ticks != nullptr) {
                    of_tick[k] = *g_ticks;
                    g_ticks -= row_size;
                }
                ticks -= row_size;
                earlier[k] = *ticks;
                row--;
            }
        }
        const uint32 counted = steps >= first + CHUNK ? ~0u : steps > first ? (1u << (steps - first)) - 1 : 0;
        const uint32 due = ticked & counted;
#pragma unroll
        for (int k = CHUNK - 1; k >= 0; k--) {
            const int64 t = first + k;
            float g = to_float(outside[k]), slope = 0;
            if (t == length - 1) g += g_final;
            if (ticked >> k & 1) {
                g += to_float(of_tick[k]);
                slope = slope_of(state);
                state = to_float(earlier[k]);
            }
            memory.outside[buffer][k][helper] = g;
            memory.slope[buffer][k][helper] = slope;
            if (before != nullptr && t < T) before[t * (B * N)] = to_element(counted >> k & 1 ? state : 0);
        }
        memory.due[buffer][helper] = due;
        memory.group_due[helper] = join_bits_of_group(due);
        join_helpers();
        for (int k = helper; k < CHUNK; k += HELPERS) {
            uint32 reach = 0;
            for (int c = 0; c < GROUPS; c++) reach |= (memory.group_due[16 * c] >> k & 1) << c;
            memory.reach[buffer][k] = reach;
        }
        join_block();
    }
}

PROGRAM(SCAN + HELPERS) run_small_backward(CALL(Call, call)) {
    SHARED_MEMORY(shared);
    Memory &memory = *(Memory *)shared;
    const int thread = thread_number();
    const int64 s = block_number() / call.B, b = block_number() % call.B;
    if (thread < call.N) {
        const Module &module = find_module(call, thread);
        memory.end[thread] = module.first_unit + module.size;
    }
    join_block();
    if (thread < SCAN)
        scan(call, memory, s, b, thread);
    else
        help(call, memory, s, b, thread - SCAN);
}
