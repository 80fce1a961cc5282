"""Ensemble of networks: Inputs → calibrated, bounded quantiles.

Everything that forecasts (files, backtests, servers) runs this module and nothing else.

    members ─▶ weighted mean ─▶ × conformal factors, around the median ─▶ bounds of the target

Axes: B batch of windows · H horizon · C channel · Q quantile level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from forecaster.config import Expert, TargetConfig
from forecaster.model.demand import chance_of_zero, unit_of_demand
from forecaster.model.network import Network
from forecaster.model.sampling import Prediction, prediction_from_paths
from forecaster.model.scaling import Scale
from forecaster.model.shortcuts import may_hold
from forecaster.model.tails import GRID, at_levels, mean_of, stretched_mean, with_mean
from forecaster.windows.batch import Inputs

_TINY = 1e-30  # data units
_STRETCH = 0.5  # of an upper tail, before the quantiles of demand give way to its mean
_UP = 0.4  # of a unit of demand: from .6 of one on it is rounded up


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
            conformal_factors: [Q] of the distances of quantiles from the median; None = 1.
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

        The mean is that of the distribution through the quantiles, held to the bounds of the target; of paths
        their own. Counts have zeros in its place, as often as at the phase of a lead, and an upper tail that gives
        them the mean of `Experts.quantiles`.

        Path s of the ensemble is the mean of the members' paths s, which share their random numbers.
        Calibration moves the quantiles only: it is measured at each lead, not on whole paths.
        """
        quantiles, mean, drawn, few = self._blended(inputs, key, paths).with_effect(
            inputs.effect, inputs.multiplies
        )
        if (self.target.lower or 0.0) < 0:  # declared: the target is no count
            mean = None
        if drawn is None:
            quantiles = varied(quantiles, inputs.effect_variance, inputs.multiplies, self.levels)
        if self.conformal_factors is not None:
            # The residuals of short histories have classes of their own.
            brief = self.networks[0].brief(inputs)[:, None, :, None]  # [B, 1, C, 1]
            moved = calibrated(quantiles, self.conformal_factors, self.levels.index(0.5))
            quantiles = torch.where(brief, quantiles, moved)
        # The mean of whole numbers is not whole: it is bounded, not rounded.
        if drawn is not None:
            drawn = self.bounded(drawn)
            average = drawn.mean(dim=1)
        elif mean is None:
            average = self._mean(quantiles)
        else:
            assert few is not None
            quantiles, average = self._of_counts(quantiles, mean, inputs, few[:, None] > 0)
        if further or mean is not None:
            values = self.values(quantiles, average, (*further, *GRID), inputs.channel[:, None])
            quantiles = torch.cat([quantiles, values[..., : len(further)]], dim=-1)
            if drawn is None:
                average = values[..., len(further) :].mean(dim=-1)
        quantiles = self.bounded(quantiles)
        return Prediction(
            self._whole(quantiles), average, None if drawn is None else self._whole(drawn), few
        )

    def values(
        self,
        quantiles: Float[Tensor, "*B C Q"],
        mean: Float[Tensor, "*B C"],
        levels: Sequence[float],
        channel: Int[Tensor, "*#B C"] | None = None,
    ) -> Float[Tensor, "*B C L"]:
        """Returns the quantiles at any levels of the distribution with these quantiles and this mean.

        Args:
            quantiles, mean: of a prediction.
            levels: rising or not.
            channel: codes of the channels; None = in the order of the table.
        """
        if channel is None:
            channel = torch.arange(1, quantiles.shape[-2] + 1, device=quantiles.device)
        return with_mean(
            quantiles, self.levels, levels, mean, self._limits(channel, mean), self.tail_factor or 1.0
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
        return self._changed(target=None)

    def with_members(self, members: Sequence[Network]) -> Ensemble:
        """Returns other members with the same weights, conformal factors and bounds."""
        return self._changed(members=members)

    def experts_only(self, only: Expert | None = None) -> Ensemble | None:
        """Returns the experts of all members without networks, or one of them, uncalibrated.

        None where a member lacks it.
        """
        for member in self.networks:
            if member.experts is None or only not in (None, *member.experts.names):
                return None
        return self.with_factors(None, None)._changed(experts_only=True, only=only)

    def with_factors(self, conformal_factors: Tensor | None, tail_factor: float | None) -> Ensemble:
        """Returns the same members with other conformal factors, and another factor of the tails."""
        return self._changed(conformal_factors=conformal_factors, tail_factor=tail_factor)

    def _changed(self, **changes: Any) -> Ensemble:
        own: dict[str, Any] = {"members": self.networks, "weights": self.weights, "target": self.target}
        own |= {"conformal_factors": self.conformal_factors, "tail_factor": self.tail_factor}
        own |= {"experts_only": self._experts_only, "only": self._only}
        return Ensemble(**own | changes).train(self.training)

    def _blended(self, inputs: Inputs, key: Tensor | None, paths: int | None) -> Prediction:
        if self._experts_only:
            predictions = [
                member.of_experts(inputs, member.scale(inputs), self._only) for member in self.networks
            ]
        else:
            predictions = [member.predict(inputs, key, paths) for member in self.networks]
        if len(predictions) == 1:
            return predictions[0]
        quantiles, mean, drawn, few = (
            self._weighted(parts) for parts in zip(*predictions, strict=True)
        )
        if drawn is not None:  # quantiles of the mean paths, not the mean of the paths' quantiles
            return prediction_from_paths(drawn, self.levels)
        assert quantiles is not None
        return Prediction(quantiles, mean, None, few)

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
        channel = torch.arange(1, values.shape[-1] + 1, device=values.device)
        lower, upper = self._limits(channel, values)
        return self._whole(torch.minimum(torch.maximum(values, lower), upper))

    def _mean(self, quantiles: Float[Tensor, "*B Q"]) -> Float[Tensor, "*B"]:
        """The mean of the distribution through quantiles, held to the bounds of the target."""
        factor = self.tail_factor or 1.0
        if self.target.lower is None and self.target.upper is None:
            return mean_of(quantiles, self.levels, factor)
        return self.bounded(at_levels(quantiles, self.levels, GRID, factor)).mean(dim=-1)

    def _of_counts(
        self,
        quantiles: Float[Tensor, "B H C Q"],
        mean: Float[Tensor, "B H C"],
        inputs: Inputs,
        few: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Returns quantiles and mean, of channels of intermittent demand with their zeros.

        Above their chance of 0 quantiles are a unit of demand or more, as far as the mean needs it: else a long
        tail has to hold it. Where a history has whole multiples of a unit alone, so have quantiles.

        `few`: [B, 1, C] where the history does not show how often these are.
        """
        experts = self.networks[0].experts
        assert experts is not None
        counts = experts.intermittent[inputs.channel][:, None]  # [B, 1, C]
        seasons = (experts.season, experts.second)
        zero = chance_of_zero(inputs.history, inputs.history_observed, seasons, quantiles.shape[1])
        level = torch.tensor(self.levels, device=zero.device)
        demand = torch.where(level < zero[..., None], 0.0, quantiles.clamp(min=0.0))
        expected = torch.where(zero == 1, 0.0, mean.clamp(min=0.0))
        # Weights are for medians, and bands of one shape: quantiles of skewed demand were up to 14 % too large.
        least = stretched_mean(demand, self.levels, self.tail_factor or 1.0, -_STRETCH)
        demand = demand * (expected / least.clamp(min=_TINY)).clamp(max=1.0)[..., None]
        unit = unit_of_demand(inputs.history, inputs.history_observed)[..., None]
        sold = torch.where(level < zero[..., None], 0.0, demand.maximum(unit))
        demand = self._lifted(demand, sold, expected)
        demand = torch.where(unit > 0, (demand / unit + _UP).floor() * unit, demand)
        if may_hold(few):
            positive = quantiles.clamp(min=0.0)
            expected = torch.where(few, self._mean(positive), expected)
            # A few rows hardly show their zeros, but that none lies between these and the least demand.
            smallest = torch.where(inputs.history > 0, inputs.history, torch.inf).amin(dim=1)  # [B, C]
            nearer_zero = positive < smallest[:, None, :, None] / 2
            positive = positive.masked_fill(nearer_zero & (level < 0.5), 0.0)
            demand = torch.where(few[..., None], positive, demand)
        own = self._mean(quantiles)
        return torch.where(counts[..., None], demand, quantiles), torch.where(counts, expected, own)

    def _lifted(
        self, demand: Float[Tensor, "*B Q"], sold: Float[Tensor, "*B Q"], mean: Float[Tensor, "*B"]
    ) -> Float[Tensor, "*B Q"]:
        """Returns quantiles nearer to larger ones, as far as the mean is beyond half as long a tail again."""
        least, most = (
            stretched_mean(part, self.levels, self.tail_factor or 1.0, _STRETCH)
            for part in (demand, sold)
        )
        share = ((mean - least) / (most - least).clamp(min=_TINY)).clamp(0.0, 1.0)
        return demand.lerp(sold, share[..., None].to(demand.dtype))

    def _limits(self, channel: Int[Tensor, "*B C"], like: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the largest value of channels: bounds of the target, 0 of intermittent demand."""
        lower, upper = self.target.lower, self.target.upper
        least = like.new_full((), -math.inf if lower is None else lower)
        most = like.new_full((), math.inf if upper is None else upper)
        experts = self.networks[0].experts
        if experts is not None and lower is None:
            counts = experts.intermittent.to(channel.device)[channel]
            least = torch.where(counts, 0.0, least)
        return least, most

    def _whole(self, values: Tensor) -> Tensor:
        if not self.target.integer:
            return values
        lower, upper = self.target.lower, self.target.upper
        values = values.round() + 0.0  # -0.3 would be rounded to -0.0
        # Rounding may cross a bound that is no whole number.
        values = values if lower is None else values.clamp(min=math.ceil(lower))
        return values if upper is None else values.clamp(max=math.floor(upper))


def varied(
    quantiles: Float[Tensor, "B H C Q"],
    variance: Float[Tensor, "B E C"],
    multiplies: Bool[Tensor, "B _"],
    levels: Sequence[float],
) -> Float[Tensor, "B H C Q"]:
    """Returns quantiles farther from the median, as an effect needs that is not the same every time.

        distance = √(distance² + n² · variance)        n the quantile of a normal distribution; of logarithms
                                                       where effects multiply

    Args:
        quantiles: rising, in data units.
        variance: of the effect; E = 0: it has none.
        multiplies: whether it is a factor.
        levels: [Q]
    """
    if variance.shape[1] == 0:
        return quantiles
    variance = variance[:, : quantiles.shape[1], :, None].to(quantiles.dtype)  # [B, H, C, 1]
    is_factor = multiplies[:, None, :, None]
    median = levels.index(0.5)
    middle = slice(median, median + 1)
    # A factor leaves 0 as it is.
    is_moved = (variance > 0) & (~is_factor | (quantiles > 0) & (quantiles[..., middle] > 0))
    values = torch.where(is_factor, torch.where(is_moved, quantiles, 1.0).log(), quantiles)
    center = values[..., middle]
    away = quantiles.new_tensor([NormalDist().inv_cdf(level) for level in levels])
    distance = ((values - center).square() + away.square() * variance).sqrt()
    moved = center + away.sign() * distance
    return torch.where(is_moved, torch.where(is_factor, moved.exp(), moved), quantiles)


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
