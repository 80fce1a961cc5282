"""The light ETS: against a slow loop over one series, its laws, and what it is for."""

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecaster.evaluation import baselines
from forecaster.evaluation import ets as module
from forecaster.evaluation.error_scales import Histories
from forecaster.evaluation.ets import ets

LEVELS = [0.1, 0.5, 0.9]
Z = np.array([NormalDist().inv_cdf(level) for level in LEVELS])


def _slow(history, horizon, m, reach):
    """One channel up to its cutoff, one candidate and one step at a time."""
    history = np.asarray(history, float)
    history = history[max((len(history) - 1) // reach - 1, 0) * reach :]
    rows, real = len(history), ~np.isnan(history)
    if not real.any():
        return None
    late = real[2 * m :].sum()
    seasonal = m > 1 and rows >= 3 * m and late > m
    candidates = module._PLAIN + (module._SEASONAL if seasonal else ())
    best = None
    for number, (alpha, beta, phi, gamma) in enumerate(candidates):
        level, trend, season = history[real][0], 0.0, [0.0] * m
        if number >= len(module._PLAIN):
            early = history[: 2 * m]
            level = np.nanmean(early) if real[: 2 * m].any() else level
            for j in range(m):
                pair = [v for v in (early[j], early[j + m]) if not np.isnan(v)]
                season[j] = np.mean(pair) - level if pair else 0.0
        errors = []
        for t in range(rows):
            ahead = level + phi * trend
            e = history[t] - ahead - season[t % m] if real[t] else 0.0
            level, trend = ahead + alpha * e, phi * trend + beta * e
            season[t % m] += gamma * e
            errors.append(e)
        grown = (m == 1 and rows >= 3 and late > 1) or seasonal
        counted = errors[2 * m :] if grown else errors
        loss = sum(e**2 for e in counted)
        count = late if grown else real.sum() - 1
        if best is None or loss < best[0]:
            turned = [season[(rows + k) % m] for k in range(m)]
            best = loss, max(count, 1), (level, trend, turned), (alpha, beta, phi, gamma)
    loss, count, (level, trend, season), (alpha, beta, phi, gamma) = best
    made, variance = [], 1.0
    for k in range(1, horizon + 1):
        point = level + sum(phi**i for i in range(1, k + 1)) * trend + season[(k - 1) % m]
        made.append(point + Z * np.sqrt(loss / count * variance))
        c = alpha + beta * sum(phi**i for i in range(1, k + 1)) + gamma * (k % m == 0)
        variance += c**2
    return np.array(made)


@st.composite
def _problems(draw):
    lengths = draw(st.lists(st.integers(0, 40), min_size=1, max_size=4))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    season = draw(st.integers(1, 6))
    wave = 30 * np.sin(np.arange(indptr[-1]) * 2 * np.pi / season)[:, None]
    values = 100 + wave + random.normal(0, 10, (indptr[-1], 2))
    values[random.random(values.shape) < draw(st.sampled_from([0.0, 0.2, 0.9]))] = np.nan
    series = random.integers(0, len(lengths), draw(st.integers(0, 6)))
    cutoff = np.array([random.integers(indptr[s] - 1, indptr[s + 1]) for s in series], np.int64)
    return Histories(values, indptr, cutoff, series), draw(st.integers(1, 9)), season


@given(_problems(), st.sampled_from([1024, 8]))
def test_ets_equals_the_slow_loop(problem, rows):
    (values, indptr, cutoff, series), horizon, season = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ROWS", rows)
        found = ets(*problem, LEVELS)
    assert found.shape == (len(series), horizon, 2, 3) and found.dtype == np.float64
    fallback = baselines.naive(problem[0], horizon, LEVELS)
    for k, s in enumerate(series):
        for channel in range(2):
            history = values[indptr[s] : cutoff[k] + 1, channel]
            wanted = _slow(history, horizon, season, max(rows, 4 * season)) if len(history) else None
            wanted = fallback[k, :, channel] if wanted is None else wanted
            np.testing.assert_allclose(found[k, :, channel], wanted, rtol=2e-5, atol=1e-3)


@given(_problems())
def test_a_forecast_is_bit_equal_alone_and_in_small_blocks_and_reads_nothing_after_the_cutoff(problem):
    (values, indptr, cutoff, series), horizon, season = problem
    together = ets(*problem, LEVELS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK_CELLS", 7)
        np.testing.assert_array_equal(ets(*problem, LEVELS), together)
    for k, s in enumerate(series):
        twin = np.full_like(values, 1e30)
        twin[indptr[s] : cutoff[k] + 1] = values[indptr[s] : cutoff[k] + 1]
        one = slice(k, k + 1)
        alone = ets(Histories(twin, indptr, cutoff[one], series[one]), horizon, season, LEVELS)
        np.testing.assert_array_equal(alone, together[one])


def test_a_season_and_a_level_are_found_and_the_band_holds_what_it_says():
    random = np.random.default_rng(1)
    series, rows, horizon, m = 200, 120, 14, 7
    shape = 20 * np.sin(2 * np.pi * np.arange(rows + horizon) / m)
    truth = 100 + shape + random.normal(0, 5, (series, rows + horizon))
    store = truth[:, :rows].reshape(-1, 1)
    indptr = np.arange(series + 1) * rows
    histories = Histories(store, indptr, indptr[1:] - 1, np.arange(series))
    found = ets(histories, horizon, m, LEVELS)[:, :, 0]
    actual = truth[:, rows:]
    error = np.abs(found[..., 1] - actual).mean()
    assert error < 1.15 * 5 * np.sqrt(2 / np.pi)
    told = baselines.seasonal_naive(histories, horizon, m, [0.5])
    assert error < 0.85 * np.abs(told[:, :, 0, 0] - actual).mean()
    assert 0.74 <= ((found[..., 0] <= actual) & (actual <= found[..., 2])).mean() <= 0.86


def test_a_channel_silent_for_longer_than_is_read_is_forecast_by_naive(monkeypatch):
    monkeypatch.setattr(module, "_ROWS", 8)
    values = np.full((100, 1), np.nan)
    values[:3, 0] = [1, 2, 4]
    histories = Histories(values, np.array([0, 100]), np.array([99]), np.array([0]))
    found = ets(histories, 2, 2, LEVELS)
    wanted = baselines.naive(histories, 2, LEVELS)
    np.testing.assert_array_equal(found, wanted)
    assert found[0, 0, 0, 1] == 4.0
