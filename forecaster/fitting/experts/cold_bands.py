"""Bands of series without history: how far the others were from the level that is predicted without them.

    last training windows, their history taken away ─▶ truth − forecast, leave-one-out ─▶ quantiles of each lead

Axes: R row, a channel of a window · H lead · S series · C channel · Q quantile level.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from forecaster.config import Plan
from forecaster.model.experts import truncated
from forecaster.model.network import Network
from forecaster.panel.panel import Panel
from forecaster.windows.index import even_draw
from forecaster.windows.split import Split
from forecaster.windows.store import WindowStore

_RESIDUALS = 1 << 20  # cells from which quantiles are taken
_POOLED = 200  # residuals of neighbouring leads from which the quantiles of a lead are taken
_BATCH = 256


@torch.no_grad()
def learn_cold_bands(
    network: Network,
    panel: Panel,
    plan: Plan,
    split: Split,
    store: WindowStore,
    beyond: NDArray[np.float64],
) -> None:
    """Puts the quantiles of series without history around their level into the experts.

    Args:
        network: changed in place.
        panel: the table.
        plan: with horizon and quantile levels.
        split: its training windows; the last of each series are read.
        store: of the windows.
        beyond: [S, C] of `learn_levels`, what leaving a series out adds to its distance from its level.
    """
    # Here, for it loads Lightning: a forecast without a fit comes without.
    from forecaster.windows.streams import WindowSequence

    experts, index = network.experts, split.train
    assert experts is not None
    if not bool((experts.cold_scale > 0).any()):
        return
    kept = np.minimum(index.count, -(-3 * experts.short // index.stride))
    begin = index.first + (index.count - kept) * index.stride
    index = replace(index, first=begin, count=kept)
    together = 1 if index.channels == panel.n_channels else panel.n_channels
    most = max(1, _RESIDUALS // (plan.horizon * together))
    found = []
    for batch in WindowSequence(store, index, even_draw(len(index), most), _BATCH):
        inputs = truncated(batch.inputs, torch.zeros(len(batch.cutoff), dtype=torch.int64))
        scale = network.scale(inputs)
        target = scale.apply(batch.target).transpose(1, 2).flatten(0, 1)  # [R, H]
        shift = beyond[batch.series.numpy()[:, None], inputs.channel.numpy() - 1].flatten()
        forecast = network.pool(inputs, scale, batch.time).forecasts[..., 0]
        found.append(target - forecast + torch.from_numpy(shift).float()[:, None])
    residuals = torch.cat(found).numpy()
    levels = np.array(plan.model.quantile_levels)
    for lead in range(residuals.shape[1]):
        reach = min(residuals.shape[1], _POOLED // (2 * len(residuals)))
        near = residuals[:, max(0, lead - reach) : lead + reach + 1]
        near = near[np.isfinite(near)]
        if len(near) > 1:
            around = np.quantile(near, levels)
            # The level is a median, but that of residuals any number between two series.
            around = np.where(levels < 0.5, around.clip(max=0), around.clip(min=0) * (levels > 0.5))
            experts.cold_offsets[lead] = torch.from_numpy(around)
