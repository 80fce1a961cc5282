"""Columns of what events and numbers do beyond their own step, beside slow, obvious twins."""

from datetime import date, timedelta
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

import forecaster as fc
from forecaster.panel.calendar import Calendar
from forecaster.windows.effect_columns import (
    AHEAD,
    REACH,
    Dates,
    Term,
    _around,
    _is_before,
    _knots,
    _lasting,
    _steps_since,
    decaying,
    shifted,
)

DAYS, HORIZON = 400, 14


def test_steps_since_an_event_began_are_counted_series_by_series():
    random = np.random.default_rng(0)
    happens, indptr = random.random(60) < 0.6, [0, 20, 20, 45, 60]
    expected = []
    for start, stop in pairwise(indptr):
        begun = -1
        for row in range(start, stop):
            begun = begun + 1 if happens[row] else -1
            expected.append(begun)
    np.testing.assert_array_equal(_steps_since(happens, indptr), expected)


def test_an_event_has_a_column_from_each_step_on_that_it_lasts():
    event = np.array([0, 2, 2, 2, 2, 0, 2, 0])
    expected = [[0, 0], [0, 0], [2, 0], [2, 0], [2, 2], [0, 0], [0, 0], [0, 0]]
    np.testing.assert_array_equal(_lasting(event, (1, 3)), expected)


@pytest.mark.parametrize("half_life", [1, 3, 10])
def test_half_of_what_a_value_does_is_gone_after_its_half_life(half_life):
    values = np.random.default_rng(1).normal(size=300)
    kept, left, expected = 0.5 ** (1 / half_life), 0.0, []
    for value in values:
        left = kept * left + (1 - kept) * value
        expected.append(left)
    np.testing.assert_allclose(decaying(values, half_life), expected, atol=5e-3)
    one = decaying(np.eye(1, 40)[0], half_life)
    np.testing.assert_allclose(one[half_life], one[0] / 2)


def test_a_promotion_that_wears_off_is_forecast_day_by_day():
    random = np.random.default_rng(2)
    day, since = np.arange(DAYS + HORIZON), np.full(DAYS + HORIZON, -1)
    for start in [*(27 * np.arange(14) + random.integers(0, 15, 14)), DAYS + 2]:
        since[start : start + 7] = np.arange(7)
    promo = (since >= 0) * 1.0
    mean = 200 + 80 * promo * 0.75**since
    frame = pl.DataFrame(
        {
            "date": [date(2022, 1, 3) + timedelta(int(one)) for one in day],
            "y": mean + random.normal(0, 6, DAYS + HORIZON),
            "promo": promo,
        }
    )
    frame = frame.with_columns(y=pl.when(pl.int_range(pl.len()) < DAYS).then("y"))
    forecast = fc.predict(frame, HORIZON, known=["promo"])
    missed = np.abs(forecast.median[0, :, 0] - mean[DAYS:])
    assert missed.mean() < 2.5 and missed.max() < 8  # 8 and 33 by who has one effect of all days
    report = fc.explain(frame, HORIZON, known=["promo"]).effects.report
    assert "promo, from day 2 on: \N{MINUS SIGN}" in report


@pytest.mark.parametrize("words", [None, ("none", "flyer")])
def test_a_dip_of_weeks_after_an_event_is_forecast(words):
    random = np.random.default_rng(3)
    event = np.zeros(DAYS + HORIZON)
    event[[*(38 * np.arange(10) + random.integers(0, 8, 10)), DAYS - 4]] = 1
    since = np.full(DAYS + HORIZON, 99)
    for day in range(DAYS + HORIZON):
        since[day] = 0 if event[day] else since[day - 1] + 1 if day else 99
    dip = 30 * np.maximum(1 - since / 21, 0) * (since > 0)
    mean = 200 + 60 * event - dip
    shown = event if words is None else np.array(words)[event.astype(int)]
    frame = pl.DataFrame(
        {
            "date": [date(2022, 1, 3) + timedelta(day) for day in range(DAYS + HORIZON)],
            "y": mean + random.normal(0, 5, DAYS + HORIZON),
            "event": shown,
        }
    ).with_columns(y=pl.when(pl.int_range(pl.len()) < DAYS).then("y"))
    forecast = fc.predict(frame, HORIZON, known=["event"])
    missed = np.abs(forecast.median[0, :, 0] - mean[DAYS:]).mean()
    assert missed < 3  # 9 by who has three days around it
    assert "before, half-life of 10 days" in fc.explain(frame, HORIZON, known=["event"]).effects.report


def test_values_before_and_later_are_those_of_other_rows():
    values = np.arange(5.0)
    np.testing.assert_array_equal(shifted(values, 2), [np.nan, np.nan, 0, 1, 2])
    np.testing.assert_array_equal(shifted(values, -2), [2, 3, 4, np.nan, np.nan])
    np.testing.assert_array_equal(shifted(values, 0), values)


@pytest.mark.parametrize("value", [1.0, -1.0])
def test_rows_around_and_before_an_event_have_columns(value):
    happens = np.random.default_rng(3).random(80) < 0.05
    shifts = [shift for shift in range(-REACH, REACH + 1) if shift]
    expected = []
    for row in range(80):
        there = {shift: 0 <= row + shift < 80 and happens[row + shift] for shift in range(-20, 21)}
        near = [there[shift] for shift in shifts]
        coming = [any(there[later] for later in range(1, reach + 1)) for reach in AHEAD]
        expected.append(near + coming)
    np.testing.assert_array_equal(_around(happens * value), np.array(expected) * value)


def test_days_before_a_holiday_are_those_it_comes_within():
    random = np.random.default_rng(4)
    days, events = np.arange(200), random.choice(200, 5, replace=False)
    expected = [any(0 < event - day <= 7 for event in events) for day in days]
    np.testing.assert_array_equal(_is_before(days, events, 7), expected)
    assert not _is_before(days, np.array([], np.int64), 7).any()


def test_a_number_bends_among_the_values_beside_its_usual_one():
    random = np.random.default_rng(5)
    spent = np.where(random.random(1000) < 0.1, random.lognormal(5, 1, 1000), 0.0)
    others = np.quantile(spent[spent > 0], [0.1, 0.3, 0.5, 0.7, 0.9])
    np.testing.assert_allclose(_knots(spent), [0.0, *others])
    spread = random.normal(size=1000)
    np.testing.assert_allclose(_knots(spread), np.quantile(spread, [0.1, 0.3, 0.5, 0.7, 0.9]))


def _last_of(day, step):
    """The last day of the month, or of the quarter, of a date."""
    month = (day.month - 1) // step * step + step
    return date(day.year + month // 12, month % 12 + 1, 1) - timedelta(1)


def _business_days_left(day, last):
    """Those after a date up to a last one; −1 of a weekend."""
    if day.weekday() > 4:
        return -1
    count = (last - day).days
    return sum((day + timedelta(ahead)).weekday() < 5 for ahead in range(1, count + 1))


TWINS = {
    "weekday of the month": (35, lambda day: (day.day - 1) // 7 * 7 + day.weekday()),
    "last weekday of the month": (
        7,
        lambda day: day.weekday() if (_last_of(day, 1) - day).days < 7 else -1,
    ),
    "days to the end of a quarter": (7, lambda day: (_last_of(day, 3) - day).days),
    "business days to its end": (4, lambda day: _business_days_left(day, _last_of(day, 1))),
    "business days to the end of a quarter": (
        4,
        lambda day: _business_days_left(day, _last_of(day, 3)),
    ),
}


@pytest.mark.parametrize("name", TWINS)
def test_dates_have_the_column_that_a_calendar_on_the_wall_says(name):
    count, column_of = TWINS[name]
    days = [date(2023, 1, 1) + timedelta(one) for one in range(800)]
    expected = np.zeros((800, count))
    for row, day in enumerate(days):
        column = column_of(day)
        if 0 <= column < count:
            expected[row, column] = 1
    calendar = Calendar("1d", None, False)
    time = calendar.instant(np.array(days, "M8[us]").astype(np.int64))
    term, clock = Term(name, "calendar"), Dates(calendar, time)
    coefficients = np.random.default_rng(6).normal(size=count)
    np.testing.assert_allclose(term.at_dates(clock, coefficients), expected @ coefficients)
    assert term.is_of_dates and term.size(calendar) == count


def _third_friday(day):
    return day.weekday() == 4 and 15 <= day.day <= 21


def _of_quarter(day):
    return (_last_of(day, 3) - day).days < 3


@pytest.mark.long
@pytest.mark.parametrize("is_one", [_third_friday, _of_quarter, lambda day: day.day == 25])
def test_what_dates_of_a_month_do_is_forecast_whole(is_one):
    """Of 60 six to forty were left while experts forecast twice, with it and without."""
    random, count, horizon = np.random.default_rng(7), 900, 100
    days = [date(2022, 1, 3) + timedelta(one) for one in range(count + horizon)]
    special = np.array([is_one(day) for day in days])
    mean = 200 + random.normal(0, 8, 7)[np.arange(len(days)) % 7] + 60 * special
    frame = pl.DataFrame({"date": days, "y": mean + random.normal(0, 6, len(days))}).head(count)
    missed = fc.predict(frame, horizon).median[0, :, 0] - mean[count:]
    assert np.abs(missed[special[count:]]).mean() < 6


def _slope_at_weekends(day, x):
    return np.where(day % 7 > 4, 20, 5) * x


def _event_through_the_year(day, x):
    return 30 * (x > 1) * (1 + np.cos(2 * np.pi * day / 365.25))


def _what_is_mostly_not_spent(_, x):
    return 15 * np.log1p(np.where(x > 1, np.exp(3 * x), 0.0))


def _day_before(_, x):
    return 15 * np.append(x[1:], 0.0)


COVARIATES = {
    _slope_at_weekends: lambda x: x,
    _event_through_the_year: lambda x: (x > 1) * 1.0,
    _what_is_mostly_not_spent: lambda x: np.where(x > 1, np.exp(3 * x), 0.0),
    _day_before: lambda x: x,
}


@pytest.mark.long
@pytest.mark.parametrize("effect", COVARIATES)
def test_an_effect_that_is_not_the_same_on_every_day_is_forecast_whole(effect):
    """Error over the least possible: 1.6 to 3.4 by one slope that bends at five quantiles of all values."""
    missed, least = 0.0, 0.0
    for seed in range(3):
        random, count = np.random.default_rng(seed), 800
        day, x = np.arange(count + 28), random.normal(size=count + 28)
        mean = 200 + effect(day, x)
        y = mean + random.normal(0, 6, count + 28)
        frame = pl.DataFrame(
            {"date": [date(2022, 1, 3) + timedelta(int(one)) for one in day], "y": y}
        ).with_columns(x=COVARIATES[effect](x), y=pl.when(pl.int_range(pl.len()) < count).then("y"))
        median = fc.predict(frame, 28, known=["x"]).median[0, :, 0]
        # What is known of the last day of the plan may act on the one before alone.
        missed += np.abs(y[count:] - median)[:-1].sum()
        least += np.abs(y - mean)[count:-1].sum()
    assert missed < 1.2 * least


@pytest.mark.long
def test_what_is_planned_after_the_horizon_changes_no_forecast_of_a_backtest():
    """The last steps of a horizon are those before a price rises, or an event, that nobody knows of yet."""
    random, count = np.random.default_rng(8), 300
    x, event = random.normal(size=count + 1), random.random(count + 8) < 0.08
    nearing = np.lib.stride_tricks.sliding_window_view(event, 8).sum(axis=1)[:count]
    y = 200 + 15 * x[1:] + 20 * nearing + random.normal(0, 2, count)
    frame = pl.DataFrame(
        {
            "date": [date(2022, 1, 3) + timedelta(one) for one in range(count)],
            "y": y,
            "x": x[:-1],
            "event": event[:count] * 1.0,
        }
    )
    later = pl.int_range(pl.len()) >= count - HORIZON
    other = frame.with_columns(
        x=pl.when(later).then(pl.col("x") + 3).otherwise("x"),
        event=pl.when(later).then(1 - pl.col("event")).otherwise("event"),
    )
    given = {"known": ["x", "event"], "windows": 2, "fit": False, "tracking": False, "quiet": True}
    one, two = (fc.backtest(table, HORIZON, **given).forecasts for table in (frame, other))
    np.testing.assert_array_equal(one[0].quantiles, two[0].quantiles)
    assert np.abs(one[1].quantiles - two[1].quantiles).max() > 10
