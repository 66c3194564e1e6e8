"""Tables are read as they are written, and whatever is no number is refused with its place."""

import io
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from cwrnn.experiments import array_files, tables
from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.tables import Table, TableError, is_table, open_table, read_table


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a file into the current folder, which is empty, and return its name."""
    monkeypatch.chdir(tmp_path)

    def write_file(content, name="town.csv"):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    return write_file


@pytest.mark.parametrize(
    "text",
    [
        "time,load,wind\n2020-01-01,3.5,1\n2020-01-02,-4e2,2\n",
        "time;load;wind\n2020-01-01;3.5;1\n2020-01-02;-4e2;2",
        "time\tload\twind\r\n2020-01-01\t3.5\t1\r\n2020-01-02\t-4e2\t2\r\n\r\n\r\n",
        '\ufeff"time",load , "wind"\n"a, b",+3.50, 1\n"a\nb","-400.",2\n'.replace(', "wind"', ',"wind"'),
        "time,load,wind\n;;;;;;;;,3.5,01\n,-400,2\n",
    ],
)
def test_csv_is_read_as_it_is_written(write, text):
    table = read_table(write(text))
    assert (table.name, table.source, table.columns) == ("town", "town.csv", ("time", "load", "wind"))
    np.testing.assert_array_equal(table.select(["wind", "load"]), [[1, 3.5], [2, -400]])
    assert table.select(["load"]).dtype == np.float64


def test_columns_without_names_are_numbered(write):
    table = read_table(write("1,2\n3,4\n"))
    assert table.columns == ("0", "1")
    np.testing.assert_array_equal(table.select(["1"]), [[2], [4]])
    assert read_table(write("load\n1\n2\n", "one.tsv")).choose_target(None) == "load"


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f8", ">f4", "<f2", "<i8", ">i2", "|u1", "|b1"])
def test_npy_is_read_as_numpy_saves_it(write, dtype, order):
    values = np.array([[0, 1], [1, 1], [0, 0]]).astype(dtype, order=order)
    np.save("town.npy", values)
    table = read_table("town.npy")
    assert table.columns == ("0", "1")
    np.testing.assert_array_equal(table.select(["0", "1"]), values.astype(float))
    np.save("one.npy", values[:, 1])
    np.testing.assert_array_equal(read_table("one.npy").select(["0"]), values[:, 1:].astype(float))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_has_a_column_for_every_array_or_column_of_one(write, save):
    # a constant column compresses a hundredfold, and an array of text is no column
    arrays = {"load": np.full(200_000, 7.0), "x": np.arange(400_000).reshape(-1, 2), "names": np.array(["a"])}
    save("town.npz", cube=np.zeros((2, 2, 2)), **arrays)
    table = read_table("town.npz")
    assert table.columns == ("load", "x.0", "x.1")
    np.testing.assert_array_equal(table.select(["x.1", "load"])[:2], [[1, 7], [3, 7]])


def test_columns_of_a_mapping_are_a_table():
    table = Table.from_columns({"load": np.arange(3, dtype=np.int16), "date": np.array(["a", "b", "c"])})
    np.testing.assert_array_equal(table.select(["load"]), [[0], [1], [2]])
    assert open_table(table) is table
    assert is_table(table)
    with pytest.raises(TableError, match="table, column 'date': expected numbers, got the dtype <U1"):
        table.select(["date"])
    with pytest.raises(TableError, match=r"the column 'a' must be \(rows,\), got the shape \(2, 2\)"):
        Table.from_columns({"a": np.zeros((2, 2))})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "town.csv: empty"),
        ("\ntime,load\n", "town.csv, line 1: empty"),
        ("time,load\n", "town.csv: has no rows"),
        ("time,load\na,1\nb,two\n", "town.csv, line 3, column 'load': expected a number, got 'two'"),
        ("time;load\na;3,5\n", "line 2, column 'load': expected a number, got '3,5'"),
        ("time,load\na,1 000\n", "line 2, column 'load': expected a number, got '1 000'"),
        ("time,load\na,1_000\n", "line 2, column 'load': expected a number, got '1_000'"),
        ("time,load\na,٣\n", "line 2, column 'load': expected a number"),
        ("time,load\na,NaN\n", "line 2, column 'load': expected a number, got 'NaN'"),
        ("time,load\na,inf\n", "line 2, column 'load': expected a number, got 'inf'"),
        ("time,load\na,1e400\n", "line 2, column 'load': expected a number up to 1e+100, got '1e400'"),
        ("time,load\na,-1e101\n", "line 2, column 'load': expected a number up to 1e+100"),
        (f"time,load\na,{'9' * 101}\n", "line 2, column 'load': expected a number, got '9999"),
        ("time,load\na, \n", "line 2, column 'load': the cell is empty"),
        ("time,load\n\na,1\n", "town.csv, line 2: empty"),
        ("time,load\na,1\nb\n", "town.csv, line 3: expected 2 cells, got 1"),
        ("time,load\na,1\nb,2,3\n", "town.csv, line 3: expected 2 cells, got 3"),
        ('time,load\na,1\nb,"2\n3\n', "town.csv, line 4: unexpected end of data"),
        ('time,load\na,"1"2\n', "town.csv, line 2: ',' expected after '\"'"),
        (b"time,load\na,1\n\xff,2\n", "town.csv, line 3: is not UTF-8 text"),
        ("time,load\n".encode("utf-16"), "town.csv, line 1: is not UTF-8 text"),
        ("time,load\na,\x00\n", "line 2, column 'load': expected a number, got '\\x00'"),
        ("time,load\na,\x1b[31m\n", "line 2, column 'load': expected a number, got '\\x1b[31m'"),
    ],
)
def test_csv_that_is_no_table_of_numbers_is_refused_with_its_place(write, text, message):
    with pytest.raises(TableError, match=re.escape(message)):
        read_table(write(text)).select(["load"])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([object()]), "the array has Python objects, which are never loaded"),
        (np.zeros(3, dtype=[("a", "f4")]), "the array has fields"),
        (np.zeros(3, dtype=complex), "the array must be numbers, got the dtype <c16"),
        (np.array(["a"]), "the array has no header of numpy"),
        (np.zeros((3, 2, 2)), "expected the shape (rows,) or (rows, columns), got (3, 2, 2)"),
        (np.float64(3), "expected the shape (rows,) or (rows, columns), got ()"),
        (np.zeros((3, 0)), "has no columns"),
        (np.zeros(0), "has no rows"),
        (np.array([1, np.nan]), "row 1 (counted from 0), column '0': expected a finite number, got nan"),
        (np.array([1, -np.inf]), "row 1 (counted from 0), column '0': expected a finite number, got -inf"),
        (np.array([1e200]), "row 0 (counted from 0), column '0': expected a number up to 1e+100, got 1e+200"),
    ],
)
def test_npy_without_columns_of_numbers_is_refused(write, array, message):
    np.save("town.npy", array, allow_pickle=True)
    with pytest.raises(TableError, match=re.escape(f"town.npy{'' if message.startswith('row') else ': '}") + ".*"
                       + re.escape(message)):  # fmt: skip
        read_table("town.npy").select(["0"])


def make_npy(header, body=b""):
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the array is empty"),
        (b"time,load\n", "the array has no header of numpy"),
        (make_npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (4,), }\n", bytes(31)), "does not fit the size"),
        (make_npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (4,), }\n", bytes(33)), "does not fit the size"),
        (make_npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999,), }\n"), "does not fit the size"),
        (make_npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (1, 99999999999), }\n"), "more than 100000 col"),
        (make_npy(b"{'descr': '<f8', 'fortran_order': __import__('os'), 'shape': (1,), }\n"), "no header of numpy"),
        (make_npy(b"{'descr': '<f3', 'fortran_order': False, 'shape': (1,), }\n"), "unknown dtype: <f3"),
    ],
)
def test_damaged_npy_is_refused_before_anything_is_allocated(write, content, message):
    with pytest.raises(TableError, match=re.escape(message)):
        read_table(write(content, "town.npy")).select(["0"])


def test_damaged_npz_is_refused(write):
    np.savez("town.npz", load=np.zeros(1000))
    whole = Path("town.npz").read_bytes()
    for cut in (whole[:-30], whole[:200], b"PK"):
        with pytest.raises(TableError, match="not an archive of arrays"):
            read_table(write(cut, "cut.npz")).select(["load"])
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("readme.txt", "no array")
    with pytest.raises(TableError, match="has a member that is no array: 'readme.txt'"):
        read_table(write(file.getvalue(), "town.npz"))
    np.savez("town.npz", load=np.zeros(3), wind=np.zeros(4))
    with pytest.raises(TableError, match="must have the same number of rows: 'load' has 3, 'wind' has 4"):
        read_table("town.npz").select(["load", "wind"])


def test_small_archive_cannot_fill_the_memory(write, monkeypatch):
    monkeypatch.setattr(array_files, "LEAST_LIMIT", 1000)
    np.savez_compressed("town.npz", load=np.zeros(10**6))
    with pytest.raises(TableError, match="does not fit the size of the file"):
        read_table("town.npz").select(["load"])


def test_columns_that_are_not_there_are_named(write):
    table = read_table(write("time,load,load\na,1,2\n"))
    for names, argument, message in (
        (["wind"], "inputs", "town.csv has no column 'wind': expected one of 'time', 'load', 'load'"),
        (["load"], "target", "town.csv has 2 columns of the name 'load'"),
        (["time", "time"], "inputs", "expected different columns, got 'time' twice"),
    ):
        with pytest.raises(ArgumentError, match=re.escape(f"{argument}: {message}")):
            table.select(names, argument)
    with pytest.raises(ArgumentError, match=re.escape("target: town.csv has several columns: name one of 'time', ")):
        table.choose_target(None)
    many = read_table(write(",".join(f"c{i}" for i in range(40)) + "\n"))
    with pytest.raises(ArgumentError, match="'c11' and 28 more$"):
        many.choose_target(None)


def test_files_that_cannot_be_read_are_refused(write, tmp_path):
    (tmp_path / "folder.csv").mkdir()
    for name, message in (
        ("missing.csv", "missing.csv: there is no such file"),
        ("folder.csv", "folder.csv: cannot be read: Is a directory"),
        ("town.xlsx", "town.xlsx: is not a table: its name must end in .csv, .npy, .npz, .tsv"),
    ):
        with pytest.raises(TableError, match=re.escape(message)):
            read_table(name)
    with pytest.raises(ArgumentError, match="data: expected a path"):
        read_table("")


def test_size_of_a_table_is_limited(write, monkeypatch):
    monkeypatch.setattr(tables, "LARGEST_LENGTH", 3)
    assert len(read_table(write("load\n1\n2\n3\n")).select(["load"])) == 3
    with pytest.raises(TableError, match="town.csv: has more than 3 rows"):
        read_table(write("load\n1\n2\n3\n4\n")).select(["load"])
    np.save("town.npy", np.zeros(4))
    with pytest.raises(TableError, match="town.npy: has more than 3 rows"):
        read_table("town.npy").select(["0"])
    monkeypatch.setattr(tables, "LARGEST_FILE", 10)
    with pytest.raises(TableError, match="it has 11 bytes, but may have 10 at most"):
        read_table(write("load\n1\n2\n3\n"[:11]))
