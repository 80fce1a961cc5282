"""A bound in time becomes a number of steps, once.

What comes in: a training about to begin, and the seconds it may take. What goes out: its settings with
as many steps as fit in. Promised: what is measured is the training itself, twenty steps of it and one
validation; weights and random numbers are as they were; a fit that goes on finds the number in its
config and measures nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytorch_lightning as pl
import torch

from forecaster.config import Config, FitConfig

STEPS = 20
_WARM = 5  # of them are not counted: caches fill, kernels are chosen
_VALIDATING = 1 / 3  # of the time, at most


@dataclass
class Pace(pl.Callback):
    """Watches a short training, and says how long its parts take."""

    step: float = 0.0
    """Seconds of a training step."""
    validation: float = 0.0
    """Seconds of all watched windows."""
    _at: dict[str, float] = field(default_factory=dict)

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any, **kwargs: Any) -> None:
        """Times the steps after the first few."""
        if trainer.global_step == _WARM:
            self._at["step"] = time.monotonic()
        if trainer.global_step == STEPS:
            self.step = (time.monotonic() - self._at["step"]) / (STEPS - _WARM)

    def on_validation_start(self, *args: Any) -> None:
        """Times the validation."""
        self._at["validation"] = time.monotonic()

    def on_validation_end(self, *args: Any) -> None:
        """Times the validation."""
        self.validation = time.monotonic() - self._at["validation"]


def measured_pace(config: Config, run: Callable[[Config, Pace], None]) -> Pace:
    """Returns how long the parts of a training take.

    Args:
        config: of the training.
        run: trains something that is thrown away, watched.
    """
    short = config.fit.model_copy(
        update={"steps": STEPS, "validate_every": STEPS, "patience": None, "checkpoint_every": None}
    )
    pace = Pace()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        run(config.model_copy(update={"fit": short}), pace)
    return pace


def within_budget(fit: FitConfig, pace: Pace, seconds: float) -> FitConfig:
    """Returns the settings of a training with as many steps as fit into its time, and no budget.

    Validations stay as many as they were, unless they took more than a third of the time.

    Args:
        fit: as asked for.
        pace: of its parts.
        seconds: for this training.
    """
    validations = math.ceil(fit.steps / fit.validate_every)
    steps, every = fit.steps, fit.validate_every
    if steps * pace.step + validations * pace.validation > seconds:
        if pace.validation:
            validations = max(1, min(validations, int(_VALIDATING * seconds / pace.validation)))
        left = seconds - validations * pace.validation
        steps = max(1, min(steps, int(left / pace.step)))
        every = math.ceil(steps / validations)
    return fit.model_copy(update={"steps": steps, "validate_every": every, "budget_seconds": None})
