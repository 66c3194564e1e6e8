"""Lists the registers of the GPU kernel's recurrences, and the bytes that each thread moves to memory for want of them.

    python tools/list_registers.py --cell lstm --units 128 256 512
    python tools/list_registers.py --cell tanh --units 256 --dtype float32 --turns 1 2 4

NVRTC compiles the programs as they run on a GPU, but needs none: the package nvidia-cuda-nvrtc is enough. A row is one
program for three modules of that many units with the periods 1, 2 and 4. Turns above 1 have rows only where the weights
of a module are spread over several blocks. `float32` is strict float32. An LSTM whose blocks all run at once has
`--weights 96`.
"""

import argparse
import re
import sys
from pathlib import Path
from unittest.mock import patch

import torch

from cwrnn import Schedule
from cwrnn.cells import CELLS
from cwrnn.kernels.gpu import compiler, driver, scan

SHARED_BYTES = 227 * 1024
"""The shared memory of a block of a Hopper GPU."""
DTYPES = {"bfloat16": (torch.bfloat16, 1), "tf32": (torch.float32, 1), "float32": (torch.float32, 3)}
"""The dtype, and the products of tf32 that a product takes."""


def measure(file: str, constants: compiler.Constants, capability: tuple[int, int]) -> tuple[int, int, int]:
    """The registers of a thread, and the bytes that it stores to memory and loads again."""
    job = compiler.make_job(file, constants, capability)
    _, messages = compiler.compile_job(job._replace(options=(*job.options, "--ptxas-options=-v")))
    stores, loads = map(int, re.findall(r"(\d+) bytes spill", messages))
    return int(re.findall(r"Used (\d+) registers", messages)[0]), stores, loads


def list_scans(cell: str, units: int, dtype: str, turns: int, weights: int) -> list[tuple[str, compiler.Constants]]:
    """The files and constants of the forward and the backward recurrence; none where there are no such programs."""
    schedule, (element, products) = Schedule((1, 2, 4), (units,) * 3), DTYPES[dtype]
    if units > scan.find_largest_module(element.itemsize, products, CELLS[cell].gates, weights):
        return []
    layout = scan.choose_layout(units, element.itemsize, products, CELLS[cell].gates, weights)
    if turns > 1 and not layout.spread:
        return []
    asked: list[tuple[str, compiler.Constants]] = []

    def load_program(file, name, constants, threads, shared, device):
        asked.append((file, constants))
        return driver.Program(0, shared, threads)

    with patch.object(driver, "load_program", load_program):
        scan.load_forward(schedule, cell, element, layout, True, 0, SHARED_BYTES, turns, False)
        scan.load_backward(schedule, cell, element, layout, 0, SHARED_BYTES, turns, False)
    return sorted((file, constants) for file, constants in asked if file.startswith("scan_"))


def use_installed_nvrtc() -> None:
    """Lets the compiler be the package nvidia-cuda-nvrtc, if torch brings none along."""
    try:
        compiler.load_compiler()
    except OSError:
        sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
        from support.nvrtc import PACKAGE, load_nvrtc

        library = load_nvrtc()
        if library is None:
            sys.exit(f"there is no NVRTC: pip install {PACKAGE}")
        compiler.load_compiler = lambda: library


def main() -> None:
    """Prints the table that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", choices=list(CELLS), default="tanh")
    parser.add_argument("--units", type=int, nargs="+", default=[128], help="units of a module")
    parser.add_argument("--dtype", choices=list(DTYPES), nargs="+", default=["bfloat16"])
    parser.add_argument("--turns", type=int, nargs="+", default=[1], help="tiles that a block computes by turns")
    parser.add_argument(
        "--weights",
        type=int,
        default=scan.WEIGHT_REGISTERS,
        help="registers that weights may take; default: %(default)s",
    )
    parser.add_argument("--capability", default="9.0", help="compute capability of the GPU")
    chosen = parser.parse_args()
    major, minor = map(int, chosen.capability.split("."))
    use_installed_nvrtc()
    print(
        "| cell | dtype | units | turns | program | registers | bytes stored / loaded |\n|---|---|---|---|---|---|---|"
    )
    for dtype in chosen.dtype:
        for units in chosen.units:
            for turns in chosen.turns:
                for file, constants in list_scans(chosen.cell, units, dtype, turns, chosen.weights):
                    registers, stores, loads = measure(file, constants, (major, minor))
                    name = Path(file).stem.removeprefix("scan_")
                    row = chosen.cell, dtype, units, turns, name, registers, f"{stores} / {loads}"
                    print(f"| {' | '.join(map(str, row))} |", flush=True)


if __name__ == "__main__":
    main()
