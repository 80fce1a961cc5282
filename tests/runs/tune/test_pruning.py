"""Trials that fall behind are stopped early, on one device and on several."""

import subprocess
import sys
from collections.abc import Callable

import optuna
import pytest

from forecaster.config import Config
from forecaster.panel.panel import Panel
from forecaster.runs.tune.objective import Objective
from forecaster.runs.tune.plan import SweepPlan
from forecaster.runs.tune.pruning import first_rung, pruner_of

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


_TWO = """
import sys, torch, optuna, pytorch_lightning as pl
from torch.utils.data import DataLoader
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from forecaster.runs.tune.pruning import PruneBehind

class Tiny(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.curves = torch.nn.Linear(1, 1), {}
    def training_step(self, batch, index):
        return self.layer(batch).square().mean()
    def validation_step(self, batch, index):
        self.layer(batch)
    def on_validation_epoch_end(self):
        self.curves.setdefault("validation_loss", []).append((self.global_step, 1.0))
    def on_train_end(self):
        print("ended", self.global_rank, self.global_step, flush=True)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

storage = JournalStorage(JournalFileBackend(sys.argv[1]))
pruner = optuna.pruners.ThresholdPruner(upper=0.5, n_warmup_steps=4)
study = optuna.create_study(storage=storage, pruner=pruner)
trial = study.ask()
watch = PruneBehind(trial)
data = DataLoader(torch.ones(64, 1), batch_size=4)
trainer = pl.Trainer(
    accelerator="cpu", devices=2, strategy="ddp_fork", max_steps=8, val_check_interval=2,
    callbacks=[watch], logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, num_sanity_val_steps=0,
)
trainer.fit(Tiny(), data, data)
print("pruned at", watch.step, study.trials[0].intermediate_values)
"""  # fmt: skip


@pytest.mark.slow
def test_all_ranks_stop_at_the_same_step_and_the_launching_process_knows(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _TWO, str(tmp_path / "study.journal")],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    said = done.stdout.splitlines()
    assert {line for line in said if line.startswith("ended")} == {"ended 0 4", "ended 1 4"}, (
        done.stderr
    )
    assert said[-1] == "pruned at 4 {2: 1.0, 4: 1.0}"
