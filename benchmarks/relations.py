"""Whether the default fit finds relations between columns, on tables of our own with a known best error.

    python benchmarks/relations.py [--only lag]

The floor is the mean absolute error of a forecast that knows the rule; coverage is that of the 80 % band.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

import forecaster as fc

ROWS, WINDOWS = 4_000, 30
NOISE = 0.05
Floats = NDArray[np.float64]


class Case(NamedTuple):
    """A table, and how its columns are declared."""

    name: str
    horizon: int
    table: Callable[[], dict[str, Floats]]
    roles: dict[str, Any]
    target: str
    """The column that is scored."""
    worst: float
    """Largest error expected, times the floor."""


def autoregressive(draw: np.random.Generator, count: int = 1, weight: float = 0.8) -> Floats:
    """Returns [count, ROWS] independent series with x(t) = weight · x(t − 1) + a standard normal."""
    found = draw.standard_normal((count, ROWS))
    for step in range(1, ROWS):
        found[:, step] += weight * found[:, step - 1]
    return found


def later(values: Floats, steps: int) -> Floats:
    """Returns values so many steps later, the first ones repeated."""
    return np.concatenate([values[:steps], values[:-steps]])


def lagged() -> dict[str, Floats]:
    """B(t) = A(t − 12) + noise."""
    draw = np.random.default_rng(0)
    (driver,) = autoregressive(draw)
    return {"A": driver, "B": later(driver, 12) + NOISE * draw.standard_normal(ROWS)}


def many() -> dict[str, Floats]:
    """Thirty channels, three of which drive another one twelve steps later."""
    draw = np.random.default_rng(1)
    channels = autoregressive(draw, 29)
    driven = 0.6 * channels[4] - 0.5 * channels[11] + 0.7 * channels[20]
    table = {f"c{number:02d}": values for number, values in enumerate(channels)}
    return table | {"B": later(driven, 12) + NOISE * draw.standard_normal(ROWS)}


def squared() -> dict[str, Floats]:
    """B(t) = A(t − 6)² + noise, which no linear forecast finds."""
    draw = np.random.default_rng(2)
    (driver,) = autoregressive(draw)
    return {"A": driver, "B": later(driver, 6) ** 2 + NOISE * draw.standard_normal(ROWS)}


CASES = (
    Case("lag: channel", 12, lagged, {"target": ["A", "B"]}, "B", 1.15),
    Case("lag: past covariate", 12, lagged, {"target": ["B"], "past": ["A"]}, "B", 1.15),
    Case("lag: known covariate", 12, lagged, {"target": ["B"], "known": ["A"]}, "B", 1.15),
    Case("3 of 30 channels", 12, many, {"target": [*(f"c{n:02d}" for n in range(29)), "B"]}, "B", 1.25),
    Case("square: channel", 6, squared, {"target": ["A", "B"]}, "B", 1.5),
    Case("square: past covariate", 6, squared, {"target": ["B"], "past": ["A"]}, "B", 1.5),
)


def main() -> None:
    """Prints a row per case."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name begins so")
    options = parser.parse_args()
    floor = NOISE * np.sqrt(2 / np.pi)  # the mean of |noise|
    print(f"{'case':24}{'MAE / floor':>12}{'at most':>9}{'coverage':>10}{'seconds':>9}  network weight")
    for case in CASES:
        if not case.name.startswith(options.only):
            continue
        columns = case.table()
        frame = pl.DataFrame({"time": np.arange(ROWS), **columns}).with_columns(
            pl.datetime(2024, 1, 1) + pl.duration(hours=pl.col("time"))
        )
        begun = time.perf_counter()
        last = ROWS - WINDOWS * case.horizon
        model = fc.fit(frame.head(last), case.horizon, tracking=False, quiet=True, **case.roles)
        seconds = time.perf_counter() - begun
        rows = model.backtest(frame, windows=WINDOWS).frame
        own = rows.filter((pl.col("model") == "forecaster") & (pl.col("channel") == case.target))
        error = own.select((pl.col("actual") - pl.col("q0.5")).abs().mean()).item()
        inside = own.select(pl.col("actual").is_between("q0.1", "q0.9").mean()).item()
        weight = model.metrics.get("network_weight")
        print(
            f"{case.name:24}{error / floor:12.2f}{case.worst:9.2f}{inside:10.1%}{seconds:9.0f}  {weight}"
        )


if __name__ == "__main__":
    main()
