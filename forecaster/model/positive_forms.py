"""Experts of positive channels: a trend of logarithms, and a season that is a share of the level.

Both read sizes, distances from the 0 of the data, and commute with y → a·y alone.

In the formulas y₁ … yₙ is the history of a row, z what 0 is in scaled units, ŷ(h) the forecast of the step
h = 1, 2, … after yₙ, m the season length.

Axes: R row, a channel of a window · K memory · J cutoff · S phase of the season · N season · L lead.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from forecaster.model.channels import thin_product

LOG_SEASONS = 3
"""Seasons that the pattern of logarithms, and a multiplicative season, are means of."""
LOG_MEMORY = 48
"""Steps of logarithms at least, where history holds them: of a start further back 0.8^48 = 2e-5 is left."""
SMALLEST = 1e-3
"""Least size, as a share of the mean: one that is nearly 0 would have any logarithm."""
GROWTH = 0.2
"""Most of the trend of logarithms a step, e^0.2 = 1.22."""
FARTHEST_GROWTH = 4.0
"""Most of its sum over the horizon, e⁴ = 55."""
_FARTHEST = 14.0  # of a logarithm from that of the mean: e¹⁴ means are none, and finite
LEAST_MEAN = 0.01
"""Spreads that a mean size is at least: a share of a mean of 0, in rows unlike the training's, is rounding."""


def log_steps(memory: int, season: int) -> int:
    """Returns how many steps of logarithms are read: whole seasons where there is one."""
    return min(memory, max(LOG_MEMORY, LOG_SEASONS * season))


def log_filters(
    states: NDArray[np.float64], season: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns what a history of logarithms is multiplied with, and their mean season in its turn.

    Args:
        states: [K, 2] level and trend after a unit impulse at each step.
        season: steps, 1 = none.

    Returns:
        [K, 2 + S] level, trend and mean season of the logarithms; [S, 2] level and trend of a mean season.
    """
    steps = len(states)
    phase = (np.arange(steps) - steps) % season
    of_pattern = np.stack([states[phase == number].sum(axis=0) for number in range(season)])
    count = min(LOG_SEASONS, steps // season)
    blocks = np.eye(steps)[steps - count * season :].reshape(count, season, steps)
    mean = blocks.mean(axis=1)  # [N, K]
    slope = (mean[-1] - mean[0]) / (max(1, count - 1) * season)
    ramp = np.arange(season)[:, None] - (season - 1) / 2
    pattern = (blocks - mean[:, None]).mean(axis=0) - slope * ramp  # [S, K]
    return np.concatenate([states, pattern.T], axis=1), of_pattern


def log_trend(
    values: Float[Tensor, "R J K"],
    length: Int[Tensor, "R J"],
    zero: Float[Tensor, " R"],
    lead: Int[Tensor, " L"],
    filters: Float[Tensor, "K _"],
    of_pattern: Float[Tensor, "S 2"],
) -> Float[Tensor, "R J L"]:
    """A local trend of logarithms, seasonally adjusted:

        x = log((y − z)/μ)                     μ the mean of y − z, y − z at least a thousandth of it
        s = mean season of x, of three seasons without level and trend
        ŷ(h) = z + μ·exp(ℓ + h·b + s)          ℓ and b by Holt's smoothing of x − s, |b| ≤ 0.2, |h·b| ≤ 4

    The exponential of a median is the median; that of a mean would be below the mean, and is not corrected.
    """
    season = len(of_pattern)
    mean = values.mean(dim=-1, keepdim=True)  # [R, J, 1]
    unit = (mean - zero[:, None, None]).clamp(min=LEAST_MEAN)
    # Logarithms of 1 + r and exponentials less 1: of a level of many spreads neither loses the digits.
    logs = ((values - mean) / unit).clamp(min=SMALLEST - 1).log1p()
    states, pattern = thin_product(logs, filters).split([2, season], dim=-1)  # [R, J, 2], [R, J, S]
    seen_twice = length[..., None] >= max(2, 2 * season)
    pattern = torch.where(seen_twice, pattern, 0.0)
    level, trend = (states - thin_product(pattern, of_pattern)).split(1, dim=-1)  # [R, J, 1] each
    growth = trend.clamp(-GROWTH, GROWTH) * (lead + 1)
    growth = growth.clamp(-FARTHEST_GROWTH, FARTHEST_GROWTH)
    total = level + growth + pattern.index_select(-1, lead % season)
    return mean + unit * total.clamp(max=_FARTHEST).expm1()


def multiplicative_season(
    blocks: Float[Tensor, "R J N S"],
    zero: Float[Tensor, " R"],
    lead: Int[Tensor, " L"],
    weights: Float[Tensor, "N S"],
) -> Float[Tensor, "R J L"]:
    """Level times mean multiplicative season (classical decomposition, FPP3, 3.4), of the last three seasons:

        u = mean over the seasons i of (yᵢ − z)/μᵢ        μᵢ the mean of yᵢ − z
        ŷ(h) = z + ℓ·u                                    ℓ the level of (y − z)/u

    Args:
        blocks: seasons, oldest first, scaled units.
        zero: z.
        lead: h − 1.
        weights: of simple exponential smoothing, at each step of the seasons.
    """
    below = zero[:, None, None]  # [R, 1, 1]
    count, season = blocks.shape[-2:]
    mean = (blocks.mean(dim=-1) - below).clamp(min=LEAST_MEAN)  # [R, J, N]
    share = 1 / (count * mean)
    # Weights of a step are those of its season times those of its phase: both sums are one product.
    of_season = weights[:, -1].expand_as(share)  # [R, J, N]
    both = torch.stack([share, of_season], dim=-2)  # [R, J, 2, N]
    # Sums of y less those of z: no array of y − z is made.
    sums = both @ blocks - below[..., None] * both.sum(dim=-1, keepdim=True)
    shape, smoothed = sums.unbind(dim=-2)  # [R, J, S] each
    shape = shape.clamp(min=SMALLEST)
    of_phase = weights[-1] / weights[-1, -1]  # [S]
    level = (smoothed * of_phase / shape).sum(dim=-1, keepdim=True)
    return below + level * shape.index_select(-1, lead % season)
