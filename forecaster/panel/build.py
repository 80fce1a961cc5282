"""A table becomes a panel: roles, step and categories are declared, inferred, or those of a model.

The same rows in any order, format or kind of frame give the same panel, bit for bit.

    tables → roles → rows, sorted and joined → arrays → grid, with gaps as empty rows
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from forecaster.config import DataConfig
from forecaster.panel.calendar import Calendar
from forecaster.panel.cells import SERIES
from forecaster.panel.findings import Faults, beside, fault, refuse_errors
from forecaster.panel.frames import read_table
from forecaster.panel.freq import declared_freq
from forecaster.panel.grid import on_grid
from forecaster.panel.holidays import check_holidays, with_holidays
from forecaster.panel.infer_freq import Parts, find_freq
from forecaster.panel.one_row_per_series import rows_reasons, to_long
from forecaster.panel.order import Order
from forecaster.panel.panel import MISSING, Panel
from forecaster.panel.roles import check_schema, infer_schema
from forecaster.panel.rows import Rows, main_rows, with_covariates, with_future
from forecaster.panel.schema import Schema
from forecaster.panel.store import is_store, stored_panel
from forecaster.panel.table import Table


def open_panel(
    source: object,
    data: DataConfig,
    *,
    schema: Schema | None = None,
    covariates: object | None = None,
    future: object | None = None,
) -> Panel:
    """Returns the panel of a path, glob, frame or store, with further columns and rows if given.

    Raises:
        DataError: a table cannot be read or understood; see `build_panel`.
    """
    if isinstance(source, str | Path) and is_store(source):
        return stored_panel(source, data, schema=schema, covariates=covariates, future=future)
    faults, tables = Faults("unreadable"), dict[str, Table]()
    for name, given in (("table", source), ("covariates", covariates), ("future", future)):
        with faults:
            if given is not None:
                # Covariates and future rows are never one row per series.
                how = data if name == "table" else data.model_copy(update={"layout": None})
                tables[name] = read_table(given, how)
    faults.refuse()
    # Popped, so that the text of a large table can be freed once its rows are read.
    return build_panel(
        tables.pop("table"),
        data,
        schema=schema,
        covariates=tables.pop("covariates", None),
        future=tables.pop("future", None),
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
    notes = [note for part in (table, covariates, future) if part is not None for note in part.notes]
    with beside(notes):
        declared = data.freq is not None if schema is None else bool(schema.freq)
        holidays = data.holidays if schema is None else schema.holidays
        if holidays is not None:
            given = [part for part in (table, covariates, future) if part is not None]
            check_holidays(holidays, given)
        table, data = _in_long_form(table, data, schema)
        order: Order | None = None
        if schema is None:
            schema, table, order = infer_schema(table, data, future, covariates)
            if schema.layout == "rows":
                why = rows_reasons(schema.time, schema.series, schema.target)
                schema = replace(schema, reasons=schema.reasons | why)
        # Made from the calendar, holidays are no column of any table.
        schema = replace(schema, holidays=None)
        check_schema(schema, table, covariates)
        faults = Faults()
        rows = main_rows(table, schema, data, order)
        with faults:
            calendar, regular = find_calendar(rows.schema, data, [rows.layout()])
        rows = joined(rows, data, covariates, future, faults)
        notes += rows.notes
        refuse_errors([*rows.notes, *faults.found])
        rows = replace(rows, schema=replace(rows.schema, regular=regular))
        # The table is no longer needed: a large one takes more memory than its panel.
        table, order = replace(table, frame=table.frame.clear()), None
        panel = panel_of(rows, calendar, table, declared=declared, holidays=holidays)
    return replace(panel, notes=(*notes, *panel.notes))


def _in_long_form(table: Table, data: DataConfig, schema: Schema | None) -> tuple[Table, DataConfig]:
    """Returns a table of one row per series as a long one, and its roles; others as they are."""
    layout, target = (data.layout, data.target) if schema is None else (schema.layout, schema.target)
    if layout != "rows" or (schema is not None and set(schema.target) <= set(table.frame.columns)):
        return table, data
    series = data.series if schema is None else schema.series
    return to_long(table, data, series, target[0] if target else "value")


def joined(
    rows: Rows, data: DataConfig, covariates: Table | None, future: Table | None, faults: Faults
) -> Rows:
    """Returns the rows with covariates and future rows; gathers faults."""
    if covariates is not None:
        with faults:
            rows = with_covariates(rows, covariates, data)
    if future is not None:
        with faults:
            rows = with_future(rows, future, data)
    return rows


def find_calendar(schema: Schema, data: DataConfig, times: Parts) -> tuple[Calendar, bool]:
    """Returns the calendar, and whether rows have to lie on its grid.

    Args:
        schema: with the facts of the time column.
        data: a declared step and season.
        times: of whole series in parts; read where the step has to be found.
    """
    integer = schema.time_dtype == "integer"
    if schema.freq:
        freq, regular = schema.freq, schema.regular
    elif data.freq is not None:
        freq, regular = declared_freq(data.freq, integer=integer), True
    elif schema.time is None:
        freq, regular = "1i", True
    else:
        freq, regular = find_freq(times, integer, schema.time_zone)
    return Calendar(freq, schema.time_zone, integer, *schema.cycles(data)), regular


def panel_of(
    rows: Rows,
    calendar: Calendar,
    table: Table,
    *,
    declared: bool,
    holidays: str | None = None,
    sparse: bool = False,
) -> Panel:
    """Returns rows as arrays.

    Args:
        rows: of all tables, with the categories of the schema where it has them.
        calendar: of the rows.
        table: names the source in messages; its rows are not read.
        declared: the step was given, not inferred.
        holidays: country whose public holidays become a known covariate.
        sparse: most of the grid may be empty.
    """
    panel, faults = _arrays(rows, calendar, table), Faults()
    with faults:
        _check_finite(panel)
    panel = _without_lead_in(panel)
    with faults:
        if rows.schema.regular:
            panel = on_grid(panel, declared=declared, sparse=sparse)
    faults.refuse()
    return panel if holidays is None else with_holidays(panel, holidays)


def _arrays(rows: Rows, calendar: Calendar, table: Table) -> Panel:
    schema, frame = rows.schema, rows.frame
    categories = dict(schema.categories)
    for name in (*schema.code_columns, *schema.static_category):
        if name not in categories:
            categories[name] = tuple(frame[name].drop_nulls().unique().sort().to_list())
    static = frame.select(SERIES)
    if schema.static:
        first = [pl.col(name).drop_nulls().first() for name in schema.static]
        static = frame.group_by(SERIES, maintain_order=True).agg(first)
    time, indptr = rows.layout()
    codes = _codes(frame, schema.code_columns, categories)
    static_codes = _codes(static, schema.static_category, categories, len(indptr) - 1)
    unmet = _unmet(frame, schema.code_columns, codes)
    unmet |= _unmet(static, schema.static_category, static_codes)
    cycles = {"season_length": calendar.season, "periods": calendar.periods}
    return Panel(
        schema=replace(schema, freq=calendar.freq, categories=categories, **cycles),  # type: ignore[arg-type]
        calendar=calendar,
        keys=rows.keys,
        values=_numbers(frame, schema.columns),
        codes=codes,
        time=np.array(time, np.int64),
        indptr=indptr,
        static=_numbers(static, schema.static_numeric, len(indptr) - 1),
        static_codes=static_codes,
        regular=False,
        kind=table.kind,
        name=table.name,
        unmet=unmet,
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
    categories: Mapping[str, tuple[str, ...]],
    height: int | None = None,
) -> NDArray[np.int32]:
    codes = np.zeros((frame.height if height is None else height, len(names)), np.int32)
    for k, name in enumerate(names):
        known = frame[name].cast(pl.Enum(categories[name]), strict=False).to_physical()
        codes[:, k] = known.cast(pl.Int32).fill_null(-1).to_numpy() + 1
        codes[frame[name].is_null().to_numpy(), k] = MISSING
    return codes


def _unmet(
    frame: pl.DataFrame, names: tuple[str, ...], codes: NDArray[np.int32]
) -> dict[str, tuple[str, ...]]:
    """Returns the categories of each column that have no code."""
    unknown = {name: pl.Series(codes[:, k] == 0) for k, name in enumerate(names)}
    return {
        name: tuple(frame[name].filter(rows).unique(maintain_order=True).to_list())
        for name, rows in unknown.items()
        if rows.any()
    }


def _without_lead_in(panel: Panel) -> Panel:
    """Drops the rows before a series' first observed target: nothing can be learned from them."""
    starts = panel.indptr[:-1][np.diff(panel.indptr) > 0]
    if not np.isnan(panel.values[starts, : panel.n_channels]).all(axis=1).any():
        return panel
    first = panel.first_observed
    if (first == panel.indptr[:-1]).all():
        return panel
    return panel.cut(np.where(first < 0, panel.indptr[:-1], first), panel.indptr[1:])


def _check_finite(panel: Panel) -> None:
    faults = Faults()
    for values, names, per_row in (
        (panel.values, panel.schema.columns, True),
        (panel.static, panel.schema.static_numeric, False),
    ):
        infinite = np.isinf(values)
        for column in np.flatnonzero(infinite.any(axis=0)):
            bad, name = np.flatnonzero(infinite[:, column]), names[column]
            row = int(bad[0])
            series = int(np.searchsorted(panel.indptr, row, side="right") - 1) if per_row else row
            stamp = panel.calendar.text(int(panel.time[row])) if per_row else ""
            with faults:
                raise fault(
                    "infinite",
                    f"{panel.name}: column '{name}': expected finite numbers, found "
                    f"{values[row, column]} in series '{panel.labels[series]}'"
                    f"{stamp and f' at {stamp}'} ({len(bad)} such cells; numbers beyond 3.4e38 count)",
                    "leave the cell empty where the value is missing",
                    series=panel.labels[series],
                    where=stamp or name,
                    count=len(bad),
                )
    faults.refuse()
