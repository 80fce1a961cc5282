"""Zeros of intermittent demand: the chance of one at each lead, by the zeros at its phase of the season.

    z       share of zeros, a step counting e^(−age / memory), memory 100 steps or ten seasons
    zₚ      the same at phase p, drawn to z as far as chance makes phases differ (`_shrunk`)
    chance  zₚ · min(1, share of zeros in the last two seasons / z)
    closed  a phase without a demand, though by the zeros of all steps that is one chance in ten thousand: 1

Closed phases count in none of these shares.
The second factor lets a demand that came back have its bands at once: without it covid deaths lost 6 to 100 % of
their loss of quantiles, and intermittent tables gained as much as with it, 1 to 4 %.

Axes: B batch · T history · C channel · H lead · N season · S step of the season.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

_MEMORY = 100  # steps, or ten seasons: the mean age of what counts
_LATE = 16  # steps, or two seasons
_CHANCE = math.log(1e-4)
_TINY = 1e-6
_WHOLE = 1e-3  # of a unit, off a whole multiple


def chance_of_zero(
    history: Float[Tensor, "B T C"],
    observed: Bool[Tensor, "B T C"],
    seasons: Sequence[int],
    horizon: int,
) -> Float[Tensor, "B H C"]:
    """Returns the chance of a 0 at each lead.

    Args:
        history: data units.
        observed: whether a step is known.
        seasons: steps of the season and, if any, of a longer one, whose closed phases count too.
        horizon: H.
    """
    season, steps = seasons[0], history.shape[1]
    seen, closed = open_steps(history, observed, seasons, horizon)
    zero = (history == 0) * seen
    lead = torch.arange(horizon, device=history.device)
    memory = max(_MEMORY, 10 * season)
    weight = seen * torch.arange(1 - steps, 1, device=history.device).div(memory).exp()[:, None]
    share = _mean(zero, weight)  # [B, 1, C]
    zeros, count = (_by_phase(part, season).sum(dim=1) for part in (zero * weight, weight))
    chance = _shrunk(zeros, count, share)  # [B, S, C]
    last = slice(-max(2 * season, _LATE), None)
    late = _mean(zero[:, last], seen[:, last])
    chance = chance * (late / share.clamp(min=_TINY)).clamp(max=1.0)
    return torch.where(closed, 1.0, chance[:, lead % season])


def open_steps(
    history: Float[Tensor, "B T C"],
    observed: Bool[Tensor, "B T C"],
    seasons: Sequence[int],
    horizon: int,
) -> tuple[Float[Tensor, "B T C"], Bool[Tensor, "B H C"]]:
    """Returns 1 at observed steps of phases that are not closed, and which leads are closed."""
    steps = history.shape[1]
    zero = (observed & (history == 0)).to(history.dtype)
    seen = observed.to(history.dtype)
    lead = torch.arange(horizon, device=history.device)
    closed = torch.zeros_like(history[:, :1], dtype=torch.bool).expand(-1, horizon, -1)
    for period in seasons:
        if period > 1:
            phases = _closed(zero, seen, period)  # [B, S, C]
            closed = closed | phases[:, lead % period]
            phase = torch.arange(-steps, 0, device=history.device) % period
            seen = seen * ~phases[:, phase]
    return seen, closed


def unit_of_demand(
    history: Float[Tensor, "B T C"], observed: Bool[Tensor, "B T C"]
) -> Float[Tensor, "B 1 C"]:
    """Returns the least demand, where every other is a whole multiple of it; else 0."""
    positive = observed & (history > 0)
    least = torch.where(positive, history, torch.inf).amin(dim=1, keepdim=True)
    multiple = torch.where(positive, history, 0.0) / least
    apart = (multiple - multiple.round()).abs().amax(dim=1, keepdim=True)
    return torch.where(least.isfinite() & (apart < _WHOLE), least, 0.0)


def _shrunk(
    zeros: Float[Tensor, "B S C"], count: Float[Tensor, "B S C"], share: Float[Tensor, "B 1 C"]
) -> Float[Tensor, "B S C"]:
    """Shares by phase, drawn to that of all phases as far as chance makes them differ.

    chance = share (1 − share) mean(1/nₚ)
    weight = max(0, mean (zₚ − share)² − chance) / mean (zₚ − share)²
    """
    known = count > 0
    some = known.sum(dim=1, keepdim=True).clamp(min=1)
    apart = torch.where(known, zeros / count.clamp(min=_TINY) - share, 0.0)
    by_chance = torch.where(known, 1 / count.clamp(min=_TINY), 0.0).sum(dim=1, keepdim=True) / some
    by_chance = by_chance * share * (1 - share)
    shown = apart.square().sum(dim=1, keepdim=True) / some
    return share + apart * ((shown - by_chance) / shown.clamp(min=_TINY)).clamp(min=0.0)


def _closed(
    zero: Float[Tensor, "B T C"], seen: Float[Tensor, "B T C"], period: int
) -> Bool[Tensor, "B S C"]:
    """Whether a phase has zeros alone: of n steps, whose chance is (share of zeros of all steps)ⁿ."""
    zeros, count = (_by_phase(part, period).sum(dim=1) for part in (zero, seen))
    share = _mean(zero, seen)
    return (zeros == count) & (count * share.clamp(min=_TINY).log() < _CHANCE)


def _by_phase(steps: Float[Tensor, "B T C"], period: int) -> Float[Tensor, "B N S C"]:
    """Steps by season, the first phase that of the next step; 0 before the history."""
    before = -steps.shape[1] % period
    return F.pad(steps, (0, 0, before, 0)).unflatten(1, (-1, period))


def _mean(values: Float[Tensor, "B T C"], weight: Float[Tensor, "B T C"]) -> Float[Tensor, "B 1 C"]:
    total = weight.sum(dim=1, keepdim=True)
    return (values * weight).sum(dim=1, keepdim=True) / total.clamp(min=_TINY)
