"""Parsing timestamps: a column of text or whole numbers becomes times.

The format is guessed on a sample and then holds for the whole column in one vectorised cast; the first
row that does not follow it is named. The order of day, month and year is decided by the whole column (a
part above 12 is no month), then by the series they make: one reading may be daily or monthly. Where two
orders remain and differ, the column is refused with the flag that decides, never guessed.

A format is that of strftime, one of `EPOCHS` for whole numbers counted since 1970, excel for the days of a
spreadsheet, or year/12, year/4, year/52 or year/1 for years and a fraction (year/12.3: of three decimals; +0.5:
in the middle of each). One that ends in an offset, as +01:00, stands for times that all have it: they are kept
as UTC and written back with it. Times at one clock whose offset varies are days of a place: they are read and
written without it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date as Date
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl

from forecaster.errors import ConfigError
from forecaster.panel.findings import Finding, fault, row_fault, words_of

SAMPLE = 100
MICROSECONDS = pl.Datetime("us")
_LEAST_DATES = 8
"""Names of columns that are dates from which they are times of rows that are series each."""

MONTH_NAMES = "January February March April May June July August September October November December"
_NAME = "|".join(f"{name[:3]}(?:{name[3:]})?" for name in MONTH_NAMES.split())
_CLOCK = (
    r"(?:[T ]\s?(?P<H>\d{1,2})(?::?(?P<M>\d{2})(?::?(?P<S>\d{2})(?P<f>\.\d+)?)?)?"
    r"(?: ?(?P<p>[AaPp][Mm]))? ?(?P<z>Z|[+-]\d{2}:?\d{2})?)?$"
)
_SHAPES = (
    r"(?P<Y>\d{4})(?P<sep>[-/.])(?P<m>\d{1,2})(?:(?P=sep)(?P<d>\d{1,2}))?",
    r"(?P<a>\d{1,2})(?P<sep>[-/.])(?P<b>\d{1,2})(?P=sep)(?P<Y>\d{4})",
    r"(?P<a>\d{1,2})(?P<sep>[-/.])(?P<b>\d{1,2})(?P=sep)(?P<c>\d{2})",
    rf"(?P<d>\d{{1,2}})(?:[-/ ]|\. )(?P<n>{_NAME})\.?[-/, ]+(?P<Y>\d{{4}}|\d{{2}})",
    rf"(?P<n>{_NAME})\.? (?P<d>\d{{1,2}}),? (?P<Y>\d{{4}})",
    rf"(?P<n>{_NAME})\.?[-/ ]'?(?P<Y>\d{{4}}|\d{{2}})",
    rf"(?P<Y>\d{{4}})[-/ ](?P<n>{_NAME})(?:[-/ ](?P<d>\d{{1,2}}))?",
    r"(?P<G>\d{4})[-/ ]?(?:KW|CW|W)[- ]?(?P<V>\d{1,2})(?:-?(?P<u>[1-7]))?",
    r"(?:KW|CW|W)[- ]?(?P<V>\d{1,2})[-/. ](?P<G>\d{4})",
    r"(?P<Y>\d{4})-?M(?P<m>\d{1,2})",
    r"(?:FY ?)?(?P<Y>\d{4}|\d{2})[-/ ]?QQ?(?P<q>[1-4])",
    r"(?P<q>[1-4])Q[-/ ]?(?P<Y>\d{4}|\d{2})",
    r"Q(?P<q>[1-4])(?:[- /]|(?=\d{4}))(?P<Y>\d{4}|\d{2})",
    r"(?P<a>0?[1-9]|[1-4]\d|5[0-3])[-/.](?P<Y>\d{4})",
)
_READINGS = {"": ("",), "a": ("q", "m", "V"), "ab": ("dm", "md"), "abc": ("dmy", "mdy", "ymd")}
"""What the groups a, b and c of a shape may be: the whole column tells."""
_DAY = r"(?P<Y>(?:1[89]|2[01])\d\d)(?P<m>0[1-9]|1[0-2])(?P<d>0[1-9]|[12]\d|3[01])"
_DIGITS = (
    _DAY,
    _DAY + r"(?P<H>[01]\d|2[0-3])(?P<M>[0-5]\d)(?P<S>[0-5]\d)?",
    r"(?P<Y>(?:1[89]|2[01])\d\d)(?P<m>0[1-9]|1[0-2])?",
)
_CLOCKED = re.compile("%([01]/|-?[HI]|[TRkl])")
_CHANGING = (
    *("Europe/Berlin", "Europe/London", "Europe/Athens", "America/New_York", "Australia/Sydney"),
    *("America/Santiago", "America/Havana", "Asia/Beirut"),
)
"""Zones of different changes of clocks."""
_SHOWN: Any = {"ambiguous": "earliest", "non_existent": "null"}
_COMPOSED = {"%F": "%Y-%m-%d", "%T": "%H:%M:%S", "%R": "%H:%M", "%D": "%m/%d/%y", "%h": "%b"}
SLOT = re.compile(r"([ \0])%([01])/(\d+)((?::%M)?(?::%S)?)(?:@(\S+))?$")
"""Ends a format: the number of one of so many slots of a day, from 0 or 1, or the clock at its end.

With a zone numbers count from its midnight on, past a change of clocks: that day has more, or fewer."""
_DAY_US = 86_400_000_000
_OFFSET = re.compile(r"([+-])(\d{2}):?(\d{2})$")
OFFSETS = r"(Z|[+-]\d{2}:?\d{2})$"
"""Pattern of an offset from UTC at the end of a time."""


def date_text(date: object, name: str) -> str:
    """Returns a date option as text.

    Args:
        date: text, a date, a datetime (as pandas' Timestamp is one), a numpy datetime64, or an integer
            where rows are numbered.
        name: of the option.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(date, np.datetime64):
        date = date.astype("M8[us]").astype(object)
    if isinstance(date, Date) and date == date:  # pandas' NaT is a datetime, and differs from itself
        return date.isoformat()
    if isinstance(date, str | int | np.integer) and not isinstance(date, bool):
        return str(date)
    raise ConfigError(
        f"--{name} {date!r}: expected a date: text, a date, datetime, Timestamp or datetime64; found "
        f"{type(date).__name__}"
    )


EPOCHS = {"s": 1, "%s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Formats of counts since 1970, with the counts in a second."""

PARTS = {
    "year": ("%Y", ""), "quarter": ("%q", "Q"), "month": ("%m", "-"), "week": ("%V", "-W"), "day": ("%d", "-"),
    "hour": ("%H", " "), "minute": ("%M", ":"), "second": ("%S", ":"),
}  # fmt: skip
"""Parts of a time that may have a column each: their format, and the mark before them."""
TimeParts = dict[str, tuple[str, str]]
"""Part and dtype of each column that is joined to one of times."""
DAYS = ("day_of_month", "date_of_month", "dayofmonth", "dom", "mday")
"""Further names of the day."""
DATE_AND_CLOCK = ["year", "hour"]
"""What a date, in any format, and a time of day count as."""

_SPREADSHEET, _DECIMAL = "excel", re.compile(r"year/(1|4|12|52)(?:\.(\d+))?(?:\+(0\.\d+))?$")
_DAY_0 = 25_569
"""The day 1970-01-01 of a spreadsheet."""
_WEEK_0, _YEAR_0 = 10_959, 2000
"""Days to the Monday from which weeks are counted where a year has 52, and its year."""
_BARE_PARTS = re.compile("%-?[qmV][-/.]%[YG]|%Y[-/.]%q|%G[-/.]%-?V")
_MONTHS = re.compile("^%Y[-/.]%-?m$")

_TIME_WORDS = "date datum time timestamp datetime day month year week quarter period ds ts epoch"


@dataclass(frozen=True)
class WrittenTimes:
    """How a column of times was written before it was parsed."""

    time_format: str
    digits: bool
    """Whether it held whole numbers, not text."""
    notes: tuple[Finding, ...] = ()
    """A note where offsets from UTC vary: timestamps do not keep them."""


def guess_formats(column: pl.Series, *, digits: bool | None = None, share: float = 0.9) -> list[str]:
    """Returns the formats a column of strings may follow: none, one, or one per order of its parts.

    Only the first values that are not null are examined.

    Args:
        digits: text of digits alone may be dates, as 20240131; None = where the column's name is
            that of a time.
        share: of the values that must match; the full parse names the others.
    """
    texts: list[str] = first_values(column).to_list()
    if digits is None:
        digits = is_time_name(column.name)
    for shape in (*_SHAPES, *(_DIGITS if digits else ())):
        clocked = "?P<H>" in shape
        pattern = re.compile(shape + ("$" if clocked else _CLOCK), re.IGNORECASE)
        matches = [match for match in map(pattern.match, texts) if match]
        # Not all: a few broken rows must not hide the time column.
        if matches and len(matches) >= share * len(texts) and not _are_days(matches):
            # A year of two digits is never written with one.
            short = any(len(match.groupdict().get("a") or "00") == 1 for match in matches)
            readings = _READINGS["".join(group for group in "abc" if group in pattern.groupindex)]
            return [_format(matches, one) for one in readings if not (short and one[:1] == "y")]
    return []


def _are_days(matches: Sequence[re.Match[str]]) -> bool:
    """Whether names of months and two digits, as Jan-05, are days without a year: most months go on."""
    pairs = [pair for pair in itertools.pairwise(m.groupdict() for m in matches) if pair[0] != pair[1]]
    held = [a["n"] == b["n"] for a, b in pairs if "n" in a and "d" not in a and len(a["Y"]) == 2]
    return 2 * sum(held) > len(held)


def date_names(names: Sequence[str], time_format: str | None, *, declared: bool = False) -> list[str]:
    """Returns the names of columns that are dates of one format and rise, where they are eight at least.

    Where rows are declared to be series they may be fewer, or fall, and come back in order. They are most
    of the names with two digits in a row.
    """
    column = pl.Series([name for name in names if re.search(r"\d\d", name)], dtype=pl.String)
    formats = [time_format] if time_format else guess_formats(column, digits=True, share=0.5)
    for times in (_cast(column, fmt) for fmt in formats):
        dates = times.drop_nulls()
        falls = declared and dates.is_sorted(descending=True)
        ordered = (dates.is_sorted() or falls) and dates.n_unique() == len(dates)
        if ordered and len(dates) >= max(2 if declared else _LEAST_DATES, len(column) / 2):
            return column.filter(times.is_not_null()).to_list()[:: -1 if falls else 1]
    return []


def first_values(column: pl.Series) -> pl.Series:
    """Returns the first values that are not null, `SAMPLE` at most."""
    # Dropping nulls copies a column of strings; most columns start with values.
    head = column.head(SAMPLE)
    return column.drop_nulls().head(SAMPLE) if head.null_count() else head


def parse_times(
    column: pl.Series,
    where: str,
    time_format: str | None = None,
    *,
    strict: bool = False,
    place: Callable[[int], str] = "row {}".format,
    zone: str | None = None,
) -> tuple[pl.Series, str]:
    """Returns a column of strings as timestamps (microseconds; UTC where offsets are given).

    Args:
        where: table and column, for messages.
        time_format: tried first (a short table may not show which part is the day).
        strict: every value must follow that format.
        place: returns a row, counted from 1, as messages name it.
        zone: where clocks showed the times.

    Returns:
        The timestamps and the format they were written in.

    Raises:
        DataError: a value is missing or does not follow the format, day and month are ambiguous, or
            the given format is none.
    """
    if column.null_count():
        expected = "a time in every row"
        raise row_fault("time", where, expected, column, column.is_null(), "fill it in", place)
    formats = [] if strict else guess_formats(column, digits=True, share=0.5)
    if time_format is not None:
        if strict:
            check_format(time_format)
        times = _cast(column, time_format)
        if times.null_count() == 0 or not formats:
            times = _all_parsed(times, column, time_format, where, place)
            return _local_days(column, time_format, None) or (times, time_format)
        if len(formats) > 1:
            formats = [fmt for fmt in formats if _order(fmt) == _order(time_format)] or formats
    first = f"'{column[0]}' in {place(1)}"
    if not formats:
        text, advice = f"{where}: expected dates, found {first}", "write dates as YYYY-MM-DD, or pass"
        raise fault("time", text, f"{advice} --time-format", where=place(1))
    casts = [_cast(column, fmt) for fmt in formats]
    if all(times.null_count() for times in casts):
        formats = [_in_slots(fmt, column, zone) for fmt in formats]
        casts = [_cast(column, fmt) for fmt in formats]
    if _MONTHS.search(formats[0]) and not (
        _is_series(casts[0], formats[0]) and casts[0].null_count() == 0
    ):
        others = [formats[0].replace("%-m", "%q"), re.sub("%Y(.%-?)m", r"%G\1V", formats[0])]
        read = [(_cast(column, fmt), fmt) for fmt in others if fmt != formats[0]]
        read = [
            (times, fmt) for times, fmt in read if not times.null_count() and _is_series(times, fmt)
        ]
        if len(read) == 1:
            casts, formats = [read[0][0]], [read[0][1]]
    whole = [at for at, times in enumerate(casts) if not times.null_count()]
    differ = any(not (casts[at] == casts[whole[0]]).all() for at in whole)
    likely = [at for at in whole if differ and _is_series(casts[at], formats[at])]
    whole = likely if len(likely) == 1 else whole
    if differ and len(whole) > 1:
        parts, proof = "day, month and year", ""
        if "q" in formats[0]:
            parts = "quarter, month and week"
        elif len(formats) == 2:
            parts, proof = "day and month", ", and no part exceeds 12 anywhere"
        shown = f"{place(1)} holds '{column[0]}'"
        text = f"{where}: {parts} are ambiguous ({shown}{proof})"
        either = " or ".join(f"'{formats[at]}'" for at in whole)
        advice = f"write dates as YYYY-MM-DD, or pass --time-format {either}"
        raise fault("time", text, advice, where=place(1))
    best = whole[0] if whole else min(range(len(casts)), key=lambda at: casts[at].null_count())
    times, found = _all_parsed(casts[best], column, formats[best], where, place), formats[best]
    return _local_days(column, found, time_format) or (times, _with_one_offset(found, column))


def _in_slots(time_format: str, column: pl.Series, zone: str | None) -> str:
    """Returns the format of slots of a day in place of hours, where those pass 23."""
    clock = re.search(" %-?H((?::%M)?(?::%S)?)$", time_format)
    hours, minutes = _clocks(column)
    last: Any = hours.max() or 0
    # A day on which clocks change has an hour more.
    count = next((count for count in (24, 48, 96) if count - 1 <= last <= count + count // 24), 0)
    if clock is None or last < 24 or not count:
        return time_format
    if clock[1]:
        count = 24 * minutes.n_unique()
    first = int(hours.min() != 0 or clock[1] != "")
    slots = f"{time_format[: clock.start()]} %{first}/{count}{clock[1]}"
    if zone is None or clock[1]:
        return slots
    shown = _cast(column, slots).dt.replace_time_zone(zone, **_SHOWN)
    return f"{slots}@{zone}" if shown.null_count() else slots


def _clocks(column: pl.Series) -> list[pl.Series]:
    """Returns the hours, or the numbers of slots, and the minutes that texts end in."""
    parts = column.str.extract_groups(r" (\d+)(?::(\d\d))?(?::00)?$").struct.unnest()
    return parts.cast(pl.Int64).fill_null(0).get_columns()


def _is_series(times: pl.Series, time_format: str) -> bool:
    """Whether a reading makes five days (long weekends aside) or first or last days of months in a row.

    Of quarters, months and weeks written as 4-2015 four in five may be there.
    """
    days = times.dt.date().unique().sort()
    if _BARE_PARTS.match(time_format):
        step = next(length for part, length in (("q", 91), ("m", 30), ("V", 7)) if part in time_format)
        return len(days) > 4 and 0.8 * ((days[-1] - days[0]).days // step + 1) <= len(days)
    gaps = days.diff().dt.total_days().drop_nulls()
    months = (days.dt.year().cast(pl.Int64) * 12 + days.dt.month()).diff().drop_nulls()
    ends = (days.dt.day() == 1).all() or (days == days.dt.month_end()).all()
    return bool(len(gaps) > 3 and ((gaps <= 4).all() or (ends and (months == 1).all())))


def _local_days(
    column: pl.Series, time_format: str, model_format: str | None
) -> tuple[pl.Series, str] | None:
    """Returns times at one clock whose offset from UTC varies as days of a place; None for others.

    Args:
        model_format: of a model. Without an offset it has such days; with one, days are written so.
    """
    if not time_format.endswith(("%z", "%:z")):
        return None
    offset = _OFFSET.search(model_format or "")
    if column.str.extract(OFFSETS).n_unique() == 1 and (model_format is None or offset):
        return None
    bare = re.sub(" ?%:?z$", "", time_format)
    wall = column.str.replace(" ?" + OFFSETS, "")
    times = _cast(wall, bare)
    if times.dt.time().n_unique() > 1:
        return None
    if offset is None:
        return times, bare
    return _cast(wall + offset[0], bare + offset[0]), bare + offset[0]


def instants(times: pl.Series, zone: str, keys: Iterable[pl.Series] = ()) -> pl.Series:
    """Returns local times as those of a zone; null where its clocks skip them.

    Of two rows of a series at a time that clocks show twice, the first is the earlier one where rows rise.

    Args:
        keys: of the series.
    """
    if (times.dt.truncate("1d") == times).all():
        return midnights(times, zone)
    local, row = pl.col(times.name).cast(MICROSECONDS), pl.struct(pl.all())
    early = row.is_last_distinct() if times[0] > times[-1] else row.is_first_distinct()
    which = pl.when(early).then(pl.lit("earliest")).otherwise(pl.lit("latest"))
    found = local.dt.replace_time_zone(zone, ambiguous=which, non_existent="null")
    return pl.DataFrame([*keys, times]).select(found).to_series()


def midnights(days: pl.Series, zone: str) -> pl.Series:
    """Returns when local days begin: an hour after a midnight that clocks skip, at the first of two."""
    last = days.cast(MICROSECONDS).dt.offset_by("-1us")
    return last.dt.replace_time_zone(zone, ambiguous="latest", non_existent="null").dt.offset_by("1us")


def changed_clock(times: pl.Series) -> str:
    """Returns a zone whose clocks show all of these local times twice, or not at all; empty = none is known."""
    local = times.cast(MICROSECONDS).dt
    for zone in _CHANGING:
        if local.replace_time_zone(zone, ambiguous="null", non_existent="null").is_null().all():
            return zone
    return ""


def changed_days(times: pl.Series, hours: int) -> str:
    """Returns a zone where the days of all of these local times have so many hours; empty = none is known."""
    begin = times.cast(MICROSECONDS).dt.truncate("1d")
    for zone in _CHANGING:
        first, last = (midnights(day, zone) for day in (begin, begin.dt.offset_by("1d")))
        if ((last - first).dt.total_hours() == hours).fill_null(False).all():
            return zone
    return ""


def check_format(time_format: str) -> None:
    """Raises a DataError for a format that is none, or does not determine the day."""
    example = pl.Series([datetime(2001, 2, 13, 14, 5, 6)]).cast(pl.Datetime("us", "UTC"))
    try:
        texts = write_times(example, time_format).cast(pl.String)
        known = not texts.null_count() and _cast(texts, time_format).dt.year()[0] == 2001
    except pl.exceptions.PolarsError:
        known = False
    if not known:
        text = f"--time-format '{time_format}': expected how a date is written, from its year on"
        advice = "write it as '%d.%m.%Y %H:%M', or s, ms, us or ns for counts since 1970"
        raise fault("time", text, advice)


def parts_of(names: Sequence[str], where: str) -> dict[str, str]:
    """Returns which part of a time each column holds, in the order of `PARTS`: by its name, else its place."""
    places = [part for part in PARTS if part not in ("quarter", "week")]
    words = [["day"] if name.lower() in DAYS else re.split("[^a-z]+", name.lower()) for name in names]
    named = (next((part for part in PARTS if part in own), None) for own in words)
    parts = [part or place for part, place in zip(named, [*places, *names], strict=False)]
    held = sorted(parts, key=[*PARTS, *names].index)
    if held not in (places[: len(names)], ["year", "quarter"], ["year", "week"]):
        text = f"{where}: --time {','.join(names)}: expected the columns of a time's parts, each once"
        raise fault("time", text, f"name them in this order: {', '.join(places)}")
    return dict(sorted(zip(names, parts, strict=True), key=lambda pair: [*PARTS].index(pair[1])))


def split_times(stamps: pl.Series, parts: TimeParts, time_format: str) -> list[pl.Series]:
    """Returns timestamps as columns of their parts, as `join_times` put them together."""
    held = [part for part, _ in parts.values()]
    shape = "".join(PARTS[part][1] + r"(\S+?)" for part in held) + "$"
    if held == DATE_AND_CLOCK:  # both may have blanks
        time_format = re.sub(" (?=%-?[HIRTkl01])", "\0", time_format)
        shape = "(.*)\0(.*)"
    texts = write_times(stamps, time_format).str.extract_groups(shape).struct.unnest()
    columns = []
    for text, (name, (_, kind)) in zip(texts, parts.items(), strict=True):
        dtype = getattr(pl, kind)
        if dtype.is_temporal():
            text = text.str.strptime(dtype, "%T%.f" if dtype == pl.Time else None)
        columns.append(text.cast(dtype).alias(name))
    return columns


def is_unusual(time_format: str) -> bool:
    """Whether a format was found by what the whole column leaves, and may be another."""
    found = time_format == _SPREADSHEET or _DECIMAL.match(time_format) or _BARE_PARTS.match(time_format)
    return bool(found)


def has_clock(time_format: str) -> bool:
    """Whether a format has a time of day."""
    return time_format in EPOCHS or _CLOCKED.search(time_format) is not None


def write_times(stamps: pl.Series, time_format: str) -> pl.Series:
    """Returns timestamps as text, or as integers for counts since 1970."""
    if time_format in EPOCHS:
        unit: Any = time_format.removeprefix("%")
        return stamps.dt.epoch(unit)
    if time_format == _SPREADSHEET:
        return stamps.dt.epoch("d") + _DAY_0
    if decimal := _DECIMAL.match(time_format):
        years = stamps.dt.year() + (stamps.dt.month() - 1) / 12
        if decimal[1] == "52":
            years = (stamps.dt.epoch("d") - _WEEK_0) // 7 / 52 + _YEAR_0
        years += float(decimal[3] or 0) / int(decimal[1])
        return years.round(int(decimal[2] or 15))
    if slot := SLOT.search(time_format):
        if slot[5] and stamps.dtype == MICROSECONDS:
            stamps = stamps.dt.replace_time_zone(slot[5], **_SHOWN)
        days, step = stamps.dt.truncate("1d"), _DAY_US // int(slot[3])
        number = (stamps - days).dt.total_microseconds() // step + int(slot[2])
        clock = number.cast(pl.String).str.zfill(2)
        if slot[4]:
            ends = stamps.dt.offset_by(f"{step}us")
            clock = write_times(ends, "%H" + slot[4]).str.replace("^00:00", "24:00")
        return write_times(days, time_format[: slot.start()]) + slot[1] + clock
    offset = _OFFSET.search(time_format)
    if offset is not None:
        stamps = stamps.dt.offset_by(_minutes(offset))
    return stamps.dt.strftime(time_format)


def _format(matches: Sequence[re.Match[str]], reading: str) -> str:
    """Returns the format of texts of one shape: the fullest text, its parts replaced.

    Args:
        reading: what the groups a, b and c are.
    """
    fullest = max(matches, key=lambda match: sum(part is not None for part in match.groups()))
    given = fullest.groupdict()
    unnamed = dict(zip("abc", reading, strict=False))
    if reading == "V":
        unnamed["Y"] = "G"
    parts = {group: unnamed.get(group, group) for group in given if group != "sep"}
    # "%-m" writes a month without its zero, as the caller did; reading takes both.
    bare = {
        part
        for group, part in parts.items()
        if part in "dmHV" and any(len(m[group] or "00") == 1 for m in matches)
    }
    if bare & {"d", "m"}:
        bare |= {"d", "m"}
    long = "n" in parts and any(len(m["n"]) > 3 for m in matches)
    twelve = given.get("p") is not None
    written = {
        "Y": "%Y" if len(given.get("Y") or "2000") == 4 else "%y",
        "n": "%B" if long else "%b",
        "H": f"%{'-' if 'H' in bare else ''}{'I' if twelve else 'H'}",
        "f": "%.f",
        "p": "%P" if twelve and fullest["p"].islower() else "%p",
        "z": _zone_part([m.groupdict().get("z") for m in matches]),
    }
    text, end, pieces = fullest[0], 0, []
    spans = sorted((fullest.span(group), part) for group, part in parts.items() if fullest[group])
    for (start, stop), part in spans:
        directive = written.get(part) or f"%{'-' if part in bare else ''}{part}"
        pieces += [text[end:start], directive]
        end = stop
    return "".join([*pieces, text[end:]])


def _zone_part(written: Sequence[str | None]) -> str:
    """Returns how most times end: Z, an offset, or nothing; Z beside others counts as an offset."""
    offsets = [zone for zone in written if zone is not None]
    if 2 * len(offsets) < len(written):
        return ""
    return "Z" if set(offsets) == {"Z"} else "%:z"


def _order(time_format: str) -> list[str]:
    return re.findall("%-?([dmyY])", time_format)


def _cast(column: pl.Series, time_format: str) -> pl.Series:
    """Returns text as timestamps in microseconds; null where it does not follow the format."""
    if time_format in EPOCHS:
        counts = column.cast(pl.Int64, strict=False)
        # Beyond the year 9999 there are no timestamps, and products would overflow.
        counts = counts.set(counts.abs() // EPOCHS[time_format] > 253_402_300_799, None)
        unit: Any = time_format.removeprefix("%")
        return pl.from_epoch(counts, unit).cast(MICROSECONDS)
    if time_format == _SPREADSHEET:
        days = column.cast(pl.Float64, strict=False) - _DAY_0
        return (days * 86_400e6).round().cast(pl.Int64).cast(MICROSECONDS)
    if decimal := _DECIMAL.match(time_format):
        return _of_years(column.cast(pl.Float64, strict=False), int(decimal[1]), float(decimal[3] or 0))
    if slot := SLOT.search(time_format):
        count = int(slot[3])
        number, minutes = _clocks(column)
        if slot[4]:
            number = (number * 60 + minutes) * count // 1440
        number -= int(slot[2])
        most = count + count // 24 if slot[5] else count
        number = number.set(~number.is_between(0, most - 1), None)
        days = _cast(column.str.replace(r" [\d:]+$", ""), time_format[: slot.start()])
        begin = midnights(days, slot[5]) if slot[5] else days
        times = (begin.dt.epoch("us") + number * (_DAY_US // count)).cast(begin.dtype)
        times = times.dt.replace_time_zone(None)
        return times.set(times.dt.date() != days.dt.date(), None)
    for short, long in _COMPOSED.items():
        time_format = time_format.replace(short, long)
    offset = _OFFSET.search(time_format)
    directives = set(re.findall(r"%[-_0.:#]?([A-Za-z])", time_format))
    reading = time_format.replace("%:z", "%z").replace("%b", "%B").replace("%P", "%p")
    if "q" in directives:
        return _in_century(_quarters(column, time_format), directives)
    for missing, given, written in (
        (directives & set("HI") and not directives & set("MR"), "|00", "|%M"),
        ("V" in directives and not directives & set("ua"), "|1", "|%u"),
        (not directives & set("mbBjVU"), "|01", "|%m"),
        (not directives & set("dejVU"), "|01", "|%d"),
    ):
        # A part that is not written is its first value: of a month, the first day.
        if missing:
            column, reading = column + given, reading + written
    if reading.endswith("%z"):
        column = column.str.replace("Z$", "+00:00")
    times = column.str.to_datetime(reading, strict=False, time_unit="us")
    if offset is not None:
        times = times.dt.offset_by(_minutes(offset, back=True)).dt.replace_time_zone("UTC")
    times = times.dt.replace_time_zone("UTC") if time_format.endswith("Z") else times
    return _in_century(times, directives)


def _in_century(times: pl.Series, directives: set[str]) -> pl.Series:
    """Returns times of two-digit years more than two beyond today's in the last century.

    Not where that lengthens the column, as a plan of the years from 27 to 35.
    """
    far = times.dt.year() > Date.today().year + 2
    if "y" not in directives or not far.any():
        return times
    earlier = times.zip_with(~far, times.dt.offset_by("-100y"))
    spans: list[Any] = [read.max() - read.min() for read in (earlier, times)]  # type: ignore[operator]
    return earlier if spans[0] <= spans[1] else times


def _of_years(years: pl.Series, parts: int, into: float) -> pl.Series:
    """Returns years and their fraction as the first day of their part; null where they lie in none.

    Args:
        into: where in its part a fraction lies, from 0 to 1.
    """
    exact = years * parts - into
    counts = exact.round()
    counts = counts.set((counts - exact).abs() > 0.1, None).cast(pl.Int64)
    if parts == 52:  # of seven days each: a year has one or two more
        days = (counts - 52 * _YEAR_0) * 7 + _WEEK_0
        return days.cast(pl.Int32).cast(pl.Date).cast(MICROSECONDS)
    return _first_days(counts * 12 // parts)


def _first_days(months: pl.Series) -> pl.Series:
    """Returns months, counted from the year 0, as their first day."""
    return pl.select(pl.datetime(months // 12, months % 12 + 1, 1)).to_series()


def decimal_years(column: pl.Series) -> str | None:
    """Returns how numbers are written that are years and a fraction, in steps of 1, 1/4, 1/12 or 1/52."""
    years = column.drop_nulls().unique()
    values = years.to_numpy()
    if len(values) < 3 or not years.is_between(1800, 2199).all():
        return None
    digits = max(len(str(value).partition(".")[2]) for value in values.tolist())
    for parts, middle in itertools.product((1, 4, 12, 52), (False, True)):
        into = round(float(np.median(values * parts % 1)), 4) * middle
        times = _of_years(years, parts, into).unique()
        if not times.null_count() and len(values) == len(times) >= 0.6 * parts * np.ptp(values):
            return f"year/{parts}" + f".{digits}" * (digits < 12) + f"+{into}" * middle
    return None


def _quarters(column: pl.Series, time_format: str) -> pl.Series:
    """Returns years and quarters as their first day: strptime has no quarters."""
    shape = re.escape(time_format).replace("%q", r"(?<quarter>[1-4])")
    shape = shape.replace("%Y", r"(?<year>\d{4})").replace("%y", r"(?<year>\d{2})")
    parts = column.str.extract_groups(f"(?i)^{shape}$").struct.unnest().cast(pl.Int32)
    if set(parts.columns) != {"year", "quarter"}:
        return pl.Series(column.name, [None], MICROSECONDS).new_from_index(0, len(column))
    years = parts["year"] + 2000 * ("%y" in time_format)
    return _first_days(years * 12 + parts["quarter"] * 3 - 3).alias(column.name)


def _with_one_offset(time_format: str, column: pl.Series) -> str:
    """Returns the format with the offset itself where the whole column has only one."""
    if not time_format.endswith("%:z"):
        return time_format
    offsets = column.str.extract(OFFSETS).unique()
    return time_format if len(offsets) > 1 else time_format.removesuffix("%:z") + offsets[0]


def _minutes(offset: re.Match[str], *, back: bool = False) -> str:
    minutes = int(offset[2]) * 60 + int(offset[3])
    return f"{'-' if (offset[1] == '-') != back else ''}{minutes}m"


def _all_parsed(
    times: pl.Series, column: pl.Series, time_format: str, where: str, place: Callable[[int], str]
) -> pl.Series:
    if times.null_count():
        example = column[0] if times[0] is not None else time_format
        expected = f"dates written like '{example}'"
        rule, advice = "time", "correct these rows, or pass --time-format"
        if slot := SLOT.search(time_format):
            advice = (
                "write an hour that local time shows twice by its clock, twice, and pass --time-zone"
            )
            late = column.filter(times.is_null()).str.replace(r" [\d:]+$", "")
            if zone := changed_days(_cast(late, time_format[: slot.start()]), 25):
                rule = "zones"
                advice = f"these days have an hour more in local time: pass --time-zone {zone}"
        raise row_fault(rule, where, expected, column, times.is_null(), advice, place)
    return times


def is_time_name(name: str) -> bool:
    """Whether a column's name has a word for time, as order_date, timestamp or yearMonth."""
    return not words_of(name).isdisjoint(_TIME_WORDS.split())


def integer_format(column: pl.Series, where: str) -> str | None:
    """Returns how numbers are written as dates; None where they count steps.

    See `decimal_years` for those with a fraction. Whole numbers of which nine in ten are a valid YYYYMMDD or
    YYYYMM, or lie between 1973 and 2103 as seconds, milli-, micro- or nanoseconds since 1970, are dates where
    `is_time_name` holds, and refused as ambiguous elsewhere. YYYY is a date where the column's name contains
    "year"; days of a spreadsheet are dates under the name of one, each a month after the one before at most.
    """
    if column.dtype.is_float():
        return decimal_years(column)
    value, name = pl.col(column.name), column.name.lower()

    def dated(days: pl.Expr) -> pl.Expr:
        year, month, day = days // 10_000, days // 100 % 100, days % 100
        return year.is_between(1800, 2199) & month.is_between(1, 12) & day.is_between(1, 31)

    tests = {"%Y%m%d": dated(value), "%Y%m": dated(value * 100 + 1)}
    tests |= {unit: value.is_between(10**8 * per, 42 * 10**8 * per) for unit, per in EPOCHS.items()}
    if "year" in name:
        tests["%Y"] = value.is_between(1800, 2199)
    numbers = column.cast(pl.Int64, strict=False).to_frame()
    shares = numbers.select(test.mean().alias(fmt) for fmt, test in tests.items()).row(0)
    found = next((fmt for fmt, share in zip(tests, shares, strict=True) if (share or 0) >= 0.9), None)
    if found is None and {"date", "datum", "day", "tag"} & words_of(column.name):
        days = column.drop_nulls().unique().sort()
        serial = days.is_between(20_000, 60_000).all() and (days.diff().max() or 32) <= 31  # type: ignore[operator]
        return _SPREADSHEET if serial else None
    if found in (None, "%Y") or is_time_name(column.name):
        return found
    first = column.drop_nulls()[0]
    meaning = f"{found} since 1970" if found in EPOCHS else "dates"
    text = f"{where}: whole numbers such as {first} may be {meaning} or steps"
    advice = f"pass --time-format {found}, or --freq 1i where they count steps"
    raise fault("time", text, advice, where=column.name)
