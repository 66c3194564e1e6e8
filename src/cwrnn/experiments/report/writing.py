"""Writing files whole or not at all: a full disk or a kill leaves the old files, never half of a new one."""

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Writes every file of `contents`, and makes the folders that it needs.

    All contents reach the disk as temporary files beside their targets before the first target is replaced. If one
    of them cannot be written, no target has changed and no temporary file is left.
    """
    temporaries: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporaries[path] = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
            with temporaries[path].open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for path, temporary in temporaries.items():
            os.replace(temporary, path)
    except BaseException:
        for temporary in temporaries.values():
            with suppress(OSError):
                temporary.unlink()
        raise
