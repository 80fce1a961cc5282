"""What the accuracy benchmarks share: tasks, fits, and scores window by window.

Scored are our model, its linear expert alone (ridge) and seasonal naive; each fit is an MLflow run. A
fit reads only the rows before the first scored one; no window is dropped; every model is scored on the
same cells.

A score is kept window by window as a pair (error, weight). Its value is Σ error / Σ weight, so that
means, sums over counts and ratios of sums are one thing, and any windows can be drawn and scored again.

Axes: N windows · H lead · C channel · Q quantile level.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from forecaster.config import Config, TrackingConfig
from forecaster.errors import DataError
from forecaster.evaluation.baselines import seasonal_naive
from forecaster.evaluation.comparison import MODEL, RIDGE
from forecaster.evaluation.error_scales import Histories, scales_at
from forecaster.evaluation.metrics import pinball
from forecaster.fitting.context import TrainingContext
from forecaster.fitting.fit import fit_panel, resolve
from forecaster.fitting.plan import with_found_cycles
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.saved_model import save_artifact
from forecaster.panel.categories import recoded
from forecaster.panel.panel import Panel
from forecaster.runs.progress import TrainingBar
from forecaster.runs.tracking import log_artifact, open_run, score_points

NAIVE = "seasonal_naive"
_BLOCK_CELLS = 1 << 21  # quantiles scored at a time, 16 MB in float64

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
ForecastPart = Callable[[slice], NDArray[np.float64]]
"""A part of a task's windows → quantiles [n, H, C, Q], data units."""
Scores = dict[str, Floats]
"""By metric, (error, weight) of each window: [N, 2]."""
Found = dict[tuple[str, int, int, str], Scores]
"""By data set, horizon, seed and model."""


@dataclass(frozen=True)
class Task:
    """The rows a model is fitted to, and the windows it then forecasts."""

    dataset: str
    """Its name in rows and tables."""
    seen: Panel
    """The rows before the first scored one."""
    panel: Panel
    """The same with as many rows after every cutoff as are forecast."""
    series: Rows
    """[N] series of each window."""
    cutoff: Rows
    """[N] row of `panel`: the last step that may be seen."""
    actual: NDArray[np.float64]
    """[N, H, C] what followed; NaN = missing, not scored."""
    seasons: tuple[int, ...]
    """Of a seasonal naive each; the first is that of MASE's and SQL's scale."""
    trains_until: int | None = None
    """Last row that trains, where the protocol has one; None = as `fit.validation` says."""

    @property
    def horizon(self) -> int:
        """Leads."""
        return self.actual.shape[1]


def last_windows(
    dataset: str, panel: Panel, horizon: int, windows: int, seasons: tuple[int, ...], earlier: int = 0
) -> Task:
    """Returns the task of the last windows of one series, which do not overlap.

    Args:
        dataset: its name.
        panel: the whole table, of one series.
        horizon: leads, and steps between cutoffs.
        windows: how many.
        seasons: as in `Task`.
        earlier: spans of so many windows that lie between these and the end; their rows are cut off.

    Raises:
        DataError: there is not as much history.
    """
    span, rows = horizon * windows, int(panel.last_observed.max()) + 1
    end = rows - earlier * span
    least = span + 2 * max(horizon, *seasons)
    if panel.n_series != 1 or not panel.regular or end < least:
        raise DataError(
            f"{panel.name}: expected one series of {least + earlier * span:,} regular rows or more, "
            f"the last {span:,} to be scored; found {panel.n_series:,} series and {rows:,} rows"
        )
    begin = panel.indptr[:-1]
    panel = panel.cut(begin, np.array([end]))
    cutoff = np.arange(end - span - 1, end - 1, horizon)
    assert len(cutoff) == windows
    return Task(
        dataset=dataset,
        seen=panel.cut(begin, np.array([end - span])),
        panel=panel,
        series=np.zeros(windows, np.int64),
        cutoff=cutoff,
        actual=followed(panel, cutoff, horizon),
        seasons=seasons,
    )


def followed(panel: Panel, cutoff: Rows, horizon: int) -> NDArray[np.float64]:
    """Returns [N, H, C] the targets after each cutoff row of a panel."""
    ahead = cutoff[:, None] + np.arange(1, horizon + 1)
    actual: NDArray[np.float64] = panel.values[ahead, : panel.n_channels]
    return actual


def compare(
    tasks: Sequence[Task], config: Config, seeds: int, metrics: Sequence[str], stage: str
) -> Found:
    """Returns the scores of all models on tasks of one data set, each with a fit of its own.

    Args:
        tasks: the test span, or spans before it.
        config: of all fits.
        seeds: fits of each.
        metrics: as `scored` knows them.
        stage: "test", or "validation" where the windows are for choosing.
    """
    found: Found = {}
    dataset, horizon, levels = tasks[0].dataset, tasks[0].horizon, config.model.quantile_levels
    naive = [
        {name: scored(task, one, metrics, levels) for name, one in naives(task, levels).items()}
        for task in tasks
    ]
    for seed in range(seeds):
        begun, parts = time.monotonic(), dict[str, list[Scores]]()
        for task, its in zip(tasks, naive, strict=True):
            models = fitted(task, config, seed)
            mine = its | {
                name: scored(task, forecaster_of(task, one), metrics, levels)
                for name, one in models.items()
            }
            for name, scores in mine.items():
                parts.setdefault(name, []).append(scores)
            record(task, models[MODEL], config.tracking, mine, stage)
        for name, several in parts.items():
            joined = {m: np.concatenate([scores[m] for scores in several]) for m in metrics}
            found[dataset, horizon, seed, name] = joined
        say(
            f"{dataset} · {horizon} steps · seed {seed} · {sum(len(t.cutoff) for t in tasks):,} "
            f"windows · {time.monotonic() - begun:.0f} s · {'/'.join(metrics)}: "
            + " · ".join(f"{name} {_brief(found[dataset, horizon, seed, name])}" for name in parts)
        )
    return found


def fitted(task: Task, config: Config, seed: int) -> dict[str, Artifact]:
    """Returns the model of a task and, where it has one, its linear expert alone.

    Args:
        task: whose `seen` rows it is fitted to.
        config: with everything but horizon and seed.
        seed: number of the fit; members have consecutive seeds, different in every fit.
    """
    config = config.replaced(horizon=task.horizon, fit={"seed": seed * config.fit.ensemble_size})
    seen, last = with_found_cycles(task.seen, config), task.trains_until
    if last is not None:
        config = config.replaced(fit={"validation": 1 - (last + 1) / seen.n_rows, "refit": False})
    plan, split = resolve(seen, config)
    assert last is None or seen.row_at(split.split).tolist() == [last]
    context = TrainingContext(callbacks=(TrainingBar(Console(stderr=True)),))
    artifact = fit_panel(seen, plan, split, context)
    linear = artifact.ensemble.experts_only("linear")
    if linear is None:
        return {MODEL: artifact}
    return {MODEL: artifact, RIDGE: replace(artifact, ensemble=linear)}


def forecaster_of(task: Task, artifact: Artifact) -> ForecastPart:
    """Returns a function that forecasts parts of a task's windows."""
    schema, predictor = artifact.schema, Predictor(artifact)
    panel = recoded(task.panel.with_cycles(schema.season_length, schema.periods), schema.categories)
    return lambda part: predictor.quantiles(panel, task.series[part], task.cutoff[part])


def naives(task: Task, levels: Sequence[float]) -> dict[str, ForecastPart]:
    """Returns the seasonal naive of each season, by the name of its row."""

    def repeats(season: int) -> ForecastPart:
        return lambda part: seasonal_naive(_histories(task, part), task.horizon, season, levels)

    if len(task.seasons) == 1:
        return {NAIVE: repeats(*task.seasons)}
    return {f"{NAIVE}_{season}": repeats(season) for season in task.seasons}


def scored(
    task: Task, forecast: ForecastPart, metrics: Iterable[str], levels: Sequence[float]
) -> Scores:
    """Returns the scores of a forecast, window by window.

    Args:
        task: with the truth.
        forecast: of all its windows.
        metrics: of mse, mae, smape, mase, sql, wql, all defined as in `forecaster.evaluation.metrics`.
        levels: of its quantiles; the median among them.
    """
    count, horizon, channels = task.actual.shape
    parts: dict[str, list[Floats]] = {name: [] for name in metrics}
    size, middle = max(1, _BLOCK_CELLS // (horizon * channels * len(levels))), list(levels).index(0.5)
    for start in range(0, count, size):
        part = slice(start, min(start + size, count))
        actual, quantiles = task.actual[part].astype(np.float64), forecast(part)
        median = quantiles[..., middle].astype(np.float64)
        missing = np.isnan(median) & ~np.isnan(actual)
        assert not missing.any(), f"{missing.sum()} cells without a forecast"
        scale = _scales(task, part) if {"mase", "sql"} & parts.keys() else np.array(1.0)
        for name, found in parts.items():
            if name in ("sql", "wql"):
                error = pinball(actual, quantiles, levels).mean(axis=-1)
            elif name == "smape":
                error = _relative(actual, median)
            else:
                error = np.abs(actual - median) ** (2 if name == "mse" else 1)
            error = error / scale if name in ("mase", "sql") else error
            found.append(_by_window(error, np.abs(actual) if name == "wql" else 1.0))
    return {name: np.concatenate(found) for name, found in parts.items()}


def value(pairs: Floats) -> float:
    """Returns the score of windows kept as (error, weight); NaN where nothing has weight."""
    error, weight = pairs.sum(axis=0)
    return float(error / weight) if weight > 0 else float("nan")


def record(
    task: Task,
    artifact: Artifact,
    tracking: TrackingConfig,
    scores: Mapping[str, Scores],
    stage: str,
) -> None:
    """Records the scores of a fit's models as one MLflow run; the config says where.

    Args:
        task: what was scored.
        artifact: the model.
        scores: by model.
        stage: "test" or "validation".
    """
    seed = artifact.plan.fit.seed // artifact.plan.fit.ensemble_size
    name = f"{task.dataset} {task.horizon} steps, seed {seed}"
    figures = {model: {m: value(pairs) for m, pairs in mine.items()} for model, mine in scores.items()}
    parts = ((model, *next(iter(mine.items()))) for model, mine in figures.items())
    verdict = ", ".join(f"{model} {metric} {figure:.4f}" for model, metric, figure in parts)
    with open_run(tracking, name, kind="benchmark") as run:
        if run.recorded:
            with tempfile.TemporaryDirectory() as scratch:
                save_artifact(artifact, folder := Path(scratch) / "model")
                log_artifact(run, artifact, folder, f"{stage}: {verdict}")
            run.log_metrics(score_points(figures, f"benchmark_{stage}"))


def say(text: str) -> None:
    """Prints progress to stderr."""
    print(text, file=sys.stderr, flush=True)


def _brief(scores: Scores) -> str:
    return "/".join(f"{value(pairs):.4f}" for pairs in scores.values())


def _scales(task: Task, part: slice) -> Floats:
    """[n, 1, C]: the in-sample seasonal error of all that came before each cutoff."""
    return scales_at(_histories(task, part), task.seasons[0]).mase[:, None]


def _histories(task: Task, part: slice) -> Histories:
    panel = task.panel
    values = panel.values[:, : panel.n_channels]
    return Histories(values, panel.indptr, task.cutoff[part], task.series[part])


def _relative(actual: Floats, forecast: Floats) -> Floats:
    """200 |e| / (|y| + |f|), 0 where both are 0."""
    size = np.abs(actual) + np.abs(forecast)
    error = 200 * np.abs(actual - forecast)
    return np.divide(error, size, out=error.copy(), where=size > 0)  # 0 and NaN stay


def _by_window(error: Floats, weight: Floats | float) -> Floats:
    """[N, H, C] → [N, 2]: sums over the cells that count."""
    weights = np.where(np.isnan(error), 0.0, weight)
    return np.stack([np.nansum(error, axis=(1, 2)), weights.sum(axis=(1, 2))], axis=1)
