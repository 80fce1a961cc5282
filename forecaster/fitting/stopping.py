"""When a training ends that no number of steps was given for: by its validation losses.

    constant rate    while the loss gains 0.4 % within the patience; where the network still has weight 0, its own
    decay            from the weights of least loss, over a fifth of the steps that lead to them
    at once          where the network had weight 0 at three validations in a row and gained nothing itself

All ranks see the same losses, and decide the same. The steps of the plan are a bound.
"""

from __future__ import annotations

import copy
import math
from typing import Any, ClassVar

import pytorch_lightning as pl

from forecaster.model.learner import KeepBest

_GAIN = 0.004  # of the loss
_PATIENCE = 4  # validations, or
_SHARE = 0.2  # of the steps so far
_ZEROS = 3  # validations


class StopByEvidence(KeepBest):
    """Keeps the best weights, lowers the rate once the loss gains no more, and ends the training."""

    STATE: ClassVar[tuple[str, ...]] = (
        *KeepBest.STATE,
        "_gained",
        "_since",
        "_zeros",
        "_state",
        "_end",
    )

    def __init__(self) -> None:
        super().__init__()
        self._gained = {"validation_loss": math.inf, "network_loss": math.inf}
        """Each loss at its last gain."""
        self._since = 0
        """Step of the last gain."""
        self._zeros = 0
        """Validations since the network had a weight above 0, or gained itself."""
        self._state: dict[str, Any] = {}
        """Of the network and the optimiser at the best step."""
        self._end: int | None = None
        """Step after which the decay is over; None = it has not begun."""

    def on_fit_start(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        """Ends a resumed training that is over."""
        trainer.should_stop |= self.over

    def on_validation_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        """Keeps the best state, and decides how to go on."""
        super().on_validation_end(trainer, learner)
        if self._end is not None:
            return
        if self.step == self.checked:
            state = learner.network.state_dict(), trainer.optimizers[0].state_dict()
            self._state = copy.deepcopy(dict(zip(("network", "optimizer"), state, strict=True)))
        weight = learner.curves.get("network_weight", [(0, 1.0)])[-1][1]
        gains = self._gains(learner, "network_loss" if weight == 0 else "validation_loss")
        if gains:
            self._since = self.checked
        self._zeros = 0 if weight or gains else self._zeros + 1
        patience = max(_PATIENCE * learner.config.validate_every, _SHARE * self.checked)
        if self._zeros >= _ZEROS:
            self.why = f"the network had weight 0 at {_ZEROS} validations, and gained nothing itself"
            self.over = trainer.should_stop = True
        elif self.checked - self._since >= patience:
            self.why = f"the validation loss gained no more after step {self._since:,}"
            self._decay(trainer, learner)
        elif self.checked >= learner.schedule.last_begin:
            self.why = "the validation loss still gained when the budget ended it"
            self._decay(trainer, learner)

    def _gains(self, learner: pl.LightningModule, name: str) -> bool:
        """Whether a loss has gained at this validation."""
        loss = learner.curves[name][-1][1] if name in learner.curves else math.inf
        gained = self._gained[name]
        if loss < (1 - _GAIN) * gained:
            self._gained[name] = loss
            return gained < math.inf  # nothing is less than at the first one
        return False

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        """Ends the training after the decay."""
        if self._end is not None and trainer.global_step >= self._end:
            self.over = trainer.should_stop = True

    def _decay(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        """Goes back to the best state, and lowers the rate from there."""
        assert self.weights is not None
        learner.network.load_state_dict(self._state["network"])
        trainer.optimizers[0].load_state_dict(self._state["optimizer"])
        learner.average.load_state_dict(self.weights)
        self._state, self.dropped = {}, self.checked - self.step
        learner.schedule.decay(self.checked, self.step)
        self._end = self.checked + learner.schedule.length
