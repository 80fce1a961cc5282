"""Pictures of forecasts: history, median, bands, and the truth where it is known.

What comes in: a `Forecast`. What goes out: a matplotlib `Figure`, free of any global state.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from forecaster.forecast.forecast import Forecast

_PANELS = 6  # more do not fit a screen
VALUES, BAND, TRUTH = "#33373d", "#1f6fb2", "#d1662c"
"""Colours of what was observed, of what is forecast, and of the truth that followed."""
_HISTORY_HORIZONS = 3  # history shown, in horizons


def plot_forecast(forecast: Forecast, which: NDArray[np.int64]) -> Figure:
    """Returns a figure with a panel per forecast and channel, at most six.

    Args:
        forecast: quantiles and the panel they belong to.
        which: numbers of the forecasts to show.
    """
    channels = forecast.panel.schema.target
    shown = [(int(n), c) for n in which for c in range(len(channels))][:_PANELS]
    figure, axes = grid_of(len(shown))
    for axis, (number, channel) in zip(axes, shown, strict=False):
        _draw(axis, forecast, number, channel)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure


def figure_svg(figure: Figure, label: str = "") -> str:
    """Returns a figure as SVG text for a page.

    Args:
        figure: of matplotlib.
        label: read out in place of the picture.
    """
    import matplotlib

    # Text stays text: it can be searched, and the page is a fifth of the size that glyphs take.
    settings = {"svg.fonttype": "none", "svg.hashsalt": "forecaster"}
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    buffer = io.StringIO()
    with matplotlib.rc_context(settings):
        figure.savefig(buffer, format="svg", metadata=nothing)
    text = buffer.getvalue()
    # Several figures share a page: no group keeps its id, and the page names no address.
    text = re.sub(r'(<g) id="[^"]*"| xmlns(:xlink)?="[^"]*"', r"\1", text[text.index("<svg ") :])
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)


def grid_of(count: int) -> tuple[Figure, list[Axes]]:
    """Returns a figure and its panels, two in a row, at most six."""
    from matplotlib.figure import Figure

    count = min(count, _PANELS)
    columns = 1 if count == 1 else 2
    rows = max(1, -(-count // columns))
    figure = Figure(figsize=(6.4 * columns, 2.9 * rows + 0.4), dpi=110, layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    for axis in axes[count:]:
        axis.set_visible(False)
    return figure, list(axes)


def tidy(axis: Axes, clock: bool) -> None:
    """Takes away what distracts, and writes dates short where the axis has any."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    _quiet(axis)
    if clock:
        locator = AutoDateLocator()
        axis.xaxis.set_major_locator(locator)
        axis.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def plot_curves(curves: Mapping[str, Sequence[tuple[int, float]]]) -> Figure:
    """Returns the loss curves of a training over its steps.

    Args:
        curves: (step, loss) pairs by name, as the learner records them.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.2), dpi=110, layout="constrained")
    axis = figure.subplots()
    for (name, points), color in zip(curves.items(), (VALUES, BAND), strict=False):
        steps, losses = zip(*points, strict=True)
        axis.plot(steps, losses, color=color, label=name.replace("_", " "), linewidth=1.4)
    axis.set_xlabel("step")
    axis.set_ylabel("pinball loss, scaled units")
    if curves:  # fewer steps than one point of a curve takes leave none
        axis.legend(frameon=False)
    _quiet(axis)
    return figure


def _draw(axis: Axes, forecast: Forecast, number: int, channel: int) -> None:
    panel, series = forecast.panel, int(forecast.series[number])
    horizon = forecast.time.shape[1]
    begin, end = int(panel.indptr[series]), int(panel.indptr[series + 1])
    own_time = panel.time[begin:end]
    past = begin + int(np.searchsorted(own_time, forecast.cutoff[number], side="right"))
    rows = slice(max(begin, past - _HISTORY_HORIZONS * horizon), past)
    time = _stamps(forecast, forecast.time[number])
    # Said outright: a panel without a single number would show the year 1970.
    axis.set_xlim(_stamps(forecast, np.append(panel.time[rows], forecast.time[number, 0]))[0], time[-1])
    axis.plot(
        _stamps(forecast, panel.time[rows]),
        panel.values[rows, channel],
        color=VALUES,
        linewidth=1.1,
        label="history",
    )
    quantiles = forecast.quantiles[number, :, channel]
    for (low, high), alpha in zip(_bands(forecast.levels), (0.16, 0.32), strict=False):
        axis.fill_between(
            time,
            quantiles[:, low],
            quantiles[:, high],
            color=BAND,
            alpha=alpha,
            linewidth=0,
            label=f"{100 * (forecast.levels[high] - forecast.levels[low]):.0f} % band",
        )
    median = forecast.median[number, :, channel]
    axis.plot(time, median, color=BAND, linewidth=1.5, label="forecast")
    if forecast.actual is not None:
        truth = forecast.actual[number, :, channel]
        axis.plot(time, truth, color=TRUTH, linewidth=1.1, label="actual")
    name = panel.labels[series]
    channels = panel.schema.target
    title = f"{name} · {channels[channel]}" if len(channels) > 1 or panel.n_series > 1 else channels[0]
    if forecast.status[number] != "ok":
        title += f" — {forecast.status[number]}"
    axis.set_title(title, fontsize=10, loc="left")
    tidy(axis, clock=not panel.calendar.integer)


def _bands(levels: tuple[float, ...]) -> list[tuple[int, int]]:
    """Returns the outermost and a middle pair of levels around the median."""
    middle = levels.index(0.5)
    reach = min(middle, len(levels) - 1 - middle)
    return [(middle - r, middle + r) for r in sorted({reach, reach // 2}, reverse=True) if r > 0]


def _stamps(forecast: Forecast, time: NDArray[np.int64]) -> NDArray[Any]:
    # int64 microseconds since 1970 are numpy's own datetime64[us].
    return time if forecast.panel.calendar.integer else time.view("datetime64[us]")


def _quiet(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.tick_params(labelsize=8)
