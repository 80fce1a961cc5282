"""Learns the weights of attention over experts from stored rows, by the learner that trains all networks.

    step of a training ─▶ seed ─▶ a batch: sources of equal chance within a step, two rows of three real
        ─▶ some experts left out, some rows upside down
        ─▶ attention ─▶ pinball loss at the nine levels, in units of the row

A batch follows from its number alone, so a training that was stopped goes on as if it had not been.

Axes: R row · E expert · P position of a lead · Q quantile level.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from forecaster.config import FitPlan
from forecaster.fitting.experts.tuning import never_negative, row_losses
from forecaster.fitting.pretrain.expert_rows import ExpertRows
from forecaster.model.evidence import POSITIONS, Evidence
from forecaster.model.expert_attention import METHODS, SOLVED, ExpertAttention
from forecaster.model.learner import KeepBest, Learner
from forecaster.model.trainable import Losses

REAL = 0.65
"""Share of the rows of a batch that are of real series."""
ROWS = 256
"""Of a batch."""
RATE, START_RATE, DECAY = 2e-3, 1e-3, 0.01
_LEFT_OUT, _SOLVED_LEFT_OUT, _ALONE = 0.08, 0.4, 0.04
_SMALL, _SMALL_LEFT_OUT = 0.12, 0.75


@dataclass(frozen=True)
class RowBatch:
    """Rows of a training step."""

    rows: ExpertRows
    series: Tensor
    """[R] number of the table of each row, which a message names."""
    cutoff: Tensor
    """[R] number of each row."""

    @property
    def target(self) -> Tensor:
        """[R, P] truth."""
        return self.rows.truth

    def to(self, device: torch.device | str) -> RowBatch:
        """Returns itself: rows lie in memory, and so does the network."""
        return self


class Pretrained(nn.Module):
    """Attention over all experts there are, and its loss."""

    experts = None
    """Nothing in it is solved."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = ExpertAttention(METHODS)

    def losses(self, batch: RowBatch, loss: str = "pinball") -> Losses:
        """Returns the sum of losses of each row, and the number of its observed positions."""
        evidence, truth = batch.rows
        known = ~truth.isnan()
        each = row_losses(forecast(self.attention, evidence), evidence, truth)
        return each.sum(dim=1), known.sum(dim=1).float()


def forecast(attention: ExpertAttention, evidence: Evidence) -> Float[Tensor, "R P Q"]:
    """Returns the quantiles at the positions, scaled units."""
    every = torch.eye(POSITIONS)
    quantiles = attention.quantiles(evidence, evidence.forecasts, evidence.width, every)
    return never_negative(quantiles, evidence)


def left_out(batch: RowBatch, random: np.random.Generator) -> RowBatch:
    """Returns a batch with some experts of each row left out, those solved on a table more often; one stays."""
    evidence = batch.rows.evidence
    available = evidence.available.numpy()
    chance = np.array([_SOLVED_LEFT_OUT if name in SOLVED else _LEFT_OUT for name in METHODS])
    # Some pools are of a few experts, as those that are asked for by name.
    small = random.random((len(available), 1)) < _SMALL
    chance = np.where(small, _SMALL_LEFT_OUT, chance)
    drawn = np.where(available, random.random(available.shape), -1.0)
    # Of counts `tsb` alone is what is asked for most.
    tsb = METHODS.index("tsb")
    drawn[:, tsb] += available[:, tsb] * (random.random(len(drawn)) < 0.5)
    alone = drawn == drawn.max(axis=1, keepdims=True)
    kept = available & (random.random(available.shape) >= chance)
    kept = np.where(random.random((len(kept), 1)) < _ALONE, alone, kept)
    kept = np.where(kept.any(axis=1, keepdims=True), kept, alone)
    evidence = replace(evidence, available=torch.from_numpy(kept))
    return replace(batch, rows=batch.rows._replace(evidence=evidence))


def mirrored(batch: RowBatch, random: np.random.Generator) -> RowBatch:
    """Returns a batch with half of its rows upside down, but for counts: what falls is as likely as what rises."""
    rows = batch.rows
    is_turned = torch.from_numpy(random.random(len(rows.truth)) < 0.5) & ~rows.evidence.counts.bool()

    def turned(part: Tensor) -> Tensor:
        of_row = is_turned.view(-1, *[1] * (part.dim() - 1))
        return torch.where(of_row, -part, part)

    signed = ("forecasts", "missed", "recent", "changes", "zero")
    parts = {name: turned(getattr(rows.evidence, name)) for name in signed}
    evidence = replace(rows.evidence, **parts)
    return replace(batch, rows=ExpertRows(evidence, turned(rows.truth)))


@dataclass(frozen=True)
class RowTable:
    """Where the rows of a table are, and what they are of."""

    name: str
    source: str
    step: str
    real: bool
    rows: range


def chances(tables: Sequence[RowTable]) -> NDArray[np.float64]:
    """Returns the chance of each table in a draw: real or made, then step, then source, then table."""
    real = np.array([table.real for table in tables])
    steps = np.array([table.step for table in tables])
    sources = np.array([table.source for table in tables])
    chance = np.zeros(len(tables))
    for is_real, share in ((True, REAL), (False, 1 - REAL)):
        of_kind = real == is_real
        of_steps = np.unique(steps[of_kind])
        for step in of_steps:
            of_step = of_kind & (steps == step)
            of_sources = np.unique(sources[of_step])
            for source in of_sources:
                of_source = of_step & (sources == source)
                chance[of_source] = share / len(of_steps) / len(of_sources) / of_source.sum()
    return chance / chance.sum()


class Draws(IterableDataset[RowBatch]):
    """Batches of a training, from its next step on."""

    def __init__(self, rows: ExpertRows, tables: Sequence[RowTable], learner: pl.LightningModule):
        self.rows, self.learner = rows, learner
        self._chance = chances(tables)
        self._first = np.array([table.rows.start for table in tables])
        self._count = np.array([len(table.rows) for table in tables])

    def __iter__(self) -> Iterator[RowBatch]:
        step = self.learner.global_step
        while True:
            random = np.random.default_rng([1, step])
            table = random.choice(len(self._chance), ROWS, p=self._chance)
            number = self._first[table] + (random.random(ROWS) * self._count[table]).astype(np.int64)
            yield mirrored(left_out(batch_of(self.rows, number, table), random), random)
            step += 1


def batch_of(rows: ExpertRows, number: NDArray[np.int64], table: NDArray[np.int64]) -> RowBatch:
    """Returns some rows as a batch."""
    where = torch.from_numpy(number)
    return RowBatch(rows.at(where), torch.from_numpy(table), where)


def learn(
    rows: ExpertRows,
    tables: Sequence[RowTable],
    held_out: Sequence[RowBatch],
    steps: int,
    folder: Path,
    seed: int = 0,
    start: ExpertAttention | None = None,
    every: int = 250,
    after_step: Callable[[int], None] = lambda step: None,
) -> Learner[Pretrained]:  # type: ignore[type-var]
    """Trains, or goes on from the newest checkpoint; `average` holds the averaged weights of the best validation.

    Args:
        rows: of all tables.
        tables: which rows are of which table; those held out are not among them.
        held_out: batches that are validated.
        steps: of the whole training.
        folder: of checkpoints.
        seed: of the first weights.
        start: weights to go on from, at a lower rate; None = random ones.
        every: steps between validations and checkpoints.
        after_step: called with the number of steps taken, as to stop.
    """
    torch.manual_seed(seed)
    rate = RATE if start is None else START_RATE
    config = FitPlan(steps=steps, batch_size=ROWS, learning_rate=rate, weight_decay=DECAY)
    network = Pretrained()
    if start is not None:
        network.attention.load_state_dict(start.state_dict())
    names = [table.name for table in tables]
    learner = Learner(network, config, names)  # type: ignore[type-var]
    best = KeepBest()
    saving = ModelCheckpoint(
        folder,
        filename="last",
        every_n_epochs=1,
        save_on_train_epoch_end=False,
        enable_version_counter=False,
    )
    with warnings.catch_warnings():
        # Lightning advises loggers and worker processes, and warns of itself.
        warnings.simplefilter("ignore")
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=1,
            max_steps=steps,
            max_epochs=-1,
            val_check_interval=every,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            gradient_clip_val=1.0,
            logger=False,
            callbacks=[best, saving, _Progress(steps, after_step)],
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        newest = folder / "last.ckpt"
        trainer.fit(
            learner,
            DataLoader(Draws(rows, tables, learner), batch_size=None),
            DataLoader(list(held_out), batch_size=None, collate_fn=None),  # type: ignore[arg-type]
            ckpt_path=newest if newest.exists() else None,
            weights_only=True,
        )
    if best.weights is not None:
        learner.average.load_state_dict(best.weights)
    return learner


class _Progress(pl.Callback):
    """Prints losses after each validation, and calls back after each step."""

    def __init__(self, steps: int, after_step: Callable[[int], None]):
        self._steps, self._after_step = steps, after_step

    def on_train_batch_end(self, trainer: pl.Trainer, learner: pl.LightningModule, *_: object) -> None:
        self._after_step(learner.global_step)

    def on_validation_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        step, loss = learner.curves["validation_loss"][-1]
        print(f"step {step:,} of {self._steps:,}: held-out loss {loss:.4f}", flush=True)
