"""`cwrnn words train` under kills and a full disk: the model file and the cache of features.

Every file operation is hit once, if there are enough faults. The model file must then be absent, the old one or the new
one, never a part of one; and the next command must write the same model, and leave nothing else behind.
"""

import json
import random
import shutil
import signal
import wave
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cwrnn.saved import SavedNetwork

from . import faults
from .command import Command
from .trial import Comparison, FaultQueue, Trial, check_sentence, finish

COMMAND = "words train"
MODEL = "model.safetensors"
RATE = 16000
GROUP = "SIGKILL to all processes"
BEFORE, HALF, FULL = (
    "SIGKILL before a file operation",
    "SIGKILL in the middle of a write",
    "no space from a file operation on",
)
KINDS = {BEFORE: faults.BEFORE, HALF: faults.HALF, FULL: faults.FULL}


@dataclass(frozen=True)
class Undisturbed:
    """A training that nothing disturbs."""

    model: str
    """The contents of the new model without the time at which it was made."""
    old: Path
    """Another model, which the new one replaces."""
    recordings: Path
    files: frozenset[str]
    """The files that it leaves."""
    seconds: float
    operations: int


def plan_faults(undisturbed: Undisturbed, count: int, chance: random.Random) -> list[str]:
    """`count` faults, each a kind and a number: kills at random times, and one of each kind at every operation."""
    positions = [f"{kind}:{at}" for kind in KINDS for at in range(1, undisturbed.operations + 1)]
    chance.shuffle(positions)
    times = [f"{GROUP}:0"] * (count // 5 if positions else count)
    planned = times + positions[: count - len(times)]
    chance.shuffle(planned)
    return planned


def run_undisturbed(where: Path, library: Path | None) -> Undisturbed:
    """Trains two models, and counts the file operations of the second."""
    where.mkdir(parents=True)
    recordings = where / "recordings"
    _write_recordings(recordings)
    old = where / "old" / MODEL
    old.parent.mkdir()
    _train(recordings, old.parent, where / "old.log", {}, epochs=2)
    folder = where / "new"
    folder.mkdir()
    count = where / "count"
    environment = {} if library is None else faults.plan_fault(library, folder, count)
    command = _train(recordings, folder, where / "new.log", environment)
    operations = 0 if library is None else faults.read_count(count).operations
    return Undisturbed(read_model(folder / MODEL), old, recordings, list_files(folder), command.seconds, operations)


def disturb_training(
    undisturbed: Undisturbed,
    where: Path,
    queue: FaultQueue,
    chance: random.Random,
    library: Path | None,
    report: Callable[[Trial], None],
) -> Comparison | None:
    """Disturbs one training, and brings it to its end; None if all faults are made."""
    planned = queue.take()
    if planned is None:
        return None
    fault, _, at = planned.partition(":")
    folder = where / "new"
    folder.mkdir(parents=True)
    has_old = chance.random() < 0.5
    if has_old:
        shutil.copy(undisturbed.old, folder / MODEL)
    trial = Trial(COMMAND, fault, where.name)
    comparison = Comparison(COMMAND, where.name, 1)
    count = where / "count"
    environment = {} if fault == GROUP else faults.plan_fault(library, folder, count, KINDS[fault], int(at))
    command = _start(undisturbed.recordings, folder, where / "disturbed.log", environment)
    if fault == GROUP:
        moment = chance.uniform(0, undisturbed.seconds)
        has_hit = command.wait_until(lambda: command.seconds >= moment)
        command.signal_group(signal.SIGKILL)
        trial.at, trial.phase = f"{moment:.3f} s", "any time"
    command.wait()
    if fault != GROUP:
        counted = faults.read_count(count)
        has_hit = counted.has_hit
        trial.at = f"operation {at}: {counted.operation}"
        trial.phase = "writing the cache" if "cache" in counted.folder else "writing the model"
    # the last operations come only if there was no file before
    finish(command, trial, (0,) if not has_hit else (1,) if fault == FULL else (-signal.SIGKILL,))
    if has_hit and fault == FULL:
        check_sentence(command, trial)
    allowed = {undisturbed.model, read_model(undisturbed.old) if has_old else None}
    trial.problems += _check_model(folder / MODEL, allowed)
    if has_hit:
        report(trial)
    else:
        queue.put_back(f"{GROUP}:0")
        comparison.faults = 0
    last = _start(undisturbed.recordings, folder, where / "last.log", {})
    if last.wait() != 0:
        comparison.problems.append(f"exit code {last.process.returncode} when it was done again")
    comparison.problems += _check_model(folder / MODEL, {undisturbed.model})
    extra = list_files(folder) ^ undisturbed.files
    comparison.problems += [f"files are missing or left behind: {sorted(extra)}"] * bool(extra)
    if not trial.problems and not comparison.problems:
        shutil.rmtree(where)
    return comparison


def read_model(path: Path) -> str:
    """The contents of a model without the time at which it was made, as text."""
    saved = SavedNetwork.load(path)
    about: dict[str, Any] = json.loads(json.dumps(saved.about))
    about["training"].pop("finished_at")
    arrays = {name: value.numpy().tobytes().hex() for name, value in saved.network.state_dict().items()}
    arrays |= {name: value.tobytes().hex() for name, value in saved.tensors.items()}
    return json.dumps([saved.kind, saved.method, saved.schedule.spec, arrays, about], sort_keys=True)


def list_files(folder: Path) -> frozenset[str]:
    """The files below a folder."""
    return frozenset(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _check_model(path: Path, allowed: set[str | None]) -> list[str]:
    """What is wrong with the model file, which may be absent if `allowed` contains None."""
    if not path.exists():
        return [] if None in allowed else ["the model is gone"]
    try:
        return [] if read_model(path) in allowed else ["the model has other contents"]
    except Exception as error:
        return [f"the model is damaged: {error}"]


def _start(recordings: Path, folder: Path, log: Path, environment: dict[str, str], epochs: int = 4) -> Command:
    arguments = ["words", "train", "--data", f"folder:{recordings}", "--schedule", "1:4,2:4", "--epochs", str(epochs)]
    arguments += ["--learning-rate", "0.003", "--out", str(folder / MODEL), "--force"]
    return Command(arguments, log, {"XDG_CACHE_HOME": str(folder / "cache"), **environment})


def _train(recordings: Path, folder: Path, log: Path, environment: dict[str, str], epochs: int = 4) -> Command:
    command = _start(recordings, folder, log, environment, epochs)
    if command.wait() != 0:
        raise SystemExit(f"the undisturbed command failed: {command.log}\n{command.read_log()}")
    return command


def _write_recordings(folder: Path) -> None:
    """Writes two words of seven speakers: tones that rise, and tones that fall."""
    numbers = np.random.default_rng(0)
    seconds = np.arange(RATE // 4) / RATE
    for word, slope in (("rise", 2000.0), ("fall", -2000.0)):
        (folder / word).mkdir(parents=True)
        for speaker in range(7):
            tone = np.sin(2 * np.pi * (1500 + 50 * speaker + slope * seconds) * seconds)
            samples = 8000 * tone + 200 * numbers.standard_normal(len(seconds))
            with wave.open(str(folder / word / f"speaker{speaker}.wav"), "wb") as file:
                file.setparams((1, 2, RATE, 0, "NONE", ""))
                file.writeframes(samples.astype("<i2").tobytes())
