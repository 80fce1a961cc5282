"""Trials that fall behind are stopped early, on one device and on several."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest

from forecaster.config import Config
from forecaster.panel.panel import Panel
from forecaster.runs.distributed import find_distributed_context
from forecaster.runs.fit import fit_panel, prepare
from forecaster.runs.train import TrainingContext
from forecaster.runs.tune.objective import Objective
from forecaster.runs.tune.plan import SweepPlan
from forecaster.runs.tune.pruning import PruneBehind, first_rung, pruner_of

SPACE = {"fit.learning_rate": {"float": [0.001, 0.02], "log": True}}
ALWAYS = optuna.pruners.ThresholdPruner(upper=-1e9)
NEVER = optuna.pruners.NopPruner()


def _trial(
    panel: Panel, config: Config, pruner: optuna.pruners.BasePruner, preset: bool = False
) -> optuna.trial.FrozenTrial:
    plan = SweepPlan("s", "nowhere", "", config.model_dump(mode="json"), SPACE, "f")
    study = optuna.create_study(pruner=pruner)
    study.enqueue_trial({}, user_attrs={"preset": preset})
    study.optimize(Objective(plan, panel), n_trials=1)
    return study.trials[0]


def test_a_trial_that_is_behind_ends_at_the_validation_that_showed_it(
    make_panel: Callable[..., Panel], make_config
):
    config = make_config(4, fit={"steps": 9, "validate_every": 3})
    trial = _trial(make_panel(n_rows=120), config, ALWAYS)
    assert trial.state.name == "PRUNED"
    assert list(trial.intermediate_values) == [3]
    assert trial.user_attrs["steps"] == trial.user_attrs["pruned_at"] == 3


def test_the_losses_of_a_fit_are_reported_by_training_step(
    make_panel: Callable[..., Panel], make_config
):
    config = make_config(4, fit={"steps": 7, "validate_every": 3})
    trial = _trial(make_panel(n_rows=120), config, NEVER)
    assert trial.state.name == "COMPLETE" and trial.value > 0
    assert list(trial.intermediate_values) == [3, 6, 7]


def test_the_preset_is_reported_but_never_stopped(make_panel: Callable[..., Panel], make_config):
    config = make_config(4, fit={"steps": 9, "validate_every": 3})
    trial = _trial(make_panel(n_rows=120), config, ALWAYS, preset=True)
    assert trial.state.name == "COMPLETE"
    assert list(trial.intermediate_values) == [3, 6, 9]


def test_a_trial_that_has_ended_is_not_pruned(make_panel: Callable[..., Panel], make_config):
    config = make_config(4, fit={"steps": 3, "validate_every": 3})
    assert _trial(make_panel(n_rows=120), config, ALWAYS).state.name == "COMPLETE"


@pytest.mark.parametrize(
    ("steps", "every", "rung"), [(400, 50, 100), (900, 10, 225), (120, 20, 30), (30, 50, 50)]
)
def test_the_first_rung_is_a_quarter_of_the_steps_and_at_least_a_validation(steps, every, rung):
    fit = Config().replaced(fit={"steps": steps, "validate_every": every}).fit
    assert first_rung(fit) == rung


@pytest.mark.parametrize("name", ["asha", "hyperband"])
def test_a_pruner_stops_the_worse_trials_and_spares_the_best(name):
    config = Config().replaced(fit={"steps": 90, "validate_every": 10}).model_dump(mode="json")
    plan = SweepPlan("s", "nowhere", "", config, SPACE, "f", pruner=name)
    study = optuna.create_study(pruner=pruner_of(plan), study_name="s")
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


def test_of_several_members_the_first_one_alone_is_compared(make_panel, make_config):
    panel, study = make_panel(n_rows=120), optuna.create_study(pruner=NEVER)
    fit = {"members": 2, "refit": True, "steps": 6, "validate_every": 3, "patience": None}
    trial = study.ask()
    config, split = prepare(panel, make_config(4, fit=fit))
    artifact = fit_panel(panel, config, split, TrainingContext(callbacks=(PruneBehind(trial),)))
    told = study.trials[0].intermediate_values
    assert [*told.items()] == [tuple(point) for point in artifact.metrics["curves"]["validation_loss"]]


@pytest.mark.slow
def test_a_process_that_was_started_without_a_watcher_stops_too(make_panel, make_config):
    config = make_config(4, fit={"steps": 9, "validate_every": 3, "batch_size": 8})
    study = optuna.create_study(pruner=ALWAYS)
    watch, panel = PruneBehind(study.ask()), make_panel(n_rows=120)
    config, split = prepare(panel, config)
    around = TrainingContext(callbacks=(watch,), distributed=find_distributed_context(2, None))
    assert fit_panel(panel, config, split, around).metrics["steps"] == watch.step == 3
    assert study.trials[0].intermediate_values.keys() == {3}


_RANK = """
import os, sys, optuna
from forecaster.config import Config
from forecaster.panel.build import open_panel
from forecaster.runs.distributed import find_distributed_context
from forecaster.runs.fit import fit_panel, prepare
from forecaster.runs.train import TrainingContext
from forecaster.runs.tune.pruning import PruneBehind

fit = {"steps": 9, "validate_every": 2, "batch_size": 8}
config = Config().replaced(horizon=4, model={"width": 8, "heads": 2}, fit=fit)
panel = open_panel(sys.argv[1], config.data)
config, split = prepare(panel, config)
trial, reports = None, []
if os.environ["RANK"] == "0":
    pruner = optuna.pruners.ThresholdPruner(upper=-1e9, n_warmup_steps=4)
    study = optuna.create_study(pruner=pruner, storage="sqlite:///study.db")
    trial = study.ask()
    report = trial.report
    trial.report = lambda loss, step: (reports.append(step), report(loss, step))
watch = PruneBehind(trial)
around = TrainingContext(callbacks=(watch,), distributed=find_distributed_context(2, None))
steps = fit_panel(panel, config, split, around).metrics["steps"]
if trial:
    study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    print([(each.state.name, list(each.intermediate_values)) for each in study.trials])
print(steps, watch.step, reports)
"""


@pytest.mark.slow
def test_two_processes_stop_at_the_same_step_and_the_first_alone_reports(tmp_path):
    """As under torchrun; the trial of the second is None: it must not be asked."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    words = sys.executable, "-c", _RANK, str(Path(__file__).parents[3] / "data" / "demo.csv")
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    common |= {"MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    ranks = []
    try:
        for rank in ("0", "1"):
            env = os.environ | common | {"RANK": rank, "LOCAL_RANK": rank}
            ranks.append(
                subprocess.Popen(
                    words, cwd=tmp_path, env=env, text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )
            )  # fmt: skip
        answers = [rank.communicate(timeout=300) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], answers
    told, first = answers[0][0].splitlines()[-2:]
    assert told == "[('PRUNED', [2, 4])]"
    assert first == "4 4 [2, 4]"
    assert answers[1][0].splitlines()[-1] == "4 None []"
