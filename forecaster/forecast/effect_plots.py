"""A drawing of effects: a panel per covariate and part of the calendar, with intervals of 90 %.

Covariates of two values share a panel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from forecaster.forecast.effect_report import EffectReport, Floats, TermEffect
from forecaster.forecast.plots import BAND, TITLE, VALUES, WIDTH, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

_COLUMNS, _HEIGHT = 3, 2.1  # panels beside each other, inches of one
_MOST_BARS = 31  # levels, else a curve
_MOST_EVENTS = 10
_MOST_TICKS = 5
_MOST_NAMES = 12  # levels with a name each, of the calendar by three letters
_ERROR: dict[str, Any] = {"fmt": "none", "ecolor": VALUES, "elinewidth": 1.0, "capsize": 2}


def plot_effects(report: EffectReport) -> Figure:
    """Returns a figure of all panels."""
    from forecaster.forecast.plain_figure import PlainFigure

    size = (WIDTH, max(_HEIGHT, effects_height(report)))
    figure = PlainFigure(figsize=size, dpi=110, layout="constrained")
    draw_effects(figure, report)
    return figure


def effects_height(report: EffectReport) -> float:
    """Returns the inches that the drawing needs; 0 without any effect."""
    rows = -(-len(_panels(report)) // _COLUMNS)
    return _HEIGHT * rows + 0.3 * bool(rows)


def draw_effects(figure: FigureBase, report: EffectReport) -> None:
    """Draws all panels."""
    panels = _panels(report)
    rows = max(1, -(-len(panels) // _COLUMNS))
    unit = "%" if report.unit == "%" else f"units of {report.unit}"
    title = f"Effects in {unit}, intervals of 90 %"
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    axes = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for axis, (name, draw) in zip(axes, panels, strict=False):
        axis.set_title(name, **TITLE)
        tidy(axis)
        draw(axis)


def _panels(report: EffectReport) -> list[tuple[str, Callable[[Axes], None]]]:
    """Titles of panels and what draws them."""
    found: list[tuple[str, Callable[[Axes], None]]] = []
    events = [
        level
        for term in report.terms
        if term.kind == "covariate"
        for level in term.all
        if not (len(term.x) and level[0].startswith(f"{term.name}, each "))
    ]
    if events:
        found.append(("known covariates", partial(_draw_events, events[:_MOST_EVENTS])))
    for term in report.terms:
        if len(term.x):
            found.append((term.name, partial(_draw_curve, term.x, term.curve)))
        elif term.kind == "words" or (term.kind == "calendar" and term.certain):
            found.append((term.name, partial(_draw_levels, term)))
    return found


def _draw_events(events: list[tuple[str, Floats]], axis: Axes) -> None:
    """Draws a bar per level from left to right, the first on top."""
    places = np.arange(len(events))
    effect = np.array([effect for _, effect in events])
    axis.barh(places, effect[:, 0], 0.6, color=BAND, alpha=0.6)
    axis.errorbar(effect[:, 0], places, xerr=_reach(effect), **_ERROR)
    axis.axvline(0.0, color=VALUES, linewidth=0.6)
    axis.set_yticks(places, [name for name, _ in events])
    axis.set_ylim(max(len(events), 3) - 0.4, -0.6)


def _draw_levels(term: TermEffect, axis: Axes) -> None:
    """Draws a bar per level, or a curve of many."""
    count = len(term.levels)
    places = np.arange(count)
    if count > _MOST_BARS:
        _draw_curve(places.astype(np.float64), term.effect, axis)
    else:
        axis.bar(places, term.effect[:, 0], 0.7, color=BAND, alpha=0.6)
        axis.errorbar(places, term.effect[:, 0], yerr=_reach(term.effect), **_ERROR)
        axis.axhline(0.0, color=VALUES, linewidth=0.6)
    few = count <= _MOST_NAMES
    ticks = places if few else np.linspace(0, count - 1, _MOST_TICKS).round().astype(int)
    names = [term.levels[place] for place in ticks]
    if few and term.kind == "calendar":
        names = [name[:3] for name in names]
    axis.set_xticks(ticks, names, fontsize=7)


def _draw_curve(x: Floats, curve: Floats, axis: Axes) -> None:
    axis.fill_between(x, curve[:, 1], curve[:, 2], color=BAND, alpha=0.2, linewidth=0)
    axis.plot(x, curve[:, 0], color=BAND, linewidth=1.4)
    axis.axhline(0.0, color=VALUES, linewidth=0.6)
    axis.set_xlim(x[0], x[-1])


def _reach(effect: Floats) -> Floats:
    """[2, n] from an effect to the ends of its interval."""
    return np.abs(effect[:, 1:] - effect[:, :1]).T
