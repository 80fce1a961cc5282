"""The card of a model: what it forecasts from which columns, and its validation scores, in Markdown."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable
from typing import Any

from forecaster.errors import number_of, visible
from forecaster.forecast.artifact import Artifact, is_forecaster
from forecaster.model.class_network import ClassEnsemble

FAR_OFF = 0.1  # from the nominal coverage, beyond which a band is warned of: 70 – 90 % of an 80 % band
ADVICE = {
    "narrow": "plan with a wider band",
    "wide": "planning with it is safe, and reserves more than is needed",
}
FEWEST_CUTOFFS = 6
"""Without overlap, from which intervals are shown: those of fewer are far too narrow."""
_NAMED = 3  # of the experts, by weight


def model_card(artifact: Artifact[Any]) -> str:
    """Returns the text of card.md."""
    if not is_forecaster(artifact):
        return _class_card(artifact)
    schema, model = artifact.schema, artifact.plan.model
    patch = model.decoder_patch if model.decoder == "autoregressive" else 1
    read = max(model.context_length, model.pool.history_length if model.pool.experts else 0)
    lines = [
        "# Forecast model",
        "",
        f"Forecasts {_names(schema.target)} for {artifact.horizon} steps of {schema.freq} from the "
        f"last {read} steps at most.",
        "",
        f"- series: {_names(schema.as_read.series) or 'one'} · layout {schema.layout}"
        + f" of each {_names(schema.relate)}" * bool(schema.relate),
        f"- known covariates: {_names(schema.known_and_holidays) or 'none'}",
        f"- past covariates: {_names(schema.past) or 'none'}",
        f"- static covariates: {_names(schema.static) or 'none'}",
        f"- decoder: {model.decoder}, mask {model.decoder_mask}"
        + " (a forecast sees the covariates of later leads)" * (model.decoder_mask == "full")
        + f" (the {patch} steps of a patch are drawn independently)" * (patch > 1),
        f"- head: {model.head}",
        f"- ensemble size: {len(artifact.ensemble.members)}",
        *(f"- {line}" for line in (network_line(artifact), attention_line(artifact)) if line),
        f"- data: {_names([artifact.data])}, fingerprint {artifact.fingerprint}",
        *_ancestors(artifact.parent),
        "",
        "## Validation",
        "",
    ]
    if line := calibration_line(artifact):
        lines += [line, ""]
    lines += _score_lines(artifact) or ["No rows were set aside for validation: no scores."]
    return "\n".join(lines) + "\n"


def _class_card(artifact: Artifact[ClassEnsemble]) -> str:
    schema, model = artifact.schema, artifact.plan.model
    each = "step" if artifact.ensemble.per_step else "series"
    lines = [
        "# Classifier",
        "",
        f"Classifies each {each} by {_names([schema.label or ''])}: {_names(artifact.classes)}.",
        "",
        f"- reads {_names(schema.target)} over {model.context_length} steps of {schema.freq}",
        f"- networks: {len(artifact.ensemble.networks)}, network weight "
        f"{100 * float(artifact.ensemble.network_weight):.0f} %, the rest random kernels",
        f"- data: {_names([artifact.data])}, fingerprint {artifact.fingerprint}",
        "",
        "## Held-out series",
        "",
    ]
    return "\n".join([*lines, *_score_lines(artifact)]) + "\n"


def _names(names: Iterable[str]) -> str:
    """Returns names of columns, files and classes as text of Markdown: no tags, links, cells or lines."""
    shown = (html.escape(visible(re.sub(r"\s", " ", name)), quote=False) for name in names)
    return ", ".join(re.sub(r"[\\`*|\[\]]", r"\\\g<0>", name) for name in shown)


def _score_lines(artifact: Artifact[Any]) -> list[str]:
    """Returns a table of validation scores; none without validation."""
    scores = artifact.metrics.get("validation", {}).get("scores", {})
    if not scores:
        return []
    lines = [f"| | {' | '.join(scores)} |", "|---" * (1 + len(scores)) + "|"]
    for name in next(iter(scores.values())):
        values = (f"{own.get(name, math.nan):.4g}" for own in scores.values())
        lines.append(f"| {name} | {' | '.join(values)} |")
    return lines


def calibration_line(artifact: Artifact) -> str:
    """Returns the effect of conformal calibration on windows it was not learned from; may be empty."""
    found = artifact.metrics.get("calibration")
    if found is None:
        return ""
    levels = artifact.plan.model.quantile_levels
    nominal = levels[-1] - levels[0]
    before, after = found["before"], found["after"]
    line = (
        f"conformal calibration ({found['cutoffs']:,} windows, cross-fitted): the "
        f"{100 * nominal:.0f} % band covered {100 * before['coverage']:.1f} % of the "
        "truth before"
    )
    off = off_band(nominal, after.get("inside", nominal), after["coverage"])
    still = f"; still too {off}: {ADVICE[off]}" if off and found["cutoffs"] >= FEWEST_CUTOFFS else ""
    if not found["applied"]:
        return f"{line}; no factor improves it, the quantiles stay{still}"
    changes = " · ".join(
        f"{name} × {after[name] / before[name]:.3f}" if before[name] else f"{name} was 0"
        for name in ("width", "pinball")
    )
    return f"{line}, {100 * after['coverage']:.1f} % after · {changes}{still}"


def off_band(nominal: float, low: float, high: float, allowed: float = FAR_OFF) -> str:
    """Returns "narrow" or "wide" where all of a coverage from low to high misses what is nominal by more."""
    return "narrow" if high < nominal - allowed else "wide" if low > nominal + allowed else ""


def network_line(artifact: Artifact) -> str:
    """Returns the weights of experts and network as the fit measured them; may be empty."""
    weights = artifact.metrics.get("expert_weights")
    if weights is None:
        return ""
    if not weights:
        return "no fit: experts weighed by attention to their errors in each series; network weight 0 %"
    largest = sorted(weights, key=weights.__getitem__, reverse=True)
    named = [f"{name} {100 * weights[name]:.0f} %" for name in largest[:_NAMED]]
    if left := len(weights) - len(named):
        named.append(number_of(left, "other"))
    network = 100 * (artifact.metrics.get("network_weight") or 0)
    return f"experts: {', '.join(named)}; network weight {network:.0f} %"


def attention_line(artifact: Artifact) -> str:
    """Returns where the weights of experts come from; empty where there are not several."""
    if len(artifact.plan.model.pool.experts) < 2:
        return ""
    line = "weights of experts: by attention that was learned on other tables"
    steps = artifact.metrics.get("attention_steps")
    return f"{line}, tuned in {number_of(steps, 'step')} on this one" if steps else line


def _ancestors(parent: dict[str, Any] | None) -> list[str]:
    """Returns a line per artifact that the weights come from, the nearest first."""
    if parent is None:
        return []
    of = "started from weights"
    if parent.get("updated"):
        of = f"update of {parent['updated']} of a model"
    line = (
        f"- {of} fitted to {_names([parent['data']])} ({parent['freq']}) until "
        f"{parent['until']}, fingerprint {parent['fingerprint']}"
    )
    return [line, *_ancestors(parent["parent"])]
