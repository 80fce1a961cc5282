"""Searches by one process or several: exact totals, nothing lost, whoever is killed and whenever."""

import os
import random
import signal
from dataclasses import replace

import psutil
import pytest
import torch
from cheap_evaluators import bowl
from sweeps import (
    assert_nothing_lost,
    command,
    finished,
    is_running,
    make_plan,
    trials_of,
    wait_for,
    workers_of,
)

from forecaster.errors import DataError, FitError
from forecaster.runs.tune.search import run_trials
from forecaster.runs.tune.study import counted, open_study
from forecaster.runs.tune.worker import worker_environment

pytestmark = pytest.mark.usefixtures("cheap")


def _run(plan, evaluator, on_trial=lambda trial: None):
    run_trials(plan, open_study(plan), on_trial=on_trial, factory=f"cheap_evaluators:{evaluator}")


def test_each_worker_has_its_gpu_and_its_part_of_the_cores(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 7")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    made = [worker_environment(number, 3) for number in range(3)]
    assert [own["CUDA_VISIBLE_DEVICES"] for own in made] == ["4", "7", "4"]
    assert {own["OMP_NUM_THREADS"] for own in made} == {"4"}
    assert worker_environment(0, 50)["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert worker_environment(0, 3)["OMP_NUM_THREADS"] == "2"


def test_one_worker_is_this_process(tmp_path):
    seen, plan = [], make_plan(tmp_path)
    run_trials(plan, open_study(plan), on_trial=seen.append, evaluate=bowl(plan))
    assert [trial.number for trial in seen] == list(range(6))
    assert {trial.user_attrs["worker"] for trial in seen} == {os.getpid()}
    assert_nothing_lost(trials_of(plan), 6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_three_workers_finish_exactly_as_many_trials_as_asked_for(tmp_path, kind):
    total = {"journal": 20, "sqlite": 6}[kind]
    plan = make_plan(tmp_path, trials=total, workers=3)
    if kind == "sqlite":
        plan = replace(plan, storage=f"sqlite:///{tmp_path}/shop.db")
    seen = []
    _run(plan, "bowl", seen.append)
    trials = trials_of(plan)
    assert_nothing_lost(trials, total)
    assert len({trial.user_attrs["worker"] for trial in trials}) <= 3
    assert sorted(trial.number for trial in seen) == [trial.number for trial in finished(trials)]
    _run(replace(plan, trials=total + 4), "bowl")
    assert_nothing_lost(trials_of(plan), total + 4)


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced_and_its_trial_retried(tmp_path, monkeypatch):
    monkeypatch.setenv("CHEAP_SECONDS", "0.3")
    plan = make_plan(tmp_path, trials=12, workers=2)
    with command(plan, tmp_path, "bowl") as process:
        wait_for(lambda: len(finished(trials_of(plan))) >= 2, process)
        os.kill(workers_of(process)[0].pid, signal.SIGKILL)
        assert process.wait(300) == 0
    trials = trials_of(plan)
    assert_nothing_lost(trials, 12)
    (again,) = [trial for trial in trials if "retry_of" in trial.user_attrs]
    assert trials[again.user_attrs["retry_of"]].state.name == "FAIL"
    assert again.params == trials[again.user_attrs["retry_of"]].params


@pytest.mark.slow
def test_two_commands_share_one_study_and_exceed_its_total_by_one_at_most(tmp_path, monkeypatch):
    monkeypatch.setenv("CHEAP_SECONDS", "0.05")
    plan = make_plan(tmp_path, trials=30, workers=2)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with command(plan, tmp_path / "a", "bowl") as one, command(plan, tmp_path / "b", "bowl") as two:
        assert one.wait(300) == two.wait(300) == 0
    trials = trials_of(plan)
    assert 30 <= len(counted(trials)) <= 31
    assert len(finished(trials)) == len(counted(trials))


@pytest.mark.slow
def test_a_search_killed_at_any_moment_continues_and_loses_no_finished_trial(tmp_path, monkeypatch):
    monkeypatch.setenv("CHEAP_SECONDS", "0.05")
    plan = make_plan(tmp_path, trials=45, workers=2)
    chance = random.Random(7)
    known = {}
    kills = 0
    while len(known) < 45 and kills < 10:
        with command(plan, tmp_path, "bowl") as process:
            # Anywhere: between two trials, in a lock, before the first.
            goal = min(45, len(known) + chance.randint(0, 6))
            wait_for(lambda goal=goal: len(finished(trials_of(plan))) >= goal)
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
                assert process.wait(300) == 0
            wait_for(lambda left=left: not any(is_running(worker) for worker in left))
        after = {trial.number: (trial.params, trial.values) for trial in finished(trials_of(plan))}
        assert after.items() >= known.items()
        known = after
    with command(plan, tmp_path, "bowl") as process:
        assert process.wait(300) == 0
    trials = trials_of(plan)
    assert kills >= 3
    assert {trial.number: (trial.params, trial.values) for trial in finished(trials)}.items() >= (
        known.items()
    )
    assert_nothing_lost(trials, 45)


@pytest.mark.slow
def test_ctrl_c_ends_the_workers_and_enqueues_their_trials_again(tmp_path, monkeypatch):
    monkeypatch.setenv("CHEAP_SECONDS", "0.2")
    plan = make_plan(tmp_path, trials=30, workers=2)
    with command(plan, tmp_path, "bowl") as process:
        wait_for(lambda: len(finished(trials_of(plan))) >= 4)
        workers = workers_of(process)
        os.kill(process.pid, signal.SIGINT)
        process.wait(60)
        assert not any(is_running(worker) for worker in workers)
    assert not [trial for trial in trials_of(plan) if trial.state.name == "RUNNING"]
    monkeypatch.setenv("CHEAP_SECONDS", "0")
    _run(plan, "bowl")
    assert_nothing_lost(trials_of(plan), 30)


@pytest.mark.slow
def test_the_same_error_ends_the_search(tmp_path):
    plan = make_plan(tmp_path, trials=30, workers=3)
    with pytest.raises(FitError, match="3 consecutive trials failed alike: ValueError: four is too"):
        _run(plan, "broken")
    assert 3 <= len(finished(trials_of(plan))) <= 6
    _run(plan, "bowl")
    assert len(finished(trials_of(plan))) == 30


@pytest.mark.slow
def test_workers_that_cannot_work_end_the_search_with_their_own_line(tmp_path):
    with pytest.raises(DataError, match=r"^sales\.csv: the file is gone$"):
        _run(make_plan(tmp_path, workers=2), "unusable")


@pytest.mark.slow
def test_workers_that_die_of_every_trial_end_the_search_in_one_line(tmp_path):
    with pytest.raises(FitError) as ended:
        _run(make_plan(tmp_path, trials=30, workers=2), "deadly")
    message = str(ended.value)
    assert len(message.splitlines()) == 1
    assert message.endswith("ended with exit code 9")
    assert "5 workers died before they finished a trial, the last one: worker" in message


@pytest.mark.slow
def test_losses_that_workers_report_prune_trials(tmp_path):
    plan = make_plan(tmp_path, trials=12, workers=2, pruner="asha")
    _run(plan, "curves")
    trials = trials_of(plan)
    assert trials[0].state.name == "COMPLETE" and len(trials[0].intermediate_values) == 10
    assert any(trial.state.name == "PRUNED" for trial in trials)
    for trial in trials:
        if trial.state.name == "PRUNED":
            assert max(trial.intermediate_values) == trial.user_attrs["steps"] <= 100


@pytest.mark.slow
def test_no_trial_starts_after_the_timeout(tmp_path, monkeypatch):
    monkeypatch.setenv("CHEAP_SECONDS", "0.5")
    plan = make_plan(tmp_path, trials=1000, workers=2, timeout_seconds=4)
    _run(plan, "bowl")
    trials = trials_of(plan)
    assert len(finished(trials)) == len(trials) < 100
    fewer = replace(plan, trials=len(trials) + 1, workers=1, timeout_seconds=None)
    run_trials(fewer, open_study(fewer), evaluate=bowl(fewer))
    assert_nothing_lost(trials_of(plan), len(trials) + 1)
