"""Seasonal naive, against which every skill is measured: the expert's forecast, with a band of its own errors.

The point is that of the expert alone: the last season without gaps, as experts fill them. It needs neither a
model nor a plan, so that forecasts of any origin have a skill. Naive, drift and ETS are experts run alone
(`baseline_models`). No row after a cutoff and no row of another series is read; a forecast is bit-equal whatever
else the same call computes.

Axes: n = pairs (series, cutoff), H = leads, C = channels, Q = quantile levels, X = (pair, channel),
T = steps that are read, m = season length.
"""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import torch

from forecaster.evaluation.error_scales import BLOCK_CELLS, Histories, change_sums
from forecaster.model.experts import fill_gapped
from forecaster.panel.arrays import Floats, Ints


def seasonal_naive(
    histories: Histories, horizon: int, season_length: int, levels: Sequence[float]
) -> Floats:
    """Quantiles [n, H, C, Q] around the last observed value of the same phase, data units.

    Where the value one season back is missing, the season before it counts, and so on; where none
    of that phase was ever observed, the last observed value of the channel; NaN where there is none.
    Spread: point + z_τ · rms(y_t − y_{t−m}) · √(⌊(lead − 1)/m⌋ + 1), the rms over the observed
    pairs up to the cutoff; without any pair m apart over pairs 1 apart, without those 0.
    Source: Hyndman and Athanasopoulos, Forecasting: Principles and Practice, 3rd ed., 5.2 and 5.5.

    >>> store = np.array([[1.0], [2.0], [3.0], [5.0]])
    >>> histories = Histories(store, np.array([0, 4]), np.array([3]), np.array([0]))
    >>> seasonal_naive(histories, 3, 2, [0.5])[0, :, 0, 0].tolist()
    [3.0, 5.0, 3.0]
    """
    lead = np.arange(horizon)
    point = _last_season(histories, season_length)[:, lead % season_length]
    # The root mean square of the in-sample seasonal residuals, 0 where there are none.
    total, count = change_sums(histories, season_length, np.square)
    spread = np.sqrt(total / np.maximum(count, 1))
    growth = np.sqrt(lead // season_length + 1.0)
    z = np.array([NormalDist().inv_cdf(level) for level in levels])
    return point[..., None] + (spread[:, None] * growth[:, None])[..., None] * z


def _last_season(histories: Histories, season_length: int) -> Floats:
    """[n, m, C]: the value that is repeated at each phase, that of the first lead first."""
    values, cutoff, begin = histories.values, histories.cutoff, histories.indptr[histories.series]
    season = np.full((len(cutoff), season_length, values.shape[1]), np.nan)
    pending = np.flatnonzero(cutoff >= begin)
    steps = season_length
    while pending.size:
        size = max(1, BLOCK_CELLS // (steps * max(1, values.shape[1])))
        gapped = []
        for start in range(0, len(pending), size):
            some = pending[start : start + size]
            season[some], complete = _filled(values, begin[some], cutoff[some], steps, season_length)
            gapped.append(some[~complete & (cutoff[some] - steps >= begin[some])])
        # Most have no gap. For the rest the range doubles: a million empty rows take twenty rounds.
        pending = np.concatenate(gapped)
        steps *= 2
    return season


def _filled(
    values: Floats, begin: Ints, cutoff: Ints, steps: int, season_length: int
) -> tuple[Floats, np.ndarray]:
    """[n, m, C] the last season without gaps, by the last steps alone, and [n] whether each phase was observed."""
    rows = cutoff[:, None] + np.arange(1 - steps, 1)  # [n, T]
    history = values[np.maximum(rows, begin[:, None])]
    history[rows < begin[:, None]] = np.nan
    shape = (len(rows), values.shape[1])
    series = torch.from_numpy(history).movedim(1, 2).flatten(0, 1)  # [X, T]
    observed = ~series.isnan()
    of_phase = observed.unflatten(1, (-1, season_length)).any(dim=1)  # [X, m]
    by_phase, _ = fill_gapped(series, observed, season_length)
    by_step, _ = fill_gapped(series, observed, 1)
    filled = torch.where(of_phase, by_phase[:, -season_length:], by_step[:, -1:])
    filled[~observed.any(dim=1)] = torch.nan
    complete = of_phase.all(dim=1).unflatten(0, shape).all(dim=1)
    return filled.unflatten(0, shape).movedim(1, 2).numpy(), complete.numpy()
