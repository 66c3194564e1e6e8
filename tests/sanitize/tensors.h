/* Random numbers, and tensors whose first or last element lies at the edge of what may be touched. */

#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

typedef REAL real;

enum { MOST_TENSORS = 64, PAGE = 4096 };

/* What one thread has drawn and allocated for the call in hand. */
static _Thread_local struct {
    uint64_t random, seed;
    int64_t number; /* of the call */
    int tensors;
    struct {
        void *memory;
        size_t mapped; /* bytes, or 0 if it comes from malloc */
    } tensor[MOST_TENSORS];
} own;

static uint64_t draw(void) {
    own.random ^= own.random << 13;
    own.random ^= own.random >> 7;
    own.random ^= own.random << 17;
    return own.random * 0x2545F4914F6CDD1Du >> 16;
}

/* A number from `least` to `most`. */
static int64_t pick(int64_t least, int64_t most) { return least + (int64_t)(draw() % (uint64_t)(most - least + 1)); }

/* True in so many of a hundred cases. */
static int chance(int64_t percent) { return pick(0, 99) < percent; }

static _Noreturn void fail(const char *what, const char *why) {
    fprintf(stderr, "%s, call %" PRId64 " of seed %" PRIu64 ": %s\n", what, own.number, own.seed, why);
    exit(1);
}

/* Memory for `count` numbers of `size` bytes, filled with NaN; NULL if there are none, as torch has it. It
 * begins or ends at a page that must not be touched, or it comes from malloc, whose edges the address sanitizer watches. */
static void *allocate(int64_t count, size_t size) {
    if (count == 0) return NULL;
    const size_t bytes = (size_t)count * size;
    if (own.tensors == MOST_TENSORS) fail("allocate", "too many tensors");
    char *memory, *tensor;
    size_t mapped = 0;
    if (chance(50)) {
        const size_t before = (size_t)pick(0, 3) * size;
        memory = malloc(before + bytes);
        if (memory == NULL) fail("allocate", "no memory");
        tensor = memory + before;
    } else {
        const size_t inner = (bytes + PAGE - 1) / PAGE * PAGE;
        mapped = inner + 2 * PAGE;
        memory = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) fail("allocate", "no memory");
        mprotect(memory, PAGE, PROT_NONE);
        mprotect(memory + PAGE + inner, PAGE, PROT_NONE);
        tensor = memory + PAGE + (chance(50) ? 0 : inner - bytes);
    }
    for (size_t i = 0; i < bytes; i++) tensor[i] = (char)0xff;
    own.tensor[own.tensors].memory = memory;
    own.tensor[own.tensors++].mapped = mapped;
    return tensor;
}

static void free_tensors(void) {
    for (int i = 0; i < own.tensors; i++) {
        if (own.tensor[i].mapped > 0)
            munmap(own.tensor[i].memory, own.tensor[i].mapped);
        else
            free(own.tensor[i].memory);
    }
    own.tensors = 0;
}

static real *make_tensor(int64_t numbers) { return allocate(numbers, sizeof(real)); }

/* A tensor of numbers from -scale to scale. */
static real *draw_tensor(int64_t numbers, double scale) {
    real *tensor = make_tensor(numbers);
    for (int64_t i = 0; i < numbers; i++) tensor[i] = (real)(scale * ((double)pick(-1000000, 1000000) / 1e6));
    return tensor;
}

/* Zeros for the reference, freed by the caller. */
static double *make_doubles(int64_t numbers) {
    double *memory = calloc((size_t)numbers + 1, sizeof(double));
    if (memory == NULL) fail("make_doubles", "no memory");
    return memory;
}

/* Fails if a number is not close to the expected one; frees the expected numbers. A tensor that is not wanted is NULL. */
static void compare(const char *what, const real *tensor, double *expected, int64_t numbers) {
    const double tolerance = REAL_BITS == 32 ? 2e-3 : 1e-10;
    for (int64_t i = 0; tensor != NULL && i < numbers; i++) {
        if (fabs((double)tensor[i] - expected[i]) <= tolerance * (1 + fabs(expected[i]))) continue;
        char why[128];
        snprintf(why, sizeof why, "number %" PRId64 " is %g instead of %g", i, (double)tensor[i], expected[i]);
        fail(what, why);
    }
    free(expected);
}
