"""The callback that writes the checkpoints of a training and restores from them.

Not Lightning's `ModelCheckpoint`: it saves no random state, counts the prefetched batch as trained on,
and saves before the validation that belongs to its step, so that a resumed fit would end elsewhere.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from forecaster.fitting.checkpoints import Checkpoints
from forecaster.fitting.processes import StopSignals
from forecaster.model.learner import Learner

MINUTES = 10.0
"""Between checkpoints, unless a number of steps is given."""
_AGREE_EVERY = 10  # steps; ranks must all save, or none


class Checkpointing(pl.Callback):
    """Writes checkpoints between two steps, on a schedule and on the first Ctrl-C or SIGTERM."""

    def __init__(self, checkpoints: Checkpoints):
        self._files = checkpoints
        self._step, self._saved = 0, 0.0
        self._random: dict[str, Tensor] = {}
        self._signals = StopSignals()

    def on_save_checkpoint(
        self, trainer: pl.Trainer, learner: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Adds the random state of every rank."""
        states = {"cpu": torch.get_rng_state()}
        if learner.device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(learner.device)
        checkpoint["random"] = {
            name: learner.all_gather(state.to(learner.device)).reshape(-1, len(state)).cpu()
            for name, state in states.items()
        }
        # The prefetched batch has not been trained on: the resumed training draws it again.
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        for count in (progress["total"], progress["current"]):
            count["ready"] = count["completed"]

    def on_load_checkpoint(
        self, trainer: pl.Trainer, learner: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Keeps the random state until the first step, and logs the curves again.

        What was logged before may have died with its process. Here, because a training without a step
        left does not reach `on_train_start`.
        """
        assert isinstance(learner, Learner)
        for name, curve in checkpoint["curves"].items():
            for step, value in curve:
                learner.log_point(name, value, step)
        self._random = {
            # A copy: torch reads the state of a row as that of the first.
            name: states[min(trainer.global_rank, len(states) - 1)].clone()
            for name, states in checkpoint["random"].items()
        }

    def on_train_start(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        """Restores the random state."""
        if "cpu" in self._random:
            torch.set_rng_state(self._random["cpu"])
        if "cuda" in self._random and learner.device.type == "cuda":
            torch.cuda.set_rng_state(self._random["cuda"], learner.device)
        self._step = trainer.global_step
        self._saved = time.monotonic()
        self._signals.listen()

    def on_train_batch_start(
        self, trainer: pl.Trainer, learner: pl.LightningModule, batch: Any, batch_index: int
    ) -> None:
        """Saves when a checkpoint is due, and stops after a signal."""
        if trainer.world_size > 1 and trainer.global_step % _AGREE_EVERY:
            return
        of_any_rank = partial(trainer.strategy.reduce_boolean_decision, all=False)
        due = of_any_rank(self._is_due(trainer.global_step))
        stops = of_any_rank(self._signals.received is not None)
        if due or stops:
            self._save(trainer)
        if stops:
            self._signals.raise_received()
            raise SystemExit(143)  # another rank received the signal

    def on_train_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        """Saves before the final scores."""
        self._save(trainer)
        self._signals.restore()
        self._signals.raise_received()

    def on_exception(
        self, trainer: pl.Trainer, learner: pl.LightningModule, exception: BaseException
    ) -> None:
        """Restores the signal handlers."""
        self._signals.restore()

    def _is_due(self, step: int) -> bool:
        if step == self._step:
            return False
        every = self._files.every
        if every is not None:
            return step // every > self._step // every
        return time.monotonic() - self._saved >= 60 * MINUTES

    def _save(self, trainer: pl.Trainer) -> None:
        if trainer.global_step != self._step:
            trainer.save_checkpoint(self._files.at(trainer.global_step), weights_only=False)
        self._step, self._saved = trainer.global_step, time.monotonic()
