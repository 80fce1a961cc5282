"""An `Explanation` as one HTML page (no scripts, no network) or as one matplotlib figure.

Both show the same drawings: the forecast with attention rollout and the importance of each part of
the history over one time axis; the importance of covariates; the attention maps of each layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from forecaster.forecast.explain import AttentionMap, Explanation, Importance, Token
from forecaster.forecast.plots import BAND, TRUTH, VALUES, draw_band, figure_svg, plain_text, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

_WIDTH = 11.5  # inches
_MAP, _COLUMNS = 2.4, 5  # inches to a side, maps beside each other
_MOST_BARS = 20
_MOST_TICKS = 7

_TITLES = {
    "encoder": "Encoder: self-attention over the context",
    "encoder channels": "Encoder: attention between channels",
    "decoder": "Decoder: self-attention over the horizon",
    "decoder channels": "Decoder: attention between channels of the horizon",
    "cross": "Cross-attention from the horizon to the context",
}
_KINDS = {
    "local": "Local attention: a token attends to its neighbours only, so the map is a band.",
    "sparse": "Sparse attention: a query that does not stand out takes an equal share of all values: "
    "its row is uniform.",
    "low_rank": "Low-rank attention has no map of its own: it mixes keys and values before the "
    "softmax. The maps show the equivalent weight of each token; they may be negative (red) and need "
    "not sum to 1, so there is no rollout.",
}
_READING = """
<p><b>Attention maps.</b> A row is a query, a column a key. A token holds one patch of steps and is
named by its first. In a causal decoder everything right of the diagonal is 0. A row without weights
belongs to a token without any observed key. Hatched columns hold no observation and are masked.</p>
<p><b>Rollout</b> (Abnar and Zuidema, 2020) follows attention through all layers: heads are averaged,
the residual connection counts as much as the layer, and layers are multiplied. A row gives the share
of each token in the decoder's output for one horizon patch. Right of the cutoff are the shares of the
horizon tokens: calendar and known covariates. Compare shares within one side of the cutoff: the sum of
a side follows from the number of layers alone.</p>
<p><b>Importance.</b> One thing at a time is hidden, as if it had never been observed, and the forecast
is made again. In the context, both targets and past covariates are hidden, and the scale is computed
from the rest. Of two covariates that carry the same information each looks unimportant.</p>
<p><b>What this does not prove.</b> A large attention weight is not a cause. Layers mix vectors that
earlier layers have mixed, values may be small where weights are large, and other weights can give the
same forecast. Rollout ignores values and feed-forward layers. Importance describes this model at this
cutoff: not what would happen in the world if a covariate changed, and not other cutoffs.</p>
"""

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#24292f;background:#fff;max-width:1140px;
margin:1.5rem auto;padding:0 1rem;overflow-wrap:break-word}
h1{font-size:1.6rem;line-height:1.25;margin:.2rem 0}h2{font-size:1.2rem;margin:1.8rem 0 .4rem}
h3{font-size:1rem;margin:1.1rem 0 .3rem}small{font-weight:normal;opacity:.75}
p{max-width:62rem;margin:.4rem 0}figure{margin:.4rem 0}
svg{max-width:100%;height:auto}svg image{image-rendering:pixelated}
"""


def explanation_page(explanation: Explanation) -> str:
    """Returns the page."""
    title, height = explanation.title, _time_height(explanation)
    covariates = [one for one in explanation.importance if one.cells is None]
    parts = [
        f"<h1>Explanation of the forecast of {escape(title)}</h1>",
        *(f"<p>{escape(line)}</p>" for line in _notes(explanation)),
        "<h2>Forecast, rollout and importance over time</h2>",
        _picture(f"Forecast of {title} over time", height, _draw_time, explanation),
        "<h2>Importance of covariates and calendar cycles</h2>",
        _picture("Importance of covariates", _bars_height(covariates), _draw_bars, covariates)
        if covariates
        else "<p>The model has neither covariates nor calendar cycles.</p>",
        "<h2>Attention, layer by layer</h2>",
    ]
    for part, words in _TITLES.items():
        for one in explanation.maps:
            if one.part == part:
                parts.append(f"<h3>{words}, layer {one.layer} <small>({one.kind})</small></h3>")
                label = f"{part} attention of layer {one.layer}"
                parts.append(_picture(label, _maps_height(one), _draw_maps, explanation, one))
    parts += ["<h2>How to read this page</h2>", _READING]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def plot_explanation(explanation: Explanation) -> Figure:
    """Returns one figure with all drawings of the page, one below the other."""
    covariates = [one for one in explanation.importance if one.cells is None]
    heights = [_time_height(explanation), _bars_height(covariates)]
    heights += [_maps_height(one) for one in explanation.maps]
    figure = _new_figure(sum(heights))
    rows: Any = figure.subfigures(len(heights), 1, height_ratios=heights)
    whole, bars, *maps = rows
    _draw_time(whole, explanation)
    whole.suptitle(plain_text(f"Explanation of the forecast of {explanation.title}"), fontsize=13)
    _draw_bars(bars, covariates)
    for below, one in zip(maps, explanation.maps, strict=True):
        _draw_maps(below, explanation, one)
        below.suptitle(f"{_TITLES[one.part]}, layer {one.layer}", fontsize=10, x=0.01, ha="left")
    return figure


def _new_figure(height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(_WIDTH, height), dpi=110, layout="constrained")


def _picture(label: str, height: float, draw: Callable[..., None], *shown: Any) -> str:
    figure = _new_figure(height)
    draw(figure, *shown)
    return f"<figure>{figure_svg(figure, label)}</figure>"


def _notes(explanation: Explanation) -> list[str]:
    """Returns what a reader has to know of the model."""
    forecast, model = explanation.forecast, explanation.model
    length, steps = len(explanation.history), len(explanation.time)
    masked = sum(not token.seen for token in explanation.context)
    lines = [
        f"Cutoff {explanation.span(length - 1, length)}; horizon of {steps - length} steps, until "
        f"{explanation.span(steps - 1, steps)}. {len(explanation.context)} context tokens of "
        f"{model.patch} steps ({masked} without an observation), {len(explanation.horizon)} horizon "
        f"tokens of {model.decoder_patch}; {model.heads} heads."
    ]
    if explanation.network:
        lines.append(f"{explanation.network[0].upper()}{explanation.network[1:]}.")
    kinds = {one.kind for one in explanation.maps}
    lines += [words for kind, words in _KINDS.items() if kind in kinds]
    if model.decoder == "autoregressive":
        lines.append(
            "The decoder is autoregressive: its maps are those of one path whose previous values are "
            "the median of all paths."
        )
    if model.channel_attention:
        lines.append(
            "Channels attend to each other in every layer: maps between channels are means over "
            "tokens. Rollout follows time within this channel and leaves out what came from others."
        )
    if forecast.actual is not None:
        lines.append("The table holds the truth of these steps: it was not shown to the model.")
    return lines


def _time_height(explanation: Explanation) -> float:
    return 4.6 if explanation.rollout is None else 5.9


def _bars_height(found: Sequence[Importance]) -> float:
    return 0.7 + 0.24 * max(1, min(len(found), _MOST_BARS))


def _maps_height(one: AttentionMap) -> float:
    return _MAP * -(-len(one.heads) // _COLUMNS) + 0.3


def _draw_time(figure: FigureBase, explanation: Explanation) -> None:
    """Draws forecast, rollout and importance of the context over one time axis."""
    ratios = [3.2, 1.2] if explanation.rollout is None else [3.2, 1.3, 1.2]
    top, *others = figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios)
    steps, length = len(explanation.time), len(explanation.history)
    _draw_forecast(top, explanation)
    if explanation.rollout is not None:
        _draw_rollout(others[0], explanation)
    _draw_blocks(others[-1], explanation)
    for axis in (top, *others):
        axis.axvline(length - 0.5, color=VALUES, linewidth=0.6)
    text = explanation.forecast.panel.calendar.text
    places = _spread(steps, _MOST_TICKS)
    top.set_xlim(-0.5, steps - 0.5)
    others[-1].set_xticks(places, [text(int(explanation.time[n])) for n in places])


def _draw_forecast(axis: Axes, explanation: Explanation) -> None:
    forecast, channel, length = explanation.forecast, explanation.channel, len(explanation.history)
    past, leads = np.arange(length), np.arange(length, len(explanation.time))
    axis.plot(past, explanation.history, color=VALUES, linewidth=1.1, label="history")
    draw_band(axis, leads, forecast.quantiles[0, :, channel], forecast.levels)
    if forecast.actual is not None:
        axis.plot(leads, forecast.actual[0, :, channel], color=TRUTH, linewidth=1.1, label="actual")
    axis.legend(frameon=False, fontsize=8, loc="upper left", ncols=5)
    tidy(axis)


def _draw_rollout(axis: Axes, explanation: Explanation) -> None:
    assert explanation.rollout is not None
    tokens = (*explanation.context, *explanation.horizon)
    edges = [token.start - 0.5 for token in tokens] + [len(explanation.time) - 0.5]
    rows, cutoff = np.arange(len(explanation.horizon) + 1), len(explanation.context)
    # Each side of the cutoff by its own largest share: a token's own would outshine the context.
    axis.pcolormesh(edges[: cutoff + 1], rows, explanation.rollout[:, :cutoff], cmap="Blues", vmin=0)
    axis.pcolormesh(edges[cutoff:], rows, explanation.rollout[:, cutoff:], cmap="Blues", vmin=0)
    axis.invert_yaxis()
    axis.set_yticks([])
    axis.set_title(
        "attention rollout: a row per horizon token; each side of the cutoff by its own largest share",
        fontsize=9,
        loc="left",
    )
    axis.tick_params(labelsize=8)


def _draw_blocks(axis: Axes, explanation: Explanation) -> None:
    for one in explanation.importance:
        if one.cells is not None:
            start, stop = one.cells
            axis.bar(start - 0.5, one.change, stop - start, align="edge", color=BAND, edgecolor="w")
    axis.set_title(
        "importance: mean change of the forecast without these steps, in standard deviations of the "
        "context",
        fontsize=9,
        loc="left",
    )
    tidy(axis)


def _draw_bars(figure: FigureBase, found: Sequence[Importance]) -> None:
    """Draws the importance of covariates and cycles, the largest on top."""
    axis, shown = figure.subplots(), found[:_MOST_BARS]
    bars = axis.barh(range(len(shown)), [one.change for one in shown], color=BAND)
    axis.set_yticks(range(len(shown)), [plain_text(_short(one.name)) for one in shown])
    rises = ["" if one.loss is None else f" · loss {one.loss:+.3g}" for one in shown]
    labels = [f"{one.change:.3g} · {one.kind}{rise}" for one, rise in zip(shown, rises, strict=True)]
    axis.bar_label(bars, labels, padding=4, fontsize=8)
    axis.set_xlim(0, 1.3 * max((one.change for one in shown), default=0.0) or 1.0)
    axis.invert_yaxis()
    rest = f"; {len(found) - len(shown)} smaller ones are left out" * (len(found) > len(shown))
    axis.set_title(
        f"mean change of the forecast without each, in standard deviations of the context{rest}",
        fontsize=9,
        loc="left",
    )
    tidy(axis)


def _draw_maps(figure: FigureBase, explanation: Explanation, one: AttentionMap) -> None:
    """Draws the mean of heads and each head of one layer."""
    heads = one.heads
    rows = -(-len(heads) // _COLUMNS)
    axes = np.atleast_1d(figure.subplots(rows, _COLUMNS, squeeze=False)).ravel()
    queries = explanation.context if one.part == "encoder" else explanation.horizon
    keys = explanation.horizon if one.part == "decoder" else explanation.context
    for place, axis in enumerate(axes):
        if place >= len(heads):
            axis.set_visible(False)
            continue
        name, weights = heads[place]
        largest = float(np.abs(weights).max()) or 1.0
        least, colors = (-largest, "RdBu") if weights.min() < 0 else (0.0, "Blues")
        axis.imshow(weights, cmap=colors, vmin=least, vmax=largest, aspect="auto", interpolation="none")
        axis.set_title(f"{name}, largest {largest:.2g}", fontsize=8.5, loc="left")
        axis.tick_params(labelsize=6.5)
        if one.names is None:
            for number, token in enumerate(keys):
                if not token.seen:
                    span = (number - 0.5, number + 0.5)
                    axis.axvspan(*span, fill=False, hatch="////", linewidth=0, alpha=0.5)
            _name(axis.set_xticks, explanation, keys, 2)
            _name(axis.set_yticks, explanation, queries if place % _COLUMNS == 0 else (), 4)
        else:
            names = [plain_text(_short(name)) for name in one.names]
            axis.set_xticks(range(len(names)), names, rotation=30, ha="right")
            axis.set_yticks(range(len(names)), names if place % _COLUMNS == 0 else [""] * len(names))


def _name(
    put: Callable[..., Any], explanation: Explanation, tokens: tuple[Token, ...], most: int
) -> None:
    places, text = _spread(len(tokens), most), explanation.forecast.panel.calendar.text
    put(places, [text(int(explanation.time[tokens[n].start])) for n in places])


def _spread(count: int, most: int) -> list[int]:
    """Returns at most `most` evenly spread numbers of 0 … count − 1, the ends among them."""
    return sorted({round(float(n)) for n in np.linspace(0, count - 1, min(count, most))})


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"
