"""The LightningModule: loss, optimiser, schedule, averaged weights; no architecture.

What comes in: batches with their truth. What goes out: averaged weights, the loss curves, and a clear
stop when a loss is not finite, naming the series it came from.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytorch_lightning as pl
import torch
from jaxtyping import Float
from torch import Tensor, nn

from forecaster.config import FitConfig
from forecaster.errors import FitError
from forecaster.model.augment import augmented
from forecaster.model.embedding import shifted
from forecaster.model.memory import Memory
from forecaster.model.network import Network
from forecaster.windows.batch import Batch

_LOG_EVERY = 10  # steps; logging each step costs more than it tells


class Learner(pl.LightningModule):
    """Teaches a network; `average` holds the weights that are validated and kept."""

    def __init__(self, network: Network, config: FitConfig, series: Sequence[str]):
        """Takes the network to train.

        Args:
            network: its weights are changed in place.
            config: rates, steps, decay.
            series: the caller's name of each series, for messages.
        """
        super().__init__()
        self.network, self.config, self.series = network, config, series
        self.average = copy.deepcopy(network).requires_grad_(False).eval()
        self.curves: dict[str, list[tuple[int, float]]] = {}
        self.latest_loss = math.nan
        self._losses: list[Tensor] = []
        self._validated: list[Tensor] = []

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        """Returns the head's mean loss over the observed targets of a batch, leads weighted."""
        network, config = self.network, self.config
        inputs = augmented(batch.inputs, config, network.scaler, network.patch)
        batch = replace(batch, inputs=inputs)
        total, count = _loss(network, batch, config.lead_decay, self._share_drawn())
        loss = total.sum() / count.sum().clamp(min=1)
        if not torch.isfinite(loss):
            raise FitError(self._blame(total, batch, "loss"))
        self._losses.append(loss.detach())
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_index: int) -> None:
        """Moves the average, and logs every few steps."""
        step = self.global_step
        decay = self.config.average_decay or 0.0
        # A young average follows closely, or it would remember the random start.
        decay = min(decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(
            [parameter.data for parameter in self.average.parameters()],
            [parameter.data for parameter in self.network.parameters()],
            1 - decay,
        )
        if step % _LOG_EVERY == 0:
            self.latest_loss = float(torch.stack(self._losses).mean())
            self._losses.clear()
            self.record("train_loss", self.latest_loss)
            self.record("learning_rate", float(self.optimizers().param_groups[0]["lr"]))

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Adds a batch to the validation sums, under the averaged weights."""
        total, count = _loss(self.average, batch)
        if not torch.isfinite(total).all():
            raise FitError(self._blame(total, batch, "validation loss"))
        self._validated.append(torch.stack([total.double().sum(), count.double().sum()]))

    def on_validation_epoch_end(self) -> None:
        """Records the validation loss: one sum over one count, over all windows and ranks."""
        sums = self.trainer.strategy.reduce(torch.stack(self._validated).sum(0), reduce_op="sum")
        self._validated.clear()
        self.record("validation_loss", float(sums[0] / sums[1].clamp(min=1)))

    def record(self, name: str, value: float) -> None:
        """Adds a point to a curve and hands it to the loggers."""
        self.curves.setdefault(name, []).append((self.global_step, value))
        for logger in self.loggers:
            logger.log_metrics({name: value}, step=self.global_step)

    def configure_optimizers(self) -> dict[str, Any]:
        """Returns AdamW (fused) with warm-up and cosine decay; only matrices decay."""
        config = self.config
        matrices: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for module in self.network.modules():
            for name, parameter in module.named_parameters(recurse=False):
                decays = isinstance(module, nn.Linear) and name == "weight"
                (matrices if decays else others).append(parameter)
        optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": config.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=config.learning_rate,
            fused=True,
        )
        warmup = max(1, round(config.warmup * config.steps))

        def rate(step: int) -> float:
            if step < warmup:
                return (step + 1) / warmup
            done = (step - warmup) / max(1, config.steps - warmup)
            return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def _share_drawn(self) -> float:
        """How much of what precedes a patch is drawn by now."""
        done: float = self.global_step / self.config.steps
        return (self.config.scheduled_sampling or 0.0) * done

    def _blame(self, total: Float[Tensor, " B"], batch: Batch, what: str) -> str:
        guilty = batch.series[~torch.isfinite(total)].unique().tolist()
        names = ", ".join(self.series[number] for number in guilty[:3])
        more = f" and {len(guilty) - 3} more" if len(guilty) > 3 else ""
        return (
            f"the {what} is not finite at step {self.global_step + (what == 'loss')}: "
            f"{len(guilty)} of {len(batch.series.unique())} series in the batch, {names}{more}; "
            "look for extreme values there (forecaster check), or lower fit.learning_rate"
        )


class KeepBest(pl.Callback):
    """Keeps the weights of the best validation, and stops when none has been better for a while."""

    def __init__(self, patience: int | None):
        """Takes how many validations without a better loss end the training; None = never."""
        self.patience = patience
        self.loss, self.step, self.waited = math.inf, 0, 0
        self.checked = 0
        """Step of the latest validation."""
        self.weights: dict[str, Tensor] | None = None

    def on_validation_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        """Compares the validation just run with the best so far."""
        if trainer.sanity_checking:
            return
        self.checked, loss = learner.curves["validation_loss"][-1]
        if loss < self.loss:
            self.loss, self.step, self.waited = loss, learner.global_step, 0
            self.weights = {k: v.clone() for k, v in learner.average.state_dict().items()}
        else:
            self.waited += 1
            if self.patience is not None and self.waited >= self.patience:
                trainer.should_stop = True


def _loss(
    network: Network, batch: Batch, lead_decay: float | None = None, drawn: float = 0.0
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Returns the sum of losses and the weight of observed targets of each window.

    Args:
        network: to be scored.
        batch: with the truth.
        lead_decay: weight of a lead relative to the one before; None = all leads count 1.
        drawn: share of previous patches that the network draws itself.
    """
    inputs, target = batch.inputs, batch.target
    memory = network.encode(inputs)
    previous = None
    if network.config.decoder == "autoregressive":
        previous = _previous(network, memory, batch, drawn)
    losses = network.head.loss(network.decode(memory, inputs, previous), memory.scale, target)
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
        raw = network.decode(memory, batch.inputs, truth)
        # 0 itself may be drawn, and no distribution has a value there.
        uniform = torch.rand((*raw.shape[:-1], 2), dtype=torch.float64, device=raw.device)
        values = network.head.sample(raw, memory.scale, uniform.clamp(min=2.0**-53))
        own = shifted(batch.inputs, values, size)
        patches = torch.rand((len(own), own.shape[1] // size, own.shape[2]), device=raw.device)
    return torch.where((patches < drawn).repeat_interleave(size, dim=1), own, truth)
