/* The plain definitions of everything that the kernels compute, in doubles: loops without regard to speed. */

static double read_bias(const void *bias, int64_t at) { return bias == NULL ? 0 : (double)((const real *)bias)[at]; }

/* How often a module ticks in the first `length` steps. */
static int64_t count_ticks(int64_t first, int64_t period, int64_t length) {
    return length > first ? (length - 1 - first) / period + 1 : 0;
}

static int64_t clip_length(const int64_t *lengths, int64_t at, int64_t T) {
    if (lengths == NULL) return T;
    return lengths[at] < 0 ? 0 : lengths[at] > T ? T : lengths[at];
}

/* The units of a network and the place of each state in the ticks of one replica. */
typedef struct {
    const Call *call;
    int64_t N, ticks_size;
    int64_t start[8], place[8], module_of[512];
} Network;

static Network describe_network(const Call *c) {
    Network network = {.call = c};
    for (int64_t i = 0; i < c->G; i++) {
        const int64_t P = c->modules[i], K = c->modules[c->G + i], first = c->modules[2 * c->G + i];
        network.start[i] = network.N;
        network.place[i] = network.ticks_size;
        for (int64_t k = 0; k < K; k++) network.module_of[network.N++] = i;
        network.ticks_size += (count_ticks(first, P, c->T) + 1) * c->B * K;
    }
    return network;
}

static int is_due(const Call *c, int64_t i, int64_t t) {
    const int64_t first = c->modules[2 * c->G + i];
    return t >= first && (t - first) % c->modules[i] == 0;
}

/* The place of unit n in the ticks, for its last tick before step t. */
static int64_t find_tick(const Network *network, int64_t s, int64_t b, int64_t n, int64_t t) {
    const Call *c = network->call;
    const int64_t i = network->module_of[n], K = c->modules[c->G + i];
    const int64_t number = count_ticks(c->modules[2 * c->G + i], c->modules[i], t);
    return s * network->ticks_size + network->place[i] + (number * c->B + b) * K + n - network->start[i];
}

static const real *find_input(const Call *c, int64_t s, int64_t t, int64_t b) {
    return (const real *)c->input + s * c->input_s + t * c->input_t + b * c->input_b;
}

static void define_forward(const Network *network, double *final, double *held, double *ticks) {
    const Call *c = network->call;
    const int64_t N = network->N;
    for (int64_t s = 0; s < c->S; s++)
        for (int64_t b = 0; b < c->B; b++) {
            const real *weight_ih = (const real *)c->weight_ih + s * c->weight_ih_s;
            const real *weight_hh = (const real *)c->weight_hh + s * c->weight_hh_s;
            const int64_t length = clip_length(c->lengths, s * c->lengths_s + b, c->T);
            double h[512], before[512];
            for (int64_t n = 0; n < N; n++) {
                h[n] = c->h0 == NULL ? 0 : (double)((const real *)c->h0)[s * c->h0_s + b * c->h0_b + n];
                if (ticks != NULL) ticks[find_tick(network, s, b, n, 0)] = h[n];
            }
            for (int64_t t = 0; t < length; t++) {
                for (int64_t n = 0; n < N; n++) before[n] = h[n];
                for (int64_t n = 0; n < N; n++) {
                    const int64_t i = network->module_of[n];
                    if (!is_due(c, i, t)) continue;
                    double a = read_bias(c->bias, s * c->bias_s + n);
                    for (int64_t j = 0; j < c->I; j++)
                        a += (double)weight_ih[n * c->I + j] * (double)find_input(c, s, t, b)[j];
                    for (int64_t m = network->start[i]; m < N; m++) a += (double)weight_hh[n * N + m] * before[m];
                    h[n] = !c->rectify ? tanh(a) : a > 0 ? a : 0;
                    if (ticks != NULL) ticks[find_tick(network, s, b, n, t + 1)] = h[n];
                }
                for (int64_t n = 0; held != NULL && n < N; n++) held[((s * c->T + t) * c->B + b) * N + n] = h[n];
            }
            for (int64_t n = 0; n < N; n++) final[(s * c->B + b) * N + n] = h[n];
        }
}

/* The gradients, all of which begin as zeros, from the ticks that the kernel has written. */
static void define_backward(const Network *network, double *g_input, double *g_weight_ih, double *g_weight_hh,
                            double *g_bias, double *g_h0) {
    const Call *c = network->call;
    const int64_t N = network->N;
    const real *ticks = c->ticks, *g_ticks = c->g_ticks, *g_final = c->g_final, *g_held = c->g_held;
    for (int64_t s = 0; s < c->S; s++)
        for (int64_t b = 0; b < c->B; b++) {
            const real *weight_ih = (const real *)c->weight_ih + s * c->weight_ih_s;
            const real *weight_hh = (const real *)c->weight_hh + s * c->weight_hh_s;
            double g[512], change[512];
            for (int64_t n = 0; n < N; n++) g[n] = g_final == NULL ? 0 : (double)g_final[(s * c->B + b) * N + n];
            for (int64_t t = clip_length(c->lengths, s * c->lengths_s + b, c->T) - 1; t >= 0; t--) {
                for (int64_t n = 0; g_held != NULL && n < N; n++)
                    g[n] += (double)g_held[s * c->g_held_s + t * c->g_held_t + b * c->g_held_b + n];
                for (int64_t n = 0; n < N; n++) {
                    change[n] = 0;
                    if (!is_due(c, network->module_of[n], t)) continue;
                    const int64_t at = find_tick(network, s, b, n, t + 1);
                    const double value = (double)ticks[at];
                    if (g_ticks != NULL) g[n] += (double)g_ticks[at];
                    change[n] = !c->rectify ? g[n] * (1 - value * value) : value > 0 ? g[n] : 0;
                    g[n] = 0;
                }
                for (int64_t n = 0; n < N; n++) {
                    const int64_t i = network->module_of[n];
                    if (!is_due(c, i, t)) continue;
                    for (int64_t m = network->start[i]; m < N; m++) {
                        g_weight_hh[(s * N + n) * N + m] += change[n] * (double)ticks[find_tick(network, s, b, m, t)];
                        g[m] += change[n] * (double)weight_hh[n * N + m];
                    }
                    for (int64_t j = 0; j < c->I; j++) {
                        g_weight_ih[(s * N + n) * c->I + j] += change[n] * (double)find_input(c, s, t, b)[j];
                        g_input[((s * c->T + t) * c->B + b) * c->I + j] += change[n] * (double)weight_ih[n * c->I + j];
                    }
                    g_bias[s * N + n] += change[n];
                }
            }
            for (int64_t n = 0; n < N; n++)
                g_h0[(s * c->B + b) * N + n] =
                    g[n] + (g_ticks == NULL ? 0 : (double)g_ticks[find_tick(network, s, b, n, 0)]);
        }
}

static double squash(double x) { return 1 / (1 + exp(-x)); }

/* The gates, cells and states of network s, as (T + 1) rows of [i, f, g, o, c, h][N]; row 0 is the start. */
static double *define_lstm(const Lstm *p, int64_t s) {
    const int64_t I = p->I, N = p->N;
    double *rows = make_doubles((p->T + 1) * 6 * N);
    const real *weight_ih = (const real *)p->weight_ih + s * p->weight_ih_s;
    const real *weight_hh = (const real *)p->weight_hh + s * p->weight_hh_s;
    const real *peephole = p->weight_ch == NULL ? NULL : (const real *)p->weight_ch + s * p->weight_ch_s;
    for (int64_t t = 0; t < clip_length(p->lengths, s, p->T); t++) {
        const double *before = rows + t * 6 * N;
        double *now = rows + (t + 1) * 6 * N;
        const real *x = (const real *)p->input + s * p->input_s + t * p->input_t;
        for (int64_t n = 0; n < N; n++) {
            double z[4];
            for (int64_t gate = 0; gate < 4; gate++) {
                const int64_t row = gate * N + n;
                z[gate] = read_bias(p->bias, s * p->bias_s + row);
                for (int64_t j = 0; j < I; j++) z[gate] += (double)weight_ih[row * I + j] * (double)x[j];
                for (int64_t m = 0; m < N; m++) z[gate] += (double)weight_hh[row * N + m] * before[5 * N + m];
            }
            const double c_before = before[4 * N + n];
            if (peephole != NULL) z[0] += (double)peephole[n] * c_before, z[1] += (double)peephole[N + n] * c_before;
            const double i = squash(z[0]), f = squash(z[1]), g = tanh(z[2]), c = f * c_before + i * g;
            if (peephole != NULL) z[3] += (double)peephole[2 * N + n] * c;
            const double o = squash(z[3]);
            now[n] = i, now[N + n] = f, now[2 * N + n] = g, now[3 * N + n] = o;
            now[4 * N + n] = c, now[5 * N + n] = o * tanh(c);
        }
    }
    return rows;
}

static void define_lstm_backward(const Lstm *p, int64_t s, const double *rows, double *g_input, double *g_weight_ih,
                                 double *g_weight_hh, double *g_weight_ch, double *g_bias) {
    const int64_t I = p->I, N = p->N;
    const real *weight_ih = (const real *)p->weight_ih + s * p->weight_ih_s;
    const real *weight_hh = (const real *)p->weight_hh + s * p->weight_hh_s;
    const real *peephole = p->weight_ch == NULL ? NULL : (const real *)p->weight_ch + s * p->weight_ch_s;
    double *dh = make_doubles(N), *carried = make_doubles(N), *dz = make_doubles(4 * N);
    for (int64_t t = clip_length(p->lengths, s, p->T) - 1; t >= 0; t--) {
        const double *before = rows + t * 6 * N, *now = before + 6 * N;
        const real *arriving = (const real *)p->g_hidden + s * p->g_hidden_s + t * N;
        const real *x = (const real *)p->input + s * p->input_s + t * p->input_t;
        for (int64_t n = 0; n < N; n++) {
            const double i = now[n], f = now[N + n], g = now[2 * N + n], o = now[3 * N + n], c = now[4 * N + n];
            const double c_before = before[4 * N + n], gradient = (double)arriving[n] + dh[n];
            const double peep_i = peephole == NULL ? 0 : (double)peephole[n];
            const double peep_f = peephole == NULL ? 0 : (double)peephole[N + n];
            const double peep_o = peephole == NULL ? 0 : (double)peephole[2 * N + n];
            dz[3 * N + n] = gradient * tanh(c) * o * (1 - o);
            const double dc = carried[n] + gradient * o * (1 - tanh(c) * tanh(c)) + dz[3 * N + n] * peep_o;
            dz[n] = dc * g * i * (1 - i);
            dz[N + n] = dc * c_before * f * (1 - f);
            dz[2 * N + n] = dc * i * (1 - g * g);
            carried[n] = dc * f + dz[n] * peep_i + dz[N + n] * peep_f;
            g_weight_ch[s * 3 * N + n] += dz[n] * c_before;
            g_weight_ch[s * 3 * N + N + n] += dz[N + n] * c_before;
            g_weight_ch[s * 3 * N + 2 * N + n] += dz[3 * N + n] * c;
        }
        for (int64_t m = 0; m < N; m++) dh[m] = 0;
        for (int64_t row = 0; row < 4 * N; row++) {
            g_bias[s * 4 * N + row] += dz[row];
            for (int64_t m = 0; m < N; m++) {
                dh[m] += (double)weight_hh[row * N + m] * dz[row];
                g_weight_hh[(s * 4 * N + row) * N + m] += dz[row] * before[5 * N + m];
            }
            for (int64_t j = 0; j < I; j++) {
                g_input[(s * p->T + t) * I + j] += (double)weight_ih[row * I + j] * dz[row];
                g_weight_ih[(s * 4 * N + row) * I + j] += dz[row] * (double)x[j];
            }
        }
    }
    free(dh);
    free(carried);
    free(dz);
}
