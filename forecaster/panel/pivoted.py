"""A pivoted long table: the series of a group become the channels of one series, aligned by time.

Key columns name the group (`relate`); without any the whole table is one (layout "wide"). Rows are read
as those of a long table, second tables included; then each time of a group becomes one row. A covariate
with one value for all series of a group at every time stays one column; others, and the target, become
a column per channel. What a fit decided holds for later tables.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import polars.selectors as cs

from forecaster.panel.arrays import Ints
from forecaster.panel.findings import fault, listing
from forecaster.panel.frames import TEXT
from forecaster.panel.names import without
from forecaster.panel.order import find_order
from forecaster.panel.rows import SERIES, TIME, Rows
from forecaster.panel.schema import Names, Pivot, Schema

MOST_CHANNELS = 50
"""Of a pivoted table: each channel reads up to 49 others."""
_AT = [SERIES, TIME]


def _option(schema: Schema) -> tuple[str, str]:
    """Returns the option that pivots, and the advice to do without it."""
    name = f"relate {','.join(schema.relate)}" if schema.relate else "layout wide"
    return name, f"drop --{name.split()[0]} to forecast each series by itself"


def check_roles(schema: Schema, name: str) -> None:
    """Refuses roles of a long table that cannot be pivoted.

    Raises:
        DataError: the table, of this name, has classes, several targets or no times.
    """
    option, drop = _option(schema)
    where = f"{name}: {option} of several series"
    if schema.label is not None:
        text = f"{where} has no classes, but '{schema.label}' is a class column (--label)"
        raise fault("layout", text, drop.partition(" to ")[0])
    if schema.time is None:
        raise fault("layout", f"{where} expects a column of times, but rows are numbered", drop)
    if len(schema.target) > 1:
        text = f"{where} expects one target, found {listing(schema.target)}"
        raise fault("layout", text, f"name one of them with --target, or {drop}")


def check_storable(schema: Schema, name: str) -> None:
    """Raises a DataError for roles of a long table that is pivoted: it cannot be read in parts."""
    if schema.pivots:
        text = f"{name}: {_option(schema)[0]} of several series is read whole, and has no panel store"
        raise fault("layout", text, "pass the table itself, with fewer rows where memory is short")


def _distinct(rows: Rows, columns: Names) -> tuple[pl.DataFrame, Ints]:
    """Returns the different keys of some columns in order, and int64 [series] which each series has."""
    order = find_order(rows.keys.select(columns), np.zeros(rows.keys.height, np.int64))
    number = order.number.astype(np.int64)
    return order.keys, number if order.rows is None else number[np.argsort(order.rows)]


def _numbered(frame: pl.DataFrame, group: Ints) -> pl.DataFrame:
    """Returns rows with the numbers of their groups instead of those of their series."""
    return frame.with_columns(pl.Series(SERIES, group[frame[SERIES].to_numpy()], pl.UInt32))


def clock_of(rows: Rows) -> tuple[Ints, Ints]:
    """Returns the times of each group as those of one series: see `Rows.layout`."""
    keys, group = _distinct(rows, rows.schema.relate)
    frame = _numbered(rows.frame.select(_AT), group).unique().sort(_AT)
    return replace(rows, frame=frame, keys=keys).layout()


def pivoted(rows: Rows, name: str, pivot: Pivot | None) -> Rows:
    """Returns a row per group and time, and columns as a pivot makes them.

    Args:
        rows: of a long table, its covariates and future rows.
        name: of the table.
        pivot: of a model; None = found here.

    Raises:
        DataError: too few or too many channels, names that would be used twice, a series that the model
            lacks, or several values of a covariate that is shared by all series of a group.
    """
    schema, series = rows.schema, rows.frame[SERIES].to_numpy()
    groups, group = _distinct(rows, schema.relate)
    frame = _numbered(rows.frame.with_columns(cs.float().fill_nan(None)), group)
    keys = rows.keys.select(schema.channel_columns).cast(pl.String).rows()
    if pivot is None:
        pivot = _new_pivot(replace(rows, frame=frame), name)
        schema = replace(schema, reasons=_reasons(schema, pivot))
    if unknown := ["/".join(key) for key in dict.fromkeys(keys) if key not in pivot.keys]:
        text = f"{name}: expected the series of the model, {listing(pivot.series_names)}, found also "
        raise fault("keys", text + listing(unknown), "leave these out of the table, or fit again")
    # Without those that have no role in earlier rows alone.
    made = {one: columns for one, columns in pivot.covariates.items() if one in frame.columns}
    shared = {one: columns[0] for one, columns in made.items() if len(columns) == 1}
    if varying := _varying(frame, without(shared, schema.static)):
        text = f"{name}: expected one value of '{varying[0]}' at each time, as the model was fitted to"
        raise fault("columns", f"{text}, found several", "correct the column, or fit again")
    channel = np.array([pivot.keys.index(key) for key in keys], np.int64)
    first = (pl.col(one).drop_nulls().first().alias(column) for one, column in shared.items())
    wide = frame.group_by(_AT).agg(first).sort(_AT)
    apart = {one: columns for one, columns in made.items() if one not in shared}
    for number, new in enumerate(zip(pivot.series_names, *apart.values(), strict=True)):
        named = map(pl.Expr.alias, map(pl.col, (pivot.target, *apart)), new)
        part = frame.filter(channel[series] == number).select(*_AT, *named)
        wide = wide.join(part, on=_AT, how="left", maintain_order="left")
    members = np.zeros((max(groups.height, 1), len(pivot.keys)), bool)
    members[group, channel] = True
    rows = replace(rows, frame=wide, keys=groups, schema=schema.pivoted(pivot))
    return replace(rows, members=members) if schema.relate else rows


def _new_pivot(rows: Rows, name: str) -> Pivot:
    schema, (option, drop) = rows.schema, _option(rows.schema)
    expected, own = f"{name}: {option} expects", schema.channel_columns
    for key in rows.keys.select(own):
        if not (key.dtype in TEXT or key.dtype.is_integer()):
            text = f"{expected} text or whole numbers as ids, found {key.dtype} in column '{key.name}'"
            raise fault("keys", text, "write them as text")
    keys = tuple(_distinct(rows, own)[0].cast(pl.String).rows())
    if not 2 <= len(keys) <= MOST_CHANNELS:
        found = f"found {len(keys)}, named by {', '.join(own) or 'no further key'}"
        raise fault("layout", f"{expected} 2 to {MOST_CHANNELS} series, {found}", drop)
    pivot, covariates = Pivot(schema.series, schema.target[0], keys, {}), (*schema.known, *schema.past)
    varying = _varying(rows.frame, schema.static, [SERIES])
    made: dict[str, Names] = {one: (one,) for one in covariates + schema.static if one not in varying}
    made |= {
        one: tuple(f"{one}/{s}" for s in pivot.series_names) for one in _varying(rows.frame, covariates)
    }
    names = [schema.time or "", *schema.relate, *pivot.series_names, *itertools.chain(*made.values())]
    for column in names:
        if names.count(column) > 1 or "\0" in column:
            text = f"{name}: {option} names columns by series, and '{column}' would be two of them"
            raise fault("names", text, "rename the series or the column")
    return replace(pivot, covariates=made)


def _varying(frame: pl.DataFrame, names: Sequence[str], by: Sequence[str] = _AT) -> list[str]:
    """Returns the columns that have several values at some time of a group."""
    at = frame.group_by(by).agg(pl.col(names).drop_nulls().n_unique() > 1)
    return [name for name in names if at[name].any()]


def _reasons(schema: Schema, pivot: Pivot) -> dict[str, str]:
    option, one = _option(schema)[0], "; one for all series" + " of a group" * bool(schema.relate)
    added = dict.fromkeys(pivot.series, f"; its series are channels of one series ({option})")
    added |= dict.fromkeys(schema.relate, f"; names a group ({option})")
    for covariate, columns in pivot.covariates.items():
        added[covariate] = "; a column per series" if len(columns) > 1 else one
    dropped = without(schema.static, pivot.covariates)
    reasons = schema.reasons | dict.fromkeys(dropped, "ignored: constant within a channel")
    return {column: why + added.get(column, "") for column, why in reasons.items()}
