"""What a page about forecasts is drawn from: errors along every axis a reader asks about.

What comes in: a `Backtest`. What goes out: `Evidence`, small whatever the size of the table. Promised:
a cell counts where there is a truth and every model has a forecast, as in the scores.

Axes: N forecast (series at one cutoff) · H lead · C channel · Q quantile level · T cutoff.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from forecaster.evaluation.rivals import MODEL
from forecaster.panel.panel import NO_TIME

if TYPE_CHECKING:
    from forecaster.evaluation.backtest import Backtest
    from forecaster.evaluation.tally import Tally
    from forecaster.forecast.forecast import Forecast

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_ERRORS = 500_000  # more make the same histogram
_MOST_LAGS = 12
_MOST_CUTOFFS = 40  # more points of a line are not told apart: neighbours are averaged
_FEWEST_PAIRS = 8  # below, a correlation says nothing


@dataclass(frozen=True)
class DistributedContext:
    """Where to find one channel of one forecast."""

    forecast: int
    """Number in `Backtest.forecasts`."""
    row: int
    """Number of the series within it."""
    channel: int


@dataclass(frozen=True, repr=False)
class Evidence:
    """Sums and samples of a backtest's errors."""

    backtest: Backtest
    tallies: dict[str, Tally]
    """By model, over the cells that all forecast; ours first."""
    scale: Floats
    """[N, C] in-sample seasonal error of each window; NaN = there is none."""
    below: Floats
    """[Q] share of truths at or below each quantile; NaN where nothing is scored."""
    between: Floats
    """[Q + 1] share of truths under the lowest quantile, between neighbours, above the highest."""
    inside: Floats
    """[Q // 2] share of truths within each pair of levels, as far from the ends; the widest first."""
    errors: Floats
    """A sample of (forecast − actual) / scale of ours."""
    lead_bias: Floats
    """[H] mean of the same, by lead."""
    first: Floats
    """[N, C] the same at lead 1; NaN = not scored."""

    @cached_property
    def forecasts(self) -> tuple[Forecast, ...]:
        """One per cutoff, or one with many."""
        return self.backtest.forecasts

    @cached_property
    def series(self) -> Ints:
        """[N] number of each window's series."""
        return np.concatenate([one.series for one in self.forecasts])

    @cached_property
    def cutoff(self) -> Ints:
        """[N] time of each window's cutoff."""
        return np.concatenate([one.cutoff for one in self.forecasts])

    @cached_property
    def cutoffs(self) -> Ints:
        """[T] times of all cutoffs, rising."""
        return np.unique(self.cutoff[self.cutoff != NO_TIME])

    def place(self, window: int, channel: int) -> DistributedContext:
        """Returns where window `window` of all lies."""
        for number, forecast in enumerate(self.forecasts):
            if window < len(forecast.series):
                return DistributedContext(number, window, channel)
            window -= len(forecast.series)
        raise IndexError(window)

    @cached_property
    def over_time(self) -> dict[str, Floats]:
        """By model, MASE at each cutoff; where there are many, of neighbouring ones together."""
        times = self.cutoffs
        bins = min(len(times), _MOST_CUTOFFS)
        at = np.searchsorted(times, self.cutoff).clip(0, max(0, len(times) - 1))
        group = at * bins // max(1, len(times))
        return {name: mine.by_group(group, bins)["MASE"] for name, mine in self.tallies.items()}

    @cached_property
    def autocorrelation(self) -> tuple[Floats, float]:
        """[lag] correlation of errors at lead 1 with those of earlier cutoffs, and its noise (95 %).

        Lags count cutoffs, from 1. Errors are taken around their mean over all series, so what one
        series always misses shows too. Empty where there are too few pairs.
        """
        channels = self.first.shape[1]
        at = np.searchsorted(self.cutoffs, self.cutoff)
        steps = len(self.cutoffs) + _MOST_LAGS
        owner = self.series[:, None] * channels + np.arange(channels)
        key = (owner * steps + at[:, None]).ravel()
        real = np.isfinite(self.first.ravel())
        key, error = key[real], self.first.ravel()[real]
        order = np.argsort(key, kind="stable")
        key, error = key[order], error[order] - (error.mean() if len(error) else 0.0)
        found: list[float] = []
        pairs = 0
        for lag in range(1, min(_MOST_LAGS, len(self.cutoffs) // 2) + 1):
            place = np.minimum(np.searchsorted(key, key + lag), max(0, len(key) - 1))
            met = np.flatnonzero(key[place] == key + lag)
            if len(met) < _FEWEST_PAIRS or len(self.cutoffs) < _FEWEST_PAIRS:
                break
            pairs = pairs or len(met)
            now, then = error[place[met]], error[met]
            size = np.sqrt((now**2).sum() * (then**2).sum())
            found.append(float((now * then).sum() / size) if size > 0 else 0.0)
        return np.array(found), 1.96 / np.sqrt(pairs) if pairs else np.nan


def evidence(backtest: Backtest) -> Evidence:
    """Returns what there is to show of a backtest."""
    assert backtest.scales is not None  # those that come from nowhere have no report
    tallies, scale = dict(backtest.tallies), backtest.scales.mase
    scored_windows = tallies[MODEL].windows["cells"] > 0  # [N, C]
    levels = backtest.forecasts[0].levels
    horizon, channels = backtest.forecasts[0].quantiles.shape[1:3]
    below, between, scored = np.zeros(len(levels)), np.zeros(len(levels) + 1), 0
    inside = np.zeros(len(levels) // 2)
    total, count = np.zeros(horizon), np.zeros(horizon)
    errors: list[Floats] = []
    first = np.full((len(scale), channels), np.nan)
    thin = max(1, len(scale) * horizon * channels // _MOST_ERRORS)
    start = 0
    for forecast in backtest.forecasts:
        part = slice(start, start + len(forecast.series))
        assert forecast.actual is not None
        mask = np.isfinite(forecast.actual) & np.isfinite(forecast.median)
        mask &= scored_windows[part, None]  # where a rival says nothing, it does so at every lead
        truth = np.where(mask, forecast.actual, np.nan).astype(np.float64)
        real, actual = forecast.quantiles[mask], forecast.actual[mask][:, None]  # [scored, Q]
        reached = actual <= real
        below += reached.sum(axis=0)
        # The number of quantiles that a truth exceeds says between which two it lies.
        between += np.bincount((~reached).sum(axis=1), minlength=len(between))
        inside += ((real <= actual) & reached[:, ::-1])[:, : len(inside)].sum(axis=0)
        scored += len(real)
        error = (forecast.median - truth) / np.where(scale[part] > 0, scale[part], np.nan)[:, None]
        finite = np.isfinite(error)
        total += np.where(finite, error, 0.0).sum(axis=(0, 2))
        count += finite.sum(axis=(0, 2))
        first[part] = error[:, 0]
        errors.append(error[finite][::thin])
        start = part.stop
    share = (lambda sums: sums / scored) if scored else (lambda sums: np.full(len(sums), np.nan))
    bias = np.divide(total, count, out=np.full(horizon, np.nan), where=count > 0)
    return Evidence(
        backtest,
        tallies,
        scale,
        share(below),
        share(between),
        share(inside),
        np.concatenate(errors),
        bias,
        first,
    )
