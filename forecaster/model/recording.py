"""Attention weights of every layer and head while windows are forecast.

Recorded by hooks: a network that is not recorded does no work for this, and no hook stays on it.

Axes: B batch · A head · N query · M key · H horizon · C channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from forecaster.model.attention import MultiHeadAttention
from forecaster.model.embedding import previous_values
from forecaster.model.layers import DecoderLayer, EncoderLayer
from forecaster.model.network import Network
from forecaster.windows.batch import Inputs

PARTS = ("encoder", "encoder channels", "decoder", "decoder channels", "cross")
"""Encoder and decoder self-attention, attention across channels in both, and cross-attention."""


class AttentionWeights(NamedTuple):
    """The weights of one attention."""

    part: str
    """One of `PARTS`."""
    layer: int
    """From 1."""
    weights: Tensor
    """[B, A, N, M] weight of each key's value per query. B counts channels, those of a window side by
    side; for attention across channels B counts windows times tokens, and N = M = channels."""


def record_attention(
    network: Network, inputs: Inputs, forecast: Float[Tensor, "B H C"] | None = None
) -> list[AttentionWeights]:
    """Returns the weights of every attention in the order of the forward pass.

    `forecast`: previous values of an autoregressive decoder, data units; None for a direct one.
    """
    attentions, weights = list(_attentions(network)), []

    def record(attention: MultiHeadAttention, read: tuple[Tensor, ...]) -> None:
        weights.append(attention.weights(*read))

    with ExitStack() as hooks:
        for attention, _, _ in attentions:
            hooks.enter_context(attention.register_forward_pre_hook(record))
        memory = network.encode(inputs)
        previous = None
        if forecast is not None:
            previous = previous_values(inputs, forecast, network.config.decoder_patch)
        network.decode(memory, inputs, previous)
    # Hooks ran in the order of the list.
    return [
        AttentionWeights(part, layer, recorded)
        for (_, part, layer), recorded in zip(attentions, weights, strict=True)
    ]


def _attentions(network: Network) -> Iterator[tuple[MultiHeadAttention, str, int]]:
    """Yields every attention with its part and layer, in the order of the forward pass."""
    for stack, name in ((network.encoder, "encoder"), (network.decoder, "decoder")):
        for number, layer in enumerate(stack, start=1):
            assert isinstance(layer, EncoderLayer | DecoderLayer)
            yield layer.attention, name, number
            if layer.channel_attention is not None:
                yield layer.channel_attention, f"{name} channels", number
            if isinstance(layer, DecoderLayer):
                yield layer.cross, "cross", number
