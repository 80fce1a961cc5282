"""Joint sample paths: what each is drawn by, and their rows.

What comes in: the names of series and their cutoffs; a forecast with paths. What goes out: one key per
window, the same on every machine and beside whatever other windows; a row per value of a path.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from forecaster.panel.panel import Panel
from forecaster.windows.index import Int64

if TYPE_CHECKING:
    from forecaster.forecast.forecast import Forecast

_BETWEEN = "\x1f"  # the unit separator: no key holds it


@dataclass(frozen=True)
class Draws:
    """How paths are drawn."""

    samples: int | None = None
    """Paths to keep, and to take quantiles from; None = keep none, the config says how many."""
    seed: int = 0
    """Another seed gives other paths."""


NO_PATHS = Draws()


def path_keys(panel: Panel, series: Int64, cutoff: Int64, seed: int) -> Int64:
    """Returns [N] what the paths of each window are drawn by: a hash of seed, series and cutoff.

    Args:
        panel: for the names of series; a single series without a name has none, whatever its file's.
        series: [N] number of each window's series.
        cutoff: [N] time of the last step it may see.
        seed: any whole number.
    """
    names = [_BETWEEN.join(str(part) for part in row) for row in panel.keys.rows()] or [""]
    windows = zip(series.tolist(), cutoff.tolist(), strict=True)
    hashes = [
        blake2b(f"{seed}{_BETWEEN}{time}{_BETWEEN}{names[number]}".encode(), digest_size=8).digest()
        for number, time in windows
    ]
    return np.frombuffer(b"".join(hashes), dtype="<i8").astype(np.int64)


def path_rows(forecast: Forecast) -> Any:
    """Returns a polars frame with a row per (series, cutoff, channel, sample, lead), in that order."""
    assert forecast.paths is not None
    n, samples, horizon, channels = forecast.paths.shape
    lead = np.arange(1, horizon + 1, dtype=np.int32)
    sample = np.repeat(np.arange(samples, dtype=np.int32), horizon)
    times = np.repeat(forecast.time, channels * samples, axis=0)
    return forecast.panel.frame(
        np.repeat(forecast.series, channels * samples * horizon),
        times.reshape(-1),
        cutoff=np.repeat(forecast.cutoff, channels * samples * horizon),
        lead=np.tile(lead, n * channels * samples),
        channel=np.tile(np.repeat(np.array(forecast.panel.schema.target), samples * horizon), n),
        sample=np.tile(sample, n * channels),
        value=forecast.paths.transpose(0, 3, 1, 2).reshape(-1),
        status=np.repeat(np.array(forecast.status, dtype=object), channels * samples * horizon),
    )
