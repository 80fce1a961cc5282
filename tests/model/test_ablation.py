"""What is removed is what a group holds; the weights are those of attention that never saw it."""

from dataclasses import replace

import pytest
import torch
from test_expert_attention import evidence_of, shipped
from test_experts import ALL, HORIZON, histories, make_experts, pool_of

from forecaster.model.ablation import (
    BIAS,
    ERRORS,
    FORECASTS,
    GROUPS,
    LENGTHS,
    RECENT_STEPS,
    weights_without,
    without,
)
from forecaster.model.evidence import POSITIONS
from forecaster.model.expert_attention import FEATURES, tokens_of

CUTOFFS = 4
OF_EXPERT = (
    [FORECASTS] * POSITIONS
    + [ERRORS] * POSITIONS
    + [BIAS] * POSITIONS
    + [ERRORS] * CUTOFFS
    + [BIAS] * CUTOFFS
    + [ERRORS, BIAS, ERRORS, ERRORS]
)
OF_ROW = (
    [LENGTHS] * 7
    + [ERRORS, LENGTHS, ERRORS]
    + [RECENT_STEPS] * 5
    + [LENGTHS] * 2
    + [ERRORS] * CUTOFFS
    + [FORECASTS] * POSITIONS * 3
    + [LENGTHS] * POSITIONS
    + [RECENT_STEPS] * POSITIONS
)
"""The twin: the group of each feature, in the order of `expert_features` and `row_features`."""


@pytest.mark.parametrize("group", GROUPS)
def test_a_removed_group_is_zero_and_all_other_features_stay(group):
    assert len(OF_EXPERT) == FEATURES[0] and len(OF_ROW) == FEATURES[1]
    tokens = tokens_of(evidence_of(), shipped().solved)
    found = without(tokens, group)
    for place, name in enumerate(OF_EXPERT):
        expected = 0 * tokens.experts[..., place] if name == group else tokens.experts[..., place]
        assert torch.equal(found.experts[..., place], expected), place
    for place, name in enumerate(OF_ROW):
        expected = 0 * tokens.row[..., place] if name == group else tokens.row[..., place]
        assert torch.equal(found.row[..., place], expected), place
    of_steps = group == RECENT_STEPS
    assert torch.equal(found.steps, 0 * tokens.steps if of_steps else tokens.steps)
    assert torch.equal(found.observed, tokens.observed & (not of_steps))
    assert torch.equal(found.available, tokens.available)


def test_bias_is_what_changes_with_the_sign_of_what_was_missed():
    """The sign of what was missed is in bias alone."""
    evidence = evidence_of()
    flipped = replace(evidence, missed=-evidence.missed)
    first, second = (tokens_of(one, shipped().solved).experts for one in (evidence, flipped))
    changed = ((first - second).abs() > 1e-6).flatten(0, 1).any(dim=0).tolist()
    assert [name == BIAS for name in OF_EXPERT] == changed


@pytest.mark.long
def test_weights_without_a_group_are_those_of_one_row_and_expert_at_a_time():
    """The twin: loops over rows, leads and experts, logits and softmax by hand."""
    experts = make_experts(ALL)
    pool = pool_of(experts, histories())
    found = weights_without(experts, pool)
    attention, evidence = experts.attention, pool.evidence
    torch.testing.assert_close(found.sum(dim=-1), torch.ones_like(found[..., 0]))
    assert (found.transpose(2, 3)[:, ~evidence.available] == 0).all()
    lead = attention.lead(evidence, pool.forecasts)
    for number, group in enumerate(GROUPS):
        answer = attention.answer(without(tokens_of(evidence, attention.solved), group))
        for row in range(len(found[0])):
            for step in range(HORIZON):
                logits = []
                for expert in range(len(ALL)):
                    shown = [0.0] * 4
                    if group != FORECASTS:
                        distance = float(lead.distance[row, step, expert])
                        shown = [
                            distance,
                            abs(distance),
                            float(lead.gap[row, step]),
                            float(lead.disagreement[row, step]),
                        ]
                    change = float(experts._interpolation[step] @ answer.logits[row, :, expert])
                    change += sum(
                        a * float(b) for a, b in zip(shown, answer.slopes[row, expert], strict=True)
                    )
                    before = 0.0 if group == ERRORS else float(evidence.logits[row, expert])
                    there = bool(evidence.available[row, expert])
                    logits.append(before + max(-12.0, min(12.0, change)) if there else -torch.inf)
                expected = torch.tensor(logits).softmax(dim=0)
                torch.testing.assert_close(found[number, row, step], expected, atol=1e-5, rtol=1e-4)


def test_without_errors_an_untrained_attention_weighs_all_alike():
    evidence = evidence_of()
    unweighed = replace(evidence, missed=torch.zeros_like(evidence.missed))
    alike = evidence.available / evidence.available.sum(dim=1, keepdim=True)
    torch.testing.assert_close(unweighed.weights, alike)
