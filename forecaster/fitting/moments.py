"""Means and spreads of the training rows → the scalers of a network.

The columns are read in blocks, twice, and need not fit in memory. NaN is left out; sums are float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from forecaster.model.scaling import ROUNDING, ContextScaler, Standardizer
from forecaster.model.trainable import Trainable
from forecaster.panel.arrays import rows_before
from forecaster.panel.panel import Panel
from forecaster.windows.index import Int64

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Of each column: float64 [column]."""

    count: Floats
    """Observed cells."""
    mean: Floats
    """0 where nothing is observed."""
    squares: Floats
    """Sum of squared distances from the mean."""

    def __getitem__(self, columns: slice) -> Moments:
        return Moments(self.count[columns], self.mean[columns], self.squares[columns])

    def pooled(self) -> Moments:
        """Returns the moments of all cells as one column."""
        count = self.count.sum(keepdims=True)
        mean = (self.count * self.mean).sum(keepdims=True) / np.maximum(count, 1)
        squares = self.squares + self.count * (self.mean - mean) ** 2
        return Moments(count, mean, squares.sum(keepdims=True))

    def scales(self) -> tuple[Floats, Floats]:
        """Returns mean and population spread; 0 and 1 where there is nothing or no spread."""
        spread = np.sqrt(self.squares / np.maximum(self.count, 1))
        spread[spread <= ROUNDING * np.abs(self.mean)] = 1.0
        return self.mean, spread


def moments(blocks: Callable[[], Iterable[Floats]], columns: int) -> Moments:
    """Returns the moments of the columns of blocks [row, column]; `blocks` is called twice."""
    count, total, squares = np.zeros((3, columns))
    for values in blocks():
        observed = ~np.isnan(values)
        count += observed.sum(axis=0)
        total += np.where(observed, values, 0.0).sum(axis=0)
    mean = total / np.maximum(count, 1)
    for values in blocks():
        squares += (np.where(np.isnan(values), 0.0, values - mean) ** 2).sum(axis=0)
    return Moments(count, mean, squares)


def learn_scales(network: Trainable, panel: Panel, end: Int64) -> None:
    """Fills a network's scalers from the training rows.

    Args:
        network: changed in place.
        panel: the table.
        end: [series] row after the last one that trains.
    """

    def training_rows() -> Iterator[Floats]:
        return (panel.values[rows] for rows in rows_before(panel.indptr, end, panel.values.shape[1]))

    targets, past = panel.n_channels, len(panel.schema.past_numeric)
    found = moments(training_rows, panel.values.shape[1])
    _fill_channels(network.scaler, found[:targets])
    experts = network.experts
    if experts is not None and experts.linear is not None and experts.linear.spread is not None:
        experts.linear.spread.copy_(network.scaler.scale)
    static = panel.static[end > panel.indptr[:-1]]
    _fill(network.embedding.past_scaler, found[targets : targets + past])
    _fill(network.embedding.known_scaler, found[targets + past :])
    _fill(network.embedding.static_scaler, moments(lambda: [static], static.shape[1]))


def learn_channel_scales(scaler: ContextScaler, panel: Panel) -> None:
    """Fills a scaler of channels from all rows."""
    _fill_channels(scaler, moments(lambda: [panel.values[:, : panel.n_channels]], panel.n_channels))


def _fill_channels(scaler: ContextScaler, found: Moments) -> None:
    loc, scale = found.scales()
    # Code 0 is a channel not seen in training: the moments of all channels together.
    pooled_loc, pooled_scale = found.pooled().scales()
    unseen = found.count == 0  # as code 0
    loc[unseen], scale[unseen] = pooled_loc, pooled_scale
    scaler.loc.copy_(torch.from_numpy(np.concatenate([pooled_loc, loc])))
    scaler.scale.copy_(torch.from_numpy(np.concatenate([pooled_scale, scale])))


def _fill(scaler: Standardizer, found: Moments) -> None:
    loc, scale = found.scales()
    scaler.loc.copy_(torch.from_numpy(loc))
    scaler.scale.copy_(torch.from_numpy(scale))
