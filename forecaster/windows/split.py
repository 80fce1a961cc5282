"""All cutoff arithmetic: training, validation and calibration windows.

One date splits all series, so no series trains on days on which another is validated; a training window
ends on or before it, a validation window starts after it. A second date separates the validation windows
of early stopping from the calibration windows.

                         split                     last observed target
    rows of a series       │                          │
    ├──────────────────────┤──────────────────────────┤╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌ future known rows
    [ context ]c[ horizon ]│                          │   last training window:   c + horizon ≤ split
                [ context ]c[ horizon ]               │   first validation window:           c = split
                           │  [ context ]c[ horizon ]     last validation window: c + horizon ≤ last

Cutoffs are counted back from each series' last row, `stride` steps apart: a stride of a day trains and
validates at the hour of the day at which the series is then forecast.

A window's context may reach back before the split, and before the series' first row, where cells
are masked. At least `patch` rows of the series lie in the context of a training window.

The rows after the split, where the last share of their cutoffs is left to calibration:

                    split                calibrated from              last observed target
    ─────────────────┤────────────────────────┤─────────────────────────────────┤
           [ context ]c[ horizon ]            │              first validation window:         c = split
                 [ context ]c[ horizon ]      │              last validation window: c + horizon ≤ from
                     │              [ context ]c[ horizon ]  first calibration window:        c = from

Calibration measures errors on targets that early stopping has not seen. The cutoffs between the two are
not used; they are at most half of all: where there are few cutoffs, validation horizons may reach past the
second date, which biases only the few numbers chosen there, such as the number of steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forecaster.config import Plan
from forecaster.errors import DataError
from forecaster.panel.panel import Panel
from forecaster.windows.index import Int64, WindowIndex, even_draw

MOST_WINDOWS = 1024
"""Validation windows, and calibration windows, at most; an even draw where there are more."""
FEWEST = 10
"""Cutoffs, over all series, that calibration needs: nine errors split the line into tenths."""


@dataclass(frozen=True)
class Split:
    """Training and validation windows of a panel."""

    train: WindowIndex
    validation: WindowIndex
    """Without windows when validation is off, or the table too short for one."""
    validation_windows: Int64
    """[n] numbers of the validation windows of early stopping: an even draw where there are many."""
    calibration_windows: Int64
    """[n] numbers of the validation windows left to the calibration of quantiles, drawn alike; none
    where that is off, or there are too few. Each cutoff lies after theirs."""
    split: int
    """Time of the last row that trains."""
    end: int
    """Time of the last observed target: what the artifact calls `trained_until`."""
    train_end: Int64
    """[series] row after the last one where scalers and categories may look."""


def split_panel(panel: Panel, plan: Plan) -> Split:
    """Returns the windows of a panel under a plan; DataError where not even one trains."""
    horizon, patch = plan.horizon, plan.model.patch
    # With channel attention a window holds all channels.
    of_window = (1, None) if plan.model.channel_attention else (panel.n_channels, panel.members)
    begin, last = panel.indptr[:-1], panel.last_observed
    end = panel.last_time()
    split = panel.split_time(horizon, plan.fit.validation)
    # The one rule both sides share: a window needs `patch` own rows before it and `horizon` after.
    at_split = np.minimum(panel.row_at(split), last)
    stride = plan.fit.stride
    none = WindowIndex(begin, np.zeros_like(begin), stride, *of_window)
    first = _same_phase(begin + patch - 1, last, stride)
    train = none.between(first, at_split - horizon)
    if len(train) == 0 and split < end:
        # Too short to set rows aside: train on everything rather than refuse.
        split, at_split = end, last
        train = none.between(first, at_split - horizon)
    if len(train) == 0:
        longest = panel.longest
        shorter = min(longest // 2, longest - patch)
        advice = (
            f"shorten --horizon to {shorter}" if shorter > 0 else f"lower model.patch below {patch}"
        )
        raise DataError(
            f"{panel.name}: horizon {horizon} is longer than the history allows: a training window "
            f"needs {patch} + {horizon} rows, the longest of {panel.n_series} series has {longest}; "
            f"{advice} or add history"
        )
    first = _same_phase(np.maximum(panel.row_at(split), begin + patch - 1), last, stride)
    validation = none.between(first, last - horizon)
    validating, calibrating = _shared_out(panel, plan, validation, split, end)
    return Split(train, validation, validating, calibrating, split, end, panel.rows_until(split))


def _shared_out(
    panel: Panel, plan: Plan, validation: WindowIndex, split: int, end: int
) -> tuple[Int64, Int64]:
    """Returns the numbers of the validation windows, and of the calibration windows."""
    share, horizon = plan.fit.calibration, plan.horizon
    everything = even_draw(len(validation), MOST_WINDOWS)
    steps = round((end - split) / panel.calendar.step)
    cutoffs = steps - horizon + 1
    # Steps from the last validation cutoff to the first after it.
    gap = min(horizon, (cutoffs + 1) // 2)
    kept = cutoffs - (gap - 1)
    if share is None or kept < 2:
        return everything, everything[:0]
    calibrating = min(max(1, round(share * kept)), kept - 1)
    since = end - int((horizon - 1 + calibrating) * panel.calendar.step)
    at = panel.row_at(since)
    stride = validation.stride
    final = validation.first + (validation.count - 1) * stride
    early = validation.between(validation.first, np.minimum(at - gap, final))
    first = _same_phase(np.maximum(at, validation.first), final, stride)
    later = validation.between(first, final)
    if len(early) == 0 or later.count.sum() < FEWEST:
        return everything, everything[:0]
    return _drawn(early, validation), _drawn(later, validation)


def _drawn(index: WindowIndex, among: WindowIndex) -> Int64:
    """Returns at most `MOST_WINDOWS` windows of an index, by their numbers in another, rising."""
    return among.numbers(*index.locate(even_draw(len(index), MOST_WINDOWS)))


def _same_phase(first: Int64, last: Int64, stride: int) -> Int64:
    """Returns the first cutoff from `first` on that is a multiple of the stride before the last row."""
    return first + (last - first) % stride
