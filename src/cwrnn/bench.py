"""How fast the layer is: side by side with torch.nn.RNN of the same size, in one run.

    python -m cwrnn.bench                                     the default sizes
    python -m cwrnn.bench 1024,8,512,32,32 256,8,512,32,32    n, modules, T, B, inputs
    python -m cwrnn.bench --backend torch --threads 2 --json out/bench.json

A result counts only if it is right: before anything is timed, output and gradients are compared with the
specification. Each number is the median of several runs, the two layers taking turns. On a busy machine use
--threads 1: two threads that wait for each other measure the other jobs.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from . import __version__
from .layer import ClockworkRNN
from .recurrence import BACKENDS, choose


class Size(NamedTuple):
    """One line of the table."""

    n: int
    modules: int
    T: int
    B: int
    inputs: int

    @classmethod
    def parse(cls, text: str) -> "Size":
        """The size that `text` names: five whole numbers, separated by commas.

        >>> Size.parse("1024,8,512,32,32")
        Size(n=1024, modules=8, T=512, B=32, inputs=32)
        """
        try:
            size = cls(*(int(part) for part in text.split(",")))
        except (TypeError, ValueError):
            raise argparse.ArgumentTypeError(
                f"{text!r} is not n,modules,T,B,inputs: five whole numbers such as 1024,8,512,32,32"
            ) from None
        if min(size) < 1 or size.modules > size.n:
            raise argparse.ArgumentTypeError(f"{text!r}: all five must be at least 1, and modules at most n")
        return size


DEFAULT_SIZES = (
    Size(1024, 8, 512, 32, 32),
    Size(512, 8, 512, 32, 32),
    Size(256, 8, 512, 32, 32),
    Size(102, 7, 100, 32, 13),
)


class Row(NamedTuple):
    """What was measured for one size: seconds, medians."""

    size: Size
    backend: str
    error: float
    forward: float
    forward_rnn: float
    training: float
    training_rnn: float

    @property
    def forward_ratio(self) -> float:
        """How many times faster than torch.nn.RNN a forward pass is."""
        return self.forward_rnn / self.forward

    @property
    def training_ratio(self) -> float:
        """The same, for forward and backward."""
        return self.training_rnn / self.training


def check(rnn: ClockworkRNN, input: Tensor) -> float:
    """The largest relative error of output and gradients against the specification; raises if it is not small."""
    specified = ClockworkRNN(
        rnn.input_size, rnn.hidden_size, device=input.device, dtype=torch.float64,
        schedule=rnn.schedule, backend="reference",
    )  # fmt: skip
    specified.load_state_dict(rnn.state_dict())
    # the layer runs as it will be timed, but the specification, which is slow, on two of the sequences only
    chosen = [0, input.shape[1] - 1]

    def evaluate(layer: ClockworkRNN, x: Tensor, sequences: list[int]) -> list[Tensor]:
        output, h_n = (value[:, sequences] for value in layer(x))
        loss = output.square().mean() + h_n.square().mean()
        return [output, *torch.autograd.grad(loss, list(layer.parameters()))]

    worst = 0.0
    found_values = evaluate(rnn, input, chosen)
    for found, expected in zip(found_values, evaluate(specified, input[:, chosen].double(), [0, 1]), strict=True):
        error = (found.double() - expected).abs().max() / expected.abs().max()
        worst = max(worst, error.item())
    tolerance = {torch.float64: 1e-9, torch.float32: 1e-4}.get(input.dtype, 0.03)
    if not worst <= tolerance:
        raise AssertionError(
            f"backend {rnn.backend!r} does not equal the specification: relative error {worst:.1e} > {tolerance:.0e}; "
            "it is not timed"
        )
    return worst


def take_turns(functions: Sequence[Callable[[], Any]], repeats: int, device: torch.device) -> list[float]:
    """The median seconds of each function, all of them measured in turn, after one turn that warms up."""
    seconds: list[list[float]] = [[] for _ in functions]
    for turn in range(repeats + 1):
        for function, taken in zip(functions, seconds, strict=True):
            _synchronise(device)
            start = time.perf_counter()
            function()
            _synchronise(device)
            if turn > 0:
                taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in seconds]


def measure(size: Size, backend: str, repeats: int, device: torch.device, dtype: torch.dtype) -> Row:
    """One line of the table, checked and then timed."""
    torch.manual_seed(0)
    placed: Any = {"device": device, "dtype": dtype}
    rnn = ClockworkRNN(size.inputs, size.n, schedule=size.modules, backend=backend, **placed)
    dense = nn.RNN(size.inputs, size.n, **placed)
    x = torch.randn(size.T, size.B, size.inputs, **placed)
    gradient = torch.randn(size.T, size.B, size.n, **placed)
    error = check(rnn, x)

    def forward(layer: nn.Module) -> Callable[[], None]:
        def run() -> None:
            with torch.no_grad():
                layer(x)

        return run

    def train(layer: nn.Module) -> Callable[[], None]:
        def run() -> None:
            layer.zero_grad()
            layer(x)[0].backward(gradient)

        return run

    forward_seconds = take_turns([forward(rnn), forward(dense)], repeats, device)
    training_seconds = take_turns([train(rnn), train(dense)], repeats, device)
    return Row(size, backend, error, *forward_seconds, *training_seconds)


HEAD = "     n  modules     T    B  inputs   forward ms   nn.RNN   times faster   training ms   nn.RNN   times faster"


def line(row: Row) -> str:
    """The row as text, below HEAD: milliseconds, and the ratio to torch.nn.RNN."""
    n, modules, T, B, inputs = row.size
    return (
        f"{n:6d}  {modules:7d}  {T:4d}  {B:3d}  {inputs:6d}"
        f"   {row.forward * 1e3:10.2f}  {row.forward_rnn * 1e3:7.1f}   {row.forward_ratio:12.1f}"
        f"   {row.training * 1e3:11.2f}  {row.training_rnn * 1e3:7.1f}   {row.training_ratio:12.1f}"
    )


def machine(device: torch.device) -> dict[str, Any]:
    """Where the numbers come from."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {
        "cwrnn": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": name,
        "threads": torch.get_num_threads(),
    }


def record(rows: Sequence[Row], environment: dict[str, Any]) -> dict[str, Any]:
    """All of it as plain data, for JSON."""
    fields = ("backend", "error", "forward", "forward_rnn", "forward_ratio", "training", "training_rnn",
              "training_ratio")  # fmt: skip
    found = [{**row.size._asdict(), **{name: getattr(row, name) for name in fields}} for row in rows]
    return {"environment": environment, "unit": "seconds, medians", "rows": found}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit code is 1 if a backend is not right, 2 if the arguments are not."""
    parser = argparse.ArgumentParser(
        prog="python -m cwrnn.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sizes", nargs="*", type=Size.parse, metavar="n,modules,T,B,inputs", help="what to time; default: four sizes"
    )
    parser.add_argument("--backend", default="auto", choices=("auto", *BACKENDS), help="default: auto")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, ...; default: cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64", "bfloat16", "float16"),
                        help="default: float32")  # fmt: skip
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="default: torch's")
    parser.add_argument("--repeats", type=int, default=7, help="runs of which the median counts; default: 7")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args(arguments)
    if options.threads < 1 or options.repeats < 1:
        parser.error("--threads and --repeats must be at least 1")
    try:
        device, dtype = torch.device(options.device), getattr(torch, options.dtype)
        torch.empty(0, device=device)
        backend = choose(options.backend, device, dtype)
    except (RuntimeError, AssertionError) as error:
        parser.error(str(error).splitlines()[0])
    torch.set_num_threads(options.threads)

    environment = machine(device)
    print(", ".join(f"{name} {value}" for name, value in environment.items()), f"backend {backend}", sep=", ")
    print(HEAD, flush=True)
    rows = []
    for size in options.sizes or DEFAULT_SIZES:
        try:
            rows.append(measure(size, backend, options.repeats, device, dtype))
        except AssertionError as error:
            print(error, file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        print(line(rows[-1]), flush=True)
    print(f"largest relative error against the specification: {max(row.error for row in rows):.1e}")
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(record(rows, environment), indent=2) + "\n")
        print(f"written to {options.json}")
    return 0


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit(main())
