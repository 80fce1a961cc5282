"""Laws of the network, on tiny ones with random weights."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_networks import (
    CONTEXT,
    EVERYTHING,
    EXPERTS,
    HORIZON,
    PLAIN,
    make_inputs,
    make_network,
    one_channel,
    with_other_future,
)

from forecaster.forecast.artifact import shape_of
from forecaster.model.network import Network
from forecaster.windows.store import training_store

IRREGULAR = replace(EVERYTHING, regular=False)
SHAPES = {"plain": PLAIN, "everything": EVERYTHING, "irregular": IRREGULAR}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


@pytest.mark.parametrize("noise", [np.nan, 1e30, "gaussian"])
@pytest.mark.parametrize("channel", [None, 1])
@pytest.mark.parametrize("irregular", [False, True])
@pytest.mark.parametrize("experts", [False, True])
def test_values_after_the_cutoff_change_nothing(
    make_panel, make_plan, noise, channel, irregular, experts
):
    """Targets and past covariates of later rows replaced; only what is known in advance may matter."""
    panel = make_panel(
        2, 40, targets=2, past=1, known=1, categories=True, static=True, irregular=irregular
    )
    plan = make_plan(4, context_length=CONTEXT)
    if experts:
        plan = plan.with_model(pool=EXPERTS)
    network = make_network(shape_of(panel, 4), **plan.model.model_dump())
    cutoff = np.array([25, 66])
    later = np.concatenate([np.arange(26, 40), np.arange(67, 80)])
    values, codes = panel.values.copy(), panel.codes.copy()
    seen = panel.n_channels + len(panel.schema.past_numeric)
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 99, (len(later), seen)) if noise == "gaussian" else noise
    values[later, :seen] = noise
    codes[later, : len(panel.schema.past_category)] = 1
    chosen = None if channel is None else np.full(2, channel)
    forecasts = [
        network(training_store(table, plan).batch(np.arange(2), chosen, cutoff).inputs)
        for table in (panel, replace(panel, values=values, codes=codes))
    ]
    assert forecasts[0].isfinite().all() and torch.equal(*forecasts)


def test_a_full_decoder_mask_lets_earlier_leads_see_later_covariates():
    network = make_network(EVERYTHING, decoder_mask="full")
    inputs = make_inputs(EVERYTHING)
    other = network(with_other_future(inputs, lead=3))
    assert not torch.equal(other[:, :3], network(inputs)[:, :3])


@every_shape
def test_channels_together_are_forecast_as_one_by_one(shape):
    network, inputs = make_network(shape), make_inputs(shape)
    together = network(inputs)
    for channel in range(shape.channels):
        alone = network(one_channel(inputs, channel))
        torch.testing.assert_close(alone[:, :, 0], together[:, :, channel], rtol=1e-5, atol=1e-5)


@every_shape
def test_a_forecast_has_every_lead_channel_and_level_and_its_quantiles_rise(shape):
    forecast = make_network(shape)(make_inputs(shape))
    assert forecast.shape == (3, HORIZON, 2, 9) and forecast.dtype == torch.float64
    assert (forecast.diff(dim=-1) >= 0).all()


@pytest.mark.parametrize("patch", [1, 2, 3, 4, 7, 10])
def test_the_context_may_be_any_length_for_a_patch(patch):
    """What does not fill a patch is padded at the old end: the newest cell is the last of a patch."""
    network, inputs = make_network(EVERYTHING, patch=patch), make_inputs(EVERYTHING)
    forecast = network(inputs)
    assert forecast.isfinite().all()
    assert network.encode(inputs).tokens.shape[1] == -(-CONTEXT // patch)
    newest = inputs.context.clone()
    newest[:, -1] += 5.0
    assert not torch.equal(network(replace(inputs, context=newest)), forecast)


def test_only_the_distance_of_known_numbers_from_their_mean_in_the_context_counts_where_a_plan_says_so():
    """Missing cells stay missing; without a value in the context the mean of training rows is taken away."""
    for less_mean in (True, False):
        network, inputs = make_network(EVERYTHING, known_less_mean=less_mean), make_inputs(EVERYTHING)
        moved = replace(inputs, known=inputs.known + torch.tensor([3.0, -40.0]))
        assert torch.allclose(network(moved), network(inputs), atol=1e-6) == less_mean
    never = inputs.known.clone()
    never[:, :CONTEXT] = torch.nan
    unseen = replace(inputs, known=never, known_observed=~never.isnan())
    network, usual = (
        make_network(EVERYTHING, known_less_mean=less_mean) for less_mean in (True, False)
    )
    assert torch.equal(network(unseen), usual(unseen))


def test_real_gaps_matter_on_an_irregular_panel():
    network, inputs = make_network(IRREGULAR), make_inputs(IRREGULAR)
    stretched = replace(inputs, elapsed=2 * inputs.elapsed)
    assert not torch.equal(network(stretched), network(inputs))


def test_the_unknown_category_adds_nothing():
    """Code 0 is a row of zeros, at the start and after training steps alike."""
    network = make_network(EVERYTHING).requires_grad_(True)
    network.train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.1, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        network(make_inputs(EVERYTHING)).square().mean().backward()
        optimizer.step()
    tables = [module for module in network.modules() if isinstance(module, torch.nn.Embedding)]
    assert len(tables) == 5  # past, two known, static, channel
    for table in tables:
        assert (table.weight[0] == 0).all() and (table.weight[1:] != 0).any()


def test_an_untrained_network_forecasts_the_contexts_own_mean_and_spread():
    torch.manual_seed(0)
    network = Network(make_network(PLAIN).config, PLAIN).eval()
    inputs = make_inputs(PLAIN)
    with torch.no_grad():
        forecast = network(inputs)
    level, loc, scale = network.encode(inputs).scale
    loc = level + loc
    torch.testing.assert_close(forecast[:, 0, :, 4], loc)
    torch.testing.assert_close(forecast[:, -1, :, 8], loc + 1.2815516 * scale)
