"""What a network is told it did wrong: the losses of windows, for training and for validation.

What comes in: a network and a batch with its truth. What goes out: for each window the sum of its
losses and the weight of the targets that are there. Promised: the loss is computed in float32, whatever
the products of matrices before it are.

Axes: B batch · H horizon · T step · C channel.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from forecaster.model.embedding import shifted
from forecaster.model.memory import Memory
from forecaster.model.network import Network
from forecaster.windows.batch import Batch


def window_losses(
    network: Network,
    batch: Batch,
    lead_decay: float | None = None,
    drawn: float = 0.0,
    cast: bool = False,
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Returns the sum of losses and the weight of observed targets of each window.

    Args:
        network: to be scored.
        batch: with the truth.
        lead_decay: weight of a lead relative to the one before; None = all leads count 1.
        drawn: share of previous patches that the network draws itself.
        cast: multiply matrices in bfloat16.
    """
    inputs, target = batch.inputs, batch.target
    with torch.autocast(target.device.type, torch.bfloat16, enabled=cast):
        memory = network.encode(inputs)
        previous = None
        if network.config.decoder == "autoregressive":
            previous = _previous(network, memory, batch, drawn)
        raw = network.decode(memory, inputs, previous)
    losses = network.head.loss(raw.float(), memory.scale, target)
    weights = (~target.isnan()).float()
    if lead_decay is not None:
        lead = torch.arange(target.shape[1], device=target.device)
        decay = (lead_decay**lead)[:, None]
        losses, weights = losses * decay, weights * decay
    return losses.sum(dim=(1, 2)), weights.sum(dim=(1, 2))


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
