"""What scaled metrics divide by: how much a series changes over a season, in its own history.

What comes in: a history, or the flat store of a panel and cutoffs. What goes out: scales in data units;
NaN where there is nothing to scale by. Promised: no row after a cutoff is read.

Axes: N = n = pairs (series, cutoff), C = channel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forecaster.evaluation.changes import change_sums

Floats = NDArray[np.float64]


class Scales(NamedTuple):
    """What the scaled metrics of each window and channel divide by, data units; NaN = nothing."""

    mase: Floats
    """[N, C] `mase_scale`."""
    rmsse: Floats
    """[N, C] `rmsse_scale`."""

    def of(self, windows: slice) -> Scales:
        """Returns those of some windows."""
        return Scales(self.mase[windows], self.rmsse[windows])


def mase_scale(history: ArrayLike, season_length: int) -> float:
    """Mean |y_t − y_{t−m}| over pairs both observed, in data units: the in-sample seasonal error.

    `history` is one series, rows up to the cutoff, NaN = missing. Without any pair m apart, the
    season is 1. NaN where there is no pair at all, or the mean is 0 (nothing to scale by).
    Source: Hyndman and Koehler 2006.

    >>> mase_scale([1.0, 2.0, 4.0, 7.0], season_length=2)
    4.0
    """
    return _scale(np.abs(_differences(history, season_length)))


def rmsse_scale(history: ArrayLike, season_length: int = 1) -> float:
    """Root mean (y_t − y_{t−m})², with the rules of `mase_scale`, in data units.

    >>> round(rmsse_scale([0.0, 1.0, 8.0]), 6)
    5.0
    """
    return float(np.sqrt(_scale(_differences(history, season_length) ** 2)))


def mase_scales(
    values: NDArray[np.float32],
    indptr: NDArray[np.int64],
    ends: NDArray[np.int64],
    season_length: int,
    series: NDArray[np.int64] | None = None,
) -> Floats:
    """`mase_scale` of many histories of a flat store, in data units.

    Args:
        values: [row, channel]; NaN = missing.
        indptr: [series + 1]; series s owns the rows indptr[s] … indptr[s + 1] − 1.
        ends: [n]; the global row of the last step that may be read, inclusive.
        season_length: steps between the rows compared.
        series: [n]; the series of each end. Left out: one end per series, in order.

    Returns:
        [n, channel] float64, NaN by the rules of `mase_scale`.

    >>> store = np.array([[1.0], [2.0], [4.0], [7.0], [5.0], [5.5]], np.float32)
    >>> mase_scales(store, np.array([0, 4, 6]), np.array([3, 5]), season_length=2).tolist()
    [[4.0], [0.5]]
    """
    return _mean_sizes(values, indptr, ends, season_length, series, np.abs)


def rmsse_scales(
    values: NDArray[np.float32],
    indptr: NDArray[np.int64],
    ends: NDArray[np.int64],
    season_length: int = 1,
    series: NDArray[np.int64] | None = None,
) -> Floats:
    """`rmsse_scale` of many histories of a flat store, as `mase_scales`.

    >>> store = np.array([[0.0], [1.0], [8.0]], np.float32)
    >>> rmsse_scales(store, np.array([0, 3]), np.array([2])).tolist()
    [[5.0]]
    """
    return np.sqrt(_mean_sizes(values, indptr, ends, season_length, series, np.square))


def _mean_sizes(
    values: NDArray[np.float32],
    indptr: NDArray[np.int64],
    ends: NDArray[np.int64],
    season_length: int,
    series: NDArray[np.int64] | None,
    size: Callable[[Floats], Floats],
) -> Floats:
    """[n, channel]: mean size of seasonal changes, NaN where there is none or all are 0."""
    if series is None:
        series = np.arange(len(indptr) - 1, dtype=np.int64)
    total, count = change_sums(values, indptr, ends, series, season_length, size)
    scale = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return np.where(scale > 0, scale, np.nan)


def _differences(history: ArrayLike, season_length: int) -> Floats:
    """y_t − y_{t−m} of the pairs both observed; of season 1 when there are none."""
    y = np.asarray(history, np.float64)
    for step in (season_length, 1):
        change: Floats = y[step:] - y[:-step]
        change = change[~np.isnan(change)]
        if change.size:
            break
    return change


def _scale(errors: Floats) -> float:
    scale = float(errors.mean()) if errors.size else 0.0
    return scale if scale > 0 else float("nan")
