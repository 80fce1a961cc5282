"""The figures of a report: one per section, drawn by matplotlib, inlined as SVG, with a text alternative."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forecaster.evaluation.comparison import MODEL
from forecaster.evaluation.report_data import Ranking, ReportData, number, percent
from forecaster.forecast import plots
from forecaster.lazy import Axes, Figure
from forecaster.panel.arrays import Array, Floats

# Colour, dashes and marker of each model, "forecaster" first (colours after Okabe and Ito 2008, darkened).
_STYLES: tuple[tuple[str, Any, str], ...] = (
    (plots.BAND, "-", "o"),
    ("#c4520a", (0, (5, 3)), "s"),
    ("#00805c", ":", "^"),
    ("#a8508a", "-.", "D"),
    ("#8a6d00", (0, (3, 2)), "v"),
    (plots.VALUES, (0, (8, 3)), "P"),
)
_GUIDE: dict[str, Any] = {"color": plots.VALUES, "linewidth": 1.0, "linestyle": "--", "alpha": 0.75}
_BINS = 30
_LONGEST_NAME = 40


def window_figure(data: ReportData) -> str:
    """The best and the worst items: history, actuals, median and bands."""
    shown = [(f"best {n}", item) for n, item in enumerate(data.ranking.best, start=1)]
    shown += [(f"worst {n}", item) for n, item in enumerate(data.ranking.worst, start=1)]
    figure, axes = plots.panel_grid(len(shown), columns=3)
    captions = []
    for axis, (place, item) in zip(axes, shown, strict=False):
        forecast, row = data.locate(item.window)
        plots.draw_forecast(axis, forecast, row, item.channel)
        scores = f"MASE {number(item.mase, 3)}, WQL {number(item.wql, 3)}, skill {percent(item.skill)}"
        short = item.name[:_LONGEST_NAME] + "…" * (len(item.name) > _LONGEST_NAME)
        axis.set_title(f"{place}: {short}\n{scores}", **plots.TITLE)
        captions.append(f"{place}: {item.name}, {scores}")
    plots.shared_legend(figure, axes[0])
    return picture(figure, "; ".join(captions))


def skill_figure(ranking: Ranking) -> str:
    """Histogram of the skill over all items."""
    figure, (axis,) = plots.panel_grid(1)
    edges = np.linspace(-1.0, 1.0, 41)
    _bars(axis, edges, np.histogram(np.clip(ranking.skills, -1.0, 1.0), edges)[0])
    axis.axvline(0.0, **_GUIDE)
    axis.set_title(f"{ranking.kinds} by skill; those below −1 count as −1", **plots.TITLE)
    beaten = f"{(ranking.skills > 0).sum():,} of {len(ranking.skills):,} beat seasonal naive"
    return picture(figure, f"histogram of the skill over all {ranking.kinds}: {beaten}", beaten)


def lead_figure(data: ReportData) -> str:
    """Error, quantile loss, coverage and bias by lead, a line per model."""
    nominal = data.backtest.tallies[MODEL].band / 100
    titles = {
        "MASE": "MASE",
        "WQL": "WQL",
        f"coverage_{round(100 * nominal)}": f"share inside the {percent(nominal, 0)} band",
        "bias": "bias of the median, data units",
    }
    scores = {name: one.by_lead() for name, one in data.backtest.tallies.items()}
    lead = np.arange(1, len(scores[MODEL]["cells"]) + 1)
    figure, axes = plots.panel_grid(len(titles))
    for axis, (metric, title) in zip(axes, titles.items(), strict=True):
        _model_lines(axis, lead, {name: by_metric[metric] for name, by_metric in scores.items()})
        axis.locator_params(axis="x", integer=True)
        axis.set_title(f"{title}, by lead", **plots.TITLE)
        if metric != "bias":
            axis.set_ylim(bottom=0.0)
    axes[2].axhline(nominal, **_GUIDE)
    axes[3].axhline(0.0, **_GUIDE)
    plots.shared_legend(figure, axes[0])
    mase = scores[MODEL]["MASE"]
    ends = f"from {number(mase[0], 3)} at lead 1 to {number(mase[-1], 3)} at lead {len(mase)}"
    return picture(figure, f"scores of all models by lead; MASE of the model {ends}")


def calibration_figure(data: ReportData) -> str:
    """Observed share of actuals below each quantile, and in each interval between quantiles (PIT)."""
    levels = np.array(data.backtest.forecasts[0].levels)
    below = np.cumsum(data.between)[:-1]
    figure, (curve, histogram) = plots.panel_grid(2)
    curve.plot([0.0, 1.0], [0.0, 1.0], **_GUIDE)
    curve.plot(levels, below, color=plots.BAND, marker="o", markersize=4)
    plots.tidy(curve)
    curve.set_title("share of actuals at or below each quantile, by level", **plots.TITLE)
    edges = np.array([0.0, *levels, 1.0])
    # Heights are densities: intervals between levels may differ in width.
    _bars(histogram, edges, data.between / np.diff(edges))
    histogram.axhline(1.0, **_GUIDE)
    histogram.set_title("observed / nominal share of each quantile interval (PIT)", **plots.TITLE)
    return picture(
        figure,
        f"calibration; largest deviation of a quantile from its level {percent(np.abs(below - levels).max())}",
        "Calibrated: points on the dashed line, all bars at 1. High bars at the ends: bands are too narrow; "
        "a slope: bias.",
    )


def residual_figure(data: ReportData) -> str:
    """Error by cutoff, histogram of errors, and autocorrelation of the errors at lead 1."""
    times, mase = data.over_time
    correlation, noise = data.autocorrelation
    figure, axes = plots.panel_grid(2 + (len(correlation) > 0), columns=3)
    panel = data.backtest.panel
    _model_lines(axes[0], plots.axis_times(panel, times), mase)
    plots.tidy(axes[0], dates=not panel.calendar.integer)
    axes[0].set_ylim(bottom=0.0)
    axes[0].set_title("MASE by cutoff", **plots.TITLE)
    size = np.abs(data.errors)
    limit = float(np.quantile(size, 0.99)) if size.any() else 1.0
    edges = np.linspace(-limit, limit, _BINS + 1)
    counts, _ = np.histogram(np.clip(data.errors, -limit, limit), edges)
    _bars(axes[1], edges, counts / max(1, len(size)))
    axes[1].axvline(0.0, **_GUIDE)
    axes[1].set_title("share of cells by scaled error", **plots.TITLE)
    note = (
        "Errors are divided by the in-sample error of seasonal naive on the history of their series; the "
        "outermost bars hold all larger ones. "
    )
    if len(correlation):
        _bars(axes[2], np.arange(len(correlation) + 1) + 0.5, correlation)
        for level in (-noise, 0.0, noise):
            axes[2].axhline(level, **_GUIDE)
        axes[2].set_title("autocorrelation at lead 1, by cutoffs apart", **plots.TITLE)
        note += "Autocorrelations between the dashed lines may be noise; higher ones are predictable errors."
    else:
        note += f"Autocorrelation takes 8 cutoffs, found {len(data.cutoffs)}."
    plots.shared_legend(figure, axes[0])
    middle = number(float(np.median(data.errors)) if len(size) else np.nan, 3)
    return picture(figure, f"error by cutoff and histogram of scaled errors; median {middle}", note)


def picture(figure: Figure, label: str, note: str = "", narrow: bool = False) -> str:
    """A figure with its text alternative and a caption; a narrow one shrinks to any screen."""
    caption = f"<figcaption>{escape(note)}</figcaption>" if note else ""
    kind = ' class="narrow"' if narrow else ""
    return f"<figure{kind}>{plots.figure_svg(figure, label)}{caption}</figure>"


def _model_lines(axis: Axes, x: Array, by_model: Mapping[str, Floats]) -> None:
    for place, ((name, values), style) in enumerate(zip(by_model.items(), _STYLES, strict=False)):
        color, dashes, marker = style
        axis.plot(
            x,
            values,
            color=color,
            linestyle=dashes,
            marker=marker,
            markersize=4,
            markevery=max(1, len(x) // 8),
            linewidth=1.2 if place else 2.0,
            zorder=3 - 0.1 * place,  # the model is drawn on top
            label=name,
        )
    plots.tidy(axis)


def _bars(axis: Axes, edges: NDArray[np.floating], heights: Array) -> None:
    axis.stairs(heights, edges, fill=True, color=plots.BAND)
    plots.tidy(axis)
