/* The functions of primitives.cuh on a CPU, so that the CUDA programs can be tested without a GPU.
 *
 * Every thread of a block is a fiber with a stack of its own. A fiber runs until it waits: at a barrier, at a function that
 * all threads of a warp enter together, or for a flag. Then the next one runs. Blocks sleep now and then, so that others get
 * far ahead of them. A launch in which all fibers wait for ever ends with an error. Shared memory starts as NaN, is guarded
 * at its end, and sees a background copy only when the thread has waited for it. */

#ifndef CWRNN_EMULATED
#define CWRNN_EMULATED

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

typedef long long int64;
typedef unsigned int uint32;
typedef unsigned short uint16;

struct float4 {
    float x, y, z, w;
};
struct float2 {
    float x, y;
};
struct uint4 {
    uint32 x, y, z, w;
};
struct uint2 {
    uint32 x, y;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline uint4 make_uint4(uint32 x, uint32 y, uint32 z, uint32 w) { return {x, y, z, w}; }
inline uint2 make_uint2(uint32 x, uint32 y) { return {x, y}; }
template <class T> inline T min(T a, T b) { return a < b ? a : b; }
template <class T> inline T max(T a, T b) { return a > b ? a : b; }

#define DEVICE inline
#define PROGRAM(threads) extern "C" void
#define PROGRAM_BLOCKS(threads, blocks) extern "C" void
#define CALL(type, name) const type &name
#define SHARED_MEMORY(name) char *name = emulator::current->block->shared.data()

namespace emulator {

const int LANES = 32, STACK = 256 * 1024, GUARD = 256;

struct Warp {
    int waiting = 0, members = 0;
    int64 round = 0;
    uint32 in[LANES][12], out[LANES][4];
    const char *rows[LANES];
};

struct Block {
    int64 number, row;
    int threads, waiting[3] = {0, 0, 0}, done = 0;
    int64 asleep = -1; /* the night in which the block sleeps */
    int64 round[3] = {0, 0, 0};
    std::vector<char> shared;
    std::vector<Warp> warps;
};

struct Copy {
    char *to;
    char data[16];
    int size;
};

struct Fiber {
    void *stack_pointer = nullptr;
    char *stack = nullptr;
    Block *block = nullptr;
    int thread = 0;
    Fiber *next = nullptr, *before = nullptr;
    std::deque<std::vector<Copy>> groups;
    std::vector<Copy> open;
};

inline Fiber *current, home;
inline int64 idle, fibers, night;
inline bool stuck;

extern "C" void emulator_switch(void **from, void *to);
#if defined(__x86_64__)
asm(".text\n.globl emulator_switch\n.hidden emulator_switch\nemulator_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nretq\n");
#else
#error "the emulator switches fibers on x86-64 only"
#endif

inline void switch_to(Fiber *fiber) {
    Fiber *before = current;
    current = fiber;
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

inline int lane() { return current->thread % LANES; }
inline Warp &warp() { return current->block->warps[current->thread / LANES]; }

} // namespace emulator

inline int thread_number() { return emulator::current->thread; }
inline int64 block_number() { return emulator::current->block->number; }
inline int64 block_row() { return emulator::current->block->row; }

namespace emulator {

inline void join(int barrier, int count) {
    Block &block = *current->block;
    int64 round = block.round[barrier];
    if (++block.waiting[barrier] == count) {
        block.waiting[barrier] = 0;
        block.round[barrier]++;
        progress();
    } else
        while (block.round[barrier] == round) yield();
}

} // namespace emulator

inline void join_block() { emulator::join(0, emulator::current->block->threads); }
template <int COUNT> inline void join_threads() { emulator::join(1, COUNT); }
template <int COUNT> inline void join_others() { emulator::join(2, COUNT); }

inline void write_shared(int *number, int value) {
    *number = value;
    emulator::progress();
}

inline int read_shared(const int *number) {
    emulator::yield();
    return *number;
}

inline void pause() {}

inline void join_warp() {
    emulator::together([](emulator::Warp &) {});
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
    warp().in[lane()][0] = bits_of(x);
    together([&](Warp &warp) {
        for (int i = 0; i < LANES; i++) warp.out[i][0] = warp.in[i][0];
    });
    uint32 got = warp().out[from][0];
    together([](Warp &) {});
    return float_of(got);
}

inline float shuffle_xor(float x, int mask) { return shuffle(x, emulator::lane() ^ mask); }

inline float tanh_fast(float x) { return std::tanh(x); }
inline float exponential(float x) { return std::exp(x); }
inline float quotient(float x, float y) { return x / y; }

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
    uint32 *in = warp().in[lane()];
    for (int i = 0; i < 4; i++) in[i] = left[i];
    for (int i = 0; i < 2; i++) in[4 + i] = right[i];
    for (int i = 0; i < 4; i++) in[6 + i] = bits_of(sums[i]);
    together([](Warp &warp) {
        const int parts = ELEMENT == 0 ? 1 : 2, inner = 8 * parts;
        float a[16][16], b[16][8];
        for (int lane = 0; lane < LANES; lane++) {
            int g = lane / 4, c = lane % 4;
            for (int part = 0; part < parts; part++)
                for (int high = 0; high < 2; high++) {
                    int k = (c + 4 * high) * parts + part;
                    a[g][k] = operand(warp.in[lane][2 * high], part);
                    a[g + 8][k] = operand(warp.in[lane][2 * high + 1], part);
                    b[k][g] = operand(warp.in[lane][4 + high], part);
                }
        }
        for (int lane = 0; lane < LANES; lane++)
            for (int i = 0; i < 4; i++) {
                int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
                float sum = float_of(warp.in[lane][6 + i]);
                for (int k = 0; k < inner; k++) sum += a[row][k] * b[k][column];
                warp.out[lane][i] = bits_of(sum);
            }
    });
    for (int i = 0; i < 4; i++) sums[i] = float_of(warp().out[lane()][i]);
    together([](Warp &) {});
}

inline void load_fragments(uint32 (&right)[4], const char *column) {
    using namespace emulator;
    warp().rows[lane()] = column;
    together([](Warp &warp) {
        for (int lane = 0; lane < LANES; lane++)
            for (int i = 0; i < 4; i++)
                memcpy(&warp.out[lane][i], warp.rows[8 * i + lane / 4] + 4 * (lane % 4), 4);
    });
    for (int i = 0; i < 4; i++) right[i] = warp().out[lane()][i];
    together([](Warp &) {});
}

inline void load_fragments_transposed(uint32 (&parts)[4], const char *row) {
    using namespace emulator;
    if ((uintptr_t)row % 16 != 0) abort();
    warp().rows[lane()] = row;
    together([](Warp &warp) {
        for (int lane = 0; lane < LANES; lane++)
            for (int i = 0; i < 4; i++)
                for (int k = 0; k < 2; k++)
                    memcpy((char *)&warp.out[lane][i] + 2 * k, warp.rows[8 * i + lane % 4 * 2 + k] + lane / 4 * 2, 2);
    });
    for (int i = 0; i < 4; i++) parts[i] = warp().out[lane()][i];
    together([](Warp &) {});
}

template <int SIZE> inline void copy_later(void *to, const void *from, bool there) {
    emulator::Copy copy = {(char *)to, {0}, SIZE};
    if ((uintptr_t)to % SIZE != 0 || (there && (uintptr_t)from % SIZE != 0)) abort();
    if (there) memcpy(copy.data, from, SIZE);
    memset(to, 0xff, SIZE);
    emulator::current->open.push_back(copy);
}

inline void end_copies() {
    emulator::Fiber &fiber = *emulator::current;
    fiber.groups.push_back(std::move(fiber.open));
    fiber.open.clear();
}

template <int COUNT> inline void await_copies() {
    emulator::Fiber &fiber = *emulator::current;
    while (fiber.groups.size() > COUNT) {
        for (const emulator::Copy &copy : fiber.groups.front()) memcpy(copy.to, copy.data, copy.size);
        fiber.groups.pop_front();
    }
}

template <class T> inline T load_through(const T *from) {
    if ((uintptr_t)from % sizeof(T) != 0) abort();
    return *from;
}

inline void send_words(uint4 *to, uint4 x) {
    *to = x;
    emulator::progress();
}

inline uint4 receive_words(const uint4 *from) {
    emulator::yield();
    return *from;
}

inline int take_number(int *counter) { return (*counter)++; }

inline void add_to_flag(int *flag, int count) {
    *flag += count;
    emulator::progress();
}

inline int read_flag(const int *flag) {
    emulator::yield();
    return *flag;
}

#endif
