/* Working memory, and how many workers a call is worth. After vectors.h. */

#include <stdlib.h>

#include "cpu.h"

/* a thread is worth waking for some 20 microseconds of work: so many multiply-adds */
#define WORTH_A_THREAD 6e5

INLINE int64_t workers_for(double work, int64_t tasks, int64_t threads) {
    return larger(smaller(smaller(threads, tasks), 1 + (int64_t)(work / WORTH_A_THREAD)), 1);
}

INLINE int64_t reserve(int64_t *size, int64_t n) {
    int64_t at = *size;
    *size += round_up(n + LANES); /* a vector may reach beyond the end */
    return at;
}

INLINE void *aligned(int64_t count, size_t size) {
    void *memory = NULL;
    const int64_t bytes = larger(count, 1) * (int64_t)size;
    if (posix_memalign(&memory, 64, (size_t)bytes) != 0) return NULL;
    cwrnn_prefer_large_pages(memory, bytes);
    return memory;
}
