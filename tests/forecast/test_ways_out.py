"""Every way out of a forecast has the same columns: a key that is constant, several columns of time, a channel."""

import numpy as np
import polars as pl
import pytest
from forecast import tiny

import forecaster as fc

DAY = tiny.plain(40).filter(pl.col("store") == "a").select("date", sales="sales")
HOURS = pl.DataFrame(
    {
        "date": np.repeat(["2024-01-30", "2024-01-31", "2024-02-01"], 24),
        "hour": np.tile(np.arange(1, 25), 3),
        "load": np.random.default_rng(0).normal(50, 5, 72).round(2),
    }
)
TABLES = {
    "a store": (DAY.with_columns(store=pl.lit("s1")), {}, ["store"], ["date"]),
    "a numbered store": (DAY.with_columns(store=pl.lit(7)), {}, ["store"], ["date"]),
    "a declared key": (DAY.with_columns(town=pl.lit("x")), {"series": "town"}, ["town"], ["date"]),
    "two keys": (
        DAY.with_columns(town=pl.lit("x"), shop=pl.lit(1)),
        {"series": ["town", "shop"]},
        ["town", "shop"],
        ["date"],
    ),
    "no key": (DAY, {}, [], ["date"]),
    "two targets": (
        DAY.with_columns(sold=pl.col("sales") * 2),
        {"target": ["sales", "sold"]},
        [],
        ["date"],
    ),
    "channels as series": (
        DAY.with_columns(sold=pl.col("sales") * 2),
        {"target": ["sales", "sold"], "layout": "long"},
        ["channel"],
        ["date"],
    ),
    "two columns of time": (HOURS, {}, [], ["date", "hour"]),
    "hours of a store": (HOURS.with_columns(store=pl.lit("s1")), {}, ["store"], ["date", "hour"]),
}


FRAMES = ("a numbered store", "two keys", "channels as series", "two columns of time")
KINDS = [(name, "file") for name in TABLES] + [(name, "pandas") for name in FRAMES]


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_every_way_out_has_the_same_columns(tmp_path, name, kind):
    table, options, keys, times = TABLES[name]
    table.write_csv(tmp_path / "a.csv")
    source = tmp_path / "a.csv" if kind == "file" else table.to_pandas()
    forecast = fc.predict(source, 3, samples=5, **options)
    forecast.write(tmp_path / "out.csv")
    columns = pl.read_csv(tmp_path / "out.csv").columns
    assert columns[: len(keys) + 1 + len(times)] == [*keys, "cutoff", *times]
    assert ("channel" in columns) and columns.count("lead") == 1
    frames = (forecast.frame, forecast.to_polars(), forecast.to_pandas())
    assert [list(frame.columns) for frame in frames] == [columns] * 3
    assert list(forecast.samples.columns)[: len(keys) + 1 + len(times)] == [*keys, "cutoff", *times]
    assert list(forecast.wide().columns)[: len(times)] == times
    total = forecast.total("horizon")
    assert set(keys) <= {*total.frame.columns} and total.to_polars().columns == list(
        total.to_pandas().columns
    )
    if keys and "channel" not in keys:
        joined = forecast.to_pandas().merge(table.select(keys).unique().to_pandas(), on=keys)
        assert len(joined) == len(forecast.to_pandas())
