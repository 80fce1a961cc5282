"""Scaling of targets by their context and of covariates by the training rows.

The state that undoes the scaling is returned, never stored. NaN and unobserved cells enter no moment.

Axes: B batch · L context · C channel · X covariate. "Scaled units" are (value − loc) / scale.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

# A spread below this share of the level is rounding of a constant series, not a spread.
_ROUNDING = 1e-6


class Scale(NamedTuple):
    """Location and spread of each channel of each window, data units."""

    loc: Tensor
    """[B, C]"""
    scale: Tensor
    """[B, C], positive"""

    def apply(self, values: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """Returns values in scaled units."""
        return (values - self.loc[:, None]) / self.scale[:, None]

    def invert(self, quantiles: Float[Tensor, "B T C Q"]) -> Float[Tensor, "B T C Q"]:
        """Returns scaled quantiles in data units: the exact inverse of `apply`."""
        return quantiles * self.scale[:, None, :, None] + self.loc[:, None, :, None]


class ContextScaler(nn.Module):
    """Scales each channel of a window by the mean and spread of its own context."""

    def __init__(self, channels: int, length: int | None = None):
        """Starts with mean 0 and spread 1 of each channel of the training table; code 0 = any other.

        `length`: steps at the end of the context that count; None = all.
        """
        super().__init__()
        self.length = length
        self.loc: Tensor
        self.scale: Tensor
        self.register_buffer("loc", torch.zeros(channels + 1))
        self.register_buffer("scale", torch.ones(channels + 1))

    def forward(
        self,
        context: Float[Tensor, "B L C"],
        observed: Bool[Tensor, "B L C"],
        channel: Int[Tensor, "B C"],
    ) -> Scale:
        """Returns the scale of each window.

        A constant context, or one with fewer than two observations, borrows the spread of the
        channel's training rows; an empty one borrows the location too. Where fewer than two of the
        steps that count are observed, all steps count.
        """
        if self.length is not None:
            steps = observed.shape[1]
            late = torch.arange(steps, device=observed.device)[:, None] >= steps - self.length
            late = observed & late
            observed = torch.where((late.sum(dim=1) >= 2)[:, None], late, observed)
        count = observed.sum(dim=1)
        seen = count.clamp(min=1)
        mean = (torch.where(observed, context, 0.0) / seen[:, None]).sum(dim=1)
        # Two passes: the mean of squares minus the square of the mean cancels for large levels. In
        # units of the largest: the square of 1e20 is no float32.
        spread = torch.where(observed, context - mean[:, None], 0.0)
        largest = spread.abs().amax(dim=1)
        relative = spread / largest.clamp(min=torch.finfo(spread.dtype).tiny)[:, None]
        deviation = largest * (relative.square().sum(dim=1) / seen).sqrt()
        varies = (count >= 2) & (deviation > _ROUNDING * mean.abs())
        return Scale(
            loc=torch.where(count > 0, mean, self.loc[channel]),
            scale=torch.where(varies, deviation, self.scale[channel]),
        )


class Standardizer(nn.Module):
    """Scales covariates by the mean and spread of the training rows."""

    def __init__(self, covariates: int):
        super().__init__()
        self.loc: Tensor
        self.scale: Tensor
        self.register_buffer("loc", torch.zeros(covariates))
        self.register_buffer("scale", torch.ones(covariates))

    def forward(
        self, values: Float[Tensor, "*B X"], observed: Bool[Tensor, "*B X"]
    ) -> Float[Tensor, "*B X"]:
        """Returns values in units of training-row spreads; 0, the mean, where nothing is observed."""
        return torch.where(observed, (values - self.loc) / self.scale, 0.0)
