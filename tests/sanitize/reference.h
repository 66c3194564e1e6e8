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

/* How many numbers forward keeps for backward besides the ticks: the gates, and the c of an LSTM. */
static int64_t count_kept(const Network *network) {
    const Call *c = network->call;
    return c->cell == LSTM || c->cell == GRU ? c->S * ((c->cell == LSTM ? 5 : 4) * network->ticks_size + 16) : 0;
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

static double squash(double x) { return 1 / (1 + exp(-x)); }

static int count_gates(int64_t cell) { return cell == LSTM ? 4 : cell == GRU ? 3 : 1; }
static int count_biases(int64_t cell) { return cell == LSTM || cell == GRU ? 4 : 1; }
static int count_parts(int64_t cell) { return cell == LSTM ? 2 : 1; }

/* A unit at one step: the gates i, f, g, o of an LSTM, or r, z, n of a GRU and the messages to n; and its state. */
typedef struct {
    double gate[4], c, h;
} Unit;

/* The new state of a unit, from the sums of its gates by input and by messages, and its peepholes. */
static Unit tick_unit(int64_t cell, const double *driven, const double *heard, const double *peephole, Unit before) {
    Unit u = before;
    double *gate = u.gate;
    if (cell == LSTM) {
        for (int k = 0; k < 4; k++) gate[k] = driven[k] + heard[k];
        gate[0] = squash(gate[0] + peephole[0] * before.c), gate[1] = squash(gate[1] + peephole[1] * before.c);
        gate[2] = tanh(gate[2]);
        u.c = gate[1] * before.c + gate[0] * gate[2];
        gate[3] = squash(gate[3] + peephole[2] * u.c);
        u.h = gate[3] * tanh(u.c);
    } else if (cell == GRU) {
        gate[0] = squash(driven[0] + heard[0]), gate[1] = squash(driven[1] + heard[1]);
        gate[3] = heard[2] + driven[3];
        gate[2] = tanh(driven[2] + gate[0] * gate[3]);
        u.h = (1 - gate[1]) * gate[2] + gate[1] * before.h;
    } else {
        const double a = driven[0] + heard[0];
        u.h = cell == TANH ? tanh(a) : a > 0 ? a : 0;
    }
    return u;
}

static void read_peepholes(const void *weight_ch, int64_t at, int64_t N, double peephole[3]) {
    for (int64_t k = 0; k < 3; k++) peephole[k] = weight_ch == NULL ? 0 : (double)((const real *)weight_ch)[at + k * N];
}

/* The units of sequence b of replica s as length + 1 rows of N, of which row 0 is the start; to be freed. */
static Unit *define_units(const Network *network, int64_t s, int64_t b) {
    const Call *c = network->call;
    const int64_t N = network->N, length = clip_length(c->lengths, s * c->lengths_s + b, c->T);
    const int gates = count_gates(c->cell);
    const real *weight_ih = (const real *)c->weight_ih + s * c->weight_ih_s;
    const real *weight_hh = (const real *)c->weight_hh + s * c->weight_hh_s;
    const real *h0 = (const real *)c->h0 + s * c->h0_s + b * c->h0_b;
    Unit *units = calloc((size_t)((length + 1) * N), sizeof *units);
    if (units == NULL) fail("define_units", "no memory");
    for (int64_t n = 0; c->h0 != NULL && n < N; n++) {
        units[n].h = (double)h0[n];
        if (c->cell == LSTM) units[n].c = (double)h0[N + n];
    }
    for (int64_t t = 0; t < length; t++)
        for (int64_t n = 0; n < N; n++) {
            const Unit *before = units + t * N;
            const int64_t i = network->module_of[n];
            units[(t + 1) * N + n] = before[n];
            if (!is_due(c, i, t)) continue;
            double driven[4] = {0}, heard[4] = {0}, peephole[3];
            for (int64_t k = 0; k < count_biases(c->cell); k++) driven[k] = read_bias(c->bias, s * c->bias_s + k * N + n);
            for (int64_t k = 0; k < gates; k++) {
                for (int64_t j = 0; j < c->I; j++)
                    driven[k] += (double)weight_ih[(k * N + n) * c->I + j] * (double)find_input(c, s, t, b)[j];
                for (int64_t m = network->start[i]; m < N; m++) heard[k] += (double)weight_hh[(k * N + n) * N + m] * before[m].h;
            }
            read_peepholes(c->weight_ch, s * c->weight_ch_s + n, N, peephole);
            units[(t + 1) * N + n] = tick_unit(c->cell, driven, heard, peephole, before[n]);
        }
    return units;
}

static void define_forward(const Network *network, double *final, double *held, double *ticks) {
    const Call *c = network->call;
    const int64_t N = network->N, parts = count_parts(c->cell);
    for (int64_t s = 0; s < c->S; s++)
        for (int64_t b = 0; b < c->B; b++) {
            const int64_t length = clip_length(c->lengths, s * c->lengths_s + b, c->T);
            Unit *units = define_units(network, s, b);
            for (int64_t n = 0; n < N; n++) {
                for (int64_t t = 0; t <= length; t++) {
                    ticks[find_tick(network, s, b, n, t)] = units[t * N + n].h;
                    if (t > 0) held[((s * c->T + t - 1) * c->B + b) * N + n] = units[t * N + n].h;
                }
                final[(s * c->B + b) * parts * N + n] = units[length * N + n].h;
                if (parts == 2) final[((s * c->B + b) * 2 + 1) * N + n] = units[length * N + n].c;
            }
            free(units);
        }
}

/* The gradients of a unit's sums at a tick, by input and by messages, from those of its state, which become those of the
 * state before. */
static void differentiate_unit(int64_t cell, const Unit *u, const Unit *before, const double *peephole, double *dh,
                               double *dc, double *driven, double *heard) {
    const double *gate = u->gate;
    if (cell == LSTM) {
        const double i = gate[0], f = gate[1], g = gate[2], o = gate[3], squashed = tanh(u->c);
        driven[3] = *dh * squashed * o * (1 - o);
        const double d = *dc + *dh * o * (1 - squashed * squashed) + driven[3] * peephole[2];
        driven[0] = d * g * i * (1 - i), driven[1] = d * before->c * f * (1 - f), driven[2] = d * i * (1 - g * g);
        *dc = d * f + driven[0] * peephole[0] + driven[1] * peephole[1];
        *dh = 0;
        for (int k = 0; k < 4; k++) heard[k] = driven[k];
    } else if (cell == GRU) {
        const double r = gate[0], z = gate[1], n = gate[2];
        driven[2] = *dh * (1 - z) * (1 - n * n);
        driven[0] = driven[2] * gate[3] * r * (1 - r), driven[1] = *dh * (before->h - n) * z * (1 - z);
        heard[0] = driven[0], heard[1] = driven[1], heard[2] = driven[3] = driven[2] * r;
        *dh *= z;
    } else {
        heard[0] = driven[0] = cell == TANH ? *dh * (1 - u->h * u->h) : u->h > 0 ? *dh : 0;
        *dh = 0;
    }
}

/* The gradients of all tensors, which begin as zeros. */
typedef struct {
    double *input, *weight_ih, *weight_hh, *bias, *h0, *weight_ch;
} Gradients;

static void define_backward(const Network *network, const Gradients *to) {
    const Call *c = network->call;
    const int64_t N = network->N, gates = count_gates(c->cell), biases = count_biases(c->cell), parts = count_parts(c->cell);
    const real *g_ticks = c->g_ticks, *g_final = c->g_final, *g_held = c->g_held;
    for (int64_t s = 0; s < c->S; s++)
        for (int64_t b = 0; b < c->B; b++) {
            const real *weight_ih = (const real *)c->weight_ih + s * c->weight_ih_s;
            const real *weight_hh = (const real *)c->weight_hh + s * c->weight_hh_s;
            Unit *units = define_units(network, s, b);
            double g[512], dc[512], driven[512][4], heard[512][4], peephole[3];
            for (int64_t n = 0; n < N; n++) {
                g[n] = g_final == NULL ? 0 : (double)g_final[(s * c->B + b) * parts * N + n];
                dc[n] = g_final == NULL || parts == 1 ? 0 : (double)g_final[((s * c->B + b) * 2 + 1) * N + n];
            }
            for (int64_t t = clip_length(c->lengths, s * c->lengths_s + b, c->T) - 1; t >= 0; t--) {
                const Unit *before = units + t * N, *now = before + N;
                for (int64_t n = 0; g_held != NULL && n < N; n++)
                    g[n] += (double)g_held[s * c->g_held_s + t * c->g_held_t + b * c->g_held_b + n];
                for (int64_t n = 0; n < N; n++) {
                    if (!is_due(c, network->module_of[n], t)) continue;
                    if (g_ticks != NULL) g[n] += (double)g_ticks[find_tick(network, s, b, n, t + 1)];
                    read_peepholes(c->weight_ch, s * c->weight_ch_s + n, N, peephole);
                    differentiate_unit(c->cell, &now[n], &before[n], peephole, &g[n], &dc[n], driven[n], heard[n]);
                }
                for (int64_t n = 0; n < N; n++) {
                    const int64_t i = network->module_of[n];
                    if (!is_due(c, i, t)) continue;
                    for (int64_t k = 0; k < gates; k++) {
                        const int64_t row = k * N + n;
                        for (int64_t m = network->start[i]; m < N; m++) {
                            to->weight_hh[(s * gates * N + row) * N + m] += heard[n][k] * before[m].h;
                            g[m] += heard[n][k] * (double)weight_hh[row * N + m];
                        }
                        for (int64_t j = 0; j < c->I; j++) {
                            to->weight_ih[(s * gates * N + row) * c->I + j] += driven[n][k] * (double)find_input(c, s, t, b)[j];
                            to->input[((s * c->T + t) * c->B + b) * c->I + j] += driven[n][k] * (double)weight_ih[row * c->I + j];
                        }
                    }
                    for (int64_t k = 0; k < biases; k++) to->bias[(s * biases + k) * N + n] += driven[n][k];
                    if (c->cell != LSTM) continue;
                    to->weight_ch[s * 3 * N + n] += driven[n][0] * before[n].c;
                    to->weight_ch[(s * 3 + 1) * N + n] += driven[n][1] * before[n].c;
                    to->weight_ch[(s * 3 + 2) * N + n] += driven[n][3] * now[n].c;
                }
            }
            for (int64_t n = 0; n < N; n++) {
                to->h0[(s * c->B + b) * parts * N + n] =
                    g[n] + (g_ticks == NULL ? 0 : (double)g_ticks[find_tick(network, s, b, n, 0)]);
                if (parts == 2) to->h0[((s * c->B + b) * 2 + 1) * N + n] = dc[n];
            }
            free(units);
        }
}

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
