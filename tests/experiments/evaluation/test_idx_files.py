"""Idx files are read exactly, and damaged ones are refused before much memory is spent on them."""

import gzip
import hashlib
import os
import zlib

import numpy as np
import pytest
from support.made_images import encode_idx

from cwrnn.experiments.errors import DataError
from cwrnn.experiments.evaluation import idx_files
from cwrnn.experiments.evaluation.compression import decompress
from cwrnn.experiments.evaluation.idx_files import parse_idx, read_idx

ARRAY = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
FILE = encode_idx(ARRAY)


def name_case(value):
    """Return the name of a value in the names of tests: bytes that gzip writes contain the time."""
    return "data" if isinstance(value, bytes) else None


@pytest.mark.parametrize(
    "data", [FILE, gzip.compress(FILE), gzip.compress(FILE) + bytes(100)], ids=["plain", "compressed", "padded"]
)
def test_arrays_are_read(tmp_path, data):
    path = tmp_path / "images"
    path.write_bytes(data)
    read = read_idx(path, 3)
    np.testing.assert_array_equal(read.array, ARRAY)
    assert read.checksum == hashlib.sha256(FILE).hexdigest()


def test_the_most_significant_byte_comes_first():
    data = bytes([0, 0, 8, 1, 0, 0, 1, 2]) + bytes(258)
    assert parse_idx(data, "x", 1).array.shape == (258,)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "expected the magic number 0x00000803, got an empty file"),
        (b"\0", "expected the magic number 0x00000803, got 0x00"),
        (b"\0\0\x0d\x03" + FILE[4:], "expected the magic number 0x00000803, got 0x00000d03"),
        (encode_idx([1, 2]), "bytes in 3 dimensions: expected the magic number 0x00000803, got 0x00000801"),
        (b"PK\3\4" + FILE[4:], "got 0x504b0304"),
        (FILE[:15], "cut short: the header needs 16 bytes, got 15"),
        (FILE[:-1], "cut short: 2 \\* 3 \\* 4 numbers need 40 bytes, got 39"),
        (FILE + b"\0", "too long: 2 \\* 3 \\* 4 numbers need 40 bytes, got 41"),
        (encode_idx(np.zeros((0, 3, 4))), "the array is empty: its shape is \\(0, 3, 4\\)"),
        (FILE[:4] + b"\xff" * 12, "too large: 4294967295 \\* 4294967295 \\* 4294967295 numbers"),
        (gzip.compress(FILE[:-1]), "cut short: 2 \\* 3 \\* 4 numbers need 40 bytes, got 39"),
        (gzip.compress(FILE + b"\0"), "too long: 2 \\* 3 \\* 4 numbers need 40 bytes, got more"),
        (gzip.compress(FILE)[:-1], "the compressed data are cut short"),
        (gzip.compress(FILE)[:12], "cut short"),
        (gzip.compress(FILE)[:-5] + b"xxxxx", "the compressed data are damaged"),
        (gzip.compress(FILE) + b"x", "bytes follow the end of the compressed data"),
        (b"\x1f\x8bnonsense", "the compressed data are damaged"),
    ],
    ids=name_case,
)
def test_damaged_files_are_refused(tmp_path, data, problem):
    path = tmp_path / "images"
    path.write_bytes(data)
    with pytest.raises(DataError, match=rf"images: .*{problem}"):
        read_idx(path, 3)


def test_a_bomb_is_not_decompressed(monkeypatch):
    asked = []
    monkeypatch.setattr(idx_files, "decompress", lambda data, most: asked.append(most) or decompress(data, most))
    # 40 bytes are promised, 50 million follow
    with pytest.raises(DataError, match="too long"):
        parse_idx(gzip.compress(FILE + bytes(50_000_000)), "bomb", 3)
    assert asked == [16, 41]


def test_decompression_stops_at_its_bound():
    bomb = zlib.compress(bytes(50_000_000))
    assert decompress(bomb, 1000) == bytes(1000)
    assert decompress(zlib.compress(b"abc"), 4) == b"abc"
    with pytest.raises(ValueError, match="at least 1 byte, got 0"):
        decompress(bomb, 0)


def test_files_that_cannot_be_read_are_refused(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError):
        read_idx(tmp_path / "missing", 1)
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_idx(tmp_path, 1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe: cannot be read: it is not a regular file"):
        read_idx(tmp_path / "pipe", 1)
    monkeypatch.setattr(idx_files, "LARGEST_FILE", 39)
    (tmp_path / "large").write_bytes(FILE)
    with pytest.raises(DataError, match="large: cannot be read: it has 40 bytes, but may have 39 at most"):
        read_idx(tmp_path / "large", 3)
    with pytest.raises(DataError, match="too large: 2 \\* 3 \\* 4 numbers need 40 bytes, but it may have 39 at most"):
        parse_idx(gzip.compress(FILE), "x", 3)
