"""Series with little history, or none: forecast from what a model has learned of others."""

from datetime import timedelta
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from forecast import tiny
from numpy.testing import assert_allclose

import forecaster as fc
from forecaster.errors import DataError
from forecaster.fitting import fit
from forecaster.fitting.experts import levels
from forecaster.fitting.experts.levels import level_by_statics

pytestmark = pytest.mark.usefixtures("all_windows")
DEMO = Path(__file__).parents[2] / "data" / "demo.csv"

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


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize("rows", [1, 2, 3, 5])
def test_a_short_history_is_forecast_as_well_as_its_best_naive_with_bands_that_cover(rows):
    model, _, new = _trained()
    parts = []
    for end in range(_DAYS - 6, _DAYS + 1):  # each weekday: a few rows do not show how these differ
        past = pl.col("date").is_between(tiny.day(end - rows), tiny.day(end - 1))
        table = new.filter(past)
        simple = table.group_by("branch").agg(
            last=pl.col("sales").last(), average=pl.col("sales").mean()
        )
        parts.append(model.predict(table).frame.join(simple, on="branch"))
    found = pl.concat(parts).join(new, on=["branch", "date"])
    missed = {
        name: (found["sales"] - found[name]).abs().mean() for name in ("forecast", "last", "average")
    }
    assert missed["forecast"] < 1.1 * min(missed["last"], missed["average"])
    inside = (found["sales"] >= found["q0.1"]) & (found["sales"] <= found["q0.9"])
    assert 0.7 <= inside.mean() <= 0.95


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
    model = fc.fit(table, horizon=3, config=tiny.ONE, known="price", static="city", quiet=True)
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


# Series that begin in a future table

_WEEK = np.array([1.0, 1.0, 1.0, 1.0, 1.2, 1.4, 0.4])


def _exact(size: float, days: range, promo: np.ndarray) -> np.ndarray:
    """Sales that are a level, times a weekday, times 1.5 in a promotion."""
    return 2.0 * size * _WEEK[np.array(days) % 7] * (1 + 0.5 * promo)


def _shops(names: str, days: range, **columns: object) -> pl.DataFrame:
    rng, parts = np.random.default_rng(5), []
    for number, name in enumerate(names):
        promo, size = rng.integers(0, 2, len(days)).astype(float), 10.0 * 2 ** (number % 4)
        rows = {"shop": [name] * len(days), "date": [tiny.day(n) for n in days]}
        rows |= {"sales": _exact(size, days, promo), "promo": promo, "size": [f"s{size:g}"] * len(days)}
        parts.append(pl.DataFrame(rows).with_columns(**columns))
    return pl.concat(parts)


@cache
def _promoted() -> tuple[fc.Forecaster, pl.DataFrame, pl.DataFrame]:
    """A model of eight shops, their table, and a week ahead of theirs and of four new ones."""
    history, ahead = _shops("abcdefgh", range(98)), _shops("abcdefghwxyz", range(98, 105))
    roles = {"known": "promo", "categorical": "size", "static": "size"}
    model = fc.fit(history, horizon=7, config=tiny.TINY, quiet=True, **roles)
    return model, history, ahead


@pytest.mark.long
def test_future_rows_begin_a_series_without_a_fit_too():
    history, ahead = _shops("abcdefgh", range(98)), _shops("abcdefghwxyz", range(98, 105))
    roles = {"known": "promo", "categorical": "size", "static": "size"}
    future = ahead.drop("sales")
    found = fc.predict(history, 7, future=future, **roles)
    assert found.status == ("ok",) * 8 + ("cold",) * 4
    cold = found.frame.filter(pl.col("status") == "cold").join(ahead, on=["shop", "date"])
    assert cold["cutoff"].unique().to_list() == [tiny.day(97)]
    scaled = [pl.col(name) / pl.col(name).mean().over("shop") for name in ("forecast", "sales")]
    shape, truth = (cold.select(one).to_series().to_numpy() for one in scaled)
    assert np.abs(shape - truth).mean() < 0.25 * np.abs(truth - 1).mean()
    warnings = [one.text for one in found.findings if one.severity == "warning"]
    assert any(text.endswith("begin 4 series that the table lacks: w, x, y, z") for text in warnings)
    # The series of the table are forecast as without new ones.
    plain = fc.predict(history, 7, future=future.filter(pl.col("shop") < "w"), **roles)
    assert_allclose(found.quantiles[:8], plain.quantiles, rtol=1e-5)
    # One alone; one that lacks the promotion of a day is left out, and refused by name.
    alone = fc.predict(history, 7, future=future.filter(pl.col("shop") == "x"), only="x", **roles)
    assert alone.status == ("cold",)
    short = future.filter((pl.col("shop") != "z") | (pl.col("date") < tiny.day(104)))
    assert fc.predict(history, 7, future=short, **roles).panel.series_names == [*"abcdefghwxy"]
    with pytest.raises(DataError, match=r"1 of 4 new series cannot be forecast, and are left out: z"):
        fc.predict(history, 7, future=short, only="z", **roles)
    few = history.filter(pl.col("shop") < "e")
    with pytest.raises(
        DataError, match=r"no level for new series: it takes five series or more, and experts"
    ):
        fc.predict(few, 7, future=future, only="z", **roles)


@pytest.mark.long
def test_future_rows_alone_begin_a_series_that_follows_weekday_and_promotion_of_the_others():
    model, history, ahead = _promoted()
    future = ahead.drop("sales")
    found = model.predict(history, future=future)
    assert found.status == ("ok",) * 8 + ("cold",) * 4 and len(found.frame) == 12 * 7
    cold = found.frame.filter(pl.col("status") == "cold").join(ahead, on=["shop", "date"])
    assert cold["cutoff"].unique().to_list() == [tiny.day(97)]
    # The level is shrunk towards that of all shops; within a shop days differ as they do in truth.
    scaled = [pl.col(name) / pl.col(name).mean().over("shop") for name in ("forecast", "sales")]
    shape, truth = (cold.select(one).to_series().to_numpy() for one in scaled)
    assert np.abs(shape - truth).mean() < 0.25 * np.abs(truth - 1).mean()
    (warning,) = [one for one in found.findings if one.rule == "keys"]
    assert warning.severity == "warning" and warning.count == 28
    assert warning.text.endswith("begin 4 series that the table lacks: w, x, y, z")
    # A future table that begins others changes nothing of what explains one of the table.
    explained = model.explain(history, only="b", future=future).forecast
    np.testing.assert_allclose(explained.quantiles, found.quantiles[1:2], rtol=1e-5)
    # Neither the series beside it nor an empty row of history changes a bit of it.
    alone = model.predict(history, future=future.filter(pl.col("shop") == "x"), only="x")
    assert tiny.bits(alone.quantiles) == tiny.bits(found.quantiles[9:10])
    dummy = ahead.filter(pl.col("shop") == "x").head(1)
    dummy = dummy.with_columns(date=pl.lit(tiny.day(97)), sales=pl.lit(None, pl.Float64))
    old = model.predict(pl.concat([history, dummy]), future=future)
    assert tiny.bits(old.quantiles[old.panel.series_names.index("x")]) == tiny.bits(found.quantiles[9])


@pytest.mark.long
def test_a_series_that_begins_reads_nothing_after_the_cutoff_but_its_own_known_covariates():
    model, history, _ = _promoted()
    when = tiny.day(90).isoformat()
    later = history.filter(pl.col("date") > tiny.day(90)).drop("sales")
    new = _shops("z", range(91, 98)).drop("sales")
    plain = model.predict(history, future=pl.concat([later, new]), cutoff=when).quantiles
    noised = history.with_columns(
        sales=pl.when(pl.col("date") > tiny.day(90)).then(-7e5).otherwise("sales")
    )
    moved = model.predict(noised, future=pl.concat([later, new]), cutoff=when)
    assert moved.status[-1] == "cold" and tiny.bits(moved.quantiles) == tiny.bits(plain)
    # A lead reads promotions of the three days around it alone.
    last = pl.when(pl.col("date") == tiny.day(97)).then(1 - pl.col("promo")).otherwise("promo")
    other = model.predict(history, future=new.with_columns(promo=last), cutoff=when, only="z").median
    assert tiny.bits(other[0, :3]) == tiny.bits(np.median(plain[-1:], axis=-1)[0, :3])
    assert other[0, 6] != np.median(plain[-1, 6])


@pytest.mark.long
@pytest.mark.parametrize(("a", "b", "shift"), [(3.0, 0.0, 0.0), (0.5, 7.0, -100.0)])
def test_a_cold_forecast_has_the_unit_of_the_target_it_was_fitted_to(a, b, shift):
    # Always positive: b is 0; of both signs: the spread is that of all series, and b may be any number.
    history, ahead = _shops("abcdefgh", range(60)), _shops("z", range(60, 67)).drop("sales")
    roles = {"known": "promo", "static": "size", "horizon": 7, "quiet": True}

    def quantiles(table: pl.DataFrame) -> np.ndarray:
        model = fc.fit(table, config=tiny.config_with(experts=["naive"]), **roles)
        return model.predict(table, future=ahead, only="z").quantiles

    plain = quantiles(history.with_columns(pl.col("sales") + shift))
    moved = quantiles(history.with_columns((pl.col("sales") + shift) * a + b))
    assert_allclose(moved, a * plain + b, rtol=0, atol=1e-5 * a * np.ptp(plain))


def test_new_series_without_every_known_covariate_are_left_out_and_named():
    model, history, ahead = _promoted()
    future = ahead.drop("sales")
    holey = pl.when((pl.col("shop") != "y") | (pl.col("date") != tiny.day(100))).then("promo")
    gone = (pl.col("shop") == "z") & (pl.col("date") > tiny.day(98))
    future = future.with_columns(promo=holey).filter(~gone)
    found = model.predict(history, future=future)
    assert found.panel.series_names == [*"abcdefghwx"] and found.status[-2:] == ("cold", "cold")
    lines = [one.line() for one in found.findings if one.rule == "keys"]
    assert "2 of 4 new series cannot be forecast, and are left out: y, z" in lines[0]
    assert "begin 4 series that the table lacks: w, x, y, z" in lines[1]
    with pytest.raises(fc.DataError, match="y, z; give every known covariate of the 7 steps"):
        model.predict(history, future=future, only=["x", "z"])
    # Two days ahead both are complete but for z.
    assert model.predict(history, future=future, horizon=2).panel.series_names == [*"abcdefghwxy"]
    few = tiny.model().predict(tiny.shop(), future=tiny.prices(stores=("a", "b", "c", "d")))
    assert few.panel.series_names == ["a", "b", "c"] and "it takes five series or more" in str(
        few.findings
    )


def test_new_series_are_the_same_in_a_file_and_in_shards(tmp_path, monkeypatch):
    from forecaster.forecast import parts

    model, history, ahead = _promoted()
    future = ahead.drop("sales")
    short = (pl.col("shop") == "y") & (pl.col("date") > tiny.day(100))
    call = {"data": history, "future": future.filter(~short)}
    model.predict_to(tmp_path / "one.parquet", **call)
    monkeypatch.setattr(parts, "BLOCK", 4)

    def engine(job, todo):
        predict, panel = job.opened()
        return ((block, parts.write_part(predict, panel, block, job)) for block in todo)

    for shard, elsewhere in (("1/3", None), ("2/3", engine), (None, engine)):
        model.predict_to(tmp_path / "many.parquet", **call, shard=shard, engine=elsewhere)
    one, many = (pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("one", "many"))
    assert one.equals(many) and one["shop"].unique(maintain_order=True).to_list() == [*"abcdefghwxz"]


@pytest.mark.long
def test_the_profile_of_steps_that_nothing_tells_apart_is_next_to_nothing():
    rng = np.random.default_rng(0)
    noise = _shops("abcdefgh", range(98), sales=pl.lit(0.0))
    noise = noise.with_columns(sales=pl.Series(rng.normal(size=len(noise))))
    config = tiny.config_with(experts=["naive"])
    model = fc.fit(noise, horizon=7, config=config, known="promo", quiet=True)
    ahead = _shops("z", range(98, 105)).drop("sales")
    assert np.abs(model.predict(noise, future=ahead, only="z").median).max() < 0.3


def _wql(found: fc.Forecast, truth: pl.DataFrame) -> float:
    rows = found.frame.join(truth.select("store", "date", actual="sales"), on=["store", "date"])
    loss = 0.0
    for level in found.levels:
        missed = rows["actual"] - rows[f"q{level:g}"]
        loss += 2 * (missed * (level - (missed < 0).cast(pl.Float64))).sum()
    return loss / len(found.levels) / rows["actual"].abs().sum()


@pytest.mark.slow
@pytest.mark.usefixtures("short_fits")
def test_each_store_of_the_demo_begins_a_third_better_than_a_flat_line(monkeypatch):
    table = pl.read_csv(DEMO, try_parse_dates=True)
    cut = table["date"].max() - timedelta(days=28)
    # Networks forecast no series without history: one step of training is enough.
    config = tiny.config_with(experts=["naive"], width=4) | {"fit": {"steps": 1}}
    names = table["store"].unique().sort().to_list()
    pairs = list(zip(names[::2], names[1::2], strict=True))
    scores = {True: [], False: []}
    for profiled in scores:
        if not profiled:
            monkeypatch.setattr(levels, "_learn_profile", lambda *given: None)
            monkeypatch.setattr(fit, "learn_effects", lambda *given: None)
        for pair in pairs:
            rest = table.filter(~pl.col("store").is_in(pair) & (pl.col("date") <= cut))
            model = fc.fit(rest, horizon=28, known=["price", "promo"], config=config, quiet=True)
            for name in pair:
                ahead = table.filter((pl.col("store") == name) & (pl.col("date") > cut))
                found = model.predict(rest, future=ahead.drop("sales"), only=name)
                assert found.status == ("cold",)
                scores[profiled].append(_wql(found, ahead))
    ratio = np.divide(scores[True], scores[False])
    assert np.exp(np.log(ratio).mean()) < 0.7 and (ratio > 1).sum() <= 2, ratio
