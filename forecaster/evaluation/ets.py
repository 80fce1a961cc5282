"""Exponential smoothing with a damped trend and a season (ETS), vectorised over series and cutoffs.

Signature as in `baselines.py`. A fixed grid of smoothing parameters is tried, with and without a season;
each series keeps the one with the least squared one-step error: one pass over the rows for all series, no
optimiser. A cutoff reads its last 1,024 to 2,048 rows (4 to 8 seasons where these are more).

Axes: n = pairs (series, cutoff), H = leads, C = channels, Q = quantile levels, P = candidates, T = rows of
a stretch, X = (stretch, channel), m = season_length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from forecaster.evaluation.baselines import gaussian, naive
from forecaster.evaluation.error_scales import Floats, Histories, Rows, ratio

_ROWS = 1024
_BLOCK_CELLS = 1 << 22  # of rows and channels, and of states, held at a time: 32 MB an array


class _Candidate(NamedTuple):
    """Smoothing of level, trend and season, and the damping of the trend."""

    level: float
    trend: float = 0.0
    damping: float = 0.0
    season: float = 0.0


_PLAIN = (
    _Candidate(0.1),
    _Candidate(0.3),
    _Candidate(0.7),
    _Candidate(1.0),
    _Candidate(0.3, 0.03, 0.97),
    _Candidate(0.7, 0.1, 0.9),
)
_SEASONAL = (
    _Candidate(0.05, season=0.1),
    _Candidate(0.05, season=0.3),
    _Candidate(0.2, season=0.1),
    _Candidate(0.5, season=0.1),
    _Candidate(0.9, season=0.05),
    _Candidate(0.2, 0.02, 0.97, 0.1),
)


class _State(NamedTuple):
    """Smoothing state of some pairs after their cutoffs, under the chosen candidate."""

    level: Floats
    trend: Floats
    season: Floats
    """[n, C, m]; of the step after the cutoff first."""
    chosen: Rows
    """[n, C] number of the candidate."""
    variance: Floats
    """[n, C] mean squared one-step error; NaN = nothing observed."""


def ets(histories: Histories, horizon: int, season_length: int, levels: Sequence[float]) -> Floats:
    """Quantiles [n, H, C, Q] of exponential smoothing, in data units.

    With f_t = l + φ·b + s_{t−m} and e = y_t − f_t: l ← l + φ·b + α·e, b ← φ·b + β·e,
    s_t ← s_{t−m} + γ·e; a missing value has e = 0.
    Point at lead k: l + (φ + … + φ^k)·b + s. Spread: z_τ·σ·√(1 + Σ_{j<k} c_j²), with
    c_j = α + β·(φ + … + φ^j) + γ·1{m divides j}, σ² the mean of e². A season starts from the mean of
    the first two and is tried from the third on; errors are compared after the second.
    A channel that was observed only further back than is read is forecast by naive.
    Source: Hyndman, Koehler, Ord and Snyder 2008, ch. 2 and table 6.1, ETS(A, Ad, A).

    >>> store = np.array([[2.0], [2.0], [2.0], [2.0]])
    >>> histories = Histories(store, np.array([0, 4]), np.array([3]), np.array([0]))
    >>> ets(histories, 2, 1, [0.1, 0.5])[0, :, 0].tolist()
    [[2.0, 2.0], [2.0, 2.0]]
    """
    quantiles = naive(histories, horizon, levels)
    candidates = _PLAIN + (_SEASONAL if season_length > 1 else ())
    damped = np.cumsum([[one.damping**k for one in candidates] for k in range(1, horizon + 1)], axis=0)
    growth = _growth(candidates, damped, season_length)
    lead = np.arange(horizon)
    for pairs, rows, where in _stretches(histories, season_length):
        state = _smoothed(rows, where, histories.values.shape[1], candidates, season_length)
        point = state.level[:, None] + damped[:, state.chosen].swapaxes(0, 1) * state.trend[:, None]
        point += np.moveaxis(state.season[..., lead % season_length], -1, 1)
        spread = np.sqrt(state.variance)[:, None] * growth[:, state.chosen].swapaxes(0, 1)
        smoothed = gaussian(point, spread, levels)
        quantiles[pairs] = np.where(np.isnan(smoothed), quantiles[pairs], smoothed)
    return quantiles


def _growth(candidates: Sequence[_Candidate], damped: Floats, season_length: int) -> Floats:
    """[H, P]: how many times the one-step spread the spread of each lead is."""
    step = np.arange(1, len(damped))[:, None]
    level, trend, _, season = np.array(candidates).T
    weight = level + trend * damped[:-1] + season * (step % season_length == 0)
    added = np.vstack([np.zeros(len(candidates)), weight**2])
    return np.sqrt(1 + np.cumsum(added, axis=0))


def _stretches(
    histories: Histories, season_length: int
) -> Iterator[tuple[Rows, Floats, tuple[Rows, Rows]]]:
    """Yields pairs, the rows [T, X] of the stretches they share, and each pair's stretch and place.

    A stretch begins one to two spans before the cutoff, at a row that depends on series and cutoff only:
    neighbouring cutoffs share a pass, and a forecast does not depend on what else the call computes.
    """
    values, indptr, cutoff, series = histories
    span, channels = max(_ROWS, 4 * season_length), values.shape[1]
    begin = indptr[series]
    start = begin + np.maximum((cutoff - begin) // span - 1, 0) * span
    some = np.flatnonzero(cutoff >= begin)
    begins, owner = np.unique(start[some], return_inverse=True)
    lengths = np.zeros(len(begins), np.int64)
    np.maximum.at(lengths, owner, cutoff[some] - start[some] + 1)
    longest = max(int(lengths.max(initial=1)), season_length * (len(_PLAIN) + len(_SEASONAL)))
    step = max(1, _BLOCK_CELLS // (longest * max(1, channels)))
    for first in range(0, len(begins), step):
        inside = np.flatnonzero((owner >= first) & (owner < first + step))
        length = lengths[first : first + step]
        row = np.arange(length.max())[:, None]
        own = row < length
        rows = values[np.where(own, begins[first : first + step] + row, 0)]
        rows[~own] = np.nan
        pairs = some[inside]
        yield pairs, rows.reshape(len(row), -1), (owner[inside] - first, cutoff[pairs] - start[pairs])


def _smoothed(
    rows: Floats,
    where: tuple[Rows, Rows],
    channels: int,
    candidates: Sequence[_Candidate],
    season_length: int,
) -> _State:
    """Returns the state of each pair after its cutoff, from one pass over the rows."""
    stretch, place = where
    alpha, beta, phi, gamma = (part[:, None] for part in np.array(candidates).T)
    level, season = _initial_state(rows, candidates, season_length)
    trend, whole, late = (np.zeros_like(level) for _ in range(3))
    seen, seen_late = (np.zeros(rows.shape[1], np.int64) for _ in range(2))
    unlike = np.where(np.arange(len(candidates)) < len(_PLAIN), 0.0, np.inf)[:, None, None]
    order = np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[order], np.arange(len(rows) + 1))
    states: list[_State] = []
    for t, row in enumerate(rows):
        real = row == row
        now = season[t % season_length]
        ahead = level + phi * trend
        error = np.where(real, row - ahead - now, 0.0)
        level = ahead + alpha * error
        trend = phi * trend + beta * error
        now += gamma * error
        whole += error**2
        seen += real
        if t >= 2 * season_length:
            late += error**2
            seen_late += real
        if bounds[t] == bounds[t + 1]:
            continue
        at = stretch[order[bounds[t] : bounds[t + 1]], None] * channels + np.arange(channels)
        grown = (t + 1 >= 3 * season_length) & (seen_late[at] > season_length)
        loss = np.where(grown, late[:, at], whole[:, at] + unlike)
        chosen = loss.argmin(axis=0)
        # The first value of a plain level is its own, not a forecast.
        count = np.maximum(np.where(grown, seen_late[at], seen[at] - 1), 1)
        least = np.take_along_axis(loss, chosen[None], 0)[0] / count
        turn = (t + 1 + np.arange(season_length)) % season_length
        ahead_by_phase = season[turn[:, None, None], chosen, at].transpose(1, 2, 0)
        variance = np.where(seen[at] > 0, least, np.nan)
        states.append(_State(level[chosen, at], trend[chosen, at], ahead_by_phase, chosen, variance))
    back = np.argsort(order, kind="stable")
    return _State(*(np.concatenate(parts)[back] for parts in zip(*states, strict=True)))


def _initial_state(
    rows: Floats, candidates: Sequence[_Candidate], season_length: int
) -> tuple[Floats, Floats]:
    """Level [P, X] and season [m, P, X] before the first row."""
    first = np.take_along_axis(rows, (~np.isnan(rows)).argmax(axis=0)[None], 0)[0]
    level = np.repeat(np.nan_to_num(first)[None], len(candidates), axis=0)
    season = np.zeros((season_length, *level.shape))
    seasonal = slice(len(_PLAIN), None)
    if season_length == 1 or len(rows) < 2 * season_length:
        return level, season
    early = rows[: 2 * season_length].reshape(2, season_length, -1)
    middle = _mean(early.reshape(2 * season_length, -1))
    level[seasonal] = np.where(np.isnan(middle), level[0], middle)
    season[:, seasonal] = np.nan_to_num(_mean(early) - level[-1])[:, None]
    return level, season


def _mean(rows: Floats) -> Floats:
    """Mean over the first axis of what is observed, NaN where nothing is."""
    return ratio(np.nansum(rows, axis=0), (~np.isnan(rows)).sum(axis=0))
