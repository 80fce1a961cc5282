"""Members as one module: Inputs → quantiles.

What comes in: `Inputs` in data units. What goes out: the weighted mean of what the members say, in
data units. Everything that forecasts — files, backtests, servers — runs this module and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from forecaster.model.network import Network
from forecaster.model.paths import Outlook, outlook_of
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
        self.levels = members[0].config.quantile_levels

    def forward(self, inputs: Inputs, key: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B H C Q"]:
        """Returns quantiles in data units; a mean of rising quantiles rises.

        Args:
            inputs: windows.
            key: what the paths of each window are drawn by, where there are any; None = all the same.
        """
        quantiles: Tensor = self.outlook(inputs, key).quantiles
        return quantiles

    def outlook(
        self, inputs: Inputs, key: Int[Tensor, " B"] | None = None, paths: int | None = None
    ) -> Outlook:
        """Returns quantiles and mean in data units, and the paths they come from where there are any.

        Path s of the ensemble is the mean of the members' paths s, which share their random numbers.

        Args:
            inputs: windows.
            key: as in `forward`.
            paths: how many; None = as the config says.
        """
        found = [member.outlook(inputs, key, paths) for member in self.members]  # type: ignore[operator]
        if len(found) == 1:
            only: Outlook = found[0]
            return only
        quantiles, mean, drawn = (self._weighted(parts) for parts in zip(*found, strict=True))
        if drawn is not None:
            return outlook_of(drawn, self.levels)
        assert quantiles is not None
        return Outlook(quantiles, mean, None)

    def _weighted(self, parts: Sequence[Tensor | None]) -> Tensor | None:
        weighted = [
            part * weight for part, weight in zip(parts, self.weights, strict=True) if part is not None
        ]
        return torch.stack(weighted).sum(dim=0) if weighted else None
