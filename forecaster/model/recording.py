"""What attention looked at: the weights of every layer and head, for windows one wants to look into.

What comes in: a network and `Inputs`. What goes out: the same forecast as ever, and beside it the
weights of each attention. Promised: a network that is not looked into does no work for this, and
nothing is left on one that was.

Axes: B batch · A head · N query · M key · H horizon · C channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from forecaster.model.attention import MultiHeadAttention
from forecaster.model.embedding import shifted
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
    """[B, A, N, M] how much of each key's value a query takes. B counts channels, those of a window
    side by side; for attention across channels B counts windows times tokens, and N = M = channels."""


def record_attention(
    network: Network, inputs: Inputs, forecast: Float[Tensor, "B H C"] | None = None
) -> list[AttentionWeights]:
    """Returns the weights of every attention while windows are forecast, in the order of work.

    Args:
        network: in evaluation mode.
        inputs: windows.
        forecast: what an autoregressive decoder is told it has written, data units; None for a direct
            one, which is told nothing.
    """
    with _recording(network) as looks:
        memory = network.encode(inputs)
        previous = None if forecast is None else shifted(inputs, forecast, network.decoder_patch)
        network.decode(memory, inputs, previous)
    return looks


@contextmanager
def _recording(network: Network) -> Iterator[list[AttentionWeights]]:
    """Collects the weights of each call of an attention of a network."""
    looks: list[AttentionWeights] = []

    def watch(module: nn.Module, part: str, layer: int) -> Any:
        def look(attention: nn.Module, tokens: tuple[Any, ...], settings: dict[str, Any]) -> None:
            assert isinstance(attention, MultiHeadAttention)
            looks.append(AttentionWeights(part, layer, attention.weights(*tokens, **settings)))

        return module.register_forward_pre_hook(look, with_kwargs=True)

    handles = []
    for stack, name in ((network.encoder, "encoder"), (network.decoder, "decoder")):
        for number, layer in enumerate(stack, start=1):
            assert isinstance(layer, EncoderLayer | DecoderLayer)
            handles.append(watch(layer.attention, name, number))
            if layer.channel is not None:
                handles.append(watch(layer.channel.attention, f"{name} channels", number))
            if isinstance(layer, DecoderLayer):
                handles.append(watch(layer.cross, "cross", number))
    try:
        yield looks
    finally:
        for handle in handles:
            handle.remove()
