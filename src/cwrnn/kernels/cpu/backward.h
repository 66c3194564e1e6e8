/* Backward: the pass in reverse, and the sums of the weights' gradients. Part of cpu.c, which describes the computation. */

/* Packs the weights of the units of all modules up to `last` by rows of `columns` numbers, which are lf apart in `from`: for
 * each module the rows of its first gate, then those of the second. Each row is filled up to ld with zeros. */
static void pack_rows(const Plan *plan, real *to, int64_t ld, const real *from, int64_t lf, const Module *last, int64_t columns) {
    for (const Module *m = plan->module; m <= last; m++)
        for (int64_t gate = 0; gate < plan->gates; gate++)
            for (int64_t k = 0; k < m->K; k++, to += ld) {
                copy(to, from + (gate * plan->N + m->start + k) * lf, columns);
                clear(to + columns, ld - columns);
            }
}

static void pack_backward(const Plan *plan, real *weights, int64_t s, int64_t part) {
    const Call *c = plan->call;
    if (part < c->G) {
        const Module *m = &plan->module[part];
        const real *weight_hh = (const real *)c->weight_hh + s * c->weight_hh_s + m->start;
        pack_rows(plan, weights + m->weights, m->kp, weight_hh, plan->N, m, m->K);
        return;
    }
    const real *weight_ih = (const real *)c->weight_ih + s * c->weight_ih_s;
    if (c->g_input != NULL)
        pack_rows(plan, weights + plan->weight_ih, plan->ip, weight_ih, c->I, &plan->module[c->G - 1], c->I);
    pack_peepholes(plan, weights, s);
}

/* What the functions below share about the pass of one chunk. */
typedef struct {
    const Plan *plan;
    const Chunk *chunk;
    const real *packed;
    real *memory, *sums;
    int weights, inputs; /* whether the gradients of weight_hh are wanted, and those of weight_ih or the bias */
    Cursor *cursors;
} ReversePass;

/* Where the gradient of a message of module m is collected, for one pair and one row. */
INLINE real *g_message(const ReversePass *r, const Module *m, int64_t slot, int64_t row) {
    return r->memory + m->message + (slot * r->chunk->rows + row) * m->ld;
}

/* A product of `rows` rows, some vectors of which one task computes. */
typedef struct {
    const Product *product;
    int64_t rows, vectors;
} PairProduct;

enum { TASK_VECTORS = 12 };

static void multiply_some_pairs(void *context, int64_t task, int64_t worker) {
    const PairProduct *pairs = context;
    const int64_t from = task * TASK_VECTORS;
    (void)worker;
    multiply(pairs->rows, from * LANES, smaller(TASK_VECTORS, pairs->vectors - from), pairs->product);
}

/* Multiplies the first `pairs` kept pairs of module i, and adds the products to the weights' gradients. If the whole pass is
 * one task, all threads work on the largest of these products. */
static void multiply_pairs(const ReversePass *r, int64_t i, int64_t pairs) {
    const Module *m = &r->plan->module[i];
    const int64_t depth = pairs * r->chunk->rows, I = r->plan->call->I, begun = r->cursors[i].begun;
    r->cursors[i].begun = 1;
    if (r->weights) {
        real *to = r->sums + m->g_weights;
        Product product = {
            .X = r->memory + m->states, .xm = 1, .xj = m->K,
            .Y = g_message(r, m, 0, 0), .ly = m->ld,
            .init = begun ? to : NULL, .li = m->ld, .C = to, .lc = m->ld,
            .depth = depth,
        };
        const int64_t vectors = m->ld / LANES, tasks = (vectors + TASK_VECTORS - 1) / TASK_VECTORS;
        const double work = (double)depth * (double)m->K * (double)m->ld;
        const int64_t workers = r->plan->tasks == 1 ? workers_for(work, tasks, r->plan->call->threads) : 1;
        PairProduct all = {&product, m->K, vectors};
        if (workers > 1)
            cwrnn_parallel(multiply_some_pairs, &all, tasks, workers);
        else
            multiply(m->K, 0, vectors, &product);
    }
    if (r->inputs) {
        real *to = r->sums + m->g_inputs;
        Product product = {
            .X = r->memory + m->inputs, .xm = 1, .xj = I + 1,
            .Y = g_message(r, m, 0, 0) + m->begin, .ly = m->ld,
            .init = begun ? to : NULL, .li = m->common, .C = to, .lc = m->common,
            .depth = depth,
        };
        multiply(I + 1, 0, m->common / LANES, &product);
        if (r->plan->call->cell == GRU) {
            product.Y = r->memory + m->news, product.ly = m->kp;
            product.C = r->sums + m->g_news, product.lc = product.li = m->kp;
            product.init = begun ? product.C : NULL;
            multiply(I + 1, 0, m->kp / LANES, &product);
        }
    }
}

/* The message that a module sends at a tick (tick 0 is the initial state), in sequences of one length. Not every module
 * hears the last message of a sequence, and if periods are not nested, not every module hears the first one. Unheard units
 * have no part in any product: their gradient is zero, and zero times an infinite state or weight would be NaN. */
typedef struct {
    int64_t number, after, until; /* number of the tick; the message is heard at the steps after `after`, up to `until` */
} Message;

static Message message_at(const Module *m, int64_t number, int64_t length) {
    const int64_t next = m->first + number * m->P;
    return (Message){number, number > 0 ? next - m->P : -1, smaller(next, length - 1)};
}

/* True if module m, which is as fast as the sender or faster, ticks while the message is held. */
static int hears(const Plan *plan, const Module *m, const Message *message) {
    /* with nested periods, all faster modules tick together with the sender */
    if (plan->nested) return message->until >= (message->number > 0 ? message->after + m->P : m->first);
    return count_ticks(m, message->until + 1) > count_ticks(m, message->after + 1);
}

/* Finds the next neighbours among the modules up to `last` that hear the message: *from is moved to the first, and the
 * module after them is returned; *from itself if there are none. */
static const Module *next_hearers(const Plan *plan, const Module **from, const Module *last, const Message *message) {
    while (*from <= last && !hears(plan, *from, message)) ++*from;
    const Module *to = *from;
    while (to <= last && hears(plan, to, message)) to++;
    return to;
}

/* Multiplies the gradients of a message by the weights, for all rows, each by those of the units that hear the message.
 * The first `heard` rows are those in which all units do. `product` is that of row 0 and all units. */
RARE static void multiply_heard(const ReversePass *r, int64_t i, int64_t heard, int64_t active, Product product) {
    const Plan *plan = r->plan;
    const Module *m = &plan->module[i];
    const Product whole = product;
    if (heard > 0) multiply(heard, 0, m->kp / LANES, &product);
    for (int64_t row = heard, end; row < active; row = end) {
        for (end = row + 1; end < active && r->chunk->length[end] == r->chunk->length[row]; end++) {}
        const Message message = message_at(m, r->cursors[i].number, r->chunk->length[row]);
        product = whole;
        product.init += row * product.li, product.C += row * product.lc, product.depth = 0;
        for (const Module *from = plan->module, *to; from <= m; from = to) {
            to = next_hearers(plan, &from, m, &message);
            if (to > from) {
                product.X = whole.X + row * whole.xm + from->begin;
                product.Y = whole.Y + from->begin * whole.ly;
                product.depth = to[-1].stop - from->begin;
            } else if (product.init == product.C) {
                break;
            }
            /* if no unit hears it, the gradient is that from outside */
            multiply(end - row, 0, m->kp / LANES, &product);
            product.init = product.C, product.li = product.lc;
        }
    }
}

static int all_finite(const real *values, int64_t n) {
    vec rest = {0};
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES) rest += load(values + k) * 0;
    if (k < n) rest += load_some(values + k, n - k) * 0;
    for (int i = 0; i < LANES; i++)
        if (rest[i] != 0) return 0; /* zero times infinity or NaN is NaN */
    return 1;
}

/* Adds the product of one pair to the weights' gradients, for the units that hear the message only, and takes the pair out
 * of those that are kept. */
static void multiply_pair(const ReversePass *r, int64_t i, int64_t row, const Message *message) {
    const Plan *plan = r->plan;
    const Module *m = &plan->module[i];
    const int64_t I = plan->call->I, at = r->cursors[i].slot * r->chunk->rows + row;
    real *g = g_message(r, m, 0, at), *state = r->memory + m->states + at * m->K, *sums = r->sums + m->g_weights;
    real *input = r->memory + m->inputs + at * (I + 1), *input_sums = r->sums + m->g_inputs;
    const int64_t common = common_of(plan->call->cell), gru = plan->call->cell == GRU;
    real *news = r->memory + m->news + at * m->kp, *new_sums = r->sums + m->g_news;
    int64_t *begun = &r->cursors[i].begun;
    if (!*begun) {
        clear(sums, m->K * m->ld);
        if (r->inputs) clear(input_sums, (I + 1) * m->common);
        if (r->inputs && gru) clear(new_sums, (I + 1) * m->kp);
        *begun = 1;
    }
    for (const Module *from = plan->module, *to; from <= m; from = to) {
        to = next_hearers(plan, &from, m, message);
        for (int64_t k = 0; k < m->K && to > from; k++)
            for (int64_t u = from->begin; u < to[-1].stop; u++) sums[k * m->ld + u] += state[k] * g[u];
    }
    for (int64_t k = 0; r->inputs && k <= I && hears(plan, m, message); k++) {
        for (int64_t u = 0; u < common * m->K; u++) input_sums[k * m->common + u] += input[k] * g[m->begin + u];
        for (int64_t u = 0; gru && u < m->K; u++) new_sums[k * m->kp + u] += input[k] * news[u];
    }
    clear(g, m->ld);
    clear(state, m->K);
    if (r->inputs) clear(input, I + 1);
    if (r->inputs && gru) clear(news, m->kp);
}

/* Multiplies the pairs that a module has just completed at once, in the rows from `heard` on whose state is not finite. */
RARE static void separate_pairs(const ReversePass *r, int64_t i, int64_t heard, int64_t active) {
    const Module *m = &r->plan->module[i];
    for (int64_t row = heard; row < active; row++) {
        if (all_finite(r->memory + m->states + (r->cursors[i].slot * r->chunk->rows + row) * m->K, m->K)) continue;
        const Message message = message_at(m, r->cursors[i].number, r->chunk->length[row]);
        multiply_pair(r, i, row, &message);
    }
}

/* Computes the gradient of the state of module i at a tick (tick 0 is the initial state), from outside and from all
 * modules that heard it, and writes it to g. The gradient of the message is added to that of the next slower module, and
 * makes a pair with the state. */
static void collect_gradient(const ReversePass *r, int64_t i, int64_t active) {
    const Plan *plan = r->plan;
    const Call *c = plan->call;
    const Module *m = &plan->module[i];
    const int64_t slot = r->cursors[i].slot, number = r->cursors[i].number, *length = r->chunk->length;
    real *carried = r->memory + plan->carried + m->start, *g = r->memory + plan->g;
    if (c->g_ticks != NULL)
        for (int64_t row = 0; row < active; row++)
            add(carried + row * plan->ldn, (const real *)c->g_ticks + row_place(plan, m, r->chunk, number, row), m->K);
    /* the sequences in which all faster modules heard the message */
    int64_t heard = number > 0 || plan->nested ? active : 0;
    while (heard > 0 && length[heard - 1] <= m->first + number * m->P) heard--;
    Product product = {
        .X = g_message(r, m, slot, 0), .xm = m->ld, .xj = 1,
        .Y = r->packed + m->weights, .ly = m->kp,
        .init = carried, .li = plan->ldn, .C = g, .lc = m->kp,
        .depth = m->stop,
    };
    if (number > 0 || c->g_h0 != NULL) {
        if (heard == active)
            multiply(active, 0, m->kp / LANES, &product);
        else
            multiply_heard(r, i, heard, active, product);
    }
    const int64_t K = m->K, ld = m->ld, ldn = plan->ldn, *b = r->chunk->b;
    for (int64_t row = 0; !plan->nested && row < active; row++) clear(carried + row * ldn, K);
    if (plan->nested && i + 1 < c->G) {
        /* the lanes beyond its end are zero */
        const real *from = g_message(r, m, slot, 0);
        real *to = g_message(r, &m[1], r->cursors[i + 1].slot, 0);
        const int64_t next = m[1].ld;
        for (int64_t row = 0; row < active; row++) add(to + row * next, from + row * ld, ld);
    }
    if (r->weights) {
        const real *from = (const real *)c->ticks + tick_place(plan, m, r->chunk->s, number);
        real *to = r->memory + m->states + slot * r->chunk->rows * K;
        for (int64_t row = 0; row < active; row++) copy(to + row * K, from + b[row] * K, K);
        if (heard < active) separate_pairs(r, i, heard, active);
    }
}

/* Computes the gradients a' of a tick of module i in one row, from the gradient g of its new state, for LSTM and GRU.
 * Writes them to `change`; those of the messages to `to`, or if that is NULL, where the two differ, to inner_change. */
INLINE void differentiate_row(const ReversePass *r, int64_t i, int64_t row, const real *g, real *to, const int cell) {
    const Plan *plan = r->plan;
    const Call *c = plan->call;
    const Module *m = &plan->module[i];
    const int64_t K = m->K, ldn = plan->ldn, number = r->cursors[i].number, common = common_of(cell);
    const real *ticks = c->ticks, *kept = (const real *)c->kept + kept_place(plan, m, r->chunk, number, row);
    const real *value = ticks + row_place(plan, m, r->chunk, number, row);
    const real *value_before = ticks + row_place(plan, m, r->chunk, number - 1, row);
    const real *c_before = (const real *)c->kept + kept_place(plan, m, r->chunk, number - 1, row) + CELL * K;
    const real *peepholes = c->weight_ch != NULL ? r->packed + plan->peepholes + m->start : NULL;
    real *change = r->memory + plan->h + row * plan->gates * ldn + m->begin, *dc = r->memory + plan->c + row * ldn + m->start;
    real *inner = r->memory + plan->inner_change + row * ldn + m->start;
    real *news = r->memory + m->news + (r->cursors[i].slot * r->chunk->rows + row) * m->kp;
    for (int64_t k = 0; k < K; k += LANES) {
        const int64_t n = K - k;
        vec gate[SUMS], da[SUMS];
        UNROLL for (int p = 0; p < SUMS; p++) gate[p] = load(kept + p * K + k);
        const vec dh = load(g + k);
        if (cell == LSTM) {
            const vec before = load(c_before + k);
            vec d = load(dc + k), peephole[3];
            UNROLL for (int p = 0; p < 3; p++) peephole[p] = peepholes != NULL ? load(peepholes + p * ldn + k) : (vec){0};
            differentiate_lstm(da, dh, &d, load_at_most(value + k, n), gate, before, peepholes != NULL ? peephole : NULL);
            store_at_most(dc + k, d, n);
            if (c->g_weight_ch != NULL) {
                real *sums = r->sums + m->g_peepholes + k;
                store(sums, load(sums) + da[0] * before);
                store(sums + m->kp, load(sums + m->kp) + da[1] * before);
                store(sums + 2 * m->kp, load(sums + 2 * m->kp) + da[3] * load(kept + CELL * K + k));
            }
        } else {
            const vec rest = differentiate_gru(da, dh, load_at_most(value_before + k, n), gate);
            store_at_most(r->memory + plan->carried + row * ldn + m->start + k, rest, n);
            if (to == NULL) store_at_most(inner + k, da[3], n);
            if (r->inputs) store(news + k, da[2]);
            if (c->g_bias != NULL) {
                real *sums = r->sums + m->g_inner + k;
                store(sums, load(sums) + da[3]);
            }
        }
        UNROLL for (int p = 0; p < gates_of(cell); p++) {
            store_at_most(change + p * K + k, da[p], n);
            if (to != NULL) store_at_most(to + p * K + k, p < common ? da[p] : da[3], n);
        }
    }
}

/* Begins the next pair of module i, at its tick at t: the gradient of its message, which so far is its own a'. */
static void begin_pair(const ReversePass *r, int64_t i, int64_t t, int64_t active) {
    const Plan *plan = r->plan;
    const Call *c = plan->call;
    const Module *m = &plan->module[i];
    const int64_t rows = r->chunk->rows;
    if (++r->cursors[i].slot == m->depth) {
        multiply_pairs(r, i, m->depth);
        r->cursors[i].slot = 0;
    }
    const int64_t slot = r->cursors[i].slot;
    const int64_t K = m->K, kp = m->kp, ld = m->ld, ldn = plan->ldn, start = m->start, nested = plan->nested;
    const int64_t cell = c->cell, whole = K / LANES * LANES, *b = r->chunk->b;
    const real *values = (const real *)c->ticks + tick_place(plan, m, r->chunk->s, r->cursors[i].number);
    const real *g = r->memory + plan->g;
    real *change = r->memory + plan->h + start, *to = g_message(r, m, slot, 0);
    for (int64_t row = 0; is_gated(cell) && row < active; row++, g += kp, to += ld) {
        clear(to, nested ? m->begin : m->stop);
        if (cell == LSTM)
            differentiate_row(r, i, row, g, nested ? to + m->begin : NULL, LSTM);
        else
            differentiate_row(r, i, row, g, nested ? to + m->begin : NULL, GRU);
    }
    for (int64_t row = 0; !is_gated(cell) && row < active; row++, g += kp, change += ldn, to += ld) {
        const real *value = values + b[row] * K;
        clear(to, nested ? start : m->end);
        for (int64_t k = 0; k < whole; k += LANES) {
            const vec a = activation_gradient(load(g + k), load(value + k), cell);
            store(change + k, a);
            if (nested) store(to + start + k, a);
        }
        if (whole == K) continue;
        /* stored as a whole vector, because it is read as one; the lanes beyond its end are not yet in use */
        const vec a = keep(activation_gradient(load(g + whole), load_some(value + whole, K - whole), cell), K - whole);
        store_some(change + whole, a, K - whole);
        if (nested) store(to + start + whole, a);
    }
    if (r->inputs) {
        const int64_t I = c->I;
        real *x = r->memory + m->inputs + slot * rows * (I + 1);
        for (int64_t row = 0; row < active; row++, x += I + 1) {
            if (I > 0) copy(x, input_of(c, r->chunk, t, row), I);
            x[I] = 1;
        }
    }
    /* sequences that end before t have no gradient yet */
    for (int64_t row = active; row < rows; row++) clear(g_message(r, m, slot, row), m->stop);
}

/* Adds the gradient of n units at one step to the carried one, whose first `taken` units have been used up. */
INLINE void carry(real *carried, int64_t taken, const real *from, int64_t n) {
    for (int64_t k = 0; k < n; k += LANES) {
        vec rest = load(carried + k);
        if (k < taken) rest = drop(rest, taken - k);
        store(carried + k, rest + (n - k >= LANES ? load(from + k) : load_some(from + k, n - k)));
    }
}

/* Prefetches the operands of the step before t, and of the ticks before those at t. The processor does not prefetch them
 * itself, because the pass goes down in memory, but up within every row.
 * Inline, because a compiler removes the call of a function that only prefetches. */
INLINE void fetch_before(const ReversePass *r, int64_t t, int64_t dues) {
    const Plan *plan = r->plan;
    const Call *c = plan->call;
    const int64_t *b = r->chunk->b;
    for (int64_t row = 0; row < r->chunk->rows; row++) {
        if (c->g_held != NULL && t > 0)
            fetch((const real *)c->g_held + r->chunk->s * c->g_held_s + (t - 1) * c->g_held_t + b[row] * c->g_held_b, plan->N);
        if (r->inputs && t > 0) fetch(input_of(c, r->chunk, t - 1, row), c->I);
        for (int64_t d = 0; d < dues; d++) {
            const Module *m = &plan->module[r->cursors[d].due];
            const int64_t at = row_place(plan, m, r->chunk, r->cursors[r->cursors[d].due].number - 1, row);
            fetch((const real *)c->ticks + at, m->K);
            const int64_t kept_at = at * plan->kept + r->chunk->s * KEPT_ROOM;
            if (plan->kept > 0) fetch((const real *)c->kept + kept_at, m->K * plan->kept);
            if (c->g_ticks != NULL) fetch((const real *)c->g_ticks + at, m->K);
        }
    }
}

/* The whole pass of one chunk. */
static void backward_chunk(const Plan *plan, const real *weights, real *memory, Cursor *cursors, real *sums,
                           const Chunk *chunk) {
    const Call *c = plan->call;
    const int64_t G = c->G, I = c->I, N = plan->N, ldn = plan->ldn, rows = chunk->rows;
    const int64_t gates = plan->gates, parts = plan->parts, wide = gates * ldn;
    real *carried = memory + plan->carried, *change = memory + plan->h, *dx = memory + plan->x;
    int64_t active = 0;
    /* with nested periods: how many units' carried gradient was used up at the last tick, and in how many rows */
    int64_t taken = 0, taken_rows = 0;
    const ReversePass r = {
        .plan = plan, .chunk = chunk, .packed = weights, .memory = memory, .sums = sums,
        .weights = c->g_weight_hh != NULL, .inputs = c->g_weight_ih != NULL || c->g_bias != NULL,
        .cursors = cursors,
    };

    for (int64_t row = 0; row < rows; row++) {
        const real *g_final = (const real *)c->g_final + (chunk->s * c->B + chunk->b[row]) * parts * N;
        for (int64_t part = 0; part < parts; part++) {
            real *to = memory + (part == 0 ? plan->carried : plan->c) + row * ldn;
            if (c->g_final != NULL)
                copy(to, g_final + part * N, N);
            else
                clear(to, N);
        }
    }
    for (int64_t i = 0; i < G; i++) {
        const Module *m = &plan->module[i];
        cursors[i].number = rows > 0 ? count_ticks(m, chunk->length[0]) : 0;
        cursors[i].tick = m->first + (cursors[i].number - 1) * m->P;
        cursors[i].slot = 0;
        /* the first pair begins at the end, where no module ticks; if lengths differ, every pair may have empty rows */
        const int64_t pairs = plan->order != NULL ? m->depth : 1;
        /* the lanes beyond the last unit are added up, although they are never written */
        clear(g_message(&r, m, 0, 0), (m->stop < m->ld ? m->depth : pairs) * rows * m->ld);
        if (r.weights) clear(memory + m->states, pairs * rows * m->K);
        if (r.inputs) clear(memory + m->inputs, pairs * rows * (I + 1));
        if (r.inputs && c->cell == GRU) clear(memory + m->news, pairs * rows * m->kp);
    }

    Product to_input = {
        .X = change, .xm = wide, .xj = 1, .Y = weights + plan->weight_ih, .ly = plan->ip, .C = dx, .lc = plan->ip, .li = plan->ip,
    };
    /* beyond the end of the longest sequence there is nothing to do except to clear g_input */
    const int64_t end = rows == 0 ? 0 : c->g_input != NULL ? c->T : chunk->length[0];
    for (int64_t t = end - 1; t >= 0; t--) {
        while (active < rows && chunk->length[active] > t) active++;
        int64_t dues = 0;
        if (active > 0) {
            for (int64_t i = 0; i < G; i++) {
                if (cursors[i].tick == t)
                    cursors[dues++].due = i;
                else if (plan->nested)
                    break;
            }
        }
        if (c->g_held != NULL) {
            const real *from = (const real *)c->g_held + chunk->s * c->g_held_s + t * c->g_held_t;
            for (int64_t row = 0; row < active; row++)
                carry(carried + row * ldn, row < taken_rows ? taken : 0, from + chunk->b[row] * c->g_held_b, N);
        } else if (taken > 0) {
            for (int64_t row = 0; row < taken_rows; row++) clear(carried + row * ldn, taken);
        }
        if (plan->far) fetch_before(&r, t, dues);
        /* a tick of a GRU leaves a part of the gradient to the state before */
        taken = plan->nested && dues > 0 && c->cell != GRU ? plan->module[cursors[dues - 1].due].end : 0;
        taken_rows = active;
        for (int64_t d = 0; d < dues; d++) {
            const int64_t i = cursors[d].due;
            collect_gradient(&r, i, active);
            begin_pair(&r, i, t, active);
            cursors[i].tick -= plan->module[i].P;
            cursors[i].number--;
        }
        if (!plan->nested) {
            for (int64_t d = 0; d < dues; d++) {
                const Module *m = &plan->module[cursors[d].due];
                const int64_t common = common_of(c->cell) * m->K;
                for (int64_t j = cursors[d].due; j < G; j++)
                    for (int64_t row = 0; row < active; row++) {
                        real *to = g_message(&r, &plan->module[j], cursors[j].slot, row) + m->begin;
                        add(to, change + row * wide + m->begin, common);
                        if (c->cell == GRU) add(to + common, memory + plan->inner_change + row * ldn + m->start, m->K);
                    }
            }
        }
        if (c->g_input == NULL || I == 0) continue;
        for (int64_t d = 0, e; d < dues; d = e) {
            for (e = d + 1; e < dues && cursors[e].due == cursors[e - 1].due + 1; e++) {}
            const int64_t begin = plan->module[cursors[d].due].begin;
            to_input.X = change + begin;
            to_input.Y = weights + plan->weight_ih + begin * plan->ip;
            to_input.init = d > 0 ? dx : NULL;
            to_input.depth = plan->module[cursors[e - 1].due].stop - begin;
            multiply(active, 0, plan->ip / LANES, &to_input);
        }
        for (int64_t row = 0; row < rows; row++) {
            real *to = (real *)c->g_input + ((chunk->s * c->T + t) * c->B + chunk->b[row]) * I;
            if (dues > 0 && row < active)
                copy(to, dx + row * plan->ip, I);
            else
                clear(to, I);
        }
    }

    for (int64_t row = 0; row < taken_rows; row++) clear(carried + row * ldn, taken);
    for (int64_t i = 0; i < G; i++) {
        const Module *m = &plan->module[i];
        collect_gradient(&r, i, rows);
        if (c->g_h0 != NULL)
            for (int64_t row = 0; row < rows; row++) {
                real *to = (real *)c->g_h0 + (chunk->s * c->B + chunk->b[row]) * parts * N + m->start;
                copy(to, memory + plan->g + row * m->kp, m->K);
                if (parts == 2) copy(to + N, memory + plan->c + row * ldn + m->start, m->K);
            }
        multiply_pairs(&r, i, cursors[i].slot + 1);
    }
}

/* Adds to n sums of the first group those of all other groups. */
static void add_groups(const Plan *plan, real *sums, int64_t groups, int64_t at, int64_t n) {
    for (int64_t other = 1; other < groups; other++) add(sums + at, sums + other * plan->sums_size + at, n);
}

/* Writes the gradients of the weights of module m's messages to some units of a module, for one gate: those whose sums are
 * the n columns from `at` on. g is the first unit's row of g_weight_hh. */
static void write_messages(const Plan *plan, real *sums, int64_t groups, const Module *m, int64_t at, int64_t n, real *g) {
    for (int64_t k = 0; k < m->K; k++) add_groups(plan, sums, groups, m->g_weights + k * m->ld + at, n);
    transpose(g + m->start, plan->N, sums + m->g_weights + at, m->ld, m->K, n);
}

/* Writes the gradients of the weights of the inputs and of the biases for one gate of module m, its units `from` to `to`.
 * The sums of unit 0 begin at `at`, and their rows are ld apart. */
static void write_inputs(const Plan *plan, real *sums, int64_t groups, const Module *m, int64_t gate, int64_t at, int64_t ld,
                         int64_t s, int64_t from, int64_t to) {
    const Call *c = plan->call;
    const int64_t biases = plan->gates + (c->cell == GRU), I = c->I;
    for (int64_t k = 0; k <= I; k++) add_groups(plan, sums, groups, at + k * ld + from, to - from);
    for (int64_t u = from; u < to; u++) {
        const int64_t unit = gate * plan->N + m->start + u;
        real *g_weight_ih = (real *)c->g_weight_ih + (s * plan->gates * plan->N + unit) * I;
        for (int64_t k = 0; c->g_weight_ih != NULL && k < I; k++) g_weight_ih[k] = sums[at + k * ld + u];
        if (c->g_bias != NULL) ((real *)c->g_bias)[s * biases * plan->N + unit] = sums[at + I * ld + u];
    }
}

/* Writes the weights' gradients of replica s, units `from` to `to`, from the sums of all its groups. */
static void write_gradients(const Plan *plan, real *sums, int64_t groups, int64_t s, int64_t from, int64_t to) {
    const Call *c = plan->call;
    const int weights = c->g_weight_hh != NULL, inputs = c->g_weight_ih != NULL || c->g_bias != NULL;
    const int64_t N = plan->N, gates = plan->gates, common = common_of(c->cell);
    for (int64_t i = 0; i < c->G; i++) {
        const Module *m = &plan->module[i];
        for (int64_t gate = 0; weights && gate < gates; gate++) {
            real *g = (real *)c->g_weight_hh + (s * gates + gate) * N * N;
            if (gates == 1 && from < m->end) /* the units of all modules are neighbours */
                write_messages(plan, sums, groups, m, from, smaller(to, m->end) - from, g + from * N);
            for (const Module *hearer = plan->module; gates > 1 && hearer <= m; hearer++) {
                const int64_t first = larger(from, hearer->start), n = smaller(to, hearer->end) - first;
                const int64_t at = hearer->begin + gate * hearer->K + first - hearer->start;
                if (n > 0) write_messages(plan, sums, groups, m, at, n, g + first * N);
            }
            for (int64_t r = larger(from, m->end); r < to; r++) clear(g + r * N + m->start, m->K);
        }
        const int64_t first = larger(from, m->start) - m->start, last = smaller(to, m->end) - m->start;
        if (first >= last) continue;
        for (int64_t gate = 0; inputs && gate < common; gate++)
            write_inputs(plan, sums, groups, m, gate, m->g_inputs + gate * m->K, m->common, s, first, last);
        if (inputs && c->cell == GRU) {
            write_inputs(plan, sums, groups, m, common, m->g_news, m->kp, s, first, last);
            add_groups(plan, sums, groups, m->g_inner + first, last - first);
            if (c->g_bias != NULL)
                copy((real *)c->g_bias + (s * 4 + 3) * N + m->start + first, sums + m->g_inner + first, last - first);
        }
        for (int64_t k = 0; c->g_weight_ch != NULL && k < 3; k++) {
            const int64_t at = m->g_peepholes + k * m->kp + first;
            add_groups(plan, sums, groups, at, last - first);
            copy((real *)c->g_weight_ch + (s * 3 + k) * N + m->start + first, sums + at, last - first);
        }
    }
}

static void backward_group(void *context, int64_t task, int64_t worker) {
    const Plan *plan = context;
    const int64_t s = task / plan->groups, group = task % plan->groups;
    real *memory = plan->memory + worker * plan->memory_size;
    real *sums = plan->sums + (plan->groups > 1 ? task : worker) * plan->sums_size;
    Cursor *cursors = plan->cursors + worker * plan->call->G;
    for (int64_t i = 0; i < plan->call->G; i++) {
        const Module *m = &plan->module[i];
        cursors[i].begun = 0;
        /* these sums are added to at every tick */
        if (plan->call->cell == GRU) clear(sums + m->g_inner, m->kp);
        if (plan->call->g_weight_ch != NULL) clear(sums + m->g_peepholes, 3 * m->kp);
    }
    const real *weights = packed_weights(plan, s, worker);
    for (int64_t n = group * plan->chunks / plan->groups; n < (group + 1) * plan->chunks / plan->groups; n++) {
        const Chunk chunk = make_chunk(plan, s, n);
        backward_chunk(plan, weights, memory, cursors, sums, &chunk);
    }
    if (plan->groups == 1 && plan->tasks > 1) write_gradients(plan, sums, 1, s, 0, plan->N);
}

static void write_units(void *context, int64_t task, int64_t worker) {
    const Plan *plan = context;
    const int64_t parts = (plan->N + UNITS - 1) / UNITS, s = task / parts, from = task % parts * UNITS;
    real *sums = plan->sums + s * plan->groups * plan->sums_size;
    (void)worker;
    write_gradients(plan, sums, plan->groups, s, from, smaller(from + UNITS, plan->N));
}

EXPORT int NAME(backward)(const Call *call) {
    if (call->S == 0) return FINE; /* weights that no replica has are not in memory */
    Plan *plan = make_plan(call, pack_backward, 1);
    if (plan == NULL) return OUT_OF_MEMORY;
    pack_shared(plan);
    run_tasks(plan, backward_group, plan->tasks, plan->workers);
    /* all threads also write the sums of a single task */
    if (plan->groups > 1 || plan->tasks == 1) {
        const int64_t tasks = call->S * ((plan->N + UNITS - 1) / UNITS);
        run_tasks(plan, write_units, tasks, workers_for_moving(plan, plan->tasks * plan->sums_size, tasks));
    }
    free_plan(plan);
    return FINE;
}

