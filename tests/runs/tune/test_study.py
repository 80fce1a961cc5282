"""A study is what its plan searches, wherever it is stored."""

import json
from dataclasses import replace
from datetime import timedelta

import optuna
import pytest
from cheap_evaluators import SPACE, bowl
from sweeps import make_plan, trials_of

from forecaster.config import Config
from forecaster.errors import ConfigError
from forecaster.fitting.processes import this_process
from forecaster.runs.resume import FitRequest
from forecaster.runs.tune import search
from forecaster.runs.tune.search import SAME_DEATHS, run_trials
from forecaster.runs.tune.space import Space
from forecaster.runs.tune.study import (
    counted,
    default_storage,
    make_pruner,
    make_sampler,
    open_storage,
    open_study,
    plan_search,
)


def _run(plan):
    run_trials(plan, open_study(plan), evaluate=bowl(plan))
    return trials_of(plan)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metrics": ("MASE",)}, "another metric (WQL, now MASE)"),
        ({"metrics": ("WQL", "MASE")}, "another metric (WQL, now WQL, MASE)"),
        ({"space": Space({"fit.learning_rate": SPACE["fit.learning_rate"]})}, "another space:"),
        ({"fingerprint": "1" * 64}, "another data:"),
        ({"until": "2024-01-01"}, "another until (the end of the table, now 2024-01-01)"),
        ({"horizon": 14}, "another horizon (7, now 14), another config:"),
    ],
)
def test_a_study_that_searched_something_else_is_refused_and_left_as_it_is(tmp_path, change, words):
    _run(make_plan(tmp_path))
    before = (tmp_path / "shop.journal").read_bytes().count(b"\n")
    with pytest.raises(ConfigError) as refused:
        open_study(make_plan(tmp_path, **change))
    assert words in str(refused.value) and "--study shop-2" in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    # Optuna notes that the study was to be created; nothing else is written.
    added = (tmp_path / "shop.journal").read_text().splitlines()[before:]
    assert all(json.loads(line)["op_code"] == 0 for line in added)


def test_identity_is_what_is_searched_and_not_how(tmp_path):
    plan = make_plan(tmp_path)
    same = replace(plan, trials=3, sampler="gp", pruner="asha", workers=2, seed=5, storage="x")
    same = replace(same, config=plan.config.replaced(tracking={"uri": "elsewhere"}))
    assert same.identity == plan.identity


def test_a_study_of_another_program_is_refused(tmp_path):
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "shop.journal"))
    storage = optuna.storages.JournalStorage(backend)
    study = optuna.create_study(storage=storage, study_name="shop", direction="minimize")
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    with pytest.raises(ConfigError, match=r"created by another program.*--study shop-2"):
        open_study(make_plan(tmp_path))
    assert len(study.get_trials()) == 1 and study.user_attrs == {}


def test_a_journal_lies_beside_the_tracking_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert default_storage("shop", "sqlite:////data/mlflow.db") == "/data/studies/shop.journal"
    assert default_storage("shop", "http://host:1") == f"{tmp_path}/studies/shop.journal"


@pytest.mark.parametrize("content", [b"date,sales\n2024-01-01,3\n", b"hello", b'{"a": 1}\n'])
def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(tmp_path, content):
    (tmp_path / "shop.journal").write_bytes(content)
    with pytest.raises(ConfigError, match="is not a journal"):
        open_study(make_plan(tmp_path))
    assert (tmp_path / "shop.journal").read_bytes() == content


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("oops://host", "expected a path, sqlite:///FILE"),
        ("mysql://me:secret@host/db", "mysql://host/db: needs the module MySQLdb"),
        ("sqlite:////nowhere/studies.db", "unable to open database file"),
    ],
)
def test_a_storage_that_cannot_be_opened_is_refused_in_one_line(address, words):
    with pytest.raises(ConfigError, match=words) as refused:
        open_storage(address)
    assert "secret" not in str(refused.value) and len(str(refused.value).splitlines()) == 1


def test_a_journal_where_none_can_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="name another file"):
        open_storage(str(tmp_path / "file" / "shop.journal"))


@pytest.mark.parametrize(
    "address",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite+pysqlite:///:memory:",
        "sqlite:///?timeout=9",
    ],
)
def test_a_storage_in_memory_is_refused_with_what_to_give(address, make_panel, make_config):
    """Each worker, and each call, would have a study of its own."""
    request = FitRequest(make_config(7))
    with pytest.raises(ConfigError) as refused:
        plan_search(
            make_panel(), request.config, request, SPACE, "shop", address, None, None, None, trials=0
        )
    assert str(refused.value).splitlines() == [
        f"--storage {address}: it is in memory and ends with this process; name a file, as sqlite:///shop.db",
        "--trials 0: expected 1 or more",
    ]


def test_an_interrupted_search_proposes_what_an_uninterrupted_one_does(tmp_path):
    (tmp_path / "two").mkdir()
    whole, parts = make_plan(tmp_path, trials=12), make_plan(tmp_path / "two", trials=5)
    _run(parts)
    _run(replace(parts, trials=12))
    assert [t.params for t in trials_of(parts)] == [t.params for t in _run(whole)]
    other = make_sampler(replace(whole, seed=1), 3)
    assert type(other) is type(make_sampler(whole, 3))


def _running(plan, process, **attributes):
    """A trial that another process runs, or ran."""
    _run(replace(plan, trials=1))
    study = open_study(plan)
    study.enqueue_trial({"fit.learning_rate": 0.003}, user_attrs={"process": process, **attributes})
    trial = study.ask()
    plan.space.suggest(trial)
    return study, trial


def test_a_trial_whose_process_has_ended_is_retried_with_its_settings(tmp_path):
    plan = make_plan(tmp_path)
    host, _, started = this_process().rsplit(" ", 2)
    _, lost = _running(plan, f"{host} 4194304 {started}")
    trials = _run(plan)
    assert len(counted(trials)) == 6 and trials[lost.number].state.name == "FAIL"
    (again,) = [trial for trial in trials if trial.user_attrs.get("retry_of") == lost.number]
    assert again.params == trials[lost.number].params and again.user_attrs["deaths"] == 1


def test_settings_that_killed_several_processes_are_not_retried(tmp_path):
    plan = make_plan(tmp_path)
    _, lost = _running(plan, "", deaths=SAME_DEATHS - 1)
    trials = _run(plan)
    assert trials[lost.number] in counted(trials) and len(counted(trials)) == 6
    assert trials[lost.number].state.name == "FAIL"
    assert not [trial for trial in trials if "retry_of" in trial.user_attrs]


@pytest.mark.parametrize("old", [False, True])
def test_a_trial_of_another_machine_is_retried_after_a_day(tmp_path, monkeypatch, old):
    plan = make_plan(tmp_path)
    _, trial = _running(plan, "elsewhere 12 1700000000")
    if old:
        monkeypatch.setattr(search, "LONGEST_TRIAL", timedelta(seconds=-1))
    trials = _run(plan)
    assert trials[trial.number].state.name == ("FAIL" if old else "RUNNING")
    assert len(counted(trials)) == 6


def test_two_machines_exceed_the_total_by_one_at_most(tmp_path):
    plan = make_plan(tmp_path, trials=3)
    study, trial = _running(plan, "elsewhere 12 1700000000")
    assert len(counted(_run(plan))) == 3  # the running one included
    study.tell(trial, 0.5)
    assert len(counted(trials_of(plan))) == 3


@pytest.mark.parametrize("name", ["asha", "hyperband"])
def test_a_pruner_stops_the_worse_trials_and_spares_the_best(tmp_path, name):
    config = Config().replaced(horizon=7, fit={"steps": 90})
    study = optuna.create_study(pruner=make_pruner(make_plan(tmp_path, pruner=name)), study_name="s")
    study.pruner = make_pruner(replace(make_plan(tmp_path), config=config, pruner=name))
    ended = {}
    for loss in (3.0, 1.0, 2.0, 5.0, 4.0, 6.0, 7.0, 0.5, 8.0, 9.0, 10.0, 11.0):
        trial = study.ask()
        for step in range(10, 91, 10):
            trial.report(loss, step)
            ended[loss] = step
            if trial.should_prune():
                break
        study.tell(trial, state=optuna.trial.TrialState.COMPLETE, values=[loss])
    assert ended[0.5] == 90
    assert sum(ended.values()) < 0.75 * 12 * 90


def test_a_journal_in_the_home_folder_and_the_best_settings_lie_together(
    tmp_path, monkeypatch, make_panel, make_config
):
    monkeypatch.setenv("HOME", str(tmp_path))
    request = FitRequest(make_config(7))
    options = ("shop", "~/studies/shop.journal", None, None, None)
    plan = plan_search(make_panel(), request.config, request, SPACE, *options)
    assert plan.storage == str(tmp_path / "studies" / "shop.journal")
