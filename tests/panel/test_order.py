"""Rows in order: always that of a plain sort by keys and time, whatever the kinds and the way there."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.panel.order import Order, find_order

HOUR = 3_600_000_000


def _by_sorting(keys: pl.DataFrame, time: np.ndarray) -> tuple[pl.DataFrame, list[int], list[int]]:
    """The slow twin: series, first rows and rows of a sort by columns."""
    text = [pl.col(c).cast(pl.String) if keys[c].dtype == pl.Categorical else c for c in keys.columns]
    frame = pl.DataFrame([*keys.iter_columns(), pl.Series("\0time", time)]).with_row_index("\0row")
    frame = frame.sort(*text, "\0time", "\0row")
    if not keys.width:
        return keys, [0, len(time)], frame["\0row"].to_list()
    series = frame.select(keys.columns)
    new = [k == 0 or series.row(k) != series.row(k - 1) for k in range(len(time))]
    starts = [k for k, is_new in enumerate(new) if is_new]
    return series[starts], [*starts, len(time)], frame["\0row"].to_list()


def _assert_sorted(keys: pl.DataFrame, time: np.ndarray) -> Order:
    order = find_order(keys, time)
    series, indptr, rows = _by_sorting(keys, time)
    assert order.keys.equals(series)
    assert order.indptr.tolist() == indptr
    assert (list(range(len(time))) if order.rows is None else order.rows.tolist()) == rows
    assert order.time.tolist() == time[rows].tolist()
    return order


@st.composite
def tables(draw: st.DrawFn) -> tuple[pl.DataFrame, np.ndarray]:
    height = draw(st.integers(1, 40))

    def column(values: st.SearchStrategy) -> list:
        return draw(st.lists(values, min_size=height, max_size=height))

    kinds = {
        "text": (st.sampled_from(["b", "a", "ä", "10", "9", "", "B"]), pl.String),
        "word": (st.sampled_from(["z", "a", "m"]), pl.Categorical),
        "number": (st.sampled_from([-(2**62), -1, 0, 7, 2**62]), pl.Int64),
        "open": (st.booleans(), pl.Boolean),
    }
    chosen = draw(st.lists(st.sampled_from(list(kinds)), unique=True, max_size=3))
    keys = pl.DataFrame([pl.Series(name, column(kinds[name][0]), kinds[name][1]) for name in chosen])
    step, far = draw(st.sampled_from([(1, 5), (HOUR, 30), (1, 2**52), (7, 2**59), (-HOUR, 3)]))
    time = step * np.array(column(st.integers(0, far)), np.int64)
    if draw(st.booleans()):
        # Series in blocks, as most files have them.
        by = np.array(sorted(range(height), key=lambda row: str(keys.row(row)) if chosen else ""))
        keys, time = keys[by] if chosen else keys, time[by]
    return keys, time


@settings(max_examples=120)
@given(tables())
def test_the_order_is_that_of_a_sort_by_columns(table):
    _assert_sorted(*table)


@pytest.mark.parametrize("shuffled", [False, True])
def test_many_series_are_ordered_as_by_a_sort(shuffled):
    rng = np.random.default_rng(0)
    series = np.repeat(rng.permutation(300), 100)
    time = np.tile(np.arange(100), 300) * HOUR + 1_700_000_000_000_000
    row = rng.permutation(len(time)) if shuffled else np.arange(len(time))
    order = _assert_sorted(pl.DataFrame({"shop": [f"shop {k}" for k in series[row]]}), time[row])
    assert not order.repeated.any()
    assert order.overtaken.any() == shuffled


def test_rows_that_lie_in_order_are_not_moved():
    keys = pl.DataFrame({"shop": ["a", "a", "b", "b"]})
    assert find_order(keys, np.array([1, 2, 1, 2])).rows is None
    assert find_order(pl.DataFrame(), np.array([1, 2, 5])).rows is None


def test_a_missing_key_is_a_series_of_its_own():
    keys = pl.DataFrame({"shop": ["b", None, "a", None], "shelf": [None, 1, 2, 1]})
    order = _assert_sorted(keys, np.array([1, 3, 1, 2]))
    assert order.keys["shop"].to_list() == [None, "a", "b"]


def test_repeats_and_late_rows_are_distinguished():
    keys = pl.DataFrame({"shop": ["a", "a", "b", "a", "b"]})
    order = find_order(keys, np.array([5, 5, 9, 1, 9]))
    assert order.repeated.tolist() == [False, False, True, False, True]
    assert order.rows is not None
    assert order.rows[order.overtaken].tolist() == [3]
    late = find_order(pl.DataFrame(), np.array([1, 3, 2, 4]))
    assert late.rows is not None
    assert late.rows[late.overtaken].tolist() == [2]
