/* Large blocks of memory for tensors, kept for a while after the tensor is freed.
 *
 * The C library returns blocks of some megabytes to the system as soon as they are free, and the system clears every page
 * before it lends it again. For a layer whose output is new at every call, this costs as much as computing the output. So
 * the block of a freed tensor is kept here, and the next tensor of about the same size gets it:
 *
 * - Kept and lent blocks together never exceed the most that was lent at once.
 * - A block that no tensor has needed for some seconds goes back to the system. A thread does this, which ends when
 *   nothing is kept any more. Before a fork all kept blocks go back.
 *
 * A tensor gets its block by DLPack, whose deleter needs no Python: tensors are freed on any thread, and also when the
 * process ends. */

#include "cpu.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

/* The address sanitizer does not know which part of a block is lent, so it is told (tests/sanitize). */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define ALLOW(memory, bytes) ASAN_UNPOISON_MEMORY_REGION(memory, (size_t)(bytes))
#define FORBID(memory, bytes) ASAN_POISON_MEMORY_REGION(memory, (size_t)(bytes))
#else
#define ALLOW(memory, bytes) ((void)(memory), (void)(bytes))
#define FORBID(memory, bytes) ((void)(memory), (void)(bytes))
#endif

/* Pages have 4, 16 or 64 KiB; where they have 4 KiB, large ones have 2 MiB. */
enum { SMALL_PAGE = 64 << 10, LARGE_PAGE = 2 << 20, MAX_DIMS = 8 };

/* More bytes than any memory has: sums of some sizes up to this cannot overflow. */
static const int64_t LARGEST_BLOCK = (int64_t)1 << 50;

enum { SECOND = 1000000000 }; /* nanoseconds */
static const int64_t LONGEST_PATIENCE = INT64_MAX / 2;

/* The structures of DLPack, in the layout that all its versions use for a tensor without a version number. */
typedef struct {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} Tensor;

typedef struct Managed {
    Tensor tensor;
    void *context;
    void (*deleter)(struct Managed *);
} Managed;

enum { ON_CPU = 1, FLOATING_POINT = 2 };

typedef struct Block {
    struct Block *next; /* in the list of kept blocks, the latest first */
    void *memory;
    int64_t bytes, kept_since; /* nanoseconds */
    Managed managed;
    int64_t shape[MAX_DIMS], strides[MAX_DIMS];
} Block;

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* signalled when `patience` changes */
    Block *kept;
    int64_t kept_bytes, lent_bytes, most_bytes; /* most_bytes: the most that was lent at once */
    int64_t patience;                           /* for how many nanoseconds a block is kept; 0 keeps none */
    int is_watched;                             /* true if the thread runs that returns old blocks */
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void lock(void) { pthread_mutex_lock(&pool.mutex); }
static void unlock(void) { pthread_mutex_unlock(&pool.mutex); }

/* Makes the condition that a thread waits for by the clock that nobody sets: the wall clock may jump by hours. */
static void make_condition(void) {
#if defined(__APPLE__)
    pthread_cond_init(&pool.changed, NULL);
#else
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&pool.changed, &attributes);
    pthread_condattr_destroy(&attributes);
#endif
}

/* Waits until the condition is signalled, and at most for so many nanoseconds. The caller holds the lock. */
static void wait_for_change(int64_t nanoseconds) {
    struct timespec time = {0};
#if !defined(__APPLE__)
    clock_gettime(CLOCK_MONOTONIC, &time);
#endif
    const int64_t end = time.tv_nsec + nanoseconds;
    time.tv_sec += (time_t)(end / SECOND);
    time.tv_nsec = (long)(end % SECOND);
#if defined(__APPLE__)
    pthread_cond_timedwait_relative_np(&pool.changed, &pool.mutex, &time);
#else
    pthread_cond_timedwait(&pool.changed, &pool.mutex, &time);
#endif
}

static void unlock_in_child(void) {
    pool.is_watched = 0; /* a child process has none of its parent's threads */
    make_condition();
    unlock();
}

static int64_t read_clock(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * SECOND + time.tv_nsec;
}

/* `bytes` of new memory, aligned to a large page; NULL if there is none. */
static void *map_memory(int64_t bytes) {
    char *memory = mmap(NULL, (size_t)(bytes + LARGE_PAGE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    const size_t before = (size_t)(-(uintptr_t)memory % LARGE_PAGE), after = LARGE_PAGE - before;
    if (before > 0) munmap(memory, before);
    munmap(memory + before + bytes, after);
    cwrnn_prefer_large_pages(memory + before, bytes);
    return memory + before;
}

static void free_blocks(Block *blocks) {
    while (blocks != NULL) {
        Block *block = blocks;
        blocks = block->next;
        ALLOW(block->memory, block->bytes);
        munmap(block->memory, (size_t)block->bytes);
        free(block);
    }
}

static Block *take_out(Block **place) {
    Block *block = *place;
    *place = block->next;
    pool.kept_bytes -= block->bytes;
    return block;
}

/* Takes out the blocks that must go back: those kept since that time or longer, and those for which there is no room. */
static Block *take_out_old(int64_t before) {
    Block *old = NULL, **place = &pool.kept;
    int64_t room = pool.most_bytes - pool.lent_bytes;
    while (*place != NULL) {
        if ((*place)->kept_since > before && (*place)->bytes <= room) {
            room -= (*place)->bytes;
            place = &(*place)->next;
        } else {
            Block *block = take_out(place);
            block->next = old;
            old = block;
        }
    }
    return old;
}

/* A child process would hold the kept blocks for ever, and its parent would have to copy every page that it writes. */
static void lock_for_fork(void) {
    lock();
    free_blocks(take_out_old(INT64_MAX));
}

__attribute__((constructor)) static void prepare(void) {
    make_condition();
    pthread_atfork(lock_for_fork, unlock, unlock_in_child);
}

/* The thread that returns old blocks to the system, and ends when nothing is kept. */
static void *watch(void *nothing) {
    (void)nothing;
    lock();
    for (;;) {
        Block *old = take_out_old(read_clock() - pool.patience);
        if (pool.kept == NULL) {
            pool.is_watched = 0;
            pool.most_bytes = pool.lent_bytes;
            unlock();
            free_blocks(old);
            return NULL;
        }
        unlock();
        free_blocks(old);
        lock();
        wait_for_change(pool.patience);
    }
}

/* Starts that thread unless it runs, and returns whether it runs. The caller holds the lock. */
static int start_watching(void) {
    if (!pool.is_watched) {
        pthread_t thread;
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before); /* leave signals to the program's own threads */
        pool.is_watched = pthread_create(&thread, NULL, watch, NULL) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (pool.is_watched) pthread_detach(thread);
    }
    return pool.is_watched;
}

/* The deleter of a tensor: keeps its block, or returns it to the system. */
static void give_back(Managed *managed) {
    Block *block = managed->context;
    FORBID(block->memory, block->bytes);
    lock();
    pool.lent_bytes -= block->bytes;
    const int keep = pool.patience > 0 && start_watching();
    if (keep) {
        block->kept_since = read_clock();
        block->next = pool.kept;
        pool.kept = block;
        pool.kept_bytes += block->bytes;
    }
    unlock();
    if (!keep) {
        block->next = NULL;
        free_blocks(block);
    }
}

/* Sets for how many nanoseconds blocks are kept from now on. Blocks that are already kept go back to the system. */
EXPORT void cwrnn_keep(int64_t patience) {
    lock();
    pool.patience = patience < LONGEST_PATIENCE ? patience : LONGEST_PATIENCE;
    pool.most_bytes = pool.lent_bytes;
    Block *all = take_out_old(INT64_MAX);
    pthread_cond_signal(&pool.changed);
    unlock();
    free_blocks(all);
}

/* Rounds up to one of eight sizes between successive powers of two, so that batches of similar size share blocks. */
static int64_t round_size(int64_t bytes) {
    int64_t step = SMALL_PAGE;
    while (step * 16 <= bytes) step *= 2;
    return (bytes + step - 1) / step * step;
}

/* Takes out the smallest kept block of at least `bytes`, and at most twice as many; NULL if there is none. */
static Block *find_block(int64_t bytes) {
    Block **best = NULL;
    for (Block **place = &pool.kept; *place != NULL; place = &(*place)->next) {
        const int64_t has = (*place)->bytes;
        if (has >= bytes && has <= 2 * bytes && (best == NULL || has < (*best)->bytes)) best = place;
    }
    return best == NULL ? NULL : take_out(best);
}

static Block *make_block(int64_t bytes) {
    Block *block = malloc(sizeof *block);
    if (block == NULL) return NULL;
    block->bytes = bytes;
    block->memory = map_memory(bytes);
    if (block->memory != NULL) return block;
    free(block);
    return NULL;
}

/* A new tensor of floats or doubles (`bits` is 32 or 64), as DLPack; NULL if there is no memory for it. */
EXPORT void *cwrnn_lend(int64_t bits, int64_t ndim, const int64_t *shape) {
    int64_t bytes = bits / 8;
    if (ndim > MAX_DIMS) return NULL;
    for (int64_t d = 0; d < ndim; d++)
        if (__builtin_mul_overflow(bytes, shape[d], &bytes) || bytes > LARGEST_BLOCK) return NULL;
    const int64_t wanted = bytes;
    bytes = round_size(bytes);

    lock();
    Block *block = find_block(bytes), *old = NULL;
    if (block != NULL) bytes = block->bytes;
    pool.lent_bytes += bytes;
    if (pool.lent_bytes > pool.most_bytes) pool.most_bytes = pool.lent_bytes;
    if (block == NULL) old = take_out_old(0);
    unlock();
    free_blocks(old);
    if (block == NULL) block = make_block(bytes);
    if (block == NULL) {
        lock();
        pool.lent_bytes -= bytes;
        pool.most_bytes = pool.kept_bytes + pool.lent_bytes; /* this block was counted, but never lent */
        unlock();
        return NULL;
    }
    ALLOW(block->memory, wanted);
    FORBID((char *)block->memory + wanted, bytes - wanted);
    for (int64_t d = ndim - 1, stride = 1; d >= 0; stride *= shape[d--]) {
        block->shape[d] = shape[d];
        block->strides[d] = stride;
    }
    block->managed = (Managed){
        .tensor = {.data = block->memory, .device_type = ON_CPU, .ndim = (int32_t)ndim,
                   .code = FLOATING_POINT, .bits = (uint8_t)bits, .lanes = 1, .shape = block->shape, .strides = block->strides},
        .context = block,
        .deleter = give_back,
    };
    return &block->managed;
}

/* Writes how many bytes are kept, and how many are lent. */
EXPORT void cwrnn_count(int64_t counts[2]) {
    lock();
    counts[0] = pool.kept_bytes;
    counts[1] = pool.lent_bytes;
    unlock();
}
