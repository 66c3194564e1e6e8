/* Long Short-Term Memory on a CPU: many small networks at once, forward and backward.
 *
 * Compiled once per instruction set and precision, as cpu.c is. Letters: S networks, each of which reads its own sequence,
 * T time steps, I inputs, N cells. experiments/networks/lstm.py defines the computation.
 *
 * A network of 15 cells fills no vector, and every network has its own weights, so networks cannot share any work. Here a
 * lane of a vector is a network: a block of LANES networks runs as if it were one, on numbers that are vectors, and the
 * blocks are the tasks of the threads. No operation crosses lanes: a network gives the same bits alone as among a hundred.
 * Lanes without a network hold zeros.
 *
 * Weights are packed by block as [cell][input][gate][lane]. Forward reads them in that order, four sums at a time, and
 * backward uses the same rows to compute the gradients of the inputs from those of the gates. The weights' gradients are
 * added up in the same layout, but not step by step, because then all of them would pass through the cache at every step:
 * the gates' gradients of SPAN steps are kept, and each weight's sum over these steps, last step first, stays in a register.
 *
 * After the end of a sequence its input and states are zero, so that it contributes no gradient.
 *
 * Subnormal numbers count as zero. Closed gates make gradients that small, and a processor may need a hundred times as long
 * for them: backward of trained networks took three times as long. */

#include "vectors.h"

#include "memory.h"

enum {
    SPAN = 16,                           /* steps whose gates' gradients are kept */
    ACROSS = REGISTERS == 32 ? 4 : 2,    /* inputs whose weights' gradients are summed at once */
    TOGETHER = REGISTERS == 32 ? 12 : 8, /* inputs whose own gradients are summed at once */
};

/* Lanes that compare a step with the length of a sequence are as wide as `real`. */
static const int64_t LONGEST = REAL_BITS == 32 ? INT32_MAX : INT64_MAX - 1;

typedef struct {
    const Lstm *call;
    int64_t blocks, workers;
    /* places in the kept numbers of a block, then places in a worker's memory, which begins with the packed weights */
    int64_t x, h, c, squashed, gates, kept_size;
    int64_t weight_ih, weight_hh, weight_ch, bias, weights_size;
    int64_t g_weight_ih, g_weight_hh, g_weight_ch, g_bias, sums_size;
    int64_t dz, dh, dx, carried, arriving, memory_size;
    real *memory;
} Plan;

static Plan make_plan(const Lstm *c, int backward) {
    const int64_t T = c->T, I = c->I, N = c->N;
    Plan plan = {.call = c, .blocks = (c->S + LANES - 1) / LANES};
    const int64_t input = times(I, LANES), cell = times(N, LANES), cells = times(T, cell);
    const int64_t weights_ih = times(times(4, N), input), weights_hh = times(times(4, N), cell);
    plan.x = reserve(&plan.kept_size, times(T, input));
    plan.h = reserve(&plan.kept_size, cells + cell);
    plan.c = reserve(&plan.kept_size, cells + cell);
    plan.squashed = reserve(&plan.kept_size, cells);
    plan.gates = reserve(&plan.kept_size, times(4, cells));
    if (T > LONGEST) plan.kept_size = LARGEST_SIZE;

    int64_t *size = &plan.memory_size;
    plan.weight_ih = reserve(size, weights_ih);
    plan.weight_hh = reserve(size, weights_hh);
    plan.weight_ch = reserve(size, 3 * cell);
    plan.bias = reserve(size, 4 * cell);
    plan.weights_size = *size;
    if (backward) {
        plan.g_weight_ih = reserve(size, weights_ih);
        plan.g_weight_hh = reserve(size, weights_hh);
        plan.g_weight_ch = reserve(size, 3 * cell);
        plan.g_bias = reserve(size, 4 * cell);
        plan.sums_size = *size - plan.weights_size;
        plan.dz = reserve(size, times(SPAN * 4, cell));
        plan.dh = reserve(size, cell);
        plan.carried = reserve(size, cell);
        plan.arriving = reserve(size, times(SPAN, cell));
        plan.dx = reserve(size, input);
    }
    const double work = (double)plan.blocks * (double)T * (double)N * (4 * ((double)N + (double)I) + 50) * (backward ? 2 : 1);
    plan.workers = workers_for(work, plan.blocks, c->threads);
    return plan;
}

/* The networks in the lanes of a vector, and the lengths of their sequences. */
typedef struct {
    int64_t s, lanes, steps; /* the first network, the number of networks, the length of the longest sequence */
    mask lengths;
} Block;

static Block make_block(const Lstm *c, int64_t number) {
    Block block = {.s = number * LANES, .lanes = smaller(LANES, c->S - number * LANES)};
    for (int64_t i = 0; i < block.lanes; i++) {
        const int64_t length = c->lengths != NULL ? larger(0, smaller(c->T, c->lengths[block.s + i])) : c->T;
        block.lengths[i] = (integer)length;
        block.steps = larger(block.steps, length);
    }
    return block;
}

/* The value, with zero in the lanes whose sequence has ended. */
INLINE vec while_reading(const Block *block, int64_t t, vec value) {
    return (vec)((block->lengths > (integer)t) & (mask)value);
}

/* Packs weights (S, 4 N, J) as [cell][input][gate][lane]. */
static void pack(real *to, const void *from, int64_t stride, const Block *block, int64_t N, int64_t J) {
    const real *weight = (const real *)from + block->s * stride;
    for (int64_t n = 0; n < N; n++)
        for (int64_t gate = 0; gate < 4; gate++)
            transpose(to + (n * J * 4 + gate) * LANES, 4 * LANES, weight + (gate * N + n) * J, stride, block->lanes, J);
}

static void unpack(void *to, const real *from, const Block *block, int64_t N, int64_t J) {
    real *weight = (real *)to + block->s * 4 * N * J;
    for (int64_t n = 0; n < N; n++)
        for (int64_t gate = 0; gate < 4; gate++)
            transpose(weight + (gate * N + n) * J, 4 * N * J, from + (n * J * 4 + gate) * LANES, 4 * LANES, J, block->lanes);
}

static void pack_weights(const Plan *plan, const Block *block, real *memory) {
    const Lstm *c = plan->call;
    const int64_t N = c->N;
    if (block->lanes < LANES || c->weight_ch == NULL) clear(memory, plan->weights_size);
    pack(memory + plan->weight_ih, c->weight_ih, c->weight_ih_s, block, N, c->I);
    pack(memory + plan->weight_hh, c->weight_hh, c->weight_hh_s, block, N, N);
    pack(memory + plan->bias, c->bias, c->bias_s, block, N, 1);
    if (c->weight_ch != NULL)
        transpose(memory + plan->weight_ch, LANES, (const real *)c->weight_ch + block->s * c->weight_ch_s, c->weight_ch_s,
                  block->lanes, 3 * N);
}

/* Copies the input to x (T, I, lane), with zeros beyond the ends of the sequences. */
static void read_input(const Plan *plan, const Block *block, real *x) {
    const Lstm *c = plan->call;
    const int64_t I = c->I;
    if (block->lanes < LANES) clear(x, block->steps * I * LANES);
    for (int64_t t = 0; t < block->steps; t++) {
        real *now = x + t * I * LANES;
        transpose(now, LANES, (const real *)c->input + block->s * c->input_s + t * c->input_t, c->input_s, block->lanes, I);
        for (int64_t j = 0; c->lengths != NULL && j < I; j++)
            store(now + j * LANES, while_reading(block, t, load(now + j * LANES)));
    }
}

/* z[gate] += sum over j of weight[j][gate] u[j]. */
INLINE void add_products(vec z[4], const real *weight, const real *u, int64_t J) {
    for (int64_t j = 0; j < J; j++, weight += 4 * LANES) {
        const vec heard = load(u + j * LANES);
        UNROLL for (int gate = 0; gate < 4; gate++) z[gate] += load(weight + gate * LANES) * heard;
    }
}

static void forward_block(void *context, int64_t task, int64_t worker) {
    const Plan *plan = context;
    const Lstm *call = plan->call;
    const int64_t T = call->T, I = call->I, N = call->N;
    const Block block = make_block(call, task);
    real *memory = plan->memory + worker * plan->memory_size, *kept = (real *)call->kept + task * plan->kept_size;
    const real *peephole = memory + plan->weight_ch;
    pack_weights(plan, &block, memory);
    read_input(plan, &block, kept + plan->x);
    clear(kept + plan->h, N * LANES);
    clear(kept + plan->c, N * LANES);

    for (int64_t t = 0; t < block.steps; t++) {
        const real *x = kept + plan->x + t * I * LANES, *h_before = kept + plan->h + t * N * LANES;
        const real *c_before = kept + plan->c + t * N * LANES;
        for (int64_t n = 0; n < N; n++) {
            const int64_t at = n * LANES, now = (t * N + n) * LANES, next = now + N * LANES;
            vec z[4];
            UNROLL for (int gate = 0; gate < 4; gate++) z[gate] = load(memory + plan->bias + 4 * at + gate * LANES);
            add_products(z, memory + plan->weight_ih + 4 * at * I, x, I);
            add_products(z, memory + plan->weight_hh + 4 * at * N, h_before, N);
            const vec before = load(c_before + at);
            const vec i = logistic(z[0] + load(peephole + at) * before);
            const vec f = logistic(z[1] + load(peephole + N * LANES + at) * before);
            const vec g = hyperbolic_tangent(z[2]);
            vec c = f * before + i * g;
            if (call->lengths != NULL) c = while_reading(&block, t, c);
            const vec squashed = hyperbolic_tangent(c);
            const vec o = logistic(z[3] + load(peephole + 2 * N * LANES + at) * c);
            /* after the end of a sequence, tanh(0) makes h zero as well */
            real *gates = kept + plan->gates + 4 * now;
            store(gates, i);
            store(gates + LANES, f);
            store(gates + 2 * LANES, g);
            store(gates + 3 * LANES, o);
            store(kept + plan->squashed + now, squashed);
            store(kept + plan->c + next, c);
            store(kept + plan->h + next, o * squashed);
        }
    }

    real *hidden = (real *)call->hidden + block.s * T * N;
    transpose(hidden, T * N, kept + plan->h + N * LANES, LANES, block.steps * N, block.lanes);
    for (int64_t i = 0; i < block.lanes; i++) clear(hidden + i * T * N + block.steps * N, (T - block.steps) * N);
}

/* du[j] = sum over cells and gates of weight[cell][j][gate] dz[cell][gate], for `some` inputs from j on. */
INLINE void multiply_some_back(const int some, real *du, const real *weight, const real *dz, int64_t N, int64_t J, int64_t j) {
    vec sum[TOGETHER] = {0};
    for (int64_t n = 0; n < N; n++) {
        UNROLL for (int gate = 0; gate < 4; gate++) {
            const vec change = load(dz + (n * 4 + gate) * LANES);
            UNROLL for (int i = 0; i < some; i++) sum[i] += load(weight + ((n * J + j + i) * 4 + gate) * LANES) * change;
        }
    }
    UNROLL for (int i = 0; i < some; i++) store(du + (j + i) * LANES, sum[i]);
}

INLINE void multiply_back(real *du, const real *weight, const real *dz, int64_t N, int64_t J) {
    int64_t j = 0;
    for (; j + TOGETHER <= J; j += TOGETHER) multiply_some_back(TOGETHER, du, weight, dz, N, J, j);
    for (; j + TOGETHER / 4 <= J; j += TOGETHER / 4) multiply_some_back(TOGETHER / 4, du, weight, dz, N, J, j);
    for (; j < J; j++) multiply_some_back(1, du, weight, dz, N, J, j);
}

/* sum[j][gate] += sum over `steps` steps, the last one first, of dz[gate] u[j], for `some` inputs of one cell. */
INLINE void add_some_weight_gradients(const int some, real *sum, const real *dz, const real *u, int64_t steps, int64_t N,
                                      int64_t J) {
    vec total[ACROSS][4];
    UNROLL for (int i = 0; i < some; i++) {
        UNROLL for (int gate = 0; gate < 4; gate++) total[i][gate] = load(sum + (i * 4 + gate) * LANES);
    }
    for (int64_t t = steps - 1; t >= 0; t--) {
        UNROLL for (int i = 0; i < some; i++) {
            const vec heard = load(u + (t * J + i) * LANES);
            UNROLL for (int gate = 0; gate < 4; gate++) total[i][gate] += load(dz + (t * 4 * N + gate) * LANES) * heard;
        }
    }
    UNROLL for (int i = 0; i < some; i++) {
        UNROLL for (int gate = 0; gate < 4; gate++) store(sum + (i * 4 + gate) * LANES, total[i][gate]);
    }
}

static void add_weight_gradients(real *sums, const real *dz, const real *u, int64_t steps, int64_t N, int64_t J) {
    for (int64_t n = 0; n < N; n++) {
        int64_t j = 0;
        for (; j + ACROSS <= J; j += ACROSS)
            add_some_weight_gradients(ACROSS, sums + (n * J + j) * 4 * LANES, dz + n * 4 * LANES, u + j * LANES, steps, N, J);
        for (; j < J; j++)
            add_some_weight_gradients(1, sums + (n * J + j) * 4 * LANES, dz + n * 4 * LANES, u + j * LANES, steps, N, J);
    }
}

/* Adds to the gradients of the biases and the peepholes, whose inputs are 1, c(t - 1) and c(t). */
static void add_other_gradients(const Plan *plan, real *memory, const real *c, int64_t steps) {
    const int64_t N = plan->call->N;
    for (int64_t n = 0; n < N; n++) {
        real *to_bias = memory + plan->g_bias + n * 4 * LANES, *to_peephole = memory + plan->g_weight_ch + n * LANES;
        vec bias[4], peephole[3];
        UNROLL for (int gate = 0; gate < 4; gate++) bias[gate] = load(to_bias + gate * LANES);
        UNROLL for (int gate = 0; gate < 3; gate++) peephole[gate] = load(to_peephole + gate * N * LANES);
        for (int64_t t = steps - 1; t >= 0; t--) {
            const real *dz = memory + plan->dz + (t * N + n) * 4 * LANES;
            const vec before = load(c + (t * N + n) * LANES), after = load(c + ((t + 1) * N + n) * LANES);
            UNROLL for (int gate = 0; gate < 4; gate++) bias[gate] += load(dz + gate * LANES);
            peephole[0] += load(dz) * before;
            peephole[1] += load(dz + LANES) * before;
            peephole[2] += load(dz + 3 * LANES) * after;
        }
        UNROLL for (int gate = 0; gate < 4; gate++) store(to_bias + gate * LANES, bias[gate]);
        UNROLL for (int gate = 0; gate < 3; gate++) store(to_peephole + gate * N * LANES, peephole[gate]);
    }
}

/* Computes the gradients of the gates' sums at step t, and of c(t - 1). */
static void backward_step(const Plan *plan, real *memory, const real *kept, int64_t t, const real *arriving, real *dz) {
    const int64_t N = plan->call->N;
    const real *peephole = memory + plan->weight_ch;
    for (int64_t n = 0; n < N; n++) {
        const int64_t at = n * LANES, now = (t * N + n) * LANES;
        const real *gates = kept + plan->gates + 4 * now;
        const vec i = load(gates), f = load(gates + LANES), g = load(gates + 2 * LANES), o = load(gates + 3 * LANES);
        const vec squashed = load(kept + plan->squashed + now), before = load(kept + plan->c + now);
        const vec dh = load(arriving + at) + load(memory + plan->dh + at);
        const vec dz_o = dh * squashed * (o * (1 - o));
        const vec dc = load(memory + plan->carried + at) + dh * o * (1 - squashed * squashed) +
                       dz_o * load(peephole + 2 * N * LANES + at);
        const vec dz_i = dc * g * (i * (1 - i)), dz_f = dc * before * (f * (1 - f));
        store(dz + 4 * at, dz_i);
        store(dz + 4 * at + LANES, dz_f);
        store(dz + 4 * at + 2 * LANES, dc * i * (1 - g * g));
        store(dz + 4 * at + 3 * LANES, dz_o);
        store(memory + plan->carried + at,
              dc * f + dz_i * load(peephole + at) + dz_f * load(peephole + N * LANES + at));
    }
}

static void backward_block(void *context, int64_t task, int64_t worker) {
    const Plan *plan = context;
    const Lstm *call = plan->call;
    const int64_t T = call->T, I = call->I, N = call->N;
    const Block block = make_block(call, task);
    real *memory = plan->memory + worker * plan->memory_size;
    const real *kept = (const real *)call->kept + task * plan->kept_size;
    pack_weights(plan, &block, memory);
    clear(memory + plan->weights_size, plan->sums_size);
    clear(memory + plan->dh, N * LANES);
    clear(memory + plan->carried, N * LANES);
    clear(memory + plan->arriving, SPAN * N * LANES);

    for (int64_t end = block.steps; end > 0; end -= SPAN) {
        const int64_t from = larger(0, end - SPAN);
        real *arriving = memory + plan->arriving;
        transpose(arriving, LANES, (const real *)call->g_hidden + block.s * call->g_hidden_s + from * N, call->g_hidden_s,
                  block.lanes, (end - from) * N);
        for (int64_t t = end - 1; t >= from; t--) {
            real *now = arriving + (t - from) * N * LANES, *dz = memory + plan->dz + (t - from) * 4 * N * LANES;
            for (int64_t n = 0; call->lengths != NULL && n < N; n++)
                store(now + n * LANES, while_reading(&block, t, load(now + n * LANES)));
            backward_step(plan, memory, kept, t, now, dz);
            multiply_back(memory + plan->dh, memory + plan->weight_hh, dz, N, N);
            if (call->g_input == NULL) continue;
            multiply_back(memory + plan->dx, memory + plan->weight_ih, dz, N, I);
            transpose((real *)call->g_input + (block.s * T + t) * I, T * I, memory + plan->dx, LANES, I, block.lanes);
        }
        add_weight_gradients(memory + plan->g_weight_hh, memory + plan->dz, kept + plan->h + from * N * LANES, end - from, N, N);
        add_weight_gradients(memory + plan->g_weight_ih, memory + plan->dz, kept + plan->x + from * I * LANES, end - from, N, I);
        add_other_gradients(plan, memory, kept + plan->c + from * N * LANES, end - from);
    }

    for (int64_t i = 0; call->g_input != NULL && i < block.lanes; i++)
        clear((real *)call->g_input + ((block.s + i) * T + block.steps) * I, (T - block.steps) * I);
    unpack(call->g_weight_ih, memory + plan->g_weight_ih, &block, N, I);
    unpack(call->g_weight_hh, memory + plan->g_weight_hh, &block, N, N);
    unpack(call->g_bias, memory + plan->g_bias, &block, N, 1);
    if (call->g_weight_ch != NULL)
        transpose((real *)call->g_weight_ch + block.s * 3 * N, 3 * N, memory + plan->g_weight_ch, LANES, 3 * N, block.lanes);
}

static int run(const Lstm *call, Body *body, int backward) {
    Plan plan = make_plan(call, backward);
    plan.memory = allocate(times(plan.workers, plan.memory_size), sizeof(real));
    if (plan.memory == NULL) return OUT_OF_MEMORY;
    const uint64_t mode = cwrnn_flush_subnormals();
    cwrnn_parallel(body, &plan, plan.blocks, plan.workers);
    cwrnn_restore_mode(mode);
    free(plan.memory);
    return FINE;
}

/* Writes how many numbers forward keeps for backward. */
EXPORT int NAME(lstm_size)(const Lstm *call) {
    const Plan plan = make_plan(call, 0);
    *call->kept_size = times(plan.blocks, plan.kept_size);
    return FINE;
}

EXPORT int NAME(lstm_forward)(const Lstm *call) { return run(call, forward_block, 0); }
EXPORT int NAME(lstm_backward)(const Lstm *call) { return run(call, backward_block, 1); }
