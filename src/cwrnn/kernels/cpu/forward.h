/* Forward: the pass over time, for some sequences of one replica. Part of cpu.c, which describes the computation. */

static void pack_forward(const Plan *plan, real *weights, int64_t s, int64_t part) {
    const Call *c = plan->call;
    if (part < c->G) {
        const Module *m = &plan->module[part];
        const real *weight_hh = (const real *)c->weight_hh + s * c->weight_hh_s;
        pack_columns(weights + m->weights, m->ld, plan->panel * LANES, weight_hh + m->start, plan->N, m->end, m->K);
        return;
    }
    const real *weight_ih = (const real *)c->weight_ih + s * c->weight_ih_s;
    const int64_t panel = plan->nested ? plan->panel * LANES : plan->ldn;
    pack_columns(weights + plan->weight_ih, plan->ldn, panel, weight_ih, c->I, plan->N, c->I);
    clear(weights + plan->bias, plan->ldn);
    if (c->bias != NULL) copy(weights + plan->bias, (const real *)c->bias + s * c->bias_s, plan->N);
}

/* The product that makes the message of module i from its state. */
static Product message_of(const Plan *plan, const real *weights, real *memory, int64_t i) {
    const Module *m = &plan->module[i];
    const int telescope = plan->nested && i + 1 < plan->call->G;
    return (Product){
        .X = memory + plan->h + m->start, .xm = plan->ldn, .xj = 1,
        .Y = weights + m->weights, .ly = m->ld, .panel = plan->panel,
        .init = telescope ? memory + m[1].message : NULL, .li = telescope ? m[1].ld : 0,
        .C = memory + m->message, .lc = m->ld,
        .depth = m->K,
    };
}

/* Computes the new states of modules m to last, neighbours that are all due, in one row. They are computed and stored as
 * whole vectors, even where modules share a vector: a processor forwards a store to a load only if the load reads no more
 * than that one store wrote. The states of modules that share no vector are also written to the ticks here. */
INLINE void compute_tick(const Plan *plan, const real *memory, const Chunk *chunk, const Cursor *cursors, const Module *m,
                 const Module *last, int64_t row, const real *drive, real *h, const int nested, const int rectify) {
    const Module *slowest = &plan->module[plan->call->G - 1];
    const int keep_ticks = plan->call->ticks != NULL;
    const int64_t start = m->start, end = last->end;
    int64_t v = start / LANES * LANES;
    for (; m <= last; m++) {
        /* the vectors that contain no other module */
        const real *heard = memory + m->message + row * m->ld;
        const int64_t number = keep_ticks ? cursors[m - plan->module].number : 0;
        real *value = keep_ticks ? (real *)plan->call->ticks + row_place(plan, m, chunk, number, row) : NULL;
        for (; v + LANES <= m->end && v >= m->start; v += LANES) {
            vec a = load(drive + v) + load(heard + v);
            for (const Module *j = m + 1; !nested && j <= slowest; j++) a += load(memory + j->message + row * j->ld + v);
            a = activate(a, rectify);
            store(h + v, a);
            if (m->whole && keep_ticks) store(value + v - m->start, a);
        }
        if (v >= m->end) continue;
        /* a vector that it shares */
        vec a = load(drive + v);
        for (;; m++) {
            vec sum = load(memory + m->message + row * m->ld + v);
            for (const Module *j = m + 1; !nested && j <= slowest; j++) sum += load(memory + j->message + row * j->ld + v);
            if (m->start > v) sum = (vec)((mask)sum & m->head);
            if (m->end < v + LANES) sum = (vec)((mask)sum & m->tail);
            a += sum;
            if (m == last || m->end >= v + LANES) break;
        }
        a = activate(a, rectify);
        if (v < start) a = choose(~first_lanes(start - v), a, load(h + v));
        if (end < v + LANES) a = choose(last->tail, a, load(h + v));
        store(h + v, a);
        v += LANES;
        if (m->end > v) m--; /* the last module that shares it has further vectors */
    }
}

/* The whole pass of one chunk. `one`, `nested` and `rectify` are constants to the compiler: `one` is the case of a single
 * row, in which every instruction counts. */
INLINE void forward_rows(const Plan *plan, const real *weights, real *memory, Cursor *cursors, const Chunk chunk,
                         const int one, const int nested, const int rectify) {
    const Call *c = plan->call;
    const int64_t G = c->G, I = c->I, N = plan->N, ldn = plan->ldn;
    real *h = memory + plan->h, *ticks = c->ticks;
    for (int64_t row = 0; row < chunk.rows; row++) {
        if (c->h0 != NULL)
            copy(h + row * ldn, (const real *)c->h0 + chunk.s * c->h0_s + chunk.b[row] * c->h0_b, N);
        else
            clear(h + row * ldn, N);
        for (int64_t i = 0; ticks != NULL && i < G; i++) {
            const Module *m = &plan->module[i];
            copy(ticks + row_place(plan, m, &chunk, 0, row), h + row * ldn + m->start, m->K);
        }
    }
    /* the initial state also sends messages */
    for (int64_t i = G - 1; i >= 0; i--) {
        cursors[i].message = message_of(plan, weights, memory, i);
        multiply(chunk.rows, 0, plan->module[i].ld / LANES, &cursors[i].message);
    }

    /* without inputs the drive is the bias alone */
    const real *driven = I > 0 ? memory + plan->drive : weights + plan->bias;
    const int64_t driven_row = I > 0 ? ldn : 0;
    Product drive = {
        .xj = 1,
        /* with nested periods the modules that are due begin with the first one */
        .Y = weights + plan->weight_ih, .ly = ldn, .panel = nested ? plan->panel : 0,
        .init = weights + plan->bias, .li = 0,
        .C = memory + plan->drive, .lc = ldn,
        .depth = I,
    };
    int64_t active = chunk.rows;
    for (int64_t i = 0; i < G; i++) cursors[i].tick = plan->module[i].first, cursors[i].number = 0;
    for (int64_t t = 0; t < c->T; t++) {
        while (!one && active > 0 && chunk.length[active - 1] <= t) active--;
        if (!one && active == 0 && c->held == NULL) break;
        if (one) active = 1;
        int64_t dues = 0;
        for (int64_t i = 0; i < G; i++) {
            if (cursors[i].tick == t) {
                cursors[dues++].due = i;
                cursors[i].tick += plan->module[i].P;
                cursors[i].number++;
            } else if (nested) {
                break; /* then no slower module is due */
            }
        }
        if (I > 0 && dues > 0 && active > 0) {
            drive.X = input_of(c, &chunk, t, 0);
            drive.xm = c->input_b;
            if (!one && plan->order != NULL) {
                real *gathered = memory + plan->x;
                for (int64_t row = 0; row < active; row++) copy(gathered + row * I, input_of(c, &chunk, t, row), I);
                drive.X = gathered, drive.xm = I;
            }
        }
        for (int64_t d = 0, e; d < dues; d = e) {
            /* due modules d to e - 1 are neighbours */
            for (e = d + 1; e < dues && cursors[e].due == cursors[e - 1].due + 1; e++) {}
            const Module *from = &plan->module[cursors[d].due], *to = &plan->module[cursors[e - 1].due];
            const int64_t start = from->start / LANES * LANES;
            if (I > 0) multiply(active, start, round_up(to->end - start) / LANES, &drive);
            for (int64_t row = 0; row < active; row++)
                compute_tick(plan, memory, &chunk, cursors, from, to, row, driven + row * driven_row, h + row * ldn,
                             nested, rectify);
        }
        for (int64_t d = dues - 1; d >= 0; d--)
            multiply(active, 0, plan->module[cursors[d].due].ld / LANES, &cursors[cursors[d].due].message);
        for (int64_t d = 0; ticks != NULL && d < dues; d++) {
            const Module *m = &plan->module[cursors[d].due];
            const int64_t K = m->K;
            real *to = ticks + tick_place(plan, m, chunk.s, cursors[cursors[d].due].number), *from = h + m->start;
            for (int64_t row = 0; !m->whole && row < active; row++) copy(to + chunk.b[row] * K, from + row * ldn, K);
        }
        if (c->held != NULL) {
            real *held = (real *)c->held + (chunk.s * c->T + t) * c->B * N;
            for (int64_t row = 0; row < active; row++) {
                if (plan->streams)
                    stream(held + chunk.b[row] * N, h + row * ldn, N);
                else
                    copy(held + chunk.b[row] * N, h + row * ldn, N);
            }
            for (int64_t row = active; !one && row < chunk.rows; row++) clear(held + chunk.b[row] * N, N);
        }
    }

    if (plan->streams) finish_streams();
    for (int64_t row = 0; row < chunk.rows; row++) {
        copy((real *)c->final + (chunk.s * c->B + chunk.b[row]) * N, h + row * ldn, N);
        /* the ticks beyond a sequence's end are cleared, because other code may multiply them by zero */
        for (int64_t i = 0; ticks != NULL && i < G; i++) {
            const Module *m = &plan->module[i];
            for (int64_t n = 1 + count_ticks(m, chunk.length[row]); n <= m->ticks; n++)
                clear(ticks + row_place(plan, m, &chunk, n, row), m->K);
        }
    }
}

static void forward_chunk(void *context, int64_t task, int64_t worker) {
    const Plan *plan = context;
    const Chunk chunk = make_chunk(plan, task / plan->chunks, task % plan->chunks);
    real *memory = plan->memory + worker * plan->memory_size;
    Cursor *cursors = plan->cursors + worker * plan->call->G;
    const real *weights = packed_weights(plan, chunk.s, worker);
    const int one = chunk.rows == 1 && plan->order == NULL && plan->nested;
    if (one && !plan->call->rectify)
        forward_rows(plan, weights, memory, cursors, chunk, 1, 1, 0);
    else if (plan->nested && !plan->call->rectify)
        forward_rows(plan, weights, memory, cursors, chunk, 0, 1, 0);
    else
        forward_rows(plan, weights, memory, cursors, chunk, 0, (int)plan->nested, (int)plan->call->rectify);
}

EXPORT int NAME(forward)(const Call *call) {
    if (call->S == 0 || call->B == 0) return FINE; /* nothing to read or write, however many steps there are */
    Plan *plan = make_plan(call, pack_forward, 0);
    if (plan == NULL) return OUT_OF_MEMORY;
    pack_shared(plan);
    cwrnn_parallel(forward_chunk, plan, plan->tasks, plan->workers);
    free_plan(plan);
    return FINE;
}

