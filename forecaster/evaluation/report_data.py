"""What a report shows: error statistics of a backtest, the ranking of its series, numbers as text.

A cell counts where there is an actual and every model has a forecast, as in the scores. Everything here is
small whatever the size of the table.

Axes: N window (a series at one cutoff) · H lead · C channel · Q quantile level · T cutoff.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from forecaster.evaluation.backtest import actual_of, share_over_cutoffs, windows_of
from forecaster.evaluation.comparison import MODEL, NAIVE
from forecaster.evaluation.error_scales import ratio
from forecaster.panel.arrays import Floats, Ints
from forecaster.panel.panel import NO_TIME

if TYPE_CHECKING:
    from forecaster.evaluation.backtest import Backtest
    from forecaster.forecast.artifact import Artifact
    from forecaster.forecast.forecast import Forecast
    from forecaster.panel.findings import Finding


_ERROR_SAMPLE = 500_000  # more errors give the same histogram
_MAX_LAGS = 12
_MAX_POINTS = 40  # more cutoffs on a line cannot be distinguished: neighbours are averaged
_MIN_PAIRS = 8  # fewer pairs give a meaningless correlation
_SHOWN, _LISTED = 3, 8
_MIN_SERIES = 4  # fewer series are ranked by window


@dataclass(frozen=True, repr=False)
class ReportContext:
    """Model, table and command behind the scores: what is needed to judge and to repeat them."""

    artifact: Artifact
    """The model; of several refits, the last."""
    command: str
    """Makes the page again."""
    fingerprint: str
    """Of the table that was scored."""
    findings: tuple[Finding, ...] = ()
    """Of the audit of that table, worst first."""
    covariates: object | None = None
    """The second table."""
    validation: bool = False
    """Whether the windows are the validation windows of a fit."""
    date: str | None = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")


@dataclass(frozen=True)
class RankedItem:
    """One channel of one series, or one window of it, with its scores."""

    name: str
    window: int
    """Number of the window to show: the last scored one."""
    channel: int
    mase: float
    wql: float
    skill: float
    """1 − WQL / WQL of seasonal naive."""


@dataclass(frozen=True)
class Ranking:
    """The best and worst items."""

    best: tuple[RankedItem, ...]
    worst: tuple[RankedItem, ...]
    """The worst first; disjoint from `best`."""
    listed: tuple[RankedItem, ...]
    """A longer list, the worst first."""
    skills: Floats
    """Of all items that have one."""
    count: int
    """Items with a score."""
    kind: str
    """What an item is: "series" (of one channel), "channel" or "window"."""

    @property
    def kinds(self) -> str:
        """Plural of `kind`."""
        return self.kind if self.kind == "series" else f"{self.kind}s"


class ReportData:
    """Sums and samples of a backtest's errors; errors are (forecast − actual) / MASE scale.

    Attributes:
        series, cutoff: [N] number of each window's series, time of its cutoff.
        cutoffs: [T] distinct cutoffs, rising.
        between: [Q + 1] share of actuals up to the lowest quantile, between neighbours, above the highest.
        inside: [Q // 2] share of actuals within each symmetric pair of quantiles, the widest first.
        errors: a sample of the errors.
        first: [N, C] error at lead 1; NaN = not scored.
        missed: [N] sum of mean − actual; 0 without a mean.
        below, above: [N] cells whose actual is below the median, and above it.
    """

    def __init__(self, backtest: Backtest):
        """Makes one pass over the forecasts."""
        self.backtest, self.context = backtest, backtest.report_context
        self.series, self.cutoff = windows_of(backtest.forecasts)
        self.cutoffs = np.unique(self.cutoff[self.cutoff != NO_TIME])
        own = backtest.tallies[MODEL]
        self._scored = own.windows["cells"] > 0  # [N, C]
        levels = backtest.forecasts[0].levels
        between, inside = np.zeros(len(levels) + 1), np.zeros(len(levels) // 2)
        errors, first, sums = [], [], []
        thin = max(1, backtest.scored // _ERROR_SAMPLE)
        start = 0
        for forecast in backtest.forecasts:
            part = slice(start, start := start + len(forecast.series))
            truth = actual_of(forecast)
            mask = np.isfinite(truth) & np.isfinite(forecast.median)
            mask &= self._scored[part, None]  # a baseline without a forecast has none at any lead
            quantiles, actual = forecast.quantiles[mask], truth[mask][:, None]  # [scored, Q]
            reached = actual <= quantiles
            # The number of quantiles that an actual exceeds is the number of its interval.
            between += np.bincount((~reached).sum(axis=1), minlength=len(between))
            inside += ((quantiles <= actual) & reached[:, ::-1])[:, : len(inside)].sum(axis=0)
            error = forecast.median - np.where(mask, truth, np.nan)
            mean = truth if forecast.mean is None else forecast.mean
            parts = (np.where(mask, mean - truth, 0.0), error > 0, error < 0)
            sums.append([part.sum(axis=(1, 2)) for part in parts])
            error /= backtest.scales.mase[part, None]
            first.append(error[:, 0])
            errors.append(error[np.isfinite(error)][::thin])
        count = max(1, int(between.sum()))
        self.between, self.inside = between / count, inside / count
        self.missed, self.below, self.above = np.concatenate(sums, axis=1)
        self.errors, self.first = np.concatenate(errors), np.concatenate(first)

    def locate(self, window: int) -> tuple[Forecast, int]:
        """The forecast that holds window `window`, and its row there."""
        for forecast in self.backtest.forecasts:
            if window < len(forecast.series):
                return forecast, window
            window -= len(forecast.series)
        raise IndexError(window)

    def over_cutoffs(self, part: Floats, whole: str) -> tuple[float, float, float]:
        """Sum of a part [N] over one of the tally, with its interval over cutoffs."""
        windows = self.backtest.tallies[MODEL].windows
        return share_over_cutoffs(self.backtest.forecasts, part, windows[whole].sum(axis=1))

    @cached_property
    def over_time(self) -> tuple[Ints, dict[str, Floats]]:
        """Cutoffs, and by model MASE at each; neighbouring cutoffs are averaged where there are many."""
        times = self.cutoffs
        bins = min(len(times), _MAX_POINTS)
        group = np.searchsorted(times, self.cutoff).clip(0, max(0, len(times) - 1))
        group = group * bins // max(1, len(times))
        first = times[-(-np.arange(bins) * len(times) // max(1, bins))]
        return first, {
            name: one.by_group(group, bins)["MASE"] for name, one in self.backtest.tallies.items()
        }

    @cached_property
    def autocorrelation(self) -> tuple[Floats, float]:
        """[lag] autocorrelation of errors at lead 1, and the half-width of its 95 % noise band.

        Lags count cutoffs, from 1. Errors are centred on their mean over all series, so a constant bias
        of one series shows too. Empty where there are too few pairs.
        """
        channels = self.first.shape[1]
        at = np.searchsorted(self.cutoffs, self.cutoff)
        steps = len(self.cutoffs) + _MAX_LAGS
        owner = self.series[:, None] * channels + np.arange(channels)
        key = (owner * steps + at[:, None]).ravel()
        real = np.isfinite(self.first.ravel())
        key, error = key[real], self.first.ravel()[real]
        if len(self.cutoffs) < _MIN_PAIRS or len(key) < _MIN_PAIRS:
            return np.empty(0), np.nan
        error = error - error.mean()
        found: list[float] = []
        pairs = 0
        for lag in range(1, min(_MAX_LAGS, len(self.cutoffs) // 2) + 1):
            _, later, earlier = np.intersect1d(key - lag, key, assume_unique=True, return_indices=True)
            if len(later) < _MIN_PAIRS:
                break
            pairs = pairs or len(later)
            now, then = error[later], error[earlier]
            size = np.sqrt((now**2).sum() * (then**2).sum())
            found.append(float((now * then).sum() / size) if size > 0 else 0.0)
        return np.array(found), 1.96 / np.sqrt(pairs) if pairs else np.nan

    @cached_property
    def ranking(self) -> Ranking:
        """Items by MASE, or by mean absolute error where no series has a scale."""
        windows, channels = self.first.shape
        group = self.series[:, None] * channels + np.arange(channels)
        by_window = len(np.unique(group)) < _MIN_SERIES
        if by_window:
            group = np.arange(windows * channels).reshape(windows, channels)
        items, group = np.unique(group, return_inverse=True)
        group = group.reshape(windows, channels)
        scores, naive = (
            self.backtest.tallies[name].by_group(group, len(items)) for name in (MODEL, NAIVE)
        )
        mase, wql = scores["MASE"], scores["WQL"]
        skill = 1 - ratio(wql, naive["WQL"])
        measure = mase if np.isfinite(mase).any() else scores["MAE"]
        order = np.argsort(measure, kind="stable")
        order = order[np.isfinite(measure[order])]
        last = np.zeros(len(items), np.int64)
        place = np.argwhere(self._scored)
        last[group[tuple(place.T)]] = place[:, 0] * channels + place[:, 1]  # the last assignment wins

        def item(n: int) -> RankedItem:
            window, channel = divmod(int(last[n]), channels)
            name = self._item_name(window, channel, by_window)
            return RankedItem(name, window, channel, float(mase[n]), float(wql[n]), float(skill[n]))

        shown = min(_SHOWN, -(-len(order) // 2))
        best = tuple(item(n) for n in order[:shown])
        worst = tuple(item(n) for n in order[shown:][::-1][:_SHOWN])
        listed = tuple(item(n) for n in order[::-1][:_LISTED])
        kind = "window" if by_window else "series" if self.backtest.panel.n_series > 1 else "channel"
        return Ranking(best, worst, listed, skill[np.isfinite(skill)], len(order), kind)

    def _item_name(self, window: int, channel: int, by_window: bool) -> str:
        forecast, row = self.locate(window)
        panel, target = forecast.panel, forecast.panel.schema.target
        series = panel.series_names[int(forecast.series[row])]
        name = series if panel.n_series > 1 else target[channel]
        if panel.n_series > 1 and len(target) > 1:
            name = f"{series} · {target[channel]}"
        if by_window:
            name += f" after {panel.calendar.text(int(forecast.cutoff[row]))}"
        return name


def number(value: float, digits: int = 4) -> str:
    """A number with so many significant digits.

    >>> number(12345.678), number(-0.123456), number(float("nan")), number(0.0)
    ('12,346', '−0.1235', '–', '0')
    """
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    if size >= 1e9 or 0 < size < 1e-4:
        text = f"{value:.{digits - 1}g}"
    elif size >= 10 ** (digits - 1):
        text = f"{value:,.0f}"
    else:
        text = f"{value:.{digits}g}"
    return text.replace("-", "−")


def percent(share: float, digits: int = 1) -> str:
    """A share in percent.

    >>> percent(0.7841).split(), percent(float("nan"))
    (['78.4', '%'], '–')
    """
    if not math.isfinite(share):
        return "–"
    return f"{100 * share:,.{digits}f}\N{NO-BREAK SPACE}%".replace("-", "−")


def score_text(metric: str, value: float) -> str:
    """A score of a metric: a share in percent, else a number."""
    return percent(value) if metric == "skill" or metric.startswith("coverage") else number(value)
