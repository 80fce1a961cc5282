"""What is wrong, or only odd, with a panel: the rules, and the one function that asks them all.

What comes in is a panel; what goes out are findings with severity, series, place, count and advice.
Rules read what `facts.py` found in one pass; those that need rows again look at a bounded sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from forecaster.panel import audit_covariates, audit_levels, audit_steps, audit_targets
from forecaster.panel.facts import Facts, facts_of
from forecaster.panel.finding import Finding, worst_first
from forecaster.panel.panel import Panel

Rule = Callable[[Facts], Iterable[Finding]]

RULES: tuple[Rule, ...] = (
    audit_targets.unobserved,
    audit_targets.short,
    audit_targets.constant,
    audit_targets.stuck,
    audit_targets.ended,
    audit_levels.outlier_scale,
    audit_levels.jumps,
    audit_levels.negative_counts,
    audit_steps.steps,
    audit_targets.ends,
    audit_covariates.empty,
    audit_covariates.edges,
    audit_covariates.reach,
    audit_covariates.leaks,
    audit_covariates.twins,
    audit_covariates.unknown_categories,
)


def check_panel(panel: Panel, horizon: int | None = None) -> list[Finding]:
    """Returns the findings on a panel, worst first, those made while it was built included.

    Args:
        panel: any panel.
        horizon: steps that will be forecast; None leaves out what depends on it.
    """
    facts = facts_of(panel, horizon)
    return worst_first([*panel.notes, *(finding for rule in RULES for finding in rule(facts))])
