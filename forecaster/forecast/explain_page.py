"""An `Explanation` as a matplotlib figure, and as a page with that figure and how to read it.

The figure shows the forecast with the importance of each part of the history and attention rollout over
one time axis; the weights of the experts; the importance of covariates; the attention maps of each layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forecaster.forecast.explain import AttentionMap, Explanation, Importance
from forecaster.forecast.plots import BAND, TITLE, TRUTH, VALUES, WIDTH, draw_band, figure_svg, tidy
from forecaster.forecast.writer import html_page
from forecaster.lazy import Axes, Figure, FigureBase
from forecaster.panel.arrays import Floats

if TYPE_CHECKING:
    from forecaster.forecast.forecast import Forecast

_MAP, _COLUMNS = 2.4, 5  # inches to a side, maps beside each other
_MOST_BARS = 20
_MOST_TICKS = 7
_UNIT = "in standard deviations of the context"

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
_READING = Path(__file__).with_suffix(".html")


def explanation_page(explanation: Explanation) -> str:
    """Returns the page."""
    title = f"Explanation of the forecast of {explanation.title}"
    notes = "".join(f"<p>{escape(line)}</p>" for line in _notes(explanation))
    effects = "".join(f"<li>{escape(line)}</li>" for line in explanation.effects.report.splitlines())
    picture = figure_svg(plot_explanation(explanation), title)
    return html_page(
        title,
        f"<h1>{escape(title)}</h1>{notes}<h2>Effects</h2><ul>{effects}</ul><figure>{picture}</figure>"
        f"<h2>How to read this page</h2>{_reading(explanation)}",
    )


def _reading(explanation: Explanation) -> str:
    """Returns how to read what the page shows."""
    missing = ["Experts"] if explanation.experts is None else []
    missing += [] if explanation.maps else ["Attention maps", "Rollout"]
    paragraphs = _READING.read_text(encoding="utf-8").split("\n<p>")
    kept = (one for one in paragraphs if not any(f"<b>{name}" in one for name in missing))
    return "\n<p>".join(kept)


def plot_explanation(explanation: Explanation) -> Figure:
    """Returns the drawings, one below the other."""
    from forecaster.forecast.plain_figure import PlainFigure

    covariates = [one for one in explanation.importance if one.cells is None][:_MOST_BARS]
    over_time = 4.6 if explanation.rollout is None else 5.9
    experts = explanation.experts
    effects = explanation.effects
    heights = [over_time]
    heights += [effects.height] if effects.terms else []
    heights += [] if experts is None else [experts.height]
    heights += [0.7 + 0.24 * len(covariates)] if covariates else []
    heights += [_MAP * -(-len(one.heads) // _COLUMNS) + 0.3 for one in explanation.maps]
    figure = PlainFigure(figsize=(WIDTH, sum(heights)), dpi=110, layout="constrained")
    parts: Any = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)
    rows = iter(parts[:, 0])
    whole = next(rows)
    whole.suptitle(f"Explanation of the forecast of {explanation.title}", fontsize=13)
    _draw_time(whole, explanation)
    if effects.terms:
        effects.draw(next(rows))
    if experts is not None:
        experts.draw(next(rows), lambda axis: _name_leads(axis, explanation))
    if covariates:
        _draw_bars(next(rows).subplots(), covariates)
    for below, one in zip(rows, explanation.maps, strict=True):
        below.suptitle(
            f"{_TITLES[one.part]}, layer {one.layer} ({one.kind})", fontsize=10, x=0.01, ha="left"
        )
        _draw_maps(below, explanation, one)
    return figure


def _notes(explanation: Explanation) -> list[str]:
    """Returns what a reader has to know of the model."""
    forecast, model = explanation.forecast, explanation.model
    length, steps = len(explanation.history), len(explanation.time)
    masked = sum(not token.seen for token in explanation.context)
    tokens = (
        f" {len(explanation.context)} context tokens of {model.patch} steps ({masked} without an "
        f"observation), {len(explanation.horizon)} horizon tokens of {model.decoder_patch}; "
        f"{model.heads} heads."
    )
    lines = [
        f"Cutoff {explanation.span(length - 1, length)}; horizon of {steps - length} steps, until "
        f"{explanation.span(steps - 1, steps)}." + tokens * bool(explanation.maps)
    ]
    if seasons := [f"{steps:,}" for steps in model.pool.seasons if steps > 1]:
        lines.append(f"Seasons: {' and '.join(seasons)} steps.")
    if explanation.network:
        lines.append(f"{explanation.network[0].upper()}{explanation.network[1:]}.")
    if explanation.without_maps:
        lines.append(f"{explanation.without_maps}.")
        return lines + _of_truth(forecast)
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
    return lines + _of_truth(forecast)


def _of_truth(forecast: Forecast) -> list[str]:
    if forecast.actual is None:
        return []
    return ["The table holds the truth of these steps: it was not shown to the model."]


def _draw_time(figure: FigureBase, explanation: Explanation) -> None:
    """Draws forecast, rollout and importance of the context over one time axis."""
    steps, length = len(explanation.time), len(explanation.history)
    ratios = [3.2, 1.2] if explanation.rollout is None else [3.2, 1.2, 1.3]
    axes = figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios)
    _draw_forecast(axes[0], explanation)
    for one in explanation.importance:
        if one.cells is not None:
            start, stop = one.cells
            axes[1].bar(start - 0.5, one.change, stop - start, align="edge", color=BAND, edgecolor="w")
    axes[1].set_title(f"importance: mean change of the forecast without these steps, {_UNIT}", **TITLE)
    if explanation.rollout is not None:
        _draw_rollout(axes[2], explanation, explanation.rollout)
    for axis in axes:
        axis.axvline(length - 0.5, color=VALUES, linewidth=0.6)
    for axis in axes[:2]:
        tidy(axis)
    axes[0].set_xlim(-0.5, steps - 0.5)
    _name_steps(axes[-1].set_xticks, explanation, range(steps), _MOST_TICKS)


def _draw_forecast(axis: Axes, explanation: Explanation) -> None:
    forecast, channel, length = explanation.forecast, explanation.channel, len(explanation.history)
    past, leads = np.arange(length), np.arange(length, len(explanation.time))
    axis.plot(past, explanation.history, color=VALUES, linewidth=1.1, label="history")
    shown = np.arange(len(leads))
    if len(leads) == 1:  # a single point has no line and no band
        leads, shown = leads + np.array([-0.5, 0.5]), np.array([0, 0])
    draw_band(axis, leads, forecast.quantiles[0, shown, channel], forecast.levels)
    if forecast.actual is not None:
        axis.plot(leads, forecast.actual[0, shown, channel], color=TRUTH, linewidth=1.1, label="actual")
    axis.legend(frameon=False, fontsize=8, loc="upper left", ncols=5)


def _draw_rollout(axis: Axes, explanation: Explanation, rollout: Floats) -> None:
    tokens = (*explanation.context, *explanation.horizon)
    edges = [token.start - 0.5 for token in tokens] + [len(explanation.time) - 0.5]
    rows, cutoff = np.arange(len(rollout) + 1), len(explanation.context)
    # Each side of the cutoff by its own largest share: a token's own would outshine the context.
    axis.pcolormesh(edges[: cutoff + 1], rows, rollout[:, :cutoff], cmap="Blues", vmin=0)
    axis.pcolormesh(edges[cutoff:], rows, rollout[:, cutoff:], cmap="Blues", vmin=0)
    axis.invert_yaxis()
    axis.set_yticks([])
    axis.tick_params(labelsize=8)
    axis.set_title(
        "attention rollout: a row per horizon token; each side of the cutoff by its own largest share",
        **TITLE,
    )


def _draw_bars(axis: Axes, shown: Sequence[Importance]) -> None:
    """Draws the importance of covariates and cycles, the largest on top."""
    tidy(axis)
    bars = axis.barh(range(len(shown)), [one.change for one in shown], color=BAND)
    axis.set_yticks(range(len(shown)), [_short(one.name) for one in shown])
    rises = ["" if one.loss is None else f" · loss {one.loss:+.3g}" for one in shown]
    texts = [f"{one.change:.3g} · {one.kind}{rise}" for one, rise in zip(shown, rises, strict=True)]
    axis.bar_label(bars, texts, padding=4, fontsize=8)
    axis.set_xlim(0, 1.3 * max(one.change for one in shown) or 1.0)
    axis.invert_yaxis()
    title = f"importance: mean change of the forecast without each covariate or cycle, {_UNIT}"
    if not any(one.change for one in shown):
        title = "importance: none of these changes this forecast"
        axis.set_xticks([])
        axis.spines["bottom"].set_visible(False)
    axis.set_title(title, **TITLE)


def _draw_maps(figure: FigureBase, explanation: Explanation, one: AttentionMap) -> None:
    """Draws the mean of heads and each head of one layer."""
    heads = one.heads
    axes = figure.subplots(-(-len(heads) // _COLUMNS), _COLUMNS, squeeze=False).ravel()
    queries = explanation.context if one.part == "encoder" else explanation.horizon
    keys = explanation.horizon if one.part == "decoder" else explanation.context
    for axis in axes[len(heads) :]:
        axis.set_visible(False)
    for place, (axis, (name, weights)) in enumerate(zip(axes, heads, strict=False)):
        first = place % _COLUMNS == 0
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
            _name_steps(axis.set_xticks, explanation, [token.start for token in keys], 2)
            _name_steps(axis.set_yticks, explanation, [token.start for token in queries] * first, 4)
        else:
            names = [_short(name) for name in one.names]
            axis.set_xticks(range(len(names)), names, rotation=30, ha="right")
            axis.set_yticks(range(len(names)), names if first else [""] * len(names))


def _name_steps(
    put: Callable[..., Any], explanation: Explanation, steps: Sequence[int], most: int
) -> None:
    """Ticks at most `most` of some steps by their times, the first and the last among them."""
    text, count = explanation.forecast.panel.calendar.text, len(steps)
    places = sorted({round(float(n)) for n in np.linspace(0, count - 1, min(count, most))})
    put(places, [text(int(explanation.time[steps[n]])) for n in places])


def _name_leads(axis: Axes, explanation: Explanation) -> None:
    """Names leads, counted from 1 on the axis, by their times."""
    length, steps = len(explanation.history), len(explanation.time)

    def put(places: list[int], names: list[str]) -> None:
        axis.set_xticks([place + 1 for place in places], names)

    _name_steps(put, explanation, range(length, steps), 3)


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"
