"""Paired two-way block bootstrap of the skill of one model over another.

Axes: K cutoff · S series.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from forecaster.evaluation.error_scales import ratio
from forecaster.panel.arrays import Floats

DRAWS = 1000
LEVEL = 0.95
"""Share of the draws that the interval holds, unless another is asked for."""
TOO_FEW = "too few cutoffs for an interval"

_SEED = 20_260
_BLOCK_CELLS = 1 << 16  # of draws and series together: what stays in the cache is ten times as fast


class Skill(NamedTuple):
    """1 − loss / loss of the baseline; NaN = not defined."""

    skill: float
    low: float
    high: float

    def interval(self) -> str:
        """Returns the interval in words."""
        if math.isnan(self.low):
            return TOO_FEW
        return f"95 % interval {100 * self.low:.1f} to {100 * self.high:.1f} %"


def skill_of(scores: Mapping[str, float]) -> Skill:
    """Returns the skill among the scores of a model."""
    return Skill(*(scores.get(name, math.nan) for name in ("skill", "skill_low", "skill_high")))


def paired_skills(
    losses: Mapping[str, Floats],
    baseline: Floats,
    overlap: int = 1,
    share: float = LEVEL,
    draws: int = DRAWS,
) -> dict[str, Skill]:
    """Skill of each model over a baseline, with its bootstrap interval; deterministic.

    Cutoffs and series are resampled with replacement, both at once, so that errors shared by all series
    at a cutoff, or by one series at all cutoffs, widen the interval; all models share each draw. Cutoffs
    whose horizons overlap are drawn in circular blocks. A single window has no interval.
    Source: Owen 2007 (both at once); Politis and Romano 1992 (circular blocks).

    Args:
        losses: by model, [K, S] summed over the scored cells of a window; 0 where there are none.
        baseline: [K, S] the same of the baseline.
        overlap: neighbouring cutoffs, rising in time, that a block holds.
        share: of the draws that the interval holds.
        draws: 0 = no interval.

    >>> loss, baseline = np.array([[1.0], [1.0]]), np.array([[2.0], [2.0]])
    >>> paired_skills({"ours": loss}, baseline)["ours"]
    Skill(skill=0.5, low=0.5, high=0.5)
    """
    cutoffs, series = baseline.shape
    random = np.random.default_rng(_SEED)
    drawn: dict[str, list[Floats]] = {name: [] for name in losses}
    left = draws if cutoffs * series > 1 else 0
    while left:
        size = min(left, max(1, _BLOCK_CELLS // (series + cutoffs)))
        times = block_counts(random, size, cutoffs, min(overlap, cutoffs))
        often = block_counts(random, size, series, 1)
        baseline_loss = ((times @ baseline) * often).sum(axis=1)
        for name, loss in losses.items():
            drawn[name].append(1 - ratio(((times @ loss) * often).sum(axis=1), baseline_loss))
        left -= size
    return {
        name: _skill(1 - ratio(loss.sum(), baseline.sum()), drawn[name], share)
        for name, loss in losses.items()
    }


def _skill(skill: Floats, drawn: Sequence[Floats], share: float) -> Skill:
    defined = np.concatenate([*drawn, np.empty(0)])
    defined = defined[~np.isnan(defined)]
    if not defined.size:
        return Skill(float(skill), float("nan"), float("nan"))
    low, high = np.quantile(defined, [(1 - share) / 2, (1 + share) / 2])
    return Skill(float(skill), float(low), float(high))


def block_counts(random: np.random.Generator, draws: int, size: int, block: int) -> Floats:
    """[draw, size]: how often each of `size` things is drawn, in circular blocks of neighbours."""
    start = random.integers(0, size, (draws, -(-size // block)))
    chosen = (start[..., None] + np.arange(block)).reshape(draws, -1)[:, :size] % size
    cell = np.arange(draws)[:, None] * size + chosen
    return np.bincount(cell.ravel(), minlength=draws * size).reshape(draws, size).astype(np.float64)
