"""Tokens become distributions: quantiles that cannot cross.

What comes in: raw numbers from the last linear map. What goes out: quantiles in scaled units, their
loss, and the bias to start from.

Axes: B batch · H horizon · C channel · Q quantile level.
"""

from __future__ import annotations

from statistics import NormalDist

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn


def pinball(
    quantiles: Float[Tensor, "*B Q"], target: Float[Tensor, "*B"], levels: Float[Tensor, " Q"]
) -> Float[Tensor, "*B"]:
    """Returns 2·max(τe, (τ − 1)e) with e = target − quantile, averaged over the levels τ.

    Source: Koenker and Bassett, "Regression quantiles" (1978). The factor 2 makes the median's loss
    the absolute error.
    """
    error = target[..., None] - quantiles
    return 2 * torch.maximum(levels * error, (levels - 1) * error).mean(dim=-1)


class QuantileHead(nn.Module):
    """Quantiles that rise by construction: the median, and positive steps away from it."""

    def __init__(self, levels: tuple[float, ...]):
        """Takes the levels to forecast; 0.5 is among them.

        Args:
            levels: rising, strictly between 0 and 1.
        """
        super().__init__()
        self.median = levels.index(0.5)
        self.levels: Tensor
        # Not in the state: the levels are settings, and settings live in the config alone.
        self.register_buffer("levels", torch.tensor(levels), persistent=False)

    @property
    def size(self) -> int:
        """Numbers needed per step."""
        return len(self.levels)

    def initial_bias(self) -> Float[Tensor, " Q"]:
        """Returns the raw numbers of a standard normal, a sane first guess in scaled units."""
        normal = torch.tensor([NormalDist().inv_cdf(float(level)) for level in self.levels])
        steps = normal.diff()
        raw = steps + torch.log(-torch.expm1(-steps))  # the inverse of softplus
        return torch.cat([raw[: self.median], torch.zeros(1), raw[self.median :]])

    def forward(self, raw: Float[Tensor, "*B Q"]) -> Float[Tensor, "*B Q"]:
        """Returns quantiles in scaled units, rising along the last axis."""
        m = self.median
        center = raw[..., m : m + 1]
        below = center - F.softplus(raw[..., :m]).flip(-1).cumsum(-1).flip(-1)
        above = center + F.softplus(raw[..., m + 1 :]).cumsum(-1)
        return torch.cat([below, center, above], dim=-1)

    def loss(
        self, raw: Float[Tensor, "*B Q"], target: Float[Tensor, "*B"], observed: Bool[Tensor, "*B"]
    ) -> Float[Tensor, "*B"]:
        """Returns the pinball loss of each cell, 0 where the target is not observed.

        Args:
            raw: numbers from the last linear map.
            target: truth in scaled units; what it holds where not observed does not matter.
            observed: True where the truth is real.
        """
        # Masked before the loss, not after: NaN times 0 is NaN, in the gradient too.
        safe = torch.where(observed, target, 0.0)
        return torch.where(observed, pinball(self(raw), safe, self.levels), 0.0)
