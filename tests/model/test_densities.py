"""Student-t and negative binomial against scipy: densities, exact quantiles, means."""

import numpy as np
import pytest
import torch
from forecaster.model.special import count_quantile, incomplete_beta, student_t_quantile
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from forecaster.model.heads import NegativeBinomialHead, StudentTHead
from forecaster.model.scaling import Scale

LEVELS = (0.001, 0.1, 0.25, 0.5, 0.9, 0.99, 0.999)


def softplus(x):
    return np.logaddexp(0.0, np.asarray(x, dtype=np.float64))


def drawn(size, seed=0, spread=2.0):
    """Raw numbers [6, 5, 1, P] and a scale of loc 7, scale 3."""
    raw = spread * torch.randn((6, 5, 1, size), generator=torch.Generator().manual_seed(seed))
    return raw, Scale(torch.full((6, 1), 7.0), torch.full((6, 1), 3.0))


def test_the_student_t_loss_is_the_negative_log_density_of_scipy():
    raw, scale = drawn(3)
    target = torch.randn(6, 5, 1, generator=torch.Generator().manual_seed(1)) * 9
    loc, spread, freedom = (
        raw[..., 0],
        softplus(raw[..., 1]),
        2 + softplus(raw[..., 2]),
    )
    expected = -stats.t.logpdf((target - 7) / 3, freedom, loc, spread)
    loss = StudentTHead(LEVELS).loss(raw, scale, target)
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
    quantiles = StudentTHead(LEVELS).quantiles(raw, scale)
    for number, level in enumerate(LEVELS):
        expected = 7 + 3 * stats.t.ppf(level, freedom, loc, width + 1.2e-7)
        np.testing.assert_allclose(quantiles[..., number], expected, rtol=2e-5, atol=2e-5)


def test_the_initial_student_t_has_the_contexts_mean_and_spread():
    head = StudentTHead(LEVELS)
    raw = head.initial_bias()
    variance = softplus(raw[1]) ** 2 * stats.t.var(2 + softplus(raw[2].item()))
    assert (raw[0].item(), variance.item()) == pytest.approx((0.0, 1.0), abs=1e-5)


def mean_and_shape(raw):
    """The parameters in numpy: loc 7, scale 3."""
    level = 7 / 3
    mean = 3 * softplus(raw[..., 0].numpy() + np.log(np.expm1(level)))
    return mean, level**2 / softplus(raw[..., 1])


def test_the_negative_binomial_loss_is_the_negative_log_probability_of_scipy():
    raw, scale = drawn(2)
    counts = torch.randint(0, 60, (6, 5, 1), generator=torch.Generator().manual_seed(1)).float()
    mean, shape = mean_and_shape(raw)
    expected = -stats.nbinom.logpmf(counts.numpy(), shape, shape / (shape + mean))
    loss = NegativeBinomialHead(LEVELS).loss(raw, scale, counts)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_the_loss_of_large_counts_loses_no_digits():
    """lgamma of a million in float32 would err by 1."""
    raw, scale = torch.zeros(1, 1, 1, 2), Scale(torch.full((1, 1), 1e6), torch.full((1, 1), 1e4))
    loss = NegativeBinomialHead(LEVELS).loss(raw, scale, torch.full((1, 1, 1), 1_000_123.0)).item()
    shape = 1e4 / softplus(0.0)
    assert loss == pytest.approx(
        -stats.nbinom.logpmf(1_000_123, shape, shape / (shape + 1e6)), rel=1e-5
    )


def test_negative_binomial_quantiles_and_means_are_exact():
    raw, scale = drawn(2)
    mean, shape = mean_and_shape(raw)
    head = NegativeBinomialHead(LEVELS)
    quantiles = head.quantiles(raw, scale)
    for number, level in enumerate(LEVELS):
        expected = stats.nbinom.ppf(level, shape, shape / (shape + mean))
        np.testing.assert_array_equal(quantiles[..., number], expected)
    np.testing.assert_allclose(head.mean(raw, scale), mean, rtol=1e-6)


def test_the_initial_negative_binomial_has_the_contexts_mean_and_its_variance_above_poissons():
    head = NegativeBinomialHead(LEVELS)
    mean, shape = mean_and_shape(head.initial_bias())
    assert mean == pytest.approx(7.0) and mean + mean**2 / shape == pytest.approx(7 + 3**2)


def test_the_likeliest_count_is_the_one_of_highest_probability():
    raw, scale = drawn(2)
    mean, shape = mean_and_shape(raw)
    mass = stats.nbinom.pmf(np.arange(500), shape[..., None], (shape / (shape + mean))[..., None])
    np.testing.assert_array_equal(NegativeBinomialHead(LEVELS).mode(raw, scale), mass.argmax(axis=-1))


@settings(max_examples=50)
@given(st.floats(-3, 5), st.floats(-2, 5), st.floats(1e-6, 1 - 1e-6))
def test_the_incomplete_beta_function_is_scipys(log_a, log_b, level):
    a, b = 10**log_a, 10**log_b
    x = float(np.clip(np.nan_to_num(stats.beta.ppf(level, a, b), nan=0.5), 0.0, 1.0))
    found = incomplete_beta(*(torch.tensor([part], dtype=torch.float64) for part in (a, b, x)))
    assert found.item() == pytest.approx(special.betainc(a, b, x), abs=1e-9)


@settings(max_examples=100)
@given(st.floats(-3, 5), st.floats(-2, 4), st.floats(1e-7, 1 - 1e-7))
def test_a_count_quantile_is_the_first_count_that_reaches_the_level(log_mean, log_shape, level):
    mean, shape = 10**log_mean, 10**log_shape
    parts = (torch.tensor([part], dtype=torch.float64) for part in (level, mean, shape))
    count = count_quantile(*parts).item()
    p = shape / (shape + mean)
    assert count >= 0 and count == round(count)
    assert stats.nbinom.cdf(count, shape, p) >= level - 1e-9
    assert count == 0 or stats.nbinom.cdf(count - 1, shape, p) <= level + 1e-9


def test_counts_whose_mean_is_not_finite_have_no_quantile():
    mean = torch.tensor([torch.nan, torch.inf, 3.0], dtype=torch.float64)
    like = torch.full_like(mean, 0.5)
    assert count_quantile(like, mean, like).isnan().tolist() == [True, True, False]


def test_standard_student_t_quantiles_are_scipys():
    level = torch.tensor([1e-4, 0.001, 0.2, 0.5, 0.8, 0.999], dtype=torch.float64)[:, None]
    freedom = torch.tensor([1.0, 2.0, 2.5, 10.0, 1e5], dtype=torch.float64)
    level, freedom = torch.broadcast_tensors(level, freedom)
    found, expected = student_t_quantile(level, freedom), stats.t.ppf(level, freedom)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
