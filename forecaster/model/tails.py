"""Quantiles at other levels than those that attention over experts was trained for.

Between two of its levels a quantile is interpolated, linearly in the quantile of a normal distribution; beyond
the outermost one it lies further out by a share of the distance of the median from the outermost:

    q(τ) = q(0.9) + (q(0.9) − q(0.5)) · tail(τ)   for τ > 0.9, and likewise below

Both are weighted sums of the trained quantiles, so that one matrix holds them, and both rise.

Axes: Q quantile level asked for · K trained level.
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

from forecaster.model.expert_attention import LEVELS, MEDIAN

TAIL = {0.9: 0.0, 0.95: 0.325, 0.975: 0.807, 0.99: 1.73, 0.995: 2.96, 0.999: 11.2}
"""Distance beyond the outermost quantile, by level; learned with the weights (`forecaster/weights`). Of a
normal distribution: 0.28, 0.53, 0.82, 1.01, 1.41."""


def at_levels(quantiles: Float[Tensor, "*B K"], levels: Sequence[float]) -> Float[Tensor, "*B Q"]:
    """Returns the quantiles at some levels from those at the trained ones; both rise."""
    if tuple(levels) == LEVELS:
        return quantiles
    matrix = torch.tensor(_matrix(tuple(levels)), dtype=quantiles.dtype, device=quantiles.device)
    return quantiles @ matrix


def tail(level: float) -> float:
    """Returns how far beyond the outermost quantile that of a level above 0.9 lies.

    Linear in the logarithm of what lies beyond, as in an exponential tail.
    """
    places = [-math.log1p(-one) for one in TAIL]
    distances = [*TAIL.values()]
    beyond = -math.log1p(-level)
    if beyond > places[-1]:
        slope = (distances[-1] - distances[-2]) / (places[-1] - places[-2])
        return distances[-1] + slope * (beyond - places[-1])
    return float(np.interp(beyond, places, distances))


@cache
def _matrix(levels: tuple[float, ...]) -> list[list[float]]:
    """[K, Q] weights of the trained quantiles."""
    return np.stack([_weights(level) for level in levels], axis=1).tolist()


def _weights(level: float) -> NDArray[np.float64]:
    """[K] of the quantile at one level."""
    weights = np.zeros(len(LEVELS))
    outermost = 0 if level < 0.5 else len(LEVELS) - 1
    if not LEVELS[0] <= level <= LEVELS[-1]:
        distance = tail(max(level, 1 - level))
        weights[outermost] = 1 + distance
        weights[MEDIAN] = -distance
        return weights
    normal = NormalDist().inv_cdf
    places = [normal(one) for one in LEVELS]
    for number, unit in enumerate(np.eye(len(LEVELS))):
        weights[number] = np.interp(normal(level), places, unit)
    return weights
