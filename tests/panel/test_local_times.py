"""Local times: an hour that clocks show twice is two steps, a skipped one none, and local times come back."""

from datetime import datetime, timedelta

import polars as pl
import pytest

import forecaster as fc
from forecaster.config import DataConfig
from forecaster.errors import ConfigError, DataError
from forecaster.panel.build import open_panel

BERLIN = DataConfig(time_zone="Europe/Berlin")
MIDNIGHT = {
    "America/Havana": (datetime(2023, 11, 5), datetime(2024, 3, 10)),
    "Asia/Beirut": (datetime(2023, 10, 29), datetime(2024, 3, 31)),
    "America/Santiago": (datetime(2024, 4, 7), datetime(2023, 9, 3)),
}
"""By zone whose clocks change at midnight, the days after which an hour is shown twice, or begins late."""
AUTUMN = datetime(2023, 10, 27), datetime(2023, 11, 2)
SPRING = datetime(2024, 3, 29), datetime(2024, 4, 3)


def hours(span, every="1h", zone="Europe/Berlin"):
    """All times of a span, with their zone."""
    return pl.datetime_range(*span, every, time_zone=zone, eager=True).alias("time")


def local(times, series=("a",)):
    """A table of local times as text, a row per series and time; `load` numbers the times."""
    parts = [
        pl.DataFrame(
            [times.dt.strftime("%Y-%m-%d %H:%M"), pl.Series("load", range(len(times)), pl.Float64)]
        )
        for _ in series
    ]
    if len(series) == 1:
        return parts[0]
    return pl.concat(part.with_columns(shop=pl.lit(s)) for part, s in zip(parts, series, strict=True))


def refused(table, *words, **data):
    with pytest.raises(DataError) as caught:
        open_panel(table, DataConfig(**data))
    message = str(caught.value)
    for word in words:
        assert word in message, message
    return message


@pytest.mark.parametrize("every", ["1h", "30m", "15m"])
@pytest.mark.parametrize("span", [AUTUMN, SPRING])
def test_steps_over_a_change_of_clocks_are_of_one_length(span, every):
    truth = hours(span, every)
    panel = open_panel(local(truth), BERLIN)
    assert panel.time.tolist() == truth.dt.epoch("us").to_list()
    assert panel.values[:, 0].tolist() == [*range(len(truth))] and panel.regular


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(lambda rows: rows, id="by series"),
        pytest.param(lambda rows: rows.sort("time", maintain_order=True), id="by time"),
        pytest.param(lambda rows: rows.reverse(), id="newest first"),
        pytest.param(
            lambda rows: rows.reverse().sort("time", descending=True, maintain_order=True), id="falling"
        ),
    ],
)
def test_the_two_hours_of_each_series_are_told_apart_in_the_order_of_rows(order):
    truth = hours(AUTUMN, "30m")
    panel = open_panel(order(local(truth, "abc")), BERLIN)
    assert panel.series_names == ["a", "b", "c"]
    assert panel.time.tolist() == 3 * truth.dt.epoch("us").to_list()
    assert panel.values[:, 0].tolist() == 3 * [*range(len(truth))]


@pytest.mark.parametrize(
    ("zone", "span"),
    [
        ("Europe/Berlin", AUTUMN),
        ("Europe/London", AUTUMN),
        ("America/New_York", (datetime(2023, 11, 3), datetime(2023, 11, 7))),
        ("Australia/Sydney", (datetime(2024, 4, 5), datetime(2024, 4, 9))),
    ],
)
def test_rows_that_repeat_where_clocks_change_look_like_local_time(zone, span):
    table = local(hours(span, zone=zone), "ab")
    ways = f"pass --time-zone {zone}, or settle it with --on-duplicates mean"
    refused(table, "it looks like local time where clocks change", ways)
    assert open_panel(table, DataConfig(on_duplicates="mean")).n_rows == 2 * (len(table) // 2 - 1)
    days = table.with_columns(load=pl.col("time").str.slice(8, 2).cast(pl.Float64))
    copies = open_panel(days, DataConfig())
    (note,) = (note for note in copies.notes if note.rule == "duplicates")
    assert f"--time-zone {zone}" in note.advice


@pytest.mark.parametrize("zone", MIDNIGHT)
@pytest.mark.parametrize("season", [0, 1])
def test_clocks_that_change_at_midnight_are_read_and_named(zone, season):
    day = MIDNIGHT[zone][season]
    begin = day - timedelta(days=3)
    truth = hours((begin, day + timedelta(days=3)), zone=zone)[1:-1]
    panel = open_panel(local(truth), DataConfig(time_zone=zone))
    assert panel.time.tolist() == truth.dt.epoch("us").to_list() and panel.regular
    if season:
        (gap,) = (one for one in fc.check(local(truth)) if one.rule == "gaps")
        assert f"as in {zone}" in gap.text
    else:
        refused(local(truth), f"pass --time-zone {zone}")
    whole = truth.filter(truth.dt.date() > begin.date())
    number = pl.int_range(1, pl.len() + 1).over(pl.col("day"))
    rows = pl.DataFrame([whole.dt.strftime("%Y-%m-%d").alias("day"), whole]).with_columns(hour=number)
    numbered = rows.select("day", "hour", load=pl.int_range(pl.len()) % 24)
    panel = open_panel(numbered, DataConfig(time_zone=zone))
    assert panel.time.tolist() == whole.dt.epoch("us").to_list() and panel.regular
    k = len(numbered) - 46
    ahead = fc.predict(numbered[:k], 46, time_zone=zone)
    assert ahead.panel.as_text(ahead.frame)["day"].to_list() == numbered["day"][k:].to_list()
    assert ahead.frame["hour"].to_list() == numbered["hour"][k:].to_list()


@pytest.mark.parametrize("zone", MIDNIGHT)
@pytest.mark.parametrize("season", [0, 1])
def test_days_are_days_where_clocks_change_at_midnight(zone, season):
    begin = MIDNIGHT[zone][season] - timedelta(days=20)
    days = [begin.date() + timedelta(days=k) for k in range(40)]
    table = pl.DataFrame({"day": days, "y": [float(k % 7) for k in range(40)]})
    for kept in (table, table.with_columns(pl.col("day").cast(pl.String))):
        ahead = fc.predict(kept[:15], 10, time_zone=zone)
        assert ahead.panel.regular and ahead.panel.schema.freq == "1d"
        assert ahead.frame["day"].to_list() == kept["day"][15:25].to_list()
        assert open_panel(kept, DataConfig(time_zone=zone)).regular
    twice = pl.concat([table, table[20:21].with_columns(y=pl.lit(9.0))])
    refused(twice, "2 that disagree", time_zone=zone)


def test_other_rows_that_repeat_do_not_look_like_local_time():
    table = local(hours(AUTUMN))
    more = pl.concat([table, table.tail(1).with_columns(load=pl.lit(-1.0))])
    assert "time-zone" not in refused(more, "disagree")
    assert "time-zone" not in refused(table.with_columns(pl.col("time") + "Z"), "disagree")
    thrice = pl.concat([table, table[50:52].with_columns(pl.col("load") + 1000)])
    assert "pass --time-zone" not in refused(thrice, "disagree", time_zone="Europe/Berlin")


def test_a_gap_in_spring_is_said_to_be_the_hour_that_clocks_skip(tmp_path):
    local(hours(SPRING)).write_csv(tmp_path / "a.csv")

    def gaps(**data):
        found = fc.check(tmp_path / "a.csv", **data)
        return [(finding.text, finding.advice) for finding in found if finding.rule == "gaps"]

    ((text, advice),) = gaps()
    assert "where clocks change, as in Europe/Berlin" in text
    assert advice.endswith("pass --time-zone Europe/Berlin if times are local")
    assert not gaps(time_zone="Europe/Berlin")


def test_a_row_at_an_hour_that_clocks_skip_is_refused():
    table, at = local(hours(SPRING)), 50
    row = pl.DataFrame({"time": ["2024-03-31 02:00"], "load": [7.0]})
    said = "expected times that clocks in Europe/Berlin show, found '2024-03-31 02:00"
    more = pl.concat([table[:at], row, table[at:]])
    refused(more, said, "in row 51 (1 such rows); delete the row", time_zone="Europe/Berlin")
    for zone in (None, "Europe/Moscow"):
        assert len(open_panel(more, DataConfig(time_zone=zone)).time) == len(table) + 1


def kinds_of(table):
    stamps = table.with_columns(pl.col("time").str.to_datetime(time_unit="us"))
    return {"text": table, "polars": stamps, "pandas": stamps.to_pandas()}


@pytest.mark.parametrize("kind", ["text", "polars", "pandas"])
def test_a_model_reads_local_times_and_forecasts_them(kind, tmp_path):
    truth = local(hours(AUTUMN)).with_columns(load=pl.int_range(pl.len()) % 24, temp=pl.lit(1.5))
    begin, later = truth[:49], truth[49:55].drop("load")
    options = {"known": "temp", "time_zone": "Europe/Berlin"}
    model = fc.fit(
        kinds_of(begin)[kind], horizon=6, experts="naive", tracking=False, quiet=True, **options
    )
    model.save(tmp_path / "model")
    forecast = fc.load(tmp_path / "model").predict(kinds_of(begin)[kind], future=kinds_of(later)[kind])
    given, found = kinds_of(later)[kind]["time"], forecast.frame["time"]
    assert found.dtype == given.dtype and found.to_list() == given.to_list()
    assert [*forecast.frame["cutoff"]] == [kinds_of(begin)[kind]["time"][48]] * 6
    with pytest.raises(ConfigError, match="Europe/Paris: this model was fitted with Europe/Berlin"):
        model.predict(kinds_of(begin)[kind], future=kinds_of(later)[kind], time_zone="Europe/Paris")


def test_a_store_and_a_file_give_local_times_back(tmp_path):
    truth = local(hours(AUTUMN))[:50].with_columns(load=pl.int_range(50) % 24)
    truth.write_csv(tmp_path / "a.csv")
    fc.convert(tmp_path / "a.csv", tmp_path / "store", time_zone="Europe/Berlin", quiet=True)
    for source in (tmp_path / "store", tmp_path / "a.csv"):
        forecast = fc.predict(source, 3, time_zone="Europe/Berlin")
        rows = forecast.panel.as_text(forecast.frame)
        assert rows["time"].to_list() == ["2023-10-29 02:00", "2023-10-29 02:00", "2023-10-29 03:00"]
    truth.with_columns(pl.col("time").str.to_datetime()).write_parquet(tmp_path / "a.parquet")
    forecast = fc.predict(tmp_path / "a.parquet", 1, time_zone="Europe/Berlin")
    assert forecast.panel.as_text(forecast.frame)["time"].to_list() == ["2023-10-29 02:00:00"]


def test_what_has_no_local_times_is_refused(tmp_path):
    table = local(hours(AUTUMN)[:40])
    for time in ("Z", "+01:00"):
        refused(
            table.with_columns(pl.col("time") + time),
            "expected times of clocks",
            time_zone="Asia/Tokyo",
        )
    counts = table.with_columns(time=hours(AUTUMN)[:40].dt.epoch("s"))
    refused(counts, "expected times of clocks in Asia/Tokyo", time_zone="Asia/Tokyo", time_format="s")
    refused(table.drop("time"), "expected dates", time="row", time_zone="Asia/Tokyo")
    refused(table.with_columns(time=pl.int_range(40)), "expected dates", time_zone="Asia/Tokyo")
    for zone in ("Europe/Berlim", "Europe", "../x", ""):
        with pytest.raises(ConfigError, match="expected a name as cp850 or Europe/Berlin, found"):
            fc.check(table, time_zone=zone)
