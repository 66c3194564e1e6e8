"""File names as text, and paths that arguments name.

Linux allows any bytes in a name, but stores, pages and terminals are UTF-8.
"""

import os
from pathlib import Path

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
