"""What benchmarks of planted patterns share: options, tables, forecasts and scores.

Axes: S series · n steps · H steps ahead · Q quantile level.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import forecaster as fc
from forecaster.forecast.forecast import Forecast

Floats = NDArray[np.floating[Any]]
Random = np.random.Generator
WEEK = np.array([0, 5, 8, 3, 10, 20, 15.0])
QUIET = {"tracking": {"enabled": False}}


def asked(about: str, cases: Iterable[str], seeds: int) -> tuple[list[str], range, bool]:
    """Returns the cases that are asked for, the seeds of their draws, and whether to fit."""
    names = list(cases)
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--seeds", type=int, default=seeds, help=f"draws of each case; {seeds}")
    parser.add_argument("--only", choices=names, help="this case alone")
    parser.add_argument(
        "--fit", action="store_true", help="the default fit, not a forecast without one"
    )
    given = parser.parse_args()
    chosen = [given.only] if given.only else names
    return chosen, range(given.seeds), given.fit


def dates(count: int, unit: str, start: date, every: int = 1) -> list[date]:
    """Returns [count] dates, so many units apart."""
    number = every * pl.int_range(count)
    steps = pl.format("{}" + unit, number)
    date_of = pl.lit(start).dt.offset_by(steps)
    return pl.select(date_of).to_series().to_list()


def forecast_of(
    values: Floats,
    time: list[date],
    horizon: int,
    fit: bool,
    covariates: Mapping[str, Floats] | None = None,
) -> Forecast:
    """Returns the forecast of the last steps of values [S, n] from those before; covariates [S, n] are known."""
    series, count = values.shape
    names = [f"s{number:03}" for number in range(series)]
    known = dict(covariates or {})
    columns = {name: cells.ravel() for name, cells in known.items()}
    table = pl.DataFrame(
        {
            "series": np.repeat(names, count),
            "time": time * series,
            "y": values.ravel(),
            **columns,
        }
    )
    is_past = np.tile(np.arange(count) < count - horizon, series)
    past = table.filter(is_past)
    future = table.filter(~is_past).drop("y") if known else None
    if fit:
        model = fc.fit(past, horizon, known=[*known], config=QUIET, quiet=True)
        return model.predict(past, future=future)
    return fc.predict(past, horizon, future=future, known=[*known])


def regret(point: Floats, best: Floats, truth: Floats) -> float:
    """Returns Σ |point − truth| / Σ |best − truth|."""
    error = np.abs(point - truth).sum()
    least = np.abs(best - truth).sum()
    return float(error / least)


def is_inside(quantiles: Floats, truth: Floats) -> NDArray[np.bool_]:
    """Returns whether each truth [...] is within the outermost of its quantiles [..., Q]."""
    is_above = truth >= quantiles[..., 0]
    is_below = truth <= quantiles[..., -1]
    return np.asarray(is_above & is_below)
