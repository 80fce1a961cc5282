"""Time encodings, which are added to tokens: positions, and the phases of calendar cycles.

    elapsed      sinusoids of the time since the cutoff: on a regular grid the published positions,
                 shifted so that the cutoff is 0; on an irregular one the same functions of the real gap
    sinusoidal   the published positions 0 … N − 1, of context and horizon separately
    learned      a vector per token, context first, then horizon

Axes: B batch · N token · D width · Y calendar cycle.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from forecaster.config import ModelPlan

HARMONICS = 4
"""Sine and cosine pairs per calendar cycle, of attention; linear maps have three."""


def sinusoids(position: Float[Tensor, "B N"], width: int) -> Float[Tensor, "B N {width}"]:
    """Returns sin and cos of the position at geometrically falling frequencies, interleaved.

    Entry 2i is sin(position / 10000^(2i/width)), entry 2i + 1 the cosine of the same angle. Positions
    may be fractions and negative. Source: Vaswani et al. (2017), section 3.5.
    """
    exponent = torch.arange(0, width, 2, dtype=torch.float32, device=position.device) / width
    # 10000^−x as exp(−x·ln 10000): [B, N, width / 2].
    angle = position[..., None] * torch.exp(-math.log(10000.0) * exponent)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


def step_of_cycle(phase: Float[Tensor, "*B"], steps: int) -> Int[Tensor, "*B"]:
    """Returns the step of a cycle, of `steps`, in which each phase in [0, 1) lies; 0 where it is NaN."""
    # Months begin up to .1 of a step early (March at 59/365 · 12 = 1.94), 5/24 · 24 may be 4.9999995, and
    # rows of half past or a quarter to lie half a step or three quarters after the start of theirs.
    return (phase.nan_to_num() * steps + 0.2).floor().long() % steps


def phase_sinusoids(phase: Float[Tensor, "B N Y"], harmonics: int) -> Float[Tensor, "B N _"]:
    """Returns sin and cos of 2πk·phase for k = 1 … harmonics; zeros where the slot is empty (NaN)."""
    count = torch.arange(1, harmonics + 1, dtype=torch.float32, device=phase.device)
    angle = 2 * math.pi * phase[..., None] * count  # [B, N, Y, harmonics]
    waves = torch.cat([angle.sin(), angle.cos()], dim=-1).flatten(-2)  # [B, N, Y·2·harmonics]
    return torch.nan_to_num(waves, nan=0.0)


class TimeEncoding(nn.Module):
    """The encoding of a token's position and, through a projection, of its calendar phases."""

    def __init__(self, config: ModelPlan, cycles: int, context: int, horizon: int):
        super().__init__()
        self.positions, self.width, self.context = config.positions, config.width, context
        size = 2 * HARMONICS * cycles
        self.phase = nn.Linear(size, self.width, bias=False) if cycles else None
        learned = config.positions == "learned"
        self.learned = nn.Parameter(torch.zeros(context + horizon, self.width)) if learned else None

    def forward(
        self, elapsed: Float[Tensor, "B N"], phase: Float[Tensor, "B N Y"], first: int
    ) -> Float[Tensor, "B N D"]:
        """Returns the vector to add to each token.

        `first` is the number of the first token; the tokens of the context come before the horizon's.
        """
        encoded = self._positions(elapsed, first)
        if self.phase is not None:
            encoded = encoded + self.phase(phase_sinusoids(phase, HARMONICS))
        return encoded

    def _positions(self, elapsed: Tensor, first: int) -> Tensor:
        windows, count = elapsed.shape
        if self.positions == "elapsed":
            return sinusoids(elapsed, self.width)
        if self.learned is not None:
            return self.learned[first : first + count].expand(windows, -1, -1)
        first -= self.context if first >= self.context else 0  # each sequence begins at 0
        numbers = torch.arange(first, first + count, dtype=elapsed.dtype, device=elapsed.device)
        return sinusoids(numbers.expand(windows, -1), self.width)
