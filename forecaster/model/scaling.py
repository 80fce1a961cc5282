"""Scaling of targets by their context and of covariates by the training rows.

The state that undoes the scaling is returned, never stored. NaN and unobserved cells enter no moment.
Data units are float64 and scaled units float32: 23,000,000.4 has no more digits in float32.

Axes: B batch · L context · T step · C channel · X covariate · Q quantile level. "Scaled
units" are (value − level − loc) / scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from forecaster.model.shortcuts import may_hold

ROUNDING = 1e-13
"""A spread below this share of the level is rounding of a constant series, not a spread."""


class Scale(NamedTuple):
    """Location and spread of each channel of each window, data units."""

    level: Tensor
    """[B, C] one of the values: differences from it are exact, so that an offset of all changes nothing."""
    loc: Tensor
    """[B, C] mean, counted from `level`."""
    scale: Tensor
    """[B, C], positive"""

    def apply(self, values: Float[Tensor, "B T C *Q"]) -> Float[Tensor, "B T C *Q"]:
        """Returns values in scaled units, float32."""
        level, loc, scale = self._broadcast(values)
        return ((values - level - loc) / scale).float()

    def invert(self, scaled: Float[Tensor, "B T C *Q"]) -> Float[Tensor, "B T C *Q"]:
        """Returns scaled values in data units, float64: the inverse of `apply`."""
        level, loc, scale = self._broadcast(scaled)
        return scaled * scale + loc + level

    def _broadcast(self, values: Tensor) -> Iterator[Tensor]:
        """[B, C] → [B, 1, C], or [B, 1, C, 1] for values with quantiles, and so on."""
        index = (slice(None), None, slice(None), *[None] * (values.ndim - 3))
        return (part[index] for part in self)


class ContextScaler(nn.Module):
    """Scales each channel of a window by the mean and spread of its own context."""

    def __init__(self, channels: int):
        """Starts with mean 0 and spread 1 of each channel of the training table; code 0 = any other."""
        super().__init__()
        self.loc = nn.Buffer(torch.zeros(channels + 1, dtype=torch.float64))
        self.scale = nn.Buffer(torch.ones(channels + 1, dtype=torch.float64))

    def forward(
        self,
        context: Float[Tensor, "B L C"],
        observed: Bool[Tensor, "B L C"],
        channel: Int[Tensor, "B C"],
        history: Float[Tensor, "B T C"],
        history_observed: Bool[Tensor, "B T C"],
    ) -> Scale:
        """Returns the scale of each window.

        A constant context has the spread of the history, and where there is none that of the channel's
        training rows; an empty one has their location too.
        """
        context = context.double()
        count = observed.sum(dim=1)  # [B, C]
        # The largest: any of the values would do.
        level = torch.where(observed, context, -torch.inf).amax(dim=1)
        level = torch.where(count > 0, level, self.loc[channel])
        loc, deviation = _moments(context, observed, level)
        least = ROUNDING * level.abs()
        constant = deviation <= least  # 0 where nothing is observed
        if may_hold(constant):
            _, spread = _moments(history.double(), history_observed, level)
            borrowed = torch.where(spread > least, spread, self.scale[channel])
            deviation = torch.where(constant, borrowed, deviation)
        return Scale(level, loc, deviation)


def _moments(values: Tensor, observed: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of the observed values, counted from `level`, and their standard deviation."""
    count = observed.sum(dim=1).clamp(min=1)
    distance = torch.where(observed, values - level[:, None], 0.0)
    mean = distance.sum(dim=1) / count
    # Two passes: the mean of squares minus the square of the mean cancels for large levels.
    squares = torch.where(observed, distance - mean[:, None], 0.0).square().sum(dim=1)
    return mean, (squares / count).sqrt()


class Standardizer(nn.Module):
    """Scales covariates by the mean and spread of the training rows."""

    def __init__(self, covariates: int):
        super().__init__()
        self.loc = nn.Buffer(torch.zeros(covariates, dtype=torch.float64))
        self.scale = nn.Buffer(torch.ones(covariates, dtype=torch.float64))

    def forward(
        self, values: Float[Tensor, "*B X"], observed: Bool[Tensor, "*B X"]
    ) -> Float[Tensor, "*B X"]:
        """Returns values in training-row spreads, float32; 0, the mean, where nothing is observed."""
        return torch.where(observed, (values - self.loc) / self.scale, 0.0).float()
