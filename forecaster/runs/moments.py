"""Mean and spread of columns that need not fit in memory.

What comes in: blocks of rows, which are gone through twice. What goes out: `Moments`, whose columns
can be taken apart and pooled. NaN is left out; sums are float64, so any blocks of the same rows give
the same numbers up to its rounding, and the same blocks the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Of each column: float64 [column]."""

    count: Floats
    """Observed cells."""
    mean: Floats
    """Their mean; 0 where there are none."""
    squares: Floats
    """Sum of squared distances from the mean."""

    def __getitem__(self, columns: slice) -> Moments:
        """Returns those of some columns."""
        return Moments(self.count[columns], self.mean[columns], self.squares[columns])

    def pooled(self) -> Moments:
        """Returns those of all cells as one column."""
        count = self.count.sum(keepdims=True)
        mean = (self.count * self.mean).sum(keepdims=True) / np.maximum(count, 1)
        apart = self.squares + self.count * (self.mean - mean) ** 2
        return Moments(count, mean, apart.sum(keepdims=True))

    def scales(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Returns mean and population spread; 0 and 1 where there is nothing or no spread."""
        spread = np.sqrt(self.squares / np.maximum(self.count, 1))
        spread[spread <= 1e-6 * np.abs(self.mean)] = 1.0
        return self.mean.astype(np.float32), spread.astype(np.float32)


def moments(blocks: Callable[[], Iterable[NDArray[np.float32]]], columns: int) -> Moments:
    """Returns the moments of the columns of blocks [row, column].

    Args:
        blocks: starts to go through them.
        columns: how many they have.
    """
    count, total, squares = np.zeros((3, columns))
    for values in blocks():
        observed = ~np.isnan(values)
        count += observed.sum(axis=0)
        total += np.where(observed, values, 0.0).sum(axis=0, dtype=np.float64)
    mean = total / np.maximum(count, 1)
    for values in blocks():
        squares += (np.where(np.isnan(values), 0.0, values - mean) ** 2).sum(axis=0)
    return Moments(count, mean, squares)
