"""GIFT-Eval's protocol over tables on disk: MASE and CRPS of the default fit or of no fit, by seasonal naive's.

    python benchmarks/gift.py --root FOLDER --json OUT [--terms short,medium,long] [--seeds 0,1,2] \\
        [--only ett1/D/short] [--set KEY=VALUE] [--no-fit]

FOLDER holds list.csv (config, file, horizon, windows, season) and the tables: Parquet, wide (ds and a
column a series) or long (unique_id, ds, y). The windows of a series do not overlap and end with it; the
model is fitted once, to the rows before the first, and forecasts all. With --no-fit nothing is fitted: a call a
cutoff forecasts all series from the rows before it.

MASE   mean over cells of |y − median| / (mean |y_t − y_{t−season}| of all history before the window);
       cells of a history without changes are left out
CRPS   mean over the levels .1 … .9 of Σ 2 · pinball / Σ |y|

Cells without a truth, and leads beyond the forecast of a series whose last rows are missing, are left out and
counted as `missing`. Seasonal naive repeats its value as every quantile. OUT is a list of
{config, seed, mase, crps, mase_seasonal_naive, crps_seasonal_naive, coverage_80, cells, missing, seconds, commit}
and, per cutoff, the first first, cells_at, inside_at and inside_ties_at (ties shared out: coverage_tables.py);
a run that was stopped continues (OUT.parts has a file a config and seed). Seed null: no fit.

Source: Aksu et al., "GIFT-Eval" (2024); figures of other models: the public leaderboard.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from accuracy_report import guarded
from numpy.typing import NDArray
from stored_rows import Row, add_no_fit, fits_of, geometric, made_by, stored, whole_numbers, write

from forecaster import Config, ConfigError, Forecast, fit, predict
from forecaster.evaluation.coverage import share_inside
from forecaster.files import check_writable

Floats = NDArray[np.float64]
LEVELS = tuple(level / 10 for level in range(1, 10))
QUANTILES = tuple(f"q{level:g}" for level in LEVELS)


@dataclass(frozen=True)
class Task:
    """A line of list.csv."""

    config: str
    """Data set, step and term, as ett1/H/short."""
    file: str
    horizon: int
    windows: int
    season: int

    @property
    def term(self) -> str:
        return self.config.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Window:
    """The truth of one series after one cutoff, and two forecasts of it. H = horizon, Q = level."""

    actual: Floats
    """[H]"""
    quantiles: Floats
    """[H, Q]"""
    naive: Floats
    """[H] seasonal naive"""
    scale: float
    """Mean seasonal change of the history."""
    cutoff: int
    """Its number, from 0."""


def main() -> None:
    """Scores the tasks and prints them."""
    parser = argparse.ArgumentParser(description="MASE and CRPS by the protocol of GIFT-Eval")
    parser.add_argument("--root", type=Path, required=True, help="folder of list.csv and the tables")
    parser.add_argument("--json", type=Path, required=True, metavar="OUT", help="file for the rows")
    parser.add_argument("--terms", default="short", help="of short, medium, long; short")
    parser.add_argument("--seeds", type=whole_numbers, default=[0], metavar="0,1,2", help="fits; 0")
    parser.add_argument("--only", action="append", metavar="CONFIG", help="this one; may be repeated")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings")
    add_no_fit(parser)
    given = parser.parse_args()
    check_writable(given.json)
    rows: list[Row] = []
    for task in tasks_of(given.root, given.terms.split(","), given.only):
        for name, seed, settings in fits_of(given):
            make = partial(measured, task, given.root, settings, seed)
            rows.append(stored(given.json, f"{task.config}-{name}", make, " ".join(given.set)))
            write(given.json, rows)
            print(line_of(rows[-1]), flush=True)
    print(summary(rows))


def tasks_of(root: Path, terms: Sequence[str], only: Sequence[str] | None) -> list[Task]:
    """Returns the tasks of a list.

    Raises:
        ConfigError: the list cannot be read, or lacks a config.
    """
    try:
        with (root / "list.csv").open(encoding="utf-8", newline="") as lines:
            tasks = [
                Task(
                    row["config"],
                    row["file"],
                    int(row["horizon"]),
                    int(row["windows"]),
                    int(row["season"]),
                )
                for row in csv.DictReader(lines)
            ]
    except (OSError, KeyError, ValueError) as error:
        raise ConfigError(
            f"{root / 'list.csv'}: expected config,file,horizon,windows,season ({error})"
        ) from None
    names = {task.config for task in tasks}
    if unknown := sorted(set(only or ()) - names):
        raise ConfigError(f"--only {unknown[0]}: no such config in {root / 'list.csv'}")
    chosen = [task for task in tasks if task.term in terms]
    return [task for task in tasks if task.config in only] if only else chosen


def measured(task: Task, root: Path, settings: Config | None, seed: int | None) -> Row:
    """Returns the row of a task; without settings, of forecasts without a fit."""
    table = pl.read_parquet(root / task.file)
    series = histories(table)
    began = time.monotonic()
    lengths = range(task.windows * task.horizon, 0, -task.horizon)  # rows after each cutoff
    # A window ends where its series does so many rows early: rows after it are cut off, not passed over.
    forecast: Callable[[pl.DataFrame], Forecast] = partial(predict, horizon=task.horizon)
    if settings is not None:
        first = before(table, lengths[0])
        forecast = fit(first, task.horizon, config=settings, tracking=False, quiet=True).predict
    windows = [
        window
        for number, rows in enumerate(lengths)
        for window in windows_of(forecast(before(table, rows)).frame, series, rows, task, number)
    ]
    seconds = round(time.monotonic() - began, 1)
    return {"config": task.config, "seed": seed} | scores_of(windows) | {"seconds": seconds}


def before(table: pl.DataFrame, rows: int) -> pl.DataFrame:
    """Returns a table without the last rows of each series."""
    if "unique_id" not in table.columns:
        return table.sort("ds").head(-rows)
    rows_after = pl.int_range(pl.len()).reverse().over("unique_id")
    return table.sort("unique_id", "ds").filter(rows_after >= rows)


def histories(table: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Returns per series its times and values, in order: columns ds and y."""
    if "unique_id" not in table.columns:
        table = table.unpivot(index="ds", variable_name="unique_id", value_name="y")
    table = table.sort("ds").with_columns(pl.col("y").cast(pl.Float64).fill_null(np.nan))
    return {str(name): part for (name,), part in table.partition_by("unique_id", as_dict=True).items()}


def windows_of(
    forecast: pl.DataFrame, series: Mapping[str, pl.DataFrame], rows: int, task: Task, number: int
) -> Iterator[Window]:
    """Yields the windows of a forecast from the cutoff of a number, which so many rows of each series follow."""
    key = next((name for name in ("unique_id", "channel") if name in forecast.columns), None)
    parts = {(name,): forecast for name in series}  # a single series has no key
    if key is not None:
        parts = forecast.partition_by(key, as_dict=True)
    for name, rows_of_series in series.items():
        past, after = rows_of_series.head(-rows), rows_of_series.tail(rows).head(task.horizon)
        quantiles = after.join(parts[(name,)], on="ds", how="left", maintain_order="left")
        yield Window(
            actual=after["y"].to_numpy(),
            quantiles=quantiles.select(QUANTILES).cast(pl.Float64).fill_null(np.nan).to_numpy(),
            naive=seasonal_naive(past["y"].to_numpy(), task.season, task.horizon),
            scale=seasonal_change(past["y"].to_numpy(), task.season),
            cutoff=number,
        )


def seasonal_naive(history: Floats, season: int, horizon: int) -> Floats:
    """Returns [H] the last observed value of each phase of the season."""
    missing = np.full(-len(history) % season, np.nan)
    seasons = np.concatenate([missing, history]).reshape(-1, season)
    last = np.full(season, np.nan)
    for values in seasons:  # the oldest first
        last = np.where(np.isnan(values), last, values)
    return last[np.arange(horizon) % season]


def seasonal_change(history: Floats, season: int) -> float:
    """Returns the mean |y_t − y_{t−season}|; NaN of a history without a pair."""
    changes = np.abs(history[season:] - history[:-season])
    known = changes[~np.isnan(changes)]
    return float(known.mean()) if len(known) else np.nan


def scores_of(windows: Sequence[Window]) -> Row:
    """Returns MASE, CRPS and coverage of all windows, and those of seasonal naive."""
    actual = np.concatenate([window.actual for window in windows])  # [cells]
    quantiles = np.concatenate([window.quantiles for window in windows])  # [cells, Q]
    naive = np.concatenate([window.naive for window in windows])
    scale = np.concatenate([np.full(len(window.actual), window.scale) for window in windows])
    cutoff = np.concatenate([np.full(len(window.actual), window.cutoff) for window in windows])
    cutoffs = int(cutoff.max()) + 1
    scored = ~(np.isnan(actual) | np.isnan(quantiles).any(axis=1) | np.isnan(naive))
    cells = actual, quantiles, naive, scale, cutoff
    actual, quantiles, naive, scale, cutoff = (part[scored] for part in cells)
    repeated = np.repeat(naive[:, None], len(LEVELS), axis=1)
    inside = (quantiles[:, 0] <= actual) & (actual <= quantiles[:, -1])
    ties = share_inside(actual, quantiles, LEVELS)
    return {
        "mase": mase(actual, quantiles[:, len(LEVELS) // 2], scale),
        "crps": crps(actual, quantiles),
        "mase_seasonal_naive": mase(actual, naive, scale),
        "crps_seasonal_naive": crps(actual, repeated),
        "coverage_80": float(inside.mean()),
        "cells": int(scored.sum()),
        "missing": int((~scored).sum()),
        "cells_at": np.bincount(cutoff, minlength=cutoffs).tolist(),
        "inside_at": np.bincount(cutoff, inside, cutoffs).tolist(),
        "inside_ties_at": np.bincount(cutoff, ties, cutoffs).tolist(),
    }


def mase(actual: Floats, median: Floats, scale: Floats) -> float:
    """Returns the mean scaled error over [cells] whose scale is above 0."""
    known = scale > 0
    return float((np.abs(actual - median)[known] / scale[known]).mean())


def crps(actual: Floats, quantiles: Floats) -> float:
    """Returns the mean weighted quantile loss of [cells, Q]."""
    miss = actual[:, None] - quantiles
    levels = np.array(LEVELS)
    pinball = np.maximum(levels * miss, (levels - 1) * miss)
    return float((2 * pinball.sum(axis=0) / np.abs(actual).sum()).mean())


def ratios(row: Mapping[str, Any]) -> tuple[float, float]:
    """Returns CRPS and MASE relative to seasonal naive."""
    return row["crps"] / row["crps_seasonal_naive"], row["mase"] / row["mase_seasonal_naive"]


def line_of(row: Mapping[str, Any]) -> str:
    """Returns a row as text."""
    relative_crps, relative_mase = ratios(row)
    return (
        f"{row['config']:<24} {made_by(row)}  CRPS {relative_crps:.3f}  MASE {relative_mase:.3f}  "
        f"coverage {100 * row['coverage_80']:.1f} %  {row['seconds']:.0f} s"
    )


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the geometric means over configs, of the mean over seeds."""
    configs: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        configs.setdefault(row["config"], []).append(ratios(row))
    means = [np.mean(values, axis=0) for values in configs.values()]
    both = (geometric(float(mean[part]) for mean in means) for part in (0, 1))
    relative_crps, relative_mase = both
    return (
        f"{len(configs)} configs: CRPS {relative_crps:.3f}, MASE {relative_mase:.3f} of seasonal naive"
    )


if __name__ == "__main__":
    guarded(main)
