"""Rows aggregated to longer calendar periods as a table is read: days become weeks, hours days.

A value of a period is the aggregate of what is observed in it, where that is enough: a sum of three days
is no week. Steps are counted on the grid of the rows. Those at a weekday, or an hour of the week, at which
a series is hardly ever observed are not expected: a shop closed on Sundays has weeks of six days. A period
with too few of the others is empty, within a series as at its ends.
Axes: s = series, r = row, p = period that has rows, g = step of the grid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from forecaster.config import DataConfig
from forecaster.errors import ConfigError, DataError
from forecaster.panel.calendar import DAY, FIXED, MONTHS, Calendar, parse_freq
from forecaster.panel.findings import Finding, Severity
from forecaster.panel.rows import SERIES, TIME, Rows, label_of

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_STAMP, _PERIOD = "\0stamp", "\0period"
_RARE = 0.05
"""Share of its steps, or of those at a weekday or hour, below which a series is hardly ever observed."""
_LEAST = {"sum": 0.9, "mean": 0.5, "max": 0.5}
"""Share of the expected steps that an aggregate needs; `last` needs one of the last two."""
_NEEDS = {"sum": "nine tenths", "mean": "half", "max": "half", "last": "one of the last two"}


@dataclass(frozen=True)
class _Periods:
    """The periods that rows lie in, by series and time."""

    series: Ints
    begin: Ints
    end: Ints
    """Exclusive."""
    number: Ints
    """[r] the period of each row."""


def resampled(
    rows: Rows, calendar: Calendar, data: DataConfig, *, regular: bool
) -> tuple[Rows, Calendar, list[Finding]]:
    """Returns a row per series and period of `data.resample`, their calendar, and what was left out.

    Args:
        rows: of all tables.
        calendar: of the rows.
        data: `agg` for targets; other numbers become their mean, categories the last one.
        regular: rows lie on the grid of their calendar. Otherwise there are no steps to count, and only a
            first or last period that rows do not reach across is left out.

    Raises:
        ConfigError: `agg` is missing, or the model has another step.
        DataError: rows have no dates, are farther apart than the periods, or fill none.
    """
    flag, schema, agg = f"--resample {data.resample}", rows.schema, data.agg
    steps = replace(calendar, freq=parse_freq(data.resample or ""), rows=calendar.freq)
    if agg is None:
        raise ConfigError(f"{flag}: expected how targets are aggregated: --agg sum, mean, last or max")
    if schema.freq not in ("", steps.freq, steps.freq.partition("-")[0]):
        raise ConfigError(f"{flag}: this model was fitted with steps of {schema.freq}")
    if calendar.integer or steps.unit in "bi":
        raise DataError(f"{flag}: expected rows with dates, and a step as W-SUN, MS or 2h")
    if steps.step < calendar.step:
        raise DataError(f"{flag}: expected a longer step than that of the rows, {calendar.freq}")
    time, indptr = rows.layout()
    owner = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    begin, end, stamp = steps.period(time)
    new = np.append(True, (np.diff(owner) != 0) | (np.diff(begin) != 0))
    periods = _Periods(owner[new], begin[new], end[new], np.cumsum(new) - 1)
    frame = rows.frame.with_columns(cs.float().fill_nan(None))
    targets = [frame[name].is_not_null().to_numpy() for name in schema.target]
    # Each with the rows that it may be observed in: those of the future hold known covariates alone.
    groups = [([name], seen) for name, seen in zip(schema.target, targets, strict=True)]
    groups += [([*schema.past], np.any(targets, axis=0)), ([*schema.known], np.ones(len(time), bool))]
    grid, place = _grid(calendar, time, indptr, periods, regular=regular)
    frame = frame.with_columns(pl.Series(_STAMP, stamp), pl.Series(_PERIOD, periods.number))
    counts = pl.col(schema.target).count().name.prefix("\0count ")
    columns = [_aggregate(rows, column, agg) for column in rows.frame.drop(SERIES, TIME)]
    frame = frame.group_by(_PERIOD, maintain_order=True).agg(
        pl.col(SERIES, _STAMP).first(), counts, *columns
    )
    # Periods left out as the first of their series, as the last, and between; steps that are missing.
    lost, missing, raised = np.zeros((3, frame.height), bool), np.zeros(frame.height, np.int64), 0
    for names, seen in (group for group in groups if group[0]):
        first, last = _ends(time[seen], owner[seen], periods)
        whole = (calendar.shift(first, -1) < periods.begin) & (calendar.shift(last, 1) >= periods.end)
        found = _coverage(grid, place[seen], frame.height)
        for name in names:
            is_target, value = name in schema.target, pl.col(name)
            kind = agg if is_target else "mean" if frame[name].dtype.is_float() else "last"
            keep = np.where(found["expected"] > 0, _is_enough(found, kind), whole)
            if is_target:
                lacks = frame[name].is_not_null().to_numpy() & ~keep
                begins, ends = first >= periods.begin, last < periods.end
                lost |= lacks & np.stack([begins, ends, ~begins & ~ends])
                missing += found["missing"]
            if is_target and agg == "sum":
                # A missing step counts as the mean of the others: without it a sum is too small.
                lacking = (found["expected"] - found["seen"]) * keep
                value += value / pl.col(f"\0count {name}") * pl.lit(pl.Series(lacking))
                raised += int(np.count_nonzero(lacking))
            frame = frame.with_columns(pl.when(pl.lit(pl.Series(keep))).then(value).alias(name))
    remarks = [_origin(steps, calendar.text(int(periods.begin.min())))]
    if (place == grid.height).any():
        remarks += ["; rows are irregular, so that periods between count whatever rows they have"]
    notes = [*_findings(rows, calendar, periods, agg, lost, missing, raised)]
    notes[0] = replace(notes[0], text=notes[0].text + "".join(remarks))
    filled = [pl.col(name).is_not_null() for names, _ in groups for name in names]
    frame = frame.filter(pl.any_horizontal(filled)).rename({_STAMP: TIME}).select(rows.frame.columns)
    if not frame.height:
        raise DataError(
            f"{flag}: the rows of no series cover a whole period: --agg {agg} needs {_NEEDS[agg]} of its "
            f"steps of {calendar.freq}; write a row for each step, with 0 where nothing happened"
        )
    return replace(rows, frame=frame), steps, notes


def _is_enough(found: dict[str, Ints], agg: str) -> Bools:
    """Returns whether the steps of `_coverage` are enough for an aggregate: [p]."""
    if agg == "last":
        return found["late"] > 0
    return found["seen"] >= _LEAST[agg] * found["expected"] - 1e-9


def _aggregate(rows: Rows, column: pl.Series, agg: str) -> pl.Expr:
    """Returns a column's value in a period: null where nothing is observed."""
    values = pl.col(column.name).drop_nulls()
    if column.name in rows.schema.static:
        return values.first()
    if not column.dtype.is_float() or (agg == "last" and column.name in rows.schema.target):
        return values.last()
    exact, agg = values.cast(pl.Float64), agg if column.name in rows.schema.target else "mean"
    found = {"sum": exact.sum(), "mean": exact.mean(), "max": exact.max()}[agg]
    return pl.when(values.len() > 0).then(found.cast(column.dtype)).alias(column.name)


def _ends(time: Ints, owner: Ints, periods: _Periods) -> tuple[Ints, Ints]:
    """Returns the first and the last time in the series of each period; 0 where it has none."""
    first, last = np.zeros((2, periods.series[-1] + 1), np.int64)
    last[owner] = time  # the last of several holds
    first[owner[::-1]] = time[::-1]
    return first[periods.series], last[periods.series]


def _grid(
    calendar: Calendar, time: Ints, indptr: Ints, periods: _Periods, *, regular: bool
) -> tuple[pl.DataFrame, Ints]:
    """Returns the steps of series from their first period to the end of their last.

    Without those of series that have rows at hardly any: their step is that within bursts of rows.

    Returns:
        The steps, in order: series, the period that begins last, whether the step lies in it, weekday and
        hour; and the step of each row [r], one after the last where it has none.
    """
    anchor, place, _ = calendar.placed(time, indptr)
    own = anchor[periods.series]
    low, high = (calendar.steps(own, bound - 1) + 1 for bound in (periods.begin, periods.end))
    # Steps of periods without a row follow those of the period before.
    is_last = np.append(np.diff(periods.series) != 0, True)
    size = np.where(is_last, high, np.append(low[1:], 0)) - low
    total = np.bincount(periods.series, size, len(indptr) - 1)
    counted = regular & (np.diff(indptr) >= _RARE * total)[periods.series]
    size *= counted
    shift = np.cumsum(size) - size - low
    number = np.repeat(np.arange(len(size)), size)
    at = np.arange(len(number))
    days, clock = np.divmod(calendar.wall_clock(calendar.shift(own[number], at - shift[number])), DAY)
    steps = {
        SERIES: periods.series[number].astype(np.uint32),
        _PERIOD: number.astype(np.uint32),
        "at": at,
        "inside": at - shift[number] < high[number],
        "day": (days % (1 if calendar.unit in MONTHS else 7)).astype(np.int8),
        "hour": (clock // (FIXED["h"] if calendar.step < DAY else DAY)).astype(np.int8),
    }
    place = np.where(counted[periods.number], place + shift[periods.number], len(number))
    return pl.DataFrame(steps), place


def _coverage(steps: pl.DataFrame, place: Ints, n_periods: int) -> dict[str, Ints]:
    """Returns how many steps are expected of periods, seen, late and missing: [p]; 0 = not counted.

    late: one of the last two expected steps is observed, or a later one; missing: expected steps between
    the first observation of the series and the last that have none, those up to the next period included.

    Args:
        steps: see `_grid`.
        place: of the rows with an observation.
    """
    hit = np.zeros(steps.height + 1, bool)
    hit[place] = True
    seen, between, expected = pl.col("seen"), pl.col("between"), pl.col("expected")
    first, last = (
        pl.when("seen").then("at").min().over(SERIES),
        pl.when("seen").then("at").max().over(SERIES),
    )
    frame = steps.with_columns(seen=hit[:-1])
    frame = frame.with_columns(between=pl.col("at").is_between(first, last).fill_null(False))

    def hardly_ever(*position: str) -> pl.Expr:
        often, count = (flag.sum().over(SERIES, *position) for flag in (between, seen))
        return (often > 1) & (count < _RARE * often)

    # A weekday that came once tells nothing; the hour of the day may.
    several = between.sum().over(SERIES, "day", "hour") > 1
    closed = pl.when(several).then(hardly_ever("day", "hour")).otherwise(hardly_ever("hour"))
    frame = frame.with_columns(expected=~closed)
    of_period = expected.filter("inside")
    frame = frame.group_by(_PERIOD).agg(
        expected=of_period.sum(),
        seen=(seen & expected & pl.col("inside")).sum(),
        late=(seen.filter("inside") & (of_period.sum() - of_period.cum_sum() < 2)).any(),
        missing=(between & expected & ~seen).sum(),
    )
    found = {name: np.zeros(n_periods, np.int64) for name in frame.columns[1:]}
    for name, counts in found.items():
        counts[frame[_PERIOD].to_numpy()] = frame[name].to_numpy()
    return found


def _origin(steps: Calendar, begin: str) -> str:
    """Returns where periods are counted from, where pandas would count from the first row."""
    if steps.freq.startswith(f"1{steps.unit}") or DAY % steps.step == 0:
        return ""
    return f"; periods of {steps.freq} are counted from one date in every table, here from {begin} on"


def _findings(
    rows: Rows, calendar: Calendar, periods: _Periods, agg: str, lost: Bools, missing: Ints, raised: int
) -> Iterator[Finding]:
    """Yields what became of rows, then the periods left empty and the steps without a row."""
    (first, last, _), ends = lost.sum(axis=1), lost[0] | lost[1]
    became = (
        f"{rows.frame.height:,} rows became {len(ends):,} periods; {ends.sum():,} of them are dropped, as "
        f"rows cover only a part ({first:,} first, {last:,} last ones of a series)"
    )
    empty = (
        f"{lost[2].sum():,} of {len(ends):,} periods are left empty: a {agg} needs {_NEEDS[agg]} of the "
        f"steps of {calendar.freq} at which the series is observed"
    )
    gaps = f"{missing.sum():,} steps of {calendar.freq} without a target"
    if raised:
        gaps += f"; {raised:,} sums that lack up to a tenth of them are raised in proportion"
    part = "nothing to do: a part of a period does not compare with whole ones"
    fill = "fill in the rows that are missing, with 0 where nothing happened"
    kinds: list[tuple[Severity, str, str, str, Ints | Bools]] = [
        ("note", "resample", became, part, ends),
        ("warning", "resample", empty, fill, lost[2]),
        ("note", "gaps", gaps, fill, missing),
    ]
    for severity, rule, text, advice, counts in kinds:
        at, where, label = np.flatnonzero(counts), "", ""
        if len(at):
            begin, end = periods.begin[at[0]], calendar.shift(periods.end[at[0]], -1)
            where = f"{calendar.text(int(begin))} to {calendar.text(int(end))}"
            label = label_of(rows.keys, int(periods.series[at[0]]))
        if len(at) or text == became:
            yield Finding(severity, rule, text, advice, label, where, int(counts.sum()))
