"""A drawing of attention over experts: their weights over leads, beside a table that is its legend.

The table says of each expert its error at earlier cutoffs, the weight by that alone, the weight, and what
each group of evidence adds to it. Experts of less than 3 % are joined.
"""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from forecaster.forecast.expert_weights import PLAIN, ExpertWeights
from forecaster.forecast.plots import TITLE, VALUES, tidy
from forecaster.panel.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

LEAST = 0.03
"""Mean weight of an expert with a row of its own."""
_COLORS = (  # distinct without red and green: Paul Tol's "muted", dark beside light
    "#332288", "#88ccee", "#117733", "#ddcc77", "#cc6677",
    "#44aa99", "#882255", "#aa4499", "#999933", "#661100",
)  # fmt: skip
_OTHERS = "#d0d4d8"
_LINE, _HEADER = 0.22, 1.5  # inches of a row of the table, and of what is above and below
_WRAPPED = 165  # characters of the sentence in a line
_HEADS = ("error at\nearlier cutoffs", "weight by\nerrors alone", "mean\nweight")
_GROUP_HEADS = ("errors", "bias", "forecasts", "recent\nsteps", "season,\nlength")
_COLUMNS = (0.45, 0.55, 0.62)  # right ends of the numbers, shares of the table's width
_GROUPS = (0.65, 1.0)  # from where to where the groups of evidence are


def height(experts: ExpertWeights) -> float:
    """Returns the inches that the drawing needs."""
    return max(2.9, _HEADER + 0.6 + _LINE * (2 + len(_shown(experts))))


def draw_experts(figure: FigureBase, experts: ExpertWeights, lead_name: Any) -> None:
    """Draws weights and table; `lead_name` puts names of leads under an axis."""
    shown = _shown(experts)
    rest = [n for n in range(len(experts.names)) if n not in shown]
    colors = [*_COLORS[: len(shown)], _OTHERS]
    figure.suptitle(fill(experts.report, _WRAPPED), fontsize=9, x=0.01, ha="left")
    area, table = figure.subplots(1, 2, width_ratios=(1, 2.5))
    weights = [*experts.weights.T[shown], experts.weights.T[rest].sum(axis=0)]
    _draw_area(area, np.array(weights), colors)
    lead_name(area)
    _draw_table(table, experts, shown, rest, colors)


def _shown(experts: ExpertWeights) -> list[int]:
    """The experts with rows of their own, the largest first."""
    return [n for n in experts.order if experts.mean[n] >= LEAST][: len(_COLORS)]


def _draw_area(axis: Axes, weights: Floats, colors: list[str]) -> None:
    """Stacks weights [E, H] as steps, so that a single lead has a width; the largest on top."""
    edges = np.arange(weights.shape[1] + 1) + 0.5
    stacked = np.concatenate([weights, weights[:, -1:]], axis=1)[::-1]
    axis.stackplot(edges, 100 * stacked, colors=colors[::-1], step="post", linewidth=0)
    tidy(axis)
    axis.set_xlim(edges[0], edges[-1])
    axis.set_ylim(0, 100)
    axis.set_title("weights of the experts at each lead, %", **TITLE)


def _draw_table(
    axis: Axes, experts: ExpertWeights, shown: list[int], rest: list[int], colors: list[str]
) -> None:
    """Writes a row an expert, and one of the others."""
    lines = [[n] for n in shown] + ([rest] if rest else [])
    mean = experts.mean
    added = np.array([mean - without for without in experts.without.values()])  # [G, E]
    points = 100 * np.array([added[:, line].sum(axis=1) for line in lines])  # [line, G]
    edges = np.linspace(*_GROUPS, len(points[0]) + 1)
    # At least ten points: a change of one is no strong colour.
    most = max(10.0, np.abs(points).max())
    rows = np.arange(len(lines) + 1)
    axis.pcolormesh(edges, rows, points, cmap="RdBu", vmin=-2 * most, vmax=2 * most)
    axis.set_xlim(0, 1)
    axis.set_ylim(len(lines), -2)
    axis.axis("off")
    style: dict[str, Any] = {"fontsize": 8, "va": "center", "color": VALUES}
    for place, head in zip(_COLUMNS, _HEADS, strict=True):
        axis.text(place, -0.2, head, **style | {"va": "bottom"}, ha="right")
    middles = (edges[1:] + edges[:-1]) / 2
    for place, head in zip(middles, _GROUP_HEADS, strict=True):
        axis.text(place, -0.2, head, **style | {"va": "bottom"}, ha="center")
    title = "what evidence adds to the weight, points"
    axis.text(edges[0], -1.9, title, **style, ha="left")
    for row, line in enumerate(lines):
        middle = row + 0.5
        alone = line != rest
        first = experts.names[line[0]]
        name = f"{first}: {PLAIN[first]}" if alone else f"{len(rest)} others"
        error = (
            f"{experts.error[line[0]]:.4g}" if alone and not np.isnan(experts.error[line[0]]) else "–"
        )
        numbers = (error, _percent(experts.before[line].sum()), _percent(mean[line].sum()))
        axis.text(0.0, middle, "■", **style | {"color": colors[row] if alone else _OTHERS})
        axis.text(0.03, middle, name, **style)
        for place, number in zip(_COLUMNS, numbers, strict=True):
            axis.text(place, middle, number, **style, ha="right")
        for place, change in zip(middles, points[row], strict=True):
            axis.text(place, middle, _points(change), **style, ha="center")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _points(change: float) -> str:
    return f"{change:+.0f}".replace("-", "\N{MINUS SIGN}") if abs(change) >= 0.5 else "0"
