"""Rows that share series and time become one row: identical ones in any case, others when told how.

What comes in are rows in blocks of series; what goes out are rows that rise strictly in (series,
time), and findings that say what was done, with the caller's own row numbers. Rows are identical
where they agree in every column that has a role. No loop over series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from forecaster.panel.cells import SERIES, TIME
from forecaster.panel.findings import Finding
from forecaster.panel.order import Order, find_order
from forecaster.panel.table import Table

_AT = [SERIES, TIME]


@dataclass(frozen=True)
class Origin:
    """Where rows came from, to name them in messages."""

    table: Table
    time: str | None
    """The caller's column of times, where the table has one."""
    given: pl.DataFrame
    """The table's rows in its own order: key columns, and `TIME` where the table has times."""
    keys: pl.DataFrame
    """Keys of the numbered series."""
    is_main: bool = True
    """Whether it is the table of the past; findings on another one carry its name."""

    def rows(self, number: int, time: int | None) -> list[int]:
        """Returns the rows (counted from 0) that hold a series at a time."""
        at = np.arange(self.given.height)
        if time is not None:
            at = np.flatnonzero(self.given[TIME].to_numpy() == time)
        found = self.given[at].with_columns(pl.Series("\0row", at))
        shared = [key for key in self.keys.columns if key in self.given.columns]
        if shared:
            found = found.join(self.keys.slice(number, 1).select(shared), on=shared, how="semi")
        # Channels that were made series repeat the table's rows.
        return [row % self.table.frame.height for row in found["\0row"].sort().to_list()]

    def label(self, number: int) -> str:
        """Returns the name of a series; empty where there is one without a key."""
        return "/".join(str(value) for value in self.keys.row(number)) if self.keys.width else ""

    def stamp(self, row: int) -> str:
        """Returns the time of a row as the caller wrote it; empty where rows have none."""
        if self.time is None or self.time not in self.table.frame.columns:
            return ""
        stamp = self.table.frame[self.time][row : row + 1]
        return str((stamp if self.table.times is None else self.table.times.written(stamp, row))[0])

    def place(self, row: int) -> str:
        """Returns a row (counted from 0) in the words of messages."""
        return self.table.place(row + 1)

    @property
    def prefix(self) -> str:
        """The table's name before a finding, where it is not the main one."""
        return "" if self.is_main else f"{self.table.name}: "


def ordered(frame: pl.DataFrame) -> tuple[pl.DataFrame, Order]:
    """Returns rows by series, time and as they came, and how they were ordered."""
    order = find_order(frame.select(SERIES), frame[TIME].to_numpy())
    return order.placed(frame), order


def settled(
    frame: pl.DataFrame, order: Order, origin: Origin, mode: str
) -> tuple[pl.DataFrame, list[Finding]]:
    """Returns rows strictly rising in (series, time), and what was done to them.

    Args:
        frame: rows in this order; of those that repeat, which one is later decides what `last` keeps.
        order: of these rows.
        origin: of these rows.
        mode: "error", "mean" or "last", see `once`.
    """
    found = []
    late = np.flatnonzero(order.overtaken)
    if len(late):
        number, time = frame[SERIES][int(late[0])], frame[TIME][int(late[0])]
        found.append(
            Finding(
                "note",
                "order",
                f"{origin.prefix}{len(late):,} of {frame.height:,} rows come after the row that "
                "follows them in time; all were sorted",
                "nothing needs doing: the order of rows does not matter",
                series=origin.label(number),
                where=origin.place(origin.rows(number, time)[-1]),
                count=len(late),
            )
        )
    if not order.repeated.any():
        return frame, found
    frame, more = once(frame, _AT, origin, mode)
    return frame, found + more


def once(
    frame: pl.DataFrame, by: Sequence[str], origin: Origin, mode: str
) -> tuple[pl.DataFrame, list[Finding]]:
    """Returns one row per key, and what was done to the others.

    Args:
        frame: sorted by the key; rows of one key in the table's order.
        by: `SERIES`, and `TIME` where rows have times.
        origin: of these rows.
        mode: what becomes of rows of one key that disagree. mean: of numbers the mean of those
            given, of categories the last one given; last: the last row; error: an error is among
            the findings.
    """
    values = [name for name in frame.columns if name not in by]
    cells = [_cell(frame, name) for name in values]
    repeat = frame.select(pl.all_horizontal(_as_before(by))).to_series().to_numpy()
    if not repeat.any():
        return frame, []
    agree = frame.select(cells).select(pl.all_horizontal([pl.lit(True), *_as_before(values)]))
    starts = np.flatnonzero(~repeat)
    ends = np.append(starts[1:], frame.height) - 1
    size = ends - starts + 1
    differs = np.logical_or.reduceat(repeat & ~agree.to_series().to_numpy(), starts)
    kept = frame[ends]
    if mode == "mean" and differs.any():
        several = frame.filter(pl.Series(np.repeat(differs, size)))
        means = several.group_by(by).agg(_mean(frame, name) for name in values)
        kept = pl.concat([kept.filter(pl.Series(~differs)), means.select(kept.columns)]).sort(by)
    found = []
    if (size[~differs] > 1).any():
        found.append(_copies(frame, starts, np.where(differs, 1, size), origin))
    if differs.any():
        found.append(_conflicts(frame, starts, np.where(differs, size, 1), origin, mode))
    return kept, found


def _cell(frame: pl.DataFrame, name: str) -> pl.Expr:
    # NaN is a missing number, and equal to another one.
    return pl.col(name).fill_nan(None) if frame[name].dtype.is_float() else pl.col(name)


def _as_before(names: Sequence[str]) -> list[pl.Expr]:
    first = pl.int_range(pl.len()) == 0
    return [pl.col(name).eq_missing(pl.col(name).shift(1)) & ~first for name in names]


def _mean(frame: pl.DataFrame, name: str) -> pl.Expr:
    given = _cell(frame, name).drop_nulls()
    return (
        given.cast(pl.Float64).mean().cast(pl.Float32) if frame[name].dtype.is_float() else given.last()
    )


def _copies(
    frame: pl.DataFrame, starts: NDArray[np.int64], size: NDArray[np.int64], origin: Origin
) -> Finding:
    count = int((size - 1).sum())
    number, rows = _first(frame, starts, size, origin)
    return Finding(
        "warning",
        "duplicates",
        f"{origin.prefix}{count:,} of {frame.height:,} rows are copies of another row of their series "
        "and time; each was kept once",
        "drop the copies, or name the series with --series COLUMN",
        series=origin.label(number),
        where=", ".join(origin.place(row) for row in rows[:2]),
        count=count,
    )


def _conflicts(
    frame: pl.DataFrame,
    starts: NDArray[np.int64],
    size: NDArray[np.int64],
    origin: Origin,
    mode: str,
) -> Finding:
    number, rows = _first(frame, starts, size, origin)
    label, where = origin.label(number), ", ".join(origin.place(row) for row in rows[:2])
    total, places = int(size[size > 1].sum()), int((size > 1).sum())
    if mode == "error":
        timed = TIME in frame.columns
        key = "series and time" if timed else "series"
        stamp = f" at {origin.stamp(rows[0])}" if timed else ""
        return Finding(
            "error",
            "duplicates",
            f"{origin.table.name}: expected one row per {key}, found {len(rows)} that disagree{stamp} "
            f"in {f'series {label!r}' if label else 'all rows'} ({where}; {total} such rows in all)",
            "name the series with --series COLUMN, or settle it with --on-duplicates mean or last",
            series=label,
            where=where,
            count=total,
        )
    kind = "the mean of" if mode == "mean" else "the last of"
    return Finding(
        "note",
        "duplicates",
        f"{origin.prefix}{total:,} of {frame.height:,} rows shared {places:,} places in time and "
        f"disagreed; {kind} each place was kept",
        f"as --on-duplicates {mode} says",
        series=label,
        where=where,
        count=total,
    )


def _first(
    frame: pl.DataFrame, starts: NDArray[np.int64], size: NDArray[np.int64], origin: Origin
) -> tuple[int, list[int]]:
    """Returns the series number of the first key with several rows, and their places in the table."""
    at = int(starts[np.flatnonzero(size > 1)[0]])
    number = int(frame[SERIES][at])
    time = int(frame[TIME][at]) if TIME in frame.columns else None
    return number, origin.rows(number, time)
