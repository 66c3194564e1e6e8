/* What the CUDA programs share: elements of each dtype, products of the matrix unit, copies, and waiting.
 *
 * ELEMENT says what tensors consist of: 0 float, 1 bfloat16, 2 half. Everything that the compiler of the device must
 * provide stands here, behind functions: tests/kernels/emulator/emulated.h has the same functions for a CPU.
 *
 * A fragment is the part of a matrix that one thread of a warp has, as the matrix unit wants it. With lane = 4 g + c:
 *   left operand, 16 rows x 32 bytes: rows g and g + 8 at byte 4 c, then the same rows at byte 4 c + 16
 *   right operand, 32 bytes x 8 columns, columns contiguous: column g, at bytes 4 c and 4 c + 16
 *   sums, 16 rows x 8 columns: row g, columns 2 c and 2 c + 1; row g + 8, the same columns
 * 32 bytes are 16 numbers of half precision or 8 of float, which is rounded to tf32. */

#ifndef CWRNN_PRIMITIVES
#define CWRNN_PRIMITIVES

#ifdef EMULATED
#include "emulated.h"
#else

typedef long long int64;
typedef unsigned int uint32;
typedef unsigned short uint16;

#define DEVICE __device__ __forceinline__
#define PROGRAM(threads) extern "C" __global__ void __launch_bounds__(threads, 1)
/* A program of which a multiprocessor can run `blocks` blocks at once. */
#define PROGRAM_BLOCKS(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
/* The dynamic shared memory of the block. */
#define SHARED_MEMORY(name) extern __shared__ __align__(16) char name[]
#define CALL(type, name) const __grid_constant__ type name

DEVICE int thread_number() { return threadIdx.x; }
DEVICE int64 block_number() { return blockIdx.x; }
DEVICE int64 block_row() { return blockIdx.y; }

/* Waits for all threads of the block. */
DEVICE void join_block() { __syncthreads(); }
DEVICE void join_warp() { __syncwarp(); }
/* Waits for the first COUNT threads of the block, which all call this. */
template <int COUNT> DEVICE void join_threads() { asm volatile("bar.sync 1, %0;" ::"n"(COUNT) : "memory"); }
/* Waits for COUNT threads of the block, which all call this; apart from join_threads. */
template <int COUNT> DEVICE void join_others() { asm volatile("bar.sync 2, %0;" ::"n"(COUNT) : "memory"); }

/* A number in shared memory that one thread writes, after all that it has seen at a barrier, and another one reads. */
DEVICE void write_shared(int *number, int value) {
    __threadfence_block();
    *(volatile int *)number = value;
}

DEVICE int read_shared(const int *number) {
    int value = *(const volatile int *)number;
    __threadfence_block();
    return value;
}

/* Leaves the processor to other threads for a moment. */
DEVICE void pause() {
    asm volatile("nanosleep.u32 20;");
}

DEVICE float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
/* x of another lane of the warp. */
DEVICE float shuffle(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }

/* Whether x is true in any thread of the warp. */
DEVICE bool any_of_warp(bool x) { return __any_sync(0xffffffffu, x); }
/* The bitwise or of the words of the warp. */
DEVICE uint32 join_bits_of_warp(uint32 word) { return __reduce_or_sync(0xffffffffu, word); }
/* x if `first`, else y, without a branch. */
DEVICE float select(bool first, float x, float y) {
    float chosen;
    asm("{.reg .pred p; setp.ne.s32 p, %3, 0; selp.f32 %0, %1, %2, p;}" : "=f"(chosen) : "f"(x), "f"(y), "r"((int)first));
    return chosen;
}

/* tanh by the device's instruction: as exact as half precision. */
DEVICE float tanh_fast(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 2 to the power of x, and 1 / x, by the device's instructions: relative errors of 2^-22.5 and 2^-23. */
DEVICE float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE float absolute(float x) { return fabsf(x); }
/* x y + z in one instruction. For x = 2 or -2 the compiler would take two additions. */
DEVICE float multiply_add(float x, float y, float z) { return __fmaf_rn(x, y, z); }
DEVICE float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE int count_bits(uint32 x) { return __popc(x); }
DEVICE uint32 bits_of(float x) { return __float_as_uint(x); }
DEVICE float float_of(uint32 x) { return __uint_as_float(x); }

DEVICE float half_to_float(uint16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}

DEVICE uint16 float_to_half(float x) {
    uint16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}

DEVICE uint16 float_to_bfloat16(float x) {
    uint16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}

/* x rounded to tf32, as an operand: the matrix unit would cut off the digits. */
DEVICE float round_to_tf32(float x) {
    uint32 y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return __uint_as_float(y);
}

/* sums += left right, in the matrix unit. */
DEVICE void multiply_fragments(float (&sums)[4], const uint32 (&left)[4], const uint32 (&right)[2]) {
#define PRODUCT(shape)                                                                                                 \
    asm("mma.sync.aligned." shape " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                             \
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                                   \
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]))
#if ELEMENT == 0
    PRODUCT("m16n8k8.row.col.f32.tf32.tf32.f32");
#elif ELEMENT == 1
    PRODUCT("m16n8k16.row.col.f32.bf16.bf16.f32");
#else
    PRODUCT("m16n8k16.row.col.f32.f16.f16.f32");
#endif
#undef PRODUCT
}

/* The right operands' fragments of two steps: 64 bytes of 8 columns in shared memory. `column` is the address that this lane
 * points to: column lane % 8, at byte 16 (lane / 8). */
DEVICE void load_fragments(uint32 (&right)[4], const char *column) {
    uint32 address = (uint32)__cvta_generic_to_shared(column);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(right[0]), "=r"(right[1]), "=r"(right[2]), "=r"(right[3])
                 : "r"(address)
                 : "memory");
}

/* Four matrices of 8 rows x 16 bytes of half precision in shared memory, transposed: with lane = 4 g + c, this lane gets
 * column g of rows 2 c and 2 c + 1 of each. `row` is the address that this lane points to: row lane % 8 of matrix lane / 8. */
DEVICE void load_fragments_transposed(uint32 (&parts)[4], const char *row) {
    uint32 address = (uint32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3])
                 : "r"(address)
                 : "memory");
}

/* Copies SIZE bytes (4, 8 or 16) into shared memory in the background, or zeros if not `there`. */
template <int SIZE> DEVICE void copy_later(void *to, const void *from, bool there) {
    uint32 address = (uint32)__cvta_generic_to_shared(to);
    int bytes = there ? SIZE : 0;
    if (SIZE == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(address), "l"(from), "r"(bytes), "n"(SIZE)
                     : "memory");
}

/* Ends a group of copies of this thread. */
DEVICE void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Waits until at most COUNT groups of this thread are not done. */
template <int COUNT> DEVICE void await_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(COUNT) : "memory"); }

/* Reads past the first cache, which does not see what other blocks write. */
DEVICE float4 load_through(const float4 *from) { return __ldcg(from); }
DEVICE float load_through(const float *from) { return __ldcg(from); }
DEVICE uint4 load_through(const uint4 *from) { return __ldcg(from); }
DEVICE uint16 load_through(const uint16 *from) { return __ldcg(from); }

/* Numbers that other blocks wait for. A number and its tag, 8 bytes, arrive together: PTX does not promise this of a vector,
 * but all devices do it, and NCCL relies on it as well. */
DEVICE void send_words(uint4 *to, uint4 x) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

DEVICE uint4 receive_words(const uint4 *from) {
    uint4 x;
    asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(from) : "memory");
    return x;
}

/* Takes the next number from a counter. */
DEVICE int take_number(int *counter) { return atomicAdd(counter, 1); }

/* Adds to a flag, after everything that this thread has written or seen at a barrier. */
DEVICE void add_to_flag(int *flag, int count) {
    asm volatile("fence.acq_rel.gpu; red.relaxed.gpu.global.add.s32 [%0], %1;" ::"l"(flag), "r"(count) : "memory");
}

/* The flag's value, which may be old. Once it has arrived, what its writers wrote before can be read past the first cache:
 * PTX promises this of an acquire only, but the rows lie in the second cache by then, and a warp issues its reads in order. */
DEVICE int glance_at_flag(const int *flag) {
    int value;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

/* The flag's value; what its writers wrote before can be read from now on. */
DEVICE int read_flag(const int *flag) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

#endif

#if ELEMENT == 0
typedef float element;
DEVICE float to_float(element x) { return x; }
DEVICE element to_element(float x) { return x; }
DEVICE uint32 to_word(element x) { return bits_of(x); }
DEVICE element to_element_of(uint32 word) { return float_of(word); }
#else
typedef uint16 element;
DEVICE uint32 to_word(element x) { return x; }
DEVICE element to_element_of(uint32 word) { return (element)word; }
#if ELEMENT == 1
DEVICE float to_float(element x) { return float_of((uint32)x << 16); }
DEVICE element to_element(float x) { return float_to_bfloat16(x); }
#else
DEVICE float to_float(element x) { return half_to_float(x); }
DEVICE element to_element(float x) { return float_to_half(x); }
#endif
#endif

/* How many elements 32 bytes have: the inner size of one product of the matrix unit. */
#define INNER (32 / (int)sizeof(element))

/* x as an operand of a product. */
DEVICE element to_operand(float x) {
#if ELEMENT == 0
    return round_to_tf32(x);
#else
    return to_element(x);
#endif
}

/* Waits until `flag` is at least `count`. `ready` is the value that was read last. */
DEVICE void await_flag(const int *flag, int count, int &ready) {
    while (ready < count) ready = read_flag(flag);
}

#define LOG2_E 1.44269504f

/* The logistic function of x. The power's error grows with x, and so do those of the sums that x comes from. */
DEVICE float logistic_of(float x) { return reciprocal(1 + power_of_two(-LOG2_E * x)); }

/* tanh(x) for |x| < 0.3, by its series. */
DEVICE float tanh_near_zero(float x) {
    const float y = x * x;
    return x + x * y * (-1.f / 3 + y * (2.f / 15 + y * (-17.f / 315 + y * (62.f / 2835 - y * (1382.f / 155925)))));
}

/* tanh(x); in half precision and tf32 by the device's instruction. It has two parts, so that other work can be done while the
 * first one is on its way: tanh(x) is end_tanh(x, begin_tanh(x)). */
template <bool FAST> DEVICE float begin_tanh(float x) { return FAST ? tanh_fast(x) : power_of_two(2 * LOG2_E * x); }

template <bool FAST> DEVICE float end_tanh(float x, float begun) {
    if (FAST) return begun;
    /* a power that overflows gives 1, and one that underflows gives -1; near zero a difference would lose digits */
    const float large = multiply_add(-2, reciprocal(1 + begun), 1), small = tanh_near_zero(x);
    return absolute(x) < 0.3f ? small : large;
}

template <bool FAST> DEVICE float tanh_of(float x) { return end_tanh<FAST>(x, begin_tanh<FAST>(x)); }

#endif
