"""Dates as text: the format holds for the whole column, and what does not follow it is named."""

from datetime import datetime

import polars as pl
import pytest

from forecaster.errors import DataError
from forecaster.panel.stamps import guess_formats, parse_times


@pytest.mark.parametrize(
    ("texts", "time_format", "second"),
    [
        (["2024-01-31", "2024-02-01"], "%Y-%m-%d", datetime(2024, 2, 1)),
        (["2024/1/1 0:00", "2024/11/12 13:00"], "%Y/%-m/%-d %-H:%M", datetime(2024, 11, 12, 13)),
        (
            ["2024-01-01T00:00:00", "2024-01-01T00:00:01"],
            "%Y-%m-%dT%H:%M:%S",
            datetime(2024, 1, 1, 0, 0, 1),
        ),
        (["13.01.2024", "01.02.2024"], "%d.%m.%Y", datetime(2024, 2, 1)),
        (["01/02/2024", "01/13/2024"], "%m/%d/%Y", datetime(2024, 1, 13)),
        (["2024-01", "2024-02"], "%Y-%m", datetime(2024, 2, 1)),
        (
            ["2024-01-01 00:00:00.5", "2024-01-01 00:00:01"],
            "%Y-%m-%d %H:%M:%S%.f",
            datetime(2024, 1, 1, 0, 0, 1),
        ),
    ],
)
def test_formats_are_found(texts, time_format, second):
    times, found = parse_times(pl.Series(texts), "a.csv")
    assert found == time_format and times[1] == second


def test_offsets_become_utc():
    for text in ("2024-01-01T01:00:00+01:00", "2024-01-01T00:00:00Z"):
        times, found = parse_times(pl.Series([text]), "a.csv")
        assert times.dtype == pl.Datetime("us", "UTC") and times.to_physical()[0] == 1704067200000000
        assert times.dt.strftime(found)[0] in (text, "2024-01-01T00:00:00+00:00")


def test_day_and_month_that_cannot_be_told_apart_are_refused():
    with pytest.raises(DataError, match=r"row 1 holds '01/02/2024'.*write dates as YYYY-MM-DD"):
        parse_times(pl.Series(["01/02/2024", "03/04/2024"]), "a.csv")
    times, _ = parse_times(pl.Series(["01/02/2024"]), "a.csv", "%d/%m/%Y")
    assert times[0] == datetime(2024, 2, 1)


def test_the_first_bad_row_is_named():
    column = pl.Series(["2024-01-01"] * 50 + ["2024-02-30", "soon"])
    with pytest.raises(DataError, match=r"a.csv: .*found '2024-02-30' in row 51 \(2 such rows\)"):
        parse_times(column, "a.csv")
    with pytest.raises(DataError, match="found none in row 2"):
        parse_times(pl.Series(["2024-01-01", None]), "a.csv")
    with pytest.raises(DataError, match="expected dates, found 'soon' in row 1"):
        parse_times(pl.Series(["soon"]), "a.csv")


def test_words_and_numbers_are_no_dates():
    for text in ("clear", "id_1000", "12.5", "2024", "1.2.3"):
        assert guess_formats(pl.Series([text])) == []
