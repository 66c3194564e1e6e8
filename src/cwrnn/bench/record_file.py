"""RecordFile: a record that grows, in a JSON file that is never older than a few seconds."""

import json
import time
from pathlib import Path
from typing import Any

from ..writing import write_files

INTERVAL = 5.0
"""The seconds between two writes of a growing record. A process that is killed loses no more than these."""


class RecordFile:
    """A record in a JSON file. Without a path nothing is written.

    The file is made at once, so a path that cannot be written is an error before anything is measured.
    """

    def __init__(self, path: Path | None, record: dict[str, Any]) -> None:
        self._path, self._record = path, record
        self.write()

    def write(self) -> None:
        """Writes the record, whole or not at all."""
        if self._path is not None:
            write_files({self._path: (json.dumps(self._record, indent=2) + "\n").encode()})
        self._written = time.monotonic()

    def write_if_due(self) -> None:
        """Writes the record if the last write is some seconds ago."""
        if time.monotonic() - self._written >= INTERVAL:
            self.write()
