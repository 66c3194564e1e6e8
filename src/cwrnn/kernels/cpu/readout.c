/* The linear readouts of many networks at once, each with its own weights: output = W h + b at every step, and backward.
 *
 * Compiled once per instruction set and precision, as cpu.c is. Units are in the lanes of the vectors. Every sum has a
 * fixed order: a network gives the same bits alone as among a hundred, which torch's batched products do not guarantee. */

#include "vectors.h"

#include "memory.h"

/* Adds the halves of the vector repeatedly; the compiler makes one instruction of each exchange of lanes. */
INLINE real sum_of_lanes(vec value) {
    UNROLL for (int half = LANES / 2; half > 0; half /= 2) {
        vec other = value;
        UNROLL for (int i = 0; i < LANES; i++) other[i] = value[i ^ half];
        value += other;
    }
    return value[0];
}

static void forward_network(void *context, int64_t s, int64_t worker) {
    const Linear *c = *(const Linear **)context;
    const int64_t N = c->N, O = c->O;
    const real *h = (const real *)c->hidden + s * c->hidden_s;
    const real *bias = (const real *)c->bias + s * c->bias_s;
    real *output = (real *)c->output + s * c->T * O;
    (void)worker;
    for (int64_t t = 0; t < c->T; t++, h += N) {
        const real *weight = (const real *)c->weight + s * c->weight_s;
        for (int64_t o = 0; o < O; o++, weight += N) {
            vec sum = {0};
            int64_t n = 0;
            for (; n + LANES <= N; n += LANES) sum += load(weight + n) * load(h + n);
            if (n < N) sum += load_some(weight + n, N - n) * load_some(h + n, N - n);
            *output++ = bias[o] + sum_of_lanes(sum);
        }
    }
}

/* Computes the gradients of the units from n on: a whole vector of them, or `width` units if `some` is true. */
INLINE void backward_units(const Linear *c, int64_t s, int64_t n, const int some, int64_t width) {
    const int64_t T = c->T, N = c->N, O = c->O;
    const real *h = (const real *)c->hidden + s * c->hidden_s + n, *weight = (const real *)c->weight + s * c->weight_s + n;
    const real *g = (const real *)c->g_output + s * T * O;
    real *g_hidden = (real *)c->g_hidden + s * T * N + n, *g_weight = (real *)c->g_weight + s * O * N + n;
    for (int64_t o = 0; o < O; o++) {
        const vec own = some ? load_some(weight + o * N, width) : load(weight + o * N);
        vec sum = {0};
        for (int64_t t = 0; t < T; t++) {
            const real *state = h + t * N;
            real *to = g_hidden + t * N;
            const vec arriving = spread(g[t * O + o]);
            vec back = arriving * own;
            if (o > 0) back += some ? load_some(to, width) : load(to);
            if (some)
                store_some(to, back, width);
            else
                store(to, back);
            sum += arriving * (some ? load_some(state, width) : load(state));
        }
        if (some)
            store_some(g_weight + o * N, sum, width);
        else
            store(g_weight + o * N, sum);
    }
}

static void backward_network(void *context, int64_t s, int64_t worker) {
    const Linear *c = *(const Linear **)context;
    const int64_t O = c->O;
    const real *g = (const real *)c->g_output + s * c->T * O;
    int64_t n = 0;
    (void)worker;
    for (; n + LANES <= c->N; n += LANES) backward_units(c, s, n, 0, LANES);
    if (n < c->N) backward_units(c, s, n, 1, c->N - n);
    for (int64_t o = 0; o < O; o++) {
        real sum = 0;
        for (int64_t t = 0; t < c->T; t++) sum += g[t * O + o];
        ((real *)c->g_bias)[s * O + o] = sum;
    }
}

static int run(const Linear *c, Body *body) {
    const double work = (double)c->S * (double)c->T * (double)c->O * (double)round_up(c->N);
    cwrnn_parallel(body, &c, c->S, workers_for(work, c->S, c->threads));
    return FINE;
}

EXPORT int NAME(readout_forward)(const Linear *c) { return run(c, forward_network); }
EXPORT int NAME(readout_backward)(const Linear *c) { return run(c, backward_network); }
