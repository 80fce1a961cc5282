"""Experts with a closed form: naive, seasonal, drift, exponential smoothing, Theta and intermittent demand.

Each reads the history of a row alone, at the window's cutoff and at earlier ones. What is linear in a long
history is a product with a matrix: its answers to a unit impulse at each step.

Axes: R row, a channel of a window · T history · K memory of an expert · J cutoff · S season · N seasons ·
L lead · P ETS candidate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor, nn

from forecaster.config import ModelPlan

Windows = Float[Tensor, "R J K"]
Lengths = Int[Tensor, "R J"]
"""Steps of a window since the first observation."""
Forecasts = dict[str, Float[Tensor, "R J L"]]
"""By expert."""

SEASONS = 6
"""Seasons that a growing season is estimated from; a memory holds as many where history allows."""
PERIODS = 3
"""Seasons that a seasonal mean averages."""
_LEVELS = (0.1, 0.3, 0.8)
ETS_SEASON = 52
"""Longest season that ETS smooths."""
_AS_NEAR = 1e-3  # relative; errors of ETS candidates this close count as equal
_ONE_STEP = 8  # steps before a cutoff whose one-step errors choose an ETS candidate
_KEEP = 0.9  # of a step, or of a demand, in the next: of `tsb`
_TINY = 1e-6


class Smoothing(NamedTuple):
    """Parameters of exponential smoothing: of level, trend, damping of the trend, and season."""

    level: float
    trend: float = 0.0
    damping: float = 1.0
    season: float = 0.0


class Seasons(NamedTuple):
    """The last whole seasons of a history, oldest first."""

    blocks: Tensor
    """[R, J, N, S]"""
    rest: Tensor
    """[R, J, N, S] without their own means and the drift of these."""
    drift: Tensor
    """[R, J, 1] of the means, a step."""


DAMPING = 0.95
DAMPED = Smoothing(0.3, 0.015, DAMPING)
ETS = tuple(
    Smoothing(level, trend * level, damping, 0.1)
    for level in (0.1, 0.5)
    for trend, damping in ((0.0, 1.0), (0.1, DAMPING))
)
"""Candidates of the expert `ets`."""


class ClosedForms(nn.Module):
    """The experts that need no solving."""

    def __init__(self, config: ModelPlan):
        super().__init__()
        self.names, self.memory = config.experts, config.memory
        self.season, self.second = config.seasons
        # Matrices of what linear experts do to a history, by name; they follow from the config.
        self.filters = nn.Module()
        for name, matrix in self._filters().items():
            self.filters.register_buffer(name, torch.from_numpy(matrix).float(), persistent=False)

    def forward(
        self,
        filled: Float[Tensor, "R T"],
        own: Int[Tensor, " R"],
        zero: Float[Tensor, " R"],
        shifts: list[int],
        which: list[int],
    ) -> Forecasts:
        """Returns the forecasts of some leads at cutoffs some steps back.

        Args:
            filled: history without gaps, scaled units.
            own: steps since the first observation.
            zero: 0 in scaled units.
            shifts: steps back.
            which: leads; 0 = the step after the cutoff.
        """
        end, memory, season = filled.shape[1], self.memory, self.season
        leads = torch.tensor(which, device=own.device)

        def cut(history: Float[Tensor, "R T"]) -> Windows:
            return torch.stack([history[:, end - memory - s : end - s] for s in shifts], dim=1)

        windows = cut(filled)
        length = (own[:, None] - torch.tensor(shifts, device=own.device)).clamp(1, memory)
        there = torch.arange(end, device=own.device) >= end - own[:, None]
        seen = cut(torch.where(there, filled, 0.0))  # 0 before the first observation
        steps, phase = (leads + 1).float(), leads % season
        last = windows[..., -1:]
        found: dict[str, Tensor] = {"naive": last.expand(-1, -1, len(leads))}
        begin = windows.gather(2, (memory - length)[..., None])
        found["drift"] = last + (last - begin) / (length[..., None] - 1).clamp(min=1) * steps
        found["long_mean"] = _mean_by_phase(windows, seen, length, season).index_select(-1, phase)
        seasons = None
        if season > 1:
            seasons = _detrended(_blocks(windows, season, SEASONS))
            blocks = seasons.blocks[..., -PERIODS:, :]
            found["seasonal_naive"] = blocks[..., -1, :].index_select(-1, phase)
            found["seasonal_mean"] = blocks.mean(dim=-2).index_select(-1, phase)
            if "growing_season" in self.names:
                found["growing_season"] = self._growing(seasons, leads)
        for name, count in (("second_naive", 1), ("second_mean", PERIODS)):
            if name in self.names:
                count = min(count, (end - shifts[0]) // self.second)
                back = torch.arange(1, count + 1, device=own.device)[:, None] * self.second
                at = end - torch.tensor(shifts, device=own.device)[:, None, None] - back
                found[name] = taken(filled, at + leads % self.second).mean(dim=2)
        found |= self._smoothed(windows, seen, length, seasons, which)
        if "tsb" in self.names:
            # Teunter, Syntetos and Babai, "Intermittent demand" (2011): chance times mean size.
            above = filled - zero[:, None]
            demand = (there & (above != 0)).float()
            # The weight of a size: 0.9 for every later demand.
            weight = demand * _KEEP ** (demand.sum(dim=1, keepdim=True) - demand.cumsum(dim=1))
            sizes = [cut(part).sum(dim=-1, keepdim=True) for part in (weight * above, weight)]
            chance = _chance(cut(demand), length)
            mean = sizes[0] / torch.where(sizes[1] > 0, sizes[1], 1.0)
            found["tsb"] = (zero[:, None, None] + chance * mean).expand(-1, -1, len(leads))
        return found

    def _smoothed(
        self,
        windows: Windows,
        seen: Windows,
        length: Lengths,
        seasons: Seasons | None,
        which: list[int],
    ) -> Forecasts:
        """Levels and trends of seasonally adjusted values, plus the season; ETS of the values themselves."""
        season, steps = self.season, torch.tensor(which, device=length.device) + 1.0
        phases = sorted({lead % season for lead in which})
        filters = [self.filters.get_buffer("states")]
        if "ets" in self.names:
            filters.append(self.filters.get_buffer("one_step").flatten(1))
            filters.append(self.filters.get_buffer("ets")[..., [*phases, season]].flatten(1))
        # One product: thin ones take as long.
        products = windows @ torch.cat(filters, dim=1)
        states, *smoothed = products.split([own.shape[1] for own in filters], dim=-1)
        pattern = torch.zeros_like(windows[..., :1])  # of a history shorter than two seasons
        if seasons is not None:
            pattern = torch.where(length[..., None] >= 2 * season, seasons.rest.mean(dim=-2), 0.0)
        ahead = pattern[..., [lead % season for lead in which]]
        states = states - pattern @ self.filters.get_buffer("pattern")
        found = {f"level_{a}": states[..., n, None] + ahead for n, a in enumerate(_LEVELS)}
        level, trend, smooth = (states[..., n, None] for n in range(len(_LEVELS), len(_LEVELS) + 3))
        found["damped_trend"] = level + trend * _damped(steps) + ahead
        found["theta"] = smooth + _slope(seen, pattern, length) / 2 * steps + ahead
        if "ets" in self.names:
            missed, ends = (part.unflatten(-1, (len(ETS), -1)) for part in smoothed)
            missed = missed.abs().mean(dim=-1)
            # The first of equals: after two observations rounding would choose.
            near = missed <= missed.amin(dim=-1, keepdim=True) * (1 + _AS_NEAR) + _TINY
            best = near.float().argmax(dim=-1)[..., None, None]
            end_of = ends.gather(2, best.expand(-1, -1, 1, len(phases) + 1))[..., 0, :]
            at = [phases.index(lead % season) for lead in which]
            found["ets"] = end_of[..., at] + end_of[..., -1:] * _damped(steps)
        return found

    def _growing(self, seasons: Seasons, leads: Int[Tensor, " L"]) -> Float[Tensor, "R J L"]:
        """A season whose spread changes by one factor a season, on a level that drifts."""
        blocks, rest, drift = seasons
        count, season = blocks.shape[-2:]
        spread = rest.square().mean(dim=-1).sqrt() + _TINY
        growth = (spread[..., -2:].mean(dim=-1) / spread[..., :2].mean(dim=-1)).pow(
            1 / max(1, count - 2)
        )
        growth = growth.clamp(0.8, 1.25)[..., None]
        shape = (rest / spread[..., None]).mean(dim=-2)
        shape = shape - shape.mean(dim=-1, keepdim=True)
        # The last three spreads, each grown to the last season.
        latest = (spread[..., -3:].log().mean(dim=-1, keepdim=True) + growth.log()).exp()
        age = torch.arange(1 - count, 1, device=leads.device)
        flat = blocks - (latest * growth**age)[..., None] * shape[..., None, :]
        level = flat.flatten(-2) @ self.filters.get_buffer("growing")
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
            next_step = []
            for own in ETS:
                end = _end(early, own, season)
                next_step.append(end[:, 0] + own.damping * end[:, -1])
            errors = [_prediction_errors(one, self.memory) for one in next_step]
            ends = [_end(self.memory, own, season) for own in ETS]
            found["one_step"], found["ets"] = (np.stack(part, axis=1) for part in (errors, ends))
        return found


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


def _end(memory: int, own: Smoothing, season: int) -> NDArray[np.float64]:
    """[K, S + 1] level plus season of the next steps, and last the trend, after a unit impulse."""
    level, trend, ahead = smooth(np.eye(memory), own, season)
    return np.concatenate([level[:, None] + ahead.T, trend[:, None]], axis=1)


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
    return weights / weights.sum()


def _blocks(windows: Shaped[Tensor, "R J K"], season: int, most: int) -> Shaped[Tensor, "R J N S"]:
    """The last whole seasons, oldest first."""
    count = min(most, windows.shape[-1] // season)
    return windows[..., -count * season :].unflatten(-1, (count, season))


def _detrended(blocks: Float[Tensor, "R J N S"]) -> Seasons:
    count, season = blocks.shape[-2:]
    mean = blocks.mean(dim=-1, keepdim=True)
    drift = (mean[..., -1, :] - mean[..., 0, :]) / (max(1, count - 1) * season)
    ramp = torch.arange(season, device=blocks.device) - (season - 1) / 2
    return Seasons(blocks, blocks - mean - drift[..., None] * ramp, drift)


def _mean_by_phase(
    windows: Windows, seen: Windows, length: Lengths, season: int
) -> Float[Tensor, "R J S"]:
    """The mean of each phase over the memory; what repeats the first season counts where that is all.

    `seen`: windows with 0 before the first observation.
    """
    whole = windows.shape[-1] // season * season
    count = _count_by_phase(length.clamp(max=whole), season)
    mean = _blocks(seen, season, whole).sum(dim=-2) / count.clamp(min=1)
    return torch.where(count > 0, mean, windows[..., -season:])


def _slope(seen: Windows, pattern: Float[Tensor, "R J S"], length: Lengths) -> Float[Tensor, "R J 1"]:
    """Slope of least squares of windows, 0 before the first observation, less their pattern."""
    season, count = pattern.shape[-1], length.float()
    back = torch.arange(seen.shape[-1], 0, -1, device=seen.device).float()
    each, phase = _count_by_phase(length, season).float(), torch.arange(season, device=seen.device)
    total = seen.sum(dim=-1) - (each * pattern).sum(dim=-1)
    # Steps back of one phase are n·S − phase: n = 1, 2, …
    of_phase = season * each * (each + 1) / 2 - phase * each
    moment = seen @ back - (of_phase * pattern).sum(dim=-1)
    apart = (count + 1) / 2 * total - moment
    return (apart / (count * (count * count - 1) / 12).clamp(min=0.5))[..., None]


def _count_by_phase(length: Lengths, season: int) -> Int[Tensor, "R J S"]:
    """How many of the last steps have each phase."""
    phase = torch.arange(season, device=length.device)
    return torch.div(length[..., None] + phase, season, rounding_mode="floor")


def taken(values: Shaped[Tensor, "R T"], at: Int[Tensor, "*N"]) -> Tensor:
    """[R, *N] values at some steps of each row."""
    return values.index_select(1, at.flatten()).unflatten(1, at.shape)


def _chance(demand: Windows, length: Lengths) -> Float[Tensor, "R J 1"]:
    """The probability of demand, smoothed by 0.1, from the limit of a long history."""
    age = torch.arange(demand.shape[-1] - 1, -1, -1, device=demand.device)
    return (demand @ _KEEP**age * (1 - _KEEP) / (1 - _KEEP**length))[..., None]


def _damped(steps: Float[Tensor, " L"]) -> Float[Tensor, " L"]:
    """φ + φ² + … + φ^k of each number of steps k."""
    return DAMPING * (1 - DAMPING**steps) / (1 - DAMPING)
