"""The linear forecast: ridge maps from the end of the context to all leads, solved in closed form.

    the last steps of a lookback, less their mean             ┐
    harmonics of each calendar cycle at the cutoff            │  × map + mean  ─▶  averaged over
    known covariates, some steps before the horizon           │                    lookbacks
    known covariates of the horizon, as far as a lead may see ┘

Masked cells are 0 after the mean of the observed cells has been taken away. Channels share the maps.

Axes: B batch · C channel · T step · R row, a channel of a window · J cutoff · L lead · H horizon · F feature ·
E feature beside the lookback · K known number, X with its categories · P phase of the shortest cycle · G map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from forecaster.config import ModelPlan
from forecaster.model.channels import few_categories, fold, indicators, repeat_channels
from forecaster.model.embedding import Shape
from forecaster.model.positions import phase_sinusoids, step_of_cycle
from forecaster.model.scaling import Scale
from forecaster.windows.batch import Inputs

HARMONICS = 3
"""Sine and cosine pairs of each cycle: three of a week distinguish seven days."""
_MOST_KNOWN = 2048  # features made of known covariates; a matrix of their products must fit
_LARGEST_RATIO = 30.0  # of a context's spread to the unit of the maps


Cutoffs = tuple[Sequence[int], slice | Sequence[int]]
"""Steps back of some cutoffs, and leads that are forecast there."""
EARLY, ALL = 0, 1
"""Sets of maps: solved without the last quarter of the training time, and on all of it."""


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
        assert config.lookbacks
        self.horizon, self.lookbacks = shape.horizon, config.lookbacks
        self.places = config.linear_phases
        self._categories = few_categories(shape.known_categories)  # others are left to attention
        self._lags = config.linear_lags
        self._cycles = shape.cycles if config.linear_calendar else 0
        per_step = shape.known + sum(self._categories)
        spans = [min(lag, self.horizon) for lag in self._lags] + [self.horizon]
        # Too many features to solve for: means over a horizon patch, then none at all.
        self._pooled = next(
            (n for n in (1, config.decoder_patch) if 0 < per_step * _pools(spans, n) <= _MOST_KNOWN), 0
        )
        size = per_step if self._pooled else 0
        before = size * _pools(spans[:-1], self._pooled or 1)
        self.calendar = 2 * HARMONICS * self._cycles
        """Features of each map, after its lookback, of the calendar phase at the cutoff."""
        step, patch = self._pooled or 1, config.decoder_patch
        # NumPy: whole-number arithmetic on the meta device loads torch's compiler, 1 s.
        lead = np.arange(self.horizon)
        last = lead // patch * patch + patch - 1  # the last step that a lead may see
        if config.decoder_mask == "full":
            last = np.full_like(lead, self.horizon)
        feature = np.arange(size * _pools(spans[-1:], step)) // max(size, 1) * step
        allowed = torch.from_numpy((feature[:, None] <= last).astype(np.float32))
        self.allowed = nn.Buffer(allowed, persistent=False)
        """[F ahead, H] 1 where a lead may see a feature of the horizon."""
        sizes = [lookback + self.calendar + before + len(feature) for lookback in self.lookbacks]
        self.maps = nn.ParameterList(
            nn.Parameter(torch.zeros(2, self.places, n, self.horizon), requires_grad=False)
            for n in sizes
        )
        """[EARLY or ALL, P, F, H] of each lookback."""
        self.held_out: Sequence[HeldOut] = ()
        """Maps for training windows, one for each training span, while training; else none."""
        self.step = 1.0
        """Units of time between rows; of `held_out`."""
        training = config.linear_units == "training"
        self.spread = nn.Buffer(torch.ones(shape.channels + 1).double()) if training else None
        """[C + 1] of the training rows of each channel, data units, for linear_units training."""
        self.apart = config.linear_units if isinstance(config.linear_units, int) else None
        """Steps between values whose mean distance is the unit of the maps; None = another unit."""
        self.period = config.linear_period
        """Steps of the cycle of the periodic maps; None = there are none."""

    def forecast(
        self,
        inputs: Inputs,
        scale: Scale,
        known: Float[Tensor, "B T K"],
        time: Int[Tensor, " B"] | None = None,
        cutoffs: Sequence[Cutoffs] = (((0,), slice(None)),),
    ) -> list[Float[Tensor, "R J L"]]:
        """Returns the forecasts of `center` in scaled units, for each group of cutoffs and leads."""
        units = self.units(inputs, scale)
        unit = relative(units, scale)[:, None, None]
        return [self.center(inputs, units, known, time, *own) * unit for own in cutoffs]

    def center(
        self,
        inputs: Inputs,
        scale: Scale,
        known: Float[Tensor, "B T K"],
        time: Int[Tensor, " B"] | None = None,
        shifts: Sequence[int] = (0,),
        leads: slice | Sequence[int] = slice(None),
    ) -> Float[Tensor, "R J L"]:
        """Returns the forecasts of some leads at cutoffs some steps back, in the units of the maps.

        `known`: standardised known covariates, 0 where missing. `time`: of the cutoffs of training windows,
        forecast by maps solved without their block of time; without it, truths before the window's own
        cutoff are forecast by maps solved without the last block.
        """
        group, others = self.place(inputs, shifts).flatten(), None
        if self._cycles or self._pooled:
            read = self.others(inputs, known, shifts)
            others = repeat_channels(read, inputs.context.shape[2]).flatten(0, 1)
        oldest = max(self.lookbacks) + max(shifts)
        observed = fold(inputs.observed[:, -oldest:])[..., 0]
        values = fold(scale.apply(inputs.context[:, -oldest:]))[..., 0]
        values = torch.where(observed, values, 0.0)
        spans: Sequence[HeldOut | None] = [None] if time is None else self.held_out or [None]
        at = group if time is None else self.times(inputs, time, shifts).flatten()
        # Windows of the longest lookback, [R·J, longest]; shorter ones are their ends.
        before = [slice(oldest - max(self.lookbacks) - s, oldest - s) for s in shifts]
        longest = torch.stack([values[:, span] for span in before], dim=1).flatten(0, 1)
        known_cells = torch.stack([observed[:, span] for span in before], dim=1).flatten(0, 1).float()
        forecasts = []
        for number, lookback in enumerate(self.lookbacks):
            cells, there = longest[:, -lookback:], known_cells[:, -lookback:]
            level = (cells.sum(dim=1) / there.sum(dim=1).clamp(min=1))[:, None]
            for span in spans:
                if span is None:
                    maps, own = self.maps[number][EARLY if any(shifts) else ALL], group
                else:
                    maps, own = span.maps[number].flatten(0, 1), group + span.block(at) * self.places
                maps = maps[..., leads]
                # (cells − level) · map, without a copy of the cells.
                ahead = mapped(cells, maps[:, :lookback], own)
                if others is not None:
                    ahead = ahead + mapped(others, maps[:, lookback:], own)
                forecasts.append(level + ahead - level * mapped(there, maps[:, :lookback], own))
        return torch.stack(forecasts).mean(dim=0).unflatten(0, (-1, len(shifts)))

    def times(
        self, inputs: Inputs, time: Int[Tensor, " B"], shifts: Sequence[int]
    ) -> Int[Tensor, "R J"]:
        """Returns the times of cutoffs some steps back of training windows."""
        back = torch.tensor(shifts, device=time.device) * self.step
        return repeat_channels(time, inputs.channel.shape[1])[:, None] - back.round().long()

    def features(
        self, inputs: Inputs, scale: Scale, others: Float[Tensor, "B E"], number: int
    ) -> tuple[Float[Tensor, "R F"], Float[Tensor, " R"]]:
        """Returns the features of one map, and the level taken away, in the units of the maps.

        `scale` comes from `units`, and `others` from the method of that name.
        """
        lookback, channels = self.lookbacks[number], inputs.context.shape[2]
        observed = fold(inputs.observed[:, -lookback:])[..., 0]
        values = scale.apply(inputs.context[:, -lookback:])
        values = torch.where(observed, fold(values)[..., 0], 0.0)
        level = values.sum(dim=1) / observed.sum(dim=1).clamp(min=1)
        tail = torch.where(observed, values - level[:, None], 0.0)
        return torch.cat([tail, repeat_channels(others, channels)], dim=1), level

    def units(self, inputs: Inputs, scale: Scale) -> Scale:
        """Returns location and spread that are the units of the maps."""
        if self.spread is not None:
            return scale._replace(scale=self.spread[inputs.channel])
        if self.apart is None:
            return scale
        lags = (slice(self.apart, None), slice(None, -self.apart))
        values = scale.apply(inputs.context)
        both = inputs.observed[:, lags[0]] & inputs.observed[:, lags[1]]
        distance = torch.where(both, values[:, lags[0]] - values[:, lags[1]], 0.0).abs().sum(dim=1)
        count = both.sum(dim=1)
        mean = torch.where(count > 0, distance / count.clamp(min=1), 1.0)
        return scale._replace(scale=scale.scale * mean.clamp(min=1 / _LARGEST_RATIO))

    def others(
        self, inputs: Inputs, known: Float[Tensor, "B T K"], shifts: Sequence[int] = (0,)
    ) -> Float[Tensor, "B J E"]:
        """Returns features of calendar and known covariates at cutoffs some steps back.

        They are the same for all channels of a window.
        """
        ends = [inputs.context.shape[1] - shift for shift in shifts]
        parts = [inputs.elapsed.new_zeros((inputs.elapsed.shape[0], len(ends), 0))]
        if self._cycles:
            parts.append(phase_sinusoids(inputs.phase[:, [end - 1 for end in ends]], HARMONICS))
        if self._pooled:
            oldest = min(ends) - max((0, *self._lags))
            kinds = indicators(inputs.known_category[:, oldest:], self._categories)
            steps = torch.cat([known[:, oldest:], *kinds], dim=-1)
            missing = max(ends) + self.horizon - oldest - steps.shape[1]
            steps = F.pad(steps, (0, 0, 0, max(0, missing)))
            for lag in (*self._lags, 0):
                count = min(lag, self.horizon) or self.horizon
                starts = [end - oldest - lag for end in ends]
                read = [self._pool(steps[:, start : start + count]) for start in starts]
                parts.append(torch.stack(read, dim=1))
        return torch.cat(parts, dim=2)

    def place(self, inputs: Inputs, shifts: Sequence[int] = (0,)) -> Int[Tensor, "R J"]:
        """Returns the map of each cutoff, by its phase in the shortest cycle."""
        length, channels = inputs.context.shape[1:]
        if self.places == 1:
            return inputs.channel.new_zeros((inputs.channel.numel(), len(shifts)))
        at = inputs.phase[:, [length - 1 - shift for shift in shifts], 0]
        return repeat_channels(step_of_cycle(at, self.places), channels)

    def lead_blocks(self) -> list[tuple[slice, int]]:
        """Returns blocks of leads, each with the number of features of the horizon it may see."""
        counts = self.allowed.sum(dim=0).long().tolist()
        starts = [n for n in range(self.horizon) if n == 0 or counts[n] != counts[n - 1]]
        ends = [*starts[1:], self.horizon]
        return [(slice(a, b), counts[a]) for a, b in zip(starts, ends, strict=True)]

    def _pool(self, steps: Float[Tensor, "B T X"]) -> Float[Tensor, "B TX"]:
        """Returns steps beside each other, or their means over horizon patches."""
        if self._pooled > 1:
            steps = F.pad(steps, (0, 0, 0, -steps.shape[1] % self._pooled))
            steps = steps.unflatten(1, (-1, self._pooled)).mean(dim=2)
        return steps.flatten(1)


def relative(units: Scale, scale: Scale) -> Float[Tensor, " R"]:
    """Returns the unit of the maps per spread of each row's context."""
    return (units.scale / scale.scale).flatten().float()


def mapped(
    features: Float[Tensor, "R F"], maps: Float[Tensor, "G F H"], group: Int[Tensor, " R"]
) -> Float[Tensor, "R H"]:
    """Returns features times the map of each row's group."""
    if len(maps) == 1:
        return features @ maps[0]
    if torch.compiler.is_exporting():
        every = torch.einsum("rf,gfh->rgh", features, maps)
        index = group[:, None, None].expand(-1, 1, every.shape[2])
        return every.gather(1, index)[:, 0]
    found = features.new_zeros((len(features), maps.shape[-1]))
    for number in group.unique().tolist():
        own = (group == number).nonzero()[:, 0]
        found[own] = features[own] @ maps[number]
    return found


def _pools(spans: list[int], size: int) -> int:
    """Number of means over `size` steps in all spans."""
    return sum(-(-span // size) for span in spans)
