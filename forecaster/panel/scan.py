"""A table that need not fit in memory: what comes in is a path, what goes out can be read in pieces.

Promised: the columns, kinds and rows of `read_table` on the same files. The kind of a text column is
decided over all its rows: one pass counts what reads as a number, another keeps one example of every
shape of the rest. What cannot be read in pieces (packed files, URLs, frames, several text files, a row
per series) gives None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from forecaster.config import DataConfig
from forecaster.panel.csv import (
    UNNAMED,
    Dialect,
    check_encoding,
    check_even,
    find_dialect,
    first_bytes,
    header_names,
    may_be_padded,
)
from forecaster.panel.findings import Finding, fault
from forecaster.panel.frames import TableFile, find_files, format_of, unreadable
from forecaster.panel.numbers import MISSING, STYLES, Style, as_numbers, known
from forecaster.panel.table import check_unique

_HEAD = 1 << 18


@dataclass(frozen=True)
class Scan:
    """Rows that are read when they are asked for."""

    frame: pl.LazyFrame
    """The rows in their order, with clean names and final kinds."""
    name: str
    """Path or glob: used in messages."""
    n_rows: int
    notes: tuple[Finding, ...]
    """What was noticed on the way."""


def scan_table(source: object, data: DataConfig) -> Scan | None:
    """Returns the table of a path or glob, unread; None where it has to be read whole.

    Raises:
        DataError: there is no such file, or it cannot be read.
    """
    if not isinstance(source, str | Path) or "://" in str(source) or data.layout == "rows":
        return None
    files, notes = find_files(str(source))
    heads = [_head(file.name) for file in files]
    if any(head.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")) for head in heads):
        return None
    kinds = [format_of(head, file.name) for head, file in zip(heads, files, strict=True)]
    if "text" not in kinds:
        with reading(str(source)):
            frames = [_scan_columnar(file, kind) for file, kind in zip(files, kinds, strict=True)]
            frame = frames[0] if len(frames) == 1 else pl.concat(frames, how="vertical_relaxed")
            rows = int(frame.select(pl.len()).collect(engine="streaming").item())
        return Scan(frame, str(source), rows, tuple(notes))
    if len(files) > 1 or files[0].keys or not _is_plain_text(heads[0]):
        return None
    return _scan_text(Path(files[0].name), heads[0], data, notes)


def _head(name: str) -> bytes:
    try:
        return first_bytes(Path(name), _HEAD)
    except OSError as error:  # it was there a moment ago
        raise unreadable(name, error) from error


def _scan_columnar(file: TableFile, kind: str) -> pl.LazyFrame:
    if kind == "parquet":
        frame = pl.scan_parquet(file.name, hive_partitioning=False, glob=False)
    else:
        frame = pl.scan_ipc(file.name)
    names = frame.collect_schema().names()
    check_unique(names, file.name)
    frame = frame.rename({name: name.strip().lstrip("\ufeff") for name in names})
    return frame.with_columns(pl.lit(value).alias(key) for key, value in file.keys)


def _is_plain_text(head: bytes) -> bool:
    try:
        # A character cut off at the end of the first bytes is not a fault.
        text = head.decode("utf-8", errors="strict" if len(head) < _HEAD else "ignore")
    except UnicodeDecodeError:
        return False
    return "\0" not in text


def _scan_text(path: Path, head: bytes, data: DataConfig, notes: Sequence[Finding]) -> Scan:
    """Returns the rows of a delimited file with numbers as numbers."""
    name, lines = str(path), head.decode("utf-8-sig", errors="ignore")
    dialect = find_dialect(lines, whole=len(head) < _HEAD, name=name, data=data)
    names = header_names(dialect, len(dialect.header), name)
    sample = dialect.sample.rename(dict(zip(dialect.sample.columns, names, strict=True)))
    with reading(name, path, dialect):
        text = _rows(path, names, dialect, {})
        counts = _counted(text, names, "," if dialect.comma else ".")
        end = counts["\0end"]
        if len(names) > 1 and counts[f"{names[-1]}\0given"] < end:
            check_even(path, name, dialect)
        # What the reader itself takes for numbers it reads many times faster than they are cast.
        plain = {
            column: pl.Int64 if counts[f"{column}\0whole"] == counts[f"{column}\0given"] else pl.Float64
            for column in names
            if counts[f"{column}\0number"] == counts[f"{column}\0given"] > 0
            if not may_be_padded(sample[column])
        }
        floats = pl.Float64 in plain.values()
        seen = "," if dialect.comma else "." if floats else ""
        cast, more = _casts(text, sample, set(plain), data, seen, name)
        if floats and not dialect.comma and any(note.rule == "decimal" for note in more):
            # A comma far below the first rows: whether points part thousands is asked of all columns.
            plain = {}
            cast, more = _casts(text, sample, set(), data, "", name)
        frame = _rows(path, names, dialect, plain).head(end).with_columns(cast)
        unnamed = [column for column in names if column.startswith(UNNAMED)]
        frame = _without_unnamed(frame, unnamed, name)
    return Scan(frame, name, end, (*notes, *more))


def _rows(path: Path, names: list[str], dialect: Dialect, kinds: Mapping[str, Any]) -> pl.LazyFrame:
    options: dict[str, Any] = dialect.options
    written = pl.scan_csv(path, infer_schema=False, **options).collect_schema().names()
    header_names(dialect, len(written), str(path))
    own = dict(zip(written, names, strict=True))
    given = {column: kinds[name] for column, name in own.items() if name in kinds}
    return pl.scan_csv(path, infer_schema=False, schema_overrides=given, **options).rename(own)


@contextmanager
def reading(name: str, path: Path | None = None, dialect: Dialect | None = None) -> Iterator[None]:
    """Turns what a reader of files complains of, at whatever row, into one clear line.

    Raises:
        DataError: naming the row where a delimited file shows it.
    """
    try:
        yield
    except (pl.exceptions.ComputeError, pl.exceptions.NoDataError, FileNotFoundError) as error:
        if path is not None and dialect is not None and path.exists():
            check_encoding(path, name, dialect.separator)
            check_even(path, name, dialect)
        raise unreadable(name, error) from error


def _counted(frame: pl.LazyFrame, names: list[str], mark: str) -> dict[str, int]:
    """Returns how many cells are given and read as numbers, and the last row that is not empty."""
    filled = pl.any_horizontal(pl.col(names).is_not_null())
    asked = [pl.when(filled).then(pl.col("\0row")).max().alias("\0end")]
    for name in names:
        cell: Any = pl.col(name)
        numbers: Any = Style(mark).numbers(cell)
        asked += [
            cell.count().alias(f"{name}\0given"),
            cell.cast(pl.Int64, strict=False).count().alias(f"{name}\0whole"),
            numbers.count().alias(f"{name}\0number"),
        ]
    found = frame.with_row_index("\0row", 1).select(asked).collect(engine="streaming")
    return {key: value or 0 for key, value in found.row(0, named=True).items()}


def _casts(
    frame: pl.LazyFrame, sample: pl.DataFrame, plain: set[str], data: DataConfig, seen: str, where: str
) -> tuple[list[pl.Expr], list[Finding]]:
    """Returns what columns of text become, and what is worth telling."""
    left = [name for name in sample.columns if name not in plain]
    numeric = [name for name in left if _may_be_numbers(sample[name])]
    examples = [_examples(frame, name).to_frame() for name in numeric]
    together = pl.concat(examples, how="horizontal_extend") if examples else pl.DataFrame()
    typed, notes = as_numbers(together, data.decimal, seen, where, "some row".format)
    found: list[Any] = []
    for name in left:
        cell: Any = pl.col(name)
        text: Any = cell.str.strip_chars()
        text = pl.when(~text.is_in(MISSING)).then(text)
        kind = typed.schema.get(name)
        if kind == pl.Boolean:
            found.append((text == "true").alias(name))
        elif kind == pl.Int64:
            found.append(text.cast(pl.Int64).alias(name))
        elif kind == pl.Float64:
            style = _style(together[name], typed[name])
            found.append(style.numbers(text).alias(name))
        elif sample[name].drop_nulls().str.starts_with(" ").all() and sample[name].count():
            found.append(cell.str.strip_chars())
    return found, notes


def _may_be_numbers(sample: pl.Series) -> bool:
    values = known(sample)
    return any(style.fits(values).all() for style in STYLES) or bool(
        values.str.contains("^(?:true|false)$").all()
    )


def _examples(frame: pl.LazyFrame, name: str) -> pl.Series:
    """Returns one value of every shape: digits but zeros are alike, as are runs of four and more."""
    shape = pl.col(name).str.replace_all("[1-9]", "1")
    for run, short in (
        (r"([01])[01]{3,}", "${1}111"),
        (r"\b([01])[01]{2}\b", "${1}11"),
        (r"\b([01])[01]\b", "${1}1"),
    ):
        shape = shape.str.replace_all(run, short)
    grouped = frame.select(pl.col(name), shape.alias("\0shape")).group_by("\0shape")
    return grouped.agg(pl.col(name).first()).collect(engine="streaming")[name]


def _style(text: pl.Series, numbers: pl.Series) -> Style:
    values = known(text)
    return next(
        style
        for style in STYLES
        if style.fits(values).all() and style.numbers(values).equals(numbers, null_equal=True)
    )


def _without_unnamed(frame: pl.LazyFrame, unnamed: list[str], where: str) -> pl.LazyFrame:
    """Returns the rows without columns that have no name and hold nothing, or number the rows."""
    kinds = frame.collect_schema()
    for column in unnamed:
        number = int(column.removeprefix(UNNAMED)) + 1
        own = pl.col(column)
        if kinds[column].is_integer():
            apart = own - pl.int_range(pl.len())
            ends = frame.select(apart.min().alias("low"), apart.max().alias("high"))
            low, high = ends.collect(engine="streaming").row(0)
            passed = low == high and low in (0, 1)
        else:
            passed = not frame.select(own.count()).collect(engine="streaming").item()
        if not passed:
            raise fault("columns", f"{where}: column {number} has no name", "name it in the header")
        frame = frame.drop(column)
    return frame
