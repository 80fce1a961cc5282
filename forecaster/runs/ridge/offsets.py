"""The quantiles of what linear maps miss.

What comes in: windows, and maps solved without each quarter of their time. What goes out: a network
that holds the quantiles. Promised: no residual is of maps that have seen its quarter. Those of seen
windows, of maps with 450 features, gave 80 % bands that held 70 % of the year that followed. What maps
say is the median: quantiles count from the residuals' own, which is a few quarters' drift more than a
bias (taken for one, it raised the MSE of ETTh1 720 hours ahead from .83 to .98).

Axes: R row, a channel of a window · P place in the cycle · F feature · H lead · Q quantile level.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forecaster.model.experts import mapped
from forecaster.runs.ridge.rows import Rows, Windows

_RESIDUALS = 1 << 23  # cells from which quantiles are taken


def foretold(
    every: Sequence[Windows], rows: Rows, maps: Sequence[Sequence[Sequence[Tensor]]]
) -> Tensor:
    """Returns [R, H] what maps say of rows they have not seen, in the units they count in.

    Args:
        every: the windows of each span.
        rows: of any windows.
        maps: [span][fold][map] solved without the fold; the last of each span with all.
    """
    linear = every[0].linear
    said = torch.zeros_like(rows.target)
    for number in range(len(linear.maps)):
        features, level = linear.features(rows.batch.inputs, rows.scale, rows.others, number)
        said += level[:, None]
        for windows, folds in zip(every, maps, strict=True):
            fold = windows.fold(rows)
            for which in fold.unique().tolist():
                own = (fold == which).nonzero()[:, 0]
                part = mapped(features[own], folds[which][number], rows.place[own])
                said.index_add_(0, own, part / len(every))
    return said / len(linear.maps)


def learn_offsets(every: Sequence[Windows], maps: Sequence[Sequence[Sequence[Tensor]]]) -> None:
    """Puts the quantiles of what maps miss into the network, from an even draw of the widest span.

    Args:
        every: the windows of each span, the widest first.
        maps: as in `foretold`.
    """
    linear, levels = every[0].linear, np.array(every[0].network.config.quantile_levels)
    missed, places = [], []
    for rows in every[0].some(max(1, _RESIDUALS // linear.horizon)):
        counted = rows.relative / linear.misses_in(rows.relative)
        missed.append((rows.target - foretold(every, rows, maps)) * counted[:, None])
        places.append(rows.place)
    if not missed:
        return
    residuals, place = torch.cat(missed).numpy(), torch.cat(places).numpy()
    everyone = _around_median(residuals, levels)
    for number in range(linear.places):
        own = _around_median(residuals[place == number], levels) if linear.places > 1 else everyone
        for found in (everyone, own):  # a place without windows has those of all
            there = np.isfinite(found).all(axis=1)
            linear.offsets[number, torch.from_numpy(there)] = torch.from_numpy(found[there]).float()


def _around_median(values: NDArray[np.float32], levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns [H, Q] quantiles of [n, H] less their median, one of the levels."""
    found = _quantiles(values, levels)
    return found - found[:, levels == 0.5]


def _quantiles(values: NDArray[np.float32], levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns [H, Q] quantiles of [n, H] over what is finite; NaN where fewer than two are.

    By hand: numpy's own goes lead by lead through Python where NaN may be.
    """
    if len(values) < 2:
        return np.full((values.shape[1], len(levels)), np.nan)
    ordered = np.sort(np.where(np.isfinite(values), values, np.nan), axis=0).astype(np.float64)
    count = (ordered == ordered).sum(axis=0)
    at = levels[:, None] * np.maximum(count - 1, 0)  # [Q, H]
    low = np.minimum(np.floor(at).astype(np.int64), len(ordered) - 2)
    below, above = (np.take_along_axis(ordered, low + n, axis=0) for n in (0, 1))
    found = np.where(at > low, below + (at - low) * (above - below), below)
    return np.where(count >= 2, found, np.nan).T
