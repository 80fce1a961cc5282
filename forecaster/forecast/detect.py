"""Finds anomalies: each observed step against the band forecast one step before it.

Nothing is dropped: a step that cannot be compared keeps its row, with the reason in `status`.

    band of step t = quantiles of lead 1 from the cutoff t − 1, calibrated
    score of step t = |value − median| / half-width of the band on the value's side: 1 = on the edge

Axes: R row of the panel · C channel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from forecaster.arguments import typed
from forecaster.errors import ConfigError
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.result import Result
from forecaster.panel.audit import audit_panel
from forecaster.panel.frames import PolarsFrame
from forecaster.panel.panel import NO_TIME, Only, Panel
from forecaster.windows.index import Int64

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = ("", "inside", "above", "below")
"""Names of the values 0 … 3 of `Anomalies.anomaly`."""
OK, NO_VALUE, NO_HISTORY, NOT_FINITE = range(4)
_CUTOFFS = 1 << 14  # at a time: their quantiles of all leads are held at once
_MARKS = {2: ("^", "above"), 3: ("v", "below")}  # distinct by shape, not by colour alone


@dataclass(frozen=True, repr=False)
class Anomalies(Result):
    """For each step of a table whether it is an anomaly, with score and band."""

    panel: Panel
    """The table."""
    anomaly: NDArray[np.int8]
    """[R, C] number of a name in `NAMES`; 0 = none."""
    score: NDArray[np.float64]
    """[R, C] distance from the median in half-widths of the band; NaN = none."""
    band: NDArray[np.float64]
    """[R, C, 3] lower quantile, median, upper quantile, data units; NaN = none."""
    reason: NDArray[np.int8]
    """[R, C] 0 = compared, else why not: a number of `reasons`."""
    reasons: tuple[str, ...]
    """In words."""
    levels: tuple[float, float]
    """Of the band."""
    note: str
    """What limits the comparison: no calibration, or steps that the model was trained on."""

    @property
    def rows(self) -> PolarsFrame:
        """A polars frame with a row per (series, channel, step), in that order."""
        panel, channels = self.panel, self.panel.n_channels
        key = (panel.owner[:, None] * channels + np.arange(channels)).ravel()
        order, channel = cells = np.divmod(np.argsort(key, kind="stable"), channels)
        low, high = (f"q{level:g}" for level in self.levels)
        return panel.frame(
            panel.owner[order],
            panel.time[order],
            channel=channel,
            actual=panel.values[cells],
            forecast=self.band[..., 1][cells],
            **{low: self.band[..., 0][cells], high: self.band[..., 2][cells]},
            anomaly=np.array([None, *NAMES[1:]], dtype=object)[self.anomaly[cells]].tolist(),
            score=self.score[cells],
            status=np.array(self.reasons)[self.reason[cells]],
        )

    @property
    def counts(self) -> dict[str, int]:
        """How many cells are inside, above and below; "" = not compared."""
        there = self.panel.present[self.panel.owner]
        found = np.bincount(self.anomaly[there], minlength=len(NAMES))
        return dict(zip(NAMES, found.tolist(), strict=True))

    @property
    def report(self) -> str:
        """One line: how many steps are inside, above and below, how many are not compared and why, and the note."""
        count, share = self.counts, 100 * (self.levels[1] - self.levels[0])
        compared = sum(count.values()) - count[""]
        line = (
            f"{self.panel.n_series:,} series, {sum(count.values()):,} rows: {count['inside']:,} inside the "
            f"{share:.0f} % band, {count['above']:,} above, {count['below']:,} below"
        )
        if compared:
            line += f" ({100 * (1 - count['inside'] / compared):.1f} % outside)"
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
        """Returns a figure of values, bands, and values outside; a panel per series and channel.

        Args:
            only: names of series (several key columns joined with "/"); None = the first few.

        Raises:
            DataError: there is no such series.
        """
        from forecaster.forecast.plots import PANELS, panel_grid, shared_legend

        panel = self.panel
        some = panel.numbers(only)[:PANELS].tolist()
        shown = [(number, channel) for number in some for channel in panel.present[number].nonzero()[0]]
        figure, axes = panel_grid(len(shown))
        for axis, (number, channel) in zip(axes, shown, strict=False):
            _draw(axis, self, number, channel)
        shared_legend(figure, axes[0])
        return figure


def detect(
    artifact: Artifact,
    panel: Panel,
    beyond: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
) -> Anomalies:
    """Returns the anomalies of a panel, by lead 1 of a model; see `Forecaster.detect`.

    Raises:
        ConfigError: the model has no band, or `beyond` is not above 0.
        DataError: the audit finds errors.
    """
    levels = artifact.plan.model.quantile_levels
    if levels[0] >= 0.5 or levels[-1] <= 0.5:
        raise ConfigError(
            f"this model's quantile levels {list(levels)} have none on either side of the median, so "
            "there is no band; fit one with --set model.quantile_levels=[0.1,0.5,0.9]"
        )
    if not (isinstance(beyond, SupportsFloat) and 0 < float(beyond) < np.inf):
        raise ConfigError(f"beyond {beyond!r}: expected a number above 0; 1 is the edge of the band")
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
    anomaly, score = _anomalies(panel.values[:, : panel.n_channels], band, beyond)
    no_history = f"fewer than {artifact.plan.model.patch} steps of history, or none of them observed"
    return Anomalies(
        panel=panel,
        anomaly=anomaly,
        score=score,
        band=band,
        reason=reason,
        reasons=("ok", "no value", no_history, "the forecast is not finite"),
        levels=(levels[0], levels[-1]),
        note=_note(artifact, panel, (reason == OK).any(axis=1)),
    )


def _bands(predictor: Predictor, panel: Panel) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
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


def _has_history(
    values: NDArray[np.float64], begin: Int64, length: int, patch: int
) -> NDArray[np.bool_]:
    """Returns [R, C] whether a channel has begun `patch` rows before a row, with a value in the last `length`."""
    count = np.zeros((len(values) + 1, values.shape[1]), np.int64)
    np.cumsum(~np.isnan(values), axis=0, out=count[1:])
    row = np.arange(len(values))
    begun = count[np.maximum(begin, row - patch + 1)] > count[begin]
    return begun & (count[row] > count[np.maximum(begin, row - length)])


def _anomalies(
    values: NDArray[np.float64], band: NDArray[np.float64], beyond: float
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Returns anomaly and score of each cell; a band without width has the score ∞ on its outside."""
    low, median, high = (band[..., place] for place in range(3))
    above = values > median
    half, distance = np.where(above, high - median, median - low), np.abs(values - median)
    with np.errstate(divide="ignore", invalid="ignore"):
        score = np.where(distance == 0, 0.0, distance / half)
    known = ~np.isnan(distance)
    outside = distance > beyond * half
    anomaly = np.where(known, np.where(outside, np.where(above, 2, 3), 1), 0)
    return anomaly.astype(np.int8), np.where(known, score, np.nan)


def _note(artifact: Artifact, panel: Panel, compared: NDArray[np.bool_]) -> str:
    notes = []
    if artifact.ensemble.conformal_factors is None:
        notes.append("the band is not calibrated")
    if panel.schema.time is None:
        notes.append("without a time column it is unknown which steps the model was trained on")
    elif count := int((compared & (panel.time <= artifact.trained_until)).sum()):
        until = panel.calendar.text(artifact.trained_until)
        notes.append(
            f"{count:,} of {int(compared.sum()):,} steps are not later than {until}, the end of the "
            "training data: fewer of them may look unusual than of new ones"
        )
    return "; ".join(notes)


def _draw(axis: Axes, anomalies: Anomalies, series: int, channel: int) -> None:
    from forecaster.forecast.plots import (
        BAND,
        TRUTH,
        VALUES,
        axis_times,
        last_steps,
        series_title,
        tidy,
    )

    panel = anomalies.panel
    rows = last_steps(panel, series)
    time = axis_times(panel, panel.time[rows])
    values, band = panel.values[rows, channel], anomalies.band[rows, channel]
    share = f"{100 * (anomalies.levels[1] - anomalies.levels[0]):.0f} % band"
    axis.fill_between(time, band[:, 0], band[:, 2], color=BAND, alpha=0.3, linewidth=0, label=share)
    axis.plot(time, values, color=VALUES, linewidth=1.0, label="actual")
    for number, (mark, name) in _MARKS.items():
        at = np.flatnonzero(anomalies.anomaly[rows, channel] == number)
        axis.scatter(time[at], values[at], marker=mark, color=TRUTH, s=18, label=name, zorder=3)
    axis.set_title(series_title(panel, series, channel), fontsize=10, loc="left")
    tidy(axis, dates=not panel.calendar.integer)
