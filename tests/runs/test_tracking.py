"""One MLflow run per piece of work; tracking never breaks or delays the work."""

import json
import os
import re
import shutil
import socket
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from forecast import tiny
from mlflow.tracking import MlflowClient

import forecaster as fc
from forecaster.config import TrackingConfig
from forecaster.evaluation.report import render_report
from forecaster.runs import tracking
from forecaster.runs.console import Screen
from forecaster.runs.tracking import TrackedRun, open_run, probe, where_to_look

# MLflow's own use of SQLAlchemy; nothing of ours.
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")

TRACKED = tiny.TINY | {"tracking": {"enabled": True}}


def _runs(folder):
    """All runs of the store in a folder, oldest first."""
    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    ids = [experiment.experiment_id for experiment in client.search_experiments()]
    return client, client.search_runs(ids, order_by=["attributes.start_time"])


def _fit(out=None, model=tiny.NETWORK["model"], steps=2, **tracked):
    fit = {"steps": steps, "batch_size": 16}
    config = TRACKED | {"tracking": TRACKED["tracking"] | tracked, "model": model, "fit": fit}
    return fc.fit(tiny.shop(), horizon=7, known="price", config=config, out=out)


@pytest.fixture(scope="module")
def tracked(tmp_path_factory, empty_store):
    """A model that was fitted in a folder with a default store: (folder, model, client, run)."""
    folder = tmp_path_factory.mktemp("tracked") / "forecaster"
    folder.mkdir()
    shutil.copy(empty_store, folder / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_DATA_HOME", str(folder.parent))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        model = _fit(out=folder / "models" / "shop", model=tiny.TINY["model"], steps=20)
    client, (run,) = _runs(folder)
    return folder, model, client, run


@pytest.mark.long
def test_a_run_has_the_plan_versions_scores_and_the_table(tracked):
    _, model, _, run = tracked
    assert run.info.run_name == "shop" and run.info.status == "FINISHED"
    params = run.data.params
    assert params["horizon"] == "7" and params["fit.steps"] == "20"
    assert params["model.attention_length"] == str(model.config.model.context_length) == "28"
    assert params["data.known"] == "['price']" and params["data.freq"] == "1d"
    tags = run.data.tags
    assert tags["fingerprint"] == model.artifact.fingerprint
    for name in ("attention-forecaster", "torch", "pytorch-lightning", "polars", "numpy"):
        assert tags[f"version.{name}"] == model.artifact.versions[name] != "unknown"
    for name, scores in model.metrics["validation"]["scores"].items():
        for metric, value in scores.items():
            found = run.data.metrics[f"validation/{name.replace(' ', '_')}/{metric}"]
            assert found == pytest.approx(value)
    (entry,) = run.inputs.dataset_inputs
    assert entry.dataset.digest.startswith(f"{model.artifact.fingerprint[:16]}-")
    roles = json.loads(entry.dataset.schema)["roles"]
    assert roles == {
        "date": "time",
        "store": "series",
        "sales": "target",
        "price": "known",
        "visitors": "past",
        "city": "static",
    }
    assert [(tag.key, tag.value) for tag in entry.tags] == [("mlflow.data.context", "training")]


@pytest.mark.long
def test_a_run_has_curves_with_their_steps(tracked):
    _, model, client, run = tracked
    curves = model.metrics["curves"]
    validated = {"validation_loss", "network_loss", "network_weight"}
    assert set(curves) == {"train_loss", "learning_rate"} | validated
    for name, points in curves.items():
        history = client.get_metric_history(run.info.run_id, name)
        assert [(point.step, point.value) for point in history] == [tuple(point) for point in points]
        every = 2 if name in validated else 10
        assert [step for step, _ in points] == list(range(every, 21, every))


def test_a_run_has_the_model_and_its_pictures(tracked):
    folder, model, client, run = tracked
    names = {file.path for file in client.list_artifacts(run.info.run_id, "model")}
    wanted = set(os.listdir(folder / "models" / "shop"))
    assert {"contract.json", "member-00.safetensors", "card.md", "forecast.png", "loss.png"} <= wanted
    assert names == {f"model/{name}" for name in wanted}
    stored = client.download_artifacts(run.info.run_id, "model", str(folder / "models"))
    again = fc.load(stored).predict(tiny.shop(), future=tiny.prices())
    expected = model.predict(tiny.shop(), future=tiny.prices())
    assert tiny.bits(again.quantiles) == tiny.bits(expected.quantiles)
    page = client.download_artifacts(run.info.run_id, "report.html", str(folder))
    assert Path(page).read_bytes() == (folder / "models" / "shop" / "report.html").read_bytes()


def test_the_default_store_lies_in_the_users_data_folder_with_absolute_artifacts(tracked):
    folder, _, client, run = tracked
    assert client.get_experiment(run.info.experiment_id).name == "forecaster"
    assert run.info.artifact_uri.removeprefix("file://").startswith(f"{folder}/mlartifacts/")
    assert (folder / "mlartifacts").is_dir()


@pytest.mark.long
def test_the_environment_says_where_runs_go_and_the_config_says_it_louder(place, monkeypatch, capsys):
    for name in ("environment", "config"):
        (place / name).mkdir()
        shutil.copy(place / "mlflow.db", place / name / "mlflow.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place}/environment/mlflow.db")
    _fit()
    assert "tracked, see it with: " in capsys.readouterr().out
    _fit(uri=f"sqlite:///{place}/config/mlflow.db", experiment="shops")
    assert [len(_runs(place / name)[1]) for name in (".", "environment", "config")] == [0, 1, 1]
    client, (run,) = _runs(place / "config")
    assert client.get_experiment(run.info.experiment_id).name == "shops"


@pytest.mark.long
def test_a_fit_without_tracking_leaves_no_run_and_one_with_a_name_has_it(place, capsys):
    given = {"config": TRACKED | {"model": tiny.NETWORK["model"]}, "quiet": True}
    model = fc.fit(tiny.plain(), 7, **given, tracking=False)
    assert not model.tracking.enabled
    fc.Forecaster(model.artifact).backtest(tiny.plain(), windows=1, quiet=True, tracking=False)
    assert _runs(place)[1] == []
    assert os.listdir(place) == ["mlflow.db"]
    model = fc.fit(tiny.plain(), 7, **given, name="bread", lower=0, upper=99, integer=True)
    model.backtest(tiny.plain(), windows=1, quiet=True, name="bread again")
    first, second = _runs(place)[1]
    assert [run.info.run_name for run in (first, second)] == ["bread", "bread again"]
    assert first.data.params["target.lower"] == "0.0" and first.data.params["target.integer"] == "True"
    assert model.config.target.upper == 99 and set(
        np.mod(model.predict(tiny.plain()).median, 1).flat
    ) == {0}


@pytest.mark.long
def test_runs_leave_no_file_in_the_working_folder_and_where_they_are_is_said_once(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    where = f"runs are recorded in {tmp_path}/data/forecaster/mlflow.db: MLFLOW_TRACKING_URI names"
    for first in (True, False):
        with open_run(TrackingConfig(), "x") as run:
            pass
        console = Screen(width=200)
        with console.capture() as said:
            console.print_tracked(run)
        tracked, *others = said.get().splitlines()
        assert tracked.startswith("tracked, see it with: ")
        assert [line.startswith(where) for line in others] == [True] * first
    assert not os.listdir(tmp_path / "work")


@contextmanager
def _port(answer=None):
    """A loopback port that accepts and never answers, or answers some bytes; yields its address."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        held = []

        def serve():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                held.append(connection)
                if answer is not None:
                    connection.recv(1024)
                    connection.sendall(answer)
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in held:
            connection.close()


@pytest.mark.long
def test_a_run_is_logged_locally_while_its_store_is_away_and_copied_later(
    place, monkeypatch, capsys, shell
):
    with _port() as address:
        pass  # closed again: nobody listens there now
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    model = _fit(out=place / "model", steps=20)
    local = f"sqlite:///{place}/mlflow.db"
    said = capsys.readouterr().out
    assert (
        f"MLflow store {address}: [Errno 111] Connection refused; the run is logged to {local}" in said
    )
    assert "copy it later with: forecaster runs sync" in said
    client, (run,) = _runs(place)
    assert run.info.status == "FINISHED" and run.info.run_name == "model"
    assert run.data.tags["fingerprint"] == model.artifact.fingerprint
    assert run.data.params["fit.steps"] == "20"
    history = client.get_metric_history(run.info.run_id, "train_loss")
    assert [(p.step, p.value) for p in history] == [
        tuple(p) for p in model.metrics["curves"]["train_loss"]
    ]
    # Still away: nothing is copied, with the reason.
    answer = shell("runs", "sync")
    assert answer.code == 2 and "Connection refused; 1 run not copied" in answer.err
    # Back again, here as another store.
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    (place / "other").mkdir()
    shutil.copy(place / "mlflow.db", place / "other" / "mlflow.db")
    other = f"sqlite:///{place}/other/mlflow.db"
    answer = shell("runs", "sync", "--uri", other)
    assert answer.code == 0 and f"copied 1 run to {other}" in answer.out


def test_a_store_that_never_answers_is_given_up_after_three_seconds(place, monkeypatch):
    assert tracking._PROBE_SECONDS == 3
    monkeypatch.setattr(tracking, "_PROBE_SECONDS", 0.5)
    with _port() as address:
        begun = time.monotonic()
        away = probe(address)
        waited = time.monotonic() - begun
        with open_run(TrackingConfig(uri=address), "x") as run:
            pass
    assert "timed out" in away and "timed out" in run.lost
    assert run.recorded and run.uri == f"sqlite:///{place}/mlflow.db"
    assert 0.4 <= waited <= 1.5


def test_a_store_that_hangs_half_way_is_tried_once_and_never_again(place, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with _port() as address:
        run = TrackedRun(address, "forecaster", "x")
        run.recorded, run.run_id = True, "0" * 32
        begun = time.monotonic()
        for step in range(20):
            run.log_metrics([("train_loss", 0.5, 1_700_000_000_000, step)])
        waited = time.monotonic() - begun
        run.close()
    assert "timed out" in run.lost
    client, (kept,) = _runs(place)
    assert len(client.get_metric_history(kept.info.run_id, "train_loss")) == 20
    assert kept.data.tags["forecaster.continues"] == "0" * 32
    assert waited < 15  # a wait per call would be 20 s


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/9\r\n\r\n"])
def test_a_port_that_speaks_something_else_costs_no_fit(place, answer):
    with _port(answer) as address, open_run(TrackingConfig(uri=address), "x") as run:
        assert run.recorded and run.lost


@pytest.mark.parametrize("uri", ["http://", "nonsense://x", "sqlite:////dev/null/x"])
def test_an_address_that_is_none_costs_no_fit(place, uri):
    with open_run(TrackingConfig(uri=uri), "x") as run:
        assert run.recorded and run.lost


@pytest.mark.parametrize("call", ["log_batch", "log_artifacts"])
def test_a_local_store_that_fails_half_way_leaves_the_fit_alive(place, monkeypatch, capsys, call):
    def fail(*args, **kwargs):
        raise RuntimeError("the store is gone\nwith details")

    monkeypatch.setattr(MlflowClient, call, fail)
    model = _fit(out=place / "model")
    said = capsys.readouterr().out
    assert f"not tracked: MLflow store sqlite:///{place}/mlflow.db: the store is gone" in said
    assert "with details" not in said
    loaded = fc.load(place / "model").predict(tiny.shop(), future=tiny.prices())
    expected = model.predict(tiny.shop(), future=tiny.prices())
    assert tiny.bits(loaded.quantiles) == tiny.bits(expected.quantiles)


def test_a_run_continues_where_it_was_interrupted_and_keeps_its_points(place):
    with pytest.raises(KeyboardInterrupt), open_run(TrackingConfig(), "x") as first:
        first.log_metrics([("train_loss", 0.5, 1_700_000_000_000, 1)])
        raise KeyboardInterrupt
    assert _runs(place)[1][0].info.status == "KILLED"
    with open_run(TrackingConfig(), "x", first.run_id) as again:
        again.log_metrics([("train_loss", 0.5, 1_700_000_009_999, step) for step in (1, 2)])
    client, (run,) = _runs(place)
    assert run.info.status == "FINISHED" and again.run_id == first.run_id
    history = client.get_metric_history(run.info.run_id, "train_loss")
    assert sorted((point.step, point.timestamp) for point in history) == [
        (1, 1_700_000_000_000),
        (2, 1_700_000_009_999),
    ]


@pytest.mark.long
@pytest.mark.usefixtures("paged")
def test_a_backtest_is_a_run_with_scores_dataset_and_picture(place, capsys):
    model = fc.Forecaster(tiny.network_model().artifact)
    backtest = model.backtest(tiny.plain(), windows=1)
    client, (run,) = _runs(place)
    assert run.info.status == "FINISHED" and run.info.run_name.startswith("backtest ")
    assert run.data.params["backtest.windows"] == "1" and run.data.params["backtest.refit"] == "once"
    for name, scores in backtest.scores.items():
        for metric, value in scores.items():
            assert run.data.metrics[f"backtest/{name.replace(' ', '_')}/{metric}"] == pytest.approx(
                value, nan_ok=True
            )
    files = [file.path for file in client.list_artifacts(run.info.run_id)]
    assert files == ["backtest.png", "report.html"]
    page = client.download_artifacts(run.info.run_id, "report.html", str(place))
    assert Path(page).read_text(encoding="utf-8") == render_report(backtest)
    (entry,) = run.inputs.dataset_inputs
    assert entry.tags[0].value == "evaluation"
    assert re.search(r"tracked, see it with: .*forecaster ui\n", capsys.readouterr().out)


def test_the_page_of_the_runs_of_a_server_is_shown():
    page = "https://runs.example.org/#/experiments/3/runs?workflowType=machine_learning"
    assert where_to_look("https://runs.example.org/", "3") == page
    local = where_to_look("sqlite:////data/mlflow.db")
    assert re.fullmatch(r".*forecaster ui --uri sqlite:////data/mlflow\.db", local)
