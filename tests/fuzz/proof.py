"""The proof that the fuzzer can fail: mends of the package are taken back one by one, and it must find each fault.

PYTHONPATH=tests python -m fuzz.proof            takes back all mends in the table: some minutes
PYTHONPATH=tests python -m fuzz.proof sphere     takes back those whose names contain this word
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from mutants import MUTANTS

from .campaign import prepare
from .doors.table import DOORS
from .processes import Worker, wait_for

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60.0
"""The time in which a fault must be found."""


class Fault(NamedTuple):
    """A mend to take back: a string of a file to replace, as in tests/mutants.py, and the door that must show it."""

    name: str
    door: str
    file: str
    old: str
    new: str


def take_mutant(name: str, door: str) -> Fault:
    """Return the fault that is a mutant of tests/mutants.py."""
    [mutant] = [mutant for mutant in MUTANTS if mutant.name == name]
    return Fault(name, door, mutant.file, mutant.old, mutant.new)


QUADRATIC = 'dict(__import__("re").findall(r"^(\\w+) -\\w+ (.*?)[ \\r]*$", data[:size].decode("latin-1"), 8))'
FAULTS = (
    take_mutant("untrusted: a reader waits for a pipe", "path"),
    take_mutant("untrusted: half of a surrogate pair is a text", "recogniser"),
    take_mutant("untrusted: JSON may be nested to any depth", "model"),
    take_mutant("saved: a shape beside a zero may be of any size", "model"),
    take_mutant("sounds: a sample may have any size", "sound"),
    take_mutant("features: a cache may ask for any memory", "cache"),
    take_mutant("recogniser: a probability may be no number", "recogniser"),
    Fault("sphere: a header takes quadratic time", "sound", "experiments/words/sound_files.py",
          '_parse_sphere_header(data[len(SPHERE) : size].decode("latin-1"))', QUADRATIC),
    Fault("features: a lifter of any size", "recogniser", "experiments/words/features.py",
          "if not 0 <= self.lifter <= LARGEST_LIFTER:", "if not 0 <= self.lifter:"),
    Fault("music: a file may have fewer samples than none", "music", "experiments/generation/music.py",
          "except (RuntimeError, ValueError) as error:", "except RuntimeError as error:"),
    Fault("store: deep JSON is no reason", "store", "experiments/sweep/store_file.py",
          "KeyError, OverflowError, RecursionError,", "KeyError, OverflowError,"),
    Fault("inspect: weights need not fit", "inspect", "experiments/inspect/inspected.py",
          "except (RuntimeError, TypeError, ValueError) as error:", "except KeyError as error:"),
    Fault("schedule: periods without end", "schedule", "schedule.py", "if period > LONGEST:", "if False:"),
    Fault("schedule: units without end", "schedule-text", "schedule.py", "if sum(sizes) > LONGEST:", "if False:"),
    Fault("folder: a manifest may be a pipe", "path", "experiments/words/folder.py",
          "read_regular_file(folder / MANIFEST, LARGEST_MANIFEST)", "(folder / MANIFEST).read_bytes()"),
    Fault("kernel: tensors without memory are read", "layer", "kernels/tensors.py",
          "if tensor._is_zerotensor():", "if False:"),
)  # fmt: skip


def search(name: str, seconds: float) -> str:
    """Try cases on a door until one breaks it, and return what was found, and when."""
    door = DOORS[name]
    prepare({name: door})
    worker = Worker({name: door})
    started = time.monotonic()
    worker.run_cases(door, 0, 0, seconds)
    try:
        while worker.door is not None:
            wait_for([worker])
            for number, verdict in worker.read_answers():
                if verdict.is_failure:
                    after = time.monotonic() - started
                    return f"found after {number + 1} cases, {after:.1f} s: {verdict.kind} {verdict.name}"
        return f"NOT FOUND in {worker.number} cases"
    finally:
        worker.close()


def plant(fault: Fault) -> str:
    """Take a mend back in a copy of the package, and let another process search for the fault."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        # the finder of an editable install precedes every path
        (source / "_editable_skbc_cwrnn.py").touch()
        file = source / "cwrnn" / fault.file
        text = file.read_text()
        if text.count(fault.old) != 1:
            return f"STALE: {fault.file} must contain {fault.old!r} once, not {text.count(fault.old)} times"
        file.write_text(text.replace(fault.old, fault.new))
        path = os.pathsep.join([str(source), str(ROOT / "tests")])
        command = [sys.executable, "-m", "fuzz.proof", "--search", fault.door]
        result = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        )
        return result.stdout.strip() or f"STALE: {result.stderr[-500:]}"


def main(arguments: list[str]) -> int:
    """Take back the mends whose names contain one of the arguments; return how many faults were not found."""
    if arguments[:1] == ["--search"]:
        print(search(arguments[1], SECONDS))
        return 0
    missed = 0
    for fault in FAULTS:
        if not arguments or any(word in fault.name for word in arguments):
            found = plant(fault)
            missed += not found.startswith("found")
            print(f"{fault.door:14}{fault.name:52}{found}", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
