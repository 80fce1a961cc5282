"""An `Explanation` as one page: no script, no other file, read on dark and light screens alike.

What comes in: an `Explanation`. What goes out: HTML text.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forecaster.forecast import svg
from forecaster.forecast.svg import spread
from forecaster.forecast.writer import html_page

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from forecaster.forecast.explain import AttentionMap, Explanation, Importance, Token


TITLES = {
    "encoder": "Encoder: the context looks at itself",
    "encoder channels": "Encoder: channels look at each other",
    "decoder": "Decoder: the horizon looks at itself",
    "decoder channels": "Decoder: channels of the horizon look at each other",
    "cross": "Cross-attention: the horizon looks at the context",
}
"""By part of the network, in the order of the page."""

READING = """
<p><b>Attention maps.</b> Each token holds one patch of steps and is named by its first. The strong
cells of a row are where that token took its values from. In a causal decoder everything right of
the diagonal is blank: no token sees a later one. A token that met nothing has an empty row.</p>
<p><b>Rollout</b> (Abnar and Zuidema, 2020) follows attention through all layers: heads are
averaged, the way around each layer counts as much as the layer itself, and layers are multiplied. A
row says how much of each token is left in what the forecast of that patch is made from. Right of the
cutoff is what a token of the horizon holds of itself and of others beside it: the calendar and known
covariates. Compare shares within a side: how much both sides hold follows from the number of layers
alone.</p>
<p><b>Without each.</b> One thing at a time is hidden, as if it had never been observed, and the
forecast is made again. Of the context both values and past covariates are hidden, and the scale is
taken from what is left. Things that stand in for each other each look unimportant, for the other is
still there.</p>
<p><b>What this does not prove.</b> A large weight is not a reason. Weights mix vectors that earlier
layers have already mixed, values may be small where weights are large, and other weights can give
the same forecast. Rollout knows nothing of values and of feed-forward layers. Hiding a thing
shows what this model does without it at this one cutoff: not what would happen in the world if it
changed, and not how much it matters elsewhere.</p>
"""

STYLE = ".maps{display:flex;flex-wrap:wrap;gap:.4rem}"
"""Beside that of every page."""

_KINDS = {
    "local": "A token of a local attention meets neighbours alone: the map is a band.",
    "strided": "A token of a strided attention meets neighbours and every so-manieth token.",
    "sparse": "In a sparse attention a token that does not stand out takes an even share of all: its "
    "row is a plain one.",
    "low_rank": "A low-rank attention has no map of its own: tokens meet mixtures of all others. Its "
    "maps are what this comes to for each token; they may be negative (orange) and need not sum to 1, "
    "so there is no rollout.",
}


def notes(told: Explanation) -> list[str]:
    """Returns what must be known to read the page of this model."""
    forecast, model = told.forecast, told.model
    length, steps = len(told.history), len(told.time)
    masked = sum(not token.seen for token in told.context)
    said = [
        f"Cutoff {told.span(length - 1, length)}; {steps - length} steps ahead, until "
        f"{told.span(steps - 1, steps)}. {len(told.context)} tokens of {model.patch} steps in the "
        f"context ({masked} without an observation), {len(told.horizon)} of {model.decoder_patch} in "
        f"the horizon; {model.heads} heads."
    ]
    if told.attention:
        said.append(f"{told.attention[0].upper()}{told.attention[1:]}.")
    kinds = {one.kind for one in told.maps}
    said += [words for kind, words in _KINDS.items() if kind in kinds]
    if model.decoder == "autoregressive":
        said.append(
            "The decoder follows its own values. Its maps are those of one path, which is told the "
            "median of all paths as if it had written that itself."
        )
    if model.channel_attention:
        said.append(
            "Channels look at each other in every layer; maps across channels are means over tokens. "
            "Rollout follows time within this channel, and leaves out what came from the others."
        )
    if forecast.actual is not None:
        said.append("The truth of these steps is in the table: it was not shown to the model.")
    return said


def heads_of(one: AttentionMap) -> list[tuple[str, NDArray[np.float32]]]:
    """Returns names and weights [query, key] of what there is to draw: the mean of heads, then each."""
    if len(one.weights) == 1:
        return [("the head", one.weights[0])]
    each = [(f"head {n}", weights) for n, weights in enumerate(one.weights, start=1)]
    return [("mean of heads", one.weights.mean(axis=0)), *each]


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
    return html_page(told.title, STYLE, svg.HATCH + "".join(parts))


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


_HISTORY, _FORECAST, _TRUTH = "#33373d", "#1f6fb2", "#d1662c"
_MOST_BARS = 12
_Panel = tuple["AttentionMap", str, NDArray[np.float32]]
_COLUMNS = 5  # attention maps beside each other at most


def plot_explanation(told: Explanation) -> Figure:
    """Returns the figure."""
    from matplotlib.figure import Figure

    maps = _panels(told)
    columns = max(len(row) for row in maps)
    bars = [one for one in told.importance if one.cells is None][:_MOST_BARS]
    tall = [3.0, 1.3 if told.rollout is not None else 0.01, 1.1, 0.5 + 0.24 * max(len(bars), 1)]
    figure = Figure(figsize=(12, sum(tall) + 2.3 * len(maps) + 1.2), dpi=110, layout="constrained")
    ratios = [*tall, *[2.3] * len(maps)]
    grid = figure.add_gridspec(len(ratios), columns, height_ratios=ratios)
    time = figure.add_subplot(grid[0, :])
    _draw_forecast(time, told)
    figure.suptitle(f"What the forecast of {told.title} looked at", fontsize=13)
    if told.rollout is not None:
        _draw_rollout(figure.add_subplot(grid[1, :], sharex=time), told)
    _draw_blocks(figure.add_subplot(grid[2, :], sharex=time), told)
    axis = figure.add_subplot(grid[3, :])
    axis.barh([one.name for one in bars], [one.change for one in bars], color=_FORECAST)
    axis.invert_yaxis()
    axis.set_title("change of the forecast without each covariate, in spreads", fontsize=10, loc="left")
    _quiet(axis)
    for row, panels in enumerate(maps, start=4):
        for column, (one, name, weights) in enumerate(panels):
            _plot_map(figure.add_subplot(grid[row, column]), told, one, name, weights)
    return figure


def _panels(told: Explanation) -> list[list[_Panel]]:
    """The maps in rows: those of one attention begin a row."""
    rows = []
    for one in told.maps:
        panels = [(one, name, weights) for name, weights in heads_of(one)]
        rows += [panels[n : n + _COLUMNS] for n in range(0, len(panels), _COLUMNS)]
    return rows


def _draw_forecast(axis: Axes, told: Explanation) -> None:
    forecast, length, steps = told.forecast, len(told.history), len(told.time)
    past, ahead = np.arange(length), np.arange(length, steps)
    quantiles = forecast.quantiles[0, :, told.channel]
    axis.plot(past, told.history, color=_HISTORY, linewidth=1.1, label="history")
    share = 100 * (forecast.levels[-1] - forecast.levels[0])
    if len(forecast.levels) > 1:
        low, high = quantiles[:, 0], quantiles[:, -1]
        label = f"{share:.0f} % band"
        axis.fill_between(ahead, low, high, color=_FORECAST, alpha=0.2, linewidth=0, label=label)
    axis.plot(ahead, forecast.median[0, :, told.channel], color=_FORECAST, label="forecast")
    if forecast.actual is not None:
        axis.plot(ahead, forecast.actual[0, :, told.channel], color=_TRUTH, label="actual")
    axis.axvline(length - 0.5, color=_HISTORY, linewidth=0.6)
    axis.legend(frameon=False, fontsize=8, loc="upper left", ncols=4)
    axis.set_xlim(-0.5, steps - 0.5)
    places = spread(steps, 7)
    text = told.forecast.panel.calendar.text
    axis.set_xticks(places, [text(int(told.time[n])) for n in places])
    _quiet(axis)


def _draw_rollout(axis: Axes, told: Explanation) -> None:
    assert told.rollout is not None
    edges = [token.start - 0.5 for token in (*told.context, *told.horizon)] + [len(told.time) - 0.5]
    rows, among = np.arange(len(told.horizon) + 1), len(told.context)
    # Each side of the cutoff by its own largest share: a token's own would outshine the context.
    axis.pcolormesh(edges[: among + 1], rows, told.rollout[:, :among], cmap="Blues", vmin=0)
    axis.pcolormesh(edges[among:], rows, told.rollout[:, among:], cmap="Blues", vmin=0)
    axis.axvline(len(told.history) - 0.5, color=_HISTORY, linewidth=0.6)
    axis.invert_yaxis()
    axis.set_yticks([])
    axis.set_title(
        "attention rollout, a row per token of the horizon, each side by its own largest share",
        fontsize=10,
        loc="left",
    )
    axis.tick_params(labelsize=8)


def _draw_blocks(axis: Axes, told: Explanation) -> None:
    for one in told.importance:
        if one.cells is not None:
            start, stop = one.cells
            axis.bar(
                start - 0.5, one.change, stop - start, align="edge", color=_FORECAST, edgecolor="w"
            )
    axis.set_title("change without each part of the history, in spreads", fontsize=10, loc="left")
    _quiet(axis)


def _plot_map(
    axis: Axes, told: Explanation, one: AttentionMap, name: str, weights: NDArray[np.float32]
) -> None:
    most = float(np.abs(weights).max()) or 1.0
    least, colors = (-most, "RdBu") if weights.min() < 0 else (0.0, "Blues")
    axis.imshow(weights, cmap=colors, vmin=least, vmax=most, aspect="auto", interpolation="nearest")
    asks = told.context if one.part == "encoder" else told.horizon
    answers = told.horizon if one.part == "decoder" else told.context
    if one.names is None:
        for number, token in enumerate(answers):
            if not token.seen:
                axis.axvspan(
                    number - 0.5, number + 0.5, fill=False, hatch="////", linewidth=0, alpha=0.5
                )
        _name(axis.set_yticks, told, asks, 4)
        _name(axis.set_xticks, told, answers, 2)
    else:
        names = one.names[: len(weights)]
        axis.set_yticks(range(len(names)), names)
        axis.set_xticks(range(len(names)), names, rotation=30, ha="right")
    begins = name in ("mean of heads", "the head")
    title = f"{one.part}, layer {one.layer}\n{name}" if begins else f"\n{name}"
    axis.set_title(f"{title}, largest {most:.2g}", fontsize=8.5, loc="left")
    axis.tick_params(labelsize=6.5)


def _name(put: Any, told: Explanation, tokens: tuple[Token, ...], most: int) -> None:
    places, text = spread(len(tokens), most), told.forecast.panel.calendar.text
    put(places, [text(int(told.time[tokens[n].start])) for n in places])


def _quiet(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.tick_params(labelsize=8)
