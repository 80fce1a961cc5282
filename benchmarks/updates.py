"""What updates are worth and cost, beside a model that stays as it is and one that is fitted anew as often.

    python benchmarks/updates.py --root FOLDER [--only us_births/D/short] [--set KEY=VALUE]

FOLDER is that of gift.py. Nine windows of a horizon of the last rows of a few series; updates, and fits, come
before each three. Seconds are those of the first update, by what is learned again, over those of the first fit.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
from gift import tasks_of
from monitoring import CONFIGS, STEPS, frame_of, some_series

import forecaster
from forecaster import Config, load_config

WINDOWS, SERVED = 9, 3


def main() -> None:
    """Prints a row per table, and geometric means."""
    parser = argparse.ArgumentParser(
        description="WQL and seconds of updates, beside whole fits and none"
    )
    parser.add_argument("--root", type=Path, required=True, help="folder of list.csv and the tables")
    parser.add_argument("--only", action="append", metavar="CONFIG", help="this one; may be repeated")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings")
    given = parser.parse_args()
    config = load_config(None, given.set)
    rows = []
    print(f"{'':22}   WQL: updated/kept  updated/fitted   seconds/fit: bands experts all")
    for task in tasks_of(given.root, ["short"], given.only or CONFIGS):
        series, step = some_series(given.root, task), STEPS[task.config.split("/")[1]]
        # Of short series a shorter horizon.
        horizon = min(task.horizon, min(map(len, series.values())) // (2 * WINDOWS))
        rows.append(row_of(series, step, horizon, config))
        worth, beside, *costs = rows[-1]
        shown = " ".join(f"{cost:.2f}" for cost in costs)
        print(f"{task.config:22} {worth:18.3f} {beside:15.3f} {shown:>24}", flush=True)
    print(
        f"geometric means        {' '.join(f'{one:.3f}' for one in np.exp(np.log(rows).mean(axis=0)))}"
    )


def row_of(series: dict[str, np.ndarray], step: str, horizon: int, config: Config) -> tuple[float, ...]:
    """Returns the WQL of updates over that of the model kept, and of whole fits; seconds over those of the fit."""
    table, ahead = frame_of(series, 0, step), WINDOWS * horizon
    begun = time.perf_counter()
    seen = frame_of(series, ahead, step)
    model = forecaster.fit(seen, horizon, config=config, series="id", tracking=False, quiet=True)
    fitted = time.perf_counter() - begun
    costs = []
    kinds: tuple[Literal["bands", "experts", "all"], ...] = ("bands", "experts", "all")
    for refit in kinds:
        begun = time.perf_counter()
        model.update(
            frame_of(series, ahead - SERVED * horizon, step), refit=refit, tracking=False, quiet=True
        )
        costs.append((time.perf_counter() - begun) / fitted)
    how: dict[str, Any] = {"windows": WINDOWS, "tracking": False, "quiet": True}
    kept = model.backtest(table, refit="never", **how)
    updated = model.backtest(table, refit="never", update_every=SERVED * horizon, **how)
    whole = model.backtest(table, refit=SERVED, **how)
    losses = [one.scores["forecaster"]["WQL"] for one in (kept, updated, whole)]
    return losses[1] / losses[0], losses[1] / losses[2], *costs


if __name__ == "__main__":
    main()
