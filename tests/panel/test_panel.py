"""The flat store against slow, obvious twins."""

import re

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from panel_tables import DAY, TWO, refused, same, slow_rows, table

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.build import open_panel
from forecaster.panel.categories import with_categories
from forecaster.panel.panel import NO_TIME


def test_arrays_are_contiguous_writable_and_of_the_promised_kinds():
    panel = open_panel(TWO, DataConfig())
    assert panel.values.flags.c_contiguous and panel.values.flags.writeable
    assert panel.time.flags.writeable
    kinds = [panel.values.dtype, panel.codes.dtype, panel.time.dtype, panel.indptr.dtype]
    assert kinds == [np.float64, np.int32, np.int64, np.int64]


@settings(max_examples=15, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "10", "9"]),
        st.dictionaries(st.integers(0, 20), st.none() | st.integers(-5, 5), min_size=2, max_size=12),
        min_size=1,
    ),
    st.integers(0, 20),
    st.integers(1, 5),
    st.randoms(),
)
def test_random_panels_equal_a_slow_twin(series, cut, horizon, random):
    frame = table(**series)
    order = list(range(frame.height))
    random.shuffle(order)
    data = DataConfig(series=("id",), target=("y",), past=("x", "w"), static=(), freq="1d")
    try:
        panel = open_panel(frame, data)
    except DataError as error:
        assert re.search("more than 4 times|no two rows are nearer", str(error))
        return
    assert same(panel, open_panel(frame[order], data))
    expected, first_day = {}, 1704067200000000
    for name, values in sorted(series.items()):
        seen = [day for day, value in values.items() if value is not None]
        for day in range(min(seen, default=min(values)), max(values) + 1):
            known = day in values
            y = np.nan if values.get(day) is None else values[day]
            expected[name, first_day + day * DAY] = [y, float(day) if known else np.nan]
    found = slow_rows(panel)
    assert list(found) == list(expected)
    np.testing.assert_array_equal(list(found.values()), list(expected.values()))

    time = first_day + cut * DAY
    early = panel.until(time)
    assert slow_rows(early).keys() == {key for key in expected if key[1] <= time}
    assert early.n_series == panel.n_series
    for s, row in enumerate(panel.row_at(time)):
        own = [r for r in range(panel.indptr[s], panel.indptr[s + 1]) if panel.time[r] <= time]
        assert row == (own[-1] if own else -1)

    cutoffs = np.full(panel.n_series, time)
    reached = slow_rows(panel.reaching(cutoffs, horizon))
    wanted = dict(expected)
    for name in series:
        last = max(key[1] for key in expected if key[0] == name)
        t = last
        while sum(key[0] == name and key[1] > time for key in wanted) < horizon:
            t += DAY
            wanted[name, t] = [np.nan, np.nan]
    assert list(reached) == sorted(wanted)
    np.testing.assert_array_equal(list(reached.values()), [wanted[key] for key in sorted(wanted)])


def test_reaching_without_a_cutoff_starts_at_the_last_row_and_leaves_empty_series_alone():
    panel = open_panel(TWO, DataConfig())
    longer = panel.reaching(np.full(2, NO_TIME), 2)
    assert list(np.diff(longer.indptr)) == [5, 8] and np.isnan(longer.values[3:5]).all()
    assert panel.reaching(panel.time[panel.last_observed] - DAY, 1) is panel
    empty = panel.until(panel.time[0] - 1)
    assert list(np.diff(empty.indptr)) == [0, 2]
    grown = empty.reaching(np.array([panel.time[0], panel.time[0]]), 2)
    assert list((grown.time[:2] - panel.time[0]) // DAY) == [1, 2]
    assert list(np.diff(empty.reaching(np.full(2, NO_TIME), 2).indptr)) == [0, 4]


def test_month_ends_are_reached_and_filled():
    frame = pl.DataFrame(
        {"month": ["2023-10-31", "2023-12-31", "2024-01-31", "2024-02-29"], "y": [1.0, 2, 3, 4]}
    )
    panel = open_panel(frame, DataConfig())
    assert panel.calendar.freq == "1moe" and panel.n_rows == 5
    longer = panel.reaching(panel.time[-1:], 2)
    texts = [panel.calendar.text(time) for time in longer.time]
    assert texts[1] == "2023-11-30" and texts[-2:] == ["2024-03-31", "2024-04-30"]
    assert longer.frame(np.zeros(1, int), longer.time[-1:])["month"][0] == "2024-04-30"


def test_categories_come_from_training_rows_only():
    frame = table(a={0: 1, 1: 2, 2: 3}, b={0: 1, 1: 2}).with_columns(
        w=pl.Series(["x", "y", "z", "x", None]), kind=pl.Series(["p"] * 3 + ["q"] * 2)
    )
    panel = open_panel(frame, DataConfig())
    assert panel.schema.categories == {"w": ("x", "y", "z"), "kind": ("p", "q")}
    assert panel.codes[:, 0].tolist() == [1, 2, 3, 1, -1]
    limited = with_categories(panel, np.array([2, 3]))
    assert limited.schema.categories == {"w": ("x", "y"), "kind": ("p",)}
    assert limited.codes[:, 0].tolist() == [1, 2, 0, 1, -1]
    assert limited.static_codes.tolist() == [[1], [0]]


def test_output_rows_carry_the_caller_names_and_dtypes():
    frame = TWO.with_columns(
        pl.col("id").cast(pl.Categorical), pl.col("day").str.to_datetime(time_unit="ms")
    )
    panel = open_panel(frame, DataConfig())
    rows = panel.frame(
        np.array([1, 0]),
        panel.time[:2],
        cutoff=np.array([NO_TIME, panel.time[0]]),
        lead=np.array([1, 2]),
        forecast=np.array([np.nan, 1], np.float32),
        **{"q0.1": [0.0, 1.0]},
    )
    assert rows.columns == ["id", "cutoff", "day", "lead", "forecast", "q0.1"]
    assert rows.dtypes[:3] == [pl.Categorical, pl.Datetime("ms"), pl.Datetime("ms")]
    assert rows["id"].to_list() == ["b", "a"]
    assert rows["cutoff"][0] is None and rows["forecast"][0] is None
    refused(
        "key column 'lead' has the name of a result",
        TWO.rename({"id": "lead"}),
        DataConfig(series=("lead",)),
    )


def test_the_fingerprint_differs_with_the_data():
    panel = open_panel(TWO, DataConfig())
    changed = [
        TWO.with_columns(x=pl.col("x") + 1),
        TWO.rename({"x": "z"}),
        TWO[:6],
        TWO.with_columns(id=pl.col("id") + "!"),
        TWO.with_columns(w=pl.lit("odd")),
    ]
    prints = {open_panel(frame, DataConfig()).fingerprint() for frame in changed}
    assert len(prints) == 5 and panel.fingerprint() not in prints
