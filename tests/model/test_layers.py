"""Layers against torch.nn's own, and by their definitions."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from forecaster.config import ModelPlan
from forecaster.model.attention import Memory, MultiHeadAttention
from forecaster.model.layers import (
    ConvStem,
    DecoderLayer,
    Dropout,
    EncoderLayer,
    attend_across_channels,
)
from forecaster.model.scaling import Scale


def make_config(**settings):
    small = {"width": 8, "heads": 2, "dropout": 0.0}
    small |= {"context_length": 5, "patch": 1, "decoder_patch": 1}
    return ModelPlan(**small | settings)


def copy_attention(theirs, ours):
    """Copies our projections into one of torch.nn.MultiheadAttention."""
    theirs.in_proj_weight.data = torch.cat([ours.query.weight, ours.key.weight, ours.value.weight])
    theirs.in_proj_bias.data = torch.cat([ours.query.bias, ours.key.bias, ours.value.bias])
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def make_memory(batch, length, width, seen=None):
    tokens = torch.randn(batch, length, width)
    seen = torch.ones(batch, length, dtype=torch.bool) if seen is None else seen
    one = torch.ones(batch, 1)
    return Memory(tokens, seen, torch.zeros(batch, 1, width), Scale(one, one, one))


STYLES = {
    "modern": (16, 0.0, F.gelu, 1e-5, True, True),
    "vaswani2017": (32, 0.0, F.relu, 1e-5, True, False),
}
"""Feed-forward size, dropout, activation, epsilon, batch first and norm first of torch's layers."""
every_style = pytest.mark.parametrize("style", STYLES)


@every_style
def test_an_encoder_layer_is_torchs_with_the_same_weights(style):
    torch.manual_seed(0)
    ours = EncoderLayer(make_config(style=style), 5)
    theirs = nn.TransformerEncoderLayer(8, 2, *STYLES[style])
    copy_attention(theirs.self_attn, ours.attention)
    theirs.norm1.load_state_dict(ours.attention_norm.state_dict())
    theirs.norm2.load_state_dict(ours.feed_forward_norm.state_dict())
    theirs.linear1.load_state_dict(ours.feed_forward.expand.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.contract.state_dict())
    tokens, seen = torch.randn(3, 5, 8), torch.tensor([[1, 1, 0, 1, 1]]).bool().expand(3, -1)
    expected = theirs(tokens, src_key_padding_mask=~seen)
    torch.testing.assert_close(ours(tokens, seen), expected, rtol=1e-5, atol=1e-5)


@every_style
def test_a_decoder_layer_is_torchs_with_the_same_weights(style):
    torch.manual_seed(0)
    ours = DecoderLayer(make_config(style=style))
    theirs = nn.TransformerDecoderLayer(8, 2, *STYLES[style])
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
    found = ours(tokens, memory, shown=torch.ones(3, 4, dtype=torch.bool))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_channels_attend_to_each_other_at_the_same_token_alone():
    """Twin: each token of each window by itself, its channels a little sequence of their own."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(8, 2)
    tokens, seen = torch.randn(2 * 3, 4, 8), torch.rand(2 * 3, 4) < 0.6
    seen[:3, 1] = False  # nobody is there
    found = attend_across_channels(attention, tokens, seen, 3)
    for window in range(2):
        rows = slice(3 * window, 3 * window + 3)
        for n in range(4):
            beside = tokens[rows, n][None]
            expected = attention(beside, beside, seen[rows, n][None])[0]
            torch.testing.assert_close(found[rows, n], expected, rtol=1e-5, atol=1e-6)


def test_a_stem_joins_each_token_with_those_before_it_and_skips_what_was_not_seen():
    torch.manual_seed(0)
    stem, tokens = ConvStem(8, kernel=3), torch.randn(2, 5, 8)
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


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5, 0.9])
def test_the_share_that_is_0_is_the_rate_and_the_mean_stays(rate):
    torch.manual_seed(0)
    out = Dropout(rate)(torch.ones(300, 1000))
    dropped = (out == 0).double()
    spread = (rate * (1 - rate)) ** 0.5
    assert abs(dropped.mean() - rate) < 4 * spread / 300_000**0.5 + 1 / 65_536
    # No place is taken more often than others: not in any row, column, or turn of four.
    assert (dropped.mean(0) - rate).abs().max() < 5 * spread / 300**0.5
    assert (dropped.mean(1) - rate).abs().max() < 5 * spread / 1000**0.5
    turns = dropped.flatten().view(-1, 4).mean(0)
    assert (turns - rate).abs().max() < 5 * spread / 75_000**0.5
    torch.testing.assert_close(
        out[out != 0].unique(), torch.tensor([1 / (1 - rate)]), rtol=1e-3, atol=0
    )
    assert abs(out.mean() - 1) < 4 * spread / (1 - rate) / 300_000**0.5 + 1e-4


def test_neighbours_are_dropped_independently():
    torch.manual_seed(0)
    dropped = (Dropout(0.3)(torch.ones(400_000)) == 0).double() - 0.3
    for lag in (1, 2, 3, 4, 8):
        together = (dropped[lag:] * dropped[:-lag]).mean() / 0.21
        assert abs(together) < 5 / 400_000**0.5


def test_the_same_seed_drops_the_same_and_the_kind_of_number_stays():
    drop = Dropout(0.2)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        values = torch.ones(1001, dtype=dtype)
        torch.manual_seed(3)
        once = drop(values)
        torch.manual_seed(3)
        assert torch.equal(once, drop(values))
        assert once.dtype == dtype
