"""Metrics: of any group those of the textbook on its cells, utilsforecast's where it has them, by hand."""

import doctest
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from evaluation import textbook_metrics as textbook
from hypothesis import given
from hypothesis import strategies as st
from utilsforecast import losses

from forecaster.evaluation import baselines, bootstrap, error_scales, metrics, report_data
from forecaster.evaluation.error_scales import Histories, Scales, scales_at
from forecaster.evaluation.metrics import concatenate, tally

LEVELS = (0.1, 0.5, 0.9)
N, H, C = 7, 5, 2
NAN = float("nan")


@pytest.fixture
def problem():
    """Actuals [N, H, C] with gaps, quantiles, scales with holes, sample paths."""
    random = np.random.default_rng(3)
    actual = random.normal(10, 4, (N, H, C))
    actual[random.random(actual.shape) < 0.2] = np.nan
    actual[2] = np.nan
    quantiles = np.sort(random.normal(10, 4, (N, H, C, 3)), axis=-1)
    scales = Scales(*random.uniform(1, 3, (2, N, C)))
    scales.mase[4, 1] = scales.rmsse[5, 0] = np.nan
    return actual, quantiles, scales, random.normal(10, 4, (N, 20, H, C))


def _by_definition(actual, quantiles, scales, paths):
    """The metrics of windows by their textbook definitions, rows = (window, channel)."""
    y, q = actual.transpose(0, 2, 1), quantiles.transpose(0, 2, 1, 3)
    low, median, high = np.moveaxis(q, -1, 0)
    return {
        "cells": np.isfinite(y).sum(),
        "MAE": textbook.mae(y, median),
        "RMSE": textbook.rmse(y, median),
        "MSE": textbook.mse(y, median),
        "MASE": textbook.mase(y, median, scales.mase),
        "RMSSE": textbook.rmsse(y, median, scales.rmsse),
        "sMAPE": textbook.smape(y, median),
        "WAPE": textbook.wape(y, median),
        "WQL": textbook.wql(y, q, LEVELS),
        "SQL": textbook.sql(y, q, LEVELS, scales.mase),
        "CRPS_quantiles": np.nanmean(textbook.pinball(y, q, LEVELS)),
        "bias": textbook.bias(y, median),
        "coverage_80": textbook.coverage(y, low, high),
        "width_80": textbook.width(y, low, high),
        "interval_score_80": textbook.interval_score(y, low, high, 0.8),
        "CRPS": textbook.crps(y, paths.transpose(0, 3, 2, 1)),
    }


def _same(found, wanted):
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, rel=1e-12), name


def test_the_examples_in_the_docstrings_hold():
    for module in (metrics, error_scales, baselines, bootstrap, report_data):
        found = doctest.testmod(module)
        assert found.attempted and not found.failed


def test_all_metrics_of_any_group_are_those_of_the_textbook(problem):
    actual, quantiles, scales, paths = problem
    whole = tally(actual, quantiles, LEVELS, scales, paths)
    _same({"cells": np.isfinite(actual).sum(), **whole.overall()}, _by_definition(*problem))
    group = np.array([0, 1, 1, 0, 2, 2, 1])
    by_group, by_channel, by_lead = whole.by_group(group, 3), whole.by_channel(), whole.by_lead()
    for g in range(3):
        own = group == g
        part = actual[own], quantiles[own], scales.select(own), paths[own]
        _same({name: values[g] for name, values in by_group.items()}, _by_definition(*part))
    for c in range(C):
        own = slice(c, c + 1)
        sizes = Scales(scales.mase[:, own], scales.rmsse[:, own])
        part = actual[..., own], quantiles[:, :, own], sizes, paths[..., own]
        _same({name: values[c] for name, values in by_channel.items()}, _by_definition(*part))
    for lead in range(H):
        own = slice(lead, lead + 1)
        part = actual[:, own], quantiles[:, own], scales, paths[:, :, own]
        _same({name: values[lead] for name, values in by_lead.items()}, _by_definition(*part))
    each = whole.by_group(np.arange(N)[:, None] * C + np.arange(C), N * C)
    assert each["cells"].tolist() == np.isfinite(actual).sum(axis=1).ravel().tolist()


def test_parts_joined_and_small_blocks_are_the_whole(problem, monkeypatch):
    actual, quantiles, scales, paths = problem
    whole = tally(actual, quantiles, LEVELS, scales, paths)
    parts = [
        tally(actual[own], quantiles[own], LEVELS, scales.select(own), paths[own])
        for own in (slice(0, 3), slice(3, 4), slice(4, 7))
    ]
    monkeypatch.setattr(metrics, "_BLOCK_CELLS", 11)
    for other in (concatenate(parts), tally(actual, quantiles, LEVELS, scales, paths)):
        _same(other.overall(), whole.overall())
        for name, values in whole.by_lead().items():
            np.testing.assert_allclose(other.by_lead()[name], values, rtol=1e-12)


def test_where_nothing_is_scored_every_metric_is_nan(problem):
    actual, quantiles, scales, _ = problem
    found = tally(np.full_like(actual, np.nan), quantiles, LEVELS, scales).overall()
    empty = tally(actual[:0], quantiles[:0], LEVELS, scales.select(slice(0, 0))).overall()
    assert np.isnan([*found.values(), *empty.values()]).all()


def test_a_model_without_some_levels_has_the_metrics_of_its_own_ones_alone(problem):
    actual, quantiles, scales, _ = problem
    whole = tally(actual, quantiles, LEVELS, scales).overall()
    point = np.full_like(quantiles, np.nan)
    point[..., 1] = quantiles[..., 1]
    found = tally(actual, point, LEVELS, scales).overall()
    of_quantiles = {"WQL", "SQL", "CRPS_quantiles", "coverage_80", "width_80", "interval_score_80"}
    for name, value in whole.items():
        assert np.isnan(found[name]) if name in of_quantiles else found[name] == value, name


def test_a_missing_forecast_of_an_actual_is_a_fault(problem):
    actual, quantiles, scales, _ = problem
    quantiles[0, :, 0, 2] = np.nan
    with pytest.raises(ValueError, match="a forecast of each observed actual expected"):
        tally(np.nan_to_num(actual), quantiles, LEVELS, scales)
    with pytest.raises(ValueError, match="found 1 NaN"):
        metrics.crps([3.0], [[5.0, NAN]])


@pytest.mark.parametrize("season_length", [1, 7])
def test_metrics_equal_utilsforecast_on_one_series(season_length):
    random = np.random.default_rng(3)
    history, actual = random.normal(10, 4, 60), random.normal(10, 4, 12)
    quantiles = np.sort(random.normal(10, 4, (12, 3)), axis=-1)
    names = ["m-lo-80", "m", "m-hi-80"]
    frame = pd.DataFrame({"unique_id": 0, "ds": np.arange(60, 72), "y": actual})
    frame[names] = quantiles
    train = pd.DataFrame({"unique_id": 0, "ds": np.arange(60), "y": history})
    levels = {"m": names}
    theirs = {
        name: getattr(losses, name)(frame, models=["m"])
        for name in ("mae", "mse", "rmse", "smape", "bias")
    }
    theirs["mase"] = losses.mase(frame, ["m"], season_length, train)
    theirs["rmsse"] = losses.rmsse(frame, ["m"], 1, train)
    theirs["coverage"] = losses.coverage(frame, models=["m"], level=80)
    theirs["crps"] = losses.mqloss(frame, levels, np.array(LEVELS))
    theirs["sql"] = losses.scaled_mqloss(frame, levels, np.array(LEVELS), season_length, train)
    wanted = {name: found["m"].item() for name, found in theirs.items()}
    store = history[:, None]
    scales = scales_at(
        Histories(store, np.array([0, 60]), np.array([59]), np.array([0])), season_length
    )
    found = tally(actual[None, :, None], quantiles[None, :, None], LEVELS, scales).overall()
    for name, factor in (("MAE", 1), ("MSE", 1), ("RMSE", 1), ("bias", 1), ("MASE", 1), ("RMSSE", 1)):
        assert found[name] == pytest.approx(factor * wanted[name.lower()], rel=1e-6), name
    assert found["sMAPE"] == pytest.approx(200 * wanted["smape"])  # theirs is a share of |y| + |f|
    assert found["coverage_80"] == pytest.approx(wanted["coverage"])
    assert found["CRPS_quantiles"] == pytest.approx(2 * wanted["crps"])  # theirs lack the factor 2
    assert found["SQL"] == pytest.approx(2 * wanted["sql"], rel=1e-6)


def test_crps_of_draws_equals_the_integral_and_the_quantile_loss_over_many_levels_approaches_it():
    random = np.random.default_rng(9)
    draws = np.sort(random.normal(size=400))
    levels = (np.arange(400) + 0.5) / 400  # quantiles of the draws: themselves
    grid = np.linspace(-6, 6, 60_001)
    share = np.searchsorted(draws, grid, side="right") / 400
    for y in (-1.0, 0.3, 2.0):
        crps = metrics.crps([y], draws[None])[0]
        assert crps == pytest.approx(textbook.crps(np.array([y]), draws[None]), rel=1e-9)
        assert crps == pytest.approx(((share - (y <= grid)) ** 2).sum() * (grid[1] - grid[0]), abs=1e-3)
        loss = metrics.pinball([y], draws[None], levels.tolist()).mean()
        assert loss == pytest.approx(crps, rel=1e-4)
    assert metrics.crps([3.0, -1.0], [[5.0], [5.0]]).tolist() == [2.0, 6.0]


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100))
def test_relative_metrics_do_not_change_with_the_unit(seed, factor):
    random = np.random.default_rng(seed)
    actual, quantiles = random.normal(0, 100, (3, 4, 1)), random.normal(0, 100, (3, 4, 1, 3))
    scales = random.uniform(1, 3, (2, 3, 1))
    one, other = (
        tally(a * actual, a * quantiles, LEVELS, Scales(*(a * scales))).overall() for a in (1, factor)
    )
    for name in ("MASE", "RMSSE", "WQL", "SQL", "sMAPE", "coverage_80"):
        assert other[name] == pytest.approx(one[name], rel=1e-9), name


def test_scales_by_hand():
    def mase_scale(history, season):
        store = np.array(history)[:, None]
        ends = np.array([0, len(store)]), np.array([len(store) - 1])
        return scales_at(Histories(store, *ends, np.array([0])), season).mase[0, 0]

    assert mase_scale([1.0, 5.0, 2.0, 9.0], 2) == 2.5
    assert mase_scale([1.0, NAN, 2.0, 9.0], 2) == 1.0  # one pair left
    assert mase_scale([1.0, 5.0], 7) == 4.0  # no pair 7 apart: season 1
    assert mase_scale([1.0, 5.0, NAN, NAN, 7.0], 2) == 4.0
    for nothing in ([], [3.0], [3.0, NAN], [3.0, 3.0, 3.0]):
        assert np.isnan(mase_scale(nothing, 2))


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=6),
    st.integers(1, 9),
    st.integers(0, 2**32 - 1),
)
def test_scales_of_a_flat_store_equal_those_of_each_series(lengths, season_length, seed):
    random = np.random.default_rng(seed)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    values = random.normal(size=(indptr[-1], 2))
    values[random.random(values.shape) < 0.3] = np.nan
    ends = np.array([random.integers(a - 1, b) for a, b in pairwise(indptr)])
    found = scales_at(Histories(values, indptr, ends, np.arange(len(ends))), season_length)
    chosen = random.permutation(len(lengths))
    again = scales_at(Histories(values, indptr, ends[chosen], chosen), season_length)
    assert tuple(map(np.ndarray.tobytes, again)) == (
        found.mase[chosen].tobytes(),
        found.rmsse[chosen].tobytes(),
    )
    for s, (begin, end) in enumerate(zip(indptr[:-1], ends, strict=True)):
        for channel in range(2):
            history = values[begin : end + 1, channel]
            wanted = textbook.mase_scale(history, season_length), textbook.rmsse_scale(history)
            assert (found.mase[s, channel], found.rmsse[s, channel]) == pytest.approx(
                wanted, rel=1e-12, nan_ok=True
            )
