"""`forecaster export`, and models:/ addresses where a folder is taken."""

import shutil

import polars as pl
import pytest
from forecast import tiny
from mlflow.tracking import MlflowClient

pytestmark = [
    pytest.mark.usefixtures("undrawn"),
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
]


@pytest.mark.long
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
