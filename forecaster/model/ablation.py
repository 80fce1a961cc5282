"""Which evidence moves the weights of experts: each group of what attention reads is removed in turn.

    errors             of each expert at earlier cutoffs, and of the best of them
    bias               of each expert there
    forecasts          how far each is from the center, and how far they disagree
    recent steps       the last 128, and how they change
    season and length  of the history and the horizon; scatter, counts, the 0 of the data

A removed feature is 0, as if experts did not differ in it. Without errors, the weights of
the evidence before attention are equal; without forecasts, leads show nothing of their own; without recent
steps, these are masked. The center and the unit, in which all is counted, stay: they are no evidence about
one expert.

Axes: R row · H lead · E expert · V removed group.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from forecaster.model.evidence import POSITIONS
from forecaster.model.expert_attention import Lead, Tokens, tokens_of
from forecaster.model.experts import CUTOFFS, Experts, Pool

Columns = tuple[int, ...]


class Group(NamedTuple):
    """The features of a group; see `expert_features` and `row_features`."""

    of_expert: Columns
    of_row: Columns


def _columns(*spans: tuple[int, int]) -> Columns:
    return tuple(column for start, stop in spans for column in range(start, stop))


_P, _J = POSITIONS, CUTOFFS
_ALL = 3 * _P + 2 * _J  # features of an expert's token over all positions and cutoffs begin
_EACH = 17 + _J  # features of the row's token at each position begin
ERRORS, BIAS, FORECASTS = "errors", "bias", "forecasts"
RECENT_STEPS, LENGTHS = "recent steps", "season and length"
GROUPS = {
    ERRORS: Group(
        _columns((_P, 2 * _P), (3 * _P, 3 * _P + _J), (_ALL, _ALL + 1), (_ALL + 2, _ALL + 4)),
        _columns((7, 8), (9, 10), (17, _EACH)),
    ),
    BIAS: Group(_columns((2 * _P, 3 * _P), (3 * _P + _J, _ALL), (_ALL + 1, _ALL + 2)), ()),
    FORECASTS: Group(_columns((0, _P)), _columns((_EACH, _EACH + 3 * _P))),
    RECENT_STEPS: Group((), _columns((10, 15), (_EACH + 4 * _P, _EACH + 5 * _P))),
    LENGTHS: Group((), _columns((0, 7), (8, 9), (15, 17), (_EACH + 3 * _P, _EACH + 4 * _P))),
}
"""The columns of each group: every feature of an expert and of the row is in one of them."""


def without(tokens: Tokens, group: str) -> Tokens:
    """Returns tokens in which the features of a group are 0."""
    of_expert, of_row = GROUPS[group]
    experts, row = tokens.experts.clone(), tokens.row.clone()
    experts[..., of_expert] = 0.0
    row[..., of_row] = 0.0
    if group != RECENT_STEPS:
        return tokens._replace(experts=experts, row=row)
    observed = torch.zeros_like(tokens.observed)
    return tokens._replace(
        experts=experts, row=row, steps=torch.zeros_like(tokens.steps), observed=observed
    )


def weights_without(experts: Experts, pool: Pool) -> Float[Tensor, "V R H E"]:
    """Returns the weights of the experts without each of `GROUPS` in turn; they sum to 1."""
    attention, evidence = experts.attention, pool.evidence
    tokens = tokens_of(evidence, attention.solved)
    lead = attention.lead(evidence, pool.forecasts)
    none = Lead(*(torch.zeros_like(part) for part in lead))
    unweighed = replace(evidence, missed=torch.zeros_like(evidence.missed))
    weights = [
        experts.weighed(
            unweighed if group == ERRORS else evidence,
            attention.answer(without(tokens, group)),
            none if group == FORECASTS else lead,
        )
        for group in GROUPS
    ]
    return torch.stack(weights)
