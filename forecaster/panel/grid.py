"""The regular grid: rows move to their place on it, and gaps become empty rows.

A row off the grid is refused, and a grid that would be mostly empty.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from forecaster.errors import DataError
from forecaster.panel.arrays import scattered
from forecaster.panel.findings import fault
from forecaster.panel.freq import MOST_GRID_ROWS
from forecaster.panel.panel import MISSING, NO_TIME, Panel


def on_grid(panel: Panel, *, declared: bool, sparse: bool = False) -> Panel:
    """Returns the panel with every row on the grid that starts at its series' first row.

    Args:
        panel: rows as observed.
        declared: the step was given, not inferred.
        sparse: most of the grid may be empty.

    Raises:
        DataError: a row is off the grid, or most of the grid would be empty.
    """
    if panel.calendar.is_dense(panel.time, panel.indptr):
        return replace(panel, regular=True)
    length = np.diff(panel.indptr)
    anchor, place, off = panel.calendar.placed(panel.time, panel.indptr)
    if off.any():
        raise _off_grid(panel, off, declared)
    start = np.append(place, 0)[panel.indptr[:-1]]
    place = place - np.repeat(start, length)
    spans = np.append(place, -1)[np.where(length > 0, panel.indptr[1:] - 1, panel.n_rows)] + 1
    total = int(spans.sum())
    if total == panel.n_rows:
        return replace(panel, regular=True)
    if not sparse:
        check_density(panel.name, panel.calendar.freq, total, panel.n_rows)
    indptr = np.concatenate(([0], np.cumsum(spans))).astype(np.int64)
    old = place + np.repeat(indptr[:-1], length)
    empty = np.ones(total, bool)
    empty[old] = False
    new = np.flatnonzero(empty)
    owner = np.searchsorted(indptr, new, side="right") - 1
    times = panel.calendar.shift(anchor[owner], start[owner] + new - indptr[owner])
    time = scattered(panel.time, old, total, NO_TIME)
    time[new] = times
    return replace(
        panel,
        values=scattered(panel.values, old, total, np.nan),
        codes=scattered(panel.codes, old, total, MISSING),
        time=time,
        indptr=indptr,
        regular=True,
    )


def check_density(name: str, freq: str, total: int, rows: int) -> None:
    """Raises DataError for a grid that would be mostly empty."""
    if total > MOST_GRID_ROWS * rows:
        raise DataError(
            f"{name}: a grid of {freq} would have {total} rows for {rows} in the table, more than "
            f"{MOST_GRID_ROWS} times as many; pass a longer step with --freq, or correct stray times "
            "far from the others"
        )


def _off_grid(panel: Panel, off: NDArray[np.bool_], declared: bool) -> DataError:
    row = int(np.flatnonzero(off)[0])
    series = int(np.searchsorted(panel.indptr, row, side="right") - 1)
    text = panel.calendar.text
    return fault(
        "grid",
        f"{panel.name}: expected steps of {panel.calendar.freq} from "
        f"{text(int(panel.time[panel.indptr[series]]))} in series '{panel.labels[series]}', found "
        f"{text(int(panel.time[row]))} ({int(off.sum())} such rows)",
        "pass another step with --freq, or round the times to it"
        if declared
        else "correct the time of these rows",
        series=panel.labels[series],
        where=text(int(panel.time[row])),
        count=int(off.sum()),
    )
