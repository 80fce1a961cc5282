"""How near forecasts come to the best one, on processes whose best forecast is known.

    python benchmarks/known.py [--seeds 1] [--only walk] [--fit]

Every case has series of one process, with levels and seasons of their own; for lines, growth and quarters each
series is a table by itself. Breaks, from "clean" on, are in the past alone, or shift what comes as well.

regret   Σ |median − truth| of the steps ahead, over that of the true median given the past; over all draws
first    share of the truth within the 80 % band at the first two leads, then at all, and at the last two
total    share of the totals of a series' horizon within their 80 % band
mean     1 + (Σ mean − Σ truth) / Σ |truth|, so Σ mean / Σ truth where none is negative
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
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
    def size(self) -> tuple[int, int]:
        return self.series, self.steps + self.horizon

    @property
    def time(self) -> Floats:
        return np.arange(self.steps + self.horizon, dtype=float)


@dataclass(frozen=True)
class Process:
    """Series [S, n] and what is known of them."""

    values: Floats
    best: Floats
    """[S, H] true median ahead, given the past."""
    covariates: dict[str, Floats]

    def plus(self, mean: Floats, **covariates: Floats) -> Process:
        """Returns the process with a mean [S, n] added."""
        ahead = mean[:, -self.best.shape[1] :]
        return Process(self.values + mean, self.best + ahead, covariates)


Made = Callable[[Random, Shape], Process]
NORMAL = stats.norm(0, 5)


# Noise


def white(random: Random, shape: Shape, noise: Any = NORMAL) -> Process:
    """Independent draws of a distribution."""
    values = noise.rvs(shape.size, random_state=random)
    median = np.broadcast_to(noise.median(), shape.size)
    return Process(values, median[:, shape.steps :], {})


def linear(random: Random, shape: Shape, ar: Floats, ma: Floats) -> Process:
    """ar(B) y = ma(B) ε; the best forecast has no ε ahead."""
    shock = NORMAL.rvs(shape.size, random_state=random)
    is_past = shape.time < shape.steps
    values = lfilter(ma, ar, shock)
    best = lfilter(ma, ar, shock * is_past)
    return Process(values, best[:, shape.steps :], {})


# Patterns


def level(random: Random, shape: Shape) -> Floats:
    return random.uniform(50, 200, (shape.series, 1))


def around_level(random: Random, shape: Shape, ar: Floats, ma: Floats) -> Process:
    noise = linear(random, shape, ar, ma)
    mean = level(random, shape) + 0 * shape.time
    return noise.plus(mean)


def line(
    random: Random,
    shape: Shape,
    slope: float = 0.0,
    period: int = 1,
    noise: Any = NORMAL,
    sign: float = 1.0,
) -> Process:
    """Mean = level + slope t + season(t mod period)."""
    slopes = random.uniform(0, 2 * slope, (shape.series, 1))
    season = random.normal(0, 10, (shape.series, period))
    seasons = season[:, np.arange(len(shape.time)) % period]
    mean = sign * level(random, shape) + slopes * shape.time + seasons
    return white(random, shape, noise).plus(mean)


def growth(random: Random, shape: Shape, rate: float, period: int = 1) -> Process:
    """Mean = level (1 + rate)ᵗ season(t mod period), and noise of 5 % of it."""
    season = np.exp(random.normal(0, 0.1, (shape.series, period)))
    seasons = season[:, np.arange(len(shape.time)) % period]
    mean = level(random, shape) * (1 + rate) ** shape.time * seasons
    noise = random.normal(0, 0.05, shape.size)
    return Process(mean * (1 + noise), mean[:, shape.steps :], {})


def ceiling(random: Random, shape: Shape) -> Process:
    """Mean = level / (1 + exp((100 − t) / 25))."""
    share = 1 / (1 + np.exp((100 - shape.time) / 25))
    mean = level(random, shape) * share
    return white(random, shape, stats.norm(0, 2)).plus(mean)


def temperatures(random: Random, shape: Shape) -> Process:
    phase = random.uniform(0, 1, (shape.series, 1))
    year = np.sin(2 * np.pi * (shape.time / 365.25 + phase))
    noise = linear(random, shape, ar=AR_7, ma=ONE)
    return noise.plus(10 + 15 * year)


def promotion(random: Random, shape: Shape) -> Process:
    """Half as much again on 15 % of days."""
    promo = (random.random(shape.size) < 0.15) * 1.0
    mean = level(random, shape) * (1 + 0.5 * promo)
    return white(random, shape).plus(mean, promo=promo)


def bent(random: Random, shape: Shape) -> Process:
    """Degrees above 20 act, those below do not."""
    degrees = random.normal(15, 8, shape.size)
    mean = level(random, shape) + 4 * np.maximum(degrees - 20, 0)
    return white(random, shape).plus(mean, degrees=degrees)


# Breaks


def wave(random: Random, shape: Shape) -> Process:
    """Mean = level + 10 sin(2π (t / 7 + phase))."""
    phase = random.uniform(0, 1, (shape.series, 1))
    week = np.sin(2 * np.pi * (shape.time / 7 + phase))
    mean = level(random, shape) + 10 * week
    return white(random, shape, stats.norm(0, 3)).plus(mean)


def shifted(
    random: Random, shape: Shape, make: Made, size: float, ago: int, share: float = 1.0
) -> Process:
    """A share of the series moves so many steps ago, for good."""
    number = np.arange(shape.series)[:, None]
    is_moved = number < share * shape.series
    is_after = shape.time >= shape.steps - ago
    return make(random, shape).plus(size * is_moved * is_after)


def spoiled(
    random: Random, shape: Shape, make: Made, factor: float, rows: slice, share: float = 1.0
) -> Process:
    """A share of the cells in some rows of the past is multiplied."""
    process = make(random, shape)
    past = process.values[:, : shape.steps]
    is_spoiled = random.random(past.shape) < share
    factors = np.where(is_spoiled, factor, 1.0)
    past[:, rows] *= factors[:, rows]
    return process


# Cases

ONE = np.ones(1)
DIFFERENCE = np.array([1.0, -1.0])
AR_8 = np.array([1.0, -0.8])
AR_7 = np.array([1.0, -0.7])
WEEKLY = np.array([1.0, 0, 0, 0, 0, 0, 0, -1.0])
OWN_THETA = np.array([1.0, -0.4])
WEEKLY_THETA = np.array([1.0, 0, 0, 0, 0, 0, 0, -0.4])
SEASONAL_AR = np.convolve(DIFFERENCE, WEEKLY)
SEASONAL_MA = np.convolve(OWN_THETA, WEEKLY_THETA)

DAYS = Shape()
HOURS = Shape(unit="h")
TWO_YEARS = Shape(steps=730)
MONTHS = Shape(30, 120, 12, "mo", is_apart=True)
FEW_MONTHS = Shape(30, 36, 12, "mo", is_apart=True)
QUARTERS = Shape(30, 40, 4, "q", is_apart=True)
YEARS = Shape(30, 30, 5, "y", is_apart=True)
MANY_DAYS = Shape(30, 730, is_apart=True)
BROKEN = Shape(60)

SCATTER = np.resize([2, 2, 2, 2, 2, 12, 12.0], len(DAYS.time))
LAST = slice(-1, None)
ALL = slice(None)
WEEK_AGO = slice(-100, -93)
BEGINNING = slice(0, 100)
week = partial(line, period=7)
broken = partial(spoiled, make=wave)
moved = partial(shifted, make=wave, size=60.0)

CASES: dict[str, tuple[Made, Shape]] = {
    "level": (line, DAYS),
    "walk": (partial(around_level, ar=DIFFERENCE, ma=ONE), DAYS),
    "AR .8": (partial(around_level, ar=AR_8, ma=ONE), DAYS),
    "week": (week, DAYS),
    "growth × week": (partial(growth, rate=0.005, period=7), DAYS),
    "trend": (partial(line, slope=0.5), DAYS),
    "Poisson .3": (partial(white, noise=stats.poisson(0.3)), DAYS),
    "Poisson 5": (partial(white, noise=stats.poisson(5)), DAYS),
    "negative binomial": (partial(white, noise=stats.nbinom(0.5, 0.2)), DAYS),
    "lognormal": (partial(white, noise=stats.lognorm(1, scale=20)), DAYS),
    "t 2.5": (partial(line, noise=stats.t(2.5, scale=5)), DAYS),
    "negative level": (partial(line, sign=-1.0), DAYS),
    "level shift": (partial(shifted, make=line, size=60.0, ago=50), DAYS),
    "24 steps": (partial(line, period=24), HOURS),
    "noise by weekday": (partial(line, noise=stats.norm(0, SCATTER)), DAYS),
    "seasonal walk": (partial(around_level, ar=SEASONAL_AR, ma=SEASONAL_MA), DAYS),
    "temperatures": (temperatures, TWO_YEARS),
    "promotion": (promotion, DAYS),
    "bent": (bent, DAYS),
    "ceiling": (ceiling, DAYS),
    "missing 20 %": (partial(spoiled, make=week, factor=np.nan, rows=ALL, share=0.2), DAYS),
    "line, 120 months": (partial(line, slope=1.0), MONTHS),
    "line + year, 120 months": (partial(line, slope=1.0, period=12), MONTHS),
    "line, 30 years": (partial(line, slope=3.0), YEARS),
    "line + week, 730 days": (partial(line, slope=0.1, period=7), MANY_DAYS),
    "growth 1 %, 120 months": (partial(growth, rate=0.01), MONTHS),
    "growth 3 %, 36 months": (partial(growth, rate=0.03), FEW_MONTHS),
    "40 quarters": (partial(line, period=4), QUARTERS),
    "clean": (wave, BROKEN),
    "last × 10": (partial(broken, factor=10.0, rows=LAST), BROKEN),
    "last 0": (partial(broken, factor=0.0, rows=LAST), BROKEN),
    "2 % × 20": (partial(broken, factor=20.0, rows=ALL, share=0.02), BROKEN),
    "week of zeros": (partial(broken, factor=0.0, rows=WEEK_AGO), BROKEN),
    "shift 10 days ago": (partial(moved, ago=10), BROKEN),
    "shift 30 days ago": (partial(moved, ago=30), BROKEN),
    "fifth shifted": (partial(moved, ago=10, share=0.2), BROKEN),
    "unit": (partial(broken, factor=0.001, rows=BEGINNING), BROKEN),
}


def main() -> None:
    """Prints a line a case."""
    cases, seeds, fit = asked("processes whose best forecast is known", CASES, seeds=1)
    print(f"{'case':<24} {'regret':>6} {'first':>6} {'all':>6} {'last':>6} {'total':>6} {'mean':>6}")
    regrets = []
    for name in cases:
        row = scores(*CASES[name], seeds, fit)
        regrets.append(row[0])
        print(f"{name:<24} " + " ".join(f"{score:6.2f}" for score in row), flush=True)
    mean = np.exp(np.log(regrets).mean())
    above = np.sum(np.array(regrets) > LIMIT)
    print(f"{'geometric mean':<24} {mean:6.2f}, above {LIMIT}: {above} of {len(regrets)}")


def scores(make: Made, shape: Shape, seeds: range, fit: bool) -> tuple[float, ...]:
    """Returns the row of a case."""
    parts = []
    for seed in seeds:
        process = make(np.random.default_rng(seed), shape)
        parts += [forecasts(part, shape, fit) for part in tables(process, shape)]
    truth, best, median, mean, quantiles, totals = map(np.concatenate, zip(*parts, strict=True))
    inside = is_inside(quantiles, truth)  # [S, H]
    total_inside = is_inside(totals, truth.sum(axis=1))
    bias = (mean - truth).sum() / np.abs(truth).sum()
    return (
        regret(median, best, truth),
        inside[:, :2].mean(),
        inside.mean(),
        inside[:, -2:].mean(),
        total_inside.mean(),
        1 + bias,
    )


def tables(process: Process, shape: Shape) -> list[Process]:
    """Returns the process, or each of its series."""
    if not shape.is_apart:
        return [process]
    rows = [slice(number, number + 1) for number in range(shape.series)]
    return [Process(process.values[row], process.best[row], {}) for row in rows]


def forecasts(process: Process, shape: Shape, fit: bool) -> tuple[Floats, ...]:
    """Returns the truth, its best forecast, the median, mean, quantiles and band of the total."""
    truth = process.values[:, shape.steps :]
    time = dates(len(shape.time), shape.unit, START)
    forecast = forecast_of(process.values, time, shape.horizon, fit, process.covariates)
    assert forecast.mean is not None
    median = forecast.median[:, :, 0]
    mean = forecast.mean[:, :, 0]
    quantiles = forecast.quantiles[:, :, 0]
    paths = forecast.draw(PATHS)[..., 0].sum(axis=2)  # [S, path]
    totals = np.quantile(paths, BAND, axis=1).T
    return truth, process.best, median, mean, quantiles, totals


if __name__ == "__main__":
    main()
