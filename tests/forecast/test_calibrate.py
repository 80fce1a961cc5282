"""Conformal offsets: coverage on exchangeable data, monotone quantiles, no harm to the loss."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.forecast.calibrate import (
    MAX_LOSS,
    CalibrationSet,
    calibrate,
    conformal_factors,
    quality,
    with_factors,
)

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SCORES = np.array([-1.2816, -0.8416, -0.5244, -0.2533, 0.0, 0.2533, 0.5244, 0.8416, 1.2816])


def held_out(windows, horizon=3, channels=2, spread=1.0, seed=0, apart=True):
    """Standard normal truth, and quantiles of a normal of another spread, as many series as windows."""
    rng = np.random.default_rng(seed)
    actual = rng.normal(size=(windows, horizon, channels))
    quantiles = np.broadcast_to(spread * SCORES, (*actual.shape, len(LEVELS))).copy()
    series = np.arange(windows) if apart else np.zeros(windows, np.int64)
    step = np.zeros(windows, np.int64) if apart else np.arange(windows)
    return CalibrationSet(quantiles, actual, series, step)


@pytest.mark.parametrize("spread", [0.4, 1.0, 2.5])
def test_every_band_of_exchangeable_windows_covers_its_share(spread):
    offsets = conformal_factors(held_out(600, spread=spread), LEVELS)
    later = held_out(4000, spread=spread, seed=1)
    quantiles = with_factors(later.quantiles, offsets, LEVELS)
    for place in range(4):
        share = LEVELS[8 - place] - LEVELS[place]
        inside = (quantiles[..., place] <= later.actual) & (later.actual <= quantiles[..., 8 - place])
        # Four standard errors of the 600 windows that each lead and channel was learned from.
        assert abs(inside.mean(axis=0) - share).max() < 4 * np.sqrt(share * (1 - share) / 600)


def test_on_average_over_draws_the_band_of_few_windows_holds_at_least_its_share():
    shares = []
    for seed in range(300):
        offsets = conformal_factors(held_out(20, 1, 1, spread=0.5, seed=seed), LEVELS)
        later = held_out(200, 1, 1, spread=0.5, seed=10_000 + seed)
        shares.append(
            quality(with_factors(later.quantiles, offsets, LEVELS), later.actual, LEVELS).coverage
        )
    # The conformal guarantee: from .8 to .8 + 1 / 21, within four standard errors of 300 draws.
    assert 0.8 - 0.02 < np.mean(shares) < 0.8 + 1 / 21 + 0.02


def test_the_offset_of_one_lead_and_channel_is_the_order_statistic_of_the_paper():
    windows = held_out(99, 1, 1, spread=0.5)
    offsets = conformal_factors(windows, LEVELS)
    outside = np.abs(windows.actual[:, 0, 0]) - 0.5 * SCORES[8]
    rank = int(np.ceil(0.8 * (99 + 1)))
    assert offsets[0, 0, 8] == pytest.approx(np.sort(outside)[rank - 1]) == -offsets[0, 0, 0]
    assert offsets[0, 0, 4] == 0


def test_offsets_shrink_bands_that_are_too_wide():
    found = calibrate(held_out(400, spread=3.0), LEVELS)
    assert found.before.coverage > 0.99 and abs(found.after.coverage - 0.8) < 0.03
    assert found.after.width < 0.5 * found.before.width
    assert found.after.pinball < 0.9 * found.before.pinball and found.strength == 1


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 5), st.integers(1, 40))
def test_calibrated_quantiles_rise_and_keep_their_median(seed, spread, windows):
    rng = np.random.default_rng(seed)
    quantiles = np.sort(rng.standard_t(2, size=(7, 2, 1, len(LEVELS))), axis=-1)
    offsets = conformal_factors(held_out(windows, 2, 1, spread, seed), LEVELS) * rng.normal()
    found = with_factors(quantiles, offsets, LEVELS)
    assert (np.diff(found, axis=-1) >= 0).all()
    assert (found[..., 4] == quantiles[..., 4]).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 60), st.booleans())
def test_the_loss_on_windows_not_learned_from_grows_by_a_hundredth_at_most(seed, windows, apart):
    found = calibrate(held_out(windows, 2, 1, 1.0, seed, apart), LEVELS)
    assert found.after.pinball <= MAX_LOSS * found.before.pinball
    assert found.strength > 0 or not found.offsets.any()


def test_offsets_that_do_harm_are_not_applied():
    # The first half of the time tells the opposite of the second.
    windows = held_out(80, 2, 1, seed=3, apart=False)
    actual = windows.actual.copy()
    actual[40:] *= 12
    actual[:40] *= 0.01
    torn = replace(windows, actual=actual)
    found = calibrate(torn, LEVELS)
    assert found.strength < 1
    assert found.after.pinball <= MAX_LOSS * found.before.pinball


def test_windows_that_overlap_count_less_than_windows_that_do_not():
    close, apart = held_out(50, 10, 1, apart=False), held_out(50, 10, 1)
    assert close.independent == pytest.approx(1 + 49 / 10) and apart.independent == 50
    far = conformal_factors(close, LEVELS) - conformal_factors(
        replace(close, series=np.arange(50)), LEVELS
    )
    assert far[..., 8].mean() > 0


def test_missing_truth_changes_nothing_and_a_lead_without_any_takes_that_of_its_channel():
    windows = held_out(100, 3, 2)
    actual = windows.actual.copy()
    actual[:, 1, 0] = np.nan
    some = conformal_factors(replace(windows, actual=actual), LEVELS)
    whole = conformal_factors(windows, LEVELS)
    assert np.isfinite(some).all() and (some[:, 1] == whole[:, 1]).all()
    actual[:, :, 0] = np.nan
    none = conformal_factors(replace(windows, actual=actual), LEVELS)
    assert np.isfinite(none).all() and (none[0, 0] == none[2, 0]).all()


def test_without_any_truth_offsets_are_zero():
    windows = held_out(10)
    empty = replace(windows, actual=np.full_like(windows.actual, np.nan))
    found = calibrate(empty, LEVELS)
    assert found.strength == 0 and not found.offsets.any()


def test_quality_is_that_of_a_loop_over_cells():
    windows = held_out(6, 2, 1)
    actual = windows.actual.copy()
    actual[2, 1, 0] = np.nan
    inside, width, loss = [], [], []
    for n, lead in np.ndindex(6, 2):
        y, q = actual[n, lead, 0], windows.quantiles[n, lead, 0]
        if not np.isnan(y):
            inside.append(q[0] <= y <= q[-1])
            width.append(q[-1] - q[0])
            loss += [2 * max(t * (y - v), (t - 1) * (y - v)) for t, v in zip(LEVELS, q, strict=True)]
    found = quality(windows.quantiles, actual, LEVELS)
    assert found.coverage == np.mean(inside) and found.width == pytest.approx(np.mean(width))
    assert found.pinball == pytest.approx(np.mean(loss))
