"""Gaps are filled where told: a missing cell takes the last value before it in its series and column.

What comes in is a panel with gap rows in their place; what goes out is the panel with cells missing
between two observed ones filled, and a note with their number. Cells after a column's last observed
one stay missing, so that no cutoff moves. No loop over series.

Axes: row.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from forecaster.panel.findings import Finding
from forecaster.panel.panel import MISSING, Panel


def forward_filled(panel: Panel) -> Panel:
    """Returns the panel without missing cells between observed ones, and a note that says so.

    Args:
        panel: any; targets, past and known covariates are filled, numbers and categories.
    """
    values, codes = panel.values.copy(), panel.codes.copy()
    first, total = panel.n_rows, 0
    for cells, missing in ((values, np.isnan), (codes, lambda codes: codes == MISSING)):
        for column in range(cells.shape[1]):
            rows, before = _between(missing(cells[:, column]), panel.indptr)
            cells[rows, column] = cells[before, column]
            first, total = min([first, *rows[:1]]), total + len(rows)
    if not total:
        return panel
    series = int(np.searchsorted(panel.indptr, first, side="right") - 1)
    note = Finding(
        "note",
        "gaps",
        f"{total:,} missing cells between observed ones were filled with the value before them",
        "as --on-gaps forward-fill says",
        series=panel.labels[series],
        where=panel.calendar.text(int(panel.time[first])),
        count=total,
    )
    return replace(panel, values=values, codes=codes, notes=(*panel.notes, note))


def _between(
    missing: NDArray[np.bool_], indptr: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the missing rows between two observed ones of a series, and the row before each gap."""
    rows = np.flatnonzero(missing)
    observed = np.flatnonzero(~missing)
    if not len(rows) or not len(observed):
        return rows[:0], rows[:0]
    after = np.searchsorted(observed, rows)
    before = observed[np.maximum(after - 1, 0)]
    behind = observed[np.minimum(after, len(observed) - 1)]
    owner = np.searchsorted(indptr, rows, side="right") - 1
    inside = (after > 0) & (after < len(observed))
    inside &= (before >= indptr[owner]) & (behind < indptr[owner + 1])
    return rows[inside], before[inside]
