"""What every head can do.

What comes in: raw numbers from the last linear map, and the scale of the window. What goes out: loss,
quantiles, mean and draws in data units, and the bias to start from. Promised: quantiles rise; a cell
without a target has no loss and no gradient, whatever it holds.

Axes: B batch · T step · C channel · P raw number · Q quantile level.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from forecaster.model.scaling import Scale


class Head(nn.Module, ABC):
    """What a distribution must be able to do."""

    size: int
    """P, raw numbers per step."""
    has_mean = True
    """Whether `mean` gives one."""

    @abstractmethod
    def initial_bias(self) -> Float[Tensor, " P"]:
        """Returns the raw numbers of a sane first guess: the context's own mean and spread."""

    @abstractmethod
    def loss(
        self, raw: Float[Tensor, "B T C P"], scale: Scale, target: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        """Returns the loss of each cell.

        Args:
            raw: numbers from the last linear map.
            scale: of the window.
            target: truth in data units; NaN = no loss there.
        """

    @abstractmethod
    def quantiles(self, raw: Float[Tensor, "B T C P"], scale: Scale) -> Float[Tensor, "B T C Q"]:
        """Returns quantiles in data units, rising along the last axis."""

    @abstractmethod
    def mean(self, raw: Float[Tensor, "B T C P"], scale: Scale) -> Float[Tensor, "B T C"] | None:
        """Returns the mean in data units; None where the head says nothing about it."""

    @abstractmethod
    def sample(
        self, raw: Float[Tensor, "B T C P"], scale: Scale, uniform: Float[Tensor, "B T C 2"]
    ) -> Float[Tensor, "B T C"]:
        """Returns one draw per cell in data units: the same draw for the same uniform numbers.

        Args:
            raw: numbers from the last linear map.
            scale: of the window.
            uniform: float64, strictly between 0 and 1; a head uses one or both.
        """

    @abstractmethod
    def mode(self, raw: Float[Tensor, "B T C P"], scale: Scale) -> Float[Tensor, "B T C"]:
        """Returns the value a greedy path takes, data units."""


def inverse_softplus(positive: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Returns the number whose softplus this is."""
    return positive + torch.log(-torch.expm1(-positive))
