"""Levels of series without history: the median of the other series, or a ridge on their statics.

Axes: S series · C channel · F feature of the statics.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from forecaster.model.network import Network
from forecaster.panel.arrays import blocks
from forecaster.panel.panel import Panel
from forecaster.windows.index import Int64

Floats = NDArray[np.float64]

FEWEST = 5
"""Series with a level that it takes to know how far levels lie apart."""
_PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Series that a category's own level counts against."""
_WIDER = 3.0
"""Distances from the others, over the number of series: so bands hold 80 % of normal levels."""


def learn_levels(network: Network, panel: Panel, end: Int64) -> Floats:
    """Puts level and spread of series without history into the experts of a network.

    Both are of the last rows of each series that train: three seasons.

    Args:
        network: changed in place.
        panel: the table.
        end: [S] row after the last one that trains.

    Returns:
        [S, C] what to add to the distance of a series from its predicted level to have that from the level
        predicted without it, in spreads; NaN where either is unknown.
    """
    experts, channels = network.experts, panel.n_channels
    assert experts is not None
    rows, levels = experts.longest[-1], np.full((panel.n_series, channels), np.nan)
    squares, counts = np.zeros((2, channels))
    for part in blocks(panel.n_series, rows * channels):
        at = end[part, None] - np.arange(1, rows + 1)
        there = at >= panel.indptr[:-1][part, None]
        values = panel.values[np.maximum(at, 0), :channels]
        seen = there[..., None] & ~np.isnan(values)
        count = seen.sum(axis=1)
        own = np.where(seen, values, 0.0).sum(axis=1) / np.where(count, count, np.nan)
        levels[part] = own
        squares += np.square(np.where(seen, values - own[:, None], 0.0)).sum(axis=(0, 1))
        counts += count.sum(axis=0)
    numbers = torch.from_numpy(panel.static)
    numbers = network.embedding.static_scaler(numbers, ~numbers.isnan())
    codes = torch.from_numpy(panel.static_codes.astype(np.int64)).clamp_(min=0)
    features = experts.statics(codes, numbers).double().numpy()
    experts.cold_scale.zero_()
    missed = np.full_like(levels, np.nan)
    for channel, level in enumerate(levels.T):
        there = np.isfinite(level)
        if there.sum() < FEWEST:
            continue
        if spread := np.sqrt(squares[channel] / counts[channel]) or level[there].std():
            found, others = level_by_statics(features[there], level[there])
            experts.cold_level[channel + 1] = torch.from_numpy(found)
            experts.cold_scale[channel + 1] = spread
            # Few series lie less far apart than all that might be.
            wider = (level[there] - others) * _WIDER / there.sum()
            missed[there, channel] = (features[there] @ found - others + wider) / spread
    return missed


def level_by_statics(features: Floats, level: Floats) -> tuple[Floats, Floats]:
    """Returns the weights [F] of features in a level, and [S] the level of each predicted from the others.

    Ridge regression on the statics, with the penalty of least error where each series is left out, if that
    is less than the error of the median by more than its standard error; else the median.

    Args:
        features: [S, F], the first of them 1.
        level: [S]
    """
    count, median = len(level), np.zeros(features.shape[1])
    median[0] = np.median(level)
    others = np.full(count, median[0])
    mean = features[:, 1:].mean(axis=0)
    apart, distance = features[:, 1:] - mean, level - level.mean()
    best, predicted = median, others
    for penalty in _PENALTIES if apart.any() else ():
        inverse = np.linalg.inv(apart.T @ apart + penalty * np.eye(apart.shape[1]))
        leverage = 1 / count + np.einsum("sf,fg,sg->s", apart, inverse, apart)
        weights = inverse @ (apart.T @ distance)
        left = (distance - apart @ weights) / np.maximum(1 - leverage, 1 / count)
        if np.abs(left).sum() < np.abs(level - predicted).sum():
            predicted = level - left
            best = np.concatenate([[level.mean() - mean @ weights], weights])
    gain = np.abs(level - others) - np.abs(level - predicted)
    return (best, predicted) if gain.sum() > gain.std() * count**0.5 else (median, others)
