"""Known covariates after the cutoff: filled where they are missing, changed for a what-if, listed to be filled in.

Axes: N series · L lead.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from forecaster.errors import ConfigError
from forecaster.panel.arrays import Array, Bools, Ints
from forecaster.panel.panel import MISSING, Panel
from forecaster.panel.schema import Names, Schema

_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda values, amount: np.full_like(values, amount),
    "*": operator.mul,
    "+": operator.add,
    "-": operator.sub,
    "/": operator.truediv,
}
_ASSIGNED = re.compile(r"\s*([^=]+?)\s*(=)\s*(.*?)\s*")
_COMPUTED = re.compile(r"\s*(.+?)\s*([*+/-])\s*([+-]?[\d.]+(?:e[+-]?\d+)?)\s*", re.IGNORECASE)
_GRAMMAR = "COLUMN=VALUE, COLUMN*NUMBER, COLUMN+NUMBER, COLUMN-NUMBER or COLUMN/NUMBER"


@dataclass(frozen=True)
class Change:
    """What becomes of a known covariate after the cutoff."""

    column: str
    """Of the table."""
    sign: str
    """One of = * + - /; "" = a function."""
    amount: Any
    """Text of a number, or of a category; or the function, of the values [L] of a series."""

    def __str__(self) -> str:
        return f"{self.column}{self.sign}{self.amount}" if self.sign else f"{self.column}: a function"

    @property
    def number(self) -> float:
        """The amount; raises a ConfigError where it is none."""
        try:
            if math.isfinite(number := float(self.amount)):
                return number
        except ValueError:
            pass
        raise ConfigError(f"--what-if {self}: expected a finite number, found {self.amount!r}")

    def check(self, schema: Schema) -> None:
        """Raises a ConfigError for a column that is no known covariate, or a value that it cannot have."""
        known = schema.as_read.known_and_holidays
        if self.column not in known:
            raise ConfigError(
                f"--what-if {self}: expected a covariate known in advance "
                f"({', '.join(known) or 'there is none; declare it with --known'}), found {self.column!r}"
            )
        first = columns_of(schema, self.column)[0]
        words = schema.categories.get(first, ())
        if self.sign and first not in schema.categorical:
            _ = self.number
        elif self.sign and (self.sign != "=" or self.amount not in words):
            raise ConfigError(
                f"--what-if {self}: {self.column} is a category; expected {self.column}=WORD with one of "
                f"{', '.join(words)}"
            )

    def of(self, values: Array) -> Array:
        """Returns other numbers, or words, in the place of some."""
        if self.sign:
            amount = self.amount if values.dtype == object else self.number
            return _SIGNS[self.sign](values, amount)
        found = np.asarray(self.amount(values.copy()))
        kind = "words" if values.dtype == object else "numbers"
        try:
            found = np.broadcast_to(found.astype(values.dtype), values.shape)
        except ValueError:
            raise ConfigError(
                f"--what-if {self}: expected {values.size} {kind}, found {found!r} of shape {found.shape}"
            ) from None
        if kind == "numbers" and not (np.isfinite(found) | np.isnan(values)).all():
            raise ConfigError(f"--what-if {self}: expected finite numbers from it, found {found}")
        return found


def changes_of(given: str | Sequence[str] | Mapping[str, Any] | None) -> tuple[Change, ...]:
    """Returns changes in their order.

    Args:
        given: as COLUMN*0.9; or by column a number, a category, or a function of an array.

    Raises:
        ConfigError: one cannot be understood, or divides by 0.
    """
    if isinstance(given, Mapping):
        found = [
            Change(name, "", to) if callable(to) else Change(name, "=", str(to))
            for name, to in given.items()
        ]
    else:
        found = [_parsed(text) for text in ([given] if isinstance(given, str) else given or ())]
    if not found:
        raise ConfigError(f"--what-if: expected {_GRAMMAR}, found nothing")
    return tuple(found)


def _parsed(text: str) -> Change:
    match = _ASSIGNED.fullmatch(text) or _COMPUTED.fullmatch(text)
    if match is None:
        raise ConfigError(f"--what-if {text}: expected {_GRAMMAR}")
    change = Change(*match.groups())
    if change.sign == "/" and change.number == 0:
        raise ConfigError(f"--what-if {text}: divides by 0; expected another number")
    return change


def columns_of(schema: Schema, name: str) -> Names:
    """Returns the columns of a panel that a known covariate of the table became: one, or one per channel."""
    return (name,) if schema.pivot is None else schema.pivot.covariates.get(name, (name,))


def changed(panel: Panel, rows: Ints, changes: Sequence[Change]) -> Panel:
    """Returns the panel with other known covariates in rows [N, L]; -1 = no row.

    Raises:
        ConfigError: a function returns what is no number, or no category.
    """
    panel = replace(panel, values=panel.values.copy(), codes=panel.codes.copy())
    for change in changes:
        # A function sees the leads of one series.
        parts = rows.reshape(1, -1) if change.sign else rows
        for name, part in product(columns_of(panel.schema, change.column), parts):
            own = part[part >= 0]
            cells, column = _cells(panel, name)
            if name in panel.schema.categorical:
                words = change.of(_words(panel, name)[cells[own, column] - 1])
                cells[own, column] = _codes(panel, name, words, change)
            else:
                cells[own, column] = change.of(cells[own, column])
    return panel


def _codes(panel: Panel, name: str, words: Array, change: Change) -> list[int]:
    """Returns the code of each word of a category; none = missing."""
    code = {word: number for number, word in enumerate(panel.schema.categories[name], start=1)}
    unknown = sorted({str(word) for word in words if word is not None} - {*code})
    if unknown:
        raise ConfigError(
            f"--what-if {change}: expected words of {', '.join(code)}, found {', '.join(unknown)}"
        )
    return [MISSING if word is None else code[str(word)] for word in words]


def filled(panel: Panel, rows: Ints, cutoff: Ints, how: str) -> Panel:
    """Returns the panel with values of the history where a known covariate has none in rows [N, L].

    Args:
        panel: with these rows.
        rows: after the cutoff; -1 = no row.
        cutoff: [N] row of the last step that may be seen; the one before the first = none.
        how: last = the last value, mean = the mean or the most frequent category, seasonal = the value some
            seasons before, in the last one that has it, else the last.
    """
    season, schema = panel.calendar.season_length, panel.schema
    panel = replace(panel, values=panel.values.copy(), codes=panel.codes.copy())
    for name in (*schema.known_numeric, *schema.known_category):
        cells, column = _cells(panel, name)
        missing = _is_missing(cells[rows, column]) & (rows >= 0)
        for series in np.flatnonzero(missing.any(axis=1)):
            begin, own = panel.indptr[series], rows[series, missing[series]]
            history = cells[begin : cutoff[series] + 1, column]
            seen = np.flatnonzero(~_is_missing(history))
            if not len(seen):
                continue
            if how == "seasonal":
                alike = (begin + seen - own[:, None]) % season == 0
                place = np.where(alike, seen, -1).max(axis=1)
                cells[own, column] = history[np.where(place < 0, seen[-1], place)]
            elif how == "last":
                cells[own, column] = history[seen[-1]]
            elif cells is panel.values:
                cells[own, column] = history[seen].mean()
            else:
                cells[own, column] = np.bincount(history[seen]).argmax()
    return panel


def check_fill(panel: Panel, how: str | None) -> None:
    """Raises a ConfigError where a table has no season that values could be of."""
    if how not in (None, "last", "seasonal", "mean"):
        raise ConfigError(f"--fill-known {how}: expected last, seasonal or mean")
    if how == "seasonal" and (panel.calendar.season_length < 2 or not panel.regular):
        why = "has no season" if panel.regular else "is irregular"
        raise ConfigError(f"--fill-known seasonal: {panel.name} {why}; expected last or mean")


def future_frame(panel: Panel, rows: Ints, time: Ints) -> pl.DataFrame:
    """Returns keys, times and known covariates of leads as a table to fill in; cells that are known are there.

    Args:
        panel: with the rows of the leads.
        rows: [N, L]; -1 = no row.
        time: [N, L]
    """
    schema = panel.schema
    shape = (len(rows), panel.n_channels if schema.pivots else 1, rows.shape[1])
    series, channel, _ = np.indices(shape).reshape(3, -1)

    def cells(name: str) -> pl.Series:
        parts = [_values(panel, one, rows) for one in columns_of(schema, name)]
        values = np.broadcast_to(np.stack(parts, axis=1), shape).reshape(-1)
        return pl.Series(values.tolist(), dtype=pl.String if values.dtype == object else pl.Float64)

    columns = {name: cells(name) for name in schema.as_read.known}
    times = np.broadcast_to(time[:, None], shape).reshape(-1)
    frame = panel.frame(series, times, **columns, **({"channel": channel} if schema.pivots else {}))
    # The columns of a wide table share its covariates.
    return frame.drop(panel.keys.columns).unique(maintain_order=True) if schema.melted else frame


def by_scenario(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Returns frames of the same keys as one, the rows of a key together, with a column `scenario`."""
    parts = [frame.with_columns(scenario=pl.lit(name)) for name, frame in frames.items()]
    height, columns = parts[0].height, parts[0].columns[:-1]
    columns.insert(columns.index("forecast"), "scenario")
    order = np.arange(len(parts) * height).reshape(-1, height).T.reshape(-1)
    return pl.concat(parts).select(columns)[order]


def _values(panel: Panel, name: str, rows: Ints) -> Array:
    """Returns numbers, or words, in rows [N, L]; none where there is no row."""
    cells, column = _cells(panel, name)
    if name not in panel.schema.categorical:
        return np.where(rows < 0, np.nan, cells[rows, column])
    return _words(panel, name)[np.where(rows < 0, MISSING, cells[rows, column]) - 1]


def _words(panel: Panel, name: str) -> Array:
    """Returns the word of each code less 1; of 0 and MISSING, from the end, none."""
    return np.array([*panel.schema.categories[name], None, None], object)


def _cells(panel: Panel, name: str) -> tuple[Array, int]:
    """Returns the array that holds a column, and its place there."""
    if name in panel.schema.categorical:
        return panel.codes, panel.schema.code_columns.index(name)
    return panel.values, panel.schema.columns.index(name)


def _is_missing(cells: Array) -> Bools:
    return np.isnan(cells) if cells.dtype == np.float64 else cells == MISSING
