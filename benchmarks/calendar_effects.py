"""How near a forecast comes to the best one on planted patterns of the calendar, and of series that share one.

    python benchmarks/calendar_effects.py [--seeds 3] [--only "pay days"] [--fit]

regret     Σ |median − value| of the steps ahead, over that of the true mean; over all draws
coverage   share of the values ahead within the outermost quantiles, 80 %
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial

import numpy as np
from numpy.typing import NDArray
from planted import WEEK, Floats, Random, asked, dates, forecast_of, is_inside, regret

NOISE = 3.0


@dataclass(frozen=True)
class Planted:
    """Series of the same dates."""

    mean: Floats
    """[S, n] true means."""
    time: list[date]
    """[n]"""
    horizon: int
    relative: bool = False
    """Whether noise is a share of the mean."""
    common: Floats | None = None
    """[n] noise that all series share."""


def days(count: int, start: date = date(2020, 1, 1)) -> list[date]:
    return dates(count, "d", start)


def clock(count: int, minutes: int) -> list[date]:
    return dates(count, "m", datetime(2022, 1, 3), every=minutes)


def months(count: int) -> list[date]:
    return dates(count, "mo", date(2014, 1, 1))


def weekdays(time: list[date]) -> NDArray[np.int64]:
    return np.array([day.weekday() for day in time])


def pay_days(random: Random) -> Planted:
    time = days(1156)
    is_paid = np.array([day.day == 15 or (day + timedelta(1)).day == 1 for day in time])
    return Planted((100 + WEEK[weekdays(time)] + 40.0 * is_paid)[None], time, 60)


def last_business_days(random: Random) -> Planted:
    time = days(1156)
    day = np.array(time, "M8[D]")
    end = (day.astype("M8[M]") + 1).astype("M8[D]")
    is_last = (np.busday_count(day, end) == 1) & np.is_busday(day)
    return Planted((100 + WEEK[weekdays(time)] + 40.0 * is_last)[None], time, 60)


def before_christmas(random: Random) -> Planted:
    time = days(1155, date(2020, 10, 20))
    away = np.array([abs((date(day.year, 12, 20) - day).days) for day in time])
    return Planted((100 + WEEK[weekdays(time)] + 30 * np.maximum(0, 1 - away / 14))[None], time, 60)


def working_days(random: Random) -> Planted:
    time = months(132)
    month = np.array(time, "M8[M]")
    return Planted((100 + 8.0 * (np.busday_count(month, month + 1) - 21))[None], time, 12)


def growth_by_month(random: Random) -> Planted:
    month = np.arange(132)
    mean = 100 * 1.01**month * (1 + 0.2 * np.sin(2 * np.pi * month / 12))
    return Planted(mean[None], months(132), 12, relative=True)


def week_by_clock(minutes: int, count: int, random: Random) -> Planted:
    """Another profile of the day at weekends."""
    a_day = 1440 // minutes
    step = np.arange(count + a_day)
    profiles = random.normal(size=(2, a_day)).cumsum(axis=1)
    profiles = 10 * (profiles - profiles.mean(axis=1, keepdims=True)) / profiles.std()
    weekend = (step // a_day % 7 >= 5).astype(np.int64)
    return Planted((100 + profiles[weekend, step % a_day])[None], clock(len(step), minutes), a_day)


def periods(lengths: tuple[float, ...], minutes: int, random: Random) -> Planted:
    step = np.arange(800)
    waves = [5 * np.sin(2 * np.pi * (step / length + random.random())) for length in lengths]
    return Planted((100 + np.sum(waves, axis=0))[None], clock(800, minutes), 40)


def shared_week(count: int, own: bool, random: Random) -> Planted:
    level = random.uniform(50, 200, (50, 1))
    week = random.normal(0, 10, (50 if own else 1, 7))
    ahead = 7 if count < 14 else 14
    return Planted(level + week[:, np.arange(count + ahead) % 7], days(count + ahead), ahead)


def shared_year(count: int, random: Random) -> Planted:
    level, year = random.uniform(50, 200, (100, 1)), random.normal(0, 10, 12)
    return Planted(level + year[np.arange(count + 12) % 12], months(count + 12), 12)


def life_cycles(random: Random) -> Planted:
    level, week = random.uniform(200, 800, (50, 1)), np.exp(random.normal(0, 0.1, 7))
    day = np.arange(74)
    return Planted(level * 0.5 ** (day / 20) * week[day % 7], days(74), 14, relative=True)


def common_shock(random: Random) -> Planted:
    """No pattern, but errors that go together."""
    mean = random.uniform(50, 200, (50, 1)) + np.zeros(144)
    return Planted(mean, days(144), 14, common=random.normal(0, 5, 144))


def noise_alone(random: Random) -> Planted:
    return Planted(np.full((1, 428), 100.0), days(428), 28)


CASES: dict[str, Callable[[Random], Planted]] = {
    "pay days": pay_days,
    "last business day": last_business_days,
    "before Christmas": before_christmas,
    "working days": working_days,
    "growth × month": growth_by_month,
    "hour × weekday": partial(week_by_clock, 60, 24 * 60),
    "quarter hours": partial(week_by_clock, 15, 96 * 30),
    "17 days": partial(periods, (17.0,), 1440),
    "23 and 7 days": partial(periods, (23.0, 7.0), 1440),
    "10.5 hours": partial(periods, (10.5,), 60),
    "60 minutes": partial(periods, (60.0,), 1),
    "50 × 10 days": partial(shared_week, 10, False),
    "50 × 20 days": partial(shared_week, 20, False),
    "own weeks": partial(shared_week, 100, True),
    "100 × 16 months": partial(shared_year, 16),
    "100 × 30 months": partial(shared_year, 30),
    "life cycles": life_cycles,
    "common shock": common_shock,
    "noise": noise_alone,
}


def main() -> None:
    """Prints a line a case."""
    cases, seeds, fit = asked("planted patterns of the calendar", CASES, seeds=3)
    print(f"{'case':<18} {'regret':>6} {'coverage':>8}")
    for name in cases:
        draws = [forecasts(CASES[name], seed, fit) for seed in seeds]
        truth, best, median, quantiles = map(np.concatenate, zip(*draws, strict=True))
        coverage = is_inside(quantiles, truth).mean()
        print(f"{name:<18} {regret(median, best, truth):6.2f} {coverage:8.2f}", flush=True)


def forecasts(case: Callable[[Random], Planted], seed: int, fit: bool) -> tuple[Floats, ...]:
    """Returns the truth of a draw, its mean, the median and the quantiles."""
    random = np.random.default_rng(seed)
    planted = case(random)
    noise = random.normal(0, NOISE, planted.mean.shape)
    if planted.relative:
        noise = planted.mean * noise / 100
    if planted.common is not None:
        noise = noise / 3 + planted.common
    values = planted.mean + noise
    ahead = planted.horizon
    forecast = forecast_of(values, planted.time, ahead, fit)
    median = forecast.median[:, :, 0]
    quantiles = forecast.quantiles[:, :, 0]
    return values[:, -ahead:], planted.mean[:, -ahead:], median, quantiles


if __name__ == "__main__":
    main()
