"""sMAPE, MASE and OWA on files of the M4 competition.

    python benchmarks/m4.py M4-Hourly-train.csv M4-Hourly-test.csv --season 24 --horizon 48 \\
        [--naive2 18.383 2.395] [--seeds 3] [--budget 2m] [--json OUT]

Both files have one row per series: its name, then its values. A model is trained on the training file
alone and forecasts what follows its series' ends. sMAPE = 200/h Σ |y − f| / (|y| + |f|); MASE = mean
|y − f| / mean |y_t − y_{t−m}| of the whole training series; both averaged over series. OWA is the mean
of both, each divided by Naive2's, which is computed here unless given. `--validation`: the last
`horizon` steps of the training series are held out and forecast; the test file is not opened.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import accuracy_report as report
import numpy as np
from accuracy import NAIVE, Floats, Found, Task, compare, scored, value
from accuracy_report import Row

from forecaster.config import Config
from forecaster.errors import ConfigError, DataError
from forecaster.evaluation.comparison import MODEL, RIDGE
from forecaster.panel.build import open_panel
from forecaster.panel.panel import Panel

METRICS = ("smape", "mase")
PUBLISHED = {
    "Hourly": {
        "seasonal naive": (13.912, 1.193, 0.627),
        "AutoARIMA": (13.7, 1.03, 0.588),
        "AutoETS": (17.2, 1.61, 0.804),
        "Theta": (18.138, 2.455, 1.006),
        "N-BEATS, from scratch": (12.0, 1.34, 0.606),
        "PatchTST, from scratch": (14.3, 1.40, 0.681),
        "FFORMA": (11.506, 0.819, 0.484),
        "ES-RNN": (9.328, 0.893, 0.440),
        "best of 2018 (Doornik)": (8.913, 0.801, 0.410),
        "Chronos-2, zero-shot": (8.47, 0.788, 0.395),
        "TimesFM-2.5, zero-shot": (8.61, 0.734, 0.387),
        "TiRex, zero-shot": (7.85, 0.722, 0.364),
    }
}
"""sMAPE, MASE, OWA."""


def main() -> None:
    parser = report.flags("sMAPE, MASE and OWA on files of the M4 competition", "benchmarks/m4.yaml")
    parser.add_argument("train", type=Path, help="a row per series: its name, its values")
    parser.add_argument("test", type=Path, help="the values that follow, as many as the horizon")
    parser.add_argument("--season", type=int, required=True, help="steps of the season")
    parser.add_argument("--horizon", type=int, required=True, help="steps to forecast")
    parser.add_argument("--naive2", type=float, nargs=2, metavar=("SMAPE", "MASE"))
    given, began = parser.parse_args(), time.monotonic()
    if min(given.season, given.horizon) < 1:
        raise ConfigError(f"--season {given.season}, --horizon {given.horizon}: expected 1 or more")
    config = report.settled(given)
    config = config.replaced(data={"layout": "rows", "season_length": given.season})
    tasks = tasks_of(given.train, given.test, given.season, given.horizon, config, given.validation)
    naive2 = tuple(given.naive2 or naive2_scores(tasks))
    found = compare(tasks, config, given.seeds, METRICS, "validation" if given.validation else "test")
    rows = report.rows_of(found) + owas(found, naive2)
    rows += [
        Row(tasks[0].dataset, "naive2", given.horizon, 0, metric, figure)
        for metric, figure in zip((*METRICS, "owa"), (*naive2, 1.0), strict=True)
    ]
    report.finish(given, rows, written(rows, bool(given.validation)), began)


def tasks_of(
    train: Path, test: Path, season: int, horizon: int, config: Config, spans: int = 0
) -> list[Task]:
    """Returns what is fitted and forecast: one task, or one for each span held out.

    Args:
        train, test: the two files; the second is opened only where it is scored.
        season: steps.
        horizon: steps to forecast.
        config: how the files are read.
        spans: stretches of `horizon` steps at the end of the training file to score in place of the
            test file.

    Raises:
        DataError: the files do not hold the same series, or test series of another length.
    """
    panel, dataset = open_panel(train, config.data), train.stem.removesuffix("-train")
    if not spans:
        return [_task(dataset, panel, horizon, season, _truth(panel, test, config, horizon))]
    tasks, end = [], int(panel.time.max())
    for span in range(1, spans + 1):
        shorter, whole = (panel.until(end - k * horizon) for k in (span, span - 1))
        lengths = np.diff(shorter.indptr)
        if lengths.min() <= season:
            raise DataError(
                f"{train}: --validation {spans}: expected more rows before the span than the season of "
                f"{season}, series '{panel.series_names[int(lengths.argmin())]}' has {lengths.min():,}"
            )
        ahead = whole.indptr[1:, None] - horizon + np.arange(horizon)
        tasks.append(_task(dataset, shorter, horizon, season, whole.values[ahead]))
    return tasks


def _task(dataset: str, seen: Panel, horizon: int, season: int, actual: np.ndarray) -> Task:
    panel = seen.reaching(seen.time[seen.indptr[1:] - 1], horizon)
    cutoff = panel.indptr[1:] - horizon - 1
    assert actual.shape == (seen.n_series, horizon, 1)
    assert np.isnan(panel.values[cutoff + 1]).all() and not np.isnan(panel.values[cutoff]).any()
    return Task(dataset, seen, panel, np.arange(seen.n_series), cutoff, actual, (season,))


def _truth(panel: Panel, test: Path, config: Config, horizon: int) -> np.ndarray:
    """Returns [series, H, 1]: the test file's values in the order of the panel's series."""
    found = open_panel(test, config.data)
    length = np.diff(found.indptr)
    wrong = np.flatnonzero(length != horizon)
    if len(wrong):
        first = int(wrong[0])
        raise DataError(
            f"{test}: expected {horizon} values of each series (--horizon), found {length[first]} of "
            f"'{found.series_names[first]}' ({len(wrong):,} such series of {found.n_series:,})"
        )
    place = {name: number for number, name in enumerate(found.series_names)}
    lacking = [name for name in panel.series_names if name not in place]
    if lacking or found.n_series != panel.n_series:
        named = f"; '{lacking[0]}' is not among them" if lacking else ""
        raise DataError(
            f"{test}: expected the {panel.n_series:,} series of {panel.name}, found {found.n_series:,}"
            + named
        )
    order = np.array([place[name] for name in panel.series_names])
    rows = found.indptr[order][:, None] + np.arange(horizon)
    actual: np.ndarray = found.values[rows]
    if np.isnan(actual).any():
        raise DataError(f"{test}: expected a number in each cell, {np.isnan(actual).sum():,} are empty")
    return actual


def naive2_scores(tasks: Sequence[Task]) -> tuple[float, float]:
    """Returns sMAPE and MASE of Naive2: the last value, of a series without its season.

    Source: the M4 competition's own benchmarks (Makridakis, Spiliotis, Assimakopoulos 2020).
    """
    parts: list[dict[str, Floats]] = []
    for task in tasks:
        values, ends = task.seen.values[:, 0].astype(np.float64), task.seen.indptr
        point = np.stack(
            [naive2(values[begin:end], task.seasons[0], task.horizon) for begin, end in pairwise(ends)]
        )[:, :, None, None]
        parts.append(scored(task, point.__getitem__, METRICS, (0.5,)))
    smape, mase = (value(np.concatenate([part[metric] for part in parts])) for metric in METRICS)
    return smape, mase


def naive2(history: Floats, season: int, horizon: int) -> Floats:
    """Returns [H] the last value of a series, taken out of its season and put back into it.

    Only a series whose autocorrelation at the season passes a test of 90 % has a season; it is the mean
    ratio to a centred moving average, by phase.
    """
    indices = np.ones(season)
    if season > 1 and len(history) >= 3 * season and _is_seasonal(history, season):
        weights = np.ones(season) if season % 2 else np.r_[0.5, np.ones(season - 1), 0.5]
        trend = np.convolve(history, weights / season, mode="valid")
        offset = len(weights) // 2
        ratio = history[offset : offset + len(trend)] / trend
        phase = (offset + np.arange(len(trend))) % season
        indices = np.array([ratio[phase == k].mean() for k in range(season)])
        indices /= indices.mean()
    last = history[-1] / indices[(len(history) - 1) % season]
    return last * indices[(len(history) + np.arange(horizon)) % season]


def _is_seasonal(history: Floats, season: int) -> bool:
    centred = history - history.mean()
    lags = np.array([(centred[k:] * centred[: len(centred) - k]).sum() for k in range(season + 1)])
    if lags[0] == 0:
        return False
    correlation = lags[1:] / lags[0]
    limit = 1.645 * np.sqrt((1 + 2 * (correlation[:-1] ** 2).sum()) / len(history))
    return bool(abs(correlation[-1]) > limit)


def owas(found: Found, naive2: Sequence[float]) -> list[Row]:
    """Returns the mean of sMAPE and MASE, each relative to Naive2's, as rows."""
    return [
        Row(
            dataset,
            model,
            horizon,
            seed,
            "owa",
            float(np.mean([value(scores[m]) / base for m, base in zip(METRICS, naive2, strict=True)])),
        )
        for (dataset, horizon, seed, model), scores in found.items()
    ]


def written(rows: Sequence[Row], validation: bool) -> str:
    """Returns the table of sMAPE, MASE and OWA."""
    dataset, metrics = rows[0].dataset, (*METRICS, "owa")
    lines = [
        [model, *(report.cell(report.wanted(rows, model=model, metric=metric)) for metric in metrics)]
        for model in ("naive2", NAIVE, RIDGE, MODEL)
        if report.wanted(rows, model=model)
    ]
    known = PUBLISHED.get(dataset.removeprefix("M4-"), {})
    if not validation:
        lines += [[name, *(f"{figure:.3f}" for figure in figures)] for name, figures in known.items()]
    header = [f"{dataset}{', validation' if validation else ''}", "sMAPE", "MASE", "OWA"]
    return report.markdown(header, lines)


if __name__ == "__main__":
    report.guarded(main)
