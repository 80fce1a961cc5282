"""Heads: raw numbers of the last linear map become distributions.

    quantile    the levels themselves, free in shape; cannot cross
    student_t   heavy tails, symmetric; trained by the negative log-density
    binned      logits over a vocabulary of scaled values, any shape; trained by cross-entropy

Quantiles rise. A cell without a target has no loss and no gradient, whatever it holds.

Axes: B batch · T step · C channel · P raw number · Q quantile level.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from forecaster.config import ModelPlan
from forecaster.model.scaling import Scale
from forecaster.model.shortcuts import shortcut

Raw = Float[Tensor, "B T C P"]
Cells = Float[Tensor, "B T C"]
Quantiles = Float[Tensor, "B T C Q"]
Uniform = Float[Tensor, "B T C 2"]
"""Numbers strictly in (0, 1), float64."""

_NODES = 32
_INITIAL_FREEDOM = 10.0  # of Student's t before training: tails a little heavier than a normal's
_LABEL_SMOOTHING = 0.1  # as Szegedy et al. (2016)


class Head(nn.Module, ABC):
    """A distribution of each cell."""

    size: int
    """P, raw numbers per step."""

    @abstractmethod
    def initial_bias(self) -> Float[Tensor, " P"]:
        """Returns the raw numbers of the context's own mean and spread."""

    @abstractmethod
    def loss(self, raw: Raw, scale: Scale, target: Cells) -> Cells:
        """Returns the loss of each cell; `target` in data units, NaN = no loss there."""

    @abstractmethod
    def quantiles(self, raw: Raw, scale: Scale) -> Quantiles:
        """Returns quantiles in data units, rising along the last axis."""

    @abstractmethod
    def sample(self, raw: Raw, scale: Scale, uniform: Uniform) -> Cells:
        """Returns one draw per cell in data units, a function of `uniform`."""


def make_head(config: ModelPlan) -> Head:
    """Returns the head of a config."""
    if config.head == "student_t":
        return StudentTHead(config.quantile_levels)
    if config.head == "binned":
        return BinnedHead(config.quantile_levels)
    return QuantileHead(config.quantile_levels)


def inverse_softplus(positive: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Returns the number whose softplus this is."""
    return positive + torch.log(-torch.expm1(-positive))


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

    def __init__(self, levels: tuple[float, ...]):
        super().__init__()
        self.size = len(levels)
        self.median = levels.index(0.5)
        # Not in the state: the levels are settings, and settings live in the config only.
        self.levels = nn.Buffer(torch.tensor(levels), persistent=False)

    def initial_bias(self) -> Float[Tensor, " Q"]:
        """Returns the raw numbers of a standard normal in scaled units."""
        normal = torch.tensor([NormalDist().inv_cdf(float(level)) for level in self.levels])
        raw = inverse_softplus(normal.diff())  # the steps between neighbouring quantiles
        return torch.cat([raw[: self.median], torch.zeros(1), raw[self.median :]])

    def forward(self, raw: Float[Tensor, "*B Q"]) -> Float[Tensor, "*B Q"]:
        """Returns quantiles in scaled units, rising along the last axis."""
        m = self.median
        center = raw[..., m : m + 1]
        # Steps below the median are summed from it outwards.
        below = center - F.softplus(raw[..., :m]).flip(-1).cumsum(-1).flip(-1)
        above = center + F.softplus(raw[..., m + 1 :]).cumsum(-1)
        return torch.cat([below, center, above], dim=-1)

    def loss(self, raw: Raw, scale: Scale, target: Cells) -> Cells:
        observed = ~target.isnan()
        # Masked before the loss, not after: NaN times 0 is NaN, in the gradient too.
        safe = torch.where(observed, scale.apply(target), 0.0)
        return torch.where(observed, pinball(self(raw), safe, self.levels), 0.0)

    def median_loss(
        self, raw: Raw, scale: Scale, target: Cells, loss: Literal["mae", "huber"]
    ) -> Cells:
        """Returns a loss of the median by itself plus the pinball loss of the others, scaled units.

        mae: |e|; huber: e² / 2 up to 1, |e| − 1/2 beyond. The pinball loss trains the distance of the
        other quantiles from the median, not the median.
        """
        m = self.median
        observed = ~target.isnan()
        safe = torch.where(observed, scale.apply(target), 0.0)
        error = (safe - raw[..., m]).abs()
        if loss == "huber":
            error = torch.where(error < 1, error.square() / 2, error - 0.5)
        # All quantiles are counted from the median: detached, their loss does not move it.
        below, median, above = raw.split([m, 1, self.size - m - 1], dim=-1)
        fixed = torch.cat([below, median.detach(), above], dim=-1)
        outer = [number for number in range(self.size) if number != m]
        if outer:
            error = error + pinball(self(fixed)[..., outer], safe, self.levels[outer])
        return torch.where(observed, error, 0.0)

    def quantiles(self, raw: Raw, scale: Scale) -> Quantiles:
        return scale.invert(self(raw))

    def sample(self, raw: Raw, scale: Scale, uniform: Uniform) -> Cells:
        """Returns draws from the distribution through the quantiles.

        Between two levels and beyond the outer ones the quantile function is a straight line over
        the normal score Φ⁻¹(u): the quantiles of a normal distribution give back that distribution,
        tails included.
        """
        score = torch.special.ndtri(uniform[..., 0]).to(raw.dtype)
        knots = torch.special.ndtri(self.levels.double()).to(raw.dtype)  # [Q]
        quantiles = self(raw)
        # The two levels around a score, or the two nearest ones; a fraction below 0 or above 1 is beyond.
        upper = torch.searchsorted(knots, score).clamp(1, self.size - 1)[..., None]  # [B, T, C, 1]
        low, high = quantiles.gather(-1, upper - 1), quantiles.gather(-1, upper)
        fraction = (score[..., None] - knots[upper - 1]) / (knots[upper] - knots[upper - 1])
        return scale.invert((low + fraction * (high - low))[..., 0])


class StudentTHead(Head):
    """Location, spread and degrees of freedom, which stay above 2: there is a variance."""

    size = 3

    def __init__(self, levels: tuple[float, ...]):
        super().__init__()
        self.coefficients = nn.Buffer(_quantile_coefficients(levels).clone(), persistent=False)

    def initial_bias(self) -> Float[Tensor, " P"]:
        """Returns the raw numbers of mean 0 and variance 1 in scaled units."""
        # The variance is σ²·ν/(ν − 2).
        spread = math.sqrt((_INITIAL_FREEDOM - 2) / _INITIAL_FREEDOM)
        raw = inverse_softplus(torch.tensor([spread, _INITIAL_FREEDOM - 2]))
        return torch.cat([torch.zeros(1), raw])

    def loss(self, raw: Raw, scale: Scale, target: Cells) -> Cells:
        # −log p = (ν + 1)/2·log(1 + z²/ν) − log Γ((ν + 1)/2) + log Γ(ν/2) + log(πν)/2 + log σ, z = (y − μ)/σ
        observed = ~target.isnan()
        loc, spread, freedom = _parameters(raw.double())  # [B, T, C] each: μ, σ, ν
        distance = (torch.where(observed, scale.apply(target), 0.0) - loc) / spread
        constant = torch.lgamma((freedom + 1) / 2) - torch.lgamma(freedom / 2)
        constant = constant - 0.5 * torch.log(math.pi * freedom) - torch.log(spread)
        negative_log = (freedom + 1) / 2 * torch.log1p(distance.square() / freedom) - constant
        return torch.where(observed, negative_log.to(raw.dtype), 0.0)

    def quantiles(self, raw: Raw, scale: Scale) -> Quantiles:
        loc, spread, freedom = _parameters(raw)
        standard = _chebyshev_sum(4 / freedom - 1, self.coefficients.to(raw.dtype))  # [B, T, C, Q]
        return scale.invert(loc[..., None] + spread[..., None] * standard)

    def sample(self, raw: Raw, scale: Scale, uniform: Uniform) -> Cells:
        loc, spread, freedom = _parameters(raw.double())
        # The polar method, which is exact (Bailey, 1994): √(ν·(u₁^(−2/ν) − 1))·cos(2π·u₂).
        radius = (freedom * torch.expm1(-2 / freedom * uniform[..., 0].log())).sqrt()
        draw = loc + spread * radius * torch.cos(2 * math.pi * uniform[..., 1])
        return scale.invert(draw)


def _parameters(raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Location and spread in scaled units, and degrees of freedom above 2."""
    loc, spread, freedom = raw.unbind(dim=-1)
    smallest = torch.finfo(torch.float32).eps  # softplus of −200 is 0
    return loc, F.softplus(spread) + smallest, 2 + F.softplus(freedom)


@functools.cache
def _quantile_coefficients(levels: tuple[float, ...]) -> Float[Tensor, "P Q"]:
    """Chebyshev coefficients of standard t quantiles as functions of 4/freedom − 1, on [−1, 1].

    Over the inverse of the degrees of freedom, from the normal distribution to two degrees, quantiles
    are so smooth that 32 exact values determine them to 1e-9: torch and ONNX have no t quantile.
    """
    from scipy.special import stdtrit

    angle = np.pi * (np.arange(_NODES) + 0.5) / _NODES  # nodes cos(angle) of T₃₂
    exact = stdtrit(4 / (np.cos(angle) + 1)[:, None], np.array(levels))
    coefficients = 2 / _NODES * np.cos(np.arange(_NODES)[:, None] * angle) @ exact
    coefficients[0] /= 2
    # On the processor: kept for all networks, also where the first is on another device.
    return torch.from_numpy(coefficients)


def _chebyshev_sum(x: Tensor, coefficients: Tensor) -> Tensor:
    """Clenshaw's sum of coefficients[k]·T_k(x): [B, T, C] and [P, Q] to [B, T, C, Q]."""
    # From the highest k on: bₖ = cₖ + 2x·bₖ₊₁ − bₖ₊₂; the sum is c₀ + x·b₁ − b₂.
    x = x[..., None]
    above = highest = torch.zeros_like(x * coefficients[0])
    for coefficient in coefficients[1:].flip(0):
        above, highest = 2 * x * above - highest + coefficient, above
    return x * above - highest + coefficients[0]


@dataclass(frozen=True)
class Vocabulary:
    """Equal bins of scaled values; one more token, `bins` itself, stands for a missing value."""

    bins: int = 256
    limit: float = 6.0
    """The bins divide [−limit, limit]; values beyond belong to the outermost bins."""

    @property
    def width(self) -> float:
        """Width of a bin, scaled units."""
        return 2 * self.limit / self.bins

    def tokens(self, values: Float[Tensor, "*B"]) -> Int[Tensor, "*B"]:
        """Returns the bin of each scaled value; `bins` where it is NaN."""
        missing = values.isnan()
        # NaN is no integer: masked before the cast.
        position = (torch.where(missing, 0.0, values) + self.limit) / self.width  # in bins
        token = position.floor().clamp(0, self.bins - 1).long()
        return torch.where(missing, self.bins, token)

    def values(self, tokens: Int[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Returns the middle of each bin, scaled units."""
        return (tokens + 0.5) * self.width - self.limit


class BinnedHead(Head):
    """Logits over the bins of a vocabulary; uniform within a bin."""

    def __init__(
        self,
        levels: tuple[float, ...],
        vocabulary: Vocabulary | None = None,
        smoothing: float = _LABEL_SMOOTHING,
    ):
        """`smoothing`: fraction of a target's weight that is spread over all bins."""
        super().__init__()
        self.vocabulary, self.smoothing = vocabulary or Vocabulary(), smoothing
        self.size = self.vocabulary.bins
        self.levels = nn.Buffer(torch.tensor(levels), persistent=False)

    def initial_bias(self) -> Float[Tensor, " P"]:
        """Returns the log-density of a standard normal in scaled units."""
        return -0.5 * self._middles().square()

    def loss(self, raw: Raw, scale: Scale, target: Cells) -> Cells:
        """Returns the cross-entropy of each cell, labels smoothed.

        Source: Szegedy et al., "Rethinking the inception architecture" (2016), section 7.
        """
        observed = ~target.isnan()
        token = torch.where(observed, self.vocabulary.tokens(scale.apply(target)), 0)
        entropy = F.cross_entropy(
            raw.flatten(0, 2), token.flatten(), reduction="none", label_smoothing=self.smoothing
        )
        return torch.where(observed, entropy.unflatten(0, target.shape), 0.0)

    def quantiles(self, raw: Raw, scale: Scale) -> Quantiles:
        levels = self.levels.expand(*raw.shape[:-1], -1)  # [B, T, C, Q]
        return scale.invert(self._at(raw, levels))

    def sample(self, raw: Raw, scale: Scale, uniform: Uniform) -> Cells:
        level = uniform[..., :1].to(raw.dtype)  # [B, T, C, 1]
        return scale.invert(self._at(raw, level)[..., 0])

    def _at(self, raw: Tensor, level: Tensor) -> Tensor:
        """Quantiles [B, T, C, N] at levels [B, T, C, N], scaled units."""
        below = raw.softmax(-1).cumsum(-1)  # [B, T, C, P] probability up to each bin's upper edge
        # A sum of 1 − rounding lies below a level of almost 1.
        bin_ = _first_at_least(below, level).clamp(max=self.size - 1)
        high = below.gather(-1, bin_)
        low = below.gather(-1, (bin_ - 1).clamp(min=0))
        low = torch.where(bin_ > 0, low, 0.0)
        # Uniform within the bin: a straight line between its edges.
        fraction = ((level - low) / (high - low)).clamp(0, 1)
        return (bin_ + fraction) * self.vocabulary.width - self.vocabulary.limit

    def _middles(self) -> Tensor:
        return self.vocabulary.values(torch.arange(self.size, device=self.levels.device))


def _count_below(rising: Tensor, level: Tensor) -> Tensor:
    """How many numbers of the last axis are below each level; ONNX has no binary search."""
    return torch.stack([(rising < one[..., None]).sum(-1) for one in level.unbind(-1)], dim=-1)


@shortcut(_count_below)
def _first_at_least(rising: Tensor, level: Tensor) -> Tensor:
    """Returns where each level belongs among rising numbers, along the last axis."""
    return torch.searchsorted(rising, level.contiguous())
