"""A decoder that is told its own values: caches, paths, and what makes them the same again."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_networks import (
    CONTEXT,
    EVERYTHING,
    HORIZON,
    PLAIN,
    greedy,
    make_inputs,
    make_network,
    mode,
    rows_of,
)

from forecaster.model.embedding import Shape, previous_values
from forecaster.model.sampling import prediction_from_paths, uniforms

SHAPES = {"everything": EVERYTHING, "irregular": replace(EVERYTHING, regular=False)}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
VARIANTS = {
    "per step": {"decoder_patch": 1},
    "two layers": {"decoder_layers": 2},
    "published": {
        "positions": "sinusoidal",
        "style": "vaswani2017",
        "decoder_patch": 1,
        "patch": 1,
    },
    "learned positions": {"positions": "learned"},
    "channels": {"channel_attention": True, "decoder_patch": 2},
    "student_t": {"head": "student_t"},
    "words": {"head": "binned", "patch": 1, "decoder_patch": 1},
}
every_variant = pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
PATHS = 5


def follower(shape, **settings):
    """A network with an autoregressive decoder."""
    return make_network(shape, decoder="autoregressive", **settings)


def keys(count):
    return torch.arange(100, 100 + count)


def drawn_in_one_pass(network, inputs, paths):
    """What the same random numbers make of teacher forcing on the values of each path."""
    memory, found = network.encode(inputs), []
    horizon, channels = paths.shape[2:]
    for number in range(paths.shape[1]):
        previous = previous_values(inputs, paths[:, number], network.config.decoder_patch)
        raw = network.decode(memory, inputs, previous)
        numbers = uniforms(keys(len(paths)), PATHS, 1, horizon, channels)[:, number]
        found.append(network.head.sample(raw, memory.scale, numbers))
    return torch.stack(found, dim=1)


@every_variant
@every_shape
def test_writing_with_a_cache_is_teacher_forcing_on_what_was_written(shape, settings):
    network, inputs = follower(shape, **settings), make_inputs(shape)
    paths = network.predict(inputs, keys(3), PATHS).paths
    assert paths.shape == (3, PATHS, HORIZON, 2) and paths.isfinite().all()
    expected = drawn_in_one_pass(network, inputs, paths)
    torch.testing.assert_close(paths, expected, rtol=1e-5, atol=1e-4)


@every_variant
def test_writing_with_a_cache_is_reading_all_that_was_written_again_each_time(settings):
    """The slow twin: before each patch everything so far is decoded anew."""
    network, inputs = follower(EVERYTHING, **settings), make_inputs(EVERYTHING)
    memory, size = network.encode(inputs), network.config.decoder_patch
    written = inputs.context.new_full((3, HORIZON, 2), torch.nan)
    for start in range(0, HORIZON, size):
        raw = network.decode(memory, inputs, previous_values(inputs, written, size))
        written[:, start : start + size] = mode(network, raw, memory.scale)[:, start : start + size]
    torch.testing.assert_close(greedy(network, inputs), written, rtol=1e-5, atol=1e-4)


@every_variant
def test_a_path_is_the_same_whatever_the_batch_and_its_order(settings):
    network, inputs = follower(EVERYTHING, **settings), make_inputs(EVERYTHING, batch=5)
    paths = network.predict(inputs, keys(5), PATHS).paths
    for rows in ([3], [4, 0], [1, 2, 3, 4, 0]):
        alone = network.predict(rows_of(inputs, rows), keys(5)[rows], PATHS).paths
        torch.testing.assert_close(alone, paths[rows], rtol=1e-5, atol=1e-4)


def test_more_paths_begin_with_the_same_ones_and_another_key_gives_others():
    network, inputs = follower(PLAIN), make_inputs(PLAIN)
    few, more = (network.predict(inputs, keys(3), count).paths for count in (3, 8))
    torch.testing.assert_close(more[:, :3], few, rtol=1e-5, atol=1e-5)
    assert not torch.isclose(network.predict(inputs, keys(3) + 1, PATHS).paths, more[:, :PATHS]).any()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_patch_ignores_everything_after_it(size):
    network, inputs = follower(EVERYTHING, decoder_patch=size), make_inputs(EVERYTHING)
    paths = network.predict(inputs, keys(3), PATHS).paths
    for patch in range(1, -(-HORIZON // size)):
        known = inputs.known.clone()
        known[:, CONTEXT + patch * size :] = 50.0
        other = replace(inputs, known=known, known_observed=~known.isnan())
        other = network.predict(other, keys(3), PATHS)
        assert torch.equal(other.paths[:, :, : patch * size], paths[:, :, : patch * size])
        assert not torch.equal(other.paths[:, :, patch * size :], paths[:, :, patch * size :])


def test_a_token_is_told_of_the_patch_before_it_alone():
    """Of previous values in teacher forcing, those after a lead's own patch change nothing."""
    network, inputs = follower(PLAIN), make_inputs(PLAIN)
    memory = network.encode(inputs)
    target = 20 + 3 * torch.randn(3, HORIZON, 2)
    raw = network.decode(memory, inputs, previous_values(inputs, target, 3))
    for first in range(HORIZON):
        other = target.clone()
        other[:, first:] += 5.0
        changed = network.decode(memory, inputs, previous_values(inputs, other, 3))
        after = 3 * (first // 3 + 1)
        assert torch.equal(changed[:, :after], raw[:, :after])
        assert after > HORIZON - 1 or not torch.equal(changed[:, after:], raw[:, after:])


def test_what_comes_before_a_patch_by_hand():
    """Patches of 3 and a horizon of 4: the last three of the context, then the first three ahead."""
    inputs = make_inputs(PLAIN, batch=1)
    inputs.context[0, -3:, 0] = torch.tensor([7.0, 8.0, 9.0])
    hidden = inputs.observed.clone()
    hidden[0, -3:, 0] = torch.tensor([True, False, True])
    target = torch.tensor([[1.0, torch.nan, 3.0, 4.0]])[..., None].expand(-1, -1, 2)
    found = previous_values(replace(inputs, observed=hidden), target, 3)[0, :, 0]
    assert found.tolist() == pytest.approx([7, torch.nan, 9, 1, torch.nan, 3], nan_ok=True)
    assert previous_values(inputs, target[:, :0], CONTEXT + 2).shape == (1, CONTEXT + 2, 2)
    assert previous_values(inputs, target[:, :0], CONTEXT + 2)[:, :2].isnan().all()


@pytest.mark.parametrize("settings", [{}, VARIANTS["words"]], ids=["numbers", "words"])
def test_a_missing_previous_value_is_a_learned_token(settings):
    network, inputs = follower(PLAIN, **settings), make_inputs(PLAIN)
    network.requires_grad_(True)
    memory = network.encode(inputs)
    missing = torch.full((3, HORIZON, 2), torch.nan)
    previous = previous_values(inputs, missing, network.config.decoder_patch)
    network.decode(memory, inputs, previous)[:, 3:].square().sum().backward()
    if network.embedding.values is None:
        assert network.embedding.previous_patch.bias.grad.abs().sum() > 0
    else:
        assert network.embedding.values.weight.grad[-1].abs().sum() > 0


def test_quantiles_and_mean_are_those_of_the_paths():
    paths = torch.randn(2, 37, 4, 3)
    levels = (0.01, 0.1, 0.5, 0.77, 0.99)
    found = prediction_from_paths(paths, levels)
    expected = np.quantile(paths.numpy(), levels, axis=1).transpose(1, 2, 3, 0)
    np.testing.assert_allclose(found.quantiles, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.mean, paths.numpy().mean(axis=1), rtol=1e-5, atol=1e-6)
    network, inputs = follower(PLAIN), make_inputs(PLAIN)
    said = network.predict(inputs, keys(3), PATHS)
    assert torch.equal(
        said.quantiles, prediction_from_paths(said.paths, network.config.quantile_levels).quantiles
    )
    assert torch.equal(network(inputs, keys(3)), network.predict(inputs, keys(3), 100).quantiles)


@pytest.mark.parametrize(("a", "b"), [(3.0, 0.0), (0.01, 5.0), (1000.0, -40000.0)])
@pytest.mark.parametrize("head", ["quantile", "student_t"])
def test_scaled_and_shifted_targets_scale_and_shift_the_forecast(a, b, head):
    network = follower(EVERYTHING, head=head)
    inputs = make_inputs(EVERYTHING)
    moved = replace(inputs, context=a * inputs.context + b)
    scale = a * network.encode(inputs).scale.scale[:, None, :, None]
    said, other = network.predict(inputs, keys(3), PATHS), network.predict(moved, keys(3), PATHS)
    assert ((other.quantiles - (a * said.quantiles + b)).abs() <= 1e-4 * scale).all()
    if said.mean is not None:
        assert ((other.mean - (a * said.mean + b)).abs() <= 1e-4 * scale[..., 0]).all()


def test_a_horizon_beyond_the_trained_one_continues_the_paths():
    """Three horizons of decoder patches of one step: the first is the trained one's."""
    network = follower(Shape(horizon=HORIZON, channels=2), decoder_patch=1)
    longer = make_inputs(Shape(horizon=3 * HORIZON, channels=2))
    short = replace(
        longer,
        **{
            name: getattr(longer, name)[:, : CONTEXT + HORIZON]
            for name in ("known", "known_observed", "known_category", "phase", "elapsed")
        },
    )
    paths = network.predict(longer, keys(3), PATHS).paths
    assert paths.shape == (3, PATHS, 3 * HORIZON, 2) and paths.isfinite().all()
    begun = network.predict(short, keys(3), PATHS).paths
    torch.testing.assert_close(paths[:, :, :HORIZON], begun, rtol=1e-5, atol=1e-5)


def ar1_network(phi):
    """A decoder that says N(φ·previous, 1), scaled units: no layers, no positions, weights by hand."""
    network = follower(Shape(horizon=7, channels=1), decoder_patch=1)
    network.decoder, network.decoder_norm = torch.nn.ModuleList(), torch.nn.Identity()
    embedding = network.embedding
    embedding.time.forward = lambda elapsed, phase, first: elapsed.new_zeros((*elapsed.shape, 8))
    for weight in (*embedding.previous_patch.parameters(), network.output.weight):
        weight.zero_()
    embedding.previous_patch.weight[0, 0] = 1.0  # the token's first number is the previous value
    network.output.weight[network.head.median, 0] = phi
    network.output.bias.copy_(network.head.initial_bias())
    return network


def test_weekly_sums_of_an_ar1_process_have_its_mean_and_variance():
    """y[h] = 0.8·y[h−1] + ε: the sum of 7 has variance Σ ((1 − 0.8^k) / 0.2)², k = 1 … 7.

    Its lead-by-lead variances alone, taken as independent, would give less than a third of that.
    """
    phi, count = 0.8, 40_000
    network = ar1_network(phi)
    inputs = make_inputs(Shape(horizon=7, channels=1), batch=1, missing=0.0)
    context = torch.tensor([1.0, -1.0]).repeat(CONTEXT // 2)[
        None, :, None
    ]  # of mean 0 and spread 1; ends at −1
    inputs = replace(inputs, context=context, observed=torch.ones_like(context, dtype=torch.bool))
    paths = network.predict(inputs, keys(1), count).paths[0, :, :, 0]
    sums = paths.sum(dim=1)
    weights = (1 - phi ** torch.arange(1, 8)) / (1 - phi)
    assert sums.var().item() == pytest.approx(weights.square().sum().item(), rel=0.03)
    assert sums.mean().item() == pytest.approx(-sum(phi**k for k in range(1, 8)), abs=0.2)
    lead = torch.tensor([sum(phi ** (2 * k) for k in range(h)) for h in range(1, 8)]).double()
    torch.testing.assert_close(paths.var(dim=0), lead, rtol=0.04, atol=0.0)
    assert lead.sum() < 0.34 * weights.square().sum()


def test_random_numbers_are_even_independent_and_strictly_inside():
    numbers = uniforms(torch.tensor([0, 1, -(2**63), 2**63 - 1]), 50, 1, 20, 3)
    assert numbers.shape == (4, 50, 20, 3, 2) and numbers.dtype == torch.float64
    assert numbers.min() > 0 and numbers.max() < 1 and len(numbers.unique()) == numbers.numel()
    counts = np.histogram(numbers.numpy().ravel(), bins=20, range=(0, 1))[0]
    expected = numbers.numel() / 20
    assert ((counts - expected) ** 2 / expected).sum() < 43.8  # chi-squared, 19 degrees, 0.999
    for axis in range(5):
        one, two = numbers.transpose(0, axis)[:-1].flatten(), numbers.transpose(0, axis)[1:].flatten()
        assert abs(np.corrcoef(one, two)[0, 1]) < 4 / len(one) ** 0.5


def test_random_numbers_are_a_function_of_key_path_lead_and_channel():
    whole = uniforms(torch.tensor([5, 6]), 8, 1, 12, 2)
    part = uniforms(torch.tensor([6]), 3, 5, 4, 2)
    assert torch.equal(part[0], whole[1, :3, 4:8])
