"""Roles: which column is time, series key, target, covariate or static, declared or inferred.

Every column gets a role, or is ignored, with a reason that users read. Nothing here parses more than
a sample of dates, time itself aside; whole columns are only compared and counted. A covariate is known
in advance only where declared or given in the future table, never by a guess.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import polars as pl

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.calendar import parse_freq
from forecaster.panel.findings import (
    Finding,
    did_you_mean,
    fault,
    listing,
    refuse_errors,
    snake,
    words_of,
)
from forecaster.panel.frames import TEXT, Table, missing_columns
from forecaster.panel.names import common, without
from forecaster.panel.numbers import Decimals, as_numbers, nearly_numbers
from forecaster.panel.one_row_per_series import has_series_rows
from forecaster.panel.order import Order, find_order
from forecaster.panel.schema import Names, Schema, two_roles
from forecaster.panel.timestamps import (
    DAYS,
    EPOCHS,
    PARTS,
    SAMPLE,
    date_names,
    decimal_years,
    first_values,
    guess_formats,
    instants,
    integer_format,
    is_time_name,
)

TIME_NAMES = ("date", "time", "timestamp", "datetime", "date_time", "day", "month", "period", "ds")
COUNTED_TIME_NAMES = ("time", "date", "year", "step", "t", "timestamp", "ds")
SERIES_WORDS = {"id", "series", "store", "item", "sku"}
_ID = (
    "(^|_)(id|zip|zipcode|postcode|plz|phone|telephone)$|^(account|sku|store|item|customer)$"
    "|(account|phone|zip|postal|order|customer|invoice|store|item|product)_(code|no|nr|nbr|number)$"
)
_WHO = f"{_ID}|(^|_)(lat|latitude|lon|lng|longitude)$"
_HOUR = "(^|_)(hours?|hr|he|stunde|std|heure|hora"
_SLOT, _CLOCK = (
    f"{_HOUR}|{words})(_|$)" for words in ("interval|period|slot|block", "time|clock|uhrzeit")
)
_CALENDAR = (
    "^(year|yr|quarter|qtr|month|mnth|week(day)?|day|dow|wday|dom|mday|hour|minute)"
    "(_(of|no|number|name|week|month))*$"
)
"""Patterns of names: of what says who, or where, which part of a day, a clock, or may repeat a part of the date."""
TARGETS = ("target", "y", "value", "values", "sales", "demand")
_HOURS = 23
"""Different times of day, of a column of such a name, from which they are no series."""
MOST_CATEGORIES = 100
MOST_CODES = 12
"""Different whole numbers up to which they may be codes of categories: the months of a year."""
_SHOWN = 8
"""Rows from which numbers that are those of the date are no others."""
LEAST_STEPS = 4
"""Steps of one from row to row from which whole numbers are those of the rows."""
_COUNTED = 20
"""Rows from which they may have holes, or another order."""
ROWS_PER_CODE = 10
"""Rows of each code, on average, below which there are too few to learn from."""
_SAMPLE = 10_000
COVARIATES = ("known", "past", "static")
"""Roles of columns that are not forecast."""
_Columns = Mapping[str, pl.Series]
_RESULTS = {"lead", "cutoff", "channel", "forecast", "mean", "status", "actual"}


class Inferred(NamedTuple):
    """Roles, and what was computed on the way to them."""

    schema: Schema
    table: Table
    """With parsed times where series had to be found."""
    order: Order | None
    """Of the rows by series and time; None = not computed."""
    notes: tuple[Finding, ...] = ()
    """On columns that are read as text, though nearly all of their cells are numbers."""


def infer_schema(
    table: Table, data: DataConfig, future: Table | None = None, covariates: Table | None = None
) -> Inferred:
    """Returns the declared roles of a table's columns, and inferred ones for the rest.

    Frequency and categories stay empty, and dates of any kind are "datetime", until rows are built.

    Args:
        table: the rows of the past.
        data: declared roles.
        future: rows after the end, with the covariates known in advance.
        covariates: further columns, joined on the keys they share.

    Raises:
        DataError: a declared column is missing or has two roles, or time or target cannot be found.

    Example:
        >>> frame = pl.DataFrame({"day": ["2024-01-01", "2024-01-02"], "sales": [1.0, 2.0]})
        >>> infer_schema(Table(frame, "shop.csv", "file"), DataConfig()).schema.target
        ('sales',)
    """
    time, reason = find_time(table, data.time)
    declared = {*declared_columns(data, "target", *COVARIATES)}
    pool, timeless = _gather(table, covariates, time, declared, data.decimal)
    _check_declared(data, list(pool), table, time)
    class_columns = () if data.label is None else (data.label,)
    declared |= {*class_columns}
    counted, time_format = _time_facts(table, time, data)
    if counted and data.time_zone:
        text = f"{table.name}: --time-zone {data.time_zone}: expected dates, found whole numbers"
        raise fault("zones", text, "leave it out, or name the column of dates with --time")
    if time_format is not None:
        reason += f"; {time_format}" + (" since 1970" if time_format in EPOCHS else "")
    reasons = {} if time is None else {time: reason}
    series, reason, order, times = data.series, "declared", None, None
    if time is not None:
        table, times = comparable_times(table, time, data)
    if series is None:
        series, reason, order = find_series(table, time, declared, times, pool)
    reasons |= dict.fromkeys(series, reason)
    if added := without(data.relate, series):
        alone = table.frame.select(series).n_unique()
        series, order = (*added, *series), None
        if table.frame.select(series).n_unique() > alone:
            text = (
                f"{table.name}: --relate {','.join(added)}: expected keys, or one value in each series"
            )
            raise fault("keys", text, f"name all keys, as --series {','.join(series)}")
        reasons |= dict.fromkeys(added, "declared")
    own = pl.DataFrame([pool[name] for name in common(pool, table.frame.columns)])
    idle = dict.fromkeys(date_like(own), "dates, and time is another column")
    keyed = own.with_columns(table.frame.select(series))
    padded = own.select(name for name in own.columns if _is_padded(table.frame[name]))
    names = {name.lower() for name in padded.columns}
    # A table may pad all of its numbers.
    if names.isdisjoint(TARGETS) and any(map(is_number, own.drop(padded.columns))):
        ids = [column.name for column in padded if column.n_unique() > MOST_CODES]
        idle |= dict.fromkeys(ids, "names things")
    idle |= _measure_nothing(keyed, series, None if counted else times)
    rest = pl.DataFrame([pool[name] for name in without(pool, own.columns)])
    idle |= _measure_nothing(rest, (), None)
    kept = {*series, *declared, *(data.categorical or ())}
    idle = {name: idle[name] for name in without(idle, kept)}
    numbers = without((c.name for c in own if is_number(c)), kept)
    notes = []
    clocks = [name for name in without(series, data.series or ()) if _is(_CLOCK, name)]
    for name in clocks if times is not None else ():
        if (count := table.frame[name].n_unique()) >= _HOURS:
            text = f"'{name}' makes {count} series, and may be the time of day of fewer"
            advice = f"write it as 0 to 23, 1 to 24 or HH:MM; --series {','.join(series)} says that it names series"
            notes.append(Finding("warning", "keys", text, advice, where=name, count=count))
    if data.target is None and numbers and {*numbers} <= {*idle}:
        text = f"'{numbers[0]}' {idle.pop(numbers[0])}, and is the target as the only column of numbers"
        notes.append(Finding("warning", "columns", text, "pass --target where it is another column"))
    for name, why in idle.items():
        pool.pop(name)
        reasons[name] = f"ignored: {why}"
        advice = f"declare its role, as --past {name}, if it has one"
        notes.append(Finding("note", "columns", f"'{name}' is {reasons[name]}", advice))
    free = without(pool, (*series, data.label))
    maybe = [pool[name] for name in without(free, data.categorical or ())]
    bad = {c.name: cells for c in maybe if (cells := nearly_numbers(c)) is not None}
    known = _find_known(free, data, future)
    numeric = without(common(free, table.frame.columns), known)
    numeric = without(numeric, declared.difference(data.target or ()))
    constant = _constant_columns(keyed, series, numeric)
    target, reason = data.target, "declared"
    if target is None:
        numbers = [name for name in numeric if is_number(pool[name])]
        numbers = [name for name in numbers if not _is(_WHO, name)] or numbers
        # Refused as it is read: another column would be forecast instead of the one that was meant.
        numbers += [n for n in numeric if n in bad and (not numbers or n.lower() in TARGETS)]
        target, reason = _find_target(table, numbers, series, constant, data)
    left = without(free, (*target, *known))
    others = {name: _role_of(pool[name], data, constant | set(timeless)) for name in left}
    past, static = ([n for n, (role, _) in others.items() if role == own] for own in ("past", "static"))
    reasons |= dict.fromkeys(target, reason) | known | {name: why for name, (_, why) in others.items()}
    if reason == "by its name" and not series and (offered := [n for n in past if is_number(pool[n])]):
        text = f"'{target[0]}' is the target by its name; other numbers are past covariates: {listing(offered)}"
        advice = f"name what is known in advance, as --known {offered[0]}, or all targets with --target"
        notes.append(Finding("note", "columns", text, advice))
    reasons |= dict.fromkeys(class_columns, "declared")
    counts = {name: len(pool[name]) for name in (*known, *past, *static)}
    if static and series:
        counts |= dict.fromkeys(static, table.frame.select(series).n_unique())
    # A declared one is read as numbers, and refused with its first bad cell.
    categorical, coded = _find_categorical(pool, counts, data, bad.keys() & declared)
    reasons |= {name: f"{reasons[name]}; looks like codes" for name in coded}
    melted = target if data.layout == "long" and not series and len(target) > 1 else ()
    wide = data.layout == "wide" or bool(data.relate)
    layout = "long" if melted or (series and not wide) else data.layout or "wide"
    schema = Schema(
        time=time,
        time_dtype="integer" if counted else "datetime",
        time_format=time_format,
        time_zone=data.time_zone,
        local=data.time_zone is not None,
        series=("channel",) if melted else series,
        target=("value",) if melted else target,
        label=data.label,
        known=tuple(known),
        past=tuple(past),
        static=tuple(static),
        categorical=categorical,
        dtypes={name: str(table.frame[name].dtype) for name in series},
        layout="rows" if data.layout == "rows" else layout,
        reasons=reasons,
        melted=melted,
        relate=data.relate,
    )
    given = [other for other in (covariates, future, table) if other is not None]
    marks = {name: mark for other in given for name, mark in other.marks.items()}
    shown: Any = {name: marks[name] for name in common(schema.numbers, marks)}
    inferred = without(common((*left, *known), bad), declared)
    notes += [_read_as_text(pool[name], bad[name], table, covariates) for name in inferred]
    return Inferred(replace(schema, decimal=shown), table, order, tuple(notes))


def is_category(column: pl.Series) -> bool:
    """Whether values are categories: text and booleans. An empty column counts as numbers."""
    return column.dtype in (*TEXT, pl.Boolean) and column.null_count() < len(column)


def is_number(column: pl.Series) -> bool:
    """Whether values are numbers (an empty column is, too)."""
    empty = column.dtype in (*TEXT, pl.Boolean, pl.Null) and column.null_count() == len(column)
    return column.dtype.is_numeric() or empty


def find_time(table: Table, declared: str | None) -> tuple[str | None, str]:
    """Returns the time column (None: rows are numbered) and the reason."""
    frame = table.frame
    if declared is None and table.time_parts:
        return ",".join(table.time_parts), "a date and a part of the day"
    if declared == "row" and "row" not in frame.columns:
        return None, "declared: rows are numbered"
    if declared is not None:
        refuse_errors(missing_columns([declared], frame.columns, table.name, "--time"))
        dtype = frame[declared].dtype
        if not (dtype in (pl.Date, pl.Datetime, pl.String) or dtype.is_numeric()):
            raise DataError(
                f"{table.name}: --time {declared}: expected dates or integers, found {dtype}"
            )
        return declared, "declared"
    dated = date_like(frame)
    typed = {name: frame[name].dtype.is_temporal() for name in dated}
    for name in sorted(dated, key=lambda name: (name.lower() not in TIME_NAMES, not typed[name])):
        return name, "first column of dates" if typed[name] else "text that reads as dates"
    whole = [name for name in frame.columns if frame[name].dtype.is_integer()]
    for name in whole:
        if is_time_name(name) and (integer_format(frame[name], table.name) or "%Y") != "%Y":
            return name, "whole numbers that read as dates"
    for column in frame:
        if column.dtype.is_float() and is_time_name(column.name) and decimal_years(column):
            return column.name, "numbers that read as years and a fraction"
    parts = [name for name in frame.columns if name.lower() in (*PARTS, *DAYS)]
    words = ("month", "quarter")
    parts = [
        name for name in parts if name in whole or (frame[name].dtype in TEXT and name.lower() in words)
    ]
    for name in whole:
        if name.lower() in COUNTED_TIME_NAMES:
            if name in parts and {part.lower() for part in parts} & {"month", "quarter", "week"}:
                text = f"{table.name}: the columns {', '.join(parts)} may hold the parts of one time"
                raise fault("time", text, f"pass --time {','.join(parts)}, or --time {name}")
            return name, "integers, by its name"
    raise DataError(
        f"{table.name}: no time column found among {listing(frame.columns)}; "
        "pass --time COLUMN, or --time row to number the rows"
        + (", or --layout rows where every row is a whole series" if has_series_rows(frame) else "")
    )


def dates_without_times(table: Table, data: DataConfig) -> list[str]:
    """Returns the names of columns that rise as dates, where no column holds times; else none."""
    dates = date_names(table.frame.columns, data.time_format)
    if dates:
        with suppress(DataError):
            find_time(table, data.time)
            return []
    return dates


def join_clock(table: Table, data: DataConfig) -> Table:
    """Returns the table with its dates and a column of clocks, hours or slots as one time, which is then unique.

    Others as they are: dates that are unique already, or a declared time or role of the second column.
    """
    declared = {*declared_columns(data, "series", "target", "categorical", *COVARIATES)}
    clocks = without((column.name for column in table.frame if _is_clock(column)), declared)
    if data.time is not None or data.layout == "rows" or not clocks:
        return table
    day = str(find_time(table, None)[0])
    for clock in clocks:
        time = f"{day},{clock}"
        try:
            joined = table.with_time(time)
            joined = joined.with_times(time, data.time_format, strict=False, zone=data.time_zone)
        except DataError as error:
            if any(finding.rule == "zones" for finding in error.findings):
                raise
            continue
        rows = len(table.frame)
        times = joined.frame[time].dt.epoch("us")
        pool = _gather(joined, None, time, set(), data.decimal)[0]
        keys = data.series or find_series(joined, time, declared, times, pool)[0]
        repeated, before = (
            rows - part.frame.n_unique([*keys, name]) for part, name in ((joined, time), (table, day))
        )
        # Local time shows an hour twice.
        if repeated <= max(4, rows // 100) and before > max(4 * repeated, rows // 100):
            return joined
    return table


def _is_clock(column: pl.Series) -> bool:
    """Whether a column may hold clocks, or by its name numbers of the hours or slots of a day."""
    if column.dtype not in (pl.String, pl.Time) and not column.dtype.is_integer():
        return False
    texts = "2000-01-01 " + first_values(column).cast(pl.String)
    return any(":" in fmt or _is(_SLOT, column.name) for fmt in guess_formats(texts))


def declared_columns(data: DataConfig, *roles: str) -> list[str]:
    """Returns the columns that are declared to have some roles."""
    return [name for role in roles for name in getattr(data, role) or ()]


def _time_facts(table: Table, time: str | None, data: DataConfig) -> tuple[bool, str | None]:
    """Returns whether times count steps, and else their format where it is known before parsing.

    `data.time_format` and `data.freq` decide whether whole numbers are dates or steps.
    """
    if time is None:
        return True, None
    column, time_format = table.frame[time], data.time_format
    if column.dtype.is_numeric() and time_format is None:
        if data.freq is None or not parse_freq(data.freq).endswith("i"):
            time_format = integer_format(column, f"{table.name}, column '{time}'")
        return time_format is None, time_format
    return False, time_format if column.dtype == pl.String or column.dtype.is_numeric() else None


def date_like(frame: pl.DataFrame) -> list[str]:
    """Returns the columns that hold dates, as such or as text (judged on a sample)."""
    return [
        column.name
        for column in frame
        if column.dtype in (pl.Date, pl.Datetime)
        or (column.dtype == pl.String and guess_formats(column))
    ]


def comparable_times(table: Table, time: str, data: DataConfig) -> tuple[Table, pl.Series | None]:
    """Returns the table with parsed times, and the times as int64.

    Where they cannot be parsed the table is unchanged and times are None; building rows reports it.
    """
    column, (counted, time_format) = table.frame[time], _time_facts(table, time, data)
    if column.dtype == pl.String or (column.dtype.is_numeric() and not counted):
        try:
            strict = data.time_format is not None
            table = table.with_times(time, time_format, strict=strict, zone=data.time_zone)
        except DataError:
            return table, None
        column = table.frame[time]
    if column.dtype.is_temporal():
        if data.time_zone:
            column = instants(column, data.time_zone)
        column = column.dt.epoch("us")
    return table, None if column.null_count() else column.cast(pl.Int64)


def find_series(
    table: Table, time: str | None, taken: set[str], times: pl.Series | None, pool: _Columns
) -> tuple[Names, str, Order | None]:
    """Returns the smallest set of columns that makes (series, time) unique, the reason, and the order.

    Text columns are tried before integers, names such as store_id before others, and single columns
    before pairs. Where no set does, the one that repeats least: the duplicates are then reported.

    Args:
        taken: columns with another role.
        times: int64, see `comparable_times`.
        pool: columns with text of numbers as numbers: whole ones may be keys, as they are written.
    """
    frame = table.frame
    free = [name for name in frame.columns if name != time and name not in taken]
    free = [name for name in free if name.lower() not in TARGETS]
    dated = set(date_like(frame.select(free)))
    text = [name for name in without(free, dated) if pool[name].dtype in TEXT]
    integers = [name for name in free if pool[name].dtype.is_integer()]
    named = [name for name in (*text, *integers) if names_series(name)]
    alone, order = (0, None) if time is None else repeated_rows(table, times, (), time)
    if time is None or alone == 0:
        # One series that carries its own id: kept, so that forecasts carry it too.
        own = [n for n in named if _repeats(frame[n]) and (n in text or frame[n].n_unique() == 1)]
        return tuple(own[:1]), "names the series" if own else "", None if own else order
    candidates = list(dict.fromkeys((*named, *text, *integers)))
    candidates = [name for name in candidates if _repeats(frame[name])][:8]
    # A few rows that repeat are duplicates to be reported; a further key would only hide them.
    nearly: Names = ()
    for size in (1, 2, 3):
        for chosen in itertools.combinations(candidates, size):
            keys = tuple(common(frame.columns, chosen))
            repeated, order = repeated_rows(table, times, keys, time)
            if repeated == 0 and not nearly:
                if alone * 100 <= frame.height and not set(keys) & set(named):
                    return (), "", None
                return keys, f"with {time} it names every row", order
            if repeated <= max(1, frame.height // 100):
                nearly = nearly or keys
        if nearly:
            return nearly, f"with {time} it names nearly every row", None
    likely = common(dict.fromkeys((*named, *text)), candidates)
    if not likely or alone * 100 <= frame.height:
        return (), "", None
    best = max(likely, key=lambda name: frame.n_unique(subset=[name, time]))
    return (best,), f"repeats least with {time}", None


def repeated_rows(
    table: Table, times: pl.Series | None, keys: Names, time: str
) -> tuple[int, Order | None]:
    """Returns how many rows have the keys and the time of another, and the rows' order if found.

    Where a sample shows many, it is the number of all rows.

    Args:
        table, times: see `comparable_times`.
        keys, time: columns of the table.
    """
    columns, height, head = [*keys, time], table.frame.height, table.frame.head(_SAMPLE)
    if head.height - head.n_unique(subset=columns) > max(1, head.height // 100):
        return height, None
    if times is None:
        return height - table.frame.n_unique(subset=columns), None
    order = find_order(table.frame.select(keys), times.to_numpy())
    return int(order.repeated.sum()), order


def _constant_columns(frame: pl.DataFrame, series: Names, names: Sequence[str]) -> set[str]:
    """Returns the columns with one value per series at most, nulls aside; of one series, who and where."""
    keys = frame.select(series)
    # Most tables end with another series than they start with; only others are counted.
    if not series or (keys.row(0) == keys.row(-1) and keys.n_unique() < 2):
        names, series = [name for name in names if _is(_WHO, name)], ()
    return _columns_where(lambda column: column.drop_nulls().n_unique() <= 1, frame, series, names)


def _columns_where(
    test: Callable[[pl.Expr], pl.Expr], frame: pl.DataFrame, series: Names, names: Sequence[str]
) -> set[str]:
    """Returns the columns of which every series passes a test."""

    def passing(rows: pl.DataFrame, names: Collection[str]) -> list[str]:
        tests = [test(pl.col(name)) for name in names]
        passed = rows.group_by(series).agg(tests) if series else rows.select(tests)
        return [name for name in names if passed[name].all()]

    # The first rows and the first series rule out nearly every column; the rest is tested whole.
    left = passing(frame.head(_SAMPLE), names)
    if left and series:
        first = frame.lazy().join(
            frame.select(series).head(1).lazy(), on=list(series), how="semi", nulls_equal=True
        )
        left = passing(first.collect(), left)
    return {*passing(frame, left)} if left else set()


def _measure_nothing(frame: pl.DataFrame, series: Names, times: pl.Series | None) -> dict[str, str]:
    """Returns the columns that number rows, repeat a part of the date, name things, or copy another, and why."""
    free = [c for c in frame if c.name not in series]
    whole = [c.name for c in free if c.dtype.is_integer() and c.name.lower() not in TARGETS]
    ids = [name for name in whole if _is(_ID, name) and frame[name].n_unique() > MOST_CODES]
    found = dict.fromkeys(ids, "names things")
    if frame.height >= _COUNTED:
        found |= {name: "numbers the rows" for name in whole if _numbers_rows(frame[name])}
    for keys in {(), series}:
        rising = _columns_where(_rises, frame, keys, whole)
        if rising and frame.height - max(1, frame.select(keys).n_unique()) >= LEAST_STEPS:
            found |= dict.fromkeys(rising, "numbers the rows")
    stamps = pl.Series(times, dtype=pl.Datetime("us")).head(_SAMPLE)
    parts = _parts_of(stamps) if len(stamps) else []
    for column in frame.head(len(stamps)):
        if any(_repeats_part(column, part, column.name in whole) for part in parts):
            found.setdefault(column.name, "repeats a part of the date")
    seen = dict[object, pl.Series]()
    numbers = [column for column in free if column.dtype.is_numeric()]
    for column in sorted(numbers, key=lambda column: column.name.lower() not in TARGETS):
        other = seen.setdefault(tuple(column.head(SAMPLE)), column)
        if other is not column and column.n_unique() > MOST_CODES and column.equals(other):
            found[column.name] = f"copies '{other.name}'"
    return found


def _is_padded(column: pl.Series) -> bool:
    """Whether text begins with 0 and more digits: ids such as 00012, no clock or month."""
    return column.dtype == pl.String and bool(first_values(column).str.contains("^0[0-9]{2}").any())


def _parts_of(stamps: pl.Series) -> list[pl.Series]:
    """Returns the numbers of the date and the clock."""
    weekday = stamps.dt.weekday()
    parts = [weekday, weekday - 1, weekday % 7, weekday % 7 + 1, (weekday > 5).cast(pl.Int8)]
    names = ("quarter", "month", "week", "day", "ordinal_day", "hour", "minute")
    parts += [getattr(stamps.dt, name)() for name in names]
    return [stamps.dt.year().alias("year"), *parts]


def _repeats_part(column: pl.Series, part: pl.Series, whole: bool) -> bool:
    """Whether a column has a value for each of a part of the date, by its name, or else the very numbers."""
    if _is(_CALENDAR, column.name):
        pair = pl.DataFrame([part.alias("\0"), column])
        return len({pair.n_unique(), *pair.select(pl.all().n_unique()).row(0)}) == 1
    same = whole and len(part) >= _SHOWN and bool((column == part).fill_null(False).all())
    return same and (part.name == "year" or part.n_unique() > 1)


def _numbers_rows(column: pl.Series) -> bool:
    """Whether values all differ and fill two thirds of their range, in any order."""
    head, rows = column.head(_SAMPLE), len(column)
    if column.null_count() or not head.is_unique().all():
        return False
    spread: int = column.max() - column.min()  # type: ignore[operator,assignment]
    return spread < 1.5 * rows and column.n_unique() == rows


def _rises(column: pl.Expr) -> pl.Expr:
    """Whether every value is one more than that of the row before."""
    return (column.diff().slice(1) == 1).fill_null(False).all()


def _is(pattern: str, name: str) -> bool:
    return re.search(pattern, snake(name)) is not None


def _find_target(
    table: Table, numbers: list[str], series: Names, constant: set[str], data: DataConfig
) -> tuple[Names, str]:
    """Returns the columns to forecast, or the channels that are classified, and the reason."""
    label, covariates = data.label, declared_columns(data, *COVARIATES)
    if label is not None:
        numbers = without(numbers, constant)
    named = [name for name in numbers if name.lower() in TARGETS]
    if named and label is None:
        return (named[0],), "by its name"
    if numbers and (label is not None or not series):
        return tuple(numbers), "every column of numbers is a channel"
    varying = without(numbers, constant)
    if varying:
        return (varying[0],), "first column of numbers that varies"
    raise DataError(
        f"{table.name}: no column of numbers left to forecast among {listing(table.frame.columns)}; "
        + (f"leave one out of the covariates {listing(covariates)}, or " if covariates else "")
        + "pass --target COLUMN"
    )


def _read_as_text(column: pl.Series, bad: pl.Series, table: Table, covariates: Table | None) -> Finding:
    """Returns the warning that a covariate nobody declared is text because of a few cells."""
    name, row, count = column.name, int(bad.arg_true()[0]), int(bad.sum())
    source = table if covariates is None or name in table.frame.columns else covariates
    text = f"'{name}' is read as text: {count:,} of {column.count():,} cells are no numbers, as '{column[row]}'"
    advice = f"correct or empty such cells, or pass --categorical {name} if they are words"
    return Finding("warning", "text", text, advice, where=source.place(row + 1), count=count)


def names_series(name: str) -> bool:
    """Whether a column's name has a word for a series, as store_id or itemId."""
    return bool(SERIES_WORDS & words_of(name))


def _repeats(column: pl.Series) -> bool:
    head = column.head(_SAMPLE)
    return head.n_unique() * 2 <= len(head) or column.n_unique() * 2 <= len(column)


def _gather(
    table: Table, covariates: Table | None, time: str | None, declared: set[str], decimal: str | None
) -> tuple[dict[str, pl.Series], list[str]]:
    """Returns every column that may have a role, and the names of those from a table without times.

    Text of numbers is numbers here, as it is read later, except dates.

    Raises:
        DataError: a column with a declared role is in both tables.
    """

    def columns(frame: pl.DataFrame) -> dict[str, pl.Series]:
        text = frame.select(c.name for c in frame if c.dtype == pl.String and c.name != time)
        text = text.drop(date_like(text))
        known = Decimals(seen={decimal or ""} - {""}, undecided=True, padded=text.columns)
        frame = frame.with_columns(as_numbers(text, known, "").frame)
        return {column.name: column for column in frame if column.name != time}

    pool = columns(table.frame)
    if covariates is None:
        return pool, []
    shared = [name for name in covariates.frame.columns if name in pool or name == time]
    for name in shared:
        if name in declared:
            raise DataError(
                f"{covariates.name}: column '{name}' is also in {table.name}; keep it in one of them"
            )
    extra = columns(covariates.frame.drop(shared))
    return pool | extra, [] if time is None or time in shared else list(extra)


def _check_declared(data: DataConfig, names: list[str], table: Table, time: str | None) -> None:
    """Raises a DataError for declared columns that do not exist or have two roles."""
    roles = {
        role: getattr(data, role) or () for role in ("series", "target", "known", "past", "static")
    }
    roles |= {"label": () if data.label is None else (data.label,)}
    found = missing_columns(data.relate, table.frame.columns, table.name, "--relate")
    for name, text in two_roles({"time": (time,)} | roles):
        error = f"{table.name}: {text}"
        found.append(Finding("error", "two-roles", error, "keep one of them", where=name))
    for role, group in roles.items():
        allowed = table.frame.columns if role in ("series", "target", "label") else names
        found += missing_columns(group, allowed, table.name, f"--{role}")
    refuse_errors(found)


def _find_known(free: list[str], data: DataConfig, future: Table | None) -> dict[str, str]:
    """Returns the covariates known in advance with their reasons."""
    known = dict.fromkeys(data.known, "declared")
    if future is not None:
        given = [column.name for column in future.frame if column.null_count() < len(column)]
        if data.target is None:
            given = [name for name in given if name.lower() not in TARGETS]
        others = declared_columns(data, "target", "past", "static")
        known = dict.fromkeys(without(given, others), f"in {future.name}") | known
    return {name: known[name] for name in common(free, known)}


def _role_of(column: pl.Series, data: DataConfig, one_value: Collection[str]) -> tuple[str, str]:
    """Returns the role of a column that is not known in advance, and the reason.

    Args:
        one_value: names of the columns with one value per series.
    """
    for role, names in (("static", data.static), ("past", data.past)):
        if column.name in (names or ()):
            return role, "declared"
    if unusable := _unusable(column):
        return "ignored", unusable
    if data.static is None and column.name in one_value:
        return "static", "one value per series"
    if data.past is None:
        return "past", "every other usable column"
    return "ignored", "ignored: the past covariates are declared"


def _find_categorical(
    pool: _Columns, counts: Mapping[str, int], data: DataConfig, numbers: Collection[str]
) -> tuple[Names, Names]:
    """Returns the covariates that are categories, and those among them that are made of numbers.

    Text and booleans always are. Of numbers, the declared ones; where nothing is declared, columns
    that look like codes: integers from 0 or 1 on without a hole, `MOST_CODES` at most, with
    `ROWS_PER_CODE` rows of each on average. Flags, weekdays and months look so; prices of 4, 5 and 6
    do not.

    Args:
        counts: number of values of each covariate: rows, or series where it is static.
        numbers: names of those that were meant to be numbers, text or not.
    """
    declared = data.categorical or ()
    for name in declared:
        if name not in counts:
            found = "another role" if name in pool else "no such column"
            raise DataError(
                f"--categorical {name}: expected a covariate, found {found}"
                f"{did_you_mean(name, list(counts))}; the covariates are "
                f"{listing(list(counts)) or 'none'}"
            )
        if (count := pool[name].n_unique()) > MOST_CATEGORIES:
            raise DataError(
                f"--categorical {name}: expected at most {MOST_CATEGORIES} different values, found "
                f"{count}; leave it a number"
            )
    text = [name for name in counts if is_category(pool[name]) and name not in numbers]
    coded = without(common(counts, declared), text)
    if data.categorical is None:
        coded = [name for name, count in counts.items() if look_like_codes(pool[name], count)]
    return tuple(common(counts, (*text, *coded))), tuple(coded)


def look_like_codes(column: pl.Series, count: int) -> bool:
    """Whether whole numbers look like codes: they run from 0 or 1 without a hole."""
    if not column.dtype.is_integer():
        return False
    # A sample rules out nearly every column of measurements.
    for part in (column.head(_SAMPLE), column):
        values = part.drop_nulls().unique().sort()
        many = len(values)
        if not 2 <= many <= MOST_CODES or many * ROWS_PER_CODE > count or values[0] not in (0, 1):
            return False
        if values.to_list() != [*range(values[0], values[0] + many)]:
            return False
    return True


def _unusable(column: pl.Series) -> str:
    if is_category(column):
        count = column.n_unique()
        many = count > MOST_CATEGORIES
        return f"ignored: {count} different texts, more than {MOST_CATEGORIES}" if many else ""
    return "" if is_number(column) else f"ignored: neither numbers nor text ({column.dtype})"


def check_schema(schema: Schema, table: Table, covariates: Table | None) -> None:
    """Raises a DataError with a line for each column of the schema that both tables lack."""
    columns, time = table.frame.columns, () if schema.time is None else (schema.time,)
    found = []
    for name in (*schema.key_columns, *time):
        if name in _RESULTS or re.fullmatch(r"q0\.\d+", name):
            text = f"{table.name}: the key column '{name}' has the name of a result"
            found.append(Finding("error", "names", text, "rename it", where=name))
    for flag, names in (
        ("a target", schema.target_columns),
        ("a series key", schema.key_columns),
        ("the time column", time),
    ):
        found += missing_columns(names, columns, table.name, flag)
    others = [] if covariates is None else covariates.frame.columns
    known = without(columns, time)
    both = f"it or {covariates.name}" if covariates is not None else "it"
    advice = "join it, or pass the table that holds it with --covariates"
    for name in without(schema.covariates, (*known, *others)):
        near = f"{did_you_mean(name, known)}; the columns are {listing(columns)}"
        text = f"{table.name}: no column '{name}' in {both}, a covariate of the model{near}"
        found.append(Finding("error", "columns", text, advice, where=name))
    refuse_errors(found)
