"""A small made-up table that a schema reads, for those who have to show what a table looks like.

What comes in: a schema and lengths. What goes out: a frame of one series, with its history and the rows
after it in which targets and past covariates are empty. Promised: nothing in it comes from any data.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import polars as pl

from forecaster.panel.calendar import Calendar
from forecaster.panel.schema import Schema
from forecaster.panel.timestamps import write_times

_START = datetime(2024, 1, 31)  # a month's end, so that steps of month ends are what they are called


def example_table(schema: Schema, history: int, horizon: int) -> pl.DataFrame:
    """Returns `history` rows of a series and `horizon` rows of its future.

    Args:
        schema: of a model; layout "rows" is shown in long form.
        history: rows with targets.
        horizon: rows without.
    """
    rows, columns = history + horizon, dict[str, Any]()
    for name in () if schema.melted else schema.series:
        columns[name] = [1 if "Int" in schema.dtypes.get(name, "") else "A"] * rows
    if schema.time is not None:
        columns[schema.time] = _times(schema, rows)
    level = np.round(100 + 10 * np.sin(np.arange(history))).tolist()
    for name in schema.melted or schema.target:
        columns[name] = [*level, *[None] * horizon]
    for name in (*schema.known, *schema.past, *schema.static):
        words = schema.categories.get(name) or ("A",)
        value = words[0] if name in schema.categorical else 1.0
        seen = history if name in schema.past else rows
        columns[name] = [value] * seen + [None] * (rows - seen)
    return pl.DataFrame(columns)


def _times(schema: Schema, rows: int) -> list[Any]:
    """Returns times as they were written where the model's table came from."""
    if schema.time_dtype == "integer":
        return list(range(1, rows + 1))
    calendar = Calendar(schema.freq, schema.time_zone, False)
    start = int(pl.Series([_START]).cast(pl.Datetime("us")).cast(pl.Int64)[0])
    times = calendar.shift(start, np.arange(rows))
    if schema.time_format is not None:
        stamps = pl.Series(times).cast(pl.Datetime("us", schema.time_zone))
        return write_times(stamps, schema.time_format).to_list()
    return [calendar.text(int(time)) for time in times]
