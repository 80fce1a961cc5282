"""Textbook definitions of the metrics over flat cells: the slow twin of `forecaster.evaluation.metrics`.

y actual (NaN = not scored), f forecast, q quantiles [..., Q], s scale of each cell or row (NaN = left out).
Means are one sum over one count of scored cells.
"""

import numpy as np


def pinball(y, q, levels):
    """2·max(τ(y − q), (τ − 1)(y − q)), mean over levels."""
    error = np.asarray(y)[..., None] - q
    return np.mean([2 * np.where(error >= 0, t * error, (t - 1) * error)[..., n]
                    for n, t in enumerate(levels)], axis=0)  # fmt: skip


def mae(y, f):
    return np.nanmean(np.abs(f - y))


def wape(y, f):
    """Σ|f − y| / Σ|y|."""
    return np.nansum(np.abs(f - y)) / np.nansum(np.abs(y))


def interval_score(y, low, high, nominal):
    """(u − l) + 2/α·(l − y)·1[y < l] + 2/α·(y − u)·1[y > u], cell by cell (Gneiting and Raftery 2007)."""
    scores = []
    for value, lower, upper in zip(np.ravel(y), np.ravel(low), np.ravel(high), strict=True):
        if not np.isnan(value):
            outside = lower - value if value < lower else value - upper if value > upper else 0.0
            scores.append(upper - lower + 2 / (1 - nominal) * outside)
    return np.mean(scores)


def mse(y, f):
    return np.nanmean((f - y) ** 2)


def rmse(y, f):
    return np.sqrt(mse(y, f))


def bias(y, f):
    return np.nanmean(f - y)


def smape(y, f):
    """200·|f − y| / (|y| + |f|), percent; 0/0 counts as 0."""
    size = np.abs(y) + np.abs(f)
    return np.nanmean(np.where(size == 0, 0.0, 200 * np.abs(f - y) / np.where(size == 0, 1, size)))


def coverage(y, low, high):
    return ((low <= y) & (y <= high))[~np.isnan(y)].mean()


def width(y, low, high):
    return (high - low)[~np.isnan(y)].mean()


def wql(y, q, levels):
    """Σ pinball / Σ|y| (Salinas et al. 2020)."""
    return np.nansum(pinball(y, q, levels)) / np.nansum(np.abs(y))


def mase(y, f, s):
    """Mean of |f − y| / s (Hyndman and Koehler 2006); s: [row]."""
    return np.nanmean(np.abs(f - y) / np.asarray(s)[..., None])


def sql(y, q, levels, s):
    """Mean of pinball / s (fev-bench 2025); s: [row]."""
    return np.nanmean(pinball(y, q, levels) / np.asarray(s)[..., None])


def rmsse(y, f, s):
    """Mean over rows of √(mean over leads of squared errors) / s (M5); s: [row]."""
    scored = ~np.isnan(y).all(axis=-1)
    return np.nanmean(np.sqrt(np.nanmean((f - y)[scored] ** 2, axis=-1)) / np.asarray(s)[scored])


def crps(y, x):
    """E|X − y| − ½·E|X − X′| over the draws x [..., S] (Gneiting and Raftery 2007)."""
    pairs = np.abs(x[..., :, None] - x[..., None, :]).mean(axis=(-1, -2))
    return np.nanmean(np.abs(x - y[..., None]).mean(axis=-1) - pairs / 2)


def mase_scale(history, season):
    """Mean |y_t − y_{t−m}| over pairs both observed; of season 1 where there is none; NaN where it is 0."""
    return _scale(np.abs(_changes(history, season)))


def rmsse_scale(history):
    """Root mean (y_t − y_{t−1})²."""
    return np.sqrt(_scale(_changes(history, 1) ** 2))


def _changes(history, season):
    y = np.asarray(history, np.float64)
    found = y[season:] - y[:-season]
    found = found[~np.isnan(found)]
    return found if len(found) or season == 1 else _changes(history, 1)


def _scale(changes):
    return changes.mean() if changes.any() else np.nan
