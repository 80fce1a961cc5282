"""Forecasts of a long table with layout wide: those of the pivoted table, keyed as the long one is."""

from functools import cache

import numpy as np
import polars as pl
import pytest
from forecast import tiny
from polars.testing import assert_frame_equal

import forecaster as fc
from forecaster.errors import DataError

IDS = {"a": 10, "b": 2, "c": 1}
CHANNELS = ["1", "2", "10"]


def _with_ids(table):
    return table.with_columns(pl.col("store").replace_strict(IDS, return_dtype=pl.Int16))


def _pivoted(table, names=("price", "visitors")):
    """The table with a column per store and covariate, by hand."""
    table = table.with_columns(pl.col("store").cast(pl.String))
    wide = table.select("date").unique(maintain_order=True).sort("date")
    for name in ("sales", *names):
        for store in CHANNELS:
            own = table.filter(pl.col("store") == store)
            new = store if name == "sales" else f"{name}/{store}"
            wide = wide.join(own.select("date", pl.col(name).alias(new)), on="date", how="left")
    return wide


@cache
def _models():
    """The table with whole numbers as ids, its model, the future prices, and the twins of all three."""
    table, prices = _with_ids(tiny.shop()), _with_ids(tiny.prices())
    config = tiny.config_with(channel_attention=True, experts=["naive", "linear"])
    options = {"horizon": tiny.HORIZON, "config": config, "quiet": True}
    model = fc.fit(table, layout="wide", known=["price"], **options)
    future = _pivoted(prices.with_columns(sales=None), ("price",)).drop(CHANNELS)
    known = [f"price/{store}" for store in CHANNELS]
    twin = fc.fit(_pivoted(table), target=CHANNELS, known=known, **options)
    return table, prices, model, _pivoted(table), future, twin


@pytest.mark.long
def test_forecasts_are_those_of_the_pivoted_table_in_the_callers_ids():
    table, prices, model, wide, future, twin = _models()
    rows = model.predict(table, future=prices).frame
    expected = twin.predict(wide, future=future).frame
    assert rows.columns == ["store", *(name for name in expected.columns if name != "channel")]
    assert rows.schema["store"] == pl.Int16
    assert_frame_equal(rows.drop("store"), expected.drop("channel"), check_exact=True)
    assert rows["store"].cast(pl.String).to_list() == expected["channel"].to_list()
    assert rows.select("store", "lead").is_unique().all() and len(rows) == 3 * tiny.HORIZON


@pytest.mark.long
def test_frames_come_back_in_the_callers_kind_and_a_saved_model_gives_the_same(tmp_path):
    table, prices, model, *_ = _models()
    forecast = model.predict(table, future=prices)
    assert forecast.wide().columns == ["date", *CHANNELS]
    model.save(tmp_path / "model")
    loaded = fc.load(tmp_path / "model").predict(table.to_pandas(), future=prices.to_pandas())
    assert str(loaded.frame["store"].dtype) == "int16"
    assert_frame_equal(pl.from_pandas(loaded.frame), forecast.frame, check_dtypes=False)
    table.write_csv(tmp_path / "sales.csv")
    prices.write_csv(tmp_path / "prices.csv")
    out = tmp_path / "out.csv"
    model.predict_to(out, tmp_path / "sales.csv", future=tmp_path / "prices.csv")
    assert pl.read_csv(out)["store"].to_list() == forecast.frame["store"].to_list()
    both = pl.concat([table, prices], how="diagonal")
    assert len(forecast.plot().axes) == 4 and "· 10" in repr(model.explain(both, channel="10"))


def test_a_series_without_rows_has_its_status_and_an_unknown_one_is_refused():
    table, prices, model, *_ = _models()
    empty = table.with_columns(sales=pl.when(pl.col("store") != 2).then("sales"))
    status = dict(model.predict(empty, future=prices).frame.select("store", "status").unique().rows())
    assert status == {1: "ok", 2: "no target observed before the cutoff", 10: "ok"}
    plain = fc.fit(
        table.select("store", "date", "sales"),
        layout="wide",
        horizon=tiny.HORIZON,
        config=tiny.NETWORK,
        quiet=True,
    )
    absent = plain.predict(table.filter(pl.col("store") != 2)).frame
    assert dict(absent.select("store", "status").unique().rows()) == status
    with pytest.raises(DataError, match="expected the series of the model, 1, 2, 10, found also 3; "):
        plain.predict(table.with_columns(store=pl.col("store").replace({2: 3})))
    with pytest.raises(
        DataError, match=r"series '2' is a channel here \(layout wide\); leave out `only`"
    ):
        plain.predict(table, only="2")


@pytest.mark.long
def test_a_backtest_and_anomalies_are_keyed_as_the_table_is():
    table, _, model, wide, _, twin = _models()
    scores, expected = (one.backtest(data, windows=1) for one, data in ((model, table), (twin, wide)))
    assert scores.frame.columns[:2] == ["model", "store"]
    assert "channel" not in scores.frame.columns
    assert_frame_equal(scores.frame.drop("store"), expected.frame.drop("channel"), check_exact=True)
    assert_frame_equal(scores.summary, expected.summary, check_exact=True)
    by_store = scores.by("series")
    assert by_store.schema["store"] == pl.Int16
    assert_frame_equal(by_store.drop("store"), expected.by("channel").drop("channel"))
    assert_frame_equal(by_store, scores.by("channel"))
    found = model.detect(table).frame
    assert found.columns[0] == "store" and len(found) == len(table)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*AnyType")
def test_a_served_model_takes_the_long_table_and_onnx_the_channels(
    tmp_path, unchecked_shapes, short_fits
):
    from forecaster.runs.served import ServedForecaster

    table, prices = _with_ids(tiny.shop()), _with_ids(tiny.prices())
    config = tiny.config_with(channel_attention=True, experts=["naive"])
    options = {"horizon": tiny.HORIZON, "known": ["price"], "config": config, "quiet": True}
    model = fc.fit(table, layout="wide", **options)
    served = ServedForecaster()
    model.save(tmp_path / "model")
    served.load_context(type("Context", (), {"artifacts": {"model": str(tmp_path / "model")}}))
    both = pl.concat([table, prices], how="diagonal").to_pandas()
    rows, expected = served.predict(None, both), model.predict(table, future=prices).frame
    assert np.array_equal(rows["forecast"], expected["forecast"])
    assert rows["store"].to_list() == expected["store"].to_list()
    assert "→ quantiles" in model.export_onnx(tmp_path / "model.onnx")


def test_a_series_that_begins_late_is_a_channel_like_any_other():
    table = tiny.shop(200).filter((pl.col("store") != "c") | (pl.col("date") >= tiny.day(140)))
    options = {"horizon": tiny.HORIZON, "config": tiny.ONE, "quiet": True, "layout": "wide"}
    rows = fc.fit(table, **options).predict(table).frame
    assert rows["status"].unique().to_list() == ["ok"] and len(rows) == 3 * tiny.HORIZON
