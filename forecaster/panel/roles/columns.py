"""Which column is what, told from the data: the single questions `infer_schema` asks.

What comes in is a frame and some names; what goes out is names and the reason in the reader's words.
Nothing here parses more than a sample of dates; whole columns are only compared and counted.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import polars as pl

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.clock.digits import integer_format, is_time_name
from forecaster.panel.clock.frequency import parse_freq
from forecaster.panel.clock.stamps import guess_formats
from forecaster.panel.findings import Finding, refuse_errors
from forecaster.panel.reading.table import Table, did_you_mean, listing
from forecaster.panel.reading.unrolled import looks_rolled

TIME_NAMES = ("date", "time", "timestamp", "datetime", "date_time", "day", "month", "period")
COUNTED_TIME_NAMES = ("time", "date", "year", "step", "t", "timestamp")
SERIES_WORDS = {"id", "series", "store", "item", "sku"}
WIDE_TARGETS = ("target", "y", "value", "values")
LONG_TARGETS = (*WIDE_TARGETS, "sales", "demand")
MOST_CATEGORIES = 100
_SAMPLE = 10_000


def is_category(column: pl.Series) -> bool:
    """Whether values are categories: text and booleans. An empty column counts as numbers."""
    kinds = (pl.String, pl.Categorical, pl.Enum, pl.Boolean)
    return column.dtype in kinds and column.null_count() < len(column)


def is_number(column: pl.Series) -> bool:
    """Whether values are numbers (an empty column is, too)."""
    text = (pl.String, pl.Categorical, pl.Enum, pl.Boolean)
    empty = column.dtype in (*text, pl.Null) and column.null_count() == len(column)
    return column.dtype.is_numeric() or empty


def missing_columns(names: Sequence[str], known: Sequence[str], where: str, flag: str) -> list[Finding]:
    """Returns an error for each name that is no column, with the nearest and all there are."""
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


def require_columns(names: Sequence[str], known: Sequence[str], where: str, flag: str) -> None:
    """Refuses names that are no columns.

    Raises:
        DataError: naming the missing ones, the nearest, and all columns there are.
    """
    refuse_errors(missing_columns(names, known, where, flag))


def find_time(table: Table, declared: str | None) -> tuple[str | None, str]:
    """Returns the time column (None: rows are numbered) and why.

    Raises:
        DataError: the declared column is missing or holds no times, or none is found.
    """
    frame = table.frame
    if declared == "row" and "row" not in frame.columns:
        return None, "declared: rows are numbered"
    if declared is not None:
        require_columns([declared], frame.columns, table.name, "--time")
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
        + (", or --layout rows where every row is a whole series" if looks_rolled(frame) else "")
    )


def time_facts(table: Table, time: str | None, data: DataConfig) -> tuple[str, str | None]:
    """Returns what the time column holds, and how it is written where that is known before reading.

    Args:
        table, time: the column; None = rows are numbered.
        data: `time_format` and `freq` settle what whole numbers mean.

    Raises:
        DataError: whole numbers may be dates or steps.
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
    if table.is_text(time) or column.dtype.is_integer():
        # Whether a file holds dates or stamps is known once it is parsed.
        kept = "string" if table.is_text(time) else "digits"
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


def comparable_times(table: Table, time: str, data: DataConfig) -> pl.Series | None:
    """Returns the times of a column as int64; None where they cannot be read, as rows will tell."""
    column, (kind, time_format) = table.frame[time], time_facts(table, time, data)
    if table.is_text(time) or (column.dtype.is_integer() and kind != "integer"):
        try:
            column, _ = table.parsed(time, time_format, strict=data.time_format is not None)
        except DataError:
            return None
    if column.dtype.is_temporal():
        zone = column.dtype.time_zone if isinstance(column.dtype, pl.Datetime) else None
        column = column.cast(pl.Datetime("us", zone)).to_physical()
    return None if column.null_count() else column.cast(pl.Int64)


def find_series(
    table: Table, time: str | None, taken: set[str], times: pl.Series | None
) -> tuple[tuple[str, ...], str]:
    """Returns the smallest set of columns that makes (series, time) unique, and why.

    Text columns are tried before integers, names such as store_id before others, and single columns
    before pairs. Where nothing works, the set that repeats least: the duplicates are then reported.

    Args:
        table, time: its column of times; None = rows are numbered.
        taken: columns with another role.
        times: int64, see `comparable_times`.
    """
    frame = table.frame
    free = [name for name in frame.columns if name != time and name not in taken]
    free = [name for name in free if name.lower() not in LONG_TARGETS]
    dated = set(date_like(frame.select(free)))
    text = [name for name in free if name not in dated and is_text(frame[name])]
    integers = [name for name in free if frame[name].dtype.is_integer()]
    named = [name for name in (*text, *integers) if _names_series(name)]
    alone = 0 if time is None else repeated_rows(table, (), time, times)
    if time is None or alone == 0:
        # One series that carries its own id: kept, so that forecasts carry it too.
        own = [name for name in named if name in text and _repeats(frame[name])]
        return tuple(own[:1]), "names the series" if own else ""
    candidates = list(dict.fromkeys((*named, *text, *integers)))
    candidates = [name for name in candidates if _repeats(frame[name])][:8]
    # A few rows that repeat are duplicates to be reported; a further key would only hide them.
    nearly: tuple[str, ...] = ()
    for size in (1, 2, 3):
        for chosen in itertools.combinations(candidates, size):
            if nearly and set(nearly) <= set(chosen):
                continue
            keys = tuple(name for name in frame.columns if name in chosen)
            repeated = repeated_rows(table, keys, time, times)
            if repeated == 0 and not nearly:
                if alone * 100 <= frame.height and not set(keys) & set(named):
                    return (), ""
                return keys, f"with {time} it names every row"
            if repeated <= max(1, frame.height // 100):
                nearly = nearly or keys
        if nearly:
            return nearly, f"with {time} it names nearly every row"
    likely = [name for name in dict.fromkeys((*named, *text)) if name in candidates]
    if not likely or alone * 100 <= frame.height:
        return (), ""
    best = max(likely, key=lambda name: frame.n_unique(subset=[name, time]))
    return (best,), f"repeats least with {time}"


def repeated_rows(table: Table, keys: tuple[str, ...], time: str, times: pl.Series | None) -> int:
    """Returns how many rows have the keys and the time of another; all of them where it is plain.

    Args:
        table, keys, time: and columns of it.
        times: int64, see `comparable_times`.
    """
    columns, height, head = [*keys, time], table.frame.height, table.frame.head(_SAMPLE)
    if head.height - head.n_unique(subset=columns) > max(1, head.height // 100):
        return height
    if times is None:
        return height - table.frame.n_unique(subset=columns)
    return int(table.order(keys, times).repeated.sum())


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
    """Returns the columns to forecast among the free ones, and why; none where none is a number."""
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


def is_text(column: pl.Series) -> bool:
    """Whether values are text, categories of a frame included."""
    return column.dtype in (pl.String, pl.Categorical, pl.Enum)


def _names_series(name: str) -> bool:
    # storeId and store_id hold the same words.
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return bool(SERIES_WORDS & set(re.split(r"[^a-z]+", words)))


def _repeats(column: pl.Series) -> bool:
    head = column.head(_SAMPLE)
    return head.n_unique() * 2 <= len(head) or column.n_unique() * 2 <= len(column)
