/* Calls the functions of a library of CPU kernels with random shapes, strides, clocks, lengths and threads, and compares
 * every result with its plain definition. Two threads do so at once, as threads of a program may.
 *
 *     driver LIBRARY ISA SEED CALLS
 *
 * It is compiled for one precision, with the sanitizer that the library was compiled with. If the processor does not have
 * the instruction set ISA, it ends with code 77. A fifth argument is a misuse of a block, which the address sanitizer must
 * report: "past-block" writes behind a lent block, "kept-block" writes to a block that was given back. */

#include "cpu.h"

#include "tensors.h"

#include "reference.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int Function(const void *);

static struct {
    Function *forward, *backward, *step_sizes, *step_pack, *step, *step_rows;
    Function *lstm_size, *lstm_forward, *lstm_backward, *readout_forward, *readout_backward;
    void (*keep)(int64_t), *(*lend)(int64_t, int64_t, const int64_t *), (*count)(int64_t *);
} kernel;

static void call(const char *what, Function *function, const void *fields) {
    if (function(fields) != FINE) fail(what, "it did not succeed");
}

/* A size, most often a small one, sometimes a whole number of vectors. */
static int64_t draw_size(int64_t most) { return chance(15) ? 16 : pick(1, chance(70) ? 9 : most); }

static int64_t draw_batch(void) {
    static const int64_t sizes[] = {0, 1, 1, 2, 3, 7, 8, 9, 16, 17, 31, 33, 70};
    return sizes[pick(0, 12)];
}

/* Writes periods, sizes and first ticks, and returns the number of units. */
static int64_t draw_modules(int64_t G, int64_t *modules) {
    const int nested = chance(60);
    const int64_t t0 = pick(0, 1000);
    int64_t N = 0;
    for (int64_t i = 0; i < G; i++) {
        modules[i] = i == 0 ? pick(1, 2) : nested ? modules[i - 1] * pick(1, 3) : modules[i - 1] + pick(0, 3);
        if (chance(3)) modules[i] = (int64_t)1 << pick(20, 40);
        if (i > 0 && modules[i] < modules[i - 1]) modules[i] = modules[i - 1];
        modules[G + i] = draw_size(40);
        modules[2 * G + i] = (modules[i] - t0 % modules[i]) % modules[i];
        N += modules[G + i];
    }
    return N;
}

/* Draws the input with one of the layouts that torch hands over: time first, batch first, padded, or expanded. */
static void draw_input(Call *c) {
    const int64_t I = c->I + (chance(20) ? pick(1, 3) : 0);
    if (chance(40))
        c->input_t = I, c->input_b = c->T * I;
    else
        c->input_b = I, c->input_t = c->B * I;
    if (chance(10)) c->input_b = 0;
    if (chance(10)) c->input_t = 0;
    c->input_s = chance(30) ? 0 : c->T * c->B * I;
    const int empty = c->S == 0 || c->T == 0 || c->B == 0 || c->I == 0;
    c->input = draw_tensor(
        empty ? 0 : (c->S - 1) * c->input_s + (c->T - 1) * c->input_t + (c->B - 1) * c->input_b + c->I, 1);
}

/* A tensor of S replicas of `numbers` numbers, or of one that all share; writes the stride. */
static real *draw_replicas(int64_t S, int64_t numbers, double scale, int64_t *stride) {
    *stride = chance(30) ? 0 : numbers;
    return draw_tensor(S == 0 ? 0 : *stride == 0 ? numbers : S * numbers, scale);
}

static int64_t *draw_lengths(int64_t numbers, int64_t T) {
    int64_t *lengths = allocate(numbers, sizeof *lengths);
    for (int64_t i = 0; i < numbers; i++) lengths[i] = chance(5) ? pick(-3, T + 3) : pick(0, T);
    return lengths;
}

static void check_same(const char *what, const void *one, const void *other, int64_t numbers) {
    if (one != NULL && memcmp(one, other, (size_t)numbers * sizeof(real)) != 0)
        fail(what, "one thread gives other bits than several");
}

static void drive_backward(Call *c, const Network *network) {
    const int64_t S = c->S, T = c->T, B = c->B, I = c->I, N = network->N;
    const int64_t rows = S * count_gates(c->cell) * N, biases = S * count_biases(c->cell) * N;
    const int64_t states = S * B * count_parts(c->cell) * N;
    if (chance(60)) c->g_ticks = draw_tensor(S * network->ticks_size, 1);
    if (chance(60)) c->g_final = draw_tensor(states, 1);
    if (chance(60)) {
        c->g_held_b = chance(10) ? 0 : N, c->g_held_t = B * N, c->g_held_s = T * B * N;
        c->g_held = draw_tensor(S * T * B * N, 1);
    }
    if (chance(70)) c->g_input = make_tensor(S * T * B * I);
    if (chance(70)) c->g_weight_ih = make_tensor(rows * I);
    if (chance(70)) c->g_weight_hh = make_tensor(rows * N);
    if (chance(70)) c->g_bias = make_tensor(biases);
    if (chance(70)) c->g_h0 = make_tensor(states);
    if (c->weight_ch != NULL && chance(70)) c->g_weight_ch = make_tensor(S * 3 * N);
    const Gradients expected = {
        .input = make_doubles(S * T * B * I), .weight_ih = make_doubles(rows * I), .weight_hh = make_doubles(rows * N),
        .bias = make_doubles(biases), .h0 = make_doubles(states), .weight_ch = make_doubles(S * 3 * N),
    };
    call("backward", kernel.backward, c);
    define_backward(network, &expected);
    compare("gradient of the input", c->g_input, expected.input, S * T * B * I);
    compare("gradient of weight_ih", c->g_weight_ih, expected.weight_ih, rows * I);
    compare("gradient of weight_hh", c->g_weight_hh, expected.weight_hh, rows * N);
    compare("gradient of the bias", c->g_bias, expected.bias, biases);
    compare("gradient of h0", c->g_h0, expected.h0, states);
    compare("gradient of the peepholes", c->g_weight_ch, expected.weight_ch, S * 3 * N);
    if (c->g_weight_hh == NULL) return;
    const real *several = c->g_weight_hh;
    c->g_weight_hh = make_tensor(rows * N);
    c->threads = 1;
    call("backward", kernel.backward, c);
    check_same("backward", several, c->g_weight_hh, rows * N);
}

/* Draws the bias and the peepholes that a cell of S replicas has. */
static void draw_cell(Call *c, int64_t N) {
    if (chance(80)) c->bias = draw_replicas(c->S, count_biases(c->cell) * N, 1, &c->bias_s);
    if (c->cell == LSTM && chance(60)) c->weight_ch = draw_replicas(c->S, 3 * N, 1, &c->weight_ch_s);
}

static void drive_sequence(void) {
    union {
        Call call;
        int64_t room[sizeof(Call) / 8 + 3 * 8];
    } fields = {0};
    Call *c = &fields.call;
    c->S = chance(70) ? 1 : pick(0, 4), c->T = pick(0, 30), c->B = draw_batch(), c->I = pick(0, 9), c->G = pick(1, 5);
    c->cell = pick(TANH, GRU), c->threads = pick(1, 4);
    const int64_t N = draw_modules(c->G, c->modules), rows = count_gates(c->cell) * N, H = count_parts(c->cell) * N;
    const double scale = 1 / sqrt((double)N);
    draw_input(c);
    c->weight_ih = draw_replicas(c->S, rows * c->I, 1, &c->weight_ih_s);
    c->weight_hh = draw_replicas(c->S, rows * N, scale, &c->weight_hh_s);
    draw_cell(c, N);
    if (chance(50)) c->lengths = draw_lengths(c->S * c->B, c->T), c->lengths_s = c->B;
    if (chance(50)) c->h0 = draw_tensor(c->S * c->B * H, 1), c->h0_b = H, c->h0_s = c->B * H;
    const Network network = describe_network(c);
    const int backward = chance(70);
    const int64_t ticks = c->S * network.ticks_size, numbers = c->S * c->T * c->B * N, finals = c->S * c->B * H;
    if (backward || chance(50)) c->ticks = make_tensor(ticks);
    if (backward || chance(50)) c->kept = make_tensor(count_kept(&network));
    if (chance(70)) c->held = make_tensor(numbers);
    c->final = make_tensor(finals);
    double *final = make_doubles(finals), *held = make_doubles(numbers), *expected = make_doubles(ticks);
    call("forward", kernel.forward, c);
    define_forward(&network, final, held, expected);
    compare("final state", c->final, final, finals);
    compare("held states", c->held, held, numbers);
    compare("ticks", c->ticks, expected, ticks);

    void *several = c->final, *several_held = c->held;
    const int64_t threads = c->threads;
    c->final = make_tensor(finals);
    if (c->held != NULL) c->held = make_tensor(numbers);
    c->threads = 1;
    call("forward", kernel.forward, c);
    check_same("forward", several, c->final, finals);
    check_same("forward", several_held, c->held, numbers);
    c->threads = threads;
    if (backward) drive_backward(c, &network);
}

/* Axes of 2^31 and more elements: expanded tensors without memory of their own. */
static void drive_silly_sizes(void) {
    union {
        Call call;
        int64_t room[sizeof(Call) / 8 + 3 * 8];
    } fields = {0};
    Call *c = &fields.call;
    c->S = 1, c->T = INT64_MAX >> pick(0, 33), c->B = chance(50) ? 0 : pick(1, 40), c->I = 1, c->G = pick(1, 4), c->threads = 4;
    const int64_t N = draw_modules(c->G, c->modules);
    c->input = draw_tensor(1, 1);
    c->weight_ih = draw_tensor(N, 1), c->weight_hh = draw_tensor(N * N, 0.1);
    c->lengths = draw_lengths(c->B, 20);
    c->final = make_tensor(c->B * N);
    call("forward of many steps", kernel.forward, c);
    if (c->B == 0) {
        c->g_weight_hh = make_tensor(N * N), c->g_weight_ih = make_tensor(N);
        call("backward of many steps", kernel.backward, c);
        compare("gradient of no sequence", c->g_weight_hh, make_doubles(N * N), N * N);
    }

    int64_t size = 0;
    const int64_t axes[] = {0, 1, 1 << 20, (int64_t)1 << 30, (int64_t)1 << 31, (int64_t)1 << 45, (int64_t)1 << 62};
    const Lstm lstm = {.S = pick(0, 40), .T = axes[pick(1, 6)], .I = axes[pick(0, 6)], .N = axes[pick(1, 6)], .kept_size = &size};
    call("size of many steps", kernel.lstm_size, &lstm);
    const double wanted = (double)lstm.S * (double)lstm.T * ((double)lstm.I + 7 * (double)lstm.N);
    if ((double)size < fmin(wanted, 1e18)) fail("size of many steps", "it is too small");
    if (kernel.lend(32, 3, (int64_t[]){axes[pick(4, 6)], axes[pick(4, 6)], axes[pick(4, 6)]}) != NULL)
        fail("lend", "it lends more memory than there is");
}

/* Unit n of module i, whose units begin at `start`, after a step at clock t of a sequence with state h and input x. */
static Unit define_step(const Step *c, const real *h, const real *x, int64_t t, int64_t i, int64_t n, int64_t start, int64_t N) {
    double driven[4] = {0}, heard[4] = {0}, peephole[3];
    const Unit before = {.h = (double)h[n], .c = c->cell == LSTM ? (double)h[N + n] : 0};
    if (t % c->modules[c->G + i] != 0) return before;
    for (int64_t k = 0; k < count_biases(c->cell); k++) driven[k] = read_bias(c->bias, k * N + n);
    for (int64_t k = 0; k < count_gates(c->cell); k++) {
        const real *weight_ih = (const real *)c->weight_ih + (k * N + n) * c->I;
        const real *weight_hh = (const real *)c->weight_hh + (k * N + n) * N;
        for (int64_t j = 0; j < c->I; j++) driven[k] += (double)weight_ih[j] * (double)x[j];
        for (int64_t m = start; m < N; m++) heard[k] += (double)weight_hh[m] * (double)h[m];
    }
    read_peepholes(c->weight_ch, n, N, peephole);
    return tick_unit(c->cell, driven, heard, peephole, before);
}

/* Writes the state (H) and the output (N) of a sequence after a step. */
static void define_row(const Step *c, const real *h, const real *x, int64_t t, int64_t N, double *expected, double *output) {
    for (int64_t i = 0, start = 0; i < c->G; start += c->modules[i++])
        for (int64_t n = start; n < start + c->modules[i]; n++) {
            const Unit now = define_step(c, h, x, t, i, n, start, N);
            expected[n] = output[n] = now.h;
            if (c->cell == LSTM) expected[N + n] = now.c;
        }
}

typedef union {
    Step step;
    int64_t room[sizeof(Step) / 8 + 2 * 8];
} StepFields;

/* Draws a network, packs it, and returns its number of units. */
static int64_t draw_step(Step *c, int64_t *sizes, real **weight_hh) {
    int64_t modules[3 * 8];
    c->I = pick(0, 9), c->G = pick(1, 5), c->cell = pick(TANH, GRU), c->threads = pick(1, 4);
    const int64_t G = c->G, N = draw_modules(G, modules), rows = count_gates(c->cell) * N;
    for (int64_t i = 0; i < G; i++) c->modules[i] = modules[G + i], c->modules[G + i] = modules[i];
    *weight_hh = draw_tensor(rows * N, 1 / sqrt((double)N));
    c->weight_ih = draw_tensor(rows * c->I, 1), c->weight_hh = *weight_hh;
    if (chance(80)) c->bias = draw_tensor(count_biases(c->cell) * N, 1);
    if (c->cell == LSTM && chance(60)) c->weight_ch = draw_tensor(3 * N, 1);
    c->sizes = sizes, c->input_b = c->I;
    call("step_sizes", kernel.step_sizes, c);
    c->packed = make_tensor(sizes[0]);
    call("step_pack", kernel.step_pack, c);
    return N;
}

/* Steps of sequences that share a clock, or have clocks of their own. */
static void drive_steps(void) {
    StepFields fields = {0};
    Step *c = &fields.step;
    int64_t sizes[2], t = pick(0, 100);
    real *weight_hh;
    const int own_clocks = chance(50);
    const int64_t B = pick(0, 9), N = draw_step(c, sizes, &weight_hh), I = c->I, H = count_parts(c->cell) * N;
    c->B = B, c->messages = make_tensor(B * sizes[1]);
    if (own_clocks) c->clocks = allocate(B, sizeof *c->clocks);
    for (int64_t b = 0; own_clocks && b < B; b++) c->clocks[b] = pick(0, 100);
    c->h = draw_tensor(B * H, 1), c->h_b = H;
    Function *function = own_clocks ? kernel.step_rows : kernel.step;
    for (int64_t step = 0; step < 5; step++, t++) {
        c->input = draw_tensor(B * I, 1), c->next = make_tensor(B * H), c->output = make_tensor(B * N);
        c->t = t, c->known = step;
        if (chance(10)) c->h = draw_tensor(B * H, 1);
        call("step", function, c);
        double *expected = make_doubles(B * H), *output = make_doubles(B * N);
        for (int64_t b = 0; b < B; b++) {
            const real *h = (const real *)c->h + b * H, *x = (const real *)c->input + b * I;
            define_row(c, h, x, own_clocks ? c->clocks[b]++ : t, N, expected + b * H, output + b * N);
        }
        compare("state after a step", c->next, expected, B * H);
        compare("output of a step", c->output, output, B * N);
        c->h = c->next;
    }
    for (int64_t i = 0; i < count_gates(c->cell) * N * N; i++) weight_hh[i] += 1;
    if (function(c) != OTHER_WEIGHTS) fail("step", "it does not notice other weights");
}

/* Steps of some of the streams that lie in slots; all others stay as they are. */
static void drive_slots(void) {
    StepFields fields = {0};
    Step *c = &fields.step;
    int64_t sizes[2];
    real *weight_hh;
    const int64_t N = draw_step(c, sizes, &weight_hh), I = c->I, H = count_parts(c->cell) * N, slots = pick(1, 12), row = sizes[1];
    real *messages = make_tensor(slots * row), *cells = draw_tensor(c->cell == LSTM ? slots * N : 0, 1);
    int64_t *rows = allocate(slots, sizeof *rows);
    c->messages = messages, c->cells = cells, c->rows = rows;
    c->clocks = allocate(slots, sizeof *c->clocks), c->made = allocate(slots, sizeof *c->made);
    for (int64_t slot = 0; slot < slots; slot++) {
        rows[slot] = slot, c->clocks[slot] = pick(0, 100), c->made[slot] = 0;
        for (int64_t n = 0; n < N; n++) messages[slot * row + n] = (real)((double)pick(-1000000, 1000000) / 1e6);
    }
    for (int64_t step = 0; step < 5; step++) {
        for (int64_t slot = slots - 1; slot > 0; slot--) {
            const int64_t other = pick(0, slot), kept = rows[slot];
            rows[slot] = rows[other], rows[other] = kept;
        }
        c->B = pick(0, slots), c->known = step, c->advance = pick(0, 1);
        c->input = draw_tensor(c->B * I, 1), c->output = make_tensor(c->B * N);
        double *expected = make_doubles(slots * H), *output = make_doubles(c->B * N);
        real *before = make_tensor(slots * H), *after = make_tensor(slots * H);
        int64_t clocks[12];
        for (int64_t slot = 0; slot < slots; slot++) {
            clocks[slot] = c->clocks[slot];
            for (int64_t n = 0; n < H; n++) {
                before[slot * H + n] = n < N ? messages[slot * row + n] : cells[slot * N + n - N];
                expected[slot * H + n] = (double)before[slot * H + n];
            }
        }
        for (int64_t b = 0; b < c->B; b++) {
            const int64_t slot = rows[b];
            define_row(c, before + slot * H, (const real *)c->input + b * I, clocks[slot], N, expected + slot * H, output + b * N);
            clocks[slot] += c->advance;
        }
        call("step of slots", kernel.step_rows, c);
        for (int64_t slot = 0; slot < slots; slot++) {
            if (c->clocks[slot] != clocks[slot]) fail("step of slots", "a clock is wrong");
            for (int64_t n = 0; n < H; n++) after[slot * H + n] = n < N ? messages[slot * row + n] : cells[slot * N + n - N];
        }
        compare("states in the slots after a step", after, expected, slots * H);
        compare("output of a step of slots", c->output, output, c->B * N);
        if (chance(20)) c->made[pick(0, slots - 1)] = 0;
    }
}

static void drive_lstm(void) {
    Lstm p = {.S = pick(0, 40), .T = pick(0, 40), .I = pick(0, 6), .N = draw_size(20), .threads = pick(1, 4)};
    const int64_t S = p.S, T = p.T, I = p.I, N = p.N;
    int64_t size = 0;
    p.kept_size = &size;
    p.input = draw_replicas(S, T * I, 1, &p.input_s), p.input_t = I;
    p.weight_ih = draw_replicas(S, 4 * N * I, 1, &p.weight_ih_s);
    p.weight_hh = draw_replicas(S, 4 * N * N, 1, &p.weight_hh_s);
    if (chance(60)) p.weight_ch = draw_replicas(S, 3 * N, 1, &p.weight_ch_s);
    p.bias = draw_replicas(S, 4 * N, 1, &p.bias_s);
    if (chance(50)) p.lengths = draw_lengths(S, T);
    call("lstm_size", kernel.lstm_size, &p);
    p.kept = make_tensor(size), p.hidden = make_tensor(S * T * N);
    call("lstm_forward", kernel.lstm_forward, &p);
    p.g_hidden = draw_replicas(S, T * N, 1, &p.g_hidden_s);
    if (chance(60)) p.g_input = make_tensor(S * T * I);
    p.g_weight_ih = make_tensor(S * 4 * N * I), p.g_weight_hh = make_tensor(S * 4 * N * N);
    if (p.weight_ch != NULL) p.g_weight_ch = make_tensor(S * 3 * N);
    p.g_bias = make_tensor(S * 4 * N);
    call("lstm_backward", kernel.lstm_backward, &p);

    double *hidden = make_doubles(S * T * N), *g_input = make_doubles(S * T * I), *g_bias = make_doubles(S * 4 * N);
    double *g_weight_ih = make_doubles(S * 4 * N * I), *g_weight_hh = make_doubles(S * 4 * N * N);
    double *g_weight_ch = make_doubles(S * 3 * N);
    for (int64_t s = 0; s < S; s++) {
        double *rows = define_lstm(&p, s);
        for (int64_t t = 0; t < T; t++)
            for (int64_t n = 0; n < N; n++) hidden[(s * T + t) * N + n] = rows[(t + 1) * 6 * N + 5 * N + n];
        define_lstm_backward(&p, s, rows, g_input, g_weight_ih, g_weight_hh, g_weight_ch, g_bias);
        free(rows);
    }
    compare("states of an LSTM", p.hidden, hidden, S * T * N);
    compare("gradient of an LSTM's input", p.g_input, g_input, S * T * I);
    compare("gradient of an LSTM's weight_ih", p.g_weight_ih, g_weight_ih, S * 4 * N * I);
    compare("gradient of an LSTM's weight_hh", p.g_weight_hh, g_weight_hh, S * 4 * N * N);
    compare("gradient of an LSTM's peepholes", p.g_weight_ch, g_weight_ch, S * 3 * N);
    compare("gradient of an LSTM's bias", p.g_bias, g_bias, S * 4 * N);
}

static void drive_readout(void) {
    Linear c = {.S = pick(0, 9), .T = pick(0, 40), .N = pick(0, 40), .O = pick(0, 6), .threads = pick(1, 4)};
    const int64_t S = c.S, T = c.T, N = c.N, O = c.O;
    const real *h = c.hidden = draw_replicas(S, T * N, 1, &c.hidden_s);
    const real *weight = c.weight = draw_replicas(S, O * N, 1, &c.weight_s);
    c.bias = draw_replicas(S, O, 1, &c.bias_s);
    const real *g = c.g_output = draw_tensor(S * T * O, 1);
    c.output = make_tensor(S * T * O);
    c.g_hidden = make_tensor(S * T * N), c.g_weight = make_tensor(S * O * N), c.g_bias = make_tensor(S * O);
    call("readout_forward", kernel.readout_forward, &c);
    call("readout_backward", kernel.readout_backward, &c);
    double *output = make_doubles(S * T * O), *g_hidden = make_doubles(S * T * N), *g_weight = make_doubles(S * O * N);
    double *g_bias = make_doubles(S * O);
    for (int64_t s = 0; s < S; s++)
        for (int64_t t = 0; t < T; t++)
            for (int64_t o = 0; o < O; o++) {
                const int64_t at = (s * T + t) * O + o;
                output[at] = read_bias(c.bias, s * c.bias_s + o);
                g_bias[s * O + o] += (double)g[at];
                for (int64_t n = 0; n < N; n++) {
                    const double state = (double)h[s * c.hidden_s + t * N + n], w = (double)weight[s * c.weight_s + o * N + n];
                    output[at] += w * state;
                    g_hidden[(s * T + t) * N + n] += w * (double)g[at];
                    g_weight[(s * O + o) * N + n] += state * (double)g[at];
                }
            }
    compare("output of a readout", c.output, output, S * T * O);
    compare("gradient of a readout's states", O > 0 ? c.g_hidden : NULL, g_hidden, S * T * N);
    compare("gradient of a readout's weight", c.g_weight, g_weight, S * O * N);
    compare("gradient of a readout's bias", c.g_bias, g_bias, S * O);
}

/* The structures of DLPack, as in blocks.c. */
typedef struct Managed {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
    void *context;
    void (*deleter)(struct Managed *);
} Managed;

static Managed *lend(int64_t numbers) {
    Managed *tensor = kernel.lend(REAL_BITS, 1, &numbers);
    if (tensor == NULL) fail("lend", "there is no memory");
    return tensor;
}

/* Takes some blocks, writes to all of them, checks that no other thread has written there, and gives them back. */
static void drive_blocks(void) {
    enum { BLOCKS = 3 };
    Managed *tensor[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        tensor[i] = lend(pick(1, 60000));
        real *numbers = tensor[i]->data;
        for (int64_t n = 0; n < tensor[i]->shape[0]; n++) numbers[n] = (real)(own.seed % 1000) + (real)i;
    }
    int64_t counts[2];
    kernel.count(counts);
    if (counts[0] < 0 || counts[1] <= 0) fail("count", "blocks are lent, but not counted");
    if (chance(10)) kernel.keep(chance(50) ? pick(0, 1000) : INT64_MAX);
    for (int i = 0; i < BLOCKS; i++) {
        const real *numbers = tensor[i]->data;
        for (int64_t n = 0; n < tensor[i]->shape[0]; n++)
            if (numbers[n] != (real)(own.seed % 1000) + (real)i) fail("blocks", "two tensors share a block");
        tensor[i]->deleter(tensor[i]);
    }
}

/* A child process, made while the thread of blocks.c runs, can compute, lend and give back. */
static void drive_fork(void) {
    Managed *held = lend(50000);
    kernel.keep(INT64_MAX);
    drive_blocks();
    const pid_t child = fork();
    if (child == 0) {
        int64_t counts[2];
        kernel.count(counts);
        if (counts[0] != 0) fail("fork", "a child has blocks that its parent kept");
        drive_blocks();
        drive_sequence();
        held->deleter(held);
        _exit(0);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) fail("fork", "the child did not succeed");
    held->deleter(held);
}

typedef struct {
    uint64_t seed;
    int64_t calls;
} Part;

static void *drive(void *context) {
    const Part *part = context;
    own.seed = part->seed;
    own.random = part->seed * 0x9E3779B97F4A7C15u + 1;
    for (own.number = 0; own.number < part->calls; own.number++) {
        switch (own.number % 8) {
            case 0:
                if (chance(50))
                    drive_steps();
                else
                    drive_slots();
                break;
            case 1: drive_lstm(); break;
            case 2: drive_readout(); break;
            case 3: drive_blocks(); break;
            case 4: drive_silly_sizes(); break;
            default: drive_sequence(); break;
        }
        free_tensors();
    }
    return NULL;
}

static void misuse(const char *how) {
    kernel.keep(INT64_MAX);
    Managed *tensor = lend(1000);
    real *numbers = tensor->data;
    if (strcmp(how, "past-block") == 0) numbers[1000] = 1;
    tensor->deleter(tensor);
    if (strcmp(how, "kept-block") == 0) numbers[0] = 1;
}

static void *library;

static void *find(const char *name) {
    void *found = dlsym(library, name);
    if (found == NULL) fail("dlsym", name);
    return found;
}

static Function *find_function(const char *name, const char *isa) {
    char whole[64];
    snprintf(whole, sizeof whole, "cwrnn_%s_f%d_%s", name, REAL_BITS, isa);
    return (Function *)find(whole);
}

int main(int count, char **argument) {
    if (count < 5) {
        fprintf(stderr, "usage: %s LIBRARY ISA SEED CALLS [past-block | kept-block]\n", argument[0]);
        return 2;
    }
    library = dlopen(argument[1], RTLD_NOW);
    if (library == NULL) fail("dlopen", dlerror());
    const char *isa = argument[2];
    if (!((int (*)(const char *))find("cwrnn_has"))(isa)) return 77;
    kernel.forward = find_function("forward", isa), kernel.backward = find_function("backward", isa);
    kernel.step_sizes = find_function("step_sizes", isa), kernel.step_pack = find_function("step_pack", isa);
    kernel.step = find_function("step", isa), kernel.step_rows = find_function("step_rows", isa);
    kernel.lstm_size = find_function("lstm_size", isa);
    kernel.lstm_forward = find_function("lstm_forward", isa), kernel.lstm_backward = find_function("lstm_backward", isa);
    kernel.readout_forward = find_function("readout_forward", isa);
    kernel.readout_backward = find_function("readout_backward", isa);
    kernel.keep = (void (*)(int64_t))find("cwrnn_keep");
    kernel.lend = (void *(*)(int64_t, int64_t, const int64_t *))find("cwrnn_lend");
    kernel.count = (void (*)(int64_t *))find("cwrnn_count");
    if (count > 5) {
        misuse(argument[5]);
        return 0;
    }

    const uint64_t seed = strtoull(argument[3], NULL, 10);
    const int64_t calls = strtoll(argument[4], NULL, 10);
    Part parts[] = {{2 * seed + 1, calls / 2}, {2 * seed + 2, calls - calls / 2}};
    pthread_t other;
    kernel.keep(1000000);
    if (pthread_create(&other, NULL, drive, &parts[1]) != 0) fail("main", "there is no thread");
    drive(&parts[0]);
    pthread_join(other, NULL);
    drive_fork();
    free_tensors();
    return 0;
}
