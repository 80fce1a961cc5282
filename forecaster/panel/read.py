"""A table at the door: what comes in is a path, a glob or a frame; what goes out is one polars frame.

Promises: a CSV, a Parquet file and a frame of the same rows give the same table, except that dates in
a CSV stay text (parsing them inside the reader costs four times more than one cast afterwards). Names
of columns carry no stray blanks and are unique. Nothing is dropped and no value is changed; the marks
in `MISSING` are nulls only in columns that otherwise hold nothing but numbers.
"""

from __future__ import annotations

import difflib
import glob
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from forecaster.errors import DataError
from forecaster.panel.finding import Finding
from forecaster.panel.stamps import SAMPLE, first_values

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "-", "?")


@dataclass(frozen=True)
class Table:
    """A frame, and how to speak of it."""

    frame: pl.DataFrame
    """The rows as they came, in their order."""
    name: str
    """Path, glob, or "the pandas frame": used in messages."""
    kind: str
    """"polars", "pandas", "pyarrow" or "file": what results are handed back as."""
    notes: tuple[Finding, ...] = ()
    """What was noticed while it was read."""


def read_table(source: object) -> Table:
    """Returns the table behind a path, a glob, or a pandas, polars or Arrow frame.

    Args:
        source: CSV (also .csv.gz), TSV or Parquet file; a glob of such files, read in sorted order;
            or a frame. The index of a pandas frame becomes columns where it is named or holds dates.

    Raises:
        DataError: there is no such file, it is empty or unreadable, names repeat, or there are no rows.

    Example:
        >>> read_table(pl.DataFrame({" y ": [1.0]})).frame.columns
        ['y']
    """
    if isinstance(source, Table):
        return source
    table = _read_files(str(source)) if isinstance(source, str | Path) else _read_frame(source)
    frame = _with_clean_names(table.frame, table.name)
    if frame.height == 0:
        found = f"the columns {listing(frame.columns)} and no rows" if frame.columns else "nothing"
        raise DataError(f"{table.name}: expected a header and rows, found {found}")
    return replace(table, frame=frame)


def to_kind(frame: pl.DataFrame, kind: str) -> Any:
    """Returns a frame in the caller's own kind ("file" stays polars)."""
    if kind == "pandas":
        return frame.to_pandas()
    if kind == "pyarrow":
        return frame.to_arrow()
    return frame


def frame_of(columns: Mapping[str, Sequence[Any]]) -> pl.DataFrame:
    """Returns a frame of plain columns, for those who do not know frames."""
    return pl.DataFrame(columns)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Returns "; did you mean 'x'?" for the nearest known name, or nothing."""
    lowered = {other.lower(): other for other in reversed(known)}
    near = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.6)
    return f"; did you mean '{lowered[near[0]]}'?" if near else ""


def listing(names: Sequence[str]) -> str:
    """Returns names for a message: all of a few, the first of many with their count."""
    shown = ", ".join(names[:20])
    return shown if len(names) <= 20 else f"{shown}, ... ({len(names)} in all)"


def _read_frame(source: object) -> Table:
    import narwhals as nw

    given: Any = source.collect() if isinstance(source, pl.LazyFrame) else source
    try:
        eager = nw.from_native(given, eager_only=True)
    except TypeError:
        raise DataError(
            f"expected a path or a pandas, polars or pyarrow frame, found {type(source).__name__}"
        ) from None
    kind = str(eager.implementation.value)
    name = f"the {kind} frame"
    try:
        if kind == "pandas":
            return Table(pl.from_pandas(_with_index_as_columns(given)), name, kind)
        if kind == "polars":
            return Table(given, name, kind)
        frame = pl.DataFrame(pl.from_arrow(eager.to_arrow()))
        return Table(frame, name, "pyarrow" if kind == "pyarrow" else "polars")
    except (ValueError, TypeError, pl.exceptions.PolarsError) as error:
        raise DataError(
            f"{name}: expected one kind of value per column ({_one_line(error)})"
        ) from error


def _with_index_as_columns(source: Any) -> Any:
    import pandas as pd

    frame = source.rename(columns=str)
    index = frame.index
    dated = isinstance(index, pd.DatetimeIndex | pd.PeriodIndex)
    if dated and index.name is None:
        free = next(name for name in ("time", "timestamp", "index") if name not in frame.columns)
        frame = frame.rename_axis(index=free)
    if dated or any(name is not None for name in index.names):
        frame = frame.reset_index()
    for column in frame.columns[[isinstance(dtype, pd.PeriodDtype) for dtype in frame.dtypes]]:
        frame[column] = frame[column].dt.to_timestamp()
    return frame


def _read_files(source: str) -> Table:
    if "://" in source:
        return Table(_read_file(source), source, "file")
    path = Path(source).expanduser()
    if path.is_dir():
        raise DataError(f"{source}: expected a file, found a folder; pass a glob as {source}/*.csv")
    if path.exists():
        return Table(_read_file(str(path)), source, "file")
    if not glob.has_magic(source):
        folder = path.resolve().parent
        names = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
        hint = did_you_mean(path.name, names)
        raise DataError(f"{source}: no such file (looked for {path.resolve()}){hint}")
    files = sorted(name for name in glob.glob(str(path), recursive=True) if Path(name).is_file())
    if not files:
        raise DataError(f"{source}: no file matches this pattern (looked in {Path.cwd()})")
    frames = [_with_clean_names(_read_file(name), name) for name in files]
    for name, frame in zip(files, frames, strict=True):
        if set(frame.columns) != set(frames[0].columns):
            odd = sorted(set(frame.columns) ^ set(frames[0].columns))
            raise DataError(
                f"{name}: expected the columns of {files[0]}, found a difference in {listing(odd)}"
            )
    # A column that is empty in one file says nothing about its kind there.
    frames = [
        f.select(frames[0].columns).with_columns(
            pl.lit(None).alias(c.name) for c in f if c.null_count() == f.height
        )
        for f in frames
    ]
    try:
        return Table(pl.concat(frames, how="vertical_relaxed"), source, "file")
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"{source}: a column is of different kinds in different files ({_one_line(error)})"
        ) from error


def _read_file(name: str) -> pl.DataFrame:
    try:
        if name.lower().endswith((".parquet", ".pq")):
            return pl.read_parquet(name)
        return _read_csv(name)
    except pl.exceptions.NoDataError:
        raise DataError(f"{name}: expected a header and rows, found an empty file") from None
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise DataError(
            f"{name}: cannot be read ({_one_line(error)}); "
            "expected CSV (UTF-8), TSV or Parquet with one header line"
        ) from error


def _read_csv(path: str) -> pl.DataFrame:
    separator = "\t" if path.lower().endswith((".tsv", ".tsv.gz")) else ","
    head = _sniff(path, separator)
    if head.width == 1:
        for other in ";\t|":
            if len(str(head.item(0, 0)).split(other)) > 1:
                separator, head = other, _sniff(path, other)
                break
    header = [value or "" for value in head.row(0)]
    _refuse_repeats(header, path)
    # Read as a number, the id 007 would come back as 7.
    kept_as_text: dict[str, Any] = {
        name: pl.String
        for name, column in zip(header, head[1:].iter_columns(), strict=True)
        if column.str.contains(r"^0\d+$").any() and column.drop_nulls().str.contains(r"^\d+$").all()
    }
    options: dict[str, Any] = {"separator": separator, "schema_overrides": kept_as_text}
    try:
        frame = pl.read_csv(path, infer_schema_length=1000, **options)
    except pl.exceptions.ComputeError:
        # The first rows misled the reader (an integer column with a fraction far below).
        frame = pl.read_csv(path, infer_schema_length=None, **options)
    return frame.with_columns(
        number
        for column in frame.iter_columns()
        if column.dtype == pl.String and column.name not in kept_as_text
        for number in _as_numbers(column)
    )


def _sniff(name: str, separator: str) -> pl.DataFrame:
    return pl.read_csv(
        name,
        separator=separator,
        has_header=False,
        infer_schema=False,
        n_rows=SAMPLE + 1,
        truncate_ragged_lines=True,
    )


def _as_numbers(column: pl.Series) -> list[pl.Series]:
    """Returns the column as floats where everything but missing marks is a number, else nothing."""

    def parsed(values: pl.Series) -> pl.Series | None:
        text = values.str.strip_chars()
        text = text.set(text.is_in(MISSING), None)
        numbers = text.cast(pl.Float64, strict=False)
        return numbers if numbers.null_count() == text.null_count() else None

    # A few values tell most text from numbers with marks; only the rest is cast whole.
    if parsed(first_values(column)) is None:
        return []
    numbers = parsed(column)
    return [] if numbers is None or numbers.null_count() == len(numbers) else [numbers]


def _with_clean_names(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    _refuse_repeats(frame.columns, name)
    return frame.rename(lambda column: column.strip().lstrip("\ufeff"))


def _refuse_repeats(names: list[str], where: str) -> None:
    counts = Counter(name.strip() for name in names)
    repeated = [f"'{name}' {count} times" for name, count in counts.items() if count > 1]
    if repeated:
        raise DataError(f"{where}: expected one column per name, found {', '.join(repeated)}; rename")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split("\n\n")[0].split())[:200]
