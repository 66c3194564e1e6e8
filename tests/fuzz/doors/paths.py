"""Paths: every function that takes one, with paths that are no plain file."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

from cwrnn.estimators import ClockworkForecaster
from cwrnn.estimators.table_files import TableError
from cwrnn.estimators.tables import read_table as read_series_table
from cwrnn.experiments.errors import ArgumentError, ExperimentError
from cwrnn.experiments.generation.music import load_sequences
from cwrnn.experiments.inspect.network import inspect_network
from cwrnn.experiments.report.page import write_report
from cwrnn.experiments.sweep.store import Store
from cwrnn.experiments.tables import read_table
from cwrnn.experiments.words.bundle import read_bundle
from cwrnn.experiments.words.corpus import load_corpus
from cwrnn.experiments.words.recogniser.model import Recogniser
from cwrnn.experiments.words.recogniser.recognition import recognise
from cwrnn.saved import ModelError, SavedNetwork

from ..door import Door
from ..trees import LINKS, write_tree
from .model_files import list_samples
from .sounds import make_recogniser

READERS: dict[str, Callable[[Path], object]] = {
    "SavedNetwork.load": SavedNetwork.load,
    "Recogniser.load": Recogniser.load,
    "ClockworkForecaster.load": ClockworkForecaster.load,
    "read_series_table": read_series_table,
    "recognise": lambda path: recognise(make_recogniser(), path),
    "load_sequences": lambda path: load_sequences([path]),
    "load_corpus": lambda path: load_corpus(f"folder:{path}", cache=False),
    "load_corpus timit": lambda path: load_corpus(f"timit:{path}", cache=False),
    "load_corpus plain": lambda path: load_corpus(str(path), cache=False),
    "read_bundle": read_bundle,
    "read_table": read_table,
    "Store.read": lambda path: Store.read(path).close(),
    "Store.open": lambda path: Store.open(path, create=True).close(),
    "write_report": write_report,
    "inspect_network": inspect_network,
    "Recogniser.save": lambda path: make_recogniser().save(path),
}
PATHS = (
    "fifo", "fifo.sqlite", "folder", "folder.sqlite", "folder/fifo", "loop", "zero", "full", "mem", "missing",
    "missing/missing", "empty",
    "empty/below", "", ".", "..", "a" * 300, "a" * 5000, "a/" * 2500, "a\x00b", "\udcff", "$x", "-", "~nobody",
    "locked", "deep", "model",
    "dangling", "fifo/below", "loop/below", "bytes", "fifo.csv", "zero.npy", "folder.npz",
)  # fmt: skip
ENTRIES = [
    ["fifo", "fifo", None], ["fifo.sqlite", "fifo", None], ["folder/fifo", "fifo", None], ["folder/runs.sqlite",
    "fifo", None],
    ["folder/manifest.csv", "fifo", None], ["folder/a.wrd", "fifo", None], ["folder.sqlite", "folder", None],
    ["loop", "link", "loop"],
    ["zero", "link", "/dev/zero"], ["full", "link", "/dev/full"], ["mem", "link", "/proc/self/mem"], ["empty",
    "text", ""],
    ["fifo.csv", "fifo", None], ["zero.npy", "link", "/dev/zero"], ["folder.npz", "folder", None],
    ["dangling", "link", LINKS[-1]], ["bytes", "text", "\x00\xff" * 300], ["deep/" * 40 + "x", "text", "x"],
]  # fmt: skip


def make_case(random: Random) -> bytes:
    """Return a reader and a path as JSON."""
    path = random.choice(PATHS)
    if random.random() < 0.2:
        path = f"{random.choice(PATHS)}/{path}"
    return json.dumps({"reader": random.choice(list(READERS)), "path": path}).encode()


def read_path(case: bytes, folder: Path) -> None:
    """Give the path to the reader."""
    request = json.loads(case)
    inside = folder / "here" / "inside"
    inside.mkdir(parents=True)
    write_tree(inside, ENTRIES)
    (inside / "model").write_bytes(list_samples()[2])
    os.chdir(inside)
    reader = READERS.get(request.get("reader", ""))
    if reader is not None:
        try:
            reader(Path(request.get("path", "")))
        except ValueError as error:
            # Python's own refusal of a path that no operating system knows
            if "null byte" not in str(error):
                raise


DOORS = (
    Door("path", "every function that takes a path", (ArgumentError, ExperimentError, ModelError, TableError, OSError),
    make_case, read_path),
)  # fmt: skip
