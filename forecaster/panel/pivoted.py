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
    """Returns the roles of a long table that is pivoted; any others as they are.

    Raises:
        DataError: the table, of this name, has labels, several targets or no times.
    """
    if not schema.pivots:
        return schema
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
    frame = rows.frame.with_columns(cs.float().fill_nan(None))
    keys = rows.keys.select(pl.col(key).cast(pl.String) for key in rows.keys.columns).rows()
    schema = rows.schema
    if pivot is None:
        pivot = _new_pivot(replace(rows, frame=frame), name, tuple(keys))
        schema = replace(schema, reasons=_reasons(schema, pivot))
    if unknown := ["/".join(key) for key in keys if key not in pivot.keys]:
        text = f"{name}: expected the series of the model, {listing(pivot.labels)}, found also "
        raise fault("keys", text + listing(unknown), "leave these out of the table, or fit again")
    shared = [covariate for covariate, columns in pivot.covariates.items() if len(columns) == 1]
    if varying := _varying(frame, shared):
        text = (
            f"{name}: column '{varying[0]}' differs between series at the same time; in the table of the "
            "model all had one value"
        )
        raise fault("columns", text, "correct it, or fit the model again on such a table")
    wide = pl.DataFrame({TIME: clock_of(rows)[0]}).with_columns(pl.lit(0, pl.UInt32).alias(SERIES))
    for channel, key in enumerate(pivot.keys):
        own = frame.filter(pl.col(SERIES) == keys.index(key)) if key in keys else frame.clear()
        made = {columns[channel]: one for one, columns in pivot.covariates.items() if one not in shared}
        named = {
            new: pl.col(old) for new, old in (made | {pivot.labels[channel]: pivot.target}).items()
        }
        wide = wide.join(own.select(TIME, **named), on=TIME, how="left", maintain_order="left")
    first = frame.group_by(TIME).agg(pl.col(column).drop_nulls().first() for column in shared)
    for covariate in shared:
        column = first.select(TIME, pl.col(covariate).alias(pivot.covariates[covariate][0]))
        wide = wide.join(column, on=TIME, how="left", maintain_order="left")
    return replace(rows, frame=wide, keys=pl.DataFrame(), schema=schema.pivoted(pivot))


def _new_pivot(rows: Rows, name: str, keys: tuple[Names, ...]) -> Pivot:
    schema = rows.schema
    if not 2 <= len(keys) <= MOST_CHANNELS:
        text = f"{name}: layout wide expects 2 to {MOST_CHANNELS} series, found {len(keys)}"
        raise fault("layout", f"{text}, named by {', '.join(schema.series)}", _DROP)
    for key in rows.keys:
        if not (key.dtype in TEXT or key.dtype.is_integer()):
            text = f"{name}: layout wide expects text or whole numbers as ids, found {key.dtype}"
            raise fault("keys", f"{text} in column '{key.name}'", "write them as text")
    pivot, covariates = Pivot(schema.series, schema.target[0], keys, {}), (*schema.known, *schema.past)
    made = {
        one: tuple(f"{one}/{label}" for label in pivot.labels)
        for one in _varying(rows.frame, covariates)
    }
    pivot = replace(pivot, covariates={one: made.get(one, (one,)) for one in covariates})
    taken = {schema.time}
    for column in itertools.chain(pivot.labels, *pivot.covariates.values()):
        if column in taken or "\0" in column:
            text = f"{name}: layout wide names columns by series, and '{column}' would be two of them"
            raise fault("names", text, "rename the series or the column")
        taken.add(column)
    return pivot


def _varying(frame: pl.DataFrame, names: Sequence[str]) -> list[str]:
    """Returns the columns that have several values at some time."""
    several = [(pl.col(name).drop_nulls().n_unique() > 1).alias(name) for name in names]
    at = frame.group_by(TIME).agg(several)
    return [name for name in names if at[name].any()]


def _reasons(schema: Schema, pivot: Pivot) -> dict[str, str]:
    added = dict.fromkeys(pivot.series, "; its series are channels of one series (layout wide)")
    for covariate, columns in pivot.covariates.items():
        added[covariate] = "; a column per series" if len(columns) > 1 else "; one for all series"
    return {column: why + added.get(column, "") for column, why in schema.reasons.items()}
