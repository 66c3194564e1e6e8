/* Small networks backward: the gradients of all sums that were activated, in reverse, in one block per sequence, for LSTM
 * and GRU.
 *
 * Sixteen neighbouring threads compute four units, a gate of a unit each: thread l has unit l % 4 and gate l / 4. In the
 * products each thread multiplies the gates of every sixteenth unit. A GRU has no fourth gate; its fourth plane is n's.
 *
 * The helpers load the gradients that come from outside and what forward kept, and write the states before each step. */

#define CHUNK 16
#define HELPERS ROUND_UP(UNITS, 32)
#define AT_ONCE 8 /* steps that a helper loads at a time */
#define AT_MOST(groups) (GROUPS < groups ? GROUPS : groups)

#include "small.cuh"

#define LSTM (GATES == 4)

/* What a unit's tick needs. */
struct Tick {
    float gates[4]; /* as in `kept` */
    float first;    /* tanh(c) of an LSTM, the state before the tick of a GRU */
    float second;   /* c before the tick of an LSTM */
};

/* The shared memory. Its size is SHARED. */
struct Memory {
    float g[2][4 * UNITS]; /* gate after gate of each unit */
    float4 gates[2][CHUNK][UNITS];
    float first[2][CHUNK][UNITS];
    float second[2][CHUNK][UNITS];
    float outside[2][CHUNK][UNITS];
    uint32 due[2][UNITS];   /* bit k: the unit ticked at step k of the chunk, and its gradient counts */
    uint32 group_due[HELPERS]; /* the same of 16 units */
    int reach[2][CHUNK];    /* beyond the last group of 16 units of which one is due */
    int end[UNITS];         /* beyond the last unit that hears the unit */
};

static_assert(sizeof(Memory) == SHARED, "small.py computes another size");

/* The gradients of a unit's tick. */
struct Gradients {
    float planes[4];
    float h, c; /* those of the state before, without what the gates add */
};

/* `g` is the gradient of h, and `g_c` that of c from later ticks. */
DEVICE Gradients reverse_tick(const Tick &tick, float g, float g_c, bool has_peepholes, const float (&peepholes)[3]) {
    Gradients d;
    if (LSTM) {
        const float i = tick.gates[0], f = tick.gates[1], n = tick.gates[2], o = tick.gates[3];
        const float squashed = tick.first, before = tick.second;
        d.planes[3] = g * squashed * (1 - o) * o;
        g_c += g * o * (1 - squashed * squashed);
        if (has_peepholes) g_c += peepholes[2] * d.planes[3];
        d.planes[0] = g_c * n * (1 - i) * i;
        d.planes[1] = g_c * before * (1 - f) * f;
        d.planes[2] = g_c * i * (1 - n * n);
        d.c = g_c * f;
        if (has_peepholes) d.c += peepholes[0] * d.planes[0] + peepholes[1] * d.planes[1];
        d.h = 0;
    } else {
        const float r = tick.gates[0], z = tick.gates[1], n = tick.gates[2], product = tick.gates[3];
        d.planes[3] = g * (1 - z) * (1 - n * n);
        d.planes[0] = d.planes[3] * product * (1 - r) * r;
        d.planes[1] = (g * tick.first - g * n) * (1 - z) * z;
        d.planes[2] = d.planes[3] * r;
        d.h = g * z;
        d.c = 0;
    }
    return d;
}

/* Computes one gate of one unit in reverse; `unit` may be one that the network does not have. */
DEVICE void scan(const Call &call, Memory &memory, int64 s, int64 b, int thread) {
    const int64 T = call.T, N = call.N, B = call.B, length = min(T, length_of(call, s, b));
    const int first_row = thread / 16 * 4, lane = thread % 4, unit = first_row + lane, gate = thread / 4 % 4;
    const bool there = unit < N;
    const element *weight = call.weight_hh + s * call.weight_hh_s;
    float weights[4][GROUPS][4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int sender = first_row + (lane ^ k), end = sender < N ? memory.end[sender] : 0;
#pragma unroll
        for (int c = 0; c < GROUPS; c++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int receiver = 16 * c + thread % 16;
                const bool hears = receiver < end && i < GATES;
                weights[k][c][i] = hears ? to_float(weight[(i * N + receiver) * N + sender]) : 0;
            }
    }
    const bool has_peepholes = LSTM && call.peepholes != nullptr;
    float peepholes[3] = {0, 0, 0};
    if (has_peepholes && there)
        for (int i = 0; i < 3; i++) peepholes[i] = to_float(call.peepholes[s * call.peepholes_s + i * N + unit]);
    const int64 step_size = B * PLANES * N;
    float *g_drive = there ? call.g_drive + ((s * T + T) * B + b) * (PLANES * N) + gate * N + unit : nullptr;
    float carried = 0, carried_c = 0, g_final_c = 0, c = 0, g_peephole = 0;
    if (LSTM && there) {
        if (call.g_final != nullptr) g_final_c = to_float(call.g_final[(s * B + b) * 2 * N + N + unit]);
        const Module &module = find_module(call, unit);
        const int64 row = count_ticks(module, T) * B + b;
        c = to_float(call.kept[s * call.kept_s + 4 * call.states_size + module.states + row * module.size +
                               (unit - module.first_unit)]);
    }
    for (int64 first = (T - 1) / CHUNK * CHUNK; first >= 0 && T > 0; first -= CHUNK) {
        join_block();
        const int buffer = first / CHUNK % 2, count = (int)min(T - first, (int64)CHUNK);
        const uint32 due = memory.due[buffer][unit];
        Tick tick;
        float outside;
        int reach;
        const auto load = [&](int k) {
            const float4 gates = memory.gates[buffer][k][unit];
            tick.gates[0] = gates.x, tick.gates[1] = gates.y, tick.gates[2] = gates.z, tick.gates[3] = gates.w;
            tick.first = memory.first[buffer][k][unit];
            if (LSTM) tick.second = memory.second[buffer][k][unit];
            outside = memory.outside[buffer][k][unit];
            reach = memory.reach[buffer][k];
        };
        load(count - 1);
        for (int k = count - 1; k >= 0; k--) {
            float *numbers = memory.g[k % 2];
            const bool is_due = due >> k & 1;
            const float whole = carried + outside;
            if (LSTM && first + k == length - 1) carried_c += g_final_c;
            const Gradients d = reverse_tick(tick, whole, carried_c, has_peepholes, peepholes);
            float own = gate == 0 ? d.planes[0] : gate == 1 ? d.planes[1] : gate == 2 ? d.planes[2] : d.planes[3];
            if (!is_due) own = 0;
            numbers[4 * unit + gate] = gate < GATES ? own : 0;
            const float direct = is_due ? d.h : whole;
            if (is_due) {
                carried_c = d.c;
                if (LSTM) g_peephole += own * (gate == 3 ? c : tick.second);
            }
            if (LSTM) c = tick.second;
            const int groups = reach;
            if (k > 0) load(k - 1);
            join_scan();
            const auto store_gradient = [&]() {
                if (there) {
                    g_drive -= step_size;
                    *g_drive = own;
                }
            };
            float sum = 0;
            if (groups == 0)
                store_gradient();
            else if (groups <= 1)
                sum = multiply<1, 16>(0, weights, numbers, store_gradient);
            else if (groups <= 2 || GROUPS <= 2)
                sum = multiply<AT_MOST(2), 16>(0, weights, numbers, store_gradient);
            else
                sum = multiply<GROUPS, 16>(0, weights, numbers, store_gradient);
            sum += shuffle_xor(sum, 4);
            sum += shuffle_xor(sum, 8);
            if (sum != sum) {
                /* zero times a number of a unit that does not hear this one, or does not tick, may be NaN */
                sum = 0;
                for (int i = 0; there && i < memory.end[unit]; i++)
                    if (memory.due[buffer][i] >> k & 1)
                        for (int j = 0; j < GATES; j++) sum += to_float(weight[(j * N + i) * N + unit]) * numbers[4 * i + j];
            }
            carried = direct + sum;
        }
    }
    if (!there) return;
    if (LSTM && call.g_peephole_parts != nullptr && gate != 2)
        call.g_peephole_parts[(s * B + b) * 3 * N + (gate == 3 ? 2 : gate) * N + unit] = g_peephole;
    if (gate > 0 || call.g_h0 == nullptr) return;
    if (call.g_ticks != nullptr) {
        const Module &module = find_module(call, unit);
        carried += to_float(call.g_ticks[s * call.ticks_s + module.states + b * module.size + (unit - module.first_unit)]);
    }
    if (call.g_final != nullptr && length == 0) {
        carried += to_float(call.g_final[(s * B + b) * PARTS * N + unit]);
        carried_c += g_final_c;
    }
    call.g_h0[(s * B + b) * PARTS * N + unit] = to_element(carried);
    if (LSTM) call.g_h0[(s * B + b) * 2 * N + N + unit] = to_element(carried_c);
}

/* Prepares one chunk after the other, the last one first. */
DEVICE void help(const Call &call, Memory &memory, int64 s, int64 b, int helper) {
    const int64 T = call.T, N = call.N, B = call.B, length = min(T, length_of(call, s, b));
    /* beyond its end a sequence has gradients only if its ticks have some */
    const int64 steps = call.g_ticks == nullptr ? length : T;
    const bool there = helper < N;
    int left = 0, row = 0, period = 1;
    int64 row_size = 0;
    const element *ticks = nullptr, *g_ticks = nullptr, *g_held = nullptr, *kept = nullptr, *kept_c = nullptr;
    element *before = nullptr;
    float h = 0, c = 0, g_final = 0;
    if (there) {
        const Module &module = find_module(call, helper);
        period = module.period, row = count_ticks(module, T), row_size = B * module.size;
        if (row > 0) left = (int)((T - 1 - module.first_tick) % period);
        const int64 at = module.states + row * row_size + b * module.size + (helper - module.first_unit);
        ticks = call.ticks + s * call.ticks_s + at;
        h = to_float(*ticks);
        kept = call.kept + s * call.kept_s + 4 * at;
        kept_c = call.kept + s * call.kept_s + 4 * call.states_size + at;
        if (LSTM) c = to_float(*kept_c);
        if (call.g_ticks != nullptr) g_ticks = call.g_ticks + s * call.ticks_s + at;
        if (call.g_final != nullptr) g_final = to_float(call.g_final[(s * B + b) * PARTS * N + helper]);
        if (call.g_held != nullptr) g_held = call.g_held + s * call.g_held_s + b * call.g_held_b + helper * call.g_held_n;
        if (call.before != nullptr) before = call.before + (s * T * B + b) * N + helper;
    }
    for (int64 first = (T - 1) / CHUNK * CHUNK; first >= 0 && T > 0; first -= CHUNK) {
        const int buffer = first / CHUNK % 2;
        const uint32 counted = steps >= first + CHUNK ? ~0u : steps > first ? (1u << (steps - first)) - 1 : 0;
        uint32 ticked = 0;
        for (int low = CHUNK - AT_ONCE; low >= 0; low -= AT_ONCE) {
            element outside[AT_ONCE], of_tick[AT_ONCE], earlier[AT_ONCE], earlier_c[AT_ONCE], gates[AT_ONCE][4];
#pragma unroll
            for (int j = AT_ONCE - 1; j >= 0; j--) {
                const int64 t = first + low + j;
                outside[j] = of_tick[j] = earlier[j] = earlier_c[j] = 0;
                gates[j][0] = gates[j][1] = gates[j][2] = gates[j][3] = 0;
                if (g_held != nullptr && t < length) outside[j] = g_held[t * call.g_held_t];
                if (t < T && row > 0 && left-- == 0) {
                    left = period - 1;
                    ticked |= 1u << (low + j);
                    if (g_ticks != nullptr) {
                        of_tick[j] = *g_ticks;
                        g_ticks -= row_size;
                    }
#pragma unroll
                    for (int i = 0; i < 4; i++) gates[j][i] = kept[i];
                    kept -= 4 * row_size;
                    ticks -= row_size;
                    earlier[j] = *ticks;
                    if (LSTM) {
                        kept_c -= row_size;
                        earlier_c[j] = *kept_c;
                    }
                    row--;
                }
            }
#pragma unroll
            for (int j = AT_ONCE - 1; j >= 0; j--) {
                const int k = low + j;
                const int64 t = first + k;
                float g = to_float(outside[j]), squashed = 0;
                if (t == length - 1) g += g_final;
                if (ticked >> k & 1) {
                    g += to_float(of_tick[j]);
                    h = to_float(earlier[j]);
                    if (LSTM) {
                        squashed = tanh_of<ELEMENT != 0>(c);
                        c = to_float(earlier_c[j]);
                    }
                }
                if (helper < UNITS) {
                    memory.outside[buffer][k][helper] = g;
                    memory.gates[buffer][k][helper] = make_float4(
                        to_float(gates[j][0]), to_float(gates[j][1]), to_float(gates[j][2]), to_float(gates[j][3]));
                    memory.first[buffer][k][helper] = LSTM ? squashed : h;
                    if (LSTM) memory.second[buffer][k][helper] = c;
                }
                if (before != nullptr && t < T) before[t * (B * N)] = to_element(counted >> k & 1 ? h : 0);
            }
        }
        const uint32 due = ticked & counted;
        if (helper < UNITS) memory.due[buffer][helper] = due;
        memory.group_due[helper] = join_bits<16>(due);
        join_helpers();
        if (helper < CHUNK) {
            int reach = 0;
            for (int i = 0; i < GROUPS; i++)
                if (memory.group_due[16 * i] >> helper & 1) reach = i + 1;
            memory.reach[buffer][helper] = reach;
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
