/* Small networks forward: a whole sequence, from the input to the output, in one block, for LSTM and GRU.
 *
 * Four neighbouring threads compute a unit, one gate each. They exchange the gates, and all four compute the state.
 * PEEPHOLES: the cell is an LSTM with peepholes.
 *
 * `kept` holds what backward needs, at every tick of every module, and of c also before the first one. It has two parts.
 * The first one has four numbers where `ticks` has one: i, f, g and o, or r, z, n and the reset product before r. The second
 * one, of an LSTM alone, has c where `ticks` has h. */

#define CHUNK (LARGE ? 8 : 32)
#define TALL 8
/* A GRU has nothing for the fourth row: without it, more weights stay in registers, and the rows are harder to add up. */
#define WEIGHT_ROWS (GATES == 3 && LARGE ? 3 : 4)
#define HELPERS (LARGE ? 0 : ROUND_UP(GATES *UNITS / 2, 32))

#include "small.cuh"

#define LSTM (GATES == 4)
/* Whether a warp leaves out the steps at which none of its units ticks. Small blocks have too few warps to gain by it. */
#define SKIPS LARGE

/* The shared memory. Its size is SHARED. */
struct Memory {
#if WEIGHT_GROUPS > IN_REGISTERS
    float4 weights[WEIGHT_ROWS * (WEIGHT_GROUPS - IN_REGISTERS)][SCAN];
#endif
    int64 s, b; /* the sequence; they take no registers here */
    float h[2][UNITS];
    /* drives that are loaded one step ahead have a last row that is read, but not used */
    float drive[2][LARGE ? CHUNK : CHUNK + 1][DRIVE_WIDTH];
    int start[UNITS];       /* the first unit that the unit hears */
#if !LARGE
    uint32 ticks[2][UNITS]; /* bit k: the unit ticks at step k of the chunk */
    Operands operands;
#endif
};

static_assert(sizeof(Memory) == SHARED, "small.py computes another size");

/* The activation of a gate: tanh, or the logistic function, both of which are factor / (1 + 2^(scale x)) + shift. It has
 * two parts, so that other work can be done between them. */
struct Activation {
    bool is_tanh;
    float scale, factor, shift, series; /* the series of tanh is used for |x| < series */

    DEVICE Activation(bool is_tanh)
        : is_tanh(is_tanh), scale(is_tanh ? 2 * LOG2_E : -LOG2_E), factor(is_tanh ? -2 : 1), shift(is_tanh ? 1 : 0),
          series(is_tanh ? 0.3f : 0) {}

    /* Starts the slow instruction of the activation. */
    DEVICE float begin(float x) const { return ELEMENT != 0 ? tanh_fast(is_tanh ? x : 0.5f * x) : power_of_two(scale * x); }

    /* The activation of x; `begun` is begin(x). */
    DEVICE float end(float x, float begun) const {
        if (ELEMENT != 0) return is_tanh ? begun : 0.5f + 0.5f * begun;
        const float y = factor * reciprocal(1 + begun) + shift, small = tanh_near_zero(x);
        return absolute(x) < series ? small : y;
    }
};

DEVICE float round_to_element(float x) { return to_float(to_element(x)); }

#if LARGE

/* Loads the drive of a chunk that begins at step `first` in the background. */
DEVICE void load_drive(const Call &call, Memory &memory, int64 first) {
#pragma unroll
    for (int e = thread_number(); e < CHUNK * ROWS / 4; e += SCAN) {
        const int k = e % CHUNK, row = e / CHUNK * 4;
        const float *drive = call.drive + ((memory.s * call.T + first + k) * call.B + memory.b) * ROWS + row;
        copy_later<16>(&memory.drive[first / CHUNK % 2][k][row], drive, first + k < call.T);
    }
    end_copies();
}

#endif

/* Computes one gate of one unit; `unit` may be one that the network does not have. */
DEVICE void scan(const Call &call, Memory &memory, int64 s, int64 b, int thread) {
    const int64 N = call.N, B = call.B;
    const int T = (int)call.T, length = (int)min(call.T, length_of(call, s, b));
    const int unit = thread / 4, gate = thread % 4;
    const bool there = unit < N, writes = there && gate == 0;
    const element *weight = call.weight_hh + s * call.weight_hh_s;
    Weights weights;
#if WEIGHT_GROUPS > IN_REGISTERS
    weights.in_shared = memory.weights[0] + thread;
#endif
    const int start = there ? memory.start[unit] : (int)N;
    const auto load_weights = [&](int k, int c) {
        element x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int column = 16 * c + 4 * gate + i, row = WEIGHT_ROWS == 4 ? gate ^ k : k;
            const bool is_heard = column >= start && column < N && row < GATES;
            x[i] = is_heard ? weight[(row * N + unit) * N + column] : 0;
        }
        weights.set(k, c, x);
    };
    for_all_weights(load_weights);
    /* of a GRU, the sum of gate n begins with a bias of its own, and its drive is outside of the reset product */
    const bool is_reset = !LSTM && gate == 2;
    const float inner_bias =
        is_reset && there && call.bias != nullptr ? to_float(call.bias[s * call.bias_s + 3 * N + unit]) : 0;
    const Activation activate(LSTM && gate == 2);
#if PEEPHOLES
    const Activation logistic(false);
    const element *of_unit = call.peepholes + s * call.peepholes_s + unit;
    const float peephole = there && gate < 2 ? to_float(of_unit[gate * N]) : 0;
    const float peephole_o = there ? to_float(of_unit[2 * N]) : 0;
#endif
    float h = 0, c = 0;
    if (there && call.h0 != nullptr) {
        const element *from = call.h0 + s * call.h0_s + b * call.h0_b + unit;
        h = to_float(*from);
        if (LSTM) c = to_float(from[N]);
    }
    if (gate == 0) memory.h[0][unit] = h;
    /* `held`: where the next state goes. `kept` and `ticks`: the last rows so far; gate 0 writes h to `ticks`, gate 1 of an
     * LSTM c behind `kept`. */
    element *held = nullptr, *kept = nullptr, *ticks = nullptr;
    int64 row_size = 0; /* of a row of `ticks`; one of `kept` has four times as many numbers */
    if (there) {
        const Module &module = find_module(call, unit);
        row_size = B * module.size;
        const int64 at = module.states + b * module.size + (unit - module.first_unit);
        if (call.kept != nullptr) {
            kept = call.kept + s * call.kept_s + 4 * at + gate;
            if (LSTM && gate == 1) {
                ticks = call.kept + s * call.kept_s + 4 * call.states_size + at;
                *ticks = to_element(c);
            }
        }
        if (writes) {
            if (call.held != nullptr) held = call.held + (s * call.T * B + b) * N + unit;
            if (call.ticks != nullptr) {
                ticks = call.ticks + s * call.ticks_s + at;
                *ticks = to_element(h);
            }
        }
    }
    /* the first steps at which there is something to store; T + 1: never */
    const int first_held = held == nullptr ? T + 1 : 1, first_kept = kept == nullptr ? T + 1 : 1;
    const int first_stored = ticks == nullptr ? T + 1 : 1;
    float end_h = h, end_c = c; /* the state at the end of the sequence */
    float gate_number = 0;      /* what is kept of this thread's gate */
    uint32 has_ticked = 0;
    int t = 0;
    /* stores the results of the step before t, while numbers of this step are loaded */
    const auto store_last = [&]() {
        const bool counts = t <= length;
        if (counts) end_h = h, end_c = c;
        if (t >= first_held) {
            *held = to_element(counts ? h : 0);
            held += call.held_step;
        }
        if (has_ticked && t >= first_kept) {
            kept += 4 * row_size;
            *kept = to_element(gate_number);
        }
        if (has_ticked && t >= first_stored) {
            ticks += row_size;
            *ticks = to_element(!LSTM || gate == 0 ? h : c);
        }
    };
    /* a GRU has nothing for the fourth thread */
    const int row = GATES * unit + min(gate, GATES - 1);
#if LARGE
    Countdown countdown(call, unit);
    load_drive(call, memory, 0);
    await_copies<0>();
    join_block();
#endif
    /* the first states that this thread multiplies, and where its own next one goes; the buffers take turns */
    const float *states = memory.h[0] + 4 * gate, *other_states = memory.h[1] + 4 * gate;
    float *next_state = &memory.h[1][unit], *other_next_state = &memory.h[0][unit];
    for (int left = T; left > 0; left -= CHUNK) {
        const int buffer = t / CHUNK % 2, end = t + min(left, CHUNK);
#if LARGE
        uint32 mine = countdown.next();
        load_drive(call, memory, (int64)t + CHUNK);
#else
        join_block();
        uint32 mine = memory.ticks[buffer][unit];
#endif
        uint32 any = join_bits_of_warp(mine);
        const float *drive = &memory.drive[buffer][0][row];
        float next = *drive;
        while (true) {
            const float own = LARGE ? *drive : next;
            const bool is_due = mine & 1;
            drive += DRIVE_WIDTH;
            if (!LARGE) next = *drive;
            if (!SKIPS || any & 1) {
                const float begin = LSTM ? own : is_reset ? inner_bias : own;
                float sum = multiply<GROUPS, 4>(begin, weights, states, store_last);
                const bool is_spoilt = is_due && gate < GATES && sum != sum;
#if PEEPHOLES
                const float more = gate < 2 ? peephole * c : 0;
                sum += more;
#endif
                float begun = activate.begin(sum);
                if (any_of_warp(is_spoilt)) {
                    /* zero times a state that the unit does not hear may be NaN */
                    if (is_spoilt) {
                        sum = begin;
                        const element *of_row = call.weight_hh + memory.s * call.weight_hh_s + (gate * N + unit) * N;
#pragma unroll 1
                        for (int j = memory.start[unit]; j < (int)N; j++) sum += to_float(of_row[j]) * states[j - 4 * gate];
#if PEEPHOLES
                        sum += more;
#endif
                    }
                    begun = activate.begin(sum);
                }
                const float value = activate.end(sum, begun);
                float h_new, c_new = 0;
                if (LSTM) {
                    const float i = shuffle_among_four(value, 0), f = shuffle_among_four(value, 1);
                    const float g = shuffle_among_four(value, 2), last = shuffle_among_four(PEEPHOLES ? sum : value, 3);
                    c_new = round_to_element(f * c + i * g);
#if PEEPHOLES
                    const float o_sum = last + peephole_o * c_new, o = logistic.end(o_sum, logistic.begin(o_sum));
                    gate_number = gate == 3 ? o : value;
#else
                    const float o = last;
                    gate_number = value;
#endif
                    h_new = round_to_element(o * tanh_of<ELEMENT != 0>(c_new));
                } else {
                    const float product = shuffle_among_four(sum, 2), a = shuffle_among_four(own, 2);
                    const float r = shuffle_among_four(value, 0), z = shuffle_among_four(value, 1);
                    const float n = tanh_of<ELEMENT != 0>(a + r * product);
                    gate_number = gate < 2 ? value : gate == 2 ? n : product;
                    h_new = round_to_element((1 - z) * n + z * h);
                }
                h = is_due ? h_new : h;
                if (LSTM) c = is_due ? c_new : c;
            } else
                store_last();
            if (gate == 0) *next_state = h;
            swap(states, other_states);
            swap(next_state, other_next_state);
            has_ticked = mine & 1;
            mine >>= 1, any >>= 1;
            if (++t == end) break;
            join_scan();
        }
#if LARGE
        await_copies<0>();
        join_block();
#endif
    }
    store_last();
    if (writes) {
        element *final = call.final + (memory.s * B + memory.b) * (PARTS * N) + unit;
        *final = to_element(end_h);
        if (LSTM) final[N] = to_element(end_c);
    }
}

#if !LARGE

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

#endif

PROGRAM(SCAN + HELPERS) run_small_forward(CALL(Call, call)) {
    SHARED_MEMORY(shared);
    Memory &memory = *(Memory *)shared;
    const int thread = thread_number();
    const int64 s = block_number() / call.B, b = block_number() % call.B;
    if (thread == 0) memory.s = s, memory.b = b;
    if (thread < call.N) memory.start[thread] = find_module(call, thread).first_unit;
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
