"""Figures of forecasts and loss curves, drawn with matplotlib; free of any global state.

A page shows a figure as SVG text (`figure_svg`).
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from forecaster.forecast.bands import UNSCALED
from forecaster.lazy import Axes, Figure
from forecaster.panel.arrays import Array, Floats, Ints
from forecaster.panel.panel import Panel

if TYPE_CHECKING:
    from forecaster.forecast.forecast import Forecast

VALUES, BAND, TRUTH = "#33373d", "#1f6fb2", "#d1662c"
"""Colours of history, forecast and truth."""
TITLE: dict[str, Any] = {"fontsize": 9, "loc": "left", "y": 1.0}  # a fixed place takes no layout
"""Of the axes of a page."""
WIDTH = 11.5
"""Inches of a figure with several panels in a row: the width of a page."""
PANELS = 6
"""Of a figure: more do not fit a screen."""
_STEPS = 400  # of a series in a picture: more are a black bar
_HISTORY_HORIZONS = 3  # history shown, in horizons


def plot_forecast(forecast: Forecast, which: Ints) -> Figure:
    """Returns history, median, bands and truth of some forecasts; a panel per channel, at most six."""
    channels = forecast.panel.n_channels
    there = forecast.panel.present[forecast.series]
    shown = [(int(n), c) for n in which for c in range(channels) if there[n, c]][:PANELS]
    figure, axes = panel_grid(len(shown))
    for axis, (number, channel) in zip(axes, shown, strict=False):
        draw_forecast(axis, forecast, number, channel)
    shared_legend(figure, axes[0])
    return figure


def plot_curves(curves: Mapping[str, Sequence[Sequence[float]]]) -> Figure:
    """Returns the loss curves of a training: (step, loss) pairs by name."""
    figure, (axis,) = panel_grid(1)
    for (name, points), color in zip(curves.items(), (VALUES, BAND), strict=False):
        steps, losses = zip(*points, strict=True)
        axis.plot(steps, losses, color=color, label=name.replace("_", " "), linewidth=1.4)
    axis.set_xlabel("step")
    axis.set_ylabel("pinball loss, scaled units")
    if curves:  # fewer steps than one point of a curve takes leave none
        axis.legend(frameon=False)
    tidy(axis)
    return figure


def plot_ranking(rows: Mapping[str, Sequence[float]], marked: str, label: str) -> Figure:
    """Returns a row per name, from above: a dot at the value, a bar from low to high; one is marked."""
    figure, (axis,) = panel_grid(1)
    height, place = 1.0 + 0.26 * len(rows), range(len(rows))
    figure.set_size_inches(5.0, height)  # readable at the width of a telephone
    figure.subplots_adjust(left=0.34, right=0.97, top=0.98, bottom=0.6 / height)
    value, low, high = zip(*rows.values(), strict=True)
    colors = [BAND if name == marked else VALUES for name in rows]
    axis.hlines(place, low, high, colors=colors, linewidth=4.0, alpha=0.3)
    axis.scatter(value, place, color=colors, s=25, zorder=3)
    axis.axvline(rows[marked][0], color=BAND, linewidth=1.0, linestyle="--")
    axis.set_xlabel(label, fontsize=9)
    tidy(axis)
    axis.set_yticks(place, list(rows))
    axis.invert_yaxis()
    return figure


def figure_svg(figure: Figure, label: str = "") -> str:
    """Returns a figure as SVG text to be inlined in a page; `label` is read out in its place."""
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


def panel_grid(count: int, columns: int = 2) -> tuple[Figure, list[Axes]]:
    """Returns a figure and its axes, at most six, row by row."""
    from forecaster.forecast.plain_figure import PlainFigure

    count = max(1, min(count, PANELS))
    columns = min(count, columns)
    rows = -(-count // columns)
    width, height = (WIDTH if columns > 1 else 6.4), 2.8 * rows + 0.5
    figure = PlainFigure(figsize=(width, height), dpi=110)
    # Margins in inches: a layout engine would draw everything three times.
    figure.subplots_adjust(
        left=0.65 / width,
        right=1 - 0.15 / width,
        bottom=0.5 / height,
        top=1 - 0.75 / height,
        wspace=0.2,
        hspace=0.35,
    )
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axis in axes[count:]:
        axis.set_visible(False)
    return figure, axes


def shared_legend(figure: Figure, axis: Axes) -> None:
    """Puts the legend of one axis above all."""
    handles, names = axis.get_legend_handles_labels()
    figure.legend(handles, names, loc="upper center", ncols=max(1, len(names)), frameon=False)


def series_title(panel: Panel, series: int, channel: int) -> str:
    """Returns the name of a channel, after that of its series where there are several of either."""
    names = panel.schema.target
    title = f"{panel.series_names[series]} · {names[channel]}"
    return title if len(names) > 1 or panel.n_series > 1 else names[0]


def last_steps(panel: Panel, series: int, around: int | None = None) -> slice:
    """Returns the rows of a series that a picture of its steps shows: the last ones, or those around a row."""
    begin, end = int(panel.indptr[series]), int(panel.indptr[series + 1])
    if around is not None:
        end = min(end, max(around + _STEPS // 2, begin + _STEPS))
    return slice(max(begin, end - _STEPS), end)


def axis_times(panel: Panel, time: Ints) -> Array:
    """Returns times as matplotlib takes them: int64 microseconds since 1970 are datetime64[us]."""
    return time if panel.calendar.integer else time.view("datetime64[us]")


def draw_band(axis: Axes, time: Array, quantiles: Floats, levels: tuple[float, ...]) -> None:
    """Draws median and bands of quantiles [H, Q]: the outermost pair of levels, and a middle one."""
    middle = levels.index(0.5)
    widest = min(middle, len(levels) - 1 - middle)
    pairs = [(middle - r, middle + r) for r in sorted({widest, widest // 2}, reverse=True) if r > 0]
    for (low, high), alpha in zip(pairs, (0.16, 0.32), strict=False):
        share = f"{100 * (levels[high] - levels[low]):.0f} % band"
        lower, upper = quantiles[:, low], quantiles[:, high]
        axis.fill_between(time, lower, upper, color=BAND, alpha=alpha, linewidth=0, label=share)
    axis.plot(time, quantiles[:, middle], color=BAND, linewidth=1.5, label="forecast")


def draw_forecast(axis: Axes, forecast: Forecast, number: int, channel: int) -> None:
    """Draws history, bands, median and truth of one forecast."""
    panel, series = forecast.panel, int(forecast.series[number])
    horizon = forecast.time.shape[1]
    begin, end = int(panel.indptr[series]), int(panel.indptr[series + 1])
    past = begin + int(np.searchsorted(panel.time[begin:end], forecast.cutoff[number], side="right"))
    rows = slice(max(begin, past - _HISTORY_HORIZONS * horizon), past)
    history, time = (axis_times(panel, t) for t in (panel.time[rows], forecast.time[number]))
    # Set explicitly: a panel without a single number would show the year 1970.
    axis.set_xlim(history[0] if len(history) else time[0], time[-1])
    axis.plot(history, panel.values[rows, channel], color=VALUES, linewidth=1.1, label="history")
    draw_band(axis, time, forecast.quantiles[number, :, channel], forecast.levels)
    if forecast.actual is not None:
        truth = forecast.actual[number, :, channel]
        axis.plot(time, truth, color=TRUTH, linewidth=1.1, label="actual")
    status = forecast.status[number * panel.n_channels + channel].removesuffix(UNSCALED)
    title = series_title(panel, series, channel) + f" — {status}" * (status != "ok")
    axis.set_title(title, fontsize=10, loc="left", y=1.0)
    tidy(axis, dates=not panel.calendar.integer)


def tidy(axis: Axes, dates: bool = False) -> None:
    """Removes the frame, adds a light grid, and writes dates short where the axis has any."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import MaxNLocator

    from forecaster.forecast.plain_figure import PlainNumbers

    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", alpha=0.25, linewidth=0.6)
    axis.tick_params(labelsize=8)
    axis.yaxis.set_major_locator(MaxNLocator(5))
    axis.yaxis.set_major_formatter(PlainNumbers())
    if dates:
        locator = AutoDateLocator()
        axis.xaxis.set_major_locator(locator)
        axis.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    else:
        axis.xaxis.set_major_locator(MaxNLocator(6))
        axis.xaxis.set_major_formatter(PlainNumbers())
