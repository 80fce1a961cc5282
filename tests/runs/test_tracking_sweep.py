"""A sweep in MLflow: a parent that is found again, a nested run per trial, figures of the whole."""

import shutil
import socket
from contextlib import closing
from pathlib import Path

import optuna
import pytest
from mlflow.tracking import MlflowClient

from forecaster.config import TrackingConfig
from forecaster.runs.tracking.sweep import close_dead_trial, open_sweep, open_trial
from forecaster.runs.tracking.sweep_figures import sweep_figures
from forecaster.runs.tracking.sync import sync

# MLflow's own use of SQLAlchemy; nothing of ours.
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")

HERE = TrackingConfig()
JOURNAL = "studies/shop.journal"


@pytest.fixture(autouse=True)
def _quiet():
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def _study(trials, metrics=1, space=("width", "rate", "head"), fails=()):
    """A study of a rule that anybody can compute."""
    study = optuna.create_study(
        sampler=optuna.samplers.RandomSampler(seed=0), directions=["minimize"] * metrics
    )

    def score(trial):
        width = trial.suggest_categorical("model.width", [32, 64]) if "width" in space else 32
        rate = trial.suggest_float("fit.learning_rate", 1e-4, 1e-1, log=True) if "rate" in space else 0
        if "head" in space and trial.suggest_categorical("model.head", ["quantiles", None]) is None:
            trial.suggest_int("model.heads", 1, 4)  # conditional
        if trial.number in fails:
            raise ValueError("no")
        if trial.number % 4 == 3:
            raise optuna.TrialPruned
        value = width / 100 + rate + (50 if trial.number == 5 else 0)
        return [value, 1 - rate][:metrics] if metrics > 1 else value

    study.optimize(score, n_trials=trials, catch=(ValueError,))
    return study


def _runs(place):
    client = MlflowClient(tracking_uri=f"sqlite:///{place}/mlflow.db")
    experiment = client.get_experiment_by_name("forecaster")
    runs = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time"])
    return client, {run.info.run_name: run for run in runs}, len(runs)


def _three_trials(config, key):
    with open_trial(config, key, "shop", 0) as run:
        run.log_params({"model": {"width": 64}})
        run.log_metrics([("validation/forecaster/WQL", 0.1, 1_700_000_000_000, 0)])
    with pytest.raises(optuna.TrialPruned), open_trial(config, key, "shop", 1):
        raise optuna.TrialPruned("behind others at step 10")
    with pytest.raises(ValueError), open_trial(config, key, "shop", 2, retry_of=1):
        raise ValueError("no")


def _assert_three_trials(runs):
    parent = runs["shop"]
    for number, (state, status) in enumerate(
        [("finished", "FINISHED"), ("pruned", "KILLED"), ("failed", "FAILED")]
    ):
        run = runs[f"trial-{number:03d}"]
        tags = run.data.tags
        assert run.info.status == status and tags["state"] == state
        assert tags["mlflow.parentRunId"] == parent.info.run_id
        assert (tags["study"], tags["trial"]) == ("shop", str(number))
    assert runs["trial-000"].data.params == {"model.width": "64"}
    assert runs["trial-001"].data.tags["reason"] == "behind others at step 10"
    assert runs["trial-002"].data.tags["retry_of"] == "1"


def test_a_sweep_is_one_parent_with_a_run_per_trial(place):
    with open_sweep(HERE, "shop", JOURNAL) as sweep:
        _three_trials(HERE, sweep.key)
        assert _runs(place)[1]["shop"].info.status == "RUNNING"
    _, runs, count = _runs(place)
    _assert_three_trials(runs)
    assert count == 4 and runs["shop"].info.status == "FINISHED"
    assert runs["shop"].data.tags["kind"] == "sweep"


def test_a_study_that_goes_on_goes_on_under_its_parent(place):
    with pytest.raises(KeyboardInterrupt), open_sweep(HERE, "shop", JOURNAL) as sweep:
        raise KeyboardInterrupt
    first = _runs(place)[1]["shop"]
    assert first.info.status == "KILLED"
    with open_sweep(HERE, "shop", JOURNAL) as again:
        assert again.key == sweep.key
        going_on = _runs(place)[1]["shop"]
        assert going_on.info.run_id == first.info.run_id and going_on.info.status == "RUNNING"
    with open_sweep(HERE, "shop", "postgresql://me:secret@host/studies") as other:
        assert other.key != sweep.key
    client, _, count = _runs(place)
    assert count == 2
    assert client.get_run(other.run.run_id).data.tags["storage"] == "postgresql://host/studies"


def test_the_run_of_a_killed_worker_is_closed_when_its_trial_is_found_dead(place):
    with open_sweep(HERE, "shop", JOURNAL) as sweep:
        trial = open_trial(HERE, sweep.key, "shop", 7)
        key = trial.__enter__().key  # and never left
        assert _runs(place)[1]["trial-007"].info.status == "RUNNING"
        close_dead_trial(HERE, sweep.key, "shop", 7, key, "its process is gone")
        _, runs, count = _runs(place)
        dead = runs["trial-007"]
        assert count == 2 and dead.info.status == "FAILED"
        assert (dead.data.tags["state"], dead.data.tags["reason"]) == ("failed", "its process is gone")


def test_trials_go_on_while_the_store_is_away_and_arrive_nested(place):
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        away = TrackingConfig(uri=f"http://127.0.0.1:{server.getsockname()[1]}")
    with open_sweep(away, "shop", JOURNAL) as sweep:
        _three_trials(away, sweep.key)
        study = _study(6)
        sweep.summarise(study, study.trials, ["WQL"])
        trial = open_trial(away, sweep.key, "shop", 3)
        dead = trial.__enter__()
        dead._spool.close()  # as its death does
        close_dead_trial(away, sweep.key, "shop", 3, dead.key, "its process is gone")
    uri = f"sqlite:///{place}/mlflow.db"
    assert sync(uri).sent == {uri: 6}  # the dead trial has two parts
    client, runs, count = _runs(place)
    assert count == 5
    _assert_three_trials(runs)
    assert runs["trial-003"].data.tags["state"] == "failed"
    assert runs["trial-003"].info.status == "FAILED"
    names = [file.path for file in client.list_artifacts(runs["shop"].info.run_id)]
    assert names == ["history.png", "importance.png", "settings.png"]


def test_the_parent_tells_how_far_the_study_is(place):
    study = _study(9, fails=(4,))
    with open_sweep(HERE, "shop", JOURNAL) as sweep:
        sweep.summarise(study, study.trials, ["WQL"])
        sweep.keep_best("fit:\n  steps: 5\n")
        sweep.summarise(study, study.trials, ["WQL"])  # again and again while the study grows
    client, runs, _ = _runs(place)
    parent = runs["shop"]
    tags = parent.data.tags
    counts = [tags[f"trials{part}"] for part in ("", ".finished", ".pruned", ".failed")]
    assert counts == ["9", "6", "2", "1"]
    assert tags["best.trial"] == str(study.best_trial.number)
    for name, value in study.best_params.items():
        assert tags[f"best.{name}"] == str(value)
    (best,) = client.get_metric_history(parent.info.run_id, "best/WQL")
    assert best.value == study.best_value and best.step == 9
    path = client.download_artifacts(parent.info.run_id, "best.yaml", str(place))
    assert Path(path).read_text() == "fit:\n  steps: 5\n"


@pytest.mark.parametrize(
    ("study", "names"),
    [
        (dict(trials=30), ["history.png", "importance.png", "settings.png"]),
        (dict(trials=1), ["history.png"]),
        (dict(trials=2), ["history.png", "settings.png"]),
        (dict(trials=8, space=("rate",)), ["history.png", "importance.png", "settings.png"]),
        (dict(trials=8, space=()), ["history.png"]),
        (dict(trials=3, fails=(0, 1, 2)), []),
        (
            dict(trials=20, metrics=2),
            ["history.png", "importance.png", "settings.png", "pareto.png"],
        ),
        (dict(trials=1, metrics=2), ["history.png", "pareto.png"]),
        (dict(trials=0), []),
    ],
)
def test_every_study_has_the_figures_that_it_has_enough_for(tmp_path, study, names):
    made = _study(**study)
    metrics = ["WQL", "MASE"][: study.get("metrics", 1)]
    figures = sweep_figures(made, made.trials, metrics)
    assert list(figures) == names
    for name, figure in figures.items():
        figure.savefig(tmp_path / name)  # layout included: a warning would be an error


def test_without_tracking_a_sweep_leaves_nothing(place):
    nowhere = TrackingConfig(enabled=False)
    with open_sweep(nowhere, "shop", JOURNAL) as sweep:
        assert sweep.key is None
        with open_trial(nowhere, sweep.key, "shop", 0) as run:
            run.log_params({"a": 1})
        close_dead_trial(nowhere, sweep.key, "shop", 0, run.key, "gone")
        sweep.summarise(_study(3), [], ["WQL"])
        sweep.keep_best("")
    assert [path.name for path in place.iterdir()] == ["mlflow.db"]
    shutil.rmtree(place)
