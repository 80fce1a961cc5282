"""How a delimited text file is written: what comes in is its beginning, what goes out is a `Dialect`.

The delimiter is the one that parts the first rows most evenly, quotes respected; of two that do so
equally, the one that leaves plain numbers and dates.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from typing import Any

import polars as pl

from forecaster.config import DataConfig
from forecaster.errors import ConfigError, DataError
from forecaster.panel.clock.stamps import SAMPLE, guess_formats
from forecaster.panel.reading.numerals import decimal_marks

_DELIMITERS = (",", ";", "\t", "|")
_VALUE = re.compile(r"^ *[\d.,:/+\-'TZ ]*\d[\d.,:/+\-'TZ ]*(?:[eE][+-]?\d+)? *$")


@dataclass(frozen=True)
class Dialect:
    """How a delimited file is written."""

    separator: str
    """Character between fields."""
    eol: str
    """Last character of a line."""
    skipped: int
    """Lines before the header."""
    comma: bool
    """Whether numbers have a decimal comma."""
    header: tuple[str, ...]
    """Names as written."""
    sample: pl.DataFrame
    """The first rows as text, columns numbered."""

    @property
    def options(self) -> dict[str, Any]:
        """The dialect in the words of `polars.read_csv` and `polars.scan_csv`."""
        return {
            "separator": self.separator,
            "eol_char": self.eol,
            "skip_lines": self.skipped,
            "decimal_comma": self.comma,
            "glob": False,
        }


def find_dialect(lines: str, *, whole: bool, name: str, data: DataConfig) -> Dialect:
    """Returns how a file is written.

    Args:
        lines: its beginning.
        whole: whether that is all of it.
        name: of the file, for messages.
        data: delimiter and decimal mark where they are declared.

    Raises:
        DataError: it is empty or has no header.
        ConfigError: the declared delimiter is not one character.
    """
    eol = "\r" if "\r" in lines and "\n" not in lines else "\n"
    told = re.match(r"sep=(.)\r?\n", lines)
    if told:
        lines = lines[told.end() :]
    candidates: tuple[str, ...] = _DELIMITERS
    if data.delimiter is not None:
        candidates = ("\t" if data.delimiter.lower() in ("tab", "\\t") else data.delimiter,)
        if len(candidates[0]) != 1 or not candidates[0].isascii() or candidates[0] in '"\r\n':
            raise ConfigError(f"delimiter '{data.delimiter}': expected one character, as ; or tab")
    elif told:
        candidates = (told[1],)
    parsed = {mark: _rows(lines, mark, whole) for mark in candidates}
    separator = max(candidates, key=lambda mark: _fitness(parsed[mark]))
    rows = parsed[separator]
    if not rows:
        raise DataError(f"{name}: expected a header and rows, found an empty file")
    width = len(rows[0])
    cells = [(row + [""] * width)[:width] for row in rows[1:]]
    sample = pl.DataFrame(
        [pl.Series(str(k), [row[k] or None for row in cells], pl.String) for k in range(width)]
    )
    _require_header(rows[0], sample, name)
    comma = data.decimal == "," or (data.decimal is None and decimal_marks(sample) == {","})
    return Dialect(separator, eol, 1 if told else 0, comma, tuple(rows[0]), sample)


def expected_delimiter(name: str) -> str:
    """Returns the delimiter that the name of a file promises."""
    return "\t" if re.search(r"\.(tsv|tab)(\.\w+)?$", name.lower()) else ","


def _rows(lines: str, mark: str, whole: bool) -> list[list[str]]:
    """Returns the first rows that hold anything, the header among them."""
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(lines, newline=""), delimiter=mark):
            if row:
                rows.append(row)
            if len(rows) > SAMPLE + 1:
                return rows[:-1]
    except csv.Error:
        # A field larger than any: the reader proper says why.
        return rows
    return rows if whole else rows[:-1] or rows


def _fitness(rows: list[list[str]]) -> tuple[float, float, int]:
    """Returns how well a delimiter explains the first rows: even rows, then plain cells, then many."""
    width = len(rows[0]) if rows else 0
    if width < 2:
        return 0.0, 0.0, 0
    cells = [cell for row in rows[1:] for cell in row]
    even = sum(len(row) == width for row in rows) / len(rows)
    plain = sum(not cell or _VALUE.match(cell) is not None for cell in cells) / max(len(cells), 1)
    return even, plain, width


def _require_header(header: list[str], sample: pl.DataFrame, name: str) -> None:
    values = all(_VALUE.match(cell) for cell in header)
    dates = [guess_formats(pl.Series([cell])) != [] for cell in header]
    dated = any(date and guess_formats(sample[:, k]) for k, date in enumerate(dates) if date)
    if sample.height and (values or dated):
        raise DataError(
            f"{name}: expected a header, found values in the first row ({', '.join(header[:3])}, ...); "
            "add a first line with the names of the columns"
        )
