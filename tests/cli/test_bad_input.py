"""Promise 7: a bad input gives clear lines and exit code 2, no traceback, and writes nothing."""

import json
import os

import polars as pl
import pytest
import yaml
from cli.conftest import files_of_at_most
from forecast import tiny

import forecaster as fc

FIT = ("--config", "tiny.yaml", "--out", "new")


def _bad_tables():
    """The files that the catalogue names."""
    day = [tiny.day(n).isoformat() for n in range(60)]
    pl.DataFrame({"date": day, "sales": range(60)}).write_csv("short.csv")
    open("empty.csv", "w").close()
    with open("header.csv", "w") as file:
        file.write("date,store,sales\n")
    pl.DataFrame({"shop": ["a", "b"], "sales": [1.5, 2.5]}).write_csv("timeless.csv")
    pl.DataFrame({"date": day, "note": [f"n{n % 3}" for n in range(60)]}).write_csv("wordy.csv")
    soon = [*day[:4], "soon", *day[5:]]
    pl.DataFrame({"date": soon, "sales": range(60)}).write_csv("soon.csv")
    twice = pl.read_csv("plain.csv")
    other = twice[2:3].with_columns(sales=pl.col("sales") + 1)
    pl.concat([twice[:3], other, twice[3:]]).write_csv("twice.csv")
    pl.DataFrame(
        {"date": day, "sales": [*map(float, range(30)), 3e38, *map(float, range(29))]}
    ).write_csv("huge.csv")
    words = [*map(str, range(59)), "many"]
    pl.DataFrame({"date": day, "sales": words}).write_csv("words.csv")
    pl.DataFrame({"date": day[:10], "sales": range(10)}).write_csv("gap.csv")
    pl.read_csv("prices.csv").filter(
        ~((pl.col("store") == "b") & (pl.col("date") == tiny.day(102).isoformat()))
    ).write_csv("holes.csv")
    pl.read_csv("shop.csv").drop("visitors").write_csv("unvisited.csv")
    with open("broken.yaml", "w") as file:
        file.write("model: {width: 16")
    with open("typos.yaml", "w") as file:
        yaml.safe_dump(
            {"horizn": 7, "model": {"widht": 8, "heads": 2}, "fit": {"steps": "few"}, "trackin": {}},
            file,
        )
    for name in ("file", "file.html", "file.png"):
        with open(name, "w") as file:
            file.write("not a folder")
    fc.convert(twice, "store", quiet=True)
    os.mkdir("other")
    with open("other/thesis.txt", "w") as file:
        file.write("years of work")


CATALOGUE = {
    "no such file": (
        ["check", "shpo.csv"],
        ["shpo.csv: no such file", "did you mean 'shop.csv'?"],
    ),
    "a glob without files": (["check", "nothing/*.csv"], ["no file matches this pattern"]),
    "a folder": (
        ["check", "other"],
        ["expected CSV, Parquet or Arrow files in the folder, found thesis.txt"],
    ),
    "empty file": (["check", "empty.csv"], ["expected a header and rows, found an empty file"]),
    "header only": (
        ["check", "header.csv"],
        ["expected a header and rows", "date, store, sales and no rows"],
    ),
    "no time column": (
        ["fit", "timeless.csv", "--horizon", 7, *FIT],
        ["no time column found among shop, sales", "--time COLUMN", "--time row"],
    ),
    "no numeric column": (
        ["fit", "wordy.csv", "--horizon", 7, *FIT],
        ["no column of numbers left to forecast among date, note", "--target COLUMN"],
    ),
    "a date that is none": (
        ["fit", "soon.csv", "--horizon", 7, *FIT],
        ["column 'date'", "written like '2024-01-01', found 'soon' in row 5 (1 such rows)"],
    ),
    "rows that repeat": (
        ["fit", "twice.csv", "--horizon", 7, *FIT],
        [
            "found 2 that disagree at 2024-01-03 in series 'a' (row 3, row 4; 2 such rows in all)",
            "--series COLUMN",
            "--on-duplicates mean or last",
        ],
    ),
    "words among numbers": (
        ["fit", "words.csv", "--target", "sales", "--horizon", 7, *FIT],
        ["column 'sales': expected numbers, found 'many' in row 60 (1 such rows)"],
    ),
    "horizon longer than the history": (
        ["fit", "short.csv", "--horizon", 90, *FIT],
        ["horizon 90 is longer than the history allows", "1 + 90 rows", "has 60", "--horizon to 30"],
    ),
    "no horizon": (["fit", "shop.csv", *FIT], ["a horizon is required", "--horizon 28"]),
    "until before the beginning": (
        ["fit", "shop.csv", "--horizon", 7, "--until", "2020-01-01", *FIT],
        ["--until 2020-01-01: the table begins at 2024-01-01"],
    ),
    "until that is no date": (
        ["fit", "shop.csv", "--horizon", 7, "--until", "never", *FIT],
        ["expected dates, found 'never'"],
    ),
    "a result over an input": (
        ["predict", "model", "shop.csv", "--out", "shop.csv"],
        ["shop.csv: is an input of this command; choose another name"],
    ),
    "unknown option": (["check", "shop.csv", "--horizn", 7], ["--horizn", "--horizon"]),
    "unknown verb": (["forecats", "shop.csv"], ["forecats"]),
    "missing argument": (["check"], ["Missing argument", "DATA"]),
    "missing option": (["fit", "shop.csv", "--horizon", 7], ["Missing option", "--out"]),
    "a horizon that is no number": (
        ["check", "shop.csv", "--horizon", "long"],
        ["Invalid value", "--horizon"],
    ),
    "a horizon of nothing": (
        ["check", "shop.csv", "--horizon", 0],
        ["Invalid value", "--horizon", "1"],
    ),
    "unknown refit": (
        ["backtest", "model", "shop.csv", "--refit", "sometimes"],
        ["refit 'sometimes'", "once, each or never"],
    ),
    "unknown layout": (
        ["check", "shop.csv", "--layout", "tall"],
        ["layout", "'wide', 'long' or 'rows'", "'tall'"],
    ),
    "unknown layout at predict": (
        ["predict", "model", "shop.csv", "--out", "new.csv", "--layout", "tall"],
        ["layout", "'wide', 'long' or 'rows'", "'tall'"],
    ),
    "another layout than the model's": (
        ["predict", "model", "shop.csv", "--out", "new.csv", "--layout", "wide"],
        ["--layout wide: this model was fitted with long"],
    ),
    "unknown cutoff": (
        ["predict", "model", "shop.csv", "--out", "new.csv", "--cutoff", "gestern"],
        ["gestern", "YYYY-MM-DD"],
    ),
    "unknown step": (["check", "shop.csv", "--freq", "2 moons"], ["freq '2 moons'", "as 1h"]),
    "unknown column": (
        ["fit", "shop.csv", "--horizon", 7, "--known", "pirce", *FIT],
        ["no column 'pirce' (--known)", "did you mean 'price'?", "visitors, city"],
    ),
    "a column with two roles": (
        ["fit", "shop.csv", "--horizon", 7, "--known", "price", "--past", "price", *FIT],
        ["column 'price' is declared twice, by --known and --past"],
    ),
    "no such config": (
        ["fit", "shop.csv", "--config", "away.yaml", "--out", "new"],
        ["config away.yaml: cannot be read"],
    ),
    "a config that is no YAML": (
        ["fit", "shop.csv", "--config", "broken.yaml", "--out", "new"],
        ["config broken.yaml: not YAML"],
    ),
    "assignment without a value": (
        ["fit", "shop.csv", "--set", "model.width", *FIT],
        ["--set model.width: expected dotted.key=value, as model.width=64"],
    ),
    "assignment of the wrong kind": (
        ["fit", "shop.csv", "--set", "model.width=wide", *FIT],
        ["model.width", "integer", "'wide'"],
    ),
    "settings that contradict": (
        ["fit", "shop.csv", "--set", "model.heads=3", *FIT],
        ["width 16 is not a multiple of heads 3"],
    ),
    "a loss that is not finite": (
        ["fit", "huge.csv", "--horizon", 7, *FIT],
        ["the loss is not finite at step 1", "huge", "forecaster check"],
    ),
    "no model": (
        ["predict", "away", "shop.csv", "--out", "new.csv"],
        ["away: not a saved model", "there is no such folder", "forecaster fit --out"],
    ),
    "a folder that is no model": (
        ["predict", "other", "shop.csv", "--out", "new.csv"],
        ["other: not a saved model"],
    ),
    "horizon above the trained one": (
        ["predict", "model", "shop.csv", "--horizon", 8, "--out", "new.csv"],
        ["horizon 8: this model forecasts 1 to 7 steps", "fit one with --horizon 8"],
    ),
    "paths of a direct decoder": (
        ["predict", "plain_model", "plain.csv", "--samples", 200, "--out", "new.csv"],
        ["samples 200: this model's decoder is direct", "--set model.decoder=autoregressive"],
    ),
    "what no autoregressive decoder has": (
        [
            *("fit", "plain.csv", "--horizon", 7, "--set", "model.decoder=autoregressive"),
            *("--set", "model.decoder_mask=full", *FIT),
        ],
        ["model: decoder_mask full shows a token the tokens after it", "take decoder_mask causal"],
    ),
    "words of several steps": (
        [
            *("fit", "plain.csv", "--horizon", 7, "--set", "model.decoder=autoregressive"),
            *("--set", "model.head=binned", "--set", "model.patch=7", *FIT),
        ],
        ["patch 7: an autoregressive binned head reads one value per token, patch 1"],
    ),
    "a covariate that is not there": (
        ["predict", "model", "unvisited.csv", "--future", "prices.csv", "--out", "new.csv"],
        ["unvisited.csv: no column 'visitors'", "--covariates"],
    ),
    "no known future": (
        ["predict", "model", "shop.csv", "--out", "new.csv"],
        ["'price' is known in advance", "series a at 2024-04-10 (lead 1 of 7)", "3 of 3 series"],
    ),
    "a hole in the known future": (
        ["predict", "model", "shop.csv", "--future", "holes.csv", "--out", "new.csv"],
        ["'price'", "series b at 2024-04-12 (lead 3 of 7)", "1 of 3 series", "--future FILE"],
    ),
    "a parent that is a file": (
        ["predict", "plain_model", "plain.csv", "--out", "file/new.csv"],
        ["file/new.csv: cannot be written: file is not a folder"],
    ),
    "a model below a file": (
        ["fit", "shop.csv", "--horizon", 7, "--config", "tiny.yaml", "--out", "file/new"],
        ["file/new: cannot be written: file is not a folder"],
    ),
    "a model in the place of other work": (
        ["fit", "shop.csv", "--horizon", 7, "--config", "tiny.yaml", "--out", "other"],
        ["other: exists and is not a saved model"],
    ),
    "a folder in the place of the result": (
        ["predict", "plain_model", "plain.csv", "--out", "other.csv"],
        ["other.csv: cannot be written", "directory"],
    ),
    "a model that is there": (
        ["fit", "plain.csv", "--horizon", 7, "--out", "plain_model"],
        ["plain_model: exists; replace it with --overwrite, or choose another name"],
    ),
    "a page that is there": (
        ["fit", "shop.csv", "--horizon", 7, *FIT, "--report", "file.html"],
        ["file.html: exists; replace it with --overwrite"],
    ),
    "a tuned model that is there": (
        ["tune", "plain.csv", "--horizon", 7, "--out", "model"],
        ["model: exists; replace it with --overwrite"],
    ),
    "a store that is there": (
        ["convert", "plain.csv", "store"],
        ["store: exists; replace it with --overwrite"],
    ),
    "forecasts that are there": (
        ["predict", "plain_model", "plain.csv", "--out", "shop.csv"],
        ["shop.csv: exists; replace it with --overwrite"],
    ),
    "a picture that is there": (
        ["predict", "plain_model", "plain.csv", "--out", "new.csv", "--plot", "file.png"],
        ["file.png: exists; replace it with --overwrite"],
    ),
    "scores that are there": (
        ["backtest", "plain_model", "plain.csv", "--out", "shop.csv"],
        ["shop.csv: exists; replace it with --overwrite"],
    ),
    "labels that are there": (
        ["detect", "plain_model", "plain.csv", "--out", "shop.csv"],
        ["shop.csv: exists; replace it with --overwrite"],
    ),
    "an explanation that is there": (
        ["explain", "plain_model", "plain.csv", "--out", "file.html"],
        ["file.html: exists; replace it with --overwrite"],
    ),
    "a suffix that is not known": (
        ["predict", "plain_model", "plain.csv", "--out", "new.xlsx"],
        ["new.xlsx: expected a name ending in .csv or .parquet"],
    ),
    "a picture that is none": (
        ["predict", "plain_model", "plain.csv", "--out", "new.csv", "--plot", "new.txt"],
        ["new.txt: expected a name ending in .png"],
    ),
    "a picture of a backtest that is none": (
        [
            "backtest",
            "plain_model",
            "plain.csv",
            "--windows",
            1,
            "--out",
            "new.csv",
            "--plot",
            "new.txt",
        ],
        ["new.txt: expected a name ending in .png"],
    ),
    "a backtest on rows the model has seen": (
        ["backtest", "model", "shop.csv", "--windows", 2, "--refit", "never", "--out", "new.csv"],
        ["--refit never", "trained until 2024-04-09", "first cutoff is 2024-03-26", "--until"],
    ),
    "more windows than the history holds": (
        ["backtest", "model", "shop.csv", "--windows", 50, "--out", "new.csv"],
        ["50 windows of horizon 7", "the table begins at 2024-01-01", "14 fit, use --windows 14"],
    ),
    "a backtest further than the model reaches": (
        ["backtest", "model", "shop.csv", "--horizon", 8, "--out", "new.csv"],
        ["horizon 8: this model forecasts 1 to 7 steps", "fit one with --horizon 8"],
    ),
    "quantile levels outside 0 and 1": (
        ["fit", "shop.csv", "--horizon", 7, "--set", "model.quantile_levels=[0.5,1.0]", "--out", "new"],
        ["quantile_levels [0.5, 1.0] must rise strictly between 0 and 1"],
    ),
    "other counts of renamed columns": (
        ["predict", "plain_model", "plain.csv", "--target", "sales,store", "--out", "new.csv"],
        ["--target sales,store: expected 1 columns in the place of sales, found 2"],
    ),
}


def _is_refused(answer, words):
    assert answer.code == 2, answer
    lines = answer.err.splitlines()
    assert lines and all(line.startswith("error: ") for line in lines), answer.err
    assert "Traceback" not in answer.out + answer.err
    for word in words:
        assert word in answer.err, answer.err
    return True


@pytest.mark.parametrize(("words", "said"), CATALOGUE.values(), ids=CATALOGUE)
def test_a_bad_input_gives_a_clear_line_and_leaves_nothing(folder, shell, words, said):
    _bad_tables()
    os.mkdir("other.csv")
    before = tiny.tree(folder)
    assert _is_refused(shell(*words), said)
    assert tiny.tree(folder) == before


def test_all_faults_of_a_config_are_listed_at_once_with_the_nearest_name(folder, shell):
    _bad_tables()
    answer = shell(
        "fit", "shop.csv", "--config", "typos.yaml", "--set", "fit.batchsize=3", "--out", "new"
    )
    assert _is_refused(
        answer,
        [
            "typos.yaml: horizn: unknown setting, did you mean 'horizon'?",
            "model.widht: unknown setting, did you mean 'width'?",
            "fit.steps: Input should be a valid integer",
            "(got 'few')",
            "fit.batchsize: unknown setting, did you mean 'batch_size'?",
            "trackin: unknown setting, did you mean 'tracking'?",
        ],
    )
    assert len(answer.err.splitlines()) == 5
    assert not (folder / "new").exists()


def _edit_contract(**changes):
    with open("model/contract.json") as file:
        contract = json.load(file)
    with open("model/contract.json", "w") as file:
        json.dump(contract | changes, file)


def _flip_a_byte(name):
    with open(name, "r+b") as file:
        file.seek(-7, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-7, os.SEEK_END)
        file.write(bytes([byte ^ 1]))


def _truncate(name):
    os.truncate(name, os.path.getsize(name) // 2)


DAMAGE = {
    "another format": (
        lambda: _edit_contract(format=99),
        ["artifact format 99, expected format 6: upgrade", "forecaster fit TABLE --out"],
    ),
    "no format": (lambda: _edit_contract(format=None), ["artifact format None"]),
    "a flipped byte": (
        lambda: _flip_a_byte("model/member-00.safetensors"),
        ["member-00.safetensors: damaged: expected sha256"],
    ),
    "truncated weights": (
        lambda: _truncate("model/member-00.safetensors"),
        ["member-00.safetensors: does not fit its contract", "bytes of weights"],
    ),
    "a truncated contract": (
        lambda: _truncate("model/contract.json"),
        ["contract.json: damaged, not JSON"],
    ),
    "a truncated config": (lambda: _truncate("model/plan.json"), ["plan.json: damaged, not JSON"]),
    "a config of another kind": (
        lambda: tiny.Path("model/plan.json").write_text("[]"),
        ["plan.json: damaged, expected an object, found list"],
    ),
    "a contract without columns": (lambda: _edit_contract(columns=None), ["contract.json: damaged"]),
    "a contract of another shape": (
        lambda: _edit_contract(shape={"horizon": 7, "channels": "many"}),
        ["model", "damaged"],
    ),
    "a missing member": (
        lambda: os.remove("model/member-00.safetensors"),
        ["member-00.safetensors: cannot be read (No such file or directory)"],
    ),
    "missing scores": (lambda: os.remove("model/metrics.json"), ["metrics.json is missing"]),
    "a member of another network": (
        lambda: tiny.Path("model/plan.json").write_text(
            tiny.Path("model/plan.json").read_text().replace('"width": 16', '"width": 32')
        ),
        ["member-00.safetensors: does not fit its contract"],
    ),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_model_is_refused_with_the_reason(folder, shell, damage, said):
    damage()
    before = tiny.tree(folder)
    answer = shell("predict", "model", "shop.csv", "--future", "prices.csv", "--out", "new.csv")
    assert _is_refused(answer, said)
    assert tiny.tree(folder) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind the superuser")
def test_a_folder_without_permission_is_refused_before_any_work(folder, shell):
    os.mkdir("closed", mode=0o500)
    answer = shell("predict", "plain_model", "plain.csv", "--out", "closed/new.csv")
    assert _is_refused(answer, ["closed/new.csv: cannot be written: no permission in closed"])


@pytest.mark.parametrize("name", ["new.csv", "new.parquet"])
def test_a_full_disk_leaves_no_half_forecast_and_what_was_there(folder, shell, name):
    (folder / name).write_text("before")
    before = tiny.tree(folder)
    with files_of_at_most(1024):
        answer = shell("predict", "plain_model", "plain.csv", "--out", name, "--overwrite")
    assert _is_refused(answer, [f"{name}: cannot be written: File too large"])
    assert tiny.tree(folder) == before


def test_a_full_disk_leaves_no_half_picture(folder, shell):
    words = ["predict", "plain_model", "plain.csv", "--out", "new.csv", "--plot", "new.png"]
    words.append("--overwrite")
    assert shell(*words).code == 0
    before = tiny.tree(folder)
    with files_of_at_most(16 * 1024):
        answer = shell(*words)
    assert _is_refused(answer, ["new.png: cannot be written: File too large"])
    assert tiny.tree(folder) == before


@pytest.mark.parametrize("there_before", [False, True], ids=["new", "replacing"])
def test_a_full_disk_leaves_no_half_model_and_the_old_one(folder, shell, there_before):
    if there_before:
        tiny.model().save("new")
    before = tiny.tree(folder)
    with files_of_at_most(1024):
        answer = shell("fit", "plain.csv", "--horizon", 7, *FIT, "--overwrite")
    assert _is_refused(answer, ["new.run", "cannot be written: File too large"])
    assert tiny.tree(folder) == before
