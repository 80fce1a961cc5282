"""How much histories change: sums over pairs of rows a season apart, for many cutoffs at once.

What comes in: the flat store of a panel and pairs (series, cutoff). What goes out: sums and numbers of
pairs. Promised: no row after a cutoff and no row of another series is read; memory is bounded; a sum is
bit-equal whatever else the same call asks for.

Axes: n = pairs (series, cutoff), C = channels.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Values = NDArray[np.float32]
Rows = NDArray[np.int64]

BLOCK_CELLS = 1 << 16
"""Held in memory at a time: arrays of them stay in the processor's cache."""


def change_sums(
    values: Values,
    indptr: Rows,
    ends: Rows,
    series: Rows,
    season_length: int,
    of: Callable[[Floats], Floats],
) -> tuple[Floats, Rows]:
    """`seasonal_sums`, with a season of 1 where no pair lies a season apart."""
    total, count = seasonal_sums(values, indptr, ends, series, season_length, of)
    if season_length > 1 and (count == 0).any():
        shorter, pairs = seasonal_sums(values, indptr, ends, series, 1, of)
        total, count = np.where(count > 0, total, shorter), np.where(count > 0, count, pairs)
    return total, count


def seasonal_sums(
    values: Values,
    indptr: Rows,
    ends: Rows,
    series: Rows,
    season_length: int,
    of: Callable[[Floats], Floats],
) -> tuple[Floats, Rows]:
    """Σ of(y_t − y_{t−m}) and the number of pairs, both observed, up to each end.

    Args:
        values: [row, channel]; NaN = missing.
        indptr: [series + 1]; series s owns the rows indptr[s] … indptr[s + 1] − 1.
        ends: [n]; the global row of the last step that may be read, inclusive.
        series: [n]; the series of each end.
        season_length: m, the steps between the two values of a pair.
        of: what of a change is summed, as its square.

    Returns:
        float64 [n, C] and int64 [n, C].
    """
    channels = values.shape[1]
    total = np.zeros((len(ends), channels))
    count = np.zeros((len(ends), channels), np.int64)
    block_rows = max(1, BLOCK_CELLS // max(1, channels))
    for pairs, begins, lengths, owner in _blocks(indptr, ends, series, block_rows):
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        step = np.arange(bounds[-1]) - np.repeat(bounds[:-1], lengths)  # within its series
        block = values[np.repeat(begins, lengths) + step].astype(np.float64)
        change = np.full_like(block, np.nan)
        change[season_length:] = block[season_length:] - block[:-season_length]
        change[step < season_length] = np.nan  # the earlier value was another series'
        paired = ~np.isnan(change)
        sums = np.where(paired, of(change), 0.0)
        # A running sum over the whole block would let a series of billions eat the digits of the
        # next one, so each series starts its own. Counts are whole numbers and lose nothing.
        for first, last in pairwise(bounds):
            np.cumsum(sums[first:last], axis=0, out=sums[first:last])
        counts = np.concatenate([np.zeros((1, channels), np.int64), np.cumsum(paired, axis=0)])
        history = ends[pairs] - begins[owner] + 1  # rows up to the end
        at = bounds[owner] + history
        count[pairs] = counts[at] - counts[bounds[owner]]
        some = history > 0
        total[pairs[some]] = sums[at[some] - 1]
    return total, count


def _blocks(
    indptr: Rows, ends: Rows, series: Rows, block_rows: int
) -> Iterator[tuple[Rows, Rows, Rows, Rows]]:
    """Parts of a call whose series hold about `block_rows` rows together, so memory is bounded.

    Yields the pairs of the part, the first row and the number of rows to read of each of its
    series, and for each pair the number of its series within the part.
    """
    needed, owner = np.unique(series, return_inverse=True)
    begins = indptr[needed]
    stops = begins.copy()
    np.maximum.at(stops, owner, ends + 1)
    lengths = stops - begins
    part = np.cumsum(lengths) // block_rows  # of each series, never falling
    by_owner = np.argsort(owner, kind="stable")
    edges = np.concatenate([[0], np.flatnonzero(np.diff(part)) + 1, [len(needed)]])
    for first, last in pairwise(edges):
        low, high = np.searchsorted(owner, [first, last], sorter=by_owner)
        pairs = by_owner[low:high]
        yield pairs, begins[first:last], lengths[first:last], owner[pairs] - first
