"""Layout rows: a table of whole series in rows is the long table of the same values."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import forecaster as fc
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


DAYS = [f"1/{day}/20" for day in range(22, 31)]
PLACES = pl.DataFrame(
    {"State": ["", "A", "B", ""], "Country": ["x", "y", "y", "z"], "Lat": [1.5, 2.5, 3.5, 4.5]}
).with_columns(pl.Series(day, [k, k + 1, k + 2, 9 - k]) for k, day in enumerate(DAYS))


def test_columns_called_by_dates_are_the_times_and_all_others_keys_or_statics(tmp_path):
    PLACES.with_columns(State=pl.col("State").replace("", None)).write_csv(tmp_path / "a.csv")
    panel = open_panel(tmp_path / "a.csv", DataConfig())
    schema = panel.schema
    assert (schema.time, schema.series, schema.static) == ("time", ("State", "Country"), ("Lat",))
    assert (schema.layout, panel.calendar.freq) == ("rows", "1d")
    assert panel.series_names == ["/x", "/z", "A/y", "B/y"]
    assert panel.static[:, 0].tolist() == [1.5, 4.5, 2.5, 3.5]
    assert panel.values[:9, 0].tolist() == [*range(9)]
    (note,) = (note for note in panel.notes if note.rule == "layout")
    assert note.text == "the names of 9 columns are dates: each row is a series (layout rows)"
    declared = open_panel(tmp_path / "a.csv", ROWS)
    np.testing.assert_equal(arrays(declared), arrays(panel))
    again = open_panel(PLACES[:, [2, 0, 1, *range(3, 6)]], DataConfig(), schema=schema)
    assert again.series_names == panel.series_names and again.n_rows == 12


def test_dates_and_empty_keys_come_back_as_the_header_has_them(tmp_path):
    PLACES.write_csv(tmp_path / "a.csv")
    forecast = fc.predict(tmp_path / "a.csv", 2)
    rows = forecast.panel.as_text(forecast.frame)
    assert rows["time"].unique().sort().to_list() == ["1/31/20", "2/1/20"]
    assert rows["State"].to_list() == ["", "", "", "", "A", "A", "B", "B"]


@pytest.mark.parametrize(
    ("names", "freq"),
    [
        ([str(year) for year in range(1960, 1975)], "1y"),
        ([f"{month}/1/2020" for month in range(1, 13)], "1mo"),
        ([f"2020{month:02d}" for month in range(1, 10)], "1mo"),
        ([f"{year} Q{part}" for year in (2020, 2021) for part in (1, 2, 3, 4)], "1q"),
    ],
)
def test_years_months_and_quarters_are_times_too(tmp_path, names, freq):
    frame = pl.DataFrame({"shop": [7, 8], "PM10": [0.5, 1.5]})
    frame = frame.with_columns(pl.lit(k).alias(name) for k, name in enumerate(names))
    frame.write_csv(tmp_path / "a.csv")
    data = DataConfig(time_format="%m/%d/%Y") if "/" in names[0] else DataConfig()
    panel = open_panel(tmp_path / "a.csv", data)
    assert (panel.calendar.freq, panel.schema.series, panel.schema.static) == (
        freq,
        ("shop",),
        ("PM10",),
    )
    assert panel.n_rows == 2 * len(names)


def test_a_table_with_times_or_with_few_or_falling_dates_as_names_is_not_taken_for_rows():
    dated = PLACES.with_columns(day=pl.date(2020, 1, 1) + pl.duration(days=pl.int_range(pl.len())))
    assert open_panel(dated, DataConfig()).schema.layout != "rows"
    for odd in (PLACES[:, :10], PLACES.select(*PLACES.columns[:3], *DAYS[::-1])):
        with pytest.raises(DataError, match="no time column found"):
            open_panel(odd, DataConfig())
        panel = open_panel(odd, DataConfig(layout="rows", static=("Lat",)))
        assert panel.schema.time == "time" and panel.n_rows == 4 * (odd.width - 3)


def test_one_empty_key_alone_stays_a_fault():
    refused(PLACES.with_columns(Country=None, State=pl.Series(["a", "b", "c", None])), "in every row")


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
