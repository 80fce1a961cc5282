"""Quantiles that rise, their loss against numpy, and targets that must not count."""

from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.evaluation.metrics import pinball
from forecaster.model.heads import QuantileHead

LEVELS = (0.1, 0.25, 0.5, 0.9)
NINE = tuple(k / 10 for k in range(1, 10))


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
    loss = head.loss(raw, target, torch.ones(7, 5, dtype=torch.bool))
    expected = pinball(target.numpy(), head(raw).numpy(), levels).mean(axis=-1)
    np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-6)


def test_the_loss_of_the_median_is_the_absolute_error():
    head = QuantileHead((0.5,))
    loss = head.loss(torch.tensor([[3.0]]), torch.tensor([5.5]), torch.tensor([True]))
    assert loss.item() == pytest.approx(2.5)


@pytest.mark.parametrize("noise", [float("nan"), float("inf"), 1e30])
def test_cells_without_a_target_have_zero_loss_and_zero_gradient(noise):
    torch.manual_seed(0)
    head = QuantileHead(LEVELS)
    raw = torch.randn(3, 4, len(LEVELS), requires_grad=True)
    target, observed = torch.randn(3, 4), torch.rand(3, 4) < 0.5
    target[~observed] = noise
    loss = head.loss(raw, target, observed)
    assert (loss[~observed] == 0).all() and (loss[observed] > 0).all()
    loss.sum().backward()
    assert (raw.grad[~observed] == 0).all() and raw.grad.isfinite().all()
    assert (raw.grad[observed].abs().sum(-1) > 0).all()


def test_the_levels_are_settings_and_not_weights():
    assert QuantileHead(LEVELS).state_dict() == {}
