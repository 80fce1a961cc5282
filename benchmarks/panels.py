"""Weighted quantile loss on the last windows of a table with covariates known in advance.

    python benchmarks/panels.py vic_electricity.csv bike_sharing.csv [--seeds 3] [--budget 2m]
    python benchmarks/panels.py sales.csv --target units --horizon 28 --known price promo --seasons 7 28

The last 50 windows that do not overlap are scored; a model is trained once, on all that comes before
them. It stands beside a seasonal naive of each season; the better of them is the one to beat. Skill is
1 − WQL / that one's WQL, and its interval holds 95 % of the skills of windows drawn anew in blocks.
The two tables above have their settings here; any other table needs flags. `--validation`: the 50
windows before the test span, of which no row is read.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import accuracy_report as report
import numpy as np
from accuracy import NAIVE, Found, Rows, compare, last_windows, value
from accuracy_report import Row
from known_tables import Setting, add_flags, setting_of

from forecaster.config import Config
from forecaster.evaluation.comparison import MODEL, RIDGE
from forecaster.panel.build import open_panel

METRICS = ("wql", "mase", "sql")
WINDOWS = 50


def main() -> None:
    parser = report.flags(
        "WQL on the last windows of tables with known covariates", "configs/default.yaml"
    )
    parser.add_argument("paths", type=Path, nargs="+", help="tables of one series each")
    add_flags(parser)
    parser.add_argument("--seasons", type=int, nargs="+", help="steps of each seasonal naive")
    parser.add_argument("--windows", type=int, default=WINDOWS, help=f"scored; {WINDOWS}")
    given, began = parser.parse_args(), time.monotonic()
    config, found = report.settled(given), Found()
    settings = {path: setting_of(path, given, "horizon", "target", "seasons") for path in given.paths}
    for path, setting in settings.items():
        found |= measured(path, setting, config, given.seeds, given.windows, given.validation)
    rows = report.rows_of(found) + skills(found)
    report.finish(given, rows, written(found, bool(given.validation)), began)


def measured(
    path: Path, setting: Setting, config: Config, seeds: int, windows: int = WINDOWS, spans: int = 0
) -> Found:
    """Returns the scores of all models on one table.

    Args:
        path: of the table.
        setting: what is forecast of it.
        config: of all fits.
        seeds: fits of each.
        windows: of a span.
        spans: spans before the test span that are scored in its place; 0 = the test span.

    Raises:
        DataError: there is not as much history.
    """
    roles = {"target": setting.target, "known": setting.known, "past": ()}
    panel = open_panel(path, config.data.model_copy(update=roles))
    tasks = [
        last_windows(path.stem, panel, setting.horizon, windows, setting.seasons, earlier)
        for earlier in range(1, spans + 1) or [0]
    ]
    found = compare(tasks, config, seeds, METRICS, "validation" if spans else "test")
    names = [name for name in dict.fromkeys(model for *_, model in found) if name.startswith(NAIVE)]
    better = min(names, key=lambda name: value(found[path.stem, setting.horizon, 0, name]["wql"]))
    # The one to beat has the plain name beside its own.
    return found | {
        (dataset, horizon, seed, NAIVE): scores
        for (dataset, horizon, seed, name), scores in found.items()
        if name == better
    }


def skills(found: Found) -> list[Row]:
    """Returns 1 − WQL / the better seasonal naive's, as rows."""
    return [
        Row(
            dataset, model, horizon, seed, "wql_skill", _skill(found, (dataset, horizon), model, [seed])
        )
        for dataset, horizon, seed, model in found
        if model in (RIDGE, MODEL)
    ]


def _skill(
    found: Found,
    table: tuple[str, int],
    model: str,
    seeds: Sequence[int],
    drawn: Rows | None = None,
) -> float:
    rows = slice(None) if drawn is None else drawn
    return float(
        np.mean(
            [
                1
                - value(found[*table, s, model]["wql"][rows])
                / value(found[*table, s, NAIVE]["wql"][rows])
                for s in seeds
            ]
        )
    )


def _drawn_skill(
    found: Found, table: tuple[str, int], model: str, seeds: Sequence[int], drawn: Sequence[Rows]
) -> float:
    return _skill(found, table, model, seeds, drawn[0])


def written(found: Found, validation: bool) -> str:
    """Returns the table of WQL, with skills and their intervals."""
    seeds = sorted({seed for _, _, seed, _ in found})
    stage = ", validation" if validation else ""
    lines = []
    for dataset, horizon, model in dict.fromkeys((d, h, m) for d, h, _, m in found if m != NAIVE):
        table = (dataset, horizon)
        of_seeds = [found[*table, seed, model] for seed in seeds]
        cells = [report.cell([value(s[m]) for s in of_seeds], 4) for m in METRICS]
        skill = "–"
        if model in (RIDGE, MODEL):
            drawn_skill = partial(_drawn_skill, found, table, model, seeds)
            low, high = report.interval(drawn_skill, [len(of_seeds[0]["wql"])])
            skill = (
                f"{100 * _skill(found, table, model, seeds):.1f} [{100 * low:.0f}, {100 * high:.0f}] %"
            )
        elif value(of_seeds[0]["wql"]) == value(found[*table, seeds[0], NAIVE]["wql"]):
            skill = "to be beaten"
        lines.append([f"{dataset}, {horizon} steps{stage}", model, *cells, skill])
    header = [
        "data",
        "model",
        *(metric.upper() for metric in METRICS),
        "WQL below the better naive [95 %]",
    ]
    return report.markdown(header, lines)


if __name__ == "__main__":
    report.guarded(main)
