/* Threads without an OpenMP runtime of our own, and the instruction sets of this processor.
 *
 * torch's threads wait for work by spinning. A second team would compete with them for the cores, so this file borrows
 * torch's: Python passes GOMP_parallel of the runtime that torch has loaded. Without that runtime, threads are made for
 * the call and joined at its end; so too in a forked child, where the team no longer exists and a call of it would never
 * return. Nothing else in this file is kept from call to call, so any number of Python threads may call at once. */

#include "cpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

typedef void Parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);

static _Atomic(Parallel *) borrowed;

static void forget_team(void) { borrowed = NULL; }

EXPORT void cwrnn_borrow(Parallel *parallel) {
    static atomic_flag registered = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&registered)) pthread_atfork(NULL, NULL, forget_team);
    borrowed = parallel;
}

typedef struct {
    Body *body;
    void *context;
    int64_t tasks;
    atomic_int_fast64_t next, workers;
} Team;

static void work(void *data) {
    Team *team = data;
    int64_t worker = atomic_fetch_add(&team->workers, 1);
    for (;;) {
        int64_t task = atomic_fetch_add(&team->next, 1);
        if (task >= team->tasks) return;
        team->body(team->context, task, worker);
    }
}

static void *work_in_thread(void *data) {
    work(data);
    return NULL;
}

void cwrnn_parallel(Body *body, void *context, int64_t tasks, int64_t threads) {
    enum { MAX_THREADS = 256 };
    Team team = {.body = body, .context = context, .tasks = tasks};
    if (threads > tasks) threads = tasks;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    Parallel *parallel = borrowed;
    if (threads <= 1) {
        work(&team);
    } else if (parallel != NULL) {
        parallel(work, &team, (unsigned)threads, 0);
    } else {
        pthread_t thread[MAX_THREADS];
        int64_t made = 0;
        while (made < threads - 1 && pthread_create(&thread[made], NULL, work_in_thread, &team) == 0) made++;
        work(&team);
        for (int64_t i = 0; i < made; i++) pthread_join(thread[i], NULL);
    }
}

void cwrnn_prefer_large_pages(void *memory, int64_t bytes) {
#if defined(__linux__)
    /* a page fault costs more than filling a small page; below some megabytes there are few faults */
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)memory + page - 1) / page * page;
    const int64_t rest = bytes - (int64_t)(from - (uintptr_t)memory);
    if (memory != NULL && rest >= 4 << 20) madvise((void *)from, (size_t)rest, MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

EXPORT int cwrnn_abi(void) { return CWRNN_ABI; }

/* True if this processor can execute code compiled for `isa`. */
EXPORT int cwrnn_has(const char *isa) {
    if (strcmp(isa, "baseline") == 0) return 1;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (strcmp(isa, "avx2") == 0) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (strcmp(isa, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
#endif
    return 0;
}
