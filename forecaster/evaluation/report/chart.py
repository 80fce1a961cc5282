"""A small drawing with two axes, sized so that its words can be read on a phone.

What comes in: lines, bars and bands in their own units. What goes out: a `<figure>` with a caption.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forecaster.evaluation.report.numbers import short
from forecaster.forecast import svg

Floats = NDArray[np.floating[Any]]

_WIDTH, _HEIGHT = 360.0, 236.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 20.0, 22.0, 38.0
_MOST_MARKS = 9


@dataclass(frozen=True)
class Look:
    """How a line is told from the others: by colour, by dashes and by marks; "band" is an area."""

    color: str
    dash: str = ""
    mark: str = ""
    width: float = 1.5


@dataclass(frozen=True)
class Line:
    """One line of a chart; NaN leaves a gap."""

    name: str
    x: Floats
    y: Floats
    look: Look


@dataclass(frozen=True)
class Bar:
    """One bar of a chart."""

    left: float
    right: float
    height: float
    title: str
    hatched: bool = False


@dataclass(frozen=True)
class Band:
    """The area between two lines of a chart."""

    x: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Chart:
    """What is drawn into one frame."""

    title: str
    """What a reader sees in it, as a heading."""
    label: str
    """The same for those who cannot see it, with its main figures."""
    x_name: str
    y_name: str
    lines: Sequence[Line] = ()
    bars: Sequence[Bar] = ()
    bands: Sequence[Band] = ()
    across: Sequence[float] = ()
    """Levels that a thin dashed line marks."""
    upright: Sequence[float] = ()
    """The same for places along x."""
    y_range: tuple[float, float] | None = None
    """None = all that is drawn."""
    from_zero: bool = False
    """Whether y begins at 0, as that of errors should."""
    x_text: Callable[[float], str] = short
    y_text: Callable[[float], str] = short
    whole: bool = False
    """Whether only whole numbers stand along x."""
    ends: bool = False
    """Whether only the ends of x are named, where names are long."""
    note: str = field(default="")
    """What stands below it."""


def figure(chart: Chart) -> str:
    """Returns a figure with its title; where there is nothing to draw, that is said."""
    caption = f"<h3>{escape(chart.title)}</h3>"
    note = f"<figcaption>{escape(chart.note)}</figcaption>" if chart.note else ""
    spans = _spans(chart)
    if spans is None:
        return (
            f'<figure>{caption}<p class="none">Nothing to draw: no cell was scored.</p>{note}</figure>'
        )
    return f"<figure>{caption}{_drawing(chart, *spans)}{note}</figure>"


def _spans(chart: Chart) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Returns the ranges of both axes."""
    xs = [line.x[np.isfinite(line.y)] for line in chart.lines]
    ys = [line.y for line in chart.lines]
    for bar in chart.bars:
        xs.append(np.array([bar.left, bar.right]))
        ys.append(np.array([0.0, bar.height]))
    for band in chart.bands:
        xs.append(band.x[np.isfinite(band.low)])
        ys += [band.low, band.high]
    x, y = (np.concatenate([np.zeros(0), *parts]) for parts in (xs, ys))
    x, y = x[np.isfinite(x)], np.append(y[np.isfinite(y)], chart.across)
    if not len(x) or not len(y):
        return None
    wide = _widened(float(x.min()), float(x.max()), 0.5 if chart.whole else 0.0)
    if chart.y_range is not None:
        return wide, chart.y_range
    low, high = float(y.min()), float(y.max())
    room = 0.05 * (high - low)
    if chart.from_zero:
        low = min(0.0, low)
    return wide, _widened(low if low == 0 else low - room, high + room, abs(high) or 1.0)


def _widened(low: float, high: float, least: float) -> tuple[float, float]:
    return (low, high) if high > low else (low - (least or 0.5), high + (least or 0.5))


def _drawing(chart: Chart, wide: tuple[float, float], tall: tuple[float, float]) -> str:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def along(x: Floats) -> Floats:
        return _LEFT + (right - _LEFT) * (np.asarray(x, np.float64) - wide[0]) / (wide[1] - wide[0])

    def up(y: Floats) -> Floats:
        inside = np.clip(np.asarray(y, np.float64), *tall)
        return bottom - (bottom - _TOP) * (inside - tall[0]) / (tall[1] - tall[0])

    parts = _axes(chart, wide, tall, along, up)
    for bar in chart.bars:
        left, end = (float(along(np.array(x))) for x in (bar.left, bar.right))
        top, foot = sorted(float(up(np.array(y))) for y in (bar.height, max(0.0, tall[0])))
        fill = "url(#masked)" if bar.hatched else "var(--blue)"
        gap = min(1.0, 0.15 * (end - left))
        parts.append(svg.rect(left + gap, top, end - left - 2 * gap, foot - top, fill, bar.title))
        if bar.hatched:
            parts.append(_outline(left + gap, top, end - left - 2 * gap, foot - top))
    for band in chart.bands:
        x, low, high = along(band.x), up(band.low), up(band.high)
        real = np.isfinite(low) & np.isfinite(high)
        if real.any():
            parts += _band(x[real], low[real], high[real])
    parts += [_dashed(_LEFT, y, right, y) for y in up(np.array(chart.across)).tolist()]
    parts += [_dashed(x, _TOP, x, bottom) for x in along(np.array(chart.upright)).tolist()]
    for line in reversed(chart.lines):  # ours, the first, is drawn above the others
        parts += _line(line, along, up, chart)
    return svg.svg(_WIDTH, _HEIGHT, chart.label, parts)


def _axes(
    chart: Chart,
    wide: tuple[float, float],
    tall: tuple[float, float],
    along: Callable[[Floats], Floats],
    up: Callable[[Floats], Floats],
) -> list[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = []
    for value in svg.ticks(*tall):
        y = float(up(np.array(value)))
        parts.append(svg.rule(_LEFT, y, right, y))
        parts.append(svg.text(_LEFT - 5, y + 4, chart.y_text(value), "end"))
    if chart.ends:
        parts.append(svg.text(_LEFT, bottom + 15, chart.x_text(wide[0])))
        parts.append(svg.text(right, bottom + 15, chart.x_text(wide[1]), "end"))
    else:
        for value in svg.ticks(*wide, 5):
            if not chart.whole or value == round(value):
                x = float(along(np.array(value)))
                parts.append(svg.rule(x, bottom, x, bottom + 4))
                parts.append(svg.text(x, bottom + 15, chart.x_text(value), "middle"))
    parts.append(svg.rule(_LEFT, bottom, right, bottom))
    parts.append(svg.text((_LEFT + right) / 2, _HEIGHT - 6, chart.x_name, "middle"))
    parts.append(svg.text(2, 11, chart.y_name))
    return parts


def _line(
    line: Line, along: Callable[[Floats], Floats], up: Callable[[Floats], Floats], chart: Chart
) -> list[str]:
    look = line.look
    x, y = along(line.x), up(line.y)
    parts = [svg.line(x, y, look.color, look.width, look.dash)]
    real = np.flatnonzero(np.isfinite(line.y))
    if look.mark and len(real):
        for n in (real[i] for i in svg.spread(len(real), _MOST_MARKS)):
            title = f"{line.name}, {chart.x_text(line.x[n])}: {chart.y_text(_rounded(line.y[n]))}"
            parts.append(svg.mark(x[n], y[n], look.mark, look.color, title))
    return parts


def key(names: Sequence[str], looks: Sequence[Look]) -> str:
    """Returns what says which line is which, once for several charts."""
    samples = []
    for name, look in zip(names, looks, strict=True):
        ends = np.array([1.0, 33.0])
        drawn = [svg.line(ends, np.array([6.0, 6.0]), look.color, look.width, look.dash)]
        if look.mark == "band":
            drawn = _band(ends, np.array([1.0, 1.0]), np.array([11.0, 11.0]))
        elif look.mark:
            drawn.append(svg.mark(17, 6, look.mark, look.color))
        samples.append(
            f'<span><svg viewBox="0 0 34 12" width="34" height="12" aria-hidden="true">{"".join(drawn)}'
            f"</svg> {escape(name)}</span>"
        )
    return f'<p class="key">{"".join(samples)}</p>'


def _band(x: Floats, low: Floats, high: Floats) -> list[str]:
    edges = [svg.line(x, edge, "var(--blue)", 0.8, "2 2") for edge in (low, high)]
    return [svg.band(x, low, high, 0.2), *edges]


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _dashed(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="var(--ink)" '
        'stroke-width="1.2" stroke-dasharray="5 3" stroke-opacity=".75"/>'
    )


def _outline(x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" fill="none" '
        'stroke="var(--ink)" stroke-opacity=".6"/>'
    )
