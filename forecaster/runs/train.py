"""The training loop: Lightning's trainer around a learner.

What comes in: a learner, windows, a config, and what the training runs on. What goes out: the learner
trained, with the best weights it had. Promised: early stopping returns the best weights; Ctrl-C comes
out as Ctrl-C.
"""

from __future__ import annotations

import logging
import signal
import warnings
from dataclasses import dataclass

import pytorch_lightning as pl
from pytorch_lightning.loggers.logger import Logger

from forecaster.config import Config
from forecaster.model.learner import KeepBest, Learner
from forecaster.windows.datamodule import WindowDataModule
from forecaster.windows.split import Split
from forecaster.windows.store import WindowStore


@dataclass(frozen=True)
class Surroundings:
    """What a training runs on and who watches it: nothing of it changes what is learned."""

    logger: Logger | None = None
    """Receives the curves while they grow."""
    callbacks: tuple[pl.Callback, ...] = ()
    """See the training from inside, as a progress bar does."""


ALONE = Surroundings()
"""One device, nobody watching."""


def train(
    learner: Learner, store: WindowStore, split: Split, config: Config, surroundings: Surroundings
) -> KeepBest:
    """Trains a learner; its `average` then holds the weights to keep.

    Args:
        learner: changed in place.
        store: of the panel's windows.
        split: which windows train and which are watched.
        config: resolved.
        surroundings: what the training runs on, and who watches.

    Raises:
        FitError: the loss is not finite; names the series.
    """
    best = KeepBest(config.fit.patience)
    validates = len(split.held) > 0
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # Lightning advises worker processes, devices and log intervals; each choice here is meant.
        warnings.filterwarnings("ignore", module="pytorch_lightning")
        warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*")
        trainer = pl.Trainer(
            accelerator="auto",
            devices=1,
            max_steps=config.fit.steps,
            max_epochs=-1,
            val_check_interval=min(config.fit.validate_every, config.fit.steps) if validates else None,
            check_val_every_n_epoch=None if validates else 1,
            limit_val_batches=None if validates else 0,
            num_sanity_val_steps=0,
            gradient_clip_val=config.fit.gradient_clip,
            logger=surroundings.logger or False,
            callbacks=[best, *surroundings.callbacks],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        together = learner.network.shape.channels if config.model.channel_attention else 1
        windows = max(1, config.fit.batch_size // together)  # the setting counts channel-windows
        data = WindowDataModule(store, split, windows, config.fit.seed)
        interrupt = signal.getsignal(signal.SIGINT)
        try:
            trainer.fit(learner, datamodule=data)
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
