"""A table becomes sorted rows: series numbered, times as int64, repeated rows settled.

What comes in are a table and a schema; what goes out is one frame sorted by (series, time) with the
columns `SERIES` (number of the series in key order) and `TIME`, and the key of every series. The
order of the caller's rows never matters, except where rows are numbered because there is no clock,
and where it says which of two rows is the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from forecaster.config import DataConfig
from forecaster.panel.cells import (
    SERIES,
    TIME,
    mixed_offsets,
    parsed_table,
    read_times,
    read_values,
    require_keys,
)
from forecaster.panel.findings import Faults, Finding, fault
from forecaster.panel.order import Order, find_order
from forecaster.panel.repeats import Origin, settled
from forecaster.panel.schema import Schema
from forecaster.panel.table import Table


@dataclass(frozen=True)
class Rows:
    """Rows sorted by (series, time)."""

    frame: pl.DataFrame
    """`SERIES`, `TIME`, then numbers as Float32 and categories as text."""
    keys: pl.DataFrame
    """Key columns, one row per series; no columns where there is one series without a key."""
    schema: Schema
    """With the facts of the time column filled in."""
    notes: tuple[Finding, ...] = ()
    """What was noticed; errors too, so that all faults of rows are told at once."""


def main_rows(table: Table, schema: Schema, data: DataConfig, order: Order | None = None) -> Rows:
    """Returns the rows of the table itself.

    Args:
        table: its columns of the schema are all there, covariates of other tables aside.
        schema: roles.
        data: says what becomes of rows that repeat.
        order: of the rows by the schema's series and time; None = not found yet.

    Raises:
        DataError: keys or times are missing or unreadable, or numbers are text: all such faults.
    """
    targets = schema.melted or schema.target
    wanted = (*targets, *schema.past, *schema.known, *schema.static)
    own = [name for name in dict.fromkeys(wanted) if name in table.frame.columns]
    keys = [] if schema.melted else list(schema.series)
    columns, faults = [], Faults()
    with faults:
        # A schema with a frequency is that of a model: its clock must be this table's.
        table = parsed_table(table, schema, data.time_format)
        schema, times = read_times(table, schema, same_clock=bool(schema.freq))
    with faults:
        require_keys(table, keys)
    for name in own:
        with faults:
            columns.append(read_values(table, name, schema))
    faults.refuse()
    frame = pl.DataFrame([*(table.frame[key] for key in keys), times, *columns])
    if schema.melted:
        frame, keys = _melted(frame, schema.melted, table), ["channel"]
    given = frame.select(*keys, TIME)
    if order is None or schema.melted:
        order = find_order(given.select(keys), given[TIME].to_numpy())
    series, frame = order.keys, order.placed(frame.drop(*keys, TIME))
    frame = frame.with_columns(pl.Series(TIME, order.time), pl.Series(SERIES, order.number))
    notes = mixed_offsets(table)
    if schema.time is None:
        frame = _numbered_rows(frame, schema.target)
    else:
        origin = Origin(table, schema.time, given, series)
        frame, found = settled(frame, order, origin, data.on_duplicates)
        notes += found
    schema = replace(schema, dtypes=_dtypes(table, schema))
    return Rows(frame, series, schema, tuple(notes))


def _melted(frame: pl.DataFrame, channels: Sequence[str], table: Table) -> pl.DataFrame:
    rest = [name for name in frame.columns if name not in channels]
    taken = [name for name in rest if name in ("channel", "value")]
    if taken:
        raise fault(
            "names",
            f"{table.name}: layout long makes the columns 'channel' and 'value', but '{taken[0]}' is "
            "a covariate",
            "rename it",
            where=taken[0],
        )
    return frame.unpivot(
        on=channels, index=rest, variable_name="\0channel", value_name="\0value"
    ).rename({"\0channel": "channel", "\0value": "value"})


def _numbered_rows(frame: pl.DataFrame, target: Sequence[str]) -> pl.DataFrame:
    observed = pl.any_horizontal(pl.col(name).fill_nan(None).is_not_null() for name in target)
    position = pl.int_range(pl.len(), dtype=pl.Int64)
    last = pl.when(observed).then(position).max().fill_null(pl.len().cast(pl.Int64) - 1)
    return frame.with_columns((position - last).over(SERIES).alias(TIME))


def _dtypes(table: Table, schema: Schema) -> dict[str, str]:
    names = () if schema.melted else schema.series
    return {name: str(table.frame[name].dtype) for name in names}
