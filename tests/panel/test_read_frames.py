"""Frames of every library: the same table, an index that means something among its columns."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from forecaster.errors import DataError
from forecaster.panel.frames import read_table

DAYS = pd.date_range("2024-01-01", periods=3).as_unit("us")
TIMES = pl.Datetime("us")


def schema(source):
    return dict(read_table(source).frame.schema)


def refused(source, *parts):
    with pytest.raises(DataError) as caught:
        read_table(source)
    for part in parts:
        assert part in str(caught.value), str(caught.value)


def test_a_pandas_index_of_dates_names_or_levels_becomes_columns():
    assert schema(pd.DataFrame({"y": [1, 2, 3]}, index=DAYS)) == {"time": TIMES, "y": pl.Int64}
    named = pd.DataFrame({"y": [1, 2]}, index=pd.Index([5, 6], name="store"))
    assert read_table(named).frame.rows() == [(5, 1), (6, 2)]
    assert schema(pd.DataFrame({"y": [1, 2]}, index=[4, 2])) == {"y": pl.Int64}
    months = pd.DataFrame({"y": [1, 2]}, index=pd.period_range("2024-01", periods=2, freq="M"))
    assert read_table(months).frame["time"].to_list() == [
        dt.datetime(2024, 1, 1),
        dt.datetime(2024, 2, 1),
    ]
    for names in (["id", "ds"], [None, None]):
        levels = pd.MultiIndex.from_arrays([["a", "a", "b"], DAYS], names=names)
        frame = read_table(pd.DataFrame({"y": [1, 2, 3]}, index=levels)).frame
        assert frame.columns == [names[0] or "level_0", names[1] or "time", "y"]
        assert frame[:, 0].to_list() == ["a", "a", "b"] and frame[:, 1].dtype == TIMES
    twice = pd.DataFrame({"ds": DAYS, "y": [1, 2, 3]}, index=pd.Index(DAYS, name="ds"))
    refused(twice, "found 'ds' as an index and as a column; drop one of them")


@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC", "America/New_York"])
def test_zones_of_pandas_times_are_kept(zone):
    frame = pd.DataFrame({"y": [1, 2, 3]}, index=DAYS.tz_localize(zone))
    times = read_table(frame).frame["time"]
    assert times.dtype == pl.Datetime("us", zone)
    assert times.dt.replace_time_zone(None).to_list() == list(DAYS.to_pydatetime())


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pd.array([1, None, 3], dtype="Int64"), pl.Int64),
        (pd.array([1, None, 3], dtype="Float64"), pl.Float64),
        (pd.array([True, None, False], dtype="boolean"), pl.Boolean),
        (pd.array(["a", None, "c"], dtype="string"), pl.String),
        (pd.array([1, None, 3], dtype="int64[pyarrow]"), pl.Int64),
        (pd.Categorical(["a", "b", None]), pl.Categorical),
        (pd.Categorical([1, 2, None]), pl.Int64),
        (pd.Categorical(DAYS), TIMES),
        (pd.arrays.SparseArray([0.0, 0.0, 1.0]), pl.Float64),
        ([Decimal("1.5")] * 3, pl.Decimal(2, 1)),
        ([dt.date(2024, 1, 1)] * 3, pl.Date),
        (pd.to_timedelta([1, 2, 3], unit="h").as_unit("us"), pl.Duration("us")),
        (pd.period_range("2024-01", periods=3, freq="M"), pl.Datetime),
    ],
)
def test_every_kind_of_pandas_column_is_read(values, kind):
    column = read_table(pd.DataFrame({"x": values})).frame["x"]
    assert column.dtype == kind
    assert column.is_null().to_list() == list(pd.isna(pd.Series(values)))


def test_columns_that_hold_no_values_are_named():
    refused(
        pd.DataFrame({"y": [1, 2], "x": [1, "a"]}),
        "expected one kind of value in a column",
        "Conversion failed for column x with type object",
    )
    refused(pd.DataFrame({"x": [1j, 2]}), "Conversion failed for column x with type complex128")
    refused(
        pd.DataFrame([[1, 2]], columns=["a", "a"]), "expected one column per name, found 'a' 2 times"
    )
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    refused(twice, "expected one column per name, found 'a' 2 times")
    refused(pd.DataFrame(), "the pandas frame: expected a header and rows, found nothing")
    for source in (3, None, {"a": [1]}, [1], np.zeros(3)):
        refused(source, f"polars or pyarrow frame, found {type(source).__name__}")


def test_a_series_is_a_frame_of_one_column():
    assert schema(pd.Series([1.0] * 3, index=DAYS, name="sales")) == {
        "time": TIMES,
        "sales": pl.Float64,
    }
    assert schema(pd.Series([1.0] * 3, index=DAYS)) == {"time": TIMES, "value": pl.Float64}
    assert schema(pl.Series([1.0])) == {"value": pl.Float64}


def test_frames_with_the_arrow_interface_are_read():
    frame = pl.DataFrame({"a": [1, 2], "b": ["x", None]})
    table = frame.to_arrow()
    for source in (frame, frame.lazy(), table, table.to_batches()[0], table.to_reader()):
        assert read_table(source).frame.equals(frame)
    coded = pa.table({"a": pa.array(["x", "y"]).dictionary_encode(), "n": pa.nulls(2)})
    assert schema(coded) == {"a": pl.Categorical, "n": pl.Null}
