"""Importance by masking: what a forecast becomes when a part of what it was told is hidden.

What comes in: one window. What goes out: for each covariate and each block of the context, how far the
forecast moves without it. Promised: all variants and the forecast itself are computed in one batch, on
the same random numbers; what the network cannot use moves nothing.

Axes: V variant, the first with nothing hidden · L context · H horizon · C channel · Q quantile level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from forecaster.model.ensemble import Ensemble
from forecaster.model.heads import pinball
from forecaster.panel.panel import Panel
from forecaster.panel.schema import Schema
from forecaster.windows.batch import Inputs

_BLOCKS = 16  # of the context at most: what a reader can tell apart


@dataclass(frozen=True)
class Importance:
    """How far a forecast moves when one thing is hidden; scaled units, the context's own spread."""

    name: str
    """Of the covariate, cycle or channel; or the steps of the context, counted from the oldest."""
    kind: str
    """known, past, static, calendar, channel or context."""
    change: float
    """Mean absolute change of the median over the horizon."""
    loss: float | None
    """By how much the pinball loss rises; None where no truth is known."""
    cells: tuple[int, int] | None = None
    """First step and the one after the last, for a block of the context."""


@dataclass(frozen=True)
class Hidden:
    """A window without one of the things it was told."""

    name: str
    kind: str
    inputs: Inputs
    cells: tuple[int, int] | None = None


def without_each(inputs: Inputs, panel: Panel, channel: int | None, patch: int) -> list[Hidden]:
    """Returns a window once without each covariate, and once without each block of its context.

    Args:
        inputs: one window.
        panel: for the names of covariates, cycles and channels.
        channel: the forecast channel, where it sees the others, which are hidden in turn; else None.
        patch: steps per token; blocks are whole tokens.
    """
    hidden = [*_covariates(inputs, panel.schema), *_blocks(inputs, patch)]
    for number, name in enumerate(panel.calendar.cycles):
        unknown = replace(inputs, phase=_blank(inputs.phase, number)[0])
        hidden.append(Hidden(name, "calendar", unknown))
    for number, name in enumerate(panel.schema.target if channel is not None else ()):
        if number != channel:
            values, observed = _blank(inputs.context, number)
            hidden.append(Hidden(name, "channel", replace(inputs, context=values, observed=observed)))
    return hidden


def importance_of(
    ensemble: Ensemble,
    inputs: Inputs,
    hidden: Sequence[Hidden],
    channel: int,
    target: Tensor,
    key: Tensor,
) -> tuple[Importance, ...]:
    """Returns the importance of what was hidden, in the order given.

    Args:
        ensemble: makes the forecasts.
        inputs: the window with nothing hidden.
        hidden: the same with one thing hidden in each.
        channel: whose forecast it is about.
        target: [1, H, C] truth, data units; NaN = not known.
        key: [1] what paths are drawn by, the same ones in all variants.
    """
    variants = [inputs, *(one.inputs for one in hidden)]
    together = Inputs(*(torch.cat([getattr(v, f.name) for v in variants]) for f in fields(Inputs)))
    scaler = ensemble.members[0].scaler
    scale = scaler(inputs.context, inputs.observed, inputs.channel).scale[0, channel]  # type: ignore[operator]
    said = ensemble(together, key.expand(len(variants)))[:, :, channel] / scale  # [V, H, Q]
    median = said[..., ensemble.levels.index(0.5)]
    change = (median - median[:1]).abs().mean(dim=1).tolist()
    truth = target[0, :, channel] / scale
    known = ~truth.isnan()
    rise: list[float | None] = [None] * len(variants)
    if known.any():
        levels = torch.tensor(ensemble.levels)
        loss = pinball(said[:, known], truth[known].expand(len(variants), -1), levels).mean(dim=1)
        rise = (loss - loss[0]).tolist()
    return tuple(
        Importance(one.name, one.kind, change[n], rise[n], one.cells)
        for n, one in enumerate(hidden, start=1)
    )


def _covariates(inputs: Inputs, schema: Schema) -> Iterator[Hidden]:
    numbers = {"known": schema.known_numeric, "past": schema.past_numeric}
    words = {
        "known": schema.known_category,
        "past": schema.past_category,
        "static": schema.static_category,
    }
    for kind, names in numbers.items():
        for place, name in enumerate(names):
            values, observed = _blank(getattr(inputs, kind), place)
            unknown = {kind: values, f"{kind}_observed": observed}
            yield Hidden(name, kind, replace(inputs, **unknown))
    for place, name in enumerate(schema.static_numeric):
        yield Hidden(name, "static", replace(inputs, static=_blank(inputs.static, place)[0]))
    for kind, names in words.items():
        for place, name in enumerate(names):
            codes = getattr(inputs, f"{kind}_category").clone()
            codes[..., place] = 0
            unknown = {f"{kind}_category": codes}
            yield Hidden(name, kind, replace(inputs, **unknown))


def _blocks(inputs: Inputs, patch: int) -> Iterator[Hidden]:
    """Yields the window without targets and past covariates of one block after the other."""
    length = inputs.context.shape[1]
    size = patch * -(-length // (patch * _BLOCKS))
    for stop in range(length - size * ((length - 1) // size), length + 1, size):
        start = max(0, stop - size)
        step = torch.zeros(length, dtype=torch.bool)
        step[start:stop] = True
        cells = step[None, :, None]
        left = inputs.observed & ~cells
        # A block that was never observed hides nothing; one that holds all leaves nothing to forecast.
        if left.any() and (inputs.observed & cells).any():
            rest = replace(
                inputs,
                context=inputs.context.masked_fill(cells, torch.nan),
                observed=left,
                past=inputs.past.masked_fill(cells, torch.nan),
                past_observed=inputs.past_observed & ~cells,
                past_category=inputs.past_category.masked_fill(cells, 0),
            )
            yield Hidden(f"{start}-{stop - 1}", "context", rest, (start, stop))


def _blank(values: Tensor, place: int) -> tuple[Tensor, Tensor]:
    """Values with one column missing, and where the others are real."""
    blank = values.clone()
    blank[..., place] = torch.nan
    return blank, ~blank.isnan()
