"""What a network knows of units before it learns: means and spreads of the training rows.

What comes in: a network and a panel. What goes out: the network with its scalers filled.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from forecaster.model.network import Network
from forecaster.model.scaling import Standardizer
from forecaster.panel.arrays import blocks, owners
from forecaster.panel.panel import Panel
from forecaster.runs.moments import Moments, moments
from forecaster.windows.index import Int64


def learn_scales(network: Network, panel: Panel, end: Int64) -> None:
    """Puts the moments of the training rows into the network's buffers.

    Args:
        network: changed in place.
        panel: whose rows train it.
        end: [series] row after the last one that trains.
    """

    def training_rows() -> Iterator[NDArray[np.float32]]:
        for rows in blocks(*panel.values.shape):
            trains = np.arange(rows.start, rows.stop) < end[owners(panel.indptr, rows)]
            yield panel.values[rows][trains]

    targets, past = panel.n_channels, len(panel.schema.past_numeric)
    found = moments(training_rows, panel.values.shape[1])
    loc, scale = found[:targets].scales()
    # Code 0, a channel not met: the moments of all channels together.
    every_loc, every_scale = found[:targets].pooled().scales()
    network.scaler.loc.copy_(torch.from_numpy(np.concatenate([every_loc, loc])))
    network.scaler.scale.copy_(torch.from_numpy(np.concatenate([every_scale, scale])))
    if network.linear is not None and network.linear.spread is not None:
        network.linear.spread.copy_(network.scaler.scale)
    static = panel.static[end > panel.indptr[:-1]]
    _fill(network.past_scaler, found[targets : targets + past])
    _fill(network.known_scaler, found[targets + past :])
    _fill(network.static_scaler, moments(lambda: [static], static.shape[1]))


def _fill(scaler: Standardizer, found: Moments) -> None:
    loc, scale = found.scales()
    scaler.loc.copy_(torch.from_numpy(loc))
    scaler.scale.copy_(torch.from_numpy(scale))
