"""The picture of a what-if: both forecasts, and their difference with its band beside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from forecaster.forecast.what_if import WhatIf, WhatIfTotals

_ROWS = 3  # series, or groups
_HISTORY = 2  # in horizons
_MARKED = 12  # points of a line that are few enough to be marked


class _Row(NamedTuple):
    title: str
    past: NDArray[np.int64]
    """Times of the history."""
    history: NDArray[np.float64]
    time: NDArray[np.int64]
    quantiles: list[NDArray[np.float64]]
    """[H, Q] of base, what-if and difference."""


def plot_forecasts(found: WhatIf, numbers: NDArray[np.int64]) -> Figure:
    """Returns forecasts and differences of some series; a row per channel, at most three."""
    panel, horizon = found.panel, found.base.time.shape[1]

    def rows() -> Iterator[_Row]:
        for number in numbers.tolist():
            begin, end = panel.indptr[number : number + 2]
            past = panel.time[begin:end]
            last = begin + int(np.searchsorted(past, found.base.cutoff[number], side="right"))
            before = slice(max(begin, last - _HISTORY * horizon), last)
            for channel in np.flatnonzero(panel.present[number]).tolist():
                yield _Row(
                    series_title(panel, number, channel),
                    panel.time[before],
                    panel.values[before, channel],
                    found.base.time[number],
                    [part.quantiles[number, :, channel] for part in found.parts.values()],
                )

    return _plot(found, rows(), found.base.levels)


def plot_totals(found: WhatIfTotals) -> Figure:
    """Returns totals and differences of some groups; a row per group, at most three."""

    def rows() -> Iterator[_Row]:
        for group in dict.fromkeys(found.base.group.tolist()):
            own = found.base.group == group
            quantiles = [part.quantiles[own] for part in found.parts.values()]
            name = found.base.groups.names[group]
            yield _Row(name, *past_totals(found.base, group), found.base.period[own], quantiles)

    return _plot(found, rows(), found.base.levels)


def _plot(found: Any, rows: Iterator[_Row], levels: tuple[float, ...]) -> Figure:
    shown = [row for row, _ in zip(rows, range(_ROWS), strict=False)]
    figure, axes = panel_grid(2 * len(shown))
    order = np.argsort(levels)
    rising = tuple(levels[place] for place in order)
    for row, left, right in zip(shown, axes[::2], axes[1::2], strict=False):
        past, time = (axis_times(found.panel, part) for part in (row.past, row.time))
        mark = "o" if len(time) <= _MARKED else None
        base, changed, difference = (quantiles[:, order] for quantiles in row.quantiles)
        middle = rising.index(0.5)
        left.plot(past, row.history, color=VALUES, linewidth=1.1, label="history")
        left.plot(time, base[:, middle], color=BAND, linewidth=1.5, marker=mark, ms=3, label="base")
        left.plot(
            time, changed[:, middle], color=TRUTH, linewidth=1.5, marker=mark, ms=3, label="what-if"
        )
        left.set_title(row.title, **TITLE)
        right.axhline(0.0, color=VALUES, linewidth=0.8)
        draw_band(right, time, difference, rising)
        if mark:
            right.vlines(time, difference[:, 0], difference[:, -1], color=BAND, linewidth=1.5)
        right.set_title(f"difference: {', '.join(map(str, found.changes))}", **TITLE)
        for axis in (left, right):
            tidy(axis, dates=not found.panel.calendar.integer)
    shared_legend(figure, axes[0])
    return figure
