"""The picture of a what-if: both forecasts, and their difference with its band beside them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from forecaster.forecast.forecast import Forecast
from forecaster.forecast.plots import (
    BAND,
    TITLE,
    TRUTH,
    VALUES,
    axis_times,
    draw_band,
    panel_grid,
    series_title,
    shared_legend,
    tidy,
)
from forecaster.forecast.totals_plot import past_totals
from forecaster.panel.panel import Only

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from forecaster.forecast.what_if import WhatIf

_ROWS = 3  # series and channels, or groups
_HISTORY = 2  # in horizons
_MARKED = 12  # points of a line that are few enough to be marked


def plot_what_if(found: WhatIf[Any], only: Only) -> Figure:
    """Returns both forecasts and their difference; a row per series and channel, or group, at most three."""
    rows = list(islice(_rows(found, only), _ROWS))
    figure, axes = panel_grid(2 * len(rows))
    order = np.argsort(found.base.levels)
    levels = tuple(found.base.levels[place] for place in order)
    changes = ", ".join(map(str, found.changes))
    for row, left, right in zip(rows, axes[::2], axes[1::2], strict=False):
        title, past, history, time, quantiles = row
        past, time = (axis_times(found.panel, part) for part in (past, time))
        base, changed, difference = (cells[:, order] for cells in quantiles)  # [H, Q]
        few = len(time) <= _MARKED
        left.plot(past, history, color=VALUES, linewidth=1.1, label="history")
        for cells, color, name in ((base, BAND, "base"), (changed, TRUTH, "what-if")):
            median = cells[:, levels.index(0.5)]
            left.plot(time, median, color=color, marker="o" if few else None, ms=3, label=name)
        right.axhline(0.0, color=VALUES, linewidth=0.8)
        draw_band(right, time, difference, levels)
        if few:
            right.vlines(time, difference[:, 0], difference[:, -1], color=BAND)
        for axis, text in ((left, title), (right, f"difference: {changes}")):
            axis.set_title(text, **TITLE)
            tidy(axis, dates=not found.panel.calendar.integer)
    shared_legend(figure, axes[0])
    return figure


def _rows(found: WhatIf[Any], only: Only) -> Iterator[tuple[Any, ...]]:
    """Yields title, times and values of the history, times and quantiles of base, what-if and difference."""
    base, panel = found.base, found.panel
    if not isinstance(base, Forecast):
        for group in dict.fromkeys(base.group.tolist()):
            own = base.group == group
            quantiles = [part.quantiles[own] for part in found.parts.values()]
            yield base.groups.names[group], *past_totals(base, group), base.period[own], quantiles
        return
    for number in panel.numbers(only).tolist():
        rows = slice(*panel.indptr[number : number + 2])
        seen = np.flatnonzero(panel.time[rows] <= base.cutoff[number])[-_HISTORY * base.time.shape[1] :]
        for channel in np.flatnonzero(panel.present[number]).tolist():
            title = series_title(panel, number, channel)
            history = panel.values[rows, channel][seen]
            quantiles = [part.quantiles[number, :, channel] for part in found.parts.values()]
            yield title, panel.time[rows][seen], history, base.time[number], quantiles
