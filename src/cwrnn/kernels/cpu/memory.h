/* Working memory, and how many workers a call is worth. To be included after vectors.h. */

#include <stdlib.h>

#include "cpu.h"

/* multiply-adds that justify another thread: some 20 microseconds of work */
#define WORTH_A_THREAD 6e5

INLINE int64_t workers_for(double work, int64_t tasks, int64_t threads) {
    return larger(smaller(smaller(threads, tasks), 1 + (int64_t)(work / WORTH_A_THREAD)), 1);
}

/* Reserves room for n numbers, and returns their place. */
INLINE int64_t reserve(int64_t *size, int64_t n) {
    int64_t at = *size;
    *size += round_up(n + LANES); /* a vector may reach beyond the end */
    return at;
}

/* New memory for `count` objects of `size` bytes, aligned to a cache line; NULL if there is none. */
INLINE void *allocate(int64_t count, size_t size) {
    void *memory = NULL;
    const int64_t bytes = larger(count, 1) * (int64_t)size;
    if (posix_memalign(&memory, 64, (size_t)bytes) != 0) return NULL;
    cwrnn_prefer_large_pages(memory, bytes);
    return memory;
}
