"""Totals over periods and groups: sums of paths, what they leave out, and what they refuse."""

from datetime import date, timedelta
from functools import cache

import numpy as np
import polars as pl
import pytest
from forecast import tiny
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

import forecaster as fc
from forecaster.cli import app

HORIZON = 20
REGIONS = {"a": "north", "b": "south", "c": "north"}


def sales(days: int = 90, **last: int) -> pl.DataFrame:
    """Daily sales of three stores in two regions; `last`: days of a store."""
    rng = np.random.default_rng(0)
    frames = []
    for number, (store, region) in enumerate(REGIONS.items()):
        n = last.get(store, days)
        values = 20 * (number + 1) + rng.normal(size=days)[:n]
        dates = [date(2024, 1, 1) + timedelta(days=day) for day in range(n)]
        frames.append(pl.DataFrame({"store": store, "date": dates, "sales": values, "region": region}))
    return pl.concat(frames)


@cache
def predicted(horizon: int, **options: object) -> fc.Forecast:
    """The forecast of the sales."""
    return fc.predict(sales(), horizon, **options)


def twin(forecast: fc.Forecast, by: list[str], week: bool) -> pl.DataFrame:
    """Totals from rows of sample paths and of means, by polars."""
    region = pl.col("store").replace_strict(REGIONS).alias("region")
    start = pl.col("date").dt.truncate("1w") if week else pl.col("date").min().over("store")
    keys = [*by, "period"]
    rows = forecast.to_polars().with_columns(region, start.alias("period"))
    means = rows.group_by(keys).agg(
        pl.col("mean").sum(), (pl.len() / pl.col("store").n_unique()).alias("steps")
    )
    paths = forecast.sample_rows.with_columns(region, start.alias("period"))
    sums = paths.group_by([*keys, "sample"]).agg(pl.col("value").sum())
    found = sums.group_by(keys).agg(
        pl.col("value").quantile(level, "linear").alias(f"q{level:g}") for level in forecast.levels
    )
    return found.join(means, on=keys).sort(keys)


@pytest.mark.parametrize("by", ["store", "region", "all", None])
@pytest.mark.parametrize("period", ["W", "horizon"])
def test_a_total_is_that_of_summed_paths_and_means(by, period):
    """A slow twin: rows of paths, grouped and summed by polars."""
    forecast = predicted(HORIZON, samples=50)
    found = forecast.total(period, by=by).to_polars()
    names = {"all": [], None: ["store"]}.get(by, [by])
    expected = twin(forecast, names, period == "W")
    assert found.columns[: len(names) + 4] == [*names, "period", "steps", "series", "channel"]
    columns = [*names, "period", "mean", *(f"q{level:g}" for level in forecast.levels)]
    assert_frame_equal(found.select(columns), expected.select(columns))
    assert found["forecast"].to_list() == found["q0.5"].to_list()
    assert found["steps"].to_list() == expected["steps"].to_list()
    size = {"region": {"north": 2, "south": 1}.get, "all": lambda _: 3}.get(by, lambda _: 1)
    keys = found[by] if by == "region" else found["period"]
    assert found["series"].to_list() == [size(key) for key in keys]


def test_a_period_that_the_horizon_does_not_fill_is_partial():
    """2024-03-30 is the last Saturday of its month: W ends on Sundays."""
    rows = predicted(HORIZON).total("W", by="all").to_polars()
    days = [date(2024, 3, 25), date(2024, 4, 1), date(2024, 4, 8), date(2024, 4, 15)]
    assert rows["period"].to_list() == days
    assert rows["steps"].to_list() == [1, 7, 7, 5]
    assert rows["status"].to_list() == ["partial", "ok", "ok", "partial"]
    month = fc.predict(sales(91), 30).total("MS", by="all").to_polars()
    assert month.select("period", "steps", "status").rows() == [(date(2024, 4, 1), 30, "ok")]


def test_series_with_unlike_cutoffs_make_only_periods_whole_that_all_cover():
    rows = fc.predict(sales(b=84), HORIZON).total("W", by="all").to_polars()
    unlike = "partial, from unlike cutoffs"
    found = rows.select("steps", "series", "status").rows()
    assert found == [(7, 3, unlike), (7, 3, "ok"), (7, 3, "partial"), (5, 2, unlike)]
    horizon = fc.predict(sales(b=84), HORIZON).total("horizon", by="all").to_polars()
    assert horizon["status"].to_list() == ["partial, from unlike cutoffs"]


def test_a_group_of_which_a_series_has_no_forecast_has_no_total_unless_the_rest_is_asked_for():
    empty = pl.col("store") == "c"
    table = sales().with_columns(
        pl.when(empty & (pl.col("date") < date(2024, 4, 1)))
        .then(None)
        .otherwise(pl.col("sales"))
        .alias("sales")
    )
    table = pl.concat(
        [
            table,
            table.filter(empty).head(1).with_columns(sales=pl.lit(1.0), date=pl.lit(date(2024, 3, 31))),
        ]
    )
    forecast = fc.predict(table, 7, cutoff="2024-03-30")
    rows = forecast.total("horizon", by="region").to_polars()
    assert rows["status"].to_list() == ["no forecast of 1 of 2 series, as c", "ok"]
    assert rows["forecast"].is_null().to_list() == [True, False]
    assert rows["mean"].is_null().to_list() == [True, False]
    rest = forecast.total("horizon", by="region", partial=True).to_polars()
    assert rest["status"].to_list() == ["without 1 of 2 series, as c", "ok"]
    alone = forecast.total("horizon").to_polars()
    assert rest["q0.9"][0] == alone["q0.9"][0] and rest["series"].to_list() == [1, 1]


def test_levels_asked_for_are_the_columns_of_a_total():
    rows = predicted(HORIZON, levels=(50, 95)).total("horizon", by="all").to_polars()
    assert rows.columns[4:10] == ["forecast", "mean", "lo-50", "hi-50", "lo-95", "hi-95"]
    values = rows.select("lo-95", "lo-50", "forecast", "hi-50", "hi-95").row(0)
    assert list(values) == sorted(values)


def test_each_series_and_channel_has_the_steps_of_its_own_periods():
    """The cutoff of b is a day earlier: its first week of leads has two days, those of the others one."""
    table = sales(b=89).with_columns(visits=pl.col("sales") * 3)
    forecast = fc.predict(table, 9, series="store", target=["sales", "visits"])
    found = forecast.total("W").to_polars().select("store", "channel", "steps", "status")
    one, two = [1, 7, 1], [2, 7]
    for (store, _), rows in found.group_by("store", "channel"):
        assert rows["steps"].to_list() == (two if store == "b" else one)
        expected = ["partial", "ok"] if store == "b" else ["partial", "ok", "partial"]
        assert rows["status"].to_list() == expected


def test_channels_are_apart_and_series_of_a_wide_table_together():
    wide = sales().pivot(on="store", index="date", values="sales")
    apart = fc.predict(wide, 7).total("horizon", by="all").to_polars()
    assert apart["channel"].to_list() == ["a", "b", "c"] and apart["series"].to_list() == [1] * 3
    long = fc.predict(wide, 7, layout="long").total("horizon", by="all").to_polars()
    assert long["series"].to_list() == [3] and "channel" not in long.columns


@pytest.mark.parametrize(
    ("period", "by", "said"),
    [
        ("potato", None, "sum=potato: expected W, MS, QS, another period, or horizon"),
        ("5i", None, "sum=5i: expected W, MS, QS, another period, or horizon"),
        ("12h", None, "sum=12h: shorter than a step of .*, 1d; expected a longer period, or horizon"),
        (
            "W",
            "reign",
            r"by=reign: expected key columns or static covariates \(store, region\), or all",
        ),
        ("W", [], "`by`: expected some of store, region, all, found nothing"),
        ("W", "", "`by`: expected some of store, region, all, found nothing"),
    ],
)
def test_periods_and_groups_that_are_not_there_are_refused(period, by, said):
    with pytest.raises(fc.ConfigError, match=said):
        predicted(7).total(period, by=by)


def test_rows_numbered_by_whole_numbers_have_totals_of_the_horizon_alone():
    forecast = fc.predict(sales().with_columns(date=pl.int_range(pl.len()).over("store")), 7)
    with pytest.raises(fc.ConfigError, match="expected horizon"):
        forecast.total("W")
    assert forecast.total("horizon", by="all").to_polars()["period"].to_list() == [90]


@pytest.mark.parametrize("name", ["period", "steps", "series"])
def test_a_column_named_like_one_of_the_result_is_refused_by_its_name(name):
    forecast = fc.predict(sales().rename({"store": name}), 7, series=name, time="date", target="sales")
    with pytest.raises(fc.DataError, match=f"column '{name}' is also a result's of `sum`"):
        forecast.total("W", by="all")


@pytest.mark.long
def test_series_of_unlike_steps_are_not_added_up(tmp_path):
    """A week of the one is no day of the other, on whose grid it is forecast."""
    weeks = pl.DataFrame(
        {
            "store": "w",
            "date": [date(2024, 1, 1) + timedelta(days=7 * week) for week in range(26)],
            "sales": 140.0 + np.arange(26) % 5,
            "region": "north",
        }
    )
    table = pl.concat([sales(175), weeks])
    forecast = fc.predict(table, 7)
    said = "adds up values of equal steps, but 1 of 4 series have another step than 1d .*: series w.*separately"
    with pytest.raises(fc.DataError, match=f"`sum` {said}"):
        forecast.total("W", by="region")
    with pytest.raises(fc.DataError, match=f"`hierarchy` {said}"):
        fc.predict(table, 7, cutoff="last").hierarchy("region")
    with pytest.raises(fc.DataError, match=f"`hierarchy` {said}"):
        fc.backtest(table, 7, fit=False, windows=1, hierarchy="region", tracking=False, quiet=True)
    assert forecast.total("W").to_polars()["series"].to_list() == [1] * 5  # each by itself
    table.write_csv(tmp_path / "sales.csv")
    words = (str(tmp_path / "sales.csv"), "--horizon", "7", "--out", str(tmp_path / "t.csv"))
    for more in (["--sum", "W", "--by", "all"], ["--hierarchy", "region", "--cutoff", "last"]):
        code, found = run(*words, *more)
        assert code and "another step than 1d" in found and not (tmp_path / "t.csv").exists()
    alike = fc.predict(table, 7, only=["a", "b", "c"])
    assert alike.total("W", by="all").to_polars()["series"].to_list()[0] == 3


def test_a_series_that_had_another_step_long_ago_and_an_assumed_one_are_added_up():
    """Weeks at first, days later; and one row each."""
    table = sales(200)
    early = (
        (pl.col("store") == "a")
        & (pl.col("date") < date(2024, 5, 20))
        & (pl.col("date").dt.weekday() > 1)
    )
    forecast = fc.predict(table.filter(~early), 7)
    assert any("changes" in finding.text for finding in forecast.findings)
    assert forecast.total("horizon", by="all").to_polars()["status"].to_list() == ["ok"]
    first = fc.predict(sales(1), 3, series="store", target="sales")
    assert first.total("horizon", by="all").to_polars()["series"].to_list() == [3]


# In the shell


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["predict", *words])
    return result.exit_code, f"{result.output}{result.exception or ''}"


@pytest.fixture
def table(tmp_path):
    sales().write_csv(tmp_path / "sales.csv")
    return str(tmp_path / "sales.csv")


@pytest.mark.long
def test_the_shell_writes_the_totals_of_python(table, tmp_path):
    out = tmp_path / "totals.csv"
    words = (table, "--horizon", "20", "--sum", "W", "--by", "region,store", "--samples", "40")
    code, said = run(*words, "--out", str(out), "--plot", str(tmp_path / "t.png"))
    assert code == 0, said
    assert (tmp_path / "t.png").exists() and "sample" not in said.splitlines()[-1]
    expected = fc.predict(table, 20).total("W", by=["region", "store"], samples=40).to_polars()
    assert_frame_equal(
        pl.read_csv(out, try_parse_dates=True), expected, check_dtypes=False, rel_tol=1e-9
    )
    code, said = run(*words)
    assert code == 0 and "12 totals of 3 groups" in said


@pytest.mark.long
def test_totals_of_each_series_can_be_made_in_parts_and_others_refuse_them(table, tmp_path):
    out = tmp_path / "totals.parquet"
    words = (table, "--horizon", "7", "--sum", "horizon", "--out", str(out))
    for refused in (["--shard", "1/2"], ["--parts"], ["--devices", "2"]):
        code, said = run(*words, "--by", "region", *refused)
        assert code and "horizon adds up series of several parts" in said and refused[0][2:] in said
    assert not list(tmp_path.glob("totals*"))
    assert run(*words, "--shard", "1/1")[0] == 0 and run(*words)[0] == 0
    assert pl.read_parquet(out)["store"].to_list() == ["a", "b", "c"]


def test_options_of_totals_need_a_period(table):
    for words in (["--by", "region"], ["--sum-partial"]):
        code, said = run(table, "--horizon", "7", *words)
        assert code and "give --sum too" in said


def test_a_fitted_model_has_totals_and_a_model_of_autoregression_sums_its_own_paths():
    rows = tiny.ahead().total("W", by="city").to_polars()
    assert set(zip(rows["city"], rows["series"], strict=True)) == {("south", 2), ("north", 1)}
    config = tiny.config_with(decoder="autoregressive", patch=2)
    follower = fc.fit(tiny.plain(), horizon=7, config=config, quiet=True)
    forecast = follower.predict(tiny.plain(), samples=30)
    total = forecast.total("horizon", by="all")
    np.testing.assert_allclose(total.median[0], np.median(forecast.paths.sum(axis=(0, 2, 3))))
    assert total.status == ("ok, series drawn apart",)
    assert set(forecast.total("horizon").status) == {"ok"}
    with pytest.raises(fc.ConfigError, match="no sample paths: request them"):
        follower.predict(tiny.plain()).total("W")


@pytest.mark.parametrize("name", ["period", "channel", "mean", "steps"])
def test_a_static_that_groups_and_is_named_like_one_of_the_result_is_refused_before_forecasting(name):
    forecast = fc.predict(sales().rename({"region": name}), 7, series="store", target="sales")
    assert "status" in forecast.total("horizon", by="all").to_polars()
    with pytest.raises(fc.DataError, match=f"column '{name}' is also a result's of `sum`"):
        forecast.total("horizon", by=name)


def test_a_group_named_twice_and_a_count_of_no_paths_are_refused():
    forecast = predicted(7)
    with pytest.raises(fc.ConfigError, match="region, store, region: region is given twice"):
        forecast.total("W", by=["region", "store", "region"])
    with pytest.raises(fc.ConfigError, match="samples 0: expected 1 or more paths"):
        forecast.total("W", samples=0)


def test_whole_numbers_that_group_are_written_as_such():
    numbers = pl.col("store").replace_strict({"a": 7, "b": 8, "c": 7}).alias("code")
    table = sales().with_columns(numbers, (numbers + 0.5).alias("half"))
    forecast = fc.predict(table, 7, series="store", target="sales")
    assert forecast.total("horizon", by="code").to_polars()["code"].to_list() == [7, 8]
    assert forecast.total("horizon", by="code").to_polars()["code"].dtype == pl.Int64
    assert forecast.total("horizon", by="half").to_polars()["half"].to_list() == [7.5, 8.5]


def test_periods_are_written_as_the_times_of_the_file(tmp_path):
    german = sales().with_columns(pl.col("date").dt.strftime("%d.%m.%Y"))
    german.write_csv(tmp_path / "german.csv")
    out = tmp_path / "totals.csv"
    words = (str(tmp_path / "german.csv"), "--horizon", "9", "--sum", "W", "--by", "all")
    code, said = run(*words, "--out", str(out))
    assert code == 0, said
    assert pl.read_csv(out)["period"].to_list() == ["25.03.2024", "01.04.2024", "08.04.2024"]


def elsewhere(job, blocks):
    raise AssertionError("an engine was given parts that cannot be made apart")


def test_an_engine_is_refused_unless_each_total_is_of_one_series(tmp_path):
    model, panel = fc.api.without_fit(sales(), 7)
    out = tmp_path / "totals.csv"
    for more, reason in (
        ({"sum": "W", "by": "region"}, "`engine`: sum=W adds up series of several parts"),
        ({"sum": "W", "by": "all"}, "`engine`: sum=W adds up series of several parts"),
        ({"hierarchy": "region"}, "`engine`: `hierarchy` reconciles the series of all parts"),
    ):
        with pytest.raises(fc.ConfigError, match=reason):
            model.predict_to(out, panel, engine=elsewhere, **more)
        assert not [*tmp_path.iterdir()]
    for by in ("store", ["region", "store"], None):
        with pytest.raises(AssertionError, match="an engine was given parts"):
            model.predict_to(out, panel, sum="W", by=by, engine=elsewhere)


@pytest.mark.parametrize(
    ("more", "option"),
    [
        (["--levels", "80"], "--levels"),
        (["--quantiles", "0.05"], "--quantiles"),
        (["--samples", "5"], "--samples"),
        (["--sum", "W", "--by", "machine", "--sum-partial"], "--sum, --by, --sum-partial"),
        (["--hierarchy", "machine", "--reconcile", "wls"], "--hierarchy, --reconcile"),
        (["--what-if", "price*0.9"], "--what-if"),
    ],
)
def test_a_classifier_refuses_levels_paths_sums_and_hierarchies(more, option, classes):
    for out in ([], ["--out", str(classes / "rows.csv")]):
        code, said = run(str(classes / "model"), str(classes / "waves.csv"), *more, *out)
        assert code and f"{option}: a classifier has no such option" in said, said
        assert not (classes / "rows.csv").exists()


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """A classifier and its table, in a folder."""
    folder = tmp_path_factory.mktemp("classes")
    rng = np.random.default_rng(0)
    frames = [
        pl.DataFrame(
            {
                "machine": f"m{number}",
                "time": range(30),
                "y": np.sin(np.arange(30) * (1 + number % 2)) + 0.1 * rng.normal(size=30),
                "kind": ["slow", "fast"][number % 2],
            }
        )
        for number in range(16)
    ]
    table = pl.concat(frames)
    table.write_csv(folder / "waves.csv")
    roles = {"series": "machine", "time": "time", "target": "y"}
    config = {"fit": {"steps": 1}}
    fc.fit(
        table, label="kind", config=config, out=folder / "model", quiet=True, tracking=False, **roles
    )
    return folder


def test_the_status_of_a_sum_says_what_its_paths_lack():
    """Few earlier cutoffs, and bands of 95 % without residuals to scale them."""
    short = fc.predict(sales(20), 5, levels=[95])
    found = short.total("horizon", by="region").to_polars()["status"].to_list()
    assert found == ["ok, errors of 8 earlier cutoffs, uncalibrated from 95 % on"] * 2
    partial = short.total("MS", by="all").to_polars()["status"].to_list()
    assert partial == ["partial, errors of 8 earlier cutoffs, uncalibrated from 95 % on"]
    long = predicted(5, levels=(95,))
    assert set(long.total("horizon").to_polars()["status"]) == {"ok, uncalibrated from 95 % on"}
    assert set(predicted(5, levels=(90,)).total("horizon").to_polars()["status"]) == {"ok"}


def test_periods_have_the_dtype_of_the_times_of_the_caller():
    table = sales().to_pandas().assign(date=lambda frame: frame["date"].astype("datetime64[us]"))
    for dates in (table["date"].dt.date, table["date"].dt.to_period("D"), table["date"]):
        forecast = fc.predict(table.assign(date=dates), 7, series="store", target="sales")
        period = forecast.total("W", by="region").frame["period"]
        assert period.dtype == dates.dtype and type(period[0]) is type(dates[0])
