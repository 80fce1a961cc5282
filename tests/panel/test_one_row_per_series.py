"""Layout rows: a table of whole series in rows is the long table of the same values."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from forecaster.config import DataConfig
from forecaster.errors import ConfigError, DataError
from forecaster.panel.build import open_panel
from forecaster.panel.panel import Panel

ROWS = DataConfig(layout="rows")
M4 = """"V1","V2","V3","V4","V5","V6"
"H1","5","6","7","8","9"
"H2","1","","3","",""
"H3","4.5","NA",5,,
"""


def arrays(panel: Panel):
    return panel.series_names, panel.indptr.tolist(), panel.time.tolist(), panel.values.ravel().tolist()


def refused(source, *parts, **data):
    with pytest.raises(DataError) as caught:
        open_panel(source, DataConfig(layout="rows", **data))
    for part in parts:
        assert part in str(caught.value), str(caught.value)


@pytest.fixture
def m4(tmp_path):
    path = tmp_path / "m4.csv"
    path.write_text(M4)
    return path


def test_a_file_of_rows_is_the_long_table_with_rows_numbered_to_0(m4):
    panel = open_panel(m4, ROWS)
    assert panel.series_names == ["H1", "H2", "H3"]
    assert panel.time.tolist() == [-4, -3, -2, -1, 0, -2, -1, 0, -2, -1, 0]
    np.testing.assert_array_equal(panel.values[:, 0], [5, 6, 7, 8, 9, 1, np.nan, 3, 4.5, np.nan, 5])
    schema = panel.schema
    assert (schema.series, schema.target, schema.layout) == (("V1",), ("value",), "rows")
    assert schema.time is None and panel.calendar.freq == "1i"


def test_rows_may_end_without_delimiters_for_what_they_lack(tmp_path):
    (tmp_path / "ragged.csv").write_text("id,1,2,3\na,1,2,3\nb,4\n")
    assert open_panel(tmp_path / "ragged.csv", ROWS).values[:, 0].tolist() == [1, 2, 3, 4]


def test_a_model_of_rows_reads_rows_without_a_flag_and_long_tables_too(m4, tmp_path):
    first = open_panel(m4, ROWS)
    again = open_panel(m4, DataConfig(), schema=first.schema)
    np.testing.assert_equal(arrays(again), arrays(first))
    long = first.keys[np.repeat([0, 1, 2], np.diff(first.indptr))].with_columns(
        value=pl.Series(first.values[:, 0]).fill_nan(None)
    )
    np.testing.assert_equal(arrays(open_panel(long, ROWS, schema=first.schema)), arrays(first))
    renamed = tmp_path / "renamed.csv"
    renamed.write_text(M4.replace('"V1"', '"key"'))
    schema = first.schema.renamed(DataConfig(series=("key",)))
    assert open_panel(renamed, ROWS, schema=schema).series_names == first.series_names


def test_all_text_at_the_front_names_the_series_or_is_static():
    frame = pl.DataFrame({"id": ["a", "b"], "region": ["n", "s"], "d_1": [1, 2], "d_2": [3, 4]})
    schema = open_panel(frame, ROWS).schema
    assert (schema.series, schema.static) == (("id",), ("region",))
    crossed = pl.DataFrame({"id": ["a", "a", "b"], "region": ["n", "s", "s"], "V": [1, 2, 3]})
    assert open_panel(crossed, ROWS).series_names == ["a/n", "a/s", "b/s"]
    numbered = frame.with_columns(id=pl.Series([1, 2])).drop("region")
    assert open_panel(numbered, DataConfig(layout="rows", series=("id",))).series_names == ["1", "2"]
    sized = frame.with_columns(id=pl.Series(["a", "b"]), size=pl.Series([9, 8]))
    panel = open_panel(sized, DataConfig(layout="rows", static=("size",)))
    assert panel.static.tolist() == [[9], [8]] and panel.n_rows == 4


def test_dates_in_the_header_are_the_times(tmp_path):
    frame = pl.DataFrame(
        {"page": ["a", "b"], "2024-01-01": [1, 2], "2024-01-02": [3, 4], "2024-01-03": [5, None]}
    )
    frame.write_csv(tmp_path / "pages.csv")
    panel = open_panel(tmp_path / "pages.csv", ROWS)
    assert panel.calendar.freq == "1d" and np.diff(panel.indptr).tolist() == [3, 2]
    assert panel.calendar.text(int(panel.time[2])) == "2024-01-03"
    again = open_panel(frame, DataConfig(), schema=panel.schema)
    np.testing.assert_equal(arrays(again), arrays(panel))


def test_the_values_have_the_name_of_the_declared_target(m4):
    assert open_panel(m4, DataConfig(layout="rows", target=("load",))).schema.target == ("load",)


def test_a_series_without_values_is_kept():
    frame = pl.DataFrame({"id": ["a", "b"], "x": [1, None], "y": [2, None]})
    assert open_panel(frame, ROWS).series_names == ["a", "b"]


def test_what_is_no_table_of_rows_is_refused():
    frame = pd.DataFrame({"id": ["a", "b"], "V1": ["1", "x"], "V2": [1, 2]})
    refused(
        pl.DataFrame({"id": ["a", "b"], "V1": [1, 2], "V2": ["1", "x"]}),
        "column 'V2': expected numbers, found 'x' in row 2 (1 such rows)",
        "--static",
    )
    refused(
        pl.DataFrame({"V1": [1, 2]}),
        "layout rows expects text that names the series",
        "--series COLUMN",
    )
    refused(pl.DataFrame({"id": ["a"]}), "found no values")
    refused(
        pl.DataFrame({"id": ["a", "b", "a"], "V1": [1, 2, 3]}),
        "expected one row per series, found 'a' in row 1 and row 3",
    )
    with pytest.raises(ConfigError, match="--time day: layout rows has no column of times"):
        open_panel(frame, DataConfig(layout="rows", time="day"))


def test_a_table_of_rows_without_the_flag_is_refused_with_the_flag(m4):
    with pytest.raises(DataError, match="or --layout rows where every row is a whole series"):
        open_panel(m4, DataConfig())
    with pytest.raises(DataError) as caught:
        open_panel(pl.DataFrame({"shop": ["a", "b"], "y": [1, 2]}), DataConfig())
    assert "--layout" not in str(caught.value)
