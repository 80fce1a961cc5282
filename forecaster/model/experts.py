"""Experts: forecasts with a closed form, weighed by their own errors at earlier cutoffs of the series.

    history ─▶ fill gaps ─▶ experts at the cutoff                    ─▶ forecasts   [R, H, E]
                        └─▶ experts at eight earlier cutoffs − truth ─▶ error [R, E] ─▶ weights, unit of bands

A weight is the softmax of −6 · (error / least error − 1), which tends to equal weights where few earlier
cutoffs are known, less the same of the errors on all training windows times 12, where these are many. An
error counts only leads up to the cutoff of the window. All experts commute with
y → a·y + b, but for `tsb`, which commutes with a only and is used on intermittent channels alone.

Axes: B batch · C channel · R row, a channel of a window · T history · K memory of an expert · J cutoff,
the window's own last · S season · H lead · E expert · P ETS candidate · Q quantile level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor, nn

from forecaster.config import Expert, ModelPlan
from forecaster.model.arx import ArxForecast
from forecaster.model.channels import fold, repeat_channels
from forecaster.model.embedding import Shape
from forecaster.model.linear import LinearForecast, relative
from forecaster.model.scaling import ContextScaler, Scale
from forecaster.windows.batch import Inputs

CUTOFFS = 8
"""Earlier cutoffs at which experts are compared."""
SEASONS = 6
"""Seasons that a growing season is estimated from; a memory holds as many where history allows."""
SHARPNESS = 6.0
"""Of the weights: an expert whose error is a sixth larger than the least has e⁻¹ of its weight."""
TABLE_SHARPNESS = 12.0
"""The same for errors on the training windows."""
PERIODS = 3
"""Seasons that a seasonal mean averages."""
_LEADS = 12  # at most, at which earlier forecasts are scored
_LEVELS = (0.1, 0.3, 0.8)
ETS_SEASON = 52
"""Longest season that ETS smooths."""
_AS_NEAR = 1e-3  # relative; errors of ETS candidates this close count as equal
_ONE_STEP = 16  # steps before a cutoff whose one-step errors choose an ETS candidate
_SOME = 8  # steps that are a short history where there is no season
_WIDER = (
    3.0,
    3.0,
    3.0,
    1.5,
    1.25,
    1.25,
)  # of the unit, for a standard normal: where no residuals are known
_SCATTER = 8.0  # cutoffs that the distance of neighbouring seasons counts as, in the unit of bands
_LEAST_UNIT = 0.01  # spreads of the context
_TINY = 1e-6
_MOST_LOGIT = 30.0
_MOST_CATEGORIES = 32  # a static with more tells the level of no series but those it knows
_FARTHEST = 1e6  # spreads: squares of 1e20 are none in float32, and e⁻³⁰ of 1e15 still moves a mean


class Smoothing(NamedTuple):
    """Parameters of exponential smoothing: of level, trend, damping of the trend, and season."""

    level: float
    trend: float = 0.0
    damping: float = 1.0
    season: float = 0.0


DAMPED = Smoothing(0.3, 0.015, 0.95)
ETS = tuple(
    Smoothing(level, trend * level, damping, 0.1)
    for level in (0.1, 0.4, 0.9)
    for trend, damping in ((0.0, 1.0), (0.1, 0.95))
)
"""Candidates of the expert `ets`."""

GENERAL: tuple[Expert, ...] = (
    "naive",
    "drift",
    "long_mean",
    "level_0.1",
    "level_0.3",
    "level_0.8",
    "damped_trend",
    "theta",
    "ets",
)
SEASONAL: tuple[Expert, ...] = ("seasonal_naive", "seasonal_mean", "growing_season")
SECOND: tuple[Expert, ...] = ("second_naive", "second_mean")
"""Experts of any table, of a season, and of a second one; `tsb` and `linear` are the others."""


class Pool(NamedTuple):
    """Forecasts of the experts of each row, scaled units."""

    forecasts: Tensor
    """[R, H, E]"""
    error: Tensor
    """[R, E] mean absolute error at earlier cutoffs; 0 where none is known."""
    logits: Tensor
    """[R, E] of the weights; −inf: the expert cannot be formed."""
    known: Tensor
    """[R] earlier cutoffs that `error` is of, a partly known one as a fraction."""
    scatter: Tensor
    """[R] mean distance of values one season apart."""
    bucket: Tensor
    """[R] int64 class of the length of history (`Experts.longest`)."""
    width: Tensor
    """[R] of the bands of the row's channel relative to others."""

    @property
    def weights(self) -> Float[Tensor, "R E"]:
        """They sum to 1."""
        return self.logits.softmax(dim=-1)

    def mean(self) -> Float[Tensor, "R H"]:
        """Returns the weighted mean of the experts."""
        found: Tensor = (self.weights[:, None] * self.forecasts).sum(dim=-1)
        return found

    def mean_error(self) -> Float[Tensor, " R"]:
        """Returns the weighted mean of their errors."""
        found: Tensor = (self.weights * self.error).sum(dim=-1)
        return found

    def unit(self, error: Float[Tensor, " R"]) -> Float[Tensor, " R"]:
        """Returns the unit of the quantiles of a forecast with such an error."""
        mixed = (self.known * error + _SCATTER * self.scatter) / (self.known + _SCATTER)
        return mixed.clamp(min=_LEAST_UNIT) * self.width


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
        self.spacing, self.memory = config.cutoff_spacing, config.memory
        self.reach = CUTOFFS * self.spacing
        self.linear = LinearForecast(config, shape) if config.has_linear else None
        self.arx = ArxForecast(config, shape) if "arx" in self.names else None
        self.only: str | None = None
        """The one expert that forecasts without a network; None = all, weighted."""
        leads = np.unique(np.linspace(0, shape.horizon - 1, min(_LEADS, shape.horizon)).round())
        self._scored = leads.astype(np.int64).tolist()
        some = max(self.season, _SOME)
        self.longest = (0, 1, 2, some, 3 * some)
        """Steps of history up to which a row is of class 0, 1, …, 4; longer ones are of class 5."""
        normal = torch.tensor([NormalDist().inv_cdf(level) for level in config.quantile_levels])
        self.offsets: Tensor
        """[6, 1 + E, H, Q] quantiles of the residuals in units of `Pool.unit`, rising around 0, for each
        class of history: first those of the weighted mean, then those of each expert alone."""
        initial = torch.tensor(_WIDER)[:, None, None, None] * normal
        self.initial: Tensor
        self.register_buffer("initial", initial, persistent=False)
        offsets = initial.expand(-1, 1 + len(self.names), shape.horizon, -1)
        self.register_buffer("offsets", offsets.clone())
        self.width: Tensor
        """[C + 1] of the bands of a channel relative to the others'."""
        self.register_buffer("width", torch.ones(shape.channels + 1))
        self.worse: Tensor
        """[E] error on the training windows over the least − 1, shrunk to 0 where these are few."""
        self.register_buffer("worse", torch.zeros(len(self.names)))
        self.intermittent: Tensor
        """[C + 1] whether the training rows of a channel are counts with zeros; code 0 = any other."""
        self.register_buffer("intermittent", torch.zeros(shape.channels + 1, dtype=torch.bool))
        self._statics = tuple(
            size if size <= _MOST_CATEGORIES else 0 for size in shape.static_categories
        )
        sizes = 1 + shape.static + sum(self._statics)
        self.cold_level: Tensor
        """[C + 1, F] level of a series without history per feature of `statics`, data units."""
        self.register_buffer("cold_level", torch.zeros(shape.channels + 1, sizes).double())
        self.cold_scale: Tensor
        """[C + 1] its spread; 0 = it cannot be forecast: too few series had a level to learn from."""
        self.register_buffer("cold_scale", torch.zeros(shape.channels + 1).double())
        # The matrices of what linear experts do to a history, by name; they follow from the config.
        self.filters = Filters(self._filters())

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
        leads = torch.arange(self.horizon, device=filled.device)
        now = self._stacked(inputs, scale, filled, own, [0], leads)[:, 0]
        shifts = [n * self.spacing for n in range(CUTOFFS, 0, -1)]
        scored = leads[self._scored]
        before = self._stacked(inputs, scale, filled, own, shifts, scored)
        if self.linear is not None:
            every = [*range(self.horizon)]
            for back, at, found in (([0], every, now[:, None]), (shifts, self._scored, before)):
                mapped = self._mapped(inputs, scale, scaler, known, filled, back, at, time)
                for name, forecast in mapped.items():
                    if name in self.names:
                        found[..., self.names.index(name)] = forecast
        truth, there = self._truth(apart, observed, shifts, scored)
        error, count = self._errors(before, truth, there, own, shifts)
        formed = self._formed(inputs, own)
        least = torch.where(formed, error, torch.inf).amin(dim=1, keepdim=True)
        worse = (error + _TINY) / (least + _TINY) - 1
        trust = (count / (count + 1))[:, None]
        logits = -SHARPNESS * trust * worse - TABLE_SHARPNESS * self.worse
        logits = logits.clamp(min=-_MOST_LOGIT)
        logits = torch.where(formed, logits, -torch.inf)
        bucket = (own[:, None] > torch.tensor(self.longest, device=own.device)).sum(dim=1)
        width = self.width[inputs.channel].flatten()
        return Pool(now, error, logits, count, self._scatter(filled, own), bucket, width)

    def cold(self, inputs: Inputs) -> Bool[Tensor, "B C"]:
        """Returns whether a channel has no history, and is forecast without."""
        seen = inputs.observed.any(dim=1) | inputs.history_observed.any(dim=1)
        return ~seen & (self.cold_scale[inputs.channel] > 0)

    def statics(self, codes: Int[Tensor, "B K"], numbers: Float[Tensor, "B S"]) -> Float[Tensor, "B F"]:
        """Returns 1, the standardised static numbers, and 1 for the category of each static."""
        kinds = [
            F.one_hot(code.clamp(max=size), size + 1)[:, 1:]
            for code, size in zip(codes.unbind(dim=1), self._statics, strict=True)
            if size
        ]
        return torch.cat([numbers.new_ones((len(numbers), 1)), numbers, *kinds], dim=1)

    def begun(self, inputs: Inputs, scale: Scale, numbers: Float[Tensor, "B S"]) -> Scale:
        """Returns the scale of windows, that of a series without history from its statics."""
        cold = self.cold(inputs)
        if not torch.compiler.is_exporting() and not bool(cold.any()):
            return scale
        level = (
            self.cold_level[inputs.channel]
            @ self.statics(inputs.static_category, numbers).double()[..., None]
        )
        own = (level[..., 0], torch.zeros_like(scale.loc), self.cold_scale[inputs.channel])
        return Scale(*(torch.where(cold, *both) for both in zip(own, scale, strict=True)))

    def filled(self, inputs: Inputs, scale: Scale) -> Filled:
        """Returns the history in scaled units, with and without gaps."""
        observed = fold(inputs.history_observed)[..., 0]
        apart = fold(scale.apply(inputs.history))[..., 0].clamp(-_FARTHEST, _FARTHEST)
        first = observed.float().argmax(dim=1)
        own = observed.shape[1] - torch.where(observed.any(dim=1), first, observed.shape[1])
        values = fill(torch.where(observed, apart, torch.nan), first, own, self.season)
        return Filled(values, apart, observed, own)

    def _mapped(
        self,
        inputs: Inputs,
        scale: Scale,
        scaler: ContextScaler,
        known: Tensor,
        filled: Tensor,
        shifts: list[int],
        leads: list[int],
        time: Tensor | None,
    ) -> dict[str, Float[Tensor, "R J L"]]:
        """The forecasts of maps solved over training windows, at cutoffs some steps back."""
        linear = self.linear
        assert linear is not None
        unit = linear.units(inputs, scale)
        at = slice(None) if len(leads) == self.horizon else leads
        center = linear.center(inputs, unit, known, time, shifts, at)
        found = {"linear": center * relative(unit, scale)[:, None, None]}
        if self.arx is not None:
            block = None
            if time is not None and linear.held_out:
                back = torch.tensor(shifts, device=time.device) * linear.step
                cutoff = repeat_channels(time, inputs.channel.shape[1])[:, None] - back.round().long()
                block = linear.held_out[0].block(cutoff)
            found["arx"] = self.arx(inputs, scale, scaler, filled, found["linear"], shifts, at, block)
        return found

    def quantiles(self, pool: Pool) -> Float[Tensor, "R H Q"]:
        """Returns the quantiles of the weighted mean, or of the only expert, scaled units."""
        center, error, number = pool.mean(), pool.mean_error(), 0
        if self.only is not None:
            own = self.names.index(self.only)
            center, error, number = pool.forecasts[..., own], pool.error[:, own], 1 + own
        offsets = self.offsets[pool.bucket, number]
        return center[..., None] + pool.unit(error)[:, None, None] * offsets

    def _stacked(
        self,
        inputs: Inputs,
        scale: Scale,
        filled: Float[Tensor, "R T"],
        own: Int[Tensor, " R"],
        shifts: list[int],
        leads: Int[Tensor, " L"],
    ) -> Float[Tensor, "R J L E"]:
        """The forecasts at cutoffs some steps back; those of the linear forecast are left 0."""
        end, memory, season = filled.shape[1], self.memory, self.season
        windows = torch.stack([filled[:, end - memory - s : end - s] for s in shifts], dim=1)
        length = (own[:, None] - torch.tensor(shifts, device=own.device)).clamp(1, memory)
        place = torch.arange(memory, device=own.device)
        there = place >= memory - length[..., None]  # [R, J, K] after the first observation
        steps = (leads + 1).float()
        last = windows[..., -1:]
        found: dict[str, Tensor] = {"naive": last.expand(-1, -1, len(leads))}
        begin = windows.gather(2, (memory - length)[..., None])
        found["drift"] = last + (last - begin) / (length[..., None] - 1).clamp(min=1) * steps
        found["long_mean"] = _mean_by_phase(windows, there, season)[..., leads % season]
        if season > 1:
            blocks = _blocks(windows, season, PERIODS)
            found["seasonal_naive"] = blocks[..., -1, :][..., leads % season]
            found["seasonal_mean"] = blocks.mean(dim=-2)[..., leads % season]
        if "growing_season" in self.names:
            found["growing_season"] = self._growing(windows, leads)
        for name, count in (("second_naive", 1), ("second_mean", PERIODS)):
            if name in self.names:
                count = min(count, (end - shifts[0]) // self.second)
                back = torch.arange(1, count + 1, device=own.device)[:, None] * self.second
                at = end - torch.tensor(shifts, device=own.device)[:, None, None] - back
                found[name] = filled[:, at + leads % self.second].mean(dim=2)
        pattern = _season(windows, length, season)
        ahead = pattern[..., leads % season]
        # One product: thin ones take as long.
        filters = [self.filters["states"]]
        if "ets" in self.names:
            filters.append(self.filters["one_step"].flatten(1))
            filters.append(self.filters["ets"][..., leads].flatten(1))
        products = windows @ torch.cat(filters, dim=1)
        states, *smoothed = products.split([own.shape[1] for own in filters], dim=-1)
        states = states - pattern @ self.filters["pattern"]
        for number, alpha in enumerate(_LEVELS):
            found[f"level_{alpha}"] = states[..., number, None] + ahead
        level, trend, smooth = (states[..., n, None] for n in range(len(_LEVELS), len(_LEVELS) + 3))
        found["damped_trend"] = level + trend * _damped(DAMPED.damping, steps) + ahead
        repeated = pattern.repeat(1, 1, -(-memory // season))[..., -memory:]
        slope = _slope(windows - repeated, there, length)
        found["theta"] = smooth + slope / 2 * steps + ahead
        if "ets" in self.names:
            missed, every = (part.unflatten(-1, (len(ETS), -1)) for part in smoothed)
            missed = missed.abs().mean(dim=-1)
            # The first of equals: after two observations rounding would choose.
            near = missed <= missed.amin(dim=-1, keepdim=True) * (1 + _AS_NEAR) + _TINY
            best = near.float().argmax(dim=-1)[..., None, None]
            found["ets"] = every.gather(2, best.expand(-1, -1, 1, len(leads)))[..., 0, :]
        if "tsb" in self.names:
            zero = scale.apply(torch.zeros_like(inputs.context[:, :1])).flatten()
            found["tsb"] = _tsb(windows, there, zero).expand(-1, -1, len(leads))
        found["linear"] = found["arx"] = torch.zeros_like(found["naive"])
        return torch.stack([found[name] for name in self.names], dim=-1)

    def _growing(
        self, windows: Float[Tensor, "R J K"], leads: Int[Tensor, " L"]
    ) -> Float[Tensor, "R J L"]:
        """A season whose spread changes by one factor a season, on a level that drifts."""
        blocks = _blocks(windows, self.season, SEASONS)
        count, season = blocks.shape[-2:]
        mean = blocks.mean(dim=-1, keepdim=True)
        drift = (mean[..., -1, :] - mean[..., 0, :]) / ((count - 1) * season)  # [R, J, 1] a step
        ramp = torch.arange(season, device=windows.device) - (season - 1) / 2
        rest = blocks - mean - drift[..., None] * ramp
        spread = rest.square().mean(dim=-1).sqrt() + _TINY
        growth = (spread[..., -2:].mean(dim=-1) / spread[..., :2].mean(dim=-1)).pow(
            1 / max(1, count - 2)
        )
        growth = growth.clamp(0.8, 1.25)[..., None]
        shape = (rest / spread[..., None]).mean(dim=-2)
        shape = shape - shape.mean(dim=-1, keepdim=True)
        # The last three spreads, each grown to the last season.
        latest = (spread[..., -3:].log().mean(dim=-1, keepdim=True) + growth.log()).exp()
        age = torch.arange(1 - count, 1, device=windows.device)
        flat = blocks - (latest * growth**age)[..., None] * shape[..., None, :]
        level = flat.flatten(-2) @ self.filters["growing"]
        ahead = latest * growth ** (1 + leads // season) * shape[..., leads % season]
        return level[..., None] + 0.8 * drift * (leads + 1) + ahead

    def _filters(self) -> dict[str, NDArray[np.float64]]:
        """What linear experts do to a unit impulse at each step of the memory: their matrices."""
        impulses, season = np.eye(self.memory), self.season
        level, trend, _ = smooth(impulses, DAMPED, 1)
        averages = [_averages(self.memory, alpha) for alpha in (*_LEVELS, 0.4)]
        states = np.stack([*averages[:-1], level, trend, averages[-1]], axis=1)
        found = {"states": states}
        # The last step of the memory has the last phase of a season.
        phase = (np.arange(self.memory) - self.memory) % season
        found["pattern"] = np.stack([states[phase == n].sum(axis=0) for n in range(season)])
        if "growing_season" in self.names:
            found["growing"] = _averages(min(SEASONS, self.memory // season) * season, 0.3)
        if "ets" in self.names:
            early = self.memory - min(_ONE_STEP, self.memory // 2)
            next_step = [
                smoothed_ahead(smooth(impulses[:early, :early], own, season), own, 1)[:, 0]
                for own in ETS
            ]
            errors = [_prediction_errors(own, self.memory) for own in next_step]
            ahead = [smoothed_ahead(smooth(impulses, own, season), own, self.horizon) for own in ETS]
            found["one_step"], found["ets"] = (np.stack(part, axis=1) for part in (errors, ahead))
        return found

    def _truth(
        self, apart: Tensor, observed: Tensor, shifts: list[int], leads: Tensor
    ) -> tuple[Float[Tensor, "R J L"], Bool[Tensor, "R J L"]]:
        """What followed earlier cutoffs, and where that was observed up to the window's cutoff."""
        end = apart.shape[1]
        at = end - torch.tensor(shifts, device=apart.device)[:, None] + leads
        inside = at < end
        at = at.clamp(max=end - 1)
        return apart[:, at], observed[:, at] & inside

    def _errors(
        self, before: Tensor, truth: Tensor, there: Tensor, own: Tensor, shifts: list[int]
    ) -> tuple[Float[Tensor, "R E"], Float[Tensor, " R"]]:
        """Mean absolute error of each expert, and the number of cutoffs it is of."""
        least = max(2, self.season)  # steps of own history that a cutoff needs to be compared at
        enough = own[:, None] - torch.tensor(shifts, device=own.device) >= least
        counts = (there & enough[..., None]).float()[..., None]
        missed = (before - torch.where(counts[..., 0] > 0, truth, 0.0)[..., None]).abs() * counts
        cells = counts.sum(dim=(1, 2))
        error = missed.sum(dim=(1, 2)) / cells.clamp(min=1)
        return error, cells[:, 0] / truth.shape[2]

    def _formed(self, inputs: Inputs, own: Int[Tensor, " R"]) -> Bool[Tensor, "R E"]:
        """Whether the history of a row is long enough for an expert."""
        least = {"seasonal_naive": 1, "seasonal_mean": 1, "growing_season": 3}
        least = {name: count * self.season for name, count in least.items()} | {"tsb": 1}
        least |= dict.fromkeys(SECOND, self.second)
        formed = own[:, None] >= torch.tensor(
            [least.get(name, 0) for name in self.names], device=own.device
        )
        if "tsb" in self.names:
            demand = self.intermittent[inputs.channel].flatten()[:, None]
            at = torch.tensor([name == "tsb" for name in self.names], device=own.device)
            formed = formed & (demand | ~at)
        if self.arx is not None:
            driven = self.arx.used[inputs.channel].flatten()[:, None]
            at = torch.tensor([name == "arx" for name in self.names], device=own.device)
            formed = formed & (driven | ~at)
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


class Filters(nn.Module):
    """Constant matrices by name."""

    def __init__(self, matrices: Mapping[str, NDArray[np.float64]]):
        super().__init__()
        for name, matrix in matrices.items():
            self.register_buffer(name, torch.from_numpy(matrix).float(), persistent=False)

    def __getitem__(self, name: str) -> Tensor:
        found: Tensor = getattr(self, name)
        return found


def fill(
    values: Float[Tensor, "R T"], first: Int[Tensor, " R"], own: Int[Tensor, " R"], period: int
) -> Float[Tensor, "R T"]:
    """Returns values (NaN = missing) without gaps.

    A gap takes the value one period before, else the last one. Before the first observation the first
    period is repeated, or the first value where there is less than a period; 0 where nothing is observed.
    """
    steps, exporting = values.shape[1], torch.compiler.is_exporting()
    place = torch.arange(steps, device=values.device)
    for lag in (period, 1):
        while lag < steps:
            missing = values.isnan()
            if not exporting and not bool((missing.sum(dim=1) > steps - own).any()):
                break
            values = torch.where(missing, F.pad(values[:, :-lag], (lag, 0), value=torch.nan), values)
            lag *= 2
    if exporting or bool((own < steps).any()):
        whole = torch.where(own >= period, period, 1)[:, None]
        source = (place - first[:, None]).remainder(whole) + first[:, None]
        values = torch.where(place < first[:, None], values.gather(1, source), values)
    if exporting or bool((own == 0).any()):
        values = torch.where(values.isnan(), 0.0, values)
    return values


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


def smooth(
    values: NDArray[np.float64], own: Smoothing, period: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Returns level [N], trend [N] and season [S, N], next step first, after values [K, N].

    With f = l + φ·b + s and e = y − f: l ← l + φ·b + α·e, b ← φ·b + β·e, s ← s + γ·e. A season starts
    from the mean of the first two. Source: Hyndman, Koehler, Ord and Snyder 2008, ETS(A, Ad, A).
    """
    level, trend = values[0].copy(), np.zeros(values.shape[1])
    season = np.zeros((period, values.shape[1]))
    if 1 < period <= len(values) // 2:
        early = values[: 2 * period].reshape(2, period, -1)
        mean = early.mean(axis=1)
        slope = (mean[1] - mean[0]) / period
        season = (early - mean[:, None]).mean(axis=0) - slope * (
            np.arange(period)[:, None] - (period - 1) / 2
        )
        level = mean[0] - slope * period / 2
    for step, value in enumerate(values):
        at = step % period
        ahead = level + own.damping * trend
        error = value - ahead - season[at]
        level, trend = ahead + own.level * error, own.damping * trend + own.trend * error
        if period > 1:
            season[at] += own.season * error
    return level, trend, np.roll(season, -(len(values) % period), axis=0)


def smoothed_ahead(
    state: tuple[NDArray[np.float64], ...], own: Smoothing, horizon: int
) -> NDArray[np.float64]:
    """Returns the forecasts [N, H] of a state of `smooth`."""
    level, trend, season = state
    lead = np.arange(horizon)
    damped = np.cumsum(own.damping ** (lead + 1.0))
    found: NDArray[np.float64] = level[:, None] + trend[:, None] * damped + season[lead % len(season)].T
    return found


def _prediction_errors(weights: NDArray[np.float64], memory: int) -> NDArray[np.float64]:
    """[K, n] the value of each of the last n steps less its forecast from the len(weights) before it."""
    early = len(weights)
    found = np.zeros((memory, memory - early))
    for step in range(memory - early):
        found[step : step + early, step] = -weights
        found[step + early, step] = 1.0
    return found


def _averages(memory: int, alpha: float) -> NDArray[np.float64]:
    weights = (1 - alpha) ** np.arange(memory - 1.0, -1, -1)
    found: NDArray[np.float64] = weights / weights.sum()
    return found


def _blocks(windows: Shaped[Tensor, "R J K"], season: int, most: int) -> Shaped[Tensor, "R J N S"]:
    """The last whole seasons, oldest first."""
    count = min(most, windows.shape[-1] // season)
    blocks: Tensor = windows[..., -count * season :].unflatten(-1, (count, season))
    return blocks


def _season(
    windows: Float[Tensor, "R J K"], length: Int[Tensor, "R J"], season: int
) -> Float[Tensor, "R J S"]:
    """The mean season, without level and drift; 0 where history is shorter than two."""
    if season == 1:
        return torch.zeros_like(windows[..., :1])
    blocks = _blocks(windows, season, SEASONS - 1)
    count = blocks.shape[-2]
    mean = blocks.mean(dim=-1, keepdim=True)
    drift = (mean[..., -1, :] - mean[..., 0, :]) / (max(1, count - 1) * season)
    ramp = torch.arange(season, device=windows.device) - (season - 1) / 2
    pattern = (blocks - mean).mean(dim=-2) - drift * ramp
    return torch.where(length[..., None] >= 2 * season, pattern, 0.0)


def _mean_by_phase(
    windows: Float[Tensor, "R J K"], there: Bool[Tensor, "R J K"], season: int
) -> Float[Tensor, "R J S"]:
    """The mean of each phase over the memory; what repeats the first season counts where that is all."""
    blocks = _blocks(windows, season, windows.shape[-1])
    real = _blocks(there, season, windows.shape[-1]).float()
    count = real.sum(dim=-2)
    mean = (blocks * real).sum(dim=-2) / count.clamp(min=1)
    return torch.where(count > 0, mean, blocks[..., -1, :])


def _slope(
    values: Float[Tensor, "R J K"], there: Bool[Tensor, "R J K"], length: Int[Tensor, "R J"]
) -> Float[Tensor, "R J 1"]:
    """Slope of least squares over the steps that are there."""
    count = length.float()[..., None]
    place = torch.arange(values.shape[-1], device=values.device) - (values.shape[-1] - 1)
    apart = torch.where(there, place + (count - 1) / 2, 0.0)
    return (apart * values).sum(dim=-1, keepdim=True) / (count * (count * count - 1) / 12).clamp(
        min=0.5
    )


def _tsb(
    windows: Float[Tensor, "R J K"], there: Bool[Tensor, "R J K"], zero: Float[Tensor, " R"]
) -> Float[Tensor, "R J 1"]:
    """Probability of demand times its mean size, both smoothed by 0.1.

    Source: Teunter, Syntetos and Babai, "Intermittent demand" (2011), from its limit of a long history.
    """
    keep, zero = 0.9, zero[:, None, None]
    demand = (there & (windows != zero)).float()
    age = torch.arange(windows.shape[-1] - 1, -1, -1, device=windows.device)
    seen = keep**age * there
    later = demand.flip(-1).cumsum(dim=-1).flip(-1) - demand
    size = keep**later * demand
    mean = ((windows - zero) * size).sum(dim=-1) / size.sum(dim=-1).clamp(min=_TINY)
    chance = (seen * demand).sum(dim=-1) / seen.sum(dim=-1).clamp(min=_TINY)
    return zero + (chance * mean)[..., None]


def _damped(damping: float, steps: Float[Tensor, " L"]) -> Float[Tensor, " L"]:
    """φ + φ² + … + φ^k of each number of steps k."""
    return damping * (1 - damping**steps) / (1 - damping)
