"""Pictures of labels: values, the band one step ahead, and what lies outside of it.

What comes in: `Labels`. What goes out: a matplotlib `Figure`, free of any global state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from forecaster.forecast.plots import BAND, TRUTH, VALUES, grid_of, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from forecaster.forecast.detect import Labels

_STEPS = 400  # shown of a series, the last ones: more are a black bar
_MARKS = {2: ("^", "above"), 3: ("v", "below")}  # told apart by shape, not by colour alone


def plot_labels(labels: Labels, series: Iterable[int]) -> Figure:
    """Returns a figure with a panel per series and channel, at most six, of their last steps.

    Args:
        labels: of a table.
        series: numbers of the series to show.
    """
    shown = [(number, c) for number in series for c in range(labels.panel.n_channels)]
    figure, axes = grid_of(len(shown))
    for axis, (number, channel) in zip(axes, shown, strict=False):
        _draw(axis, labels, number, channel)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=max(1, len(names)), frameon=False)
    return figure


def _draw(axis: Axes, labels: Labels, series: int, channel: int) -> None:
    panel = labels.panel
    end = int(panel.indptr[series + 1])
    rows = slice(max(int(panel.indptr[series]), end - _STEPS), end)
    time = panel.time[rows]
    stamps = time if panel.calendar.integer else time.view("datetime64[us]")
    values, band = panel.values[rows, channel], labels.band[rows, channel]
    share = 100 * (labels.levels[1] - labels.levels[0])
    axis.fill_between(
        stamps, band[:, 0], band[:, 2], color=BAND, alpha=0.3, linewidth=0, label=f"{share:.0f} % band"
    )
    axis.plot(stamps, values, color=VALUES, linewidth=1.0, label="actual")
    for number, (mark, name) in _MARKS.items():
        found = labels.label[rows, channel] == number
        at = np.flatnonzero(found)
        axis.scatter(stamps[at], values[at], marker=mark, color=TRUTH, s=18, label=name, zorder=3)
    names = panel.schema.target
    title = f"{panel.labels[series]} · {names[channel]}"
    axis.set_title(title if len(names) > 1 or panel.n_series > 1 else names[0], fontsize=10, loc="left")
    tidy(axis, clock=not panel.calendar.integer)
