"""What a row shows about its experts: their forecasts, their errors at earlier cutoffs, its recent steps.

Attention over experts reads nothing else. All numbers are in scaled units and of the history before the
cutoff; the untrained weights, the center and the unit of a row follow from them here.

    weight of an expert  ∝ exp(−6 · n/(n + 1) · (error / least error − 1)), n cutoffs being known
    center of a lead     = weighted mean of the forecasts
    unit of a row        = (n · weighted error + 4 · scatter) / (n + 4)

Leads are read at eight positions, evenly apart from the first to the last; what is found there is
interpolated between them, so that a horizon of 720 costs as much as one of eight.

Axes: R row, a channel of a window · E expert · P position · J earlier cutoff · W recent step · H lead ·
S step of the season.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from forecaster.model.channels import last_steps

POSITIONS = 8
"""Of leads that are read, evenly apart from the first to the last."""
RECENT = 128
"""Last steps of the history that are read as they are."""
_SHARPNESS = 6.0
"""An expert whose error is a sixth larger than the least has e⁻¹ of its weight."""
_OF_SQUARES = 8.0
"""Power of the squared error in the weights of a mean; with 4 to 12 sums of eleven tables were as good."""
_SCATTER = 4.0
"""Cutoffs that the distance of neighbouring seasons counts as, in the unit. Error alone gave a WQL of .726
(80 % bands held 70 %), scatter alone .720 (76 %), their mean .718 (76 %). With 1 in its place weights were learned
that are worse on other tables (among other changes): losses of rows that are easy counted more."""
_CHANCE = math.pi / 2 - 1  # variance of the size of a normal variable, over the square of its mean
_LEAST_UNIT = 0.01  # spreads of the context
_MOST_LOGIT = 30.0  # e⁻³⁰ of the largest weight is as good as none
_TINY = 1e-6


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a row shows about its experts, scaled units; what follows from it is computed once."""

    forecasts: Tensor
    """[R, P, E] from the cutoff."""
    missed: Tensor
    """[R, J, P, E] forecast less truth at earlier cutoffs, the earliest first; 0 where not known."""
    known: Tensor
    """[R, J, P] whether the truth there was observed up to the cutoff."""
    available: Tensor
    """[R, E] whether the history suffices for an expert."""
    scatter: Tensor
    """[R] mean distance of values one season apart."""
    variogram: Tensor
    """[R, P] mean distance of recent steps as far apart as cutoff and position, without season and line."""
    width: Tensor
    """[R, P] of the bands at the phase of each position, relative to the mean over a season."""
    recent: Tensor
    """[R, W] last steps of the history without gaps, from the last one."""
    changes: Tensor
    """[R, W] the same less the value one season before."""
    seen: Tensor
    """[R, W] whether a step was observed."""
    zero: Tensor
    """[R] 0 of the data."""
    counts: Tensor
    """[R] whether the channel is of intermittent demand, where the 0 of the data means something."""
    steps: Tensor
    """[R, 5] history, season, second season (0 = none), horizon, steps between earlier cutoffs."""

    def of_one(self, expert: int) -> Evidence:
        """Returns the evidence of one expert of the pool alone."""
        alone = torch.zeros_like(self.available)
        alone[:, expert] = True
        return replace(self, available=alone)

    def tensors(self) -> dict[str, Tensor]:
        """Returns all fields by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def joined(cls, parts: Sequence[Evidence]) -> Evidence:
        """Returns the rows of all parts, one after the other."""
        tensors = [part.tensors() for part in parts]
        return cls(**{name: torch.cat([one[name] for one in tensors]) for name in tensors[0]})

    def at(self, rows: Tensor | slice) -> Evidence:
        """Returns the evidence of some rows, by their numbers or a mask."""
        return Evidence(**{name: part[rows] for name, part in self.tensors().items()})

    @cached_property
    def cutoffs(self) -> Float[Tensor, " R"]:
        """Earlier cutoffs whose truth is known, a partly known one as a fraction."""
        return self.known.sum(dim=(1, 2)) / self.known.shape[2]

    @cached_property
    def trust(self) -> Float[Tensor, " R"]:
        """n cutoffs count as n / (n + 1) of what they say."""
        return self.cutoffs / (self.cutoffs + 1)

    @cached_property
    def error(self) -> Float[Tensor, "R E"]:
        """Mean absolute error at earlier cutoffs; 0 where none is known."""
        cells = self.known.sum(dim=(1, 2)).clamp(min=1)
        return self.missed.abs().sum(dim=(1, 2)) / cells[:, None]

    @cached_property
    def mixed(self) -> Float[Tensor, "R J P"]:
        """What the weighted mean of the experts missed at earlier cutoffs; 0 where not known."""
        return (self.missed * self.weights[:, None, None]).sum(dim=-1)

    def mean_size(self, missed: Float[Tensor, "R J P"]) -> Float[Tensor, " R"]:
        """Returns the mean size of what was missed, 0 where not known; 0 where none is."""
        return missed.abs().sum(dim=(1, 2)) / self.known.sum(dim=(1, 2)).clamp(min=1)

    @cached_property
    def least(self) -> Float[Tensor, "R 1"]:
        """Error of the best expert that is available."""
        return self.error.masked_fill(~self.available, torch.inf).amin(dim=1, keepdim=True)

    @cached_property
    def worse(self) -> Float[Tensor, "R E"]:
        """Error over the least − 1."""
        return (self.error + _TINY) / (self.least + _TINY) - 1

    @cached_property
    def logits(self) -> Float[Tensor, "R E"]:
        """Logarithms of the weights before attention: −6 · trust · worse, −∞ of what is not available."""
        logits = (-_SHARPNESS * self.trust[:, None] * self.worse).clamp(min=-_MOST_LOGIT)
        return logits.masked_fill(~self.available, -torch.inf)

    @cached_property
    def weights(self) -> Float[Tensor, "R E"]:
        """Weights before attention."""
        return self.logits.softmax(dim=1)

    def mean_weights(self, prior: Float[Tensor, " E"]) -> Float[Tensor, "R E"]:
        """Weights of a mean, by squared errors.

        ∝ prior · ((n · squared error + 4 · unit²) / (n + 4))^(−8 n/(n + 1))

        Those of `logits` are for medians: means of counts with them add up to 44 to 74 % of four tables. Without
        the unit an expert that says 0 had all the weight where four cutoffs have zeros alone.
        """
        cells = self.known.sum(dim=(1, 2)).clamp(min=1)
        cutoffs = self.cutoffs[:, None]
        squares = self.missed.square().sum(dim=(1, 2)) / cells[:, None]
        squares = (cutoffs * squares + _SCATTER * self.unit.square()[:, None]) / (cutoffs + _SCATTER)
        logits = prior.log() - _OF_SQUARES * self.trust[:, None] * squares.log()
        return logits.masked_fill(~self.available, -torch.inf).softmax(dim=1)

    @cached_property
    def spread(self) -> Float[Tensor, " R"]:
        """The unit of a row: the weighted error and, as if 4 cutoffs had it, the scatter. 0 of constants."""
        error = (self.weights * self.error).sum(dim=1)
        return (self.cutoffs * error + _SCATTER * self.scatter) / (self.cutoffs + _SCATTER)

    @cached_property
    def unit(self) -> Float[Tensor, " R"]:
        """`spread`, but at least a hundredth of that of the context: a constant is not certain."""
        return self.spread.clamp(min=_LEAST_UNIT)


def positions(horizon: int) -> list[int]:
    """Returns the lead of each position, 0 = the first; those of a short horizon repeat."""
    # Not numpy's: rounding half to even would take one lead of two twice.
    return [int(number * (horizon - 1) / (POSITIONS - 1) + 0.5) for number in range(POSITIONS)]


def interpolation(horizon: int) -> Float[Tensor, "H P"]:
    """Returns the weights by which what is known at the positions is interpolated to all leads."""
    rows = []
    for lead in range(horizon):
        place = lead * (POSITIONS - 1) / max(1, horizon - 1)
        rows.append([max(0.0, 1 - abs(place - number)) for number in range(POSITIONS)])
    return torch.tensor(rows)


def recent_steps(
    filled: Float[Tensor, "R T"], observed: Bool[Tensor, "R T"], season: int
) -> tuple[Float[Tensor, "R W"], Float[Tensor, "R W"], Bool[Tensor, "R W"]]:
    """Returns the last steps, each less that of a season before, and which were observed; 0 before T."""
    missing = max(0, RECENT + season - filled.shape[1])
    padded = torch.nn.functional.pad(filled, (missing, 0))
    seen = torch.nn.functional.pad(observed, (missing, 0))
    recent = padded[:, -RECENT:]
    changes = recent - padded[:, -RECENT - season : -season]
    both = seen[:, -RECENT:] & seen[:, -RECENT - season : -season]
    return recent, torch.where(both, changes, 0.0), seen[:, -RECENT:]


def variogram(
    recent: Float[Tensor, "R W"],
    length: Int[Tensor, " R"],
    season: int,
    leads: Sequence[int],
) -> Float[Tensor, "R P"]:
    """Returns the mean distance of recent steps as many apart as the cutoff and each lead.

    Without their season and line: errors of what returns to a line do not grow with the lead, those of a random
    walk do. Where no pair is so far apart, the distance is that of the lead before; 0 of one step.

    Source: Matheron, "Principles of geostatistics" (1963).
    """
    span = recent.shape[1] // season * season
    length = length.clamp(max=span)
    values = recent[:, recent.shape[1] - span :]
    if span >= 2 * season > 2:
        values = _without_season(values, length, season)
    values = _without_line(values, length)
    found = [torch.zeros_like(recent[:, 0])]
    for lead in leads:
        lag = lead + 1
        if lag >= span:
            found.append(found[-1])
            continue
        pairs = (length - lag).clamp(min=0)
        distance = (values[:, lag:] - values[:, :-lag]).abs()
        total = (distance * last_steps(pairs, span - lag)).sum(dim=1)
        found.append(torch.where(pairs > 0, total / pairs.clamp(min=1), found[-1]))
    return torch.stack(found[1:], dim=1)


def _without_season(
    values: Float[Tensor, "R T"], length: Int[Tensor, " R"], season: int
) -> Float[Tensor, "R T"]:
    """Values of whole seasons less the mean of their phase, where two seasons were seen."""
    seasons = values.unflatten(1, (-1, season))
    is_seen = last_steps(length, values.shape[1]).unflatten(1, (-1, season))
    total = torch.where(is_seen, seasons, 0.0).sum(dim=1, keepdim=True)
    mean = total / is_seen.sum(dim=1, keepdim=True).clamp(min=1)
    is_known = (length >= 2 * season)[:, None, None]
    return (seasons - torch.where(is_known, mean, 0.0)).flatten(1)


def _without_line(values: Float[Tensor, "R T"], length: Int[Tensor, " R"]) -> Float[Tensor, "R T"]:
    """Values less the line of least squares through those of each row."""
    is_seen = last_steps(length, values.shape[1])
    count = length.clamp(min=1)[:, None]
    time = torch.arange(1.0 - values.shape[1], 1.0, device=values.device)
    time = time + (count - 1) / 2  # from the middle of each row
    level = torch.where(is_seen, values, 0.0).sum(dim=1, keepdim=True) / count
    apart = torch.where(is_seen, values - level, 0.0)
    variance = (count * (count * count - 1) / 12).clamp(min=0.5)  # of one step 0
    slope = (time * apart).sum(dim=1, keepdim=True) / variance
    return values - level - slope * time


def phase_widths(
    filled: Float[Tensor, "R T"], length: Int[Tensor, " R"], season: int, memory: int
) -> Float[Tensor, "R S"]:
    """Returns how wide bands are at each phase of the season, that of the next step first; 1 = as the mean.

    With dₚ the mean distance of values one season apart at phase p, over N seasons, and d that of all phases:

        noise = (π/2 − 1) / N                           variance of dₚ/d of a normal distribution, by chance
        shown = max(0, mean (dₚ/d − 1)² − noise)        what the phases differ by more than that
        ratio = 1 + shown / (shown + noise) · (dₚ/d − 1)
        width = max(ratio, √ratio)

    Empirical Bayes; the root, because what was quiet may not stay so.
    """
    count = (min(memory, filled.shape[1]) - season) // season  # pairs of neighbouring seasons
    if season == 1 or count < 1:
        return torch.ones_like(filled[:, :1]).expand(-1, season)
    span = count * season
    lagged = filled[:, -span - season : -season]
    distance = (filled[:, -span:] - lagged).abs()
    # The first season is repeated before the first observation: no pair.
    paired = last_steps((length - season).clamp(0, span), span)
    by_phase = torch.where(paired, distance, 0.0).unflatten(1, (count, season)).sum(dim=1)  # [R, S]
    pairs = paired.unflatten(1, (count, season)).sum(dim=1)
    mean = by_phase / pairs.clamp(min=1)
    all_phases = by_phase.sum(dim=1, keepdim=True) / pairs.sum(dim=1, keepdim=True).clamp(min=1)
    known = pairs > 0
    apart = torch.where(known, (mean + _TINY) / (all_phases + _TINY) - 1, 0.0)
    noise = _CHANCE * season / pairs.sum(dim=1, keepdim=True).clamp(min=1)  # [R, 1]
    shown = apart.square().sum(dim=1, keepdim=True) / known.sum(dim=1, keepdim=True).clamp(min=1)
    shown = (shown - noise).clamp(min=0)
    ratio = 1 + shown / (shown + noise) * apart
    return torch.maximum(ratio, ratio.sqrt())
