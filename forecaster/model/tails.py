"""Quantiles at any level, and the mean, from those at fitted levels.

Between two fitted levels a quantile is interpolated, linearly in the quantile of a normal distribution; beyond
the outermost one o it lies further from the median in the ratio of the reaches of both levels:

    q(τ) = q(o) + (q(o) − q(0.5)) · factor · (tail(τ) − tail(o)) / (1 + tail(o))   for τ > o, and likewise below

The factor is 1, or that of calibration residuals. All are weighted sums of the fitted quantiles, so that one
matrix holds them, and all rise. The mean is that of a stratified grid of levels, one more weighted sum. Of counts
the mean is found first, and the upper tail made longer or shorter until the distribution has it (`with_mean`).

Axes: K fitted level · Q level asked for · N level of the grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

TAIL = {0.9: 0.0, 0.95: 0.282, 0.975: 0.683, 0.99: 1.268, 0.995: 1.803, 0.999: 4.071}
"""Distance beyond the quantile of level 0.9, by level; measured with the weights (`forecaster/weights`), that of
the table in the middle of 88: of all cells together a few tables made it 11.2 at 0.999. Of a normal distribution:
0.28, 0.53, 0.82, 1.01, 1.41."""

GRID = tuple((place + 0.5) / 200 for place in range(200))
"""Levels whose quantiles have the mean: (n − ½) / N."""

_normal = NormalDist().inv_cdf


def at_levels(
    quantiles: Float[Tensor, "*B K"],
    fitted: Sequence[float],
    wanted: Sequence[float],
    factor: float = 1.0,
) -> Float[Tensor, "*B Q"]:
    """Returns the quantiles at wanted levels from those at fitted ones, exactly those where a level is fitted.

    Args:
        quantiles: rising.
        fitted: K rising levels, with 0.5.
        wanted: levels between 0 and 1. A side of the median without a fitted level mirrors the other.
        factor: of the tails.
    """
    if tuple(wanted) == tuple(fitted):
        return quantiles
    if not wanted:
        return quantiles[..., :0]
    weights = _matrix(tuple(fitted), tuple(wanted), factor)
    nearest = weights.argmax(axis=0)
    # From the nearest on: weights that sum to 1 but for rounding would move a level of 1e9.
    weights = weights - np.eye(len(fitted))[:, nearest]
    around = _around_median(quantiles, fitted) @ _like(quantiles, weights)
    return quantiles[..., nearest.tolist()] + around


def mean_of(
    quantiles: Float[Tensor, "*B K"], fitted: Sequence[float], factor: float = 1.0
) -> Float[Tensor, "*B"]:
    """Returns the mean of the distribution through quantiles at fitted levels; arguments as `at_levels`."""
    weights = _like(quantiles, _matrix(tuple(fitted), GRID, factor).mean(axis=1))
    return quantiles[..., fitted.index(0.5)] + _around_median(quantiles, fitted) @ weights


def with_mean(
    quantiles: Float[Tensor, "*B K"],
    fitted: Sequence[float],
    wanted: Sequence[float],
    mean: Float[Tensor, "*B"],
    limits: tuple[Tensor, Tensor],
    factor: float = 1.0,
) -> Float[Tensor, "*B Q"]:
    """Returns the quantiles at wanted levels of a distribution that has a mean, as far as its tail can give it.

        where it is larger   x(τ) = q(τ) + (mean − mean of q) · t(τ),  t ∝ max(0, log((1 − o) / (1 − τ)))
        where it is smaller  x(τ) = q(τ) − s · max(0, q(τ) − q(o)),    0 ≤ s ≤ 1

    Nine quantiles of a demand say little of its largest values: half of them may be 0.

    Args:
        quantiles, fitted, wanted, factor: as of `at_levels`; o is the largest of `fitted`.
        mean: of the distribution.
        limits: the least and the largest value, of the shape of `mean`.
    """
    levels, count = (*GRID, *wanted), len(GRID)
    lower, upper = (limit[..., None] for limit in limits)
    values = at_levels(quantiles, fitted, levels, factor)
    values = torch.minimum(torch.maximum(values, lower), upper)
    beyond = [max(0.0, math.log((1 - fitted[-1]) / (1 - level))) for level in levels]
    tail = torch.tensor(beyond, dtype=values.dtype, device=values.device)
    tail = tail / tail[:count].mean()
    excess = _beyond_outermost(quantiles, values)
    missing = mean[..., None] - values[..., :count].mean(dim=-1, keepdim=True)
    most = excess[..., :count].mean(dim=-1, keepdim=True)
    shorter = (-missing / most.clamp(min=torch.finfo(most.dtype).tiny)).clamp(0.0, 1.0)
    values = values - shorter * excess + missing.clamp(min=0.0) * tail
    return torch.minimum(values, upper)[..., count:]


def stretched_mean(
    quantiles: Float[Tensor, "*B K"], fitted: Sequence[float], factor: float, stretch: float
) -> Float[Tensor, "*B"]:
    """Returns the mean of quantiles of at least 0 whose upper tail is longer, by a share of it, or shorter."""
    values = at_levels(quantiles, fitted, GRID, factor).clamp(min=0.0)
    return (values + stretch * _beyond_outermost(quantiles, values)).mean(dim=-1)


def _beyond_outermost(quantiles: Float[Tensor, "*B K"], values: Float[Tensor, "*B N"]) -> Tensor:
    return (values - quantiles[..., -1:]).clamp(min=0.0)


def tail(level: float) -> float:
    """Returns how far beyond the quantile of level 0.9 that of a higher one lies: of 0.5 it is −1.

    Linear in the logarithm of what lies beyond, as in an exponential tail; below 0.9 as a normal distribution's.
    """
    places = [-math.log1p(-one) for one in TAIL]
    distances = [*TAIL.values()]
    beyond = -math.log1p(-level)
    if beyond < places[0]:
        return _normal(level) / _normal(0.9) - 1
    if beyond > places[-1]:
        slope = (distances[-1] - distances[-2]) / (places[-1] - places[-2])
        return distances[-1] + slope * (beyond - places[-1])
    return float(np.interp(beyond, places, distances))


def _around_median(quantiles: Float[Tensor, "*B K"], fitted: Sequence[float]) -> Float[Tensor, "*B K"]:
    return quantiles - quantiles[..., fitted.index(0.5), None]


def _like(quantiles: Tensor, weights: NDArray[np.float64]) -> Tensor:
    return torch.tensor(weights.tolist(), dtype=quantiles.dtype, device=quantiles.device)


@cache
def _matrix(fitted: tuple[float, ...], wanted: tuple[float, ...], factor: float) -> NDArray[np.float64]:
    """[K, Q] weights of the fitted quantiles; each column sums to 1."""
    return np.stack([_weights(fitted, level, factor) for level in wanted], axis=1)


def beyond(level: float, outermost: float) -> float:
    """Returns how far beyond the outermost quantile another lies, in distances of the outermost from the median."""
    one, other = (max(side, 1 - side) for side in (level, outermost))
    return (tail(one) - tail(other)) / (1 + tail(other))


def _weights(fitted: tuple[float, ...], level: float, factor: float) -> NDArray[np.float64]:
    """[K] of the quantile at one level."""
    unit = np.eye(len(fitted))
    median = unit[fitted.index(0.5)]
    outermost, place = (fitted[0], 0) if level < 0.5 else (fitted[-1], -1)
    if level == 0.5 or len(fitted) == 1:
        return median
    if outermost == 0.5:
        return 2 * median - _weights(fitted, 1 - level, factor)
    if not fitted[0] <= level <= fitted[-1]:
        return unit[place] + factor * beyond(level, outermost) * (unit[place] - median)
    places = [_normal(one) for one in fitted]
    return np.array([np.interp(_normal(level), places, one) for one in unit])
