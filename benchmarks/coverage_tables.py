"""Coverage of the 80 % band on each table, from rows of gift.py and league.py, with intervals over cutoffs.

    python benchmarks/coverage_tables.py ROWS.json [ROWS.json …] [--model forecaster]

Ties are shared out (forecaster/evaluation/coverage.py); `plain` counts each as inside. The interval holds 90 %
of the coverages of cutoffs drawn anew in blocks; counts are means over seeds. Below: the share of tables in
75 – 85 % among those of at least 400 cells and 15 cutoffs, the mean, the tables whose whole interval is outside
70 – 90 %, and those of at least 100 cells under 65 %.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import accuracy_report as report
import numpy as np
from compare_rows import MODEL, tables_of
from stored_rows import Row

from forecaster import ConfigError
from forecaster.evaluation.coverage import Coverage, coverage_interval

_MANY_CELLS, _MANY_CUTOFFS = 400, 15
_ENOUGH_CELLS, _LEAST = 100, 0.65
_GOOD = 0.75, 0.85


@dataclass(frozen=True)
class Covered:
    """What the band holds on one table."""

    cells: int
    cutoffs: int
    found: Coverage

    @property
    def large(self) -> bool:
        return self.cells >= _MANY_CELLS and self.cutoffs >= _MANY_CUTOFFS


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description="coverage of the 80 % band on each table")
    parser.add_argument("rows", type=Path, nargs="+", metavar="ROWS.json", help="of gift.py, league.py")
    parser.add_argument("--model", default=MODEL, help=f"of the rows of league.py; {MODEL}")
    given = parser.parse_args()
    tables: dict[str, list[Row]] = {}
    for path in given.rows:
        for name, rows in tables_of(path, given.model).items():
            if any("cells_at" not in row for row in rows):
                raise ConfigError(f"{path}, {name}: expected cells_at, found none; run gift.py again")
            tables[name if name not in tables else f"{path.stem}: {name}"] = rows
    print(written({name: covered(rows) for name, rows in tables.items()}))


def covered(rows: Sequence[Row]) -> Covered:
    """Returns the coverage of a table from its rows, one a seed."""
    cells, plain, ties = (
        np.mean([row[name] for row in rows], axis=0)
        for name in ("cells_at", "inside_at", "inside_ties_at")
    )
    found = Coverage(80, *coverage_interval(ties, cells), float(plain.sum() / cells.sum()))
    return Covered(round(cells.sum()), int((cells > 0).sum()), found)


def written(tables: Mapping[str, Covered]) -> str:
    """Returns a line per table, and what all of them come to."""
    lines = [
        [name, f"{one.cells:,}", f"{one.cutoffs}", *_figures(one.found)] for name, one in tables.items()
    ]
    table = report.markdown(("table", "cells", "cutoffs", "holds", "90 % interval", "plain"), lines)
    large = [one.found.share for one in tables.values() if one.large]
    good = sum(_GOOD[0] <= share <= _GOOD[1] for share in large)
    mean, plain = np.mean([(one.found.share, one.found.plain) for one in tables.values()], axis=0)
    missed = [name for name, one in tables.items() if one.found.findings()]
    low = [
        name for name, one in tables.items() if one.cells >= _ENOUGH_CELLS and one.found.share < _LEAST
    ]
    below = [
        f"in 75 – 85 %: {good} of {len(large)} tables of at least {_MANY_CELLS} cells and {_MANY_CUTOFFS} cutoffs",
        f"mean {100 * mean:.1f} % over {len(tables)} tables, plain {100 * plain:.1f} %",
        f"whole interval outside 70 – 90 %: {_listed(missed)} of {len(tables)}",
        f"under 65 % of at least {_ENOUGH_CELLS} cells: {_listed(low)}",
    ]
    return "\n".join([table, "", *below])


def _figures(found: Coverage) -> tuple[str, str, str]:
    ends = "–" if math.isnan(found.low) else f"{100 * found.low:.1f} – {100 * found.high:.1f} %"
    mark = "*" if found.findings() else ""
    return f"{mark}{100 * found.share:.1f} %", ends, f"{100 * found.plain:.1f} %"


def _listed(names: Sequence[str]) -> str:
    return f"{len(names)}{' (' + ', '.join(names) + ')' if names else ''}"


if __name__ == "__main__":
    report.guarded(main)
