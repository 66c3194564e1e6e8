"""The folder that an export is written to: a new one, so that nothing of the user's is replaced or mixed up."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from ..experiments.errors import ArgumentError
from ..experiments.file_names import check_path
from ..untrusted import shorten
from ..writing import write_files


def check_folder(out: str | PathLike[str]) -> Path:
    """The folder `out` as a path; it must not exist, or be empty.

    Raises an ArgumentError if it is a file or lies in one, if it is a folder with anything in it, or if the system
    refuses the path.
    """
    folder = check_path("out", out)
    try:
        if next(folder.iterdir(), None) is None:
            return folder
    except FileNotFoundError:
        return folder
    except NotADirectoryError:
        file = next((path for path in (folder, *folder.parents) if path.exists()), folder)
        raise ArgumentError("out", f"{file} is a file: name a new folder") from None
    except OSError as error:
        # a name that is too long, a folder that must not be read, a circle of links
        raise ArgumentError("out", f"{shorten(str(folder), 200)} cannot be used: {error.strerror}") from error
    raise ArgumentError("out", f"{folder} exists and is not empty: name a new folder")


def write_folder(folder: Path, contents: Mapping[str, str | bytes]) -> tuple[Path, ...]:
    """Writes each content to the file of its name in `folder`, all of them or none, and returns the paths."""
    files = {
        folder / name: content.encode() if isinstance(content, str) else content for name, content in contents.items()
    }
    write_files(files)
    return tuple(files)
