"""Statistics of every series and column, from one pass over the rows: what most audit rules need.

The pass goes through the panel, in RAM or mapped, by blocks of series and needs memory for one block.

Axes: series, column (`schema.columns`, then `schema.code_columns`, of which only count, first, last
and gaps are known).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forecaster.config import TargetConfig
from forecaster.panel.arrays import PART_CELLS
from forecaster.panel.panel import MISSING, Panel

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

WHOLE = 2.0**53
"""Beyond it every float64 is a whole number."""


@dataclass(frozen=True)
class Facts:
    """A panel and the statistics of its series."""

    panel: Panel
    horizon: int | None
    """Steps that will be forecast, where that is known."""
    target: TargetConfig
    """Bounds that forecasts are held to."""
    count: Ints
    """Observed cells."""
    first: Ints
    """First observed row; -1 = none."""
    last: Ints
    """Last observed row; -1 = none."""
    low: Floats
    """Smallest value; NaN = none."""
    high: Floats
    """Largest value; NaN = none."""
    size: Floats
    """Mean of the absolute values; 0 = none."""
    negative: Ints
    """Cells below zero, counted only in columns of whole numbers."""
    run: Ints
    """Observations at the end that are equal."""
    gaps: Ints
    """Runs of missing cells between observed ones."""
    longest: Ints
    """Length of the longest of them."""
    longest_at: Ints
    """Its first row; -1 = none."""
    whole: NDArray[np.bool_]
    """bool [column]: every value is a whole number."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return (*self.panel.schema.columns, *self.panel.schema.code_columns)

    @cached_property
    def span(self) -> Ints:
        """int64 [series]: rows from the first to the last with an observed target; 0 = none."""
        first, last = self.panel.observed_ends.T
        return np.where(last < 0, 0, last - first + 1)

    def blocks(self, series: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Yields some series in groups of bounded size, with their rows.

        Yields:
            int64 [n] numbers of series; int64 [row] all their rows; int64 [row] which of them.
        """
        length = np.diff(self.panel.indptr)[series]
        group = (np.cumsum(length) - length) // PART_CELLS
        for number in np.unique(group):
            part = series[group == number]
            begin, length = self.panel.indptr[part], np.diff(self.panel.indptr)[part]
            rows = np.repeat(begin - np.cumsum(length) + length, length) + np.arange(length.sum())
            yield part, rows, np.repeat(np.arange(len(part)), length)

    def observed(
        self, series: int | np.integer[Any], channel: int, *, nonzero: bool = False
    ) -> tuple[Ints, Floats]:
        """Returns the rows in which a target of a series is observed (and not 0), and its values."""
        begin, end = self.panel.indptr[series : series + 2]
        values = self.panel.values[begin:end, channel]
        real = (values == values) & ~(nonzero & (values == 0))
        return np.flatnonzero(real) + begin, values[real]

    def at(self, row: int | np.int64) -> str:
        """Returns the time of a row as text."""
        return self.panel.calendar.text(int(self.panel.time[row]))


def facts_of(panel: Panel, horizon: int | None, target: TargetConfig) -> Facts:
    """Returns the statistics of every series and column."""
    numbers, codes = panel.values.shape[1], panel.codes.shape[1]
    shape, narrow = (panel.n_series, numbers + codes), (panel.n_series, numbers)
    facts = Facts(
        panel=panel,
        horizon=horizon,
        target=target,
        count=np.zeros(shape, np.int64),
        first=np.full(shape, -1, np.int64),
        last=np.full(shape, -1, np.int64),
        low=np.full(narrow, np.nan),
        high=np.full(narrow, np.nan),
        size=np.zeros(narrow),
        negative=np.zeros(narrow, np.int64),
        run=np.zeros(narrow, np.int64),
        gaps=np.zeros(shape, np.int64),
        longest=np.zeros(shape, np.int64),
        longest_at=np.full(shape, -1, np.int64),
        whole=np.ones(numbers, bool),
    )
    for number, part in panel.parts():
        series = slice(number, number + part.n_series)
        offset = int(panel.indptr[number])
        for column in range(numbers):
            values = np.ascontiguousarray(part.values[:, column])
            rows, ptr = _observed(facts, series, column, values == values, part.indptr, offset)
            _describe(facts, series, column, values if rows is None else values[rows], ptr)
        for column in range(codes):
            real = part.codes[:, column] != MISSING
            _observed(facts, series, numbers + column, real, part.indptr, offset)
    return facts


def segments(operation: np.ufunc, values: NDArray[np.generic], ptr: Ints, empty: float) -> Floats:
    """Returns an operation's result over each segment of values; `empty` where it has none."""
    result = np.full(len(ptr) - 1, float(empty))
    filled = ptr[1:] > ptr[:-1]
    if filled.any():
        result[filled] = operation.reduceat(values, ptr[:-1][filled])
    return result


def _observed(
    facts: Facts, series: slice, column: int, real: NDArray[np.bool_], indptr: Ints, offset: int
) -> tuple[Ints | None, Ints]:
    """Fills in where a column is observed; returns its rows in this part (None = all) and segments."""
    if real.all():
        ptr, rows = indptr, None
        first, last = indptr[:-1], indptr[1:] - 1
    else:
        rows = np.flatnonzero(real)
        ptr = np.searchsorted(rows, indptr)
        ends = np.append(rows, -1)
        first, last = ends[np.minimum(ptr[:-1], len(rows))], ends[ptr[1:] - 1]
    count = np.diff(ptr)
    facts.count[series, column] = count
    facts.first[series, column] = np.where(count > 0, first + offset, -1)
    facts.last[series, column] = np.where(count > 0, last + offset, -1)
    if rows is not None and (last - first + 1 > count)[count > 0].any():
        _measure_gaps(facts, series, column, rows, ptr, offset)
    return rows, ptr


def _measure_gaps(facts: Facts, series: slice, column: int, rows: Ints, ptr: Ints, offset: int) -> None:
    length = np.diff(rows) - 1
    inner = ptr[1:-1]
    length[inner[(inner > 0) & (inner < len(rows))] - 1] = 0
    at = np.flatnonzero(length)
    gap_ptr = np.searchsorted(at, ptr)
    facts.gaps[series, column] = np.diff(gap_ptr)
    longest = segments(np.maximum, length[at], gap_ptr, 0).astype(np.int64)
    facts.longest[series, column] = longest
    owner = np.repeat(np.arange(len(ptr) - 1), np.diff(gap_ptr))
    top = np.flatnonzero(length[at] == longest[owner])
    which, index = np.unique(owner[top], return_index=True)
    facts.longest_at[series, column][which] = rows[at[top[index]]] + 1 + offset


def _describe(facts: Facts, series: slice, column: int, values: NDArray[np.float64], ptr: Ints) -> None:
    low = segments(np.minimum, values, ptr, np.nan)
    high = segments(np.maximum, values, ptr, np.nan)
    facts.low[series, column], facts.high[series, column] = low + 0.0, high + 0.0  # no -0.0
    sums = segments(np.add, np.abs(values), ptr, 0.0)
    facts.size[series, column] = sums / np.maximum(np.diff(ptr), 1)
    if facts.whole[column]:
        within = max(-np.nanmin(low, initial=0), np.nanmax(high, initial=0)) < WHOLE
        facts.whole[column] = within and bool((values == np.rint(values)).all())
    if facts.whole[column] and (low < 0).any():
        facts.negative[series, column] = segments(np.add, (values < 0).astype(np.int64), ptr, 0)
    changes = np.flatnonzero(values[1:] != values[:-1])
    end = ptr[1:] - 1
    place = np.searchsorted(changes, end) - 1
    change = np.append(changes, -1)[place]
    facts.run[series, column] = end - np.where(
        place >= 0, np.maximum(change, ptr[:-1] - 1), ptr[:-1] - 1
    )
