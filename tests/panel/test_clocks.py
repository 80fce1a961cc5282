"""A date and a column of clocks, hours or slots of the day are one time, read and written back as they came."""

import json
from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel import convert
from forecaster.panel.build import open_panel
from forecaster.panel.schema import Schema
from forecaster.panel.timestamps import parse_times, write_times

DAYS = [date(2024, 2, 26) + timedelta(days=n) for n in range(8)]


def of_days(name, cells):
    """Eight days, each with every cell once."""
    days = pl.DataFrame({"date": DAYS})
    frame = days.join(pl.DataFrame({name: cells}), how="cross")
    return frame.with_columns(load=np.random.default_rng(0).normal(50, 9, frame.height).round(1))


def clocks(minutes, first=0, form="{:02d}:{:02d}"):
    return [form.format(*divmod(minute, 60)) for minute in range(first, 1440 + first, minutes)]


TABLES = [
    ("hour", [*range(24)], 60, 0),
    ("HourEnding", [*range(1, 25)], 60, 1),
    ("HE", [f"{n:02d}" for n in range(1, 25)], 60, 1),
    ("settlement_period", [*range(1, 49)], 30, 1),
    ("slot", [*range(48)], 30, 0),
    ("interval", [*range(96)], 15, 0),
    ("block", [*range(1, 97)], 15, 1),
    ("Time", clocks(1), 1, 0),
    ("clock", clocks(15, form="{:02d}:{:02d}:00"), 15, 0),
    ("hour", clocks(60, 60), 60, 1),
    ("at", clocks(15, 15, "{:02d}:{:02d}:00"), 15, 1),
]


@pytest.mark.parametrize(("name", "cells", "minutes", "first"), TABLES)
@pytest.mark.parametrize("kind", ["text", "date", "datetime", "digits", "file"])
def test_a_clock_is_a_part_of_the_time_and_comes_back(tmp_path, name, cells, minutes, first, kind):
    table = of_days(name, cells)
    text = pl.col("date").dt.strftime("%d/%m/%Y")
    digits = pl.col("date").dt.strftime("%Y%m%d").cast(pl.Int64)
    forms = {"date": pl.col("date"), "datetime": pl.col("date").cast(pl.Datetime), "digits": digits}
    table = table.with_columns(forms.get(kind, text).alias("date"))
    source = tmp_path / "a.csv" if kind == "file" else table
    if kind == "file":
        table.write_csv(source)
    panel = open_panel(source, DataConfig())
    assert (panel.schema.time, panel.n_series, panel.schema.target) == (f"date,{name}", 1, ("load",))
    assert (
        panel.calendar.text(int(panel.time[0])).startswith("2024-02-26")
        and panel.n_rows == table.height
    )
    assert np.diff(panel.time).tolist() == [minutes * 60_000_000] * (table.height - 1)
    assert [note.rule for note in panel.notes] == ["time"] * first
    # The model reads a few rows of the next table as it read this one.
    schema = Schema.from_dict(json.loads(json.dumps(panel.schema.to_dict())))
    few = table.tail(3)
    if kind == "file":
        few.write_csv(tmp_path / "few.csv")
    again = open_panel(tmp_path / "few.csv" if kind == "file" else few, DataConfig(), schema=schema)
    assert again.time.tolist() == panel.time[-3:].tolist()
    rows = panel.frame(np.zeros(panel.n_rows, int), panel.time)
    kept = (
        pl.read_csv(source, infer_schema=False).select(rows.columns)
        if kind == "file"
        else table.select("date", name)
    )
    assert rows.cast(pl.String).equals(kept.cast(pl.String))


def test_a_clock_of_several_series_is_a_part_of_the_time_unless_declared():
    table = pl.concat([of_days("hour", range(24)).with_columns(shop=pl.lit(name)) for name in "ab"])
    panel = open_panel(table, DataConfig())
    assert (panel.schema.time, panel.schema.series, panel.n_series) == ("date,hour", ("shop",), 2)
    panel = open_panel(table, DataConfig(series=("shop", "hour")))
    assert (panel.schema.time, panel.n_series) == ("date", 48)
    assert open_panel(table, DataConfig(time="date")).n_series == 48


def test_an_hour_beside_dates_that_are_unique_is_no_part_of_the_time():
    table = of_days("peak_hour", [18]).with_columns(pl.Series("peak_hour", [17, 18, 19, 18] * 2))
    panel = open_panel(table, DataConfig(target=("load",)))
    assert panel.schema.time == "date" and panel.schema.past == ("peak_hour",)


def test_other_tables_are_joined_as_the_table_is(tmp_path):
    table = of_days("hour", range(1, 25)).with_columns(
        load=pl.col("load").round(0), temp=pl.col("load") / 7
    )
    later = table.tail(24).with_columns(date=pl.lit(date(2024, 3, 5)))
    panel = open_panel(table.drop("temp"), DataConfig(), covariates=table.drop("load"))
    assert panel.schema.past == ("temp",) and not np.isnan(panel.values).any()
    panel = open_panel(table, DataConfig(), future=later.drop("load"))
    assert panel.schema.known == ("temp",) and panel.n_rows == table.height + 24


@pytest.mark.parametrize("hours", [range(24), range(1, 25)])
def test_a_table_converted_in_parts_has_the_same_times(tmp_path, monkeypatch, hours):
    monkeypatch.setattr(convert, "WHOLE", 0)
    monkeypatch.setattr(convert, "PART", 200)
    sample = convert.sample_of
    monkeypatch.setattr(convert, "sample_of", lambda scan, _: sample(scan, 10**6))
    shops = [of_days("hour", hours).with_columns(shop=pl.lit(name)) for name in "abc"]
    pl.concat(shops).write_parquet(tmp_path / "a.parquet")
    panel = open_panel(tmp_path / "a.parquet", DataConfig())
    mapped = convert.convert_table(tmp_path / "a.parquet", tmp_path / "store", DataConfig())
    assert panel.schema.time == "date,hour" and mapped.schema == panel.schema
    assert mapped.time.tolist() == panel.time.tolist() and mapped.n_series == 3
    assert {note.rule for note in mapped.notes} == {note.rule for note in panel.notes}


def test_24_o_clock_closes_its_day_in_one_column_too():
    texts = pl.Series([f"2024-02-{day} {hour:02d}:00" for day in (28, 29) for hour in range(1, 25)])
    times, time_format = parse_times(texts, "a.csv")
    assert times.dt.date().unique().to_list() == [date(2024, 2, 28), date(2024, 2, 29)]
    assert times.diff().drop_nulls().unique().to_list() == [timedelta(hours=1)]
    assert write_times(times, time_format).to_list() == texts.to_list()


def test_a_25th_hour_is_refused_with_what_to_do():
    table = of_days("hour", range(1, 25))
    extra = table.head(1).with_columns(hour=pl.lit(25))
    with pytest.raises(DataError, match=r"found '2024-02-26 25'.* twice, and pass --time-zone"):
        open_panel(pl.concat([table, extra.cast(table.schema)]), DataConfig(time="date,hour"))


@pytest.mark.parametrize(("count", "zone"), [(24, "Europe/Berlin"), (48, "Europe/London")])
@pytest.mark.parametrize("first", [date(2023, 10, 27), date(2024, 3, 29)])
def test_numbers_past_a_change_of_clocks_are_local_time_and_come_back(count, zone, first):
    days = [first + timedelta(days=n) for n in range(5)]
    step = count // 24 if first.month == 10 else -count // 24
    counts = [count, count, count + step, count, count]
    rows = [(day, n) for day, most in zip(days, counts, strict=True) for n in range(1, most + 1)]
    table = pl.DataFrame(rows, schema=["date", "period"], orient="row")
    panel = open_panel(table.with_columns(load=pl.int_range(pl.len()) % 7), DataConfig(time_zone=zone))
    assert panel.n_series == 1 and set(np.diff(panel.time)) == {86_400_000_000 // count}
    assert panel.frame(np.zeros(len(rows), int), panel.time).equals(table)
    newest = open_panel(
        table.reverse().with_columns(load=pl.int_range(pl.len()) % 7), DataConfig(time_zone=zone)
    )
    assert newest.time.tolist() == panel.time.tolist()


@pytest.mark.parametrize("name", ["date_of_month", "dom", "mday", "day_of_month"])
def test_a_day_of_the_month_is_a_part_of_a_time_by_its_name(name):
    days = pl.DataFrame(
        {"year": [2024] * 8, "month": [2] * 4 + [3] * 4, name: [26, 27, 28, 29, 1, 2, 3, 4]}
    )
    table = days.select(name, "year", "month", births=pl.int_range(8) % 3)
    with pytest.raises(DataError, match=f"pass --time {name},year,month, or --time year"):
        open_panel(table, DataConfig())
    panel = open_panel(table, DataConfig(time=f"{name},year,month"))
    assert panel.calendar.freq == "1d"
    assert panel.frame(np.zeros(8, int), panel.time).equals(days)
