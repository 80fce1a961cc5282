"""Outliers and level shifts: what a history holds that its future does not.

    a value far from the seven before it ─▶ the next ones came back   outlier: drawn in to the level around it
                                       └──▶ they stayed                level shift: all rows before are moved to it

    missed = value − season − level        level: median of the seven values before, and the drift of the series
    far    = |missed| > 4 times what nine of ten errors of this sign stay below

A series whose errors last (a random walk, a flood) has no outliers; one whose level wanders has no level shift, for
a shift explains four fifths of the variance. Values that follow say which of both it is, so that a step at the very
end is an outlier in a series whose errors do not last. All of it commutes with y → a·y + b.

Source of the two kinds: Chen and Liu, "Joint estimation of model parameters and outlier effects" (1993).

Axes: S series · T step · N season · M step of a season.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from forecaster.panel.arrays import Bools, Floats

_WIDTH = 7
"""Values of which the median is a level."""
_LONGEST = 10
"""Steps that outliers last at most."""
_ENOUGH = 4
"""Steps after a change that tell an outlier from a level shift."""
_FAR = 4.0
_SHARE = 0.9
_JUMP = 5.0
"""Mean steps that a jump is at least: 6.6 standard deviations of noise are more."""
_OFTEN = 0.05
"""Share of rows, or three: more outliers are the nature of a series."""
_LASTING = 0.5
"""Share of an error that is left in the three steps after it, of a series whose errors last."""
_LIKELY, _UNSEEN = 1.5, 4
"""Deviations of an error that counts for this, and errors that are taken to have gone."""
_MOVE = 6.0
"""Deviations of a level shift, of the typical difference of neighbouring levels."""
_UNEXPLAINED = 0.2
"""Share of the variance that a level shift leaves."""
_SIDE = 15
"""Values on each side of a level shift of which the medians are its levels."""
_SCATTER_SIDE, _SCATTER = 60, 3.0
"""The same of the scatter, and the factor by which it changes with a unit."""
_MOST_SHIFTS = 4
_CELLS = 1 << 17  # searched at a time
_OF_NORMAL = 1.4826  # a standard deviation over the median distance


class HistoryChange(NamedTuple):
    """Outliers in a row, or a level shift."""

    series: int
    first: int
    """Step of the first outlier, or of the first value of the new level."""
    last: int
    """Step after the last outlier; −1 = a level shift."""
    value: float
    """That of the first outlier, or the new level."""
    level: float
    """That was expected of it, or the one before."""
    factor: float = 1.0
    """Of the scatter around the level, where it shifts."""

    @property
    def is_shift(self) -> bool:
        """Whether the level shifts."""
        return self.last < 0


@dataclass(frozen=True)
class _Course:
    """Series beside the level that the values before a step have."""

    values: Floats
    """[S, T] without gaps and season; NaN before the first observation."""
    season: Floats
    """[S, T]"""
    level: Floats
    """[S, T]"""
    far: Bools
    """[S, T] whether an observed value is far from its level."""
    lasting: Bools
    """[S] whether errors last."""
    move: Floats
    """[S] typical difference of the levels before and after a step."""


def cleaned(values: Floats, season: int) -> tuple[Floats, list[HistoryChange]]:
    """Returns histories without outliers, at their last level, and what was changed.

    Args:
        values: [S, T] data units; NaN = missing, as before the first row of a series. They stay as they are.
        season: steps; 1 = none.
    """
    result, changes = values, list[HistoryChange]()
    most = max(1, _CELLS // max(1, values.shape[1]))
    for start in range(0, len(values), most):
        part = values[start : start + most]
        rows = np.flatnonzero(_has_jump(part))
        for turn in range(_MOST_SHIFTS + 1):
            if not len(rows):
                break
            if result is values:
                result = values.copy()
            own = result[start : start + most]
            course = _course(own[rows], season)
            found = [
                change
                for place in np.flatnonzero(course.far.any(axis=1))
                for change in _changes_of(course, int(place), own[rows[place]], turn < _MOST_SHIFTS)
            ]
            changes += [one._replace(series=start + int(rows[one.series])) for one in found]
            # The rows before a level shift were moved: outliers are seen from there on.
            rows = rows[np.unique([one.series for one in found if one.is_shift]).astype(int)]
    return result, sorted(changes, key=lambda one: one.series)


def _has_jump(values: Floats) -> Bools:
    """[S] whether a series is long enough, and one of its steps is large."""
    steps = np.nan_to_num(np.abs(np.diff(_filled(values), axis=1)))  # 0 in gaps
    count = (steps > 0).sum(axis=1)
    long_enough = (~np.isnan(values)).sum(axis=1) > 3 * _WIDTH
    return long_enough & (steps.max(axis=1, initial=0.0) * count > _JUMP * steps.sum(axis=1))


def _filled(values: Floats) -> Floats:
    """Returns each gap with the value before it."""
    missing = np.isnan(values)
    if not missing.any():
        return values
    last = np.where(missing, 0, np.arange(values.shape[1]))
    return np.take_along_axis(values, np.maximum.accumulate(last, axis=1), axis=1)


def _course(values: Floats, season: int) -> _Course:
    filled = _filled(values)
    pattern = _pattern(filled, season)
    plain = filled - pattern
    before = _medians_before(plain, _WIDTH)
    after = _medians_after(plain, _WIDTH)
    drift = _median(plain - before)[:, None]
    # The first values have none before them, but some after.
    level = np.where(np.isnan(before), after - drift, before + drift)
    missed = plain - level
    size = np.abs(missed)
    middle = _median(size)
    far = np.zeros(values.shape, bool)
    for side in (missed > 0, missed < 0):
        usual = _quantile(np.where(side, size, np.nan), _SHARE)
        # Of values that mostly repeat any other is far.
        usual[(middle == 0) | ~(usual > 0)] = np.inf
        far |= side & (size > _FAR * usual[:, None])
    likely = (size > _LIKELY * _OF_NORMAL * middle[:, None]) & ~far
    left = (_medians_after(plain, 3) - level) / np.where(likely, missed, 1.0)
    likely &= ~np.isnan(left)
    share = np.where(likely, left.clip(-1, 2), 0.0).sum(axis=1) / (likely.sum(axis=1) + _UNSEEN)
    return _Course(
        values=plain,
        season=pattern,
        level=level,
        far=far & ~np.isnan(values),
        lasting=share >= _LASTING,
        move=_OF_NORMAL * _median(np.abs(after - level)),
    )


def _pattern(values: Floats, season: int) -> Floats:
    """[S, T] medians by phase of what seasons are above their own medians and a common drift; 0 of under three."""
    count = values.shape[1] // season
    if season == 1 or count < 3:
        return np.zeros_like(values)
    seasons = values[:, -count * season :].reshape(-1, count, season)  # [S, N, M]
    ramp = np.arange(season) - (season - 1) / 2
    with warnings.catch_warnings():  # of series that begin later
        warnings.simplefilter("ignore", RuntimeWarning)
        middle = np.median(seasons, axis=2, keepdims=True)
        drift = np.nanmedian(np.diff(middle, axis=1), axis=1, keepdims=True) / season
        pattern = np.nanmedian(seasons - middle - drift * ramp, axis=1)  # [S, M]
    whole = (~np.isnan(middle)).sum(axis=(1, 2))
    pattern[whole < 3] = 0.0
    return np.tile(pattern, count + 1)[:, -values.shape[1] :]


def _medians_before(values: Floats, width: int) -> Floats:
    """[S, T] median of so many values before each; NaN where there are fewer."""
    medians = np.full(values.shape, np.nan)
    if values.shape[1] > width:
        windows = np.lib.stride_tricks.sliding_window_view(values[:, :-1], width, axis=1)
        medians[:, width:] = np.median(windows, axis=2)
    return medians


def _medians_after(values: Floats, width: int) -> Floats:
    """[S, T] median of so many values after each; NaN where there are fewer."""
    return _medians_before(values[:, ::-1], width)[:, ::-1]


def _quantile(values: Floats, share: float) -> Floats:
    """[S] of what is no NaN, the value below; NaN where nothing is."""
    count = (~np.isnan(values)).sum(axis=1)
    place = (share * (count - 1)).astype(int).clip(min=0)
    return np.sort(values, axis=1)[np.arange(len(values)), place]


def _median(values: Floats) -> Floats:
    return _quantile(values, 0.5)


def _changes_of(course: _Course, place: int, row: Floats, may_shift: bool) -> list[HistoryChange]:
    """Returns the changes of a series, made in its row: the largest level shift, or its outliers."""
    values, level = course.values[place], course.level[place]
    outliers, shifts, done = list[slice](), list[tuple[float, int]](), 0
    for first in np.flatnonzero(course.far[place]).tolist():
        if first < done:
            continue
        last = _came_back(values, first, level[first])
        if last is None and (~np.isnan(row[first:])).sum() < _ENOUGH:
            last = len(values)
        if last is not None and not course.lasting[place]:
            outliers.append(slice(first, last))
            done = last
            continue
        done = first + _WIDTH
        size = _size_of_shift(values, first)
        if abs(size) > _MOVE * course.move[place]:
            shifts.append((abs(size), first))
    if shifts and may_shift:
        _, first = max(shifts)
        return [HistoryChange(place, first, -1, *_moved(row, course.season[place], first))]
    observed = int((~np.isnan(row)).sum())
    if len(outliers) > max(3, _OFTEN * observed):
        return []
    expected = level + course.season[place]
    changes = [
        HistoryChange(place, one.start, one.stop, row[one.start], expected[one.start])
        for one in outliers
    ]
    for one in outliers:
        around = level[one.start] + course.season[place, one]
        row[one] = np.where(np.isnan(row[one]), np.nan, around)
    return changes


def _came_back(values: Floats, first: int, level: float) -> int | None:
    """Returns the step at which values are again nearer to a level than half of the way; None = they are not."""
    half = abs(values[first] - level) / 2
    for step in range(first + 1, min(first + _LONGEST + 1, len(values))):
        next_ones = np.median(values[step : step + 3])
        if abs(values[step] - level) < half and abs(next_ones - level) < half:
            return step
    return None


def _size_of_shift(values: Floats, first: int) -> float:
    """Returns the difference of the levels before and from a step on; 0 where a single shift explains little."""
    seen = values[~np.isnan(values)]
    first -= len(values) - len(seen)
    side = min(_SIDE, len(seen) - first, first)
    if side < _ENOUGH:
        return 0.0
    size = float(np.median(seen[first : first + side]) - np.median(seen[first - side : first]))
    moved = seen.copy()
    moved[:first] += size
    variance, left = (np.mean((one - np.median(one)) ** 2) for one in (seen, moved))
    return size if left < _UNEXPLAINED * variance else 0.0


def _moved(row: Floats, season: Floats, first: int) -> tuple[float, float, float]:
    """Moves what lies before a step to the level from there on, and to its scatter where a unit changed.

    Returns:
        The new level, the one before, and the factor of the scatter.
    """

    def sides(values: Floats, most: int) -> list[Floats]:
        count = min(most, len(row) - first, first)
        return [values[first : first + count], values[first - count : first]]

    after, before = (float(np.nanmedian(side)) for side in sides(row - season, _SIDE))
    factor = 1.0
    whole = sides(row, _SCATTER_SIDE)
    if len(whole[0]) >= 2 * _WIDTH:
        scatter = [float(np.nanmedian(np.abs(side - np.nanmedian(side)))) for side in whole]
        ratio = scatter[0] / scatter[1] if min(scatter) > 0 else 1.0
        if not 1 / _SCATTER < ratio < _SCATTER:
            factor = ratio
            after, before = (float(np.nanmedian(side)) for side in sides(row, _SIDE))
    row[:first] = after + (row[:first] - before) * factor
    return after, before, factor
