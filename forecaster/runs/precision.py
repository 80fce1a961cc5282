"""In what precision matrices are multiplied in training, where that is left to the machine.

What comes in: a network, its windows, and `fit.precision` auto. What goes out: full or bf16, and the
seconds of a step that decided. Promised: weights and random numbers are as they were.
"""

from __future__ import annotations

import copy
import statistics
import time
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import torch

from forecaster.config import Config
from forecaster.model.loss import LossOptions, window_losses
from forecaster.model.network import Network
from forecaster.runs.distributed import DistributedContext, broadcast_from_rank_zero, windows_per_step
from forecaster.windows.batch import Batch
from forecaster.windows.datamodule import TrainingStream
from forecaster.windows.split import Split
from forecaster.windows.store import WindowStore

Chosen = Literal["full", "bf16"]

_WARM, _STEPS = 2, 7
_PAYS = 0.95  # of the time; a smaller gain is not worth the rounding


@dataclass(frozen=True)
class Measured:
    """How long a training step takes on this machine."""

    full: float
    """Seconds, float32."""
    bf16: float
    """Seconds, products of matrices in bfloat16."""

    @property
    def chosen(self) -> Chosen:
        """The faster one."""
        return "bf16" if self.bf16 < _PAYS * self.full else "full"


def settle_precision(
    network: Network, store: WindowStore, split: Split, config: Config, distributed: DistributedContext
) -> tuple[Config, Measured | None]:
    """Returns the config with a precision that is no longer "auto", and what was measured for that.

    The first of the processes that train together decides for all.

    Args:
        network: about to be trained.
        store, split: its windows.
        config: resolved but for the precision.
        distributed: of this process, which has met the others.
    """
    if config.fit.precision != "auto":
        return config, None
    measured = None
    if distributed.is_main:
        windows = windows_per_step(config, network.shape.channels, distributed)
        measured = _measure(network, store, split, config, windows)
    measured = broadcast_from_rank_zero(measured, distributed)
    fit = config.fit.model_copy(update={"precision": measured.chosen if measured else "full"})
    return config.model_copy(update={"fit": fit}), measured


def _measure(
    network: Network, store: WindowStore, split: Split, config: Config, windows: int
) -> Measured | None:
    """Returns how long a training step takes in each precision; None where bfloat16 is emulated."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not _multiplies_bf16(device):
        return None
    stream = TrainingStream(store, split.train, windows, config.fit.seed)
    batch = next(islice(stream, 1)).to(device)
    copied = copy.deepcopy(network).to(device).train()
    taken: dict[bool, list[float]] = {False: [], True: []}
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        for number in range(_WARM + _STEPS):
            for cast in taken:  # in turns, so that what else the machine does meets both
                seconds = _step(copied, batch, cast)
                taken[cast] += [seconds] if number >= _WARM else []
    return Measured(*(statistics.median(taken[cast]) for cast in (False, True)))


def _step(network: Network, batch: Batch, cast: bool) -> float:
    begun = time.perf_counter()
    total, count = window_losses(network, batch, LossOptions(bf16=cast))
    network.zero_grad()
    (total.sum() / count.sum().clamp(min=1)).backward()
    if batch.target.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def _multiplies_bf16(device: torch.device) -> bool:
    """Whether the device has instructions for it: an emulation is slower, if never wrong."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # No public function tells it of a processor.
    return bool(torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())
