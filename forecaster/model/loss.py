"""Losses of windows, for training and for validation.

The loss is computed in float32, whatever the precision of matrix products before it. Validation
compares by the head's own loss.

Axes: B batch · H horizon · C channel.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from forecaster.model.embedding import previous_values
from forecaster.model.heads import QuantileHead
from forecaster.model.label_network import LabelNetwork
from forecaster.model.network import Network
from forecaster.windows.batch import Batch


def window_losses(
    network: Network | LabelNetwork,
    batch: Batch,
    bf16: bool = False,
    loss: Literal["pinball", "mae", "huber"] = "pinball",
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Returns the sum of losses and the number of observed targets of each window.

    `bf16`: multiply matrices in bfloat16. `loss`: of the median of a quantile head.
    """
    inputs, target = batch.inputs, batch.target
    with torch.autocast(target.device.type, torch.bfloat16, enabled=bf16):
        if isinstance(network, LabelNetwork):
            return network.losses(batch)
        memory = network.encode(inputs)
        previous = None
        if network.config.decoder == "autoregressive":  # teacher forcing
            previous = previous_values(inputs, target, network.config.decoder_patch)
        raw = network.decode(memory, inputs, previous)
    raw = raw.float()
    if loss == "pinball":
        losses = network.head.loss(raw, memory.scale, target)
    else:
        assert isinstance(network.head, QuantileHead)
        losses = network.head.median_loss(raw, memory.scale, target, loss)
    observed = ~target.isnan()
    return losses.sum(dim=(1, 2)), observed.float().sum(dim=(1, 2))  # [B, H, C] → [B] each
