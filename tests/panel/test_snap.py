"""Stray times move to the nearest place on a grid, where the user says so, and are counted."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from panel_tables import refused

from forecaster.config import DataConfig
from forecaster.panel.build import open_panel
from forecaster.panel.calendar import Calendar
from forecaster.panel.snap import find_grid

SECOND = 10**6
HOUR = 3600 * SECOND
SNAP = DataConfig(snap=True)


def frame(times, name="a"):
    return pl.DataFrame(
        {"id": [name] * len(times), "time": times, "y": [float(k) for k in range(len(times))]}
    )


def texts(panel):
    return [panel.calendar.text(int(time)) for time in panel.time]


def test_times_near_the_hour_become_the_hour_and_are_counted():
    table = frame(
        ["2024-01-01 00:00:03", "2024-01-01 00:59:58", "2024-01-01 02:00:01", "2024-01-01 04:00:00"]
    )
    panel = open_panel(table, SNAP)
    assert panel.regular and panel.calendar.freq == "1h"
    assert texts(panel) == [f"2024-01-01 0{hour}:00" for hour in range(5)]
    assert np.isnan(panel.values[3, 0])
    (note,) = [note for note in panel.notes if note.rule == "snapped"]
    assert note.count == 3 and note.where == "2024-01-01 00:00:03" and note.severity == "note"
    assert "3 of 4 times were moved" in note.text and "by 3 s at most" in note.text
    irregular = open_panel(table, DataConfig())
    assert not irregular.regular and irregular.n_rows == 4


def test_a_stray_first_stamp_is_no_origin_and_a_shared_place_is():
    stray = ["2024-01-01 07:00", *(f"2024-01-{day:02d} 06:00" for day in range(2, 9))]
    assert texts(open_panel(frame(stray), SNAP))[0] == "2024-01-01 06:00"
    mixed = ["2024-01-01 07:00", "2024-01-02 01:00", "2024-01-03 02:00", "2024-01-04 22:00"]
    data = DataConfig(snap=True, freq="1d")
    assert texts(open_panel(frame(mixed), data)) == [f"2024-01-0{day}" for day in (1, 2, 3, 4, 5)]


@pytest.mark.parametrize(
    ("freq", "times", "expected"),
    [
        ("1w", ["2024-01-03", "2024-01-08", "2024-01-16"], ["2024-01-01", "2024-01-08", "2024-01-15"]),
        ("1mo", ["2024-01-03", "2024-02-05", "2024-02-28"], ["2024-01-01", "2024-02-01", "2024-03-01"]),
        ("1moe", ["2024-01-30", "2024-03-02"], ["2024-01-31", "2024-02-29"]),
        ("1q", ["2024-01-09", "2024-06-28"], ["2024-01-01", "2024-04-01", "2024-07-01"]),
        ("1b", ["2024-01-05", "2024-01-07 05:00"], ["2024-01-05", "2024-01-08"]),
        ("15min", ["2024-01-01 00:07:30", "2024-01-01 00:16"], ["2024-01-01 00:00",
                                                                "2024-01-01 00:15"]),
    ],
)  # fmt: skip
def test_the_natural_origin_is_midnight_monday_or_the_first_of_the_month(freq, times, expected):
    formats = [time if " " in time else f"{time} 00:00" for time in times]
    formats = [time if time.count(":") == 2 else f"{time}:00" for time in formats]
    panel = open_panel(frame(formats), DataConfig(snap=True, freq=freq))
    assert texts(panel) == expected


def test_series_on_their_own_grids_stay_there():
    quarter = frame([f"2024-01-01 0{hour}:15" for hour in range(5)], "quarter")
    full = frame(
        ["2024-01-01 00:00", "2024-01-01 01:04", "2024-01-01 02:00", "2024-01-01 03:00"], "full"
    )
    panel = open_panel(pl.concat([quarter, full]), SNAP)
    assert panel.labels == ["full", "quarter"]
    assert texts(panel)[:4] == [f"2024-01-01 0{hour}:00" for hour in range(4)]
    assert texts(panel)[4:] == quarter["time"].to_list()
    (note,) = [note for note in panel.notes if note.rule == "snapped"]
    assert (note.series, note.count) == ("full", 1) and "by 4 min at most" in note.text


def test_two_rows_at_one_place_are_duplicates():
    table = frame(["2024-01-01 00:00", "2024-01-01 01:00", "2024-01-01 01:10", "2024-01-01 02:00"])
    data = DataConfig(snap=True, freq="1h")
    refused(r"found 2 that disagree at 2024-01-01 01:00 .*--on-duplicates", table, data)
    last = open_panel(table, data.model_copy(update={"on_duplicates": "last"}))
    assert last.values[:, 0].tolist() == [0, 2, 3]


def test_covariates_and_future_rows_are_snapped_to_the_same_grid():
    table = frame(["2024-01-01 00:00", "2024-01-01 01:02", "2024-01-01 02:00"])
    future = pl.DataFrame(
        {"id": ["a"] * 3, "time": [f"2024-01-01 0{h}:01" for h in (2, 3, 4)], "x": [1.0, 2, 3]}
    )
    panel = open_panel(table, DataConfig(snap=True, freq="1h", known=("x",)), covariates=future)
    assert texts(panel) == [f"2024-01-01 0{hour}:00" for hour in range(5)]
    np.testing.assert_array_equal(panel.values[:, 1], [np.nan, np.nan, 1, 2, 3])


def test_a_model_fitted_with_snap_reads_another_table_with_snap():
    table = frame(["2024-01-01 00:00", "2024-01-01 01:02", "2024-01-01 02:00"])
    schema = open_panel(table, DataConfig(snap=True, freq="1h")).schema
    other = open_panel(
        frame(["2024-02-01 00:00", "2024-02-01 01:00", "2024-02-01 01:58"]), SNAP, schema=schema
    )
    assert texts(other)[-1] == "2024-02-01 02:00" and other.regular


@settings(max_examples=100)
@given(
    st.lists(st.integers(0, 40), min_size=2, max_size=30, unique=True),
    st.sampled_from([(60 * SECOND, "1min"), (HOUR, "1h"), (24 * HOUR, "1d")]),
    st.integers(0, 23),
    st.randoms(use_true_random=False),
)
def test_every_time_moves_to_the_nearest_place_and_the_order_stays(places, step, hour, random):
    length, freq = step
    calendar = Calendar(freq, None, False)
    start = calendar.parse("2024-03-01") + hour * HOUR
    time = np.sort(
        start + np.array([k * length + random.randint(-length // 3, length // 3) for k in places])
    )
    grid = find_grid(calendar, time, np.array([0, len(time)]))
    new = grid.nearest(np.zeros(len(time), int), time)
    assert (np.diff(new) >= 0).all() and ((new - grid.anchor[0]) % length == 0).all()
    slow = [
        min((abs(t - p), p) for p in (p0 - length, p0, p0 + length))[1]
        for t, p0 in zip(time, new, strict=True)
    ]
    assert new.tolist() == slow
    again = find_grid(calendar, np.unique(new), np.array([0, len(np.unique(new))]))
    assert (again.nearest(np.zeros(len(new), int), new) == new).all()
