"""Numbers as people read them: what comes in is a float, what goes out is text."""

from __future__ import annotations

import math

NONE = "–"
"""Where there is no number."""


def number(value: float, digits: int = 4) -> str:
    """Returns a number with so many digits that count.

    >>> number(12345.678), number(-0.123456), number(float("nan")), number(0.0)
    ('12,346', '−0.1235', '–', '0')
    """
    if not math.isfinite(value):
        return NONE
    size = abs(value)
    if size >= 1e9 or 0 < size < 1e-4:
        text = f"{value:.{digits - 1}g}"
    elif size >= 10 ** (digits - 1):
        text = f"{value:,.0f}"
    else:
        text = f"{value:.{digits}g}"
    return text.replace("-", "−")


def signed(value: float, digits: int = 4) -> str:
    """Returns a number that says which side of 0 it is on.

    >>> signed(0.5), signed(-2.0), signed(0.0)
    ('+0.5', '−2', '0')
    """
    return f"+{number(value, digits)}" if value > 0 and math.isfinite(value) else number(value, digits)


def percent(share: float, digits: int = 1) -> str:
    """Returns a share in percent.

    >>> percent(0.7841).split(), percent(float("nan"))
    (['78.4', '%'], '–')
    """
    if not math.isfinite(share):
        return NONE
    return f"{100 * share:,.{digits}f}\N{NO-BREAK SPACE}%".replace("-", "−")


def short(value: float) -> str:
    """Returns a number of an axis, in as few characters as it takes.

    >>> short(1500.0), short(2_500_000.0), short(0.25), short(-3.0), short(0.0)
    ('1.5k', '2.5M', '0.25', '−3', '0')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size and abs(value) < 1e12:
            return f"{value / size:g}{unit}".replace("-", "−")
    return f"{value:.6g}".replace("-", "−")


def counted(count: int, word: str, plural: str = "") -> str:
    """Returns a count with its word.

    >>> counted(1, "window"), counted(1200, "window"), counted(2, "series", "series")
    ('1 window', '1,200 windows', '2 series')
    """
    return f"{count:,} {word if count == 1 else plural or word + 's'}"
