"""Command lines: all commands and options of `cwrnn`, with values that make no sense, on files that are damaged.

Training is cut off where it begins: the functions that train are replaced by one that ends the command.
"""

import contextlib
import functools
import importlib
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import click
import typer.main

from cwrnn.commands.app import app, run
from cwrnn.experiments.evaluation.images import FILES

from ..door import Door, require
from ..mutation import NUMBERS, TEXTS, mutate_text
from ..trees import write_tree
from . import evaluation, forecaster_files, model_files, stores, tables

TRAINING = (
    "cwrnn.experiments.sweep.driver.train_missing",
    "cwrnn.experiments.sweep.driver.keep_workers",
    "cwrnn.experiments.sweep.driver.keep_cluster",
    "cwrnn.experiments.words.recogniser.training.train_many",
    "cwrnn.experiments.clocks.learning.train_both_kinds",
    "cwrnn.bench.command._measure",
    "cwrnn.experiments.report.page.write_store_report",
    "cwrnn.estimators.forecaster.fit_features",
    "cwrnn.experiments.forecasting.prediction._write",
)
"""The functions that begin the long work of all commands."""

PATHS = ("store", "model.safetensors", "sound.wav", "corpus", "fifo", "empty", "folder", "loop", "missing", "", ".",
         "a" * 5000,
         "zero", "new/folder", "$x", "-", "broken.sqlite", "\udcff", "load.csv", "forecaster.safetensors")  # fmt: skip
SOURCES = ("bundle", "squares:3,7", "squares:3,7x2", "squares:", "squares:0", "squares:3x99999999999",
           "squares:99999999999",
           "load.csv", "load.csv", "load.csv", "damaged.csv", "zero",
           "folder:corpus", "timit:corpus", "nltk-timit:corpus", "folder:", "folder:fifo", "timit:loop", "sound.wav",
           "fifo", "table.csv", "table.csv", "broken.npy", "missing.npz", "folder.csv",
           "images", "images", "text.txt")  # fmt: skip
VALUES = ("cw", "srn", "lstm", "cw-lstm", "gru,cw-gru", "cw,srn", "generation", "words", "yes,no",
          "making,walking", "100", "100,250",
          "1:4,2:4", "local", "load", "time", "warm", "gru", "hold", "interpolate", "1,24", "%Y", "UTC", "cpu",
          "nn.GRU",
          "exponential-2", "exponential-2,fibonacci", "0.01", "srn=1e-4,cw=0.1", "cw=1,cw=2", "1", "2", "0",
          "2,8,10,2,3",
          "load", "wind,load", "time", "regression", "0,1",
          "adding", "copy", "sequential-mnist", "permuted-mnist", "characters", "esn,lru", "leaky,dilated,cw", "70k",
          "300k,3M", "20,30")  # fmt: skip
TABLE = "time,load,wind\n" + "".join(f"day {i},{i * i % 17},{i * 0.5}\n" for i in range(70))
ENTRIES = [
    ["corpus/yes/a.wav", "sound", 1], ["corpus/yes/b.wav", "sound", 2], ["corpus/yes/c.wav", "sound", 3],
    ["corpus/no/a.wav", "sound", 4], ["corpus/no/b.wav", "sound", 5], ["corpus/no/c.wav", "sound", 6],
    ["sound.wav", "sound", 7], ["fifo", "fifo", None], ["empty", "text", ""], ["folder", "folder", None], ["loop",
    "link", "loop"],
    ["table.csv", "text", TABLE], ["broken.npy", "text", "not numpy"], ["folder.csv", "folder", None],
    ["zero", "link", "/dev/zero"], ["broken.sqlite", "text", "SQLite format 3\x00"],
    ["load.csv", "text", tables.list_texts()[0]], ["damaged.csv", "text", tables.list_texts()[1][:-7]],
    *([f"images/{name}", "text", data.decode("latin-1")]
      for name, data in zip(FILES, evaluation.list_files(), strict=True)),
    ["text.txt", "text", evaluation.list_texts()[2].decode("latin-1")],
]  # fmt: skip


class WorkBegins(BaseException):
    """The command line is right: the long work begins."""


@functools.cache
def list_commands() -> tuple[tuple[tuple[str, ...], tuple[click.Parameter, ...]], ...]:
    """Return the words of each command with its parameters."""

    def walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], tuple[click.Parameter, ...]]]:
        yield words, tuple(command.params)
        for name, inner in sorted(getattr(command, "commands", {}).items()):
            yield from walk(inner, (*words, name))

    return tuple(walk(typer.main.get_command(app), ()))


BENCH = ("--backend", "--device", "--dtype", "--threads", "--repeats", "--json", "--picture", "--part", "--seconds")


def make_case(random: Random) -> bytes:
    """Return the arguments of a command as JSON."""
    words, parameters = random.choice(list_commands())
    arguments = list(words)
    for parameter in parameters:
        is_argument = parameter.param_type_name == "argument"
        if random.random() < (0.95 if is_argument or parameter.required else 0.15):
            if not is_argument:
                arguments.append(random.choice([*parameter.opts, *parameter.secondary_opts]))
            if is_argument or not getattr(parameter, "is_flag", False):
                arguments.append(make_value(random, parameter.name or ""))
    if words == ("bench",):
        for name in random.sample(BENCH, random.randrange(3)):
            arguments += [name, make_value(random, name)]
    if random.random() < 0.1:
        arguments.insert(
            random.randrange(len(arguments) + 1), random.choice((*TEXTS, "--", "--help", "--version", "-x"))
        )
    if random.random() < 0.1 and arguments:
        del arguments[random.randrange(len(arguments))]
    # no operating system passes a zero byte
    return json.dumps({"arguments": [argument.replace("\x00", "") for argument in arguments]}).encode()


def make_value(random: Random, name: str) -> str:
    """Return a value for an option of this name: one that may be right, or junk."""
    kind = random.random()
    if any(word in name for word in ("out", "model", "folder", "file", "json", "picture")) and kind < 0.85:
        return random.choice(PATHS)
    if "data" in name and kind < 0.85:
        return random.choice(SOURCES)
    if kind < 0.45:
        return random.choice(VALUES)
    if kind < 0.75:
        return random.choice(NUMBERS)
    if kind < 0.85:
        return mutate_text(random, random.choice((*VALUES, *SOURCES))).replace("/", "")
    return random.choice([text for text in TEXTS if "/" not in text])


def run_command(case: bytes, folder: Path) -> None:
    """Run the command in a folder with some files, and check its exit code and its output."""
    arguments = json.loads(case).get("arguments", [])
    here = folder / "here" / "inside"
    here.mkdir(parents=True)
    write_tree(here, ENTRIES)
    (here / "model.safetensors").write_bytes(model_files.list_samples()[2])
    (here / "forecaster.safetensors").write_bytes(forecaster_files.list_forecaster_samples()[0])
    (here / "store").mkdir()
    (here / "store" / "runs.sqlite").write_bytes(stores.make_store())
    os.chdir(here)
    # the longest time that a wait for an answer may take: no cluster is there
    output, errors = (
        io.TextIOWrapper(io.BytesIO(), "utf-8"),
        io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace"),
    )
    code = None
    with contextlib.ExitStack() as stack:
        for name in TRAINING:
            module, _, function = name.rpartition(".")
            stack.enter_context(mock.patch.object(importlib.import_module(module), function, _begin_work))
        for stream, file in (
            ("stdout", output),
            ("stderr", errors),
            ("stdin", io.TextIOWrapper(io.BytesIO(b"\0\1" * 2000))),
        ):
            stack.enter_context(mock.patch.object(sys, stream, file))
        with contextlib.suppress(WorkBegins):
            code = run(["" if argument is None else str(argument) for argument in arguments])
    printed, reported = (file.buffer.getvalue().decode("utf-8", "replace") for file in _flush(output, errors))
    require(code in (None, 0, 1, 2), f"exit code {code}")
    require("Traceback (most recent call last)" not in printed + reported, f"a traceback:\n{reported[-2000:]}")
    require(not re.search(r"\bnan\b", printed.lower()), f"prints nan:\n{printed[-500:]}")
    require(code in (None, 0) or bool(reported.strip()), f"exit code {code} without a message")
    require(not (here / "runs.sqlite").exists() or "." in arguments, "writes into the current folder")
    if code:
        raise CommandRefusedError(f"exit code {code}: {reported.strip()[-300:]}")


class CommandRefusedError(Exception):
    """The command refused its arguments with exit code 1 or 2, and a message."""


def _flush(*files: io.TextIOWrapper) -> tuple[Any, ...]:
    for file in files:
        file.flush()
    return files


def _begin_work(*arguments: Any, **options: Any) -> None:
    raise WorkBegins


DOORS = (Door("command", "cwrnn.commands.app.run", (CommandRefusedError,), make_case, run_command),)
