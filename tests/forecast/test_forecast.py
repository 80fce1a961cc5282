"""Promise 4: rows keyed in the caller's own names, ids and dtypes; counts exact; nothing twice."""

from datetime import datetime, timedelta
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from forecast import tiny
from matplotlib.figure import Figure
from polars.testing import assert_frame_equal

import forecaster as fc
from forecaster.config import DataConfig
from forecaster.panel.build import open_panel

LEVELS = [f"q0.{n}" for n in range(1, 10)]
RESULTS = ["lead", "channel", "forecast", "mean", *LEVELS, "status"]


def _fit(table, horizon=3, **options):
    config = tiny.NETWORK | {"fit": tiny.NETWORK["fit"] | {"validation": None}}
    return fc.fit(table, horizon=horizon, config=config, quiet=True, **options)


@cache
def _wide():
    """A table of two channels by the hour, and its model."""
    rng = np.random.default_rng(0)
    time = [datetime(2024, 1, 1) + timedelta(hours=n) for n in range(120)]
    table = pl.DataFrame({"at": time, "load": rng.normal(size=120), "wind": rng.normal(size=120)})
    return table, _fit(table)


def test_rows_are_ordered_by_series_channel_lead_and_complete():
    table, model = _wide()
    rows = model.predict(table).frame
    assert rows.columns == ["cutoff", "at", *RESULTS]
    keys = [(channel, lead) for channel in ("load", "wind") for lead in (1, 2, 3)]
    assert rows.select("channel", "lead").rows() == keys
    assert rows["at"].to_list() == [datetime(2024, 1, 6) + timedelta(hours=n) for n in (0, 1, 2)] * 2
    assert rows["cutoff"].unique().to_list() == [datetime(2024, 1, 5, 23)]
    assert rows["status"].unique().to_list() == ["ok"]
    assert rows.schema["lead"] == pl.Int32 and rows.schema["q0.9"] == pl.Float64


def test_the_forecast_is_the_median_and_quantiles_rise():
    rows = tiny.ahead().rows
    assert rows["forecast"].to_list() == rows["q0.5"].to_list()
    quantiles = rows.select(LEVELS).to_numpy()
    assert (np.diff(quantiles, axis=1) >= 0).all()
    assert rows.null_count().sum_horizontal().item() == 0


def test_several_key_columns_come_back_with_their_dtypes():
    table = tiny.plain().with_columns(
        shop=pl.col("store").cast(pl.Categorical), item=pl.lit(7, dtype=pl.Int16)
    )
    both = pl.concat([table, table.with_columns(item=pl.lit(8, dtype=pl.Int16))]).drop("store")
    rows = _fit(both, series=["item", "shop"]).predict(both).frame
    assert rows.columns[:4] == ["item", "shop", "cutoff", "date"]
    assert rows.schema["item"] == pl.Int16 and rows.schema["shop"] == both.schema["shop"]
    wanted = [(item, shop) for item in (7, 8) for shop in "abc" for _ in range(3)]
    assert rows.select("item", "shop").rows() == wanted


def test_pandas_in_pandas_out():
    table = tiny.plain().to_pandas()
    frame = tiny.plain_model().predict(table).frame
    assert isinstance(frame, pd.DataFrame)
    expected = tiny.plain_model().predict(tiny.plain()).rows
    assert_frame_equal(pl.from_pandas(frame), expected, check_dtypes=False, check_exact=True)
    assert frame["date"].dtype == expected.to_pandas()["date"].dtype
    assert isinstance(tiny.plain_model().predict(table).wide(), pd.DataFrame)


def test_polars_and_files_give_polars_and_arrow_gives_arrow(tmp_path):
    tiny.plain().write_csv(tmp_path / "plain.csv")
    model = tiny.plain_model()
    expected = model.predict(tiny.plain()).frame
    for source in (tiny.plain().lazy(), tmp_path / "plain.csv", str(tmp_path / "plain.csv")):
        found = model.predict(source).frame
        assert isinstance(found, pl.DataFrame)
        assert_frame_equal(found, expected, check_exact=True)
    table = model.predict(tiny.plain().to_arrow()).frame
    assert isinstance(table, pa.Table)
    assert_frame_equal(pl.DataFrame(table), expected)


TIMES = {"nanoseconds": pl.Datetime("ns"), "a zone": pl.Datetime("us", "Europe/Berlin")}


@pytest.mark.parametrize("dtype", TIMES.values(), ids=TIMES)
def test_times_come_back_in_the_callers_dtype(dtype):
    table = tiny.plain()
    dates = table["date"]
    if isinstance(dtype, pl.Datetime) and dtype.time_zone:
        wanted = dates.cast(pl.Datetime("us")).dt.replace_time_zone(dtype.time_zone)
    else:
        wanted = dates.cast(dtype)
    rows = _fit(table.with_columns(date=wanted)).predict(table.with_columns(date=wanted)).frame
    assert rows.schema["date"] == dtype and rows.schema["cutoff"] == dtype
    days = rows["date"].dt.date().to_list()
    assert days == [tiny.day(99 + lead) for lead in (1, 2, 3)] * 3
    assert rows["cutoff"].dt.date().unique().to_list() == [tiny.day(99)]


@pytest.mark.parametrize("written", ["%d.%m.%Y", "%Y/%m/%d %H:%M"])
def test_times_that_came_as_text_go_back_as_that_text(written):
    table = tiny.plain().with_columns(pl.col("date").cast(pl.Datetime).dt.strftime(written))
    forecast = _fit(table).predict(table)
    days = [tiny.day(99 + lead).strftime(written) for lead in (1, 2, 3)]
    assert forecast.frame["date"].to_list() == days * 3
    assert forecast.frame["cutoff"].unique().to_list() == [tiny.day(99).strftime(written)]


def test_a_wide_forecast_rises_in_time_however_time_is_written():
    # The last day is 31.01.: as text the first of February comes before it.
    table = tiny.plain(31).with_columns(pl.col("date").dt.strftime("%d.%m.%Y"))
    wide = _fit(table).predict(table, cutoff="30.01.2024").wide()
    assert wide["date"].to_list() == ["31.01.2024", "01.02.2024", "02.02.2024"]
    assert wide.columns == ["date", "a", "b", "c"]


def test_pandas_times_come_back_as_pandas_had_them():
    table = tiny.plain().to_pandas()
    for unit in ("s", "ms", "us", "ns"):
        table["date"] = pd.to_datetime(table["date"]).astype(f"datetime64[{unit}]")
        found = tiny.plain_model().predict(table).frame
        expected = table["date"].max() + pd.to_timedelta(range(1, 8), unit="D")
        assert list(found["date"][:7]) == list(expected)
        if unit != "s":
            assert found["date"].dtype == table["date"].dtype


def test_integer_times_continue():
    table = pl.DataFrame({"step": range(0, 400, 4), "y": np.random.default_rng(0).normal(size=100)})
    rows = _fit(table, time="step").predict(table).frame
    assert rows["step"].to_list() == [400, 404, 408] and rows["cutoff"].unique().to_list() == [396]
    assert rows.schema["step"] == pl.Int64


def test_rows_without_a_time_column_are_numbered_from_the_last():
    table = pl.DataFrame({"y": np.random.default_rng(0).normal(size=100)})
    rows = _fit(table, time="row").predict(table).frame
    assert rows["time"].to_list() == [1, 2, 3] and rows["cutoff"].unique().to_list() == [0]


def test_a_series_without_an_observed_target_appears_empty_with_the_reason():
    empty = (
        tiny.plain()
        .filter(pl.col("store") == "a")
        .with_columns(store=pl.lit("silent"), sales=pl.lit(None, pl.Float64))
    )
    forecast = tiny.plain_model().predict(pl.concat([tiny.plain(), empty]))
    rows = forecast.frame.filter(pl.col("store") == "silent")
    assert rows.height == 7 and forecast.frame.height == 28
    assert rows["status"].unique().to_list() == ["no target observed before the cutoff"]
    assert rows.select("forecast", "cutoff", *LEVELS).null_count().sum_horizontal().item() == 7 * 11
    assert rows["date"].to_list() == [tiny.day(99 + lead) for lead in range(1, 8)]
    assert "1 without a forecast: no target observed before the cutoff" in forecast.report
    others = forecast.frame.filter(pl.col("store") != "silent")
    assert_frame_equal(others, tiny.plain_model().predict(tiny.plain()).frame, check_exact=True)


def test_a_series_silent_for_longer_than_the_context_appears_empty_with_the_reason():
    long_ago = (pl.col("store") == "b") & (pl.col("date") > tiny.day(10))
    forecast = tiny.plain_model().predict(tiny.plain().filter(~long_ago), cutoff="last")
    assert [status[:36] for status in forecast.status] == [
        "ok",
        "no target observed in the 56 steps b",
        "ok",
    ]
    assert np.isnan(forecast.quantiles[1]).all() and not np.isnan(forecast.quantiles[[0, 2]]).any()


def test_a_series_that_begins_after_the_cutoff_keeps_its_own_keys_and_true_times():
    late = (pl.col("store") == "a") & (pl.col("date") < tiny.day(92))
    forecast = tiny.plain_model().predict(tiny.plain().filter(~late), cutoff=tiny.day(89).isoformat())
    rows = forecast.frame.filter(pl.col("store") == "a")
    assert rows["date"].to_list() == [tiny.day(89 + lead) for lead in range(1, 8)]
    assert rows["status"].unique().to_list() == ["no target observed before the cutoff"]
    assert rows["forecast"].null_count() == 7
    assert forecast.frame.select("store", "date").is_unique().all()


def test_a_series_without_a_forecast_needs_no_known_future():
    silent = (
        tiny.shop()
        .filter(pl.col("store") == "a")
        .with_columns(store=pl.lit("silent"), sales=pl.lit(None, pl.Float64))
    )
    table = pl.concat([tiny.shop(), silent])
    forecast = tiny.model().predict(table, future=tiny.prices())
    assert forecast.status == ("ok", "ok", "ok", "no target observed before the cutoff")
    assert tiny.bits(forecast.quantiles[:3]) == tiny.bits(tiny.ahead().quantiles)


def test_a_missing_known_value_is_named_with_series_column_time_and_lead():
    hole = (pl.col("store") == "b") & (pl.col("date") == tiny.day(104))
    holes = tiny.prices().with_columns(price=pl.when(hole).then(None).otherwise("price"))
    expected = (
        "the polars frame: 'price' is known in advance, but has no value for series b at 2024-04-14 "
        r"\(lead 5 of 7\); 1 of 3 series lack some: give them with future=FILE, let predict "
        r"fill them \(`fill_known`\), or shorten `horizon`"
    )
    with pytest.raises(fc.DataError, match=expected):
        tiny.model().predict(tiny.shop(), future=holes)


def test_a_hole_in_a_known_category_is_named_and_an_unseen_word_is_not():
    history = tiny.plain().with_columns(ad=pl.col("date").dt.day().mod(2).cast(pl.String))
    model = _fit(history, horizon=7, known="ad")
    future = tiny.prices().select("store", "date", ad=pl.lit("never seen"))
    assert model.predict(history, future=future).status == ("ok",) * 3
    hole = future.with_columns(
        ad=pl.when((pl.col("store") == "b") & (pl.col("date") == tiny.day(103)))
        .then(None)
        .otherwise("ad")
    )
    with pytest.raises(fc.DataError, match=r"'ad' is known .* series b at 2024-04-13 \(lead 4 of 7\)"):
        model.predict(history, future=hole)
    with pytest.raises(fc.DataError, match=r"'ad' is known .* series b at 2024-04-13"):
        model.predict(history, future=hole.drop_nulls())


def test_known_values_may_lie_in_later_rows_of_the_table_itself():
    future = (
        tiny.prices()
        .select(
            "store",
            "date",
            sales=pl.lit(None, pl.Float64),
            price="price",
            visitors=pl.lit(None, pl.Float64),
        )
        .with_columns(city=pl.lit(None, pl.String))
    )
    forecast = tiny.model().predict(pl.concat([tiny.shop(), future]))
    assert tiny.bits(forecast.quantiles) == tiny.bits(tiny.ahead().quantiles)
    assert forecast.cutoff.tolist() == tiny.ahead().cutoff.tolist()


def test_a_wide_forecast_has_a_row_per_time_and_a_column_per_series():
    wide = tiny.ahead().wide()
    assert wide.columns == ["date", "a", "b", "c"]
    assert wide["date"].to_list() == [tiny.day(99 + lead) for lead in range(1, 8)]
    rows = tiny.ahead().frame
    for store in tiny.STORES:
        assert wide[store].to_list() == rows.filter(pl.col("store") == store)["forecast"].to_list()
    table, model = _wide()
    assert model.predict(table).wide().columns == ["at", "load", "wind"]


def test_a_wide_forecast_of_names_that_are_one_is_refused():
    table = tiny.plain().with_columns(store=pl.col("store").replace("a", "date"))
    with pytest.raises(
        fc.DataError, match="two columns 'date': rename the time column, or that series"
    ):
        tiny.plain_model().predict(table).wide()
    keys = {"a": ("x/y", "z"), "b": ("x", "y/z")}
    two = pl.concat(
        tiny.plain()
        .filter(pl.col("store") == store)
        .with_columns(store=pl.lit(one), city=pl.lit(other))
        for store, (one, other) in keys.items()
    )
    with pytest.raises(fc.DataError, match="rename the keys of these series"):
        fc.predict(two, 7, series=["store", "city"]).wide()


def test_a_wide_forecast_of_several_keys_names_series_as_everywhere():
    places = {"a": ("east", "beer"), "b": ("east", "wine"), "c": ("west", "beer")}
    table = tiny.plain().with_columns(
        store=pl.col("store").replace_strict({name: place[0] for name, place in places.items()}),
        kind=pl.col("store").replace_strict({name: place[1] for name, place in places.items()}),
    )
    forecast = fc.predict(table, 7, series=["store", "kind"])
    assert forecast.wide().columns == ["date", "east/beer", "east/wine", "west/beer"]
    assert forecast.wide().columns[1:] == forecast.panel.series_names
    assert forecast.wide()["east/wine"].to_list() == forecast.median[1, :, 0].tolist()


def test_a_wide_forecast_of_series_with_different_ends_leaves_empty_cells():
    ragged = tiny.plain().filter((pl.col("store") != "b") | (pl.col("date") <= tiny.day(97)))
    wide = tiny.plain_model().predict(ragged).wide()
    assert wide["date"].to_list() == [tiny.day(98 + n) for n in range(9)]
    assert wide["b"].null_count() == 2 and wide["a"].null_count() == 2
    assert wide.columns == ["date", "a", "b", "c"]


def test_a_shorter_horizon_is_an_exact_prefix():
    model = tiny.plain_model()
    full = model.predict(tiny.plain())
    for horizon in range(1, 8):
        part = model.predict(tiny.plain(), horizon=horizon)
        assert tiny.bits(part.quantiles) == tiny.bits(full.quantiles[:, :horizon])
        assert part.time.tolist() == full.time[:, :horizon].tolist()
    for horizon in (0, -1, 8):
        with pytest.raises(
            fc.ConfigError, match=f"horizon {horizon}: this model forecasts 1 to 7 steps"
        ):
            model.predict(tiny.plain(), horizon=horizon)


def _later(minutes: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The shop and its prices, each row later by a number of minutes of its own."""
    later = pl.duration(minutes=pl.col("date").dt.ordinal_day() ** 2 * minutes % 900)
    moved = pl.col("date").cast(pl.Datetime) + later
    return tiny.shop().with_columns(moved), tiny.prices().with_columns(moved)


@pytest.mark.long
@pytest.mark.parametrize("minutes", [0, 37], ids=["regular", "irregular"])
def test_a_shorter_horizon_with_the_known_values_it_reads_is_an_exact_prefix(minutes):
    shop, prices = _later(minutes)
    config = tiny.config_with(patch=2, experts=[] if minutes else ["naive", "linear"])
    model = fc.fit(shop, horizon=7, known="price", config=config, quiet=True)
    assert model.artifact.schema.regular == (minutes == 0)
    full = model.predict(shop, future=prices)
    for horizon, read in ((1, 2), (2, 2), (3, 4), (7, 7)):
        part = model.predict(shop, future=prices.group_by("store").head(read), horizon=horizon)
        assert tiny.bits(part.quantiles) == tiny.bits(full.quantiles[:, :horizon])
    with pytest.raises(fc.DataError, match=r"\(lead 3 of 3\); 3 of 3 series lack some: give them with"):
        model.predict(shop, future=prices.group_by("store").head(2), horizon=3)


@pytest.mark.parametrize("minutes", [0, 37], ids=["regular", "irregular"])
def test_known_values_behind_the_last_lead_that_are_not_given_are_its_own(minutes):
    shop, prices = _later(minutes)
    shop, prices = (t.with_columns(sort=pl.col("price").floor().cast(str)) for t in (shop, prices))
    config = tiny.config_with(patch=7, experts=[] if minutes else ["naive", "linear"])
    model = fc.fit(shop, horizon=7, known=["price", "sort"], config=config, quiet=True)
    by = pl.col("date").rank("ordinal").over("store")
    for horizon in (1, 4):
        given = prices.filter(by <= horizon)
        own = pl.col("price", "sort").get(horizon - 1).over("store")
        whole = prices.with_columns(pl.when(by > horizon).then(own).otherwise(pl.col("price", "sort")))
        short = model.predict(shop, future=given, horizon=horizon)
        expected = model.predict(shop, future=whole, horizon=horizon)
        if not minutes:  # the times of rows that are not given are unknown on an irregular table
            assert tiny.bits(short.quantiles) == tiny.bits(expected.quantiles)
        assert np.isfinite(short.quantiles).all()
        assert [one.rule for one in short.findings if one.severity == "warning"] == ["held"]
        assert "held" not in [one.rule for one in expected.findings]


def test_a_plot_has_a_panel_per_series_and_channel_with_labels():
    figure = tiny.ahead().plot()
    assert isinstance(figure, Figure)
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert [axis.get_title(loc="left") for axis in shown] == ["a · sales", "b · sales", "c · sales"]
    labels = {text.get_text() for legend in figure.legends for text in legend.get_texts()}
    assert labels == {"history", "forecast", "80 % band", "40 % band"}
    table, model = _wide()
    shown = [axis.get_title(loc="left") for axis in model.predict(table).plot().axes]
    assert shown == ["series · load", "series · wind"]


@pytest.mark.long
def test_some_series_are_chosen_by_their_names_and_forecast_as_among_all(tmp_path):
    model, table = tiny.plain_model(), tiny.plain()
    # Store c ends early: the latest observation is one of the others.
    table = table.filter((pl.col("store") != "c") | (pl.col("date") <= tiny.day(89)))
    for only in (["c", "a"], ("c",), "c"):
        chosen, every = (model.predict(table, cutoff="last", only=some).rows for some in (only, None))
        expected = every.filter(pl.col("store").is_in(list(only)))
        assert_frame_equal(chosen, expected, rel_tol=1e-6)
        model.predict_to(
            tmp_path / f"{len(only)}.parquet", table, cutoff="last", only=only, overwrite=True
        )
        assert_frame_equal(pl.read_parquet(tmp_path / f"{len(only)}.parquet"), chosen)
    scores, whole = (
        fc.backtest(table, 7, windows=2, fit=False, only=only, quiet=True) for only in (["b"], None)
    )
    assert_frame_equal(scores.rows, whole.rows.filter(pl.col("store") == "b"), rel_tol=1e-6)
    assert set(model.detect(table, only="b").rows["store"]) == {"b"}
    with pytest.raises(fc.DataError) as refused:
        model.predict(table, only=["aa", "b", "zzz"])
    assert str(refused.value).splitlines() == [
        "the polars frame: no series 'aa' among 3; did you mean 'a'?",
        "the polars frame: no series 'zzz' among 3; the first is 'a'",
    ]


def test_series_are_listed_by_the_numbers_in_their_names():
    names = {"a": "store_10", "b": "store_9", "c": "store_1"}
    table = tiny.plain().with_columns(pl.col("store").replace(names))
    forecast, backtest = (
        tiny.plain_model().predict(table),
        fc.backtest(table, 7, windows=1, fit=False, quiet=True),
    )
    natural = ["store_1", "store_9", "store_10"]
    titles = [axis.get_title(loc="left").split(" ")[0] for axis in forecast.plot().axes]
    assert titles[:3] == natural
    assert backtest.by("series")["store"].unique(maintain_order=True).to_list() == natural
    (axis,) = forecast.plot(["store_9"]).axes
    assert axis.get_title(loc="left") == "store_9 · sales"


def test_a_plot_shows_the_forecast_at_its_times():
    (axis,) = tiny.ahead().plot("b").axes
    lines = {line.get_label(): line for line in axis.lines}
    drawn = np.asarray(lines["forecast"].get_xdata(), "M8[D]").tolist()
    assert drawn == [tiny.day(99 + lead) for lead in range(1, 8)]
    assert np.array_equal(lines["forecast"].get_ydata(), tiny.ahead().median[1, :, 0])
    assert np.asarray(lines["history"].get_xdata(), "M8[D]").tolist()[-1] == tiny.day(99)


def test_an_irregular_table_is_forecast_by_a_saved_model_too(tmp_path):
    rng = np.random.default_rng(0)
    minutes = np.cumsum(rng.integers(30, 90, 200)).tolist()
    stamps = [datetime(2024, 1, 1) + timedelta(minutes=minute) for minute in minutes]
    table = pl.DataFrame({"ts": stamps, "y": rng.normal(size=200)})
    model = _fit(table, horizon=5)
    assert not model.artifact.schema.regular
    model.save(tmp_path / "model")
    rows = fc.load(tmp_path / "model").predict(table).frame
    assert rows["status"].unique().to_list() == ["ok"] and rows["cutoff"][0] == stamps[-1]
    assert rows["ts"].is_sorted() and rows["ts"][0] > stamps[-1]
    assert model.backtest(table, windows=2, quiet=True).scored == 10


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_values_near_the_ends_of_float32_are_forecast_in_their_own_units(scale):
    table = tiny.plain().with_columns(pl.col("sales") * scale)
    model = fc.fit(table, horizon=7, config=tiny.TINY, quiet=True)
    forecast = model.predict(table)
    plain = tiny.plain_model().predict(tiny.plain())
    assert forecast.status == ("ok",) * 3
    np.testing.assert_allclose(forecast.quantiles / np.float32(scale), plain.quantiles, rtol=1e-3)


@pytest.mark.long
def test_a_slow_item_among_large_ones_has_a_band_of_its_own_size():
    large = tiny.plain().with_columns(pl.col("sales") * 100)
    sold = np.r_[np.random.default_rng(0).integers(0, 5, 60), [1.0] * 40]
    slow = large.filter(pl.col("store") == "a").with_columns(sales=sold, store=pl.lit("slow"))
    config = tiny.config_with(context_length=28, lookbacks=[28])
    model = fc.fit(pl.concat([large, slow]), horizon=7, config=config, quiet=True)
    for a, b in ((1, 0), (0.5, 1e6)):
        band = model.predict(slow.with_columns(pl.col("sales") * a + b)).quantiles[0] - b
        assert (np.abs(band / a - 1) < 10).all() and (band[..., -1] > band[..., 0]).all()


def test_a_forecast_that_is_not_finite_is_empty_with_the_reason():
    config = tiny.config_with(experts=[])
    model = fc.fit(tiny.shop(), horizon=7, known="price", config=config, quiet=True)
    dear = pl.when(pl.col("store") == "b").then(3e38).otherwise("price").alias("price")
    forecast = model.predict(tiny.shop().with_columns(dear), future=tiny.prices())
    assert forecast.status == ("ok", "the forecast is not finite", "ok")
    assert np.isnan(forecast.quantiles[1]).all() and np.isfinite(forecast.quantiles[[0, 2]]).all()


@pytest.mark.long
def test_a_channel_without_an_observation_has_the_same_answer_in_a_wide_and_a_melted_table(tmp_path):
    rng, row, names = np.random.default_rng(0), pl.int_range(140), ["y", "late", "ended", "dead"]
    cells = {name: 10 + rng.normal(size=140) for name in names}
    table = pl.DataFrame({"date": [tiny.day(n) for n in range(140)]} | cells).with_columns(
        late=pl.when(row >= 90).then("late"),
        ended=pl.when(row < 70).then("ended"),
        dead=pl.lit(None, pl.Float64),
    )
    config = tiny.config_with(context_length=14, experts=[])
    options = {"horizon": 3, "target": names, "until": tiny.day(133), "config": config, "quiet": True}
    wide, melted = (fc.fit(table, layout=layout, **options) for layout in ("wide", "long"))
    never, gone = (
        f"no target observed {when} the cutoff" for when in ("before", "in the 14 steps before")
    )
    for cutoff, expected in (
        ("last", {"dead": never, "ended": gone}),
        (tiny.day(110).isoformat(), {"dead": never, "ended": gone}),
        (tiny.day(60).isoformat(), {"dead": never, "late": never}),
    ):
        one, two = (model.predict(table, cutoff=cutoff) for model in (wide, melted))
        statuses = {(name, expected.get(name, "ok")) for name in names}
        for forecast in (one, two):
            rows = forecast.frame
            assert set(rows.select("channel", "status").rows()) == statuses and rows.height == 12
            assert (rows["forecast"].is_null() == (rows["status"] != "ok")).all()
            assert "; 2 without a forecast: no target observed" in forecast.report
        done = wide.predict_to(
            tmp_path / "wide.parquet", table, cutoff=cutoff, parts=True, restart=True
        )
        assert done.report == one.report
        assert_frame_equal(pl.read_parquet(done.path / "part-*.parquet"), one.rows)
    one, two = (model.backtest(table, windows=2, refit="never", quiet=True) for model in (wide, melted))
    assert (one.scored, one.unscored) == (two.scored, two.unscored) == (2 * 2 * 3, 2 * 2 * 3)
    keys = ["model", "channel", "date", "status"]
    assert_frame_equal(one.rows.select(keys), two.rows.select(keys), check_row_order=False)
    keys = ["channel", "date", "status"]
    one, two = (model.detect(table).rows.select(keys) for model in (wide, melted))
    assert_frame_equal(one.join(two, on=keys[:2]).select(keys), two, check_row_order=False)


def test_a_cutoff_within_the_training_rows_is_said(tmp_path):
    model, cutoff = tiny.plain_model(), tiny.day(80).isoformat()
    (finding,) = model.predict(tiny.plain(), cutoff=cutoff).findings
    assert finding.text == "the model was trained until 2024-04-09: it has seen what follows 2024-03-21"
    done = model.predict_to(tmp_path / "new.csv", tiny.plain(), cutoff=cutoff)
    assert done.findings == (finding,) and finding.rule == "in-sample"
    assert (
        not model.predict(tiny.plain()).findings
        and not model.predict(tiny.plain(), cutoff="last").findings
    )


def test_a_name_of_two_series_is_refused_with_both():
    names = pl.DataFrame({"store": ["a/b", "a", "c"], "item": ["c", "b/c", "d"]})
    table = tiny.plain().with_columns(pl.col("store").replace_strict({"a": "a/b", "b": "a", "c": "c"}))
    table = table.join(names, on="store")
    panel = open_panel(table, DataConfig(series=("store", "item")))
    with pytest.raises(
        fc.DataError, match="store 'a', item 'b/c' and store 'a/b', item 'c'; rename one"
    ):
        panel.only("a/b/c")
    assert panel.only("c/d").series_names == ["c/d"]


@pytest.mark.parametrize("decoder", ["direct", "autoregressive"])
def test_a_table_without_a_series_that_can_be_forecast_is_refused_with_the_most_frequent_reason(
    decoder,
):
    config = tiny.config_with(decoder=decoder, experts=[])
    model = fc.fit(tiny.plain(), horizon=7, config=config, quiet=True)
    # Two series are empty over the whole context, one altogether.
    late, gone = pl.col("date") > tiny.day(50), pl.col("store") == "c"
    silent = tiny.plain().with_columns(sales=pl.when(~late & ~gone).then("sales"))
    match = (
        "none of 3 series has a forecast: no target observed in the 28 steps before the cutoff; give"
    )
    with pytest.raises(fc.DataError, match=match):
        model.predict(silent, cutoff=str(tiny.day(99)))
    heard = silent.with_columns(sales=pl.when(~gone).then("sales").otherwise(1.0))
    status = model.predict(heard, cutoff=str(tiny.day(99))).status
    assert [one == "ok" for one in status] == [False, False, True]


@pytest.mark.parametrize("only", ["", [], ()])
def test_series_without_a_name_are_refused(only):
    with pytest.raises(fc.DataError, match="expected the names of some series"):
        tiny.plain_model().predict(tiny.plain(), only=only)


def test_series_are_chosen_by_numbers_and_by_columns_of_names():
    numbered = tiny.plain().with_columns(pl.col("store").replace_strict({"a": 1, "b": 2, "c": 3}))
    model = tiny.plain_model()
    named = numbered.with_columns(pl.col("store").cast(pl.String))
    chosen = model.predict(named, only="2").quantiles
    for only in (2, [2], pd.Series([2]), np.array(["2"]), {"2"}):
        assert tiny.bits(model.predict(numbered, only=only).quantiles) == tiny.bits(chosen)
    assert model.explain(numbered, only=2).forecast.panel.series_names == ["2"]
    with pytest.raises(fc.ConfigError, match=r"^only=\[1, 2\]: expected text or .*, found list"):
        model.explain(numbered, only=[1, 2])
