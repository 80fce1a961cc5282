"""Scaled dot-product attention: every query meets every key that its mask allows.

What comes in: queries, keys, values per head, and a mask. What goes out: for each query a mix of the
values. Promised: True in a mask means "may attend"; a query with nothing to attend to gets zeros,
never NaN.

Axes: B batch · N query · M key · A head · E width per head.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor


def scaled_dot_product_attention(
    query: Float[Tensor, "B A N E"],
    key: Float[Tensor, "B A M E"],
    value: Float[Tensor, "B A M E"],
    mask: Bool[Tensor, "#B #A #N M"] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "B A N E"]:
    """Returns softmax(QKᵀ/√E)·V over the keys that the mask allows.

    Source: Vaswani et al., "Attention is all you need" (2017), equation 1; torch's fused kernels.

    Args:
        query: what is asked, per head.
        key: what the values are found by.
        value: what is mixed.
        mask: True = may attend; None = all may.
        dropout: share of attention weights dropped.
    """
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
    # softmax over nothing is 0/0: such rows attend to everything and are then set to zero, which
    # keeps their gradients zero as well.
    lonely = ~mask.any(dim=-1, keepdim=True)
    mixed = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask | lonely, dropout_p=dropout
    )
    return mixed.masked_fill(lonely, 0.0)


def causal_mask(
    length: int, device: torch.device, keys: int | None = None
) -> Bool[Tensor, "{length} M"]:
    """Returns the mask under which token n attends to tokens 0 … n.

    Args:
        length: number of queries.
        device: where the mask is wanted.
        keys: number of tokens; the queries are the last of them. None = as many as queries.
    """
    keys = length if keys is None else keys
    return torch.ones(length, keys, dtype=torch.bool, device=device).tril(keys - length)


def full_attention(
    query: Float[Tensor, "B A N E"],
    key: Float[Tensor, "B A M E"],
    value: Float[Tensor, "B A M E"],
    seen: Bool[Tensor, "B M"] | None,
    causal: bool,
    dropout: float,
) -> Float[Tensor, "B A N E"]:
    """Returns the mix over all keys that are real and, if causal, not after the query.

    Args:
        query, key, value: per head; causal queries are the last of the tokens.
        seen: True where a key is real; None = everywhere.
        causal: whether token n meets tokens 0 … n alone.
        dropout: share of attention weights dropped.
    """
    queries, keys = query.shape[2], key.shape[2]
    causal = causal and queries > 1  # one query is the last token: all keys are up to it
    if causal and seen is None and queries == keys:
        # No mask of N x N numbers: the fused kernel knows this one.
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
    mask = None if seen is None else seen[:, None, None, :]
    if causal:
        earlier = causal_mask(queries, query.device, keys)
        mask = earlier[None, None] if mask is None else mask & earlier
    return scaled_dot_product_attention(query, key, value, mask, dropout)
