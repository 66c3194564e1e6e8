/* Vectors of the width that the compiler's flags allow, tanh and the logistic function, and the product that most of the
 * kernels consist of. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define PASTE(name, bits, isa) cwrnn_##name##_f##bits##_##isa
#define EXPAND(name, bits, isa) PASTE(name, bits, isa)
#define NAME(name) EXPAND(name, REAL_BITS, ISA) /* such as cwrnn_forward_f32_avx2 */

typedef REAL real;

#if defined(__AVX512F__)
#define VECTOR 64
#define REGISTERS 32
#elif defined(__AVX2__)
#define VECTOR 32
#define REGISTERS 16
#elif defined(__aarch64__)
#define VECTOR 16
#define REGISTERS 32
#else
#define VECTOR 16
#define REGISTERS 16
#endif

enum { LANES = VECTOR / sizeof(real) };

typedef real vec __attribute__((vector_size(VECTOR)));
typedef real loose __attribute__((vector_size(VECTOR), aligned(sizeof(real)), may_alias)); /* anywhere in memory */

#if REAL_BITS == 32
typedef int32_t integer;
#else
typedef int64_t integer;
#endif
typedef integer mask __attribute__((vector_size(VECTOR)));

#define OPTIONAL __attribute__((unused)) /* not every file that includes this uses it */
#define INLINE static inline __attribute__((always_inline))
#define RARE __attribute__((noinline, cold)) /* kept out of the loops that call it */
#define UNROLL _Pragma("GCC unroll 16")

INLINE vec load(const real *from) { return *(const loose *)from; }
INLINE void store(real *to, vec value) { *(loose *)to = value; }
INLINE vec spread(real value) { return value - (vec){0}; } /* value in every lane */
INLINE vec choose(mask which, vec yes, vec no) { return (vec)((which & (mask)yes) | (~which & (mask)no)); }
INLINE int64_t round_up(int64_t n) { return (n + LANES - 1) / LANES * LANES; }
INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Loads the first n lanes, n < LANES; the others are zero. */
INLINE vec load_some(const real *from, int64_t n) {
#if defined(__AVX512F__) && REAL_BITS == 32
    return (vec)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), from);
#elif defined(__AVX512F__)
    return (vec)_mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), from);
#else
    real all[LANES] = {0};
    for (int64_t i = 0; i < n; i++) all[i] = from[i];
    return load(all);
#endif
}

/* Stores the first n lanes, n < LANES. */
INLINE void store_some(real *to, vec value, int64_t n) {
#if defined(__AVX512F__) && REAL_BITS == 32
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), (__m512)value);
#elif defined(__AVX512F__)
    _mm512_mask_storeu_pd(to, (__mmask8)((1u << n) - 1), (__m512d)value);
#else
    real all[LANES];
    store(all, value);
    for (int64_t i = 0; i < n; i++) to[i] = all[i];
#endif
}

/* Loads or stores a whole vector, or its first n lanes if n < LANES. */
INLINE vec load_at_most(const real *from, int64_t n) { return n >= LANES ? load(from) : load_some(from, n); }
INLINE void store_at_most(real *to, vec value, int64_t n) {
    if (n >= LANES)
        store(to, value);
    else
        store_some(to, value, n);
}

/* A mask with all bits set in the first n lanes. */
INLINE mask first_lanes(int64_t n) {
    mask lane = {0};
    UNROLL for (int i = 0; i < LANES; i++) lane[i] = i;
    return lane < (integer)smaller(n, LANES);
}

INLINE vec keep(vec value, int64_t n) { return (vec)((mask)value & first_lanes(n)); }  /* zero except in the first n lanes */
INLINE vec drop(vec value, int64_t n) { return (vec)((mask)value & ~first_lanes(n)); } /* zero in the first n lanes */

INLINE void copy(real *to, const real *from, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) store(to + i, load(from + i));
    if (i < n) store_some(to + i, load_some(from + i, n - i), n - i);
}

INLINE void add(real *to, const real *from, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) store(to + i, load(to + i) + load(from + i));
    if (i < n) store_some(to + i, load_some(to + i, n - i) + load_some(from + i, n - i), n - i);
}

INLINE void clear(real *to, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) store(to + i, (vec){0});
    if (i < n) store_some(to + i, (vec){0}, n - i);
}

/* Copies past the caches: neither fetches the lines that it overwrites nor evicts others. n must be a multiple of LANES
 * and `to` aligned to a vector; other threads may read the copy only after `finish_streams`. */
OPTIONAL INLINE void stream(real *to, const real *from, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        const vec value = load(from + i);
#if defined(__AVX512F__)
        _mm512_stream_si512((void *)(to + i), (__m512i)value);
#elif defined(__AVX2__)
        _mm256_stream_si256((void *)(to + i), (__m256i)value);
#elif defined(__x86_64__)
        _mm_stream_si128((void *)(to + i), (__m128i)value);
#else
        store(to + i, value);
#endif
    }
}

OPTIONAL INLINE void finish_streams(void) {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

/* Prefetches n numbers that will soon be read. */
OPTIONAL INLINE void fetch(const real *from, int64_t n) {
    for (int64_t i = 0; i < n; i += 64 / (int64_t)sizeof(real)) __builtin_prefetch(from + i, 0, 2);
}

/* exp(y) - 1 for y from 0 to LARGEST
 *
 * y = n log 2 + r, and then exp(y) - 1 = 2^n (exp(r) - 1) + (2^n - 1) with |r| <= log(2) / 2, where exp(r) - 1 is its
 * Taylor series: at that radius the first term left out is below a quarter of a unit in the last place. */

#if REAL_BITS == 32
#define LOG2_HIGH 0x1.63p-1f
#define LOG2_LOW -0x1.bd0106p-13f
#define ROUNDER 0x1.8p23f
#define LARGEST 87.0f
enum { TERMS = 7, MANTISSA = 23 };
#else
#define LOG2_HIGH 0x1.62e42feep-1
#define LOG2_LOW 0x1.a39ef35793c76p-33
#define ROUNDER 0x1.8p52
#define LARGEST 708.0
enum { TERMS = 13, MANTISSA = 52 };
#endif

#define INVERSE(factorial) ((real)(1. / factorial))
static const real INVERSE_FACTORIALS[] = {
    INVERSE(1),       INVERSE(1),        INVERSE(2),         INVERSE(6),          INVERSE(24),
    INVERSE(120),     INVERSE(720),      INVERSE(5040),      INVERSE(40320),      INVERSE(362880),
    INVERSE(3628800), INVERSE(39916800), INVERSE(479001600), INVERSE(6227020800),
};

INLINE vec exponential_less_1(vec y) {
    vec rounded = y * (real)1.44269504088896340736 + ROUNDER;
    vec n = rounded - ROUNDER;
    vec r = y - n * (real)LOG2_HIGH;
    r = r - n * (real)LOG2_LOW;
    vec power = (vec)(((mask)rounded << MANTISSA) + (mask)spread(1)); /* 2^n, made from its bits */
    /* even and odd terms separately: two short chains of operations instead of a long one */
    vec square = r * r, even = spread(INVERSE_FACTORIALS[TERMS - 1]), odd = spread(INVERSE_FACTORIALS[TERMS]);
    UNROLL for (int i = TERMS - 3; i >= 2; i -= 2) {
        even = even * square + INVERSE_FACTORIALS[i];
        odd = odd * square + INVERSE_FACTORIALS[i + 1];
    }
    vec e = r + square * (even + odd * r);
    return power * e + (power - 1);
}

#if REAL_BITS == 32

/* With y = |x|, an odd polynomial below 0.55, 1 above 9, and between them
 *
 *     tanh(y) = o e / (o e + (e - o / 2)^2)          o / (2 e) = tanh(y / 2)
 *
 * with o an odd and e an even polynomial. The quotient is never more than 1, and the closer it is to 1 the less exact
 * both polynomials need to be; near zero it would lose digits. Every lane computes both forms: there is no long chain of
 * operations, and the polynomial is computed while the division runs. NaN compares neither below 0.55 nor above 9, and
 * stays NaN.
 *
 * The coefficients minimise the largest relative error of tanh (Remez). They were found in high precision and rounded one
 * by one, and the remaining ones were fitted again each time. Over all floats, the largest error is 2.23 units in the last
 * place where a multiply-add rounds once, and 2.48 where it rounds twice; it is 1.51 where tanh is below a half. */
INLINE vec hyperbolic_tangent(vec x) {
    mask sign = (mask)x & (mask)spread((real)-0.0);
    vec y = (vec)((mask)x ^ sign);
    vec z = x * x, zz = z * z, yz = y * z;
    vec o = y + yz * (0x1.e7e378p-6f + z * 0x1.dfa13ap-14f);
    vec e = 1 + z * ((0x1.cf4e2ap-4f + z * 0x1.3c6a2ep-10f) + zz * 0x1.4a76dep-20f);
    vec product = o * e, rest = e - o * 0.5f;
    vec large = product / (product + rest * rest);
    vec small = y + yz * ((-0x1.55542cp-2f + z * 0x1.10c802p-3f) + zz * (-0x1.aec7a2p-5f + z * 0x1.0a9628p-6f));
    mask low = y < 0.55f;
    vec end = choose(low, small, spread(1)); /* chosen while the division runs */
    return (vec)((mask)choose(low | (y > 9), end, large) | sign);
}

#else

#define SATURATED 40.0

/* sign(x) e / (e + 2) with e = exp(2 |x|) - 1, which loses no digits near zero */
INLINE vec hyperbolic_tangent(vec x) {
    mask sign = (mask)x & (mask)spread((real)-0.0);
    vec y = (vec)((mask)x ^ sign);
    y = y + y;
    y = choose(y > SATURATED, spread(SATURATED), y); /* NaN is not greater, so it stays NaN to the end */
    vec e = exponential_less_1(y);
    return (vec)((mask)(e / (e + 2)) | sign);
}

#endif

/* 1 / (1 + exp(-x)). With e = exp(|x|) - 1 it is 1 / (e + 2) below zero and (e + 1) / (e + 2) above, which loses no digits
 * far from zero. Below -LARGEST, near which the normal numbers end, it is 0, so that its product with infinity is NaN. */
INLINE vec logistic(vec x) {
    vec y = (vec)((mask)x & ~(mask)spread((real)-0.0));
    mask far = y > LARGEST;
    vec e = exponential_less_1(choose(far, spread(LARGEST), y));
    return choose(x < 0, (vec)((mask)spread(1) & ~far), e + 1) / (e + 2);
}

/* The product
 *
 *     C[m] = init[m] + sum over j of X[m, j] Y[j]          m < M, j < depth
 *
 * Y[j], init[m] and C[m] are rows, of which `vectors` vectors from element `at` on are computed; X[m, j] is at
 * X[m * xm + j * xj]. init may be C, or NULL for zero. The sums of a tile stay in registers, and are enough to hide the
 * latency of a multiply-add.
 *
 * The rows of Y are ly long and lie one after another; or, if `panel` is not 0, in panels: the first `panel` vectors of all
 * rows, then the next ones, with the rest in a narrower last panel. Then a tile reads contiguous memory. A panel is as wide
 * as the tiles for the largest M that `multiply` will be called with, and `at` is 0. */

typedef struct {
    const real *X;
    int64_t xm, xj;
    const real *Y;
    int64_t ly, panel;
    const real *init;
    int64_t li;
    real *C;
    int64_t lc, depth;
} Product;

INLINE void tile(const int M, const int V, const Product *p, const real *Y, int64_t ly, int64_t at, int64_t m0) {
    vec sum[8][8];
    UNROLL for (int m = 0; m < M; m++) {
        UNROLL for (int v = 0; v < V; v++)
            sum[m][v] = p->init != NULL ? load(p->init + (m0 + m) * p->li + at + v * LANES) : (vec){0};
    }
    const real *X = p->X + m0 * p->xm;
    const int64_t xm = p->xm, xj = p->xj;
    for (int64_t j = p->depth; j > 0; j--, Y += ly, X += xj) {
        vec y[8];
        UNROLL for (int v = 0; v < V; v++) y[v] = load(Y + v * LANES);
        UNROLL for (int m = 0; m < M; m++) {
            vec x = spread(X[m * xm]);
            UNROLL for (int v = 0; v < V; v++) sum[m][v] += x * y[v];
        }
    }
    real *C = p->C + m0 * p->lc + at;
    UNROLL for (int m = 0; m < M; m++) {
        UNROLL for (int v = 0; v < V; v++) store(C + m * p->lc + v * LANES, sum[m][v]);
    }
}

/* The width in vectors of the widest tile for M rows that leaves registers for Y and X. */
INLINE int widest(int M) {
    if (REGISTERS == 32) return M == 1 ? 8 : M <= 4 ? 4 : 3;
    return M == 1 ? 6 : M <= 3 ? 4 : 3;
}

#define TALLEST (REGISTERS == 32 ? 8 : 4)

OPTIONAL INLINE int widest_for(int64_t rows) { return widest((int)smaller(rows, TALLEST)); }

#define TILE(M, V) \
    case V: \
        if (V <= widest(M)) tile(M, V, p, Y, ly, at, m0); \
        break;

#define TILES(M) \
    OPTIONAL static void tiles_##M(const Product *p, int64_t vectors, const real *Y, int64_t ly, int64_t at, int64_t m0) { \
        switch (vectors) { \
            TILE(M, 1) TILE(M, 2) TILE(M, 3) TILE(M, 4) TILE(M, 5) TILE(M, 6) TILE(M, 7) TILE(M, 8) \
        } \
    }

TILES(1)
TILES(2)
TILES(3)
TILES(4)
#if REGISTERS == 32
TILES(5)
TILES(6)
TILES(7)
TILES(8)
#endif

/* Computes all M rows of at most widest_for(M) vectors from element `at` on; these vectors of Y's rows begin at Y, ly apart. */
INLINE void multiply_tiles(int64_t M, int64_t vectors, const real *Y, int64_t ly, int64_t at, const Product *p) {
    for (int64_t m = 0; m < M; m += TALLEST) {
        switch (smaller(TALLEST, M - m)) {
            case 1: tiles_1(p, vectors, Y, ly, at, m); break;
            case 2: tiles_2(p, vectors, Y, ly, at, m); break;
            case 3: tiles_3(p, vectors, Y, ly, at, m); break;
#if REGISTERS == 32
            case 4: tiles_4(p, vectors, Y, ly, at, m); break;
            case 5: tiles_5(p, vectors, Y, ly, at, m); break;
            case 6: tiles_6(p, vectors, Y, ly, at, m); break;
            case 7: tiles_7(p, vectors, Y, ly, at, m); break;
            default: tiles_8(p, vectors, Y, ly, at, m); break;
#else
            default: tiles_4(p, vectors, Y, ly, at, m); break;
#endif
        }
    }
}

INLINE void multiply(int64_t M, int64_t at, int64_t vectors, const Product *p) {
    const int64_t wide = p->panel > 0 ? p->panel : widest_for(M);
    if (M == 1 && vectors <= wide) { /* the usual case of small networks */
        tiles_1(p, vectors, p->Y + at, p->panel > 0 ? smaller(wide * LANES, p->ly) : p->ly, at, 0);
        return;
    }
    for (int64_t v = 0; v < vectors; v += wide, at += wide * LANES) {
        const real *Y = p->panel > 0 ? p->Y + p->depth * at : p->Y + at;
        const int64_t ly = p->panel > 0 ? smaller(wide * LANES, p->ly - at) : p->ly;
        multiply_tiles(M, smaller(wide, vectors - v), Y, ly, at, p);
    }
}

/* The same for a product in panels, for the elements `from` to `to`, which begin and end anywhere between vectors. M may be
 * larger than the one that the panels are made for. */
OPTIONAL INLINE void multiply_columns(int64_t M, int64_t from, int64_t to, const Product *p) {
    const int64_t panel = p->panel * LANES, widest = widest_for(M) * LANES;
    for (int64_t at = from, wide; at < to; at += wide) {
        const int64_t begin = at / panel * panel, width = smaller(panel, p->ly - begin);
        wide = smaller(widest, smaller(to, begin + width) - at);
        multiply_tiles(M, wide / LANES, p->Y + p->depth * begin + at - begin, width, at, p);
    }
}

/* The lanes a0 b0 a1 b1 ... up to the middle of both vectors, and those from the middle on. */
#if VECTOR * 8 / REAL_BITS == 16
#define LOW_HALVES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_HALVES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif VECTOR * 8 / REAL_BITS == 8
#define LOW_HALVES 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_HALVES 4, 12, 5, 13, 6, 14, 7, 15
#elif VECTOR * 8 / REAL_BITS == 4
#define LOW_HALVES 0, 4, 1, 5
#define HIGH_HALVES 2, 6, 3, 7
#else
#define LOW_HALVES 0, 2
#define HIGH_HALVES 1, 3
#endif
#if defined(__clang__)
#define INTERLEAVE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define INTERLEAVE(a, b, ...) __builtin_shuffle(a, b, (mask){__VA_ARGS__})
#endif

/* to[c][r] = from[r][c] for one square block, of which `height` rows and `width` columns exist. Writes `width` whole
 * vectors, with zeros beyond the height. */
INLINE void transpose_block(real *to, int64_t lt, const real *from, int64_t lf, int64_t height, int64_t width) {
    vec a[LANES], b[LANES];
    if (height >= LANES && width >= LANES) {
        UNROLL for (int i = 0; i < LANES; i++) a[i] = load(from + i * lf);
    } else {
        UNROLL for (int i = 0; i < LANES; i++)
            a[i] = i >= height ? (vec){0} : width >= LANES ? load(from + i * lf) : load_some(from + i * lf, width);
    }
    /* each round interleaves the first half of the rows with the second half; log2(LANES) rounds transpose the block */
    UNROLL for (int round = 1; round < LANES; round *= 2) {
        UNROLL for (int i = 0; i < LANES / 2; i++) {
            b[2 * i] = INTERLEAVE(a[i], a[i + LANES / 2], LOW_HALVES);
            b[2 * i + 1] = INTERLEAVE(a[i], a[i + LANES / 2], HIGH_HALVES);
        }
        UNROLL for (int i = 0; i < LANES; i++) a[i] = b[i];
    }
    UNROLL for (int i = 0; i < LANES; i++)
        if (i < width) store(to + i * lt, a[i]);
}

/* to[c][r] = from[r][c], in square blocks. Rows that are a power of two apart compete for few places in a cache, so every
 * row of a block is read once, as a whole vector. */
OPTIONAL static void transpose(real *to, int64_t lt, const real *from, int64_t lf, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; r += LANES) {
        const int64_t height = smaller(LANES, rows - r);
        for (int64_t c = 0; c < columns; c += LANES) {
            const int64_t width = smaller(LANES, columns - c);
            if (height == LANES) {
                transpose_block(to + c * lt + r, lt, from + r * lf + c, lf, LANES, width);
            } else {
                real block[LANES][LANES];
                transpose_block(block[0], LANES, from + r * lf + c, lf, height, width);
                for (int64_t j = 0; j < width; j++) store_some(to + (c + j) * lt + r, load(block[j]), height);
            }
        }
    }
}
