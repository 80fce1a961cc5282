"""Tables at the door: every format gives the same table, every fault one clear line."""

import polars as pl
import pytest

from forecaster.errors import DataError
from forecaster.panel.frames import read_table, to_kind


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


def test_empty_headed_and_binary_sources_are_refused(tmp_path):
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "head.csv").write_text("a,b\n")
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "bad.parquet").write_text("a\n1\n")
    refused(tmp_path / "empty.csv", "found an empty file")
    refused(tmp_path / "head.csv", "found the columns a, b and no rows")
    refused(tmp_path / "binary.csv", "cannot be read")
    refused(tmp_path / "bad.parquet", "cannot be read")
    refused(str(tmp_path / "*.txt"), "no file matches")
    refused(3, "expected a path or a pandas, polars or pyarrow frame, found int")


def test_header_blanks_go_and_repeated_names_are_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("date, load ,OT\n2024-01-01,1,2\n")
    assert read_table(path).frame.columns == ["date", "load", "OT"]
    path.write_text("date,y, y\n2024-01-01,1,2\n")
    refused(path, "'y' 2 times")


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_a_frame_comes_back_in_its_own_kind(kind):
    frame = pl.DataFrame({"a": ["x"], "b": [1.0]})
    own = {"pandas": frame.to_pandas(), "polars": frame, "pyarrow": frame.to_arrow()}[kind]
    table = read_table(own)
    assert table.kind == kind and table.frame.equals(frame)
    assert isinstance(to_kind(table.frame, kind), type(own))
