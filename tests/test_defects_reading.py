"""Defects of reading and writing tables that were met in use."""

import json
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest
from forecast import tiny

import forecaster as fc
from forecaster.config import DataConfig
from forecaster.panel.build import open_panel
from forecaster.panel.schema import Schema
from forecaster.panel.store import write_store

DAYS = [f"{day:02d}.01.2024" for day in range(1, 31)]
ROLES = {"time": "day", "target": ("y",), "known": ("price",)}


def text(y=lambda k: f"{3 + k}.000,5", price=lambda k: f"{1 + k % 3},5", days=DAYS):
    """A table of text as a German program writes it."""
    rows = [(day, y(k), price(k)) for k, day in enumerate(days)]
    return pl.DataFrame(rows, schema=["day", "y", "price"], orient="row")


def written(path, frame):
    frame.write_csv(path, separator=";")
    return path


def values(source, schema=None, **options):
    roles = {} if schema else ROLES
    tables = {name: options.pop(name) for name in ("future", "covariates") if name in options}
    return open_panel(source, DataConfig(**roles, **options), schema=schema, **tables)


AHEAD = text(y=lambda k: "", price=lambda k: "2.000", days=["31.01.2024", "01.02.2024"])
WHOLE = text(y=lambda k: f"{3 + k}.000", price=lambda k: "1.000")


@pytest.mark.parametrize("kind", ["file", "pandas", "polars", "store"])
def test_further_tables_are_read_as_the_one_of_the_fit_was(tmp_path, kind):
    def given(name, frame):
        path = written(tmp_path / f"{name}.csv", frame)
        return {"file": path, "pandas": frame.to_pandas(), "polars": frame}.get(kind, path)

    fitted = values(written(tmp_path / "fit.csv", text()))
    if kind == "store":
        fitted = write_store(fitted, tmp_path / "store", DataConfig())
    schema = Schema.from_dict(json.loads(json.dumps(fitted.schema.to_dict())))
    assert schema.decimal == {"y": ",", "price": ","} and schema.time_format == "%d.%m.%Y"
    assert fitted.values[:2].tolist() == [[3000.5, 1.5], [4000.5, 2.5]]
    later = values(given("later", WHOLE), schema, future=given("ahead", AHEAD))
    assert later.values[:2].tolist() == [[3000, 1000], [4000, 1000]]
    assert later.values[-1].tolist()[1] == 2000 and later.calendar.text(later.time[-1]) == "2024-02-01"
    missing = values(given("none", text(y=lambda k: "1,5", price=lambda k: "NA")), schema)
    assert np.isnan(missing.values[:, 1]).all()
    for y, cell in (
        (lambda k: f"{k}.5", "'0.5' in row 1"),
        (lambda k: f"{3 + k},000.5", "'3,000.5' in row 1"),
    ):
        with pytest.raises(
            fc.DataError, match=r"column 'y': expected ',' as decimal mark, as the model"
        ) as e:
            values(given("other", text(y)), schema)
        assert cell in str(e.value) and str(e.value).endswith(
            "; correct the values, or pass --decimal ."
        )
    with pytest.raises(fc.DataError, match=r"column 'y': expected numbers, found '3.5,1' in row 1"):
        values(given("odd", text(lambda k: "3.5,1")), schema)
    own = values(given("own", text(lambda k: f"{3 + k}.000", lambda k: "1.5")), schema, decimal=".")
    assert own.values[0].tolist() == [3, 1.5]
    with pytest.raises(
        fc.DataError, match=r"expected dates written like '%d\.%m\.%Y', found '01\.31\.2024'"
    ):
        american = [f"01.{day:02d}.2024" for day in range(2, 32)]
        values(given("american", text(days=american[::-1])), schema)


def test_a_column_that_is_no_part_of_the_model_may_have_another_mark(tmp_path):
    frame = text().with_columns(version=pl.lit("1.5"))
    path = written(tmp_path / "a.csv", frame)
    options = DataConfig(**ROLES, past=())
    schema = open_panel(path, options).schema
    assert schema.decimal == {"y": ",", "price": ","}
    assert open_panel(path, DataConfig(), schema=schema).values[0].tolist() == [3000.5, 1.5]
    # Where both marks are in use each column keeps its own.
    mixed = values(written(tmp_path / "b.csv", text(price=lambda k: f"{k}.25"))).schema
    assert mixed.decimal == {"y": ",", "price": "."}
    later = values(
        written(tmp_path / "c.csv", text(lambda k: f"{3 + k}.000", lambda k: "1,250")), mixed
    )
    assert later.values[0].tolist() == [3000, 1250]


def test_tables_of_one_call_have_one_decimal_mark_or_are_refused(tmp_path):
    whole, exact = written(tmp_path / "whole.csv", WHOLE), written(tmp_path / "exact.csv", text())
    ahead = written(tmp_path / "ahead.csv", AHEAD)
    assert values(exact, future=ahead).values[-1, 1] == 2000
    shows = written(tmp_path / "shows.csv", AHEAD.with_columns(price=pl.lit("2.000,5")))
    assert values(whole, future=shows).values[0].tolist() == [3000, 1000]
    weather = text().select("day", temp=pl.lit("1.000"))
    cold = written(tmp_path / "cold.csv", weather)
    assert values(exact, covariates=cold).values[0].tolist() == [3000.5, 1000, 1.5]
    points = written(tmp_path / "points.csv", text(lambda k: f"{k}.5", lambda k: "1"))
    for main, future, odd, cell in (
        (
            exact,
            written(tmp_path / "p.csv", AHEAD.with_columns(price=pl.lit("2.5"))),
            "p.csv",
            "'2.5' in row 1",
        ),
        (points, shows, "points.csv", "'0.5' in row 1"),
    ):
        with pytest.raises(fc.DataError) as error:
            values(main, future=future)
        other = (exact if odd == "p.csv" else shows).name
        column = "price" if odd == "p.csv" else "y"
        message = (
            f"{odd}: column '{column}': expected ',' as decimal mark as in {tmp_path}/{other}, not '.'"
        )
        assert message in str(error.value) and cell in str(error.value)


def test_a_model_without_conventions_reads_as_before(tmp_path):
    panel = values(written(tmp_path / "a.csv", text()))
    old = panel.schema.to_dict()
    del old["decimal"]
    schema = Schema.from_dict(old)
    assert schema.decimal == {} and values(tmp_path / "a.csv", schema).values[0, 0] == 3000.5
    with pytest.raises(ValueError, match="decimal"):
        Schema.from_dict(old | {"decimal": {"y": "x"}})


def test_a_large_table_is_converted_as_the_model_reads(tmp_path, monkeypatch):
    from forecaster.runs import batch_predict

    fitted = tiny.plain_model().artifact
    model = fc.Forecaster(replace(fitted, schema=replace(fitted.schema, decimal={"sales": ","})))
    points = tiny.plain().with_columns(pl.col("sales").round().cast(pl.Int64).cast(pl.String) + ".000")
    expected = model.predict(written(tmp_path / "points.csv", points)).rows
    assert expected["forecast"].min() > 1000
    monkeypatch.setattr(batch_predict, "free_memory", lambda: 0.0)
    model.predict_to(tmp_path / "rows.parquet", tmp_path / "points.csv")
    assert pl.read_parquet(tmp_path / "rows.parquet").equals(expected)


def test_a_large_table_of_channels_that_are_series_is_converted(tmp_path, monkeypatch):
    from forecaster.runs import batch_predict

    wide = pl.DataFrame({"day": pl.date_range(datetime(2024, 1, 1), datetime(2024, 3, 30), eager=True)})
    wide = wide.with_columns(a=pl.int_range(90) % 7 + 1.0, b=pl.int_range(90) % 5 + 3.0)
    config = {"model": {"experts": ("naive",)}}
    model = fc.fit(wide, horizon=7, layout="long", config=config, tracking=False, quiet=True)
    monkeypatch.setattr(batch_predict, "free_memory", lambda: 0.0)
    wide.write_parquet(tmp_path / "wide.parquet")
    model.predict_to(tmp_path / "rows.parquet", tmp_path / "wide.parquet")
    assert pl.read_parquet(tmp_path / "rows.parquet").equals(model.predict(wide).rows)


def test_a_target_that_a_frame_holds_as_text_is_read_as_that_of_a_file():
    for frame in (text(), text().to_pandas(), text().to_pandas().astype({"y": "category"})):
        panel = values(frame)
        assert panel.values[0, 0] == 3000.5 and panel.schema.decimal == {"y": ",", "price": ","}
        assert values(WHOLE.to_pandas(), panel.schema).values[0, 0] == 3000
    with pytest.raises(fc.DataError, match=r"'1,234' in row 1 may be 1\.234 or 1234; pass --decimal"):
        values(text(y=lambda k: "1,234", price=lambda k: "1"))
    # The price shows the mark, as it would in a file.
    assert values(text(y=lambda k: "1,234")).values[0, 0] == 1.234
    assert values(text(y=lambda k: "1,234", price=lambda k: "1"), decimal=",").values[0, 0] == 1.234


def test_missing_words_are_missing_among_numbers_and_names_of_series_elsewhere(tmp_path):
    rows = [
        f"{code},{number},{day},{day % 7 or 'NA'}"
        for code, number in (("NA", 1), ("DE", 2))
        for day in range(40)
    ]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["country,shop,step,y", *rows]))
    for series in ((), ("country",)):
        panel = open_panel(
            path, DataConfig(time="step", **({"series": series} if series else {}), target=("y",))
        )
        assert panel.series_names == ["DE", "NA"] and np.isnan(panel.values).sum() == 10
    path.write_text(path.read_text().replace("DE,2", "DE,NA"))
    for declared in (
        DataConfig(time="step", series=("shop",)),
        DataConfig(time="step", target=("y",), series=("shop",)),
    ):
        with pytest.raises(
            fc.DataError, match=r"column 'shop': expected a series in every row, found none in row 41"
        ):
            open_panel(path, declared)


@pytest.mark.parametrize(
    ("times", "last"),
    [
        ("%Y-%m-%d", "2024-04-16"),
        ("%d.%m.%Y", "16.04.2024"),
        ("%d.%m.%Y %H:%M", "16.04.2024 00:00"),
        ("%-m/%-d/%Y", "4/16/2024"),
        ("%Y%m%d", "20240416"),
        ("%Y-%m-%dT%H:%M:%SZ", "2024-04-16T00:00:00Z"),
        ("dates", "2024-04-16"),
        ("stamps", "2024-04-16"),
        ("evenings", "2024-04-16 20:30:00"),
        ("zone", "2024-04-16"),
    ],
)
def test_times_of_a_csv_file_are_written_as_the_table_has_them(tmp_path, times, last):
    stamps = pl.col("date").cast(pl.Datetime("us"))
    zone = {"zone": "Europe/Berlin", "%Y-%m-%dT%H:%M:%SZ": "UTC"}.get(times)
    columns = {
        "dates": "date",
        "stamps": stamps,
        "evenings": stamps + pl.duration(hours=20, minutes=30),
        "zone": stamps.dt.replace_time_zone(zone),
    }
    source = tiny.plain().with_columns(date=columns.get(times, stamps.dt.strftime(times)))
    if "%" in times:
        source = written(tmp_path / "a.csv", source)
    fitted = tiny.plain_model().artifact
    model = fc.Forecaster(replace(fitted, schema=replace(fitted.schema, time_zone=zone)))
    forecast = model.predict(source)
    forecast.write(tmp_path / "rows.csv")
    model.detect(source).write(tmp_path / "anomalies.csv")
    for name, shard in (("one", None), ("parts", (1, 1)), ("parts", None)):
        model.predict_to(tmp_path / f"{name}.csv", source, shard=shard)
    rows = (tmp_path / "rows.csv").read_text()
    for name in ("rows", "anomalies"):
        table = pl.read_csv(tmp_path / f"{name}.csv", infer_schema=False)
        assert table["date"][-1] == (
            last if name == "rows" else last.replace("16", "09").replace("4/09", "4/9")
        )
    assert forecast.rows["date"].dtype.is_temporal() and rows.count(last) == 3
    assert all((tmp_path / f"{name}.csv").read_text() == rows for name in ("one", "parts"))


@pytest.mark.parametrize("kind", ["file", "frame"])
def test_rows_that_repeat_name_the_missing_key_columns(tmp_path, kind):
    days = [f"2024-01-{day:02d}" for day in range(1, 21)]
    cells = [
        (s, i, c, d, n + 7 * k)
        for s in "ab"
        for k, (i, c) in enumerate(("xr", "xg", "yr", "yg"))
        for n, d in enumerate(days)
    ]
    frame = pl.DataFrame(cells, schema=["store", "item", "colour", "day", "sales"], orient="row")
    one = frame.filter(pl.col("colour") == "r").drop("colour")
    path = tmp_path / "a.csv"

    def refused(frame, **options):
        frame.write_csv(path)
        with pytest.raises(fc.DataError) as error:
            open_panel(frame if kind == "frame" else path, DataConfig(**options))
        return str(error.value)

    message = refused(one, series=("store",))
    assert (
        "expected one row per series and time, found 2 that disagree at 2024-01-01 in series 'a'"
        in message
    )
    assert (
        "; they differ in column 'item': add --series store,item, or settle it with --on-dup" in message
    )
    both = "they differ in column 'item' and 'colour': add --series store,item,colour, or"
    assert both in refused(frame, series=("store",))
    assert "column 'store': add --series store, or" in refused(one.filter(item="x"), series=())
    assert "; name the series with --series COLUMN" in refused(
        pl.concat([one, one.with_columns(pl.col("sales") + 1)]), series=("store", "item")
    )
    same = one.with_columns(sales=pl.lit(1.5), past=pl.col("sales"))
    same.write_csv(path)
    panel = open_panel(path, DataConfig(series=("store",), target=("sales",), past=()))
    (note,) = [note for note in panel.notes if note.rule == "duplicates"]
    assert note.advice == "they differ in column 'item': add --series store,item"


POLLUTION = ["2010,1,1,0,NA,NW", "2010,1,1,1,NA,NW", "2010,1,1,2,129,cv"]


def parts(rows=48, dtype=pl.Int64):
    """Hours of a series, a column for each part of the time."""
    times = pl.Series(np.arange(rows) * 3_600_000_000 + 1_709_164_800_000_000).cast(pl.Datetime("us"))
    columns = {name: getattr(times.dt, name)().cast(dtype) for name in ("year", "month", "day", "hour")}
    return pl.DataFrame(columns).with_columns(y=pl.int_range(rows) % 24 + 0.5), times


@pytest.mark.parametrize("kind", ["file", "parquet", "pandas", "polars", "store", "text"])
def test_a_time_in_several_columns_comes_back_in_them(tmp_path, kind):
    from forecaster.panel.convert import convert_table

    frame, times = parts(dtype=pl.Int32)
    plain = open_panel(frame.select("y", time=times), DataConfig(freq="1h"))
    if kind == "text":  # as 02 and 07
        frame = frame.with_columns(pl.col("month", "day", "hour").cast(pl.String).str.zfill(2))
    frame.write_csv(tmp_path / "a.csv")
    frame.write_parquet(tmp_path / "a.parquet")
    files = {"file": tmp_path / "a.csv", "parquet": tmp_path / "a.parquet", "text": tmp_path / "a.csv"}
    source = {"pandas": frame.to_pandas(), "polars": frame}.get(
        kind, files.get(kind, tmp_path / "a.csv")
    )
    data = DataConfig(time=["year", "month", "day", "hour"], target=("y",))
    if kind == "store":
        convert_table(source, tmp_path / "store", data)
        source = tmp_path / "store"
    panel = open_panel(source, data)
    assert panel.time.tolist() == plain.time.tolist() and panel.calendar.freq == "1h"
    schema = Schema.from_dict(json.loads(json.dumps(panel.schema.to_dict())))
    later = open_panel(source, DataConfig(), schema=schema)
    rows = later.frame(np.zeros(48, int), later.time, cutoff=later.time[[0] * 48], lead=np.arange(48))
    assert rows.columns == ["cutoff", "year", "month", "day", "hour", "lead"]
    expected = frame.cast(pl.Int64) if kind in ("file", "store") else frame
    assert rows.select("year", "month", "day", "hour").equals(
        expected.drop("y").cast({"year": rows["year"].dtype})
    )
    assert rows["year"].dtype == (pl.Int32 if kind in ("parquet", "pandas", "polars") else pl.Int64)
    assert rows["cutoff"].dtype == pl.Datetime("us")
    assert later.as_text(rows)["cutoff"][0] == "2024-02-29 00"


def test_parts_of_a_time_are_known_by_name_or_by_their_place(tmp_path):
    frame, times = parts()
    plain = open_panel(frame.select("y", time=times), DataConfig(freq="1h")).time.tolist()
    renamed = frame.rename({"year": "yy", "month": "mo", "day": "dd", "hour": "obs_hour"})
    for table, names in (
        (renamed, ["yy", "mo", "dd", "obs_hour"]),
        (frame, ["hour", "day", "month", "year"]),
        (frame.with_columns(pl.col("hour").cast(pl.Float64)), "year,month,day,hour"),
        (frame.with_columns(minute=0), "year,month,day,hour,minute"),
    ):
        assert open_panel(table, DataConfig(time=names, target=("y",))).time.tolist() == plain
    weeks = pl.DataFrame(
        {"year": [2020, 2020, 2021, 2021], "week": [52, 53, 1, 2], "y": [1.0, 2, 3, 4]}
    )
    quarters = pl.DataFrame(
        {"year": [2020, 2020, 2021, 2021], "quarter": [3, 4, 1, 2], "y": [1.0, 2, 3, 4]}
    )
    for table, freq in ((weeks, "1w"), (quarters, "1q")):
        panel = open_panel(table, DataConfig(time=table.columns[:2], target=("y",)))
        assert panel.calendar.freq == freq
        assert panel.frame(np.zeros(4, int), panel.time).equals(table.drop("y"))

    def refused(message, table=frame, **options):
        with pytest.raises(fc.DataError, match=message):
            open_panel(
                table,
                DataConfig(**({"time": ["year", "month", "day", "hour"], "target": ("y",)} | options)),
            )

    hour = pl.col("hour")
    refused(
        r"expected dates written like '.*', found '2024-02-29 26' in row 1 \(2 such",
        frame.with_columns(hour.replace(0, 26)),
    )
    late = frame.with_columns(hour + 1)
    panel = open_panel(late, DataConfig(time=["year", "month", "day", "hour"], target=("y",)))
    assert panel.time.tolist() == plain
    assert panel.frame(np.zeros(len(plain), int), panel.time).equals(late.select(frame.columns[:4]))
    refused(r"found '2024-02-30 00' in row 1", frame.with_columns(day=pl.col("day") + 1))
    refused(r"found '2024-02-29 0\.5' in row 1", frame.with_columns(hour + 0.5))
    refused(
        "expected a time in every row, found none in row 1 ", frame.with_columns(hour.replace(0, None))
    )
    refused("no column 'hours' .--time.; did you mean 'hour'", time=["year", "month", "day", "hours"])
    refused(
        "expected the columns of a time's parts, each once; name them in this order: year, month",
        time=["month", "day"],
    )
    refused("parts, each once", time=["year", "day", "hour"])
    refused(
        "parts, each once", frame.with_columns(a=0, b=0, c=0), time=[*frame.columns[:4], "a", "b", "c"]
    )
    message = "the columns year, month, day, hour may hold the parts of one time"
    refused(f"{message}; pass --time year,month,day,hour, or --time year", time=None)
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["year,month,day,hour,pm,wind", *POLLUTION]))
    panel = open_panel(path, DataConfig(time="year,month,day,hour", target=("pm",), static=(), past=()))
    assert panel.values[:, 0].tolist() == [129] and panel.schema.past == ()


HOURS = pl.datetime_range(datetime(2024, 2, 28, 22), datetime(2024, 3, 1, 20), "1h", eager=True)


@pytest.mark.parametrize("names", ["date,clock", "date,hour", "when,at"])
@pytest.mark.parametrize(
    ("day", "clock"),
    [
        (HOURS.dt.strftime("%Y-%m-%d"), HOURS.dt.strftime("%H:%M")),
        (HOURS.dt.strftime("%d %b %Y"), HOURS.dt.strftime("%I:%M %p")),
        (HOURS.dt.strftime("%d.%m.%Y"), HOURS.dt.strftime("%-H:%M:%S")),
        (HOURS.dt.strftime("%Y-%m-%d"), HOURS.dt.strftime("%H:%M+01:00")),
        (HOURS.dt.strftime("%Y-%m-%d"), HOURS.dt.hour()),
        (HOURS.dt.date(), HOURS.dt.hour()),
        (HOURS.dt.date(), HOURS.dt.time()),
    ],
)
def test_a_date_and_a_time_of_day_in_two_columns_are_one_time(tmp_path, names, day, clock):
    frame = pl.DataFrame(dict(zip(names.split(","), (day, clock), strict=True)))
    options = DataConfig(time=names, target=("y",))
    texts = frame.with_columns(pl.col(pl.Time).dt.strftime("%H:%M:%S"), y=pl.int_range(pl.len()))
    texts.write_csv(tmp_path / "a.csv")
    for source in (frame.with_columns(y=pl.int_range(pl.len())), tmp_path / "a.csv"):
        schema = open_panel(source, options).schema
        schema = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
        panel = open_panel(source, DataConfig(), schema=schema)
        early = timedelta(hours="+01:00" in str(clock[0]))
        assert panel.calendar.text(int(panel.time[0])) == f"{HOURS[0] - early:%Y-%m-%d %H:%M}"
        rows = panel.frame(np.zeros(len(HOURS), int), panel.time)
        kept = frame if isinstance(source, pl.DataFrame) else pl.read_csv(source).select(frame.columns)
        assert rows.equals(kept)


def test_tables_with_times_in_several_columns_are_joined_and_forecast(tmp_path):
    frame = (
        tiny.plain()
        .with_columns(
            year=pl.col("date").dt.year(), month=pl.col("date").dt.month(), day=pl.col("date").dt.day()
        )
        .drop("date")
    )
    names = ["year", "month", "day"]
    fitted = tiny.plain_model().artifact
    parts = {name: (name, "Int32") for name in names}
    model = fc.Forecaster(
        replace(fitted, schema=replace(fitted.schema, time=",".join(names), time_parts=parts))
    )
    forecast = model.predict(frame.to_pandas())
    expected = tiny.plain_model().predict(tiny.plain()).rows
    assert forecast.rows["forecast"].equals(expected["forecast"])
    assert forecast.frame[names].iloc[-1].tolist() == [2024, 4, 16]
    assert forecast.wide().columns.tolist()[:3] == names
    forecast.write(tmp_path / "rows.csv")
    assert pl.read_csv(tmp_path / "rows.csv")["cutoff"][0] == "2024-04-09"
    assert model.detect(frame).frame.select(names).equals(frame.select(names))


@pytest.mark.parametrize("ids", [["a", "b"], [1, 2]])
@pytest.mark.parametrize("ds", ["date", "text", "integer"])
@pytest.mark.parametrize("kind", ["file", "frame"])
def test_the_names_unique_id_ds_and_y_are_inferred(tmp_path, ids, ds, kind):
    times = {"date": [tiny.day(n) for n in range(30)], "text": DAYS, "integer": [*range(1, 31)]}[ds]
    rows = [(i, t, float(n % 7)) for i in ids for n, t in enumerate(times)]
    frame = pl.DataFrame(rows, schema=["unique_id", "ds", "y"], orient="row")
    if ds != "integer":
        frame = frame.select(pl.lit(tiny.day(3)).alias("published"), pl.all())
    frame = frame.with_columns(ex=pl.col("y") * 2)
    frame.write_csv(tmp_path / "a.csv")
    schema = open_panel(frame if kind == "frame" else tmp_path / "a.csv", DataConfig()).schema
    assert (schema.series, schema.time, schema.target) == (("unique_id",), "ds", ("y",))
    assert schema.past == ("ex",)


INSTANT = datetime(2024, 3, 1, 12, 30)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("2024-03-01 12:30", "2024-03-01 12:30"),
        (np.str_("own"), "own"),
        (INSTANT.date(), "2024-03-01"),
        (INSTANT, "2024-03-01T12:30:00"),
        (pd.Timestamp(INSTANT), "2024-03-01T12:30:00"),
        (pd.Timestamp(INSTANT, tz="Europe/Berlin"), "2024-03-01T12:30:00+01:00"),
        *((np.datetime64(INSTANT, unit), "2024-03-01T12:30:00") for unit in ("s", "ms", "us", "ns")),
        (np.datetime64("2024-03-01"), "2024-03-01T00:00:00"),
        (np.datetime64("2024-03"), "2024-03-01T00:00:00"),
        (17, "17"),
        (np.int64(17), "17"),
        *((bad, None) for bad in (2.5, pd.NaT, np.datetime64("NaT"), [INSTANT], True, ())),
    ],
)
def test_every_date_option_takes_every_kind_of_date(tmp_path, given, text):
    from forecaster.panel.timestamps import date_text

    if text is not None:
        assert date_text(given, "until") == text
        return
    model, table, out = tiny.plain_model(), tiny.plain(), tmp_path / "rows.csv"
    for name, call in (
        ("until", lambda: fc.fit(table, horizon=7, until=given)),
        ("until", lambda: fc.tune(table, horizon=7, until=given)),
        ("cutoff", lambda: model.predict(table, cutoff=given)),
        ("cutoff", lambda: model.predict_to(out, table, cutoff=given)),
        ("cutoff", lambda: model.explain(table, series="a", cutoff=given)),
    ):
        with pytest.raises(
            fc.ConfigError,
            match=f"^{name}=.*: expected a date(: text, a date,| or text or a whole number)",
        ):
            call()


@pytest.mark.parametrize("mark", ["'", " ", "\u202f"])
def test_thousands_alone_do_not_speak_of_a_decimal_comma(tmp_path, mark):
    path = tmp_path / "a.csv"
    path.write_text("day,y\n" + "".join(f"{day},1{mark}{k:03d}\n" for k, day in enumerate(DAYS)))
    rules = [one.rule for one in fc.check(path)]
    assert "thousands" in rules and "decimal" not in rules
