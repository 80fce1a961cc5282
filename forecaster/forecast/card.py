"""A saved model's card: what it is and how good, for people.

What comes in: an artifact. What goes out: Markdown.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from forecaster.config import Plan

if TYPE_CHECKING:
    from forecaster.forecast.artifact import Artifact


def card_of(artifact: Artifact) -> str:
    """Returns the text of card.md."""
    schema, config = artifact.schema, artifact.config
    scores = artifact.metrics.get("validation", {}).get("scores", {})
    lines = [
        "# Forecast model",
        "",
        f"Forecasts {', '.join(schema.target)} for {artifact.horizon} steps of {schema.freq} from the "
        f"last {artifact.context_length} steps.",
        "",
        f"- series: {', '.join(schema.series) or 'one'} · layout {schema.layout}",
        f"- known in advance: {', '.join(schema.known) or 'nothing'}",
        f"- past covariates: {', '.join(schema.past) or 'none'}",
        f"- static covariates: {', '.join(schema.static) or 'none'}",
        f"- decoder: {config.model.decoder}, mask {config.model.decoder_mask}"
        + (" (a forecast sees the covariates of later leads)" * (config.model.decoder_mask == "full"))
        + _patches_written(config),
        f"- head: {config.model.head}",
        f"- members: {len(artifact.ensemble.members)}",
        *([f"- {line}"] if (line := attention_line(artifact)) else []),
        f"- data: {artifact.data}, fingerprint {artifact.fingerprint}",
        *_descent(artifact.parent),
        "",
        "## Validation",
        "",
    ]
    if line := calibration_line(artifact):
        lines += [line, ""]
    if scores:
        lines += [f"| | {' | '.join(scores)} |", "|---" * (1 + len(scores)) + "|"]
        for name in next(iter(scores.values())):
            lines.append(
                f"| {name} | {' | '.join(f'{s.get(name, math.nan):.4g}' for s in scores.values())} |"
            )
    else:
        lines.append("No rows were set aside for validation: no scores.")
    return "\n".join(lines) + "\n"


def calibration_line(artifact: Artifact) -> str:
    """Returns what calibration does to windows it was not learned from; empty where there is none."""
    found = artifact.metrics.get("calibration")
    if found is None:
        return ""
    levels = artifact.config.model.quantile_levels
    before, after = found["before"], found["after"]
    band = f"{100 * (levels[-1] - levels[0]):.0f} % band"
    held = f"the {band} held {100 * before['coverage']:.1f} % of the truth"
    learned = f"calibration ({found['cutoffs']:,} cutoffs, cross-fitted): {held} before"
    if not found["strength"]:
        return f"{learned}; no width helps, the quantiles stay"
    changes = " · ".join(
        f"{name} × {after[name] / before[name]:.3f}" if before[name] else f"{name} was 0"
        for name in ("width", "pinball")
    )
    return f"{learned}, {100 * after['coverage']:.1f} % after · {changes}"


def attention_line(artifact: Artifact) -> str:
    """Returns what attention adds to the linear forecast; empty where there is none, or no measure."""
    found = artifact.metrics.get("attention_share")
    if found is None:
        return ""
    share, way = artifact.metrics.get("share"), artifact.config.model.linear
    if not share:
        return "attention: 0 % of the forecast; on the validation windows the linear forecast was best"
    kept = "" if share == 1 else f" (validation kept {100 * share:.0f} % of it)"
    return (
        f"attention: {100 * found:.0f} % of what moves forecasts of the validation windows away from "
        f"the mean of their context, the linear forecast the rest; linear {way}{kept}"
    )


def _descent(parent: dict[str, Any] | None) -> list[str]:
    """Returns a line per artifact that the weights come from, the nearest first."""
    if parent is None:
        return []
    line = (
        f"- started from weights fitted to {parent['data']} ({parent['freq']}) until "
        f"{parent['until']}, fingerprint {parent['fingerprint']}"
    )
    return [line, *_descent(parent["parent"])]


def _patches_written(config: Plan) -> str:
    size = config.model.decoder_patch or 1
    if config.model.decoder == "direct" or size == 1:
        return ""
    return f" (given what came before, the {size} steps of a patch are drawn independently)"
