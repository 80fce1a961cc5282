"""Checkpoints of one training: the files, and the callback that writes them and restores from them.

Not Lightning's `ModelCheckpoint`: it saves no random state, counts the prefetched batch as trained on,
and saves before the validation that belongs to its step, so that a resumed fit would end elsewhere.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.io import CheckpointIO
from torch import Tensor

from forecaster.errors import ArtifactError, OutputError
from forecaster.files import atomic_file
from forecaster.fitting.processes import StopSignals
from forecaster.model.learner import Learner

IDENTITY = "fit"
"""The entry of a checkpoint that identifies its fit."""
MINUTES = 10.0
"""Between checkpoints, unless a number of steps is given."""
_AGREE_EVERY = 10  # steps; ranks must all save, or none


class Checkpoints(CheckpointIO):
    """The files `step-00000120.checkpoint` of a folder, the last two of which are kept."""

    def __init__(
        self,
        folder: Path,
        identity: str,
        every: int | None = None,
        say: Callable[[str], None] = lambda text: None,
    ):
        """Takes the folder and the schedule.

        Args:
            folder: of the checkpoints.
            identity: of the fit; a checkpoint of another one is skipped, as a damaged one is.
            every: steps between checkpoints; None = `MINUTES` instead.
            say: prints a line.
        """
        self.folder, self.identity, self.every = folder, identity, every
        self._say, self._fails = say, False
        self._read: dict[Path, dict[str, Any]] = {}

    def within(self, name: str) -> Checkpoints:
        """Returns the checkpoints of another training of the same fit, in a subfolder."""
        if not name:
            return self
        return Checkpoints(self.folder / name, self.identity, self.every, self._say)

    def at(self, step: int) -> Path:
        """Returns the path of the checkpoint after so many steps."""
        return self.folder / f"step-{step:08d}.checkpoint"

    def newest(self) -> Path | None:
        """Returns the newest valid checkpoint; None if the training has not begun.

        Raises:
            ArtifactError: there are some, and none can be read.
        """
        faults = []
        for path in reversed(checkpoints_in(self.folder)):
            try:
                with ZipFile(path) as parts:
                    if parts.testzip():  # torch does not check the sums
                        raise ArtifactError
                content = torch.load(path, map_location="cpu", weights_only=True)
                if content[IDENTITY] != self.identity:
                    raise ValueError("of another fit")
            except Exception as error:  # what a damaged file raises depends on where it is damaged
                why = str(error) if isinstance(error, ValueError) else "damaged, or no checkpoint"
                faults.append(f"{path}: {why}")
                continue
            for fault in faults:
                self._say(f"{fault}; falling back to the previous checkpoint")
            self._say(f"resumes after step {step_of(path)}")
            self._read = {path: content}
            return path
        if faults:
            raise ArtifactError(
                "; ".join(faults) + "; no checkpoint is left to resume from: start over with --restart"
            )
        return None

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Writes a checkpoint, and removes all but it and the one before."""
        path = Path(path)
        try:
            # Through memory: on a full disk torch.save into a file raises RuntimeError, not OSError.
            content = io.BytesIO()
            torch.save(checkpoint | {IDENTITY: self.identity}, content)
            with atomic_file(path) as partial:
                partial.write_bytes(content.getbuffer())
        except OutputError as error:
            if not self._fails:
                self._say(f"no checkpoint: {error}; training continues without")
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
        """Removes a checkpoint."""
        Path(path).unlink(missing_ok=True)


def checkpoints_in(folder: Path) -> list[Path]:
    """Returns the checkpoints of a folder, oldest first."""
    return sorted(folder.glob("step-*.checkpoint"))


def step_of(path: Path) -> int:
    """Returns after how many steps a checkpoint was written."""
    return int(path.stem.removeprefix("step-"))


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
