/* Working memory, and how many workers a call is worth. To be included after vectors.h. */

#include <stdlib.h>

#include "cpu.h"

/* multiply-adds that justify another thread: some 20 microseconds of work */
#define WORTH_A_THREAD 6e5

/* More numbers or bytes than any memory has. Sizes stop here instead of overflowing: an axis that is expanded, with a
 * stride of 0, may have 2^62 elements. */
#define LARGEST_SIZE ((int64_t)1 << 60)

/* How many threads from 1 to `most` so many units of work justify, if each one is worth `worth` of them. */
INLINE int64_t threads_worth(double work, double worth, int64_t most) {
    const double more = work / worth;
    return larger(1, more < (double)most ? smaller(most, 1 + (int64_t)more) : most);
}

INLINE int64_t workers_for(double work, int64_t tasks, int64_t threads) {
    return threads_worth(work, WORTH_A_THREAD, smaller(threads, tasks));
}

/* The size a b, at most LARGEST_SIZE. */
INLINE int64_t times(int64_t a, int64_t b) {
    int64_t size;
    return __builtin_mul_overflow(a, b, &size) ? LARGEST_SIZE : smaller(size, LARGEST_SIZE);
}

/* Reserves room for n numbers, and returns their place. */
INLINE int64_t reserve(int64_t *size, int64_t n) {
    int64_t at = *size;
    *size = smaller(at + round_up(n + LANES), LARGEST_SIZE); /* a vector may reach beyond the end */
    return at;
}

/* New memory for `count` objects of `size` bytes, aligned to a cache line; NULL if there is none. */
INLINE void *allocate(int64_t count, size_t size) {
    void *memory = NULL;
    const int64_t bytes = times(larger(count, 1), (int64_t)size);
    if (posix_memalign(&memory, 64, (size_t)bytes) != 0) return NULL;
    cwrnn_prefer_large_pages(memory, bytes);
    return memory;
}
