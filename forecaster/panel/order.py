"""The order of rows by series, time, and as they came.

Text keys are ranked as text and all others by value. What is sorted are whole numbers: the rank of the
series, the place in time and the number of the row packed into one, which takes a fifth of a sort by
columns. Where series lie in blocks only the blocks are ranked, and rising times are not sorted at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from forecaster.panel.arrays import Bools, Ints, owners

Numbers = NDArray[np.uint32]

_BITS = 63
"""Of an int64 that is not negative."""


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
        return pl.DataFrame([column.rechunk().gather(rows) for column in frame])


def find_order(keys: pl.DataFrame, time: Ints) -> Order:
    """Returns the order of rows by key columns (none = one series) and int64 times.

    Example:
        >>> find_order(pl.DataFrame({"shop": ["b", "a", "b"]}), np.array([2, 1, 1])).rows
        array([1, 2, 0], dtype=uint32)
    """
    starts = _starts(keys, len(time))
    if starts is None:
        rows, starts, time = _sorted(*_ranks(keys), time)
        return Order(keys[rows[starts]], np.append(starts, len(rows)), time, rows)
    moved: Numbers | None = None
    series, indptr = _picked(keys, starts), np.append(starts, len(time))
    ranks, _ = _ranks(series)
    if not (ranks[1:] > ranks[:-1]).all():
        by_rank = np.argsort(ranks, kind="stable")
        length = np.diff(indptr)[by_rank]
        begins = np.append(0, np.cumsum(length))
        moved = np.arange(len(time), dtype=np.uint32)
        moved += np.repeat(starts[by_rank] - begins[:-1], length).astype(np.uint32)
        time = time[moved]
        ranks = ranks[by_rank]
        first = _changes(ranks)
        series, indptr = _picked(series, by_rank[first]), begins[np.append(first, len(ranks))]
    if _to_previous(time, indptr, np.less).any():
        within, _, time = _sorted(owners(indptr), len(indptr) - 1, time)
        moved = within if moved is None else moved[within]
    return Order(series, indptr, time, moved)


def _picked(keys: pl.DataFrame, rows: Ints) -> pl.DataFrame:
    return keys[rows] if keys.width else keys


def _to_previous(values: Ints | Numbers, indptr: Ints, compare: Callable[..., object]) -> Bools:
    """Returns whether values compare so to the row before in their series: bool [place]."""
    held = np.zeros(len(values), bool)
    compare(values[1:], values[:-1], out=held[1:])
    held[indptr[:-1][np.diff(indptr) > 0]] = False
    return held


def _starts(keys: pl.DataFrame, height: int) -> Ints | None:
    """Returns the rows whose key is not that of the row before; None where they are many."""
    if not keys.width:
        return np.arange(min(height, 1))
    changes = [pl.col(name).ne_missing(pl.col(name).shift(1)) for name in keys.columns]
    new = keys.select(pl.any_horizontal(changes)).to_series().to_numpy(writable=True)
    new[:1] = True
    return None if 2 * np.count_nonzero(new) > height + 1 else np.flatnonzero(new)


def _ranks(keys: pl.DataFrame) -> tuple[Ints, int]:
    """Returns whole numbers [row] that are ordered as keys are, and one above the largest possible."""
    ranks, size = np.zeros(keys.height, np.int64), 1
    for key in keys:
        rank, count = _rank(key)
        if size * count > 1 << 40:
            values, ranks = np.unique(ranks, return_inverse=True)
            size = len(values)
        ranks = rank if size == 1 else np.multiply(ranks, count, dtype=np.int64) + rank
        size *= count
    return ranks, size


def _rank(key: pl.Series) -> tuple[Ints, int]:
    if key.dtype in (pl.Categorical, pl.Enum):
        key = key.cast(pl.String)
    if key.dtype == pl.String:
        words = key.unique().drop_nulls().sort()
        rank, count = key.cast(pl.Enum(words)).to_physical().cast(pl.UInt32), len(words)
    else:
        rank = key.rank("dense") - 1
        count = int(rank.max() or 0) + 1  # type: ignore[arg-type]
    if rank.null_count():
        rank, count = (rank + 1).fill_null(0), count + 1
    return rank.to_numpy(), count


def _sorted(ranks: Ints, size: int, time: Ints) -> tuple[Numbers, Ints, Ints]:
    """Returns rows by rank (below `size`) and time, where each rank begins, and times in order."""
    first, span = int(time.min()), int(time.max()) - int(time.min())
    low = (len(time) - 1).bit_length()
    if span < 1 << 62:
        steps = time - first
        step = int(np.gcd.reduce(steps)) or 1
        steps //= step
        middle = (span // step).bit_length()
        if size.bit_length() + middle + low <= _BITS:
            packed = np.left_shift(ranks, middle + low, dtype=np.int64)
            packed |= steps << low
            packed |= np.arange(len(time))
            packed.sort()
            rows = (packed & ((1 << low) - 1)).astype(np.uint32)
            packed >>= low
            starts = _changes(packed >> middle)
            return rows, starts, (packed & ((1 << middle) - 1)) * step + first
    rows = np.lexsort((time, ranks)).astype(np.uint32)
    return rows, _changes(ranks[rows]), time[rows]


def _changes(ranks: Ints) -> Ints:
    """Returns where a rank begins."""
    return np.flatnonzero(np.append(True, ranks[1:] != ranks[:-1]))
