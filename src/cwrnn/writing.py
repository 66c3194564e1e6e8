"""Writing files whole or not at all: a full disk or a kill leaves the old files, never half of a new one.

Every file of this package is written here. A temporary file lies beside its target under a random name that nobody can
foresee. It is made anew (O_EXCL), so a link or a file that is there already is never written through.
"""

import errno
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Writes every file of `contents`, and makes the folders that it needs.

    All contents reach the disk as temporary files beside their targets before the first target is replaced. If one
    of them cannot be written, no target has changed and no temporary file is left. A target that is a link is replaced
    itself, not the file that it leads to. The permissions are those of any new file: the umask decides.

    Raises an OSError if a file cannot be written, or if its target is there and is no regular file.
    """
    temporaries: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            _check_target(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            # shorter than most targets' names: a name as long as the file system allows can be written
            temporaries[path] = path.with_name(f".{secrets.token_hex(8)}.part")
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


def _check_target(path: Path) -> None:
    """Refuses folders, devices and pipes: they cannot be replaced, or must not be."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except ValueError as error:
        raise OSError(errno.EINVAL, "the name has a NUL byte", str(path)) from error
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "is not a regular file: it cannot be replaced", str(path))
