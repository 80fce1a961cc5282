"""Tables at the door: every format gives the same table, every fault one clear line."""

import gzip

import pandas as pd
import polars as pl
import pytest

from forecaster.errors import DataError
from forecaster.panel.read import read_table, to_kind


def refused(source, *parts):
    with pytest.raises(DataError) as caught:
        read_table(source)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, message


def test_a_missing_file_is_named_with_the_nearest_there_is(tmp_path):
    (tmp_path / "sales.csv").write_text("a\n1\n")
    refused(tmp_path / "sale.csv", "no such file", str(tmp_path), "did you mean 'sales.csv'?")


def test_empty_headed_binary_and_folder_sources_are_refused(tmp_path):
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "head.csv").write_text("a,b\n")
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "bad.parquet").write_text("a\n1\n")
    refused(tmp_path / "empty.csv", "found an empty file")
    refused(tmp_path / "head.csv", "found the columns a, b and no rows")
    refused(tmp_path / "binary.csv", "cannot be read")
    refused(tmp_path / "bad.parquet", "cannot be read")
    refused(tmp_path, "expected a file, found a folder")
    refused(str(tmp_path / "*.txt"), "no file matches")
    refused(3, "expected a path or a pandas, polars or pyarrow frame, found int")


def test_header_blanks_go_and_repeated_names_are_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("date, load ,OT\n2024-01-01,1,2\n")
    assert read_table(path).frame.columns == ["date", "load", "OT"]
    path.write_text("date,y, y\n2024-01-01,1,2\n")
    refused(path, "'y' 2 times")


def test_numbers_are_decided_over_the_whole_column(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("y,z,name\n" + "1,1,a\n" * 5000 + "2.5,NA,b\n")
    frame = read_table(path).frame
    assert frame.dtypes == [pl.Float64, pl.Float64, pl.String]
    assert frame["y"][-1] == 2.5 and frame["z"][-1] is None


def test_ids_keep_their_leading_zeros(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("item,y\n007,1\n012,2\n")
    assert read_table(path).frame["item"].to_list() == ["007", "012"]


def test_gzip_tabs_semicolons_and_globs_are_read(tmp_path):
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write("a,b\n1,2\n")
    (tmp_path / "a.tsv").write_text("a\tb\n1\t2\n")
    (tmp_path / "part-2.csv").write_text("a;b\n3;4.5\n")
    (tmp_path / "part-1.csv").write_text("a;b\n1;2\n")
    expected = pl.DataFrame({"a": [1], "b": [2]})
    assert read_table(tmp_path / "a.csv.gz").frame.equals(expected)
    assert read_table(tmp_path / "a.tsv").frame.equals(expected)
    table = read_table(tmp_path / "part-*.csv")
    assert table.frame.rows() == [(1, 2.0), (3, 4.5)]
    (tmp_path / "part-3.csv").write_text("a;c\n3;4.5\n")
    refused(tmp_path / "part-*.csv", "part-3.csv", "found a difference in b, c")


def test_a_pandas_index_of_dates_or_names_becomes_columns():
    days = pd.date_range("2024-01-01", periods=2)
    assert read_table(pd.DataFrame({"y": [1, 2]}, index=days)).frame.columns == ["time", "y"]
    named = pd.DataFrame({"y": [1, 2]}, index=pd.Index([5, 6], name="store"))
    assert read_table(named).frame.columns == ["store", "y"]
    assert read_table(pd.DataFrame({"y": [1, 2]}, index=[4, 2])).frame.columns == ["y"]
    months = pd.DataFrame({"y": [1, 2]}, index=pd.period_range("2024-01", periods=2, freq="M"))
    assert read_table(months).frame["time"].dtype == pl.Datetime("us")


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_a_frame_comes_back_in_its_own_kind(kind):
    frame = pl.DataFrame({"a": ["x"], "b": [1.0]})
    own = {"pandas": frame.to_pandas(), "polars": frame, "pyarrow": frame.to_arrow()}[kind]
    table = read_table(own)
    assert table.kind == kind and table.frame.equals(frame)
    assert isinstance(to_kind(table.frame, kind), type(own))
