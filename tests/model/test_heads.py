"""Quantiles that rise, their loss against numpy, and targets that must not count."""

from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from forecaster.evaluation.metrics import pinball
from forecaster.model.heads import (
    BinnedHead,
    QuantileHead,
    StudentTHead,
    Vocabulary,
)
from forecaster.model.scaling import Scale

LEVELS = (0.1, 0.25, 0.5, 0.9)
OUTER = (0.001, 0.1, 0.25, 0.5, 0.9, 0.99, 0.999)
UNIT = Scale(torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1, 1))
FOUR = Vocabulary(4, 2.0)  # bins [−2, −1), [−1, 0), [0, 1), [1, 2]
NINE = tuple(k / 10 for k in range(1, 10))


def scale_of(batch: int, channels: int = 1, loc: float = 0.0, scale: float = 1.0) -> Scale:
    return Scale(*(torch.full((batch, channels), part).double() for part in (0.0, loc, scale)))


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from([0.1, 10.0, 1000.0]),
    st.sampled_from([LEVELS, NINE, (0.5,), (0.5, 0.9), (0.01, 0.5)]),
)
def test_quantiles_never_cross(seed, spread, levels):
    raw = spread * torch.randn((6, 5, len(levels)), generator=torch.Generator().manual_seed(seed))
    quantiles = QuantileHead(levels)(raw)
    assert (quantiles.diff(dim=-1) >= 0).all()


def test_the_median_is_its_own_raw_number_and_the_others_are_steps_from_it():
    head = QuantileHead(LEVELS)
    raw = torch.tensor([[1.0, -2.0, 5.0, 0.5]])
    step = torch.nn.functional.softplus(raw[0])
    expected = [5 - step[0] - step[1], 5 - step[1], 5.0, 5 + step[3]]
    assert head(raw)[0].tolist() == pytest.approx([float(x) for x in expected])


@pytest.mark.parametrize("levels", [LEVELS, NINE, (0.5,), (0.01, 0.5, 0.99)])
def test_the_initial_bias_gives_the_quantiles_of_a_standard_normal(levels):
    head = QuantileHead(levels)
    normal = [NormalDist().inv_cdf(level) for level in levels]
    assert head(head.initial_bias()).tolist() == pytest.approx(normal, abs=1e-5)


@pytest.mark.parametrize("levels", [LEVELS, NINE])
def test_the_loss_equals_the_metric_averaged_over_levels(levels):
    torch.manual_seed(0)
    head = QuantileHead(levels)
    raw, target = torch.randn(7, 5, len(levels)), torch.randn(7, 5)
    loss = head.loss(raw[..., None, :], scale_of(7, loc=3.0, scale=2.0), 3 + 2 * target[..., None])
    expected = pinball(target.numpy(), head(raw).numpy(), levels).mean(axis=-1)
    np.testing.assert_allclose(loss[..., 0], expected, rtol=1e-4, atol=1e-6)


HEADS = {
    "quantile": QuantileHead(LEVELS),
    "student_t": StudentTHead(LEVELS),
    "binned": BinnedHead(LEVELS, Vocabulary(12, 3.0), 0.1),
}
every_head = pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)


def raw_of(head, *axes, seed=0):
    return torch.randn((*axes, head.size), generator=torch.Generator().manual_seed(seed))


@every_head
def test_cells_without_a_target_have_zero_loss_and_zero_gradient(head):
    raw = raw_of(head, 3, 4, 2).requires_grad_()
    target = torch.randint(0, 9, (3, 4, 2), generator=torch.Generator().manual_seed(1)).float()
    observed = torch.rand((3, 4, 2), generator=torch.Generator().manual_seed(2)) < 0.5
    loss = head.loss(raw, scale_of(3, 2, 4.0, 2.0), target.masked_fill(~observed, torch.nan))
    assert (loss[~observed] == 0).all() and (loss[observed] > 0).all()
    loss.sum().backward()
    assert (raw.grad[~observed] == 0).all() and raw.grad.isfinite().all()
    assert (raw.grad[observed].abs().sum(-1) > 0).all()


@every_head
def test_quantiles_rise_and_lie_on_both_sides_of_the_draws(head):
    """Of many draws, as many lie below each quantile as its level says, ties counted for it."""
    raw, scale = raw_of(head, 4, 1, 1, seed=3), scale_of(4, 1, 5.0, 2.0)
    quantiles = head.quantiles(raw, scale)
    assert (quantiles.diff(dim=-1) >= 0).all() and quantiles.dtype == torch.float64
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand((4, 20_000, 1, 2), dtype=torch.float64, generator=generator)
    draws = head.sample(raw.expand(-1, 20_000, -1, -1), scale, uniform)
    below = (draws[..., None] < quantiles).float().mean(dim=1)[:, 0]
    up_to = (draws[..., None] <= quantiles).float().mean(dim=1)[:, 0]
    levels = torch.tensor(LEVELS)
    assert (below <= levels + 0.015).all() and (up_to >= levels - 0.015).all()


@pytest.mark.parametrize("name", ["quantile", "student_t", "binned"])
def test_scaled_and_shifted_targets_scale_and_shift_what_a_head_says(name):
    head, raw = HEADS[name], raw_of(HEADS[name], 2, 3, 2)
    first, moved = scale_of(2, 2, 1.0, 2.0), scale_of(2, 2, 3 * 1.0 - 50, 3 * 2.0)
    uniform = torch.rand((2, 3, 2, 2), dtype=torch.float64)
    for said in (head.quantiles, lambda *parts: head.sample(*parts, uniform)):
        torch.testing.assert_close(said(raw, moved), 3 * said(raw, first) - 50, rtol=1e-5, atol=1e-4)
    target = torch.randn(2, 3, 2)
    losses = head.loss(raw, first, target), head.loss(raw, moved, 3 * target - 50)
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)


def test_draws_through_the_quantiles_of_a_normal_are_normal_with_its_tails():
    """A standard normal's raw numbers, scaled by 2 around 10: the draw at u is 10 + 2·Φ⁻¹(u)."""
    head = QuantileHead(NINE)
    uniform = torch.tensor([1e-5, 0.001, 0.05, 0.1, 0.33, 0.5, 0.77, 0.99, 1 - 1e-6])
    uniform = uniform.double()[None, :, None, None].expand(-1, -1, -1, 2)
    raw = head.initial_bias().expand(1, 9, 1, 9)
    draws = head.sample(raw, scale_of(1, 1, 10.0, 2.0), uniform)[0, :, 0]
    expected = [10 + 2 * NormalDist().inv_cdf(float(u)) for u in uniform[0, :, 0, 0]]
    assert draws.tolist() == pytest.approx(expected, abs=2e-5)


def test_the_levels_are_settings_and_not_weights():
    assert QuantileHead(LEVELS).state_dict() == {}
    assert all(head.state_dict() == {} for head in HEADS.values())


def softplus(x):
    return np.logaddexp(0.0, np.asarray(x, dtype=np.float64))


def drawn(size, seed=0, spread=2.0):
    """Raw numbers [6, 5, 1, P] and a scale of loc 7, scale 3."""
    raw = spread * torch.randn((6, 5, 1, size), generator=torch.Generator().manual_seed(seed))
    return raw, scale_of(6, loc=7.0, scale=3.0)


def test_the_student_t_loss_is_the_negative_log_density_of_scipy():
    raw, scale = drawn(3)
    target = torch.randn(6, 5, 1, generator=torch.Generator().manual_seed(1)) * 9
    loc, spread, freedom = (
        raw[..., 0],
        softplus(raw[..., 1]),
        2 + softplus(raw[..., 2]),
    )
    expected = -stats.t.logpdf((target - 7) / 3, freedom, loc, spread)
    loss = StudentTHead(OUTER).loss(raw, scale, target)
    np.testing.assert_allclose(loss, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spread", [0.1, 2.0, 10.0])
def test_student_t_quantiles_are_exact(spread):
    """From two degrees of freedom to ten thousand."""
    raw, scale = drawn(3, spread=spread)
    raw[0, :, :, 2], raw[1, :, :, 2] = 1e4, -30.0
    loc, width, freedom = (
        raw[..., 0],
        softplus(raw[..., 1]),
        2 + softplus(raw[..., 2]),
    )
    quantiles = StudentTHead(OUTER).quantiles(raw, scale)
    for number, level in enumerate(OUTER):
        expected = 7 + 3 * stats.t.ppf(level, freedom, loc, width + 1.2e-7)
        np.testing.assert_allclose(quantiles[..., number], expected, rtol=2e-5, atol=2e-5)


def test_values_fall_into_equal_bins_and_what_is_beyond_into_the_outermost():
    values = torch.tensor([-9.0, -2.0, -1.01, -1.0, 0.0, 0.99, 1.0, 2.0, torch.inf, torch.nan])
    assert FOUR.tokens(values).tolist() == [0, 0, 0, 1, 2, 2, 3, 3, 3, 4]
    assert FOUR.values(torch.arange(4)).tolist() == [-1.5, -0.5, 0.5, 1.5]


@given(st.integers(2, 5000), st.floats(0.5, 50))
def test_a_word_means_a_value_of_its_own_bin(bins, limit):
    vocabulary = Vocabulary(bins, limit)
    numbers = torch.arange(bins)
    assert torch.equal(vocabulary.tokens(vocabulary.values(numbers)), numbers)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_cross_entropy_with_the_label_shared_out(smoothing):
    """(1 − ε)·(−log p of the word) + ε·(mean of −log p over all words)."""
    torch.manual_seed(0)
    raw, target = torch.randn(3, 5, 2, 4), 1.5 * torch.randn(3, 5, 2)
    scale = scale_of(3, 2, 1.0, 2.0)
    loss = BinnedHead((0.5,), FOUR, smoothing).loss(raw, scale, 1 + 2 * target)
    surprise = -raw.double().log_softmax(-1).numpy()
    word = np.clip(np.floor(target.numpy() + 2), 0, 3).astype(int)[..., None]
    chosen = np.take_along_axis(surprise, word, axis=-1)[..., 0]
    expected = (1 - smoothing) * chosen + smoothing * surprise.mean(axis=-1)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_quantiles_mode_and_draws_of_a_histogram_by_hand():
    """Probabilities ⅛, ⅛, ½, ¼ of the bins from −2 on: the cdf is 0, ⅛, ¼, ¾, 1 at −2, −1, 0, 1, 2.

    0.1 lies 0.8 of the way through the first bin, 0.5 half-way through the third (0.25 + 0.25), 0.9 at
    0.6 of the last.
    """
    head = BinnedHead((0.1, 0.5, 0.9), FOUR, 0.0)
    raw = torch.tensor([0.125, 0.125, 0.5, 0.25]).log()[None, None, None]
    assert head.quantiles(raw, UNIT)[0, 0, 0].tolist() == pytest.approx([-1.2, 0.5, 1.6], abs=1e-6)
    uniform = torch.tensor([[[[0.1, 0.9]]]], dtype=torch.float64)
    assert head.sample(raw, UNIT, uniform).item() == pytest.approx(-1.2)


def test_the_initial_binned_distribution_is_a_standard_normal():
    head = BinnedHead((0.1, 0.5, 0.9), Vocabulary(1000, 6.0), 0.0)
    raw = head.initial_bias()[None, None, None]
    expected = [-1.2815516, 0.0, 1.2815516]
    assert head.quantiles(raw, UNIT)[0, 0, 0].tolist() == pytest.approx(expected, abs=1e-3)
