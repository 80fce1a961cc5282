"""The picture of totals: past ones, forecasts and their bands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from forecaster.forecast.plots import (
    BAND,
    PANELS,
    TITLE,
    VALUES,
    axis_times,
    panel_grid,
    shared_legend,
    tidy,
)
from forecaster.forecast.totals import HORIZON
from forecaster.panel.arrays import Floats, Ints

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from forecaster.forecast.totals import Totals

_PAST = 12  # past totals at most


def plot_totals(totals: Totals) -> Figure:
    """Returns past totals, forecasts and outermost bands as bars; a panel per group, at most six."""
    shown = list(dict.fromkeys(totals.group.tolist()))[:PANELS]
    figure, axes = panel_grid(len(shown))
    integer = totals.panel.calendar.integer
    for axis, group in zip(axes, shown, strict=False):
        rows = np.flatnonzero(totals.group == group)
        past, sums = past_totals(totals, group)
        time = np.append(past, totals.period[rows])
        width = 0.7 * float(np.median(np.diff(time))) if len(time) > 1 else 1.0
        start, starts = (axis_times(totals.panel, part) for part in (totals.period[rows], past))
        bar = width if integer else np.timedelta64(int(width), "us")
        axis.bar(starts, sums, bar, color=VALUES, alpha=0.45, label="history")
        partial = np.array(["partial" in status for status in totals.status[rows]])
        for chosen, alpha, label in (
            (~partial, 0.75, "forecast"),
            (partial, 0.35, "forecast, partial period"),
        ):
            if chosen.any():
                heights = totals.median[rows][chosen]
                axis.bar(start[chosen], heights, bar, color=BAND, alpha=alpha, label=label)
        outermost = [int(np.argmin(totals.levels)), int(np.argmax(totals.levels))]
        low, high = totals.quantiles[rows][:, outermost].T
        share = f"{100 * float(np.ptp(totals.levels)):.0f} % band"
        axis.vlines(start, low, high, color=VALUES, linewidth=1.6, label=share)
        axis.set_title(totals.groups.names[group], **TITLE)
        tidy(axis, dates=not integer)
    shared_legend(figure, axes[0])
    return figure


def past_totals(totals: Totals, group: int) -> tuple[Ints, Floats]:
    """Returns the first times and the sums of past periods of a group in which every cell is observed."""
    panel, request = totals.panel, totals.request
    series, channel = np.nonzero(totals.groups.number == group)
    first = int(totals.period[totals.group == group].min())
    times, values = [], []
    for number, column in zip(series, channel, strict=True):
        rows = slice(int(panel.indptr[number]), int(panel.indptr[number + 1]))
        before = panel.time[rows] < first
        times.append(panel.time[rows][before])
        values.append(panel.values[rows, column][before])
    time, value = np.concatenate(times), np.concatenate(values)
    if not len(time):
        return time, value
    if request.period == HORIZON:
        steps = int(totals.steps[totals.group == group].max())
        back = panel.calendar.steps(time, int(time.max()))  # 0 of the last step
        start = panel.calendar.shift(int(time.max()), -(back // steps + 1) * steps + 1)
    else:
        start = request.starts(panel, time)
    periods, place = np.unique(start, return_inverse=True)
    sums = np.bincount(place, value)
    count = np.bincount(place)
    # Months differ in length; of a horizon, the first may be cut short, or a series begin within.
    enough = count.max() * (1.0 if request.period == HORIZON else 0.8)
    whole = (count >= enough) & np.isfinite(sums)
    return periods[whole][-_PAST:], sums[whole][-_PAST:]
