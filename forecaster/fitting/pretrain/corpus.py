"""Real series that weights are learned from, without those that a development table holds too.

A series is left out if six consecutive values of it stand in a development table, as they are or after a
change of unit and zero: y → a·y + b. Six values say something only where they are no small counts: a run
of six must have four distinct values as it is, and six that are finer than a thousandth of their range
after scaling.

Axes: T step · W run of six consecutive values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Keys = NDArray[np.uint64]

RUN = 6
"""Consecutive values that two series have in common by no chance."""
_DISTINCT = 4
_FINENESS = 1000
"""Range over the least distance of scaled values: two coarse runs of six are alike by chance."""
_DIGITS = 5
"""Decimal digits to which scaled runs are compared: rows rounded in two ways still meet."""


@dataclass(frozen=True)
class RealSeries:
    """A series of the corpus."""

    source: str
    """Data set that it is of."""
    name: str
    step: str
    """Y, Q, M, W, D, h, 30min or 5min."""
    values: Values
    """[T] NaN = missing."""
    start: np.datetime64 | None
    """Of the first step; None where dates are made up."""


COARSER = {
    "5min": (("10min", 2), ("15min", 3)),
    "30min": (("h", 2),),
    "h": (("D", 24),),
    "D": (("W", 7),),
    "M": (("Q", 3),),
    "Q": (("Y", 4),),
}
"""Longer steps that a series is summed up to, and how many of its own they have."""
_FEWEST = 30
"""Longer steps that make a series."""


def coarser(series: RealSeries) -> list[RealSeries]:
    """Returns the means of a series over longer steps, the last of them whole; dates are left out.

    A week of sales is another lesson than its days. A step with a missing value is missing.
    """
    found = []
    for step, count in COARSER.get(series.step, ()):
        steps = len(series.values) // count
        if steps < _FEWEST:
            continue
        blocks = series.values[-steps * count :].reshape(steps, count)
        found.append(
            RealSeries(series.source, f"{series.name}/{step}", step, blocks.mean(axis=1), None)
        )
    return found


def leave_out(
    corpus: Iterable[RealSeries], tables: Mapping[str, Iterable[Values]]
) -> tuple[list[RealSeries], dict[str, list[str]]]:
    """Returns the series that share no run with a table, and the names of those that do, by table.

    Args:
        corpus: the series.
        tables: the series of each development table.
    """
    seen = {table: [run_keys(values) for values in series] for table, series in tables.items()}
    known = {table: np.unique(np.concatenate(keys)) for table, keys in seen.items() if keys}
    everything = np.unique(np.concatenate([*known.values(), np.zeros(0, np.uint64)]))
    kept: list[RealSeries] = []
    shared: dict[str, list[str]] = {table: [] for table in known}
    for series in corpus:
        keys = run_keys(series.values)
        if not _meet(keys, everything):
            kept.append(series)
            continue
        for table, others in known.items():
            if _meet(keys, others):
                shared[table].append(f"{series.source}/{series.name}")
    return kept, shared


def run_keys(values: Values) -> Keys:
    """Returns a hash of each informative run of six values, as it is and after scaling: [≤ 2·W].

    Two series share a run (up to a collision of 64-bit hashes) exactly where they share a key.
    """
    if len(values) < RUN:
        return np.zeros(0, np.uint64)
    runs = np.lib.stride_tricks.sliding_window_view(values, RUN)  # [W, 6]
    runs = runs[np.isfinite(runs).all(axis=1)]
    gaps = np.diff(np.sort(runs, axis=1), axis=1)  # [W, 5] between neighbours in size
    distinct = 1 + (gaps > 0).sum(axis=1)
    raw = runs[distinct >= _DISTINCT]
    # What is rounded to two digits in one copy and to three in another differs as it is, and is alike
    # after scaling only where rounding is finer than the digits that are compared.
    reach = runs.max(axis=1) - runs.min(axis=1)
    fine = (distinct == RUN) & (reach > 0) & (gaps.min(axis=1) * _FINENESS < reach)
    return np.concatenate([_hash(raw, salt=1), _hash(_scaled(runs[fine]), salt=2)])


def _meet(keys: Keys, known: Keys) -> bool:
    """Whether some key is among the known ones, which rise."""
    if not len(known):
        return False
    at = np.searchsorted(known, keys).clip(max=len(known) - 1)
    return bool((known[at] == keys).any())


def _scaled(runs: Values) -> Values:
    """Runs in a unit and zero of their own: (y − least) / range, turned so that the first is below the last."""
    least, most = runs.min(axis=1, keepdims=True), runs.max(axis=1, keepdims=True)
    scaled = (runs - least) / (most - least)
    falling = scaled[:, :1] > scaled[:, -1:]  # a may be negative
    return np.where(falling, 1 - scaled, scaled).round(_DIGITS) + 0.0  # no −0


def _hash(runs: Values, salt: int) -> Keys:
    """FNV-1a over the six numbers' bits, mixed once more: [W]."""
    words = np.ascontiguousarray(runs + 0.0).view(np.uint64).reshape(-1, RUN)
    state = np.full(len(words), 14695981039346656037 ^ salt, np.uint64)
    with np.errstate(over="ignore"):
        for column in words.T:
            state = (state ^ column) * np.uint64(1099511628211)
            state ^= state >> np.uint64(32)
    return state
