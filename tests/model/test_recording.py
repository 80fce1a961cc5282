"""Recorded attention is what the network works with, for every kind."""

import pytest
import torch
from model.small_networks import CONTEXT, EVERYTHING, HORIZON, PLAIN, make_inputs, make_network

from forecaster.model.attention import MultiHeadAttention
from forecaster.model.kernels import causal_attention, make_kernel
from forecaster.model.recording import record_attention

KINDS = {"full": None, "causal": None, "local": 3, "sparse": 1, "low_rank": 5}
"""Sizes of the kernels."""
TOKENS = 13


def attention(kind):
    torch.manual_seed(0)
    kernel = causal_attention if kind == "causal" else make_kernel(kind, KINDS[kind], TOKENS)
    module = MultiHeadAttention(8, 2, kernel)
    tokens = torch.randn(3, TOKENS, 8)
    seen = torch.rand(3, TOKENS) > 0.3
    seen[0], seen[1, 0] = True, True
    return module.eval().requires_grad_(False), tokens, seen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("masked", [False, True])
def test_weights_times_values_projected_are_the_output(kind, masked):
    module, tokens, seen = attention(kind)
    seen = seen if masked and kind != "causal" else None
    weights = module.weights(tokens, tokens, seen)
    assert weights.shape == (3, 2, TOKENS, TOKENS)
    values = module.value(tokens).unflatten(-1, (2, 4)).transpose(1, 2)
    mixed = module.output((weights @ values).transpose(1, 2).flatten(2))
    expected = module(tokens, tokens, seen)
    torch.testing.assert_close(mixed, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["full", "causal", "local"])
def test_weights_are_the_softmax_over_allowed_keys_and_nothing_elsewhere(kind):
    module, tokens, seen = attention(kind)
    gap = torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)
    allowed = {"full": gap < TOKENS, "causal": gap >= 0, "local": gap.abs() <= 3}[kind][None, None]
    if kind != "causal":
        allowed = allowed & seen[:, None, None]
    found = module.weights(tokens, tokens, None if kind == "causal" else seen)
    query, (key, _) = module.queries(tokens), module.keys_and_values(tokens)
    scores = (query.double() @ key.double().transpose(-1, -2)) / 2.0  # √4
    expected = scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1).nan_to_num()
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
    assert (found.masked_select(~allowed.expand_as(found)) == 0).all()


def test_recording_leaves_forecast_and_network_as_they_are():
    network, inputs = make_network(EVERYTHING, channel_attention=True), make_inputs(EVERYTHING)
    before = network(inputs)
    records = record_attention(network, inputs)
    assert torch.equal(network(inputs), before)
    assert not any(module._forward_pre_hooks for module in network.modules())
    parts = ["encoder", "encoder channels", "decoder", "decoder channels", "cross"]
    assert [one.part for one in records] == parts and {one.layer for one in records} == {1}
    among, ahead = -(-CONTEXT // 4), -(-HORIZON // 3)
    channels, horizon_channels = 2 + 4 + 2, 2 + 4  # targets, known, past
    assert [tuple(one.weights.shape) for one in records] == [
        (3 * channels, 2, among, among),
        (3 * among, 2, channels, channels),
        (3 * horizon_channels, 2, ahead, ahead),
        (3 * ahead, 2, horizon_channels, horizon_channels),
        (3 * horizon_channels, 2, ahead, among),
    ]


@pytest.mark.parametrize("decoder", ["direct", "autoregressive"])
def test_no_token_of_a_causal_decoder_takes_from_a_later_one(decoder):
    network, inputs = make_network(PLAIN, decoder=decoder), make_inputs(PLAIN)
    forecast = None if decoder == "direct" else torch.full((3, HORIZON, 2), 20.0)
    (own,) = [one for one in record_attention(network, inputs, forecast) if one.part == "decoder"]
    assert (own.weights.triu(1) == 0).all()
    torch.testing.assert_close(own.weights.sum(dim=-1), torch.ones(own.weights.shape[:-1]))
