"""`forecaster runs` and `forecaster ui` list and show what is there."""

import json
import os
import re

import pytest
from forecast import tiny

from forecaster.config import TrackingConfig
from forecaster.runs.tracking import NOTE, open_run, opened_store

# MLflow's own use of SQLAlchemy; nothing of ours.
pytestmark = [
    pytest.mark.usefixtures("place"),
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
]


def _fit(name, experiment="forecaster"):
    schema = tiny.model().artifact.schema
    with open_run(TrackingConfig(experiment=experiment), name) as run:
        run.log_params({"horizon": 7, "fit": {"steps": 5, "seed": 0}})
        run.log_dataset("/data/shop.csv", "f" * 64, schema, "training")
        run.log_tags({"fingerprint": "f" * 64, "version.torch": "2.8"})
        run.log_metrics(
            [
                ("validation/forecaster/WQL", 0.1, 1_700_000_000_000, 0),
                ("validation/forecaster/skill", 0.25, 1_700_000_000_000, 0),
            ]
        )
    return run.run_id


def _sweep():
    with open_run(TrackingConfig(), "shop", kind="sweep", key="0" * 32) as sweep:
        for number in range(2):
            sweep.nested(f"trial-{number:03d}", {"kind": "trial", "state": "finished"}).close()
        sweep.log_tags({"trials": "2"})
        sweep.log_metrics([("best/WQL", 0.08, 1_700_000_000_000, 2)])
    return sweep.run_id


def test_runs_are_a_table_newest_first(shell):
    first = _fit("sales")
    sweep = _sweep()
    with pytest.raises(ValueError), open_run(TrackingConfig(), "backtest shop", kind="backtest"):
        raise ValueError
    code, out, err = shell("runs")
    assert (code, err) == (0, "")
    lines = [re.split(r" {2,}", line.strip()) for line in out.splitlines()]
    assert lines[0] == ["run", "name", "data", "kind", "WQL", "skill", "when", "state"]
    assert lines[1][1:6] == ["backtest shop", "-", "backtest", "-", "-"] and lines[1][-1] == "failed"
    assert lines[2][:6] == [sweep[:8], "shop", "-", "sweep, 2 trials", "0.0800", "-"]
    assert lines[3][:6] == [first[:8], "sales", "shop.csv", "fit", "0.1000", "+25.0%"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", lines[3][6]) and lines[3][7] == "finished"
    assert lines[4] == ["experiment forecaster"] and len(lines) == 5


def test_runs_can_be_chosen_and_read_by_programs(shell):
    _fit("sales")
    _fit("loads", experiment="energy")
    _sweep()
    with open_run(TrackingConfig(uri="http://127.0.0.1:1"), "x"):
        pass
    assert "experiment" in shell("runs")[1].splitlines()[0]
    told = json.loads(shell("runs", "--experiment", "energy", "--json")[1])["runs"]
    (row,) = told
    assert (row["name"], row["experiment"], row["wql"], row["skill"]) == ("loads", "energy", 0.1, 0.25)
    assert len(json.loads(shell("runs", "--json", "--limit", 2)[1])["runs"]) == 2
    trials = json.loads(shell("runs", "--json", "--trials")[1])["runs"]
    assert sorted(row["name"] for row in trials if row["kind"] == "trial") == ["trial-000", "trial-001"]
    code, _, err = shell("runs", "--experiment", "shops")
    assert code == 2
    assert (
        err == "error: --experiment shops: there is none; the store has Default, energy, forecaster\n"
    )


def test_without_a_store_nothing_is_made_and_it_is_said(shell, place):
    (place / "mlflow.db").unlink()
    for words in (["runs"], ["ui"]):
        code, out, err = shell(*words)
        assert (code, out) == (2, "") and not list(place.iterdir())
        uri = f"sqlite:///{place}/mlflow.db"
        assert err == f"error: MLflow store {uri}: it does not exist; forecaster fit creates it\n"


def test_a_store_without_runs_is_said_to_have_none(shell):
    assert shell("runs") == (0, "no runs recorded\n", "")
    code, out, err = shell("runs", "--json")
    assert (code, err) == (0, "no runs recorded\n") and json.loads(out)["runs"] == []


@pytest.mark.parametrize("uri", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_a_store_in_memory_holds_no_run(uri, place, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with open_run(TrackingConfig(), "sales") as run:
        pass
    assert run.uri == f"sqlite:///{place}/mlflow.db"
    assert run.lost == "it is in memory and ends with this process; name a file, as sqlite:///mlflow.db"


def test_runs_that_are_only_local_are_counted(shell, place):
    with open_run(TrackingConfig(uri="http://127.0.0.1:1"), "x"):
        pass
    line = "1 run in the local store only; copy with: forecaster runs sync\n"
    assert shell("runs")[1].endswith(line)


def test_ui_becomes_an_mlflow_server_of_this_machine_alone(shell, place, monkeypatch):
    class Replaced(Exception):
        pass

    def execv(program, words):
        raise Replaced(" ".join(words[1:]))

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with pytest.raises(Replaced) as replaced:
        shell("ui", "--port", 5123)
    assert str(replaced.value) == (
        "-m mlflow server --host 127.0.0.1 --port 5123 --workers 1 --backend-store-uri "
        f"sqlite:///{place}/mlflow.db --artifacts-destination {place}/mlartifacts"
    )


def test_a_server_needs_no_server(shell):
    code, _, err = shell("ui", "--uri", "http://me:secret@runs.example.org")
    assert code == 2
    assert err == "error: http://runs.example.org is a server already: open that address in a browser\n"


def test_a_file_that_is_no_store_is_one_line(shell, place):
    (place / "mlflow.db").write_text("not a database")
    code, _, err = shell("runs")
    assert code == 2 and err.count("\n") == 1 and err.startswith("error: MLflow store sqlite:///")


def test_ui_names_the_page_of_the_runs_that_were_last_recorded(shell, monkeypatch):
    monkeypatch.setattr(os, "execv", lambda *given: None)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    assert shell("ui")[1] == "runs: http://127.0.0.1:5000/\n"
    _fit("sales")
    _fit("loads", experiment="energy")
    with opened_store(TrackingConfig()) as client:
        made = client.get_experiment_by_name("energy")
    page = f"#/experiments/{made.experiment_id}/runs?workflowType=machine_learning"
    assert shell("ui")[1] == f"runs: http://127.0.0.1:5000/{page}\n"
    assert f"[Runs]({page})" in made.tags[NOTE]
