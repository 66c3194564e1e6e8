"""Tables: CSV, .npy and .npz files of a user, whose columns networks learn."""

import functools
import io
from pathlib import Path
from random import Random

import numpy as np

from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.tables import LARGEST_NUMBER, SUFFIXES, read_table

from ..door import Door, require
from ..mutation import NUMBERS, TEXTS, mutate_bytes, mutate_text
from .npz_files import DTYPES, mutate_npz

TEXT = (
    "time,load,wind\n2020-01-01 00:00,3.5,1\n2020-01-01 01:00,-4e2,2\n2020-01-01 02:00,7,0.25\n",
    '"time";"load";wind\r\n"a;b";3.5;1\r\n"a""b";-4e2;2\r\n',
    "1\t2\n3\t4\n5\t6\n",
    "\ufeffload\n1\n2\n\n\n",
)


@functools.cache
def list_samples() -> tuple[tuple[int, bytes], ...]:
    """Return valid tables, each with the place of its ending in SUFFIXES."""
    files = [(SUFFIXES.index(".csv"), text.encode()) for text in TEXT]
    for array in (np.arange(6.0), np.arange(6, dtype=">i2").reshape(3, 2), np.zeros((2, 3), "f4", order="F")):
        file = io.BytesIO()
        np.save(file, array)
        files.append((SUFFIXES.index(".npy"), file.getvalue()))
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, load=np.zeros(40), x=np.arange(80.0).reshape(40, 2))
        files.append((SUFFIXES.index(".npz"), file.getvalue()))
    return tuple(files)


def make_case(random: Random) -> bytes:
    """Return a table with a few changes; its first byte is the place of its ending."""
    place, data = random.choice(list_samples())
    kind = random.random()
    if kind < 0.05:
        place = random.randrange(len(SUFFIXES))
    if SUFFIXES[place] == ".npz" and data.startswith(b"PK") and kind < 0.6:
        data = mutate_npz(random, data)
    elif SUFFIXES[place] == ".npy" and data.startswith(b"\x93") and kind < 0.6:
        data = mutate_header(random, data)
    elif SUFFIXES[place] == ".csv" and kind < 0.7:
        data = mutate_cells(random, data.decode("utf-8", "replace")).encode("utf-8", "surrogatepass")
    else:
        data = mutate_bytes(random, data, [other for _, other in list_samples()])
    return bytes([place]) + data


def mutate_header(random: Random, data: bytes) -> bytes:
    """Return an .npy file with another dtype or shape in its header."""
    size = int.from_bytes(data[8:10], "little")
    shape = random.choice(("()", "(0,)", "(3,)", "(3, 2)", "(2, 3)", "(1, 0)", "(6, 1)", "(1, 1, 6)", "(-1,)",
                           "(" * 3000, "(99999999999999999,)", "(1, 99999999999)",
                           "(0, 4611686018427387904)"))  # fmt: skip
    dtype = random.choice((*DTYPES, "<f8", "<f8", ">i2", "<f16", "<f3", "|b9"))
    header = f"{{'descr': {dtype!r}, 'fortran_order': {random.random() < 0.3}, 'shape': {shape}, }}\n".encode()
    return data[:8] + (len(header) % 2**16).to_bytes(2, "little") + header + data[10 + size :]


def mutate_cells(random: Random, text: str) -> str:
    """Return CSV with other cells, rows or delimiters."""
    lines = text.split("\n")
    for _ in range(random.choice((1, 1, 2))):
        i = random.randrange(len(lines))
        lines[i] = lines[i][:500]
        kind = random.randrange(6)
        if kind <= 2:
            cells = lines[i].split(",")
            cells[random.randrange(len(cells))] = random.choice((*NUMBERS, *TEXTS))
            lines[i] = ",".join(cells)
        elif kind == 3:
            del lines[i]
            lines = lines or [""]
        elif kind == 4:
            lines.insert(i, random.choice(("", ",", '"', lines[i], "," * 10_000, lines[i] * 300)))
        else:
            lines[i] = lines[i] * random.choice((1, 1000)) + random.choice((",", ";", "\t", "\r", '"', "x"))
    text = "\n".join(lines)[:500_000]
    return mutate_text(random, text) if random.random() < 0.3 else text


def read_columns(case: bytes, folder: Path) -> None:
    """Read the bytes as a table, and some of its columns."""
    # relative: the name of a temporary folder may contain any letters
    path = Path("table" + SUFFIXES[case[0] % len(SUFFIXES)])
    path.write_bytes(case[1:])
    table = read_table(path)
    repr(table).encode()
    require(bool(table.columns), "a table without columns")
    for names in ([table.columns[-1]], table.columns[:2]):
        values = table.select(names)
        require(values.ndim == 2 and len(values) > 0, f"columns of the shape {values.shape}")
        require(bool((np.abs(values) <= LARGEST_NUMBER).all()), "numbers that are not finite")


DOORS = (Door("columns", "read_table", (ArgumentError,), make_case, read_columns),)
