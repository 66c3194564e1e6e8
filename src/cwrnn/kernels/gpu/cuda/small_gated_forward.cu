/* Small networks forward: a whole sequence, from the input to the output, in one block, for LSTM and GRU.
 *
 * Four neighbouring threads compute a unit, one gate each. They exchange the gates, and all four compute the state.
 *
 * `kept` holds what backward needs, at every tick of every module, and of c also before the first one. It has two parts.
 * The first one has four numbers where `ticks` has one: i, f, g and o, or r, z, n and the reset product before r. The second
 * one, of an LSTM alone, has c where `ticks` has h. */

#define CHUNK 32
#define TALL 8
#define HELPERS ROUND_UP(GATES *UNITS / 2, 32)

#include "small.cuh"

#define LSTM (GATES == 4)

/* The shared memory. Its size is SHARED. */
struct Memory {
    float h[2][UNITS];
    float drive[2][CHUNK][DRIVE_WIDTH];
    float beyond[DRIVE_WIDTH + 4]; /* is read, but not used */
    uint32 ticks[2][UNITS];        /* bit k: the unit ticks at step k of the chunk */
    int start[UNITS];              /* the first unit that the unit hears */
    Operands operands;
};

static_assert(sizeof(Memory) == SHARED, "small.py computes another size");

/* The gate that this thread computes: tanh(x) if `is_tanh`, else the logistic function. */
DEVICE float activate(float x, bool is_tanh) {
#if ELEMENT != 0
    const float y = tanh_fast(is_tanh ? x : 0.5f * x);
    return is_tanh ? y : 0.5f + 0.5f * y;
#else
    const float y = quotient(is_tanh ? -2 : 1, 1 + exponential(is_tanh ? 2 * x : -x));
    const float small = tanh_of<false>(x);
    return is_tanh ? (x < 0.3f && x > -0.3f ? small : 1 + y) : y;
#endif
}

DEVICE float round_to_element(float x) { return to_float(to_element(x)); }

/* Computes one gate of one unit; `unit` may be one that the network does not have. */
DEVICE void scan(const Call &call, Memory &memory, int64 s, int64 b, int thread) {
    const int64 T = call.T, N = call.N, B = call.B, length = length_of(call, s, b);
    const int unit = thread / 4, gate = thread % 4;
    const bool there = unit < N, writes = there && gate == 0;
    const element *weight = call.weight_hh + s * call.weight_hh_s;
    float weights[4][GROUPS][4];
    const int start = there ? memory.start[unit] : (int)N;
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int c = 0; c < GROUPS; c++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int column = 16 * c + 4 * gate + i, row = gate ^ k;
                const bool is_heard = column >= start && column < N && row < GATES;
                weights[k][c][i] = is_heard ? to_float(weight[(row * N + unit) * N + column]) : 0;
            }
    /* of a GRU, the sum of gate n begins with a bias of its own, and its drive is outside of the reset product */
    const bool is_reset = !LSTM && gate == 2;
    const float inner_bias =
        is_reset && there && call.bias != nullptr ? to_float(call.bias[s * call.bias_s + 3 * N + unit]) : 0;
    float peephole = 0, peephole_o = 0;
    if (LSTM && there && call.peepholes != nullptr) {
        const element *from = call.peepholes + s * call.peepholes_s + unit;
        if (gate < 2) peephole = to_float(from[gate * N]);
        peephole_o = to_float(from[2 * N]);
    }
    const bool has_peepholes = LSTM && call.peepholes != nullptr;
    float h = 0, c = 0;
    if (there && call.h0 != nullptr) {
        const element *from = call.h0 + s * call.h0_s + b * call.h0_b + unit;
        h = to_float(*from);
        if (LSTM) c = to_float(from[N]);
    }
    if (gate == 0) memory.h[0][unit] = h;
    element *ticks = nullptr, *kept = nullptr, *kept_c = nullptr, *held = nullptr, *final = nullptr;
    int64 ticks_step = 0;
    if (there) {
        const Module &module = find_module(call, unit);
        ticks_step = B * module.size;
        const int64 at = module.states + b * module.size + (unit - module.first_unit);
        if (call.kept != nullptr) {
            kept = call.kept + s * call.kept_s + 4 * at + gate;
            if (LSTM && gate == 1) {
                kept_c = call.kept + s * call.kept_s + 4 * call.states_size + at;
                *kept_c = to_element(c);
            }
        }
        if (writes) {
            final = call.final + (s * B + b) * (PARTS * N) + unit;
            if (call.held != nullptr) held = call.held + (s * T * B + b) * N + unit;
            if (call.ticks != nullptr) {
                ticks = call.ticks + s * call.ticks_s + at;
                *ticks = to_element(h);
            }
        }
    }
    int64 t = 0;
    /* stores the state that was reached before step t */
    const auto store_state = [&]() {
        if (final != nullptr && t == length) {
            *final = to_element(h);
            if (LSTM) final[N] = to_element(c);
        }
        if (held != nullptr && t > 0) {
            *held = to_element(t <= length ? h : 0);
            held += B * N;
        }
    };
    const int row = GATES * unit + gate;
    for (int64 first = 0; first < T; first += CHUNK) {
        join_block();
        const int buffer = first / CHUNK % 2, count = (int)min(T - first, (int64)CHUNK);
        const uint32 mine = memory.ticks[buffer][unit], any = join_bits<32>(mine);
        const float *drive = &memory.drive[buffer][0][row];
        float next = *drive;
        for (int k = 0; k < count; k++, t++) {
            const float *states = memory.h[k % 2];
            const float own = next;
            drive += DRIVE_WIDTH;
            next = *drive;
            if (any >> k & 1) {
                const float begin = LSTM ? own : is_reset ? inner_bias : own;
                float sum = multiply<GROUPS, 4>(begin, weights, states, store_state);
                const bool is_due = mine >> k & 1;
                if (is_due && gate < GATES && sum != sum) {
                    /* zero times a state that the unit does not hear may be NaN */
                    sum = begin;
                    for (int j = start; j < N; j++) sum += to_float(weight[(gate * N + unit) * N + j]) * states[j];
                }
                float h_new, c_new = 0, keeps;
                if (LSTM) {
                    if (has_peepholes && gate < 2) sum += peephole * c;
                    const float value = activate(sum, gate == 2);
                    const float i = shuffle_among_four(value, 0), f = shuffle_among_four(value, 1);
                    const float g = shuffle_among_four(value, 2);
                    float o = shuffle_among_four(has_peepholes ? sum : value, 3);
                    c_new = round_to_element(f * c + i * g);
                    if (has_peepholes) o = activate(o + peephole_o * c_new, false);
                    keeps = gate == 3 ? o : value;
                    h_new = round_to_element(o * tanh_of<ELEMENT != 0>(c_new));
                } else {
                    const float value = activate(sum, false), product = shuffle_among_four(sum, 2);
                    const float a = shuffle_among_four(own, 2);
                    const float r = shuffle_among_four(value, 0), z = shuffle_among_four(value, 1);
                    const float n = tanh_of<ELEMENT != 0>(a + r * product);
                    keeps = gate < 2 ? value : gate == 2 ? n : product;
                    h_new = round_to_element((1 - z) * n + z * h);
                }
                if (is_due) {
                    h = h_new, c = c_new;
                    if (kept != nullptr) {
                        kept += 4 * ticks_step;
                        *kept = to_element(keeps);
                        if (kept_c != nullptr) {
                            kept_c += ticks_step;
                            *kept_c = to_element(c);
                        }
                    }
                    if (ticks != nullptr) {
                        ticks += ticks_step;
                        *ticks = to_element(h);
                    }
                }
            } else
                store_state();
            if (gate == 0) memory.h[1 - k % 2][unit] = h;
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
        if (helper < UNITS) memory.ticks[buffer][helper] = ticks;
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
