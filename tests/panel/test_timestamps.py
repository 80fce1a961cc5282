"""Dates as text: the format holds for the whole column, and what does not follow it is named."""

from datetime import date, datetime

import pandas as pd
import polars as pl
import pytest

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.build import open_panel
from forecaster.panel.timestamps import guess_formats, parse_times, write_times


def test_words_and_numbers_are_no_dates():
    for text in ("clear", "id_1000", "12.5", "2024", "1.2.3"):
        assert guess_formats(pl.Series([text])) == []


@pytest.mark.parametrize(
    ("texts", "time_format", "last"),
    [
        (["2024-01-31", "2024-02-01"], "%Y-%m-%d", datetime(2024, 2, 1)),
        (["2024/1/1 0:00", "2024/11/12 13:00"], "%Y/%-m/%-d %-H:%M", datetime(2024, 11, 12, 13)),
        (["2024-01-01T00:00:00", "2024-01-01T00:00:01"], "%Y-%m-%dT%H:%M:%S", datetime(2024, 1, 1, 0, 0, 1)),
        (["13.01.2024", "01.02.2024"], "%d.%m.%Y", datetime(2024, 2, 1)),
        (["01/02/2024", "01/13/2024"], "%m/%d/%Y", datetime(2024, 1, 13)),
        (["2024-01", "2024-02"], "%Y-%m", datetime(2024, 2, 1)),
        (["01/13/2024 02:30 PM", "01/03/2024 12:00 AM"], "%m/%d/%Y %I:%M %p", datetime(2024, 1, 3)),
        (["1/13/2024 2:30 pm", "1/3/2024 12:00 am"], "%-m/%-d/%Y %-I:%M %P", datetime(2024, 1, 3)),
        (["31.12.98", "01.01.99"], "%d.%m.%y", datetime(1999, 1, 1)),
        (["98-12-31", "99-01-01"], "%y-%m-%d", datetime(1999, 1, 1)),
        (["03-Jan-2024", "13-May-2024"], "%d-%b-%Y", datetime(2024, 5, 13)),
        (["3 January 2024", "13 May 2024"], "%-d %B %Y", datetime(2024, 5, 13)),
        (["Jan 3, 2024", "May 13, 2024"], "%b %-d, %Y", datetime(2024, 5, 13)),
        (["Jan 2024", "May 2024"], "%b %Y", datetime(2024, 5, 1)),
        (["2024-W01", "2024-W05"], "%G-W%V", datetime(2024, 1, 29)),
        (["2024-W01-1", "2024-W05-3"], "%G-W%V-%u", datetime(2024, 1, 31)),
        (["2024Q1", "2024Q4"], "%YQ%q", datetime(2024, 10, 1)),
        (["Q1 2024", "Q4 2024"], "Q%q %Y", datetime(2024, 10, 1)),
        (["20240131", "20240201"], "%Y%m%d", datetime(2024, 2, 1)),
        (["202401", "202402"], "%Y%m", datetime(2024, 2, 1)),
        (["20240131T1230", "20240131T1330"], "%Y%m%dT%H%M", datetime(2024, 1, 31, 13, 30)),
        (["20240131123000", "20240131133000"], "%Y%m%d%H%M%S", datetime(2024, 1, 31, 13, 30)),
        (["2024-01-31 10", "2024-01-31 11"], "%Y-%m-%d %H", datetime(2024, 1, 31, 11)),
    ],
)  # fmt: skip
def test_dates_are_read_and_written_back(texts, time_format, last):
    times, found = parse_times(pl.Series(texts), "a.csv")
    assert (found, times[-1]) == (time_format, last)
    assert write_times(times, found).to_list() == texts


def test_two_digit_years_are_decided_by_the_whole_column_or_refused():
    message = r"day, month and year are ambiguous \(row 1 holds '13.01.24'\).*'%d.%m.%y' or '%y.%m.%d'"
    with pytest.raises(DataError, match=message):
        parse_times(pl.Series(["13.01.24", "14.01.24"]), "a.csv")
    times, _ = parse_times(pl.Series(["13.01.24"]), "a.csv", "%d.%m.%y", strict=True)
    assert times[0] == datetime(2024, 1, 13)


def test_a_declared_format_is_strict_and_checked():
    with pytest.raises(
        DataError, match=r"written like '31.01.2024', found '2024-02-01' in row 2 \(1 such"
    ):
        parse_times(pl.Series(["31.01.2024", "2024-02-01"]), "a.csv", "%d.%m.%Y", strict=True)
    times, found = parse_times(pl.Series(["2024-02-01"]), "a.csv", "%d.%m.%Y")
    assert found == "%Y-%m-%d" and times[0] == datetime(2024, 2, 1)
    for text in ("%d.%m.%Q", "hello", "%H:%M", "%d.%m", "%", ""):
        with pytest.raises(DataError, match=r"--time-format '.*': expected how a date is written"):
            parse_times(pl.Series(["31.01.2024"]), "a.csv", text, strict=True)


def test_one_offset_is_kept_and_several_become_utc():
    one = ["2024-01-31T10:00:00+01:00", "2024-01-31T11:00:00+01:00"]
    times, found = parse_times(pl.Series(one), "a.csv")
    assert found.endswith("%S+01:00") and write_times(times, found).to_list() == one
    assert times.dtype == pl.Datetime("us", "UTC") and times.dt.hour().to_list() == [9, 10]
    times, found = parse_times(pl.Series([one[0], "2024-07-31T11:00:00+02:00"]), "a.csv")
    assert found.endswith("%:z") and times.dt.hour().to_list() == [9, 9]
    behind, found = parse_times(pl.Series(["2024-01-31 10:00 -0530"]), "a.csv")
    assert behind.dt.strftime("%H:%M")[0] == "15:30" and write_times(behind, found)[0].endswith(
        "10:00 -0530"
    )


def berlin(first, last, step):
    """Times of a place whose clocks change, as text with their offsets."""
    return [time.isoformat() for time in pd.date_range(first, last, freq=step, tz="Europe/Berlin")]


@pytest.mark.parametrize("clock", ["00:00", "08:30"])
def test_days_whose_offset_changes_are_days_of_a_place(clock):
    texts = berlin(f"2024-03-01 {clock}", f"2024-11-30 {clock}", "D")
    table = pl.DataFrame({"date": texts, "y": range(len(texts))})
    panel = open_panel(table, DataConfig())
    assert (panel.calendar.freq, panel.regular, panel.calendar.time_zone) == ("1d", True, None)
    stamps = panel.stamps(panel.time, "date").to_list()
    assert stamps == [text[:19] for text in texts]
    (note,) = [note for note in panel.notes if note.rule == "zones"]
    assert "2 offsets from UTC: +01:00, +02:00, and always at one clock" in note.text
    day = panel.calendar.parse(f"2024-07-01T{clock}:00+02:00")
    assert panel.calendar.text(day)[:10] == "2024-07-01"
    # A later table, with a future one, may lie in summer alone.
    future = table[120:125].with_columns(k=pl.lit(1.0)).drop("y")
    known = DataConfig(known=("k",))
    assert open_panel(table[:120].with_columns(k=pl.lit(0.0)), known, future=future).n_rows == 125
    assert open_panel(table[100:120], DataConfig(), schema=panel.schema).n_rows == 20


def test_hours_whose_offset_changes_stay_instants():
    texts = berlin("2024-03-30", "2024-04-01", "h")
    panel = open_panel(pl.DataFrame({"date": texts, "y": range(len(texts))}), DataConfig())
    assert (panel.calendar.freq, panel.regular, panel.calendar.time_zone) == ("1h", True, "UTC")
    assert panel.calendar.text(int(panel.time[0])) == "2024-03-29 23:00"


def test_a_model_of_winter_days_reads_days_across_a_clock_change():
    winter, all_year = berlin("2024-01-01", "2024-03-10", "D"), berlin("2024-01-01", "2024-06-30", "D")
    model = open_panel(pl.DataFrame({"date": winter, "y": range(len(winter))}), DataConfig())
    panel = open_panel(
        pl.DataFrame({"date": all_year, "y": range(len(all_year))}), DataConfig(), schema=model.schema
    )
    assert panel.n_rows == len(all_year) and panel.regular
    assert panel.stamps(panel.time, "date").to_list() == [text[:19] + "+01:00" for text in all_year]


@pytest.mark.parametrize(
    ("reading", "first", "rows", "freq"),
    [
        ("{d}/{m}/{y:02}", date(2020, 7, 1), 12, "1d"),
        ("{d}/{m}/{y:02}", date(2020, 7, 1), 31, "1d"),
        ("{m}/{d}/{y:02}", date(2020, 7, 1), 5, "1d"),
        ("{d:02}.{m:02}.{y:02}", date(2020, 3, 8), 23, "1d"),
        ("{y:02}-{m:02}-{d:02}", date(2010, 3, 8), 23, "1d"),
        ("{m}/{d}/20{y:02}", date(2020, 1, 1), 13, "1mo"),
        ("{d:02}/{m:02}/20{y:02}", date(2019, 1, 1), 24, "1mo"),
    ],
)
def test_the_only_reading_that_is_daily_or_monthly_is_the_one(reading, first, rows, freq):
    days = pd.date_range(first, periods=rows, freq="D" if freq == "1d" else "MS")
    texts = [reading.format(y=day.year % 100, m=day.month, d=day.day) for day in days]
    times, found = parse_times(pl.Series(texts), "a.csv")
    assert (
        times.to_list() == days.to_pydatetime().tolist()
        and write_times(times, found).to_list() == texts
    )
    panel = open_panel(pl.DataFrame({"date": texts, "y": range(rows)}), DataConfig())
    assert panel.calendar.freq.startswith(freq)


@pytest.mark.parametrize("rows", [1, 4, 12])
def test_first_days_of_months_that_may_be_days_of_january_are_refused(rows):
    texts = [f"{month}/1/2020" for month in range(1, rows + 1)]
    with pytest.raises(DataError, match="day and month are ambiguous"):
        parse_times(pl.Series(["1/2/2020"] if rows == 1 else texts), "a.csv")


def test_the_date_of_an_option_is_blamed_on_the_option():
    calendar = open_panel(
        pl.DataFrame({"t": ["2024-01-01", "2024-01-02"], "y": [1.0, 2]}), DataConfig()
    ).calendar
    for text in ("2025-13-01", "soon", "01/02/2024"):
        with pytest.raises(DataError, match=f"^cutoff '{text}': expected a date, as YYYY-MM-DD$"):
            calendar.parse(text, "cutoff")


@pytest.mark.parametrize(
    ("name", "values", "freq", "first"),
    [
        ("date", [20240131, 20240201, 20240202], "1d", "2024-01-31"),
        ("month", [202401, 202402, 202403], "1mo", "2024-01-01"),
        ("year", [2001, 2002, 2003], "1y", "2001-01-01"),
        ("timestamp", [1704067200, 1704070800, 1704074400], "1h", "2024-01-01 00:00"),
        ("orderTime", [1704067200000, 1704067200500, 1704067201000], "500ms", "2024-01-01 00:00"),
        ("ts", [1704067200 * 10**9, 1704070800 * 10**9, 1704074400 * 10**9], "1h", "2024-01-01 00:00"),
    ],
)  # fmt: skip
def test_whole_numbers_that_are_dates_are_read_and_written_back(name, values, freq, first):
    table = pl.DataFrame({name: values, "y": [1.0, 2, 3]})
    panel = open_panel(table, DataConfig())
    assert panel.calendar.freq == freq and panel.calendar.text(int(panel.time[0])) == first
    assert panel.stamps(panel.time, name).to_list() == values
    assert panel.schema.time_format in panel.schema.reasons[name]
    other = open_panel(table, DataConfig(), schema=panel.schema)
    assert (other.time == panel.time).all() and other.schema.time_dtype == "digits"


def test_a_format_or_a_step_decides_what_whole_numbers_are():
    table = pl.DataFrame({"n": [20240131, 20240201], "y": [1.0, 2]})
    panel = open_panel(table, DataConfig(time="n", time_format="%Y%m%d"))
    assert panel.calendar.freq == "1d" and panel.schema.time_dtype == "digits"
    steps = open_panel(
        table.with_columns(n=pl.Series([20240131, 20240132])), DataConfig(time="n", freq="1i")
    )
    assert steps.time.tolist() == [20240131, 20240132] and steps.calendar.integer
    broken = pl.DataFrame(
        {"date": [20240100 + day for day in range(1, 31)] + [20240230], "y": [1.0] * 31}
    )
    with pytest.raises(DataError, match="found '20240230' in row 31"):
        open_panel(broken, DataConfig())
    assert open_panel(pl.DataFrame({"t": [1, 2], "y": [1.0, 2]}), DataConfig()).calendar.integer


def test_stamps_finer_than_microseconds_are_refused():
    fine = pl.Series("t", [0, 1001]).cast(pl.Datetime("ns"))
    with pytest.raises(
        DataError, match=r"whole microseconds, found '1001 ns since 1970' in row 2 \(1 such rows\)"
    ):
        open_panel(pl.DataFrame([fine, pl.Series("y", [1.0, 2])]), DataConfig(freq="1us"))
    for odd in (pl.Series("t", [1, 2]).cast(pl.Duration("us")), pl.Series("t", [1, 2]).cast(pl.Time)):
        with pytest.raises(DataError, match="expected dates or integers, found"):
            open_panel(pl.DataFrame([odd, pl.Series("y", [1.0, 2])]), DataConfig(time="t"))
