"""Several processes on one study: exact totals, nothing lost, whoever is killed and whenever."""

import os
import random
import signal
from dataclasses import replace

import psutil
import pytest
from cheap_objectives import bowl
from sweeps import assert_nothing_lost, command, make_plan, wait_for, workers_of

from forecaster.errors import DataError, FitError
from forecaster.runs.tune.study import finished, open_study
from forecaster.runs.tune.worker import Session, run_worker
from forecaster.runs.tune.workers import _devices, _environment, run_workers

pytestmark = pytest.mark.usefixtures("cheap")


def _trials(plan):
    return open_study(plan).get_trials()


def _run(plan, objective, told=None):
    study = open_study(plan)
    run_workers(plan, study, Session.begin(study, plan), told, f"cheap_objectives:{objective}")


def test_each_worker_has_its_device_and_its_share_of_the_cores(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 7")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    assert _devices() == ["4", "7"]
    made = [_environment(number, 3) for number in range(3)]
    assert [own["CUDA_VISIBLE_DEVICES"] for own in made] == ["4", "7", "4"]
    assert {own["OMP_NUM_THREADS"] for own in made} == {"4"}
    assert _environment(0, 50)["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert _environment(0, 3)["OMP_NUM_THREADS"] == "2"


def test_one_worker_is_this_process(tmp_path):
    seen = []
    _run(make_plan(tmp_path), "bowl", seen.append)
    assert len(seen) == 6
    assert len({trial.user_attrs["owner"].split()[2] for trial in seen} | {str(os.getpid())}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_three_workers_tell_exactly_as_many_trials_as_asked_for(tmp_path, kind):
    total = {"journal": 20, "sqlite": 6}[kind]
    plan = make_plan(tmp_path, trials=total, workers=3)
    if kind == "sqlite":
        plan = replace(plan, storage=f"sqlite:///{tmp_path}/shop.db")
    seen = []
    _run(plan, "bowl", seen.append)
    trials = _trials(plan)
    assert_nothing_lost(trials, total)
    assert len({trial.user_attrs["owner"] for trial in trials}) <= 3
    assert sorted(trial.number for trial in seen) == [trial.number for trial in finished(trials)]
    _run(replace(plan, trials=total + 4), "bowl")
    assert_nothing_lost(_trials(plan), total + 4)


@pytest.mark.slow
def test_two_commands_on_one_study_share_its_trials(tmp_path, monkeypatch):
    monkeypatch.setenv("CHEAP_SECONDS", "0.05")
    plan = make_plan(tmp_path, trials=30, workers=2)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with command(plan, tmp_path / "a", "bowl") as one, command(plan, tmp_path / "b", "bowl") as two:
        assert one.wait(120) == two.wait(120) == 0
    assert_nothing_lost(_trials(plan), 30)


@pytest.mark.slow
def test_a_search_killed_at_any_moment_goes_on_as_if_nothing_had_been(tmp_path, monkeypatch):
    monkeypatch.setenv("CHEAP_SECONDS", "0.05")
    plan = make_plan(tmp_path, trials=45, workers=2)
    chance = random.Random(7)
    told = {}
    kills = 0
    while len(told) < 45 and kills < 10:
        with command(plan, tmp_path, "bowl") as process:
            # Anywhere: between two trials, in a lock, in an entry, before the first.
            goal = min(45, len(told) + chance.randint(0, 6))
            wait_for(lambda goal=goal: len(finished(_trials(plan))) >= goal)
            victims = [process.pid, *(worker.pid for worker in workers_of(process))]
            left = [psutil.Process(pid) for pid in victims[1:]]
            if kills % 3 == 1:  # the parent alone: its workers end by themselves
                victims = victims[:1]
            elif kills % 3 == 2 and len(victims) > 1:  # one worker: it is replaced
                victims = [chance.choice(victims[1:])]
            for victim in victims:
                os.kill(victim, signal.SIGKILL)
            kills += 1
            if process.pid not in victims:
                assert process.wait(120) == 0
            wait_for(lambda left=left: not any(_runs(worker) for worker in left))
        after = {trial.number: (trial.params, trial.values) for trial in finished(_trials(plan))}
        assert after.items() >= told.items()
        told = after
    with command(plan, tmp_path, "bowl") as process:
        assert process.wait(120) == 0
    trials = _trials(plan)
    assert kills >= 3
    assert {trial.number: (trial.params, trial.values) for trial in finished(trials)}.items() >= (
        told.items()
    )
    assert_nothing_lost(trials, 45)


def _runs(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_ctrl_c_ends_the_workers_and_gives_their_trials_back(tmp_path, monkeypatch):
    monkeypatch.setenv("CHEAP_SECONDS", "0.2")
    plan = make_plan(tmp_path, trials=30, workers=2)
    with command(plan, tmp_path, "bowl") as process:
        wait_for(lambda: len(finished(_trials(plan))) >= 4)
        workers = workers_of(process)
        os.kill(process.pid, signal.SIGINT)
        process.wait(60)
        assert not any(_runs(worker) for worker in workers)
    assert not [trial for trial in _trials(plan) if not trial.state.is_finished()]
    monkeypatch.setenv("CHEAP_SECONDS", "0")
    _run(plan, "bowl")
    assert_nothing_lost(_trials(plan), 30)


@pytest.mark.slow
def test_the_same_error_ends_the_search_across_workers(tmp_path):
    plan = make_plan(tmp_path, trials=30, workers=3)
    with pytest.raises(FitError, match="3 trials in a row failed alike: ValueError: four is too many"):
        _run(plan, "broken")
    trials = _trials(plan)
    assert 3 <= len(finished(trials)) <= 6
    _run(plan, "bowl")
    assert len(finished(_trials(plan))) == 30


@pytest.mark.slow
def test_workers_that_cannot_work_end_the_search_with_their_own_line(tmp_path):
    with pytest.raises(DataError, match=r"^sales\.csv: the file is gone$"):
        _run(make_plan(tmp_path, workers=2), "unusable")


@pytest.mark.slow
def test_workers_that_die_of_every_trial_end_the_search_in_one_line(tmp_path):
    plan = make_plan(tmp_path, trials=30, workers=2)
    with pytest.raises(FitError) as ended:
        _run(plan, "deadly")
    message = str(ended.value)
    assert len(message.splitlines()) == 1
    # One trial may be given up, for the third death it brought, before a fifth worker dies.
    assert (
        "5 workers ended before they told anything, the last by exit code 9" in message
        or "its worker died 3 times with these settings" in message
    )


@pytest.mark.slow
def test_no_worker_begins_a_trial_after_the_time_is_over(tmp_path, monkeypatch):
    monkeypatch.setenv("CHEAP_SECONDS", "0.5")
    plan = make_plan(tmp_path, trials=1000, workers=2, timeout_seconds=4)
    _run(plan, "bowl")
    trials = _trials(plan)
    assert len(finished(trials)) == len(trials) < 100
    fewer = replace(plan, trials=len(trials) + 1, timeout_seconds=None)
    run_worker(fewer, bowl(fewer))
    assert_nothing_lost(_trials(plan), len(trials) + 1)
