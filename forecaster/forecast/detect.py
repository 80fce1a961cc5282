"""Finds anomalies: each observed step against the band forecast one step before it.

Nothing is dropped: a step that cannot be compared keeps its row, with the reason in `status`.

    error of step t = value − median of lead 1 from the cutoff t − 1
    unit of step t  = mean |error| of the series · (1 + half-width of the fitted band / its mean) / 2
    band of step t  = median ± limit · unit: a share `level` of all |error| / unit lies below the limit
    score of step t = |error| / (limit · unit): 1 = on the edge

Anomalies of a series less than seven steps apart, as the days after a change of level, are one event.

Axes: R row of the panel · C channel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import SupportsFloat

import numpy as np
from numpy.typing import NDArray

from forecaster.arguments import typed
from forecaster.errors import ConfigError, number_of
from forecaster.forecast import plots
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.result import Result
from forecaster.lazy import Axes, Figure
from forecaster.panel.arrays import Bools, Floats, Ints
from forecaster.panel.audit import audit_panel
from forecaster.panel.frames import PolarsFrame
from forecaster.panel.panel import NO_TIME, Only, Panel

NAMES = ("", "inside", "above", "below")
"""Names of the values 0 … 3 of `Anomalies.anomaly`."""
OK, NO_VALUE, NO_HISTORY, NOT_FINITE = range(4)
_CUTOFFS = 1 << 14  # at a time: their quantiles of all leads are held at once
_NEAR = 7  # steps
_ANCHORS = (0.8, 0.975)  # shares of scores: a farther one would itself be of anomalies
_SHAPES = (0.5, 1.5)  # of tails; 0.68 = a normal distribution's, 1 = exponential
_MARKS = {2: ("^", "above"), 3: ("v", "below")}  # distinct by shape, not by colour alone


@dataclass(frozen=True, repr=False)
class Anomalies(Result):
    """For each step of a table whether it is an anomaly, with score and band."""

    panel: Panel
    """The table."""
    anomaly: NDArray[np.int8]
    """[R, C] number of a name in `NAMES`; 0 = none."""
    score: Floats
    """[R, C] distance from the median in half-widths of the band; NaN = none."""
    event: Ints
    """[R, C] number of the event that an anomaly belongs to, from 1; 0 = no anomaly."""
    band: Floats
    """[R, C, 3] lower end, median, upper end, data units; NaN = none."""
    reason: NDArray[np.int8]
    """[R, C] 0 = compared, else why not: a number of `reasons`."""
    reasons: tuple[str, ...]
    """In words."""
    level: float
    """Of the band, percent."""
    note: str
    """What limits the comparison: steps that the model was trained on."""

    @property
    def rows(self) -> PolarsFrame:
        """A polars frame with a row per (series, channel, step), in that order."""
        panel, channels = self.panel, self.panel.n_channels
        key = (panel.owner[:, None] * channels + np.arange(channels)).ravel()
        order, channel = cells = np.divmod(np.argsort(key, kind="stable"), channels)
        low, high = (f"{side}-{self.level:g}" for side in ("lo", "hi"))
        return panel.frame(
            panel.owner[order],
            panel.time[order],
            channel=channel,
            actual=panel.values[cells],
            forecast=self.band[..., 1][cells],
            **{low: self.band[..., 0][cells], high: self.band[..., 2][cells]},
            anomaly=np.array([None, *NAMES[1:]], dtype=object)[self.anomaly[cells]].tolist(),
            score=self.score[cells],
            event=self.event[cells],
            status=np.array(self.reasons)[self.reason[cells]],
        )

    @property
    def counts(self) -> dict[str, int]:
        """How many cells are inside, above and below; "" = not compared."""
        there = self.panel.present[self.panel.owner]
        found = np.bincount(self.anomaly[there], minlength=len(NAMES))
        return dict(zip(NAMES, found.tolist(), strict=True))

    @property
    def events(self) -> list[str]:
        """A line for each event, that of the highest score first: its times, and its row of this score."""
        panel, text = self.panel, self.panel.calendar.text
        channel, row = np.nonzero(self.event.T)
        score, event = self.score[row, channel], self.event[row, channel]
        lines = {}
        # Rows of an event lie side by side.
        for begin, end in pairwise(np.flatnonzero(np.diff(event, prepend=0, append=0)).tolist()):
            place = begin + int(score[begin:end].argmax())
            cell = row[place], channel[place]
            times = dict.fromkeys(text(panel.time[row[one]]) for one in (begin, end - 1))
            line = (
                f"{plots.series_title(panel, panel.owner[row[place]], channel[place])}, {' – '.join(times)}: "
                f"{NAMES[self.anomaly[cell]]}, score {score[place]:.2g}, {panel.values[cell]:.6g} "
                f"instead of {self.band[..., 1][cell]:.6g}; {number_of(end - begin, 'row')}"
            )
            lines[line] = score[place]
        return sorted(lines, key=lambda line: -lines[line])

    @property
    def report(self) -> str:
        """One line: how many steps are inside, above and below, how many are not compared and why, and the note."""
        count = self.counts
        compared = sum(count.values()) - count[""]
        line = (
            f"{self.panel.n_series:,} series, {sum(count.values()):,} rows: {count['inside']:,} inside the "
            f"{self.level:g} % band, {count['above']:,} above, {count['below']:,} below"
        )
        if compared:
            line += (
                f" ({100 * (1 - count['inside'] / compared):.1f} % outside) in "
                f"{number_of(int(self.event.max()), 'event')}"
            )
        there = self.panel.present[self.panel.owner]
        why = np.bincount(self.reason[there], minlength=len(self.reasons))
        without = [
            f"{n:,} {text}" for n, text in zip(why[1:].tolist(), self.reasons[1:], strict=True) if n
        ]
        if without:
            line += f"; {count['']:,} without a score: {', '.join(without)}"
        return "; ".join(filter(None, (line, self.note)))

    @typed
    def plot(self, only: Only = None) -> Figure:
        """Returns a figure of values, bands and anomalies: the series and channels of the highest scores.

        Args:
            only: names of series (several key columns joined with "/"); None = all.

        Raises:
            DataError: there is no such series.
        """
        panel, score = self.panel, np.nan_to_num(self.score, nan=-1.0, posinf=np.inf)
        shown = []
        for number in panel.numbers(only):
            begin, end = panel.indptr[number : number + 2]
            for channel in panel.present[number].nonzero()[0]:
                row = begin + score[begin:end, channel].argmax()
                shown.append((number, channel, row))
        shown = sorted(shown, key=lambda one: -score[one[2], one[1]])[: plots.PANELS]
        figure, axes = plots.panel_grid(len(shown))
        for axis, place in zip(axes, shown, strict=False):
            _draw(axis, self, *place)
        plots.shared_legend(figure, axes[0])
        return figure


def detect(
    artifact: Artifact,
    panel: Panel,
    level: float = 99.0,
    progress: Callable[[int, int], None] | None = None,
) -> Anomalies:
    """Returns the anomalies of a panel, by lead 1 of a model; see `Forecaster.detect`.

    Raises:
        ConfigError: `level` is no percentage.
        DataError: the audit finds errors.
    """
    if not (isinstance(level, SupportsFloat) and 0 < float(level) < 100):
        raise ConfigError(f"level {level!r}: expected a number above 0 and below 100, percent")
    audit_panel(panel)
    shape = (panel.n_rows, panel.n_channels)
    band = np.full((*shape, 3), np.nan)
    reason = np.full(shape, NO_VALUE, np.int8)
    predictor = Predictor(artifact)
    for first, part in panel.parts():
        rows = slice(int(panel.indptr[first]), int(panel.indptr[first + part.n_series]))
        band[rows], reason[rows] = _bands(predictor, part)
        if progress is not None:
            progress(first + part.n_series, panel.n_series)
    band, score = _scored(panel, band, float(level) / 100)
    above = panel.values[:, : panel.n_channels] > band[..., 1]
    anomaly = np.where(np.isnan(score), 0, np.where(score > 1, np.where(above, 2, 3), 1)).astype(
        np.int8
    )
    no_history = f"fewer than {artifact.plan.model.patch} steps of history, or none of them observed"
    return Anomalies(
        panel=panel,
        anomaly=anomaly,
        score=score,
        event=_numbered(anomaly > 1, panel.owner),
        band=band,
        reason=reason,
        reasons=("ok", "no value", no_history, "the forecast is not finite"),
        level=float(level),
        note=_note(artifact, panel, (reason == OK).any(axis=1)),
    )


def _bands(predictor: Predictor, panel: Panel) -> tuple[Floats, NDArray[np.int8]]:
    """Returns the bands [R, C, 3] of some series, and why there is none [R, C]."""
    artifact, channels = predictor.artifact, panel.n_channels
    values = panel.values[:, :channels]
    patch = artifact.plan.model.patch
    history = _has_history(values, panel.indptr[panel.owner], artifact.context_length, patch)
    reason = np.where(np.isnan(values), NO_VALUE, np.where(history, OK, NO_HISTORY)).astype(np.int8)
    wanted = np.flatnonzero((reason == OK).any(axis=1))
    band = np.full((*values.shape, 3), np.nan)
    # Every cutoff needs the rows of a whole horizon after it, the last one too.
    longer = panel.reaching(np.full(panel.n_series, NO_TIME), artifact.horizon)
    shift = longer.indptr[:-1] - panel.indptr[:-1]
    levels = artifact.plan.model.quantile_levels
    kept = [0, levels.index(0.5), len(levels) - 1]
    for start in range(0, len(wanted), _CUTOFFS):
        rows = wanted[start : start + _CUTOFFS]
        own = panel.owner[rows]
        band[rows] = predictor.quantiles(longer, own, rows - 1 + shift[own], leads=1)[:, 0][..., kept]
    reason[(reason == OK) & ~np.isfinite(band).all(axis=-1)] = NOT_FINITE
    band[reason != OK] = np.nan
    return band, reason


def _has_history(values: Floats, begin: Ints, length: int, patch: int) -> Bools:
    """Returns [R, C] whether a channel has begun `patch` rows before a row, with a value in the last `length`."""
    count = np.zeros((len(values) + 1, values.shape[1]), np.int64)
    np.cumsum(~np.isnan(values), axis=0, out=count[1:])
    row = np.arange(len(values))
    begun = count[np.maximum(begin, row - patch + 1)] > count[begin]
    return begun & (count[row] > count[np.maximum(begin, row - length)])


def _scored(panel: Panel, fitted: Floats, share: float) -> tuple[Floats, Floats]:
    """Returns bands [R, C, 3] that hold a share of the values, and scores [R, C]."""
    median = fitted[..., 1]
    error = panel.values[:, : panel.n_channels] - median
    size = np.abs(error)
    unit = np.abs(fitted - median[..., None])
    for begin, end in pairwise(panel.indptr.tolist()):
        for channel in range(panel.n_channels):
            own = slice(begin, end), channel
            known = size[own][~np.isnan(size[own])]
            if len(known):
                # The largest tenth counts as its smallest one: no anomaly hides the others.
                usual = np.minimum(known, np.quantile(known, 0.9) or known.max()).mean()
                mean = np.nanmean(unit[own][:, ::2])
                unit[own] = usual * (0.5 + 0.5 * unit[own] / mean if mean > 0 else 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        score = np.where(size == 0, 0.0, size / np.where(error > 0, unit[..., 2], unit[..., 0]))
        limit = _limit(score[~np.isnan(score)], share)
        return median[..., None] + limit * unit * (-1, 0, 1), np.where(size == 0, 0.0, score / limit)


def _limit(scores: Floats, share: float) -> float:
    """Returns what a share of scores lies below, by a Weibull tail through two of their quantiles near and far:

    limit(p) = far · (ln(1 − p) / ln(1 − .975))^k, k = ln(far / near) / ln(ln(1 − .975) / ln(1 − .8))
    """
    limit, (first, second) = 0.0, (log(1 - anchor) for anchor in _ANCHORS)
    # Twice: without the scores that hardly any healthy step has.
    for wanted in (0.999, share):
        near, far = np.quantile(scores, _ANCHORS) if len(scores) else (0.0, 0.0)
        if far == 0:
            return 0.0
        shape = np.clip(np.log(far / near) / log(second / first), *_SHAPES)
        limit = far * (log(1 - wanted) / second) ** shape
        scores = scores[scores <= limit]
    return limit


def _numbered(outside: Bools, owner: Ints) -> Ints:
    """Returns [R, C] the numbers of events, from 1; 0 = no anomaly."""
    event = np.zeros(outside.shape, np.int64)
    channel, row = np.nonzero(outside.T)
    begins = (np.diff(row, prepend=-_NEAR) >= _NEAR) | (np.diff(channel, prepend=-1) != 0)
    begins |= np.diff(owner[row], prepend=-1) != 0
    event[row, channel] = np.cumsum(begins)
    return event


def _note(artifact: Artifact, panel: Panel, compared: Bools) -> str:
    if panel.schema.time is None:
        return "without a time column it is unknown which steps the model was trained on"
    count = int((compared & (panel.time <= artifact.trained_until)).sum())
    if not count:
        return ""
    return (
        f"{count:,} of {int(compared.sum()):,} steps are not later than "
        f"{panel.calendar.text(artifact.trained_until)}, the end of the training data: fewer of them may look "
        "unusual than of new ones"
    )


def _draw(axis: Axes, anomalies: Anomalies, series: int, channel: int, row: int) -> None:
    panel = anomalies.panel
    rows = plots.last_steps(panel, series, row)
    time = plots.axis_times(panel, panel.time[rows])
    values, band = panel.values[rows, channel], anomalies.band[rows, channel]
    share = f"{anomalies.level:g} % band"
    axis.fill_between(
        time, band[:, 0], band[:, 2], color=plots.BAND, alpha=0.3, linewidth=0, label=share
    )
    axis.plot(time, values, color=plots.VALUES, linewidth=1.0, label="actual")
    for number, (mark, name) in _MARKS.items():
        at = np.flatnonzero(anomalies.anomaly[rows, channel] == number)
        axis.scatter(time[at], values[at], marker=mark, color=plots.TRUTH, s=18, label=name, zorder=3)
    axis.set_title(plots.series_title(panel, series, channel), fontsize=10, loc="left")
    plots.tidy(axis, dates=not panel.calendar.integer)
