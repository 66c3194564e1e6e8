/* What the emulator tells the checks of checks.cpp about a launch. Without CHECKED, all of this is nothing. */

#ifndef CWRNN_CHECKS
#define CWRNN_CHECKS

#ifdef CHECKED

/* Functions of the emulator whose own accesses to memory are not reported. */
#define QUIET __attribute__((no_sanitize("thread", "undefined")))
/* A report names one address of the code, and thereby all functions that are inlined there. */
#define INLINE inline __attribute__((always_inline))
#define ALIGNED(bytes) alignas(bytes)

namespace checks {

/* How an access differs from a plain one. */
enum Kind {
    PLAIN,
    THROUGH, /* past the first cache */
    ATOMIC,  /* of a flag or a word with a tag: several threads may make it at once */
};

extern bool watching; /* whether the accesses of ordinary code are those of a program */

/* The fiber that runs: its thread, counted over all blocks, and its stack. */
void run(int thread, const char *stack);

void begin_launch(int64_t columns, int64_t rows, int threads, int granule, int stack_size);
void end_launch();
void begin_block(int block, const char *shared, int size);
void end_block(int block);

void access(const void *address, int size, bool write, Kind kind);
/* A background copy begins, and is there. */
void begin_copy(const void *to, const void *from, int size); /* from NULL: zeros */
void end_copy(const void *to, const void *from, int size);

/* The running thread comes to a barrier of its block; the last one orders all that came. A barrier is a number. */
void arrive(int barrier);
void pass(int barrier);

/* A number in memory that orders threads: a release and what sees it. */
void release(const void *number);
void acquire(const void *number);
void glance(const void *number);

/* Ends the launch: is in launch.h. */
[[noreturn]] void stop();

/* Ordinary code that runs while this lives belongs to the emulator. */
struct Unwatched {
    bool before;
    QUIET Unwatched() : before(watching) { watching = false; }
    QUIET ~Unwatched() { watching = before; }
};

} // namespace checks

#define UNWATCHED checks::Unwatched unwatched
#define CHECK(call) checks::call

#else

#define QUIET
#define INLINE inline
#define ALIGNED(bytes)
#define UNWATCHED
#define CHECK(call)

#endif
#endif
