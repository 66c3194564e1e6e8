"""Runs the GPU kernel on small calls, for NVIDIA's compute-sanitizer to watch.

    compute-sanitizer --tool memcheck python tools/sanitize_gpu.py small
    compute-sanitizer --tool racecheck python tools/sanitize_gpu.py small scanned spread steps

Without a group, all of them run. `small` networks run as a whole in one block of threads per sequence; of `scanned`
ones a block computes a module, and of `spread` ones several blocks compute a module together; `steps` are single time
steps. A group has all cells. Each network makes one call forward and one backward; `steps` makes two steps. A line is
one network, with the largest relative distance of a result from that of backend="torch" in float64 on the CPU. The exit
code is 1 if a result is further off than by rounding, so that a watched run cannot pass with wrong numbers.

compute-sanitizer comes with CUDA's toolkit. docs/robustness.md says what it reported, and why.
"""

import argparse
import copy
import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN, Schedule

INPUTS = 13
"""An odd number, so that rows of the input do not begin at multiples of 8 bytes."""
TOLERANCE = 0.05
"""More than half precision is off by, and less than a result is off by that misses a message."""


class Network(NamedTuple):
    """A network and the call that it makes."""

    layer: Any
    schedule: Schedule
    dtype: torch.dtype
    options: dict[str, Any] = {}
    batch: int = 11
    tf32: bool = True


RNN, LSTM, GRU = ClockworkRNN, ClockworkLSTM, ClockworkGRU
FLOAT32, BFLOAT16, FLOAT16 = torch.float32, torch.bfloat16, torch.float16
RELU, PEEPHOLES = {"nonlinearity": "relu"}, {"peepholes": True}
NETWORKS = {
    "small": [
        Network(RNN, Schedule((1, 2, 5), (9, 20, 33)), FLOAT32),
        Network(RNN, Schedule((1, 2), (5, 7)), FLOAT16, RELU),
        Network(LSTM, Schedule((1, 3), (9, 30)), FLOAT32),
        Network(LSTM, Schedule((2, 3), (20, 21)), BFLOAT16, PEEPHOLES),
        Network(GRU, Schedule((1, 2, 4), (9, 20, 21)), BFLOAT16),
        # a part of the weights lies in shared memory
        Network(LSTM, Schedule((1, 3), (41, 30)), FLOAT32, PEEPHOLES),
        Network(GRU, Schedule((1, 2), (50, 60)), FLOAT32),
    ],
    "scanned": [
        Network(RNN, Schedule((1, 2, 4), (128, 100, 33)), BFLOAT16),
        Network(RNN, Schedule((2, 3, 7), (64, 128, 128)), FLOAT32),
        Network(RNN, Schedule((1, 2), (64, 80)), FLOAT32, RELU, tf32=False),
        Network(LSTM, Schedule((1, 2), (64, 70)), BFLOAT16),
        Network(LSTM, Schedule((1, 3), (32, 48)), FLOAT16, PEEPHOLES),
        Network(GRU, Schedule((1, 3), (48, 64)), FLOAT16),
    ],
    "spread": [
        Network(RNN, Schedule((1, 2), (512, 300)), BFLOAT16),
        Network(RNN, Schedule((1,), (512,)), FLOAT32),
        Network(LSTM, Schedule((1, 2), (256, 160)), BFLOAT16),
        Network(GRU, Schedule((1, 3), (256, 130)), FLOAT32),
        # more blocks than a GPU has multiprocessors: a block computes several tiles by turns
        Network(RNN, Schedule((1, 2), (1024, 512)), FLOAT32, RELU, batch=124),
    ],
    "steps": [
        Network(RNN, Schedule((1, 2, 5), (9, 20, 33)), FLOAT32),
        Network(RNN, Schedule((1, 2), (512, 300)), BFLOAT16, RELU),
        Network(LSTM, Schedule((1, 3), (64, 70)), FLOAT16, PEEPHOLES),
        Network(LSTM, Schedule((1, 2), (9, 30)), FLOAT32),
        Network(GRU, Schedule((1, 3), (48, 64)), BFLOAT16),
    ],
}
"""The networks of each group."""


def make_layer(network: Network, device: str) -> Any:
    """The layer of a network, which runs by the GPU kernel."""
    schedule = network.schedule
    options = {"backend": "cuda", "device": device, "dtype": network.dtype, **network.options}
    return network.layer(INPUTS, schedule.hidden_size, schedule=schedule, **options)


def run_sequence(layer: Any, values: Tensor) -> dict[str, Tensor]:
    """The results of a call forward and backward, by name."""
    input = values.detach().requires_grad_()
    output, final = layer(input)
    states = dict(zip("hc", final if isinstance(final, tuple) else (final,), strict=False))
    sum(one.to(torch.float64).square().sum() for one in (output, *states.values())).backward()
    gradients = {f"gradient of {name}": one.grad for name, one in layer.named_parameters()}
    return {"output": output, **states, "gradient of the input": input.grad, **gradients}


@torch.no_grad()
def run_steps(layer: Any, values: Tensor) -> dict[str, Tensor]:
    """The results of two steps, by name."""
    first, state = layer.step(values[0])
    second, _ = layer.step(values[1], state)
    return {"first step": first, "second step": second}


def measure(network: Network, device: str, length: int, *, steps: bool = False) -> tuple[float, str]:
    """The largest relative distance of a result from that of plain PyTorch, and the name of this result."""
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = network.tf32
    layer = make_layer(network, device)
    exact = copy.deepcopy(layer).to("cpu", torch.float64)
    exact.backend = "torch"
    values = torch.randn(2 if steps else length, network.batch, INPUTS).to(network.dtype)
    run = run_steps if steps else run_sequence
    found, expected = run(layer, values.to(device)), run(exact, values.to(torch.float64))
    distances = {}
    for name, right in expected.items():
        distance = (found[name].to("cpu", torch.float64) - right).norm() / right.norm()
        # not a number is the largest distance
        distances[name] = distance.item() if distance == distance else float("inf")
    worst = max(distances, key=distances.__getitem__)
    return distances[worst], worst


def check(group: str, network: Network, device: str, length: int) -> bool:
    """Runs a network and prints its line; True if its results are right."""
    distance, worst = measure(network, device, length, steps=group == "steps")
    options = [name if value is True else value for name, value in network.options.items()]
    words = ", ".join(map(str, (str(network.dtype).removeprefix("torch."), *options)))
    modules = f"{network.schedule.sizes} units, periods {network.schedule.periods}"
    is_right = distance <= TOLERANCE
    verdict = "" if is_right else "WRONG, "
    print(f"{group}: {network.layer.__name__}, {modules}, {words}: {verdict}{worst} off by {distance:.1e}", flush=True)
    return is_right


def main() -> None:
    """Runs the groups that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"{', '.join(NETWORKS)}; default: all of them")
    parser.add_argument("--length", type=int, default=70, help="time steps of a sequence; default: 70")
    chosen = parser.parse_args()
    unknown = [group for group in chosen.groups if group not in NETWORKS]
    if unknown:
        parser.error(f"there is no group {unknown[0]!r}: choose among {', '.join(NETWORKS)}")
    if chosen.length < 1:
        parser.error(f"--length is {chosen.length}; it must be 1 or more")
    if not torch.cuda.is_available():
        sys.exit("there is no CUDA device")
    groups = chosen.groups or list(NETWORKS)
    right = [check(group, network, "cuda", chosen.length) for group in groups for network in NETWORKS[group]]
    sys.exit(not all(right))


if __name__ == "__main__":
    main()
