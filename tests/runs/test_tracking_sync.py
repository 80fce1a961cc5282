"""Runs that were logged locally, because their store was away, are copied to it."""

import shutil
import subprocess
import sys

import pytest
from matplotlib.figure import Figure
from mlflow.tracking import MlflowClient

from forecaster.config import TrackingConfig
from forecaster.fitting.processes import this_process
from forecaster.runs.tracking import connect, open_run, pending, sync

# MLflow's own use of SQLAlchemy; nothing of ours.
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")

AWAY = TrackingConfig(uri="http://127.0.0.1:1")
NOW = 1_700_000_000_000


@pytest.fixture
def other(place, empty_store) -> str:
    """Another store, empty."""
    (place / "other").mkdir()
    shutil.copy(empty_store, place / "other" / "mlflow.db")
    return f"sqlite:///{place}/other/mlflow.db"


def _runs(uri):
    client = MlflowClient(tracking_uri=uri)
    ids = [experiment.experiment_id for experiment in client.search_experiments()]
    return client, {run.info.run_name: run for run in client.search_runs(ids)}


def _fit(name="fit"):
    with open_run(AWAY, name) as run:
        run.log_params({"fit": {"steps": 5}})
        run.log_metrics([("train_loss", 1 / step, NOW + step, step) for step in range(1, 1500)])
        run.log_figure(Figure(), "loss.png")
        run.log_text("a", "report.html")
    return run


def test_a_copy_holds_all_that_was_logged(other):
    run = _fit()
    assert sync(other).sent == {other: 1}
    client, runs = _runs(other)
    copy = runs["fit"]
    assert copy.info.status == "FINISHED" and copy.data.params == {"fit.steps": "5"}
    assert copy.data.tags["kind"] == "fit"
    assert copy.data.tags["forecaster.copy_of"] == run.run_id
    assert "forecaster.sync_to" not in copy.data.tags
    history = client.get_metric_history(copy.info.run_id, "train_loss")
    assert [(p.step, p.timestamp) for p in history] == [(k, NOW + k) for k in range(1, 1500)]
    assert [file.path for file in client.list_artifacts(copy.info.run_id)] == [
        "loss.png",
        "report.html",
    ]
    assert sync(other).sent == {} and pending() == []


@pytest.mark.long
def test_a_copy_that_was_interrupted_is_finished_and_not_doubled(other, monkeypatch):
    _fit()
    real = MlflowClient.log_artifacts
    monkeypatch.setattr(MlflowClient, "log_artifacts", lambda *_: 1 / 0)
    assert sync(other).away == {other: (1, "division by zero")}
    monkeypatch.setattr(MlflowClient, "log_artifacts", real)
    assert sync(other).sent == {other: 1}
    client, runs = _runs(other)
    assert len(runs) == 1
    assert len(client.get_metric_history(runs["fit"].info.run_id, "train_loss")) == 1499


def test_trials_stay_under_their_sweep_and_a_sweep_is_one_run(other):
    for number in range(2):  # two calls of one study
        with open_run(AWAY, "shop", kind="sweep", key="k") as sweep:
            trial = sweep.nested(f"trial-{number}", {"kind": "trial"})
            trial.log_metrics([("WQL", 0.1, NOW, 0)])
            trial.close("KILLED")
    assert sync(other).sent == {other: 3}
    _, runs = _runs(other)
    assert set(runs) == {"shop", "trial-0", "trial-1"}
    for number in range(2):
        trial = runs[f"trial-{number}"]
        assert trial.data.tags["mlflow.parentRunId"] == runs["shop"].info.run_id
        assert trial.info.status == "KILLED" and trial.data.metrics == {"WQL": 0.1}


def test_the_rest_of_a_run_joins_its_beginning(other):
    with open_run(TrackingConfig(uri=other), "fit") as run:
        run.log_metrics([("train_loss", 0.5, NOW, 1)])
        first = run.run_id
        run._fall_back(RuntimeError("the store is gone"), first)
        run.log_metrics([("train_loss", 0.25, NOW, 2)])
    assert run.run_id != first and run.recorded
    assert sync(other).sent == {other: 1}
    client, runs = _runs(other)
    assert runs["fit"].info.run_id == first and runs["fit"].info.status == "FINISHED"
    assert [point.step for point in client.get_metric_history(first, "train_loss")] == [1, 2]


def test_a_run_that_a_living_process_writes_is_left_alone(other, place):
    with open_run(AWAY, "fit"):
        assert (sync(other).busy, sync(other).sent) == (1, {})
    assert sync(other).sent == {other: 1}


def test_the_run_of_a_killed_process_is_copied_as_failed(other, place):
    run = open_run(AWAY, "fit").__enter__()
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True)
    host, _, started = this_process().rsplit(" ", 2)
    process = f"{host} {int(dead.stdout)} {started}"
    connect(run.uri).set_tag(run.run_id, "forecaster.process", process)
    assert sync(other).sent == {other: 1}
    assert _runs(other)[1]["fit"].info.status == "FAILED"


def test_what_a_store_refuses_is_named_and_left_out(other, monkeypatch):
    from mlflow.exceptions import MlflowException

    def refuse(*args, **named):
        raise MlflowException.invalid_parameter_value("no such dataset")

    with open_run(AWAY, "fit") as run:
        run.log_text("a", "report.html")
    monkeypatch.setattr(MlflowClient, "log_artifacts", refuse)
    done = sync(other)
    assert done.sent == {other: 1} and done.refused == ["fit: no such dataset"]
