"""Made series that weights are learned from: each kind is a behaviour that tables have.

    kind   trend of changing slope, cumulative growth, multiplicative season, weekly and yearly profile,
           counts, a shift of level, …: one function each, all series of a call at once

A kind is drawn from a seed alone, so a corpus can be made again. Series are float64, without gaps and of
any unit; `KINDS` says which need positive values or a season.

Axes: N series · T step · M phase of a season.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Series = NDArray[np.float64]
"""[N, T]"""

_HARMONICS = 5
"""Of a smooth season: hourly load and temperature have two peaks a day, few tables have more than five."""
_LONGEST_PROFILE = 60
"""Phases of a season that each have a level of their own; longer seasons are smooth."""


@dataclass(frozen=True)
class SeriesShape:
    """What series are asked for."""

    count: int
    """N"""
    length: int
    """T"""
    season: int = 1
    """Steps of the main season; 1 = none."""
    second: int = 0
    """Steps of a longer season; 0 = none."""


@dataclass(frozen=True)
class Kind:
    """A behaviour, and the function that makes series of it."""

    claim: str
    """What a test shows of each series."""
    make: Callable[[np.random.Generator, SeriesShape], Series]
    seasonal: bool = False
    """Whether it needs a season."""
    positive: bool = False
    """Whether all values are above 0."""
    counts: bool = False
    """Whether all values are whole numbers from 0 on, most of them small."""


def make_series(kind: str, shape: SeriesShape, seed: int) -> Series:
    """Returns series of a kind of `KINDS`: the same for the same seed.

    Raises:
        ValueError: the kind needs a season and the shape has none.
    """
    if KINDS[kind].seasonal and shape.season < 2:
        raise ValueError(f"series of kind {kind} need a season, found season {shape.season}")
    # The name is part of the seed, so that kinds of one seed have noise of their own.
    random = np.random.default_rng([seed, *kind.encode()])
    return KINDS[kind].make(random, shape)


# Parts that kinds are made of


def _uniform(random: np.random.Generator, low: float, high: float, shape: SeriesShape) -> Series:
    """One number a series: [N, 1]."""
    return random.uniform(low, high, (shape.count, 1))


def _log_uniform(random: np.random.Generator, low: float, high: float, shape: SeriesShape) -> Series:
    """One number a series, each factor as likely as any other: [N, 1]."""
    return np.exp(_uniform(random, np.log(low), np.log(high), shape))


def _noise(random: np.random.Generator, shape: SeriesShape) -> Series:
    """Errors of spread 1: normal in most series, of heavy tails (t with 3 degrees) in a quarter."""
    normal = random.standard_normal((shape.count, shape.length))
    heavy = random.standard_t(3, (shape.count, shape.length)) / np.sqrt(3)
    return np.where(random.random((shape.count, 1)) < 0.25, heavy, normal)


def _autoregressive(noise: Series, coefficient: Series) -> Series:
    """x_t = a · x_(t−1) + e_t, from x_0 = e_0; `coefficient` a: [N, 1]."""
    values = noise.copy()
    for step in range(1, noise.shape[1]):
        values[:, step] += coefficient[:, 0] * values[:, step - 1]
    return values


def _smooth_season(random: np.random.Generator, shape: SeriesShape, season: int) -> Series:
    """A sum of harmonics, spread 1: s_t = Σ_k a_k · cos(2π·k·t/m + φ_k), a_k falling as 1/k."""
    most = min(_HARMONICS, season // 2)
    order = np.arange(1, most + 1)
    size = random.standard_normal((shape.count, most)) / order  # [N, K]
    angle = random.uniform(0, 2 * np.pi, (shape.count, most))
    step = np.arange(shape.length)
    waves = np.cos(2 * np.pi * order[:, None] * step / season + angle[..., None])  # [N, K, T]
    return _unit_spread(np.einsum("nk,nkt->nt", size, waves))


def _profile_season(random: np.random.Generator, shape: SeriesShape, season: int) -> Series:
    """A level for each phase, spread 1, as of weekdays, months or hours of a shop."""
    levels = random.standard_normal((shape.count, season))
    step = np.arange(shape.length) + random.integers(season, size=(shape.count, 1))
    return _unit_spread(np.take_along_axis(levels, step % season, axis=1))


def _season(random: np.random.Generator, shape: SeriesShape) -> Series:
    """The main season, spread 1: half of the series smooth, half by phase; plus a longer one where asked."""
    total = _one_season(random, shape, shape.season)
    if shape.second:
        total = total + _uniform(random, 0.2, 1.0, shape) * _one_season(random, shape, shape.second)
    return total


def _half_seasonal(random: np.random.Generator, shape: SeriesShape, most: float) -> Series:
    """A season of up to so many spreads in half of the series, none in the others."""
    size = _uniform(random, 0, most, shape) * (random.random((shape.count, 1)) < 0.5)
    return size * _season(random, shape)


def _one_season(random: np.random.Generator, shape: SeriesShape, season: int) -> Series:
    if season < 2:
        return np.zeros((shape.count, shape.length))
    smooth = _smooth_season(random, shape, season)
    if season > _LONGEST_PROFILE:
        return smooth
    by_phase = _profile_season(random, shape, season)
    return np.where(random.random((shape.count, 1)) < 0.5, smooth, by_phase)


def _unit_spread(values: Series) -> Series:
    """Values with mean 0 and standard deviation 1 in each series; 0 where they are all alike."""
    centred = values - values.mean(axis=1, keepdims=True)
    spread = centred.std(axis=1, keepdims=True)
    return centred / np.where(spread > 0, spread, 1.0)


def _in_units(random: np.random.Generator, shape: SeriesShape, values: Series) -> Series:
    """Values of spread about 1 in some unit, around a level of up to 30 spreads: tables are in any unit."""
    level = _uniform(random, -30, 30, shape) * (random.random((shape.count, 1)) < 0.7)
    return _log_uniform(random, 1e-2, 1e5, shape) * (values + level)


# Kinds


def _level(random: np.random.Generator, shape: SeriesShape) -> Series:
    """y = level + season + noise; in half of the series the noise is correlated."""
    coefficient = _uniform(random, 0, 0.9, shape) * (random.random((shape.count, 1)) < 0.5)
    noise = _unit_spread(_autoregressive(_noise(random, shape), coefficient))
    return _in_units(random, shape, noise + _uniform(random, 0, 3, shape) * _season(random, shape))


def _flat(random: np.random.Generator, shape: SeriesShape) -> Series:
    """y = level + season + noise, each of whose values is drawn anew; noise by phase in a third of the series."""
    widths = np.exp(
        _uniform(random, 0, 1, shape) * _profile_season(random, shape, max(shape.season, 2))
    )
    is_uneven = random.random((shape.count, 1)) < 1 / 3
    noise = _noise(random, shape) * np.where(is_uneven, widths, 1.0)
    return _in_units(random, shape, noise + _half_seasonal(random, shape, 3))


def _line(random: np.random.Generator, shape: SeriesShape) -> Series:
    """y = a straight line of up to 50 spreads of the noise + season + noise, drawn anew."""
    rise = random.choice([-1, 1], size=(shape.count, 1)) * _log_uniform(random, 0.5, 50, shape)
    trend = rise * np.linspace(0, 1, shape.length)
    noise = _noise(random, shape)
    return _in_units(random, shape, trend + noise + _half_seasonal(random, shape, 5))


def _compound(random: np.random.Generator, shape: SeriesShape) -> Series:
    """Growth or decline by one factor a step, times season, times noise that is drawn anew."""
    span = _uniform(random, -2, 3, shape)  # of the logarithm, from the first step to the last
    trend = span * np.linspace(0, 1, shape.length)
    noise = _log_uniform(random, 0.01, 0.15, shape) * _noise(random, shape).clip(-4, 4)
    season = 0.1 * _half_seasonal(random, shape, 3)
    return _log_uniform(random, 1e-2, 1e5, shape) * np.exp(trend + season + noise)


def _saturating(random: np.random.Generator, shape: SeriesShape) -> Series:
    """The way to a ceiling or a floor: at once by 1 − e^(−t/τ), or by a logistic curve; season and noise on it."""
    time = np.linspace(0, 1, shape.length)
    scale = _log_uniform(random, 0.08, 1, shape)  # τ over the length
    middle = _uniform(random, 0.2, 0.8, shape)
    logistic = 1 / (1 + np.exp(((middle - time) / scale * 4).clip(-50, 50)))
    is_logistic = random.random((shape.count, 1)) < 0.5
    curve = np.where(is_logistic, logistic, 1 - np.exp(-time / scale))
    rise = random.choice([-1, 1], size=(shape.count, 1)) * _log_uniform(random, 3, 50, shape)
    noise = _noise(random, shape)
    return _in_units(random, shape, rise * curve + noise + _half_seasonal(random, shape, 3))


def _random_walk(random: np.random.Generator, shape: SeriesShape) -> Series:
    """y_t = y_(t−1) + drift + noise, plus a season of up to ten steps' noise."""
    drift = random.standard_normal((shape.count, 1)) * 0.1
    walk = (_noise(random, shape) + drift).cumsum(axis=1)
    return _in_units(random, shape, walk + _uniform(random, 0, 10, shape) * _season(random, shape))


def _local_trend(random: np.random.Generator, shape: SeriesShape) -> Series:
    """A trend whose slope is itself a random walk: b_t = φ·b_(t−1) + ζ_t, ℓ_t = ℓ_(t−1) + b_t, y = ℓ + s + e.

    φ = 1 in half of the series, .9 to 1 in the others (damped).
    """
    damping = np.where(random.random((shape.count, 1)) < 0.5, 1.0, _uniform(random, 0.9, 1.0, shape))
    start = np.zeros((shape.count, shape.length))
    start[:, 0] = random.standard_normal(shape.count)
    change = _log_uniform(random, 0.003, 0.1, shape) * random.standard_normal(start.shape)
    slope = _autoregressive(start + change, damping)
    level = slope.cumsum(axis=1)
    size = _log_uniform(random, 0.1, 3, shape)
    season = _uniform(random, 0, 5, shape) * _season(random, shape)
    return _in_units(random, shape, level + size * _noise(random, shape) + season)


def _cumulative(random: np.random.Generator, shape: SeriesShape) -> Series:
    """Totals that never fall: running sums of waves of new cases, sales or rain, y_t = Σ_(i ≤ t) max(0, r_i)."""
    rate = np.zeros((shape.count, shape.length))
    step = np.arange(shape.length)
    for _ in range(3):
        centre = _uniform(random, -0.1, 1.3, shape) * shape.length
        width = _log_uniform(random, 0.05, 0.5, shape) * shape.length
        rate += _log_uniform(random, 0.05, 1, shape) * np.exp(-(((step - centre) / width) ** 2) / 2)
    base = _log_uniform(random, 1e-3, 0.3, shape)
    season = 1 + _uniform(random, 0, 0.6, shape) * _unit_range(_season(random, shape))
    noise = np.exp(_uniform(random, 0, 0.5, shape) * _noise(random, shape).clip(-3, 3))
    increments = (rate + base) * season * noise
    return _log_uniform(random, 1e-2, 1e5, shape) * increments.cumsum(axis=1)


def _growth(random: np.random.Generator, shape: SeriesShape) -> Series:
    """Positive series in logarithms: log y = log trend + log season + log noise, so the season grows along."""
    span = _uniform(random, -1, 2.5, shape)  # of the logarithm, from the first step to the last
    step = np.linspace(0, 1, shape.length)
    walk = _noise(random, shape).cumsum(axis=1) / np.sqrt(shape.length)
    trend = span * step + _uniform(random, 0, 0.5, shape) * walk
    season = _log_uniform(random, 0.03, 0.6, shape) * _season(random, shape)
    noise = _log_uniform(random, 0.01, 0.2, shape) * _noise(random, shape).clip(-4, 4)
    return _log_uniform(random, 1e-2, 1e5, shape) * np.exp(trend + season + noise)


def _growing_season(random: np.random.Generator, shape: SeriesShape) -> Series:
    """A season whose spread grows or shrinks by a steady factor on a level that does not."""
    factor = np.exp(_uniform(random, -1.5, 1.5, shape) * np.linspace(0, 1, shape.length))
    noise = _log_uniform(random, 0.05, 0.5, shape) * _noise(random, shape)
    trend = _uniform(random, -3, 3, shape) * np.linspace(0, 1, shape.length)
    return _in_units(random, shape, trend + factor * (_season(random, shape) + noise))


def _moving_season(random: np.random.Generator, shape: SeriesShape) -> Series:
    """A season whose levels walk from one season to the next."""
    seasons = -(-shape.length // shape.season)
    size = (shape.count, seasons, shape.season)
    change = _log_uniform(random, 0.05, 0.5, shape)[..., None] * random.standard_normal(size)
    change[:, 0] = random.standard_normal((shape.count, shape.season))
    levels = change.cumsum(axis=1).reshape(shape.count, -1)[:, : shape.length]
    noise = _log_uniform(random, 0.05, 1, shape) * _noise(random, shape)
    return _in_units(random, shape, levels + noise)


def _weekly_and_yearly(random: np.random.Generator, shape: SeriesShape) -> Series:
    """Daily business: weekday profile × yearly profile × slow trend × noise, with days of outstanding sales."""
    week = np.exp(_uniform(random, 0.05, 0.5, shape) * _one_season(random, shape, max(shape.season, 2)))
    step = np.arange(shape.length)
    angle = 2 * np.pi * (step / _year(shape) + random.random((shape.count, 1)))
    year = np.exp(_uniform(random, 0, 0.6, shape) * np.cos(angle))
    walk = _noise(random, shape).cumsum(axis=1) / np.sqrt(shape.length)
    trend = np.exp(_uniform(random, 0, 0.6, shape) * walk)
    noise = np.exp(_log_uniform(random, 0.02, 0.3, shape) * _noise(random, shape).clip(-4, 4))
    rare = random.random((shape.count, shape.length)) < 0.01
    outstanding = np.where(rare, np.exp(_uniform(random, -1, 1, shape)), 1.0)
    return _log_uniform(random, 1, 1e5, shape) * week * year * trend * noise * outstanding


def _closed_days(random: np.random.Generator, shape: SeriesShape) -> Series:
    """Business that is closed at some phases of the season: exactly 0 there."""
    season = max(shape.season, 2)
    open_share = random.uniform(0.4, 0.9, (shape.count, 1))
    is_open = random.random((shape.count, season)) < open_share
    is_open[:, 0] = True  # a business is open at least once a season
    step = np.arange(shape.length) % season
    values = _weekly_and_yearly(random, shape)
    return values * is_open[:, step]


def _poisson_counts(random: np.random.Generator, shape: SeriesShape) -> Series:
    """Counts of mean .3 to 30 with season and slow trend; more spread than Poisson's in half of the series."""
    rate = _log_uniform(random, 0.3, 30, shape)
    season = np.exp(_uniform(random, 0, 0.6, shape) * _season(random, shape).clip(-3, 3))
    walk = _noise(random, shape).cumsum(axis=1) / np.sqrt(shape.length)
    mean = rate * season * np.exp(_uniform(random, 0, 0.5, shape) * walk.clip(-3, 3))
    dispersion = np.where(random.random((shape.count, 1)) < 0.5, _uniform(random, 1, 5, shape), 1e6)
    # A gamma mixture of Poisson distributions is negative binomial; a sharp mixture is Poisson.
    mixed = random.gamma(dispersion, mean / dispersion)
    return random.poisson(mixed).astype(np.float64)


def _intermittent(random: np.random.Generator, shape: SeriesShape) -> Series:
    """Demand that is 0 at most steps: spare parts. Sizes are whole, 1 to some dozens."""
    chance = _log_uniform(random, 0.03, 0.5, shape)
    drifting = np.exp(_uniform(random, -1, 1, shape) * np.linspace(-0.5, 0.5, shape.length))
    demand = random.random((shape.count, shape.length)) < np.minimum(chance * drifting, 0.5)
    mean_size = _log_uniform(random, 1, 30, shape)
    sizes = 1 + random.poisson(random.gamma(2.0, (mean_size - 1) / 2.0 + 1e-9, demand.shape))
    return np.where(demand, sizes, 0).astype(np.float64)


def _bounded(random: np.random.Generator, shape: SeriesShape) -> Series:
    """Shares between 0 and 1, such as occupancy: the logistic function of a seasonal series."""
    walk = _autoregressive(_noise(random, shape), _uniform(random, 0.5, 0.98, shape))
    score = _uniform(random, -3, 1, shape) + _uniform(random, 0.5, 2.5, shape) * _season(random, shape)
    return 1 / (1 + np.exp(-(score + _log_uniform(random, 0.05, 0.5, shape) * walk)))


def _shift(random: np.random.Generator, shape: SeriesShape) -> Series:
    """A level that jumps by 3 to 8 spreads within the last season (or the last tenth)."""
    recent = max(shape.season, shape.length // 10, 2)
    since = shape.length - random.integers(1, recent, size=(shape.count, 1), endpoint=True)
    jump = random.choice([-1, 1], size=(shape.count, 1)) * _uniform(random, 3, 8, shape)
    noise = _unit_spread(_noise(random, shape) + _uniform(random, 0, 2, shape) * _season(random, shape))
    return _in_units(random, shape, noise + jump * (np.arange(shape.length) >= since))


def _breaks(random: np.random.Generator, shape: SeriesShape) -> Series:
    """Levels and slopes that change at one to four times anywhere."""
    values = np.zeros((shape.count, shape.length))
    step = np.arange(shape.length)
    for number in range(4):
        since = _uniform(random, 0, 1, shape) * shape.length
        takes_place = (random.random((shape.count, 1)) < 0.6) | (number == 0)
        after = (step >= since) & takes_place
        slope = random.standard_normal((shape.count, 1)) * 5 / shape.length
        values += after * (random.standard_normal((shape.count, 1)) * 2 + slope * (step - since))
    noise = _log_uniform(random, 0.1, 1, shape) * _noise(random, shape)
    season = _uniform(random, 0, 1.5, shape) * _season(random, shape)
    return _in_units(random, shape, values + noise + season)


def _changing_spread(random: np.random.Generator, shape: SeriesShape) -> Series:
    """Returns of assets, and walks of them: the spread is large after large changes.

    σ²_t = .05 + .1·e²_(t−1) + .85·σ²_(t−1): GARCH(1, 1) of Bollerslev 1986, of mean variance 1.
    """
    draws = random.standard_normal((shape.count, shape.length))
    errors = np.empty_like(draws)
    variance = np.ones(shape.count)
    for step in range(shape.length):
        errors[:, step] = np.sqrt(variance) * draws[:, step]
        variance = 0.05 + 0.1 * errors[:, step] ** 2 + 0.85 * variance
    walks = random.random((shape.count, 1)) < 0.5
    return _in_units(random, shape, np.where(walks, errors.cumsum(axis=1), errors))


def _waves(random: np.random.Generator, shape: SeriesShape) -> Series:
    """Waves of no calendar: an autoregression of order 2 with a period of 5 to 40 steps, as sunspots have."""
    period = _log_uniform(random, 5, 40, shape)
    radius = _uniform(random, 0.9, 0.995, shape)
    first = 2 * radius * np.cos(2 * np.pi / period)  # roots r·e^(±2πi/period)
    second = -(radius**2)
    values = _noise(random, shape)
    for step in range(2, shape.length):
        before = first[:, 0] * values[:, step - 1] + second[:, 0] * values[:, step - 2]
        values[:, step] += before
    return _in_units(random, shape, _unit_spread(values))


def _year(shape: SeriesShape) -> float:
    """Steps of a year: the second season, else as many weeks as a year has of the main one."""
    return float(shape.second or 52.18 * max(shape.season, 2))


def _unit_range(values: Series) -> Series:
    """Values divided by the largest size of each series: within −1 … 1."""
    return values / np.maximum(np.abs(values).max(axis=1, keepdims=True), 1e-12)


KINDS: dict[str, Kind] = {
    "level": Kind("returns to one level", _level),
    "flat": Kind("the next value is as far from the level as any", _flat),
    "line": Kind("returns to one line", _line),
    "compound": Kind("positive; grows by one factor a step", _compound, positive=True),
    "saturating": Kind("rises or falls less and less", _saturating),
    "random_walk": Kind("changes, not values, return to one level", _random_walk),
    "local_trend": Kind("the slope of the last tenth goes on", _local_trend),
    "cumulative": Kind("never falls", _cumulative, positive=True),
    "growth": Kind("positive; the season grows with the level", _growth, positive=True),
    "growing_season": Kind("the season's spread changes, the level's does not", _growing_season, True),
    "moving_season": Kind("the last season is nearer than the first", _moving_season, True),
    "weekly_and_yearly": Kind(
        "positive; weekday and time of year matter", _weekly_and_yearly, True, True
    ),
    "closed_days": Kind("0 at the same phases of each season", _closed_days, True),
    "poisson_counts": Kind("whole numbers from 0 on", _poisson_counts, counts=True),
    "intermittent": Kind("0 at more than half of the steps", _intermittent, counts=True),
    "bounded": Kind("between 0 and 1", _bounded, positive=True),
    "shift": Kind("the last level is another one", _shift),
    "breaks": Kind("levels and slopes change", _breaks),
    "changing_spread": Kind("large changes follow large changes", _changing_spread),
    "waves": Kind("a period that no calendar has", _waves),
}
