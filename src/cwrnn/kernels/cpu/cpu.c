/* The Clockwork RNN on a CPU: forward, backward, and a single step.
 *
 * This file is compiled once per instruction set and precision (CMakeLists.txt): REAL is float or double, ISA gives each
 * copy its own names, and the vector length follows the compiler's flags. Letters as everywhere: S replicas, T time
 * steps, B sequences, I inputs, N units, G modules, P_i periods, K_i sizes. "Rows" are sequences.
 *
 * What is computed
 *
 *     a_i(t) = W_ih[i] x(t) + b[i] + sum over j >= i of W_hh[i, j] h_j(t - 1)        for each module i that is due at t
 *     h_i(t) = f(a_i(t))
 *
 * in one pass over time. The message of module j to itself and to all faster modules, W_hh[..j, j] h_j, is multiplied
 * once when the module ticks, and kept until it ticks again: sum_j K_j (K_1 + ... + K_j) / P_j multiply-adds per step.
 * If the periods are nested (each divides the next), all faster modules tick whenever a slow one does, so the messages
 * telescope: each module adds its own message to the sum of the slower ones,
 *
 *     heard_j = heard_{j+1} + W_hh[..j, j] h_j          a_i = W_ih[i] x + b[i] + heard_i
 *
 * Otherwise each message is kept separately, and a module that is due adds up those that it hears.
 *
 * Backward is the same pass in reverse. g_message_j collects the gradients a' of all modules that heard message j, over
 * the whole time that it was held. When the pass meets the tick at which the message was made,
 *
 *     h_j' = (gradient from outside) + W_hh[..j, j]^T g_message_j
 *     a_j' = f'(h_j) h_j'
 *     W_hh[..j, j]' += g_message_j h_j^T
 *
 * and with nested periods g_message_{j+1} += g_message_j, once per tick of j. While a message is held its own module
 * ticks once, so g_message_j contains a_j' of that tick unchanged: the same rows serve for W_ih' and b'. The products for
 * the weights are not computed tick by tick: a few dozen pairs (g_message_j, h_j) are kept and multiplied together, so
 * that the weights' gradient does not pass through the cache at every tick.
 *
 * How the loops are ordered
 *
 * Everything is one kind of product (vectors.h): a few rows times a matrix, units in the lanes of the vectors, the sum
 * over the inner index in order. Units in lanes need no change of layout and serve a single sequence as well as a batch.
 * The units 0 to end_j that hear module j are contiguous, so little is lost to padding even where modules are small. The
 * sum for one unit is always taken in the same order: a network gives the same bits alone and among a hundred replicas,
 * on one thread and on many.
 *
 * Weights are packed once per call, by all threads together; if they are few, or if every replica has its own, by each
 * thread for itself. Forward packs them by columns (message j is K_j columns of length end_j), in panels, so that numbers
 * that are read together lie together; backward packs them by rows. The batch is cut into chunks of at most CHUNK
 * sequences, whose states and messages stay in the cache over all time; chunks and replicas are the tasks of the threads.
 * Sequences are sorted by length: those that have ended are the last ones of a chunk, and are left out.
 *
 * An output that is larger than the caches is written past them, and backward prefetches its operands one step ahead. */

#include "vectors.h"

#include "memory.h"

#include "cells.h"

/* the plan of a call and its packed weights, the entry points, in the order in which to read them */
#include "plan.h"

#include "forward.h"

#include "single.h"

#include "backward.h"

#include "step.h"

#include "rows.h"
