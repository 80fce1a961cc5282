"""Baselines: against slow loops, their laws, by hand."""

from statistics import NormalDist

import numpy as np
import pytest
from evaluation.histories import LEVELS, check_against_loop, problems
from forecast import tiny
from hypothesis import given
from hypothesis import strategies as st

import forecaster as fc
from forecaster.config import Config, DataConfig, ModelConfig
from forecaster.evaluation import baselines
from forecaster.evaluation.backtest import rolling_cutoffs
from forecaster.evaluation.baselines import seasonal_naive
from forecaster.evaluation.comparison import EXPERT_OF
from forecaster.evaluation.error_scales import Histories
from forecaster.fitting.no_fit import unfitted
from forecaster.forecast.predictor import Predictor
from forecaster.panel.build import open_panel


def _store(*series):
    """A flat store of one channel from lists of numbers."""
    indptr = np.concatenate([[0], np.cumsum([len(one) for one in series])]).astype(np.int64)
    return np.concatenate(series)[:, None], indptr


def _at(*numbers):
    return np.array(numbers, np.int64)


def _slow(history, horizon, season_length, levels):
    """The definition, one cell at a time: history is one channel up to the cutoff."""
    real = [value for value in history if not np.isnan(value)]
    residuals = []
    for step in (season_length, 1):
        residuals = residuals or [
            float(history[t]) - float(history[t - step])
            for t in range(step, len(history))
            if not np.isnan(history[t]) and not np.isnan(history[t - step])
        ]
    rms = (sum(r**2 for r in residuals) / len(residuals)) ** 0.5 if residuals else 0.0
    quantiles = np.full((horizon, len(levels)), np.nan)
    for lead in range(1, horizon + 1):
        row = len(history) - 1 + lead
        while row >= len(history) or (row >= 0 and np.isnan(history[row])):
            row -= season_length
        point = history[row] if row >= 0 else real[-1] if real else np.nan
        growth = ((lead - 1) // season_length + 1) ** 0.5
        for q, level in enumerate(levels):
            quantiles[lead - 1, q] = point + NormalDist().inv_cdf(level) * rms * growth
    return quantiles


@given(problems())
def test_seasonal_naive_equals_the_slow_loop(problem):
    check_against_loop(seasonal_naive, _slow, problem, rtol=1e-5, atol=1e-4)


def _slow_drift(history, horizon, season_length, levels):
    real = [t for t, value in enumerate(history) if not np.isnan(value)]
    if not real:
        return np.full((horizon, len(levels)), np.nan)
    first, last = real[0], real[-1]
    span = max(last - first, 1)
    slope = (float(history[last]) - float(history[first])) / span
    changes = [float(history[t]) - float(history[t - 1]) for t in real if t - 1 in real]
    sigma = np.sqrt(np.mean([(d - slope) ** 2 for d in changes])) if changes else 0.0
    steps = len(history) - 1 - last + np.arange(1, horizon + 1)[:, None]
    z = np.array([NormalDist().inv_cdf(level) for level in levels])
    return float(history[last]) + slope * steps + z * sigma * np.sqrt(steps * (1 + steps / span))


def test_naive_and_drift_are_the_experts_alone_and_equal_their_slow_loops():
    backtest = fc.backtest(tiny.plain(), 7, windows=2, fit=False, tracking=False, quiet=True)
    value = {(store, day): sales for store, day, sales in tiny.plain().rows()}
    for number, (forecast, beside) in enumerate(
        zip(backtest.forecasts, backtest.baselines, strict=True)
    ):
        for store, *found in zip(tiny.STORES, beside["naive"], beside["drift"], strict=True):
            history = [value[store, tiny.day(day)] for day in range(100 - 7 * (2 - number))]
            naive, drift = (_slow(history, 7, 1, [0.5]), _slow_drift(history, 7, 1, [0.5]))
            for own, wanted in zip(found, (naive, drift), strict=True):
                np.testing.assert_allclose(
                    own[:, 0, forecast.levels.index(0.5)], wanted[:, 0], rtol=1e-6
                )


@pytest.mark.parametrize(("name", "expert"), [*EXPERT_OF.items()][:4])
def test_a_baseline_is_the_forecast_of_its_expert(name, expert):
    panel = open_panel(tiny.plain(), DataConfig())
    (cutoff,) = rolling_cutoffs(panel, 1, 7)
    config = Config(horizon=7, model=ModelConfig(experts=(expert,)))
    made = Predictor(unfitted(panel.until(cutoff), config)).forecast_at(panel, cutoff)
    backtest = fc.backtest(tiny.plain(), 7, windows=1, fit=False, tracking=False, quiet=True)
    found = backtest.baselines[0][name]
    middle = made.levels.index(0.5)
    np.testing.assert_allclose(found[..., middle], made.median, rtol=1e-6)
    if name != "seasonal naive":  # whose band is that of its past errors
        np.testing.assert_allclose(found, made.quantiles, rtol=1e-6)


@pytest.mark.long
@given(problem=problems(), noise=st.sampled_from([1e30, -5.0, np.nan]))
def test_forecasts_are_bit_equal_alone_and_in_small_blocks_and_read_nothing_else(problem, noise):
    (values, indptr, cutoff, series), *options = problem
    together = seasonal_naive(*problem, LEVELS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baselines, "BLOCK_CELLS", 7)
        np.testing.assert_array_equal(seasonal_naive(*problem, LEVELS), together)
    for k, s in enumerate(series):
        twin = np.full_like(values, noise)  # rows after the cutoff and of other series
        twin[indptr[s] : cutoff[k] + 1] = values[indptr[s] : cutoff[k] + 1]
        one = slice(k, k + 1)
        alone = seasonal_naive(Histories(twin, indptr, cutoff[one], series[one]), *options, LEVELS)
        np.testing.assert_array_equal(alone, together[one])


def test_a_huge_series_before_a_small_one_costs_it_no_digit():
    values, indptr = _store([0, 1e12, 0, 1e12], [0.0, 0.001, 0.0, 0.001])
    found = seasonal_naive(Histories(values, indptr, _at(7), _at(1)), 1, 1, [0.9])
    wanted = 0.001 + NormalDist().inv_cdf(0.9) * 0.001
    assert found.item() == pytest.approx(wanted, rel=1e-6)
    both = seasonal_naive(Histories(values, indptr, _at(3, 7), _at(0, 1)), 1, 1, [0.9])
    assert both[1].item() == found.item()


def test_a_channel_empty_over_a_long_history_takes_few_rounds():
    values = np.full((200_000, 1), np.nan)
    values[5] = 2.0
    found = seasonal_naive(Histories(values, _at(0, 200_000), _at(199_999), _at(0)), 1, 1, [0.5])
    assert found.item() == 2.0
