"""What the decoder looks back at: the encoded context, and what it has written itself.

What comes in: tokens. What goes out: a record of the context, and per layer a cache of keys and
values, so that a token that is written one at a time costs one token's work.

Axes: B batch · M memory token · N token · A head · E width per head · D width · S path · C channel.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from forecaster.model.attention import MultiHeadAttention
from forecaster.model.embedding import of_channels
from forecaster.model.scaling import Scale


class Memory(NamedTuple):
    """What the encoder hands to the decoder."""

    tokens: Tensor
    """[B, M, D] the encoded context."""
    seen: Tensor
    """[B, M] True where a token holds an observation."""
    angles: Tensor | None
    """[B, M, E/2] by how much its keys are turned; None unless positions are rotary."""
    about: Tensor
    """[B, 1, D] what is known of the series and channel whatever the time."""
    scale: Scale
    """Undoes the scaling."""

    def of_channels(self, channels: int, kept: int) -> Memory:
        """Returns the memory of the first channels of each window."""
        tokens, seen, about = (
            of_channels(part, channels, kept) for part in (self.tokens, self.seen, self.about)
        )
        angles = None if self.angles is None else of_channels(self.angles, channels, kept)
        return Memory(tokens, seen, angles, about, self.scale)


class Cache:
    """Keys and values that a decoder layer has met: of the horizon so far, of the memory once.

    Each window of the memory may be followed by several paths, which lie side by side in B, each with
    all channels of its window.
    """

    def __init__(self, paths: int, channels: int):
        """Starts empty.

        Args:
            paths: S, per window of the memory.
            channels: C, of a window.
        """
        self.paths, self.channels = paths, channels
        self._own: tuple[Tensor, Tensor] | None = None
        self._memory: tuple[Tensor, Tensor] | None = None

    def attend(
        self, attention: MultiHeadAttention, own: Tensor, angles: Tensor | None
    ) -> Float[Tensor, "B N D"]:
        """Returns what new tokens take from all tokens so far, and keeps the new ones."""
        key, value = attention.remember(own, angles)
        if self._own is not None:
            key, value = torch.cat([self._own[0], key], 2), torch.cat([self._own[1], value], 2)
        self._own = (key, value)
        return attention.recall(attention.ask(own, angles), key, value, None, True)

    def recall(
        self, attention: MultiHeadAttention, own: Tensor, memory: Memory, angles: Tensor | None
    ) -> Float[Tensor, "B N D"]:
        """Returns what tokens take from the memory; all paths of a window ask at once."""
        if self._memory is None:
            key, value = attention.remember(memory.tokens, memory.angles)
            self._memory = (key.contiguous(), value.contiguous())  # read once per patch: a third faster
        sizes = (-1, self.paths, self.channels)
        asked = attention.ask(own, angles).unflatten(0, sizes).permute(0, 2, 3, 1, 4, 5)
        asked = asked.flatten(3, 4).flatten(0, 1)  # [windows · C, A, S · N, E]
        mixed = attention.recall(asked, *self._memory, memory.seen, False)
        taken: Tensor = mixed.unflatten(1, (self.paths, -1)).unflatten(0, (-1, self.channels))
        return taken.transpose(1, 2).flatten(0, 2)
