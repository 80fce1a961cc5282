"""A small example table that fits a schema, for documentation and model signatures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from forecaster.panel.schema import Schema
from forecaster.panel.timestamps import split_times, write_times

# A month's end, so that steps of month ends are what they are called.
_START = int(np.datetime64("2024-01-31", "us").astype(np.int64))


def example_table(schema: Schema, history: int, horizon: int) -> pl.DataFrame:
    """Returns one series of `history` rows with targets and `horizon` rows of its future without.

    Where series are channels, it is that of each.
    """
    if (pivot := schema.pivot) is not None:
        own = {name: schema.categories.get(made[0], ()) for name, made in pivot.covariates.items()}
        one = example_table(replace(schema.as_read, categories=own), history, horizon)
        keys = schema.channel_keys.rows(named=True)
        return pl.concat(one.with_columns(**{k: pl.lit(v) for k, v in key.items()}) for key in keys)
    rows, columns = history + horizon, dict[str, Any]()
    for name in schema.key_columns:
        columns[name] = [1 if "Int" in schema.dtypes.get(name, "") else "A"] * rows
    if schema.time is not None:
        columns |= _times(schema, rows)
    level = np.round(100 + 10 * np.sin(np.arange(history))).tolist()
    for name in schema.target_columns:
        columns[name] = [*level, *[None] * horizon]
    for name in (*schema.known, *schema.past, *schema.static):
        words = schema.categories.get(name) or ("A",)
        value = words[0] if name in schema.categorical else 1.0
        seen = history if name in schema.past else rows
        columns[name] = [value] * seen + [None] * (rows - seen)
    return pl.DataFrame(columns)


def _times(schema: Schema, rows: int) -> dict[str, Any]:
    """Returns the columns of times in the format of the table that the model was fitted on."""
    name = schema.time or "time"
    if schema.time_dtype == "integer":
        return {name: list(range(1, rows + 1))}
    calendar = schema.calendar
    times = calendar.shift(_START, np.arange(rows))
    stamps = pl.Series(times).cast(pl.Datetime("us", schema.time_zone))
    if schema.time_parts:
        parts = split_times(stamps, schema.time_parts, schema.time_format or "")
        return {part.name: part.to_list() for part in parts}
    if schema.time_format is not None:
        return {name: write_times(stamps, schema.time_format).to_list()}
    return {name: [*map(calendar.text, times)]}
