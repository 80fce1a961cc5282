"""Columns of what events and numbers do beyond their own step, beside slow, obvious twins."""

from datetime import date, timedelta
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

import forecaster as fc
from forecaster.windows.effect_columns import _lasting, _steps_since, decaying

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
