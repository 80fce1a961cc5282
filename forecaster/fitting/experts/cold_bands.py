"""Bands of series without history, or with up to three rows: how far others were from what is predicted of them.

    last training windows, cut to no row, one, two, three ─▶ truth − forecast ─▶ quantiles of each lead

Without history the forecast is that of the level that is predicted from the other series.

Axes: R row, a channel of a window · H lead · S series · C channel · Q quantile level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forecaster.model.experts import truncated
from forecaster.model.network import Network
from forecaster.windows.index import WindowIndex, even_draw
from forecaster.windows.store import WindowStore

_WINDOWS = 200  # from which quantiles are taken
_POOLED = 200  # distances of neighbouring leads from which the quantiles of a lead are taken


@torch.no_grad()
def learn_bands(
    network: Network, store: WindowStore, index: WindowIndex, beyond: NDArray[np.float64]
) -> None:
    """Puts the quantiles of series without history around their level, or with a few rows, into the experts.

    Args:
        network: with levels; changed in place.
        store: of the windows.
        index: of windows, which may lack a part of the horizon; the last of each series are read.
        beyond: [S, C] of `learn_levels`, what leaving a series out adds to its distance from its level.
    """
    experts = network.experts
    assert experts is not None
    count = np.minimum(index.count, -(-3 * experts.short // index.stride))
    begin = index.first + (index.count - count) * index.stride
    index = replace(index, first=begin, count=count, channels=beyond.shape[1])
    series, channel, cutoff = index.locate(even_draw(len(index), _WINDOWS))
    batch = store.batch(series, channel, cutoff)
    bands = [experts.cold_offsets, *experts.few_offsets]
    # All at once: four passes of few windows cost four times as much.
    kept = torch.arange(len(bands)).repeat_interleave(len(series))
    inputs = truncated(batch.inputs.repeated(len(bands)), kept)
    scale = network.scale(inputs)
    forecast = network.of_experts(inputs, scale).quantiles[..., experts.levels.index(0.5)]
    few, few_unit = experts.few(inputs, scale, forecast)
    unit = torch.where(kept[:, None, None] > 0, few_unit, scale.scale[:, None])
    target = batch.target.repeat(len(bands), 1, 1)
    distance = ((target - forecast) / unit)[..., 0]  # [4·B, H]
    distance[few[:, 0] < kept] = torch.nan
    before = experts.cold_offsets[0]
    for rows, (offsets, of_rows) in enumerate(zip(bands, distance.chunk(len(bands)), strict=True)):
        missed = of_rows.numpy()
        if rows == 0:
            missed += beyond[series, channel, None]
        _put(missed, offsets, offsets[0] if rows < 2 else before, experts.levels)
        before = offsets[0]


def _put(
    missed: NDArray[np.floating], offsets: Tensor, before: Tensor, levels: Sequence[float]
) -> None:
    """Puts the quantiles of distances [N, H] into offsets [H, Q], those of few nearer to others.

    quantiles of a lead = own + ½^(n/4) · (those of the lead before − own)      n distances
    """
    reach = _POOLED // (2 * len(missed) + 1)
    side = np.sign(np.array(levels) - 0.5)
    for lead in range(len(offsets)):
        near = missed[:, max(0, lead - reach) : lead + reach + 1]
        near = near[np.isfinite(near)]
        if len(near):
            # A level or forecast is a median, but that of distances any number between two series. A hair
            # further, so that whole numbers on the ends of a band are in it.
            own = side * (np.quantile(near, levels) * side).clip(min=0) * (1 + 1e-6)
            before = torch.from_numpy(own).lerp(before.double(), 0.5 ** (len(near) / 4))
        offsets[lead] = before
