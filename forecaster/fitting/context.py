"""What a training runs with: devices, precision, logger, callbacks, checkpoints; and its ranks.

Nothing here loads Lightning, which takes longer than the fit of a short table that trains no network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from forecaster.config import Plan
from forecaster.fitting.checkpoints import Checkpoints
from forecaster.fitting.distributed import (
    SINGLE_PROCESS,
    DistributedContext,
    broadcast_from_rank_zero,
    launch_ranks,
    process_group,
)
from forecaster.fitting.reporter import SILENT, Reporter
from forecaster.model.hardware import spare_threads
from forecaster.panel.panel import Panel
from forecaster.windows.effects import Effects

if TYPE_CHECKING:
    import pytorch_lightning as pl
    from pytorch_lightning.loggers.logger import Logger


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
    effects: Effects | None = None
    """Taken out of the panel that other ranks hold."""
    errors: bool = True
    """Keep errors at earlier cutoffs, which sample paths are ordered by."""
    starts_trained: bool = False
    """The weights are those of another artifact, and may be the best: they are validated first."""
    tunes: bool = True
    """Tune attention over experts; False = as the artifact of the start has it."""


NO_CONTEXT = TrainingContext()
"""One device, no logger, no checkpoints, no reports."""


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
