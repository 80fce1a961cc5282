"""Forecasts of groups of related series: a group is one unit, keyed as its table is."""

from functools import cache

import numpy as np
import polars as pl
import pytest
from forecast import tiny
from polars.testing import assert_frame_equal

import forecaster as fc
from forecaster.errors import DataError

CLOSE = {"rel_tol": 0.0, "abs_tol": 1e-5}
OPTIONS = {"horizon": tiny.HORIZON, "config": tiny.TINY, "quiet": True}


def _regions(days=100, ahead=0):
    """Shops 10, 2 and 1 of a region n, 10 and 1 of s, and their prices of the days after."""
    tables, prices = [], []
    for region, items, seed in (("n", {"a": 10, "b": 2, "c": 1}, 0), ("s", {"a": 10, "c": 1}, 1)):
        for made, kept in ((tiny.shop(days, seed=seed), tables), (tiny.prices(days), prices)):
            own = made.filter(pl.col("store").is_in([*items]))
            ids = pl.col("store").replace_strict(items, return_dtype=pl.Int16)
            kept.append(own.with_columns(store=ids, region=pl.lit(region)))
    return pl.concat(tables).drop("city"), pl.concat(prices)


@cache
def _fitted():
    """The table, its future prices, and a network that attends to the channels, without experts."""
    table, prices = _regions()
    config = tiny.config_with(channel_attention=True, experts=[])
    roles = {"series": ["region", "store"], "target": "sales", "known": ["price"], "relate": "region"}
    return table, prices, fc.fit(table, **OPTIONS | {"config": config}, **roles)


def _close(one, other):
    assert_frame_equal(one, other, **CLOSE)


@pytest.mark.long
def test_series_of_a_group_read_each_other():
    steps, lag, errors = 300, 12, {}
    noise = np.random.default_rng(0).normal(size=(2, 3, steps))
    noise[:, 2, lag:] = noise[:, 0, :-lag] + 0.05 * noise[:, 2, lag:]
    keys = {"plant": np.repeat(["p", "q"], 3 * steps), "meter": np.tile(np.repeat([1, 2, 3], steps), 2)}
    table = pl.DataFrame(keys | {"t": np.tile(np.arange(steps), 6), "y": noise.ravel()})
    past = table.filter(pl.col("t") < steps - lag)
    for relate, experts in (((), ["linear"]), (("plant",), ["linear", "arx"])):
        roles = {"series": ["plant", "meter"], "target": "y", "time": "t", "relate": relate}
        model = tiny.config_with(experts=experts, context_length=48, lookbacks=[48], ridge_alpha=0.1)
        rows = fc.fit(past, horizon=lag, config=model, quiet=True, **roles).predict(past).frame
        led = rows.join(table, on=["plant", "meter", "t"]).filter(pl.col("meter") == 3)
        errors[relate] = (led["forecast"] - led["y"]).abs().mean()
    assert errors["plant",] < 0.2 * errors[()]


@pytest.mark.long
def test_one_group_is_forecast_as_layout_wide_does():
    table, prices = _regions()
    table, prices = (one.filter(pl.col("region") == "n") for one in (table, prices))
    roles = {"target": "sales", "known": ["price"]}
    roles |= OPTIONS
    # `arx` too reads the other channels, but needs more rows.
    roles["config"] = tiny.config_with(channel_attention=True, experts=["naive", "linear"])
    one = fc.fit(table, series=["region", "store"], relate="region", **roles)
    wide = fc.fit(table.drop("region"), series=["store"], layout="wide", **roles)
    rows, expected = (
        one.predict(table, future=prices).frame,
        wide.predict(table.drop("region"), future=prices.drop("region")).frame,
    )
    assert_frame_equal(rows.drop("region"), expected, check_exact=True)


@pytest.mark.long
def test_a_series_that_a_group_lacks_has_no_row_anywhere(tmp_path):
    table, prices, model = _fitted()
    forecast = model.predict(table, future=prices)
    pairs = table.select("region", "store").unique().sort("region", "store")
    rows = forecast.frame
    assert rows.columns[:2] == ["region", "store"] and rows.schema["store"] == pl.Int16
    assert_frame_equal(rows.select("region", "store").unique(maintain_order=True), pairs)
    assert len(rows) == 5 * tiny.HORIZON and set(rows["status"]) == {"ok"}
    assert "35 rows" in repr(forecast) and "without" not in repr(forecast)
    assert forecast.wide().width == 1 + 5 and len(forecast.plot().axes) == 6
    scores = model.backtest(table, windows=1)
    assert (scores.scored, scores.unscored) == (len(rows), 0)
    by = scores.by("series").filter(pl.col("model") == "forecaster")
    assert_frame_equal(by.select("region", "store"), pairs)
    own = scores.frame.filter(
        (pl.col("model") == "forecaster") & (pl.col("region") == "n") & (pl.col("store") == 2)
    )
    found = by.filter((pl.col("region") == "n") & (pl.col("store") == 2))["MAE"].item()
    assert found == pytest.approx((own["forecast"] - own["actual"]).abs().mean())
    assert scores.by("channel")["store"].unique().sort().to_list() == [1, 2, 10]
    scores.report(tmp_path / "report.html")
    anomalies = model.detect(table)
    assert len(anomalies.frame) == len(table) and f"{len(table)} rows" in repr(anomalies)
    together = pl.concat([table, prices], how="diagonal")
    assert "s · 1" in repr(model.explain(together, only="s"))
    with pytest.raises(fc.DataError, match="no channel '2' among 2"):
        model.explain(together, only="s", channel="2")


@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_saved_model_and_partitions_forecast_the_same(tmp_path, devices):
    table, prices, model = _fitted()
    rows = model.predict(table, future=prices).frame
    model.save(tmp_path / "model")
    loaded = fc.load(tmp_path / "model")
    again = loaded.predict(table.to_pandas(), future=prices.to_pandas())
    _close(pl.from_pandas(again.frame).drop("cutoff", "date"), rows.drop("cutoff", "date"))
    table.write_csv(tmp_path / "sales.csv")
    prices.write_csv(tmp_path / "prices.csv")
    out = tmp_path / "out.csv"
    loaded.predict_to(out, tmp_path / "sales.csv", future=tmp_path / "prices.csv", devices=devices)
    written = pl.read_csv(out, schema_overrides={"store": pl.Int16, "lead": pl.Int32})
    _close(written.drop("cutoff", "date"), rows.drop("cutoff", "date"))


def test_groups_are_forecast_alone_as_together_in_any_order():
    table, prices, model = _fitted()
    rows = model.predict(table, future=prices).frame
    mixed = table.sample(fraction=1, shuffle=True, seed=0)
    assert_frame_equal(model.predict(mixed, future=prices[::-1]).frame, rows, check_exact=True)
    for region in "ns":
        here = pl.col("region") == region
        _close(model.predict(table.filter(here), future=prices).frame, rows.filter(here))
        _close(model.predict(table, future=prices, only=region).frame, rows.filter(here))
    new = pl.col("region").replace({"n": "z"})
    renamed = model.predict(table.with_columns(new), future=prices.with_columns(new)).frame
    # Of new series effects are those that all have.
    renamed, rows = (one.sort("region", "store", "lead") for one in (renamed, rows.with_columns(new)))
    assert_frame_equal(renamed, rows, rel_tol=1e-2)


def test_other_groups_and_rows_after_the_cutoff_change_nothing():
    table, prices, model = _fitted()
    rows = model.predict(table, future=prices).frame
    noise = pl.Series(np.random.default_rng(0).normal(size=len(table)))
    other = table.with_columns(
        sales=pl.when(pl.col("region") == "s").then(pl.col("sales") + 9 * noise).otherwise("sales")
    )
    here = pl.col("region") == "n"
    _close(model.predict(other, future=prices).frame.filter(here), rows.filter(here))
    past = model.predict(table, future=prices, cutoff=str(tiny.day(80))).frame
    after = pl.when(pl.col("date") > tiny.day(80)).then(noise)
    later = table.with_columns(
        after.otherwise("sales").alias("sales"), after.otherwise("visitors").alias("visitors")
    )
    assert_frame_equal(
        model.predict(later, future=prices, cutoff=str(tiny.day(80))).frame, past, check_exact=True
    )
    # Its own group does matter.
    near = table.with_columns(
        sales=pl.when(pl.col("store") == 10).then(pl.col("sales") + 9 * noise).otherwise("sales")
    )
    one = pl.col("store") == 1
    changed = (
        model.predict(near, future=prices).frame.filter(one)["forecast"] - rows.filter(one)["forecast"]
    )
    assert changed.abs().max() > 1e-3


def test_an_unknown_series_and_a_series_in_place_of_its_group_are_refused():
    table, prices, model = _fitted()
    with pytest.raises(DataError, match="expected the series of the model, 1, 2, 10, found also 3; "):
        model.predict(table.with_columns(store=pl.col("store").replace({2: 3})), future=prices)
    for name, group in (("n/2", "n"), ("s/2", "s"), ("2/s", "s"), ("2", "n")):
        said = (
            rf"series '{name}' is a channel here \(relate region\); name its group, as '{group}', and"
        )
        with pytest.raises(DataError, match=said):
            model.predict(table, future=prices, only=name)


def test_a_series_without_a_value_keeps_its_rows_and_its_reason():
    table, prices, model = _fitted()
    gone = (pl.col("region") == "s") & (pl.col("store") == 1)
    empty = table.with_columns(sales=pl.when(~gone).then("sales"))
    rows = model.predict(empty, future=prices).frame
    assert len(rows) == 5 * tiny.HORIZON
    assert set(rows.filter(gone)["status"]) == {"no target observed before the cutoff"}


@pytest.mark.parametrize("pivot", [{"relate": "region"}, {"layout": "wide"}])
def test_columns_that_vary_only_after_until_are_no_trouble(tmp_path, pivot):
    table, _ = _regions()
    late = pl.col("date") > tiny.day(84)
    table = table.with_columns(
        size=pl.when(late).then(pl.col("sales")).otherwise(pl.col("store").cast(float)),
        rent=pl.when(late).then(pl.col("sales")).otherwise(pl.col("region").str.len_chars()),
        kind=pl.when(late).then(pl.lit("new")).otherwise("region"),
        empty=pl.when(late).then("sales"),
    )
    roles = {"series": ["region", "store"], "target": "sales"} | pivot
    options = OPTIONS | {"config": tiny.NETWORK}
    fc.fit(table, until="2024-03-25", **roles, **options).save(tmp_path / "model")
    rows = fc.load(tmp_path / "model").predict(table.filter(~late)).frame
    assert len(rows) == 5 * tiny.HORIZON and set(rows["status"]) == {"ok"}
