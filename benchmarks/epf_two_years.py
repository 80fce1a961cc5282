"""Day-ahead prices over two years, beside the published ensembles: epf.py --two-years.

Each day's 24 hours are forecast from the last hour of the day before, with the known covariates of these hours. The
model is fitted to the rows before the first of them and updated as time goes on (`--update-every`); killed, the
same command goes on.

MAE    over all hours
rMAE   MAE over that of the same hour a week before
SQL    scaled quantile loss, by the seasonal error of 24 hours of all history
p      of Diebold and Mariano's test that one has smaller errors: mean of the daily difference of absolute errors
       over its standard error, one-sided

Source: Lago, Marcjasz, De Schutter and Weron, "Forecasting day-ahead electricity prices" (2021), whose forecasts of
the last 728 days `--published` gives: a table of date and a column an ensemble. Intervals hold 95 % of the MAEs of
days drawn anew in blocks.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from math import erfc, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from accuracy import Rows
from accuracy_report import interval, markdown
from numpy.typing import NDArray

import forecaster
from forecaster import Config
from forecaster.errors import DataError

HORIZON, DAYS, EARLIER = 24, 728, 364
WEEK = 7 * HORIZON

Floats = NDArray[np.float64]


def two_years(
    paths: Sequence[Path],
    published: Sequence[Path],
    config: Config,
    every: str,
    earlier: bool,
    fits: bool,
    keep: Path | None,
) -> str:
    """Returns a table per market.

    Args:
        paths: tables of the markets: a column of times, forecasts of load and generation, and the price last.
        published: tables of other forecasts, as many as markets; none = without.
        config: of the fit.
        every: time between updates.
        earlier: score the 364 days before the 728, which settings may be chosen on.
        fits: False = the published and the naive forecasts alone.
        keep: folder of the models made so far; None = in memory.
    """
    parts = []
    for number, path in enumerate(paths):
        table = pl.read_csv(path, infer_schema_length=None)
        table = table.rename({name: name.strip() for name in table.columns})
        if earlier:
            table = table.head(table.height - DAYS * HORIZON)
        days = EARLIER if earlier else DAYS
        begun, prices = time.monotonic(), table.to_series(table.width - 1).to_numpy()
        truth = prices[-days * HORIZON :]
        models = {"same hour a week before": prices[-days * HORIZON - WEEK : -WEEK]}
        if published and not earlier:
            models |= _published(published[number], truth)
        sql = None
        if fits:
            folder = None if keep is None else keep / path.stem
            median, sql = _forecasts(table, days, config, every, folder)
            models = {"forecaster": median, **models}
        parts.append(_written(path.stem, truth, models, sql, time.monotonic() - begun))
    return "\n\n".join(parts)


def _published(path: Path, truth: Floats) -> dict[str, Floats]:
    table = pl.read_csv(path, infer_schema_length=None)
    if table.height != len(truth):
        raise DataError(f"{path}: expected {len(truth):,} hours, found {table.height:,}")
    return {name: table[name].to_numpy() for name in table.columns[1:]}


def _forecasts(
    table: pl.DataFrame, days: int, config: Config, every: str, keep: Path | None
) -> tuple[Floats, float]:
    """Medians of all hours, and SQL."""
    clock, *known, target = table.columns
    roles: dict[str, Any] = {"time": clock, "target": target, "known": known, "past": ()}
    until = table.height - days * HORIZON
    first = table.head(until)
    model = forecaster.fit(first, HORIZON, config=config, tracking=False, quiet=True, **roles)
    backtest = model.backtest(
        table, days, "never", update_every=every, keep=keep, tracking=False, quiet=True
    )
    median = np.concatenate([one.median[0, :, 0] for one in backtest.forecasts])
    return median, backtest.scores["forecaster"]["SQL"]


def _written(
    name: str, truth: Floats, models: Mapping[str, Floats], sql: float | None, seconds: float
) -> str:
    errors = {
        model: np.abs(own - truth).reshape(-1, HORIZON).mean(axis=1) for model, own in models.items()
    }
    naive = errors["same hour a week before"].mean()
    rows = []
    for model, own in errors.items():
        low, high = interval(partial(_mean, own), [len(own)])
        shown = f"{sql:.3f}" if sql is not None and model == "forecaster" else "–"
        tests = [
            f"{chance_of_less(own, other):.3f}" if other is not own else "–"
            for other in errors.values()
        ]
        rows.append(
            [
                model,
                f"{own.mean():.3f} [{low:.2f}, {high:.2f}]",
                f"{own.mean() / naive:.3f}",
                shown,
                *tests,
            ]
        )
    head = [
        f"{name}, {len(truth) // HORIZON} days, {seconds / 60:.0f} min",
        "MAE [95 %]",
        "rMAE",
        "SQL",
    ]
    return markdown([*head, *(f"p less than {model}" for model in errors)], rows)


def chance_of_less(ours: Floats, theirs: Floats) -> float:
    """Returns the one-sided p of Diebold and Mariano's test: small where our daily errors are smaller."""
    difference = ours - theirs
    statistic = difference.mean() / sqrt(difference.var() / len(difference))
    return erfc(-statistic / sqrt(2)) / 2


def _mean(daily: Floats, drawn: list[Rows]) -> float:
    """Of the days drawn."""
    return float(daily[drawn[0]].mean())
