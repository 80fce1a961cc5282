"""Does a long-lived process stay as it is? Many predictions and fits in one Python process.

    python benchmarks/soak.py --predictions 300 --fits 50

Prints the slope of resident memory per call (Theil–Sen over the calls after a warm-up: the median of
the slopes between all pairs, which a few jumps do not move) and what is left open: file descriptors,
threads, child processes, temporary files.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import psutil

import forecaster as fc

NETWORK = {"width": 16, "heads": 2, "encoder_layers": 1}
TINY = {
    "fit": {"steps": 4, "batch_size": 32},
    "model": NETWORK,
    "tracking": {"enabled": False},
}
FEW = {**TINY, "model": {**NETWORK, "experts": ["seasonal_naive", "linear"]}}
"""Of fits, whose time goes into the experts."""
WARM_UP = 0.3
"""Share of the calls that fill caches and pools."""


@dataclass(frozen=True)
class Left:
    """What a process holds."""

    descriptors: int
    threads: int
    children: int
    temporary: int

    @classmethod
    def now(cls) -> Left:
        """Returns what this process holds now."""
        process = psutil.Process()
        return cls(
            descriptors=process.num_fds(),
            threads=threading.active_count(),
            children=len(process.children(recursive=True)),
            temporary=len(os.listdir(tempfile.gettempdir())),
        )


@dataclass(frozen=True)
class Soaked:
    """What many calls came to."""

    slope: float
    """Megabytes of resident memory per call."""
    before: Left
    """After the warm-up."""
    after: Left
    """After the last call."""


def table(series: int = 3, days: int = 100) -> pl.DataFrame:
    """Returns a small daily table."""
    rng = np.random.default_rng(0)
    dates = [date(2024, 1, 1) + timedelta(days=n) for n in range(days)]
    names = [f"s{n}" for n in range(series) for _ in range(days)]
    return pl.DataFrame(
        {"store": names, "date": dates * series, "sales": rng.normal(10, 2, series * days).round(3)}
    )


def soak(call: Callable[[], object], calls: int) -> Soaked:
    """Returns what a number of equal calls leave behind."""
    process, memory, before = psutil.Process(), [], None
    warm = int(WARM_UP * calls)
    for number in range(calls):
        call()
        gc.collect()
        if number == warm:
            before = Left.now()
        if number >= warm:
            memory.append(process.memory_info().rss / 1e6)
    assert before is not None
    return Soaked(theil_sen(np.array(memory)), before, Left.now())


def theil_sen(values: np.ndarray) -> float:
    """Returns the median of the slopes between all pairs of values, per step."""
    later, earlier = np.tril_indices(len(values), -1)
    return float(np.median((values[later] - values[earlier]) / (later - earlier)))


def predictions(folder: Path, calls: int) -> Soaked:
    """Returns what predicting from and to files leaves behind."""
    table().write_csv(folder / "table.csv")
    fc.fit(folder / "table.csv", horizon=7, config=TINY, quiet=True, out=folder / "model")

    def call() -> None:
        model = fc.load(folder / "model")
        model.predict_to(folder / "forecasts.parquet", folder / "table.csv", overwrite=True)
        model.predict(folder / "table.csv").write(folder / "forecasts.csv")

    return soak(call, calls)


def fits(folder: Path, calls: int) -> Soaked:
    """Returns what fitting from and to files leaves behind."""
    table().write_csv(folder / "table.csv")
    return soak(
        lambda: fc.fit(
            folder / "table.csv", 7, config=FEW, quiet=True, out=folder / "model", overwrite=True
        ),
        calls,
    )


def main() -> None:
    """Prints what many calls leave behind."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--predictions", type=int, default=300)
    parser.add_argument("--fits", type=int, default=50)
    given = parser.parse_args()
    for work, calls in ((predictions, given.predictions), (fits, given.fits)):
        with tempfile.TemporaryDirectory() as folder:
            found = work(Path(folder), calls)
        print(f"{calls} {work.__name__}: {1000 * found.slope:+.1f} kB per call")
        print(f"  before {found.before}\n  after  {found.after}")


if __name__ == "__main__":
    main()
