"""A batch that memory cannot hold, computed in parts.

What comes in: a batch, and a function that scores its windows. What goes out: the same scores, of
halves one after the other where the whole did not fit. Promised: the gradient is that of the whole
batch, up to rounding; what was found too large is not tried again. What is drawn at random inside the
network, as dropout is, comes out otherwise.

Parts are scored twice, the second time for the gradient, so that only one of them is in memory at once.

Axes: B batch of windows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from forecaster.errors import FitError
from forecaster.windows.batch import Batch, Inputs

Score = Callable[[Batch], tuple[Tensor, Tensor]]
"""Returns two numbers [B] for each window of a batch."""
_LACK = ("out of memory", "not enough memory", "can't allocate memory")


class Parts:
    """How many windows are computed at once."""

    def __init__(self) -> None:
        self.most: int | None = None
        """Windows that fit; None = all of a batch."""
        self._tried = 0

    def scored(self, score: Score, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns the scores of all windows; where gradients are wanted, those of one part at a time.

        Args:
            score: of a whole batch or a part of one.
            batch: any number of windows.
        """
        windows = len(batch.cutoff)
        size = min(self.most or windows, windows)
        self._tried = size
        if size == windows:
            return score(batch)
        parts = [_part(batch, slice(start, start + size)) for start in range(0, windows, size)]
        if torch.is_grad_enabled():
            scores = [checkpoint(score, part, use_reentrant=False) for part in parts]
        else:
            scores = [score(part) for part in parts]
        totals, counts = zip(*scores, strict=True)
        return torch.cat(totals), torch.cat(counts)

    def until_it_fits(self, work: Callable[[], None]) -> None:
        """Does what scores a batch, with smaller parts each time memory does not suffice.

        Raises:
            FitError: a single window is too much.
        """
        while True:
            try:
                return work()
            except (RuntimeError, MemoryError) as error:
                if not is_lack_of_memory(error):
                    raise
                self._halve(error)
            # Only here, where the error holds it no longer, is what was computed let go.
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _halve(self, error: BaseException) -> None:
        if self._tried <= 1:
            why = str(error).splitlines()[:1]
            raise FitError(
                f"memory does not hold a single window{': ' if why else ''}{''.join(why)}; lower "
                "model.width, model.context_length or the number of layers"
            ) from None
        self.most = -(-self._tried // 2)


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory did not suffice; on a processor it has no type of its own."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in _LACK)


def _part(batch: Batch, rows: slice) -> Batch:
    inputs = batch.inputs
    own = Inputs(*(getattr(inputs, field.name)[rows] for field in fields(Inputs)))
    return Batch(own, batch.target[rows], batch.series[rows], batch.cutoff[rows])
