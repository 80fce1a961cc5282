"""Tracking with real parts: a server over HTTP that dies half-way, pages that are served."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import polars as pl
import psutil
import pytest
from evaluation.browser import opened_browser
from forecast import tiny
from matplotlib.figure import Figure
from mlflow.tracking import MlflowClient
from runs.processes import end, free_port

import forecaster as fc
from forecaster.config import TrackingConfig
from forecaster.model.learner import Learner
from forecaster.runs.tracking import open_run, pending, sync

pytestmark = [
    pytest.mark.slow,
    # MLflow's own use of SQLAlchemy; nothing of ours.
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
]
CHROMIUM = shutil.which("chromium")
PROGRAM = "import sys; from forecaster.cli import main; main()"
CONFIG = tiny.TINY | {
    "tracking": {"enabled": True},
    "fit": {"steps": 20, "batch_size": 16},
}


@contextmanager
def _server(folder, port):
    """A tracking server on the database of a folder."""
    words = ["--workers", "1", "--host", "127.0.0.1", "--port", str(port)]
    words += ["--backend-store-uri", f"sqlite:///{folder}/server.db"]
    words += ["--artifacts-destination", str(folder / "kept")]
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    server = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", *words],
        cwd=folder,
        env=os.environ | quiet,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for _ in range(240):
            assert server.poll() is None
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.5)
        yield server
    finally:
        end(server)


@contextmanager
def _ui(*words):
    """`forecaster ui` in a process of its own; yields it and the address that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "ui", *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    children = []
    try:
        address = process.stdout.readline().removeprefix("runs: ").strip()
        host = address.partition("/#")[0].rstrip("/")
        for _ in range(240):
            assert process.poll() is None
            try:
                urllib.request.urlopen(f"{host}/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.5)
        children = psutil.Process(process.pid).children(recursive=True)
        yield process, address, children
    finally:
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        end(process)
        process.stdout.close()
        process.stderr.close()


def _assert_ends(process, children, number):
    assert len(children) >= 1
    process.send_signal(number)
    process.wait(timeout=60)
    gone, alive = psutil.wait_procs(children, timeout=30)
    assert not alive and len(gone) == len(children)


def _trial(sweep, number):
    trial = sweep.nested(f"trial-{number:03d}", {"kind": "trial"})
    trial.log_metrics([("train_loss", 0.5, 1_700_000_000_000, 10)])
    trial.log_figure(Figure(), "forecast.png")
    trial.close()


@pytest.mark.usefixtures("short_fits")
def test_a_server_that_dies_in_a_fit_and_in_a_sweep_gets_all_of_it_later(
    place, monkeypatch, empty_store, capsys
):
    shutil.copy(empty_store, place / "server.db")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    with _server(place, port) as server:
        whole = fc.fit(tiny.shop(), horizon=7, known="price", config=CONFIG, out=place / "whole")
        assert f"tracked, see it with: {address}" in capsys.readouterr().out
        with open_run(TrackingConfig(), "shop", kind="sweep", key="shop") as sweep:
            _trial(sweep, 0)
            step = Learner.on_train_batch_end

            def die(self, *args):
                step(self, *args)
                if server.poll() is None and self.global_step == 12:
                    end(server)

            monkeypatch.setattr(Learner, "on_train_batch_end", die)
            cut = fc.fit(tiny.shop(), horizon=7, known="price", config=CONFIG, out=place / "cut")
            printed = capsys.readouterr().out
            assert f"MLflow store {address}" in printed
            assert printed.count("forecaster runs sync") == 1
            for number in (1, 2):
                _trial(sweep, number)
    # The fit's rest, two trials, and the end of the sweep.
    assert len(pending()) == 4
    with _server(place, port):
        assert sync().sent == {address: 4}
        assert sync().sent == {} and pending() == []
        client = MlflowClient(tracking_uri=address)
        experiment = client.get_experiment_by_name("forecaster")
        runs = client.search_runs([experiment.experiment_id])
        named = {run.info.run_name: run for run in runs}
        assert len(runs) == 6 and {run.info.status for run in runs} == {"FINISHED"}
        for name, model in (("whole", whole), ("cut", cut)):
            run = named[name]
            assert run.data.tags["fingerprint"] == model.artifact.fingerprint
            assert np.isfinite(run.data.metrics["validation/forecaster/WQL"])
            history = client.get_metric_history(run.info.run_id, "train_loss")
            wanted = [tuple(point) for point in model.metrics["curves"]["train_loss"]]
            assert [(point.step, point.value) for point in history] == wanted
            files = {file.path for file in client.list_artifacts(run.info.run_id, "model")}
            assert {"model/contract.json", "model/forecast.png"} <= files
        parent = named["shop"].info.run_id
        for number in range(3):
            assert named[f"trial-{number:03d}"].data.tags["mlflow.parentRunId"] == parent


def test_the_server_ends_with_its_command_and_leaves_no_child(place):
    with _ui("--port", free_port()) as (process, address, children):
        with urllib.request.urlopen(f"{address.rstrip('/')}/health", timeout=30) as answer:
            assert answer.status == 200
        _assert_ends(process, children, signal.SIGTERM)


@pytest.mark.skipif(CHROMIUM is None, reason="needs the package chromium")
def test_a_browser_without_a_past_reads_the_names_of_the_runs_at_the_printed_page(place):
    names = ("shop-in-spring", "shop-in-autumn")
    for name in names:
        with open_run(TrackingConfig(), name):
            pass
    with _ui("--port", free_port()) as (_, address, _), opened_browser(CHROMIUM) as page:
        page.open(address)
        for name in names:
            page.wait(f"document.body.innerText.includes('{name}')")
        assert "Traces\n0" not in page.text()


def test_the_recipe_of_a_current_model_moves_the_champion_month_by_month(tmp_path, monkeypatch, shell):
    page = (Path(__file__).parents[2] / "docs" / "how-to.md").read_text(encoding="utf-8")
    recipe = re.search(r"^## Keep a model current\n+```\n(.+?)^```$", page, re.MULTILINE | re.DOTALL)
    lines = [shlex.split(line)[1:] for line in recipe[1].splitlines()]
    whole, port = tiny.plain(200), free_port()
    monkeypatch.chdir(tmp_path)
    with _server(tmp_path, port):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
        first = fc.fit(
            whole.filter(pl.col("date") < tiny.day(100)), horizon=7, config=CONFIG, quiet=True
        )
        first.export("sales")
        client = MlflowClient(tracking_uri=f"http://127.0.0.1:{port}")
        for version, (days, month) in enumerate(((130, "may"), (160, "june"), (190, "july")), start=2):
            whole.filter(pl.col("date") < tiny.day(days)).write_csv("sales.csv")
            for words in lines:
                done = shell(*(word.replace("$MONTH", month) for word in words), "--overwrite")
                assert done.code == 0, done.err
            assert int(client.get_model_version_by_alias("sales", "champion").version) == version
            assert str(pl.read_csv("next.csv")["cutoff"][0]) == str(tiny.day(days - 1))
            updated = fc.load(f"models/sales_{month}").artifact
            assert updated.ancestry["until"] == tiny.day(days - 1).isoformat()
        kinds = client.search_runs(
            [client.get_experiment_by_name("forecaster").experiment_id], "tags.kind = 'update'"
        )
        assert len(kinds) == 3 and all("mlflow.parentRunId" in run.data.tags for run in kinds)
        assert Path("monitor.html").read_text().startswith("<!doctype html>")
