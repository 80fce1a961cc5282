"""Hierarchies: reconciled forecasts of all nodes, which add up, beside dense algebra."""

from dataclasses import replace
from datetime import date, timedelta
from functools import cache
from itertools import product

import numpy as np
import polars as pl
import pytest
from forecast import tiny
from polars.testing import assert_frame_equal
from scipy.sparse import csr_array
from typer.testing import CliRunner

import forecaster as fc
from forecaster.cli import app
from forecaster.forecast import hierarchy as module
from forecaster.forecast.reconcile import Reconciliation, error_covariance, shrinkage

HORIZON = 6
SPEC = "State/Region*Purpose"
REGIONS = {"Perth": "west", "Broome": "west", "Hobart": "south"}


def trips(days: int = 80, level: float = 20.0) -> pl.DataFrame:
    """Daily trips by region and purpose, as those of Australian tourism; regions lie in states."""
    rng = np.random.default_rng(0)
    shared = rng.normal(size=days)
    frames = []
    for number, ((region, state), purpose) in enumerate(product(REGIONS.items(), ("work", "fun"))):
        week = np.sin(2 * np.pi * (np.arange(days) + number) / 7)
        values = level * (1 + number) + 4 * week + shared + rng.normal(size=days)
        dates = [date(2024, 1, 1) + timedelta(days=day) for day in range(days)]
        names = {"State": state, "Region": region, "Purpose": purpose}
        frames.append(pl.DataFrame(names | {"date": dates, "trips": values.round(3)}))
    return pl.concat(frames)


@pytest.fixture(autouse=True)
def few_cutoffs(monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes are forecast at each of them."""
    monkeypatch.setattr(module, "CUTOFFS", 7)


@cache
def forecast() -> fc.Forecast:
    return fc.predict(trips(), HORIZON, series=["Region", "Purpose"])


def check_sums(found: module.Hierarchy, sums: np.ndarray) -> None:
    """Every path, mean and point forecast of an inner node is the sum of its series."""
    inner = len(sums)
    assert found.nodes.paths is not None and found.nodes.mean is not None
    for cells in (found.median, found.nodes.mean, found.nodes.paths):
        assert np.isfinite(cells).all()
        added = np.tensordot(sums, cells[inner:], axes=1)
        np.testing.assert_allclose(cells[:inner], added, rtol=1e-9)


# Algebra


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("count", [1, 5, 40])
def test_reconciliation_is_that_of_dense_algebra(full, count):
    """G = (Sᵀ W⁻¹ S)⁻¹ Sᵀ W⁻¹."""
    rng = np.random.default_rng(count)
    above = np.array(
        [[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1], [1, 0, 1, 0, 1, 0]], float
    )
    both = np.vstack([above, np.eye(6)])
    errors = rng.normal(size=(count, 10)) @ rng.normal(size=(10, 10))
    errors[rng.random(errors.shape) < 0.1] = np.nan
    covariance = error_covariance(errors, np.full(10, count), rng.uniform(1, 2, 10), full)
    w = np.diag(covariance.own) + covariance.shared @ covariance.shared.T
    base = rng.normal(size=(10, 3))
    inverse = np.linalg.inv(w)
    expected = np.linalg.solve(both.T @ inverse @ both, both.T @ inverse @ base)
    changes = Reconciliation(csr_array(above), covariance, base[:4] - above @ base[4:])
    found = np.concatenate([changes.corrections(slice(0, 2)), changes.corrections(slice(2, 6))])
    np.testing.assert_allclose(base[4:] + found, expected, atol=1e-9)


def test_shrinkage_is_the_sum_of_variances_over_that_of_squares_of_all_correlations():
    rng = np.random.default_rng(0)
    scaled = rng.normal(size=(24, 8)) @ rng.normal(size=(8, 8))
    scaled /= np.sqrt((scaled**2).mean(axis=0))
    products = scaled[:, :, None] * scaled[:, None, :]
    mean = products.mean(axis=0)
    variances = ((products - mean) ** 2).sum(axis=0) / (24 * 23)
    pairs = ~np.eye(8, dtype=bool)
    assert shrinkage(scaled) == pytest.approx(variances[pairs].sum() / (mean[pairs] ** 2).sum())
    assert shrinkage(np.zeros((3, 2))) == 1.0


@pytest.mark.parametrize(
    ("full", "expected"),
    [
        (True, [29.0043, 12.17057, 16.83373, 3.56439, 8.60617, 7.68166, 9.15207]),
        (False, [28.08827, 14.78927, 13.299, 4.43239, 10.35688, 8.8476, 4.4514]),
    ],
)
def test_reconciled_forecasts_are_those_of_another_package(full, expected):
    """hierarchicalforecast 1.5.3: MinTrace mint_shrink and wls_var of residuals E, for wls 1 + E."""
    errors = np.array(
        [
            [0.166667, 0.9, -0.15, 1.3, -2.9, 0.783333, 1.066667],
            [-0.533333, -0.9, -2.55, -1.7, 1.7, 2.583333, 3.666667],
            [-0.333333, -1.6, 3.15, -0.5, -3.0, -3.916667, -3.733333],
            [2.466667, 0.7, -1.95, -1.1, 3.2, 0.583333, 2.266667],
            [0.866667, -1.1, 1.35, 0.5, -1.9, -1.516667, -2.133333],
            [-2.633333, 2.0, 0.15, 1.5, 2.9, 1.483333, -1.133333],
        ]
    )
    base = np.array([18.0, 19.7, 19.4, 7.2, 19.6, 18.3, 17.3])[:, None]
    above = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]], float)
    covariance = error_covariance(errors + (not full), np.full(7, 10**9), np.ones(7), full)
    changes = Reconciliation(csr_array(above), covariance, base[:3] - above @ base[3:])
    leaves = base[3:] + changes.corrections(slice(0, 4))
    np.testing.assert_allclose(np.vstack([above @ leaves, leaves])[:, 0], expected, atol=1e-5)


def test_errors_that_are_not_known_leave_the_variance_that_the_forecast_expects():
    """(2 cutoffs · mean square 4 + 1) / 3 = 3, and 9 where no error is known."""
    errors = np.array([[2.0, np.nan], [-2.0, np.nan]])
    found = error_covariance(errors, np.array([2, 0]), np.array([1.0, 9.0]), full=False)
    assert found.own.tolist() == [3.0, 9.0]


# Forecasts


@pytest.mark.parametrize("method", ["mint", "wls", "bottom-up"])
def test_every_path_mean_and_median_adds_up(method):
    found = forecast().hierarchy(SPEC, method, samples=40)
    rows = found.to_polars()
    keys = rows.select("State", "Region", "Purpose").unique().rows()
    leaves = [row for row in keys if None not in row]
    assert len(keys) == len(found.levels) == 1 + 2 + 2 + 4 + 3 + 6 and len(leaves) == 6
    names = found.panel.keys.rows(named=True)
    sums = [
        [all(one in (None, leaf[name]) for name, one in node.items()) for leaf in names[-6:]]
        for node in names[:-6]
    ]
    check_sums(found, np.array(sums, float))
    assert set(rows["status"]) == {"ok"}
    assert rows.filter(node_level="Region × Purpose").height == 6 * HORIZON
    state = rows.filter(pl.col("node_level") == "Region")
    assert set(state.select("State", "Region", "Purpose").rows()) == {
        (state, region, None) for region, state in REGIONS.items()
    }
    paths = found.nodes.samples
    assert (
        paths.filter(pl.col("Region").is_null() & pl.col("State").is_null()).height == 3 * 40 * HORIZON
    )


def test_quantiles_of_a_node_are_those_of_its_paths_and_levels_its_columns():
    base = fc.predict(trips(), HORIZON, series=["Region", "Purpose"], levels=[80])
    found = base.hierarchy("State", samples=50)
    rows = found.to_polars()
    assert "q0.5" not in rows.columns
    at = rows.columns.index("node_level")
    assert rows.columns[:at] == ["Region", "Purpose", "State", "cutoff", "date", "lead", "channel"]
    assert rows.columns[at + 1 :] == ["forecast", "mean", "lo-80", "hi-80", "status"]
    paths = found.nodes.paths[:, :, 0, 0]
    shown = rows.filter(lead=1).select("lo-80", "hi-80").to_numpy()
    np.testing.assert_allclose(shown, np.quantile(paths, [0.1, 0.9], axis=1).T)
    assert set(found.levels) == {"total", "State", "Region × Purpose"}


def test_the_status_of_every_node_says_what_its_bands_lack():
    base = fc.predict(trips(20), HORIZON, series=["Region", "Purpose"], levels=[95])
    statuses = base.hierarchy("State").nodes.status
    assert set(statuses[-6:]) == {"ok, uncalibrated from 95 % on"}
    assert set(statuses[:-6]) == {"ok, errors of 7 earlier cutoffs, uncalibrated from 95 % on"}


def test_bottom_up_leaves_the_series_as_they_were():
    found = forecast().hierarchy("State", "bottom-up")
    leaves = len(forecast().time)
    np.testing.assert_array_equal(found.median[-leaves:], forecast().median)
    np.testing.assert_array_equal(found.nodes.mean[-leaves:], forecast().mean)
    assert found.method == "bottom-up" and found.nodes.paths is None


def test_reconciliation_moves_series_towards_a_base_forecast_of_their_sum():
    """Doubled history of the sum alone: all series rise."""
    raw = module.summed

    def doubled(panel, tree):
        sums = raw(panel, tree)
        return replace(sums, values=sums.values * 2)

    before = forecast().hierarchy("State", "wls").median
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "summed", doubled)
        after = forecast().hierarchy("State", "wls").median
    assert (after[0] > 1.05 * before[0]).all() and (after[-6:] >= before[-6:]).all()


def test_mint_is_the_default_up_to_2000_nodes(monkeypatch):
    assert forecast().hierarchy("State").method == "mint"
    monkeypatch.setattr(module, "MOST_OF_MINT", 8)
    assert forecast().hierarchy("State").method == "wls"


def test_blocks_of_series_change_no_number(monkeypatch):
    whole = forecast().hierarchy(SPEC, samples=40).to_polars()
    monkeypatch.setattr("forecaster.forecast.forecast.PATH_BLOCK", 2)
    found = forecast().hierarchy(SPEC, samples=40).to_polars()
    assert_frame_equal(found, whole, rel_tol=1e-9)


def test_negatives_are_clipped_at_the_leaves_and_summed():
    rng = np.random.default_rng(1)
    table = trips(level=0.0).with_columns(trips=pl.Series(rng.poisson(0.7, 480).astype(float)))
    base = fc.predict(table, HORIZON, series=["Region", "Purpose"])
    found = base.hierarchy("State", samples=40)
    assert found.nodes.paths.min() == 0.0 and found.median.min() >= 0.0
    np.testing.assert_allclose(found.nodes.paths[0], found.nodes.paths[-6:].sum(axis=0))
    bounded = fc.predict(
        trips(), HORIZON, series=["Region", "Purpose"], lower=30, upper=90, integer=True
    )
    found = bounded.hierarchy("State", samples=40)
    leaves = found.nodes.paths[-6:]
    assert leaves.min() >= 30 and leaves.max() <= 90 and (leaves == leaves.round()).all()
    assert found.nodes.mean[-6:].min() >= 30 and (found.nodes.mean != found.nodes.mean.round()).any()
    assert found.nodes.paths[0].max() > 90
    np.testing.assert_allclose(found.nodes.paths[0], leaves.sum(axis=0))


def test_a_series_without_a_forecast_leaves_its_sums_missing_and_the_others_reconciled():
    table = trips().with_columns(
        trips=pl.when((pl.col("Region") == "Hobart") & (pl.col("Purpose") == "fun"))
        .then(None)
        .otherwise("trips")
    )
    table = pl.concat([table, table.tail(1).with_columns(date=date(2024, 4, 1), trips=1.0)])
    base = fc.predict(table, HORIZON, series=["Region", "Purpose"], cutoff="2024-03-20")
    found = base.hierarchy("State/Region", samples=30)
    rows = found.to_polars().filter(lead=1)
    said = "no forecast of 1 of 2 series, as Hobart/fun"
    assert rows.filter(State="south", node_level="State")["status"].to_list() == [said]
    assert rows["forecast"].is_null().sum() == 4  # total, south, Hobart, and the series
    west = rows.filter(State="west", node_level="State")
    leaves = rows.filter(State="west", node_level="Region × Purpose")
    assert west["forecast"][0] == pytest.approx(leaves["forecast"].sum())
    assert "1 without a forecast" in found.report


@cache
def without_fun() -> fc.Forecast:
    gone = pl.when(pl.col("Purpose") == "fun").then(None).otherwise("trips")
    return fc.predict(trips().with_columns(trips=gone), HORIZON, series=["Region", "Purpose"])


@pytest.mark.parametrize("method", ["mint", "wls", "bottom-up"])
def test_where_every_sum_lacks_a_series_the_others_stay_as_they_were(method):
    base = without_fun()
    found = base.hierarchy("State", method)
    assert np.isnan(found.median[:3]).all()
    np.testing.assert_array_equal(found.median[3:], base.median)


def test_a_series_without_history_is_added_to_sums_as_it_is():
    base = replace(forecast(), status=("cold", *forecast().status[1:]))
    found, plain = base.hierarchy("State", "wls", samples=20), forecast().hierarchy("State", "wls")
    np.testing.assert_array_equal(found.median[-6], base.median[0])
    assert (found.median[-5:] != base.median[1:]).any(axis=(1, 2)).all()
    np.testing.assert_allclose(found.median[0], found.median[-6:].sum(axis=0))
    np.testing.assert_allclose(found.base[0], plain.base[0] + base.median[0])


def test_sums_with_a_longer_history_than_most_series_are_reconciled_at_cutoffs_of_these():
    late = (pl.col("Purpose") == "fun") | (pl.col("Region") == "Perth")
    table = trips().filter(~late | (pl.col("date") >= date(2024, 2, 25)))
    base = fc.predict(table, HORIZON, series=["Region", "Purpose"])
    found = base.hierarchy("State", "mint", samples=20)
    check_sums(found, np.array([[1] * 6, [1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 0, 0]], float))


def test_series_with_unlike_cutoffs_are_refused_with_the_option_that_helps():
    table = trips().filter((pl.col("Region") != "Perth") | (pl.col("date") < date(2024, 3, 10)))
    base = fc.predict(table, HORIZON, series=["Region", "Purpose"])
    with pytest.raises(
        fc.DataError, match=r"one cutoff, found series that end from 2024-03-09 to .*last"
    ):
        base.hierarchy("State")
    last = fc.predict(table, HORIZON, series=["Region", "Purpose"], cutoff="last")
    assert last.hierarchy("State").to_polars()["forecast"].null_count() == 0


def test_nothing_after_the_cutoff_changes_a_hierarchy():
    table = trips()
    spoiled = table.with_columns(
        trips=pl.when(pl.col("date") > date(2024, 3, 10)).then(1e6).otherwise("trips")
    )
    one, two = (
        fc.predict(frame, HORIZON, series=["Region", "Purpose"], cutoff="2024-03-10").hierarchy("State")
        for frame in (table, spoiled)
    )
    assert_frame_equal(one.to_polars(), two.to_polars())


def test_wide_tables_are_refused_unless_their_columns_are_series():
    wide = (
        trips()
        .with_columns(name=pl.col("Region") + pl.col("Purpose"))
        .pivot(on="name", index="date", values="trips")
    )
    with pytest.raises(fc.ConfigError, match="fit with `layout` long"):
        fc.predict(wide, HORIZON).hierarchy("State")
    table = pl.DataFrame({"child": wide.columns[1:], "parent": ["x", "x", "x", "y", "y", "y"]})
    found = fc.predict(wide, HORIZON, layout="long").hierarchy(table)
    assert set(found.levels) == {"total", "level_1", "channel"}


def test_channels_are_reconciled_apart_and_pandas_comes_back():
    table = trips().with_columns(nights=pl.col("trips") * 3)
    base = fc.predict(
        table.to_pandas(), HORIZON, series=["Region", "Purpose"], target=["trips", "nights"]
    )
    found = base.hierarchy("State", samples=20)
    assert found.panel.series_names[:3] == ["total", "west", "south"]
    check_sums(found, np.array([[1] * 6, [1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 0, 0]], float))
    frame = found.frame
    assert type(frame).__module__.startswith("pandas") and set(frame["channel"]) == {"trips", "nights"}
    numbers = table.with_columns(
        store=pl.col("Region").replace_strict({"Perth": 1, "Broome": 2, "Hobart": 3})
    )
    numbers = numbers.filter(pl.col("Purpose") == "fun").drop("Region", "Purpose").to_pandas()
    stores = fc.predict(numbers, HORIZON, series="store", target="trips").hierarchy("State").frame
    assert set(stores["store"].dropna()) == {1, 2, 3}


def test_a_fitted_model_with_known_covariates_has_hierarchies():
    found = tiny.ahead().hierarchy("city/store", samples=20)
    check_sums(found, np.array([[1, 1, 1], [1, 0, 1], [0, 1, 0]], float))


@pytest.mark.slow
def test_a_model_of_autoregression_reconciles_its_own_paths():
    config = tiny.config_with(decoder="autoregressive", patch=2)
    follower = fc.fit(tiny.shop().drop("price", "visitors"), horizon=7, config=config, quiet=True)
    base = follower.predict(tiny.shop().drop("price", "visitors"), samples=30)
    found = base.hierarchy("city/store", samples=30)
    check_sums(found, np.array([[1, 1, 1], [1, 0, 1], [0, 1, 0]], float))
    apart = "ok, series drawn apart"
    assert found.nodes.status == (apart, apart, "ok", "ok", "ok", "ok")


def test_the_plot_has_a_panel_per_node():
    figure = forecast().hierarchy("State").plot()
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert titles[:4] == ["total · trips", "west · trips", "south · trips", "Broome/fun/west · trips"]


# In the shell


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["predict", *words])
    return result.exit_code, f"{result.output}{result.exception or ''}"


@pytest.fixture
def table(tmp_path):
    trips().write_csv(tmp_path / "trips.csv")
    return str(tmp_path / "trips.csv")


@pytest.mark.long
def test_the_shell_writes_the_hierarchy_of_python(table, tmp_path):
    out = tmp_path / "nodes.csv"
    words = (
        table,
        "--horizon",
        "6",
        "--series",
        "Region,Purpose",
        "--hierarchy",
        SPEC,
        "--samples",
        "40",
    )
    code, said = run(*words, "--out", str(out))
    assert code == 0 and "18 nodes" in said, said
    expected = (
        fc.predict(table, 6, series=["Region", "Purpose"]).hierarchy(SPEC, samples=40).to_polars()
    )
    assert_frame_equal(
        pl.read_csv(out, try_parse_dates=True), expected, check_dtypes=False, rel_tol=1e-9
    )
    code, said = run(*words, "--reconcile", "bottom-up", "--plot", str(tmp_path / "n.png"))
    assert code == 0 and "reconciled by bottom-up" in said and (tmp_path / "n.png").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--reconcile", "wls"], "give --hierarchy too"),
        (["--hierarchy", "State", "--sum", "W"], "--sum: a hierarchy"),
        (["--hierarchy", "State", "--only", "Perth/fun"], "--only: a hierarchy"),
        (["--hierarchy", "Stat"], "found Stat; did you mean 'State'"),
        (
            ["--hierarchy", "State", "--reconcile", "ols"],
            "--reconcile ols: expected mint, wls, bottom-up",
        ),
        (
            ["--hierarchy", "State", "--shard", "1/2"],
            "`shard`: `hierarchy` reconciles the series of all parts",
        ),
        (
            ["--hierarchy", "State", "--parts"],
            "`parts`: `hierarchy` reconciles the series of all parts",
        ),
        (["--hierarchy", "State", "--devices", "2"], "`devices`: `hierarchy` reconciles"),
        (["--hierarchy", "tree.csv"], "tree.csv: no such file"),
    ],
)
def test_what_a_hierarchy_cannot_be_asked_for_is_refused_and_nothing_written(
    table, tmp_path, more, said
):
    out = tmp_path / "nodes.csv"
    code, found = run(table, "--horizon", "6", "--series", "Region,Purpose", *more, "--out", str(out))
    assert code and said in found, found
    assert not list(tmp_path.glob("nodes*"))


@pytest.mark.parametrize("name", ["mean", "node_level", "lead", "status"])
def test_a_static_of_a_hierarchy_that_is_named_like_one_of_the_result_is_refused(name):
    table = trips().rename({"State": name})
    base = fc.predict(table, HORIZON, series=["Region", "Purpose"])
    with pytest.raises(fc.DataError, match=f"column '{name}' is also a result's of `hierarchy`"):
        base.hierarchy(name)


def test_a_count_of_no_paths_is_refused():
    with pytest.raises(fc.ConfigError, match="samples 0: expected 1 or more paths"):
        forecast().hierarchy("State", samples=0)
