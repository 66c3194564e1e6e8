/* Declarations that are the same for every instruction set and precision: the description of each call, and threads. */

#ifndef CWRNN_CPU_H
#define CWRNN_CPU_H

#include <stdint.h>

/* To be changed with every structure or function that Python uses: Python refuses a library with another number. */
#define CWRNN_ABI 7

#define EXPORT __attribute__((visibility("default")))

/* The result of a call. */
enum { FINE = 0, OUT_OF_MEMORY = 1, OTHER_WEIGHTS = 2 };

/* The cells. An LSTM has four gates, i, f, g and o, a GRU has three, r, z and n; the others count as one gate. */
enum { TANH = 0, RELU = 1, LSTM = 2, GRU = 3 };

/* One call, for one precision. Python fills it as an array of 64-bit integers, so every member has 64 bits.
 * Strides count elements; features are always contiguous. A stride of 0 means that all replicas share the tensor.
 * "ticks" is (S, the states of module 0 (n_0 + 1, B, K_0), those of module 1, ...). Weights and biases are gate-major: all
 * units of the first gate, then those of the second. A state is h, or for an LSTM h and c side by side: below, H is N or 2 N. */
typedef struct {
    int64_t S, T, B, I, G, cell, threads;
    const void *input;
    int64_t input_s, input_t, input_b;
    const void *weight_ih;
    int64_t weight_ih_s;
    const void *weight_hh;
    int64_t weight_hh_s;
    const void *bias; /* or NULL; a GRU has four parts, the last of which is added to the messages to n */
    int64_t bias_s;
    const void *weight_ch; /* (S, 3 N), the LSTM's peepholes of i, f and o, or NULL */
    int64_t weight_ch_s;
    const int64_t *lengths; /* (S, B), or NULL if every sequence has T steps */
    int64_t lengths_s;
    void *ticks; /* forward writes them unless this is NULL, backward reads them */
    void *kept;  /* the same for the gates of LSTM and GRU: KEPT_ROOM numbers more than kept_of(cell) times the ticks */
    /* forward */
    const void *h0; /* (S, B, H), or NULL for zero */
    int64_t h0_s, h0_b;
    void *final; /* (S, B, H): the state at each sequence's own end */
    void *held;  /* (S, T, B, N): the state at every step, zero beyond a sequence's end; or NULL if not wanted */
    /* backward: the gradients of the tensors that forward wrote, each of which may be NULL */
    const void *g_ticks, *g_final, *g_held;
    int64_t g_held_s, g_held_t, g_held_b;
    /* and the gradients of the tensors that it read, NULL where not wanted */
    void *g_input;     /* (S, T, B, I) */
    void *g_weight_ih; /* (S, gates N, I) */
    void *g_weight_hh; /* (S, gates N, N) */
    void *g_bias;      /* (S, biases N) */
    void *g_h0;        /* (S, B, H) */
    void *g_weight_ch; /* (S, 3 N) */
    int64_t modules[]; /* G periods, G sizes, and G first ticks, counted from the start of the sequence */
} Call;

/* One time step, with weights that were packed before. */
typedef struct {
    int64_t B, I, G, cell, threads;
    const void *weight_ih, *weight_hh;
    void *packed;
    int64_t *sizes; /* step_sizes writes the sizes of `packed` and of a row of `messages` here */
    /* step: h (B, H) at t - 1 becomes next (B, H) at t */
    const void *input;
    int64_t input_b;
    const void *bias, *weight_ch, *h;
    int64_t h_b;
    void *next, *output; /* the new state for the next step; its h (B, N) once more, for the caller */
    void *messages;      /* a state and the messages of all modules in that state; the step leaves those of `next` */
    int64_t known;       /* how many steps have written `messages`; 0 if it holds nothing yet */
    int64_t t;           /* modulo the periods' least common multiple */
    /* step_rows: the same for sequences that have clocks of their own. If `rows` is NULL, sequence b has clock b, and the
     * rest is as above. Otherwise it has row rows[b] of `messages`, which also holds its h, and of the following; no two
     * sequences have the same row. The step changes them all, and reads and writes neither h nor next. */
    const int64_t *rows;
    int64_t *clocks;   /* the step adds `advance` to them */
    int64_t *made;     /* true if the messages of the row are those of its h */
    void *cells;       /* c of an LSTM, N numbers in a row */
    int64_t advance;
    int64_t modules[]; /* G sizes and G periods */
} Step;

/* S LSTMs, each of which reads its own sequence (lstm.c). Gates are in the order i, f, g, o. */
typedef struct {
    int64_t S, T, I, N, threads;
    const void *input; /* (S, T, I) */
    int64_t input_s, input_t;
    const void *weight_ih; /* (S, 4 N, I) */
    int64_t weight_ih_s;
    const void *weight_hh; /* (S, 4 N, N) */
    int64_t weight_hh_s;
    const void *weight_ch; /* (S, 3, N), of i, f, o; or NULL */
    int64_t weight_ch_s;
    const void *bias; /* (S, 4 N) */
    int64_t bias_s;
    const int64_t *lengths; /* (S), or NULL if every sequence has T steps */
    void *kept;             /* forward writes it, backward reads it */
    int64_t *kept_size;     /* lstm_size writes the size of `kept` here */
    void *hidden;           /* (S, T, N), zero beyond a sequence's end */
    const void *g_hidden;   /* (S, T, N), steps contiguous */
    int64_t g_hidden_s;
    void *g_input; /* (S, T, I), or NULL if not wanted */
    void *g_weight_ih, *g_weight_hh, *g_weight_ch, *g_bias;
} Lstm;

/* Linear readouts of S replicas (readout.c). */
typedef struct {
    int64_t S, T, N, O, threads;
    const void *hidden; /* (S, T, N), steps contiguous */
    int64_t hidden_s;
    const void *weight; /* (S, O, N) */
    int64_t weight_s;
    const void *bias; /* (S, O) */
    int64_t bias_s;
    void *output;         /* (S, T, O) */
    const void *g_output; /* (S, T, O) */
    void *g_hidden, *g_weight, *g_bias;
} Linear;

/* Calls body(context, task, worker) once for every task, on at most `threads` threads; `worker` is the thread's number. */
typedef void Body(void *context, int64_t task, int64_t worker);
void cwrnn_parallel(Body *body, void *context, int64_t tasks, int64_t threads);

/* Makes this thread, and the threads of `cwrnn_parallel` that it calls, take subnormal numbers for zero. Returns the mode
 * of the thread's arithmetic before, which `cwrnn_restore_mode` sets again. */
uint64_t cwrnn_flush_subnormals(void);
void cwrnn_restore_mode(uint64_t mode);

/* Asks the system for large pages in memory that is about to be written for the first time, as numpy does. */
void cwrnn_prefer_large_pages(void *memory, int64_t bytes);

#endif
