/* A single step of sequences that have clocks of their own. Part of cpu.c, which describes the computation.
 *
 * For each module, the sequences in which it is due are gathered in compact memory, multiplied together, and scattered
 * again. A sequence touches no memory of another, so the batch is cut into blocks, which are the tasks of the threads. The
 * sum for one unit is taken in the same order as in step.h: a stream gives the same bits alone and among a thousand.
 *
 * A row is the memory of one sequence's messages. In a pool, it is a part of the stream's slot, and `rows` lists the slots
 * of the streams that make the step. */

enum { BLOCK = 64 }; /* sequences of one task: enough to read the weights once for many, few enough for the cache */

typedef struct {
    StepPlan *step;
    int64_t input, sums, sums_ld, states, states_ld, sent, sent_ld, size; /* places in the working memory of a thread */
    real *memory;
    int64_t *due; /* for each thread and module BLOCK sequences and their number */
} RowsPlan;

/* The sequences of a task. */
typedef struct {
    const RowsPlan *plan;
    int64_t first, count;
    real *memory;
    real *row[BLOCK], *cells[BLOCK];
} Block;

INLINE int64_t *due_of(const RowsPlan *plan, int64_t worker, int64_t i) {
    return plan->due + (worker * plan->step->call->G + i) * (BLOCK + 1);
}

static RowsPlan make_rows_plan(StepPlan *step) {
    const Step *c = step->call;
    RowsPlan plan = {.step = step};
    int64_t K = 1;
    for (int64_t i = 0; i < c->G; i++) K = larger(K, step->module[i].K);
    plan.sums_ld = round_up(larger(step->ld, 4 * step->ldn)) + LANES;
    plan.states_ld = round_up(K);
    plan.sent_ld = step->module[c->G - 1].ld;
    plan.input = reserve(&plan.size, times(BLOCK, c->I));
    plan.sums = reserve(&plan.size, times(BLOCK, plan.sums_ld));
    plan.states = reserve(&plan.size, times(BLOCK, plan.states_ld));
    plan.sent = reserve(&plan.size, times(BLOCK, plan.sent_ld));
    return plan;
}

/* Makes the messages of module i in the `count` sequences of `which`, from their states. */
static void send_rows(const Block *block, int64_t i, const int64_t *which, int64_t count) {
    const RowsPlan *plan = block->plan;
    const StepPlan *step = plan->step;
    const int64_t K = step->module[i].K, ld = step->module[i].ld, message = step->module[i].message;
    real *states = block->memory + plan->states, *sent = block->memory + plan->sent;
    for (int64_t n = 0; n < count; n++) copy(states + n * plan->states_ld, block->row[which[n]] + step->module[i].start, K);
    Product product = {
        .X = states, .xm = plan->states_ld, .xj = 1,
        .Y = (const real *)step->call->packed + step->module[i].weights, .ly = ld,
        .C = sent, .lc = plan->sent_ld,
        .depth = K,
    };
    multiply(count, 0, ld / LANES, &product);
    for (int64_t n = 0; n < count; n++) copy(block->row[which[n]] + message, sent + n * plan->sent_ld, ld);
}

/* Computes the new states of module i in the `count` sequences of `which`. */
static void tick_rows(const Block *block, int64_t i, const int64_t *which, int64_t count) {
    const RowsPlan *plan = block->plan;
    const StepPlan *step = plan->step;
    const Step *c = step->call;
    const real *input = (const real *)c->input + block->first * c->input_b;
    real *own = block->memory + plan->input, *sums = block->memory + plan->sums;
    const int all = count == block->count;
    for (int64_t n = 0; !all && n < count; n++) copy(own + n * c->I, input + which[n] * c->input_b, c->I);
    Product drive = {
        .X = all ? input : own, .xm = all ? c->input_b : c->I, .xj = 1,
        .Y = (const real *)c->packed + step->weight_ih + step->gates * step->module[i].start, .ly = step->ld,
        .C = sums, .lc = plan->sums_ld,
        .depth = c->I,
    };
    multiply(count, 0, round_up(step->gates * step->module[i].K) / LANES, &drive);
    for (int64_t n = 0; n < count; n++)
        step_module(step, i, block->row[which[n]], sums + n * plan->sums_ld, block->cells[which[n]]);
}

/* Finds the memory of all sequences, and makes the messages of those whose state is another one than before. */
static void begin_block(Block *block, int64_t *other) {
    const StepPlan *step = block->plan->step;
    const Step *c = step->call;
    const int64_t N = step->N, lstm = c->cell == LSTM;
    int64_t others = 0;
    for (int64_t n = 0; n < block->count; n++) {
        const int64_t b = block->first + n, at = c->rows != NULL ? c->rows[b] : b;
        block->row[n] = (real *)c->messages + at * step->row;
        if (c->rows != NULL) {
            block->cells[n] = lstm ? (real *)c->cells + at * N : NULL;
            if (!c->made[at]) other[others++] = n;
            continue;
        }
        const real *h = (const real *)c->h + b * c->h_b;
        block->cells[n] = lstm ? (real *)c->next + (2 * b + 1) * N : NULL;
        if (lstm) copy(block->cells[n], h + N, N);
        if (c->known && memcmp(block->row[n], h, (size_t)N * sizeof(real)) == 0) continue;
        copy(block->row[n], h, N);
        other[others++] = n;
    }
    for (int64_t i = 0; others > 0 && i < c->G; i++) send_rows(block, i, other, others);
}

/* Writes the sequences in which each module is due, and their number behind them. */
static void find_due(const Block *block, int64_t worker) {
    const Step *c = block->plan->step->call;
    const int64_t *periods = c->modules + c->G;
    for (int64_t i = 0; i < c->G; i++) {
        int64_t *due = due_of(block->plan, worker, i), count = 0;
        /* if the period is a multiple of the one before, the module is due only where the one before is */
        const int64_t *among = i > 0 && periods[i] % periods[i - 1] == 0 ? due_of(block->plan, worker, i - 1) : NULL;
        const int64_t candidates = among != NULL ? among[BLOCK] : block->count;
        for (int64_t k = 0; k < candidates; k++) {
            const int64_t n = among != NULL ? among[k] : k, b = block->first + n;
            if (c->clocks[c->rows != NULL ? c->rows[b] : b] % periods[i] == 0) due[count++] = n;
        }
        due[BLOCK] = count;
    }
}

static void step_block(void *context, int64_t task, int64_t worker) {
    const RowsPlan *plan = context;
    const Step *c = plan->step->call;
    const int64_t N = plan->step->N, parts = c->cell == LSTM ? 2 : 1;
    Block block = {.plan = plan, .first = task * BLOCK, .memory = plan->memory + worker * plan->size};
    block.count = smaller(BLOCK, c->B - block.first);
    begin_block(&block, due_of(plan, worker, 0));
    find_due(&block, worker);
    for (int64_t i = 0; i < c->G; i++) {
        const int64_t *due = due_of(plan, worker, i);
        if (due[BLOCK] > 0) tick_rows(&block, i, due, due[BLOCK]);
    }
    for (int64_t n = 0; n < block.count; n++) {
        const int64_t b = block.first + n;
        copy((real *)c->output + b * N, block.row[n], N);
        if (c->rows == NULL) {
            copy((real *)c->next + parts * b * N, block.row[n], N);
        } else {
            c->made[c->rows[b]] = 1;
            c->clocks[c->rows[b]] += c->advance;
        }
    }
    for (int64_t i = 0; i < c->G; i++) {
        const int64_t *due = due_of(plan, worker, i);
        if (due[BLOCK] > 0) send_rows(&block, i, due, due[BLOCK]);
    }
}

static int run_rows(StepPlan *step) {
    const Step *c = step->call;
    const int64_t tasks = (c->B + BLOCK - 1) / BLOCK;
    double work = 0;
    for (int64_t i = 0; i < c->G; i++)
        work += (double)(step->module[i].K * (step->module[i].ld + step->gates * c->I)) / (double)c->modules[c->G + i];
    const int64_t threads = threads_worth(work * (double)c->B, WORTH_A_THREAD_IN_A_STEP, smaller(c->threads, tasks));
    RowsPlan plan = make_rows_plan(step);
    plan.memory = allocate(times(threads, plan.size), sizeof(real));
    plan.due = allocate(times(times(threads, c->G), BLOCK + 1), sizeof(int64_t));
    const int enough = plan.memory != NULL && plan.due != NULL;
    if (enough) cwrnn_parallel(step_block, &plan, tasks, threads);
    free(plan.memory);
    free(plan.due);
    return enough ? FINE : OUT_OF_MEMORY;
}

EXPORT int NAME(step_rows)(const Step *c) {
    StepPlan *plan = make_step_plan(c);
    if (plan == NULL) return OUT_OF_MEMORY;
    if (!same_weights(plan)) {
        free(plan);
        return OTHER_WEIGHTS;
    }
    const uint64_t mode = is_gated(c->cell) ? cwrnn_flush_subnormals() : 0;
    const int result = run_rows(plan);
    if (is_gated(c->cell)) cwrnn_restore_mode(mode);
    free(plan);
    return result;
}
