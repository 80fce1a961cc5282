"""What the calendar says acts at full strength where errors at earlier cutoffs say so: planted patterns."""

from datetime import date, datetime, timedelta

import numpy as np
import polars as pl
import pytest
import torch
from forecast.test_effects import QUICK, WEEK

import forecaster as fc
from forecaster.api.requests import opened
from forecaster.config import config_from
from forecaster.fitting.mixed_effects import learn_effects
from forecaster.windows.effects import alike
from forecaster.windows.store import WindowStore

NOISE = 3.0
EASTER = {2020: (4, 12), 2021: (4, 4), 2022: (4, 17), 2023: (4, 9)}


def days(count, start=date(2020, 1, 1)):
    return [start + timedelta(day) for day in range(count)]


def hours(count):
    return [datetime(2022, 1, 3) + timedelta(hours=hour) for hour in range(count)]


def months(count):
    return [date(2018 + month // 12, month % 12 + 1, 1) for month in range(count)]


def table(values, time):
    """A long table [S, n]."""
    series = np.repeat([f"s{number:03}" for number in range(len(values))], len(time))
    return pl.DataFrame({"series": series, "time": time * len(values), "y": values.ravel()})


def regret(mean, time, horizon, seed=0, fit=False):
    """Error of the median over that of the true mean [S, n], of the last steps."""
    values = mean + np.random.default_rng(seed).normal(0, NOISE, mean.shape)
    past = table(values[:, :-horizon], time[:-horizon])
    model = fc.fit(past, horizon, config=QUICK, quiet=True) if fit else None
    found = fc.predict(past, horizon) if model is None else model.predict(past)
    truth = values[:, -horizon:]
    return np.abs(found.median[:, :, 0] - truth).sum() / np.abs(mean[:, -horizon:] - truth).sum()


def pay_days():
    time = days(1156)
    is_last = np.array([(day + timedelta(1)).day == 1 for day in time])
    is_fifteenth = np.array([day.day == 15 for day in time])
    weekday = np.array([day.weekday() for day in time])
    return 100 + WEEK[weekday] + 40.0 * (is_last | is_fifteenth), time, 60


def working_days():
    time = months(132)
    month = np.array(time, "M8[M]")
    return 100 + 8.0 * (np.busday_count(month, month + 1) - 21), time, 12


def hours_of_the_week():
    random, count = np.random.default_rng(1), 24 * 60 + 48
    hour = np.arange(count)
    profiles = random.normal(size=(2, 24)).cumsum(axis=1) * 3
    weekend = (hour // 24 % 7 >= 5).astype(int)
    return 100 + profiles[weekend, hour % 24], hours(count), 48


def two_periods():
    day = np.arange(628)
    waves = np.sin(2 * np.pi * day / 23) + np.sin(2 * np.pi * day / 10.5)
    return 100 + 15 * waves, days(628), 28


def half_a_day_of_minutes():
    minute = np.arange(800)
    time = [datetime(2022, 1, 3) + timedelta(minutes=int(number)) for number in minute]
    return 100 + 5 * np.sin(2 * np.pi * minute / 60 + 1), time, 40


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        (pay_days, 1.2),
        (working_days, 1.25),
        (hours_of_the_week, 1.3),
        (two_periods, 1.3),
        (half_a_day_of_minutes, 1.15),
    ],
)
def test_a_pattern_of_the_calendar_is_forecast_nearly_whole(pattern, most):
    mean, time, horizon = pattern()
    draws = 1 if len(time) > 1000 else 3
    assert np.mean([regret(mean[None], time, horizon, seed) for seed in range(draws)]) < most


@pytest.mark.parametrize("fit", [False, True])
def test_short_series_share_a_week_that_none_has_seen_twice(fit):
    random = np.random.default_rng(3)
    week = random.normal(0, 10, 7)
    mean = random.uniform(50, 200, (50, 1)) + week[np.arange(17) % 7]
    assert regret(mean, days(17), 7, fit=fit) < 1.35


def test_short_series_share_a_year():
    random = np.random.default_rng(3)
    year = random.normal(0, 10, 12)
    mean = random.uniform(50, 200, (100, 1)) + year[np.arange(28) % 12]
    assert regret(mean, months(28), 12) < 1.3


def test_a_shock_that_all_series_share_is_no_pattern():
    random = np.random.default_rng(4)
    values = random.uniform(50, 200, (40, 1)) + random.normal(0, 5, 130)
    values = values + random.normal(0, 1, (40, 130))
    found = effects_of(table(values, days(130)))
    # Two of five terms may be believed by chance, but none by much.
    assert found is None or np.abs(found.own).max() < 3


def test_a_week_whose_spread_falls_has_no_other_period():
    random, day = np.random.default_rng(0), np.arange(60)
    level, week = random.uniform(200, 800, (50, 1)), random.lognormal(0, 0.1, 7)
    decay = level * 0.5 ** (day / 20) * week[day % 7]
    effects = effects_of(table(decay * random.lognormal(0, 0.03, decay.shape), days(60)))
    assert [term.name for term in effects.terms] == ["weekday"]


@pytest.mark.parametrize("walk", [False, True])
def test_noise_has_no_calendar(walk):
    values = np.random.default_rng(5).normal(0, NOISE, 400)
    if walk:
        values = values.cumsum()
    found = effects_of(table(100 + values[None], days(400)))
    assert found is None or np.abs(found.own).max() < NOISE / 3


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_rare_demand_has_next_to_no_calendar(seed):
    """36 orders in 730 days: effects fitted to them had a deviation of up to 2 in the logarithm."""
    rng = np.random.default_rng(seed)
    orders = (rng.random((1, 730)) < 0.05) * (1.0 + rng.poisson(3, (1, 730)))
    panel = panel_of(table(orders, days(730)))
    effects = learn_effects(panel, 14)
    assert effects is None or effects.of_calendar(panel).std() < 0.7


@pytest.mark.long
def test_a_holiday_has_an_effect_of_its_own_and_of_the_days_around_it():
    pytest.importorskip("holidays")
    time = days(1220)
    eggs = np.zeros(1220)
    for year, (month, day) in EASTER.items():
        for before in (1, 2):
            place = (date(year, month, day) - time[0]).days - before
            eggs[place] = 160
    mean = 100 + WEEK[np.arange(1220) % 7] + eggs
    cutoff = (date(2023, 3, 29) - time[0]).days
    values = mean + np.random.default_rng(6).normal(0, NOISE, 1220)
    found = fc.predict(table(values[None, :cutoff], time[:cutoff]), 21, holidays=["DE"])
    at_easter = eggs[cutoff : cutoff + 21] > 0
    extra = found.median[0, :, 0] - (mean - eggs)[cutoff : cutoff + 21]
    assert extra[at_easter].mean() > 145


def effects_of(frame):
    return learn_effects(panel_of(frame), 14)


def panel_of(frame):
    return opened(config_from(None, 7, {}), frame, None, None, begin=True)[1]


def test_effects_of_dates_are_the_columns_of_terms_times_coefficients():
    random = np.random.default_rng(7)
    week = np.array([0, 5, 8, 3, 10, 20, 15.0])
    values = [100 + week[np.arange(n) % 7] + random.normal(0, 1, n) for n in (150, 150, 120)]
    frame = pl.concat(
        table(one[None], days(len(one))).with_columns(series=pl.lit(f"s{number}"))
        for number, one in enumerate(values)
    )
    panel = panel_of(frame)
    effects = learn_effects(panel, 14)
    effect = effects.of_calendar(panel)
    assert [series for series, _, _ in alike(panel)] == [slice(0, 2), slice(2, 3)]
    for series, rows, clock in alike(panel):
        columns = np.concatenate([term.columns(panel, rows, clock) for term in effects.terms], axis=1)
        for number in range(series.start, series.stop):
            own = slice(panel.indptr[number], panel.indptr[number + 1])
            expected = columns @ effects.own[number].T
            center = expected.mean(axis=0)
            np.testing.assert_allclose(effects.center[number, :, 1], center, atol=1e-9)
            np.testing.assert_allclose(effect[own], expected - center, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("factors", [False, True])
def test_a_window_without_its_calendar_is_cut_from_a_panel_without_it(factors):
    random = np.random.default_rng(8)
    values = 100 + 5 * WEEK[np.arange(200) % 7] + random.normal(0, 1, (2, 200))
    if factors:
        values = np.exp(values / 50) * [[1], [3]]
    frame = table(values, days(200))
    artifact = fc.fit(frame, 7, config=QUICK, quiet=True).artifact
    panel = panel_of(frame)
    effects = artifact.effects
    assert effects.multiplies[0] == factors
    plan = artifact.plan.model
    removed = effects.removed(panel, effects.of_calendar(panel))
    where = np.array([0, 1, 1]), None, panel.indptr[[1, 2, 2]] - np.array([8, 8, 190])
    inputs = WindowStore(panel, plan, 7, effects).batch(*where).inputs
    expected = WindowStore(removed, plan, 7).batch(*where).inputs
    found = inputs.without_calendar()
    for name in ("context", "history"):
        mine, theirs = getattr(found, name), getattr(expected, name)
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-9, equal_nan=True)
