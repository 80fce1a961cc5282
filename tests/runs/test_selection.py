"""A fit that selects its model: the default stays unless a leaderboard shows a better one."""

import numpy as np
import polars as pl
import pytest
from forecast import tiny

import forecaster as fc
from forecaster.runs import selection

OPTIONS = {"horizon": 7, "config": tiny.config_with(experts=[]), "select": True, "tracking": False}


def _said(capsys):
    (line,) = [one for one in capsys.readouterr().out.splitlines() if one.startswith("select: ")]
    return line


@pytest.mark.long
def test_a_better_model_replaces_a_default_that_five_steps_have_taught_nothing(capsys):
    model = fc.fit(tiny.plain(), **OPTIONS)
    line = _said(capsys)
    assert " replaces the default: its WQL is " in line and "% lower on 6 windows (90 %" in line
    assert " s, the default in " in line
    # The same leaderboard, by hand.
    board = fc.compare(tiny.plain(), 7, windows=6, config=OPTIONS["config"], tracking=False, quiet=True)
    best = min(
        (name for name in board.scores if name != "forecaster"),
        key=lambda name: board.scores[name]["WQL"],
    )
    assert line.startswith(f"select: {best} replaces")
    plan = model.artifact.plan
    assert plan.model.pool.experts and model.predict(tiny.plain()).frame["forecast"].null_count() == 0


@pytest.mark.parametrize(
    "best", ["no fit", "experts", pytest.param("expert theta", marks=pytest.mark.slow), "ETS"]
)
def test_the_winner_is_what_its_own_command_makes(best, monkeypatch, tmp_path):
    chosen = selection.Selection(best, selection._made(best, fc.Config(horizon=7)), "select: so")
    monkeypatch.setattr(selection, "select", lambda *given: chosen)
    found = fc.fit(tiny.plain(), 7, select=True, tracking=False, quiet=True, out=tmp_path / "model")
    if best == "no fit":
        wanted = fc.predict(tiny.plain(), 7)
    else:
        own = {"config": {"fit": {"validation": None}}} if best == "experts" else {}
        names = {"expert theta": "theta", "ETS": "ets"}
        own |= {"experts": names[best]} if best in names else {}
        wanted = fc.fit(tiny.plain(), 7, tracking=False, quiet=True, **own).predict(tiny.plain())
    for model in (found, fc.load(tmp_path / "model")):
        np.testing.assert_array_equal(model.predict(tiny.plain()).quantiles, wanted.quantiles)
        assert len(model.predict(tiny.plain(), samples=2).samples)


@pytest.mark.long
def test_the_default_stays_where_the_interval_of_the_difference_holds_0(capsys):
    noise = tiny.plain().with_columns(sales=pl.Series(np.random.default_rng(1).normal(10, 1, 300)))
    model = fc.fit(noise, **OPTIONS | {"config": tiny.TINY})
    assert "does not replace the default: its WQL is " in _said(capsys)
    assert len(model.artifact.plan.model.pool.experts) > 5


@pytest.mark.parametrize("given", [{"experts": "naive"}, {"preset": "long"}, {"label": "store"}])
def test_settings_of_one_model_are_refused_beside_a_selection(given):
    with pytest.raises(fc.ConfigError, match=r"a fit that selects its model"):
        fc.fit(tiny.plain(), **OPTIONS | given)


def test_a_table_too_short_for_the_windows_is_refused_with_what_to_do():
    with pytest.raises(
        fc.DataError,
        match=r"`select` compares models on 6 windows of horizon 7 .* or leave out `select`",
    ):
        fc.fit(tiny.plain(30), **OPTIONS)


def test_the_verdict_names_the_command_that_makes_the_better_model():
    backtest = fc.backtest(
        tiny.plain(), 7, windows=2, config=OPTIONS["config"], tracking=False, quiet=True
    )
    ranked = sorted(backtest.scores, key=lambda name: backtest.scores[name]["WQL"])
    experts = {"ridge": "linear", "ETS": "ets", "seasonal naive": "seasonal_naive"}
    command = f"fc.fit(data, 7, experts={experts[ranked[0]]!r})"
    assert f"; {ranked[0]} is made by: {command}" in backtest.verdict


@pytest.mark.long
def test_the_command_of_the_better_model_reads_the_table_as_the_backtest_did(tmp_path, shell):
    path = tmp_path / "shop.csv"
    tiny.shop().rename({"date": "day"}).with_columns(booked=pl.col("day")).write_csv(path)
    words = ["--target", "visitors", "--time", "day", "--series", "store", "--known", "price"]
    options = [
        *words,
        "--set",
        "target.lower=0",
        "--experts",
        "drift",
        "--horizon",
        "7",
        "--windows",
        "2",
    ]
    printed = shell("backtest", path, *options, "--no-tracking").out
    command = printed.split("is made by: forecaster ")[1].split("\n")[0].split()
    assert command[:1] == ["fit"] and "--lower" in command
    command[command.index("PATH")] = str(tmp_path / "model")
    assert shell(*command, "--no-tracking").code == 0
    schema = fc.load(tmp_path / "model").artifact.schema
    assert (schema.target, schema.time, schema.known) == (("visitors",), "day", ("price",))
