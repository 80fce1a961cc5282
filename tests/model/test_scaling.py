"""Scaling: exact inverses, borrowed spreads, cells that must not count."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.model.scaling import ContextScaler, Standardizer


def scaler_of(*moments):
    scaler = ContextScaler(len(moments) - 1)
    scaler.loc.copy_(torch.tensor([loc for loc, _ in moments]))
    scaler.scale.copy_(torch.tensor([scale for _, scale in moments]))
    return scaler


NAN = float("nan")
SCALER = scaler_of((50.0, 5.0), (100.0, 10.0), (-3.0, 0.5))  # code 0, channel 1, channel 2


def scaled(context, observed=None, channel=1, history=None):
    """The scale of windows of one channel code; the history is the context, or is longer."""
    observed = ~context.isnan() if observed is None else observed
    if history is None:
        history = torch.where(observed, context, NAN)
    codes = torch.full((len(context), context.shape[2]), channel)
    return SCALER(context, observed, codes, history, ~history.isnan())


def scale_of(context, channel=1, observed=None, before=()):
    """The (loc, scale) of one window of one channel, after some values of its history."""
    cells = torch.tensor(context, dtype=torch.float64)[None, :, None]
    real = None if observed is None else torch.tensor(observed)[None, :, None]
    history = torch.tensor([*before, *context], dtype=torch.float64)[None, :, None] if before else None
    level, loc, scale = scaled(cells, real, channel, history)
    return level.item() + loc.item(), scale.item()


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from([1e-4, 1.0, 1e5]),
    st.sampled_from([-1e4, 0.0, 1e9]),
    st.floats(0, 0.8),
)
def test_the_inverse_of_scaling_is_exact(seed, spread, level, missing):
    generator = torch.Generator().manual_seed(seed)
    context = level * spread + spread * torch.randn((4, 12, 2), generator=generator)
    context[torch.rand(context.shape, generator=generator) < missing] = torch.nan
    context = context.double()
    scale = scaled(context)
    back = scale.invert(scale.apply(context)[..., None])[..., 0]
    tolerance = 20 * torch.finfo(torch.float32).eps * max(spread, 10.0)
    torch.testing.assert_close(back, context, rtol=1e-15, atol=tolerance, equal_nan=True)


def test_a_window_is_scaled_by_the_mean_and_spread_of_its_observed_cells():
    rng = np.random.default_rng(0)
    context = rng.normal(7, 3, size=(5, 20, 2))
    context[rng.random(context.shape) < 0.3] = np.nan
    level, loc, scale = scaled(torch.from_numpy(context))
    np.testing.assert_allclose(level + loc, np.nanmean(context, axis=1), rtol=1e-12)
    np.testing.assert_allclose(scale, np.nanstd(context, axis=1), rtol=1e-12)


@pytest.mark.parametrize(
    ("context", "expected"),
    {
        "two observations are enough": ([4.0, NAN, 8.0], (6.0, 2.0)),
        "constant: own level, the channel's spread": ([7.0, 7.0, 7.0], (7.0, 10.0)),
        "constant up to rounding": ([0.3, 0.1 + 0.2, 0.3], (0.3, 10.0)),
        "constant zero": ([0.0, 0.0, 0.0], (0.0, 10.0)),
        "one observation: own level, the channel's spread": ([NAN, 7.0, NAN], (7.0, 10.0)),
        "none: both are the channel's": ([NAN, NAN, NAN], (100.0, 10.0)),
    }.values(),
)
def test_short_and_constant_contexts_borrow_from_the_training_rows(context, expected):
    assert scale_of(context) == pytest.approx(expected, rel=1e-6)


def test_each_channel_borrows_its_own_and_an_unknown_one_borrows_from_all():
    assert [scale_of([NAN, NAN], channel) for channel in range(3)] == [(50, 5), (100, 10), (-3, 0.5)]


def test_a_large_level_does_not_swallow_a_small_spread():
    """The mean of squares minus the squared mean would be 0, or negative."""
    for level in (1e4, 23e6, 1e12):
        context = [level, level + 2, level, level + 2]
        assert scale_of(context) == pytest.approx((level + 1, 1.0), rel=1e-15)


def test_a_constant_context_has_the_spread_of_its_history():
    assert scale_of([7.0, 7.0], before=[6.0, NAN, 6.0]) == (7.0, 0.5)
    assert scale_of([NAN, 7.0], before=[6.0]) == (7.0, 0.5)
    assert scale_of([7.0, 7.0], before=[7.0, NAN]) == (7.0, 10.0)  # it has never changed
    assert scale_of([7.0, 9.0], before=[1e6]) == (8.0, 1.0)


@pytest.mark.parametrize("noise", [float("nan"), 1e30, float("inf")])
def test_what_an_unobserved_cell_holds_changes_nothing(noise):
    observed = [True, False, True, True, False]
    first = scale_of([1.0, 2.0, 3.0, 5.0, 8.0], observed=observed)
    assert scale_of([1.0, noise, 3.0, 5.0, noise], observed=observed) == first


def test_covariates_come_in_units_of_training_spreads_and_0_where_missing():
    scaler = Standardizer(2)
    scaler.loc.copy_(torch.tensor([10.0, -1.0]))
    scaler.scale.copy_(torch.tensor([2.0, 4.0]))
    values = torch.tensor([[14.0, 1e30], [torch.nan, 7.0]])
    observed = torch.tensor([[True, False], [False, True]])
    assert scaler(values, observed).tolist() == [[2.0, 0.0], [0.0, 2.0]]
