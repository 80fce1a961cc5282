"""Promise 7: a bad input gives clear lines and exit code 2, no traceback, and writes nothing.

Bad tables are in tests/test_bad_inputs.py, other damaged models in tests/hostile.
"""

import json
import os

import polars as pl
import pytest
from cli.conftest import files_of_at_most
from forecast import tiny

import forecaster as fc

FIT = ("--config", "tiny.yaml", "--out", "new")


def _bad_tables():
    """The files that the catalogue names."""
    day = [tiny.day(n).isoformat() for n in range(60)]
    pl.DataFrame({"date": day, "sales": range(60)}).write_csv("short.csv")
    huge = [*map(float, range(30)), 3e38, *map(float, range(29))]
    pl.DataFrame({"date": day, "sales": huge}).write_csv("huge.csv")
    texts = {
        "broken.yaml": "model: {width: 16",
        "typos.yaml": "{horizn: 7, model: {widht: 8, heads: 2}, fit: {steps: few}, trackin: {}}",
        **dict.fromkeys(("file", "file.html", "file.png"), "not a folder"),
        "other/thesis.txt": "years of work",
    }
    os.mkdir("other")
    for name, text in texts.items():
        with open(name, "w") as file:
            file.write(text)
    fc.convert("plain.csv", "store", quiet=True)


CATALOGUE = {
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
        ["--until 'never': expected a date, as YYYY-MM-DD"],
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
    "another layout than the model's": (
        ["predict", "model", "shop.csv", "--out", "new.csv", "--layout", "wide"],
        ["--layout wide: this model was fitted with long"],
    ),
    "unknown cutoff": (
        ["predict", "model", "shop.csv", "--out", "new.csv", "--cutoff", "gestern"],
        ["gestern", "YYYY-MM-DD"],
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
    "no known future": (
        ["predict", "model", "shop.csv", "--out", "new.csv"],
        ["'price' is known in advance", "series a at 2024-04-10 (lead 1 of 7)", "3 of 3 series"],
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
    "anomalies that are there": (
        ["detect", "plain_model", "plain.csv", "--out", "shop.csv"],
        ["shop.csv: exists; replace it with --overwrite"],
    ),
    "an explanation that is there": (
        ["explain", "plain_model", "plain.csv", "--out", "file.html"],
        ["file.html: exists; replace it with --overwrite"],
    ),
    "a suffix that is not known": (
        ["predict", "plain_model", "plain.csv", "--out", "new.ods"],
        ["new.ods: expected a name ending in .csv, .parquet or .xlsx"],
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
            "1",
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
    "quantile levels outside 0 and 1": (
        ["fit", "shop.csv", "--horizon", 7, "--set", "model.quantile_levels=[0.5,1.0]", "--out", "new"],
        ["quantile_levels [0.5, 1.0] must rise strictly between 0 and 1"],
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


DAMAGE = {
    "a flipped byte": (
        lambda: _flip_a_byte("model/member-00.safetensors"),
        ["member-00.safetensors: damaged: expected sha256"],
    ),
    "a truncated contract": (
        lambda: os.truncate("model/contract.json", 100),
        ["contract.json: damaged, not JSON"],
    ),
    "a config of another kind": (
        lambda: tiny.Path("model/plan.json").write_text("[]"),
        ["plan.json: damaged, expected an object, found list"],
    ),
    "a contract of another shape": (
        lambda: _edit_contract(shape={"horizon": 7, "channels": "many"}),
        ["model", "damaged"],
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


@pytest.mark.parametrize("there_before", [False, True], ids=["new", "replacing"])
def test_a_full_disk_leaves_no_half_model_and_the_old_one(folder, shell, there_before):
    if there_before:
        tiny.model().save("new")
    before = tiny.tree(folder)
    with files_of_at_most(1024):
        answer = shell("fit", "plain.csv", "--horizon", 7, *FIT, "--overwrite")
    assert _is_refused(answer, ["new.run", "cannot be written: File too large"])
    assert tiny.tree(folder) == before
