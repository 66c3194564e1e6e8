/* The Clockwork RNN on a CPU: forward, backward, and a single step.
 *
 * This file is compiled once per instruction set and precision (CMakeLists.txt): REAL is float or double, ISA gives each
 * copy its own names, and the vector length follows the compiler's flags. Letters as everywhere: S replicas, T time
 * steps, B sequences, I inputs, N units, G modules, P_i periods, K_i sizes. "Rows" are sequences.
 *
 * What is computed
 *
 *     a_i(t) = W_ih[i] x(t) + b[i] + sum over j >= i of W_hh[i, j] h_j(t - 1)        for each module i that is due at t
 *     h_i(t) = f(a_i(t))
 *
 * in one pass over time. When module j ticks, what it says to itself and to all faster modules, its message
 * W_hh[..j, j] h_j, is multiplied once and kept until it ticks again: sum_j K_j (K_1 + ... + K_j) / P_j multiply-adds
 * per step. If the periods are nested (each divides the next), all faster modules speak whenever a slow one does, so
 * the messages telescope: each module adds its own to the sum of the slower ones,
 *
 *     heard_j = heard_{j+1} + W_hh[..j, j] h_j          a_i = W_ih[i] x + b[i] + heard_i
 *
 * Otherwise each message is kept apart, and a module that is due adds up those that it hears.
 *
 * Backward is the same pass in reverse. sent_j collects the gradients a' of all that heard message j, over the whole
 * time that it was held; when the pass meets the tick at which the message was made,
 *
 *     h_j' = (gradient from outside) + W_hh[..j, j]^T sent_j
 *     a_j' = f'(h_j) h_j'
 *     W_hh[..j, j]' += sent_j h_j^T
 *
 * and with nested periods sent_{j+1} += sent_j, once per tick of j. While a message is held its own module ticks
 * once, so sent_j holds a_j' of that tick as it is: the same rows serve for W_ih' and b'. The products for the weights
 * are not made tick by tick: a few dozen pairs (sent_j, h_j) are kept and multiplied together, so that the weights'
 * gradient is not carried through the cache for every tick.
 *
 * How the loops are ordered
 *
 * All is one kind of product (vectors.h): a few rows times a matrix, units in the lanes of the vectors, the sum over the
 * inner index in order. Units in lanes need no change of layout, serve a single sequence as well as a batch, and the
 * units 0 to end_j that hear module j are contiguous, so that little is lost to padding even where modules are small.
 * The sum for one unit is always taken in the same order: a network gives the same bits alone and among a hundred
 * replicas, on one thread and on many.
 *
 * Weights are packed once per call, by all threads together; if they are few, or every replica has its own, by each
 * thread for itself. By columns for forward (message j is K_j columns of length end_j), in panels, so that what is read
 * together lies together; by rows for backward. The batch is cut into chunks of at most CHUNK sequences, whose states
 * and messages stay in the cache over all time; chunks and replicas are the tasks for the threads. Sequences are sorted
 * by length: those that have ended are the last ones of a chunk, and are left out.
 *
 * An output that is larger than the caches goes past them, and backward asks for what it will read a step before. */

#include "vectors.h"

#include "memory.h"

enum {
    CHUNK = 16,             /* sequences that run together, at most */
    GROUPS = 32,            /* parts of a batch that sum up the weights' gradients on their own, at most */
    DEPTH = 96,             /* pairs of vectors that are kept before they are multiplied for the weights' gradients */
    UNITS = 64,             /* units whose weights' gradients are written by one task */
    SAMPLES = 4,            /* weights that a step compares with those that were packed */
    WORTH_SHARING = 1 << 15 /* weights that are packed once for all threads; a thread has fewer sooner packed than fetched */
};

static const double WORTH_A_THREAD_IN_A_STEP = 1e5;
/* bytes of the most that a core's own caches, and of the most that all caches, may be expected to hold */
static const double LARGEST_NEAR = 8 << 20, LARGEST_CACHED = 16 << 20;

/* ---- the plan of a call ---- */

typedef struct {
    int64_t P, K, start, end; /* period, size, first unit, unit after the last */
    int64_t first, ticks;     /* its first tick, counted from the start of the sequence, and how many there are */
    int64_t ld, kp;           /* end and K, rounded up to whole vectors */
    int64_t values;           /* where its states begin in a replica's ticks */
    int64_t depth;            /* backward: messages kept before they are multiplied */
    int64_t weights;          /* its place in the packed weights */
    /* places in a worker's memory */
    int64_t message;          /* what it says, or in backward what was sent to it */
    int64_t states, inputs;   /* backward: the states and inputs that go with what was sent */
    /* places in the sums of the weights' gradients */
    int64_t g_weights, g_inputs;
    int64_t whole;   /* whether it shares no vector with its neighbours */
    mask head, tail; /* its lanes in the first and in the last vector that it has a part in */
} Module;

/* where a worker stands with a module: its next tick (backward: its last), which that is, the pair in the making, and
 * whether any were multiplied */
typedef struct {
    int64_t tick, number, slot, begun;
    int64_t due; /* not of this module: entry d is the d-th module that is due */
    Product message;
} Notes;

typedef struct Plan Plan;

/* packs the weights of module `part` of replica s; for part G, those of the inputs, and the bias */
typedef void Pack(const Plan *plan, real *weights, int64_t s, int64_t part);

struct Plan {
    const Call *call;
    Pack *pack;
    int64_t N, ldn, ip; /* units; a row of units, and one of inputs, with room for whole vectors */
    int64_t panel;      /* vectors that a tile of forward is wide */
    int64_t nested, rows, chunks, groups, tasks, workers, ticks_size;
    int streams, far; /* whether the output goes past the caches; whether what backward reads lies beyond them */
    int64_t *order;  /* (S, B), sequences sorted by falling length; NULL if all are as long as the input */
    int64_t *holds;  /* the replica whose weights a worker holds; 0 if all have the same */
    Notes *notes;    /* G of each worker */
    real *weights, *memory, *sums;
    int64_t weights_size, memory_size, sums_size; /* of one worker, or of all; of one worker; of one group */
    int same, shared;                             /* whether all replicas have the same weights; and one place for them */
    int64_t weight_ih, bias;                      /* places in the packed weights */
    /* places in a worker's memory; in backward h holds the gradients a', and x those of the inputs */
    int64_t h, drive, x, g, carried;
    Module module[];
};

static int64_t ticks_in(const Module *m, int64_t length) {
    return length > m->first ? (length - 1 - m->first) / m->P + 1 : 0;
}

static int64_t length_of(const Call *c, int64_t s, int64_t b) {
    /* whoever called could not always look at the lengths: no memory depends on what they say */
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

static void forget(Plan *plan) {
    free(plan->order);
    free(plan->holds);
    free(plan->weights);
    free(plan->notes);
    free(plan->memory);
    free(plan->sums);
    free(plan);
}

static Plan *make_plan(const Call *c, Pack *pack, int backward) {
    const int64_t G = c->G, I = c->I, *words = c->modules;
    const size_t size = sizeof(Plan) + (size_t)G * sizeof(Module);
    Plan *plan = aligned(1, size);
    if (plan == NULL) return NULL;
    memset(plan, 0, size);
    plan->call = c;
    plan->pack = pack;
    plan->nested = 1;
    for (int64_t i = 0; i < G; i++) {
        Module *m = &plan->module[i];
        m->P = words[i];
        m->K = words[G + i];
        m->first = words[2 * G + i];
        m->start = plan->N;
        m->end = plan->N += m->K;
        m->ld = round_up(m->end);
        m->kp = round_up(m->K);
        m->whole = m->start % LANES == 0 && m->K % LANES == 0;
        m->head = ~first(m->start % LANES);
        m->tail = first((m->end - 1) % LANES + 1);
        m->ticks = ticks_in(m, c->T);
        m->values = plan->ticks_size;
        plan->ticks_size += (m->ticks + 1) * c->B * m->K;
        if (i > 0 && m->P % plan->module[i - 1].P != 0) plan->nested = 0;
    }
    plan->ldn = round_up(plan->N) + LANES;
    plan->ip = round_up(I);
    /* how a batch is cut depends on nothing but its size: the results are the same on any number of threads */
    plan->chunks = c->B >= 2 * CHUNK ? (c->B + CHUNK - 1) / CHUNK : c->B >= 8 ? 2 : 1;
    plan->groups = smaller(plan->chunks, GROUPS);
    plan->rows = larger((c->B + plan->chunks - 1) / plan->chunks, 1);
    plan->panel = widest_for(plan->rows);

    const int weights = c->g_weight_hh != NULL, inputs = c->g_weight_ih != NULL || c->g_bias != NULL;
    const int64_t rows = plan->rows;
    double work = 0;
    for (int64_t i = 0; i < G; i++) {
        Module *m = &plan->module[i];
        double multiplications = (double)((m->ld + I + 30) * m->K) * (backward ? 3 : 1);
        work += (double)m->ticks * multiplications * (double)(c->S * c->B);
        if (!backward) {
            m->weights = reserve(&plan->weights_size, m->K * m->ld);
            m->message = reserve(&plan->memory_size, rows * m->ld);
            continue;
        }
        m->depth = smaller(m->ticks + 1, (DEPTH + rows - 1) / rows);
        m->weights = reserve(&plan->weights_size, m->end * m->kp);
        m->message = reserve(&plan->memory_size, m->depth * rows * m->ld);
        m->states = reserve(&plan->memory_size, weights ? m->depth * rows * m->K : 0);
        m->inputs = reserve(&plan->memory_size, inputs ? m->depth * rows * (I + 1) : 0);
        m->g_weights = reserve(&plan->sums_size, weights ? m->K * m->ld : 0);
        m->g_inputs = reserve(&plan->sums_size, inputs ? (I + 1) * m->kp : 0);
    }
    int64_t weight_ih = backward ? (c->g_input != NULL ? plan->N * plan->ip : 0) : I * plan->ldn;
    plan->weight_ih = reserve(&plan->weights_size, weight_ih);
    plan->bias = reserve(&plan->weights_size, backward ? 0 : plan->ldn);
    plan->h = reserve(&plan->memory_size, rows * plan->ldn);
    plan->drive = reserve(&plan->memory_size, backward ? 0 : rows * plan->ldn);
    plan->x = reserve(&plan->memory_size, rows * plan->ip);
    plan->g = reserve(&plan->memory_size, backward ? rows * plan->ldn : 0);
    plan->carried = reserve(&plan->memory_size, backward ? rows * plan->ldn : 0);

    const int64_t held = c->held != NULL || c->g_held != NULL ? c->T * c->B * plan->N : 0;
    const double bytes = (double)c->S * sizeof(real);
    const int in_vectors = plan->N % LANES == 0 && (uintptr_t)c->held % VECTOR == 0;
    plan->streams = c->held != NULL && in_vectors && bytes * (double)held >= LARGEST_CACHED;
    plan->far = backward && bytes * (double)(held + plan->ticks_size) >= LARGEST_NEAR;

    plan->tasks = c->S * (backward ? plan->groups : plan->chunks);
    plan->workers = workers_for(work, plan->tasks, c->threads);
    /* every group has sums of its own; where a replica has one only, they are the worker's, who writes them out at once */
    const int64_t sums = plan->groups > 1 ? plan->tasks : plan->workers;
    plan->same = c->weight_ih_s == 0 && c->weight_hh_s == 0 && c->bias_s == 0;
    plan->shared = plan->same && plan->weights_size >= WORTH_SHARING;
    plan->holds = malloc((size_t)plan->workers * sizeof *plan->holds);
    plan->weights = aligned((plan->shared ? 1 : plan->workers) * plan->weights_size, sizeof(real));
    plan->notes = aligned(plan->workers * G, sizeof *plan->notes);
    plan->memory = aligned(plan->workers * plan->memory_size, sizeof(real));
    plan->sums = aligned(sums * plan->sums_size, sizeof(real));
    plan->order = c->lengths != NULL ? sort_by_length(c) : NULL;
    const int complete = plan->holds && plan->weights && plan->notes && plan->memory && plan->sums;
    if (!complete || (c->lengths != NULL && !plan->order)) {
        forget(plan);
        return NULL;
    }
    for (int64_t i = 0; i < plan->workers; i++) plan->holds[i] = -1;
    return plan;
}

/* some sequences of one replica, the longest first */
typedef struct {
    int64_t s, rows, b[CHUNK], length[CHUNK];
} Chunk;

static Chunk make_chunk(const Plan *plan, int64_t s, int64_t number) {
    const int64_t B = plan->call->B;
    Chunk chunk = {.s = s};
    for (int64_t i = number * B / plan->chunks; i < (number + 1) * B / plan->chunks; i++) {
        int64_t b = plan->order != NULL ? plan->order[s * B + i] : i;
        chunk.b[chunk.rows] = b;
        chunk.length[chunk.rows++] = length_of(plan->call, s, b);
    }
    return chunk;
}

/* the place of all sequences' states at a tick in the ticks, and that of one row's */
INLINE int64_t tick_place(const Plan *plan, const Module *m, int64_t s, int64_t tick) {
    return s * plan->ticks_size + m->values + tick * plan->call->B * m->K;
}

INLINE int64_t place(const Plan *plan, const Module *m, const Chunk *chunk, int64_t tick, int64_t row) {
    return tick_place(plan, m, chunk->s, tick) + chunk->b[row] * m->K;
}

INLINE const real *input_of(const Call *c, const Chunk *chunk, int64_t t, int64_t row) {
    return (const real *)c->input + chunk->s * c->input_s + t * c->input_t + chunk->b[row] * c->input_b;
}

/* ---- packing ---- */

/* how many threads it is worth to move so many numbers from one order into another */
static int64_t movers(const Plan *plan, int64_t numbers, int64_t tasks) {
    return workers_for(40.0 * (double)numbers, tasks, plan->call->threads);
}

/* one part of the weights that all share, the largest first */
static void pack_part(void *context, int64_t task, int64_t worker) {
    const Plan *plan = context;
    (void)worker;
    plan->pack(plan, plan->weights, 0, plan->call->G - task);
}

static void pack_shared(Plan *plan) {
    const int64_t parts = plan->call->G + 1;
    if (plan->shared) cwrnn_parallel(pack_part, plan, parts, movers(plan, plan->weights_size, parts));
}

/* the packed weights of replica s, for a worker */
static const real *weights_for(const Plan *plan, int64_t s, int64_t worker) {
    if (plan->shared) return plan->weights;
    real *weights = plan->weights + worker * plan->weights_size;
    const int64_t which = plan->same ? 0 : s;
    if (plan->holds[worker] != which) {
        for (int64_t part = 0; part <= plan->call->G; part++) plan->pack(plan, weights, s, part);
        plan->holds[worker] = which;
    }
    return weights;
}

/* ---- forward ---- */

/* weights (rows, columns), whose rows are lf apart, by columns: each filled up to ld with zeros, in panels */
static void pack_columns(real *to, int64_t ld, int64_t panel, const real *from, int64_t lf, int64_t rows, int64_t columns) {
    for (int64_t at = 0; at < ld; at += panel) {
        const int64_t width = smaller(panel, ld - at), height = larger(0, smaller(width, rows - at));
        if (height > 0) transpose(to, width, from + at * lf, lf, height, columns);
        for (int64_t k = 0; k < columns; k++) clear(to + k * width + height, width - height);
        to += columns * width;
    }
}

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

/* what module i says, as a product of the states */
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

/* The new states of modules m to last, neighbours that are all due, in one row. They are computed and stored as whole
 * vectors, whatever modules share them: a processor hands on at once only what was stored as one piece. Modules that
 * share no vector are written to the ticks as well. */
INLINE void tick(const Plan *plan, const real *memory, const Chunk *chunk, const Notes *notes, const Module *m,
                 const Module *last, int64_t row, const real *drive, real *h, const int nested, const int rectify) {
    const Module *slowest = &plan->module[plan->call->G - 1];
    const int keep_ticks = plan->call->ticks != NULL;
    const int64_t start = m->start, end = last->end;
    int64_t v = start / LANES * LANES;
    for (; m <= last; m++) {
        /* vectors that are all its own */
        const real *heard = memory + m->message + row * m->ld;
        const int64_t number = keep_ticks ? notes[m - plan->module].number : 0;
        real *value = keep_ticks ? (real *)plan->call->ticks + place(plan, m, chunk, number, row) : NULL;
        for (; v + LANES <= m->end && v >= m->start; v += LANES) {
            vec a = load(drive + v) + load(heard + v);
            for (const Module *j = m + 1; !nested && j <= slowest; j++) a += load(memory + j->message + row * j->ld + v);
            a = activate(a, rectify);
            store(h + v, a);
            if (m->whole && keep_ticks) store(value + v - m->start, a);
        }
        if (v >= m->end) continue;
        /* one that it shares */
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
        if (v < start) a = choose(~first(start - v), a, load(h + v));
        if (end < v + LANES) a = choose(last->tail, a, load(h + v));
        store(h + v, a);
        v += LANES;
        if (m->end > v) m--; /* the last of those that share it goes on */
    }
}

/* `one`, `nested` and `rectify` are constants to the compiler: one row alone, where every instruction counts, and not */
INLINE void forward_rows(const Plan *plan, const real *weights, real *memory, Notes *notes, const Chunk chunk, const int one,
                         const int nested, const int rectify) {
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
            copy(ticks + place(plan, m, &chunk, 0, row), h + row * ldn + m->start, m->K);
        }
    }
    /* the initial state speaks too */
    for (int64_t i = G - 1; i >= 0; i--) {
        notes[i].message = message_of(plan, weights, memory, i);
        multiply(chunk.rows, 0, plan->module[i].ld / LANES, &notes[i].message);
    }

    /* without inputs the bias is all of the drive */
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
    for (int64_t i = 0; i < G; i++) notes[i].tick = plan->module[i].first, notes[i].number = 0;
    for (int64_t t = 0; t < c->T; t++) {
        while (!one && active > 0 && chunk.length[active - 1] <= t) active--;
        if (!one && active == 0 && c->held == NULL) break;
        if (one) active = 1;
        int64_t dues = 0;
        for (int64_t i = 0; i < G; i++) {
            if (notes[i].tick == t) {
                notes[dues++].due = i;
                notes[i].tick += plan->module[i].P;
                notes[i].number++;
            } else if (nested) {
                break; /* the slower ones are not due either */
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
            for (e = d + 1; e < dues && notes[e].due == notes[e - 1].due + 1; e++) {}
            const Module *from = &plan->module[notes[d].due], *to = &plan->module[notes[e - 1].due];
            const int64_t start = from->start / LANES * LANES;
            if (I > 0) multiply(active, start, round_up(to->end - start) / LANES, &drive);
            for (int64_t row = 0; row < active; row++)
                tick(plan, memory, &chunk, notes, from, to, row, driven + row * driven_row, h + row * ldn, nested, rectify);
        }
        for (int64_t d = dues - 1; d >= 0; d--)
            multiply(active, 0, plan->module[notes[d].due].ld / LANES, &notes[notes[d].due].message);
        for (int64_t d = 0; ticks != NULL && d < dues; d++) {
            const Module *m = &plan->module[notes[d].due];
            const int64_t K = m->K;
            real *to = ticks + tick_place(plan, m, chunk.s, notes[notes[d].due].number), *from = h + m->start;
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
        /* what was not computed must be numbers all the same: others may multiply it by zero */
        for (int64_t i = 0; ticks != NULL && i < G; i++) {
            const Module *m = &plan->module[i];
            for (int64_t n = 1 + ticks_in(m, chunk.length[row]); n <= m->ticks; n++)
                clear(ticks + place(plan, m, &chunk, n, row), m->K);
        }
    }
}

static void forward_chunk(void *context, int64_t task, int64_t worker) {
    const Plan *plan = context;
    const Chunk chunk = make_chunk(plan, task / plan->chunks, task % plan->chunks);
    real *memory = plan->memory + worker * plan->memory_size;
    Notes *notes = plan->notes + worker * plan->call->G;
    const real *weights = weights_for(plan, chunk.s, worker);
    const int one = chunk.rows == 1 && plan->order == NULL && plan->nested;
    if (one && !plan->call->rectify)
        forward_rows(plan, weights, memory, notes, chunk, 1, 1, 0);
    else if (plan->nested && !plan->call->rectify)
        forward_rows(plan, weights, memory, notes, chunk, 0, 1, 0);
    else
        forward_rows(plan, weights, memory, notes, chunk, 0, (int)plan->nested, (int)plan->call->rectify);
}

EXPORT int NAME(forward)(const Call *call) {
    Plan *plan = make_plan(call, pack_forward, 0);
    if (plan == NULL) return OUT_OF_MEMORY;
    pack_shared(plan);
    cwrnn_parallel(forward_chunk, plan, plan->tasks, plan->workers);
    forget(plan);
    return 0;
}

/* ---- backward ---- */

static void pack_backward(const Plan *plan, real *weights, int64_t s, int64_t part) {
    const Call *c = plan->call;
    if (part < c->G) {
        const Module *m = &plan->module[part];
        const real *weight_hh = (const real *)c->weight_hh + s * c->weight_hh_s + m->start;
        for (int64_t r = 0; r < m->end; r++) {
            real *to = weights + m->weights + r * m->kp;
            copy(to, weight_hh + r * plan->N, m->K);
            clear(to + m->K, m->kp - m->K);
        }
    } else if (c->g_input != NULL) {
        for (int64_t r = 0; r < plan->N; r++) {
            real *to = weights + plan->weight_ih + r * plan->ip;
            copy(to, (const real *)c->weight_ih + s * c->weight_ih_s + r * c->I, c->I);
            clear(to + c->I, plan->ip - c->I);
        }
    }
}

/* the pass of one chunk */
typedef struct {
    const Plan *plan;
    const Chunk *chunk;
    const real *packed;
    real *memory, *sums;
    int weights, inputs; /* which gradients are wanted */
    Notes *notes;
} Reverse;

INLINE real *sent(const Reverse *r, const Module *m, int64_t slot, int64_t row) {
    return r->memory + m->message + (slot * r->chunk->rows + row) * m->ld;
}

/* multiplies the first `pairs` pairs that were kept of module i */
static void multiply_kept(const Reverse *r, int64_t i, int64_t pairs) {
    const Module *m = &r->plan->module[i];
    const int64_t depth = pairs * r->chunk->rows, I = r->plan->call->I, begun = r->notes[i].begun;
    r->notes[i].begun = 1;
    if (r->weights) {
        real *to = r->sums + m->g_weights;
        Product product = {
            .X = r->memory + m->states, .xm = 1, .xj = m->K,
            .Y = sent(r, m, 0, 0), .ly = m->ld,
            .init = begun ? to : NULL, .li = m->ld, .C = to, .lc = m->ld,
            .depth = depth,
        };
        multiply(m->K, 0, m->ld / LANES, &product);
    }
    if (r->inputs) {
        real *to = r->sums + m->g_inputs;
        Product product = {
            .X = r->memory + m->inputs, .xm = 1, .xj = I + 1,
            .Y = sent(r, m, 0, 0) + m->start, .ly = m->ld,
            .init = begun ? to : NULL, .li = m->kp, .C = to, .lc = m->kp,
            .depth = depth,
        };
        multiply(I + 1, 0, m->kp / LANES, &product);
    }
}

/* At a tick of module i, or for tick 0 at the initial state: the gradient of its state, into g, from outside and from
 * all that heard it. What was sent goes on to the next slower module, and makes a pair with the state. */
static void hear_back(const Reverse *r, int64_t i, int64_t active) {
    const Plan *plan = r->plan;
    const Call *c = plan->call;
    const Module *m = &plan->module[i];
    const int64_t slot = r->notes[i].slot;
    real *carried = r->memory + plan->carried + m->start, *g = r->memory + plan->g;
    if (c->g_ticks != NULL)
        for (int64_t row = 0; row < active; row++)
            add(carried + row * plan->ldn, (const real *)c->g_ticks + place(plan, m, r->chunk, r->notes[i].number, row), m->K);
    Product product = {
        .X = sent(r, m, slot, 0), .xm = m->ld, .xj = 1,
        .Y = r->packed + m->weights, .ly = m->kp,
        .init = carried, .li = plan->ldn, .C = g, .lc = m->kp,
        .depth = m->end,
    };
    if (r->notes[i].number > 0 || c->g_h0 != NULL) multiply(active, 0, m->kp / LANES, &product);
    const int64_t K = m->K, ld = m->ld, ldn = plan->ldn, *b = r->chunk->b;
    for (int64_t row = 0; !plan->nested && row < active; row++) clear(carried + row * ldn, K);
    if (plan->nested && i + 1 < c->G) {
        /* beyond its end are zeros */
        const real *from = sent(r, m, slot, 0);
        real *to = sent(r, &m[1], r->notes[i + 1].slot, 0);
        const int64_t next = m[1].ld;
        for (int64_t row = 0; row < active; row++) add(to + row * next, from + row * ld, ld);
    }
    if (r->weights) {
        const real *from = (const real *)c->ticks + tick_place(plan, m, r->chunk->s, r->notes[i].number);
        real *to = r->memory + m->states + slot * r->chunk->rows * K;
        for (int64_t row = 0; row < active; row++) copy(to + row * K, from + b[row] * K, K);
    }
}

/* the next pair of module i, begun at its tick at t: all that it will be sent, so far nothing but its own a' */
static void begin_pair(const Reverse *r, int64_t i, int64_t t, int64_t active) {
    const Plan *plan = r->plan;
    const Call *c = plan->call;
    const Module *m = &plan->module[i];
    const int64_t rows = r->chunk->rows;
    if (++r->notes[i].slot == m->depth) {
        multiply_kept(r, i, m->depth);
        r->notes[i].slot = 0;
    }
    const int64_t slot = r->notes[i].slot;
    const int64_t K = m->K, kp = m->kp, ld = m->ld, ldn = plan->ldn, start = m->start, nested = plan->nested;
    const int64_t rectify = c->rectify, whole = K / LANES * LANES, *b = r->chunk->b;
    const real *values = (const real *)c->ticks + tick_place(plan, m, r->chunk->s, r->notes[i].number);
    const real *g = r->memory + plan->g;
    real *change = r->memory + plan->h + start, *to = sent(r, m, slot, 0);
    for (int64_t row = 0; row < active; row++, g += kp, change += ldn, to += ld) {
        const real *value = values + b[row] * K;
        clear(to, nested ? start : m->end);
        for (int64_t k = 0; k < whole; k += LANES) {
            const vec a = through(load(g + k), load(value + k), rectify);
            store(change + k, a);
            if (nested) store(to + start + k, a);
        }
        if (whole == K) continue;
        /* a whole vector, because it is read at once; beyond its end lies what is not yet written */
        const vec a = keep(through(load(g + whole), load_some(value + whole, K - whole), rectify), K - whole);
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
    /* rows that have not begun: nothing was sent */
    for (int64_t row = active; row < rows; row++) clear(sent(r, m, slot, row), m->end);
}

/* adds what comes from outside, n units, to what is carried, whose first `taken` units have been taken away */
INLINE void carry(real *carried, int64_t taken, const real *from, int64_t n) {
    for (int64_t k = 0; k < n; k += LANES) {
        vec rest = load(carried + k);
        if (k < taken) rest = drop(rest, taken - k);
        store(carried + k, rest + (n - k >= LANES ? load(from + k) : load_some(from + k, n - k)));
    }
}

/* Asks for what is read next: the step before t, and the ticks before those at t. Nobody else would ask: the pass goes
 * down in memory, and upwards in every row.
 * Inline, because a compiler leaves out the call of a function that does nothing but ask. */
INLINE void fetch_before(const Reverse *r, int64_t t, int64_t dues) {
    const Plan *plan = r->plan;
    const Call *c = plan->call;
    const int64_t *b = r->chunk->b;
    for (int64_t row = 0; row < r->chunk->rows; row++) {
        if (c->g_held != NULL && t > 0)
            fetch((const real *)c->g_held + r->chunk->s * c->g_held_s + (t - 1) * c->g_held_t + b[row] * c->g_held_b, plan->N);
        if (r->inputs && t > 0) fetch(input_of(c, r->chunk, t - 1, row), c->I);
        for (int64_t d = 0; d < dues; d++) {
            const Module *m = &plan->module[r->notes[d].due];
            const int64_t at = place(plan, m, r->chunk, r->notes[r->notes[d].due].number - 1, row);
            fetch((const real *)c->ticks + at, m->K);
            if (c->g_ticks != NULL) fetch((const real *)c->g_ticks + at, m->K);
        }
    }
}

static void backward_chunk(const Plan *plan, const real *weights, real *memory, Notes *notes, real *sums, const Chunk *chunk) {
    const Call *c = plan->call;
    const int64_t G = c->G, I = c->I, N = plan->N, ldn = plan->ldn, rows = chunk->rows;
    real *carried = memory + plan->carried, *change = memory + plan->h, *dx = memory + plan->x;
    int64_t active = 0;
    int64_t taken = 0, taken_rows = 0; /* with nested periods: the units whose gradient was last used up, in which rows */
    const Reverse r = {
        .plan = plan, .chunk = chunk, .packed = weights, .memory = memory, .sums = sums,
        .weights = c->g_weight_hh != NULL, .inputs = c->g_weight_ih != NULL || c->g_bias != NULL,
        .notes = notes,
    };

    for (int64_t row = 0; row < rows; row++) {
        if (c->g_final != NULL)
            copy(carried + row * ldn, (const real *)c->g_final + (chunk->s * c->B + chunk->b[row]) * N, N);
        else
            clear(carried + row * ldn, N);
    }
    for (int64_t i = 0; i < G; i++) {
        const Module *m = &plan->module[i];
        notes[i].number = rows > 0 ? ticks_in(m, chunk->length[0]) : 0;
        notes[i].tick = m->first + (notes[i].number - 1) * m->P;
        notes[i].slot = 0;
        /* the first pair begins at the end, where nothing ticks; where rows begin late, all pairs have empty rows */
        const int64_t pairs = plan->order != NULL ? m->depth : 1;
        /* the lanes beyond the last unit are never written, but added up */
        clear(sent(&r, m, 0, 0), (m->end < m->ld ? m->depth : pairs) * rows * m->ld);
        if (r.weights) clear(memory + m->states, pairs * rows * m->K);
        if (r.inputs) clear(memory + m->inputs, pairs * rows * (I + 1));
    }

    Product to_input = {
        .X = change, .xm = ldn, .xj = 1, .Y = weights + plan->weight_ih, .ly = plan->ip, .C = dx, .lc = plan->ip, .li = plan->ip,
    };
    for (int64_t t = c->T - 1; t >= 0; t--) {
        while (active < rows && chunk->length[active] > t) active++;
        int64_t dues = 0;
        if (active > 0) {
            for (int64_t i = 0; i < G; i++) {
                if (notes[i].tick == t)
                    notes[dues++].due = i;
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
        taken = plan->nested && dues > 0 ? plan->module[notes[dues - 1].due].end : 0;
        taken_rows = active;
        for (int64_t d = 0; d < dues; d++) {
            const int64_t i = notes[d].due;
            hear_back(&r, i, active);
            begin_pair(&r, i, t, active);
            notes[i].tick -= plan->module[i].P;
            notes[i].number--;
        }
        if (!plan->nested) {
            for (int64_t d = 0; d < dues; d++) {
                const Module *m = &plan->module[notes[d].due];
                for (int64_t j = notes[d].due; j < G; j++)
                    for (int64_t row = 0; row < active; row++)
                        add(sent(&r, &plan->module[j], notes[j].slot, row) + m->start, change + row * ldn + m->start, m->K);
            }
        }
        if (c->g_input == NULL || I == 0) continue;
        for (int64_t d = 0, e; d < dues; d = e) {
            for (e = d + 1; e < dues && notes[e].due == notes[e - 1].due + 1; e++) {}
            const int64_t start = plan->module[notes[d].due].start;
            to_input.X = change + start;
            to_input.Y = weights + plan->weight_ih + start * plan->ip;
            to_input.init = d > 0 ? dx : NULL;
            to_input.depth = plan->module[notes[e - 1].due].end - start;
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
        hear_back(&r, i, rows);
        if (c->g_h0 != NULL)
            for (int64_t row = 0; row < rows; row++)
                copy((real *)c->g_h0 + (chunk->s * c->B + chunk->b[row]) * N + m->start, memory + plan->g + row * m->kp, m->K);
        multiply_kept(&r, i, notes[i].slot + 1);
    }
}

/* The weights' gradients of replica s, units `from` to `to`, from the sums of all its groups. */
static void write_gradients(const Plan *plan, real *sums, int64_t groups, int64_t s, int64_t from, int64_t to) {
    const Call *c = plan->call;
    const int weights = c->g_weight_hh != NULL, inputs = c->g_weight_ih != NULL || c->g_bias != NULL;
    const int64_t N = plan->N;
    for (int64_t i = 0; i < c->G; i++) {
        const Module *m = &plan->module[i];
        const int64_t end = smaller(to, m->end), own = larger(from, m->start);
        for (int64_t other = 1; other < groups; other++) {
            const real *more = sums + other * plan->sums_size;
            for (int64_t k = 0; weights && from < end && k < m->K; k++) {
                int64_t at = m->g_weights + k * m->ld + from;
                add(sums + at, more + at, end - from);
            }
            for (int64_t k = 0; inputs && own < end && k <= c->I; k++) {
                int64_t at = m->g_inputs + k * m->kp + own - m->start;
                add(sums + at, more + at, end - own);
            }
        }
        if (weights) {
            real *g = (real *)c->g_weight_hh + s * N * N + m->start;
            if (from < end) transpose(g + from * N, N, sums + m->g_weights + from, m->ld, m->K, end - from);
            for (int64_t r = larger(from, m->end); r < to; r++) clear(g + r * N, m->K);
        }
        for (int64_t r = own; r < end; r++) {
            const real *sum = sums + m->g_inputs + r - m->start;
            for (int64_t k = 0; c->g_weight_ih != NULL && k < c->I; k++)
                ((real *)c->g_weight_ih)[(s * N + r) * c->I + k] = sum[k * m->kp];
            if (c->g_bias != NULL) ((real *)c->g_bias)[s * N + r] = sum[c->I * m->kp];
        }
    }
}

static void backward_group(void *context, int64_t task, int64_t worker) {
    const Plan *plan = context;
    const int64_t s = task / plan->groups, group = task % plan->groups;
    real *memory = plan->memory + worker * plan->memory_size;
    real *sums = plan->sums + (plan->groups > 1 ? task : worker) * plan->sums_size;
    Notes *notes = plan->notes + worker * plan->call->G;
    for (int64_t i = 0; i < plan->call->G; i++) notes[i].begun = 0;
    const real *weights = weights_for(plan, s, worker);
    for (int64_t n = group * plan->chunks / plan->groups; n < (group + 1) * plan->chunks / plan->groups; n++) {
        const Chunk chunk = make_chunk(plan, s, n);
        backward_chunk(plan, weights, memory, notes, sums, &chunk);
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
    Plan *plan = make_plan(call, pack_backward, 1);
    if (plan == NULL) return OUT_OF_MEMORY;
    pack_shared(plan);
    cwrnn_parallel(backward_group, plan, plan->tasks, plan->workers);
    /* what a single task has summed up, all threads write, too */
    if (plan->groups > 1 || plan->tasks == 1) {
        const int64_t tasks = call->S * ((plan->N + UNITS - 1) / UNITS);
        cwrnn_parallel(write_units, plan, tasks, movers(plan, plan->tasks * plan->sums_size, tasks));
    }
    forget(plan);
    return 0;
}

/* ---- step by step ----
 *
 * The messages are kept from step to step, beside the state that spoke: if the state that comes in is another one, they
 * are made anew. The weights are packed by columns, in one panel, once for all steps. */

typedef struct {
    const Step *call;
    int64_t N, ldn, drive, row;    /* a row of `said`: the state, the drive, the messages */
    int64_t weight_ih, packed_size;
    int64_t all, parts; /* whether all modules speak, or those that are due; in how many parts */
    struct {
        int64_t K, start, end, ld, message, weights;
    } module[];
} Stride;

static Stride *make_stride(const Step *c) {
    Stride *stride = malloc(sizeof *stride + (size_t)c->G * sizeof stride->module[0]);
    if (stride == NULL) return NULL;
    *stride = (Stride){.call = c};
    for (int64_t i = 0; i < c->G; i++) stride->N += c->modules[i];
    stride->ldn = round_up(stride->N) + LANES;
    reserve(&stride->row, stride->ldn);
    stride->drive = reserve(&stride->row, stride->ldn);
    for (int64_t i = 0, start = 0; i < c->G; i++) {
        const int64_t K = c->modules[i], end = start + K, ld = round_up(end);
        stride->module[i].K = K;
        stride->module[i].start = start;
        stride->module[i].end = end;
        stride->module[i].ld = ld;
        stride->module[i].message = reserve(&stride->row, ld);
        stride->module[i].weights = reserve(&stride->packed_size, K * ld);
        start = end;
    }
    stride->weight_ih = reserve(&stride->packed_size, c->I * stride->ldn);
    return stride;
}

/* how many numbers `packed` and a row of `said` have */
EXPORT int NAME(step_sizes)(const Step *c) {
    Stride *stride = make_stride(c);
    if (stride == NULL) return OUT_OF_MEMORY;
    c->sizes[0] = stride->packed_size;
    c->sizes[1] = stride->row;
    free(stride);
    return 0;
}

EXPORT int NAME(step_pack)(const Step *c) {
    Stride *stride = make_stride(c);
    if (stride == NULL) return OUT_OF_MEMORY;
    real *packed = c->packed;
    cwrnn_prefer_large_pages(packed, stride->packed_size * (int64_t)sizeof(real));
    clear(packed, stride->packed_size);
    for (int64_t i = 0; i < c->G; i++)
        pack_columns(packed + stride->module[i].weights, stride->module[i].ld, stride->module[i].ld,
                     (const real *)c->weight_hh + stride->module[i].start, stride->N, stride->module[i].end,
                     stride->module[i].K);
    pack_columns(packed + stride->weight_ih, stride->ldn, stride->ldn, c->weight_ih, c->I, stride->N, c->I);
    free(stride);
    return 0;
}

/* Whether some weights are those that were packed: others at every step. Autograd counts the changes of a tensor, but
 * not all that change one tell it. Whatever changes all weights is seen at once. */
static int same_weights(const Stride *stride) {
    const Step *c = stride->call;
    for (uint64_t n = 0; n < SAMPLES; n++) {
        const uint64_t number = (uint64_t)c->known * SAMPLES + n;
        const int64_t i = (int64_t)(number % (uint64_t)c->G);
        const int64_t row = (int64_t)(number * 7919 % (uint64_t)stride->module[i].end), K = stride->module[i].K;
        const int64_t column = (int64_t)(number / (uint64_t)c->G % (uint64_t)K), N = stride->N;
        const real *weight = (const real *)c->weight_hh + row * N + stride->module[i].start + column;
        const real *packed = (const real *)c->packed + stride->module[i].weights + column * stride->module[i].ld + row;
        if (memcmp(weight, packed, sizeof(real)) != 0) return 0;
        if (c->I == 0) continue;
        const int64_t unit = (int64_t)(number * 7919 % (uint64_t)N), input = (int64_t)(number % (uint64_t)c->I);
        weight = (const real *)c->weight_ih + unit * c->I + input;
        packed = (const real *)c->packed + stride->weight_ih + input * stride->ldn + unit;
        if (memcmp(weight, packed, sizeof(real)) != 0) return 0;
    }
    return 1;
}

INLINE int is_due(const Step *c, int64_t i) { return c->t % c->modules[c->G + i] == 0; }

enum { SPAN = 256 / LANES }; /* vectors of a message that one task makes */

static void speak_part(void *context, int64_t task, int64_t worker) {
    const Stride *stride = context;
    const Step *c = stride->call;
    int64_t i = 0;
    (void)worker;
    for (;; i++) {
        if (!stride->all && !is_due(c, i)) continue;
        const int64_t parts = (stride->module[i].ld / LANES + SPAN - 1) / SPAN;
        if (task < parts) break;
        task -= parts;
    }
    Product product = {
        .X = (const real *)c->said + stride->module[i].start, .xm = stride->row, .xj = 1,
        .Y = (const real *)c->packed + stride->module[i].weights, .ly = stride->module[i].ld,
        .C = (real *)c->said + stride->module[i].message, .lc = stride->row,
        .depth = stride->module[i].K,
    };
    multiply(c->B, task * SPAN * LANES, smaller(SPAN, stride->module[i].ld / LANES - task * SPAN), &product);
}

static void speak(Stride *stride, int64_t all) {
    const Step *c = stride->call;
    int64_t parts = 0;
    double work = 0;
    for (int64_t i = 0; i < c->G; i++) {
        if (!all && !is_due(c, i)) continue;
        parts += (stride->module[i].ld / LANES + SPAN - 1) / SPAN;
        work += (double)(stride->module[i].ld * stride->module[i].K * c->B);
    }
    stride->all = all;
    cwrnn_parallel(speak_part, stride, parts, smaller(c->threads, 1 + (int64_t)(work / WORTH_A_THREAD_IN_A_STEP)));
}

EXPORT int NAME(step)(const Step *c) {
    Stride *stride = make_stride(c);
    if (stride == NULL) return OUT_OF_MEMORY;
    if (!same_weights(stride)) {
        free(stride);
        return OTHER_WEIGHTS;
    }
    const int64_t N = stride->N, row = stride->row;
    real *said = c->said;
    int64_t known = c->known;
    for (int64_t b = 0; known && b < c->B; b++)
        known = memcmp(said + b * row, (const real *)c->h + b * c->h_b, (size_t)N * sizeof(real)) == 0;
    if (!known) {
        for (int64_t b = 0; b < c->B; b++) copy(said + b * row, (const real *)c->h + b * c->h_b, N);
        speak(stride, 1);
    }
    for (int64_t i = 0; i < c->G; i++) {
        if (!is_due(c, i)) continue;
        const int64_t start = stride->module[i].start, end = stride->module[i].end, K = stride->module[i].K;
        Product drive = {
            .X = c->input, .xm = c->input_b, .xj = 1,
            .Y = (const real *)c->packed + stride->weight_ih + start, .ly = stride->ldn,
            .C = said + stride->drive, .lc = row,
            .depth = c->I,
        };
        multiply(c->B, 0, round_up(K) / LANES, &drive);
        for (int64_t b = 0; b < c->B; b++) {
            real *a = said + b * row + stride->drive, *h = said + b * row + start;
            if (c->bias != NULL) add(a, (const real *)c->bias + start, K);
            for (int64_t j = i; j < c->G; j++) add(a, said + b * row + stride->module[j].message + start, end - start);
            for (int64_t k = 0; k < K; k += LANES) store(a + k, activate(load(a + k), c->rectify));
            copy(h, a, K);
        }
    }
    for (int64_t b = 0; b < c->B; b++) {
        copy((real *)c->next + b * N, said + b * row, N);
        copy((real *)c->output + b * N, said + b * row, N);
    }
    speak(stride, 0);
    free(stride);
    return 0;
}
