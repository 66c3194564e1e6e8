/* LSTM and GRU: a tick of one unit of one sequence, and its gradients. The equations are those of reference.py. Constants
 * as in modules.cuh. */

#ifndef CWRNN_CELLS
#define CWRNN_CELLS

#include "modules.cuh"

#define LSTM (GATES == 4)
/* The planes that forward keeps for backward: those of `Tick`, then the state. Row 0 has the state alone. */
#define KEPT_PLANES 5

/* What a tick leaves. */
struct Tick {
    float planes[4]; /* i, f, g, o of an LSTM; r, z, n and the reset product before r of a GRU */
    float state;     /* c of an LSTM, h of a GRU */
    float h;
};

DEVICE float logistic(float x) { return FAST ? 0.5f + 0.5f * tanh_fast(0.5f * x) : logistic_of(x); }

/* A tick: `sums` are those of the gates, of a GRU's last gate the reset product, whose drive is `outside`. `state` is the
 * one before the tick. */
DEVICE Tick compute_tick(const float (&sums)[GATES], float outside, float state, const float (&peepholes)[3]) {
    Tick tick;
    if (LSTM) {
        const float more_i = PEEPHOLES ? peepholes[0] * state : 0, more_f = PEEPHOLES ? peepholes[1] * state : 0;
        const float i = logistic(sums[0] + more_i), f = logistic(sums[1] + more_f), g = tanh_of<FAST>(sums[2]);
        tick.state = f * state + i * g;
        const float o = logistic(sums[GATES - 1] + (PEEPHOLES ? peepholes[2] * tick.state : 0));
        tick.h = o * tanh_of<FAST>(tick.state);
        tick.planes[0] = i, tick.planes[1] = f, tick.planes[2] = g, tick.planes[3] = o;
    } else {
        const float r = logistic(sums[0]), z = logistic(sums[1]), n = tanh_of<FAST>(outside + r * sums[2]);
        tick.state = tick.h = n + z * (state - n);
        tick.planes[0] = r, tick.planes[1] = z, tick.planes[2] = n, tick.planes[3] = sums[2];
    }
    return tick;
}

/* The gradients of a tick's sums by plane, as in modules.cuh; `later` becomes the gradient that the state before the tick
 * gets from it by itself: c of an LSTM, h of a GRU.
 *
 * `g` is the gradient of h, without what a later tick of a GRU has left in `later`. An LSTM's `later` has the gradient of c
 * from later ticks and from outside. `state` and `before` are the states after the tick and before it. */
DEVICE void reverse_tick(float (&sums)[4], float &later, float g, const float (&planes)[4], float state, float before,
                         const float (&peepholes)[3]) {
    if (LSTM) {
        const float i = planes[0], f = planes[1], n = planes[2], o = planes[3], y = tanh_of<FAST>(state);
        sums[3] = g * y * o * (1 - o);
        later += g * o * (1 - y * y);
        if (PEEPHOLES) later += peepholes[2] * sums[3];
        sums[0] = later * n * i * (1 - i);
        sums[1] = later * before * f * (1 - f);
        sums[2] = later * i * (1 - n * n);
        later *= f;
        if (PEEPHOLES) later += peepholes[0] * sums[0] + peepholes[1] * sums[1];
    } else {
        const float r = planes[0], z = planes[1], n = planes[2];
        sums[1] = g * (before - n) * z * (1 - z);
        sums[3] = g * (1 - z) * (1 - n * n);
        sums[0] = sums[3] * planes[3] * r * (1 - r);
        sums[2] = sums[3] * r;
        later = g * z;
    }
}

/* Four numbers of a lane as one piece of memory. */
DEVICE void store_four(element *to, const float (&x)[4]) {
#if ELEMENT == 0
    *(float4 *)to = make_float4(x[0], x[1], x[2], x[3]);
#else
    *(uint2 *)to = make_uint2((uint32)to_element(x[0]) | (uint32)to_element(x[1]) << 16,
                              (uint32)to_element(x[2]) | (uint32)to_element(x[3]) << 16);
#endif
}

struct Four {
#if ELEMENT == 0
    float4 words;
#else
    uint2 words;
#endif
};

DEVICE Four load_four(const element *from) {
    Four x;
#if ELEMENT == 0
    x.words = *(const float4 *)from;
#else
    x.words = *(const uint2 *)from;
#endif
    return x;
}

DEVICE float pick(const Four &x, int k) {
#if ELEMENT == 0
    return k == 0 ? x.words.x : k == 1 ? x.words.y : k == 2 ? x.words.z : x.words.w;
#else
    const uint32 word = k < 2 ? x.words.x : x.words.y;
    return to_float((element)(k % 2 == 0 ? word & 0xffffu : word >> 16));
#endif
}

#endif
