"""Dates as text: the format holds for the whole column, and what does not follow it is named."""

import re
from datetime import date, datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

import forecaster as fc
from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.build import open_panel
from forecaster.panel.timestamps import decimal_years, guess_formats, parse_times, write_times


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
        (["KW03/2019", "KW11/2019"], "KW%V/%G", datetime(2019, 3, 11)),
        (["KW 3 2019", "KW 11 2019"], "KW %-V %G", datetime(2019, 3, 11)),
        (["W9-2019", "W10-2019"], "W%-V-%G", datetime(2019, 3, 4)),
        (["FY12Q1", "FY12Q2"], "FY%yQ%q", datetime(2012, 4, 1)),
        (["FY2012 Q1", "FY2012 Q2"], "FY%Y Q%q", datetime(2012, 4, 1)),
        (["Q1/12", "Q2/12"], "Q%q/%y", datetime(2012, 4, 1)),
        (["1Q12", "2Q12"], "%qQ%y", datetime(2012, 4, 1)),
        (["2012/Q1", "2012/Q2"], "%Y/Q%q", datetime(2012, 4, 1)),
        (["2012M1", "2012M2"], "%YM%-m", datetime(2012, 2, 1)),
        (["Jan-55", "Feb-55"], "%b-%y", datetime(1955, 2, 1)),
        (["Jan '12", "Feb '12"], "%b '%y", datetime(2012, 2, 1)),
        (["2019-KW03", "2019-KW11"], "%G-KW%V", datetime(2019, 3, 11)),
        (["2019w3", "2019w11"], "%Gw%-V", datetime(2019, 3, 11)),
        (["Q3 98", "Q4 98"], "Q%q %y", datetime(1998, 10, 1)),
        (["50/2019", "51/2019"], "%V/%G", datetime(2019, 12, 16)),
        (["10/26/64", "10/27/64"], "%m/%d/%y", datetime(1964, 10, 27)),
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


def test_years_before_quarters_or_weeks_are_no_months():
    quarters = pl.Series([f"{2012 + n // 4}-{n % 4 + 1}" for n in range(8)])
    weeks = pl.Series([f"2019/{n:02d}" for n in range(2, 30)])
    months = pl.Series([f"2019-{n}" for n in range(1, 13)])
    assert [parse_times(texts, "a.csv")[1] for texts in (quarters, weeks, months)] == [
        "%Y-%q", "%G/%V", "%Y-%-m"
    ]  # fmt: skip
    assert guess_formats(pl.Series([f"Jan-{n:02d}" for n in range(1, 32)])) == []


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


def written(column, count, name="period"):
    """The table of a column, and the next times of its forecast as the caller writes them."""
    frame = pd.DataFrame({name: column, "y": np.arange(float(len(column))) % 5})
    forecast = fc.predict(frame, horizon=count)
    return forecast, forecast.frame[name].tolist()


def year_parts(parts, count, digits):
    return [round(1960 + n / parts, digits) for n in range(count)]


@pytest.mark.parametrize(
    ("name", "column", "freq", "ahead"),
    [
        ("time", year_parts(12, 48, 3), "1mo", [1964.0, 1964.083]),
        ("time", year_parts(12, 47, 2), "1mo", [1963.92, 1964.0]),
        ("year", year_parts(12, 48, 15), "1mo", [1964.0, 1960 + 49 / 12]),
        ("time", year_parts(4, 20, 2), "1q", [1965.0, 1965.25]),
        ("time", year_parts(52, 60, 6), "1w", [1961.153846, 1961.173077]),
        ("year", year_parts(1, 20, 0), "1y", [1980.0, 1981.0]),
        ("period", [f"{n % 4 + 1}-{2015 + n // 4}" for n in range(16)], "1q", ["1-2019", "2-2019"]),
        ("period", [f"{n % 12 + 1}/{2015 + n // 12}" for n in range(35)], "1mo", ["12/2017", "1/2018"]),
        ("period", [f"{n % 52 + 1}/{2018 + n // 52}" for n in range(60)], "1w", ["9/2019", "10/2019"]),
        ("Date", [*range(44927, 44987)], "1d", [44987, 44988]),
        ("Datum", [day for day in range(44928, 44987) if (day + 5) % 7 < 5], "1b", [44987, 44988]),
        ("day", [*range(44927, 44927 + 140, 7)], "1w", [45067, 45074]),
    ],
)  # fmt: skip
def test_times_that_people_write_are_read_and_written_back(name, column, freq, ahead):
    forecast, found = written(column, 2, name)
    assert forecast.panel.calendar.freq == freq and found == ahead
    (note,) = [note for note in forecast.panel.notes if note.rule == "time"]
    assert note.severity == "note" and "--time-format" in note.advice and str(column[0]) in note.where
    again = forecast.panel.stamps(forecast.panel.time, name).to_list()
    assert again == column


@pytest.mark.parametrize(
    ("column", "flag"),
    [
        ([f"{n + 1}/2019" for n in range(12)], "'%-m/%Y' or '%-V/%G'"),
        ([f"{n + 1}-2015" for n in range(4)], "'%q-%Y' or '%-m-%Y' or '%-V-%G'"),
    ],
)
def test_numbers_and_years_of_several_readings_are_refused_with_the_formats(column, flag):
    message = f"quarter, month and week are ambiguous .* pass --time-format {flag}"
    with pytest.raises(DataError, match=message):
        parse_times(pl.Series(column), "a.csv")
    for text in re.findall("'([^']+)'", flag):
        times, _ = parse_times(pl.Series(column), "a.csv", text, strict=True)
        assert times.is_sorted() and times.n_unique() == len(column)


@pytest.mark.parametrize(
    ("column", "time_format"),
    [
        ([round(1958 + (n + 0.5) / 12, 4) for n in range(24)], "year/12.4+0.5"),
        ([1950.5, 1951.5, 1952.5], "year/1.1+0.5"),
    ],
)
def test_decimal_years_in_the_middle_of_their_parts_come_back(column, time_format):
    table = pl.DataFrame({"time": column, "y": range(len(column))})
    panel = open_panel(table, DataConfig())
    assert panel.schema.time_format == time_format
    assert panel.calendar.freq == ("1mo" if "12" in time_format else "1y")
    assert panel.stamps(panel.time, "time").to_list() == column


def test_months_before_years_in_a_file_are_no_numbers(tmp_path):
    texts = [f"{n % 12 + 1:02d}.{2019 + n // 12}" for n in range(24)]
    (tmp_path / "a.csv").write_text(
        "\n".join(["Monat,v", *(f"{text},{n % 5}" for n, text in enumerate(texts))])
    )
    panel = open_panel(tmp_path / "a.csv", DataConfig(time="Monat", time_format="%m.%Y"))
    assert panel.calendar.freq == "1mo"
    assert write_times(panel.stamps(panel.time, "Monat"), "%m.%Y").to_list() == texts


@pytest.mark.parametrize(
    "column",
    [
        [19.5, 20.1, 20.3, 21.7],
        [1970.1, 1970.73, 1971.31, 1972.9],
        [float(year) for year in range(100, 140)],
    ],
)
def test_numbers_with_a_fraction_that_are_no_years_are_no_times(column):
    assert decimal_years(pl.Series("time", column)) is None
    message = "no time column found|expected dates, timestamps or whole numbers, found Float64"
    with pytest.raises(DataError, match=message):
        open_panel(pl.DataFrame({"time": column, "y": column}), DataConfig())


def test_whole_numbers_without_the_name_of_a_date_are_no_days_of_a_spreadsheet():
    for name, values in (
        ("step", range(44927, 44987)),
        ("day", range(60)),
        ("day", range(1, 60_001, 1000)),
    ):
        frame = pl.DataFrame({name: list(values), "y": np.arange(float(len(values)))})
        assert open_panel(frame, DataConfig(time=name)).calendar.integer
    frame = pl.DataFrame({"step": range(44927, 44987), "y": np.arange(60.0)})
    panel = open_panel(frame, DataConfig(time="step", time_format="excel"))
    assert panel.calendar.text(int(panel.time[0])) == "2023-01-01"


@pytest.mark.parametrize(
    ("texts", "first", "last"),
    [
        (["10/26/64", "10/27/64"], 1964, 1964),
        (["31.10.64", "30.11.68", "31.12.72"], 1964, 1972),  # on both sides of the year 69
        (["31.12.98", "01.01.01"], 1998, 2001),
        (["31.12.20", "31.12.35"], 2020, 2035),  # a plan
    ],
)
def test_two_digit_years_far_ahead_are_of_the_last_century(texts, first, last):
    order = "%m/%d/%y" if "/" in texts[0] else "%d.%m.%y"
    times, found = parse_times(pl.Series(texts), "a.csv", order)
    assert (times.dt.year()[0], times.dt.year()[-1]) == (first, last)
    assert write_times(times, found).to_list() == texts
