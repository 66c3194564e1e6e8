/* The functions of primitives.cuh on a CPU, so that the CUDA programs can be tested without a GPU.
 *
 * Every thread of a block is a fiber with a stack of its own. A fiber runs until it waits: at a barrier, at a function that
 * all threads of a warp enter together, or for a flag. Then the next one runs. Blocks sleep now and then, so that others get
 * far ahead of them. A launch in which all fibers wait for ever ends with an error. Shared memory starts as NaN, is guarded
 * at its end, and sees a background copy only when the thread has waited for it. With CHECKED, every function tells the checks
 * of checks.cpp what memory it accesses and which threads it orders. */

#ifndef CWRNN_EMULATED
#define CWRNN_EMULATED

/* Every program is compiled with this file, so it includes no header that takes long to read. */
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "checks.h"

/* What the programs call of <cmath>. */
extern "C" {
float exp2f(float x) noexcept;
float fmaf(float x, float y, float z) noexcept;
float tanhf(float x) noexcept;
}

typedef long long int64;
typedef unsigned int uint32;
typedef unsigned short uint16;

struct ALIGNED(16) float4 {
    float x, y, z, w;
};
struct ALIGNED(8) float2 {
    float x, y;
};
struct ALIGNED(16) uint4 {
    uint32 x, y, z, w;
};
struct ALIGNED(8) uint2 {
    uint32 x, y;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline uint4 make_uint4(uint32 x, uint32 y, uint32 z, uint32 w) { return {x, y, z, w}; }
inline uint2 make_uint2(uint32 x, uint32 y) { return {x, y}; }
template <class T> inline T min(T a, T b) { return a < b ? a : b; }
template <class T> inline T max(T a, T b) { return a > b ? a : b; }

#define DEVICE INLINE
#define PROGRAM(threads) extern "C" void
#define PROGRAM_BLOCKS(threads, blocks) extern "C" void
#define CALL(type, name) const type &name
#define SHARED_MEMORY(name) char *name = emulator::shared_memory()

namespace emulator {

const int LANES = 32, STACK = 96 * 1024, GUARD = 256;

/* What the lanes of a warp pass to each other, and get. */
struct Exchange {
    uint32 in[LANES][12], out[LANES][4];
    const char *rows[LANES];
};

/* A lane that is done with a round may begin the next one while others still read what they got, so rounds use two places
 * by turns. It cannot begin the one after that: all lanes must have begun the next one first. */
struct Warp {
    int waiting = 0, members = 0;
    int64 round = 0;
    Exchange exchanges[2];
};

struct Block {
    int64 number, row, order; /* its column, its row, and its number among all blocks of the launch */
    int threads, waiting[3] = {0, 0, 0}, done = 0;
    int64 asleep = -1; /* the night in which the block sleeps */
    int64 round[3] = {0, 0, 0};
    char *shared;
    Warp *warps;
};

struct Fiber {
    void *stack_pointer = nullptr;
    char *stack = nullptr;
    Block *block = nullptr;
    int thread = 0, number = 0; /* of a thread in its block, and in the launch */
    Fiber *next = nullptr, *before = nullptr;
};

inline Fiber *current, home;
inline int64 idle, fibers, night;
inline bool stuck, failed;

extern "C" void emulator_switch(void **from, void *to);
#if defined(__x86_64__)
asm(".text\n.weak emulator_switch\n.hidden emulator_switch\nemulator_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nretq\n");
#else
#error "the emulator switches fibers on x86-64 only"
#endif

inline void switch_to(Fiber *fiber) {
    Fiber *before = current;
    current = fiber;
    CHECK(run(fiber->number, fiber->stack));
    if (fiber != before) emulator_switch(&before->stack_pointer, fiber->stack_pointer);
}

/* The next fiber of a block that is awake; home if there is none before it. */
inline Fiber *find_awake(Fiber *fiber) {
    while (fiber != &home && fiber->block->asleep == night) fiber = fiber->next;
    return fiber;
}

/* Lets the other fibers run. */
inline void yield() {
    if (++idle > 1000 + 50 * fibers) {
        stuck = true;
        switch_to(&home);
    }
    switch_to(find_awake(current->next));
}

inline void progress() { idle = 0; }

/* Waits for all lanes of the warp. The last one runs `work` for all of them. */
template <class Work> inline void together(const Work &work) {
    UNWATCHED;
    Warp &warp = current->block->warps[current->thread / LANES];
    int64 round = warp.round;
    if (++warp.waiting == warp.members) {
        work(warp);
        warp.waiting = 0;
        warp.round++;
        progress();
    } else
        while (warp.round == round) yield();
}

inline char *shared_memory() {
    UNWATCHED;
    return current->block->shared;
}

QUIET inline int lane() { return current->thread % LANES; }
QUIET inline Exchange &exchange() {
    Warp &warp = current->block->warps[current->thread / LANES];
    return warp.exchanges[warp.round % 2];
}

} // namespace emulator

QUIET inline int thread_number() { return emulator::current->thread; }
QUIET inline int64 block_number() { return emulator::current->block->number; }
QUIET inline int64 block_row() { return emulator::current->block->row; }

namespace emulator {

inline void join(int barrier, int count) {
    UNWATCHED;
    Block &block = *current->block;
    int64 round = block.round[barrier];
    CHECK(arrive(barrier));
    if (++block.waiting[barrier] == count) {
        CHECK(pass(barrier));
        block.waiting[barrier] = 0;
        block.round[barrier]++;
        progress();
    } else
        while (block.round[barrier] == round) yield();
}

} // namespace emulator

QUIET inline void join_block() { emulator::join(0, emulator::current->block->threads); }
template <int COUNT> inline void join_threads() { emulator::join(1, COUNT); }
template <int COUNT> inline void join_others() { emulator::join(2, COUNT); }

INLINE void write_shared(int *number, int value) {
    UNWATCHED;
    CHECK(access(number, 4, true, checks::ATOMIC));
    CHECK(release(number));
    *number = value;
    emulator::progress();
}

INLINE int read_shared(const int *number) {
    UNWATCHED;
    emulator::yield();
    CHECK(access(number, 4, false, checks::ATOMIC));
    CHECK(acquire(number));
    return *number;
}

inline void pause() {}

inline void join_warp() {
    CHECK(arrive(-1));
    emulator::together([](emulator::Warp &) { CHECK(pass(-1)); });
}

inline uint32 bits_of(float x) {
    uint32 y;
    memcpy(&y, &x, 4);
    return y;
}

inline float float_of(uint32 x) {
    float y;
    memcpy(&y, &x, 4);
    return y;
}

inline float shuffle(float x, int from) {
    using namespace emulator;
    UNWATCHED;
    Exchange &lanes = exchange();
    lanes.in[lane()][0] = bits_of(x);
    together([](Warp &) {});
    return float_of(lanes.in[from][0]);
}

inline float shuffle_xor(float x, int mask) { return shuffle(x, emulator::lane() ^ mask); }

inline uint32 join_bits_of_warp(uint32 word) {
    using namespace emulator;
    UNWATCHED;
    Exchange &lanes = exchange();
    lanes.in[lane()][0] = word;
    together([](Warp &) {});
    for (int i = 0; i < 32; i++) word |= lanes.in[i][0];
    return word;
}

inline bool any_of_warp(bool x) { return join_bits_of_warp(x) != 0; }
inline float select(bool first, float x, float y) { return first ? x : y; }

inline float tanh_fast(float x) { return tanhf(x); }
inline float power_of_two(float x) { return exp2f(x); }
inline int count_bits(uint32 x) { return __builtin_popcount(x); }
inline float multiply_add(float x, float y, float z) { return x * y + z; }
inline float absolute(float x) { return x < 0 ? -x : x; }
inline float reciprocal(float x) { return 1 / x; }

inline float half_to_float(uint16 x) {
    _Float16 y;
    memcpy(&y, &x, 2);
    return (float)y;
}

inline uint16 float_to_half(float x) {
    _Float16 y = (_Float16)x;
    uint16 z;
    memcpy(&z, &y, 2);
    return z;
}

inline uint16 float_to_bfloat16(float x) {
    uint32 y = bits_of(x);
    if (x != x) return 0x7fff;
    return (uint16)((y + 0x7fff + (y >> 16 & 1)) >> 16);
}

namespace emulator {

/* Number i of 4 bytes of a fragment as floats: one of float, two of half precision. */
inline float operand(uint32 word, int part) {
#if ELEMENT == 0
    return float_of(word & ~0x1fffu);
#else
    uint16 x = (uint16)(word >> 16 * part);
#if ELEMENT == 1
    return float_of((uint32)x << 16);
#else
    return half_to_float(x);
#endif
#endif
}

} // namespace emulator

inline float round_to_tf32(float x) { return x == x ? float_of((bits_of(x) + 0x1000u) & ~0x1fffu) : x; }

inline void multiply_fragments(float (&sums)[4], const uint32 (&left)[4], const uint32 (&right)[2]) {
    using namespace emulator;
    UNWATCHED;
    Exchange &lanes = exchange();
    uint32 *in = lanes.in[lane()];
    for (int i = 0; i < 4; i++) in[i] = left[i];
    for (int i = 0; i < 2; i++) in[4 + i] = right[i];
    for (int i = 0; i < 4; i++) in[6 + i] = bits_of(sums[i]);
    together([&](Warp &) {
        const int parts = ELEMENT == 0 ? 1 : 2, inner = 8 * parts;
        float a[16][16], b[16][8];
        for (int lane = 0; lane < LANES; lane++) {
            int g = lane / 4, c = lane % 4;
            for (int part = 0; part < parts; part++)
                for (int high = 0; high < 2; high++) {
                    int k = (c + 4 * high) * parts + part;
                    a[g][k] = operand(lanes.in[lane][2 * high], part);
                    a[g + 8][k] = operand(lanes.in[lane][2 * high + 1], part);
                    b[k][g] = operand(lanes.in[lane][4 + high], part);
                }
        }
        for (int lane = 0; lane < LANES; lane++)
            for (int i = 0; i < 4; i++) {
                int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
                float sum = float_of(lanes.in[lane][6 + i]);
                for (int k = 0; k < inner; k++) sum += a[row][k] * b[k][column];
                lanes.out[lane][i] = bits_of(sum);
            }
    });
    for (int i = 0; i < 4; i++) sums[i] = float_of(lanes.out[lane()][i]);
}

INLINE void load_fragments(uint32 (&right)[4], const char *column) {
    using namespace emulator;
    UNWATCHED;
    CHECK(access(column, 16, false, checks::PLAIN));
    Exchange &lanes = exchange();
    lanes.rows[lane()] = column;
    together([&](Warp &) {
        for (int lane = 0; lane < LANES; lane++)
            for (int i = 0; i < 4; i++)
                memcpy(&lanes.out[lane][i], lanes.rows[8 * i + lane / 4] + 4 * (lane % 4), 4);
    });
    for (int i = 0; i < 4; i++) right[i] = lanes.out[lane()][i];
}

INLINE void load_fragments_transposed(uint32 (&parts)[4], const char *row) {
    using namespace emulator;
    UNWATCHED;
    CHECK(access(row, 16, false, checks::PLAIN));
    if ((uintptr_t)row % 16 != 0) abort();
    Exchange &lanes = exchange();
    lanes.rows[lane()] = row;
    together([&](Warp &) {
        for (int lane = 0; lane < LANES; lane++)
            for (int i = 0; i < 4; i++)
                for (int k = 0; k < 2; k++)
                    memcpy((char *)&lanes.out[lane][i] + 2 * k, lanes.rows[8 * i + lane % 4 * 2 + k] + lane / 4 * 2, 2);
    });
    for (int i = 0; i < 4; i++) parts[i] = lanes.out[lane()][i];
}

namespace emulator {

/* Background copies of the running fiber, in launch.h. `from` is NULL for zeros. */
void begin_copy(char *to, const void *from, int size);
void end_group();
void finish_groups(size_t left);

} // namespace emulator

template <int SIZE> INLINE void copy_later(void *to, const void *from, bool there) {
    UNWATCHED;
    CHECK(begin_copy(to, there ? from : nullptr, SIZE));
    if ((uintptr_t)to % SIZE != 0 || (there && (uintptr_t)from % SIZE != 0)) abort();
    emulator::begin_copy((char *)to, there ? from : nullptr, SIZE);
}

inline void end_copies() {
    UNWATCHED;
    emulator::end_group();
}

template <int COUNT> inline void await_copies() {
    UNWATCHED;
    emulator::finish_groups(COUNT);
}

template <class T> INLINE T load_through(const T *from) {
    UNWATCHED;
    CHECK(access(from, sizeof(T), false, checks::THROUGH));
    if ((uintptr_t)from % sizeof(T) != 0) abort();
    return *from;
}

INLINE void send_words(uint4 *to, uint4 x) {
    UNWATCHED;
    CHECK(access(to, 16, true, checks::ATOMIC));
    *to = x;
    emulator::progress();
}

INLINE uint4 receive_words(const uint4 *from) {
    UNWATCHED;
    emulator::yield();
    CHECK(access(from, 16, false, checks::ATOMIC));
    return *from;
}

INLINE int take_number(int *counter) {
    UNWATCHED;
    CHECK(access(counter, 4, true, checks::ATOMIC));
    return (*counter)++;
}

INLINE void add_to_flag(int *flag, int count) {
    UNWATCHED;
    CHECK(access(flag, 4, true, checks::ATOMIC));
    CHECK(release(flag));
    *flag += count;
    emulator::progress();
}

INLINE int glance_at_flag(const int *flag) {
    UNWATCHED;
    CHECK(access(flag, 4, false, checks::ATOMIC));
    CHECK(glance(flag));
    return *flag;
}

INLINE int read_flag(const int *flag) {
    UNWATCHED;
    emulator::yield();
    CHECK(access(flag, 4, false, checks::ATOMIC));
    CHECK(acquire(flag));
    return *flag;
}

#endif
