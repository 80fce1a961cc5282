"""Series without history: a level from the other series or their statics, and a profile of steps around it.

    last rows of each series ─▶ level ─▶ median, or ridge on the statics
    stretches further back ─▶ distances from their level ─▶ profile: ridge on calendar and known covariates

Distances are in spreads. Where a channel is always positive its spread is a share of the level, and levels
are compared by their logarithms: a shop twice as large sells twice as much more on a Saturday.

Axes: S series · T step of a stretch · C channel · F feature of the statics · G feature of a step.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from forecaster.model.network import Network
from forecaster.panel.arrays import blocks, rows_before
from forecaster.panel.panel import Panel
from forecaster.windows.index import Int64, even_draw

Floats = NDArray[np.float64]

FEWEST = 5
"""Series with a level that it takes to know how far levels lie apart."""
_PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Series that a category's own level counts against."""
_WIDER = 3.0
"""Distances from the others, over the number of series: so bands hold 80 % of normal levels."""
_STRETCHES, _MOST_STEPS = 16, 1 << 17
"""Of three seasons from which the profile is learned; their steps in all, of an even draw of the series."""
_STEP_PENALTY, _PRIOR_STEPS = 1e-3, 20.0
"""Ridge of the profile: a share of the steps, and steps at their level that are added to them."""


def learn_levels(network: Network, panel: Panel, end: Int64) -> Floats:
    """Puts level, spread and profile of series without history into the experts of a network.

    Level and spread are of the last rows of each series that train: three seasons.

    Args:
        network: changed in place.
        panel: the table.
        end: [S] row after the last one that trains.

    Returns:
        [S, C] what to add to the distance of a series from its predicted level to have that from the level
        predicted without it, in spreads; NaN where either is unknown.
    """
    experts, channels = network.experts, panel.n_channels
    if experts is None:
        return np.empty((panel.n_series, channels))
    positive = np.ones(channels, np.bool_)
    for rows in rows_before(panel.indptr, end, panel.values.shape[1]):
        positive &= ~(panel.values[rows, :channels] <= 0).any(axis=0)
    levels = np.full((panel.n_series, channels), np.nan)
    squares, counts = np.zeros((2, channels))
    for series, _, values in _stretches(network, panel, np.arange(panel.n_series), end):
        levels[series] = _mean(values)
        squares += np.nansum(np.square(values - levels[series, None]), axis=(0, 1))
        counts += (~np.isnan(values)).sum(axis=(0, 1))
    numbers = torch.from_numpy(panel.static)
    numbers = network.embedding.static_scaler(numbers, ~numbers.isnan())
    codes = torch.from_numpy(panel.static_codes.astype(np.int64)).clamp_(min=0)
    features = experts.statics(codes, numbers).double().numpy()
    for buffer in (experts.cold_scale, experts.cold_share, experts.profile):
        buffer.zero_()
    missed = np.full_like(levels, np.nan)
    for channel, level in enumerate(levels.T):
        there = np.isfinite(level)
        if there.sum() < FEWEST:
            continue
        level = level[there]
        if spread := np.sqrt(squares[channel] / counts[channel]) or level.std():
            share = spread / level.mean() if positive[channel] else 0.0
            level = np.log(level / level.mean()) if share else level
            found, others = level_by_statics(features[there], level)
            experts.cold_level[channel + 1] = torch.from_numpy(found)
            experts.cold_scale[channel + 1], experts.cold_share[channel + 1] = spread, share
            # Few series lie less far apart than all that might be.
            wider = (level - others) * _WIDER / there.sum()
            shift = features[there] @ found - others + wider
            missed[there, channel] = np.expm1(shift) / share if share else shift / spread
    _learn_profile(network, panel, end)
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


def _learn_profile(network: Network, panel: Panel, end: Int64) -> None:
    """Puts the profile of each channel with a spread into the experts: ridge regression, pooled over series."""
    experts, channels = network.experts, panel.n_channels
    assert experts is not None
    spread, share = (own[1:].numpy() for own in (experts.cold_scale, experts.cold_share))
    drawn = even_draw(panel.n_series, max(FEWEST, _MOST_STEPS // (_STRETCHES * experts.longest[-1])))
    size = experts.profile.shape[1]
    gram, cross = np.zeros((channels, size, size)), np.zeros((channels, size))
    for back in range(_STRETCHES if spread.any() else 0):
        for _, at, values in _stretches(network, panel, drawn, end, back):
            level, steps = _mean(values)[:, None], _steps(network, panel, at)
            unit = np.where(share > 0, share * level, spread)
            target = (values - level) / np.where(unit > 0, unit, np.nan)
            for channel, wanted in enumerate(np.moveaxis(target, 2, 0)):
                there = np.isfinite(wanted)
                read = steps[there]
                gram[channel] += read.T @ read
                cross[channel] += wanted[there] @ read
    for channel, products in enumerate(gram):
        penalty = _STEP_PENALTY * products[0, 0] + _PRIOR_STEPS
        found = np.linalg.solve(products + penalty * np.eye(size), cross[channel])
        experts.profile[channel + 1] = torch.from_numpy(found)


def _stretches(
    network: Network, panel: Panel, series: Int64, end: Int64, back: int = 0
) -> Iterator[tuple[Int64, Int64, Floats]]:
    """Yields some series, rows [S, T] of a stretch of three seasons, and its targets [S, T, C], NaN = missing.

    Args:
        series: numbers, rising.
        end: [S] of all series, row after the last one that trains.
        back: stretches between the stretch and the end.
    """
    assert network.experts is not None
    length, channels = network.experts.longest[-1], panel.n_channels
    for part in blocks(len(series), length * panel.values.shape[1]):
        some = series[part]
        at = end[some, None] - back * length - np.arange(1, length + 1)
        there, at = at >= panel.indptr[some, None], np.maximum(at, 0)
        yield some, at, np.where(there[..., None], panel.values[at, :channels], np.nan)


def _mean(values: Floats) -> Floats:
    """[S, C] means of observed targets [S, T, C]; NaN where there is none."""
    count = (~np.isnan(values)).sum(axis=1)
    return np.asarray(np.nansum(values, axis=1) / np.where(count, count, np.nan))


def _steps(network: Network, panel: Panel, at: Int64) -> Floats:
    """[S, T, G] features of rows [S, T]."""
    schema = panel.schema
    numbers = [schema.columns.index(name) for name in schema.known_numeric]
    known = torch.from_numpy(panel.values[at][..., numbers])
    known = network.embedding.known_scaler(known, ~known.isnan())
    words = [schema.code_columns.index(name) for name in schema.known_category]
    codes = torch.from_numpy(panel.codes[at][..., words].astype(np.int64)).clamp_(min=0)
    phase = panel.calendar.phase(panel.time[at.flatten()]).reshape(*at.shape, -1)
    assert network.experts is not None
    return network.experts.steps(torch.from_numpy(phase).float(), known, codes).double().numpy()
