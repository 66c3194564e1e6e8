/* Runs a program on the emulated device. All programs share this file compiled, which depends on none of their constants;
 * under the checks it is included behind the program. */

#include <deque>
#include <vector>

#include "emulated.h"

namespace emulator {

struct Copy {
    char *to;
    char data[16];
    int size;
    const void *from; /* NULL for zeros */
};

struct CopyingFiber : Fiber {
    std::deque<std::vector<Copy>> groups;
    std::vector<Copy> open;
};

static CopyingFiber &copying() { return *static_cast<CopyingFiber *>(current); }

void begin_copy(char *to, const void *from, int size) {
    Copy copy = {to, {0}, size, from};
    if (from) memcpy(copy.data, from, size);
    memset(to, 0xff, size);
    copying().open.push_back(copy);
}

void end_group() {
    copying().groups.push_back(std::move(copying().open));
    copying().open.clear();
}

void finish_groups(size_t left) {
    std::deque<std::vector<Copy>> &groups = copying().groups;
    while (groups.size() > left) {
        for (const Copy &copy : groups.front()) {
            CHECK(end_copy(copy.to, copy.from, copy.size));
            memcpy(copy.to, copy.data, copy.size);
        }
        groups.pop_front();
    }
}

static void (*program)(const void *);
static const void *call;

static void finish() {
    current->block->done++;
    progress();
    Fiber *own = current;
    own->before->next = own->next;
    own->next->before = own->before;
    fibers--;
    switch_to(&home);
}

static void begin() {
    CHECK(watching = true);
    program(call);
    CHECK(watching = false);
    finish();
}

static void end(Block *block) {
    free(block->shared);
    delete[] block->warps;
    delete block;
}

static void insert(Fiber *fiber) {
    fiber->next = &home;
    fiber->before = home.before;
    home.before->next = fiber;
    home.before = fiber;
    fibers++;
}

} // namespace emulator

#ifdef CHECKED
void checks::stop() {
    watching = false;
    emulator::failed = true;
    emulator::switch_to(&emulator::home);
    abort();
}
#endif

/* Returns 0, 1 if all threads wait for ever, 2 if a block wrote beyond its shared memory, or 3 if checks_report() says what a
 * check has found. At most `slots` blocks run at once; blocks start in an order that `seed` shuffles, or in their own if it is
 * 0. */
extern "C" int emulate(void (*program)(const void *), const void *call, int64 columns, int64 rows, int threads, int shared,
                       int slots, int seed) {
    using namespace emulator;
    emulator::program = program;
    emulator::call = call;
    std::vector<int64> order(columns * rows);
    for (size_t i = 0; i < order.size(); i++) order[i] = i;
    /* a generator of random numbers that compiles at once */
    uint64_t random = seed;
    auto draw = [&](size_t count) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        return (size_t)(random >> 33) % count;
    };
    if (seed != 0) {
        for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[draw(i)]);
    }
    home.next = home.before = current = &home;
    idle = fibers = night = 0;
    stuck = failed = false;
    CHECK(begin_launch(columns, rows, threads, ELEMENT == 0 ? 4 : 2, STACK));
    std::vector<std::vector<CopyingFiber>> running;
    std::vector<Block *> blocks;
    size_t started = 0;
    int result = 0, live = 0;
    for (;;) {
        while (live < slots && started < order.size()) {
            Block *block = new Block;
            block->number = order[started] % columns;
            block->row = order[started] / columns;
            started++;
            live++;
            block->threads = threads;
            block->shared = (char *)malloc(shared + GUARD);
            memset(block->shared, 0xff, shared + GUARD);
            block->warps = new Warp[(threads + LANES - 1) / LANES];
            block->order = order[started - 1];
            CHECK(begin_block((int)block->order, block->shared, shared));
            blocks.push_back(block);
            running.emplace_back(threads);
            for (int thread = 0; thread < threads; thread++) {
                Fiber &fiber = running.back()[thread];
                block->warps[thread / LANES].members++;
                fiber.block = block;
                fiber.thread = thread;
                fiber.number = (int)block->order * threads + thread;
                fiber.stack = (char *)malloc(STACK);
                void **top = (void **)((uintptr_t)(fiber.stack + STACK - 64) & ~(uintptr_t)15);
                *--top = nullptr;
                *--top = (void *)begin;
                top -= 6;
                fiber.stack_pointer = top;
                insert(&fiber);
            }
        }
        if (live == 0) break;
        if (home.next == &home) break;
        if (seed != 0) {
            /* a night ends at random, or when those who are awake wait for those who sleep */
            if (draw(64) == 0 || idle > 500 + 10 * fibers) night++;
            Block *block = blocks[draw(blocks.size())];
            if (block && draw(8) == 0) block->asleep = night;
        }
        switch_to(find_awake(home.next));
        if (stuck || failed) {
            result = failed ? 3 : 1;
            break;
        }
        for (size_t i = 0; i < blocks.size(); i++)
            if (blocks[i] && blocks[i]->done == threads) {
                for (int j = 0; j < GUARD; j++)
                    if (blocks[i]->shared[shared + j] != (char)0xff) result = 2;
                for (Fiber &fiber : running[i]) free(fiber.stack);
                CHECK(end_block((int)blocks[i]->order));
                end(blocks[i]);
                blocks[i] = nullptr;
                running[i].clear();
                live--;
            }
    }
    for (size_t i = 0; i < blocks.size(); i++) {
        for (Fiber &fiber : running[i]) free(fiber.stack);
        if (blocks[i]) end(blocks[i]);
    }
    CHECK(end_launch());
    return result;
}
