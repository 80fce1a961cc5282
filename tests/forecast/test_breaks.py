"""Typing errors and breaks at the end of a history do not ruin its forecast, and what was read so is said."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest
import tiny

import forecaster as fc

STEPS, HORIZON = 200, 14


def table(values):
    """Long rows of series [S, T], by day."""
    names = [f"s{number:02}" for number in range(len(values))]
    days = [tiny.day(number) for number in range(values.shape[1])]
    return pl.DataFrame(
        {"id": np.repeat(names, len(days)), "date": days * len(names), "y": values.ravel()}
    )


def drawn(count=20):
    """Series [S, T + H] with a week, and their means."""
    random = np.random.default_rng(5)
    level = random.uniform(50, 200, (count, 1))
    mean = level + 10 * np.sin(2 * np.pi * np.arange(STEPS + HORIZON) / 7)
    return mean + random.normal(0, 3, mean.shape), mean


def typing_error(values, mean):
    values[:, STEPS - 1] *= 10


def nothing(values, mean):
    values[:, STEPS - 1] = 0


def week_of_zeros(values, mean):
    values[:, 100:107] = 0


def shift(values, mean):
    values[:, STEPS - 10 :] += 60
    mean[:, STEPS - 10 :] += 60


def other_unit(values, mean):
    values[:, :100] /= 1000


@pytest.mark.parametrize(
    ("plant", "most"),
    [(typing_error, 1.2), (nothing, 1.2), (week_of_zeros, 1.2), (shift, 2.0), (other_unit, 1.2)],
)
def test_a_forecast_is_near_the_best_one(plant, most):
    values, mean = drawn()
    plant(values, mean)
    truth, best = values[:, STEPS:], mean[:, STEPS:]
    forecast = fc.predict(table(values[:, :STEPS]), HORIZON)
    error = np.abs(forecast.median[:, :, 0] - truth).sum()
    assert error < most * np.abs(best - truth).sum()
    inside = (truth >= forecast.quantiles[:, :, 0, 0]) & (truth <= forecast.quantiles[:, :, 0, -1])
    assert 0.65 < inside.mean() < 0.95


@pytest.mark.long
def test_a_fit_follows_a_break_and_no_typing_error():
    values, mean = drawn()
    shift(values[:10], mean[:10])
    typing_error(values[10:], mean[10:])
    past = table(values[:, :STEPS])
    forecast = fc.fit(past, horizon=HORIZON, config=tiny.TINY, quiet=True).predict(past)
    truth, best = values[:, STEPS:], mean[:, STEPS:]
    assert np.abs(forecast.median[:, :, 0] - truth).sum() < 1.5 * np.abs(best - truth).sum()


def test_what_was_left_out_is_said_with_its_place():
    values, mean = drawn(3)
    typing_error(values[1:2], mean)
    shift(values[2:], mean[2:])
    past = table(values[:, :STEPS])
    last = tiny.day(STEPS - 1)
    for findings in (fc.check(past), fc.predict(past, HORIZON).findings):
        (error,) = (one for one in findings if one.rule == "outlier")
        assert (error.series, error.count) == ("s01", 1)
        assert error.where.startswith(f"{last}: {values[1, STEPS - 1]:,.6g} after a level of")
        (moved,) = (one for one in findings if one.rule == "level-shift")
        assert moved.series == "s02"
        assert moved.where.startswith(f"{last - timedelta(9)}: ")
    clean, _ = drawn(3)
    rules = {one.rule for one in fc.check(table(clean[:, :STEPS]))}
    assert not rules & {"outlier", "level-shift"}


def test_what_a_covariate_explains_is_no_outlier():
    values, _ = drawn(1)
    promotion = np.zeros(STEPS)
    promotion[[40, 90, 150, STEPS - 1]] = 1
    past = table(values[:, :STEPS] * (1 + 2 * promotion)).with_columns(promo=promotion)
    future = table(np.zeros((1, HORIZON))).with_columns(
        pl.col("date") + timedelta(STEPS), promo=pl.lit(0.0)
    )
    forecast = fc.predict(past, HORIZON, future=future.drop("y"), known=["promo"])
    assert not {one.rule for one in forecast.findings} & {"outlier", "level-shift"}
    ignored = fc.predict(past.drop("promo"), HORIZON)
    assert "outlier" in {one.rule for one in ignored.findings}


@pytest.mark.long
def test_no_row_after_the_cutoff_says_what_an_outlier_is():
    values, _ = drawn(3)
    # The first row may be an outlier as long as no others are seen.
    values[:, STEPS - 12 :] += 80
    model = fc.fit(table(values[:, :150]), horizon=HORIZON, config=tiny.TINY, quiet=True)
    for rows in (189, 191, 195):
        cutoff = str(tiny.day(rows - 1))
        whole = model.predict(table(values[:, :STEPS]), cutoff=cutoff)
        cut = model.predict(table(values[:, :rows]))
        np.testing.assert_allclose(whole.quantiles, cut.quantiles)
        assert [one.line() for one in whole.findings if one.rule == "outlier"] == [
            one.line() for one in cut.findings if one.rule == "outlier"
        ]
