"""A table becomes a Panel: roles, step and categories found or given, gaps put at their true place.

What comes in are tables and either declared roles (everything else is found) or the schema of a
model (everything is given, and the table has to follow it). What goes out is one `Panel`. The same
rows in any order, format or kind of frame give the same panel, bit for bit.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.calendar import Calendar, find_freq, parse_freq
from forecaster.panel.frequency import MOST_GRID_ROWS
from forecaster.panel.panel import MISSING, Panel
from forecaster.panel.read import Table, did_you_mean, listing, read_table
from forecaster.panel.roles import require_columns
from forecaster.panel.rows import SERIES, TIME, Rows, main_rows, with_covariates, with_future
from forecaster.panel.schema import Schema, infer_schema

_RESULTS = {"lead", "cutoff", "channel", "forecast", "mean", "status", "actual"}


def open_panel(
    source: object,
    data: DataConfig,
    *,
    schema: Schema | None = None,
    covariates: object | None = None,
    future: object | None = None,
) -> Panel:
    """Returns the panel of a path, glob or frame, with further columns and future rows if given.

    Raises:
        DataError: a table cannot be read or understood; see `build_panel`.
    """
    return build_panel(
        read_table(source),
        data,
        schema=schema,
        covariates=None if covariates is None else read_table(covariates),
        future=None if future is None else read_table(future),
    )


def build_panel(
    table: Table,
    data: DataConfig,
    *,
    schema: Schema | None = None,
    covariates: Table | None = None,
    future: Table | None = None,
) -> Panel:
    """Returns a table as arrays.

    Args:
        table: the rows of the past; later rows with empty targets are the future.
        data: how to read, and declared roles.
        schema: of a model, whose roles, step and categories then hold instead.
        covariates: further columns, joined on the keys they share; a table that lacks a series key
            is shared by all series.
        future: rows after the end, with covariates known in advance.

    Raises:
        DataError: columns are missing, rows repeat, values are infinite, times are off the grid, or
            the grid would be mostly empty.
    """
    freq = data.freq if schema is None else None
    if schema is None:
        schema = infer_schema(table, data, future, covariates)
    _refuse_result_names(schema, table)
    require_columns(schema.melted or schema.target, table.frame.columns, table.name, "a target")
    require_columns(
        () if schema.melted else schema.series, table.frame.columns, table.name, "a series key"
    )
    if schema.time is not None:
        require_columns([schema.time], table.frame.columns, table.name, "the time column")
    rows = main_rows(table, schema)
    calendar, regular = _clock(rows, freq)
    rows = replace(rows, schema=replace(rows.schema, regular=regular))
    if covariates is not None:
        rows = with_covariates(rows, covariates)
    _require_covariates(rows, table, covariates)
    if future is not None:
        rows = with_future(rows, future)
    notes = [note for part in (table, covariates, future) if part is not None for note in part.notes]
    panel = replace(_arrays(rows, calendar, table), notes=tuple(notes))
    _refuse_infinite(panel)
    panel = _without_lead_in(panel)
    declared = freq is not None or bool(schema.freq)
    return _on_grid(panel, declared=declared) if regular else panel


def _clock(rows: Rows, freq: str | None) -> tuple[Calendar, bool]:
    """Returns the calendar, and whether rows have to lie on its grid."""
    schema = rows.schema
    integer = schema.time_dtype == "integer"
    if schema.freq:
        return Calendar(schema.freq, schema.time_zone, integer), schema.regular
    if freq is not None:
        freq, regular = parse_freq(freq), True
        if integer != freq.endswith("i"):
            held = "integers; say --freq 1i" if integer else "dates; say --freq 1d or the like"
            raise DataError(f"freq '{freq}': the time column holds {held}")
    elif schema.time is None:
        freq, regular = "1i", True
    else:
        time, indptr = _layout(rows)
        freq, regular = find_freq(time, indptr, integer, schema.time_zone)
    return Calendar(freq, schema.time_zone, integer), regular


def _layout(rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    n_series = max(rows.keys.height, 1)
    counts = np.bincount(rows.frame[SERIES].to_numpy(), minlength=n_series)
    indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return rows.frame[TIME].to_numpy(), indptr


def _arrays(rows: Rows, calendar: Calendar, table: Table) -> Panel:
    schema, frame = rows.schema, rows.frame
    categories = dict(schema.categories)
    for name in (*schema.code_columns, *schema.static_category):
        if name not in categories:
            categories[name] = tuple(frame[name].drop_nulls().unique().sort().to_list())
    first = [pl.col(name).drop_nulls().first() for name in schema.static]
    static = frame.select(SERIES)
    if schema.static:
        static = frame.group_by(SERIES, maintain_order=True).agg(first)
    time, indptr = _layout(rows)
    return Panel(
        schema=replace(schema, freq=calendar.freq, categories=categories),
        calendar=calendar,
        keys=rows.keys,
        values=_numbers(frame, schema.columns),
        codes=_codes(frame, schema.code_columns, categories),
        time=np.array(time, np.int64),
        indptr=indptr,
        static=_numbers(static, schema.static_numeric, len(indptr) - 1),
        static_codes=_codes(static, schema.static_category, categories, len(indptr) - 1),
        regular=False,
        kind=table.kind,
        name=table.name,
    )


def _numbers(
    frame: pl.DataFrame, names: tuple[str, ...], height: int | None = None
) -> NDArray[np.float32]:
    if not names:
        return np.zeros((frame.height if height is None else height, 0), np.float32)
    numbers = frame.select(pl.col(names).cast(pl.Float32)).to_numpy(order="c", writable=True)
    return np.ascontiguousarray(numbers, np.float32)


def _codes(
    frame: pl.DataFrame,
    names: tuple[str, ...],
    categories: dict[str, tuple[str, ...]],
    height: int | None = None,
) -> NDArray[np.int32]:
    codes = np.zeros((frame.height if height is None else height, len(names)), np.int32)
    for k, name in enumerate(names):
        known = frame[name].cast(pl.Enum(categories[name]), strict=False).to_physical()
        codes[:, k] = known.cast(pl.Int32).fill_null(-1).to_numpy() + 1
        codes[frame[name].is_null().to_numpy(), k] = MISSING
    return codes


def _without_lead_in(panel: Panel) -> Panel:
    """Drops the rows before a series' first observed target: nothing can be learned from them."""
    starts = panel.indptr[:-1][np.diff(panel.indptr) > 0]
    if not np.isnan(panel.values[starts, : panel.n_channels]).all(axis=1).any():
        return panel
    first = panel.first_observed
    if (first == panel.indptr[:-1]).all():
        return panel
    start = np.where(first < 0, panel.indptr[:-1], first)
    return panel.keep(np.arange(panel.n_rows) >= np.repeat(start, np.diff(panel.indptr)))


def _on_grid(panel: Panel, *, declared: bool) -> Panel:
    """Puts every row at its place on the grid that starts at its series' first row.

    Raises:
        DataError: a row is off the grid, or most of the grid would be empty.
    """
    if panel.calendar.is_dense(panel.time, panel.indptr):
        return replace(panel, regular=True)
    length = np.diff(panel.indptr)
    anchor = np.repeat(np.append(panel.time, 0)[panel.indptr[:-1]], length)
    place = panel.calendar.steps(anchor, panel.time)
    off = panel.calendar.shift(anchor, place) != panel.time
    if off.any():
        _refuse_off_grid(panel, off, declared)
    spans = np.append(place, -1)[np.where(length > 0, panel.indptr[1:] - 1, panel.n_rows)] + 1
    total = int(spans.sum())
    if total == panel.n_rows:
        return replace(panel, regular=True)
    if total > MOST_GRID_ROWS * panel.n_rows:
        raise DataError(
            f"{panel.name}: a grid of {panel.calendar.freq} would have {total} rows for "
            f"{panel.n_rows} in the table, more than {MOST_GRID_ROWS} times as many; "
            "say a longer step with --freq, or mend stray times far from the others"
        )
    indptr = np.concatenate(([0], np.cumsum(spans))).astype(np.int64)
    old = place + np.repeat(indptr[:-1], length)
    empty = np.ones(total, bool)
    empty[old] = False
    new = np.flatnonzero(empty)
    owner = np.searchsorted(indptr, new, side="right") - 1
    first = panel.time[panel.indptr[owner]]
    times = panel.calendar.shift(first, new - indptr[owner])
    return replace(panel.scattered(old, indptr, new, times), regular=True)


def _refuse_off_grid(panel: Panel, off: NDArray[np.bool_], declared: bool) -> None:
    row = int(np.flatnonzero(off)[0])
    series = int(np.searchsorted(panel.indptr, row, side="right") - 1)
    text = panel.calendar.text
    advice = "say another step with --freq" if declared else "mend the time of these rows"
    raise DataError(
        f"{panel.name}: expected steps of {panel.calendar.freq} from "
        f"{text(int(panel.time[panel.indptr[series]]))} in series '{panel.labels[series]}', found "
        f"{text(int(panel.time[row]))} ({int(off.sum())} such rows); {advice}"
    )


def _refuse_infinite(panel: Panel) -> None:
    for values, names, per_row in (
        (panel.values, panel.schema.columns, True),
        (panel.static, panel.schema.static_numeric, False),
    ):
        if not np.isinf(values).any():
            continue
        bad = np.argwhere(np.isinf(values))
        row, column = (int(x) for x in bad[0])
        series = int(np.searchsorted(panel.indptr, row, side="right") - 1) if per_row else row
        when = f" at {panel.calendar.text(int(panel.time[row]))}" if per_row else ""
        raise DataError(
            f"{panel.name}: column '{names[column]}': expected finite numbers, found "
            f"{values[row, column]} in series '{panel.labels[series]}'{when} ({len(bad)} such cells; "
            "numbers beyond 3.4e38 count); leave the cell empty where the value is missing"
        )


def _refuse_result_names(schema: Schema, table: Table) -> None:
    keys = () if schema.melted else schema.series
    for name in (*keys, *([schema.time] if schema.time is not None else [])):
        if name in _RESULTS or re.fullmatch(r"q0\.\d+", name):
            raise DataError(
                f"{table.name}: the key column '{name}' has the name of a result; rename it"
            )


def _require_covariates(rows: Rows, table: Table, covariates: Table | None) -> None:
    schema = rows.schema
    known = [name for name in table.frame.columns if name != schema.time]
    for name in (*schema.past, *schema.known, *schema.static):
        if name not in rows.frame.columns:
            other = f" or {covariates.name}" if covariates is not None else ""
            raise DataError(
                f"{table.name}: no column '{name}' in it{other}, a covariate of the model"
                f"{did_you_mean(name, known)}; the columns are {listing(table.frame.columns)}; "
                "join it, or pass the table that holds it with --covariates"
            )
