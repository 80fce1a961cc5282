"""Frames at the door: pandas, polars, Arrow, or what speaks Arrow's protocol, become one polars frame.

What comes in is the caller's frame; what goes out are its columns, an index among them where it is
named, holds dates or has several levels. A column of several kinds of value is named.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from forecaster.errors import DataError
from forecaster.panel.findings import fault
from forecaster.panel.reading.table import Table, one_line, refuse_repeats

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
