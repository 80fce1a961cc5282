"""All cutoff arithmetic: which windows train and which are validated.

What comes in: a panel. What goes out: two window indices and the dates that separate them.
Promised: one date splits all series, so no series trains on days on which another is validated;
a training window ends on or before it, a validation window starts after it.

                         split                     last observed target
    rows of a series       │                          │
    ├──────────────────────┤──────────────────────────┤╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌ future known rows
    [ context ]c[ horizon ]│                          │   last training window:   c + horizon ≤ split
                [ context ]c[ horizon ]               │   first validation window:           c = split
                           │  [ context ]c[ horizon ]     last validation window: c + horizon ≤ last

A window's context may reach back before the split, and before the series' first row, where cells
are masked. `patch` rows of the series must lie in the context of a training window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forecaster.config import Config
from forecaster.errors import DataError
from forecaster.panel.panel import Panel
from forecaster.windows.index import Int64, KeyedPermutation, WindowIndex


@dataclass(frozen=True)
class Split:
    """Training and validation windows of a panel."""

    train: WindowIndex
    validation: WindowIndex
    """Without windows when validation is off, or the table too short for one."""
    held: Int64
    """[n] numbers of the validation windows that are watched: all, or an even draw of them."""
    calibration: Int64
    """[n] numbers of the validation windows left to the calibration of quantiles; all after `held`."""
    split: int
    """Time of the last row that trains."""
    end: int
    """Time of the last observed target: what the artifact calls `trained_until`."""
    train_end: Int64
    """[series] row after the last one where scalers and categories may look."""


def split_panel(panel: Panel, config: Config) -> Split:
    """Returns the training and validation windows of a panel under a resolved config.

    Raises:
        DataError: no series has enough rows for a single training window.
    """
    horizon, patch = config.horizon, config.model.patch
    assert horizon is not None and patch is not None  # a resolved config has both
    # With channel attention a window holds all channels.
    channels = 1 if config.model.channel_attention else panel.n_channels
    begin, last = panel.indptr[:-1], panel.last_observed
    if (last < 0).all():
        raise DataError(f"{panel.name}: no target is observed in any of {panel.n_series} series")
    end = int(panel.time[last[last >= 0]].max())
    split = _split_time(panel, end, horizon, config.fit.validation)
    # The one rule both sides share: a window needs `patch` own rows before it and `horizon` after.
    at_split = np.minimum(panel.row_at(split), last)
    train = _between(begin + patch - 1, at_split - horizon, config.fit.stride, channels)
    if len(train) == 0 and split < end:
        # Too short to set rows aside: train on everything rather than refuse.
        split, at_split = end, last
        train = _between(begin + patch - 1, at_split - horizon, config.fit.stride, channels)
    if len(train) == 0:
        longest = int((last - begin + 1).max())
        shorter = min(longest // 2, longest - patch)
        advice = (
            f"shorten --horizon to {shorter}" if shorter > 0 else f"lower model.patch below {patch}"
        )
        raise DataError(
            f"{panel.name}: horizon {horizon} is longer than the history allows: a training window "
            f"needs {patch} + {horizon} rows, the longest of {panel.n_series} series has {longest}; "
            f"{advice} or add history"
        )
    first = np.maximum(panel.row_at(split), begin + patch - 1)
    validation = _between(first, last - horizon, 1, channels)
    held = _drawn(len(validation), config.fit.validation_windows)
    return Split(train, validation, held, held[:0], split, end, panel.rows_until(split))


def split_time(panel: Panel, config: Config) -> int:
    """Returns the time of the last row that trains, as far as it does not depend on the model."""
    assert config.horizon is not None
    last = panel.last_observed
    end = int(panel.time[last[last >= 0]].max())
    return _split_time(panel, end, config.horizon, config.fit.validation)


def _drawn(size: int, most: int) -> Int64:
    """Returns at most `most` of `size` numbers, rising, the same ones every time.

    Drawn by the permutation, not by a stride: one that divides the day would watch a single hour of
    it, and one longer than a series' own cutoffs only the first of each.
    """
    if size <= most:
        return np.arange(size)
    return np.sort(KeyedPermutation(size, seed=0, epoch=0)(np.arange(most)))


def _split_time(panel: Panel, end: int, horizon: int, share: float | None) -> int:
    if share is None:
        return end
    begin = int(panel.time[panel.indptr[:-1][np.diff(panel.indptr) > 0]].min())
    steps = (end - begin) / panel.calendar.step + 1
    held_steps = max(horizon, round(share * steps))
    wanted = end - held_steps * panel.calendar.step
    earlier = panel.row_at(int(wanted))
    return int(panel.time[earlier[earlier >= 0]].max()) if (earlier >= 0).any() else end


def _between(first: Int64, last: Int64, stride: int, channels: int) -> WindowIndex:
    span = last - first
    count = np.where(span >= 0, span // stride + 1, 0)
    return WindowIndex(first.astype(np.int64), count.astype(np.int64), stride, channels)
