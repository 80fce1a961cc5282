"""The training loop: Lightning's trainer around a learner."""

from __future__ import annotations

import logging
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.strategies import DDPStrategy

from forecaster.config import Plan
from forecaster.fitting.checkpoints import Checkpointing, Checkpoints
from forecaster.fitting.distributed import (
    SINGLE_PROCESS,
    DistributedContext,
    broadcast_from_rank_zero,
    find_distributed_context,
    launch_ranks,
    process_group,
    windows_per_step,
)
from forecaster.fitting.processes import Parent
from forecaster.fitting.reporter import SILENT, Reporter
from forecaster.model.hardware import cuda_count, spare_threads
from forecaster.model.learner import KeepBest, Learner
from forecaster.panel.panel import Panel
from forecaster.panel.store import open_store
from forecaster.windows.datamodule import WindowDataModule
from forecaster.windows.split import Split
from forecaster.windows.store import WindowStore, training_store


@dataclass(frozen=True)
class TrainingContext:
    """Devices, precision, logger, callbacks, checkpoints and reporter of a training."""

    logger: Logger | None = None
    callbacks: tuple[pl.Callback, ...] = ()
    """Of rank 0; one that sets `should_stop` after a validation stops all ranks."""
    distributed: DistributedContext = SINGLE_PROCESS
    send: Callable[[object], None] = lambda message: None
    """Sends a message to the ranks that this process has started."""
    checkpoints: Checkpoints | None = None
    """The training resumes from the newest."""
    bf16: bool = False
    """Multiply matrices in bfloat16."""
    compiled: bool = False
    """Compile the training loss with torch."""
    reporter: Reporter = SILENT
    errors: bool = True
    """Keep errors at earlier cutoffs, which sample paths are ordered by."""


NO_CONTEXT = TrainingContext()
"""One device, no logger, no checkpoints, no reports."""


GRADIENT_CLIP = 1.0
"""Largest gradient norm."""


@contextmanager
def training_ranks(
    panel: Panel, plan: Plan, context: TrainingContext
) -> Iterator[tuple[Plan, TrainingContext]]:
    """Holds the ranks of a fit; yields the plan of rank 0 and the context of trainings on all of them.

    Raises:
        FitError: a rank died, did not join, or was lost.
    """
    distributed = context.distributed
    with (
        torch.random.fork_rng(devices=[]),
        spare_threads(distributed.devices),
        launch_ranks(distributed, panel, plan, context.checkpoints) as send,
        process_group(distributed),
    ):
        # Rank 0 alone knows whether it resumes a fit, and what that one had settled.
        files = context.checkpoints
        if files is not None:
            files.identity = broadcast_from_rank_zero(files.identity, distributed)
        yield broadcast_from_rank_zero(plan, distributed), replace(context, send=send)


def train(
    learner: Learner[Any], store: WindowStore, split: Split, config: Plan, context: TrainingContext
) -> KeepBest:
    """Trains a learner in place; its `average` then holds the best weights.

    Raises:
        FitError: the loss is not finite; names the series.
    """
    distributed = context.distributed
    context.send((learner, split, config, context.checkpoints is not None))
    if distributed.rank:  # dropout differs between ranks
        torch.manual_seed(config.fit.seed + distributed.rank)
    best = KeepBest(config.fit.patience)
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
            num_sanity_val_steps=0,
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
        best.step = learner.global_step
    else:
        learner.average.load_state_dict(best.weights)
    return best


def train_rank(parent: Parent) -> None:
    """Trains along as one of the ranks that `launch_ranks` started; writes no file but checkpoints."""
    config, folder, checkpoints = parent.receive()
    distributed = find_distributed_context(None, None)
    store = training_store(open_store(folder), config)
    files = checkpoints and Checkpoints(*checkpoints)
    parent.send("ready")
    with spare_threads(distributed.devices), process_group(distributed):
        while True:
            learner, split, config, saves = parent.receive()
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
