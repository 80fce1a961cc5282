"""Small tables and slow readings of panels that several tests share."""

import numpy as np
import polars as pl
import pytest

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.build import open_panel
from forecaster.panel.panel import Panel

DAY = 86_400_000_000


def days(*offsets):
    return [f"2024-01-{1 + offset:02d}" for offset in offsets]


def table(**series):
    """Rows of series given as {day offset: value}."""
    rows = [
        {
            "id": name,
            "day": days(offset)[0],
            "y": value,
            "x": float(offset),
            "w": "odd" if offset % 2 else "even",
        }
        for name, values in series.items()
        for offset, value in values.items()
    ]
    return pl.DataFrame(rows, schema_overrides={"y": pl.Float64})


TWO = table(b={0: 1, 1: 2, 4: 5, 5: 6}, a={2: 7, 3: None, 4: 9})


def same(one: Panel, other: Panel):
    for name in ("values", "codes", "time", "indptr", "static", "static_codes"):
        first, second = getattr(one, name), getattr(other, name)
        assert first.dtype == second.dtype and first.shape == second.shape
        assert np.array_equal(first.view(np.uint8), second.view(np.uint8)), name
    assert one.fingerprint() == other.fingerprint()
    return True


def refused(message, source, data=None, **tables):
    with pytest.raises(DataError, match=message) as caught:
        open_panel(source, data or DataConfig(), **tables)
    assert "\n" not in str(caught.value)


def slow_rows(panel):
    """{(name, time): {column: value}} of a panel, one row at a time."""
    return {
        (panel.series_names[s], int(panel.time[row])): panel.values[row].tolist()
        for s in range(panel.n_series)
        for row in range(panel.indptr[s], panel.indptr[s + 1])
    }
