"""In-sample scales of MASE and RMSSE: how much a series changes from season to season.

Sums run over pairs of rows one season apart, both observed, up to each cutoff. No row after a cutoff
and no row of another series is read; memory is bounded; a result is bit-equal whatever else the same
call computes.

Axes: n = pairs (series, cutoff), C = channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from forecaster.panel.arrays import Floats, Ints

BLOCK_CELLS = 1 << 16  # rows × channels in memory at a time: they stay in the processor's cache


class Histories(NamedTuple):
    """Series of a flat store up to their cutoffs; consecutive rows of a series are one step apart."""

    values: Floats
    """[row, C] data units; NaN = missing."""
    indptr: Ints
    """[series + 1]; series s owns the rows indptr[s] … indptr[s + 1] − 1."""
    cutoff: Ints
    """[n] global row of the last step that may be read; indptr[s] − 1 = no history yet."""
    series: Ints
    """[n] number of the series of each cutoff."""


class Scales(NamedTuple):
    """Denominators of the scaled metrics, data units; NaN where a history has no change to scale by."""

    mase: Floats
    """[n, C] mean |y_t − y_{t−m}|."""
    rmsse: Floats
    """[n, C] root mean (y_t − y_{t−1})²."""

    def select(self, windows: slice) -> Scales:
        """Returns the scales of some windows."""
        return Scales(self.mase[windows], self.rmsse[windows])


def ratio(part: ArrayLike, whole: ArrayLike) -> Floats:
    """Returns part / whole, NaN where the whole is not above 0."""
    below = np.asarray(whole, np.float64)
    return np.divide(part, below, out=np.full_like(below, np.nan), where=below > 0)


def scales_at(histories: Histories, season_length: int) -> Scales:
    """Scales of many histories.

    Without any pair a season apart, the season is 1. NaN where there is no pair at all, or all
    changes are 0. Source: Hyndman and Koehler 2006 (MASE); the M5 competition (RMSSE).

    Args:
        histories: to measure.
        season_length: steps between the rows that MASE compares.

    >>> store = np.array([[1.0], [2.0], [4.0], [7.0], [5.0], [5.5]])
    >>> histories = Histories(store, np.array([0, 4, 6]), np.array([3, 5]), np.array([0, 1]))
    >>> scales_at(histories, season_length=2).mase.tolist()
    [[4.0], [0.5]]
    """

    def mean(season: int, size: Callable[[Floats], Floats]) -> Floats:
        total, count = change_sums(histories, season, size)
        scale = ratio(total, count)
        return np.where(scale > 0, scale, np.nan)

    return Scales(mean(season_length, np.abs), np.sqrt(mean(1, np.square)))


def change_sums(
    histories: Histories, season_length: int, size: Callable[[Floats], Floats]
) -> tuple[Floats, Ints]:
    """Σ size(y_t − y_{t−m}) and the number of pairs, both observed, up to each cutoff: [n, C] each.

    m is the season length, or 1 where no pair lies a season apart.
    """
    values, cutoff, channels = histories.values, histories.cutoff, histories.values.shape[1]
    total = np.zeros((len(cutoff), channels))
    count = np.zeros((len(cutoff), channels), np.int64)
    block_rows = max(1, BLOCK_CELLS // max(1, channels))
    for pairs, begins, lengths, owner in _blocks(histories, block_rows):
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        step = np.arange(bounds[-1]) - np.repeat(bounds[:-1], lengths)  # within its series
        block = values[np.repeat(begins, lengths) + step]
        change = np.full_like(block, np.nan)
        change[season_length:] = block[season_length:] - block[:-season_length]
        change[step < season_length] = np.nan  # the earlier value belongs to another series
        paired = ~np.isnan(change)
        sums = np.where(paired, size(change), 0.0)
        # One running sum over the block would let a series of billions cancel the digits of the next
        # one, so each series starts its own. Counts are whole numbers and lose nothing.
        for first, last in pairwise(bounds):
            np.cumsum(sums[first:last], axis=0, out=sums[first:last])
        counts = np.concatenate([np.zeros((1, channels), np.int64), np.cumsum(paired, axis=0)])
        history = cutoff[pairs] - begins[owner] + 1  # rows up to the cutoff
        at = bounds[owner] + history
        count[pairs] = counts[at] - counts[bounds[owner]]
        some = history > 0
        total[pairs[some]] = sums[at[some] - 1]
    if season_length > 1 and (count == 0).any():
        shorter, fewer = change_sums(histories, 1, size)
        total, count = np.where(count > 0, total, shorter), np.where(count > 0, count, fewer)
    return total, count


def _blocks(histories: Histories, block_rows: int) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    """Splits the pairs into blocks whose series hold about `block_rows` rows together.

    Yields the pairs of a block, the first row and the row count of each of its series, and for each
    pair the number of its series within the block.
    """
    _, indptr, cutoff, series = histories
    lengths = np.zeros(len(indptr) - 1, np.int64)  # 0 where a series is not asked for
    np.maximum.at(lengths, series, cutoff + 1 - indptr[series])
    block = np.cumsum(lengths) // block_rows  # of each series, never falling
    by_series = np.argsort(series, kind="stable")
    edges = np.concatenate([[0], np.flatnonzero(np.diff(block)) + 1, [len(lengths)]])
    for first, last in pairwise(edges):
        low, high = np.searchsorted(series, [first, last], sorter=by_series)
        pairs = by_series[low:high]
        yield pairs, indptr[first:last], lengths[first:last], series[pairs] - first
