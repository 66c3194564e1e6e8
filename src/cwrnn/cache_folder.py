"""The folder in which a user's caches lie: results that can be computed again, kept for the next process."""

import os
from pathlib import Path


def find_cache_folder(name: str) -> Path | None:
    """The folder of the cache with that name, which need not exist; None if the user has no home folder."""
    folder = os.environ.get("XDG_CACHE_HOME")
    # its specification says that a relative one is to be ignored
    if folder and os.path.isabs(folder):
        return Path(folder) / "cwrnn" / name
    try:
        return Path.home() / ".cache" / "cwrnn" / name
    except RuntimeError:
        return None
