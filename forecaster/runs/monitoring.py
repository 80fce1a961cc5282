"""Monitors a model: forecasts of rows that have come, made earlier or again, scored, judged and recorded."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from forecaster.config import TrackingConfig
from forecaster.errors import ConfigError
from forecaster.evaluation.backtest import Backtest, ForecastsByModel, other_forecast, run_backtest
from forecaster.evaluation.comparison import MODEL, NO_FIT
from forecaster.evaluation.drift import drifts
from forecaster.evaluation.monitor import NEWEST, Blocks, Monitor, monitor_page
from forecaster.evaluation.others import placed
from forecaster.fitting.no_fit import baseline_models, defaults_of, unfitted
from forecaster.fitting.update import check_dated
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.error_levels import earlier_cutoffs
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.source import coded
from forecaster.panel.forecast_rows import OtherForecasts, read_others
from forecaster.panel.panel import Panel
from forecaster.runs.console import Screen
from forecaster.runs.tracking import Point, open_run

_MOST = 40  # cutoffs
_PAST = 20
PAGE = "monitor.html"


def run_monitor(
    artifact: Artifact,
    panel: Panel,
    files: Sequence[object],
    console: Screen,
    tracking: TrackingConfig,
    name: str | None = None,
) -> Monitor | None:
    """Returns what earlier forecasts were worth; None where no truth has come.

    Args:
        artifact: the model.
        panel: the table as it is now, opened with the model's schema.
        files: tables of earlier forecasts; none = the model forecasts again, at cutoffs after its last row.
        console: receives what is printed.
        tracking: where the run is recorded.
        name: of the run; None = after the table.

    Raises:
        DataError: rows have no times, or forecasts do not fit the table.
        ConfigError: they reach further than the model does.
    """
    check_dated(panel)
    given = [read_others(one, panel) for one in files]
    _check_given(given, artifact)
    since, end, calendar = artifact.trained_until, panel.last_time(), panel.calendar
    if given:
        cutoffs = np.unique(np.concatenate([one.cutoff for one in given]))
        cutoffs = cutoffs[cutoffs < end]
        since = int(cutoffs.min(initial=end))
    else:
        steps = int(calendar.steps(since, end))
        number = np.arange(0, max(0, steps), artifact.horizon)
        cutoffs = np.asarray(calendar.shift(since, number[-_MOST:]))
    if not len(cutoffs):
        console.print_line(f"no truth has come after {calendar.text(since)}: nothing to judge yet")
        return None
    with open_run(tracking, name or f"monitor {Path(panel.name).stem}", kind="monitor") as run:
        with console.stage("forecasting at earlier cutoffs"):
            seen, config = panel.until(since), defaults_of(artifact)
            models = {MODEL: artifact, NO_FIT: unfitted(seen, config), **baseline_models(seen, config)}
            new = _scored(models, panel, cutoffs.tolist(), given)
            earlier = sorted(map(int, earlier_cutoffs(panel, since, artifact.horizon, _PAST)))
            past = _scored({MODEL: artifact}, panel, earlier, []) if earlier else None
        found = drifts(panel, since, NEWEST * artifact.horizon)
        monitor = Monitor(**vars(new), past=past, since=since, drifts=tuple(found))
        if run.recorded:
            run.log_metrics(_points(monitor.blocks))
            run.log_tags({"verdict": monitor.sentence[:5000]})
            run.log_dataset(panel.name, panel.fingerprint(), panel.schema, "monitoring")
            drawings = {
                "monitor.png": lambda: run.log_figure(monitor.plot(), "monitor.png"),
                PAGE: lambda: run.log_text(monitor_page(monitor), PAGE),
            }
            console.draw(drawings, "the scores are complete")
    console.print_tracked(run)
    return monitor


def _check_given(given: Sequence[OtherForecasts], artifact: Artifact) -> None:
    horizon, levels = artifact.horizon, artifact.plan.model.quantile_levels
    for one in given:
        farthest = int(one.lead.max(initial=0))
        if farthest > horizon:
            raise ConfigError(
                f"{one.name}: expected forecasts of this model, which forecasts {horizon} steps, found one "
                f"{farthest} steps ahead: give the model that made them"
            )
        if missing := [f"q{level:g}" for level in levels if not np.isclose(one.levels, level).any()]:
            raise ConfigError(
                f"{one.name}: expected the quantiles of this model, as predict writes them without --levels; "
                f"{', '.join(missing)} are missing"
            )


def _scored(
    models: Mapping[str, Artifact],
    panel: Panel,
    cutoffs: Sequence[int],
    given: Sequence[OtherForecasts],
) -> Backtest:
    predictors = {name: (Predictor(one), coded(panel, one)) for name, one in models.items()}

    def forecasts(some: Sequence[int]) -> Iterator[ForecastsByModel]:
        made = [one.forecasts_at(own, some) for one, own in predictors.values()]
        for each in zip(*made, strict=True):
            found: dict[str, Forecast] = dict(zip(predictors, each, strict=True))
            yield found | {MODEL: _as_given(found[MODEL], given)}

    return run_backtest(cutoffs, forecasts)


def _as_given(forecast: Forecast, given: Sequence[OtherForecasts]) -> Forecast:
    """The forecast as earlier tables have it, NaN where none has."""
    if not given:
        return forecast
    quantiles = np.full_like(forecast.quantiles, np.nan)
    for one in given:
        quantiles = np.where(np.isnan(quantiles), placed(one, forecast, forecast.levels), quantiles)
    return replace(other_forecast(forecast, quantiles), source=None)


def _points(blocks: Blocks) -> list[Point]:
    now = int(time.time() * 1000)
    named = {"coverage": blocks.inside, "loss_over_seasonal_naive": blocks.loss, "bias": blocks.bias}
    return [
        (f"monitor/{name}", float(value), now, step)
        for name, values in named.items()
        for step, value in enumerate(values)
        if np.isfinite(value)
    ]
