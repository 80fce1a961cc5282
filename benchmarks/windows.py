"""Microseconds per window of every stage between a panel and a network, on one thread.

    python benchmarks/windows.py [--peers [--cache FOLDER]]

Windows are 96 + 24 rows of one target and two known covariates, cut from hourly series. Stages: the
bare gather (one `index_select` on the overlapping view), a whole `Batch` as networks train on it, one with
the history that experts read, the training stream with its order, and, for comparison, a Dataset of
single windows behind a DataLoader. Medians of repeats, in processor time of the one thread, so that what
else a machine does is not counted. With --peers the loaders of other packages are measured too, each in an
environment of its own (see `peers.py`).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import peers
import polars as pl
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from forecaster.config import Config, DataConfig
from forecaster.fitting.fit import resolve
from forecaster.panel.build import open_panel
from forecaster.panel.panel import Panel
from forecaster.windows.store import training_store
from forecaster.windows.streams import TrainingStream

CONTEXT, HORIZON = 96, 24
TARGETS = {"bare gather": 0.3, "Batch": 1.0}
REPEATS = 15


def main() -> None:
    parser = argparse.ArgumentParser(description="window loading, stage by stage")
    parser.add_argument("--peers", action="store_true", help="measure other packages too")
    parser.add_argument("--cache", type=Path, default=peers.CACHE, help="folder of their environments")
    given = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(title=f"us per window of {CONTEXT} + {HORIZON} rows x 3 columns, one thread")
    table.add_column("stage")
    table.add_column("target", justify="right")
    for name in peers.SIZES:
        table.add_column(name, justify="right")
    measured = [measure(make_panel(*size)) for size in peers.SIZES.values()]
    for stage in measured[0]:
        goal = f"<= {goal}" if (goal := TARGETS.get(stage.split(",")[0])) else ""
        table.add_row(stage, goal, *(f"{figures[stage]:.2f}" for figures in measured))
    if given.peers:
        table.add_section()
        for stage, figures_of_peer in peers.measured(given.cache):
            table.add_row(stage, "", *figures_of_peer)
    Console(width=110).print(table)


def make_panel(n_series: int, n_rows: int, known: int = 2) -> Panel:
    """Returns series of noise, each observed from its own hour on, with covariates known in advance."""
    rng = np.random.default_rng(0)
    series = np.repeat(np.arange(n_series), n_rows)
    hour = np.tile(np.arange(n_rows), n_series) + series % 24
    cells = rng.normal(size=(len(series), 1 + known))
    names = tuple(f"k{k}" for k in range(known))
    frame = pl.DataFrame({"id": series, "time": 3_600_000_000 * hour}).with_columns(
        pl.col("time").cast(pl.Datetime("us")),
        *(pl.Series(name, cells[:, column]) for column, name in enumerate(("y", *names))),
    )
    return open_panel(frame, DataConfig(series=("id",), target=("y",), known=names, past=(), static=()))


def measure(panel: Panel) -> dict[str, float]:
    """Returns microseconds per window by stage."""
    config = Config().replaced(
        horizon=HORIZON, model={"context_length": CONTEXT, "patch": 24, "experts": []}
    )
    plan, split = resolve(panel, config)
    index, store = split.train, training_store(panel, plan)
    rng = np.random.default_rng(1)
    figures = {}
    view = _overlapping(torch.from_numpy(panel.values))
    for size in (256, 1024):
        located = [index.locate(rng.integers(len(index), size=size)) for _ in range(8)]
        starts = [torch.from_numpy(cutoff).sub(CONTEXT - 1).clamp(min=0) for _, _, cutoff in located]
        gather = partial(_each, partial(view.index_select, 0), [(start,) for start in starts])
        figures[f"bare gather, {size}"] = _median(gather, 8 * size)
        for name, history in (("Batch", False), ("Batch with history", True)):
            cut = partial(_each, partial(store.batch, history=history), located)
            figures[f"{name}, {size}"] = _median(cut, 8 * size)
        stream = iter(TrainingStream(store, index, size, seed=0))
        figures[f"training stream, {size}"] = _median(_drain(stream, 16384 // size), 16384)
    loader = DataLoader(SingleWindows(panel, index.locate(np.arange(len(index)))[2]), 256, shuffle=True)
    figures["DataLoader over single windows, 256"] = _median(_drain(iter(loader), 4), 4 * 256, 3)
    return figures


class SingleWindows(Dataset[tuple[Tensor, ...]]):
    """What is written first everywhere: one window per item, stacked by the default collate."""

    def __init__(self, panel: Panel, cutoffs: np.ndarray):
        self._values, self._cutoffs = torch.from_numpy(panel.values), cutoffs

    def __len__(self) -> int:
        return len(self._cutoffs)

    def __getitem__(self, number: int) -> tuple[Tensor, ...]:
        cutoff = self._cutoffs[number]
        window = self._values[max(0, cutoff - CONTEXT + 1) : cutoff + HORIZON + 1]
        missing = CONTEXT + HORIZON - len(window)
        window = torch.cat([window.new_full((missing, 3), torch.nan), window])
        context = window[:CONTEXT, 0]
        return context, ~context.isnan(), window[:, 1:], ~window[:, 1:].isnan(), window[CONTEXT:, 0]


def _overlapping(values: Tensor) -> Tensor:
    rows, columns = values.shape
    width = CONTEXT + HORIZON
    return values.as_strided((rows - width + 1, width, columns), (columns, columns, 1))


def _each(work: Callable[..., object], arguments: Sequence[tuple[Any, ...]]) -> None:
    for own in arguments:
        work(*own)


def _drain(batches: Iterator[object], count: int) -> Callable[[], object]:
    return lambda: [None for _ in islice(batches, count)]


def _median(work: Callable[[], object], windows: int, repeats: int = REPEATS) -> float:
    """Returns the median microseconds per window of repeated work, after one run to warm up."""
    work()
    spent = []
    for _ in range(repeats):
        begun = time.thread_time()
        work()
        spent.append(time.thread_time() - begun)
    return 1e6 * statistics.median(spent) / windows


if __name__ == "__main__":
    main()
