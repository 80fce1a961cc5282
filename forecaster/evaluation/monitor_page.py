"""The page and the picture of a monitor: what has broken down, first in words."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from forecaster.evaluation.report_charts import picture
from forecaster.evaluation.report_data import number, percent
from forecaster.forecast.plots import (
    BAND,
    TITLE,
    TRUTH,
    VALUES,
    axis_times,
    panel_grid,
    shared_legend,
    tidy,
)
from forecaster.forecast.writer import html_page, html_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from forecaster.evaluation.monitor import Monitor

_COLUMNS = ("WQL", "MASE", "skill")


def monitor_page(monitor: Monitor) -> str:
    """Returns the page as HTML."""
    kind, sign = ("bad", "✗") if monitor.broken else ("good", "✓")
    since = monitor.panel.calendar.text(monitor.since)
    title = f"Monitor: {monitor.panel.name}"
    what = "the model has broken down" if monitor.broken else "the model is as it was"
    names = [*_COLUMNS, *monitor.coverage_names]
    rows = [
        [escape(name), *(_score(column, scores[column]) for column in names)]
        for name, scores in monitor.scores.items()
    ]
    items = "".join(f"<li>{escape(one.text)}</li>" for one in monitor.drifts)
    found = (
        f"<ul>{items}</ul>" if items else "<p>Nothing in the new rows differs from those before.</p>"
    )
    label = f"what the band held and the loss, by time; {monitor.sentence}"
    return html_page(
        title,
        f"<header><h1>{escape(title)}</h1><p>forecasts after {escape(since)}, beside the truth</p></header>"
        f'<section id="verdict" class="{kind}"><h2><span aria-hidden="true">{sign}</span> {what}</h2>'
        f"<p>{escape(monitor.verdict_in_use)}.</p></section>"
        f"<main><section><h2>By time</h2>{picture(plot_monitor(monitor), label)}</section>"
        f"<section><h2>How the new rows differ</h2>{found}</section>"
        f"<section><h2>Scores of the new rows</h2>"
        f"{html_table(['model', *names], rows, 'Scores by model')}</section></main>",
    )


def plot_monitor(monitor: Monitor) -> Figure:
    """Returns what the band held and the loss over that of seasonal naive, by time; forecasts before are grey."""
    figure, (share, loss) = panel_grid(2)
    parts = [("before", VALUES, monitor.usual), ("new", BAND, monitor.blocks)]
    since = axis_times(monitor.panel, np.array([monitor.since]))[0]
    dates = not monitor.panel.calendar.integer
    for axis, name, title in (
        (share, "inside", f"share inside the {monitor.band:g} % band"),
        (loss, "loss", "loss over that of seasonal naive"),
    ):
        for label, color, blocks in parts:
            if blocks is not None:
                times = axis_times(monitor.panel, blocks.time)
                axis.plot(
                    times, getattr(blocks, name), color=color, marker="o", markersize=4, label=label
                )
        axis.axvline(since, color=TRUTH, linestyle=":", linewidth=1.2, label="last row of the fit")
        axis.axhline(
            monitor.band / 100 if name == "inside" else 1.0, color=VALUES, linestyle="--", alpha=0.5
        )
        axis.set_ylim(bottom=0.0, top=1.05 if name == "inside" else None)
        axis.set_title(title, **TITLE)
        tidy(axis, dates=dates)
    shared_legend(figure, share)
    return figure


def _score(name: str, value: float) -> str:
    return percent(value) if name == "skill" or name.startswith("coverage") else number(value)
