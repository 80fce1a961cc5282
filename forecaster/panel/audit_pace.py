"""Rules about time within a series: gaps, another step than the panel's, a step that changes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from forecaster.panel.audit_facts import Facts
from forecaster.panel.findings import Finding

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_GAPPY = 0.2
"""Share of missing steps beyond which a series is called gappy."""
_SHARE = 0.6
"""Of the distances between rows that a step has to explain."""
_LEAST = 5
"""Distances needed to speak of a step."""


def steps(facts: Facts) -> Iterator[Finding]:
    """Series with another step than the panel's or a step that changes, and gaps in all others."""
    series, early, late = _steps(facts)
    yield from _other_step(facts, series, early, late)
    yield from _gaps(facts, series)


def _other_step(facts: Facts, series: Ints, early: Floats, late: Floats) -> Iterator[Finding]:
    panel, freq = facts.panel, facts.panel.calendar.freq
    coarse = np.flatnonzero((early == late) & (early != 1))
    if len(coarse):
        first = coarse[0]
        yield Finding(
            "warning",
            "frequency",
            f"{len(coarse):,} of {panel.n_series:,} series have another step than {freq} (the first: "
            f"about {early[first]:g} times as long)",
            "forecast them apart, each table with its own --freq",
            series=panel.labels[series[first]],
            where=facts.at(int(facts.start[series[first]])),
            count=len(coarse),
        )
    drift = np.flatnonzero(early != late)
    if len(drift):
        first = drift[0]
        yield Finding(
            "warning",
            "frequency",
            f"the step of {len(drift):,} of {panel.n_series:,} series changes (the first: from about "
            f"{early[first]:g} to {late[first]:g} times {freq})",
            "cut off the older rows, or bring all rows to the longer step and say it with --freq",
            series=panel.labels[series[drift[0]]],
            where=facts.at(int(facts.start[series[first]])),
            count=len(drift),
        )


def _gaps(facts: Facts, apart: Ints) -> Iterator[Finding]:
    panel, channels = facts.panel, facts.panel.n_channels
    if not panel.regular:
        return
    missing = facts.missing[:, :channels].copy()
    missing[apart] = 0
    if not missing.any():
        return
    longest = np.where(missing > 0, facts.longest[:, :channels], 0)
    series, channel = np.unravel_index(int(longest.argmax()), longest.shape)
    number = int((facts.gaps[:, :channels] * (missing > 0)).sum())
    share = missing / np.maximum(missing + facts.count[:, :channels], 1)
    gappy = int((share > _GAPPY).any(axis=1).sum())
    total = int(missing.sum())
    cells = total + int(facts.count[:, :channels].sum())
    text = (
        f"{total:,} steps without a target ({_percent(total / cells)}) in {number:,} gaps, the longest "
        f"of {int(longest.max()):,} steps"
    )
    if gappy:
        text += f"; {gappy:,} of {panel.n_series:,} series miss more than {_GAPPY:.0%} of theirs"
    yield Finding(
        "warning" if gappy else "note",
        "gaps",
        text,
        "gaps are masked, at their true place; where a value holds until the next one, pass "
        "--on-gaps forward-fill",
        series=panel.labels[series],
        where=f"from {facts.at(int(facts.longest_at[series, channel]))}",
        count=total,
    )


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 else "less than 0.1%"


def _steps(facts: Facts) -> tuple[Ints, Floats, Floats]:
    """Returns series whose rows keep another step than the panel's, and it early and late.

    Returns:
        int64 [n] series; float64 [n] steps of the first and of the last quarter of their rows, as
        multiples of the panel's.
    """
    panel = facts.panel
    span = np.where(facts.cutoff < 0, 0, facts.cutoff - facts.start + 1)
    count = facts.count[:, : panel.n_channels].max(axis=1, initial=0)
    likely = np.flatnonzero(count > 4 * _LEAST)
    if panel.regular:
        # A step of two in a quarter of the rows leaves out a fifth of the steps.
        likely = likely[(span >= 1.2 * count)[likely]]
    found = [_kept_steps(facts, *block) for block in facts.blocks(likely)]
    if not found:
        return likely, np.zeros(0), np.zeros(0)
    series, early, late = (np.concatenate(part) for part in zip(*found, strict=True))
    return series, early, late


def _kept_steps(facts: Facts, series: Ints, rows: Ints, owner: Ints) -> tuple[Ints, Floats, Floats]:
    panel = facts.panel
    targets = panel.values[rows, : panel.n_channels]
    observed = (targets == targets).any(axis=1)
    rows, owner = rows[observed], owner[observed]
    inside = owner[1:] == owner[:-1]
    if panel.regular:
        distance = np.diff(rows)[inside].astype(np.float64)
    else:
        distance = np.diff(panel.time[rows])[inside] / panel.calendar.step
    owner = owner[1:][inside]
    ptr = np.searchsorted(owner, np.arange(len(series) + 1))
    quarter = (np.arange(len(owner)) - ptr[owner]) * 4 // np.diff(ptr)[owner]
    group = 4 * owner + quarter
    # Most quarters keep the panel's step often enough that no other one can prevail.
    kept = np.bincount(group[_kinds(distance) == 0], minlength=4 * len(series))
    total = np.bincount(group, minlength=4 * len(series))
    unsure = (kept <= (1 - _SHARE) * total)[group]
    modes = _modes(distance[unsure], group[unsure], total)
    early, late = modes[0::4], modes[3::4]
    other = (early > 0) & (late > 0) & ((early != 1) | (late != 1))
    return series[other], early[other], late[other]


def _kinds(distance: Floats) -> Ints:
    """Returns a number that distances within a tenth of each other share: months vary in length."""
    return np.asarray(np.rint(8 * np.log2(distance)), np.int64)


def _modes(distance: Floats, group: Ints, total: Ints) -> Floats:
    """Returns the distance that most of each group share; 1 for groups left out, 0 = there is none.

    Args:
        distance: between rows, in steps.
        group: of each distance.
        total: distances of each group.
    """
    result = np.ones(len(total))
    result[group] = 0
    if len(group):
        kind = _kinds(distance)
        order = np.lexsort((distance, kind, group))
        kind, group, distance = kind[order], group[order], distance[order]
        new = np.flatnonzero(np.r_[True, (kind[1:] != kind[:-1]) | (group[1:] != group[:-1])])
        length = np.diff(np.append(new, len(kind)))
        enough = (length >= _SHARE * total[group[new]]) & (total[group[new]] >= _LEAST)
        median = distance[new + length // 2]
        result[group[new][enough]] = np.where(kind[new] == 0, 1, np.round(median, 3))[enough]
    return result
