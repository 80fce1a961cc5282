"""Sums from which every metric follows, for any group of forecasts.

What comes in: the truth, quantiles and scales. What goes out: a `Tally`, sums per window and channel
and sums per lead and channel, small beside the forecasts they come from; and the metrics of any group
of them. Promised: the metrics of a group are those that `metrics.py` gives on its cells alone; a cell
without a truth counts nowhere.

Axes: N window (a series at one cutoff) · C channel · H lead · Q quantile level · S path · G group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecaster.evaluation import metrics
from forecaster.evaluation.scales import Scales

Floats = NDArray[np.float64]
Sums = Mapping[str, Floats]
Scores = dict[str, float]

_BLOCK_CELLS = 1 << 13  # with nine levels 600 kB an array in float64: they stay in the cache


@dataclass(frozen=True)
class Tally:
    """What one model's forecasts sum to."""

    windows: Sums
    """By name, [N, C]: summed over leads."""
    leads: Sums
    """By name, [H, C]: summed over windows."""
    share: int
    """Percent that the outermost quantiles hold."""

    def overall(self) -> Scores:
        """Returns the metrics of everything."""
        everything = np.zeros(len(self.windows["cells"]), np.int64)
        found = self.by_group(everything, 1)
        return {name: float(score[0]) for name, score in found.items() if name != "cells"}

    def by_channel(self) -> dict[str, Floats]:
        """Returns `cells` and the metrics of each channel, [C]."""
        return _metrics({name: sums.sum(axis=0) for name, sums in self.windows.items()}, self.share)

    def by_lead(self) -> dict[str, Floats]:
        """Returns `cells` and the metrics of each lead, [H]."""
        return _metrics({name: sums.sum(axis=1) for name, sums in self.leads.items()}, self.share)

    def by_group(self, group: NDArray[np.int64], groups: int) -> dict[str, Floats]:
        """Returns `cells` and the metrics of groups of windows, [G].

        Args:
            group: [N] number of each window's group; or [N, C], where channels differ.
            groups: how many there are.
        """
        per_channel = group if group.ndim == 2 else group[:, None]
        shape = self.windows["cells"].shape
        owner = np.broadcast_to(per_channel, shape).ravel()
        summed: dict[str, Floats] = {
            name: np.bincount(owner, sums.ravel(), groups).astype(np.float64)
            for name, sums in self.windows.items()
        }
        return _metrics(summed, self.share)


def joined(tallies: Sequence[Tally]) -> Tally:
    """Returns the tally of all windows from those of some, in their order."""
    first = tallies[0]
    if len(tallies) == 1:
        return first
    return Tally(
        {name: np.concatenate([part.windows[name] for part in tallies]) for name in first.windows},
        {name: np.sum([part.leads[name] for part in tallies], axis=0) for name in first.leads},
        first.share,
    )


def tally(
    actual: NDArray[np.floating],
    quantiles: NDArray[np.floating],
    levels: Sequence[float],
    scales: Scales,
    paths: NDArray[np.floating] | None = None,
) -> Tally:
    """Returns the sums of one model's forecasts.

    Args:
        actual: [N, H, C] data units; NaN = not scored.
        quantiles: [N, H, C, Q] data units; 0.5 among the levels; real wherever the truth is.
        levels: [Q] rising.
        scales: of the windows.
        paths: [N, S, H, C] joint draws, where there are any.

    Raises:
        ValueError: a quantile of a scored cell is NaN.
    """
    n, horizon, channels = actual.shape
    step = max(1, _BLOCK_CELLS // max(1, horizon * channels))
    windows: dict[str, list[Floats]] = {}
    leads: dict[str, Floats] = {}
    for start in range(0, max(n, 1), step):
        part = slice(start, start + step)
        drawn = None if paths is None else paths[part]
        for name, cells in _cells(actual[part], quantiles[part], levels, scales.of(part), drawn):
            windows.setdefault(name, []).append(cells.sum(axis=1))
            leads[name] = leads.get(name, 0.0) + cells.sum(axis=0)
    found = {name: np.concatenate(parts) for name, parts in windows.items()}
    # The root of RMSSE is taken per window; of one lead it is the absolute error.
    found["rooted"] = _rooted(found, scales.rmsse)
    found["rooted_rows"] = (found["rooted_rows"] > 0).astype(np.float64)
    return Tally(found, leads, round(100 * (levels[-1] - levels[0])))


def _cells(
    actual: NDArray[np.floating],
    quantiles: NDArray[np.floating],
    levels: Sequence[float],
    scales: Scales,
    paths: NDArray[np.floating] | None,
) -> Iterator[tuple[str, Floats]]:
    """Yields by name [N, H, C]: what each cell adds, 0 where it adds nothing."""
    y = np.asarray(actual, np.float64)
    scored = ~np.isnan(y)
    loss = metrics.pinball(y, quantiles, levels).mean(axis=-1)
    median = np.asarray(quantiles[..., list(levels).index(0.5)], np.float64)
    error = median - y
    size = np.abs(y) + np.abs(median)
    low, high = (np.asarray(quantiles[..., end], np.float64) for end in (0, -1))

    def kept(cells: Floats, where: NDArray[np.bool_] = scored) -> Floats:
        return np.where(where, cells, 0.0)

    yield "cells", scored.astype(np.float64)
    yield "truth", kept(np.abs(y))
    yield "absolute", kept(np.abs(error))
    yield "squared", kept(error**2)
    yield "signed", kept(error)
    relative = np.divide(200 * np.abs(error), size, out=np.zeros_like(size), where=size > 0)
    yield "relative", kept(relative)
    yield "pinball", kept(loss)
    yield "inside", kept(((low <= y) & (y <= high)).astype(np.float64))
    yield "width", kept(high - low)
    mase, rmsse = scales.mase[:, None], scales.rmsse[:, None]
    scaled = scored & (mase > 0)
    yield "scaled_cells", scaled.astype(np.float64)
    yield "scaled_absolute", kept(np.abs(error) / np.where(mase > 0, mase, 1), scaled)
    yield "scaled_pinball", kept(loss / np.where(mase > 0, mase, 1), scaled)
    rooted = scored & (rmsse > 0)
    yield "rooted_rows", rooted.astype(np.float64)
    yield "rooted", kept(np.abs(error) / np.where(rmsse > 0, rmsse, 1), rooted)
    if paths is not None:
        yield "drawn", kept(metrics.crps(np.where(scored, y, 0.0), np.moveaxis(paths, 1, -1)))


def _rooted(sums: Sums, scale: Floats) -> Floats:
    """[N, C]: root mean squared error of each window over its scale, 0 where there is none."""
    used = sums["rooted_rows"] > 0
    mean = sums["squared"] / np.maximum(sums["cells"], 1)
    return np.where(used, np.sqrt(mean) / np.where(used, scale, 1), 0.0)


def _metrics(sums: Sums, share: int) -> dict[str, Floats]:
    """Returns every metric of sums over a group; NaN where nothing of the group is scored."""

    def mean(name: str, count: str = "cells") -> Floats:
        total, number = np.asarray(sums[name]), np.asarray(sums[count])
        return np.where(number > 0, total / np.where(number > 0, number, 1), np.nan)

    found = {
        "cells": np.asarray(sums["cells"]).astype(np.int64),
        "MAE": mean("absolute"),
        "RMSE": np.sqrt(mean("squared")),
        "MSE": mean("squared"),
        "MASE": mean("scaled_absolute", "scaled_cells"),
        "RMSSE": mean("rooted", "rooted_rows"),
        "sMAPE": mean("relative"),
        "WQL": mean("pinball", "truth"),
        "SQL": mean("scaled_pinball", "scaled_cells"),
        # The loss averaged over levels is what the integral over all of them is taken to be.
        "CRPS_quantiles": mean("pinball"),
        "bias": mean("signed"),
        f"coverage_{share}": mean("inside"),
        f"width_{share}": mean("width"),
    }
    if "drawn" in sums:
        found["CRPS"] = mean("drawn")
    return found


def names_of(scores: Iterable[Mapping[str, object]]) -> list[str]:
    """Returns the names of metrics that any of some models has, in order."""
    return list(dict.fromkeys(name for mine in scores for name in mine))
