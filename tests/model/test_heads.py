"""Quantiles that rise, their loss against numpy, and targets that must not count."""

from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.config import ModelConfig
from forecaster.evaluation.metrics import pinball
from forecaster.model.heads import (
    BinnedHead,
    NegativeBinomialHead,
    QuantileHead,
    StudentTHead,
    Vocabulary,
    make_head,
)
from forecaster.model.scaling import Scale

LEVELS = (0.1, 0.25, 0.5, 0.9)
NINE = tuple(k / 10 for k in range(1, 10))


def scale_of(batch: int, channels: int = 1, loc: float = 0.0, scale: float = 1.0) -> Scale:
    return Scale(torch.full((batch, channels), loc), torch.full((batch, channels), scale))


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


def test_the_loss_of_the_median_is_the_absolute_error():
    head = QuantileHead((0.5,))
    loss = head.loss(torch.tensor([[[[3.0]]]]), scale_of(1), torch.tensor([[[5.5]]]))
    assert loss.item() == pytest.approx(2.5)


HEADS = {
    "quantile": QuantileHead(LEVELS),
    "student_t": StudentTHead(LEVELS),
    "negative_binomial": NegativeBinomialHead(LEVELS),
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
    assert (quantiles.diff(dim=-1) >= 0).all() and quantiles.dtype == torch.float32
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand((4, 20_000, 1, 2), dtype=torch.float64, generator=generator)
    draws = head.sample(raw.expand(-1, 20_000, -1, -1), scale, uniform)
    below = (draws[..., None] < quantiles).float().mean(dim=1)[:, 0]
    up_to = (draws[..., None] <= quantiles).float().mean(dim=1)[:, 0]
    levels = torch.tensor(LEVELS)
    assert (below <= levels + 0.015).all() and (up_to >= levels - 0.015).all()
    mean = head.mean(raw, scale)
    if head.has_mean:
        spread = draws.std(dim=1)[:, 0] / 20_000**0.5
        assert ((draws.mean(dim=1) - mean[:, 0])[:, 0].abs() < 5 * spread).all()
    else:
        assert mean is None


@every_head
def test_the_same_uniform_numbers_give_the_same_draws(head):
    raw, scale = raw_of(head, 2, 3, 2), scale_of(2, 2)
    uniform = torch.rand((2, 3, 2, 2), dtype=torch.float64)
    draws = head.sample(raw, scale, uniform)
    assert draws.shape == (2, 3, 2) and torch.equal(head.sample(raw, scale, uniform), draws)


@pytest.mark.parametrize("name", ["quantile", "student_t", "binned"])
def test_scaled_and_shifted_targets_scale_and_shift_what_a_head_says(name):
    head, raw = HEADS[name], raw_of(HEADS[name], 2, 3, 2)
    first, moved = scale_of(2, 2, 1.0, 2.0), scale_of(2, 2, 3 * 1.0 - 50, 3 * 2.0)
    uniform = torch.rand((2, 3, 2, 2), dtype=torch.float64)
    for said in (head.quantiles, head.mode, lambda *parts: head.sample(*parts, uniform)):
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


@pytest.mark.parametrize("name", HEADS)
def test_the_config_names_a_head(name):
    assert type(make_head(ModelConfig(head=name))) is type(HEADS[name])


def test_the_levels_are_settings_and_not_weights():
    assert QuantileHead(LEVELS).state_dict() == {}
    assert all(head.state_dict() == {} for head in HEADS.values())
