"""Layout "rows": a table in which every row is a whole series becomes a long one.

What comes in: the columns that name a series (text, at the front, or declared), then its values from
left to right, empty where it has ended: the files of the M4 competition. What goes out: one row per
value, with the columns that came first repeated and the value in `value`. Where the names of the value
columns are dates, those are the times; otherwise rows are numbered and there is no clock. Empty cells
after the last value of a series are no rows, empty cells before it are missing values.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from forecaster.config import DataConfig
from forecaster.errors import ConfigError
from forecaster.panel.findings import fault
from forecaster.panel.numbers import MISSING
from forecaster.panel.table import Table
from forecaster.panel.timestamps import guess_formats

LEAST_VALUES = 5
"""Columns of numbers from which on a table may be one of rows that are series."""
_TEXT = (pl.String, pl.Categorical, pl.Enum)


def looks_rolled(frame: pl.DataFrame) -> bool:
    """Whether every row looks like a whole series: text that names it, then many numbers."""
    front = _front(frame, ())
    values = frame.drop(front)
    return (
        len(front) > 0
        and values.width >= LEAST_VALUES
        and all(dtype.is_numeric() or dtype == pl.Null for dtype in values.dtypes)
        and not frame.select(front).is_duplicated().any()
    )


def unroll(
    table: Table, data: DataConfig, series: tuple[str, ...] | None, value: str
) -> tuple[Table, DataConfig]:
    """Returns the table with one row per value, and the roles of its columns.

    Args:
        table: one row per series.
        data: declared roles.
        series: columns that name a series; None = the first that is different in every row, or all
            that come before the values.
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
    front = _front(frame, (*(series or ()), *(data.static or ())))
    values = frame.drop(front)
    if not front or not values.width:
        raise fault(
            "layout",
            f"{table.name}: layout rows expects text that names the series, then their values; found "
            + ("no text" if values.width else "no values"),
            "name the series with --series COLUMN, or drop --layout",
        )
    series = series or _naming(frame, front)
    _refuse_same(table, series)
    numbers = _numbers(table, values)
    filled = ~np.isnan(numbers)
    length = np.where(filled.any(axis=1), values.width - filled[:, ::-1].argmax(axis=1), 1)
    inside = np.arange(values.width) < length[:, None]
    owner, place = np.nonzero(inside)
    long = frame.select(front)[owner]
    dated = bool(guess_formats(pl.Series(values.columns)))
    if dated:
        long = long.with_columns(pl.Series("time", values.columns)[place])
    long = long.with_columns(pl.Series(value, numbers[inside], nan_to_null=True))
    roles = {"time": "time" if dated else "row", "series": series, "target": (value,)}
    return replace(table, frame=long, parts=()), data.model_copy(update=roles)


def rows_reasons(time: str | None, series: tuple[str, ...], target: tuple[str, ...]) -> dict[str, str]:
    """Returns why the columns of an unrolled table have their roles, in the reader's words."""
    reasons = dict.fromkeys(series, "names a row, which is a whole series")
    reasons |= dict.fromkeys(target, "the values of every row")
    return reasons if time is None else reasons | {time: "the names of the value columns"}


def _front(frame: pl.DataFrame, declared: tuple[str, ...]) -> list[str]:
    """Returns the declared columns and the columns of text before the first other one."""
    rest = [column for column in frame if column.name not in declared]
    others = (k for k, c in enumerate(rest) if c.dtype not in _TEXT or c.null_count() == len(c))
    text = {column.name for column in rest[: next(others, len(rest))]}
    return [name for name in frame.columns if name in declared or name in text]


def _naming(frame: pl.DataFrame, front: list[str]) -> tuple[str, ...]:
    alone = (name for name in front if frame[name].is_unique().all())
    return next(((name,) for name in alone), tuple(front))


def _refuse_same(table: Table, series: tuple[str, ...]) -> None:
    keys = table.frame.select(series)
    again = keys.is_duplicated()
    if again.any():
        first = int(again.arg_true()[0])
        rows = keys.with_row_index("\0row").filter(again & _equal(keys, first))["\0row"][:2]
        label = "/".join(str(part) for part in keys.row(first))
        raise fault(
            "duplicates",
            f"{table.name}: expected one row per series, found '{label}' in "
            + " and ".join(table.place(int(row) + 1) for row in rows),
            "name the series with --series A,B, or drop the repeats",
            series=label,
        )


def _equal(keys: pl.DataFrame, row: int) -> pl.Series:
    same = [keys[name].eq_missing(keys[name][row]) for name in keys.columns]
    return (
        pl.DataFrame({str(k): part for k, part in enumerate(same)})
        .select(pl.all_horizontal(pl.all()))
        .to_series()
    )


def _numbers(table: Table, values: pl.DataFrame) -> np.ndarray:
    columns = []
    for column in values:
        numbers = column.cast(pl.Float64, strict=False)
        bad = numbers.is_null() & column.is_not_null()
        if column.dtype == pl.String:
            bad &= ~column.str.strip_chars().is_in(MISSING)
        if bad.any():
            row = int(bad.arg_true()[0])
            raise fault(
                "numbers",
                f"{table.name}: column '{column.name}': expected numbers, found '{column[row]}' in "
                f"{table.place(row + 1)} ({int(bad.sum())} such rows)",
                "write numbers or leave the cell empty; name columns that are no values with --static",
            )
        columns.append(numbers)
    return pl.DataFrame(columns).to_numpy()
