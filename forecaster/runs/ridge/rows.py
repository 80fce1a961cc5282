"""Windows as linear maps read them, block by block.

What comes in: a network whose scales are learned, a panel, and windows. What goes out: their features
and targets. Promised: memory does not grow with the number of windows. At most 60,000 rows (windows of
one channel) are read: where there are more, an even draw of them.

Axes: B batch · R row, a channel of a window · E number that all maps read · F feature · H lead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from forecaster.config import Config
from forecaster.model.experts import relative
from forecaster.model.network import Network
from forecaster.model.scaling import Scale
from forecaster.panel.panel import Panel
from forecaster.windows.batch import Batch
from forecaster.windows.index import Int64, KeyedPermutation, WindowIndex
from forecaster.windows.store import training_store

MOST_ROWS = 60_000
FOLDS = 4
"""Quarters of the time, each of which is met by maps solved on the others."""
_CELLS = 1 << 22  # of a block of windows
_FAR = 10.0  # scaled units


@dataclass(frozen=True)
class Rows:
    """A block of windows as maps read them."""

    batch: Batch
    scale: Scale
    """What maps count in."""
    relative: Tensor
    """[R] its spread per spread of the row's context."""
    others: Tensor
    """[B, E] what all maps read beside the targets."""
    place: Tensor
    """[R]"""
    time: Tensor
    """[R] of the cutoff."""
    target: Tensor
    """[R, H] in units that maps count in; NaN = missing."""
    weight: Tensor
    """[R]"""


class Windows:
    """Windows of an index, block by block."""

    def __init__(self, network: Network, panel: Panel, config: Config, index: WindowIndex):
        """Takes what reads them.

        Args:
            network: with linear maps, its scales learned.
            panel: the table.
            config: resolved.
            index: the windows to solve over.
        """
        assert network.linear is not None
        self.network, self.linear = network, network.linear
        self._store, self._time = training_store(panel, config), panel.time
        self._index = index
        together = 1 if index.channels == panel.n_channels else panel.n_channels
        self._numbers = _drawn(len(index), MOST_ROWS // together)
        widest = max(weights.shape[1] for weights in self.linear.maps)
        read = (widest + self.linear.horizon) * together
        # Covariates of the past are no feature, but cut out with the rest.
        columns = together + panel.values.shape[1] - panel.n_channels
        cut = (self._store.context_length + self._store.horizon) * columns
        self._size = max(1, _CELLS // max(read, cut))
        own = index.count > 0
        last = index.first[own] + (index.count[own] - 1) * index.stride
        self._from = int(panel.time[index.first[own]].min()) if own.any() else 0
        self._until = int(panel.time[last].max()) if own.any() else -1

    def __len__(self) -> int:
        return len(self._numbers)

    def blocks(self) -> Iterator[Rows]:
        """Yields all rows."""
        return self.read(self._index, self._numbers)

    def some(self, most: int) -> Iterator[Rows]:
        """Yields the rows of an even draw of at most so many windows."""
        return self.read(self._index, self._numbers[_drawn(len(self), most)])

    def read(self, index: WindowIndex, numbers: Int64) -> Iterator[Rows]:
        """Yields the rows of windows of any index of the panel."""
        network, linear = self.network, self.linear
        for start in range(0, len(numbers), self._size):
            series, channel, cutoff = index.locate(numbers[start : start + self._size])
            batch = self._store.batch(series, channel if index.channels > 1 else None, cutoff)
            inputs = batch.inputs
            scale = network.scaler(inputs.context, inputs.observed, inputs.channel)
            known = network.known_scaler(inputs.known, inputs.known_observed)
            units = linear.units(inputs, scale)
            target = units.apply(batch.target).transpose(1, 2).flatten(0, 1)
            target = torch.where(target.isfinite(), target, torch.nan)
            spreads = relative(units, scale)
            # A target is far off by what its window knows, however little a season differs.
            far = target.abs().nan_to_num(0.0).amax(dim=1).double()
            if linear.apart is not None:
                far = far * spreads
            weight = (_FAR / far.clamp(min=_FAR)).square()
            others, place = linear.others(inputs, known), linear.place(inputs)
            time = torch.from_numpy(self._time[cutoff]).repeat_interleave(inputs.channel.shape[1])
            yield Rows(batch, units, spreads, others, place, time, target, weight)

    def features(self, rows: Rows, number: int) -> tuple[Tensor, Tensor]:
        """Returns [R, F] what a map reads, and [R, H] what it should say; float64.

        A row beyond float32 reads nothing and should say nothing.
        """
        features, level = self.linear.features(rows.batch.inputs, rows.scale, rows.others, number)
        finite = features.sum(dim=1).isfinite()
        features = torch.where(finite[:, None], features, 0.0)
        target = torch.where(finite[:, None], rows.target - level[:, None], torch.nan)
        return features.double(), target.double()

    def fold(self, rows: Rows) -> Tensor:
        """Returns [R] the quarter of these windows' time that a row falls into; `FOLDS` = none."""
        size = max(1, -(-(self._until - self._from + 1) // FOLDS))
        fold = (rows.time - self._from).div(size, rounding_mode="floor")
        return torch.where((rows.time < self._from) | (rows.time > self._until), FOLDS, fold)


def spans(network: Network, panel: Panel, config: Config, index: WindowIndex) -> list[Windows]:
    """Returns the windows of each span of the training cutoffs, the widest first."""
    wanted: list[int | None] = [*sorted(config.model.linear_spans or (), reverse=True)] or [None]
    return [Windows(network, panel, config, _recent(panel, index, span)) for span in wanted]


def _recent(panel: Panel, index: WindowIndex, span: int | None) -> WindowIndex:
    """Returns the windows whose cutoff is among the last so many steps of training cutoffs."""
    own = index.count > 0
    if span is None or not own.any():
        return index
    last = int(panel.time[index.first[own] + (index.count[own] - 1) * index.stride].max())
    begin = panel.rows_until(int(last - span * panel.calendar.step))
    late = np.maximum(0, -(-(begin - index.first) // index.stride))
    count = np.maximum(0, index.count - late)
    return WindowIndex(index.first + late * index.stride, count, index.stride, index.channels)


def _drawn(size: int, most: int) -> Int64:
    """Returns at most `most` of `size` numbers, rising; the same ones every time."""
    if size <= most:
        return np.arange(size)
    return np.sort(KeyedPermutation(size, seed=0, epoch=0)(np.arange(most)))
