"""Times that lie around the steps of a calendar are read at these steps; others name the way out."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import forecaster as fc
from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.audit import check_panel
from forecaster.panel.build import open_panel
from forecaster.panel.convert import convert_table

TINY = {
    "model": {"width": 8, "heads": 2, "encoder_layers": 1, "context_length": 12},
    "fit": {"steps": 2, "batch_size": 8},
    "tracking": {"enabled": False},
}

MONTHS = pd.date_range("2021-01-01", periods=36, freq="MS")


def around(stamps, unit, most, seed=0):
    """Stamps, each off by up to `most` units."""
    off = np.random.default_rng(seed).integers(-most, most + 1, len(stamps))
    return stamps + pd.to_timedelta(off, unit)


def table(stamps, **columns):
    return pd.DataFrame({"day": stamps, "y": np.arange(float(len(stamps))) % 5, **columns})


def till_export():
    """Twenty of thirty weeks of three items, a day early or late."""
    rng = np.random.default_rng(1)
    weeks = pd.date_range("2024-01-01", periods=30, freq="W-MON")
    kept = [np.sort(rng.choice(30, 20, replace=False)) for _ in range(3)]
    return pd.concat(
        table(around(weeks[weeks_of], "D", 1, seed), item=name)
        for seed, (name, weeks_of) in enumerate(zip("abc", kept, strict=True))
    )


def jitter_of(panel):
    (note,) = [note for note in panel.notes if note.rule == "jitter"]
    return note


def test_weeks_a_day_early_or_late_are_weeks_and_say_so():
    panel = open_panel(till_export(), DataConfig())
    assert panel.calendar.freq == "1w" and panel.regular
    assert {pd.Timestamp(panel.calendar.text(int(time))).day_of_week for time in panel.time} == {0}
    assert np.count_nonzero(~np.isnan(panel.values[:, 0])) == 60
    note = jitter_of(panel)
    assert note.severity == "note" and "of 60 rows lie around steps of 1w" in note.text
    assert "--resample" in note.advice
    rows = fc.predict(till_export(), horizon=2).frame
    assert set(rows["day"].dt.day_of_week) == {0} and len(rows) == 6


@pytest.mark.parametrize("options", [{"resample": "W", "agg": "sum"}, {"freq": "1w"}])
def test_irregular_rows_take_the_step_that_is_named(options):
    for frame in (
        till_export(),
        table(around(pd.date_range("2024-01-01", periods=6, freq="7D"), "D", 1)),
    ):
        panel = open_panel(frame, DataConfig(target=("y",), **options))
        assert panel.calendar.freq == "1w" and panel.regular
        assert np.nansum(panel.values[:, 0]) == frame["y"].sum()


@pytest.mark.parametrize(
    ("stamps", "freq", "first", "ahead"),
    [
        # Last and first working days of months, pay days on the 25th or the Friday before.
        (pd.date_range("2021-01-01", periods=36, freq="BME"), "1moe", "2021-01-31", "2024-01-31"),
        (pd.date_range("2021-01-01", periods=36, freq="BMS"), "1mo", "2021-01-01", "2024-01-01"),
        (pd.DatetimeIndex([day - pd.Timedelta(max(0, day.day_of_week - 4), "D")
                           for day in MONTHS + pd.Timedelta("24D")]),
         "1mo", "2021-01-25", "2024-01-25"),
        (around(pd.date_range("2021-01-01", periods=24, freq="QS"), "D", 4), "1q", "2021-01-01", "2027-01-01"),
        (around(pd.date_range("2024-01-01", periods=40, freq="14D"), "D", 2), "2w", "2024-01-01", "2025-07-14"),
        (around(pd.date_range("2024-01-01 22:00", periods=60), "min", 20), "1d", "2024-01-01 22:00",
         "2024-03-01 22:00"),
        (around(pd.date_range("2024-01-01", periods=60, freq="h"), "min", 9), "1h", "2024-01-01 00:00",
         "2024-01-03 12:00"),
        (around(pd.date_range("2024-01-01 00:30", periods=60, freq="h"), "min", 9), "1h", "2024-01-01 00:30",
         "2024-01-03 12:30"),
        (around(pd.date_range("2024-01-01", periods=60, freq="15min"), "s", 50), "15min", "2024-01-01 00:00",
         "2024-01-01 15:00"),
    ],
)  # fmt: skip
def test_times_around_a_step_have_the_stamps_of_its_calendar(stamps, freq, first, ahead):
    panel = open_panel(table(stamps), DataConfig())
    text, last = panel.calendar.text, int(panel.time[-1])
    assert (panel.calendar.freq, panel.regular, panel.n_rows) == (freq, True, len(stamps))
    # Hours around the half hour may be off by a minute or two.
    found = [pd.Timestamp(text(int(time))) for time in (panel.time[0], panel.calendar.shift(last, 1))]
    wanted = [pd.Timestamp(first), pd.Timestamp(ahead)]
    slack = pd.Timedelta("3min" if ":30" in first else "0min")
    assert all(abs(one - other) <= slack for one, other in zip(found, wanted, strict=True)), found
    jitter_of(panel)


@pytest.mark.parametrize("step", ["3D", "10D", "14D", "5D", "7D", "2h"])
def test_exact_steps_stay_what_they_are(step):
    stamps = pd.date_range("2024-01-01", periods=40, freq=step)
    panel = open_panel(table(stamps), DataConfig())
    assert panel.regular and panel.calendar.step == stamps.freq.nanos / 1000 and not panel.notes


def test_month_ends_stay_months_ends_without_a_word():
    panel = open_panel(table(pd.date_range("2021-01-31", periods=36, freq="ME")), DataConfig())
    assert (panel.calendar.freq, panel.notes) == ("1moe", ())


def test_two_readings_in_one_step_stay_irregular_and_name_the_way_out():
    weeks = around(pd.date_range("2024-01-01", periods=30, freq="7D"), "D", 1)
    frame = table(weeks.insert(3, weeks[3] + pd.Timedelta("2D")))
    panel = open_panel(frame, DataConfig())
    (note,) = [note for note in check_panel(panel) if note.rule == "irregular"]
    assert not panel.regular and "--resample" in note.advice and "--freq" in note.advice
    with pytest.raises(DataError, match=r"expected steps of 1w .* aggregate them with --resample"):
        open_panel(frame, DataConfig(freq="1w"))
    weekly = open_panel(frame, DataConfig(target=("y",), resample="W", agg="sum"))
    assert np.nansum(weekly.values[:, 0]) == frame["y"].sum()


def test_times_at_random_and_few_rows_lie_around_no_step():
    rng = np.random.default_rng(0)
    for _ in range(20):
        days = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.cumsum(rng.integers(3, 12, 30)), "D")
        assert not open_panel(table(days), DataConfig()).regular
        hours = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.cumsum(rng.exponential(90, 40)), "min")
        assert not open_panel(table(hours.floor("s")), DataConfig()).regular
    few = around(pd.date_range("2024-01-01", periods=6, freq="7D"), "D", 1)
    assert not open_panel(table(few), DataConfig()).regular


def test_a_model_of_weeks_reads_late_rows_of_a_later_table(tmp_path):
    weeks = pd.date_range("2024-01-01", periods=60, freq="W-MON")
    model = fc.fit(table(weeks), horizon=4, config=TINY, quiet=True)
    late = weeks.insert(60, weeks[-1] + pd.Timedelta("8D"))
    rows = model.predict(table(late)).frame
    assert rows["day"].iloc[0] == weeks[-1] + pd.Timedelta("14D")


def test_a_store_reads_each_row_at_the_stamp_of_the_whole_table(tmp_path):
    path = tmp_path / "till.parquet"
    pl.from_pandas(till_export()).write_parquet(path)
    data = DataConfig(series=("item",), target=("y",), past=(), static=())
    whole, stored = open_panel(path, data), convert_table(path, tmp_path / "store", data)
    np.testing.assert_array_equal(stored.time, whole.time)
    np.testing.assert_array_equal(stored.values, whole.values)
    assert jitter_of(stored).count == jitter_of(whole).count
