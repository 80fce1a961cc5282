"""Tokens become distributions: which heads there are, and quantiles that cannot cross.

What comes in and goes out: as said in head.py.

    quantile            the levels themselves, free in shape            this file
    student_t           heavy tails, symmetric                          densities.py
    negative_binomial   counts                                          densities.py
    binned              a vocabulary of scaled values, any shape        vocabulary.py

Axes: B batch · T step · C channel · Q quantile level.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from forecaster.config import ModelConfig
from forecaster.model.densities import NegativeBinomialHead, StudentTHead
from forecaster.model.head import Head, inverse_softplus
from forecaster.model.scaling import Scale
from forecaster.model.vocabulary import BinnedHead, Vocabulary

_LEAST_STEP = 1e-6  # between two quantiles whose raw numbers are asked for, scaled units


def pinball(
    quantiles: Float[Tensor, "*B Q"], target: Float[Tensor, "*B"], levels: Float[Tensor, " Q"]
) -> Float[Tensor, "*B"]:
    """Returns 2·max(τe, (τ − 1)e) with e = target − quantile, averaged over the levels τ.

    Source: Koenker and Bassett, "Regression quantiles" (1978). The factor 2 makes the median's loss
    the absolute error.
    """
    error = target[..., None] - quantiles
    return 2 * torch.maximum(levels * error, (levels - 1) * error).mean(dim=-1)


class QuantileHead(Head):
    """Quantiles that rise by construction: the median, and positive steps away from it."""

    has_mean = False

    def __init__(self, levels: tuple[float, ...]):
        """Takes the levels to forecast; 0.5 is among them.

        Args:
            levels: rising, strictly between 0 and 1.
        """
        super().__init__()
        self.size = len(levels)
        self.median = levels.index(0.5)
        self.levels: Tensor
        # Not in the state: the levels are settings, and settings live in the config alone.
        self.register_buffer("levels", torch.tensor(levels), persistent=False)

    def initial_bias(self) -> Float[Tensor, " Q"]:
        """Returns the raw numbers of a standard normal in scaled units."""
        normal = torch.tensor([NormalDist().inv_cdf(float(level)) for level in self.levels])
        steps = normal.diff()
        raw = inverse_softplus(steps)
        return torch.cat([raw[: self.median], torch.zeros(1), raw[self.median :]])

    def forward(self, raw: Float[Tensor, "*B Q"]) -> Float[Tensor, "*B Q"]:
        """Returns quantiles in scaled units, rising along the last axis."""
        m = self.median
        center = raw[..., m : m + 1]
        below = center - F.softplus(raw[..., :m]).flip(-1).cumsum(-1).flip(-1)
        above = center + F.softplus(raw[..., m + 1 :]).cumsum(-1)
        return torch.cat([below, center, above], dim=-1)

    def inverse(self, quantiles: Float[Tensor, "*B Q"]) -> Float[Tensor, "*B Q"]:
        """Returns the raw numbers of quantiles in scaled units; equal ones are moved apart a little."""
        steps = inverse_softplus(quantiles.diff(dim=-1).clamp(min=_LEAST_STEP))
        m = self.median
        return torch.cat([steps[..., :m], quantiles[..., m : m + 1], steps[..., m:]], dim=-1)

    def loss(
        self, raw: Float[Tensor, "B T C Q"], scale: Scale, target: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        """Returns the pinball loss of each cell, scaled units."""
        observed = ~target.isnan()
        # Masked before the loss, not after: NaN times 0 is NaN, in the gradient too.
        safe = torch.where(observed, scale.apply(target), 0.0)
        return torch.where(observed, pinball(self(raw), safe, self.levels), 0.0)

    def median_loss(
        self,
        raw: Float[Tensor, "B T C Q"],
        scale: Scale,
        target: Float[Tensor, "B T C"],
        loss: Literal["mae", "huber"],
    ) -> Float[Tensor, "B T C"]:
        """Returns a loss that teaches the median by itself, scaled units.

        The other quantiles have their pinball loss, and learn their distance from the median by it:
        they pull it nowhere.

        Args:
            raw, scale, target: as in `loss`.
            loss: of the median. mae: |e|; huber: e² / 2 up to 1, |e| − 1/2 beyond.
        """
        m = self.median
        observed = ~target.isnan()
        safe = torch.where(observed, scale.apply(target), 0.0)
        error = (safe - raw[..., m]).abs()
        if loss == "huber":
            error = torch.where(error < 1, error.square() / 2, error - 0.5)
        still = torch.cat([raw[..., :m], raw[..., m : m + 1].detach(), raw[..., m + 1 :]], dim=-1)
        others = [number for number in range(self.size) if number != m]
        if others:
            error = error + pinball(self(still)[..., others], safe, self.levels[others])
        return torch.where(observed, error, 0.0)

    def center(self, raw: Float[Tensor, "B T C Q"]) -> Float[Tensor, "B T C"]:
        """Returns the median in scaled units."""
        return raw[..., self.median]

    def quantiles(self, raw: Float[Tensor, "B T C Q"], scale: Scale) -> Float[Tensor, "B T C Q"]:
        """Returns quantiles in data units, rising along the last axis."""
        return scale.invert(self(raw))

    def mean(self, raw: Float[Tensor, "B T C Q"], scale: Scale) -> None:
        """Returns None: a few quantiles do not fix a mean."""
        return None

    def sample(
        self, raw: Float[Tensor, "B T C Q"], scale: Scale, uniform: Float[Tensor, "B T C 2"]
    ) -> Float[Tensor, "B T C"]:
        """Returns draws from the distribution through the quantiles.

        Between two levels and beyond the outer ones the quantile function is a straight line over
        the normal score Φ⁻¹(u): the quantiles of a normal distribution give back that distribution,
        tails included.
        """
        score = torch.special.ndtri(uniform[..., 0]).to(raw.dtype)
        knots = torch.special.ndtri(self.levels.double()).to(raw.dtype)
        quantiles = self(raw)
        right = torch.searchsorted(knots, score).clamp(1, self.size - 1)[..., None]
        low, high = quantiles.gather(-1, right - 1), quantiles.gather(-1, right)
        share = (score[..., None] - knots[right - 1]) / (knots[right] - knots[right - 1])
        return scale.invert(low + share * (high - low))[..., 0]

    def mode(self, raw: Float[Tensor, "B T C Q"], scale: Scale) -> Float[Tensor, "B T C"]:
        """Returns the median."""
        return scale.invert(raw[..., self.median : self.median + 1])[..., 0]


def make_head(config: ModelConfig) -> Head:
    """Returns the head that a config names."""
    levels = config.quantile_levels
    if config.head == "student_t":
        return StudentTHead(levels)
    if config.head == "negative_binomial":
        return NegativeBinomialHead(levels)
    if config.head == "binned":
        return BinnedHead(levels, Vocabulary.of(config), config.label_smoothing)
    return QuantileHead(levels)
