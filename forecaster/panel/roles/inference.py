"""A table and its declared roles become a `Schema`: what is declared holds, the rest is found.

Every column gets a role, or is passed over, and the reason for it in the reader's words.
"""

from __future__ import annotations

import polars as pl

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.clock.digits import EPOCHS
from forecaster.panel.reading.table import Table, listing
from forecaster.panel.roles import columns
from forecaster.panel.roles.covariates import (
    find_categorical,
    find_known,
    find_past,
    find_static,
    gather,
    require_declared,
)
from forecaster.panel.schema import Names, Schema


def infer_schema(
    table: Table, data: DataConfig, future: Table | None = None, covariates: Table | None = None
) -> Schema:
    """Returns the roles of a table's columns: what is declared holds, the rest is found.

    Frequency and categories stay empty: they are found once times are read. A covariate is known in
    advance only where declared or where the future table holds values of it.

    Args:
        table, data: the rows of the past, and declared roles.
        future: rows after the end, with the covariates known in advance.
        covariates: further columns, joined on the keys they share.

    Raises:
        DataError: a declared column is missing or has two roles, or time or target cannot be found.

    Example:
        >>> frame = pl.DataFrame({"day": ["2024-01-01", "2024-01-02"], "sales": [1.0, 2.0]})
        >>> infer_schema(Table(frame, "shop.csv", "file"), DataConfig()).target
        ('sales',)
    """
    time, time_reason = columns.find_time(table, data.time)
    pool, timeless = gather(table, covariates, time, data)
    require_declared(data, list(pool), table, time)
    declared = {*data.known, *(data.target or ()), *(data.past or ()), *(data.static or ())}
    time_dtype, time_format = columns.time_facts(table, time, data)
    if time_format is not None:
        time_reason += f"; {time_format}" + (" since 1970" if time_format in EPOCHS else "")
    reasons = {time: time_reason} if time is not None else {}
    series, reason = _series(table, time, declared, data)
    reasons |= dict.fromkeys(series, reason)
    own = pl.DataFrame([column for name, column in pool.items() if name in table.frame.columns])
    for name in columns.date_like(own):
        if name not in series and name not in declared:
            pool.pop(name)
            reasons[name] = "ignored: dates, and time is another column"
    free = [name for name in pool if name not in series]
    known = find_known(pool, free, data, future)
    left = [name for name in free if name not in known and name not in timeless]
    left = [name for name in left if name not in declared or name in (data.target or ())]
    constant = _constant(table, series, left)
    target, reason = _target(table, data, series, left, constant)
    reasons |= dict.fromkeys(target, reason) | known
    left = [name for name in free if name not in target and name not in known]
    static = find_static(pool, left, data, constant | set(timeless))
    past, ignored = find_past(pool, [n for n in left if n not in static], data)
    reasons |= static | past | ignored
    judged = {name: len(pool[name]) for name in (*known, *past, *static)}
    if static and series:
        judged |= dict.fromkeys(static, table.frame.select(series).n_unique())
    categorical, coded = find_categorical(pool, judged, data)
    reasons |= {name: f"{reasons[name]}; looks like codes" for name in coded}
    melted = target if data.layout == "long" and not series and len(target) > 1 else ()
    return Schema(
        time=time,
        time_dtype=time_dtype,
        time_format=time_format,
        series=("channel",) if melted else series,
        target=("value",) if melted else target,
        known=tuple(known),
        past=tuple(past),
        static=tuple(static),
        categorical=categorical,
        dtypes={name: str(table.frame[name].dtype) for name in series},
        layout=_layout(data.layout, bool(series or melted)),
        reasons=reasons,
        melted=melted,
    )


def _layout(declared: str | None, several: bool) -> str:
    return "rows" if declared == "rows" else "long" if several else declared or "wide"


def _series(table: Table, time: str | None, declared: set[str], data: DataConfig) -> tuple[Names, str]:
    if data.series is not None:
        series, reason = data.series, "declared"
    else:
        times = None if time is None else columns.comparable_times(table, time, data)
        series, reason = columns.find_series(table, time, declared, times)
    if data.layout == "wide" and series:
        raise DataError(
            f"{table.name}: layout wide expects one row per time, but {', '.join(series)} names "
            "several series; drop --layout, or pivot the table to one column per series"
        )
    return series, reason


def _constant(table: Table, series: Names, names: list[str]) -> set[str]:
    own = [name for name in names if name in table.frame.columns]
    keys = table.frame.select(series)
    # Most tables end with another series than they start with; only others are counted.
    if not series or (keys.row(0) == keys.row(-1) and keys.n_unique() < 2):
        return set()
    return columns.constant_columns(table.frame, series, own)


def _target(
    table: Table, data: DataConfig, series: Names, left: list[str], constant: set[str]
) -> tuple[Names, str]:
    if data.target is not None:
        return data.target, "declared"
    own = [name for name in left if name in table.frame.columns]
    target, reason = columns.find_target(table.frame, own, series, constant)
    if not target:
        raise DataError(
            f"{table.name}: no column of numbers left to forecast among "
            f"{listing(table.frame.columns)}; pass --target COLUMN"
        )
    return target, reason
