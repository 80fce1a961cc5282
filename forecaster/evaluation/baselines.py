"""Forecasts that any model has to beat: naive and seasonal naive, each with quantiles.

Comes in: the flat store of a panel and pairs (series, cutoff). Goes out: quantiles of the leads
after each cutoff.

The contract of every baseline here, said once:

    baseline(values, indptr, cutoff, series, horizon, …, levels) → quantiles

- `values` [row, channel] float32 in data units, NaN = missing; consecutive rows of a series are
  one step apart.
- `indptr` [series + 1] int64; series s owns the rows indptr[s] … indptr[s + 1] − 1.
- `cutoff` [n] int64: the global row of the last step that may be read, inclusive; indptr[s] − 1
  says that the series has no history yet. `series` [n] int64 names its series.
- `quantiles` [n, horizon, channel, level] float32 in data units; NaN where the channel has no
  observed value up to the cutoff.

Promised: no row after a cutoff and no row of another series is read, and a forecast is bit-equal
whatever else the same call asks for.

Axes: n = pairs (series, cutoff), H = leads, C = channels, Q = quantile levels, P = phases of the
season that the leads meet, min(m, H), with m = season_length.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Values = NDArray[np.float32]
Rows = NDArray[np.int64]

# Cells held in memory at a time, in float64 8 MB an array: large enough that numpy's speed counts.
_BLOCK_CELLS = 1_000_000


def seasonal_naive(
    values: Values,
    indptr: Rows,
    cutoff: Rows,
    series: Rows,
    horizon: int,
    season_length: int,
    levels: Sequence[float],
) -> Values:
    """Quantiles [n, H, C, Q] around the last observed value of the same phase, in data units.

    Where the value one season back is missing, the season before it counts, and so on; where none
    of that phase was ever observed, the last observed value of the channel.
    Spread: point + z_τ · rms(y_t − y_{t−m}) · √(⌊(lead − 1)/m⌋ + 1), the rms over the observed
    pairs up to the cutoff; without any pair m apart over pairs 1 apart, without those 0.
    Source: Hyndman and Athanasopoulos, Forecasting: Principles and Practice, 3rd ed., 5.2 and 5.5.

    Raises:
        ValueError: a cutoff lies outside its series, or a level outside (0, 1).

    >>> store = np.array([[1.0], [2.0], [3.0], [5.0]], np.float32)
    >>> indptr, cutoff, series = np.array([0, 4]), np.array([3]), np.array([0])
    >>> seasonal_naive(store, indptr, cutoff, series, 3, 2, [0.5])[0, :, 0, 0].tolist()
    [3.0, 5.0, 3.0]
    """
    _check(indptr, cutoff, series, horizon, season_length, levels)
    point = _last_of_phase(values, indptr[series], cutoff, horizon, season_length)
    spread = _residual_rms(values, indptr, cutoff, series, season_length)
    growth = np.sqrt(np.arange(horizon) // season_length + 1.0)
    z = np.array([NormalDist().inv_cdf(level) for level in levels])
    quantiles = spread[:, None, :, None] * growth[:, None, None] * z  # [n, H, C, Q]
    quantiles += point[..., None]
    result: Values = quantiles.astype(np.float32)
    return result


def naive(
    values: Values,
    indptr: Rows,
    cutoff: Rows,
    series: Rows,
    horizon: int,
    levels: Sequence[float],
) -> Values:
    """Quantiles [n, H, C, Q] around the last observed value: seasonal naive with a season of 1.

    >>> store = np.array([[1.0], [2.0], [3.0], [5.0]], np.float32)
    >>> indptr, cutoff, series = np.array([0, 4]), np.array([3]), np.array([0])
    >>> naive(store, indptr, cutoff, series, 2, [0.5])[0, :, 0, 0].tolist()
    [5.0, 5.0]
    """
    return seasonal_naive(values, indptr, cutoff, series, horizon, 1, levels)


def seasonal_sums(
    values: Values, indptr: Rows, ends: Rows, series: Rows, season_length: int, power: int
) -> tuple[Floats, Rows]:
    """Σ|y_t − y_{t−m}|^power and the number of pairs, both observed, up to each end.

    Args:
        values, indptr, series: as in the contract above.
        ends: [n]; the cutoffs.
        season_length: m, the steps between the two values of a pair.
        power: 1 for absolute, 2 for squared differences.

    Returns:
        float64 [n, C] and int64 [n, C].
    """
    channels = values.shape[1]
    total = np.zeros((len(ends), channels))
    count = np.zeros((len(ends), channels), np.int64)
    block_rows = max(1, _BLOCK_CELLS // max(1, channels))
    for pairs, begins, lengths, owner in _blocks(indptr, ends, series, block_rows):
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        step = np.arange(bounds[-1]) - np.repeat(bounds[:-1], lengths)  # within its series
        block = values[np.repeat(begins, lengths) + step].astype(np.float64)
        change = np.full_like(block, np.nan)
        change[season_length:] = block[season_length:] - block[:-season_length]
        change[step < season_length] = np.nan  # the earlier value was another series'
        paired = ~np.isnan(change)
        sums = np.where(paired, np.abs(change) ** power, 0.0)
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


def _check(
    indptr: Rows,
    cutoff: Rows,
    series: Rows,
    horizon: int,
    season_length: int,
    levels: Sequence[float],
) -> None:
    if horizon < 1 or season_length < 1:
        raise ValueError(f"horizon and season of 1 or more expected: {horizon}, {season_length}")
    if not all(0 < level < 1 for level in levels):
        raise ValueError(f"quantile levels between 0 and 1 expected, found {list(levels)}")
    outside = (cutoff < indptr[series] - 1) | (cutoff >= indptr[series + 1])
    if outside.any():
        first = int(np.flatnonzero(outside)[0])
        raise ValueError(
            f"a cutoff within its series expected, found row {cutoff[first]} for series "
            f"{series[first]} with rows {indptr[series[first]]} … {indptr[series[first] + 1] - 1}"
        )


def _last_of_phase(
    values: Values, begin: Rows, cutoff: Rows, horizon: int, season_length: int
) -> Values:
    """[n, H, C]: the value that seasonal naive repeats at each lead, NaN where there is none."""
    phases = min(season_length, horizon)  # later leads meet the same values again
    shape = (len(cutoff), phases, values.shape[1])
    latest = cutoff[:, None] + np.arange(1, phases + 1) - season_length  # [n, P]
    row, first, channel = (
        np.broadcast_to(array, shape).ravel()
        for array in (latest[:, :, None], begin[:, None, None], np.arange(shape[2]))
    )
    point = _look_back(values, row, first, channel, season_length).reshape(shape)
    pair, _, gone = lacking = np.nonzero(np.isnan(point))
    if pair.size and season_length > 1:
        # The last value is the same at each phase: look it up once per (pair, channel).
        asked, place = np.unique(pair * shape[2] + gone, return_inverse=True)
        n, c = np.divmod(asked, max(1, shape[2]))
        point[lacking] = _look_back(values, cutoff[n], begin[n], c, 1)[place]
    return point[:, np.arange(horizon) % season_length]


def _look_back(values: Values, row: Rows, begin: Rows, channel: Rows, step: int) -> Values:
    """[i]: the first observed value at row, row − step, row − 2·step, … down to begin, else NaN.

    Most are found at once; for the rest the reach doubles, so a channel that is empty over a
    million rows costs twenty rounds, not a million.
    """
    found = np.full(len(row), np.nan, np.float32)
    pending = np.flatnonzero(row >= begin)
    tried, reach = 0, 1
    while pending.size:
        rows = row[pending, None] - step * np.arange(tried, tried + reach)
        own = rows >= begin[pending, None]
        seen = values[np.where(own, rows, begin[pending, None]), channel[pending, None]]
        observed = own & ~np.isnan(seen)
        hit = observed.any(axis=1)
        found[pending[hit]] = seen[hit, observed[hit].argmax(axis=1)]
        tried += reach
        pending = pending[~hit]
        pending = pending[row[pending] - step * tried >= begin[pending]]
        reach = max(1, min(2 * reach, _BLOCK_CELLS // max(1, pending.size)))
    return found


def _residual_rms(
    values: Values, indptr: Rows, cutoff: Rows, series: Rows, season_length: int
) -> Floats:
    """[n, C]: root mean square of the in-sample seasonal residuals, 0 where there are none."""
    total, count = seasonal_sums(values, indptr, cutoff, series, season_length, power=2)
    if season_length > 1 and (count == 0).any():
        shorter, pairs = seasonal_sums(values, indptr, cutoff, series, 1, power=2)
        total, count = np.where(count > 0, total, shorter), np.where(count > 0, count, pairs)
    return np.sqrt(total / np.maximum(count, 1))
