"""The default fit, or no fit, by the protocol of the M competitions: sMAPE, MASE, OWA, coverage.

    python benchmarks/mcomp.py TRAIN [TEST] --json OUT [--seeds 0,1,2] [--only quarterly] [--set KEY=VALUE] \\
        [--no-fit]

TRAIN and TEST are folders of Parquet files (unique_id, ds, y) whose names hold a period of `PERIODS`,
as m3_quarterly_train.parquet. A period's table is fitted once and forecast once. Without TEST the last
horizon of each training series is held out, and fitted to what is left.

sMAPE  mean over cells of 200 · |y − ŷ| / (|y| + |ŷ|)
MASE   mean over cells of |y − ŷ| / (mean |y_t − y_{t−season}| of the training rows of the series)
OWA    mean of both, each divided by Naive2's

ŷ is the median. OUT is a list of {period, seed, smape, mase, owa, coverage_80, smape_naive2, mase_naive2,
series, cells, seconds, commit}; a run that was stopped continues. Seed null: no fit.
Source: Makridakis and Hibon, "The M3
competition" (2000); Makridakis, Spiliotis and Assimakopoulos, "The M4 competition" (2020).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from accuracy_report import guarded
from gift import before, histories, mase, seasonal_change
from m4 import naive2
from numpy.typing import NDArray
from stored_rows import Row, add_no_fit, fits_of, made_by, stored, whole_numbers, write

from forecaster import Config, ConfigError, fit, predict
from forecaster.files import check_writable

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Period:
    """How long the forecasts of a period are, and its season."""

    horizon: int
    season: int


PERIODS = {
    "yearly": Period(6, 1),
    "quarterly": Period(8, 4),
    "monthly": Period(18, 12),
    "other": Period(8, 1),
}
"""Of M3."""


@dataclass(frozen=True)
class Result:
    """The truth of one series and its forecasts. H = horizon."""

    actual: Floats
    """[H]"""
    band: Floats
    """[H, 3] quantiles .1, .5 and .9"""
    naive2: Floats
    """[H]"""
    scale: float
    """Mean seasonal change of the training rows."""


def main() -> None:
    """Scores the periods and prints them."""
    parser = argparse.ArgumentParser(
        description="sMAPE, MASE and OWA by the protocol of the M competitions"
    )
    parser.add_argument("train", type=Path, help="folder of the training series")
    parser.add_argument("test", type=Path, nargs="?", help="folder of what followed; held out of TRAIN")
    parser.add_argument("--json", type=Path, required=True, metavar="OUT", help="file for the rows")
    parser.add_argument("--seeds", type=whole_numbers, default=[0], metavar="0,1,2", help="fits; 0")
    parser.add_argument("--only", action="append", choices=PERIODS, help="this one; may be repeated")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings")
    add_no_fit(parser)
    given = parser.parse_args()
    check_writable(given.json)
    rows: list[Row] = []
    for period in given.only or PERIODS:
        for name, seed, settings in fits_of(given):
            make = partial(measured, period, given.train, given.test, settings, seed)
            rows.append(stored(given.json, f"{period}-{name}", make, " ".join(given.set)))
            write(given.json, rows)
            print(line_of(rows[-1]), flush=True)
    print(summary(rows))


def table_of(folder: Path, period: str) -> pl.DataFrame:
    """Returns the one table of a period in a folder.

    Raises:
        ConfigError: there is none, or more than one.
    """
    files = sorted(folder.glob(f"*{period}*.parquet"))
    if len(files) != 1:
        raise ConfigError(f"{folder}: expected one file *{period}*.parquet, found {len(files)}")
    return pl.read_parquet(files[0])


def measured(
    name: str, train: Path, test: Path | None, settings: Config | None, seed: int | None
) -> Row:
    """Returns the row of a period; without settings, of forecasts without a fit."""
    period, table = PERIODS[name], table_of(train, name)
    seen = before(table, period.horizon) if test is None else table
    truth = histories(table if test is None else table_of(test, name))
    began = time.monotonic()
    if settings is None:
        forecast = predict(seen, period.horizon).frame
    else:
        model = fit(seen, period.horizon, config=settings, tracking=False, quiet=True)
        forecast = model.predict(seen).frame
    seconds = round(time.monotonic() - began, 1)
    results = list(results_of(forecast, histories(seen), truth, period))
    scores = scores_of(results)
    return {"period": name, "seed": seed} | scores | {"series": len(results), "seconds": seconds}


def results_of(
    forecast: pl.DataFrame,
    seen: Mapping[str, pl.DataFrame],
    truth: Mapping[str, pl.DataFrame],
    period: Period,
) -> Iterator[Result]:
    """Yields the result of each series: its last rows of the truth beside its leads, in order."""
    parts = forecast.partition_by("unique_id", as_dict=True)
    for name, rows in seen.items():
        history = rows["y"].to_numpy()
        band = parts[(name,)].sort("ds").select("q0.1", "q0.5", "q0.9")
        yield Result(
            actual=truth[name].tail(period.horizon)["y"].to_numpy(),
            band=band.cast(pl.Float64).fill_null(np.nan).to_numpy(),
            naive2=naive2(history, period.season, period.horizon),
            scale=seasonal_change(history, period.season),
        )


def scores_of(results: Sequence[Result]) -> Row:
    """Returns the scores over all cells."""
    actual = np.concatenate([result.actual for result in results])  # [cells]
    band = np.concatenate([result.band for result in results])  # [cells, 3]
    rival = np.concatenate([result.naive2 for result in results])
    scale = np.concatenate([np.full(len(result.actual), result.scale) for result in results])
    scored = ~(np.isnan(actual) | np.isnan(band).any(axis=1))
    actual, band, rival, scale = (part[scored] for part in (actual, band, rival, scale))
    median = band[:, 1]
    errors = smape(actual, median), mase(actual, median, scale)
    rivals = smape(actual, rival), mase(actual, rival, scale)
    inside = (band[:, 0] <= actual) & (actual <= band[:, 2])
    return {
        "smape": errors[0],
        "mase": errors[1],
        "owa": float(np.mean(np.divide(errors, rivals))),
        "coverage_80": float(inside.mean()),
        "smape_naive2": rivals[0],
        "mase_naive2": rivals[1],
        "cells": len(actual),
        "missing": int((~scored).sum()),
    }


def smape(actual: Floats, forecast: Floats) -> float:
    """Returns the mean symmetric percentage error of [cells]; 0 where both are 0."""
    size = np.abs(actual) + np.abs(forecast)
    error = np.abs(actual - forecast)
    return float(200 * np.divide(error, size, out=np.zeros_like(error), where=size > 0).mean())


def line_of(row: Mapping[str, Any]) -> str:
    """Returns a row as text."""
    return (
        f"{row['period']:<10} {made_by(row)}  sMAPE {row['smape']:.2f}  MASE {row['mase']:.3f}  "
        f"OWA {row['owa']:.3f}  coverage {100 * row['coverage_80']:.1f} %  {row['series']} series  "
        f"{row['seconds']:.0f} s"
    )


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the means over all cells of all periods."""
    weights = [row["cells"] for row in rows]
    smape_of_all, mase_of_all = (
        np.average([row[metric] for row in rows], weights=weights) for metric in ("smape", "mase")
    )
    return f"all periods: sMAPE {smape_of_all:.2f}, MASE {mase_of_all:.3f}"


if __name__ == "__main__":
    guarded(main)
