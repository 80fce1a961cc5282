"""MSE and MAE on an hourly ETT file, by the protocol that the published tables follow.

    python benchmarks/ett.py ETTh1.csv [--horizons 96 192 336 720] [--seeds 3] [--budget 2m] [--json F]

Rows 0 … 14,399 alone: 8,640 train, 2,880 validate, 2,880 test; what a test window reads may reach back
into the rows before. Values are scaled channel by channel with the mean and the population standard
deviation of the training rows, and scored as they are. Test windows lie one row apart and none is
dropped: 2,785, 2,689, 2,545 and 2,161 for the four horizons. Nothing is fitted again on the rows that
validate, so a config with `fit.refit` is refused. `--validation`: all parts end one test part earlier.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import accuracy_report as report
import numpy as np
from accuracy import NAIVE, Found, Task, compare, followed

from forecaster.config import Config, DataConfig
from forecaster.errors import ConfigError, DataError
from forecaster.evaluation.comparison import MODEL, RIDGE
from forecaster.panel.build import open_panel
from forecaster.panel.panel import Panel

HORIZONS = (96, 192, 336, 720)
WINDOWS = (2785, 2689, 2545, 2161)
SEASON = 24
PUBLISHED = {
    "ETTh1": {
        "ridge, lookbacks 336, 720, 1440": ".368/.393 .400/.412 .414/.426 .414/.445 .399/.419",
        "best honest from-scratch cell of each column": ".352/.384 .388/.410 .407/.427 .424 .397",
        "PatchTST, re-run by TFB": ".377/.397 .409/.425 .431/.444 .457/.477 .419",
        "DLinear": ".379 .408 .440 .471 .425",
        "iTransformer, re-run by TFB": ".386 .424 .449 .495 .439",
        "Autoformer": ".449 .500 .521 .514 .496",
        "Informer": ".865 1.008 1.107 1.181 1.040",
    }
}
"""MSE/MAE at the four horizons, then their average."""


@dataclass(frozen=True)
class Parts:
    """Rows of the three parts of a table, one after the other."""

    train: int = 8640
    validation: int = 2880
    test: int = 2880

    @property
    def seen(self) -> int:
        """Rows that a fit is given."""
        return self.train + self.validation

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return self.seen + self.test

    def earlier(self, spans: int) -> Parts:
        """The same with so many test parts less at the end; those that train are fewer."""
        return replace(self, train=self.train - spans * self.test)


PARTS = Parts()


def main() -> None:
    parser = report.flags("MSE and MAE on an hourly ETT file", "benchmarks/ett.yaml")
    parser.add_argument("path", type=Path, help="table of 14,400 hours or more")
    parser.add_argument("--horizons", type=int, nargs="+", default=list(HORIZONS))
    given, began = parser.parse_args(), time.monotonic()
    config = report.settled(given)
    found = measured(given.path, given.horizons, config, given.seeds, given.validation)
    table = written(found, given.path.stem, bool(given.validation))
    report.finish(given, report.rows_of(found), table, began)


def measured(
    path: Path,
    horizons: Sequence[int],
    config: Config,
    seeds: int,
    spans: int = 0,
    parts: Parts = PARTS,
) -> Found:
    """Returns the scores of all models at all horizons.

    Args:
        path: of the table.
        horizons: leads, a fit for each.
        config: of all fits.
        seeds: fits of each.
        spans: test parts before the last that are scored in its place; 0 = the last.
        parts: of the table.

    Raises:
        DataError: the file has too few rows, or rows without a value.
        ConfigError: the config would train on rows that only validate, or a horizon is too long.
    """
    if config.fit.refit:
        raise ConfigError(
            f"fit.refit true: here the first {parts.train:,} rows train and the next "
            f"{parts.validation:,} only validate; set it to false"
        )
    most = min(parts.validation, parts.test)
    for horizon in horizons:
        if not 1 <= horizon <= most:
            raise ConfigError(f"--horizons {horizon}: expected 1 … {most:,}, the rows of the test part")
    if parts.earlier(spans).train < parts.validation:
        raise ConfigError(
            f"--validation {spans}: expected {(parts.train - parts.validation) // parts.test} at most, "
            f"so that {parts.validation:,} rows are left to train"
        )
    used = [parts.earlier(span) for span in range(1, spans + 1)] or [parts]
    table = opened(path, config.data, used[0].rows)
    found: Found = {}
    for horizon in horizons:
        tasks = [task_of(path.stem, table, horizon, part) for part in used]
        stage = "validation" if spans else "test"
        found |= compare(tasks, config, seeds, ("mse", "mae"), stage)
    return found


def opened(path: Path, data: DataConfig, rows: int) -> Panel:
    """Returns the first rows of a table of one series.

    Raises:
        DataError: there are fewer, or some of them lack a value.
    """
    panel = open_panel(path, data)
    if panel.n_series != 1 or panel.n_rows < rows:
        raise DataError(
            f"{panel.name}: expected one series of {rows:,} rows or more, found {panel.n_series:,} "
            f"series and {panel.n_rows:,} rows"
        )
    panel = panel.cut(panel.indptr[:-1], np.array([rows]))
    missing = int(np.isnan(panel.values[:, : panel.n_channels]).sum())
    if missing:
        raise DataError(
            f"{panel.name}: expected a value in every cell of the first {rows:,} rows, {missing:,} are "
            "empty"
        )
    return panel


def task_of(dataset: str, panel: Panel, horizon: int, parts: Parts = PARTS) -> Task:
    """Returns what is fitted and forecast at one horizon, scaled by what the training rows say."""
    begin = panel.indptr[:-1]
    values = panel.values[: parts.rows].astype(np.float64)
    train = values[: parts.train]
    scaled = ((values - train.mean(axis=0)) / train.std(axis=0)).astype(np.float32)
    panel = replace(panel.cut(begin, np.array([parts.rows])), values=scaled)
    cutoff = np.arange(parts.seen - 1, parts.rows - horizon)
    assert len(cutoff) == parts.test - horizon + 1
    if parts.test == PARTS.test and horizon in HORIZONS:
        assert len(cutoff) == WINDOWS[HORIZONS.index(horizon)]
    return Task(
        dataset=dataset,
        seen=panel.cut(begin, np.array([parts.seen])),
        panel=panel,
        series=np.zeros(len(cutoff), np.int64),
        cutoff=cutoff,
        actual=followed(panel, cutoff, horizon),
        seasons=(SEASON,),
        trains_until=parts.train - 1,
    )


def written(found: Found, dataset: str, validation: bool) -> str:
    """Returns the table of MSE/MAE: ours, the baselines', published ones."""
    rows = report.rows_of(found)
    horizons = list(dict.fromkeys(row.horizon for row in rows))
    header = [
        f"{dataset}, MSE/MAE{', validation' if validation else ''}",
        *map(str, horizons),
        "average",
    ]
    lines, models = [], {row.model for row in rows}
    for model in (name for name in (NAIVE, RIDGE, MODEL) if name in models):
        cells = []
        for horizon in [*horizons, None]:
            pair = []
            for metric in ("mse", "mae"):
                at = [
                    report.wanted(rows, model=model, metric=metric, horizon=h)
                    for h in ([horizon] if horizon else horizons)
                ]
                pair.append(report.cell([float(np.mean(seed)) for seed in zip(*at, strict=True)], 4))
            cells.append(" / ".join(pair))
        lines.append([model, *cells])
    if not validation and tuple(horizons) == HORIZONS:
        lines += [[name, *cells.split()] for name, cells in PUBLISHED.get(dataset, {}).items()]
    return report.markdown(header, lines)


if __name__ == "__main__":
    report.guarded(main)
