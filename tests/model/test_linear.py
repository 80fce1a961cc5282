"""The linear forecast's laws: what it reads, what it may not see, and that it scales with its data."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_networks import (
    CONTEXT,
    EVERYTHING,
    HORIZON,
    PLAIN,
    make_inputs,
    make_network,
    with_linear,
    with_other_future,
    with_targets,
)

from forecaster.config import ExpertPlan, LinearPlan
from forecaster.model.linear import ALL, EARLY, HeldOut

SHAPES = {
    "plain": PLAIN,
    "everything": EVERYTHING,
    "irregular": replace(EVERYTHING, regular=False),
}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def make(shape, mask="causal", **settings):
    """A network that is its linear forecast alone, with random maps."""
    linear = with_linear(**{"calendar": True, **settings})
    pool = linear.model_copy(update={"experts": ("linear",)})
    network = make_network(shape, decoder_mask=mask, pool=pool)
    network.network_weight.zero_()
    return network


def test_with_a_full_mask_every_lead_sees_all_that_is_known():
    network, inputs = make(EVERYTHING, mask="full"), make_inputs(EVERYTHING)
    other = network(with_other_future(inputs, lead=HORIZON - 1))
    assert not torch.isclose(other[:, 0], network(inputs)[:, 0]).all(dim=-1).any()


@pytest.mark.parametrize("missing", [0.0, 0.3, 0.9])
def test_what_a_map_reads_is_the_tail_less_its_mean_and_zero_where_nothing_is_observed(missing):
    network, inputs = make(PLAIN), make_inputs(PLAIN, missing=missing)
    scale = network.scale(inputs)
    exogenous = network.experts.linear.exogenous(inputs, inputs.known)[:, 0]
    for number, lookback in enumerate(network.experts.linear.lookbacks):
        features, level = network.experts.linear.features(inputs, scale, exogenous, number)
        for row in range(len(features)):
            window, channel = divmod(row, PLAIN.channels)
            tail = scale.apply(inputs.context)[window, -lookback:, channel].numpy()
            mean = np.nanmean(tail)  # the last cell is always observed
            wanted = np.where(np.isnan(tail), 0, tail - mean)
            np.testing.assert_allclose(level[row], mean, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(features[row, :lookback], wanted, rtol=1e-5, atol=1e-5)


def test_what_a_map_reads_of_known_covariates_lies_where_the_lags_say():
    network, inputs = make(EVERYTHING, mask="full"), make_inputs(EVERYTHING)
    known = network.embedding.known_scaler(inputs.known, inputs.known_observed)
    exogenous = network.experts.linear.exogenous(inputs, known)[:, 0]
    codes = torch.cat(
        [torch.eye(size + 1)[inputs.known_category[..., n]][..., 1:] for n, size in enumerate((2, 4))],
        dim=-1,
    )
    steps = torch.cat([known, codes], dim=-1)
    spans = [slice(CONTEXT - 2, CONTEXT), slice(CONTEXT - 9, CONTEXT - 2), slice(CONTEXT, None)]
    wanted = torch.cat([steps[:, span].flatten(1) for span in spans], dim=1)
    assert torch.equal(exogenous[:, 2 * 3 * EVERYTHING.cycles :], wanted)


def test_the_phase_of_a_cutoff_survives_rounding():
    network, inputs = make(PLAIN, phases=24), make_inputs(PLAIN, batch=24)
    phase = torch.from_numpy((np.arange(24) / 24).astype(np.float32))
    inputs = replace(inputs, phase=phase[:, None, None].expand_as(inputs.phase))
    found = network.experts.linear.phase(inputs)[:, 0]
    assert found.tolist() == [hour for hour in range(24) for _ in range(PLAIN.channels)]


def test_many_known_covariates_enter_as_means_of_horizon_patches_then_not_at_all():
    horizon = 300
    sizes = {}
    for count in (5, 10, 900):
        shape = replace(PLAIN, horizon=horizon, known=count)
        pool = ExpertPlan(experts=("linear",), linear=LinearPlan(lookbacks=(4,)))
        network = make_network(shape, pool=pool, patch=2, decoder_patch=3)
        sizes[count] = network.experts.linear.maps[0].shape[2] - 4
    assert sizes == {5: 5 * 300, 10: 10 * 100, 900: 0}


def test_the_network_weight_leads_from_the_linear_forecast_to_the_networks():
    network, inputs = make(EVERYTHING), make_inputs(EVERYTHING)
    straight = network(inputs)
    network.network_weight.fill_(1.0)
    attention = network(inputs)
    network.network_weight.fill_(0.25)
    mean = 0.75 * straight + 0.25 * attention
    torch.testing.assert_close(network(inputs), mean, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(straight, attention)


def test_with_network_weight_0_the_network_is_not_computed():
    network = make(EVERYTHING)
    network.encoder[0].forward = None
    assert network(make_inputs(EVERYTHING)).isfinite().all()


def test_attention_reads_the_end_of_the_context_alone():
    network, inputs = make_network(EVERYTHING, attention_length=6), make_inputs(EVERYTHING)
    assert network.embedding.context_tokens == 2
    context, past = inputs.context.clone(), inputs.past.clone()
    # Two cells are exchanged: the mean and spread of the context stay as they are.
    context[:, [0, 3]], past[:, :4] = context[:, [3, 0]], 9.0
    observed = ~context.isnan()
    other = replace(inputs, context=context, observed=observed, past=past)
    torch.testing.assert_close(network(other), network(inputs))
    known = inputs.known.clone()
    known[:, : CONTEXT - 6] += 1
    assert torch.equal(network(replace(inputs, known=known)), network(inputs))


@pytest.mark.parametrize(("units", "grows"), [("window", 3.0), ("training", 1.0)])
def test_a_covariate_adds_as_much_in_a_wild_context_only_where_maps_count_in_training_spreads(
    units, grows
):
    network = make(EVERYTHING, units=units, mask="full")
    if units == "training":
        network.experts.linear.spread.copy_(
            torch.tensor([2.0, 5.0, 7.0])[: len(network.experts.linear.spread)]
        )
    calm = make_inputs(EVERYTHING)
    wild = with_targets(calm, 3 * calm.history)
    added = [
        (network(with_other_future(inputs, lead=0)) - network(inputs))[..., 4]
        for inputs in (calm, wild)
    ]
    assert added[0].abs().max() > 0.01
    torch.testing.assert_close(added[1], grows * added[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("steps", [3, 50])
def test_units_of_a_season_are_the_mean_distance_of_observed_values_so_far_apart(steps):
    network = make(EVERYTHING, units=steps)
    inputs = make_inputs(EVERYTHING)
    scale = network.scale(inputs)
    found = network.experts.linear.units(inputs, scale).scale
    for window, channel in np.ndindex(*found.shape):
        values = inputs.context[window, :, channel].double().numpy()
        there = inputs.observed[window, :, channel].numpy()
        apart = [
            abs(values[at] - values[at - steps])
            for at in range(steps, len(values))
            if there[at] and there[at - steps]
        ]
        spread = float(scale.scale[window, channel])
        wanted = max(np.mean(apart), spread / 30) if apart else spread
        assert float(found[window, channel]) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("mask", ["causal", "full"])
@pytest.mark.parametrize("shift", [1, 8])
def test_an_earlier_cutoff_is_forecast_from_the_window_that_ends_there_by_maps_of_the_early_rows(
    shift, mask
):
    network = make(EVERYTHING, phases=3, mask=mask)
    linear, inputs = network.experts.linear, make_inputs(EVERYTHING)
    scale = linear.units(inputs, network.scale(inputs))
    known = network.embedding.known_numbers(inputs)
    for leads in (slice(None), [0, 4, 6]):
        (found,) = linear.center(inputs, scale, known, None, [shift], leads).unbind(dim=1)
        for maps in linear.maps:
            maps[ALL], maps[EARLY] = maps[EARLY].clone(), maps[ALL].clone()
        before = replace(
            inputs,
            context=inputs.context[:, :-shift],
            observed=inputs.observed[:, :-shift],
            known_category=inputs.known_category[:, :-shift],
            phase=inputs.phase[:, :-shift],
            elapsed=inputs.elapsed[:, :-shift],
        )
        twin = linear.center(before, scale, known[:, :-shift], None, [0], leads)
        torch.testing.assert_close(found, twin[:, 0])


def test_training_windows_are_forecast_by_the_maps_without_their_block_of_time():
    network, inputs = make(PLAIN), make_inputs(PLAIN)
    linear, scale = network.experts.linear, network.scale(inputs)
    known = network.embedding.known_numbers(inputs)
    maps = [torch.randn(3, *kept.shape[1:]) for kept in linear.maps]
    linear.held_out, linear.step = [HeldOut(begin=100, size=10, maps=maps)], 2.0
    # Of two blocks; the third maps are of all rows: those of times outside.
    time = torch.tensor([99, 105, 116])
    for shift, blocks in ((0, (2, 0, 1)), (5, (2, 2, 0))):
        (found,) = linear.center(inputs, scale, known, time, [shift]).unbind(dim=1)
        for window, block in enumerate(blocks):
            for kept, own in zip(linear.maps, maps, strict=True):
                kept[:] = own[block]
            twin = linear.center(inputs, scale, known, None, [shift])[:, 0]
            rows = slice(2 * window, 2 * window + 2)
            torch.testing.assert_close(found[rows], twin[rows])
