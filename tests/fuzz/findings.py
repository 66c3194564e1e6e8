"""Findings: cases that broke the package once. They are kept as files, and replayed by the tests.

tests/fuzz/findings/DOOR/KIND-ERROR-DIGEST       the case, compressed with gzip if its name ends in .gz
"""

import gzip
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from .worker import Verdict

FOLDER = Path(__file__).parent / "findings"
LONGEST_PLAIN = 1024
"""A longer case is compressed."""


def keep_finding(door: str, case: bytes, verdict: Verdict, folder: Path = FOLDER) -> Path:
    """Write a case that failed to a file, and return its path. The same case gets the same file."""
    digest = hashlib.sha256(case).hexdigest()[:10]
    words = [verdict.kind, *([re.sub(r"\W+", "-", verdict.name)] if verdict.name else []), digest]
    path = folder / door / "-".join(words)
    path.parent.mkdir(parents=True, exist_ok=True)
    if len(case) > LONGEST_PLAIN:
        path = path.with_name(path.name + ".gz")
        path.write_bytes(gzip.compress(case, mtime=0))
    else:
        path.write_bytes(case)
    return path


def read_finding(path: Path) -> tuple[str, bytes]:
    """Return the name of the door, which is that of the folder, and the case."""
    data = path.read_bytes()
    return path.resolve().parent.name, gzip.decompress(data) if path.suffix == ".gz" else data


def list_findings(folder: Path = FOLDER) -> Iterator[Path]:
    """Yield all findings that are kept."""
    yield from sorted(path for path in folder.glob("*/*") if path.is_file())
