"""MASE and scaled quantile loss on files of electricity prices, by the protocol of fev-bench.

    python benchmarks/epf.py EPF-DE.csv EPF-NP.csv [--seeds 3] [--budget 2m] [--json OUT]

A file holds times, prices (the column OT, or --target) and forecasts of load and generation that are
known a day ahead: all its other columns. The last 480 hours are the test span: 20 windows of 24 hours
(`--windows`).
A model is trained once, on all that comes before the span, and rolls on without being fitted again.
The scale of MASE and SQL is the 24-hour seasonal error of all history before each cutoff. Skill is
1 − the geometric mean over the files of error / seasonal naive's error; for SQL with the published
errors of seasonal naive (--naive-sql for other markets; ours where there is none). Intervals hold 95 %
of the scores of windows drawn anew in blocks. `--validation 4`: the four spans of 480 hours before the
test span, each with a fit of its own; of the test span no row is read.

    python benchmarks/epf.py --two-years EPF-DE.csv EPF-NP.csv [--published EPF-DE-published.csv …] \\
        [--update-every 28d] [--earlier] [--no-fit] [--keep FOLDER]

prints what `epf_two_years` says; the price is then the last column.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import accuracy_report as report
import numpy as np
from accuracy import NAIVE, Floats, Found, Rows, compare, last_windows, value
from accuracy_report import Row
from epf_two_years import two_years

from forecaster.config import Config
from forecaster.errors import ConfigError, DataError
from forecaster.evaluation.comparison import MODEL, RIDGE
from forecaster.panel.build import open_panel
from forecaster.panel.panel import Panel

HORIZON, WINDOWS, SEASON = 24, 20, 24
METRICS = ("mase", "sql", "wql")
NAIVE_SQL = {"DE": 1.388, "NP": 1.530}
"""Of seasonal naive, as published; by market."""
PUBLISHED = {
    "seasonal naive": {"DE": "1.709 (1.388)", "NP": "1.761 (1.530)"},
    "TFT, from scratch": {"DE": ".656 (.509)", "NP": ".859 (.690)", "five": "42.4 (54.6) %"},
    "PatchTST, from scratch": {"DE": ".573 (.460)", "NP": ".806 (.635)", "five": "47.2 (58.2) %"},
    "Chronos-2": {"DE": ".604 (.491)", "NP": ".850 (.658)", "five": "45.9 (57.2) %"},
    "TiRex-2": {"DE": ".610 (.488)", "NP": ".796 (.612)", "five": "46.6 (57.9) %"},
    "best of 30": {"DE": ".561 (.437)", "NP": ".783 (.612)"},
}
"""MASE (SQL) by market, and the skill over all five markets of fev-bench."""


def main() -> None:
    parser = report.flags("MASE and SQL on electricity prices", "benchmarks/epf.yaml")
    parser.add_argument("paths", type=Path, nargs="*", help="tables of hours, one market each")
    parser.add_argument(
        "--two-years", type=Path, nargs="+", default=[], metavar="PATH", help="728 days"
    )
    parser.add_argument(
        "--published", type=Path, nargs="+", default=[], metavar="PATH", help="of these"
    )
    parser.add_argument("--update-every", default="28d", help="time between updates; 28d")
    parser.add_argument("--earlier", action="store_true", help="the 364 days before")
    parser.add_argument("--no-fit", action="store_true", help="published and naive forecasts alone")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="of models made so far")
    parser.add_argument("--target", default="OT", help="column of prices; OT")
    parser.add_argument("--windows", type=int, default=WINDOWS, metavar="N", help="of a span; 20")
    parser.add_argument("--naive-sql", action="append", default=[], metavar="MARKET=SQL")
    given, began = parser.parse_args(), time.monotonic()
    config, found = report.settled(given), Found()
    if given.two_years:
        how = (given.update_every, given.earlier, not given.no_fit, given.keep)
        print(two_years(given.two_years, given.published, config, *how))
        return
    published = NAIVE_SQL | dict(map(_assigned, given.naive_sql))
    panels = {path.stem: opened(path, config, given.target) for path in given.paths}
    for dataset, panel in panels.items():
        found |= measured(dataset, panel, config, given.seeds, given.validation, given.windows)
    if given.validation or given.windows != WINDOWS:
        published = {}  # they are of other windows
    rows = report.rows_of(found) + skills(found, published)
    report.finish(given, rows, written(found, published, bool(given.validation)), began)


def opened(path: Path, config: Config, target: str = "OT") -> Panel:
    """Returns the table of a market: prices, and all other columns known in advance.

    Raises:
        DataError: there is no column of prices, or nothing beside it.
    """
    data = config.data.model_copy(update={"target": (target,), "past": None, "known": ()})
    beside = open_panel(path, data).schema.past
    if not beside:
        raise DataError(f"{path}: expected columns known in advance beside '{target}', found none")
    return open_panel(path, data.model_copy(update={"known": beside, "past": ()}))


def measured(
    dataset: str, panel: Panel, config: Config, seeds: int, spans: int = 0, windows: int = WINDOWS
) -> Found:
    """Returns the scores of all models on one market.

    Args:
        dataset: its name.
        panel: the whole table.
        config: of all fits.
        seeds: fits of each.
        spans: spans before the test span that are scored in its place; 0 = the test span.
        windows: of a span.

    Raises:
        DataError: there is not as much history.
    """
    tasks = [
        last_windows(dataset, panel, HORIZON, windows, (SEASON,), earlier)
        for earlier in range(1, spans + 1) or [0]
    ]
    return compare(tasks, config, seeds, METRICS, "validation" if spans else "test")


def market(dataset: str) -> str:
    """Returns the market that a file's name ends with, as DE of EPF-DE."""
    return dataset.upper().rsplit("-")[-1]


def skills(found: Found, published: Mapping[str, float]) -> list[Row]:
    """Returns the skill over all files, by model and seed, as rows of the data set EPF."""
    models = dict.fromkeys((model, seed) for _, _, seed, model in found if model != NAIVE)
    return [
        Row(
            "EPF", model, HORIZON, seed, f"{metric}_skill", skill(found, published, model, seed, metric)
        )
        for model, seed in models
        for metric in ("mase", "sql")
    ]


def skill(
    found: Found,
    published: Mapping[str, float],
    model: str,
    seed: int,
    metric: str,
    drawn: Mapping[str, Rows] | None = None,
) -> float:
    """Returns 1 − the geometric mean over the files of error / seasonal naive's error.

    Args:
        found: scores of all windows.
        published: SQL of seasonal naive by market.
        model, seed, metric: whose, and which.
        drawn: windows by data set; None = all.
    """
    ratios = []
    for dataset in datasets_of(found):
        mine, naive = (found[dataset, HORIZON, seed, name][metric] for name in (model, NAIVE))
        rows = slice(None) if drawn is None else drawn[dataset]
        ratio = value(mine[rows]) / value(naive[rows])
        if metric == "sql" and market(dataset) in published:
            ratio *= value(naive) / published[market(dataset)]
        ratios.append(ratio)
    return 1 - float(np.exp(np.mean(np.log(ratios))))


def datasets_of(found: Found) -> list[str]:
    """Returns the data sets, in their order."""
    return list(dict.fromkeys(dataset for dataset, *_ in found))


def written(found: Found, published: Mapping[str, float], validation: bool) -> str:
    """Returns the table of MASE (SQL) by market and of the skill, with intervals."""
    datasets, models = datasets_of(found), {model for *_, model in found}
    seeds = sorted({seed for _, _, seed, _ in found})
    lines = []
    for model in (name for name in (NAIVE, RIDGE, MODEL) if name in models):
        cells = []
        for dataset in datasets:
            of_seeds = [found[dataset, HORIZON, seed, model] for seed in seeds]
            parts = []
            for metric in ("mase", "sql"):
                pairs = np.mean([scores[metric] for scores in of_seeds], axis=0)
                low, high = report.interval(partial(_drawn_value, pairs), [len(pairs)])
                mean = report.cell([value(scores[metric]) for scores in of_seeds])
                parts.append(f"{mean} [{low:.2f}, {high:.2f}]")
            cells.append(f"{parts[0]} ({parts[1]})")
        lines.append([model, *cells, _skill_cell(found, published, model, seeds)])
    for name, errors in PUBLISHED.items() if published else ():
        five = f"all five markets: {errors['five']}" if "five" in errors else "–"
        lines.append([name, *(errors.get(market(dataset), "–") for dataset in datasets), five])
    stage = ", validation" if validation else ""
    return report.markdown([f"MASE (SQL) [95 %]{stage}", *datasets, "skill over these files"], lines)


def _drawn_value(pairs: Floats, drawn: Sequence[Rows]) -> float:
    return value(pairs[drawn[0]])


def _skill_cell(found: Found, published: Mapping[str, float], model: str, seeds: Sequence[int]) -> str:
    if model == NAIVE:
        return "0"
    datasets, parts = datasets_of(found), []
    counts = [len(found[dataset, HORIZON, seeds[0], model]["mase"]) for dataset in datasets]
    for metric in ("mase", "sql"):

        def of_seeds(drawn: Sequence[Rows] | None, metric: str = metric) -> float:
            named = None if drawn is None else dict(zip(datasets, drawn, strict=True))
            return float(np.mean([skill(found, published, model, s, metric, named) for s in seeds]))

        low, high = report.interval(of_seeds, counts)
        parts.append(f"{100 * of_seeds(None):.1f} [{100 * low:.0f}, {100 * high:.0f}]")
    return f"{parts[0]} ({parts[1]}) %"


def _assigned(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return market(name), float(number)
    except ValueError:
        raise ConfigError(f"--naive-sql {text}: expected MARKET=SQL, as BE=1.234") from None


if __name__ == "__main__":
    report.guarded(main)
