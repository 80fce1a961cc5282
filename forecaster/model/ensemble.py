"""Members as one module: Inputs → quantiles.

What comes in: `Inputs` in data units. What goes out: the weighted mean of the members' quantiles, in
data units. Everything that forecasts — files, backtests, servers — runs this module and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from forecaster.model.network import Network
from forecaster.windows.batch import Inputs


class Ensemble(nn.Module):
    """A weighted mean of networks that were trained for the same task."""

    def __init__(self, members: Sequence[Network], weights: Sequence[float]):
        """Takes members and how much each counts.

        Args:
            members: at least one, of equal horizon and quantile levels.
            weights: one per member, summing to 1.
        """
        super().__init__()
        self.members = nn.ModuleList(members)
        self.weights = tuple(weights)

    def forward(self, inputs: Inputs) -> Float[Tensor, "B H C Q"]:
        """Returns quantiles in data units; a mean of rising quantiles rises."""
        forecasts = [member(inputs) for member in self.members]
        if len(forecasts) == 1:
            only: Tensor = forecasts[0]
            return only
        weighted = [forecast * w for forecast, w in zip(forecasts, self.weights, strict=True)]
        return torch.stack(weighted).sum(dim=0)
