/* Forward of a single sequence through a network whose weights do not fit into a core's own cache, and forward's entry
 * point. Part of cpu.c, which describes the computation.
 *
 * The pass over time reads the weights of a message at every tick, and they have left the cache when it needs them again.
 * But no module hears a faster one. So this pass takes a module over a whole part of the time, 64 ticks of the fastest one.
 * What a module says to the faster ones in the part is then one product of many rows, which reads every weight once. What
 * it says to itself is still a product for each tick, but these weights stay in the cache.
 *
 * A module needs what the next slower one has said in the same part, and its own state at the end of the part before. So
 * the slowest module can be in part 7 while the next one is in part 6, and so on: these are the tasks of the threads.
 * PARTS parts are a span, after which the memory for what was said is used again. Every sum has the same order as in the
 * pass over time, so the results have the same bits. */

/* A span of a single sequence, and how far the modules are in it. */
typedef struct {
    const Plan *plan;
    const real *weights;
    const Chunk *chunk;
    int64_t begin, end; /* the steps of the span */
    int64_t front;      /* the part that the slowest module is in; each faster one is one part behind the next slower one */
    int64_t fastest;    /* the fastest module that has reached the span */
} Span;

/* The number of ticks of module m before step t, counted from the begin of the span. */
INLINE int64_t ticks_until(const Span *span, const Module *m, int64_t t) {
    return count_ticks(m, t) - count_ticks(m, span->begin);
}

/* The sum of what the modules slower than m have said when m has ticked n times in the span; NULL if m is the slowest. */
INLINE const real *heard_after(const Span *span, const Module *m, int64_t n) {
    const Plan *plan = span->plan;
    const Module *slower = m + 1;
    if (slower == &plan->module[plan->call->G]) return NULL;
    const int64_t t = m->first + (count_ticks(m, span->begin) + n - 1) * m->P;
    const int64_t row = n > 0 ? ticks_until(span, slower, t + 1) : 0;
    return plan->memory + slower->sent + row * slower->reach;
}

/* Multiplies the inputs of the ticks `from` to `to` of module m. */
INLINE void multiply_inputs(const Span *span, const Module *m, int64_t from, int64_t to) {
    const Plan *plan = span->plan;
    if (plan->call->I == 0 || from == to) return;
    const int64_t t = m->first + (count_ticks(m, span->begin) + from) * m->P;
    Product drive = drive_of(plan, span->weights);
    drive.X = input_of(plan->call, span->chunk, t, 0);
    drive.xm = to - from > 1 ? m->P * plan->call->input_t : 0; /* a longer period and its stride may overflow */
    drive.C = plan->memory + m->drives, drive.lc = m->ld;
    multiply_columns(to - from, plan->gates * (m->start / LANES * LANES), m->ld, &drive);
}

/* Multiplies what module m says to the faster ones after its ticks `from` to `to`. */
INLINE void multiply_messages(const Span *span, const Module *m, int64_t from, int64_t to) {
    const Plan *plan = span->plan;
    Product message = message_of(plan, span->weights, plan->memory, m - plan->module);
    message.X = plan->memory + m->spoken + from * m->K, message.xm = m->K;
    message.C = plan->memory + m->sent + from * m->reach, message.lc = m->reach;
    message.init = NULL;
    if (heard_after(span, m, 0) != NULL) {
        for (int64_t n = from; n < to; n++) copy(message.C + (n - from) * m->reach, heard_after(span, m, n), m->reach);
        message.init = message.C, message.li = message.lc;
    }
    multiply_columns(to - from, 0, m->reach, &message);
}

/* The memory of module m in the pass. */
INLINE Row row_of(const Span *span, const Module *m, const int cell) {
    real *memory = span->plan->memory;
    Row row = first_row_of(span->plan, span->weights, memory, cell);
    row.h = memory + m->h, row.c = memory + m->c, row.gate = memory + m->gate;
    return row;
}

/* Runs one module through one part of the span. */
INLINE void run_part(const Span *span, const Module *m, int64_t part, const int cell) {
    const Plan *plan = span->plan;
    const int64_t steps = steps_of_part(plan), own = plan->gates * (m->start / LANES * LANES);
    const int64_t begin = span->begin + part * steps, end = smaller(span->end, begin + steps);
    const int64_t from = ticks_until(span, m, begin), to = ticks_until(span, m, end), starts = begin == 0;
    Cursor *cursors = plan->cursors, *cursor = &cursors[m - plan->module];
    Row row = row_of(span, m, cell);
    Product message = message_of(plan, span->weights, plan->memory, m - plan->module);
    message.X = row.h + m->start;
    multiply_inputs(span, m, from, to);
    for (int64_t n = starts ? 0 : from + 1; n <= to; n++) {
        if (n > 0) {
            cursor->number++;
            if (plan->call->I > 0) row.drive = plan->memory + m->drives + (n - 1 - from) * m->ld;
            compute_tick(plan, plan->memory, span->chunk, cursors, m, m, 0, &row, 1, cell);
            if (!m->whole) keep_tick(plan, m, span->chunk, cursor->number, 0, &row, cell);
        }
        message.init = heard_after(span, m, n);
        multiply_columns(1, own, m->ld, &message);
        copy(plan->memory + m->spoken + n * m->K, row.h + m->start, m->K);
    }
    if (m->reach > 0) multiply_messages(span, m, starts ? 0 : from + 1, to + 1);
}

/* Runs one module through the part that it is in. */
static void run_module(void *context, int64_t task, int64_t worker) {
    const Span *span = context;
    const int64_t i = span->fastest + task, part = span->front - (span->plan->call->G - 1 - i);
    const Module *m = &span->plan->module[i];
    (void)worker;
    switch (span->plan->call->cell) {
        case TANH: run_part(span, m, part, TANH); break;
        case RELU: run_part(span, m, part, RELU); break;
        case LSTM: run_part(span, m, part, LSTM); break;
        default: run_part(span, m, part, GRU); break;
    }
}

/* Writes the states of one part to the output. */
static void write_part(void *context, int64_t task, int64_t worker) {
    const Span *span = context;
    const Plan *plan = span->plan;
    const int64_t steps = steps_of_part(plan), begin = span->begin + task * steps, end = smaller(span->end, begin + steps);
    (void)worker;
    for (const Module *m = plan->module; m < &plan->module[plan->call->G]; m++)
        for (int64_t t = begin; t < end; t++) {
            const real *state = plan->memory + m->spoken + ticks_until(span, m, t + 1) * m->K;
            copy((real *)plan->call->held + t * plan->N + m->start, state, m->K);
        }
}

/* The whole pass. */
static void forward_single(void *context, int64_t task, int64_t worker) {
    const Plan *plan = context;
    const Call *c = plan->call;
    const Chunk chunk = make_chunk(plan, 0, task);
    const int64_t G = c->G, steps = steps_of_part(plan), cell = c->cell;
    Span span = {.plan = plan, .weights = packed_weights(plan, 0, worker), .chunk = &chunk};
    const Row row = first_row_of(plan, span.weights, plan->memory, (int)cell);
    begin_row(plan, &chunk, 0, &row, (int)cell);
    for (int64_t i = 0; i < G; i++) {
        plan->cursors[i].number = 0;
        copy(plan->memory + plan->module[i].h, row.h, plan->N);
        if (cell == LSTM) copy(plan->memory + plan->module[i].c, row.c, plan->N);
    }
    for (; span.begin < c->T; span.begin = span.end) {
        span.end = smaller(c->T, span.begin + times(PARTS, steps));
        const int64_t parts = (span.end - span.begin + steps - 1) / steps;
        for (span.front = 0; span.front < parts + G - 1; span.front++) {
            span.fastest = larger(0, G - 1 - span.front);
            const int64_t modules = smaller(G, G + parts - 1 - span.front) - span.fastest; /* the others have left the span */
            cwrnn_parallel(run_module, &span, modules, c->threads);
        }
        if (c->held != NULL) {
            const int64_t numbers = (span.end - span.begin) * plan->N;
            cwrnn_parallel(write_part, &span, parts, workers_for_moving(plan, numbers / 8, parts));
        }
        for (int64_t i = 0; i < G; i++) {
            const Module *m = &plan->module[i];
            const int64_t last = ticks_until(&span, m, span.end);
            copy(plan->memory + m->spoken, plan->memory + m->spoken + last * m->K, m->K);
            copy(plan->memory + m->sent, plan->memory + m->sent + last * m->reach, m->reach);
        }
    }
    for (int64_t i = 0; i < G; i++) {
        const Module *m = &plan->module[i];
        copy(row.h + m->start, plan->memory + m->h + m->start, m->K);
        if (cell == LSTM) copy(row.c + m->start, plan->memory + m->c + m->start, m->K);
    }
    end_row(plan, &chunk, 0, &row, (int)cell);
}

EXPORT int NAME(forward)(const Call *call) {
    if (call->S == 0 || call->B == 0) return FINE; /* nothing to read or write, however many steps there are */
    Plan *plan = make_plan(call, pack_forward, 0);
    if (plan == NULL) return OUT_OF_MEMORY;
    pack_shared(plan);
    run_tasks(plan, plan->single ? forward_single : forward_chunk, plan->tasks, plan->workers);
    free_plan(plan);
    return FINE;
}
