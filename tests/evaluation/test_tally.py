"""Sums of windows: every metric of every group is the metric's own definition on the group's cells."""

import numpy as np
import pytest
from evaluation import textbook_metrics as textbook

from forecaster.evaluation import metrics
from forecaster.evaluation.metrics import concatenate, tally
from forecaster.evaluation.scales import Scales

LEVELS = (0.1, 0.5, 0.9)
N, H, C = 7, 5, 2


@pytest.fixture
def problem():
    """Truth [N, H, C] with gaps, quantiles, scales with a hole, paths."""
    random = np.random.default_rng(3)
    actual = random.normal(10, 4, (N, H, C))
    actual[random.random(actual.shape) < 0.2] = np.nan
    actual[2] = np.nan
    quantiles = np.sort(random.normal(10, 4, (N, H, C, 3)), axis=-1)
    scales = Scales(*random.uniform(1, 3, (2, N, C)))
    scales.mase[4, 1] = scales.rmsse[5, 0] = np.nan
    return actual, quantiles, scales, random.normal(10, 4, (N, 20, H, C))


def _by_definition(actual, quantiles, scales, paths):
    """The metrics of windows [N, H, C] by their own definitions, rows = (window, channel)."""
    y = actual.transpose(0, 2, 1)
    q = quantiles.transpose(0, 2, 1, 3)
    median, low, high = q[..., 1], q[..., 0], q[..., 2]
    drawn = metrics.crps(y, np.moveaxis(paths, 1, -1).transpose(0, 2, 1, 3))
    return {
        "cells": np.isfinite(y).sum(),
        "MAE": textbook.mae(y, median),
        "RMSE": textbook.rmse(y, median),
        "MSE": textbook.mse(y, median),
        "MASE": textbook.mase(y, median, scales.mase),
        "RMSSE": textbook.rmsse(y, median, scales.rmsse),
        "sMAPE": textbook.smape(y, median),
        "WQL": textbook.wql(y, q, LEVELS),
        "SQL": textbook.sql(y, q, LEVELS, scales.mase),
        "CRPS_quantiles": np.nanmean(metrics.pinball(y, q, LEVELS).mean(axis=-1)),
        "bias": textbook.bias(y, median),
        "coverage_80": textbook.coverage(y, low, high),
        "width_80": textbook.interval_width(y, low, high),
        "CRPS": np.nanmean(drawn),
    }


def _same(found, wanted):
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, rel=1e-12), name


def test_all_metrics_of_everything_are_those_of_the_definitions(problem):
    actual, quantiles, scales, paths = problem
    found = tally(actual, quantiles, LEVELS, scales, paths).overall()
    wanted = _by_definition(*problem)
    del wanted["cells"]
    _same(found, wanted)


def test_groups_of_windows_channels_and_leads_are_scored_by_the_definitions(problem):
    actual, quantiles, scales, paths = problem
    whole = tally(actual, quantiles, LEVELS, scales, paths)
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


def test_a_group_may_tell_channels_apart(problem):
    actual, quantiles, scales, _ = problem
    whole = tally(actual, quantiles, LEVELS, scales)
    both = whole.by_group(np.arange(N)[:, None] * C + np.arange(C), N * C)
    assert both["cells"].tolist() == np.isfinite(actual).sum(axis=1).ravel().tolist()
    only = tally(actual[:1, :, 1:], quantiles[:1, :, 1:], LEVELS, Scales(*(s[:1, 1:] for s in scales)))
    assert both["MASE"][1] == pytest.approx(only.overall()["MASE"], rel=1e-12)


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
    assert all(np.isnan(value) for value in found.values())
    empty = tally(actual[:0], quantiles[:0], LEVELS, scales.select(slice(0, 0))).overall()
    assert all(np.isnan(value) for value in empty.values())


def test_a_missing_quantile_of_a_scored_cell_is_a_fault(problem):
    actual, quantiles, scales, _ = problem
    quantiles[0, :, 0, 2] = np.nan
    with pytest.raises(ValueError, match="a forecast of each observed actual expected"):
        tally(np.nan_to_num(actual), quantiles, LEVELS, scales)
