"""A delimited text file at the door: what comes in are its bytes, what goes out is one typed frame.

Delimiter, line ends, encoding mark and decimal mark are found on the first lines and said aloud where
they are not the usual ones; the kind of a column is decided over the whole column. Dates stay text
(parsing them inside the reader costs four times more than one cast afterwards). A row with more or
fewer fields than the header, and bytes that are not UTF-8, are refused with their row, as is a file
without a header. Row 1 is the first row after the header.


How a delimited text file is written: what comes in is its beginning, what goes out is a `Dialect`.

The delimiter is the one that parts the first rows most evenly, quotes respected; of two that do so
equally, the one that leaves plain numbers and dates.


Why a delimited file cannot be read: which row, which byte, how many fields.

What comes in are the bytes of a file that a fast reader refused or that may have short rows; what goes
out is one clear `DataError`. Rows are counted by quotes, delimiters and line ends alone, vectorised,
so that a fault in row five million is found in about the time of a read.
"""

from __future__ import annotations

import codecs
import csv
import io
import mmap
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import polars as pl
from numpy.typing import NDArray

from forecaster.config import DataConfig
from forecaster.errors import ConfigError, DataError
from forecaster.panel.findings import Finding, fault
from forecaster.panel.numbers import (
    PADDED,
    as_numbers,
    decimal_comma,
    decimal_marks,
    looks_like_thousands,
)
from forecaster.panel.table import refuse_repeats
from forecaster.panel.timestamps import SAMPLE, first_values, guess_formats

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


_BLOCK = 1 << 20


def field_counts(
    content: Path | bytes, separator: str, eol: str = "\n", end: int | None = None
) -> tuple[NDArray[np.int64], bool]:
    """Returns the number of fields of every line, the header among them, and whether quotes are closed.

    Delimiters and line ends between quotes are text. A blank line has 0 fields. Bytes from `end` on
    are not looked at.
    """
    counts, lengths = [], []
    inside, pending, length, last = False, 0, 0, 0
    for block in _blocks(content, end):
        quotes = block == ord('"')
        ends, separators = block == ord(eol), block == ord(separator)
        if inside or quotes.any():
            within = np.logical_xor.accumulate(quotes) ^ inside
            inside = bool(within[-1])
            ends &= ~within
            separators &= ~within
        at, marks = np.flatnonzero(ends), np.flatnonzero(separators)
        if len(at):
            before = np.searchsorted(marks, at)
            counts.append(np.diff(before, prepend=-pending))
            sizes = np.diff(at, prepend=-1 - length) - 1
            # A carriage return is part of the line end, not of the line.
            returned = np.where(at > 0, block[at - 1], last) == ord("\r")
            lengths.append(sizes - (returned & (sizes > 0)) if eol == "\n" else sizes)
            pending, length = len(marks) - int(before[-1]), len(block) - 1 - int(at[-1])
        else:
            pending, length = pending + len(marks), length + len(block)
        last = int(block[-1])
    if length:
        counts.append(np.array([pending]))
        lengths.append(np.array([length]))
    if not counts:
        return np.zeros(0, np.int64), not inside
    sizes = np.concatenate(lengths)
    return np.where(sizes > 0, np.concatenate(counts) + 1, 0), not inside


def refuse_uneven(
    content: Path | bytes, name: str, dialect: Dialect, *, short_too: bool = True
) -> None:
    """Does nothing where every row has the header's number of fields; blank lines aside.

    Args:
        content: file or bytes.
        name: for the message.
        dialect: delimiter, line end, and lines before the header.
        short_too: whether rows with fewer fields are a fault.

    Raises:
        DataError: naming the first such row, or the row where a quote opens and never closes.
    """
    if short_too and _is_even(content, dialect):
        return
    counts, closed = field_counts(content, dialect.separator, dialect.eol)
    counts = counts[dialect.skipped :]
    counts = counts[np.argmax(counts > 0) :] if len(counts) else counts
    if not closed:
        raise fault(
            "quotes",
            f"{name}: a quote sign opens in row {len(counts) - 1} or before and is never closed",
            'close it, or write a quote sign within text twice, as ""',
        )
    width = counts[0] if len(counts) else 0
    odd = (counts > width) | (short_too & (counts < width) & (counts > 0))
    if odd.any():
        row = int(np.argmax(odd))
        raise fault(
            "fields",
            f"{name}: expected {width} fields as in the header, found {counts[row]} in row {row} "
            f"({int(odd.sum())} such rows)",
            "mend the row, put quotes around text that holds the delimiter, or say --delimiter",
            where=f"row {row}",
            count=int(odd.sum()),
        )


def _is_even(content: Path | bytes, dialect: Dialect) -> bool:
    """Whether counting alone shows as many delimiters as the header's for every line: no quotes, say.

    Called after a reader that takes no row longer than the header, so that a short one would show.
    """
    if dialect.skipped:
        return False
    separators = lines = last = 0
    for block in _blocks(content):
        if (block == ord('"')).any():
            return False
        separators += int(np.count_nonzero(block == ord(dialect.separator)))
        lines += int(np.count_nonzero(block == ord(dialect.eol)))
        last = int(block[-1])
    lines += last != ord(dialect.eol)
    return separators == lines * (len(dialect.header) - 1)


def refuse_encoding(content: Path | bytes, name: str, separator: str) -> None:
    """Does nothing where the bytes are UTF-8.

    Raises:
        DataError: naming the first byte that is not, its row, and the command that converts the file.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    done = 0
    for block in _blocks(content):
        held = len(decoder.getstate()[0])
        try:
            decoder.decode(block.tobytes())
        except UnicodeDecodeError as error:
            at, byte = done - held + error.start, error.object[error.start]
            _refuse_byte(content, name, separator, at, byte)
        done += len(block)


def _refuse_byte(content: Path | bytes, name: str, separator: str, at: int, byte: int) -> NoReturn:
    row = len(field_counts(content, separator, end=at + 1)[0]) - 1
    # Windows writes letters where Latin-1 has control signs.
    page = "cp1252" if 0x80 <= byte < 0xA0 else "latin1"
    where = f"row {row}" if row else "the header"
    raise fault(
        "encoding",
        f"{name}: expected UTF-8, found the byte 0x{byte:02x} in {where} (byte {at} of the file)",
        f"save it as UTF-8, as with iconv -f {page} -t utf8 {name} > new.csv",
        where=where,
    )


def _blocks(content: Path | bytes, end: int | None = None) -> list[NDArray[np.uint8]]:
    data: bytes | mmap.mmap = b""
    if isinstance(content, bytes):
        data = content
    elif content.stat().st_size:
        with content.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    whole = np.frombuffer(data, np.uint8)[:end]
    return [whole[start : start + _BLOCK] for start in range(0, len(whole), _BLOCK)]
