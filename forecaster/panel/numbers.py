"""Parsing numbers, decided over whole columns: `1.5`, `1,5`, `1.234,5`, `1,234.5`, `1 234,5`.

A column of text becomes numbers where every value is one and all can be read in one way only. A column
in which `1,234` may be a fraction or a thousand is refused unless the other columns or the user show
which mark is the decimal one. Digits with leading zeros may be ids and stay text until their column has a
role. The marks in `MISSING` are nulls only among numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from forecaster.panel.findings import Finding, fault, row_fault
from forecaster.panel.timestamps import first_values

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "None", "-", "?", ".")
PADDED = r"^0[0-9]+$"
"""A digit string that a number would not give back: the id 007."""
_FEW = 0.2
"""Largest share of cells that are no numbers in a column that was meant to be numbers."""


@dataclass(frozen=True)
class Decimals:
    """Decimal marks that are known before a table is read."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """By column; values that contradict them are refused."""
    others: str | None = None
    """Of all other columns; none = as they show."""
    origin: str = ""
    """What has these marks, for messages; empty = they are declared."""
    advice: str = ""
    """What to do about others, for messages; empty = the option."""
    seen: Collection[str] = ()
    """Marks of further columns and files: they decide between two readings, and refuse none."""
    undecided: bool = False
    """Whether columns that can be read in two ways stay text, for other files may show their mark."""
    padded: Collection[str] = ()
    """Columns whose digits are numbers with leading zeros too; in others 007 is an id."""

    @property
    def all(self) -> set[str]:
        """All marks."""
        return {*self.columns.values(), *self.seen, self.others or ""} - {""}


class Parsed(NamedTuple):
    """Columns with text parsed."""

    frame: pl.DataFrame
    marks: dict[str, str]
    """Decimal marks of the columns that show one."""
    notes: list[Finding]
    """On how they are written."""


@dataclass(frozen=True)
class _Style:
    """A way of writing numbers."""

    decimal: str
    """Mark before the fraction."""
    group: str = ""
    """Marks between thousands, one of them; empty where there are none."""

    def fits(self, text: pl.Series) -> pl.Series:
        """Returns whether values are written so, one by one; nulls stay null."""
        if not self.group and self.decimal == ".":
            return text.cast(pl.Float64, strict=False).is_not_null() | text.is_null()
        mark = r"\." if self.decimal == "." else ","
        # Not \d, which is the digits of every script: what this finds, a cast has to read.
        whole = "[0-9]+"
        if self.group:
            whole = rf"[1-9][0-9]{{0,2}}(?:[{self.group}][0-9]{{3}})+|[0-9]{{1,3}}"
        end = "" if self.group else r"(?:[eE][+-]?[0-9]+)?"
        return text.str.contains(rf"^[+-]?(?:(?:{whole})(?:{mark}[0-9]*)?|{mark}[0-9]+){end}$")

    def numbers(self, text: pl.Series) -> pl.Series:
        """Returns values that fit as floats."""
        if self.group:
            text = text.str.replace_all(f"[{self.group}]", "")
        if self.decimal == ",":
            text = text.str.replace(",", ".", literal=True)
        return text.cast(pl.Float64, strict=False)


_POINT = _Style(".")
_SPACES = " '\u00a0\u202f"
_STYLES = (
    _POINT,
    _Style(","),
    _Style(",", "."),
    _Style(".", ","),
    _Style(",", _SPACES),
    _Style(".", _SPACES),
)


def decimal_marks(columns: Iterable[pl.Series]) -> set[str]:
    """Returns the decimal marks that columns of text show; none for values readable either way."""
    return _shown(_styles(column) for column in columns)


def looks_like_thousands(column: pl.Series) -> bool:
    """Whether a point may group thousands in what reads as fractions: 1.234 beside 999."""
    text = known_text(first_values(column)).drop_nulls()
    dotted = text.str.contains(r"^[+-]?[1-9][0-9]{0,2}\.[0-9]{3}$")
    return bool(
        dotted.any() and not dotted.all() and (dotted | text.str.contains(r"^[0-9]{1,3}$")).all()
    )


def as_ids(column: pl.Series, typed: pl.Series | None = None) -> pl.Series:
    """Returns ids of a file: typed where they are written just so, else the text.

    Args:
        column: the text.
        typed: what it was read as; None = whole numbers or booleans, where it is all such.
    """
    text = column.str.strip_chars()
    typed = _simple(text) if typed is None else typed
    if typed is None or (typed.cast(pl.String) == text).all():
        return column if typed is None else typed
    return column.set(typed.is_null(), None)


def as_numbers(
    frame: pl.DataFrame, decimals: Decimals, where: str, place: Callable[[int], str] = "row {}".format
) -> Parsed:
    """Returns columns of text as numbers or booleans where all values are.

    Args:
        decimals: marks that are known.
        where: the file, for messages.
        place: returns a row, counted from 1, as messages name it.

    Raises:
        DataError: a column of numbers can be read in two ways, or has another mark than the known one.
    """
    typed, styles = {}, {}
    for column in frame:
        simple = _simple(column, ids=column.name not in decimals.padded)
        if simple is not None:
            typed[column.name] = simple
        elif found := _styles(column):
            styles[column.name] = found
    seen = {*decimals.seen, *_shown(styles.values())}
    marks, notes = {}, []
    for name, found in styles.items():
        named, text = f"{where}: column '{name}'", known_text(frame[name])
        if decimal := decimals.columns.get(name) or decimals.others:
            fitting = [style for style in found if style.decimal == decimal]
            if not fitting:
                bad = misfits(frame[name], decimal)
                expected = f"'{decimal}' as decimal mark{decimals.origin}"
                option = "--decimal ." if decimal == "," else "--decimal ,"
                advice = decimals.advice or f"correct the values, or pass {option}"
                raise row_fault("decimal", named, expected, frame[name], bad, advice, place)
        elif _POINT in found and "," not in seen:
            fitting = [_POINT]
        else:
            fitting = [style for style in found if {style.decimal} == seen] or found
        first, *others = [style.numbers(text) for style in fitting]
        others = [other for other in others if not first.equals(other)]
        if others and decimals.undecided:
            continue
        if others:
            row = int((first != others[0]).arg_true()[0])
            at, either = place(row + 1), f"{first[row]:g} or {others[0][row]:g}"
            shown = f"{named}: '{text[row]}' in {at} may be {either}"
            raise fault("decimal", shown, "pass --decimal , or --decimal .", where=at)
        typed[name] = first
        if len({style.decimal for style in fitting}) == 1:
            marks[name] = fitting[0].decimal
        if marks.get(name) == ",":
            notes.append(decimal_comma(name))
        if group := fitting[0].group:
            mark = text.str.extract(f"([{group}])").drop_nulls()[0]
            shown = f"column '{name}': thousands are grouped by '{mark}'"
            notes.append(Finding("note", "thousands", shown, "pass --decimal where that is wrong"))
    return Parsed(frame.with_columns(**typed), marks, notes)


def decimal_comma(name: str) -> Finding:
    """Returns the note that a file's numbers are written with a decimal comma."""
    advice = "pass --decimal . where that is wrong"
    return Finding("note", "decimal", "numbers have a decimal comma", advice, where=f"column '{name}'")


def misfits(column: pl.Series, decimal: str = "") -> pl.Series:
    """Returns which cells of text are no numbers, in the style of most; `decimal`: their mark, if known."""
    text = known_text(column)
    bad = [~style.fits(text) for style in _STYLES if decimal in ("", style.decimal)]
    return min(bad, key=lambda cells: int(cells.sum())).fill_null(False)


def nearly_numbers(column: pl.Series) -> pl.Series | None:
    """Returns the cells that keep a column of text from being numbers, where they are few; else None."""
    if column.dtype != pl.String:
        return None
    for part, share in ((first_values(column), 0.5), (column, _FEW)):  # a few values rule out most text
        bad = misfits(part)
        if bad.sum() > share * known_text(part).count():
            return None
    return bad if bad.any() else None


def _shown(styles: Iterable[list[_Style]]) -> set[str]:
    kinds = [{style.decimal for style in found} for found in styles]
    return {mark for marks in kinds if len(marks) == 1 for mark in marks}


def known_text(column: pl.Series) -> pl.Series:
    """Returns text without surrounding blanks; null where it is a mark of a missing value."""
    text = column.str.strip_chars()
    return text.set(text.is_in(MISSING), None)


def _simple(column: pl.Series, *, ids: bool = True) -> pl.Series | None:
    """Returns whole numbers and booleans, or `ids` with leading zeros unchanged; else None."""
    head = known_text(first_values(column))
    if head.str.contains(r"^[+-]?[0-9]+$").all():
        text = known_text(column)
        whole = text.cast(pl.Int64, strict=False)
        if len(text) > text.null_count() == whole.null_count():
            padded = text.str.starts_with("0") & (text.str.len_bytes() > 1)
            return column if ids and padded.any() else whole
        if whole.null_count() > text.null_count() and text.str.contains(r"^[+-]?[0-9]+$").all():
            return column  # numbers that no int64 holds
    if head.is_in(["true", "false"]).all():
        text = known_text(column)
        if len(text) > text.null_count() and text.is_in(["true", "false"]).all():
            return text == "true"
    return None


def _styles(column: pl.Series) -> list[_Style]:
    """Returns the styles in which every value is a number; none where one is not."""
    # A few values rule out most text; only the rest is read whole.
    head = known_text(first_values(column))
    found = [style for style in _STYLES if style.fits(head).all()]
    if not found:
        return []
    text = known_text(column)
    if text.null_count() == len(text):
        return []
    return [style for style in found if style.fits(text).all()]
