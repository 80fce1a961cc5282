"""Joint paths through the whole program: keys, counts, horizons, refusals."""

from functools import cache

import numpy as np
import polars as pl
import pytest
from forecast import tiny
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

import forecaster as fc
from forecaster.cli import app
from forecaster.evaluation import metrics
from forecaster.evaluation.backtest import rolling_cutoffs, run_backtest
from forecaster.evaluation.comparison import MODEL
from forecaster.forecast.paths import path_keys
from forecaster.forecast.predictor import Predictor

FOLLOWS = {"decoder": "autoregressive", "patch": 2}


@cache
def follower() -> fc.Forecaster:
    """An autoregressive model of the shop without covariates."""
    return fc.fit(tiny.plain(), horizon=7, config=tiny.config_with(**FOLLOWS), quiet=True)


def test_samples_have_a_row_per_series_channel_path_and_lead():
    forecast = follower().predict(tiny.plain(), samples=5)
    rows = forecast.samples
    names = ["store", "cutoff", "date", "lead", "channel", "sample", "value", "status"]
    assert rows.columns == names
    keys = [(store, n, lead) for store in tiny.STORES for n in range(5) for lead in range(1, 8)]
    assert rows.select("store", "sample", "lead").rows() == keys
    assert rows["date"].to_list() == [tiny.day(99 + lead) for lead in range(1, 8)] * 15
    assert np.array_equal(rows["value"].to_numpy(), forecast.paths.transpose(0, 3, 1, 2).ravel())
    assert rows.schema["value"] == pl.Float64 and rows.schema["sample"] == pl.Int32
    quantiles = np.quantile(forecast.paths, [n / 10 for n in range(1, 10)], axis=1)
    np.testing.assert_allclose(forecast.quantiles, quantiles.transpose(1, 2, 3, 0), rtol=1e-5)
    assert forecast.rows.columns[4:7] == ["channel", "forecast", "mean"]


@pytest.mark.parametrize("head", ["student_t", "binned"])
def test_the_mean_stands_beside_the_median_of_every_head(head):
    table = tiny.plain(60).with_columns(pl.col("sales").round(0).clip(0))
    rows = fc.fit(table, horizon=3, config=tiny.config_with(head=head), quiet=True).predict(table).rows
    assert rows["mean"].is_finite().all() and tiny.ahead().rows["mean"].is_finite().all()
    assert rows["status"].unique().to_list() == ["ok"] and rows["q0.9"].is_finite().all()


def test_paths_are_those_of_seed_series_and_cutoff_whatever_stands_beside_them():
    table, model = tiny.plain(), follower()
    paths = model.predict(table, samples=4).paths
    assert np.array_equal(model.predict(table, samples=4).paths, paths)
    alone = model.predict(table.filter(pl.col("store") == "b"), samples=4).paths
    np.testing.assert_allclose(alone[0], paths[1], rtol=1e-5)
    turned = model.predict(
        table.reverse().sort("store", descending=True, maintain_order=True), samples=4
    )
    order = [turned.panel.series_names.index(store) for store in tiny.STORES]
    np.testing.assert_allclose(turned.paths[order], paths, rtol=1e-5)
    earlier = model.predict(table.filter(pl.col("date") <= tiny.day(90)), samples=4).paths
    same = model.predict(table, cutoff=str(tiny.day(90)), samples=4).paths
    np.testing.assert_allclose(earlier, same, rtol=1e-5)
    assert not np.isclose(model.predict(table, samples=4, seed=1).paths, paths).any()


def test_the_keys_of_paths_are_fixed_for_ever():
    """Published paths can be drawn again by any later version."""
    panel = follower().open(tiny.plain())
    found = path_keys(panel, np.array([0, 2, 2]), np.array([7, 7, -8]), seed=0)
    assert found.tolist() == [-2529606707029578402, 2751795290426956838, 2134526447211193610]
    assert path_keys(panel, np.array([0]), np.array([7]), seed=1)[0] != found[0]


def test_a_shorter_horizon_is_an_exact_prefix_and_a_longer_one_goes_on():
    table, model = tiny.plain(), follower()
    full = model.predict(table, samples=4)
    for horizon in (1, 3, 6):
        part = model.predict(table, horizon=horizon, samples=4)
        assert tiny.bits(part.paths) == tiny.bits(full.paths[:, :, :horizon])
        assert tiny.bits(part.quantiles) == tiny.bits(full.quantiles[:, :horizon])
    longer = model.predict(table, horizon=20, samples=4)
    np.testing.assert_allclose(longer.paths[:, :, :6], full.paths[:, :, :6], rtol=1e-5)
    assert longer.rows["date"].max() == tiny.day(119) and longer.status == ("ok",) * 3
    with pytest.raises(fc.ConfigError, match="horizon 0: expected 1 or more steps"):
        model.predict(table, horizon=0)


def test_beyond_the_trained_horizon_known_covariates_must_reach_as_far():
    model = fc.fit(
        tiny.shop(), horizon=7, known="price", config=tiny.config_with(**FOLLOWS), quiet=True
    )
    longer = model.predict(tiny.shop(), future=tiny.prices(ahead=12), horizon=12)
    assert longer.quantiles.shape == (3, 12, 1, 9) and np.isfinite(longer.quantiles).all()
    with pytest.raises(fc.DataError, match=r"'price' is known .* \(lead 13 of 15\)"):
        model.predict(tiny.shop(), future=tiny.prices(ahead=12), horizon=15)


def test_beyond_what_learned_positions_cover_is_refused_with_the_numbers():
    settings = tiny.config_with(**FOLLOWS, positions="learned")
    model = fc.fit(tiny.plain(60), horizon=7, config=settings, quiet=True)
    reached = model.predict(tiny.plain(60), horizon=8)  # four patches of two steps
    assert reached.quantiles.shape[1] == 8
    with pytest.raises(fc.ConfigError, match=r"horizon 9: the learned positions .* cover 8 steps"):
        model.predict(tiny.plain(60), horizon=9)


def test_paths_that_were_not_asked_for_or_are_none_are_refused():
    with pytest.raises(fc.ConfigError, match="samples 0: expected 1 or more"):
        follower().predict(tiny.plain(), samples=0)
    with pytest.raises(fc.ConfigError, match="samples 50000000: expected at most 100,000"):
        follower().predict(tiny.plain(), samples=50_000_000)
    with pytest.raises(fc.ConfigError, match="no sample paths: request them"):
        _ = follower().predict(tiny.plain()).samples


def test_a_series_without_a_forecast_keeps_its_sample_rows_and_its_reason():
    silent = tiny.plain().filter(pl.col("store") == "a")
    silent = silent.with_columns(store=pl.lit("silent"), sales=pl.lit(None, pl.Float64))
    rows = follower().predict(pl.concat([tiny.plain(), silent]), samples=3).samples
    last = rows.filter(pl.col("store") == "silent")
    assert rows.height == 4 * 3 * 7 and last["value"].null_count() == 21
    assert last["status"].unique().to_list() == ["no target observed before the cutoff"]


def test_the_command_line_writes_the_paths_that_python_gives(tmp_path):
    follower().save(tmp_path / "model")
    tiny.plain().write_csv(tmp_path / "shop.csv")
    arguments = ["predict", str(tmp_path / "model"), str(tmp_path / "shop.csv"), "--samples", "4"]
    out = tmp_path / "paths.parquet"
    result = CliRunner().invoke(app, [*arguments, "--seed", "3", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "4 paths of each series" in result.output
    expected = follower().predict(tmp_path / "shop.csv", samples=4, seed=3).samples
    assert_frame_equal(pl.read_parquet(out), expected)


def test_a_backtest_of_an_autoregressive_model_scores_the_paths_it_draws():
    model = follower()
    panel = model.open(tiny.plain())
    cutoffs = rolling_cutoffs(panel, 3, 7)
    predictor = Predictor(model.artifact)
    made = predictor.forecasts_at(panel, cutoffs, num_samples=100)
    backtest = run_backtest(cutoffs, lambda some: ({MODEL: made[cutoffs.index(one)]} for one in some))
    slow = [
        metrics.crps(one.actual.transpose(0, 2, 1), one.paths.transpose(0, 3, 2, 1)) for one in made
    ]
    assert backtest.scores[MODEL]["CRPS"] == pytest.approx(np.mean(slow), rel=1e-6)
    by_lead = backtest.by("lead").filter(pl.col("CRPS").is_not_null())
    assert by_lead["model"].unique().to_list() == [MODEL] and len(by_lead) == 7
    assert "CRPS" not in backtest.scores["seasonal naive"] and backtest.forecasts[0].paths is None
    # The quantiles are of the same paths, whether these are kept or not.
    for one, bare in zip(made, predictor.forecasts_at(panel, cutoffs), strict=True):
        np.testing.assert_allclose(one.quantiles, bare.quantiles, rtol=1e-5)
    assert "CRPS" in model.backtest(tiny.plain(), windows=1, quiet=True).scores[MODEL]


@pytest.mark.slow
def test_weekly_sums_of_a_fitted_ar1_process_have_the_known_variance():
    """y[t] = 0.8·y[t−1] + ε: the sum of 7 has variance Σ ((1 − 0.8^k) / 0.2)², k = 1 … 7: 59.4.

    Taken as independent, the same leads would have a sum of variance 15.
    """
    phi, rng = 0.8, np.random.default_rng(0)
    noise, values = rng.normal(size=(40, 400)), np.zeros((40, 400))
    for step in range(1, 400):
        values[:, step] = phi * values[:, step - 1] + noise[:, step]
    table = pl.DataFrame(
        {
            "id": np.repeat([f"s{n}" for n in range(40)], 400),
            "day": [tiny.day(n) for n in range(400)] * 40,
            "y": values.ravel(),
        }
    )
    settings = {
        "model": {"decoder": "autoregressive", "patch": 1, "context_length": 56, "width": 16},
        "fit": {"steps": 400, "batch_size": 128},
        "tracking": {"enabled": False},
    }
    paths = fc.fit(table, horizon=7, config=settings, quiet=True).predict(table, samples=400).paths
    found = paths[..., 0].sum(axis=2).var(axis=1).mean()
    known = sum(((1 - phi**k) / (1 - phi)) ** 2 for k in range(1, 8))
    assert found == pytest.approx(known, rel=0.2)
    apart = paths[..., 0].var(axis=1).sum(axis=1).mean()
    assert found > 3 * apart
