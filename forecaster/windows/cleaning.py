"""A panel without outliers, its series at their last level; and findings on what is changed so.

What effects explain is no outlier: they are taken out before, and put back after.

Axes: S series · T step · C channel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from forecaster.config import Plan
from forecaster.errors import number_of
from forecaster.panel.arrays import Floats, Ints, empty_beside
from forecaster.panel.findings import Finding
from forecaster.panel.outliers import HistoryChange, cleaned
from forecaster.panel.panel import Panel
from forecaster.windows.effects import Effects, without_effects

_MOST_ROWS = 1 << 14
"""Of a series, its last ones."""
_CELLS = 1 << 18  # read at a time


class _Block(NamedTuple):
    """Changed histories of series of about the same length, in one channel."""

    channel: int
    rows: Ints
    """[S, T] of the panel."""
    values: Floats
    """[S, T] what is changed, data units; NaN = as it was."""
    changes: list[HistoryChange]


def training_panel(panel: Panel, plan: Plan, end: int, effects: Effects | None) -> Panel:
    """Returns what is learned from: no effects of covariates, and no outliers up to a time."""
    panel = without_effects(panel, effects)
    values = None
    for block in _cleaned(
        panel, panel.rows_until(end), plan.model.pool.seasons[0], effects, _MOST_ROWS
    ):
        if values is None:
            values = empty_beside(panel.values, panel.values.shape, np.float64)
            values[:] = panel.values
        changed = ~np.isnan(block.values)
        values[block.rows[changed], block.channel] = block.values[changed]
    return panel if values is None else replace(panel, values=values)


def outliers_found(
    panel: Panel, end: Ints, season: int, effects: Effects | None = None, most: int = _MOST_ROWS
) -> list[Finding]:
    """Returns findings on the outliers and level shifts of histories.

    Args:
        panel: any panel.
        end: [series] the row after the last of each history.
        season: steps; 1 = none.
        effects: of a model; None: what they would explain is an outlier, too.
        most: rows of a history.
    """
    panel = without_effects(panel, effects)
    found = _found(panel, end, season, None, most)
    if found and effects is not None and effects.calendar:
        # They only explain: it is enough to read them where there is something to explain.
        some = np.unique(panel.series_at([one.row for one in found]))
        left = end[some] - panel.indptr[some]
        panel = panel.some(some)
        found = _found(panel, panel.indptr[:-1] + left, season, effects, most)
    outliers = [one for one in found if one.cells]
    shifts = [one for one in found if not one.cells]
    findings = list[Finding]()
    if outliers:
        count = number_of(sum(one.cells for one in outliers), "outlier")
        text = f"far from the values around, and left out of histories: {count}"
        advice = "correct them, or declare the covariate or the holidays that explain them"
        findings.append(_finding(panel, "outlier", text, advice, outliers))
    if shifts:
        text = f"histories are moved to the level after {number_of(len(shifts), 'level shift')}"
        advice = "if the unit changed, bring all rows to one unit"
        findings.append(_finding(panel, "level-shift", text, advice, shifts))
    return findings


class _Found(NamedTuple):
    """What a finding says of outliers in a row, or of a level shift."""

    row: int
    """Of the panel, the first."""
    cells: int
    """Outliers; 0 = a level shift."""
    value: float
    """That of the first outlier, or the new level; data units."""
    level: float
    """That was expected of it, or the one before."""


def _found(panel: Panel, end: Ints, season: int, effects: Effects | None, most: int) -> list[_Found]:
    found = []
    for block in _cleaned(panel, end, season, effects, most):
        for one in block.changes:
            row = int(block.rows[one.series, one.first])
            if one.is_shift:
                found.append(_Found(row, 0, one.value, one.level))
            else:  # with the effects of the calendar
                value, level = panel.values[row, block.channel], block.values[one.series, one.first]
                found.append(_Found(row, one.last - one.first, float(value), float(level)))
    return found


def _finding(panel: Panel, rule: str, text: str, advice: str, found: Sequence[_Found]) -> Finding:
    """Returns a finding whose place is the first row that is changed, with its value and the level before."""
    first = min(found)
    time, name = panel.text_at(first.row), panel.name_at(first.row)
    where = f"{time}: {first.value:,.6g} after a level of {first.level:,.6g}"
    return Finding("note", rule, text, advice, name, where, len(found))


def _cleaned(
    panel: Panel, end: Ints, season: int, effects: Effects | None, most: int
) -> Iterator[_Block]:
    """Yields the changed histories before some rows [series]."""
    calendar = None if effects is None else effects.of_remainder(panel.calendar)
    effect = None if calendar is None else calendar.of_calendar(panel)
    for rows in _blocks(panel.indptr, end, most):
        seen = rows >= 0
        places = np.where(seen, rows, 0)
        for channel in range(panel.n_channels):
            cells = np.where(seen, panel.values[places, channel], np.nan)
            factor, shift = np.ones(()), np.zeros(())
            if calendar is not None and effect is not None:
                of_cells = effect[places, channel]
                multiplies = bool(calendar.multiplies[channel])
                factor, shift = (np.exp(of_cells), shift) if multiplies else (factor, of_cells)
            remainder = cells / factor - shift
            plain, changes = cleaned(remainder, season)
            if changes:
                values = np.where(plain == remainder, np.nan, (plain + shift) * factor)
                yield _Block(channel, rows, values, changes)


def _blocks(indptr: Ints, end: Ints, most: int) -> Iterator[Ints]:
    """Yields the last rows [S, T] of series of about the same length; −1 before the first."""
    count = np.minimum(end - indptr[:-1], most)
    order = np.argsort(-count, kind="stable")
    order = order[count[order] > 0]
    while len(order):
        longest = int(count[order[0]])
        some, order = np.split(order, [max(1, _CELLS // longest)])
        rows = end[some, None] - np.arange(longest, 0, -1)
        yield np.where(rows >= indptr[some, None], rows, -1)
