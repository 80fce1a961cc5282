"""A training watched from inside: when a checkpoint is due, and what the trainer itself does not keep.

What comes in: the trainer's events and the signals of the process. What goes out: checkpoints between
two steps, from which the next process continues as if nothing had been. Promised: the clock on the wall
is not asked; the first Ctrl-C or SIGTERM ends the training after the step it is in, with a checkpoint;
the second ends it at once.
"""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from forecaster.config import FitConfig
from forecaster.model.learner import Learner
from forecaster.runs.resume.checkpoints import Checkpoints

_AGREE_EVERY = 10  # steps; processes that train together must all save, or none


class Checkpointing(pl.Callback):
    """Writes checkpoints and, where a training goes on from one, puts everything back in its place."""

    def __init__(self, checkpoints: Checkpoints, config: FitConfig):
        """Takes where checkpoints go.

        Args:
            checkpoints: the files.
            config: `checkpoint_every` or `checkpoint_minutes`.
        """
        self._files = checkpoints
        self._every, self._minutes = config.checkpoint_every, config.checkpoint_minutes
        self._step, self._saved = 0, 0.0
        self._random: dict[str, Tensor] = {}
        self._signal: int | None = None
        self._handlers: dict[int, Any] = {}

    def on_save_checkpoint(
        self, trainer: pl.Trainer, learner: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Adds the state of the random numbers, of every process."""
        states = {"cpu": torch.get_rng_state()}
        if learner.device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(learner.device)
        checkpoint["random"] = {
            name: learner.all_gather(state.to(learner.device)).reshape(-1, len(state)).cpu()
            for name, state in states.items()
        }
        # The batch that is already there has not been trained on: it will come again.
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        for count in (progress["total"], progress["current"]):
            count["ready"] = count["completed"]

    def on_load_checkpoint(
        self, trainer: pl.Trainer, learner: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Keeps the state of the random numbers until the first step, and tells the curves again.

        What was told before may have died with its process. A training that has no step left starts
        none, so it is told here.
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
        """Puts random numbers back, and listens to signals."""
        if "cpu" in self._random:
            torch.set_rng_state(self._random["cpu"])
        if "cuda" in self._random and learner.device.type == "cuda":
            torch.cuda.set_rng_state(self._random["cuda"], learner.device)
        self._step = trainer.global_step
        self._saved = time.monotonic()
        self._listen()

    def on_train_batch_start(
        self, trainer: pl.Trainer, learner: pl.LightningModule, batch: Any, batch_index: int
    ) -> None:
        """Saves where it is time to, and ends the training where a signal came."""
        together = trainer.world_size > 1
        if together and trainer.global_step % _AGREE_EVERY:
            return
        due, told = self._is_due(trainer.global_step), self._signal is not None
        if together:
            due = trainer.strategy.reduce_boolean_decision(due, all=False)
            told = trainer.strategy.reduce_boolean_decision(told, all=False)
        if due or told:
            self._save(trainer)
        if told:
            self._leave()

    def on_train_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        """Saves what was reached, before it is scored and written."""
        self._save(trainer)
        if self._signal is not None:
            self._leave()
        self._deafen()

    def on_exception(
        self, trainer: pl.Trainer, learner: pl.LightningModule, exception: BaseException
    ) -> None:
        """Leaves the signals as they were."""
        self._deafen()

    def _is_due(self, step: int) -> bool:
        if step == self._step:
            return False
        if self._every is not None:
            return step // self._every > self._step // self._every
        return self._minutes is not None and time.monotonic() - self._saved >= 60 * self._minutes

    def _save(self, trainer: pl.Trainer) -> None:
        if trainer.global_step != self._step:
            trainer.save_checkpoint(self._files.at(trainer.global_step), weights_only=False)
        self._step, self._saved = trainer.global_step, time.monotonic()

    def _listen(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._handlers[number] = signal.signal(number, self._note) or signal.SIG_DFL

    def _deafen(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def _note(self, number: int, frame: Any) -> None:
        self._signal = number
        self._deafen()  # the next one is as it would be without us

    def _leave(self) -> None:
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + signal.SIGTERM)
