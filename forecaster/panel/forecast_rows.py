"""Forecasts of any origin, as rows of a table: keys, times, cutoffs or leads → arrays over the series of a panel.

    key columns · time · cutoff or lead · channel, where there are several · forecast · q0.1 … or lo-80, hi-80

Axes: n row · Q quantile level.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from forecaster.config import DataConfig
from forecaster.panel.arrays import Floats, Ints
from forecaster.panel.findings import did_you_mean, fault, listing, refuse_errors, row_fault
from forecaster.panel.frames import Table, missing_columns, read_table
from forecaster.panel.panel import Panel
from forecaster.panel.rows import ids_as, read_times

_SERIES, _CHANNEL = "\0series", "\0channel"
_QUANTILE = re.compile(r"q(0?\.\d+)")
_EDGE = re.compile(r"(lo|hi)-(\d+(?:\.\d+)?)")


class OtherForecasts(NamedTuple):
    """Rows of forecasts that a panel has the series of."""

    name: str
    """Of the table, for messages."""
    series: Ints
    """[n] number of the series."""
    channel: Ints
    """[n]"""
    cutoff: Ints
    """[n] time of the last step that was known."""
    time: Ints
    """[n]"""
    lead: Ints
    """[n] steps from the cutoff; 0 = not given, on an irregular table."""
    values: Floats
    """[n, Q] data units; NaN = no forecast."""
    levels: tuple[float, ...]
    """[Q] rising; 0.5 is the column `forecast`."""
    foreign: int
    """Rows of other series, which are left out."""


def read_others(source: object, panel: Panel) -> OtherForecasts:
    """Returns the forecasts of a table.

    Args:
        source: path, glob, URL or frame, with the key columns and times of the panel's table.
        panel: the series that are forecast.

    Raises:
        DataError: a column is missing, or no number; a row has no series of the panel, or is there twice; cutoff
            and lead contradict each other; quantiles do not rise.
    """
    schema = panel.schema
    table = read_table(source, DataConfig(time=schema.time))
    time, columns = schema.time or "time", table.frame.columns
    index, named = _index(panel, columns), _levels(columns, table.name)
    keys, levels = index.columns[:-2], sorted(named)
    wanted = [*keys, time, "forecast"]
    if "cutoff" not in columns and "lead" not in columns:
        wanted.append("cutoff")
    refuse_errors(missing_columns(wanted, columns, table.name, "forecasts to score"))
    table = table.with_ids(keys)
    times = read_times(table, replace(schema, time=time), None, same_clock=True)[2].to_numpy()
    cutoff, lead = _located(table, panel, times)
    values = np.stack([_numbers(table, named[level]) for level in levels], axis=1)
    _check_rising(table, values[:, [level != 0.5 for level in levels]])
    series, channel = _placed(table, index, panel)
    own = series >= 0
    rows = pl.DataFrame([series, channel, cutoff, times]).filter(pl.Series(own))
    if (twice := rows.is_duplicated()).any():
        text, advice = "each series, channel, cutoff and time once", "keep one of them"
        row = table.frame.to_series(0).filter(pl.Series(own))
        raise row_fault("repeated", table.name, text, row, twice, advice)
    return OtherForecasts(
        name=table.name,
        series=series[own],
        channel=channel[own],
        cutoff=cutoff[own],
        time=times[own],
        lead=lead[own],
        values=values[own],
        levels=tuple(levels),
        foreign=int((~own).sum()),
    )


def _check_rising(table: Table, quantiles: Floats) -> None:
    """Refuses quantiles that fall; a point forecast may lie outside of them, as the mean of a skewed band does."""
    falling = pl.Series((np.diff(quantiles, axis=1) < 0).any(axis=1))
    if falling.any():
        text, advice = "quantiles that rise with their level", "sort them, or name them by their levels"
        row = table.frame.to_series(0)
        raise row_fault("quantiles", table.name, text, row, falling, advice, table.place)


def _placed(table: Table, index: pl.DataFrame, panel: Panel) -> tuple[Ints, Ints]:
    """[n] number of the series and [n] of the channel of each row; -1 = the panel has no such series."""
    keys, count = index.columns[:-2], table.frame.height
    if not keys:
        return np.zeros(count, np.int64), np.zeros(count, np.int64)
    ids = pl.DataFrame([ids_as(table, key, index[key].dtype) for key in keys])
    found = ids.join(index, on=keys, how="left", maintain_order="left")
    series, channel = (found[name].fill_null(-1).to_numpy() for name in (_SERIES, _CHANNEL))
    if (series < 0).all():
        names = listing(sorted({"/".join(map(str, key)) for key in table.frame.select(keys).rows()}), 3)
        near = did_you_mean(names.split(",")[0], panel.series_names)
        text = f"{table.name}: none of its {count:,} rows is of a series that is scored (found {names})"
        raise fault("keys", text + near, f"compare the values of {', '.join(keys)}")
    return series, channel


def _index(panel: Panel, columns: list[str]) -> pl.DataFrame:
    """The key columns of each series and channel, `channel` where rows need or have it, and last the numbers."""
    schema, channels = panel.schema, panel.n_channels
    series = np.repeat(np.arange(panel.n_series), channels)
    channel = np.tile(np.arange(channels), panel.n_series)
    keys = panel.ids(series, channel)
    named = "channel" in columns and "channel" not in schema.key_columns
    if (channels > 1 or named) and not schema.pivots:
        keys.append(pl.Series("channel", np.array(schema.target, dtype=object)[channel], pl.String))
    return pl.DataFrame([*keys, pl.Series(_SERIES, series), pl.Series(_CHANNEL, channel)])


def _levels(columns: list[str], name: str) -> dict[float, str]:
    """The column of each quantile level: q0.1, or the edges of a band in percent, lo-80 and hi-80."""
    found: dict[float, str] = {}
    for column in columns:
        if quantile := _QUANTILE.fullmatch(column):
            level = float(quantile[1])
        elif edge := _EDGE.fullmatch(column):
            tail = (1 - float(edge[2]) / 100) / 2
            level = round(tail if edge[1] == "lo" else 1 - tail, 9)
        else:
            continue
        if (other := found.setdefault(level, column)) != column:
            text = f"{name}: the columns '{other}' and '{column}' are one quantile"
            raise fault("quantiles", text, "keep one of them")
    return {level: column for level, column in found.items() if 0 < level < 1} | {0.5: "forecast"}


def _located(table: Table, panel: Panel, times: Ints) -> tuple[Ints, Ints]:
    """[n] cutoff and [n] lead of each row; on a regular table one gives the other."""
    calendar, frame = panel.calendar, table.frame
    lead = np.zeros(len(times), np.int64)
    if "lead" in frame.columns:
        numbers = _numbers(table, "lead")
        bad = pl.Series(~((numbers >= 1) & (numbers % 1 == 0)))
        if bad.any():
            text, advice = "whole steps from 1", "count the first step after the cutoff as 1"
            raise row_fault(
                "lead", f"{table.name}, column 'lead'", text, frame["lead"], bad, advice, table.place
            )
        lead = numbers.astype(np.int64)
    if "cutoff" not in frame.columns:
        if not panel.regular:
            text = f"{table.name}: no column 'cutoff', and the table is irregular"
            raise fault("missing-column", text, "a lead gives the cutoff on a regular table alone")
        return calendar.shift(times, -lead), lead
    cutoff = read_times(table, replace(panel.schema, time="cutoff"), None, same_clock=True)[
        2
    ].to_numpy()
    if panel.regular:
        steps = calendar.steps(cutoff, times)
        odd = (steps < 1) | ((lead > 0) & (steps != lead))
        if odd.any():
            text = "a time after the cutoff, as many steps as `lead` says"
            advice = "correct cutoff, lead or time"
            raise row_fault(
                "lead", table.name, text, frame["cutoff"], pl.Series(odd), advice, table.place
            )
        lead = steps
    return cutoff, lead


def _numbers(table: Table, name: str) -> Floats:
    """[n] the numbers of a column; NaN where it is empty."""
    column = table.frame[name]
    numbers = column.cast(pl.Float64, strict=False)
    bad = numbers.is_null() & column.is_not_null()
    if bad.any():
        where = f"{table.name}, column '{name}'"
        raise row_fault(
            "text", where, "numbers", column, bad, "write them as 1.5, or leave them empty", table.place
        )
    return numbers.fill_null(np.nan).to_numpy()
