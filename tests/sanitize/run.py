"""Runs the C files of the CPU kernels under gcc's sanitizers, its analyzer and its warnings, on Linux.

The CUDA programs of the GPU kernel run on an emulator, under the checks of tests/kernels/emulator/checks.cpp.

    python tests/sanitize/run.py                 runs every step
    python tests/sanitize/run.py warnings races  runs these steps

Each step must be clean, except the last one, which proves that the others can fail: it plants faults in a copy of the
source, and each of them must be reported. The step "cuda" has planted faults of its own. The copies and libraries lie
in a temporary folder.

The libraries under test are built from a copy of src with lower thresholds: tiny networks already use more threads,
share packed weights and write their output past the caches. So small random shapes reach every path of the code. A
threshold does not change a result.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "src" / "cwrnn" / "kernels" / "cpu"
ISAS = {"baseline": (), "avx2": ("-mavx2", "-mfma"), "avx512": ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw")}
PRECISIONS = {32: "float", 64: "double"}

WARNINGS = (
    *("-std=gnu11", "-D_GNU_SOURCE", "-Werror", "-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion"),
    *("-Wdouble-promotion", "-Wshadow", "-Wundef", "-Wstrict-prototypes", "-Wcast-qual", "-Wcast-align=strict"),
    *("-Wpointer-arith", "-Wwrite-strings", "-Wvla"),
)
ANALYZER = (
    "-fanalyzer",
    # gcc 12 takes the type of a vector for a type of 1 bit, and reports every shift of a vector
    "-Wno-analyzer-shift-count-overflow",
)

ADDRESS = (
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-g",
)
THREAD = ("-fsanitize=thread", "-fno-omit-frame-pointer", "-g")
ENVIRONMENT = {
    # new memory is full of NaN, so that a number that was never written shows in the results
    "ASAN_OPTIONS": "max_malloc_fill_size=1000000000:malloc_fill_byte=255:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    # a test of forks forks while the thread of blocks.c runs
    "TSAN_OPTIONS": "halt_on_error=1:die_after_fork=0",
}
"""No report is suppressed."""

THRESHOLDS = {
    "memory.h": [("#define WORTH_A_THREAD 6e5", "#define WORTH_A_THREAD 50.0")],
    "plan.h": [
        ("WORTH_A_THREAD_IN_A_STEP = 1e5", "WORTH_A_THREAD_IN_A_STEP = 50"),
        ("WORTH_SHARING = 1 << 15", "WORTH_SHARING = 1 << 9"),
        ("WORTH_MODULES = 192 << 10", "WORTH_MODULES = 0"),
        ("WORTH_A_SPAN = 32", "WORTH_A_SPAN = 2"),
        ("PART = 64,", "PART = 3,"),
        ("PARTS = 8,", "PARTS = 2,"),
        ("LARGEST_NEAR = 8 << 20, LARGEST_CACHED = 16 << 20", "LARGEST_NEAR = 8 << 10, LARGEST_CACHED = 16 << 10"),
    ],
    "rows.h": [("enum { BLOCK = 64 };", "enum { BLOCK = 3 };")],
}


class Plant(NamedTuple):
    """A fault: `old` becomes `new` in `file`, and the sanitizer of these flags must print `report`."""

    name: str
    file: str
    old: str
    new: str
    flags: tuple[str, ...]
    report: str


PLANTS = [
    Plant("a write behind the final state", "forward.h",
          "copy(final, at->h, N);", "copy(final, at->h, N + 1);",
          ADDRESS, "AddressSanitizer"),
    Plant("a read before the input", "plan.h",
          "(const real *)c->input + chunk->s", "(const real *)c->input - 1 + chunk->s", ADDRESS, "AddressSanitizer"),
    Plant("a write behind the gates that are kept", "plan.h",
          "* plan->kept + chunk->s * KEPT_ROOM;", "* plan->kept + (chunk->s + 1) * KEPT_ROOM;", ADDRESS,
          "AddressSanitizer"),
    Plant("a size that overflows", "plan.h",
          "times(times(m->ticks + 1, c->B), m->K)", "(m->ticks + 1) * c->B * m->K", ADDRESS, "signed integer overflow"),
    Plant("threads that share their working memory", "forward.h",
          "plan->memory + worker * plan->memory_size", "plan->memory", THREAD, "ThreadSanitizer: data race"),
    Plant("streams that share the working memory of a step", "rows.h",
          ".memory = plan->memory + worker * plan->size", ".memory = plan->memory",
          THREAD, "ThreadSanitizer: data race"),
    Plant("modules of a single sequence that share their gates", "single.h",
          "row.gate = memory + m->gate;", "row.gate = memory + span->plan->gate;",
          THREAD, "ThreadSanitizer: data race"),
    Plant("blocks that are counted without a lock", "blocks.c",
          "    lock();\n    counts[0] = pool.kept_bytes;\n    counts[1] = pool.lent_bytes;\n    unlock();\n",
          "    counts[0] = pool.kept_bytes;\n    counts[1] = pool.lent_bytes;\n", THREAD, "ThreadSanitizer: data race"),
]  # fmt: skip
MISUSES = ("past-block", "kept-block")

# what the kernels compute, on all instruction sets; and what happens to their memory, threads and processes
TESTS = ("tests/kernels", "tests/core/test_battery.py")
# the CUDA programs on the emulator
CUDA_TESTS = tuple(
    f"tests/kernels/test_{name}.py"
    for name in ("emulator_checks", "scan", "gated_scan", "small_networks", "gradients", "gpu_stepping")
)
# the specification of 300 units takes three minutes under the address sanitizer, for each instruction set
LEFT_OUT = "not (test_large_networks_and_batches_equal_the_specification and 300)"


class Failure(Exception):
    """A step that is not clean, with what was printed."""


def run(command: list[str | Path], timeout: int = 600, **environment: str) -> subprocess.CompletedProcess[str]:
    """The finished process of `command`; a process that does not end in time is a failure."""
    try:
        return subprocess.run(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT, **environment},
        )
    except subprocess.TimeoutExpired as expired:
        raise Failure(f"{command[0]} did not end within {timeout} s:\n{expired.stdout}") from None


def require(command: list[str | Path], timeout: int = 600, **environment: str) -> str:
    """What `command` prints; an exit code other than 0 is a failure."""
    result = run(command, timeout, **environment)
    if result.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))} returned {result.returncode}:\n{result.stdout[-8000:]}")
    return result.stdout


def replace_once(file: Path, old: str, new: str) -> None:
    """Replaces the only occurrence of `old` in `file`."""
    text = file.read_text()
    if text.count(old) != 1:
        raise Failure(f"{file.name} contains {old!r} {text.count(old)} times; it must contain it once")
    file.write_text(text.replace(old, new))


def build_library(folder: Path, flags: tuple[str, ...], isas: tuple[str, ...], plant: Plant | None = None) -> Path:
    """Copies src to `folder`, builds the kernels there with these flags, and returns the library."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    (folder / "src" / "_editable_skbc_cwrnn.py").touch()  # in place of the finder of an editable install
    kernels = folder / "src" / "cwrnn" / "kernels" / "cpu"
    for name, replacements in THRESHOLDS.items():
        for old, new in replacements:
            replace_once(kernels / name, old, new)
    if plant is not None:
        replace_once(kernels / plant.file, plant.old, plant.new)
    (folder / "cmake").mkdir()
    shutil.copy(ROOT / "cmake" / "CMakeLists.txt", folder / "cmake")
    replace_once(folder / "cmake" / "CMakeLists.txt", "-O3 ", "-O0 " if plant else "-O1 ")
    settings = ["-DSKBUILD_STATE=editable", "-DCMAKE_BUILD_TYPE=Sanitized", "-DCMAKE_C_COMPILER=gcc"]
    settings += [f"-DCMAKE_C_FLAGS={' '.join(flags)}", f"-DCWRNN_ISAS={';'.join(isas)}"]
    require(["cmake", "-S", folder / "cmake", "-B", folder / "build", *settings])
    require(["cmake", "--build", folder / "build", "--parallel", "1" if plant else "2"])
    return kernels / "libcpu.so"


def build_driver(folder: Path, flags: tuple[str, ...], bits: int) -> Path:
    """The compiled driver.c for one precision."""
    program = folder / f"driver{bits}"
    source = Path(__file__).with_name("driver.c")
    precision = [f"-DREAL={PRECISIONS[bits]}", f"-DREAL_BITS={bits}"]
    require(
        ["gcc", *WARNINGS, "-O1", *flags, f"-I{KERNELS}", *precision, source, "-o", program, "-ldl", "-lm", "-lpthread"]
    )
    return program


def list_compilations(isa: str | None) -> Iterator[list[str | Path]]:
    """The options for every compilation of a C file for one instruction set; for None, of the files without one."""
    if isa is None:
        yield from ([KERNELS / file] for file in ("threads.c", "blocks.c"))
        return
    for (bits, real), file in product(PRECISIONS.items(), ("cpu.c", "lstm.c", "readout.c")):
        yield [*ISAS[isa], f"-DREAL={real}", f"-DREAL_BITS={bits}", f"-DISA={isa}", KERNELS / file]


def compile_all(isas: tuple[str, ...], *options: str) -> str:
    """Compiles every C file of the kernels with these options; a warning is a failure."""
    commands = [words for isa in (None, *isas) for words in list_compilations(isa)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda words: require(["gcc", *WARNINGS, *options, *words, "-o", "/dev/null"]), commands))
    return f"{len(commands)} compilations without a warning"


def check_warnings(arguments: argparse.Namespace, folder: Path) -> str:
    """Compiles every file for every precision and instruction set with all warnings as errors."""
    # the optimiser also looks for uninitialised variables
    return compile_all(tuple(ISAS), "-O1", "-c")


def check_analyzer(arguments: argparse.Namespace, folder: Path) -> str:
    """Follows every path through the files with gcc's analyzer, for one instruction set."""
    return compile_all(("baseline",), "-O1", "-c", *ANALYZER)


def drive(arguments: argparse.Namespace, folder: Path, flags: tuple[str, ...], calls: int) -> str:
    """Makes random calls of all kernels under the sanitizer of these flags."""
    library = build_library(folder, flags, tuple(ISAS))
    programs = {bits: build_driver(folder, flags, bits) for bits in PRECISIONS}

    def make_calls(pair: tuple[int, str]) -> str | None:
        bits, isa = pair
        result = run([programs[bits], library, isa, str(arguments.seed), str(calls)])
        if result.returncode not in (0, 77):
            raise Failure(f"{isa}, {bits} bits, seed {arguments.seed}: {result.returncode}\n{result.stdout[-8000:]}")
        return isa if result.returncode == 0 else None

    with ThreadPoolExecutor(2) as pool:
        done = [isa for isa in pool.map(make_calls, product(PRECISIONS, ISAS)) if isa is not None]
    return f"{calls * len(done)} random calls on {', '.join(sorted(set(done)))}, both precisions"


def check_addresses(arguments: argparse.Namespace, folder: Path) -> str:
    """Makes random calls under the address and undefined behaviour sanitizers."""
    return drive(arguments, folder / "address", ADDRESS, arguments.calls)


def check_races(arguments: argparse.Namespace, folder: Path) -> str:
    """Makes random calls under the thread sanitizer, which is slower."""
    return drive(arguments, folder / "thread", THREAD, arguments.calls // 4)


def check_tests(arguments: argparse.Namespace, folder: Path) -> str:
    """Runs the tests of the kernels with the library of the address sanitizer."""
    address = folder / "address"
    if not address.exists():
        build_library(address, ADDRESS, tuple(ISAS))
    # the runtime looks for the functions of C++ that it wraps when it starts
    runtimes = [require(["gcc", f"-print-file-name={name}"]).strip() for name in ("libasan.so", "libstdc++.so.6")]
    reports = folder / "reports"
    reports.mkdir()
    # Python and torch do not free everything at exit; and torch allocates by one function what it frees by another
    options = f"{ENVIRONMENT['ASAN_OPTIONS']}:detect_leaks=0:alloc_dealloc_mismatch=0:log_path={reports / 'address'}"
    try:
        printed = require(
            [sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", "-p", "no:cacheprovider", "-k", LEFT_OUT, *TESTS],
            timeout=1800,
            LD_PRELOAD=":".join(runtimes),
            PYTHONPATH=str(address / "src"),
            PYTHONDONTWRITEBYTECODE="1",
            ASAN_OPTIONS=options,
            UBSAN_OPTIONS=f"{ENVIRONMENT['UBSAN_OPTIONS']}:log_path={reports / 'undefined'}",
        )
    except Failure as failure:
        # pytest captures what a process prints before the sanitizer ends it
        found = "\n".join(file.read_text()[:4000] for file in sorted(reports.iterdir()))
        raise Failure(f"{failure}\n{found}") from None
    return printed.strip().splitlines()[-1]


def check_programs(arguments: argparse.Namespace, folder: Path) -> str:
    """Runs the tests of the CUDA programs under the checks of the emulator, and plants faults in the programs."""
    printed = require(
        [sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", "-p", "no:cacheprovider", "-m", "not gpu", *CUDA_TESTS],
        timeout=1800,
        CWRNN_CHECK_PROGRAMS="1",
    )
    return printed.strip().splitlines()[-1]


def check_plants(arguments: argparse.Namespace, folder: Path) -> str:
    """Plants faults in copies of the source; each must be reported."""

    def report(number: int) -> None:
        plant, place = PLANTS[number], folder / f"plant{number}"
        library = build_library(place, plant.flags, ("baseline",), plant)
        program = build_driver(place, plant.flags, 32)
        expect(plant.name, [program, library, "baseline", str(arguments.seed), "400"], plant.report)

    def expect(name: str, command: list[str | Path], report: str) -> None:
        result = run(command)
        if result.returncode == 0 or report not in result.stdout:
            raise Failure(f"not reported: {name} (exit code {result.returncode})\n{result.stdout[-8000:]}")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(report, range(len(PLANTS))))
    place = folder / "misuse"
    library = build_library(place, ADDRESS, ("baseline",))
    program = build_driver(place, ADDRESS, 32)
    for misuse in MISUSES:
        expect(misuse, [program, library, "baseline", "1", "1", misuse], "use-after-poison")
    return f"{len(PLANTS) + len(MISUSES)} faults reported"


STEPS: dict[str, Callable[[argparse.Namespace, Path], str]] = {
    "warnings": check_warnings,
    "analyzer": check_analyzer,
    "addresses": check_addresses,
    "races": check_races,
    "tests": check_tests,
    "cuda": check_programs,
    "plants": check_plants,
}


def main() -> int:
    """Runs the steps that the command line names, and returns how many of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ", ".join(STEPS)
    parser.add_argument("steps", nargs="*", metavar="step", help=f"{names}; all of them if none is named")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random calls (default: 1)")
    parser.add_argument("--calls", type=int, default=2000, help="random calls per instruction set and precision")
    arguments = parser.parse_args()
    unknown = [step for step in arguments.steps if step not in STEPS]
    if unknown:
        parser.error(f"there is no step {unknown[0]!r}. Select from {names}.")
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.steps or STEPS:
            start = time.monotonic()
            try:
                result = STEPS[name](arguments, Path(folder))
            except Failure as failure:
                failures += 1
                result = f"FAILED\n{failure}"
            print(f"{name:<12}{time.monotonic() - start:5.0f} s  {result}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
