"""Conformal factors: coverage on exchangeable data, monotone quantiles, no harm to the loss."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from forecast import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.forecast.calibrate import (
    CalibrationSet,
    calibrate,
    conformal_factors,
    quality,
    tail_factor,
    with_factors,
)
from forecaster.forecast.card import calibration_line
from forecaster.model.tails import at_levels

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
    factors = conformal_factors(held_out(600, spread=spread), LEVELS)
    later = held_out(4000, spread=spread, seed=1)
    quantiles = with_factors(later.quantiles, factors, LEVELS)
    for place in range(4):
        share = LEVELS[8 - place] - LEVELS[place]
        inside = (quantiles[..., place] <= later.actual) & (later.actual <= quantiles[..., 8 - place])
        # Shrunk by 40 of 640 windows; four standard errors of the 4,000 cells of a lead and channel.
        chance = 4 * np.sqrt(share * (1 - share) / 4000)
        assert abs(inside.mean(axis=0) - share).max() < 0.03 + chance


@pytest.mark.parametrize("spread", [0.7, 1.0, 1.4])
def test_scaled_tails_cover_95_percent_where_the_outermost_fitted_band_covers_80(spread):
    factor = tail_factor(held_out(2000, spread=spread), LEVELS)
    later = held_out(4000, spread=spread, seed=1)
    ends = at_levels(torch.from_numpy(later.quantiles), LEVELS, (0.025, 0.975), factor).numpy()
    inside = (ends[..., 0] <= later.actual) & (later.actual <= ends[..., 1])
    assert abs(inside.mean() - 0.95) < 0.01


def test_tails_are_scaled_from_fifty_residuals_on():
    assert tail_factor(held_out(7, 7, 1), LEVELS) is None
    assert tail_factor(held_out(10, 5, 1), LEVELS) is not None
    assert tail_factor(held_out(100), (0.5,)) is None


@pytest.mark.parametrize("truth", [0.0, 1e-6, 1.0, 1e6])
def test_a_handful_of_windows_hardly_moves_a_band(truth):
    few = held_out(2, 5, 1)
    factors = conformal_factors(replace(few, actual=truth * few.actual), LEVELS)
    assert (factors > 1 / 1.8).all() and (factors < 1.8).all()
    if truth == 1.0:
        assert abs(np.log(factors[..., [0, 8]])).max() < np.log(1.3)


def test_a_factor_is_the_order_statistic_of_the_paper_shrunk_to_1():
    windows = held_out(99, 1, 1, spread=0.5)
    factors = conformal_factors(windows, LEVELS)
    scores = np.abs(windows.actual[:, 0, 0]) / (0.5 * SCORES[8])
    own = np.sort(scores)[int(np.ceil(0.8 * (99 + 1))) - 1]
    expected = own ** (99 / (99 + 40))
    assert factors[8] == pytest.approx(expected) == factors[0]


def test_all_leads_and_channels_have_one_factor():
    windows = held_out(100, 3, 2, spread=0.5)
    scores = np.abs(windows.actual.flatten()) / (0.5 * SCORES[8])
    own = np.sort(scores)[int(np.ceil(round(0.8 * 101 / 100 * 600, 9))) - 1]
    expected = own ** (100 / (100 + 40))
    assert conformal_factors(windows, LEVELS)[8] == pytest.approx(expected)


def test_factors_shrink_bands_that_are_too_wide():
    effect = calibrate(held_out(400, spread=3.0), LEVELS)[1]
    before, after = effect["before"], effect["after"]
    assert before["coverage"] > 0.99 and abs(after["coverage"] - 0.8) < 0.07
    assert after["width"] < 0.5 * before["width"]
    assert after["pinball"] < 0.9 * before["pinball"] and effect["applied"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 5), st.integers(1, 40))
def test_calibrated_quantiles_rise_and_keep_their_median(seed, spread, windows):
    rng = np.random.default_rng(seed)
    quantiles = np.sort(rng.standard_t(2, size=(7, 2, 1, len(LEVELS))), axis=-1)
    factors = conformal_factors(held_out(windows, 2, 1, spread, seed), LEVELS) ** rng.normal()
    found = with_factors(quantiles, factors, LEVELS)
    assert (np.diff(found, axis=-1) >= 0).all()
    assert (found[..., 4] == quantiles[..., 4]).all()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    windows=st.integers(2, 60),
    spread=st.floats(0.05, 20),
    shift=st.floats(-3, 3),
    missing=st.floats(0, 0.9),
    apart=st.booleans(),
)
def test_calibration_never_raises_the_loss_on_windows_not_learned_from(
    seed, windows, spread, shift, missing, apart
):
    made, rng = held_out(windows, 2, 2, spread, seed, apart), np.random.default_rng(seed)
    actual = np.where(rng.random(made.actual.shape) < missing, np.nan, made.actual**3 + shift)
    factors, effect = calibrate(replace(made, actual=actual), LEVELS)
    before, after = (effect[name]["pinball"] for name in ("before", "after"))
    assert np.isnan(before) or after <= before
    assert np.isfinite(factors).all() and (factors > 0).all()
    assert effect["applied"] or (factors == 1).all()


def test_factors_that_do_harm_are_not_applied():
    # The first half of the time tells the opposite of the second.
    windows = held_out(80, 2, 1, seed=3, apart=False)
    actual = windows.actual.copy()
    actual[40:] *= 12
    actual[:40] *= 0.01
    effect = calibrate(replace(windows, actual=actual), LEVELS)[1]
    assert not effect["applied"] and effect["after"]["pinball"] <= effect["before"]["pinball"]


def test_windows_that_overlap_count_less_than_windows_that_do_not():
    close = held_out(50, 10, 1, spread=0.5, apart=False)
    apart = replace(close, series=np.arange(50))
    assert close.independent == pytest.approx(1 + 49 / 10) and apart.independent == 50
    less, more = (conformal_factors(windows, LEVELS)[..., 8] for windows in (close, apart))
    assert (less > 1).all() and less.mean() < more.mean()


def test_cells_without_truth_have_no_score():
    windows = held_out(100, 2, 1, spread=0.5)
    actual = windows.actual.copy()
    actual[:, 1] = np.nan
    blind = replace(windows, actual=actual)
    alone = replace(windows, quantiles=windows.quantiles[:, :1], actual=actual[:, :1])
    assert conformal_factors(blind, LEVELS) == pytest.approx(conformal_factors(alone, LEVELS))


def test_without_any_truth_factors_are_1():
    windows = held_out(10)
    blind = replace(windows, actual=np.full_like(windows.actual, np.nan))
    factors, effect = calibrate(blind, LEVELS)
    assert not effect["applied"] and (factors == 1).all()


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
    assert found["coverage"] == np.mean(inside) and found["width"] == pytest.approx(np.mean(width))
    assert found["pinball"] == pytest.approx(np.mean(loss))


@pytest.mark.parametrize(
    ("coverage", "inside", "said"),
    [(0.978, 0.975, "still too wide: planning"), (0.66, 0.66, "still too narrow: plan with a wider"),
     (0.86, 0.86, ""), (0.98, 0.78, "")],
)  # fmt: skip
def test_a_band_that_calibration_leaves_far_off_is_said_to_be(coverage, inside, said):
    part = {"coverage": coverage, "inside": inside, "width": 1.0, "pinball": 1.0}
    found = {"cutoffs": 84, "applied": True, "before": part, "after": part}
    artifact = tiny.plain_model().artifact
    line = calibration_line(replace(artifact, metrics=artifact.metrics | {"calibration": found}))
    assert "(84 windows, cross-fitted)" in line
    assert said in line if said else "still" not in line
    few = calibration_line(replace(artifact, metrics={"calibration": found | {"cutoffs": 5}}))
    assert "(5 windows, cross-fitted)" in few and "still" not in few
