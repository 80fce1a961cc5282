"""Rules about single series: those without values, too short, constant, stuck, or ended long ago."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from forecaster.panel.audit_facts import Facts, segments
from forecaster.panel.findings import Finding

Ints = NDArray[np.int64]

_STUCK_ROWS = 20
_STUCK_SEASONS = 2
"""A value that holds for fewer steps than these at the end is nothing odd."""
_STUCK_ODDS = 1000
"""Against a run of that length by chance in any of the series."""
_ENDED_SEASONS = 3
_ENDED_SHARE = 0.25
"""A series has ended where the others go on for these seasons and this share of the table's span."""


def unobserved(facts: Facts) -> Iterator[Finding]:
    """Series without any target: an error where there is no other."""
    panel, bad = facts.panel, np.flatnonzero(facts.cutoff < 0)
    if len(bad):
        none = len(bad) == panel.n_series
        names = ", ".join(panel.schema.target)
        yield Finding(
            "error" if none else "warning",
            "unobserved",
            f"{panel.name}: expected values of {names}, found none in any of {len(bad):,} series"
            if none
            else f"{len(bad):,} of {panel.n_series:,} series have no observed target",
            "fill them in, or pass another --target"
            if none
            else "drop them, or fill their targets; they are returned with empty forecasts",
            series=panel.labels[bad[0]],
            where=", ".join(panel.schema.target),
            count=len(bad),
        )


def short(facts: Facts) -> Iterator[Finding]:
    """Series that hold no step to learn from before a horizon."""
    panel, horizon = facts.panel, facts.horizon
    if horizon is None:
        return
    length = np.where(facts.cutoff < 0, 0, facts.cutoff - facts.start + 1)
    bad = np.flatnonzero((length <= horizon) & (length > 0))
    if len(bad):
        yield Finding(
            "warning",
            "short",
            f"{len(bad):,} of {panel.n_series:,} series have no more steps than the horizon of "
            f"{horizon}: none is left to learn from",
            "they are forecast from what they have, by what the others teach; a smaller --horizon "
            "learns from them too",
            series=panel.labels[bad[0]],
            where=f"{length[bad[0]]} steps",
            count=len(bad),
        )


def constant(facts: Facts) -> Iterator[Finding]:
    """Series that never change."""
    for channel, name in enumerate(facts.panel.schema.target):
        low, high = facts.low[:, channel], facts.high[:, channel]
        bad = np.flatnonzero((facts.count[:, channel] > 1) & (low == high))
        if len(bad):
            yield Finding(
                "warning",
                "constant",
                f"{len(bad):,} of {facts.panel.n_series:,} series never change in '{name}' (the first "
                f"holds {low[bad[0]]:g})",
                "leave them out if they are not meant to be forecast",
                series=facts.panel.labels[bad[0]],
                where=name,
                count=len(bad),
            )


def stuck(facts: Facts) -> Iterator[Finding]:
    """Series whose last value holds for longer than chance allows: a meter that died."""
    panel = facts.panel
    least = max(_STUCK_ROWS, _STUCK_SEASONS * panel.calendar.season_length)
    for channel, name in enumerate(panel.schema.target):
        count, run = facts.count[:, channel], facts.run[:, channel]
        likely = np.flatnonzero((run >= least) & (run * 10 >= count) & (run < count))
        parts = [_stuck_rows(facts, *block, channel) for block in facts.blocks(likely)]
        rows = np.concatenate(parts or [likely])
        if len(rows):
            series = int(np.searchsorted(panel.indptr, rows[0], side="right") - 1)
            yield Finding(
                "warning",
                "stuck",
                f"{len(rows):,} of {panel.n_series:,} series hold one value at their end in '{name}' "
                f"for much longer than before (the first {panel.values[rows[0], channel]:g} for "
                f"{run[series]:,} steps)",
                "empty these cells if the values are not real; then the forecast starts before them",
                series=panel.labels[series],
                where=f"from {facts.at(int(rows[0]))}",
                count=len(rows),
            )


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


def ended(facts: Facts) -> Iterator[Finding]:
    """Series that end long before the others."""
    panel, seen = facts.panel, np.flatnonzero(facts.cutoff >= 0)
    if len(seen) < 2:
        return
    step = panel.calendar.step
    ends, begins = panel.time[facts.cutoff[seen]], panel.time[facts.start[seen]]
    behind = (ends.max() - ends) / step
    span = (ends.max() - begins.min()) / step
    bad = behind >= max(_ENDED_SEASONS * panel.calendar.season_length, _ENDED_SHARE * span, 1)
    if bad.any():
        first = int(seen[bad][0])
        yield Finding(
            "warning",
            "ended",
            f"{int(bad.sum()):,} of {panel.n_series:,} series end long before the others (up to "
            f"{behind.max():,.0f} steps)",
            "leave them out if they are closed; otherwise each is forecast from its own end",
            series=panel.labels[first],
            where=f"ends {facts.at(int(facts.cutoff[first]))}",
            count=int(bad.sum()),
        )


def ends(facts: Facts) -> Iterator[Finding]:
    """Series that end on different dates."""
    panel, seen = facts.panel, np.flatnonzero(facts.cutoff >= 0)
    if not len(seen):
        return
    times, text = panel.time[facts.cutoff[seen]], panel.calendar.text
    bad = np.flatnonzero(times < times.max())
    if len(bad):
        yield Finding(
            "note",
            "ends",
            f"{len(bad):,} of {panel.n_series:,} series end before {text(int(times.max()))}",
            "each is forecast from its own end; pass --cutoff last for one date",
            series=panel.labels[seen[bad[0]]],
            where=f"{text(int(times.min()))} to {text(int(times.max()))}",
            count=len(bad),
        )
