/* The linear readout of many networks at once, each of its own states: output = W h + b at every step, and back.
 *
 * Compiled once per instruction set and precision, as cpu.c. Units are in the lanes of the vectors. Every sum has its
 * order: a network gives the same bits alone as among a hundred, which a batched product of torch's does not promise. */

#include "vectors.h"

#include "memory.h"

/* the first n lanes from there, or a whole vector */
INLINE vec load_up_to(const real *from, int64_t n) { return n < LANES ? load_some(from, n) : load(from); }

INLINE void store_up_to(real *to, vec value, int64_t n) {
    if (n < LANES)
        store_some(to, value, n);
    else
        store(to, value);
}

INLINE real sum_of_lanes(vec value) {
    real lane[LANES];
    store(lane, value);
    UNROLL for (int half = LANES / 2; half > 0; half /= 2) {
        UNROLL for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    }
    return lane[0];
}

static void forward_network(void *context, int64_t s, int64_t worker) {
    const Linear *c = context;
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

static void backward_network(void *context, int64_t s, int64_t worker) {
    const Linear *c = context;
    const int64_t T = c->T, N = c->N, O = c->O;
    const real *h = (const real *)c->hidden + s * c->hidden_s, *weight = (const real *)c->weight + s * c->weight_s;
    const real *g = (const real *)c->g_output + s * T * O;
    real *g_hidden = (real *)c->g_hidden + s * T * N;
    (void)worker;
    for (int64_t n = 0; n < N; n += LANES) {
        const int64_t width = N - n;
        for (int64_t t = 0; t < T; t++) {
            vec sum = {0};
            for (int64_t o = 0; o < O; o++) sum += g[t * O + o] * load_up_to(weight + o * N + n, width);
            store_up_to(g_hidden + t * N + n, sum, width);
        }
        for (int64_t o = 0; o < O; o++) {
            vec sum = {0};
            for (int64_t t = 0; t < T; t++) sum += g[t * O + o] * load_up_to(h + t * N + n, width);
            store_up_to((real *)c->g_weight + (s * O + o) * N + n, sum, width);
        }
    }
    for (int64_t o = 0; o < O; o++) {
        real sum = 0;
        for (int64_t t = 0; t < T; t++) sum += g[t * O + o];
        ((real *)c->g_bias)[s * O + o] = sum;
    }
}

static int run(const Linear *c, Body *body) {
    cwrnn_parallel(body, (void *)c, c->S, workers_for((double)(c->S * c->T * c->O * round_up(c->N)), c->S, c->threads));
    return FINE;
}

EXPORT int NAME(readout_forward)(const Linear *c) { return run(c, forward_network); }
EXPORT int NAME(readout_backward)(const Linear *c) { return run(c, backward_network); }
