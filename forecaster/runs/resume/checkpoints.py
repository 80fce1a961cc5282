"""The checkpoints of one training, as files.

What comes in: the state of a training, as tensors and plain values. What goes out: the same, from
the newest file that is whole. Promised: a checkpoint appears whole or not at all; the last two are
kept; one that is damaged, or of another fit, is passed over, which is said; reading one runs no code
from it; one that cannot be written is said once and stops no training.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from pytorch_lightning.plugins.io import CheckpointIO

from forecaster.atomic import atomic_file
from forecaster.errors import ArtifactError, OutputError

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
