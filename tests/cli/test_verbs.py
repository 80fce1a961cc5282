"""Every verb does what its help says, on tables as people have them."""

import re
import shutil
import sqlite3
import subprocess
import sys

import polars as pl
import pytest
from forecast import tiny
from polars.testing import assert_frame_equal

import forecaster as fc
from forecaster.cli import VERBS, load_verb

pytestmark = pytest.mark.usefixtures("undrawn")  # drawing takes most of a small fit

PREDICT = ("predict", "model", "shop.csv", "--future", "prices.csv")
LEVELS = [f"q0.{n}" for n in range(1, 10)]


def _words(text):
    """Text with every run of blanks and line breaks as one blank."""
    return " ".join(text.split())


def test_version_is_printed(shell):
    answer = shell("--version")
    assert answer.code == 0
    assert answer.out == f"forecaster {fc.__version__}\n"


def test_no_words_show_the_verbs_and_exit_with_2(shell):
    answer = shell()
    assert answer.code == 2
    assert answer.err.startswith("Usage: ") and "error: " not in answer.err
    for verb in ("check", "convert", "fit", "predict", "backtest", "explain", "runs", "demo"):
        assert f"  {verb} " in answer.err


def test_the_list_of_verbs_says_what_each_verb_says(shell):
    for name, text in VERBS.items():
        assert load_verb(name).help.startswith(text), name


def test_check_shows_the_role_of_every_column_and_why(folder, shell):
    answer = shell("check", "shop.csv", "--known", "price", "--horizon", 7)
    assert answer.code == 0
    said = _words(answer.out)
    for row in (
        "date time date text that reads as dates",
        "store series String with date it names every row",
        "sales target number by its name",
        "price known number declared",
        "visitors past number every other usable column",
        "city static category one value per series",
    ):
        assert row in said
    assert "long layout · 3 series · 1 channel · 300 rows · frequency 1d (regular)" in said
    assert "note horizon known in advance, but not after the last target: price" in said
    assert said.endswith("0 errors, 0 warnings, 1 note")


def test_fit_says_what_it_does_and_saves_a_model(folder, shell):
    words = ["--horizon", 7, "--known", "price", "--config", "tiny.yaml", "--set", "fit.steps=4"]
    answer = shell("fit", "shop.csv", *words, "--out", "models/new")
    assert answer.code == 0, answer.err
    said = _words(answer.out)
    assert "price known number declared" in said
    assert "horizon 7 · context 28 · patches of 7 and 7 · width 16" in said
    assert re.search(r"trains on \d+ windows until 2024-0\d-\d\d, validates on \d+ windows", said)
    assert re.search(
        r"4 steps, best at \d · validation WQL 0\.\d+ is undecided against seasonal naive",
        said,
    )
    assert "saved models/new" in said
    assert answer.err == ""
    saved = fc.load("models/new")
    assert saved.config.fit.steps == 4
    assert saved.config.data.known == ("price",)
    assert (folder / "models/new/loss.png").is_file() and (folder / "models/new/forecast.png").is_file()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predict_writes_every_row_once_keyed_in_the_tables_own_names(folder, shell, suffix):
    answer = shell(*PREDICT, "--out", f"deep/down/ahead.{suffix}")
    assert answer.code == 0
    assert answer.err == ""
    assert answer.out == f"3 series, 21 rows, from 2024-04-09\nwrote deep/down/ahead.{suffix}\n"
    path = folder / f"deep/down/ahead.{suffix}"
    found = pl.read_parquet(path) if suffix == "parquet" else pl.read_csv(path, try_parse_dates=True)
    names = ["store", "cutoff", "date", "lead", "channel", "forecast", "mean", *LEVELS, "status"]
    assert found.columns == names
    expected = tiny.ahead().rows
    assert_frame_equal(
        found, expected, check_exact=suffix == "parquet", check_dtypes=suffix == "parquet"
    )
    keys = [(store, tiny.day(99 + lead), lead) for store in tiny.STORES for lead in range(1, 8)]
    assert found.select("store", "date", "lead").rows() == keys


def test_predict_takes_levels_and_refuses_wrong_ones_before_anything_is_written(folder, shell):
    answer = shell(*PREDICT, "--levels", "80,95", "--quantiles", "0.05", "--out", "bands.csv")
    assert answer.code == 0, answer.err
    columns = pl.read_csv(folder / "bands.csv").columns
    assert columns[5:] == ["forecast", "mean", "lo-80", "hi-80", "lo-95", "hi-95", "q0.05", "status"]
    before = tiny.tree(folder)
    for given, said in (
        (("--levels", "80,100"), "levels 100: expected numbers above 0 and below 100"),
        (("--quantiles", "x"), "quantiles x: expected numbers"),
        (("--levels", "80,80"), "80 is given 2 times"),
        (("--levels", "80", "--samples", 3), "--levels: a file of sample paths"),
    ):
        answer = shell(*PREDICT, *given, "--out", "wrong.csv")
        assert answer.code == 2 and said in answer.err
    assert tiny.tree(folder) == before


def test_predict_without_a_file_prints_the_first_rows(folder, shell):
    answer = shell(*PREDICT, "--only", "c,b", "--plot", "new.png")
    assert answer.code == 0, answer.err
    same, heading, *lines = answer.out.splitlines()
    assert same == "cutoff 2024-04-09 · channel sales · status ok"
    assert heading.split() == ["store", "date", "lead", "forecast", "mean", "q0.1", "q0.9"]
    first = tiny.ahead().rows.filter(pl.col("store") == "b").row(0, named=True)
    assert lines[0].split()[:3] == ["b", "2024-04-10", "1"]
    assert [float(word) for word in lines[0].split()[3:]] == pytest.approx(
        [first[name] for name in ("forecast", "mean", "q0.1", "q0.9")], rel=1e-5
    )
    assert lines[10:] == [
        "10 of 14 rows, without 7 inner quantiles; all are written by --out FILE (.csv, .parquet or .xlsx)",
        "2 series, 14 rows, from 2024-04-09",
        "drew new.png",
    ]
    before = tiny.tree(folder)
    answer = shell(*PREDICT, "--shard", "1/2", "--devices", 2)
    assert answer.code == 2 and tiny.tree(folder) == before
    assert answer.err == "error: --devices, --shard: give --out, a file for the forecasts\n"


def test_predict_reads_columns_by_the_names_this_table_has(folder, shell):
    names = {"store": "branch", "date": "day", "sales": "sold"}
    tiny.plain().rename(names).write_csv("other.csv")
    words = ["--series", "branch", "--time", "day", "--target", "sold", "--out", "other.parquet"]
    assert shell("predict", "plain_model", "other.csv", *words).code == 0
    found = pl.read_parquet("other.parquet")
    assert found.columns[:5] == ["branch", "cutoff", "day", "lead", "channel"]
    assert found["channel"].unique().to_list() == ["sold"]
    expected = tiny.network_model().predict(tiny.plain()).frame
    renamed = expected.rename({"store": "branch", "date": "day"}).with_columns(channel=pl.lit("sold"))
    assert_frame_equal(found, renamed, check_exact=True)


def test_covariates_may_lie_in_a_table_of_their_own(folder, shell):
    prices = pl.concat([tiny.shop().select("store", "date", "price"), tiny.prices()])
    prices.write_csv("all_prices.csv")
    tiny.shop().drop("price").write_csv("no_prices.csv")
    beside = ["no_prices.csv", "--covariates", "all_prices.csv"]
    words = ["--horizon", 7, "--known", "price", "--config", "tiny.yaml", "--out", "new"]
    assert shell("fit", *beside, *words).code == 0
    assert shell("predict", "new", *beside, "--out", "new.parquet").code == 0
    assert fc.load("new").config.data == tiny.model().config.data
    # The model of one table reads the two tables, and says the same.
    assert shell("predict", "model", *beside, "--out", "two.parquet").code == 0
    assert_frame_equal(pl.read_parquet("two.parquet"), tiny.ahead().rows, check_exact=True)


@pytest.mark.long
def test_backtest_writes_rows_with_the_truth_and_says_who_wins(folder, shell):
    answer = shell("backtest", "plain_model", "plain.csv", "--windows", 2, "--out", "scores.parquet")
    assert answer.code == 0, answer.err
    said = _words(answer.out)
    assert "2 cutoffs from 2024-03-26 to 2024-04-02: weights fitted until 2024-03-26" in said
    assert re.search(r"model MAE RMSE MASE sMAPE WQL coverage_80 skill", said)
    assert re.search(r"seasonal naive( \S+){6} 0 ", said)
    for name in ("naive", "drift", "ETS", "ridge"):
        assert re.search(rf" {name}( -?[\d.]+e?[-+\d]*){{7}} ", said), name
    assert "2 cutoffs · 42 cells scored, 0 without a truth or a forecast" in said
    assert re.search(
        r"forecaster is undecided against seasonal naive: its WQL is ",
        said,
    )
    rows = pl.read_parquet("scores.parquet")
    assert rows["model"].unique(maintain_order=True)[0] == "forecaster"
    assert rows.height == 6 * 2 * 3 * 7
    truth = tiny.plain().select("store", "date", "sales")
    joined = rows.join(truth, on=["store", "date"], how="left")
    assert joined["actual"].to_list() == joined["sales"].to_list()
    assert (rows["date"] > rows["cutoff"]).all()


@pytest.mark.long
def test_backtest_of_a_table_alone_is_that_of_a_model_with_the_same_settings(folder, shell):
    words = ["--windows", 1, "--horizon", 7]
    answer = shell("backtest", "plain.csv", *words, "--config", "tiny.yaml", "--out", "alone.csv")
    assert answer.code == 0, answer.err
    assert "cutoff 2024-04-02: weights fitted until 2024-04-02" in _words(answer.out)
    assert shell("backtest", "plain_model", "plain.csv", *words, "--out", "model.csv").code == 0
    assert_frame_equal(pl.read_csv("alone.csv"), pl.read_csv("model.csv"), check_exact=True)
    table = fc.backtest("plain.csv", 7, windows=1, config="tiny.yaml", quiet=True)
    assert table.rows["model"].unique().len() == len(table.scores) == 6
    for given, said in (
        (["plain_model"], "Missing argument DATA: the table to score plain_model on"),
        (["plain.csv"], "a horizon is required: how many steps to forecast (--horizon 28)"),
        (["plain.csv", "--horizon", 7, "--refit", "never"], "refit 'never': expected once or each"),
        (
            ["plain_model", "plain.csv", "--set", "model.width=8"],
            "--preset, --config, --set, --experts: a model has its own",
        ),
        (
            ["plain_model", "plain.csv", "--preset", "long"],
            "--preset, --config, --set, --experts: a model has",
        ),
        (["plain.csv", "--horizon", 7, "--preset", "lnog"], "preset 'lnog': expected long, smoke"),
        (["none", "plain.csv"], "none: not a saved model: there is no such folder"),
        (["plain_model", "plain.csv", "--leaderboard"], "--leaderboard fits a table anew: leave out"),
        (["plain_model", "--presets", "tiny.yaml"], "leave out the model plain_model"),
        (["plain.csv", "--horizon", 7, "--presets", "none.yaml"], "none.yaml"),
        (["none.csv", "--horizon", 7], "none.csv"),
    ):
        answer = shell("backtest", *given)
        assert answer.code == 2 and said in answer.err, answer.err


@pytest.mark.long
def test_a_leaderboard_ranks_settings_experts_and_baselines_and_is_drawn(folder, shell):
    tiny.write_tiny(folder / "other.yaml", model={"experts": ["naive"]})
    words = ["--horizon", 7, "--windows", 1, "--config", "tiny.yaml", "--set", "model.experts=[]"]
    files = ["--presets", "other.yaml", "--out", "all.parquet", "--plot", "board.png"]
    answer = shell("backtest", "plain.csv", *words, *files)
    assert answer.code == 0, answer.err
    lines = answer.out[answer.out.index("model ") :].splitlines()
    assert lines[0].split() == [
        "model",
        "WQL",
        "MASE",
        "coverage_80",
        "seconds",
        "excess",
        "low",
        "high",
    ]
    end = next(n for n, line in enumerate(lines) if line.startswith("1 cutoff · 21 cells scored"))
    wql = [float(line[21:].split()[0]) for line in lines[1:end]]
    assert wql == sorted(wql) and len(wql) > 15
    assert "forecaster " in lines[end] and "drew board.png" in lines
    names = set(pl.read_parquet("all.parquet")["model"])
    assert len(names) == len(wql) and {"preset other", "experts", "expert theta", "ETS"} <= names
    assert (folder / "board.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_backtest_refits_before_every_cutoff_when_told(folder, shell):
    words = ["--windows", 2, "--refit", "each", "--stride", 3]
    answer = shell("backtest", "plain_model", "plain.csv", *words)
    assert answer.code == 0, answer.err
    said = _words(answer.out)
    assert "cutoff 2024-03-30: weights fitted until 2024-03-30" in said
    assert "cutoff 2024-04-02: weights fitted until 2024-04-02" in said


@pytest.mark.slow
def test_the_demo_ends_well_with_a_picture_a_run_and_a_model_better_than_seasonal_naive(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "forecaster", "demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr
    said = _words(done.stdout)
    assert "model MAE RMSE MASE sMAPE WQL coverage_80 skill" in said
    picture = tmp_path / "demo" / "forecast.png"
    assert str(picture) in said.replace(" ", "") and picture.read_bytes().startswith(b"\x89PNG")
    assert "forecaster ui" in said
    for name in ("forecasts.csv", "backtest.parquet", "model/contract.json"):
        assert (tmp_path / "demo" / name).is_file()
    row = dict(re.findall(r"^(forecaster|seasonal naive) (.*)$", done.stdout, flags=re.MULTILINE))
    wql = {name: float(values.split()[4]) for name, values in row.items()}
    assert wql["forecaster"] < wql["seasonal naive"]
    with sqlite3.connect(tmp_path / "demo" / "mlflow.db") as store:
        statuses = store.execute("select status from runs").fetchall()
    assert statuses == [("FINISHED",)] * 2
    shutil.rmtree(tmp_path / "demo")


def test_predict_without_a_single_forecast_exits_with_2_and_writes_nothing(folder, shell):
    silent = tiny.plain().with_columns(sales=pl.when(pl.col("date") < tiny.day(30)).then("sales"))
    silent.write_csv("silent.csv")
    words = ["predict", "plain_model", "silent.csv", "--cutoff", str(tiny.day(99)), "--out", "new.csv"]
    before = sorted(folder.iterdir())
    for more in ([], ["--parts"]):
        done = shell(*words, *more)
        assert done.code == 2 and sorted(folder.iterdir()) == before
        (line,) = done.err.splitlines()
        assert line.startswith(
            "error: silent.csv: none of 3 series has a forecast: no target observed in the "
        )
    # A shard is written; the merge refuses.
    assert shell(*words, "--shard", "1/1").code == 0
    assert shell(*words).code == 2 and sorted(folder.iterdir()) == before
    heard = silent.with_columns(sales=pl.when(pl.col("store") == "b").then(1.0).otherwise("sales"))
    heard.write_csv("silent.csv")
    assert shell(*words).code == 0 and len(pl.read_csv("new.csv")) == 3 * 7


@pytest.mark.parametrize("words", [["--levels", "80,95"], ["--what-if", "price*1.1"], ["--sum", "W"]])
def test_printed_rows_are_never_cut_and_numbers_have_six_digits(folder, shell, words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    table = tiny.shop().with_columns(sales=pl.col("sales") * 1234567.891)
    table.write_csv("large.csv")
    options = ["--horizon", 7, "--known", "price", "--future", "prices.csv"]
    out = shell("predict", "large.csv", *options, *words).out
    assert "2024-04-0" in out and "…" not in out and "e+" not in out
    numbers = [one for one in out.split() if re.fullmatch(r"-?\d+(\.\d+)?", one)]
    assert numbers and all(len(one.strip("-0").replace(".", "").strip("0")) <= 6 for one in numbers)
