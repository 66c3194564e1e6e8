"""The regime `sweep`: sizes all over the range of a layer, against the layer of torch with the same cell, on a GPU.

    cwrnn bench --device cuda sweep --json out/rnn.json                           ClockworkRNN, all lines
    cwrnn bench --device cuda sweep --layer LSTM --part 2/8 --seconds 300         every eighth case, from the second on
    cwrnn bench --device cuda sweep --steps 100,1024 --json out/rnn.json          lines of 100 and 1024 steps
    cwrnn bench --device cuda sweep --json out/rnn.json --resume                  the lines that the file does not have
    cwrnn bench --device cuda sweep --rivals --json out/rivals.json               also backends that auto did not choose
    cwrnn bench --device cuda sweep --again out/rnn.json --json out/again.json    the lines that were slow there
    python -m cwrnn.bench.sweep_table out/rnn.json                                tables of a finished sweep

A line is one size and dtype. A case has the lines that differ only in the number of modules. They are timed in the same
turns beside one layer of torch, for which modules make no difference. A part of the sweep has sizes of all kinds, and
times them in a fixed mixed order.

With rivals, the other backends of the GPU that can run a line are timed beside the one that runs it. The choice of
`auto` (kernels/gpu/launch.py) comes from such a comparison.

Every layer is checked before it is timed. The output and the gradients of our layer at the first steps, about twice the
longest period, are compared with the cascade in float64, and so is the output of as many last steps. The output and the
gradients of every layer must be finite.
"""

import argparse
import os
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from itertools import chain, product
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..backends import select_backend
from ..layer import ClockworkLayer
from .gpu import DTYPES, GpuRow, accept_compaction, format_milliseconds, format_ratio, name_backend
from .gpu_timing import QUICK, THOROUGH, WAYS, Effort, Times, time_on_device
from .layers import OUR_LAYERS, SIZE_HEAD, TORCH_LAYERS, Size, check, check_end, check_finite
from .ratios import compute_ratios
from .sweep_summary import RIVALS, has_error
from .timing import make_forward, make_training

UNITS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
MODULES = (1, 2, 4, 8)
BATCHES = (1, 16, 64, 256)
STEPS = (100, 1024, 8192)
INPUTS = 64

FEWEST_STEPS = 3
"""The steps of calls that only compile programs."""

FEWEST_CHECKED = 33
"""The fewest steps that are compared with float64, if the input has as many."""

CLOSE = (0.8, 1.1)
"""A line with a ratio between these is timed again for longer, and the later times count."""

LEGEND = (
    "times: times faster than the layer of torch.nn with the same cell, back to back; sync: each call waits for its\n"
    "end; error: the largest of cwrnn, relative, against float64"
)


class Case(NamedTuple):
    """What the lines of a case share."""

    units: int
    steps: int
    batch: int
    dtype: str
    modules: tuple[int, ...] = MODULES
    """The number of modules of each line."""

    def list_sizes(self) -> list[Size]:
        """The sizes of the lines: one for each number of modules."""
        return [Size(self.units, modules, self.steps, self.batch, INPUTS) for modules in self.modules]


class Part(NamedTuple):
    """A share of the cases: every `parts`-th, from number `first` on."""

    first: int
    parts: int

    @classmethod
    def parse(cls, text: str) -> "Part":
        """The share that a text such as "2/8" describes.

        >>> Part.parse("2/8")
        Part(first=2, parts=8)
        """
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        if match is None:
            raise argparse.ArgumentTypeError(f"{text!r} is not K/M, two whole numbers such as 1/8")
        part = cls(*map(int, match.groups()))
        if not 1 <= part.first <= part.parts <= len(CASES):
            raise argparse.ArgumentTypeError(f"{text!r}: K must be from 1 to M, and M at most {len(CASES)}")
        return part

    def select(self, cases: Sequence[Case]) -> list[Case]:
        """The cases of this share, in a mixed order: the first of them are of all kinds too."""
        return _mix(cases[self.first - 1 :: self.parts], seed=0)

    def __str__(self) -> str:
        return f"{self.first}/{self.parts}"


def _mix(values: Iterable[Any], seed: int) -> list[Any]:
    """The values in a mixed order that is the same in every process."""
    values = list(values)
    return random.Random(seed).sample(values, len(values))


CASES = tuple(
    Case(units, steps, batch, dtype)
    for units, steps in product(UNITS, STEPS)
    for batch, dtype in _mix(product(BATCHES, DTYPES), seed=units + steps)
)
"""The cases of the whole sweep, by units and steps, such that every part has about as many of each."""


def select_slow(rows: Iterable[Mapping[str, Any]], layer: str, below: float) -> list[Case]:
    """The cases of the lines of a layer that were slow in another sweep, by units and steps.

    A line was slow if its lowest ratio is below `below`, or if it has an error or no ratio. Lines with another number
    of inputs than INPUTS are left out.
    """
    modules: dict[Case, list[int]] = defaultdict(list)
    for row in rows:
        if (row["layer"], row["inputs"]) != (layer, INPUTS):
            continue
        if min(compute_ratios(row).values(), default=0.0) < below or has_error(row):
            modules[Case(row["n"], row["T"], row["B"], row["dtype"])].append(row["modules"])
    cases = sorted(case._replace(modules=tuple(sorted(counts))) for case, counts in modules.items())
    # mixed, so that every part has about as many of each kind
    return sorted(_mix(cases, seed=0), key=lambda case: (case.units, case.steps))


def leave_out(cases: Iterable[Case], rows: Iterable[Mapping[str, Any]], layer: str) -> list[Case]:
    """The cases without the lines of a layer that `rows` have."""
    done = {
        (row["n"], row["T"], row["B"], row["dtype"], row["modules"])
        for row in rows
        if (row["layer"], row["inputs"]) == (layer, INPUTS)
    }
    left = [case._replace(modules=tuple(m for m in case.modules if (*case[:4], m) not in done)) for case in cases]
    return [case for case in left if case.modules]


def parse_steps(text: str) -> tuple[int, ...]:
    """The numbers of steps that a text such as "100,1024" names, each one of STEPS.

    >>> parse_steps("1024,100")
    (100, 1024)
    """
    known = {str(steps): steps for steps in STEPS}
    names = text.split(",")
    if not set(names) <= set(known):
        raise argparse.ArgumentTypeError(f"{text!r} is not one or more of {', '.join(known)}, with commas between them")
    return tuple(sorted({known[name] for name in names}))


class _Candidate:
    """A layer of a case: its error, and the fault for which it is not timed."""

    def __init__(self, name: str, layer: nn.Module) -> None:
        self.name, self.layer = name, layer
        self.backend = "none"
        self.error: float | None = None
        self.fault: str | None = None
        self.forward: Times | None = None
        self.training: Times | None = None

    def check(self, x: Tensor, gradient: Tensor) -> None:
        """Checks the layer, ours against the specification, and calls it forward and backward for the first time."""
        try:
            if isinstance(self.layer, ClockworkLayer):
                self.backend = name_backend(self.layer, x)
                steps = count_checked_steps(self.layer.schedule.periods, x.shape[0])
                self.error = check(self.layer, x[:steps])
                if steps < x.shape[0]:
                    self.error = max(self.error, check_end(self.layer, x, steps))
            check_finite(self.layer, x, gradient)
        except Exception as error:
            self.fault = describe_fault(error)
        if self.fault == "memory":
            torch.cuda.empty_cache()

    def is_timed(self) -> bool:
        """True if the layer is timed. One that fails for memory with gradients may still run forward."""
        return self.fault in (None, "memory")

    def describe(self) -> str | None:
        """The fault with the name of the layer, or None."""
        missing = self.forward is None or self.training is None
        fault = self.fault or ("memory" if missing else None)
        return None if fault is None else f"{self.name}: {fault}"


def count_checked_steps(periods: Sequence[int], steps: int) -> int:
    """The steps that are compared with float64: twice the longest period, and one, where the input has as many.

    >>> count_checked_steps((1, 2, 128), 8192), count_checked_steps((1,), 100), count_checked_steps((1, 128), 100)
    (257, 33, 100)
    """
    return min(steps, max(FEWEST_CHECKED, 2 * max(periods) + 1))


def describe_fault(error: Exception) -> str:
    """An error as a note of one line: "memory", or its type and the first line of its message.

    >>> describe_fault(RuntimeError("cuDNN error: NOT_SUPPORTED"))
    'RuntimeError: cuDNN error: NOT_SUPPORTED'
    """
    if isinstance(error, torch.OutOfMemoryError):
        return "memory"
    message = str(error).strip().splitlines()
    return f"{type(error).__name__}: {message[0]}" if message else type(error).__name__


def prepare(
    cases: Iterable[Case], layer: str, backend: str, device: torch.device, may_start: Callable[[], bool]
) -> Iterator[str]:
    """Compiles the programs of all cases, many at once, and yields a text about its progress after each.

    It stops when `may_start` returns False.

    To compile those of a line takes seconds, most of which a sweep would otherwise spend on one core. Errors are left
    to `measure_case`.
    """
    # the programs do not depend on the number of steps
    wanted = dict.fromkeys(
        (size._replace(steps=FEWEST_STEPS), case.dtype) for case in cases for size in case.list_sizes()
    )
    threads = ThreadPoolExecutor(os.cpu_count())
    try:
        done = [threads.submit(_run_once, size, dtype, layer, backend, device) for size, dtype in wanted]
        for number, _ in enumerate(as_completed(done), 1):
            yield f"compiling: {number} of {len(done)}"
            if not may_start():
                break
    finally:
        threads.shutdown(cancel_futures=True)


def _run_once(size: Size, dtype: str, layer: str, backend: str, device: torch.device) -> None:
    placed: Any = {"device": device, "dtype": DTYPES[dtype]}
    # autograd would run the gradients of all networks in one thread
    with suppress(Exception), torch.autograd.set_multithreading_enabled(False):
        ours = OUR_LAYERS[layer](size.inputs, size.units, schedule=size.modules, backend=backend, **placed)
        output, _ = ours(torch.zeros(size.steps, size.batch, size.inputs, **placed))
        output.sum().backward()


def measure_case(case: Case, layer: str, backend: str, device: torch.device, rivals: bool = False) -> list[GpuRow]:
    """The rows of a case, with the times of rivals if they are wanted.

    A layer that fails, or needs too much memory, has a note in place of its times.
    """
    try:
        with accept_compaction():
            return _measure_case(case, layer, backend, device, rivals)
    except Exception as error:
        note = describe_fault(error)
    return [GpuRow(size, layer, case.dtype, backend, None, {}, {}, note) for size in case.list_sizes()]


def _measure_case(case: Case, layer: str, backend: str, device: torch.device, rivals: bool) -> list[GpuRow]:
    torch.manual_seed(0)
    placed: Any = {"device": device, "dtype": DTYPES[case.dtype]}
    x = torch.randn(case.steps, case.batch, INPUTS, **placed)
    gradient = torch.randn(case.steps, case.batch, case.units, **placed)
    theirs = _Candidate(layer, TORCH_LAYERS[layer](INPUTS, case.units, **placed))
    ours = [
        _Candidate("cwrnn", OUR_LAYERS[layer](INPUTS, case.units, schedule=modules, backend=backend, **placed))
        for modules in case.modules
    ]
    for candidate in (theirs, *ours):
        candidate.check(x, gradient)
    others = [_make_rivals(one, layer, x) if rivals else [] for one in ours]
    for candidate in chain(*others):
        candidate.check(x, gradient)
    _time([theirs, *ours, *chain(*others)], x, gradient, QUICK)
    rows = _make_rows(case, layer, theirs, ours, others)
    close = [_is_close(row) for row in rows]
    if not any(close):
        return rows
    again = [candidate for one, own, is_close in zip(ours, others, close, strict=True) if is_close
             for candidate in (one, *own)]  # fmt: skip
    _time([theirs, *again], x, gradient, THOROUGH)
    new_rows = _make_rows(case, layer, theirs, ours, others)
    return [new if is_close else old for is_close, old, new in zip(close, rows, new_rows, strict=True)]


def _make_rivals(one: _Candidate, layer: str, x: Tensor) -> list[_Candidate]:
    """A candidate for each backend that can run the network of `one`, except the one that does."""
    rnn: Any = one.layer
    placed: Any = {"device": x.device, "dtype": x.dtype}
    names = []
    for name in RIVALS:
        with suppress(RuntimeError):
            select_backend(name, x.device, x.dtype, rnn.schedule, rnn.cell)
            if name != one.backend:
                names.append(name)
    return [
        _Candidate(name, OUR_LAYERS[layer](x.shape[2], rnn.hidden_size, schedule=rnn.schedule, backend=name, **placed))
        for name in names
    ]


def _time(candidates: Sequence[_Candidate], x: Tensor, gradient: Tensor, effort: Effort) -> None:
    timed = [candidate for candidate in candidates if candidate.is_timed()]
    forward = time_on_device([make_forward(candidate.layer, x) for candidate in timed], effort)
    # the check has called every layer with gradients
    training = time_on_device(
        [make_training(candidate.layer, x, gradient) for candidate in timed], effort, is_warm=True
    )
    for candidate, *times in zip(timed, forward, training, strict=True):
        candidate.forward, candidate.training = times


def _make_rows(
    case: Case,
    layer: str,
    theirs: _Candidate,
    ours: Sequence[_Candidate],
    rivals: Sequence[Sequence[_Candidate]],
) -> list[GpuRow]:
    rows = []
    for size, one, others in zip(case.list_sizes(), ours, rivals, strict=True):
        notes = [note for note in (candidate.describe() for candidate in (one, theirs, *others)) if note is not None]
        rows.append(
            GpuRow(
                size,
                layer,
                case.dtype,
                one.backend,
                one.error,
                {"cwrnn": one.forward, layer: theirs.forward} | {other.name: other.forward for other in others},
                {"cwrnn": one.training, layer: theirs.training} | {other.name: other.training for other in others},
                "; ".join(notes) or None,
            )
        )
    return rows


def _is_close(row: GpuRow) -> bool:
    low, high = CLOSE
    return any(low < ratio < high for ratio in compute_ratios(row.record()).values())


def measure_sweep(
    cases: Sequence[Case],
    layer: str,
    backend: str,
    device: torch.device,
    may_start: Callable[[], bool],
    rivals: bool = False,
) -> Iterator[list[GpuRow]]:
    """The rows of each case, until `may_start` says no or the device fails for good."""
    for case in cases:
        if not may_start():
            return
        rows = measure_case(case, layer, backend, device, rivals)
        yield rows
        if not _is_usable(device):
            return


def _is_usable(device: torch.device) -> bool:
    """False after an error from which a process cannot recover, such as an illegal access to memory of the GPU."""
    try:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.empty_cache()
    except RuntimeError:
        return False
    return True


_COLUMNS = f"{'ms':>8s} {'sync ms':>8s} {'times':>7s} {'sync':>7s}"

HEAD = (
    f"{'':38s} | {'forward':^{len(_COLUMNS)}s} | {'forward+backward':^{len(_COLUMNS)}s} |\n"
    f"{SIZE_HEAD} dtype | {_COLUMNS} | {_COLUMNS} |   error"
)


def format_line(row: GpuRow) -> str:
    """The row as a line of text below HEAD."""
    parts = [f"{row.size} {row.dtype:>5s}"]
    for measured in (row.forward, row.training):
        own, other = measured.get("cwrnn"), measured.get(row.layer)
        shown = [format_milliseconds(own, way, "-") for way in WAYS]
        parts.append(" ".join(shown + [format_ratio(own, other, way, "-") for way in WAYS]))
    end = "" if row.error is None else f"{row.error:7.1e}"
    return " | ".join([*parts, f"{end:7s} {row.note or ''}"]).rstrip()
