/* Forward: the pass over time, for some sequences of one replica. Part of cpu.c, which describes the computation. */

static void pack_forward(const Plan *plan, real *weights, int64_t s, int64_t part) {
    const Call *c = plan->call;
    if (part < c->G) {
        const Module *m = &plan->module[part];
        const real *weight_hh = (const real *)c->weight_hh + s * c->weight_hh_s;
        pack_columns(weights + m->weights, m->ld, plan->panel * LANES, weight_hh + m->start, plan->N, m->end, m->K, plan->gates,
                     plan->N);
        return;
    }
    const real *weight_ih = (const real *)c->weight_ih + s * c->weight_ih_s;
    const int64_t N = plan->N, ldn = plan->ldn, gates = plan->gates, wide = gates * ldn;
    pack_columns(weights + plan->weight_ih, wide, plan->nested ? plan->panel * LANES : wide, weight_ih, c->I, N, c->I, gates, N);
    const real *bias = (const real *)c->bias + s * c->bias_s;
    clear(weights + plan->bias, wide);
    for (int64_t v = 0; c->bias != NULL && v < N; v += LANES)
        for (int64_t k = 0; k < gates; k++)
            copy(weights + plan->bias + gates * v + k * LANES, bias + k * N + v, smaller(LANES, N - v));
    if (c->cell == GRU) clear(weights + plan->inner, ldn);
    if (c->cell == GRU && c->bias != NULL) copy(weights + plan->inner, bias + gates * N, N);
    pack_peepholes(plan, weights, s);
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

/* The memory of one row of a chunk. */
typedef struct {
    const real *drive, *inner, *peepholes; /* the sums of the input, the bias of the messages to n, the peepholes or NULL */
    real *h, *c, *gate;                    /* the state, and the gates of the last ticks, SUMS rows of units */
    int64_t ldn, driven;                   /* the lengths of rows of units and of the drive; 0 if all rows share the drive */
} Row;

INLINE Row first_row_of(const Plan *plan, const real *weights, real *memory, const int cell) {
    const int64_t has_input = plan->call->I > 0;
    return (Row){
        /* without inputs the drive is the bias alone */
        .drive = has_input ? memory + plan->drive : weights + plan->bias,
        .inner = weights + plan->inner,
        .peepholes = plan->call->weight_ch != NULL ? weights + plan->peepholes : NULL,
        .h = memory + plan->h, .c = memory + plan->c, .gate = memory + plan->gate,
        .ldn = plan->ldn, .driven = has_input ? gates_of(cell) * plan->ldn : 0,
    };
}

INLINE Row row_at(const Row *first, int64_t row) {
    Row at = *first;
    at.drive += row * first->driven;
    at.h += row * first->ldn, at.c += row * first->ldn, at.gate += row * SUMS * first->ldn;
    return at;
}

/* The sums of a vector of units before they hear anything. */
INLINE void read_drive(const int cell, const Row *row, int64_t v, vec a[SUMS]) {
    const int gates = gates_of(cell);
    UNROLL for (int k = 0; k < gates; k++) a[k] = load(row->drive + gates * v + k * LANES);
    if (cell == GRU) a[sum_of(cell, 2)] = load(row->inner + v);
}

/* Ticks a vector of units. */
INLINE Units tick_vector(const int cell, const Row *row, int64_t v, const vec a[SUMS]) {
    if (!is_gated(cell)) return tick_units(cell, a, (vec){0}, (vec){0}, NULL);
    if (cell == GRU) return tick_units(cell, a, load(row->h + v), (vec){0}, NULL);
    if (row->peepholes == NULL) return tick_units(cell, a, (vec){0}, load(row->c + v), NULL);
    vec peephole[3];
    UNROLL for (int k = 0; k < 3; k++) peephole[k] = load(row->peepholes + k * row->ldn + v);
    return tick_units(cell, a, (vec){0}, load(row->c + v), peephole);
}

/* The units `now` where `due` is true, and those that are in memory elsewhere. */
INLINE Units choose_units(const int cell, mask due, Units now, const Row *row, int64_t v, const int gates) {
    now.h = choose(due, now.h, load(row->h + v));
    if (cell == LSTM) now.c = choose(due, now.c, load(row->c + v));
    UNROLL for (int k = 0; k < SUMS; k++)
        if (gates) now.gate[k] = choose(due, now.gate[k], load(row->gate + k * row->ldn + v));
    return now;
}

/* Computes the new states of modules m to last, neighbours that are all due, in one row. They are computed and stored as
 * whole vectors, even where modules share a vector: a processor forwards a store to a load only if the load reads no more
 * than that one store wrote. The states and gates of modules that share no vector are also written to the ticks and to
 * `kept` here. */
INLINE void compute_tick(const Plan *plan, const real *memory, const Chunk *chunk, const Cursor *cursors, const Module *m,
                         const Module *last, int64_t number_of_row, const Row *row, const int nested, const int cell) {
    const Module *slowest = &plan->module[plan->call->G - 1];
    const int keep_ticks = plan->call->ticks != NULL, keep_gates = is_gated(cell) && plan->call->kept != NULL;
    const int gates = gates_of(cell);
    const int64_t start = m->start, end = last->end;
    int64_t v = start / LANES * LANES;
    for (; m <= last; m++) {
        /* the vectors that contain no other module */
        const real *heard = memory + m->message + number_of_row * m->ld;
        const int64_t number = cursors[m - plan->module].number, K = m->K;
        real *value = keep_ticks ? (real *)plan->call->ticks + row_place(plan, m, chunk, number, number_of_row) : NULL;
        real *kept = keep_gates ? (real *)plan->call->kept + kept_place(plan, m, chunk, number, number_of_row) : NULL;
        for (; v + LANES <= m->end && v >= m->start; v += LANES) {
            vec a[SUMS];
            read_drive(cell, row, v, a);
            UNROLL for (int k = 0; k < gates; k++) a[sum_of(cell, k)] += load(heard + gates * v + k * LANES);
            for (const Module *j = m + 1; !nested && j <= slowest; j++) {
                const real *other = memory + j->message + number_of_row * j->ld + gates * v;
                UNROLL for (int k = 0; k < gates; k++) a[sum_of(cell, k)] += load(other + k * LANES);
            }
            const Units now = tick_vector(cell, row, v, a);
            store(row->h + v, now.h);
            if (cell == LSTM) store(row->c + v, now.c);
            if (m->whole && keep_ticks) store(value + v - m->start, now.h);
            if (!keep_gates) continue;
            real *to = m->whole ? kept + v - m->start : row->gate + v;
            const int64_t apart = m->whole ? K : row->ldn;
            UNROLL for (int k = 0; k < SUMS; k++) store(to + k * apart, now.gate[k]);
            if (cell == LSTM && m->whole) store(to + CELL * apart, now.c);
        }
        if (v >= m->end) continue;
        /* a vector that it shares */
        vec a[SUMS];
        read_drive(cell, row, v, a);
        for (;; m++) {
            vec sum[SUMS];
            const real *own = memory + m->message + number_of_row * m->ld + gates * v;
            UNROLL for (int k = 0; k < gates; k++) sum[k] = load(own + k * LANES);
            for (const Module *j = m + 1; !nested && j <= slowest; j++) {
                const real *other = memory + j->message + number_of_row * j->ld + gates * v;
                UNROLL for (int k = 0; k < gates; k++) sum[k] += load(other + k * LANES);
            }
            UNROLL for (int k = 0; k < gates; k++) {
                if (m->start > v) sum[k] = (vec)((mask)sum[k] & m->head);
                if (m->end < v + LANES) sum[k] = (vec)((mask)sum[k] & m->tail);
                a[sum_of(cell, k)] += sum[k];
            }
            if (m == last || m->end >= v + LANES) break;
        }
        Units now = tick_vector(cell, row, v, a);
        if (v < start) now = choose_units(cell, ~first_lanes(start - v), now, row, v, keep_gates);
        if (end < v + LANES) now = choose_units(cell, last->tail, now, row, v, keep_gates);
        store(row->h + v, now.h);
        if (cell == LSTM) store(row->c + v, now.c);
        UNROLL for (int k = 0; k < SUMS; k++)
            if (keep_gates) store(row->gate + k * row->ldn + v, now.gate[k]);
        v += LANES;
        if (m->end > v) m--; /* the last module that shares it has further vectors */
    }
}

/* Writes the states of a module that shares a vector with others to the ticks, and its gates to `kept`. */
INLINE void keep_tick(const Plan *plan, const Module *m, const Chunk *chunk, int64_t number, int64_t row, const Row *from,
                      const int cell) {
    const int64_t K = m->K;
    if (plan->call->ticks != NULL)
        copy((real *)plan->call->ticks + row_place(plan, m, chunk, number, row), from->h + m->start, K);
    if (!is_gated(cell) || plan->call->kept == NULL) return;
    real *kept = (real *)plan->call->kept + kept_place(plan, m, chunk, number, row);
    for (int64_t k = 0; number > 0 && k < SUMS; k++) copy(kept + k * K, from->gate + k * from->ldn + m->start, K);
    if (cell == LSTM) copy(kept + CELL * K, from->c + m->start, K);
}

/* Begins a row with its initial state. */
INLINE void begin_row(const Plan *plan, const Chunk *chunk, int64_t row, const Row *at, const int cell) {
    const Call *c = plan->call;
    for (int part = 0; part < (cell == LSTM ? 2 : 1); part++) {
        real *to = part == 0 ? at->h : at->c;
        if (c->h0 != NULL)
            copy(to, (const real *)c->h0 + chunk->s * c->h0_s + chunk->b[row] * c->h0_b + part * plan->N, plan->N);
        else
            clear(to, plan->N);
    }
    for (int64_t i = 0; i < c->G; i++) keep_tick(plan, &plan->module[i], chunk, 0, row, at, cell);
}

/* Writes the state at the end of a row. */
INLINE void end_row(const Plan *plan, const Chunk *chunk, int64_t row, const Row *at, const int cell) {
    const int64_t N = plan->N, parts = cell == LSTM ? 2 : 1;
    real *final = (real *)plan->call->final + (chunk->s * plan->call->B + chunk->b[row]) * parts * N;
    copy(final, at->h, N);
    if (cell == LSTM) copy(final + N, at->c, N);
}

/* The product of the inputs and their weights, without the inputs and without a place for the result. */
INLINE Product drive_of(const Plan *plan, const real *weights) {
    return (Product){
        .xj = 1,
        /* with nested periods the modules that are due begin with the first one */
        .Y = weights + plan->weight_ih, .ly = plan->gates * plan->ldn, .panel = plan->nested ? plan->panel : 0,
        .init = weights + plan->bias, .li = 0,
        .depth = plan->call->I,
    };
}

/* The whole pass of one chunk. `one`, `nested` and `cell` are constants to the compiler: `one` is the case of a single row,
 * in which every instruction counts. */
INLINE void forward_rows(const Plan *plan, const real *weights, real *memory, Cursor *cursors, const Chunk chunk,
                         const int one, const int nested, const int cell) {
    const Call *c = plan->call;
    const int gates = gates_of(cell);
    const int64_t G = c->G, I = c->I, N = plan->N, ldn = plan->ldn, wide = gates * ldn;
    const Row first = first_row_of(plan, weights, memory, cell);
    real *h = memory + plan->h, *ticks = c->ticks;
    for (int64_t row = 0; row < chunk.rows; row++) {
        const Row now = row_at(&first, row);
        begin_row(plan, &chunk, row, &now, cell);
    }
    /* the initial state also sends messages */
    for (int64_t i = G - 1; i >= 0; i--) {
        cursors[i].message = message_of(plan, weights, memory, i);
        multiply(chunk.rows, 0, plan->module[i].ld / LANES, &cursors[i].message);
    }

    Product drive = drive_of(plan, weights);
    drive.C = memory + plan->drive, drive.lc = wide;
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
            if (I > 0) multiply(active, gates * start, gates * (round_up(to->end - start) / LANES), &drive);
            for (int64_t row = 0; row < active; row++) {
                const Row now = row_at(&first, row);
                compute_tick(plan, memory, &chunk, cursors, from, to, row, &now, nested, cell);
            }
        }
        for (int64_t d = dues - 1; d >= 0; d--)
            multiply(active, 0, plan->module[cursors[d].due].ld / LANES, &cursors[cursors[d].due].message);
        for (int64_t d = 0; (ticks != NULL || (is_gated(cell) && c->kept != NULL)) && d < dues; d++) {
            const Module *m = &plan->module[cursors[d].due];
            const int64_t number = cursors[cursors[d].due].number;
            for (int64_t row = 0; !m->whole && row < active; row++) {
                const Row now = row_at(&first, row);
                keep_tick(plan, m, &chunk, number, row, &now, cell);
            }
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
        const Row now = row_at(&first, row);
        end_row(plan, &chunk, row, &now, cell);
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
    const int one = chunk.rows == 1 && plan->order == NULL && plan->nested, nested = (int)plan->nested;
    const int64_t cell = plan->call->cell;
    if (one && cell == TANH)
        forward_rows(plan, weights, memory, cursors, chunk, 1, 1, TANH);
    else if (nested && cell == TANH)
        forward_rows(plan, weights, memory, cursors, chunk, 0, 1, TANH);
    else if (one && cell == LSTM)
        forward_rows(plan, weights, memory, cursors, chunk, 1, 1, LSTM);
    else if (cell == LSTM)
        forward_rows(plan, weights, memory, cursors, chunk, 0, nested, LSTM);
    else if (one && cell == GRU)
        forward_rows(plan, weights, memory, cursors, chunk, 1, 1, GRU);
    else if (cell == GRU)
        forward_rows(plan, weights, memory, cursors, chunk, 0, nested, GRU);
    else if (cell == RELU)
        forward_rows(plan, weights, memory, cursors, chunk, 0, nested, RELU);
    else
        forward_rows(plan, weights, memory, cursors, chunk, 0, 0, TANH);
}
