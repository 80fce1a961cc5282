"""Text becomes time: what comes in is a column of dates as strings, what goes out are timestamps.

The format is guessed on a sample and then holds for the whole column in one vectorised cast; the
first row that does not follow it is named. Day-first and month-first are told apart by the whole
column (a part above 12 decides); where nothing decides, the column is refused, never guessed.
"""

from __future__ import annotations

import re

import polars as pl

from forecaster.errors import DataError

SAMPLE = 100
_CLOCK = (
    r"(?:(?P<gap>[T ])(?P<hour>\d{1,2}):\d{2}(?P<second>:\d{2}(?P<fraction>\.\d+)?)?"
    r"(?P<zone>Z|[+-]\d{2}:?\d{2})?)?$"
)
_YEAR_FIRST = re.compile(
    r"^\d{4}(?P<sep>[-/.])(?P<month>\d{1,2})(?:(?P=sep)(?P<day>\d{1,2}))?" + _CLOCK
)
_YEAR_LAST = re.compile(r"^(?P<day>\d{1,2})(?P<sep>[-/.])(?P<month>\d{1,2})(?P=sep)\d{4}" + _CLOCK)


def guess_formats(column: pl.Series) -> list[str]:
    """Returns the date formats a column of strings may follow: none, one, or day- and month-first.

    Only the first values are looked at; nulls are passed over.
    """
    texts: list[str] = first_values(column).to_list()
    for pattern in (_YEAR_FIRST, _YEAR_LAST):
        found = [pattern.match(text) for text in texts]
        matches = [match for match in found if match]
        # Nine in ten: a few broken rows must not hide the time column, the full parse names them.
        if matches and len(matches) * 10 >= len(texts) * 9:
            return _formats(matches, year_first=pattern is _YEAR_FIRST)
    return []


def first_values(column: pl.Series) -> pl.Series:
    """Returns the first values that are not null, `SAMPLE` at most."""
    # Dropping nulls copies a column of strings; most columns start with values.
    head = column.head(SAMPLE)
    return column.drop_nulls().head(SAMPLE) if head.null_count() else head


def parse_times(column: pl.Series, where: str, time_format: str | None = None) -> tuple[pl.Series, str]:
    """Returns a column of strings as timestamps (microseconds; UTC where offsets are given).

    Args:
        column: text, no nulls.
        where: table and column, for messages.
        time_format: a format known beforehand, tried first (a short table may not show which part
            is the day).

    Returns:
        The timestamps and the strftime format they were written in.

    Raises:
        DataError: a value is missing, does not follow the format, or day and month cannot be told
            apart.
    """
    if column.null_count():
        row = int(column.is_null().arg_true()[0]) + 1
        raise DataError(f"{where}: expected a time in every row, found none in row {row}; fill it in")
    formats = guess_formats(column)
    if time_format is not None:
        times = _cast(column, time_format)
        if times.null_count() == 0 or not formats:
            return _all_parsed(times, column, time_format, where), time_format
    if not formats:
        raise DataError(
            f"{where}: expected dates, found '{column[0]}' in row 1; write dates as YYYY-MM-DD"
        )
    casts = [_cast(column, fmt) for fmt in formats]
    whole = [(cast, fmt) for cast, fmt in zip(casts, formats, strict=True) if not cast.null_count()]
    if len(whole) == 2 and not (whole[0][0] == whole[1][0]).all():
        raise DataError(
            f"{where}: day and month cannot be told apart (row 1 holds '{column[0]}', and no part "
            "exceeds 12 anywhere); write dates as YYYY-MM-DD"
        )
    if whole:
        return whole[0]
    best = min(range(len(casts)), key=lambda k: casts[k].null_count())
    return _all_parsed(casts[best], column, formats[best], where), formats[best]


def _formats(matches: list[re.Match[str]], *, year_first: bool) -> list[str]:
    first = matches[0]
    sep = first["sep"]

    def part(letter: str, name: str) -> str:
        # "%-m" writes a month without its zero, as the caller did; reading takes both.
        bare = any(match[name] is not None and len(match[name]) == 1 for match in matches)
        return f"%-{letter}" if bare else f"%{letter}"

    month, day = part("m", "month"), part("d", "day")
    if year_first and first["day"] is None:
        dates = [sep.join(("%Y", month))]
    elif year_first:
        dates = [sep.join(("%Y", month, day))]
    else:
        bare = "-" if "%-" in month + day else ""
        day, month = f"%{bare}d", f"%{bare}m"
        dates = [sep.join((day, month, "%Y")), sep.join((month, day, "%Y"))]
    clock = ""
    if first["gap"]:
        clock = f"{first['gap']}{part('H', 'hour')}:%M"
        clock += ":%S" if first["second"] else ""
        clock += "%.f" if any(match["fraction"] for match in matches) else ""
        zones = {match["zone"] for match in matches}
        clock += "Z" if zones == {"Z"} else "" if zones == {None} else "%:z"
    return [date + clock for date in dates]


def _cast(column: pl.Series, time_format: str) -> pl.Series:
    if "%d" not in time_format and "%-d" not in time_format:
        # A month alone is its first day.
        column, time_format = column + "-01", time_format + "-%d"
    reading = time_format.replace("%:z", "%z")
    times = column.str.to_datetime(reading, strict=False, time_unit="us")
    return times.dt.replace_time_zone("UTC") if time_format.endswith("Z") else times


def _all_parsed(times: pl.Series, column: pl.Series, time_format: str, where: str) -> pl.Series:
    if times.null_count():
        row = int(times.is_null().arg_true()[0])
        raise DataError(
            f"{where}: expected dates written like '{column[0] if row else time_format}', "
            f"found '{column[row]}' in row {row + 1} ({times.null_count()} such rows)"
        )
    return times
