"""Frequencies: "<count><unit>", and the spellings of other packages."""

from __future__ import annotations

import re

from forecaster.errors import DataError

DAY = 86_400_000_000
FIXED = {"us": 1, "ms": 1000, "s": 10**6, "min": 60 * 10**6, "h": 3600 * 10**6, "d": DAY, "w": 7 * DAY}
MONTHS = {"mo": 1, "moe": 1, "q": 3, "qe": 3, "y": 12, "ye": 12}
MOST_GRID_ROWS = 4
"""Grid rows per row of a table beyond which the step must be wrong."""
UNITS = "us, ms, s, min, h, d, b (weekdays), w, mo, moe (month end), q, qe, y, ye, i (integer step)"
_SPELLINGS = {
    "S": "s", "sec": "s", "second": "s", "seconds": "s", "L": "ms", "U": "us",
    "T": "min", "m": "min", "minute": "min", "minutes": "min", "minutely": "min",
    "H": "h", "hour": "h", "hours": "h", "hourly": "h", "hr": "h",
    "D": "d", "day": "d", "days": "d", "daily": "d", "B": "b", "business": "b",
    "W": "w", "week": "w", "weeks": "w", "weekly": "w",
    "MS": "mo", "M": "moe", "ME": "moe", "month": "mo", "months": "mo", "monthly": "mo",
    "QS": "q", "Q": "qe", "QE": "qe", "quarter": "q", "quarters": "q", "quarterly": "q",
    "YS": "y", "AS": "y", "A": "ye", "Y": "ye", "YE": "ye",
    "year": "y", "years": "y", "yearly": "y", "annual": "y", "integer": "i", "step": "i",
}  # fmt: skip


def parse_freq(text: str) -> str:
    """Returns a frequency in this package's notation.

    Args:
        text: "1h", "30min", "hourly", or a pandas alias such as "D", "15T", "W-SUN", "MS".

    Raises:
        DataError: the unit is not known.

    Example:
        >>> parse_freq("15T"), parse_freq("W-SUN"), parse_freq("hourly")
        ('15min', '1w', '1h')
    """
    match = re.fullmatch(r"\s*(\d*)\s*([A-Za-z]*)(-[A-Za-z]{3})?\s*", text)
    count, unit = (match[1], match[2] or "i") if match else ("", "")
    unit = _SPELLINGS.get(unit) or _SPELLINGS.get(unit.lower()) or unit
    known = unit in FIXED or unit in MONTHS or unit in ("b", "i")
    if not known or count.strip("0") == "" != count or not text.strip():
        raise DataError(f"freq '{text}': expected a count and a unit, as 1h; units are {UNITS}")
    return f"{int(count or 1)}{unit}"


def declared_freq(text: str, *, integer: bool) -> str:
    """Returns a declared frequency; raises a DataError where it does not suit the time column.

    Args:
        integer: times count steps.
    """
    freq = parse_freq(text)
    if integer != freq.endswith("i"):
        held = "integers; pass --freq 1i" if integer else "dates; pass --freq 1d or the like"
        raise DataError(f"freq '{freq}': the time column holds {held}")
    return freq
