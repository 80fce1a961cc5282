"""Attention weights of every layer and head while windows are forecast.

Recorded by hooks: a network that is not recorded does no work for this, and no hook stays on it.

Axes: B batch · A head · N query · M key · H horizon · C channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

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
    with _recording(network) as records:
        memory = network.encode(inputs)
        previous = None
        if forecast is not None:
            previous = previous_values(inputs, forecast, network.config.decoder_patch)
        network.decode(memory, inputs, previous)
    return records


@contextmanager
def _recording(network: Network) -> Iterator[list[AttentionWeights]]:
    records: list[AttentionWeights] = []

    def record(module: nn.Module, part: str, layer: int) -> Any:
        def hook(attention: nn.Module, tokens: tuple[Any, ...], settings: dict[str, Any]) -> None:
            assert isinstance(attention, MultiHeadAttention)
            records.append(AttentionWeights(part, layer, attention.weights(*tokens, **settings)))

        return module.register_forward_pre_hook(hook, with_kwargs=True)

    handles = []
    for stack, name in ((network.encoder, "encoder"), (network.decoder, "decoder")):
        for number, layer in enumerate(stack, start=1):
            assert isinstance(layer, EncoderLayer | DecoderLayer)
            handles.append(record(layer.attention, name, number))
            if layer.channel_attention is not None:
                handles.append(record(layer.channel_attention, f"{name} channels", number))
            if isinstance(layer, DecoderLayer):
                handles.append(record(layer.cross, "cross", number))
    try:
        yield records
    finally:
        for handle in handles:
            handle.remove()
