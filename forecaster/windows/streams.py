"""Streams of whole batches, in the order of the keyed permutation or of an index.

There are no worker processes: a batch is one gather, faster than a transfer between processes. On several
devices batch k of all ranks together holds the windows of batch k on one device, each once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from forecaster.windows.batch import Batch
from forecaster.windows.index import Int64, WindowIndex, window_order
from forecaster.windows.store import WindowStore

_AHEAD = 1 << 11  # window numbers computed at once: most of the permutation's overhead vanishes


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


def _batch(store: WindowStore, index: WindowIndex, numbers: Int64, history: bool = True) -> Batch:
    series, channel, cutoff = index.locate(numbers)
    return store.batch(series, channel if index.channels > 1 else None, cutoff, history=history)
