"""The light ETS: against a slow loop over one series, its laws, and what it is for."""

from statistics import NormalDist

import numpy as np
import pytest
from evaluation.histories import LEVELS, check_against_loop, problems
from hypothesis import given
from hypothesis import strategies as st

from forecaster.evaluation import baselines
from forecaster.evaluation import ets as module
from forecaster.evaluation.error_scales import Histories
from forecaster.evaluation.ets import ets

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


@given(problems(), st.sampled_from([1024, 8]))
def test_ets_equals_the_slow_loop(problem, rows):
    def slow(history, horizon, m, levels):
        found = _slow(history, horizon, m, max(rows, 4 * m)) if len(history) else None
        if found is not None:
            return found
        ends = np.array([0, len(history)]), np.array([len(history) - 1]), np.array([0])
        return baselines.naive(Histories(history[:, None], *ends), horizon, levels)[0, :, 0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ROWS", rows)
        check_against_loop(ets, slow, problem, rtol=2e-5, atol=1e-3)


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
