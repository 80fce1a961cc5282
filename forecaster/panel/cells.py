"""Columns of a table, of any dtype, become Float32, categories as text, or int64 times.

A cell that is none of these is named with its row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from forecaster.panel.findings import Faults, Finding, fault
from forecaster.panel.schema import Schema
from forecaster.panel.table import Table
from forecaster.panel.timestamps import WrittenTimes, has_clock, integer_format, parse_times

# No table has columns of these names.
SERIES, TIME = "\0series", "\0time"


def read_values(table: Table, name: str, schema: Schema) -> pl.Series:
    """Returns a column as Float32, or as text where it is a category."""
    column = table.frame[name]
    if name in schema.categorical:
        text = column.cast(pl.String)
        if column.dtype.is_float():
            # A gap makes a frame's whole numbers floats; 3.0 and 3 are one category.
            text = text.str.replace(r"\.0$", "")
        if column.dtype == pl.String:
            # TRUE, True and true are one thing in three programs.
            lower = text.str.to_lowercase()
            text = text.zip_with(~lower.is_in(["true", "false"]).fill_null(False), lower)
        return text
    if column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null):
        return column.cast(pl.Float32)
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        numbers = column.cast(pl.String).cast(pl.Float64, strict=False)
        bad = (numbers.is_null() & column.is_not_null()).arg_true()
        if not len(bad):
            return numbers.cast(pl.Float32)
        found, row = column[int(bad[0])], table.place(int(bad[0]) + 1)
        marks = re.fullmatch(r"[\d.,' +-]*\d[.,][\d.,' ]*", found) is not None
        raise fault(
            "text",
            f"{table.name}: column '{name}': expected numbers, found '{found}' in {row} ({len(bad)} "
            "such rows)",
            "write numbers, or leave the cell empty"
            + ", or name their decimal mark with --decimal" * marks,
            where=f"{name}, {row}",
            count=len(bad),
        )
    raise fault(
        "text",
        f"{table.name}: column '{name}': expected numbers, found {column.dtype}",
        "give it as numbers, or leave the column out",
        where=name,
    )


def parsed_table(table: Table, schema: Schema, time_format: str | None = None) -> Table:
    """Returns the table with its column of times as timestamps, where it is text or dates in digits.

    Args:
        schema: names the column; its format is tried first.
        time_format: the declared format, which every value must follow.

    Raises:
        DataError: the column does not hold times that can be read in one way.
    """
    name = schema.time
    if name is None or table.times is not None:
        return table
    column, integer = table.frame[name], table.frame[name].dtype.is_integer()
    if column.dtype != pl.String and not integer:
        return table
    if integer and schema.time_dtype == "integer" and time_format is None:
        return table
    hint = time_format or schema.time_format
    if integer and hint is None:
        hint = integer_format(column, f"{table.name}, column '{name}'")
    return parse_time_column(table, name, hint, strict=time_format is not None)


def parse_time_column(table: Table, name: str, time_format: str | None, *, strict: bool) -> Table:
    """Returns the table with a column of text or digits as timestamps: see `parse_times`."""
    column = table.frame[name]
    text = column.cast(pl.String)
    stamps, found = parse_times(text, f"{table.name}, column '{name}'", time_format, strict=strict)
    # Text takes four times the memory of timestamps. It is kept only where offsets from UTC vary.
    kept = text if found.endswith("%:z") else None
    times = WrittenTimes(found, digits=column.dtype.is_integer(), text=kept)
    return replace(table, frame=table.frame.with_columns(stamps.alias(name)), times=times)


def read_times(table: Table, schema: Schema, *, same_clock: bool) -> tuple[Schema, pl.Series]:
    """Returns the schema with the facts of its time column, and the times as int64.

    Args:
        table: with parsed times, see `parsed_table`.
        schema: names the column; without one, times are zeros.
        same_clock: the schema has the facts already, and the column must agree.

    Raises:
        DataError: a time is missing or unreadable, or of another kind or zone than known so far.
    """
    if schema.time is None:
        return schema, pl.zeros(table.frame.height, dtype=pl.Int64, eager=True).alias(TIME)
    column = table.frame[schema.time]
    where = f"{table.name}, column '{schema.time}'"
    zone, unit, time_format = None, None, None
    counted = column.dtype.is_integer()
    if table.times is not None:
        time_format, dtype = table.times.time_format, "digits" if table.times.digits else "string"
        if table.kind == "file":
            dtype = "datetime" if has_clock(time_format) else "date"
    elif not counted and column.dtype not in (pl.Date, pl.Datetime):
        raise fault(
            "time",
            f"{where}: expected dates, timestamps or whole numbers, found {column.dtype}",
            "name the right column with --time",
            where=str(schema.time),
        )
    elif column.null_count():
        row = table.place(int(column.is_null().arg_true()[0]) + 1)
        raise fault(
            "time",
            f"{where}: expected a time in every row, found none in {row} ({column.null_count()} such "
            "rows)",
            "fill it in",
            where=row,
            count=column.null_count(),
        )
    else:
        dtype = "date" if column.dtype == pl.Date else "datetime"
        dtype = "integer" if counted else dtype
    if isinstance(column.dtype, pl.Datetime):
        zone, unit = column.dtype.time_zone, column.dtype.time_unit
        _check_microseconds(column, table, where)
    if same_clock:
        _check_same_clock(schema, dtype, zone, where)
    if dtype == "integer":
        return replace(schema, time_dtype=dtype), column.cast(pl.Int64).alias(TIME)
    facts = {"time_unit": unit, "time_zone": zone, "time_format": time_format}
    times = column.cast(pl.Datetime("us", zone)).to_physical().alias(TIME)
    return replace(schema, time_dtype=dtype, **facts), times  # type: ignore[arg-type]


def mixed_offsets(table: Table) -> list[Finding]:
    """Returns a note where text times carry several offsets from UTC (a clock change is two)."""
    column = None if table.times is None else table.times.text
    if column is None:
        return []
    offsets = column.str.extract(r"(Z|[+-]\d{2}:?\d{2})$")
    kinds = offsets.unique(maintain_order=True).drop_nulls()
    if len(kinds) < 2:
        return []
    others = (offsets != kinds[0]).arg_true()
    shown = ", ".join(kinds[:4]) + ", ..." * (len(kinds) > 4)
    text = f"times in '{column.name}' are written with {len(kinds)} offsets from UTC: {shown}"
    advice, where = "nothing to do: all are read as UTC", table.place(int(others[0]) + 1)
    return [Finding("note", "zones", text, advice, where=where, count=len(others))]


def require_keys(table: Table, keys: Sequence[str]) -> None:
    """Raises DataError with a line per key column with empty cells."""
    faults = Faults()
    for key in keys:
        empty = table.frame[key].is_null()
        if empty.any():
            row = table.place(int(empty.arg_true()[0]) + 1)
            with faults:
                raise fault(
                    "keys",
                    f"{table.name}: column '{key}': expected a series in every row, found none in "
                    f"{row} ({int(empty.sum())} such rows)",
                    "fill it in, or name other key columns with --series",
                    where=f"{key}, {row}",
                    count=int(empty.sum()),
                )
    faults.refuse()


def _check_microseconds(column: pl.Series, table: Table, where: str) -> None:
    """Raises DataError for timestamps finer than microseconds: they would be cut."""
    if column.dtype != pl.Datetime("ns", column.dtype.time_zone):  # type: ignore[attr-defined]
        return
    finer = column.to_physical() % 1000 != 0
    if finer.any():
        row = int(finer.arg_true()[0])
        raise fault(
            "time",
            f"{where}: expected times in whole microseconds, found {column.to_physical()[row]} ns "
            f"since 1970 in {table.place(row + 1)} ({int(finer.sum())} such rows)",
            "round the column to microseconds",
            where=table.place(row + 1),
            count=int(finer.sum()),
        )


def _check_same_clock(schema: Schema, dtype: str, zone: str | None, where: str) -> None:
    expected = "integers" if schema.time_dtype == "integer" else "dates"
    found = "integers" if dtype == "integer" else "dates"
    if expected != found:
        raise fault(
            "time",
            f"{where}: expected {expected}, as in the table or the model, found {found}",
            "name the right column with --time",
            where=str(schema.time),
        )
    if schema.time_zone != zone:
        names = [f"time zone {name}" if name else "no time zone" for name in (schema.time_zone, zone)]
        raise fault(
            "zones",
            f"{where}: expected {names[0]}, found {names[1]}",
            "convert the column",
            where=str(schema.time),
        )
