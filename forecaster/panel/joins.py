"""Second tables join the rows: covariates by the keys they share, future rows after the end.

What comes in are rows of the table itself and another table; what goes out are the rows with its
columns or rows added, and findings. Where a future table overlaps the past it has to agree with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from forecaster.config import DataConfig
from forecaster.panel.cells import SERIES, TIME, parsed_table, read_times, read_values
from forecaster.panel.findings import Faults, Finding, fault
from forecaster.panel.repeats import Origin, once, ordered, settled
from forecaster.panel.roles import require_columns
from forecaster.panel.rows import Rows
from forecaster.panel.schema import Schema
from forecaster.panel.table import Table, listing

_AT = [SERIES, TIME]
_CLOSE = 1e-5
"""Relative difference up to which two tables agree: they may round differently."""


def with_covariates(rows: Rows, table: Table, data: DataConfig) -> Rows:
    """Returns the rows with the columns of a second table, joined on the keys they share.

    A table without times holds one row per series. One that lacks a series key is shared by all
    series it does not name. Rows before a series' first row are dropped, others added where absent.
    """
    schema = rows.schema
    here = {*rows.frame.columns, *schema.series}
    names = [name for name in (*schema.past, *schema.known, *schema.static) if name not in here]
    require_columns(names, table.frame.columns, table.name, "a covariate")
    timed = schema.time is not None and schema.time in table.frame.columns
    extra, notes, _ = _keyed(rows, table, names, data, timed=timed)
    rows = replace(rows, notes=(*rows.notes, *notes))
    if not timed:
        frame = rows.frame.join(extra, on=SERIES, how="left", maintain_order="left")
        return replace(rows, frame=frame)
    return replace(rows, frame=_merged(rows.frame, extra))


def with_future(rows: Rows, table: Table, data: DataConfig) -> Rows:
    """Returns the rows with a future table's rows added; of its columns only known ones count.

    Targets in it are not read: they would move the cutoff. Where (series, time) is in both tables,
    the values have to agree.
    """
    schema = rows.schema
    names = [name for name in schema.known if name in table.frame.columns]
    faults = Faults()
    for name in schema.known:
        # Given by the covariates' later rows, or missing.
        ahead = name in rows.frame.columns and rows.frame[name].null_count() < rows.frame.height
        if name not in names and not ahead:
            with faults:
                require_columns([name], table.frame.columns, table.name, "a known covariate")
    if schema.time is not None:
        with faults:
            require_columns([schema.time], table.frame.columns, table.name, "the time column")
    faults.refuse()
    extra, notes, origin = _keyed(rows, table, names, data, timed=True)
    notes += [*_overlap(rows, extra, origin), *_unread_targets(table, schema)]
    return replace(rows, frame=_merged(rows.frame, extra), notes=(*rows.notes, *notes))


def _merged(frame: pl.DataFrame, extra: pl.DataFrame) -> pl.DataFrame:
    first = frame.group_by(SERIES).agg(pl.col(TIME).min().alias("\0first"))
    extra = extra.join(first, on=SERIES).filter(pl.col(TIME) >= pl.col("\0first")).drop("\0first")
    both = [name for name in extra.columns if name in frame.columns and name not in _AT]
    joined = frame.join(extra, on=_AT, how="full", coalesce=True, suffix="\0new")
    joined = joined.with_columns(pl.coalesce(name, f"{name}\0new") for name in both)
    return joined.drop(f"{name}\0new" for name in both).sort(_AT)


def _keyed(
    rows: Rows, table: Table, names: Sequence[str], data: DataConfig, *, timed: bool
) -> tuple[pl.DataFrame, list[Finding], Origin]:
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
            parts.append(read_times(parsed_table(table, schema), schema, same_clock=True)[1])
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
    origin = Origin(table, schema.time, given, rows.keys, is_main=False)
    frame = given.with_columns(columns)
    numbers = pl.int_range(max(rows.keys.height, 1), dtype=pl.UInt32, eager=True).alias(SERIES)
    index = rows.keys.select(shared).with_columns(numbers) if shared else pl.DataFrame([numbers])
    if shared:
        frame = frame.join(index, on=shared, how="inner", maintain_order="left").drop(shared)
    else:
        frame = frame.join(index, how="cross", maintain_order="left")
    frame = frame.sort(SERIES, maintain_order=True)
    if frame.height == 0 and table.frame.height:
        raise fault(
            "keys",
            f"{table.name}: none of its {table.frame.height} rows is of a series in the table",
            f"compare the values of {', '.join(shared)}",
        )
    if not timed:
        return *once(frame, [SERIES], origin, data.on_duplicates), origin
    return *settled(*ordered(frame), origin, data.on_duplicates), origin


def _overlap(rows: Rows, extra: pl.DataFrame, origin: Origin) -> list[Finding]:
    """Returns an error where a future table contradicts the table, or a note where it repeats it."""
    names = [name for name in extra.columns if name in rows.frame.columns and name not in _AT]
    left = rows.frame.select(*_AT, *names)
    both = extra.join(left, on=_AT, how="inner", suffix="\0was").sort(_AT)
    if not both.height or not names:
        return []
    found = []
    for name in names:
        new, old = both[name], both[f"{name}\0was"]
        if new.dtype.is_float():
            scale = pl.max_horizontal(pl.col(name).abs(), pl.col(f"{name}\0was").abs())
            apart = both.select(
                (pl.col(name) - pl.col(f"{name}\0was")).abs().fill_nan(None) > _CLOSE * scale
            )
            bad = apart.to_series().fill_null(False).arg_true()
        else:
            bad = (new != old).fill_null(False).arg_true()
        if len(bad):
            at = int(bad[0])
            number = both[SERIES][at]
            row = origin.rows(number, both[TIME][at])[0]
            label, stamp = origin.label(number), origin.stamp(row)
            found.append(
                Finding(
                    "error",
                    "future",
                    f"{origin.table.name}: expected what the table of the past says where they "
                    f"overlap, found '{name}' = {new[at]:{_digits(new)}} instead of "
                    f"{old[at]:{_digits(old)}}{stamp and f' at {stamp}'}"
                    f"{label and f' in series {label!r}'} ({origin.place(row)}; {len(bad)} such "
                    "cells)",
                    "correct one of the two, or drop the future rows that lie in the past",
                    series=label,
                    where=origin.place(row),
                    count=len(bad),
                )
            )
    if found:
        return found
    number = both[SERIES][0]
    return [
        Finding(
            "note",
            "future",
            f"{both.height:,} of {extra.height:,} rows of {origin.table.name} are in the table too, "
            "and agree with it",
            "nothing needs doing",
            series=origin.label(number),
            where=origin.stamp(origin.rows(number, both[TIME][0])[0]),
            count=both.height,
        )
    ]


def _unread_targets(table: Table, schema: Schema) -> list[Finding]:
    given = [name for name in schema.melted or schema.target if name in table.frame.columns]
    filled = {name: table.frame.height - table.frame[name].null_count() for name in given}
    return [
        Finding(
            "note",
            "future",
            f"{table.name} holds {count} values of the target '{name}', which are not read",
            "to forecast after them, add these rows to the table of the past",
            where=name,
            count=count,
        )
        for name, count in filled.items()
        if count
    ]


def _digits(column: pl.Series) -> str:
    return "g" if column.dtype.is_float() else ""
