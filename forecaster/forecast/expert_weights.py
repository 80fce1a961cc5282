"""Attention over experts behind one forecast: weights at each lead, which evidence moved them, and a drawing.

Of an ensemble, everything is the mean of the members by their weights.

Axes: H lead · E expert · G group of evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from forecaster.config import Expert
from forecaster.errors import number_of
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.plots import TITLE, VALUES, tidy
from forecaster.forecast.result import Result
from forecaster.lazy import Axes, FigureBase
from forecaster.model.ablation import (
    BIAS,
    ERRORS,
    FORECASTS,
    GROUPS,
    LENGTHS,
    RECENT_STEPS,
    weights_without,
)
from forecaster.model.ensemble import Ensemble
from forecaster.model.experts import Experts
from forecaster.model.network import Network, OfExperts
from forecaster.panel.arrays import Bools, Floats
from forecaster.panel.frames import PolarsFrame
from forecaster.panel.panel import Panel
from forecaster.windows.batch import Inputs, parts_of_effect

PLAIN: dict[Expert, str] = {
    "naive": "the last value",
    "drift": "the line from first to last",
    "long_mean": "the usual season",
    "level_0.1": "a level that moves slowly",
    "level_0.3": "a level that moves",
    "level_0.8": "a level that moves fast",
    "damped_trend": "a trend that fades",
    "slow_trend": "a trend that lasts",
    "fast_trend": "a trend that turns fast",
    "theta": "half the trend",
    "line": "a straight line",
    "curve": "growth or decline by one factor",
    "ets": "the best of four smoothings",
    "autoregression": "the last three changes",
    "seasonal_naive": "the last season",
    "seasonal_mean": "the last three seasons",
    "growing_season": "a season that grows",
    "seasonal_drift": "the last season and its drift",
    "second_naive": "the last longer season",
    "second_mean": "the last three longer seasons",
    "profile": "the usual season and longer one",
    "tsb": "the mean of rare demand",
    "linear": "a regression on the last values",
    "arx": "linear, and other columns",
}
"""Each expert in words of a planner."""
_NAMED = 3  # of the experts, in a line
_LEAST = 0.03
"""Mean weight of an expert with a row of its own."""
_COLORS = (  # distinct without red and green: Paul Tol's "muted", dark beside light
    "#332288", "#88ccee", "#117733", "#ddcc77", "#cc6677",
    "#44aa99", "#882255", "#aa4499", "#999933", "#661100",
)  # fmt: skip
_OTHERS = "#d0d4d8"
_LINE, _HEADER = 0.22, 1.5  # inches of a row of the table, and of what is above and below
_WRAPPED = 165  # characters of the sentence in a line
_HEADS = ("error at\nearlier cutoffs", "weight by\nerrors alone", "mean\nweight")
_GROUP_HEADS = ("errors", "bias", "forecasts", "recent\nsteps", "season,\nlength")
_COLUMNS = (0.45, 0.55, 0.62)  # right ends of the numbers, shares of the table's width
_GROUPS = (0.65, 1.0)  # from where to where the groups of evidence are
_WORDS = {
    ERRORS: "the errors of all experts at earlier cutoffs",
    BIAS: "the bias of the experts at earlier cutoffs",
    FORECASTS: "how the forecasts of the experts differ",
    RECENT_STEPS: "the recent steps",
    LENGTHS: "the season and the length of the history",
}


@dataclass(frozen=True, repr=False)
class ExpertWeights(Result):
    """The experts behind the forecast of one channel of one series, before calibration and bounds.

    `without` says which evidence moved the weights: one group of what attention reads is removed at a time,
    its features set to 0, and the weights are computed again. It describes this forecast, and no cause: two
    groups that say the same each look unimportant.
    """

    forecast: Forecast
    """Of this series alone."""
    channel: int
    """Number of the channel."""
    names: tuple[Expert, ...]
    """[E]"""
    weights: Floats
    """[H, E] at each lead; they sum to 1."""
    before: Floats
    """[E] by the errors at earlier cutoffs alone, before attention; they sum to 1."""
    error: Floats
    """[E] mean absolute error at earlier cutoffs, data units; NaN = no such cutoff is known."""
    forecasts: Floats
    """[H, E] data units."""
    available: Bools
    """[E] whether the history suffices for an expert, and it is one of such channels."""
    correction: Floats
    """[H] what attention adds to the weighted mean of the forecasts, data units."""
    without: dict[str, Floats]
    """[E] mean weights over leads without each group of evidence: errors, bias, forecasts, recent steps,
    season and length."""
    share: float
    """Of the experts in the forecast; the rest is the network's."""

    @property
    def panel(self) -> Panel:
        """The series."""
        return self.forecast.panel

    @property
    def mean(self) -> Floats:
        """[E] mean weights over leads."""
        return self.weights.mean(axis=0)

    @property
    def order(self) -> list[int]:
        """Numbers of the experts, the largest mean weight first."""
        return np.argsort(-self.mean, kind="stable").tolist()

    @property
    def rows(self) -> PolarsFrame:
        """A polars frame with a row per (expert, lead), in that order."""
        horizon, count = self.weights.shape
        cells = count * horizon
        return self.panel.frame(
            np.zeros(cells, dtype=np.int64),
            np.tile(self.forecast.time[0], count),
            cutoff=np.repeat(self.forecast.cutoff, cells),
            lead=np.tile(np.arange(1, horizon + 1, dtype=np.int32), count),
            channel=np.full(cells, self.channel),
            expert=np.repeat(np.array(self.names, dtype=object), horizon),
            weight=self.weights.T.reshape(-1),
            forecast=self.forecasts.T.reshape(-1),
            before=np.repeat(self.before, horizon),
            error=np.repeat(self.error, horizon),
            available=np.repeat(self.available, horizon),
        )

    @property
    def report(self) -> str:
        """What a planner has to know: who forecasts, and what their weights rest on."""
        first, mean = self.order[0], self.mean
        named = [
            f"{self.names[n]} ({PLAIN[self.names[n]]}) {100 * mean[n]:.0f} %"
            for n in self.order[:_NAMED]
            if mean[n] > 0.005
        ]
        if left := int((mean > 0).sum()) - len(named):
            named.append(number_of(left, "other"))
        part = "The forecast is" if self.share == 1 else f"{100 * self.share:.0f} % of the forecast is"
        if len(self.names) == 1:
            return f"{part} that of one expert, {self.names[0]} ({PLAIN[self.names[0]]})."
        name = self.names[first]
        group = max(GROUPS, key=lambda one: abs(mean[first] - self.without[one][first]))
        without = self.without[group][first]
        verb = "raised" if without <= mean[first] else "lowered"
        return (
            f"{part} a weighted mean of {', '.join(named)}. By errors at earlier cutoffs alone {name} "
            f"has {100 * self.before[first]:.0f} %; its weight is {verb} most by {_WORDS[group]} (without: "
            f"{100 * without:.0f} %).{self._corrected}"
        )

    @property
    def _corrected(self) -> str:
        """The least and the largest correction, in words; nothing where there is none."""
        if not self.correction.any():
            return ""
        ends = [f"{end:+.3g}" for end in (self.correction.min(), self.correction.max())]
        added = " to ".join(dict.fromkeys(ends)).replace("-", "\N{MINUS SIGN}")
        return f" Attention adds {added} to the mean."

    @property
    def shown(self) -> list[int]:
        """Numbers of the experts with a row of their own in the drawing, the largest first."""
        return [n for n in self.order if self.mean[n] >= _LEAST][: len(_COLORS)]

    @property
    def height(self) -> float:
        """Inches that the drawing needs."""
        return max(2.9, _HEADER + 0.6 + _LINE * (2 + len(self.shown)))

    def draw(self, figure: FigureBase, lead_name: Callable[[Axes], object]) -> None:
        """Draws weights over leads, beside a table that is their legend; `lead_name` puts names under an axis.

        The table says of each expert its error at earlier cutoffs, the weight by that alone, the weight, and what
        each group of evidence adds to it. Experts of less than 3 % are joined.
        """
        shown = self.shown
        rest = [n for n in range(len(self.names)) if n not in shown]
        colors = [*_COLORS[: len(shown)], _OTHERS]
        figure.suptitle(fill(self.report, _WRAPPED), fontsize=9, x=0.01, ha="left")
        area, table = figure.subplots(1, 2, width_ratios=(1, 2.5))
        weights = [*self.weights.T[shown], self.weights.T[rest].sum(axis=0)]
        _draw_area(area, np.array(weights), colors)
        lead_name(area)
        _draw_table(table, self, shown, rest, colors)


def expert_weights(
    ensemble: Ensemble, inputs: Inputs, forecast: Forecast, channel: int
) -> ExpertWeights | None:
    """Returns the experts behind one forecast; None where the networks have none.

    Args:
        ensemble: makes the forecast.
        inputs: its window.
        forecast: of this series alone.
        channel: number of the channel.
    """
    experts = ensemble.networks[0].experts
    if experts is None:
        return None
    members = [_of_member(network, inputs, channel) for network in ensemble.networks]
    network_weights = network_shares(ensemble, inputs, channel)

    def mean(part: Callable[[_Member], Tensor]) -> Floats:
        stacked = torch.stack([part(one) for one in members], dim=-1).double()
        return (stacked @ torch.tensor(ensemble.weights, dtype=torch.float64)).numpy()

    without = mean(lambda one: one.without)
    return ExpertWeights(
        forecast=forecast,
        channel=channel,
        names=tuple(experts.names),
        weights=mean(lambda one: one.weights),
        before=mean(lambda one: one.before),
        error=mean(lambda one: one.error),
        forecasts=mean(lambda one: one.forecasts),
        available=members[0].available.numpy(),
        correction=mean(lambda one: one.correction),
        without=dict(zip(GROUPS, without, strict=True)),
        share=1 - sum(network_weights),
    )


def network_shares(ensemble: Ensemble, inputs: Inputs, channel: int) -> list[float]:
    """Returns the share of the network of each member in the forecast of a channel of one window."""
    return [
        weight * _network_weight(network, inputs, channel)
        for network, weight in zip(ensemble.networks, ensemble.weights, strict=True)
    ]


class _Member(NamedTuple):
    """The experts of one member."""

    weights: Tensor
    before: Tensor
    error: Tensor
    forecasts: Tensor
    available: Tensor
    correction: Tensor
    without: Tensor


def _of_member(network: Network, inputs: Inputs, channel: int) -> _Member:
    """Of a member, with the effects of covariates put back."""
    found = _of_remainder(network, inputs, channel)
    effect = inputs.effect[:, : inputs.horizon]
    return _with_effect(found, effect, inputs, channel) if effect.shape[1] else found


def _with_effect(found: _Member, effect: Tensor, inputs: Inputs, channel: int) -> _Member:
    """Returns experts with an effect [1, H, C] put back."""
    factor, shift = parts_of_effect(effect[..., channel], inputs.multiplies[:, channel])
    return found._replace(
        forecasts=found.forecasts * factor[0, :, None] + shift[0, :, None],
        correction=found.correction * factor[0],
    )


def _of_remainder(network: Network, inputs: Inputs, channel: int) -> _Member:
    """Of experts that forecast with effects of the calendar and without: both, by the weight of each."""
    assert network.experts is not None
    found = network.of_pool(inputs, network.scale(inputs))
    whole = _of_pool(network.experts, found, channel)
    if not network.reads_remainder(inputs):
        return whole
    remainder = network.of_remainder(inputs)
    share = network.weight_of_remainder(inputs, found, remainder)[0, channel]
    rest = _of_pool(network.experts, remainder, channel)
    rest = _with_effect(rest, inputs.calendar[:, -inputs.horizon :], inputs, channel)
    mixed = _Member(
        *(
            torch.lerp(one.double(), other.double(), share)
            for one, other in zip(whole, rest, strict=True)
        )
    )
    # What an expert says is the mean of both by its weights in them.
    parts = [one.weights * one.forecasts for one in (whole, rest)]
    said = torch.lerp(parts[0], parts[1], share) / mixed.weights
    forecasts = torch.where(mixed.weights > 0, said, mixed.forecasts)
    return mixed._replace(forecasts=forecasts, available=whole.available)


def _of_pool(experts: Experts, found: OfExperts, channel: int) -> _Member:
    pool, scale = found.pool, found.scale
    evidence, unit = pool.evidence, scale.scale[0, channel]
    # One window: its rows are its channels, [C, H, E] → [1, H, C, E].
    forecasts = scale.invert(pool.forecasts.transpose(0, 1)[None])
    known = evidence.cutoffs[channel] > 0
    return _Member(
        weights=experts.weights(pool)[channel],
        before=evidence.weights[channel],
        error=torch.where(known, evidence.error[channel] * unit, torch.nan),
        forecasts=forecasts[0, :, channel],
        available=evidence.available[channel],
        correction=experts.correction(pool)[channel] * unit,
        without=weights_without(experts, pool)[:, channel].mean(dim=1),
    )


def _network_weight(network: Network, inputs: Inputs, channel: int) -> float:
    if network.experts is None:
        return 1.0
    # Of a short history the experts alone forecast.
    if network.brief(inputs)[0, channel]:
        return 0.0
    return float(network.network_weight[inputs.channel[0, channel]])


def _draw_area(axis: Axes, weights: Floats, colors: list[str]) -> None:
    """Stacks weights [E, H] as steps, so that a single lead has a width; the largest on top."""
    edges = np.arange(weights.shape[1] + 1) + 0.5
    stacked = np.concatenate([weights, weights[:, -1:]], axis=1)[::-1]
    axis.stackplot(edges, 100 * stacked, colors=colors[::-1], step="post", linewidth=0)
    tidy(axis)
    axis.set_xlim(edges[0], edges[-1])
    axis.set_ylim(0, 100)
    axis.set_title("weights of the experts at each lead, %", **TITLE)


def _draw_table(
    axis: Axes, experts: ExpertWeights, shown: list[int], rest: list[int], colors: list[str]
) -> None:
    """Writes a row an expert, and one of the others."""
    lines = [[n] for n in shown] + ([rest] if rest else [])
    mean = experts.mean
    added = np.array([mean - without for without in experts.without.values()])  # [G, E]
    points = 100 * np.array([added[:, line].sum(axis=1) for line in lines])  # [line, G]
    edges = np.linspace(*_GROUPS, len(points[0]) + 1)
    # At least ten points: a change of one is no strong colour.
    most = max(10.0, np.abs(points).max())
    rows = np.arange(len(lines) + 1)
    axis.pcolormesh(edges, rows, points, cmap="RdBu", vmin=-2 * most, vmax=2 * most)
    axis.set_xlim(0, 1)
    axis.set_ylim(len(lines), -2)
    axis.axis("off")
    middles = (edges[1:] + edges[:-1]) / 2

    def write(x: float, y: float, text: str, side: str = "left", **style: Any) -> None:
        axis.text(x, y, text, ha=side, fontsize=8, **{"va": "center", "color": VALUES} | style)

    for place, head in zip(_COLUMNS, _HEADS, strict=True):
        write(place, -0.2, head, "right", va="bottom")
    for place, head in zip(middles, _GROUP_HEADS, strict=True):
        write(place, -0.2, head, "center", va="bottom")
    write(edges[0], -1.9, "what evidence adds to the weight, points")
    for row, line in enumerate(lines):
        middle = row + 0.5
        alone = line != rest
        first, wrong = experts.names[line[0]], experts.error[line[0]]
        name = f"{first}: {PLAIN[first]}" if alone else f"{len(rest)} others"
        error = f"{wrong:.4g}" if alone and not np.isnan(wrong) else "–"
        numbers = (error, _percent(experts.before[line].sum()), _percent(mean[line].sum()))
        write(0.0, middle, "■", color=colors[row] if alone else _OTHERS)
        write(0.03, middle, name)
        for place, number in zip(_COLUMNS, numbers, strict=True):
            write(place, middle, number, "right")
        for place, change in zip(middles, points[row], strict=True):
            write(place, middle, _points(change), "center")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _points(change: float) -> str:
    return f"{change:+.0f}".replace("-", "\N{MINUS SIGN}") if abs(change) >= 0.5 else "0"
