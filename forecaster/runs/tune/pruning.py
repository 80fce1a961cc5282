"""Trials that fall behind are stopped early.

What comes in: the validation losses of a fit, step by step. What goes out: a training that ends where a
pruner says so, and a trial marked as pruned. Promised: rank 0 alone talks to the study; under several
devices all ranks stop at the same step, whether they have this callback or not (`Learner` sees to it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytorch_lightning as pl

from forecaster.config import FitConfig
from forecaster.runs.tune.plan import SweepPlan

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.pruners import BasePruner

FACTOR = 2
"""Of the trials that reach a rung, the best one in so many goes on to the next, so many times later."""
_RUNGS = 2
_BEHIND = "pruned_at"


class PruneBehind(pl.Callback):
    """Reports each validation loss to a trial, and ends the training once its pruner says so."""

    def __init__(self, trial: Trial, spared: bool = False):
        """Takes the trial; one that is spared reports, so that others compare, and is never stopped."""
        self._trial, self._spared = trial, spared
        self.step: int | None = None
        """Step at which the trial was stopped; None = it was not."""

    def on_validation_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        """Reports the validation just run, on rank 0; of several members, the first one's."""
        if not trainer.is_global_zero or learner.name:
            return
        step, loss = learner.curves["validation_loss"][-1]
        self._trial.report(loss, step)
        # Nothing is saved by stopping what has ended.
        if not self._spared and step < trainer.max_steps and self._trial.should_prune():
            self._trial.set_user_attr(_BEHIND, step)
            self.step, trainer.should_stop = step, True


def pruner_of(plan: SweepPlan) -> BasePruner:
    """Returns the pruner of a plan, its rungs at a quarter and a half of the training.

    A rung is at least one validation away. Source: Li et al., "A system for massively parallel
    hyperparameter tuning" (2020); "Hyperband" (2018).
    """
    import optuna

    fit = plan.settings.fit
    first = first_rung(fit)
    if plan.pruner == "none":
        return optuna.pruners.NopPruner()
    if plan.pruner == "asha":
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=FACTOR)
    return optuna.pruners.HyperbandPruner(
        min_resource=first, max_resource=max(first, _steps(fit)), reduction_factor=FACTOR
    )


def first_rung(fit: FitConfig) -> int:
    """Returns the steps after which trials are compared for the first time."""
    steps: int = max(1, _steps(fit) // 8, round(_steps(fit) / FACTOR**_RUNGS))
    return steps


def _steps(fit: FitConfig) -> int:
    """Returns the steps of a training; where the data chooses them, the usual ones."""
    return FitConfig().steps if fit.steps is None else fit.steps
