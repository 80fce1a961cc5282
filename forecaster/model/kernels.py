"""Attention kernels: which queries meet which keys.

    full       every query meets every key                               time N²
    local      keys at most `window` tokens away, in blocks              N
    sparse     queries that stand out meet every key, the others a mean  N·ln N   (ProbSparse)
    low_rank   every query meets `rank` mixtures of the keys             N        (Linformer)

All share the signature of `full_attention`. A query with nothing to attend to gets zeros, never NaN;
the values of masked tokens change nothing. True in a mask means "may attend".

Axes: B batch · N query · M key · A head · E width per head · K block · W block size · S span.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

Kernel = Callable[[Tensor, Tensor, Tensor, Tensor | None, bool], Tensor]
"""(query, key, value, seen, causal) → mixed values."""

DEFAULT_SIZES = {"local": 32, "sparse": 5, "low_rank": 64}

_GOLDEN = (math.sqrt(5) - 1) / 2
_RANKED_AT_ONCE = 256  # queries


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


def scaled_dot_product_attention(
    query: Float[Tensor, "B A N E"],
    key: Float[Tensor, "B A M E"],
    value: Float[Tensor, "B A M E"],
    mask: Bool[Tensor, "#B #A #N M"] | None = None,
) -> Float[Tensor, "B A N E"]:
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


def full_attention(
    query: Float[Tensor, "B A N E"],
    key: Float[Tensor, "B A M E"],
    value: Float[Tensor, "B A M E"],
    seen: Bool[Tensor, "B M"] | None,
    causal: bool,
) -> Float[Tensor, "B A N E"]:
    """Returns attention over all keys that are real (`seen`; None = all).

    `causal`: token n attends to tokens 0 … n only; queries are the last of the tokens.
    """
    queries, keys = query.shape[2], key.shape[2]
    causal = causal and queries > 1  # one query is the last token: all keys are up to it
    if causal and seen is None and queries == keys:
        # The fused kernel applies this mask itself, without N x N numbers.
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)
    mask = None if seen is None else seen[:, None, None, :]
    if causal:
        earlier = torch.ones(queries, keys, dtype=torch.bool, device=query.device).tril(keys - queries)
        mask = earlier[None, None] if mask is None else mask & earlier
    return scaled_dot_product_attention(query, key, value, mask)


def local_mask(
    queries: int, keys: int, *, causal: bool, window: int
) -> Bool[Tensor, "{queries} {keys}"]:
    """Returns which keys lie at most `window` tokens away; the queries are the last of the tokens."""
    gap = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
    return (gap <= window) & (gap >= (0 if causal else -window))


def local_attention(
    query: Float[Tensor, "B A N E"],
    key: Float[Tensor, "B A M E"],
    value: Float[Tensor, "B A M E"],
    seen: Bool[Tensor, "B M"] | None,
    causal: bool,
    *,
    window: int,
) -> Float[Tensor, "B A N E"]:
    """Returns attention over keys at most `window` tokens away, in time and memory linear in N.

    Queries are cut into blocks; a block meets its own keys and `window` keys on each side, under a band
    mask. Equals `full_attention` under `local_mask`.
    """
    batch, queries, keys = query.shape[0], query.shape[2], key.shape[2]
    if queries < keys:
        allowed = local_mask(queries, keys, causal=causal, window=window).to(query.device)[None, None]
        if seen is not None:
            allowed = allowed & seen[:, None, None]
        return scaled_dot_product_attention(query, key, value, allowed)
    # Larger blocks copy less and multiply more: of 1, 2 and 4 windows the second is fastest at 8,192.
    size = min(2 * window, queries)
    margin = min(window, size)
    real = query.new_ones((batch, queries)) if seen is None else seen.to(query.dtype)
    real = _with_neighbours(real[:, None, :, None], size, margin, causal)[:, :, 0, None, :, 0] > 0
    allowed = _band(size, margin, window, causal).to(query.device) & real  # [B, K, W, S]
    blocks = scaled_dot_product_attention(
        _blocks(query, size).flatten(0, 1),
        _with_neighbours(key, size, margin, causal).flatten(0, 1),
        _with_neighbours(value, size, margin, causal).flatten(0, 1),
        allowed.flatten(0, 1)[:, None],
    )  # [B·K, A, W, E]
    return blocks.unflatten(0, (batch, -1)).transpose(1, 2).flatten(2, 3)[:, :, :queries]


def _band(size: int, margin: int, window: int, causal: bool) -> Bool[Tensor, "W S"]:
    """Which keys of its span a query of a block meets; `margin` keys come before the block's own."""
    span = torch.arange(size + margin * (1 if causal else 2))
    gap = margin + torch.arange(size)[:, None] - span
    return (gap <= window) & (gap >= (0 if causal else -window))


def _blocks(tokens: Tensor, size: int) -> Tensor:
    """[B, A, N, E] → [B, K, A, W, E], the last block filled up with zeros."""
    missing = -tokens.shape[2] % size
    tokens = F.pad(tokens, (0, 0, 0, missing)) if missing else tokens  # padding by nothing copies
    return tokens.unflatten(2, (-1, size)).transpose(1, 2)


def _with_neighbours(tokens: Tensor, size: int, margin: int, causal: bool) -> Tensor:
    """[B, A, N, E] → [B, K, A, S, E]: a block with `margin` tokens before and, unless causal, after it.

    Concatenated, not unfolded: the backward pass of unfold costs more than the attention.
    """
    own = _blocks(tokens, size)
    parts = [F.pad(own[:, :-1, :, size - margin :], (0, 0, 0, 0, 0, 0, 1, 0)), own]
    if not causal:
        parts.append(F.pad(own[:, 1:, :, :margin], (0, 0, 0, 0, 0, 0, 0, 1)))
    return torch.cat(parts, dim=3)


def sparse_attention(
    query: Float[Tensor, "B A N E"],
    key: Float[Tensor, "B A N E"],
    value: Float[Tensor, "B A N E"],
    seen: Bool[Tensor, "B N"] | None,
    causal: bool,
    *,
    factor: int,
) -> Float[Tensor, "B A N E"]:
    """Returns ProbSparse self-attention: the queries that stand out attend, the others take a mean.

    A query stands out by max − mean of its products with factor·⌈ln N⌉ sampled keys; the first
    factor·⌈ln N⌉ attend to all keys. The others take the mean of the values, under `causal` of those up
    to them (the sum of the paper would grow with the length).

    Source: Zhou et al., "Informer" (2021), section 3.1. The paper ranks among all queries in the
    decoder too, so that a later token can displace an earlier one; here, under `causal`, a query is
    ranked among the queries up to itself, and about factor·(ln N)² of them attend.
    """
    length = query.shape[2]
    real = seen if seen is not None else query.new_ones((query.shape[0], length), dtype=torch.bool)
    most = min(length, factor * max(1, math.ceil(math.log(length))))
    with torch.no_grad():
        score = _sparsity(query, key, real, causal, most)  # [B, A, N]
        attends = _top_so_far(score, most) if causal else _top(score, most)
        attends &= real[:, None]
        widest = int(attends.sum(dim=-1).max())
        chosen = attends.byte().topk(widest, dim=-1).indices  # [B, A, T]; the rest of a row is unused
    spread = chosen[..., None].expand(-1, -1, -1, query.shape[-1])
    allowed = real[:, None, None, :]
    if causal:
        allowed = allowed & (torch.arange(length, device=query.device) <= chosen[..., None])
    mixed = scaled_dot_product_attention(query.gather(2, spread), key, value, allowed)
    mean = _mean_value(value, real, causal)
    return torch.where(attends[..., None], mean.scatter(2, spread, mixed.to(mean.dtype)), mean)


def sampled_keys(real: Bool[Tensor, "B N"], causal: bool, samples: int) -> Int[Tensor, "B N {samples}"]:
    """Returns the keys by which each query is scored, spread evenly over the real ones.

    Query n takes the ⌊r·c⌋-th of its c candidates, r = fractional parts of multiples of the golden
    ratio: as even as random draws, and independent of batch and order. Without candidates: token 0.
    """
    batch, length = real.shape
    candidates = real.cumsum(dim=1) if causal else real.sum(dim=1, keepdim=True).expand(-1, length)
    draw = torch.arange(1, length * samples + 1, device=real.device, dtype=torch.float64) * _GOLDEN
    rank = (draw.frac().view(length, samples) * candidates[..., None]).long()
    # Real tokens first, in their order: the first c of them are the candidates of every query.
    order = (~real).byte().argsort(dim=1, stable=True)
    chosen = order.gather(1, rank.flatten(1)).view(batch, length, samples)
    return chosen.masked_fill((candidates == 0)[..., None], 0)


def _sparsity(query: Tensor, key: Tensor, real: Tensor, causal: bool, samples: int) -> Tensor:
    """[B, A, N] max − mean over the sampled keys; −inf where a query is not real."""
    which = sampled_keys(real, causal, samples)
    rows = torch.arange(query.shape[0], device=query.device)[:, None, None]
    keys = key.transpose(1, 2)[rows, which]  # [B, N, U, A, E]
    products = torch.einsum("bane,bnuae->banu", query, keys)
    return (products.amax(dim=-1) - products.mean(dim=-1)).masked_fill(~real[:, None], -math.inf)


def _top(score: Tensor, most: int) -> Tensor:
    """[B, A, N] True for the `most` highest scores."""
    top = torch.zeros_like(score, dtype=torch.bool)
    return top.scatter_(-1, score.topk(most, dim=-1).indices, True)


def _top_so_far(score: Tensor, most: int) -> Tensor:
    """[B, A, N] True where fewer than `most` earlier scores are higher."""
    best, top = score[..., :0], []
    for part in score.split(_RANKED_AT_ONCE, dim=-1):
        larger = part[..., None, :] > part[..., None]
        ahead = larger.tril().sum(dim=-1) + (best[..., None, :] > part[..., None]).sum(dim=-1)
        top.append(ahead < most)
        # Only the best so far can displace a later query.
        best = torch.cat([best, part], dim=-1)
        best = best.topk(min(most, best.shape[-1]), dim=-1).values
    return torch.cat(top, dim=-1)


def _mean_value(value: Tensor, real: Tensor, causal: bool) -> Tensor:
    """[B, A, N, E] the mean of the real values (up to each token, if causal), or zeros."""
    weight = real[:, None, :, None].to(value.dtype)
    value = value.masked_fill(~real[:, None, :, None], 0.0)
    if causal:
        return value.cumsum(dim=2) / weight.cumsum(dim=2).clamp(min=1)
    mean = value.sum(dim=2, keepdim=True) / weight.sum(dim=2, keepdim=True).clamp(min=1)
    return mean.expand(-1, -1, value.shape[2], -1)


class LowRank(nn.Module):
    """Linformer: queries meet a few mixtures of the keys, the same mixtures for all heads.

    Source: Wang et al., "Linformer" (2020), equation 7. A mixture holds tokens of all positions, so
    there is no causal form; the weights fix the number of keys.
    """

    def __init__(self, keys: int, rank: int):
        super().__init__()
        self.key = nn.Linear(keys, rank, bias=False)
        self.value = nn.Linear(keys, rank, bias=False)

    def forward(
        self,
        query: Float[Tensor, "B A N E"],
        key: Float[Tensor, "B A M E"],
        value: Float[Tensor, "B A M E"],
        seen: Bool[Tensor, "B M"] | None,
        causal: bool,
    ) -> Float[Tensor, "B A N E"]:
        """Returns attention over the mixtures; keys that are not real enter none of them."""
        assert not causal, "low_rank attention has no causal form"
        key = self._mixed(self.key.weight, key, seen)
        value = self._mixed(self.value.weight, value, seen)
        return full_attention(query, key, value, None, False)

    def _mixed(self, weight: Tensor, heads: Tensor, seen: Tensor | None) -> Tensor:
        """[B, A, M, E] → [B, A, rank, E] in one product for all heads."""
        tokens = heads.transpose(1, 2).flatten(2)
        if seen is not None:
            tokens = tokens.masked_fill(~seen[..., None], 0.0)
        return (weight @ tokens).unflatten(-1, (heads.shape[1], -1)).transpose(1, 2)
