"""Writing files whole or not at all: a full disk or a kill leaves the old files, never half of a new one.

Every file of this package is written here. A temporary file lies beside its target under a random name that nobody can
foresee. It is made anew (O_EXCL), so a link or a file that is there already is never written through. Its process
holds a lock on it until it is in place. A temporary file without a lock was left by a process that was killed, and the
next write into that folder removes it.
"""

import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

if sys.platform != "win32":
    import fcntl

TEMPORARY = re.compile(r"\.cwrnn-[0-9a-f]{16}\.part")
"""The names of temporary files."""


def write_files(contents: Mapping[Path, bytes], *, private: bool = False) -> None:
    """Writes every file of `contents`, and makes the folders that it needs.

    All contents reach the disk as temporary files beside their targets before the first target is replaced. If one
    of them cannot be written, no target has changed and no temporary file is left. A target that is a link is replaced
    itself, not the file that it leads to. The permissions are those of any new file, which the umask decides. A file
    that is `private` can be read and written by the user alone, where the system has such permissions.

    Raises an OSError if a file cannot be written, or if its target is there and is no regular file.
    """
    for path in contents:
        _check_target(path)
        path.parent.mkdir(parents=True, exist_ok=True)
    for folder in {path.parent for path in contents}:
        _remove_abandoned(folder)
    temporaries: dict[Path, Path] = {}
    with ExitStack() as locks:
        try:
            for path, content in contents.items():
                for temporary in _draw_names(path):
                    temporaries[path] = temporary
                    file = temporary.open("xb")
                    if _lock(file):
                        break
                locks.enter_context(file)
                if private and sys.platform != "win32":
                    # some file systems have no permissions
                    with suppress(OSError):
                        os.fchmod(file.fileno(), stat.S_IRUSR | stat.S_IWUSR)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                if sys.platform == "win32":
                    # Windows does not replace open files
                    file.close()
            for path, temporary in temporaries.items():
                os.replace(temporary, path)
        except BaseException:
            for temporary in temporaries.values():
                with suppress(OSError):
                    temporary.unlink()
            raise


def _draw_names(path: Path) -> Iterator[Path]:
    """Random names beside a target. They are short: a target may have the longest name that the file system takes."""
    while True:
        yield path.with_name(f".cwrnn-{secrets.token_hex(8)}.part")


def _lock(file: BinaryIO) -> bool:
    """Locks a file until it is closed; False if another process took it for abandoned and removed it before."""
    if sys.platform != "win32":
        # a file system without locks: its temporary files are not removed either
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
    if os.fstat(file.fileno()).st_nlink > 0:
        return True
    file.close()
    return False


def _remove_abandoned(folder: Path) -> None:
    """Removes the temporary files of processes that were killed: nobody holds a lock on them."""
    if sys.platform == "win32":
        return
    with suppress(OSError):
        for name in filter(TEMPORARY.fullmatch, os.listdir(folder)):
            with suppress(OSError):
                descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(folder / name)
                finally:
                    os.close(descriptor)


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
