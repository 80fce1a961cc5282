"""Attention that does not ask everything: ProbSparse and low-rank.

What comes in and goes out: as in `dot_product.full_attention`. Promised: the same numbers every time —
what is sampled depends on positions alone, so neither the batch nor the order of windows matters.

Axes: B batch · N query · M key · A head · E width per head · U sampled keys · T standing queries.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from forecaster.model.dot_product import full_attention, scaled_dot_product_attention

_GOLDEN = (math.sqrt(5) - 1) / 2
_CHUNK = 256  # queries ranked at once


def sparse_attention(
    query: Float[Tensor, "B A N E"],
    key: Float[Tensor, "B A N E"],
    value: Float[Tensor, "B A N E"],
    seen: Bool[Tensor, "B N"] | None,
    causal: bool,
    dropout: float,
    *,
    factor: int,
) -> Float[Tensor, "B A N E"]:
    """Returns ProbSparse self-attention: queries that stand out attend, the others take a mean.

    A query stands out by max − mean of its products with U = factor·⌈ln N⌉ sampled keys; the first
    factor·⌈ln N⌉ of them attend to all keys. The others are taken to attend evenly: to the mean of the
    values, under `causal` of those up to them (the paper's sum would grow with the length).

    Source: Zhou et al., "Informer" (2021), section 3.1. The paper ranks among all queries in the
    decoder too, so a later token may take an earlier one's place; here, under `causal`, a query is
    ranked among the queries up to itself, and about factor·(ln N)² of them attend.

    Args:
        query, key, value: per head, of one sequence.
        seen: True where a token is real; None = everywhere. The others are no keys, and stand for
            nothing.
        causal: whether token n depends on tokens 0 … n alone.
        dropout: share of attention weights dropped.
        factor: c of the paper; once it reaches N / ⌈ln N⌉, this is full attention.
    """
    length = query.shape[2]
    real = seen if seen is not None else query.new_ones((query.shape[0], length), dtype=torch.bool)
    most = min(length, factor * max(1, math.ceil(math.log(length))))
    with torch.no_grad():
        standing = _standing(query, key, real, causal, most)  # [B, A, N]
        leads = _leads_so_far(standing, most) if causal else _leads(standing, most)
        leads &= real[:, None]
        widest = int(leads.sum(dim=-1).max())
        chosen = leads.byte().topk(widest, dim=-1).indices  # [B, A, T]; the rest of a row is idle
    spread = chosen[..., None].expand(-1, -1, -1, query.shape[-1])
    allowed = real[:, None, None, :]
    if causal:
        allowed = allowed & (torch.arange(length, device=query.device) <= chosen[..., None])
    mixed = scaled_dot_product_attention(query.gather(2, spread), key, value, allowed, dropout)
    even = _even(value, real, causal)
    return torch.where(leads[..., None], even.scatter(2, spread, mixed.to(even.dtype)), even)


def sampled_keys(real: Bool[Tensor, "B N"], causal: bool, samples: int) -> Int[Tensor, "B N {samples}"]:
    """Returns which keys each query is measured by, drawn evenly from the real ones.

    Query n takes the ⌊r·c⌋-th of its c candidates, r = the fractional parts of multiples of the golden
    ratio: as even as random draws, and the same every time. A query without candidates gets token 0.
    """
    batch, length = real.shape
    candidates = real.cumsum(dim=1) if causal else real.sum(dim=1, keepdim=True).expand(-1, length)
    draw = torch.arange(1, length * samples + 1, device=real.device, dtype=torch.float64) * _GOLDEN
    rank = (draw.frac().view(length, samples) * candidates[..., None]).long()
    # Real tokens first, in their order: the first c of them are the candidates of every query.
    order = (~real).byte().argsort(dim=1, stable=True)
    chosen = order.gather(1, rank.flatten(1)).view(batch, length, samples)
    return chosen.masked_fill((candidates == 0)[..., None], 0)


class LowRank(nn.Module):
    """Linformer: queries meet a few mixtures of the keys, the same mixtures for all heads.

    Source: Wang et al., "Linformer" (2020), equation 7. A mixture holds tokens of all positions, so
    there is no causal form; the number of keys is fixed by the weights.
    """

    def __init__(self, keys: int, rank: int):
        """Takes the number of tokens to mix and the number of mixtures.

        Args:
            keys: M.
            rank: mixtures.
        """
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
        dropout: float,
    ) -> Float[Tensor, "B A N E"]:
        """Returns the mix over mixtures; keys that are not real enter none of them."""
        assert not causal, "low_rank attention has no causal form"
        key = self._mixed(self.key.weight, key, seen)
        value = self._mixed(self.value.weight, value, seen)
        return full_attention(query, key, value, None, False, dropout)

    def _mixed(self, weight: Tensor, heads: Tensor, seen: Tensor | None) -> Tensor:
        """[B, A, M, E] → [B, A, rank, E]; one product for all heads, which lie side by side."""
        tokens = heads.transpose(1, 2).flatten(2)
        if seen is not None:
            tokens = tokens.masked_fill(~seen[..., None], 0.0)
        mixtures: Tensor = (weight @ tokens).unflatten(-1, (heads.shape[1], -1))
        return mixtures.transpose(1, 2)


def _standing(query: Tensor, key: Tensor, real: Tensor, causal: bool, samples: int) -> Tensor:
    """[B, A, N] max − mean over the sampled keys; −inf where a query is not real."""
    which = sampled_keys(real, causal, samples)
    rows = torch.arange(query.shape[0], device=query.device)[:, None, None]
    keys = key.transpose(1, 2)[rows, which]  # [B, N, U, A, E]
    products = torch.einsum("bane,bnuae->banu", query, keys)
    return (products.amax(dim=-1) - products.mean(dim=-1)).masked_fill(~real[:, None], -math.inf)


def _leads(standing: Tensor, most: int) -> Tensor:
    """[B, A, N] True for the `most` queries that stand out."""
    leads = torch.zeros_like(standing, dtype=torch.bool)
    return leads.scatter_(-1, standing.topk(most, dim=-1).indices, True)


def _leads_so_far(standing: Tensor, most: int) -> Tensor:
    """[B, A, N] True where fewer than `most` earlier queries stand out more."""
    best, leads = standing[..., :0], []
    for part in standing.split(_CHUNK, dim=-1):
        larger = part[..., None, :] > part[..., None]
        ahead = larger.tril().sum(dim=-1) + (best[..., None, :] > part[..., None]).sum(dim=-1)
        leads.append(ahead < most)
        # Only the best so far can push a later query out.
        best = torch.cat([best, part], dim=-1)
        best = best.topk(min(most, best.shape[-1]), dim=-1).values
    return torch.cat(leads, dim=-1)


def _even(value: Tensor, real: Tensor, causal: bool) -> Tensor:
    """[B, A, N, E] what even attention gives: the mean of the real values, or zeros."""
    weight = real[:, None, :, None].to(value.dtype)
    value = value.masked_fill(~real[:, None, :, None], 0.0)
    if causal:
        return value.cumsum(dim=2) / weight.cumsum(dim=2).clamp(min=1)
    mean = value.sum(dim=2, keepdim=True) / weight.sum(dim=2, keepdim=True).clamp(min=1)
    return mean.expand(-1, -1, value.shape[2], -1)
