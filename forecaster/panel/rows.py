"""Tables become sorted rows: series numbered, times as int64, covariates and future rows merged.

What comes in are tables and a schema; what goes out is one frame sorted by (series, time) with the
columns `SERIES` (number of the series in key order) and `TIME`, and the key of every series. The
order of the caller's rows never matters, except where rows are numbered because there is no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from forecaster.errors import DataError
from forecaster.panel.read import Table, listing
from forecaster.panel.roles import require_columns
from forecaster.panel.schema import Schema
from forecaster.panel.stamps import parse_times

# No caller's column is called so.
SERIES, TIME = "\0series", "\0time"
_AT = [SERIES, TIME]


@dataclass(frozen=True)
class Rows:
    """Rows sorted by (series, time)."""

    frame: pl.DataFrame
    """`SERIES`, `TIME`, then numbers as Float32 and categories as text."""
    keys: pl.DataFrame
    """Key columns, one row per series; no columns where there is one series without a key."""
    schema: Schema
    """With the facts of the time column filled in."""


def main_rows(table: Table, schema: Schema) -> Rows:
    """Returns the rows of the table itself.

    Raises:
        DataError: a key or time is missing or unreadable, a number is text, or rows repeat.
    """
    # A schema with a frequency is that of a model: its clock must be this table's.
    schema, times = _read_times(table, schema, same_clock=bool(schema.freq))
    targets = schema.melted or schema.target
    wanted = (*targets, *schema.past, *schema.known, *schema.static)
    own = [name for name in dict.fromkeys(wanted) if name in table.frame.columns]
    keys = [] if schema.melted else list(schema.series)
    columns = [_values(table, name, schema) for name in own]
    frame = pl.DataFrame([*(table.frame[key] for key in keys), times, *columns])
    _refuse_missing_keys(frame, keys, table)
    if schema.melted:
        rest = [name for name in frame.columns if name not in schema.melted]
        taken = [name for name in rest if name in ("channel", "value")]
        if taken:
            raise DataError(
                f"{table.name}: layout long makes the columns 'channel' and 'value', but "
                f"'{taken[0]}' is a covariate; rename it"
            )
        frame = frame.unpivot(
            on=schema.melted, index=rest, variable_name="\0channel", value_name="\0value"
        ).rename({"\0channel": "channel", "\0value": "value"})
        keys = ["channel"]
    frame, key_rows = _numbered_series(frame, keys)
    if schema.time is None:
        frame = _numbered_rows(frame, schema.target)
    elif not frame.select(_in_order().all()).item():
        frame = frame.sort(_AT)
        _refuse_repeats(frame, key_rows, table, schema)
    return Rows(frame, key_rows, replace(schema, dtypes=_dtypes(table, schema)))


def with_covariates(rows: Rows, table: Table) -> Rows:
    """Returns the rows with the columns of a second table, joined on the keys they share.

    A table without times holds one row per series. One that lacks a series key is shared by all
    series it does not name. Rows before a series' first row are dropped, others added where absent.
    """
    schema = rows.schema
    here = {*rows.frame.columns, *schema.series}
    names = [name for name in (*schema.past, *schema.known, *schema.static) if name not in here]
    require_columns(names, table.frame.columns, table.name, "a covariate")
    timed = schema.time is not None and schema.time in table.frame.columns
    extra = _keyed(rows, table, names, timed=timed)
    if not timed:
        frame = rows.frame.join(extra, on=SERIES, how="left", maintain_order="left")
        return replace(rows, frame=frame)
    return replace(rows, frame=_merged(rows.frame, extra))


def with_future(rows: Rows, table: Table) -> Rows:
    """Returns the rows with a future table's rows added; of its columns only known ones count.

    Targets in it are not read: they would move the cutoff. Where (series, time) is in both tables,
    the values already there win.
    """
    schema = rows.schema
    names = [name for name in schema.known if name in table.frame.columns]
    for name in schema.known:
        # Given by the covariates' later rows, or missing.
        ahead = name in rows.frame.columns and rows.frame[name].null_count() < rows.frame.height
        if name not in names and not ahead:
            require_columns([name], table.frame.columns, table.name, "a known covariate")
    if schema.time is not None:
        require_columns([schema.time], table.frame.columns, table.name, "the time column")
    return replace(rows, frame=_merged(rows.frame, _keyed(rows, table, names, timed=True)))


def _merged(frame: pl.DataFrame, extra: pl.DataFrame) -> pl.DataFrame:
    first = frame.group_by(SERIES).agg(pl.col(TIME).min().alias("\0first"))
    extra = extra.join(first, on=SERIES).filter(pl.col(TIME) >= pl.col("\0first")).drop("\0first")
    both = [name for name in extra.columns if name in frame.columns and name not in _AT]
    joined = frame.join(extra, on=_AT, how="full", coalesce=True, suffix="\0new")
    joined = joined.with_columns(pl.coalesce(name, f"{name}\0new") for name in both)
    return joined.drop(f"{name}\0new" for name in both).sort(_AT)


def _keyed(rows: Rows, table: Table, names: Sequence[str], *, timed: bool) -> pl.DataFrame:
    """Returns (series number, time, names) of a second table, for the series of the first."""
    schema = rows.schema
    shared = [key for key in rows.keys.columns if key in table.frame.columns]
    columns = [_values(table, name, schema) for name in names]
    parts = [table.frame[key].cast(rows.keys[key].dtype, strict=False) for key in shared]
    if timed:
        parts.append(_read_times(table, schema, same_clock=True)[1])
    elif not shared:
        raise DataError(
            f"{table.name}: expected a column of the keys "
            f"{', '.join((*schema.series, schema.time or ''))} to join on, "
            f"found {listing(table.frame.columns)}"
        )
    frame = pl.DataFrame([*parts, *columns])
    numbers = pl.int_range(max(rows.keys.height, 1), dtype=pl.UInt32, eager=True).alias(SERIES)
    index = rows.keys.select(shared).with_columns(numbers) if shared else pl.DataFrame([numbers])
    if shared:
        frame = index.join(frame, on=shared, how="inner").drop(shared)
    else:
        frame = index.join(frame, how="cross")
    if frame.height == 0:
        raise DataError(
            f"{table.name}: none of its {table.frame.height} rows is of a series in the table; "
            f"compare the values of {', '.join(shared)}"
        )
    if timed and schema.time is None:
        # Rows after the end, in their order: 1, 2, ...
        frame = frame.with_columns(pl.int_range(1, pl.len() + 1).over(SERIES).alias(TIME))
    if timed:
        frame = frame.sort(_AT)
        _refuse_repeats(frame, rows.keys, table, schema)
    elif frame[SERIES].n_unique() < frame.height:
        raise DataError(
            f"{table.name}: expected one row per {', '.join(shared)}, found "
            f"{frame.height} rows for {frame[SERIES].n_unique()} series; add its time column "
            f"'{schema.time}', or drop the repeats"
        )
    return frame


def _read_times(table: Table, schema: Schema, *, same_clock: bool) -> tuple[Schema, pl.Series]:
    """Returns the schema with the column's facts, and its times as int64."""
    if schema.time is None:
        return schema, pl.zeros(table.frame.height, dtype=pl.Int64, eager=True).alias(TIME)
    column = table.frame[schema.time]
    where = f"{table.name}, column '{schema.time}'"
    zone, unit, time_format = None, None, None
    if column.dtype == pl.String:
        column, time_format = parse_times(column, where, schema.time_format)
        dated = "H" not in time_format
        dtype = "string" if table.kind != "file" else "date" if dated else "datetime"
    elif column.null_count():
        row = int(column.is_null().arg_true()[0]) + 1
        raise DataError(f"{where}: expected a time in every row, found none in row {row}; fill it in")
    else:
        dtype = "date" if column.dtype == pl.Date else "datetime"
        dtype = "integer" if column.dtype.is_integer() else dtype
    if isinstance(column.dtype, pl.Datetime):
        zone, unit = column.dtype.time_zone, column.dtype.time_unit
    if same_clock:
        _refuse_other_clock(schema, dtype, zone, where)
    if dtype == "integer":
        return replace(schema, time_dtype=dtype), column.cast(pl.Int64).alias(TIME)
    facts = {"time_unit": unit, "time_zone": zone, "time_format": time_format}
    times = column.cast(pl.Datetime("us", zone)).to_physical().alias(TIME)
    return replace(schema, time_dtype=dtype, **facts), times  # type: ignore[arg-type]


def _refuse_other_clock(schema: Schema, dtype: str, zone: str | None, where: str) -> None:
    expected = "integers" if schema.time_dtype == "integer" else "dates"
    found = "integers" if dtype == "integer" else "dates"
    if expected != found:
        raise DataError(f"{where}: expected {expected}, as known so far, found {found}")
    if schema.time_zone != zone:
        names = [f"time zone {name}" if name else "no time zone" for name in (schema.time_zone, zone)]
        raise DataError(f"{where}: expected {names[0]}, found {names[1]}; convert the column")


def _values(table: Table, name: str, schema: Schema) -> pl.Series:
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
        raise DataError(
            f"{table.name}: column '{name}': expected numbers, found '{column[int(bad[0])]}' in row "
            f"{int(bad[0]) + 1} ({len(bad)} such rows); write numbers, or leave the cell empty"
        )
    raise DataError(f"{table.name}: column '{name}': expected numbers, found {column.dtype}")


def _numbered_series(frame: pl.DataFrame, keys: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the rows with the number of their series, in blocks, and the keys in sorted order."""
    if not keys:
        return frame.with_columns(pl.lit(0, dtype=pl.UInt32).alias(SERIES)), pl.DataFrame()
    # Categories sort by their text, so that their order in memory never shows.
    by = [
        pl.col(key).cast(pl.String) if frame[key].dtype in (pl.Categorical, pl.Enum) else pl.col(key)
        for key in keys
    ]
    new = pl.lit(False)
    for key in keys:
        new = new | pl.col(key).ne_missing(pl.col(key).shift(1))
    starts = frame.select((new | (pl.int_range(pl.len()) == 0)).alias("new"))["new"]
    if int(starts.sum() or 0) * 2 <= frame.height + 1:
        blocks = frame.select(keys).filter(starts)
        if blocks.equals(blocks.unique().sort(by)):
            number = (starts.cast(pl.UInt32).cum_sum() - 1).alias(SERIES)
            return frame.drop(keys).with_columns(number), blocks
    unique = frame.select(keys).unique().sort(by)
    numbered = frame.join(unique.with_row_index(SERIES), on=keys, how="left", maintain_order="left")
    return numbered.drop(keys).sort(SERIES, maintain_order=True), unique


def _numbered_rows(frame: pl.DataFrame, target: Sequence[str]) -> pl.DataFrame:
    observed = pl.any_horizontal(pl.col(name).fill_nan(None).is_not_null() for name in target)
    position = pl.int_range(pl.len(), dtype=pl.Int64)
    last = pl.when(observed).then(position).max().fill_null(pl.len().cast(pl.Int64) - 1)
    return frame.with_columns((position - last).over(SERIES).alias(TIME))


def _in_order() -> pl.Expr:
    later = pl.col(TIME) > pl.col(TIME).shift(1)
    return (later | (pl.col(SERIES) != pl.col(SERIES).shift(1))).fill_null(True)


def _refuse_missing_keys(frame: pl.DataFrame, keys: list[str], table: Table) -> None:
    for key in keys:
        if frame[key].null_count():
            row = int(frame[key].is_null().arg_true()[0]) + 1
            raise DataError(
                f"{table.name}: column '{key}': expected a series in every row, found none in row {row}"
            )


def _refuse_repeats(frame: pl.DataFrame, keys: pl.DataFrame, table: Table, schema: Schema) -> None:
    """Refuses (series, time) that occur twice in sorted rows, naming the first and its row numbers."""
    repeated = frame.select((~_in_order()).alias("same"))["same"]
    if not repeated.any():
        return
    at = int(repeated.arg_true()[0])
    number, time = frame[SERIES][at], frame[TIME][at]
    label = "all rows"
    given = table.frame.with_columns(_read_times(table, schema, same_clock=False)[1])
    given = given.with_row_index("\0row", offset=1).filter(pl.col(TIME) == time)
    if keys.width:
        values = keys.row(number)
        label = "series '" + "/".join(str(value) for value in values) + "'"
        for key, value in zip(keys.columns, values, strict=True):
            if key in given.columns:
                given = given.filter(pl.col(key).cast(pl.String) == str(value))
    column = schema.time or "time"
    stamp = given[column][0] if column in given.columns else time
    rows = ", ".join(str(row) for row in given["\0row"][:2])
    raise DataError(
        f"{table.name}: expected one row per series and time, found {given.height} at {stamp} in "
        f"{label} (rows {rows}; {int(repeated.sum())} repeats in all); "
        "name the series with --series COLUMN, or drop the repeats"
    )


def _dtypes(table: Table, schema: Schema) -> dict[str, str]:
    names = () if schema.melted else schema.series
    return {name: str(table.frame[name].dtype) for name in names}
