"""Reading delimited text: bytes become one typed frame.

Delimiter, line ends and decimal mark are recognised on the first lines, another encoding than UTF-8 where
that fails, and noted where they are unusual; the kind of a column is decided over the whole column. Dates
stay text (parsing them inside the reader costs four times more than one cast afterwards). A row with more
or fewer fields than the header and a file without a header are refused with their row. Row 1 is the first
row after the header.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from forecaster.config import DataConfig
from forecaster.errors import ConfigError, DataError
from forecaster.panel.arrays import Ints
from forecaster.panel.encodings import UTF16, WINDOWS, as_utf8, encoding_note
from forecaster.panel.findings import Finding, fault, row_fault
from forecaster.panel.numbers import (
    PADDED,
    Decimals,
    Parsed,
    as_ids,
    as_numbers,
    decimal_comma,
    decimal_marks,
    looks_like_thousands,
)
from forecaster.panel.timestamps import SAMPLE, date_names, first_values, guess_formats

_UNNAMED = " column_"
"""How the name of a column without one begins; no name in a file begins with a blank."""
_HEAD = 1 << 18
_BLOCK = 1 << 20
_DELIMITERS = (",", ";", "\t", "|")
_Read = TypeVar("_Read")
Content = Path | bytes
"""A plain file, or the bytes of one."""
_VALUE = re.compile(r"^ *[\d.,:/+\-'TZ ]*\d[\d.,:/+\-'TZ ]*(?:[eE][+-]?\d+)? *$")


@dataclass(frozen=True)
class Dialect:
    """How a delimited file is written."""

    separator: str
    eol: str
    """Last character of a line."""
    skipped: int
    """Lines before the header."""
    comments: int
    """Of these, the lines that begin with #, where nothing was declared."""
    comma: bool
    """Whether numbers have a decimal comma."""
    header: tuple[str, ...]
    """Names as written."""
    sample: pl.DataFrame
    """The first rows as text, columns numbered."""


def read_csv(content: Content, name: str, data: DataConfig, decimals: Decimals) -> Parsed:
    """Returns the rows of a delimited file.

    Args:
        content: of the file.
        name: of the file, for messages.
        data: encoding and delimiter where they are declared; in layout "rows" rows may be short.
        decimals: marks that are known.

    Raises:
        DataError: there is no header, rows are uneven, the encoding is unknown, or a number is ambiguous.
    """
    parsed, notes = _in_utf8(content, name, data, lambda utf8: _parsed(utf8, name, data, decimals))
    return parsed._replace(notes=[*notes, *parsed.notes])


def _parsed(content: Content, name: str, data: DataConfig, decimals: Decimals) -> Parsed:
    dialect, notes = _opened(content, name, data, decimals), list[Finding]()
    usual = "\t" if re.search(r"\.(tsv|tab)(\.\w+)?$", name.lower()) else ","
    if dialect.separator != usual and data.delimiter is None:
        found = f"fields are separated by '{dialect.separator}'".replace("\t", "tab")
        notes.append(Finding("note", "delimiter", found, "pass --delimiter where that is wrong"))
    if dialect.comments:
        found = f"lines that begin with # before the header are ignored ({dialect.comments})"
        notes.append(Finding("note", "rows", found, "pass --skip-rows 0 where one is the header"))
    ids = {*(data.series or ())}
    frame, marks, more = _read(content, name, dialect, decimals, ids)
    frame = frame.with_columns(as_ids(column) for column in frame if column.name in ids)
    frame, blank = _without_blank_end(frame)
    if frame.width > 1 and frame.height and frame[:, -1].null_count() and data.layout != "rows":
        _check_even(content, name, dialect)
    frame, named = _with_names(frame, frame.columns)
    return Parsed(frame, marks, [*notes, *more, *blank, *named])


def read_text(content: Content, name: str, data: DataConfig, columns: Collection[str]) -> pl.DataFrame:
    """Returns some columns of a delimited file as text."""

    def read(utf8: Content) -> pl.DataFrame:
        dialect = _opened(utf8, name, data, Decimals())
        names = _header_names(dialect, len(dialect.header), name)
        places = [k for k, one in enumerate(names) if one in columns or one.startswith(_UNNAMED)]
        frame = pl.read_csv(utf8, infer_schema=False, columns=places, **_options(dialect))
        frame.columns = [names[place] for place in places]
        return _with_names(_unspaced(frame), names)[0]

    return _in_utf8(content, name, data, read)[0]


def _in_utf8(
    content: Content, name: str, data: DataConfig, read: Callable[[Content], _Read]
) -> tuple[_Read, list[Finding]]:
    """Returns what `read` makes of a text, and a note where another encoding than UTF-8 was found.

    A pass that finds text to be UTF-8 would take longer than some reads: only where one fails is it tested.
    """
    mark = UTF16.match(first_bytes(content, 4))
    encoding = data.encoding or (mark and mark.lastgroup)
    if encoding is None:
        try:
            return read(content), []
        except (DataError, UnicodeDecodeError, pl.exceptions.ComputeError):
            with suppress(DataError):
                as_utf8(_bytes(content), "UTF-8", name)
                encoding = "UTF-8"
            if encoding or b"\0" in first_bytes(content, _HEAD):
                raise
        encoding = WINDOWS
    utf8 = as_utf8(_bytes(content), encoding, name)
    return read(utf8), [] if data.encoding else [encoding_note(utf8, encoding)]


def _opened(content: Content, name: str, data: DataConfig, decimals: Decimals) -> Dialect:
    head = first_bytes(content, _HEAD)
    # A character cut off at the end of the first bytes is not a fault.
    lines = codecs.getincrementaldecoder("utf-8-sig")().decode(head, final=len(head) < _HEAD)
    if "\0" in lines:
        raise DataError(
            f"{name}: cannot be read (found zero bytes: not text, or not UTF-8); expected CSV, Excel, "
            "Parquet or Arrow, or its encoding, as --encoding utf-32"
        )
    return _find_dialect(lines, len(head) < _HEAD, name, data, decimals)


def check_names(names: Iterable[str], where: str) -> None:
    """Raises a DataError for names that occur twice, blanks around them aside, or are patterns."""
    counts = Counter(name.strip() for name in names)
    repeated = [f"'{name}' {count} times" for name, count in counts.items() if count > 1]
    if repeated:
        raise DataError(f"{where}: expected one column per name, found {', '.join(repeated)}; rename")
    # polars takes such a name for all the columns that it matches, even in methods of a single column.
    patterns = [name for name in counts if name == "*" or re.fullmatch(r"(?s)\^.*\$", name)]
    if patterns:
        found = ", ".join(f"'{name}'" for name in patterns)
        text = f"{where}: expected names of columns, found {found}"
        raise fault("names", text, "rename: * and ^...$ are patterns that stand for several columns")


def first_bytes(content: Content, count: int) -> bytes:
    """Returns the first bytes of a file, `count` at most."""
    return _bytes(content)[:count].tobytes()


# Dialect


def _find_dialect(lines: str, whole: bool, name: str, data: DataConfig, decimals: Decimals) -> Dialect:
    """Returns how a file is written.

    The delimiter is the one that separates the first rows most evenly, quotes respected; of two equal
    ones, the one that leaves plain numbers and dates.

    Args:
        lines: the beginning of the file.
        whole: whether that is all of it.
        name: of the file, for messages.
        data: the delimiter where it is declared.
        decimals: marks that are known.

    Raises:
        DataError: it is empty or has no header.
        ConfigError: the declared delimiter is not one character.
    """
    eol = "\r" if "\r" in lines and "\n" not in lines else "\n"
    comments = _comments(lines.split(eol)) if data.skip_rows is None else 0
    skipped = comments or data.skip_rows or 0
    lines = re.sub(rf"\A(?:[^{eol}]*{eol}){{0,{skipped}}}", "", lines)
    declared = re.match(r"sep=(.)\r?\n", lines)
    if declared:
        lines = lines[declared.end() :]
    candidates: tuple[str, ...] = _DELIMITERS
    if data.delimiter is not None:
        candidates = ("\t" if data.delimiter.lower() in ("tab", "\\t") else data.delimiter,)
        if len(candidates[0]) != 1 or not candidates[0].isascii() or candidates[0] in '"\r\n':
            raise ConfigError(f"delimiter '{data.delimiter}': expected one character, as ; or tab")
    elif declared:
        candidates = (declared[1],)
    parsed = {mark: _first_rows(lines, mark, whole) for mark in candidates}
    separator = max(candidates, key=lambda mark: _fitness(parsed[mark]))
    rows = [row for row in parsed[separator] if row]
    if not rows:
        raise DataError(f"{name}: expected a header and rows, found an empty file")
    if data.skip_rows is None:
        _check_first_line(parsed[separator], name)
    width = len(rows[0])
    cells = [(row + [""] * width)[:width] for row in rows[1:]]
    sample = pl.DataFrame(
        [pl.Series(str(k), [row[k] or None for row in cells], pl.String) for k in range(width)]
    )
    _check_header(rows[0], sample, name)
    ids, marks = data.series or (), decimals.all - {*decimals.seen}
    comma = marks == {","}
    if not marks:
        columns = zip(sample, rows[0], strict=True)
        comma = decimal_marks(c for c, title in columns if title.strip() not in ids) == {","}
    skipped += bool(declared)
    return Dialect(separator, eol, skipped, comments, comma, tuple(rows[0]), sample)


def _comments(lines: list[str]) -> int:
    """Returns the number of lines before the header that begin with #, blank ones among them."""
    marked = [line.startswith(("#", '"#')) for line in lines]
    count = next((k for k, line in enumerate(lines) if line.strip() and not marked[k]), 0)
    if not any(marked[:count]):
        return 0
    # The last of them is a header above values, as numpy writes it.
    header, cells = (re.split(r"[,;\t|]", line) for line in lines[count - 1 : count + 1])
    return count - (marked[count - 1] and len(header) == len(cells) and any(map(_VALUE.match, cells)))


def _first_rows(lines: str, mark: str, whole: bool) -> list[list[str]]:
    """Returns the first rows, the header and blank ones among them."""
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(lines, newline=""), delimiter=mark):
            rows.append(row)
            if len(rows) > SAMPLE + 1:
                return rows[:-1]
    except csv.Error:
        # A field beyond csv's limit: polars gives the reason.
        return rows
    return rows if whole else rows[:-1] or rows


def _fitness(rows: list[list[str]]) -> tuple[float, float, int]:
    """Returns how well a delimiter explains the first rows: even rows, then plain cells, then many."""
    rows = [row for row in rows if row]
    ((width, even),) = Counter(map(len, rows)).most_common(1) or [(0, 0)]
    if width < 2:
        return 0.0, 0.0, 0
    cells = [cell for row in rows[1:] for cell in row]
    plain = sum(not cell or _VALUE.match(cell) is not None for cell in cells) / max(len(cells), 1)
    return even / len(rows), plain, width


def _check_first_line(rows: list[list[str]], name: str) -> None:
    """Raises a DataError where a later row names more columns than the first, as below a title."""
    filled = [sum(map(bool, map(str.strip, row))) for row in rows]
    at = filled.index(max(filled))
    others = {*rows[at]}.difference(date_names(rows[at], None))
    if any(filled[:at]) and not any(map(_VALUE.match, others)):
        text = f"{name}: expected a header of {filled[at]} names in the first line, found {filled[0]}"
        advice = f"pass --skip-rows {at} if it is line {at + 1}, else --skip-rows 0"
        raise fault("header", text, advice)


def _check_header(header: list[str], sample: pl.DataFrame, name: str) -> None:
    values = all(_VALUE.match(cell) for cell in header)
    columns = zip(header, sample, strict=True)
    dated = any(guess_formats(pl.Series([cell])) and guess_formats(column) for cell, column in columns)
    if sample.height and (values or dated):
        raise DataError(
            f"{name}: expected a header, found values in the first row ({', '.join(header[:3])}, ...); "
            "add a first line with the names of the columns"
        )


# Rows


def _options(dialect: Dialect) -> dict[str, Any]:
    return {
        "separator": dialect.separator,
        "eol_char": dialect.eol,
        "skip_lines": dialect.skipped,
        "decimal_comma": dialect.comma,
        "glob": False,
    }


def _read(content: Content, name: str, dialect: Dialect, decimals: Decimals, text: set[str]) -> Parsed:
    """Returns the rows with numbers as numbers.

    polars reads what it recognises as numbers in the decimal mark of the sample; `as_numbers` decides
    on the columns that stay text. Only where these, other files or the model show another mark than
    the sample's, all columns are read again as text and decided together.
    """
    options = _options(dialect)

    try:
        own = pl.read_csv(content, n_rows=0, infer_schema=False, **options).columns
    except pl.exceptions.ComputeError:  # polars 1 reads rows for it
        _check_even(content, name, dialect, short_too=False)
        raise
    names = _header_names(dialect, len(own), name)
    samples = dict(zip(names, dialect.sample, strict=False))
    padded = {column for column, sample in samples.items() if _may_be_padded(sample)}
    kinds = {old: pl.String for old, new in zip(own, names, strict=True) if new in text | padded}

    def read_all() -> pl.DataFrame:
        frame = pl.read_csv(content, infer_schema=False, **options)
        frame.columns = names
        return frame

    def typed(frame: pl.DataFrame, seen: set[str]) -> Parsed:
        texts = [c for c in frame if c.dtype == pl.String and c.name not in text]
        known = replace(decimals, seen=seen.union(decimals.seen))
        found = as_numbers(pl.DataFrame(texts), known, name)
        return found._replace(frame=frame.with_columns(found.frame))

    try:
        frame = pl.read_csv(content, infer_schema_length=1000, schema_overrides=kinds, **options)
        frame.columns = names
    except pl.exceptions.ComputeError:
        # A faulty byte or row; or the first rows misled, as a whole number with a fraction far below.
        as_utf8(_bytes(content), "UTF-8", name)
        _check_even(content, name, dialect, short_too=False)
        frame = read_all()
    floats, mark = [column.name for column in frame if column.dtype.is_float()], ".,"[dialect.comma]
    if floats and decimals.all - {mark}:
        frame, floats = read_all(), []
    frame, marks, notes = typed(frame, {mark} if floats or dialect.comma else set())
    if dialect.comma and floats and not decimals.others:
        notes.insert(0, decimal_comma(floats[0]))
    elif floats and any(note.rule == "decimal" for note in notes):
        frame, marks, notes = typed(read_all(), set())
        floats = []
    marks |= dict.fromkeys(floats, mark)
    for column in samples if not dialect.comma and not decimals.all else ():
        if looks_like_thousands(samples[column]):
            found = f"column '{column}': numbers such as 1.234 beside 999 are read as fractions"
            advice = "pass --decimal , where the point groups thousands"
            notes.append(Finding("warning", "thousands", found, advice))
    return Parsed(_unspaced(frame), marks, notes)


def _unspaced(frame: pl.DataFrame) -> pl.DataFrame:
    """Returns the frame without the blanks around text in columns of which each value begins with one."""
    heads = {c.name: first_values(c) for c in frame if c.dtype == pl.String}
    spaced = [name for name, head in heads.items() if len(head) and head.str.starts_with(" ").all()]
    return frame.with_columns(pl.col(spaced).str.strip_chars())


def _may_be_padded(sample: pl.Series) -> bool:
    """Whether digits may be ids such as 007: they have one width, or one begins with a zero."""
    values = sample.drop_nulls()
    if not len(values) or not values.str.contains(r"^[0-9]+$").all():
        return False
    widths = values.str.len_bytes()
    return bool(values.str.contains(PADDED).any() or (widths[0] > 1 and widths.n_unique() == 1))


def _without_blank_end(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
    if not frame.height or any(value is not None for value in frame.row(-1)):
        return frame, []
    filled = frame.select(pl.any_horizontal(pl.all().is_not_null())).to_series().arg_true()
    end = int(filled[-1]) + 1 if len(filled) else 0
    found = f"empty rows at the end are ignored ({frame.height - end})"
    return frame.head(end), [Finding("note", "rows", found, "delete them", count=frame.height - end)]


def _header_names(dialect: Dialect, width: int, where: str) -> list[str]:
    """Returns the header without stray blanks; a column without a name is called by its number."""
    header = [name.strip() for name in dialect.header]
    check_names([name for name in header if name], where)
    if len(header) != width:
        raise DataError(f"{where}: cannot be read (a header of {len(header)} names, {width} columns)")
    return [name or f"{_UNNAMED}{k}" for k, name in enumerate(header, 1)]


def _with_names(frame: pl.DataFrame, names: Sequence[str]) -> tuple[pl.DataFrame, list[Finding]]:
    """Names the columns that have no name; those that are empty or number the rows are dropped.

    Args:
        names: of all columns of the file.
    """
    notes = []
    for unnamed in [name for name in frame.columns if name.startswith(_UNNAMED)]:
        column, new, passed = frame[unnamed], unnamed.strip(), ""
        if column.null_count() == len(column):
            passed = "is empty and ignored"
        elif column.dtype.is_integer() and column[0] in (0, 1) and (column.diff()[1:] == 1).all():
            passed = "numbers the rows and is ignored"
        elif column.dtype == pl.String and guess_formats(column):
            new = new if "time" in (*names, *frame.columns) else "time"
        frame = frame.drop(unnamed) if passed else frame.rename({unnamed: new})
        what = passed or f"is called '{new}'"
        found = f"column {unnamed.removeprefix(_UNNAMED)} has no name and {what}"
        notes.append(Finding("note", "columns", found, "name it in the header"))
    return frame, notes


# Faults


def field_counts(content: Content, separator: str, eol: str = "\n") -> Ints:
    """Returns the number of fields of every row, header included; a blank line has 0."""
    file = io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")
    limit = csv.field_size_limit(sys.maxsize)
    try:
        with io.TextIOWrapper(file, "latin1", newline=eol) as lines:
            plain = (line.replace("\r", "").replace("\n", "") for line in lines)
            return np.fromiter(map(len, csv.reader(plain, delimiter=separator)), np.int64)
    finally:
        csv.field_size_limit(limit)


def _check_even(content: Content, name: str, dialect: Dialect, *, short_too: bool = True) -> None:
    """Raises a DataError for the first row without the header's number of fields, blank lines aside.

    Args:
        short_too: whether a row with fewer fields is a fault.
    """
    data, separator, eol = _bytes(content), dialect.separator, dialect.eol
    quotes, separators, lines = (_count(data, mark) for mark in ('"', separator, eol))
    lines += int(data[-1] != ord(eol))
    # polars refuses a row longer than the header, so that a short row lowers the count of separators.
    if short_too and not quotes and separators == lines * (len(dialect.header) - 1):
        return
    counts = field_counts(content, separator, eol)[dialect.skipped :]
    counts = counts[np.argmax(counts > 0) :]
    if quotes % 2:
        text = f"{name}: a quote sign opens in row {len(counts) - 1} or before and is never closed"
        raise fault("quotes", text, 'close it, or write a quote sign within text twice, as ""')
    odd = (counts > counts[0]) | (short_too & (counts < counts[0]) & (counts > 0))
    if odd.any():
        rows, bad = pl.Series(counts[1:]), pl.Series(odd[1:])
        expected = f"{counts[0]} fields as in the header"
        advice = "correct the row, put quotes around text that holds the delimiter, or pass --delimiter"
        raise row_fault("fields", name, expected, rows, bad, advice)


def _count(data: NDArray[np.uint8], mark: str) -> int:
    starts = range(0, len(data), _BLOCK)
    return sum(int(np.count_nonzero(data[k : k + _BLOCK] == ord(mark))) for k in starts)


def _bytes(content: Content) -> NDArray[np.uint8]:
    if isinstance(content, bytes):
        return np.frombuffer(content, np.uint8)
    empty = not content.stat().st_size
    return np.zeros(0, np.uint8) if empty else np.asarray(np.memmap(content, np.uint8, "r"))
