"""An `Explanation` as one page: no script, no other file, read on dark and light screens alike.

What comes in: an `Explanation`. What goes out: HTML text.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from forecaster.forecast import svg
from forecaster.forecast.explain_words import READING, STYLE, TITLES, heads_of, notes
from forecaster.forecast.page import page

if TYPE_CHECKING:
    from forecaster.forecast.explain import AttentionMap, Explanation, Token
    from forecaster.forecast.importance import Importance

_WIDTH, _LEFT, _RIGHT = 1120, 66, 14
_SIDE = 232  # of an attention map
_MOST_BARS = 30


def page_of(told: Explanation) -> str:
    """Returns the page."""
    parts = [
        f"<h1>What the forecast of {escape(told.title)} looked at</h1>",
        *(f"<p>{escape(line)}</p>" for line in notes(told)),
        "<h2>The forecast, and which steps it rests on</h2>",
        f"<figure>{_time_line(told)}<figcaption>{_legend(told)}</figcaption></figure>",
        "<h2>Without each covariate, and each cycle of the calendar</h2>",
        f"<figure>{_bars([one for one in told.importance if one.cells is None])}</figure>",
        "<h2>Attention, layer by layer</h2>",
        "<p>A row asks, a column answers; each map is coloured by its own largest weight, which stands "
        "above it. Hatched columns hold no observation and are never looked at.</p>",
    ]
    for part, title in TITLES.items():
        for one in told.maps:
            if one.part == part:
                parts.append(f"<h3>{title}, layer {one.layer} <small>({one.kind})</small></h3>")
                parts.append(f'<div class="maps">{"".join(_heads(told, one))}</div>')
    parts += ["<h2>How to read this</h2>", READING]
    return page(told.title, STYLE, svg.HATCH + "".join(parts))


def _legend(told: Explanation) -> str:
    said = ["Top: history, forecast with its widest band, and the truth where it is known."]
    if told.rollout is not None:
        said.append(
            "Middle: attention rollout, a row per token of the horizon; each side of the cutoff is "
            "coloured by its own largest share."
        )
    said.append(
        "Bottom: mean absolute change of the forecast when that part of the history is hidden, in "
        "units of the history's own spread."
    )
    return " ".join(said)


def _time_line(told: Explanation) -> str:
    """Forecast, rollout and importance of the context over one time axis."""
    steps, width = len(told.time), _WIDTH - _LEFT - _RIGHT
    place = _LEFT + (np.arange(steps) + 0.5) * width / steps
    parts, y = _chart(told, place), 292.0
    edge = _LEFT + len(told.history) * width / steps
    if told.rollout is not None:
        height = max(36.0, min(14.0 * len(told.horizon), 120.0))
        parts.append(svg.text(_LEFT - 6, y + 12, "rollout", "end"))
        # Tokens may hold several steps, the oldest fewer than the others.
        sizes = [one.stop - one.start for one in (*told.context, *told.horizon)]
        cells = np.repeat(told.rollout, sizes, axis=1)
        parts.append(svg.heat(cells[:, : len(told.history)], (_LEFT, y, edge - _LEFT, height)))
        parts.append(svg.heat(cells[:, len(told.history) :], (edge, y, _LEFT + width - edge, height)))
        parts += _frame(_LEFT, y, width, height)
        y += height + 14
    blocks = [one for one in told.importance if one.cells is not None]
    most = max((one.change for one in blocks), default=0.0) or 1.0
    parts.append(svg.text(_LEFT - 6, y + 10, f"{most:.2g}", "end"))
    parts.append(svg.text(_LEFT - 6, y + 70, "0", "end"))
    for one in blocks:
        start, stop = one.cells or (0, 0)
        x, height = _LEFT + start * width / steps, 70 * one.change / most
        wide = (stop - start) * width / steps
        title = f"without {told.name(one)}: {one.change:.3g}{_risen(one)}"
        parts.append(svg.rect(x + 1, y + 70 - height, wide - 2, height, "var(--blue)", title))
    parts.append(svg.rule(_LEFT, y + 70, _LEFT + width, y + 70))
    y += 88
    parts.append(svg.rule(edge, 8, edge, y - 18))
    text = told.forecast.panel.calendar.text
    for n in svg.spread(steps, 7):
        anchor = "start" if n == 0 else "end" if n == steps - 1 else "middle"
        parts.append(svg.text(place[n], y, text(int(told.time[n])), anchor))
    return svg.svg(_WIDTH, y + 8, f"Forecast of {told.title} over time", parts)


def _chart(told: Explanation, place: np.ndarray) -> list[str]:
    length, forecast = len(told.history), told.forecast
    quantiles = forecast.quantiles[0, :, told.channel].astype(np.float64)
    lines: list[np.ndarray] = [told.history, quantiles.ravel()]
    truth = None if forecast.actual is None else forecast.actual[0, :, told.channel]
    if truth is not None:
        lines.append(truth)
    every = np.concatenate(lines).astype(np.float64)
    low, high = float(np.nanmin(every)), float(np.nanmax(every))
    low, high = (low, high) if high > low else (low - 1, high + 1)

    def at(values: np.ndarray) -> np.ndarray:
        return 274 - 262 * (values.astype(np.float64) - low) / (high - low)

    parts = []
    for value in svg.ticks(low, high):
        y = float(at(np.array(value)))
        parts += [
            svg.rule(_LEFT, y, _WIDTH - _RIGHT, y),
            svg.text(_LEFT - 6, y + 4, f"{value:g}", "end"),
        ]
    ahead = place[length:]
    parts.append(svg.band(ahead, at(quantiles[:, 0]), at(quantiles[:, -1]), 0.25))
    parts.append(svg.line(place[:length], at(told.history), "var(--ink)"))
    parts.append(svg.line(ahead, at(quantiles[:, forecast.levels.index(0.5)]), "var(--blue)", 2.2))
    if truth is not None:
        parts.append(svg.line(ahead, at(truth), "var(--orange)"))
    return parts


def _bars(found: Sequence[Importance]) -> str:
    """Horizontal bars, the most important covariate on top."""
    if not found:
        return "<p>The model has neither covariates nor cycles of the calendar.</p>"
    shown = found[:_MOST_BARS]
    most = max(one.change for one in shown) or 1.0
    left, width, parts = 210, _WIDTH - 210 - 330, []
    for row, one in enumerate(shown):
        y = 24.0 * row + 4
        parts.append(svg.text(left - 8, y + 13, one.name, "end", "name"))
        length = width * one.change / most
        parts.append(svg.rect(left, y, max(length, 1), 17, "var(--blue)", one.name))
        said = f"{one.change:.3g} · {one.kind}{_risen(one)}"
        parts.append(svg.text(left + length + 8, y + 13, said))
    drawing = svg.svg(_WIDTH, 24 * len(shown) + 8, "Importance of each covariate", parts)
    left_out = len(found) - len(shown)
    rest = f" The {left_out} least important ones are left out." if left_out else ""
    return (
        f"{drawing}<figcaption>Mean absolute change of the forecast when it is hidden, in units of the "
        f"history's own spread, and by how much the loss rises where the truth is known.{rest}"
        "</figcaption>"
    )


def _risen(one: Importance) -> str:
    return "" if one.loss is None else f" · loss {one.loss:+.3g}"


def _heads(told: Explanation, one: AttentionMap) -> list[str]:
    return [_map(told, one, name, weights) for name, weights in heads_of(one)]


def _map(told: Explanation, one: AttentionMap, name: str, weights: np.ndarray) -> str:
    if one.names is not None:
        columns = tuple(str(n) for n in range(1, len(weights) + 1))
        rows = tuple(f"{n} {name}" for n, name in zip(columns, one.names, strict=False))
        masked: list[int] = []
    else:
        asks = told.context if one.part == "encoder" else told.horizon
        answers = told.horizon if one.part == "decoder" else told.context
        rows, columns = _names(told, asks), _names(told, answers)
        masked = [n for n, token in enumerate(answers) if not token.seen]
    left, top = 118.0, 20.0
    parts = [svg.text(left, 13, f"{name} · largest {np.abs(weights).max():.2g}", kind="name")]
    wide = _SIDE / len(columns)
    parts += [
        svg.rect(left + n * wide, top, wide, _SIDE, "url(#masked)", f"{columns[n]}: masked")
        for n in masked
    ]
    parts.append(svg.heat(weights, (left, top, _SIDE, _SIDE)))
    parts += _frame(left, top, _SIDE, _SIDE)
    for n in svg.spread(len(rows), 8):
        y = top + (n + 0.5) * _SIDE / len(rows)
        parts.append(svg.text(left - 5, y + 3.5, _short(rows[n]), "end"))
    bottom = top + _SIDE + 14
    if one.names is not None:
        for n in svg.spread(len(columns), 16):
            parts.append(svg.text(left + (n + 0.5) * wide, bottom, columns[n], "middle"))
    else:  # times are long: those of the first and the last
        parts.append(svg.text(left, bottom, columns[0]))
        if len(columns) > 1:
            parts.append(svg.text(left + _SIDE, bottom, columns[-1], "end"))
    return svg.svg(left + _SIDE + 10, top + _SIDE + 20, f"{one.part} {one.layer} {name}", parts)


def _names(told: Explanation, tokens: Sequence[Token]) -> tuple[str, ...]:
    text = told.forecast.panel.calendar.text
    return tuple(text(int(told.time[token.start])) for token in tokens)


def _short(name: str) -> str:
    return name if len(name) <= 19 else f"{name[:18]}…"


def _frame(x: float, y: float, width: float, height: float) -> list[str]:
    right, bottom = x + width, y + height
    return [
        svg.rule(x, y, right, y),
        svg.rule(x, bottom, right, bottom),
        svg.rule(x, y, x, bottom),
        svg.rule(right, y, right, bottom),
    ]
