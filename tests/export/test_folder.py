"""The folder of an export: a new one, written whole."""

import pytest

from cwrnn.experiments.errors import ArgumentError
from cwrnn.export.folder import check_folder, write_folder


def test_texts_and_bytes_are_written(tmp_path):
    files = write_folder(check_folder(tmp_path / "deep" / "new"), {"a.txt": "née", "b.bin": b"\xff"})
    assert [file.relative_to(tmp_path).as_posix() for file in files] == ["deep/new/a.txt", "deep/new/b.bin"]
    assert [file.read_bytes() for file in files] == ["née".encode(), b"\xff"]


def test_a_file_on_the_way_is_named(tmp_path):
    (tmp_path / "text.txt").write_text("mine")
    for out in (tmp_path / "text.txt", tmp_path / "text.txt" / "x", tmp_path / "text.txt" / "x" / "y"):
        with pytest.raises(ArgumentError, match=r"out: .*/text\.txt is a file: name a new folder$"):
            check_folder(out)


def test_a_path_that_the_system_refuses_is_an_argument_that_cannot_be_used(tmp_path, monkeypatch):
    with pytest.raises(ArgumentError, match=r"out: .*a\.\.\. cannot be used: File name too long"):
        check_folder(tmp_path / ("a" * 300))
    (tmp_path / "link").symlink_to("link")
    with pytest.raises(ArgumentError, match="out: .*link cannot be used: Too many levels of symbolic links"):
        check_folder(tmp_path / "link")

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    # a test that runs as root may read every folder
    monkeypatch.setattr("pathlib.Path.iterdir", refuse)
    with pytest.raises(ArgumentError, match="out: .*closed cannot be used: Permission denied"):
        check_folder(tmp_path / "closed")
