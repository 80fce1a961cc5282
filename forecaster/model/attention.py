"""Scaled dot-product and multi-head attention.

What comes in: queries, keys, values and a mask. What goes out: for each query a mix of the values.
Promised: True in a mask means "may attend"; a query with nothing to attend to gets zeros, never NaN.

Axes: B batch · N query · M key · D width · A head · E width per head.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn


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


def causal_mask(length: int, device: torch.device) -> Bool[Tensor, "N N"]:
    """Returns the mask under which token n attends to tokens 0 … n."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


class MultiHeadAttention(nn.Module):
    """Attention in several subspaces at once, and the output projection that mixes them.

    Source: Vaswani et al. (2017), section 3.2.2.
    """

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def forward(
        self,
        tokens: Float[Tensor, "B N D"],
        source: Float[Tensor, "B M D"],
        mask: Bool[Tensor, "#B #A #N M"] | None = None,
    ) -> Float[Tensor, "B N D"]:
        """Returns, for each token, what it takes from the source.

        Args:
            tokens: ask the questions.
            source: holds the answers; the tokens themselves in self-attention.
            mask: True = may attend; None = all may.
        """
        mixed = scaled_dot_product_attention(
            self._split(self.query(tokens)),
            self._split(self.key(source)),
            self._split(self.value(source)),
            mask,
            self.dropout if self.training else 0.0,
        )
        joined: Tensor = self.output(mixed.transpose(1, 2).flatten(2))  # [B, N, D]
        return joined

    def _split(self, tokens: Tensor) -> Tensor:
        heads: Tensor = tokens.unflatten(-1, (self.heads, -1))
        return heads.transpose(1, 2)  # [B, A, N, E]
