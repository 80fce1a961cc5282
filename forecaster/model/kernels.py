"""Attention kernels: which queries meet which keys.

    full       every query meets every key                               time N²
    causal     every query meets the keys up to itself                   N²
    local      keys at most `window` tokens away, in blocks              N
    sparse     queries that stand out meet every key, the others a mean  N·ln N   (ProbSparse)
    low_rank   every query meets `rank` mixtures of the keys             N        (Linformer)

All share the signature of `full_attention`; local and sparse are of self-attention, where N = M. A query
with nothing to attend to gets zeros, never NaN; the values of masked tokens change nothing. True in a mask
means "may attend".

Axes: B batch · N query · M key · A head · E width per head · K block · W block size · S span ·
U sampled key · T query that stands out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

Kernel = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""(query, key, value, seen) → mixed values."""
Queries = Float[Tensor, "B A N E"]
Keys = Float[Tensor, "B A M E"]
Seen = Bool[Tensor, "B M"]
"""True where a key is real."""

DEFAULT_SIZES = {"local": 32, "sparse": 5, "low_rank": 64}
"""Window, factor (that of the paper), rank."""

_GOLDEN = (math.sqrt(5) - 1) / 2


def make_kernel(kind: str, size: int | None, keys: int) -> Kernel:
    """Returns a kernel of a kind and size (None = default); low_rank has weights for so many keys."""
    size = size or DEFAULT_SIZES.get(kind, 0)
    if kind == "local":
        return partial(local_attention, window=size)
    if kind == "sparse":
        return partial(sparse_attention, factor=size)
    if kind == "low_rank":
        return LowRank(keys, size)
    return full_attention


def full_attention(query: Queries, key: Keys, value: Keys, seen: Seen | None) -> Queries:
    """Returns attention over all keys that are real (`seen`; None = all)."""
    return scaled_dot_product_attention(
        query, key, value, None if seen is None else seen[:, None, None]
    )


def causal_attention(query: Queries, key: Keys, value: Keys, seen: Seen | None) -> Queries:
    """Returns attention of token n to tokens 0 … n, all of them real; a single query is the last token."""
    assert seen is None
    # The fused kernel applies this mask itself, without N x N numbers.
    return F.scaled_dot_product_attention(query, key, value, is_causal=query.shape[2] > 1)


def scaled_dot_product_attention(
    query: Queries, key: Keys, value: Keys, mask: Bool[Tensor, "#B #A #N M"] | None = None
) -> Queries:
    """Returns softmax(QKᵀ/√E)·V over the keys that the mask allows.

    Source: Vaswani et al., "Attention is all you need" (2017), equation 1; torch's fused kernels.
    """
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value)
    # Softmax over nothing is 0/0: such rows attend to everything and are then set to zero, which keeps
    # their gradients zero as well.
    empty = ~mask.any(dim=-1, keepdim=True)
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask | empty)
    return mixed.masked_fill(empty, 0.0)


def local_attention(
    query: Queries, key: Keys, value: Keys, seen: Seen | None, *, window: int
) -> Queries:
    """Returns attention over keys at most `window` tokens away, in time and memory linear in N.

    Queries are cut into blocks; a block meets its own keys and `window` keys on each side, under a band
    mask.
    """
    batch, count = query.shape[0], query.shape[2]
    # Larger blocks copy less and multiply more: of 1, 2 and 4 windows the second is fastest at 8,192.
    size = min(2 * window, count)
    margin = min(window, size)
    # Keys that blocks are filled up with are masked as if not real.
    real = query.new_ones((batch, count)) if seen is None else seen.to(query.dtype)
    real = _with_neighbours(real[:, None, :, None], size, margin)  # [B, K, 1, S, 1]
    real = real[..., 0] > 0
    position = torch.arange(size + 2 * margin, device=query.device)  # [S] in a block and its margins
    band = (margin + position[:size, None] - position).abs() <= window  # [W, S]
    blocks = scaled_dot_product_attention(
        _blocks(query, size).flatten(0, 1),
        _with_neighbours(key, size, margin).flatten(0, 1),
        _with_neighbours(value, size, margin).flatten(0, 1),
        (band & real).flatten(0, 1)[:, None],  # [B·K, 1, W, S]
    )  # [B·K, A, W, E]
    blocks = blocks.unflatten(0, (batch, -1)).transpose(1, 2)  # [B, A, K, W, E]
    return blocks.flatten(2, 3)[:, :, :count]


def _blocks(tokens: Tensor, size: int) -> Tensor:
    """[B, A, N, E] → [B, K, A, W, E], the last block filled up with zeros."""
    missing = -tokens.shape[2] % size
    tokens = F.pad(tokens, (0, 0, 0, missing)) if missing else tokens  # padding by nothing copies
    return tokens.unflatten(2, (-1, size)).transpose(1, 2)


def _with_neighbours(tokens: Tensor, size: int, margin: int) -> Tensor:
    """[B, A, N, E] → [B, K, A, S, E]: a block with `margin` tokens before and after it.

    Concatenated, not unfolded: the backward pass of unfold costs more than the attention.
    """
    blocks = _blocks(tokens, size)
    # A block of zeros before the first one, and one after the last.
    before = F.pad(blocks[:, :-1, :, size - margin :], (0, 0, 0, 0, 0, 0, 1, 0))
    after = F.pad(blocks[:, 1:, :, :margin], (0, 0, 0, 0, 0, 0, 0, 1))
    return torch.cat([before, blocks, after], dim=3)


def sparse_attention(
    query: Queries, key: Keys, value: Keys, seen: Seen | None, *, factor: int
) -> Queries:
    """Returns ProbSparse self-attention: the queries that stand out attend, the others take a mean.

    A query stands out by max − mean of its products with factor·⌈ln N⌉ sampled keys; the first
    factor·⌈ln N⌉ attend to all keys. The others take the mean of the values.

    Source: Zhou et al., "Informer" (2021), section 3.1.
    """
    batch, length = query.shape[0], query.shape[2]
    real = query.new_ones((batch, length), dtype=torch.bool) if seen is None else seen
    most = min(length, factor * max(1, math.ceil(math.log(length))))
    with torch.no_grad():  # which queries attend is a choice, and has no gradient
        score = _sparsity(query, key, real, most)  # [B, A, N]
        attends = torch.zeros_like(score, dtype=torch.bool)
        attends.scatter_(-1, score.topk(most, dim=-1).indices, True)
        attends &= real[:, None]
        # Rows with fewer real queries are filled up to the widest.
        widest = int(attends.sum(dim=-1).max())
        chosen = attends.byte().topk(widest, dim=-1).indices  # [B, A, T]; the rest of a row is unused
    index = chosen[..., None].expand(-1, -1, -1, query.shape[-1])  # [B, A, T, E]
    mixed = full_attention(query.gather(2, index), key, value, real)
    mean = _mean_value(value, real)  # [B, A, N, E]
    attention = mean.scatter(2, index, mixed.to(mean.dtype))
    return torch.where(attends[..., None], attention, mean)


def sampled_keys(real: Bool[Tensor, "B N"], samples: int) -> Int[Tensor, "B N {samples}"]:
    """Returns the keys by which each query is scored, spread evenly over the real ones.

    Query n takes the ⌊r·c⌋-th of the c real ones, r = fractional parts of multiples of the golden
    ratio: as even as random draws, and independent of batch and order. Without real ones: token 0.
    """
    batch, length = real.shape
    draw = torch.arange(1, length * samples + 1, device=real.device, dtype=torch.float64) * _GOLDEN
    rank = (draw.frac() * real.sum(dim=1, keepdim=True)).long()  # [B, N·samples]
    # Real tokens first, in their order.
    order = (~real).byte().argsort(dim=1, stable=True)
    return order.gather(1, rank).view(batch, length, samples)


def _sparsity(query: Tensor, key: Tensor, real: Tensor, samples: int) -> Tensor:
    """[B, A, N] max − mean over the sampled keys; −inf where a query is not real."""
    rows = torch.arange(query.shape[0], device=query.device)[:, None, None]
    keys = key.transpose(1, 2)[rows, sampled_keys(real, samples)]  # [B, N, U, A, E]
    # Each query meets its own sampled keys: [B, A, N, U], not [B, A, N, N].
    products = torch.einsum("bane,bnuae->banu", query, keys)
    score = products.amax(dim=-1) - products.mean(dim=-1)
    return score.masked_fill(~real[:, None], -math.inf)


def _mean_value(value: Tensor, real: Tensor) -> Tensor:
    """[B, A, N, E] the mean of the real values, or zeros."""
    real = real[:, None, :, None]  # [B, 1, N, 1]
    total = value.masked_fill(~real, 0.0).sum(dim=2, keepdim=True)
    count = real.to(value.dtype).sum(dim=2, keepdim=True)
    return (total / count.clamp(min=1)).expand_as(value)


class LowRank(nn.Module):
    """Linformer: queries meet a few mixtures of the keys, the same mixtures for all heads.

    Source: Wang et al., "Linformer" (2020), equation 7. The weights fix the number of keys.
    """

    def __init__(self, keys: int, rank: int):
        super().__init__()
        self.key = nn.Linear(keys, rank, bias=False)
        self.value = nn.Linear(keys, rank, bias=False)

    def forward(self, query: Queries, key: Keys, value: Keys, seen: Seen | None) -> Queries:
        """Returns attention over the mixtures; keys that are not real enter none of them."""
        key = self._mixed(self.key.weight, key, seen)
        value = self._mixed(self.value.weight, value, seen)
        return full_attention(query, key, value, None)

    def _mixed(self, weight: Tensor, heads: Tensor, seen: Tensor | None) -> Tensor:
        """[B, A, M, E] → [B, A, rank, E] in one product for all heads."""
        tokens = heads.transpose(1, 2).flatten(2)  # [B, M, A·E]
        if seen is not None:
            tokens = tokens.masked_fill(~seen[..., None], 0.0)
        mixtures = weight @ tokens  # [rank, M] @ [B, M, A·E]
        return mixtures.unflatten(-1, (heads.shape[1], -1)).transpose(1, 2)
