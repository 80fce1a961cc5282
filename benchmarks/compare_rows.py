"""Rows of gift.py, mcomp.py or league.py before and after a change, table by table.

    python benchmarks/compare_rows.py BEFORE.json AFTER.json [--metric crps] [--model forecaster]

Of each table the mean over seeds; ratio = after / before, ± two standard errors of the difference over seeds,
relative to before (0 of a forecast without a fit, – of a single seed). * = worse by more than 3 % and two
standard errors. Below, the geometric mean of the ratios. Tables scored on other cells are named and left out.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import accuracy_report as report
from stored_rows import Row, geometric, table_name

from forecaster import ConfigError

METRICS = ("crps", "wql", "smape", "mase")
"""In this order; a row has two of them."""
MODEL = "forecaster"
_WORSE = 0.03


@dataclass(frozen=True)
class Change:
    """A metric of one table before and after, means over seeds."""

    before: float
    after: float
    error: float
    """Two standard errors of the difference, relative to before; NaN = not known."""

    @property
    def ratio(self) -> float:
        return self.after / self.before

    @property
    def worse(self) -> bool:
        return self.ratio > 1 + _WORSE + (0.0 if math.isnan(self.error) else self.error)


def main() -> None:
    """Prints the ratios."""
    parser = argparse.ArgumentParser(description="rows of a benchmark before and after a change")
    parser.add_argument("before", type=Path, metavar="BEFORE.json", help="rows of one script")
    parser.add_argument("after", type=Path, metavar="AFTER.json", help="rows of the same script")
    parser.add_argument("--metric", action="append", choices=METRICS, help="this one; may be repeated")
    parser.add_argument("--model", default=MODEL, help=f"of the rows of league.py; {MODEL}")
    given = parser.parse_args()
    old, new = (tables_of(path, given.model) for path in (given.before, given.after))
    print(written(old, new, given.metric or METRICS))


def tables_of(path: Path, model: str = MODEL) -> dict[str, list[Row]]:
    """Returns the rows of each table, one a seed.

    Raises:
        ConfigError: the file holds no rows of the model.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: expected the rows of a benchmark as JSON ({error})") from None
    tables: dict[str, list[Row]] = {}
    for row in rows:
        if row.get("model", model) == model:
            tables.setdefault(table_name(row), []).append(row)
    if not tables:
        raise ConfigError(f"{path}: expected rows of {model}, found none of {len(rows)}")
    return tables


def change(before: Sequence[Row], after: Sequence[Row], metric: str) -> Change:
    """Returns how the mean of a metric over seeds has changed.

    >>> change([{"crps": 2.0, "seed": 0}, {"crps": 2.2, "seed": 1}], [{"crps": 1.0, "seed": None}], "crps").error
    0.09523809523809532
    """
    old, new = ([row[metric] for row in rows] for rows in (before, after))
    base = statistics.fmean(old)
    # Var(mean of n seeds) = Var / n, added up over before and after.
    error = 2 * math.sqrt(_variance_of_mean(before, old) + _variance_of_mean(after, new)) / base
    return Change(base, statistics.fmean(new), error)


def _variance_of_mean(rows: Sequence[Row], values: Sequence[float]) -> float:
    if all(row.get("seed", 0) is None for row in rows):  # no fit: nothing is drawn
        return 0.0
    return statistics.variance(values) / len(values) if len(values) > 1 else math.nan


def written(
    old: Mapping[str, Sequence[Row]], new: Mapping[str, Sequence[Row]], metrics: Sequence[str]
) -> str:
    """Returns a line per table that both have, and the means."""
    shared = [name for name in old if name in new]
    other = [name for name in shared if cells_of(old[name]) != cells_of(new[name])]
    shared = [name for name in shared if name not in other]
    metrics = [one for one in metrics if all(one in row for name in shared for row in old[name])]
    lines = [["table", "seeds", *(words for one in metrics for words in (one, "ratio"))]]
    found: dict[str, list[Change]] = {metric: [] for metric in metrics}
    for name in shared:
        cells = [name, f"{len(old[name])} → {len(new[name])}"]
        for metric in metrics:
            one = change(old[name], new[name], metric)
            found[metric].append(one)
            cells += [f"{one.before:.4g} → {one.after:.4g}", _ratio(one)]
        lines.append(cells)
    means = [f"**geometric mean of {len(shared)}**", ""]
    for changes in found.values():
        means += ["", f"{geometric(one.ratio for one in changes):.4f}"]
    table = report.markdown(lines[0], [*lines[1:], means])
    below = [
        f"{metric}: worse by more than 3 % and two standard errors on {sum(one.worse for one in changes)} "
        f"of {len(changes)} tables"
        for metric, changes in found.items()
    ]
    single = sorted({*old} ^ {*new})
    below += [f"in one file alone: {', '.join(single)}"] * bool(single)
    below += [f"scored on other cells, left out: {', '.join(other)}"] * bool(other)
    return "\n".join([table, "", *below])


def cells_of(rows: Sequence[Row]) -> set[int]:
    """Returns how many cells were scored, over the seeds."""
    return {row["cells"] if "cells" in row else row["n"] for row in rows}


def _ratio(one: Change) -> str:
    error = "–" if math.isnan(one.error) else f"{one.error:.3f}"
    return f"{'*' if one.worse else ''}{one.ratio:.3f} ± {error}"


if __name__ == "__main__":
    report.guarded(main)
