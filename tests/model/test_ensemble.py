"""Calibration and bounds of the target on top of what members say."""

import pytest
import torch
from small_networks import HORIZON, PLAIN, make_inputs, make_network

from forecaster.config import TargetConfig
from forecaster.model.ensemble import Ensemble

LEVELS = 9


def widths_of(seed, horizon=HORIZON):
    return torch.randn(horizon, 2, LEVELS, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(5))
def test_calibrated_quantiles_rise_and_keep_their_median(seed):
    inputs, network = make_inputs(PLAIN, seed=seed), make_network(PLAIN)
    plain, moved = (
        Ensemble([network], [1.0])(inputs),
        Ensemble([network], [1.0], widths_of(seed))(inputs),
    )
    assert (moved.diff(dim=-1) >= 0).all() and not torch.equal(plain, moved)
    assert torch.equal(moved[..., 4], plain[..., 4])


def test_widths_are_in_units_of_the_window():
    inputs, network = make_inputs(PLAIN), make_network(PLAIN)
    widths = torch.zeros(HORIZON, 2, LEVELS)
    widths[..., 5:] = torch.arange(HORIZON)[:, None, None] / 10
    plain, moved = (Ensemble([network], [1.0], wide)(inputs) for wide in (None, widths))
    scale = network.encode(inputs).scale.scale
    expected = plain + widths * scale[:, None, :, None]
    torch.testing.assert_close(moved, expected)


def test_leads_beyond_the_measured_ones_have_the_widths_of_the_last():
    inputs, network = make_inputs(PLAIN), make_network(PLAIN)
    short = widths_of(0)[:3].abs() * torch.tensor([-1.0] * 4 + [0.0] + [1.0] * 4)
    long = torch.cat([short, short[-1:].expand(HORIZON - 3, -1, -1)])
    said = [Ensemble([network], [1.0], wide)(inputs) for wide in (short, long)]
    assert torch.equal(*said)


def test_nothing_is_said_beyond_the_bounds_of_the_target_and_whole_numbers_are_whole():
    inputs = make_inputs(PLAIN)
    for head in ("quantile", "student_t"):
        network = make_network(PLAIN, head=head)
        free = Ensemble([network], [1.0]).predict(inputs)
        lower, upper = (free.quantiles.quantile(share).item() for share in (0.3, 0.7))
        target = TargetConfig(lower=lower, upper=upper)
        said = Ensemble([network], [1.0], target=target).predict(inputs)
        assert torch.equal(said.quantiles, free.quantiles.clamp(lower, upper))
        whole = Ensemble([network], [1.0], target=TargetConfig(integer=True)).predict(inputs)
        assert torch.equal(whole.quantiles, free.quantiles.round())
        assert not torch.signbit(whole.quantiles[whole.quantiles == 0]).any()
        if free.mean is not None:
            assert torch.equal(said.mean, free.mean.clamp(lower, upper))
            assert torch.equal(whole.mean, free.mean)  # a mean of whole numbers is none


def test_rounding_never_crosses_a_bound():
    inputs, network = make_inputs(PLAIN), make_network(PLAIN)
    middle = Ensemble([network], [1.0]).predict(inputs).quantiles.median().floor().item()
    for target, bounds in (
        (TargetConfig(lower=middle + 0.4, integer=True), (middle + 1, None)),
        (TargetConfig(upper=middle - 0.4, integer=True), (None, middle - 1)),
    ):
        quantiles = Ensemble([network], [1.0], target=target).predict(inputs).quantiles
        assert torch.equal(quantiles, quantiles.round().clamp(*bounds))


def test_paths_are_bounded_too_and_calibration_leaves_them_alone():
    inputs, network = make_inputs(PLAIN), make_network(PLAIN, decoder="autoregressive")
    key = torch.arange(3)
    free = Ensemble([network], [1.0]).predict(inputs, key)
    target = TargetConfig(lower=20.0, integer=True)
    said = Ensemble([network], [1.0], widths_of(1), target).predict(inputs, key)
    assert torch.equal(said.paths, free.paths.clamp(20.0).round())
    assert (said.quantiles >= 20).all() and (said.quantiles == said.quantiles.round()).all()
    assert not torch.equal(said.quantiles, free.quantiles.clamp(20.0).round())
