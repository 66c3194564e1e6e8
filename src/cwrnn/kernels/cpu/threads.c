/* Threads without an OpenMP runtime of our own, and which instruction sets this processor has.
 *
 * torch's threads wait for work by spinning. A second team would fight them for the cores, so we borrow torch's: Python
 * hands us GOMP_parallel from the runtime that torch itself has loaded. Where there is none, and in a forked child, where
 * the team is gone and asking it for work would wait for ever, threads are made for the call and joined at its end.
 * Nothing else in this file lives from call to call, so any number of Python threads may call at once. */

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
    enum { MOST = 256 };
    Team team = {.body = body, .context = context, .tasks = tasks};
    if (threads > tasks) threads = tasks;
    if (threads > MOST) threads = MOST;
    Parallel *parallel = borrowed;
    if (threads <= 1) {
        work(&team);
    } else if (parallel != NULL) {
        parallel(work, &team, (unsigned)threads, 0);
    } else {
        pthread_t thread[MOST];
        int64_t made = 0;
        while (made < threads - 1 && pthread_create(&thread[made], NULL, work_in_thread, &team) == 0) made++;
        work(&team);
        for (int64_t i = 0; i < made; i++) pthread_join(thread[i], NULL);
    }
}

void cwrnn_prefer_large_pages(void *memory, int64_t bytes) {
#if defined(__linux__)
    /* a fault for every small page costs more than filling it; below some megabytes there are few */
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)memory + page - 1) / page * page;
    const int64_t rest = bytes - (int64_t)(from - (uintptr_t)memory);
    if (memory != NULL && rest >= 4 << 20) madvise((void *)from, (size_t)rest, MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

EXPORT int cwrnn_abi(void) { return CWRNN_ABI; }

/* Whether this processor executes what was compiled for `isa`. */
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
