"""Windows cut out of a panel: (series, channel, cutoff) in, one `Batch` out, by one gather.

What comes in: a panel whose every wanted window has its horizon rows (`Panel.reaching`). What goes
out: batches whose tensors are views of one gathered block. Promised: a cell outside a series' own
rows is masked, never read; the values of a window do not depend on the windows beside it.

Axes: B batch of windows · W = L context + H horizon rows · C channel · X column.

A window is W consecutive rows, so the flat store is looked at through an overlapping strided view
[row, W, X] and a batch is one `index_select` on it: 0.07 µs per window of 120 × 3, where index
arithmetic takes 0.95 µs and a DataLoader over single windows 8 µs and more.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forecaster.panel.panel import Panel
from forecaster.windows.batch import Batch, Inputs
from forecaster.windows.index import Int64


class WindowStore:
    """The arrays of one panel as tensors, ready to be gathered from."""

    def __init__(self, panel: Panel, context_length: int, horizon: int, channel: Int64):
        """Wraps a panel's arrays; nothing that grows with the number of windows is made.

        Args:
            panel: the flat store.
            context_length: L.
            horizon: H.
            channel: [C] the model's code of each channel of the panel, 0 = new to it.
        """
        self.context_length, self.horizon = context_length, horizon
        self._width = context_length + horizon
        self._schema = panel.schema
        self._channels = panel.n_channels
        self._begin = torch.from_numpy(panel.indptr[:-1].copy())
        self._end = torch.from_numpy(panel.indptr[1:].copy())
        self._channel = torch.from_numpy(channel.astype(np.int64))
        self._static = torch.from_numpy(panel.static)
        self._static_codes = torch.from_numpy(panel.static_codes.astype(np.int64))
        self._values = _at_least(panel.values, self._width)
        self._codes = _at_least(panel.codes, self._width)
        self._phase, self._phase_offset = self._phases(panel)
        self._elapsed = torch.arange(1 - context_length, horizon + 1, dtype=torch.float32)
        self._time: Tensor | None = None
        if not panel.regular:
            self._time = torch.from_numpy(panel.time)
            self._step = panel.calendar.step

    def batch(self, series: Int64, channel: Int64 | None, cutoff: Int64) -> Batch:
        """Returns the windows of given cutoffs.

        Args:
            series: [B] number of the series.
            channel: [B] number of the one channel each window holds; None = all channels.
            cutoff: [B] row of the last observed step.
        """
        length = self.context_length
        which, at = torch.from_numpy(series), torch.from_numpy(cutoff)
        start = at - (length - 1)
        begin, end = self._begin[which], self._end[which]
        foreign = None
        if bool(((start < begin) | (start + self._width > end)).any()):
            rows = start[:, None] + torch.arange(self._width)
            foreign = (rows < begin[:, None]) | (rows >= end[:, None])
        targets, covariates = self._numbers(start, channel, foreign)
        n_past = len(self._schema.past_numeric)
        past, known = covariates[:, :length, :n_past], covariates[:, :, n_past:]
        codes = self._categories(start, foreign)
        n_past_codes = len(self._schema.past_category)
        context = targets[:, :length]
        inputs = Inputs(
            context=context,
            observed=~context.isnan(),
            past=past,
            past_observed=~past.isnan(),
            known=known,
            known_observed=~known.isnan(),
            static=self._static[which],
            static_category=self._static_codes[which],
            past_category=codes[:, :length, :n_past_codes],
            known_category=codes[:, :, n_past_codes:],
            phase=_windows(self._phase, self._width).index_select(0, start + self._phase_offset[which]),
            elapsed=self._elapsed_of(at, start, foreign),
            channel=self._channel.expand(len(which), -1)
            if channel is None
            else self._channel[torch.from_numpy(channel)][:, None],
        )
        return Batch(inputs, targets[:, length:], which, at)

    def _numbers(
        self, start: Tensor, channel: Int64 | None, foreign: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Returns targets [B, W, C or 1] and covariates [B, W, P + K]."""
        count, columns = self._channels, self._values.shape[1]
        if channel is None or count == 1:
            block = self._cut(self._values, start)
            if foreign is not None:
                block.masked_fill_(foreign[..., None], torch.nan)
            return block[..., :count], block[..., count:]
        # One channel of many: seen flat, its cells lie `columns` apart, so the others are not copied.
        flat = self._values.reshape(-1, 1)
        cells = (len(flat) - (self._width - 1) * columns, self._width)
        wanted = start * columns + torch.from_numpy(channel)
        early = start < 0
        targets = flat.as_strided(cells, (1, columns)).index_select(0, wanted.clamp(min=0))
        if early.any():
            rows = (start[early][:, None] + torch.arange(self._width)).clamp(min=0)
            targets[early] = self._values[rows, torch.from_numpy(channel)[early][:, None]]
        covariates = self._cut(self._values[:, count:], start)
        if foreign is not None:
            targets.masked_fill_(foreign, torch.nan)
            covariates.masked_fill_(foreign[..., None], torch.nan)
        return targets[..., None], covariates

    def _categories(self, start: Tensor, foreign: Tensor | None) -> Tensor:
        codes = self._cut(self._codes, start)
        if foreign is not None:
            codes.masked_fill_(foreign[..., None], 0)
        return codes.long()

    def _cut(self, table: Tensor, start: Tensor) -> Tensor:
        """Returns [B, W, X]: the gather. Rows before the store repeat its first; they are foreign."""
        if table.shape[1] == 0:
            return table.new_empty((len(start), self._width, 0))
        block = _windows(table, self._width).index_select(0, start.clamp(min=0))
        early = start < 0
        if early.any():
            rows = (start[early][:, None] + torch.arange(self._width)).clamp(min=0)
            block[early] = table[rows]
        return block

    def _elapsed_of(self, at: Tensor, start: Tensor, foreign: Tensor | None) -> Tensor:
        if self._time is None:
            return self._elapsed.expand(len(at), -1)
        rows = start[:, None] + torch.arange(self._width)
        times = self._time[rows.clamp(0, len(self._time) - 1)]
        # The difference is taken in integers: float32 microseconds since 1970 err by minutes.
        elapsed = ((times - self._time[at][:, None]).double() / self._step).float()
        return elapsed if foreign is None else torch.where(foreign, self._elapsed, elapsed)

    def _phases(self, panel: Panel) -> tuple[Tensor, Tensor]:
        """Returns phases [time, N] and, per series, what turns a row into a place in them.

        Where all series lie on one grid the table holds each of its timestamps once, else each row.
        W steps are added before the first, so that a padded context finds its place.
        """
        calendar, begin = panel.calendar, panel.indptr[:-1]
        if len(panel.time) == 0:
            return torch.zeros((self._width, len(calendar.cycles))), -self._begin
        first, last = int(panel.time.min()), int(panel.time.max())
        times, place = panel.time, begin
        if panel.regular:
            grid = calendar.grid(first, last)
            at = np.searchsorted(grid, np.append(panel.time, first)[begin])
            rows = np.arange(panel.n_rows) + np.repeat(at - begin, np.diff(panel.indptr))
            # Series may be regular each on a grid of its own, as 12:00 and 12:30 by the hour.
            if np.array_equal(np.append(grid, 0)[np.minimum(rows, len(grid))], panel.time):
                times, place = grid, np.minimum(at, len(grid) - 1)
        table = calendar.phase(np.concatenate([calendar.before(first, self._width), times]))
        return torch.from_numpy(table), torch.from_numpy(place + self._width) - self._begin


def _windows(table: Tensor, width: int) -> Tensor:
    """Returns the overlapping view [row, W, X] of a table [row, X]."""
    rows, columns = table.shape
    step, across = table.stride()
    return table.as_strided(
        (max(0, rows - width + 1), width, columns), (step, step, across), table.storage_offset()
    )


def _at_least(table: NDArray[np.float32] | NDArray[np.int32], rows: int) -> Tensor:
    """Returns the array as a tensor over the same memory; a copy only where it is too short to cut."""
    tensor = torch.from_numpy(table)
    if len(tensor) >= rows:
        return tensor
    return torch.cat([tensor, tensor.new_zeros((rows - len(tensor), tensor.shape[1]))])
