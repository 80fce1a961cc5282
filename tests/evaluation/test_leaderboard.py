"""Leaderboards: each row is what a fit of its own forecasts, all over the same cells, ranked and drawn."""

from dataclasses import replace
from functools import cache
from io import StringIO

import numpy as np
import polars as pl
import pytest
from evaluation.report_page import Read
from forecast import tiny

import forecaster as fc
from forecaster.api.scores import _presets
from forecaster.config import config_from
from forecaster.evaluation.comparison import EXPERT_OF, MODEL, NAIVE
from forecaster.evaluation.report import render_report
from forecaster.fitting.experts.pool import fit_experts
from forecaster.fitting.fit import resolve
from forecaster.forecast.predictor import Predictor
from forecaster.panel.build import open_panel
from forecaster.runs.console import Screen

CONFIG = tiny.config_with(experts=[])
OTHER = tiny.config_with(experts=["naive"], quantile_levels=[0.5])
PRESET = "preset other"


@cache
def _table():
    gone = (pl.col("store") == "b") & pl.col("date").is_between(tiny.day(94), tiny.day(95))
    return tiny.plain().filter(~gone)


@cache
def _board():
    return fc.compare(_table(), 7, windows=2, config=CONFIG, presets={"other": OTHER}, quiet=True)


def _forecasts(backtest, model, column="forecast"):
    rows = backtest.frame.filter(model=model).sort("cutoff", "store", "lead")
    return rows[column].to_numpy()


def _alone(**options):
    return fc.backtest(_table(), 7, windows=2, quiet=True, **{"config": CONFIG} | options)


@pytest.mark.long
def test_settings_forecast_as_in_a_backtest_of_their_own():
    board, alone = _board(), _alone()
    for column in ("forecast", "q0.1", "q0.9"):
        np.testing.assert_array_equal(
            _forecasts(board, MODEL, column), _forecasts(alone, MODEL, column)
        )
    # All rows have the quantiles of the config.
    alone = _alone(config=tiny.config_with(experts=["naive"]))
    np.testing.assert_array_equal(_forecasts(board, PRESET, "q0.1"), _forecasts(alone, MODEL, "q0.1"))


@pytest.mark.long
def test_experts_forecast_as_in_a_fit_of_their_own():
    board = _board()
    found = _forecasts(board, "expert theta")
    np.testing.assert_allclose(found, _forecasts(_alone(experts="theta"), MODEL), rtol=1e-5)
    config = config_from(None, 7, {})
    panel = open_panel(_table(), config.data)
    cutoffs = [int(one.cutoff[0]) for one in board.forecasts]
    seen = panel.until(cutoffs[0])
    plan, split = resolve(seen, config)
    for only in (None, "seasonal_mean", "theta"):
        predictor = Predictor(fit_experts(seen, plan, split, only))
        for cutoff, beside in zip(cutoffs, board.baselines, strict=True):
            found = beside[f"expert {only}" if only else "experts"]
            np.testing.assert_allclose(found, predictor.forecast_at(panel, cutoff).quantiles, rtol=1e-6)


@pytest.mark.long
def test_all_rows_are_scored_over_the_same_cells_and_ranked_by_wql():
    board, table = _board(), _board().summary
    experts = [name for name in board.scores if name.startswith("expert ")]
    assert {"expert theta", "expert growing_season"} <= {*experts}
    assert not {f"expert {name}" for name in EXPERT_OF.values()} & {*experts}
    assert {*board.scores} == {MODEL, PRESET, "no fit", "experts", *experts, *EXPERT_OF}
    assert (board.scored, board.unscored) == (2 * 3 * 7 - 2, 2)
    for name, one in board.tallies.items():
        cells = board.tallies[MODEL].windows["cells"]
        np.testing.assert_array_equal(one.windows["cells"], cells, err_msg=name)
    assert table.columns == ["model", "WQL", "MASE", "coverage_80", "seconds", "excess", "low", "high"]
    assert table["model"].to_list() == sorted(board.scores, key=lambda name: board.scores[name]["WQL"])
    wql = board.scores[MODEL]["WQL"]
    for name, own, mase, inside, seconds, excess, low, high in table.iter_rows():
        scores = board.scores[name]
        assert (own, mase, inside) == (scores["WQL"], scores["MASE"], scores["coverage_80"])
        assert seconds > 0 and excess == pytest.approx(own / wql - 1)
        gain, *bounds = board.skill(name, MODEL)
        assert (excess, high, low) == pytest.approx((-gain, *(-bound for bound in bounds)), nan_ok=True)
    seconds = dict(zip(table["model"], table["seconds"], strict=True))
    assert seconds["expert theta"] > seconds["seasonal naive"]


def test_a_leaderboard_fits_a_narrow_console_a_picture_and_a_page(undrawn):
    board, console = _board(), Screen(width=80, file=StringIO())
    console.print_summary(board)
    lines = console.file.getvalue().splitlines()
    assert lines[0].split() == board.summary.columns
    for name, line in zip(board.excess, lines[1:], strict=False):
        assert line.startswith(name) and len(line) <= 80 and "…" not in line
    (axis,) = board.plot().axes
    assert [label.get_text() for label in axis.get_yticklabels()] == list(board.excess)
    dots = axis.collections[1].get_offsets()[:, 0]
    np.testing.assert_allclose(dots, [board.scores[name]["WQL"] for name in board.excess])
    (axis,) = board.plot(only=NAIVE).axes
    assert {label.get_text() for label in axis.get_yticklabels()} == {MODEL, NAIVE}
    page = render_report(board)
    ranked, every = Read(page).tables[:2]
    assert ranked[0] == ["model", "WQL", "over forecaster", "MASE", "coverage 80 %", "seconds"]
    for table in (ranked, every):
        assert [row[0] for row in table[1:]] == list(board.excess)
    assert len(every[0]) > 10 and "WQL of all models" in page


def test_rows_that_are_equal_because_the_network_has_no_weight_are_said_to_be():
    board, console = _board(), Screen(width=80, file=StringIO())
    same = replace(board, scores=board.scores | {"experts": board.scores[MODEL]})
    context = same.report_context
    artifact = replace(context.artifact, metrics=context.artifact.metrics | {"network_weight": 0.0})
    same = replace(same, report_context=replace(context, artifact=artifact))
    console.print_summary(same)
    assert "network weight 0 %: forecaster = experts\n" in console.file.getvalue()
    console.print_summary(replace(board, report_context=same.report_context))
    assert console.file.getvalue().count("network weight") == 1


def test_presets_of_one_name_are_refused():
    with pytest.raises(fc.ConfigError, match=r"presets \['a/x.yaml', 'b/x.yaml'\]: expected a name"):
        fc.compare(_table(), 7, config=CONFIG, presets=["a/x.yaml", "b/x.yaml"], quiet=True)


def test_a_bare_word_names_a_preset_and_all_else_a_file(tmp_path, monkeypatch):
    tiny.write_tiny(tmp_path / "long.yaml")
    (tmp_path / "bare").write_text("fit: {steps: 3}")
    monkeypatch.chdir(tmp_path)
    settings = config_from(CONFIG, 7, {})
    for given, steps, attention in (
        ("long", 300, "local"),
        ("long.yaml", 2, "full"),
        ("./bare", 3, "full"),
    ):
        (found,) = _presets([given], settings).values()
        assert (found.fit.steps, found.model.attention, found.horizon) == (steps, attention, 7)
    with pytest.raises(fc.ConfigError, match=r"preset 'lnog': expected .*, did you mean 'long'\?"):
        fc.compare(_table(), 7, config=CONFIG, presets=["lnog"], quiet=True)


def test_models_that_give_points_alone_are_ranked_by_mase_and_it_is_said():
    board = _board()
    points = board.scores["naive"] | {"WQL": np.nan, "MASE": 0.01}
    board = replace(board, scores=board.scores | {"naive": points})
    assert board.ranked_by == "MASE" and next(iter(board.excess)) == "naive"
    mase = [board.scores[name]["MASE"] for name in board.excess]
    assert mase == sorted(mase)
    excess = {name: one[0] for name, one in board.excess.items()}
    mine = board.scores[MODEL]["MASE"]
    assert excess["experts"] == pytest.approx(board.scores["experts"]["MASE"] / mine - 1)
    console = Screen(width=80, file=StringIO())
    console.print_summary(board)
    said = console.file.getvalue()
    assert "ranked by MASE" in said and said.splitlines()[1].startswith("naive")
    assert "Models by MASE" in render_report(board)
    assert _board().ranked_by == "WQL" and not any(one.rule == "ranking" for one in _board().findings)


@pytest.mark.long
def test_no_row_is_there_twice_and_shared_experts_have_the_seconds_that_solved_them():
    rng = np.random.default_rng(0)
    days = pl.date_range(tiny.day(0), tiny.day(259), eager=True)
    table = pl.DataFrame({"day": days, "y": rng.normal(10, 1, 260), "noise": rng.normal(size=260)})
    options = {"known": ["noise"], "tracking": False, "quiet": True, "config": {"fit": {"steps": 2}}}
    board = fc.compare(table, 7, windows=2, **options)
    scores = [str(one) for name, one in board.scores.items() if name not in (MODEL, "experts")]
    assert len(set(scores)) == len(scores) and "ridge" in board.scores
    # Of the same fit.
    assert board.seconds["ridge"] > 0.05 and board.seconds["experts"] > 0.05


@pytest.mark.parametrize(("seconds", "said"), [(0.043, "0.04"), (3.21, "3.2"), (125.34, "125.3")])
def test_seconds_are_never_printed_as_none(seconds, said):
    board, console = _board(), Screen(width=80, file=StringIO())
    console.print_summary(replace(board, seconds=board.seconds | {NAIVE: seconds}))
    (line,) = [one for one in console.file.getvalue().splitlines() if one.startswith("seasonal naive ")]
    assert line.split()[5] == said
