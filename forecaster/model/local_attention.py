"""Attention to neighbours, in blocks, so that no N x N table is ever made.

What comes in and goes out: as in `dot_product.full_attention`, which these equal under the mask that
`local_mask` draws. The tokens are one sequence: as many queries as keys, or, with a cache, the last
few of them.

    local      |n − m| ≤ window
    strided    |n − m| ≤ window, or n − m a multiple of the stride

Causal forms keep m ≤ n. Source of the strided form: Child et al., "Generating long sequences with
sparse transformers" (2019), section 4.2, both patterns in one head.

Axes: B batch · N query · M key · A head · E width per head · K block · W block size · S span.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from forecaster.model.dot_product import scaled_dot_product_attention


def local_mask(
    queries: int, keys: int, *, causal: bool, window: int, stride: int | None = None
) -> Bool[Tensor, "{queries} {keys}"]:
    """Returns which keys a query meets; the queries are the last of the tokens.

    Args:
        queries: N.
        keys: M, at least N.
        causal: whether only keys up to the query count.
        window: tokens to each side.
        stride: every stride-th token counts too; None = no others.
    """
    gap = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
    allowed = gap.abs() <= window
    if stride is not None:
        allowed |= gap % stride == 0
    return allowed & (gap >= 0) if causal else allowed


def local_attention(
    query: Float[Tensor, "B A N E"],
    key: Float[Tensor, "B A M E"],
    value: Float[Tensor, "B A M E"],
    seen: Bool[Tensor, "B M"] | None,
    causal: bool,
    dropout: float,
    *,
    window: int,
) -> Float[Tensor, "B A N E"]:
    """Returns the mix over keys at most `window` tokens away, in time and memory linear in N.

    Queries are cut into blocks; a block meets its own keys and `window` of those on each side, and a
    band inside that span is the mask.
    """
    batch, queries, keys = query.shape[0], query.shape[2], key.shape[2]
    if queries < keys:
        mask = local_mask(queries, keys, causal=causal, window=window)
        return _masked(query, key, value, seen, mask, dropout)
    # Larger blocks copy less and multiply more: of 1, 2 and 4 windows the second is fastest at 8,192.
    size = min(2 * window, queries)
    reach = min(window, size)
    near = _near(query, seen, size, window, causal)
    blocks = scaled_dot_product_attention(
        _blocks(query, size).flatten(0, 1),
        _around(key, size, reach, causal).flatten(0, 1),
        _around(value, size, reach, causal).flatten(0, 1),
        near.flatten(0, 1)[:, None],
        dropout,
    )  # [B·K, A, W, E]
    return _unblocked(blocks.unflatten(0, (batch, -1)))[:, :, :queries]


def strided_attention(
    query: Float[Tensor, "B A N E"],
    key: Float[Tensor, "B A M E"],
    value: Float[Tensor, "B A M E"],
    seen: Bool[Tensor, "B M"] | None,
    causal: bool,
    dropout: float,
    *,
    window: int,
    stride: int,
) -> Float[Tensor, "B A N E"]:
    """Returns the mix over keys at most `window` away or a multiple of `stride` away.

    One softmax over both: the scores of the neighbourhood and of the query's residue class modulo the
    stride lie side by side, S + N/stride of them. A key that belongs to both counts once.
    """
    queries, keys = query.shape[2], key.shape[2]
    if queries < keys:
        mask = local_mask(queries, keys, causal=causal, window=window, stride=stride)
        return _masked(query, key, value, seen, mask, dropout)
    size = stride * math.ceil(window / stride)  # a block holds whole strides
    scaled = query / math.sqrt(query.shape[-1])
    around = _around(key, size, window, causal).transpose(-1, -2)
    near = _blocks(scaled, size) @ around  # [B, K, A, W, S]
    met = _near(query, seen, size, window, causal)
    near = _unblocked(near.masked_fill(~met[:, :, None], -math.inf))
    far = _classes(scaled, size, stride) @ _classes(key, size, stride).transpose(-1, -2)
    beyond = _beyond(far.shape[-1], window, stride, causal).to(query.device)
    real = _classes(_marks(query, seen), size, stride) > 0
    beyond = beyond & real.transpose(-1, -2)  # [B, 1, stride, N/stride, N/stride]
    far = _unclassed(far.masked_fill(~beyond, -math.inf))
    scores = torch.cat([near, far], dim=-1)
    lonely = scores.amax(dim=-1, keepdim=True) == -math.inf
    weights = scores.masked_fill(lonely, 0.0).softmax(dim=-1).masked_fill(lonely, 0.0)
    beside, along = F.dropout(weights, dropout).split([near.shape[-1], far.shape[-1]], dim=-1)
    mixed = _unblocked(_blocks(beside, size) @ _around(value, size, window, causal))
    mixed = mixed + _unclassed(_classes(along, size, stride) @ _classes(value, size, stride))
    return mixed[:, :, :queries]


def _masked(
    query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, mask: Tensor, dropout: float
) -> Tensor:
    allowed = mask.to(query.device)[None, None]
    if seen is not None:
        allowed = allowed & seen[:, None, None]
    return scaled_dot_product_attention(query, key, value, allowed, dropout)


def _band(size: int, reach: int, window: int, causal: bool) -> Bool[Tensor, "W S"]:
    """Which keys of its span a query of a block meets; `reach` others come before the block's own."""
    span = torch.arange(size + reach * (1 if causal else 2))
    gap = reach + torch.arange(size)[:, None] - span
    return (gap <= window) & (gap >= (0 if causal else -window))


def _beyond(length: int, window: int, stride: int, causal: bool) -> Bool[Tensor, "M M"]:
    """Which tokens of its residue class a token meets there: those that the band does not hold."""
    gap = stride * (torch.arange(length)[:, None] - torch.arange(length))
    return gap > window if causal else gap.abs() > window


def _filled(tokens: Tensor, size: int) -> Tensor:
    """[B, A, N, E] → [B, A, K·W, E], filled up with zeros to whole blocks."""
    missing = -tokens.shape[2] % size
    return F.pad(tokens, (0, 0, 0, missing)) if missing else tokens  # padding by nothing copies


def _blocks(tokens: Tensor, size: int) -> Tensor:
    """[B, A, N, E] → [B, K, A, W, E]."""
    blocks: Tensor = _filled(tokens, size).unflatten(2, (-1, size))
    return blocks.transpose(1, 2)


def _unblocked(blocks: Tensor) -> Tensor:
    """[B, K, A, W, E] → [B, A, K·W, E]."""
    return blocks.transpose(1, 2).flatten(2, 3)


def _around(tokens: Tensor, size: int, reach: int, causal: bool) -> Tensor:
    """[B, A, N, E] → [B, K, A, S, E]: a block with `reach` tokens before and, unless causal, after it.

    Laid side by side, not unfolded: the backward pass of that costs more than the attention.
    """
    own = _blocks(tokens, size)
    parts = [F.pad(own[:, :-1, :, size - reach :], (0, 0, 0, 0, 0, 0, 1, 0)), own]
    if not causal:
        parts.append(F.pad(own[:, 1:, :, :reach], (0, 0, 0, 0, 0, 0, 0, 1)))
    return torch.cat(parts, dim=3)


def _marks(query: Tensor, seen: Tensor | None) -> Tensor:
    """[B, 1, N, 1] ones where a token is real; what fills up the last block is not."""
    real = query.new_ones((query.shape[0], query.shape[2])) if seen is None else seen.to(query.dtype)
    return real[:, None, :, None]


def _near(query: Tensor, seen: Tensor | None, size: int, window: int, causal: bool) -> Tensor:
    """[B, K, W, S] True where a query of a block meets a key of its span that exists and is real."""
    reach = min(window, size)
    real = _around(_marks(query, seen), size, reach, causal)[:, :, 0, None, :, 0] > 0
    return _band(size, reach, window, causal).to(query.device) & real


def _classes(tokens: Tensor, size: int, stride: int) -> Tensor:
    """[B, A, N, E] → [B, A, stride, N/stride, E], of whole blocks."""
    rows: Tensor = _filled(tokens, size).unflatten(2, (-1, stride))
    return rows.transpose(2, 3)


def _unclassed(classes: Tensor) -> Tensor:
    """[B, A, stride, N/stride, E] → [B, A, N, E]."""
    return classes.transpose(2, 3).flatten(2, 3)
