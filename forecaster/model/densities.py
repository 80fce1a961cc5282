"""Heads with a density of known shape: Student-t for heavy tails, negative binomial for counts.

What comes in and goes out: as said in head.py. Both are trained by the negative log-density and give
exact quantiles and means.

Axes: B batch · T step · C channel · P raw number · Q quantile level.
"""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from forecaster.model.head import Head, inverse_softplus
from forecaster.model.scaling import Scale
from forecaster.model.special import count_quantile, log_count_mass, student_t_quantile

_NODES = 32
_FREEDOM = 10.0  # degrees of freedom to start from


class StudentTHead(Head):
    """Location, spread and degrees of freedom, which stay above 2: there is a variance."""

    size = 3

    def __init__(self, levels: tuple[float, ...]):
        """Takes the levels to forecast.

        Args:
            levels: rising, strictly between 0 and 1.
        """
        super().__init__()
        self.waves: Tensor
        self.register_buffer("waves", _quantile_waves(levels).clone(), persistent=False)

    def initial_bias(self) -> Float[Tensor, " P"]:
        """Returns the raw numbers of mean 0 and variance 1 in scaled units."""
        spread = math.sqrt((_FREEDOM - 2) / _FREEDOM)
        raw = inverse_softplus(torch.tensor([spread, _FREEDOM - 2]))
        return torch.cat([torch.zeros(1), raw])

    def loss(
        self, raw: Float[Tensor, "B T C P"], scale: Scale, target: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        """Returns the negative log-density of each cell in scaled units."""
        observed = ~target.isnan()
        loc, spread, freedom = _parameters(raw.double())
        distance = (torch.where(observed, scale.apply(target), 0.0) - loc) / spread
        constant = torch.lgamma((freedom + 1) / 2) - torch.lgamma(freedom / 2)
        constant = constant - 0.5 * torch.log(math.pi * freedom) - torch.log(spread)
        surprise = (freedom + 1) / 2 * torch.log1p(distance.square() / freedom) - constant
        return torch.where(observed, surprise.to(raw.dtype), 0.0)

    def quantiles(self, raw: Float[Tensor, "B T C P"], scale: Scale) -> Float[Tensor, "B T C Q"]:
        """Returns quantiles in data units, rising along the last axis."""
        loc, spread, freedom = _parameters(raw)
        standard = _sum_of_waves(4 / freedom - 1, self.waves.to(raw.dtype))
        return scale.invert(loc[..., None] + spread[..., None] * standard)

    def mean(self, raw: Float[Tensor, "B T C P"], scale: Scale) -> Float[Tensor, "B T C"]:
        """Returns the mean in data units, which is the median too."""
        return scale.invert(raw[..., :1])[..., 0]

    def sample(
        self, raw: Float[Tensor, "B T C P"], scale: Scale, uniform: Float[Tensor, "B T C 2"]
    ) -> Float[Tensor, "B T C"]:
        """Returns draws, by the polar method, which is exact (Bailey, 1994)."""
        loc, spread, freedom = _parameters(raw.double())
        radius = (freedom * torch.expm1(-2 / freedom * uniform[..., 0].log())).sqrt()
        draw = loc + spread * radius * torch.cos(2 * math.pi * uniform[..., 1])
        return scale.invert(draw[..., None].to(raw.dtype))[..., 0]

    def mode(self, raw: Float[Tensor, "B T C P"], scale: Scale) -> Float[Tensor, "B T C"]:
        """Returns the location."""
        return self.mean(raw, scale)


class NegativeBinomialHead(Head):
    """Mean and dispersion of counts; it speaks data units, for counts cannot be scaled."""

    size = 2

    def __init__(self, levels: tuple[float, ...]):
        """Takes the levels to forecast.

        Args:
            levels: rising, strictly between 0 and 1.
        """
        super().__init__()
        self.levels: Tensor
        levels_64 = torch.tensor(levels, dtype=torch.float64)
        self.register_buffer("levels", levels_64, persistent=False)

    def initial_bias(self) -> Float[Tensor, " P"]:
        """Returns the raw numbers of the context's mean, and of its variance beside Poisson's."""
        return torch.cat([torch.zeros(1), inverse_softplus(torch.ones(1))])

    def loss(
        self, raw: Float[Tensor, "B T C P"], scale: Scale, target: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        """Returns the negative log-probability of each count."""
        observed = ~target.isnan()
        count = torch.where(observed, target, 0.0).double()
        surprise = -log_count_mass(count, *_mean_and_shape(raw, scale))
        return torch.where(observed, surprise.to(raw.dtype), 0.0)

    def quantiles(self, raw: Float[Tensor, "B T C P"], scale: Scale) -> Float[Tensor, "B T C Q"]:
        """Returns quantiles, whole numbers, rising along the last axis."""
        parts = [part[..., None] for part in _mean_and_shape(raw, scale)]
        level, mean, shape = torch.broadcast_tensors(self.levels, *parts)
        return count_quantile(level, mean, shape).to(raw.dtype)

    def mean(self, raw: Float[Tensor, "B T C P"], scale: Scale) -> Float[Tensor, "B T C"]:
        """Returns the mean count."""
        return _mean_and_shape(raw, scale)[0].to(raw.dtype)

    def sample(
        self, raw: Float[Tensor, "B T C P"], scale: Scale, uniform: Float[Tensor, "B T C 2"]
    ) -> Float[Tensor, "B T C"]:
        """Returns drawn counts: the quantile at the first uniform number."""
        return count_quantile(uniform[..., 0], *_mean_and_shape(raw, scale)).to(raw.dtype)

    def mode(self, raw: Float[Tensor, "B T C P"], scale: Scale) -> Float[Tensor, "B T C"]:
        """Returns the likeliest count."""
        mean, shape = _mean_and_shape(raw, scale)
        return (mean * (shape - 1) / shape).floor().clamp(min=0).to(raw.dtype)


def _parameters(raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Location and spread in scaled units, and degrees of freedom above 2."""
    smallest = torch.finfo(torch.float32).eps
    return raw[..., 0], F.softplus(raw[..., 1]) + smallest, 2 + F.softplus(raw[..., 2])


def _mean_and_shape(raw: Tensor, scale: Scale) -> tuple[Tensor, Tensor]:
    """Mean μ and shape r, float64; the variance is μ + μ²/r.

    Raw numbers (0, softplus⁻¹(1)) give the context's mean, and its variance on top of Poisson's. Far
    above zero the mean moves by one context spread with each unit of the first.
    """
    raw, spread = raw.double(), scale.scale.double()[:, None]
    level = (scale.loc.double()[:, None] / spread).clamp(min=0.1)
    mean = spread * F.softplus(raw[..., 0] + inverse_softplus(level))
    shape = level.square() / F.softplus(raw[..., 1])
    return mean.clamp(min=1e-9), shape.clamp(1e-3, 1e6)


@functools.cache
def _quantile_waves(levels: tuple[float, ...]) -> Float[Tensor, "P Q"]:
    """Chebyshev coefficients of the standard quantiles as functions of 4/freedom − 1, on [−1, 1].

    Over the inverse of the degrees of freedom, normal distribution to two degrees, they are so smooth
    that 32 exact values fix them to 1e-9.
    """
    # Kept for all networks, also where the first is on another device.
    angle = math.pi * (torch.arange(_NODES, dtype=torch.float64, device="cpu") + 0.5) / _NODES
    wanted = torch.tensor(levels, dtype=torch.float64, device="cpu")
    freedom, level = torch.broadcast_tensors(4 / (angle.cos() + 1)[:, None], wanted)
    exact = student_t_quantile(level, freedom)
    order = torch.arange(_NODES, dtype=torch.float64, device="cpu")[:, None]
    waves = 2 / _NODES * (order * angle).cos() @ exact
    waves[0] /= 2
    return waves


def _sum_of_waves(x: Tensor, waves: Tensor) -> Tensor:
    """Clenshaw's sum of waves[k]·T_k(x): [B, T, C] and [P, Q] to [B, T, C, Q]."""
    x = x[..., None]
    above = highest = torch.zeros_like(x * waves[0])
    for wave in waves[1:].flip(0):
        above, highest = 2 * x * above - highest + wave, above
    return x * above - highest + waves[0]
