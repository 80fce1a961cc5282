"""Every kind of attention against a double loop in float64; heads side by side; laws of all kinds."""

import pytest
import torch
from slow_attention import slow_attention, slow_low_rank, slow_sparse
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from forecaster.model.attention import MultiHeadAttention
from forecaster.model.kernels import (
    causal_attention,
    local_attention,
    make_kernel,
    sampled_keys,
    sparse_attention,
)

WINDOW, FACTOR, RANK = 3, 1, 2
SIZES = {"full": None, "local": WINDOW, "sparse": FACTOR, "low_rank": RANK}
every_kind = pytest.mark.parametrize("kind", SIZES)


def random_parts(length, seed=0, real=0.6):
    """Queries, keys and values in float64, and a padding mask that leaves the second row nothing."""
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randn((3, 2, length, 3), generator=generator).double() for _ in range(3)]
    seen = torch.rand((3, length), generator=generator) < real
    seen[1] = False
    return *parts, seen


def small_kernel(kind, length):
    torch.manual_seed(0)
    kernel = make_kernel(kind, SIZES[kind], length)
    return kernel.double() if kind == "low_rank" else kernel


def slow_kernel(kind, kernel, query, key, value, seen):
    """The same by its definition."""

    def allowed(b, a, n, m):
        near = kind == "full" or abs(n - m) <= WINDOW
        return near and bool(seen[b, m])

    if kind == "sparse":
        return slow_sparse(query, key, value, seen, FACTOR)
    if kind == "low_rank":
        mixes = kernel.key.weight.detach(), kernel.value.weight.detach()
        return slow_low_rank(query, key, value, seen, *mixes)
    return slow_attention(query, key, value, allowed)


@pytest.mark.parametrize("length", [1, 3, 5, 8, 14])
@pytest.mark.parametrize("padded", [True, False])
@every_kind
def test_a_kind_equals_its_double_loop(kind, padded, length):
    query, key, value, seen = random_parts(length, seed=length)
    kernel = small_kernel(kind, length)
    mixed = kernel(query, key, value, seen if padded else None)
    seen = seen if padded else torch.ones_like(seen)
    expected = slow_kernel(kind, kernel, query, key, value, seen)
    torch.testing.assert_close(mixed, expected, rtol=1e-9, atol=1e-12)


@every_kind
def test_a_token_with_nothing_to_attend_to_gets_zeros_and_finite_gradients(kind):
    *parts, seen = random_parts(9)
    parts = [part.requires_grad_() for part in parts]
    mixed = small_kernel(kind, 9)(*parts, seen)
    assert (mixed[1] == 0).all() and (mixed[0] != 0).any()
    mixed.square().sum().backward()
    for part in parts:
        assert part.grad.isfinite().all() and (part.grad[1] == 0).all()


@every_kind
def test_what_a_masked_token_holds_changes_nothing_for_the_others(kind):
    query, key, value, seen = random_parts(9)
    kernel = small_kernel(kind, 9)
    noise = [torch.where(seen[:, None, :, None], part, 50.0) for part in (query, key, value)]
    real = seen[:, None, :, None]
    first, second = kernel(query, key, value, seen), kernel(*noise, seen)
    assert torch.equal(first.where(real, 0.0), second.where(real, 0.0))


@pytest.mark.parametrize("length", [1, 3, 14])
def test_a_causal_token_attends_to_itself_and_earlier_ones(length):
    query, key, value, _ = random_parts(length)
    expected = slow_attention(query, key, value, lambda b, a, n, m: m <= n)
    mixed = causal_attention(query, key, value, None)
    torch.testing.assert_close(mixed, expected, rtol=1e-9, atol=1e-12)


@every_kind
def test_rows_of_a_batch_do_not_matter_to_each_other(kind):
    query, key, value, seen = random_parts(30)
    kernel = small_kernel(kind, 30)
    together = kernel(query, key, value, seen)
    alone = kernel(query[2:], key[2:], value[2:], seen[2:])
    torch.testing.assert_close(alone, together[2:], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("window", [1, 2, 5, 7, 13, 100])
def test_local_attention_is_full_attention_under_a_band(window):
    query, key, value, seen = random_parts(13)
    mixed = local_attention(query, key, value, seen, window=window)
    near = lambda b, a, n, m: abs(n - m) <= window and seen[b, m]  # noqa: E731
    expected = slow_attention(query, key, value, near)
    torch.testing.assert_close(mixed, expected, rtol=1e-9, atol=1e-12)


def test_the_last_query_alone_gets_what_it_got_in_the_whole():
    """What a cache of keys and values relies on."""
    query, key, value, _ = random_parts(11)
    whole = causal_attention(query, key, value, None)
    last = causal_attention(query[:, :, -1:], key, value, None)
    torch.testing.assert_close(last, whole[:, :, -1:], rtol=1e-9, atol=1e-12)


def test_sparse_attention_lets_few_queries_attend_and_the_others_take_the_mean():
    query, key, value, _ = random_parts(200)
    mixed = sparse_attention(query, key, value, None, factor=2)
    even = value.mean(dim=2, keepdim=True)
    attends = ((mixed - even).abs() > 1e-9).any(dim=-1).sum(dim=-1)
    assert (attends == 2 * 6).all()  # 2·⌈ln 200⌉


def test_sampled_keys_are_real_and_cover_them_evenly():
    seen = random_parts(200)[-1]
    keys = sampled_keys(seen, 20)
    for row in (0, 2):
        assert seen[row][keys[row]].all()
        met = keys[row].flatten().bincount(minlength=200)[seen[row]]
        assert (met - met.float().mean()).abs().max() < 5


def test_multi_head_attention_is_heads_side_by_side():
    torch.manual_seed(0)
    layer = MultiHeadAttention(6, 2).eval()
    tokens, source = torch.randn(2, 4, 6), torch.randn(2, 5, 6)
    query, key, value = layer.query(tokens), layer.key(source), layer.value(source)
    heads = [
        slow_attention(
            *(part[:, None, :, 3 * h : 3 * h + 3] for part in (query, key, value)), lambda *_: True
        )
        for h in range(2)
    ]
    expected = layer.output(torch.cat(heads, dim=-1)[:, 0].float())
    torch.testing.assert_close(layer(tokens, source), expected, rtol=1e-5, atol=1e-6)


def cost(kind, length):
    """(multiplications, bytes kept for the backward pass) of one forward pass."""
    layer = MultiHeadAttention(64, 4, make_kernel(kind, None, length))
    tokens = torch.randn(1, length, 64)
    seen, kept = torch.ones(1, length, dtype=torch.bool), []
    # Products inside fused kernels are not counted: the plain backend shows them.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        layer(tokens, tokens, seen)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.nbytes) or x, lambda x: x):
        layer(tokens, tokens, seen)
    return counter.get_total_flops(), sum(kept)


@pytest.mark.parametrize("kind", ["local", "low_rank"])
def test_the_work_and_memory_of_local_and_low_rank_attention_grow_linearly(kind):
    (work, memory), (more_work, more_memory) = cost(kind, 512), cost(kind, 4096)
    assert more_work == pytest.approx(8 * work, rel=0.01)
    assert more_memory <= 8.01 * memory


def test_full_attention_does_quadratic_work_in_linear_memory():
    (work, memory), (more_work, more_memory) = cost("full", 256), cost("full", 1024)
    assert more_work > 8 * work and more_memory <= 4.01 * memory
