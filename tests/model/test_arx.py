"""The expert arx: its forecasts against a slow loop, drivers it should and should not find."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from small_networks import HISTORY, HORIZON, Shape, make_inputs, make_network

import forecaster as fc
from forecaster.config import ExpertPlan, LinearPlan
from forecaster.fitting.experts.drivers import DriverRows, MapSums, Products, _selected, _solved
from forecaster.model.experts import CUTOFFS

SHAPE = Shape(horizon=HORIZON, channels=2, past=2)
ARX = ExpertPlan(
    experts=("naive", "linear", "arx"),
    history_length=HISTORY,
    memory=24,
    seasons=(4, 0),
    drivers=("a", "b", "p", "q"),
    driver_length=5 + CUTOFFS,
    linear=LinearPlan(lookbacks=(8,)),
)


def arx_network(units: str):
    network = make_network(SHAPE, pool=ARX.model_copy(update={"driver_units": units}))
    arx, draw = network.experts.arx, torch.Generator().manual_seed(1)
    arx.maps.copy_(0.2 * torch.randn(arx.maps.shape, generator=draw))
    arx.column.copy_(torch.randint(0, 8, arx.column.shape, generator=draw))
    arx.lag.copy_(torch.randint(0, 5, arx.lag.shape, generator=draw))
    arx.used[1:] = True
    return network


@pytest.mark.parametrize("units", ["training", "window"])
def test_forecasts_equal_a_slow_loop(units):
    network, inputs = arx_network(units), make_inputs(SHAPE, drivers=4, driver_length=5 + CUTOFFS)
    experts, scale, arx = network.experts, network.scale(inputs), network.experts.arx
    filled = experts.history(inputs, scale).filled
    shifts, leads = [3, 1], [0, 2, 6]
    linear = torch.randn(6, 2, 3, generator=torch.manual_seed(2))
    found = arx(inputs, scale, network.scaler, filled, linear, shifts, leads)
    for row in range(6):
        window, channel = divmod(row, 2)
        spread, code = float(scale.scale[window, channel]), int(inputs.channel[window, channel])
        for n, shift in enumerate(shifts):
            last = filled[row, len(filled[row]) - shift - arx.tail : len(filled[row]) - shift].numpy()
            level = last.mean()
            where = float((scale.level + scale.loc)[window, channel]) + level * spread
            above = (where - float(network.scaler.loc[code])) / spread if units == "training" else 0.0
            one = float(network.scaler.scale[code]) / spread if units == "training" else 0.0
            read = [*(last - level), above, one]
            for number, lag in zip(arx.column[code].tolist(), arx.lag[code].tolist(), strict=True):
                squared, column = divmod(number, 4)
                own = inputs.drivers[window, :, column].numpy()
                mean = float(arx.loc[column]) if units == "training" else np.nanmean(own)
                apart = own[len(own) - 1 - shift - lag] - mean
                value = np.clip(apart / float(arx.spread[column]), -6, 6)
                value = value**2 - 1 if squared else value
                unit = float(network.scaler.scale[code]) / spread if units == "training" else 1.0
                read.append(0.0 if np.isnan(value) else value * unit)
            for m, lead in enumerate(leads):
                *weights, along = arx.maps[0, code, :, lead].tolist()
                base = float(linear[row, n, m])
                wanted = base + np.dot(read, weights) + along * (base - level)
                assert float(found[row, n, m]) == pytest.approx(wanted, rel=1e-4, abs=1e-4)


def test_a_channel_without_drivers_has_no_such_forecast():
    network, inputs = arx_network("training"), make_inputs(SHAPE, drivers=4, driver_length=5 + CUTOFFS)
    network.experts.arx.used[2] = False
    weights = network.pool(inputs, network.scale(inputs)).evidence.weights.unflatten(0, (-1, 2))
    assert (weights[:, 0, 2] > 0).all() and (weights[:, 1, 2] == 0).all()
    network.network_weight.zero_()
    moved = replace(inputs, drivers=inputs.drivers + 1)
    before, after = network(inputs), network(moved)
    assert torch.equal(before[:, :, 1], after[:, :, 1])
    assert not torch.equal(before[:, :, 0], after[:, :, 0])


def planted(count: int = 400, candidates: int = 12) -> DriverRows:
    draw = np.random.default_rng(0)
    x, own = draw.standard_normal((count, candidates)), draw.standard_normal((count, 3))
    forecast = draw.standard_normal((count, 2))
    x[:, 7] += 0.9 * x[:, 3]
    missed = np.stack([2 * x[:, 3] - x[:, 5], 0.5 * own[:, 1] + x[:, 5]], axis=1) - 0.3 * forecast
    quarter = np.arange(count) * 4 // count
    return DriverRows(
        x, own, forecast, missed + 0.1 * draw.standard_normal((count, 2)), quarter.astype(float)
    )


def test_selection_is_that_of_least_squares_fitted_again_at_each_step():
    rows = planted()
    allowed = np.arange(12) != 2
    order = list(_selected(rows, np.ones(400, bool), Products.of(rows), allowed))
    assert sorted(order) == [n for n in range(12) if n != 2] and set(order[:2]) == {3, 5}
    for taken in range(4):
        error = {}
        for n in set(order) - set(order[:taken]):
            read = np.concatenate(
                [rows.autoregressive, rows.candidates[:, [*order[:taken], n]]], axis=1
            )
            left = rows.residual - read @ np.linalg.lstsq(read, rows.residual, rcond=None)[0]
            error[n] = (left**2).sum()
        assert min(error, key=error.__getitem__) == order[taken]


def test_a_map_is_the_ridge_solution_of_each_lead():
    rows = planted(40)
    sums = MapSums.of(rows.candidates, rows.forecast, rows.residual)
    found = sums.solution(5, 0.01)
    for lead in range(2):
        read = np.concatenate([rows.candidates[:, :5], rows.forecast[:, lead : lead + 1]], axis=1)
        wanted = np.linalg.solve(read.T @ read + 0.4 * np.eye(6), read.T @ rows.residual[:, lead])
        np.testing.assert_allclose(found[:, lead], wanted, rtol=1e-8)


def test_drivers_are_kept_where_held_out_quarters_are_forecast_better():
    rows = planted()
    chosen, maps = _solved(rows, np.ones(12, bool), 5)
    assert maps.shape == (5, 3 + len(chosen) + 1, 2) and set(chosen[:2]) == {3, 5}
    for block in range(5):
        out = rows.only(rows.quarter != block, chosen)
        own = [
            np.abs(out.residual - out.features() @ m[:-1] - out.forecast * m[-1]).sum() for m in maps
        ]
        assert own[block] == pytest.approx(min(own), rel=1e-2)
    for seed in range(20):  # what is chosen with a quarter's own windows would seem better there
        noise = rows._replace(residual=np.random.default_rng(seed).standard_normal(rows.residual.shape))
        assert _solved(noise, np.ones(12, bool), 5) is None


def related(rows: int = 500) -> pl.DataFrame:
    """B follows A three steps later; C is noise."""
    draw = np.random.default_rng(0)
    a = draw.standard_normal(rows)
    for step in range(1, rows):
        a[step] += 0.8 * a[step - 1]
    b = 50 + 4 * np.roll(a, 3) + 0.1 * draw.standard_normal(rows)
    time = pl.Series("time", np.arange(rows)) * 3_600_000_000
    return pl.DataFrame(
        {"time": time.cast(pl.Datetime("us")), "A": a, "B": b, "C": draw.standard_normal(rows)}
    )


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    "roles",
    [
        {"target": ["A", "B", "C"]},
        pytest.param({"target": ["B"], "past": ["A", "C"]}, marks=pytest.mark.slow),
    ],
)
def test_a_relation_between_columns_is_found_and_keeps_after_saving(roles, tmp_path):
    frame = related()
    config = {"model": {"experts": ["level_0.3", "linear", "arx"]}, "fit": {"steps": 8}}
    given = {"config": config, "tracking": False, "quiet": True}
    # A past covariate that leads by the horizon is an effect.
    model = fc.fit(frame.head(497), 4, out=tmp_path / "model", **roles, **given)
    experts = model.artifact.ensemble.members[0].experts
    used = dict(zip(roles["target"], experts.arx.used[1:].tolist(), strict=True))
    assert used["B"] and not used.get("C")
    forecast = fc.load(tmp_path / "model").predict(frame.head(497))
    values = (
        forecast.frame.filter(pl.col("channel") == "B")
        if "channel" in forecast.frame.columns
        else forecast.frame
    )
    truth = frame["B"].to_numpy()[-3:]
    assert np.abs(values["q0.5"].to_numpy()[:3] - truth).max() < 0.5  # spread of B: 6.7
    if "past" in roles:
        change = {one.name: one.change for one in model.explain(frame.head(497)).importance}
        assert change["A"] > 0.1 and change["C"] == 0
