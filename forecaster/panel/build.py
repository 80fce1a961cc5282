"""A table becomes a panel: roles, step and categories are declared, inferred, or those of a model.

The same rows in any order, format or kind of frame give the same panel, bit for bit.

    tables → roles → rows, sorted and joined → arrays → grid, with gaps as empty rows
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np
import polars as pl

from forecaster.config import DataConfig
from forecaster.errors import ConfigError, DataError
from forecaster.panel.arrays import Bools, Codes, Floats
from forecaster.panel.calendar import RARE, Calendar, parse_freq
from forecaster.panel.findings import Faults, Finding, beside, fault, refuse_errors
from forecaster.panel.frames import Table, read_tables
from forecaster.panel.holidays import check_holidays, count_holidays
from forecaster.panel.infer_freq import MOST_GRID_ROWS, Parts, check_not_finer, find_freq
from forecaster.panel.names import common
from forecaster.panel.one_row_per_series import rows_reasons, to_long
from forecaster.panel.order import Order
from forecaster.panel.panel import MISSING, Panel
from forecaster.panel.pivoted import check_roles, clock_of, pivoted
from forecaster.panel.resample import resampled
from forecaster.panel.roles import (
    check_schema,
    comparable_times,
    dates_without_times,
    infer_schema,
    join_clock,
)
from forecaster.panel.rows import (
    SERIES,
    Rows,
    main_rows,
    row_number,
    series_name,
    with_covariates,
    with_future,
    with_new_series,
)
from forecaster.panel.schema import Names, Schema, holiday_columns
from forecaster.panel.store import is_store, open_store, stored_panel

_LARGEST = float(np.finfo(np.float32).max)
"""Of a number in a table: its square is a number too, and so is its distance from all others in spreads."""


def open_panel(
    source: object,
    data: DataConfig,
    *,
    schema: Schema | None = None,
    covariates: object | None = None,
    future: object | None = None,
    begin: bool = False,
) -> Panel:
    """Returns the panel of a path, glob, frame or store, with further columns and rows if given.

    Args:
        source: the table.
        data, schema, covariates, future, begin: see `build_panel`.

    Raises:
        DataError: a table cannot be read or understood; see `build_panel`.
    """
    if is_store(source):
        return stored_panel(source, data, schema=schema, covariates=covariates, future=future)
    tables = _read(data, schema, table=source, covariates=covariates, future=future)
    # Popped, so that the text of a large table can be freed once its rows are read.
    return build_panel(tables.pop("table"), data, schema=schema, begin=begin, **tables)


def _read(data: DataConfig, schema: Schema | None, **sources: object) -> dict[str, Table]:
    own = {} if schema is None else {"series": schema.key_columns, "time": schema.time}
    reading = data.model_copy(update=own)
    return read_tables(sources, reading, None if schema is None else schema.decimals)


def with_roles_until(
    panel: Panel,
    source: object,
    data: DataConfig,
    covariates: object | None,
    until: int,
    future: object | None = None,
) -> Panel:
    """Returns the panel with the roles that its rows up to a time give, and categories of all rows.

    Time, keys, targets and known covariates stay, and all roles of a store.

    Args:
        panel: of the whole table.
        source, covariates, future: the tables.
        data: the request; roles that it declares stay, season and periods are its own.
        until: later rows decide nothing.
    """
    schema, words = panel.schema, dict[str, Names]()
    if is_store(source):
        words = open_store(source).schema.categories
    elif None in (data.past, data.static, data.categorical):
        schema = _schema_until(schema, source, data, covariates, until)
    if schema.categories or schema != panel.schema:
        fresh = replace(schema, categories=words)
        panel = open_panel(source, data, schema=fresh, covariates=covariates, future=future)
    return panel.with_cycles(data.season_length, data.periods or ())


def _schema_until(
    schema: Schema, source: object, data: DataConfig, covariates: object | None, until: int
) -> Schema:
    pivot, schema = schema.pivot, schema.as_read
    target, keys = schema.target_columns, schema.key_columns
    declared = {
        "time": schema.time or "row",
        "series": keys,
        "target": target,
        "known": schema.known,
        "layout": "long" if schema.melted else None,
    }
    own = {name: getattr(schema, name) for name in ("past", "static", "categorical")}
    declared |= {name: names for name, names in own.items() if getattr(data, name) is not None}
    # Columns that only this table has were no choice of the fit.
    seen = {*schema.reasons, *keys, *target, *schema.covariates}

    def cut(table: Table) -> Table:
        columns = common(table.frame.columns, (*seen, schema.time))
        times: pl.Series | None = None
        if schema.time in columns:
            table, times = comparable_times(table, schema.time, data)
        elif set(target) <= set(columns):
            number = row_number(target)
            times = table.frame.select(number.over(keys) if keys else number).to_series()
        frame = table.frame.select(columns)
        return replace(table, frame=frame if times is None else frame.filter(times <= until), text=None)

    tables = _read(data, schema, table=source, covariates=covariates)
    table, _ = _in_long_form(tables.pop("table").with_ids(schema.series), data, schema)
    others = {name: cut(other) for name, other in tables.items()}
    found = infer_schema(cut(table), data.model_copy(update=declared), **others).schema
    roles = {name: getattr(found, name) for name in own}
    schema = replace(schema, **roles) if roles != own else schema
    return schema if pivot is None else schema.pivoted(pivot)


def build_panel(
    table: Table,
    data: DataConfig,
    *,
    schema: Schema | None = None,
    covariates: Table | None = None,
    future: Table | None = None,
    begin: bool = False,
) -> Panel:
    """Returns a table as arrays.

    Args:
        table: the rows of the past; later rows with empty targets are the future.
        data: how to read, and declared roles.
        schema: of a model, whose roles, step and categories then hold instead.
        covariates: further columns, joined on the keys they share; a table that lacks a series key
            is shared by all series.
        future: rows after the end, with covariates known in advance.
        begin: its rows also begin series that the table lacks; they do with the schema of a model.

    Raises:
        DataError: columns are missing, rows repeat, values are infinite, times are off the grid, or
            the grid would be mostly empty.
    """
    given = [part for part in (table, covariates, future) if part is not None]
    fitted = schema is not None
    notes = [note for part in given for note in part.notes]
    with beside(notes):
        holidays = (data.holidays or ()) if schema is None else schema.holidays
        if holidays:
            check_holidays(holidays, given)
        pivot, schema = (None, None) if schema is None else (schema.pivot, schema.as_read)
        table = table.with_ids((data.series or ()) if schema is None else schema.series)
        table, data = _in_long_form(table, data, schema)
        notes += table.notes[len(given[0].notes) :]
        order: Order | None = None
        if schema is None:
            table = join_clock(table, data)
            time = ",".join(table.time_parts) or None
            covariates, future = (other and other.with_time(time) for other in (covariates, future))
            schema, table, order, found = infer_schema(table, data, future, covariates)
            notes += found
            if schema.pivots:
                check_roles(schema, table.name)
            written = table.with_ids(schema.series)
            if not written.frame.equals(table.frame):
                table, order = written, None
            if schema.layout == "rows":
                why = rows_reasons(schema.time, schema.series, schema.target)
                schema = replace(schema, reasons=schema.reasons | why)
        # Made from the calendar, holidays are no column of any table.
        schema = replace(schema, holidays=(), time_parts={**table.time_parts})
        check_schema(schema, table, covariates)
        faults = Faults()
        rows = main_rows(table, schema, data, order)
        with faults:
            layout = clock_of(rows) if schema.pivots else rows.layout()
            calendar, regular = find_calendar(rows.schema, data, [layout])
        rows = joined(rows, data, faults, covariates, future, begin=fitted or begin)
        notes += rows.notes
        refuse_errors([*rows.notes, *faults.found])
        if schema.pivots:
            rows = pivoted(rows, table.name, pivot)
        if data.resample is not None:
            rows, calendar, findings = resampled(rows, calendar, data, regular=regular)
            regular, notes = True, [*notes, *findings]
        rows = replace(rows, schema=replace(rows.schema, regular=regular))
        source = table.name, table.kind
        # Not of other columns: one called "forecast" says nothing of the column of results.
        kept = (*schema.series, *schema.time_parts, schema.time)
        dtypes = {name: dtype for name, dtype in table.original.dtypes.items() if name in kept}
        if schema.time in dtypes:
            dtypes = dict.fromkeys(("cutoff", "period"), dtypes[schema.time]) | dtypes
        original = table.original._replace(dtypes=dtypes)
        # No longer needed: a large table takes more memory than its panel.
        del table, given, order
        panel = panel_of(rows, calendar, *source, holidays=holidays)
    return replace(panel, notes=(*notes, *panel.notes), original=original)


def _in_long_form(table: Table, data: DataConfig, schema: Schema | None) -> tuple[Table, DataConfig]:
    """Returns a table of one row per series as a long one, and its roles; others as they are."""
    if schema is None and data.layout is None and (dates := dates_without_times(table, data)):
        found = f"the names of {len(dates)} columns are dates: each row is a series (layout rows)"
        note = Finding("note", "layout", found, "pass --layout wide, and --time, where that is wrong")
        table = replace(table, notes=(*table.notes, note))
        data = data.model_copy(update={"layout": "rows"})
    known = data if schema is None else schema
    target = known.target or ("value",)
    if known.layout != "rows" or (schema is not None and set(target) <= set(table.frame.columns)):
        return table, data
    return to_long(table, data, known.series, known.static or (), target[0])


def joined(
    rows: Rows,
    data: DataConfig,
    faults: Faults,
    covariates: Table | None = None,
    future: Table | None = None,
    begin: bool = False,
) -> Rows:
    """Returns the rows with covariates and future rows; gathers faults. `begin`: also new series."""
    if future is not None and begin:
        with suppress(DataError):  # a fault of the future table is found again below
            rows = with_new_series(rows, future, data)
    if covariates is not None:
        with faults:
            rows = with_covariates(rows, covariates, data)
    if future is not None:
        with faults:
            rows = with_future(rows, future, data)
    return replace(rows, notes=(*rows.notes, *_changing_statics(rows)))


def _changing_statics(rows: Rows) -> Iterator[Finding]:
    """Yields a warning for each static column that holds several values in some series."""
    statics = common(rows.schema.static, rows.frame.columns)
    several = [(pl.col(name).min() != pl.col(name).max()).alias(name) for name in statics]
    ends = rows.frame.group_by(SERIES, maintain_order=True).agg(several) if several else rows.frame
    for name in statics:
        if count := int(ends[name].sum()):
            text = f"'{name}' is static, but changes within {count:,} of {ends.height:,} series"
            advice = f"the first value of each counts; declare it with --past {name} or --known {name}"
            first = series_name(rows.keys, ends.filter(name)[SERIES][0])
            yield Finding("warning", "static", text, advice, first, name, count)


def find_calendar(schema: Schema, data: DataConfig, times: Parts) -> tuple[Calendar, bool]:
    """Returns the calendar, and whether rows have to lie on its grid.

    Args:
        schema: with the facts of the time column.
        data: a declared step and season.
        times: of whole series in parts; read where the step has to be found.
    """
    integer = schema.time_dtype == "integer"
    if data.agg is not None and data.resample is None:
        raise ConfigError(f"--agg {data.agg}: expected the step to aggregate to, as --resample W-SUN")
    # With `resample` freq and schema.freq are those of the periods, not of the rows.
    if schema.freq and data.resample is None:
        freq, regular = schema.freq, schema.regular
    elif data.freq is not None and data.resample is None:
        freq, regular = parse_freq(data.freq), True
        if integer != freq.endswith("i"):
            held = "integers; pass --freq 1i" if integer else "dates; pass a --freq such as 1d"
            raise DataError(f"freq '{freq}': the time column holds {held}")
        check_not_finer(Calendar(freq, schema.time_zone, integer), times)
    elif schema.time is None:
        freq, regular = "1i", True
    else:
        # Rows around a step are aggregated as they are.
        exact = data.resample is not None
        freq, regular = find_freq(times, integer, schema.time_zone, exact=exact)
    return Calendar(freq, schema.time_zone, integer, *schema.cycles(data)), regular


def panel_of(
    rows: Rows,
    calendar: Calendar,
    name: str,
    kind: str,
    *,
    holidays: Names = (),
    sparse: bool = False,
) -> Panel:
    """Returns rows as arrays.

    Args:
        rows: of all tables, with the categories of the schema where it has them.
        calendar: of the rows.
        name, kind: of the table.
        holidays: countries whose public holidays become a known covariate each.
        sparse: most of the grid may be empty.
    """
    panel, faults = _arrays(rows, calendar, name, kind), Faults()
    _check_finite(panel, faults)
    if panel.schema.label is None:  # else each row has a class
        panel = panel.without_lead_in()
    with faults:
        if rows.schema.regular:
            panel = _on_grid(panel, sparse=sparse)
    faults.refuse()
    return _with_holidays(panel, holidays) if holidays else panel


def _arrays(rows: Rows, calendar: Calendar, name: str, kind: str) -> Panel:
    schema, frame = rows.schema, rows.frame
    names = (*schema.code_columns, *schema.static_category)
    own = {name: frame[name] for name in names if name not in schema.categories}
    words = {name: tuple(column.drop_nulls().unique().sort()) for name, column in own.items()}
    categories = schema.categories | words
    time, indptr = rows.layout()
    given = frame.group_by(SERIES).agg(pl.col(schema.static).drop_nulls().first())
    # A series that covers no whole period has no row left.
    static = pl.DataFrame({SERIES: np.arange(len(indptr) - 1, dtype=np.uint32)})
    static = static.join(given, on=SERIES, how="left", maintain_order="left")
    codes, unmet = _codes(frame, schema.code_columns, categories)
    static_codes, more = _codes(static, schema.static_category, categories)
    return Panel(
        schema=replace(
            schema,
            freq=calendar.freq,
            season_length=calendar.season,
            periods=calendar.periods,
            categories=categories,
        ),
        calendar=calendar,
        keys=rows.keys,
        values=_numbers(frame, schema.columns),
        codes=codes,
        time=np.array(time, np.int64),
        indptr=indptr,
        static=_numbers(static, schema.static_numeric),
        static_codes=static_codes,
        kind=kind,
        name=name,
        members=rows.members,
        n_new=rows.n_new,
        unmet=unmet | more,
    )


def _numbers(frame: pl.DataFrame, names: Names) -> Floats:
    if not names:
        return np.zeros((frame.height, 0))
    return frame.select(pl.col(names).cast(pl.Float64)).to_numpy(order="c", writable=True)


def _codes(
    frame: pl.DataFrame, names: Names, categories: Mapping[str, Names]
) -> tuple[Codes, dict[str, Names]]:
    """Returns the codes of columns, and by column the categories that have none."""
    codes, unmet = np.zeros((frame.height, len(names)), np.int32), {}
    for k, name in enumerate(names):
        words = frame[name]
        known = words.cast(pl.Enum(categories[name]), strict=False).to_physical().cast(pl.Int32)
        codes[:, k] = (known + 1).fill_null(0).set(words.is_null(), MISSING)
        if len(unknown := words.filter(codes[:, k] == 0)):
            unmet[name] = tuple(unknown.unique(maintain_order=True))
    return codes, unmet


def _check_finite(panel: Panel, faults: Faults) -> None:
    """Gathers a fault per column that holds an infinite value."""
    for values, names, per_row in (
        (panel.values, panel.schema.columns, True),
        (panel.static, panel.schema.static_numeric, False),
    ):
        infinite = np.abs(values) > _LARGEST
        for column in np.flatnonzero(infinite.any(axis=0)):
            bad, name = np.flatnonzero(infinite[:, column]), names[column]
            row, count = bad[0], len(bad)
            first = panel.name_at(row) if per_row else panel.series_names[row]
            where = panel.text_at(row) if per_row else name
            at = f" at {where}" if per_row else ""
            text = (
                f"{panel.name}: column '{name}': expected finite numbers, found "
                f"{values[row, column]} in series '{first}'{at} ({count} such cells; numbers "
                "beyond 3.4e38 count)"
            )
            advice = "leave the cell empty where the value is missing"
            with faults:
                raise fault("infinite", text, advice, series=first, where=where, count=count)


# The regular grid: rows move to their place on it, and gaps become empty rows.


def _on_grid(panel: Panel, *, sparse: bool) -> Panel:
    """Returns the panel with every row on the grid that starts at its series' first row.

    Raises:
        DataError: a row is off the grid, or most of the grid would be empty.
    """
    calendar = panel.calendar
    if calendar.is_dense(panel.time, panel.indptr) and not calendar.off_anchor(panel.time).any():
        return panel
    anchor, place, off = calendar.placed(panel.time, panel.indptr)
    if off.any():
        panel = _settled(_opened(panel, off))
        anchor, place, _ = calendar.placed(panel.time, panel.indptr)
    if (off := calendar.off_anchor(panel.time)).any():
        raise _off_grid(panel, off)
    length = np.diff(panel.indptr)
    start = np.append(place, 0)[panel.indptr[:-1]]
    place = place - np.repeat(start, length)
    spans = np.append(place, -1)[np.where(length > 0, panel.indptr[1:] - 1, panel.n_rows)] + 1
    total = int(spans.sum())
    if total == panel.n_rows:
        return panel
    if not sparse:
        check_density(panel.name, panel.calendar.freq, total, panel.n_rows)
    indptr = np.append(0, np.cumsum(spans))
    values = np.full((total, panel.values.shape[1]), np.nan)
    codes = np.full((total, panel.codes.shape[1]), MISSING, np.int32)
    row = place + np.repeat(indptr[:-1], length)
    values[row], codes[row] = panel.values, panel.codes
    count = np.arange(total) + np.repeat(start - indptr[:-1], spans)
    time = panel.calendar.shift(np.repeat(anchor, spans), count)
    return replace(panel, values=values, codes=codes, time=time, indptr=indptr)


def _opened(panel: Panel, off: Bools) -> Panel:
    """Returns the panel without the few rows on days, or at times of day, that otherwise have none."""
    closed = off & panel.calendar.closed(panel.time)
    count, freq = int(closed.sum()), panel.calendar.freq
    if not 0 < count <= max(1, RARE * panel.n_rows):
        return panel
    first = panel.text_at(closed.argmax())
    text = f"{count:,} rows lie outside the days or hours of {freq}, and are left out"
    advice = "nothing to do if they are exceptions; --freq 1d or 1h keeps them, and forecasts all days or hours"
    note = Finding("warning", "calendar", text, advice, where=first, count=count)
    kept = np.add.accumulate(np.append(0, ~closed))[panel.indptr]
    rows = {name: getattr(panel, name)[~closed] for name in ("values", "codes", "time")}
    return replace(panel, **rows, indptr=kept, notes=(*panel.notes, note))


def _settled(panel: Panel) -> Panel:
    """Returns the panel with rows around the steps of its grid on them.

    Raises:
        DataError: a step has two rows, or a row is far from all.
    """
    calendar, time = panel.calendar, panel.time
    off = calendar.placed(time, panel.indptr)[2]
    if not off.any():
        return panel
    if (stamps := calendar.settled(time, panel.indptr)) is None:
        raise _off_grid(panel, off)
    moved = stamps != time
    count, row = int(moved.sum()), moved.argmax()
    first, to = panel.text_at(row), calendar.text(stamps[row])
    text = (
        f"{count:,} of {len(time):,} rows lie around steps of {calendar.freq}, and are read at these: "
        f"{first} at {to}"
    )
    advice = "nothing to do if a row is a step; --resample with --agg adds rows up by calendar periods instead"
    note = Finding("note", "jitter", text, advice, panel.name_at(row), first, count)
    return replace(panel, time=stamps, notes=(*panel.notes, note))


def check_density(name: str, freq: str, total: int, rows: int) -> None:
    """Raises DataError for a grid that would be mostly empty."""
    if total > MOST_GRID_ROWS * rows:
        raise DataError(
            f"{name}: a grid of {freq} would have {total} rows for {rows} in the table, more than "
            f"{MOST_GRID_ROWS} times as many; pass a longer step with --freq, or correct stray times "
            "far from the others"
        )


def _off_grid(panel: Panel, off: Bools) -> DataError:
    row, count = off.argmax(), int(off.sum())
    name, time = panel.name_at(row), panel.text_at(row)
    first = panel.text_at(panel.indptr[panel.series_at(row)])
    text = (
        f"{panel.name}: expected steps of {panel.calendar.freq} from {first} in series '{name}', found "
        f"{time} ({count} such rows)"
    )
    advice = "pass another step with --freq, round the times to it, or aggregate them with --resample"
    return fault("grid", text, advice, series=name, where=time, count=count)


def _with_holidays(panel: Panel, countries: Names) -> Panel:
    """Returns the panel with the holidays of countries as its last known covariates.

    Args:
        panel: without these columns.
        countries: as DE, or DE-BY for a part of it.

    Raises:
        DataError: rows are numbered, the country is unknown, or the extra is not installed.
    """
    if panel.calendar.integer:
        flag = f"--holidays {','.join(countries)}"
        raise DataError(f"{panel.name}: {flag}: rows are numbered, they have no dates")
    counts = [count_holidays(panel.calendar, panel.time, country) for country in countries]
    values = np.column_stack([panel.values, *counts])
    made = zip(holiday_columns(countries), countries, strict=True)
    reasons = panel.schema.reasons | {name: f"public holidays of {country}" for name, country in made}
    schema = replace(panel.schema, holidays=countries, reasons=reasons)
    return replace(panel, schema=schema, values=values)
