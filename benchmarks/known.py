"""How near forecasts come to the best one, on processes whose best forecast is known.

    python benchmarks/known.py [--seeds 1] [--only walk] [--fit]

Every case has series of one process, their levels and seasons their own; for lines, growth and quarters each
series is a table by itself. Breaks, from "clean" on, are in the past alone, or shift what comes as well.

regret   Σ |median − truth| of the steps ahead, over that of the true median given the past; over all draws
first    share of the truth within the 80 % band at the first two leads, then at all, and at the last two
total    share of the totals of a series' horizon within their 80 % band
mean     1 + (Σ mean − Σ truth) / Σ |truth|, so Σ mean / Σ truth where none is negative
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from planted import Floats, Random, asked, dates, forecast_of, is_inside, regret
from scipy import stats
from scipy.signal import lfilter

from forecaster.forecast.totals import PATHS

START = datetime(1990, 1, 1)  # a Monday
LIMIT = 1.12
BAND = (0.1, 0.9)


@dataclass(frozen=True)
class Shape:
    """Size of a table."""

    series: int = 120
    steps: int = 200
    """Before the forecast."""
    horizon: int = 14
    unit: str = "d"
    is_apart: bool = False
    """Whether each series is a table by itself."""

    @property
    def count(self) -> int:
        """Steps to the end of the horizon."""
        return self.steps + self.horizon

    @property
    def size(self) -> tuple[int, int]:
        """Series and steps."""
        return self.series, self.count


@dataclass(frozen=True)
class Process:
    """Series [S, n] and what is known of them."""

    values: Floats
    best: Floats
    """[S, H] true median ahead, given the past."""
    covariates: dict[str, Floats] = field(default_factory=dict)

    def plus(self, mean: Floats, **covariates: Floats) -> Process:
        """Returns the process with a mean [S, n] added."""
        horizon = self.best.shape[1]
        return Process(
            self.values + mean,
            self.best + mean[:, -horizon:],
            covariates,
        )


@dataclass(frozen=True)
class Draw:
    """Random parts of series of a shape."""

    random: Random
    shape: Shape

    @property
    def time(self) -> Floats:
        """[n]"""
        return np.arange(self.shape.count, dtype=float)

    def ahead(self, cells: Floats) -> Floats:
        """Returns those [S, H] of the steps ahead."""
        return cells[:, self.shape.steps :]

    def uniform(self, low: float, high: float) -> Floats:
        """Returns a number [S, 1] for each series."""
        series = self.shape.series
        return self.random.uniform(low, high, (series, 1))

    def level(self) -> Floats:
        """Returns the level [S, n] of each series."""
        level = self.uniform(50, 200)
        return level + 0 * self.time

    def season(self, period: int, scale: float = 10.0) -> Floats:
        """Returns a season [S, n] that repeats."""
        phase = np.arange(self.shape.count) % period
        size = self.shape.series, period
        season = self.random.normal(0, scale, size)
        return season[:, phase]

    def sine(self, period: float) -> Floats:
        """Returns waves [S, n] of any phase: sin(2π (t / period + phase))."""
        phase = self.uniform(0, 1)
        turns = self.time / period + phase
        return np.sin(2 * np.pi * turns)

    def is_chosen(self, share: float) -> Floats:
        """Returns 1 in a share of the cells [S, n], else 0."""
        number = self.random.random(self.shape.size)
        return (number < share) * 1.0


Made = Callable[[Draw], Process]
NORMAL = stats.norm(0, 5)


# Noise


def white(draw: Draw, noise: Any = NORMAL) -> Process:
    """Draws values of a distribution."""
    size = draw.shape.size
    values = noise.rvs(size, random_state=draw.random)
    median = np.broadcast_to(noise.median(), size)
    return Process(values, draw.ahead(median))


def memory(draw: Draw, ar: ArrayLike, ma: ArrayLike = (1,)) -> Process:
    """Draws ar(B) y = ma(B) ε, whose best forecast has no ε ahead."""
    is_past = draw.time < draw.shape.steps
    shock = white(draw).values
    values = lfilter(ma, ar, shock)
    without = lfilter(ma, ar, shock * is_past)
    return Process(values, draw.ahead(without))


# Patterns


def around_level(draw: Draw, noise: Made = white, sign: int = 1) -> Process:
    """Draws noise around a level."""
    mean = sign * draw.level()
    return noise(draw).plus(mean)


def line(draw: Draw, slope: float = 0.0, period: int = 1) -> Process:
    """Draws the mean level + slope t + season(t mod period)."""
    slopes = draw.uniform(0, 2 * slope)
    trend = slopes * draw.time
    season = draw.season(period)
    mean = draw.level() + trend + season
    return white(draw).plus(mean)


def growth(draw: Draw, rate: float, period: int = 1) -> Process:
    """Draws the mean level (1 + rate)ᵗ eˢ, s = season(t mod period), and noise of 5 % of it."""
    trend = (1 + rate) ** draw.time
    season = np.exp(draw.season(period, scale=0.1))
    mean = draw.level() * trend * season
    noise = white(draw, stats.norm(0, 0.05))
    values = mean * (1 + noise.values)
    return Process(values, draw.ahead(mean))


def ceiling(draw: Draw) -> Process:
    """Draws the mean level / (1 + exp((100 − t) / 25))."""
    away = (100 - draw.time) / 25
    share = 1 / (1 + np.exp(away))
    mean = draw.level() * share
    noise = white(draw, stats.norm(0, 2))
    return noise.plus(mean)


def temperatures(draw: Draw) -> Process:
    """Draws a year and an AR(1)."""
    year = draw.sine(365.25)
    mean = 10 + 15 * year
    noise = memory(draw, ar=(1, -0.7))
    return noise.plus(mean)


def promotion(draw: Draw) -> Process:
    """Draws half as much again on 15 % of days."""
    promo = draw.is_chosen(0.15)
    mean = draw.level() * (1 + 0.5 * promo)
    return white(draw).plus(mean, promo=promo)


def bent(draw: Draw) -> Process:
    """Draws degrees that act above 20, not below."""
    noise = white(draw)
    degrees = draw.random.normal(15, 8, draw.shape.size)
    excess = np.maximum(degrees - 20, 0)
    mean = draw.level() + 4 * excess
    return noise.plus(mean, degrees=degrees)


# Breaks


def wave(draw: Draw) -> Process:
    """Draws the mean level + 10 sin(2π (t / 7 + phase))."""
    mean = draw.level() + 10 * draw.sine(7)
    noise = white(draw, stats.norm(0, 3))
    return noise.plus(mean)


def shifted(draw: Draw, ago: int, make: Made = wave, share: float = 1.0) -> Process:
    """Draws series of which a share moves by 60 so many steps ago, for good."""
    shape = draw.shape
    number = np.arange(shape.series)[:, None]
    is_moved = number < share * shape.series
    is_after = draw.time >= shape.steps - ago
    return make(draw).plus(60.0 * is_moved * is_after)


def spoiled(
    draw: Draw,
    factor: float,
    rows: slice = slice(None),
    share: float = 1.0,
    make: Made = wave,
) -> Process:
    """Draws series of which a share of the cells in some rows of the past is multiplied."""
    process = make(draw)
    steps = draw.shape.steps
    is_spoiled = draw.is_chosen(share) > 0
    factors = np.where(is_spoiled, factor, 1.0)
    affected = np.arange(steps)[rows]
    process.values[:, affected] *= factors[:, affected]
    return process


# Cases

DIFFERENCE = (1, -1)
THETA = (1, -0.4)
SIX = (0,) * 6
WEEKLY_DIFFERENCE = (1, *SIX, -1)
WEEKLY_THETA = (1, *SIX, -0.4)
SEASONAL_AR = np.convolve(DIFFERENCE, WEEKLY_DIFFERENCE)
SEASONAL_MA = np.convolve(THETA, WEEKLY_THETA)

DAYS = Shape()
SCATTER = np.repeat([2.0, 12.0], [5, 2])
BY_WEEKDAY = np.resize(SCATTER, DAYS.count)
T = stats.t(2.5, scale=5)
RARE = stats.poisson(0.3)
COUNTS = stats.poisson(5)
BURSTS = stats.nbinom(0.5, 0.2)
SKEWED = stats.lognorm(1, scale=20)
UNEVEN = stats.norm(0, BY_WEEKDAY)

BEGINNING = slice(100)
WEEK_BEFORE = slice(-100, -93)
BUT_LAST = slice(-1)  # an end that is missing moves the cutoff
LAST = slice(-1, None)

walk = partial(memory, ar=DIFFERENCE)
errors = partial(memory, ar=(1, -0.8))
seasonal_walk = partial(memory, ar=SEASONAL_AR, ma=SEASONAL_MA)
heavy = partial(white, noise=T)
uneven = partial(white, noise=UNEVEN)
week = partial(line, period=7)
missing = partial(spoiled, factor=np.nan, rows=BUT_LAST)
last = partial(spoiled, rows=LAST)

DAILY: dict[str, Made] = {
    "level": around_level,
    "walk": partial(around_level, noise=walk),
    "AR .8": partial(around_level, noise=errors),
    "week": week,
    "growth × week": partial(growth, rate=0.005, period=7),
    "trend": partial(line, slope=0.5),
    "Poisson .3": partial(white, noise=RARE),
    "Poisson 5": partial(white, noise=COUNTS),
    "negative binomial": partial(white, noise=BURSTS),
    "lognormal": partial(white, noise=SKEWED),
    "t 2.5": partial(around_level, noise=heavy),
    "negative level": partial(around_level, sign=-1),
    "level shift": partial(shifted, ago=50, make=around_level),
    "noise by weekday": partial(around_level, noise=uneven),
    "seasonal walk": partial(around_level, noise=seasonal_walk),
    "promotion": promotion,
    "bent": bent,
    "ceiling": ceiling,
    "missing 20 %": partial(missing, make=week, share=0.2),
}
BREAKS: dict[str, Made] = {
    "clean": wave,
    "last × 10": partial(last, factor=10.0),
    "last 0": partial(last, factor=0.0),
    "2 % × 20": partial(spoiled, factor=20.0, share=0.02),
    "week of zeros": partial(spoiled, factor=0.0, rows=WEEK_BEFORE),
    "shift 10 days ago": partial(shifted, ago=10),
    "shift 30 days ago": partial(shifted, ago=30),
    "fifth shifted": partial(shifted, ago=10, share=0.2),
    "unit": partial(spoiled, factor=0.001, rows=BEGINNING),
}

apart = partial(Shape, series=30, is_apart=True)
months = partial(apart, horizon=12, unit="mo")
HOURS = Shape(unit="h")
TWO_YEARS = Shape(steps=730)
ALONE = apart(steps=730)
MONTHS = months(steps=120)
FEW_MONTHS = months(steps=36)
QUARTERS = apart(steps=40, horizon=4, unit="q")
YEARS = apart(steps=30, horizon=5, unit="y")
OTHERS: dict[str, tuple[Made, Shape]] = {
    "24 steps": (partial(line, period=24), HOURS),
    "temperatures": (temperatures, TWO_YEARS),
    "line, 120 months": (partial(line, slope=1), MONTHS),
    "line + year, 120 months": (partial(line, slope=1, period=12), MONTHS),
    "line, 30 years": (partial(line, slope=3), YEARS),
    "line + week, 730 days": (partial(line, slope=0.1, period=7), ALONE),
    "growth 1 %, 120 months": (partial(growth, rate=0.01), MONTHS),
    "growth 3 %, 36 months": (partial(growth, rate=0.03), FEW_MONTHS),
    "40 quarters": (partial(line, period=4), QUARTERS),
}
CASES = {name: (make, DAYS) for name, make in DAILY.items()}
CASES |= OTHERS
CASES |= {name: (make, Shape(60)) for name, make in BREAKS.items()}


def main() -> None:
    """Prints a line a case."""
    cases, seeds, fit = asked("processes whose best forecast is known", CASES, seeds=1)
    columns = ["regret", "first", "all", "last", "total", "mean"]
    heads = " ".join(f"{column:>6}" for column in columns)
    print(f"{'case':<24} {heads}")
    regrets = []
    for name in cases:
        make, shape = CASES[name]
        row = scores(make, shape, seeds, fit)
        cells = " ".join(f"{score:6.2f}" for score in row)
        print(f"{name:<24} {cells}", flush=True)
        regrets.append(row[0])
    mean = stats.gmean(regrets)
    above = sum(one > LIMIT for one in regrets)
    print(f"{'geometric mean':<24} {mean:6.2f}, above {LIMIT}: {above} of {len(regrets)}")


def scores(make: Made, shape: Shape, seeds: range, fit: bool) -> list[float]:
    """Returns the row of a case."""
    parts = []
    for seed in seeds:
        random = np.random.default_rng(seed)
        process = make(Draw(random, shape))
        for table in tables(process, shape):
            parts.append(forecasts(table, shape, fit))
    columns = zip(*parts, strict=True)
    truth, best, median, mean, quantiles, totals = map(np.concatenate, columns)
    inside = is_inside(quantiles, truth)  # [S, H]
    total = is_inside(totals, truth.sum(axis=1))
    excess = (mean - truth).sum()
    bias = excess / np.abs(truth).sum()
    return [
        regret(median, best, truth),
        inside[:, :2].mean(),
        inside.mean(),
        inside[:, -2:].mean(),
        total.mean(),
        1 + bias,
    ]


def tables(process: Process, shape: Shape) -> list[Process]:
    """Returns the process, or each of its series."""
    if not shape.is_apart:
        return [process]
    series = zip(process.values, process.best, strict=True)
    return [Process(values[None], best[None]) for values, best in series]


def forecasts(process: Process, shape: Shape, fit: bool) -> tuple[Floats, ...]:
    """Returns the truth, the best forecast, the median, mean, quantiles and band of the total."""
    time = dates(shape.count, shape.unit, START)
    forecast = forecast_of(
        process.values,
        time,
        shape.horizon,
        fit,
        process.covariates,
    )
    assert forecast.mean is not None
    assert np.ptp(forecast.cutoff) == 0  # else leads are not those of the truth
    truth = process.values[:, shape.steps :]
    median = forecast.median[:, :, 0]
    mean = forecast.mean[:, :, 0]
    quantiles = forecast.quantiles[:, :, 0]
    paths = forecast.draw(PATHS)[..., 0]
    sums = paths.sum(axis=2)
    totals = np.quantile(sums, BAND, axis=1)
    return truth, process.best, median, mean, quantiles, totals.T


if __name__ == "__main__":
    main()
