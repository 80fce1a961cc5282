"""The audit of a panel: rules that find what is wrong or unusual, and the function that runs them.

Each rule reads the `Facts` of one pass over the panel, by blocks of series, and yields findings with
severity, series, place, count and advice. Rules that need rows again read only those of the series in
doubt, or a sample.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from forecaster.config import FitConfig, TargetConfig
from forecaster.panel.arrays import PART_CELLS, Array, Bools, Floats, Ints
from forecaster.panel.calendar import FIXED, WEEKDAYS
from forecaster.panel.findings import OTHER_STEP, Finding, Severity, listing, refuse_errors, worst_first
from forecaster.panel.panel import MISSING, Panel
from forecaster.panel.timestamps import SLOT, changed_clock, changed_days

_WHOLE = 2.0**53
"""Beyond it every float64 is a whole number."""

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
ZEROS = 0.1
"""Smallest share of zeros in a target of intermittent demand, which is never negative."""
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


_EMPTY = {
    "count": 0, "first": -1, "last": -1, "low": np.nan, "high": np.nan, "size": 0.0, "negative": 0, "zero": 0,
    "run": 0, "gaps": 0, "longest": 0, "longest_at": -1,
}  # fmt: skip
"""The statistics of a column in a series, where nothing is observed."""


@dataclass(frozen=True)
class Facts:
    """A panel and the statistics of its series: [series, column], or [series] of one target."""

    panel: Panel
    horizon: int | None
    """Steps that will be forecast, where that is known."""
    target: TargetConfig
    """Bounds that forecasts are held to."""
    count: Ints
    """Observed cells."""
    first: Ints
    """First observed row; -1 = none."""
    last: Ints
    """Last observed row; -1 = none."""
    low: Floats
    """Smallest value; NaN = none."""
    high: Floats
    """Largest value; NaN = none."""
    size: Floats
    """Mean of the absolute values; 0 = none."""
    negative: Ints
    """Cells below zero."""
    zero: Ints
    """Cells that are zero."""
    run: Ints
    """Observations at the end that are equal."""
    gaps: Ints
    """Runs of missing cells between observed ones."""
    longest: Ints
    """Length of the longest of them."""
    longest_at: Ints
    """Its first row; -1 = none."""
    whole: Bools
    """bool [column]: every value is a whole number."""
    channel: int = 0
    """Of one target."""

    def of(self, channel: int) -> Facts:
        """Returns the statistics of one target."""
        own = {name: getattr(self, name)[:, channel] for name in _EMPTY}
        return replace(self, channel=channel, **own)

    @property
    def name(self) -> str:
        """Name of the one target."""
        return self.panel.schema.target[self.channel]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return (*self.panel.schema.columns, *self.panel.schema.code_columns)

    @cached_property
    def span(self) -> Ints:
        """int64 [series]: rows from the first to the last with an observed target; 0 = none."""
        first, last = self.panel.observed_ends.T
        return np.where(last < 0, 0, last - first + 1)

    def blocks(self, series: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Yields some series in groups of bounded size, with their rows.

        Yields:
            int64 [n] numbers of series; int64 [row] all their rows; int64 [row] which of them.
        """
        length = np.diff(self.panel.indptr)[series]
        group = (np.cumsum(length) - length) // PART_CELLS
        for number in np.unique(group):
            part = series[group == number]
            begin, length = self.panel.indptr[part], np.diff(self.panel.indptr)[part]
            rows = np.repeat(begin - np.cumsum(length) + length, length) + np.arange(length.sum())
            yield part, rows, np.repeat(np.arange(len(part)), length)

    def nonzero(self, series: Ints) -> Iterator[tuple[Ints, Ints, Floats, Ints]]:
        """Yields the cells of the target in some series that are observed and not 0, in groups.

        Yields:
            int64 [n] numbers of series; int64 [cell] rows; float64 [cell] values; int64 [n] first cell of each.
        """
        for part, rows, owner in self.blocks(series):
            values = self.panel.values[rows, self.channel]
            real = np.flatnonzero((values == values) & (values != 0))
            begin = np.flatnonzero(np.diff(owner[real], prepend=-1))
            yield part[owner[real[begin]]], rows[real], values[real], begin

    def observed(self, series: np.integer[Any]) -> tuple[Ints, Floats]:
        """Returns the rows in which the target of a series is observed, and its values."""
        begin, end = self.panel.indptr[series : series + 2]
        values = self.panel.values[begin:end, self.channel]
        real = values == values
        return np.flatnonzero(real) + begin, values[real]


def facts_of(panel: Panel, horizon: int | None, target: TargetConfig) -> Facts:
    """Returns the statistics of every series and column."""
    numbers, every = panel.values.shape[1], panel.values.shape[1] + panel.codes.shape[1]
    found: dict[str, Any] = {
        name: np.full((panel.n_series, every), value) for name, value in _EMPTY.items()
    }
    whole = np.ones(every, bool)
    for begin, part in panel.parts():
        for place, column in enumerate((*part.values.T, *part.codes.T)):
            real = np.flatnonzero(column == column if place < numbers else column != MISSING)
            values, owner = column[real], part.owner[real]
            whole[place] &= bool(((values == np.rint(values)) & (np.abs(values) < _WHOLE)).all())
            start = np.flatnonzero(np.diff(owner, prepend=-1))
            statistics = _statistics(real + panel.indptr[begin], values, start)
            for name, of_series in statistics.items():
                found[name][begin + owner[start], place] = of_series
    return Facts(panel, horizon, target, **found, whole=whole)


def _statistics(rows: Ints, values: Array, start: Ints) -> dict[str, Array]:
    """Returns statistics of observed cells, as those of `Facts`: [series] each.

    Args:
        rows, values: of the cells of one series after the other.
        start: [series] its first cell.
    """
    count = np.diff(start, append=len(rows))
    end, gap = start + count, np.diff(rows, prepend=0) - 1
    gap[start] = 0
    longest = np.maximum.reduceat(gap, start)
    widest = np.flatnonzero(gap == np.repeat(longest, count))
    after = rows[widest[np.searchsorted(widest, start)]]
    changed = np.diff(values, prepend=np.nan) != 0
    changed[start] = True
    runs = np.flatnonzero(changed)
    return {
        "count": count,
        "first": rows[start],
        "last": rows[end - 1],
        "low": np.minimum.reduceat(values, start) + 0.0,  # no -0.0
        "high": np.maximum.reduceat(values, start) + 0.0,
        "size": np.add.reduceat(np.abs(values), start) / count,
        "negative": np.add.reduceat(values < 0, start, dtype=np.int64),
        "zero": np.add.reduceat(values == 0, start, dtype=np.int64),
        "run": end - runs[np.searchsorted(runs, end) - 1],
        "gaps": np.add.reduceat(gap > 0, start, dtype=np.int64),
        "longest": longest,
        "longest_at": np.where(longest > 0, after - longest, -1),
    }


def check_panel(
    panel: Panel, horizon: int | None = None, target: TargetConfig | None = None, classes: bool = False
) -> list[Finding]:
    """Returns the findings on a panel, worst first, including those made while it was built.

    Args:
        panel: any panel.
        horizon: steps that will be forecast; None skips rules that depend on it.
        target: bounds that forecasts are held to already.
        classes: whether series are to be classified, not forecast.
    """
    facts, found = facts_of(panel, horizon, target or TargetConfig()), [*panel.notes]
    classes = classes or panel.schema.label is not None
    targets = [facts.of(channel) for channel in range(panel.n_channels)]
    for rule in () if classes else TARGET_RULES:
        for target_facts in targets:
            found += rule(target_facts)
    for rule in CLASS_RULES if classes else TABLE_RULES:
        found += rule(facts)
    return worst_first(found)


def audit_panel(
    panel: Panel, horizon: int | None = None, target: TargetConfig | None = None, classes: bool = False
) -> list[Finding]:
    """Returns the findings of `check_panel`.

    Raises:
        DataError: there are errors among them; all at once.
    """
    found = check_panel(panel, horizon, target, classes)
    refuse_errors(found)
    return found


def _on_series(
    facts: Facts,
    rule: str,
    bad: Ints,
    text: str,
    advice: str,
    where: str,
    severity: Severity = "warning",
) -> Finding:
    """Returns a finding about some series; SOME in the text becomes "2 of 9 series"."""
    some = f"{len(bad):,} of {facts.panel.n_series:,} series"
    series = facts.panel.series_names[bad[0]]
    return Finding(severity, rule, text.replace("SOME", some), advice, series, where, len(bad))


# Single targets


def _constant(facts: Facts) -> Iterator[Finding]:
    low, high = facts.low, facts.high
    bad = np.flatnonzero((facts.count > 1) & (low == high))
    if len(bad):
        text = f"SOME never change in '{facts.name}' (the first holds {low[bad[0]]:g})"
        advice = "leave them out if they are not meant to be forecast"
        yield _on_series(facts, "constant", bad, text, advice, facts.name)


def _stuck(facts: Facts) -> Iterator[Finding]:
    """Series whose last value holds for longer than chance allows: a meter that died."""
    least = max(_STUCK_ROWS, _STUCK_SEASONS * facts.panel.calendar.season_length)
    count, run = facts.count, facts.run
    bad, first = [], []
    for series in np.flatnonzero((run >= least) & (run * 10 >= count) & (run < count)):
        rows, values = facts.observed(series)
        held = int(run[series])
        # Where the value occurred before: how often did another one follow?
        same = values[:-held] == values[-1]
        moved = same & (values[1 : len(same) + 1] != values[-1])
        rate = (moved.sum() + 1) / (same.sum() + 2)
        if -held * np.log1p(-rate) >= np.log(_STUCK_ODDS * facts.panel.n_series):
            bad.append(series)
            first.append((rows[-held], values[-1], held))
    if bad:
        row, value, held = first[0]
        text = (
            f"SOME hold one value at their end in '{facts.name}' for much longer than before (the first "
            f"{value:g} for {held:,} steps)"
        )
        advice = "empty these cells if the values are not real; then the forecast starts before them"
        where = f"from {facts.panel.text_at(row)}"
        yield _on_series(facts, "stuck", np.array(bad), text, advice, where)


def _outlier_scale(facts: Facts) -> Iterator[Finding]:
    """Series whose level is far from that of the others: often another unit."""
    size = facts.size
    real = np.flatnonzero(size > 0)
    if len(real) < 2:
        return
    ratio = size[real] / np.sort(size[real])[(len(real) - 1) // 2]
    far = (ratio >= _OUTLIER) | (ratio <= 1 / _OUTLIER)
    if far.any():
        times = ratio[far][0]
        text = f"SOME are of another scale in '{facts.name}' (the first: {times:.1g} times the median)"
        advice = "check their unit; each series is scaled separately, so they are still forecast"
        yield _on_series(facts, "scale", real[far], text, advice, facts.name)


def _negative_counts(facts: Facts) -> Iterator[Finding]:
    """Counts of which a few are negative."""
    negative = facts.negative
    count, cells = int(negative.sum()), int(facts.count.sum())
    if not facts.whole[facts.channel] or not 0 < count <= _NEGATIVE_SHARE * cells:
        return
    series = np.flatnonzero(negative)[0]
    rows, values = facts.observed(series)
    first = np.flatnonzero(values < 0)[0]
    text = (
        f"'{facts.name}' holds whole numbers, and {count:,} of {cells:,} are negative (the first is "
        f"{values[first]:g})"
    )
    advice = "empty these cells if this is count data; keep them if negatives are valid (returns)"
    series_name, where = facts.panel.series_names[series], facts.panel.text_at(rows[first])
    yield Finding("warning", "negative", text, advice, series_name, where, count)


def _sparse(facts: Facts) -> Iterator[Finding]:
    """Series that are mostly zero, whose medians add up to little."""
    count, zero = facts.count, facts.zero
    bad = np.flatnonzero((2 * zero >= count) & (zero < count))
    if len(bad):
        share = zero[bad[0]] / count[bad[0]]
        text = (
            f"SOME are 0 in at least half of their observed steps in '{facts.name}' (the first in {share:.0%}): "
            "there the median of a step is near 0, and medians add up to less than the demand"
        )
        advice = "plan with upper quantiles"
        if not facts.negative.any() and zero.sum() >= ZEROS * count.sum():
            advice += "; fit such series separately with --experts tsb, whose quantiles are of intermittent demand"
        yield _on_series(facts, "sparse", bad, text, advice, facts.name)


def _jumps(facts: Facts) -> Iterator[Finding]:
    """Series whose level changes by a large factor, or whose sign flips, and stays so."""
    low, high = facts.low, facts.high
    # Extremes, then the first and the last value, show cheaply which series may have changed.
    nearest = np.maximum(np.maximum(low, -high), 0)
    wide = np.maximum(np.abs(low), np.abs(high)) >= 2**_JUMP * nearest
    likely = np.flatnonzero(wide & (facts.count >= 2 * _SIDE))
    shifts, flips = list[tuple[int, int, float]](), list[tuple[int, int]]()
    for series, rows, values, begin in facts.nonzero(likely):
        end = begin + np.diff(begin, append=len(rows))
        one, other = values[begin], values[end - 1]
        for place in np.flatnonzero(np.abs(np.log2(np.abs(one / other))) >= _NEAREST):
            first, ratio = _new_level(values[begin[place] : end[place]])
            if ratio:
                shifts.append((series[place], rows[begin[place] + first], ratio))
        if ((one > 0) != (other > 0)).any():
            at = _sign_flips(values, begin)
            flips += zip(series[np.searchsorted(begin, at, "right") - 1], rows[at], strict=True)
    if shifts:
        ratio = float(f"{shifts[0][2]:.1g}")
        text = f"the level of SOME in '{facts.name}' changes by a factor of about {ratio:,.0f} and stays so"
        advice = "if the unit changed, bring all rows to one unit"
        bad = np.array([series for series, _, _ in shifts])
        yield _on_series(facts, "jump", bad, text, advice, facts.panel.text_at(shifts[0][1]))
    if flips:
        text = f"the sign of SOME in '{facts.name}' flips and stays flipped"
        advice = "if the convention changed, bring all rows to one sign"
        bad = np.array([series for series, _ in flips])
        yield _on_series(facts, "jump", bad, text, advice, facts.panel.text_at(flips[0][1]))


def _new_level(values: Floats) -> tuple[int, float]:
    """Returns the first value of a new level of a series, and the ratio of both levels; 0 = there is none.

    Args:
        values: other than 0.
    """
    level = np.log2(np.abs(values))
    ahead = level[::-1]
    rise = np.minimum.accumulate(ahead)[-2::-1] - np.maximum.accumulate(level)[:-1]
    fall = np.minimum.accumulate(level)[:-1] - np.maximum.accumulate(ahead)[-2::-1]
    before = np.arange(1, len(level))
    after = len(level) - before
    sums = np.cumsum(level)
    ratio = np.abs((sums[-1] - sums[:-1]) / after - sums[:-1] / before)
    found = (np.maximum(rise, fall) >= _NEAREST) & (np.minimum(before, after) >= _SIDE)
    first = int((found & (ratio >= _JUMP)).argmax())
    return first + 1, float(2.0 ** ratio[first]) if found[first] and ratio[first] >= _JUMP else 0.0


def _sign_flips(values: Floats, begin: Ints) -> Ints:
    """Returns the first values after a single change of sign of a series, by a large step.

    Args:
        values: of one series after the other.
        begin: [series] its first value.
    """
    step, crosses = np.abs(np.diff(values, prepend=np.nan)), np.diff(values > 0, prepend=False)
    step[begin], crosses[begin] = 0, False
    once = np.add.reduceat(crosses, begin, dtype=int) == 1
    at = np.flatnonzero(crosses & np.repeat(once, np.diff(begin, append=len(values))))
    others = np.maximum.reduceat(np.where(crosses, 0, step), begin)[once]
    return at[step[at] >= _FLIP * others]


# Ends and bounds


def _unobserved(facts: Facts) -> Iterator[Finding]:
    bad, names = np.flatnonzero(facts.span == 0), ", ".join(facts.panel.schema.target)
    if len(bad) == facts.panel.n_series:
        found = f"found none in any of {len(bad):,} series"
        text = f"{facts.panel.name}: expected values of {names}, {found}"
        advice = "fill them in, or pass another --target"
        yield _on_series(facts, "unobserved", bad, text, advice, names, "error")
    elif len(bad):
        text = "SOME have no observed target"
        advice = (
            "drop them, or fill their targets; a model of five series or more forecasts them from their "
            "statics and known covariates, with the status cold; another returns empty forecasts"
        )
        yield _on_series(facts, "unobserved", bad, text, advice, names)


def _short(facts: Facts) -> Iterator[Finding]:
    """Series too short to learn from or to be validated, and tables without a validation window."""
    horizon, span = facts.horizon, facts.span
    if horizon is None or not span.any():
        return
    longest, needed = int(span.max()), 0
    if longest > horizon:
        needed = _rows_to_validate(facts.panel, horizon)
    if needed:
        text = (
            f"no validation window fits: a horizon of {horizon:,} needs a series of {needed:,} steps up to "
            f"the end of the table, the longest has {longest:,}; nothing validates a network, so its "
            "weight is 0 %"
        )
        advice = "add history, or shorten --horizon; until then experts forecast alone"
        longest_ones = np.flatnonzero(span == longest)
        yield _on_series(facts, "short", longest_ones, text, advice, f"{longest} steps")
    advice = (
        "they are forecast with what the model learns from the others; a smaller --horizon learns from "
        "them too"
    )
    bad = np.flatnonzero((span > 0) & (span <= horizon))
    if len(bad):
        text = f"SOME have no more steps than the horizon of {horizon}: none is left to learn from"
        yield _on_series(facts, "short", bad, text, advice, f"{span[bad[0]]} steps")
    bad = np.flatnonzero((span > horizon) & (span < 2 * horizon))
    if len(bad) and not needed:
        text = (
            f"SOME have fewer steps than twice the horizon of {horizon}: too few to learn from and to "
            "validate on"
        )
        yield _on_series(facts, "short", bad, text, advice, f"{span[bad[0]]} steps")


def _rows_to_validate(panel: Panel, horizon: int) -> int:
    """Returns the rows that a series needs for a window to train and one to validate; 0: there are both.

    By default settings, as `windows.split` cuts them.
    """
    share, season = FitConfig().validation or 0.0, panel.calendar.season_length
    at, last = panel.row_at(panel.split_time(horizon, share)), panel.last_observed
    first = panel.indptr[:-1] + default_patch(season, panel.longest, horizon) - 1
    trains = np.minimum(at, last) - horizon >= first
    validates = last - horizon >= np.maximum(at, first)
    if trains.any() and validates.any():
        return 0
    # Months and weeks of business days may be shorter than a mean one.
    uneven = not panel.calendar.integer and panel.calendar.unit not in FIXED

    def fits(rows: int) -> bool:
        held = max(horizon, round(share * rows)) + uneven
        return rows - held >= default_patch(season, rows, horizon) + horizon

    return next(rows for rows in itertools.count(2 * horizon) if fits(rows))


def default_patch(season: int, longest: int, horizon: int) -> int:
    """Returns the season, or the largest part of it up to 24 steps; less where a table is short.

    A training window needs a patch of own rows before its horizon.
    """
    parts = (steps for steps in range(min(season, 24), 3, -1) if season % steps == 0)
    return min(next(parts, 8), max(1, (longest - horizon) // 3))


def _ends(facts: Facts) -> Iterator[Finding]:
    """Series that end on different dates, or long before the others."""
    panel, seen = facts.panel, np.flatnonzero(facts.span)
    if len(seen) < 2:
        return
    begins, ends = panel.time[panel.observed_ends[seen]].T
    behind = (ends.max() - ends) / panel.calendar.step
    span = (ends.max() - begins.min()) / panel.calendar.step
    late = behind >= max(_ENDED_SEASONS * panel.calendar.season_length, _ENDED_SHARE * span, 1)
    if late.any():
        bad = seen[late]
        text = f"SOME end long before the others (up to {behind.max():,.0f} steps)"
        advice = "leave them out if they are closed; otherwise each is forecast from its own end"
        where = f"ends {facts.panel.text_at(panel.last_observed[bad[0]])}"
        yield _on_series(facts, "ended", bad, text, advice, where)
    if (behind > 0).any():
        first, last = map(panel.calendar.text, (ends.min(), ends.max()))
        advice = "each is forecast from its own end; pass --cutoff last for one date"
        text, where = f"SOME end before {last}", f"{first} to {last}"
        yield _on_series(facts, "ends", seen[behind > 0], text, advice, where, "note")


def _future(facts: Facts) -> Iterator[Finding]:
    """A last observed target that lies in the future."""
    panel, calendar = facts.panel, facts.panel.calendar
    if calendar.integer or not facts.span.any():
        return
    last = panel.last_time()
    # The last day of a period lies ahead until the period is over.
    begun = calendar.shift(last, -int(bool(calendar.rows) or calendar.unit.endswith("e")))
    if begun > np.datetime64("now" if calendar.time_zone else datetime.now(), "us").astype(np.int64):
        text = f"the last value is that of {calendar.text(last)}, which lies in the future"
        advice = "check how dates are read (--time-format), or empty the cells that are no observations"
        yield Finding("warning", "in-future", text, advice, where=calendar.text(last))


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
    near = (low <= (1 if whole else _NEAR_ZERO) * span).any()
    if facts.target.lower is None and np.nanmin(low) >= 0 and near:
        found["--lower 0"] = "0 or more"
    if whole and not facts.target.integer:
        found["--integer"] = "whole numbers"
    if found:
        names, count = ", ".join(panel.schema.target), int(facts.count[:, targets].sum())
        text = f"all {count:,} values of {names} are {' and '.join(found.values())}"
        advice = f"if they must be, fit with {' '.join(found)}"
        yield Finding("note", "bounds", text, advice, where=names, count=count)


# Steps and gaps


def _steps_and_gaps(facts: Facts) -> Iterator[Finding]:
    """Series whose step differs from the panel's or changes, and gaps in all others."""
    panel, steps = facts.panel, _other_steps(facts)
    freq = panel.calendar.freq
    if not (panel.regular or panel.calendar.integer):
        text = f"rows lie on no grid: they are forecast in steps of {freq}, their usual distance"
        advice = "--resample with --agg aggregates them to the step that is named, or --freq if each has one row"
        yield Finding("note", "irregular", text, advice)
    if panel.regular and "-" in freq and panel.calendar.shortest < panel.calendar.step:
        text = f"a step is the next day or hour that has rows, {freq}: others have none"
        advice = "nothing to do where these are closed; --freq 1d or 1h forecasts all days or hours"
        yield Finding("note", "calendar", text, advice)
    yield from _closed(facts)
    coarse = pl.col("early") == pl.col("late")
    for kind, text, advice in (
        (coarse, f"SOME {OTHER_STEP} {freq} (the first: about {{0:g}} times as long)",
         "forecast them separately, each table with its own --freq"),
        (~coarse, f"the step of SOME changes (the first: from about {{0:g}} to {{1:g}} times {freq})",
         "drop the older rows, or bring all rows to the longer step and pass it with --freq"),
    ):  # fmt: skip
        if (found := steps.filter(kind)).height:
            bad, early, late = found.to_numpy().T
            where, text = (
                facts.panel.text_at(panel.first_observed[int(bad[0])]),
                text.format(early[0], late[0]),
            )
            yield _on_series(facts, "frequency", bad.astype(int), text, advice, where)
    yield from _gaps(facts, steps["series"].to_numpy())


def _closed(facts: Facts) -> Iterator[Finding]:
    """Series that hardly ever have a value on weekdays on which others have."""
    closed, calendar = facts.panel.closed, facts.panel.calendar
    if closed.any():
        days = ", ".join(WEEKDAYS[day] for day in np.flatnonzero(closed.any(axis=0)))
        text = f"SOME hardly ever have a value on some days of {calendar.freq} ({days}): these are not forecast"
        advice = "nothing to do where they are closed; --freq 1d forecasts every day of every series"
        yield _on_series(
            facts, "closed", np.flatnonzero(closed.any(axis=1)), text, advice, days, "note"
        )


def _gaps(facts: Facts, other_steps: Ints) -> Iterator[Finding]:
    panel, channels = facts.panel, facts.panel.n_channels
    count = facts.count[:, :channels]
    missing = np.where(count > 0, facts.last[:, :channels] - facts.first[:, :channels] + 1 - count, 0)
    missing[other_steps] = 0
    if not panel.regular or not missing.any():
        return
    if panel.calendar.rows and any(note.rule == "gaps" for note in panel.notes):
        return  # counted in the steps of the rows that were aggregated
    longest = np.where(missing > 0, facts.longest[:, :channels], 0)
    series, channel = np.unravel_index(int(longest.argmax()), longest.shape)
    number = int((facts.gaps[:, :channels] * (missing > 0)).sum())
    total = int(missing.sum())
    gappy = int((missing > _GAPPY * (missing + count)).any(axis=1).sum())
    overall = total / (total + int(count.sum()))
    percent = f"{overall:.1%}" if overall >= 0.001 else "less than 0.1%"
    text = (
        f"{total:,} steps without a target ({percent}) in {number:,} gaps, the longest "
        f"of {int(longest.max()):,} steps"
    )
    if gappy:
        text += f"; {gappy:,} of {panel.n_series:,} series miss more than {_GAPPY:.0%} of theirs"
    advice = "nothing to do: gaps are masked, at their true place; fill cells whose value is known"
    if panel.schema.time_zone is None:
        skipped = pl.Series(panel.time[facts.longest_at[:, :channels][missing > 0]])
        slots = SLOT.search(panel.schema.time_format or "") is not None
        if zone := changed_clock(skipped) or (slots and changed_days(skipped, 23)):
            text += f", where clocks change, as in {zone}"
            advice += f"; pass --time-zone {zone} if times are local"
    severity: Severity = "warning" if gappy else "note"
    where = f"from {facts.panel.text_at(facts.longest_at[series, channel])}"
    yield Finding(severity, "gaps", text, advice, panel.series_names[series], where, total)


def _other_steps(facts: Facts) -> pl.DataFrame:
    """Returns the series with another step than the panel's.

    Returns:
        series; early, late: the steps of the first and of the last quarter of their rows, as multiples
        of the panel's.
    """
    panel = facts.panel
    count = facts.count[:, : panel.n_channels].max(axis=1, initial=0)
    likely = np.flatnonzero(count > 4 * _STEP_ROWS)
    if panel.regular:
        # A step of two in a quarter of the rows leaves out a fifth of the steps.
        likely = likely[(facts.span >= 1.2 * count)[likely]]
    kinds = {"series": pl.Int64, "early": pl.Float64, "late": pl.Float64}
    return pl.concat(
        [pl.DataFrame(schema=kinds), *(_early_and_late(facts, *part) for part in facts.blocks(likely))]
    )


def _early_and_late(facts: Facts, series: Ints, rows: Ints, owner: Ints) -> pl.DataFrame:
    panel = facts.panel
    targets = panel.values[rows, : panel.n_channels]
    observed = (targets == targets).any(axis=1)
    rows, owner = rows[observed], owner[observed]
    apart = np.diff(rows) if panel.regular else np.diff(panel.time[rows]) / panel.calendar.step
    inside = owner[1:] == owner[:-1]
    frame = pl.DataFrame({"series": series[owner[1:][inside]], "apart": apart[inside].astype(float)})
    quarter = pl.int_range(pl.len()).over("series") * 4 // pl.len().over("series")
    # Distances within a tenth of each other are of one kind: months vary in length.
    kind = (8 * pl.col("apart").log(2)).round().cast(pl.Int64)
    kinds = frame.group_by("series", quarter.alias("quarter"), kind.alias("kind")).agg(
        pl.len().alias("rows"), pl.col("apart").quantile(0.5, "higher").round(3).alias("step")
    )
    total = pl.col("rows").sum().over("series", "quarter")
    # The panel's own step prevails until another one does.
    own, share = pl.col("kind") == 0, pl.col("rows") / total
    prevails = pl.when(own).then(share > 1 - _STEP_SHARE).otherwise(share >= _STEP_SHARE)
    steps = kinds.filter(prevails, total >= _STEP_ROWS)
    steps = steps.with_columns(pl.when(own).then(1.0).otherwise("step").alias("step"))
    early, late = (
        steps.filter(pl.col("quarter") == number).select("series", pl.col("step").alias(name))
        for number, name in ((0, "early"), (3, "late"))
    )
    both = early.join(late, on="series").sort("series")
    return both.filter((pl.col("early") != 1) | (pl.col("late") != 1))


# Columns


def _empty(facts: Facts) -> Iterator[Finding]:
    """Columns without a single value, and covariates without one that some series could learn from."""
    panel, schema, seen = facts.panel, facts.panel.schema, facts.span > 0
    lacking = (facts.count == 0) | (facts.first > panel.last_observed[:, None])
    lacking = np.hstack([lacking, np.isnan(panel.static), panel.static_codes == MISSING])
    names = (*facts.names, *schema.static_numeric, *schema.static_category)
    lacking &= ~panel.lacks(names)
    for column, name in enumerate(names if seen.any() else ()):
        bad = np.flatnonzero(lacking[:, column] & seen)
        if len(bad) and column < len(facts.names) and not facts.count[:, column].any():
            flag = "--target" if column < panel.n_channels else "--past and --known"
            advice = f"leave it out of {flag}, or check how its cells are written"
            yield Finding("warning", "empty", f"'{name}' has no value in any row", advice, where=name)
        elif len(bad) and column >= panel.n_channels:
            text = f"'{name}' has no value up to the last target of SOME"
            advice = "compare the keys and times of the tables that are joined, or leave it out"
            yield _on_series(facts, "empty", bad, text, advice, name)


def _edges(facts: Facts) -> Iterator[Finding]:
    """Columns that begin after their series' first target, or stop before its last one."""
    names, total = facts.panel.series_names, facts.panel.n_series
    begin, end = facts.panel.observed_ends.T
    for column, name in enumerate(facts.names):
        filled = (end >= 0) & (facts.count[:, column] > 0) & (facts.first[:, column] <= end)
        late = np.where(filled, facts.first[:, column] - begin, 0)
        early = np.where(filled, end - facts.last[:, column], 0)
        early *= name not in facts.panel.schema.known
        for begins, steps, does, at, advice in (
            (True, late, "begins later than its series", facts.first[:, column],
             "nothing to do: the cells before are masked"),
            (False, early, "stops before the last target", facts.last[:, column],
             "bring it up to date: a forecast is made without its latest values"),
        ):  # fmt: skip
            if count := int((steps > 0).sum()):
                series = int(steps.argmax())
                severity: Severity = "note" if begins or steps[series] == 1 else "warning"
                text = f"'{name}' {does} in {count:,} of {total:,} series, by up to {steps[series]:,} steps"
                where = f"{does.split()[0]} {facts.panel.text_at(at[series])}"
                found = text, advice, names[series], where, count
                yield Finding(severity, "leading" if begins else "trailing", *found)


def _horizon(facts: Facts) -> Iterator[Finding]:
    """Covariates known in advance that stop at the cutoff, or before the end of the horizon."""
    panel, horizon = facts.panel, facts.horizon
    seen, cutoff = np.flatnonzero(facts.span), panel.last_observed
    if horizon is None or not len(seen):
        return
    # Columns of one file stop at one date, and are reported together.
    alike: dict[bytes, list[str]] = {}
    lacks = panel.lacks(panel.schema.known)[seen]
    for number, name in enumerate(panel.schema.known):
        given = facts.last[seen, facts.names.index(name)] - cutoff[seen]
        given = np.where(lacks[:, number], given.max(), given)
        alike.setdefault(np.clip(given, 0, horizon).tobytes(), []).append(name)
    for steps, names in alike.items():
        given = np.frombuffer(steps, np.int64)
        series, few = int(seen[given.argmin()]), int((given < horizon).sum())
        severity: Severity = "warning"
        if not given.any():
            severity, few = "note", len(names)
            text = f"known in advance, but not after the last target: {listing(names)}"
            advice = "a forecast needs their values over the horizon: give them with --future FILE"
        else:
            text = (
                f"known in advance, but for fewer than {horizon} steps after the last target in "
                f"{few:,} of {panel.n_series:,} series: {listing(names)} (the fewest: {given.min()})"
            )
            advice = "give all steps of the horizon with --future FILE, or shorten --horizon"
        if few:
            where = f"at {facts.panel.text_at(cutoff[series])}"
            yield Finding(severity, "horizon", text, advice, panel.series_names[series], where, few)


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
            "horizon it leaks the target"
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
                    f"'{name}' that the model has not learned{': ' if words else ''}{listing(words)}"
                )
                advice = "they are forecast as unknown; correct the spelling, or fit again with them"
                series_name = panel.name_at(bad[0]) if by_row else panel.series_names[bad[0]]
                where = panel.text_at(bad[0]) if by_row else name
                yield Finding("warning", "unknown-category", text, advice, series_name, where, len(bad))


def _changes(facts: Facts) -> Floats:
    """Returns changes from row to row of a sample, centred in each series: [series, row, column].

    NaN where a value is missing, and in columns that change by nothing but a trend.
    """
    panel = facts.panel
    length = np.diff(panel.indptr)
    longest = np.argsort(-length, kind="stable")[:_SAMPLE_SERIES]
    rows = np.minimum(int(length[longest[0]]), _SAMPLE_ROWS)
    # From the end of the observed rows: future ones hold no target.
    begin = np.maximum(panel.indptr[longest], panel.last_observed[longest] + 1 - rows)
    row = begin[:, None] + np.arange(rows)
    inside = row < panel.indptr[longest + 1][:, None]
    values = panel.values[np.where(inside, row, 0)]
    values[~inside] = np.nan
    changes = np.diff(values, axis=1)
    real = changes == changes
    count = real.sum(axis=1, keepdims=True)
    changes -= np.where(real, changes, 0).sum(axis=1, keepdims=True) / np.maximum(count, 1)
    size = np.where(values == values, np.abs(values), 0).max(axis=(0, 1), initial=0)
    changes[:, :, np.nanmax(np.abs(changes), axis=(0, 1), initial=0) <= 1e-10 * size] = np.nan
    return changes


def _correlation(one: Floats, other: Floats) -> Floats:
    """Returns the median over series of |correlation| of columns, rows counted from the first.

    Args:
        one, other: [series, row, column], centred; NaN where missing. The longer is cut.
    """
    rows = min(one.shape[1], other.shape[1])
    one, other = one[:, :rows], other[:, :rows]
    real, also = (one == one).astype(np.float64), (other == other).astype(np.float64)
    one, other = np.nan_to_num(one), np.nan_to_num(other)

    def added(left: Floats, right: Floats) -> Floats:
        return left.transpose(0, 2, 1) @ right

    power = added(one**2, also) * added(real, other**2)
    usable = (added(real, also) >= _LEAST_PAIRS) & (power > 0)
    alike = np.abs(added(one, other)) / np.sqrt(np.where(usable, power, np.nan))
    alike[:, ~usable.any(axis=0)] = 0
    return np.nanmedian(alike, axis=0)


TARGET_RULES = (_constant, _stuck, _outlier_scale, _jumps, _negative_counts, _sparse)
"""Called with the facts of each target."""
TABLE_RULES = (
    _unobserved, _short, _ends, _future, _bounds, _steps_and_gaps, _empty, _edges, _horizon, _leaks, _twins,
    _unknown_categories,
)  # fmt: skip
CLASS_RULES = (_unobserved, _empty, _twins, _unknown_categories)
"""Of a table with classes, instead of both: what concerns forecasts is left out."""
