"""Backtests: cutoffs against a slow loop, scores by hand, counts exact, losses said plainly."""

from dataclasses import replace
from datetime import datetime
from functools import cache
from io import StringIO

import numpy as np
import pandas as pd
import polars as pl
import pytest
from forecast import tiny

import forecaster as fc
from forecaster.config import Config, DataConfig, ModelConfig
from forecaster.evaluation.backtest import rolling_cutoffs, run_backtest, score_forecasts
from forecaster.evaluation.bootstrap import TOO_FEW, Skill
from forecaster.evaluation.comparison import (
    EXPERT_OF,
    MODEL,
    NAIVE,
    compare_with_naive,
    name_better_models,
    tally_models,
)
from forecaster.evaluation.error_scales import Scales
from forecaster.fitting.no_fit import baseline_models
from forecaster.forecast.predictor import Predictor
from forecaster.panel.build import open_panel
from forecaster.runs.console import Screen
from forecaster.runs.fit_reporter import print_scores

HAND = (0.1, 0.5, 0.9)


def _panel(days=40, freq=None, **rows):
    table = tiny.plain(days) if not rows else pl.DataFrame(rows)
    return open_panel(table, DataConfig(freq=freq))


@cache
def _backtest():
    return tiny.network_model().backtest(tiny.plain(), windows=3, stride=5, quiet=True)


@cache
def _held():
    """A model that has not seen the last seven weeks."""
    until = tiny.day(50).isoformat()
    return fc.fit(tiny.plain(), horizon=7, until=until, config=tiny.NETWORK, quiet=True)


@pytest.mark.parametrize("windows", [1, 2, 4])
@pytest.mark.parametrize("horizon", [1, 3, 7])
@pytest.mark.parametrize("stride", [None, 1, 2, 9])
def test_cutoffs_roll_back_from_the_last_observation_by_the_stride(windows, horizon, stride):
    panel = _panel()
    days = sorted(set(panel.time.tolist()))
    slow = []
    last = len(days) - 1 - horizon
    for window in range(windows):
        slow.insert(0, days[last - window * (stride or horizon)])
    assert rolling_cutoffs(panel, windows, horizon, stride) == slow


def test_the_last_cutoff_leaves_one_horizon_of_truth_of_the_series_that_ends_last():
    ragged = tiny.plain(40).filter((pl.col("store") == "b") | (pl.col("date") <= tiny.day(20)))
    panel = open_panel(ragged, DataConfig())
    (cutoff,) = rolling_cutoffs(panel, 1, 7)
    assert panel.calendar.text(cutoff) == tiny.day(32).isoformat()
    future = ragged.with_columns(
        sales=pl.when(pl.col("date") > tiny.day(35)).then(None).otherwise("sales")
    )
    (cutoff,) = rolling_cutoffs(open_panel(future, DataConfig()), 1, 7)
    assert panel.calendar.text(cutoff) == tiny.day(28).isoformat()


def test_cutoffs_before_the_table_are_refused_with_dates():
    expected = (
        "the polars frame: 6 windows of horizon 7, 7 steps apart, reach back 42 steps, the table "
        "begins at 2024-01-01, 39 steps before its last target; 5 fit, use --windows 5"
    )
    with pytest.raises(fc.DataError, match=expected):
        rolling_cutoffs(_panel(40), 6, 7)
    with pytest.raises(fc.DataError, match="none fits, use a longer table"):
        rolling_cutoffs(_panel(40), 1, 39)
    void = tiny.plain(40).with_columns(sales=pl.lit(None, pl.Float64))
    with pytest.raises(fc.DataError, match="no target is observed, nothing to compare"):
        rolling_cutoffs(open_panel(void, DataConfig(target=("sales",))), 1, 7)


@pytest.mark.parametrize("horizon", [1, 7, 38])
@pytest.mark.parametrize("stride", [None, 1, 3])
def test_as_many_windows_fit_as_the_refusal_says(horizon, stride):
    with pytest.raises(fc.DataError, match="fit, use --windows") as refusal:
        rolling_cutoffs(_panel(40), 10**6, horizon, stride)
    most = int(str(refusal.value).split()[-1])
    assert len(rolling_cutoffs(_panel(40), most, horizon, stride)) == most
    with pytest.raises(fc.DataError, match=f"; {most} fit, use --windows {most}"):
        rolling_cutoffs(_panel(40), most + 1, horizon, stride)


def test_scores_are_over_the_cells_that_all_models_forecast():
    nan = np.nan
    # [N=1, H=4, C=1]: the second has no truth, the third no forecast of the rival.
    actual = np.array([[[10.0], [nan], [30.0], [20.0]]])
    mine = np.array([[8, 9, 12], [1, 2, 3], [0, 0, 0], [20, 24, 28]])[None, :, None]
    rival = np.array([[9, 10, 11], [1, 2, 3], [nan] * 3, [8, 10, 16]])[None, :, None]
    scales = Scales(np.array([[2.0]]), np.array([[4.0]]))
    tallies = tally_models(actual, {MODEL: mine, NAIVE: rival}, HAND, scales)
    assert tallies[NAIVE].windows["cells"].sum() == 2
    found, theirs = tallies[MODEL].overall(), tallies[NAIVE].overall()
    assert found["MSE"] == pytest.approx((1 + 16) / 2)
    assert found["RMSSE"] == pytest.approx(((1 + 16) / 2) ** 0.5 / 4)
    assert found["bias"] == pytest.approx((-1 + 4) / 2)
    assert found["width_80"] == pytest.approx((4 + 8) / 2)
    assert found["MAE"] == pytest.approx((1 + 4) / 2)
    assert found["RMSE"] == pytest.approx(((1 + 16) / 2) ** 0.5)
    assert found["MASE"] == pytest.approx((1 / 2 + 4 / 2) / 2)
    assert found["sMAPE"] == pytest.approx((200 * 1 / 19 + 200 * 4 / 44) / 2)
    # 2·max(τe, (τ − 1)e) of errors (2, 1, -2) and (0, -4, -8), over 30.
    pinball = [(0.4 + 1 + 0.4) / 3, (0 + 4 + 1.6) / 3]
    assert found["WQL"] == pytest.approx(sum(pinball) / 30)
    assert found["SQL"] == pytest.approx(sum(pinball) / 2 / 2)
    assert found["CRPS_quantiles"] == pytest.approx(sum(pinball) / 2)
    assert found["coverage_80"] == 1.0
    # The rival's errors are (1, 0, -1) and (12, 10, 4).
    naive = ((0.2 + 0 + 0.2) / 3 + (2.4 + 10 + 7.2) / 3) / 30
    assert theirs["WQL"] == pytest.approx(naive) and theirs["coverage_80"] == 0.5


@pytest.mark.long
def test_a_meter_at_23_million_is_scored_by_its_own_values():
    steps = np.random.default_rng(0).integers(0, 9, 24 * 20) / 4
    hours = pl.datetime_range(datetime(2024, 1, 1), datetime(2024, 1, 20, 23), "1h", eager=True)
    low = pl.DataFrame({"hour": hours, "kwh": steps.cumsum()})
    found = []
    for table in (low, low.with_columns(pl.col("kwh") + 23e6)):
        config = tiny.config_with(experts=[], context_length=24)
        model = fc.fit(table, horizon=12, config=config, quiet=True)
        backtest = model.backtest(table, windows=2, quiet=True)
        rows = backtest.frame.join(table, on="hour")
        assert (rows["actual"] == rows["kwh"]).all()
        error = (pl.col("forecast") - pl.col("kwh")).abs().mean()
        found.append(dict(rows.group_by("model").agg(error).rows()))
        scored = {model: scores["MAE"] for model, scores in backtest.scores.items()}
        assert found[-1] == pytest.approx(scored, rel=1e-12)
    assert found[1] == pytest.approx(found[0], rel=1e-6)


def test_every_cell_is_counted_once_and_has_its_truth():
    backtest, horizon = _backtest(), 7
    assert (backtest.scored, backtest.unscored) == (3 * 3 * horizon, 0)
    every = backtest.frame
    assert every.height == 6 * 3 * 3 * horizon
    assert every.select("model", "store", "cutoff", "lead").is_unique().all()
    rows = every.filter(model=MODEL)
    assert rows["cutoff"].unique().sort().to_list() == [tiny.day(82), tiny.day(87), tiny.day(92)]
    truth = {(store, day): sales for store, day, sales in tiny.plain().rows()}
    for store, cutoff, day, lead, actual in rows.select(
        "store", "cutoff", "date", "lead", "actual"
    ).rows():
        assert (day - cutoff).days == lead
        assert actual == truth[store, day]
    # The rows of each model give its score.
    for (name,), own in every.group_by("model"):
        error = (own["actual"] - own["forecast"]).cast(pl.Float64).abs().mean()
        assert error == pytest.approx(backtest.scores[name]["MAE"], rel=1e-5), name
        assert own["actual"].equals(rows["actual"]) and set(own["status"]) == {"ok"}


def test_seasonal_naive_is_always_in_the_table_with_its_own_scores():
    backtest = _backtest()
    everyone = [MODEL, *EXPERT_OF]
    assert list(backtest.scores) == everyone == backtest.summary["model"].to_list()
    value = {(store, day): sales for store, day, sales in tiny.plain().rows()}
    errors = [
        abs(sales - value[store, day - (tiny.day(7) - tiny.day(0))])
        for cutoff in (82, 87, 92)
        for (store, day), sales in value.items()
        if tiny.day(cutoff) < day <= tiny.day(cutoff + 7)
    ]
    assert backtest.scores[NAIVE]["MAE"] == pytest.approx(np.mean(errors), rel=1e-5)
    assert backtest.scores[NAIVE]["skill"] == 0.0
    columns = ["MAE", "RMSE", "MSE", "MASE", "RMSSE", "sMAPE", "WAPE"]
    columns += ["WQL", "SQL", "CRPS_quantiles", "bias"]
    columns += ["coverage_80", "width_80", "interval_score_80", "skill", "skill_low", "skill_high"]
    columns += ["coverage_80_ties", "coverage_80_ties_low", "coverage_80_ties_high"]
    assert list(backtest.scores[MODEL]) == columns
    shown = ["model", "MAE", "RMSE", "MASE", "sMAPE", "WQL", "coverage_80", "skill"]
    assert backtest.summary.columns == shown and "…" not in str(backtest.summary)


def test_cells_without_truth_or_forecast_stay_in_the_rows_and_out_of_the_scores():
    gone = (pl.col("store") == "b") & pl.col("date").is_between(tiny.day(94), tiny.day(95))
    late = (pl.col("store") == "c") & (pl.col("date") <= tiny.day(96))
    table = tiny.plain().filter(~gone & ~late)
    backtest = _held().backtest(table, windows=1, refit="never", quiet=True)
    assert (backtest.scored, backtest.unscored) == (7 + 5, 2 + 7)
    rows = backtest.frame.filter(model=MODEL)
    assert rows.height == 21
    b = rows.filter(pl.col("store") == "b")
    assert b["actual"].is_null().to_list() == [False, True, True] + [False] * 4
    assert b["forecast"].null_count() == 0
    c = rows.filter(pl.col("store") == "c")
    assert c["date"].to_list() == [tiny.day(92 + lead) for lead in range(1, 8)]
    assert c["forecast"].null_count() == 7
    # Its truth begins four days after the cutoff, and no other series' truth stands in its place.
    own = table.filter(pl.col("store") == "c")["sales"].to_list()
    assert c["actual"].to_list() == [None] * 4 + own
    assert c["status"].unique().to_list() == ["no target observed before the cutoff"]


def test_a_history_too_short_to_refit_on_is_refused_with_the_cutoff():
    expected = "refit before the cutoff 2024-01-02: .* horizon 7 is longer .*or use fewer `windows`"
    with pytest.raises(fc.DataError, match=expected):
        tiny.network_model().backtest(tiny.plain(), windows=14, quiet=True)


def _scored_by(forecast_at, windows=2):
    panel = open_panel(tiny.plain(), DataConfig(), schema=tiny.network_model().artifact.schema)
    cutoffs = rolling_cutoffs(panel, windows, 7)
    return run_backtest(cutoffs, lambda some: map(_beside_baselines, map(forecast_at, some)))


def _beside_baselines(forecast):
    """A forecast of the shop with those of the baselines at its cutoff."""
    (cutoff,) = set(forecast.cutoff.tolist())
    return {MODEL: forecast} | _shop_baselines(cutoff)


@cache
def _shop_baselines(cutoff):
    panel = open_panel(tiny.plain(), DataConfig(), schema=tiny.network_model().artifact.schema)
    return _baselines(panel, cutoff)


def _baseline_models(panel, cutoff):
    """Naive, drift and ETS, as they were at a cutoff."""
    config = Config(
        horizon=7,
        model=ModelConfig(quantile_levels=tiny.network_model().artifact.plan.model.quantile_levels),
    )
    return baseline_models(panel.until(cutoff), config)


def _baselines(panel, cutoff):
    """Naive, drift and ETS at a cutoff."""
    models = _baseline_models(panel, cutoff)
    return {name: Predictor(model).forecast_at(panel, cutoff) for name, model in models.items()}


@pytest.mark.long
def test_a_model_that_loses_to_seasonal_naive_is_said_to_lose():
    panel = open_panel(tiny.plain(), DataConfig(), schema=tiny.network_model().artifact.schema)

    def worse(cutoff):
        forecast = Predictor(tiny.network_model().artifact).forecast_at(panel, cutoff)
        return replace(forecast, quantiles=forecast.quantiles + np.float32(50))

    backtest = _scored_by(worse, windows=6)
    assert backtest.scores[MODEL]["skill"] < 0
    share = -100 * backtest.scores[MODEL]["skill"]
    mine = backtest.scores[MODEL]
    bounds = [-100 * mine[name] for name in ("skill_high", "skill_low")]
    interval = f"95 % interval {bounds[0]:.1f} to {bounds[1]:.1f} %"
    said, better = backtest.verdict.split("; better than it: ")
    assert said == f"loses to seasonal naive: its WQL is {share:.1f} % higher ({interval})"
    best = min(("naive", "drift", "ETS"), key=lambda name: backtest.scores[name]["WQL"])
    over = [100 * share for share in backtest.skill(best, MODEL)]
    bounds = f"95 % interval {over[1]:.1f} to {over[2]:.1f} %"
    assert better.startswith(f"{best} (WQL {over[0]:.1f} % lower, {bounds}), ")
    assert over[0] == pytest.approx(100 * (1 - backtest.scores[best]["WQL"] / mine["WQL"]))

    def truthful(cutoff):
        forecast = Predictor(tiny.network_model().artifact).forecast_at(panel, cutoff)
        return replace(forecast, quantiles=np.repeat(forecast.actual[..., None], 9, axis=-1))

    backtest = _scored_by(truthful, windows=6)
    assert backtest.scores[MODEL]["WQL"] == 0.0 and backtest.scores[MODEL]["skill"] == 1.0
    said = "beats seasonal naive: its WQL is 100.0 % lower (95 % interval 100.0 to 100.0 %)"
    assert backtest.verdict == said


@pytest.mark.parametrize(
    ("wql", "naive", "said"),
    [
        (0.3, 0.4, f"is undecided against seasonal naive: its WQL is 25.0 % lower ({TOO_FEW})"),
        (0.5, 0.4, f"is undecided against seasonal naive: its WQL is 25.0 % higher ({TOO_FEW})"),
        (0.4, 0.4, "is level with seasonal naive"),
        (0.1, 0.0, "loses to seasonal naive: its WQL is 0.1, that of seasonal naive 0"),
        (np.nan, np.nan, "cannot be compared (its WQL is not defined) with seasonal naive"),
    ],
)
def test_a_verdict_is_never_nonsense(wql, naive, said):
    skill = 1 - wql / naive if naive else np.nan
    mine = {"WQL": wql, "MASE": 1.0, "skill": skill, "skill_low": np.nan, "skill_high": np.nan}
    assert compare_with_naive(mine, {"WQL": naive, "MASE": 1.0}) == said


def _verdict(skill, low, high, mase=0.9):
    mine = {
        "WQL": 0.4 * (1 - skill),
        "MASE": mase,
        "skill": skill,
        "skill_low": low,
        "skill_high": high,
    }
    return compare_with_naive(mine, {"WQL": 0.4, "MASE": 1.0})


def test_better_worse_and_level_follow_the_interval():
    assert _verdict(0.25, 0.1, 0.35) == (
        "beats seasonal naive: its WQL is 25.0 % lower (95 % interval 10.0 to 35.0 %)"
    )
    assert _verdict(0.05, -0.02, 0.12) == (
        "is level with seasonal naive: its WQL is 5.0 % lower (95 % interval -2.0 to 12.0 %)"
    )
    assert _verdict(-0.05, -0.12, -0.01) == (
        "loses to seasonal naive: its WQL is 5.0 % higher (95 % interval 1.0 to 12.0 %)"
    )
    assert _verdict(-0.05, -0.12, 0.02) == (
        "is level with seasonal naive: its WQL is 5.0 % higher (95 % interval -2.0 to 12.0 %)"
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("windows", "stride", "known"), [(6, 7, True), (5, 7, False), (8, 1, False), (13, 3, True)]
)
def test_below_six_cutoffs_without_overlap_there_is_no_interval(windows, stride, known):
    panel = open_panel(tiny.plain(), DataConfig(), schema=tiny.network_model().artifact.schema)
    times = rolling_cutoffs(panel, windows, 7, stride)
    made = [
        {MODEL: one} | _baselines(panel, times[0])
        for one in Predictor(tiny.network_model().artifact).forecasts_at(panel, times)
    ]
    backtest = score_forecasts(made)
    mine = backtest.scores[MODEL]
    for name in ("skill_low", "skill_high", "coverage_80_ties_low", "coverage_80_ties_high"):
        assert np.isfinite(mine[name]) == known, name
    said = (backtest.verdict, backtest.coverage.line())
    assert all(("% interval" in one) == known for one in said)
    assert all((TOO_FEW in one) != known for one in said)
    assert ("is undecided against" in backtest.verdict) != known
    assert known or not backtest.findings


def test_models_of_lower_wql_are_named_best_first_by_what_their_intervals_show():
    few = {
        name: Skill(gain, np.nan, np.nan)
        for name, gain in ((NAIVE, 0.3), ("ridge", 0.2), ("drift", 0.1))
    }
    assert (
        name_better_models(few) == "; of lower WQL: ridge (WQL 20.0 % lower), drift (WQL 10.0 % lower)"
    )
    named = {"experts": Skill(0.5, 0.4, 0.6), "ridge": Skill(0.088, -0.072, 0.197)}
    assert name_better_models(named) == (
        "; better than it: experts (WQL 50.0 % lower, 95 % interval 40.0 to 60.0 %)"
        "; level with it: ridge (WQL 8.8 % lower, 95 % interval -7.2 to 19.7 %)"
    )
    many = name_better_models({name: Skill(0.5, 0.4, 0.6) for name in "abcde"})
    assert many.endswith("c (WQL 50.0 % lower, 95 % interval 40.0 to 60.0 %) and 2 more")
    assert name_better_models({}) == ""


@cache
def _each_day():
    """The forecasts at the last 34 cutoffs, a day apart, and those of the baselines as they were at the first."""
    panel = open_panel(tiny.plain(), DataConfig(), schema=tiny.network_model().artifact.schema)
    times = rolling_cutoffs(panel, 34, 7, 1)
    mine = Predictor(tiny.network_model().artifact).forecasts_at(panel, times)
    models = _baseline_models(panel, times[0])
    others = [Predictor(model).forecasts_at(panel, times) for model in models.values()]
    made = [dict(zip(models, row, strict=True)) for row in zip(*others, strict=True)]
    return [*zip(mine, made, strict=True)]


@pytest.mark.parametrize(("cutoffs", "moved", "said"), [(34, 5, True), (33, 5, False), (34, 0, False)])
def test_a_loss_to_naive_at_lead_1_is_said_where_enough_forecasts_show_it(cutoffs, moved, said):
    made = []
    for one, others in _each_day()[-cutoffs:]:
        quantiles = np.repeat(one.actual[..., None], 9, axis=-1)
        quantiles[:, 0] += moved
        made.append({MODEL: replace(one, quantiles=quantiles)} | others)
    verdict = score_forecasts(made).verdict
    sales = {(store, day): value for store, day, value in tiny.plain().rows()}
    missed = [
        abs(value - sales[store, tiny.day((day - tiny.day(0)).days - 1)])
        for (store, day), value in sales.items()
        if tiny.day(100 - 7 - cutoffs) < day <= tiny.day(100 - 7)
    ]
    assert len(missed) == 3 * cutoffs and 0 < np.mean(missed) < 5
    line = f"; at lead 1 naive has the lower MAE: {np.mean(missed):.4g} against 5"
    assert verdict.endswith(line) if said else "lead 1" not in verdict


@pytest.mark.parametrize(
    ("share", "said"), [(0.0, "0 %"), (0.74, "74 %"), (0.76, None), (1.24, None), (1.3, "130 %")]
)
def test_medians_that_add_up_to_far_from_the_actuals_are_said_to(share, said):
    def verdict(table):
        panel = open_panel(table, DataConfig(), schema=tiny.network_model().artifact.schema)
        made = []
        for one in Predictor(tiny.network_model().artifact).forecasts_at(
            panel, rolling_cutoffs(panel, 2, 7)
        ):
            quantiles = np.repeat(share * one.actual[..., None], 9, axis=-1)
            made.append({MODEL: replace(one, quantiles=quantiles)})
        return score_forecasts(made).verdict

    line = f"; its forecasts (medians) add up to {said} of the actuals"
    assert line in verdict(tiny.plain()) if said else "add up" not in verdict(tiny.plain())
    # Sums of numbers of both signs cancel.
    assert "add up" not in verdict(tiny.plain().with_columns(sales=pl.col("sales") - 60))


def test_better_bands_do_not_hide_worse_medians():
    verdict = _verdict(0.25, np.nan, np.nan, mase=1.2)
    assert verdict.endswith(f"25.0 % lower ({TOO_FEW}), but its MASE is 20.0 % higher")


def test_a_truth_of_zeros_is_scored_without_a_fault():
    zeros = tiny.plain().with_columns(
        sales=pl.when(pl.col("date") > tiny.day(70)).then(0.0).otherwise("sales")
    )
    backtest = _held().backtest(zeros, windows=1, refit="never", quiet=True)
    assert backtest.scored == 21
    assert np.isnan(backtest.scores[MODEL]["WQL"]) and np.isfinite(backtest.scores[MODEL]["MAE"])
    assert "cannot be compared" in backtest.verdict


def test_a_fit_claims_no_win_over_few_validation_cutoffs():
    scores = {MODEL: {"WQL": 0.3, "MASE": 1.0, "skill": 0.25}, NAIVE: {"WQL": 0.4, "MASE": 1.0}}
    metrics = {"steps": 5, "best_step": 5, "validation": {"scores": scores}}
    console = Screen(width=200, file=StringIO())
    print_scores(console, replace(tiny.network_model().artifact, metrics=metrics))
    said = f"WQL 0.3000 is undecided against seasonal naive 0.4000 (skill +25.0 %, {TOO_FEW})"
    assert said in console.file.getvalue()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"refit": "sometimes"}, "refit 'sometimes': expected once, each or never"),
        ({"windows": 0}, "windows 0"),
        ({"stride": 0}, "stride 0"),
        ({"refit": "never"}, "trained until 2024-04-09, the first cutoff is 2024-02-13"),
    ],
)
def test_a_backtest_that_cannot_be_honest_is_refused(options, said):
    with pytest.raises(fc.ConfigError, match=said):
        tiny.network_model().backtest(tiny.plain(), quiet=True, **options)


@pytest.mark.parametrize(
    ("axis", "key", "count"),
    [("series", "store", 3), ("lead", "lead", 7), ("cutoff", "cutoff", 3), ("channel", "channel", 1)],
)
def test_metrics_by_an_axis_are_those_of_its_rows_keyed_as_the_caller_does(axis, key, count):
    backtest = _backtest()
    found, rows = backtest.by(axis), backtest.frame.filter(model=MODEL)
    assert found.columns[:3] == [key, "model", "cells"]
    assert found.height == count * len(backtest.scores)
    mine = found.filter(pl.col("model") == MODEL)
    assert mine[key].dtype == rows[key].dtype
    for row in mine.iter_rows(named=True):
        own = rows.filter(pl.col(key) == row[key])
        error = (own["actual"] - own["forecast"]).cast(pl.Float64)
        assert row["cells"] == own.height
        assert row["MAE"] == pytest.approx(error.abs().mean(), rel=1e-6)
        inside = ((own["q0.1"] <= own["actual"]) & (own["actual"] <= own["q0.9"])).mean()
        assert row["coverage_80"] == pytest.approx(inside)
    weighted = (mine["MAE"] * mine["cells"]).sum() / mine["cells"].sum()
    assert weighted == pytest.approx(backtest.scores[MODEL]["MAE"])


def test_metrics_by_an_unknown_axis_are_refused_and_frames_are_the_callers_kind():
    with pytest.raises(
        fc.ConfigError, match="by 'shop': expected one of series, lead, cutoff, channel"
    ):
        _backtest().by("shop")
    backtest = _held().backtest(tiny.plain().to_pandas(), windows=1, refit="never", quiet=True)
    for frame in (backtest.by("lead"), backtest.frame, backtest.summary):
        assert isinstance(frame, pd.DataFrame)


def test_forecasts_at_many_cutoffs_of_series_that_begin_late_and_end_early_are_those_one_by_one():
    late = (pl.col("store") == "c") & (pl.col("date") <= tiny.day(60))
    early = (pl.col("store") == "a") & (pl.col("date") >= tiny.day(70))
    table = tiny.plain().filter(~late & ~early)
    panel = open_panel(table, DataConfig(), schema=tiny.network_model().artifact.schema)
    predictor = Predictor(tiny.network_model().artifact)
    cutoffs = rolling_cutoffs(panel, 8, 7, 6)
    together = predictor.forecasts_at(panel, cutoffs)
    assert len({id(one.panel) for one in together}) == 1
    for cutoff, found in zip(cutoffs, together, strict=True):
        alone = predictor.forecast_at(panel, cutoff)
        np.testing.assert_allclose(found.quantiles, alone.quantiles, rtol=1e-6)
        assert found.status == alone.status
        np.testing.assert_array_equal(found.actual, alone.actual)
        np.testing.assert_array_equal(found.time, alone.time)


def test_a_backtest_in_parts_of_any_size_has_the_same_scores(monkeypatch):
    panel = open_panel(tiny.plain(), DataConfig(), schema=tiny.network_model().artifact.schema)
    predictor = Predictor(tiny.network_model().artifact)
    cutoffs = rolling_cutoffs(panel, 20, 7, 2)

    def said(some):
        return ({MODEL: one} for one in predictor.forecasts_at(panel, some))

    whole = run_backtest(cutoffs, said)
    monkeypatch.setattr("forecaster.evaluation.backtest._BLOCK_CELLS", 600)
    parts = run_backtest(cutoffs, said)
    for name, mine in whole.scores.items():
        assert parts.scores[name] == pytest.approx(mine, rel=1e-6), name
    monkeypatch.setattr("forecaster.evaluation.backtest._RAM_BYTES", 600)
    filed = run_backtest(cutoffs, said)
    for mine, other in zip(filed.forecasts, parts.forecasts, strict=True):
        assert isinstance(mine.quantiles, np.memmap)
        np.testing.assert_array_equal(mine.quantiles, other.quantiles)
    assert filed.rows.equals(parts.rows) and filed.scores == parts.scores
    again = score_forecasts([{MODEL: one} for one in whole.forecasts])
    for name, mine in whole.scores.items():
        assert again.scores[name] == pytest.approx(mine, rel=1e-6), name


def test_a_shorter_horizon_scores_the_first_leads_of_the_same_forecasts():
    whole, short = (
        _held().backtest(tiny.plain(), windows=2, stride=7, refit="never", quiet=True, horizon=horizon)
        for horizon in (None, 3)
    )
    assert short.scored == 2 * 3 * 3 and [one.time.shape[1] for one in short.forecasts] == [3, 3]
    # The last cutoff leaves as many leads of truth as are scored.
    assert short.forecasts[-1].cutoff[0] > whole.forecasts[-1].cutoff[0]
    with pytest.raises(fc.ConfigError, match="horizon 8: this model forecasts 1 to 7 steps"):
        tiny.network_model().backtest(tiny.plain(), windows=2, quiet=True, horizon=8)


def test_the_skill_over_any_baseline_has_an_interval():
    backtest = _held().backtest(tiny.plain(), windows=7, stride=6, refit="never", quiet=True)
    over = backtest.skill(MODEL, "naive")
    wql = [backtest.scores[name]["WQL"] for name in (MODEL, "naive")]
    assert over.skill == pytest.approx(1 - wql[0] / wql[1]) and over.low <= over.skill <= over.high
    mine = backtest.scores[MODEL]
    assert backtest.skill() == (mine["skill"], mine["skill_low"], mine["skill_high"])


def test_the_table_of_all_models_fits_a_narrow_console():
    millions = tiny.plain().with_columns(sales=pl.col("sales") * 1e9)
    backtest = _held().backtest(millions, windows=2, refit="never", quiet=True)
    console = Screen(width=80, file=StringIO())
    console.print_summary(backtest)
    lines = console.file.getvalue().splitlines()
    assert lines[0].split() == ["model", "MAE", "RMSE", "MASE", "sMAPE", "WQL", "coverage_80", "skill"]
    for name, line in zip(backtest.scores, lines[1:], strict=False):
        assert line.startswith(name) and len(line) <= 80 and "…" not in line
        assert float(line.split()[-1]) == pytest.approx(backtest.scores[name]["skill"], abs=0.006)
    assert lines[len(backtest.scores) + 1].startswith("2 cutoffs · 42 cells scored, 0 without a truth")


def test_a_skill_over_a_perfect_seasonal_naive_is_said_in_words():
    perfect = {"WQL": 0.0, "MASE": 0.0, "skill": np.nan}
    scores = {MODEL: perfect | {"WQL": 0.1}, NAIVE: perfect}
    metrics = {"steps": 5, "best_step": 5, "validation": {"scores": scores}}
    console = Screen(width=200, file=StringIO())
    print_scores(console, replace(tiny.network_model().artifact, metrics=metrics))
    said = "validation WQL 0.1000 loses to seasonal naive 0.0000, which makes no error"
    assert said in console.file.getvalue() and "nan" not in console.file.getvalue()
