"""Experts: forecasts with a closed form, weighed by their own errors at earlier cutoffs of the series.

    history ─▶ fill gaps ─▶ experts at the cutoff                    ─▶ forecasts   [R, H, E]
                        └─▶ experts at four earlier cutoffs − truth ─▶ error [R, E] ─▶ weights, unit of bands

The weights of a lead are the softmax of −s · (error / least error − 1), which tends to equal weights where
few earlier cutoffs are known, less t times the same of the errors of that lead on training windows, where
these are many, with a history cut to one as short (in the classes of `Experts.longest`). Training windows
choose s and t near 6 and 12. An error counts only leads up to the cutoff of the window. All experts commute
with y → a·y + b, but for `tsb`, which commutes with a only and is used on intermittent channels alone.

Axes: B batch · C channel · R row, a channel of a window · T history · J cutoff, the window's own last ·
H lead · L class of history, or a lead that is scored · E expert · Q quantile level · F feature of statics ·
G feature of a step · N calendar cycle · X known number · Y known category · K static category · S static number.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from forecaster.config import Expert, ModelPlan
from forecaster.model.arx import ArxForecast
from forecaster.model.channels import few_categories, fold, indicators, repeat_channels
from forecaster.model.closed_forms import ClosedForms, taken
from forecaster.model.embedding import Shape
from forecaster.model.linear import HARMONICS, LinearForecast
from forecaster.model.positions import phase_sinusoids, step_of_cycle
from forecaster.model.scaling import ContextScaler, Scale
from forecaster.windows.batch import Inputs

CUTOFFS = 4
"""Earlier cutoffs at which experts are compared."""
SHARPNESS = (6.0, 12.0)
"""Of the weights by errors at earlier cutoffs, and by those on training windows, before windows choose: an
expert whose error at earlier cutoffs is a sixth larger than the least has e⁻¹ of its weight."""
_LEADS = 12  # at most, at which earlier forecasts are scored
_SOME = 8  # steps that are a short history where there is no season
_SCATTER = 4.0  # cutoffs that the distance of neighbouring seasons counts as, in the unit of bands
_FARTHEST_LEVEL = 4.0  # of the logarithm of a level from that of its channel: statics may be far off
_LEAST_UNIT = 0.01  # spreads of the context
_TINY = 1e-6
_MOST_LOGIT = 30.0
_FARTHEST = 1e6  # spreads: squares of 1e20 are none in float32, and e⁻³⁰ of 1e15 still moves a mean


SEASONAL: tuple[Expert, ...] = ("seasonal_naive", "seasonal_mean", "growing_season")
SECOND: tuple[Expert, ...] = ("second_naive", "second_mean")
GENERAL = tuple(
    name for name in get_args(Expert) if name not in (*SEASONAL, *SECOND, "tsb", "linear", "arx")
)
"""Experts of any table; those above are of a season, and of a second one."""


def check_experts(config: ModelPlan) -> None:
    """Raises a ValueError for a stored plan whose experts have no season, or too short a history."""
    (season, second), names = config.seasons, {*config.experts}
    back = CUTOFFS * config.cutoff_spacing
    window = max(config.lookbacks or (1,))
    needed = [
        ("seasons", season > 1, SEASONAL),
        ("seasons", second > 0, SECOND),
        ("memory", config.memory >= 3 * season, ["growing_season"]),
        ("memory", config.memory >= 2 * season, config.experts),
        ("drivers", config.drivers, ["arx"]),
        ("lookbacks", config.lookbacks, ["linear", "arx"]),
        ("linear_lags", max((0, *config.linear_lags)) <= config.context_length, ["linear", "arx"]),
        (
            "history_length",
            config.history_length >= max(config.memory, second) + back,
            config.experts,
        ),
        ("context_length", config.context_length >= window + back, ["linear", "arx"]),
    ]
    for setting, suits, those in needed:
        if not suits and (lacking := names.intersection(those)):
            found = getattr(config, setting)
            raise ValueError(f"{setting} {found} does not suit experts {', '.join(sorted(lacking))}")


ADDED = ("cold_share", "profile")
"""Buffers that an artifact of this format may lack: it was written before they were there."""


class Pool(NamedTuple):
    """Forecasts of the experts of each row, scaled units."""

    forecasts: Tensor
    """[R, H, E]"""
    error: Tensor
    """[R, E] mean absolute error at earlier cutoffs; 0 where none is known."""
    formed: Tensor
    """[R, E] whether there is history enough for the expert."""
    worse: Tensor
    """[R, E] `error` over the least − 1, shrunk to 0 where few earlier cutoffs are known."""
    of_table: Tensor
    """[R, H, E] the same of errors on training windows."""
    sharpness: Tensor
    """[R, 2] of the weights by `worse`, and by `of_table`."""
    known: Tensor
    """[R] earlier cutoffs that `error` is of, a partly known one as a fraction."""
    scatter: Tensor
    """[R] mean distance of values one season apart."""
    bucket: Tensor
    """[R] int64 class of the length of history (`Experts.longest`)."""
    width: Tensor
    """[R, H] of the bands of the row's channel, at the phase of each lead, relative to others."""

    @property
    def weights(self) -> Float[Tensor, "R H E"]:
        """They sum to 1; 0: the expert cannot be formed."""
        own, of_table = self.sharpness[..., None].unbind(dim=1)
        logits = -(own * self.worse)[:, None] - of_table[..., None] * self.of_table
        logits = logits.clamp(min=-_MOST_LOGIT)
        return logits.masked_fill(~self.formed[:, None], -torch.inf).softmax(dim=-1)

    def mean(self) -> tuple[Float[Tensor, "R H"], Float[Tensor, " R"]]:
        """Returns the weighted mean of the experts, and that of their errors."""
        weights = self.weights
        return (weights * self.forecasts).sum(dim=-1), (weights.mean(dim=1) * self.error).sum(dim=-1)

    def unit(self, error: Float[Tensor, " R"]) -> Float[Tensor, "R H"]:
        """Returns the unit of the quantiles of a forecast with such an error."""
        mixed = (self.known * error + _SCATTER * self.scatter) / (self.known + _SCATTER)
        return mixed.clamp(min=_LEAST_UNIT)[:, None] * self.width


class Filled(NamedTuple):
    """The history of each row, scaled units."""

    values: Tensor
    """[R, T] without gaps."""
    apart: Tensor
    """[R, T] as observed."""
    observed: Tensor
    """[R, T]"""
    own: Tensor
    """[R] steps since the first observation."""


class Experts(nn.Module):
    """The pool of experts of a table, and the quantiles of their residuals."""

    def __init__(self, config: ModelPlan, shape: Shape):
        super().__init__()
        self.names, self.horizon = config.experts, shape.horizon
        self.season, self.second = config.seasons
        self.phases = config.band_phases
        self.spacing, self.memory = config.cutoff_spacing, config.memory
        self.reach = CUTOFFS * self.spacing
        self.closed_forms = ClosedForms(config)
        self.linear = LinearForecast(config, shape) if config.has_linear else None
        self.arx = ArxForecast(config, shape) if "arx" in self.names else None
        self.only: str | None = None
        """The one expert that forecasts without a network; None = all, weighted."""
        leads = np.linspace(0, shape.horizon - 1, min(_LEADS, shape.horizon)).round()
        self._scored = sorted({int(lead) for lead in leads})
        some = max(self.season, _SOME)
        self.longest = (0, 1, 2, 4, *((_SOME,) if some > _SOME else ()), some, 3 * some)
        """Steps of history up to which a row is of class 0, 1, …; longer ones are of the last class, L − 1."""
        normal = [NormalDist().inv_cdf(level) for level in config.quantile_levels]
        wider = [3.0] * 3 + [1.5] * (len(self.longest) - 4) + [1.25] * 2
        # Arithmetic of torch's would load its compiler where parameters are only counted, half a second.
        initial = torch.tensor(np.multiply.outer(wider, normal).tolist())[:, None, None]
        self.initial = nn.Buffer(initial, persistent=False)
        """[L, 1, 1, Q] `offsets` where no residuals are known."""
        classes, count = len(self.longest) + 1, len(self.names)
        self.offsets = nn.Buffer(torch.empty(classes, 1 + count, shape.horizon, len(normal)))
        """[L, 1 + E, H, Q] quantiles of the residuals in units of `Pool.unit`, rising around 0, for each
        class of history: first those of the weighted mean, then those of each expert alone."""
        self.width = nn.Buffer(torch.empty(shape.channels + 1, self.phases))
        """[C + 1, phase] of the bands of a channel at a phase of the season, relative to all others."""
        self.worse = nn.Buffer(torch.empty(classes, shape.horizon, count))
        """[L, H, E] error on the training windows over the least − 1, shrunk to 0 where these are few: on
        those whose history is cut to each class."""
        self.sharpness = nn.Buffer(torch.empty(classes, len(SHARPNESS)))
        """[L, 2] of the weights, for each class of history: by the row's own errors and by `worse`."""
        self.reset_errors()
        self.intermittent = nn.Buffer(torch.zeros(shape.channels + 1, dtype=torch.bool))
        """[C + 1] whether the training rows of a channel are counts with zeros; code 0 = any other."""
        # A static with more tells the level of no series but those it knows.
        self._statics = few_categories(shape.static_categories)
        sizes = 1 + shape.static + sum(self._statics)
        self.cold_level = nn.Buffer(torch.zeros(shape.channels + 1, sizes).double())
        """[C + 1, F] level of a series without history per feature of `statics`: in data units, or where there
        is a `cold_share` the logarithm of the level over that of the channel."""
        self.cold_scale = nn.Buffer(torch.zeros(shape.channels + 1).double())
        """[C + 1] its spread; 0 = it cannot be forecast: too few series had a level to learn from."""
        self.cold_share = nn.Buffer(torch.zeros(shape.channels + 1).double())
        """[C + 1] the spread as a share of the level, of channels that are always positive; 0 = any other."""
        self._known = few_categories(shape.known_categories)
        sizes = 1 + 2 * HARMONICS * shape.cycles + shape.known + sum(self._known)
        self.profile = nn.Buffer(torch.zeros(shape.channels + 1, sizes))
        """[C + 1, G] how far a series without history is from its level per feature of `steps`, in spreads;
        0 = the experts forecast it."""

    def forward(
        self,
        inputs: Inputs,
        scale: Scale,
        scaler: ContextScaler,
        known: Float[Tensor, "B T X"],
        time: Int[Tensor, " B"] | None = None,
    ) -> Pool:
        """Returns the forecasts and earlier errors of all experts.

        `scaler`: that of the network. `known`: standardised known covariates, 0 where missing. `time`: of
        the cutoffs of training windows, which are forecast by maps solved without their block of time.
        """
        filled, apart, observed, own = self.filled(inputs, scale)
        zero = scale.apply(torch.zeros_like(inputs.context[:, :1])).flatten()
        shifts = [n * self.spacing for n in range(CUTOFFS, 0, -1)]
        cutoffs = (([0], [*range(self.horizon)]), (shifts, self._scored))
        stacks, linear = [], self.linear
        maps = [] if linear is None else linear.forecast(inputs, scale, known, time, cutoffs)
        for number, (back, at) in enumerate(cutoffs):
            found = self.closed_forms(filled, own, zero, back, at)
            if linear is not None:
                found["linear"] = maps[number]
            if linear is not None and self.arx is not None:
                block = None
                if time is not None and linear.held_out:
                    block = linear.held_out[0].block(linear.times(inputs, time, back))
                found["arx"] = self.arx(inputs, scale, scaler, filled, maps[number], back, at, block)
            stacks.append(torch.stack([found[name] for name in self.names]))
        now, before = stacks  # [E, R, J, L]
        truth, there = self._truth(apart, observed, shifts)
        error, count = self._errors(before, truth, there, own, shifts)
        formed = self._formed(inputs, own)
        least = torch.where(formed, error, torch.inf).amin(dim=1, keepdim=True)
        worse = (error + _TINY) / (least + _TINY) - 1
        trust = (count / (count + 1))[:, None]
        bucket = (own[:, None] > torch.tensor(self.longest, device=own.device)).sum(dim=1)
        width = self.width[inputs.channel.flatten()[:, None], self.phases_of(inputs)]
        forecasts = self._with_profiles(now[:, :, 0].permute(1, 2, 0), inputs, known)
        of_table = (self.worse[bucket], self.sharpness[bucket])
        scatter = self._scatter(filled, own)
        return Pool(forecasts, error, formed, worse * trust, *of_table, count, scatter, bucket, width)

    def reset_errors(self) -> None:
        """Resets what is learned of errors on training windows: as where none is known."""
        self.offsets.copy_(self.initial.expand_as(self.offsets))
        self.width.fill_(1.0)
        self.worse.zero_()
        self.sharpness.copy_(torch.tensor(SHARPNESS, device=self.sharpness.device))

    def phases_of(self, inputs: Inputs) -> Int[Tensor, "R H"]:
        """Returns the part of the season, of `band_phases`, in which each lead lies."""
        length, channels = inputs.context.shape[1:]
        if self.phases == 1:
            return inputs.channel.new_zeros((1, 1)).expand(inputs.channel.numel(), self.horizon)
        leads = torch.arange(1, self.horizon + 1, device=inputs.channel.device)
        cutoff = step_of_cycle(inputs.phase[:, length - 1, :1], self.season)
        part = (cutoff + leads) % self.season * self.phases // self.season
        return repeat_channels(part, channels)

    def brief(self, inputs: Inputs) -> Bool[Tensor, "B C"]:
        """Returns whether the history of a channel is at most a season, of which networks see little."""
        seen, season = inputs.history_observed, self.longest[-2]
        return ~seen[:, : max(0, seen.shape[1] - season) or None].any(dim=1)

    def cold(self, inputs: Inputs) -> Bool[Tensor, "B C"]:
        """Returns whether a channel has no history, and its level is that of `cold_level`."""
        seen = inputs.observed.any(dim=1)
        if torch.compiler.is_exporting() or not bool(seen.all()):
            seen = seen | inputs.history_observed.any(dim=1)
        return ~seen & (self.cold_scale[inputs.channel] > 0)

    def statics(self, codes: Int[Tensor, "B K"], numbers: Float[Tensor, "B S"]) -> Float[Tensor, "B F"]:
        """Returns 1, the standardised static numbers, and 1 for the category of each static."""
        kinds = indicators(codes, self._statics)
        # Not len(): a graph would keep the size of the batch.
        return torch.cat([numbers.new_ones((numbers.shape[0], 1)), numbers, *kinds], dim=1)

    def steps(
        self, phase: Float[Tensor, "B T N"], known: Float[Tensor, "B T X"], codes: Int[Tensor, "B T Y"]
    ) -> Float[Tensor, "B T G"]:
        """Returns 1, harmonics of the calendar cycles, standardised known numbers and known categories."""
        one = known.new_ones((*known.shape[:-1], 1))
        kinds = indicators(codes, self._known)
        return torch.cat([one, phase_sinusoids(phase, HARMONICS), known, *kinds], dim=-1)

    def _with_profiles(
        self, forecasts: Float[Tensor, "R H E"], inputs: Inputs, known: Float[Tensor, "B T X"]
    ) -> Float[Tensor, "R H E"]:
        """Returns the forecasts, in series without history those of steps alike of other series."""
        profile = self.profile[inputs.channel]
        cold = self.cold(inputs) & profile.any(dim=2)
        if not torch.compiler.is_exporting() and not bool(cold.any()):
            return forecasts
        ahead = slice(inputs.context.shape[1], None)
        steps = self.steps(inputs.phase[:, ahead], known[:, ahead], inputs.known_category[:, ahead])
        found = fold(steps @ profile.transpose(1, 2))
        found = F.pad(found, (0, 0, 0, self.horizon - found.shape[1]))
        return torch.where(cold.flatten()[:, None, None], found, forecasts)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *others: Any) -> None:
        for name in ADDED:
            state.setdefault(f"{prefix}{name}", getattr(self, name))
        super()._load_from_state_dict(state, prefix, *others)

    def begun(self, inputs: Inputs, scale: Scale, numbers: Float[Tensor, "B S"]) -> Scale:
        """Returns the scale of windows, that of a series without history from its statics."""
        cold = self.cold(inputs)
        if not torch.compiler.is_exporting() and not bool(cold.any()):
            return scale
        features = self.statics(inputs.static_category, numbers).double()[..., None]
        level = (self.cold_level[inputs.channel] @ features)[..., 0]
        spread, share = self.cold_scale[inputs.channel], self.cold_share[inputs.channel]
        times = level.clamp(-_FARTHEST_LEVEL, _FARTHEST_LEVEL).exp()
        level = torch.where(share > 0, spread / share * times, level)
        own = (level, torch.zeros_like(scale.loc), torch.where(share > 0, spread * times, spread))
        return Scale(*(torch.where(cold, *both) for both in zip(own, scale, strict=True)))

    def filled(self, inputs: Inputs, scale: Scale) -> Filled:
        """Returns the history in scaled units, with and without gaps."""
        observed = fold(inputs.history_observed)[..., 0]
        apart = fold(scale.apply(inputs.history))[..., 0].clamp(-_FARTHEST, _FARTHEST)
        if torch.compiler.is_exporting():
            values, own = fill(apart, observed, self.season)
        else:
            values, own = apart, torch.full_like(observed[:, 0], observed.shape[1], dtype=torch.int64)
            some = (~observed.all(dim=1)).nonzero()[:, 0]
            if len(some):
                values = apart.clone()
                values[some], own[some] = fill(apart[some], observed[some], self.season)
        return Filled(values, apart, observed, own)

    def quantiles(self, pool: Pool) -> Float[Tensor, "R H Q"]:
        """Returns the quantiles of the weighted mean, or of the only expert, scaled units."""
        (center, error), number = pool.mean(), 0
        if self.only is not None:
            own = self.names.index(self.only)
            center, error, number = pool.forecasts[..., own], pool.error[:, own], 1 + own
        offsets = self.offsets[pool.bucket, number]
        return center[..., None] + pool.unit(error)[..., None] * offsets

    def _truth(
        self, apart: Tensor, observed: Tensor, shifts: list[int]
    ) -> tuple[Float[Tensor, "R J L"], Bool[Tensor, "R J L"]]:
        """What followed earlier cutoffs, and where that was observed up to the window's cutoff."""
        end = apart.shape[1]
        at = end - torch.tensor(shifts)[:, None] + torch.tensor(self._scored)
        at, inside = at.clamp(max=end - 1).to(apart.device), (at < end).to(apart.device)
        return taken(apart, at), taken(observed, at) & inside

    def _errors(
        self, before: Tensor, truth: Tensor, there: Tensor, own: Tensor, shifts: list[int]
    ) -> tuple[Float[Tensor, "R E"], Float[Tensor, " R"]]:
        """Mean absolute error of each expert, and the number of cutoffs it is of."""
        least = max(2, self.season)  # steps of own history that a cutoff needs to be compared at
        enough = own[:, None] - torch.tensor(shifts, device=own.device) >= least
        counts = (there & enough[..., None]).float()
        missed = (before - torch.where(counts > 0, truth, 0.0)).abs() * counts
        cells = counts.sum(dim=(1, 2))
        error = missed.sum(dim=(2, 3)).T / cells.clamp(min=1)[:, None]
        return error, cells / truth.shape[2]

    def _formed(self, inputs: Inputs, own: Int[Tensor, " R"]) -> Bool[Tensor, "R E"]:
        """Whether the history of a row is long enough for an expert."""
        least = dict.fromkeys(SEASONAL, self.season) | dict.fromkeys(SECOND, self.second)
        least |= {"growing_season": 3 * self.season, "tsb": 1}
        formed = own[:, None] >= torch.tensor(
            [least.get(name, 0) for name in self.names], device=own.device
        )
        suited = {"tsb": self.intermittent} | ({} if self.arx is None else {"arx": self.arx.used})
        for name, channels in suited.items():
            at = torch.tensor([other == name for other in self.names], device=own.device)
            formed = formed & (channels[inputs.channel].flatten()[:, None] | ~at)
        return formed | ~formed.any(dim=1, keepdim=True)

    def _scatter(self, filled: Float[Tensor, "R T"], own: Int[Tensor, " R"]) -> Float[Tensor, " R"]:
        """Mean distance of values one season apart; of neighbours where there is no such pair."""
        found = torch.ones_like(filled[:, 0])
        for lag in (1, self.season):
            span = min(self.memory, filled.shape[1] - lag)
            late = filled[:, -span:] - filled[:, -span - lag : -lag]
            pairs = (own - lag).clamp(0, span)
            there = torch.arange(span, device=own.device) >= span - pairs[:, None]
            mean = (late.abs() * there).sum(dim=1) / pairs.clamp(min=1)
            found = torch.where(pairs > 0, mean, found)
        return found


def fill(
    values: Float[Tensor, "R T"], observed: Bool[Tensor, "R T"], period: int
) -> tuple[Float[Tensor, "R T"], Int[Tensor, " R"]]:
    """Returns values without gaps, and the steps of each row since its first observation.

    A gap takes the value one period before, else the last one. Before the first observation the first
    period is repeated, or the mean where there is less than a period; 0 where nothing is observed.
    """
    steps, exporting = values.shape[1], torch.compiler.is_exporting()
    first = observed.float().argmax(dim=1)
    own = steps - torch.where(observed.any(dim=1), first, steps)
    values = torch.where(observed, values, torch.nan)
    place = torch.arange(steps, device=values.device)
    for lag in (period, 1):
        while lag < steps:
            missing = values.isnan()
            if not exporting and not bool((missing.sum(dim=1) > steps - own).any()):
                break
            values = torch.where(missing, F.pad(values[:, :-lag], (lag, 0), value=torch.nan), values)
            lag *= 2
    longest = steps if exporting else int(first.max())  # before a first observation
    if longest:
        place, short = place[:longest], own < period
        early = place < first[:, None]
        mean = values.nan_to_num().sum(dim=1) / own.clamp(min=1)
        whole = torch.where(short, 1, period)[:, None]
        # In float32, which is exact here: whole numbers take five times as long to divide.
        periods = ((place - first[:, None]).float() / whole).floor().long()
        before = values.gather(1, place - periods * whole)
        before = torch.where(short[:, None], mean[:, None], before)
        before = torch.where(early, before, values[:, :longest])
        values = torch.cat([before, values[:, longest:]], dim=1)
    if exporting or bool((own == 0).any()):
        values = torch.where(values.isnan(), 0.0, values)
    return values, own


def truncated(inputs: Inputs, steps: Int[Tensor, " B"]) -> Inputs:
    """Returns windows without what is further back than some steps, as if series had begun there."""

    def late(length: int) -> Bool[Tensor, "B T 1"]:
        age = torch.arange(length - 1, -1, -1, device=steps.device)
        return (age < steps[:, None])[..., None]

    context, history = late(inputs.context.shape[1]), late(inputs.history.shape[1])
    return replace(
        inputs,
        context=torch.where(context, inputs.context, torch.nan),
        observed=inputs.observed & context,
        history=torch.where(history, inputs.history, torch.nan),
        history_observed=inputs.history_observed & history,
    )
