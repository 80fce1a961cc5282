"""How many training steps fit into a budget of seconds, from a short training that is timed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import pytorch_lightning as pl

from forecaster.config import FitPlan

MEASURED_STEPS = 20
_WARM_STEPS = 5  # are not counted: caches fill, kernels are chosen


@dataclass
class Pace(pl.Callback):
    """Measures a short training."""

    step: float = 0.0
    """Seconds of a training step."""
    validation: float = 0.0
    """Seconds of one validation."""
    _at: dict[str, float] = field(default_factory=dict)

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any, **kwargs: Any) -> None:
        """Times the steps after the first few, without the validations between them."""
        if trainer.global_step == _WARM_STEPS:
            self._at["steps"], self._at["validating"] = time.monotonic(), 0.0
        if trainer.global_step == MEASURED_STEPS:
            taken = time.monotonic() - self._at["steps"] - self._at["validating"]
            self.step = taken / (MEASURED_STEPS - _WARM_STEPS)

    def on_validation_start(self, *args: Any) -> None:
        """Starts the clock of a validation."""
        self._at["validation"] = time.monotonic()

    def on_validation_end(self, *args: Any) -> None:
        """Keeps the time of the last validation."""
        self.validation = time.monotonic() - self._at["validation"]
        self._at["validating"] = self._at.get("validating", 0.0) + self.validation


def within_budget(fit: FitPlan, pace: Pace, seconds: float) -> FitPlan:
    """Returns the training with as many steps as fit into its seconds, and no budget."""
    steps = max(1, int(seconds / pace.step))
    if not fit.by_evidence:
        steps = min(fit.steps, steps)
    fit = fit.model_copy(update={"steps": steps, "budget_seconds": None})
    while fit.steps > 1 and (
        fit.steps * pace.step + fit.steps // fit.validate_every * pace.validation > seconds
    ):
        fit = fit.model_copy(update={"steps": fit.steps - 1 - fit.steps // 1000})
    return fit
