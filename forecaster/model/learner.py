"""The LightningModule: loss, optimiser, learning-rate schedule, EMA weights; no architecture.

It stops with a clear message when a loss is not finite, naming the series it came from, and when memory
runs out, naming the settings to lower.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar

import pytorch_lightning as pl
import torch
from jaxtyping import Float
from torch import Tensor, nn

from forecaster.config import FitPlan
from forecaster.errors import FitError
from forecaster.model.schedule import Schedule
from forecaster.model.trainable import Losses, MedianLoss, Trainable
from forecaster.windows.batch import Batch

Net = TypeVar("Net", bound=Trainable)

_LOG_EVERY = 10  # steps; logging each step costs a tenth of a small fit
_EMA_DECAY = 0.999
"""Of the moving average of weights that is validated and kept."""
_OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory")
_Fault = tuple[set[int], set[int]]
"""Numbers of the series whose losses are not finite, and of all series of the batch."""


def window_losses(network: Trainable, batch: Batch, loss: MedianLoss, bf16: bool) -> Losses:
    """Returns the losses of a network; `bf16`: matrices are multiplied in bfloat16."""
    with torch.autocast(batch.target.device.type, torch.bfloat16, enabled=bf16):
        return network.losses(batch, loss)


class Learner(pl.LightningModule, Generic[Net]):
    """Trains a network; `average` holds the EMA weights that are validated and kept."""

    def __init__(
        self,
        network: Net,
        config: FitPlan,
        series: Sequence[str],
        name: str = "",
        bf16: bool = False,
        compiled: bool = False,
    ):
        """Takes the network to train, in place.

        Args:
            network: what its experts hold stays as it is.
            config: rates and steps.
            series: the caller's name of each series, for messages.
            name: prefix of the names of the curves; empty for the first training of a fit.
            bf16: multiply matrices in bfloat16 while training.
            compiled: compile the training loss with torch.
        """
        super().__init__()
        self.network, self.config, self.series, self.name = network, config, series, name
        self._bf16, self._compiled = bf16, compiled
        self.average = copy.deepcopy(network).requires_grad_(False).eval()
        self.schedule = Schedule(config.steps)
        if not config.by_evidence:
            self.schedule.decay(begin := self.schedule.last_begin, begin)
        self.curves: dict[str, list[tuple[int, float]]] = {}
        self.latest_loss = math.nan
        self._losses: list[Tensor] = []
        self._validated: list[Tensor] = []
        self._faults: list[_Fault] = []
        self._losses_of = window_losses
        self._averaged: tuple[list[Tensor], list[Tensor]] = [], []
        self.ended = False
        """Whether early stopping or a callback has ended the training after its last validation."""

    def on_fit_start(self) -> None:
        """Compiles the loss if requested; the network and its parameter names stay as they are."""
        if self._compiled:
            self._losses_of = torch.compile(window_losses)

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        """Returns the mean loss over the observed targets of a batch."""
        with self._memory_advice():
            total, count = self._losses_of(self.network, batch, self.config.loss, self._bf16)
        sums = self._sum_over_ranks(total.detach().sum(), count.sum())
        cells = sums[1].clamp(min=1)
        loss = sums[0] / cells
        if not torch.isfinite(loss):
            raise FitError(self._blame([self._not_finite(total, batch)], "loss"))
        self._losses.append(loss)
        # Ranks average their gradients: with W ranks, (1/W)·Σ total/(cells/W) = Σ total / cells.
        return total.sum() / (cells / self.trainer.world_size)

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        with self._memory_advice():
            super().backward(loss, *args, **kwargs)

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_index: int) -> None:
        """Updates the EMA weights, and logs every few steps."""
        step = self.global_step
        # A young average follows closely, or it would remember the random start.
        decay = min(_EMA_DECAY, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_(*self._averaged, 1 - decay)
        if step % _LOG_EVERY == 0:
            # Fetched now: a float of each loss would wait for the device at every step.
            self.latest_loss = float(torch.stack(self._losses).mean())
            self._losses.clear()
            self.record("train_loss", self.latest_loss)
            self.record("learning_rate", float(self.optimizers().param_groups[0]["lr"]))

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Adds a batch to the validation sums, under the EMA weights."""
        if len(batch.cutoff) == 0:  # other ranks have windows left
            self._validated.append(torch.zeros(2, dtype=torch.float64, device=self.device))
            return
        with self._memory_advice():
            total, count = self.average.losses(batch)
        if not torch.isfinite(total).all():
            self._faults.append(self._not_finite(total, batch))
        # In float64: a sum over many windows.
        sums = torch.stack([total.double().sum(), count.double().sum()])
        self._validated.append(sums)

    def on_validation_epoch_end(self) -> None:
        """Records the validation loss: one sum over one count, over all windows and ranks."""
        sums = self._sum_over_ranks(*torch.stack(self._validated).sum(0))
        self._validated.clear()
        if not torch.isfinite(sums[0]):
            raise FitError(self._blame(self._faults, "validation loss"))
        self.record("validation_loss", float(sums[0] / sums[1].clamp(min=1)))

    def on_validation_end(self) -> None:
        """Stops all ranks where one of them stops: its callbacks may be on that rank only."""
        trainer = self.trainer
        self.ended = trainer.strategy.reduce_boolean_decision(trainer.should_stop, all=False)
        trainer.should_stop = self.ended

    def record(self, name: str, value: float) -> None:
        """Adds a point to a curve and logs it."""
        self.curves.setdefault(name, []).append((self.global_step, value))
        self.log_point(name, value, self.global_step)

    def log_point(self, name: str, value: float, step: int) -> None:
        """Passes a point of a curve to the loggers."""
        full = f"{self.name}/{name}" if self.name else name
        for logger in self.loggers:
            logger.log_metrics({full: value}, step=step)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the curves and the losses since their last point."""
        checkpoint["curves"], checkpoint["latest_loss"] = self.curves, self.latest_loss
        checkpoint["losses"] = [*map(float, self._losses)]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.curves, self.latest_loss = checkpoint["curves"], checkpoint["latest_loss"]
        self._losses = [torch.tensor(loss) for loss in checkpoint["losses"]]

    def on_train_start(self) -> None:
        """Moves restored losses to the device, and lists the weights once."""
        self._losses = [loss.to(self.device) for loss in self._losses]
        self._averaged = [*self.average.parameters()], [*self.network.parameters()]

    def configure_optimizers(self) -> dict[str, Any]:
        """Returns AdamW (fused) and its schedule; weight decay on matrices only."""
        config, experts = self.config, self.network.experts
        solved = set() if experts is None else {id(parameter) for parameter in experts.parameters()}
        matrices: list[nn.Parameter] = []
        vectors: list[nn.Parameter] = []
        for module in self.network.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if id(parameter) in solved:
                    continue
                decays = isinstance(module, nn.Linear) and name == "weight"
                (matrices if decays else vectors).append(parameter)
        optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": config.weight_decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=config.learning_rate,
            fused=True,
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self.schedule)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    @contextmanager
    def _memory_advice(self) -> Iterator[None]:
        """Explains which settings to lower when memory runs out."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            reason = str(error).splitlines()[:1]
            raise FitError(
                f"out of memory{': ' if reason else ''}{''.join(reason)}; lower fit.batch_size "
                f"({self.config.batch_size}), model.context_length or model.width"
            ) from None

    def _sum_over_ranks(self, *sums: Tensor) -> Tensor:
        return self.trainer.strategy.reduce(torch.stack(sums), reduce_op="sum")

    def _not_finite(self, total: Float[Tensor, " B"], batch: Batch) -> _Fault:
        bad = batch.series[~torch.isfinite(len(total) * total)]  # their sum may be what is not
        return set(bad.tolist()), set(batch.series.tolist())

    def _blame(self, faults: list[_Fault], what: str) -> str:
        if self.trainer.world_size > 1:  # each rank has its own windows
            gathered: list[list[_Fault]] = [[] for _ in range(self.trainer.world_size)]
            torch.distributed.all_gather_object(gathered, faults)
            faults = [fault for of_rank in gathered for fault in of_rank]
        bad = sorted(set().union(*(fault[0] for fault in faults)))
        in_batch = set().union(*(fault[1] for fault in faults))
        names = ", ".join(self.series[number] for number in bad[:3])
        more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
        return (
            f"the {what} is not finite at step {self.global_step + (what == 'loss')}: "
            f"{len(bad)} of {len(in_batch)} series in the batch, {names}{more}; "
            "look for extreme values there (forecaster check), or lower fit.learning_rate"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is a lack of memory; on a processor it has no type of its own."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in _OUT_OF_MEMORY)


class KeepBest(pl.Callback):
    """Keeps the weights of the best validation."""

    STATE: ClassVar[tuple[str, ...]] = (
        "loss",
        "step",
        "taken",
        "dropped",
        "checked",
        "over",
        "why",
        "weights",
    )
    """Attributes that a checkpoint holds."""

    def __init__(self) -> None:
        self.loss, self.step = math.inf, 0
        self.taken = 0
        """Steps that lead to the best weights: `step` without those that were taken back."""
        self.dropped = 0
        """Steps taken back so far."""
        self.checked = 0
        """Step of the latest validation."""
        self.over, self.why = False, ""
        """Whether it has ended the training, and why."""
        self.weights: dict[str, Tensor] | None = None

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.STATE}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name in self.STATE:
            setattr(self, name, state_dict[name])

    def on_validation_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        """Compares the last validation with the best so far."""
        self.checked, loss = learner.curves["validation_loss"][-1]
        if loss < self.loss:
            self.loss, self.step = loss, learner.global_step
            self.taken = self.step - self.dropped
            # A copy: the average goes on moving.
            self.weights = {k: v.clone() for k, v in learner.average.state_dict().items()}
