"""The order of rows by series, time, and as they came.

Text keys are ranked as text and all others by value. Where series lie in blocks only the blocks are
ranked; what is sorted are whole numbers, and rows that lie in order are not sorted at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Numbers = NDArray[np.uint32]
Bools = NDArray[np.bool_]

_RANK = "\0rank"  # no table has a column of this name


@dataclass(frozen=True)
class Order:
    """The rows of a table by series, time, and as they came."""

    keys: pl.DataFrame
    """One row per series, in order; no columns where there is one series without a key."""
    indptr: Ints
    """int64 [series + 1]: place of each series' first row, then the number of rows."""
    time: Ints
    """int64 [place]: times, rising within each series."""
    rows: Numbers | None
    """uint32 [place]: the row of the table that comes there; None = they lie in order."""

    @property
    def number(self) -> Numbers:
        """uint32 [place]: number of the series."""
        return np.repeat(np.arange(len(self.indptr) - 1, dtype=np.uint32), np.diff(self.indptr))

    @cached_property
    def repeated(self) -> Bools:
        """bool [place]: the row has the series and the time of the one before it."""
        return _to_previous(self.time, self.indptr, np.equal)

    @property
    def overtaken(self) -> Bools:
        """bool [place]: the next row of the series in time comes earlier in the table."""
        if self.rows is None:
            return np.zeros(len(self.time), bool)
        return np.append(_to_previous(self.rows, self.indptr, np.less)[1:], False)

    def placed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Returns the rows of the table in this order."""
        if self.rows is None:
            return frame
        rows = pl.Series(self.rows)
        # A column in many chunks is gathered slowly, and all of them at once in much memory.
        return pl.DataFrame([column.rechunk().gather(rows) for column in frame.iter_columns()])


def find_order(keys: pl.DataFrame, time: Ints) -> Order:
    """Returns the order of rows by key columns (none = one series) and int64 times.

    Example:
        >>> find_order(pl.DataFrame({"shop": ["b", "a", "b"]}), np.array([2, 1, 1])).rows
        array([1, 2, 0], dtype=uint32)
    """
    starts = _starts(keys, len(time))
    series = keys[starts] if keys.width else keys
    ranks = _ranks(series) if keys.width else np.zeros(len(starts), np.int64)
    number = np.repeat(ranks, np.diff(np.append(starts, len(time))))
    rows: Numbers | None = None
    rises = (number[1:] > number[:-1]) | ((number[1:] == number[:-1]) & (time[1:] >= time[:-1]))
    if not rises.all():
        rows = _sorted(number, time)
        number, time = number[rows], time[rows]
    first = np.flatnonzero(np.diff(number, prepend=-1))
    if keys.width:
        series = keys[first if rows is None else rows[first]]
    return Order(series, np.append(first, len(time)), time, rows)


def _sorted(number: Ints, time: Ints) -> Numbers:
    """Returns rows by series and time."""
    first, span = int(time.min()), int(time.max()) - int(time.min()) + 1
    if span * (int(number.max()) + 1) > np.iinfo(np.int64).max:
        return np.lexsort((time, number)).astype(np.uint32)
    # One number a row is sorted in a quarter of the time of two.
    return np.argsort(number * span + (time - first), kind="stable").astype(np.uint32)


def _to_previous(values: Ints | Numbers, indptr: Ints, compare: Callable[..., object]) -> Bools:
    """Returns whether values compare so to the row before in their series: bool [place]."""
    held = np.zeros(len(values), bool)
    compare(values[1:], values[:-1], out=held[1:])
    held[indptr[:-1][np.diff(indptr) > 0]] = False
    return held


def _starts(keys: pl.DataFrame, height: int) -> Ints:
    """Returns the rows whose key is not that of the row before."""
    if not keys.width:
        return np.arange(min(height, 1))
    changes = [pl.col(name).ne_missing(pl.col(name).shift(1)) for name in keys.columns]
    new = keys.select(pl.any_horizontal(changes)).to_series().to_numpy(writable=True)
    new[:1] = True
    return np.flatnonzero(new)


def _ranks(keys: pl.DataFrame) -> Ints:
    """Returns int64 [row] numbers, from 0 on without a hole, that are ordered as keys are."""
    keys = keys.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
    distinct = keys.unique().sort(keys.columns).with_row_index(_RANK)
    ranked = keys.join(distinct, on=keys.columns, how="left", nulls_equal=True, maintain_order="left")
    return ranked[_RANK].cast(pl.Int64).to_numpy()
