"""The learner of a network beside experts: what it validates is their mixture, at the best network weight.

Axes: B batch · H lead · C channel · Q quantile level · S network weight · G stretch of time · W window.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from forecaster.errors import FitError
from forecaster.fitting.mixture import NETWORK_WEIGHTS, add_losses, chosen_numbers, losses_by_weight
from forecaster.model.learner import Learner
from forecaster.model.network import Network
from forecaster.windows.batch import Batch


class MixtureLearner(Learner[Network]):
    """Validates experts and network together.

    `validation_loss` is the pinball loss of the mixture in scaled units, with the weights that
    `choose_network_weights` would choose; `network_weight` is their mean over channels, `network_loss` the loss
    of the network alone.
    """

    def __init__(self, *args: Any, stretch: Int[Tensor, " W"]):
        """Takes what a learner does, and the stretch of time of each validation window."""
        super().__init__(*args)
        self._stretch = stretch
        self._sums = losses_by_weight(stretch, self.network.shape.channels)
        self._experts: list[Float[Tensor, "B H C Q"]] = []
        """Of each validation batch, scaled units: they are not trained."""
        self._place = self._cells = 0

    def on_validation_epoch_start(self) -> None:
        """Begins the sums of a validation."""
        self._sums = torch.zeros_like(self._sums, device=self.device)
        self._place = self._cells = 0

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Adds a batch to the sums, under the EMA weights."""
        if len(batch.cutoff) == 0:  # other ranks have windows left
            return
        network, inputs = self.average, batch.inputs
        with self._memory_advice():
            memory = network.encode(inputs)
            raw = network.decode(memory, inputs)
        scale = memory.scale
        if batch_index == len(self._experts):
            self._experts.append(scale.apply(network.of_experts(inputs, scale).quantiles))
        experts = self._experts[batch_index]
        full = scale.apply(network.head.quantiles(raw, scale))
        if not torch.isfinite(full).all():
            self._faults.append(self._not_finite(full.sum(dim=(1, 2, 3)), batch))
        full = torch.where(network.brief(inputs)[:, None, :, None], experts, full)
        # Rank r has windows r, r + W, … of W ranks.
        own = self._stretch[self.trainer.global_rank :: self.trainer.world_size]
        stretch = own[self._place : self._place + len(experts), None].to(self.device)
        place = stretch, inputs.channel - 1
        target = scale.apply(batch.target)
        levels = torch.tensor(network.config.quantile_levels, device=self.device)
        add_losses(self._sums, place, target, experts, full.to(experts.dtype), levels)
        self._place += len(experts)
        self._cells += int((~target.isnan()).sum())

    def on_validation_epoch_end(self) -> None:
        """Records the loss of the mixture, over all windows and ranks, and the weight of the network."""
        counts = torch.full_like(self._sums, self._cells)
        sums, counts = self._sum_over_ranks(self._sums, counts).cpu()
        cells = counts.flatten()[0].clamp(min=1)
        if not torch.isfinite(sums).all():
            raise FitError(self._blame(self._faults, "validation loss"))
        _, *numbers = chosen_numbers(sums)
        loss = sum(sums[number, :, channel].sum() for channel, number in enumerate(numbers))
        weight = sum(NETWORK_WEIGHTS[number] for number in numbers) / len(numbers)
        self.record("network_weight", weight)
        self.record("validation_loss", float(loss / cells))
        if sums.shape[1] > 1:  # of one stretch no network is chosen
            self.record("network_loss", float(sums[-1].sum() / cells))
