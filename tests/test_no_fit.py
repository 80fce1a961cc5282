"""Forecasts without a fit: from a table alone, with the laws and the columns of those of a fitted model."""

import shutil
from datetime import date, timedelta
from functools import cache
from pathlib import Path

import holidays
import numpy as np
import polars as pl
import pytest
from forecast import tiny

import forecaster as fc
from forecaster.fitting.fit import fit_panel
from forecaster.fitting.no_fit import unfitted
from forecaster.forecast import runner

CUTOFF = tiny.day(79)
AFTER = pl.col("date") > CUTOFF


def _signed(days=120):
    """Two targets below and above zero, with weekly seasons."""
    rng = np.random.default_rng(1)
    step = np.arange(days)
    values = {name: 4 * np.sin(2 * np.pi * step / 7) + rng.normal(size=days) for name in ("up", "down")}
    return pl.DataFrame({"date": [tiny.day(n) for n in range(days)], **values})


def _findings(forecast):
    return " ".join(finding.text for finding in forecast.findings)


def test_the_columns_are_those_of_a_fitted_model():
    fitted = tiny.plain_model().predict(tiny.plain())
    forecast = fc.predict(tiny.plain(), 7)
    assert forecast.frame.schema == fitted.frame.schema
    keys = ["store", "cutoff", "date", "lead", "channel", "status"]
    assert forecast.frame.select(keys).equals(fitted.frame.select(keys))
    levels = forecast.frame.select(pl.selectors.matches(r"^q0\.\d$")).to_numpy()
    assert (np.diff(levels, axis=1) > 0).all()
    assert "18 experts" in _findings(forecast) and "season assumed: 7 steps" in _findings(forecast)


def test_nothing_is_trained_solved_or_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("forecaster.runs.tracking.open_run", None)
    artifact = unfitted(fc.convert(tiny.plain(), tmp_path / "store", quiet=True), _config())
    (network,) = artifact.ensemble.networks
    assert network.experts.linear is None and network.experts.arx is None
    assert float(network.network_weight.max()) == 0
    before = tiny.tree(tmp_path)
    fc.predict("store", 7)
    fc.detect("store")
    fc.explain("store", 7, only="a")
    assert tiny.tree(tmp_path) == before


def _config():
    from forecaster.config import config_from

    return config_from(None, 7, {})


def test_the_shell_writes_what_python_returns(tmp_path, monkeypatch, shell):
    monkeypatch.chdir(tmp_path)
    tiny.shop().write_csv("shop.csv")
    tiny.prices().write_csv("prices.csv")
    options = {"lower": 9.5, "integer": True, "only": ["b", "a"]}
    fc.predict("shop.csv", 7, future="prices.csv", **options).write("python.csv")
    words = ["shop.csv", "--horizon", 7, "--future", "prices.csv", "--lower", 9.5, "--integer"]
    done = shell("predict", *words, "--only", "b,a", "--out", "shell.csv")
    assert done.code == 0
    assert Path("shell.csv").read_bytes() == Path("python.csv").read_bytes()
    (line,) = (line for line in done.err.splitlines() if line.startswith("no fit: "))
    assert "effects estimated on these rows: price" in line and "not read: visitors" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "prices.csv",
        "python.csv",
        "shell.csv",
        "shop.csv",
    ]


def test_every_other_verb_reads_a_table_alone(tmp_path, monkeypatch, shell):
    monkeypatch.chdir(tmp_path)
    tiny.plain().write_csv("plain.csv")
    assert shell("detect", "plain.csv", "--out", "anomalies.csv").code == 0
    fc.detect("plain.csv").write("python.csv")
    assert Path("anomalies.csv").read_bytes() == Path("python.csv").read_bytes()
    done = shell("explain", "plain.csv", "--horizon", 7, "--only", "a", "--out", "why.html")
    assert done.code == 0 and "network weight 0 %" in Path("why.html").read_text()
    done = shell("backtest", "plain.csv", "--horizon", 7, "--windows", 1, "--no-fit")
    assert done.code == 0 and "forecaster is undecided against seasonal naive" in " ".join(
        done.out.split()
    )


@pytest.mark.parametrize("known", [(), ("price",)], ids=["plain", "known"])
def test_it_is_the_forecast_of_a_backtest_at_that_cutoff(known):
    table = tiny.shop().select("store", "date", "sales", *known)
    scores = fc.backtest(table, 7, windows=2, fit=False, known=known, quiet=True)
    assert list(scores.scores) == ["forecaster", "seasonal naive", "naive", "drift", "ETS"]
    for number, own in enumerate(scores.forecasts):
        cutoff = tiny.day(99 - 7 * (2 - number))
        forecast = fc.predict(table, 7, cutoff=cutoff, known=known)
        assert tiny.bits(forecast.quantiles) == tiny.bits(own.quantiles)
        assert (forecast.time == own.time).all()


@pytest.mark.parametrize("known", [(), ("price",)], ids=["plain", "known"])
def test_nothing_after_the_cutoff_is_read(known):
    table = tiny.shop().select("store", "date", "sales", "visitors", *known)
    moved = table.with_columns(
        pl.when(AFTER).then(pl.col(name) * -1e6).otherwise(name).alias(name)
        for name in ("sales", "visitors")
    )
    gone = table.with_columns(
        pl.when(~AFTER).then(pl.col(name)).alias(name) for name in ("sales", "visitors")
    )
    first, *others = (fc.predict(one, 7, cutoff=CUTOFF, known=known) for one in (table, moved, gone))
    for other in others:
        assert tiny.bits(other.quantiles) == tiny.bits(first.quantiles)


def test_order_and_batch_change_nothing(monkeypatch):
    table = tiny.shop(stores=tuple("abcdefg")).select("store", "date", "sales")
    first = fc.predict(table, 7)
    shuffled = fc.predict(table.sample(fraction=1.0, shuffle=True, seed=2), 7)
    assert tiny.bits(shuffled.quantiles) == tiny.bits(first.quantiles)
    alone = fc.predict(table, 7, only=["f"])
    np.testing.assert_allclose(alone.quantiles[0], first.quantiles[5], rtol=1e-5)
    monkeypatch.setattr(runner, "_BATCH", 2)
    np.testing.assert_allclose(fc.predict(table, 7).quantiles, first.quantiles, rtol=1e-5)


SALES = pl.col("sales")


def _with_series(table, values):
    days = table.filter(pl.col("store") == "a")["date"]
    return pl.concat([table, pl.DataFrame({"store": "zz", "date": days, "sales": values(len(days))})])


def _with_later_rows(table):
    later = [tiny.day(100 + step) for step in range(5)]
    return pl.concat([table, pl.DataFrame({"store": "a", "date": later, "sales": [1e6] * 5})])


LACKING = (pl.col("store") == "b") & pl.col("date").is_in([tiny.day(step) for step in (40, 41, 90)])
UNCHANGED = {
    "rows in reverse order": lambda table: table.reverse(),
    "scaled by 1e-20": lambda table: table.with_columns(SALES * 1e-20),
    "scaled by 1e25": lambda table: table.with_columns(SALES * 1e25),
    "shifted to 1e9": lambda table: table.with_columns(SALES + 1e9),
    "an unrelated series": lambda table: _with_series(
        table, lambda n: 1e4 + 1e3 * np.cos(np.arange(n))
    ),
    "counts, a tenth of them 0": lambda table: _with_series(table, lambda n: np.arange(n) % 10.0),
    "one series alone": lambda table: table.filter(pl.col("store") == "b"),
    "rows after the cutoff": _with_later_rows,
    "missing rows, not cells": lambda table: table.filter(~LACKING),
}


OF_OTHERS = {"an unrelated series", "counts, a tenth of them 0", "one series alone"}


def _with_few_rows():
    few = pl.DataFrame({"store": "few", "date": [tiny.day(98), tiny.day(99)], "sales": [9.0, 11.0]})
    return pl.concat([tiny.plain(), few])


@cache
def _unchanged():
    return fc.predict(_with_few_rows(), 7, cutoff=tiny.day(99))


@pytest.mark.parametrize("change", UNCHANGED)
def test_what_says_nothing_about_a_series_leaves_its_forecast_to_1e_7(change):
    """Three series share what weekdays are; other series change that a little."""
    table = _with_few_rows()
    if change == "missing rows, not cells":
        table = table.with_columns(pl.when(~LACKING).then(SALES).alias("sales"))
        first = fc.predict(table, 7, cutoff=tiny.day(99))
    else:
        first = _unchanged()
    changed = UNCHANGED[change](table)
    other = fc.predict(changed, 7, cutoff=tiny.day(99))
    a = {"scaled by 1e-20": 1e-20, "scaled by 1e25": 1e25}.get(change, 1.0)
    b = 1e9 if change == "shifted to 1e9" else 0.0
    before = dict(zip(first.panel.series_names, a * first.quantiles + b, strict=True))
    after = dict(zip(other.panel.series_names, other.quantiles, strict=True))
    if changed["store"].n_unique() != table["store"].n_unique():
        del before["few"]  # the band of two rows is that of the other series
    for name in before.keys() & after.keys():
        rtol = 0.08 if change in OF_OTHERS else 1e-7
        np.testing.assert_allclose(after[name], before[name], rtol=rtol, err_msg=name)


@pytest.mark.parametrize(("a", "b"), [(1000.0, 0.0), (0.5, -300.0), (1e6, 1e6)])
def test_it_moves_with_the_units_of_the_table(a, b):
    plain = fc.predict(_signed(), 14, target=["up", "down"]).quantiles
    moved_table = _signed().with_columns(pl.col("up", "down") * a + b)
    moved = fc.predict(moved_table, 14, target=["up", "down"]).quantiles
    width = a * (plain[..., -1:] - plain[..., :1])
    assert (np.abs(moved - (a * plain + b)) < 1e-5 * width).all()


@pytest.mark.parametrize(("a", "b"), [(1000.0, 0.0), (0.5, -3e4)])
def test_positive_values_move_with_their_unit(a, b):
    plain = fc.predict(tiny.plain(), 14).quantiles
    moved = fc.predict(tiny.plain().with_columns(pl.col("sales") * a + b), 14).quantiles
    width = a * (plain[..., -1:] - plain[..., :1])
    assert (np.abs(moved - (a * plain + b)) < 1e-5 * width).all()


def test_a_constant_stays_and_one_row_says_which_step_is_assumed():
    constant = tiny.plain().with_columns(sales=7.0)
    np.testing.assert_allclose(fc.predict(constant, 7).median, 7.0)
    for table, step in ((tiny.plain(1).head(1), "1d"), (pl.DataFrame({"t": [5], "y": [2.5]}), "1i")):
        forecast = fc.predict(table, 7)
        assert forecast.status == ("ok, 1 observation",) and np.isfinite(forecast.quantiles).all()
        assert f"steps of {step} are assumed" in _findings(forecast)
        assert "season assumed: none" in _findings(forecast)


def test_a_series_without_rows_has_a_status_as_of_a_fitted_model():
    stores = tuple("abcdef")
    table = tiny.shop(stores=stores).select("store", "date", "sales")
    empty = table.with_columns(pl.when(pl.col("store") != "f").then("sales").alias("sales"))
    assert set(fc.predict(empty, 7).status) == {"ok", "cold"}
    short = tiny.plain().filter((pl.col("store") != "c") | (pl.col("date") >= tiny.day(98)))
    forecast = fc.predict(short, 7)
    assert forecast.status == ("ok", "ok", "ok, 2 observations")
    assert np.isfinite(forecast.quantiles).all()


@pytest.mark.parametrize("horizon", [1, 720])
@pytest.mark.parametrize("time", ["date", "row", "irregular"])
def test_any_horizon_and_any_step(horizon, time):
    table = _signed()
    if time == "irregular":
        steps = np.random.default_rng(0).integers(1, 9, len(table)).cumsum()
        table = table.with_columns(date=pl.Series([tiny.START + timedelta(int(n)) for n in steps]))
    forecast = fc.predict(
        table, horizon, target=["up", "down"], time="row" if time == "row" else "date"
    )
    assert forecast.quantiles.shape == (1, horizon, 2, 9)
    assert np.isfinite(forecast.quantiles).all()
    assert set(forecast.status) == {"ok"}


def test_effects_of_known_covariates_are_estimated_on_few_rows_too_and_move_the_forecast():
    cheap, dear = (tiny.prices().with_columns(price=price) for price in (1.0, 3.0))
    table = tiny.shop().with_columns(sales=pl.col("sales") + 5 * pl.col("price"))
    one, other = (fc.predict(table, 7, future=future) for future in (cheap, dear))
    assert (other.median > one.median + 2).all()
    few = fc.predict(table.filter(pl.col("date") < tiny.day(10)), 7, future=tiny.prices(10))
    assert "effects estimated on these rows: price" in _findings(few)
    assert "; not read: visitors" in _findings(few)


def test_holidays_are_read_as_any_known_covariate_is():
    days = [date(2023, 1, 1) + timedelta(days=number) for number in range(500)]
    german = holidays.country_holidays("DE", years=(2023, 2024))
    closed = np.array([day in german for day in days], float)
    sales = 20 + 3 * np.sin(np.arange(500) / 7) - 10 * closed
    cutoff = date(2024, 4, 26)  # before Labour Day
    plain = pl.DataFrame({"day": days, "sales": sales})
    made = fc.predict(plain, 7, cutoff=cutoff, holidays="DE")
    declared = fc.predict(plain.with_columns(holiday=closed), 7, cutoff=cutoff, known="holiday")
    # Those that are made have a name each.
    np.testing.assert_allclose(made.median, declared.median, atol=1)
    assert "effects estimated on these rows: holiday" in _findings(made)
    assert "effects estimated on these rows: holiday" in _findings(declared)
    assert made.median[0, 4, 0] < fc.predict(plain, 7, cutoff=cutoff).median[0, 4, 0] - 5


def test_the_leaderboard_has_a_row_without_a_fit(monkeypatch):
    board = fc.compare(tiny.plain(), 7, windows=1, config=tiny.NETWORK, quiet=True)
    plain = fc.backtest(tiny.plain(), 7, windows=1, fit=False, quiet=True)
    assert board.scores["no fit"]["WQL"] == pytest.approx(plain.scores["forecaster"]["WQL"], rel=0.2)
    monkeypatch.setattr("forecaster.runs.pipeline.fit_panel", lambda *args: fit_panel(None))
    fc.backtest(tiny.plain(), 7, windows=1, fit=False, quiet=True)


def test_parts_of_two_processes_are_the_file_of_one(tmp_path, shell):
    table = tmp_path / "plain.csv"
    tiny.plain().write_csv(table)
    words = ["predict", table, "--horizon", 7, "--out"]
    assert shell(*words, tmp_path / "one.csv").code == 0
    for shard in ("1/2", "2/2"):
        assert shell(*words, tmp_path / "two.csv", "--shard", shard).code == 0
    assert shell(*words, tmp_path / "two.csv").code == 0
    assert (tmp_path / "two.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()


REFUSED = {
    "no horizon": (["predict", "plain.csv"], "a horizon is required"),
    "horizon 0": (["predict", "plain.csv", "--horizon", 0], "'--horizon'"),
    "classes": (
        ["predict", "plain.csv", "--horizon", 7, "--label", "store"],
        "--label store: expected",
    ),
    "words": (["predict", "words.csv", "--horizon", 7], "no column of numbers left to forecast"),
    "no such series": (
        ["predict", "plain.csv", "--horizon", 7, "--only", "z"],
        "no series 'z' among 3",
    ),
    "only missing values": (
        ["predict", "empty.csv", "--horizon", 7, "--target", "sales"],
        "no target is observed, nothing to forecast from",
    ),
    "a damaged model": (["predict", "damaged", "--horizon", 7], "contract.json is missing"),
    "a damaged model and a table": (["predict", "damaged", "plain.csv"], "contract.json is missing"),
    "two tables": (["predict", "plain.csv", "plain.csv"], "plain.csv: not a saved model: it is a file"),
    "a model alone": (["predict", "model"], "Missing argument DATA: the table for the model model"),
    "a model in MLflow alone": (["detect", "models:/sales"], "the table for the model models:/sales"),
    "bounds of a model": (
        ["predict", "model", "plain.csv", "--lower", 0],
        "--lower: a saved model has",
    ),
    "horizon of a model": (
        ["explain", "model", "plain.csv", "--horizon", 7, "--out", "new.html"],
        "--horizon: a saved model has no such option; leave it out, or the model",
    ),
    "explained without a horizon": (
        ["explain", "plain.csv", "--out", "new.html"],
        "a horizon is required",
    ),
    "a model without a fit": (
        ["backtest", "model", "plain.csv", "--no-fit"],
        "--no-fit scores a table alone",
    ),
    "fits without a fit": (
        ["backtest", "plain.csv", "--no-fit", "--leaderboard"],
        "leave out --no-fit",
    ),
    "refits without a fit": (
        ["backtest", "plain.csv", "--horizon", 7, "--no-fit", "--refit", "each"],
        "--refit: a backtest without a fit has no such option",
    ),
    "no experts": (
        ["backtest", "plain.csv", "--horizon", 7, "--no-fit", "--set", "model.experts=[]"],
        "a forecast without a fit is that of experts",
    ),
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Path:
    """Tables, a model, and the same model damaged."""
    folder = tmp_path_factory.mktemp("tables")
    tiny.plain().write_csv(folder / "plain.csv")
    tiny.plain().with_columns(sales=None).write_csv(folder / "empty.csv")
    tiny.plain().select("store", "date", sales=pl.lit("many")).write_csv(folder / "words.csv")
    tiny.plain_model().save(folder / "model")
    shutil.copytree(folder / "model", folder / "damaged")
    (folder / "damaged" / "contract.json").unlink()
    return folder


@pytest.mark.parametrize(("words", "line"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_forecast_is_refused_with_one_line(tables, words, line, shell, monkeypatch):
    monkeypatch.chdir(tables)
    before = tiny.tree(tables)
    done = shell(*words, *(["--out", "new.csv"] if "--out" not in words else []))
    assert done.code == 2
    (said,) = done.err.splitlines()
    assert said.startswith("error: ") and line in said
    assert tiny.tree(tables) == before
