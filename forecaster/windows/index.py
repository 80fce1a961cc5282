"""Window number ↔ (series, channel, cutoff), and the shuffled order of windows.

Integer arithmetic alone: memory grows with the number of series, never with the number of windows. Each
window of an epoch occurs exactly once, for any number of ranks; window k of epoch e is a function of
(seed, e, k), so the state to resume from is one integer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]

_ROUNDS = 6  # four already pass as random by eye; two more cost 20 ns per window


@dataclass(frozen=True)
class WindowIndex:
    """Numbers all windows of a panel: series after series, channel after channel, cutoffs rising."""

    first: Int64
    """[series] row of the first cutoff."""
    count: Int64
    """[series] number of cutoffs; 0 for a series that has none."""
    stride: int
    """Rows between neighbouring cutoffs of a series."""
    channels: int
    """Windows per cutoff: one per channel, or 1 where a window holds them all."""
    members: NDArray[np.bool_] | None = None
    """[series, channel] which channels each series has; None = all."""
    begin: Int64 = field(init=False, repr=False)
    """[series + 1] number of the first window of each series; last, the number of windows."""

    def __post_init__(self) -> None:
        channels = self.channels if self.members is None else self.members.sum(axis=1)
        windows = np.append(0, self.count * channels)
        object.__setattr__(self, "begin", np.cumsum(windows, dtype=np.int64))

    def __len__(self) -> int:
        return int(self.begin[-1])

    def locate(self, numbers: Int64) -> tuple[Int64, Int64, Int64]:
        """Returns (series, channel, cutoff row) of window numbers in [0, len), in any order."""
        series = np.searchsorted(self.begin, numbers, side="right") - 1
        channel, step = np.divmod(numbers - self.begin[series], self.count[series])
        if self.members is not None:
            channel = self._own_first[series, channel]
        return series, channel, self.first[series] + step * self.stride

    def numbers(self, series: Int64, channel: Int64, cutoff: Int64) -> Int64:
        """Returns the window numbers of (series, channel, cutoff row): the inverse of `locate`."""
        if self.members is not None:
            channel = np.cumsum(self.members, axis=1)[series, channel] - 1
        step = (cutoff - self.first[series]) // self.stride
        return self.begin[series] + channel * self.count[series] + step

    def between(self, first: Int64, last: Int64) -> WindowIndex:
        """Returns the index with other cutoff rows [series]: from first to last; none where last < first."""
        return replace(self, first=first, count=np.maximum(0, (last - first) // self.stride + 1))

    @cached_property
    def _own_first(self) -> Int64:
        """[series, channel] channels, those that a series has before the others."""
        assert self.members is not None
        return np.argsort(~self.members, axis=1, kind="stable")


def permuted(positions: Int64, size: int, seed: int, epoch: int) -> Int64:
    """Returns the numbers at some positions of a permutation of [0, size) chosen by (seed, epoch).

    A Feistel network over the mixed radix a × b, the smallest such box that holds `size`; the few
    points outside walk on until they land inside (Black and Rogaway, "Ciphers with arbitrary finite
    domains", 2002). Nothing is stored, so 10⁹ windows cost as much memory as ten.
    """
    high = max(1, int(np.ceil(np.sqrt(size))))
    low = -(-size // high)
    keys = np.random.default_rng([seed, epoch]).integers(0, 2**64, size=2 * _ROUNDS, dtype=np.uint64)
    numbers = _feistel(positions.astype(np.uint64), high, low, keys)
    outside = numbers >= size
    while outside.any():
        numbers[outside] = _feistel(numbers[outside], high, low, keys)
        outside = numbers >= size
    return numbers.astype(np.int64)


def _feistel(
    points: NDArray[np.uint64], high: int, low: int, keys: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    left, right = np.divmod(points, np.uint64(low))
    for a, b in zip(keys[::2], keys[1::2], strict=True):
        left = (left + _mix(right ^ a) % np.uint64(high)) % np.uint64(high)
        right = (right + _mix(left ^ b) % np.uint64(low)) % np.uint64(low)
    return left * np.uint64(low) + right


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # The finaliser of splitmix64; wraps around on purpose.
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def window_order(
    size: int, seed: int, start: int, count: int, *, rank: int = 0, world: int = 1
) -> Int64:
    """Returns the window numbers that one rank meets at a stretch of an endless training.

    Position p of the endless order lies in epoch p // size; rank r owns the positions ≡ r modulo the
    world size. The union over ranks of an epoch is therefore exactly the set of windows.

    Args:
        size: number of windows, at least 1.
        seed: chooses the orders of all epochs.
        start: the rank's own windows already met; the one integer that resuming needs.
        count: windows wanted.
        rank: this process.
        world: number of processes.
    """
    positions = (start + np.arange(count, dtype=np.int64)) * world + rank
    epochs, within = np.divmod(positions, size)
    numbers = np.empty_like(positions)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        numbers[here] = permuted(within[here], size, seed, int(epoch))
    return numbers


def drawn_cutoffs(first: Int64, last: Int64, stride: int, most: int) -> Int64:
    """Returns [2, n] series and row of cutoffs from first to last [series], an even draw of at most so many."""
    index = WindowIndex(first, np.zeros_like(first), stride, 1).between(first, last)
    series, _, row = index.locate(even_draw(len(index), most))
    return np.stack([series, row])


def even_draw(size: int, most: int) -> Int64:
    """Returns at most `most` of `size` numbers, rising, the same ones every time.

    Drawn by the permutation, not by a stride: one that divides the day would watch a single hour of
    it, and one longer than a series' own cutoffs only the first of each.
    """
    if size <= most:
        return np.arange(size)
    return np.sort(permuted(np.arange(most), size, seed=0, epoch=0))
