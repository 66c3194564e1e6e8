"""Files are written whole or not at all."""

import errno
import io
import os
from pathlib import Path

import pytest

from cwrnn.experiments.report.writing import write_files


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_files_and_their_folders_are_made(tmp_path):
    write_files({tmp_path / "a" / "b.txt": b"one", tmp_path / "c.txt": b"two"})
    assert (tmp_path / "a" / "b.txt").read_bytes() == b"one"
    assert names(tmp_path) == ["a/b.txt", "c.txt"]
    # anybody may read a page that its owner may read, unless the umask forbids it
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "c.txt").stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_write_that_fails_half_way_changes_nothing(tmp_path, monkeypatch):
    write_files({tmp_path / "page.html": b"old page", tmp_path / "numbers.json": b"old numbers"})

    class HalfWriter(io.FileIO):
        def write(self, content):
            if content.startswith(b"new page"):
                super().write(content[:4])
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(content)

    def open_half(self, mode):
        return HalfWriter(self, mode.replace("b", ""))

    monkeypatch.setattr(Path, "open", open_half)
    with pytest.raises(OSError, match="No space left"):
        write_files({tmp_path / "numbers.json": b"new numbers", tmp_path / "page.html": b"new page"})
    assert (tmp_path / "page.html").read_bytes() == b"old page"
    assert (tmp_path / "numbers.json").read_bytes() == b"old numbers"
    assert names(tmp_path) == ["numbers.json", "page.html"]


def test_an_interrupt_leaves_no_temporary_file(tmp_path, monkeypatch):
    def interrupt(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_files({tmp_path / "page.html": b"page"})
    assert names(tmp_path) == []
