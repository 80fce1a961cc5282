"""Days and hours that never have rows are no steps: they are neither forecast nor missed."""

from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pytest

import forecaster as fc
from forecaster.config import DataConfig
from forecaster.panel.audit import check_panel
from forecaster.panel.build import open_panel
from forecaster.panel.convert import convert_table

TINY = {
    "model": {"width": 8, "heads": 2, "encoder_layers": 1, "context_length": 12},
    "fit": {"steps": 2, "batch_size": 8},
    "tracking": {"enabled": False},
}

DAYS = pd.date_range("2024-01-01", "2024-03-31")  # Monday to Sunday
HOURS = pd.date_range("2024-01-01", "2024-02-04 23:00", freq="h")


def table(stamps, **columns):
    return pd.DataFrame({"day": stamps, "y": np.arange(float(len(stamps))) % 7, **columns})


def weekdays(*open_days, days=DAYS):
    return days[days.day_of_week.isin(open_days)]


@pytest.mark.parametrize(
    ("stamps", "freq", "season"),
    [
        (weekdays(0, 1, 2, 3, 4, 5), "1b-mon..sat", 6),
        (weekdays(0, 1, 2, 3, 4, 6), "1b-mon..fri-sun", 6),
        (weekdays(1, 2, 3, 4, 5, 6), "1b-tue..sun", 6),
        (weekdays(1, 3, 5), "1b-tue-thu-sat", 3),
        (weekdays(0, 3), "1b-mon-thu", 2),
        (weekdays(5, 6, 0, 1, 2), "1b-mon..wed-sat..sun", 5),
        (weekdays(0, 1, 2, 3, 4), "1b", 5),
        (weekdays(2), "1w", 52),
        (DAYS, "1d", 7),
        (HOURS[(HOURS.hour >= 8) & (HOURS.hour < 18) & (HOURS.day_of_week < 5)],
         "1h-mon..fri-08:00..17:00", 10),
        (HOURS[HOURS.hour.isin([8, 12, 18])], "2h-08:00-12:00-18:00", 3),
        (HOURS[(HOURS.hour >= 22) | (HOURS.hour < 6)], "1h-00:00..05:00-22:00..23:00", 8),
        (HOURS[HOURS.day_of_week < 5], "1h-mon..fri", 24),
        (HOURS[(HOURS.hour >= 8) & (HOURS.hour < 18)][:45], "1h-08:00..17:00", 10),
        (HOURS, "1h", 24),
    ],
)  # fmt: skip
def test_the_days_and_hours_that_occur_are_the_steps(stamps, freq, season):
    panel = open_panel(table(stamps), DataConfig())
    assert (panel.calendar.freq, panel.regular) == (freq, True)
    assert (panel.calendar.season_length, panel.n_rows) == (season, len(stamps))
    assert fc.predict(table(stamps), horizon=1).panel.calendar.freq == freq


@pytest.mark.parametrize("days", [(0, 1, 2, 3, 4, 5), (1, 3, 5)])
def test_only_open_days_are_forecast_and_summed(days):
    history = weekdays(*days, days=pd.date_range("2024-01-01", "2024-06-30"))
    frame = pd.DataFrame({"day": history, "y": 30.0})
    forecast = fc.predict(frame, horizon=2 * len(days))
    ahead = pd.date_range("2024-07-01", "2024-07-14")
    assert forecast.frame["day"].tolist() == weekdays(*days, days=ahead).tolist()
    weeks = forecast.total("W").frame
    assert weeks["steps"].tolist() == [len(days)] * 2 and set(weeks["status"]) == {"ok"}
    np.testing.assert_allclose(weeks["forecast"], 30.0 * len(days), rtol=0.01)


def test_public_holidays_without_rows_are_gaps_of_the_open_days():
    closed = pd.to_datetime(["2024-01-06", "2024-03-29"])  # Saturday and Friday
    panel = open_panel(table(weekdays(0, 1, 2, 3, 4, 5).drop(closed)), DataConfig())
    assert panel.calendar.freq == "1b-mon..sat"
    missing = panel.time[np.isnan(panel.values[:, 0])]
    assert [panel.calendar.text(int(time)) for time in missing] == ["2024-01-06", "2024-03-29"]


def test_one_sunday_in_a_year_is_left_out_with_a_warning():
    year = pd.date_range("2023-01-02", "2023-12-30")
    sunday = pd.Timestamp("2023-12-17")
    days = year[(year.day_of_week < 6) | (year == sunday)]
    panel = open_panel(table(days), DataConfig())
    assert panel.calendar.freq == "1b-mon..sat" and panel.n_rows == len(days) - 1
    (note,) = [note for note in panel.notes if note.rule == "calendar"]
    assert (note.severity, note.where, note.count) == ("warning", "2023-12-17", 1)
    daily = open_panel(table(days), DataConfig(freq="1d"))
    assert daily.calendar.freq == "1d" and daily.n_rows == len(year)


def test_a_declared_step_of_all_days_is_taken():
    panel = open_panel(table(weekdays(1, 3, 5)), DataConfig(freq="1d"))
    assert panel.calendar.freq == "1d" and panel.n_rows == len(DAYS) - 2


@pytest.mark.parametrize(
    "stamps",
    [
        weekdays(0, 1, 2, 3, 4, 5)[:12],  # one Sunday and a half
        DAYS.drop(pd.to_datetime(["2024-01-03", "2024-01-10"])),  # two Wednesdays are missing
        pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-05", "2024-01-09"]),
    ],
)
def test_a_few_days_without_rows_prove_nothing(stamps):
    assert open_panel(table(stamps), DataConfig()).calendar.freq == "1d"


def test_rows_that_are_missing_at_random_close_no_weekday():
    rng = np.random.default_rng(0)
    for share in (0.3, 0.5, 0.8):
        for _ in range(20):
            kept = table(DAYS[rng.random(len(DAYS)) < share])
            assert "-" not in open_panel(kept, DataConfig()).calendar.freq


def test_shops_of_other_days_are_named():
    shops = [table(weekdays(*days), shop=name) for name, days in
             (("a", range(6)), ("b", range(5)), ("c", range(7)))]  # fmt: skip
    panel = open_panel(pd.concat(shops), DataConfig())
    assert panel.calendar.freq == "1b-mon..sun"
    (found,) = [finding for finding in check_panel(panel) if finding.rule == "closed"]
    assert (found.count, found.where, found.severity) == (2, "sat, sun", "note")
    assert not [
        note for note in check_panel(open_panel(shops[0], DataConfig())) if note.rule == "closed"
    ]
    # Of the other two the calendar has the days of one.
    both = open_panel(pd.concat(shops[:2]), DataConfig())
    assert both.calendar.freq == "1b-mon..sat"


@pytest.mark.long
def test_a_model_of_open_days_reads_its_table_and_future_again(tmp_path):
    days = weekdays(0, 1, 2, 3, 4, 5)
    frame = table(days, price=1.0)
    model = fc.fit(frame, horizon=6, known=["price"], config=TINY, quiet=True)
    model.save(tmp_path / "model")
    again = fc.load(tmp_path / "model")
    assert again.artifact.schema.freq == "1b-mon..sat"
    ahead = weekdays(0, 1, 2, 3, 4, 5, days=pd.date_range("2024-04-01", "2024-04-06"))
    rows = again.predict(frame, future=pd.DataFrame({"day": ahead, "price": 1.0})).frame
    assert rows["day"].tolist() == ahead.tolist() and set(rows["status"]) == {"ok"}


def test_a_store_finds_the_open_days_of_all_parts(tmp_path):
    days = weekdays(1, 3, 5)
    frame = pl.from_pandas(pd.concat([table(days, shop=name) for name in "abc"]))
    frame.write_parquet(tmp_path / "shops.parquet")
    data = DataConfig(series=("shop",), target=("y",), past=(), static=())
    whole = open_panel(tmp_path / "shops.parquet", data)
    stored = convert_table(tmp_path / "shops.parquet", tmp_path / "store", data)
    assert stored.calendar.freq == whole.calendar.freq == "1b-tue-thu-sat"
    np.testing.assert_array_equal(stored.time, whole.time)


def test_weeks_of_open_days_are_whole_where_they_have_all_of_them():
    data = DataConfig(target=("y",), resample="W-SUN", agg="sum")
    frame = pd.DataFrame({"day": weekdays(1, 3, 5), "y": 10.0})
    assert open_panel(frame, data).values[:, 0].tolist() == [30.0] * 13
    lacking = open_panel(frame[frame["day"] != pd.Timestamp("2024-02-08")], data)
    assert np.isnan(lacking.values[5, 0]) and np.nansum(lacking.values) == 360


def test_a_last_value_in_the_future_is_a_warning():
    today = pd.Timestamp.now().normalize()
    ahead = pd.date_range(today + pd.Timedelta(days=3), periods=1).union(
        pd.date_range(end=today, periods=40)
    )
    rules = [finding.rule for finding in check_panel(open_panel(table(ahead), DataConfig(freq="1d")))]
    assert "in-future" in rules
    known = table(ahead)
    known.loc[known.index[-1], "y"] = np.nan
    rules = [finding.rule for finding in check_panel(open_panel(known, DataConfig(freq="1d")))]
    assert "in-future" not in rules
    # The stamp of the month that has begun is its last day.
    ends = table(pd.date_range(end=today + pd.offsets.MonthEnd(0), periods=24, freq="ME"))
    assert "in-future" not in [finding.rule for finding in check_panel(open_panel(ends, DataConfig()))]


def test_hours_of_a_wall_clock_with_summer_time_are_open_hours():
    zone = "Europe/Berlin"
    hours = pd.date_range("2024-03-01", "2024-04-30 23:00", freq="h", tz=zone)
    hours = hours[(hours.hour >= 8) & (hours.hour < 18) & (hours.day_of_week < 6)]
    panel = open_panel(table(hours), DataConfig())
    assert panel.calendar.freq == "1h-mon..sat-08:00..17:00" and panel.n_rows == len(hours)
    ahead = panel.calendar.shift(int(panel.time[-1]), np.arange(1, 3))
    assert [panel.calendar.text(int(time)) for time in ahead] == [
        "2024-05-01 08:00",
        "2024-05-01 09:00",
    ]


def test_dates_of_a_plain_file_are_written_as_dates(tmp_path):
    path = tmp_path / "shop.csv"
    days = pl.DataFrame({"date": [date(2024, 1, d) for d in range(1, 31)], "y": range(30)})
    days.filter(pl.col("date").dt.weekday() < 7).write_csv(path)
    assert fc.predict(path, horizon=2).frame["date"].to_list() == [date(2024, 1, 31), date(2024, 2, 1)]


def test_each_shop_is_forecast_and_summed_on_its_own_days():
    days = pd.date_range("2024-01-01", "2024-06-30")
    kinds = {"a": range(6), "b": range(5), "c": range(7)}
    shops = [table(weekdays(*kinds[name], days=days), shop=name) for name in kinds]
    shops = [shop.assign(y=29.8 + 0.1 * (shop["y"] % 5)) for shop in shops]
    # All end on a Sunday, so that all are forecast from one day on.
    ends = pd.DataFrame({"day": [days[-1]] * 2, "y": np.nan, "shop": ["a", "b"]})
    forecast = fc.predict(pd.concat([*shops, ends]), horizon=14, cutoff="last")
    rows = forecast.frame
    for name, own in kinds.items():
        shop = rows[rows["shop"] == name]
        opened = shop["day"].dt.day_of_week.isin(own)
        assert (shop["status"].where(opened, "closed") == shop["status"]).all() and len(shop) == 14
        np.testing.assert_allclose(shop["forecast"], np.where(opened, 30.0, np.nan), rtol=0.02)
    weeks = forecast.total("W").frame
    np.testing.assert_allclose(weeks["forecast"], [180, 180, 150, 150, 210, 210], rtol=0.02)
    assert weeks["steps"].tolist() == [6, 6, 5, 5, 7, 7]
    every = forecast.total("W", by="all").frame
    np.testing.assert_allclose(every["mean"], [540, 540], rtol=0.03)
    # Each day is forecast where that is asked for.
    daily = fc.predict(pd.concat(shops), horizon=14, freq="1d")
    assert set(daily.frame["status"]) == {"ok"} and daily.frame["forecast"].notna().all()
