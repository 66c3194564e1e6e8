/* A single step, with weights that were packed before. Part of cpu.c, which describes the computation.
 *
 * The messages are kept from step to step, beside the state that sent them. If the incoming state is another one, all
 * messages are made again. The weights are packed by columns, in one panel, once for all steps. */

typedef struct {
    const Step *call;
    int64_t gates, N, ldn, drive, row; /* row: the length of a row of `messages`: h, the drive, the messages */
    int64_t weight_ih, ld, packed_size; /* ld: the length of a row of all gates */
    int64_t all; /* true if all modules send messages, and not only those that are due */
    struct {
        int64_t K, start, end, ld, message, weights;
    } module[];
} StepPlan;

static StepPlan *make_step_plan(const Step *c) {
    StepPlan *plan = malloc(sizeof *plan + (size_t)c->G * sizeof plan->module[0]);
    if (plan == NULL) return NULL;
    const int64_t gates = gates_of(c->cell);
    *plan = (StepPlan){.call = c, .gates = gates};
    for (int64_t i = 0; i < c->G; i++) plan->N += c->modules[i];
    plan->ldn = round_up(plan->N) + LANES;
    plan->ld = round_up(gates * plan->N) + LANES;
    reserve(&plan->row, plan->ldn);
    plan->drive = reserve(&plan->row, c->cell == GRU ? 4 * plan->ldn : plan->ld);
    for (int64_t i = 0, start = 0; i < c->G; i++) {
        const int64_t K = c->modules[i], end = start + K, ld = round_up(gates * end);
        plan->module[i].K = K;
        plan->module[i].start = start;
        plan->module[i].end = end;
        plan->module[i].ld = ld;
        plan->module[i].message = reserve(&plan->row, ld);
        plan->module[i].weights = reserve(&plan->packed_size, K * ld);
        start = end;
    }
    plan->weight_ih = reserve(&plan->packed_size, c->I * plan->ld);
    return plan;
}

/* Writes how many numbers `packed` and a row of `messages` have. */
EXPORT int NAME(step_sizes)(const Step *c) {
    StepPlan *plan = make_step_plan(c);
    if (plan == NULL) return OUT_OF_MEMORY;
    c->sizes[0] = plan->packed_size;
    c->sizes[1] = plan->row;
    free(plan);
    return FINE;
}

/* Packs the weights of the units of modules 0 to `last` by columns: for each module its first gate, then the second. */
static void pack_step(const StepPlan *plan, real *to, int64_t ld, const real *from, int64_t lf, int64_t last, int64_t columns) {
    for (int64_t i = 0; i <= last; i++) {
        const int64_t K = plan->module[i].K, start = plan->module[i].start;
        for (int64_t gate = 0; gate < plan->gates; gate++)
            transpose(to + plan->gates * start + gate * K, ld, from + (gate * plan->N + start) * lf, lf, K, columns);
    }
}

EXPORT int NAME(step_pack)(const Step *c) {
    StepPlan *plan = make_step_plan(c);
    if (plan == NULL) return OUT_OF_MEMORY;
    real *packed = c->packed;
    cwrnn_prefer_large_pages(packed, plan->packed_size * (int64_t)sizeof(real));
    clear(packed, plan->packed_size);
    for (int64_t i = 0; i < c->G; i++)
        pack_step(plan, packed + plan->module[i].weights, plan->module[i].ld,
                  (const real *)c->weight_hh + plan->module[i].start, plan->N, i, plan->module[i].K);
    pack_step(plan, packed + plan->weight_ih, plan->ld, c->weight_ih, c->I, c->G - 1, c->I);
    free(plan);
    return FINE;
}

/* The row of the weights that the packed row `row` comes from. */
static int64_t find_row(const StepPlan *plan, int64_t row) {
    if (plan->gates == 1) return row;
    int64_t i = 0;
    while (plan->gates * plan->module[i].end <= row) i++;
    const int64_t start = plan->module[i].start, inside = row - plan->gates * start;
    return inside / plan->module[i].K * plan->N + start + inside % plan->module[i].K;
}

/* True if a few weights equal the packed ones; every step compares others. Autograd counts the changes of a tensor, but
 * some code changes one without telling autograd. A change of all weights is noticed at once. */
static int same_weights(const StepPlan *plan) {
    const Step *c = plan->call;
    for (uint64_t n = 0; n < SAMPLES; n++) {
        const uint64_t number = (uint64_t)c->known * SAMPLES + n;
        const int64_t i = (int64_t)(number % (uint64_t)c->G);
        const int64_t row = (int64_t)(number * 7919 % (uint64_t)(plan->gates * plan->module[i].end)), K = plan->module[i].K;
        const int64_t column = (int64_t)(number / (uint64_t)c->G % (uint64_t)K), N = plan->N;
        const real *weight = (const real *)c->weight_hh + find_row(plan, row) * N + plan->module[i].start + column;
        const real *packed = (const real *)c->packed + plan->module[i].weights + column * plan->module[i].ld + row;
        if (memcmp(weight, packed, sizeof(real)) != 0) return 0;
        if (c->I == 0) continue;
        const int64_t other = (int64_t)(number * 7919 % (uint64_t)(plan->gates * N)), input = (int64_t)(number % (uint64_t)c->I);
        weight = (const real *)c->weight_ih + find_row(plan, other) * c->I + input;
        packed = (const real *)c->packed + plan->weight_ih + input * plan->ld + other;
        if (memcmp(weight, packed, sizeof(real)) != 0) return 0;
    }
    return 1;
}

INLINE int is_due(const Step *c, int64_t i) { return c->t % c->modules[c->G + i] == 0; }

enum { SPAN = 256 / LANES }; /* vectors of a message that one task computes */

static void send_part(void *context, int64_t task, int64_t worker) {
    const StepPlan *plan = context;
    const Step *c = plan->call;
    int64_t i = 0;
    (void)worker;
    for (;; i++) {
        if (!plan->all && !is_due(c, i)) continue;
        const int64_t parts = (plan->module[i].ld / LANES + SPAN - 1) / SPAN;
        if (task < parts) break;
        task -= parts;
    }
    Product product = {
        .X = (const real *)c->messages + plan->module[i].start, .xm = plan->row, .xj = 1,
        .Y = (const real *)c->packed + plan->module[i].weights, .ly = plan->module[i].ld,
        .C = (real *)c->messages + plan->module[i].message, .lc = plan->row,
        .depth = plan->module[i].K,
    };
    multiply(c->B, task * SPAN * LANES, smaller(SPAN, plan->module[i].ld / LANES - task * SPAN), &product);
}

static void send_messages(StepPlan *plan, int64_t all) {
    const Step *c = plan->call;
    int64_t parts = 0;
    double work = 0;
    for (int64_t i = 0; i < c->G; i++) {
        if (!all && !is_due(c, i)) continue;
        parts += (plan->module[i].ld / LANES + SPAN - 1) / SPAN;
        work += (double)(plan->module[i].ld * plan->module[i].K) * (double)c->B;
    }
    plan->all = all;
    cwrnn_parallel(send_part, plan, parts, threads_worth(work, WORTH_A_THREAD_IN_A_STEP, c->threads));
}

/* Computes the new state of module i in one row from its sums `a`, whose gates are K apart, in place of the one before. */
INLINE void tick_module(const StepPlan *plan, int64_t i, real *a, real *h, real *cells, const int cell) {
    const int64_t K = plan->module[i].K, N = plan->N, start = plan->module[i].start;
    for (int64_t k = 0; k < K; k += LANES) {
        const int64_t n = K - k;
        vec sum[SUMS], peephole[3], c = {0};
        for (int p = 0; p < (is_gated(cell) ? SUMS : 1); p++) sum[p] = load(a + p * K + k);
        if (cell == LSTM) c = load_at_most(cells + start + k, n);
        const real *weight = cell == LSTM ? plan->call->weight_ch : NULL;
        for (int p = 0; weight != NULL && p < 3; p++) peephole[p] = load_at_most(weight + p * N + start + k, n);
        const Units now = tick_units(cell, sum, load(h + k), c, weight != NULL ? peephole : NULL);
        if (cell == LSTM) store_at_most(cells + start + k, now.c, n);
        store(a + k, now.h);
    }
    copy(h, a, K);
}

/* Computes the new state of module i in one row: `a` is the product of the input with its weights, `cells` is c of all units
 * of an LSTM. */
static void step_module(const StepPlan *plan, int64_t i, real *row, real *a, real *cells) {
    const Step *c = plan->call;
    const int64_t start = plan->module[i].start, K = plan->module[i].K, N = plan->N, gates = plan->gates;
    const int64_t common = common_of(c->cell), gru = c->cell == GRU;
    real *h = row + start;
    if (gru) clear(a + 3 * K, K);
    for (int64_t gate = 0; c->bias != NULL && gate < gates + gru; gate++)
        add(a + gate * K, (const real *)c->bias + gate * N + start, K);
    for (int64_t j = i; j < c->G; j++) {
        const real *message = row + plan->module[j].message + gates * start;
        add(a, message, common * K);
        if (gru) add(a + 3 * K, message + common * K, K);
    }
    switch (c->cell) {
        case LSTM: tick_module(plan, i, a, h, cells, LSTM); break;
        case GRU: tick_module(plan, i, a, h, cells, GRU); break;
        case RELU: tick_module(plan, i, a, h, cells, RELU); break;
        default: tick_module(plan, i, a, h, cells, TANH); break;
    }
}

static void run_step(StepPlan *plan) {
    const Step *c = plan->call;
    const int64_t N = plan->N, row = plan->row, parts = c->cell == LSTM ? 2 : 1;
    real *messages = c->messages, *next = c->next;
    int64_t known = c->known;
    for (int64_t b = 0; known && b < c->B; b++)
        known = memcmp(messages + b * row, (const real *)c->h + b * c->h_b, (size_t)N * sizeof(real)) == 0;
    if (!known) {
        for (int64_t b = 0; b < c->B; b++) copy(messages + b * row, (const real *)c->h + b * c->h_b, N);
        send_messages(plan, 1);
    }
    for (int64_t b = 0; parts == 2 && b < c->B; b++) copy(next + (2 * b + 1) * N, (const real *)c->h + b * c->h_b + N, N);
    for (int64_t i = 0; i < c->G; i++) {
        if (!is_due(c, i)) continue;
        Product drive = {
            .X = c->input, .xm = c->input_b, .xj = 1,
            .Y = (const real *)c->packed + plan->weight_ih + plan->gates * plan->module[i].start, .ly = plan->ld,
            .C = messages + plan->drive, .lc = row,
            .depth = c->I,
        };
        multiply(c->B, 0, round_up(plan->gates * plan->module[i].K) / LANES, &drive);
        for (int64_t b = 0; b < c->B; b++) {
            real *own = messages + b * row;
            step_module(plan, i, own, own + plan->drive, next + (parts * b + 1) * N);
        }
    }
    for (int64_t b = 0; b < c->B; b++) {
        copy(next + parts * b * N, messages + b * row, N);
        copy((real *)c->output + b * N, messages + b * row, N);
    }
    send_messages(plan, 0);
}

EXPORT int NAME(step)(const Step *c) {
    StepPlan *plan = make_step_plan(c);
    if (plan == NULL) return OUT_OF_MEMORY;
    if (!same_weights(plan)) {
        free(plan);
        return OTHER_WEIGHTS;
    }
    const uint64_t mode = is_gated(c->cell) ? cwrnn_flush_subnormals() : 0;
    run_step(plan);
    if (is_gated(c->cell)) cwrnn_restore_mode(mode);
    free(plan);
    return FINE;
}
