"""Where a token stands: sinusoids of elapsed time and of calendar phase, and their rivals.

What comes in: real time, in steps, and phases in [0, 1). What goes out: vectors that are added to
tokens, or angles by which queries and keys are turned.

    elapsed      sinusoids of the time since the cutoff: on a regular grid the published positions,
                 shifted so that the cutoff is 0; on an irregular one the same functions of the real gap
    sinusoidal   the published positions 0 … N − 1, of the context and of the horizon each
    learned      a vector per token, context first, then horizon
    rotary       nothing is added; queries and keys turn with the elapsed time

Axes: B batch · N token · D width · Y calendar cycle · A head · E width per head.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from forecaster.config import ModelConfig


def sinusoids(position: Float[Tensor, "B N"], width: int) -> Float[Tensor, "B N {width}"]:
    """Returns sin and cos of the position at geometrically falling frequencies, interleaved.

    Entry 2i is sin(position / 10000^(2i/width)), entry 2i + 1 the cosine of the same angle.
    Source: Vaswani et al. (2017), section 3.5.

    Args:
        position: in steps; real numbers and negative ones are welcome.
        width: D, even.
    """
    angle = rotary_angles(position, width)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


def phase_sinusoids(phase: Float[Tensor, "B N Y"], harmonics: int) -> Float[Tensor, "B N _"]:
    """Returns sin and cos of 2πk·phase for k = 1 … harmonics; zeros where the slot is empty (NaN)."""
    count = torch.arange(1, harmonics + 1, dtype=torch.float32, device=phase.device)
    angle = 2 * math.pi * phase[..., None] * count  # [B, N, Y, harmonics]
    waves = torch.cat([angle.sin(), angle.cos()], dim=-1).flatten(-2)
    return torch.nan_to_num(waves, nan=0.0)


def rotary_angles(time: Float[Tensor, "B N"], width: int) -> Float[Tensor, "B N {width}//2"]:
    """Returns time / 10000^(2i/width), the angles of the sinusoids, for i = 0 … width/2 − 1.

    Args:
        time: in steps; real numbers and negative ones are welcome.
        width: of a head, even.
    """
    exponent = torch.arange(0, width, 2, dtype=torch.float32, device=time.device) / width
    return time[..., None] * torch.exp(-math.log(10000.0) * exponent)


def rotated(
    heads: Float[Tensor, "B A N E"], angles: Float[Tensor, "B N E//2"]
) -> Float[Tensor, "B A N E"]:
    """Returns queries or keys with each pair of numbers turned by its angle.

    The product of a turned query and a turned key depends on their times by the difference alone.
    Source: Su et al., "RoFormer" (2021), equation 34.

    Args:
        heads: pairs lie side by side.
        angles: per token, the same for all heads.
    """
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]  # [B, 1, N, E/2]
    x, y = heads[..., 0::2], heads[..., 1::2]
    return torch.stack([x * cos - y * sin, x * sin + y * cos], dim=-1).flatten(-2)


class TimeEncoding(nn.Module):
    """What a token is told about when it is: its position, and phases through a projection."""

    def __init__(self, config: ModelConfig, cycles: int, context: int, horizon: int):
        """Takes what there is to tell.

        Args:
            config: which positions, how many harmonics.
            cycles: Y.
            context: tokens of the context.
            horizon: tokens of the horizon.
        """
        super().__init__()
        self.config, self.context = config, context
        size = 2 * config.harmonics * cycles
        self.phase = nn.Linear(size, config.width, bias=False) if cycles else None
        covered = config.learned_positions or context + horizon
        learned = config.positions == "learned"
        self.learned = nn.Parameter(torch.zeros(covered, config.width)) if learned else None

    def forward(
        self, elapsed: Float[Tensor, "B N"], phase: Float[Tensor, "B N Y"], first: int
    ) -> Float[Tensor, "B N D"]:
        """Returns the vector to add to each token.

        Args:
            elapsed: time since the cutoff, in steps.
            phase: position in [0, 1) of each calendar cycle; NaN = empty slot.
            first: number of the first token; the context's tokens come before the horizon's.
        """
        encoded = self._positions(elapsed, first)
        if self.phase is not None:
            encoded = encoded + self.phase(phase_sinusoids(phase, self.config.harmonics))
        return encoded

    def angles(self, elapsed: Float[Tensor, "B N"]) -> Float[Tensor, "B N _"] | None:
        """Returns by how much queries and keys are turned; None unless positions are rotary."""
        if self.config.positions != "rotary":
            return None
        return rotary_angles(elapsed, self.config.width // self.config.heads)

    def _positions(self, elapsed: Tensor, first: int) -> Tensor:
        width, count = self.config.width, elapsed.shape[1]
        if self.config.positions == "elapsed":
            return sinusoids(elapsed, width)
        if self.learned is not None:
            return self.learned[first : first + count].expand(elapsed.shape[0], -1, -1)
        if self.config.positions == "sinusoidal":
            first -= self.context if first >= self.context else 0  # each sequence begins at 0
            numbers = torch.arange(first, first + count, dtype=elapsed.dtype, device=elapsed.device)
            return sinusoids(numbers.expand(elapsed.shape[0], -1), width)
        return elapsed.new_zeros((*elapsed.shape, width))
