"""Baseline forecasts with quantiles: naive, seasonal naive and drift, vectorised over series and cutoffs.

All share one signature: baseline(histories, horizon, …, levels) → quantiles [n, H, C, Q], in data units, NaN
where nothing is observed up to the cutoff.

No row after a cutoff and no row of another series is read; a forecast is bit-equal whatever else the
same call computes. Axes: n = pairs (series, cutoff), H = leads, C = channels, Q = quantile levels,
P = min(m, H) phases of the season that the leads meet, with m = season_length.
"""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from forecaster.evaluation.error_scales import BLOCK_CELLS, Floats, Histories, Rows, change_sums


def seasonal_naive(
    histories: Histories, horizon: int, season_length: int, levels: Sequence[float]
) -> Floats:
    """Quantiles [n, H, C, Q] around the last observed value of the same phase, in data units.

    Where the value one season back is missing, the season before it counts, and so on; where none
    of that phase was ever observed, the last observed value of the channel.
    Spread: point + z_τ · rms(y_t − y_{t−m}) · √(⌊(lead − 1)/m⌋ + 1), the rms over the observed
    pairs up to the cutoff; without any pair m apart over pairs 1 apart, without those 0.
    Source: Hyndman and Athanasopoulos, Forecasting: Principles and Practice, 3rd ed., 5.2 and 5.5.

    >>> store = np.array([[1.0], [2.0], [3.0], [5.0]])
    >>> histories = Histories(store, np.array([0, 4]), np.array([3]), np.array([0]))
    >>> seasonal_naive(histories, 3, 2, [0.5])[0, :, 0, 0].tolist()
    [3.0, 5.0, 3.0]
    """
    point = _last_of_phase(histories, horizon, season_length)
    # The root mean square of the in-sample seasonal residuals, 0 where there are none.
    total, count = change_sums(histories, season_length, np.square)
    spread = np.sqrt(total / np.maximum(count, 1))
    growth = np.sqrt(np.arange(horizon) // season_length + 1.0)
    return gaussian(point, spread[:, None] * growth[:, None], levels)


def naive(histories: Histories, horizon: int, levels: Sequence[float]) -> Floats:
    """Quantiles [n, H, C, Q] around the last observed value: seasonal naive with a season of 1.

    >>> store = np.array([[1.0], [2.0], [3.0], [5.0]])
    >>> histories = Histories(store, np.array([0, 4]), np.array([3]), np.array([0]))
    >>> naive(histories, 2, [0.5])[0, :, 0, 0].tolist()
    [5.0, 5.0]
    """
    return seasonal_naive(histories, horizon, 1, levels)


def drift(histories: Histories, horizon: int, levels: Sequence[float]) -> Floats:
    """Quantiles [n, H, C, Q] around the line through the first and the last observed value.

    Spread: point + z_τ · σ · √(k · (1 + k / T)), σ the rms of one-step changes less the slope, k the
    steps since the last observed value, T those between the first and the last; one value alone has
    neither slope nor spread. Source: Hyndman and Athanasopoulos, 3rd ed., 5.2 and 5.5.

    >>> store = np.array([[1.0], [4.0], [3.0], [7.0]])
    >>> histories = Histories(store, np.array([0, 4]), np.array([3]), np.array([0]))
    >>> drift(histories, 2, [0.5])[0, :, 0, 0].tolist()
    [9.0, 11.0]
    """
    values, indptr, cutoff, series = histories
    first = _find_observed(values, indptr[series], cutoff, -1)
    last = _find_observed(values, cutoff, indptr[series], 1)
    low, high, span = _values_at(values, first), _values_at(values, last), last - first
    slope = (high - low) / np.maximum(span, 1)
    squares, count = change_sums(histories, 1, np.square)
    changes, _ = change_sums(histories, 1, np.positive)
    around = np.maximum(squares - 2 * slope * changes + count * slope**2, 0)
    sigma = np.sqrt(around / np.maximum(count, 1))
    steps = (cutoff[:, None] - last)[:, None] + np.arange(1, horizon + 1)[:, None]
    growth = np.sqrt(steps * (1 + steps / np.maximum(span, 1)[:, None]))
    return gaussian(high[:, None] + slope[:, None] * steps, sigma[:, None] * growth, levels)


def gaussian(
    point: NDArray[np.floating], spread: NDArray[np.floating], levels: Sequence[float]
) -> Floats:
    """Quantiles [n, H, C, Q] of a normal distribution: point + z_τ · spread, both [n, H, C]."""
    z = np.array([NormalDist().inv_cdf(level) for level in levels])
    return np.asarray(spread)[..., None] * z + point[..., None]


def _last_of_phase(histories: Histories, horizon: int, season_length: int) -> Floats:
    """[n, H, C]: the value that seasonal naive repeats at each lead, NaN where there is none."""
    values, cutoff, begin = histories.values, histories.cutoff, histories.indptr[histories.series]
    phases = min(season_length, horizon)  # later leads meet the same values again
    latest = cutoff[:, None] + np.arange(1, phases + 1) - season_length  # [n, P]
    point = _values_at(values, _find_observed(values, latest, begin[:, None], season_length))
    if season_length > 1 and np.isnan(point).any():
        point = np.where(np.isnan(point), _last_of_phase(histories, 1, 1), point)
    return point[:, np.arange(horizon) % season_length]


def _find_observed(values: Floats, row: Rows, stop: Rows, step: int) -> Rows:
    """[…, C]: the first row at which a channel is observed of row, row − step, … up to stop, else −1.

    A negative step searches forward. Most are found at once; for the rest the search range doubles, so a
    channel that is empty over a million rows costs twenty rounds, not a million.
    """
    shape = (*np.broadcast_shapes(row.shape, stop.shape), values.shape[1])
    row, stop, channel = (
        np.broadcast_to(array, shape).ravel()
        for array in (row[..., None], stop[..., None], np.arange(shape[-1]))
    )
    side = 1 if step > 0 else -1
    found = np.full(len(row), -1, np.int64)
    pending = np.flatnonzero(side * (row - stop) >= 0)
    tried, width = 0, 1
    while pending.size:
        rows = row[pending, None] - step * np.arange(tried, tried + width)
        own = side * (rows - stop[pending, None]) >= 0
        seen = values[np.where(own, rows, stop[pending, None]), channel[pending, None]]
        observed = own & ~np.isnan(seen)
        hit = observed.any(axis=1)
        found[pending[hit]] = rows[hit, observed[hit].argmax(axis=1)]
        tried += width
        pending = pending[~hit]
        pending = pending[side * (row[pending] - step * tried - stop[pending]) >= 0]
        width = max(1, min(2 * width, BLOCK_CELLS // max(1, pending.size)))
    return found.reshape(shape)


def _values_at(values: Floats, row: Rows) -> Floats:
    """[…, C] the values of the rows of each channel, NaN where a row is −1."""
    at = values[np.maximum(row, 0), np.arange(values.shape[1])] if len(values) else 0.0
    return np.where(row < 0, np.nan, at)
