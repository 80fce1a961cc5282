"""Which series a model does best and worst on.

What comes in: `Evidence`. What goes out: items in order, the best first. An item is one channel of one
series; where there are too few of them to rank, it is one of their windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forecaster.evaluation.report.evidence import Evidence, Floats
from forecaster.evaluation.rivals import MODEL, NAIVE

_SHOWN, _LISTED = 3, 8
_FEWEST_SERIES = 4


@dataclass(frozen=True)
class Item:
    """One channel of one series, or one window of it, with its scores."""

    name: str
    window: int
    """Number of the window to show: the last that was scored."""
    channel: int
    mase: float
    wql: float
    skill: float
    """Share of seasonal naive's WQL that is gone."""


@dataclass(frozen=True)
class Ranking:
    """The best and the worst items, and how all of them fare."""

    best: tuple[Item, ...]
    worst: tuple[Item, ...]
    """The worst first; none of the best is among them."""
    listed: tuple[Item, ...]
    """The worst and those that come before them, the worst first."""
    skills: Floats
    """Of all items that have one."""
    count: int
    """Items with a score."""
    kind: str
    """What an item is: "series" (of one channel), "channel" or "window"."""

    @property
    def kinds(self) -> str:
        """The same for several."""
        return self.kind if self.kind == "series" else f"{self.kind}s"


def ranking(found: Evidence) -> Ranking:
    """Returns items by MASE, or by mean absolute error where no series has a scale."""
    windows, channels = found.scale.shape
    owner = found.series[:, None] * channels + np.arange(channels)
    of_windows = len(np.unique(owner)) < _FEWEST_SERIES
    group = np.arange(windows * channels).reshape(windows, channels) if of_windows else owner
    _, first, group = np.unique(group, return_index=True, return_inverse=True)
    group = group.reshape(windows, channels)
    count = len(first)

    def mean(model: str, above: str, below: str) -> Floats:
        sums = found.tallies[model].windows
        top, foot = (np.bincount(group.ravel(), sums[name].ravel(), count) for name in (above, below))
        ratio: Floats = np.divide(top, foot, out=np.full(count, np.nan), where=foot > 0)
        return ratio

    mase, error = mean(MODEL, "scaled_absolute", "scaled_cells"), mean(MODEL, "absolute", "cells")
    wql, naive = mean(MODEL, "pinball", "truth"), mean(NAIVE, "pinball", "truth")
    skill = np.where(naive > 0, 1 - wql / np.where(naive > 0, naive, 1), np.nan)
    measure = mase if np.isfinite(mase).any() else error
    order = np.argsort(measure, kind="stable")
    order = order[np.isfinite(measure[order])]
    scored = found.tallies[MODEL].windows["cells"] > 0
    last = np.zeros(count, np.int64)  # a window that was scored; the last one wins
    place = np.argwhere(scored)
    last[group[scored]] = place[:, 0] * channels + place[:, 1]

    def item(n: int) -> Item:
        window, channel = divmod(int(last[n]), channels)
        name = _name(found, window, channel, of_windows)
        return Item(name, window, channel, float(mase[n]), float(wql[n]), float(skill[n]))

    shown = min(_SHOWN, -(-len(order) // 2))
    best = tuple(item(n) for n in order[:shown])
    worst = tuple(item(n) for n in order[shown:][::-1][:_SHOWN])
    listed = tuple(item(n) for n in order[::-1][:_LISTED])
    kind = "window" if of_windows else "series" if found.forecasts[0].panel.n_series > 1 else "channel"
    return Ranking(best, worst, listed, skill[np.isfinite(skill)], len(order), kind)


def _name(found: Evidence, window: int, channel: int, of_windows: bool) -> str:
    place = found.place(window, channel)
    forecast = found.forecasts[place.forecast]
    panel, target = forecast.panel, forecast.panel.schema.target
    label = panel.labels[int(forecast.series[place.row])]
    name = label if panel.n_series > 1 else target[channel]
    if panel.n_series > 1 and len(target) > 1:
        name = f"{label} · {target[channel]}"
    if of_windows:
        name += f" after {panel.calendar.text(int(forecast.cutoff[place.row]))}"
    return name
