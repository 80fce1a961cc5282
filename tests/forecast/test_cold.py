"""Series with little history, or none: forecast from what a model has learned of others."""

from functools import cache

import numpy as np
import polars as pl
import pytest
from forecast import tiny
from numpy.testing import assert_allclose

import forecaster as fc
from forecaster.runs.levels import level_by_statics

_DAYS, _AHEAD, _OLD, _NEW = 42, 3, 20, 40


def _branch(name: str, days: int, rng: np.random.Generator) -> pl.DataFrame:
    kind, size = rng.integers(3), rng.normal()
    week = 10 * np.sin(2 * np.pi * np.arange(days) / 7)
    sales = 100 + 40 * kind + 15 * size + 10 * rng.normal() + week + 5 * rng.normal(size=days)
    columns = {"branch": [name] * days, "date": [tiny.day(n) for n in range(days)], "sales": sales}
    return pl.DataFrame(columns | {"kind": ["abc"[kind]] * days, "size": [size] * days})


@cache
def _trained() -> tuple[fc.Forecaster, pl.DataFrame, pl.DataFrame]:
    """A model of old branches, their table, and one of new branches with what they will sell."""
    rng = np.random.default_rng(0)
    old = pl.concat(_branch(f"a{n}", _DAYS, rng) for n in range(_OLD))
    new = pl.concat(_branch(f"b{n}", _DAYS + _AHEAD, rng) for n in range(_NEW))
    return fc.fit(old, horizon=_AHEAD, config=tiny.TINY, quiet=True), old, new


def _silent(new: pl.DataFrame, days: int = 1) -> pl.DataFrame:
    """Branches with a few rows before they open, and no sales."""
    before = pl.col("date").is_between(tiny.day(_DAYS - days), tiny.day(_DAYS - 1))
    return new.filter(before).with_columns(sales=pl.lit(None, pl.Float64))


def test_new_series_are_forecast_from_their_statics_with_bands_that_cover():
    model, old, new = _trained()
    forecast = model.predict(pl.concat([old, _silent(new)]))
    assert forecast.status == ("ok",) * _OLD + ("cold",) * _NEW and "without" not in forecast.report
    rows = forecast.frame.filter(pl.col("status") == "cold")
    assert rows["cutoff"].unique().to_list() == [tiny.day(_DAYS - 1)]
    rows = rows.join(new, on=["branch", "date"])
    inside = (rows["sales"] >= rows["q0.1"]) & (rows["sales"] <= rows["q0.9"])
    assert len(rows) == _NEW * _AHEAD and 0.7 <= inside.mean() <= 0.95
    missed = (rows["sales"] - rows["forecast"]).abs().mean()
    assert missed < 0.5 * (rows["sales"] - rows["sales"].median()).abs().mean()


@pytest.mark.parametrize("rows", [2, 3, 5])
def test_a_short_history_is_forecast_as_well_as_its_best_naive_with_bands_that_cover(rows):
    model, _, new = _trained()
    past = pl.col("date").is_between(tiny.day(_DAYS - rows), tiny.day(_DAYS - 1))
    table = new.filter(past)
    found = model.predict(table).frame.join(new, on=["branch", "date"])
    simple = table.group_by("branch").agg(last=pl.col("sales").last(), mean=pl.col("sales").mean())
    found = found.join(simple, on="branch")
    missed = {
        name: (found["sales"] - found[name]).abs().mean() for name in ("forecast", "last", "mean")
    }
    assert missed["forecast"] < 1.1 * min(missed["last"], missed["mean"])
    inside = (found["sales"] >= found["q0.1"]) & (found["sales"] <= found["q0.9"])
    assert 0.65 <= inside.mean() <= 0.95


def test_a_cold_forecast_depends_on_no_other_series_of_the_table():
    model, old, new = _trained()
    silent, when = _silent(new, days=3), tiny.day(_DAYS - 1).isoformat()
    alone = model.predict(silent, cutoff=when)
    louder = old.with_columns(pl.col("sales") * 7 + 1e4)
    beside = model.predict(pl.concat([louder, silent]), cutoff=when)
    assert set(alone.status) == {"cold"}
    assert_allclose(beside.quantiles[_OLD:], alone.quantiles, rtol=1e-6)
    assert_allclose(
        model.predict(silent).quantiles, alone.quantiles, rtol=1e-6
    )  # after the training rows


def test_without_known_covariates_or_enough_series_there_is_no_cold_forecast():
    table = tiny.shop(60, tuple("abcdef"))
    opened = table.filter(pl.col("store") == "a").with_columns(
        store=pl.lit("new"), sales=pl.lit(None, pl.Float64)
    )
    model = fc.fit(table, horizon=3, config=tiny.TINY, known="price", static="city", quiet=True)
    names, both = ("a", "b", "c", "d", "e", "f"), pl.concat([table, opened])
    forecast = model.predict(both, future=tiny.prices(60, 3, names))
    assert forecast.status[-1] == "no target observed before the cutoff"
    forecast = model.predict(both, future=tiny.prices(60, 3, (*names, "new")))
    assert forecast.status[-1] == "cold" and np.isfinite(forecast.quantiles).all()
    with pytest.raises(fc.DataError, match="found none in any of 1 series"):
        tiny.plain_model().predict(tiny.plain().filter(pl.col("store") == "a").with_columns(sales=None))


def test_statics_tell_a_level_only_where_they_do():
    rng = np.random.default_rng(0)
    kind = np.eye(3)[np.arange(30) % 3]
    features, noise = np.column_stack([np.ones(30), kind]), rng.normal(size=30)
    weights, told = level_by_statics(features, 10 * kind[:, 1] + noise)
    assert_allclose(features[:3] @ weights, [0, 10, 0], atol=1.0)
    assert np.abs(10 * kind[:, 1] - told).mean() < 0.5
    weights, told = level_by_statics(features, noise)
    assert weights.tolist() == [np.median(noise), 0, 0, 0] and set(told) == {np.median(noise)}
