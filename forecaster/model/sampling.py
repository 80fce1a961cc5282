"""Predictions and sample paths.

The random numbers of paths are a function of (key, path, lead, channel) only, so that neither the batch
nor the order of windows, shards or devices changes a path. A key is made of seed, series and cutoff.

Axes: B batch · S path · H horizon · C channel · Q quantile level.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from forecaster.windows.batch import parts_of_effect
from forecaster.windows.factors import LARGEST

NUM_SAMPLES = 100
"""Sample paths from which the quantiles of an autoregressive forecast come."""

# 2⁶⁴ over the golden ratio, as a signed number; products and sums wrap around on purpose.
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)


class Prediction(NamedTuple):
    """A forecast in data units."""

    quantiles: Tensor
    """[B, H, C, Q] rising along Q; of an `Ensemble` those at further levels after them."""
    mean: Tensor | None
    """[B, H, C]; of a `Network` None where it is that of the quantiles."""
    paths: Tensor | None
    """[B, S, H, C] joint draws; None unless the decoder is autoregressive."""
    few: Tensor | None = None
    """[B, C] rows of a history that does not show how far values spread, 0 of any other; None without experts."""

    def with_effect(
        self, effect: Float[Tensor, "B E C"], multiplies: Bool[Tensor, "B _"]
    ) -> Prediction:
        """Returns the forecast with an effect put back that was taken out of the targets; E = 0: none was.

        forecast · exp(effect) where it multiplies, else forecast + effect

        What is closed is exactly 0: with 1e-9 of the level there a band would miss every 0.
        """
        if effect.shape[1] == 0:
            return self
        effect = effect[:, : self.quantiles.shape[1]].to(self.quantiles.dtype)  # [B, H, C]
        factor, shift = parts_of_effect(effect, multiplies)
        factor = torch.where(multiplies[:, None] & (effect <= -LARGEST), 0.0, factor)
        return self._replace(
            quantiles=self.quantiles * factor[..., None] + shift[..., None],
            mean=None if self.mean is None else self.mean * factor + shift,
            paths=None if self.paths is None else self.paths * factor[:, None] + shift[:, None],
        )


def prediction_from_paths(paths: Float[Tensor, "B S H C"], levels: tuple[float, ...]) -> Prediction:
    """Returns quantiles (interpolated linearly, as numpy does by default) and mean of paths."""
    ordered = paths.sort(dim=1).values
    position = (paths.shape[1] - 1) * torch.tensor(levels, dtype=torch.float64, device=paths.device)
    low = position.floor().long()  # [Q]
    fraction = (position - low).to(paths.dtype)[:, None, None]  # [Q, 1, 1]
    above = ordered[:, (low + 1).clamp(max=paths.shape[1] - 1)]
    quantiles = torch.lerp(ordered[:, low], above, fraction)  # [B, Q, H, C]
    return Prediction(quantiles.permute(0, 2, 3, 1), paths.mean(dim=1), paths)


def uniforms(
    key: Int[Tensor, " B"], paths: int, first_lead: int, steps: int, channels: int
) -> Float[Tensor, "B {paths} {steps} {channels} 2"]:
    """Returns float64 numbers strictly between 0 and 1, two per cell; leads count from 1."""
    # A counter-based generator: the state is the cell's own number, not what was drawn before.
    device = key.device
    path = torch.arange(paths, device=device)[:, None, None, None]
    lead = torch.arange(first_lead, first_lead + steps, device=device)[:, None, None]
    cell = (lead * channels + torch.arange(channels, device=device)[:, None]) * 2
    bits = _hashed(key[:, None, None, None, None] + _GOLDEN * (path + 1))
    bits = _hashed(bits + _GOLDEN * (cell + torch.arange(2, device=device)))
    # 52 bits and a half: a float64 holds them exactly, and neither 0 nor 1 is among them.
    return (_shift_right(bits, 12).double() + 0.5) * 2.0**-52


def _hashed(bits: Tensor) -> Tensor:
    """The finaliser of splitmix64 (Steele, Lea and Flood, 2014)."""
    bits = (bits ^ _shift_right(bits, 30)) * (0xBF58476D1CE4E5B9 - (1 << 64))
    bits = (bits ^ _shift_right(bits, 27)) * (0x94D049BB133111EB - (1 << 64))
    return bits ^ _shift_right(bits, 31)


def _shift_right(bits: Tensor, count: int) -> Tensor:
    """Shifts in zeros; torch shifts in the sign."""
    return (bits >> count) & ((1 << (64 - count)) - 1)
