"""Attention against a double loop in float64, and against numbers worked by hand."""

import math

import pytest
import torch
from slow_attention import slow_attention

from forecaster.model.kernels import causal_mask, full_attention, scaled_dot_product_attention


def random_parts(seed=0, batch=2, heads=2, queries=4, keys=5, width=3):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, heads, n, width) for n in (queries, keys, keys)]
    parts = [torch.randn(shape, generator=generator) for shape in shapes]
    mask = torch.rand((batch, heads, queries, keys), generator=generator) < 0.5
    return *parts, mask


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("masked", [True, False])
def test_attention_equals_a_double_loop(seed, masked):
    query, key, value, mask = random_parts(seed)
    mixed = scaled_dot_product_attention(query, key, value, mask if masked else None)
    expected = slow_attention(query, key, value, lambda b, a, n, m: not masked or mask[b, a, n, m])
    torch.testing.assert_close(mixed.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (2, 5), (1, 5)])
def test_causal_queries_are_the_last_of_the_tokens(queries, keys, padded):
    query, key, value, mask = random_parts(queries=queries, keys=keys)
    seen = mask[:, 0, 0] if padded else None
    mixed = full_attention(query, key, value, seen, True, 0.0)
    late = keys - queries
    expected = slow_attention(
        query, key, value, lambda b, a, n, m: m <= n + late and (not padded or seen[b, m])
    )
    torch.testing.assert_close(mixed.double(), expected, rtol=1e-5, atol=1e-6)


def test_a_mask_over_keys_alone_holds_for_every_head_and_query():
    query, key, value, mask = random_parts()
    keys_only = mask[:, :1, :1]
    mixed = scaled_dot_product_attention(query, key, value, keys_only)
    spread = keys_only.expand(mask.shape)
    torch.testing.assert_close(mixed, scaled_dot_product_attention(query, key, value, spread))
    torch.testing.assert_close(mixed, full_attention(query, key, value, mask[:, 0, 0], False, 0.0))


def test_three_tokens_worked_by_hand():
    """One head of width 4, so scores are halved; query n meets key m with score 2·ln of the weight.

    Token 0 sees itself alone: its value, 10.
    Token 1 scores (0, 2·ln 3) → halved (0, ln 3) → weights 1 : 3 → (1·10 + 3·20) / 4 = 17.5.
    Token 2 scores (2·ln 2, 0, 2·ln 5) → 2 : 1 : 5 → (2·10 + 1·20 + 5·40) / 8 = 30.
    """
    ln2, ln3, ln5 = math.log(2), math.log(3), math.log(5)
    query = torch.zeros(1, 1, 3, 4)
    query[0, 0, :, :3] = torch.tensor([[9.0, 9, 9], [0, 2 * ln3, 9], [2 * ln2, 0, 2 * ln5]])
    key = torch.eye(4)[None, None, :3]
    value = torch.tensor([10.0, 20, 40])[None, None, :, None].expand(1, 1, 3, 4)
    mask = causal_mask(3, query.device)
    mixed = scaled_dot_product_attention(query, key, value, mask[None, None])
    assert mixed[0, 0, :, 0].tolist() == pytest.approx([10.0, 17.5, 30.0], rel=1e-6)


def test_a_query_with_nothing_to_attend_to_gets_zeros_and_finite_gradients():
    query, key, value, mask = random_parts()
    mask[0, :, 1], mask[1] = False, False
    parts = [part.requires_grad_() for part in (query, key, value)]
    mixed = scaled_dot_product_attention(*parts, mask)
    assert (mixed[0, :, 1] == 0).all() and (mixed[1] == 0).all() and mixed[0, :, 0].abs().sum() > 0
    mixed.square().sum().backward()
    for part in parts:
        assert part.grad.isfinite().all()
        assert (part.grad[1] == 0).all()
    assert (query.grad[0, :, 1] == 0).all()


def test_masked_keys_and_values_change_nothing():
    query, key, value, _ = random_parts()
    mask = torch.tensor([True, False, True, True, False]).expand(1, 1, 1, 5)
    other_key, other_value = key.clone(), value.clone()
    other_key[:, :, [1, 4]], other_value[:, :, [1, 4]] = 1e4, -1e4
    first = scaled_dot_product_attention(query, key, value, mask)
    assert torch.equal(first, scaled_dot_product_attention(query, other_key, other_value, mask))


def test_the_causal_mask_lets_a_token_see_itself_and_what_came_before():
    mask = causal_mask(4, torch.device("cpu"))
    assert mask.tolist() == [[m <= n for m in range(4)] for n in range(4)]
    assert torch.equal(causal_mask(2, torch.device("cpu"), keys=4), mask[2:])
