"""The network's laws hold for every kind of attention, position, norm and with channel attention."""

from dataclasses import replace

import pytest
import torch
from small_networks import (
    CONTEXT,
    EVERYTHING,
    HORIZON,
    PLAIN,
    make_inputs,
    make_network,
    one_channel,
    rows_of,
    with_linear,
    with_other_future,
    with_targets,
)

TOGETHER = {"channel_attention": True}
VARIANTS = {
    "default": {"patch": 4},
    "local": {"attention": "local", "attention_size": 1},
    "sparse": {"attention": "sparse", "attention_size": 1},
    "low_rank": {"attention": "low_rank", "attention_size": 2},
    "sinusoidal": {"positions": "sinusoidal"},
    "learned": {"positions": "learned"},
    "vaswani2017": {"style": "vaswani2017"},
    "convolution": {"conv_kernel": 2},
    "experts": {"pool": with_linear(phases=3)},
    "calendar": {"pool": with_linear(calendar=True), "attention_length": 5},
    "linear units": {"pool": with_linear(units=2)},
    "channels": {**TOGETHER, "conv_kernel": 3},
    "channels, sparse": {**TOGETHER, "attention": "sparse", "attention_size": 1},
}
IRREGULAR = replace(EVERYTHING, regular=False)
SHAPES = {"everything": EVERYTHING, "irregular": IRREGULAR}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
every_variant = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)


def make(shape, variant, **settings):
    """Small enough patches that every kind has something to leave out."""
    return make_network(shape, **{"patch": 1, "decoder_patch": 1, **variant, **settings})


@pytest.mark.parametrize("size", [1, 3])
@every_shape
@every_variant
def test_a_decoder_patch_ignores_everything_after_it(variant, shape, size):
    network, inputs = make(shape, variant, decoder_patch=size), make_inputs(shape)
    forecast = network(inputs)
    for patch in range(1, -(-HORIZON // size)):
        other = network(with_other_future(inputs, lead=patch * size))
        torch.testing.assert_close(other[:, : patch * size], forecast[:, : patch * size])
        assert not torch.equal(other[:, patch * size :], forecast[:, patch * size :])


@pytest.mark.parametrize("noise", [1e30, float("nan")])
@every_shape
@every_variant
def test_what_an_unobserved_cell_holds_changes_nothing(variant, shape, noise):
    network, inputs = make(shape, variant), make_inputs(shape, missing=0.4)
    marks = {name: f"{name}_observed" for name in ("past", "known", "history")}
    marks["context"] = "observed"
    other = {
        name: torch.where(getattr(inputs, mark), getattr(inputs, name), noise)
        for name, mark in marks.items()
    }
    assert torch.equal(network(replace(inputs, **other)), network(inputs))


@pytest.mark.parametrize(("a", "b"), [(0.01, 5.0), (1000.0, -40000.0)])
@every_variant
def test_scaled_and_shifted_targets_scale_and_shift_the_forecast(variant, a, b):
    network, inputs = make(EVERYTHING, variant), make_inputs(EVERYTHING)
    moved = network(with_targets(inputs, a * inputs.history + b))
    scale = a * network.encode(inputs).scale.scale[:, None, :, None]
    assert ((moved - (a * network(inputs) + b)).abs() <= 1e-4 * scale).all()


@every_shape
@every_variant
def test_the_size_of_a_batch_does_not_matter(variant, shape):
    network, inputs = make(shape, variant), make_inputs(shape, batch=5)
    together = network(inputs)
    for rows in (slice(0, 1), slice(1, 3), slice(3, 5)):
        alone = network(rows_of(inputs, rows))
        torch.testing.assert_close(alone, together[rows], rtol=1e-5, atol=1e-5)


@every_shape
@every_variant
def test_a_context_without_any_observation_gives_a_finite_forecast_and_gradients(variant, shape):
    network, inputs = make(shape, variant).train().requires_grad_(True), make_inputs(shape)
    history = inputs.history.clone()
    history[0], history[1, :-CONTEXT], history[2, -CONTEXT:] = torch.nan, torch.nan, torch.nan
    forecast = network(with_targets(inputs, history))
    assert forecast.isfinite().all() and (forecast.diff(dim=-1) >= 0).all()
    forecast.square().mean().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


@every_variant
def test_every_weight_of_a_variant_learns(variant):
    network = make(EVERYTHING, variant).train().requires_grad_(True)
    network(make_inputs(EVERYTHING)).square().mean().backward()
    idle = {name for name, p in network.named_parameters() if p.grad is None or not p.grad.any()}
    # A key's bias moves all scores of a query alike, which a softmax does not see.
    idle = {name for name in idle if not name.endswith("key.bias")}
    # Attention over experts has weights of its own, of which some are for methods that are not in the pool.
    assert {name for name in idle if not name.startswith("experts.attention.")} == set()


@pytest.mark.parametrize("decoder_mask", ["causal", "full"])
@pytest.mark.parametrize("shape", [PLAIN, EVERYTHING], ids=["plain", "everything"])
def test_channels_permuted_with_their_codes_permute_the_forecast(shape, decoder_mask):
    shape = replace(shape, channels=3)
    network, inputs = make(shape, TOGETHER, decoder_mask=decoder_mask), make_inputs(shape)
    order = [2, 0, 1]
    moved = replace(
        inputs,
        context=inputs.context[..., order],
        observed=inputs.observed[..., order],
        channel=inputs.channel[:, order],
    )
    forecast = network(inputs)
    torch.testing.assert_close(network(moved), forecast[:, :, order], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(forecast[:, :, 0], forecast[:, :, 1])


@pytest.mark.parametrize(("together", "matters"), [(True, True), (False, False)])
def test_a_channel_sees_the_others_with_channel_attention_alone(together, matters):
    network = make(PLAIN, {"channel_attention": together})
    inputs = make_inputs(PLAIN)
    context = inputs.context.clone()
    context[:, -1, 0] += 5
    other, forecast = network(replace(inputs, context=context)), network(inputs)
    assert torch.equal(other[:, :, 1], forecast[:, :, 1]) is not matters


def test_a_channel_that_was_never_observed_changes_nothing_for_the_others():
    network, inputs = make(EVERYTHING, TOGETHER), make_inputs(EVERYTHING)
    observed = inputs.observed.clone()
    observed[..., 1] = False
    masked = network(replace(inputs, observed=observed))
    left = network(one_channel(inputs, 0))
    torch.testing.assert_close(masked[:, :, :1], left, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["past", "past_category", "known", "known_category"])
@pytest.mark.parametrize("step", [CONTEXT - 1, CONTEXT + 2])
def test_with_channel_attention_every_covariate_matters_and_so_does_its_future(name, step):
    network, inputs = make(EVERYTHING, TOGETHER), make_inputs(EVERYTHING, missing=0.0)
    cells = getattr(inputs, name).clone()
    if step >= cells.shape[1]:
        return  # what is seen up to the cutoff has no future
    codes = name.endswith("category")
    cells[:, step] = 1 + cells[:, step] % 2 if codes else cells[:, step] + 3
    other, forecast = network(replace(inputs, **{name: cells})), network(inputs)
    lead = max(0, step - CONTEXT)
    assert torch.equal(other[:, :lead], forecast[:, :lead])
    assert not torch.equal(other[:, lead], forecast[:, lead])
