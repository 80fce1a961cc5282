"""An `Explanation` as one matplotlib figure.

What comes in: an `Explanation`. What goes out: a `Figure`, free of any global state: the forecast,
rollout and importance over one time axis, covariates, and each attention: mean of heads, then heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forecaster.forecast.explain_words import heads_of
from forecaster.forecast.svg import spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from forecaster.forecast.explain import AttentionMap, Explanation, Token

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
            _draw_map(figure.add_subplot(grid[row, column]), told, one, name, weights)
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


def _draw_map(
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
