"""The step of time: found part by part as in one, and followed as pandas and zoneinfo follow it."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from forecaster.panel.calendar import Calendar
from forecaster.panel.infer_freq import find_freq

DAY = 86_400_000_000
EPOCH = datetime(1970, 1, 1)
ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC", None]
FREQS = {
    "1s": ("s", 1), "10min": ("min", 10), "30min": ("min", 30), "1h": ("h", 1), "6h": ("h", 6),
    "1d": ("D", 1), "2d": ("D", 2), "1b": ("B", 1), "1w": ("W", 1), "1mo": ("MS", 1),
    "1moe": ("ME", 1), "1q": ("QS", 1), "1qe": ("QE", 1), "1y": ("YS", 1), "1ye": ("YE", 1),
}  # fmt: skip


def to_instant(wall, zone):
    """Microseconds since 1970 of a wall clock time, by the standard library."""
    if zone is None:
        return (wall - EPOCH) // timedelta(microseconds=1)
    return (wall.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC).replace(tzinfo=None) - EPOCH) // (
        timedelta(microseconds=1)
    )


def slow_stamps(start, freq, zone, count):
    """Stamps of a freq from a wall clock on: pandas steps the naive clock, zoneinfo places it."""
    alias, size = FREQS[freq]
    if alias in ("s", "min", "h"):
        first = to_instant(start, zone)
        step = pd.Timedelta(size, alias) // pd.Timedelta(1, "us")
        return np.array([first + k * step for k in range(count)])
    clock = timedelta(hours=start.hour, minutes=start.minute)
    anchor = f"W-{start:%a}".upper() if alias == "W" else f"{size}{alias}"
    days = pd.date_range(start - clock, periods=count, freq=anchor)
    return np.array([to_instant(day.to_pydatetime() + clock, zone) for day in days])


@settings(max_examples=75)
@example(datetime(2000, 4, 1).date(), 0, "6h", "America/New_York", 42)
@given(
    st.dates(datetime(1990, 1, 1).date(), datetime(2035, 1, 1).date()),
    st.integers(0, 47),
    st.sampled_from(sorted(FREQS)),
    st.sampled_from(ZONES),
    st.integers(2, 60),
)
def test_stamps_that_follow_are_those_of_pandas_and_zoneinfo(day, half_hours, freq, zone, count):
    start = datetime(day.year, day.month, day.day) + timedelta(minutes=30 * half_hours)
    expected = slow_stamps(start, freq, zone, count)
    calendar = Calendar(freq, zone, False)
    indptr = np.array([0, count])
    anchor, place, off = calendar.placed(expected, indptr)
    assert not off.any() and (np.diff(place) == 1).all()
    assert (calendar.shift(anchor, place[-1] + np.arange(1, 4)) > expected[-1]).all()
    for known in (1, count // 2):
        # What was seen first decides what follows, with the day of the month and the clock it shows.
        anchor, place, _ = calendar.placed(expected[:known], np.array([0, known]))
        ahead = calendar.shift(anchor, place[-1] + np.arange(1, count - known + 1))
        clocks = calendar.wall_clock(np.append(anchor, expected[-1])) % DAY
        if FREQS[freq][0] in ("s", "min", "h") or clocks[0] == clocks[1]:
            assert (ahead == expected[known:]).all()
    if count > 40:
        found, regular = find_freq([(expected, indptr)], False, zone)
        assert regular and Calendar(found, zone, False).step == calendar.step


@settings(max_examples=100)
@given(
    st.integers(0, 2_000_000_000),
    st.sampled_from(
        [
            *FREQS,
            "3mo",
            "5moe",
            "2w",
            "3b",
            "7h",
            "1b-mon..sat",
            "2b-tue-thu-sat",
            "15min-sat..wed-09:30..16:00",
        ]
    ),
    st.sampled_from(ZONES),
    st.lists(st.integers(-60, 60), min_size=1, max_size=20),
)
def test_steps_undo_shift(second, freq, zone, counts):
    calendar = Calendar(freq, zone, False)
    anchor = int(calendar.shift(second * 10**6, 0))
    moved = calendar.shift(anchor, np.array(counts))
    assert calendar.steps(anchor, moved).tolist() == counts
    assert (
        calendar.grid(anchor, int(calendar.shift(anchor, 9))) == calendar.shift(anchor, np.arange(10))
    ).all()


@pytest.mark.parametrize("day", [29, 30, 31])
def test_a_month_too_short_moves_no_later_stamp(day):
    last = [28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]  # from February 2023
    texts = [f"2023-{m:02d}-{min(day, end):02d}" for m, end in enumerate(last, start=2)]
    time = np.array(texts, "M8[us]").astype(np.int64)
    freq, regular = find_freq([(time, np.array([0, 11]))], False, None)
    assert regular and freq == ("1moe" if day == 31 else "1mo")
    monthly = Calendar("1mo", None, False)
    anchor, place, off = monthly.placed(time, np.array([0, 11]))
    assert monthly.text(int(anchor[0])) == f"2023-03-{day}" and not off.any()
    assert monthly.text(int(monthly.shift(anchor, place[-1] + 1)[0])) == f"2024-01-{day}"
    assert monthly.text(int(monthly.shift(anchor, place[-1] + 2)[0])) == "2024-02-29"


def test_a_first_day_without_midnight_is_no_anchor():
    zone = "America/Sao_Paulo"
    days = [datetime(2018, 11, 4) + timedelta(days=k) for k in range(5)]
    time = np.array([to_instant(day, zone) for day in days])
    assert find_freq([(time, np.array([0, 5]))], False, zone) == ("1d", True)
    assert Calendar("1d", zone, False).text(int(time[0])) == "2018-11-04 01:00"


def test_an_hour_shown_twice_stays_the_hour_it_was():
    second = to_instant(datetime(2024, 10, 27, 2, 30), "Europe/Berlin") + DAY // 24
    daily = Calendar("1d", "Europe/Berlin", False)
    assert daily.shift(second, 0) == second and daily.steps(second, second) == 0
    assert daily.text(int(daily.shift(second, 1))) == "2024-10-28 02:30"


@settings(max_examples=30)
@given(st.data(), st.sampled_from(["10min", "1h", "1d", "1b", "1w", "1mo", "1moe", "1q", "odd", "i"]))
def test_the_step_of_parts_is_that_of_the_whole(data, kind):
    zone = data.draw(st.sampled_from(ZONES)) if kind != "i" else None
    series = []
    for _ in range(data.draw(st.integers(1, 5))):
        count = data.draw(st.integers(1, 25))
        if kind == "i":
            stamps = np.arange(count) * 3
        elif kind == "odd":
            gaps = data.draw(st.lists(st.integers(1, 9_000), min_size=count, max_size=count))
            stamps = np.cumsum(gaps) * 10**6
        else:
            day = data.draw(st.integers(0, 800))
            stamps = slow_stamps(datetime(2022, 1, 1) + timedelta(days=day), kind, zone, count)
        keep = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
        series.append(stamps[np.array(keep) | (np.arange(count) < 2)])
    whole = (np.concatenate(series), np.cumsum([0, *map(len, series)]))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(series)))) | {0, len(series)})
    parts = [
        (np.concatenate([[], *series[a:b]]).astype(np.int64), np.cumsum([0, *map(len, series[a:b])]))
        for a, b in pairwise(cuts)
    ]
    found = []
    for given_parts in ([whole], parts):
        try:
            found.append(find_freq(given_parts, kind == "i", zone))
        except Exception as error:
            found.append(str(error))
    assert found[0] == found[1]


def test_a_month_with_one_stray_day_is_nominally_a_month():
    time = np.array(["2024-01-01", "2024-02-01", "2024-03-01", "2024-03-09", "2024-04-01"] +
                    [f"2024-{m:02d}-01" for m in range(5, 13)], "M8[us]").astype(np.int64)  # fmt: skip
    assert find_freq([(time, np.array([0, len(time)]))], False, None) == ("1mo", False)
