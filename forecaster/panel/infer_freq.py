"""The step of a time axis, found: what comes in are sorted times, what goes out is a `freq`.

Times come in parts, each of some whole series, so that a table larger than memory is looked at one
part after the other: once to count gaps, once for weekends, and once per calendar that may fit. The
result is that of the whole table, however it is parted; memory grows with the number of different
gaps only.

Axes: row, series.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from forecaster.errors import DataError
from forecaster.panel.arrays import evenly_apart
from forecaster.panel.calendar import Calendar, Times
from forecaster.panel.freq import DAY, FIXED, MONTHS, MOST_GRID_ROWS

Parts = Sequence[tuple[Times, Times]]
"""Each (time [row], rising within each series; indptr [series + 1]) of some whole series."""

_MONTH = 30.436875
_ROUND = {"s": (1, 2, 5, 10, 15, 20, 30), "min": (1, 2, 5, 10, 15, 20, 30), "h": (1, 2, 3, 4, 6, 8, 12),
          "d": (1,), "w": (1,), "mo": (1, 3, 6, 12)}  # fmt: skip


def find_freq(
    parts: Parts, integer: bool, time_zone: str | None, *, rounded: bool = False
) -> tuple[str, bool]:
    """Returns the step most rows are apart, and whether every row lies on its grid.

    Args:
        parts: times of whole series.
        integer: times count steps.
        time_zone: of the wall clock.
        rounded: name the step of scattered stamps by the round one within a tenth, as 1h for 3599 s.

    Raises:
        DataError: no series has two rows.

    Example:
        >>> find_freq([(np.arange(3) * DAY, np.array([0, 3]))], False, None)
        ('1d', True)
    """
    gaps, counts, rows = _gap_counts(parts)
    if not len(gaps):
        raise DataError(
            f"the step of time cannot be found: no series has two rows ({rows} rows in all); "
            "pass it with --freq, as --freq 1d"
        )
    if len(gaps) == 1 and not integer and time_zone in (None, "UTC") and gaps[0] < 28 * DAY:
        # Most tables: one gap throughout, shorter than a month, needs no looking at calendars.
        freq = _named(int(gaps[0]))
        if Calendar(freq, None, False).step == gaps[0]:
            return freq, True
    at = int(counts.argmax())  # gaps rise: the smallest of the most frequent
    mode, clear = int(gaps[at]), 2 * counts[at] >= counts.sum()
    middle = mode if clear else _median(gaps, counts)
    if integer:
        step = max(1, middle)
        return f"{step}i", not (gaps % step).any()
    for freq in _candidates(mode, parts, time_zone):
        if _holds(Calendar(freq, time_zone, False), parts, scattered=not clear):
            return freq, True
    # Scattered stamps have no mode; their middle gap is the nominal step.
    return _nominal(middle, rounded=rounded and not clear), False


def modal_steps(time: Times, indptr: Times) -> Times:
    """Returns the most frequent gap between neighbouring rows of each series: int64 [series].

    The smaller of two that are equally frequent; 0 for a series with fewer than two rows. With the
    numbers of observed rows in the place of times it tells steps of the grid.

    Args:
        time: int64 [row], rising within each series.
        indptr: int64 [series + 1].

    Example:
        >>> modal_steps(np.array([0, 2, 4, 5, 0, 7]), np.array([0, 4, 6])).tolist()
        [2, 7]
    """
    gaps = np.diff(time)[_inside(len(time), indptr)]
    return modes(gaps, np.maximum(np.diff(indptr) - 1, 0))[0]


def modes(values: Times, length: Times) -> tuple[Times, Times]:
    """Returns the most frequent value of each group and how often it occurs: int64 [group] twice.

    Args:
        values: int64 [value], group after group.
        length: int64 [group], how many values each has; an empty one gets 0 and 0.
    """
    filled = length > 0
    starts = (np.cumsum(length) - length)[filled]
    mode, count = np.zeros(len(length), np.int64), np.where(filled, length, 0)
    if not len(starts):
        return mode, count
    mode[filled] = values[starts]
    odd = np.zeros(len(length), bool)
    odd[filled] = np.logical_or.reduceat(values != np.repeat(mode, length), starts)
    if odd.any():
        # Few tables have groups of several values; only these are counted.
        group = np.repeat(np.arange(len(length)), length)
        some = odd[group]
        found = pl.DataFrame({"group": group[some], "value": values[some]})
        found = found.group_by("group", "value").len().sort("len", "value", descending=[True, False])
        found = found.unique("group", keep="first", maintain_order=True)
        at = found["group"].to_numpy()
        mode[at], count[at] = found["value"].to_numpy(), found["len"].to_numpy()
    return mode, count


def _inside(rows: int, indptr: Times) -> NDArray[np.bool_]:
    """Returns whether a row and the next are of one series: bool [row - 1]."""
    inside = np.ones(max(rows - 1, 0), bool)
    starts = indptr[1:-1]
    inside[starts[(starts > 0) & (starts < rows)] - 1] = False
    return inside


def _gap_counts(parts: Parts) -> tuple[Times, Times, int]:
    """Returns all gaps within series, rising, how often each occurs, and the number of rows."""
    found, rows = [], 0
    for time, indptr in parts:
        rows += len(time)
        length = np.diff(indptr)
        several = indptr[:-1][length > 1]
        if not len(several):
            continue
        first = int(time[several[0] + 1] - time[several[0]])
        if evenly_apart(time, indptr, first):
            count = len(time) - np.count_nonzero(length)
            found.append(pl.DataFrame({"gap": [first], "count": [count]}))
        else:
            gaps = np.diff(time)[_inside(len(time), indptr)]
            found.append(pl.Series("gap", gaps).value_counts().cast(pl.Int64))
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), rows
    merged = pl.concat(found).group_by("gap").sum().sort("gap")
    return merged["gap"].to_numpy(), merged["count"].to_numpy(), rows


def _median(gaps: Times, counts: Times) -> int:
    upto, total = np.cumsum(counts), int(counts.sum())
    middle = gaps[np.searchsorted(upto, [(total - 1) // 2, total // 2], side="right")]
    return int(middle.sum()) // 2


def _candidates(mode: int, parts: Parts, time_zone: str | None) -> list[str]:
    """Returns the steps that a gap may be, in the order in which they are tried."""
    apart, found = round(mode / DAY), []
    if (months := _months(mode)) is not None:
        found += [f"{months}e", months]
    elif apart == 1 and _skips_weekends(parts, time_zone):
        found.append("1b")
    zoned = time_zone not in (None, "UTC")
    # In a zone a day may last 23 or 25 hours, so days are counted on the wall clock.
    if zoned and apart and abs(mode - apart * DAY) <= FIXED["h"]:
        found.append(f"{apart // 7}w" if apart % 7 == 0 else f"{apart}d")
    return [*found, f"{mode // FIXED['h']}h" if zoned and mode % DAY == 0 else _named(mode)]


def _skips_weekends(parts: Parts, time_zone: str | None) -> bool:
    """Whether no row is on a weekend, and some Friday is followed by its Monday.

    The second is more than a table has whose gaps happen to hide the weekends.
    """
    over_weekend, calendar = False, Calendar("1d", time_zone, False)
    for time, indptr in parts:
        days = calendar.wall_clock(time) // DAY
        weekday = (days + 3) % 7
        if (weekday > 4).any():
            return False
        from_friday = (np.diff(days) == 3) & (weekday[:-1] == 4) & _inside(len(time), indptr)
        over_weekend = over_weekend or bool(from_friday.any())
    return over_weekend


def _holds(calendar: Calendar, parts: Parts, *, scattered: bool) -> bool:
    """Whether every row lies on the grid of its series.

    Where stamps are scattered the smallest gap is the mode, and any stamps lie on a grid of seconds:
    then the grid may not be mostly empty either.
    """
    rows = places = 0
    for time, indptr in parts:
        _, place, off = calendar.placed(time, indptr)
        if off.any():
            return False
        filled = np.diff(indptr) > 0
        rows += len(time)
        places += int((place[indptr[1:][filled] - 1] - place[indptr[:-1][filled]] + 1).sum())
    return not scattered or places <= MOST_GRID_ROWS * rows


def _months(gap: int) -> str | None:
    """Returns a gap as months, quarters or years; None where it is no whole number of months."""
    days = round(gap / DAY)
    months = round(days / _MONTH)
    if not months or abs(days - months * _MONTH) > 3:
        return None
    unit = "y" if months % 12 == 0 else "q" if months % 3 == 0 else "mo"
    return f"{months // MONTHS[unit]}{unit}"


def _nominal(gap: int, *, rounded: bool) -> str:
    """Returns the name of a gap that not all rows keep."""
    if rounded:
        steps = [f"{count}{unit}" for unit, counts in _ROUND.items() for count in counts]
        ratio = [abs(gap / Calendar(freq, None, False).step - 1) for freq in steps]
        if min(ratio) <= 0.1:
            return steps[int(np.argmin(ratio))]
    months = _months(gap) if gap % DAY == 0 and gap != 28 * DAY else None
    return months or _named(gap)


def _named(gap: int) -> str:
    if gap > 60 * FIXED["s"]:
        gap = gap if gap % FIXED["s"] == 0 else round(gap / FIXED["s"]) * FIXED["s"]
    unit = next(unit for unit in ("w", "d", "h", "min", "s", "ms", "us") if gap % FIXED[unit] == 0)
    return f"{gap // FIXED[unit]}{unit}"
