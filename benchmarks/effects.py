"""How much of a planted effect a forecast keeps, without a fit or with the default fit.

    python benchmarks/effects.py [--seeds 6] [--only slope] [--fit]

Each case is one series of 400 days, with a week and noise of 5, forecast 28 days ahead with its covariates known.

error     mean |median − true mean| of the days ahead, the noise left out; mean over seeds
without   that of the same series without the planted effect, and without covariates
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

import numpy as np
from planted import WEEK, Floats, Random, asked, dates, forecast_of

DAYS, HORIZON, NOISE = 400, 28, 5.0
STEPS = DAYS + HORIZON
TIME = dates(STEPS, "d", date(2022, 1, 3))
BASE = 100 + WEEK[np.arange(STEPS) % 7]


@dataclass(frozen=True)
class Planted:
    """One series."""

    mean: Floats
    """[n] its true mean."""
    covariates: dict[str, Floats]
    noise: Floats | None = None
    """[n]; None = white."""


def promotion(share: float, factor: float) -> Callable[[Random], Planted]:
    """Returns a maker of sales that a promotion on some days multiplies."""

    def made(random: Random) -> Planted:
        promo = (random.random(STEPS) < share) * 1.0
        return Planted(BASE * (1 + (factor - 1) * promo), {"promo": promo})

    return made


def price(random: Random) -> Planted:
    paid = random.choice([1.0, 0.9, 0.8, 1.1], STEPS, p=[0.6, 0.2, 0.1, 0.1])
    return Planted(BASE * paid**-2, {"price": paid})


def slope(random: Random) -> Planted:
    x = random.normal(size=STEPS)
    return Planted(100 + 10 * x, {"x": x})


def bent(random: Random) -> Planted:
    degrees = 12 + 10 * np.sin(2 * np.pi * np.arange(STEPS) / 365) + random.normal(0, 3, STEPS)
    heating, cooling = np.maximum(10 - degrees, 0), np.maximum(degrees - 20, 0)
    return Planted(BASE + 3 * heating + 4 * cooling, {"degrees": degrees})


def saturdays(random: Random) -> Planted:
    promo = (np.arange(STEPS) % 7 == 5) * (random.random(STEPS) < 0.4) * 1.0
    return Planted(BASE + 50 * promo, {"promo": promo})


def long_memory(random: Random) -> Planted:
    promo = (random.random(STEPS) < 0.2) * 1.0
    noise, steps = np.zeros(STEPS), random.normal(0, NOISE * np.sqrt(1 - 0.9**2), STEPS)
    for row in range(1, STEPS):
        noise[row] = 0.9 * noise[row - 1] + steps[row]
    return Planted(BASE + 40 * promo, {"promo": promo}, noise)


def shifted(random: Random) -> Planted:
    promo = (random.random(STEPS) < 0.2) * 1.0
    return Planted(BASE + 40 * promo + 80 * (np.arange(STEPS) > 200), {"promo": promo})


def twice(random: Random) -> Planted:
    promo = (random.random(STEPS) < 0.2) * 1.0
    return Planted(BASE + 40 * promo, {"promo": promo, "again": promo})


def dip(random: Random) -> Planted:
    promo = (random.random(STEPS) < 0.2) * 1.0
    return Planted(BASE + 40 * promo - 20 * np.append(0, promo[:-1]), {"promo": promo})


def spoiled(fault: Callable[[Floats], Floats]) -> Callable[[Random], Planted]:
    """Returns a maker of a slope whose covariate has a fault."""

    def made(random: Random) -> Planted:
        x = random.normal(size=STEPS)
        return Planted(BASE + 10 * x, {"x": fault(x)})

    return made


def irrelevant(random: Random) -> Planted:
    noise, walk = random.normal(size=(2, STEPS))
    trend = np.arange(STEPS) / 100
    return Planted(BASE, {"noise": noise, "walk": walk.cumsum(), "trend": trend})


CASES: dict[str, Callable[[Random], Planted]] = {
    "promotion + 200 %": promotion(0.05, 3.0),
    "promotion + 50 %": promotion(0.2, 1.5),
    "price": price,
    "slope": slope,
    "bent": bent,
    "some saturdays": saturdays,
    "errors AR .9": long_memory,
    "level shift": shifted,
    "two equal": twice,
    "dip after": dip,
    "half missing": spoiled(lambda x: np.where(np.arange(STEPS) < 200, np.nan, x)),
    "half zero": spoiled(lambda x: np.where(np.arange(STEPS) < 200, 0.0, x)),
    "a cell of 1e6": spoiled(lambda x: np.where(np.arange(STEPS) == 100, 1e6, x)),
    "irrelevant": irrelevant,
}


def main() -> None:
    """Prints a line a case."""
    cases, seeds, fit = asked("planted effects of covariates", CASES, seeds=6)
    print(f"{'case':<18} {'error':>6} {'without':>8}")
    for name in cases:
        errors = [error_of(CASES[name], seed, fit) for seed in seeds]
        error, without = np.mean(errors, axis=0)
        print(f"{name:<18} {error:6.2f} {without:8.2f}", flush=True)


def error_of(case: Callable[[Random], Planted], seed: int, fit: bool) -> tuple[float, float]:
    """Returns the error of a draw, and that without its effect."""
    random = np.random.default_rng(seed)
    planted = case(random)
    noise = random.normal(0, NOISE, STEPS) if planted.noise is None else planted.noise
    with_effect = forecast_error(planted.mean, noise, planted.covariates, fit)
    return with_effect, forecast_error(BASE, noise, {}, fit)


def forecast_error(mean: Floats, noise: Floats, covariates: dict[str, Floats], fit: bool) -> float:
    """Returns the mean distance of the median from the true mean."""
    values = (mean + noise)[None]
    forecast = forecast_of(values, TIME, HORIZON, fit, covariates)
    return float(np.abs(forecast.median[0, :, 0] - mean[DAYS:]).mean())


if __name__ == "__main__":
    main()
