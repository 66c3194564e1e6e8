/* Threads without an OpenMP runtime of our own, and the instruction sets of this processor.
 *
 * torch's threads wait for work by spinning. A second team would compete with them for the cores, so this file borrows
 * torch's: Python passes GOMP_parallel of the runtime that torch has loaded. Without that runtime, threads are made for
 * the call and joined at its end; so too in a forked child, where the team no longer exists and a call of it would never
 * return. Nothing else in this file is kept from call to call, so any number of Python threads may call at once.
 *
 * Every thread rounds as the caller does: torch.set_flush_denormal changes the mode of the calling thread alone, and the
 * results must not depend on how many threads compute them. */

#include "cpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif
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

/* The mode of this thread's arithmetic: how it rounds, and whether denormal numbers become zero. */
static uint64_t get_mode(void) {
#if defined(__x86_64__)
    return _mm_getcsr() & ~(unsigned)_MM_EXCEPT_MASK;
#elif defined(__aarch64__)
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
#else
    return 0;
#endif
}

static void set_mode(uint64_t mode) {
#if defined(__x86_64__)
    _mm_setcsr((unsigned)mode | (_mm_getcsr() & _MM_EXCEPT_MASK));
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
#else
    (void)mode;
#endif
}

uint64_t cwrnn_flush_subnormals(void) {
    const uint64_t mode = get_mode();
#if defined(__x86_64__)
    set_mode(mode | 0x8040); /* subnormal results and operands become zero */
#elif defined(__aarch64__)
    set_mode(mode | 1 << 24);
#endif
    return mode;
}

void cwrnn_restore_mode(uint64_t mode) { set_mode(mode); }

typedef struct {
    Body *body;
    void *context;
    int64_t tasks;
    uint64_t mode; /* of the caller */
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

/* `work` in the caller's mode; the thread belongs to torch, and gets its own mode back. */
static void work_in_mode(void *data) {
    const Team *team = data;
    const uint64_t own = get_mode();
    set_mode(team->mode);
    work(data);
    set_mode(own);
}

static void *work_in_thread(void *data) {
    work_in_mode(data);
    return NULL;
}

void cwrnn_parallel(Body *body, void *context, int64_t tasks, int64_t threads) {
    enum { MAX_THREADS = 256 };
    Team team = {.body = body, .context = context, .tasks = tasks, .mode = get_mode()};
    if (threads > tasks) threads = tasks;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    Parallel *parallel = borrowed;
    if (threads <= 1) {
        work(&team);
    } else if (parallel != NULL) {
        parallel(work_in_mode, &team, (unsigned)threads, 0);
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
