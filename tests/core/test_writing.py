"""Files are written whole or not at all."""

import errno
import io
import os
import secrets
import stat
from pathlib import Path

import pytest

from cwrnn.writing import write_files


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


def test_temporary_files_of_killed_processes_are_removed(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    abandoned, held = (tmp_path / f".cwrnn-{digit * 16}.part" for digit in "0f")
    others = [".cwrnn-0.part", ".0000000000000000.part", "cwrnn-0000000000000000.part"]
    for name in (abandoned, held, *others):
        (tmp_path / name).write_bytes(b"half of a page")
    with held.open("rb") as file:
        # its process lives: it holds the lock until the file is in place
        fcntl.flock(file, fcntl.LOCK_EX)
        write_files({tmp_path / "page.html": b"page"})
        assert names(tmp_path) == sorted([held.name, *others, "page.html"])
    write_files({tmp_path / "page.html": b"page"})
    assert names(tmp_path) == sorted([*others, "page.html"])


def test_two_processes_that_write_at_once_leave_each_other_alone(tmp_path, monkeypatch):
    replace = os.replace

    def write_another(source, target):
        monkeypatch.setattr(os, "replace", replace)
        write_files({tmp_path / "numbers.json": b"numbers"})
        replace(source, target)

    monkeypatch.setattr(os, "replace", write_another)
    write_files({tmp_path / "page.html": b"page"})
    assert names(tmp_path) == ["numbers.json", "page.html"]


def test_a_temporary_file_that_another_process_removes_is_made_again(tmp_path, monkeypatch):
    """A process that cleans up can take a file in the moment between its creation and its lock."""
    fcntl = pytest.importorskip("fcntl")
    lock, removed = fcntl.flock, []

    def remove_then_lock(file, operation):
        if not removed:
            removed.extend(tmp_path.glob(".cwrnn-*.part"))
            removed[0].unlink()
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", remove_then_lock)
    write_files({tmp_path / "page.html": b"page"})
    assert len(removed) == 1
    assert names(tmp_path) == ["page.html"]


def test_the_temporary_name_cannot_be_foreseen(tmp_path, monkeypatch):
    temporaries = []
    replace = os.replace

    def remember(source, target):
        temporaries.append(Path(source))
        replace(source, target)

    monkeypatch.setattr(os, "replace", remember)
    for _ in range(2):
        write_files({tmp_path / "page.html": b"page"})
    first, second = temporaries
    assert first.parent == second.parent == tmp_path
    assert first != second
    for temporary in temporaries:
        assert "page" not in temporary.name
        assert str(os.getpid()) not in temporary.name.split(".")


def test_a_file_that_has_the_temporary_name_is_not_written_through(tmp_path, monkeypatch):
    monkeypatch.setattr(secrets, "token_hex", lambda size: "known")
    other = tmp_path / "other"
    other.write_bytes(b"not ours")
    (tmp_path / ".cwrnn-known.part").symlink_to(other)
    with pytest.raises(FileExistsError):
        write_files({tmp_path / "page.html": b"page"})
    assert other.read_bytes() == b"not ours"
    assert not (tmp_path / "page.html").exists()


def test_a_link_is_replaced_and_not_followed(tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"not ours")
    (tmp_path / "page.html").symlink_to(other)
    write_files({tmp_path / "page.html": b"page"})
    assert other.read_bytes() == b"not ours"
    assert not (tmp_path / "page.html").is_symlink()
    assert (tmp_path / "page.html").read_bytes() == b"page"


def test_a_target_that_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is not a regular file: it cannot be replaced"):
        write_files({tmp_path / "numbers.json": b"numbers", tmp_path / "pipe": b"page"})
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as refused:
        write_files({tmp_path / "folder": b"page"})
    assert refused.value.filename == str(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


def test_names_that_no_file_can_have_are_refused(tmp_path):
    for name in ("a" * 5000, "a\0b"):
        with pytest.raises(OSError, match="File name too long|NUL byte"):
            write_files({tmp_path / name: b"page"})
    longest = os.pathconf(tmp_path, "PC_NAME_MAX")
    write_files({tmp_path / ("a" * longest): b"page"})
    assert len(list(tmp_path.iterdir())) == 1
