"""Linear maps that read whole cycles back alone.

What comes in: what maps are solved from. What goes out: maps of the same shape, averaged with the free
ones. Promised: a function of the sums alone; where a lookback holds no cycle, the free map stays.

A lead reads the values at its own place in the cycles before it, and the leads of one cycle do so by
shared weights: a few dozen of them in the place of hundreds of thousands, and so other errors than
those of a free map (Lin et al., "SparseTSF", 2024).

Axes: P place in the shortest cycle · F feature · H lead · I lead of a cycle · K cycle of the lookback.
"""

from __future__ import annotations

import torch
from torch import Tensor

from forecaster.model.experts import LinearForecast
from forecaster.runs.ridge.solve import Sums


def with_periodic(
    linear: LinearForecast, number: int, free: Tensor, sums: Sums, strengths: Tensor
) -> Tensor:
    """Returns [P, F, H] the mean of a map and of one that reads whole cycles back, where there is one.

    Args:
        linear: says of which cycle, if any.
        number: of the map.
        free: to read everything.
        sums: what it was solved from.
        strengths: [H] float64, of free maps; held as strongly, all weights of a periodic one together.
    """
    period, lookback = linear.period, linear.lookbacks[number]
    if period is None or lookback < period:
        return free
    return (free + periodic(sums, lookback, strengths, period)) / 2


def periodic(sums: Sums, lookback: int, strengths: Tensor, period: int) -> Tensor:
    """Returns [P, F, H] maps that are 0 but for values whole cycles before each lead.

    Args:
        sums: over windows; targets that are missing count as typical ones.
        lookback: steps, a cycle at least.
        strengths: [H] float64.
        period: steps of a cycle.
    """
    found, cycles = torch.zeros_like(sums.cross), lookback // period
    oldest = lookback - cycles * period
    right = sums.filled(sums.cross)
    for leads in torch.arange(right.shape[2]).split(period):
        place = torch.arange(len(leads))
        reads = oldest + place[:, None] + period * torch.arange(cycles)  # [I, K]
        gram = sums.gram[:, reads[:, :, None], reads[:, None, :]].sum(dim=1)  # [P, K, K]
        cross = right[:, reads, leads[:, None]].sum(dim=1)  # [P, K]
        # The last cycle may be a part of one, and is held in proportion.
        penalty = strengths[leads].mean() * sums.whole * len(leads) / period
        least = 1e-9 * gram.diagonal(dim1=1, dim2=2).mean(dim=1) + 1e-12
        held = gram + (penalty + least)[:, None, None] * torch.eye(cycles, dtype=gram.dtype)
        shared = torch.cholesky_solve(cross[..., None], torch.linalg.cholesky(held))[..., 0]
        found[:, reads, leads[:, None]] = shared[:, None]
    return found
