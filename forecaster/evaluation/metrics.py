"""Every metric of the package, defined once, over any group of forecasts.

`tally` reduces forecasts to sums per window and per lead; a metric is a ratio of such sums, so any group
of windows is scored without the forecasts. A missing actual is not scored; a missing forecast of an
observed actual is an error. Metrics of levels that a model never forecasts are NaN. A mean is one sum over
one count of scored cells, never a mean of means (RMSSE excepted, by its definition); where no cell is
scored it is NaN.

Axes: N window (a series at one cutoff) · C channel · H lead · Q quantile level · S sample path · G group.
e = forecast − actual, forecast = the median; all sums are float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forecaster.evaluation.coverage import asked_shares, band_of, share_inside, within
from forecaster.evaluation.error_scales import Scales, ratio
from forecaster.forecast.bands import Columns
from forecaster.panel.arrays import Bools, Floats, Ints

Sums = Mapping[str, Floats]
Scores = dict[str, float]

_BLOCK_CELLS = 1 << 13  # with nine levels 600 kB an array in float64: blocks stay in the cache

SHARE = "share "
"""Begins the names of sums of asked bands and quantiles."""

DESCRIPTIONS = {
    "MAE": "mean absolute error of the median, in data units",
    "RMSE": "root mean squared error of the median, in data units: large errors count more",
    "MSE": "mean squared error of the median, in squared data units",
    "MASE": "mean absolute error / in-sample error of seasonal naive: below 1 is better than it",
    "RMSSE": "mean over windows of the root mean squared error / in-sample root mean squared step",
    "sMAPE": "mean of 200·|error| / (|actual| + |forecast|), percent; 0/0 counts as 0",
    "WAPE": "sum of absolute errors of the median / sum of absolute actuals: large series count more",
    "WQL": "weighted quantile loss: all quantiles; large series count more",
    "SQL": "scaled quantile loss: quantile loss / in-sample error of seasonal naive; all series count alike",
    "CRPS": "continuous ranked probability score of the sample paths, in data units",
    "CRPS_quantiles": "mean quantile loss, in data units: approaches the CRPS as levels grow in number",
    "bias": "mean of median − actual, in data units: below 0 where a skewed quantity has its median below its mean",
    "skill": "1 − WQL / WQL of seasonal naive: above 0 is better than seasonal naive",
}


def pinball(actual: ArrayLike, quantiles: ArrayLike, levels: Sequence[float]) -> Floats:
    """Quantile loss of each cell, 2·max(τ(y − q), (τ − 1)(y − q)), in data units.

    [...] and [..., Q] → [..., Q]; NaN where the actual is. The factor 2 makes the loss of the median
    its absolute error. Source: Koenker and Bassett 1978; factor as in fev-bench 2025.

    Raises:
        ValueError: a quantile of an observed actual is NaN.

    >>> pinball([10.0], [[8.0, 12.0]], [0.1, 0.9]).round(6).tolist()
    [[0.4, 0.4]]
    """
    y, q = np.asarray(actual, np.float64), np.asarray(quantiles, np.float64)
    tau = np.asarray(levels, np.float64)
    _check_complete(y[..., None], q)
    error = y[..., None] - q
    return 2 * np.maximum(tau * error, (tau - 1) * error)


def interval_score(actual: ArrayLike, low: ArrayLike, high: ArrayLike, nominal: float) -> Floats:
    """Interval score of each cell, (u − l) + 2/α·max(l − y, 0) + 2/α·max(y − u, 0), data units.

    l and u are the edges of a band that should hold 1 − α = `nominal` of the actuals: its width, and what lies
    outside. Source: Gneiting and Raftery 2007, 6.2.

    >>> interval_score([10.0, 3.0], [8.0, 8.0], [12.0, 12.0], 0.8).round(6).tolist()
    [4.0, 54.0]
    """
    y, lower, upper = (np.asarray(part, np.float64) for part in (actual, low, high))
    outside = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    return (upper - lower) + 2 / (1 - nominal) * outside


def crps(actual: ArrayLike, paths: ArrayLike) -> Floats:
    """Continuous ranked probability score of each cell, E|X − y| − ½·E|X − X′|, in data units.

    [...] and [..., S] → [...]; NaN where the actual is. X and X′ are any two of the S draws, the same
    one included. Source: Gneiting and Raftery 2007.

    Raises:
        ValueError: a draw of an observed actual is NaN.

    >>> crps([1.0], [[0.0, 4.0]]).tolist()
    [1.0]
    """
    y, x = np.asarray(actual, np.float64), np.sort(np.asarray(paths, np.float64), axis=-1)
    _check_complete(y[..., None], x)
    draws = x.shape[-1]
    rank = 2 * np.arange(1, draws + 1) - draws - 1
    return np.abs(x - y[..., None]).mean(axis=-1) - (x @ rank) / draws**2


def describe(metric: str) -> str:
    """One line that says what a metric is; empty for an unknown name."""
    kind, _, band = metric.partition("_")
    if kind == "coverage" and band.endswith("_ties"):
        band = band.removesuffix("_ties")
        return f"the same with actuals on an edge of the {band} % band shared out: its 90 % interval over cutoffs"
    if kind == "coverage" and band:
        return f"share of actuals within the {band} % band: should be {band} %"
    if kind == "below" and band:
        return f"share of actuals at or below the {band} quantile: should be {band}"
    if metric.startswith("interval_score_"):
        return f"width of the {metric[15:]} % band, and 2/α times what lies outside: smaller is better"
    if kind == "width" and band:
        return f"mean width of the {band} % band, in data units"
    return DESCRIPTIONS.get(metric, "")


@dataclass(frozen=True)
class Tally:
    """Sums of one model's forecasts, from which every metric of any group follows."""

    windows: Sums
    """By name, [N, C]: summed over leads."""
    leads: Sums
    """By name, [H, C]: summed over windows."""
    band: int
    """Nominal coverage of the outermost quantiles, percent."""

    def overall(self) -> Scores:
        """Metrics over all windows, leads and channels."""
        found = self.by_group(np.zeros(len(self.windows["cells"]), np.int64), 1)
        return {name: float(score[0]) for name, score in found.items() if name != "cells"}

    def by_channel(self) -> dict[str, Floats]:
        """`cells` and the metrics of each channel, [C]."""
        return _metrics({name: sums.sum(axis=0) for name, sums in self.windows.items()}, self.band)

    def by_lead(self) -> dict[str, Floats]:
        """`cells` and the metrics of each lead, [H]."""
        return _metrics({name: sums.sum(axis=1) for name, sums in self.leads.items()}, self.band)

    def by_group(self, group: Ints, groups: int) -> dict[str, Floats]:
        """`cells` and the metrics of groups of windows, [G]; group: [N], or [N, C] per channel."""
        per_channel = group if group.ndim == 2 else group[:, None]
        owner = np.broadcast_to(per_channel, self.windows["cells"].shape).ravel()
        summed = {
            name: np.bincount(owner, sums.ravel(), groups).astype(np.float64)
            for name, sums in self.windows.items()
        }
        return _metrics(summed, self.band)


def concatenate(tallies: Sequence[Tally]) -> Tally:
    """The tally of all windows from those of parts, in their order."""
    first = tallies[0]
    return Tally(
        {name: np.concatenate([part.windows[name] for part in tallies]) for name in first.windows},
        {name: np.sum([part.leads[name] for part in tallies], axis=0) for name in first.leads},
        first.band,
    )


def tally(
    actual: NDArray[np.floating],
    quantiles: NDArray[np.floating],
    levels: Sequence[float],
    scales: Scales,
    paths: NDArray[np.floating] | None = None,
    columns: Columns = (),
) -> Tally:
    """Sums of one model's forecasts.

    Args:
        actual: [N, H, C] data units; NaN = not scored.
        quantiles: [N, H, C, Q] data units; finite wherever the actual is, but for levels that are never forecast;
            after the fitted ones those of `further_levels`, which may be NaN.
        levels: [Q] fitted, rising, 0.5 among them.
        scales: of the windows.
        paths: [N, S, H, C] joint sample paths, if any.
        columns: bands and quantiles that were asked for.

    Raises:
        ValueError: a quantile of a scored cell is NaN.
    """
    n, horizon, channels = actual.shape
    step = max(1, _BLOCK_CELLS // max(1, horizon * channels))
    given = given_levels(quantiles[..., : len(levels)])
    windows: dict[str, list[Floats]] = {}
    leads: dict[str, Floats] = {}
    for start in range(0, max(n, 1), step):
        block = slice(start, start + step)
        drawn = None if paths is None else paths[block]
        own = scales.select(block)
        cells = _cells(actual[block], quantiles[block], levels, given, own, drawn, columns)
        for name, cell in cells:
            windows.setdefault(name, []).append(cell.sum(axis=1))
            leads[name] = leads.get(name, 0.0) + cell.sum(axis=0)
    sums = {name: np.concatenate(parts) for name, parts in windows.items()}
    # RMSSE takes its root per window; at a single lead that is the absolute error.
    rooted = sums["rooted_rows"] > 0
    mean = sums["squared"] / np.maximum(sums["cells"], 1)
    sums["rooted"] = np.where(rooted, np.sqrt(mean) / np.where(rooted, scales.rmsse, 1), 0.0)
    sums["rooted_rows"] = rooted.astype(np.float64)
    return Tally(sums, leads, round(100 * (levels[-1] - levels[0])))


def given_levels(quantiles: NDArray[np.floating]) -> Bools:
    """[Q] whether a model forecasts a level anywhere; all of a model that forecasts nothing."""
    given = ~np.isnan(quantiles).all(axis=(0, 1, 2))
    return given | ~given.any()


def _cells(
    actual: NDArray[np.floating],
    quantiles: NDArray[np.floating],
    levels: Sequence[float],
    given: Bools,
    scales: Scales,
    paths: NDArray[np.floating] | None,
    columns: Columns,
) -> Iterator[tuple[str, Floats]]:
    """Yields by name [N, H, C]: what each cell adds to a sum, 0 where it adds nothing."""
    y, every = np.asarray(actual, np.float64), np.asarray(quantiles, np.float64)
    quantiles = every[..., : len(levels)]
    scored = ~np.isnan(y)
    loss = pinball(y, quantiles[..., given], [*np.asarray(levels)[given]]).mean(axis=-1)
    if not given.all():  # a loss of fewer levels is not comparable
        loss = np.full_like(loss, np.nan)
    median = quantiles[..., list(levels).index(0.5)]
    low, high = quantiles[..., 0], quantiles[..., -1]
    error, size = median - y, np.abs(y) + np.abs(median)

    def masked(cells: Floats, where: Bools = scored) -> Floats:
        return np.where(where, cells, 0.0)

    yield "cells", scored.astype(np.float64)
    yield "actual", masked(np.abs(y))
    yield "total", masked(y)
    yield "absolute", masked(np.abs(error))
    yield "squared", masked(error**2)
    yield "signed", masked(error)
    relative = np.divide(200 * np.abs(error), size, out=np.zeros_like(size), where=size > 0)
    yield "relative", masked(relative)
    yield "pinball", masked(loss)
    yield "inside", masked(within(y, low, high))
    if (pair := band_of(levels)) is not None:
        near, far = (quantiles[..., place] for place in pair)
        yield "banded", masked(within(y, near, far))
        tied = share_inside(y, quantiles, levels)
        yield "banded_ties", masked(np.where(np.isnan(far - near), np.nan, tied))
    yield "width", masked(high - low)
    yield "interval", masked(interval_score(y, low, high, levels[-1] - levels[0]))
    mase, rmsse = scales.mase[:, None], scales.rmsse[:, None]
    scaled = scored & (mase > 0)
    yield "scaled_cells", scaled.astype(np.float64)
    yield "scaled_absolute", masked(np.abs(error) / np.where(mase > 0, mase, 1), scaled)
    yield "scaled_pinball", masked(loss / np.where(mase > 0, mase, 1), scaled)
    rooted = scored & (rmsse > 0)
    yield "rooted_rows", rooted.astype(np.float64)
    yield "rooted", masked(np.abs(error) / np.where(rmsse > 0, rmsse, 1), rooted)
    if paths is not None:
        yield "crps", masked(crps(np.where(scored, y, 0.0), np.moveaxis(paths, 1, -1)))
    if columns:
        for name, share in asked_shares(y, every, levels, columns).items():
            yield SHARE + name, masked(share)


def _metrics(sums: Sums, band: int) -> dict[str, Floats]:
    """Every metric from sums over a group; NaN where nothing of the group is scored."""

    def mean(name: str, count: str = "cells") -> Floats:
        return ratio(sums[name], sums[count])

    found = {
        "cells": np.asarray(sums["cells"]).astype(np.int64),
        "MAE": mean("absolute"),
        "RMSE": np.sqrt(mean("squared")),
        "MSE": mean("squared"),
        "MASE": mean("scaled_absolute", "scaled_cells"),
        "RMSSE": mean("rooted", "rooted_rows"),
        "sMAPE": mean("relative"),
        "WAPE": mean("absolute", "actual"),
        "WQL": mean("pinball", "actual"),
        "SQL": mean("scaled_pinball", "scaled_cells"),
        "CRPS_quantiles": mean("pinball"),
        "bias": mean("signed"),
        f"coverage_{band}": mean("inside"),
        f"width_{band}": mean("width"),
        f"interval_score_{band}": mean("interval"),
    }
    if "crps" in sums:
        found["CRPS"] = mean("crps")
    shares = [name for name in sums if name.startswith(SHARE) and not name.endswith("_ties")]
    return found | {name.removeprefix(SHARE): mean(name) for name in shares}


def _check_complete(actual: Floats, forecast: Floats) -> None:
    missing = int((np.isnan(forecast) & ~np.isnan(actual)).sum())
    if missing:
        raise ValueError(
            f"a forecast of each observed actual expected, found {missing} NaN: "
            "make the actual NaN where a cell is not to be scored"
        )
