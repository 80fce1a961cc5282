"""A table that need not fit in memory: what comes in is a path, what goes out can be read in pieces.

Promised: the columns, kinds and rows of `read_table` on the same files. The kind of a text column is
decided over all its rows, in one pass that keeps counts only. What cannot be read in pieces (packed
files, URLs, frames, a row per series) gives None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from forecaster.config import DataConfig
from forecaster.panel.csv_faults import refuse_encoding, refuse_uneven
from forecaster.panel.delimited import first_bytes, may_be_padded
from forecaster.panel.dialect import Dialect, find_dialect
from forecaster.panel.files import PlacedFile, find_files
from forecaster.panel.finding import Finding, fault
from forecaster.panel.numerals import MISSING, PADDED, as_numbers
from forecaster.panel.table import one_line, refuse_repeats

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
    """What was noticed while the files were found."""


def scan_table(source: object, data: DataConfig) -> Scan | None:
    """Returns the table of a path or glob, unread; None where it has to be read whole.

    Raises:
        DataError: there is no such file, or it cannot be read.
    """
    if not isinstance(source, str | Path) or "://" in str(source) or data.layout == "rows":
        return None
    files, notes = find_files(str(source))
    heads = [first_bytes(Path(file.name), _HEAD) for file in files]
    columnar = [_scan_columnar(file, head) for file, head in zip(files, heads, strict=True)]
    frames = [frame for frame in columnar if frame is not None]
    if len(frames) == len(files):
        frame = frames[0] if len(frames) == 1 else pl.concat(frames, how="vertical_relaxed")
        rows = int(frame.select(pl.len()).collect(engine="streaming").item())
        return Scan(frame, str(source), rows, tuple(notes))
    if frames or len(files) > 1 or not _is_plain_text(heads[0]):
        return None
    frame, rows = _scan_text(Path(files[0].name), heads[0], data)
    return Scan(frame, str(source), rows, tuple(notes))


def _scan_columnar(file: PlacedFile, head: bytes) -> pl.LazyFrame | None:
    if head.startswith(b"PAR1"):
        frame = pl.scan_parquet(file.name, hive_partitioning=False, glob=False)
    elif head.startswith(b"ARROW1"):
        frame = pl.scan_ipc(file.name)
    else:
        return None
    names = frame.collect_schema().names()
    refuse_repeats(names, file.name)
    frame = frame.rename({name: name.strip().lstrip("\ufeff") for name in names})
    return frame.with_columns(pl.lit(value).alias(key) for key, value in file.keys)


def _is_plain_text(head: bytes) -> bool:
    try:
        # A character cut off at the end of the first bytes is not a fault.
        text = head.decode("utf-8", errors="strict" if len(head) < _HEAD else "ignore")
    except UnicodeDecodeError:
        return False
    return "\0" not in text


def _scan_text(path: Path, head: bytes, data: DataConfig) -> tuple[pl.LazyFrame, int]:
    """Returns the rows of a delimited file with numbers as numbers, and how many there are."""
    lines = head.decode("utf-8-sig", errors="ignore")
    dialect = find_dialect(lines, whole=len(head) < _HEAD, name=str(path), data=data)
    refuse_repeats(dialect.header, str(path))
    names = [name.strip() for name in dialect.header]
    if not all(names):
        at = names.index("") + 1
        raise fault("columns", f"{path}: column {at} has no name", "name it in the header")

    def rows(kinds: Mapping[str, Any]) -> pl.LazyFrame:
        options: dict[str, Any] = dialect.options
        frame = pl.scan_csv(path, infer_schema=False, **options)
        written = frame.collect_schema().names()
        known = {old: kinds[new] for old, new in zip(written, names, strict=True) if new in kinds}
        frame = pl.scan_csv(path, infer_schema=False, schema_overrides=known, **options)
        return frame.rename(dict(zip(written, names, strict=True)))

    sample = dialect.sample.rename(dict(zip(dialect.sample.columns, names, strict=True)))
    marks = {name: _mark(sample[name], data, dialect, str(path)) for name in names}
    padded = {name for name in names if may_be_padded(sample[name])}
    with _reading(path, dialect):
        counts = _counted(rows({}), names, marks)
        if len(names) > 1 and counts[f"{names[-1]}\0given"] < counts["\0end"]:
            refuse_uneven(path, str(path), dialect)
        # What the reader itself takes for numbers it reads many times faster than they are cast.
        plain = {
            name: pl.Int64 if counts[f"{name}\0whole"] == counts[f"{name}\0given"] else pl.Float64
            for name in names
            if counts[f"{name}\0number"] == counts[f"{name}\0given"] > 0 and name not in padded
            if (marks[name] == ",") == dialect.comma
        }
        left = {name: marks[name] for name in names if name not in plain}
        kinds = _kinds(rows({}), left)
    return rows(plain).head(counts["\0end"]).with_columns(kinds), counts["\0end"]


@contextmanager
def _reading(path: Path, dialect: Dialect) -> Iterator[None]:
    try:
        yield
    except (pl.exceptions.PolarsError, OSError) as error:
        refuse_encoding(path, str(path), dialect.separator)
        refuse_uneven(path, str(path), dialect)
        raise fault(
            "unreadable",
            f"{path}: cannot be read ({one_line(error)})",
            "expected CSV (UTF-8, one header line), Parquet or Arrow",
        ) from error


def _mark(sample: pl.Series, data: DataConfig, dialect: Dialect, where: str) -> str:
    """Returns the decimal mark of a column."""
    typed, _ = as_numbers(sample.to_frame(), data.decimal, {"," if dialect.comma else "."}, where)
    usual = data.decimal or ("," if dialect.comma else ".")
    if not typed.width or not typed.to_series().dtype.is_float():
        return usual
    text = sample.to_frame().select(_known(sample.name)).to_series()
    for mark in dict.fromkeys((usual, data.decimal or ".", data.decimal or ",")):
        numbers = text.to_frame().select(_number(pl.col(sample.name), mark)).to_series()
        if numbers.null_count() == text.null_count():
            return mark
    raise fault(
        "thousands",
        f"{where}: column '{sample.name}': marks between thousands cannot be read in pieces",
        "write them without",
        where=sample.name,
    )


def _known(name: str) -> pl.Expr:
    text = pl.col(name).str.strip_chars()
    return pl.when(~text.is_in(MISSING)).then(text)


def _number(text: pl.Expr, mark: str) -> pl.Expr:
    point = text if mark == "." else text.str.replace(mark, ".", literal=True)
    return point.cast(pl.Float64, strict=False)


def _counted(frame: pl.LazyFrame, names: list[str], marks: dict[str, str]) -> dict[str, int]:
    """Returns how many cells are given and read as numbers, and the last row that is not empty."""
    filled = pl.any_horizontal(pl.col(names).is_not_null())
    asked = [pl.when(filled).then(pl.col("\0row")).max().alias("\0end")]
    for name in names:
        asked += [
            pl.col(name).count().alias(f"{name}\0given"),
            pl.col(name).cast(pl.Int64, strict=False).count().alias(f"{name}\0whole"),
            _number(pl.col(name), marks[name]).count().alias(f"{name}\0number"),
        ]
    return _one_row(frame.with_row_index("\0row", 1).select(asked))


def _kinds(frame: pl.LazyFrame, marks: dict[str, str]) -> list[pl.Expr]:
    """Returns what columns of text become: numbers with marks for missing ones, truths, or text."""
    asked = []
    for name, mark in marks.items():
        text = _known(name)
        asked += [
            text.count().alias(f"{name}\0known"),
            text.is_in(["true", "false"]).sum().alias(f"{name}\0truth"),
            text.cast(pl.Int64, strict=False).count().alias(f"{name}\0whole"),
            text.str.contains(PADDED).any().alias(f"{name}\0padded"),
            _number(text, mark).count().alias(f"{name}\0number"),
        ]
    counts = _one_row(frame.select(asked)) if asked else {}
    found = []
    for name, mark in marks.items():
        known, text = counts[f"{name}\0known"], _known(name)
        if known and counts[f"{name}\0truth"] == known:
            found.append((text == "true").alias(name))
        elif known and counts[f"{name}\0whole"] == known and not counts[f"{name}\0padded"]:
            found.append(text.cast(pl.Int64).alias(name))
        elif known and counts[f"{name}\0number"] == known and not counts[f"{name}\0padded"]:
            found.append(_number(text, mark).alias(name))
    return found


def _one_row(frame: pl.LazyFrame) -> dict[str, int]:
    found = frame.collect(engine="streaming").row(0, named=True)
    return {key: value or 0 for key, value in found.items()}
