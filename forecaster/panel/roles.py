"""Roles: which column is time, series key, target, covariate or static, declared or inferred.

Every column gets a role, or is ignored, with a reason that users read. Nothing here parses more than
a sample of dates, time itself aside; whole columns are only compared and counted. A covariate is known
in advance only where declared or given in the future table, never by a guess.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.cells import parse_time_column
from forecaster.panel.findings import Faults, Finding, refuse_errors
from forecaster.panel.freq import parse_freq
from forecaster.panel.one_row_per_series import has_series_rows
from forecaster.panel.order import Order, find_order
from forecaster.panel.schema import Names, Schema
from forecaster.panel.table import Table, did_you_mean, listing
from forecaster.panel.timestamps import EPOCHS, guess_formats, integer_format, is_time_name

TIME_NAMES = ("date", "time", "timestamp", "datetime", "date_time", "day", "month", "period")
COUNTED_TIME_NAMES = ("time", "date", "year", "step", "t", "timestamp")
SERIES_WORDS = {"id", "series", "store", "item", "sku"}
WIDE_TARGETS = ("target", "y", "value", "values")
LONG_TARGETS = (*WIDE_TARGETS, "sales", "demand")
MOST_CATEGORIES = 100
_SAMPLE = 10_000
_TEXT = (pl.String, pl.Categorical, pl.Enum)
MOST_CODES = 12
"""Different whole numbers up to which they may be codes of categories: the months of a year."""
ROWS_PER_CODE = 10
"""Rows of each code, on average, below which there are too few to learn from."""
_RESULTS = {"lead", "cutoff", "channel", "forecast", "mean", "status", "actual"}


class Inferred(NamedTuple):
    """Roles, and what was computed on the way to them."""

    schema: Schema
    table: Table
    """With parsed times where series had to be found."""
    order: Order | None
    """Of the rows by series and time; None = not computed."""


def infer_schema(
    table: Table, data: DataConfig, future: Table | None = None, covariates: Table | None = None
) -> Inferred:
    """Returns the declared roles of a table's columns, and inferred ones for the rest.

    Frequency and categories stay empty: they are found once rows are built.

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
    time, time_reason = find_time(table, data.time)
    pool, timeless = gather(table, covariates, time, data)
    check_declared(data, list(pool), table, time)
    declared = {*data.known, *(data.target or ()), *(data.past or ()), *(data.static or ())}
    time_dtype, time_format = time_facts(table, time, data)
    if time_format is not None:
        time_reason += f"; {time_format}" + (" since 1970" if time_format in EPOCHS else "")
    reasons = {time: time_reason} if time is not None else {}
    table, series, reason, order = _series(table, time, declared, data)
    reasons |= dict.fromkeys(series, reason)
    own = pl.DataFrame([column for name, column in pool.items() if name in table.frame.columns])
    for name in date_like(own):
        if name not in series and name not in declared:
            pool.pop(name)
            reasons[name] = "ignored: dates, and time is another column"
    free = [name for name in pool if name not in series]
    known = find_known(pool, free, data, future)
    left = [name for name in free if name not in known and name not in timeless]
    left = [name for name in left if name not in declared or name in (data.target or ())]
    constant = _constant(table, series, left)
    target, reason = _target(table, data, series, left, constant)
    reasons |= dict.fromkeys(target, reason) | known
    left = [name for name in free if name not in target and name not in known]
    static = find_static(pool, left, data, constant | set(timeless))
    past, ignored = find_past(pool, [n for n in left if n not in static], data)
    reasons |= static | past | ignored
    judged = {name: len(pool[name]) for name in (*known, *past, *static)}
    if static and series:
        judged |= dict.fromkeys(static, table.frame.select(series).n_unique())
    categorical, coded = find_categorical(pool, judged, data)
    reasons |= {name: f"{reasons[name]}; looks like codes" for name in coded}
    melted = target if data.layout == "long" and not series and len(target) > 1 else ()
    schema = Schema(
        time=time,
        time_dtype=time_dtype,
        time_format=time_format,
        series=("channel",) if melted else series,
        target=("value",) if melted else target,
        known=tuple(known),
        past=tuple(past),
        static=tuple(static),
        categorical=categorical,
        dtypes={name: str(table.frame[name].dtype) for name in series},
        layout=_layout(data.layout, bool(series or melted)),
        reasons=reasons,
        melted=melted,
    )
    return Inferred(schema, table, order)


def _layout(declared: str | None, several: bool) -> str:
    return "rows" if declared == "rows" else "long" if several else declared or "wide"


def _series(
    table: Table, time: str | None, declared: set[str], data: DataConfig
) -> tuple[Table, Names, str, Order | None]:
    times, order = None, None
    if data.series is not None:
        series, reason = data.series, "declared"
    else:
        if time is not None:
            table, times = comparable_times(table, time, data)
        series, reason, order = find_series(table, time, declared, times)
    if data.layout == "wide" and series:
        raise DataError(
            f"{table.name}: layout wide expects one row per time, but {', '.join(series)} names "
            "several series; drop --layout, or pivot the table to one column per series"
        )
    return table, series, reason, order


def _constant(table: Table, series: Names, names: list[str]) -> set[str]:
    own = [name for name in names if name in table.frame.columns]
    keys = table.frame.select(series)
    # Most tables end with another series than they start with; only others are counted.
    if not series or (keys.row(0) == keys.row(-1) and keys.n_unique() < 2):
        return set()
    return constant_columns(table.frame, series, own)


def _target(
    table: Table, data: DataConfig, series: Names, left: list[str], constant: set[str]
) -> tuple[Names, str]:
    if data.target is not None:
        return data.target, "declared"
    own = [name for name in left if name in table.frame.columns]
    target, reason = find_target(table.frame, own, series, constant)
    if not target:
        raise DataError(
            f"{table.name}: no column of numbers left to forecast among "
            f"{listing(table.frame.columns)}; pass --target COLUMN"
        )
    return target, reason


def is_category(column: pl.Series) -> bool:
    """Whether values are categories: text and booleans. An empty column counts as numbers."""
    return column.dtype in (*_TEXT, pl.Boolean) and column.null_count() < len(column)


def is_number(column: pl.Series) -> bool:
    """Whether values are numbers (an empty column is, too)."""
    empty = column.dtype in (*_TEXT, pl.Boolean, pl.Null) and column.null_count() == len(column)
    return column.dtype.is_numeric() or empty


def missing_columns(names: Sequence[str], known: Sequence[str], where: str, flag: str) -> list[Finding]:
    """Returns an error for each name that is no column, with the nearest one and a list of all."""
    return [
        Finding(
            "error",
            "missing-column",
            f"{where}: no column '{name}' ({flag}){did_you_mean(name, known)}",
            f"the columns are {listing(known)}",
            where=name,
        )
        for name in names
        if name not in known
    ]


def check_columns(names: Sequence[str], known: Sequence[str], where: str, flag: str) -> None:
    """Raises a DataError for names that are no columns."""
    refuse_errors(missing_columns(names, known, where, flag))


def find_time(table: Table, declared: str | None) -> tuple[str | None, str]:
    """Returns the time column (None: rows are numbered) and the reason."""
    frame = table.frame
    if declared == "row" and "row" not in frame.columns:
        return None, "declared: rows are numbered"
    if declared is not None:
        check_columns([declared], frame.columns, table.name, "--time")
        dtype = frame[declared].dtype
        if not (dtype in (pl.Date, pl.Datetime, pl.String) or dtype.is_integer()):
            raise DataError(
                f"{table.name}: --time {declared}: expected dates or integers, found {dtype}"
            )
        return declared, "declared"
    dated = date_like(frame)
    for name in dated:
        if frame[name].dtype.is_temporal():
            return name, "first column of dates"
    for name in sorted(dated, key=lambda name: name.lower() not in TIME_NAMES):
        return name, "text that reads as dates"
    whole = [name for name in frame.columns if frame[name].dtype.is_integer()]
    for name in whole:
        if is_time_name(name) and (integer_format(frame[name], table.name) or "%Y") != "%Y":
            return name, "whole numbers that read as dates"
    for name in whole:
        if name.lower() in COUNTED_TIME_NAMES:
            return name, "integers, by its name"
    raise DataError(
        f"{table.name}: no time column found among {listing(frame.columns)}; "
        "pass --time COLUMN, or --time row to number the rows"
        + (", or --layout rows where every row is a whole series" if has_series_rows(frame) else "")
    )


def time_facts(table: Table, time: str | None, data: DataConfig) -> tuple[str, str | None]:
    """Returns `Schema.time_dtype`, and the format where it is known before parsing.

    `data.time_format` and `data.freq` decide whether whole numbers are dates or steps.
    """
    if time is None:
        return "integer", None
    column, time_format = table.frame[time], data.time_format
    if column.dtype.is_integer() and time_format is None:
        counts = data.freq is not None and parse_freq(data.freq).endswith("i")
        if not counts:
            time_format = integer_format(column, f"{table.name}, column '{time}'")
        if time_format is None:
            return "integer", None
    if column.dtype == pl.String or column.dtype.is_integer():
        # Whether a file holds dates or stamps is known once it is parsed.
        kept = "digits" if column.dtype.is_integer() else "string"
        return ("datetime" if table.kind == "file" else kept), time_format
    return "date" if column.dtype == pl.Date else "datetime", None


def date_like(frame: pl.DataFrame) -> list[str]:
    """Returns the columns that hold dates, as such or as text (judged on a sample)."""
    return [
        column.name
        for column in frame.iter_columns()
        if column.dtype in (pl.Date, pl.Datetime)
        or (column.dtype == pl.String and guess_formats(column))
    ]


def comparable_times(table: Table, time: str, data: DataConfig) -> tuple[Table, pl.Series | None]:
    """Returns the table with parsed times, and the times as int64.

    Where they cannot be parsed the table is unchanged and times are None; building rows reports it.
    """
    column, (kind, time_format) = table.frame[time], time_facts(table, time, data)
    if column.dtype == pl.String or (column.dtype.is_integer() and kind != "integer"):
        try:
            table = parse_time_column(table, time, time_format, strict=data.time_format is not None)
        except DataError:
            return table, None
        column = table.frame[time]
    if column.dtype.is_temporal():
        zone = column.dtype.time_zone if isinstance(column.dtype, pl.Datetime) else None
        column = column.cast(pl.Datetime("us", zone)).to_physical()
    return table, None if column.null_count() else column.cast(pl.Int64)


def find_series(
    table: Table, time: str | None, taken: set[str], times: pl.Series | None
) -> tuple[tuple[str, ...], str, Order | None]:
    """Returns the smallest set of columns that makes (series, time) unique, the reason, and the order.

    Text columns are tried before integers, names such as store_id before others, and single columns
    before pairs. Where no set does, the one that repeats least: the duplicates are then reported.

    Args:
        taken: columns with another role.
        times: int64, see `comparable_times`.
    """
    frame = table.frame
    free = [name for name in frame.columns if name != time and name not in taken]
    free = [name for name in free if name.lower() not in LONG_TARGETS]
    dated = set(date_like(frame.select(free)))
    text = [name for name in free if name not in dated and frame[name].dtype in _TEXT]
    integers = [name for name in free if frame[name].dtype.is_integer()]
    named = [name for name in (*text, *integers) if _names_series(name)]
    alone, order = (0, None) if time is None else repeated_rows(table, times, (), time)
    if time is None or alone == 0:
        # One series that carries its own id: kept, so that forecasts carry it too.
        own = [name for name in named if name in text and _repeats(frame[name])]
        return tuple(own[:1]), "names the series" if own else "", None if own else order
    candidates = list(dict.fromkeys((*named, *text, *integers)))
    candidates = [name for name in candidates if _repeats(frame[name])][:8]
    # A few rows that repeat are duplicates to be reported; a further key would only hide them.
    nearly: tuple[str, ...] = ()
    for size in (1, 2, 3):
        for chosen in itertools.combinations(candidates, size):
            if nearly and set(nearly) <= set(chosen):
                continue
            keys = tuple(name for name in frame.columns if name in chosen)
            repeated, order = repeated_rows(table, times, keys, time)
            if repeated == 0 and not nearly:
                if alone * 100 <= frame.height and not set(keys) & set(named):
                    return (), "", None
                return keys, f"with {time} it names every row", order
            if repeated <= max(1, frame.height // 100):
                nearly = nearly or keys
        if nearly:
            return nearly, f"with {time} it names nearly every row", None
    likely = [name for name in dict.fromkeys((*named, *text)) if name in candidates]
    if not likely or alone * 100 <= frame.height:
        return (), "", None
    best = max(likely, key=lambda name: frame.n_unique(subset=[name, time]))
    return (best,), f"repeats least with {time}", None


def repeated_rows(
    table: Table, times: pl.Series | None, keys: tuple[str, ...], time: str
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


def constant_columns(frame: pl.DataFrame, keys: Sequence[str], names: Sequence[str]) -> set[str]:
    """Returns the columns with one value per series at most, nulls aside."""

    def constant(rows: pl.DataFrame, columns: Sequence[str]) -> list[str]:
        if not columns:
            return []
        counts = rows.group_by(keys).agg(pl.col(columns).drop_nulls().n_unique() <= 1)
        return [name for name in columns if counts[name].all()]

    # A few rows rule out nearly every column, so the whole table is grouped for the rest only.
    left = constant(frame.head(_SAMPLE), names)
    if not left:
        return set()
    first = frame.head(1).select(keys)
    one = frame.lazy().join(first.lazy(), on=list(keys), how="semi", nulls_equal=True).collect()
    return set(constant(frame, constant(one, left)))


def find_target(
    frame: pl.DataFrame, free: list[str], keys: tuple[str, ...], constant: set[str]
) -> tuple[tuple[str, ...], str]:
    """Returns the columns to forecast and the reason; none where no free column is numeric."""
    numbers = [name for name in free if is_number(frame[name])]
    names = LONG_TARGETS if keys else WIDE_TARGETS
    for name in numbers:
        if name.lower() in names:
            return (name,), "by its name"
    if not keys:
        return tuple(numbers), "every column of numbers is a channel"
    for name in numbers:
        if name not in constant:
            return (name,), "first column of numbers that varies"
    return (), ""


def _names_series(name: str) -> bool:
    # storeId and store_id hold the same words.
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return bool(SERIES_WORDS & set(re.split(r"[^a-z]+", words)))


def _repeats(column: pl.Series) -> bool:
    head = column.head(_SAMPLE)
    return head.n_unique() * 2 <= len(head) or column.n_unique() * 2 <= len(column)


def gather(
    table: Table, covariates: Table | None, time: str | None, data: DataConfig
) -> tuple[dict[str, pl.Series], tuple[str, ...]]:
    """Returns every column that may have a role, and the names of those from a table without times."""
    pool = {column.name: column for column in table.frame.iter_columns() if column.name != time}
    if covariates is None:
        return pool, ()
    joined_on = [name for name in covariates.frame.columns if name in pool or name == time]
    extra = [name for name in covariates.frame.columns if name not in joined_on]
    carried = {*data.known, *(data.target or ()), *(data.past or ()), *(data.static or ())}
    twice = [name for name in joined_on if name in carried]
    if twice:
        raise DataError(
            f"{covariates.name}: column '{twice[0]}' is also in {table.name}; keep it in one of them"
        )
    pool |= {name: covariates.frame[name] for name in extra}
    return pool, tuple(extra) if time is not None and time not in joined_on else ()


def check_declared(data: DataConfig, names: list[str], table: Table, time: str | None) -> None:
    """Raises a DataError for declared columns that do not exist or have two roles."""
    groups = {
        "--series": data.series,
        "--target": data.target,
        "--known": data.known,
        "--past": data.past,
        "--static": data.static,
    }
    owner: dict[str, str] = {time: "--time"} if time is not None else {}
    found: list[Finding] = []
    for flag, group in groups.items():
        for name in group or ():
            if name in owner:
                found.append(
                    Finding(
                        "error",
                        "two-roles",
                        f"{table.name}: column '{name}' is declared twice, by {owner[name]} and {flag}",
                        "keep one of them",
                        where=name,
                    )
                )
            owner[name] = flag
        allowed = table.frame.columns if flag in ("--series", "--target") else names
        found += missing_columns(group or (), allowed, table.name, flag)
    refuse_errors(found)


def find_known(
    pool: dict[str, pl.Series], free: list[str], data: DataConfig, future: Table | None
) -> dict[str, str]:
    """Returns the covariates known in advance with their reasons."""
    reasons = dict.fromkeys(data.known, "declared")
    if future is not None:
        elsewhere = {*(data.target or ()), *(data.past or ()), *(data.static or ())}
        given = {c.name for c in future.frame.iter_columns() if c.null_count() < len(c)}
        for name in free:
            target_like = data.target is None and name.lower() in LONG_TARGETS
            if name in given and name not in elsewhere and not target_like:
                reasons.setdefault(name, f"in {future.name}")
    return {name: reasons[name] for name in pool if name in reasons}


def find_static(
    pool: dict[str, pl.Series], left: list[str], data: DataConfig, one_value: set[str]
) -> dict[str, str]:
    """Returns the columns constant within a series with their reasons."""
    if data.static is not None:
        return dict.fromkeys((name for name in pool if name in data.static), "declared")
    taken = set(data.past or ())
    return {
        name: "one value per series"
        for name in left
        if name in one_value and name not in taken and not _unusable(pool[name])
    }


def find_past(
    pool: dict[str, pl.Series], left: list[str], data: DataConfig
) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the past covariates and the ignored columns, with their reasons."""
    if data.past is not None:
        past = dict.fromkeys((name for name in pool if name in data.past), "declared")
        rest = [name for name in left if name not in past]
        return past, dict.fromkeys(rest, "ignored: the past covariates are declared")
    why = {name: _unusable(pool[name]) for name in left}
    past = {name: "every other usable column" for name in left if not why[name]}
    return past, {name: reason for name, reason in why.items() if reason}


def find_categorical(
    pool: dict[str, pl.Series], covariates: Mapping[str, int], data: DataConfig
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the covariates that are categories, and those among them that are made of numbers.

    Text and booleans always are. Of numbers, the declared ones; where nothing is declared, columns
    that look like codes: integers from 0 or 1 on without a hole, `MOST_CODES` at most, with
    `ROWS_PER_CODE` rows of each on average. Flags, weekdays and months look so; prices of 4, 5 and 6
    do not.

    Args:
        covariates: name → number of values: rows, or series where it is static.
    """
    declared = data.categorical or ()
    for name in declared:
        if name not in covariates:
            raise DataError(
                f"--categorical {name}: expected a covariate, found "
                f"{'another role' if name in pool else 'no such column'}"
                f"{did_you_mean(name, list(covariates))}; the covariates are "
                f"{listing(list(covariates)) or 'none'}"
            )
        if (count := pool[name].n_unique()) > MOST_CATEGORIES:
            raise DataError(
                f"--categorical {name}: expected at most {MOST_CATEGORIES} different values, found "
                f"{count}; leave it a number"
            )
    numbers = tuple(
        name
        for name, count in covariates.items()
        if not is_category(pool[name])
        and (name in declared or (data.categorical is None and look_like_codes(pool[name], count)))
    )
    return tuple(n for n in covariates if n in numbers or is_category(pool[n])), numbers


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
        if not bool((values - values[0] == pl.int_range(many, eager=True)).all()):
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
    faults, columns = Faults(), table.frame.columns
    with faults:
        _check_result_names(schema, table)
    wanted = {
        "a target": schema.melted or schema.target,
        "a series key": () if schema.melted else schema.series,
        "the time column": () if schema.time is None else (schema.time,),
    }
    for flag, names in wanted.items():
        with faults:
            check_columns(names, columns, table.name, flag)
    with faults:
        _check_covariates(schema, table, covariates)
    faults.refuse()


def _check_result_names(schema: Schema, table: Table) -> None:
    keys = () if schema.melted else schema.series
    refuse_errors(
        Finding(
            "error",
            "names",
            f"{table.name}: the key column '{name}' has the name of a result",
            "rename it",
            where=name,
        )
        for name in (*keys, *([schema.time] if schema.time is not None else []))
        if name in _RESULTS or re.fullmatch(r"q0\.\d+", name)
    )


def _check_covariates(schema: Schema, table: Table, covariates: Table | None) -> None:
    known = [name for name in table.frame.columns if name != schema.time]
    there = {*known, *(covariates.frame.columns if covariates is not None else ())}
    other = f" or {covariates.name}" if covariates is not None else ""
    refuse_errors(
        Finding(
            "error",
            "columns",
            f"{table.name}: no column '{name}' in it{other}, a covariate of the model"
            f"{did_you_mean(name, known)}; the columns are {listing(table.frame.columns)}",
            "join it, or pass the table that holds it with --covariates",
            where=name,
        )
        for name in (*schema.past, *schema.known, *schema.static)
        if name not in there
    )
