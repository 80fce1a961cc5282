"""How sure a skill is: the paired bootstrap of models' losses.

What comes in: the losses of models on the same windows. What goes out: skills and the intervals they
could as well have had. Promised: the same losses give the same interval.

Axes: K cutoff · S series.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DRAWS = 1000
LEVEL = 0.95
"""Share of the draws that the interval holds."""

_SEED = 20_260
_BLOCK_CELLS = 1 << 16  # of draws and series together: what stays in the cache is ten times as fast


class Skill(NamedTuple):
    """1 − loss / rival's loss; NaN = not defined."""

    skill: float
    low: float
    high: float

    @property
    def sure(self) -> bool:
        """Whether the interval leaves out 0, where both are equally good."""
        return self.low > 0 or self.high < 0


def paired_skills(losses: Mapping[str, Floats], rival: Floats, overlap: int = 1) -> dict[str, Skill]:
    """Returns the skill of each model over a rival, with its bootstrap interval.

    Cutoffs and series are drawn anew, each with replacement and both at once, so that what all series
    share at a cutoff, and what a series shares at all cutoffs, widens the interval as it should; a
    draw takes the losses of all models. Cutoffs whose horizons overlap are drawn as neighbours, in
    circular blocks. A single window has no interval.
    Source: Owen 2007 (both at once); Politis and Romano 1992 (circular blocks).

    Args:
        losses: by model, [K, S] summed over the scored cells of a window; 0 where there are none.
        rival: [K, S] the same of the rival.
        overlap: neighbouring cutoffs, rising in time, that a block holds.

    >>> loss, rival = np.array([[1.0], [1.0]]), np.array([[2.0], [2.0]])
    >>> paired_skills({"ours": loss}, rival)["ours"]
    Skill(skill=0.5, low=0.5, high=0.5)
    """
    cutoffs, series = rival.shape
    random = np.random.default_rng(_SEED)
    drawn: dict[str, list[Floats]] = {name: [] for name in losses}
    left = DRAWS if cutoffs * series > 1 else 0
    while left:
        size = min(left, max(1, _BLOCK_CELLS // (series + cutoffs)))
        times = _block_counts(random, size, cutoffs, min(overlap, cutoffs))
        often = _block_counts(random, size, series, 1)
        theirs = ((times @ rival) * often).sum(axis=1)
        for name, loss in losses.items():
            drawn[name].append(_ratio(((times @ loss) * often).sum(axis=1), theirs))
        left -= size
    return {name: _skill(_ratio(loss.sum(), rival.sum()), drawn[name]) for name, loss in losses.items()}


def _skill(skill: Floats, drawn: Sequence[Floats]) -> Skill:
    defined = np.concatenate([*drawn, np.empty(0)])
    defined = defined[~np.isnan(defined)]
    if not defined.size:
        return Skill(float(skill), float("nan"), float("nan"))
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Skill(float(skill), float(low), float(high))


def _block_counts(random: np.random.Generator, draws: int, size: int, block: int) -> Floats:
    """[draw, size]: how often each of `size` things is drawn, in circular blocks of neighbours."""
    start = random.integers(0, size, (draws, -(-size // block)))
    chosen = (start[..., None] + np.arange(block)).reshape(draws, -1)[:, :size] % size
    cell = np.arange(draws)[:, None] * size + chosen
    return np.bincount(cell.ravel(), minlength=draws * size).reshape(draws, size).astype(np.float64)


def _ratio(loss: NDArray[np.floating] | float, rival: NDArray[np.floating] | float) -> Floats:
    """1 − loss / rival, NaN where the rival has no loss."""
    below = np.asarray(rival, np.float64)
    return 1 - np.divide(loss, below, out=np.full_like(below, np.nan), where=below > 0)
