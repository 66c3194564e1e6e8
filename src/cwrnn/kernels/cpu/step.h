/* A single step, with weights that were packed before. Part of cpu.c, which describes the computation.
 *
 * The messages are kept from step to step, beside the state that sent them. If the incoming state is another one, all
 * messages are made again. The weights are packed by columns, in one panel, once for all steps. */

typedef struct {
    const Step *call;
    int64_t N, ldn, drive, row; /* the length of a row of `messages`: the state, the drive, the messages */
    int64_t weight_ih, packed_size;
    int64_t all; /* true if all modules send messages, and not only those that are due */
    struct {
        int64_t K, start, end, ld, message, weights;
    } module[];
} StepPlan;

static StepPlan *make_step_plan(const Step *c) {
    StepPlan *plan = malloc(sizeof *plan + (size_t)c->G * sizeof plan->module[0]);
    if (plan == NULL) return NULL;
    *plan = (StepPlan){.call = c};
    for (int64_t i = 0; i < c->G; i++) plan->N += c->modules[i];
    plan->ldn = round_up(plan->N) + LANES;
    reserve(&plan->row, plan->ldn);
    plan->drive = reserve(&plan->row, plan->ldn);
    for (int64_t i = 0, start = 0; i < c->G; i++) {
        const int64_t K = c->modules[i], end = start + K, ld = round_up(end);
        plan->module[i].K = K;
        plan->module[i].start = start;
        plan->module[i].end = end;
        plan->module[i].ld = ld;
        plan->module[i].message = reserve(&plan->row, ld);
        plan->module[i].weights = reserve(&plan->packed_size, K * ld);
        start = end;
    }
    plan->weight_ih = reserve(&plan->packed_size, c->I * plan->ldn);
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

EXPORT int NAME(step_pack)(const Step *c) {
    StepPlan *plan = make_step_plan(c);
    if (plan == NULL) return OUT_OF_MEMORY;
    real *packed = c->packed;
    cwrnn_prefer_large_pages(packed, plan->packed_size * (int64_t)sizeof(real));
    clear(packed, plan->packed_size);
    for (int64_t i = 0; i < c->G; i++)
        pack_columns(packed + plan->module[i].weights, plan->module[i].ld, plan->module[i].ld,
                     (const real *)c->weight_hh + plan->module[i].start, plan->N, plan->module[i].end,
                     plan->module[i].K);
    pack_columns(packed + plan->weight_ih, plan->ldn, plan->ldn, c->weight_ih, c->I, plan->N, c->I);
    free(plan);
    return FINE;
}

/* True if a few weights equal the packed ones; every step compares others. Autograd counts the changes of a tensor, but
 * some code changes one without telling autograd. A change of all weights is noticed at once. */
static int same_weights(const StepPlan *plan) {
    const Step *c = plan->call;
    for (uint64_t n = 0; n < SAMPLES; n++) {
        const uint64_t number = (uint64_t)c->known * SAMPLES + n;
        const int64_t i = (int64_t)(number % (uint64_t)c->G);
        const int64_t row = (int64_t)(number * 7919 % (uint64_t)plan->module[i].end), K = plan->module[i].K;
        const int64_t column = (int64_t)(number / (uint64_t)c->G % (uint64_t)K), N = plan->N;
        const real *weight = (const real *)c->weight_hh + row * N + plan->module[i].start + column;
        const real *packed = (const real *)c->packed + plan->module[i].weights + column * plan->module[i].ld + row;
        if (memcmp(weight, packed, sizeof(real)) != 0) return 0;
        if (c->I == 0) continue;
        const int64_t unit = (int64_t)(number * 7919 % (uint64_t)N), input = (int64_t)(number % (uint64_t)c->I);
        weight = (const real *)c->weight_ih + unit * c->I + input;
        packed = (const real *)c->packed + plan->weight_ih + input * plan->ldn + unit;
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

EXPORT int NAME(step)(const Step *c) {
    StepPlan *plan = make_step_plan(c);
    if (plan == NULL) return OUT_OF_MEMORY;
    if (!same_weights(plan)) {
        free(plan);
        return OTHER_WEIGHTS;
    }
    const int64_t N = plan->N, row = plan->row;
    real *messages = c->messages;
    int64_t known = c->known;
    for (int64_t b = 0; known && b < c->B; b++)
        known = memcmp(messages + b * row, (const real *)c->h + b * c->h_b, (size_t)N * sizeof(real)) == 0;
    if (!known) {
        for (int64_t b = 0; b < c->B; b++) copy(messages + b * row, (const real *)c->h + b * c->h_b, N);
        send_messages(plan, 1);
    }
    for (int64_t i = 0; i < c->G; i++) {
        if (!is_due(c, i)) continue;
        const int64_t start = plan->module[i].start, end = plan->module[i].end, K = plan->module[i].K;
        Product drive = {
            .X = c->input, .xm = c->input_b, .xj = 1,
            .Y = (const real *)c->packed + plan->weight_ih + start, .ly = plan->ldn,
            .C = messages + plan->drive, .lc = row,
            .depth = c->I,
        };
        multiply(c->B, 0, round_up(K) / LANES, &drive);
        for (int64_t b = 0; b < c->B; b++) {
            real *a = messages + b * row + plan->drive, *h = messages + b * row + start;
            if (c->bias != NULL) add(a, (const real *)c->bias + start, K);
            for (int64_t j = i; j < c->G; j++) add(a, messages + b * row + plan->module[j].message + start, end - start);
            for (int64_t k = 0; k < K; k += LANES) store(a + k, activate(load(a + k), c->rectify));
            copy(h, a, K);
        }
    }
    for (int64_t b = 0; b < c->B; b++) {
        copy((real *)c->next + b * N, messages + b * row, N);
        copy((real *)c->output + b * N, messages + b * row, N);
    }
    send_messages(plan, 0);
    free(plan);
    return FINE;
}
