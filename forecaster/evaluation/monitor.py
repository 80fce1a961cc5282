"""A model in use: forecasts meet the truth that has come, and are judged by what was usual before.

    forecasts before `since`, a horizon apart ─▶ blocks of a horizon: what was usual
    forecasts from `since` on                 ─▶ the newest two blocks: as usual, or not

    far = (x − mean of the usual x) / (their standard deviation · √(1/newest + 1/B))

    x   band   −share inside, or log of the mean |truth − median| over the distance of the band's end on that side
        loss   log of the pinball loss over that of seasonal naive

of each of the newest blocks and of both is compared with Student's t of B − 1 degrees, at one false alarm in two
hundred. It must be bad enough to matter, too.

Axes: N series · H lead · C channel · B block.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any, NamedTuple

import numpy as np

from forecaster.arguments import typed
from forecaster.evaluation.backtest import Backtest, actual_of
from forecaster.evaluation.comparison import NAIVE
from forecaster.evaluation.metrics import pinball
from forecaster.evaluation.report_charts import picture
from forecaster.evaluation.report_data import score_text
from forecaster.forecast.card import FAR_OFF
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
from forecaster.lazy import AnyFrame, Figure
from forecaster.panel.arrays import Floats, Ints
from forecaster.panel.findings import Finding
from forecaster.panel.frames import frame_of, to_kind
from forecaster.panel.panel import Only

NEWEST = 2
"""Horizons that are judged."""
_FEWEST = 5  # blocks that say what is usual
_ALARMS = 0.005  # of untouched models, by each judgement
_WORSE = 1.25  # times the usual loss over that of seasonal naive
_LEAST_SPREAD = 0.03
_BIAS, _STRONG = 0.05, 3.0  # of the truth, and of the standard deviation of usual biases
_FARTHEST = 3.0  # distances of a band's end that a miss counts as at most


class Blocks(NamedTuple):
    """What forecasts were worth by the time that they were made for, in blocks of a horizon."""

    time: Ints
    """[B] last time of each."""
    cells: Floats
    """[B] with a truth."""
    inside: Floats
    """[B] share of the truths inside the band."""
    distance: Floats
    """[B] mean distance of the truth from the median, in those of the band's ends."""
    loss: Floats
    """[B] pinball loss over that of seasonal naive."""
    bias: Floats
    """[B] sum of the median less the truth, over that of the absolute truth."""

    def between(self, first: int, last: int) -> Blocks:
        """Returns some neighbouring blocks."""
        return Blocks._make(part[first:last] for part in self)

    def mean(self, values: Floats) -> float:
        """Returns the mean of values [B] by cells; NaN of none."""
        known = np.isfinite(values) & (self.cells > 0)
        return float(np.average(values[known], weights=self.cells[known])) if known.any() else np.nan


@dataclass(frozen=True, repr=False)
class Monitor(Backtest):
    """Forecasts of rows that have come since a fit, beside the truth, baselines and what was usual before."""

    past: Backtest | None = None
    """The model's forecasts before `since`; None = the table does not reach back far enough."""
    since: int = 0
    """Time of the last row that the model knows, or of the first cutoff of given forecasts."""
    drifts: tuple[Finding, ...] = ()
    """How the new rows differ from those before."""

    def __repr__(self) -> str:
        return f"Monitor({self.verdict_in_use})"

    @cached_property
    def blocks(self) -> Blocks:
        """The new forecasts, the newest block last."""
        return _blocks(self, self.since)

    @cached_property
    def usual(self) -> Blocks | None:
        """The forecasts before."""
        return None if self.past is None else _blocks(self.past, self.since)

    @property
    def frame_by_time(self) -> AnyFrame:
        """A row per block of a horizon, as the caller's kind of frame: time, new, cells, band, loss and bias."""
        before = self.blocks.between(0, 0) if self.usual is None else self.usual
        every = Blocks._make(map(np.append, before, self.blocks))
        columns: dict[str, Any] = {
            "until": self.panel.stamps(every.time, "until"),
            "new": np.arange(len(every.time)) >= len(before.time),
        }
        columns |= {name: getattr(every, name) for name in Blocks._fields[1:]}
        return to_kind(frame_of(columns).fill_nan(None), self.panel.kind)

    @property
    def band(self) -> float:
        """The outermost band of the forecasts, percent."""
        levels = self.forecasts[0].levels
        return 100 * (levels[-1] - levels[0])

    @cached_property
    def judgements(self) -> tuple[Finding, ...]:
        """What has broken down, as errors, and what may, as warnings."""
        new, usual = self.blocks, self.usual
        if usual is None or np.isfinite(usual.distance).sum() < _FEWEST:
            text = "too few forecasts before these to tell what is usual"
            return (Finding("note", "usual", text, f"at least {_FEWEST} horizons are needed"),)
        count = len(new.time)
        first = max(0, count - NEWEST)
        newest = new.between(first, count)
        # Each of the newest blocks, and all together.
        spans = [new.between(place, place + 1) for place in range(first, count)]
        spans += [newest] * (len(spans) > 1)
        found = list[Finding]()
        narrow = [
            one
            for one in spans
            if one.mean(one.inside) < self.band / 100 - FAR_OFF
            and (_far(one, usual, "distance") or _far(one, usual, "inside"))
        ]
        if narrow:
            last = narrow[-1]
            held = f"held {100 * last.mean(last.inside):.0f} % {self._span(last)}"
            said = f"the {self.band:g} % band {held}, {100 * usual.mean(usual.inside):.0f} % before"
            found.append(Finding("error", "band", said, "update the model, or --recalibrate its bands"))
        before = usual.mean(usual.loss)
        worse = [
            one for one in spans if one.mean(one.loss) > _WORSE * before and _far(one, usual, "loss")
        ]
        if worse:
            last = worse[-1]
            loss = f"{last.mean(last.loss):.2f} of seasonal naive's {self._span(last)}"
            said = f"its loss was {loss}, {before:.2f} before"
            found.append(Finding("error", "skill", said, "update the model, or fit it again"))
        bias = newest.mean(newest.bias)
        usual_bias = usual.bias[np.isfinite(usual.bias)]
        if len(usual_bias) and abs(bias) > max(_BIAS, _STRONG * float(usual_bias.std())):
            way = "high" if bias > 0 else "low"
            said = f"forecasts were too {way} by {100 * abs(bias):.0f} % {self._span(newest)}"
            found.append(Finding("warning", "bias", said, "update the model"))
        return tuple(found)

    def _span(self, blocks: Blocks) -> str:
        """The time of blocks in words."""
        horizon, calendar = self.forecasts[0].time.shape[1], self.panel.calendar
        first = int(calendar.shift(int(blocks.time[0]), 1 - horizon))
        last = min(int(blocks.time[-1]), self.panel.last_time())
        return f"from {calendar.text(first)} to {calendar.text(last)}"

    @property
    def broken(self) -> bool:
        """Whether a band or the skill has broken down."""
        return any(one.severity == "error" for one in self.judgements)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What has broken down or may, and how the new rows differ from those before."""
        return (*self.judgements, *self.drifts)

    @property
    def verdict_in_use(self) -> str:
        """Whether the model is as it was, in words."""
        if bad := self._bad:
            return "; ".join(one.text for one in bad)
        held = 100 * self.blocks.mean(self.blocks.inside)
        span = self._span(self.blocks)
        notes = [one.text for one in self.judgements] or ["nothing has broken down"]
        return f"{notes[0]}: the {self.band:g} % band holds {held:.0f} % {span}"

    @property
    def sentence(self) -> str:
        """Whether the model is as it was, how the new rows differ, and what to do."""
        differs = "; ".join(one.text for one in self.drifts)
        if bad := self._bad:
            return f"{self.verdict_in_use}{': ' * bool(differs)}{differs}; {bad[0].advice}"
        return f"{self.verdict_in_use}{'; but ' * bool(differs)}{differs}"

    @property
    def _bad(self) -> list[Finding]:
        """The judgements, without that nothing can be judged."""
        return [one for one in self.judgements if one.severity != "note"]

    def _page(self) -> str:
        return monitor_page(self)

    @typed
    def plot(self, only: Only = None) -> Figure:
        """A figure of what the band held and of the loss, by time, before the fit's last row (grey) and after."""
        figure, (share, loss) = panel_grid(2)
        since = axis_times(self.panel, np.array([self.since]))[0]
        aim = self.band / 100
        for axis, name, usual, top, title in (
            (share, "inside", aim, 1.05, f"share inside the {self.band:g} % band"),
            (loss, "loss", 1.0, None, "loss over that of seasonal naive"),
        ):
            for label, color, blocks in (("before", VALUES, self.usual), ("new", BAND, self.blocks)):
                if blocks is not None:
                    times, values = axis_times(self.panel, blocks.time), getattr(blocks, name)
                    axis.plot(times, values, color=color, marker="o", markersize=4, label=label)
            axis.axvline(since, color=TRUTH, linestyle=":", linewidth=1.2, label="last row of the fit")
            axis.axhline(usual, color=VALUES, linestyle="--", alpha=0.5)
            axis.set_ylim(bottom=0.0, top=top)
            axis.set_title(title, **TITLE)
            tidy(axis, dates=not self.panel.calendar.integer)
        shared_legend(figure, share)
        return figure


def monitor_page(monitor: Monitor) -> str:
    """Returns the page as HTML: what has broken down, first in words."""
    kind, sign, what = "good", "✓", "the model is as it was"
    if monitor.broken:
        kind, sign, what = "bad", "✗", "the model has broken down"
    elif monitor.judgements:
        kind, sign, what = "even", "≈", monitor.judgements[0].text
    since = monitor.panel.calendar.text(monitor.since)
    title = f"Monitor: {monitor.panel.name}"
    names = ["WQL", "MASE", "skill", *monitor.coverage_names]
    rows = [
        [escape(name), *(score_text(metric, scores[metric]) for metric in names)]
        for name, scores in monitor.scores.items()
    ]
    items = "".join(f"<li>{escape(one.text)}</li>" for one in monitor.drifts)
    found = "<p>Nothing in the new rows differs from those before.</p>"
    if items:
        found = f"<ul>{items}</ul>"
    label = f"what the band held and the loss, by time; {monitor.sentence}"
    return html_page(
        title,
        f"<header><h1>{escape(title)}</h1><p>forecasts after {escape(since)}, beside the truth</p></header>"
        f'<section id="verdict" class="{kind}"><h2><span aria-hidden="true">{sign}</span> {what}</h2>'
        f"<p>{escape(monitor.verdict_in_use)}.</p></section>"
        f"<main><section><h2>By time</h2>{picture(monitor.plot(), label)}</section>"
        f"<section><h2>How the new rows differ</h2>{found}</section>"
        f"<section><h2>Scores of the new rows</h2>"
        f"{html_table(['model', *names], rows, 'Scores by model')}</section></main>",
    )


def _measure(blocks: Blocks, name: str) -> Floats:
    """[B] what is judged: the share inside with a minus, else logarithms, NaN of 0."""
    values: Floats = getattr(blocks, name)
    return -values if name == "inside" else np.log(np.where(values > 0, values, np.nan))


def _far(new: Blocks, usual: Blocks, name: str) -> bool:
    """Whether the mean of a measure of blocks is above that of usual ones by more than one in two hundred is."""
    from scipy.stats import t  # half a second, for a monitor alone

    x, before = new.mean(_measure(new, name)), _measure(usual, name)
    before = before[np.isfinite(before)]
    count = len(before)
    if count < _FEWEST or not np.isfinite(x):
        return False
    spread = max(float(before.std(ddof=1)), _LEAST_SPREAD)
    cells = np.minimum(1.0, new.cells / np.median(usual.cells))
    error = spread * (1 / cells.sum() + 1 / count) ** 0.5
    return bool((x - before.mean()) / error > t.ppf(1 - _ALARMS, count - 1))


def _blocks(backtest: Backtest, since: int) -> Blocks:
    """Means over the cells of forecasts by the times they were made for, in horizons from a time on, or back."""
    first = backtest.forecasts[0]
    horizon, levels, calendar = first.time.shape[1], first.levels, first.panel.calendar
    measured = []
    for one, beside in zip(backtest.forecasts, backtest.beside, strict=True):
        actual, naive = actual_of(one), beside[NAIVE]
        known = np.isfinite(actual) & np.isfinite(naive.median)
        known &= np.isfinite(one.quantiles).all(axis=-1)
        time = np.broadcast_to(one.time[..., None], actual.shape)[known]
        truth, quantiles, median = (
            actual[known],
            one.quantiles[known],
            one.median[known],
        )  # [n], [n, Q], [n]
        low, high = quantiles[:, 0], quantiles[:, -1]
        missed = truth - median
        end = np.abs(np.where(missed < 0, low, high) - median)
        columns = (
            (calendar.steps(since, time) - 1) // horizon,
            (low <= truth) & (truth <= high),
            np.minimum(np.abs(missed), _FARTHEST * end) / np.maximum(end, 1e-300),
            pinball(truth, quantiles, levels).sum(axis=1),
            pinball(truth, naive.quantiles[known], levels).sum(axis=1),
            -missed,
            np.abs(truth),
        )
        measured.append(np.stack(columns))
    number, *others = np.concatenate(measured, axis=1)
    number, block = np.unique(number.astype(np.int64), return_inverse=True)
    cells = np.bincount(block).astype(np.float64)
    inside, distance, loss, naive_loss, bias, size = (np.bincount(block, own) for own in others)
    time = np.asarray(calendar.shift(since, horizon * (number + 1)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return Blocks(time, cells, inside / cells, distance / cells, loss / naive_loss, bias / size)
