"""`forecaster export`, and models:/ addresses where a folder is taken."""

import re
import shlex
import shutil
from pathlib import Path

import polars as pl
import pytest
from forecast import tiny
from mlflow.tracking import MlflowClient

pytestmark = [
    pytest.mark.usefixtures("undrawn"),
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
]


def test_a_model_is_registered_and_forecasts_by_its_name(folder, shell, monkeypatch, empty_store):
    shutil.copy(empty_store, folder / "mlflow.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    done = shell("export", "plain_model", "--mlflow", "plain")
    assert done.code == 0 and done.err == ""
    store = f"MLFLOW_TRACKING_URI=sqlite:///{folder}/mlflow.db"
    assert done.out.splitlines() == [
        "plain version 1 is the champion: there was none",
        f"forecast with it: {store} forecaster predict models:/plain@champion DATA --out FILE",
        f"serve it: {store} mlflow models serve -m models:/plain@champion --env-manager local --port 5001",
    ]
    for model in ("models:/plain@champion", "plain_model"):
        assert shell("predict", model, "plain.csv", "--out", f"{model[:6]}.csv").code == 0
    assert pl.read_csv("models.csv").equals(pl.read_csv("plain_.csv"))
    shutil.copytree("plain_model", "same")
    again = shell("export", "same", "--mlflow", "plain")
    assert again.out.splitlines()[0] == "plain version 1 is the champion already"
    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    assert len(client.search_model_versions("name = 'plain'")) == 1
    gone = shell("predict", "models:/plain/2", "plain.csv", "--out", "none.csv")
    assert gone.code == 2 and not (folder / "none.csv").exists()
    assert gone.err == "error: model 'plain' has no version /2; it has @champion, /1, /latest\n"


@pytest.mark.slow
def test_the_recipe_of_every_month_moves_the_champion(folder, shell, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    page = (Path(__file__).parents[2] / "docs" / "how-to.md").read_text(encoding="utf-8")
    recipe = re.search(r"^## Retrain every month\n+```\n(.+?)^```$", page, re.MULTILINE | re.DOTALL)
    fit, export = (shlex.split(line)[1:] for line in recipe[1].splitlines())
    assert shell("export", "plain_model", "--mlflow", "sales").code == 0
    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    small = ["--config", "tiny.yaml", "--horizon", "7"]  # the last --horizon counts
    for days, month, version in ((110, "may", 2), (120, "june", 3)):
        tiny.plain(days).write_csv("sales.csv")
        for words, more in ((fit, small), (export, [])):
            done = shell(*(word.replace("$MONTH", month) for word in words), *more)
            assert done.code == 0, done.err
        assert "by its scores version " in done.err and "fitted to different data" in done.err
        assert int(client.get_model_version_by_alias("sales", "champion").version) == version
    assert shell("predict", "models:/sales@champion", "sales.csv", "--out", "july.csv").code == 0
    assert str(pl.read_csv("july.csv")["cutoff"][0]) == str(tiny.day(119))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to export to: give --mlflow NAME, --onnx FILE, or both"),
        (("--champion", "--onnx", "m.onnx"), "--champion: expected --mlflow NAME, the name whose"),
        (("--onnx", "m.pt"), "m.pt: expected a name ending in .onnx"),
        (("--mlflow", "a/b"), "--mlflow 'a/b': expected a name without / : and @, as sales"),
    ],
)
def test_an_export_that_makes_no_sense_is_one_line(folder, shell, words, message):
    before = tiny.tree(folder)
    done = shell("export", "plain_model", *words)
    assert done.code == 2 and done.out == ""
    assert done.err.startswith(f"error: {message}") and len(done.err.splitlines()) == 1
    assert tiny.tree(folder) == before
