"""Rules about the level of values: another unit, another sign, counts below zero, bounds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from forecaster.panel.audit_facts import Facts, segments
from forecaster.panel.findings import Finding

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_OUTLIER = 1e5
"""Times the level of the median series (or its inverse) beyond which a series is of another kind."""
_NEGATIVE_SHARE = 0.02
"""Of whole numbers; where more are negative, they are no counts."""
_NEAR_ZERO = 0.05
"""Of the span of a series: as close to zero they look bounded by it."""
_SIDE = 8
"""Observations on either side of a jump: fewer are an outlier or an onset, not a new level."""
_JUMP, _APART = np.log2(300.0), np.log2(30.0)
"""Ratio of the levels on both sides of a change of unit, and of the nearest values."""
_FLIP_STEPS = 4
"""Times the largest other step that a flip of the sign steps."""


def outlier_scale(facts: Facts) -> Iterator[Finding]:
    """Series whose level is far from that of the others: often another unit."""
    for channel, name in enumerate(facts.panel.schema.target):
        size = facts.size[:, channel]
        real = np.flatnonzero(size > 0)
        if len(real) < 2:
            continue
        median = np.sort(size[real])[(len(real) - 1) // 2]
        ratio = size[real] / median
        bad = real[(ratio >= _OUTLIER) | (ratio <= 1 / _OUTLIER)]
        if len(bad):
            times = size[bad[0]] / median
            yield Finding(
                "warning",
                "scale",
                f"{len(bad):,} of {facts.panel.n_series:,} series are of another scale in '{name}' "
                f"(the first is {times:.1g} times the median series)",
                "check their unit; each series is scaled on its own, so they are forecast all the same",
                series=facts.panel.labels[bad[0]],
                where=name,
                count=len(bad),
            )


def bounds(facts: Facts) -> Iterator[Finding]:
    """Targets that forecasts can be held to: none below zero, all of them whole numbers."""
    panel = facts.panel
    targets = slice(panel.n_channels)
    low, high = facts.low[:, targets], facts.high[:, targets]
    if not np.isfinite(low).any():
        return
    span = high - low
    whole = facts.whole[targets].all() and np.nanmax(span) > 0
    found = {}
    # Where zero is far below all values of a series no forecast comes near it.
    if np.nanmin(low) >= 0 and (low <= (1 if whole else _NEAR_ZERO) * span).any():
        found["lower: 0"] = "0 or more"
    if whole:
        found["integer: true"] = "whole numbers"
    if found:
        names, count = ", ".join(panel.schema.target), int(facts.count[:, targets].sum())
        yield Finding(
            "note",
            "bounds",
            f"all {count:,} values of {names} are {' and '.join(found.values())}",
            f"if they must be, 'target: {{{', '.join(found)}}}' in the config holds forecasts to that",
            where=names,
            count=count,
        )


def negative_counts(facts: Facts) -> Iterator[Finding]:
    """Counts of which a few are negative."""
    panel = facts.panel
    for channel, name in enumerate(panel.schema.target):
        negative = facts.negative[:, channel]
        count, cells = int(negative.sum()), int(facts.count[:, channel].sum())
        if facts.whole[channel] and 0 < count <= _NEGATIVE_SHARE * cells:
            series = int(np.flatnonzero(negative)[0])
            rows = slice(panel.indptr[series], panel.indptr[series + 1])
            row = int(panel.indptr[series] + np.flatnonzero(panel.values[rows, channel] < 0)[0])
            yield Finding(
                "warning",
                "negative",
                f"'{name}' holds whole numbers, and {count:,} of {cells:,} are negative (the first is "
                f"{panel.values[row, channel]:g})",
                "empty these cells if they are no counts; keep them if they are returns or the like",
                series=panel.labels[series],
                where=facts.at(row),
                count=count,
            )


def jumps(facts: Facts) -> Iterator[Finding]:
    """Series whose unit or sign changes at a row and stays changed."""
    for channel, name in enumerate(facts.panel.schema.target):
        series = np.flatnonzero(facts.count[:, channel] >= 2 * _SIDE)
        if len(series):
            head, tail = _ends(facts, series, channel)
            yield from _shifts(facts, series[_apart(head, tail)], channel, name)
            yield from _flips(facts, series[_opposite(head, tail)], channel, name)


def _shifts(facts: Facts, likely: Ints, channel: int, name: str) -> Iterator[Finding]:
    """Series whose level changes by a factor of hundreds: often a change of unit."""
    found = [_level_shifts(*block) for block in _blocks(facts, likely, channel)]
    rows = np.concatenate([part[0] for part in found] or [likely])
    if len(rows):
        ratio = float(f"{np.concatenate([part[1] for part in found])[0]:.1g}")
        yield Finding(
            "warning",
            "jump",
            f"the level of {len(rows):,} of {facts.panel.n_series:,} series in '{name}' changes by a "
            f"factor of about {ratio:,.0f} and stays there",
            "if the unit changed, bring all rows to one unit",
            series=facts.label_at(int(rows[0])),
            where=facts.at(int(rows[0])),
            count=len(rows),
        )


def _flips(facts: Facts, likely: Ints, channel: int, name: str) -> Iterator[Finding]:
    """Series whose sign flips with a leap: often a change of convention."""
    found = [_flipped_rows(*block) for block in _blocks(facts, likely, channel)]
    rows = np.concatenate(found or [likely])
    if len(rows):
        yield Finding(
            "warning",
            "jump",
            f"the sign of {len(rows):,} of {facts.panel.n_series:,} series in '{name}' flips and stays "
            "flipped",
            "if the convention changed, bring all rows to one sign",
            series=facts.label_at(int(rows[0])),
            where=facts.at(int(rows[0])),
            count=len(rows),
        )


def _ends(facts: Facts, series: Ints, channel: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns the first and last values of series [series, _SIDE]; NaN where missing."""
    values, steps = facts.panel.values[:, channel], np.arange(_SIDE)
    head = values[facts.first[series, channel, None] + steps]
    return head, values[facts.last[series, channel, None] - steps]


def _apart(head: NDArray[np.float32], tail: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Returns [series] whether the ends lie on levels far from each other."""
    low, high = _bounds(np.abs(head)), _bounds(np.abs(tail))
    return np.asarray(np.maximum(high[0] - low[1], low[0] - high[1]) >= _APART)


def _opposite(head: NDArray[np.float32], tail: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Returns [series] whether all values are above zero at one end and below at the other."""
    rises = ~(head >= 0).any(axis=1) & ~(tail <= 0).any(axis=1)
    falls = ~(head <= 0).any(axis=1) & ~(tail >= 0).any(axis=1)
    return np.asarray(rises | falls)


def _bounds(size: NDArray[np.float32]) -> tuple[Floats, Floats]:
    """Returns log2 of the smallest and largest positive value of each row; rows without any: 0, 0."""
    positive = size > 0
    none = ~positive.any(axis=1)
    low = np.log2(np.where(positive, size, np.inf).min(axis=1, initial=np.inf))
    high = np.log2(np.where(positive, size, 1e-45).max(axis=1, initial=1e-45))
    return np.where(none, 0, low), np.where(none, 0, high)


def _blocks(facts: Facts, series: Ints, channel: int) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Yields rows of some series that hold a value other than 0, which series, and the values."""
    for _, rows, number in facts.blocks(series):
        values = facts.panel.values[rows, channel].astype(np.float64)
        real = (values == values) & (values != 0)
        yield rows[real], number[real], values[real]


def _level_shifts(rows: Ints, number: Ints, values: Floats) -> tuple[Ints, Floats]:
    """Returns the first row after each shift of level, and the ratio of the levels."""
    size, far = np.abs(values), 2**_APART
    leap = (size[1:] > far * size[:-1]) | (size[:-1] > far * size[1:])
    leaps = np.unique(number[1:][leap & (number[1:] == number[:-1])])
    some = np.isin(number, leaps)
    if not some.any():
        return rows[:0], size[:0]
    rows, level = rows[some], np.log2(size[some])
    number = np.searchsorted(leaps, number[some])
    # Far apart, so that running extremes of one series never reach into the next.
    far = 1024.0 * number
    highest = np.maximum.accumulate(level + far) - far
    lowest = np.minimum.accumulate(level - far) + far
    coming_low = np.minimum.accumulate((level + far)[::-1])[::-1] - far
    coming_high = np.maximum.accumulate((level - far)[::-1])[::-1] + far
    ptr = np.searchsorted(number, np.arange(number[-1] + 2))
    before = np.arange(len(rows)) - ptr[number] + 1
    after = ptr[number + 1] - ptr[number] - before
    sums = np.concatenate(([0.0], np.cumsum(level)))
    mean = (sums[1:] - sums[ptr[number]]) / before
    coming_mean = (sums[ptr[number + 1]] - sums[1:]) / np.maximum(after, 1)
    apart = np.full(len(rows), -np.inf)
    apart[:-1] = np.maximum(coming_low[1:] - highest[:-1], lowest[:-1] - coming_high[1:])
    apart[(before < _SIDE) | (after < _SIDE) | (np.abs(coming_mean - mean) < _JUMP)] = -np.inf
    found = np.flatnonzero(apart >= _APART)
    _, first = np.unique(number[found], return_index=True)
    at = found[first]
    return rows[at + 1], 2.0 ** np.abs(coming_mean - mean)[at]


def _flipped_rows(rows: Ints, number: Ints, values: Floats) -> Ints:
    """Returns the first row after each flip, for series with a single change of sign, and a leap."""
    inside = number[1:] == number[:-1]
    step = np.where(inside, np.abs(np.diff(values)), 0)
    at = np.flatnonzero(inside & (values[1:] * values[:-1] < 0))
    which, first, changes = np.unique(number[at], return_index=True, return_counts=True)
    leap = step[at[first]]
    step[at] = 0
    ptr = np.searchsorted(number[1:], np.arange(number[-1] + 2))
    others = segments(np.maximum, step, ptr, 0)[which]
    found: Ints = at[first[(changes == 1) & (leap >= _FLIP_STEPS * others)]]
    return np.asarray(rows[found + 1])
