"""Pools of experts: which suit a table, what they weigh, and one expert as a model of its own."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from forecast import tiny

import forecaster as fc
from forecaster.errors import ConfigError
from forecaster.evaluation.baselines import seasonal_naive
from forecaster.evaluation.error_scales import Histories
from forecaster.fitting.experts.pool import fit_experts
from forecaster.fitting.fit import fit_panel, resolve
from forecaster.forecast.predictor import Predictor
from forecaster.model.experts import GENERAL, SEASONAL
from forecaster.panel.build import open_panel


@pytest.mark.usefixtures("paged")
def test_one_expert_is_a_model_without_a_network(tmp_path, capsys):
    table = tmp_path / "shop.csv"
    tiny.shop().write_csv(table)
    fc.fit(table, 7, experts="seasonal_naive", out=tmp_path / "model", tracking=False)
    printed = capsys.readouterr().out
    assert "no network to train" in printed
    assert "experts: seasonal_naive 100 %; network weight 0 %" in printed
    model = fc.load(tmp_path / "model")
    panel = model.open(table)
    values, cutoff, series = panel.values[:, :1], panel.last_observed, np.arange(panel.n_series)
    expected = seasonal_naive(Histories(values, panel.indptr, cutoff, series), 7, 7, (0.5,))
    np.testing.assert_allclose(model.predict(table).median, expected[..., 0], rtol=1e-6)
    assert model.artifact.plan.model.width == 4
    assert "seasonal_naive 100 %" in (tmp_path / "model" / "report.html").read_text()


@pytest.mark.parametrize("validation", [0.15, None])
def test_weights_of_experts_and_network_are_measured(make_panel, make_config, validation):
    names = ["naive", "theta", "linear"]
    config = make_config(4, model={"experts": names}, fit={"validation": validation})
    panel = make_panel(2, 60)
    metrics = fit_panel(panel, *resolve(panel, config)).metrics
    assert [*metrics["expert_weights"]] == names and 0 <= metrics["network_weight"] <= 1
    assert sum(metrics["expert_weights"].values()) == pytest.approx(1)
    # Noise around a level: the last value is a poor forecast.
    assert metrics["expert_weights"]["naive"] < 0.2


def test_experts_that_do_not_suit_a_table_are_left_out_or_refused(make_panel, make_config):
    hours = make_panel(1, 24 * 20)
    names = resolve(hours, make_config(4, model={"experts": None}))[0].model.pool.experts
    assert {*GENERAL, *SEASONAL, "linear"} <= {*names} and "tsb" not in names
    with pytest.raises(ConfigError, match=r"model.experts tsb: .* has no season or demand for it"):
        resolve(hours, make_config(4, model={"experts": ["naive", "tsb"]}))
    assert not resolve(hours, make_config(4, model={"experts": None, "head": "binned"}))[
        0
    ].model.pool.experts


def test_bands_of_experts_hold_what_they_claim_on_unseen_rows(make_panel, make_config):
    panel = make_panel(1, 600)
    plan, split = resolve(panel, make_config(4, model={"experts": None}, fit={"validation": 0.3}))
    predictor = Predictor(fit_experts(panel, plan, split))
    cutoff = np.arange(430, 590)
    quantiles = predictor.quantiles(panel, 0 * cutoff, cutoff)[..., 0, :]
    truth = panel.values[cutoff[:, None] + np.arange(1, 5), 0]
    inside = (quantiles[..., 0] <= truth) & (truth <= quantiles[..., -1])
    assert abs(inside.mean() - 0.8) < 0.08


def test_drivers_have_the_units_of_training_rows_where_series_share_a_level(make_panel, make_config):
    panel = make_panel(2, 300, targets=2)
    alike = replace(panel, values=np.concatenate([panel.values[:300]] * 2))
    apart = replace(alike, values=alike.values + 1e3 * alike.owner[:, None])
    config = make_config(4, model={"experts": None})
    units = [resolve(panel, config)[0].model.pool.driver_units for panel in (alike, apart)]
    assert units == ["training", "window"]


def test_bands_are_narrower_at_quiet_hours_of_the_day(make_panel, make_config):
    panel = make_panel(1, 1200)
    noise, hour = np.random.default_rng(1).normal(size=1200), np.arange(1200) % 24
    panel = replace(panel, values=np.where(hour < 8, 0.2 * noise, noise)[:, None])
    plan, split = resolve(panel, make_config(24, model={"experts": None}, fit={"validation": 0.4}))
    predictor = Predictor(fit_experts(panel, plan, split))
    cutoff = np.arange(730, 1170)
    quantiles = predictor.quantiles(panel, 0 * cutoff, cutoff)[..., 0, :]
    quiet = hour[cutoff[:, None] + np.arange(1, 25)] < 8
    width = quantiles[..., -1] - quantiles[..., 0]
    # Of 0.2: what was quiet for a few seasons often did not stay so where attention learned.
    assert 0.2 < width[quiet].mean() / width[~quiet].mean() < 0.8


@pytest.mark.long
def test_the_median_of_tsb_is_one_and_not_its_mean():
    draw = np.random.default_rng(0)
    demand = draw.poisson(3.0, (8, 200)) * (
        draw.random((8, 200)) < 0.25
    )  # a mean of 0.75, a median of 0
    days = np.datetime64("2024-01-01") + np.arange(200)
    table = pl.concat(
        pl.DataFrame({"id": f"p{number}", "day": days, "y": own}) for number, own in enumerate(demand)
    )
    backtest = fc.backtest(table, horizon=14, experts="tsb", windows=3, tracking=False, quiet=True)
    above = np.concatenate([(one.actual > one.median).ravel() for one in backtest.forecasts])
    assert 0.15 < above.mean() < 0.35  # those above 0
    assert backtest.scores["forecaster"]["MAE"] < 0.85 * np.abs(demand - demand.mean()).mean()
    assert 0.7 < backtest.scores["forecaster"]["coverage_80"] < 0.95


@pytest.mark.long
def test_counts_with_zeros_are_never_forecast_below_0():
    hour = np.arange(24 * 40) % 24
    counts = np.random.default_rng(0).poisson(np.where((hour > 6) & (hour < 21), 5.0, 0.0))
    table = pl.DataFrame({"t": np.arange(len(hour)), "y": counts})
    options = {"horizon": 24, "season_length": 24, "quiet": True, "tracking": False}
    for bounds, below in ({}, False), ({"lower": -99.0}, True):
        config = {"model": {"experts": ["seasonal_mean"]}, "target": bounds}
        rows = fc.fit(table, config=config, **options).predict(table).frame
        assert (rows["q0.1"].min() < 0) == below


def test_cutoffs_are_a_horizon_apart_where_a_table_is_shorter_than_the_season_of_its_step(make_config):
    time = np.arange("2024-01-01T00:00", "2024-01-01T12:00", dtype="M8[m]").astype("M8[us]")
    table = pl.DataFrame({"time": time, "y": np.random.default_rng(0).normal(size=720)})
    config = make_config(40, model={"experts": None})
    pool = resolve(open_panel(table, config.data), config)[0].model.pool
    assert (pool.seasons, pool.cutoff_spacing) == ((1, 0), 40)
