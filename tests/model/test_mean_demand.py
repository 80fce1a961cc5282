"""The mean of intermittent demand against a slow twin, and on demand whose mean is known."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest
import torch

import forecaster as fc
from forecaster.model.mean_demand import steadied

STEPS, HORIZON = 200, 14


def steadied_slowly(mean, history):
    """The formulas of `mean_demand`, step by step, of one row without gaps or closed phases."""
    steps, span = len(history), max(len(mean), -(-len(history) // 40))

    def weighted(end, weight):
        weights = [weight(step) for step in range(end)]
        return float(np.dot(weights, history[:end]) / sum(weights))

    def long(end):
        return weighted(end, lambda step: np.exp(3 * (step - steps) / steps))

    pairs = []
    end = steps - span
    while end > span:
        if end >= 2 * span:
            recent = weighted(end, lambda step, end=end: 0.9 ** (end - 1 - step))
            pairs.append((recent - long(end), history[end : end + span].mean() - long(end)))
        end -= span
    change, following = np.transpose(pairs)
    prior = 2 * np.mean(change**2)
    kept = np.clip((change @ following + prior) / (change @ change + prior), 0, 1)
    level = long(steps)
    return mean * (level + kept * (mean.mean() - level)) / mean.mean()


def drawn(mean, history, seasons=(1,)):
    history = torch.from_numpy(history)[None, :, None]
    seen = ~history.isnan()
    return steadied(torch.from_numpy(mean)[None, :, None], history, seen, seasons)[0, :, 0].numpy()


@pytest.mark.parametrize("rate", [0.1, 0.5, 3.0])
@pytest.mark.parametrize("horizon", [1, 14])
def test_the_mean_is_that_of_a_slow_twin(rate, horizon):
    rng = np.random.default_rng(0)
    history = rng.poisson(rate, STEPS).astype(float)
    history[-1] = 1.0
    mean = rng.random(horizon) + 0.1
    assert drawn(mean, history) == pytest.approx(steadied_slowly(mean, history), rel=1e-9)


def test_what_comes_before_a_history_and_its_unit_change_nothing():
    rng = np.random.default_rng(1)
    history = rng.poisson(0.3, STEPS).astype(float)
    mean = np.full(HORIZON, 0.9)
    padded = np.concatenate([np.full(300, np.nan), history])
    alone = drawn(mean, history)
    assert drawn(100 * mean, 100 * history) == pytest.approx(100 * alone)
    # Other spans: a longer buffer has longer ones.
    assert drawn(mean, padded) == pytest.approx(alone, rel=0.2)


def test_the_newest_demand_of_a_rate_that_never_changes_says_little():
    rng = np.random.default_rng(2)
    history = rng.poisson(0.3, 1_000).astype(float)
    history[-10:] = 2.0
    found = drawn(np.full(HORIZON, 1.5), history)
    assert found.mean() < 0.6


def test_a_rate_that_grows_is_followed():
    rng = np.random.default_rng(3)
    history = rng.poisson(np.linspace(0.1, 6.0, 1_000)).astype(float)
    found = drawn(np.full(HORIZON, 6.0), history)
    assert found == pytest.approx(6.0, rel=0.05)


def test_demand_that_may_be_over_stays_as_it_is():
    history = np.random.default_rng(4).poisson(1.0, STEPS).astype(float)
    history[-40:] = 0.0
    assert drawn(np.full(HORIZON, 0.02), history) == pytest.approx(0.02)


@pytest.mark.parametrize("rows", [1, 2, 14, 28, 29])
def test_a_short_history_leaves_the_mean_as_it_is(rows):
    history = np.ones(rows)
    assert drawn(np.full(HORIZON, 0.5), history) == pytest.approx(0.5)


def test_a_mean_of_zero_stays_zero():
    assert (drawn(np.zeros(HORIZON), np.zeros(STEPS)) == 0).all()


def table(demand: np.ndarray) -> pl.DataFrame:
    series, days = demand.shape
    dates = [date(2024, 1, 1) + timedelta(days=day) for day in range(days)]
    names = np.repeat([f"part {number:02d}" for number in range(series)], days)
    return pl.DataFrame({"part": names, "date": dates * series, "orders": demand.ravel()})


@pytest.mark.long
def test_the_mean_of_rare_orders_is_near_their_rate():
    rng = np.random.default_rng(5)
    demand = (rng.random((20, 730)) < 0.05) * (1.0 + rng.poisson(3, (20, 730)))
    mean = fc.predict(table(demand), 28).mean[:, :, 0].mean(axis=1)
    assert mean.std() < 0.5 * 0.2  # without steadying .95
    assert mean.mean() == pytest.approx(0.2, rel=0.12)


def test_shops_closed_at_weekends_sell_all_of_their_mean_on_the_other_days():
    days = np.arange(400)
    rate = np.where(days % 7 < 5, 0.7, 0.0)  # the first of January 2024 is a Monday
    demand = np.random.default_rng(6).poisson(rate, (20, 400)).astype(float)
    mean = fc.predict(table(demand), 14).mean[:, :, 0]
    is_open = np.arange(400, 414) % 7 < 5
    assert mean[:, is_open].mean() == pytest.approx(0.7, rel=0.05)  # .63 where closed days count
    assert mean[:, ~is_open].max() < 0.01
