"""Figures of classes: series with their classes, the steps that mattered, confusion and reliability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from forecaster.forecast import plots
from forecaster.panel.arrays import Array, Floats, Ints
from forecaster.panel.panel import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from forecaster.forecast.classification import Classification

_CHANNELS = 6  # drawn of a series
_CELLS = 15  # classes up to which a confusion has its counts written in
_LETTERS = 14  # of a class beside the confusion


def plot_classes(classification: Classification) -> Figure:
    """Returns the first few series with their class, or with the class of each step as a coloured line."""
    panel = classification.panel
    some = panel.numbers()[: plots.PANELS].tolist()
    figure, axes = plots.panel_grid(len(some))
    code, classes = classification.code, classification.classes
    count = np.bincount(code[code >= 0], minlength=len(classes))
    usual = [(int(k), classes[k]) for k in np.argsort(-count, kind="stable")]
    for axis, number in zip(axes, some, strict=False):
        shown = plots.last_steps(panel, number)
        time = _draw_values(axis, panel, shown)
        title = panel.series_names[number]
        if classification.per_step:
            _draw_classes(axis, time, code[shown], usual)
        else:
            best = np.nan_to_num(classification.probabilities[number]).max()
            title += (
                f": {classes[code[number]]} ({100 * best:.0f} %)" if code[number] >= 0 else ": none"
            )
        axis.set_title(title, fontsize=10, loc="left")
    if classification.per_step:
        plots.shared_legend(figure, axes[0])
    return figure


def plot_importance(panel: Panel, series: int, effect: Floats, title: str) -> Figure:
    """Returns one series, and under it what each step adds to the log-probability of its class.

    Args:
        effect: of the last steps of the series.
    """
    figure, (upper, lower) = plots.panel_grid(2, columns=1)
    end = int(panel.indptr[series + 1])
    time = _draw_values(upper, panel, slice(end - len(effect), end))
    upper.set_title(title, fontsize=10, loc="left")
    lower.bar(
        range(len(effect)) if panel.calendar.integer else time, effect, width=1.0, color=plots.BAND
    )
    if panel.calendar.integer:
        lower.set_xticks([])
    lower.set_title("log-probability of the class lost per hidden step", fontsize=10, loc="left")
    plots.tidy(lower)
    return figure


def plot_scores(classes: Sequence[str], counts: Ints, bins: tuple[Array, ...]) -> Figure:
    """Returns the confusion of classes, and how often predictions are right at each probability.

    Args:
        classes: [G] in words.
        counts: [G + 1, G] of `class_scores.confusion`.
        bins: of `class_scores.reliability`.
    """
    figure, (left, right) = plots.panel_grid(2)
    figure.set_size_inches(figure.get_figwidth(), 4.2)
    figure.subplots_adjust(left=0.11, top=0.91, bottom=0.14)
    shown = counts if counts[0].any() else counts[1:]
    names = (["other"] if counts[0].any() else []) + [*classes]
    shares = shown / np.maximum(shown.sum(axis=1, keepdims=True), 1)
    left.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    if len(classes) <= _CELLS:
        for row, column in np.ndindex(*shown.shape):
            dark = shares[row, column] > 0.5
            text = f"{shown[row, column]:,}"
            left.text(column, row, text, ha="center", va="center", fontsize=8,
                      color="white" if dark else plots.VALUES)  # fmt: skip
    left.set_title("true class (rows), predicted class (columns)", fontsize=10, loc="left")
    plots.tidy(left)
    left.grid(visible=False)
    left.set_xticks(range(len(classes)), [word[:_LETTERS] for word in classes])
    left.set_yticks(range(len(names)), [word[:_LETTERS] for word in names])
    share, mean, count = bins
    some = count > 0
    right.plot([0, 1], [0, 1], color=plots.VALUES, linewidth=0.8, linestyle="--")
    right.plot(mean[some], share[some], color=plots.BAND, marker="o", markersize=4, linewidth=1.4)
    right.set_xlabel("probability of the predicted class", fontsize=9)
    right.set_title("share of predictions that are right", fontsize=10, loc="left")
    plots.tidy(right)
    return figure


def _draw_values(axis: Axes, panel: Panel, rows: slice) -> Array:
    time = plots.axis_times(panel, panel.time[rows])
    colors = (plots.VALUES, plots.BAND, plots.TRUTH, "#6b8e4e", "#8a5fa8", "#b08d3c")
    for channel, color in zip(range(panel.n_channels), colors[:_CHANNELS], strict=False):
        axis.plot(time, panel.values[rows, channel], color=color, linewidth=1.0)
    plots.tidy(axis, dates=not panel.calendar.integer)
    return time


def _draw_classes(axis: Axes, time: Array, code: Ints, classes: Sequence[tuple[int, str]]) -> None:
    """Draws a dot per step, at the foot of the axis, in the colour of its class; the first is light."""
    colors = ("#c9ccd1", plots.TRUTH, "#6b8e4e", "#8a5fa8", "#d1a62c", "#a33b57")
    foot = axis.get_ylim()[0]
    for place, (number, word) in enumerate(classes):
        at = np.flatnonzero(code == number)
        color = colors[1 + (place - 1) % (len(colors) - 1)] if place else colors[0]
        axis.scatter(time[at], [foot] * len(at), color=color, s=12, marker="s", label=word)
