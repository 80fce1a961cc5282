"""Covariates that lead the targets: past ones by the horizon at least, known ones by any lag, and no others."""

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

import forecaster as fc
from forecaster.api.requests import opened
from forecaster.config import config_from
from forecaster.fitting.leading import (
    Remainder,
    beyond_chance,
    carried_terms,
    innovations,
    leading_terms,
)
from forecaster.panel.calendar import Calendar
from forecaster.windows.effect_columns import covariate_terms, decaying

ROWS = 250
WEEK = np.array([0, 5, 8, 3, 10, 20, 15.0])


def led(random, lag, series=1, rho=0.0, effect=10.0):
    """Daily rows of targets that follow a covariate, and the means of the days after them."""
    days = ROWS + lag
    x = random.normal(size=(series, days))
    for day in range(1, days):
        x[:, day] = rho * x[:, day - 1] + np.sqrt(1 - rho**2) * x[:, day]
    before = np.concatenate([np.zeros((series, lag)), x[:, :ROWS]], axis=1)
    mean = 100 + WEEK[np.arange(days) % 7] + effect * before
    values = mean[:, :ROWS] + random.normal(0, 3, (series, ROWS))
    return table(values, x[:, :ROWS]), mean[:, ROWS:]


def table(values, x):
    series, rows = values.shape
    return pl.DataFrame(
        {
            "series": np.repeat([f"s{number}" for number in range(series)], rows),
            "date": [date(2023, 1, 2) + timedelta(day) for day in range(rows)] * series,
            "y": values.ravel(),
            "x": x.ravel(),
        }
    )


def unrelated(kind, seed):
    """Walks with a week, and a covariate of a kind that does nothing to them."""
    random, week = np.random.default_rng(seed), WEEK[np.arange(ROWS) % 7]
    values = 100 + week + random.normal(0, 3, (2, ROWS)).cumsum(axis=1)
    x = random.normal(size=(2, ROWS))
    return table(values, {"noise": x, "walk": x.cumsum(axis=1), "season": x + week}[kind])


def terms_of(frame, horizon):
    _, panel = opened(config_from(None, horizon, {"past": ["x"]}), frame, None, None, begin=True)
    return [*leading_terms(panel, horizon)]


@pytest.mark.parametrize(("lag", "series", "rho"), [(3, 1, 0.0), (10, 1, 0.9), (5, 4, 0.5)])
def test_a_covariate_that_leads_by_the_horizon_is_read(lag, series, rho):
    frame, mean = led(np.random.default_rng(lag), lag, series, rho)
    horizon = min(lag, 7)
    assert [term.lag for term in terms_of(frame, horizon)] == [lag]
    forecast = fc.predict(frame, horizon, past=["x"])
    alone = fc.predict(frame.drop("x"), horizon)
    missed, blind = (np.abs(one.median[..., 0] - mean[:, :horizon]).mean() for one in (forecast, alone))
    assert missed < 2 < blind
    assert f"x {lag} steps before" in forecast.findings[-1].text


def test_a_lead_shorter_than_the_horizon_is_left_to_a_fit():
    frame, _ = led(np.random.default_rng(0), 3)
    assert terms_of(frame, 7) == []
    assert "not read: x" in fc.predict(frame, 7, past=["x"]).findings[-1].text


@pytest.mark.parametrize("kind", ["noise", "walk", "season"])
def test_what_does_not_lead_is_not_read(kind):
    for seed in range(5):
        assert terms_of(unrelated(kind, seed), 7) == []


def test_correlations_are_those_of_residuals_of_two_regressions():
    random = np.random.default_rng(3)
    x = WEEK[np.arange(98) % 7] + random.normal(size=98).cumsum()
    y = np.concatenate([np.zeros(4), x[:-4]]) + random.normal(size=98)
    residuals = []
    for values in (x, y):
        flat = values - np.tile(values.reshape(-1, 7).mean(axis=0), 14)
        rows = [[flat[t - 1], flat[t - 7], flat[t - 8], 1] for t in range(8, 98)]
        weights = np.linalg.lstsq(np.array(rows), flat[8:], rcond=None)[0]
        left = flat[8:] - rows @ weights
        residuals.append(left / left.std())
    u, v = residuals
    assert np.abs([u, v]).max() < 5  # none is drawn in
    daily = Calendar("1d", None, False)
    found = beyond_chance([innovations(x, daily)], [innovations(y, daily)], range(2, 9))
    for number, lag in enumerate(range(2, 9)):
        pair = u[:-lag], v[lag:]
        expected = pair[0] @ pair[1] / np.sqrt((pair[0] ** 2).sum() * (pair[1] ** 2).sum())
        assert found[number] == pytest.approx(abs(expected) * np.sqrt(len(u) - lag) / 4)


def test_rows_after_the_cutoff_change_nothing():
    frame, _ = led(np.random.default_rng(4), 5)
    cutoff = frame["date"][-20]
    later = pl.when(pl.col("date") > cutoff).then(1e6).otherwise(pl.col("x"))
    one, other = (
        fc.predict(part, 5, past=["x"], cutoff=str(cutoff))
        for part in (frame, frame.with_columns(x=later))
    )
    np.testing.assert_array_equal(one.quantiles, other.quantiles)


def test_explain_names_the_lag_and_what_hiding_the_covariate_changes():
    frame, _ = led(np.random.default_rng(5), 3)
    explanation = fc.explain(frame, 3, past=["x"])
    assert "x 3 days before, each unit: +" in explanation.effects.report
    (change,) = (one.change for one in explanation.importance if one.name == "x")
    assert change > 0.1


def planned(random, effect_of, days=400, horizon=14, x=None):
    """One daily series that follows a covariate known over the horizon, and its true mean there."""
    x = random.normal(size=days + horizon) if x is None else x
    mean = 100 + WEEK[np.arange(days + horizon) % 7] + effect_of(x)
    values = np.where(
        np.arange(days + horizon) < days, mean + random.normal(0, 5, days + horizon), None
    )
    frame = table(values[None].astype(float), x[None])
    return frame.with_columns(pl.col("y").fill_nan(None)), mean[days:]


def adstock(spent, kept=0.6, effect=40):
    left = np.zeros(len(spent))
    for day, amount in enumerate(spent):
        left[day] = amount + (kept * left[day - 1] if day else 0.0)
    return effect * left


def campaigns(random, days=414):
    return np.where(random.random(days) < 0.1, random.uniform(0.5, 1.5, days), 0.0)


@pytest.mark.parametrize("lag", [1, 2, 9])
def test_a_known_number_acts_some_steps_later(lag):
    random = np.random.default_rng(lag)
    frame, mean = planned(random, lambda x: 15 * np.concatenate([np.zeros(lag), x[:-lag]]))
    forecast = fc.predict(frame, 14, known=["x"])
    assert np.abs(forecast.median[0, :, 0] - mean).mean() < 2.5  # 12 by who reads the same day alone


def test_what_advertising_leaves_decays():
    random = np.random.default_rng(1)
    frame, mean = planned(random, adstock, x=campaigns(random))
    forecast = fc.predict(frame, 14, known=["x"])
    assert np.abs(forecast.median[0, :, 0] - mean).mean() < 3


@pytest.mark.parametrize("kind", ["adstock", "level", "nothing"])
def test_evidence_of_adstock_is_that_of_adstock_alone(kind):
    """Not of errors that go on as they were, nor of what a number does on the day itself."""
    shown = 0
    for seed in range(10):
        random = np.random.default_rng(seed)
        x, noise = random.normal(size=400), random.normal(size=400)
        for day in range(1, 400):
            noise[day] += 0.7 * noise[day - 1]
        y = noise + {"adstock": adstock(x, 0.6, 1), "level": 2 * x, "nothing": 0}[kind]
        adstocks = [decaying(np.append(0, x[:-1]), half_life) for half_life in (1, 3, 10)]
        beside = np.stack([np.ones(400), x], axis=1)
        shown += Remainder([beside], [y]).chi_square([np.stack(adstocks, axis=1)]) > 22
    assert shown == (10 if kind == "adstock" else 0)


def test_what_if_moves_the_days_after_a_change_too():
    random = np.random.default_rng(2)
    frame, _ = planned(random, adstock, x=campaigns(random))
    ahead = frame.filter(pl.col("y").is_null()).drop("y")
    first = pl.when(pl.col("date") == ahead["date"][0]).then(pl.col("x") + 1).otherwise(pl.col("x"))
    base = fc.predict(frame.drop_nulls("y"), 14, future=ahead, known=["x"])
    changed = fc.predict(frame.drop_nulls("y"), 14, future=ahead.with_columns(x=first), known=["x"])
    moved = (changed.mean - base.mean)[0, :4, 0]
    np.testing.assert_allclose(moved, 40 * 0.6 ** np.arange(4), atol=4)


@pytest.mark.parametrize("kind", ["noise", "walk", "season"])
def test_a_known_number_without_an_effect_has_no_lags(kind):
    for seed in range(5):
        config = config_from(None, 7, {"known": ["x"]})
        _, panel = opened(config, unrelated(kind, seed), None, None, begin=True)
        known = [*covariate_terms(panel)]
        assert known and [*carried_terms(panel, known)] == []
