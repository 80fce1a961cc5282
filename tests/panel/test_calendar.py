"""The time axis: steps found, stamps that follow, phases in [0, 1)."""

from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.errors import DataError
from forecaster.panel.calendar import Calendar, parse_freq
from forecaster.panel.infer_freq import find_freq

DAY = 86_400_000_000


def stamps(index):
    return np.array([value.value // 1000 for value in index.as_unit("ns")], np.int64)


def find(*indexes, time_zone=None):
    times = [stamps(index) for index in indexes]
    indptr = np.cumsum([0, *(len(time) for time in times)])
    return find_freq([(np.concatenate(times), indptr)], False, time_zone)


@pytest.mark.parametrize(
    ("text", "freq"),
    [("D", "1d"), ("H", "1h"), ("h", "1h"), ("30min", "30min"), ("15T", "15min"), ("W", "1w"),
     ("W-SUN", "1w-sun"), ("QS-FEB", "1q-feb"),
     ("MS", "1mo"), ("ME", "1moe"), ("M", "1moe"), ("QS", "1q"), ("QE", "1qe"),
     ("Q", "1qe"), ("YS", "1y"), ("YE", "1ye"), ("A", "1ye"), ("B", "1b"), ("hourly", "1h"),
     ("Daily", "1d"), ("1mo", "1mo"), ("2", "2i"), ("m", "1min"),
     ("B-MON..SAT", "1b-mon..sat"), ("1b-tue-thu-sat", "1b-tue-thu-sat"), ("h-08:00..17:00", "1h-08:00..17:00"),
     ("30T-mon..fri-09:30..16:00", "30min-mon..fri-09:30..16:00")],
)  # fmt: skip
def test_spellings_of_a_frequency_are_parsed(text, freq):
    assert parse_freq(text) == freq


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fortnight",
        "0h",
        "h1",
        "-1d",
        "1.5h",
        "D-SUN",
        "W-JAN",
        "MS-JAN",
        "1b-foo",
        "1b-mon-",
        "1h-08:30",
        "7h-08:00",
        "1b-08:00",
        "1w-sun..mon",
        "1d-mon..sat",
    ],
)
def test_other_spellings_are_refused_with_the_units(text):
    with pytest.raises(DataError, match=r"units are us, ms, s, min, h, d"):
        parse_freq(text)


def test_series_may_start_at_different_minutes():
    first = pd.date_range("2024-01-01 00:00", periods=5, freq="h")
    assert find(first, first + pd.Timedelta("15min")) == ("1h", True)


def test_scattered_stamps_are_irregular_with_a_nominal_step():
    index = pd.DatetimeIndex(["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-03 07:00"])
    assert find(index) == ("1d", False)
    rng = np.random.default_rng(0)
    time = np.cumsum(rng.integers(50, 70, 200) * 10**6 + rng.integers(0, 999, 200))
    freq, regular = find_freq([(time, np.array([0, 200]))], False, None)
    assert not regular and 55e6 < Calendar(freq, None, False).step < 65e6


def test_integers_step_by_their_mode():
    assert find_freq([(np.array([1, 3, 5, 9]), np.array([0, 4]))], True, None) == ("2i", True)
    assert find_freq([(np.array([1, 2, 3, 5]), np.array([0, 4]))], True, None) == ("1i", True)


def test_a_day_whose_midnight_does_not_exist_starts_an_hour_late():
    daily = Calendar("1d", "America/Sao_Paulo", False)
    time = daily.shift(daily.parse("2018-11-02"), np.arange(1, 4))
    assert [daily.text(value) for value in time] == ["2018-11-03", "2018-11-04 01:00", "2018-11-05"]
    assert list(daily.steps(time[0], time)) == [0, 1, 2]


def test_weekends_are_off_the_grid_of_business_days():
    weekdays = Calendar("1b", None, False)
    friday = weekdays.parse("2024-05-03")
    assert weekdays.text(int(weekdays.shift(friday, 1))) == "2024-05-06"
    assert weekdays.steps(friday, weekdays.parse("2024-05-05")) == 0
    assert find(pd.bdate_range("2024-01-01", periods=20)) == ("1b", True)
    # Gaps that happen to hide the weekends are no proof of business days.
    assert find(pd.DatetimeIndex(["2024-01-01", "2024-01-02", "2024-01-05", "2024-01-09"])) == (
        "1d",
        True,
    )


def test_phase_is_hand_checkable_and_stays_below_one():
    hourly = Calendar("1h", None, False)
    assert hourly.cycles == ("day", "week", "year")
    phase = hourly.phase(np.array([hourly.parse("2024-01-01 12:00"), hourly.parse("2024-07-01")]))
    # 2024-01-01 and 2024-07-01 are Mondays; 182 of 366 days are over on 1 July.
    np.testing.assert_allclose(phase, [[0.5, 0.5 / 7, 0.5 / 366], [0, 0, 182 / 366]], rtol=1e-6)
    last = hourly.phase(np.array([hourly.parse("2024-12-31") + DAY - 1]))
    assert (last < 1).all() and last[0, 2] > 0.99999
    assert hourly.phase(np.array([-1])).min() > 0.4
    assert Calendar("1y", None, False).phase(np.array([0, 1])).shape == (2, 0)
    assert Calendar("1i", None, True).cycles == ()


@pytest.mark.parametrize(
    ("freq", "season", "cycles"),
    [("30min", 48, 3), ("1h", 24, 3), ("1d", 7, 2), ("1b", 5, 2), ("1w", 52, 1), ("1mo", 12, 1),
     ("1q", 4, 1), ("1y", 1, 0), ("1i", 1, 0), ("2h", 12, 3), ("24h", 1, 2), ("1b-mon..sat", 6, 2),
     ("1b-tue-thu-sat", 3, 2), ("1h-mon..fri-08:00..17:00", 10, 3), ("30min-09:30..16:00", 14, 3)],
)  # fmt: skip
def test_seasons_and_cycles_follow_the_step(freq, season, cycles):
    calendar = Calendar(freq, None, freq.endswith("i"))
    assert (calendar.season_length, len(calendar.cycles)) == (season, cycles)


@settings(max_examples=30, deadline=None)
@given(
    st.datetimes(datetime(1990, 1, 1), datetime(2035, 1, 1)),
    st.sampled_from(["1h", "1d", "1w", "1mo", "1moe", "1q", "1y", "1b"]),
    st.sampled_from([None, "UTC", "Europe/Berlin", "America/New_York"]),
    st.integers(-40, 40),
)
def test_phase_is_that_of_the_clock(start, freq, zone, count):
    calendar = Calendar(freq, zone, False)
    first = calendar.parse(start.strftime("%Y-%m-%d %H:%M:%S.%f"))
    moved = calendar.shift(first, np.array([count]))
    local = pl.Series(moved).cast(pl.Datetime("us", "UTC")).dt.convert_time_zone(zone or "UTC")[0]
    day = (local.hour + local.minute / 60 + local.second / 3600 + local.microsecond / 3.6e9) / 24
    year = datetime(local.year + 1, 1, 1) - datetime(local.year, 1, 1)
    slow = {
        "day": day,
        "week": (local.weekday() + day) / (5 if freq == "1b" else 7),
        "year": (local.timetuple().tm_yday - 1 + day) / (year / timedelta(days=1)),
    }
    expected = [slow[cycle] for cycle in calendar.cycles]
    np.testing.assert_allclose(calendar.phase(moved)[0], expected, atol=1e-6)


def test_invalid_dates_are_refused():
    with pytest.raises(DataError, match="date 'tomorrow': expected a date, as YYYY-MM-DD"):
        Calendar("1d", None, False).parse("tomorrow")
    with pytest.raises(DataError, match="date '2024-01-01': expected an integer"):
        Calendar("1i", None, True).parse("2024-01-01")
    assert Calendar("1i", None, True).parse("-3") == -3


def test_text_shows_the_clock_only_where_it_matters():
    assert Calendar("1d", None, False).text(DAY) == "1970-01-02"
    assert Calendar("1h", None, False).text(DAY) == "1970-01-02 00:00"
    assert Calendar("1s", None, False).text(DAY + 10**6) == "1970-01-02 00:00:01"
    assert Calendar("1h", "Europe/Berlin", False).text(0) == "1970-01-01 01:00"
    assert Calendar("1i", None, True).text(-4) == "-4"


def test_scattered_stamps_are_irregular_even_where_two_lie_a_second_apart():
    seconds = np.cumsum([0, 3601, 2750, 1, 4100, 1999, 5003, 3307, 2801])
    freq, regular = find_freq([(seconds * 10**6, np.array([0, 9]))], False, None)
    assert (freq, regular) == ("3054s", False)


@pytest.mark.parametrize(
    ("freq", "zone"),
    [
        ("1i", None),
        ("5i", None),
        ("1h", "Europe/Berlin"),
        ("1d", "Europe/Berlin"),
        ("1b", None),
        ("1qe", None),
    ],
)
def test_further_periods_count_steps_and_come_after_the_calendar_cycles(freq, zone):
    calendar = Calendar(freq, zone, freq.endswith("i"), periods=(7, 30))
    plain = Calendar(freq, zone, freq.endswith("i"))
    assert calendar.cycles == (*plain.cycles, "7 steps", "30 steps")
    start = (
        30 if calendar.integer else 1_711_670_400_000_000
    )  # shortly before the clocks of Berlin change
    times = calendar.shift(int(calendar.shift(start, 0)), np.arange(100))
    phase = calendar.phase(times)
    np.testing.assert_array_equal(phase[:, :-2], plain.phase(times))
    for column, period in ((-2, 7), (-1, 30)):
        counted = (phase[:, column] * period - phase[0, column] * period) % period
        np.testing.assert_allclose(counted, np.arange(100) % period, atol=1e-4)
    if calendar.integer:
        # A stamp between two steps lies between their phases.
        between = Calendar("4i", None, True, periods=(7,)).phase(np.array([0, 1, 2, 28]))
        np.testing.assert_allclose(between[:, 0] * 7, [0, 0.25, 0.5, 0], atol=1e-6)


@pytest.mark.parametrize("unit", ["us", "s", "d", "b", "w", "mo", "y", "i"])
def test_a_step_longer_than_any_calendar_is_refused(unit):
    for count in ("999999999999999999", "9" * 5000):
        with pytest.raises(DataError, match=rf"expected a step of at most \d+{unit}$"):
            parse_freq(count + unit)
    assert parse_freq(f"40{unit}") == f"40{unit}"
