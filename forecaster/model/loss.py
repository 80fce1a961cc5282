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
from forecaster.model.experts import Correction, Pool
from forecaster.model.heads import QuantileHead, quantile_loss
from forecaster.model.network import Network
from forecaster.windows.batch import Batch


def window_losses(
    network: Network,
    batch: Batch,
    bf16: bool = False,
    loss: Literal["pinball", "mae", "huber"] = "pinball",
    pool: Pool | None = None,
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Returns the sum of losses and the number of observed targets of each window.

    `bf16`: multiply matrices in bfloat16. `loss`: of the median of a quantile head. `pool`: of the batch,
    where it is known already.
    """
    inputs, target = batch.inputs, batch.target
    with torch.autocast(target.device.type, torch.bfloat16, enabled=bf16):
        memory = network.encode(inputs)
        previous = None
        if network.config.decoder == "autoregressive":  # teacher forcing
            previous = previous_values(inputs, target, network.config.decoder_patch)
        raw = network.decode(memory, inputs, previous)
    raw, scale, head = raw.float(), memory.scale, network.head
    if isinstance(head, Correction):
        if pool is None:
            with torch.no_grad():
                pool = network.pool(inputs, scale, batch.time)
        losses = quantile_loss(network.corrected(raw, pool), scale.apply(target), head.levels, loss)
    elif isinstance(head, QuantileHead):
        losses = quantile_loss(head(raw), scale.apply(target), head.levels, loss)
    else:
        losses = head.loss(raw, scale, target)
    return losses.sum(dim=(1, 2)), (~target.isnan()).float().sum(dim=(1, 2))
