"""Curves of least squares through a history: a line, and growth or decay by one factor a step.

    line     ŷ(h) = a + b·h + s
    curve    ŷ(h) = a + b·e^(r·h) + s           s the season, x = y − s
    growth   ŷ(h) = e^(a + b·h) + s             through log x, where all x are above 0

With r > 0 the curve is growth, with r < 0 the way to a ceiling or a floor; both commute with y → c·y + d. That
through logarithms, whose errors are shares of the values, commutes with y → c·y alone, so what hardly grows is a
line. With t the steps before the last one, e = e^(−r·t), over n steps:

    b         = Σ (e − ē)·x / Σ (e − ē)²
    left      = Σ (x − x̄)² − b²·Σ (e − ē)²
    curve     = mean of the curves of all P rates, of the line and of growth, by e^(−BIC/2):
                left^(−n/2) of a rate, √n · left^(−n/2) of the line, which has a number less,
                P · √n · left^(−n/2) / Π x of growth, which is as likely before as all rates together

Sources: Schwarz, "Estimating the dimension of a model" (1978); of the factor 1 / Π x Box and Cox, "An analysis of
transformations" (1964).

Axes: R row, a channel of a window · J cutoff · K memory · L lead · P rate, the line first.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from forecaster.model.channels import thin_product

FEWEST = 8
"""Steps that show a slope."""
_TURNS = (0.75, 1.5, 3.0, 6.0, 12.0, 24.0)  # rates times the memory
_MOST_GROWTH = 1.5  # rate times horizon: what lies ahead is at most e^1.5 times what was seen
_LEAST_BEND = 0.3  # rate times steps: what bends less is a line
_LEAST_LEFT = 1e-5  # of the squares, for rounding
_LEAST_SHARE = 1e-3  # of the largest value, above which all have logarithms
_TINY = 1e-12


class Fitted(NamedTuple):
    """Curves through what is left of a history without its season, scaled units."""

    slope: Tensor
    """[R, J, 1] of the line."""
    line: Tensor
    """[R, J, L]"""
    curve: Tensor
    """[R, J, L]"""


class _Through(NamedTuple):
    """Curves of least squares through values."""

    level: Tensor
    """[R, J, 1] mean of the values."""
    slopes: Tensor
    """[R, J, P]"""
    left: Tensor
    """[R, J, P] squares that are left."""


class Curves(nn.Module):
    """The line and the curve through a history."""

    def __init__(self, memory: int, horizon: int):
        """Takes the most steps of a history, and of a forecast."""
        super().__init__()
        self.horizon = horizon
        rates = [sign * turns / memory for turns in _TURNS for sign in (1, -1)]
        rates = [rate for rate in rates if rate * horizon <= _MOST_GROWTH]
        self.rates = nn.Buffer(torch.tensor(rates), persistent=False)
        # By numpy: where parameters are only counted, sums of torch's would load its compiler.
        ago = np.arange(float(memory))  # t
        of_step = np.column_stack([-ago, np.exp(np.outer(-ago, rates))])  # [K, P]
        count = ago[:, None] + 1
        mean = of_step.cumsum(axis=0) / count
        # Σ (e − ē)² of so many steps, from that of one step less.
        before = np.concatenate([mean[:1], mean[:-1]])
        squares = ((of_step - before) * (of_step - mean)).cumsum(axis=0)
        bent = count * np.abs(rates) >= _LEAST_BEND
        is_known = np.column_stack([np.ones(memory, bool), bent])
        self.of_step = nn.Buffer(_float(of_step[::-1]), persistent=False)
        """[K, P] e of each step of the memory."""
        self.mean = nn.Buffer(_float(mean), persistent=False)
        """[n, P] ē of the last n steps."""
        self.squares = nn.Buffer(_float(squares), persistent=False)
        """[n, P] Σ (e − ē)² of the last n steps."""
        self.is_known = nn.Buffer(torch.from_numpy(is_known), persistent=False)
        """[n, P] whether n steps tell a rate from a line."""

    def forward(
        self,
        values: Float[Tensor, "R J K"],
        length: Int[Tensor, "R J"],
        lead: Int[Tensor, " L"],
        zero: Float[Tensor, " R"],
    ) -> Fitted:
        """Returns line and curve at some leads.

        Args:
            values: x, scaled units.
            length: n, of which the values are observed.
            lead: 0 = the step after the cutoff, so that h = lead + 1.
            zero: 0 of the data, scaled units.
        """
        memory = values.shape[-1]
        step = torch.arange(memory, device=values.device)
        is_seen = step >= memory - length[..., None]  # [R, J, K]
        row = length - 1
        mean, squares = self.mean[row], self.squares[row]  # [R, J, P]
        found = _least_squares(values, is_seen, self.of_step, squares)
        ahead = self._basis(lead + 1.0, self.rates)  # [L, P]
        away = ahead - mean[..., None, :]  # [R, J, L, P]
        curves = found.level[..., None] + found.slopes[..., None, :] * away

        above = values - zero[:, None, None]
        low = torch.where(is_seen, above, torch.inf).amin(dim=-1)
        high = torch.where(is_seen, above, -torch.inf).amax(dim=-1)
        logs = above.clamp(min=_TINY).log()
        growth = _least_squares(logs, is_seen, self.of_step[:, :1], squares[..., :1])
        last = growth.level - growth.slopes * mean[..., :1]  # [R, J, 1]
        rate = growth.slopes.clamp(max=_MOST_GROWTH / self.horizon)
        grown = (last + rate * ahead[:, 0]).exp() + zero[:, None, None]  # [R, J, L]
        grows = growth.slopes.abs() * length[..., None] >= _LEAST_BEND
        is_known = grows & (low > _LEAST_SHARE * high)[..., None]

        # left^(−n/2) / Π x = (left · e^(2 · mean of log x))^(−n/2)
        left = torch.cat([found.left, growth.left * (2 * growth.level).exp()], dim=-1)
        known = torch.cat([self.is_known[row], is_known], dim=-1)
        weights = self._weights(left, length[..., None].float(), known)
        curves = torch.cat([curves, grown[..., None]], dim=-1)
        return Fitted(
            slope=found.slopes[..., :1],
            line=curves[..., 0],
            curve=(weights[..., None, :] * curves).sum(dim=-1),
        )

    @staticmethod
    def _basis(step: Float[Tensor, " T"], rates: Float[Tensor, " _"]) -> Float[Tensor, "T P"]:
        """The line, and e of each rate, at steps from the last one on."""
        curves = (step[:, None] * rates).exp()
        return torch.cat([step[:, None], curves], dim=1)

    def _weights(
        self, left: Float[Tensor, "R J F"], count: Float[Tensor, "R J 1"], is_known: Tensor
    ) -> Float[Tensor, "R J F"]:
        """e^(−BIC/2), of sum 1: of the line, of all rates, of growth."""
        simpler = count.log() / 2
        of_rates = torch.zeros_like(left[..., 1:-1])
        prior = torch.cat([simpler, of_rates, simpler + math.log(len(self.rates))], dim=-1)
        logits = prior - count / 2 * left.log()
        return logits.masked_fill(~is_known, -torch.inf).softmax(dim=-1)


def _least_squares(
    values: Float[Tensor, "R J K"],
    is_seen: Bool[Tensor, "R J K"],
    of_step: Float[Tensor, "K P"],
    squares: Float[Tensor, "R J P"],
) -> _Through:
    """Curves through the values that are seen, by Σ (e − ē)² of each."""
    count = is_seen.sum(dim=-1, keepdim=True)
    level = torch.where(is_seen, values, 0.0).sum(dim=-1, keepdim=True) / count
    apart = torch.where(is_seen, values - level, 0.0)
    slopes = thin_product(apart, of_step) / squares.clamp(min=_TINY)
    whole = apart.square().sum(dim=-1, keepdim=True)
    left = whole - slopes.square() * squares
    return _Through(level, slopes, torch.maximum(left, _LEAST_LEFT * whole) + _TINY)


def _float(table: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(table.astype(np.float32))
