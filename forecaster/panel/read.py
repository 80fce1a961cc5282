"""A table at the door: what comes in is a path, a glob or a frame; what goes out is one polars frame.

Promises: a CSV in any dialect, a Parquet or Arrow file and a frame of the same rows give the same
table, except that dates in a CSV stay text. Names of columns carry no stray blanks and are unique. No
value is changed and no row is dropped but empty ones at the end of a CSV; what was found other than
usual is told in `Table.notes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.reading.files import read_files
from forecaster.panel.reading.frames import read_frame
from forecaster.panel.reading.table import Table, listing, refuse_repeats

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
