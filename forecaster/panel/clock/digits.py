"""Whole numbers that are dates: 20240131, 202401, 2024, or counted since 1970.

What comes in is a column of integers and its name; what goes out is how they are written, or that they
only count steps. What may be either is refused with the flags that settle it.
"""

from __future__ import annotations

import re

import polars as pl

from forecaster.panel.findings import fault

EPOCHS = {"s": 10**6, "%s": 10**6, "ms": 10**3, "us": 1, "ns": 0}
"""Formats of counts since 1970, with the microseconds in one; nanoseconds are divided."""

_TIME_WORDS = {
    "date", "time", "timestamp", "datetime", "day", "month", "year", "week", "quarter", "period", "ds",
    "ts", "epoch",
}  # fmt: skip


def is_time_name(name: str) -> bool:
    """Whether a column's name speaks of time, as order_date, timestamp or yearMonth."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return bool(_TIME_WORDS & set(re.split(r"[^a-z]+", words)))


def integer_format(column: pl.Series, where: str) -> str | None:
    """Returns how whole numbers are written as dates; None where they count steps.

    Numbers of which nine in ten are a valid YYYYMMDD or YYYYMM, or lie between 1973 and 2103 as
    seconds, milli-, micro- or nanoseconds since 1970, are dates where the column's name speaks of
    time, and refused as ambiguous elsewhere. YYYY is a date where the name speaks of years: counted
    as steps, years are the same years.

    Args:
        column: integers.
        where: table and column, for messages.

    Raises:
        DataError: they read as dates, but the name does not say that they are.
    """
    value, name = pl.col(column.name), column.name.lower()

    def dated(days: pl.Expr) -> pl.Expr:
        year, month, day = days // 10_000, days // 100 % 100, days % 100
        return year.is_between(1800, 2199) & month.is_between(1, 12) & day.is_between(1, 31)

    tests = {"%Y%m%d": dated(value), "%Y%m": dated(value * 100 + 1)}
    tests |= {
        unit: value.is_between(10 ** (8 + power), int(4.2 * 10 ** (9 + power)))
        for unit, power in (("s", 0), ("ms", 3), ("us", 6), ("ns", 9))
    }
    if "year" in name:
        tests["%Y"] = value.is_between(1800, 2199)
    numbers = column.cast(pl.Int64, strict=False).to_frame()
    shares = numbers.select(test.mean().alias(fmt) for fmt, test in tests.items()).row(0)
    found = next((fmt for fmt, share in zip(tests, shares, strict=True) if (share or 0) >= 0.9), None)
    if found in (None, "%Y") or is_time_name(column.name):
        return found
    first = column.drop_nulls()[0]
    meaning = f"{found} since 1970" if found in EPOCHS else "dates"
    raise fault(
        "time",
        f"{where}: whole numbers such as {first} may be {meaning} or steps",
        f"say --time-format {found}, or --freq 1i where they count steps",
        where=column.name,
    )
