"""The time axis of a panel: its step found and named, the stamps that follow, the phase of cycles.

Time is int64: microseconds since 1970 (UTC instants for zoned columns; naive stamps and dates as if
they were UTC), or the caller's own integers. A `freq` is "<count><unit>", see `frequency.py`.
Steps of days and longer keep the wall clock of the zone, so a day over a clock change lasts 23 or 25
hours; hours and shorter steps are elapsed time. All arithmetic is over whole arrays: polars knows
zones but offsets one step at a time, so months and weekdays are numbered and divided here.

Axes: n = times.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from forecaster.errors import DataError
from forecaster.panel.frequency import DAY, FIXED, MONTHS, MOST_GRID_ROWS
from forecaster.panel.frequency import parse_freq as parse_freq
from forecaster.panel.stamps import parse_times

Times = NDArray[np.int64]


@dataclass(frozen=True)
class Calendar:
    """The step of a time axis and the zone its wall clock hangs in."""

    freq: str
    time_zone: str | None
    integer: bool

    @cached_property
    def _count_unit(self) -> tuple[int, str]:
        unit = self.freq.lstrip("0123456789")
        return int(self.freq[: -len(unit)]), unit

    @cached_property
    def _zoned(self) -> bool:
        return self.time_zone not in (None, "UTC")

    @cached_property
    def _elapsed(self) -> int:
        """Length of every step where all are equal, else 0."""
        count, unit = self._count_unit
        if self.integer or unit == "i":
            return count
        if unit not in FIXED or (self._zoned and unit in "dw"):
            return 0
        return count * FIXED[unit]

    @cached_property
    def step(self) -> float:
        """Nominal step: microseconds (a month is 365.2425 / 12 days), or integer steps."""
        count, unit = self._count_unit
        if unit in MONTHS:
            return count * MONTHS[unit] * 365.2425 / 12 * DAY
        if unit == "b":
            return count * 7 / 5 * DAY
        return float(count * FIXED.get(unit, 1))

    @cached_property
    def cycles(self) -> tuple[str, ...]:
        """Names of the calendar cycles longer than a step, in the order of `phase`'s columns."""
        unit = self._count_unit[1]
        if self.integer or unit in ("i", "y", "ye"):
            return ()
        if unit in MONTHS or unit == "w":
            return ("year",)
        return ("week", "year") if self.step >= DAY else ("day", "week", "year")

    @cached_property
    def season_length(self) -> int:
        """Steps of the season to try first: a day, a week, a year; 1 where there is none."""
        count, unit = self._count_unit
        whole = {"d": 7, "b": 5, "w": 52, "mo": 12, "moe": 12, "q": 4, "qe": 4}.get(unit, 1)
        if not self.integer and unit in FIXED and self.step < DAY:
            return max(1, round(DAY / self.step))
        return max(1, round(whole / count))

    def shift(self, anchor: Times | int, count: Times | int) -> Times:
        """Returns the stamps `count` steps after their anchors (negative: before); broadcasts.

        Months keep the anchor's day, clipped to the month's length; month ends are the last days.
        """
        if self._elapsed:
            return np.asarray(anchor + np.asarray(count, np.int64) * self._elapsed, np.int64)
        size, unit = self._count_unit
        local = self._local(np.asarray(anchor, np.int64))
        days, clock = np.divmod(local, DAY)
        moved = np.asarray(count, np.int64) * size
        if unit == "b":
            number = _weekday_number(days) + moved
            days = 7 * (number // 5) + number % 5 - 3
        elif unit in MONTHS:
            month = days.astype("M8[D]").astype("M8[M]")
            day = days - month.astype("M8[D]").astype(np.int64)
            month = month + moved * MONTHS[unit]
            first = month.astype("M8[D]").astype(np.int64)
            last = (month + 1).astype("M8[D]").astype(np.int64) - 1
            days = last if unit.endswith("e") else np.minimum(first + day, last)
        else:
            days = days + moved * (FIXED[unit] // DAY)
        return self._instant(days * DAY + clock)

    def steps(self, anchor: Times | int, time: Times | int) -> Times:
        """Returns the whole steps from anchors to times, rounded down; broadcasts."""
        if self._elapsed:
            return np.asarray(np.floor_divide(np.subtract(time, anchor), self._elapsed), np.int64)
        size, unit = self._count_unit
        first = self._local(np.asarray(anchor, np.int64)) // DAY
        last = self._local(np.asarray(time, np.int64)) // DAY
        if unit == "b":
            apart = _weekday_number(last) - _weekday_number(first)
        elif unit in MONTHS:
            months = [x.astype("M8[D]").astype("M8[M]").astype(np.int64) for x in (first, last)]
            apart, size = months[1] - months[0], size * MONTHS[unit]
        else:
            apart, size = last - first, size * (FIXED[unit] // DAY)
        count = apart // size
        return np.asarray(count - (self.shift(anchor, count) > time), np.int64)

    def is_dense(self, time: Times, indptr: Times) -> bool:
        """Whether every row is plainly one step after the one before: a quick test for most tables.

        False says nothing where steps are not all of one length.
        """
        steady = np.diff(time) == (self._elapsed or -1)
        steady[indptr[(indptr > 0) & (indptr < len(time))] - 1] = True
        return bool(steady.all())

    def grid(self, first: int, last: int) -> Times:
        """Returns all stamps from first to last, both included where on the grid: int64 [n]."""
        return self.shift(first, np.arange(int(self.steps(first, last)) + 1))

    def after(self, time: int, count: int) -> Times:
        """Returns the next `count` stamps: int64 [count]."""
        return self.shift(time, np.arange(1, count + 1))

    def before(self, time: int, count: int) -> Times:
        """Returns the `count` stamps before a time, oldest first: int64 [count]."""
        return self.shift(time, np.arange(-count, 0))

    def phase(self, time: Times) -> NDArray[np.float32]:
        """Returns the progress in [0, 1) of each cycle on the local wall clock: float32 [n, cycle].

        day: since midnight; week: since Monday 00:00; year: (day of the year - 1 + share of the day)
        / days in the year.
        """
        if not self.cycles:
            return np.zeros((len(time), 0), np.float32)
        local = self._local(np.asarray(time, np.int64))
        days, clock = np.divmod(local, DAY)
        share = clock / DAY
        columns = []
        for cycle in self.cycles:
            if cycle == "day":
                columns.append(share)
            elif cycle == "week":
                columns.append(((days + 3) % 7 + share) / 7)
            else:
                year = days.astype("M8[D]").astype("M8[Y]")
                start = year.astype("M8[D]").astype(np.int64)
                length = (year + 1).astype("M8[D]").astype(np.int64) - start
                columns.append((days - start + share) / length)
        # The last microsecond of a cycle rounds to 1 in float32, which is another cycle's start.
        below = np.nextafter(np.float32(1), np.float32(0))
        return np.minimum(np.stack(columns, axis=1).astype(np.float32), below)

    def parse(self, text: str) -> int:
        """Returns a caller's DATE as a time of this axis, read on the zone's wall clock.

        Raises:
            DataError: it is no date (or no integer, where rows are numbered).
        """
        if self.integer:
            try:
                return int(text)
            except ValueError:
                raise DataError(
                    f"date '{text}': expected an integer, as the time column holds"
                ) from None
        stamp, _ = parse_times(pl.Series([text.strip()]), "date")
        if stamp.dtype.time_zone is None:  # type: ignore[attr-defined]
            return int(self._instant(stamp.to_physical().to_numpy())[0])
        return int(stamp.to_physical()[0])

    def text(self, time: int) -> str:
        """Returns a time as people write it, on the zone's wall clock; the clock only where needed."""
        if self.integer:
            return str(int(time))
        local = int(self._local(np.array([time], np.int64))[0])
        date, _, clock = str(np.datetime64(local, "us")).partition("T")
        if local % DAY == 0 and self.step >= DAY:
            return date
        clock = clock.rstrip("0").rstrip(".") if local % 10**6 else clock[:8]
        return f"{date} {clock.removesuffix(':00') if clock.count(':') == 2 else clock}"

    def _local(self, time: Times) -> Times:
        if not self._zoned:
            return time
        stamps = pl.Series(time.ravel()).cast(pl.Datetime("us", "UTC"))
        local = stamps.dt.convert_time_zone(str(self.time_zone)).dt.replace_time_zone(None)
        return local.to_physical().to_numpy().reshape(time.shape)

    def _instant(self, local: Times) -> Times:
        if not self._zoned:
            return np.asarray(local, np.int64)
        stamps = pl.Series(local.ravel()).cast(pl.Datetime("us"))
        zone = str(self.time_zone)

        def placed(wall: pl.Series) -> pl.Series:
            return wall.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")

        # Where clocks jump at midnight the day starts an hour late.
        found = placed(stamps)
        if found.null_count():
            found = found.fill_null(placed(stamps.dt.offset_by("1h")))
        return found.to_physical().to_numpy().reshape(local.shape)


def find_freq(time: Times, indptr: Times, integer: bool, time_zone: str | None) -> tuple[str, bool]:
    """Returns the step most rows are apart, and whether every row lies on its grid.

    Args:
        time: int64 [row], rising within each series; `integer`: it counts steps.
        indptr: int64 [series + 1].

    Raises:
        DataError: no series has two rows.

    Example:
        >>> find_freq(np.arange(3) * DAY, np.array([0, 3]), False, None)
        ('1d', True)
    """
    inside = np.ones(max(len(time) - 1, 0), bool)
    starts = indptr[1:-1]
    inside[starts[(starts > 0) & (starts < len(time))] - 1] = False
    gaps = np.diff(time)[inside]
    if not len(gaps):
        raise DataError(
            f"the step of time cannot be found: no series has two rows ({len(time)} rows in all); "
            "say it with --freq, as --freq 1d"
        )
    if not integer and time_zone in (None, "UTC") and gaps[0] < 28 * DAY:
        # Most tables: one gap throughout, shorter than a month, needs no counting.
        freq = _named(int(gaps[0]))
        if (gaps == gaps[0]).all() and Calendar(freq, None, False).step == gaps[0]:
            return freq, True
    counts = pl.Series("gap", gaps).value_counts().sort("count", "gap", descending=[True, False])
    mode, share = int(counts["gap"][0]), counts["count"][0] / len(gaps)
    if integer:
        step = mode if share >= 0.5 else max(1, int(np.median(gaps)))
        return f"{step}i", not (gaps % step).any()
    length = np.diff(indptr)[np.diff(indptr) > 0]
    last = np.cumsum(length) - 1
    anchor = np.repeat(time[last - length + 1], length)
    for freq in _candidates(mode, time, inside, time_zone):
        calendar = Calendar(freq, time_zone, False)
        place = calendar.steps(anchor, time)
        # Without a common gap the smallest is the mode, and any stamps lie on a grid of seconds.
        scattered = share < 0.5 and (place[last] + 1).sum() > MOST_GRID_ROWS * len(time)
        if not scattered and (calendar.shift(anchor, place) == time).all():
            return freq, True
    # Scattered stamps have no mode; their middle gap is the nominal step.
    return _named(mode if share >= 0.5 else int(np.median(gaps))), False


def _candidates(mode: int, time: Times, inside: NDArray[np.bool_], time_zone: str | None) -> list[str]:
    days = Calendar("1d", time_zone, False)._local(time) // DAY
    apart = round(mode / DAY)
    months = round(apart / 30.436875)
    found = []
    if months and abs(apart - months * 30.436875) <= 3:
        month = days.astype("M8[D]").astype("M8[M]")
        at_end = bool((days + 1 == (month + 1).astype("M8[D]").astype(np.int64)).all())
        unit = "y" if months % 12 == 0 else "q" if months % 3 == 0 else "mo"
        found.append(f"{months // MONTHS[unit]}{unit}{'e' if at_end else ''}")
    elif apart == 1 and ((days + 3) % 7 < 5).all():
        # No weekends, and some Friday is followed by its Monday: more than a table with gaps.
        over_weekend = inside & (np.diff(days) == 3) & ((days[:-1] + 3) % 7 == 4)
        found += ["1b"] if over_weekend.any() else []
    zoned = time_zone not in (None, "UTC")
    # In a zone a day may last 23 or 25 hours, so days are counted on the wall clock.
    if zoned and apart and abs(mode - apart * DAY) <= FIXED["h"]:
        found.append(f"{apart // 7}w" if apart % 7 == 0 else f"{apart}d")
    return [*found, f"{mode // FIXED['h']}h" if zoned and mode % DAY == 0 else _named(mode)]


def _named(gap: int) -> str:
    if gap > 60 * FIXED["s"]:
        gap = gap if gap % FIXED["s"] == 0 else round(gap / FIXED["s"]) * FIXED["s"]
    unit = next(unit for unit in ("w", "d", "h", "min", "s", "ms", "us") if gap % FIXED[unit] == 0)
    return f"{gap // FIXED[unit]}{unit}"


def _weekday_number(days: Times) -> Times:
    # 1970-01-01 was a Thursday; a weekend counts as the Monday after it.
    week, weekday = np.divmod(days + 3, 7)
    return np.asarray(5 * week + np.minimum(weekday, 5), np.int64)
