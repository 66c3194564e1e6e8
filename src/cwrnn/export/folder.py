"""The folder that an export is written to: a new one, so that nothing of the user's is replaced or mixed up."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from ..experiments.errors import ArgumentError
from ..experiments.file_names import check_path
from ..writing import write_files


def check_folder(out: str | PathLike[str]) -> Path:
    """The folder `out` as a path; it must not exist, or be empty.

    Raises an ArgumentError if it is a file, or a folder with anything in it.
    """
    folder = check_path("out", out)
    try:
        if next(folder.iterdir(), None) is None:
            return folder
    except FileNotFoundError:
        return folder
    except NotADirectoryError:
        raise ArgumentError("out", f"{folder} is a file: name a new folder") from None
    raise ArgumentError("out", f"{folder} exists and is not empty: name a new folder")


def write_folder(folder: Path, texts: Mapping[str, str]) -> tuple[Path, ...]:
    """Writes each text to the file of its name in `folder`, all of them or none, and returns the paths."""
    files = {folder / name: text.encode() for name, text in texts.items()}
    write_files(files)
    return tuple(files)
