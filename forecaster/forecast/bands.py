"""Levels asked for at predict time: the columns of quantiles, and which of them no fit has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from forecaster.errors import ConfigError

Columns = tuple[tuple[str, float], ...]
"""Name and quantile level of each column, in their order."""
Levels = float | Sequence[float] | None

_FAR = 0.025
"""A quantile with so much beyond it, or less, is an end of a band of 95 % or more."""
UNSCALED = ", uncalibrated from 95 % on"
"""Ends the status of a forecast whose bands reach beyond the fitted ones without residuals to scale them."""


def asked_columns(levels: Levels, quantiles: Levels, fitted: Sequence[float]) -> Columns:
    """Returns the columns of central bands and of quantiles; of fitted levels where no bands are asked for.

    Args:
        levels: of bands, percent: 80 has the columns lo-80 and hi-80.
        quantiles: levels of further quantiles, between 0 and 1: 0.05 has the column q0.05.
        fitted: levels of the model.

    Raises:
        ConfigError: a level is out of range, given twice, or the model has the median alone.
    """
    bands, points = check_levels(levels, quantiles)
    if (bands or points) and len(fitted) == 1:
        raise ConfigError(
            "levels, quantiles: this model forecasts the median alone, there is no band; fit one with "
            "--set model.quantile_levels=[0.1,0.5,0.9]"
        )
    # Rounded: (100 + 99.9) / 200 is a hair from .9995.
    ends = [
        (f"{side}-{band:g}", round((100 + sign * band) / 200, 12))
        for band in bands
        for side, sign in (("lo", -1), ("hi", 1))
    ]
    if not bands:
        # Two levels with one name are one column: that of the fitted level.
        points = sorted({f"{level:g}": level for level in (*points, *fitted)}.values())
    return (*ends, *quantile_columns(points))


def check_levels(levels: Levels, quantiles: Levels) -> tuple[list[float], list[float]]:
    """Returns levels of bands and of quantiles as lists; raises as `asked_columns`."""
    return _checked("levels", levels, 100), _checked("quantiles", quantiles, 1)


def quantile_columns(levels: Iterable[float]) -> Columns:
    """Returns the columns of quantiles by their levels."""
    return tuple((f"q{level:g}", level) for level in levels)


def asked_bands(columns: Columns) -> list[str]:
    """Returns the bands among columns, in percent as they are written: 80 of lo-80 and hi-80."""
    return [name.removeprefix("lo-") for name, _ in columns if name.startswith("lo-")]


def further_levels(columns: Columns, fitted: Collection[float]) -> tuple[float, ...]:
    """Returns the levels of columns, each once, that are not fitted."""
    return tuple(dict.fromkeys(level for _, level in columns if level not in fitted))


def is_far(levels: Iterable[float], fitted: Sequence[float]) -> bool:
    """Returns whether a level is an end of a band of 95 % or more, beyond the outermost fitted ones."""
    return any(
        min(level, 1 - level) < _FAR + 1e-9 and not fitted[0] <= level <= fitted[-1] for level in levels
    )


def _checked(name: str, given: Levels, most: int) -> list[float]:
    found = [] if given is None else [*given] if isinstance(given, Sequence) else [given]
    for level in found:
        # As its column is called: .9999999 would be q1.
        if not (isinstance(level, int | float) and 0 < float(f"{level:g}") < most):
            shown = level if isinstance(level, str) else f"{level:g}"
            raise ConfigError(
                f"{name} {shown}: expected numbers above 0 and below {most} in six digits"
            )
    texts = [f"{level:g}" for level in found]
    for text, count in Counter(texts).items():
        if count > 1:
            raise ConfigError(
                f"{name} {', '.join(texts)}: {text} is given {count} times; keep one, of at most six digits"
            )
    return found
