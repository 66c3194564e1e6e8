"""Tables in files are read as they are written, and every error names the line or the column."""

import os

import numpy as np
import pandas as pd
import pytest

from cwrnn.estimators import table_files, tables
from cwrnn.estimators.table_files import TableError, TextColumns
from cwrnn.estimators.tables import check_targets_vary, read_table, split_table

HOURS = [f"2024-03-01 {hour:02}:00,{1.5 * hour}" for hour in range(24)]


@pytest.fixture
def write(tmp_path):
    """Write lines or bytes to a file, and return its path."""

    def write(content, name="load.csv"):
        path = tmp_path / name
        if isinstance(content, list):
            content = "".join(f"{line}\n" for line in content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def make_frame(rows=24):
    index = pd.date_range("2024-03-01", periods=rows, freq="h", name="time", unit="ns")
    return pd.DataFrame({"load": 1.5 * np.arange(rows), "warm": np.arange(rows)}, index)


def test_the_first_column_of_times_and_the_only_other_column_are_found(write):
    table = read_table(write(["load,time", *(",".join(reversed(line.split(","))) for line in HOURS)]))
    y, X = split_table(table)
    pd.testing.assert_series_equal(y, make_frame()["load"], check_freq=False)
    assert X is None
    assert (table.targets, table.covariates, table.unit) == (("load",), (), "line")
    assert table.places.tolist() == list(range(2, 26))


def test_several_targets_and_covariates_keep_their_order(write):
    lines = [f"2024-03-0{day},{day},{10 * day},{100 * day},{day}" for day in range(1, 6)]
    table = read_table(write(["day,a,b,c,d", *lines]), targets=["c", "a"], covariates=["b"])
    y, X = split_table(table)
    assert y.columns.tolist() == ["c", "a"]
    assert y.iloc[1].tolist() == [200, 2]
    assert X.columns.tolist() == ["b"]
    assert y.index.name == "day"


DIALECTS = {
    "utf-8": lambda text: text.encode(),
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "utf-16": lambda text: text.encode("utf-16"),
    "line ends of Windows": lambda text: text.replace("\n", "\r\n").encode(),
    "tabs": lambda text: text.replace(",", "\t").encode(),
    "bars": lambda text: text.replace(",", "|").encode(),
    "decimal commas": lambda text: text.replace(",", ";").replace(".", ",").encode(),
    "quotes": lambda text: '"'.join(["", text.replace(",", '","').replace("\n", '"\n"').removesuffix('"')]).encode(),
    "empty lines": lambda text: (text + "\n,\n\n").encode(),
}


@pytest.mark.parametrize("change", DIALECTS.values(), ids=DIALECTS)
def test_all_dialects_of_csv_give_the_same_table(write, change):
    text = "".join(f"{line}\n" for line in ["time,load", *HOURS])
    path = write(change(text))
    pd.testing.assert_frame_equal(read_table(path).frame, make_frame()[["load"]], check_freq=False)


def test_a_parquet_file_gives_the_same_table(write, tmp_path):
    pytest.importorskip("pyarrow")
    frame = make_frame()
    path = tmp_path / "load.parquet"
    units = [frame.set_index(frame.index.as_unit(unit)) for unit in ("s", "ms", "us")]
    texts = frame.reset_index().astype({"time": str})
    for stored in (frame, *units, frame.reset_index(), texts, frame.astype("Float32")):
        stored.to_parquet(path)
        table = read_table(path, targets=["load"], covariates=["warm"])
        pd.testing.assert_frame_equal(table.frame, frame.astype(float), check_freq=False)
        assert (table.unit, table.places.tolist()) == ("row", list(range(1, 25)))


def test_parquet_files_keep_their_time_zone_and_missing_values(tmp_path):
    pytest.importorskip("pyarrow")
    frame = make_frame().tz_localize("Europe/Berlin")
    frame.loc[frame.index[3], "load"] = np.nan
    frame.to_parquet(tmp_path / "a")
    table = read_table(tmp_path / "a", targets=["load"])
    assert table.frame.index.equals(frame.index)
    with pytest.raises(TableError, match="a: row 4: column 'load' has no value at 2024-03-01 03:00:00"):
        split_table(table)


@pytest.mark.parametrize(
    ("format", "frequency"),
    [
        ("%Y-%m-%d %H:%M", "h"),
        ("%Y-%m-%dT%H:%M:%S", "30min"),
        ("%Y-%m-%dT%H:%M:%S.%f", "250ms"),
        ("%d.%m.%Y %H:%M", "h"),
        ("%d/%m/%Y", "D"),
        ("%m/%d/%Y", "D"),
        ("%m/%d/%y %I:%M %p", "h"),
        ("%d-%b-%Y", "D"),
        ("%B %d, %Y", "D"),
        ("%Y/%m/%d", "MS"),
        ("%Y-%m", "MS"),
    ],
)
def test_times_are_read_in_many_formats(write, format, frequency):
    index = pd.date_range("2024-01-01", periods=400, freq=frequency)
    lines = [f'"{time.strftime(format)}",{i}' for i, time in enumerate(index)]
    assert read_table(write(["when,load", *lines])).frame.index.equals(index)


def test_offsets_from_utc_become_utc(write):
    index = pd.date_range("2024-10-26", periods=72, freq="h", tz="Europe/Berlin")
    path = write(["time,load", *(f"{time},{i}" for i, time in enumerate(index))])
    assert read_table(path).frame.index.equals(index.tz_convert("UTC"))
    assert str(read_table(path, timezone="Europe/Berlin").frame.index.tz) == "Europe/Berlin"


def test_a_time_zone_tells_the_hours_apart_at_which_the_clocks_go_back(write):
    index = pd.date_range("2024-10-26", periods=72, freq="h", tz="Europe/Berlin")
    path = write(["time,load", *(f"{time:%Y-%m-%d %H:%M},{i}" for i, time in enumerate(index))])
    with pytest.raises(
        TableError, match="line 29: the time 2024-10-27 02:00:00 occurs twice, first in line 28; if the"
    ):
        split_table(read_table(path))
    y, _ = split_table(read_table(path, timezone="Europe/Berlin"))
    assert y.index.equals(index)


@pytest.mark.parametrize(
    ("lines", "timezone", "message"),
    [
        (
            ["2024-03-31 01:00", "2024-03-31 02:00"],
            "Europe/Berlin",
            "line 3: column 'time' has 2024-03-31 02:00:00, wh",
        ),
        (
            ["2024-10-27 01:00", "2024-10-27 02:00"],
            "Europe/Berlin",
            "column 'time' has times at which the clocks of Eur",
        ),
        (["2024-10-27 01:00"], "Berlin", "there is no time zone 'Berlin'"),
        (["2024-10-27 01:00"], "/etc/passwd", "there is no time zone '/etc/passwd'"),
        (["7"], "Europe/Berlin", "column 'time' has whole numbers, which have no time zone"),
    ],
)
def test_impossible_time_zones_are_refused(write, lines, timezone, message):
    path = write(["time,load", *(f"{time},{i}" for i, time in enumerate(lines))])
    with pytest.raises(TableError, match=message):
        read_table(path, time="time", timezone=timezone)


def test_whole_numbers_are_times_if_they_are_named(write):
    years = write(["year,load", *(f"{year},{year % 7}" for year in range(1990, 2020))])
    with pytest.raises(
        TableError, match="no column has times such as .* the columns 'year', 'load'. Times may be whole"
    ):
        read_table(years)
    assert read_table(years, time="year").frame.index.tolist() == list(range(1990, 2020))
    by_format = read_table(years, time="year", time_format="%Y").frame.index
    assert by_format.equals(pd.date_range("1990", periods=30, freq="YS"))


@pytest.mark.parametrize(
    ("first", "factor"), [(1_700_000_000, 1), (1_700_000_000_000, 1000)], ids=["seconds", "milliseconds"]
)
def test_numbers_since_1970_are_times(write, first, factor):
    path = write(["time,load", *(f"{first + 3600 * factor * i},{i}" for i in range(30))])
    expected = pd.date_range("2023-11-14 22:13:20", periods=30, freq="h")
    assert read_table(path, time="time").frame.index.equals(expected)


def test_days_and_months_are_never_confused(write):
    days = [f"{day}/{month}/2024" for month in (1, 2) for day in range(1, 29)]
    table = read_table(write(["day,load", *(f"{day},1" for day in days)]))
    assert table.frame.index[28] == pd.Timestamp("2024-02-01")
    months = [f"{month}/1/2024,{month}" for month in range(1, 13)]
    with pytest.raises(
        TableError, match="line 3: column 'day' has '2/1/2024', which is 2024-01-02 or 2024-02-01; give"
    ):
        read_table(write(["day,load", *months]))
    table = read_table(write(["day,load", *months]), time_format="%m/%d/%Y")
    assert table.frame.index[1] == pd.Timestamp("2024-02-01")


def replace(row, line):
    """All hours, with another line in place of that of an hour."""
    return ["time,load", *HOURS[:row], *([] if line is None else [line]), *HOURS[row + 1 :]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "load.csv: the file is empty"),
        (b"\n\n", "load.csv: the file is empty"),
        (["time,load"], "the file has the names of columns, but no values"),
        (HOURS, "line 1: the names of the columns are expected here, got '2024-03-01 00:00, 0.0'"),
        (["1,2", "3,4"], "line 1: the names of the columns are expected here, got '1, 2'"),
        (["load", "1", "2"], "no column has times such as 2024-03-01 05:00: it has the column 'load' alone"),
        (["time", "2024-03-01"], "there is no column to forecast: it has the column 'time' alone"),
        (["time,a,b", "2024-03-01,1,2"], "which column is to be forecast\\? Choose --target from the columns 'a', 'b'"),
        (replace(5, "2024-03-01 05:00,many"), "line 7: column 'load' has 'many', which is not a number"),
        (replace(5, "2024-03-01 05:00,1_0"), "line 7: column 'load' has '1_0', which is not a number"),
        (replace(5, "2024-03-01 05:00,\u0663"), "line 7: column 'load' has '\u0663', which is not a number"),
        (replace(5, '2024-03-01 05:00,"1,5"'), "line 7: column 'load' has '1,5', which is not a number"),
        (replace(5, "2024-03-01 05:00,1e999"), "line 7: column 'load' is infinite"),
        (replace(5, "2024-03-01 05:00,-1e300"), "line 7: column 'load' has -1e\\+300, which is beyond 1e\\+100"),
        (replace(5, "9024-03-01 05:00,1"), "line 7: column 'time' has '9024-03-01 05:00', which is not a time like"),
        (replace(23, "2224-03-01 23:00,1"), "line 25: 2224-03-01 23:00:00 lies too far ahead: there would be .* steps"),
        (replace(5, "2024-03-01 05:00,"), "line 7: column 'load' has no value at 2024-03-01 05:00:00 \\(1 of 24 are"),
        (replace(5, "2024-03-01 05:00,N/A"), "line 7: column 'load' has no value at .* --missing interpolate"),
        (replace(5, None), "line 7: 2024-03-01 05:00:00 is missing before 2024-03-01 06:00:00 \\(1 times of the frequ"),
        (replace(5, "2024-03-01 04:00,1"), "line 7: the time 2024-03-01 04:00:00 occurs twice, first in line 6"),
        (replace(5, "2024-03-01 03:00,1"), "line 7: times must increase, but 2024-03-01 03:00:00 follows .* in line 6"),
        (replace(5, "2024-03-01 04:30,1"), "line 7: the times are irregular: 2024-03-01 04:30:00 follows .* 01:00:00;"),
        (replace(5, "2024-03-91 05:00,1"), "line 7: column 'time' has '2024-03-91 05:00', which is not a time like"),
        (replace(5, ",1"), "line 7: column 'time' has no time"),
        (replace(5, "2024-03-01 05:00"), "line 7: there is 1 value, but the first line names 2 columns$"),
        (replace(5, "2024-03-01 05:00,1,2"), "line 7: there are 3 values, but the first line names 2 columns$"),
        (["time,load", *HOURS, "2024-03-"], "line 26: there is 1 value, .* it is the last line: the file may"),
        (["time,load", *HOURS, '"2024-03-'], "line 26: a quotation mark is never closed: the file may have been cut"),
        (b"time,load\n2024-03-01,\xf6\n", "line 2: the byte 0xf6 is not UTF-8"),
        (bytes(range(256)), "this is binary data, not a text"),
        (b"time,load\n2024-03-01,1\x07\n", "line 2: this is not text: it has the character '\\\\x07'"),
        (b"PK\x03\x04 workbook", "this is a zip archive or an Excel workbook: save the table as CSV"),
        (b"\x1f\x8b\x08", "this is compressed: unpack it first"),
        (b"PAR1 nothing else", "this Parquet file is damaged or was cut short"),
        (["time,load", "2024-03-01 00:07,1", "2024-03-01 00:19,2", "2024-03-01 02:00,3", "2024-03-01 02:59,4"],
         "line 3: the times are irregular: 2024-03-01 00:19:00 follows 2024-03-01 00:07:00, but most follow after"),
        (["time,load", "2024-03-01,", "2024-03-02,"], "column 'load' has no values"),
    ],
)  # fmt: skip
def test_errors_name_the_line_or_the_column(write, content, message, monkeypatch):
    monkeypatch.setattr(tables, "MOST_ROWS", 1_000_000)
    if isinstance(content, bytes) and content.startswith(b"PAR1"):
        pytest.importorskip("pyarrow")
    with pytest.raises(TableError, match=message):
        split_table(read_table(write(content)))


def test_a_constant_target_is_refused(write):
    table = read_table(write(["time,load", *(f"{line.split(',')[0]},7" for line in HOURS)]))
    with pytest.raises(TableError, match="load.csv: column 'load' is constant, all its values are 7"):
        check_targets_vary(table)
    check_targets_vary(read_table(write(["time,load", *HOURS])))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"targets": ["laod"]}, "there is no column 'laod' \\(target\\): .* did you mean 'load'\\?"),
        ({"targets": ["load"], "covariates": ["sun"]}, "there is no column 'sun' \\(covariates\\)"),
        ({"time": "when"}, "there is no column 'when' \\(time\\)"),
        ({"targets": []}, "targets must name at least one column"),
        ({"targets": ["load", "load"]}, "column 'load' is named twice as a target"),
        ({"targets": ["time"]}, "column 'time' is the time column or a covariate, and no target"),
        ({"targets": ["load"], "covariates": ["time"]}, "column 'time' is the time column, and no covariate"),
        ({"targets": ["warm"]}, "column 'warm' occurs 2 times"),
        ({"targets": ["load"], "encoding": "klingon"}, "there is no encoding 'klingon' for texts"),
        ({"targets": ["load"], "encoding": "unicode_escape"}, "there is no encoding 'unicode_escape' for texts"),
        ({"targets": ["load"], "time_format": "%"}, "there is no time format '%'"),
        (
            {"targets": ["load"], "time_format": "%Y"},
            "line 2: column 'time' has .*, which is not a time in the format %Y",
        ),
    ],
)
def test_columns_that_cannot_be_used_are_named(write, options, message):
    path = write(["time,load,warm,warm", *(f"{line},1,2" for line in HOURS)])
    with pytest.raises(TableError, match=message):
        read_table(path, **options)


def test_another_encoding_is_read_if_it_is_named(write):
    path = write("time,größe\n2024-03-01,1\n2024-03-02,2\n".encode("latin-1"))
    with pytest.raises(TableError, match="line 1: the byte 0xf6 is not UTF-8; give the encoding of the file"):
        read_table(path)
    assert read_table(path, encoding="latin-1").targets == ("größe",)


def test_missing_values_are_left_to_the_forecaster_and_covariates_are_filled(write):
    lines = [
        "time,load,warm",
        "2024-03-01,1,10",
        "2024-03-02,,",
        "2024-03-03,3,30",
        "2024-03-05,5,50",
        "2024-03-06,,60",
    ]
    table = read_table(write(lines), targets=["load"], covariates=["warm"])
    y, X = split_table(table, missing="interpolate")
    # the last row has no target: it is a step to forecast
    assert y.index[-1] == pd.Timestamp("2024-03-05")
    assert X["warm"].tolist() == [10, 20, 30, 40, 50, 60]
    assert split_table(table, missing="hold")[1]["warm"].tolist() == [10, 10, 30, 30, 50, 60]
    with pytest.raises(TableError, match="line 5: 2024-03-04 00:00:00 is missing before 2024-03-05"):
        split_table(table)


def test_rows_at_the_end_without_a_target_are_steps_to_forecast(write):
    lines = ["time,load,warm", *(f"{line},{i}" for i, line in enumerate(HOURS)), "2024-03-02 00:00,,24"]
    y, X = split_table(read_table(write(lines), targets=["load"], covariates=["warm"]))
    assert (len(y), len(X)) == (24, 25)


def test_only_regular_files_of_limited_size_are_read(write, tmp_path, monkeypatch):
    for path in (os.devnull, tmp_path, tmp_path / "missing"):
        with pytest.raises(TableError, match="cannot be read"):
            read_table(path)
    path = write(["time,load", *HOURS])
    monkeypatch.setattr(tables, "LARGEST_FILE", 100)
    with pytest.raises(TableError, match="cannot be read: it has .* bytes, but may have 100 at most"):
        read_table(path)
    monkeypatch.undo()
    monkeypatch.setattr(table_files, "MOST_ROWS", 20)
    with pytest.raises(TableError, match="the file has more than 20 rows"):
        read_table(path)


def test_lines_are_counted_as_an_editor_counts_them():
    columns = TextColumns("load.csv", 'time,"the\nload"\n\n2024-03-01,1\n2024-03-02,2\n')
    assert columns.names == ["time", "the\nload"]
    assert columns.select(["time"])[1].tolist() == [4, 5]


def test_a_parquet_file_repeats_a_text_without_taking_memory_for_each(tmp_path):
    pytest.importorskip("pyarrow")
    text = "x" * 1000
    pd.DataFrame({"time": pd.date_range("2024", periods=5000, freq="h"), "name": text}).to_parquet(tmp_path / "a")
    columns = table_files.read_columns("a", (tmp_path / "a").read_bytes(), None)
    values = columns.select(["name"])[0][0]
    assert len(values) == 5000
    assert len({id(value) for value in values}) == 1


def test_damaged_parquet_files_are_refused(write, tmp_path):
    pytest.importorskip("pyarrow")
    make_frame().to_parquet(tmp_path / "a")
    whole = (tmp_path / "a").read_bytes()
    for damaged in (whole[:-1], whole[: len(whole) // 2], whole[:4] + bytes(200) + whole[204:]):
        with pytest.raises(TableError, match="this Parquet file is damaged or was cut short"):
            read_table(write(damaged, "a"), targets=["load"])


def test_columns_of_other_types_are_refused(tmp_path):
    pytest.importorskip("pyarrow")
    frame = make_frame()
    frame["many"] = [[1, 2]] * len(frame)
    frame.to_parquet(tmp_path / "a")
    with pytest.raises(TableError, match="column 'many' has values of the type list<"):
        read_table(tmp_path / "a", targets=["many"])
    frame["when"] = frame.index
    frame.to_parquet(tmp_path / "a")
    with pytest.raises(TableError, match="column 'when' has times, expected numbers"):
        read_table(tmp_path / "a", time="time", targets=["when"])
