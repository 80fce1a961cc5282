"""The audit of a panel: rules that find what is wrong or unusual, and the function that runs them.

Each rule reads the `Facts` of one pass over the panel and yields findings with severity, series, place,
count and advice. Rules that need rows again read only those of the series in doubt, or a sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from forecaster.panel.audit_facts import Facts, facts_of, segments
from forecaster.panel.findings import Finding, Severity, worst_first
from forecaster.panel.panel import Panel

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_STUCK_ROWS, _STUCK_SEASONS = 20, 2
"""Shortest run of one value at the end of a series that counts as stuck."""
_STUCK_ODDS = 1000
"""Against a run of that length by chance in any of the series."""
_ENDED_SEASONS, _ENDED_SHARE = 3, 0.25
"""A series has ended where others continue for these seasons and this share of the table's span."""
_OUTLIER = 1e5
"""Ratio to the level of the median series (or its inverse) of a series of another scale."""
_NEGATIVE_SHARE = 0.02
"""Largest share of negative values in counts; with more of them they are no counts."""
_NEAR_ZERO = 0.05
"""Share of a series' span within which its smallest value suggests a lower bound of zero."""
_SIDE = 8
"""Observations on either side of a jump: fewer are an outlier or an onset, not a new level."""
_JUMP, _NEAREST = np.log2(300.0), np.log2(30.0)
"""Ratio of the mean levels on both sides of a change of unit, and of the nearest values."""
_FLIP = 4
"""Size of the step of a flipped sign, relative to the largest other step."""
_GAPPY = 0.2
"""Share of missing steps from which a series counts as gappy."""
_STEP_SHARE, _STEP_ROWS = 0.6, 5
"""Share and number of distances between rows that establish a step."""
_SAMPLE_SERIES, _SAMPLE_ROWS = 16, 1024
"""The sample in which columns are compared."""
_LEAST_PAIRS = 20
"""Changes needed to compare two columns."""
_COPY = 0.9995
"""Correlation of row-to-row changes from which two columns are the same up to a scale."""
_MOST_LAGS = 48
_SHOWN = 5
"""Names listed in a message."""


def check_panel(panel: Panel, horizon: int | None = None) -> list[Finding]:
    """Returns the findings on a panel, worst first, including those made while it was built.

    Args:
        panel: any panel.
        horizon: steps that will be forecast; None skips rules that depend on it.
    """
    facts = facts_of(panel, horizon)
    return worst_first([*panel.notes, *(finding for rule in RULES for finding in rule(facts))])


def _on_series(
    facts: Facts, severity: Severity, rule: str, bad: Ints, text: str, advice: str, where: str
) -> Finding:
    """Returns a finding about some series; SOME in the text becomes "2 of 9 series"."""
    some = f"{len(bad):,} of {facts.panel.n_series:,} series"
    series = facts.panel.labels[bad[0]]
    return Finding(severity, rule, text.replace("SOME", some), advice, series, where, len(bad))


# Targets of single series


def _unobserved(facts: Facts) -> Iterator[Finding]:
    bad, names = np.flatnonzero(facts.cutoff < 0), ", ".join(facts.panel.schema.target)
    if len(bad) == facts.panel.n_series:
        text = (
            f"{facts.panel.name}: expected values of {names}, found none in any of {len(bad):,} series"
        )
        advice = "fill them in, or pass another --target"
        yield _on_series(facts, "error", "unobserved", bad, text, advice, names)
    elif len(bad):
        text = "SOME have no observed target"
        advice = "drop them, or fill their targets; they are returned with empty forecasts"
        yield _on_series(facts, "warning", "unobserved", bad, text, advice, names)


def _short(facts: Facts) -> Iterator[Finding]:
    if facts.horizon is None:
        return
    length = np.where(facts.cutoff < 0, 0, facts.cutoff - facts.start + 1)
    bad = np.flatnonzero((length <= facts.horizon) & (length > 0))
    if len(bad):
        text = (
            f"SOME have no more steps than the horizon of {facts.horizon}: none is left to learn from"
        )
        advice = (
            "they are forecast with what the model learns from the others; a smaller --horizon learns "
            "from them too"
        )
        where = f"{length[bad[0]]} steps"
        yield _on_series(facts, "warning", "short", bad, text, advice, where)


def _constant(facts: Facts) -> Iterator[Finding]:
    for channel, name in enumerate(facts.panel.schema.target):
        low, high = facts.low[:, channel], facts.high[:, channel]
        bad = np.flatnonzero((facts.count[:, channel] > 1) & (low == high))
        if len(bad):
            text = f"SOME never change in '{name}' (the first holds {low[bad[0]]:g})"
            advice = "leave them out if they are not meant to be forecast"
            yield _on_series(facts, "warning", "constant", bad, text, advice, name)


def _stuck(facts: Facts) -> Iterator[Finding]:
    """Series whose last value holds for longer than chance allows: a meter that died."""
    panel = facts.panel
    least = max(_STUCK_ROWS, _STUCK_SEASONS * panel.calendar.season_length)
    for channel, name in enumerate(panel.schema.target):
        count, run = facts.count[:, channel], facts.run[:, channel]
        likely = np.flatnonzero((run >= least) & (run * 10 >= count) & (run < count))
        parts = [_stuck_rows(facts, *block, channel) for block in facts.blocks(likely)]
        rows = np.concatenate(parts or [likely])
        if len(rows):
            bad = facts.series_at(rows)
            text = (
                f"SOME hold one value at their end in '{name}' for much longer than before (the first "
                f"{panel.values[rows[0], channel]:g} for {run[bad[0]]:,} steps)"
            )
            advice = (
                "empty these cells if the values are not real; then the forecast starts before them"
            )
            where = f"from {facts.at(rows[0])}"
            yield _on_series(facts, "warning", "stuck", bad, text, advice, where)


def _stuck_rows(facts: Facts, series: Ints, rows: Ints, number: Ints, channel: int) -> Ints:
    """Returns the row from which each series is stuck, for those that are."""
    values = facts.panel.values[rows, channel]
    real = values == values
    rows, number, values = rows[real], number[real], values[real]
    ptr = np.searchsorted(number, np.arange(len(series) + 1))
    begin = ptr[1:] - facts.run[series, channel]
    # Where the value occurred before: how often did another one follow?
    same = (values == values[ptr[1:] - 1][number]) & (np.arange(len(values)) < begin[number])
    left = same & (np.append(values[1:], np.nan) != values)
    occurred, moved = (segments(np.add, part.astype(np.int64), ptr, 0) for part in (same, left))
    rate = (moved + 1) / (occurred + 2)
    surprise = -facts.run[series, channel] * np.log1p(-rate)
    return np.asarray(rows[begin[surprise >= np.log(_STUCK_ODDS * facts.panel.n_series)]])


def _ended(facts: Facts) -> Iterator[Finding]:
    """Series that end long before the others."""
    panel, seen = facts.panel, np.flatnonzero(facts.cutoff >= 0)
    if len(seen) < 2:
        return
    ends, begins = panel.time[facts.cutoff[seen]], panel.time[facts.start[seen]]
    behind = (ends.max() - ends) / panel.calendar.step
    span = (ends.max() - begins.min()) / panel.calendar.step
    late = behind >= max(_ENDED_SEASONS * panel.calendar.season_length, _ENDED_SHARE * span, 1)
    if late.any():
        bad = seen[late]
        text = f"SOME end long before the others (up to {behind.max():,.0f} steps)"
        advice = "leave them out if they are closed; otherwise each is forecast from its own end"
        where = f"ends {facts.at(facts.cutoff[bad[0]])}"
        yield _on_series(facts, "warning", "ended", bad, text, advice, where)


def _ends(facts: Facts) -> Iterator[Finding]:
    """Series that end on different dates."""
    panel, seen = facts.panel, np.flatnonzero(facts.cutoff >= 0)
    times = panel.time[facts.cutoff[seen]]
    bad = seen[times < times.max(initial=times[0] if len(times) else 0)]
    if len(bad):
        first, last = (panel.calendar.text(int(time)) for time in (times.min(), times.max()))
        text, advice = (
            f"SOME end before {last}",
            "each is forecast from its own end; pass --cutoff last",
        )
        yield _on_series(
            facts, "note", "ends", bad, text, f"{advice} for one date", f"{first} to {last}"
        )


# Levels and signs


def _outlier_scale(facts: Facts) -> Iterator[Finding]:
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
            text = f"SOME are of another scale in '{name}' (the first: {times:.1g} times the median)"
            advice = (
                "check their unit; each series is scaled on its own, so they are forecast all the same"
            )
            yield _on_series(facts, "warning", "scale", bad, text, advice, name)


def _bounds(facts: Facts) -> Iterator[Finding]:
    """Bounds that all targets keep, which forecasts can be held to."""
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
        text = f"all {count:,} values of {names} are {' and '.join(found.values())}"
        setting = f"'target: {{{', '.join(found)}}}' in the config"
        advice = f"if they must be, {setting} holds forecasts to that"
        yield Finding("note", "bounds", text, advice, where=names, count=count)


def _negative_counts(facts: Facts) -> Iterator[Finding]:
    """Counts of which a few are negative."""
    panel = facts.panel
    for channel, name in enumerate(panel.schema.target):
        negative = facts.negative[:, channel]
        count, cells = int(negative.sum()), int(facts.count[:, channel].sum())
        if facts.whole[channel] and 0 < count <= _NEGATIVE_SHARE * cells:
            series = int(np.flatnonzero(negative)[0])
            rows = slice(panel.indptr[series], panel.indptr[series + 1])
            row = int(panel.indptr[series] + np.flatnonzero(panel.values[rows, channel] < 0)[0])
            text = (
                f"'{name}' holds whole numbers, and {count:,} of {cells:,} are negative (the first is "
                f"{panel.values[row, channel]:g})"
            )
            advice = (
                "empty these cells if they are no counts; keep them if they are returns or the like"
            )
            label = panel.labels[series]
            yield Finding("warning", "negative", text, advice, label, facts.at(row), count)


def _jumps(facts: Facts) -> Iterator[Finding]:
    """Series whose unit or sign changes at a row and stays changed."""
    for channel, name in enumerate(facts.panel.schema.target):
        series = np.flatnonzero(facts.count[:, channel] >= 2 * _SIDE)
        if not len(series):
            continue
        # Extremes show cheaply which series may have changed.
        low, high = facts.low[series, channel], facts.high[series, channel]
        nearest = np.maximum(np.maximum(low, -high), 0)
        likely = series[np.maximum(np.abs(low), np.abs(high)) >= 2**_JUMP * nearest]
        found = [_level_shifts(*block) for block in _nonzero(facts, likely, channel)]
        rows = np.concatenate([part[0] for part in found] or [likely])
        if len(rows):
            ratio = float(f"{np.concatenate([part[1] for part in found])[0]:.1g}")
            text = (
                f"the level of SOME in '{name}' changes by a factor of about {ratio:,.0f} and stays so"
            )
            advice = "if the unit changed, bring all rows to one unit"
            bad, where = facts.series_at(rows), facts.at(rows[0])
            yield _on_series(facts, "warning", "jump", bad, text, advice, where)
        likely = series[(low < 0) & (high > 0)]
        flips = [_flipped_rows(*block) for block in _nonzero(facts, likely, channel)]
        rows = np.concatenate(flips or [likely])
        if len(rows):
            text = f"the sign of SOME in '{name}' flips and stays flipped"
            advice = "if the convention changed, bring all rows to one sign"
            bad, where = facts.series_at(rows), facts.at(rows[0])
            yield _on_series(facts, "warning", "jump", bad, text, advice, where)


def _nonzero(facts: Facts, series: Ints, channel: int) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Yields rows of some series that hold a value other than 0, which series, and the values."""
    for _, rows, number in facts.blocks(series):
        values = facts.panel.values[rows, channel].astype(np.float64)
        real = (values == values) & (values != 0)
        yield rows[real], number[real], values[real]


def _level_shifts(rows: Ints, number: Ints, values: Floats) -> tuple[Ints, Floats]:
    """Returns the first row after each shift of level, and the ratio of the levels."""
    size, far = np.abs(values), 2**_NEAREST
    leap = (size[1:] > far * size[:-1]) | (size[:-1] > far * size[1:])
    leaps = np.unique(number[1:][leap & (number[1:] == number[:-1])])
    some = np.isin(number, leaps)
    if not some.any():
        return rows[:0], size[:0]
    rows, level = rows[some], np.log2(size[some])
    number = np.searchsorted(leaps, number[some])
    # Far apart, so that running extremes of one series never run into the next.
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
    found = np.flatnonzero(apart >= _NEAREST)
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
    found: Ints = at[first[(changes == 1) & (leap >= _FLIP * others)]]
    return np.asarray(rows[found + 1])


# Steps and gaps


def _steps_and_gaps(facts: Facts) -> Iterator[Finding]:
    """Series whose step differs from the panel's or changes, and gaps in all others."""
    freq = facts.panel.calendar.freq
    series, early, late = _other_steps(facts)
    coarse, drift = np.flatnonzero((early == late) & (early != 1)), np.flatnonzero(early != late)
    if len(coarse):
        bad, times = series[coarse], early[coarse[0]]
        text = f"SOME have another step than {freq} (the first: about {times:g} times as long)"
        advice = "forecast them apart, each table with its own --freq"
        where = facts.at(facts.start[bad[0]])
        yield _on_series(facts, "warning", "frequency", bad, text, advice, where)
    if len(drift):
        bad, first = series[drift], drift[0]
        text = (
            f"the step of SOME changes (the first: from about {early[first]:g} to {late[first]:g} "
            f"times {freq})"
        )
        advice = "drop the older rows, or bring all rows to the longer step and pass it with --freq"
        where = facts.at(facts.start[bad[0]])
        yield _on_series(facts, "warning", "frequency", bad, text, advice, where)
    yield from _gaps(facts, series)


def _gaps(facts: Facts, other_steps: Ints) -> Iterator[Finding]:
    panel, channels = facts.panel, facts.panel.n_channels
    if not panel.regular:
        return
    missing = facts.missing[:, :channels].copy()
    missing[other_steps] = 0
    if not missing.any():
        return
    longest = np.where(missing > 0, facts.longest[:, :channels], 0)
    series, channel = np.unravel_index(int(longest.argmax()), longest.shape)
    number = int((facts.gaps[:, :channels] * (missing > 0)).sum())
    share = missing / np.maximum(missing + facts.count[:, :channels], 1)
    gappy = int((share > _GAPPY).any(axis=1).sum())
    total = int(missing.sum())
    overall = total / (total + int(facts.count[:, :channels].sum()))
    percent = f"{overall:.1%}" if overall >= 0.001 else "less than 0.1%"
    text = (
        f"{total:,} steps without a target ({percent}) in {number:,} gaps, the longest "
        f"of {int(longest.max()):,} steps"
    )
    if gappy:
        text += f"; {gappy:,} of {panel.n_series:,} series miss more than {_GAPPY:.0%} of theirs"
    advice = "nothing to do: gaps are masked, at their true place; fill cells whose value is known"
    severity: Severity = "warning" if gappy else "note"
    where = f"from {facts.at(facts.longest_at[series, channel])}"
    yield Finding(severity, "gaps", text, advice, panel.labels[series], where, total)


def _other_steps(facts: Facts) -> tuple[Ints, Floats, Floats]:
    """Returns the series with another step than the panel's, and their steps early and late.

    Returns:
        int64 [n] series; float64 [n] steps of the first and of the last quarter of their rows, as
        multiples of the panel's.
    """
    panel = facts.panel
    span = np.where(facts.cutoff < 0, 0, facts.cutoff - facts.start + 1)
    count = facts.count[:, : panel.n_channels].max(axis=1, initial=0)
    likely = np.flatnonzero(count > 4 * _STEP_ROWS)
    if panel.regular:
        # A step of two in a quarter of the rows leaves out a fifth of the steps.
        likely = likely[(span >= 1.2 * count)[likely]]
    found = [_early_and_late_steps(facts, *block) for block in facts.blocks(likely)]
    if not found:
        return likely, np.zeros(0), np.zeros(0)
    series, early, late = (np.concatenate(part) for part in zip(*found, strict=True))
    return series, early, late


def _early_and_late_steps(
    facts: Facts, series: Ints, rows: Ints, owner: Ints
) -> tuple[Ints, Floats, Floats]:
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
    kept = np.bincount(group[_rounded_log(distance) == 0], minlength=4 * len(series))
    total = np.bincount(group, minlength=4 * len(series))
    unsure = (kept <= (1 - _STEP_SHARE) * total)[group]
    steps = _prevailing(distance[unsure], group[unsure], total)
    early, late = steps[0::4], steps[3::4]
    other = (early > 0) & (late > 0) & ((early != 1) | (late != 1))
    return series[other], early[other], late[other]


def _rounded_log(distance: Floats) -> Ints:
    """Returns one number for distances within a tenth of each other: months vary in length."""
    return np.asarray(np.rint(8 * np.log2(distance)), np.int64)


def _prevailing(distance: Floats, group: Ints, total: Ints) -> Floats:
    """Returns the distance that most of each group share; 1 for groups left out, 0 = there is none.

    Args:
        distance: between rows, in steps.
        group: of each distance.
        total: distances of each group.
    """
    result = np.ones(len(total))
    result[group] = 0
    if len(group):
        kind = _rounded_log(distance)
        order = np.lexsort((distance, kind, group))
        kind, group, distance = kind[order], group[order], distance[order]
        new = np.flatnonzero(np.r_[True, (kind[1:] != kind[:-1]) | (group[1:] != group[:-1])])
        length = np.diff(np.append(new, len(kind)))
        enough = (length >= _STEP_SHARE * total[group[new]]) & (total[group[new]] >= _STEP_ROWS)
        median = distance[new + length // 2]
        result[group[new][enough]] = np.where(kind[new] == 0, 1, np.round(median, 3))[enough]
    return result


# Columns


def _empty(facts: Facts) -> Iterator[Finding]:
    """Columns without a single value."""
    if not (facts.cutoff >= 0).any():
        return
    for column in np.flatnonzero((facts.count == 0).all(axis=0)):
        name = facts.names[column]
        flag = "--target" if column < facts.panel.n_channels else "--past and --known"
        advice = f"leave it out of {flag}, or check how its cells are written"
        yield Finding("warning", "empty", f"'{name}' has no value in any row", advice, where=name)


def _edges(facts: Facts) -> Iterator[Finding]:
    """Columns that begin after their series' first target, or stop before its last one."""
    labels, total = facts.panel.labels, facts.panel.n_series
    seen = facts.cutoff >= 0
    for column, name in enumerate(facts.names):
        filled = seen & (facts.count[:, column] > 0)
        late = np.where(filled, facts.first[:, column] - facts.start, 0)
        early = np.where(filled, facts.cutoff - facts.last[:, column], 0)
        if count := int((late > 0).sum()):
            series = int(late.argmax())
            text = (
                f"'{name}' begins later than its series in {count:,} of {total:,} series, by up to "
                f"{late[series]:,} steps"
            )
            advice = "nothing to do: the cells before are masked"
            where = f"begins {facts.at(facts.first[series, column])}"
            yield Finding("note", "leading", text, advice, labels[series], where, count)
        count = int((early > 0).sum())
        if count and name not in facts.panel.schema.known:
            series = int(early.argmax())
            severity: Severity = "warning" if early[series] > 1 else "note"
            text = (
                f"'{name}' stops before the last target in {count:,} of {total:,} series, by up to "
                f"{early[series]:,} steps"
            )
            advice = "bring it up to date: a forecast is made without its latest values"
            where = f"stops {facts.at(facts.last[series, column])}"
            yield Finding(severity, "trailing", text, advice, labels[series], where, count)


def _horizon(facts: Facts) -> Iterator[Finding]:
    """Covariates known in advance that stop at the cutoff, or before the end of the horizon."""
    panel, horizon = facts.panel, facts.horizon
    seen = np.flatnonzero(facts.cutoff >= 0)
    if horizon is None or not len(seen):
        return
    # Columns of one file stop at one date, and are reported together.
    alike: dict[bytes, list[str]] = {}
    for name in panel.schema.known:
        given = facts.last[seen, facts.names.index(name)] - facts.cutoff[seen]
        alike.setdefault(np.clip(given, 0, horizon).tobytes(), []).append(name)
    for steps, names in alike.items():
        given = np.frombuffer(steps, np.int64)
        series, few = int(seen[given.argmin()]), int((given < horizon).sum())
        severity: Severity = "warning"
        if not given.any():
            severity, few = "note", len(names)
            text = f"known in advance, but not after the last target: {_listed(names)}"
            advice = "a forecast needs their values over the horizon: give them with --future FILE"
        else:
            text = (
                f"known in advance, but for fewer than {horizon} steps after the last target in "
                f"{few:,} of {panel.n_series:,} series: {_listed(names)} (the fewest: {given.min()})"
            )
            advice = "give all steps of the horizon with --future FILE, or shorten --horizon"
        if few:
            where = f"at {facts.at(facts.cutoff[series])}"
            yield Finding(severity, "horizon", text, advice, panel.labels[series], where, few)


def _leaks(facts: Facts) -> Iterator[Finding]:
    """Covariates known in advance that equal the target at a time no forecast can know."""
    schema, channels = facts.panel.schema, facts.panel.n_channels
    begin = len(schema.columns) - len(schema.known_numeric)
    if not schema.known_numeric or not facts.panel.regular:
        return
    changes = _changes(facts)
    # What lies a horizon back or more may be known; without a horizon only what has not been yet.
    oldest = min(facts.horizon - 1, _MOST_LAGS) if facts.horizon else 0
    best: dict[tuple[int, int], tuple[float, int]] = {}
    for lag in range(-_MOST_LAGS, oldest + 1):
        # A covariate that holds the target of `lag` steps ago.
        alike = _correlation(changes[:, max(lag, 0) :, begin:], changes[:, -min(lag, 0) :, :channels])
        for known, channel in np.argwhere(alike >= _COPY):
            found = (float(alike[known, channel]), lag)
            best[known, channel] = max(best.get((known, channel), found), found)
    for (known, channel), (_, lag) in best.items():
        name, target = schema.known_numeric[known], schema.target[channel]
        when = f"{abs(lag)} steps {'earlier' if lag > 0 else 'later'}" if lag else "at the same time"
        text = (
            f"'{name}' is declared known in advance, but is '{target}' {when}, up to a scale: over the "
            "horizon that is the answer itself"
        )
        yield Finding("warning", "leak", text, f"leave '{name}' out of --known", where=name)


def _twins(facts: Facts) -> Iterator[Finding]:
    """Columns that are the same up to a scale."""
    columns = facts.panel.schema.columns
    if len(columns) < 2:
        return
    changes = _changes(facts)
    known = len(columns) - len(facts.panel.schema.known_numeric)
    for one, other in np.argwhere(np.triu(_correlation(changes, changes) >= _COPY, 1)):
        if one < facts.panel.n_channels and other >= known:
            continue  # reported as a leak
        text = f"'{columns[one]}' and '{columns[other]}' are the same, up to a scale"
        advice = "leave one of them out: it adds time and no information"
        yield Finding("note", "twins", text, advice, where=columns[other])


def _unknown_categories(facts: Facts) -> Iterator[Finding]:
    """Categories that the model has not learned: they are read as "unknown"."""
    panel, schema = facts.panel, facts.panel.schema
    for names, codes, by_row in (
        (schema.code_columns, panel.codes, True),
        (schema.static_category, panel.static_codes, False),
    ):
        for column, name in enumerate(names):
            bad = np.flatnonzero(codes[:, column] == 0)
            if len(bad):
                words = panel.unmet.get(name, ())
                text = (
                    f"{len(bad):,} of {len(codes):,} {'rows' if by_row else 'series'} hold values of "
                    f"'{name}' that the model has not learned{': ' if words else ''}{_listed(words)}"
                )
                advice = "they are forecast as unknown; correct the spelling, or fit again with them"
                label = panel.labels[facts.series_at(bad)[0] if by_row else bad[0]]
                where = facts.at(bad[0]) if by_row else name
                yield Finding("warning", "unknown-category", text, advice, label, where, len(bad))


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words[:_SHOWN]) + ", ..." * (len(words) > _SHOWN)


def _changes(facts: Facts) -> Floats:
    """Returns changes from row to row of a sample, centred in each series: [series, row, column].

    NaN where a value is missing, and in columns that change by nothing but a trend.
    """
    panel = facts.panel
    length = np.diff(panel.indptr)
    longest = np.argsort(-length, kind="stable")[:_SAMPLE_SERIES]
    rows = np.minimum(int(length[longest[0]]), _SAMPLE_ROWS)
    # From the end of the observed rows: future ones hold no target.
    begin = np.maximum(panel.indptr[longest], facts.cutoff[longest] + 1 - rows)
    row = begin[:, None] + np.arange(rows)
    inside = row < panel.indptr[longest + 1][:, None]
    values = panel.values[np.where(inside, row, 0)].astype(np.float64)
    values[~inside] = np.nan
    changes = np.diff(values, axis=1)
    real = changes == changes
    count = real.sum(axis=1, keepdims=True)
    changes -= np.where(real, changes, 0).sum(axis=1, keepdims=True) / np.maximum(count, 1)
    size = np.where(values == values, np.abs(values), 0).max(axis=(0, 1), initial=0)
    changes[:, :, np.nanmax(np.abs(changes), axis=(0, 1), initial=0) <= 1e-5 * size] = np.nan
    return changes


def _correlation(one: Floats, other: Floats) -> Floats:
    """Returns the median over series of |correlation| of columns, rows counted from the first.

    Args:
        one, other: [series, row, column], centred; NaN where missing. The longer is cut.
    """
    rows = min(one.shape[1], other.shape[1])
    one, other = one[:, :rows], other[:, :rows]
    real, also = (one == one).astype(np.float64), (other == other).astype(np.float64)
    one, other = np.where(real > 0, one, 0), np.where(also > 0, other, 0)
    product = one.transpose(0, 2, 1) @ other
    power = (one**2).transpose(0, 2, 1) @ also, real.transpose(0, 2, 1) @ other**2
    usable = (real.transpose(0, 2, 1) @ also >= _LEAST_PAIRS) & (power[0] > 0) & (power[1] > 0)
    alike = np.abs(product) / np.sqrt(np.where(usable, power[0] * power[1], 1))
    alike = np.where(usable, alike, np.nan)
    alike[:, ~usable.any(axis=0)] = 0
    median: Floats = np.nanmedian(alike, axis=0)
    return median


RULES = (
    _unobserved, _short, _constant, _stuck, _ended, _outlier_scale, _jumps, _negative_counts, _bounds,
    _steps_and_gaps, _ends, _empty, _edges, _horizon, _leaks, _twins, _unknown_categories,
)  # fmt: skip
