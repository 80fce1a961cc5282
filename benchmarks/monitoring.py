"""What `monitor` finds of shifts planted two horizons before the end of real tables, and calls broken of none.

    python benchmarks/monitoring.py --root FOLDER [--spans 3] [--set KEY=VALUE]

FOLDER is that of gift.py. A model is fitted to the rows before a span of two horizons, and monitored after it: as
it is, and with its level, scatter or season changed in the span. After a change of scatter bands alone follow, and
are judged by the two horizons after. Of each table the last rows of a few series.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
from gift import Task, histories, tasks_of
from numpy.typing import NDArray

import forecaster
from forecaster import Config, load_config

CONFIGS = (
    "us_births/D/short",
    "saugeen/D/short",
    "ett1/H/short",
    "ett2/D/short",
    "m4_weekly/W/short",
    "m4_hourly/H/short",
    "hospital/M/short",
    "us_births/M/short",
    "saugeen/W/short",
    "jena_weather/H/short",
)
SERIES, ROWS = 6, 1200
STEPS = {"H": "1h", "D": "1d", "W": "1w", "M": "1mo"}
LEVEL, SCATTER = 4.0, 3.0

Floats = NDArray[np.float64]
Change = Callable[[Floats, int, int], Floats]


def as_it_is(values: Floats, begin: int, season: int) -> Floats:
    """Returns the values."""
    return values


def level(values: Floats, begin: int, season: int) -> Floats:
    """Returns values whose level rises by four typical differences of a season."""
    changed = values.copy()
    changed[begin:] += LEVEL * unit(values[:begin], season)
    return changed


def scatter(values: Floats, begin: int, season: int) -> Floats:
    """Returns values with noise of three typical differences on top."""
    changed, noise = values.copy(), np.random.default_rng(0).normal(size=len(values) - begin)
    changed[begin:] += SCATTER * unit(values[:begin], season) * noise
    return changed


def turned(values: Floats, begin: int, season: int) -> Floats:
    """Returns values whose season is half a season late."""
    changed, late = values.copy(), season // 2
    changed[begin:] = values[begin - late : len(values) - late]
    return changed


def unit(values: Floats, season: int) -> float:
    """Returns the median difference of a season."""
    return float(np.nanmedian(np.abs(values[season:] - values[:-season])))


def main() -> None:
    """Prints a row per table."""
    parser = argparse.ArgumentParser(
        description="planted shifts that a monitor finds, and false alarms"
    )
    parser.add_argument("--root", type=Path, required=True, help="folder of list.csv and the tables")
    parser.add_argument("--spans", type=int, default=3, help="untouched spans a table; 3")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings")
    given = parser.parse_args()
    config = load_config(None, given.set)
    tasks = {task.config: task for task in tasks_of(given.root, ["short"], None)}
    alarms, found, held = list[bool](), dict[str, list[bool]](), list[float]()
    for task in (tasks[name] for name in CONFIGS if name in tasks):
        series = some_series(given.root, task)
        season = max(task.season, {"D": 7}.get(task.config.split("/")[1], 1))
        shortest = min(map(len, series.values()))
        for span in range(given.spans):
            if 4 * (span + 1) * task.horizon > shortest // 2:
                break  # too little is left to fit
            verdicts = dict(judged(series, task, season, span, config, held))
            alarms.append(verdicts.pop("as it is"))
            for name, one in verdicts.items():
                found.setdefault(name, []).append(one)
            marks = " ".join(f"{name} {'found' if one else 'missed'}" for name, one in verdicts.items())
            print(f"{task.config:22} {span}  {'FALSE ALARM ' * alarms[-1]}{marks}", flush=True)
    shares = "  ".join(f"{name} {np.mean(some):.0%} of {len(some)}" for name, some in found.items())
    print(f"found: {shares}")
    print(f"false alarms: {np.mean(alarms):.0%} of {len(alarms)}")
    print(f"80 % band after recalibration: {' '.join(f'{100 * share:.0f}' for share in held)}")


def judged(
    series: dict[str, Floats], task: Task, season: int, span: int, config: Config, held: list[float]
) -> Iterator[tuple[str, bool]]:
    """Yields by change whether a monitor calls a model broken or names a drift; adds what new bands hold."""
    ahead, step = 2 * task.horizon, STEPS[task.config.split("/")[1]]
    rest = (2 * span + 2) * ahead  # rows from the first changed one on
    changes: dict[str, Change] = {"as it is": as_it_is}
    if span == 0:
        changes |= {"level": level, "scatter": scatter}
        changes |= {"season": turned} if season > 1 else {}
    model = None
    for name, change in changes.items():
        values = {key: change(own, len(own) - rest, season) for key, own in series.items()}
        if model is None:
            seen = frame_of(values, rest, step)
            model = forecaster.fit(
                seen, task.horizon, config=config, series="id", tracking=False, quiet=True
            )
        table = frame_of(values, rest - ahead, step)
        monitor = model.monitor(table, tracking=False, quiet=True)
        assert monitor is not None
        yield name, bool(monitor.broken or (name != "as it is" and monitor.drifts))
        if name == "scatter":
            moved = model.update(table, refit="bands", tracking=False, quiet=True)
            later = moved.monitor(frame_of(values, rest - 2 * ahead, step), tracking=False, quiet=True)
            assert later is not None
            held.append(float(np.average(later.blocks.inside, weights=later.blocks.cells)))


def some_series(root: Path, task: Task) -> dict[str, Floats]:
    """Returns the last rows of a few series of a task, the longest first."""
    every = {
        name: part["y"].to_numpy()
        for name, part in histories(pl.read_parquet(root / task.file)).items()
    }
    longest = sorted(every, key=lambda name: -len(every[name]))[:SERIES]
    return {name: every[name][-ROWS:] for name in longest}


def frame_of(series: dict[str, Floats], without: int, step: str) -> pl.DataFrame:
    """Returns the rows of series but for their last ones, dated back from one day."""
    longest = max(map(len, series.values()))
    end = pl.date(2020, 1, 1).dt.offset_by(f"{longest}{step}")
    times = pl.select(pl.datetime_range(pl.date(2020, 1, 1), end, step)).to_series()
    parts = []
    for name, own in series.items():
        kept = len(own) - without
        parts.append(
            pl.DataFrame({"id": name, "ds": times[longest - len(own) :][:kept], "y": own[:kept]})
        )
    return pl.concat(parts)


if __name__ == "__main__":
    main()
