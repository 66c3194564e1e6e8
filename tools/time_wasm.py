"""Times a step of exported networks: the module in WebAssembly in node, beside the same C compiled by gcc -O2.

Both programs first make the same 10,000 steps, and nothing is timed if a bit of their outputs differs. Then they run in
turns, so that other work on the machine disturbs both alike. A row has the median over the turns of each time and of
their ratio, with the lowest and highest ratio.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN
from cwrnn.environment import environment
from cwrnn.export import to_c, to_wasm
from cwrnn.network import Network

INPUTS, UNITS, MODULES, OUTPUTS = 13, 102, 6, 25
LAYERS = {"CW-RNN": ClockworkRNN, "CW-LSTM": ClockworkLSTM, "CW-GRU": ClockworkGRU}

NATIVE = """
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "net.h"
#define ROWS 1000
static float rows[ROWS * NET_INPUTS];
static net_state state;
static double read_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * t.tv_sec + t.tv_nsec;
}
int main(void)
{
    uint32_t seed = 1, hash = 2166136261u, bits;
    float output[NET_OUTPUTS];
    for (int i = 0; i < ROWS * NET_INPUTS; i++) {
        seed = 1664525u * seed + 1013904223u;
        rows[i] = (float)((double)(int32_t)seed / 2147483648.0);
    }
    net_reset(&state);
    for (int i = 0; i < CHECKED; i++) {
        net_step(&state, rows + i % ROWS * NET_INPUTS);
        net_output(&state, output);
        for (int j = 0; j < NET_OUTPUTS; j++) {
            memcpy(&bits, &output[j], 4);
            hash = (hash ^ bits) * 16777619u;
        }
    }
    double start = read_clock();
    for (int i = 0; i < STEPS; i++)
        net_step(&state, rows + i % ROWS * NET_INPUTS);
    printf("{\\"hash\\": %u, \\"nanoseconds\\": %.3f}\\n", hash, (read_clock() - start) / STEPS);
}
"""

WASM = """
import { readFileSync } from "node:fs";
import { load, inputs } from "./net.js";
const net = await load(readFileSync(new URL("net.wasm", import.meta.url)));
let seed = 1, hash = 2166136261 | 0;
const rows = Array.from({ length: 1000 }, () => Float32Array.from({ length: inputs }, () => {
  seed = (Math.imul(1664525, seed) + 1013904223) | 0;
  return seed / 2147483648;
}));
for (let i = 0; i < CHECKED; i++) {
  net.step(rows[i % 1000]);
  for (const bits of new Int32Array(net.output().buffer)) hash = Math.imul(hash ^ bits, 16777619);
}
const start = process.hrtime.bigint();
for (let i = 0; i < STEPS; i++) net.step(rows[i % 1000]);
console.log(JSON.stringify({ hash: hash >>> 0, nanoseconds: Number(process.hrtime.bigint() - start) / STEPS }));
"""

CHECKED = 10_000
"""The steps whose outputs are compared. Node compiles the module with its optimising compiler meanwhile."""


def measure(name: str, folder: Path, turns: int, steps: int) -> dict[str, Any]:
    """Returns the times of a network in both programs, in nanoseconds per step."""
    torch.manual_seed(0)
    network = Network(LAYERS[name](INPUTS, UNITS, schedule=MODULES), OUTPUTS)
    size = to_wasm(network, folder / "wasm", name="net").size
    to_c(network, folder / "c", name="net")
    (folder / "c" / "main.c").write_text(NATIVE)
    options = ["-std=gnu99", "-O2", "-ffp-contract=off", f"-DCHECKED={CHECKED}", f"-DSTEPS={steps}"]
    subprocess.run(["gcc", *options, "-o", "main", "main.c", "net.c"], cwd=folder / "c", check=True)
    (folder / "wasm" / "main.mjs").write_text(WASM.replace("CHECKED", str(CHECKED)).replace("STEPS", str(steps)))
    commands = {"native": [str(folder / "c" / "main")], "wasm": ["node", str(folder / "wasm" / "main.mjs")]}
    times: dict[str, list[float]] = {program: [] for program in commands}
    hashes = set()
    for _ in range(turns):
        for program, command in commands.items():
            result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            times[program].append(result["nanoseconds"])
            hashes.add(result["hash"])
    if len(hashes) > 1:
        sys.exit(f"{name}: the outputs of the two programs differ")
    ratios = [wasm / native for wasm, native in zip(times["wasm"], times["native"], strict=True)]
    return {
        "network": name,
        "module_bytes": size,
        "native_nanoseconds": statistics.median(times["native"]),
        "wasm_nanoseconds": statistics.median(times["wasm"]),
        "ratio": statistics.median(ratios),
        "lowest_ratio": min(ratios),
        "highest_ratio": max(ratios),
    }


def main() -> None:
    """Prints a row for each cell, and writes them to a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=9, help="how often each program runs (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=300_000, help="the timed steps of a turn (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to a file")
    arguments = parser.parse_args()
    rows = []
    print(f"{UNITS} units in {MODULES} modules, {INPUTS} inputs, {OUTPUTS} outputs; median of {arguments.turns} turns")
    for name in LAYERS:
        with tempfile.TemporaryDirectory() as folder:
            row = measure(name, Path(folder), arguments.turns, arguments.steps)
        rows.append(row)
        print(
            f"{name:8s} {row['module_bytes']:7,} bytes   native {row['native_nanoseconds']:6.0f} ns"
            f"   wasm {row['wasm_nanoseconds']:6.0f} ns   ratio {row['ratio']:.2f}"
            f" ({row['lowest_ratio']:.2f} to {row['highest_ratio']:.2f})"
        )
    if arguments.json is not None:
        node, gcc = (
            subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
            for command in (["node", "--version"], ["gcc", "-dumpfullversion"])
        )
        record = {"environment": environment() | {"node": node, "gcc": gcc}, "rows": rows}
        arguments.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
