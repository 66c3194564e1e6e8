/* The plan of a whole call: where everything lies in memory, which sequences run together, and the packed weights.
 * Part of cpu.c, which describes the computation. */

enum {
    CHUNK = 16,             /* sequences that run together, at most */
    GROUPS = 32,            /* parts of a batch that have their own sums of the weights' gradients, at most */
    DEPTH = 96,             /* pairs of vectors that are kept before they are multiplied for the weights' gradients */
    UNITS = 64,             /* units whose weights' gradients one task writes */
    SAMPLES = 4,            /* weights that a step compares with the packed ones */
    PARTS = 8,              /* parts of a span of a single sequence (single.h) */
    PART = 64,              /* ticks of the fastest module in a part */
    WORTH_SHARING = 1 << 15 /* from so many weights on, all threads share one packed copy; a thread packs fewer weights
                             * itself sooner than it fetches them from another core */
};

/* multiply-adds of a step that justify another thread */
static const double WORTH_A_THREAD_IN_A_STEP = 1e5;
/* bytes of weights from which on a single sequence takes the modules one after another (single.h), and steps */
static const double WORTH_MODULES = 192 << 10;
static const int64_t WORTH_A_SPAN = 32;
/* the most bytes that a core's own caches, and that all caches together, are assumed to hold */
static const double LARGEST_NEAR = 8 << 20, LARGEST_CACHED = 16 << 20;

typedef struct {
    int64_t P, K, start, end; /* period, size, first unit, unit after the last */
    int64_t first, ticks;     /* its first tick, counted from the start of the sequence, and how many there are */
    int64_t begin, stop;      /* `gates` times start and end: its place in a row that has `gates` numbers per unit */
    int64_t ld, kp;           /* the length of its message, and K, in whole vectors */
    int64_t values;           /* where its states begin in a replica's ticks */
    int64_t depth;            /* backward: messages kept before they are multiplied */
    int64_t weights;          /* its place in the packed weights */
    /* places in a worker's memory */
    int64_t message;          /* its message; in backward the gradients of its messages */
    int64_t states, inputs;   /* backward: the states and inputs that are paired with these gradients */
    int64_t news;             /* backward of a GRU: the gradients of n's sums, which are paired with the inputs */
    /* a single sequence: the length of a row of `sent`; and places in memory of the state, the gates, the sums of the inputs
     * in a part of a span, and for all its ticks in a span its states and its messages to faster modules, which have a row
     * before those, for the tick before the span */
    int64_t reach, h, c, gate, drives, spoken, sent;
    /* places in the sums of the weights' gradients; `common` is the length of a row of g_inputs */
    int64_t g_weights, g_inputs, g_news, g_inner, g_peepholes, common;
    int64_t whole;   /* true if it shares no vector with its neighbours */
    mask head, tail; /* its lanes in the first and in the last vector that contain units of it */
} Module;

/* How far a worker has come with a module. */
typedef struct {
    int64_t tick, number; /* the time of its next tick (backward: of its last one), and the number of that tick */
    int64_t slot, begun;  /* backward: the pair that is being collected, and whether any pairs were multiplied */
    int64_t due;          /* not about this module: entry d names the d-th module that is due */
    Product message;
} Cursor;

typedef struct Plan Plan;

/* Packs the weights of module `part` of replica s; part G is the weights of the inputs and the bias. */
typedef void Pack(const Plan *plan, real *weights, int64_t s, int64_t part);

struct Plan {
    const Call *call;
    Pack *pack;
    int64_t N, ldn, ip; /* units; the lengths of a row of units and of a row of inputs, with room for whole vectors */
    int64_t gates, kept; /* the numbers of a message per unit; the numbers per unit that forward keeps for backward */
    int64_t parts;       /* 2 if the state has a c beside h, else 1 */
    int64_t panel;      /* width of a tile of forward, in vectors */
    int64_t nested, rows, chunks, groups, tasks, workers; /* rows: the sequences of the largest chunk */
    int64_t ticks_size;                                   /* numbers in the ticks of one replica */
    int single;       /* true if the modules are taken one after another (single.h) */
    int streams, far; /* true if the output is written past the caches; true if backward reads from beyond them */
    int64_t *order;   /* (S, B), sequences sorted by falling length; NULL if all are as long as the input */
    int64_t *holds;   /* for each worker, the replica whose weights it has packed; 0 if all have the same weights */
    Cursor *cursors;  /* G for each worker */
    real *weights, *memory, *sums;
    int64_t weights_size, memory_size, sums_size; /* of one worker, or of all; of one worker; of one group */
    int same, shared;                             /* true if all replicas have the same weights; if workers share them */
    int64_t weight_ih, bias, inner, peepholes;    /* places in the packed weights; inner: the bias of messages to n */
    /* places in a worker's memory; in backward h holds the gradients a', c those of c, and x those of the inputs */
    int64_t h, c, gate, drive, x, g, carried;
    int64_t inner_change; /* the gradients a' of the messages to n */
    Module module[];
};

/* How often a module ticks in a sequence of that length. */
static int64_t count_ticks(const Module *m, int64_t length) {
    return length > m->first ? (length - 1 - m->first) / m->P + 1 : 0;
}

static int64_t length_of(const Call *c, int64_t s, int64_t b) {
    /* the caller cannot always check the lengths, so no address may depend on them unclipped */
    return c->lengths != NULL ? larger(0, smaller(c->T, c->lengths[s * c->lengths_s + b])) : c->T;
}

typedef struct {
    int64_t length, b;
} Sorted;

static int longest_first(const void *left, const void *right) {
    const Sorted *l = left, *r = right;
    if (l->length != r->length) return l->length > r->length ? -1 : 1;
    return l->b < r->b ? -1 : 1;
}

/* The order of the sequences in Plan; NULL if there is no memory for it. */
static int64_t *sort_by_length(const Call *c) {
    int64_t *order = malloc((size_t)(c->S * c->B + 1) * sizeof *order);
    Sorted *sorted = malloc((size_t)(c->B + 1) * sizeof *sorted);
    for (int64_t s = 0; order != NULL && sorted != NULL && s < c->S; s++) {
        for (int64_t b = 0; b < c->B; b++) sorted[b] = (Sorted){length_of(c, s, b), b};
        qsort(sorted, (size_t)c->B, sizeof *sorted, longest_first);
        for (int64_t b = 0; b < c->B; b++) order[s * c->B + b] = sorted[b].b;
    }
    if (sorted == NULL) {
        free(order);
        order = NULL;
    }
    free(sorted);
    return order;
}

static void free_plan(Plan *plan) {
    free(plan->order);
    free(plan->holds);
    free(plan->weights);
    free(plan->cursors);
    free(plan->memory);
    free(plan->sums);
    free(plan);
}

/* True if a call is a single sequence that is better off if the modules are taken one after another. */
static int is_single(const Plan *plan) {
    const Call *c = plan->call;
    const double bytes = (double)plan->weights_size * sizeof(real);
    return c->S == 1 && c->B == 1 && c->lengths == NULL && plan->nested && c->G > 1 && c->T >= WORTH_A_SPAN &&
           bytes >= WORTH_MODULES;
}

/* The steps of a part of a span. */
static int64_t steps_of_part(const Plan *plan) { return smaller(times(PART, plan->module[0].P), plan->call->T); }

/* Reserves memory for the state of each module, and for what it says in a span of a single sequence. */
static void reserve_spans(Plan *plan) {
    const int64_t steps = steps_of_part(plan), gated = is_gated(plan->call->cell);
    for (int64_t i = 0; i < plan->call->G; i++) {
        Module *m = &plan->module[i];
        const int64_t most = smaller(m->ticks, times(PARTS, steps) / m->P + 1);
        m->reach = plan->gates * round_up(m->start);
        m->h = reserve(&plan->memory_size, plan->ldn);
        m->c = reserve(&plan->memory_size, plan->call->cell == LSTM ? plan->ldn : 0);
        m->gate = reserve(&plan->memory_size, gated ? SUMS * plan->ldn : 0);
        m->drives = reserve(&plan->memory_size, plan->call->I > 0 ? smaller(most, steps / m->P + 1) * m->ld : 0);
        m->spoken = reserve(&plan->memory_size, (most + 1) * m->K);
        m->sent = reserve(&plan->memory_size, (most + 1) * m->reach);
    }
}

/* The plan of a call; NULL if there is no memory for it. */
static Plan *make_plan(const Call *c, Pack *pack, int backward) {
    const int64_t G = c->G, I = c->I, *modules = c->modules;
    const size_t size = sizeof(Plan) + (size_t)G * sizeof(Module);
    Plan *plan = allocate(1, size);
    if (plan == NULL) return NULL;
    memset(plan, 0, size);
    plan->call = c;
    plan->pack = pack;
    plan->nested = 1;
    plan->gates = gates_of(c->cell);
    plan->kept = kept_of(c->cell);
    plan->parts = c->cell == LSTM ? 2 : 1;
    const int64_t gates = plan->gates;
    for (int64_t i = 0; i < G; i++) {
        Module *m = &plan->module[i];
        m->P = modules[i];
        m->K = modules[G + i];
        m->first = modules[2 * G + i];
        m->start = plan->N;
        m->end = plan->N += m->K;
        m->begin = gates * m->start;
        m->stop = gates * m->end;
        /* forward has the gates of a vector of units one after another, backward those of a module */
        m->ld = backward ? round_up(m->stop) : gates * round_up(m->end);
        m->kp = round_up(m->K);
        m->common = round_up(common_of(c->cell) * m->K);
        m->whole = m->start % LANES == 0 && m->K % LANES == 0;
        m->head = ~first_lanes(m->start % LANES);
        m->tail = first_lanes((m->end - 1) % LANES + 1);
        m->ticks = smaller(count_ticks(m, c->T), LARGEST_SIZE);
        m->values = plan->ticks_size;
        plan->ticks_size = smaller(plan->ticks_size + times(times(m->ticks + 1, c->B), m->K), LARGEST_SIZE);
        if (i > 0 && m->P % plan->module[i - 1].P != 0) plan->nested = 0;
    }
    plan->ldn = round_up(plan->N) + LANES;
    plan->ip = round_up(I);
    /* the size of a batch alone decides how it is cut, so that the results are the same on any number of threads */
    plan->chunks = c->B >= 2 * CHUNK ? (c->B + CHUNK - 1) / CHUNK : c->B >= 8 ? 2 : 1;
    plan->groups = smaller(plan->chunks, GROUPS);
    plan->rows = larger((c->B + plan->chunks - 1) / plan->chunks, 1);
    plan->panel = widest_for(plan->rows);

    const int weights = c->g_weight_hh != NULL, inputs = c->g_weight_ih != NULL || c->g_bias != NULL;
    const int64_t rows = plan->rows;
    double work = 0;
    for (int64_t i = 0; i < G; i++) {
        Module *m = &plan->module[i];
        double multiplications = (double)((m->ld + gates * I + 30) * m->K) * (backward ? 3 : 1);
        work += (double)m->ticks * multiplications * (double)c->S * (double)c->B;
        if (!backward) {
            m->weights = reserve(&plan->weights_size, m->K * m->ld);
            m->message = reserve(&plan->memory_size, rows * m->ld);
            continue;
        }
        m->depth = smaller(m->ticks + 1, (DEPTH + rows - 1) / rows);
        m->weights = reserve(&plan->weights_size, m->stop * m->kp);
        m->message = reserve(&plan->memory_size, m->depth * rows * m->ld);
        m->states = reserve(&plan->memory_size, weights ? m->depth * rows * m->K : 0);
        m->inputs = reserve(&plan->memory_size, inputs ? m->depth * rows * (I + 1) : 0);
        m->g_weights = reserve(&plan->sums_size, weights ? m->K * m->ld : 0);
        m->g_inputs = reserve(&plan->sums_size, inputs ? (I + 1) * m->common : 0);
        if (c->cell == GRU) {
            m->news = reserve(&plan->memory_size, inputs ? m->depth * rows * m->kp : 0);
            m->g_news = reserve(&plan->sums_size, inputs ? (I + 1) * m->kp : 0);
            m->g_inner = reserve(&plan->sums_size, m->kp);
        }
        if (c->g_weight_ch != NULL) m->g_peepholes = reserve(&plan->sums_size, 3 * m->kp);
    }
    const int64_t gated = is_gated(c->cell), wide = gates * plan->ldn;
    plan->weight_ih = reserve(&plan->weights_size, backward ? (c->g_input != NULL ? gates * plan->N * plan->ip : 0) : I * wide);
    plan->bias = reserve(&plan->weights_size, backward ? 0 : wide);
    plan->inner = reserve(&plan->weights_size, !backward && c->cell == GRU ? plan->ldn : 0);
    plan->peepholes = reserve(&plan->weights_size, c->weight_ch != NULL ? 3 * plan->ldn : 0);
    plan->h = reserve(&plan->memory_size, rows * (backward ? wide : plan->ldn));
    plan->c = reserve(&plan->memory_size, c->cell == LSTM ? rows * plan->ldn : 0);
    plan->gate = reserve(&plan->memory_size, !backward && gated ? rows * SUMS * plan->ldn : 0);
    plan->inner_change = reserve(&plan->memory_size, backward && c->cell == GRU ? rows * plan->ldn : 0);
    plan->drive = reserve(&plan->memory_size, backward ? 0 : rows * wide);
    plan->x = reserve(&plan->memory_size, rows * plan->ip);
    plan->g = reserve(&plan->memory_size, backward ? rows * plan->ldn : 0);
    plan->carried = reserve(&plan->memory_size, backward ? rows * plan->ldn : 0);

    plan->single = !backward && is_single(plan);
    if (plan->single) reserve_spans(plan);
    const double held = c->held != NULL || c->g_held != NULL ? (double)c->T * (double)c->B * (double)plan->N : 0;
    const double bytes = (double)c->S * sizeof(real);
    const int in_vectors = plan->N % LANES == 0 && (uintptr_t)c->held % VECTOR == 0;
    plan->streams = c->held != NULL && in_vectors && bytes * held >= LARGEST_CACHED;
    plan->far = backward && bytes * (held + (double)plan->ticks_size * (double)(1 + plan->kept)) >= LARGEST_NEAR;

    plan->tasks = c->S * (backward ? plan->groups : plan->chunks);
    plan->workers = workers_for(work, plan->tasks, c->threads);
    /* every group has its own sums; if a replica has only one group, the sums are the worker's, which writes them at once */
    const int64_t sums = plan->groups > 1 ? plan->tasks : plan->workers;
    plan->same = c->weight_ih_s == 0 && c->weight_hh_s == 0 && c->bias_s == 0 && c->weight_ch_s == 0;
    plan->shared = plan->same && plan->weights_size >= WORTH_SHARING;
    plan->holds = allocate(plan->workers, sizeof *plan->holds);
    plan->weights = allocate(times(plan->shared ? 1 : plan->workers, plan->weights_size), sizeof(real));
    plan->cursors = allocate(times(plan->workers, G), sizeof *plan->cursors);
    plan->memory = allocate(times(plan->workers, plan->memory_size), sizeof(real));
    plan->sums = allocate(times(sums, plan->sums_size), sizeof(real));
    plan->order = c->lengths != NULL ? sort_by_length(c) : NULL;
    const int complete = plan->holds && plan->weights && plan->cursors && plan->memory && plan->sums;
    if (!complete || (c->lengths != NULL && !plan->order)) {
        free_plan(plan);
        return NULL;
    }
    for (int64_t i = 0; i < plan->workers; i++) plan->holds[i] = -1;
    return plan;
}

/* Runs the tasks of a pass. Gated cells take subnormal numbers for zero: closed gates make gradients that small, and a
 * processor may need a hundred times as long for them. */
static void run_tasks(Plan *plan, Body *body, int64_t tasks, int64_t workers) {
    if (!is_gated(plan->call->cell)) {
        cwrnn_parallel(body, plan, tasks, workers);
        return;
    }
    const uint64_t mode = cwrnn_flush_subnormals();
    cwrnn_parallel(body, plan, tasks, workers);
    cwrnn_restore_mode(mode);
}

/* Sequences of one replica that run together, the longest first. */
typedef struct {
    int64_t s, rows, b[CHUNK], length[CHUNK];
} Chunk;

/* The first sequence of a chunk, in Plan's order. The product needs more than 64 bits if there are 2^34 sequences. */
static int64_t first_row(const Plan *plan, int64_t number) {
    return (int64_t)((__int128)number * plan->call->B / plan->chunks);
}

static Chunk make_chunk(const Plan *plan, int64_t s, int64_t number) {
    const int64_t B = plan->call->B;
    Chunk chunk = {.s = s};
    for (int64_t i = first_row(plan, number), end = first_row(plan, number + 1); i < end; i++) {
        int64_t b = plan->order != NULL ? plan->order[s * B + i] : i;
        chunk.b[chunk.rows] = b;
        chunk.length[chunk.rows++] = length_of(plan->call, s, b);
    }
    return chunk;
}

/* Where in `ticks` the states of all sequences at a tick begin, and where the state of one row begins. */
INLINE int64_t tick_place(const Plan *plan, const Module *m, int64_t s, int64_t tick) {
    return s * plan->ticks_size + m->values + tick * plan->call->B * m->K;
}

INLINE int64_t row_place(const Plan *plan, const Module *m, const Chunk *chunk, int64_t tick, int64_t row) {
    return tick_place(plan, m, chunk->s, tick) + chunk->b[row] * m->K;
}

/* Where in `kept` the gates of one row at a tick begin: K numbers of the first gate, K of the second, and so on. */
INLINE int64_t kept_place(const Plan *plan, const Module *m, const Chunk *chunk, int64_t tick, int64_t row) {
    return row_place(plan, m, chunk, tick, row) * plan->kept + chunk->s * KEPT_ROOM;
}

INLINE const real *input_of(const Call *c, const Chunk *chunk, int64_t t, int64_t row) {
    return (const real *)c->input + chunk->s * c->input_s + t * c->input_t + chunk->b[row] * c->input_b;
}

/* How many threads are worth using to move so many numbers from one order into another. */
static int64_t workers_for_moving(const Plan *plan, int64_t numbers, int64_t tasks) {
    return workers_for(40.0 * (double)numbers, tasks, plan->call->threads);
}

/* Packs one part of the weights that all workers share, the largest part first. */
static void pack_part(void *context, int64_t task, int64_t worker) {
    const Plan *plan = context;
    (void)worker;
    plan->pack(plan, plan->weights, 0, plan->call->G - task);
}

static void pack_shared(Plan *plan) {
    const int64_t parts = plan->call->G + 1;
    if (plan->shared) cwrnn_parallel(pack_part, plan, parts, workers_for_moving(plan, plan->weights_size, parts));
}

/* The packed weights of replica s, for a worker; packs them if the worker has those of another replica. */
static const real *packed_weights(const Plan *plan, int64_t s, int64_t worker) {
    if (plan->shared) return plan->weights;
    real *weights = plan->weights + worker * plan->weights_size;
    const int64_t which = plan->same ? 0 : s;
    if (plan->holds[worker] != which) {
        for (int64_t part = 0; part <= plan->call->G; part++) plan->pack(plan, weights, s, part);
        plan->holds[worker] = which;
    }
    return weights;
}

/* Packs the peepholes of replica s for whole vectors of units. */
static void pack_peepholes(const Plan *plan, real *weights, int64_t s) {
    const Call *c = plan->call;
    for (int64_t k = 0; c->weight_ch != NULL && k < 3; k++)
        copy(weights + plan->peepholes + k * plan->ldn, (const real *)c->weight_ch + s * c->weight_ch_s + k * plan->N, plan->N);
}

/* Packs the weights of the first `rows` units for all gates, whose rows are lf apart, by columns: each filled up to ld with
 * zeros, in panels. Each vector of units has its gates one after another; in `from` a gate has N rows. */
static void pack_columns(real *to, int64_t ld, int64_t panel, const real *from, int64_t lf, int64_t rows, int64_t columns,
                         int64_t gates, int64_t N) {
    for (int64_t at = 0; at < ld; at += panel) {
        const int64_t width = smaller(panel, ld - at);
        for (int64_t v = 0; v < width; v += LANES) {
            const int64_t number = (at + v) / LANES, unit = number / gates * LANES, gate = number % gates;
            const int64_t height = larger(0, smaller(LANES, rows - unit));
            const int64_t next = (number + 1) / gates * LANES; /* rows far apart, which the processor does not prefetch */
            for (int64_t k = 0; k < smaller(LANES, rows - next); k++)
                fetch(from + ((number + 1) % gates * N + next + k) * lf, columns);
            if (height > 0) transpose(to + v, width, from + (gate * N + unit) * lf, lf, height, columns);
            for (int64_t k = 0; height < LANES && k < columns; k++) clear(to + k * width + v + height, LANES - height);
        }
        to += columns * width;
    }
}
