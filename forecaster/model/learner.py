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

from forecaster.config import FitPlan
from forecaster.errors import FitError
from forecaster.model.augment import augmented
from forecaster.model.loss import LossOptions, window_losses
from forecaster.model.network import Network
from forecaster.model.parts import Parts
from forecaster.windows.batch import Batch

_WARMUP = 0.05  # of the steps; a cosine to zero follows
_LOG_EVERY = 10  # steps; logging each step costs more than it tells
_Fault = tuple[set[int], set[int]]
"""Numbers of the series whose losses are not finite, and of all series beside them."""
_BEST = ("loss", "step", "waited", "checked", "weights")


class Learner(pl.LightningModule):
    """Teaches a network; `average` holds the weights that are validated and kept."""

    def __init__(self, network: Network, config: FitPlan, series: Sequence[str], name: str = ""):
        """Takes the network to train.

        Args:
            network: its weights are changed in place.
            config: rates, steps, decay.
            series: the caller's name of each series, for messages.
            name: of the training, before the names of its curves; empty: the first one of a fit.
        """
        super().__init__()
        self.network, self.config, self.series, self.name = network, config, series, name
        if network.linear is not None:
            network.linear.requires_grad_(config.linear_rate is not None)
        self.average = copy.deepcopy(network).requires_grad_(False).eval()
        self.curves: dict[str, list[tuple[int, float]]] = {}
        self.latest_loss = math.nan
        self._losses: list[Tensor] = []
        self._validated: list[Tensor] = []
        self._faults: list[_Fault] = []
        self._losses_of = window_losses
        self._averaged: tuple[list[Tensor], list[Tensor]] = [], []
        self.parts = Parts()
        """How much of a batch is computed at once."""
        self.ended = False
        """Whether early stopping or a watcher has ended the training after its last validation."""

    def on_fit_start(self) -> None:
        """Lets torch compile what training computes; the network and its names stay as they are."""
        if self.config.compile:
            self._losses_of = torch.compile(window_losses)

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        """Returns the head's mean loss over the observed targets of a batch, leads weighted."""
        network, config = self.network, self.config
        inputs = augmented(batch.inputs, config, network.scaler, network.patch)
        batch = replace(batch, inputs=inputs)
        options = LossOptions(
            lead_decay=config.lead_decay,
            drawn=self._share_drawn(),
            cast=config.precision == "bf16",
            loss=config.loss,
            frequency_weight=config.frequency_weight,
        )
        total, count = self.parts.scored(lambda part: self._losses_of(network, part, options), batch)
        sums = self._of_all_ranks(total.detach().sum(), count.sum())
        cells = sums[1].clamp(min=1)
        loss = sums[0] / cells
        if not torch.isfinite(loss):
            raise FitError(self._blame([self._not_finite(total, batch)], "loss"))
        self._losses.append(loss)
        # Ranks average their gradients, each of a loss per cell: per cell of all of them, that is.
        share: Tensor = total.sum() / (cells / self.trainer.world_size)
        return share

    def optimizer_step(
        self, epoch: int, batch_index: int, optimizer: Any, optimizer_closure: Any = None
    ) -> None:
        """Takes a step; where memory does not suffice for its batch, in parts."""
        known = len(self._losses)

        def step() -> None:
            if len(self._losses) > known and self.trainer.world_size > 1:
                raise FitError(
                    "memory ran out while gradients were exchanged: lower fit.batch_size, "
                    f"{self.config.batch_size}"
                )
            del self._losses[known:]
            optimizer.step(closure=optimizer_closure)

        self.parts.until_it_fits(step)

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_index: int) -> None:
        """Moves the average, and logs every few steps."""
        step = self.global_step
        decay = self.config.ema_decay
        # A young average follows closely, or it would remember the random start.
        decay = min(decay, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_(*self._averaged, 1 - decay)
        if step % _LOG_EVERY == 0:
            self.latest_loss = float(torch.stack(self._losses).mean())
            self._losses.clear()
            self.record("train_loss", self.latest_loss)
            self.record("learning_rate", float(self.optimizers().param_groups[0]["lr"]))

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Adds a batch to the validation sums, under the averaged weights."""
        if len(batch.cutoff) == 0:  # others have windows left
            self._validated.append(torch.zeros(2, dtype=torch.float64, device=self.device))
            return

        def score() -> None:
            total, count = self.parts.scored(lambda part: window_losses(self.average, part), batch)
            if not torch.isfinite(total).all():
                self._faults.append(self._not_finite(total, batch))
            self._validated.append(torch.stack([total.double().sum(), count.double().sum()]))

        self.parts.until_it_fits(score)

    def on_validation_epoch_end(self) -> None:
        """Records the validation loss: one sum over one count, over all windows and ranks."""
        sums = self._of_all_ranks(*torch.stack(self._validated).sum(0))
        self._validated.clear()
        if not torch.isfinite(sums[0]):
            raise FitError(self._blame(self._faults, "validation loss"))
        self.record("validation_loss", float(sums[0] / sums[1].clamp(min=1)))

    def on_validation_end(self) -> None:
        """Lets all processes stop where one of them wants to: its watchers may be its alone."""
        trainer = self.trainer
        self.ended = trainer.strategy.reduce_boolean_decision(trainer.should_stop, all=False)
        trainer.should_stop = self.ended

    def record(self, name: str, value: float) -> None:
        """Adds a point to a curve and hands it to the loggers."""
        self.curves.setdefault(name, []).append((self.global_step, value))
        self.tell(name, value, self.global_step)

    def tell(self, name: str, value: float, step: int) -> None:
        """Hands a point of a curve to the loggers."""
        full = f"{self.name}/{name}" if self.name else name
        for logger in self.loggers:
            logger.log_metrics({full: value}, step=step)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the curves, the losses since their last point, and how many windows fit."""
        checkpoint["curves"] = self.curves
        checkpoint["losses"] = [*map(float, self._losses)]
        checkpoint["latest_loss"], checkpoint["most"] = self.latest_loss, self.parts.most
        checkpoint["precision"] = self.config.precision

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes them back."""
        self.curves, self.latest_loss = checkpoint["curves"], checkpoint["latest_loss"]
        self._losses = [torch.tensor(loss) for loss in checkpoint["losses"]]
        self.parts.most = checkpoint["most"]
        # Measured again it might come out otherwise.
        self.config = self.config.model_copy(update={"precision": checkpoint["precision"]})

    def on_train_start(self) -> None:
        """Has losses that were taken back where those to come are, and lists the weights once."""
        self._losses = [loss.to(self.device) for loss in self._losses]
        self._averaged = [*self.average.parameters()], [*self.network.parameters()]

    def configure_optimizers(self) -> dict[str, Any]:
        """Returns AdamW (fused) with warm-up and cosine decay; only matrices decay.

        Linear maps, where they learn, go on from their solution at a rate of their own; they do not
        decay, since their penalty is in the solution.
        """
        config, linear = self.config, self.network.linear
        maps = [] if linear is None else [*linear.parameters()]
        solved = {id(parameter) for parameter in maps}
        matrices: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for module in self.network.modules():
            for name, parameter in module.named_parameters(recurse=False):
                decays = isinstance(module, nn.Linear) and name == "weight"
                if id(parameter) not in solved:
                    (matrices if decays else others).append(parameter)
        groups: list[dict[str, Any]] = [
            {"params": matrices, "weight_decay": config.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        if config.linear_rate is not None and maps:
            groups.append({"params": maps, "weight_decay": 0.0, "lr": config.linear_rate})
        optimizer = torch.optim.AdamW(
            groups,
            lr=config.learning_rate,
            fused=True,
        )
        warmup = max(1, round(_WARMUP * config.steps))

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

    def _of_all_ranks(self, *sums: Tensor) -> Tensor:
        """Returns sums added up over all processes that train together."""
        reduced: Tensor = self.trainer.strategy.reduce(torch.stack(sums), reduce_op="sum")
        return reduced

    def _not_finite(self, total: Float[Tensor, " B"], batch: Batch) -> _Fault:
        """Returns the series of a batch whose losses are not finite, and all its series."""
        guilty = batch.series[~torch.isfinite(total)]
        return set(guilty.tolist()), set(batch.series.tolist())

    def _blame(self, faults: list[_Fault], what: str) -> str:
        if self.trainer.world_size > 1:  # each process knows its own windows only
            gathered: list[list[_Fault]] = [[] for _ in range(self.trainer.world_size)]
            torch.distributed.all_gather_object(gathered, faults)
            faults = [fault for own in gathered for fault in own]
        guilty = sorted(set().union(*(fault[0] for fault in faults)))
        met = set().union(*(fault[1] for fault in faults))
        names = ", ".join(self.series[number] for number in guilty[:3])
        more = f" and {len(guilty) - 3} more" if len(guilty) > 3 else ""
        return (
            f"the {what} is not finite at step {self.global_step + (what == 'loss')}: "
            f"{len(guilty)} of {len(met)} series in the batch, {names}{more}; "
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

    def state_dict(self) -> dict[str, Any]:
        """Returns the best so far, and how long it has been waited for a better one."""
        return {name: getattr(self, name) for name in _BEST}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from there."""
        for name in _BEST:
            setattr(self, name, state_dict[name])

    def on_fit_start(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        """Ends a training at once that goes on from where it had been waited long enough."""
        trainer.should_stop |= self.waited_enough

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
            trainer.should_stop |= self.waited_enough

    @property
    def waited_enough(self) -> bool:
        """Whether no validation has been better for as long as patience lasts."""
        return self.patience is not None and self.waited >= self.patience
