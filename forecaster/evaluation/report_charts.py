"""The charts of a report: matplotlib figures as inline SVG with a heading, a text alternative and a note."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forecaster.evaluation.comparison import MODEL, NAIVE
from forecaster.evaluation.report_data import (
    NONE,
    RankedItem,
    Ranking,
    ReportData,
    number,
    percent,
    signed,
)
from forecaster.evaluation.scales import Floats
from forecaster.forecast.plots import figure_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, BLUE = "#24292f", "#0067a8"
# Colour, dashes and marker of each model (colours after Okabe and Ito 2008, darkened for contrast).
_MODEL_STYLE: tuple[str, Any, str, str] = (BLUE, "-", "o", "●")
_BASELINE_STYLES: tuple[tuple[str, Any, str, str], ...] = (
    ("#c4520a", (0, (5, 3)), "s", "■"),
    ("#00805c", ":", "^", "▲"),
    ("#a8508a", "-.", "D", "◆"),
    ("#8a6d00", (0, (3, 2)), "v", "▼"),
    (INK, (0, (8, 3)), "P", "✚"),
)
_BINS = 30
_MAX_HISTORY = 240


def model_key(models: Sequence[str]) -> str:
    """The legend of all charts with a line per model."""
    items = "".join(
        f'<span><b class="model-{_style_number(name, models)}">{_style(name, models)[3]}</b> {escape(name)}</span>'
        for name in models
    )
    return f'<p class="key">{items}</p>'


def key_css() -> str:
    """Rules for the colours of `model_key`."""
    styles = (_MODEL_STYLE, *_BASELINE_STYLES)
    return "".join(f".model-{n}{{color:{style[0]}}}" for n, style in enumerate(styles))


def window_chart(data: ReportData, item: RankedItem, rank: str) -> str:
    """One window: history, actuals, median forecast and the widest band."""
    forecast, row = data.locate(item.window)
    panel, series = forecast.panel, int(forecast.series[row])
    begin, end = int(panel.indptr[series]), int(panel.indptr[series + 1])
    cutoff = int(forecast.cutoff[row])
    past = begin + int(np.searchsorted(panel.time[begin:end], cutoff, side="right"))
    horizon = forecast.time.shape[1]
    season = panel.calendar.season_length
    shown = min(max(2 * horizon, 2 * min(season, 2 * horizon)), max(_MAX_HISTORY, horizon))
    rows = np.arange(max(begin, past - shown), past)
    assert forecast.actual is not None
    actual = np.concatenate([panel.values[rows, item.channel], forecast.actual[row, :, item.channel]])
    times = np.concatenate([panel.time[rows], forecast.time[row]])
    steps = np.arange(len(times)) - len(rows) + 1.0
    quantiles = forecast.quantiles[row, :, item.channel].astype(np.float64)
    text = panel.calendar.text
    figure, axes = _axes(f"forecast after {text(cutoff)}", "")
    future = steps[len(rows) :]
    axes.fill_between(future, quantiles[:, 0], quantiles[:, -1], color=BLUE, alpha=0.2, linewidth=0)
    axes.plot(steps, actual, color=INK, linewidth=0.9)
    axes.plot(future, quantiles[:, forecast.levels.index(0.5)], color=BLUE, linewidth=1.8)
    axes.axvline(0.5, **_GUIDE)
    _label_ends(axes, steps, lambda at: text(int(times[at])))
    band = round(100 * (forecast.levels[-1] - forecast.levels[0]))
    scores = f"MASE {number(item.mase, 3)}"
    note = f"{rank} · {scores}, WQL {number(item.wql, 3)}, skill {signed(100 * item.skill, 3)} %"
    label = f"{rank}: {item.name}, forecast after {text(cutoff)} with {band} % band; {scores}"
    return _html(item.name, label, figure, note.replace(f"{NONE} %", NONE))


def skill_chart(ranked: Ranking) -> str:
    """Histogram of the skill over all items."""
    edges = np.linspace(-1.0, 1.0, 41)
    counts, _ = np.histogram(np.clip(ranked.skills, -1.0, 1.0), edges)
    better = int((ranked.skills > 0).sum())
    figure, axes = _axes("skill: 1 − WQL / WQL of seasonal naive", ranked.kinds)
    _bars(axes, edges, counts, hatched=edges[1:] <= 1e-9)
    axes.axvline(0.0, **_GUIDE)
    axes.set_xticks([-1.0, -0.5, 0.0, 0.5, 1.0])
    axes.xaxis.set_major_formatter(_percent_ticks)
    return _html(
        f"Skill over all {ranked.kinds}",
        f"{better} of {len(ranked.skills)} {ranked.kinds} are better than seasonal naive",
        figure,
        f"{better:,} of {len(ranked.skills):,} beat seasonal naive; hatched bars, left of 0, lose to it. "
        "Below −100 % counts as −100 %.",
    )


def lead_chart(data: ReportData, metric: str, title: str, note: str) -> str:
    """A metric by lead, a line per model."""
    scores = {name: one.by_lead()[metric] for name, one in data.tallies.items()}
    lead, model = np.arange(1.0, len(scores[MODEL]) + 1), scores[MODEL]
    covers = metric.startswith("coverage")
    figure, axes = _axes("lead, steps ahead", "share inside" if covers else metric)
    _model_lines(axes, lead, scores)
    axes.locator_params(axis="x", integer=True)
    axes.set_ylim(bottom=0.0)
    if covers:
        axes.set_ylim(0.0, 1.0)
        axes.axhline(int(metric.split("_")[1]) / 100, **_GUIDE)
        axes.yaxis.set_major_formatter(_percent_ticks)
    ends = f"from {number(model[0], 3)} at lead 1 to {number(model[-1], 3)} at lead {len(model)}"
    empty = not any(np.isfinite(values).any() for values in scores.values())
    return _html(title, f"{title}: the model {ends}", None if empty else figure, note)


def bias_chart(data: ReportData) -> str:
    """Mean error by lead."""
    figure, axes = _axes("lead, steps ahead", "mean of (forecast − actual) / scale")
    _model_lines(axes, np.arange(1.0, len(data.lead_bias) + 1), {MODEL: data.lead_bias})
    axes.locator_params(axis="x", integer=True)
    axes.axhline(0.0, **_GUIDE)
    label = f"mean error by lead, {_span(data.lead_bias)} scales"
    empty = not np.isfinite(data.lead_bias).any()
    note = "Above 0 forecasts are too high, below 0 too low."
    return _html("Bias by lead", label, None if empty else figure, note)


def calibration_chart(data: ReportData) -> str:
    """Observed share of actuals below each quantile, against its level."""
    levels = np.array(data.forecasts[0].levels)
    worst = float(np.abs(data.below - levels).max()) if len(levels) else np.nan
    figure, axes = _axes("quantile level", "share of actuals at or below it")
    axes.plot([0.0, 1.0], [0.0, 1.0], color=INK, linewidth=0.9)
    axes.plot(levels, data.below, color=BLUE, marker="o", markersize=4)
    axes.set_ylim(0.0, 1.0)
    axes.xaxis.set_major_formatter(_percent_ticks)
    axes.yaxis.set_major_formatter(_percent_ticks)
    return _html(
        "Calibration curve",
        f"observed share below each quantile; largest deviation from its level {percent(worst)}",
        figure if np.isfinite(data.below).any() else None,
        "On the thin line each quantile covers its nominal share. Above it on the left and below it on the "
        "right, the bands are too narrow.",
    )


def rank_chart(data: ReportData) -> str:
    """Histogram of the quantile interval that each actual fell into (PIT histogram)."""
    edges = np.array([0.0, *data.forecasts[0].levels, 1.0])
    figure, axes = _axes("quantile interval", "observed / nominal share")
    # Heights are densities: intervals between levels may differ in width.
    _bars(axes, edges, data.between / np.diff(edges))
    axes.axhline(1.0, **_GUIDE)
    axes.xaxis.set_major_formatter(_percent_ticks)
    return _html(
        "Probability integral transform",
        f"{percent(data.between[0])} of actuals below all quantiles, {percent(data.between[-1])} above all",
        figure if np.isfinite(data.between).any() else None,
        "All bars at 1 is calibrated; high ends mean too narrow bands, a slope means bias.",
    )


def error_chart(data: ReportData) -> str:
    """Histogram of scaled errors."""
    sample = data.errors
    limit = float(np.quantile(np.abs(sample), 0.99)) if len(sample) else 0.0
    edges = np.linspace(-(limit or 1.0), limit or 1.0, _BINS + 1)
    counts, _ = np.histogram(np.clip(sample, edges[0], edges[-1]), edges)
    figure, axes = _axes("(forecast − actual) / scale", "share of cells")
    _bars(axes, edges, counts / max(1, len(sample)))
    axes.axvline(0.0, **_GUIDE)
    axes.yaxis.set_major_formatter(_percent_ticks)
    median = signed(float(np.median(sample)) if len(sample) else np.nan, 3)
    return _html(
        "Errors",
        f"histogram of scaled errors; median {median}",
        figure if len(sample) else None,
        f"Median {median}; 1 is the in-sample error of seasonal naive. The outermost bars hold all "
        "larger errors.",
    )


def autocorrelation_chart(data: ReportData) -> str:
    """Autocorrelation of errors at lead 1 over cutoffs."""
    title = "Autocorrelation of one-step errors"
    values, noise = data.autocorrelation
    if not len(values):
        note = f"Not computed: it takes 8 cutoffs, found {len(data.cutoffs)}."
        return _html(title, "", None, note)
    figure, axes = _axes("lag, cutoffs", "correlation")
    edges = np.arange(len(values) + 1) + 0.5
    _bars(axes, edges, values, hatched=np.abs(values) <= noise)
    for level in (-noise, 0.0, noise):
        axes.axhline(level, **_GUIDE)
    return _html(
        title,
        f"autocorrelation of errors at lead 1; {number(values[0], 2)} at the next cutoff",
        figure,
        "Hatched bars, between the dashed lines, may be noise. High bars mean that the model misses "
        "something predictable.",
    )


def cutoff_chart(data: ReportData) -> str:
    """MASE by cutoff, a line per model."""
    times, scores = data.cutoffs, data.over_time
    bins = len(scores[MODEL])
    first = np.array([times[-(-n * len(times) // bins)] for n in range(bins)], np.float64)
    figure, axes = _axes("cutoff", "MASE")
    _model_lines(axes, first, scores)
    axes.set_ylim(bottom=0.0)
    text = data.forecasts[0].panel.calendar.text
    _label_ends(axes, first, lambda at: text(int(first[at])))
    note = "The error of the forecasts made at each cutoff."
    if bins < len(times):
        note += f" Each point is the mean of {len(times) / bins:.0f} cutoffs."
    empty = not any(np.isfinite(values).any() for values in scores.values())
    label = f"MASE by cutoff: the model {_span(scores[MODEL])}"
    return _html("Error over time", label, None if empty else figure, note)


def training_chart(curves: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Loss curves of the training."""
    figure, axes = _axes("step", "loss, scaled units")
    last = []
    for (name, points), style in zip(curves.items(), (_MODEL_STYLE, _BASELINE_STYLES[0]), strict=False):
        step, loss = np.array(points, np.float64).reshape(-1, 2).T
        axes.plot(step, loss, color=style[0], linestyle=style[1], linewidth=1.5)
        if len(loss):
            last.append(f"{name.replace('_', ' ')} (last {number(loss[-1], 3)})")
    named = ", ".join(last)
    return _html("Training", f"loss over steps: {named}", figure if last else None, named)


_GUIDE: dict[str, Any] = {"color": INK, "linewidth": 1.0, "linestyle": (0, (4, 3)), "alpha": 0.75}


def _percent_ticks(value: float, _: object) -> str:
    return f"{100 * value:.0f} %".replace("-", "−")


def _style_number(model: str, models: Sequence[str]) -> int:
    if model == MODEL:
        return 0
    baselines = sorted((name for name in models if name != MODEL), key=lambda name: name != NAIVE)
    return 1 + baselines.index(model) % len(_BASELINE_STYLES)


def _style(model: str, models: Sequence[str]) -> tuple[str, Any, str, str]:
    return (_MODEL_STYLE, *_BASELINE_STYLES)[_style_number(model, models)]


def _axes(x_name: str, y_name: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.75, 2.45))
    axes = figure.add_axes((0.15, 0.17, 0.82, 0.72))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.tick_params(labelsize=8)
    axes.set_xlabel(x_name, fontsize=9, labelpad=2)
    axes.set_title(y_name, fontsize=9, loc="left", pad=4)
    return figure, axes


def _model_lines(axes: Axes, x: Floats, scores: Mapping[str, Floats]) -> None:
    models = list(scores)
    for name in reversed(models):  # the model is drawn on top
        color, dashes, marker, _ = _style(name, models)
        axes.plot(
            x,
            scores[name],
            color=color,
            linestyle=dashes,
            marker=marker,
            markersize=4,
            markevery=max(1, len(x) // 8),
            linewidth=2.0 if name == MODEL else 1.2,
        )


def _bars(
    axes: Axes,
    edges: NDArray[np.floating],
    heights: NDArray[np.floating],
    hatched: NDArray[np.bool_] | None = None,
) -> None:
    axes.bar(edges[:-1], np.nan_to_num(heights), np.diff(edges), align="edge", color=BLUE, linewidth=0)
    if hatched is not None and hatched.any():
        some = np.flatnonzero(hatched)
        axes.bar(
            edges[:-1][some],
            heights[some],
            np.diff(edges)[some],
            align="edge",
            color="#ffffff",
            edgecolor=BLUE,
            hatch="////",
            linewidth=0.6,
        )


def _label_ends(axes: Axes, x: NDArray[np.floating], text: Callable[[int], str]) -> None:
    """Names only the ends of the x axis, where names are long."""
    if len(x) > 1:
        axes.set_xticks([x[0], x[-1]], [text(0), text(len(x) - 1)])
        left, right = axes.get_xticklabels()
        left.set_horizontalalignment("left")
        right.set_horizontalalignment("right")


def _span(values: Floats) -> str:
    real = values[np.isfinite(values)]
    return f"from {number(real.min(), 3)} to {number(real.max(), 3)}" if len(real) else NONE


def _html(title: str, label: str, figure: Figure | None, note: str) -> str:
    caption = f"<h3>{escape(title)}</h3>"
    note = f"<figcaption>{escape(note)}</figcaption>" if note else ""
    if figure is None:
        return f'<figure>{caption}<p class="none">Nothing to draw.</p>{note}</figure>'
    return f"<figure>{caption}{figure_svg(figure, label)}{note}</figure>"
