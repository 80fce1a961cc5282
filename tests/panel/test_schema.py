"""Roles of columns: declared ones hold, the others are found, each with its reason."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from panel_tables import same

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.build import build_panel, open_panel
from forecaster.panel.frames import read_table
from forecaster.panel.roles import infer_schema
from forecaster.panel.schema import Schema

DATASETS = Path(__file__).parents[2].parent / "shared" / "datasets"
real = pytest.mark.skipif(not DATASETS.is_dir(), reason="the real data sets are not here")

LONG = pl.DataFrame(
    {
        "store": ["a", "a", "a", "b", "b", "b"],
        "day": ["2024-01-01", "2024-01-02", "2024-01-03"] * 2,
        "size": [3, 3, 3, 5, 5, 5],
        "sales": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        "promo": [True, False, True, False, True, False],
        "kind": ["x"] * 3 + ["y"] * 3,
        "opened": ["2001-01-01"] * 6,
    }
)


def infer(frame, future=None, covariates=None, **declared):
    tables = [None if other is None else read_table(other) for other in (future, covariates)]
    return infer_schema(read_table(frame), DataConfig(**declared), *tables).schema


def refused(message, frame, **declared):
    with pytest.raises(DataError, match=message):
        infer(frame, **declared)


def test_roles_of_a_long_table_are_inferred():
    schema = infer(LONG)
    assert (schema.time, schema.series, schema.target) == ("day", ("store",), ("sales",))
    assert schema.static == ("size", "kind") and schema.past == ("promo",)
    assert schema.categorical == ("promo", "kind") and schema.known == ()
    assert schema.layout == "long" and schema.time_dtype == "datetime"
    assert schema.reasons["opened"].startswith("ignored: dates")
    assert ("opened", "ignored", "", schema.reasons["opened"]) in schema.rows()
    assert schema.rows()[0][:3] == ("day", "time", "datetime")
    assert schema.columns == ("sales",) and schema.code_columns == ("promo",)


def test_every_numeric_column_of_a_wide_table_is_a_channel_unless_one_is_named_target():
    wide = LONG.head(3).select("day", "sales", "size", "kind").rename({"kind": "sky", "sales": "sold"})
    assert infer(wide).target == ("sold", "size") and infer(wide).past == ("sky",)
    for name in ("value", "Sales"):
        named = wide.rename({"size": name})
        assert infer(named).target == (name,) and infer(named).past == ("sold", "sky")


def test_a_covariate_is_known_only_when_declared_or_given_in_the_future():
    future = pl.DataFrame({"store": ["a"], "day": ["2024-01-04"], "promo": [True], "sales": [None]})
    schema = infer(LONG, future=future)
    assert schema.known == ("promo",) and schema.target == ("sales",)
    assert infer(LONG, known=("size",)).known == ("size",)
    assert infer(LONG).known == ()


def test_two_key_columns_are_found_where_one_does_not_do():
    frame = pl.concat([LONG.with_columns(item=pl.lit(k)) for k in ("p", "q")])
    assert infer(frame).series == ("store", "item")


def test_a_single_series_keeps_its_own_id():
    assert infer(LONG.head(3)).series == ("store",)
    assert infer(LONG.head(3).rename({"store": "sky"})).series == ()


def test_declared_past_leaves_the_rest_ignored():
    schema = infer(LONG, past=("promo",), static=())
    assert schema.past == ("promo",) and schema.static == ()
    assert schema.reasons["size"] == "ignored: the past covariates are declared"


def test_integer_columns_are_time_only_by_name():
    frame = pl.DataFrame({"year": [2020, 2021, 2022], "n": [1, 2, 3]})
    assert infer(frame).time == "year" and infer(frame).time_format == "%Y"
    assert infer(frame.rename({"year": "step"})).time_dtype == "integer"
    refused("no time column found", frame.rename({"year": "count"}))


def test_texts_with_many_values_are_ignored_with_the_count():
    frame = pl.DataFrame(
        {
            "day": pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 12, 31), eager=True),
            "y": 1.0,
            "note": [str(k) + "x" for k in range(366)],
        }
    )
    reason = infer(frame).reasons["note"]
    assert reason == "ignored: 366 different texts, more than 100"


def test_a_schema_survives_json_and_old_files_load():
    schema = build_panel(read_table(LONG), DataConfig()).schema
    stored = json.loads(json.dumps(schema.to_dict()))
    assert Schema.from_dict(stored) == schema
    early = {"time": "day", "target": ["y"], "freq": "1d"}
    assert Schema.from_dict(early | {"new_key": 3}) == Schema(time="day", target=("y",), freq="1d")


@real
@pytest.mark.parametrize(
    ("name", "declared", "freq", "roles"),
    [
        ("ETTh1", {}, "1h", {"target": ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")}),
        (
            "vic_electricity",
            {"target": ("Demand",), "known": ("Temperature", "Holiday")},
            "30min",
            {"time": "Time", "time_zone": "UTC", "categorical": ("Holiday",), "past": ()},
        ),
        ("EPF-NP", {"known": ("Grid load forecast", "Wind power forecast")}, "1h", {"target": ("OT",)}),
        (
            "EPF-DE",
            {"known": ("Wind power forecast", "Ampirion zonal load forecast")},
            "1h",
            {"target": ("OT",), "past": ()},
        ),
        (
            "bike_sharing",
            {"target": ("users",)},
            "1h",
            {"categorical": ("weather",), "series": ()},
        ),
        ("bdg2_hourly", {}, "1h", {"target": ("building_1", "building_2")}),
        ("multi_series", {}, "1d", {"series": ("series_id",), "target": ("value",)}),
    ],
)
def test_real_tables_are_understood(name, declared, freq, roles):
    panel = open_panel(DATASETS / f"{name}.csv", DataConfig(**declared))
    assert panel.calendar.freq == freq and panel.regular
    assert {role: getattr(panel.schema, role) for role in roles} == roles


def test_whole_numbers_that_look_like_codes_are_categories_unless_declared_otherwise():
    days = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 4, 29), eager=True)
    frame = pl.DataFrame({"date": days, "y": np.arange(120.0)}).with_columns(
        weekday=days.dt.weekday(),
        twelve=pl.Series(np.arange(120) % 12),
        thirteen=pl.Series(np.arange(120) % 13),
        halves=pl.Series(np.arange(120) % 3 / 2),
        price=pl.Series(np.arange(120) % 3 + 4),
        holes=pl.Series(np.arange(120) % 3 * 2),
    )
    data = {"target": ("y",), "known": ("weekday", "twelve", "thirteen", "halves", "price", "holes")}
    panel = open_panel(frame, DataConfig(**data))
    assert panel.schema.categorical == ("weekday", "twelve")
    assert panel.schema.reasons["weekday"] == "declared; looks like codes"
    # A gap makes integers of a pandas frame floats: to a model 7.0 and 7 are one category.
    floats = frame.with_columns(pl.col("weekday", "twelve").cast(pl.Float64))
    assert same(panel, open_panel(floats, DataConfig(), schema=panel.schema))
    assert infer(floats, **data).categorical == ()
    assert panel.schema.categories["weekday"] == tuple("1234567")
    assert open_panel(frame, DataConfig(**data, categorical=())).schema.categorical == ()
    # Ten rows of each are asked for on average: 119 are too few for twelve numbers.
    assert infer(frame[:119], **data).categorical == ("weekday",)
    declared = open_panel(frame, DataConfig(**data, categorical=("halves",)))
    assert declared.schema.categories == {"halves": ("0", "0.5", "1")}
    with pytest.raises(DataError, match=r"--categorical y: expected a covariate, found another role"):
        infer(frame, **data, categorical=("y",))


def test_whole_numbers_of_static_columns_are_judged_by_series():
    series = pl.DataFrame({"id": [f"s{k:02}" for k in range(40)]}).with_row_index("k")
    days = pl.DataFrame({"day": pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 1, 5), eager=True)})
    frame = series.join(days, how="cross").with_columns(y=pl.col("k") + pl.col("day").dt.day() / 2)
    frame = frame.with_columns(four=pl.col("k") % 4, five=pl.col("k") % 5).drop("k")
    assert infer(frame, target=("y",)).static_category == ("four",)
    assert infer(frame, target=("y",)).static_numeric == ("five",)


def test_a_few_repeated_rows_are_reported_and_not_hidden_by_a_further_key():
    wet = LONG.with_columns(mood=pl.Series(["a", "b", "a", "b", "a", "b"]))
    repeated = pl.concat([wet, wet[1:2].with_columns(sales=9.0, mood=pl.lit("c"))])
    assert infer(repeated).series == ("store",)
    with pytest.raises(DataError, match="found 2 that disagree at 2024-01-02 in series 'a'"):
        open_panel(repeated, DataConfig())
    two_keys = pl.concat([wet.with_columns(item=pl.lit(item)) for item in ("x", "y")])
    assert infer(pl.concat([two_keys, two_keys[4:5]])).series == ("store", "item")
    days = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 8, 1), eager=True)
    single = pl.DataFrame({"day": days, "y": np.arange(len(days), dtype=float)})
    single = single.with_columns(mood=pl.Series(["good", "bad"] * len(days))[: len(days)])
    assert infer(pl.concat([single, single[7:8].with_columns(mood=pl.lit("so"))])).series == ()
