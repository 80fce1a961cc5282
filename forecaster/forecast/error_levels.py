"""Measures errors of a model at earlier cutoffs of a table, common to all series: `ErrorLevels`.

Axes: J cutoff · N series · H lead · C channel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray

from forecaster.forecast.artifact import Artifact
from forecaster.forecast.paths import GRID, UNKNOWN, ErrorLevels, pair_hashes
from forecaster.forecast.predictor import Predictor
from forecaster.model.tails import at_levels
from forecaster.panel.arrays import Floats, Ints, blocks
from forecaster.panel.panel import Panel

CUTOFFS = 20
_PAIRS = 1000  # series and channels, those of the smallest hashes
_BYTES = 2_000_000  # of all errors


def measured_errors(artifact: Artifact, panel: Panel, since: int | None = None) -> ErrorLevels:
    """Returns the errors at up to twenty cutoffs, as far apart as the history of most series allows.

    Args:
        artifact: the model; its decoder is direct.
        panel: rows that may be read.
        since: time of the earliest cutoff; None = any.
    """
    horizon, calendar = artifact.horizon, panel.calendar
    last = panel.last_observed
    seen = last >= 0
    end = int(panel.time[last[seen]].max())
    least = _least_history(horizon)
    longest = int(np.median((last - panel.indptr[:-1])[seen])) + 1  # steps of most series
    span = longest - least - horizon  # from the first cutoff to the last
    if since is not None:
        span = min(span, int(calendar.steps(since, end)) - horizon)
    cutoffs, spacing = _spread(span, min(CUTOFFS, _BYTES // horizon), horizon)
    most = min(_PAIRS, _BYTES // (horizon * max(1, cutoffs)))
    series, channel = np.nonzero(panel.present & seen[:, None])
    hashes = pair_hashes(panel, np.arange(panel.n_series))[series, channel]
    chosen = np.sort(np.argsort(hashes)[:most])
    series, channel, hashes = series[chosen], channel[chosen], hashes[chosen]  # [K] each
    recent = recent_digests(artifact, panel, end, series, channel)
    counts = np.full((cutoffs, len(chosen), horizon), UNKNOWN, np.uint8)
    if cutoffs:
        some, place = np.unique(series, return_inverse=True)
        panel = panel.some(some)
        # A series that ended long before has errors before its own end: at the common cutoffs it has none.
        own = panel.time[panel.last_observed]
        anchor = np.where((since is None) & (own < calendar.shift(end, -horizon)), own, end)
        panel = panel.reaching(calendar.shift(anchor, -horizon), horizon)
        times = [calendar.shift(anchor, -horizon - spacing * number) for number in range(cutoffs)]
        found = _past_forecasts(Predictor(artifact), panel, times, least, horizon)
        for number, forecast, quantiles, truth in found:
            below = np.full((panel.n_series, *truth.shape[1:]), UNKNOWN, np.uint8)
            below[forecast] = _counts(artifact, quantiles, truth)
            counts[number] = below[place, :, channel]
    return ErrorLevels(counts, hashes, spacing, recent)


def recent_digests(artifact: Artifact, panel: Panel, end: int, series: Ints, channel: Ints) -> Ints:
    """Returns [K] a digest of the targets of a context and a horizon up to a time; rows without one are left out.

    Args:
        artifact: the model.
        panel: the table.
        end: the time.
        series, channel: [K] numbers.
    """
    length = artifact.context_length + artifact.horizon
    last = panel.rows_until(end)[series]  # [K] the row after it
    first = np.maximum(last - length, panel.indptr[series])
    digests = np.empty(len(series), np.int64)
    for number, (begin, stop, place) in enumerate(zip(first, last, channel, strict=True)):
        targets = panel.values[begin:stop, place]
        digests[number] = crc32(targets[~np.isnan(targets)].astype("<f8").tobytes())
    return digests


def earlier_cutoffs(panel: Panel, end: int, horizon: int, most: int) -> list[Ints]:
    """Returns up to so many earlier cutoffs, the latest first, for which most series have a history.

    Args:
        panel: of the series.
        end: time of the last row that may be read.
        horizon: leads.
        most: cutoffs.
    """
    row = panel.row_at(end)
    known = int(np.median((row - panel.indptr[:-1])[row >= 0])) + 1
    span = known - _least_history(horizon) - horizon
    cutoffs, spacing = _spread(span, most, horizon)
    return [panel.calendar.shift(end, -horizon - spacing * number) for number in range(cutoffs)]


def median_errors(predictor: Predictor, panel: Panel, times: Sequence[Ints], horizon: int) -> Floats:
    """Returns [J, N, H, C] truth minus median, NaN where there is none.

    Args:
        predictor: of the model.
        panel: of the series.
        times: of the cutoffs, the latest first.
        horizon: leads.
    """
    errors = np.full((len(times), panel.n_series, horizon, panel.n_channels), np.nan)
    if times:
        panel = panel.reaching(np.full(panel.n_series, times[0]), predictor.artifact.horizon)
    middle = predictor.artifact.plan.model.quantile_levels.index(0.5)
    found = _past_forecasts(predictor, panel, times, _least_history(horizon), horizon)
    for number, series, quantiles, truth in found:
        errors[number, series] = truth - quantiles[..., middle]
    return errors


def _least_history(horizon: int) -> int:
    """Returns the steps that a series has before a cutoff."""
    return max(horizon, 8)


def _spread(span: int, most: int, horizon: int) -> tuple[int, int]:
    """Returns how many cutoffs fit into so many steps, and the steps between them, at most a horizon."""
    spacing = int(np.clip(span // max(1, most - 1), 1, horizon))
    return max(0, min(most, span // spacing + 1)), spacing


@dataclass(frozen=True)
class LaterErrors:
    """Errors of a model that are measured when sample paths are drawn."""

    artifact: Artifact
    panel: Panel
    """Rows that may be read."""

    @cached_property
    def measured(self) -> ErrorLevels:
        """The errors."""
        return measured_errors(self.artifact, self.panel)


def _past_forecasts(
    predictor: Predictor, panel: Panel, times: Sequence[Ints | int], least: int, horizon: int
) -> Iterator[tuple[int, Ints, Floats, Floats]]:
    """Yields the number of a past cutoff, the series [n] with a history of `least` steps up to it, and of these
    the quantiles [n, H, C, Q] and the truth [n, H, C]; nothing of a cutoff without such series."""
    levels = len(predictor.artifact.plan.model.quantile_levels)
    cells = panel.n_series * horizon * panel.n_channels * levels
    rows = np.reshape([panel.row_at(time) for time in times], (len(times), panel.n_series))
    has_history = rows - panel.indptr[:-1] + 1 >= least
    # Many cutoffs of a small table are forecast at once.
    for part in blocks(len(times), cells):
        cutoff, series = np.nonzero(has_history[part])
        if not len(series):
            continue
        row = rows[part][cutoff, series]
        quantiles = predictor.quantiles(panel, series, row, horizon)
        leads = row[:, None] + np.arange(1, horizon + 1)
        truth = panel.values[leads, : panel.n_channels]
        for number in np.unique(cutoff):
            these = cutoff == number
            yield part.start + int(number), series[these], quantiles[these], truth[these]


def _counts(artifact: Artifact, quantiles: Floats, truth: Floats) -> NDArray[np.uint8]:
    """Returns [n, H, C] quantiles of `GRID` below the truth; `UNKNOWN` where one of both is not known.

    A truth that the quantiles of levels a to b are equal to, as 0 of a demand, counts as the mean error there,

        z = (φ(Φ⁻¹(a)) − φ(Φ⁻¹(b))) / (b − a)     φ the density

    so that errors of a true distribution have the mean 0: of middles all series would seem to share one.
    """
    levels, factor = artifact.plan.model.quantile_levels, artifact.ensemble.tail_factor or 1.0
    counts = np.empty(truth.shape, np.uint8)
    for part in blocks(len(truth), quantiles[0].size * len(GRID) // len(levels)):
        grid = at_levels(torch.from_numpy(quantiles[part]), levels, GRID, factor)  # [n, H, C, 100]
        actual = torch.from_numpy(truth[part])[..., None]
        below, up_to = (compared.sum(dim=-1) for compared in (grid < actual, grid <= actual))
        level = torch.stack([below, up_to]).double() / len(GRID)
        density = (-(torch.special.ndtri(level) ** 2) / 2).exp() / math.sqrt(2 * math.pi)
        error = (density[0] - density[1]) / (level[1] - level[0])
        of_error = (torch.special.ndtr(error) * (len(GRID) + 1) - 0.5).round()
        count = torch.where(below == up_to, below, of_error)
        known = (grid.isfinite() & actual.isfinite()).all(dim=-1)
        counts[part] = count.where(known, UNKNOWN).numpy()
    return counts
