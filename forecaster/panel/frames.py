"""Reading and returning tables: files, folders, globs, URLs and frames become one polars frame.

A CSV file in any dialect, a sheet, a Parquet or Arrow file and a frame of the same rows give the same table,
except that dates in a CSV file or a sheet stay text. No value is changed, and no row is dropped but empty
ones at the end of these. The format is recognised by the first bytes of a file, not by its name.
"""

from __future__ import annotations

import glob
import gzip
import io
import re
import urllib.error
import urllib.parse
import urllib.request
import warnings
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import polars as pl

from forecaster.config import DataConfig
from forecaster.errors import DataError, natural
from forecaster.panel.csv import Content, check_names, first_bytes, read_csv, read_text
from forecaster.panel.findings import (
    Faults,
    Finding,
    check_paths,
    did_you_mean,
    fault,
    listing,
    one_line,
    refuse_errors,
    summed,
)
from forecaster.panel.names import common, without
from forecaster.panel.numbers import Decimals, Parsed, as_ids, as_numbers
from forecaster.panel.timestamps import (
    DATE_AND_CLOCK,
    OFFSETS,
    PARTS,
    SLOT,
    TimeParts,
    WrittenTimes,
    is_unusual,
    parse_times,
    parts_of,
)
from forecaster.panel.workbooks import read_sheet, read_sheet_text, write_sheet

if TYPE_CHECKING:
    import pandas
    import pyarrow

    PandasFrame: TypeAlias = pandas.DataFrame
    AnyFrame: TypeAlias = pl.DataFrame | pandas.DataFrame | pyarrow.Table
    """What a caller may have given and gets back."""

PolarsFrame: TypeAlias = pl.DataFrame
"""For modules that do not import polars."""
URL_TIMEOUT_SECONDS = 20.0
_ROW_GROUP = 1 << 17
"""Rows that a reader of Parquet holds at once; fixed, so that the same rows give the same bytes."""
TABLE_NAME = re.compile(
    r"\.(?:csv|tsv|tab)(?:\.gz|\.zst)?$|\.(?:parquet|pq|arrow|feather|ipc|xls[xmb]?|ods)$",
    re.IGNORECASE,
)
"""How the names of tables end."""
_FOREIGN = (
    (b"PK\x03\x04", "a zip archive", "unpack it"),
    (b"BZh", "a bzip2 archive", "unpack it, or pack it with gzip"),
    (b"\xfd7zXZ", "an xz archive", "unpack it, or pack it with gzip"),
    ((b"<!", b"<html"), "a web page", "pass the address of the file itself"),
    (b"<?xml", "XML", "write it as CSV or Parquet"),
    ((b'{"', b"[{"), "JSON", "write it as CSV or Parquet"),
)
_WORKBOOK = re.compile(
    rb"PK\x03\x04.{26}(?:\[Content_Types\]|_rels/|docProps/|xl/|mimetypeapplication/vnd\.oasis)|\xd0\xcf\x11\xe0",
    re.DOTALL,
)
"""First bytes of Excel's files, new and old, and of OpenDocument's."""
_BAD_FRAME = (ValueError, TypeError, NotImplementedError, pl.exceptions.PolarsError)
_PANIC = pl.exceptions.PanicException
_BAD_FILE = (pl.exceptions.PolarsError, _PANIC, OSError, ValueError, EOFError, zlib.error)


Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)


class Original(NamedTuple):
    """What a pandas frame of the caller looks like, and its results with it."""

    labels: Mapping[str, Any] = {}
    """By column, its name where that is no text."""
    dtypes: Mapping[str, Any] = {}
    """By column."""
    nullable: bool = False
    """Whether numbers are all of pandas' nullable dtypes."""
    arrow: bool = False
    """Whether numbers are all kept by pyarrow."""


_PLAIN = Original()

TEXT = (pl.String, pl.Categorical, pl.Enum)
"""Kinds of columns that hold text."""


@dataclass(frozen=True)
class Table:
    """A frame and where it came from."""

    frame: pl.DataFrame
    """The rows in their original order."""
    name: str
    """Path, glob, or "the pandas frame": used in messages."""
    kind: str
    """"polars", "pandas", "pyarrow" or "file": the kind of frame that results are returned as."""
    notes: tuple[Finding, ...] = ()
    """What was noticed while reading."""
    parts: tuple[tuple[str, int], ...] = ()
    """Names and numbers of rows of the files, where several became one table."""
    numbers: pl.Series | None = None
    """Each row's number in the table that this one is a part of; None = it is whole."""
    times: WrittenTimes | None = None
    """How the column of times was written, once it is parsed; None = not parsed."""
    time_parts: TimeParts = field(default_factory=dict)
    """Of the column of times."""
    text: Callable[[Collection[str]], pl.DataFrame] | None = None
    """Reads columns again as text; None = the table is not from CSV."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """Decimal marks of columns that were text; empty where the files of a column have both."""
    original: Original = _PLAIN

    def place(self, row: int) -> str:
        """Returns a row, counted from 1 after the header, as messages name it.

        Example:
            >>> Table(pl.DataFrame(), "*.csv", "file", parts=(("a.csv", 3), ("b.csv", 9))).place(5)
            'b.csv row 2'
        """
        row = row if self.numbers is None else int(self.numbers[row - 1])
        for name, height in self.parts:
            if row <= height:
                return f"{name} row {row}"
            row -= height
        return f"row {row}"

    def with_ids(self, names: Collection[str]) -> Table:
        """Returns the table with ids as written: text where numbers or booleans would change them.

        Example:
            >>> table = Table(pl.DataFrame({"id": [1.1, 1.1]}), "a.csv", "file")
            >>> text = pl.DataFrame({"id": ["1.1", "1.10"]})
            >>> replace(table, text=lambda names: text).with_ids(["id"]).frame["id"].to_list()
            ['1.1', '1.10']
        """
        odd = [c.name for c in self.frame if c.name in names and c.dtype not in (*TEXT, pl.Null)]
        if self.text is None or not odd:
            return self
        texts = self.text(odd).head(self.frame.height)
        ids = [as_ids(text.str.strip_chars(), self.frame[text.name]) for text in texts]
        return replace(self, frame=self.frame.with_columns(ids))

    def with_time(self, time: str | None) -> Table:
        """Returns the table with the columns of a time's parts as one: see `join_times`."""
        frame, parts = join_times(self.frame, time, self.name)
        return replace(self, frame=frame, time_parts=parts)

    def with_times(
        self, name: str, time_format: str | None, *, strict: bool, zone: str | None = None
    ) -> Table:
        """Returns the table with a column of text or digits as timestamps: see `parse_times`."""
        text, where = self.frame[name].cast(pl.String), f"{self.name}, column '{name}'"
        if self.frame[name].dtype.is_float() and self.text is not None and "%" in (time_format or ""):
            text = self.text([name])[name].head(len(text))  # 1.2020 is no 1.202
        times, found = parse_times(text, where, time_format, strict=strict, place=self.place, zone=zone)
        zoned = re.search(r":\d\d(\.\d+)? ?" + OFFSETS, text[0])
        notes = self._mixed_offsets(text, local=not found.endswith("z")) if zoned else ()
        if not strict and is_unusual(found):
            text_of, stamp = f"times in '{name}' are read as {found}", times[0].strftime("%Y-%m-%d")
            advice = "nothing to do if they are; --time-format says how they are written"
            notes += (Finding("note", "time", text_of, advice, where=f"{text[0]} is {stamp}"),)
        if (slot := SLOT.search(found)) and slot[2] == "1":
            last = f"the last of the {slot[3]} parts of a day in '{name}' is of the day that it closes"
            notes += (
                Finding("note", "time", last, "nothing to do: each is read as the time it begins"),
            )
        written = WrittenTimes(found, self.frame[name].dtype.is_numeric(), notes)
        return replace(self, frame=self.frame.with_columns(times.alias(name)), times=written)

    def _mixed_offsets(self, text: pl.Series, *, local: bool) -> tuple[Finding, ...]:
        """Returns a note where text times carry several offsets from UTC (a clock change is two)."""
        offsets = text.str.extract(OFFSETS)
        kinds = offsets.unique(maintain_order=True).drop_nulls()
        if len(kinds) < 2:
            return ()
        others = (offsets != kinds[0]).arg_true()
        shown = ", ".join(kinds[:4]) + ", ..." * (len(kinds) > 4)
        found = f"times in '{text.name}' are written with {len(kinds)} offsets from UTC: {shown}"
        advice, where = "nothing to do: all are read as UTC", self.place(int(others[0]) + 1)
        if local:
            found += ", and always at one clock: days of a place"
            advice = "nothing to do: they are read as days there"
        return (Finding("note", "zones", found, advice, where=where, count=len(others)),)


def join_times(frame: Frame, time: str | None, where: str) -> tuple[Frame, TimeParts]:
    """Returns rows with the columns of a time's parts as one column of text, and part and dtype of each.

    Args:
        frame: unchanged where `time` is one column, or where it has none of several.
        time: names of the columns, with commas between them.
        where: table, for messages.

    Raises:
        DataError: some of the columns are missing, or no columns of parts.
    """
    kinds: Mapping[str, pl.DataType] = frame.collect_schema()
    names: list[str] = [] if time is None or time in kinds else time.split(",")
    if len(names) < 2 or not {*names} & {*kinds}:
        return frame, {}
    refuse_errors(missing_columns(names, [*kinds], where, "--time"))
    dated = not kinds[names[0]].is_integer() or "date" in names[0].lower()
    whole = dated and "year" not in names[0].lower() and len(names) == 2
    parts = dict(zip(names, DATE_AND_CLOCK, strict=True)) if whole else parts_of(names, where)
    # Whole numbers of a column with gaps are 7.0, and days of a frame often timestamps at midnight.
    zeros = r"( 00:00:00)?\.0+$"
    texts = {name: pl.col(name).cast(pl.String).str.replace(zeros, "") for name in parts}
    pieces = (pl.lit(PARTS[part][1]) + texts[name].str.zfill(2) for name, part in parts.items())
    text = pl.concat_str(pieces).str.replace("Q0", "Q")
    joined = frame.with_columns(text.alias(str(time))).drop(names)
    return joined, {name: (part, str(kinds[name].base_type())) for name, part in parts.items()}


def missing_columns(names: Sequence[str], known: Sequence[str], where: str, flag: str) -> list[Finding]:
    """Returns an error for each name that is no column, with the nearest one and a list of all."""
    found, advice = [], f"the columns are {listing(known)}"
    for name in without(names, known):
        text = f"{where}: no column '{name}' ({flag}){did_you_mean(name, known)}"
        found.append(Finding("error", "missing-column", text, advice, where=name))
    return found


@dataclass(frozen=True)
class TableFile:
    """One file of a table."""

    name: str
    """Path or URL."""
    keys: tuple[tuple[str, str], ...] = ()
    """Names and values of the columns that its folders add, as year=2024."""


def read_tables(
    sources: Mapping[str, object], data: DataConfig, decimals: Decimals | None = None
) -> dict[str, Table]:
    """Returns tables that are read together, without those that are None: they have one decimal mark.

    Args:
        sources: "table", and further ones, which are never one row per series.
        data: delimiter and decimal mark where they are declared, and the layout of the table.
        decimals: marks of a model.

    Raises:
        DataError: a table cannot be read, or has another decimal mark than another one.
    """
    faults, tables = Faults("unreadable"), dict[str, Table]()
    given = {name: source for name, source in sources.items() if source is not None or name == "table"}

    def read(name: str, decimals: Decimals | None) -> None:
        how = data if name == "table" else data.model_copy(update={"layout": None})
        with faults:
            tables[name] = read_table(given[name], how, decimals)

    for name in given:
        read(name, decimals)
    faults.refuse()
    comma = [table.name for table in tables.values() if {*table.marks.values()} == {","}]
    if comma and data.decimal is None and not (decimals and decimals.all):
        known = Decimals(others=",", origin=f" as in {comma[0]}, not '.'")
        for name in [name for name, table in tables.items() if "." in table.marks.values()]:
            read(name, known)
        faults.refuse()
    return tables


def read_table(
    source: object, data: DataConfig | None = None, decimals: Decimals | None = None
) -> Table:
    """Returns the table of a path, a folder, a glob, a URL, or a pandas, polars or Arrow frame.

    Args:
        source: CSV (also gzip or Zstandard), Excel, Parquet or Arrow file; a folder or a glob of such files,
            read in natural order; a URL as https:// or s3://; or a frame or series. The index of a
            pandas frame becomes columns where it is named, holds dates or has several levels.
        data: delimiter and decimal mark where they are declared, the layout, and the parts of a time.
        decimals: marks that hold unless one is declared.

    Raises:
        DataError: there is no such file, it is empty or unreadable, names repeat, or there are no rows.

    Example:
        >>> read_table(pl.DataFrame({" y ": [1.0]})).frame.columns
        ['y']
    """
    data = data or DataConfig()
    if data.decimal is not None or decimals is None:
        decimals = Decimals(others=data.decimal)
    is_path = isinstance(source, str | Path)
    table = _read_files(str(source), data, decimals) if is_path else _read_frame(source)
    check_names(table.frame.columns, table.name)
    table = replace(table, frame=table.frame.rename(str.strip)).with_time(data.time)
    frame = table.frame
    if frame.height == 0:
        found = f"the columns {listing(frame.columns)} and no rows" if frame.columns else "nothing"
        raise DataError(f"{table.name}: expected a header and rows, found {found}")
    return table


def to_kind(frame: pl.DataFrame, kind: str, original: Original = _PLAIN) -> AnyFrame:
    """Returns a frame in the caller's own kind ("file" stays polars), labels and dtypes."""
    if kind == "pandas":
        return to_pandas(frame, original)
    return frame.to_arrow() if kind == "pyarrow" else frame


def to_pandas(frame: pl.DataFrame, original: Original = _PLAIN) -> PandasFrame:
    """Returns a frame as a pandas frame, with the labels and dtypes of the caller's."""
    import pandas as pd

    result = frame.to_pandas(use_pyarrow_extension_array=original.arrow)
    if original.nullable:
        for name in frame.select(pl.selectors.numeric()).columns:
            result[name] = pd.array(result[name].to_numpy())
    for name in result.columns.intersection([*original.dtypes]):
        result[name] = _with_dtype(frame[name], original.dtypes[name])
    labels = original.labels
    if labels and "channel" in result:
        result["channel"] = [labels.get(name, name) for name in result["channel"]]
    return result.rename(columns=labels)


def _with_dtype(column: pl.Series, dtype: Any) -> Any:
    """Returns a pandas series of a dtype, or of its own where that cannot hold the values."""
    import pandas as pd

    values = column.to_pandas()
    if dtype.kind == "O" and column.dtype == pl.Date:
        return pd.Series(column.to_list(), dtype=object)
    if isinstance(dtype, pd.CategoricalDtype) and not values.isin(dtype.categories).all():
        return values  # an id that only a future table has
    try:
        cast = values.astype(dtype)
        # int8 wraps at 128 without a word.
        return cast if cast.astype(values.dtype).equals(values) else values
    except (TypeError, ValueError):
        return values


def frame_of(columns: Mapping[str, Sequence[Any]]) -> pl.DataFrame:
    """Returns a polars frame, for modules that do not import polars; values of mixed kinds become text."""
    return pl.DataFrame(columns, strict=False)


def merge_parts(
    files: Sequence[Path], out: Path, suffix: str, as_text: Callable[[pl.DataFrame], pl.DataFrame]
) -> None:
    """Writes the rows of Parquet files, in order, to a .csv (`as_text`), .parquet or .xlsx file, a few at a time.

    Raises:
        OSError: the file cannot be written.
        OutputError: a sheet does not hold them.
    """
    if suffix == ".xlsx":
        out.write_bytes(write_sheet(pl.concat(map(pl.read_parquet, files)), str(out), as_text))
        return
    if suffix == ".parquet":
        scan = pl.scan_parquet(list(files), hive_partitioning=False, glob=False)
        try:
            scan.sink_parquet(out, row_group_size=_ROW_GROUP, maintain_order=True)
        except pl.exceptions.ComputeError as error:  # parquet: …: underlying IO error: No space left …
            raise OSError(str(error).rpartition(": ")[2]) from error
        return
    with out.open("wb") as target:
        for number, file in enumerate(files):
            part = pl.read_parquet(file, hive_partitioning=False, glob=False)
            # Straight to a full disk, polars 1.41 loses the last rows without an error.
            text = as_text(part).write_csv(include_header=number == 0)
            target.write(text.encode())


def parquet_cells(file: Path) -> int | None:
    """Returns rows times columns of a Parquet file; None for any other file, and for a broken one.

    The size of the file says little: cells are compressed by factors that differ a hundredfold.
    """
    try:
        if first_bytes(file, 4) != b"PAR1":
            return None
        scan = pl.scan_parquet(file, hive_partitioning=False, glob=False)
        rows: int = scan.select(pl.len()).collect().item()
        return rows * len(scan.collect_schema())
    except _BAD_FILE:
        return None


# Files


def find_files(source: str) -> tuple[list[TableFile], list[Finding]]:
    """Returns the files of a path, a folder, a glob or a URL in natural order (part-2 before part-10).

    In a folder, hidden files, those that begin with _ or ~ and those without the name of a table are left
    out; a note lists the last.

    Raises:
        DataError: there is no such file, or the server does not answer.
    """
    if source.lower().startswith("file://"):
        source = urllib.request.url2pathname(urllib.parse.urlsplit(source).path)
    check_paths(source)
    path, is_url = Path(source).expanduser(), "://" in source
    if is_url:
        listed = _list_url(source)
        if listed is None:
            return [TableFile(source)], []
        names = listed
    elif path.is_dir():
        names = [str(file) for file in path.rglob("*") if file.is_file()]
    elif path.exists():
        return [TableFile(str(path))], []
    else:
        names = [name for name in glob.glob(str(path), recursive=True) if Path(name).is_file()]
    names, root = sorted(names, key=natural), source if is_url else str(path)
    if glob.has_magic(source):
        if not names:
            where = "" if is_url else f" (looked in {Path.cwd()})"
            raise fault("no-file", f"{source}: no file matches this pattern{where}", "")
        fixed = len(re.split(r"[*?\[]", root)[0])
        return [TableFile(name, _keys(name[fixed:])) for name in names], []
    shown = {name: name[len(root.rstrip("/")) + 1 :] for name in names}
    shown = {name: rest for name, rest in shown.items() if not re.search(r"(?:^|/)[._~]", rest)}
    tables = [TableFile(name, _keys(rest)) for name, rest in shown.items() if TABLE_NAME.search(rest)]
    others = listing([rest for rest in shown.values() if not TABLE_NAME.search(rest)]) or "none"
    if not tables:
        text = f"{source}: expected CSV, Excel, Parquet or Arrow files in the folder, found {others}"
        raise fault("no-file", text, "pass the file itself")
    text = f"{len(tables)} files are read as one table; ignored: {others}"
    return tables, [Finding("note", "files", text, "pass a glob to choose others", count=len(tables))]


def _keys(path: str) -> tuple[tuple[str, str], ...]:
    parts = [part.partition("=") for part in re.split(r"[/\\]", path)[:-1]]
    return tuple((key, urllib.parse.unquote(value)) for key, sign, value in parts if key and sign)


def _read_files(source: str, data: DataConfig, decimals: Decimals) -> Table:
    files, notes = find_files(source)
    if len(files) == 1 and not files[0].keys:
        only = _read_file(files[0], data, decimals)
        text = _text_of(files, [only.frame.height], data)
        notes += only.notes
        return Table(only.frame, source, "file", summed(notes), text=text, marks=only.marks)
    read, faults, alone = [], Faults("unreadable"), replace(decimals, undecided=True)
    for file in files:
        with faults:
            read.append(_read_file(file, data, alone))
    faults.refuse()
    commas = [at for at, one in enumerate(read) if "," in one.marks.values()]
    for at, file in enumerate(files):
        if commas and at not in commas and read[at].marks:
            # A point assumed to be decimal may group thousands: decided again, with the others' mark.
            with faults:
                read[at] = _read_file(file, data, replace(decimals, seen={","}))
    faults.refuse()
    notes += [note for one in read for note in one.notes]
    frames = aligned(files, [one.frame for one in read])
    heights = [part.height for part in frames]
    # A column that is empty in one file says nothing about its kind there.
    frames = [
        part.with_columns(pl.lit(None).alias(c.name) for c in part if c.null_count() == len(c))
        for part in frames
    ]
    text, columns = _text_of(files, heights, data), frames[0].columns
    kinds = {name: {frame.schema[name] for frame in frames} - {pl.Null} for name in columns}
    # Text in one file and numbers in another: decided again, over all files.
    mixed = [name for name, found in kinds.items() if pl.String in found and len(found) > 1]
    try:
        frame = pl.concat([part.drop(mixed) for part in frames], how="vertical_relaxed")
        frame = frame.with_columns(text(mixed) if mixed else ()).select(columns)
    except pl.exceptions.PolarsError as error:
        what = f"{source}: a column is of different kinds in different files ({one_line(error)})"
        raise fault("kinds", what, "write it in one way") from error
    parts = tuple(zip((file.name for file in files), heights, strict=True))
    table = Table(frame, source, "file", parts=parts, text=text)
    texts = [column.name for column in frame if column.dtype == pl.String]
    ids = common(texts, data.series or ())
    frame = frame.with_columns(as_ids(frame[name]) for name in ids)
    others = frame.select(without(texts, ids))
    pairs = [pair for one in read for pair in one.marks.items()]
    shown = {name: "" if (name, ",.".replace(mark, "")) in pairs else mark for name, mark in pairs}
    seen = {mark for name, mark in pairs if name not in texts}
    own = decimals.columns or {name: mark for name, mark in shown.items() if mark == ","}
    decimals = replace(decimals, columns=own, seen=seen)
    typed, decided, more = as_numbers(others, decimals, source, table.place)
    notes, frame = [*notes, *more], frame.with_columns(typed)
    return replace(table, frame=frame, notes=summed(notes), marks=shown | decided)


def aligned(files: Sequence[TableFile], frames: Sequence[Frame]) -> list[Frame]:
    """Returns the rows of files with the same columns in one order.

    Raises:
        DataError: a file has other columns than the first.
    """
    names: list[list[str]] = [frame.collect_schema().names() for frame in frames]
    for file, columns in zip(files, names, strict=True):
        if odd := listing(sorted(set(columns) ^ set(names[0]))):
            text = f"{file.name}: expected the columns of {files[0].name}, found a difference in {odd}"
            raise fault("columns", text, "read the files separately, or fix the header")
    return [frame.select(names[0]) for frame in frames]


def _text_of(
    files: Sequence[TableFile], heights: Sequence[int], data: DataConfig
) -> Callable[[Collection[str]], pl.DataFrame]:
    """Returns what reads columns of files again as text."""

    def text(names: Collection[str]) -> pl.DataFrame:
        parts = []
        for file, height in zip(files, heights, strict=True):
            content, kind = _content_of(file.name)
            if kind == "text":
                frame = read_text(content, file.name, data, names)
            elif kind == "workbook":
                frame = read_sheet_text(content, file.name, data, names)
            else:
                frame = _read_file(file, data, Decimals()).frame
            columns = pl.col([*names]).cast(pl.String)
            parts.append(_with_keys(frame, file).select(columns).head(height))
        return pl.concat(parts)

    return text


def _content_of(name: str) -> tuple[Content, str]:
    """Returns the bytes of a file, unpacked, and their format."""
    content = _unpacked(_fetch(name) if "://" in name else Path(name))
    return content, format_of(first_bytes(content, 512), name)


def _read_file(file: TableFile, data: DataConfig, decimals: Decimals) -> Parsed:
    name = file.name
    try:
        content, kind = _content_of(name)
        if kind == "text":
            parsed = read_csv(content, name, data, decimals)
        elif kind == "workbook":
            parsed = read_sheet(content, name, data)
        else:
            return Parsed(scan_file(content, kind, file).collect(), {}, [])
        return parsed._replace(frame=_with_keys(parsed.frame, file))
    except pl.exceptions.NoDataError:
        raise fault("empty", f"{name}: expected a header and rows, found an empty file", "") from None
    except _BAD_FILE as error:
        raise unreadable(name, error) from error


def scan_file(content: Content, kind: str, file: TableFile) -> pl.LazyFrame:
    """Returns the rows of a Parquet or Arrow file, unread."""
    packed = io.BytesIO(content) if isinstance(content, bytes) else content
    if kind == "parquet":
        scan = pl.scan_parquet(packed, hive_partitioning=False, glob=False)
    else:
        scan = pl.scan_ipc(packed)
    names = scan.collect_schema().names()
    check_names(names, file.name)
    return _with_keys(scan.rename({name: name.strip().lstrip("\ufeff") for name in names}), file)


def _with_keys(frame: Frame, file: TableFile) -> Frame:
    kinds, empty = frame.collect_schema(), "__HIVE_DEFAULT_PARTITION__"
    keys = {key: None if value == empty else value for key, value in file.keys}
    return frame.with_columns(
        pl.lit(value, pl.String).alias(key) for key, value in keys.items() if key not in kinds
    )


def format_of(head: bytes, name: str) -> str:
    """Returns "parquet", "arrow", "workbook" or "text" for the first 512 bytes of a file; refuses others."""
    if _WORKBOOK.match(head):
        return "workbook"
    for sign, what, advice in _FOREIGN:
        if head.startswith(sign):
            raise fault(
                "format", f"{name}: expected CSV, Excel, Parquet or Arrow, found {what}", advice
            )
    for sign, kind in ((b"PAR1", "parquet"), (b"ARROW1", "arrow")):
        if head.startswith(sign):
            return kind
    if re.search(r"\.(?:parquet|pq|arrow|feather|ipc)$", name, re.I):
        raise fault(
            "format",
            f"{name}: cannot be read (the content does not match the suffix)",
            "write it again",
        )
    return "text"


def unreadable(name: str, error: Exception) -> DataError:
    """Returns the error for a file on which a reader failed."""
    text, expected = f"{name}: cannot be read ({one_line(error)})", "CSV (UTF-8, one header line)"
    return fault("unreadable", text, f"expected {expected}, Excel, Parquet or Arrow")


def _unpacked(content: Content) -> Content:
    head = first_bytes(content, 4)
    if not head.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        return content
    packed = content if isinstance(content, bytes) else content.read_bytes()
    if head.startswith(b"\x1f\x8b"):
        return gzip.decompress(packed)
    import pyarrow

    return bytes(pyarrow.CompressedInputStream(pyarrow.BufferReader(packed), "zstd").read())


# URLs: http and https directly, s3 and gs by pyarrow, every other scheme by its fsspec package.


def _fetch(url: str) -> bytes:
    with _reaching(url, "read"):
        if _scheme(url) in ("http", "https"):
            with urllib.request.urlopen(url, timeout=URL_TIMEOUT_SECONDS) as answer:
                return bytes(answer.read())
        files, path = _filesystem(url)
        return bytes(files.cat_file(path))


def _list_url(url: str) -> list[str] | None:
    """Returns the URLs of the files in a folder or of a pattern; None where the URL is one file."""
    scheme = _scheme(url)
    if scheme in ("http", "https"):
        return None
    with _reaching(url, "listed"):
        files, path = _filesystem(url)
        if any(sign in path for sign in "*?["):
            found = files.glob(path)
        elif files.isdir(path):
            found = files.find(path)
        else:
            return None
    return [f"{scheme}://{name.removeprefix(f'{scheme}://')}" for name in found]


def _scheme(url: str) -> str:
    return url.split("://", 1)[0].lower()


def _filesystem(url: str) -> tuple[Any, str]:
    """Returns the fsspec file system of a URL, and the path of the URL on it."""
    import fsspec

    scheme, path = _scheme(url), url.split("://", 1)[1]
    if scheme in ("s3", "gs"):
        import pyarrow.fs
        from fsspec.implementations.arrow import ArrowFSWrapper

        if scheme == "gs":
            patience = timedelta(seconds=URL_TIMEOUT_SECONDS)
            return ArrowFSWrapper(pyarrow.fs.GcsFileSystem(retry_time_limit=patience)), path
        # Unlike the class itself, a URI finds the bucket's region.
        bucket = pyarrow.fs.FileSystem.from_uri(f"s3://{path.split('/')[0]}")[0]
        return ArrowFSWrapper(bucket), path
    return fsspec.core.url_to_fs(url)


@contextmanager
def _reaching(url: str, what: str) -> Iterator[None]:
    """Turns the exceptions of whatever library reads a URL into one clear line."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
            reason = f"the server answers {error.code} {error.reason}"
        elif isinstance(error, urllib.error.URLError):
            reason = f"no answer: {error.reason}"
        elif isinstance(error, FileNotFoundError):
            reason = "there is no such file"
        else:
            reason = one_line(error) or type(error).__name__
        advice = "check the address and the credentials, or download the file"
        raise fault("url", f"{url}: cannot be {what} ({reason})", advice) from error


# Frames


def _read_frame(source: object) -> Table:
    given: Any = source.collect() if isinstance(source, pl.LazyFrame) else source
    if hasattr(given, "to_frame"):
        # A pandas or polars series is a frame of one column.
        given = given.to_frame() if given.name else given.rename("value").to_frame()
    libraries = {base.__module__.partition(".")[0] for base in type(given).__mro__}
    kind = next((one for one in ("polars", "pandas", "pyarrow") if one in libraries), "arrow")
    if not hasattr(given, "columns" if kind in ("polars", "pandas") else "__arrow_c_stream__"):
        raise DataError(
            f"expected a path or a pandas, polars or pyarrow frame, found {type(source).__name__}"
        )
    name = f"the {kind} frame"
    if kind == "polars":
        return Table(given, name, kind)
    if kind == "pandas":
        if given.columns.nlevels > 1:
            text = f"{name}: expected one level of column names, found {given.columns.nlevels}"
            raise fault("names", text, "join them: frame.columns = frame.columns.map('/'.join)")
        check_names(map(str, given.columns), name)
        frame, original = _from_pandas(given, name)
        return Table(frame, name, kind, original=original)
    check_names(given.schema.names if kind == "pyarrow" else (), name)
    try:
        frame = pl.DataFrame(given)
    except _BAD_FRAME as error:
        raise fault("unreadable", f"{name}: cannot be read ({one_line(error)})", "cast it") from error
    return Table(frame, name, "pyarrow" if kind == "pyarrow" else "polars")


def _from_pandas(source: Any, name: str) -> tuple[pl.DataFrame, Original]:
    """Returns the rows of a pandas frame, its index as columns, and what it looks like."""
    import pandas as pd
    import pyarrow as pa

    frame = _with_index_as_columns(source.rename(columns=str), name)
    labels = {str(label): label for label in source.columns if not isinstance(label, str)}
    numbers = [dtype for dtype in frame.dtypes if pd.api.types.is_numeric_dtype(dtype)]
    arrow = bool(numbers) and all(isinstance(dtype, pd.ArrowDtype) for dtype in numbers)
    nullable = bool(numbers) and all(map(pd.api.types.is_extension_array_dtype, numbers))
    original = Original(labels, dict(frame.dtypes), nullable and not arrow, arrow)
    for column, dtype in zip(frame.columns, frame.dtypes, strict=True):
        if isinstance(dtype, pd.PeriodDtype):
            frame[column] = frame[column].dt.to_timestamp()
        elif isinstance(dtype, pd.SparseDtype):
            frame[column] = frame[column].sparse.to_dense()
        elif isinstance(dtype, pd.DatetimeTZDtype) and isinstance(dtype.tz, timezone):
            # A fixed offset is no zone here; the instants are the same.
            frame[column] = frame[column].dt.tz_convert("UTC")
    try:
        with warnings.catch_warnings():
            # pandas warns of the way in which pyarrow converts zoned times.
            warnings.simplefilter("ignore")
            return pl.DataFrame(pa.Table.from_pandas(frame, preserve_index=False)), original
    except _BAD_FRAME as error:
        text = f"{name}: expected one kind of value in a column ({'; '.join(map(str, error.args))})"
        raise fault("kinds", text, "cast or drop it") from error


def _with_index_as_columns(frame: Any, name: str) -> Any:
    import pandas as pd

    def dated(level: Any) -> bool:
        return isinstance(level, pd.DatetimeIndex | pd.PeriodIndex)

    index = frame.index
    levels = [index.get_level_values(k) for k in range(index.nlevels)]
    if len(levels) == 1 and index.name is None and not dated(levels[0]):
        return frame
    names: list[str] = []
    for k, level in enumerate(levels):
        wanted = ["time", "timestamp", "index"] if dated(level) else [f"level_{k}"]
        free = without(wanted, (*frame.columns, *names))
        names.append((free or wanted)[0] if level.name is None else str(level.name))
    both = common(names, frame.columns)
    if both:
        raise DataError(
            f"{name}: expected one column per name, found '{both[0]}' as an index and as a column; "
            "drop one of them"
        )
    return frame.reset_index(names=names)
