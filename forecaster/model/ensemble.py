"""Ensemble of networks: Inputs → calibrated, bounded quantiles.

Everything that forecasts (files, backtests, servers) runs this module and nothing else.

    members ─▶ weighted mean ─▶ × conformal factors, around the median ─▶ bounds of the target

Axes: B batch of windows · H horizon · C channel · Q quantile level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from forecaster.config import Expert, TargetConfig
from forecaster.model.network import Network
from forecaster.model.sampling import Prediction, prediction_from_paths
from forecaster.model.scaling import Scale
from forecaster.model.shortcuts import may_hold
from forecaster.model.tails import GRID, at_levels, mean_of
from forecaster.windows.batch import Inputs


class Ensemble(nn.Module):
    """A weighted mean of networks that were trained for the same task, calibrated and bounded."""

    def __init__(
        self,
        members: Sequence[Network],
        weights: Sequence[float],
        conformal_factors: Tensor | None = None,
        target: TargetConfig | None = None,
        experts_only: bool = False,
        only: Expert | None = None,
        tail_factor: float | None = None,
    ):
        """Takes members and their weights.

        Args:
            members: at least one, of equal horizon and quantile levels.
            weights: one per member, summing to 1.
            conformal_factors: [H, C, Q] of the distances of quantiles from the median; None = 1.
            target: bounds and rounding; None = any number.
            experts_only: the experts of all members forecast, without networks.
            only: which of the experts then; None = their weighted mean.
            tail_factor: of what lies beyond the outermost quantiles; None = 1, of too few residuals.
        """
        super().__init__()
        self.members = nn.ModuleList(members)
        self.weights = tuple(weights)
        self.levels = members[0].config.quantile_levels
        self.conformal_factors = None if conformal_factors is None else nn.Buffer(conformal_factors)
        self.target = target or TargetConfig()
        self._experts_only, self._only = experts_only, only
        self.tail_factor = tail_factor

    @property
    def networks(self) -> list[Network]:
        """The members."""
        return list(self.members)  # type: ignore[arg-type]

    def forward(self, inputs: Inputs, key: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B H C Q"]:
        """Returns rising quantiles in data units; `key` seeds the sample paths of each window."""
        return self.predict(inputs, key).quantiles

    def predict(
        self,
        inputs: Inputs,
        key: Int[Tensor, " B"] | None = None,
        paths: int | None = None,
        further: Sequence[float] = (),
    ) -> Prediction:
        """Returns quantiles, those at `further` levels after them, mean and sample paths in data units.

        The mean is that of the distribution through the quantiles, held to the bounds of the target; of counts,
        whose quantiles are held at 0, that of `Experts.quantiles`; of paths their own.

        Path s of the ensemble is the mean of the members' paths s, which share their random numbers.
        Calibration moves the quantiles only: it is measured at each lead, not on whole paths.
        """
        quantiles, mean, drawn = self._blended(inputs, key, paths)
        if self.conformal_factors is not None:
            # The residuals of short histories have classes of their own.
            brief = self.networks[0].brief(inputs)[:, None, :, None]  # [B, 1, C, 1]
            # A lead beyond the calibrated ones has the factors of the last one.
            lead = torch.arange(quantiles.shape[1], device=quantiles.device)
            factors = self.conformal_factors[
                lead.clamp(max=len(self.conformal_factors) - 1)
            ]  # [H, C, Q]
            moved = calibrated(quantiles, factors, self.levels.index(0.5))
            quantiles = torch.where(brief, quantiles, moved)
        factor = self.tail_factor or 1.0
        # The mean of whole numbers is not whole: it is bounded, not rounded.
        if drawn is not None:
            drawn = self.bounded(drawn)
            average = drawn.mean(dim=1)
        elif self.target.lower is None and self.target.upper is None:
            average = mean_of(quantiles, self.levels, factor)
        else:
            average = self.bounded(at_levels(quantiles, self.levels, GRID, factor)).mean(dim=-1)
        if mean is not None and drawn is None:
            average = torch.where(self._counts(inputs), mean.clamp(min=0.0), average)
        if further:
            quantiles = torch.cat(
                [quantiles, at_levels(quantiles, self.levels, further, factor)], dim=-1
            )
        return Prediction(
            self._whole(self.bounded(self._never_negative(quantiles, inputs))),
            self.bounded(average),
            None if drawn is None else self._whole(drawn),
        )

    def scale(self, inputs: Inputs) -> Scale:
        """Returns the scale of these windows: the units of conformal factors and residuals."""
        return self.networks[0].scale(inputs)

    @property
    def forecasts_cold(self) -> bool:
        """Whether the level of series without history is known in all channels."""
        experts = [network.experts for network in self.networks if network.experts is not None]
        if len(experts) < len(self.members):
            return False
        return all(bool((pool.cold_scale[1:] > 0).all()) for pool in experts)

    @property
    def unbounded(self) -> Ensemble:
        """The same forecasts without bounds: of sums."""
        how: dict[str, Any] = {"experts_only": self._experts_only, "only": self._only}
        how |= {"conformal_factors": self.conformal_factors, "tail_factor": self.tail_factor}
        return Ensemble(self.networks, self.weights, **how).train(self.training)

    def with_members(self, members: Sequence[Network]) -> Ensemble:
        """Returns other members with the same weights, conformal factors and bounds."""
        factors = (self.conformal_factors, self.target)
        return Ensemble(members, self.weights, *factors, tail_factor=self.tail_factor).train(
            self.training
        )

    def experts_only(self, only: Expert | None = None) -> Ensemble | None:
        """Returns the experts of all members without networks, or one of them, uncalibrated.

        None where a member lacks it.
        """
        for member in self.networks:
            if member.experts is None or only not in (None, *member.experts.names):
                return None
        ensemble = Ensemble(
            self.networks, self.weights, target=self.target, experts_only=True, only=only
        )
        return ensemble.train(self.training)

    def with_factors(self, conformal_factors: Tensor | None, tail_factor: float | None) -> Ensemble:
        """Returns the same members with other conformal factors, and another factor of the tails."""
        factors = (conformal_factors, self.target)
        return Ensemble(self.networks, self.weights, *factors, tail_factor=tail_factor).train(
            self.training
        )

    def _blended(self, inputs: Inputs, key: Tensor | None, paths: int | None) -> Prediction:
        if self._experts_only:
            predictions = [
                member.of_experts(inputs, member.scale(inputs), self._only) for member in self.networks
            ]
        else:
            predictions = [member.predict(inputs, key, paths) for member in self.networks]
        if len(predictions) == 1:
            return predictions[0]
        quantiles, mean, drawn = (self._weighted(parts) for parts in zip(*predictions, strict=True))
        if drawn is not None:  # quantiles of the mean paths, not the mean of the paths' quantiles
            return prediction_from_paths(drawn, self.levels)
        assert quantiles is not None
        return Prediction(quantiles, mean, None)

    def _weighted(self, parts: Sequence[Tensor | None]) -> Tensor | None:
        first, *others = parts
        if first is None or any(part is None for part in others):
            return None
        # From the first on: weights that sum to 1 but for rounding would move a level of 1e9.
        pairs = zip(others, self.weights[1:], strict=True)
        return first + sum(weight * (part - first) for part, weight in pairs if part is not None)

    def bounded(self, values: Tensor) -> Tensor:
        """Returns values held to the bounds of the target."""
        lower, upper = self.target.lower, self.target.upper
        return values if lower is None and upper is None else values.clamp(lower, upper)

    def settled(self, values: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        """Returns values of all channels held to the bounds, and whole where the target is."""
        if (experts := self.networks[0].experts) is not None and self.target.lower is None:
            demand = experts.intermittent[1 : values.shape[-1] + 1]
            values = torch.where(demand.to(values.device), values.clamp(min=0.0), values)
        return self._whole(self.bounded(values))

    def _never_negative(self, quantiles: Float[Tensor, "B H C Q"], inputs: Inputs) -> Tensor:
        """Returns quantiles of at least 0 in channels of intermittent demand, unless the target has bounds."""
        experts = self.networks[0].experts
        if experts is None or self.target.lower is not None:
            return quantiles
        if not may_hold(experts.intermittent):
            return quantiles
        return torch.where(self._counts(inputs)[..., None], quantiles.clamp(min=0.0), quantiles)

    def _counts(self, inputs: Inputs) -> Bool[Tensor, "B 1 C"]:
        """Whether a channel is of intermittent demand."""
        experts = self.networks[0].experts
        assert experts is not None
        return experts.intermittent[inputs.channel][:, None]

    def _whole(self, values: Tensor) -> Tensor:
        if not self.target.integer:
            return values
        lower, upper = self.target.lower, self.target.upper
        values = values.round() + 0.0  # -0.3 would be rounded to -0.0
        # Rounding may cross a bound that is no whole number.
        values = values if lower is None else values.clamp(min=math.ceil(lower))
        return values if upper is None else values.clamp(max=math.floor(upper))


def calibrated(
    quantiles: Float[Tensor, "*B Q"], factors: Float[Tensor, "*#B Q"], median: int
) -> Float[Tensor, "*B Q"]:
    """Returns quantiles, their distances from the median (a place) multiplied; they still rise.

    Levels that would cross are sorted, which never makes their loss larger (Chernozhukov, Fernández-Val
    and Galichon, "Quantile and probability curves without crossing", 2010).
    """
    center = quantiles[..., median : median + 1]  # [*B, 1]
    moved = center + factors * (quantiles - center)
    below, above = moved[..., :median], moved[..., median + 1 :]
    return torch.cat([below.sort(dim=-1).values, center, above.sort(dim=-1).values], dim=-1)
