"""Backtests that update the model as time goes on, and resume from the models they have kept; runs of monitors."""

from functools import cache

import numpy as np
import polars as pl
import pytest
from evaluation.test_monitor import model as in_use
from evaluation.test_monitor import shop as changed
from forecast import tiny
from mlflow.tracking import MlflowClient

import forecaster as fc
from forecaster.errors import ConfigError
from forecaster.runs import pipeline

ROLL = {"windows": 4, "refit": "never", "update_every": "14d", "quiet": True}


def shop(days=128):
    """The plain shop with as many days as there are, of one draw."""
    return tiny.plain(128).filter(pl.col("date") < tiny.day(days))


@cache
def model():
    return fc.fit(shop(100), horizon=7, config=tiny.NETWORK, quiet=True)


@cache
def rolled():
    return model().backtest(shop(), **ROLL)


@pytest.mark.long
def test_a_backtest_with_updates_is_explicit_updates_and_forecasts():
    current, number = model(), 0
    for number, forecast in enumerate(rolled().forecasts):
        known = 100 + 7 * number
        if number == 2:  # two cutoffs of a week are served by one model of two weeks
            current = current.update(shop(known), quiet=True)
        twin = current.predict(shop(known))
        np.testing.assert_allclose(forecast.quantiles, twin.quantiles, rtol=1e-6)
    assert number == 3
    assert rolled().forecasts[-1].artifact.trained_until > model().artifact.trained_until


@pytest.mark.long
def test_no_row_after_a_cutoff_changes_its_forecast():
    later = pl.col("date") >= tiny.day(121)
    noised = shop().with_columns(pl.when(later).then(1e4).otherwise(pl.col("sales")).alias("sales"))
    twin = model().backtest(noised, **ROLL)
    for ours, theirs in zip(rolled().forecasts, twin.forecasts, strict=True):
        assert tiny.bits(ours.quantiles) == tiny.bits(theirs.quantiles)
    assert twin.scores["forecaster"]["MAE"] > rolled().scores["forecaster"]["MAE"]


@pytest.mark.long
def test_a_backtest_that_is_stopped_resumes_from_the_models_it_kept(tmp_path, monkeypatch):
    made, kept = [], tmp_path / "rows.csv.run"

    def counting(*args):
        if len(made) == 1:
            made.append(None)
            raise KeyboardInterrupt
        made.append(update(*args))
        return made[-1]

    update = pipeline.updated
    options = ROLL | {"update_every": 7, "keep": kept}
    whole = model().backtest(shop(), **options | {"keep": None})
    monkeypatch.setattr(pipeline, "updated", counting)
    with pytest.raises(KeyboardInterrupt):
        model().backtest(shop(), **options)
    assert len([*kept.glob("*/*/contract.json")]) == 1
    resumed = model().backtest(shop(), **options)
    assert len(made) == 4 and not kept.exists()  # one before, the one that was stopped, two after
    for ours, theirs in zip(resumed.forecasts, whole.forecasts, strict=True):
        np.testing.assert_allclose(ours.quantiles, theirs.quantiles, rtol=1e-6)


@pytest.mark.long
def test_the_shell_keeps_models_beside_its_rows(shell, tmp_path):
    model().save(tmp_path / "model")
    shop().write_csv(tmp_path / "shop.csv")
    words = [
        "--windows",
        "2",
        "--refit",
        "never",
        "--update-every",
        "1",
        "--out",
        tmp_path / "rows.csv",
    ]
    answer = shell("backtest", tmp_path / "model", tmp_path / "shop.csv", "--no-tracking", *words)
    assert answer.code == 0 and "updating the model" not in answer.err
    assert {path.name for path in tmp_path.iterdir()} == {"model", "shop.csv", "rows.csv"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"refit": "each"}, "once or never: between updates nothing is fitted anew"),
        ({"update_every": "1h"}, "a duration of at least a step of 1d"),
        ({"update_every": "soon"}, "expected a duration"),
    ],
)
def test_updates_that_make_no_sense_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        model().backtest(shop(), **ROLL | options)


@pytest.mark.long
def test_a_monitor_is_a_run_with_its_verdict_and_shares_over_time(place):
    tracked = fc.Forecaster(in_use().artifact, fc.Config().tracking)
    tracked.monitor(changed("level"), quiet=True)
    client = MlflowClient(tracking_uri=f"sqlite:///{place}/mlflow.db")
    experiment = client.get_experiment_by_name("forecaster")
    (run,) = client.search_runs([experiment.experiment_id], "tags.kind = 'monitor'")
    history = client.get_metric_history(run.info.run_id, "monitor/coverage")
    assert [point.step for point in history] == [0, 1] and history[0].value < 0.5
    assert "the level of s0 rose" in run.data.tags["verdict"]
    assert {"monitor.png", "monitor.html"} <= {
        one.path for one in client.list_artifacts(run.info.run_id)
    }


@pytest.mark.long
def test_an_update_is_a_run_under_that_of_its_model(place):
    first = fc.fit(shop(100), horizon=7, config=tiny.TINY | {"tracking": {"enabled": True}}, quiet=True)
    first.update(shop(), refit="bands", quiet=True)
    client = MlflowClient(tracking_uri=f"sqlite:///{place}/mlflow.db")
    experiment = client.get_experiment_by_name("forecaster").experiment_id
    fit, update = (
        client.search_runs([experiment], f"tags.kind = '{kind}'")[0] for kind in ("fit", "update")
    )
    assert update.data.tags["mlflow.parentRunId"] == fit.info.run_id
    assert update.data.tags["parent.until"] == tiny.day(99).isoformat()
