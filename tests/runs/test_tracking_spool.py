"""What a store could not take is kept, and sent later: whole, in place, once."""

import json
import re
import shutil
import socket
import sys
from contextlib import closing

import pytest
from matplotlib.figure import Figure
from mlflow.tracking import MlflowClient

from forecaster.cli import main
from forecaster.config import TrackingConfig
from forecaster.runs.tracking import sync as syncing
from forecaster.runs.tracking.identity import Identity, sweep_identity
from forecaster.runs.tracking.run import TrackedRun, open_run
from forecaster.runs.tracking.spool import Spool, Waiting, waiting
from forecaster.runs.tracking.sync import sync

# MLflow's own use of SQLAlchemy; nothing of ours.
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")

POINTS = [("train_loss", 1.0 / step, 1_700_000_000_000 + step, step) for step in range(1, 6)]


def _dead_address():
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    return f"http://127.0.0.1:{port}"


def _store(place):
    client = MlflowClient(tracking_uri=f"sqlite:///{place}/mlflow.db")
    ids = [experiment.experiment_id for experiment in client.search_experiments()]
    return client, client.search_runs(ids, order_by=["attributes.start_time"])


def _log_everything(run, folder):
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "card.md").write_text("a card")
    run.log_params({"fit": {"steps": 5}})
    run.log_metrics(POINTS)
    run.log_tags({"fingerprint": "abc"})
    run.log_figure(Figure(), "loss.png")
    run.log_folder(folder / "model", "model")


def _assert_whole(client, run):
    assert run.data.params == {"fit.steps": "5"} and run.data.tags["fingerprint"] == "abc"
    history = client.get_metric_history(run.info.run_id, "train_loss")
    found = [(point.key, point.value, point.timestamp, point.step) for point in history]
    assert found == POINTS
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["loss.png", "model"]
    card = client.list_artifacts(run.info.run_id, "model")
    assert [file.path for file in card] == ["model/card.md"]


def _shell(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["forecaster", *map(str, words)])
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code


@pytest.fixture
def away(place):
    """A folder where a whole run waits: (folder, identity). Its store was never there."""
    with open_run(TrackingConfig(uri=_dead_address()), "sales") as run:
        _log_everything(run, place)
    return place, run.identity


def test_a_run_that_no_store_has_seen_arrives_as_it_was(away):
    place, identity = away
    shutil.rmtree(place / "model")  # copies wait, not names
    (kept,) = waiting(place / "mlflow-pending")
    ended = kept.entries()[-1]["at"]
    done = sync(f"sqlite:///{place}/mlflow.db")
    assert done.sent == {f"sqlite:///{place}/mlflow.db": 1} and not (done.away or done.refused)
    client, (run,) = _store(place)
    _assert_whole(client, run)
    assert run.info.run_name == "sales" and run.info.status == "FINISHED"
    assert (run.info.start_time, run.info.end_time) == (identity.started, ended)
    assert not (place / "mlflow-pending").exists()


def test_a_second_sync_sends_nothing(away, monkeypatch, capsys):
    place, _ = away
    words = ("runs", "sync", "--uri", f"sqlite:///{place}/mlflow.db")
    assert _shell(monkeypatch, *words) == 0
    assert "sent 1 run to sqlite" in capsys.readouterr().out
    assert _shell(monkeypatch, *words) == 0
    assert capsys.readouterr().out == "no run waits for its store\n"
    client, (run,) = _store(place)
    _assert_whole(client, run)


@pytest.mark.parametrize("lost_at", range(5))
def test_what_arrived_before_the_loss_and_what_did_not_are_one_run(place, monkeypatch, lost_at):
    calls = []

    def counted(name):
        real = getattr(MlflowClient, name)

        def call(*args, **kwargs):
            calls.append(name)
            if len(calls) > lost_at:
                raise ConnectionError("gone")
            return real(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in ("log_batch", "log_artifacts", "set_terminated"):
            patch.setattr(MlflowClient, name, counted(name))
        with open_run(TrackingConfig(), "sales") as run:
            _log_everything(run, place)
    assert run.lost == "gone" and len(calls) == lost_at + 1, "a store is not asked again"
    (before,) = _store(place)[1]
    assert before.info.status == "RUNNING"
    sync()
    client, (after,) = _store(place)
    assert after.info.run_id == run.run_id and after.info.status == "FINISHED"
    _assert_whole(client, after)


@pytest.mark.parametrize("moment", range(7))
def test_a_sync_that_is_killed_and_repeated_doubles_nothing(away, monkeypatch, moment):
    place, _ = away
    uri, real, noted = f"sqlite:///{place}/mlflow.db", Waiting.note_sent, []

    def note(self, count):
        noted.append(count)
        if len(noted) > moment:
            raise SystemExit("killed")  # the entry has arrived, and nobody knows
        real(self, count)

    monkeypatch.setattr(Waiting, "note_sent", note)
    if moment < 6:
        with pytest.raises(SystemExit):
            sync(uri)
    monkeypatch.setattr(Waiting, "note_sent", real)
    assert sync(uri).sent == {uri: 1}
    client, (run,) = _store(place)
    _assert_whole(client, run)
    assert sync(uri).sent == {}


def test_a_sync_killed_before_its_first_entry_makes_no_second_run(away, monkeypatch):
    place, _ = away
    uri, real = f"sqlite:///{place}/mlflow.db", syncing.send

    def die(*args):
        raise SystemExit

    monkeypatch.setattr(syncing, "send", die)
    with pytest.raises(SystemExit):
        sync(uri)
    monkeypatch.setattr(syncing, "send", real)
    sync(uri)
    client, (run,) = _store(place)
    _assert_whole(client, run)


def test_nested_runs_find_the_parent_that_they_were_made_under(place):
    address = _dead_address()
    sweep = sweep_identity("forecaster", "shop", "studies/shop.journal")
    for number in range(2):
        run = TrackedRun(address, Identity(f"trial-{number:03d}", "forecaster", parent=sweep))
        run.open()
        run.close()
    sync(f"sqlite:///{place}/mlflow.db")
    _, runs = _store(place)
    (parent,) = [run for run in runs if run.info.run_name == "shop"]
    # Both may have begun within one millisecond: a store tells no order then.
    trials = [run for run in runs if run is not parent]
    assert sorted(run.info.run_name for run in trials) == ["trial-000", "trial-001"]
    assert {run.data.tags["mlflow.parentRunId"] for run in trials} == {parent.info.run_id}


def test_a_run_that_is_still_written_is_left_alone(place, monkeypatch, capsys):
    with open_run(TrackingConfig(uri=_dead_address()), "sales") as run:
        run.log_metrics(POINTS)
        assert _shell(monkeypatch, "runs", "sync", "--uri", f"sqlite:///{place}/mlflow.db") == 0
        assert "1 run still being written" in capsys.readouterr().out
        assert run.kept.is_dir() and _store(place)[1] == []
    assert sync(f"sqlite:///{place}/mlflow.db").busy == 0
    assert len(_store(place)[1]) == 1


def test_the_run_of_a_killed_process_ends_as_failed(place):
    run = TrackedRun(_dead_address(), Identity("sales", "forecaster"))
    run.open()
    run.log_metrics(POINTS)
    with (run.kept / "entries.jsonl").open("a") as file:
        file.write('{"metrics": [["train_')  # cut off in the middle of a line
    run._spool.close()  # as its death does
    sync(f"sqlite:///{place}/mlflow.db")
    client, (found,) = _store(place)
    assert found.info.status == "FAILED"
    assert len(client.get_metric_history(found.info.run_id, "train_loss")) == len(POINTS)


def test_what_a_store_refuses_keeps_nothing_else_back(place, monkeypatch, capsys):
    with open_run(TrackingConfig(uri=_dead_address()), "sales") as run:
        run.log_params({"steps": 5})
        run.log_params({"steps": 6})  # MLflow lets no parameter change
        run.log_metrics(POINTS)
    assert _shell(monkeypatch, "runs", "sync", "--uri", f"sqlite:///{place}/mlflow.db") == 0
    said = capsys.readouterr()
    assert re.match(r"refused by the store, and left out: sales: .*Changing param values", said.err)
    client, (found,) = _store(place)
    assert found.data.params == {"steps": "5"} and found.info.status == "FINISHED"
    assert len(client.get_metric_history(found.info.run_id, "train_loss")) == len(POINTS)
    assert sync().sent == {}


def test_a_store_that_is_still_away_keeps_what_waits(away, monkeypatch, capsys):
    place, _ = away
    assert _shell(monkeypatch, "runs", "sync") == 2
    error = capsys.readouterr().err
    assert re.fullmatch(r"error: MLflow store http://127.*refused; 1 run still waiting\n", error)
    assert len(waiting(place / "mlflow-pending")) == 1


def test_without_room_for_it_a_run_is_dropped_and_the_work_goes_on(place):
    (place / "mlflow-pending").write_text("a file where the folder should be")
    with open_run(TrackingConfig(uri=_dead_address()), "sales") as run:
        run.log_metrics(POINTS)
    assert run.lost and run.dropped and not run.recorded and run.kept is None


def test_a_disk_that_fills_up_half_way_drops_the_rest(place, monkeypatch):
    with open_run(TrackingConfig(uri=_dead_address()), "sales") as run:
        run.log_metrics(POINTS)

        def full(*args):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Spool, "add", full)
        run.log_metrics(POINTS)
        assert not run.recorded and "No space left" in run.dropped


def test_the_working_directory_may_change_while_a_run_is_open(place, monkeypatch):
    (place / "elsewhere").mkdir()
    run = TrackedRun(f"sqlite:///{place}/mlflow.db", Identity("sales", "forecaster"))
    run.open()
    run.lost = "gone"
    monkeypatch.chdir(place / "elsewhere")
    run.close()
    assert len(waiting(place / "mlflow-pending")) == 1


def test_a_password_in_an_address_is_not_shown(place, monkeypatch, capsys):
    address = _dead_address().replace("http://", "http://me:secret@")
    with open_run(TrackingConfig(uri=address), "sales"):
        pass
    assert _shell(monkeypatch, "runs", "sync") == 2
    assert "secret" not in capsys.readouterr().err
    sweep = sweep_identity("forecaster", "shop", "postgresql://me:secret@host/studies")
    assert "secret" not in json.dumps(sweep.to_dict())
