"""The LightningDataModule: whole batches, in the order of the keyed permutation.

There are no worker processes: a batch is one gather, faster than a transfer between processes. On several
devices batch k of all ranks together holds the windows of batch k on one device, each once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytorch_lightning as pl

from forecaster.windows.batch import Batch
from forecaster.windows.index import Int64, WindowIndex, window_order
from forecaster.windows.split import Split
from forecaster.windows.store import WindowStore

_AHEAD = 1 << 14  # window numbers computed at once, so that the permutation's overhead vanishes


@dataclass(frozen=True, eq=False)
class TrainingStream:
    """Endless training batches; batch k is a function of (seed, k, rank, world)."""

    store: WindowStore
    index: WindowIndex
    batch_size: int
    seed: int
    first_step: int = 0
    rank: int = 0
    world: int = 1

    def __iter__(self) -> Iterator[Batch]:
        size = self.batch_size
        ahead = max(1, _AHEAD // size)
        for step in itertools.count(self.first_step, ahead):
            start, count = step * size, ahead * size
            numbers = window_order(
                len(self.index), self.seed, start, count, rank=self.rank, world=self.world
            )
            for chunk in numbers.reshape(ahead, size):
                yield _batch(self.store, self.index, chunk, history=False)


@dataclass(frozen=True, eq=False)
class WindowSequence:
    """Given windows of an index exactly once, in order; the last batch is as short as it is.

    Every rank has as many batches as the others, so that none waits for one that has gone; the last
    one may be empty.
    """

    store: WindowStore
    index: WindowIndex
    numbers: Int64
    batch_size: int
    rank: int = 0
    world: int = 1

    def __len__(self) -> int:
        return -(-len(self.numbers) // (self.batch_size * self.world))

    def __iter__(self) -> Iterator[Batch]:
        together = self.batch_size * self.world
        for start in range(0, len(self.numbers), together):
            chunk = self.numbers[start : start + together]
            yield _batch(self.store, self.index, chunk[self.rank :: self.world])


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


def _batch(store: WindowStore, index: WindowIndex, numbers: Int64, history: bool = True) -> Batch:
    series, channel, cutoff = index.locate(numbers)
    return store.batch(series, channel if index.channels > 1 else None, cutoff, history=history)
