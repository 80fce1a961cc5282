"""How much of the truth a central band holds: randomised over ties, with an interval over cutoffs.

Axes: Q quantile level · K cutoff.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from forecaster.evaluation.bootstrap import DRAWS, TOO_FEW, block_counts
from forecaster.evaluation.error_scales import ratio
from forecaster.forecast.bands import Columns, asked_bands, further_levels
from forecaster.forecast.card import ADVICE, FAR_OFF, off_band
from forecaster.panel.arrays import Bools, Floats
from forecaster.panel.findings import Finding

LEVEL = 0.9
"""Share of the draws that the interval holds."""

_USUAL = (0.1, 0.9)
_SEED = 20_261
_ENDS = ("ties", "ties_low", "ties_high")


class Coverage(NamedTuple):
    """Share of the truth inside a central band; NaN = not defined."""

    band: float
    """Nominal coverage, percent."""
    share: float
    """Randomised over ties (`share_inside`)."""
    low: float
    """Of the 90 % interval of `share`; NaN of too few cutoffs."""
    high: float
    plain: float
    """A value on the edge counts as inside."""

    def line(self) -> str:
        """Returns the coverage as a line of text; the plain one where it differs in what is printed."""
        text = f"{self.band:g} % band holds {100 * self.share:.1f} % ({self.interval()})"
        if f"{self.plain:.3f}" != f"{self.share:.3f}":
            text += f" with ties shared out, {100 * self.plain:.1f} % with each tie inside"
        return text

    def interval(self) -> str:
        """Returns the interval in words."""
        if self.low != self.low:
            return TOO_FEW
        return f"90 % interval {100 * self.low:.1f} to {100 * self.high:.1f} %"

    def off(self, allowed: float = FAR_OFF) -> str:
        """Returns "narrow" or "wide" where the whole interval misses what is nominal by more than is allowed."""
        return off_band(self.band / 100, self.low, self.high, allowed)

    def advice(self) -> str:
        """Returns what to do about a band that is off."""
        outside = (1 - self.share) / (1 - self.band / 100)
        return f"{outside:.1f} times as many values fall outside as should: {ADVICE[self.off(0.0)]}"

    def findings(self) -> tuple[Finding, ...]:
        """Returns a warning where the whole interval misses what is nominal by more than 10 points."""
        if not (off := self.off()):
            return ()
        text = f"{self.line()}: the bands are too {off} by more than {100 * FAR_OFF:.0f} points"
        return (Finding("warning", "coverage", text, f"{self.advice()}; see --report"),)


def band_of(levels: Sequence[float]) -> tuple[int, int] | None:
    """Places of .1 and .9 among levels; else of the outermost pair τ, 1 − τ; None = there is no pair.

    >>> band_of((0.05, 0.1, 0.5, 0.9, 0.95)), band_of((0.2, 0.5, 0.8, 0.99)), band_of((0.5,))
    ((1, 3), (0, 2), None)
    """
    places = {round(level, 9): place for place, level in enumerate(levels)}
    if all(level in places for level in _USUAL):
        return places[_USUAL[0]], places[_USUAL[1]]
    for level, low in places.items():
        high = places.get(round(1 - level, 9))
        if level < 0.5 and high is not None:
            return low, high
    return None


def nominal(levels: Sequence[float]) -> int:
    """Nominal coverage of the band of levels, percent; 0 without a pair."""
    band = band_of(levels)
    return 0 if band is None else round(100 * (levels[band[1]] - levels[band[0]]))


def share_inside(
    actual: Floats, quantiles: Floats, levels: Sequence[float], band: tuple[int, int] | None = None
) -> Floats:
    """Share of each actual inside a band [low, high]: 1, 0, or between on a tie.

    An actual y that equals a bound is spread over the probability tied at its value. Level τₖ stands for the
    probability from halfway to its lower neighbour to halfway to its upper one, the outermost two from 0 and
    to 1. Where the levels τₐ … τ_b are those whose quantiles equal y:

        from = (τₐ₋₁ + τₐ) / 2 or 0,  to = (τ_b + τ_b₊₁) / 2 or 1
        share = (min(to, τ_high) − max(from, τ_low)) / (to − from)

    So zeros of a count whose quantiles up to .5 are 0 count .45 / .55, not 1; a calibrated forecast of few
    values is then inside as often as its band says. Source: randomised probability integral transform,
    Czado, Gneiting and Held 2009.

    Args:
        actual: [...] data units; NaN = 0.
        quantiles: [..., Q] rising along the levels.
        levels: [Q] rising, with a pair τ, 1 − τ.
        band: places of its ends among the levels; None = those of `band_of`.

    >>> zeros = np.array([[0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 3.0]])
    >>> levels = [k / 10 for k in range(1, 10)]
    >>> [share_inside(np.array([y]), zeros, levels).round(3).tolist() for y in (0.0, 1.0, 3.0, 4.0)]
    [[0.818], [1.0], [0.333], [0.0]]
    """
    band = band or band_of(levels)
    assert band is not None
    low, high = (quantiles[..., place] for place in band)
    share = ((low < actual) & (actual < high)).astype(np.float64)
    tied = (low == actual) | (actual == high)
    if not tied.any():
        return share
    equal: Bools = quantiles[tied] == actual[tied][:, None]  # [tied, Q]
    tau = np.asarray(levels, np.float64)
    edges = np.concatenate([[0.0], (tau[1:] + tau[:-1]) / 2, [1.0]])  # [Q + 1]
    begin = edges[equal.argmax(axis=-1)]
    end = edges[len(tau) - equal[:, ::-1].argmax(axis=-1)]
    inside = np.minimum(end, tau[band[1]]) - np.maximum(begin, tau[band[0]])
    share[tied] = np.maximum(inside, 0) / (end - begin)
    return share


def asked_shares(
    actual: Floats, quantiles: Floats, levels: Sequence[float], columns: Columns
) -> dict[str, Floats]:
    """Shares of the actuals that asked bands and quantiles hold, by metric: 1, 0, or between on a tie.

    `coverage_95` counts a tie as inside, `coverage_95_ties` shares it out; `below_0.05` is at or below a quantile
    that is not fitted.

    Args:
        actual: [...] data units.
        quantiles: [..., Q], and after the fitted ones those of `further_levels`.
        levels: [Q] fitted.
        columns: asked for.
    """
    every = (*levels, *further_levels(columns, levels))
    order = np.argsort(every)
    rising, ordered = np.asarray(every)[order].tolist(), quantiles[..., order]
    level_of, found = dict(columns), {}
    for band in asked_bands(columns):
        low, high = (rising.index(level_of[f"{side}-{band}"]) for side in ("lo", "hi"))
        inside = within(actual, ordered[..., low], ordered[..., high])
        tied = share_inside(actual, ordered, rising, (low, high))
        found[f"coverage_{band}"] = inside
        found[f"coverage_{band}_ties"] = np.where(np.isnan(inside), np.nan, tied)
    for name, level in columns:
        if name.startswith("q") and level not in levels:
            quantile = ordered[..., rising.index(level)]
            found[f"below_{level:g}"] = np.where(np.isnan(quantile), np.nan, actual <= quantile)
    return found


def within(y: Floats, low: Floats, high: Floats) -> Floats:
    """Whether a band holds the actuals, as 1 and 0; NaN where there is none."""
    return np.where(np.isnan(high - low), np.nan, (low <= y) & (y <= high))


def coverage_interval(inside: Floats, cells: Floats, overlap: int = 1) -> tuple[float, float, float]:
    """Share inside, and its 90 % interval: cutoffs are drawn anew in circular blocks of neighbours.

    Blocks hold a third root of the number of cutoffs, or as many as overlap if these are more; deterministic.
    Source: Politis and Romano 1992 (circular blocks).

    Args:
        inside: [K] sum of shares inside at each cutoff, rising in time.
        cells: [K] scored cells.
        overlap: neighbouring cutoffs that forecast a common step.

    Returns:
        Share, low, high; the last two NaN of fewer than two cutoffs that have cells.

    >>> coverage_interval(np.array([8.0, 8.0, 8.0]), np.array([10.0, 10.0, 10.0]))
    (0.8, 0.8, 0.8)
    """
    cutoffs = len(cells)
    share = float(ratio(inside.sum(), cells.sum()))
    if (cells > 0).sum() < 2:
        return share, np.nan, np.nan
    block = min(max(round(cutoffs ** (1 / 3)), overlap), cutoffs)
    often = block_counts(np.random.default_rng(_SEED), DRAWS, cutoffs, block)
    drawn = ratio(often @ inside, often @ cells)
    low, high = np.nanquantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return share, float(low), float(high)


def coverage_scores(band: float, plain: float, found: tuple[float, float, float]) -> dict[str, float]:
    """Scores of a band by name, beside `coverage_80`: `coverage_80_ties` with `_low` and `_high`."""
    name = f"coverage_{band:g}"
    return {name: plain} | {f"{name}_{end}": value for end, value in zip(_ENDS, found, strict=True)}


def coverage_of(scores: Mapping[str, float], band: float) -> Coverage | None:
    """The coverage among scores; None where they have none."""
    name = f"coverage_{band:g}"
    if f"{name}_ties" not in scores:
        return None
    share, low, high = (scores[f"{name}_{end}"] for end in _ENDS)
    return Coverage(band, share, low, high, scores[name])
