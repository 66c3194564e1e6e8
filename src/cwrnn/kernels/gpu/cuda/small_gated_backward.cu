/* Small networks backward: the gradients of all sums that were activated, in reverse, in one block per sequence, for LSTM
 * and GRU.
 *
 * Sixteen neighbouring threads compute four units, a gate of a unit each: thread l has unit l % 4 and gate l / 4. In the
 * products each thread multiplies four of every 64 columns. A GRU has no fourth gate; its fourth plane is n's.
 *
 * The helpers load the gradients that come from outside and what forward kept, and write the states before each step. With
 * more than 64 units there are no helpers, because they would take registers from the weights: each of the four threads of a
 * unit does this for one step of a chunk. */

#define CHUNK (LARGE ? 4 : 16)
#define HELPERS (LARGE ? 0 : ROUND_UP(UNITS, 32))
#define AT_ONCE 8 /* steps that a helper loads at a time */
/* The gates of a unit are neighbouring columns, so a group of 64 columns has those of 16 units of an LSTM. */
#define WEIGHT_GROUPS ((GATES * UNITS + 63) / 64)
/* How many groups of columns have the gates of the first 16 * groups units. */
#define REACH(groups) (GROUPS < groups ? WEIGHT_GROUPS : (GATES * groups + 3) / 4)

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
#if WEIGHT_GROUPS > IN_REGISTERS
    float4 weights[4 * (WEIGHT_GROUPS - IN_REGISTERS)][SCAN];
#endif
    float g[2][4 * UNITS]; /* unit after unit the gradients of its gates, and behind those of a GRU zeros */
    /* of two chunks: see find_place */
    float4 gates[2 * CHUNK * UNITS];
    float first[2 * CHUNK * UNITS];
    float second[2 * CHUNK * UNITS];
    float outside[2 * CHUNK * UNITS];
    uint32 due[2][UNITS]; /* bit k: the unit ticked at step k of the chunk, and its gradient counts */
    int end[UNITS];       /* beyond the last unit that hears the unit */
#if LARGE
    uint32 groups[2][32]; /* of each warp, bit 8 k + c: a unit of group c of 16 units is due at step k */
#else
    uint32 group_due[HELPERS]; /* the words of `due` of 16 units, joined */
    uint32 reach[2][CHUNK];    /* of a step, bit c: a unit of group c of 16 units is due */
#endif
};

static_assert(sizeof(Memory) == SHARED, "small.py computes another size");

/* Where the numbers of a unit at step k of a chunk stand. */
DEVICE int find_place(int buffer, int k, int unit) { return (buffer * CHUNK + k) * UNITS + unit; }

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

#if LARGE

/* What a thread loads for one step of its unit. */
struct Loaded {
    const Module &module;
    int unit, step;       /* the thread's step of each chunk */
    bool there, is_known; /* does step t exist? */
    bool ticked, counts;
    int t;
    element outside, of_tick, gates[4], h, c, c_new;

    DEVICE Loaded(const Call &call, int unit, int step)
        : module(find_module(call, min(unit, (int)call.N - 1))), unit(unit), step(step), there(unit < call.N) {}

    DEVICE void load(const Call &call, int64 s, int64 b, int first, int length) {
        const int64 N = call.N, B = call.B;
        t = first + step;
        is_known = there && t < call.T;
        ticked = counts = false;
        outside = of_tick = h = c = c_new = 0;
        gates[0] = gates[1] = gates[2] = gates[3] = 0;
        if (!is_known) return;
        /* beyond its end a sequence has gradients only if its ticks have some */
        counts = t < length || call.g_ticks != nullptr;
        if (call.g_held != nullptr && t < length)
            outside = call.g_held[s * call.g_held_s + t * call.g_held_t + b * call.g_held_b + unit * call.g_held_n];
        const int since = t - module.first_tick, row = since >= 0 ? since / module.period + 1 : 0;
        ticked = since >= 0 && since % module.period == 0;
        const int64 row_size = B * module.size;
        const int64 at = module.states + row * row_size + b * module.size + (unit - module.first_unit);
        const int64 before = ticked ? at - row_size : at;
        h = call.ticks[s * call.ticks_s + before];
        const element *kept = call.kept + s * call.kept_s, *kept_c = kept + 4 * call.states_size;
        if (LSTM) c = kept_c[before];
        if (ticked) {
            if (call.g_ticks != nullptr) of_tick = call.g_ticks[s * call.ticks_s + at];
#pragma unroll
            for (int i = 0; i < 4; i++) gates[i] = kept[4 * at + i];
            if (LSTM) c_new = kept_c[at];
        }
    }

    DEVICE void store(const Call &call, Memory &memory, int64 s, int64 b, int length) const {
        const int buffer = (t - step) / CHUNK % 2, at = find_place(buffer, step, unit);
        float g = to_float(outside);
        if (is_known && t == length - 1 && call.g_final != nullptr)
            g += to_float(call.g_final[(s * call.B + b) * PARTS * call.N + unit]);
        memory.outside[at] = g + to_float(of_tick);
        memory.gates[at] =
            make_float4(to_float(gates[0]), to_float(gates[1]), to_float(gates[2]), to_float(gates[3]));
        memory.first[at] = LSTM ? tanh_of<ELEMENT != 0>(to_float(c_new)) : to_float(h);
        memory.second[at] = to_float(c);
        if (is_known && call.before != nullptr)
            call.before[((s * call.T + t) * call.B + b) * call.N + unit] = counts ? h : 0;
        const bool is_due = ticked && counts;
        uint32 due = is_due ? 1u << step : 0;
        due |= bits_of(shuffle_xor(float_of(due), 4));
        due |= bits_of(shuffle_xor(float_of(due), 8));
        if (step == 0) memory.due[buffer][unit] = due;
        const uint32 groups = join_bits_of_warp(is_due ? 1u << (8 * step + unit / 16) : 0);
        if (thread_number() % 32 == 0) memory.groups[buffer][thread_number() / 32] = groups;
    }
};

#endif

/* Computes one gate of one unit in reverse; `unit` may be one that the network does not have. */
DEVICE void scan(const Call &call, Memory &memory, int64 s, int64 b, int thread) {
    const int64 N = call.N, B = call.B;
    const int T = (int)call.T, length = (int)min(call.T, length_of(call, s, b));
    const int first_row = thread / 16 * 4, lane = thread % 4, unit = first_row + lane, gate = thread / 4 % 4;
    const bool there = unit < (int)N;
    const element *weight = call.weight_hh + s * call.weight_hh_s;
    Weights weights;
#if WEIGHT_GROUPS > IN_REGISTERS
    weights.in_shared = memory.weights[0] + thread;
#endif
    const auto load_weights = [&](int k, int c) {
        const int sender = first_row + (lane ^ k), end = sender < N ? memory.end[sender] : 0;
        element x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int column = 64 * c + 4 * (thread % 16) + i, receiver = column / GATES;
            x[i] = receiver < end ? weight[(column % GATES * N + receiver) * N + sender] : 0;
        }
        weights.set(k, c, x);
    };
    for_all_weights(load_weights);
    if (GATES == 3 && gate == 3) memory.g[0][3 * UNITS + unit] = memory.g[1][3 * UNITS + unit] = 0;
    const bool has_peepholes = LSTM && call.peepholes != nullptr;
    float peepholes[3] = {0, 0, 0};
    if (has_peepholes && there)
        for (int i = 0; i < 3; i++) peepholes[i] = to_float(call.peepholes[s * call.peepholes_s + i * N + unit]);
    float *g_drive = there ? call.g_drive + ((s + 1) * call.T * B + b) * (PLANES * N) + gate * N + unit : nullptr;
    float carried = 0, carried_c = 0, c = 0, g_peephole = 0;
    const bool has_final_c = LSTM && there && call.g_final != nullptr;
    const auto load_final_c = [&]() {
        return has_final_c ? to_float(call.g_final[(s * B + b) * 2 * N + N + unit]) : 0;
    };
    /* with few registers it is loaded when it is needed */
    const float g_final_c = LARGE ? 0 : load_final_c();
    if (LSTM && there) {
        const Module &module = find_module(call, unit);
        const int64 row = count_ticks(module, T) * B + b;
        c = to_float(call.kept[s * call.kept_s + 4 * call.states_size + module.states + row * module.size +
                               (unit - module.first_unit)]);
    }
#if LARGE
    Loaded loaded(call, unit, gate);
    if (T > 0) {
        loaded.load(call, s, b, (T - 1) / CHUNK * CHUNK, length);
        loaded.store(call, memory, s, b, length);
    }
#endif
    for (int first = (T - 1) / CHUNK * CHUNK; first >= 0 && T > 0; first -= CHUNK) {
        join_block();
        const int buffer = first / CHUNK % 2, count = min(T - first, CHUNK);
        const uint32 due = memory.due[buffer][unit];
#if LARGE
        const uint32 groups_due = join_bits_of_warp(thread % 32 < SCAN / 32 ? memory.groups[buffer][thread % 32] : 0);
#endif
        Tick tick;
        float outside;
        uint32 reach;
        int at = find_place(buffer, count - 1, unit); /* of the next step that is loaded */
        const auto load = [&](int k) {
            const float4 gates = memory.gates[at];
            tick.gates[0] = gates.x, tick.gates[1] = gates.y, tick.gates[2] = gates.z, tick.gates[3] = gates.w;
            tick.first = memory.first[at];
            if (LSTM) tick.second = memory.second[at];
            outside = memory.outside[at];
            at -= UNITS;
#if LARGE
            reach = groups_due >> 8 * k & 255;
#else
            reach = memory.reach[buffer][k];
#endif
        };
        if (!LARGE) load(count - 1);
        /* All threads have the same reach. The compiler knows this only of a result of the whole warp, and then branches without
         * reconverging. */
        uint32 groups = LARGE ? 0 : join_bits_of_warp(reach);
        for (int k = count - 1; k >= 0; k--) {
            if (LARGE) load(k); /* not earlier: until now its registers hold other numbers */
            float *numbers = memory.g[k & 1];
            const bool is_due = due >> k & 1;
            const float whole = carried + outside;
            if (LSTM && first + k == length - 1) carried_c += LARGE ? load_final_c() : g_final_c;
            const Gradients d = reverse_tick(tick, whole, carried_c, has_peepholes, peepholes);
            const float early = select(gate == 0, d.planes[0], d.planes[1]), late = select(gate == 2, d.planes[2], d.planes[3]);
            const float own = select(is_due, select(gate < 2, early, late), 0);
            if (gate < GATES) numbers[GATES * unit + gate] = own;
            const float direct = is_due ? d.h : whole;
            if (is_due) {
                carried_c = d.c;
                if (LSTM) g_peephole += own * (gate == 3 ? c : tick.second);
            }
            if (LSTM) c = tick.second;
            const uint32 now = LARGE ? reach : groups;
            if (!LARGE && k > 0) load(k - 1);
            join_scan();
            if (!LARGE) groups = join_bits_of_warp(reach); /* of the next step */
            const auto store_gradient = [&]() {
                if (there) {
                    g_drive -= call.g_drive_step;
                    *g_drive = own;
                }
            };
            const float *first_numbers = numbers + 4 * (thread % 16);
            float sum = 0;
            if (GROUPS > 4 && now >= 16)
                sum = multiply<WEIGHT_GROUPS, 16>(0, weights, first_numbers, store_gradient);
            else if (GROUPS > 2 && now >= 4)
                sum = multiply<REACH(4), 16>(0, weights, first_numbers, store_gradient);
            else if (now >= 2)
                sum = multiply<REACH(2), 16>(0, weights, first_numbers, store_gradient);
            else if (now > 0)
                sum = multiply<REACH(1), 16>(0, weights, first_numbers, store_gradient);
            else
                store_gradient();
            sum += shuffle_xor(sum, 4);
            sum += shuffle_xor(sum, 8);
            if (any_of_warp(sum != sum)) {
                /* zero times a number of a unit that does not hear this one, or does not tick, may be NaN */
                if (sum != sum) {
                    sum = 0;
#pragma unroll 1
                    for (int i = 0; there && i < memory.end[unit]; i++)
                        if (memory.due[buffer][i] >> k & 1)
#pragma unroll 1
                            for (int j = 0; j < GATES; j++)
                                sum += to_float(weight[(j * N + i) * N + unit]) * numbers[GATES * i + j];
                }
            }
            carried = direct + sum;
        }
#if LARGE
        if (first > 0) loaded.load(call, s, b, first - CHUNK, length), loaded.store(call, memory, s, b, length);
#endif
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
        if (LSTM) carried_c += load_final_c();
    }
    call.g_h0[(s * B + b) * PARTS * N + unit] = to_element(carried);
    if (LSTM) call.g_h0[(s * B + b) * 2 * N + N + unit] = to_element(carried_c);
}

#if !LARGE

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
                    const int at = find_place(buffer, k, helper);
                    memory.outside[at] = g;
                    memory.gates[at] = make_float4(
                        to_float(gates[j][0]), to_float(gates[j][1]), to_float(gates[j][2]), to_float(gates[j][3]));
                    memory.first[at] = LSTM ? squashed : h;
                    if (LSTM) memory.second[at] = c;
                }
                if (before != nullptr && t < T) before[t * (B * N)] = to_element(counted >> k & 1 ? h : 0);
            }
        }
        const uint32 due = ticked & counted;
        if (helper < UNITS) memory.due[buffer][helper] = due;
        memory.group_due[helper] = join_bits_of_group(due);
        join_helpers();
        if (helper < CHUNK) {
            uint32 reach = 0;
            for (int i = 0; i < GROUPS; i++) reach |= (memory.group_due[16 * i] >> helper & 1) << i;
            memory.reach[buffer][helper] = reach;
        }
        join_block();
    }
}

#endif

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
#if LARGE
    scan(call, memory, s, b, thread);
#else
    if (thread < SCAN)
        scan(call, memory, s, b, thread);
    else
        help(call, memory, s, b, thread - SCAN);
#endif
}
