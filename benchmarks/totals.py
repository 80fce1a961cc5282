"""Coverage of 80 % bands of totals over panels, without a fit, beside sums of quantiles.

    python benchmarks/totals.py --root DATA [--json OUT] [--only TABLE] [--fit]
    python benchmarks/totals.py --large

A panel is cut one to four horizons before its end, and totals of the horizon are forecast from there: of each
series, of thirty groups of ten series drawn at random, and of all. Groups and totals of all take series whose
horizon is observed as a whole; of more than 300 series an even draw is taken. Columns: share of the truth
between q0.1 and q0.9, percent, and the weighted quantile loss of the totals; their means and medians over the
truth, added up; `sum of quantiles` adds up the quantiles of cells in place of paths. --fit fits the default
once, before the first cutoff.

--large writes the forecasts of 30,000 monthly series in 1,000 regions, 12 months ahead, without and with their
hierarchy (31,001 nodes, wls, 200 paths), each in a process of its own: seconds and peak memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import forecaster as fc
from forecaster.api import without_fit
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.totals import PATHS

Floats = NDArray[np.float64]
LEVELS = tuple(n / 10 for n in range(1, 10))
_SERIES, _GROUPS, _OF_GROUP, _WINDOWS = 300, 30, 10, 4


@dataclass(frozen=True)
class Table:
    """A panel of the list."""

    file: str
    horizon: int

    @property
    def name(self) -> str:
        return Path(self.file).stem


TABLES = (
    Table("demo.csv", 28),
    Table("corpus/tourism_quarterly.parquet", 8),
    Table("corpus/tourism_monthly.parquet", 12),
    Table("corpus/nn5_daily.parquet", 28),
    Table("corpus/m1_monthly.parquet", 12),
    Table("mcomp/m3_monthly_train.parquet", 12),
    Table("mcomp/m3_quarterly_train.parquet", 8),
    Table("gift/m4_weekly_W.parquet", 8),
    Table("gift/m4_hourly_H.parquet", 24),
    Table("gift/hospital_M.parquet", 12),
    Table("gift/car_parts_M.parquet", 6),
    Table("gift/covid_deaths_D.parquet", 14),
    Table("gift/jena_weather_D.parquet", 14),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="coverage of bands of totals")
    parser.add_argument("--root", type=Path, help="folder of the tables")
    parser.add_argument("--large", action="store_true", help="seconds and memory of a large hierarchy")
    parser.add_argument("--json", type=Path, metavar="OUT", help="file for the rows")
    parser.add_argument("--only", action="append", metavar="TABLE", help="this table; may be repeated")
    parser.add_argument("--fit", action="store_true", help="fit the default, once a table")
    given = parser.parse_args()
    if given.large:
        large()
        return
    if given.root is None:
        parser.error("--root or --large is required")
    rows = []
    print(
        f"{'table':20} {'of':10} {'totals':>6} {'paths':>14} {'mean':>6} {'median':>6} {'sum of quantiles':>18}"
    )
    for table in TABLES:
        if given.only and table.name not in given.only:
            continue
        for row in scored(table, given.root, given.fit):
            rows.append(row)
            print(
                f"{row['table']:20} {row['of']:10} {row['totals']:6} {row['coverage']:7.1f} "
                f"{row['wql']:.4f} {row['mean']:6.3f} {row['median']:6.3f} {row['coverage_sum']:11.1f} "
                f"{row['wql_sum']:.4f}",
                flush=True,
            )
    for of in dict.fromkeys(row["of"] for row in rows):
        some = [row for row in rows if row["of"] == of]
        means = [np.mean([row[name] for row in some]) for name in ("coverage", "coverage_sum")]
        print(f"{'mean':20} {of:10} {len(some):6} {means[0]:7.1f} {means[1]:18.1f}")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


def large() -> None:
    """Prints seconds and peak memory of forecasts without and with a hierarchy."""
    for hierarchy in (None, "region/store"):
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            seconds, peak = pool.submit(written, hierarchy).result()
        print(f"{hierarchy or 'series alone':14} {seconds:6.1f} s {peak:5.2f} GB", flush=True)


def written(hierarchy: str | None) -> tuple[float, float]:
    """Returns the seconds of a forecast that is written, and the peak memory of this process, GB."""
    rng, series, months = np.random.default_rng(0), 30_000, 60
    dates = pl.date_range(date(2018, 1, 1), date(2022, 12, 1), "1mo", eager=True)
    season = 1 + 0.3 * np.sin(2 * np.pi * np.arange(months) / 12)
    level = np.exp(rng.normal(3, 1, (series, 1)))
    values = level * season * np.exp(rng.normal(0, 0.2, (series, months)))
    number = np.repeat(np.arange(series), months)
    frame = pl.DataFrame(
        {
            "store": np.char.add("s", number.astype(str)),
            "region": np.char.add("r", (number // 30).astype(str)),
            "date": pl.concat([dates] * series),
            "sales": values.ravel(),
        }
    )
    model, panel = without_fit(frame, 12, roles={"static": "region", "series": "store"})
    with TemporaryDirectory() as folder:
        began = time.perf_counter()
        model.predict_to(Path(folder) / "rows.csv", panel, hierarchy=hierarchy)
        seconds = time.perf_counter() - began
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def long(table: Table, root: Path) -> pl.DataFrame:
    """Returns a table with the columns series, time and y, those of an even draw of its series."""
    file = root / table.file
    if table.name == "demo":
        file = Path(__file__).parents[1] / "data" / "demo.csv"
        frame = pl.read_csv(file, try_parse_dates=True).select("store", "date", "sales")
    else:
        frame = pl.read_parquet(file)
    if frame.columns[0] == "ds":  # wide
        frame = frame.unpivot(index="ds", variable_name="unique_id", value_name="y")
        frame = frame.select("unique_id", "ds", "y")
    frame = frame.rename(dict(zip(frame.columns, ("series", "time", "y"), strict=False)))
    names = frame["series"].unique(maintain_order=True)
    chosen = names[
        np.unique(np.linspace(0, len(names) - 1, min(len(names), _SERIES)).astype(int)).tolist()
    ]
    return (
        frame.filter(pl.col("series").is_in(chosen.implode()))
        .select("series", "time", "y")
        .drop_nulls()
    )


def scored(table: Table, root: Path, fit: bool) -> Iterator[dict[str, Any]]:
    """Yields a row of scores per kind of total."""
    frame, horizon = long(table, root), table.horizon
    back = pl.len().over("series") - pl.int_range(pl.len()).over("series")  # rows from the end, from 1
    frame = frame.sort("series", "time", maintain_order=True).with_columns(back=back)
    model: Any = None
    began = time.perf_counter()
    found: dict[str, list[tuple[Floats, Floats, Floats, Floats]]] = {}
    for window in range(_WINDOWS, 0, -1):
        history = frame.filter(pl.col("back") > window * horizon)
        counts = history.group_by("series").len().filter(pl.col("len") >= max(3 * horizon, 12))
        if len(counts) < max(1, 0.3 * frame["series"].n_unique()):
            continue
        history = history.filter(pl.col("series").is_in(counts["series"].implode())).drop("back")
        if fit and model is None:
            model = fc.fit(history, horizon, quiet=True, tracking=False)
        forecast = model.predict(history) if model else fc.predict(history, horizon)
        after = frame.filter(
            (pl.col("back") <= window * horizon) & (pl.col("back") > (window - 1) * horizon)
        )
        truths = {
            name: rows["y"].to_numpy()
            for (name,), rows in after.group_by("series", maintain_order=True)
        }
        keys = forecast.panel.keys["series"].to_list()
        actual = np.array(
            [truths[key].sum() if len(truths[key]) == horizon else np.nan for key in keys]
        )
        for of, sums in totals(forecast, actual).items():
            found.setdefault(of, []).append(sums)
    for of, windows in found.items():
        own, naive, mean, truth = (np.concatenate(part, axis=-1) for part in zip(*windows, strict=True))
        yield {
            "table": table.name,
            "of": of,
            "totals": len(truth),
            "coverage": coverage(own, truth),
            "wql": loss(own, truth),
            "mean": mean.sum() / truth.sum(),
            "median": own[LEVELS.index(0.5)].sum() / truth.sum(),
            "coverage_sum": coverage(naive, truth),
            "wql_sum": loss(naive, truth),
            "seconds": time.perf_counter() - began,
        }


def totals(forecast: Forecast, actual: Floats) -> dict[str, tuple[Floats, Floats, Floats, Floats]]:
    """Returns quantiles [Q, n] of totals by paths and by sums of quantiles, means and the truth, by kind."""
    good = np.flatnonzero(np.isfinite(actual) & np.isfinite(forecast.quantiles).all(axis=(1, 2, 3)))
    paths = forecast.draw(PATHS).sum(axis=(2, 3))  # [N, S]
    cells = forecast.quantiles.sum(axis=(1, 2))  # [N, Q]
    assert forecast.mean is not None
    means = forecast.mean.sum(axis=(1, 2))  # [N]
    rng = np.random.default_rng(0)
    groups = {"series": [np.array([one]) for one in good], "all": [good]}
    if len(good) >= 2 * _OF_GROUP:
        groups["ten series"] = [rng.choice(good, _OF_GROUP, replace=False) for _ in range(_GROUPS)]
    if len(good) < 2:
        del groups["all"]
    return {
        of: (
            np.stack([np.quantile(paths[some].sum(axis=0), LEVELS) for some in groups[of]], axis=1),
            np.stack([cells[some].sum(axis=0) for some in groups[of]], axis=1),
            np.array([means[some].sum() for some in groups[of]]),
            np.array([actual[some].sum() for some in groups[of]]),
        )
        for of in ("series", "ten series", "all")
        if of in groups
    }


def coverage(quantiles: Floats, truth: Floats) -> float:
    """Returns the percentage of the truth [n] between the outermost of quantiles [Q, n]."""
    return float(100 * ((quantiles[0] <= truth) & (truth <= quantiles[-1])).mean())


def loss(quantiles: Floats, truth: Floats) -> float:
    """Returns twice the pinball loss, a mean over levels, over the sum of the sizes of the truth."""
    missed, level = truth - quantiles, np.array(LEVELS)[:, None]
    pinball = np.maximum(level * missed, (level - 1) * missed)
    return float(2 * pinball.mean(axis=0).sum() / np.abs(truth).sum())


if __name__ == "__main__":
    main()
