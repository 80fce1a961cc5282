"""Files become one table: a path, a folder, a glob or a URL comes in, one frame goes out.

Several files are read in natural order (part-2 before part-10) and must have the same columns; folders
called key=value add a column. In folders, what is hidden or begins with _ is passed over, as is what is
no table by its name. The kind of a column is decided over all files. The format is told by the first
bytes, not by the name: Parquet, Arrow IPC, or delimited text, plain, gzip or Zstandard.
"""

from __future__ import annotations

import glob
import gzip
import io
import re
import urllib.parse
import urllib.request
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.findings import Faults, Finding, fault
from forecaster.panel.reading.delimited import first_bytes, read_delimited
from forecaster.panel.reading.numerals import as_numbers
from forecaster.panel.reading.remote import fetch, list_files
from forecaster.panel.reading.table import (
    Table,
    did_you_mean,
    gathered,
    listing,
    one_line,
    refuse_repeats,
)

_NAMES = re.compile(r"\.(?:csv|tsv|tab)(?:\.gz|\.zst)?$|\.(?:parquet|pq|arrow|feather|ipc)$", re.I)
_FOREIGN = (
    (b"PK\x03\x04", "a zip archive or a workbook", "unpack it, or save the sheet as CSV"),
    (b"BZh", "a bzip2 archive", "unpack it, or pack it with gzip"),
    (b"\xfd7zXZ", "an xz archive", "unpack it, or pack it with gzip"),
    (b"\xd0\xcf\x11\xe0", "an old workbook", "save the sheet as CSV"),
    (b"<!", "a web page", "pass the address of the file itself"),
    (b"<html", "a web page", "pass the address of the file itself"),
    (b"<?xml", "XML", "write it as CSV or Parquet"),
    (b'{"', "JSON", "write it as CSV or Parquet"),
    (b"[{", "JSON", "write it as CSV or Parquet"),
)
_BROKEN = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    OSError,
    ValueError,
    EOFError,
    zlib.error,
)


@dataclass(frozen=True)
class PlacedFile:
    """A file, and what its place says."""

    name: str
    """Path or URL."""
    keys: tuple[tuple[str, str], ...] = ()
    """Columns that its folders name, with their value."""


def read_files(source: str, data: DataConfig) -> Table:
    """Returns the table of a file, a folder, a glob or a URL.

    Raises:
        DataError: there is no such file, one cannot be read, or files do not fit together.
    """
    files, notes = find_files(source)
    if len(files) == 1 and not files[0].keys:
        frame, more = _read_file(files[0], data)
        return Table(frame, source, "file", gathered([*notes, *more]))
    frames, faults = [], Faults("unreadable")
    for file in files:
        with faults:
            frame, more = _read_file(file, data)
            frames.append(frame)
            notes += more
    faults.refuse()
    frames, texts = _alike(files, frames, data)
    try:
        frame = pl.concat(frames, how="vertical_relaxed")
    except pl.exceptions.PolarsError as error:
        raise fault(
            "kinds",
            f"{source}: a column is of different kinds in different files ({one_line(error)})",
            "write it in one way",
        ) from error
    parts = tuple((file.name, part.height) for file, part in zip(files, frames, strict=True))
    table = Table(frame, source, "file", parts=parts)
    floats = {"."} if any(dtype.is_float() for dtype in frame.dtypes) else set()
    typed, more = as_numbers(frame.select(texts), data.decimal, floats, source, table.place)
    return replace(table, frame=frame.with_columns(typed), notes=gathered([*notes, *more]))


def find_files(source: str) -> tuple[list[PlacedFile], list[Finding]]:
    """Returns the files behind a path, a folder, a glob or a URL, and what was passed over."""
    if "\0" in source or not _is_utf8(source):
        raise fault("no-file", f"{source!r}: not a name in UTF-8", "rename the file")
    if source.lower().startswith("file://"):
        source = urllib.request.url2pathname(urllib.parse.urlsplit(source).path)
    path = Path(source).expanduser()
    if "://" in source:
        names = list_files(source)
        if names is None:
            return [PlacedFile(source)], []
    elif path.is_dir():
        names = [str(file) for file in path.rglob("*") if file.is_file()]
    elif path.exists():
        return [PlacedFile(str(path))], []
    elif glob.has_magic(source):
        names = [name for name in glob.glob(str(path), recursive=True) if Path(name).is_file()]
    else:
        folder = path.resolve().parent
        near = sorted(other.name for other in folder.iterdir()) if folder.is_dir() else []
        hint = did_you_mean(path.name, near)
        raise fault("no-file", f"{source}: no such file (looked for {path.resolve()}){hint}", "")
    return _chosen(source, sorted(names, key=_natural))


def _is_utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _chosen(source: str, names: list[str]) -> tuple[list[PlacedFile], list[Finding]]:
    """Returns the files of a folder or a glob, and which others a folder holds."""
    root = source if "://" in source else str(Path(source).expanduser())
    if glob.has_magic(source):
        if not names:
            where = "" if "://" in source else f" (looked in {Path.cwd()})"
            raise fault("no-file", f"{source}: no file matches this pattern{where}", "")
        fixed = re.split(r"[*?\[]", root)[0]
        return [PlacedFile(name, _keys(name[len(fixed) :])) for name in names], []
    inside = [(name, name[len(root.rstrip("/")) + 1 :]) for name in names]
    shown = [(name, rest) for name, rest in inside if not re.search(r"(?:^|/)[._]", rest)]
    tables = [PlacedFile(name, _keys(rest)) for name, rest in shown if _NAMES.search(rest)]
    others = [rest for _, rest in shown if not _NAMES.search(rest)]
    if not tables:
        raise fault(
            "no-file",
            f"{source}: expected CSV, Parquet or Arrow files in the folder, found "
            f"{listing(others) or 'none'}",
            "pass the file itself",
        )
    said = f"{len(tables)} files are read as one table; passed over: {listing(others) or 'none'}"
    return tables, [Finding("note", "files", said, "pass a glob to choose others", count=len(tables))]


def _keys(path: str) -> tuple[tuple[str, str], ...]:
    parts = [part.partition("=") for part in re.split(r"[/\\]", path)[:-1]]
    return tuple((key, urllib.parse.unquote(value)) for key, sign, value in parts if key and sign)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _alike(
    files: list[PlacedFile], frames: list[pl.DataFrame], data: DataConfig
) -> tuple[list[pl.DataFrame], list[str]]:
    """Returns the frames with the same columns, and those that are still text as written."""
    columns = frames[0].columns
    for file, frame in zip(files, frames, strict=True):
        odd = sorted(set(frame.columns) ^ set(columns))
        if odd:
            raise fault(
                "columns",
                f"{file.name}: expected the columns of {files[0].name}, found a difference in "
                f"{listing(odd)}",
                "read them apart, or mend the header",
            )
    # A column that is empty in one file says nothing about its kind there.
    frames = [
        frame.select(columns).with_columns(
            pl.lit(None).alias(column.name) for column in frame if column.null_count() == len(column)
        )
        for frame in frames
    ]
    mixed = []
    for name in columns:
        kinds = {frame.schema[name] for frame in frames} - {pl.Null}
        if pl.String in kinds and len(kinds) > 1:
            mixed.append(name)
    if mixed:
        # Text in one file and numbers in another: decided again, over all files.
        frames = [_read_file(file, data, mixed)[0].select(columns) for file in files]
    return frames, [*mixed, *(key for key, _ in files[0].keys if frames[0][key].dtype == pl.String)]


def _read_file(
    file: PlacedFile, data: DataConfig, text: Sequence[str] = ()
) -> tuple[pl.DataFrame, list[Finding]]:
    name = file.name
    try:
        frame, notes = _read(fetch(name) if "://" in name else Path(name), name, data, text)
    except DataError:
        raise
    except pl.exceptions.NoDataError:
        raise fault("empty", f"{name}: expected a header and rows, found an empty file", "") from None
    except _BROKEN as error:
        raise unreadable(name, error) from error
    own = [(key, value) for key, value in file.keys if key not in frame.columns]
    empty = "__HIVE_DEFAULT_PARTITION__"
    return frame.with_columns(
        pl.lit(None if value == empty else value, pl.String).alias(key) for key, value in own
    ), notes


def _read(
    content: Path | bytes, name: str, data: DataConfig, text: Sequence[str]
) -> tuple[pl.DataFrame, list[Finding]]:
    content = _unpacked(content)
    kind = format_of(first_bytes(content, 6), name)
    packed = io.BytesIO(content) if isinstance(content, bytes) else content
    if kind == "text":
        return read_delimited(content, name, data, text)
    if kind == "parquet":
        frame = pl.read_parquet(packed, hive_partitioning=False, glob=False)
    else:
        frame = pl.read_ipc(packed)
    refuse_repeats(frame.columns, name)
    return frame.rename(lambda column: column.strip().lstrip("\ufeff")), []


def format_of(head: bytes, name: str) -> str:
    """Returns "parquet", "arrow" or "text" for the first bytes of a file.

    Raises:
        DataError: it is something else.
    """
    for sign, what, advice in _FOREIGN:
        if head.startswith(sign):
            raise fault("format", f"{name}: expected CSV, Parquet or Arrow, found {what}", advice)
    for sign, kind in ((b"PAR1", "parquet"), (b"ARROW1", "arrow")):
        if head.startswith(sign):
            return kind
    if re.search(r"\.(?:parquet|pq|arrow|feather|ipc)$", name, re.I):
        raise fault("format", f"{name}: cannot be read (not what its name says)", "write it anew")
    return "text"


def parquet_cells(file: Path) -> int | None:
    """Returns rows times columns of a Parquet file; None of any other, and of a broken one.

    How far cells are packed differs a hundredfold, so that the size of the file tells little.
    """
    try:
        if first_bytes(file, 4) != b"PAR1":
            return None
        scan = pl.scan_parquet(file, hive_partitioning=False, glob=False)
        rows: int = scan.select(pl.len()).collect().item()
        return rows * len(scan.collect_schema())
    except _BROKEN:
        return None


def unreadable(name: str, error: Exception) -> DataError:
    """Returns what to say of a file that a reader gave up on."""
    return fault(
        "unreadable",
        f"{name}: cannot be read ({one_line(error)})",
        "expected CSV (UTF-8, one header line), Parquet or Arrow",
    )


def _unpacked(content: Path | bytes) -> Path | bytes:
    head = first_bytes(content, 4)
    if head.startswith(b"\x1f\x8b"):
        return gzip.decompress(content if isinstance(content, bytes) else content.read_bytes())
    if head == b"\x28\xb5\x2f\xfd":
        import pyarrow

        raw = content if isinstance(content, bytes) else content.read_bytes()
        return pyarrow.CompressedInputStream(pyarrow.BufferReader(raw), "zstd").read()  # type: ignore[no-any-return]
    return content
