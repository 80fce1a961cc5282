"""Layers against torch.nn's own, and by their definitions."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from forecaster.config import ModelConfig
from forecaster.model.layers import (
    ChannelAttention,
    ConvStem,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    Memory,
    Residual,
    make_norm,
)
from forecaster.model.scaling import Scale


def make_config(**settings):
    return ModelConfig(**({"width": 8, "heads": 2, "dropout": 0.0} | settings))


def copy_attention(theirs, ours):
    """Copies our projections into one of torch.nn.MultiheadAttention."""
    theirs.in_proj_weight.data = torch.cat([ours.query.weight, ours.key.weight, ours.value.weight])
    theirs.in_proj_bias.data = torch.cat([ours.query.bias, ours.key.bias, ours.value.bias])
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def make_memory(batch, length, width, seen=None):
    tokens = torch.randn(batch, length, width)
    seen = torch.ones(batch, length, dtype=torch.bool) if seen is None else seen
    one = torch.ones(batch, 1)
    return Memory(tokens, seen, None, torch.zeros(batch, 1, width), Scale(one, one))


@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("norm_first", [True, False])
def test_an_encoder_layer_is_torchs_with_the_same_weights(norm_first, activation):
    torch.manual_seed(0)
    ours = EncoderLayer(make_config(norm_first=norm_first, activation=activation), 1, 5)
    theirs = nn.TransformerEncoderLayer(
        8, 2, 12, 0.0, activation, batch_first=True, norm_first=norm_first
    )
    copy_attention(theirs.self_attn, ours.attention)
    theirs.norm1.load_state_dict(ours.attention_norm.state_dict())
    theirs.norm2.load_state_dict(ours.feed_forward_norm.state_dict())
    theirs.linear1.load_state_dict(ours.feed_forward.expand.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.contract.state_dict())
    tokens, seen = torch.randn(3, 5, 8), torch.tensor([[1, 1, 0, 1, 1]]).bool().expand(3, -1)
    expected = theirs(tokens, src_key_padding_mask=~seen)
    torch.testing.assert_close(ours(tokens, seen), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_decoder_layer_is_torchs_with_the_same_weights(norm_first):
    torch.manual_seed(0)
    ours = DecoderLayer(make_config(norm_first=norm_first, activation="relu"), 2, 4, 5)
    theirs = nn.TransformerDecoderLayer(8, 2, 12, 0.0, batch_first=True, norm_first=norm_first)
    copy_attention(theirs.self_attn, ours.attention)
    copy_attention(theirs.multihead_attn, ours.cross)
    norms = (ours.attention_norm, ours.cross_norm, ours.feed_forward_norm)
    for norm, own in zip((theirs.norm1, theirs.norm2, theirs.norm3), norms, strict=True):
        norm.load_state_dict(own.state_dict())
    theirs.linear1.load_state_dict(ours.feed_forward.expand.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.contract.state_dict())
    seen = torch.tensor([[0, 1, 1, 1, 1]]).bool().expand(3, -1)
    tokens, memory = torch.randn(3, 4, 8), make_memory(3, 5, 8, seen)
    later = torch.ones(4, 4, dtype=torch.bool).triu(1)
    expected = theirs(tokens, memory.tokens, tgt_mask=later, memory_key_padding_mask=~seen)
    found = ours(tokens, memory, causal=True, shown=torch.ones(3, 4, dtype=torch.bool))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_swiglu_gates_the_hidden_numbers():
    torch.manual_seed(0)
    layer, tokens = FeedForward(make_config(activation="swiglu")), torch.randn(2, 3, 8)
    gate = layer.gate(tokens)
    hidden = gate / (1 + torch.exp(-gate)) * layer.expand(tokens)
    torch.testing.assert_close(layer(tokens), layer.contract(hidden))


def test_rms_norm_divides_by_the_root_of_the_mean_square_and_takes_no_mean_away():
    tokens = torch.randn(2, 3, 8) + 5
    expected = tokens / tokens.square().mean(dim=-1, keepdim=True).sqrt()
    torch.testing.assert_close(make_norm(make_config(normalization="rms"))(tokens), expected)
    assert isinstance(make_norm(make_config()), nn.LayerNorm)


def test_stochastic_depth_rises_linearly_and_is_off_outside_training():
    config = make_config(stochastic_depth=0.6, encoder_layers=2, decoder_layers=1)
    assert [Residual(config, layer).skip for layer in (1, 2, 3)] == pytest.approx([0.2, 0.4, 0.6])
    torch.manual_seed(0)
    residual, tokens = Residual(config, 3), torch.randn(2000, 1, 8)
    made = residual(tokens, nn.Identity(), torch.ones_like) - tokens
    left_out = (made.abs() < 1e-6).all(dim=-1)
    assert left_out.float().mean().item() == pytest.approx(0.6, abs=0.04)
    torch.testing.assert_close(made[~left_out], torch.full_like(made[~left_out], 1 / 0.4))
    residual.eval()
    assert torch.equal(residual(tokens, nn.Identity(), torch.ones_like), tokens + 1)


def test_channels_attend_to_each_other_at_the_same_token_alone():
    """Twin: each token of each window by itself, its channels a little sequence of their own."""
    torch.manual_seed(0)
    layer = ChannelAttention(make_config())
    tokens, seen = torch.randn(2 * 3, 4, 8), torch.rand(2 * 3, 4) < 0.6
    seen[:3, 1] = False  # nobody is there
    found = layer(tokens, seen, channels=3)
    for window in range(2):
        rows = slice(3 * window, 3 * window + 3)
        for n in range(4):
            beside = tokens[rows, n][None]
            expected = layer.attention(beside, beside, seen[rows, n][None])[0]
            torch.testing.assert_close(found[rows, n], expected, rtol=1e-5, atol=1e-6)


def test_a_stem_joins_each_token_with_those_before_it_and_skips_what_was_not_seen():
    torch.manual_seed(0)
    stem, tokens = ConvStem(make_config(), kernel=3), torch.randn(2, 5, 8)
    seen = torch.rand(2, 5) < 0.7
    found = stem(tokens, seen)
    for b in range(2):
        for n in range(5):
            along = stem.along.bias.clone()
            for k in range(3):
                m = n - 2 + k
                if m >= 0 and seen[b, m]:
                    along += stem.along.weight[:, k] * tokens[b, m]
            expected = tokens[b, n] + stem.across(F.gelu(along))
            torch.testing.assert_close(found[b, n], expected, rtol=1e-5, atol=1e-6)
