"""Tables become rows sorted by (series, time): repeated rows merged, covariates and future rows joined.

Rows of one series and time that agree in every column with a role become one row, unless they are to be
summed; others as `on_duplicates` sets. Nothing loops over series. The order of the caller's rows matters
only where rows are numbered for lack of a time column, and for `on_duplicates: last`.

    cells as Float64, text or int64 times → rows in order → repeats merged → second tables joined
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs

from forecaster.config import DataConfig
from forecaster.errors import number_of
from forecaster.panel.arrays import Bools, Ints
from forecaster.panel.findings import (
    Faults,
    Finding,
    Severity,
    fault,
    listing,
    refuse_errors,
    row_fault,
)
from forecaster.panel.frames import TEXT, Table, missing_columns
from forecaster.panel.names import common, without
from forecaster.panel.numbers import Decimals, as_numbers, known_text, misfits
from forecaster.panel.order import Order, find_order
from forecaster.panel.roles import date_like, names_series
from forecaster.panel.schema import Names, Schema, TimeDtype
from forecaster.panel.timestamps import (
    EPOCHS,
    changed_clock,
    has_clock,
    instants,
    integer_format,
    write_times,
)

# No table has columns of these names.
SERIES, TIME, _ROW = "\0series", "\0time", "\0row"
_AT = [SERIES, TIME]
_NAMED = 5  # series in a warning
_CLOSE = 1e-5
"""Relative difference up to which two tables agree: they may round differently."""


@dataclass(frozen=True)
class Rows:
    """Rows sorted by (series, time)."""

    frame: pl.DataFrame
    """`SERIES` (number in the order of keys), `TIME`, numbers as Float64, categories as text."""
    keys: pl.DataFrame
    """Key columns, one row per series; no columns where there is one series without a key."""
    schema: Schema
    """With the facts of the time column filled in."""
    notes: tuple[Finding, ...] = ()
    """Findings so far; errors too, so that all faults of rows are reported at once."""
    members: Bools | None = None
    """As `Panel.members`."""
    n_new: int = 0
    """As `Panel.n_new`."""

    def layout(self) -> tuple[Ints, Ints]:
        """Returns the times of rows, and the first row of each series with the number of rows last."""
        # Rows are sorted by series: a search for its ends is faster than a count of its rows.
        series = np.arange(max(self.keys.height, 1) + 1, dtype=np.uint32)
        indptr = np.searchsorted(self.frame[SERIES].to_numpy(), series).astype(np.int64)
        return self.frame[TIME].to_numpy(), indptr


def series_name(keys: pl.DataFrame, number: int) -> str:
    """Returns the name of a series by its keys; empty where there is one without a key."""
    return "/".join(map(str, keys.row(number))) if keys.width else ""


def main_rows(table: Table, schema: Schema, data: DataConfig, order: Order | None = None) -> Rows:
    """Returns the rows of the table itself.

    Args:
        table: holds the columns of the schema, covariates of other tables aside.
        schema: roles.
        data: sets what becomes of rows that repeat.
        order: of the rows by the schema's series and time; None = not found yet.

    Raises:
        DataError: keys or times are missing or unreadable, or numbers are text: all such faults.
    """
    wanted = schema.target_columns + schema.covariates + schema.label_columns
    keys = list(schema.key_columns)
    columns, faults = [], Faults()
    table, schema, notes = _with_numbers(table, schema, data)
    with faults:
        # A schema with a frequency is that of a model: its kind of times must be this table's.
        same_clock = bool(schema.freq)
        table, schema, times = read_times(table, schema, data.time_format, same_clock=same_clock)
    for key in keys:
        with faults:
            _check_key(table, key)
    for name in common(dict.fromkeys(wanted), table.frame.columns):
        with faults:
            columns.append(_read_values(table, name, schema))
    faults.refuse()
    if schema.label is not None and schema.label not in table.frame.columns:
        columns.append(pl.Series(schema.label, [None] * table.frame.height, dtype=pl.String))
    frame = pl.DataFrame([*(table.frame[key] for key in keys), times, *columns])
    if schema.melted:
        frame, keys = _melted(frame, schema.melted, table), ["channel"]
    if order is None or schema.melted or schema.local:
        order = find_order(frame.select(keys), frame[TIME].to_numpy())
    frame = order.placed(frame.drop(*keys, TIME))
    frame = frame.with_columns(pl.Series(TIME, order.time), pl.Series(SERIES, order.number))
    notes += [] if table.times is None else table.times.notes
    if schema.time is None:
        frame = frame.with_columns(row_number(schema.target).over(SERIES).alias(TIME))
    else:
        if order.rows is not None or order.repeated.any():
            rows = np.arange(len(order.time)) if order.rows is None else order.rows
            # Channels that were made series repeat the table's rows.
            frame = frame.with_columns(pl.Series(_ROW, rows % table.frame.height))
        source = _RowSource(table, schema, order.keys)
        frame, found = _without_repeats(frame, order, source, data.on_duplicates)
        frame, notes = frame.drop(_ROW, strict=False), notes + found
    named = (*keys, *schema.label_columns)
    dtypes = {n: str(table.frame[n].dtype) for n in named if n in table.frame and not schema.melted}
    return Rows(frame, order.keys, replace(schema, dtypes=dtypes), tuple(notes))


# Cells


def _with_numbers(
    table: Table, schema: Schema, data: DataConfig
) -> tuple[Table, Schema, list[Finding]]:
    """Returns the table with columns of text as numbers, the schema with their marks, and notes.

    Categories are numbers where all of them are, as in a CSV file; those of a model stay as they are written.
    """
    decimals = Decimals(others=data.decimal) if data.decimal else schema.decimals
    numbers = [c.name for c in table.frame if c.name in schema.numbers and c.dtype in TEXT]
    new = without(schema.categorical, schema.categories)
    names = numbers + [c.name for c in table.frame if c.name in new and c.dtype == pl.String]
    text = table.frame.select(pl.col(names).cast(pl.String))
    decimals = replace(decimals, padded={*names}.difference(data.categorical or ()))
    found, marks, notes = as_numbers(text, decimals, table.name, table.place)
    both: Any = schema.decimal | {name: mark for name, mark in marks.items() if name in numbers}
    table = replace(table, frame=table.frame.with_columns(found))
    return table, replace(schema, decimal=both), notes


def _read_values(table: Table, name: str, schema: Schema) -> pl.Series:
    """Returns a column as Float64, or as text where it is a category."""
    words = schema.categories.get(name, ())
    if words and table.frame[name].dtype.is_float():
        table = table.with_ids([name])
    column, where = table.frame[name], f"{table.name}: column '{name}'"
    if name in schema.categorical or name == schema.label:
        text = column.cast(pl.String)
        if column.dtype.is_float():
            # A gap makes a frame's whole numbers floats; 3.0 and 3 are one category.
            text = text.str.replace(r"\.0$", "")
        if column.dtype == pl.String:
            # TRUE, True and true are one thing in three programs.
            lower = text.str.to_lowercase()
            text = text.zip_with(~lower.is_in(["true", "false"]).fill_null(False), lower)
        return _in_words(text, words)
    if column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null):
        return column.cast(pl.Float64)
    if column.dtype not in TEXT:
        advice = "give it as numbers, or leave the column out"
        raise fault("text", f"{where}: expected numbers, found {column.dtype}", advice, where=name)
    text = known_text(column.cast(pl.String))
    numbers = text.cast(pl.Float64, strict=False)
    bad = numbers.is_null() & text.is_not_null()
    if bad.any():
        bad = misfits(text, schema.decimal.get(name, ""))
        advice = "write numbers, or leave the cell empty"
        if re.fullmatch(r"[\d.,' +-]*\d[.,][\d.,' ]*", text.filter(bad)[0]):
            advice += ", or name their decimal mark with --decimal"
        if not schema.freq and name not in schema.target_columns:
            advice += f", or pass --categorical {name} if its cells are words"
        raise row_fault("text", where, "numbers", text, bad, advice, table.place)
    return numbers


def _in_words(text: pl.Series, words: Names) -> pl.Series:
    """Returns categories in the words of a model: where it lacks 4.4 or 7, they are its 4.40 or its 007."""
    cells = text.cast(pl.Float64, strict=False)
    values = pl.Series(words, dtype=pl.String).cast(pl.Float64, strict=False)
    named = dict(zip(values, words, strict=True))
    same = cells.replace_strict(named, default=None, return_dtype=pl.String)
    return text.zip_with(text.is_in(words) | cells.is_null(), same.fill_null(text))


def read_times(
    table: Table, schema: Schema, time_format: str | None, *, same_clock: bool
) -> tuple[Table, Schema, pl.Series]:
    """Returns the table and the schema with how times are written, and the times as int64.

    Args:
        schema: names the column; without one, times are zeros. Its format is tried first.
        time_format: the declared format, which every value must follow.
        same_clock: the schema has the facts of the column already, and the column must agree.

    Raises:
        DataError: a time is missing or unreadable, or of another kind or zone than known so far.
    """
    if schema.time is None:
        return table, schema, pl.zeros(table.frame.height, dtype=pl.Int64, eager=True).alias(TIME)
    column, where = table.frame[schema.time], f"{table.name}, column '{schema.time}'"
    if column.null_count():
        expected, missing = "a time in every row", column.is_null()
        raise row_fault("time", where, expected, column, missing, "fill it in", table.place)
    digits = column.dtype.is_numeric() and (schema.time_dtype != "integer" or time_format is not None)
    hint = time_format or schema.time_format
    if digits and hint is None:
        hint = integer_format(column, where)
    if table.times is None and (column.dtype == pl.String or (digits and hint)):
        there = schema.time_zone if schema.local else None
        table = table.with_times(schema.time, hint, strict=time_format is not None, zone=there)
        column = table.frame[schema.time]
    dtype: TimeDtype
    if table.times is not None:
        time_format, dtype = table.times.time_format, "digits" if table.times.digits else "string"
        if table.kind == "file":
            dtype = "datetime" if has_clock(time_format) else "date"
    elif column.dtype.is_integer():
        dtype = "integer"
    elif column.dtype in (pl.Date, pl.Datetime):
        dtype = "date" if column.dtype == pl.Date else "datetime"
    else:
        text = f"{where}: expected dates, timestamps or whole numbers, found {column.dtype}"
        advice = "name the right column with --time, or pass --time-format year/12 where it holds decimal years"
        raise fault("time", text, advice, where=schema.time)
    zone, unit = (getattr(column.dtype, name, None) for name in ("time_zone", "time_unit"))
    if unit == "ns" and (finer := column.to_physical() % 1000 != 0).any():
        cells = column.to_physical().cast(pl.String) + " ns since 1970"
        expected, advice = "times in whole microseconds", "round the column to microseconds"
        raise row_fault("time", where, expected, cells, finer, advice, table.place)
    if same_clock and (schema.time_dtype == "integer") != (dtype == "integer"):
        kinds = ["integers" if kind == "integer" else "dates" for kind in (schema.time_dtype, dtype)]
        text = f"{where}: expected {kinds[0]}, as in the table or the model, found {kinds[1]}"
        raise fault("time", text, "name the right column with --time", where=schema.time)
    if schema.local:
        if zone is not None or time_format in EPOCHS:
            text = f"{where}: expected times of clocks in {schema.time_zone}, found {column[0]}"
            raise fault("zones", text, "leave out --time-zone, or write local times", where=schema.time)
        frame, by = table.frame, {*schema.key_columns, "cutoff", "channel"} - {schema.time}
        local, zone = column, schema.time_zone
        column = instants(local, str(zone), frame.select(by.intersection(frame.columns)))
        if (skipped := column.is_null()).any():
            expected, advice = f"times that clocks in {zone} show", "delete the row"
            raise row_fault(
                "zones", where, expected, local.cast(pl.String), skipped, advice, table.place
            )
    if same_clock and schema.time_zone != zone:
        names = [f"time zone {name}" if name else "no time zone" for name in (schema.time_zone, zone)]
        text = f"{where}: expected {names[0]}, found {names[1]}"
        raise fault("zones", text, "convert the column", where=schema.time)
    if dtype == "integer":
        return table, replace(schema, time_dtype=dtype), column.cast(pl.Int64).alias(TIME)
    times = column.dt.epoch("us").alias(TIME)
    schema = replace(schema, time_dtype=dtype, time_unit=unit, time_zone=zone, time_format=time_format)
    return table, schema, times


def _check_key(table: Table, key: str) -> None:
    cells, where = table.frame[key], f"{table.name}: column '{key}'"
    if cells.dtype.is_nested() or cells.dtype in (pl.Object, pl.Binary):
        text = f"{where}: expected text or numbers as ids, found {cells.dtype}"
        raise fault("keys", text, "write them as text, or as one column for each part", where=key)
    if cells.null_count():
        expected = "a series in every row"
        advice = "fill it in, or name other key columns with --series"
        raise row_fault("keys", where, expected, cells, cells.is_null(), advice, table.place)


def _melted(frame: pl.DataFrame, channels: Sequence[str], table: Table) -> pl.DataFrame:
    rest = without(frame.columns, channels)
    taken = common(rest, ("channel", "value"))
    if taken:
        made = f"{table.name}: layout long makes the columns 'channel' and 'value'"
        text = f"{made}, but '{taken[0]}' is a covariate"
        raise fault("names", text, "rename it", where=taken[0])
    # A channel may have one of the new names.
    names = {"variable_name": "\0channel", "value_name": "\0value"}
    long = frame.unpivot(on=channels, index=rest, **names)
    return long.rename({new: new.lstrip("\0") for new in names.values()})


def row_number(target: Sequence[str]) -> pl.Expr:
    """Numbers the rows of a series, so that its last observed target is row 0."""
    cells = (pl.col(name).cast(pl.Float64, strict=False) for name in target)
    observed = pl.any_horizontal(cell.fill_nan(None).is_not_null() for cell in cells)
    position = pl.int_range(pl.len(), dtype=pl.Int64)
    last = pl.when(observed).then(position).max().fill_null(pl.len().cast(pl.Int64) - 1)
    return position - last


# Rows that repeat


@dataclass(frozen=True)
class _RowSource:
    """The table that rows came from, to name them in messages."""

    table: Table
    schema: Schema
    keys: pl.DataFrame
    """Keys of the numbered series."""
    prefix: str = ""
    """The table's name before a finding, where it is not the main one."""

    def series_name(self, number: int) -> str:
        return series_name(self.keys, number)

    def stamp(self, row: int) -> str:
        """Returns the time of a row as the caller wrote it; empty where rows have none."""
        if self.schema.time is None or self.schema.time not in self.table.frame.columns:
            return ""
        stamp = self.table.frame[self.schema.time][row : row + 1]
        written = self.table.times
        return str((stamp if written is None else write_times(stamp, written.time_format))[0])

    def missing_keys(self, repeats: pl.Series) -> str:
        """Returns the advice for rows that repeat where clocks change, or that differ in other columns."""
        rows = self.table.frame[repeats.explode().unique().sort()]
        keys = common(self.keys.columns, rows.columns)
        used = [*keys, *([self.schema.time] if self.schema.time in rows.columns else [])]
        local = len(used) > len(keys) and self.schema.time_zone is None
        if local and (zone := changed_clock(rows[used[-1]])):
            return (
                f"it looks like local time where clocks change, as in {zone}: pass --time-zone {zone}"
            )
        taken = (*used, *self.schema.target, *date_like(rows))
        ids = [
            column.name
            for column in rows
            if column.dtype in TEXT or (column.dtype.is_integer() and names_series(column.name))
        ]
        free = without(ids, taken)[:8]
        for chosen in (*itertools.combinations(free, 1), *itertools.combinations(free, 2)):
            if rows.n_unique([*used, *chosen]) >= 0.99 * rows.height:
                names = " and ".join(f"'{name}'" for name in chosen)
                return f"they differ in column {names}: add --series {','.join((*keys, *chosen))}"
        return ""


def _without_repeats(
    frame: pl.DataFrame, order: Order, source: _RowSource, mode: str
) -> tuple[pl.DataFrame, list[Finding]]:
    """Returns one row per series and time (per series where rows have no time), and findings.

    Args:
        frame: rows in this order; `_ROW` is their number in the table where any moved or repeat.
        order: by series, and by time where rows have times.
        source: of these rows.
        mode: for rows of one place that disagree. mean: the mean of numbers, the last category; last:
            the last row; error: an error is among the findings. sum: copies count too, targets are
            added up, and all else becomes what mean makes of it.
    """
    found = []
    late = np.flatnonzero(order.overtaken)
    if len(late):
        where = source.table.place(frame[_ROW][int(late[0])] + 1)
        text = (
            f"{source.prefix}{len(late):,} of {frame.height:,} rows come after the row that follows them "
            "in time; all were sorted"
        )
        advice, moved = "nothing to do: the order of rows does not matter", frame[SERIES][int(late[0])]
        found.append(
            Finding("note", "order", text, advice, source.series_name(moved), where, len(late))
        )
    if not order.repeated.any():
        return frame, found
    by = common(_AT, frame.columns)
    again = pl.Series(order.repeated)
    several = again | again.shift(-1, fill_value=False)
    values, numbers = cs.exclude(*by, _ROW), cs.float()
    kept = [values.last()]
    summed = cs.by_name(*source.schema.target, require_all=False) if mode == "sum" else cs.by_name()
    if mode in ("mean", "sum"):
        # A sum of nothing is missing, not 0.
        total = pl.when(summed.count() > 0).then(summed.sum())
        kept = [total, (numbers - summed).mean(), (values - numbers).drop_nulls().last()]
    # NaN is a missing number, and equal to another one.
    rows = frame.filter(several).with_columns(numbers.fill_nan(None))
    groups = rows.group_by(by, maintain_order=True).agg(
        *kept,
        pl.col(_ROW).last(),
        pl.col(_ROW).alias("\0rows"),
        pl.any_horizontal(pl.lit(mode == "sum"), values.n_unique() > 1).alias("\0differs"),
    )
    result = pl.concat([frame.filter(~several), groups.select(frame.columns)]).sort(by)
    return result, found + _repeats_found(groups, frame.height, source, mode)


def _repeats_found(groups: pl.DataFrame, height: int, source: _RowSource, mode: str) -> list[Finding]:
    """Returns findings on the keys that have several rows: copies, and those that disagree."""
    found = []
    for differs in (False, True):
        repeats = groups.filter(pl.col("\0differs") == differs)
        if not repeats.height:
            continue
        rows, name = repeats["\0rows"][0].to_list(), source.series_name(repeats[SERIES][0])
        where = ", ".join(source.table.place(row + 1) for row in rows[:2])
        total, places = int(repeats["\0rows"].list.len().sum()), repeats.height
        severity: Severity = "warning"
        missing = source.missing_keys(repeats["\0rows"])
        advice = "drop the copies, name the series with --series COLUMN"
        advice = missing or f"{advice}, or add them up with --on-duplicates sum"
        if not differs:
            total -= places
            text = (
                f"{source.prefix}{total:,} of {height:,} rows are copies of another row of their series "
                "and time; each was kept once"
            )
        elif mode != "error":
            severity, advice = "note", f"as --on-duplicates {mode} sets"
            disagreed = "" if mode == "sum" else " and disagreed"
            text = (
                f"{source.prefix}{total:,} of {height:,} rows shared {places:,} places in time{disagreed}; "
                f"the {mode} of each place was kept"
            )
        else:
            severity, key, at = "error", "series", ""
            if TIME in repeats.columns:
                key, at = "series and time", f" at {source.stamp(rows[0])}"
            text = (
                f"{source.table.name}: expected one row per {key}, found {len(rows)} that disagree{at} "
                f"in {f'series {name!r}' if name else 'all rows'} ({where}; {total} such rows in all)"
            )
            advice = missing or "name the series with --series COLUMN"
            advice += ", or settle it with --on-duplicates mean, sum or last"
        found.append(Finding(severity, "duplicates", text, advice, name, where, total))
    return found


# Second tables


def with_covariates(rows: Rows, table: Table, data: DataConfig) -> Rows:
    """Returns the rows with the columns of a second table, joined on the keys they share.

    A table without times holds one row per series. One that lacks a series key is shared by all
    series. Rows before a series' first row are dropped, others added where absent.
    """
    schema = rows.schema
    here = {*rows.frame.columns, *schema.series}
    names = without(schema.covariates, here)
    refuse_errors(missing_columns(names, table.frame.columns, table.name, "a covariate"))
    timed = schema.time is not None and schema.time in table.frame.columns
    extra, notes, _ = _keyed(rows, table, names, data, timed=timed)
    if timed:
        frame = _joined(rows.frame, extra)
    else:
        frame = rows.frame.join(extra.drop(_ROW), on=SERIES, how="left", maintain_order="left")
    return replace(rows, frame=frame, notes=(*rows.notes, *notes))


def with_future(rows: Rows, table: Table, data: DataConfig) -> Rows:
    """Returns the rows with a future table's rows added; of its columns only known ones are read.

    Its targets are not read: they would move the cutoff. Where (series, time) is in both tables, the
    values have to agree.
    """
    schema, columns = rows.schema, table.frame.columns
    statics = common(schema.static, columns) if rows.n_new else []
    names = common(schema.known, columns)
    # Others are given by later rows of the covariates, or missing.
    filled = [column.name for column in rows.frame if column.null_count() < len(column)]
    lacking = without(schema.known, (*names, *filled))
    missing = missing_columns(lacking, columns, table.name, "a known covariate")
    if schema.time is not None:
        missing += missing_columns([schema.time], columns, table.name, "the time column")
    refuse_errors(missing)
    extra, notes, source = _keyed(rows, table, [*names, *statics], data, timed=True)
    new = pl.col(SERIES) >= rows.keys.height - rows.n_new
    extra = extra.with_columns(pl.when(new).then(pl.col(statics)))
    notes += [*_overlap(rows, extra.filter(~new), source), *_unread_targets(table, schema)]
    return replace(rows, frame=_joined(rows.frame, extra), notes=(*rows.notes, *notes))


def with_new_series(rows: Rows, table: Table, data: DataConfig) -> Rows:
    """Returns the rows with an empty row for each of a future table whose series only that table has.

    None begins where series are channels, or rows have no times.
    """
    names, schema = rows.keys.columns, rows.schema
    if not {schema.time, *names} <= {*table.frame.columns} or schema.pivots or not names:
        return rows
    ids = [ids_as(table.with_ids(names), key, rows.keys[key].dtype) for key in names]
    new = pl.DataFrame(ids).drop_nulls().unique().join(rows.keys, on=names, how="anti").sort(names)
    if new.is_empty():
        return rows
    keys = pl.concat([rows.keys, new])
    begun = replace(rows, keys=keys, n_new=new.height)
    extra = _keyed(begun, table, (), data, timed=True)[0].filter(pl.col(SERIES) >= rows.keys.height)
    names = [series_name(new, number) for number in range(new.height)]
    series = f"{number_of(new.height, 'series', 'series')} that the table lacks"
    text = f"{extra.height:,} rows of {table.name} begin {series}: {listing(names, _NAMED)}"
    advice = "check the names: a typing error looks the same"
    note = Finding("warning", "keys", text, advice, names[0], count=extra.height)
    frame = pl.concat([rows.frame, extra.select(_AT)], how="diagonal")
    return replace(begun, frame=frame, notes=(*rows.notes, note))


def _joined(frame: pl.DataFrame, extra: pl.DataFrame) -> pl.DataFrame:
    first = frame.group_by(SERIES).agg(pl.col(TIME).min().alias("\0first"))
    extra = extra.join(first, on=SERIES).filter(pl.col(TIME) >= pl.col("\0first")).drop("\0first", _ROW)
    both = without(common(extra.columns, frame.columns), _AT)
    joined = frame.join(extra, on=_AT, how="full", coalesce=True, suffix="\0new")
    joined = joined.with_columns(pl.coalesce(name, f"{name}\0new") for name in both)
    return joined.drop(f"{name}\0new" for name in both).sort(_AT)


def _keyed(
    rows: Rows, table: Table, names: Sequence[str], data: DataConfig, *, timed: bool
) -> tuple[pl.DataFrame, list[Finding], _RowSource]:
    """Returns (series number, time, names) of a second table, for the series of the first."""
    schema = rows.schema
    shared = common(rows.keys.columns, table.frame.columns)
    table = table.with_ids(shared)
    columns, parts, faults = [], [], Faults()
    table, schema, read = _with_numbers(table, schema, data)
    for name in names:
        with faults:
            columns.append(_read_values(table, name, schema))
    for key in shared:
        with faults:
            parts.append(ids_as(table, key, rows.keys[key].dtype))
    if timed:
        with faults:
            table, _, times = read_times(table, schema, None, same_clock=True)
            parts.append(times)
    elif not shared:
        keys = ", ".join((*schema.series, schema.time or ""))
        text = f"{table.name}: expected a column of the keys {keys} to join on"
        raise fault("keys", text, f"found {listing(table.frame.columns)}")
    faults.refuse()
    frame = pl.DataFrame(parts).with_columns(columns).with_row_index(_ROW)
    if timed and schema.time is None:
        # Rows after the end, in their order: 1, 2, ...
        count = pl.int_range(1, pl.len() + 1)
        frame = frame.with_columns((count.over(shared) if shared else count).alias(TIME))
    notes = []
    if shared:
        index = rows.keys.select(shared).with_row_index(SERIES)
        foreign = frame.join(index, on=shared, how="anti")[_ROW]
        frame = frame.join(index, on=shared, how="inner", maintain_order="left").drop(shared)
        notes = _foreign_rows(table, shared, foreign)
    else:
        numbers = pl.int_range(max(rows.keys.height, 1), dtype=pl.UInt32, eager=True).alias(SERIES)
        frame = frame.join(pl.DataFrame([numbers]), how="cross", maintain_order="left")
    if frame.height == 0 and table.frame.height:
        text = f"{table.name}: none of its {table.frame.height} rows is of a series in the table"
        raise fault("keys", text, f"compare the values of {', '.join(shared)}")
    source = _RowSource(table, schema, rows.keys, f"{table.name}: ")
    time = frame[TIME].to_numpy() if timed else np.zeros(frame.height, np.int64)
    order = find_order(frame.select(SERIES), time)
    # It has no targets to add up.
    mode = "mean" if data.on_duplicates == "sum" else data.on_duplicates
    frame, repeats = _without_repeats(order.placed(frame), order, source, mode)
    return frame, read + notes + repeats, source


def _foreign_rows(table: Table, shared: Sequence[str], rows: pl.Series) -> list[Finding]:
    """Returns a warning where rows of a second table are of series that the first lacks."""
    if rows.is_empty():
        return []
    found = table.frame[rows].select(pl.concat_str(shared, separator="/", ignore_nulls=True))
    names = found.to_series().unique(maintain_order=True).to_list()
    some = f"{len(rows):,} of {table.frame.height:,} rows of {table.name}"
    series = f"{number_of(len(names), 'series', 'series')} that the table lacks"
    text = f"{some} are of {series}, and left out: {listing(names, _NAMED)}"
    advice = f"compare the values of {', '.join(shared)}"
    where = table.place(int(rows[0]) + 1)
    return [Finding("warning", "keys", text, advice, names[0], where, len(rows))]


def ids_as(table: Table, key: str, dtype: pl.DataType) -> pl.Series:
    """Returns the ids of a second table in the kind of the first's; null where none there can equal it.

    Raises:
        DataError: whole numbers are given as floats that may have been rounded.
    """
    column = table.frame[key]
    if column.dtype in TEXT:
        column = column.cast(pl.String)
    if column.dtype.is_float() and dtype.is_integer():
        exact = 2**24 if column.dtype == pl.Float32 else 2**53
        bad = ((column % 1 != 0) | (column.abs() >= exact)) & column.is_not_null()
        if bad.any():
            where, advice = f"{table.name}: column '{key}'", "give them as whole numbers or as text"
            raise row_fault("keys", where, "ids as in the table", column, bad, advice, table.place)
    ids = column.cast(dtype, strict=False)
    return ids if dtype == pl.String else ids.set(ids.cast(column.dtype, strict=False) != column, None)


def _overlap(rows: Rows, extra: pl.DataFrame, source: _RowSource) -> list[Finding]:
    """Returns errors where a future table contradicts the table, or a note where it repeats it."""
    names = without(common(extra.columns, rows.frame.columns), _AT)
    both = extra.join(rows.frame.select(*_AT, *names), on=_AT, how="inner", suffix="\0was").sort(_AT)
    if not both.height or not names:
        return []
    found = []
    for name in names:
        new, old = pl.col(name), pl.col(f"{name}\0was")
        differs, digits = new != old, ""
        if both[name].dtype.is_float():
            scale = pl.max_horizontal(new.abs(), old.abs())
            differs, digits = (new - old).abs().fill_nan(None) > _CLOSE * scale, "g"
        bad = both.filter(differs)
        if bad.height:
            number, row, now, was = bad.select(SERIES, _ROW, new, old).row(0)
            series, stamp, place = (
                source.series_name(number),
                source.stamp(row),
                source.table.place(row + 1),
            )
            text = (
                f"{source.table.name}: expected the values of the table of the past where they overlap, "
                f"found '{name}' = {now:{digits}} instead of {was:{digits}}{stamp and f' at {stamp}'}"
                f"{series and f' in series {series!r}'} ({place}; {bad.height} such cells)"
            )
            advice = "correct one of the two, or drop the future rows that lie in the past"
            found.append(Finding("error", "future", text, advice, series, place, bad.height))
    if found:
        return found
    number, row = both.select(SERIES, _ROW).row(0)
    text = (
        f"{both.height:,} of {extra.height:,} rows of {source.table.name} are in the table too, and agree "
        "with it"
    )
    series, where = source.series_name(number), source.stamp(row)
    return [Finding("note", "future", text, "nothing to do", series, where, both.height)]


def _unread_targets(table: Table, schema: Schema) -> list[Finding]:
    found, advice = [], "to forecast after them, add these rows to the table of the past"
    for name in common(schema.target_columns, table.frame.columns):
        if count := table.frame[name].count():
            text = f"{table.name} holds {count} values of the target '{name}', which are not read"
            found.append(Finding("note", "future", text, advice, where=name, count=count))
    return found
