"""Which observed values are unusual: each step against the band that was forecast one step before it.

What comes in: a saved model and a table. What goes out: `Labels`, a row per (series, channel, step).
Promised: the band of a step knows nothing of that step or a later one but what is known in advance;
nothing is dropped: a step that cannot be judged keeps its row, without a label, with the reason.

    band of step t = quantiles of lead 1 from the cutoff t − 1, calibrated
    score of step t = |value − median| / half-width of the band on the value's side: 1 = on the edge

Axes: R row of the panel · C channel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forecaster.errors import ConfigError
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.plots import BAND, TRUTH, VALUES, grid_of, tidy
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.writer import write_rows
from forecaster.panel.audit import check_panel
from forecaster.panel.findings import refuse_errors
from forecaster.panel.frames import to_kind
from forecaster.panel.panel import NO_TIME, Panel
from forecaster.windows.index import Int64

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


NAMES = ("", "inside", "above", "below")
"""Words of the labels 0 … 3."""
OK, NO_VALUE, NO_HISTORY, NOT_FINITE = range(4)
_CUTOFFS = 1 << 14  # at a time: their quantiles of all leads are held at once


@dataclass(frozen=True, repr=False)
class Labels:
    """What each step of a table is, seen from the step before it."""

    panel: Panel
    """The table."""
    label: NDArray[np.int8]
    """[R, C] number of a word in `NAMES`; 0 = none."""
    score: NDArray[np.float32]
    """[R, C] distance from the median in half-widths of the band; NaN = none."""
    band: NDArray[np.float32]
    """[R, C, 3] lower quantile, median, upper quantile, data units; NaN = none."""
    reason: NDArray[np.int8]
    """[R, C] 0 = judged, else why not."""
    reasons: tuple[str, ...]
    """Words of `reason`."""
    levels: tuple[float, float]
    """Of the band."""
    about: str
    """What has to be known of the model to read the labels."""

    def __repr__(self) -> str:
        return f"Labels({self.report})"

    @property
    def rows(self) -> Any:
        """A polars frame with a row per (series, channel, step), in that order."""
        panel = self.panel
        order, series, channel = self._order()
        cells = (order, channel)
        low, high = (f"q{level:g}" for level in self.levels)
        return panel.frame(
            series,
            panel.time[order],
            channel=np.array(panel.schema.target)[channel],
            actual=panel.values[cells],
            forecast=self.band[..., 1][cells],
            **{low: self.band[..., 0][cells], high: self.band[..., 2][cells]},
            label=np.array([None, *NAMES[1:]], dtype=object)[self.label[cells]].tolist(),
            score=self.score[cells],
            status=np.array(self.reasons)[self.reason[cells]],
        )

    @property
    def frame(self) -> Any:
        """The rows as the kind of frame the caller came with (a file gives polars)."""
        return to_kind(self.rows, self.panel.kind)

    @property
    def counts(self) -> dict[str, int]:
        """How many cells have each label; "" = none."""
        found = np.bincount(self.label.ravel(), minlength=len(NAMES))
        return dict(zip(NAMES, found.tolist(), strict=True))

    @property
    def report(self) -> str:
        """One line: how many steps, what they are, and what has to be known to read that."""
        count, share = self.counts, 100 * (self.levels[1] - self.levels[0])
        judged = sum(count.values()) - count[""]
        line = (
            f"{self.panel.n_series:,} series, {self.label.size:,} rows: {count['inside']:,} inside the "
            f"{share:.0f} % band, {count['above']:,} above, {count['below']:,} below"
        )
        if judged:
            line += f" ({100 * (1 - count['inside'] / judged):.1f} % outside)"
        why = np.bincount(self.reason.ravel(), minlength=len(self.reasons))
        without = [
            f"{n:,} {text}" for n, text in zip(why[1:].tolist(), self.reasons[1:], strict=True) if n
        ]
        if without:
            line += f"; {count['']:,} without a label: {', '.join(without)}"
        return "; ".join(filter(None, (line, self.about)))

    def write(self, path: str | Path) -> None:
        """Writes the rows to a .csv or .parquet file, whole or not at all.

        Raises:
            OutputError: the suffix is neither, or the file cannot be written.
        """
        write_rows(self.rows, Path(path))

    def plot(self, series: str | None = None) -> Figure:
        """Returns a figure of values, bands, and what lies outside; a panel per series and channel.

        Args:
            series: the key of one series (several key columns joined with "/"); None = the first few.

        Raises:
            DataError: there is no such series.
        """
        panel = self.panel
        shown = range(panel.n_series) if series is None else [panel.series_named(str(series))]
        return plot_labels(self, shown)

    def _order(self) -> tuple[Int64, Int64, Int64]:
        """Returns row, series and channel of each cell: series after series, channel after channel."""
        channels, length = self.panel.n_channels, np.diff(self.panel.indptr)
        per_series = np.repeat(length, channels)
        series = np.repeat(np.arange(self.panel.n_series), length * channels)
        channel = np.repeat(np.tile(np.arange(channels), self.panel.n_series), per_series)
        begin = np.cumsum(per_series) - per_series
        within = np.arange(len(series)) - np.repeat(begin, per_series)
        return self.panel.indptr[:-1][series] + within, series, channel


def detect(
    artifact: Artifact,
    panel: Panel,
    beyond: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
) -> Labels:
    """Returns the labels of all steps of a panel.

    Args:
        artifact: the model; of a longer horizon its lead 1 is used.
        panel: opened with the artifact's schema.
        beyond: half-widths from the median at which a value is outside; 1 = the band itself.
        progress: told how many series of how many are done.

    Raises:
        ConfigError: the model has no band, or `beyond` is none.
        DataError: the audit finds errors.
    """
    levels = artifact.config.model.quantile_levels
    if levels[0] >= 0.5 or levels[-1] <= 0.5:
        raise ConfigError(
            f"this model's quantile levels {list(levels)} have none on either side of the median, so "
            "there is no band; fit one with --set model.quantile_levels=[0.1,0.5,0.9]"
        )
    if not 0 < beyond < np.inf:
        raise ConfigError(f"beyond {beyond}: expected a number above 0; 1 is the edge of the band")
    refuse_errors(check_panel(panel))
    shape = (panel.n_rows, panel.n_channels)
    band = np.full((*shape, 3), np.nan, np.float32)
    reason = np.full(shape, NO_VALUE, np.int8)
    predictor, done = Predictor(artifact), 0
    for first, part in panel.parts():
        rows = slice(int(panel.indptr[first]), int(panel.indptr[first + part.n_series]))
        band[rows], reason[rows] = _bands(predictor, part)
        done += part.n_series
        if progress is not None:
            progress(done, panel.n_series)
    label, score = _judged(panel.values[:, : panel.n_channels], band, beyond)
    patch = artifact.config.model.patch
    return Labels(
        panel=panel,
        label=label,
        score=score,
        band=band,
        reason=reason,
        reasons=(
            "ok",
            "no value",
            f"fewer than {patch} steps of history, or none of them observed",
            "the forecast is not finite",
        ),
        levels=(levels[0], levels[-1]),
        about=_about(artifact, panel, int((reason == OK).any(axis=1).sum()), reason),
    )


def _bands(predictor: Predictor, panel: Panel) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """Returns the bands [R, C, 3] of some series, and why there is none [R, C]."""
    artifact, channels = predictor.artifact, panel.n_channels
    values = panel.values[:, :channels]
    series = np.repeat(np.arange(panel.n_series), np.diff(panel.indptr))
    patch = artifact.config.model.patch or 1
    seen = _seen_before(values, panel.indptr[series], artifact.context_length)
    history = (np.arange(len(series)) - panel.indptr[series] >= patch)[:, None] & (seen > 0)
    real = ~np.isnan(values)
    reason = np.where(real, np.where(history, OK, NO_HISTORY), NO_VALUE).astype(np.int8)
    wanted = np.flatnonzero((reason == OK).any(axis=1))
    band = np.full((*values.shape, 3), np.nan, np.float32)
    # Every cutoff needs the rows of a whole horizon behind it, the last one too.
    longer = panel.reaching(np.full(panel.n_series, NO_TIME), artifact.horizon)
    shift = longer.indptr[:-1] - panel.indptr[:-1]
    levels = artifact.config.model.quantile_levels
    kept = [0, levels.index(0.5), len(levels) - 1]
    for start in range(0, len(wanted), _CUTOFFS):
        rows = wanted[start : start + _CUTOFFS]
        own = series[rows]
        band[rows] = predictor.quantiles(longer, own, rows - 1 + shift[own], leads=1)[:, 0][..., kept]
    broken = (reason == OK) & ~np.isfinite(band).all(axis=-1)
    reason[broken] = NOT_FINITE
    band[reason != OK] = np.nan
    return band, reason


def _seen_before(values: NDArray[np.float32], begin: Int64, length: int) -> Int64:
    """Returns [R, C] how many values its series has in the last `length` rows before each row."""
    count = np.zeros((len(values) + 1, values.shape[1]), np.int64)
    np.cumsum(~np.isnan(values), axis=0, out=count[1:])
    row = np.arange(len(values))
    return count[row] - count[np.maximum(begin, row - length)]


def _judged(
    values: NDArray[np.float32], band: NDArray[np.float32], beyond: float
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Returns label and score of each cell; a band without width has the score ∞ on its outside."""
    actual = values.astype(np.float64)
    low, median, high = (band[..., place].astype(np.float64) for place in range(3))
    above = actual > median
    half, distance = np.where(above, high - median, median - low), np.abs(actual - median)
    with np.errstate(divide="ignore", invalid="ignore"):
        score = np.where(distance == 0, 0.0, distance / half)
    known = ~np.isnan(distance)
    outside = distance > beyond * half
    label = np.where(known, np.where(outside, np.where(above, 2, 3), 1), 0)
    return label.astype(np.int8), np.where(known, score, np.nan).astype(np.float32)


def _about(artifact: Artifact, panel: Panel, judged: int, reason: NDArray[np.int8]) -> str:
    """Returns what has to be said of calibration, and of rows the model was trained on."""
    said = []
    if artifact.ensemble.conformal_offsets is None:
        said.append("the band is not calibrated")
    if panel.schema.time is None:
        said.append("without a clock nobody can tell which steps the model was trained on")
    else:
        known = (reason == OK).any(axis=1) & (panel.time <= artifact.trained_until)
        if known.any():
            until = panel.calendar.text(artifact.trained_until)
            said.append(
                f"{int(known.sum()):,} of {judged:,} steps are not later than {until}, until when the "
                "model has seen values: fewer of them may look unusual than of new ones"
            )
    return "; ".join(said)


_STEPS = 400  # shown of a series, the last ones: more are a black bar
_MARKS = {2: ("^", "above"), 3: ("v", "below")}  # told apart by shape, not by colour alone


def plot_labels(labels: Labels, series: Iterable[int]) -> Figure:
    """Returns a figure with a panel per series and channel, at most six, of their last steps.

    Args:
        labels: of a table.
        series: numbers of the series to show.
    """
    shown = [(number, c) for number in series for c in range(labels.panel.n_channels)]
    figure, axes = grid_of(len(shown))
    for axis, (number, channel) in zip(axes, shown, strict=False):
        _draw(axis, labels, number, channel)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=max(1, len(names)), frameon=False)
    return figure


def _draw(axis: Axes, labels: Labels, series: int, channel: int) -> None:
    panel = labels.panel
    end = int(panel.indptr[series + 1])
    rows = slice(max(int(panel.indptr[series]), end - _STEPS), end)
    time = panel.time[rows]
    stamps = time if panel.calendar.integer else time.view("datetime64[us]")
    values, band = panel.values[rows, channel], labels.band[rows, channel]
    share = 100 * (labels.levels[1] - labels.levels[0])
    axis.fill_between(
        stamps, band[:, 0], band[:, 2], color=BAND, alpha=0.3, linewidth=0, label=f"{share:.0f} % band"
    )
    axis.plot(stamps, values, color=VALUES, linewidth=1.0, label="actual")
    for number, (mark, name) in _MARKS.items():
        found = labels.label[rows, channel] == number
        at = np.flatnonzero(found)
        axis.scatter(stamps[at], values[at], marker=mark, color=TRUTH, s=18, label=name, zorder=3)
    names = panel.schema.target
    title = f"{panel.labels[series]} · {names[channel]}"
    axis.set_title(title if len(names) > 1 or panel.n_series > 1 else names[0], fontsize=10, loc="left")
    tidy(axis, clock=not panel.calendar.integer)
