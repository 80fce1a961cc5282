"""Forecasts of any origin: scored on the same cells as a model, beside it or alone."""

from datetime import date, timedelta
from functools import cache

import numpy as np
import polars as pl
import pytest
from evaluation import textbook_metrics as textbook
from forecast import tiny

import forecaster as fc
from forecaster.evaluation.comparison import EXPERT_OF, MODEL

LEVELS = [f"q0.{number}" for number in range(1, 10)]


@cache
def _backtest():
    return fc.backtest(tiny.plain(), 7, windows=3, fit=False, tracking=False, quiet=True)


def _rows(model=MODEL, **columns):
    """The rows of a model of the backtest, as a stranger has them."""
    rows = _backtest().frame.filter(model=model)
    return rows.select("store", "date", "cutoff", "forecast", *LEVELS).with_columns(**columns)


def _beside(**others):
    return fc.backtest(tiny.plain(), 7, windows=3, fit=False, tracking=False, quiet=True, others=others)


@pytest.mark.long
def test_the_rows_of_models_given_back_have_their_scores():
    models = {"one": "seasonal naive", "two": "ETS"}
    backtest = _beside(**{name: _rows(model) for name, model in models.items()})
    assert list(backtest.scores) == [MODEL, *list(EXPERT_OF)[:4], "one", "two"]
    for name, model in models.items():
        wanted, found = backtest.scores[model], backtest.scores[name]
        assert found == pytest.approx(wanted, nan_ok=True, rel=1e-9)
    assert backtest.scores[MODEL] == pytest.approx(_backtest().scores[MODEL], nan_ok=True, rel=0)
    said = [f"{name} forecasts 63 of 63 cells" for name in models]
    assert [finding.text for finding in backtest.findings][:2] == said


@pytest.mark.long
def test_lead_gives_the_cutoff_and_a_band_is_two_quantiles():
    rows = _rows(lead=(pl.col("date") - pl.col("cutoff")).dt.total_days())
    rows = rows.rename({"q0.1": "lo-80", "q0.9": "hi-80"}).drop("cutoff", *LEVELS[1:-1])
    backtest = _beside(mine=rows)
    mine, model = backtest.scores["mine"], backtest.scores[MODEL]
    for name in ("MAE", "MASE", "RMSSE", "WAPE", "bias", "coverage_80", "interval_score_80"):
        assert mine[name] == model[name], name
    assert np.isnan([mine[name] for name in ("WQL", "SQL", "skill")]).all()
    frame = backtest.frame.filter(model="mine")
    assert frame["q0.5"].equals(frame["forecast"]) and frame["q0.2"].null_count() == 63
    assert set(frame["status"]) == {"ok"}


def test_a_point_forecast_has_no_loss_of_quantiles_coverage_or_verdict():
    mine = _beside(mine=_rows().drop(LEVELS)).scores["mine"]
    absent = {name for name, score in mine.items() if np.isnan(score)}
    assert absent == {
        *("WQL", "SQL", "CRPS_quantiles", "coverage_80", "width_80", "interval_score_80"),
        *("skill", "skill_low", "skill_high"),
    }


@pytest.mark.long
def test_asked_levels_are_scored_where_forecasts_have_them_or_the_levels_they_follow_from():
    options = {"windows": 3, "fit": False, "tracking": False, "quiet": True, "levels": [95]}
    bands = {"lo-95": pl.col("q0.1") - 0.01, "hi-95": pl.col("q0.9") + 0.01}
    others = {"all": _rows(**bands), "alone": _rows(**bands).drop(LEVELS)}
    without = {"mine": _rows(), "point": _rows().drop(LEVELS)}
    backtest = fc.backtest(tiny.plain(), 7, others=others | without, **options)
    scores = backtest.scores
    assert scores["mine"]["coverage_95"] > 0.8 and np.isnan(scores["point"]["coverage_95"])
    actual = backtest.frame.filter(model=MODEL)["actual"]
    inside = actual.is_between(others["all"]["lo-95"], others["all"]["hi-95"]).mean()
    for name, rows in others.items():
        assert backtest.scores[name]["coverage_95"] == pytest.approx(inside) and inside < 0.9
        found = backtest.frame.filter(model=name).select("lo-95", "hi-95")
        np.testing.assert_allclose(found, rows.select("lo-95", "hi-95"))


def test_a_cell_without_one_of_the_quantiles_counts_as_one_without_a_forecast():
    rows = _rows().with_columns(
        pl.when(pl.int_range(63) == 3).then(None).otherwise("q0.3").alias("q0.3")
    )
    backtest = _beside(mine=rows)
    assert backtest.scored == 62 and backtest.findings[0].text == "mine forecasts 62 of 63 cells"


def test_all_models_are_scored_on_the_cells_that_all_forecast_and_the_counts_are_said():
    some = _rows().filter((pl.col("store") != "b") | (pl.col("date") != tiny.day(95)))
    far = some.head(2).with_columns(store=pl.lit("x"))
    backtest = fc.backtest(
        tiny.plain(), 7, windows=3, fit=False, tracking=False, others={"mine": pl.concat([some, far])}
    )
    assert (backtest.scored, backtest.unscored) == (62, 1)
    assert {int(one.windows["cells"].sum()) for one in backtest.tallies.values()} == {62}
    said = "mine forecasts 62 of 63 cells; 2 of its rows are of series that are not scored"
    assert backtest.findings[0].text == said
    row = backtest.frame.filter(model="mine", store="b", date=tiny.day(95))
    assert row["forecast"].to_list() == [None]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows.drop("store"), "no column 'store'"),
        (lambda rows: rows.drop("cutoff"), "no column 'cutoff'"),
        (lambda rows: rows.rename({"forecast": "yhat"}), "no column 'forecast'"),
        (lambda rows: rows.with_columns(store=pl.lit("x")), r"none of its 63 rows is of a series"),
        (lambda rows: pl.concat([rows, rows.head(1)]), "each series, channel, cutoff and time once"),
        (lambda rows: rows.with_columns(cutoff="date"), "a time after the cutoff"),
        (lambda rows: rows.with_columns(lead=pl.lit(9)), "as many steps as `lead` says"),
        (lambda rows: rows.with_columns(lead=pl.lit(0.5)), "whole steps from 1"),
        (lambda rows: rows.with_columns(pl.lit("many").alias("q0.1")), "expected numbers"),
        (
            lambda rows: rows.with_columns(pl.col("q0.1").alias("lo-80")),
            "columns 'q0.1' and 'lo-80' are one quantile",
        ),
        (
            lambda rows: rows.with_columns(channel=pl.lit("visitors")),
            "none of its 63 rows is of a series",
        ),
        (lambda rows: rows.rename({"q0.1": "q0.9", "q0.9": "q0.1"}), "quantiles that rise"),
        (
            lambda rows: rows.with_columns(pl.col("cutoff", "date") - timedelta(1)),
            "none of its cutoffs is scored: found 2024-03-18 to 2024-04-01, expected some of 2024-03-19",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused_with_what_was_found(change, said):
    with pytest.raises(fc.DataError, match=said):
        _beside(mine=change(_rows()))


def test_a_name_that_is_taken_is_refused(tmp_path):
    _rows().write_csv(tmp_path / "ETS.csv")
    for others in (tmp_path / "ETS.csv", {"forecaster": _rows()}, {"expert theta": _rows()}):
        with pytest.raises(fc.ConfigError, match="that row is there already"):
            fc.backtest(tiny.plain(), 7, windows=3, fit=False, tracking=False, others=others)


def test_files_are_rows_by_their_names_in_the_shell(tmp_path, shell):
    table = tmp_path / "shop.csv"
    tiny.plain().write_csv(table)
    _rows().write_csv(tmp_path / "mine.csv")
    _rows("naive").write_parquet(tmp_path / "AutoX.parquet")
    others = f"{tmp_path / 'mine.csv'},{tmp_path / 'AutoX.parquet'}"
    options = ["--horizon", "7", "--windows", "3", "--no-fit", "--no-tracking", "--others", others]
    printed = shell("backtest", str(table), *options).out
    rows = [line.split()[0] for line in printed.splitlines() if line and line[0].isalpha()]
    assert {"mine", "AutoX"} <= {*rows}
    assert "AutoX forecasts 63 of 63 cells" in printed


# Without a model


def test_scores_of_any_forecasts_are_those_of_the_textbook_by_a_slow_loop():
    days = [date(2024, 1, 1) + timedelta(number) for number in range(30)]
    value = np.random.default_rng(0).normal(50, 9, 30)
    actuals = pl.DataFrame({"day": days, "y": value})
    cutoffs = (19, 24)
    rows = [(days[c], days[c + lead], value[c] + lead) for c in cutoffs for lead in (1, 2, 3)]
    forecasts = pl.DataFrame(rows, schema=["cutoff", "day", "forecast"], orient="row")
    found = fc.score(forecasts, actuals, season=7)
    y = np.array([[value[c + lead] for lead in (1, 2, 3)] for c in cutoffs])
    f = np.array([[value[c] + lead for lead in (1, 2, 3)] for c in cutoffs])
    scales = np.array([textbook.mase_scale(value[: c + 1], 7) for c in cutoffs])
    steps = np.array([textbook.rmsse_scale(value[: c + 1]) for c in cutoffs])
    mine = found.scores[MODEL]
    assert mine["MAE"] == pytest.approx(textbook.mae(y, f))
    assert mine["bias"] == pytest.approx(textbook.bias(y, f))
    assert mine["WAPE"] == pytest.approx(textbook.wape(y, f))
    assert mine["MASE"] == pytest.approx(textbook.mase(y, f, scales))
    assert mine["RMSSE"] == pytest.approx(textbook.rmsse(y, f, steps))
    assert np.isnan(mine["WQL"]) and found.verdict.startswith("cannot be compared")
    assert found.scores["seasonal naive"]["WQL"] > 0 and found.scored == 6
    assert found.frame.filter(model=MODEL)["actual"].to_list() == pytest.approx(y.ravel().tolist())


@pytest.mark.parametrize("kind", ["frame", "files", "names"])
def test_rows_of_a_backtest_have_their_scores_without_a_model_too(tmp_path, kind):
    forecasts = _rows()
    if kind == "files":
        _rows().write_csv(tmp_path / "ours.csv")
        _rows("naive").write_csv(tmp_path / "theirs.csv")
        forecasts = [tmp_path / "ours.csv", tmp_path / "theirs.csv"]
    elif kind == "names":
        forecasts = {"theirs": _rows("naive"), MODEL: _rows()}
    found = fc.score(forecasts, tiny.plain())
    wanted = _backtest().scores
    names = {MODEL: MODEL, "seasonal naive": "seasonal naive", "theirs": "naive"}
    assert {*found.scores} == {*names} - ({"theirs"} if kind == "frame" else set())
    for name in found.scores:
        assert found.scores[name] == pytest.approx(wanted[names[name]], nan_ok=True), name
    assert found.summary.height == len(found.scores)


def test_scoring_without_a_name_or_in_vain_is_refused():
    with pytest.raises(fc.ConfigError, match="expected one named forecaster, found a"):
        fc.score({"a": _rows()}, tiny.plain())
    with pytest.raises(fc.DataError, match="no column 'forecast'"):
        fc.score(tiny.plain().with_columns(cutoff="date"), tiny.plain())
    with pytest.raises(fc.DataError, match="b forecasts 0 of 63 cells"):
        later = _rows().with_columns(pl.col("cutoff", "date") - timedelta(1))
        fc.score({MODEL: _rows(), "b": later}, tiny.plain())
    with pytest.raises(fc.DataError, match="none of its 63 rows has an actual"):
        fc.score(_rows().with_columns(pl.col("cutoff", "date") + timedelta(400)), tiny.plain())
    with pytest.raises(fc.ConfigError, match="forecasts: expected frames by name"):
        fc.score([_rows(), _rows()], tiny.plain())


# What is fitted


@pytest.mark.long
@pytest.mark.parametrize(("refit", "fits"), [(2, 2), ("each", 3)])
def test_a_model_is_fitted_again_every_so_many_windows(refit, fits, capsys):
    settings = {"experts": "naive", "config": {"fit": {"validation": None}}, "tracking": False}
    backtest = fc.backtest(tiny.plain(), 7, windows=3, refit=refit, **settings)
    lines = [line for line in capsys.readouterr().out.splitlines() if "weights fitted until" in line]
    assert len(lines) == fits and len(backtest.forecasts) == 3
    if refit == 2:
        assert lines == [
            "2 cutoffs from 2024-03-19 to 2024-03-26: weights fitted until 2024-03-19",
            "cutoff 2024-04-02: weights fitted until 2024-04-02",
        ]


@pytest.mark.long
def test_a_gap_keeps_rows_before_the_cutoff_out_of_the_fit_alone(capsys):
    moved = tiny.plain().with_columns(
        sales=pl.when(pl.col("date").is_between(tiny.day(88), tiny.day(92)))
        .then(0.0)
        .otherwise("sales")
    )
    options = {"windows": 1, "tracking": False, "experts": "linear"}
    found = [fc.backtest(table, 7, gap=5, **options) for table in (tiny.plain(), moved)]
    assert "weights fitted until 2024-03-28" in capsys.readouterr().out
    scales = [one.report_context.artifact.trained_until for one in found]
    assert scales[0] == scales[1]
    states = [one.report_context.artifact.ensemble.state_dict() for one in found]
    assert all((states[0][name] == states[1][name]).all() for name in states[0])
    medians = [one.forecasts[0].median for one in found]
    assert not np.allclose(*medians)  # which read the history up to the cutoff
    with pytest.raises(fc.ConfigError, match="gap"):
        fc.backtest(tiny.plain(), 7, gap=-1, tracking=False)
    with pytest.raises(fc.ConfigError, match="a backtest without a fit"):
        fc.backtest(tiny.plain(), 7, gap=1, fit=False, tracking=False)


def test_actuals_without_their_history_are_refused_with_what_is_missing():
    first = _backtest().forecasts[0]
    begin = first.panel.calendar.text(int(first.cutoff.max()))
    late = tiny.plain().filter(pl.col("date") > date.fromisoformat(begin))
    rows = _rows().filter(pl.col("cutoff") == date.fromisoformat(begin))
    with pytest.raises(fc.DataError, match=f"with the history before the cutoff {begin}, found none"):
        fc.score(rows, late)
    assert fc.score(rows, tiny.plain()).scored == 21
