"""A drawing of effects: a panel per covariate and part of the calendar, with intervals of 90 %.

Covariates of two values share a panel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from forecaster.forecast.effect_report import EffectReport
from forecaster.forecast.plots import BAND, TITLE, VALUES, WIDTH, tidy
from forecaster.panel.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

_COLUMNS, _HEIGHT = 3, 2.1  # panels beside each other, inches of one
_MOST_BARS = 12  # levels, else a curve
_MOST_TICKS = 5


def plot_effects(report: EffectReport) -> Figure:
    """Returns a figure of all panels."""
    from forecaster.forecast.plain_figure import PlainFigure

    figure = PlainFigure(figsize=(WIDTH, effects_height(report)), dpi=110, layout="constrained")
    draw_effects(figure, report)
    return figure


def effects_height(report: EffectReport) -> float:
    """Returns the inches that the drawing needs."""
    return _HEIGHT * _rows(report) + 0.3


def draw_effects(figure: FigureBase, report: EffectReport) -> None:
    """Draws all panels."""
    unit = "%" if report.unit == "%" else f"units of {report.unit}"
    title = f"Effects in {unit}, intervals of 90 %"
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    panels = _panels(report)
    axes = figure.subplots(_rows(report), _COLUMNS, squeeze=False).ravel()
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for axis, (name, along, effect) in zip(axes, panels, strict=False):
        tidy(axis)
        axis.set_title(name, **TITLE)
        if isinstance(along, list) and len(along) <= _MOST_BARS:
            _draw_bars(axis, along, effect)
        else:
            _draw_curve(axis, along, effect)


def _rows(report: EffectReport) -> int:
    return max(1, -(-len(_panels(report)) // _COLUMNS))


def _panels(report: EffectReport) -> list[tuple[str, list[str] | Floats, Floats]]:
    """Titles, levels or values of a number, and effects [n, 3] of panels."""
    found: list[tuple[str, list[str] | Floats, Floats]] = []
    covariates = [term for term in report.terms if term.kind == "covariate"]
    switches = [
        pair
        for term in covariates
        for pair in term.named(_MOST_BARS)
        if not pair[0].startswith(f"{term.name}, each unit")
    ]
    if switches:
        names, effects = zip(*switches[:_MOST_BARS], strict=True)
        found.append(("known covariates", [*names], np.array(effects)))
    curves = (term for term in covariates if len(np.unique(term.x)) > 1)
    found += [(term.name, term.x, term.curve) for term in curves]
    others = [term for term in report.terms if term.kind != "covariate" and term.certain]
    return found + [(term.name, term.levels, term.effect) for term in others]


def _draw_bars(axis: Axes, names: list[str], effect: Floats) -> None:
    """Draws a bar per level, the first on top."""
    places = np.arange(len(names))
    axis.barh(places, effect[:, 0], 0.6, color=BAND, alpha=0.6)
    axis.hlines(places, effect[:, 1], effect[:, 2], color=VALUES, linewidth=1.4)
    axis.axvline(0.0, color=VALUES, linewidth=0.6)
    axis.set_yticks(places, names, fontsize=7)
    axis.set_ylim(max(len(names), 3) - 0.4, -0.6)  # no bar is as high as the panel


def _draw_curve(axis: Axes, along: list[str] | Floats, effect: Floats) -> None:
    x = np.arange(len(along)) if isinstance(along, list) else along
    axis.fill_between(x, effect[:, 1], effect[:, 2], color=BAND, alpha=0.2, linewidth=0)
    axis.plot(x, effect[:, 0], color=BAND, linewidth=1.4)
    axis.axhline(0.0, color=VALUES, linewidth=0.6)
    axis.margins(x=0)
    if isinstance(along, list):
        ticks = np.linspace(0, len(along) - 1, _MOST_TICKS).round().astype(int)
        axis.set_xticks(ticks, [along[place] for place in ticks], fontsize=7)
