"""Windows cut out of a panel: (series, channel, cutoff) in, one `Batch` out, by one gather.

Every requested window has its horizon rows (`Panel.reaching`). The tensors of a batch are views of one
gathered block. A cell outside a series' own rows is masked, never read; the values of a window do not
depend on the other windows of the batch.

Axes: B batch of windows · W = L context + H horizon rows · C channel · X column · T history ·
D step of a driver · K driver · N calendar cycle · E window that reaches outside its series, F the table.

A window is W consecutive rows, so the flat store is looked at through an overlapping strided view
[row, W, X] and a batch is one `index_select` on it: 0.07 µs per window of 120 × 3, where index
arithmetic takes 0.95 µs and a DataLoader over single windows 8 µs and more.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forecaster.config import ModelPlan, Plan
from forecaster.panel.arrays import blocks, empty_beside, owners
from forecaster.panel.outliers import cleaned
from forecaster.panel.panel import MISSING, Panel
from forecaster.windows.batch import Batch, Inputs, no_effects, parts_of_effect
from forecaster.windows.effects import Effects
from forecaster.windows.index import Int64

_NAN, _FALSE = torch.tensor(torch.nan, dtype=torch.float64), torch.tensor(False)
_MOST_CLEAN = 1 << 23
"""Cells of windows without outliers that are kept."""
_STEPS, _SEASONS = 256, 4
"""Steps, and seasons, at the end of a history that are searched for outliers."""
_END, _SLIGHT = 8, 1e-6
"""Steps at the end of a context that tell whether it varies, and the share of its size by which it then does."""


@dataclass(frozen=True)
class _Edge:
    """Windows of a batch that reach outside their series."""

    windows: Tensor
    """[E] their places in the batch."""
    foreign: Tensor
    """[E, W] True where the window is outside."""
    beyond: Tensor
    """[F] which of them begin before the table, and are cut again, row by row."""
    rows: Tensor
    """[F, W] rows of the panel, kept inside the series."""

    def mended(self, block: Tensor, table: Tensor, rows: Tensor, empty: float) -> Tensor:
        """Returns the block [B, W, X], `empty` outside; windows that reach beyond are cut from rows of a table."""
        if len(rows):
            own = table.index_select(0, rows.flatten()).unflatten(0, rows.shape)
            block.index_copy_(0, self.windows[self.beyond], own)
        foreign = self.foreign[..., None]
        if len(self.windows) == len(block):
            return block.masked_fill_(foreign, empty)
        own = block.index_select(0, self.windows).masked_fill_(foreign, empty)
        return block.index_copy_(0, self.windows, own)


class WindowStore:
    """The arrays of one panel as tensors, ready to be gathered from."""

    def __init__(
        self,
        panel: Panel,
        plan: ModelPlan,
        horizon: int,
        effects: Effects | None = None,
        outliers: bool = False,
    ):
        """Wraps a panel's arrays; targets are what effects leave of them; `outliers`: windows keep theirs."""
        widest = max(plan.context_length, plan.pool.history_length) + horizon
        self._effect: Tensor | None = None
        self._effect_variance: Tensor | None = None
        self._calendar: Tensor | None = None
        if effects is not None:
            self._multiplies = torch.from_numpy(effects.multiplies)
            self._error_ratios = torch.from_numpy(effects.error_ratios(panel)).float()
            if effects.are_taken_out:
                effect = effects.of(panel)
                self._effect = _at_least(effect, horizon)
                variance = effects.variance(panel)
                if variance is not None:
                    self._effect_variance = _at_least(variance, horizon)
                panel = effects.removed(panel, effect, variance)
            if effects.calendar:
                self._calendar = _at_least(effects.of_calendar(panel), widest)
        self._has_effects = effects is not None
        self.context_length, self.horizon = plan.context_length, horizon
        self._width, self._history = plan.context_length + horizon, plan.pool.history_length
        self._schema, self._season = panel.schema, plan.pool.seasons[0]
        self._keeps_outliers = outliers or panel.schema.label is not None
        self._clean: dict[bytes, tuple[Tensor, Tensor] | None] = {}
        self._room = _MOST_CLEAN
        self._channels = panel.n_channels
        self._begin = torch.from_numpy(panel.indptr[:-1].copy())
        self._end = torch.from_numpy(panel.indptr[1:].copy())
        self._static = _tensor(panel.static)
        self._static_codes = torch.from_numpy(panel.static_codes.astype(np.int64)).clamp_(min=0)
        read = plan.attention_length or plan.context_length
        self._end_length = min(_END, read)
        self._driver_length = plan.pool.driver_length
        self._values = _at_least(panel.values, max(widest, self._driver_length))
        self._drivers = self._values[:, self._values.shape[1] - len(plan.pool.drivers) :]
        self._codes = _at_least(panel.codes, self._width)
        self._phase, self._phase_offset = self._phases(panel)
        self._elapsed = torch.arange(1 - self.context_length, horizon + 1, dtype=torch.float32)
        self._regular, self._step = panel.regular, panel.calendar.step
        self._time = _at_least(panel.time[:, None], self._width)

    def batch(
        self,
        series: Int64,
        channel: Int64 | None,
        cutoff: Int64,
        leads: int | None = None,
        history: bool = True,
    ) -> Batch:
        """Returns windows by series [B], the one channel each holds [B] (None = all), and cutoff row [B].

        Args:
            leads: known covariates that are missing after so many leads have the value of the last of these.
            history: False = NaN in its place, as networks are trained without experts; but the true one
                where some context may be constant or empty, for its scale is that of the history. Without it
                a window keeps its outliers: what is learned from was rid of them before.
        """
        length, width = self.context_length, self._width
        which, at = torch.from_numpy(series), torch.from_numpy(cutoff)
        one = None if channel is None or self._channels == 1 else torch.from_numpy(channel)
        start = at - (length - 1)
        edge = self._edge(which, start, width)
        if one is None:
            block = self._cut(self._values, start, edge, torch.nan, width)
            targets, covariates = block[..., : self._channels], block[..., self._channels :]
            real = _observed(block)
            target_real, covariate_real = real[..., : self._channels], real[..., self._channels :]
        else:
            targets = self._one_channel(one, start, edge, width)
            covariates = self._cut(self._values[:, self._channels :], start, edge, torch.nan, width)
            target_real, covariate_real = _observed(targets), _observed(covariates)
        codes = self._cut(self._codes, start, edge, 0, width)
        if leads is not None:
            last, after = slice(length + leads - 1, length + leads), slice(length + leads, None)
            for cells, empty in ((covariates, ~covariate_real), (codes, codes == MISSING)):
                cells[:, after] = torch.where(empty[:, after], cells[:, last], cells[:, after])
            covariate_real[:, after] |= covariate_real[:, last]
        # To the network a missing category is an unknown one.
        codes = codes.long().clamp_(min=0)
        past = (slice(None), slice(length), slice(len(self._schema.past_numeric)))
        known = (..., slice(len(self._schema.past_numeric), None))
        past_codes, known_codes = (
            len(names) for names in (self._schema.past_category, self._schema.known_category)
        )
        place = start + self._phase_offset.index_select(0, which)
        if history or _flat(targets[:, length - self._end_length : length]):
            so_far = self._history_of(which, one, at)
            so_far_real = _observed(so_far)
        else:
            left_out = len(which), self._history, targets.shape[2]
            so_far, so_far_real = _NAN.expand(left_out), _FALSE.expand(left_out)
        inputs = Inputs(
            context=targets[:, :length],
            observed=target_real[:, :length],
            past=covariates[past],
            past_observed=covariate_real[past],
            known=covariates[known],
            known_observed=covariate_real[known],
            static=self._static.index_select(0, which),
            static_category=self._static_codes.index_select(0, which),
            past_category=codes[:, :length, :past_codes],
            known_category=codes[..., past_codes : past_codes + known_codes],
            phase=_windows(self._phase, width).index_select(0, place),
            elapsed=self._elapsed_of(at, start, edge),
            channel=self._channels_of(at, one) + 1,
            history=so_far,
            history_observed=so_far_real,
            drivers=self._around(self._drivers, which, at, self._driver_length),
            **self._effects_of(which, one, at, history),
        )
        if history and not self._keeps_outliers:
            window = series.tobytes() + cutoff.tobytes()
            window += b"" if channel is None else channel.tobytes()
            inputs = self._without_outliers(inputs, window)
        truth = targets[:, length:] if self._schema.label is None else codes[:, :length, -1]
        return Batch(inputs, truth, which, at, self._time[at, 0])

    def _without_outliers(self, inputs: Inputs, window: bytes) -> Inputs:
        """Returns windows without outliers; those of equal series and cutoffs, as of a validation, are kept."""
        if window not in self._clean:
            found = without_outliers(inputs, self._season)
            parts = None if found is inputs else (found.context, found.history)
            if parts is not None:
                self._room -= sum(part.numel() for part in parts)
            if self._room < 0:
                return found
            self._clean[window] = parts
        clean = self._clean[window]
        return inputs if clean is None else replace(inputs, context=clean[0], history=clean[1])

    def _edge(self, which: Tensor, start: Tensor, width: int) -> _Edge | None:
        """Returns what is special about windows that reach outside their series; None = no window."""
        begin, end = self._begin.index_select(0, which), self._end.index_select(0, which)
        windows = ((start < begin) | (start > end - width)).nonzero()[:, 0]
        if len(windows) == 0:
            return None
        start, begin, end = start[windows, None], begin[windows, None], end[windows, None]
        steps = torch.arange(width, dtype=torch.int32)
        foreign = (steps < (begin - start).int()) | (steps >= (end - start).int())
        beyond = (start[:, 0] < 0).nonzero()[:, 0]
        rows = start[beyond] + torch.arange(width)
        return _Edge(windows, foreign, beyond, rows.clamp(begin[beyond], end[beyond] - 1))

    def _channels_of(self, at: Tensor, one: Tensor | None) -> Tensor:
        """Returns [B, C] the channels that windows hold, by place: a table may name them anew."""
        return torch.arange(self._channels).expand(len(at), -1) if one is None else one[:, None]

    def _around(
        self,
        table: Tensor,
        which: Tensor,
        at: Tensor,
        before: int,
        after: int = 0,
        empty: float = torch.nan,
    ) -> Tensor:
        """Returns [B, before + after, X] rows of a table up to the cutoff, and after it."""
        start, width = at - (before - 1), before + after
        edge = self._edge(which, start, width) if table.shape[1] else None
        return self._cut(table, start, edge, empty, width)

    def _cut(
        self, table: Tensor, start: Tensor, edge: _Edge | None, empty: float, width: int
    ) -> Tensor:
        """Returns [B, W, X] rows of a table from start on: the gather."""
        if table.shape[1] == 0:
            return table.new_empty((len(start), width, 0))
        block = _windows(table, width).index_select(0, start.clamp(min=0))
        return block if edge is None else edge.mended(block, table, edge.rows, empty)

    def _one_channel(self, channel: Tensor, start: Tensor, edge: _Edge | None, width: int) -> Tensor:
        """Returns [B, width, 1] targets of one channel of many.

        Seen flat, the cells of a channel lie `columns` apart, so the others are not copied.
        """
        columns = self._values.shape[1]
        flat = self._values.reshape(-1, 1)
        cells = (len(flat) - (width - 1) * columns, width, 1)
        wanted = start.clamp(min=0) * columns + channel
        block = flat.as_strided(cells, (1, columns, 1)).index_select(0, wanted)
        if edge is None:
            return block
        rows = edge.rows * columns + channel[edge.windows[edge.beyond], None]
        return edge.mended(block, flat, rows, torch.nan)

    def _history_of(self, which: Tensor, one: Tensor | None, at: Tensor) -> Tensor:
        """Returns [B, T, C] targets up to the cutoff, as far back as experts read."""
        width = self._history
        if one is None:
            return self._around(self._values[:, : self._channels], which, at, width)
        start = at - (width - 1)
        return self._one_channel(one, start, self._edge(which, start, width), width)

    def _effects_of(
        self, which: Tensor, one: Tensor | None, at: Tensor, history: bool
    ) -> dict[str, Tensor]:
        """Returns the fields of effects of windows by name."""
        places = self._channels_of(at, one)
        found = no_effects(*places.shape)
        if not self._has_effects:
            return found
        found["multiplies"] = self._multiplies[places]
        found["error_ratios"] = self._error_ratios[which[:, None], places]
        if self._effect is not None:
            effect = _windows(self._effect, self.horizon).index_select(0, at + 1)  # [B, H, C]
            found["effect"] = _of_channels(effect, places)
        if self._effect_variance is not None:
            variance = _windows(self._effect_variance, self.horizon).index_select(0, at + 1)
            found["effect_variance"] = _of_channels(variance, places)
        if self._calendar is not None and history:
            before = max(self.context_length, self._history)
            cells = self._around(self._calendar, which, at, before, self.horizon, empty=0.0)
            found["calendar"] = _of_channels(cells, places)
        return found

    def _elapsed_of(self, at: Tensor, start: Tensor, edge: _Edge | None) -> Tensor:
        if self._regular:
            return self._elapsed.expand(len(at), -1)
        times = self._cut(self._time, start, edge, 0, self._width)[..., 0]
        # The difference is taken in integers: float32 microseconds since 1970 err by minutes.
        elapsed = ((times - self._time[at]).double() / self._step).float()
        if edge is not None:
            own = elapsed[edge.windows]
            elapsed[edge.windows] = torch.where(edge.foreign, self._elapsed, own)
        return elapsed

    def _phases(self, panel: Panel) -> tuple[Tensor, Tensor]:
        """Returns phases [time, N] and, per series, what turns a row into a place in them.

        Where all series lie on one grid the table holds each of its timestamps once, else each row.
        W steps are added before the first, so that a padded context finds its place.
        """
        calendar, begin = panel.calendar, panel.indptr[:-1]
        own = np.flatnonzero(np.diff(panel.indptr))
        if len(own) == 0:
            return torch.zeros((self._width, len(calendar.cycles))), -self._begin
        starts = panel.time[begin[own]]
        first, last = int(starts.min()), int(panel.time[panel.indptr[own + 1] - 1].max())
        times, place = panel.time, begin
        if panel.regular:
            grid = calendar.grid(first, last)
            at = np.zeros(panel.n_series, np.int64)
            at[own] = np.searchsorted(grid, starts)
            # Series may be regular each on a grid of its own, as 12:00 and 12:30 by the hour.
            if _lies_on(grid, panel, at - begin):
                times, place = grid, np.minimum(at, len(grid) - 1)
        table = empty_beside(times, (self._width + len(times), len(calendar.cycles)), np.float32)
        table[: self._width] = calendar.phase(calendar.before(first, self._width))
        for rows in blocks(len(times)):
            table[rows.start + self._width : rows.stop + self._width] = calendar.phase(times[rows])
        return _tensor(table), torch.from_numpy(place + self._width) - self._begin


def training_store(
    panel: Panel, plan: Plan, effects: Effects | None = None, outliers: bool = False
) -> WindowStore:
    """Returns the store that a network of a plan is trained on: of what effects of covariates leave."""
    of_calendar = None if effects is None else effects.of_remainder(panel.calendar)
    return WindowStore(panel, plan.model, plan.horizon, of_calendar, outliers)


def without_outliers(inputs: Inputs, season: int) -> Inputs:
    """Returns windows whose history is without outliers, and at its last level (`panel.outliers`).

    What effects of the calendar explain is no outlier.
    """
    longer = max(inputs.history, inputs.context, key=lambda part: part.shape[1])
    steps, channels = longer.shape[1], longer.shape[2]
    factor, shift = longer.new_ones(()), longer.new_zeros(())
    if inputs.calendar.shape[1]:
        before = inputs.calendar.shape[1] - inputs.horizon
        calendar = inputs.calendar[:, before - steps : before]
        factor, shift = parts_of_effect(calendar, inputs.multiplies)
    remainder = longer / factor - shift
    rows = remainder.transpose(1, 2).flatten(0, 1).numpy()  # [B·C, T]
    searched = max(0, steps - max(_STEPS, _SEASONS * season))
    plain, changes = cleaned(rows[:, searched:], season)
    if not changes:
        return inputs
    earlier = rows[:, :searched].copy()
    for one in changes:
        if one.is_shift:
            own = earlier[one.series]
            earlier[one.series] = one.value + (own - one.level) * one.factor
    whole = torch.from_numpy(np.concatenate([earlier, plain], axis=1))
    unfolded = whole.unflatten(0, (-1, channels)).transpose(1, 2)
    cells = torch.where(unfolded == remainder, longer, (unfolded + shift) * factor)
    context, history = (cells[:, steps - part.shape[1] :] for part in (inputs.context, inputs.history))
    return replace(inputs, context=context, history=history)


def _of_channels(cells: Tensor, places: Tensor) -> Tensor:
    """Returns [B, T, C] the cells of the channels [B, C] that windows hold, of those of all channels."""
    if places.shape[1] == cells.shape[2]:
        return cells
    return cells.gather(2, places[:, None].expand(-1, cells.shape[1], -1))


def _windows(table: Tensor, width: int) -> Tensor:
    """Returns the overlapping view [row, W, X] of a table [row, X]."""
    rows, columns = table.shape
    step, across = table.stride()
    return table.as_strided(
        (max(0, rows - width + 1), width, columns), (step, step, across), table.storage_offset()
    )


def _flat(end: Tensor) -> bool:
    """Returns whether a channel of some window [B, W, C] may be constant or empty, by the end of its context."""
    real = _observed(end)
    low, high = (torch.where(real, end, empty) for empty in (torch.inf, -torch.inf))
    low, high = low.amin(dim=1), high.amax(dim=1)
    return not bool((high - low > _SLIGHT * torch.maximum(low.abs(), high.abs())).all())


def _observed(cells: Tensor) -> Tensor:
    """Returns True where a cell is not NaN, which alone differs from itself.

    By numpy, over the same memory: torch compares numbers one by one, in 20 times the time.
    """
    numbers = cells.numpy()
    return torch.from_numpy(numbers == numbers)


def _at_least(table: NDArray[np.float64 | np.int32 | np.int64], rows: int) -> Tensor:
    """Returns the array as a tensor over the same memory; a copy only where it is too short to cut."""
    tensor = _tensor(table)
    if len(tensor) >= rows:
        return tensor
    return torch.cat([tensor, tensor.new_zeros((rows - len(tensor), tensor.shape[1]))])


def _tensor(table: NDArray[Any]) -> Tensor:
    with warnings.catch_warnings():
        # Mapped files are opened for reading only, and here nothing is written.
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.from_numpy(table)


def _lies_on(grid: Int64, panel: Panel, shift: Int64) -> bool:
    """Whether every row's time is found in a grid, its series' shift away from the row."""
    for rows in blocks(panel.n_rows):
        place = np.arange(rows.start, rows.stop) + shift[owners(panel.indptr, rows)]
        if place.max() >= len(grid) or not np.array_equal(grid[place], panel.time[rows]):
            return False
    return True
