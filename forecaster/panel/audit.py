"""What is wrong, or only odd, with a panel: the rules, and the one function that asks them all.

What comes in is a panel; what goes out are findings with severity, series, place, count and advice.
Rules read what `facts.py` found in one pass; those that need rows again look at a bounded sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from forecaster.panel import audit_companions as companions
from forecaster.panel import audit_levels as levels
from forecaster.panel import audit_pace as pace
from forecaster.panel import audit_targets as targets
from forecaster.panel.audit_facts import Facts, facts_of
from forecaster.panel.findings import Finding, worst_first
from forecaster.panel.panel import Panel

Rule = Callable[[Facts], Iterable[Finding]]

RULES: tuple[Rule, ...] = (
    targets.unobserved,
    targets.short,
    targets.constant,
    targets.stuck,
    targets.ended,
    levels.outlier_scale,
    levels.jumps,
    levels.negative_counts,
    levels.bounds,
    pace.steps,
    targets.ends,
    companions.empty,
    companions.edges,
    companions.reach,
    companions.leaks,
    companions.twins,
    companions.unknown_categories,
)


def check_panel(panel: Panel, horizon: int | None = None) -> list[Finding]:
    """Returns the findings on a panel, worst first, those made while it was built included.

    Args:
        panel: any panel.
        horizon: steps that will be forecast; None leaves out what depends on it.
    """
    facts = facts_of(panel, horizon)
    return worst_first([*panel.notes, *(finding for rule in RULES for finding in rule(facts))])
