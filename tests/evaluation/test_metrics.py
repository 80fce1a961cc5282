"""Metrics: each against a slow obvious loop, utilsforecast where it has the metric, and by hand."""

import doctest
import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from evaluation import textbook_metrics as textbook
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from utilsforecast import losses

from forecaster.evaluation import metrics, scales

LEVELS = [0.1, 0.5, 0.9]
NO_DEADLINE = settings(deadline=None)  # a busy machine is no fault
NAN = float("nan")
POINT_METRICS = [textbook.mae, textbook.mse, textbook.rmse, textbook.smape, textbook.bias]


@pytest.fixture
def table():
    """Actuals [4, 6] with gaps, a forecast, three quantiles and a scale per row."""
    random = np.random.default_rng(7)
    actual = random.normal(20, 6, (4, 6))
    actual[0, 2] = actual[3, 0] = actual[3, 5] = NAN
    forecast = actual + random.normal(0, 3, actual.shape)
    quantiles = np.sort(random.normal(20, 6, (4, 6, 3)), axis=-1)
    return actual, np.where(np.isnan(forecast), NAN, forecast), quantiles, random.uniform(1, 3, 4)


def _frame(actual, **columns):
    """The long table that utilsforecast reads, without the cells that are not scored."""
    series, lead = np.indices(actual.shape)
    frame = {"unique_id": series.ravel(), "ds": lead.ravel(), "y": actual.ravel()}
    frame |= {name: array.ravel() for name, array in columns.items()}
    return pd.DataFrame(frame).dropna(subset="y")


def _loop(actual, forecast, cell):
    cells = [
        cell(y, f) for y, f in zip(actual.ravel(), forecast.ravel(), strict=True) if not math.isnan(y)
    ]
    return sum(cells) / len(cells)


def test_the_examples_in_the_docstrings_hold():
    for module in (metrics, scales, textbook):
        found = doctest.testmod(module)
        assert found.attempted and not found.failed


@pytest.mark.parametrize(
    ("metric", "cell"),
    [
        (textbook.mae, lambda y, f: abs(y - f)),
        (textbook.mse, lambda y, f: (y - f) ** 2),
        (textbook.bias, lambda y, f: f - y),
        (textbook.smape, lambda y, f: 200 * abs(y - f) / (abs(y) + abs(f))),
    ],
)
def test_point_metrics_equal_the_slow_loop(table, metric, cell):
    actual, forecast, _, _ = table
    assert metric(actual, forecast) == pytest.approx(_loop(actual, forecast, cell), rel=1e-12)


@pytest.mark.parametrize("name", ["mae", "mse", "rmse", "smape", "bias"])
def test_point_metrics_equal_utilsforecast_on_one_series(table, name):
    actual, forecast, _, _ = table
    theirs = getattr(losses, name)(_frame(actual[3:], model=forecast[3:]), models=["model"])
    factor = 200 if name == "smape" else 1  # theirs is a share of |y| + |f|
    ours = getattr(textbook, name)(actual[3], forecast[3])
    assert ours == pytest.approx(factor * theirs["model"].item(), rel=1e-12)


def test_pinball_equals_the_slow_loop_and_utilsforecast(table):
    actual, _, quantiles, _ = table
    loss = metrics.pinball(actual, quantiles, LEVELS)
    assert loss.shape == quantiles.shape
    for (row, lead, level), found in np.ndenumerate(loss):
        error, tau = actual[row, lead] - quantiles[row, lead, level], LEVELS[level]
        wanted = 2 * tau * error if error >= 0 else 2 * (tau - 1) * error
        assert found == pytest.approx(wanted, rel=1e-12, nan_ok=True)
    for level, tau in enumerate(LEVELS):
        frame = _frame(actual, model=quantiles[..., level])
        theirs = losses.quantile_loss(frame, models={"model": "model"}, q=tau)["model"]
        ours = np.nanmean(loss[..., level], axis=1)
        np.testing.assert_allclose(ours, 2 * theirs, rtol=1e-12)


def test_wql_equals_the_slow_loop(table):
    actual, _, quantiles, _ = table
    loss = total = 0.0
    for (row, lead), y in np.ndenumerate(actual):
        if not math.isnan(y):
            total += abs(y)
            for q, tau in zip(quantiles[row, lead], LEVELS, strict=True):
                loss += 2 * max(tau * (y - q), (tau - 1) * (y - q)) / len(LEVELS)
    assert textbook.wql(actual, quantiles, LEVELS) == pytest.approx(loss / total, rel=1e-12)


def test_coverage_and_width_equal_utilsforecast_and_speak_of_the_same_cells(table):
    actual, _, quantiles, _ = table
    low, high = quantiles[..., 0], quantiles[..., 2]
    frame = _frame(actual[:1], **{"m-lo-80": low[:1], "m-hi-80": high[:1]})
    theirs = losses.coverage(frame, models=["m"], level=80)["m"].item()
    assert textbook.coverage(actual[:1], low[:1], high[:1]) == pytest.approx(theirs)
    assert textbook.interval_width(actual, low, high) == pytest.approx(
        (high - low)[~np.isnan(actual)].mean()
    )
    assert textbook.coverage([1.0, 2.0, 3.0, 9.0], [1.0] * 4, [3.0] * 4) == 0.75  # ends are inside


def _history_frame(history):
    days = np.arange(len(history))
    return pd.DataFrame({"unique_id": 0, "ds": days, "y": history})


@pytest.mark.parametrize("season_length", [1, 7])
def test_scaled_errors_equal_utilsforecast_on_one_series(season_length):
    random = np.random.default_rng(3)
    history, actual = random.normal(10, 4, 60), random.normal(10, 4, (1, 12))
    forecast, quantiles = (
        actual + random.normal(0, 1, (1, 12)),
        np.sort(random.normal(10, 4, (1, 12, 3)), axis=-1),
    )
    train = _history_frame(history)
    frame = _frame(actual, model=forecast)
    frame["ds"] += 60
    scale = textbook.mase_scale(history, season_length)
    theirs = losses.mase(frame, ["model"], season_length, train)["model"].item()
    assert textbook.mase(actual, forecast, [scale]) == pytest.approx(theirs, rel=1e-9)
    squared = textbook.rmsse_scale(history, season_length)
    theirs = losses.rmsse(frame, ["model"], season_length, train)["model"].item()
    assert textbook.rmsse(actual, forecast, [squared]) == pytest.approx(theirs, rel=1e-9)

    names = [f"q{level}" for level in LEVELS]
    columns = {name: quantiles[..., k] for k, name in enumerate(names)}
    frame = _frame(actual, **columns)
    frame["ds"] += 60
    theirs = losses.scaled_mqloss(frame, {"model": names}, np.array(LEVELS), season_length, train)
    ours = textbook.sql(actual, quantiles, LEVELS, [scale])
    assert ours == pytest.approx(2 * theirs["model"].item(), rel=1e-9)


def test_scaled_errors_equal_the_slow_loop_and_leave_out_rows_without_scale(table):
    actual, forecast, quantiles, scale = table
    scale[1] = NAN
    cells, losses_, rows = [], [], []
    for row in (0, 2, 3):
        squares = []
        for lead in range(actual.shape[1]):
            y = actual[row, lead]
            if not math.isnan(y):
                cells.append(abs(y - forecast[row, lead]) / scale[row])
                squares.append((y - forecast[row, lead]) ** 2)
                for q, tau in zip(quantiles[row, lead], LEVELS, strict=True):
                    losses_.append(2 * max(tau * (y - q), (tau - 1) * (y - q)) / scale[row])
        rows.append(math.sqrt(sum(squares) / len(squares)) / scale[row])
    mean = {name: sum(x) / len(x) for name, x in [("c", cells), ("l", losses_), ("r", rows)]}
    assert textbook.mase(actual, forecast, scale) == pytest.approx(mean["c"], rel=1e-12)
    assert textbook.sql(actual, quantiles, LEVELS, scale) == pytest.approx(mean["l"], rel=1e-12)
    assert textbook.rmsse(actual, forecast, scale) == pytest.approx(mean["r"], rel=1e-12)


def test_means_are_sums_over_counts_not_means_of_means():
    actual = np.array([[0.0, NAN, NAN], [0.0, 0.0, 0.0]])
    assert textbook.mae(actual, [[4.0, 0.0, 0.0], [0.0, 0.0, 0.0]]) == 1.0


def test_crps_of_draws_equals_the_slow_loop_and_the_integral():
    random = np.random.default_rng(8)
    actual, draws = random.normal(size=(3, 2)), random.normal(size=(3, 2, 7))
    actual[1, 1] = NAN
    found = metrics.crps(actual, draws)
    assert math.isnan(found[1, 1])
    grid = np.linspace(-6, 6, 60_001)
    for place in [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)]:
        y, x = actual[place], draws[place]
        pairs = [abs(a - b) for a in x for b in x]
        slow = sum(abs(a - y) for a in x) / 7 - sum(pairs) / 49 / 2
        assert found[place] == pytest.approx(slow, rel=1e-12)
        share = (x[:, None] <= grid).mean(axis=0)
        integral = ((share - (y <= grid)) ** 2).sum() * (grid[1] - grid[0])
        assert found[place] == pytest.approx(integral, abs=1e-3)


def test_crps_of_one_draw_is_the_absolute_error_and_wrong_draws_are_faults():
    assert metrics.crps([3.0, -1.0], [[5.0], [5.0]]).tolist() == [2.0, 6.0]
    with pytest.raises(ValueError, match="found 1 NaN"):
        metrics.crps([3.0], [[5.0, NAN]])
    with pytest.raises(ValueError, match=r"draws of shape \(1, 'S'\) expected, found \(2, 3\)"):
        metrics.crps([3.0], np.zeros((2, 3)))


def test_the_quantile_loss_over_many_levels_approaches_the_crps_of_the_draws():
    random = np.random.default_rng(9)
    draws = np.sort(random.normal(size=400))
    levels = (np.arange(400) + 0.5) / 400  # quantiles of the draws: themselves
    for y in (-1.0, 0.3, 2.0):
        loss = metrics.pinball([y], draws[None], levels.tolist()).mean()
        assert loss == pytest.approx(metrics.crps([y], draws[None])[0], rel=1e-4)


def test_the_median_pinball_is_the_absolute_error(table):
    actual, forecast, _, _ = table
    loss = metrics.pinball(actual, forecast[..., None], [0.5])[..., 0]
    np.testing.assert_allclose(loss, np.abs(actual - forecast))


# The smallest number times 0.5 is 0: what no unit can hold is rounded away before, not after.
PLAIN = st.floats(-1e6, 1e6).map(lambda number: round(number, 9))


@NO_DEADLINE
@given(hnp.arrays(np.float64, (3, 4), elements=PLAIN), st.floats(0.01, 100))
def test_relative_metrics_do_not_change_with_the_unit(forecast, factor):
    actual = np.arange(12.0).reshape(3, 4)
    quantiles, scale = np.stack([forecast, forecast + 1], axis=-1), np.array([1.0, 2.0, 3.0])
    for metric in (
        lambda a: textbook.mase(a * actual, a * forecast, a * scale),
        lambda a: textbook.rmsse(a * actual, a * forecast, a * scale),
        lambda a: textbook.wql(a * actual, a * quantiles, [0.2, 0.8]),
        lambda a: textbook.sql(a * actual, a * quantiles, [0.2, 0.8], a * scale),
        lambda a: textbook.smape(a * actual, a * forecast),
    ):
        assert metric(factor) == pytest.approx(metric(1.0), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("metric", POINT_METRICS)
def test_a_missing_forecast_of_a_real_actual_is_a_fault(metric):
    with pytest.raises(ValueError, match="found 1 NaN"):
        metric([1.0, 2.0], [1.0, NAN])
    assert metric([1.0, NAN], [1.0, NAN]) == 0.0


def test_a_missing_quantile_or_bound_of_a_real_actual_is_a_fault():
    with pytest.raises(ValueError, match="found 1 NaN"):
        metrics.pinball([1.0], [[1.0, NAN]], [0.1, 0.9])
    with pytest.raises(ValueError, match="found 1 NaN"):
        textbook.coverage([1.0], [0.0], [NAN])
    with pytest.raises(ValueError, match="found 1 NaN"):
        textbook.rmsse([[1.0]], [[NAN]], [1.0])
    with pytest.raises(ValueError, match="found 1 NaN"):
        textbook.mase([[1.0]], [[NAN]], [NAN])


def test_wrong_shapes_levels_and_scales_are_named():
    with pytest.raises(ValueError, match=r"shape \(2,\) expected, found \(3,\)"):
        textbook.mae([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"shape \(1, 2\) expected, found \(1, 1\)"):
        metrics.pinball([1.0], [[1.0]], [0.1, 0.9])
    with pytest.raises(ValueError, match="levels between 0 and 1"):
        metrics.pinball([1.0], [[1.0]], [1.0])
    with pytest.raises(ValueError, match=r"above 0, or NaN, expected, found 0\.0"):
        textbook.mase([[1.0]], [[1.0]], [0.0])


def test_where_nothing_is_scored_the_score_is_nan():
    for metric in POINT_METRICS:
        assert math.isnan(metric([NAN], [1.0]))
    assert math.isnan(textbook.wql([0.0], [[1.0]], [0.5]))
    assert math.isnan(textbook.mase([[1.0]], [[1.0]], [NAN]))
    assert math.isnan(textbook.rmsse([[NAN]], [[1.0]], [1.0]))
    assert math.isnan(textbook.coverage([NAN], [1.0], [1.0]))
    assert math.isnan(metrics.skill(1.0, 0.0))


def test_mase_scale_by_hand():
    assert textbook.mase_scale([1.0, 5.0, 2.0, 9.0], 2) == 2.5
    assert textbook.mase_scale([1.0, NAN, 2.0, 9.0], 2) == 1.0  # one pair left
    assert textbook.mase_scale([1.0, 5.0], 7) == 4.0  # no pair 7 apart: season 1
    assert textbook.mase_scale([1.0, 5.0, NAN, NAN, 7.0], 2) == 4.0
    for nothing in ([], [3.0], [3.0, NAN, 4.0, NAN][:2], [3.0, 3.0, 3.0]):
        assert math.isnan(textbook.mase_scale(nothing, 2))


@NO_DEADLINE
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=6),
    st.integers(1, 9),
    st.integers(0, 2**32 - 1),
)
def test_scales_of_a_flat_store_equal_those_of_each_series(lengths, season_length, seed):
    random = np.random.default_rng(seed)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    values = random.normal(size=(indptr[-1], 2)).astype(np.float32)
    values[random.random(values.shape) < 0.3] = np.nan
    ends = np.array([random.integers(a - 1, b) for a, b in pairwise(indptr)])
    found = scales.scales_at(values, indptr, ends, season_length)
    assert found.mase.shape == (len(lengths), 2) and found.mase.dtype == np.float64
    for s, (begin, end) in enumerate(zip(indptr[:-1], ends, strict=True)):
        for channel in range(2):
            history = values[begin : end + 1, channel]
            wanted = textbook.mase_scale(history, season_length)
            assert found.mase[s, channel] == pytest.approx(wanted, rel=1e-12, nan_ok=True)
            wanted = textbook.rmsse_scale(history)
            assert found.rmsse[s, channel] == pytest.approx(wanted, rel=1e-12, nan_ok=True)


def test_scales_of_chosen_pairs_are_those_of_the_series_they_name():
    values = np.array([[1.0], [2.0], [4.0], [10.0], [13.0]], np.float32)
    indptr = np.array([0, 3, 5])
    ends, series = np.array([4, 1, 2]), np.array([1, 0, 0])
    found = scales.scales_at(values, indptr, ends, 1, series)
    assert found.mase[:, 0].tolist() == [3.0, 1.0, 1.5]
