"""The linear forecast: ridge maps from the end of the context to all leads, solved in closed form.

    the last steps of a lookback, less their mean    ┐  × map + mean  ─▶  averaged over lookbacks
    harmonics of each calendar cycle at the cutoff   ┘

Masked cells are 0 after the mean of the observed cells has been taken away. Channels share the maps. Known
covariates are not read: their effects are taken out of the targets before (`windows/effects.py`).

In formulas, for lead h and lookback n, with ȳ the mean of the last n observed values:

    ŷ(h) = ȳ + Σᵢ (yᵢ − ȳ)·M[i, h] + Σⱼ xⱼ·M[n + j, h]          i over the lookback, j over the harmonics x

DLinear (Zeng et al., "Are transformers effective for time series forecasting?", 2023) is such a map; here it
is not trained but solved (`ridge.py`). Every part earns its keep: without the calendar WQL is .7 % larger on 17
small tables, without spans 2.1 %; without phases 15 % on EPF-DE.

Axes: B batch · C channel · T step · R row, a channel of a window · J cutoff · L lead · H horizon · F feature ·
E harmonic of the calendar · P phase of the shortest cycle · G map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from forecaster.config import ModelPlan
from forecaster.model.channels import before_cutoffs, fold, repeat_channels
from forecaster.model.embedding import Shape
from forecaster.model.positions import phase_sinusoids, step_of_cycle
from forecaster.model.scaling import Scale
from forecaster.model.shortcuts import shortcut
from forecaster.windows.batch import Inputs

HARMONICS = 3
"""Sine and cosine pairs of each cycle: three of a week distinguish seven days."""
# Of a context's spread to the unit of the maps: a season that repeats exactly has no such unit.
_LARGEST_RATIO = 30.0

EARLY, ALL = 0, 1
"""Sets of maps: solved without the last quarter of the training time, and on all of it."""


class Cutoffs(NamedTuple):
    """Some cutoffs, and the leads that are forecast there."""

    shifts: Sequence[int]
    """Steps back of each cutoff."""
    leads: slice | Sequence[int]
    """0 = the step after the cutoff."""


_OWN_CUTOFF = Cutoffs((0,), slice(None))


@dataclass(frozen=True)
class HeldOut:
    """Maps of one training span that were solved without a block of its time."""

    begin: int
    """Time of the first cutoff."""
    size: int
    """Of a block, in units of time."""
    maps: Sequence[Tensor]
    """One per lookback: [block, P, F, H]; the last block is none: solved on the whole span."""

    def block(self, time: Tensor) -> Tensor:
        """Returns the block of each cutoff, the number of blocks outside the span."""
        count = len(self.maps[0]) - 1
        block = (time - self.begin).div(self.size, rounding_mode="floor")
        return torch.where((block < 0) | (block >= count), count, block)


class LinearForecast(nn.Module):
    """Linear maps, one per lookback and phase of the cycle."""

    def __init__(self, config: ModelPlan, shape: Shape):
        """Starts at zero: the mean of the context."""
        super().__init__()
        plan = config.linear
        self.horizon = shape.horizon
        self.lookbacks = plan.lookbacks
        self.phases = plan.phases
        self._cycles = shape.cycles if plan.calendar else 0
        exogenous = 2 * HARMONICS * self._cycles
        sizes = [lookback + exogenous for lookback in self.lookbacks]
        self.maps = nn.ParameterList(
            nn.Parameter(torch.zeros(2, self.phases, features, self.horizon), requires_grad=False)
            for features in sizes
        )
        """[EARLY or ALL, P, F, H] of each lookback."""
        self.held_out: Sequence[HeldOut] = ()
        """Maps for training windows, one for each training span, while training; else none."""
        self.step = 1.0
        """Units of time between rows; of `held_out`."""
        training = plan.units == "training"
        self.spread = nn.Buffer(torch.ones(shape.channels + 1).double()) if training else None
        """[C + 1] of the training rows of each channel, data units, for linear_units training."""
        self.unit_lag = plan.units if isinstance(plan.units, int) else None
        """Steps between values whose mean distance is the unit of the maps; None = another unit."""
        self.period = plan.period
        """Steps of the cycle of the periodic maps; None = there are none."""

    def forecast(
        self,
        inputs: Inputs,
        scale: Scale,
        time: Int[Tensor, " B"] | None = None,
        groups: Sequence[Cutoffs] = (_OWN_CUTOFF,),
    ) -> list[Float[Tensor, "R J L"]]:
        """Returns the forecasts of `center` in scaled units, for each group of cutoffs and leads."""
        units = self.units(inputs, scale)
        unit = unit_ratio(units, scale)[:, None, None]
        return [self.center(inputs, units, time, *cutoffs) * unit for cutoffs in groups]

    def center(
        self,
        inputs: Inputs,
        scale: Scale,
        time: Int[Tensor, " B"] | None = None,
        shifts: Sequence[int] = (0,),
        leads: slice | Sequence[int] = slice(None),
    ) -> Float[Tensor, "R J L"]:
        """Returns the forecasts of some leads at cutoffs some steps back, in the units of the maps.

        `time`: of the cutoffs of training windows, forecast by maps solved without their block of time;
        without it, truths before the window's own cutoff are forecast by maps solved without the last block.
        """
        phase = self.phase(inputs, shifts).flatten()  # [R, J] → [R·J]
        exogenous = None
        if self._cycles:
            exogenous = self.exogenous(inputs, shifts)  # [B, J, E]
            exogenous = repeat_channels(exogenous, inputs.context.shape[2]).flatten(0, 1)  # [R·J, E]
        longest = max(self.lookbacks)
        oldest = longest + max(shifts)
        observed = fold(inputs.observed[:, -oldest:])[..., 0]  # [R, oldest]
        values = scale.apply(inputs.context[:, -oldest:])
        values = torch.where(observed, fold(values)[..., 0], 0.0)
        # [R, oldest] → [R·J, longest]: of the longest lookback; shorter ones are their ends.
        windows = before_cutoffs(values, shifts, longest).flatten(0, 1)
        window_observed = before_cutoffs(observed, shifts, longest).flatten(0, 1).float()
        times = None if time is None else self.times(inputs, time, shifts).flatten()
        forecasts = []
        for number, lookback in enumerate(self.lookbacks):
            cells = windows[:, -lookback:]
            mask = window_observed[:, -lookback:]
            level = _level(cells, mask)[:, None]  # [R·J, 1]
            for maps, group in self._maps_by_span(number, phase, times, any(shifts)):
                selected = maps[..., leads]
                # (cells − level)·map = cells·map − level·(mask·map), without a copy of the cells.
                deviation = mapped(cells, selected[:, :lookback], group)  # [R·J, L]
                if exogenous is not None:
                    deviation = deviation + mapped(exogenous, selected[:, lookback:], group)
                level_part = level * mapped(mask, selected[:, :lookback], group)
                forecasts.append(level + deviation - level_part)
        mean = torch.stack(forecasts).mean(dim=0)
        return mean.unflatten(0, (-1, len(shifts)))  # [R·J, L] → [R, J, L]

    def _maps_by_span(
        self, number: int, phase: Int[Tensor, " R"], times: Int[Tensor, " R"] | None, early: bool
    ) -> list[tuple[Float[Tensor, "G F H"], Int[Tensor, " R"]]]:
        """The maps of a lookback for each training span, and which of them is that of each row."""
        if times is None or not self.held_out:
            return [(self.maps[number][EARLY if early else ALL], phase)]
        # [block, P, F, H] → [G, F, H]
        return [
            (span.maps[number].flatten(0, 1), phase + span.block(times) * self.phases)
            for span in self.held_out
        ]

    def times(
        self, inputs: Inputs, time: Int[Tensor, " B"], shifts: Sequence[int]
    ) -> Int[Tensor, "R J"]:
        """Returns the times of cutoffs some steps back of training windows."""
        age = torch.tensor(shifts, device=time.device) * self.step  # [J]
        cutoff = repeat_channels(time, inputs.channel.shape[1])[:, None]  # [R, 1]
        return cutoff - age.round().long()

    def features(
        self, inputs: Inputs, scale: Scale, exogenous: Float[Tensor, "B E"], number: int
    ) -> tuple[Float[Tensor, "R F"], Float[Tensor, " R"]]:
        """Returns the features of one map, and the level taken away, in the units of the maps.

        `scale` comes from `units`, and `exogenous` from the method of that name.
        """
        # Not `center` with one cutoff: one function for both took 10 % longer in a fit of 100 steps.
        lookback, channels = self.lookbacks[number], inputs.context.shape[2]
        observed = fold(inputs.observed[:, -lookback:])[..., 0]
        values = scale.apply(inputs.context[:, -lookback:])
        values = torch.where(observed, fold(values)[..., 0], 0.0)
        level = _level(values, observed)
        tail = torch.where(observed, values - level[:, None], 0.0)  # [R, lookback]
        return torch.cat([tail, repeat_channels(exogenous, channels)], dim=1), level

    def units(self, inputs: Inputs, scale: Scale) -> Scale:
        """Returns location and spread that are the units of the maps.

        window: the spread s of the context. training: the spread of the channel's training rows. n steps:
        the in-sample error of seasonal naive, mean |yₜ − yₜ₋ₙ|, as in MASE (Hyndman and Koehler 2006),
        at least s/30. Which windows count most in the solution follows from the unit.
        """
        if self.spread is not None:
            return scale._replace(scale=self.spread[inputs.channel])
        if self.unit_lag is None:
            return scale
        values = scale.apply(inputs.context)
        current, lagged = slice(self.unit_lag, None), slice(None, -self.unit_lag)
        pairs = inputs.observed[:, current] & inputs.observed[:, lagged]
        difference = torch.where(pairs, values[:, current] - values[:, lagged], 0.0)
        distance = difference.abs().sum(dim=1)  # [B, T − n, C] → [B, C]
        count = pairs.sum(dim=1)
        mean = torch.where(count > 0, distance / count.clamp(min=1), 1.0)
        return scale._replace(scale=scale.scale * mean.clamp(min=1 / _LARGEST_RATIO))

    def exogenous(self, inputs: Inputs, shifts: Sequence[int] = (0,)) -> Float[Tensor, "B J E"]:
        """Returns harmonics of the calendar cycles at cutoffs some steps back, the same for all channels."""
        last = inputs.context.shape[1] - 1
        phase = inputs.phase[:, [last - shift for shift in shifts], : self._cycles]  # [B, J, cycle]
        return phase_sinusoids(phase, HARMONICS)

    def phase(self, inputs: Inputs, shifts: Sequence[int] = (0,)) -> Int[Tensor, "R J"]:
        """Returns the phase of each cutoff in the shortest cycle, 0 … P − 1, which has a map of its own."""
        length, channels = inputs.context.shape[1:]
        if self.phases == 1:
            return inputs.channel.new_zeros((inputs.channel.numel(), len(shifts)))
        share = inputs.phase[:, [length - 1 - shift for shift in shifts], 0]  # [B, J] in [0, 1)
        return repeat_channels(step_of_cycle(share, self.phases), channels)


def _level(cells: Float[Tensor, "R K"], mask: Shaped[Tensor, "R K"]) -> Float[Tensor, " R"]:
    """The mean of the observed cells; the others are 0. 0 where none is observed."""
    return cells.sum(dim=1) / mask.sum(dim=1).clamp(min=1)


def unit_ratio(units: Scale, scale: Scale) -> Float[Tensor, " R"]:
    """Returns the unit of the maps per spread of each row's context."""
    return (units.scale / scale.scale).flatten().float()


def mapped(
    features: Float[Tensor, "R F"], maps: Float[Tensor, "G F H"], group: Int[Tensor, " R"]
) -> Float[Tensor, "R H"]:
    """Returns features times the map of each row's group."""
    if len(maps) == 1:
        return features @ maps[0]
    return _mapped_by_group(features, maps, group)


def _mapped_by_all(features: Tensor, maps: Tensor, group: Tensor) -> Tensor:
    """Each row times all maps, of which it keeps one."""
    products = torch.einsum("rf,gfh->rgh", features, maps)
    index = group[:, None, None].expand(-1, 1, products.shape[2])
    return products.gather(1, index)[:, 0]


@shortcut(_mapped_by_all)
def _mapped_by_group(features: Tensor, maps: Tensor, group: Tensor) -> Tensor:
    """A product per group: a map per row, [R, F, H], would not fit."""
    forecasts = features.new_zeros((len(features), maps.shape[-1]))
    for number in group.unique().tolist():
        rows = (group == number).nonzero()[:, 0]
        forecasts[rows] = features[rows] @ maps[number]
    return forecasts
