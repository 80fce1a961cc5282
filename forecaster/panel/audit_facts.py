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
import polars as pl
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


_ROW, _VALUE = pl.col("row"), pl.col("value")
_GAP = _ROW.diff() - 1
_PLACES: dict[str, tuple[pl.Expr, float]] = {
    "count": (pl.len(), 0),
    "first": (_ROW.first(), -1),
    "last": (_ROW.last(), -1),
    "gaps": ((_GAP > 0).sum(), 0),
    "longest": (_GAP.max().fill_null(0), 0),
    "longest_at": (
        pl.when(_GAP.max() > 0).then(_ROW.get(_GAP.arg_max()) - _GAP.max()).fill_null(-1),
        -1,
    ),
}
"""Statistics of every column, and their value where nothing is observed."""
_CHANGED = pl.when(_VALUE.last() != _VALUE).then(pl.int_range(pl.len())).max().fill_null(-1)
_SIZES = {
    "low": (_VALUE.min() + 0.0, np.nan),  # no -0.0
    "high": (_VALUE.max() + 0.0, np.nan),
    "size": (_VALUE.abs().mean(), 0.0),
    "negative": ((_VALUE < 0).sum(), 0),
    "run": (pl.len() - 1 - _CHANGED, 0),
}
"""Statistics of columns of numbers."""


def facts_of(panel: Panel, horizon: int | None, target: TargetConfig) -> Facts:
    """Returns the statistics of every series and column."""
    numbers, codes = panel.values.shape[1], panel.codes.shape[1]
    found: dict[str, NDArray[Any]] = {
        name: np.full((panel.n_series, columns), empty)
        for columns, kinds in ((numbers + codes, _PLACES), (numbers, _SIZES))
        for name, (_, empty) in kinds.items()
    }
    whole = np.ones(numbers, bool)
    for begin, part in panel.parts():
        owner = np.repeat(np.arange(part.n_series) + begin, np.diff(part.indptr))
        rows = np.arange(part.n_rows) + panel.indptr[begin]
        for column in range(numbers + codes):
            values: NDArray[Any]
            if column < numbers:
                values, kinds = part.values[:, column], _PLACES | _SIZES
                real = values == values
            else:
                values, kinds = part.codes[:, column - numbers], {**_PLACES}
                real = values != MISSING
            values = values[real]
            if column < numbers:
                whole[column] &= bool(((values == np.rint(values)) & (np.abs(values) < WHOLE)).all())
            cells = {"series": owner[real], "row": rows[real], "value": values}
            table = pl.DataFrame(cells).with_columns(pl.col("series").set_sorted())
            table = table.group_by("series").agg(**{name: one for name, (one, _) in kinds.items()})
            for name in kinds:
                found[name][table["series"].to_numpy(), column] = table[name].to_numpy()
    return Facts(panel, horizon, target, **found, whole=whole)
