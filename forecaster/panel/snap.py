"""Stray times move to the nearest place on a grid: only where the user said so, and counted.

What comes in are rows in blocks of series; what goes out are the same rows on one grid per series.
A series whose rows all lie on a grid already keeps it. Elsewhere the grid goes through the place that
most of its rows share, as 06:00 every day, and where none is, through the natural one on the wall
clock: midnight, Monday, the first of the month. Two rows that meet at one place are duplicates.

Axes: n = times, row, series.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from forecaster.config import DataConfig
from forecaster.panel.calendar import Calendar, Times
from forecaster.panel.cells import SERIES, TIME
from forecaster.panel.findings import Finding
from forecaster.panel.freq import DAY, FIXED, MONTHS, declared_freq
from forecaster.panel.infer_freq import find_freq, modes
from forecaster.panel.schema import Schema


@dataclass(frozen=True)
class Grid:
    """One grid per series."""

    calendar: Calendar
    anchor: Times
    """int64 [series]: one place on each grid."""

    def nearest(self, series: Times, time: Times) -> Times:
        """Returns the nearest places on the grids, of two equally near ones the earlier: int64 [n].

        Args:
            series: int64 [n], numbers of series.
            time: int64 [n].
        """
        anchor = self.anchor[series]
        place = self.calendar.steps(anchor, time)
        below, above = (self.calendar.shift(anchor, place + more) for more in (0, 1))
        return np.where(time - below <= above - time, below, above)


def find_grid(calendar: Calendar, time: Times, indptr: Times) -> Grid:
    """Returns the grids that rows were meant to lie on.

    Args:
        calendar: with the step.
        time: int64 [row], rising within each series.
        indptr: int64 [series + 1].
    """
    anchor, _, off = calendar.placed(time, indptr)
    length = np.diff(indptr)
    owner = np.repeat(np.arange(len(length)), length)
    stray = np.bincount(owner[off], minlength=len(length)) > 0
    if stray.any():
        natural = _natural(calendar, anchor)
        each = natural[owner]
        rest = time - calendar.shift(each, calendar.steps(each, time))
        rest, count = modes(rest, length)
        shared = np.where(2 * count > length, rest, 0)
        through = calendar.instant(calendar.wall_clock(natural) + shared)
        anchor = np.where(stray, through, anchor)
    return Grid(calendar, anchor)


def snapped(
    frame: pl.DataFrame, keys: pl.DataFrame, schema: Schema, data: DataConfig
) -> tuple[pl.DataFrame, Schema, Grid, list[Finding]]:
    """Returns rows on the grid of their series, the schema with its step, the grid, and a note.

    Args:
        frame: `SERIES` in blocks, and `TIME`.
        keys: of the series.
        schema: with the facts of the time column; its step holds where it has one.
        data: the step, where it is declared.

    Raises:
        DataError: the step cannot be found.
    """
    stamps = frame.select(SERIES, TIME).unique().sort(SERIES, TIME)
    counts = np.bincount(stamps[SERIES].to_numpy(), minlength=max(keys.height, 1))
    indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    own, integer = stamps[TIME].to_numpy(), schema.time_dtype == "integer"
    freq = schema.freq or (declared_freq(data.freq, integer=integer) if data.freq else "")
    freq = freq or find_freq([(own, indptr)], integer, schema.time_zone, rounded=True)[0]
    calendar = Calendar(freq, schema.time_zone, integer)
    grid = find_grid(calendar, own, indptr)
    series, old = frame[SERIES].to_numpy(), frame[TIME].to_numpy()
    new = grid.nearest(series, old)
    found = []
    if (moved := np.flatnonzero(new != old)).size:
        first = int(moved[0])
        label = "/".join(map(str, keys.row(int(series[first])))) if keys.width else ""
        found.append(
            Finding(
                "note",
                "snapped",
                f"{len(moved)} of {len(old)} times were moved to the nearest place on a grid of "
                f"{freq}, by {_span(int(np.abs(new - old).max()), integer)} at most",
                "leave out --snap to keep them as they are, or say another step with --freq",
                series=label,
                where=calendar.text(int(old[first])),
                count=len(moved),
            )
        )
    frame = frame.with_columns(pl.Series(TIME, new))
    return frame, replace(schema, freq=freq), grid, found


def _natural(calendar: Calendar, time: Times) -> Times:
    """Returns the natural place to count steps from, near a stamp of each series: int64 [series]."""
    unit = calendar.freq.lstrip("0123456789")
    if calendar.integer:
        return time // int(calendar.step) * int(calendar.step)
    days = calendar.wall_clock(time) // DAY
    weekday = (days + 3) % 7
    if unit == "w":
        days = days - weekday
    elif unit == "b":
        days = days + np.where(weekday > 4, 7 - weekday, 0)
    elif unit in MONTHS:
        # January is long enough for every day of the month.
        days = days.astype("M8[D]").astype("M8[Y]").astype("M8[D]").astype(np.int64)
        days = days + 30 * unit.endswith("e")
    return calendar.instant(days * DAY)


def _span(length: int, integer: bool) -> str:
    if integer:
        return str(length)
    unit = next((unit for unit in ("d", "h", "min", "s", "ms") if length >= FIXED[unit]), "us")
    return f"{length / FIXED[unit]:.3g} {unit}"
