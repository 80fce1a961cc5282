"""Checkpoints of one training: the files, and the callback that writes and restores them."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.io import CheckpointIO
from torch import Tensor

from forecaster.config import FitConfig
from forecaster.errors import ArtifactError, OutputError
from forecaster.files import atomic_file
from forecaster.model.learner import Learner

IDENTITY = "fit"
"""The entry of a checkpoint that says of which fit it is."""


class Checkpoints(CheckpointIO):
    """The files `step-00000120.checkpoint` of a folder; Lightning reads and writes through them."""

    def __init__(self, folder: Path, identity: str, say: Callable[[str], None]):
        """Takes where they are.

        Args:
            folder: of one fit.
            identity: of that fit; a checkpoint with another one is not taken.
            say: where to say what was passed over, and what could not be written.
        """
        self.folder, self.identity = folder, identity
        self._say, self._fails = say, False
        self._read: dict[Path, dict[str, Any]] = {}

    def within(self, name: str) -> Checkpoints:
        """Returns those of another training of the same fit, in a folder of their own inside this one.

        Args:
            name: of the training; empty: the first one, whose checkpoints lie here.
        """
        return Checkpoints(self.folder / name, self.identity, self._say) if name else self

    def at(self, step: int) -> Path:
        """Returns the name of the checkpoint after so many steps."""
        return self.folder / f"step-{step:08d}.checkpoint"

    def newest(self) -> Path | None:
        """Returns the newest checkpoint that is whole and of this fit; None = training has not begun.

        Raises:
            ArtifactError: there are some, and none can be read.
        """
        faults = []
        for path in reversed(checkpoints_in(self.folder)):
            try:
                with ZipFile(path) as parts:
                    if parts.testzip():  # torch itself takes numbers as they are
                        raise ArtifactError
                content = torch.load(path, map_location="cpu", weights_only=True)
                if content[IDENTITY] != self.identity:
                    raise ValueError("of another fit")
            except Exception as error:  # what a damaged file raises depends on where it is damaged
                why = str(error) if isinstance(error, ValueError) else "damaged, or no checkpoint"
                faults.append(f"{path}: {why}")
                continue
            for fault in faults:
                self._say(f"{fault}; the one before is taken")
            self._say(f"goes on after step {step_of(path)}")
            self._read = {path: content}
            return path
        if faults:
            raise ArtifactError(
                "; ".join(faults) + "; none is left to go on from: begin with --restart"
            )
        return None

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Writes one, and removes all but it and the one before."""
        path = Path(path)
        try:
            with atomic_file(path) as partial, partial.open("wb") as file:
                torch.save(checkpoint | {IDENTITY: self.identity}, file)
        except OutputError as error:
            if not self._fails:
                self._say(f"no checkpoint: {error}; the training goes on without")
            self._fails = True
            return
        self._fails = False
        before = [other for other in checkpoints_in(self.folder) if other < path][-1:]
        for other in checkpoints_in(self.folder):
            if other not in (path, *before):
                other.unlink()

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: Any = True) -> Any:
        """Returns what `newest` has read."""
        return self._read.pop(Path(path))

    def remove_checkpoint(self, path: Any) -> None:
        """Removes one."""
        Path(path).unlink(missing_ok=True)


def checkpoints_in(folder: Path) -> list[Path]:
    """Returns the checkpoints of a folder, the oldest first."""
    return sorted(folder.glob("step-*.checkpoint"))


def step_of(path: Path) -> int:
    """Returns after how many steps a checkpoint was written."""
    return int(path.stem.removeprefix("step-"))


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
