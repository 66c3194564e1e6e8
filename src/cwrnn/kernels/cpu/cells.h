/* The cells: the new state of a vector of units, and the gradients of the sums that it was computed from. Part of cpu.c,
 * which describes the computation. `cell` is a constant to the compiler wherever every instruction counts. */

/* How many numbers of a message each unit hears: the rows of weight_ih and of weight_hh per unit. */
INLINE int gates_of(int64_t cell) { return cell == LSTM ? 4 : cell == GRU ? 3 : 1; }

/* How many of them have the same gradient towards the input as towards the messages. */
INLINE int common_of(int64_t cell) { return cell == GRU ? 2 : gates_of(cell); }

/* How many numbers forward keeps for backward, per unit and tick: the gates, and c of an LSTM. */
INLINE int kept_of(int64_t cell) { return cell == LSTM ? 5 : cell == GRU ? 4 : 0; }

INLINE int is_gated(int64_t cell) { return cell == LSTM || cell == GRU; }

enum {
    SUMS = 4,      /* numbers that the new state of a unit is computed from, and gates that are kept, at most */
    CELL = 4,      /* the place of c among the numbers that are kept */
    KEPT_ROOM = 16 /* a vector may reach beyond the end of the numbers that are kept */
};

/* The sum that gate k of a message is added to. In a GRU it is apart from the sum of the input for n. */
INLINE int sum_of(const int cell, const int k) { return cell == GRU && k == 2 ? 3 : k; }

/* A vector of units after a tick. */
typedef struct {
    vec h, c;
    vec gate[SUMS]; /* LSTM: i, f, g, o. GRU: r, z, n, and the sum of the messages to n */
} Units;

/* The new state of units whose state is h and c, from their sums `a`; `peephole` is NULL or the weights of i, f and o. */
INLINE Units tick_units(const int cell, const vec a[SUMS], vec h, vec c, const vec *peephole) {
    Units u = {0};
    if (cell == LSTM) {
        const vec i = logistic(peephole != NULL ? a[0] + peephole[0] * c : a[0]);
        const vec f = logistic(peephole != NULL ? a[1] + peephole[1] * c : a[1]);
        const vec g = hyperbolic_tangent(a[2]);
        u.c = f * c + i * g;
        const vec o = logistic(peephole != NULL ? a[3] + peephole[2] * u.c : a[3]);
        u.h = o * hyperbolic_tangent(u.c);
        u.gate[0] = i, u.gate[1] = f, u.gate[2] = g, u.gate[3] = o;
    } else if (cell == GRU) {
        const vec r = logistic(a[0]), z = logistic(a[1]), n = hyperbolic_tangent(a[2] + r * a[3]);
        u.h = n + z * (h - n);
        u.gate[0] = r, u.gate[1] = z, u.gate[2] = n, u.gate[3] = a[3];
    } else {
        u.h = cell == RELU ? choose(a[0] < 0, (vec){0}, a[0]) : hyperbolic_tangent(a[0]);
    }
    return u;
}

/* The gradient of the sum whose activation is h, where g is the gradient of h. */
INLINE vec activation_gradient(vec g, vec h, int64_t cell) {
    return cell == RELU ? choose(h <= 0, (vec){0}, g) : g * (1 - h * h);
}

/* The gradients of a tick of an LSTM: da of the sums. dh and dc are the gradients of the new state; dc becomes that of the
 * old one. tanh(c) = h / o; where o is 0, h is 0 as well. */
INLINE void differentiate_lstm(vec da[SUMS], vec dh, vec *dc, vec h, const vec gate[SUMS], vec c_before, const vec *peephole) {
    const vec i = gate[0], f = gate[1], g = gate[2], o = gate[3];
    da[3] = dh * h * (1 - o);
    vec d = *dc + dh * (o - h * (h / choose(o == 0, spread(1), o)));
    if (peephole != NULL) d += da[3] * peephole[2];
    da[0] = d * g * (i * (1 - i));
    da[1] = d * c_before * (f * (1 - f));
    da[2] = d * i * (1 - g * g);
    d *= f;
    if (peephole != NULL) d += da[0] * peephole[0] + da[1] * peephole[1];
    *dc = d;
}

/* The gradients of a tick of a GRU: da of the sums, the last of which is that of the messages to n. dh is the gradient of
 * the new state; the part of it that the old state gets directly is returned. */
INLINE vec differentiate_gru(vec da[SUMS], vec dh, vec h_before, const vec gate[SUMS]) {
    const vec r = gate[0], z = gate[1], n = gate[2];
    da[2] = dh * (1 - z) * (1 - n * n);
    da[3] = da[2] * r;
    da[0] = da[2] * gate[3] * (r * (1 - r));
    da[1] = dh * (h_before - n) * (z * (1 - z));
    return dh * z;
}
