"""Public holidays: known for every row, past and future, without any file."""

import builtins
from datetime import date, timedelta

import holidays
import numpy as np
import polars as pl
import pytest
from panel_tables import refused, same

from forecaster.config import DataConfig
from forecaster.errors import ConfigError
from forecaster.panel import holidays as own
from forecaster.panel.build import open_panel
from forecaster.panel.calendar import Calendar
from forecaster.panel.store import write_store

GERMAN = holidays.country_holidays("DE", years=range(2019, 2030))
DE = DataConfig(holidays="DE")


def daily(first="2024-12-20", count=20, **columns):
    start = date.fromisoformat(first)
    days = [start + timedelta(days=k) for k in range(count)]
    return pl.DataFrame({"day": days, "y": np.arange(count, dtype=float), **columns})


def holiday_days(panel):
    column = panel.schema.columns.index("holiday")
    return {
        panel.calendar.text(int(t))
        for t, v in zip(panel.time, panel.values[:, column], strict=True)
        if v
    }


def test_days_are_marked_in_gaps_and_beyond_the_end_too():
    table = daily().filter(pl.col("day") != date(2024, 12, 26))
    panel = open_panel(table, DE)
    assert panel.schema.known_numeric == ("holiday",) and panel.schema.known == ()
    assert panel.schema.reasons["holiday"] == "public holidays of DE"
    assert ("holiday", "known", "number", "public holidays of DE") in panel.schema.rows()
    assert holiday_days(panel) == {"2024-12-25", "2024-12-26", "2025-01-01"}
    longer = panel.reaching(panel.time[-1:], 120)
    assert {"2025-04-18", "2025-05-01"} <= holiday_days(longer) and len(holiday_days(longer)) == 6


def test_several_countries_are_a_covariate_each(tmp_path):
    both = DataConfig(holidays="DE, FR,DE")
    assert both == DataConfig(holidays=["DE", "FR"]) and both.holidays == ("DE", "FR")
    panel = open_panel(daily(), both)
    names = ("holiday_DE", "holiday_FR")
    assert panel.schema.known_numeric == names
    for number, country in enumerate(both.holidays):
        alone = open_panel(daily(), DataConfig(holidays=country)).reaching(panel.time[-1:], 200)
        longer = panel.reaching(panel.time[-1:], 200)
        assert longer.values[:, 1 + number].tolist() == alone.values[:, 1].tolist()
    rows = [row for row in panel.schema.rows() if row[0] in names]
    assert [row[1::2] for row in rows] == [
        ("known", "public holidays of DE"),
        ("known", "public holidays of FR"),
    ]
    stored = write_store(panel, tmp_path / "store", both)
    assert same(stored, panel) and same(open_panel(daily(), DataConfig(), schema=panel.schema), panel)
    with pytest.raises(ConfigError, match="--holidays DE: this model was fitted with DE,FR"):
        panel.schema.renamed(DataConfig(holidays="DE"))
    refused("makes a column 'holiday_FR', but the table has one", daily(holiday_FR=np.zeros(20)), both)


def test_parts_of_a_country_have_their_own():
    assert "2025-01-06" in holiday_days(open_panel(daily(), DataConfig(holidays="de-by")))
    assert "2025-01-06" not in holiday_days(open_panel(daily(), DE))


def test_every_hour_of_a_holiday_counts_on_the_wall_clock():
    start = pl.datetime(2024, 12, 24, time_zone="Europe/Berlin")
    hours = pl.select(pl.datetime_range(start, start.dt.offset_by("72h"), "1h").alias("t"))
    panel = open_panel(hours.with_columns(y=pl.int_range(pl.len()).cast(pl.Float64)), DE)
    local = hours["t"].dt.date()
    expected = [day in GERMAN for day in local]
    assert panel.values[:, 1].astype(bool).tolist() == expected and sum(expected) == 48


@pytest.mark.parametrize(
    "freq", ["1d", "2d", "1b", "1w", "1w-sun", "1mo", "1q", "1y", "1moe", "1qe", "1ye"]
)
def test_longer_steps_count_the_holidays_in_them_as_a_loop_does(freq):
    calendar = Calendar(freq, None, False)
    time = calendar.grid(calendar.parse("2020-12-31"), calendar.parse("2026-12-31"))
    stamps = [
        date(1970, 1, 1) + timedelta(microseconds=int(t))
        for t in np.append(time, calendar.shift(time[-1], 1))
    ]
    found = own.count_holidays(calendar, time, "DE")
    for k in range(1, len(time)):
        begin, end = (stamps[k], stamps[k + 1])
        if freq.endswith("e"):
            begin, end = stamps[k - 1] + timedelta(days=1), stamps[k] + timedelta(days=1)
        elif freq[1:] in ("mo", "q", "y"):
            begin, end = begin.replace(day=1), end.replace(day=1)
        elif "-" in freq:
            begin, end = begin - timedelta(days=6), begin + timedelta(days=1)
        span = [begin + timedelta(days=d) for d in range((end - begin).days)]
        assert found[k] == sum(day in GERMAN for day in span)


def test_a_model_reads_another_table_with_its_holidays():
    schema = open_panel(daily(), DE).schema
    other = open_panel(daily("2025-04-01", 40), DataConfig(), schema=schema)
    assert {"2025-04-18", "2025-04-21", "2025-05-01"} == holiday_days(other)
    with pytest.raises(ConfigError, match="--holidays FR: this model was fitted with DE"):
        schema.renamed(DataConfig(holidays="FR"))


def test_what_cannot_have_holidays_is_refused_in_one_line():
    refused(
        "--holidays Germany: expected the code of a country, .*did you mean 'DE'",
        daily(),
        DataConfig(holidays="Germany"),
    )
    refused("DE has no part QQ.*DE-BW, DE-BY", daily(), DataConfig(holidays="DE-QQ"))
    steps = pl.DataFrame({"step": range(5), "y": np.arange(5.0)})
    refused("rows are numbered, they have no dates", steps, DE)


def test_a_missing_extra_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "holidays":
            raise ImportError
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    own.named_holidays.cache_clear()
    refused("--holidays DE: needs the package holidays: pip install holidays$", daily(), DE)
    own.named_holidays.cache_clear()
