"""The door of series: tables of every kind come in, and errors name the argument, the time and the column."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from cwrnn.estimators.series import check_varies, continue_series, read_covariates, read_series
from cwrnn.estimators.time_axis import SeriesError, TimeAxis, read_axis


def hourly(values, start="2024-03-01", name="load", frequency="h"):
    return pd.Series(values, pd.date_range(start, periods=len(values), freq=frequency), name=name)


def refuse(message, function, *arguments, **options):
    with pytest.raises(SeriesError, match=re.escape(message)) as raised:
        function(*arguments, **options)
    return raised.value


@pytest.mark.parametrize("frequency", ["h", "30min", "D", "B", "W-SUN", "MS", "ME", "QS-OCT", "YS-JAN", "s", "5D"])
def test_frequencies_are_inferred(frequency):
    index = pd.DatetimeIndex(pd.date_range("2024-03-01", periods=12, freq=frequency).tolist())
    assert index.freq is None
    table = read_series(pd.Series(np.arange(12.0), index))
    # pandas 3 has another name for the same quarters
    assert table.axis.frequency in (frequency, "QS-JAN")
    assert table.values.shape == (12, 1)
    assert table.axis.index(12, 3).equals(pd.date_range(index[-1], periods=4, freq=frequency)[1:])
    assert table.axis.label(11) == index[-1]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC", "UTC+01:00"])
@pytest.mark.parametrize("frequency", ["h", "D"])
def test_time_zones_keep_their_hours_when_clocks_change(zone, frequency):
    index = pd.date_range("2024-03-25", periods=300, freq=frequency, tz=zone)
    axis = read_axis(pd.DatetimeIndex(index.tolist()), "y")
    assert axis.frequency == frequency
    pd.testing.assert_index_equal(axis.index(7, 293), index[7:])
    assert axis.locate(index[7:], 7).tolist() == list(range(7, 300))
    again = TimeAxis.from_dict(axis.to_dict())
    pd.testing.assert_index_equal(again.index(0, 300), index)


UNITS = ["s", "ms", "us", "ns"]


# pandas 2 makes times in nanoseconds, pandas 3 in microseconds, and both read all of these units
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize("frequency", ["h", "D", "MS"])
def test_times_keep_their_unit(frequency, zone, unit):
    index = pd.date_range("2024-03-25", periods=40, freq=frequency, tz=zone, unit=unit)
    axis = read_axis(pd.DatetimeIndex(index[:30], freq=None), "y")
    for same in (axis, TimeAxis.from_dict(json.loads(json.dumps(axis.to_dict())))):
        pd.testing.assert_index_equal(same.index(30, 10), index[30:])
        for other in UNITS:
            assert same.locate(index[20:].as_unit(other), 20).tolist() == list(range(20, 40))


def test_a_frequency_finer_than_the_unit_is_refused():
    axis = TimeAxis("dates", "ms", pd.Timestamp("2024-03-01").as_unit("ms")).to_dict()
    assert TimeAxis.from_dict(axis).label(2) == pd.Timestamp("2024-03-01 00:00:00.002")
    with pytest.raises(ValueError, match="there is no time axis of"):
        TimeAxis.from_dict({**axis, "first": "2024-03-01T00:00:00"})


def test_periods_and_numbers():
    months = read_series(pd.Series(np.arange(5.0), pd.period_range("2024-01", periods=5, freq="M", name="month")))
    pd.testing.assert_index_equal(
        months.axis.index(5, 2), pd.period_range("2024-06", periods=2, freq="M", name="month")
    )
    assert months.axis.calendar == "ME"
    double = read_series(pd.Series(np.arange(5.0), pd.period_range("2024-01-01", periods=5, freq="2h")))
    pd.testing.assert_index_equal(double.axis.index(5, 2), pd.period_range("2024-01-01 10:00", periods=2, freq="2h"))
    assert double.axis.locate(double.index, 0).tolist() == [0, 1, 2, 3, 4]
    rows = read_series(pd.Series(np.arange(4.0), pd.RangeIndex(10, 18, 2)))
    pd.testing.assert_index_equal(rows.axis.index(4, 2), pd.RangeIndex(18, 22, 2))
    assert rows.axis.calendar is None
    pd.testing.assert_index_equal(read_series([1.0, 2.0]).axis.index(2, 2), pd.RangeIndex(2, 4))
    for axis in (months.axis, double.axis, rows.axis):
        assert TimeAxis.from_dict(axis.to_dict()) == axis


def test_tables_and_arrays():
    frame = pd.DataFrame({"load": [1, 2, 3], "price": [0.5, 1.5, 2.5]}, pd.date_range("2024", periods=3, freq="D"))
    table = read_series(frame)
    assert table.columns == ("load", "price")
    assert table.is_frame
    assert table.values.tolist() == [[1, 0.5], [2, 1.5], [3, 2.5]]
    assert not read_series(frame["load"]).is_frame
    assert not read_series([1, 2, 3]).is_frame
    assert read_series(np.ones((3, 2))).columns == (0, 1)


def test_text_in_a_column_of_numbers_is_named():
    values = hourly(["1", "2.5", "n/a", "x"])
    error = refuse(
        "y: column 'load' has 'n/a' at 2024-03-01 02:00:00 (row 2), which is not a number", read_series, values
    )
    assert (error.row, error.column) == (2, "load")
    assert read_series(hourly(["1", "2.5"])).values.ravel().tolist() == [1, 2.5]
    refuse("has '\\x1b[31m' at", read_series, hourly(["1", "\x1b[31m"]))
    refuse("must be numbers, got datetime64", read_series, hourly(pd.to_datetime(["2024", "2025"])))
    refuse("must be numbers, got complex128", read_series, hourly(np.array([1j, 2])))


def test_infinity_is_named():
    error = refuse("y: column 'load' is infinite at 2024-03-01 01:00:00 (row 1)", read_series, hourly([1, np.inf, 2]))
    assert (error.row, error.column) == (1, "load")
    refuse("column 0 is infinite at step 1", read_series, [1, -np.inf])
    refuse("column 0 is -1e+200, beyond 1e+100, at step 1 (row 1)", read_series, [1, -1e200])


def test_times_that_occur_twice_or_go_backwards_are_named():
    index = pd.to_datetime(["2024-03-01", "2024-03-02", "2024-03-02", "2024-03-03"])
    error = refuse(
        "the time 2024-03-02 00:00:00 occurs twice, in rows 1 and 2", read_series, pd.Series(range(4), index)
    )
    assert error.row == 2
    index = pd.to_datetime(["2024-03-01", "2024-03-03", "2024-03-02"])
    refuse("but 2024-03-02 00:00:00 in row 2 follows 2024-03-03 00:00:00", read_series, pd.Series(range(3), index))
    refuse("row 1 has no time", read_series, pd.Series([1.0, 2.0], pd.to_datetime(["2024-03-01", None])))
    refuse("the index must be a DatetimeIndex", read_series, pd.Series([1.0, 2.0], ["2024-03-01", "2024-03-02"]))
    refuse("but step 1 in row 2 follows step 3", read_series, pd.Series([1.0, 2.0, 3.0], [2, 3, 1]))


def test_irregular_times_are_named():
    times = list(pd.date_range("2024-03-01", periods=50, freq="h"))
    times[30] += pd.Timedelta("7min")
    error = refuse(
        "irregular: 2024-03-02 06:07:00 in row 30", read_series, pd.Series(range(50), pd.DatetimeIndex(times))
    )
    assert error.row == 30
    walk = pd.Timestamp("2024") + pd.to_timedelta(np.random.default_rng(0).integers(1, 1000, 40).cumsum(), "s")
    refuse("the times are irregular", read_series, pd.Series(range(40), pd.DatetimeIndex(walk)))


@pytest.mark.parametrize("frequency", ["h", "MS", "B", "30min"])
def test_rows_that_are_missing_are_named_or_filled(frequency):
    index = pd.date_range("2024-03-01", periods=60, freq=frequency)
    kept = [i for i in range(60) if i not in (20, 21, 40)]
    y = pd.Series(np.arange(60.0), index, name="load").iloc[kept]
    error = refuse(f"{index[20]} is missing after {index[19]} in row 19 (3 times", read_series, y)
    assert error.row == 19
    table = read_series(y, missing="interpolate")
    np.testing.assert_allclose(table.values.ravel(), np.arange(60.0), rtol=0, atol=1e-12)
    assert np.flatnonzero(~table.observed.ravel()).tolist() == [20, 21, 40]
    pd.testing.assert_index_equal(table.index, index)
    held = read_series(y, missing="hold").values.ravel()
    assert held[19:23].tolist() == [19, 19, 19, 22]


def test_values_that_are_missing_are_named_or_filled():
    y = hourly([np.nan, 1.0, np.nan, 3.0, np.nan])
    error = refuse("column 'load' has no value at 2024-03-01 00:00:00 (3 of 5 are missing)", read_series, y)
    assert (error.row, error.column) == (0, "load")
    assert read_series(y, missing="interpolate").values.ravel().tolist() == [1, 1, 2, 3, 3]
    assert read_series(y, missing="hold").values.ravel().tolist() == [1, 1, 1, 3, 3]
    nullable = pd.Series([1, None, 3], y.index[:3], dtype="Int64")
    assert read_series(nullable, missing="hold").values.ravel().tolist() == [1, 1, 3]
    refuse("column 'load' has no values", read_series, hourly([np.nan] * 3), missing="hold")
    with pytest.raises(ValueError, match="missing must be one of 'error', 'interpolate', 'hold', got 'drop'"):
        read_series(y, missing="drop")


def test_constant_empty_and_shapeless_series_are_refused():
    refuse(
        "y: column 'load' is constant, all its values are 5: there is nothing",
        check_varies,
        read_series(hourly([5] * 4)),
    )
    refuse("y is empty: it has 0 rows", read_series, [])
    refuse("y is empty: it has 2 rows and 0 columns", read_series, pd.DataFrame(index=pd.date_range("2024", periods=2)))
    refuse("y must be (T,) or (T, channels), got shape (2, 2, 2)", read_series, np.zeros((2, 2, 2)))
    twice = pd.DataFrame(np.ones((2, 2)), columns=["a", "a"])
    refuse("column 'a' occurs twice", read_series, twice)
    for wrong in ("1, 2, 3", 7, None, {"a": 1}):
        with pytest.raises(TypeError, match="y must be a Series or DataFrame of pandas or an array"):
            read_series(wrong)


def test_series_are_continued_after_their_end():
    axis = read_axis(pd.date_range("2024-03-01", periods=10, freq="h"), "y")
    before = np.array([9.0])

    def go_on(y, **options):
        return continue_series(y, axis, 10, ["load"], before, **options)

    table = go_on(hourly([1.0, 2.0], "2024-03-01 10:00"))
    assert (table.start, table.values.tolist()) == (10, [[1], [2]])
    assert go_on([1.0, 2.0]).index[0] == pd.Timestamp("2024-03-01 10:00")
    one = go_on(pd.Series([1.0], pd.DatetimeIndex(["2024-03-01 10:00"])))
    assert one.values.tolist() == [[1]]
    message = "y must begin at 2024-03-01 10:00:00, one step after the last observation, got 2024-03-01"
    refuse(message + " 09:00:00", go_on, hourly([1.0], "2024-03-01 09:00"))
    refuse(message + " 12:00:00", go_on, hourly([1.0], "2024-03-01 12:00"))
    filled = go_on(hourly([12.0, 13.0], "2024-03-01 12:00"), missing="interpolate")
    assert filled.values.ravel().tolist() == [10, 11, 12, 13]
    assert filled.observed.ravel().tolist() == [False, False, True, True]
    assert go_on([np.nan, 3.0, np.nan], missing="hold").values.ravel().tolist() == [9, 3, 3]
    assert go_on([np.nan], missing="interpolate").values.ravel().tolist() == [9]
    refuse("y must have the columns of fit, column 'load'; got column 'price'", go_on, hourly([1.0], name="price"))
    refuse("y: the index must be like that of the series", go_on, pd.Series([1.0], name="load"))
    refuse("lies between the steps", go_on, hourly([1.0, 2.0], "2024-03-01 10:30"), missing="hold")


def test_months_are_continued_at_any_cost_of_the_calendar():
    index = pd.date_range("2000-01-01", periods=100, freq="MS")
    axis = read_axis(index, "y")
    new = pd.Series([1.0, 2.0, 4.0], pd.to_datetime(["2008-05-01", "2008-06-01", "2008-08-01"]))
    table = continue_series(new, axis, 100, [0], np.zeros(1), missing="interpolate")
    assert table.values.ravel().tolist() == [1, 2, 3, 4]


def test_covariates_must_cover_the_steps():
    axis = read_axis(pd.date_range("2024-03-01", periods=10, freq="h"), "y")
    X = pd.DataFrame({"temperature": np.arange(8.0)}, pd.date_range("2024-03-01 08:00", periods=8, freq="h"))
    table = read_covariates(X, axis, 10, 4, ["temperature"])
    assert table.values.ravel().tolist() == [2, 3, 4, 5]
    assert read_covariates(np.ones((4, 1)), axis, 10, 4, ["temperature"]).values.shape == (4, 1)
    refuse(
        "X has no row for 2024-03-01 16:00:00; it must have one for each of the 7 steps from 2024-03-01 10:00:00 to",
        read_covariates, X, axis, 10, 7, None,
    )  # fmt: skip
    refuse("X must have 4 rows, one for each step, got 3", read_covariates, np.ones((3, 1)), axis, 10, 4, None)
    refuse(
        "X must have the columns of fit", read_covariates, X.rename(columns={"temperature": "rain"}), axis, 10, 4, ["t"]
    )
    X.iloc[3] = np.nan
    refuse("column 'temperature' has no value at 2024-03-01 11:00:00", read_covariates, X, axis, 10, 4, None)


@pytest.mark.parametrize(
    "values",
    [
        None,
        {},
        {"kind": "dates", "frequency": "h", "first": "never", "zone": None, "name": None},
        {"kind": "dates", "frequency": "h", "first": "NaT", "zone": None, "name": None},
        {"kind": "dates", "frequency": "-1h", "first": "2024-01-01", "zone": None, "name": None},
        {"kind": "dates", "frequency": "0h", "first": "2024-01-01", "zone": None, "name": None},
        {"kind": "dates", "frequency": "h", "first": "2024-01-01", "zone": "Moon/Tycho", "name": None},
        {"kind": "dates", "frequency": "h", "first": "2024-01-01", "zone": "../../etc/passwd", "name": None},
        {"kind": "dates", "frequency": 7, "first": "2024-01-01", "zone": None, "name": None},
        {"kind": "dates", "frequency": "h", "first": "2024-01-01", "zone": None, "name": []},
        {"kind": "periods", "frequency": "h", "first": "2024-01-01", "zone": None, "name": None},
        {"kind": "numbers", "frequency": 0, "first": 0, "zone": None, "name": None},
        {"kind": "numbers", "frequency": 1, "first": 0.5, "zone": None, "name": None},
        {"kind": "sundials", "frequency": 1, "first": 0, "zone": None, "name": None},
        {"kind": ["dates"], "frequency": 1, "first": 0, "zone": None, "name": None},
    ],
)
def test_a_description_of_times_that_means_nothing_is_refused(values):
    with pytest.raises(ValueError, match="time axis"):
        TimeAxis.from_dict(values)
