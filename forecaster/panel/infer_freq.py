"""Inferring the step of a time axis from sorted times.

Times come in parts, each of some whole series, so that a table larger than memory is read one part
after the other: once to count gaps, once for weekends, and once per candidate step. The result does not
depend on the parts; memory grows with the number of different gaps only.

Axes: row, series.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from forecaster.errors import DataError
from forecaster.panel.arrays import Bools, owners
from forecaster.panel.calendar import (
    DAY,
    FIXED,
    MONTHS,
    RARE,
    WEEKDAYS,
    Calendar,
    Times,
    clocks,
    closed_days,
    proves_closed,
)
from forecaster.panel.findings import fault

Parts = Sequence[tuple[Times, Times]]
"""Each (time [row], rising within each series; indptr [series + 1]) of some whole series."""

MOST_GRID_ROWS = 4
"""Grid rows per row of a table beyond which the step must be wrong."""
_MONTH = 30.436875
_AROUND = (
    "1y 1q 1moe 1mo 2w 10d 1w 3d 2d 1d 12h 8h 6h 4h 3h 2h 1h "
    "30min 20min 15min 10min 5min 2min 1min 30s 15s 10s 5s 2s 1s"
)
"""Steps that timestamps may lie around, the longest first."""
_FILLED, _PROOF = 0.6, 8
"""Share of such steps that have a row, and rows beyond two of each series, that show them."""


def find_freq(
    parts: Parts, integer: bool, time_zone: str | None, *, exact: bool = False
) -> tuple[str, bool]:
    """Returns the step most rows are apart, and whether every row lies on its grid, or around it.

    Args:
        integer: times count steps.
        time_zone: of the wall clock.
        exact: rows around a grid do not lie on it.

    Raises:
        DataError: no series has two rows; its finding, of the rule `step`, has the usual step as `where`.

    Example:
        >>> find_freq([(np.arange(3) * DAY, np.array([0, 3]))], False, None)
        ('1d', True)
    """
    gaps, counts, rows = _gap_counts(parts)
    if not len(gaps):
        text = f"the step of time cannot be found: no series has two rows ({rows} rows in all)"
        usual = "1i" if integer else "1d"
        raise fault("step", text, f"pass it with --freq, as --freq {usual}", where=usual)
    if len(gaps) == 1 and not integer and time_zone in (None, "UTC") and gaps[0] < 28 * DAY:
        # Most tables: one gap throughout, shorter than a month, needs no candidates.
        freq = _named(int(gaps[0]))
        if Calendar(freq, None, False).step == gaps[0]:
            return freq, True
    at = int(counts.argmax())  # gaps rise: the smallest of the most frequent
    mode, clear = int(gaps[at]), 2 * counts[at] >= counts.sum()
    middle = mode if clear else _median(gaps, counts)
    if integer:
        step = max(1, middle)
        return f"{step}i", not (gaps % step).any()
    # Rows as far apart as each other skip no days or hours, whatever the clock shows when it changes.
    open_steps = _open_steps(gaps, mode, parts, time_zone) if len(gaps) > 1 else []
    for freq in [*open_steps, *_candidates(mode, time_zone)]:
        if _holds(Calendar(freq, time_zone, False), parts, scattered=not clear):
            return freq, True
    for freq in () if exact else _AROUND.split():
        calendar = Calendar(freq, time_zone, False)
        likely = (
            0.4 * calendar.step <= gaps[0] and _FILLED * _median(gaps, counts) <= 1.5 * calendar.step
        )
        if likely and _lies_around(calendar, parts, rows):
            return freq, True
    # Scattered timestamps have no mode; their median gap is the nominal step.
    months = _months(middle) if middle % DAY == 0 and middle != 28 * DAY else None
    return months or _near(middle) or _named(middle), False


def check_not_finer(calendar: Calendar, parts: Parts) -> None:
    """Raises a DataError where rows are always several declared steps apart, as days are many hours."""
    gaps, _, _ = _gap_counts(parts)
    if len(gaps) and np.gcd.reduce(gaps) > 1.9 * calendar.step:
        raise DataError(
            f"freq '{calendar.freq}': no two rows are nearer than {gaps[0] / calendar.step:,.0f} such steps; "
            "leave out --freq to take the step of the rows, or aggregate them to a longer one with --resample"
        )


def _inside(rows: int, indptr: Times) -> Bools:
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
        gaps = np.diff(time)[_inside(len(time), indptr)]
        found.append(pl.Series("gap", gaps).value_counts(name="count").cast(pl.Int64))
    merged = pl.concat(found).group_by("gap").sum().sort("gap")
    return merged["gap"].to_numpy(), merged["count"].to_numpy(), rows


def _median(gaps: Times, counts: Times) -> int:
    upto, total = np.cumsum(counts), int(counts.sum())
    middle = gaps[np.searchsorted(upto, [(total - 1) // 2, total // 2], side="right")]
    return int(middle.sum()) // 2


def _candidates(mode: int, time_zone: str | None) -> list[str]:
    """Returns the steps that a gap may be, in the order of preference."""
    apart, found = round(mode / DAY), []
    if (months := _months(mode)) is not None:
        found += [f"{months}e", months]
    zoned = time_zone not in (None, "UTC")
    # In a zone a day may last 23 or 25 hours, so days are counted on the wall clock.
    if zoned and apart and abs(mode - apart * DAY) <= FIXED["h"]:
        found.append(f"{apart // 7}w" if apart % 7 == 0 else f"{apart}d")
    return [*found, f"{mode // FIXED['h']}h" if zoned and mode % DAY == 0 else _named(mode)]


def _open_steps(gaps: Times, mode: int, parts: Parts, time_zone: str | None) -> list[str]:
    """Returns the step of the weekdays, or of the times of day, that have rows, where others never have.

    Weekends are proven by a Friday that its Monday follows: a few gaps may hide them.
    """
    cell, apart = int(np.gcd.reduce(gaps)), round(mode / DAY)
    # In a zone a day may last 23 or 25 hours.
    if cell % DAY == 0 or (apart and time_zone not in (None, "UTC")):
        cell, step, most = DAY, "1b", 6
    else:
        # Times are named as they are: a step of two hours from nine o'clock on is one of an hour.
        hour = int(np.gcd(cell, next(time[0] for time, _ in parts if len(time)) % DAY))
        cell = hour if hour % FIXED["h"] == 0 else cell
        step, most = _named(cell), 0
    times = clocks(step)
    if apart > most or len(times) * cell != DAY:
        return []
    weekdays, opened, longest = np.zeros(7, bool), np.zeros(len(times), bool), 0
    skips = unlike = False
    wall = Calendar("1d", time_zone, False).wall_clock
    for time, indptr in parts:
        some = np.flatnonzero(np.diff(indptr))
        day, clock = np.divmod(wall(time), DAY)
        weekday = (day + 3) % 7
        from_friday = (np.diff(day) == 3) & (weekday[:-1] == 4) & _inside(len(time), indptr)
        skips = skips or bool(from_friday.any())
        rows = np.bincount(owners(indptr) * 7 + weekday, minlength=7 * (len(indptr) - 1)).reshape(
            -1, 7
        )[some]
        weekdays |= (rows >= RARE * rows.max(axis=1, keepdims=True)).any(axis=0)
        opened[clock // cell] = True
        first, last = _ends(time, indptr)
        spans = last - first
        longest = max(longest, int(spans.max(initial=0)))
        unlike = unlike or bool(closed_days(rows, spans / (7 * DAY)).any())
    if weekdays.sum() * opened.sum() < 2:
        return []
    if unlike and weekdays.all() and most:
        return ["1b-mon..sun"]  # of series with days of their own
    days, hours = _ranges(weekdays, WEEKDAYS), _ranges(opened, times)
    found = []
    for names, cycle in (([*days, *hours], 7 * DAY if days else DAY), (hours, DAY), (days, 7 * DAY)):
        freq = "-".join([step, *names])
        freq = "1b" if freq == "1b-mon..fri" else freq
        filled = _filled(Calendar(freq, time_zone, False), parts) if names else 0.0
        if proves_closed(filled, longest / cycle):
            found.append(freq)
    return [*found, *["1b"] * (skips and apart == 1 and not weekdays[5:].any())]


def _ranges(chosen: Bools, names: Sequence[str]) -> list[str]:
    """Returns names as ranges; none where all are chosen."""
    places = np.flatnonzero(chosen)
    runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    ends = [sorted({int(run[0]), int(run[-1])}) for run in runs]
    return [] if chosen.all() else ["..".join(names[end] for end in pair) for pair in ends]


def _holds(calendar: Calendar, parts: Parts, *, scattered: bool) -> bool:
    """Whether every row lies on the grid of its series.

    Scattered timestamps always lie on a grid of seconds, so theirs may not be mostly empty either.
    """
    for time, indptr in parts:
        off = calendar.placed(time, indptr)[2]
        # Rows on closed days are few, and left out.
        if off.any() and (off & ~calendar.closed(time)).any():
            return False
    return not scattered or MOST_GRID_ROWS * _filled(calendar, parts) >= 1


def _filled(calendar: Calendar, parts: Parts) -> float:
    """Returns rows per step from the first row of a series to its last."""
    return sum(len(time) for time, _ in parts) / grid_rows(calendar, parts)


def grid_rows(calendar: Calendar, parts: Parts) -> int:
    """Returns the steps from the first row of each series to its last."""
    return sum(int((calendar.steps(*_ends(*part)) + 1).sum()) for part in parts)


def _ends(time: Times, indptr: Times) -> tuple[Times, Times]:
    """Returns the first and the last time of each series that has rows."""
    some = np.diff(indptr) > 0
    return time[indptr[:-1][some]], time[indptr[1:][some] - 1]


def _lies_around(calendar: Calendar, parts: Parts, rows: int) -> bool:
    """Whether every row lies around a step of its own, on a grid of its series of which most steps have one."""
    series = sum(int(np.count_nonzero(np.diff(indptr))) for _, indptr in parts)
    if rows < 2 * series + _PROOF or _filled(calendar, parts) < _FILLED:
        return False
    return all(calendar.settled(*part) is not None for part in parts)


def _months(gap: int) -> str | None:
    """Returns a gap as months, quarters or years; None where it is no whole number of months."""
    days = round(gap / DAY)
    months = round(days / _MONTH)
    if not months or abs(days - months * _MONTH) > 3:
        return None
    unit = "y" if months % 12 == 0 else "q" if months % 3 == 0 else "mo"
    return f"{months // MONTHS[unit]}{unit}"


def _near(gap: int) -> str:
    """Returns the step of a clock that a gap below a day is within a fiftieth of; empty = none."""
    for freq in _AROUND.split() if gap < DAY else ():
        step = Calendar(freq, None, False).step
        if abs(gap - step) <= 0.02 * step:
            return freq
    return ""


def _named(gap: int) -> str:
    if gap > 60 * FIXED["s"]:
        gap = round(gap / FIXED["s"]) * FIXED["s"]
    unit = next(unit for unit in ("w", "d", "h", "min", "s", "ms", "us") if gap % FIXED[unit] == 0)
    return f"{gap // FIXED[unit]}{unit}"
