"""The linear forecast's laws: what it reads, what it does not, and that it scales with its data."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_networks import (
    CONTEXT,
    EVERYTHING,
    PLAIN,
    make_inputs,
    make_network,
    with_linear,
    with_other_future,
    with_targets,
)

from forecaster.model.linear import ALL, EARLY, HeldOut


def make(shape, **settings):
    """A network that is its linear forecast alone, with random maps."""
    linear = with_linear(**{"calendar": True, **settings})
    pool = linear.model_copy(update={"experts": ("linear",)})
    network = make_network(shape, pool=pool)
    network.network_weight.zero_()
    return network


def test_nothing_known_in_advance_is_read():
    network, inputs = make(EVERYTHING), make_inputs(EVERYTHING)
    others = (
        with_other_future(inputs, lead=0),
        replace(inputs, known=inputs.known + 1, known_category=0 * inputs.known_category),
    )
    for other in others:
        assert torch.equal(network(other), network(inputs))


@pytest.mark.parametrize("missing", [0.0, 0.3, 0.9])
def test_what_a_map_reads_is_the_tail_less_its_mean_and_zero_where_nothing_is_observed(missing):
    network, inputs = make(PLAIN), make_inputs(PLAIN, missing=missing)
    scale = network.scale(inputs)
    exogenous = network.experts.linear.exogenous(inputs)[:, 0]
    for number, lookback in enumerate(network.experts.linear.lookbacks):
        features, level = network.experts.linear.features(inputs, scale, exogenous, number)
        for row in range(len(features)):
            window, channel = divmod(row, PLAIN.channels)
            tail = scale.apply(inputs.context)[window, -lookback:, channel].numpy()
            mean = np.nanmean(tail)  # the last cell is always observed
            wanted = np.where(np.isnan(tail), 0, tail - mean)
            np.testing.assert_allclose(level[row], mean, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(features[row, :lookback], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shift", [0, 5])
def test_what_a_map_reads_of_the_calendar_is_three_waves_of_each_cycle_at_the_cutoff(shift):
    network, inputs = make(EVERYTHING), make_inputs(EVERYTHING)
    found = network.experts.linear.exogenous(inputs, [shift])[:, 0]
    angle = 2 * np.pi * inputs.phase[:, CONTEXT - 1 - shift].numpy()[..., None] * np.arange(1, 4)
    wanted = np.concatenate([np.sin(angle), np.cos(angle)], axis=-1).reshape(len(found), -1)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_the_phase_of_a_cutoff_survives_rounding():
    network, inputs = make(PLAIN, phases=24), make_inputs(PLAIN, batch=24)
    phase = torch.from_numpy((np.arange(24) / 24).astype(np.float32))
    inputs = replace(inputs, phase=phase[:, None, None].expand_as(inputs.phase))
    found = network.experts.linear.phase(inputs)[:, 0]
    assert found.tolist() == [hour for hour in range(24) for _ in range(PLAIN.channels)]


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
def test_the_calendar_adds_as_much_in_a_wild_context_only_where_maps_count_in_training_spreads(
    units, grows
):
    network = make(EVERYTHING, units=units)
    if units == "training":
        network.experts.linear.spread.copy_(
            torch.tensor([2.0, 5.0, 7.0])[: len(network.experts.linear.spread)]
        )
    calm = make_inputs(EVERYTHING)
    wild = with_targets(calm, 3 * calm.history)
    added = [
        (network(replace(inputs, phase=1 - inputs.phase)) - network(inputs))[..., 4]
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


@pytest.mark.parametrize("shift", [1, 8])
def test_an_earlier_cutoff_is_forecast_from_the_window_that_ends_there_by_maps_of_the_early_rows(shift):
    network = make(EVERYTHING, phases=3)
    linear, inputs = network.experts.linear, make_inputs(EVERYTHING)
    scale = linear.units(inputs, network.scale(inputs))
    for leads in (slice(None), [0, 4, 6]):
        (found,) = linear.center(inputs, scale, None, [shift], leads).unbind(dim=1)
        for maps in linear.maps:
            maps[ALL], maps[EARLY] = maps[EARLY].clone(), maps[ALL].clone()
        before = replace(
            inputs,
            context=inputs.context[:, :-shift],
            observed=inputs.observed[:, :-shift],
            phase=inputs.phase[:, :-shift],
            elapsed=inputs.elapsed[:, :-shift],
        )
        twin = linear.center(before, scale, None, [0], leads)
        torch.testing.assert_close(found, twin[:, 0])


def test_training_windows_are_forecast_by_the_maps_without_their_block_of_time():
    network, inputs = make(PLAIN), make_inputs(PLAIN)
    linear, scale = network.experts.linear, network.scale(inputs)
    maps = [torch.randn(3, *kept.shape[1:]) for kept in linear.maps]
    linear.held_out, linear.step = [HeldOut(begin=100, size=10, maps=maps)], 2.0
    # Of two blocks; the third maps are of all rows: those of times outside.
    time = torch.tensor([99, 105, 116])
    for shift, blocks in ((0, (2, 0, 1)), (5, (2, 2, 0))):
        (found,) = linear.center(inputs, scale, time, [shift]).unbind(dim=1)
        for window, block in enumerate(blocks):
            for kept, own in zip(linear.maps, maps, strict=True):
                kept[:] = own[block]
            twin = linear.center(inputs, scale, None, [shift])[:, 0]
            rows = slice(2 * window, 2 * window + 2)
            torch.testing.assert_close(found[rows], twin[rows])
