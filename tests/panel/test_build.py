"""From tables to panels: the same rows give the same panel, faults are named."""

import numpy as np
import polars as pl
from panel_tables import TWO, days, refused, same, table

from forecaster.config import DataConfig
from forecaster.panel.build import open_panel


def test_whole_numbers_up_to_two_to_the_53_keep_their_value(tmp_path):
    numbers = [2**53, 2**53 - 1, 2**24 + 1, -(2**53)]
    frame = pl.DataFrame({"day": days(0, 1, 2, 3), "y": numbers, "x": numbers[::-1]})
    frame.write_csv(tmp_path / "table.csv")
    for source in (frame, frame.to_pandas(), tmp_path / "table.csv"):
        panel = open_panel(source, DataConfig(target=("y",)))
        assert panel.values.tolist() == [
            list(pair) for pair in zip(numbers, numbers[::-1], strict=True)
        ]


def test_irregular_stamps_stay_as_they_are():
    frame = pl.DataFrame(
        {
            "time": ["2024-01-01 00:00", "2024-01-01 01:00", "2024-01-01 02:00", "2024-01-01 02:20"],
            "y": [1.0, 2, 3, 4],
        }
    )
    panel = open_panel(frame, DataConfig())
    assert not panel.regular and panel.n_rows == 4 and panel.calendar.freq == "1h"
    longer = panel.reaching(panel.time[-1:], 2)
    assert panel.calendar.text(longer.time[-1]) == "2024-01-01 04:20"
    assert panel.reaching(panel.time[1:2], 2) is panel


def test_wide_and_melted_tables_hold_the_same_numbers():
    wide = pl.DataFrame({"day": days(0, 1, 3), "u": [1.0, 2, 3], "v": [4.0, 5, 6]})
    one = open_panel(wide, DataConfig())
    melted = open_panel(wide, DataConfig(layout="long"))
    long = wide.unpivot(index="day", variable_name="id", value_name="value")
    assert one.schema.target == ("u", "v") and melted.series_names == ["u", "v"]
    np.testing.assert_array_equal(melted.values.reshape(2, 4).T, one.values)
    np.testing.assert_array_equal(open_panel(long, DataConfig()).values, melted.values)
    named = wide.rename({"u": "value"})
    data = DataConfig(layout="long", target=("value", "v"))
    assert open_panel(named, data).series_names == ["v", "value"]
    refused(
        "'value' is a covariate; rename it",
        named.with_columns(z=pl.lit(1.0)),
        DataConfig(layout="long", target=("v", "z"), past=("value",)),
    )
    again = open_panel(wide, DataConfig(), schema=melted.schema)
    assert same(again, melted) and again.schema == melted.schema
    rows = melted.frame(np.array([1]), melted.time[:1], channel=[0], forecast=[2.0])
    assert rows.columns == ["channel", "day", "forecast"] and rows["channel"][0] == "v"


def test_rows_without_times_end_at_zero():
    frame = pl.DataFrame({"id": ["b", "a", "b", "a", "b"], "y": [1.0, 2, 3, 4, None]})
    panel = open_panel(frame, DataConfig(time="row", target=("y",)))
    assert panel.schema.series == ("id",) and panel.calendar.freq == "1i"
    assert list(panel.time) == [-1, 0, -1, 0, 1] and panel.schema.time is None
    assert panel.frame(np.array([0]), np.array([1])).columns == ["id", "time"]


def test_leading_rows_without_a_target_go_and_series_without_any_stay():
    panel = open_panel(table(a={0: None, 1: None, 2: 1, 3: 2}, b={0: None, 1: None}), DataConfig())
    assert list(np.diff(panel.indptr)) == [2, 2]
    assert list(panel.last_observed) == [1, -1] and list(panel.first_observed) == [0, -1]


def test_covariates_and_future_rows_join_by_key_and_time():
    shared = pl.DataFrame({"day": days(*range(8)), "heat": [float(k) for k in range(8)]})
    sites = pl.DataFrame({"id": ["a", "b"], "size": [10, 20]})
    data = DataConfig(known=("heat",))
    panel = open_panel(TWO, data, covariates=shared)
    assert list(np.diff(panel.indptr)) == [6, 8]
    heat = panel.schema.columns.index("heat")
    np.testing.assert_array_equal(panel.values[:, heat], [2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7])
    assert panel.static.shape == (2, 0)
    assert open_panel(TWO, DataConfig(), covariates=sites).static.tolist() == [[10], [20]]

    future = pl.DataFrame(
        {"id": ["a", "a", "c"], "day": days(4, 5, 5), "x": [4.0, -5, 0], "y": [0.0] * 3}
    )
    panel = open_panel(TWO, DataConfig(), future=future)
    assert panel.schema.known == ("x",) and list(np.diff(panel.indptr)) == [4, 6]
    x = panel.schema.columns.index("x")
    assert panel.values[:4, x].tolist() == [2, 3, 4, -5] and np.isnan(panel.values[3, 0])
    assert list(panel.last_observed) == [2, 9]
    refused("none of its 1 rows is of a series", TWO, future=future[2:])


def test_a_model_schema_reads_the_next_table_the_same_way():
    first = open_panel(TWO, DataConfig(known=("x",)))
    again = open_panel(TWO.with_columns(pl.col("day").str.to_date()), DataConfig(), schema=first.schema)
    np.testing.assert_array_equal(again.values, first.values)
    assert again.schema.time_dtype == "date" and first.schema.time_dtype == "string"
    new = table(z={0: 1, 1: 2}).with_columns(w=pl.Series(["even", "never"]))
    panel = open_panel(new, DataConfig(), schema=first.schema)
    assert panel.codes[:, 0].tolist() == [1, 0] and panel.series_names == ["z"]
    refused(
        "no column 'x' in it, a covariate of the model.*--covariates",
        TWO.drop("x"),
        schema=first.schema,
    )
    refused(r"no column 'y' \(a target\)", TWO.rename({"y": "yy"}), schema=first.schema)
    refused(
        "expected no time zone, found time zone UTC",
        TWO.with_columns(pl.col("day").str.to_datetime(time_zone="UTC")),
        schema=first.schema,
    )
