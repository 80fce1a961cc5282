"""Experts: forecasts with a closed form, weighed by attention to what their errors at earlier cutoffs show.

    history ─▶ fill gaps ─▶ experts at the cutoff                    ─▶ forecasts [R, H, E] ─┐
                        └─▶ experts at four earlier cutoffs − truth ─▶ evidence ─▶ ATTENTION ─┴─▶ quantiles

Attention over experts (expert_attention.py) has weights that were learned on other tables and come with the
package; a fit may tune the last maps of it. An error counts only leads up to the cutoff of the window. All
experts commute with y → a·y + b, but for `tsb`, of channels of intermittent demand alone, which commutes with a.

Axes: B batch · C channel · R row, a channel of a window · T history · J earlier cutoff · H lead · L lead that
is scored · P position of a lead · E expert · Q quantile level · F feature of statics · U feature of a step ·
N calendar cycle · X known number · Y known category · K static category · S static number.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from statistics import NormalDist
from typing import NamedTuple, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from forecaster.config import Expert, ModelPlan
from forecaster.model.arx import ArxForecast
from forecaster.model.autoregression import ORDER
from forecaster.model.channels import few_categories, fold, indicators, last_steps
from forecaster.model.closed_forms import LEVEL_SEASONS, ClosedForms, values_at
from forecaster.model.curves import FEWEST
from forecaster.model.embedding import Shape
from forecaster.model.evidence import (
    Evidence,
    interpolation,
    phase_widths,
    positions,
    recent_steps,
    variogram,
)
from forecaster.model.expert_attention import BRIEF, LEVELS, Answer, ExpertAttention, Lead, mixed
from forecaster.model.linear import HARMONICS, Cutoffs, LinearForecast
from forecaster.model.positions import phase_sinusoids
from forecaster.model.scaling import ContextScaler, Scale
from forecaster.model.shipped_weights import load_shipped
from forecaster.model.shortcuts import may_hold, shortcut, upper_bound
from forecaster.model.tails import at_levels
from forecaster.windows.batch import Inputs

CUTOFFS = 4
"""Earlier cutoffs at which experts are compared. With eight the pool takes half as long again; WQL of four
relative to eight .998 on 52 small tables, .962 on seven larger ones."""
_MEANS, _OF_MEANS = ("tsb", "long_mean"), 20.0
"""Experts that have more weight in a mean of counts than others with the same errors. `tsb` alone had sums of
fourteen tables 12 % further off; with a weight of 4 sums of rare demands (.05 a day) were 1.25 of the truth."""
_COLD = (
    3.0  # of a normal distribution, in spreads: of a level that is hardly known, before it is learned
)
FEW = 3
"""Rows that do not show how far values spread."""
_WIDE = 0.39015  # of a normal distribution, in levels: its 80 % band is as wide as the level
# Of the logarithm of a level from that of its channel, e⁴ = 55: statics may be far off.
_FARTHEST_LEVEL = 4.0
_FARTHEST = 1e6  # spreads: squares of 1e20 are none in float32, and e⁻³⁰ of 1e15 still moves a mean


SEASONAL: tuple[Expert, ...] = (
    "seasonal_naive",
    "seasonal_mean",
    "growing_season",
    "seasonal_drift",
)
SECOND: tuple[Expert, ...] = ("second_naive", "second_mean", "profile")
_SPECIAL = (*SEASONAL, *SECOND, "tsb", "linear", "arx")
GENERAL = tuple(name for name in get_args(Expert) if name not in _SPECIAL)
"""Experts of any table; those above are of a season, and of a second one."""


def check_experts(config: ModelPlan) -> None:
    """Raises a ValueError for a stored plan whose experts have no season, or too short a history."""
    pool, linear = config.pool, config.pool.linear
    season, second = pool.seasons
    cutoff_span = CUTOFFS * pool.cutoff_spacing
    history = max(pool.memory, second) + cutoff_span
    of_profile = second + LEVEL_SEASONS * season + cutoff_span
    # A setting, its value, whether it suits, and the experts that need it.
    requirements: list[tuple[str, object, bool, Collection[str]]] = [
        ("seasons", pool.seasons, season > 1, SEASONAL),
        ("seasons", pool.seasons, second > 0, SECOND),
        ("memory", pool.memory, pool.memory >= 3 * season, ["growing_season"]),
        ("memory", pool.memory, pool.memory >= 2 * season, pool.experts),
        ("history_length", pool.history_length, pool.history_length >= of_profile, ["profile"]),
        ("drivers", pool.drivers, len(pool.drivers) > 0, ["arx"]),
        ("linear", linear, linear is not None, ["linear", "arx"]),
        ("history_length", pool.history_length, pool.history_length >= history, pool.experts),
    ]
    if linear is not None:
        length = config.context_length
        context = max(linear.lookbacks) + cutoff_span
        requirements.append(("context_length", length, length >= context, ["linear", "arx"]))
    for setting, value, suits, experts in requirements:
        unsuited = {*pool.experts}.intersection(experts)
        if unsuited and not suits:
            raise ValueError(f"{setting} {value} does not suit experts {', '.join(sorted(unsuited))}")


class Pool(NamedTuple):
    """The forecasts of all experts from the cutoff of each row, and the evidence that weighs them."""

    forecasts: Tensor
    """[R, H, E] scaled units."""
    evidence: Evidence
    width: Tensor
    """[R, H] of the bands at the phase of each lead, relative to the mean over a season."""


class History(NamedTuple):
    """The history of each row, scaled units."""

    filled: Tensor
    """[R, T] without gaps."""
    values: Tensor
    """[R, T] as observed, NaN in gaps."""
    observed: Tensor
    """[R, T]"""
    length: Tensor
    """[R] steps since the first observation."""


class Experts(nn.Module):
    """The pool of experts of a table, and the quantiles of their residuals."""

    def __init__(self, config: ModelPlan, shape: Shape):
        super().__init__()
        self.names = config.pool.experts
        self.horizon = shape.horizon
        self.season, self.second = config.pool.seasons
        self.memory = config.pool.memory
        self.spacing = config.pool.cutoff_spacing
        self.cutoff_span = CUTOFFS * self.spacing
        """Steps from the earliest cutoff to the window's own."""
        self.closed_forms = ClosedForms(config, shape.horizon)
        self.linear = LinearForecast(config, shape) if config.pool.needs_maps else None
        self.arx = ArxForecast(config, shape) if "arx" in self.names else None
        self.attention = ExpertAttention(self.names, tunable=True).requires_grad_(False)
        """Its weights were learned on other tables; a fit tunes the last maps at most."""
        if not self.attention.place.is_meta:  # counting parameters needs no values
            load_shipped(self.attention)
        self._positions = positions(shape.horizon)
        self._scored = sorted(set(self._positions))
        self._interpolation = nn.Buffer(interpolation(shape.horizon), persistent=False)
        """[H, P]"""
        self.short = max(self.season, BRIEF)
        """Steps of a short history: a season, or a few steps where there is none."""
        channels = shape.channels + 1  # code 0 = a channel that the training table lacks
        self.levels = config.quantile_levels
        normal = [NormalDist().inv_cdf(level) for level in self.levels]
        # No arithmetic of torch's: it would load its compiler where parameters are only counted.
        cold, wide = ([[far * one for one in normal]] * shape.horizon for far in (_COLD, _WIDE))
        self.cold_offsets = nn.Buffer(torch.tensor(cold))
        """[H, Q] quantiles of a series without history around its level, in its spreads."""
        self.few_offsets = nn.Buffer(torch.tensor([wide] * FEW))
        """[FEW, H, Q] quantiles after one row, two and three around the median, in the unit of `few`."""
        self.intermittent = nn.Buffer(torch.zeros(channels, dtype=torch.bool))
        """[C + 1] whether the training rows of a channel are counts with zeros."""
        # A static with more categories says nothing about series other than those it was learned from.
        self._statics = few_categories(shape.static_categories)
        sizes = 1 + shape.static + sum(self._statics)
        self.cold_level = nn.Buffer(torch.zeros(channels, sizes).double())
        """[C + 1, F] level of a series without history per feature of `statics`: in data units, or where there
        is a `cold_share` the logarithm of the level over that of the channel."""
        self.cold_scale = nn.Buffer(torch.zeros(channels).double())
        """[C + 1] its spread; 0 = it cannot be forecast: too few series had a level to learn from."""
        self.cold_share = nn.Buffer(torch.zeros(channels).double())
        """[C + 1] the spread as a share of the level, of channels that are always positive; 0 = any other."""
        self._known = few_categories(shape.known_categories)
        sizes = 1 + 2 * HARMONICS * shape.cycles + shape.known + sum(self._known)
        self.profile = nn.Buffer(torch.zeros(channels, sizes))
        """[C + 1, U] how far a series without history is from its level per feature of `steps`, in spreads;
        0 = the experts forecast it."""

    def forward(
        self,
        inputs: Inputs,
        scale: Scale,
        scaler: ContextScaler,
        known: Float[Tensor, "B T X"],
        time: Int[Tensor, " B"] | None = None,
        has_calendar: bool = True,
    ) -> Pool:
        """Returns the forecasts of all experts, and the evidence from earlier cutoffs.

        Args:
            inputs, scale: windows.
            scaler: that of the network.
            known: standardised known covariates, 0 where missing.
            time: of the cutoffs of training windows, which are forecast by maps solved without their block of time.
            has_calendar: False = its effects were taken out, and solved experts, which have terms of their own
                for it, are not available.
        """
        history = self.history(inputs, scale)
        zero = scale.apply(torch.zeros_like(inputs.context[:, :1])).flatten()  # [R] 0 in scaled units
        shifts = [number * self.spacing for number in range(CUTOFFS, 0, -1)]
        groups = (Cutoffs([0], [*range(self.horizon)]), Cutoffs(shifts, self._scored))
        # Both groups at once: they share the units of the maps.
        linear: list[Tensor] | list[None] = [None, None]
        if self.linear is not None and has_calendar:
            linear = self.linear.forecast(inputs, scale, time, groups)
        now, earlier = (
            self._forecasts(cutoffs, history, zero, of_linear, inputs, scale, scaler, time)
            for cutoffs, of_linear in zip(groups, linear, strict=True)
        )
        forecasts = now[:, :, 0].permute(1, 2, 0)  # [E, R, 1, H] → [R, H, E]
        forecasts = self._with_profiles(forecasts, inputs, known)
        return self._pool(forecasts, history, earlier, shifts, inputs, zero, has_calendar)

    def _forecasts(
        self,
        cutoffs: Cutoffs,
        history: History,
        zero: Float[Tensor, " R"],
        linear: Float[Tensor, "R J L"] | None,
        inputs: Inputs,
        scale: Scale,
        scaler: ContextScaler,
        time: Int[Tensor, " B"] | None,
    ) -> Float[Tensor, "E R J L"]:
        """The forecasts of all experts at some cutoffs, scaled units; `linear`: of the linear expert."""
        shifts, leads = cutoffs
        forecasts = self.closed_forms(history.filled, history.length, zero, shifts, leads)
        none = torch.zeros_like(forecasts["naive"])
        forecasts |= {"linear": none if linear is None else linear, "arx": none}
        if linear is not None and self.arx is not None:
            assert self.linear is not None
            block = None
            if time is not None and self.linear.held_out:
                # ARX is solved without the blocks of the longest span, which comes first.
                times = self.linear.times(inputs, time, shifts)  # [R, J]
                block = self.linear.held_out[0].block(times)
            forecasts["arx"] = self.arx(
                inputs, scale, scaler, history.filled, linear, shifts, leads, block
            )
        return torch.stack([forecasts[name] for name in self.names])

    def _pool(
        self,
        forecasts: Float[Tensor, "R H E"],
        history: History,
        earlier: Float[Tensor, "E R J L"],
        shifts: list[int],
        inputs: Inputs,
        zero: Float[Tensor, " R"],
        has_calendar: bool,
    ) -> Pool:
        """Forecasts and what is known about the experts, from `earlier` forecasts and the history."""
        truth, known = self._truth(history, shifts)
        truth = torch.where(known, truth, 0.0)  # NaN times 0 is NaN
        missed = (earlier - truth) * known  # [E, R, J, L]
        if inputs.error_ratios.shape[1]:
            inflation = inputs.error_ratios[..., 0 if has_calendar else 1]
            missed = missed * inflation.flatten()[:, None, None]
        of_position = [self._scored.index(lead) for lead in self._positions]
        widths = phase_widths(history.filled, history.length, self.season, self.memory)  # [R, S]
        width = widths[:, [lead % self.season for lead in range(self.horizon)]]  # [R, H]
        recent, changes, seen = recent_steps(history.filled, history.observed, self.season)
        counts = self.intermittent[inputs.channel].flatten()
        lengths = (self.season, self.second, self.horizon, self.spacing)
        steps = [history.length.float(), *(torch.full_like(zero, float(steps)) for steps in lengths)]
        evidence = Evidence(
            forecasts=forecasts[:, self._positions],
            missed=missed.permute(1, 2, 3, 0)[:, :, of_position],
            known=known.float()[:, :, of_position],
            available=self._available(inputs, history.length, has_calendar),
            scatter=self._scatter(history),
            variogram=variogram(recent, history.length, self.season, self._positions),
            width=width[:, self._positions],
            recent=recent,
            changes=changes,
            seen=seen,
            zero=zero,
            counts=counts,
            steps=torch.stack(steps, dim=1),
        )
        return Pool(forecasts, evidence, width)

    def brief(self, inputs: Inputs) -> Bool[Tensor, "B C"]:
        """Returns whether the history of a channel is at most a season, of which networks see little."""
        seen = inputs.history_observed
        # What is older than a season; where nothing can be, all of it.
        older = max(0, seen.shape[1] - self.short) or None
        return ~seen[:, :older].any(dim=1)

    def few(self, inputs: Inputs, scale: Scale, median: Tensor) -> tuple[Tensor, Tensor]:
        """Returns [B, C] rows of a history that does not show how far values spread, 0 of any other, and a unit.

        That are up to three rows, or fewer than a season of a constant. Of the unit, [B, H, C] in data units,
        `few_offsets` are multiples: the `median` [B, H, C] of a channel that is always positive, which knows
        the calendar; without `cold_scale` the level; else the spread, in counts both.
        """
        count = inputs.history_observed.sum(dim=1)
        varies = (inputs.history < scale.level[:, None]).any(dim=1)
        constant = BRIEF if self.season == 1 else self.season
        shown = (count > FEW) & (varies | (count >= constant))
        level = (scale.level + scale.loc).abs()
        spread, share = self.cold_scale[inputs.channel], self.cold_share[inputs.channel]
        relative = (share > 0) | (spread == 0) | self.intermittent[inputs.channel]
        unit = torch.where(relative, level, 0.0) + torch.where(share > 0, 0.0, spread)
        unit = torch.where(unit > 0, unit, scale.scale)[:, None]
        positive = (share > 0)[:, None] & (median > 0)
        return torch.where(shown, 0, count), torch.where(positive, median, unit)

    def cold(self, inputs: Inputs) -> Bool[Tensor, "B C"]:
        """Returns whether a channel has no history, and its level is that of `cold_level`."""
        seen = inputs.observed.any(dim=1)
        if may_hold(~seen):
            seen = seen | inputs.history_observed.any(dim=1)
        return ~seen & (self.cold_scale[inputs.channel] > 0)

    def statics(self, codes: Int[Tensor, "B K"], numbers: Float[Tensor, "B S"]) -> Float[Tensor, "B F"]:
        """Returns 1, the standardised static numbers, and 1 for the category of each static."""
        categories = indicators(codes, self._statics)
        # Not len(): a graph would keep the size of the batch.
        constant = numbers.new_ones((numbers.shape[0], 1))
        return torch.cat([constant, numbers, *categories], dim=1)

    def steps(
        self, phase: Float[Tensor, "B T N"], known: Float[Tensor, "B T X"], codes: Int[Tensor, "B T Y"]
    ) -> Float[Tensor, "B T U"]:
        """Returns 1, harmonics of the calendar cycles, standardised known numbers and known categories."""
        constant = known.new_ones((*known.shape[:-1], 1))
        categories = indicators(codes, self._known)
        return torch.cat([constant, phase_sinusoids(phase, HARMONICS), known, *categories], dim=-1)

    def _with_profiles(
        self, forecasts: Float[Tensor, "R H E"], inputs: Inputs, known: Float[Tensor, "B T X"]
    ) -> Float[Tensor, "R H E"]:
        """Returns the forecasts, in series without history those of steps alike of other series."""
        profile = self.profile[inputs.channel]
        cold = self.cold(inputs) & profile.any(dim=2)
        if not may_hold(cold):
            return forecasts
        horizon = slice(inputs.context.shape[1], None)
        steps = self.steps(
            inputs.phase[:, horizon], known[:, horizon], inputs.known_category[:, horizon]
        )
        shape = fold(steps @ profile.transpose(1, 2))  # [B, H, U] @ [B, U, C] → [R, H, 1]
        # A horizon shorter than the table's is padded, as the experts forecast all of it.
        shape = F.pad(shape, (0, 0, 0, self.horizon - shape.shape[1]))
        return torch.where(cold.flatten()[:, None, None], shape, forecasts)

    def with_cold_scale(self, inputs: Inputs, scale: Scale, numbers: Float[Tensor, "B S"]) -> Scale:
        """Returns the scale of windows, that of a series without history from its statics."""
        cold = self.cold(inputs)
        if not may_hold(cold):
            return scale
        features = self.statics(inputs.static_category, numbers).double()[..., None]  # [B, F, 1]
        level = self.cold_level[inputs.channel] @ features  # [B, C, F] @ [B, F, 1] → [B, C, 1]
        level = level[..., 0]
        spread = self.cold_scale[inputs.channel]
        share = self.cold_share[inputs.channel]
        # Of channels that are always positive the level is a logarithm, and the spread a share of it.
        factor = level.clamp(-_FARTHEST_LEVEL, _FARTHEST_LEVEL).exp()
        cold_scale = Scale(
            level=torch.where(share > 0, spread / share * factor, level),
            loc=torch.zeros_like(scale.loc),
            scale=torch.where(share > 0, spread * factor, spread),
        )
        pairs = zip(cold_scale, scale, strict=True)
        return Scale(*(torch.where(cold, *pair) for pair in pairs))

    def history(self, inputs: Inputs, scale: Scale) -> History:
        """Returns the history in scaled units, with and without gaps."""
        observed = fold(inputs.history_observed)[..., 0]  # [B, T, C] → [R, T]
        values = fold(scale.apply(inputs.history))[..., 0]
        values = values.clamp(-_FARTHEST, _FARTHEST)
        filled, length = fill_gapped(values, observed, self.season)
        return History(filled, values, observed, length)

    def weights(self, pool: Pool) -> Float[Tensor, "R H E"]:
        """Returns the weights of the experts; they sum to 1, and an expert that is not available has 0."""
        attention, evidence = self.attention, pool.evidence
        return self.weighed(evidence, attention(evidence), attention.lead(evidence, pool.forecasts))

    def weighed(self, evidence: Evidence, answer: Answer, lead: Lead) -> Float[Tensor, "R H E"]:
        """Returns the same of an answer of attention."""
        logits = self.attention.logits(evidence, answer, lead, self._interpolation)
        return logits.softmax(dim=-1)

    def correction(self, pool: Pool) -> Float[Tensor, "R H"]:
        """Returns what attention adds to the weighted mean of the experts, scaled units."""
        attention, evidence = self.attention, pool.evidence
        lead = attention.lead(evidence, pool.forecasts)
        if not self._corrected(None):
            return torch.zeros_like(lead.center)
        return attention.correction(evidence, attention(evidence), lead, self._interpolation)

    def _corrected(self, only: Expert | None) -> bool:
        """Whether the weighted mean of the experts, or one of them, is corrected."""
        single = only or (self.names[0] if len(self.names) == 1 else None)
        # One expert alone is what was asked for; that of counts is a mean, and no median.
        return single in (None, "tsb")

    def quantiles(
        self, pool: Pool, inputs: Inputs, only: Expert | None = None
    ) -> tuple[Float[Tensor, "R H Q"], Float[Tensor, "R H"]]:
        """Returns the quantiles of the weighted experts, or of one of them, and the mean of counts, scaled units.

        The mean has weights of its own, larger ones for the experts that are means of counts by construction.
        """
        evidence = pool.evidence
        if only is not None:
            evidence = evidence.of_one(self.names.index(only))
        quantiles = self.attention.quantiles(
            evidence,
            pool.forecasts,
            pool.width,
            self._interpolation,
            corrected=self._corrected(only),
        )
        prior = torch.tensor([_OF_MEANS if name in _MEANS else 1.0 for name in self.names])
        weights = evidence.mean_weights(prior.to(quantiles.device))
        demand = torch.maximum(pool.forecasts, evidence.zero[:, None, None])
        mean = mixed(demand, weights[:, None])
        quantiles = at_levels(quantiles, LEVELS, self.levels)
        cold = self.cold(inputs)
        if not may_hold(cold):
            return quantiles, mean
        # All experts say the same of a series without history: its level, or its profile.
        of_cold = pool.forecasts[..., :1] + self.cold_offsets
        return torch.where(cold.flatten()[:, None, None], of_cold, quantiles), mean

    def _truth(
        self, history: History, shifts: list[int]
    ) -> tuple[Float[Tensor, "R J L"], Bool[Tensor, "R J L"]]:
        """What followed earlier cutoffs, and where that was observed up to the window's cutoff.

        A cutoff counts where a season, or two steps, of history lie before it.
        """
        end = history.values.shape[1]
        cutoff = end - torch.tensor(shifts)[:, None]  # [J, 1] the step after it
        steps = cutoff + torch.tensor(self._scored)  # [J, L]
        inside = (steps < end).to(history.values.device)
        steps = steps.clamp(max=end - 1).to(history.values.device)
        shift = torch.tensor(shifts, device=history.length.device)
        enough = history.length[:, None] - shift >= max(2, self.season)  # [R, J]
        known = values_at(history.observed, steps) & inside & enough[..., None]
        return values_at(history.values, steps), known

    def _available(
        self, inputs: Inputs, length: Int[Tensor, " R"], has_calendar: bool
    ) -> Bool[Tensor, "R E"]:
        """Whether the history of a row suffices for an expert; all experts where it suffices for none."""
        # Of what the calendar leaves a season or two say nothing more.
        seasons = 1 if has_calendar else 3
        least = dict.fromkeys(SEASONAL, seasons * self.season) | dict.fromkeys(SECOND, self.second)
        least |= {"growing_season": 3 * self.season, "tsb": 1, "line": FEWEST, "curve": FEWEST}
        least["seasonal_drift"] = max(2, seasons) * self.season
        least["autoregression"] = self.season + max(self.season, 2 * ORDER)
        least["profile"] = self.second + LEVEL_SEASONS * self.season
        steps = [least.get(name, 0) for name in self.names]
        available = length[:, None] >= torch.tensor(steps, device=length.device)  # [R, E]
        if not has_calendar:
            available = available & ~self.attention.solved
        # Experts of some channels alone: [C + 1] whether it is of each.
        channels = {"tsb": self.intermittent}
        if self.arx is not None:
            channels["arx"] = self.arx.used
        for expert, suited in channels.items():
            unrelated = [name != expert for name in self.names]
            of_row = suited[inputs.channel].flatten()[:, None]  # [R, 1]
            available = available & (of_row | torch.tensor(unrelated, device=length.device))
        return available | ~available.any(dim=1, keepdim=True)

    def _scatter(self, history: History) -> Float[Tensor, " R"]:
        """Mean distance of values one season apart; of neighbours where there is no such pair; else 1."""
        filled, length = history.filled, history.length
        scatter = torch.ones_like(filled[:, 0])
        for lag in (1, self.season):
            span = min(self.memory, filled.shape[1] - lag)
            lagged = filled[:, -span - lag : -lag]
            distance = (filled[:, -span:] - lagged).abs()  # [R, span]
            # [R] not of the first period, which is repeated before the first observation.
            pairs = (length - lag).clamp(0, span)
            total = (distance * last_steps(pairs, span)).sum(dim=1)
            mean = total / pairs.clamp(min=1)
            scatter = torch.where(pairs > 0, mean, scatter)
        return scatter


def fill(
    values: Float[Tensor, "R T"], observed: Bool[Tensor, "R T"], period: int
) -> tuple[Float[Tensor, "R T"], Int[Tensor, " R"]]:
    """Returns values without gaps, and the steps of each row since its first observation.

    A gap takes the value one period before, else the last one. Before the first observation the first
    period is repeated, or the mean where there is less than a period; 0 where nothing is observed.
    """
    steps = values.shape[1]
    first = observed.float().argmax(dim=1)  # [R]; torch has no argmax of bool
    length = steps - torch.where(observed.any(dim=1), first, steps)
    values = torch.where(observed, values, torch.nan)
    for lag in (period, 1):
        # A value goes one lag on, then two, then four: every gap is reached in log₂(T) turns.
        while lag < steps:
            missing = values.isnan()
            gaps = missing.sum(dim=1) > steps - length  # more than what lies before the first value
            if not may_hold(gaps):
                break
            lagged = F.pad(values[:, :-lag], (lag, 0), value=torch.nan)
            values = torch.where(missing, lagged, values)
            lag *= 2
    longest = upper_bound(first, steps)  # steps before a first observation
    if longest:
        values = _with_beginning(values, first, length, period, longest)
    if may_hold(length == 0):
        values = torch.where(values.isnan(), 0.0, values)
    return values, length


@shortcut(fill)
def fill_gapped(
    values: Float[Tensor, "R T"], observed: Bool[Tensor, "R T"], period: int
) -> tuple[Float[Tensor, "R T"], Int[Tensor, " R"]]:
    """Returns what `fill` does, which takes a few passes, of the rows with gaps alone: most have none."""
    length = torch.full_like(observed[:, 0], observed.shape[1], dtype=torch.int64)
    gapped = (~observed.all(dim=1)).nonzero()[:, 0]
    if not len(gapped):
        return values, length
    filled = values.clone()
    filled[gapped], length[gapped] = fill(values[gapped], observed[gapped], period)
    return filled, length


def _with_beginning(
    values: Float[Tensor, "R T"],
    first: Int[Tensor, " R"],
    length: Int[Tensor, " R"],
    period: int,
    longest: int,
) -> Float[Tensor, "R T"]:
    """Values whose first period is repeated before the `first` observation, at most `longest` steps."""
    step = torch.arange(longest, device=values.device)
    short = length < period
    mean = values.nan_to_num().sum(dim=1) / length.clamp(min=1)  # [R]
    lag = torch.where(short, 1, period)[:, None]
    # In float32, which is exact here: whole numbers take five times as long to divide.
    distance = (step - first[:, None]).float()
    periods = (distance / lag).floor().long()  # negative before the first observation
    repeated = values.gather(1, step - periods * lag)  # [R, longest]
    repeated = torch.where(short[:, None], mean[:, None], repeated)
    beginning = torch.where(step < first[:, None], repeated, values[:, :longest])
    return torch.cat([beginning, values[:, longest:]], dim=1)


def truncated(inputs: Inputs, steps: Int[Tensor, " B"]) -> Inputs:
    """Returns windows without what is further back than some steps, as if series had begun there."""
    context = last_steps(steps, inputs.context.shape[1])[..., None]  # [B, L, 1]
    history = last_steps(steps, inputs.history.shape[1])[..., None]  # [B, T, 1]
    return replace(
        inputs,
        context=torch.where(context, inputs.context, torch.nan),
        observed=inputs.observed & context,
        history=torch.where(history, inputs.history, torch.nan),
        history_observed=inputs.history_observed & history,
    )
