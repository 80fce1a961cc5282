"""Checkpoints of one training: its files. `checkpointing.py` says when they are written."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch

from forecaster.errors import ArtifactError, OutputError
from forecaster.files import atomic_file

IDENTITY = "fit"
"""The entry of a checkpoint that identifies its fit."""


class Checkpoints:
    """The files `step-00000120.checkpoint` of a folder, the last two of which are kept.

    To Lightning a `CheckpointIO`, as which `train.py` registers it: this file loads without.
    """

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
            every: steps between checkpoints; None = some minutes instead.
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

    def teardown(self) -> None:
        """Does nothing: no file stays open."""


def checkpoints_in(folder: Path) -> list[Path]:
    """Returns the checkpoints of a folder, oldest first."""
    return sorted(folder.glob("step-*.checkpoint"))


def step_of(path: Path) -> int:
    """Returns after how many steps a checkpoint was written."""
    return int(path.stem.removeprefix("step-"))
