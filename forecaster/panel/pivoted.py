"""Layout "wide" of a long table: its series become the channels of one series, aligned by time.

Rows are read as those of a long table, second tables included; then each time becomes one row. A
covariate with one value for all series at every time stays one column; others, and the target, become
a column per series. What a fit decided holds for later tables.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import polars.selectors as cs

from forecaster.panel.findings import fault, listing
from forecaster.panel.frames import TEXT
from forecaster.panel.rows import SERIES, TIME, Ints, Rows
from forecaster.panel.schema import Names, Pivot, Schema

MOST_CHANNELS = 50
"""Series of a pivoted table: each channel reads up to 49 others."""
_DROP = "drop --layout to forecast each series by itself"


def without_statics(schema: Schema, name: str) -> Schema:
    """Returns the roles of a long table that is to be pivoted.

    Raises:
        DataError: the table, of this name, has labels, several targets or no times.
    """
    where = f"{name}: layout wide of several series"
    if schema.label is not None:
        text = f"{where} has no labels, but '{schema.label}' is a column of labels (--label)"
        raise fault("layout", text, "drop --layout")
    if schema.time is None:
        raise fault("layout", f"{where} expects a column of times, but rows are numbered", _DROP)
    if len(schema.target) > 1:
        text = f"{where} expects one target, found {listing(schema.target)}"
        raise fault("layout", text, f"name one of them with --target, or {_DROP}")
    dropped = dict.fromkeys(schema.static, "ignored: constant within a channel")
    return replace(schema, static=(), reasons=schema.reasons | dropped)


def check_storable(schema: Schema, name: str) -> None:
    """Raises a DataError for roles of a long table that is pivoted: it cannot be read in parts."""
    if schema.as_read.pivots:
        text = f"{name}: layout wide of several series is read whole, and has no panel store"
        raise fault("layout", text, "pass the table itself, with fewer rows where memory is short")


def clock_of(rows: Rows) -> tuple[Ints, Ints]:
    """Returns the times of all series as those of one series: see `Rows.layout`."""
    times = np.unique(rows.frame[TIME].to_numpy())
    return times, np.array([0, len(times)])


def pivoted(rows: Rows, name: str, pivot: Pivot | None) -> Rows:
    """Returns a row per time, and columns as a pivot makes them.

    Args:
        rows: of a long table, its covariates and future rows.
        name: of the table.
        pivot: of a model; None = found here.

    Raises:
        DataError: too few or too many series, names that would be used twice, a series that the model
            lacks, or several values of a covariate that is shared by all series.
    """
    frame, schema = rows.frame.with_columns(cs.float().fill_nan(None)), rows.schema
    keys = rows.keys.select(pl.col(key).cast(pl.String) for key in rows.keys.columns).rows()
    if pivot is None:
        pivot = _new_pivot(replace(rows, frame=frame), name, tuple(keys))
        schema = replace(schema, reasons=_reasons(schema, pivot))
    if unknown := ["/".join(key) for key in keys if key not in pivot.keys]:
        text = f"{name}: expected the series of the model, {listing(pivot.labels)}, found also "
        raise fault("keys", text + listing(unknown), "leave these out of the table, or fit again")
    shared = {one: columns[0] for one, columns in pivot.covariates.items() if len(columns) == 1}
    if varying := _varying(frame, [*shared]):
        text = f"{name}: expected one value of '{varying[0]}' at each time, as the model was fitted to"
        raise fault("columns", f"{text}, found several", "correct the column, or fit again")
    first = (pl.col(one).drop_nulls().first().alias(column) for one, column in shared.items())
    wide = frame.group_by(TIME).agg(first).sort(TIME).with_columns(pl.lit(0, pl.UInt32).alias(SERIES))
    apart = {one: columns for one, columns in pivot.covariates.items() if one not in shared}
    for columns in zip(pivot.keys, pivot.labels, *apart.values(), strict=True):
        key, *new = columns
        own = frame.filter(pl.col(SERIES) == keys.index(key)) if key in keys else frame.clear()
        named = map(pl.Expr.alias, map(pl.col, (pivot.target, *apart)), new)
        wide = wide.join(own.select(TIME, *named), on=TIME, how="left", maintain_order="left")
    return replace(rows, frame=wide, keys=pl.DataFrame(), schema=schema.pivoted(pivot))


def _new_pivot(rows: Rows, name: str, keys: tuple[Names, ...]) -> Pivot:
    schema, expected = rows.schema, f"{name}: layout wide expects"
    if not 2 <= len(keys) <= MOST_CHANNELS:
        found = f"found {len(keys)}, named by {', '.join(schema.series)}"
        raise fault("layout", f"{expected} 2 to {MOST_CHANNELS} series, {found}", _DROP)
    for key in rows.keys:
        if not (key.dtype in TEXT or key.dtype.is_integer()):
            text = f"{expected} text or whole numbers as ids, found {key.dtype} in column '{key.name}'"
            raise fault("keys", text, "write them as text")
    pivot, covariates = Pivot(schema.series, schema.target[0], keys, {}), (*schema.known, *schema.past)
    made: dict[str, Names] = {one: (one,) for one in covariates}
    made |= {one: tuple(f"{one}/{s}" for s in pivot.labels) for one in _varying(rows.frame, covariates)}
    names = [schema.time or "", *pivot.labels, *itertools.chain(*made.values())]
    for column in names:
        if names.count(column) > 1 or "\0" in column:
            text = f"{name}: layout wide names columns by series, and '{column}' would be two of them"
            raise fault("names", text, "rename the series or the column")
    return replace(pivot, covariates=made)


def _varying(frame: pl.DataFrame, names: Sequence[str]) -> list[str]:
    """Returns the columns that have several values at some time."""
    at = frame.group_by(TIME).agg(pl.col(names).drop_nulls().n_unique() > 1)
    return [name for name in names if at[name].any()]


def _reasons(schema: Schema, pivot: Pivot) -> dict[str, str]:
    added = dict.fromkeys(pivot.series, "; its series are channels of one series (layout wide)")
    for covariate, columns in pivot.covariates.items():
        added[covariate] = "; a column per series" if len(columns) > 1 else "; one for all series"
    return {column: why + added.get(column, "") for column, why in schema.reasons.items()}
