"""What networks of forecasts and of classes have in common: all that a learner knows of them.

Axes: B batch.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from forecaster.model.embedding import Embedding, Shape
from forecaster.model.experts import Experts
from forecaster.model.scaling import ContextScaler
from forecaster.windows.batch import Batch

MedianLoss = Literal["pinball", "mae", "huber"]
"""Of the median of a quantile head; other heads have a loss of their own."""
Losses = tuple[Float[Tensor, " B"], Float[Tensor, " B"]]
"""The sum of losses of each window, and the number, or weight, of its observed targets."""


class Trainable(nn.Module):
    """A network with a loss."""

    shape: Shape
    embedding: Embedding
    scaler: ContextScaler
    experts: Experts | None
    """Solved, not trained."""

    @abstractmethod
    def losses(self, batch: Batch, loss: MedianLoss = "pinball") -> Losses:
        """Returns losses in float32, whatever the precision of matrix products before them.

        Validation compares by the head's own loss.
        """
