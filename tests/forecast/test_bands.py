"""Bands and quantiles of levels asked for at predict time, and the mean beside the median."""

import numpy as np
import polars as pl
import pytest
import tiny
from polars.testing import assert_frame_equal

import forecaster as fc
from forecaster.forecast.bands import UNSCALED, asked_columns, quantile_columns
from forecaster.model.tails import tail

FITTED = tuple(n / 10 for n in range(1, 10))


def ahead(**asked):
    return fc.predict(tiny.plain(), 7, **asked)


def test_columns_of_bands_replace_the_fitted_quantiles_and_asked_quantiles_stand_beside_them():
    start, end = ["store", "cutoff", "date", "lead", "channel", "forecast", "mean"], ["status"]
    bands = ["lo-80", "hi-80", "lo-95.5", "hi-95.5"]
    assert ahead(levels=[80, 95.5]).frame.columns == [*start, *bands, *end]
    points = ["q0.05", *(f"q{level:g}" for level in FITTED), "q0.95"]
    assert ahead(quantiles=[0.95, 0.05]).frame.columns == [*start, *points, *end]
    both = ahead(levels=80, quantiles=(0.25,)).frame
    assert both.columns == [*start, "lo-80", "hi-80", "q0.25", *end]


def test_bands_are_exact_where_fitted_between_by_interpolation_and_beyond_by_the_tail():
    plain, asked = ahead().rows, ahead(levels=[80, 90], quantiles=[0.2, 0.25]).rows
    for name, fitted in (("lo-80", "q0.1"), ("hi-80", "q0.9"), ("q0.2", "q0.2"), ("mean", "mean")):
        assert asked[name].to_list() == plain[fitted].to_list()
    assert asked["q0.25"].is_between(plain["q0.2"], plain["q0.3"]).all()
    wanted = plain["q0.9"] + tail(0.95) * (plain["q0.9"] - plain["q0.5"])
    np.testing.assert_allclose(asked["hi-90"], wanted, rtol=1e-6)


def test_bands_beyond_the_fitted_levels_stay_within_the_bounds_and_are_whole():
    rows = ahead(levels=99, lower=0, integer=True).rows
    ends = rows.select("lo-99", "hi-99").to_numpy()
    assert (ends >= 0).all() and (ends == ends.round()).all()
    assert (rows["mean"] >= 0).all() and (rows["mean"] != rows["mean"].round()).any()


def test_status_says_from_95_percent_on_that_no_residuals_scale_the_tails():
    for levels, status in ((90, "ok"), (95, "ok" + UNSCALED), (99, "ok" + UNSCALED)):
        found = ahead(levels=levels)
        assert set(found.status) == {status} and found.lost == (0, "")
        assert "without" not in found.report
    assert set(ahead(quantiles=0.01).status) == {"ok" + UNSCALED}


@pytest.mark.long
def test_calibrated_tails_are_scaled_saved_and_silent(tmp_path):
    model = tiny.plain_model()
    model.artifact.ensemble.tail_factor = 2.0
    model.save(tmp_path / "model")
    loaded = fc.load(tmp_path / "model")
    assert loaded.artifact.ensemble.tail_factor == 2.0
    rows = loaded.predict(tiny.plain(), levels=95, quantiles=FITTED).rows
    wanted = rows["q0.9"] + 2.0 * tail(0.975) * (rows["q0.9"] - rows["q0.5"])
    np.testing.assert_allclose(rows["hi-95"], wanted, rtol=1e-6)
    assert rows["status"].unique().to_list() == ["ok"]
    model.artifact.ensemble.tail_factor = None


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"levels": [0]}, "levels 0: expected numbers above 0 and below 100"),
        ({"levels": [80, 100]}, "levels 100: expected"),
        ({"levels": [float("nan")]}, "levels nan: expected"),
        ({"levels": [80, 80.0]}, r"levels 80, 80: 80 is given 2 times"),
        ({"levels": [95.1234567, 95.1234568]}, "95.1235 is given 2 times"),
        ({"quantiles": [1.0]}, "quantiles 1: expected numbers above 0 and below 1"),
        ({"quantiles": [0.9999999]}, "quantiles 1: expected numbers above 0 and below 1 in six digits"),
        ({"levels": [99.99999]}, "levels 100: expected numbers above 0 and below 100 in six digits"),
        ({"quantiles": [0.05, 0.05]}, "0.05 is given 2 times"),
        ({"levels": ["80"]}, "expected a number"),
    ],
)
def test_levels_out_of_range_or_twice_are_refused(asked, said):
    with pytest.raises(fc.ConfigError, match=said):
        ahead(**asked)
    with pytest.raises(fc.ConfigError, match=said):
        fc.backtest(tiny.plain(), 7, fit=False, quiet=True, **asked)


def test_a_quantile_that_is_written_as_a_fitted_one_is_that_one():
    assert asked_columns(None, [0.3000001, 0.95], FITTED) == quantile_columns([*FITTED, 0.95])


def test_a_model_of_the_median_alone_has_no_bands():
    with pytest.raises(fc.ConfigError, match="median alone"):
        asked_columns(80, None, (0.5,))


def test_a_key_column_named_as_a_band_is_refused_where_that_band_is_asked_for_alone():
    table = tiny.plain().rename({"store": "lo-80"})
    assert "q0.1" in fc.predict(table, 7).frame.columns
    assert "lo-90" in fc.predict(table, 7, levels=90).frame.columns
    with pytest.raises(fc.DataError, match="column 'lo-80' is also a result's"):
        fc.predict(table, 7, levels=80)


@pytest.mark.long
def test_files_in_parts_and_shards_have_the_bands_of_one_call(tmp_path):
    model, table = tiny.plain_model(), tiny.plain()
    rows = model.predict(table, levels=[80, 95], quantiles=[0.3]).rows
    for shard in ((1, 2), (2, 2), None):
        model.predict_to(
            tmp_path / "ahead.parquet", table, shard=shard, levels=[80, 95], quantiles=[0.3]
        )
    assert_frame_equal(pl.read_parquet(tmp_path / "ahead.parquet"), rows)
    model.predict_to(tmp_path / "parts.parquet", table, parts=True, levels=80)
    with pytest.raises(fc.OutputError, match="levels"):
        model.predict_to(tmp_path / "parts.parquet", table, parts=True, levels=90)


def test_a_file_of_sample_paths_has_no_bands(tmp_path):
    with pytest.raises(fc.ConfigError, match="`levels`: a file of sample paths"):
        tiny.plain_model().predict_to(tmp_path / "paths.csv", tiny.plain(), samples=5, levels=80)


@pytest.mark.long
def test_a_backtest_scores_the_bands_that_were_asked_for():
    found = fc.backtest(
        tiny.plain(), 7, 2, fit=False, quiet=True, levels=[60, 95], quantiles=[0.05, 0.3]
    )
    plain = fc.backtest(tiny.plain(), 7, 2, fit=False, quiet=True)
    rows = found.rows.filter(pl.col("model") == "forecaster")
    for band in (60, 95):
        inside = rows["actual"].is_between(rows[f"lo-{band}"], rows[f"hi-{band}"]).mean()
        assert found.scores["forecaster"][f"coverage_{band}"] == pytest.approx(inside)
    below = (rows["actual"] <= rows["q0.05"]).mean()
    assert found.scores["forecaster"]["below_0.05"] == pytest.approx(below)
    assert "below_0.3" not in found.scores["forecaster"]
    for name, scores in plain.scores.items():
        assert {key: found.scores[name][key] for key in scores} == pytest.approx(scores, nan_ok=True)
    shown = [name for name in found.summary.columns if name.startswith(("cov", "below"))]
    assert shown == ["coverage_80", "coverage_60", "coverage_95", "below_0.05"]
    assert [one.band for one in found.asked_coverage] == [60, 95]
    assert found.rows.filter(pl.col("model") == "ETS")["hi-95"].is_not_null().any()
    assert "coverage_95" in found.by("lead").columns


@pytest.mark.long
def test_rows_of_a_backtest_have_the_bands_and_mean_that_each_model_forecasts():
    """Of experts alone too: within the bounds, whole, and as their own models say."""
    table = tiny.plain().with_columns((pl.col("sales") - 9).clip(0).round())
    target = {"target": {"lower": 0, "integer": True}, "tracking": {"enabled": False}}
    found = fc.backtest(table, 7, 1, fit=False, quiet=True, config=target, levels=[80, 99]).rows
    past = table.filter(pl.col("date") < tiny.day(93))
    for name, expert in (("naive", "naive"), ("ETS", "ets")):
        alone = fc.fit(past, 7, experts=expert, quiet=True, config=target).predict(
            past, levels=[80, 99]
        )
        columns = ["forecast", "mean", "lo-80", "hi-80", "lo-99", "hi-99"]
        rows = found.filter(pl.col("model") == name).select(columns)
        assert_frame_equal(rows, alone.rows.select(columns), rel_tol=1e-6)
        assert (rows["lo-99"] >= 0).all() and (rows["hi-99"] % 1 == 0).all()


def counts(rows, shops=80):
    """Daily counts, nine tenths of them 0."""
    random = np.random.default_rng(0)
    sold = random.poisson(1.5, (shops, rows)) * (random.random((shops, rows)) < 0.13)
    names = np.repeat([f"s{number:03d}" for number in range(shops)], rows)
    dates = [tiny.day(number) for number in range(rows)] * shops
    return pl.DataFrame({"shop": names, "date": dates, "sold": sold.ravel()})


@pytest.mark.parametrize("experts", [None, pytest.param("tsb", marks=pytest.mark.slow)])
def test_means_of_counts_add_up_where_medians_are_zero(experts):
    table = counts(228)
    past, future = (
        table.filter(pl.col("date") < tiny.day(200)),
        table.filter(pl.col("date") >= tiny.day(200)),
    )
    assert 0.88 < (table["sold"] == 0).mean() < 0.92
    model = fc.fit(past, 28, experts=experts, quiet=True, tracking=False) if experts else None
    rows = (model.predict(past) if model else fc.predict(past, 28, integer=True)).rows
    assert rows["forecast"].sum() < 0.5 * future["sold"].sum() and (rows["mean"] > 0).all()
    assert rows["mean"].sum() == pytest.approx(80 * 28 * 0.13 * 1.5, rel=0.08)


def test_the_mean_is_bounded_and_follows_the_scale_of_the_data():
    moved = tiny.plain().with_columns(pl.col("sales") * 3)
    one, other = ahead().rows, fc.predict(moved, 7).rows
    np.testing.assert_allclose(other["mean"], 3 * one["mean"], rtol=1e-4)
    upper = float(one["q0.6"].median())
    held = ahead(upper=upper).rows
    assert (held["mean"] <= upper).all() and (held["mean"] <= one["mean"] + 1e-6).all()
    alone = fc.predict(tiny.plain(), 7, only="b").rows
    np.testing.assert_allclose(alone["mean"], one.filter(pl.col("store") == "b")["mean"], rtol=1e-5)
