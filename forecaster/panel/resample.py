"""Rows aggregated to longer calendar periods as a table is read: days become weeks, hours days.

A value of a period is the aggregate of what is observed in it, where that is enough: a sum of three days
is no week. Steps are counted on the grid of the rows. Those at a weekday, or an hour of the week, at which
a series is hardly ever observed are not expected: a shop closed on Sundays has weeks of six days. A period
with too few of the others is empty, within a series as at its ends.
Axes: r = row, p = period that has rows, g = step of the grid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl
import polars.selectors as cs

from forecaster.config import DataConfig
from forecaster.errors import ConfigError, DataError
from forecaster.panel.arrays import Bools, Ints
from forecaster.panel.calendar import DAY, FIXED, MONTHS, RARE, Calendar, parse_freq
from forecaster.panel.findings import Finding, Severity
from forecaster.panel.rows import SERIES, TIME, Rows, series_name

_PERIOD = _BEGIN, _END, _STAMP = "\0begin", "\0end", "\0stamp"
_PLACE = "\0place"
_LEAST = {"sum": 0.9, "mean": 0.5, "max": 0.5}
"""Share of the expected steps that an aggregate needs; `last` needs one of the last two."""
_NEEDS = {"sum": "nine tenths", "mean": "half", "max": "half", "last": "one of the last two"}


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
    if regular and steps.step < calendar.shortest:
        raise DataError(f"{flag}: expected a longer step than that of the rows, {calendar.freq}")
    period = map(pl.Series, _PERIOD, steps.period(rows.frame[TIME].to_numpy()))
    grid, place = _grid(rows, calendar, steps, regular=regular)
    placed = pl.Series(_PLACE, place)
    frame = rows.frame.with_columns(cs.float().fill_nan(None), placed, *period)
    # Each with the rows that it may be observed in: those of the future hold known covariates alone.
    targets = [pl.col(name).is_not_null() for name in schema.target]
    groups = [([name], seen) for name, seen in zip(schema.target, targets, strict=True)]
    groups += [([*schema.past], pl.any_horizontal(targets)), ([*schema.known], pl.lit(True))]
    counts = pl.col(schema.target).count().name.prefix("\0count ")
    columns = [_aggregate(rows, column, agg) for column in rows.frame.drop(SERIES, TIME)]
    grouped = frame.group_by(SERIES, _BEGIN, maintain_order=True)
    periods = grouped.agg(pl.col(_END, _STAMP).first(), counts, *columns)
    begin, end = (periods[name].to_numpy() for name in (_BEGIN, _END))
    # Periods left out as the first of their series, as the last, and between.
    lost = np.zeros((3, periods.height), bool)
    gaps, raised = [], 0
    for names, seen in groups:
        if not names:
            continue
        observed = frame.filter(seen).select(SERIES, TIME, _PLACE)
        ends = observed.group_by(SERIES).agg(first=pl.col(TIME).min(), last=pl.col(TIME).max())
        coverage = _coverage(grid, observed[_PLACE].to_numpy())
        own = periods.select(SERIES, _BEGIN).join(ends, on=SERIES, how="left", maintain_order="left")
        own = own.join(coverage, on=[SERIES, _BEGIN], how="left", maintain_order="left").fill_null(0)
        first, last, expected, hits, late = (
            own[name].to_numpy() for name in ("first", "last", "expected", "seen", "late")
        )
        whole = (calendar.shift(first, -1) < begin) & (calendar.shift(last, 1) >= end)
        for name in names:
            is_target, value = name in schema.target, pl.col(name)
            kind = agg if is_target else "mean" if periods[name].dtype.is_float() else "last"
            enough = late > 0 if kind == "last" else hits >= _LEAST[kind] * expected - 1e-9
            keep = np.where(expected > 0, enough, whole)
            if is_target:
                lacks = periods[name].is_not_null().to_numpy() & ~keep
                begins, stops = first >= begin, last < end
                lost |= lacks & np.stack([begins, stops, ~begins & ~stops])
                gaps.append(coverage.filter(pl.col("missing") > 0))
            if is_target and agg == "sum":
                # A missing step counts as the mean of the others: without it a sum is too small.
                lacking = (expected - hits) * keep
                value += value / pl.col(f"\0count {name}") * pl.lit(pl.Series(lacking))
                raised += int(np.count_nonzero(lacking))
            periods = periods.with_columns(pl.when(pl.lit(pl.Series(keep))).then(value).alias(name))
    remarks = _origin(steps, calendar.text(begin.min()))
    if (place == grid.height).any():
        remarks += "; rows are irregular, so that periods between count whatever rows they have"
    missing = pl.concat(gaps).sort(SERIES, _BEGIN)
    notes = [*_findings(rows, calendar, steps, periods, agg, lost, missing, raised, remarks)]
    filled = [pl.col(name).is_not_null() for names, _ in groups for name in names]
    frame = periods.filter(pl.any_horizontal(filled)).rename({_STAMP: TIME}).select(rows.frame.columns)
    if not frame.height:
        raise DataError(
            f"{flag}: the rows of no series cover a whole period: --agg {agg} needs {_NEEDS[agg]} of its "
            f"steps of {calendar.freq}; write a row for each step, with 0 where nothing happened"
        )
    return replace(rows, frame=frame), steps, notes


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


def _grid(
    rows: Rows, calendar: Calendar, steps: Calendar, *, regular: bool
) -> tuple[pl.DataFrame, Ints]:
    """Returns all steps of series from their first period to the end of their last.

    Without those of series that have rows at hardly any: their step is that within bursts of rows.

    Returns:
        The steps [g], in order: series, begin of the period, weekday and hour; and the step of each row
        [r], one after the last where it has none.
    """
    time, indptr = rows.layout()
    anchor, place, _ = calendar.placed(time, indptr)
    begin, end = steps.period(time[indptr[:-1]])[0], steps.period(time[indptr[1:] - 1])[1]
    low, high = (calendar.steps(anchor, bound - 1) + 1 for bound in (begin, end))
    counted = regular & (np.diff(indptr) >= RARE * (high - low))
    size = np.where(counted, high - low, 0)
    series = np.repeat(np.arange(len(size)), size)
    at = np.arange(len(series))
    # From the steps of a series to those of the grid.
    shift = np.cumsum(size) - size - low
    stamps = calendar.shift(anchor[series], at - shift[series])
    days, clock = np.divmod(calendar.wall_clock(stamps), DAY)
    grid = {
        SERIES: series.astype(np.uint32),
        _BEGIN: steps.period(stamps)[0],
        "at": at,
        "day": (days % (1 if calendar.unit in MONTHS else 7)).astype(np.int8),
        "hour": (clock // (FIXED["h"] if calendar.step < DAY else DAY)).astype(np.int8),
    }
    owner = rows.frame[SERIES].to_numpy()
    return pl.DataFrame(grid), np.where(counted[owner], place + shift[owner], len(series))


def _coverage(grid: pl.DataFrame, place: Ints) -> pl.DataFrame:
    """Returns how many steps of periods are expected, seen, late and missing, in order.

    late: of the last two expected steps and later ones, how many are observed; missing: expected steps between
    the first observation of the series and the last that have none.

    Args:
        grid: see `_grid`.
        place: of the rows with an observation.
    """
    hit = np.zeros(grid.height + 1, bool)
    hit[place] = True
    seen, between, expected = pl.col("seen"), pl.col("between"), pl.col("expected")
    observed = pl.when(seen).then("at")
    first, last = observed.min().over(SERIES), observed.max().over(SERIES)
    frame = grid.with_columns(seen=hit[:-1])
    frame = frame.with_columns(between=pl.col("at").is_between(first, last).fill_null(False))

    def hardly_ever(*position: str) -> pl.Expr:
        often, count = (flag.sum().over(SERIES, *position) for flag in (between, seen))
        return (often > 1) & (count < RARE * often)

    # A weekday that came once tells nothing; the hour of the day may.
    several = between.sum().over(SERIES, "day", "hour") > 1
    closed = pl.when(several).then(hardly_ever("day", "hour")).otherwise(hardly_ever("hour"))
    return (
        frame.with_columns(expected=~closed)
        .group_by(SERIES, _BEGIN, maintain_order=True)
        .agg(
            expected=expected.sum(),
            seen=(seen & expected).sum(),
            late=(seen & (expected.sum() - expected.cum_sum() < 2)).sum(),
            missing=(between & expected & ~seen).sum(),
        )
    )


def _origin(steps: Calendar, begin: str) -> str:
    """Returns where periods are counted from, where pandas would count from the first row."""
    if steps.freq.startswith(f"1{steps.unit}") or DAY % steps.step == 0:
        return ""
    return f"; periods of {steps.freq} are counted from one date in every table, here from {begin} on"


def _findings(
    rows: Rows,
    calendar: Calendar,
    steps: Calendar,
    periods: pl.DataFrame,
    agg: str,
    lost: Bools,
    gaps: pl.DataFrame,
    raised: int,
    remarks: str,
) -> Iterator[Finding]:
    """Yields what became of rows, then the periods left empty and the steps without a row."""

    def finding(
        severity: Severity, rule: str, text: str, advice: str, at: pl.DataFrame, count: int
    ) -> Finding:
        where, name = "", ""
        if at.height:
            begin, end, _ = steps.period(at[_BEGIN].head(1).to_numpy())
            where = f"{calendar.text(begin[0])} to {calendar.text(calendar.shift(end, -1)[0])}"
            name = series_name(rows.keys, at[SERIES][0])
        return Finding(severity, rule, text, advice, name, where, count)

    (first, last, empty), ends = lost.sum(axis=1), lost[0] | lost[1]
    text = (
        f"{rows.frame.height:,} rows became {periods.height:,} periods; {ends.sum():,} of them are "
        f"dropped, as rows cover only a part ({first:,} first, {last:,} last ones of a series)"
        f"{remarks}"
    )
    part = "nothing to do: a part of a period does not compare with whole ones"
    yield finding("note", "resample", text, part, periods.filter(ends), int(ends.sum()))
    fill = "fill in the rows that are missing, with 0 where nothing happened"
    if empty:
        text = (
            f"{empty:,} of {periods.height:,} periods are left empty: a {agg} needs {_NEEDS[agg]} of the "
            f"steps of {calendar.freq} at which the series is observed"
        )
        yield finding("warning", "resample", text, fill, periods.filter(lost[2]), int(empty))
    if missing := int(gaps["missing"].sum()):
        text = f"{missing:,} steps of {calendar.freq} without a target"
        if raised:
            text += f"; {raised:,} sums that lack up to a tenth of them are raised in proportion"
        yield finding("note", "gaps", text, fill, gaps, missing)
