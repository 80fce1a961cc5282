"""The one hand-over from data to model: `Inputs` for the network, `Batch` for the learner.

The network receives `Inputs` and therefore cannot see a target.

Numbers in data units are float64, phases and elapsed times float32.

Axes: B batch of windows · L context · T history · H horizon · C channel · P past covariate ·
K known covariate, or driver · S static covariate · N calendar cycle · D step of a driver. Cells that are not
observed hold NaN (numbers) or code 0 (categories) and must be masked, never read.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Inputs:
    """Everything a forecast may depend on, and nothing after the cutoff but what is known."""

    context: Tensor
    """[B, L, C] targets up to and including the cutoff, data units; NaN = missing."""
    observed: Tensor
    """[B, L, C] True where `context` is real."""
    past: Tensor
    """[B, L, P] covariates seen only up to the cutoff, data units; NaN = missing."""
    past_observed: Tensor
    """[B, L, P] True where `past` is real."""
    known: Tensor
    """[B, L + H, K] covariates known in advance, data units; NaN = missing."""
    known_observed: Tensor
    """[B, L + H, K] True where `known` is real."""
    static: Tensor
    """[B, S] numbers that belong to the series; NaN = missing."""
    static_category: Tensor
    """[B, static category] int64 codes, 0 = unknown."""
    past_category: Tensor
    """[B, L, past category] int64 codes, 0 = unknown."""
    known_category: Tensor
    """[B, L + H, known category] int64 codes, 0 = unknown."""
    phase: Tensor
    """[B, L + H, N] position in [0, 1) of each calendar cycle; NaN = empty slot."""
    elapsed: Tensor
    """[B, L + H] time since the cutoff in steps of the frequency: ≤ 0 past, > 0 future."""
    channel: Tensor
    """[B, C] int64 code of each channel, 0 = one the model has not met."""
    history: Tensor
    """[B, T, C] targets up to and including the cutoff, data units, as far back as experts read; NaN =
    missing."""
    history_observed: Tensor
    """[B, T, C] True where `history` is real."""
    drivers: Tensor
    """[B, D, K] columns that the expert `arx` reads, up to and including the cutoff, data units; NaN =
    missing."""
    effect: Tensor
    """[B, H, C] effect of covariates, which is put back on the forecast: all targets here are what it leaves
    of the data. H = 0: there is none."""
    effect_variance: Tensor
    """[B, H, C] of an effect that differs from one time to the next, its unit squared. H = 0: none does."""
    multiplies: Tensor
    """[B, C] whether effects are logarithms of factors; else they are summands in data units. C = 0: there are
    none."""
    calendar: Tensor
    """[B, T + H, C] effect of the calendar from the first step of `history` on. T + H = 0: there is none."""
    error_ratios: Tensor
    """[B, C, 3] errors of new rows over those of rows that effects have seen: those of covariates, and all; errors
    of what the calendar leaves over those of the targets, in the table. C = 0: there are none."""

    def to(self, device: torch.device | str) -> Inputs:
        return Inputs(*(getattr(self, field.name).to(device) for field in fields(self)))

    def repeated(self, count: int) -> Inputs:
        """Returns all windows so many times, one after the other."""
        return Inputs(*(torch.cat([getattr(self, field.name)] * count) for field in fields(self)))

    @property
    def horizon(self) -> int:
        """Steps that are forecast."""
        return self.elapsed.shape[1] - self.context.shape[1]

    def without_calendar(self) -> Inputs:
        """Returns windows whose targets are what effects of the calendar leave of them."""
        before = self.calendar.shape[1] - self.horizon
        factor, shift = parts_of_effect(self.calendar, self.multiplies)
        context, history = (
            targets / factor[:, before - steps : before] - shift[:, before - steps : before]
            for targets, steps in ((part, part.shape[1]) for part in (self.context, self.history))
        )
        return replace(self, context=context, history=history)

    def without(self, hidden: Tensor) -> Inputs:
        """Returns windows without targets and past covariates at hidden steps of the context, bool [B, L]."""
        steps = (part.shape[1] for part in (self.context, self.history, self.drivers))
        # From the cutoff back: what lies before the context stays.
        cells, earlier, driven = (F.pad(hidden, (n - hidden.shape[1], 0))[..., None] for n in steps)
        return replace(
            self,
            context=self.context.masked_fill(cells, torch.nan),
            observed=self.observed & ~cells,
            history=self.history.masked_fill(earlier, torch.nan),
            history_observed=self.history_observed & ~earlier,
            drivers=self.drivers.masked_fill(driven, torch.nan),
            past=self.past.masked_fill(cells, torch.nan),
            past_observed=self.past_observed & ~cells,
            past_category=self.past_category.masked_fill(cells, 0),
        )


def parts_of_effect(effect: Tensor, multiplies: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the factor and the summand [B, E, *C] of an effect [B, E, *C], by whether it multiplies [B, *C]."""
    factor = torch.where(multiplies[:, None], effect, 0.0).exp()
    shift = torch.where(multiplies[:, None], 0.0, effect)
    return factor, shift


def no_effects(windows: int, channels: int) -> dict[str, Tensor]:
    """Returns the fields of `Inputs` without effects, by name."""
    return {
        "effect": torch.zeros(windows, 0, channels, dtype=torch.float64),
        "effect_variance": torch.zeros(windows, 0, channels, dtype=torch.float64),
        "multiplies": torch.zeros(windows, 0, dtype=torch.bool),
        "calendar": torch.zeros(windows, 0, channels, dtype=torch.float64),
        "error_ratios": torch.zeros(windows, 0, 3),
    }


@dataclass(frozen=True)
class Batch:
    """Windows with their truth; only the learner and the evaluation ever hold one."""

    inputs: Inputs
    target: Tensor
    """[B, H, C] targets after the cutoff, data units; NaN: no loss, no score there. Of a table with
    classes: [B, L] int64 codes of the classes of the context, 0 = none."""
    series: Tensor
    """[B] int64 number of the series in its panel."""
    cutoff: Tensor
    """[B] int64 row of the panel that holds the last observed step."""
    time: Tensor
    """[B] int64 time of that row."""

    def to(self, device: torch.device | str) -> Batch:
        return Batch(*(getattr(self, field.name).to(device) for field in fields(self)))  # Lightning's
