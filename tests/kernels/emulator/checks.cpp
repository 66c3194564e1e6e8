/* Watches the memory of an emulated launch, and ends it at the first access that a GPU could spoil.
 *
 * The programs are compiled with -fsanitize=thread, which calls a function before every access to memory. Those functions
 * stand here, in the place of gcc's own library, which knows neither fibers nor the rules of a GPU. They report
 *
 *   an access outside of the shared memory of the block, and of the memory whose address Python passed;
 *   an access at an address that is no multiple of its size;
 *   a race: two threads access the same bytes, at least one of them writes, and nothing orders them.
 *
 * Undefined behaviour (-fsanitize=undefined) is reported by the functions at the end of this file.
 *
 * What orders threads, by the memory model of PTX:
 *
 *   a barrier (join_block, join_threads, join_others) and join_warp order everything that their threads did before it
 *   before everything that they do after it. Shuffles, products of the matrix unit and load_fragments order nothing.
 *   add_to_flag releases: it orders what the thread has done, or what was ordered before it, before everything behind a
 *   read_flag that reads the sum. Additions continue a release, so a flag orders for all threads that have added to it.
 *   write_shared and read_shared do the same among the threads of a block.
 *   glance_at_flag is relaxed, so it orders nothing by itself. Once its thread runs a fence (in add_to_flag), it counts as
 *   read_flag. Before that, what it has seen orders accesses past the first cache alone: load_through and copy_later<16> of
 *   the same thread. PTX does not promise this. It is what the devices do: both go to the second cache, where the flag was,
 *   and a thread does not issue them before the branch that tested the flag.
 *   send_words, receive_words and take_number order nothing: a number and its tag arrive together, and nothing else.
 *   copy_later reads and writes at an unknown time until await_copies. Nobody, its own thread included, may touch its target
 *   before; other threads need a barrier behind await_copies.
 *
 * Each thread has a clock, which advances whenever the thread releases something, and knows clocks of other threads: those
 * up to which everything is ordered before its next access. Each cell of memory has the clock of the last write, and of the
 * reads since then that are not ordered before each other. So a race is found whichever of its accesses comes first, in any
 * order of the fibers; but only in code that runs, and at addresses that it really accesses. */

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <malloc.h>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "checks.h"

typedef uint32_t uint32;
typedef std::uintptr_t Address;

extern "C" const char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" const char _end[] __attribute__((visibility("hidden")));

namespace checks {

bool watching;

namespace {

/* Clocks of the threads of one block. */
typedef std::shared_ptr<const std::vector<uint32>> Clocks;

struct OfBlock {
    int block;
    Clocks clocks;
};

/* What a thread or a flag knows: clocks of blocks, in the order of their numbers. Never changes once it is made. */
typedef std::vector<OfBlock> Knowledge;
typedef std::shared_ptr<const Knowledge> Known;

struct Thread {
    uint32 clock = 1;
    Known known, glanced;
};

/* A place in the code: bytes behind the beginning of the library. */
typedef uint32 Code;

Code code_at(const void *returned) { return (Code)((const char *)returned - __ehdr_start); }

struct Access {
    int thread; /* less than 0: none */
    uint32 clock;
    Code code;
    Kind kind;
};

const uint32 FEWEST_READS = 8;

struct Cell {
    Access write = {-1, 0, 0, PLAIN};
    int copier = -1; /* the thread whose background copy may write the cell */
    Code copier_code = 0;
    uint32 limit = FEWEST_READS; /* of reads, before those that are of no use are forgotten */
    std::vector<Access> reads; /* since the last write, as far as they are not ordered before each other */
};

struct Block {
    Address shared;
    int size;
};

const int PAGE = 1024;
const uint32 UNFINISHED = 0xffffffffu; /* the clock of a read in the background */

struct Range {
    Address begin, end;
};

int64_t columns;
Range arguments; /* the structure of the launch, which programs only read */
int threads, granule, stack_size;
int running;
Address stack;
std::vector<Thread> all;
std::vector<Block> blocks;
std::unordered_map<Address, std::unique_ptr<Cell[]>> pages;
std::map<Address, Known> numbers;
std::map<int, std::vector<int>> arrived; /* who waits at a barrier: of a block, then of its warps */
std::vector<Range> ranges;
std::string report;

const int RECENT = 256;
struct {
    Address number;
    Cell *page;
} recent[RECENT];

Known merge(const Known &x, const Known &y) {
    if (x == y || !y) return x;
    if (!x) return y;
    size_t at = 0, shared = 0;
    for (const OfBlock &one : *y) {
        while (at < x->size() && (*x)[at].block < one.block) at++;
        if (at == x->size() || (*x)[at].block != one.block || (*x)[at].clocks != one.clocks) break;
        shared++;
    }
    if (shared == y->size()) return x;
    auto sum = std::make_shared<Knowledge>();
    bool is_x = true, is_y = true;
    size_t i = 0, k = 0;
    while (i < x->size() || k < y->size()) {
        if (k == y->size() || (i < x->size() && (*x)[i].block < (*y)[k].block)) {
            sum->push_back((*x)[i++]);
            is_y = false;
        } else if (i == x->size() || (*y)[k].block < (*x)[i].block) {
            sum->push_back((*y)[k++]);
            is_x = false;
        } else {
            const Clocks &one = (*x)[i++].clocks, &other = (*y)[k].clocks;
            Clocks both = one;
            if (one != other) {
                bool is_one = true, is_other = true;
                for (int t = 0; t < threads; t++) is_one &= (*one)[t] >= (*other)[t], is_other &= (*other)[t] >= (*one)[t];
                if (!is_one && is_other)
                    both = other;
                else if (!is_one) {
                    auto larger = std::make_shared<std::vector<uint32>>(*one);
                    for (int t = 0; t < threads; t++) (*larger)[t] = std::max((*one)[t], (*other)[t]);
                    both = larger;
                }
            }
            is_x &= both == one, is_y &= both == other;
            sum->push_back({(*y)[k++].block, both});
        }
    }
    return is_x ? x : is_y ? y : sum;
}

/* `known`, and that these threads of one block have come to their clocks. */
Known advance(const Known &known, const int *who, size_t count) {
    const int block = who[0] / threads;
    auto sum = known ? std::make_shared<Knowledge>(*known) : std::make_shared<Knowledge>();
    auto at = std::lower_bound(sum->begin(), sum->end(), block, [](const OfBlock &x, int number) { return x.block < number; });
    auto clocks = at != sum->end() && at->block == block ? std::make_shared<std::vector<uint32>>(*at->clocks)
                                                         : std::make_shared<std::vector<uint32>>(threads);
    for (size_t i = 0; i < count; i++) (*clocks)[who[i] % threads] = all[who[i]].clock++;
    if (at != sum->end() && at->block == block)
        at->clocks = clocks;
    else
        sum->insert(at, {block, clocks});
    return sum;
}

bool knows(const Known &known, int thread, uint32 clock) {
    if (!known) return false;
    const int block = thread / threads;
    size_t low = 0, high = known->size();
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if ((*known)[middle].block < block)
            low = middle + 1;
        else
            high = middle;
    }
    return low < known->size() && (*known)[low].block == block && (*(*known)[low].clocks)[thread % threads] >= clock;
}

/* Whether an access was ordered before one that the running thread makes now. */
bool is_ordered(const Access &before, Kind kind) {
    if (before.thread < 0 || before.thread == running) return true;
    const Thread &own = all[running];
    return knows(own.known, before.thread, before.clock) || (kind == THROUGH && knows(own.glanced, before.thread, before.clock));
}

void add(const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    report += text;
}

void add_thread(int thread) {
    const int block = thread / threads;
    add("thread %d of block %d", thread % threads, (int)(block % columns));
    if (block >= columns) add(" in row %d", (int)(block / columns));
}

/* A place in the code, which Python replaces with a line: the call lies before the address that it returns to. */
void add_place(Code code) { add(" <%x>", code - 1); }

void add_memory(Address address) {
    const Block &own = blocks[running / threads];
    if (address >= own.shared && address < own.shared + own.size)
        add("byte %zu of shared memory", (size_t)(address - own.shared));
    else {
        for (size_t i = 0; i < ranges.size(); i++)
            if (address >= ranges[i].begin && address < ranges[i].end) {
                add("byte %zu of global memory %zu of %zu bytes", (size_t)(address - ranges[i].begin), i,
                    (size_t)(ranges[i].end - ranges[i].begin));
                return;
            }
        add("address %zx", (size_t)address);
    }
}

[[noreturn]] void report_race(Address address, bool write, Code code, const Access &before, bool wrote) {
    report = "a race: ";
    add_thread(running);
    add(write ? " writes " : " reads ");
    add_memory(address);
    add_place(code);
    add(", ");
    add_thread(before.thread);
    add(before.clock == UNFINISHED ? " reads it in the background" : wrote ? " wrote it" : " read it");
    add_place(before.code);
    add(", and nothing orders them");
    stop();
}

[[noreturn]] void report_access(Address address, int size, bool write, Code code, const char *problem) {
    report = problem;
    add(": ");
    add_thread(running);
    add(write ? " writes" : " reads");
    add(" %d bytes at ", size);
    add_memory(address);
    add_place(code);
    const Block &own = blocks[running / threads];
    if (address >= own.shared + own.size && address < own.shared + own.size + 4096)
        add(", %d bytes behind the end of shared memory", (int)(address - own.shared - own.size));
    for (size_t i = 0; i < ranges.size(); i++)
        if (address >= ranges[i].end && address < ranges[i].end + 4096)
            add(", %d bytes behind the end of global memory %d, of %zu bytes", (int)(address - ranges[i].end), (int)i,
                (size_t)(ranges[i].end - ranges[i].begin));
        else if (address < ranges[i].begin && address + 4096 >= ranges[i].begin)
            add(", %d bytes before the start of global memory %d, of %zu bytes", (int)(ranges[i].begin - address), (int)i,
                (size_t)(ranges[i].end - ranges[i].begin));
    stop();
}

Cell &cell_at(Address address) {
    const Address number = address / PAGE;
    auto &last = recent[number % RECENT];
    if (last.number != number || last.page == nullptr) {
        std::unique_ptr<Cell[]> &page = pages[number];
        if (!page) page.reset(new Cell[PAGE / granule]);
        last = {number, page.get()};
    }
    return last.page[address % PAGE / granule];
}

/* Whether the range is memory that all threads see. A program may also read its own constants and its stack. */
bool is_watched(Address address, int size, bool write, Code code) {
    if (address >= stack && address + size <= stack + stack_size) return false;
    if (address >= arguments.begin && address + size <= arguments.end && !write) return false;
    const Block &own = blocks[running / threads];
    if (address >= own.shared && address + size <= own.shared + own.size) return true;
    auto after = std::upper_bound(ranges.begin(), ranges.end(), address, [](Address x, const Range &y) { return x < y.begin; });
    if (after != ranges.begin() && address + size <= (after - 1)->end) return true;
    if (address >= (Address)__ehdr_start && address + size <= (Address)_end) return false;
    report_access(address, size, write, code, "an access outside of the memory of the launch");
}

void check_alignment(Address address, int size, bool write, Code code) {
    if (address % size != 0) report_access(address, size, write, code, "an address that is no multiple of the size");
}

void check_cell(Cell &cell, Address address, bool write, Kind kind, Code code) {
    if (cell.copier >= 0) {
        report = "a copy that was not awaited: ";
        add_thread(running);
        add(write ? " writes " : " reads ");
        add_memory(address);
        add_place(code);
        add(", to which ");
        add_thread(cell.copier);
        add(" copies in the background");
        add_place(cell.copier_code);
        stop();
    }
    if (!(kind == ATOMIC && cell.write.kind == ATOMIC) && !is_ordered(cell.write, kind))
        report_race(address, write, code, cell.write, true);
    if (!write) return;
    for (const Access &read : cell.reads)
        if (!(kind == ATOMIC && read.kind == ATOMIC) && !is_ordered(read, kind)) report_race(address, write, code, read, false);
}

void write_cell(Cell &cell, Kind kind, Code code) {
    if (kind == ATOMIC) {
        /* reads of a flag are not ordered before the additions that follow */
        auto is_known = [&](const Access &read) { return is_ordered(read, kind); };
        cell.reads.erase(std::remove_if(cell.reads.begin(), cell.reads.end(), is_known), cell.reads.end());
    } else
        cell.reads.clear();
    cell.write = {running, all[running].clock, code, kind};
}

/* Forgets the reads after which this one is ordered: what is ordered behind this one is ordered behind those. */
void forget_reads(Cell &cell, Kind kind) {
    auto is_known = [&](const Access &read) {
        return read.clock != UNFINISHED && (kind != ATOMIC || read.kind == ATOMIC) && is_ordered(read, PLAIN);
    };
    auto key = [](const Access &read) { return std::make_tuple(read.thread, (int)read.kind, read.clock); };
    std::vector<Access> &reads = cell.reads;
    reads.erase(std::remove_if(reads.begin(), reads.end(), is_known), reads.end());
    /* of each thread the last read of a kind */
    std::sort(reads.begin(), reads.end(), [&](const Access &x, const Access &y) { return key(x) > key(y); });
    auto is_same = [](const Access &x, const Access &y) { return x.thread == y.thread && x.kind == y.kind; };
    reads.erase(std::unique(reads.begin(), reads.end(), is_same), reads.end());
}

void read_cell(Cell &cell, Kind kind, uint32 clock, Code code) {
    std::vector<Access> &reads = cell.reads;
    if (!reads.empty()) {
        const Access &last = reads.back();
        if (last.thread == running && last.clock == clock && last.kind == kind) return;
    }
    /* seldom, because many threads read the same number */
    if (reads.size() >= cell.limit) {
        forget_reads(cell, kind);
        cell.limit = (uint32)std::max<size_t>(FEWEST_READS, 2 * reads.size());
    }
    reads.push_back({running, clock, code, kind});
}

void access_memory(const void *at, int size, bool write, Kind kind, Code code) {
    const Address address = (Address)at;
    if (!is_watched(address, size, write, code)) return;
    for (Address next = address; next < address + size; next += granule) {
        Cell &cell = cell_at(next);
        check_cell(cell, next, write, kind, code);
        if (write)
            write_cell(cell, kind, code);
        else
            read_cell(cell, kind, all[running].clock, code);
    }
}

int number_of(int barrier) { return running / threads * 64 + (barrier < 0 ? 32 + running % threads / 32 : barrier); }

} // namespace

void run(int thread, const char *own_stack) {
    running = thread;
    stack = (Address)own_stack;
}

void begin_launch(int64_t own_columns, int64_t rows, int own_threads, int own_granule, int own_stack_size) {
    columns = own_columns, threads = own_threads, granule = own_granule, stack_size = own_stack_size;
    all.assign(own_columns * rows * threads, Thread());
    blocks.assign(own_columns * rows, Block{0, 0});
    report.clear();
    watching = false;
}

/* Forgets everything but the report: many programs stay loaded. */
void end_launch() {
    for (auto &last : recent) last = {0, nullptr};
    pages.clear();
    numbers.clear();
    arrived.clear();
    all = std::vector<Thread>();
    blocks = std::vector<Block>();
    /* the stacks of all threads lie between what was kept, so the system would not get them back */
    malloc_trim(0);
}

void begin_block(int block, const char *shared, int size) { blocks[block] = {(Address)shared, size}; }

void end_block(int block) {
    /* another block may get the same memory */
    const Address begin = blocks[block].shared, end = begin + blocks[block].size;
    for (Address number = begin / PAGE; number * PAGE < end; number++) {
        auto page = pages.find(number);
        if (page == pages.end()) continue;
        for (Address at = std::max(begin, number * PAGE); at < std::min(end, (number + 1) * PAGE); at += granule)
            page->second[at % PAGE / granule] = Cell();
    }
    numbers.erase(numbers.lower_bound(begin), numbers.lower_bound(end));
    blocks[block] = {0, 0};
}

void access(const void *address, int size, bool write, Kind kind) {
    const Code code = code_at(__builtin_return_address(0));
    check_alignment((Address)address, size, write, code);
    access_memory(address, size, write, kind, code);
}

void begin_copy(const void *to, const void *from, int size) {
    const Code code = code_at(__builtin_return_address(0));
    const Kind kind = size == 16 ? THROUGH : PLAIN;
    check_alignment((Address)to, size, true, code);
    if (from) {
        check_alignment((Address)from, size, false, code);
        if (is_watched((Address)from, size, false, code))
            for (Address at = (Address)from; at < (Address)from + size; at += granule) {
                check_cell(cell_at(at), at, false, kind, code);
                read_cell(cell_at(at), kind, UNFINISHED, code);
            }
    }
    if (is_watched((Address)to, size, true, code))
        for (Address at = (Address)to; at < (Address)to + size; at += granule) {
            check_cell(cell_at(at), at, true, kind, code);
            cell_at(at).copier = running;
            cell_at(at).copier_code = code;
        }
}

void end_copy(const void *to, const void *from, int size) {
    if (from)
        for (Address at = (Address)from; at < (Address)from + size; at += granule)
            for (Access &read : cell_at(at).reads)
                if (read.thread == running && read.clock == UNFINISHED) read.clock = all[running].clock;
    for (Address at = (Address)to; at < (Address)to + size; at += granule) {
        Cell &cell = cell_at(at);
        cell.copier = -1;
        write_cell(cell, PLAIN, cell.copier_code);
    }
}

void arrive(int barrier) { arrived[number_of(barrier)].push_back(running); }

void pass(int barrier) {
    std::vector<int> &who = arrived[number_of(barrier)];
    Known known;
    for (int thread : who) known = merge(known, all[thread].known);
    known = advance(known, who.data(), who.size());
    for (int thread : who) all[thread].known = known;
    who.clear();
}

void release(const void *number) {
    Thread &own = all[running];
    own.known = merge(own.known, own.glanced);
    own.glanced.reset();
    Known &known = numbers[(Address)number];
    known = merge(known, advance(own.known, &running, 1));
}

void acquire(const void *number) {
    auto at = numbers.find((Address)number);
    if (at != numbers.end()) all[running].known = merge(all[running].known, at->second);
}

void glance(const void *number) {
    auto at = numbers.find((Address)number);
    if (at != numbers.end()) all[running].glanced = merge(all[running].glanced, at->second);
}

} // namespace checks

using namespace checks;

/* The memory that the next launches may access: pairs of addresses. The first pair is that of the arguments; the others are
 * in their order. */
extern "C" void checks_allow(const int64_t *bounds, int count) {
    arguments = {(Address)bounds[0], (Address)bounds[1]};
    ranges.clear();
    for (int i = 1; i < count; i++) ranges.push_back({(Address)bounds[2 * i], (Address)bounds[2 * i + 1]});
}

extern "C" const char *checks_report() { return report.c_str(); }

/* Called by programs before they access memory. */
#define ACCESS(size)                                                                                                   \
    extern "C" void __tsan_read##size(void *at) {                                                                      \
        if (!watching) return;                                                                                         \
        check_alignment((Address)at, size, false, code_at(__builtin_return_address(0)));                                        \
        access_memory(at, size, false, PLAIN, code_at(__builtin_return_address(0)));                                            \
    }                                                                                                                  \
    extern "C" void __tsan_write##size(void *at) {                                                                     \
        if (!watching) return;                                                                                         \
        check_alignment((Address)at, size, true, code_at(__builtin_return_address(0)));                                         \
        access_memory(at, size, true, PLAIN, code_at(__builtin_return_address(0)));                                             \
    }                                                                                                                  \
    extern "C" void __tsan_unaligned_read##size(void *at) {                                                            \
        if (watching) access_memory(at, size, false, PLAIN, code_at(__builtin_return_address(0)));                              \
    }                                                                                                                  \
    extern "C" void __tsan_unaligned_write##size(void *at) {                                                           \
        if (watching) access_memory(at, size, true, PLAIN, code_at(__builtin_return_address(0)));                               \
    }                                                                                                                  \
    extern "C" void __tsan_volatile_read##size(void *at) {                                                             \
        if (watching) access_memory(at, size, false, PLAIN, code_at(__builtin_return_address(0)));                              \
    }                                                                                                                  \
    extern "C" void __tsan_volatile_write##size(void *at) {                                                            \
        if (watching) access_memory(at, size, true, PLAIN, code_at(__builtin_return_address(0)));                               \
    }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

extern "C" void __tsan_read_range(void *at, long size) {
    if (watching) access_memory(at, (int)size, false, PLAIN, code_at(__builtin_return_address(0)));
}
extern "C" void __tsan_write_range(void *at, long size) {
    if (watching) access_memory(at, (int)size, true, PLAIN, code_at(__builtin_return_address(0)));
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void *) {}
extern "C" void __tsan_func_exit(void *) {}
extern "C" void __tsan_vptr_update(void **, void *) {}
extern "C" void __tsan_vptr_read(void **) {}

/* Called by programs that do what C++ does not define. Each of these structures begins with a place in the sources. */
struct Source {
    const char *file;
    uint32 line, column;
};

static void report_undefined(const char *what, const Source *source) {
    const char *name = source->file ? source->file : "?";
    for (const char *at = name; *at; at++)
        if (*at == '/') name = at + 1;
    report = "undefined behaviour, ";
    add("%s: ", what);
    add_thread(running);
    add(" (%s:%u)", name, source->line);
    stop();
}

#define UNDEFINED(name, what)                                                                                          \
    extern "C" void __ubsan_handle_##name(Source *source, ...) { report_undefined(what, source); }                     \
    extern "C" void __ubsan_handle_##name##_abort(Source *source, ...) { report_undefined(what, source); }
UNDEFINED(add_overflow, "an addition that overflows")
UNDEFINED(sub_overflow, "a subtraction that overflows")
UNDEFINED(mul_overflow, "a product that overflows")
UNDEFINED(negate_overflow, "a negation that overflows")
UNDEFINED(divrem_overflow, "a division by zero, or one that overflows")
UNDEFINED(shift_out_of_bounds, "a shift by too many bits")
UNDEFINED(out_of_bounds, "an index outside of its array")
UNDEFINED(type_mismatch_v1, "a pointer that is NULL or not aligned")
UNDEFINED(pointer_overflow, "a pointer that overflows")
UNDEFINED(load_invalid_value, "a value that its type does not have")
UNDEFINED(float_cast_overflow, "a float that an integer cannot hold")
UNDEFINED(builtin_unreachable, "code that is never reached")
UNDEFINED(missing_return, "a function that does not return")
UNDEFINED(vla_bound_not_positive, "an array without elements")
UNDEFINED(nonnull_arg, "an argument that is NULL")
UNDEFINED(nonnull_return_v1, "a result that is NULL")
UNDEFINED(invalid_builtin, "an argument that a builtin function does not take")
