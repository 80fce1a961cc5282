"""Public holidays as a covariate known in advance, made from the calendar.

A column counts the public holidays in the step that a timestamp begins, on the wall clock: 0
or 1 for days; whether their day is one for shorter steps; for months, quarters and years those of the
whole months that begin with (for month ends: end with) the timestamp's own; for weeks such as W-SUN
those up to the timestamp's day. Axes: n = times.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from forecaster.errors import DataError, nearest
from forecaster.panel.arrays import Floats
from forecaster.panel.calendar import DAY, MONTHS, Calendar, Times, first_days, months_of
from forecaster.panel.findings import did_you_mean
from forecaster.panel.frames import Table
from forecaster.panel.schema import Names, holiday_columns


def count_holidays(calendar: Calendar, time: Times, country: str) -> Floats:
    """Returns how many public holidays fall in the steps that begin at `time`: float64 [n]."""
    if not len(time):
        return np.zeros(0)
    first = calendar.wall_clock(time) // DAY
    end = first + 1
    size = round(calendar.step / (365.2425 / 12 * DAY))
    if calendar.unit in MONTHS:
        # Whole months: a timestamp on 28 February may stand for the 31st of every month.
        month = months_of(first) - (size - 1) * calendar.unit.endswith("e")
        first, end = first_days(month), first_days(month + size)
    elif calendar.unit == "w" and "-" in calendar.freq:  # stamped with their last day
        first = end - round(calendar.step / DAY)
    elif calendar.step >= DAY:
        end = np.maximum(end, calendar.wall_clock(calendar.shift(time, 1)) // DAY)
    begin, stop = (int(months_of(day)) // 12 + 1970 for day in (first.min(), end.max()))
    days = np.unique(np.concatenate([[], *named_holidays(country, begin, stop).values()]))
    count = np.searchsorted(days, end) - np.searchsorted(days, first)
    return count.astype(np.float64)


def check_holidays(countries: Names, tables: Sequence[Table]) -> None:
    """Raises a DataError for an unknown country, and for tables that have one of the columns."""
    for country in countries:
        named_holidays(country, 2000, 2000)
    for table in tables:
        for name in set(holiday_columns(countries)) & set(table.frame.columns):
            raise DataError(
                f"{table.name}: --holidays makes a column '{name}', but the table has one; "
                f"rename it, or declare it with --known {name} and leave out --holidays"
            )


@lru_cache(maxsize=8)
def named_holidays(country: str, first: int, last: int) -> dict[str, Times]:
    """Returns the days since 1970 of each holiday of a country in some years, by its name.

    Raises:
        DataError: the country is unknown, or the package `holidays` is not installed.
    """
    try:
        import holidays
    except ImportError:
        raise DataError(
            f"--holidays {country}: needs the package holidays: pip install holidays"
        ) from None
    name, _, part = country.partition("-")
    name, parts = name.upper(), holidays.list_supported_countries()
    if name not in parts:
        raise DataError(
            f"--holidays {country}: expected the code of a country, as DE or DE-BY"
            f"{_nearest(country, holidays)}"
        )
    own = {known.lower(): known for known in parts[name]}
    if part and part.lower() not in own:
        known = ", ".join(f"{name}-{known}" for known in parts[name][:60]) or "none"
        raise DataError(
            f"--holidays {country}: {name} has no part {part}{did_you_mean(part, parts[name])}; "
            f"its parts are {known}"
        )
    found = holidays.country_holidays(name, subdiv=own.get(part.lower()), years=range(first, last + 1))
    epoch = datetime.date(1970, 1, 1)
    days: dict[str, list[int]] = {}
    for day in sorted(found):
        for one in found.get_list(day):
            days.setdefault(one, []).append((day - epoch).days)
    return {name: np.array(days[name], np.int64) for name in sorted(days)}


def _nearest(country: str, holidays: Any) -> str:
    """Returns a hint: the code of the country nearest by name, else the codes that begin alike."""
    named = {
        module.replace("_", " "): codes[1] for module, codes in holidays.registry.COUNTRIES.items()
    }
    near = nearest(country, named)
    if near:
        return f"; did you mean '{named[near]}'?"
    alike = sorted(code for code in named.values() if code[0] == country[:1].upper())
    return f"; those that begin alike are {', '.join(alike)}" if alike else ""
