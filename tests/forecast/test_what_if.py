"""What-if: changed known covariates, filled ones, and the difference of both forecasts."""

import sys
from datetime import timedelta
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from forecast import tiny
from polars.testing import assert_frame_equal

import forecaster as fc
from forecaster.cli.results import refuse_options
from forecaster.panel.known import Change, changes_of

ROOT = Path(__file__).parents[2]
KEYS = ["store", "cutoff", "date", "lead", "channel"]


@cache
def shop() -> pl.DataFrame:
    """The shop with an offer (a category) that, as the price, has an effect."""
    rng = np.random.default_rng(1)
    table = tiny.shop().select("store", "date", "sales", "price", "city")
    offer = pl.Series("offer", rng.choice(["none", "half", "two-4-one"], table.height))
    lift = offer.replace_strict({"none": 0.0, "half": 6.0, "two-4-one": 3.0})
    return table.with_columns(offer, sales=pl.col("sales") - 2 * pl.col("price") + lift)


@cache
def ahead() -> pl.DataFrame:
    """Prices and offers of the days after it."""
    return tiny.prices().with_columns(
        offer=pl.when(pl.col("price") > 2).then(pl.lit("half")).otherwise(pl.lit("none"))
    )


@cache
def model() -> fc.Forecaster:
    return fc.fit(
        shop(),
        7,
        known=["price", "offer"],
        config=tiny.config_with(experts=["naive", "linear"]),
        quiet=True,
    )


@cache
def follower() -> fc.Forecaster:
    """An autoregressive model, whose paths are drawn by its decoder."""
    config = tiny.config_with(decoder="autoregressive", patch=2)
    return fc.fit(shop(), 7, known=["price", "offer"], config=config, quiet=True)


def parts(found) -> dict[str, pl.DataFrame]:
    rows = found.to_polars()
    return {
        name: rows.filter(pl.col("scenario") == name).drop("scenario")
        for name in ("base", "what-if", "difference")
    }


def what_if(which: str, changes, **options):
    """What-if of the shop by a fitted model, by one of autoregression, or without a fit."""
    if which == "no fit":
        return fc.what_if(shop(), 7, ahead(), changes, known=["price", "offer"], **options)
    return {"fitted": model, "follower": follower}[which]().what_if(shop(), ahead(), changes, **options)


def predict(which: str, future: pl.DataFrame, **options) -> fc.Forecast:
    if which == "no fit":
        return fc.predict(shop(), 7, future=future, known=["price", "offer"], **options)
    return {"fitted": model, "follower": follower}[which]().predict(shop(), future=future, **options)


every_kind = pytest.mark.parametrize("which", ["fitted", "no fit", "follower"])


@every_kind
def test_no_change_gives_a_difference_of_exactly_zero(which):
    found = what_if(which, ["price*1", "price+0"])
    rows = parts(found)
    assert_frame_equal(rows["base"], rows["what-if"])
    numbers = rows["difference"].select("mean", "forecast", "^q.*$").to_numpy()
    assert numbers.shape == (21, 11) and not numbers.any()
    assert found.report.endswith("with price*1, price+0: no forecast changes")
    totals = parts(found.total("W", by="city"))["difference"]
    assert not totals.select("mean", "forecast", "^q.*$").to_numpy().any()


@every_kind
def test_base_and_what_if_are_forecasts_of_both_tables_and_the_difference_that_of_their_paths(which):
    """A slow twin: the future table is changed by polars, and forecast by itself."""
    future = ahead().with_columns(price=(pl.col("price") * 0.9 - 0.25), offer=pl.lit("two-4-one"))
    tables = {"base": ahead(), "what-if": future}
    tables = {name: predict(which, table, samples=40) for name, table in tables.items()}
    rows = parts(what_if(which, ["price*0.9", "price-0.25", "offer=two-4-one"], samples=40))
    for name, forecast in tables.items():
        assert_frame_equal(rows[name], forecast.to_polars(), rel_tol=1e-6)
    paths = (tables["what-if"].paths - tables["base"].paths)[..., 0]  # [N, S, H]
    levels = [n / 10 for n in range(1, 10)]
    expected = np.quantile(paths, levels, axis=1).reshape(9, -1).T
    found = rows["difference"]
    np.testing.assert_allclose(found.select("^q.*$").to_numpy(), expected, atol=1e-4)
    assert found["forecast"].to_list() == found["q0.5"].to_list()
    difference = rows["what-if"]["mean"] - rows["base"]["mean"]
    np.testing.assert_allclose(found["mean"], difference, atol=1e-9)
    assert abs(difference).min() > 0


def test_three_rows_of_a_cell_stand_together_in_the_callers_kind_of_frame():
    found = model().what_if(shop().to_pandas(), ahead().to_pandas(), "price*0.9", levels=[80, 95])
    rows = found.frame
    assert type(rows).__module__.startswith("pandas") and len(rows) == 63
    assert [*rows.columns] == [
        *KEYS,
        "scenario",
        "forecast",
        "mean",
        "lo-80",
        "hi-80",
        "lo-95",
        "hi-95",
        "status",
    ]
    assert rows["scenario"][:4].tolist() == ["base", "what-if", "difference", "base"]
    assert rows["lead"][:4].tolist() == [1, 1, 1, 2]
    assert (rows["lo-95"] <= rows["lo-80"]).all() and (rows["hi-80"] <= rows["hi-95"]).all()


def test_totals_of_a_what_if_are_sums_of_its_paths():
    found = what_if("fitted", "price*0.9", samples=30)
    paths = [
        predict("fitted", table, samples=30).paths
        for table in (ahead(), ahead().with_columns(pl.col("price") * 0.9))
    ]
    rows = parts(found.total("horizon", by="all"))
    for name, cells in zip(rows, (*paths, paths[1] - paths[0]), strict=True):
        sums = cells.sum(axis=(0, 2, 3))
        np.testing.assert_allclose(
            rows[name].select("q0.1", "q0.9").row(0), np.quantile(sums, [0.1, 0.9]), rtol=1e-4
        )
        assert rows[name]["series"].to_list() == [3]


def test_functions_see_the_known_numbers_or_words_of_one_series_in_order_of_time():
    seen = []

    def cheaper(price):
        seen.append(price.tolist())
        price *= 0.9  # of a copy
        return price

    found = model().what_if(
        shop(), ahead(), {"price": cheaper, "offer": lambda words: ["half"] * len(words)}
    )
    assert seen == [ahead()["price"].to_list()[:7]] * 3
    same = model().what_if(shop(), ahead(), ["price*0.9", "offer=half"])
    assert_frame_equal(found.to_polars(), same.to_polars())
    constant = model().what_if(shop(), ahead(), {"price": 2, "offer": "half"})
    assert_frame_equal(
        constant.to_polars(), model().what_if(shop(), ahead(), ["price=2", "offer=half"]).to_polars()
    )
    with pytest.raises(fc.ConfigError, match="price: a function: expected finite numbers"):
        model().what_if(shop(), ahead(), {"price": lambda price: price + np.inf})


def test_a_function_sees_the_leads_that_are_forecast_alone_and_equals_its_sign():
    seen = []
    far = pl.concat([ahead(), ahead().with_columns(pl.col("date") + timedelta(7))])
    found = model().what_if(
        shop(), far, {"price": lambda price: seen.append(price) or price * 0.9}, horizon=3
    )
    assert [one.tolist() for one in seen] == [ahead()["price"].to_list()[:3]] * 3
    assert_frame_equal(
        found.to_polars(), model().what_if(shop(), far, "price*0.9", horizon=3).to_polars()
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"price": lambda price: price[:3]}, r"price: a function: expected 7 numbers, found .*\(3,\)"),
        ({"price": lambda price: "low"}, "price: a function: expected 7 numbers, found"),
        (
            {"offer": lambda words: ["free"] * 7},
            "offer: a function: expected words of half, none, two-4",
        ),
    ],
)
def test_what_a_function_may_not_return_is_refused(change, said):
    with pytest.raises(fc.ConfigError, match=said):
        model().what_if(shop(), ahead(), change)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("price*0.9", ("price", "*", "0.9")),
        (" price = -5 ", ("price", "=", "-5")),
        ("net-price-1e-3", ("net-price", "-", "1e-3")),
        ("temp+-2", ("temp", "+", "-2")),
        ("a/b/4", ("a/b", "/", "4")),
        ("offer=two-4", ("offer", "=", "two-4")),
    ],
)
def test_a_change_is_a_column_a_sign_and_a_value(text, change):
    assert changes_of(text) == (Change(*change),)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ("price", r"price: expected COLUMN=VALUE, COLUMN\*NUMBER, .* or COLUMN/NUMBER"),
        ([], "expected COLUMN=VALUE, .*, found nothing"),
        (None, "expected COLUMN=VALUE, .*, found nothing"),
        ("price/0.0", "price/0.0: divides by 0; expected another number"),
        ("price=low", "price=low: expected a finite number, found 'low'"),
        ("price=nan", "price=nan: expected a finite number, found 'nan'"),
        ("sales*2", r"sales\*2: expected a covariate known in advance \(price, offer\), found 'sales'"),
        ("city=north", r"expected a covariate known in advance \(price, offer\), found 'city'"),
        (
            "offer=free",
            "offer=free: offer is a category; expected offer=WORD with one of half, none, two-4-one",
        ),
        ("offer*2", "offer is a category; expected offer=WORD"),
        ({"visitors": 1}, "found 'visitors'"),
    ],
)
def test_changes_that_cannot_be_made_are_refused(changes, said):
    with pytest.raises(fc.ConfigError, match=said):
        model().what_if(shop(), ahead(), changes)


def test_a_model_without_known_covariates_or_paths_and_a_column_named_scenario_are_refused():
    with pytest.raises(fc.ConfigError, match="there is none; declare it with `known`"):
        tiny.plain_model().what_if(tiny.plain(), None, "price*2")
    names = {"store": "scenario"}
    with pytest.raises(
        fc.DataError, match="column 'scenario' is also a result's of `what_if`; rename it"
    ):
        model().what_if(shop().rename(names), ahead().rename(names), "price*2", series="scenario")


def test_changes_of_a_covariate_of_related_series_are_of_each():
    wide = ahead().with_columns(
        pl.col("price") + pl.col("store").replace_strict({"a": 0.0, "b": 1.0, "c": 2.0})
    )
    options = {"known": ["price"], "layout": "wide"}
    table = shop().drop("city", "offer")
    found = fc.what_if(table, 7, wide.drop("offer"), "price*2", **options)
    doubled = wide.drop("offer").with_columns(pl.col("price") * 2)
    expected = fc.predict(table, 7, future=doubled, **options)
    assert_frame_equal(parts(found)["what-if"], expected.to_polars())


# Filled covariates


@pytest.mark.parametrize(
    ("how", "price", "offer"),
    [
        ("last", [4.0] * 7, ["half"] * 7),
        ("mean", [2.0] * 7, ["none"] * 7),
        ("seasonal", [1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 4.0], ["none"] * 6 + ["half"]),
    ],
)
def test_a_missing_future_is_filled_and_said_for_each_covariate(how, price, offer):
    """Seven last days at 1, 1, 1, 1, 2, 3, 4, others at 2 save one: the mean is 2."""
    days = 7 * 10
    prices = [2.0] * (days - 8) + [3.0] + [1.0] * 4 + [2.0, 3.0, 4.0]
    table = (
        shop()
        .filter(pl.col("date") >= tiny.day(100 - days))
        .with_columns(
            price=pl.Series(prices * 3), offer=pl.Series((["none"] * (days - 1) + ["half"]) * 3)
        )
    )
    given = ahead().with_columns(price=pl.Series(price * 3), offer=pl.Series(offer * 3))
    expected = model().predict(table, future=given).to_polars()
    found = model().predict(table, fill_known=how)
    assert_frame_equal(found.to_polars(), expected)
    said = [one.text for one in found.findings if one.rule == "filled"]
    assert said == [
        f"'{name}': 21 steps without a value are filled ({how})" for name in ("price", "offer")
    ]
    # It fills only what is missing, and composes with a change.
    partly = given.with_columns(offer=pl.lit(None, pl.String))
    rows = parts(model().what_if(table, partly, "price*2", fill_known=how))
    assert_frame_equal(rows["base"], expected)
    doubled = given.with_columns(pl.col("price") * 2)
    assert_frame_equal(rows["what-if"], model().predict(table, future=doubled).to_polars())


def test_what_lacks_a_future_names_the_option_and_a_table_without_season_refuses_one():
    with pytest.raises(
        fc.DataError, match=r"future=FILE, let predict fill them \(`fill_known`\), or shorten"
    ):
        model().predict(shop())
    table = shop().with_columns(year=2000 + pl.int_range(pl.len()).over("store")).drop("date")
    options = {"known": ["price"], "time": "year", "target": "sales", "series": "store"}
    with pytest.raises(fc.ConfigError, match="has no season; expected last or mean"):
        fc.predict(table, 3, fill_known="seasonal", **options)
    assert fc.predict(table, 3, fill_known="last", **options).report.startswith("3 series")
    with pytest.raises(fc.ConfigError, match="fill_known=first: expected last, seasonal or mean"):
        model().predict(shop(), fill_known="first")


# The table to fill in


def test_the_future_to_fill_in_has_keys_times_and_empty_covariates_in_the_callers_kind():
    frame = model().future(shop())
    dates = [tiny.day(100 + n) for n in range(7)]
    assert frame.columns == ["store", "date", "price", "offer"]
    assert frame.select("store", "date").rows() == [(s, d) for s in tiny.STORES for d in dates]
    assert frame["price"].null_count() == frame["offer"].null_count() == 21
    assert frame.schema["price"] == pl.Float64 and frame.schema["offer"] == pl.String
    done = frame.select("store", "date").with_columns(ahead().select("price", "offer"))
    assert_frame_equal(
        model().predict(shop(), future=done).to_polars(), predict("fitted", ahead()).to_polars()
    )
    pandas = model().future(shop().to_pandas(), horizon=3, only="b")
    assert type(pandas).__module__.startswith("pandas") and pandas["store"].tolist() == ["b"] * 3


def test_the_future_to_fill_in_keeps_what_the_table_has_and_one_row_per_series_of_a_group():
    rows = ahead().with_columns(sales=pl.lit(None, pl.Float64), city=pl.lit(None, pl.String))
    joined = pl.concat([shop(), rows.select(shop().columns)])
    assert_frame_equal(model().future(joined), ahead())
    related = fc.fit(
        shop().drop("city"), 7, known="price", layout="wide", config=tiny.NETWORK, quiet=True
    )
    frame = related.future(shop())
    assert frame.columns == ["store", "date", "price"] and frame.height == 21
    assert sorted(frame["store"].to_list()) == sorted([*tiny.STORES] * 7)


# Planted effects


def test_a_planted_effect_is_recovered():
    """Sales fall by 4 for each unit of price, whatever the day."""
    rng = np.random.default_rng(0)
    days = np.arange(300)
    tables, futures = [], []
    for store in ("a", "b", "c"):
        price = rng.choice([4.0, 5.0, 6.0], 314)
        sales = 60 + 5 * np.sin(days * 2 * np.pi / 7) - 4 * price[:300] + rng.normal(size=300)
        dates = [tiny.START + timedelta(days=int(day)) for day in range(314)]
        tables.append(
            pl.DataFrame({"store": store, "date": dates[:300], "sales": sales, "price": price[:300]})
        )
        futures.append(pl.DataFrame({"store": store, "date": dates[300:], "price": price[300:]}))
    found = fc.what_if(pl.concat(tables), 14, pl.concat(futures), "price-1", known="price")
    effect = parts(found)["difference"]["mean"].mean()
    assert 3.6 < effect < 4.4


@pytest.mark.slow
def test_the_planted_effects_of_the_demo_are_recovered_within_ten_percent():
    """Of promotions with and without their price, and of a price each day; within promotions within 25."""
    sys.path.insert(0, str(ROOT / "data"))
    import make_demo

    model = fc.fit(ROOT / "data" / "demo.csv", 28, known=["price", "promo"], tracking=False, quiet=True)
    tables = ROOT / "data" / "demo.csv", ROOT / "data" / "demo_future.csv"

    def recovered(price, promo) -> float:
        """Share of the planted effect that the difference of the means has."""
        changes = {"price": price, "promo": lambda words: [str(promo(int(word))) for word in words]}
        found = model.what_if(*tables, changes)
        planted = 0.0
        for number, name in enumerate(found.panel.series_names):
            random = np.random.Generator(np.random.PCG64([make_demo.SEED, int(name.split("_")[1])]))
            store = make_demo._draw_store(int(name.split("_")[1]), random)
            days = make_demo._days(store.opened, make_demo.LAST_DAY + timedelta(days=28))
            offers = make_demo._draw_offers(store, len(days), random)[-28:]
            cents, day = np.array([(offer.cents, offer.promo_day) for offer in offers]).T

            def sold(cents, day, store=store):
                lift = (store.promo_lift - 1) * (1 - 0.05 * (day - 1)) * (day > 0)
                discount = 1 - cents / store.regular_cents
                return (1 + make_demo.ELASTICITY * discount) * (1 + lift)

            ratio = sold(price(cents.astype(float)), day * promo((day > 0).astype(int))) / sold(
                cents, day
            )
            planted += float((found.base.mean[number, :, 0] * (ratio - 1)).sum())
        return float(found.difference.mean.sum()) / planted

    found = {
        "no promotions": recovered(lambda p: np.full_like(p, p.max()), lambda promo: 0 * promo),
        "their price stays": recovered(lambda p: p, lambda promo: 0 * promo),
        "a price each day": recovered(lambda p: 0.9 * p, lambda promo: promo),
    }
    assert all(0.9 < share < 1.1 for share in found.values()), found
    within = recovered(lambda p: np.where(p < 0.95 * p.max(), 0.9 * p, p), lambda promo: promo)
    assert 0.8 < within < 1.25  # lower prices than any in the rows


def test_the_pictures_show_both_forecasts_and_the_difference():
    found = what_if("fitted", ["price*0.9"])
    for figure, titles in (
        (
            found.plot(),
            ["a", "difference: price*0.9", "b", "difference: price*0.9", "c", "difference: price*0.9"],
        ),
        (found.plot("b"), ["b", "difference: price*0.9"]),
        (
            found.total("W", by="city").plot(),
            ["south", "difference: price*0.9", "north", "difference: price*0.9"],
        ),
    ):
        assert [
            axis.get_title(loc="left").removesuffix(" · sales")
            for axis in figure.axes
            if axis.get_visible()
        ] == titles


# In the shell


@pytest.fixture
def tables(tmp_path):
    shop().write_csv(tmp_path / "shop.csv")
    ahead().write_csv(tmp_path / "ahead.csv")
    model().save(tmp_path / "model")
    return tmp_path


def words(folder) -> list[str]:
    return [
        "predict",
        str(folder / "model"),
        str(folder / "shop.csv"),
        "--future",
        str(folder / "ahead.csv"),
    ]


@pytest.mark.long
@pytest.mark.usefixtures("undrawn")
def test_the_shell_writes_the_rows_of_python(tables, shell):
    changes = ("--what-if", "price*0.9", "--what-if", "offer=half")
    out, picture = tables / "w.csv", tables / "w.png"
    done = shell(*words(tables), *changes, "--out", out, "--plot", picture)
    assert done.code == 0 and picture.exists() and "with price*0.9, offer=half: " in done.out
    expected = model().what_if(shop(), ahead(), ["price*0.9", "offer=half"]).to_polars()
    assert_frame_equal(
        pl.read_csv(out, try_parse_dates=True), expected, check_dtypes=False, rel_tol=1e-6
    )
    totals = ("--sum", "W", "--by", "city", "--samples", "30")
    done = shell(*words(tables), *changes, *totals, "--out", tables / "t.csv")
    assert done.code == 0 and "4 totals of 2 groups" in done.out
    assert set(pl.read_csv(tables / "t.csv")["scenario"]) == {"base", "what-if", "difference"}
    done = shell(*words(tables), *changes, *totals)
    assert done.code == 0 and "scena" in done.out and "4 totals of 2 groups; with" in done.out


@pytest.mark.usefixtures("undrawn")
def test_the_shell_compares_and_fills_without_a_fit(tables, shell):
    table = ("predict", tables / "shop.csv", "--horizon", "7", "--known", "price,offer")
    done = shell(*table, "--fill-known", "last", "--what-if", "price-1", "--out", tables / "n.csv")
    assert done.code == 0 and done.err.count("without a value are filled") == 2
    assert pl.read_csv(tables / "n.csv").height == 63


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--shard", "1/2"], "--shard: --what-if forecasts the whole table twice"),
        (["--parts"], "--parts: --what-if forecasts the whole table twice"),
        (["--devices", "2"], "--devices: --what-if forecasts the whole table twice"),
        (
            ["--what-if", "cost=1"],
            "--what-if cost=1: expected a covariate known in advance (price, offer)",
        ),
        (["--what-if", "price/0"], "--what-if price/0: divides by 0"),
    ],
)
def test_the_shell_refuses_and_writes_nothing(tables, shell, more, said):
    done = shell(*words(tables), "--what-if", "price*0.9", *more, "--out", tables / "w.csv")
    assert done.code == 2 and said in done.err and not [*tables.glob("w*")]


def test_a_classifier_refuses_what_only_forecasts_have():
    given = {"what_if": ["price*0.9"], "fill_known": "last", "only": None}
    with pytest.raises(
        fc.ConfigError, match="--what-if, --fill-known: a classifier has no such option"
    ):
        refuse_options(given, "predict_to")
