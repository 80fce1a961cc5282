"""Attention over experts tuned on the windows of a table: its last two maps, for histories of over a season.

    training windows ─▶ attended tokens, computed once ─▶ steps on the last maps, at a penalty for leaving
    the shipped ones ─▶ tuned or shipped, as the validation windows speak for

What attention makes of a row stays as it was learned on other tables; the table says what follows from it.
Tuned maps must be better than the shipped ones by half a standard error over stretches of time (`least_loss`), so
that panels of short series, which only promise a gain, keep these. All weights instead of the last maps had .99 of
the WQL where tables are long, for twice the time.

Axes: R row, a channel of a window · P position of a lead · Q quantile level · G stretch of time.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from forecaster.fitting.mixture import least_loss, stretches
from forecaster.model.evidence import POSITIONS, Evidence, positions
from forecaster.model.expert_attention import (
    LEVELS,
    Attended,
    ExpertAttention,
    Lead,
    mixed,
    tokens_of,
)
from forecaster.model.heads import pinball
from forecaster.model.network import Network
from forecaster.windows.index import Int64, WindowIndex, even_draw
from forecaster.windows.split import Split
from forecaster.windows.store import WindowStore
from forecaster.windows.streams import WindowSequence

STEPS = 200
"""With 50 among the choices WQL was 1.002 on 51 tables."""
_ROWS = 4096  # of training windows at most, and of validation windows
_BATCH = 256
_RATE = 5e-3
_PENALTY = 0.001  # of the squared distance from the shipped maps, in the loss
_FAR = 20.0  # units of the row beyond which a loss grows as a logarithm: one broken series is no lesson


class TuningRows(NamedTuple):
    """Rows of windows, and all that does not depend on the last maps."""

    evidence: Evidence
    attended: Attended
    lead: Lead
    """At the positions."""
    truth: Tensor
    """[R, P] scaled units; NaN = missing."""

    def at(self, rows: Tensor) -> TuningRows:
        """Returns some rows."""
        return TuningRows(
            self.evidence.at(rows),
            Attended(*(part[rows] for part in self.attended)),
            Lead(*(part[rows] for part in self.lead)),
            self.truth[rows],
        )


def tuned_maps(
    network: Network, store: WindowStore, split: Split, seed: int
) -> tuple[int, list[Tensor]]:
    """Returns the steps that were best, `STEPS` or none, and weights and biases of the last maps after them.

    Args:
        network: with solved experts, and the maps that training windows are forecast by.
        store, split: of the table.
        seed: of the rows of each step.
    """
    assert network.experts is not None
    attention = copy.deepcopy(network.experts.attention)
    windows = split.validation_windows
    if len(network.experts.names) == 1 or not len(windows) or not len(split.train):
        return 0, parameters_of(attention)
    validation = windows[even_draw(len(windows), _ROWS)]
    stretch = stretches(split.validation, validation, store.horizon)
    if stretch.max() == 0:  # one stretch is no evidence
        return 0, parameters_of(attention)
    rows = rows_of(network, store, split.train, even_draw(len(split.train), _ROWS))
    held_out = rows_of(network, store, split.validation, validation)
    channels = len(held_out.truth) // len(validation)
    stretch_of_row = torch.from_numpy(stretch).repeat_interleave(channels)
    choices = attention, after_steps(attention, rows, STEPS, seed)
    losses = torch.stack(
        [_by_stretch(choice, held_out, stretch_of_row) for choice in choices]
    )  # [2, G]
    chosen = least_loss(losses)
    return (0, STEPS)[chosen], parameters_of(choices[chosen])


@torch.no_grad()
def rows_of(network: Network, store: WindowStore, index: WindowIndex, windows: Int64) -> TuningRows:
    """Returns the rows of some windows, training windows by maps solved without their block of time."""
    experts = network.experts
    assert experts is not None
    attention, leads = experts.attention, positions(store.horizon)
    parts = []
    for batch in WindowSequence(store, index, windows, _BATCH):
        scale = network.scale(batch.inputs)
        truth = scale.apply(batch.target)[:, leads]  # [B, P, C]
        evidence = network.pool(batch.inputs, scale, batch.time).evidence
        attended = attention.attended(tokens_of(evidence, attention.solved))
        lead = attention.lead(evidence, evidence.forecasts)
        parts.append(TuningRows(evidence, attended, lead, truth.mT.flatten(0, 1).float()))
    return _joined(parts)


def after_steps(attention: ExpertAttention, rows: TuningRows, steps: int, seed: int) -> ExpertAttention:
    """Returns a copy of attention after some steps on rows.

    loss = mean loss of a cell + penalty · Σ (map − shipped map)²
    """
    attention = copy.deepcopy(attention)
    shipped = parameters_of(attention)
    learned = list(attention.tuned.parameters())
    for part in learned:
        part.requires_grad_(True)
    optimizer = torch.optim.Adam(learned, lr=_RATE)
    random = np.random.default_rng(seed)
    for _ in range(steps):
        drawn = random.choice(len(rows.truth), min(_BATCH, len(rows.truth)), replace=False)
        some = rows.at(torch.from_numpy(drawn))
        loss = row_losses(_quantiles(attention, some), some.evidence, some.truth)
        cells = (~some.truth.isnan()).sum().clamp(min=1)
        apart = [(part - own).square().sum() for part, own in zip(learned, shipped, strict=True)]
        total = loss.sum() / cells + _PENALTY * torch.stack(apart).sum()
        optimizer.zero_grad()
        total.backward()
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
    return attention.requires_grad_(False)


def row_losses(
    quantiles: Float[Tensor, "R P Q"], evidence: Evidence, truth: Float[Tensor, "R P"]
) -> Float[Tensor, "R P"]:
    """Returns the pinball loss of each cell in units of its row, 0 where the truth is missing."""
    center = mixed(evidence.forecasts, evidence.weights[:, None])
    unit = evidence.unit[:, None]
    distance = _near((truth.nan_to_num() - center) / unit)
    away = (quantiles - center[..., None]) / unit[..., None]
    return pinball(away, distance, torch.tensor(LEVELS)).masked_fill(truth.isnan(), 0.0)


def parameters_of(attention: ExpertAttention) -> list[Tensor]:
    """Returns copies of the weights and biases of the tuned maps."""
    return [part.detach().clone() for part in attention.tuned.parameters()]


@torch.no_grad()
def put(maps: Sequence[Tensor], attention: ExpertAttention) -> None:
    """Puts weights and biases into the tuned maps, in place."""
    parts = list(attention.tuned.parameters())
    for part, value in zip(parts, maps, strict=True):
        part.copy_(value)


@torch.no_grad()
def _by_stretch(
    attention: ExpertAttention, rows: TuningRows, stretch: Int[Tensor, " R"]
) -> Float[Tensor, " G"]:
    """Sums of the loss in scaled units, as networks are weighed by."""
    loss = pinball(_quantiles(attention, rows), rows.truth, torch.tensor(LEVELS))
    loss = loss.masked_fill(rows.truth.isnan(), 0.0).sum(dim=1).double()
    return loss.new_zeros(int(stretch.max()) + 1).index_add(0, stretch, loss)


def _quantiles(attention: ExpertAttention, rows: TuningRows) -> Float[Tensor, "R P Q"]:
    evidence = rows.evidence
    quantiles = attention.answered(
        evidence,
        attention.read(rows.attended),
        rows.lead,
        evidence.forecasts,
        evidence.width,
        torch.eye(POSITIONS),
    )
    return never_negative(quantiles, evidence)


def never_negative(quantiles: Float[Tensor, "R P Q"], evidence: Evidence) -> Float[Tensor, "R P Q"]:
    """Returns quantiles of counts held at 0: what lies below is a point mass there."""
    least = torch.where(evidence.counts, evidence.zero, -torch.inf)
    return torch.maximum(quantiles, least[:, None, None])


def _near(distance: Tensor) -> Tensor:
    """Distances beyond `_FAR` grow as a logarithm."""
    size = distance.abs()
    return torch.where(size > _FAR, distance.sign() * _FAR * (1 + (size / _FAR).log()), distance)


def _joined(parts: Sequence[TuningRows]) -> TuningRows:
    return TuningRows(
        Evidence.joined([part.evidence for part in parts]),
        Attended(*map(torch.cat, zip(*(part.attended for part in parts), strict=True))),
        Lead(*map(torch.cat, zip(*(part.lead for part in parts), strict=True))),
        torch.cat([part.truth for part in parts]),
    )
