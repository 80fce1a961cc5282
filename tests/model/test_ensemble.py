"""Calibration and bounds of the target on top of what members forecast."""

import torch
from small_networks import EXPERTS, PLAIN, make_inputs, make_network

from forecaster.config import TargetConfig
from forecaster.model.ensemble import Ensemble
from forecaster.model.mean_demand import steadied
from forecaster.model.tails import at_levels, mean_of

LEVELS = 9


def factors_of(seed):
    return torch.randn(LEVELS, generator=torch.Generator().manual_seed(seed)).exp()


def test_factors_multiply_distances_from_the_median():
    inputs, network = make_inputs(PLAIN), make_network(PLAIN)
    factors = torch.linspace(0.5, 0.9, 9) + torch.tensor([0.4, 0.3, 0.2, 0.1, 0.0, 0.1, 0.2, 0.3, 0.4])
    plain, moved = (Ensemble([network], [1.0], by)(inputs) for by in (None, factors))
    median = plain[..., 4:5]
    torch.testing.assert_close(moved - median, factors * (plain - median))


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
        assert torch.equal(whole.mean, free.mean)  # a mean of whole numbers is none
        assert (said.mean >= lower).all() and (said.mean <= upper).all()
        wide = TargetConfig(lower=-1e9, upper=1e9)
        torch.testing.assert_close(
            Ensemble([network], [1.0], target=wide).predict(inputs).mean, free.mean
        )


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
    said = Ensemble([network], [1.0], factors_of(1), target).predict(inputs, key)
    assert torch.equal(said.paths, free.paths.clamp(20.0).round())
    assert torch.equal(said.mean, free.paths.clamp(20.0).mean(dim=1))
    assert (said.quantiles >= 20).all() and (said.quantiles == said.quantiles.round()).all()
    assert not torch.equal(said.quantiles, free.quantiles.clamp(20.0).round())


def test_the_experts_of_all_members_forecast_without_networks_and_one_of_them_alone():
    inputs = make_inputs(PLAIN)
    members = [make_network(PLAIN, pool=EXPERTS), make_network(PLAIN, pool=EXPERTS, width=4)]
    ensemble = Ensemble(members, [0.25, 0.75], factors_of(0))
    for only in (None, "ets"):
        found = ensemble.experts_only(only)
        wanted = []
        for member in members:
            scale = member.scale(inputs)
            if only is None:
                wanted.append(member.of_experts(inputs, scale).quantiles[..., 4])
                continue
            center = member.pool(inputs, scale).forecasts[..., member.experts.names.index(only)]
            wanted.append(scale.invert(center.unflatten(0, (-1, 2)).transpose(1, 2)))
        wanted = 0.25 * wanted[0] + 0.75 * wanted[1]
        torch.testing.assert_close(found(inputs)[..., 4], wanted, rtol=1e-5, atol=1e-5)
    assert ensemble.experts_only("theta") is None
    assert Ensemble([members[0], make_network(PLAIN)], [0.5, 0.5]).experts_only() is None
    assert all(member.network_weights() == (0.5, 0.5) for member in members)


def test_the_mean_is_that_of_the_calibrated_quantiles_and_of_counts_of_experts_by_squared_errors():
    inputs, network = make_inputs(PLAIN), make_network(PLAIN, pool=EXPERTS)
    ensemble = Ensemble([network], [1.0], factors_of(0), tail_factor=2.0)
    found = ensemble.predict(inputs)
    levels = network.config.quantile_levels
    torch.testing.assert_close(found.mean, mean_of(found.quantiles, levels, 2.0))
    network.experts.intermittent[1] = True
    network.network_weight.fill_(0.0)
    counted = ensemble.predict(inputs)
    pool = network.pool(inputs, network.scale(inputs))
    prior = torch.tensor([20.0 if name == "long_mean" else 1.0 for name in network.experts.names])
    weights = pool.evidence.mean_weights(prior)[:, None]
    demand = pool.forecasts.maximum(pool.evidence.zero[:, None, None])
    mean = (weights * demand).sum(dim=-1).unflatten(0, (-1, 2)).transpose(1, 2)
    seasons = network.experts.season, network.experts.second
    own = network.scale(inputs).invert(mean)
    own = steadied(own, inputs.history, inputs.history_observed, seasons).clamp(min=0.0)
    torch.testing.assert_close(counted.mean[..., 0], own[..., 0], rtol=1e-4, atol=1e-4)
    plain = mean_of(counted.quantiles[..., 1, :], levels, 2.0)
    torch.testing.assert_close(counted.mean[..., 1], plain, rtol=1e-4, atol=1e-4)


def test_quantiles_at_further_levels_follow_the_fitted_ones_and_are_bounded_alike():
    inputs, network = make_inputs(PLAIN), make_network(PLAIN)
    levels = network.config.quantile_levels
    free = Ensemble([network], [1.0]).predict(inputs).quantiles
    target = TargetConfig(lower=free.median().floor().item(), integer=True)
    found = Ensemble([network], [1.0], target=target).predict(inputs, further=(0.9, 0.975)).quantiles
    assert torch.equal(found[..., : len(levels)], Ensemble([network], [1.0], target=target)(inputs))
    wanted = at_levels(free, levels, (0.9, 0.975)).clamp(target.lower).round()
    assert torch.equal(found[..., len(levels) :], wanted)
