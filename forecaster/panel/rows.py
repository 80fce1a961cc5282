"""Tables become rows sorted by (series, time): repeated rows merged, covariates and future rows joined.

Rows of one series and time that agree in every column with a role become one row in any case; others as
`on_duplicates` sets. Nothing loops over series. The order of the caller's rows matters only where rows
are numbered for lack of a time column, and for `on_duplicates: last`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from forecaster.config import DataConfig
from forecaster.panel.cells import (
    SERIES,
    TIME,
    mixed_offsets,
    parsed_table,
    read_times,
    read_values,
    require_keys,
)
from forecaster.panel.findings import Faults, Finding, fault
from forecaster.panel.order import Order, find_order
from forecaster.panel.roles import check_columns
from forecaster.panel.schema import Schema
from forecaster.panel.table import Table, listing

Ints = NDArray[np.int64]

_AT = [SERIES, TIME]
_CLOSE = 1e-5
"""Relative difference up to which two tables agree: they may round differently."""


@dataclass(frozen=True)
class Rows:
    """Rows sorted by (series, time)."""

    frame: pl.DataFrame
    """`SERIES` (number in the order of keys), `TIME`, numbers as Float32, categories as text."""
    keys: pl.DataFrame
    """Key columns, one row per series; no columns where there is one series without a key."""
    schema: Schema
    """With the facts of the time column filled in."""
    notes: tuple[Finding, ...] = ()
    """Findings so far; errors too, so that all faults of rows are reported at once."""

    def layout(self) -> tuple[Ints, Ints]:
        """Returns the times of rows, and the first row of each series with the number of rows last."""
        # Rows are sorted by series: a search for its ends is faster than a count of its rows.
        series = np.arange(max(self.keys.height, 1) + 1, dtype=np.uint32)
        indptr = np.searchsorted(self.frame[SERIES].to_numpy(), series).astype(np.int64)
        return self.frame[TIME].to_numpy(), indptr


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
    wanted = (*(schema.melted or schema.target), *schema.past, *schema.known, *schema.static)
    keys = [] if schema.melted else list(schema.series)
    columns, faults = [], Faults()
    with faults:
        # A schema with a frequency is that of a model: its kind of times must be this table's.
        table = parsed_table(table, schema, data.time_format)
        schema, times = read_times(table, schema, same_clock=bool(schema.freq))
    with faults:
        require_keys(table, keys)
    for name in dict.fromkeys(wanted):
        if name in table.frame.columns:
            with faults:
                columns.append(read_values(table, name, schema))
    faults.refuse()
    frame = pl.DataFrame([*(table.frame[key] for key in keys), times, *columns])
    if schema.melted:
        frame, keys = _melted(frame, schema.melted, table), ["channel"]
    given = frame.select(*keys, TIME)
    if order is None or schema.melted:
        order = find_order(given.select(keys), given[TIME].to_numpy())
    frame = order.placed(frame.drop(*keys, TIME))
    frame = frame.with_columns(pl.Series(TIME, order.time), pl.Series(SERIES, order.number))
    notes = mixed_offsets(table)
    if schema.time is None:
        frame = _numbered(frame, schema.target)
    else:
        source = _RowSource(table, schema.time, given, order.keys)
        frame, found = _without_repeats(frame, order, source, data.on_duplicates)
        notes += found
    dtypes = {name: str(table.frame[name].dtype) for name in keys if not schema.melted}
    return Rows(frame, order.keys, replace(schema, dtypes=dtypes), tuple(notes))


def _melted(frame: pl.DataFrame, channels: Sequence[str], table: Table) -> pl.DataFrame:
    rest = [name for name in frame.columns if name not in channels]
    taken = [name for name in rest if name in ("channel", "value")]
    if taken:
        raise fault(
            "names",
            f"{table.name}: layout long makes the columns 'channel' and 'value', but '{taken[0]}' is "
            "a covariate",
            "rename it",
            where=taken[0],
        )
    return frame.unpivot(
        on=channels, index=rest, variable_name="\0channel", value_name="\0value"
    ).rename({"\0channel": "channel", "\0value": "value"})


def _numbered(frame: pl.DataFrame, target: Sequence[str]) -> pl.DataFrame:
    """Numbers the rows of each series, so that its last observed target is row 0."""
    observed = pl.any_horizontal(pl.col(name).fill_nan(None).is_not_null() for name in target)
    position = pl.int_range(pl.len(), dtype=pl.Int64)
    last = pl.when(observed).then(position).max().fill_null(pl.len().cast(pl.Int64) - 1)
    return frame.with_columns((position - last).over(SERIES).alias(TIME))


# Rows that repeat


@dataclass(frozen=True)
class _RowSource:
    """The table that rows came from, to name them in messages."""

    table: Table
    time: str | None
    given: pl.DataFrame
    """The table's rows in its own order: key columns, and `TIME` where the table has times."""
    keys: pl.DataFrame
    """Keys of the numbered series."""
    prefix: str = ""
    """The table's name before a finding, where it is not the main one."""

    def rows(self, number: int, time: int | None) -> list[int]:
        """Returns the rows (counted from 0) that hold a series at a time."""
        at = np.arange(self.given.height)
        if time is not None:
            at = np.flatnonzero(self.given[TIME].to_numpy() == time)
        found = self.given[at].with_columns(pl.Series("\0row", at))
        shared = [key for key in self.keys.columns if key in self.given.columns]
        if shared:
            found = found.join(self.keys.slice(number, 1).select(shared), on=shared, how="semi")
        # Channels that were made series repeat the table's rows.
        return [row % self.table.frame.height for row in found["\0row"].sort().to_list()]

    def label(self, number: int) -> str:
        """Returns the name of a series; empty where there is one without a key."""
        return "/".join(str(value) for value in self.keys.row(number)) if self.keys.width else ""

    def stamp(self, row: int) -> str:
        """Returns the time of a row as the caller wrote it; empty where rows have none."""
        if self.time is None or self.time not in self.table.frame.columns:
            return ""
        stamp = self.table.frame[self.time][row : row + 1]
        return str((stamp if self.table.times is None else self.table.times.written(stamp, row))[0])

    def place(self, row: int) -> str:
        """Returns a row (counted from 0) as messages name it."""
        return self.table.place(row + 1)


def _without_repeats(
    frame: pl.DataFrame, order: Order, source: _RowSource, mode: str
) -> tuple[pl.DataFrame, list[Finding]]:
    """Returns rows strictly rising in (series, time), and findings; `frame` is in this order."""
    found = []
    late = np.flatnonzero(order.overtaken)
    if len(late):
        number, time = frame[SERIES][int(late[0])], frame[TIME][int(late[0])]
        where = source.place(source.rows(number, time)[-1])
        text = (
            f"{source.prefix}{len(late):,} of {frame.height:,} rows come after the row that follows them "
            "in time; all were sorted"
        )
        advice = "nothing to do: the order of rows does not matter"
        found.append(Finding("note", "order", text, advice, source.label(number), where, len(late)))
    if not order.repeated.any():
        return frame, found
    frame, more = _one_per_key(frame, _AT, source, mode)
    return frame, found + more


def _one_per_key(
    frame: pl.DataFrame, by: Sequence[str], source: _RowSource, mode: str
) -> tuple[pl.DataFrame, list[Finding]]:
    """Returns one row per key, and findings on the others.

    Args:
        frame: sorted by the key; rows of one key in the table's order.
        by: `SERIES`, and `TIME` where rows have times.
        source: of these rows.
        mode: for rows of one key that disagree. mean: the mean of numbers, the last category; last:
            the last row; error: an error is among the findings.
    """
    values = [name for name in frame.columns if name not in by]
    cells = [_cell(frame, name) for name in values]
    repeat = frame.select(pl.all_horizontal(_as_before(by))).to_series().to_numpy()
    if not repeat.any():
        return frame, []
    agree = frame.select(cells).select(pl.all_horizontal([pl.lit(True), *_as_before(values)]))
    starts = np.flatnonzero(~repeat)
    ends = np.append(starts[1:], frame.height) - 1
    size = ends - starts + 1
    differs = np.logical_or.reduceat(repeat & ~agree.to_series().to_numpy(), starts)
    kept = frame[ends]
    if mode == "mean" and differs.any():
        several = frame.filter(pl.Series(np.repeat(differs, size)))
        means = several.group_by(by).agg(_mean(frame, name) for name in values)
        kept = pl.concat([kept.filter(pl.Series(~differs)), means.select(kept.columns)]).sort(by)
    found = []
    if (size[~differs] > 1).any():
        found.append(_copies(frame, starts, np.where(differs, 1, size), source))
    if differs.any():
        found.append(_conflicts(frame, starts, np.where(differs, size, 1), source, mode))
    return kept, found


def _cell(frame: pl.DataFrame, name: str) -> pl.Expr:
    # NaN is a missing number, and equal to another one.
    return pl.col(name).fill_nan(None) if frame[name].dtype.is_float() else pl.col(name)


def _as_before(names: Sequence[str]) -> list[pl.Expr]:
    first = pl.int_range(pl.len()) == 0
    return [pl.col(name).eq_missing(pl.col(name).shift(1)) & ~first for name in names]


def _mean(frame: pl.DataFrame, name: str) -> pl.Expr:
    given = _cell(frame, name).drop_nulls()
    numbers = frame[name].dtype.is_float()
    return given.cast(pl.Float64).mean().cast(pl.Float32) if numbers else given.last()


def _copies(frame: pl.DataFrame, starts: Ints, size: Ints, source: _RowSource) -> Finding:
    label, _, where = _first_repeat(frame, starts, size, source)
    count = int((size - 1).sum())
    text = (
        f"{source.prefix}{count:,} of {frame.height:,} rows are copies of another row of their series "
        "and time; each was kept once"
    )
    advice = "drop the copies, or name the series with --series COLUMN"
    return Finding("warning", "duplicates", text, advice, label, where, count)


def _conflicts(frame: pl.DataFrame, starts: Ints, size: Ints, source: _RowSource, mode: str) -> Finding:
    label, rows, where = _first_repeat(frame, starts, size, source)
    total, places = int(size[size > 1].sum()), int((size > 1).sum())
    if mode != "error":
        kept = "the mean of" if mode == "mean" else "the last of"
        text = (
            f"{source.prefix}{total:,} of {frame.height:,} rows shared {places:,} places in time and "
            f"disagreed; {kept} each place was kept"
        )
        advice = f"as --on-duplicates {mode} sets"
        return Finding("note", "duplicates", text, advice, label, where, total)
    key, stamp = "series", ""
    if TIME in frame.columns:
        key, stamp = "series and time", f" at {source.stamp(rows[0])}"
    text = (
        f"{source.table.name}: expected one row per {key}, found {len(rows)} that disagree{stamp} "
        f"in {f'series {label!r}' if label else 'all rows'} ({where}; {total} such rows in all)"
    )
    advice = "name the series with --series COLUMN, or settle it with --on-duplicates mean or last"
    return Finding("error", "duplicates", text, advice, label, where, total)


def _first_repeat(
    frame: pl.DataFrame, starts: Ints, size: Ints, source: _RowSource
) -> tuple[str, list[int], str]:
    """Returns the series of the first key with several rows, its rows in the table, and two of them."""
    at = int(starts[np.flatnonzero(size > 1)[0]])
    number = int(frame[SERIES][at])
    rows = source.rows(number, int(frame[TIME][at]) if TIME in frame.columns else None)
    return source.label(number), rows, ", ".join(source.place(row) for row in rows[:2])


# Second tables


def with_covariates(rows: Rows, table: Table, data: DataConfig) -> Rows:
    """Returns the rows with the columns of a second table, joined on the keys they share.

    A table without times holds one row per series. One that lacks a series key is shared by all
    series. Rows before a series' first row are dropped, others added where absent.
    """
    schema = rows.schema
    here = {*rows.frame.columns, *schema.series}
    names = [name for name in (*schema.past, *schema.known, *schema.static) if name not in here]
    check_columns(names, table.frame.columns, table.name, "a covariate")
    timed = schema.time is not None and schema.time in table.frame.columns
    extra, notes, _ = _keyed(rows, table, names, data, timed=timed)
    if timed:
        frame = _joined(rows.frame, extra)
    else:
        frame = rows.frame.join(extra, on=SERIES, how="left", maintain_order="left")
    return replace(rows, frame=frame, notes=(*rows.notes, *notes))


def with_future(rows: Rows, table: Table, data: DataConfig) -> Rows:
    """Returns the rows with a future table's rows added; of its columns only known ones are read.

    Its targets are not read: they would move the cutoff. Where (series, time) is in both tables, the
    values have to agree.
    """
    schema = rows.schema
    names = [name for name in schema.known if name in table.frame.columns]
    faults = Faults()
    for name in schema.known:
        # Given by later rows of the covariates, or missing.
        given = name in rows.frame.columns and rows.frame[name].null_count() < rows.frame.height
        if name not in names and not given:
            with faults:
                check_columns([name], table.frame.columns, table.name, "a known covariate")
    if schema.time is not None:
        with faults:
            check_columns([schema.time], table.frame.columns, table.name, "the time column")
    faults.refuse()
    extra, notes, source = _keyed(rows, table, names, data, timed=True)
    notes += [*_overlap(rows, extra, source), *_unread_targets(table, schema)]
    return replace(rows, frame=_joined(rows.frame, extra), notes=(*rows.notes, *notes))


def _joined(frame: pl.DataFrame, extra: pl.DataFrame) -> pl.DataFrame:
    first = frame.group_by(SERIES).agg(pl.col(TIME).min().alias("\0first"))
    extra = extra.join(first, on=SERIES).filter(pl.col(TIME) >= pl.col("\0first")).drop("\0first")
    both = [name for name in extra.columns if name in frame.columns and name not in _AT]
    joined = frame.join(extra, on=_AT, how="full", coalesce=True, suffix="\0new")
    joined = joined.with_columns(pl.coalesce(name, f"{name}\0new") for name in both)
    return joined.drop(f"{name}\0new" for name in both).sort(_AT)


def _keyed(
    rows: Rows, table: Table, names: Sequence[str], data: DataConfig, *, timed: bool
) -> tuple[pl.DataFrame, list[Finding], _RowSource]:
    """Returns (series number, time, names) of a second table, for the series of the first."""
    schema = rows.schema
    shared = [key for key in rows.keys.columns if key in table.frame.columns]
    columns, faults = [], Faults()
    for name in names:
        with faults:
            columns.append(read_values(table, name, schema))
    parts = [table.frame[key].cast(rows.keys[key].dtype, strict=False) for key in shared]
    if timed:
        with faults:
            table = parsed_table(table, schema)
            parts.append(read_times(table, schema, same_clock=True)[1])
    elif not shared:
        raise fault(
            "keys",
            f"{table.name}: expected a column of the keys "
            f"{', '.join((*schema.series, schema.time or ''))} to join on",
            f"found {listing(table.frame.columns)}",
        )
    faults.refuse()
    given = pl.DataFrame(parts)
    if timed and schema.time is None:
        # Rows after the end, in their order: 1, 2, ...
        count = pl.int_range(1, pl.len() + 1)
        given = given.with_columns((count.over(shared) if shared else count).alias(TIME))
    source = _RowSource(table, schema.time, given, rows.keys, f"{table.name}: ")
    frame = given.with_columns(columns)
    numbers = pl.int_range(max(rows.keys.height, 1), dtype=pl.UInt32, eager=True).alias(SERIES)
    index = rows.keys.select(shared).with_columns(numbers) if shared else pl.DataFrame([numbers])
    if shared:
        frame = frame.join(index, on=shared, how="inner", maintain_order="left").drop(shared)
    else:
        frame = frame.join(index, how="cross", maintain_order="left")
    if frame.height == 0 and table.frame.height:
        raise fault(
            "keys",
            f"{table.name}: none of its {table.frame.height} rows is of a series in the table",
            f"compare the values of {', '.join(shared)}",
        )
    frame = frame.sort(SERIES, maintain_order=True)
    if not timed:
        return *_one_per_key(frame, [SERIES], source, data.on_duplicates), source
    order = find_order(frame.select(SERIES), frame[TIME].to_numpy())
    return *_without_repeats(order.placed(frame), order, source, data.on_duplicates), source


def _overlap(rows: Rows, extra: pl.DataFrame, source: _RowSource) -> list[Finding]:
    """Returns errors where a future table contradicts the table, or a note where it repeats it."""
    names = [name for name in extra.columns if name in rows.frame.columns and name not in _AT]
    left = rows.frame.select(*_AT, *names)
    both = extra.join(left, on=_AT, how="inner", suffix="\0was").sort(_AT)
    if not both.height or not names:
        return []
    found = []
    for name in names:
        was = f"{name}\0was"
        new, old = pl.col(name), pl.col(was)
        differs, digits = new != old, ""
        if both[name].dtype.is_float():
            scale = pl.max_horizontal(new.abs(), old.abs())
            differs, digits = (new - old).abs().fill_nan(None) > _CLOSE * scale, "g"
        bad = both.select(differs).to_series().fill_null(False).arg_true()
        if len(bad):
            at = int(bad[0])
            number = both[SERIES][at]
            row = source.rows(number, both[TIME][at])[0]
            label, stamp, place = source.label(number), source.stamp(row), source.place(row)
            text = (
                f"{source.table.name}: expected the values of the table of the past where they overlap, "
                f"found '{name}' = {both[name][at]:{digits}} instead of {both[was][at]:{digits}}"
                f"{stamp and f' at {stamp}'}{label and f' in series {label!r}'} ({place}; {len(bad)} such "
                "cells)"
            )
            advice = "correct one of the two, or drop the future rows that lie in the past"
            found.append(Finding("error", "future", text, advice, label, place, len(bad)))
    if found:
        return found
    number = both[SERIES][0]
    where = source.stamp(source.rows(number, both[TIME][0])[0])
    text = (
        f"{both.height:,} of {extra.height:,} rows of {source.table.name} are in the table too, and agree "
        "with it"
    )
    label = source.label(number)
    return [Finding("note", "future", text, "nothing to do", label, where, both.height)]


def _unread_targets(table: Table, schema: Schema) -> list[Finding]:
    found, advice = [], "to forecast after them, add these rows to the table of the past"
    for name in schema.melted or schema.target:
        if name in table.frame.columns and (count := table.frame[name].count()):
            text = f"{table.name} holds {count} values of the target '{name}', which are not read"
            found.append(Finding("note", "future", text, advice, where=name, count=count))
    return found
