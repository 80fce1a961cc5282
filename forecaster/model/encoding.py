"""Sinusoids of elapsed time and of calendar phase.

What comes in: real time, in steps, and phases in [0, 1). What goes out: vectors that are added to
tokens. On a regular grid the sinusoids of elapsed time are the published positions, shifted so that
the cutoff is position 0; on an irregular one they are the same functions of the real gap.

Axes: B batch · N token · D width · Y calendar cycle.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


def sinusoids(position: Float[Tensor, "B N"], width: int) -> Float[Tensor, "B N {width}"]:
    """Returns sin and cos of the position at geometrically falling frequencies, interleaved.

    Entry 2i is sin(position / 10000^(2i/width)), entry 2i + 1 the cosine of the same angle.
    Source: Vaswani et al. (2017), section 3.5.

    Args:
        position: in steps; real numbers and negative ones are welcome.
        width: D, even.
    """
    exponent = torch.arange(0, width, 2, dtype=torch.float32, device=position.device) / width
    angle = position[..., None] * torch.exp(-math.log(10000.0) * exponent)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


def phase_sinusoids(phase: Float[Tensor, "B N Y"], harmonics: int) -> Float[Tensor, "B N _"]:
    """Returns sin and cos of 2πk·phase for k = 1 … harmonics; zeros where the slot is empty (NaN)."""
    count = torch.arange(1, harmonics + 1, dtype=torch.float32, device=phase.device)
    angle = 2 * math.pi * phase[..., None] * count  # [B, N, Y, harmonics]
    waves = torch.cat([angle.sin(), angle.cos()], dim=-1).flatten(-2)
    return torch.nan_to_num(waves, nan=0.0)


class TimeEncoding(nn.Module):
    """What a token is told about when it is: elapsed time as it stands, phases through a projection."""

    def __init__(self, width: int, cycles: int, harmonics: int):
        super().__init__()
        self.width, self.harmonics = width, harmonics
        self.phase = nn.Linear(2 * harmonics * cycles, width, bias=False) if cycles else None

    def forward(
        self, elapsed: Float[Tensor, "B N"], phase: Float[Tensor, "B N Y"]
    ) -> Float[Tensor, "B N D"]:
        """Returns the vector to add to each token.

        Args:
            elapsed: time since the cutoff, in steps.
            phase: position in [0, 1) of each calendar cycle; NaN = empty slot.
        """
        encoded = sinusoids(elapsed, self.width)
        if self.phase is not None:
            encoded = encoded + self.phase(phase_sinusoids(phase, self.harmonics))
        return encoded
