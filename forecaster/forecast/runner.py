"""Runs the ensemble of a model over windows of a panel: on one device, in batches, some at a time.

Neither Lightning nor MLflow nor Optuna is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Generic, TypeVar

from forecaster.forecast.artifact import Artifact, Kind
from forecaster.model.hardware import cores, device, run_parallel
from forecaster.panel.arrays import Ints
from forecaster.panel.panel import Panel
from forecaster.windows.batch import Inputs
from forecaster.windows.store import WindowStore

Result = TypeVar("Result")

BLOCK = 1024
"""Series that are forecast together. The last bits of a forecast depend on the size of its batch, and
batches never cross a block: so shards and processes give the same bits."""
_BATCH = 256  # channel-windows per batch: large enough to be fast, small enough for the cache
_CELLS = 1 << 18  # cells of a batch: long contexts go in smaller batches

Progress = Callable[[int, int], None]
"""Called with (series done, series in all)."""


def blocks_of(panel: Panel) -> Iterator[Panel]:
    """Yields neighbouring series of a panel, as many at a time as are forecast together."""
    for start in range(0, panel.n_series, BLOCK):
        yield panel.between(start, min(start + BLOCK, panel.n_series))


def batch_size(cells: int, channels: int = 1) -> int:
    """Returns how many windows of so many cells a batch holds; `channels`: that are forecast one by one."""
    return max(1, min(_BATCH // channels, _CELLS // cells))


class Runner(Generic[Kind]):
    """Holds the ensemble of one model on one device."""

    def __init__(self, artifact: Artifact[Kind], on: str | None = None, lanes: int | None = None):
        """Moves the model to a device, None = a GPU if there is one; `lanes` = batches in parallel."""
        self.device = on or device()
        self._lanes = lanes or (cores() if self.device == "cpu" else 1)
        # A copy: what is saved and exported stays on the processor.
        own = artifact.ensemble if self.device == "cpu" else deepcopy(artifact.ensemble)
        self.ensemble: Kind = own.eval().to(self.device)

    def run(
        self,
        compute: Callable[[Inputs, slice], Result],
        store: WindowStore,
        series: Ints,
        cutoff: Ints,
        size: int,
        leads: int | None = None,
    ) -> Iterator[Result]:
        """Yields what is computed of each batch of windows, in order.

        At least one batch: an empty one still has the axes of a result.

        Args:
            compute: from inputs on the device, and their place among all windows.
            store: cuts the windows out of a panel.
            series: [N] number of the series.
            cutoff: [N] row of the last step that may be seen.
            size: windows per batch.
            leads: as `WindowStore.batch`.
        """

        def of_batch(start: int) -> Result:
            part = slice(start, start + size)
            inputs = store.batch(series[part], None, cutoff[part], leads).inputs
            return compute(inputs.to(self.device), part)

        return run_parallel(of_batch, range(0, max(1, len(series)), size), self._lanes)
