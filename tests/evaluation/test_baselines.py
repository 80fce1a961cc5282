"""Baselines: against slow loops, by hand, and against published numbers on real data."""

from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.evaluation import baselines
from forecaster.evaluation.error_scales import Histories

NAN = float("nan")
LEVELS = [0.1, 0.5, 0.9]
NO_DEADLINE = settings(deadline=None)  # a busy machine is no fault
DECILES = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
DATASETS = Path(__file__).parents[2].parent / "shared" / "datasets"
needs_datasets = pytest.mark.skipif(
    not DATASETS.is_dir(), reason="the shared data sets are not beside this checkout"
)


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


@st.composite
def _problems(draw):
    """A store of a few ragged series with gaps, two channels, and pairs in any order, repeated."""
    lengths = draw(st.lists(st.integers(0, 25), min_size=1, max_size=5))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    values = random.normal(100, 20, (indptr[-1], 2))
    values[random.random(values.shape) < draw(st.sampled_from([0.0, 0.3, 0.9]))] = np.nan
    series = random.integers(0, len(lengths), draw(st.integers(0, 8)))
    cutoff = np.array([random.integers(indptr[s] - 1, indptr[s + 1]) for s in series], np.int64)
    histories = Histories(values, indptr, cutoff, series)
    return histories, draw(st.integers(1, 12)), draw(st.integers(1, 8))


@NO_DEADLINE
@given(_problems())
def test_seasonal_naive_equals_the_slow_loop(problem):
    (values, indptr, cutoff, series), horizon, season_length = problem
    found = baselines.seasonal_naive(*problem, LEVELS)
    assert found.shape == (len(series), horizon, 2, 3) and found.dtype == np.float64
    for k, s in enumerate(series):
        for channel in range(2):
            history = values[indptr[s] : cutoff[k] + 1, channel]
            wanted = _slow(history, horizon, season_length, LEVELS)
            np.testing.assert_allclose(found[k, :, channel], wanted, rtol=1e-5, atol=1e-4)


@NO_DEADLINE
@given(_problems())
def test_small_blocks_give_the_same_bits_as_one_block(problem):
    whole = baselines.seasonal_naive(*problem, LEVELS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baselines, "BLOCK_CELLS", 7)
        np.testing.assert_array_equal(baselines.seasonal_naive(*problem, LEVELS), whole)


@NO_DEADLINE
@given(_problems(), st.sampled_from([1e30, -5.0, NAN]))
def test_rows_after_the_cutoff_and_of_other_series_are_never_read(problem, noise):
    (values, indptr, cutoff, series), horizon, season_length = problem
    together = baselines.seasonal_naive(*problem, LEVELS)
    for k, s in enumerate(series):
        twin = np.full_like(values, noise)
        twin[indptr[s] : cutoff[k] + 1] = values[indptr[s] : cutoff[k] + 1]
        one = slice(k, k + 1)
        alone = Histories(twin, indptr, cutoff[one], series[one])
        found = baselines.seasonal_naive(alone, horizon, season_length, LEVELS)
        np.testing.assert_array_equal(found, together[one])


def _slow_drift(history, horizon, levels):
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


@given(_problems())
def test_drift_equals_the_slow_loop(problem):
    (values, indptr, cutoff, series), horizon, _ = problem
    found = baselines.drift(problem[0], horizon, LEVELS)
    assert found.shape == (len(series), horizon, 2, 3) and found.dtype == np.float64
    for k, s in enumerate(series):
        for channel in range(2):
            history = values[indptr[s] : cutoff[k] + 1, channel]
            wanted = _slow_drift(history, horizon, LEVELS)
            np.testing.assert_allclose(found[k, :, channel], wanted, rtol=1e-4, atol=1e-3)


@given(_problems(), st.sampled_from([1e30, NAN]))
def test_drift_is_bit_equal_alone_and_reads_nothing_after_the_cutoff(problem, noise):
    (values, indptr, cutoff, series), horizon, _ = problem
    together = baselines.drift(problem[0], horizon, LEVELS)
    for k, s in enumerate(series):
        twin = np.full_like(values, noise)
        twin[indptr[s] : cutoff[k] + 1] = values[indptr[s] : cutoff[k] + 1]
        one = slice(k, k + 1)
        alone = baselines.drift(Histories(twin, indptr, cutoff[one], series[one]), horizon, LEVELS)
        np.testing.assert_array_equal(alone, together[one])


def test_a_huge_series_before_a_small_one_costs_it_no_digit():
    values, indptr = _store([0, 1e12, 0, 1e12], [0.0, 0.001, 0.0, 0.001])
    found = baselines.naive(Histories(values, indptr, _at(7), _at(1)), 1, [0.9])
    wanted = 0.001 + NormalDist().inv_cdf(0.9) * 0.001
    assert found.item() == pytest.approx(wanted, rel=1e-6)
    both = baselines.naive(Histories(values, indptr, _at(3, 7), _at(0, 1)), 1, [0.9])
    assert both[1].item() == found.item()


def test_a_channel_empty_over_a_long_history_takes_few_rounds():
    values = np.full((200_000, 1), np.nan)
    values[5] = 2.0
    found = baselines.naive(Histories(values, _at(0, 200_000), _at(199_999), _at(0)), 1, [0.5])
    assert found.item() == 2.0
