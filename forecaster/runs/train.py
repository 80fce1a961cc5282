"""The training loop: Lightning's trainer around a learner.

What comes in: a learner, windows, a config, and what the training runs on. What goes out: the learner
trained, with the best weights it had. Promised: early stopping returns the best weights; Ctrl-C comes
out as Ctrl-C.
"""

from __future__ import annotations

import logging
import signal
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.strategies import DDPStrategy

from forecaster.config import Config, FitConfig
from forecaster.forecast.forecast import Forecast
from forecaster.model.learner import KeepBest, Learner
from forecaster.runs.checkpoints import Checkpointing, Checkpoints
from forecaster.runs.distributed import SINGLE_PROCESS, DistributedContext, windows_per_step
from forecaster.windows.datamodule import WindowDataModule
from forecaster.windows.split import Split
from forecaster.windows.store import WindowStore


@dataclass(frozen=True)
class TrainingContext:
    """What a training runs on and who watches it: nothing of it changes what is learned."""

    logger: Logger | None = None
    """Receives the curves while they grow."""
    callbacks: tuple[pl.Callback, ...] = ()
    """See the training from inside, as a progress bar does; of this process, the others may have none.
    One that sets `should_stop` after a validation stops all."""
    distributed: DistributedContext = SINGLE_PROCESS
    """Where this process stands among those that train together; they have met (`devices.joined`)."""
    checkpoints: Checkpoints | None = None
    """Where checkpoints lie; the newest is where the training goes on."""
    settled: Callable[[FitConfig], None] = lambda fit: None
    """Told once what this machine has decided, before the first training."""
    say: Callable[[str], None] = lambda text: None
    """Told how that came about."""
    validated: Callable[[Mapping[str, Forecast]], None] | None = None
    """Receives the forecasts of the validation windows, by model."""


NO_CONTEXT = TrainingContext()
"""One device, no logger, no checkpoints."""


def train(
    learner: Learner, store: WindowStore, split: Split, config: Config, context: TrainingContext
) -> KeepBest:
    """Trains a learner; its `average` then holds the weights to keep.

    Args:
        learner: changed in place.
        store: of the panel's windows.
        split: which windows train and which are watched.
        config: resolved.
        context: what the training runs on, and who watches.

    Raises:
        FitError: the loss is not finite; names the series.
    """
    distributed = context.distributed
    if distributed.rank:  # each its own dropout
        torch.manual_seed(config.fit.seed + distributed.rank)
    best, files = KeepBest(config.fit.patience), context.checkpoints
    watch = [] if files is None else [Checkpointing(files, config.fit)]
    validates = len(split.validation_windows) > 0
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # Lightning advises worker processes, devices and log intervals; each choice here is meant.
        warnings.filterwarnings("ignore", module="pytorch_lightning|lightning_fabric")
        warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*")
        trainer = pl.Trainer(
            **_hardware(distributed),
            max_steps=config.fit.steps,
            max_epochs=-1,
            val_check_interval=min(config.fit.validate_every, config.fit.steps) if validates else None,
            check_val_every_n_epoch=None if validates else 1,
            limit_val_batches=None if validates else 0,
            num_sanity_val_steps=0,
            gradient_clip_val=config.fit.gradient_clip,
            logger=context.logger or False,
            callbacks=[best, *watch, *context.callbacks],
            plugins=files and [files],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        windows = windows_per_step(config, learner.network.shape.channels, distributed)
        data = WindowDataModule(store, split, windows, config.fit.seed)
        interrupt = signal.getsignal(signal.SIGINT)
        try:
            begun = files.newest() if files else None
            trainer.fit(learner, datamodule=data, ckpt_path=begun, weights_only=True)
            if validates and best.checked < learner.global_step:
                # The steps after the last regular validation count too.
                trainer.validate(learner, datamodule=data, verbose=False)
        except SystemExit as left:
            # Lightning turns Ctrl-C into exit code 1 and leaves the process deaf to it.
            if not isinstance(left.__context__, KeyboardInterrupt):
                raise
            signal.signal(signal.SIGINT, interrupt)
            raise KeyboardInterrupt from left
    if best.weights is not None:
        learner.average.load_state_dict(best.weights)
    return best


def _hardware(distributed: DistributedContext) -> dict[str, Any]:
    """Returns what Lightning is told of the devices."""
    if distributed.world == 1:
        return {"accelerator": "auto", "devices": 1}
    return {
        "accelerator": "cuda" if torch.cuda.is_available() else "cpu",
        "devices": distributed.devices,
        "num_nodes": distributed.nodes,
        "use_distributed_sampler": False,  # the windows are shared out already
        # All processes hold the same buffers, since none changes in training.
        "strategy": _Together(cluster_environment=_Met(distributed), broadcast_buffers=False),
    }


class _Together(DDPStrategy):
    """Starts nothing: Lightning's own launcher is refused in a notebook, and there is none to need."""

    def _configure_launcher(self) -> None:
        self._launcher = None


class _Met(ClusterEnvironment):
    """Tells Lightning of processes that run already and have met."""

    def __init__(self, distributed: DistributedContext):
        super().__init__()
        self._place = distributed

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return self._place.meeting

    @property
    def main_port(self) -> int:
        return 0

    @staticmethod
    def detect() -> bool:
        return False

    def world_size(self) -> int:
        return self._place.world

    def set_world_size(self, size: int) -> None:
        assert size == self._place.world

    def global_rank(self) -> int:
        return self._place.rank

    def set_global_rank(self, rank: int) -> None:
        assert rank == self._place.rank

    def local_rank(self) -> int:
        return self._place.local_rank

    def node_rank(self) -> int:
        return self._place.rank // self._place.devices
