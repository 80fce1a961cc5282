"""Arrays of scaled residuals → widths that make quantiles hold what they say.

What comes in: quantiles that no training has been told about, with the truth that followed. What goes
out: what to add to each quantile, in scaled units, and what that does to windows it was not learned
from. Promised: the median stays; wider where there are few windows, never by noise alone; a pinball
loss that is at most 1 % larger where widths meet windows they have not seen, else weaker widths.

    outside of a band = max(lower quantile − actual, actual − upper quantile), in scales of the window
    width of a band   = the quantile of these, at the share of the truth that the band should hold

Source: Romano, Patterson and Candès, "Conformalized quantile regression" (2019), equations 6 to 8, for
each pair of levels τ and 1 − τ. Its finite-sample level ⌈(n + 1) share⌉ / n counts independent windows.
Those whose cutoffs are close repeat each other, so n lies between as many as there are and as many as
do not overlap: their geometric mean is taken. One width serves both sides: with widths of their own
they learned by how far the median was off in a few weeks, and that passes (on bike rentals the pinball
loss of the hundred days that followed grew by 3.7 %, and by .2 % with one).

Axes: N window · H lead · C channel · Q quantile level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Int64 = NDArray[np.int64]

STRENGTHS = (1.0, 0.75, 0.5, 0.25)
"""Shares of the widths that are tried, beside none."""
MOST_LOSS = 1.01
"""Pinball after calibration over pinball before, at most."""
_AS_NEAR = 0.01
_FOLDS = 4
_PRIOR = 20  # windows that what all leads of a channel share counts like, beside a lead's own


@dataclass(frozen=True)
class CalibrationSet:
    """What was forecast at held-out cutoffs, and what came."""

    quantiles: Floats
    """[N, H, C, Q] scaled units, rising along Q."""
    actual: Floats
    """[N, H, C] scaled units; NaN = missing."""
    series: Int64
    """[N] number of the series."""
    step: Int64
    """[N] place of the cutoff on the time axis, in steps."""

    def some(self, chosen: NDArray[np.bool_]) -> CalibrationSet:
        """Returns some of the windows."""
        return CalibrationSet(
            self.quantiles[chosen], self.actual[chosen], self.series[chosen], self.step[chosen]
        )

    @property
    def apart(self) -> float:
        """How many windows there are that do not overlap, at most."""
        horizon, apart = self.quantiles.shape[1], 0.0
        for own in np.unique(self.series):
            steps = self.step[self.series == own]
            apart += 1 + (steps.max() - steps.min()) / horizon
        return min(float(len(self.step)), apart)


@dataclass(frozen=True)
class Quality:
    """How good quantiles are, in scaled units, over all observed cells."""

    coverage: float
    """Share of the truth between the outer quantiles."""
    width: float
    """Between the outer quantiles, mean."""
    pinball: float
    """Mean over cells and levels."""


@dataclass(frozen=True)
class Calibration:
    """Widths, and what they are worth where they were not learned."""

    widths: NDArray[np.float32]
    """[H, C, Q]"""
    strength: float
    """Share of the conformal widths that is applied; 0 = none of them helps."""
    windows: int
    """That widths were learned from."""
    before: Quality
    """Of the quantiles as they were."""
    after: Quality
    """Of the calibrated ones, each window by widths from other windows."""


def calibrate(held: CalibrationSet, levels: tuple[float, ...]) -> Calibration:
    """Returns widths, as strong as is best for windows that they were not learned from.

    That is the largest whose outer band comes as near to its share as any other's, to a hundredth, of
    those whose loss allows it: few windows make conformal bands too wide.

    Args:
        held: at least two windows.
        levels: Q rising levels with the median.
    """
    before = quality(held.quantiles, held.actual, levels)
    crossed = np.zeros_like(held.quantiles)
    for inside, outside in _folds(held):
        crossed[inside] = conformal_offsets(held.some(outside), levels)
    nominal = levels[-1] - levels[0]
    tried = {0.0: before} | {
        strength: quality(with_offsets(held.quantiles, strength * crossed, levels), held.actual, levels)
        for strength in STRENGTHS
    }
    allowed = [s for s, found in tried.items() if found.pinball <= MOST_LOSS * before.pinball]
    apart = {s: abs(tried[s].coverage - nominal) for s in allowed}
    nearest = min(apart.values(), default=0.0)
    strength = max((s for s, own in apart.items() if own <= nearest + _AS_NEAR), default=0.0)
    after = tried[strength]
    widths = strength * conformal_offsets(held, levels)
    return Calibration(widths.astype(np.float32), strength, len(held.step), before, after)


def conformal_offsets(held: CalibrationSet, levels: tuple[float, ...]) -> Floats:
    """Returns [H, C, Q] widths: a lead's own, drawn to what all leads of its channel share.

    A lead has as many errors as there are windows, a channel `H` times as many. The more windows
    that do not overlap, the more the lead counts: as n to 20. One without any has the channel's; a
    channel without any, those of all channels.
    """
    outside = _outside(held, levels)
    windows, horizon, channels, _ = outside.shape
    count = float(np.sqrt(windows * held.apart))
    own = _conformal(outside, levels, count)
    channel = _conformal(outside.reshape(windows * horizon, channels, -1), levels, count)
    everything = _conformal(outside.reshape(windows * horizon * channels, -1), levels, count)
    everything = np.where(np.isnan(everything), 0.0, everything)
    channel = np.where(np.isnan(channel), everything, channel)
    share = held.apart / (held.apart + _PRIOR)
    widths: Floats = np.where(np.isnan(own), channel, share * own + (1 - share) * channel)
    return widths * np.sign(np.asarray(levels) - 0.5)


def with_offsets(quantiles: Floats, widths: Floats, levels: tuple[float, ...]) -> Floats:
    """Returns quantiles with widths added: the median stays, and they still rise.

    What would cross is put in order, which never makes the loss larger (Chernozhukov, Fernández-Val and
    Galichon, "Quantile and probability curves without crossing", 2010).
    """
    m = levels.index(0.5)
    moved, median = quantiles + widths, quantiles[..., m : m + 1]
    below = np.sort(np.minimum(moved[..., :m], median), axis=-1)
    above = np.sort(np.maximum(moved[..., m + 1 :], median), axis=-1)
    return np.concatenate([below, median, above], axis=-1)


def quality(quantiles: Floats, actual: Floats, levels: tuple[float, ...]) -> Quality:
    """Returns how good quantiles are over the observed cells."""
    real = ~np.isnan(actual)
    found, truth = quantiles[real], actual[real]
    error, tau = truth[:, None] - found, np.asarray(levels)
    low, high = found[:, 0], found[:, -1]
    return Quality(
        coverage=float(((low <= truth) & (truth <= high)).mean()) if real.any() else float("nan"),
        width=float((high - low).mean()) if real.any() else float("nan"),
        pinball=float(2 * np.maximum(tau * error, (tau - 1) * error).mean())
        if real.any()
        else float("nan"),
    )


def _outside(held: CalibrationSet, levels: tuple[float, ...]) -> Floats:
    """[N, H, C, Q] how far the truth is outside the band of each level and its mirror; < 0 = inside.

    A level without a mirror is a side by itself.
    """
    side = np.sign(np.asarray(levels) - 0.5)
    beyond: Floats = side * (held.actual[..., None] - held.quantiles)
    mirror = [_mirror(levels, place) for place in range(len(levels))]
    return np.maximum(beyond, beyond[..., mirror])


def _mirror(levels: tuple[float, ...], place: int) -> int:
    """Returns the place of the level 1 − τ, or its own where there is none."""
    found = [at for at, level in enumerate(levels) if abs(level + levels[place] - 1) < 1e-6]
    return found[0] if found else place


def _conformal(outside: Floats, levels: tuple[float, ...], count: float) -> Floats:
    """[n, …, Q] → [… , Q]: the width that holds each level's share of n errors; NaN = of none."""
    found = np.empty(outside.shape[1:])
    for place, level in enumerate(levels):
        outer = max(level, 1 - level)
        share = outer if _mirror(levels, place) == place else 2 * outer - 1
        ordered = np.sort(outside[..., place], axis=0)  # NaN comes last
        seen = (~np.isnan(ordered)).sum(axis=0)
        # Rounded first: 0.8 · (n + 1) / n · n may be a hair above a whole number.
        rank = np.ceil(np.round(share * (count + 1) / count * seen, 9)).astype(np.int64) - 1
        at = np.clip(rank, 0, np.maximum(seen - 1, 0))
        found[..., place] = np.take_along_axis(ordered, at[None], axis=0)[0]
    return found


def _folds(held: CalibrationSet) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Returns (windows to try on, windows to learn from): blocks of time that share no target.

    Where the cutoffs are too close for that, blocks of series; of few series, blocks of time that do.
    """
    horizon, steps = held.quantiles.shape[1], held.step - held.step.min()
    length = int(steps.max()) + 1
    kinds, place = np.unique(held.series, return_inverse=True)
    if length < 2 * _FOLDS * horizon and len(kinds) >= _FOLDS:
        block = place % _FOLDS
        return [(block == fold, block != fold) for fold in range(_FOLDS)]
    apart = horizon if length >= 2 * _FOLDS * horizon else 1
    block = steps * _FOLDS // length
    folds = []
    for fold in range(_FOLDS):
        inside = block == fold
        if inside.any():
            first, last = steps[inside].min(), steps[inside].max()
            outside = (steps <= first - apart) | (steps >= last + apart)
            if outside.any():
                folds.append((inside, outside))
    return folds
