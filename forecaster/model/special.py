"""Exact quantiles of the parametric heads: the incomplete beta function and what follows from it.

What comes in and goes out: float64 tensors of one shape. Promised: 1e-10 of the exact value; nothing
here is needed for a gradient.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

_TINY = 1e-300
_TERMS = 20_000  # the fraction needs some √max(a, b) of them


def incomplete_beta(
    a: Float[Tensor, "*B"], b: Float[Tensor, "*B"], x: Float[Tensor, "*B"]
) -> Float[Tensor, "*B"]:
    """Returns the regularised incomplete beta function I_x(a, b).

    Source: the continued fraction DLMF 8.17.22, by the modified Lentz algorithm (Thompson and
    Barnett, 1986); above (a + 1)/(a + b + 2) by the symmetry I_x(a, b) = 1 − I_{1−x}(b, a).

    Args:
        a, b: positive.
        x: in [0, 1].
    """
    axes = x.shape
    a, b, x = a.flatten(), b.flatten(), x.flatten()
    mirrored = x > (a + 1) / (a + b + 2)
    first, second = torch.where(mirrored, b, a), torch.where(mirrored, a, b)
    at = torch.where(mirrored, 1 - x, x)
    log_beta = torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)
    front = torch.exp(first * torch.log(at) + second * torch.log1p(-at) - log_beta) / first
    value = front * _fraction(first, second, at)
    result: Tensor = torch.where(mirrored, 1 - value, value).unflatten(0, axes)
    return result


def _fraction(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """The continued fraction 1/(1 + d1/(1 + d2/(1 + …))) of DLMF 8.17.22."""
    result = torch.full_like(x, torch.nan)
    left = (a + b + x).isfinite().nonzero()[:, 0]
    a, b, x = a[left], b[left], x[left]
    upper = torch.ones_like(x)
    lower = 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value = lower
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = torch.ones_like(x)
        for term in (even, odd):
            lower = 1 / _away_from_zero(1 + term * lower)
            upper = _away_from_zero(1 + term / upper)
            change = change * lower * upper
        value = value * change
        if m % 8 == 0:
            result[left] = value
            moves = (change - 1).abs() > 1e-14
            if not bool(moves.any()):
                break
            left = left[moves]
            a, b, x, upper, lower, value = (p[moves] for p in (a, b, x, upper, lower, value))
    return result


def _away_from_zero(number: Tensor) -> Tensor:
    return torch.where(number.abs() < _TINY, _TINY, number)


def student_t_quantile(level: Float[Tensor, "*B"], freedom: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Returns quantiles of the Student-t distribution: bisection of its exact cdf, then Newton steps.

    Args:
        level: strictly between 0 and 1.
        freedom: degrees of freedom, at least 1.
    """
    tail = torch.minimum(level, 1 - level)
    low, high = torch.zeros_like(tail), 1 / tail
    for _ in range(24):
        middle = (low + high) / 2
        out = _beyond(middle, freedom) > tail
        low, high = torch.where(out, middle, low), torch.where(out, high, middle)
    at = (low + high) / 2
    half = freedom / 2
    constant = torch.lgamma(half + 0.5) - torch.lgamma(half) - 0.5 * torch.log(math.pi * freedom)
    for _ in range(3):
        density = torch.exp(constant - (half + 0.5) * torch.log1p(at.square() / freedom))
        at = at + (_beyond(at, freedom) - tail) / density
    return torch.sign(level - 0.5) * at


def _beyond(at: Tensor, freedom: Tensor) -> Tensor:
    """P(T > t) = I_{ν/(ν + t²)}(ν/2, ½) / 2 for t ≥ 0."""
    share = freedom / (freedom + at.square())
    return incomplete_beta(freedom / 2, torch.full_like(at, 0.5), share) / 2


def log_count_mass(
    count: Float[Tensor, "*B"], mean: Float[Tensor, "*B"], shape: Float[Tensor, "*B"]
) -> Float[Tensor, "*B"]:
    """Returns the log-probability of counts under a negative binomial distribution.

    Γ(k + r) / (Γ(r) k!) · (r/(r + μ))^r · (μ/(r + μ))^k with mean μ and shape r.

    Args:
        count: k, whole and not negative.
        mean: positive.
        shape: r, positive; the variance is μ + μ²/r.
    """
    ways = torch.lgamma(count + shape) - torch.lgamma(shape) - torch.lgamma(count + 1)
    return ways - shape * torch.log1p(mean / shape) - count * torch.log1p(shape / mean)


def count_quantile(
    level: Float[Tensor, "*B"], mean: Float[Tensor, "*B"], shape: Float[Tensor, "*B"]
) -> Float[Tensor, "*B"]:
    """Returns the smallest count k with P(X ≤ k) ≥ level under a negative binomial distribution.

    P(X ≤ k) = I_p(r, k + 1) with p = r/(r + μ). Newton steps, the mass being the slope, inside a
    bracket that is halved when they stall; the first guess is that of a gamma distribution of the
    same mean and variance (Wilson and Hilferty, 1931).

    Args:
        level: strictly between 0 and 1.
        mean: positive; where it is not finite the answer is NaN.
        shape: r, positive.
    """
    axes = mean.shape
    level, mean, shape = level.flatten(), mean.flatten(), shape.flatten()
    like_gamma = 9 / (1 / mean + 1 / shape)  # nine times mean²/variance
    guess = mean * (1 - 1 / like_gamma + torch.special.ndtri(level) / like_gamma.sqrt()) ** 3
    result = torch.full_like(mean, torch.nan)
    left = guess.isfinite().nonzero()[:, 0]
    low, high = torch.full_like(mean, -1.0), torch.full_like(mean, torch.inf)
    state = [part[left] for part in (guess.round().clamp(min=0), low, high, level, mean, shape)]
    turn = 0
    while len(left):
        probe, low, high, level, mean, shape = state
        reached = incomplete_beta(shape, probe + 1, shape / (shape + mean))
        mass = log_count_mass(probe, mean, shape).exp()
        below = reached < level
        low, high = torch.where(below, probe, low), torch.where(below, high, probe)
        found = (high - low <= 1) | (~below & (reached - mass < level))
        result[left[found]] = high[found]
        step = (level - reached) / mass
        wanted = probe + torch.where(below, step.ceil(), step.floor())
        halved = torch.where(high.isinf(), 2 * low + 2, ((low + high) / 2).floor())
        stalls = (turn % 3 == 2) | ~wanted.isfinite()
        probe = torch.minimum(torch.maximum(torch.where(stalls, halved, wanted), low + 1), high - 1)
        left, turn = left[~found], turn + 1
        state = [part[~found] for part in (probe, low, high, level, mean, shape)]
    counts: Tensor = result.unflatten(0, axes)
    return counts
