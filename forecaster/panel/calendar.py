"""The time axis of a panel: arithmetic in steps, and the phase of calendar cycles.

Time is int64: microseconds since 1970 (UTC instants for zoned columns; naive timestamps and dates as if
they were UTC), or the caller's own integers. A `freq` is "<count><unit>", as "15min". Steps of days
and longer keep the wall clock of the zone, so a day over a clock change lasts 23 or 25 hours; hours and
shorter steps are elapsed time. Days and hours that have no rows are left out where a freq names the others:
"1b" has weekdays, "1b-mon..sat" or "1b-tue-thu-sat" others, "1h-mon..fri-08:00..17:00" hours of days. All
arithmetic is over whole arrays: polars offsets one step at a time, so months and open days are numbered and
divided here. Axes: n = times, series, row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from forecaster.errors import DataError
from forecaster.panel.arrays import BLOCK_CELLS, Bools, Floats, Ints, owners
from forecaster.panel.timestamps import MICROSECONDS, MONTH_NAMES, parse_times

Times = Ints

DAY = 86_400_000_000
FIXED = {"us": 1, "ms": 1000, "s": 10**6, "min": 60 * 10**6, "h": 3600 * 10**6, "d": DAY, "w": 7 * DAY}
MONTHS = {"mo": 1, "moe": 1, "q": 3, "qe": 3, "y": 12, "ye": 12}
_OPEN = ("h", "min", "b")
"""Units of which a freq may name the days and hours that have rows."""
RARE = 0.05
"""Share of its steps, or of those at a weekday or hour, below which a series is hardly ever observed."""
_LEAST_CYCLES, _ODDS = 2.5, 7.0
"""Weeks without rows on a day, or days without one at an hour, that show it closed, and the logarithm of the odds
against chance."""
_JITTER = 0.3
"""Share of a step that times may lie off it: two days of a week."""
_WHOLE = 12
"""Part of a step, as five minutes of an hour, up to which a grid lies on whole steps of the day."""
_LONGEST_STEP = 100 * 366 * DAY
UNITS = (
    "us, ms, s, min, h, d, b (weekdays; others as 1b-mon..sat), w, mo, moe (month end), q, qe, y, ye, "
    "i (integer step)"
)
_SPELLINGS = {
    "us": "U",
    "ms": "L",
    "s": "S sec second seconds",
    "min": "T m minute minutes minutely",
    "h": "H hr hour hours hourly",
    "d": "D day days daily",
    "b": "B business",
    "w": "W week weeks weekly",
    "mo": "MS month months monthly",
    "moe": "M ME",
    "q": "QS quarter quarters quarterly",
    "qe": "Q QE",
    "y": "YS AS year years yearly annual",
    "ye": "A Y YE",
    "i": "integer step",
}
"""Other names of each unit: those of pandas, and words."""
_UNIT_OF = {word: unit for unit, words in _SPELLINGS.items() for word in words.split()}
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTH_NAMES = tuple(name[:3].lower() for name in MONTH_NAMES.split())


def parse_freq(text: str) -> str:
    """Returns a frequency in this package's notation.

    Args:
        text: "1h", "30min", "hourly", or a pandas alias such as "D", "15T", "W-SUN", "MS".

    Raises:
        DataError: the unit is not known.

    Example:
        >>> parse_freq("15T"), parse_freq("W-SUN"), parse_freq("hourly")
        ('15min', '1w-sun', '1h')
    """
    match = re.fullmatch(r"\s*(\d*)\s*([A-Za-z]*)((?:-[A-Za-z]{3}|-[\w:.]+)*)\s*", text)
    count, unit, anchor = match.groups("") if match else ("", "?", "")
    unit, anchor = _UNIT_OF.get(unit) or _UNIT_OF.get(unit.lower()) or unit or "i", anchor.lower()
    anchors, parts = tuple[str, ...](), [anchor[1:]]
    if unit in _OPEN:
        anchors, parts = (*WEEKDAYS, *clocks(count + unit)), re.split(r"-|\.\.", anchor[1:])
    elif unit == "w":
        anchors = WEEKDAYS
    elif MONTHS.get(unit, 1) > 1:
        anchors = _MONTH_NAMES
    known = unit in {*FIXED, *MONTHS, "b", "i"} and (not anchor or {*parts} <= {*anchors})
    if not known or count.strip("0") == "" != count or not text.strip():
        raise DataError(f"freq '{text}': expected a count and a unit, as 1h; units are {UNITS}")
    length = FIXED.get(unit) or MONTHS.get(unit, 1) * 31 * DAY
    most = 10**17 if unit == "i" else _LONGEST_STEP // length
    if len(count) > 18 or int(count or 1) > most:
        raise DataError(f"freq '{text[:40]}': expected a step of at most {most}{unit}")
    return f"{int(count or 1)}{unit}{anchor}"


def clocks(step: str) -> list[str]:
    """Returns the times of day at which steps begin, as 08:15; only midnight where they divide no day."""
    match = re.fullmatch("(\\d{0,4})(h|min)", step)
    length = int(match[1] or 1) * FIXED[match[2]] if match else DAY
    minutes = range(0, 1440, length // FIXED["min"] if length and DAY % length == 0 else 1440)
    return [f"{minute // 60:02d}:{minute % 60:02d}" for minute in minutes]


def closed_days(counts: Times, weeks: Floats) -> Bools:
    """Returns the weekdays on which series hardly ever have rows, as far as these are no chance: [series, 7].

    An open day has a row with the share p of the days that have any, so n weeks have none with (1 − p)ⁿ.
    Rows on one weekday are weeks, a step of their own.

    Args:
        counts: [series, 7] rows on each weekday.
        weeks: [series] from the first row to the last.
    """
    closed = counts < RARE * counts.max(axis=1, keepdims=True)
    days = (~closed).sum(axis=1)
    filled = counts.sum(axis=1) / np.maximum(days * weeks, 1)
    proven = (days > 1) & proves_closed(filled, weeks)
    return closed & proven[:, None]


def proves_closed(filled: Any, cycles: Any) -> Any:
    """Returns whether cycles without rows at a place are no chance, where `filled` of the others have one."""
    return (cycles >= _LEAST_CYCLES) & (-np.log1p(-np.minimum(filled, 0.99)) * cycles >= _ODDS)


def _places(parts: Sequence[str], names: Sequence[str]) -> list[int]:
    """Returns the places of names, and those of ranges of them, as sat..wed; all of them without any."""
    found = set[int]()
    for first, _, last in (part.partition("..") for part in parts):
        if first in names:
            begin = names.index(first)
            count = (names.index(last or first) - begin) % len(names) + 1
            found |= {(begin + more) % len(names) for more in range(count)}
    return sorted(found) or list(range(len(names)))


def months_of(days: Times) -> Times:
    """Returns the months, counted from January 1970, that days since 1970 lie in."""
    return days.astype("M8[D]").astype("M8[M]").astype(np.int64)


def first_days(months: Times) -> Times:
    """Returns the first day, counted from 1970, of months counted so."""
    return months.astype("M8[M]").astype("M8[D]").astype(np.int64)


@dataclass(frozen=True)
class Calendar:
    """The step of a time axis and the zone of its wall clock."""

    freq: str
    time_zone: str | None
    integer: bool
    season: int | None = None
    """Steps of the main season where declared or found; None = it follows from the step."""
    periods: tuple[int, ...] = ()
    """Further cycles, in steps: declared, or found in the data."""
    rows: str = ""
    """Step of the rows that were aggregated to periods; empty = rows are as they were."""

    @cached_property
    def _count_unit(self) -> tuple[int, str]:
        step = self.freq.partition("-")[0]
        unit = step.lstrip("0123456789")
        return int(step[: -len(unit)]), unit

    @cached_property
    def unit(self) -> str:
        """Unit of the step, as w of 2w-sun."""
        return self._count_unit[1]

    @cached_property
    def _anchor(self) -> tuple[int, int] | None:
        """The weekday or month that stamps lie in, and the length of its cycle; None = any."""
        anchor, cycle = self.freq.partition("-")[2], 7 if self.unit == "w" else MONTHS.get(self.unit, 1)
        names = WEEKDAYS if self.unit == "w" else _MONTH_NAMES
        return (names.index(anchor) % cycle, cycle) if anchor and not self._open else None

    @cached_property
    def _cell(self) -> int:
        """Length of the days or steps that a freq names where others have no rows."""
        return DAY // len(clocks(self.freq.partition("-")[0]))

    @cached_property
    def _open(self) -> tuple[int, ...]:
        """The days or steps of a week, counted from Monday 00:00, that have rows; () = nothing is left out."""
        step, _, anchor = self.freq.partition("-")
        if self.unit != "b" and not (anchor and self.unit in _OPEN):
            return ()
        parts, times = (anchor or "mon..fri").split("-"), clocks(step)
        days = np.array(_places(parts, WEEKDAYS))
        return tuple(np.add.outer(days * len(times), _places(parts, times)).ravel().tolist())

    def _in_week(self, local: Times) -> tuple[Times, Times, Times]:
        """Returns the weeks that local times lie in, their days or steps in these, and the rest."""
        week, place = np.divmod(local + 3 * DAY, 7 * DAY)  # 1970-01-01 was a Thursday
        return week, *np.divmod(place, self._cell)

    def _numbered(self, local: Times) -> tuple[Times, Times]:
        """Returns the number of the open day or step that local times lie in, else of the next, and the rest."""
        week, cell, rest = self._in_week(local)
        return week * len(self._open) + np.searchsorted(self._open, cell), rest

    @cached_property
    def _zoned(self) -> bool:
        return self.time_zone not in (None, "UTC")

    @cached_property
    def _elapsed(self) -> int:
        """Length of every step where all are equal, else 0."""
        count, unit = self._count_unit
        if self.integer or unit == "i":
            return count
        if unit not in FIXED or self._open or (self._zoned and unit in "dw"):
            return 0
        return count * FIXED[unit]

    @cached_property
    def step(self) -> float:
        """Nominal step: microseconds (a month is 365.2425 / 12 days), or integer steps."""
        count, unit = self._count_unit
        if unit in MONTHS:
            return count * MONTHS[unit] * 365.2425 / 12 * DAY
        if self._open:
            return self._stride * 7 * DAY / len(self._open)
        return float(count * FIXED.get(unit, 1))

    @cached_property
    def _stride(self) -> int:
        """Open days or steps in a step."""
        return self._count_unit[0] if self.unit == "b" else 1

    @property
    def shortest(self) -> float:
        """Nominal length of a step that spans nothing closed."""
        return self._stride * self._cell if self._open else self.step

    @cached_property
    def day(self) -> float:
        """Nominal length of a day, in which nights and days without rows do not count."""
        if not self._open or self.unit == "b":
            return float(DAY)
        return 7 * DAY / len({cell * self._cell // DAY for cell in self._open})

    @cached_property
    def cycles(self) -> tuple[str, ...]:
        """Names of the cycles longer than a step, in the order of `phase`'s columns: calendar first."""
        return self._calendar_cycles + tuple(f"{period} steps" for period in self.periods)

    @cached_property
    def _calendar_cycles(self) -> tuple[str, ...]:
        if self.integer or self.unit in ("i", "y", "ye"):
            return ()
        if self.unit in MONTHS or self.unit == "w":
            return ("year",)
        return ("week", "year") if self.step >= DAY else ("day", "week", "year")

    @cached_property
    def season_length(self) -> int:
        """Steps of the main season: a day, a week, a year; 1 where there is none."""
        if self.season:
            return self.season
        count, unit = self._count_unit
        if self._open:
            return max(1, round((7 * DAY if unit == "b" else self.day) / self.step))
        if not self.integer and unit in FIXED and self.step < DAY:
            return max(1, round(DAY / self.step))
        whole = {"d": 7, "w": 52}.get(unit) or 12 // MONTHS.get(unit, 12)
        return max(1, round(whole / count))

    def shift(self, anchor: Times | int, count: Times | int) -> Times:
        """Returns the times `count` steps after their anchors (negative: before); broadcasts.

        Months keep the anchor's day, clipped to the month's length; month ends are the last days.
        """
        if self._elapsed:
            return anchor + np.asarray(count, np.int64) * self._elapsed
        size, unit = self._count_unit
        anchor, count = np.asarray(anchor, np.int64), np.asarray(count, np.int64)
        local = self.wall_clock(anchor)
        days, clock = np.divmod(local, DAY)
        moved = count * size
        if self._open:
            number, clock = self._numbered(local)
            week, cell = np.divmod(number + count * self._stride, len(self._open))
            days, clock = 7 * week - 3, clock + np.array(self._open)[cell] * self._cell
        elif unit in MONTHS:
            month = months_of(days)
            day = days - first_days(month)
            month = month + moved * MONTHS[unit]
            first, last = first_days(month), first_days(month + 1) - 1
            days = last if unit.endswith("e") else np.minimum(first + day, last)
        else:
            days = days + moved * (FIXED[unit] // DAY)
        wall = days * DAY + clock
        # An hour that clocks show twice is distinguished by its instant alone.
        return np.where(wall == local, anchor, self.instant(wall))

    def steps(self, anchor: Times | int, time: Times | int) -> Times:
        """Returns the whole steps from anchors to times, rounded down; broadcasts."""
        if self._elapsed:
            return np.subtract(time, anchor, dtype=np.int64) // self._elapsed
        size, unit = self._count_unit
        walls = [self.wall_clock(np.asarray(x, np.int64)) for x in (anchor, time)]
        first, last = (wall // DAY for wall in walls)
        if self._open:
            before, after = (self._numbered(wall)[0] for wall in walls)
            apart, size = after - before, self._stride
        elif unit in MONTHS:
            apart, size = months_of(last) - months_of(first), size * MONTHS[unit]
        else:
            apart, size = last - first, size * (FIXED[unit] // DAY)
        count = apart // size
        return count - (self.shift(anchor, count) > time)

    def anchors(self, time: Times, indptr: Times) -> Times:
        """Returns a time of each series that steps are counted from: int64 [series], 0 without rows.

        The first one where all steps are of one length. Otherwise one that neither a short month nor
        a change of clocks has moved: the largest day of the month, the earliest clock.

        Args:
            time: int64 [row], rising within each series.
            indptr: int64 [series + 1].
        """
        filled = np.diff(indptr) > 0
        starts, anchor = indptr[:-1][filled], np.zeros(len(indptr) - 1, np.int64)
        if not len(starts):
            return anchor
        anchor[filled] = time[starts]
        if self._elapsed or (self.unit not in MONTHS and not self._zoned):
            return anchor
        days, cost = np.divmod(self.wall_clock(time), DAY)
        if self.unit in MONTHS:
            cost = cost - (days - first_days(months_of(days))) * DAY
        least = np.repeat(np.minimum.reduceat(cost, starts), np.diff(indptr)[filled])
        best = np.flatnonzero(cost == least)
        anchor[filled] = time[best[np.searchsorted(best, starts)]]
        return anchor

    def closed(self, time: Times) -> Bools:
        """Returns whether times lie on days or in steps of the day that have no rows."""
        if not self._open:
            return np.zeros(len(time), bool)
        return ~np.isin(self._in_week(self.wall_clock(time))[1], self._open)

    def placed(self, time: Times, indptr: Times) -> tuple[Times, Times, Bools]:
        """Returns where rows lie on the grids of their series.

        Args:
            time: int64 [row], rising within each series.
            indptr: int64 [series + 1].

        Returns:
            The anchors [series], the whole steps of each row from its series' anchor [row], and
            whether a row is off the grid [row].
        """
        anchor = self.anchors(time, indptr)
        each = np.repeat(anchor, np.diff(indptr))
        place = self.steps(each, time)
        return anchor, place, self.shift(each, place) != time

    def settled(self, time: Times, indptr: Times) -> Times | None:
        """Returns times around the steps of a grid as these steps; None where a step has two, or one is far off.

        The grid of a series passes through the median of its times: at whole days for weeks and months, at
        whole hours, minutes or seconds for shorter steps, and at multiples of a part of a day that lie near.

        Args:
            time: int64 [row], rising within each series.
            indptr: int64 [series + 1].
        """
        count, owner = np.diff(indptr), owners(indptr)
        anchor = self.anchors(time, indptr)
        apart = pl.DataFrame({"series": owner, "apart": self._nearest(anchor[owner], time)[1]})
        median = apart.group_by("series").agg(pl.col("apart").median()).sort("series")["apart"]
        anchor[count > 0] += median.to_numpy().astype(np.int64)
        middle, step = self.wall_clock(anchor), int(self.step)
        unit = next(unit for unit in (DAY, FIXED["h"], FIXED["min"], FIXED["s"], 1) if 5 * unit <= step)
        whole = (middle + step // 2) // step * step
        middle = (middle + (unit < DAY) * unit // 2) // unit * unit
        if step < DAY:
            middle = np.where(np.abs(whole - middle) <= step // _WHOLE, whole, middle)
        each = self.instant(middle)[owner]
        place, distance = self._nearest(each, time)
        ends = self.unit.endswith("e")
        least, most = (-4 * DAY, DAY - 1) if ends else (-_JITTER * step, _JITTER * step)
        near = (distance >= least) & (distance <= most)
        single = (np.diff(place) > 0) | (np.diff(owner) > 0)
        return self.shift(each, place) if near.all() and single.all() else None

    def _nearest(self, anchor: Times, time: Times) -> tuple[Times, Times]:
        """Returns the steps from anchors that are nearest to times, and how much later the times are."""
        place = self.steps(anchor, time)
        later, earlier = (time - self.shift(anchor, place + more) for more in (0, 1))
        return place + (-earlier < later), np.where(-earlier < later, earlier, later)

    def off_anchor(self, time: Times) -> Bools:
        """Returns whether times lie in another weekday or month than that of the step, as SUN of W-SUN."""
        if self._anchor is None:
            return np.zeros(len(time), bool)
        days = self.wall_clock(time) // DAY
        place = days + 3 if self.unit == "w" else months_of(days)
        return place % self._anchor[1] != self._anchor[0]

    def period(self, time: Times) -> list[Times]:
        """Returns begin, end (exclusive) and stamp of the calendar period that each time lies in.

        As in pandas, weeks are stamped with their last day (Sunday, unless the step names another), as
        the ends of months, quarters and years are; other periods with their begin. Steps shorter than
        a day are counted in UTC.
        """
        (size, unit), local = self._count_unit, self.step >= DAY
        ends, (place, cycle) = unit == "w" or unit.endswith("e"), self._anchor or (0, 1)
        lag = f"{(place + ends) % cycle}{'d' if unit == 'w' else 'mo'}"
        every = f"{size}{'m' if unit == 'min' else unit.removesuffix('e')}"
        stamps = pl.Series(self.wall_clock(time) if local else time).cast(MICROSECONDS)
        begin = stamps.dt.offset_by(f"-{lag}").dt.truncate(every).dt.offset_by(lag)
        end = begin.dt.offset_by(every)
        found = (begin, end, end.dt.offset_by("-1d") if ends else begin)
        walls = [part.to_physical().to_numpy() for part in found]
        return [self.instant(wall) for wall in walls] if local else walls

    def is_dense(self, time: Times, indptr: Times) -> bool:
        """Whether every row is one step after the one before; may be False where steps vary in length."""
        for start in range(0, len(time) - 1, BLOCK_CELLS):
            odd = np.flatnonzero(np.diff(time[start : start + BLOCK_CELLS + 1]) != self._elapsed)
            odd += start + 1
            # The first row of a series comes after none.
            if (indptr[np.searchsorted(indptr, odd)] != odd).any():
                return False
        return True

    def grid(self, first: int, last: int) -> Times:
        """Returns all times on the grid from first to last: int64 [n]."""
        return self.shift(first, np.arange(int(self.steps(first, last)) + 1))

    def before(self, time: int, count: int) -> Times:
        """Returns the `count` times before a time, oldest first: int64 [count]."""
        return self.shift(time, np.arange(-count, 0))

    def phase(self, time: Times) -> NDArray[np.float32]:
        """Returns the progress in [0, 1) of each cycle on the local wall clock: float32 [n, cycle].

        day: since midnight; week: since Monday 00:00, of what has rows where nights or days have none; year:
        (day of the year - 1 + share of the day) / days in the year; further cycles: since any whole
        number of them after 1970, or 0.
        """
        if not self.cycles:
            return np.zeros((len(time), 0), np.float32)
        local = time if self.integer else self.wall_clock(time)
        days, clock = np.divmod(local, DAY)
        share = clock / DAY
        january = months_of(days) // 12 * 12
        start = first_days(january)
        year = (days - start + share) / (first_days(january + 12) - start)
        day, week = share, ((days + 3) % 7 + share) / 7
        if self._open:
            number, rest = self._numbered(local)
            step = number % len(self._open) + rest / self._cell
            day, week = step / (self.day / self.step) % 1, step / len(self._open)
        parts = {"day": day, "week": week, "year": year}
        columns = [parts[cycle] for cycle in self._calendar_cycles]
        for period in self.periods:
            length = self._elapsed
            place = time % (length * period) / length if length else self.steps(0, time) % period
            columns.append(place / period)
        # The last microsecond of a cycle rounds to 1 in float32, which is another cycle's start.
        below = np.nextafter(np.float32(1), np.float32(0))
        return np.minimum(np.stack(columns, axis=1).astype(np.float32), below)

    def parse(self, text: str, option: str = "date") -> int:
        """Returns the date of an option as a time of this axis, read on the zone's wall clock.

        Where rows were aggregated, it is the stamp of the last period that rows up to the date cover.

        Raises:
            DataError: it is no date (or no integer, where rows are numbered).
        """
        if self.integer:
            if not re.fullmatch(r"\s*[-+]?\d{1,18}\s*", text):
                raise DataError(f"{option} '{text[:40]}': expected an integer, as the time column has")
            return int(text)
        try:
            # Where times have no zone, what is written with an offset is read on its own clock.
            hint = None if self.time_zone else "%Y-%m-%d"
            stamp, _ = parse_times(pl.Series([text.strip()]), option, hint)
        except DataError:
            raise DataError(f"{option} '{text[:40]}': expected a date, as YYYY-MM-DD") from None
        time = stamp.to_physical().to_numpy()
        if stamp.dtype.time_zone is None:  # type: ignore[attr-defined]
            time = self.instant(time)
        if self.rows:
            after = Calendar(self.rows, self.time_zone, False).shift(time, 1)
            time = self.period(self.period(after)[0] - 1)[2]
        return int(time[0])

    def text(self, time: int | np.int64) -> str:
        """Returns a time on the zone's wall clock, without the time of day where steps are days."""
        if self.integer:
            return str(int(time))
        local = int(self.wall_clock(np.array([time], np.int64))[0])
        date, _, clock = str(np.datetime64(local, "us")).partition("T")
        if local % DAY == 0 and self.step >= DAY:
            return date
        clock = clock.rstrip("0").rstrip(".") if local % 10**6 else clock[:8]
        return f"{date} {clock.removesuffix(':00') if clock.count(':') == 2 else clock}"

    def wall_clock(self, time: Times) -> Times:
        """Returns local times of instants: microseconds since 1970."""
        if not self._zoned:
            return time
        stamps = pl.Series(time.ravel()).cast(pl.Datetime("us", "UTC"))
        local = stamps.dt.convert_time_zone(str(self.time_zone)).dt.replace_time_zone(None)
        return local.to_physical().to_numpy().reshape(time.shape)

    def instant(self, local: Times) -> Times:
        """Returns the instants of local times.

        The first of two where clocks are set back; where they are set forward, a time that does not
        exist is moved by as much (02:30 becomes 03:30, a missing midnight 01:00).
        """
        if not self._zoned:
            return local
        stamps = pl.Series(local.ravel()).cast(MICROSECONDS)
        zone = str(self.time_zone)

        def placed(wall: pl.Series) -> pl.Series:
            return wall.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")

        found = placed(stamps)
        if found.null_count():
            # The day before still had the old offset.
            found = found.fill_null(placed(stamps.dt.offset_by("-1d")).dt.offset_by("24h"))
        return found.to_physical().to_numpy().reshape(local.shape)


def cycle_steps(calendar: Calendar, name: str) -> int:
    """Returns the steps of a cycle of a calendar, a nominal number where they differ."""
    length = {"day": calendar.day, "week": 7 * DAY, "year": 365.2425 * DAY}.get(name)
    return round(length / calendar.step) if length else int(name.split()[0])
