"""Rows aggregated to longer calendar periods as a table is read: days become weeks, hours days.

A value of a period is the aggregate of what is observed in it, missing where nothing is. The first and
the last period of a series are dropped where rows cover only a part: a sum of three days is no week.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from forecaster.config import DataConfig
from forecaster.errors import ConfigError, DataError
from forecaster.panel.calendar import Calendar, parse_freq
from forecaster.panel.findings import Finding
from forecaster.panel.rows import SERIES, TIME, Rows, label_of

_PERIOD = _BEGIN, _END, _STAMP = "\0begin", "\0end", "\0stamp"


def resampled(rows: Rows, calendar: Calendar, data: DataConfig) -> tuple[Rows, Calendar, Finding]:
    """Returns a row per series and period of `data.resample`, their calendar, and what was dropped.

    Args:
        rows: of all tables.
        calendar: of the rows.
        data: `agg` for targets; other numbers become their mean, categories the last one.

    Raises:
        ConfigError: `agg` is missing, or the model has another step.
        DataError: rows have no dates, are farther apart than the periods, or cover none.
    """
    flag, schema = f"--resample {data.resample}", rows.schema
    periods = replace(calendar, freq=parse_freq(data.resample or ""), rows=calendar.freq)
    if data.agg is None:
        raise ConfigError(f"{flag}: expected how targets are aggregated: --agg sum, mean, last or max")
    if schema.freq not in ("", periods.freq, periods.freq.partition("-")[0]):
        raise ConfigError(f"{flag}: this model was fitted with steps of {schema.freq}")
    if calendar.integer or periods.unit in "bi":
        raise DataError(f"{flag}: expected rows with dates, and a step as W-SUN, MS or 2h")
    if periods.step < calendar.step:
        raise DataError(f"{flag}: expected a longer step than that of the rows, {calendar.freq}")
    seen = [pl.col(name).is_not_null() for name in schema.target]
    # Each with the rows that cover its periods: those of the future hold known covariates alone.
    columns = [([name], own) for name, own in zip(schema.target, seen, strict=True)]
    columns += [([*schema.past], pl.any_horizontal(seen)), ([*schema.known], pl.lit(True))]
    spans = []
    for k, (_, own) in enumerate(columns):
        time = pl.when(own).then(TIME)
        spans += [time.min().over(SERIES).alias(f"\0first{k}")]
        spans += [time.max().over(SERIES).alias(f"\0last{k}")]
    period = map(pl.Series, _PERIOD, periods.period(rows.frame[TIME].to_numpy()))
    frame = rows.frame.with_columns(cs.float().fill_nan(None), *period).with_columns(spans)
    frame = frame.group_by(SERIES, _STAMP, maintain_order=True).agg(
        *(_aggregate(rows, column, data.agg) for column in rows.frame.drop(SERIES, TIME)),
        cs.matches("^\0(begin|end|first|last)").first(),
    )
    begin, end = frame[_BEGIN].to_numpy(), frame[_END].to_numpy()
    cut = np.zeros((2, frame.height), bool)
    for k, (names, _) in enumerate(columns):
        first, last = (frame[f"\0{name}{k}"].fill_null(0).to_numpy() for name in ("first", "last"))
        part = np.stack([calendar.shift(first, -1) >= begin, calendar.shift(last, 1) < end])
        if k < len(seen):
            cut |= part & frame[names[0]].is_not_null().to_numpy()
        whole = pl.lit(pl.Series(~part.any(axis=0)))
        frame = frame.with_columns(pl.when(whole).then(pl.col(name)).alias(name) for name in names)
    note = _dropped(rows, calendar, frame, cut)
    filled = [pl.col(name).is_not_null() for names, _ in columns for name in names]
    frame = frame.filter(pl.any_horizontal(filled)).rename({_STAMP: TIME}).select(rows.frame.columns)
    if not frame.height:
        raise DataError(f"{flag}: the rows of no series cover a whole period")
    return replace(rows, frame=frame), periods, note


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


def _dropped(rows: Rows, calendar: Calendar, frame: pl.DataFrame, cut: NDArray[np.bool_]) -> Finding:
    """Returns a note on the periods that rows cover in part: `cut` bool [first or last, period]."""
    at, (first, last) = np.flatnonzero(cut.any(axis=0)), cut.sum(axis=1)
    text = (
        f"{rows.frame.height:,} rows became {frame.height:,} periods; {len(at):,} of them are dropped, as "
        f"rows cover only a part ({first:,} first, {last:,} last ones of a series)"
    )
    where, label = "", ""
    if len(at):
        number, begin, end = frame[int(at[0])].select(SERIES, _BEGIN, _END).row(0)
        where = f"{calendar.text(begin)} to {calendar.text(int(calendar.shift(end, -1)))}"
        label = label_of(rows.keys, number)
    advice = "nothing to do: a part of a period does not compare with whole ones"
    return Finding("note", "resample", text, advice, label, where, len(at))
