"""What a network is told it did wrong: the losses of windows, for training and for validation.

What comes in: a network and a batch with its truth. What goes out: for each window the sum of its
losses and the weight of the targets that are there. Promised: the loss is computed in float32, whatever
the products of matrices before it are; what validation compares by is the head's own loss.

Axes: B batch · H horizon · T step · C channel · Q quantile level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from forecaster.model.embedding import shifted
from forecaster.model.heads import QuantileHead
from forecaster.model.memory import Memory
from forecaster.model.network import Network
from forecaster.windows.batch import Batch

_TINY = 1e-12


@dataclass(frozen=True)
class LossOptions:
    """What training adds to the head's own loss."""

    lead_decay: float | None = None
    """Weight of a lead relative to the one before; None = all leads count 1."""
    drawn: float = 0.0
    """Share of previous patches that the network draws itself."""
    cast: bool = False
    """Multiply matrices in bfloat16."""
    loss: Literal["pinball", "mae", "huber"] = "pinball"
    """What the median of a quantile head learns from."""
    frequency_weight: float | None = None
    """Weight of the error of the median's spectrum; None = it does not count."""


NOTHING = LossOptions()
"""The head's own loss."""


def window_losses(
    network: Network, batch: Batch, options: LossOptions = NOTHING
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Returns the sum of losses and the weight of observed targets of each window.

    Args:
        network: to be scored.
        batch: with the truth.
        options: how it is taught; nothing of it where it is validated.
    """
    inputs, target = batch.inputs, batch.target
    with torch.autocast(target.device.type, torch.bfloat16, enabled=options.cast):
        memory = network.encode(inputs)
        previous = None
        if network.config.decoder == "autoregressive":
            previous = _previous(network, memory, batch, options.drawn)
        raw = network.decode(memory, inputs, previous)
    raw = raw.float()
    losses = _cell_losses(network, raw, memory, batch, options)
    weights = (~target.isnan()).float()
    if options.lead_decay is not None:
        lead = torch.arange(target.shape[1], device=target.device)
        decay = (options.lead_decay**lead)[:, None]
        losses, weights = losses * decay, weights * decay
    total = losses.sum(dim=(1, 2))
    if options.frequency_weight is not None:
        assert isinstance(network.head, QuantileHead)
        median = network.head.center(raw)
        of_spectrum = spectral_losses(median, memory.scale.apply(target)).sum(dim=1)
        total = total + options.frequency_weight * of_spectrum
    return total, weights.sum(dim=(1, 2))


def spectral_losses(
    median: Float[Tensor, "B H C"], truth: Float[Tensor, "B H C"]
) -> Float[Tensor, "B C"]:
    """Returns H times the mean absolute error of the spectrum over the leads, scaled units.

    The transform is the orthonormal one, so that an error counts about as much here as lead by lead.
    A channel of a window that lacks a lead has no spectrum, and no loss. Source: Wang et al., "FreDF:
    learning to forecast in the frequency domain" (2025).

    Args:
        median: forecast.
        truth: NaN = missing.
    """
    whole = ~truth.isnan().any(dim=1, keepdim=True)
    error = torch.where(whole, median - truth.nan_to_num(), 0.0)
    spectrum = torch.fft.rfft(error, dim=1, norm="ortho")
    # The root of 0 has no slope; a number this small changes no loss.
    size = (spectrum.real.square() + spectrum.imag.square() + _TINY).sqrt() * whole
    losses: Tensor = truth.shape[1] * size.mean(dim=1)
    return losses


def _cell_losses(
    network: Network, raw: Tensor, memory: Memory, batch: Batch, options: LossOptions
) -> Float[Tensor, "B H C"]:
    """Returns the loss of each cell; linear maps that learn beside attention have one of their own."""
    head, target, linear = network.head, batch.target, network.linear
    if options.loss == "pinball":
        losses: Tensor = head.loss(raw, memory.scale, target)
    else:
        assert isinstance(head, QuantileHead)
        losses = head.median_loss(raw, memory.scale, target, options.loss)
    if linear is not None and network.config.linear == "blend" and linear.learns:
        assert isinstance(head, QuantileHead)
        floor = network.linear_quantiles(batch.inputs, memory.scale)
        losses = losses + head.loss(head.inverse(floor), memory.scale, target)
    return losses


def _previous(network: Network, memory: Memory, batch: Batch, drawn: float) -> Float[Tensor, "B T C"]:
    """Returns what each horizon patch is told: the truth before it, or a draw in its place.

    Scheduled sampling in two passes: draws come from what the network says under the truth. Source:
    Bengio et al. (2015); Mihaylova and Martins, "Scheduled sampling for Transformers" (2019).
    """
    size = network.decoder_patch
    truth = shifted(batch.inputs, batch.target, size)
    if not drawn:
        return truth
    with torch.no_grad():
        raw = network.decode(memory, batch.inputs, truth).float()
        # 0 itself may be drawn, and no distribution has a value there.
        uniform = torch.rand((*raw.shape[:-1], 2), dtype=torch.float64, device=raw.device)
        values = network.head.sample(raw, memory.scale, uniform.clamp(min=2.0**-53))
        own = shifted(batch.inputs, values, size)
        patches = torch.rand((len(own), own.shape[1] // size, own.shape[2]), device=raw.device)
    return torch.where((patches < drawn).repeat_interleave(size, dim=1), own, truth)
