"""Experts with a closed form: naive, seasonal, drift, exponential smoothing, curves and intermittent demand.

Each reads the history of a row alone, at the window's cutoff and at earlier ones. What is linear in a long
history is a product with a matrix: its answers to a unit impulse at each step.

In the formulas y₁ … yₙ is the history of a row, ŷ(h) the forecast of the step h = 1, 2, … after yₙ, m the
season length. FPP3 is Hyndman and Athanasopoulos, "Forecasting: principles and practice", 2021.

Axes: R row, a channel of a window · T history · K memory of an expert · J cutoff · S phase of the season ·
N season · L lead · P ETS candidate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor, nn

from forecaster.config import Expert, ModelPlan
from forecaster.model.autoregression import autoregression
from forecaster.model.channels import before_cutoffs, last_steps, thin_product
from forecaster.model.curves import Curves

Lengths = Int[Tensor, "R J"]
"""Steps of a window since the first observation."""
Forecasts = dict[str, Float[Tensor, "R J L"]]
"""By expert."""

SEASONS = 6
"""Seasons that the seasonal pattern and a growing season are estimated from, where history holds them. With five
for the pattern WQL is .9995 on 52 tables, for a second detrending."""
MEAN_SEASONS = 3
"""Seasons that a seasonal mean averages: more have less noise, and lag behind a trend."""
LEVEL_SEASONS = 3
"""Seasons that the level of `profile` is the mean of."""
ETS_SEASON = 52
"""Longest season that ETS smooths: each phase of it is a state that is seen once a season."""
_TIE = 1e-3  # relative; one-step errors of ETS candidates this close count as equal
_ONE_STEP = 8  # one-step errors that choose an ETS candidate: as good as 16 (WQL 1.0006), and cheaper
_DECAY = 0.9  # of the weights of `tsb` from one step, or one demand, to the next: a smoothing of 0.1
_TINY = 1e-6


class Smoothing(NamedTuple):
    """Parameters of exponential smoothing: α of the level, β of the trend, φ its damping, γ of the season."""

    level: float
    trend: float = 0.0
    damping: float = 1.0
    season: float = 0.0


_ALPHAS = (0.1, 0.3, 0.8)
"""Of the three experts that smooth a level: slow, usual, and nearly naive."""
_THETA_ALPHA = 0.4  # of its level
_GROWING_ALPHA = 0.3  # of the level of `growing_season`: the usual one
DAMPING = 0.95
"""φ of all damped trends: between 0.8 and 0.98 by FPP3, 8.2."""
DAMPED = Smoothing(level=0.3, trend=0.015, damping=DAMPING)
"""Of `damped_trend`. A second one with α = 0.7 made the pool worse."""
TRENDS: dict[Expert, Smoothing] = {
    "slow_trend": Smoothing(level=0.2, trend=0.02),
    "fast_trend": Smoothing(level=0.6, trend=0.15),
}
"""Without damping: of series that grow on and on."""
ETS = tuple(
    Smoothing(level, trend * level, damping, 0.1)
    for level in (0.1, 0.5)
    for trend, damping in ((0.0, 1.0), (0.1, DAMPING))
)
"""Candidates of `ets`, the plainest first. Twelve, with γ of 0.05 and 0.25, had .9994 of the WQL: no gain."""


class Windows(NamedTuple):
    """The memory before each cutoff, scaled units."""

    values: Tensor
    """[R, J, K] without gaps."""
    zero_padded: Tensor
    """[R, J, K] the same, 0 before the first observation."""
    length: Tensor
    """[R, J] steps since the first observation, at least 1 and at most K."""


class Seasons(NamedTuple):
    """The last whole seasons of a history, oldest first."""

    blocks: Tensor
    """[R, J, N, S]"""
    detrended: Tensor
    """[R, J, N, S] without their own means and the drift of these."""
    drift: Tensor
    """[R, J, 1] of the means, a step."""

    @property
    def mean(self) -> Float[Tensor, "R J S"]:
        """The mean season sₚ."""
        return self.detrended.mean(dim=-2)

    @property
    def shown(self) -> Float[Tensor, "R J 1"]:
        """What of the mean season is more than chance:

            shown  = max(0, 1 − chance / Σ sₚ²)
            chance = Σ variance of a phase between N seasons / N

        Empirical Bayes, as of James and Stein 1961: where there is no season its mean over six has a sixth of the
        variance of the values.
        """
        count = self.detrended.shape[-2]
        mean = self.mean
        apart = self.detrended - mean[..., None, :]
        variance = apart.square().sum(dim=(-2, -1)) / (count - 1)
        chance = variance / count  # [R, J]
        whole = mean.square().sum(dim=-1).clamp(min=_TINY**2)
        return (1 - chance / whole).clamp(min=0)[..., None]

    @property
    def pattern(self) -> Float[Tensor, "R J S"]:
        """The mean season, as far as it is shown."""
        return self.shown * self.mean


class ClosedForms(nn.Module):
    """The experts that need no solving."""

    def __init__(self, config: ModelPlan, horizon: int):
        super().__init__()
        self.names = config.pool.experts
        self.curves = Curves(config.pool.memory, horizon)
        self.trends = tuple(name for name in TRENDS if name in self.names)
        self.memory = config.pool.memory
        self.season, self.second = config.pool.seasons
        # Matrices of what linear experts do to a history, by name; they follow from the config.
        self.filters = nn.Module()
        for name, matrix in self._filters().items():
            buffer = torch.from_numpy(matrix).float()
            self.filters.register_buffer(name, buffer, persistent=False)

    def forward(
        self,
        filled: Float[Tensor, "R T"],
        length: Int[Tensor, " R"],
        zero: Float[Tensor, " R"],
        shifts: list[int],
        leads: list[int],
    ) -> Forecasts:
        """Returns the forecasts of some leads at cutoffs some steps back.

        Args:
            filled: history without gaps, scaled units.
            length: steps since the first observation.
            zero: 0 in scaled units.
            shifts: steps back.
            leads: 0 = the step after the cutoff, so that h = lead + 1.
        """
        lead = torch.tensor(leads, device=length.device)
        phase = lead % self.season  # 0 = the one after the cutoff's
        since_first = last_steps(length, filled.shape[1])  # [R, T]
        shift = torch.tensor(shifts, device=length.device)  # [J]
        windows = Windows(
            values=before_cutoffs(filled, shifts, self.memory),
            zero_padded=before_cutoffs(torch.where(since_first, filled, 0.0), shifts, self.memory),
            length=(length[:, None] - shift).clamp(1, self.memory),
        )
        usual = _mean_by_phase(windows, self.season)  # [R, J, S]
        forecasts = {
            "naive": _naive(windows, len(leads)),
            "drift": _drift(windows, lead),
            "long_mean": usual.index_select(-1, phase),
        }
        seasons = None
        if self.season > 1:
            seasons = _detrended(_last_seasons(windows.values, self.season, SEASONS))
            averaged = seasons.blocks[..., -MEAN_SEASONS:, :]
            # Seasonal naive (FPP3, 5.2): ŷ(h) = y of the same phase in the last season.
            forecasts["seasonal_naive"] = averaged[..., -1, :].index_select(-1, phase)
            # Its mean over three seasons has less noise, and lags a trend by a season more.
            forecasts["seasonal_mean"] = averaged.mean(dim=-2).index_select(-1, phase)
            if "seasonal_drift" in self.names:
                forecasts["seasonal_drift"] = _seasonal_drift(seasons, lead)
            if "growing_season" in self.names:
                forecasts["growing_season"] = self._growing_season(seasons, lead)
        for name, count in (("second_naive", 1), ("second_mean", MEAN_SEASONS)):
            if name in self.names:
                forecasts[name] = _seasonal_mean(filled, self.second, count, shifts, lead)
        if seasons is not None and "profile" in self.names:
            forecasts["profile"] = _profile(filled, seasons, self.second, length, shifts, leads)
        forecasts |= self._smoothed(windows, seasons, usual, leads, zero)
        if "autoregression" in self.names:
            base = forecasts["naive" if seasons is None else "seasonal_mean"]
            added = autoregression(filled, length, self.memory, self.season, shifts, leads)
            forecasts["autoregression"] = base + added
        if "tsb" in self.names:
            demand = self._intermittent_demand(filled, since_first, windows.length, zero, shifts)
            forecasts["tsb"] = demand.expand(-1, -1, len(leads))
        return forecasts

    def _smoothed(
        self,
        windows: Windows,
        seasons: Seasons | None,
        usual: Float[Tensor, "R J S"],
        leads: list[int],
        zero: Float[Tensor, " R"],
    ) -> Forecasts:
        """Levels and trends of seasonally adjusted values, plus the season; ETS of the values themselves.

        With s the mean season (`_detrended`), x = y − s the adjusted values, ℓ and b their level and trend:

            level_α        ŷ(h) = ℓ + s        ℓ by simple exponential smoothing (FPP3, 8.1), α fixed
            damped_trend   ŷ(h) = ℓ + (φ + … + φʰ)·b + s    Gardner and McKenzie 1985, as in `smooth`
            slow_trend, fast_trend    ŷ(h) = ℓ + b·h + s    Holt 1957, without damping: φ = 1
            theta          ŷ(h) = ℓ + b/2·h + s             b the slope of least squares of x
            line, curve    of least squares through x (curves.py), plus s over the whole memory

        Theta is by Assimakopoulos and Nikolopoulos 2000, in the form of Hyndman and Billah 2003, who add the
        lag of ℓ behind the line, (1 − α)/α · b/2. α is fixed here, at 0.4: parameters that are searched for
        would need a loop for each row and cutoff.
        """
        season = self.season
        step = torch.tensor(leads, device=windows.length.device) + 1.0
        phases = sorted({lead % season for lead in leads})
        filters = [self.filters.get_buffer("states")]  # [K, 6 …]
        if "ets" in self.names:
            one_step = self.filters.get_buffer("one_step")  # [K, P, one-step error]
            ends = self.filters.get_buffer("ets")  # [K, P, S + 1]
            ends = ends[..., [*phases, season]]  # phases of these leads, then the trend
            filters += [one_step.flatten(1), ends.flatten(1)]
        # One product with all columns: thin ones take as long.
        products = thin_product(windows.values, torch.cat(filters, dim=1))  # [R, J, K] @ [K, _]
        states, *ets = products.split([matrix.shape[1] for matrix in filters], dim=-1)
        pattern = torch.zeros_like(windows.values[..., :1])  # [R, J, 1]: no season is known
        adjusted = windows.values
        if seasons is not None:
            is_known = windows.length[..., None] >= 2 * season  # seen twice
            shown = seasons.shown
            pattern = torch.where(is_known, shown * seasons.mean, 0.0)  # [R, J, S]
            # The last step of the memory has the last phase of a season.
            phase = torch.arange(-self.memory, 0, device=pattern.device) % season
            adjusted = adjusted - pattern[..., phase]
        seasonal = pattern[..., [lead % season for lead in leads]]  # [R, J, L]
        # States of x: those of y less those of the pattern, repeated over the memory.
        states = states - thin_product(pattern, self.filters.get_buffer("pattern"))
        columns = states[..., None, :].unbind(dim=-1)  # [R, J, 1] each
        levels = columns[: len(_ALPHAS)]
        level, trend, theta_level, *trends = columns[len(_ALPHAS) :]
        forecasts = {
            f"level_{alpha}": smoothed + seasonal
            for alpha, smoothed in zip(_ALPHAS, levels, strict=True)
        }
        forecasts["damped_trend"] = level + trend * _damped(step) + seasonal
        for number, name in enumerate(self.trends):
            local_level, local_trend = trends[2 * number : 2 * number + 2]
            forecasts[name] = local_level + local_trend * step + seasonal
        fitted = self.curves(adjusted, windows.length, step.long() - 1, zero)
        forecasts["theta"] = theta_level + fitted.slope / 2 * step + seasonal
        if seasons is not None:
            # The mean of each phase less that of the line: over whole seasons no other part of it differs.
            ramp = _ramp(season, pattern.device) * fitted.slope
            lasting = usual - usual.mean(dim=-1, keepdim=True) - ramp  # [R, J, S]
            lasting = torch.where(is_known, shown * lasting, 0.0)
            seasonal = lasting[..., [lead % season for lead in leads]]
        forecasts["line"] = fitted.line + seasonal
        forecasts["curve"] = fitted.curve + seasonal
        if "ets" in self.names:
            errors, ends = (product.unflatten(-1, (len(ETS), -1)) for product in ets)  # [R, J, P, _]
            end = _best_candidate(errors, ends)  # [R, J, phase, then the trend]
            base = end[..., [phases.index(lead % season) for lead in leads]]  # ℓ + s of each lead
            forecasts["ets"] = base + end[..., -1:] * _damped(step)
        return forecasts

    def _growing_season(self, seasons: Seasons, lead: Int[Tensor, " L"]) -> Float[Tensor, "R J L"]:
        """A season whose spread changes by one factor a season, on a level that drifts.

        For season i of N, the last one N, with values yᵢ and detrended rest rᵢ:

            σᵢ = √mean(rᵢ²)         spread of a season
            g  = (σ of the last two / σ of the first two)^(1/(N − 2)), within 0.8 … 1.25
            u  = mean of rᵢ/σᵢ      shape, of spread 1
            σ  = g · geometric mean of the last three σᵢ, which is that of the last season
            ℓ  = level of yᵢ − σ·g^(i − N)·u by simple exponential smoothing
            ŷ(h) = ℓ + 0.8·drift·h + σ·g^(seasons after the last, at most 6)·u

        Multiplicative seasons (Holt–Winters) would do as much for positive series alone, and do not
        commute with y + b. Without this expert MAE on 17 tables is .746 of seasonal naive's, with it .735.
        """
        blocks, detrended, drift = seasons
        count, season = blocks.shape[-2:]
        spread = detrended.square().mean(dim=-1).sqrt() + _TINY  # [R, J, N]
        first = spread[..., :2].mean(dim=-1)  # [R, J]
        last = spread[..., -2:].mean(dim=-1)
        # Their middles are N − 2 seasons apart.
        growth = (last / first).pow(1 / max(1, count - 2))
        # Bounded, for it is raised to the seasons of the horizon: 1.25³ = 2.
        growth = growth.clamp(0.8, 1.25)[..., None]  # [R, J, 1]
        shape = (detrended / spread[..., None]).mean(dim=-2)  # [R, J, S]
        shape = shape - shape.mean(dim=-1, keepdim=True)
        # The middle one of the last three is a season before the last.
        middle = spread[..., -3:].log().mean(dim=-1, keepdim=True)
        latest = (middle + growth.log()).exp()  # [R, J, 1]
        age = torch.arange(1 - count, 1, device=lead.device)
        spreads = (latest * growth**age)[..., None]  # [R, J, N, 1]
        flat = blocks - spreads * shape[..., None, :]  # [R, J, N, S]
        level = flat.flatten(-2) @ self.filters.get_buffer("growing")  # [R, J]
        # It goes on for as many seasons as it was estimated from: 1.25¹⁰⁰ is no forecast.
        ahead = (1 + lead // season).clamp(max=SEASONS)
        seasonal = latest * growth**ahead * shape[..., lead % season]
        # 0.8: a drift may end, as φ supposes of a trend.
        return level[..., None] + 0.8 * drift * (lead + 1) + seasonal

    def _intermittent_demand(
        self,
        filled: Float[Tensor, "R T"],
        since_first: Shaped[Tensor, "R T"],
        length: Lengths,
        zero: Float[Tensor, " R"],
        shifts: list[int],
    ) -> Float[Tensor, "R J 1"]:
        """TSB of Teunter, Syntetos and Babai 2011: ŷ(h) = p·z, chance of a demand times its mean size.

            p ← p + 0.1·(1[y ≠ 0] − p)   at every step
            z ← z + 0.1·(y − z)          at steps with demand alone

        Unlike Croston's, p falls while there is no demand. Both start from no value: they are means with
        weights 0.9^(steps ago) and 0.9^(demands ago), divided by the sum of the weights.
        """
        # Scaled units have their 0 elsewhere: y ≠ 0 is y ≠ `zero`.
        size = filled - zero[:, None]  # [R, T]
        demand = (since_first & (size != 0)).float()
        # Demands after each step: its age in `z ←`.
        later_demands = demand.sum(dim=1, keepdim=True) - demand.cumsum(dim=1)
        weight = demand * _DECAY**later_demands
        total, weights = (
            before_cutoffs(part, shifts, self.memory).sum(dim=-1, keepdim=True)  # [R, J, 1]
            for part in (weight * size, weight)
        )
        chance = _chance(before_cutoffs(demand, shifts, self.memory), length)
        mean_size = total / torch.where(weights > 0, weights, 1.0)
        return zero[:, None, None] + chance * mean_size

    def _filters(self) -> dict[str, NDArray[np.float64]]:
        """What linear experts do to a unit impulse at each step of the memory: their matrices.

        states [K, 6 …]: the levels of `_ALPHAS`, level and trend of `damped_trend`, the level of `theta`, level
        and trend of each of `TRENDS` in the pool.
        pattern [S, 6 …]: the same of a season repeated over the memory.
        growing [N·S]: the level of `growing_season`.
        one_step [K, P, _], ets [K, P, S + 1]: one-step errors and last states of the candidates of `ets`.
        """
        season = self.season
        impulses = np.eye(self.memory)
        level, trend, _ = smooth(impulses, DAMPED, 1)
        levels = [_average_weights(self.memory, alpha) for alpha in _ALPHAS]
        theta_level = _average_weights(self.memory, _THETA_ALPHA)
        trends = [state for name in self.trends for state in smooth(impulses, TRENDS[name], 1)[:2]]
        states = np.stack([*levels, level, trend, theta_level, *trends], axis=1)
        # Smoothing is linear: its answer to a pattern is the sum of its answers to the impulses of each phase.
        # The last step of the memory has the last phase of a season.
        phase = (np.arange(self.memory) - self.memory) % season
        of_phase = [states[phase == number].sum(axis=0) for number in range(season)]
        pattern = np.stack(of_phase)
        filters = {"states": states, "pattern": pattern}
        if "growing_season" in self.names:
            steps = min(SEASONS, self.memory // season) * season
            filters["growing"] = _average_weights(steps, _GROWING_ALPHA)
        if "ets" in self.names:
            # Each of the last steps is forecast from as many before it: one answer to impulses serves all.
            before = self.memory - min(_ONE_STEP, self.memory // 2)
            errors = []
            for candidate in ETS:
                end = _end_states(before, candidate, season)
                next_step = end[:, 0] + candidate.damping * end[:, -1]  # [K] ŷ(1)
                errors.append(_prediction_errors(next_step, self.memory))
            filters["one_step"] = np.stack(errors, axis=1)
            ends = [_end_states(self.memory, candidate, season) for candidate in ETS]
            filters["ets"] = np.stack(ends, axis=1)
        return filters


# Forecasts of one line


def _naive(windows: Windows, leads: int) -> Float[Tensor, "R J L"]:
    """Naive, the best forecast of a random walk (FPP3, 5.2): ŷ(h) = yₙ."""
    return windows.values[..., -1:].expand(-1, -1, leads)


def _drift(windows: Windows, lead: Int[Tensor, " L"]) -> Float[Tensor, "R J L"]:
    """Drift (FPP3, 5.2): ŷ(h) = yₙ + h·(yₙ − y₁)/(n − 1), the line through the first and the last value."""
    values, length = windows.values, windows.length
    last = values[..., -1:]  # [R, J, 1]
    begin = values.shape[-1] - length  # [R, J] first observed step of the memory
    first = values.gather(2, begin[..., None])  # [R, J, 1]
    slope = (last - first) / (length[..., None] - 1).clamp(min=1)
    return last + slope * (lead + 1).float()


def _mean_by_phase(windows: Windows, season: int) -> Float[Tensor, "R J S"]:
    """Mean (FPP3, 5.2) of each phase over the memory: ŷ(h) = mean of y at the phase of n + h.

    Values before the first observation, which repeat the first season, count where a phase has no other.
    """
    steps = windows.values.shape[-1] // season * season  # of whole seasons
    count = _count_by_phase(windows.length.clamp(max=steps), season)
    total = _last_seasons(windows.zero_padded, season, steps).sum(dim=-2)  # [R, J, S]
    mean = total / count.clamp(min=1)
    return torch.where(count > 0, mean, windows.values[..., -season:])


def _seasonal_mean(
    filled: Float[Tensor, "R T"], season: int, count: int, shifts: list[int], lead: Int[Tensor, " L"]
) -> Float[Tensor, "R J L"]:
    """Seasonal naive, or the mean of `count` seasons, of a season that may be longer than the memory:

    ŷ(h) = Σᵢ y at (n + h − i·m) / count,   i = 1 … count, h counted within one season
    """
    end = filled.shape[1]
    count = min(count, (end - max(shifts)) // season)
    age = torch.arange(1, count + 1, device=lead.device)[:, None] * season  # [N, 1] i·m
    shift = torch.tensor(shifts, device=lead.device)[:, None, None]  # [J, 1, 1]
    begin = end - shift - age  # [J, N, 1]
    return values_at(filled, begin + lead % season).mean(dim=2)  # [R, J, N, L] → [R, J, L]


def _seasonal_drift(seasons: Seasons, lead: Int[Tensor, " L"]) -> Float[Tensor, "R J L"]:
    """Seasonal naive with drift: ŷ(h) = y of the same phase in the last season + drift·m·(seasons ahead)."""
    season = seasons.blocks.shape[-1]
    last = seasons.blocks[..., -1, :].index_select(-1, lead % season)
    ahead = (1 + torch.div(lead, season, rounding_mode="floor")) * season
    return last + seasons.drift * ahead


def _profile(
    filled: Float[Tensor, "R T"],
    seasons: Seasons,
    second: int,
    length: Int[Tensor, " R"],
    shifts: list[int],
    leads: list[int],
) -> Float[Tensor, "R J L"]:
    """Level, season, and the mean profile of the second cycle, of M steps, as weekday and day of the year:

        ℓ(t) = mean of y over the three seasons up to t
        a(t) = mean of y over the season around t, without steps after n
        ŷ(h) = ℓ(n) + s + mean over the cycles i of a(n + h − i·M) − ℓ(n − i·M)

    with s the mean season (`_detrended`), h counted within one cycle, and i = 1 … 3 as far as the history of
    the row reaches, else 1. Both levels lag a trend by as much.
    """
    season = seasons.blocks.shape[-1]
    span = LEVEL_SEASONS * season
    cycles = max(1, min(MEAN_SEASONS, (filled.shape[1] - max(shifts) - span) // second))
    # First step of a(n + h − i·M) from n − i·M on; with i = 1 its last is n at most.
    begins = [min(lead % second - season // 2, second - season) for lead in leads]
    steps = span + max(begins) + season
    step = torch.arange(steps, device=length.device)[:, None] - span  # [K, 1] from n − i·M on
    begin = torch.tensor(begins, device=length.device)
    of_season = (step >= begin) & (step < begin + season)  # [K, L]
    columns = of_season.float() / season - (step < 0).float() / span
    shift = torch.tensor(shifts, device=length.device)
    deviations, reached = [], []
    for cycle in range(1, cycles + 1):
        back = [ago + cycle * second - (steps - span) for ago in shifts]
        deviations.append(thin_product(before_cutoffs(filled, back, steps), columns))  # [R, J, L]
        reached.append(length[:, None] - shift >= cycle * second + span)  # [R, J]
    # The first cycle counts all the same: there is no forecast else.
    weights = torch.stack([torch.ones_like(reached[0]), *reached[1:]])[..., None].float()
    profile = (torch.stack(deviations) * weights).sum(dim=0) / weights.sum(dim=0)
    level = before_cutoffs(filled, shifts, span).mean(dim=-1, keepdim=True)  # [R, J, 1]
    pattern = seasons.pattern[..., [lead % season for lead in leads]]
    return level + pattern + profile


# Exponential smoothing


def smooth(
    values: NDArray[np.float64], parameters: Smoothing, period: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Returns level [N], trend [N] and season [S, N], next step first, after values [K, N].

    ETS(A, Ad, A) of Hyndman, Koehler, Ord and Snyder 2008, Table 2.2, with level ℓ, trend b, season s:

        ŷ(1) = ℓ + φ·b + s          e = y − ŷ(1)
        ℓ ← ℓ + φ·b + α·e           b ← φ·b + β·e           s ← s + γ·e, of the phase of y alone

    Without trend β = 0 and φ = 1, and simple exponential smoothing is left; φ = 1 alone is Holt's. A season
    starts from the mean of the first two, detrended; else ℓ starts from the first value.
    """
    level, trend = values[0].copy(), np.zeros(values.shape[1])
    season = np.zeros((period, values.shape[1]))
    if 1 < period <= len(values) // 2:
        first_two = values[: 2 * period].reshape(2, period, -1)  # [2, S, N]
        mean = first_two.mean(axis=1)  # [2, N]
        slope = (mean[1] - mean[0]) / period
        ramp = np.arange(period)[:, None] - (period - 1) / 2
        season = (first_two - mean[:, None]).mean(axis=0) - slope * ramp
        level = mean[0] - slope * period / 2  # half a season before its middle
    for step, value in enumerate(values):
        phase = step % period
        base = level + parameters.damping * trend
        error = value - base - season[phase]
        level = base + parameters.level * error
        trend = parameters.damping * trend + parameters.trend * error
        if period > 1:
            season[phase] += parameters.season * error
    return level, trend, np.roll(season, -(len(values) % period), axis=0)


def _end_states(memory: int, parameters: Smoothing, season: int) -> NDArray[np.float64]:
    """[K, S + 1] level plus season of the next steps, and last the trend, after a unit impulse."""
    level, trend, seasonal = smooth(np.eye(memory), parameters, season)
    base = level[:, None] + seasonal.T  # [K, S]
    return np.concatenate([base, trend[:, None]], axis=1)


def _prediction_errors(weights: NDArray[np.float64], memory: int) -> NDArray[np.float64]:
    """[K, n] the value of each of the last n steps less its forecast from the len(weights) before it."""
    span = len(weights)
    errors = np.zeros((memory, memory - span))
    for step in range(memory - span):
        errors[step : step + span, step] = -weights
        errors[step + span, step] = 1.0
    return errors


def _average_weights(memory: int, alpha: float) -> NDArray[np.float64]:
    """[K] of simple exponential smoothing from no first value: (1 − α)^age, divided by their sum."""
    weights = (1 - alpha) ** np.arange(memory - 1.0, -1, -1)
    return weights / weights.sum()


def _best_candidate(
    errors: Float[Tensor, "R J P _"], ends: Float[Tensor, "R J P X"]
) -> Float[Tensor, "R J X"]:
    """The last states of the candidate of `ets` with the least mean absolute one-step error."""
    error = errors.abs().mean(dim=-1)  # [R, J, P]
    # The first of equals, and so the plainest: after two observations rounding would choose.
    tied = error <= error.amin(dim=-1, keepdim=True) * (1 + _TIE) + _TINY
    best = tied.float().argmax(dim=-1)[..., None, None]  # [R, J, 1, 1]
    best = best.expand(-1, -1, 1, ends.shape[-1])
    return ends.gather(2, best)[..., 0, :]


def _damped(step: Float[Tensor, " L"]) -> Float[Tensor, " L"]:
    """φ + φ² + … + φʰ = φ·(1 − φʰ)/(1 − φ) of each number of steps h."""
    return DAMPING * (1 - DAMPING**step) / (1 - DAMPING)


def _chance(demand: Float[Tensor, "R J K"], length: Lengths) -> Float[Tensor, "R J 1"]:
    """Σ 0.9^age · demand / Σ 0.9^age over the history, the sum of the weights as (1 − 0.9ⁿ) / (1 − 0.9)."""
    steps = demand.shape[-1]
    age = torch.arange(steps - 1, -1, -1, device=demand.device)
    total = demand @ _DECAY**age  # [R, J, K] @ [K] → [R, J]
    return (total * (1 - _DECAY) / (1 - _DECAY**length))[..., None]


# Seasons


def _last_seasons(
    windows: Shaped[Tensor, "R J K"], season: int, most: int
) -> Shaped[Tensor, "R J N S"]:
    """The last whole seasons, oldest first."""
    count = min(most, windows.shape[-1] // season)
    return windows[..., -count * season :].unflatten(-1, (count, season))


def _detrended(blocks: Float[Tensor, "R J N S"]) -> Seasons:
    """Seasons less their means μᵢ and the line of slope (μ_N − μ₁) / ((N − 1)·m) through each.

    Classical decomposition (FPP3, 3.4) with means of whole seasons in place of moving averages, which are
    not known in the last half season.
    """
    count, season = blocks.shape[-2:]
    mean = blocks.mean(dim=-1, keepdim=True)  # [R, J, N, 1]
    first, last = mean[..., 0, :], mean[..., -1, :]  # [R, J, 1]
    drift = (last - first) / (max(1, count - 1) * season)
    ramp = _ramp(season, blocks.device)
    return Seasons(blocks, blocks - mean - drift[..., None] * ramp, drift)


def _ramp(season: int, device: torch.device) -> Float[Tensor, " S"]:
    """[S] steps from the middle of a season."""
    return torch.arange(season, device=device) - (season - 1) / 2


def _count_by_phase(length: Lengths, season: int) -> Int[Tensor, "R J S"]:
    """How many of the last steps have each phase."""
    phase = torch.arange(season, device=length.device)
    return torch.div(length[..., None] + phase, season, rounding_mode="floor")


def values_at(values: Shaped[Tensor, "R T"], steps: Int[Tensor, "*N"]) -> Tensor:
    """[R, *N] values at some steps of each row."""
    return values.index_select(1, steps.flatten()).unflatten(1, steps.shape)
