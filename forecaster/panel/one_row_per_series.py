"""Layout "rows": a table with one row per series, as the M4 files, becomes a long table.

Columns whose names are dates hold the values, and these are the times; all others name a series or are
static. Without such names, columns that name a series (text at the front, or declared) come first, then the
values from left to right, empty where the series has ended, and rows are numbered. Empty cells after the
last value of a series are no rows; those before it are missing values.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import polars as pl
import polars.selectors as cs

from forecaster.config import DataConfig
from forecaster.errors import ConfigError
from forecaster.panel.findings import fault, row_fault
from forecaster.panel.frames import TEXT, Table
from forecaster.panel.names import common, without
from forecaster.panel.numbers import known_text
from forecaster.panel.schema import Names
from forecaster.panel.timestamps import date_names

_MIN_VALUE_COLUMNS = 5


def has_series_rows(frame: pl.DataFrame) -> bool:
    """Whether every row looks like a whole series: text that names it, then many numbers."""
    front = _front(frame, ())
    values = frame.drop(front)
    return (
        len(front) > 0
        and values.width >= _MIN_VALUE_COLUMNS
        and all(dtype.is_numeric() or dtype == pl.Null for dtype in values.dtypes)
        and not frame.select(front).is_duplicated().any()
    )


def to_long(
    table: Table, data: DataConfig, series: Names | None, static: Names, value: str
) -> tuple[Table, DataConfig]:
    """Returns the table with one row per value, and the roles of its columns.

    Args:
        series: columns that name a series; None = the fewest that differ in every row, text before whole
            numbers. Of several, one may be empty: that is a name too.
        static: declared columns.
        value: name of the new column.

    Raises:
        DataError: a value is not a number, nothing names the series, or two rows have the same name.
        ConfigError: a time column is declared.
    """
    if data.time not in (None, "row"):
        raise ConfigError(
            f"--time {data.time}: layout rows has no column of times; they are dates in the header, or "
            "rows are numbered"
        )
    frame = table.frame
    dates = date_names(frame.columns, data.time_format, declared=True)
    front = _front(frame, (*(series or ()), *static))
    if dates:
        front = without(frame.columns, dates)
    values = frame.select(dates) if dates else frame.drop(front)
    if not front or not values.width:
        found = "no text" if values.width else "no values"
        text = f"{table.name}: layout rows expects text that names the series, then their values"
        advice = "name the series with --series COLUMN, or drop --layout"
        raise fault("layout", f"{text}; found {found}", advice)
    if not series:
        others = frame.select(front).drop(static)
        ids = [*others.select(pl.col(*TEXT)).columns, *others.select(cs.integer()).columns]
        sets = (names for size in (1, 2, 3) for names in itertools.combinations(ids, size))
        unique = (names for names in sets if not others.select(names).is_duplicated().any())
        series = next(unique, tuple(ids))
    _check_unique_series(table, series)
    if len(series) > 1:
        frame = frame.with_columns(pl.col(series).fill_null(""))
    numbers = _numbers(table, values)
    filled = ~np.isnan(numbers)
    length = np.where(filled.any(axis=1), values.width - filled[:, ::-1].argmax(axis=1), 1)
    inside = np.arange(values.width) < length[:, None]
    row, column = np.nonzero(inside)
    long = frame.select(front)[row]
    if dates:
        long = long.with_columns(pl.Series("time", values.columns)[column])
    long = long.with_columns(pl.Series(value, numbers[inside], nan_to_null=True))
    roles = {"time": "time" if dates else "row", "series": series, "target": (value,)}
    marks = {*table.marks.values()}
    kept = {value: marks.pop()} if len(marks) == 1 else {}
    table = replace(table, frame=long, numbers=pl.Series(row + 1), text=None, marks=kept)
    return table, data.model_copy(update=roles)


def rows_reasons(time: str | None, series: Names, target: Names) -> dict[str, str]:
    """Returns the reasons for the roles of the columns that `to_long` makes."""
    reasons = dict.fromkeys(series, "names a row, which is a whole series")
    reasons |= dict.fromkeys(target, "the values of every row")
    return reasons if time is None else reasons | {time: "the names of the value columns"}


def _front(frame: pl.DataFrame, declared: Names) -> list[str]:
    """Returns the declared columns and the columns of text before the first other one."""
    rest = [column for column in frame if column.name not in declared]
    others = (k for k, c in enumerate(rest) if c.dtype not in TEXT or c.null_count() == len(c))
    text = {column.name for column in rest[: next(others, len(rest))]}
    return common(frame.columns, (*declared, *text))


def _check_unique_series(table: Table, series: Names) -> None:
    keys = table.frame.select(series)
    repeated = keys.is_duplicated().arg_true().to_list()
    if repeated:
        first = keys.row(repeated[0])
        rows = [table.place(row + 1) for row in repeated if keys.row(row) == first][:2]
        name = "/".join(str(part) for part in first)
        text = f"{table.name}: expected one row per series, found '{name}' in {' and '.join(rows)}"
        advice = "name the series with --series A,B, or drop the repeats"
        raise fault("duplicates", text, advice, series=name)


def _numbers(table: Table, values: pl.DataFrame) -> np.ndarray:
    columns = []
    for column in values:
        known = known_text(column) if column.dtype == pl.String else column
        numbers = known.cast(pl.Float64, strict=False)
        bad = numbers.is_null() & known.is_not_null()
        if bad.any():
            where = f"{table.name}: column '{column.name}'"
            advice = (
                "write numbers or leave the cell empty; name columns that are no values with --static"
            )
            raise row_fault("numbers", where, "numbers", column, bad, advice, table.place)
        columns.append(numbers)
    return pl.DataFrame(columns).to_numpy()
