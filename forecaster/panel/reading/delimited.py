"""A delimited text file at the door: what comes in are its bytes, what goes out is one typed frame.

Delimiter, line ends, encoding mark and decimal mark are found on the first lines and said aloud where
they are not the usual ones; the kind of a column is decided over the whole column. Dates stay text
(parsing them inside the reader costs four times more than one cast afterwards). A row with more or
fewer fields than the header, and bytes that are not UTF-8, are refused with their row, as is a file
without a header. Row 1 is the first row after the header.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection
from pathlib import Path
from typing import Any

import polars as pl

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.clock.stamps import first_values, guess_formats
from forecaster.panel.findings import Finding
from forecaster.panel.reading.csv_faults import refuse_encoding, refuse_uneven
from forecaster.panel.reading.dialect import Dialect, expected_delimiter, find_dialect
from forecaster.panel.reading.numerals import (
    PADDED,
    as_numbers,
    decimal_comma,
    looks_like_thousands,
)
from forecaster.panel.reading.table import refuse_repeats

_HEAD = 1 << 18
# No name in a file begins so.
UNNAMED = "\0"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_delimited(
    content: Path | bytes, name: str, data: DataConfig, text: Collection[str] = ()
) -> tuple[pl.DataFrame, list[Finding]]:
    """Returns the rows of a delimited file, and what is worth telling of how it is written.

    Args:
        content: a plain file, or the bytes of one.
        name: of the file, for messages.
        data: delimiter and decimal mark where they are declared; in layout "rows" rows may be short.
        text: columns that stay text as written.

    Raises:
        DataError: there is no header, rows are uneven, bytes are not UTF-8, or a number is ambiguous.
    """
    notes = []
    head = first_bytes(content, _HEAD)
    if head.startswith(_UTF16):
        content = _from_utf16(content, name)
        head = content[:_HEAD]
        notes.append(Finding("note", "encoding", "UTF-16 text", "UTF-8 is read in half the memory"))
    lines = _text(head, content, name)
    dialect = find_dialect(lines, whole=len(head) < _HEAD, name=name, data=data)
    if dialect.separator != expected_delimiter(name) and data.delimiter is None:
        said = f"fields are parted by '{dialect.separator}'".replace("\t", "tab")
        notes.append(Finding("note", "delimiter", said, "pass --delimiter where that is wrong"))
    frame, more = _read(content, name, dialect, data, set(text))
    frame, blank = _without_blank_end(frame)
    if frame.width > 1 and frame.height and frame[:, -1].null_count() and data.layout != "rows":
        refuse_uneven(content, name, dialect)
    frame, named = _with_names(frame)
    return frame, [*notes, *more, *blank, *named]


def first_bytes(content: Path | bytes, count: int) -> bytes:
    """Returns the first bytes of a file, `count` at most."""
    if isinstance(content, bytes):
        return content[:count]
    with content.open("rb") as file:
        return file.read(count)


def _read(
    content: Path | bytes, name: str, dialect: Dialect, data: DataConfig, text: set[str]
) -> tuple[pl.DataFrame, list[Finding]]:
    options: dict[str, Any] = dialect.options
    own = pl.read_csv(content, n_rows=0, infer_schema=False, **options).columns
    names = header_names(dialect, len(own), name)
    samples = dict(zip(names, dialect.sample, strict=False))
    keep = {column for column in names if column in text}
    digits = {column for column, sample in samples.items() if may_be_padded(sample)}
    kinds = {old: pl.String for old, new in zip(own, names, strict=True) if new in keep | digits}
    try:
        frame = pl.read_csv(content, infer_schema_length=1000, schema_overrides=kinds, **options)
    except pl.exceptions.ComputeError:
        # A faulty row or byte; or the first rows misled, as a whole number with a fraction far below.
        refuse_encoding(content, name, dialect.separator)
        refuse_uneven(content, name, dialect, short_too=False)
        frame = pl.read_csv(content, infer_schema=False, **options)
    frame.columns = names
    floats = [column.name for column in frame if column.dtype.is_float()]
    typed, notes = _typed(
        frame, keep, data.decimal, "," if dialect.comma else "." if floats else "", name
    )
    if dialect.comma and floats and data.decimal is None:
        notes.insert(0, decimal_comma(floats[0]))
    elif floats and any(note.rule == "decimal" for note in notes):
        # A comma far below the first rows: whether points part thousands is asked again of all columns.
        frame = pl.read_csv(content, infer_schema=False, **options)
        frame.columns = names
        typed, notes = _typed(frame, keep, data.decimal, "", name)
    if not dialect.comma and data.decimal is None:
        notes += [
            _maybe_thousands(column)
            for column, sample in samples.items()
            if looks_like_thousands(sample)
        ]
    spaced = [c.name for c in typed if c.dtype == pl.String and _begins_blank(c)]
    return typed.with_columns(pl.col(spaced).str.strip_chars()), notes


def _typed(
    frame: pl.DataFrame, keep: set[str], decimal: str | None, seen: str, name: str
) -> tuple[pl.DataFrame, list[Finding]]:
    texts = [column for column in frame if column.dtype == pl.String and column.name not in keep]
    typed, notes = as_numbers(pl.DataFrame(texts), decimal, seen, name)
    return frame.with_columns(typed.iter_columns()), notes


def may_be_padded(sample: pl.Series) -> bool:
    """Whether digits may be ids such as 007: they have one width, or one begins with a zero."""
    values = sample.drop_nulls()
    if not len(values) or not values.str.contains(r"^\d{2,}$|^\d$").all():
        return False
    widths = values.str.len_bytes()
    return bool(values.str.contains(PADDED).any() or (widths[0] > 1 and widths.n_unique() == 1))


def _begins_blank(column: pl.Series) -> bool:
    head = first_values(column)
    return len(head) > 0 and bool(head.str.starts_with(" ").all())


def _maybe_thousands(name: str) -> Finding:
    said = f"column '{name}': numbers such as 1.234 beside 999 are read as fractions"
    return Finding("warning", "thousands", said, "pass --decimal , where the point parts thousands")


def _text(head: bytes, content: Path | bytes, name: str) -> str:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    try:
        # A character cut off at the end of the first bytes is not a fault.
        text = decoder.decode(head, final=len(head) < _HEAD)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        if "\0" not in head.decode("latin1"):
            refuse_encoding(content, name, ",")
        raise DataError(
            f"{name}: cannot be read (found zero bytes: not text, or not UTF-8); expected CSV, "
            "Parquet or Arrow"
        )
    return text


def _from_utf16(content: Path | bytes, name: str) -> bytes:
    raw = content if isinstance(content, bytes) else content.read_bytes()
    try:
        return raw.decode("utf-16").encode()
    except UnicodeError as error:
        raise DataError(f"{name}: begins as UTF-16 text, but {error}; save it as UTF-8") from error


def _without_blank_end(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
    if not frame.height or any(value is not None for value in frame.row(-1)):
        return frame, []
    filled = frame.select(pl.any_horizontal(pl.all().is_not_null())).to_series().arg_true()
    end = int(filled[-1]) + 1 if len(filled) else 0
    said = f"empty rows at the end are passed over ({frame.height - end})"
    return frame.head(end), [Finding("note", "rows", said, "delete them", count=frame.height - end)]


def header_names(dialect: Dialect, width: int, where: str) -> list[str]:
    """Returns the header without stray blanks; a column without a name is called by its number."""
    header = [name.strip() for name in dialect.header]
    refuse_repeats([name for name in header if name], where)
    if len(header) != width:
        raise DataError(f"{where}: cannot be read (a header of {len(header)} names, {width} columns)")
    return [name or f"{UNNAMED}{k}" for k, name in enumerate(header)]


def _with_names(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
    """Returns the frame with a name for columns that have none; where they hold nothing, they go."""
    names = frame.columns
    notes = []
    for unnamed in [name for name in names if name.startswith(UNNAMED)]:
        column, k = frame[unnamed], int(unnamed.removeprefix(UNNAMED))
        if column.null_count() == len(column):
            what, new = "is empty and passed over", None
        elif column.dtype.is_integer() and _counts_rows(column):
            what, new = "numbers the rows and is passed over", None
        else:
            dated = column.dtype == pl.String and bool(guess_formats(column)) and "time" not in names
            new = "time" if dated else f"column_{k + 1}"
            what = f"is called '{new}'"
            names.append(new)
        frame = frame.drop(column.name) if new is None else frame.rename({column.name: new})
        said = f"column {k + 1} has no name and {what}"
        notes.append(Finding("note", "columns", said, "name it in the header"))
    return frame, notes


def _counts_rows(column: pl.Series) -> bool:
    start = column[0]
    return start in (0, 1) and column.equals(pl.int_range(start, start + len(column), eager=True))
