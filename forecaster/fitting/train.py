"""The training loop: Lightning's trainer around a learner."""

from __future__ import annotations

import logging
import signal
import warnings
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from pytorch_lightning.plugins.io import CheckpointIO
from pytorch_lightning.strategies import DDPStrategy

from forecaster.config import Plan
from forecaster.fitting.checkpointing import Checkpointing
from forecaster.fitting.checkpoints import Checkpoints
from forecaster.fitting.context import TrainingContext
from forecaster.fitting.distributed import (
    DistributedContext,
    find_distributed_context,
    process_group,
    windows_per_step,
)
from forecaster.fitting.processes import Parent
from forecaster.fitting.stopping import StopByEvidence
from forecaster.model.hardware import cuda_count, spare_threads
from forecaster.model.learner import KeepBest, Learner
from forecaster.panel.store import open_store
from forecaster.windows.batch import Batch
from forecaster.windows.cleaning import training_panel
from forecaster.windows.split import Split
from forecaster.windows.store import WindowStore, training_store
from forecaster.windows.streams import TrainingStream, WindowSequence

GRADIENT_CLIP = 1.0
"""Largest gradient norm."""
CheckpointIO.register(Checkpoints)


def train(
    learner: Learner[Any], store: WindowStore, split: Split, config: Plan, context: TrainingContext
) -> KeepBest:
    """Trains a learner in place; its `average` then holds the best weights.

    Raises:
        FitError: the loss is not finite; names the series.
    """
    distributed = context.distributed
    context.send((learner, split, config, context.checkpoints is not None, context.effects))
    if distributed.rank:  # dropout differs between ranks
        torch.manual_seed(config.fit.seed + distributed.rank)
    best = StopByEvidence() if config.fit.by_evidence else KeepBest()
    files = context.checkpoints and context.checkpoints.within(learner.name)
    saving = [] if files is None else [Checkpointing(files)]
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
            num_sanity_val_steps=-1 if context.starts_trained else 0,
            gradient_clip_val=GRADIENT_CLIP,
            logger=context.logger or False,
            callbacks=[best, *saving, *context.callbacks],
            plugins=files and [files],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        windows = windows_per_step(config, learner.network.shape.channels, distributed)
        data = WindowDataModule(store, split, windows, config.fit.seed)
        interrupt = signal.getsignal(signal.SIGINT)
        try:
            newest = files.newest() if files else None
            trainer.fit(learner, datamodule=data, ckpt_path=newest, weights_only=True)
            if validates and best.checked < learner.global_step:
                # The steps after the last regular validation count too.
                trainer.validate(learner, datamodule=data, verbose=False)
        except SystemExit as left:
            # Lightning turns Ctrl-C into exit code 1 and leaves SIGINT ignored.
            if not isinstance(left.__context__, KeyboardInterrupt):
                raise
            signal.signal(signal.SIGINT, interrupt)
            raise KeyboardInterrupt from left
    if best.weights is None:
        best.step = best.taken = learner.global_step
    else:
        learner.average.load_state_dict(best.weights)
    return best


class WindowDataModule(pl.LightningDataModule):
    """This rank's part of the endless training stream, from the trainer's step on, and of validation."""

    def __init__(self, store: WindowStore, split: Split, batch_size: int, seed: int):
        """Takes the windows of one split; `batch_size` is that of one rank."""
        super().__init__()
        self.store, self.split, self.batch_size, self.seed = store, split, batch_size, seed

    def train_dataloader(self) -> TrainingStream:
        trainer = self.trainer
        return TrainingStream(
            self.store,
            self.split.train,
            self.batch_size,
            self.seed,
            first_step=trainer.global_step,
            rank=trainer.global_rank,
            world=trainer.world_size,
        )

    def val_dataloader(self) -> WindowSequence | list[Batch]:
        if len(self.split.validation_windows) == 0:
            return []  # switches validation off
        return WindowSequence(
            self.store,
            self.split.validation,
            self.split.validation_windows,
            4 * self.batch_size,
            rank=self.trainer.global_rank,
            world=self.trainer.world_size,
        )


def train_rank(parent: Parent) -> None:
    """Trains along as one of the ranks that `launch_ranks` started; writes no file but checkpoints."""
    config, folder, checkpoints = parent.receive()
    distributed = find_distributed_context(None, None)
    panel = open_store(folder)
    files = checkpoints and Checkpoints(*checkpoints)
    parent.send("ready")
    with spare_threads(distributed.devices), process_group(distributed):
        while True:
            learner, split, config, saves, effects = parent.receive()
            store = training_store(training_panel(panel, config, split.split, effects), config, effects)
            own = TrainingContext(distributed=distributed, checkpoints=files if saves else None)
            train(learner, store, split, config, own)


class _RunningRanks(DDPStrategy):
    """DDP without a launcher: Lightning refuses its own in a notebook, and all ranks already run."""

    def _configure_launcher(self) -> None:
        self._launcher = None


def _hardware(distributed: DistributedContext) -> dict[str, Any]:
    accelerator = "cuda" if cuda_count() else "cpu"
    if distributed.world_size == 1:
        return {"accelerator": accelerator, "devices": 1}
    return {
        "accelerator": accelerator,
        "devices": distributed.devices,
        "num_nodes": distributed.nodes,
        "use_distributed_sampler": False,  # the windows are divided already
        # No buffer changes in training, so that none needs to be broadcast.
        "strategy": _RunningRanks(
            cluster_environment=TorchElasticEnvironment(), broadcast_buffers=False
        ),
    }
