"""A table at the door: what comes in is a path, a glob or a frame; what goes out is one polars frame.

Promises: a CSV in any dialect, a Parquet or Arrow file and a frame of the same rows give the same
table, except that dates in a CSV stay text. Names of columns carry no stray blanks and are unique. No
value is changed and no row is dropped but empty ones at the end of a CSV; what was found other than
usual is told in `Table.notes`.


Files become one table: a path, a folder, a glob or a URL comes in, one frame goes out.

Several files are read in natural order (part-2 before part-10) and must have the same columns; folders
called key=value add a column. In folders, what is hidden or begins with _ is passed over, as is what is
no table by its name. The kind of a column is decided over all files. The format is told by the first
bytes, not by the name: Parquet, Arrow IPC, or delimited text, plain, gzip or Zstandard.


Files that lie elsewhere: what comes in is a URL, what goes out are names and bytes.

http and https are read as they are; s3 and gs by pyarrow, with the credentials and endpoints of the
environment (AWS_PROFILE, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, ...); every other scheme by
the fsspec package for it. A server that does not answer is given up after `PATIENCE_SECONDS`.


Frames at the door: pandas, polars, Arrow, or what speaks Arrow's protocol, become one polars frame.

What comes in is the caller's frame; what goes out are its columns, an index among them where it is
named, holds dates or has several levels. A column of several kinds of value is named.


Parts of a result become one file: Parquet files in order in, one CSV or Parquet file out.

Promised: memory for a few parts only; the bytes of the result depend on the rows alone.
"""

from __future__ import annotations

import glob
import gzip
import io
import re
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.csv import first_bytes, read_delimited
from forecaster.panel.findings import Faults, Finding, fault
from forecaster.panel.numbers import as_numbers
from forecaster.panel.table import (
    Table,
    did_you_mean,
    gathered,
    listing,
    one_line,
    refuse_repeats,
)

_AS_IS = DataConfig()


def read_table(source: object, data: DataConfig = _AS_IS) -> Table:
    """Returns the table behind a path, a folder, a glob, a URL, or a pandas, polars or Arrow frame.

    Args:
        source: CSV (also gzip or Zstandard), Parquet or Arrow file; a folder or a glob of such files,
            read in natural order; a URL as https:// or s3://; or a frame or series. The index of a
            pandas frame becomes columns where it is named, holds dates or has several levels.
        data: delimiter and decimal mark where they are declared, and the layout.

    Raises:
        DataError: there is no such file, it is empty or unreadable, names repeat, or there are no rows.

    Example:
        >>> read_table(pl.DataFrame({" y ": [1.0]})).frame.columns
        ['y']
    """
    if isinstance(source, Table):
        return source
    table = read_files(str(source), data) if isinstance(source, str | Path) else read_frame(source)
    refuse_repeats(table.frame.columns, table.name)
    frame = table.frame.rename(str.strip)
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
_UNREADABLE = (
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
    except _UNREADABLE as error:
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
    except _UNREADABLE:
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


PATIENCE_SECONDS = 20.0
_ADVICE = "check the address and the credentials, or download the file"


def fetch(url: str) -> bytes:
    """Returns the bytes behind a URL.

    Raises:
        DataError: there is nothing, the server does not answer, or a package for the scheme is missing.
    """
    scheme = _scheme(url)
    try:
        if scheme in ("http", "https"):
            with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
                return bytes(answer.read())
        files, path = _filesystem(url)
        return bytes(files.cat_file(path))
    except DataError:
        raise
    except Exception as error:
        # Every scheme has its own exceptions; none of them is a fault of ours.
        raise fault("url", f"{url}: cannot be read ({_reason(error)})", _ADVICE) from error


def list_files(url: str) -> list[str] | None:
    """Returns the URLs of the files that a folder or a pattern holds; None where it is one file.

    Raises:
        DataError: the server does not answer, or a package for the scheme is missing.
    """
    scheme = _scheme(url)
    if scheme in ("http", "https"):
        return None
    try:
        files, path = _filesystem(url)
        if any(sign in path for sign in "*?["):
            found = files.glob(path)
        elif files.isdir(path):
            found = files.find(path)
        else:
            return None
    except DataError:
        raise
    except Exception as error:
        raise fault("url", f"{url}: cannot be listed ({_reason(error)})", _ADVICE) from error
    return [f"{scheme}://{name.removeprefix(f'{scheme}://')}" for name in found]


def _scheme(url: str) -> str:
    return url.split("://", 1)[0].lower()


def _filesystem(url: str) -> tuple[Any, str]:
    """Returns what lists and reads files of a scheme, and the path it knows the URL by."""
    import fsspec

    scheme, path = _scheme(url), url.split("://", 1)[1]
    if scheme in ("s3", "gs"):
        from fsspec.implementations.arrow import ArrowFSWrapper

        return ArrowFSWrapper(_arrow_filesystem(scheme, path.split("/")[0])), path
    try:
        return fsspec.core.url_to_fs(url)  # type: ignore[no-any-return]
    except ImportError as error:
        needed = re.search(r"nstall (\w+) to|\"(\w+)\"", str(error))
        package = next((word for word in needed.groups() if word), "") if needed else ""
        raise fault(
            "url",
            f"{url}: expected a package that reads {scheme}://, found none",
            f"pip install {package or f'fsspec[{scheme}]'}",
        ) from error
    except ValueError as error:
        raise fault(
            "url",
            f"{url}: the scheme '{scheme}' is not known",
            "pass a path, or a URL as https:// or s3://",
        ) from error


def _arrow_filesystem(scheme: str, bucket: str) -> Any:
    import pyarrow.fs

    if scheme == "gs":
        return pyarrow.fs.GcsFileSystem(retry_time_limit=timedelta(seconds=PATIENCE_SECONDS))
    # Unlike the class itself, a URI finds the bucket's region.
    return pyarrow.fs.FileSystem.from_uri(f"s3://{bucket}")[0]


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"the server says {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return f"no answer: {error.reason}"
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return one_line(error) or type(error).__name__


_BROKEN = (ValueError, TypeError, NotImplementedError, pl.exceptions.PolarsError)


def read_frame(source: object) -> Table:
    """Returns the table of a frame or a series.

    Raises:
        DataError: it is none, or a column holds several kinds of value.
    """
    import narwhals as nw

    given: Any = source
    if isinstance(given, pl.LazyFrame):
        given = given.collect()
    if hasattr(given, "to_frame"):
        # A pandas or polars series is a frame of one column.
        given = given.to_frame() if given.name else given.rename("value").to_frame()
    try:
        kind = str(nw.from_native(given, eager_only=True).implementation.value)
    except nw.exceptions.DuplicateError:
        names = getattr(given, "column_names", given.columns)
        refuse_repeats([str(name) for name in names], "the frame")
        raise
    except TypeError:
        kind = "arrow" if hasattr(given, "__arrow_c_stream__") else ""
    if not kind:
        raise DataError(
            f"expected a path or a pandas, polars or pyarrow frame, found {type(source).__name__}"
        )
    name = f"the {kind} frame"
    if kind == "polars":
        return Table(given, name, kind)
    if kind == "pandas":
        return Table(_from_pandas(given, name), name, kind)
    try:
        frame = pl.DataFrame(given)
    except _BROKEN as error:
        raise fault("unreadable", f"{name}: cannot be read ({one_line(error)})", "cast it") from error
    return Table(frame, name, "pyarrow" if kind == "pyarrow" else "polars")


def _from_pandas(source: Any, name: str) -> pl.DataFrame:
    import pandas as pd

    frame = _with_index_as_columns(source.rename(columns=str), name)
    zones = {}
    for column, dtype in zip(frame.columns, frame.dtypes, strict=True):
        if isinstance(dtype, pd.PeriodDtype):
            frame[column] = frame[column].dt.to_timestamp()
        elif isinstance(dtype, pd.SparseDtype):
            frame[column] = frame[column].sparse.to_dense()
        elif isinstance(dtype, pd.DatetimeTZDtype):
            # pyarrow takes zoned times by a way that pandas is about to close.
            zones[column] = str(dtype.tz)
            frame[column] = frame[column].dt.tz_convert(None)
        elif isinstance(dtype, pd.CategoricalDtype) and dtype.categories.dtype != "str":
            # Categories of numbers, booleans or dates are those values.
            values = dtype.categories.to_series().convert_dtypes().dtype
            frame[column] = frame[column].astype(values)
    table = _columns_from_pandas(frame, name)
    return table.with_columns(_zoned(table[column], zone) for column, zone in zones.items())


def _columns_from_pandas(frame: Any, name: str) -> pl.DataFrame:
    try:
        return pl.from_pandas(frame)
    except _BROKEN:
        # Column by column, to name the one.
        for column in frame.columns:
            try:
                pl.from_pandas(frame[[column]])
            except _BROKEN as error:
                raise fault(
                    "kinds",
                    f"{name}: column '{column}': expected one kind of value, found "
                    f"{frame[column].dtype} ({one_line(error)})",
                    "cast or drop it",
                    where=f"column '{column}'",
                ) from error
        raise


def _zoned(times: pl.Series, zone: str) -> pl.Series:
    world = times.dt.replace_time_zone("UTC")
    try:
        return world.dt.convert_time_zone(zone)
    except pl.exceptions.PolarsError:
        # A fixed offset is no zone here; the instants are the same.
        return world


def _with_index_as_columns(frame: Any, name: str) -> Any:
    import pandas as pd

    index = frame.index
    levels = [index.get_level_values(k) for k in range(index.nlevels)]
    if len(levels) == 1 and index.name is None and not _dated(levels[0]):
        return frame
    taken, names = set(frame.columns), []
    for k, level in enumerate(levels):
        wanted = ["time", "timestamp", "index"] if _dated(level) else [f"level_{k}"]
        named = str(level.name) if level.name is not None else None
        names.append(named or next((free for free in wanted if free not in taken), wanted[-1]))
        taken.add(names[-1])
    both = [column for column in names if column in frame.columns]
    if both:
        raise DataError(
            f"{name}: expected one column per name, found '{both[0]}' as an index and as a column; "
            "drop one of them"
        )
    columns = {column: level for column, level in zip(names, levels, strict=True)}
    own = pd.DataFrame(columns).set_axis(frame.index)
    return pd.concat([own, frame], axis=1)


def _dated(level: Any) -> bool:
    import pandas as pd

    return isinstance(level, pd.DatetimeIndex | pd.PeriodIndex)


_ROW_GROUP = 1 << 17
"""Rows that a reader has to hold; fixed, so that the same rows give the same bytes."""


def merge_parts(files: Sequence[Path], out: Path, suffix: str) -> None:
    """Writes the rows of Parquet files of the same columns, in order, to one file.

    Args:
        files: at least one.
        out: the file.
        suffix: ".csv" or ".parquet".

    Raises:
        OSError: it cannot be written.
    """
    if suffix == ".parquet":
        scan = pl.scan_parquet(list(files), hive_partitioning=False, glob=False)
        scan.sink_parquet(out, row_group_size=_ROW_GROUP, maintain_order=True)
        return
    with out.open("wb") as target:
        for number, file in enumerate(files):
            pl.read_parquet(file, hive_partitioning=False, glob=False).write_csv(
                target, include_header=number == 0
            )
