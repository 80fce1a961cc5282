"""Progress of a training: curves to MLflow, a bar to the terminal."""

from __future__ import annotations

import math
import time
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loggers.logger import Logger
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from forecaster.runs.console import progress_bar, time_left
from forecaster.runs.tracking import TrackedRun

_FLUSH_SECONDS = 2.0
_FLUSH_POINTS = 900
_QUIET_SECONDS = 10.0


class BufferedLogger(Logger):
    """Sends curves to an MLflow run every few seconds; a call per point doubles a small fit.

    Rank 0 alone has one.
    """

    def __init__(self, run: TrackedRun):
        super().__init__()
        self._run = run
        self._points: list[tuple[str, float, int, int]] = []
        self._flushed = time.monotonic()

    @property
    def name(self) -> str:
        """Name of the logger in Lightning."""
        return "mlflow"

    @property
    def version(self) -> str:
        """Id of the run."""
        return self._run.run_id

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: the resolved config is logged once, with the artifact."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Buffers points, and sends them when there are many or some time has passed."""
        now = int(time.time() * 1000)
        self._points += [(name, float(value), now, step or 0) for name, value in metrics.items()]
        waited = time.monotonic() - self._flushed
        if waited > _FLUSH_SECONDS or len(self._points) >= _FLUSH_POINTS:
            self._flush()

    def finalize(self, status: str) -> None:
        """Sends the rest."""
        self._flush()

    def _flush(self) -> None:
        points, self._points = self._points, []
        self._flushed = time.monotonic()
        self._run.log_metrics(points)


class TrainingBar(pl.Callback):
    """A progress bar with the loss, the best validation loss and the time left."""

    def __init__(self, console: Console):
        name = TextColumn("training {task.fields[name]}")
        steps = TextColumn("{task.completed}/{task.total} steps · loss {task.fields[loss]}")
        self._progress = progress_bar(console, name, BarColumn(), steps, TimeRemainingColumn())
        self._task = self._progress.add_task("", total=None, loss="…", name="")
        self._console, self._printed = console, time.monotonic()
        self._begun = self._printed, 0

    def on_train_start(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        """Prints the number of weights, and shows the bar."""
        if not learner.name:
            weights = sum(weight.numel() for weight in learner.network.parameters())
            self._console.print(f"{weights:,} weights", highlight=False)
        self._begun = time.monotonic(), trainer.global_step
        self._progress.reset(self._task, total=trainer.max_steps, loss="…", name=learner.name)
        self._progress.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, learner: pl.LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        """Moves the bar."""
        if trainer.global_step % 10 == 0:
            self._progress.update(self._task, completed=trainer.global_step, loss=_losses(learner))

    def on_validation_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        """Prints a line now and then where no bar can move, as in a log file."""
        if self._progress.disable and time.monotonic() - self._printed > _QUIET_SECONDS:
            self._printed = now = time.monotonic()
            begun, first = self._begun
            step = f"{learner.name} step {trainer.global_step}/{trainer.max_steps}".lstrip()
            pace = (now - begun) / max(1, trainer.global_step - first)
            left = time_left(pace * (trainer.max_steps - trainer.global_step))
            self._console.print(f"{step}, loss {_losses(learner)}, at most {left}", highlight=False)

    def on_train_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        """Removes the bar."""
        self._progress.stop()

    def on_exception(
        self, trainer: pl.Trainer, learner: pl.LightningModule, exception: BaseException
    ) -> None:
        """Removes the bar before an error is printed."""
        self._progress.stop()


def _losses(learner: pl.LightningModule) -> str:
    text = "…" if math.isnan(learner.latest_loss) else f"{learner.latest_loss:.4f}"
    validated = learner.curves.get("validation_loss")
    if validated:
        text += f" · best validation {min(loss for _, loss in validated):.4f}"
    return text
