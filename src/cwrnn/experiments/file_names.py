"""File names as text, and paths that arguments name.

Linux allows any bytes in a name, but stores, pages and terminals are UTF-8.
"""

import os
import stat
from pathlib import Path

from ..untrusted import escape_controls, shorten
from .errors import ArgumentError


def check_path(argument: str, path: str | os.PathLike[str]) -> Path:
    """Return the path of an argument; an ArgumentError if no file or folder can have it.

    >>> check_path("out", "")
    Traceback (most recent call last):
        ...
    cwrnn.experiments.errors.ArgumentError: out: expected a path, got an empty one
    """
    try:
        text = os.fspath(path)
    except TypeError as error:
        raise ArgumentError(argument, f"expected a path, got {path!r}") from error
    if not isinstance(text, str):
        raise ArgumentError(argument, f"expected a path as text, got {text!r}")
    if not text:
        # Path("") is the current folder
        raise ArgumentError(argument, "expected a path, got an empty one")
    if "\0" in text:
        raise ArgumentError(argument, f"expected a path, got one with a NUL character: {text!r}")
    return Path(text)


def check_new_file(argument: str, path: Path, force: bool) -> None:
    """Raise an ArgumentError for a file that could not be written, before time is spent on its contents.

    Args:
        argument: the name of the argument that names the file
        path: the file; its folder is made if it does not exist
        force: whether an existing file may be replaced
    """
    name, mode = escape_controls(str(path)), _read_mode(argument, path)
    if mode is not None and stat.S_ISDIR(mode):
        raise ArgumentError(argument, f"{name} is a folder: name a file")
    if mode is not None and not stat.S_ISREG(mode):
        raise ArgumentError(argument, f"{name} is not a regular file, so it cannot be replaced")
    if mode is not None and not force:
        raise ArgumentError(argument, f"{name} exists already: add --force (force=True) to replace it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(argument, f"cannot make its folder: {error.strerror}") from error
    if not os.access(path.parent, os.W_OK):
        raise ArgumentError(argument, f"the folder {escape_controls(str(path.parent))} cannot be written to")
    # again, because a name that is too long is noticed only in a folder that exists
    _read_mode(argument, path)


def _read_mode(argument: str, path: Path) -> int | None:
    """Return the kind of file that a path has, as `os.stat` writes it; None if there is none."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        # a ValueError is a NUL byte in the name
        reason = error.strerror if isinstance(error, OSError) else error
        name = shorten(escape_controls(str(path)), 200)
        raise ArgumentError(argument, f"{name} cannot be written: {reason}") from error


def is_folder(path: Path) -> bool:
    """Return True if there is a folder at `path`, and False if there is none or the path is too long for one."""
    try:
        return path.is_dir()
    except OSError:
        return False


def replace_undecodable(text: str) -> str:
    """Return `text` with a question mark for each byte of a file name that is not UTF-8.

    >>> replace_undecodable("caf" + chr(0xDCE9) + ".wav")
    'caf?.wav'
    """
    return text.encode("utf-8", "replace").decode()


def format_page_path(page: Path) -> str:
    """Return the sentence that says where a page is."""
    return f"The page is {replace_undecodable(str(page.resolve()))}"
