"""Files of others are read, parsed and printed without trusting them."""

import io
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cwrnn import untrusted
from cwrnn.untrusted import escape_controls, parse_json, read_regular_file


def test_a_regular_file_is_read_whole(tmp_path):
    path = tmp_path / "file"
    for size in (0, 1, 5000, 200_000):
        data = os.urandom(size)
        path.write_bytes(data)
        assert read_regular_file(path, size) == data
        assert read_regular_file(str(path), 10**9) == data
    with pytest.raises(OSError, match="it has 200000 bytes, but may have 199999 at most") as refused:
        read_regular_file(path, 199_999)
    assert refused.value.filename == str(path)


def test_a_file_that_grows_while_it_is_read_is_bounded(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(bytes(10))
    status = path.stat()
    path.write_bytes(bytes(100_000))
    monkeypatch.setattr(untrusted.os, "stat", lambda _: status)
    monkeypatch.setattr(untrusted.os, "fstat", lambda _: status)
    assert len(read_regular_file(path, 100_000)) == 100_000
    with pytest.raises(OSError, match="it has more than 99999 bytes"):
        read_regular_file(path, 99_999)


def test_pipes_devices_and_folders_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe", tmp_path / "link", "/dev/zero"):
        with pytest.raises(OSError, match="it is not a regular file"):
            read_regular_file(path, 100)
    with pytest.raises(IsADirectoryError):
        read_regular_file(tmp_path, 100)


def test_a_pipe_that_takes_the_name_of_a_file_does_not_make_the_reader_wait(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"")
    status = (tmp_path / "file").stat()
    monkeypatch.setattr(untrusted.os, "stat", lambda _: status)
    with pytest.raises(OSError, match="it is not a regular file"):
        read_regular_file(tmp_path / "pipe", 100)


def test_names_that_no_file_can_have_are_refused(tmp_path):
    with pytest.raises(OSError, match="File name too long"):
        read_regular_file(tmp_path / ("a" * 5000), 100)
    with pytest.raises(OSError, match="the name has a NUL byte"):
        read_regular_file(tmp_path / "a\0b", 100)


def test_memory_that_is_not_there_is_an_error_of_the_file(tmp_path, monkeypatch):
    class Reader(io.FileIO):
        def read(self, size):
            raise MemoryError

    (tmp_path / "file").write_bytes(b"a")
    monkeypatch.setattr(untrusted.io, "FileIO", Reader)
    with pytest.raises(OSError, match="it does not fit into memory"):
        read_regular_file(tmp_path / "file", 100)


NUMBERS = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.booleans())
def test_json_of_a_value_is_that_value(value, as_bytes):
    text = json.dumps(value)
    assert parse_json(text.encode() if as_bytes else text) == value


@given(st.text(alphabet='[]{}",:0123456789.eE+-\\u dDfF89abNaInfity', max_size=60))
def test_any_text_is_json_or_a_value_error(text):
    try:
        value = parse_json(text)
    except ValueError:
        return
    assert json.loads(json.dumps(value, allow_nan=False)) == value


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":[', "[1,"])
@pytest.mark.parametrize("depth", [33, 200, 990, 1010, 100_000])
def test_json_that_is_nested_too_deeply_is_refused(opening, depth):
    closing = "".join({"[": "]", "{": "}"}.get(character, "") for character in reversed(opening))
    with pytest.raises(ValueError, match="nested deeper than 32 levels"):
        parse_json(opening * depth + "1" + closing * depth)


def test_json_of_other_encodings_is_refused():
    for encoding in ("utf-16", "utf-32", "utf-8-sig"):
        with pytest.raises(ValueError, match="decode|BOM"):
            parse_json('{"é": 1}'.encode(encoding))


def test_a_terminal_obeys_nothing_in_an_escaped_text():
    for text, escaped in (
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b2J", r"\x9b2J"),
        ("a\r\nb\tc\0", r"a\r\nb\tc\x00"),
        ("evil\u202egpj.wav", r"evil\u202egpj.wav"),
        ("\u2066a\u2069\u2028", r"\u2066a\u2069\u2028"),
        ("caf\udce9", r"caf\udce9"),
    ):
        assert escape_controls(text) == escaped
    for text in ("né [red]bold[/red] $x^2$ <b>&amp;</b> \\", "日本語 👩\u200d🔬"):
        assert escape_controls(text) == text
