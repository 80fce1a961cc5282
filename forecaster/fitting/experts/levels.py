"""Series without history: a level from the other series or their statics, and a profile of steps around it.

    last rows of each series ─▶ level ─▶ median, or ridge on the statics
    stretches further back ─▶ distances from their level ─▶ profile: ridge on calendar and known covariates

Distances are in spreads. Where a channel is always positive its spread is a share of the level, and levels
are compared by their logarithms: a shop twice as large sells twice as much more on a Saturday. On the demo
with one store left out WQL is .185 with a profile, .270 without.

Axes: S series · T step of a stretch · C channel · F feature of the statics · G feature of a step.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from forecaster.model.experts import Experts
from forecaster.model.network import Network
from forecaster.panel.arrays import blocks, rows_before
from forecaster.panel.panel import Panel
from forecaster.windows.index import Int64, even_draw

Floats = NDArray[np.float64]

FEWEST = 5
"""Series with a level that it takes to know how far levels lie apart."""
_PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Of the ridge on statics, tried: the mean of a category of n series counts n / (n + penalty)."""
_WIDENING = 3.0
"""Of distances between levels, over the number of series: so bands hold 80 % of normal levels."""
_STRETCHES = 16
"""Of which the profile is learned: 16 stretches of 24 days are a year."""
_MOST_STEPS = 1 << 17
"""Of all stretches, of an even draw of the series: time does not grow with their number."""
_STEP_PENALTY = 1e-3  # of the profile, a share of the steps: for columns that repeat each other
_PRIOR_STEPS = 20.0  # steps at their level that are added: few steps are no evidence of a profile


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
    for buffer in (experts.cold_scale, experts.cold_share, experts.profile):
        buffer.zero_()
    levels = np.full((panel.n_series, channels), np.nan)
    squares, counts = np.zeros((2, channels))
    stretches = _stretches(panel, np.arange(panel.n_series), end, 3 * experts.short)
    for series, _, values in stretches:
        levels[series] = _mean(values)
        deviation = values - levels[series, None]  # [S, T, C]
        squares += np.nansum(np.square(deviation), axis=(0, 1))
        counts += (~np.isnan(values)).sum(axis=(0, 1))
    positive = always_positive(panel, end)
    features = _static_features(network, experts, panel)  # [S, F]
    shifts = np.full_like(levels, np.nan)
    for channel, level in enumerate(levels.T):
        known = np.isfinite(level)
        count = known.sum()
        if count < FEWEST:
            continue
        level = level[known]
        # Constant series vary by their levels alone.
        spread = np.sqrt(squares[channel] / counts[channel]) or level.std()
        if not spread:
            continue
        share = spread / level.mean() if positive[channel] else 0.0
        if share:
            level = np.log(level / level.mean())
        weights, held_out = level_by_statics(features[known], level)
        experts.cold_level[channel + 1] = torch.from_numpy(weights)
        experts.cold_scale[channel + 1] = spread
        experts.cold_share[channel + 1] = share
        # Few series lie less far apart than all that might be.
        widening = (level - held_out) * _WIDENING / count
        shift = features[known] @ weights - held_out + widening
        # Of logarithms: from a level e^shift as large, whose spread is a share of it.
        shifts[known, channel] = np.expm1(shift) / share if share else shift / spread
    _learn_profile(network, experts, panel, end)
    return shifts


def level_by_statics(features: Floats, level: Floats) -> tuple[Floats, Floats]:
    """Returns the weights [F] of features in a level, and [S] the level of each predicted from the others.

    Ridge regression on the statics, with the penalty of least error where each series is left out, if that
    is less than the error of the median by more than its standard error; else the median. With X the features
    less their mean, and ℓ the levels:

        w   = (XᵀX + λ·I)⁻¹·Xᵀ·(ℓ − mean ℓ)
        hₛ  = 1/S + xₛᵀ·(XᵀX + λ·I)⁻¹·xₛ       leverage
        ℓ₋ₛ = ℓₛ − eₛ / (1 − hₛ)                predicted without s, e the residuals (Allen's PRESS, 1974)

    so that no series has to be left out in turn.

    Args:
        features: [S, F], the first of them 1.
        level: [S]
    """
    count = len(level)
    # Of all series: without one of them it is nearly the same.
    median = np.full(count, np.median(level))  # [S]
    median_weights = np.zeros(features.shape[1])
    median_weights[0] = median[0]
    mean = features[:, 1:].mean(axis=0)
    centred = features[:, 1:] - mean  # [S, F − 1]
    if not centred.any():  # no statics, or the same for all
        return median_weights, median
    distance = level - level.mean()
    best_weights, held_out = median_weights, median
    gram, identity = centred.T @ centred, np.eye(centred.shape[1])
    for penalty in _PENALTIES:
        inverse = np.linalg.inv(gram + penalty * identity)
        leverage = 1 / count + np.einsum("sf,fg,sg->s", centred, inverse, centred)
        weights = inverse @ (centred.T @ distance)
        # A series that alone has a category is met exactly: 0 / 0 but for the bound.
        residual = (distance - centred @ weights) / np.maximum(1 - leverage, 1 / count)
        if np.abs(residual).sum() < np.abs(level - held_out).sum():
            held_out = level - residual
            constant = level.mean() - mean @ weights
            best_weights = np.concatenate([[constant], weights])
    gain = np.abs(level - median) - np.abs(level - held_out)  # [S]
    standard_error = gain.std() * count**0.5  # of the sum
    return (best_weights, held_out) if gain.sum() > standard_error else (median_weights, median)


def always_positive(panel: Panel, end: Int64) -> NDArray[np.bool_]:
    """Returns [C] whether all observed targets before a row of each series are above 0."""
    positive = np.ones(panel.n_channels, np.bool_)
    for rows in rows_before(panel.indptr, end, panel.values.shape[1]):
        positive &= ~(panel.values[rows, : panel.n_channels] <= 0).any(axis=0)  # NaN is not
    return positive


def _learn_profile(network: Network, experts: Experts, panel: Panel, end: Int64) -> None:
    """Puts the profile of each channel with a spread into the experts: ridge regression, pooled over series.

    profile = (Σ x·xᵀ + (.001·n + 20)·I)⁻¹ · Σ x·d      n steps with features x at d spreads from the level
    """
    spread = experts.cold_scale[1:].numpy()
    share = experts.cold_share[1:].numpy()
    if not spread.any():
        return
    length, size = 3 * experts.short, experts.profile.shape[1]
    series = even_draw(panel.n_series, max(FEWEST, _MOST_STEPS // (_STRETCHES * length)))
    gram = np.zeros((panel.n_channels, size, size))
    cross = np.zeros((panel.n_channels, size))
    for back in range(_STRETCHES):
        for _, rows, values in _stretches(panel, series, end, length, back):
            level = _mean(values)[:, None]  # [S, 1, C]
            features = _step_features(network, experts, panel, rows)  # [S, T, G]
            unit = np.where(share > 0, share * level, spread)
            distance = (values - level) / np.where(unit > 0, unit, np.nan)  # [S, T, C]
            for channel, target in enumerate(np.moveaxis(distance, 2, 0)):
                observed = np.isfinite(target)
                x = features[observed]  # [n, G]
                gram[channel] += x.T @ x
                cross[channel] += target[observed] @ x
    for channel, products in enumerate(gram):
        steps = products[0, 0]  # the first feature is 1
        penalty = _STEP_PENALTY * steps + _PRIOR_STEPS
        profile = np.linalg.solve(products + penalty * np.eye(size), cross[channel])
        experts.profile[channel + 1] = torch.from_numpy(profile)


def _stretches(
    panel: Panel, series: Int64, end: Int64, length: int, back: int = 0
) -> Iterator[tuple[Int64, Int64, Floats]]:
    """Yields some series, rows [S, T] of a stretch, the last first, and its targets [S, T, C].

    A target is NaN where it is missing, or before the first row of its series.

    Args:
        panel: the table.
        series: numbers, rising.
        end: [S] of all series, row after the last one that trains.
        length: steps of a stretch.
        back: stretches between the stretch and the end.
    """
    for block in blocks(len(series), length * panel.values.shape[1]):
        numbers = series[block]
        rows = end[numbers, None] - back * length - np.arange(1, length + 1)
        inside = rows >= panel.indptr[numbers, None]
        rows = np.maximum(rows, 0)
        targets = panel.values[rows, : panel.n_channels]
        yield numbers, rows, np.where(inside[..., None], targets, np.nan)


def _mean(values: Floats) -> Floats:
    """[S, C] means of observed targets [S, T, C]; NaN where there is none."""
    count = (~np.isnan(values)).sum(axis=1)
    return np.asarray(np.nansum(values, axis=1) / np.where(count, count, np.nan))


def _static_features(network: Network, experts: Experts, panel: Panel) -> Floats:
    """[S, F] features of the statics of each series."""
    numbers = torch.from_numpy(panel.static)
    numbers = network.embedding.static_scaler(numbers, ~numbers.isnan())
    codes = np.maximum(panel.static_codes.astype(np.int64), 0)  # −1 = empty
    return experts.statics(torch.from_numpy(codes), numbers).double().numpy()


def _step_features(network: Network, experts: Experts, panel: Panel, rows: Int64) -> Floats:
    """[S, T, G] features of rows [S, T]."""
    schema = panel.schema
    columns = [schema.columns.index(name) for name in schema.known_numeric]
    known = torch.from_numpy(panel.values[rows][..., columns])
    known = network.embedding.known_scaler(known, ~known.isnan())
    columns = [schema.code_columns.index(name) for name in schema.known_category]
    codes = panel.codes[rows][..., columns].astype(np.int64)
    codes = np.maximum(codes, 0)  # −1 = empty
    phase = torch.from_numpy(panel.calendar.phase(panel.time[rows.flatten()]))
    phase = phase.float().reshape(*rows.shape, -1)  # [S, T, cycle]
    features = experts.steps(phase, known, torch.from_numpy(codes))
    return features.double().numpy()
