"""Accuracy of a hierarchy by level, beside sums and errors by hand."""

from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import forecaster as fc
from forecaster.cli import app
from forecaster.evaluation.by_level import score_levels
from forecaster.forecast import hierarchy
from forecaster.panel.tree import HierarchyRequest


@pytest.fixture(autouse=True)
def few_cutoffs(monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes are forecast at each of them."""
    monkeypatch.setattr(hierarchy, "CUTOFFS", 7)


def sales() -> pl.DataFrame:
    """Daily sales of three stores in two regions."""
    rng = np.random.default_rng(0)
    days = [date(2024, 1, 1) + timedelta(days=day) for day in range(60)]
    return pl.concat(
        pl.DataFrame(
            {"store": store, "region": region, "date": days, "sales": level + rng.normal(size=60)}
        )
        for store, region, level in (("a", "north", 10), ("b", "south", 20), ("c", "north", 30))
    )


def test_errors_of_a_level_are_those_of_sums_of_its_series_beside_sums_of_truths():
    found = fc.backtest(
        sales(), 5, windows=2, fit=False, quiet=True, hierarchy="region", reconcile="bottom-up"
    )
    rows = found.by_level.rows(named=True)
    assert [(row["level"], row["nodes"]) for row in rows] == [("total", 1), ("region", 2), ("store", 3)]
    sums = {"total": [[0, 1, 2]], "region": [[0, 2], [1]], "store": [[0], [1], [2]]}
    table = sales().pivot(on="store", index="date", values="sales")
    for row in rows:
        wrong = size = scaled = 0.0
        for forecast in found.forecasts:
            for series in sums[row["level"]]:
                truth = forecast.actual[series, :, 0].sum(axis=0)
                error = np.abs(forecast.median[series, :, 0].sum(axis=0) - truth)
                wrong, size = wrong + error.sum(), size + np.abs(truth).sum()
                cutoff = date(1970, 1, 1) + timedelta(microseconds=int(forecast.cutoff[0]))
                past = table.filter(pl.col("date") <= cutoff).select("a", "b", "c").to_numpy()
                past = past[:, series].sum(axis=1)
                scaled += error.sum() / np.abs(past[7:] - past[:-7]).mean()
        cells = 5 * 2 * len(sums[row["level"]])
        assert row["WAPE reconciled"] == pytest.approx(wrong / size)
        assert row["MASE reconciled"] == pytest.approx(scaled / cells)
    assert [row["WAPE base"] is None for row in rows] == [True, True, False]


def test_a_base_forecast_is_scored_beside_its_reconciliation_and_a_missing_truth_of_a_sum_is_not():
    found = fc.backtest(sales(), 5, windows=2, fit=False, quiet=True, hierarchy="region")
    levels = found.by_level
    assert levels.null_count().sum_horizontal()[0] == 0
    assert (levels["WAPE base"] != levels["WAPE reconciled"]).all()
    forecast = found.forecasts[0]
    actual = forecast.actual.copy()
    actual[0, 2] = np.nan
    columns = score_levels(
        [replace(forecast, actual=actual)], HierarchyRequest.of("region", "bottom-up")
    )
    total = np.delete(forecast.actual[:, :, 0].sum(axis=0), 2)
    error = np.abs(total - np.delete(forecast.median[:, :, 0].sum(axis=0), 2))
    assert columns["WAPE reconciled"][0] == pytest.approx(error.sum() / total.sum())


@pytest.mark.long
def test_the_shell_prints_levels_and_refuses_what_is_no_hierarchy(tmp_path):
    sales().write_csv(tmp_path / "sales.csv")
    words = ["backtest", str(tmp_path / "sales.csv"), "--horizon", "5", "--windows", "2", "--no-fit"]
    result = CliRunner().invoke(app, [*words, "--hierarchy", "region/store"])
    assert result.exit_code == 0 and "WAPE reconciled" in result.output
    for more, said in (
        (["--hierarchy", "regoin"], "did you mean 'region'"),
        (["--reconcile", "wls"], "give `hierarchy` too"),
        (["--hierarchy", "region", "--only", "a"], "`only`: a hierarchy"),
    ):
        result = CliRunner().invoke(app, [*words, *more])
        assert result.exit_code and said in f"{result.output}{result.exception}"
    with pytest.raises(fc.ConfigError, match="by_level: expected a backtest with a hierarchy"):
        _ = fc.backtest(sales(), 5, windows=2, fit=False, quiet=True).by_level


@pytest.mark.slow
def test_a_leaderboard_scores_a_hierarchy_and_asked_levels_too():
    options = {"windows": 1, "experts": ["naive", "drift"], "quiet": True, "tracking": False}
    board = fc.compare(sales(), 5, hierarchy="region", reconcile="wls", levels=95, **options)
    assert board.by_level["level"].to_list() == ["total", "region", "store"]
    assert "coverage_95" in board.summary.columns
