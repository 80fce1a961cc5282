"""The charts of a report.

What comes in: `Evidence`. What goes out: figures as HTML, each with its own title and its main figures
in words for those who cannot see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from forecaster.evaluation.report.chart import Band, Bar, Chart, Line, Look, figure
from forecaster.evaluation.report.evidence import Evidence, Floats
from forecaster.evaluation.report.numbers import NONE, number, percent, short, signed
from forecaster.evaluation.report.ranking import Item, Ranking
from forecaster.evaluation.rivals import MODEL, NAIVE

_OURS = Look("var(--blue)", "", "circle", 2.6)
_RIVALS = (
    Look("var(--orange)", "7 4", "square"),
    Look("var(--green)", "2 3", "triangle"),
    Look("var(--purple)", "9 3 2 3", "diamond"),
    Look("var(--brown)", "4 2", "drop"),
    Look("var(--ink)", "12 3", "cross"),
)
TRUTH, MEDIAN = Look("var(--ink)", "", "", 1.2), Look("var(--blue)", "", "", 2.4)
_MOST_HISTORY = 240
_BINS = 30


def look_of(model: str, models: Sequence[str]) -> Look:
    """Returns how a model's lines look; seasonal naive's are the same on every page."""
    if model == MODEL:
        return _OURS
    rivals = sorted((name for name in models if name != MODEL), key=lambda name: name != NAIVE)
    return _RIVALS[rivals.index(model) % len(_RIVALS)]


def window(found: Evidence, item: Item, rank: str) -> str:
    """Returns the picture of one window: history, truth, median and widest band."""
    place = found.place(item.window, item.channel)
    forecast = found.forecasts[place.forecast]
    panel, series = forecast.panel, int(forecast.series[place.row])
    begin, end = int(panel.indptr[series]), int(panel.indptr[series + 1])
    cutoff = int(forecast.cutoff[place.row])
    past = begin + int(np.searchsorted(panel.time[begin:end], cutoff, side="right"))
    horizon = forecast.time.shape[1]
    season = panel.calendar.season_length
    shown = min(max(2 * horizon, 2 * min(season, 2 * horizon)), max(_MOST_HISTORY, horizon))
    rows = np.arange(max(begin, past - shown), past)
    assert forecast.actual is not None
    truth = np.concatenate(
        [panel.values[rows, item.channel], forecast.actual[place.row, :, item.channel]]
    )
    times = np.concatenate([panel.time[rows], forecast.time[place.row]])
    steps = np.arange(len(times)) - len(rows) + 1.0
    quantiles = forecast.quantiles[place.row, :, item.channel].astype(np.float64)
    ahead, median = steps[len(rows) :], quantiles[:, forecast.levels.index(0.5)]
    lines = [Line("forecast", ahead, median, MEDIAN), Line("truth", steps, truth.astype(float), TRUTH)]
    text = panel.calendar.text
    share = round(100 * (forecast.levels[-1] - forecast.levels[0]))
    return figure(
        Chart(
            title=item.name,
            label=f"{rank}: {item.name}, forecast after {text(cutoff)} with {share} % band and the "
            f"truth; MASE {number(item.mase, 3)}",
            x_name=f"forecast after {text(cutoff)}",
            y_name=target if (target := panel.schema.target[item.channel]) != item.name else "",
            lines=lines,
            bands=[Band(ahead, quantiles[:, 0], quantiles[:, -1])],
            upright=[0.5],
            x_text=lambda step: text(
                int(times[int(np.clip(round(step) + len(rows) - 1, 0, len(times) - 1))])
            ),
            ends=True,
            note=f"{rank} · MASE {number(item.mase, 3)}, WQL {number(item.wql, 3)}, "
            f"skill {signed(100 * item.skill, 3)} %".replace(f"{NONE} %", NONE),
        )
    )


def skills(ranked: Ranking) -> str:
    """Returns how the skill is spread over series."""
    shown = np.clip(ranked.skills, -1.0, 1.0)
    edges = np.linspace(-1.0, 1.0, 41)
    counts, _ = np.histogram(shown, edges)
    beaten = int((ranked.skills > 0).sum())
    bars = [
        Bar(
            low,
            high,
            float(n),
            f"{n} with a skill of {percent(low, 0)} to {percent(high, 0)}",
            high <= 1e-9,
        )
        for low, high, n in zip(edges[:-1], edges[1:], counts, strict=True)
        if n
    ]
    what = ranked.kinds
    return figure(
        Chart(
            title=f"Skill over all {what}",
            label=f"{beaten} of {len(shown)} {what} are better than seasonal naive",
            x_name="skill: share of seasonal naive's WQL that is gone",
            y_name=what,
            bars=bars,
            upright=[0.0],
            x_text=lambda share: percent(share, 0),
            note=f"{beaten:,} of {len(shown):,} beat seasonal naive; hatched bars, left of 0, lose to "
            "it. Below −100 % counts as −100 %.",
        )
    )


def by_lead(found: Evidence, metric: str, title: str, note: str = "") -> str:
    """Returns a metric over leads, a line per model."""
    scores = {name: mine.by_lead()[metric] for name, mine in found.tallies.items()}
    lead = np.arange(1.0, len(scores[MODEL]) + 1)
    mine = scores[MODEL]
    ends = f"from {number(mine[0], 3)} at lead 1 to {number(mine[-1], 3)} at lead {len(mine)}"
    lines = [Line(name, lead, values, look_of(name, list(scores))) for name, values in scores.items()]
    covers = metric.startswith("coverage")
    aim = int(metric.split("_")[1]) / 100 if covers else None
    return figure(
        Chart(
            title=title,
            label=f"{title}: ours {ends}",
            x_name="lead, steps ahead",
            y_name="share inside" if covers else metric,
            lines=lines,
            across=[] if aim is None else [aim],
            y_range=(0.0, 1.0) if covers else None,
            from_zero=True,
            y_text=(lambda share: percent(share, 0)) if covers else short,
            whole=True,
            note=note,
        )
    )


def bias(found: Evidence) -> str:
    """Returns the mean error over leads."""
    lead = np.arange(1.0, len(found.lead_bias) + 1)
    return figure(
        Chart(
            title="Bias by lead",
            label=f"mean error by lead, {_range(found.lead_bias)} scales",
            x_name="lead, steps ahead",
            y_name="mean of (forecast − truth) / scale",
            lines=[Line(MODEL, lead, found.lead_bias, _OURS)],
            across=[0.0],
            whole=True,
            note="Above 0 we forecast too much, below 0 too little.",
        )
    )


def calibration(found: Evidence) -> str:
    """Returns how often the truth lay under each quantile."""
    levels = np.array(found.forecasts[0].levels)
    worst = float(np.abs(found.below - levels).max()) if len(levels) else np.nan
    diagonal = Line("a calibrated model", np.array([0.0, 1.0]), np.array([0.0, 1.0]), TRUTH)
    return figure(
        Chart(
            title="Calibration curve",
            label=f"observed share under each quantile; farthest from its level by {percent(worst)}",
            x_name="quantile level",
            y_name="share of truths at or below it",
            lines=[Line(MODEL, levels, found.below, _OURS), diagonal],
            y_range=(0.0, 1.0),
            x_text=lambda share: percent(share, 0),
            y_text=lambda share: percent(share, 0),
            note="On the thin line each quantile holds what it says. Above it on the left and below it "
            "on the right, the bands are too narrow.",
        )
    )


def ranks(found: Evidence) -> str:
    """Returns where the truth lay among the quantiles, against where it should."""
    levels = np.array([0.0, *found.forecasts[0].levels, 1.0])
    edges = list(pairwise(levels))
    # Heights are densities: gaps between levels may differ.
    heights = found.between / np.diff(levels)
    bars = [
        Bar(low, high, float(h), f"{percent(low, 0)} to {percent(high, 0)}: {percent(share)} of truths")
        for (low, high), h, share in zip(edges, heights, found.between, strict=True)
        if np.isfinite(h)
    ]
    return figure(
        Chart(
            title="Where the truth fell",
            label=f"{percent(found.between[0])} of truths under all quantiles, "
            f"{percent(found.between[-1])} above all",
            x_name="between these quantile levels",
            y_name="times as often as it should",
            bars=bars,
            across=[1.0],
            x_text=lambda share: percent(share, 0),
            note="All bars at 1 is calibrated; high ends mean bands too narrow, a slope means bias.",
        )
    )


def errors(found: Evidence) -> str:
    """Returns the histogram of scaled errors."""
    sample = found.errors
    reach = float(np.quantile(np.abs(sample), 0.99)) if len(sample) else 0.0
    edges = np.linspace(-(reach or 1.0), reach or 1.0, _BINS + 1)
    counts, _ = np.histogram(np.clip(sample, edges[0], edges[-1]), edges)
    bars = [
        Bar(
            low,
            high,
            n / len(sample),
            f"{number(low, 3)} to {number(high, 3)}: {percent(n / len(sample))}",
        )
        for low, high, n in zip(edges[:-1], edges[1:], counts, strict=True)
        if n
    ]
    middle = float(np.median(sample)) if len(sample) else np.nan
    return figure(
        Chart(
            title="Errors",
            label=f"histogram of scaled errors; median {signed(middle, 3)}",
            x_name="(forecast − truth) / scale",
            y_name="share of cells",
            bars=bars,
            upright=[0.0],
            y_text=lambda share: percent(share, 0 if counts.max(initial=0) > 0.05 * len(sample) else 1),
            note=f"Median {signed(middle, 3)}; 1 is the usual error of seasonal naive on the history. "
            "The outermost bars hold all that is farther out.",
        )
    )


def autocorrelation(found: Evidence) -> str:
    """Returns how far errors at lead 1 resemble those of earlier cutoffs."""
    values, noise = found.autocorrelation
    if not len(values):
        return (
            '<figure><h3>Do one-step errors repeat?</h3><p class="none">Not told: it takes 8 cutoffs, '
            f"and there {'is' if len(found.cutoffs) == 1 else 'are'} {len(found.cutoffs)}.</p></figure>"
        )
    bars = [
        Bar(lag - 0.3, lag + 0.3, float(value), f"lag {lag}: {number(value, 2)}", abs(value) <= noise)
        for lag, value in enumerate(values, start=1)
    ]
    low, high = min(0.0, float(values.min()), -noise), max(0.0, float(values.max()), noise)
    return figure(
        Chart(
            title="Do one-step errors repeat?",
            label=f"autocorrelation of errors at lead 1; {number(values[0], 2)} at the next cutoff",
            x_name="cutoffs apart",
            y_name="correlation",
            bars=bars,
            across=[-noise, 0.0, noise],
            y_range=(1.1 * low, 1.1 * high),
            whole=True,
            note="Hatched bars, between the dashed lines, may be chance. High bars mean that the model "
            "leaves something behind that it could have known.",
        )
    )


def by_cutoff(found: Evidence) -> str:
    """Returns the error over time, a line per model."""
    times, scores = found.cutoffs, found.over_time
    bins = len(scores[MODEL])
    first = np.array([times[-(-n * len(times) // bins)] for n in range(bins)], np.float64)
    lines = [Line(name, first, values, look_of(name, list(scores))) for name, values in scores.items()]
    text = found.forecasts[0].panel.calendar.text
    averaged = (
        f" Each point is the mean of {len(times) / bins:.0f} cutoffs." if bins < len(times) else ""
    )
    return figure(
        Chart(
            title="Error over time",
            label=f"MASE by cutoff: ours {_range(scores[MODEL])}",
            x_name="cutoff",
            y_name="MASE",
            lines=lines,
            from_zero=True,
            x_text=lambda time: text(int(time)),
            ends=True,
            note=f"The error of the forecasts made at each cutoff.{averaged}",
        )
    )


def training(curves: dict[str, list[list[float]]]) -> str:
    """Returns the loss curves of the training."""
    looks = (_OURS, _RIVALS[0])
    lines = []
    for (name, points), look in zip(curves.items(), looks, strict=False):
        step, loss = np.array(points, np.float64).reshape(-1, 2).T
        lines.append(Line(name.replace("_", " "), step, loss, look))
    named = ", ".join(f"{line.name} (last {number(line.y[-1], 3)})" for line in lines if len(line.y))
    return figure(
        Chart(
            title="Training",
            label=f"loss over steps: {named}",
            x_name="step",
            y_name="loss, scaled units",
            lines=lines,
            note=named,
        )
    )


def _range(values: Floats) -> str:
    real = values[np.isfinite(values)]
    return f"from {number(real.min(), 3)} to {number(real.max(), 3)}" if len(real) else NONE
