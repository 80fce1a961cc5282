"""How sure a skill is: the paired bootstrap of two models' losses.

What comes in: the loss of two models on the same windows. What goes out: the skill and the interval it
could as well have had. Promised: the same losses give the same interval.

Axes: K cutoff · S series · D draw.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DRAWS = 1000
LEVEL = 0.95
"""Share of the draws that the interval holds."""

_SEED = 20_260
_BLOCK_CELLS = 1 << 22  # of draws and series together


class Skill(NamedTuple):
    """1 − loss / rival's loss; NaN = not defined."""

    skill: float
    low: float
    high: float

    @property
    def sure(self) -> bool:
        """Whether the interval leaves out 0, where both are equally good."""
        return self.low > 0 or self.high < 0


def paired_skill(loss: Floats, rival: Floats, overlap: int = 1) -> Skill:
    """Returns the skill of a model over a rival, with its bootstrap interval.

    Cutoffs and series are drawn anew, each with replacement and both at once, so that what all series
    share at a cutoff, and what a series shares at all cutoffs, widens the interval as it should; a
    draw takes the losses of both models. Cutoffs whose horizons overlap are drawn as neighbours, in
    circular blocks. Fewer than two series and two cutoffs have no interval.
    Source: Owen 2007 (both at once); Politis and Romano 1992 (circular blocks).

    Args:
        loss: [K, S] summed over the scored cells of a window; 0 where there are none.
        rival: [K, S] the same of the rival.
        overlap: neighbouring cutoffs, rising in time, that a block holds.
    """
    skill = _ratio(loss.sum(), rival.sum())
    cutoffs, series = loss.shape
    if np.isnan(skill) or cutoffs * series < 2:
        return Skill(float(skill), float("nan"), float("nan"))
    random = np.random.default_rng(_SEED)
    drawn = np.empty(DRAWS)
    step = max(1, _BLOCK_CELLS // (series + cutoffs))
    for start in range(0, DRAWS, step):
        part = slice(start, min(start + step, DRAWS))
        size = part.stop - part.start
        times = _block_counts(random, size, cutoffs, min(overlap, cutoffs))
        often = random.multinomial(series, np.full(series, 1 / series), size=size).astype(np.float64)
        mine, theirs = (((times @ sums) * often).sum(axis=1) for sums in (loss, rival))
        drawn[part] = _ratio(mine, theirs)
    drawn = drawn[~np.isnan(drawn)]
    if not drawn.size:
        return Skill(float(skill), float("nan"), float("nan"))
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Skill(float(skill), float(low), float(high))


def _block_counts(random: np.random.Generator, draws: int, cutoffs: int, overlap: int) -> Floats:
    """[D, K]: how often each cutoff is drawn, in circular blocks of neighbours."""
    start = random.integers(0, cutoffs, (draws, -(-cutoffs // overlap)))
    chosen = (start[..., None] + np.arange(overlap)).reshape(draws, -1)[:, :cutoffs] % cutoffs
    cell = np.arange(draws)[:, None] * cutoffs + chosen
    return np.bincount(cell.ravel(), minlength=draws * cutoffs).reshape(draws, cutoffs).astype(float)


def _ratio(loss: NDArray[np.floating] | float, rival: NDArray[np.floating] | float) -> Floats:
    """1 − loss / rival, NaN where the rival has no loss."""
    below = np.asarray(rival, np.float64)
    return 1 - np.divide(loss, below, out=np.full_like(below, np.nan), where=below > 0)
