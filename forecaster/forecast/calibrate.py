"""Conformal calibration: factors that make quantiles cover the truth as often as their levels say.

The median stays, and distances from it are multiplied. For each pair of levels τ and 1 − τ:

    score of a window = |actual − median| / distance of the quantile on that side from the median
    own factor        = the quantile of the scores at the share of the truth that the band should hold
    factor            = own factor ^ (n / (n + 40)),   n windows without overlap

Source: Romano, Patterson and Candès, "Conformalized quantile regression" (2019), with scores as ratios.
Shrunk so, a few windows hardly move a band; shrunken factors carry no finite-sample guarantee. All leads and
channels have the same: what differs between them the bands know from other tables. (Factors of each channel and
lead, shrunk less, had 1.008 of the pinball loss of uncalibrated bands on 23 tables, these 1.001; both lie as near
to 80 %.)

Axes: N window · H lead · C channel · Q quantile level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from forecaster.model.ensemble import calibrated
from forecaster.model.heads import pinball
from forecaster.model.tails import beyond
from forecaster.panel.arrays import Bools, Floats, Ints

LEAST_RESIDUALS = 50
"""From which the tails are scaled: five lie beyond .1 and .9 on each side."""
_FOLDS = 4
_PRIOR = 40  # windows without overlap at which a factor counts as much as 1
_MOST = 10.0  # a factor at most, and one over it at least
_ADAPTATION = 0.1  # of a log factor at a time
_ADAPTED = 1 / 4, 4.0
"""The least and the largest factor of an adaptation."""
_NONE = 1e-9  # scaled units; distances of quantiles that are rounding


@dataclass(frozen=True)
class CalibrationSet:
    """Quantiles at held-out cutoffs, with the truth."""

    quantiles: Floats
    """[N, H, C, Q] scaled units, rising along Q."""
    actual: Floats
    """[N, H, C] scaled units; NaN = missing."""
    series: Ints
    """[N] number of the series."""
    step: Ints
    """[N] place of the cutoff on the time axis, in steps."""

    def select(self, chosen: Bools) -> CalibrationSet:
        """Returns some of the windows."""
        kept = (self.quantiles, self.actual, self.series, self.step)
        return CalibrationSet(*(values[chosen] for values in kept))  # type: ignore[arg-type]

    @property
    def independent(self) -> float:
        """The most windows without overlap."""
        horizon, count = self.quantiles.shape[1], 0.0
        for own in np.unique(self.series):
            steps = self.step[self.series == own]
            count += 1 + (steps.max() - steps.min()) / horizon
        return min(float(len(self.step)), count)


def calibrate(
    held_out: CalibrationSet, levels: tuple[float, ...]
) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """Returns conformal factors, 1 where they make the loss larger on windows not learned from; their effect.

    Args:
        held_out: at least two windows.
        levels: Q rising levels with the median.

    Returns:
        [Q] factors of the distances of the quantiles from the median; and `cutoffs`, the size of the calibration
        set, whether they are `applied`, `before` and `after`, the `quality` as it was and with each window's
        factors from other windows.
    """
    before = quality(held_out.quantiles, held_out.actual, levels)
    crossed = np.ones_like(held_out.quantiles)
    for inside, outside in _folds(held_out):
        crossed[inside] = conformal_factors(held_out.select(outside), levels)
    after = quality(with_factors(held_out.quantiles, crossed, levels), held_out.actual, levels)
    helps = after["pinball"] <= before["pinball"]
    factors = conformal_factors(held_out, levels) if helps else np.ones(len(levels))
    return factors.astype(np.float32), {
        "cutoffs": len(held_out.step),
        "applied": helps,
        "before": before,
        "after": after if helps else before,
    }


def adapted(held_out: CalibrationSet, levels: tuple[float, ...]) -> tuple[float, dict[str, Any]]:
    """Returns one factor of all distances from the median that follows the misses of the outermost band in time.

        log factor += rate · (share of the truths at a time that lie outside − the share that should)

    Truths in the order of their times; the factor stays within `_ADAPTED`. Source: Gibbs and Candès, "Adaptive
    conformal inference under distribution shift" (2021), with a factor in the place of the level.

    Args:
        held_out: forecasts made before their truths were known, of bands as they are used.
        levels: Q rising levels with the median.

    Returns:
        The factor after the last truth; and `cutoffs`, `applied`, `before` and `after` as of `calibrate`, each
        window with the factor that was known at its cutoff.
    """
    scores = _scores(held_out, levels)[..., -1]  # [N, H, C]
    time = held_out.step[:, None] + np.arange(1, scores.shape[1] + 1)  # [N, H]
    miss = 1 - (levels[-1] - levels[0])
    times = np.arange(time.min(), time.max() + 1)
    factors, factor = np.ones(len(times) + 1), 1.0  # before each time, and after all
    for place, now in enumerate(times):
        own = scores[time == now]
        own = own[~np.isnan(own)]
        if len(own):
            outside = float((own > factor).mean())
            factor = float(np.clip(factor * np.exp(_ADAPTATION * (outside - miss)), *_ADAPTED))
        factors[place + 1] = factor
    known = factors[held_out.step + 1 - times[0]][:, None, None, None]
    median = held_out.quantiles[..., levels.index(0.5), None]
    moved = median + known * (held_out.quantiles - median)
    before, after = (quality(own, held_out.actual, levels) for own in (held_out.quantiles, moved))
    effect = {"cutoffs": len(held_out.step), "applied": True, "before": before, "after": after}
    return factor, effect


def conformal_factors(held_out: CalibrationSet, levels: tuple[float, ...]) -> Floats:
    """Returns [Q] factors, shrunk to 1 as at the top of this file."""
    scores = _scores(held_out, levels)
    # The finite-sample level ⌈(n + 1)·share⌉ / n counts independent windows. Close cutoffs repeat each
    # other, so n lies between all windows and those without overlap: their geometric mean is taken.
    count = float(np.sqrt(len(scores) * held_out.independent))
    own = _conformal(scores.reshape(-1, len(levels)), levels, count)
    return _shrunk(own, held_out)


def tail_factor(held_out: CalibrationSet, levels: tuple[float, ...]) -> float | None:
    """Returns the factor of what lies beyond the outermost pair of quantiles; None of fewer than 50 residuals.

    It moves the pair that leaves a quarter as much outside, .025 and .975 of .1 and .9, to where it holds its
    share of the scores, shrunk to 1 as the other factors are:

        factor = (that quantile of the scores − 1) / (tail(.975) / (1 + tail(.9)) as of `beyond`)

    Args:
        held_out: calibrated windows.
        levels: Q rising levels with the median.
    """
    scores = _scores(held_out, levels)[..., -1]
    scores = scores[~np.isnan(scores)]
    if len(scores) < LEAST_RESIDUALS or levels[-1] == 0.5:
        return None
    outside = (1 - levels[-1]) / 4
    reach = float(np.quantile(scores, 1 - 2 * outside)) - 1
    return float(_shrunk(np.array(reach / beyond(1 - outside, levels[-1])), held_out))


def _shrunk(own: Floats, held_out: CalibrationSet) -> Floats:
    """Factors of any shape nearer to 1, the more so the fewer the windows; 1 where there is none."""
    count = held_out.independent
    bounded: Floats = np.clip(np.nan_to_num(own, nan=1.0), 1 / _MOST, _MOST)
    return bounded ** (count / (count + _PRIOR))


def with_factors(quantiles: Floats, factors: Floats, levels: tuple[float, ...]) -> Floats:
    """Returns quantiles with their distances from the median multiplied, as `Ensemble` does it."""
    own, wider = map(torch.from_numpy, (quantiles, factors))
    return calibrated(own, wider, levels.index(0.5)).numpy()


def quality(quantiles: Floats, actual: Floats, levels: tuple[float, ...]) -> dict[str, float]:
    """Returns the quality of quantiles over the observed cells, scaled units; NaN where there is none.

    coverage: share of the truth between the outer quantiles; inside: that without ties; width: their mean
    distance; pinball: mean loss over cells and levels.
    """
    real = ~np.isnan(actual)
    if not real.any():
        return dict.fromkeys(("coverage", "inside", "width", "pinball"), np.nan)
    found, truth = quantiles[real], actual[real]
    low, high = found[:, 0], found[:, -1]
    return {
        "coverage": float(((low <= truth) & (truth <= high)).mean()),
        "inside": float(((low < truth) & (truth < high)).mean()),
        "width": float((high - low).mean()),
        "pinball": float(pinball(*map(torch.from_numpy, (found, truth, np.asarray(levels)))).mean()),
    }


def _scores(held_out: CalibrationSet, levels: tuple[float, ...]) -> Floats:
    """[N, H, C, Q] distance of the truth from the median over that of the quantile on its side."""
    # One factor for both sides: with one for each they learned by how far the median was off in a few
    # weeks (bike rentals: pinball of the next hundred days 3.7 % larger, against .2 % with one).
    median = held_out.quantiles[..., levels.index(0.5), None]
    apart = held_out.quantiles - median
    missed = held_out.actual[..., None] - median
    mirror = [_mirror(levels, place) for place in range(len(levels))]
    side = np.where(np.sign(missed) == np.sign(apart), apart, apart[..., mirror])
    return np.abs(missed) / np.maximum(np.abs(side), _NONE)


def _mirror(levels: tuple[float, ...], place: int) -> int:
    """Returns the place of the level 1 − τ, or its own where there is none."""
    found = [at for at, level in enumerate(levels) if abs(level + levels[place] - 1) < 1e-6]
    return found[0] if found else place


def _conformal(scores: Floats, levels: tuple[float, ...], count: float) -> Floats:
    """[n, …, Q] → […, Q]: the conformal quantile of n scores per level; NaN = of none."""
    found = np.empty(scores.shape[1:])
    for place, level in enumerate(levels):
        outer = max(level, 1 - level)
        share = outer if _mirror(levels, place) == place else 2 * outer - 1
        ordered = np.sort(scores[..., place], axis=0)  # NaN comes last
        seen = (~np.isnan(ordered)).sum(axis=0)
        # Rounded first: 0.8 · (n + 1) / n · n may be a hair above a whole number.
        rank = np.ceil(np.round(share * (count + 1) / count * seen, 9)).astype(np.int64) - 1
        at = np.clip(rank, 0, np.maximum(seen - 1, 0))
        found[..., place] = np.take_along_axis(ordered, at[None], axis=0)[0]
    return found


def _folds(held_out: CalibrationSet) -> list[tuple[Bools, Bools]]:
    """Returns (windows to test on, windows to learn from): blocks of time that share no target.

    Where the cutoffs are too close for that, blocks of series; of few series, blocks of time that do.
    """
    horizon, steps = held_out.quantiles.shape[1], held_out.step - held_out.step.min()
    length = int(steps.max()) + 1
    series, place = np.unique(held_out.series, return_inverse=True)
    separable = length >= 2 * _FOLDS * horizon
    if not separable and len(series) >= _FOLDS:
        block = place % _FOLDS
        return [(block == fold, block != fold) for fold in range(_FOLDS)]
    gap = horizon if separable else 1
    block = steps * _FOLDS // length
    folds = []
    for fold in range(_FOLDS):
        inside = block == fold
        if inside.any():
            first, last = steps[inside].min(), steps[inside].max()
            outside = (steps <= first - gap) | (steps >= last + gap)
            if outside.any():
                folds.append((inside, outside))
    return folds
