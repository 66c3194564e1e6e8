"""Functions that the programs of the GPU kernel share: reading the table of modules, waiting, and multiplying.

The columns of the tables are compile-time constants to the programs. Each table's numbers are one constant, because
Triton compares every constant of a program with its first value at every launch.
"""

import triton
import triton.language as tl

from .. import tables

MODULE = tl.constexpr(tables.MODULE)
PART = tl.constexpr(tables.PART)
BLOCK = tl.constexpr(tables.BLOCK)


@triton.jit
def module_row(table, j):
    """The address of module j's row in the table of modules."""
    return table + j * len(MODULE.value)


@triton.jit
def load_module(m):
    """The period, the size, the first unit, the first tick and the number of ticks of the module in row m."""
    return (
        tl.load(m + MODULE.value.period).to(tl.int32),
        tl.load(m + MODULE.value.size).to(tl.int32),
        tl.load(m + MODULE.value.first_unit).to(tl.int32),
        tl.load(m + MODULE.value.first_tick).to(tl.int32),
        tl.load(m + MODULE.value.ticks).to(tl.int32),
    )


@triton.jit
def row_at(t, first, period):
    """The row that a module holds at time t."""
    return tl.where(t >= first, (t - first) // period + 1, 0)


@triton.jit
def take_turn(turns, tiles):
    """The replica, the role and the tile of this program.

    Programs take numbers as they begin to run, in whatever order the device starts them. A program waits only for
    programs with lower numbers. Those run already, so every wait ends.
    """
    number = tl.atomic_add(turns, 1, sem="relaxed")
    of_replica = number % tl.num_programs(0)
    return (number // tl.num_programs(0)).to(tl.int64), of_replica // tiles, of_replica % tiles


@triton.jit
def wait_for_rows(flag, ready, rows):
    """Wait until `flag` counts at least `rows` rows, and return its count. `ready` is the count read last."""
    while ready < rows:
        ready = tl.atomic_add(flag, 0, sem="acquire")
    return ready


@triton.jit
def signal_rows(flag, rows):
    """Set `flag` to `rows`, after all threads of this program have written those rows."""
    tl.debug_barrier()
    tl.atomic_xchg(flag, rows, sem="release")


@triton.jit
def tanh(x, FAST: tl.constexpr):
    """tanh(x), by the device's approximate instruction if FAST."""
    if FAST:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    # an exponential that overflows gives 1, and one that underflows gives -1; near zero, where the difference would
    # lose digits, the series
    large = 1 - 2 / (tl.exp(2 * x) + 1)
    y = x * x
    small = x + x * y * (-1 / 3 + y * (2 / 15 + y * (-17 / 315 + y * (62 / 2835 - y * (1382 / 155925)))))
    return tl.where(tl.abs(x) < 0.3, small, large)


@triton.jit
def sigmoid(x, FAST: tl.constexpr):
    """The logistic function, by the device's approximate tanh if FAST."""
    if FAST:
        return 0.5 + 0.5 * tanh(0.5 * x, True)
    return 1 / (1 + tl.exp(-x))


@triton.jit
def align(x, ALIGN: tl.constexpr):
    """x, which is a multiple of ALIGN, computed so that the compiler sees this."""
    return x if ALIGN == 1 else x // ALIGN * ALIGN


@triton.jit
def load_planes(base, plane, offsets, mask, COUNT: tl.constexpr, CACHE: tl.constexpr):
    """The numbers at `offsets` of COUNT planes, which begin `plane` numbers apart; zero where `mask` is false."""
    values = (tl.load(base + offsets, mask=mask, other=0, cache_modifier=CACHE),)
    for q in tl.static_range(1, COUNT):
        values += (tl.load(base + q * plane + offsets, mask=mask, other=0, cache_modifier=CACHE),)
    return values


@triton.jit
def store_planes(base, plane, offsets, values, mask):
    """Store a tensor of `values` at `offsets` of each plane."""
    for q in tl.static_range(len(values)):
        tl.store(base + q * plane + offsets, values[q].to(base.dtype.element_ty), mask=mask)


@triton.jit
def load_weights(
    weight, one, stride, inner, k, K,
    BK: tl.constexpr, PRECISION: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """A gate's K x K weights, which have those strides: in shared memory if SHARED, else in registers."""
    i = tl.arange(0, BK)
    at = weight + k[:, None] * stride + i[None, :] * inner
    W = tl.load(at, mask=(k[:, None] < K) & (i[None, :] < K), other=0)
    # times one: a product stays in registers, but the compiler would keep a value that is merely loaded in shared
    # memory and read it again at every tick
    return W if SHARED else round_operand(W, PRECISION) * one


@triton.jit
def round_operand(x, PRECISION: tl.constexpr):
    """x rounded to tf32 if the product is one of tf32: the unit that multiplies would cut off the digits."""
    if PRECISION == "tf32":
        bits = x.to(tl.int32, bitcast=True)
        # NaN is left as it is: the device's NaN has all bits set, and rounding would turn it into zero
        x = tl.where(x == x, ((bits + 0x1000) & ~0x1FFF).to(tl.float32, bitcast=True), x)
    return x
