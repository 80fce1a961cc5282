"""The unit that every demand of a history is a multiple of, and quantiles in that unit."""

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest
import torch

import forecaster as fc
from forecaster.model.demand import unit_of_demand


@pytest.mark.parametrize(
    ("history", "unit"),
    [
        ([0, 2, 1, 7], 1),
        ([0, 24, 12, 84], 12),
        ([0.0, 0.3, 0.1, 0.7], 0.1),
        ([0.0, 3.1, 1.7, 2.2], 0),
        ([0, 0, 0, 0], 0),
    ],
)
def test_the_unit_is_the_least_demand_where_all_are_multiples_of_it(history, unit):
    values = torch.tensor(history, dtype=torch.float32)[None, :, None]
    assert unit_of_demand(values, torch.ones_like(values, dtype=torch.bool)).item() == pytest.approx(
        unit
    )


def test_steps_that_are_not_observed_have_no_demand():
    values = torch.tensor([0.5, 2.0, torch.nan, 4.0])[None, :, None]
    observed = torch.tensor([False, True, False, True])[None, :, None]
    assert unit_of_demand(values, observed).item() == 2


def table(demand):
    series, days = demand.shape
    times = [date(2024, 1, 1) + timedelta(days=day) for day in range(days)]
    names = np.repeat([f"part {number:02}" for number in range(series)], days)
    return pl.DataFrame({"part": names, "day": times * series, "orders": demand.ravel()})


@pytest.mark.parametrize("unit", [1.0, 12.0])
def test_quantiles_of_whole_demand_are_whole_at_any_unit(unit):
    demand = np.random.default_rng(0).poisson(0.3, (10, 200)).astype(float)
    forecast = fc.predict(table(unit * demand), 14)
    cases = forecast.quantiles / unit
    np.testing.assert_allclose(cases, cases.round(), atol=1e-5)
    # The truth has 0 up to a chance of .74, then 1 up to .96.
    assert cases[..., :7].mean() < 0.05
    assert cases[..., 8].mean() == pytest.approx(1, abs=0.15)
    assert forecast.mean.mean() / unit == pytest.approx(0.3, rel=0.15)
    draws = forecast.draw(200) / unit
    assert draws.std(axis=1).mean() == pytest.approx(0.3**0.5, rel=0.35)
